"""Concurrent writers: one proposal of a version is ratified, after the previous version, and the others are rejected.

managed-commits, "Commit Protocol"; catalog-managed, "Commit Protocol".

Several clients commit, replay, look up and read, in any order, with lost, late and repeated requests. A client under
test loses races to other writers, one after the other.

Races on version 0: one of several creators of a table succeeds; managed-commits, "Creating a new managed-commit table";
catalog-managed, "Creating and Dropping Catalog-managed Tables". Tables are created, found, dropped and created again,
with names that resemble each other. A client under test creates tables while its requests and answers are lost.

Why examples: a program writes no file between an owner's look and its put, and demands no winners in a conflict. The
other examples are those that the course and the findings name.
"""

from typing import Any

from conformance.adapters.identity import EVERY_TABLE
from conformance.checks import check, families
from conformance.interface import messages as m
from conformance.interface.log_names import commit_file
from conformance.interface.results import Layer
from conformance.models import proposals
from conformance.programs.client_words import ClientFamily
from conformance.programs.owner_words import OwnerFamily
from conformance.programs.rounds import CREATORS, Rounds
from conformance.programs.running import Generation
from conformance.requirements.catalogue import Profile
from conformance.scenario.check import Family
from conformance.scenario.formatting import in_words
from conformance.scenario.scenario import Exchange, Inconclusive, Scenario, TableHandle


@check(Family.CONCURRENT_WRITERS, *families.REQUESTS, layer=Layer.MODEL)
def any_sequence_of_requests(g: Generation) -> None:
    """Generated requests of several clients, with lost, late and repeated ones: every answer and every file is one that
    the documents allow."""
    g.run(OwnerFamily(name=g.check.family, factors={"create": 0.5, "drop": 0, "recreate": 0, "together": 3}))


@check(Family.CONCURRENT_WRITERS, *families.TRANSACTIONS, layer=Layer.MODEL, side="client", features=EVERY_TABLE)
def any_race_with_writers(g: Generation) -> None:
    """Generated transactions of the client that lose several races in a row: it commits after the last winner, once."""
    factors = {"transact": 6, "win": 3, "read": 0.5, "maintain": 0.1, "create": 0, "transfer": 0}
    g.run(ClientFamily(name=g.check.family, factors=factors))


@check(Family.CONCURRENT_WRITERS, *families.REQUESTS, "MC-RELEASE-03", "MC-RELEASE-04",
       layer=Layer.PROCESSES)  # fmt: skip
def concurrent_client_processes(rounds: Rounds) -> None:
    """Writers, a reader and a publisher work on one table concurrently. Commits are looked up, or sent a second time,
    while they are under way, and race with a hand-back. The answers are consistent with one order of the requests that
    agrees with their times."""
    rounds.run()


RACE = ("MC-COMMIT-02", "CM-COMMIT-08", "PROFILE-CORE-04", "PROFILE-CORE-05")
"""The requirements that a race for one version tests."""


@check(Family.CONCURRENT_WRITERS, *RACE)
def two_writers_of_one_version_have_one_winner(s: Scenario) -> None:
    """Two writers propose the same version: one is ratified, the other gets a conflict, and its next proposal, of the
    version after that, is ratified."""
    table = s.create()
    won = s.land(table, client="first")
    lost = s.commit(table, 1, client="second")
    s.expect(lost, (m.Conflict, m.Rejected), "MC-COMMIT-02", "CM-COMMIT-08", because=(won,),
             expected="version 1 is taken: it is not ratified again")  # fmt: skip
    s.land(table, client="second")


@check(Family.CONCURRENT_WRITERS, "PROFILE-CORE-04")
def a_lost_race_is_a_conflict(s: Scenario) -> None:
    """A proposal that lost its version gets a conflict, not an error that ends the write: its writer rebases, proposes
    the next version, and is ratified."""
    table = s.create()
    s.land(table, client="first")
    s.contend(table, 1, client="second")
    s.land(table, client="second")
    s.contend(table, 2, client="first")
    s.land(table, client="first")


@check(Family.CONCURRENT_WRITERS, "PROFILE-CORE-05", "MC-FEATURE-02", "CM-FEATURE-01")
def versions_are_counted_per_table(s: Scenario) -> None:
    """Commits to one table neither take versions of another nor appear in it, even if name and version together read
    the same: version 11 of `orders`, version 1 of `orders1`."""
    first, second = s.create("orders"), s.create("orders1")
    s.land_all(first, 11)
    s.land(second)
    s.contend(second, 1)
    s.land(first)
    s.land(second)
    for table in (first, second):
        s.get_commits(table)


# Advice: a violation is a warning


@check(Family.CONCURRENT_WRITERS, "CM-COMMIT-09", features=("catalogManaged",), commit_modes=("staged", "inline"))
def a_conflict_tells_what_was_ratified(s: Scenario) -> None:
    """A writer loses version 1, and version 2 is ratified too: the conflict contains the missing commits, or at
    least the latest version, so that the writer need not request them."""
    table = s.create()
    s.land_all(table, 2)
    lost = s.contend(table, 1, client="other")
    if not isinstance(lost.answer, m.Conflict):
        raise Inconclusive(f"operation {lost.number}: expected a conflict, not {in_words(lost.answer)}")
    s.require(
        bool(lost.answer.winners) or lost.answer.latest is not None, "CM-COMMIT-09", evidence=(lost,), table=table,
        expected="the conflict names the latest ratified commits",
        observed="the conflict has neither the latest version nor the winners",
    )  # fmt: skip


# Version 0


@check(Family.VERSION_0, "MC-CREATE-02", "PROFILE-VERSION0-01", "PROFILE-VERSION0-02",
       "PROFILE-VERSION0-03", "MC-ENABLE-05", *families.DISCOVERY, *families.REQUESTS, layer=Layer.MODEL)  # fmt: skip
def any_sequence_of_creations(g: Generation) -> None:
    """Generated creations by several clients, and drops between them, with lost and late requests: one creator of each
    table succeeds, and dropped tables stay dropped."""
    g.run(OwnerFamily(name=g.check.family, factors={"create": 4, "load": 2, "drop": 3, "recreate": 4, "together": 2}))


@check(Family.VERSION_0, *families.OWNING, layer=Layer.MODEL, side="client")
def any_creation_by_the_client(g: Generation) -> None:
    """Generated creations by the client, whose requests and answers are lost, repeated and refused: version 0 is
    proposed once, and its outcome is reported."""
    g.run(ClientFamily(name=g.check.family, factors={"create": 12, "transfer": 0, "maintain": 0.2, "of_writers": 1.5}))


@check(Family.VERSION_0, "MC-CREATE-02", *families.COMMITTING, layer=Layer.PROCESSES)
def concurrent_creator_processes(rounds: Rounds) -> None:
    """Several creators propose version 0 of one table concurrently: one is ratified."""
    rounds.run(creators=CREATORS, writers=1)


# Content and location of version 0, and the race with a filesystem creator

OWNER = "delta.managedCommit.commitOwner"


def configuration(content: str) -> dict[str, Any]:
    """The table's properties, as version 0 sets them."""
    properties = (proposals.body_of(content, "metaData") or {}).get("configuration")
    return properties if isinstance(properties, dict) else {}


def names_the_owner(s: Scenario, table: TableHandle, version: int, content: str, *evidence: Exchange) -> None:
    """A table with the feature and without the owner's name is invalid. managed-commits, "Managed Commit
    Enablement"."""
    name = configuration(content).get(OWNER)
    s.require(isinstance(name, str) and name != "", "MC-ENABLE-10", evidence=evidence, table=table, version=version,
              expected=f"the owner adds its name to the metadata of version {version}, as `{OWNER}`",
              observed=f"`{OWNER}` is {'missing' if name is None else repr(name)}")  # fmt: skip


def place(s: Scenario, name: str) -> str:
    """A folder for a table, below the folder to which the kit may write."""
    if s.identity.storage is None:
        raise Inconclusive("the subject declares no folder (`storage`) to which the kit may write")
    return f"{s.identity.storage.rstrip('/')}/{s.physical(name)}"


def create_at(s: Scenario, path: str, name: str) -> Exchange:
    """Create a table at a path. Raises `Inconclusive` if the subject always chooses the location."""
    call = s.ask("creator", s.creation(name, path=path))
    if isinstance(call.answer, m.Unsupported):
        raise Inconclusive(f"operation {call.number}: the subject does not create tables at a given path")
    return call


def first_file(s: Scenario, path: str) -> str | None:
    answer = s.answer("external observer", m.Observe(table=path))
    files = answer.files if isinstance(answer, m.Observation) else ()
    return next((file.content for file in files if file.name == commit_file(0)), None)


@check(Family.VERSION_0, "MC-CREATE-01", needs=(Profile.VERSION_0_BY_OWNER,), features=("managedCommit",))
def version_0_needs_no_backfill(s: Scenario) -> None:
    """Version 0 of a new table is a published commit at once, so that creators with and without the owner meet."""
    table = s.create()
    s.require(
        0 in s.published(table), "MC-CREATE-01", table=table, version=0,
        expected="version 0 is written directly as a backfilled commit",
        observed="a new table has no published version 0",
    )  # fmt: skip
