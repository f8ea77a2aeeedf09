"""Races on version 0: one of several creators of a table succeeds.

The variations: the creators (two, five, the same one again, one without an answer), the order in which their requests
arrive, the losers' requests (the same, another commit mode, another feature), and the requests that follow.
managed-commits, "Creating a new managed-commit table"; catalog-managed, "Creating and Dropping Catalog-managed
Tables".

Tables are created, found, dropped and created again, with names that resemble each other. A client under test creates
tables while its requests and answers are lost.

Why examples: in the measured time programs found the mutants of these checks not at all, or under other requirements.
The other examples are those that the course names.
"""

from typing import Any

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
from conformance.scenario.scenario import Exchange, Inconclusive, Scenario, TableHandle


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
