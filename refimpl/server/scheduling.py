"""Scheduling of requests: deadline, thread, the owner's lock, and the turn after a lost race.

There are two pools. A thread of the pool for reads never takes the owner's lock: a call that turns out to need it
starts again on a thread for writes. Each request has one deadline for all its waits (turn, thread, lock): a time of the
monotonic clock, fixed when its headers arrived.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from refimpl.protocol.errors import OutcomeUnknown, OwnerUnavailableError
from refimpl.server.errors import ApiError
from refimpl.storage.environment import Environment, HostLock, host_lock

logger = logging.getLogger("refimpl.server")

GRACE_SECONDS: Final = 1.0
"""After its deadline a thread gets this much time to report what it waited for."""

_STARTING_SECONDS: Final = 60.0
"""Timeout of the lock outside of requests."""

SYNCS: Final = 8
"""Maximum number of second syncs at the same time; further ones wait."""


class LockNeededError(Exception):
    """A call on a thread for reads needs the owner's lock. It has changed nothing."""


class _Allowed(threading.local):
    """The limits of the call on this thread."""

    deadline: float | None = None
    lock: bool = True


_allowed: Final = _Allowed()


@contextmanager
def limited(deadline: float, *, lock: bool) -> Iterator[None]:
    """Limit the waits of this thread: until `deadline`, and for the owner's lock only if `lock` is set."""
    _allowed.deadline, _allowed.lock = deadline, lock
    try:
        yield
    finally:
        _allowed.deadline, _allowed.lock = None, True


def _seconds_left() -> float:
    return _STARTING_SECONDS if _allowed.deadline is None else max(0.0, _allowed.deadline - time.monotonic())


def shared_environment(publisher: "Publisher") -> Environment:
    """The host's effects for the threads of a server."""
    return Environment(host_lock=request_lock, afterwards=publisher.submit, together=SideBySide())


class SideBySide:
    """Threads for the second of two independent syncs: a disk completes both in the time of one."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(SYNCS, thread_name_prefix="sync")

    def __call__(self, first: Callable[[], None], second: Callable[[], None]) -> None:
        """Runs both at once. Both have ended when this returns, or raises the error of one of them."""
        beside = self._threads.submit(second)
        try:
            first()
        finally:
            wait_for((beside,))
        beside.result()


class _Threads:
    """Threads for calls of one kind, and the calls that still run."""

    def __init__(self, threads: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._running: set[Future[Any]] = set()

    def _start(self, work: Callable[[], Any]) -> Future[Any]:
        call = self._threads.submit(work)
        self._running.add(call)
        call.add_done_callback(self._running.discard)
        return call

    def close(self, seconds: float) -> bool:
        """Start no further work; returns whether all running work ended within `seconds`."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        return not wait_for(tuple(self._running), seconds).not_done


class Publisher(_Threads):
    """Threads on which the owner publishes commits that were already answered. Commits that are unpublished when it
    closes are published with a later commit to the table."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads, "publish")

    def submit(self, work: Callable[[], None]) -> None:
        def carried_out() -> None:
            try:
                with limited(time.monotonic() + _STARTING_SECONDS, lock=True):
                    work()
            except Exception:
                logger.exception("publishing after an answer failed")
                raise

        with suppress(RuntimeError):  # closed
            self._start(carried_out)


def request_lock(path: Path) -> HostLock:
    """The owner's lock, taken within the limits of the call on the thread.

    Threads queue inside the process first: only one thread at a time polls for the file lock.
    """
    inside = threading.RLock()
    outer = host_lock(path, timeout=_seconds_left)

    class Held:
        def __enter__(self) -> None:
            if not _allowed.lock:
                raise LockNeededError
            if not inside.acquire(timeout=_seconds_left()):
                raise OwnerUnavailableError("the owner's lock was not free in time; nothing was changed, try again")
            try:
                self._held = outer()  # takes the lock
            except BaseException:
                inside.release()
                raise

        def __exit__(self, *error: Any) -> None:
            try:
                self._held.__exit__(*error)
            finally:
                inside.release()

    return Held


class Slots:
    """Limits the number of concurrent requests; further ones get 503."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0

    @contextmanager
    def taken(self) -> Iterator[None]:
        if self._taken >= self._most:
            raise ApiError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "TooManyRequestsException",
                f"{self._most} requests are in progress; send the same request again",
            )
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1


class Pool(_Threads):
    """Threads for requests. `lock`: whether they may take the owner's lock."""

    def __init__(self, threads: int, requests: int, *, lock: bool) -> None:
        super().__init__(threads, "write" if lock else "read")
        self.slots = Slots(requests)
        self._lock = lock

    async def run(self, work: Callable[[], Any], deadline: float) -> Any:
        """Run `work` on a thread, to its end even if its client disconnects.

        After the deadline: `OwnerUnavailableError` for a read, and for a write that did not start;
        `OutcomeUnknown` for a write that did.
        """

        def carried_out() -> Any:
            with limited(deadline, lock=self._lock):
                return work()

        call = self._start(carried_out)
        answer = asyncio.wrap_future(call)
        answer.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # also without a client
        left = deadline + GRACE_SECONDS - time.monotonic()
        done, _ = await asyncio.wait({answer}, timeout=max(0.0, left))
        if done:
            return answer.result()
        if call.cancel() or not self._lock:
            raise OwnerUnavailableError("the request was not answered in time; nothing was changed, try again")
        raise OutcomeUnknown("the request did not finish in time and may still succeed; read the table before a retry")


PATIENCE_SECONDS: Final = 0.25
"""How long the other clients wait for the holder of the turn to come back. A client that took longer the last time gets
half as much again as it took."""

SLOW_SHARE: Final = 5
"""From the start of a slow client's turn to the start of the next such turn: this many times its length."""

ROUND_SECONDS: Final = 0.2
"""A client that proposes its next version at once keeps the turn, for this time divided by the number of clients: each
change of turns costs a proposal that loses."""

PROMPT_SECONDS: Final = 0.005
"""At once: the next proposal arrives within this time after the answer. The others wait that long for it."""

LONGEST_WAIT_SECONDS: Final = 2.0
"""Maximum wait of a proposal: clients and proxies have timeouts, too."""

MISSES: Final = 3
"""After this many clients in a row did not come back, the queue is suspended. A single one may just be slow, and
while the queue is suspended, each version costs a request of every client."""

GIVEN_UP_SECONDS: Final = 2.0
"""How long the queue stays suspended."""

LOSERS_KEPT: Final = 10_000
"""Maximum number of clients whose lost version is remembered; the oldest are forgotten first."""


@dataclass(slots=True)
class _Loser:
    """A client that lost a race. Times are of the loop's clock."""

    latest: int
    """The latest version when the client lost last."""
    since: float | None
    """When it lost, until its next proposal arrives."""
    rebase_seconds: float = 0.0
    """How long it took to come back the last time."""


@dataclass(slots=True)
class _Line:
    """The client that has the turn on one table, and the clients that wait for it."""

    holder: Hashable = None
    since: float = 0.0
    """When the holder got the turn, by the loop's clock."""
    is_prompt: bool = False
    """The holder's proposal arrived at once after the client had landed."""
    landed: tuple[Hashable, float] = (None, 0.0)
    """The client that landed last in its turn, and when."""
    patience: asyncio.TimerHandle | None = None
    """Runs while the others wait for the holder to come back, not while its proposal is judged."""
    waiting: deque[tuple[Hashable, bool, asyncio.Future[None]]] = field(default_factory=deque)
    """Each client, whether it is prompt, and its turn."""
    misses: int = 0
    """How many holders in a row did not come back."""
    given_up_until: float = 0.0
    slow_from: float = 0.0
    """When a slow client may make the others wait again."""

    def stop_patience(self) -> None:
        if self.patience is not None:
            self.patience.cancel()
            self.patience = None

    def take(self, client: Hashable, is_prompt: bool) -> None:
        self.holder, self.is_prompt, self.since = client, is_prompt, asyncio.get_running_loop().time()

    def pass_on(self) -> None:
        """Give the turn to the first client that still waits, if there is one."""
        self.stop_patience()
        self.holder = None
        while self.waiting and self.holder is None:
            client, is_prompt, turn = self.waiting.popleft()
            if not turn.done():  # its own timeout may have ended the wait
                self.take(client, is_prompt)
                turn.set_result(None)


class FairQueue:
    """The writers of each table, in the order in which their proposals are judged. For one event loop.

    One proposal for a table is judged at a time, and a client that lost may try again alone. The winner knows the next
    version at once and would win again and again; a loser has to load the table and stage again, and would starve.
    If all losers were answered at once, all but one would lose again. So one client has the turn: while its proposal
    is judged, and after it lost, until it comes back on the same connection. The other proposals wait, first come,
    first served: each has lost by its turn, gets the latest version, and does not lose a second time. A client that
    lands and proposes again at once keeps the turn for its part of `ROUND_SECONDS`.

    The turn is kept for a client that rebases: for as long as it needed before, but slow clients together get no more
    than their share of the time. A client that proposes a version which it knows to be taken has not
    loaded the table: it neither waits nor gets the turn, because it would block the others.

    Advisory like `CommitOwner.turn`: the queue decides no outcome, waits are short, and if clients do not come back on
    their connections, the queue is suspended for a while.
    """

    def __init__(self) -> None:
        self._lines: dict[Hashable, _Line] = {}
        self._losers: dict[tuple[Hashable, Hashable], _Loser] = {}
        """By table and client."""

    async def wait(self, table: Hashable, client: Hashable, version: int, deadline: float) -> None:
        """Return when the client's proposal of `version` may be judged: at once if no other client has the turn or
        the client knows that this version is taken, and at `deadline` (of the loop's clock) in any case. The caller
        reports the outcome with `lost` or `done`."""
        loop = asyncio.get_running_loop()
        if (loser := self._losers.get((table, client))) is not None:
            if version <= loser.latest:
                self._leave(table, client)
                return
            if loser.since is not None:
                loser.rebase_seconds, loser.since = loop.time() - loser.since, None
        line = self._lines.setdefault(table, _Line())
        if loop.time() < line.given_up_until:
            return
        if line.holder in (None, client):
            if line.holder is None:
                line.take(client, is_prompt=False)
            else:
                line.misses = 0
            line.stop_patience()
            return
        turn: asyncio.Future[None] = loop.create_future()
        lander, landed_at = line.landed
        line.waiting.append((client, lander == client and loop.time() - landed_at < PROMPT_SECONDS, turn))
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await turn
        except BaseException:
            self._leave(table, client)  # it may have got the turn at the moment when it disconnected
            raise

    def lost(self, table: Hashable, client: Hashable, latest: int) -> None:
        """The client gets a conflict with the latest version. If it has the turn, the others wait for it."""
        if len(self._losers) >= LOSERS_KEPT:
            del self._losers[next(iter(self._losers))]
        loop = asyncio.get_running_loop()
        loser = self._losers.setdefault((table, client), _Loser(latest, None))
        loser.latest, loser.since = latest, loop.time()
        line = self._lines.get(table)
        if line is not None and line.holder == client:
            patience = PATIENCE_SECONDS
            if patience < loser.rebase_seconds < LONGEST_WAIT_SECONDS and line.slow_from <= loop.time():
                patience = min(1.5 * loser.rebase_seconds, LONGEST_WAIT_SECONDS)
                line.slow_from = loop.time() + SLOW_SHARE * loser.rebase_seconds
            line.patience = loop.call_later(patience, self._give_up, line)

    def done(self, table: Hashable, client: Hashable, *, landed: bool) -> None:
        """The client gets another answer: it landed, or will not try this again. The turn goes to the next client, at
        once or after further commits of this one."""
        line = self._lines.get(table)
        if line is not None and line.holder == client:
            line.misses = 0
            loop = asyncio.get_running_loop()
            if landed:
                line.landed = client, loop.time()
            clients = 1 + len(line.waiting)
            if landed and line.is_prompt and clients > 1 and (loop.time() - line.since) * clients < ROUND_SECONDS:
                line.patience = loop.call_later(PROMPT_SECONDS, self._leave, table, client)
                return
        self._leave(table, client)

    def _leave(self, table: Hashable, client: Hashable) -> None:
        """Pass the turn to the next client, if this client has it."""
        line = self._lines.get(table)
        if line is None or line.holder != client:
            return
        line.pass_on()
        if line.holder is None:
            del self._lines[table]

    def _give_up(self, line: _Line) -> None:
        """The holder did not come back: the next client gets the turn. After several in a row all waiting proposals are
        judged now, and the queue is suspended for a while."""
        line.misses += 1
        if line.misses >= MISSES:
            line.misses = 0
            line.given_up_until = asyncio.get_running_loop().time() + GIVEN_UP_SECONDS
            while line.waiting:
                line.pass_on()
        line.pass_on()
