"""Runs several clients in one process: exactly one runs at a time, and switches happen only at effects.

Each client is a greenlet that runs ordinary code. Its simulated effects call `Scheduler.hook`, where the client stops,
and the driver of the scheduler chooses the next client. So a list of choices is a schedule, and the same choices give
the same run. No other client can observe at which time the code between two effects ran.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

import greenlet

from conformance.simulation.effects import Effect, Kind, Moment

WRITER: Final = "ledger"
"""The target of effects that begin and end write transactions. There is one at a time, as in SQLite."""

_TAKES: Final = frozenset({Kind.ACQUIRE, Kind.BEGIN})
_FREES: Final = frozenset({Kind.RELEASE, Kind.COMMIT, Kind.ROLLBACK})
_UNSEEN: Final = frozenset({Kind.FSYNC, Kind.FSYNC_DIRECTORY, Kind.CLOCK})
"""Effects whose time no other client can observe: an fsync matters only for a power cut, and each client has a clock of
its own."""


class Stopped(BaseException):
    """Ends a client when the run is over. It is not an `Exception`, so that no handler of the code under test catches
    it."""


class Pending(NamedTuple):
    """The next effect of a client."""

    kind: Kind
    target: str
    invokes: bool
    """Whether a request of this client begins with this effect."""


@dataclass(frozen=True, slots=True)
class Step:
    """One effect of one client, and the client's code up to its next effect."""

    client: str
    kind: Kind
    target: str
    invokes: bool = False
    returns: bool = False
    """Whether a request of this client was answered in this step."""

    def __str__(self) -> str:
        return f"{self.client} {self.kind.value} {self.target}"


class Deadlock(Exception):  # noqa: N818  # a finding, not an error of the scheduler
    """A deadlock: every client waits for another one."""


class _Client:
    __slots__ = ("error", "greenlet", "invoking", "name", "pending", "returned")

    def __init__(self, name: str, run: Callable[[], None], hub: greenlet.greenlet) -> None:
        self.name = name
        self.greenlet = greenlet.greenlet(run, parent=hub)
        self.pending: Pending | None = None
        self.invoking: Callable[[], None] | None = None
        self.returned = False
        self.error: BaseException | None = None


class Scheduler:
    """Runs clients step by step. Each scheduler is for one run; `close` ends the remaining clients."""

    def __init__(self, unseen: frozenset[Kind] = _UNSEEN) -> None:
        self._unseen = unseen
        self._hub = greenlet.getcurrent()
        self._clients: dict[str, _Client] = {}
        self._running: _Client | None = None
        self._held: dict[str, str] = {}
        self._closing = False
        self._killed: set[str] = set()
        self.steps: list[Step] = []
        self.errors: dict[str, BaseException] = {}
        """For each failed client, the exception that ended it."""

    def start(self, clients: Iterable[tuple[str, Callable[[], None]]]) -> None:
        """Start the clients. Each runs until just before its first effect."""
        for name, run in clients:
            client = self._clients[name] = _Client(name, run, self._hub)
            self._resume(client)

    # Called within a client, by the code that executes effects

    def hook(self, effect: Effect) -> None:
        """A `Hook`: stops the running client before each effect that others may notice. Outside of clients (before and
        after a run) it does nothing."""
        if effect.moment is Moment.BEFORE:
            self.reach(effect.kind, effect.target)

    def reach(self, kind: Kind, target: str) -> None:
        """Called before an effect of the client. Returns when it is the client's turn, and a lock in question is
        free."""
        client = self._running
        if client is None or kind in self._unseen:
            return
        self._stop_if_over(client)
        client.pending = Pending(kind, target, client.invoking is not None)
        self._hub.switch()
        self._stop_if_over(client)
        self._begin_request(client)

    def _stop_if_over(self, client: _Client) -> None:
        if self._closing or client.name in self._killed:
            raise Stopped

    def invoking(self, record: Callable[[], None]) -> None:
        """A request begins. It counts as invoked at the client's next effect, which is as late as possible."""
        client = self._running
        assert client is not None, "only clients make requests"
        client.invoking = record

    def returned(self) -> None:
        """The request was answered."""
        client = self._running
        assert client is not None, "only clients are answered"
        self._begin_request(client)
        client.returned = True

    @staticmethod
    def _begin_request(client: _Client) -> None:
        if client.invoking is not None:
            record, client.invoking = client.invoking, None
            record()

    # Called by the driver

    @property
    def clients(self) -> frozenset[str]:
        return frozenset(self._clients)

    def pending(self) -> dict[str, Pending]:
        """The next effect of every client that has not ended, blocked or not."""
        return {name: client.pending for name, client in self._clients.items() if client.pending is not None}

    def enabled(self) -> dict[str, Pending]:
        """The next effects of the clients that can continue. Raises `Deadlock` if every client is blocked."""
        waiting = self.pending()
        enabled = {name: pending for name, pending in waiting.items() if not self._blocked(pending)}
        if waiting and not enabled:
            held = ((name, effect.target, self._held.get(effect.target)) for name, effect in sorted(waiting.items()))
            raise Deadlock(
                "; ".join(f"{name} waits for {target}, which {holder} holds" for name, target, holder in held)
            )
        return enabled

    def _blocked(self, effect: Pending) -> bool:
        return effect.kind in _TAKES and self._held.get(effect.target) is not None

    def step(self, name: str) -> Step:
        """Let one client execute its effect, and continue until its next effect."""
        client = self._clients[name]
        todo = client.pending
        assert todo is not None, f"{name} is done"
        assert not self._blocked(todo), f"{name} is blocked"
        if todo.kind in _TAKES:
            self._held[todo.target] = name
        elif todo.kind in _FREES and self._held.get(todo.target) == name:
            del self._held[todo.target]
        self._resume(client)
        done = Step(name, todo.kind, todo.target, todo.invokes, client.returned)
        self.steps.append(done)
        return done

    def _resume(self, client: _Client) -> None:
        client.pending, client.returned = None, False
        self._running = client
        try:
            client.greenlet.switch()
        except Exception as error:  # noqa: BLE001  # any exception of a client is a finding
            self.errors[client.name] = error
        finally:
            self._running = None

    def kill(self, name: str) -> None:
        """End a client like a killed process: it has no more effects, and its locks become free. Idempotent."""
        client = self._clients[name]
        self._killed.add(name)
        client.pending = None
        self._held = {target: holder for target, holder in self._held.items() if holder != name}
        if client.greenlet and not client.greenlet.dead:
            self._running = client
            try:
                client.greenlet.throw(Stopped)
            except (Stopped, Exception):  # noqa: BLE001  # it is over
                pass
            finally:
                self._running = None

    def close(self) -> None:
        """End all remaining clients like killed processes. Idempotent."""
        self._closing = True
        for name in self._clients:
            self.kill(name)


# Which steps commute

_READS: Final = frozenset({Kind.READ, Kind.STAT, Kind.LIST, Kind.QUERY})
_ENTRIES: Final = frozenset(
    {Kind.CREATE, Kind.LINK, Kind.REPLACE, Kind.UNLINK, Kind.MAKE_DIRECTORY, Kind.REMOVE_DIRECTORY}
)
_FOLDERS: Final = frozenset({Kind.MAKE_DIRECTORY, Kind.REMOVE_DIRECTORY})
_LEDGER: Final = frozenset({Kind.BEGIN, Kind.COMMIT, Kind.ROLLBACK, Kind.QUERY})
_LOCKS: Final = frozenset({Kind.ACQUIRE, Kind.RELEASE})


def dependent(step: Step, other: Step) -> bool:
    """Whether the order of two neighbouring steps can matter to a client or to a checker.

    The result is true whenever the order can matter; it may also be true if the order cannot matter.
    """
    if step.client == other.client:
        return True
    if (step.returns and other.invokes) or (other.returns and step.invokes):
        return True  # the history orders a request after all earlier answers
    if step.kind is Kind.PAUSE or other.kind is Kind.PAUSE:
        return False
    if step.kind in _READS and other.kind in _READS:
        return False
    if step.kind in _LOCKS or other.kind in _LOCKS or step.kind in _LEDGER or other.kind in _LEDGER:
        return _same_resource(step, other)
    return _same_place(step, other) or _same_place(other, step)


def _same_resource(step: Step, other: Step) -> bool:
    if step.target != other.target:
        return False
    # A reader of the ledger has a snapshot: only commits before its first query matter to it.
    return not ({step.kind, other.kind} & {Kind.QUERY} and {step.kind, other.kind} & {Kind.BEGIN, Kind.ROLLBACK})


def _same_place(step: Step, other: Step) -> bool:
    if step.target == other.target:
        return True
    if step.kind is Kind.LIST and other.kind in _ENTRIES | {Kind.WRITE}:
        return other.target.rpartition("/")[0] == step.target
    return step.kind in _FOLDERS and other.target.startswith(step.target + "/")


def may_race(step: Step, other: Step) -> bool:
    """Whether two dependent steps can both be possible next steps. Only its holder can free a lock."""
    kinds = {step.kind, other.kind}
    if (step.returns and other.invokes) or (other.returns and step.invokes):
        return True
    return not (step.target == other.target and kinds & _TAKES and kinds & _FREES)
