"""Tables of more commits than an owner may think of: what it told of the first ones it tells still.

The variations: lists, replays, outcomes and tombstones of `MANY` commits. Pages that end, caches of the last so many
attempts, and versions that are sorted as text show here, and in no table of a few commits.
"""

from __future__ import annotations

from conformance.checks.backfill_ordering import UNPUBLISHED
from conformance.checks.registry import Family, check
from conformance.checks.replays import lose_one, replay
from conformance.checks.replays_outcomes import arrives_late, attempt_of, landed, not_landed
from conformance.checks.stale_reads import FRESH, land
from conformance.checks.stale_reads_ranges import RANGE, answered_in_full
from conformance.requirements.catalogue import Profile
from conformance.scenario.scenario import Scenario

MANY = 24
"""Versions have one digit, and two."""


@check(Family.STALE_READS, *RANGE, "LOG-05", "LOG-07", *FRESH, commit_modes=UNPUBLISHED)
def many_unpublished_commits_are_listed_whole(s: Scenario) -> None:
    """Of two dozen commits that nobody asked to publish every range is answered in full, in the order of the versions
    as numbers; so is what is left after half of them are published."""
    table = s.create()
    last = land(s, table, MANY)[-1]
    published = set(s.published(table))
    for asked in ((None, None), (9, 11), (2, MANY)):
        answered_in_full(s, table, asked, published, last)
    done = s.backfill(table, MANY // 2)
    answered_in_full(s, table, (None, None), set(s.published(table)), done)


@check(Family.REPLAYS, "PROFILE-RETRY-01", "PROFILE-CORE-06", needs=(Profile.IDEMPOTENT_RETRY,))
def a_commit_is_known_again_after_many_others(s: Scenario) -> None:
    """A writer that was not answered sends its commit again when two dozen others have landed: it is told that it
    landed, and as which version."""
    table = s.create()
    sent = lose_one(s, table)
    land(s, table, MANY, client="other")
    replay(s, sent, since=f", and {MANY} others committed since")


@check(Family.REPLAYS, "PROFILE-OUTCOME-01", needs=(Profile.ATTEMPT_OUTCOME,))
def an_outcome_is_known_after_many_others(s: Scenario) -> None:
    """What became of an attempt is told as before when two dozen others have landed."""
    table = s.create()
    sent = lose_one(s, table)
    land(s, table, MANY, client="other")
    landed(s, table, sent)


@check(Family.REPLAYS, "PROFILE-OUTCOME-02", needs=(Profile.ATTEMPT_OUTCOME,))
def every_tombstone_is_kept(s: Scenario) -> None:
    """Nine requests for version 1 are given up, one after the other, and resolved as not landed. When they arrive all
    of them are refused, the oldest first; version 1 is for another."""
    table = s.create()
    late = [s.delay(f"writer {number}", s.proposal(table, 1)) for number in range(9)]
    for each in late:
        s.give_up(each)
    resolved = [not_landed(s, table, attempt_of(each)) for each in late]
    for each, told in zip(late, resolved, strict=True):
        arrives_late(s, table, each, told)
    s.land(table, client="other")
