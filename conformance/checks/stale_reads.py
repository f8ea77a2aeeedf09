"""Stale reads: a client that asks the owner gets every commit ratified before, and no other; each range is complete.

Owners may list published commits too. managed-commits, "Getting Un-backfilled Commits from Commit Owner";
catalog-managed, "Getting Ratified Commits from the Catalog".

Ranges have every combination of bounds, and tables are found by name and path between commits. A client under test
reads with an old and a new handle while other writers commit and publish.

Why examples: in the measured time programs found the mutants of these checks not at all, or under other requirements.
The other examples are those that the course and the findings name.
"""

from conformance.checks import check, families
from conformance.checks.backfill import UNPUBLISHED
from conformance.history.digests import same_actions
from conformance.history.events import Promise
from conformance.interface import messages as m
from conformance.interface.log_names import STAGING, attempt_of, commit_file, staged_file
from conformance.interface.messages import Commit, Conflict, GetCommits, Rejected
from conformance.interface.results import Layer
from conformance.models import proposals
from conformance.programs.client_words import ClientFamily
from conformance.programs.owner_words import OwnerFamily
from conformance.programs.running import Generation
from conformance.scenario import reads
from conformance.scenario.check import Family
from conformance.scenario.client import ClientScenario
from conformance.scenario.formatting import range_in_words, versions_in_words
from conformance.scenario.log_builder import LogBuilder, file
from conformance.scenario.scenario import Exchange, Inconclusive, Scenario, TableHandle
from conformance.scenario.snapshots import ask, does_without_its_owner, must_read


@check(Family.STALE_READS, *families.READING, *families.COMMITTING, layer=Layer.MODEL)
def any_sequence_of_reads(g: Generation) -> None:
    """Generated reads of every range between commits, publications and restarts: each one shows one fresh state, and
    none is older than an earlier one."""
    g.run(
        OwnerFamily(
            name=g.check.family, factors={"read": 5, "load": 3, "look": 2, "backfill": 2, "resend": 0.5, "together": 2}
        )
    )


@check(Family.STALE_READS, *families.LOGS, layer=Layer.MODEL, side="client")
def any_read_by_the_client(g: Generation) -> None:
    """Generated reads by an old and a new reader, while other writers commit and publish: each one has everything that
    was ratified before, and none is older than an earlier one."""
    factors = {"read": 5, "again": 4, "backfill": 2, "of_readers": 2, "maintain": 0.1, "create": 0, "transfer": 0}
    g.run(ClientFamily(name=g.check.family, factors=factors))


FRESH = ("MC-READ-06", "CM-GET-04")
LATEST = ("MC-GET-02", "CM-GET-04")
SERVED = ("MC-API-04", "CM-CATALOG-04")


def fresh(s: Scenario, table: TableHandle, seen: reads.Listed, *because: Exchange) -> None:
    """The returned latest version is the newest ratified one. The owner need not know commits by put-if-absent, unless
    it promises that; with such commits only it need not return a latest version (managedCommit)."""
    newest = table.versions - 1
    call = (seen.exchange, *because)
    s.require(seen.latest is None or seen.latest <= newest, *LATEST, evidence=call, table=table, version=seen.latest,
              expected=f"version {newest} is the latest ratified version: no later one is returned",
              observed=f"the latest version was returned as {seen.latest}")  # fmt: skip
    if s.commit_mode == "direct" and (
        s.feature == "managedCommit" or Promise.FRESH_DIRECT.value not in s.identity.promises
    ):
        return
    s.require(seen.latest is not None, *LATEST, *SERVED, evidence=call, table=table, version=newest,
              expected=f"version {newest} was ratified: the owner returns it as the latest version",
              observed="no latest version was returned")  # fmt: skip
    s.require(seen.latest == newest, *FRESH, evidence=call, table=table, version=newest,
              expected=f"version {newest} was ratified before the request: it is returned as the latest",
              observed=f"the latest version was returned as {seen.latest}")  # fmt: skip


def land(s: Scenario, table: TableHandle, count: int = 1, client: str = "writer") -> list[Exchange]:
    return [s.land(table, client=client) for _ in range(count)]


@check(Family.STALE_READS, *FRESH, *LATEST, *SERVED)
def every_commit_is_returned_at_once(s: Scenario) -> None:
    """After each of four commits the owner returns that version as the latest."""
    table = s.create()
    for _ in range(4):
        landed = s.land(table)
        fresh(s, table, reads.ask(s, table), landed)


@check(Family.STALE_READS, "MC-FEATURE-02", "CM-FEATURE-01", "PROFILE-CORE-05", "PROFILE-CORE-08", *LATEST)
def a_conflict_contains_no_false_information(s: Scenario) -> None:
    """A writer proposes versions 1, 2 and 3 of a table with three commits. The conflicts may name winners and a latest
    version, even old ones; what they name is true. No winner is below the proposed version, and before the last winner
    no unpublished version is left out."""
    table = s.create()
    landed = land(s, table, 3)
    for version in (1, 2, 3):
        _nothing_false(s, table, s.contend(table, version, client="late"), version, landed)
    s.land(table, client="late")


def _nothing_false(s: Scenario, table: TableHandle, lost: Exchange, version: int, landed: list[Exchange]) -> None:
    answer = lost.answer
    assert isinstance(answer, Conflict)
    if answer.latest is not None and answer.latest >= 0:
        s.require(answer.latest >= version, "PROFILE-CORE-05", evidence=(lost,), table=table, version=version,
                  expected=f"version {version} is taken: the latest version is at least {version}",
                  observed=f"the conflict has latest version {answer.latest}")  # fmt: skip
        s.require(answer.latest <= 3, *LATEST, evidence=(lost, landed[-1]), table=table, version=answer.latest,
                  expected="version 3 is the latest ratified version",
                  observed=f"the conflict has latest version {answer.latest}")  # fmt: skip
    named = {winner.version for winner in answer.winners or ()}
    left_out = [number for number in range(version, max(named, default=0)) if number not in named]
    if left_out:
        published = s.published(table)
        left_out = [number for number in left_out if number not in published]
    s.require(not left_out, "PROFILE-CORE-08", evidence=(lost,), table=table, version=(left_out or [version])[0],
              expected=f"version {version} was proposed: of the versions from {version} on, the winners leave out only "
              "published ones",
              observed=f"the conflict leaves out the winner of version {(left_out or [version])[0]}")  # fmt: skip
    for winner in answer.winners or ():
        s.require(winner.version <= 3, *LATEST, evidence=(lost, landed[-1]), table=table, version=winner.version,
                  expected="the winners are ratified versions, so at most 3",
                  observed=f"the conflict names version {winner.version} as a winner")  # fmt: skip
        s.require(winner.version >= version, "PROFILE-CORE-08", evidence=(lost,), table=table, version=winner.version,
                  expected=f"version {version} was proposed: the winners are commits of that version and later ones",
                  observed=f"the conflict names version {winner.version} as a winner")  # fmt: skip
        won = landed[winner.version - 1]
        assert isinstance(won.request, Commit)
        same = winner.actions is None or same_actions(winner.actions, won.request.actions or ())
        s.require(same and (winner.file_name is None or attempt_of(winner.file_name) == won.request.attempt),
                  "MC-FEATURE-02", "CM-FEATURE-01", evidence=(lost, won), table=table, version=winner.version,
                  expected=f"version {winner.version} is attempt {won.request.attempt}",
                  observed=f"the conflict names {winner.file_name or winner.actions} as its winner")  # fmt: skip


# Ranges

RANGE = ("MC-GET-01", "CM-GET-03", "PROFILE-CORE-09")
Range = tuple[int | None, int | None]


def well_formed(s: Scenario, table: TableHandle, seen: reads.Listed, bounds: Range, *because: Exchange) -> None:
    """The list is ascending, without duplicates or gaps, and reaches the end of the range, or all later versions are
    published."""
    listed = list(seen.order)
    call = (seen.exchange, *because)
    contiguous = list(range(listed[0], listed[0] + len(listed))) if listed else []
    s.require(listed == contiguous, "LOG-05", evidence=call, table=table,
              expected="commits are listed by ascending version, without duplicates or gaps",
              observed=f"the list is not ascending without gaps: {versions_in_words(listed)}")  # fmt: skip
    end = table.versions - 1 if bounds[1] is None else min(bounds[1], table.versions - 1)
    if listed and listed[-1] < end:
        published = s.published(table)
        missing = [version for version in range(listed[-1] + 1, end + 1) if version not in published]
        s.require(not missing, "LOG-07", evidence=call, table=table, version=missing[0] if missing else None,
                  expected=f"the list reaches version {end}, or all later versions are published",
                  observed=f"listed are {versions_in_words(listed)}; not published are {versions_in_words(missing)}",
              )  # fmt: skip


def answered_in_full(s: Scenario, table: TableHandle, bounds: Range, published: set[int], *because: Exchange) -> None:
    """The owner lists every unpublished version of the range, and no version outside it. `published`: the versions that
    were published before the request. An owner may reject a range that starts beyond its latest version."""
    start, end = bounds
    exchange = s.ask("reader", GetCommits(table=table.reference, start=start, end=end))
    if isinstance(exchange.answer, Rejected) and start is not None and start >= table.versions:
        return
    seen = reads.listed(s, exchange)
    outside = [version for version in seen.order if version < (start or 0) or (end is not None and version > end)]
    s.require(not outside, "PROFILE-CORE-09", evidence=(exchange, *because), table=table,
              expected=f"asked for {range_in_words(start, end)}: no version outside that range is listed",
              observed=f"versions outside the requested range are listed: {versions_in_words(outside)}")  # fmt: skip
    last = table.versions - 1 if end is None else min(end, table.versions - 1)
    wanted = [version for version in range(start or 0, last + 1) if version not in published]
    missing = [version for version in wanted if version not in seen.commits]
    if missing:  # the owner may have published them just now
        now = s.published(table)
        missing = [version for version in missing if version not in now]
    s.require(not missing, *RANGE[:2], evidence=(seen.exchange, *because), table=table,
              version=missing[0] if missing else None,
              expected=f"asked for {range_in_words(start, end)}: the list has the unpublished versions "
              f"{versions_in_words(wanted)}",
              observed=f"the list has versions {versions_in_words(seen.order)}; versions {versions_in_words(missing)} "
              f"are neither listed nor published")  # fmt: skip
    well_formed(s, table, seen, bounds, *because)
    fresh(s, table, seen, *because)


@check(Family.STALE_READS, *RANGE, "LOG-05", "LOG-07", *FRESH, commit_modes=UNPUBLISHED)
def ranges_of_unpublished_commits_are_complete(s: Scenario) -> None:
    """Every range of five unpublished commits is answered with all of its versions and no other. The ranges include
    version 0 alone, another single version, and ends and starts beyond the latest, also by more than 32 bits. Each
    answer has the latest version."""
    table = s.create()
    landed = land(s, table, 5)[-1]
    published = set(s.published(table))
    for bounds in (
        (None, None),
        (1, 5),
        (2, 4),
        (3, 3),
        (None, 2),
        (4, None),
        (5, 9),
        (None, 0),
        (0, 0),
        (6, None),
        (6, 9),
        (None, 2**32),
        (2**32 + 1, None),
    ):
        answered_in_full(s, table, bounds, published, landed)


# Clients: a reader that asks the owner sees every commit ratified before, wherever its content is

SEEN = ("MC-READ-07", "CM-READ-05")


def table_with(s: ClientScenario, versions: int) -> LogBuilder:
    """A table whose commits add one file each; they are unpublished, except in direct commit mode."""
    log = LogBuilder.create(s)
    for number in range(1, versions + 1):
        log.land(file(f"file-{number}"))
    return log


@check(Family.STALE_READS, "LOG-13", *SEEN, commit_modes=("staged",))
def a_removed_staged_file_was_published(s: ClientScenario) -> None:
    """The owner names a staged file; before the reader opens it, it is published and removed. The reader reads the
    published commit."""
    log = table_with(s, 2)
    must_read(log, 2, *SEEN, expected="version 2 was ratified before the read began")

    def published_and_removed() -> None:
        log.backfill(2)
        log.hide(*log.staged())

    s.owner.after_commits_are_read(published_and_removed)
    must_read(
        log, 2, "LOG-13",
        expected="a staged file is removed only after its commit is published: a reader that does not find it reads "
        "<version>.json instead",
    )  # fmt: skip


@check(Family.STALE_READS, "CM-READ-02", *SEEN, features=("catalogManaged",), commit_modes=("staged",))
def a_commit_that_the_catalog_forgot_is_read_from_the_log(s: ClientScenario) -> None:
    """The catalog lists no published commit, and the staged files of all commits are deleted. The reader reads the
    published commits."""
    log = table_with(s, 2)
    log.backfill(2)
    log.hide(*log.staged())
    must_read(log, 2, "CM-READ-02", *SEEN, expected="versions 1 and 2 are published")


@check(Family.STALE_READS, "CM-FILES-04", "LOG-17", *SEEN, features=("catalogManaged",), commit_modes=("staged",))
def a_staged_file_beside_a_published_commit_is_ignored(s: ClientScenario) -> None:
    """The catalog lists no published commit. The only staged file of a published version is that of an attempt that
    lost. The reader reads the published commit."""
    log = table_with(s, 1)
    log.backfill(1)
    log.hide(*log.staged())
    lost = s.attempt()
    content = proposals.content(proposals.append(lost, s.timestamp(1), ["lost"]))
    log.plant(f"{STAGING[s.feature]}/{staged_file(1, lost)}", content.encode())
    must_read(log, 1, "CM-FILES-04", "LOG-17", *SEEN, expected="version 1 is published: the staged file is no commit")


@check(Family.STALE_READS, "LOG-27", *SEEN)
def a_commit_missing_from_the_listing_fails_the_read(s: ClientScenario) -> None:
    """Some storages list new files late. A reader that knows of version 3 from the owner, and does not find it, fails
    instead of reading version 2 as the newest."""
    log = table_with(s, 3)
    log.backfill(3)
    must_read(log, 3, *SEEN, expected="version 3 was ratified before the read began")
    s.owner.after_commits_are_read(lambda: log.hide(commit_file(3)))
    call, _ = ask(log)
    log.restore()
    if not isinstance(call.answer, m.SnapshotRead):
        return
    if does_without_its_owner(s) or (call.answer.stale and s.feature == "managedCommit"):
        raise Inconclusive("the reader did not ask the owner, so it cannot know of version 3")
    s.require(
        call.answer.version == 3, "LOG-27", *SEEN, evidence=(call, log.committed[3]), table=log.table, version=3,
        expected="the owner returned latest version 3, and the listing lacked it: version 3, found in another "
        "way, or an error",
        observed=f"the read returned a snapshot of version {call.answer.version}",
    )  # fmt: skip
