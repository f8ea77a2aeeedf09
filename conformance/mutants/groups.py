"""Good and bad owners and clients with transactions over several tables (profile `transaction-group`)."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import RLock
from typing import Any

import msgspec

from conformance.interface import messages as m
from conformance.models.groups import GroupClient, GroupOwner, Staged
from conformance.models.owner import OwnedTable
from conformance.models.reader import Refused, Resolved
from conformance.models.writer import Conflicting, Transaction
from conformance.mutants import (
    around,
    beyond,
    beyond_method,
    good,
    good_method,
    memory,
    memory_of,
    mutant_method,
    original,
)

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


# Clients


def versions_of(transactions: Sequence[Transaction]) -> m.GroupCommitted:
    return m.GroupCommitted(versions=tuple(transaction.checked.version + 1 for transaction in transactions))


@good()
class CommitsToSeveralTables(GroupClient):
    """Commits to several tables by one group of proposals, and reads several tables at the versions of one answer."""


@good_method("transact_group")
def commits_to_two_tables(self: GroupClient, client: str, request: m.TransactGroup) -> m.Answer:
    """Rejects transactions over more than two tables."""
    if len(request.members) > 2:
        return m.Rejected(reason="a transaction changes two tables")
    return original(self).transact_group(client, request)


@good_method("_ask_group", "FREE-GROUP-01")
def repeats_a_group_without_answer(self: GroupClient, client: str, request: m.CommitGroup) -> m.Answer:
    """Sends the same group again if the answer was lost, and resolves it if it is not ratified then."""
    reply = original(self)._ask_group(client, request)
    if not isinstance(reply, m.Unknown):
        return reply
    again = original(self)._ask_group(client, request)
    return again if isinstance(again, m.GroupRatified) else reply


@good()
class StagesOnlyWhatLostAgain(GroupClient):
    """After a refusal proposes the commits of the other tables again, as the same attempts."""

    proposed: dict[str, m.Commit] = memory(dict)

    def _proposal(self, transaction: Transaction) -> m.Commit:
        known = self.proposed.get(transaction.request.marker)
        if known is None or known.version != transaction.checked.version + 1:
            known = self.proposed[transaction.request.marker] = super()._proposal(transaction)
        return known

    def _resolved(self, client: str, transaction: Transaction, request: m.Commit) -> bool:
        self.proposed.clear()  # what was resolved never lands any more
        return super()._resolved(client, transaction, request)


@good()
class ReadsResolvedTables(GroupClient):
    """Reads several tables by the commits in one answer of the owner alone."""

    together = False

    def _read_all(self, client: str, names: Sequence[str]) -> tuple[m.SnapshotRead, ...]:
        self.together = True
        try:
            return super()._read_all(client, names)
        finally:
            self.together = False

    def _ask(self, client: str, table: Resolved) -> None:
        if not self.together:
            super()._ask(client, table)


@mutant_method("transact_group", "PROFILE-GROUP-06")
def commits_table_by_table(self: GroupClient, client: str, request: m.TransactGroup) -> m.Answer:
    """Commits to the tables of a transaction one after the other."""
    versions = []
    for member in request.members:
        answer = self.transact(client, member)
        if not isinstance(answer, m.Committed):
            return answer
        versions.append(answer.version or 0)
    return m.GroupCommitted(versions=tuple(versions))


@beyond("PROFILE-GROUP-06")
class CommitsTheLastTableAlone(GroupClient):
    """Commits to all tables but the last by one group, and to the last one after that."""

    def _transact_all(self, client: str, transactions: Sequence[Transaction]) -> m.Answer:
        *first, last = transactions
        answer = super()._transact_all(client, first)
        landed = self._transact(client, last) if isinstance(answer, m.GroupCommitted) else answer
        return versions_of(transactions) if isinstance(landed, m.Committed) else landed


@beyond("PROFILE-GROUP-06")
class ProposesOnlyWhatLostAgain(GroupClient):
    """After a refusal proposes only the commits of the tables that another writer changed, as if the others had
    landed."""

    def _transact_all(self, client: str, transactions: Sequence[Transaction]) -> m.Answer:
        for transaction in transactions:
            self._catch_up(client, transaction)
        if not self._propose_all(client, transactions):
            for transaction in transactions:
                before = transaction.checked.version
                self._catch_up(client, transaction)
                if transaction.checked.version > before:
                    self._propose(client, transaction, transaction.checked.version + 1)
        return versions_of(transactions)


@beyond("PROFILE-GROUP-06")
class LeavesOutWhatConflicts(GroupClient):
    """Leaves a table out of the transaction if its check for conflicts fails, and commits to the others."""

    def _transact_all(self, client: str, transactions: Sequence[Transaction]) -> m.Answer:
        kept = []
        for transaction in transactions:
            with suppress(Conflicting):
                self._catch_up(client, transaction)
                kept.append(transaction)
        if not kept:
            raise Conflicting("all tables conflict")
        if not self._propose_all(client, kept):
            self._transact_all(client, kept)
        return versions_of(transactions)


@beyond("PROFILE-GROUP-06")
class LeavesOutWhatIsGone(GroupClient):
    """If the owner rejects a group for one table, commits to the others."""

    def _transact_all(self, client: str, transactions: Sequence[Transaction]) -> m.Answer:
        try:
            return super()._transact_all(client, transactions)
        except Refused:
            for transaction in transactions:
                if isinstance(self.owner(client, m.LoadTable(name=transaction.request.table)), m.Table):
                    super()._transact_all(client, [transaction])
            return versions_of(transactions)


@beyond_method("_ask_group", "PROFILE-UNKNOWN-01", "MC-COMMIT-06", "CM-COMMIT-06")
def proposes_a_lost_group_again(self: GroupClient, client: str, request: m.CommitGroup) -> m.Answer:
    """Takes a group without an answer for a lost race, and proposes it again: it is committed twice."""
    reply = original(self)._ask_group(client, request)
    return m.GroupRefused(decided_by=0, answer=m.Conflict()) if isinstance(reply, m.Unknown) else reply


@beyond("CONFLICT-ORDER-01", "CONFLICT-CHECK-01")
class ChecksOnlyTheFirstTable(GroupClient):
    """Checks the other writers' commits to the first table of a transaction only."""

    first: list[Transaction] = memory(list)

    def _transact_all(self, client: str, transactions: Sequence[Transaction]) -> m.Answer:
        self.first = [transactions[0]]
        return super()._transact_all(client, transactions)

    def _check(self, transaction: Transaction, winner: list[dict[str, Any]]) -> None:
        if not self.first or transaction in self.first:
            super()._check(transaction, winner)


@beyond_method("_read_all", "PROFILE-GROUP-07")
def reads_table_by_table(self: GroupClient, client: str, names: Sequence[str]) -> tuple[m.SnapshotRead, ...]:
    """Resolves and reads the tables of one request one after the other."""
    tables = (self._resolve(client, name) for name in names)
    return tuple(self._snapshot_read(self._read(client, table, None, None), stale=False) for table in tables)


@beyond_method("_read_all", "PROFILE-GROUP-07")
def reads_the_newest_of_each(self: GroupClient, client: str, names: Sequence[str]) -> tuple[m.SnapshotRead, ...]:
    """Resolves several tables in one state, and then reads the newest version of each."""
    tables = self._resolve_all(client, names)
    return tuple(self._snapshot_read(self._read(client, table, None, None), stale=False) for table in tables)


@mutant_method("snapshots", "PROFILE-GROUP-07")
def reads_no_two_tables(self: GroupClient, client: str, request: m.Snapshots) -> m.Answer:
    """Rejects every read of several tables, although it declares the profile."""
    return m.Rejected(reason="one table")


@mutant_method("transact_group", "PROFILE-GROUP-06")
def commits_to_no_two_tables(self: GroupClient, client: str, request: m.TransactGroup) -> m.Answer:
    """Rejects every transaction over several tables, although it declares the profile."""
    return m.Rejected(reason="one table")
