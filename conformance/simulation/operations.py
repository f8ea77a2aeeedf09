"""Operations of an owner for every table feature and commit mode, and recorded runs of an operation with failing
storage.

An operation has a setup, which is completely durable when the faults begin, and a script. Attempt ids are the same in
every run.
"""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

from conformance.interface import messages as m
from conformance.interface.log_names import commit_file
from conformance.interface.messages import name_of
from conformance.models import proposals
from conformance.simulation.disk import Disk
from conformance.simulation.effects import Effect, Kind, Moment
from conformance.simulation.host import Ask, Host, Process

Expected = TypeVar("Expected", bound=m.Answer)


@dataclass(frozen=True, slots=True)
class Asking:
    """An `Ask` that can send several requests at the same time."""

    one: Ask
    together: Callable[[Sequence[m.Request]], None]

    def __call__(self, request: m.Request) -> m.Answer:
        return self.one(request)


class UnexpectedAnswerError(Exception):
    """The subject rejects a request that must succeed without faults."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its answer; None: the fault came before the answer."""

    request: m.Request
    answer: m.Answer | None
    meanwhile: "tuple[Exchange, ...]" = ()
    """Requests of other clients between this request and its answer."""


def in_order_of_answers(exchanges: Sequence[Exchange]) -> list[Exchange]:
    return [other for exchange in exchanges for other in (*in_order_of_answers(exchange.meanwhile), exchange)]


def _nested(requests: Sequence[m.Request]) -> Exchange:
    """Concurrent requests: all are sent before any of them is answered."""
    first, *others = requests
    return Exchange(first, None, (_nested(others),) if others else ())


def _with_answer(exchange: Exchange, number: int, answer: m.Answer) -> Exchange:
    if number == 0:
        return replace(exchange, answer=answer)
    inner = _with_answer(exchange.meanwhile[0], number - 1, answer)
    return replace(exchange, meanwhile=(inner, *exchange.meanwhile[1:]))


def asking(single: Ask, process: Process, exchanges: list[Exchange]) -> Asking:
    """An `Asking`: `single` sends and records a single request; requests that the process gets together are recorded in
    `exchanges`."""

    def together(requests: Sequence[m.Request]) -> None:
        at = len(exchanges)
        exchanges.append(_nested(requests))

        def answered(number: int, answer: m.Answer) -> None:
            exchanges[at] = _with_answer(exchanges[at], number, answer)

        process.together(requests, answered)

    return Asking(single, together)


def in_words(exchanges: Sequence[Exchange]) -> tuple[str, ...]:
    """A line for each exchange, in the order of the answers."""
    return tuple(
        f"{name_of(exchange.request)}: {'no answer' if exchange.answer is None else name_of(exchange.answer)}"
        for exchange in in_order_of_answers(exchanges)
    )


def answers_hash(exchanges: Sequence[Exchange]) -> int:
    """A hash that is equal for equal answers. Valid in one process."""
    answers = (exchange.answer for exchange in in_order_of_answers(exchanges))
    return hash(tuple(None if answer is None else str(answer) for answer in answers))


# Recorded runs

NO_DISK: Final = frozenset(
    {Kind.BEGIN, Kind.COMMIT, Kind.ROLLBACK, Kind.QUERY, Kind.ACQUIRE, Kind.RELEASE, Kind.CLOCK, Kind.PAUSE}
)
"""Effects without an answer of the disk. The database's effects on its files happen within a transaction."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A moment at which the power may fail, or the process may die."""

    effect: Effect
    """The last effect before this moment."""
    at: int
    """The number of that effect in the run."""
    disk: Disk
    """A copy of the disk at this moment, with all unsynced changes."""
    exchanges: tuple[Exchange, ...]

    def __str__(self) -> str:
        return f"{self.effect.moment.value} {self.effect.kind.value} {self.effect.target}"


class DiskRun:
    """A run of a subject on a disk, with its requests and answers. A subclass sees its effects."""

    def __init__(self, disk: Disk, exchanges: Sequence[Exchange] = ()) -> None:
        self.disk = disk
        self.exchanges = list(exchanges)

    def start(self, host: Host, start: int) -> Ask:
        process = host.start(self.disk, start=start, hook=self._see)

        def send(request: m.Request) -> m.Answer:
            at = len(self.exchanges)
            self.exchanges.append(Exchange(request, None))
            answer = process(request)
            self.exchanges[at] = replace(self.exchanges[at], answer=answer)
            return answer

        return asking(send, process, self.exchanges)

    def _see(self, effect: Effect) -> None:
        raise NotImplementedError


class Recorder(DiskRun):
    """Runs a subject on a disk, and records every moment at which the possible disks after a power cut change, or a new
    answer has been given."""

    def __init__(self, disk: Disk, exchanges: Sequence[Exchange] = ()) -> None:
        super().__init__(disk, exchanges)
        self.cuts: list[Cut] = []
        self.effects = 0
        self.syncs = 0
        """The number of syncs in the script."""
        self.records = True
        self.lost_answer: int | None = None
        """The number of an effect that happens, and after which the process gets an I/O error."""
        self.losses: dict[int, str] = {}
        """The effects whose answer can be lost, by their numbers."""
        self._begun: dict[tuple[Kind, str], int] = {}
        self._last: object = None

    def end(self) -> None:
        """Record the last moment, after all answers."""
        if self.cuts:
            self._cut(self.cuts[-1].effect)

    def _cut(self, effect: Effect) -> None:
        self.cuts.append(Cut(effect, self.effects, self.disk.copy(), tuple(self.exchanges)))

    def _see(self, effect: Effect) -> None:
        if not self.records:
            return
        if effect.moment is Moment.BEFORE:
            self.effects += 1
            self._begun[effect.kind, effect.target] = self.effects
        unanswered = sum(exchange.answer is None for exchange in in_order_of_answers(self.exchanges))
        now = self.disk.revision, len(self.exchanges), unanswered
        if now != self._last:
            self._last = now
            self._cut(effect)
        if effect.moment is Moment.AFTER and effect.kind not in NO_DISK:
            number = self._begun[effect.kind, effect.target]
            self.losses[number] = f"{effect.kind.value} {effect.target}"
            if number == self.lost_answer:
                raise OSError(errno.EIO, os.strerror(errno.EIO))


def recorded(
    host: Host, operation: "Operation", *, failing_sync: int | None = None, elsewhere: bool = False,
    lost_answer: int | None = None,
) -> Recorder:  # fmt: skip
    """Run the setup, sync all changes, then record the script. Without a setup, record the first start too.

    `failing_sync`: the number of the sync in the script that fails. The script continues as far as possible, then the
    failed request is sent once more; `elsewhere`: to another process. `lost_answer`: the number of the effect that
    happens, but whose process gets an I/O error; then the script goes on in the same way.
    """
    run = Recorder(Disk())
    run.lost_answer = lost_answer
    run.records = operation.setup is None
    ask = run.start(host, 1)
    if operation.setup is not None:
        operation.setup(operation, ask)
        run.disk.sync_everything()
    before = run.disk.syncs
    if failing_sync is not None:
        run.disk.failing_sync = before + failing_sync
    run.records = True
    try:
        operation.script(operation, ask)
    except UnexpectedAnswerError:
        if failing_sync is None and lost_answer is None:
            raise
        run.end()
        request = run.exchanges[-1].request
        if not elsewhere:
            ask(request)
        else:
            run.exchanges.append(Exchange(request, host.beside(start=2)(request)))
    run.syncs = run.disk.syncs - before
    run.end()
    host.stop()
    return run


def recovery(
    host: Host, disk: Disk, exchanges: Sequence[Exchange], start: Callable[[], int], failing_sync: int | None = None
) -> Recorder:
    """Record a start on a disk with any content, and the resend of the interrupted request. `failing_sync`: the number
    of the sync that fails, counted from the start. Then the last request is sent again too; if the start failed,
    another start follows."""
    run = Recorder(disk, exchanges)
    disk.failing_sync = None if failing_sync is None else disk.syncs + failing_sync
    try:
        try:
            ask = run.start(host, start())
        except Exception:
            if failing_sync is None or disk.syncs < (disk.failing_sync or 0):
                raise
            host.stop()
            ask = run.start(host, start())
        if exchanges and (exchanges[-1].answer is None or failing_sync is not None):
            ask(exchanges[-1].request)
        run.end()
    finally:
        host.stop()
    return run


# The operations

TABLE: Final = "orders"
FEATURES: Final = ("managedCommit", "catalogManaged")
COMMIT_MODES: Final = (
    ("managedCommit", "staged"), ("managedCommit", "direct"),
    ("catalogManaged", "staged"), ("catalogManaged", "inline"), ("catalogManaged", "direct"),
)  # fmt: skip
FILESYSTEM_VERSIONS: Final = 2
CHECKPOINTING: Final = "fold"
"""The operation during which the database checkpoints its write-ahead log after every commit."""


def attempt(number: int) -> m.AttemptId:
    """A lower-case uuid. The attempts of versions use the version as their number; other attempts use numbers from
    900."""
    return str(UUID(int=(0xA << 124) | (4 << 76) | (2 << 62) | number))


Run = Callable[["Operation", Ask], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation on a table of one table feature and commit mode."""

    kind: str
    feature: str
    commit_mode: str
    setup: Run | None
    """None: faults begin with the first start."""
    script: Run
    path: str | None = None
    """The path of the filesystem table that the owner takes over."""

    @property
    def name(self) -> str:
        return f"{self.kind}/{self.feature}/{self.commit_mode}"

    @property
    def versions_before(self) -> int:
        """The number of versions that existed before the owner owned the table."""
        return FILESYSTEM_VERSIONS if self.path is not None else 0

    def creation(self, own: m.AttemptId | None = None) -> m.CreateTable | m.TakeOver:
        """The request that makes the table the owner's. `own`: the attempt id of another client."""
        own = own or attempt(self.versions_before)
        actions = _all_actions(self.feature, self.versions_before, own)
        if self.path is None:
            return m.CreateTable(
                name=TABLE, feature=self.feature, commit_mode=self.commit_mode, attempt=own, actions=actions
            )
        return m.TakeOver(
            path=self.path, name=TABLE, feature=self.feature, commit_mode=self.commit_mode,
            version=self.versions_before, attempt=own, actions=actions,
        )  # fmt: skip


def _all_actions(feature: str | None, version: int, own: m.AttemptId | None = None) -> tuple[str, ...]:
    return proposals.version_0(feature, own or attempt(version), TABLE, timestamp=proposals.BASE_TIME + version)


def append(table: str, version: int, own: m.AttemptId | None = None) -> m.Commit:
    own = own or attempt(version)
    actions = proposals.append(own, proposals.BASE_TIME + version)
    return m.Commit(table=table, version=version, attempt=own, actions=actions)


def _must(ask: Ask, request: m.Request, kind: type[Expected]) -> Expected:
    answer = ask(request)
    if not isinstance(answer, kind):
        raise UnexpectedAnswerError(f"{name_of(request)} was answered by {answer}; expected {kind.__name__}")
    return answer


def _made(operation: Operation, ask: Ask) -> str:
    answer = _must(ask, operation.creation(), m.Ratified)
    if answer.table is None:
        raise UnexpectedAnswerError("the answer to the creation names no table")
    return answer.table


def _table(ask: Ask) -> str:
    return _must(ask, m.LoadTable(name=TABLE), m.Table).table


def _with_versions(versions: int, operation: Operation, ask: Ask) -> None:
    table = _made(operation, ask)
    for version in range(1, versions + 1):
        _must(ask, append(table, version), m.Ratified)


def _only_started(_: Operation, __: Ask) -> None:
    """Start the host, and send no request."""


def _filesystem_table(operation: Operation, ask: Ask) -> None:
    assert operation.path is not None
    for version in range(operation.versions_before):
        actions = append("", version).actions if version else _all_actions(None, 0)
        content = proposals.content(actions or ())
        _must(ask, m.Plant(table=operation.path, file=commit_file(version), content=content), m.Done)


def _commit(versions: Sequence[int], _: Operation, ask: Ask) -> None:
    table = _table(ask)
    for version in versions:
        _must(ask, append(table, version), m.Ratified)


def _commit_together(versions: Sequence[int], _: Operation, ask: Ask) -> None:
    """Threads of one process commit the next versions. Their requests arrive in this order."""
    assert isinstance(ask, Asking)
    table = _table(ask)
    ask.together([append(table, version) for version in versions])


def _backfill(_: Operation, ask: Ask) -> None:
    table = _table(ask)
    for version in (1, 3):
        _must(ask, m.BackfillToVersion(table=table, version=version), m.Done)


def _hand_back(_: Operation, ask: Ask) -> None:
    request = m.HandBack(table=_table(ask), version=3, attempt=attempt(3), actions=_all_actions(None, 3))
    _must(ask, request, m.Ratified)


def _drop(_: Operation, ask: Ask) -> None:
    _must(ask, m.DropTable(table=_table(ask)), m.Done)


def _read(_: Operation, ask: Ask) -> None:
    _must(ask, m.GetCommits(table=_table(ask)), m.Commits)


def _resolve(_: Operation, ask: Ask) -> None:
    """Resolve an attempt; then its delayed commit arrives, and another attempt lands."""
    table, late = _table(ask), attempt(900)
    _must(ask, m.AttemptOutcome(table=table, attempt=late), m.NotLanded)
    ask(append(table, 2, late))
    _must(ask, append(table, 2), m.Ratified)


def operations(storage: str) -> Iterator[Operation]:
    """All operations. `storage`: the folder for filesystem tables."""

    def made(kind: str, feature: str, commit_mode: str, setup: Run | int | None, script: Run) -> Operation:
        run = partial(_with_versions, setup) if isinstance(setup, int) else setup
        path = f"{storage}/imports" if kind == "take-over" else None
        return Operation(kind=kind, feature=feature, commit_mode=commit_mode, setup=run, script=script, path=path)

    yield made("first-start", "catalogManaged", "inline", None, _made)
    for feature in FEATURES:
        yield made("create", feature, "staged", _only_started, _made)
    for feature, commit_mode in COMMIT_MODES:
        yield made("commit", feature, commit_mode, 1, partial(_commit, (2, 3)))
    for feature, commit_mode in COMMIT_MODES:
        if commit_mode != "direct":
            yield made("group", feature, commit_mode, 1, partial(_commit_together, (3, 2, 4)))
    for feature, commit_mode in COMMIT_MODES:
        if commit_mode != "direct":
            yield made("backfill", feature, commit_mode, 3, _backfill)
    for feature in FEATURES:
        yield made("take-over", feature, "staged", _filesystem_table, _made)
        yield made("hand-back", feature, "staged", 2, _hand_back)
        yield made("drop", feature, "staged", 2, _drop)
        yield made("resolve", feature, "staged", 1, _resolve)
        yield made("read", feature, "staged", 2, _read)
    yield made(CHECKPOINTING, "catalogManaged", "inline", 1, partial(_commit, (2, 3, 4)))
