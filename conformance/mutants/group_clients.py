"""Good and bad clients with transactions over several tables (profile `transaction-group`)."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from conformance.interface import messages as m
from conformance.models.group_client import GroupClient
from conformance.models.reader import Refused, Resolved
from conformance.models.writer import Conflicting, Transaction
from conformance.mutants import good, good_method, memory, mutant, mutant_method, original

beyond = partial(mutant, found_by="programs")
beyond_method = partial(mutant_method, found_by="programs")


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
