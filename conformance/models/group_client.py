"""The model client with transactions over several tables: profile `transaction-group`."""

import uuid
from collections.abc import Sequence
from pathlib import Path

import msgspec

from conformance.interface import messages as m
from conformance.interface.log_names import LOG
from conformance.models.client import ModelClient
from conformance.models.groups import group_of
from conformance.models.reader import Refused, Resolved, Unsure, answered
from conformance.models.writer import Transaction


class GroupClient(ModelClient):
    """Commits to several tables by one group of proposals, and reads several tables at the versions of one answer."""

    name = "group-client"

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        identity = super().hello(client, request)
        return msgspec.structs.replace(identity, profiles=(*identity.profiles, "transaction-group"))

    def snapshots(self, client: str, request: m.Snapshots) -> m.Answer:
        return answered(lambda: m.SnapshotsRead(snapshots=self._read_all(client, request.tables)))

    def _read_all(self, client: str, names: Sequence[str]) -> tuple[m.SnapshotRead, ...]:
        states = [self._read(client, table, table.latest, None) for table in self._resolve_all(client, names)]
        return tuple(self._snapshot_read(state, stale=False) for state in states)

    def _resolve_all(self, client: str, names: Sequence[str]) -> list[Resolved]:
        """The tables in one state of the owner."""
        reply = self.owner(client, m.LoadTables(names=tuple(names)))
        if isinstance(reply, m.NotFound):
            raise Refused(f"one of the tables {', '.join(names)} does not exist")
        if not isinstance(reply, m.Tables):
            raise Unsure("the owner does not return the tables")
        return [
            Resolved(
                name=name, reference=table.table, feature=table.feature, commit_mode=table.commit_mode,
                log=Path(table.location or "") / LOG, latest=table.latest, commits=table.commits or (),
            )
            for name, table in zip(names, reply.tables, strict=True)
        ]  # fmt: skip

    def transact_group(self, client: str, request: m.TransactGroup) -> m.Answer:
        return self._committed(
            lambda files: self._transact_all(client, [self._begun(client, one, files) for one in request.members])
        )

    def _transact_all(self, client: str, transactions: Sequence[Transaction]) -> m.Answer:
        """After each lost race all tables are checked, and all commits proposed again."""
        for _ in range(self.most_tries):
            for transaction in transactions:
                self._catch_up(client, transaction)
            if self._propose_all(client, transactions):
                return m.GroupCommitted(versions=tuple(one.checked.version + 1 for one in transactions))
        raise Refused(f"{self.most_tries} races lost")

    def _propose_all(self, client: str, transactions: Sequence[Transaction]) -> bool:
        """Propose the group once. Returns whether it landed; False if another writer won in one of the tables."""
        commits = [self._proposal(transaction) for transaction in transactions]
        reply = self._ask_group(client, group_of(commits))
        if isinstance(reply, m.Unknown):  # the outcome of one member is that of all
            return self._resolved(client, transactions[0], commits[0])
        refusal = reply.answer if isinstance(reply, m.GroupRefused) else reply
        if isinstance(refusal, m.Rejected) and refusal.retryable:
            for commit in commits:
                self._make_room(client, commit)
        elif isinstance(refusal, m.Rejected | m.NotFound | m.Unsupported):
            self._refused(refusal)
        return isinstance(reply, m.GroupRatified)

    def _ask_group(self, client: str, request: m.CommitGroup) -> m.Answer:
        return self.owner(client, request)

    def _proposal(self, transaction: Transaction) -> m.Commit:
        """The next version, as a new attempt."""
        version, attempt = transaction.checked.version + 1, str(uuid.uuid4())
        return self._request(transaction.table, version, attempt, self._actions(transaction, version))
