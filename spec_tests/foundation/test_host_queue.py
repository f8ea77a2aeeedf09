"""The queue of a table's writers: first come, first served, and dead writers are skipped."""

from __future__ import annotations

import errno
import os
import sys
import threading
from pathlib import Path

import pytest

from refimpl import host_queue as module
from refimpl.host_queue import host_queue

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs open-file-description locks")


def drawn(path: Path) -> int:
    """So many tickets were drawn so far."""
    return int.from_bytes(path.read_bytes()[:8].ljust(8, b"\0"), "little") if path.exists() else 0


def handed_back(path: Path) -> int:
    """The newest ticket that was handed back."""
    return int.from_bytes(path.read_bytes()[8:16].ljust(8, b"\0"), "little")


def descriptors() -> int:
    """So many are open in this process."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


class Writer(threading.Thread):
    """Takes a turn, tells so, and keeps it until it is let go."""

    def __init__(self, path: Path, name: str, order: list[str]) -> None:
        super().__init__(name=name, daemon=True)
        self.path = path
        self.order = order
        self.waited: bool | None = None
        self.has_turn, self.may_go = threading.Event(), threading.Event()

    def run(self) -> None:
        with host_queue(self.path)() as self.waited:
            self.order.append(self.name)
            self.has_turn.set()
            self.may_go.wait(20)


def queued(path: Path, names: str) -> tuple[list[Writer], list[str]]:
    """Writers in the queue, in this order: each has drawn its ticket before the next one comes."""
    order: list[str] = []
    writers = [Writer(path, name, order) for name in names]
    for number, writer in enumerate(writers, 1):
        writer.start()
        while drawn(path) < number:
            writer.join(0.001)
    return writers, order


def test_turns_come_in_the_order_of_the_tickets_one_at_a_time(tmp_path: Path) -> None:
    writers, order = queued(tmp_path / "turns", "abcd")
    for number, writer in enumerate(writers, 1):
        assert writer.has_turn.wait(20)
        assert order == list("abcd")[:number]
        assert handed_back(tmp_path / "turns") == max(0, number - 2)
        writer.may_go.set()
        writer.join(20)
    assert [writer.waited for writer in writers] == [False, True, True, True]
    with host_queue(tmp_path / "turns")() as waited:
        assert waited is False
    assert drawn(tmp_path / "turns") == 5
    assert handed_back(tmp_path / "turns") == 4


def test_a_writer_that_died_in_its_turn_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "turns"
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        turn = host_queue(path)()
        turn.__enter__()
        os.write(writing, b"!")
        os.close(writing)
        os._exit(0)
    assert os.read(reading, 1) == b"!"
    os.waitpid(child, 0)
    os.close(reading)
    os.close(writing)
    with host_queue(path)() as waited:
        assert waited is False
    assert drawn(path) == 2


def test_a_turn_that_takes_too_long_is_no_longer_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_WAIT_SECONDS", 0.02)
    writers, _ = queued(tmp_path / "turns", "a")
    assert writers[0].has_turn.wait(20)
    with host_queue(tmp_path / "turns")() as waited:
        assert waited is True
    writers[0].may_go.set()
    writers[0].join(20)


def test_a_queue_file_that_cannot_be_made_stops_no_writer(tmp_path: Path) -> None:
    before = descriptors()
    with host_queue(tmp_path / "no-such-folder" / "turns")() as waited:
        assert waited is False
    with host_queue(tmp_path / "turns")():
        assert descriptors() == before + 1
    assert descriptors() == before


def test_a_file_system_without_locks_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    def lock(fd: int, kind: int, start: int, length: int) -> None:
        tries.append(start)
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(module, "LONGEST_WAIT_SECONDS", 0.02)
    monkeypatch.setattr(module, "lock_description", lock)
    with host_queue(tmp_path / "turns")() as waited:
        assert waited is False
    assert tries == [0]


def test_a_drawn_ticket_is_held_before_another_can_be_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next one takes the queue for empty."""
    path, unlock, held = tmp_path / "turns", module._unlock, []
    first_ticket = module._FIRST_TICKET_BYTE

    def watched(fd: int, byte: int) -> None:
        if byte == 0:
            other = os.open(path, os.O_RDWR)
            held.append([module._lock(other, 0), module._lock(other, first_ticket + drawn(path) - 1)])
            os.close(other)
        unlock(fd, byte)

    monkeypatch.setattr(module, "_unlock", watched)
    for _ in range(2):
        with host_queue(path)():
            pass
    assert held == [[False, False], [False, False]]


def test_without_a_ticket_a_writer_proceeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process was stopped while it drew one."""
    monkeypatch.setattr(module, "LONGEST_WAIT_SECONDS", 0.02)
    path = tmp_path / "turns"
    stopped = os.open(path, os.O_RDWR | os.O_CREAT)
    assert module._lock(stopped, 0)
    before = descriptors()
    with host_queue(path)() as waited:
        assert waited is False
        assert drawn(path) == 0
    assert descriptors() == before
    os.close(stopped)
    with host_queue(path)():
        assert drawn(path) == 1
