"""Readers: from an owner's answer and a listing to one gap-free snapshot."""

from conformance.adapters.identity import EVERY_TABLE
from conformance.checks import check
from conformance.checks.log_tail import FRESH, table_with
from conformance.interface import messages as m
from conformance.interface.log_names import commit_file
from conformance.scenario.adversary import CommitsAndLatest, Entries
from conformance.scenario.check import Family
from conformance.scenario.client import ClientScenario
from conformance.scenario.log_builder import LogBuilder, file, gone
from conformance.scenario.snapshots import ask, is_snapshot, must_read, must_refuse, newest_returned


@check(Family.READING, "LOG-09", "PROFILE-CLIENT-01", "LOG-11", "CM-READ-09", "MC-LOG-03", features=EVERY_TABLE)
def the_requested_version_is_read(s: ClientScenario) -> None:
    """A read returns the requested version, published or not; a version above the latest is an error."""
    log = table_with(s, 2)
    log.backfill(2)
    log.land(file("file-3"))
    log.land(file("file-4"))
    must_read(log, 2, "LOG-09", version=2, expected="version 2, although newer versions exist")
    must_read(log, 3, "CM-READ-09", "MC-LOG-03", "LOG-09", version=3,
              expected="version 3 is ratified: it is read from the owner, although it is unpublished")  # fmt: skip
    must_read(log, 4, "LOG-09", *FRESH, expected="without a requested version, the latest: 4")
    must_refuse(log, "LOG-11", version=5, expected="version 5 does not exist: an error, not another version")


@check(Family.READING, "CM-READ-04", "LOG-09", "LOG-15", features=("catalogManaged",))
def the_catalogs_latest_version_limits_the_snapshot(s: ClientScenario) -> None:
    """Commits published after the catalog answered are above the version that it returned, and are ignored, even by a
    reader that lists the log during its request and again after the answer."""
    log = table_with(s, 2)

    def three_more() -> None:
        log.land(file(f"file-{log.latest + 1}"))
        log.land(file(f"file-{log.latest + 1}"))
        log.backfill(log.latest)
        log.checkpoint(log.latest)
        log.hint(log.latest)
        log.land(file(f"file-{log.latest + 1}"))

    s.owner.on(m.GetCommits, before=lambda: log.backfill(log.latest), after=three_more, times=5)
    call, since = ask(log)
    read = s.expect(call, m.SnapshotRead, "CM-READ-04", expected="a snapshot of version 2")
    latest = newest_returned(s, since)
    s.require(
        read.version == latest, "CM-READ-04", "LOG-09", "LOG-15", evidence=(call, log.committed[latest]),
        table=log.table, version=read.version, observed=f"the read returned a snapshot of version {read.version}",
        expected=f"the catalog returned latest version {latest}: the snapshot of version {latest}, although the "
        f"listing shows newer files",
    )  # fmt: skip
    is_snapshot(log, call, read, "CM-READ-04", "LOG-15")
    s.owner.rules.clear()
    must_read(log, log.latest, "CM-READ-05", expected="asked again, the catalog returns the newest version")


@check(Family.READING, "LOG-08", "LOG-18", *FRESH)
def the_listing_completes_the_owners_list(s: ClientScenario) -> None:
    """An owner may list published commits, and fewer than its latest version, because later ones were published
    directly: the reader takes those from the listing."""
    log = table_with(s, 2)
    listed = s.listed(log.table)
    kept = listed or tuple(m.CommitEntry(version=version) for version in (1, 2))
    log.land(file("file-3"))
    log.backfill(3)
    must_read(log, 3, "LOG-18", *FRESH, expected="versions 0 to 3 are published")

    def some(_: Entries, latest: int | None) -> CommitsAndLatest:
        return kept, latest

    s.owner.override_commits(some)
    must_read(
        log, 3, "LOG-08",
        expected="the owner lists versions 1 and 2, which are published too, and returns latest version 3: version 3 "
        "is taken from the listing",
    )  # fmt: skip


# Access


@check(Family.READING, "CM-ACCESS-01", "CM-READ-08", features=("catalogManaged",))
def a_catalog_managed_table_is_not_read_by_its_path(s: ClientScenario) -> None:
    """A reader that has only the path of a catalog-managed table rejects it: its catalog may have further commits."""
    log = table_with(s, 1)
    log.backfill(1)
    must_read(log, 1, "CM-READ-08", expected="through its catalog the table is read")
    call, since = ask(log, path=log.location)
    if isinstance(call.answer, m.SnapshotRead):
        s.require(
            bool(s.owner.exchanges[since:]), "CM-ACCESS-01", evidence=(call,), table=log.table,
            expected="a reader that has only the path rejects a table whose protocol lists catalogManaged, or asks "
            "its catalog",
            observed=f"version {call.answer.version} was read without asking the catalog",
        )  # fmt: skip
        is_snapshot(log, call, call.answer, "CM-ACCESS-01")


# Actions


def with_checkpoint(log: LogBuilder, version: int) -> None:
    """Write a checkpoint of the version, and delete the commits up to it."""
    log.readers = 1
    log.backfill(version)
    log.checkpoint(version)
    log.hide(*(commit_file(number) for number in range(version)))


@check(Family.READING, "LOG-32", features=EVERY_TABLE)
def a_path_is_a_uri(s: ClientScenario) -> None:
    """The path of a file is URL-encoded in the log, and decoded once by the reader; it may be absolute."""
    log = LogBuilder.create(s)
    log.land(file("plain.parquet"), file("with%20space.parquet"), file("day=2024-01-01%2010%253A00/part.parquet"))
    must_read(
        log, 1, "LOG-32",
        expected="`with%20space.parquet` is the file `with space.parquet`, and `%253A` means `%3A`: paths are decoded "
        "once",
    )  # fmt: skip
    elsewhere = s.place / "elsewhere" / "other table"
    elsewhere.mkdir(parents=True)
    absolute = (elsewhere / "part.parquet").as_uri()
    log.land(file(absolute))
    must_read(log, 2, "LOG-32", expected="an absolute path is used as it is, not below the table's folder")
    log.land(gone("with%20space.parquet"), gone(absolute))
    must_read(log, 3, "LOG-32", expected="both are removed by the paths under which they were added")


@check(Family.READING, "LOG-33", features=EVERY_TABLE)
def a_partition_value_is_a_string_or_null(s: ClientScenario) -> None:
    """Partition values are strings in the log; null may be written as null or as the empty string."""
    log = LogBuilder.create(s, partitioned=True)
    log.land(file("a", "north", partitioned=True), file("b", "007", partitioned=True))
    must_read(log, 1, "LOG-33", about=("partitions",), expected="the values `north` and `007`, as written")
    log.land(file("c", None, partitioned=True), file("d", "", partitioned=True))
    must_read(log, 2, "LOG-33", expected="c and d have no value: null and the empty string mean the same")
    with_checkpoint(log, 2)
    must_read(log, 2, "LOG-33", expected="the same from a checkpoint")
