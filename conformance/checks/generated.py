"""Generated scenarios, compared with the pure model `conformance.oracle.owner`: no order of requests, lost answer,
late request or restart may bring a table into a state that the documents do not allow."""

from typing import Final

from conformance.checks import check
from conformance.programs.owner_words import OwnerFamily
from conformance.programs.rounds import CREATORS, Rounds
from conformance.programs.running import Generation
from conformance.requirements.catalogue import Profile
from conformance.results import Layer
from conformance.scenario.check import Family

COMMITTING: Final = (
    "MC-COMMIT-01", "CM-COMMIT-07", "MC-COMMIT-02", "CM-COMMIT-08", "MC-API-03", "CM-CATALOG-03", "MC-FEATURE-02",
    "CM-FEATURE-01", "MC-FEATURE-03", "CM-COMMIT-01", "PROFILE-CORE-03", "PROFILE-CORE-05", "PROFILE-CORE-06",
    "PROFILE-CORE-07", "PROFILE-RETRY-01", "PROFILE-OUTCOME-01", "PROFILE-OUTCOME-02", "PROFILE-DIRECT-01",
)  # fmt: skip
READING: Final = (
    "MC-READ-06", "CM-GET-04", "MC-GET-01", "CM-GET-03", "MC-GET-02", "LOG-05", "LOG-07", "MC-FILES-06", "CM-STORE-09",
    "MC-API-04", "CM-CATALOG-04",
)  # fmt: skip
PUBLISHING: Final = (
    "MC-BACKFILL-01", "CM-PUBLISH-03", "MC-BACKFILL-03", "CM-PUBLISH-06", "MC-BACKFILL-05", "MC-FILES-08",
    "CM-FILES-07", "PROFILE-BACKLOG-01", "MC-LOG-01", "CM-LOG-01",
)  # fmt: skip


@check(Family.CONCURRENT_WRITERS, *COMMITTING, *READING, *PUBLISHING, layer=Layer.MODEL)
def any_sequence_of_requests(g: Generation) -> None:
    """Generated sequences of requests by several clients, with lost answers and delayed requests: every answer is one
    that the documents allow."""
    g.run(OwnerFamily(name="concurrent-writers", factors={"create": 0.5, "drop": 0, "recreate": 0}))


@check(Family.VERSION_0, "MC-CREATE-02", "PROFILE-VERSION0-02", "PROFILE-DISCOVERY-01", "PROFILE-DISCOVERY-02",
       "CM-DISCOVER-01", *COMMITTING, *READING, *PUBLISHING, layer=Layer.MODEL)  # fmt: skip
def any_sequence_of_creations(g: Generation) -> None:
    """Generated sequences of create, find, drop and create again, by several clients, with lost answers and delayed
    requests: one creator of each table succeeds, and dropped tables stay dropped."""
    g.run(OwnerFamily(name="version-0", factors={"create": 4, "load": 2, "drop": 3, "recreate": 4}))


@check(Family.RESTARTS, "PROFILE-DURABLE-01", "PROFILE-DURABLE-03", *COMMITTING, *READING,
       *PUBLISHING, layer=Layer.MODEL, needs=(Profile.DURABLE_RESTART,))  # fmt: skip
def any_sequence_with_restarts(g: Generation) -> None:
    """Generated sequences of requests with crashes and restarts between them: everything ratified, resolved and
    published is kept, and the owner continues."""
    g.run(OwnerFamily(name="restarts", factors={"restart": 4, "crash": 4, "disturbance": 2}))


# Client processes; the kit checks their recorded history


@check(Family.CONCURRENT_WRITERS, *COMMITTING, *READING, *PUBLISHING, "MC-RELEASE-03", "MC-RELEASE-04",
       layer=Layer.PROCESSES)  # fmt: skip
def concurrent_client_processes(rounds: Rounds) -> None:
    """Writers, a reader and a publisher work on one table concurrently. Commits are looked up, or sent a second time,
    while they are under way, and race with a hand-back. The answers are consistent with one order of the requests that
    agrees with their times."""
    rounds.run()


@check(Family.VERSION_0, "MC-CREATE-02", *COMMITTING, layer=Layer.PROCESSES)
def concurrent_creator_processes(rounds: Rounds) -> None:
    """Several creators propose version 0 of one table concurrently: one is ratified."""
    rounds.run(creators=CREATORS, writers=1)


@check(Family.RESTARTS, "PROFILE-DURABLE-01", "PROFILE-DURABLE-03", *COMMITTING, *READING,
       *PUBLISHING, layer=Layer.PROCESSES, needs=(Profile.DURABLE_RESTART,))  # fmt: skip
def killed_client_processes(rounds: Rounds) -> None:
    """Writers are killed during their commits: other writers continue, ratified commits stay, and each interrupted
    commit landed as a whole or not at all."""
    rounds.run(kills=True)
