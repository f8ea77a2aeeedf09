"""Readers and in-commit timestamps: when a version was committed, and which version was the newest at a time."""

from __future__ import annotations

from typing import Any

from conformance.checks.log_tail import FRESH
from conformance.checks.reading import APPLIED
from conformance.checks.registry import check
from conformance.interface import messages as m
from conformance.models import proposals
from conformance.models.proposals import BASE_TIME
from conformance.requirements.catalogue import Profile
from conformance.scenario.check import Family
from conformance.scenario.client import ClientScenario
from conformance.scenario.log_builder import LogBuilder, file, gone
from conformance.scenario.snapshots import ask, is_snapshot, must_read

ENABLED = "delta.enableInCommitTimestamps"
ENABLEMENT_VERSION = "delta.inCommitTimestampEnablementVersion"
ENABLEMENT_TIMESTAMP = "delta.inCommitTimestampEnablementTimestamp"
HOUR = 3_600_000


def table_with(s: ClientScenario) -> LogBuilder:
    """Versions 0 to 4, of which 2 are published, a second apart. The files were touched much later, and backwards."""
    log = LogBuilder.create(s)
    for number in range(1, 5):
        log.land(file(f"file-{number}"))
    log.backfill(2)
    for version in range(log.published + 1):
        log.touch(version, BASE_TIME + (10 - version) * HOUR)
    return log


def plain(s: ClientScenario, versions: int = 3) -> LogBuilder:
    """A filesystem table without in-commit timestamps: its commits are an hour apart, and their commitInfo holds
    another time, which is not when they were committed."""
    log = LogBuilder.filesystem(s)
    info = proposals.line("commitInfo", {"timestamp": BASE_TIME - HOUR, "operation": "WRITE"})
    protocol = proposals.line("protocol", {"minReaderVersion": 1, "minWriterVersion": 2})
    log.write(info, protocol, proposals.metadata(s.attempt(), BASE_TIME, {ENABLED: "false"}), modified=BASE_TIME)
    for version in range(1, versions):
        log.write(info, file(f"file-{version}"), modified=BASE_TIME + version * HOUR)
    return log


def enabled_later(s: ClientScenario) -> LogBuilder:
    """Versions 0 to 2 without in-commit timestamps; version 3 enables them, and gives the table to its owner; 4 and 5
    follow, all an hour apart."""
    log = plain(s)
    enabled = BASE_TIME + 3 * HOUR
    log.take_over(timestamp=enabled, properties={ENABLEMENT_VERSION: "3", ENABLEMENT_TIMESTAMP: str(enabled)})
    log.land(file("file-4"), timestamp=enabled + HOUR)
    log.land(file("file-5"), timestamp=enabled + 2 * HOUR)
    return log


def has_time(log: LogBuilder, read: m.SnapshotRead, time: int, *requirements: str, expected: str) -> None:
    """What the reader says of when the version was committed, if it says anything."""
    log.s.require(
        read.timestamp in (None, time), *requirements, table=log.table, version=read.version, expected=expected,
        observed=f"version {read.version} at {read.timestamp}",
    )  # fmt: skip


@check(Family.TIMESTAMPS, "ICT-16", side="client")
def the_time_of_a_commit_is_in_the_commit(s: ClientScenario) -> None:
    """With in-commit timestamps the time of a version is the one in its commit, published or not; that of its file
    changes whenever somebody copies the table."""
    log = table_with(s)
    for version in (4, 3, 2, 1, 0):
        read = must_read(log, version, "ICT-16", version=version, about=("timestamp",),
                         expected=f"version {version}")  # fmt: skip
        time = s.timestamp(version)
        has_time(
            log, read, time, "ICT-16", expected=f"version {version} was committed at {time}: its commitInfo says so"
        )


@check(Family.TIMESTAMPS, "ICT-20", "ICT-16", side="client")
def a_time_leads_to_the_newest_version_until_then(s: ClientScenario) -> None:
    """Time travel reads the latest version that is not later than the time, unpublished ones included."""
    log = table_with(s)
    must_read(log, 4, *FRESH, expected="version 4 is ratified")
    for version in (1, 2, 3):
        for later in (0, 999):
            time = s.timestamp(version) + later
            must_read(
                log, version, "ICT-20", "ICT-16", timestamp=time,
                expected=f"version {version} is of {s.timestamp(version)} and version {version + 1} of "
                f"{s.timestamp(version + 1)}: at {time} the newest was version {version}",
            )  # fmt: skip
    must_read(log, 4, "ICT-20", "ICT-16", timestamp=s.timestamp(4),
              expected=f"version 4 is of {s.timestamp(4)}: at that time it was the newest")  # fmt: skip


@check(Family.TIMESTAMPS, "ICT-20", *APPLIED, side="client")
def a_time_outside_the_history_gives_no_other_snapshot(s: ClientScenario) -> None:
    """A time before the first commit or after the last one may be an error or lead to a version; whatever is read is a
    snapshot as it was."""
    log = table_with(s)
    must_read(log, 2, "ICT-20", timestamp=s.timestamp(2), expected="at the time of version 2 it was the newest")
    for time in (s.timestamp(0) - 1, s.timestamp(4) + 1):
        told, _ = ask(log, timestamp=time)
        if isinstance(told.answer, m.SnapshotRead):
            is_snapshot(log, told, told.answer, "ICT-20")


@check(Family.TIMESTAMPS, "ICT-17", "ICT-16", side="client")
def before_the_enablement_a_file_has_the_time(s: ClientScenario) -> None:
    """A table that got in-commit timestamps later: from the enablement version on the commits have their time, before
    it their files have."""
    log = enabled_later(s)
    for version in (5, 4, 3):
        read = must_read(log, version, "ICT-16", version=version, about=("timestamp",), expected=f"version {version}")
        time = BASE_TIME + version * HOUR
        has_time(
            log, read, time, "ICT-16", expected=f"version {version} was committed at {time}: its commitInfo says so"
        )
    for version in (2, 1, 0):
        read = must_read(log, version, "ICT-17", version=version, about=("timestamp",), expected=f"version {version}")
        time = BASE_TIME + version * HOUR
        has_time(log, read, time, "ICT-17",
                 expected=f"version {version} is older than the in-commit timestamps of this table, and its file was "
                 f"modified at {time}")  # fmt: skip


@check(Family.TIMESTAMPS, "ICT-18", "ICT-19", "ICT-20", side="client")
def a_time_is_looked_up_on_its_side_of_the_enablement(s: ClientScenario) -> None:
    """A time from the enablement on is looked up among the versions from the enablement on, an earlier one among those
    before it."""
    log = enabled_later(s)
    must_read(log, 5, *FRESH, expected="version 5 is ratified")
    for version, time in ((3, 3 * HOUR), (3, 4 * HOUR - 1), (4, 4 * HOUR), (5, 5 * HOUR)):
        must_read(
            log, version, "ICT-18", "ICT-20", timestamp=BASE_TIME + time,
            expected=f"in-commit timestamps are enabled since version 3, of {BASE_TIME + 3 * HOUR}; at "
            f"{BASE_TIME + time} the newest version with one was {version}",
        )  # fmt: skip
    for version, time in ((1, HOUR), (1, 2 * HOUR - 1), (2, 2 * HOUR), (2, 3 * HOUR - 1)):
        must_read(
            log, version, "ICT-19", "ICT-20", timestamp=BASE_TIME + time,
            expected=f"in-commit timestamps are enabled since {BASE_TIME + 3 * HOUR}; at {BASE_TIME + time}, before "
            f"that, the newest file was that of version {version}",
        )  # fmt: skip


@check(Family.TIMESTAMPS, "ICT-18", "ICT-19", side="client")
def files_that_were_copied_move_no_version_across_the_enablement(s: ClientScenario) -> None:
    """Copying a table gives its files new times. A time from the enablement on leads to the same version as before; a
    time before it never leads to a version after it."""
    log = enabled_later(s)
    log.touch(3, BASE_TIME + HOUR)
    must_read(
        log, 1, "ICT-19", timestamp=BASE_TIME + HOUR,
        expected="the time is before the enablement: version 1, whose file is of that time, and not version 3, whose "
        "file was given that time by a copy",
    )  # fmt: skip
    log.touch(2, BASE_TIME + 9 * HOUR)
    must_read(
        log, 4, "ICT-18", timestamp=BASE_TIME + 4 * HOUR,
        expected="the time is that of version 4's commit: version 4; that the file of version 2 is newer says nothing, "
        "because only versions from the enablement on are looked at",
    )  # fmt: skip


@check(Family.TIMESTAMPS, "ICT-22", side="client", commit_modes=("direct",))
def a_table_that_has_no_in_commit_timestamps_any_more_goes_by_its_files(s: ClientScenario) -> None:
    """If the latest version disables in-commit timestamps, every version has the time of its file, also those that
    carry one."""
    log = plain(s, versions=1)
    infos = [proposals.commit_info(s.attempt(), BASE_TIME + 20 * HOUR + n) for n in range(4)]
    protocol = proposals.protocol(None)
    enabled = {ENABLEMENT_VERSION: "1", ENABLEMENT_TIMESTAMP: str(BASE_TIME + 20 * HOUR)}
    table = s.attempt()
    log.write(infos[0], protocol, proposals.metadata(table, BASE_TIME, enabled), modified=BASE_TIME + HOUR)
    log.write(infos[1], file("file-2"), modified=BASE_TIME + 2 * HOUR)
    log.write(infos[2], proposals.metadata(table, BASE_TIME, {ENABLED: "false"}), modified=BASE_TIME + 3 * HOUR)
    log.write(infos[3], file("file-4"), modified=BASE_TIME + 4 * HOUR)
    must_read(log, 4, "ICT-22", may_refuse=True, path=log.location, expected="a filesystem table, by its path")
    for version in (1, 2, 3):
        time = BASE_TIME + version * HOUR
        must_read(
            log, version, "ICT-22", may_refuse=True, timestamp=time, path=log.location,
            expected=f"the latest version has in-commit timestamps disabled: at {time} the newest file was that of "
            f"version {version}",
        )  # fmt: skip
        read = must_read(
            log, version, "ICT-22", may_refuse=True, version=version, path=log.location, expected=f"version {version}"
        )
        has_time(
            log, read, time, "ICT-22",
            expected=f"the latest version has in-commit timestamps disabled: version {version} was committed when "
            f"its file was, at {time}",
        )  # fmt: skip


@check(
    Family.READING, "CM-ACCESS-01", side="client", features=("catalogManaged",), needs=(Profile.OWNERSHIP_TRANSFER,)
)  # fmt: skip
def what_was_before_the_catalog_is_not_read_by_path_either(s: ClientScenario) -> None:
    """A table that its catalog took over with version 3: whoever has nothing but its path refuses versions 0 to 2
    too, for the table is catalog-managed, and they may be anything but the newest."""
    log = enabled_later(s)
    must_read(log, 1, *APPLIED, version=1, expected="through its catalog every version is read")
    for version in (2, 0):
        told, since = ask(log, path=log.location, version=version)
        if isinstance(told.answer, m.SnapshotRead):
            s.require(
                bool(s.owner.exchanges[since:]), "CM-ACCESS-01", evidence=(told,), table=log.table, version=version,
                expected="a reader that was given only a path refuses a catalog-managed table, or asks its catalog",
                observed=f"a snapshot of version {told.answer.version}, and the catalog was not asked",
            )  # fmt: skip


@check(Family.TIMESTAMPS, "ICT-16", *APPLIED, side="client", commit_modes=("direct",))
def a_table_with_half_an_enablement_is_read_right_or_refused(s: ClientScenario) -> None:
    """One enablement property without the other, or the feature's name in the plural, as one sentence of the document
    has it: a reader may refuse such a table, and may read it; if it does, the snapshot is right."""
    log = plain(s, versions=2)
    must_read(
        log, 1, *APPLIED, "ICT-16", may_refuse=True, path=log.location, expected="a filesystem table, by its path"
    )
    plural = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamps"]}
    half = {ENABLEMENT_VERSION: "2"}
    info = proposals.commit_info(s.attempt(), BASE_TIME + 2 * HOUR)
    changes = (proposals.line("protocol", plural), proposals.metadata(s.attempt(), BASE_TIME, half), gone("file-1"))
    log.write(info, *changes, modified=BASE_TIME + 2 * HOUR)
    requests: list[dict[str, Any]] = [{}, {"version": 1}, {"timestamp": BASE_TIME + HOUR}]
    for asked in [*requests, {"timestamp": BASE_TIME + 2 * HOUR}]:
        told, _ = ask(log, path=log.location, **asked)
        if isinstance(told.answer, m.SnapshotRead):
            is_snapshot(log, told, told.answer, *APPLIED, "ICT-16")
