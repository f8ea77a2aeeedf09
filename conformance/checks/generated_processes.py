"""Real clients at the same time, each its own process where the subject allows that. What they were told is recorded
and judged: nothing is expected of any one answer."""

from __future__ import annotations

from conformance.checks.generated import COMMITTING, PUBLISHING, READING
from conformance.checks.registry import Family, check
from conformance.generated.rounds import CREATORS, Rounds
from conformance.requirements.catalogue import Profile
from conformance.results import Layer


@check(Family.CONCURRENT_WRITERS, *COMMITTING, *READING, *PUBLISHING, layer=Layer.PROCESSES)
def real_clients_at_the_same_time(rounds: Rounds) -> None:
    """Writers, a reader and a publisher work on one table at the same time: their answers fit together, in some order
    that agrees with their times."""
    rounds.run()


@check(Family.VERSION_0, "MC-CREATE-02", *COMMITTING, layer=Layer.PROCESSES)
def real_creators_at_the_same_time(rounds: Rounds) -> None:
    """Several creators propose version 0 of one table at the same time: one of them gets it."""
    rounds.run(creators=CREATORS, writers=1)


@check(Family.RESTARTS, "PROFILE-DURABLE-01", "PROFILE-DURABLE-03", *COMMITTING, *READING,
       *PUBLISHING, layer=Layer.PROCESSES, needs=(Profile.DURABLE_RESTART,))  # fmt: skip
def real_clients_that_are_killed(rounds: Rounds) -> None:
    """Writers are killed in the middle of their commits: the others go on, what was ratified stays, and what was not
    finished either happened or did not."""
    rounds.run(kills=True)
