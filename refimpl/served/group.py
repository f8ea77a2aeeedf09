"""Group commit: one transaction decides the waiting proposals of all threads of a process.

A thread adds its proposal to the waiting ones. If no other thread leads, it becomes the leader: it takes the owner's
lock and decides all waiting proposals. The other threads wait until theirs is decided, or until there is no leader. So
a group consists of the proposals that arrived while the previous group was made durable; the leader never waits for
more.

The rules:
1. `decide` judges each proposal in the state after the earlier ones of the group, because the leader reads and writes
in one transaction. Lower versions come first; proposals of one version come in the order of arrival.
2. No answer is given before the transaction is durable: a conflict, too, says that its winner landed.
3. If the transaction's commit fails, its outcome is unknown to every member.
4. If anything else fails, the transaction is rolled back, and each member is decided in its own transaction. So one
member's error is never the answer to another one.
5. An interrupted leader leaves its members undecided. The next leader decides them again: it recognizes a proposal
that landed by its attempt. If it cannot decide a member, the member's outcome is unknown.
6. If the lock is not free in time, all proposals that waited since the leader requested it get that error. Otherwise
they would wait for the whole timeout one after the other.

A group never spans processes: a proposal would have to be made durable for the process that decides it.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

from refimpl.owner import decide
from refimpl.owner.ledger import Ledger
from refimpl.owner.local import Decision, LocalOwner
from refimpl.owner.records import Examined, TableRecord
from refimpl.owner.statements import Writer
from refimpl.protocol.commits import DirectProposal
from refimpl.protocol.errors import OutcomeUnknown, OwnerUnavailableError
from refimpl.storage.environment import Environment, HostLock
from refimpl.storage.host_queue import HostQueue


@dataclass(slots=True, eq=False)
class Waiting:
    """A proposal and, once it is decided, its answer."""

    cached: TableRecord
    examined: Examined
    answer: Decision | OutcomeUnknown | OwnerUnavailableError | None = None
    alone: bool = False
    """Whether the proposal needs a transaction of its own."""
    in_doubt: bool = False
    """Whether it may have landed in the transaction of an interrupted leader."""


class Groups:
    """The waiting proposals of this process. `together` decides several in one transaction (None: it cannot decide
    this one), and `alone` decides one."""

    def __init__(
        self,
        environment: Environment,
        lock: HostLock,
        together: Callable[[Sequence[Waiting]], Sequence[Decision | None]],
        alone: Callable[[Waiting], Decision],
    ) -> None:
        self._environment = environment
        self._lock = lock
        self._together = together
        self._alone = alone
        self._process = os.getpid()
        self._waiting: list[Waiting] = []
        self._turn = environment.thread_turn()

    def decide(self, mine: Waiting) -> Decision:
        """Wait for the answer, or lead: decide this proposal with the other waiting ones."""
        try:
            return self._decided(mine)
        except (OwnerUnavailableError, OSError) as error:
            if not mine.in_doubt:
                raise
            raise OutcomeUnknown(f"an interrupted transaction may have made this commit; then: {error}") from error

    def _decided(self, mine: Waiting) -> Decision:
        if self._process != os.getpid():  # a forked child: the waiting threads are its parent's
            self._waiting, self._turn, self._process = [], self._environment.thread_turn(), os.getpid()
        waiting, turn = self._waiting, self._turn
        # A commit point by link takes two transactions.
        mine.alone = mine.alone or isinstance(mine.examined.proposal, DirectProposal)
        try:
            waiting.append(mine)
            while turn.take(lambda: mine.answer is not None):
                self._lead(mine)
                turn.pass_on()
        except BaseException:  # also an interruption of `take` or `pass_on`
            turn.pass_on()
            raise
        finally:
            if mine in waiting:  # else it was interrupted before
                waiting.remove(mine)
        assert mine.answer is not None
        if not isinstance(mine.answer, Decision):
            raise mine.answer
        return mine.answer

    def _lead(self, mine: Waiting) -> None:
        waited, taken = list(self._waiting), False
        try:
            with self._lock():
                taken = True
                group = [waiting for waiting in self._waiting.copy() if waiting.answer is None and not waiting.alone]
                if len(group) > 1 and not mine.alone:
                    try:
                        self._decide(sorted(group, key=lambda waiting: waiting.examined.version))
                    except BaseException:
                        for waiting in group:
                            waiting.in_doubt = True
                        raise
                if mine.answer is None:
                    mine.answer = self._alone(mine)
        except OwnerUnavailableError as error:
            if taken:
                raise
            for waiting in waited:
                waiting.answer = waiting.answer or error

    def _decide(self, group: Sequence[Waiting]) -> None:
        answers: Sequence[Decision | OutcomeUnknown | None]
        try:
            answers = self._together(group)
        except OutcomeUnknown as error:
            answers = [error] * len(group)
        except Exception:  # noqa: BLE001 - each member's own transaction shows whose error it is
            answers = [None] * len(group)
        for waiting, answer in zip(group, answers, strict=True):
            waiting.answer, waiting.alone = answer, answer is None


class GroupCommit(LocalOwner):
    """An owner that decides the waiting proposals of this process together, and lets its writers queue."""

    def __init__(self, warehouse: Path, environment: Environment, ledger: type[Ledger] = Ledger) -> None:
        super().__init__(warehouse, environment, ledger)
        self.groups = Groups(environment, self.lock, self._decide_together, self.decide_waiting)
        self._queues: dict[str, HostQueue] = {}
        self._due: set[str] = set()
        """Tables whose policies require a backfill now."""

    def decide_one(self, cached: TableRecord, examined: Examined) -> Decision:
        return self.groups.decide(Waiting(cached, examined))

    def decide_waiting(self, waiting: Waiting) -> Decision:
        """Decide one proposal; the caller holds the owner's lock."""
        return self.decide_alone(waiting.cached, waiting.examined)

    def _decide_together(self, group: Sequence[Waiting]) -> list[Decision | None]:
        """Decide several proposals, each in the state after the earlier ones. One transaction and one sync: its end
        makes all of them durable at once."""
        with self.ledger.write() as writer:
            return [self._decide_in(writer, waiting) for waiting in group]

    def _decide_in(self, writer: Writer, waiting: Waiting) -> Decision | None:
        """None: the table must be settled first, in a transaction of its own; see `changing`."""
        table = self.required(writer, waiting.cached.table_id)
        if table.promised or self.is_behind(table):
            return None
        verdict = self.judge(writer, table, waiting.examined)
        if isinstance(verdict, decide.Ratify):
            return self.ratify(writer, table, verdict)
        return Decision(outcome=verdict)

    def backfill_due(self, table: TableRecord) -> None:
        """After the answer, if the environment can do that; before it, if the backlog grows although it should not."""
        backlog, every, limit = table.backlog + 1, table.policy.backfill_every, table.policy.backlog_limit
        if every is not None and (backlog >= 2 * every or backlog + every > limit):
            super().backfill_due(table)
        elif table.table_id not in self._due:
            self._due.add(table.table_id)
            self.environment.afterwards(lambda: self._backfill_afterwards(table))

    def _backfill_afterwards(self, table: TableRecord) -> None:
        self._due.discard(table.table_id)  # first: this backfill may miss commits that land from now on
        super().backfill_due(table)

    def turn(self, table_id: str) -> AbstractContextManager[bool]:
        queue = self._queues.get(table_id)
        if queue is None:
            queue = self._queues[table_id] = self.environment.host_queue(self._queue_path(table_id))
        return queue()

    def end_publishing(self, table_id: str) -> None:
        super().end_publishing(table_id)
        with suppress(FileNotFoundError):
            self.environment.files.unlink(self._queue_path(table_id))

    def _queue_path(self, table_id: str) -> Path:
        """The file of the queue in which the table's writers take turns; it may be missing."""
        return self.ledger.path.parent / f"turns-{table_id}"
