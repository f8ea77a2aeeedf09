"""The threads that carry requests out, and how long they may wait: reads never wait for a writer.

There are two pools. A thread of the pool for reads never takes the owner's lock: a call that turns out to need it
starts anew on a thread for writes. Whatever a request waits for (its turn, a thread, the lock), it waits until one
deadline, a time of the monotonic clock that was fixed when its headers arrived.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import AbstractContextManager, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from refimpl.environment import Environment, HostLock, host_lock
from refimpl.errors import OutcomeUnknown, OwnerUnavailableError
from refimpl.server.errors import ApiError

GRACE_SECONDS: Final = 1.0
"""After its deadline a thread may still say what it waited for in vain."""

_STARTING_SECONDS: Final = 60.0
"""For the lock where no request is carried out."""


class LockNeededError(Exception):
    """A call on a thread for reads needs the owner's lock. It has changed nothing."""


class _Allowed(threading.local):
    """What the call on this thread may wait for."""

    deadline: float | None = None
    lock: bool = True


_allowed: Final = _Allowed()


@contextmanager
def limited(deadline: float, *, lock: bool) -> Iterator[None]:
    """Limit the waits of this thread: until `deadline`, and for the owner's lock only where `lock` says so."""
    _allowed.deadline, _allowed.lock = deadline, lock
    try:
        yield
    finally:
        _allowed.deadline, _allowed.lock = None, True


def _seconds_left() -> float:
    return _STARTING_SECONDS if _allowed.deadline is None else max(0.0, _allowed.deadline - time.monotonic())


def shared_environment() -> Environment:
    """The host's effects for the threads of a server."""
    return Environment(host_lock=request_lock)


def request_lock(path: Path) -> HostLock:
    """The owner's lock, taken within the limits of the call on the thread.

    Threads queue inside the process first: only one at a time then asks for the file lock, which is taken by polling.
    """
    inside = threading.RLock()
    outer = host_lock(path, timeout=_seconds_left)

    class Held:
        def __enter__(self) -> None:
            if not _allowed.lock:
                raise LockNeededError
            if not inside.acquire(timeout=_seconds_left()):
                raise OwnerUnavailableError("the owner's lock was not free in time; nothing was changed, try again")
            self._held: AbstractContextManager[object] = outer()
            try:
                self._held.__enter__()
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
    """So many requests at once; further ones get 503."""

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


class Pool:
    """Threads for calls of one kind. `lock`: whether they may take the owner's lock."""

    def __init__(self, threads: int, requests: int, *, lock: bool) -> None:
        self.slots = Slots(requests)
        self._lock = lock
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="write" if lock else "read")
        self._running: set[Future[Any]] = set()

    async def run(self, work: Callable[[], Any], deadline: float) -> Any:
        """Carry `work` out on a thread, to its end even if nobody waits for that any more.

        After the deadline: `OwnerUnavailableError` for a read, and for a write that was not begun;
        `OutcomeUnknown` for one that was.
        """

        def carried_out() -> Any:
            with limited(deadline, lock=self._lock):
                return work()

        call = self._threads.submit(carried_out)
        self._running.add(call)
        call.add_done_callback(self._running.discard)
        answer = asyncio.wrap_future(call)
        answer.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # also where nobody waits
        left = deadline + GRACE_SECONDS - time.monotonic()
        done, _ = await asyncio.wait({answer}, timeout=max(0.0, left))
        if done:
            return answer.result()
        if call.cancel() or not self._lock:
            raise OwnerUnavailableError("the request was not answered in time; nothing was changed, try again")
        raise OutcomeUnknown("the request did not finish in time and may still succeed; read the table before a retry")

    def close(self, seconds: float) -> bool:
        """Begin nothing more; whether all that was begun ended within `seconds`."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        return not wait_for(tuple(self._running), seconds).not_done
