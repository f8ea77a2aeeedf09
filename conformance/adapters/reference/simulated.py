"""The reference owner on a simulated host: its ordinary code, on a disk that can lose its power.

Files, database, clock and identifiers are the simulation's; the lock is free, because one client acts at a time (a
scheduler gives it another one).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, cast

from conformance.simulation.effects import Hook, unobserved
from conformance.simulation.files import SimulatedFiles
from conformance.simulation.sqlite_vfs import SimulatedSqlite
from conformance.simulation.storage import Disk
from refimpl.environment import Environment, HostLock
from refimpl.files import Files

START_MS = 1_700_000_000_000
"""The simulated clock when a host starts for the first time; ms since the epoch."""


def free_lock(_path: Path) -> HostLock:
    """Of a host on which nobody else runs."""
    return contextlib.nullcontext


def identifiers(start: int) -> Callable[[], str]:
    """Lower-case uuids, one after the other. Each start of a host needs a `start` of its own."""
    numbers = count(1)
    return lambda: f"{start:08x}-0000-4000-8000-{next(numbers):012x}"


def environment(
    disk: Disk,
    sqlite: SimulatedSqlite,
    *,
    start: int = 1,
    hook: Hook = unobserved,
    now: Callable[[], int] | None = None,
    change_files: Callable[[SimulatedFiles], Any] = lambda files: files,
    change_database: Callable[[Any], Any] = lambda database: database,
) -> Environment:
    """All effects of one start of the host. `start`: which one it is; no two share identifiers.

    `hook` is called for files and for what SQLite does to its own. `change_files` and `change_database` put something
    between the reference and its host: a known-bad variant, or an observer.
    """
    ticks = count(START_MS + start * 1_000_000)
    clock = now or (lambda: next(ticks))
    connect = sqlite.mounted(disk, hook=hook)
    return Environment(
        files=cast(Files, change_files(SimulatedFiles(disk, hook=hook))),
        host_lock=free_lock,
        host_queue=lambda _path: lambda: contextlib.nullcontext(False),
        now=clock,
        new_id=identifiers(start),
        random=lambda: 0.5,
        pause=lambda _seconds: None,
        connect=lambda path: change_database(connect(path)),
    )
