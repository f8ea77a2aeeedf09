"""One value that carries all effects of the owner and the client.

Replace a field and the ordinary code runs on a simulated host, clock or store.
"""

import contextlib
import io
import os
import random
import threading
import time
import uuid
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from refimpl.protocol.errors import OwnerUnavailableError
from refimpl.storage.files import Files, PosixFiles
from refimpl.storage.host_queue import HostQueue, host_queue

HostLock = Callable[[], AbstractContextManager[object]]
"""A context manager that holds the lock; blocks until the lock is free, or raises `OwnerUnavailableError`."""

LOCK_POLL_SECONDS: Final = 0.001
"""Average pause between two attempts to take a lock. An attempt costs a system call; filelock's default of 50 ms
starves: `python -m spec_tests.benchmarks contention` has the figures."""


class _LockFile(io.FileIO):
    """A lock's file. Its lock ends when the file is closed.

    As a context manager it closes itself. That is C code, so that an interruption (Ctrl-C) cannot prevent it: an
    `__exit__` in Python can be interrupted before its first line.
    """

    ending: tuple[int | None, Callable[[], object]] = (None, tuple)
    """The holding thread, and what it does before the release."""

    def flush(self) -> None:
        """`close` calls this, and then closes the descriptor even if this is interrupted.

        The lock is released first: a child that another thread forked while the file was opened has a copy of the
        descriptor, which would keep it. (A forked child only closes its copies: its parent holds the locks.)

        An error of the file system while it closes the file must not look like an error of the work under the lock. So
        the descriptor gets another file first: that closes the lock's file, and reports no error. (No descriptor is
        kept for it: a daemon that closes all descriptors would make its number that of another file.)
        """
        from filelock import unlock_descriptor

        holder, work = self.ending
        if holder == threading.get_ident():
            with contextlib.suppress(Exception):
                work()
        if self in _opened:
            with contextlib.suppress(OSError):
                unlock_descriptor(self.fileno())
        with contextlib.suppress(OSError):
            nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.dup2(nothing, self.fileno(), inheritable=False)
            finally:
                os.close(nothing)


_opened: Final[weakref.WeakSet[_LockFile]] = weakref.WeakSet()
"""The files through which threads of this process hold locks, or test whether they are free."""


class _Innermost(threading.local):
    """The file of the lock that this thread took last."""

    file: _LockFile | None = None


_innermost: Final = _Innermost()


def before_release(work: Callable[[], object]) -> None:
    """Run `work` when this thread releases the lock that it took last, in place of earlier work; ignores its errors.

    An interruption (Ctrl-C) that prevents the end of a transaction cannot prevent this.
    """
    if _innermost.file is not None:
        _innermost.file.ending = (threading.get_ident(), work)


def _forget_copies() -> None:
    """Close the copies of these files in a forked child: they would keep the lock after its holder's death."""
    copies = list(_opened)
    _opened.clear()
    for file in copies:
        file.close()


os.register_at_fork(after_in_child=_forget_copies)


def host_lock(path: Path, *, timeout: Callable[[], float] = lambda: 60.0) -> HostLock:
    """An exclusive lock between all processes and threads of this host, on a file that only its holder may delete.

    Any other deletion would let two processes lock two different inodes: STORAGE.md#lock-file. Not for network file
    systems.
    Reentrant in a thread. Usable on both sides of a fork: a child locks through its own file. Raises
    `OwnerUnavailableError` if another holder keeps it for longer than `timeout()` seconds, or if the file cannot be
    created; does not create a missing folder. It is taken when the context manager is made. An interruption at any
    point leaves it free.

    Each hold opens the file and uses filelock's descriptor lock: its path lock costs ten times as much.
    """
    from filelock import lock_descriptor

    name = str(path)
    hold = _ThreadsHold()

    def take(fd: int) -> bool:
        return lock_descriptor(fd, blocking=False)

    def held() -> AbstractContextManager[object]:
        if hold.file is not None and not hold.file.closed:  # in a forked child it is closed
            return contextlib.nullcontext()
        return _locked(hold, name, take, timeout())

    return held


class _ThreadsHold(threading.local):
    """The file through which this thread holds, or last held, the lock."""

    file: _LockFile | None = None


def _locked(hold: _ThreadsHold, name: str, take: Callable[[int], bool], seconds: float) -> _LockFile:
    """Lock the file that has this name now."""
    try:
        while True:
            file = _LockFile(name, "r+", opener=_open)
            try:
                _opened.add(file)
                _lock(file.fileno(), name, take, seconds)
                if _is_named(file.fileno(), name):
                    hold.file = _innermost.file = file
                    return file
            except BaseException:
                file.close()
                raise
            file.close()  # the file was removed or replaced meanwhile: other processes lock the new one
    except OSError as error:
        raise OwnerUnavailableError(f"cannot take the owner's lock {name}: {error}", path=name) from error


def _open(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def _is_named(fd: int, name: str) -> bool:
    try:
        return os.path.samestat(os.lstat(name), os.fstat(fd))
    except FileNotFoundError:
        return False


def _lock(fd: int, name: str, take: Callable[[int], bool], seconds: float) -> None:
    start = time.monotonic()
    while not take(fd):
        if time.monotonic() - start >= seconds:
            raise OwnerUnavailableError(
                f"the owner's lock {name} was held by another process for {seconds:g} s; try again", path=name
            )
        time.sleep(LOCK_POLL_SECONDS * 2 * random.random())


class ThreadTurn:
    """Lets one thread of this process at a time do the work of the waiting ones; see `refimpl.served.group`.

    An interruption (Ctrl-C) may come at every call of a Python function. So the lock is not taken through the
    condition: its `__exit__` is such a function, and an interrupted one would leave the lock held.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._holder: int | None = None

    def take(self, done: Callable[[], bool]) -> bool:
        """Wait until this thread's work is `done` (returns False), or this thread gets the turn (returns True)."""
        with self._lock:
            self._changed.wait_for(lambda: done() or self._holder is None)
            if done():
                return False
            self._holder = threading.get_ident()
            return True

    def pass_on(self) -> None:
        """Wake the threads whose work is done, and pass the turn to another thread, if this one has it."""
        with self._lock:
            if self._holder == threading.get_ident():
                self._holder = None
            self._changed.notify_all()


def clock_ms() -> int:
    """ms since the epoch."""
    return time.time_ns() // 1_000_000


def process_id() -> int:
    """The process id; a forked child has another one."""
    return os.getpid()


def random_uuid() -> str:
    return str(uuid.uuid4())


def _at_once(work: Callable[[], None]) -> None:
    work()


def _one_after_the_other(first: Callable[[], None], second: Callable[[], None]) -> None:
    first()
    second()


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """All effects. The defaults are this host."""

    files: Files = field(default_factory=PosixFiles)
    host_lock: Callable[[Path], HostLock] = host_lock
    thread_turn: Callable[[], ThreadTurn] = ThreadTurn
    """Makes the turn for which the threads of one process wait to lead a group commit."""
    host_queue: Callable[[Path], HostQueue] = host_queue
    """Makes the advisory queue in which a table's writers take turns."""
    now: Callable[[], int] = clock_ms
    """The wall clock in ms since the epoch. It may go back, so nothing is ordered by it alone."""
    new_id: Callable[[], str] = random_uuid
    """A random lower-case uuid."""
    random: Callable[[], float] = random.random
    pause: Callable[[float], None] = time.sleep
    """Waits this many seconds: back-off after a lost race."""
    afterwards: Callable[[Callable[[], None]], None] = _at_once
    """Does work for which no answer has to wait: here at once, in a server on another thread. Nothing may depend on
    the work: it stays undone if the process ends."""
    together: Callable[[Callable[[], None], Callable[[], None]], None] = _one_after_the_other
    """Runs two functions in any order, and returns when both are done: here one after the other, in a server at the
    same time. Raises what one of them raises."""
    connect: Callable[[Path], Any] | None = None
    """Opens the ledger's database; None: `refimpl.owner.ledger` opens it on this host."""
