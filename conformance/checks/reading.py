"""Readers: from an owner's answer and a listing to one gap-free snapshot."""

from __future__ import annotations

from conformance.checks.registry import Family, check
from conformance.checks.stale_reads_of_clients import FRESH, table_with
from conformance.interface import messages as m
from conformance.scenario.client import ClientScenario
from conformance.scenario.log_builder import LogBuilder, file, gone
from conformance.scenario.snapshots import ask, is_snapshot, must_read, must_refuse, newest_told
from conformance.scenario.telling import Entries, Retold, after_an_answer, retell

APPLIED = ("MC-LOG-06", "CM-LOG-03")


@check(Family.READING, "CM-READ-02", "LOG-18", "MC-LOG-03", "CM-READ-09", "MC-READ-05", "MC-READ-08", "LOG-12",
       "CM-GET-02", "CM-READ-07", *FRESH, side="client")  # fmt: skip
def published_and_unpublished_commits_make_one_snapshot(s: ClientScenario) -> None:
    """What the owner does not tell because it is published comes from the listing, the rest from the owner."""
    log = table_with(s, 2)
    must_read(log, 2, "CM-READ-09", "MC-LOG-03", *FRESH,
              expected="versions 1 and 2 were ratified: the owner tells where they are")  # fmt: skip
    log.backfill(2)
    must_read(log, 2, "CM-READ-02", "LOG-18", expected="versions 0 to 2 are published: the listing shows them")
    log.land(gone("file-1"), file("file-3"))
    must_read(log, 3, "CM-READ-02", "LOG-18", *FRESH,
              expected="versions 0 to 2 from the listing and 3 from the owner, nothing missing")  # fmt: skip


@check(Family.READING, *APPLIED, "LOG-09", "PROFILE-CLIENT-01", side="client")
def every_version_is_the_one_before_with_its_commit_applied(s: ClientScenario) -> None:
    """Each version is read as all commits up to it make it: files that were added, removed and added again."""
    log = LogBuilder.create(s)
    log.land(file("a"), file("b"))
    log.land(gone("a"), file("c"))
    log.backfill(2)
    log.land(gone("b"))
    log.land(file("a"), gone("c"))
    for version in (4, 3, 2, 1, 0):
        must_read(log, version, *APPLIED, "LOG-09", version=version,
                  expected=f"version {version} has the files that its commits up to {version} added and did not remove "
                  f"since")  # fmt: skip


@check(Family.READING, "LOG-09", "PROFILE-CLIENT-01", "LOG-11", "CM-READ-09", "MC-LOG-03", side="client")
def the_version_that_is_asked_for_is_read(s: ClientScenario) -> None:
    """A version is read as it is asked for, published or not; one above the latest does not exist."""
    log = table_with(s, 2)
    log.backfill(2)
    log.land(file("file-3"))
    log.land(file("file-4"))
    must_read(log, 2, "LOG-09", version=2, expected="version 2, although there are newer ones")
    must_read(log, 3, "CM-READ-09", "MC-LOG-03", "LOG-09", version=3,
              expected="version 3 is ratified, and its content is the owner's: it is read although nobody published "
              "it")  # fmt: skip
    must_read(log, 4, "LOG-09", *FRESH, expected="without a version, the latest: 4")
    must_refuse(log, "LOG-11", version=5, expected="version 5 does not exist: an error, not another version")


@check(Family.READING, "CM-READ-04", "LOG-09", "LOG-15", side="client", features=("catalogManaged",))
def the_catalogs_latest_version_is_the_latest(s: ClientScenario) -> None:
    """What was published after the catalog answered is above the version that it told, and is ignored: the snapshot
    is that of the version which the catalog called the latest."""
    log = table_with(s, 2)

    def two_more() -> None:
        log.land(file("file-3"))
        log.land(file("file-4"))
        log.backfill(4)
        log.checkpoint(4)
        log.hint(4)

    after_an_answer(s, two_more)
    told, since = ask(log)
    read = s.expect(told, m.SnapshotRead, "CM-READ-04", expected="a snapshot of version 2")
    latest = newest_told(s, since)
    s.require(
        read.version == latest, "CM-READ-04", "LOG-09", "LOG-15", told=(told, log.told[latest]), table=log.table,
        version=read.version, observed=f"a snapshot of version {read.version}",
        expected=f"the catalog said that version {latest} is the latest: the snapshot of version {latest}, whatever "
        f"newer files the listing shows",
    )  # fmt: skip
    is_snapshot(log, told, read, "CM-READ-04", "LOG-15")
    must_read(log, log.latest, "CM-READ-05", expected="asked again, the catalog tells the newest version")


@check(Family.READING, "CM-READ-04", "LOG-11", side="client", features=("catalogManaged",))
def a_version_above_the_catalogs_latest_is_not_read(s: ClientScenario) -> None:
    """A version that was published after the catalog answered does not exist for that read, though its file does."""
    log = table_with(s, 2)
    must_read(log, 2, "LOG-09", version=2, expected="version 2 was ratified before the read began")

    def one_more() -> None:
        log.land(file("file-3"))
        log.backfill(3)

    after_an_answer(s, one_more)
    told, since = ask(log, version=3)
    if isinstance(told.answer, m.SnapshotRead):
        s.require(
            newest_told(s, since) >= 3, "CM-READ-04", "LOG-11", told=(told, log.told[3]), table=log.table, version=3,
            expected="the catalog said that version 2 is the latest: an error for version 3, or another question",
            observed="a snapshot of version 3, of which the catalog has not told",
        )  # fmt: skip
        is_snapshot(log, told, told.answer, "CM-READ-04")
    must_read(log, log.latest, "CM-READ-05", version=log.latest, expected="asked again, the catalog tells of it")


@check(Family.READING, "MC-FILES-09", "LOG-09", side="client", features=("managedCommit",), commit_modes=("direct",))
def a_published_commit_counts_before_its_owner_notices_it(s: ClientScenario) -> None:
    """A commit of a managedCommit table that became visible by put-if-absent is committed, also while its owner still
    tells an older version as the latest."""
    log = table_with(s, 3)
    must_read(log, 3, "MC-FILES-09", expected="version 3 is published")
    retell(s, lambda commits, _: (commits, 2))
    must_read(
        log, 3, "MC-FILES-09", "LOG-09",
        expected="`00000000000000000003.json` proves that version 3 is committed; its owner may not know of it: the "
        "latest version is the greater of what it tells and what is published",
    )  # fmt: skip


@check(Family.READING, "LOG-10", "LOG-09", side="client", features=("managedCommit",))
def an_owner_without_a_latest_version_hides_nothing(s: ClientScenario) -> None:
    """An owner that has accepted no staged commit may tell -1, or nothing, as the latest version: the table has its
    published versions all the same."""
    log = LogBuilder.create(s)
    if s.commit_mode == "direct":
        log.land(file("file-1"))
        log.land(file("file-2"))
    must_read(log, log.latest, "LOG-10", expected=f"version {log.latest} is published")
    for nothing in (-1, None):
        s.owner.rules.clear()
        retell(s, lambda _, __, nothing=nothing: ((), nothing))  # type: ignore[misc]
        must_read(
            log, log.latest, "LOG-10", "LOG-09",
            expected=f"a latest version of {nothing} says only that the owner has accepted no staged commit: version "
            f"{log.latest} is published, and is read",
        )  # fmt: skip


@check(Family.READING, "LOG-08", "LOG-18", *FRESH, side="client")
def the_listing_supplies_what_the_owner_does_not_list(s: ClientScenario) -> None:
    """An owner may list commits that are published, and may list fewer than there are up to its latest version: the
    later ones were published directly. The reader takes those from the listing."""
    log = table_with(s, 2)
    listed = s.listed(log.table)
    kept = listed or tuple(m.CommitEntry(version=version) for version in (1, 2))
    log.land(file("file-3"))
    log.backfill(3)
    must_read(log, 3, "LOG-08", *FRESH, expected="versions 0 to 3 are published")

    def some(_: Entries, latest: int | None) -> Retold:
        return kept, latest

    retell(s, some)
    must_read(
        log, 3, "LOG-08", "LOG-18", *FRESH,
        expected="the owner lists versions 1 and 2, which are published too, and tells 3 as the latest: version 3 is "
        "taken from the listing",
    )  # fmt: skip


@check(
    Family.READING,
    "CM-READ-03",
    "CM-READ-05",
    side="client",
    features=("catalogManaged",),
    commit_modes=("staged", "inline"),
)
def the_catalogs_copy_of_a_commit_is_read(s: ClientScenario) -> None:
    """Of a version that the catalog returns and that is published too, the catalog's copy is read. Here the published
    one is a file that was cut off, as some storages show it while it is written."""
    log = table_with(s, 2)
    must_read(log, 2, "CM-READ-05", expected="version 2 was ratified before the read began")
    log.plant(log.commit_name(1), b'{"commitInfo":{"inCommitTimest')
    must_read(
        log, 2, "CM-READ-03",
        expected="the catalog returned version 1: its copy is the one that is read, and a published file of the same "
        "version is ignored",
    )  # fmt: skip
    log.restore()


@check(Family.READING, "MC-FILES-05", "CM-FILES-04", "LOG-16", "LOG-17", "CM-LOG-08", side="client")
def staged_files_that_nobody_ratified_are_no_commits(s: ClientScenario) -> None:
    """The staging folder holds proposals that lost, that are on their way, and halves of files. None of them is a
    commit, and none changes one."""
    log = table_with(s, 2)
    log.backfill(1)
    folder = "_commits" if s.feature == "managedCommit" else "_staged_commits"
    must_read(log, 2, *FRESH, expected="version 2 was ratified before the read began")
    for version, content in ((1, _lost(s, 1)), (2, _lost(s, 2)), (3, _lost(s, 3)), (4, b'{"commitInfo":{"inC')):
        log.plant(f"{folder}/{version:020}.{s.attempt()}.json", content)
    must_read(
        log, 2, "MC-FILES-05", "CM-FILES-04", "LOG-17", "LOG-16", "CM-LOG-08",
        expected=f"the owner ratified versions 0 to 2, and told where they are: whatever else is in {folder} is no "
        f"commit, because only the owner knows which of these files are",
    )  # fmt: skip
    must_read(log, 1, "MC-FILES-05", "CM-FILES-04", "LOG-17", "LOG-16", "CM-LOG-08", version=1,
              expected="version 1 as it was ratified, and not as a proposal that lost says it")  # fmt: skip


def _lost(s: ClientScenario, version: int) -> bytes:
    request = s.proposal(s.tables[0], version)
    return "".join(f"{line}\n" for line in request.actions or ()).encode()
