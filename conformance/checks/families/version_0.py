"""The race on version 0: of several creators of a table one succeeds, and every other one learns that it lost.

Tables are created, found, dropped and created again, with names that resemble each other. A client under test creates
tables while its requests and answers are lost.
"""

from conformance.checks import check
from conformance.checks.families import COMMITTING, DISCOVERY, OWNING, PUBLISHING, READING
from conformance.interface.results import Layer
from conformance.programs.client_words import ClientFamily
from conformance.programs.owner_words import OwnerFamily
from conformance.programs.rounds import CREATORS, Rounds
from conformance.programs.running import Generation
from conformance.scenario.check import Family


@check(Family.VERSION_0, "MC-CREATE-02", "PROFILE-VERSION0-02", "PROFILE-VERSION0-03", "MC-ENABLE-05", *DISCOVERY,
       *COMMITTING, *READING, *PUBLISHING, layer=Layer.MODEL)  # fmt: skip
def any_sequence_of_creations(g: Generation) -> None:
    """Generated creations by several clients, and drops between them, with lost and late requests: one creator of each
    table succeeds, and dropped tables stay dropped."""
    g.run(OwnerFamily(name=g.check.family, factors={"create": 4, "load": 2, "drop": 3, "recreate": 4, "together": 2}))


@check(Family.VERSION_0, *OWNING, layer=Layer.MODEL, side="client")
def any_creation_by_the_client(g: Generation) -> None:
    """Generated creations by the client, whose requests and answers are lost, repeated and refused: version 0 is
    proposed once, and its outcome is reported."""
    g.run(ClientFamily(name=g.check.family, factors={"create": 12, "transfer": 0, "maintain": 0.2, "of_writers": 1.5}))


@check(Family.VERSION_0, "MC-CREATE-02", *COMMITTING, layer=Layer.PROCESSES)
def concurrent_creator_processes(rounds: Rounds) -> None:
    """Several creators propose version 0 of one table concurrently: one is ratified."""
    rounds.run(creators=CREATORS, writers=1)
