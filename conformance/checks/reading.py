"""Readers: from an owner's answer, a listing, checkpoints, compactions, checksums and hints to one gap-free snapshot.

The rules are those of the log, and hold for every owner. Fixtures are made by `LogBuilder`; the expected snapshots are
computed from the actions as they were committed. Every read is that of a new reader, and reads that must fail come
before reads that succeed, because a client may cache what it has read.

The examples are here because no program's owner lists an old commit alone, and none has a readable checksum with wrong
figures.
"""

from typing import Any

from conformance.adapters.identity import EVERY_TABLE
from conformance.checks import check, families
from conformance.checks.stale_reads import SEEN, table_with
from conformance.interface import messages as m
from conformance.interface.log_names import commit_file
from conformance.interface.results import Layer
from conformance.models import proposals
from conformance.programs.client_words import ClientFamily
from conformance.programs.running import Generation
from conformance.scenario.adversary import CommitsAndLatest, Entries
from conformance.scenario.check import Family
from conformance.scenario.client import ClientScenario
from conformance.scenario.log_builder import LogBuilder, application, domain, file, gone
from conformance.scenario.scenario import Inconclusive
from conformance.scenario.snapshots import (
    ask,
    is_snapshot,
    may_read,
    must_read,
    must_refuse,
    must_report,
    newest_returned,
)


@check(Family.READING, *families.LOGS, layer=Layer.MODEL, side="client", features=EVERY_TABLE)
def any_log_is_read(g: Generation) -> None:
    """Generated logs with checkpoints, compactions, checksums, leftovers and cleaned-up prefixes, read by version, time
    and path while the owner publishes and other writers commit: every snapshot is the replay of the log."""
    factors = {"read": 4, "transact": 0.5, "maintain": 0.3, "create": 0, "transfer": 0}
    g.run(ClientFamily(name=g.check.family, factors=factors))


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
    read = s.expect(call, m.SnapshotRead, "LOG-15", "LOG-09", expected="a snapshot of version 2")
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


@check(Family.READING, "LOG-08", "LOG-18", *SEEN)
def the_listing_completes_the_owners_list(s: ClientScenario) -> None:
    """An owner may list published commits, and fewer than its latest version, because later ones were published
    directly: the reader takes those from the listing."""
    log = table_with(s, 2)
    listed = s.listed(log.table)
    kept = listed or tuple(m.CommitEntry(version=version) for version in (1, 2))
    log.land(file("file-3"))
    log.backfill(3)
    must_read(log, 3, "LOG-18", *SEEN, expected="versions 0 to 3 are published")

    def some(_: Entries, latest: int | None) -> CommitsAndLatest:
        return kept, latest

    s.owner.override_commits(some)
    must_read(
        log, 3, "LOG-08",
        expected="the owner lists versions 1 and 2, which are published too, and returns latest version 3: version 3 "
        "is taken from the listing",
    )  # fmt: skip


# Access


# Actions


@check(Family.READING, "LOG-49", features=EVERY_TABLE)
def expired_applications_are_ignored(s: ClientScenario) -> None:
    """A transaction that was last updated long ago has expired; one that was updated in the future, and one of an
    unknown time, have not."""
    log = LogBuilder.create(s, properties={"delta.setTransactionRetentionDuration": "interval 7 days"})
    times: dict[str, dict[str, int]] = {"old": {"lastUpdated": 1}, "new": {"lastUpdated": 2**42}, "timeless": {}}
    log.land(*(proposals.line("txn", {"appId": name, "version": 5, **time}) for name, time in times.items()))
    call, _ = ask(log, version=1)
    found = call.answer.applications if isinstance(call.answer, m.SnapshotRead) else None
    if found is None:
        raise Inconclusive(f"operation {call.number}: the client returned no applications")
    s.require(
        "old" not in found and found.get("new") == 5, "LOG-49", evidence=(call,), version=1,
        observed=f"the applications are {sorted(found)}",
        expected="`old` was last updated in 1970, and the table keeps transactions for 7 days; `new` must be there",
    )  # fmt: skip


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


# Log segments


def history(s: ClientScenario, *, published: int = 4, **options: Any) -> LogBuilder:
    """Five versions in which files are added and removed, an application commits and a domain changes; the last one is
    unpublished, except in direct commit mode."""
    log = LogBuilder.create(s, **options)
    log.readers = 0
    log.land(file("a"), file("b"), application("loader", 1), domain("owners", "first"))
    log.land(gone("a"), file("c"), application("loader", 2))
    log.land(file("d"), domain("owners", "second"))
    log.land(gone("b"), file("a"))
    log.backfill(published)
    return log


@check(Family.READING, "LOG-21", features=EVERY_TABLE)
def the_checkpoint_hint_may_be_wrong(s: ClientScenario) -> None:
    """`_last_checkpoint` may name a deleted checkpoint, an older one, or be missing."""
    log = history(s)
    checkpoint = log.checkpoint(3)
    log.hint(3)
    must_read(log, 4, "LOG-18", expected="the hint is right: the checkpoint of version 3, and commit 4")
    log.hide(*checkpoint)
    must_read(log, 4, "LOG-21", expected="the hint names a deleted checkpoint; the commits 0 to 4 exist")
    log.checkpoint(2)
    log.hide(commit_file(0), commit_file(1))
    must_read(log, 4, "LOG-21", expected="the hint names a deleted checkpoint; that of version 2 exists")
    log.plant("_last_checkpoint", b'{"version":')
    must_read(log, 4, "LOG-21", expected="the hint is truncated and cannot be read; the checkpoint of version 2 exists")


@check(Family.READING, "LOG-26", features=EVERY_TABLE)
def a_checksum_mismatch_is_reported(s: ClientScenario) -> None:
    """If the log and the checksum of the requested version differ, the reader reports it by a warning or an error."""
    log = history(s)
    log.checksum(4, numFiles=7, domainMetadata=[])
    must_report(
        log, 4, "LOG-26",
        expected="a warning or an error: the checksum of version 4 counts 7 files and no domain, which differs from "
        "its commits",
    )  # fmt: skip
    log.checksum(4)
    must_read(log, 4, "LOG-25", expected="the checksum of version 4 is right")


@check(Family.READING, "LOG-28", "LOG-38", features=EVERY_TABLE)
def a_malformed_commit_fails_the_read(s: ClientScenario) -> None:
    """A truncated commit, or one that is not JSON, is an error, not a commit without actions and not a missing one. For
    an empty file this is advice, because no document requires it."""
    log = history(s)
    name, staged = commit_file(4), log.staged()
    whole = (log.folder / name).read_bytes()
    log.hide(*staged)  # they have the same content, so a reader of one would not need the published file
    for content, what in ((whole[: len(whole) // 2], "is truncated"), (b"not JSON\n", "is not JSON")):
        log.plant(name, content)
        must_refuse(log, "LOG-28", expected=f"{name} {what}: an error, and not a snapshot without it")
    log.restore()
    must_read(log, 4, "LOG-18", expected="the commit is whole again")
    log.hide(*staged)
    log.plant(name, b"")
    must_refuse(log, "LOG-38", expected=f"{name} is empty: an error, and not a snapshot without it")
    log.plant(name, b"not JSON\n")
    may_read(log, 3, "LOG-28")


@check(Family.READING, "FIELD-03", features=EVERY_TABLE)
def a_corrupt_checkpoint_is_skipped(s: ClientScenario) -> None:
    """An unreadable checkpoint is skipped where an older one, or the commits, are complete."""
    log = history(s)
    (name,) = log.checkpoint(3)
    whole = (log.folder / name).read_bytes()
    must_read(log, 4, "LOG-18", expected="the checkpoint of version 3, and commit 4")
    for content, what in ((b"", "is empty"), (whole[: len(whole) // 2], "is truncated"), (b"PAR1", "is not Parquet")):
        log.plant(name, content)
        must_read(log, 4, "FIELD-03", expected=f"{name} {what}; the commits 0 to 4 all exist")
    log.checkpoint(1)
    log.hide(commit_file(0))
    must_read(
        log, 4, "FIELD-03", expected=f"{name} is not Parquet; the checkpoint of version 1 and the commits after it"
    )
