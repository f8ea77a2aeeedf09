"""One value that carries all effects of the owner and the client.

Replace a field and the ordinary code runs on a simulated host, clock or store.
"""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from refimpl.errors import OwnerUnavailableError
from refimpl.files import Files, PosixFiles
from refimpl.host_queue import HostQueue, host_queue

HostLock = Callable[[], AbstractContextManager[object]]
"""Takes the lock for the length of a `with`; blocks until it is free, or raises `OwnerUnavailableError`."""

LOCK_POLL_SECONDS = 0.002
"""filelock waits so long, on average, between two looks at a taken lock. Its default of 50 ms starves:
`spec_tests.benchmarks.contention` has the figures."""


def host_lock(path: Path, *, timeout: Callable[[], float] = lambda: 60.0) -> HostLock:
    """An exclusive lock between all processes and threads of this host, on a file that is never deleted.

    Deleting the file would let two processes lock two different inodes. Not for network file systems.
    Usable on both sides of a fork: a child locks through a descriptor of its own. Raises
    `OwnerUnavailableError` if it is held for longer than `timeout()` seconds, or cannot be made.
    """
    from filelock import FileLock, Timeout

    locks: dict[int, FileLock] = {}

    def lock() -> FileLock:
        found = locks.get(os.getpid())
        if found is None:  # two threads may come here at once: both must get the same one
            fresh = FileLock(path, poll_interval=LOCK_POLL_SECONDS, fallback_to_soft=False)
            found = locks.setdefault(os.getpid(), fresh)
        return found

    class Held:
        def __enter__(self) -> None:
            seconds = timeout()
            try:
                lock().acquire(timeout=seconds)
            except Timeout:
                raise OwnerUnavailableError(
                    f"the owner's lock {path} was held by another process for {seconds:g} s; try again",
                    path=str(path),
                ) from None
            except OSError as error:
                raise OwnerUnavailableError(f"cannot take the owner's lock {path}: {error}", path=str(path)) from error

        def __exit__(self, *error: object) -> None:
            lock().release()

    return Held


def clock_ms() -> int:
    """ms since the epoch."""
    return time.time_ns() // 1_000_000


def random_uuid() -> str:
    return str(uuid.uuid4())


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """All effects. The defaults are this host."""

    files: Files = field(default_factory=PosixFiles)
    host_lock: Callable[[Path], HostLock] = host_lock
    host_queue: Callable[[Path], HostQueue] = host_queue
    """Makes the advisory queue in which a table's writers take turns."""
    now: Callable[[], int] = clock_ms
    """The wall clock in ms since the epoch. It may go back; nothing is ordered by it alone."""
    new_id: Callable[[], str] = random_uuid
    """A random lower-case uuid."""
    random: Callable[[], float] = random.random
    pause: Callable[[float], None] = time.sleep
    """Wait so many seconds: back-off after a lost race."""
    connect: Callable[[Path], Any] | None = None
    """Opens the ledger's database; None: as `refimpl.owner.ledger` does it on this host."""
