"""Concurrent writers of a table whose commits are ratified by publishing them: the file decides, by put-if-absent,
whoever wrote it and whoever heard of it. managed-commits, "Commit Protocol", second choice; catalog-managed, "Commit
Protocol", option 3.
"""

from __future__ import annotations

from conformance.checks.registry import Family, check
from conformance.history import digests
from conformance.interface.messages import Conflict, Done, Ratified, Rejected
from conformance.requirements.catalogue import Profile
from conformance.scenario import hands
from conformance.scenario.scenario import Inconclusive, Scenario, TableHandle, Told

DIRECT = ("direct",)
WHOLE = ("MC-COMMIT-04", "CM-COMMIT-04")
VISIBLE = ("MC-COMMIT-05", "CM-COMMIT-05")


@check(Family.CONCURRENT_WRITERS, *WHOLE, "PROFILE-DIRECT-01", commit_modes=DIRECT)
def a_direct_commit_is_there_whole_when_it_is_answered(s: Scenario) -> None:
    """A commit that was answered as ratified is visible in the log, with all of its actions."""
    table = s.create()
    for version in (1, 2):
        won = s.land(table)
        seen = s.published(table)
        s.require(version in seen, "PROFILE-DIRECT-01", told=(won,), table=table, version=version,
                  expected=f"version {version} was ratified by publishing it: it is in the log",
                  observed=f"a listing shows versions {sorted(seen)}")  # fmt: skip
        actions = tuple(won.request.actions)  # type: ignore[union-attr,arg-type]
        same = digests.of_actions(actions) == digests.of_actions(seen[version].splitlines())
        s.require(same, *WHOLE, told=(won,), table=table, version=version,
                  expected=f"the file of version {version} has the {len(actions)} actions that were proposed",
                  observed=f"it has {len(seen[version].splitlines())}, or others: {seen[version][:300]}")  # fmt: skip


def published_by_a_stranger(s: Scenario, table: TableHandle) -> Told:
    """A commit by put-if-absent of which the owner is not told."""
    made = hands.publish(s, table, s.proposal(table), client="silent")
    if not isinstance(made.answer, Done):
        raise Inconclusive(f"version {table.versions} could not be published by a client: {made.answer}")
    table.versions += 1
    s.published(table)
    return made


@check(Family.CONCURRENT_WRITERS, *WHOLE, *VISIBLE, needs=(Profile.STORAGE_ACCESS,), commit_modes=DIRECT)
def a_direct_commit_does_not_replace_one_that_is_there(s: Scenario) -> None:
    """A client published version 1 by put-if-absent, and the owner was not told. Whoever proposes version 1 through the
    owner loses, and the file stays as it is."""
    table = s.create()
    made = published_by_a_stranger(s, table)
    before = s.published(table)
    lost = s.commit(table, 1, client="late")
    after = s.published(table)
    s.require(before.get(1) == after.get(1), *WHOLE, told=(made, lost), table=table, version=1,
              expected="the file of version 1 that was there first stays as it is",
              observed=f"it was {before.get(1, '')[:150]}, and is {after.get(1, 'gone')[:150]}")  # fmt: skip
    s.expect(lost, (Conflict, Rejected), *WHOLE, because=(made,),
             expected="version 1 is there: it is not ratified again")  # fmt: skip


@check(Family.CONCURRENT_WRITERS, *VISIBLE, needs=(Profile.STORAGE_ACCESS,), commit_modes=DIRECT)
def a_commit_that_is_visible_counts_although_nobody_told_the_owner(s: Scenario) -> None:
    """A client published version 1 by put-if-absent and never got to tell the owner. It is committed all the same: the
    next commit is version 2, and is ratified."""
    table = s.create()
    made = published_by_a_stranger(s, table)
    told = s.commit(table, 2, client="next")
    s.expect(told, Ratified, *VISIBLE, because=(made,), may_refuse=True,
             expected="version 1 is visible, so it is committed, and version 2 comes next: ratified")  # fmt: skip
    table.versions += 1
    s.land(table)
    s.published(table)


@check(
    Family.CONCURRENT_WRITERS,
    *VISIBLE,
    "MC-COMMIT-02",
    "CM-COMMIT-08",
    needs=(Profile.STORAGE_ACCESS,),
    commit_modes=DIRECT,
)
def of_a_direct_commit_and_one_by_the_owner_one_wins(s: Scenario) -> None:
    """A proposal of version 1 is on its way to the owner while a client publishes version 1 itself. The file was there
    first: the owner's answer is a conflict, and the log has the client's commit."""
    table = s.create()
    late = s.delay("late", s.proposal(table))
    made = published_by_a_stranger(s, table)
    told = s.deliver(late)
    s.expect(told, (Conflict, Rejected), *WHOLE, "MC-COMMIT-02", "CM-COMMIT-08", because=(made,),
             expected="version 1 is there: it is not ratified again")  # fmt: skip
    s.published(table)
