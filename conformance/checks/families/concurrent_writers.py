"""Concurrent writers: of several proposals of a version one is ratified, and each writer learns how its own ended.

Several clients commit, replay, look up and read, in any order, with lost, late and repeated requests. A client under
test loses races to other writers, one after the other.
"""

from conformance.adapters.identity import EVERY_TABLE
from conformance.checks import check
from conformance.checks.families import COMMITTING, PUBLISHING, READING, TRANSACTIONS
from conformance.interface.results import Layer
from conformance.programs.client_words import ClientFamily
from conformance.programs.owner_words import OwnerFamily
from conformance.programs.rounds import Rounds
from conformance.programs.running import Generation
from conformance.scenario.check import Family


@check(Family.CONCURRENT_WRITERS, *COMMITTING, *READING, *PUBLISHING, layer=Layer.MODEL)
def any_sequence_of_requests(g: Generation) -> None:
    """Generated requests of several clients, with lost, late and repeated ones: every answer and every file is one that
    the documents allow."""
    g.run(OwnerFamily(name=g.check.family, factors={"create": 0.5, "drop": 0, "recreate": 0, "together": 3}))


@check(Family.CONCURRENT_WRITERS, *TRANSACTIONS, layer=Layer.MODEL, side="client", features=EVERY_TABLE)
def any_race_with_writers(g: Generation) -> None:
    """Generated transactions of the client that lose several races in a row: it commits after the last winner, once."""
    factors = {"transact": 6, "win": 3, "read": 0.5, "maintain": 0.1, "create": 0, "transfer": 0}
    g.run(ClientFamily(name=g.check.family, factors=factors))


@check(Family.CONCURRENT_WRITERS, *COMMITTING, *READING, *PUBLISHING, "MC-RELEASE-03", "MC-RELEASE-04",
       layer=Layer.PROCESSES)  # fmt: skip
def concurrent_client_processes(rounds: Rounds) -> None:
    """Writers, a reader and a publisher work on one table concurrently. Commits are looked up, or sent a second time,
    while they are under way, and race with a hand-back. The answers are consistent with one order of the requests that
    agrees with their times."""
    rounds.run()
