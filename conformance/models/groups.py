"""The model owner and the model client with transactions over several tables: profile `transaction-group`."""

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from conformance.interface import messages as m
from conformance.interface.log_names import LOG
from conformance.models.client import ModelClient
from conformance.models.owner import ModelOwner, OwnedTable
from conformance.models.reader import Refused, Resolved, Unsure, answered
from conformance.models.storage import Commit
from conformance.models.writer import Transaction

MOST_MEMBERS: Final = 100
Staged = tuple[OwnedTable, m.Commit, str | None]
"""A member's table, its proposal, and the name of its staged file."""


def group_of(proposals: Sequence[m.Commit]) -> m.CommitGroup:
    """The group of these proposals."""
    return m.CommitGroup(
        members=tuple(
            m.GroupMember(
                table=proposal.table, version=proposal.version, attempt=proposal.attempt, actions=proposal.actions,
                staged_file=proposal.staged_file,
            )
            for proposal in proposals
        )
    )  # fmt: skip


class GroupOwner(ModelOwner):
    """Ratifies a group by one save of all its tables."""

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        identity = super().hello(client, request)
        return msgspec.structs.replace(identity, profiles=(*identity.profiles, "transaction-group"))

    def commit_group(self, client: str, request: m.CommitGroup) -> m.Answer:
        references = [member.table for member in request.members]
        if not references or len(references) > MOST_MEMBERS or len(set(references)) < len(references):
            return m.Rejected(reason=f"a group has 1 to {MOST_MEMBERS} members, each of another table")
        members: list[Staged] = []
        for index, member in enumerate(request.members):
            table = self.tables.get(member.table)
            if table is None or table.commit_mode == "direct":
                reason = "the table is not known" if table is None else "a direct commit cannot wait for the others"
                return m.GroupRefused(decided_by=index, answer=m.Rejected(reason=reason), lost=(index,))
            commit = m.Commit(
                table=member.table, version=member.version, attempt=member.attempt, actions=member.actions,
                staged_file=member.staged_file,
            )  # fmt: skip
            self._notice(table)
            members.append((table, commit, None))
        return self._group_replay(members) or self._decide(
            [(table, commit, self._stage(table, commit)) for table, commit, _ in members]
        )

    def _group_replay(self, members: Sequence[Staged]) -> m.Answer | None:
        """The answer if an attempt landed before: all of them did, or the group is refused."""
        landed = [table.landed.get(commit.attempt) for table, commit, _ in members]
        if landed == [commit.version for _, commit, _ in members]:
            return m.GroupRatified()
        for index, version in enumerate(landed):
            if version is not None:
                reason = f"attempt used before, as version {version}, without the others"
                return m.GroupRefused(decided_by=index, answer=m.Rejected(reason=reason))
        return None

    def _decide(self, members: Sequence[Staged]) -> m.Answer:
        refusals = [self._refusal(*member) for member in members]
        lost = tuple(index for index, refusal in enumerate(refusals) if refusal is not None)
        for refusal in refusals:
            if isinstance(refusal, m.Conflict | m.Gap | m.Rejected):
                return m.GroupRefused(decided_by=lost[0], answer=refusal, lost=lost)
        return self._ratify_group(members)

    def _ratify_group(self, members: Sequence[Staged]) -> m.Answer:
        """The commit point is one save of all tables."""
        self._reach("before-commit-point")
        for member in members:
            self._accept(*member)
        self._save_group([table for table, _, _ in members])
        self._reach("after-commit-point")
        return m.GroupRatified()

    def _accept(self, table: OwnedTable, commit: m.Commit, staged: str | None) -> None:
        """The member is the next version of its table, in memory."""
        actions = commit.actions if table.commit_mode == "inline" else None
        table.unbackfilled[commit.version] = Commit(attempt=commit.attempt, staged_file=staged, actions=actions)
        table.latest = commit.version
        table.landed[commit.attempt] = commit.version

    def _save_group(self, tables: Sequence[OwnedTable]) -> None:
        self.saved.update({table.reference: msgspec.json.encode(table) for table in tables})

    def load_tables(self, client: str, request: m.LoadTables) -> m.Answer:
        answers = [self.load_table(client, m.LoadTable(name=name)) for name in request.names]
        tables = tuple(answer for answer in answers if isinstance(answer, m.Table))
        return m.Tables(tables=tables) if len(tables) == len(answers) else m.NotFound()


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
