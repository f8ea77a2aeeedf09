"""One transaction over several tables: all its commits land at once, or none does.

    with warehouse.transaction("orders", "stock") as tx:
        tx.table("orders").append(rows)
        tx.table("stock").update({"left": "left - 1"}, where="item = 7")
    tx.committed["orders"].version

The tables that are named at the start are read in one state of the owner (`resolve_together`); a table that is first
named in the block is read then. Each table has the conflict checks of a transaction of its own, against all commits
that land after its read: they cover what an overwrite, DELETE, UPDATE or MERGE of the block reads in its own table.
Rows that the caller reads, by `snapshot` or from another table, are not checked, and an append is a blind append.

An operation sees the table as it was read, without earlier operations of the block. Therefore a table takes one
operation, with one exception: several appends become one commit. Any other second operation is refused by name.

The commit: a group of proposals (`refimpl.protocol.groups`). After a refusal only the tables that lost are rebased, and
all members are proposed again, as new attempts. The staged files of a refused group are deleted only when a table of it
has another winner: then no delayed copy of the request can land.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from refimpl.client.conflicts import Winner
from refimpl.client.merging import Merge
from refimpl.client.proposing import MAX_LOOKS, Lost, OwnerProposer, RetryPolicy, Won, lost_race
from refimpl.client.snapshot import Snapshot
from refimpl.client.table import Table
from refimpl.client.transaction import CommitLoop, Committed, Transaction
from refimpl.protocol import errors
from refimpl.protocol.actions import Add, Cdc, Txn
from refimpl.protocol.commit_owner import CommitOwner, ResolvedTable
from refimpl.protocol.commits import Conflict, Landed, Proposal, Rejected, RejectionReason, StagedProposal, VersionGap
from refimpl.protocol.groups import MAX_MEMBERS, GroupOwner, GroupRatified, GroupRefused, Member, commits_groups
from refimpl.protocol.in_commit_timestamp import Moment
from refimpl.protocol.log_path import Version
from refimpl.protocol.table_feature import CommitMode
from refimpl.rows import data_files
from refimpl.storage.environment import Environment, process_id


def group_owner(owner: CommitOwner) -> GroupOwner:
    """The owner, if it can ratify groups. Raises `MissingCallError`, which names it."""
    if commits_groups(owner):
        return owner
    raise errors.MissingCallError(
        f"the owner {owner.name!r} has no transactions over several tables; read and commit each table by itself",
        owner=owner.name,
    )


def read_together(owner: CommitOwner, environment: Environment, references: Sequence[str | Path]) -> list[_Read]:
    """Several tables in one state of the owner, each with the snapshot of that state.

    Raises `InvalidRequestError` for an owner without groups, and for a table that was handed back; the errors of
    `Table.snapshot`.
    """
    for reference in references:
        errors.check_type("table", reference, (str, Path), "its name, id or path; several tables are several arguments")
    answers = group_owner(owner).resolve_together(references) if references else ()
    return [_read(answer, owner, environment) for answer in answers]


@dataclass(frozen=True, slots=True)
class _Read:
    table: Table
    answer: ResolvedTable
    snapshot: Snapshot


def _read(answer: ResolvedTable, owner: CommitOwner, environment: Environment) -> _Read:
    table = Table.resolved(answer, owner, environment)
    version = answer.commits.latest_ratified_version
    if table.owner is None or version is None:
        raise errors.InvalidRequestError(
            f"{table.label} is {answer.state.value}, so its owner cannot show it together with other tables; read it "
            f"by itself"
        )
    newest = table.snapshot()
    return _Read(table, answer, newest if newest.version == version else table.snapshot(version=version))


_APPENDS: Final = ("WRITE", {"mode": "Append"})
"""The operation and the parameters of an append."""


class _MemberTransaction(Transaction):
    """A transaction whose commit waits for the end of the group's block."""

    member: MemberTable
    _claims: Mapping[str, Txn]
    """The batches of its operations so far. An operation that failed leaves none."""

    def commit(self) -> Committed:
        """What will be proposed first; after no tries."""
        self._check_open()
        self.member.join(self)
        self._claims = dict(self._transactions)
        version = self.snapshot.version + 1
        return Committed(
            version=version, in_commit_timestamp=None, txn_id=self.id, attempt=None, tries=0, rebased_over=0
        )

    @property
    def takes_appends(self) -> bool:
        """Whether it is an append to the metadata that was read: a further append starts from that metadata."""
        return (self.operation, self.parameters) == _APPENDS and self._metadata is None

    def drop_failed_claims(self) -> None:
        self._transactions = dict(self._claims)

    def prepared(self) -> CommitLoop:
        self.drop_failed_claims()
        return super().prepared()

    @contextlib.contextmanager
    def deleting_unless_landed(self, files: Collection[Add | Cdc], **named: Any) -> Iterator[None]:
        with super().deleting_unless_landed(files, **named):
            yield
        self.member.written += files


class _MemberHandle(Table):
    """The table of a member. Its operations make transactions of the group."""

    begin: Callable[..., _MemberTransaction]
    read: Snapshot

    def snapshot(self, *, version: Version | None = None, timestamp: Moment | None = None) -> Snapshot:
        """The read point; with an argument, as in `Table`."""
        if timestamp is None and version in (None, self.read.version):
            return self.read
        return super().snapshot(version=version, timestamp=timestamp)

    def transaction(self, *, snapshot: Snapshot | None = None, operation: str = "WRITE", **options: Any) -> Transaction:
        if snapshot is not None and snapshot.version != self.read.version:
            raise errors.InvalidRequestError(
                f"this transaction reads version {self.read.version} of {self.label}, but the operation depends on "
                f"version {snapshot.version}; read the table in the transaction"
            )
        options.pop("landed", None)  # the end of the block calls it
        return self.begin(operation, options)


class MemberTable:
    """A table in a transaction over several tables. Operations as in `Table`, which land at the end of the block."""

    def __init__(self, read: _Read, check_open: Callable[[], None], environment: Environment) -> None:
        table = read.table
        self.label = table.label
        self.feature_name = read.answer.feature_name
        self._snapshot = read.snapshot
        self._check_open = check_open
        self._table = table
        self._handle = _MemberHandle(
            table.location, environment, owner=table.owner, resolved=read.answer, name=table.name
        )
        self._handle.begin, self._handle.read = self._begin, read.snapshot
        self.joined: _MemberTransaction | None = None
        """The transaction of the table's operations; None if it has none, or if they change nothing."""
        self.written: list[Add | Cdc] = []
        """The data files of its operations, unlike other files that a transaction of single actions may add."""

    def snapshot(self) -> Snapshot:
        """The read point: the same during the whole transaction."""
        return self._snapshot

    def append(self, rows: Any, *, app: tuple[str, int] | None = None) -> None:
        """See `Table.append`. Several appends to one table become one commit."""
        self._handle.append(rows, app=app)

    def overwrite(self, rows: Any) -> None:
        """See `Table.overwrite`."""
        self._handle.overwrite(rows)

    def delete(self, where: str | None = None) -> Mapping[str, int]:
        """See `Table.delete`. Returns the metrics."""
        return self._handle.delete(where).metrics

    def update(self, set: Mapping[str, Any], where: str | None = None) -> Mapping[str, int]:  # noqa: A002
        """See `Table.update`. Returns the metrics."""
        return self._handle.update(set, where).metrics

    def merge(self, source: Any, on: str, **aliases: str) -> Merge:
        """See `Table.merge`."""
        return self._handle.merge(source, on, **aliases)

    def transaction(self, **options: Any) -> Transaction:
        """A transaction of single actions, as `Table.transaction`; its `commit` waits for the end of the block."""
        return self._handle.transaction(**options)

    @property
    def handle(self) -> Table:
        """The table for other writers of this package: each transaction of it is the member's."""
        return self._handle

    def _begin(self, operation: str, options: dict[str, Any]) -> _MemberTransaction:
        self._check_open()
        before = self.joined
        if before is not None:
            if not before.takes_appends or (operation, options.get("parameters")) != _APPENDS:
                raise self._second(operation, options.get("parameters"))
            before.drop_failed_claims()
            return before
        transaction = _MemberTransaction(self._handle.reader, self._snapshot, operation=operation, **options)
        transaction.member = self
        return transaction

    def join(self, transaction: _MemberTransaction) -> None:
        """Let the end of the block commit this transaction. Raises `InvalidRequestError` if it cannot."""
        self._check_open()
        if self.joined not in (None, transaction):
            raise self._second(transaction.operation, transaction.parameters)
        self.joined = transaction

    def _second(self, operation: str, parameters: Mapping[str, str] | None) -> errors.InvalidRequestError:
        assert self.joined is not None
        first, second = _named(self.joined.operation, self.joined.parameters), _named(operation, parameters)
        return errors.InvalidRequestError(
            f"{self.label} already has an operation ({first}) in this transaction, and another one ({second}) would "
            f"not see it; expected one operation for each table, or only appends: use MERGE, or two transactions",
            table=self.label,
        )

    def checkpoint_if_due(self, committed: Committed) -> None:
        """See `Table.checkpoint_if_due`."""
        self._table.checkpoint_if_due(committed)


def _named(operation: str, parameters: Mapping[str, str] | None) -> str:
    """An operation in messages, such as `WRITE, Append`."""
    mode = (parameters or {}).get("mode")
    return operation if mode is None else f"{operation}, {mode}"


class GroupTransaction:
    """A transaction over tables of one owner. Made by `Warehouse.transaction`; a context manager, used once.

    Its end commits. Raises a kind of `ConcurrentModificationError` (redo the work), `CommitRejectedError`,
    `LostRaceError`, `OutcomeUnknown` (ask the owner by one attempt id; the answer is that of all). After an error
    inside the block, or one after which the group has certainly not landed, the new data files are deleted.
    """

    def __init__(self, owner: CommitOwner, environment: Environment, references: Sequence[str | Path] = ()) -> None:
        self._owner = group_owner(owner)
        self._environment = environment
        self._references = references
        self._members: dict[str, MemberTable] = {}
        self._names: dict[str | Path, str] = {}
        self._open = False
        self._over = False
        self._process = process_id()
        self.committed: dict[str, Committed] = {}
        """After the block: the commit of each changed table, by the table's name (or its id, if it has none)."""

    def __enter__(self) -> Self:
        if self._open or self._over:
            state = "ended" if self._over else "begun"
            raise errors.InvalidRequestError(f"this transaction has {state} already; call transaction() again")
        self._open = True
        self._add(self._references)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        members = [member for member in self._members.values() if member.joined is not None]
        self._open, self._over = False, True
        try:
            if error is None and members:
                self._commit(members)
        except errors.CERTAINLY_NOT_COMMITTED:
            self._delete_files()
            raise
        finally:
            if error is not None:
                self._delete_files()

    def table(self, reference: str | Path) -> MemberTable:
        """The table of this name, id or path, as it was read for this transaction.

        Raises `TableNotFoundError`; `InvalidRequestError` for a table that cannot be in a group with the others.
        """
        self._check_open()
        if reference not in self._names:
            self._add([reference])
        return self._members[self._names[reference]]

    def _add(self, references: Sequence[str | Path]) -> None:
        for reference, read in zip(references, read_together(self._owner, self._environment, references), strict=True):
            table_id = read.answer.table_id
            self._names[reference] = table_id
            if table_id in self._members:  # by another of its names
                continue
            member = MemberTable(read, self._check_open, self._environment)
            _check_joinable(member, read, next(iter(self._members.values()), member))
            if len(self._members) >= MAX_MEMBERS:
                raise errors.InvalidRequestError(f"a transaction over more than {MAX_MEMBERS} tables; use several")
            self._members[table_id] = member

    def _check_open(self) -> None:
        if not self._open:
            state = "has ended" if self._over else "has not begun; use it in a with statement"
            raise errors.InvalidRequestError(f"this transaction over several tables {state}")

    def _delete_files(self) -> None:
        if self._process != process_id():  # a forked child: its parent commits the files
            return
        for member in self._members.values():
            data_files.delete(member.snapshot().layout, member.written)

    def _commit(self, members: Sequence[MemberTable]) -> None:
        label = f"a transaction over {', '.join(member.label for member in members)}"
        policy = RetryPolicy(self._environment, label=label)
        loops = [member.joined.prepared() for member in members if member.joined is not None]
        try:
            landed = _GroupLoop(self._owner, loops, policy, label).run()
        except errors.CERTAINLY_NOT_COMMITTED as error:
            raise type(error)(f"no table was changed; {error.message}", **error.facts) from error
        for member, committed in zip(members, landed, strict=True):
            table = member.snapshot().reader
            self.committed[table.name or str(table.table_id)] = committed
            member.checkpoint_if_due(committed)


def _check_joinable(member: MemberTable, read: _Read, first: MemberTable) -> None:
    if read.answer.commit_mode is CommitMode.DIRECT:
        raise errors.InvalidRequestError(
            f"{member.label} has direct commits, each of which is visible at once; only tables with staged or inline "
            f"commits can be in a transaction over several tables",
            table=member.label,
        )
    if member.feature_name != first.feature_name:
        raise errors.InvalidRequestError(
            f"{member.label} is a {member.feature_name} table and {first.label} a {first.feature_name} table; expected "
            f"one table feature in a transaction over several tables",
            table=member.label,
        )


@dataclass(slots=True)
class _GroupLoop:
    """Propose the group; after a refusal rebase the tables that lost, and propose all again. `run` is called once."""

    owner: GroupOwner
    loops: Sequence[CommitLoop]
    policy: RetryPolicy
    label: str
    proposers: list[OwnerProposer] = field(init=False)

    def __post_init__(self) -> None:
        for loop in self.loops:
            loop.policy = self.policy
        self.proposers = [OwnerProposer(loop.reader, self.policy) for loop in self.loops]

    def run(self) -> list[Committed]:
        """The commits, in the order of the loops. The queues of the tables are entered in one order, so that two groups
        do not wait for each other."""
        for loop in self.loops:
            loop.begin()
        with contextlib.ExitStack() as turns:
            queues = sorted(self.proposers, key=lambda proposer: proposer.table_id)
            waited = [turns.enter_context(proposer.turn()) for proposer in queues]
            if any(waited):
                self._look_ahead(range(len(self.loops)))
            return self._propose_until_landed()

    def _propose_until_landed(self) -> list[Committed]:
        rounds = 0
        while True:
            self.policy.next_try(max(loop.version for loop in self.loops))
            members = self._stage()
            outcome = self._propose_and_resolve(members)
            if isinstance(outcome, GroupRatified) or (
                outcome is not None and self._landed_after_all(members, outcome, rounds)
            ):
                return [
                    loop.committed(Won(version=member.version, attempt=member.proposal.attempt))
                    for loop, member in zip(self.loops, members, strict=True)
                ]
            self.policy.pause(rounds)
            rounds += 1

    def _stage(self) -> list[Member]:
        """New attempts. If one cannot be staged, the files of the others are deleted: nothing was proposed."""
        members: list[Member] = []
        try:
            for loop, proposer in zip(self.loops, self.proposers, strict=True):
                proposal = proposer.proposal(loop.version, loop.bytes_now())
                members.append(Member(table_id=proposer.table_id, version=loop.version, proposal=proposal))
        except BaseException:
            self._discard(members)
            raise
        return members

    def _propose_and_resolve(self, members: Sequence[Member]) -> GroupRatified | GroupRefused | None:
        """The owner's answer; None: the group did not land and never will. Makes room where a backlog is full, and
        sends the same request again."""
        looks = MAX_LOOKS + len(members)  # a refusal may name one full backlog after the other
        for look in range(looks):
            answer = self._answer(members)
            if not isinstance(answer, GroupRefused) or not isinstance(answer.outcome, Rejected):
                return answer
            if not answer.outcome.retryable:
                return answer
            detail = answer.outcome.detail
            for full in (members[index] for index in answer.lost):
                self.owner.backfill_to_version(full.table_id, full.version - 1)
            self.policy.pause(look)
        raise errors.BacklogFullError(f"{detail}; {looks} backfills made no room for {self.label}")

    def _answer(self, members: Sequence[Member]) -> GroupRatified | GroupRefused | None:
        try:
            return self.owner.commit_group(members)
        except (errors.InvalidRequestError, errors.OwnerUnavailableError):
            raise  # by the contract of these errors nothing landed
        except Exception as error:
            if self._has_landed(members[0], error):
                return GroupRatified(commits=(), replayed=True)
            if isinstance(error, errors.OutcomeUnknown):
                return None
            raise

    def _has_landed(self, member: Member, cause: Exception) -> bool:
        """Any member's outcome is that of the group."""
        asked = (self.owner, member.table_id, member.version, member.proposal.attempt, cause)
        return isinstance(self.policy.outcome_of(*asked, label=self.label), Landed)

    def _landed_after_all(self, members: Sequence[Member], refused: GroupRefused, rounds: int) -> bool:
        """Whether the group landed although it was refused: some owners answer a replay as a conflict. Otherwise
        prepares the next try, or raises why there is none."""
        index, outcome = refused.decided_by, refused.outcome
        proposer, loop, member = self.proposers[index], self.loops[index], members[index]
        match outcome:
            case Conflict():
                winners = proposer.winners(lost_race(member.version, member.proposal, outcome))
                if isinstance(winners, Won) or loop.own_among(winners) is not None:
                    return True
                self._discard(members)
                _rebase(loop, winners)
                self._look_ahead(other for other in refused.lost if other != index)
            case VersionGap():
                proposer.check_gap(member.version, rounds)
            case Rejected(reason=reason) if reason is not RejectionReason.ATTEMPT_RESOLVED:
                self._discard(members)
                raise proposer.rejection(member.version, outcome)
        return False

    def _look_ahead(self, indices: Iterable[int]) -> None:
        """Rebase the tables whose versions are visibly taken, before the next proposal."""
        for index in indices:
            seen = self.proposers[index].ahead(self.loops[index].version)
            winners = None if seen is None else self.proposers[index].winners(seen)
            if winners is not None and not isinstance(winners, Won):
                _rebase(self.loops[index], winners)

    def _discard(self, members: Sequence[Member]) -> None:
        for member, proposer in zip(members, self.proposers, strict=False):
            proposer.discard(Lost(version=member.version, staged_file=_file_of(member.proposal)))


def _rebase(loop: CommitLoop, winners: Sequence[Winner]) -> None:
    """As `CommitLoop.rebase`, whose error names the table."""
    try:
        loop.rebase(winners)
    except errors.ConcurrentModificationError as error:
        facts = {**error.facts, "table": loop.reader.label}
        raise type(error)(f"{loop.reader.label}: {error.message}", **facts) from error


def _file_of(proposal: Proposal) -> str | None:
    return proposal.file_name if isinstance(proposal, StagedProposal) else None
