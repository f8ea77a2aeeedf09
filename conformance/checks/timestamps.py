"""In-commit timestamps: writers set them, owners do not change them, and readers select versions by them.

The kit's owner audits every proposal of every scenario (`conformance.scenario.audit`); the scenarios for writers
are such that a wrong writer's proposal has a wrong timestamp.

The examples are here because no program has a commit in the future, a log older than the clocks, or disables
timestamps.
"""

from conformance.adapters.identity import EVERY_TABLE
from conformance.checks import check, families
from conformance.checks.stale_reads import SEEN
from conformance.interface import messages as m
from conformance.interface.results import Layer
from conformance.models import proposals
from conformance.models.proposals import BASE_TIME, ENABLEMENT_TIMESTAMP, ENABLEMENT_VERSION, TIMESTAMPS
from conformance.programs.client_words import ClientFamily
from conformance.programs.running import Generation
from conformance.scenario.check import Family
from conformance.scenario.client import ClientScenario
from conformance.scenario.log_builder import LogBuilder, file
from conformance.scenario.snapshots import must_read


@check(Family.TIMESTAMPS, *families.LOGS, "ICT-08", "ICT-14", layer=Layer.MODEL, side="client")
def any_read_by_time(g: Generation) -> None:
    """Generated reads by the times at and between those of published and unpublished versions, before and after a table
    has in-commit timestamps, and transactions that continue the times."""
    factors = {"times": 6, "read": 2, "transact": 2, "transfer": 1, "maintain": 0.2, "layers": 0.2, "create": 0.2}
    g.run(ClientFamily(name=g.check.family, factors=factors))


# Readers: the time of a version, and the newest version at a time


HOUR = 3_600_000


def plain(s: ClientScenario, versions: int = 3) -> LogBuilder:
    """A filesystem table without in-commit timestamps: its commits are an hour apart, and their commitInfo has
    another time, at which they were not committed."""
    log = LogBuilder.filesystem(s)
    info = proposals.line("commitInfo", {"timestamp": BASE_TIME - HOUR, "operation": "WRITE"})
    protocol = proposals.line("protocol", {"minReaderVersion": 1, "minWriterVersion": 2})
    log.write(info, protocol, proposals.metadata(s.attempt(), BASE_TIME, {TIMESTAMPS: "false"}), modified=BASE_TIME)
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
    """If the reader returns the time of the version, it is this one."""
    log.s.require(
        read.timestamp in (None, time), *requirements, table=log.table, version=read.version, expected=expected,
        observed=f"the read returned version {read.version} at {read.timestamp}",
    )  # fmt: skip


@check(Family.TIMESTAMPS, "ICT-17", "ICT-16")
def before_the_enablement_files_have_the_time(s: ClientScenario) -> None:
    """In a table that enabled in-commit timestamps later, versions from the enablement on have the time in their
    commit, earlier ones that of their file."""
    log = enabled_later(s)
    for version in (5, 4, 3):
        read = must_read(log, version, "ICT-16", version=version, about=("timestamp",), expected=f"version {version}")
        time = BASE_TIME + version * HOUR
        has_time(log, read, time, "ICT-16", expected=f"version {version} was committed at {time}, as in its commitInfo")
    for version in (2, 1, 0):
        read = must_read(log, version, "ICT-17", version=version, about=("timestamp",), expected=f"version {version}")
        time = BASE_TIME + version * HOUR
        has_time(log, read, time, "ICT-17",
                 expected=f"version {version} is older than the enablement of in-commit timestamps, and its file was "
                 f"modified at {time}")  # fmt: skip


@check(Family.TIMESTAMPS, "ICT-18", "ICT-19", "ICT-20")
def a_time_is_searched_on_its_side_of_the_enablement(s: ClientScenario) -> None:
    """A time at or after the enablement selects among the versions from the enablement on, an earlier time among those
    before it."""
    log = enabled_later(s)
    must_read(log, 5, *SEEN, expected="version 5 is ratified")
    for version, time in ((3, 3 * HOUR), (3, 4 * HOUR - 1), (4, 4 * HOUR), (5, 5 * HOUR)):
        must_read(
            log, version, "ICT-18", "ICT-20", timestamp=BASE_TIME + time,
            expected=f"version 3 enabled in-commit timestamps at {BASE_TIME + 3 * HOUR}; at "
            f"{BASE_TIME + time} the newest version with one was {version}",
        )  # fmt: skip
    for version, time in ((1, HOUR), (1, 2 * HOUR - 1), (2, 2 * HOUR), (2, 3 * HOUR - 1)):
        must_read(
            log, version, "ICT-19", "ICT-20", timestamp=BASE_TIME + time,
            expected=f"version 3 enabled in-commit timestamps at {BASE_TIME + 3 * HOUR}; at {BASE_TIME + time}, "
            f"before that, the newest file was that of version {version}",
        )  # fmt: skip


@check(Family.TIMESTAMPS, "ICT-22", features=EVERY_TABLE, commit_modes=("direct",))
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
    log.write(infos[2], proposals.metadata(table, BASE_TIME, {TIMESTAMPS: "false"}), modified=BASE_TIME + 3 * HOUR)
    log.write(infos[3], file("file-4"), modified=BASE_TIME + 4 * HOUR)
    must_read(log, 4, "ICT-22", may_refuse=True, path=log.location, expected="a filesystem table, by its path")
    for version in (1, 2, 3):
        time = BASE_TIME + version * HOUR
        must_read(
            log, version, "ICT-22", may_refuse=True, timestamp=time, path=log.location,
            expected=f"the latest version disables in-commit timestamps: at {time} the newest file was that of "
            f"version {version}",
        )  # fmt: skip
        read = must_read(
            log, version, "ICT-22", may_refuse=True, version=version, path=log.location, expected=f"version {version}"
        )
        has_time(
            log, read, time, "ICT-22",
            expected=f"the latest version disables in-commit timestamps: the time of version {version} is that of "
            f"its file, {time}",
        )  # fmt: skip
