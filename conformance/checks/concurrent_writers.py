"""Concurrent writers: of all who propose one version, one gets it."""

from __future__ import annotations

from conformance.checks.registry import Family, check
from conformance.interface.messages import Conflict, Ratified
from conformance.scenario.scenario import Scenario


@check(Family.CONCURRENT_WRITERS, "MC-COMMIT-02", "CM-COMMIT-08", "PROFILE-CORE-04", "PROFILE-CORE-05")
def of_two_writers_of_one_version_one_wins(s: Scenario) -> None:
    """Of two writers that propose the same version one is ratified; the other is told of a conflict, and its next
    proposal of the version after that is ratified."""
    table = s.create()
    won = s.land(table, client="first")
    lost = s.commit(table, 1, client="second")
    s.expect(
        lost, Conflict, "PROFILE-CORE-04", "MC-COMMIT-02", expected="version 1 is taken: a conflict", because=(won,)
    )
    s.land(table, client="second")


@check(Family.REPLAYS, "PROFILE-RETRY-01", "PROFILE-CORE-06")
def a_replay_is_ratified_again(s: Scenario) -> None:
    """A writer whose answer was lost sends the same attempt again, and is told that it landed."""
    table = s.create()
    sent = s.lose("writer", s.proposal(table, 1))
    table.versions += 1
    s.land(table, client="other")
    again = s.ask("writer", sent.request)
    if "idempotent-retry" in s.identity.profiles:
        s.expect(again, Ratified, "PROFILE-RETRY-01", expected="the attempt is version 1: ratified", because=(sent,))
