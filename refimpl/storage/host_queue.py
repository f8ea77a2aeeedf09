"""An advisory queue among the processes of this host: first come, first served; for fairness only.

A polling lock is often taken again by the process that just released it; under optimistic concurrency the loser then
pays twice, and one process commits five thousand times while another commits once. Writers in this queue take turns.
Nothing depends on it: a writer that does not wait, or has waited too long, may proceed.

A ticket is a number; its holder locks the byte with that number in the queue's file, and waits until the byte
before it is free. The kernel frees the bytes of a process that dies.
"""

import contextlib
import fcntl
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from refimpl.storage.files import HAS_DESCRIPTION_LOCKS, lock_description

HostQueue = Callable[[], AbstractContextManager[bool]]
"""A context manager that waits for the turn and holds it; its value says whether it waited for others."""

LONGEST_WAIT_SECONDS: Final = 5.0
"""A process that holds its turn for longer is taken as stuck, and the next one stops waiting for it."""

_COUNTERS: Final = struct.Struct("<QQ")
"""The start of the file: the next ticket, and the newest ticket that was handed back."""
_FIRST_TICKET_BYTE: Final = 2**20
_HIGHEST_TICKET: Final = 2**62
_SECONDS_PER_TURN: Final = 0.0004
"""Polling interval of a waiting process, multiplied by the number of processes in front of it."""
_SECONDS_PER_DRAW: Final = 0.00005


def host_queue(path: Path) -> HostQueue:
    """The queue in this file. Without open-file-description locks no process waits."""
    if not HAS_DESCRIPTION_LOCKS:
        return lambda: contextlib.nullcontext(False)

    @contextlib.contextmanager
    def turn() -> Iterator[bool]:
        with contextlib.ExitStack() as leaving:
            yield _joined(path, leaving)

    return turn


def _joined(path: Path, leaving: contextlib.ExitStack) -> bool:
    """Wait for the turn; returns whether others were first. Ignores errors of the queue: they must not prevent a
    commit, nor make a commit fail that landed."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        leaving.callback(_close, fd)  # frees the ticket
        ticket = _draw(fd)
        waited = _await(fd, ticket)
        leaving.callback(_hand_back, fd, ticket)
        return waited
    return False


def _draw(fd: int) -> int:
    deadline = time.monotonic() + LONGEST_WAIT_SECONDS
    while not _lock(fd, 0):
        if time.monotonic() > deadline:
            raise TimeoutError("another process was stopped while it drew a ticket")
        time.sleep(_SECONDS_PER_DRAW)
    following, done = _counters(fd)
    if following >= _HIGHEST_TICKET:  # the file is damaged: no process has drawn so many
        following = done = 0
    os.pwrite(fd, _COUNTERS.pack(following + 1, done), 0)
    _lock(fd, _FIRST_TICKET_BYTE + following)
    _unlock(fd, 0)
    return int(following)


def _await(fd: int, ticket: int) -> bool:
    """Wait for the turn; returns whether it had to wait. Keeps the lock on the byte in front: no other process needs
    that byte."""
    if ticket == 0:
        return False
    before = _FIRST_TICKET_BYTE + ticket - 1
    deadline = time.monotonic() + LONGEST_WAIT_SECONDS
    waited = False
    while not _lock(fd, before):
        waited = True
        if time.monotonic() > deadline:
            return waited
        _, done = _counters(fd)
        pause = _SECONDS_PER_TURN * max(1, ticket - done - 1)
        time.sleep(min(pause, LONGEST_WAIT_SECONDS))  # of a damaged file, it could be years
    return waited


def _counters(fd: int) -> tuple[int, int]:
    """The next ticket, and the newest that was handed back. A damaged file may have any, or be too short."""
    following, done = _COUNTERS.unpack(os.pread(fd, _COUNTERS.size, 0).ljust(_COUNTERS.size, b"\0"))
    return following, done


def _hand_back(fd: int, ticket: int) -> None:
    with contextlib.suppress(OSError):
        os.pwrite(fd, ticket.to_bytes(8, "little"), 8)


def _close(fd: int) -> None:
    with contextlib.suppress(OSError):  # `close` may report an earlier write's error; it closes the descriptor anyway
        os.close(fd)


def _lock(fd: int, byte: int) -> bool:
    try:
        lock_description(fd, fcntl.F_WRLCK, byte, 1)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _unlock(fd: int, byte: int) -> None:
    lock_description(fd, fcntl.F_UNLCK, byte, 1)
