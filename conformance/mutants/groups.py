"""Good and bad owners with transactions over several tables (profile `transaction-group`)."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from threading import RLock
from typing import Any

import msgspec

from conformance.interface import messages as m
from conformance.models.groups import GroupOwner, Staged
from conformance.models.owner import OwnedTable
from conformance.mutants import around, good, memory, memory_of, mutant, mutant_method, original

beyond = partial(mutant, found_by="programs")
beyond_method = partial(mutant_method, found_by="programs")
OPERATIONS = (
    "commit", "commit_group", "attempt_outcome", "get_commits", "backfill_to_version", "load_table", "load_tables",
    "create_table", "hand_back", "take_over", "drop_table", "maintenance_policy",
)  # fmt: skip


@good("FREE-GROUP-01")
class RatifiesGroups(GroupOwner):
    """Ratifies groups, and names every member that cannot be ratified in a refusal."""


@good("FREE-GROUP-01")
class NamesTheLastMemberThatLost(GroupOwner):
    """Refuses a group for its last member that cannot be ratified, without details and without the others."""

    def _decide(self, members: Sequence[Staged]) -> m.Answer:
        answer = super()._decide(members)
        if not isinstance(answer, m.GroupRefused):
            return answer
        last = answer.lost[-1]
        outcome = self._refusal(*members[last])
        bare = m.Conflict() if isinstance(outcome, m.Conflict) else m.Rejected(reason="it cannot be ratified")
        return m.GroupRefused(decided_by=last, answer=bare)


@good("FREE-GROUP-01", "FREE-POLICY-01")
class RejectsGroupsForAMoment(GroupOwner):
    """Rejects every fourth group as retryable, before it looks at it."""

    def commit_group(self, client: str, request: m.CommitGroup) -> m.Answer:
        seen = memory_of(self, list[int])
        seen.append(len(seen))
        busy = len(seen) % 4 == 0
        return m.Rejected(reason="busy", retryable=True) if busy else super().commit_group(client, request)


@good("FREE-GROUP-01")
class LocksTablesInOneOrder(GroupOwner):
    """Answers requests of several threads. A group locks its tables one by one, in the order of their references, and
    releases all of them if it cannot get one."""

    concurrent = True
    lock: Any = memory(RLock)
    held: dict[str, object] = memory(dict)
    releases = True

    @around(*OPERATIONS)
    def _locked(self, request: m.Request, ask: Callable[[], m.Answer]) -> m.Answer:
        with self.lock:
            if isinstance(request, m.CommitGroup):
                return self._with_tables(request, ask)
            if isinstance(request, m.Commit) and request.table in self.held:
                return m.Rejected(reason="the table is locked", retryable=True)
            return ask()

    def _order(self, request: m.CommitGroup) -> list[str]:
        return sorted({member.table for member in request.members})

    def _with_tables(self, request: m.CommitGroup, ask: Callable[[], m.Answer]) -> m.Answer:
        me, mine = object(), list[str]()
        try:
            for table in self._order(request):
                for _ in range(5):
                    if self.held.setdefault(table, me) is me:
                        mine.append(table)
                        break
                    self._let_others(0.003)
                else:
                    mine = mine if self.releases else []
                    return m.Rejected(reason="no lock in time", retryable=True)
                self._let_others(0.004)
            return ask()
        finally:
            for table in mine:
                del self.held[table]

    def _let_others(self, seconds: float) -> None:
        self.lock.release()
        time.sleep(seconds)
        self.lock.acquire()

    def restart(self, client: str, request: m.Restart) -> m.Answer:
        self.held.clear()
        return super().restart(client, request)


@beyond("PROFILE-GROUP-05")
class DeadlocksInOppositeOrder(LocksTablesInOneOrder):
    """Locks the tables of a group in the order of its members. Two groups in opposite order wait for each other, time
    out, and keep their locks: nothing more is ratified."""

    releases = False

    def _order(self, request: m.CommitGroup) -> list[str]:
        return [member.table for member in request.members]


@beyond("PROFILE-GROUP-03")
class ShowsHalfOfAGroup(LocksTablesInOneOrder):
    """Reads the tables of one answer one after the other, while groups land in between."""

    def load_tables(self, client: str, request: m.LoadTables) -> m.Answer:
        answers, before = [], self._latest_versions()
        for name in request.names:
            answers.append(self.load_table(client, m.LoadTable(name=name)))
            for _ in range(100):  # a busy machine begins the group late
                if self._latest_versions() != before:
                    break
                time.sleep(0.002)
        tables = tuple(answer for answer in answers if isinstance(answer, m.Table))
        return m.Tables(tables=tables) if len(tables) == len(answers) else m.NotFound()

    def _latest_versions(self) -> list[int]:
        return [table.latest for table in list(self.tables.values())]


@beyond("PROFILE-GROUP-03")
class ShowsGroupsOneTableLate(GroupOwner):
    """The last table in an answer about several comes from a cache that the last group did not update."""

    last: dict[str, m.Table] = memory(dict)
    stale: set[str] = memory(set)

    def commit_group(self, client: str, request: m.CommitGroup) -> m.Answer:
        answer = super().commit_group(client, request)
        if isinstance(answer, m.GroupRatified):
            self.stale.add(request.members[-1].table)
        return answer

    def load_tables(self, client: str, request: m.LoadTables) -> m.Answer:
        answer = super().load_tables(client, request)
        if not isinstance(answer, m.Tables):
            return answer
        shown = []
        for table in answer.tables:
            old = self.last.get(table.table)
            shown.append(old if old is not None and table.table in self.stale else table)
            self.stale.discard(table.table)
            self.last[table.table] = table
        return m.Tables(tables=tuple(shown))


@mutant_method("_decide", "PROFILE-GROUP-01")
def ratifies_a_group_one_by_one(self: GroupOwner, members: Sequence[Staged]) -> m.Answer:
    """Ratifies each member as it comes to it, until one is refused."""
    for index, member in enumerate(members):
        refusal = self._refusal(*member)
        if isinstance(refusal, m.Conflict | m.Gap | m.Rejected):
            return m.GroupRefused(decided_by=index, answer=refusal, lost=(index,))
        self._ratify_group([member])
    return m.GroupRatified()


@beyond_method("_save_group", "PROFILE-GROUP-01", "PROFILE-DURABLE-01")
def saves_the_tables_of_a_group_one_by_one(self: GroupOwner, tables: Sequence[OwnedTable]) -> None:
    """Saves the tables of a group one after the other: a crash in between leaves half of it."""
    for table in tables:
        self._save(table)
        self._reach("after-publish")


@beyond_method("_save_group", "PROFILE-GROUP-01", "PROFILE-DURABLE-01")
def answers_a_group_before_all_is_durable(self: GroupOwner, tables: Sequence[OwnedTable]) -> None:
    """Saves the first table of a group before its answer, and each other one with its next change."""
    self._save(tables[0])


@beyond_method("_group_replay", "PROFILE-GROUP-04")
def replays_of_members_land_the_rest(self: GroupOwner, members: Sequence[Staged]) -> m.Answer | None:
    """Ratifies the members that have not landed, if others landed before without them."""
    left = [member for member in members if member[1].attempt not in member[0].landed]
    if not left:
        return m.GroupRatified()
    if len(left) == len(members) or any(self._refusal(*member) is not None for member in left):
        return original(self)._group_replay(members)
    return self._ratify_group([(table, commit, self._stage(table, commit)) for table, commit, _ in left])


@mutant_method("_group_replay", "PROFILE-GROUP-04", "PROFILE-RETRY-01")
def replay_of_a_group_is_a_conflict(self: GroupOwner, members: Sequence[Staged]) -> m.Answer | None:
    """Forgets that a group landed: its replay is a conflict."""
    table, commit, _ = members[0]
    if commit.attempt in table.landed:
        return m.GroupRefused(decided_by=0, answer=m.Conflict(latest=table.latest), lost=(0,))
    return original(self)._group_replay(members)


@beyond_method("_decide", "PROFILE-GROUP-01", "PROFILE-GROUP-02")
def rejects_a_group_later_than_it_ratifies(self: GroupOwner, members: Sequence[Staged]) -> m.Answer:
    """Looks for resolved attempts after it recorded the group, and rejects what has landed."""
    resolved = [index for index, (table, commit, _) in enumerate(members) if commit.attempt in table.never]
    for index in resolved:
        members[index][0].never.discard(members[index][1].attempt)
    answer = original(self)._decide(members)
    for index in resolved:
        members[index][0].never.add(members[index][1].attempt)
    if not resolved or not isinstance(answer, m.GroupRatified):
        return answer
    return m.GroupRefused(decided_by=resolved[0], answer=m.Rejected(reason="resolved as not landed"))


@beyond_method("_decide", "PROFILE-GROUP-01")
def leaves_resolved_members_out(self: GroupOwner, members: Sequence[Staged]) -> m.Answer:
    """A member that was resolved as not landed does not land; the others do."""
    left = [member for member in members if member[1].attempt not in member[0].never]
    return original(self)._decide(left or members)


@beyond_method("_decide", "PROFILE-GROUP-01")
def leaves_tables_that_are_gone_out(self: GroupOwner, members: Sequence[Staged]) -> m.Answer:
    """A group in which one table was dropped or handed back lands in the others."""
    left = [member for member in members if member[0].active]
    return original(self)._decide(left or members)


@mutant_method("_decide", "PROFILE-GROUP-02")
def names_a_member_that_did_not_lose(self: GroupOwner, members: Sequence[Staged]) -> m.Answer:
    """Always names the first member of a refused group."""
    answer = original(self)._decide(members)
    if isinstance(answer, m.GroupRefused):
        return m.GroupRefused(decided_by=0, answer=answer.answer)
    return answer


@beyond_method("_decide", "PROFILE-GROUP-02")
def names_one_of_several_that_lost(self: GroupOwner, members: Sequence[Staged]) -> m.Answer:
    """Lists only the first member that lost, although others did too."""
    answer = original(self)._decide(members)
    return msgspec.structs.replace(answer, lost=answer.lost[:1]) if isinstance(answer, m.GroupRefused) else answer


@mutant_method("_decide", "PROFILE-GROUP-05")
def ratifies_no_group(self: GroupOwner, members: Sequence[Staged]) -> m.Answer:
    """Ratifies no group, although it declares the profile."""
    return m.GroupRefused(decided_by=0, answer=m.Rejected(reason="not now"), lost=(0,))


@beyond("PROFILE-GROUP-04")
class KnowsGroupsByTheOrderOfTheirMembers(GroupOwner):
    """Remembers the attempts of a group as a list: if its members come in another order, it is refused."""

    landed: dict[frozenset[str], list[str]] = memory(dict)

    def commit_group(self, client: str, request: m.CommitGroup) -> m.Answer:
        attempts = [member.attempt for member in request.members]
        if self.landed.get(frozenset(attempts), attempts) != attempts:
            return m.GroupRefused(decided_by=0, answer=m.Rejected(reason="an attempt of another group"))
        answer = super().commit_group(client, request)
        if isinstance(answer, m.GroupRatified):
            self.landed[frozenset(attempts)] = attempts
        return answer


@beyond("PROFILE-OUTCOME-01")
class ForgetsMembersThatArePublished(GroupOwner):
    """Finds the attempts of a group among the unpublished commits only."""

    members: set[str] = memory(set)

    def commit_group(self, client: str, request: m.CommitGroup) -> m.Answer:
        self.members.update(member.attempt for member in request.members)
        return super().commit_group(client, request)

    def attempt_outcome(self, client: str, request: m.AttemptOutcome) -> m.Answer:
        answer = super().attempt_outcome(client, request)
        if not isinstance(answer, m.Landed) or request.attempt not in self.members:
            return answer
        return answer if answer.version in self.tables[request.table].unbackfilled else m.NotLanded()


@mutant_method("_decide", "PROFILE-GROUP-01")
def leaves_tables_of_other_kinds_out(self: GroupOwner, members: Sequence[Staged]) -> m.Answer:
    """A group of tables with different features or commit modes lands in those that are like the first one."""
    first = members[0][0]
    alike = [one for one in members if (one[0].feature, one[0].commit_mode) == (first.feature, first.commit_mode)]
    return original(self)._decide(alike)
