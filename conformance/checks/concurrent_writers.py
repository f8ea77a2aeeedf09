"""Concurrent writers: one proposal of a version is ratified, after the previous version, and the others are rejected.

managed-commits, "Commit Protocol"; catalog-managed, "Commit Protocol".

Several clients commit, replay, look up and read, in any order, with lost, late and repeated requests. A client under
test loses races to other writers, one after the other.

Races on version 0: one of several creators of a table succeeds; managed-commits, "Creating a new managed-commit table";
catalog-managed, "Creating and Dropping Catalog-managed Tables". Tables are created, found, dropped and created again,
with names that resemble each other. A client under test creates tables while its requests and answers are lost.

Why examples: they are the first stages of the course, and short cases for tests.
"""

from conformance.adapters.identity import EVERY_TABLE
from conformance.checks import check, families
from conformance.interface import messages as m
from conformance.interface.results import Layer
from conformance.programs.client_words import ClientFamily
from conformance.programs.owner_words import OwnerFamily
from conformance.programs.rounds import CREATORS, Rounds
from conformance.programs.running import Generation
from conformance.requirements.catalogue import Profile
from conformance.scenario.check import Family
from conformance.scenario.scenario import Scenario


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


@check(Family.VERSION_0, "MC-CREATE-01", needs=(Profile.VERSION_0_BY_OWNER,), features=("managedCommit",))
def version_0_needs_no_backfill(s: Scenario) -> None:
    """Version 0 of a new table is a published commit at once, so that creators with and without the owner meet."""
    table = s.create()
    s.require(
        0 in s.published(table), "MC-CREATE-01", table=table, version=0,
        expected="version 0 is written directly as a backfilled commit",
        observed="a new table has no published version 0",
    )  # fmt: skip
