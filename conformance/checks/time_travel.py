"""Readers and in-commit timestamps: when a version was committed, and which version was the newest at a time."""

from __future__ import annotations

from typing import Any

from conformance.adapters.identity import EVERY_TABLE
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
        observed=f"the read returned version {read.version} at {read.timestamp}",
    )  # fmt: skip


@check(Family.TIMESTAMPS, "ICT-16", side="client")
def the_time_of_a_version_is_in_its_commit(s: ClientScenario) -> None:
    """With in-commit timestamps the time of a version is the one in its commit, published or not; the file's
    modification time may change."""
    log = table_with(s)
    for version in (4, 3, 2, 1, 0):
        read = must_read(log, version, "ICT-16", version=version, about=("timestamp",),
                         expected=f"version {version}")  # fmt: skip
        time = s.timestamp(version)
        has_time(
            log, read, time, "ICT-16", expected=f"version {version} was committed at {time}: its commitInfo says so"
        )


@check(Family.TIMESTAMPS, "ICT-20", "ICT-16", side="client")
def a_time_selects_the_latest_version_up_to_it(s: ClientScenario) -> None:
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
def a_time_outside_the_history(s: ClientScenario) -> None:
    """A time before the first or after the last commit may be an error or select a version; any snapshot returned is
    correct."""
    log = table_with(s)
    must_read(log, 2, "ICT-20", timestamp=s.timestamp(2), expected="at the time of version 2 it was the newest")
    for time in (s.timestamp(0) - 1, s.timestamp(4) + 1):
        call, _ = ask(log, timestamp=time)
        if isinstance(call.answer, m.SnapshotRead):
            is_snapshot(log, call, call.answer, "ICT-20")


@check(Family.TIMESTAMPS, "ICT-17", "ICT-16", side="client")
def before_the_enablement_files_have_the_time(s: ClientScenario) -> None:
    """In a table that enabled in-commit timestamps later, versions from the enablement on have the time in their
    commit, earlier ones that of their file."""
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
def a_time_is_searched_on_its_side_of_the_enablement(s: ClientScenario) -> None:
    """A time at or after the enablement selects among the versions from the enablement on, an earlier time among those
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
def copied_files_do_not_change_time_travel(s: ClientScenario) -> None:
    """Copying a table changes modification times. A time at or after the enablement selects the same version; an
    earlier time never selects a version after the enablement."""
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


@check(Family.TIMESTAMPS, "ICT-22", side="client", features=EVERY_TABLE, commit_modes=("direct",))
def disabled_timestamps_are_not_used(s: ClientScenario) -> None:
    """If the latest version disables in-commit timestamps, every version has the time of its file, even if its commit
    has one."""
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
def versions_before_the_catalog_need_the_catalog(s: ClientScenario) -> None:
    """A catalog took a table over with version 3: a reader that has only its path rejects versions 0 to 2 too."""
    log = enabled_later(s)
    must_read(log, 1, *APPLIED, version=1, expected="through its catalog every version is read")
    for version in (2, 0):
        call, since = ask(log, path=log.location, version=version)
        if isinstance(call.answer, m.SnapshotRead):
            s.require(
                bool(s.owner.exchanges[since:]), "CM-ACCESS-01", evidence=(call,), table=log.table, version=version,
                expected="a reader that was given only a path refuses a catalog-managed table, or asks its catalog",
                observed=f"version {call.answer.version} was read without asking the catalog",
            )  # fmt: skip


@check(Family.TIMESTAMPS, "ICT-16", *APPLIED, side="client", features=EVERY_TABLE, commit_modes=("direct",))
def an_incomplete_enablement(s: ClientScenario) -> None:
    """With one enablement property missing, or the feature's name in the plural, as one sentence of the document has
    it, a reader may reject the table; if it reads it, the snapshot is correct."""
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
        call, _ = ask(log, path=log.location, **asked)
        if isinstance(call.answer, m.SnapshotRead):
            is_snapshot(log, call, call.answer, *APPLIED, "ICT-16")
