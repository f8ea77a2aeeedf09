"""Restarts: everything that was answered before a crash still holds after it, and the owner continues.

The owner crashes between requests and at its declared crash points; what was under way landed as a whole or not at all.
"""

from conformance.checks import check
from conformance.checks.families import COMMITTING, DURABLE, PUBLISHING, READING
from conformance.interface.results import Layer
from conformance.programs.owner_words import OwnerFamily
from conformance.programs.rounds import Rounds
from conformance.programs.running import Generation
from conformance.requirements.catalogue import Profile
from conformance.scenario.check import Family


@check(Family.RESTARTS, *DURABLE, *COMMITTING, *READING, *PUBLISHING, layer=Layer.MODEL,
       needs=(Profile.DURABLE_RESTART,))  # fmt: skip
def any_sequence_with_restarts(g: Generation) -> None:
    """Generated requests with crashes between and during them: everything ratified, resolved and published is kept."""
    g.run(OwnerFamily(name=g.check.family, factors={"restart": 4, "crash": 4, "disturbance": 2}))


@check(Family.RESTARTS, *DURABLE, *COMMITTING, *READING, *PUBLISHING, layer=Layer.PROCESSES,
       needs=(Profile.DURABLE_RESTART,))  # fmt: skip
def killed_client_processes(rounds: Rounds) -> None:
    """Writers are killed during their commits: other writers continue, ratified commits stay, and each interrupted
    commit landed as a whole or not at all."""
    rounds.run(kills=True)
