"""The lock between the processes and threads of one host."""

import errno
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType

import filelock
import pyarrow as pa
import pytest

import refimpl
from refimpl.protocol.errors import OwnerUnavailableError
from refimpl.storage import environment
from refimpl.storage import host_queue as module
from refimpl.storage.environment import host_lock
from refimpl.storage.host_queue import host_queue


def test_a_lock_that_is_held_too_long_is_an_error(tmp_path: Path) -> None:
    holder, other = host_lock(tmp_path / "lock"), host_lock(tmp_path / "lock", timeout=lambda: 0.01)
    with other():
        pass
    with holder(), pytest.raises(OwnerUnavailableError) as caught, other():
        pytest.fail("two hold the lock")
    assert caught.value.path == str(tmp_path / "lock")


def test_lock_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OwnerUnavailableError), host_lock(tmp_path / "file" / "lock")():
        pytest.fail("there is no lock")


def test_removed_lock_file_is_created_again(tmp_path: Path) -> None:
    lock, other = host_lock(tmp_path / "lock"), host_lock(tmp_path / "lock", timeout=lambda: 0.0)
    with lock(), lock():
        (tmp_path / "lock").unlink()
    with lock(), pytest.raises(OwnerUnavailableError), other():
        pytest.fail("two hold the lock")
    with other():
        pass


def test_a_lock_leaves_no_descriptor_also_of_a_file_removed_while_it_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file loses its name between opening and locking. Then the lock is taken on the new file of this name."""
    path = tmp_path / "lock"
    taken: list[int] = []

    def take(fd: int, *, blocking: bool) -> bool:
        if not taken:
            path.unlink()
        taken.append(fd)
        return real(fd, blocking=blocking)

    real = filelock.lock_descriptor
    monkeypatch.setattr(filelock, "lock_descriptor", take)
    with host_lock(path)():
        assert len(taken) == 2
        assert os.path.samestat(os.fstat(taken[1]), path.stat())
    assert taken[0] == taken[1], "the first descriptor is closed, so its number is free"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(taken[1])


def test_unreadable_lock_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes may lock this very file."""
    errors = [OSError(5, "Input/output error")]

    def lstat(path: str) -> os.stat_result:
        if errors:
            raise errors.pop()
        return real(path)

    real = os.lstat
    with monkeypatch.context() as patched:
        patched.setattr(os, "lstat", lstat)
        with pytest.raises(OwnerUnavailableError), host_lock(tmp_path / "lock")():
            pytest.fail("the lock may be on another file")
    assert not errors


def test_an_error_of_the_release_is_not_the_error_of_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network file system may report one. The owner reported the commit under the lock as "nothing was committed",
    and the client deleted its data files."""
    real = os.dup2

    def broken(fd: int, fd2: int, inheritable: bool = True) -> None:
        real(fd, fd2, inheritable)
        raise OSError(errno.EIO, "Input/output error")

    with refimpl.open(tmp_path / "lake", create=True) as warehouse, monkeypatch.context() as patched:
        table = warehouse.create_table("orders", pa.schema({"id": pa.int64()}))
        patched.setattr(os, "dup2", broken)
        table.append(pa.table({"id": [1]}))
        assert table.snapshot().to_arrow()["id"].to_pylist() == [1]


def test_an_error_of_the_queue_is_not_the_error_of_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.close

    def broken(fd: int) -> None:
        real(fd)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "close", broken)
        with host_queue(tmp_path / "turns")() as waited:
            assert waited is False


def test_an_interruption_at_any_line_leaves_the_lock_free(tmp_path: Path) -> None:
    """Ctrl-C at every call, line and return of the functions that take the lock and release it. A console keeps the
    interruption for a post-mortem."""
    lock, other = host_lock(tmp_path / "lock"), host_lock(tmp_path / "lock", timeout=lambda: 0.0)
    lines, left = 0, False
    interrupted_in: set[str] = set()
    kept = None

    def lock_from_elsewhere() -> None:
        with other():
            pass

    def interrupt(frame: FrameType, event: str, _argument: object) -> object:
        nonlocal lines
        if frame.f_code.co_filename != environment.__file__:
            return None
        if event != "return" or frame.f_code.co_name not in ("_locked", "held"):  # signals are not checked there
            lines += 1
            if lines == at:
                interrupted_in.add(frame.f_code.co_name)
                raise KeyboardInterrupt
        return interrupt

    at = 0
    while not left:
        at, lines = at + 1, 0
        sys.settrace(interrupt)
        try:
            with lock():
                pass
            left = True
        except KeyboardInterrupt as interruption:
            kept = interruption
        finally:
            sys.settrace(None)
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(lock_from_elsewhere).exception() is None, f"event {at}: {kept!r}"
    assert {"held", "_locked", "_open", "_lock", "take", "_is_named", "flush"} <= interrupted_in


def test_lock_creates_no_missing_folder(tmp_path: Path) -> None:
    lock = host_lock(tmp_path / "owner" / "lock")
    (tmp_path / "owner").mkdir()
    with lock():
        (tmp_path / "owner").rename(tmp_path / "moved")
    with pytest.raises(OwnerUnavailableError), lock():
        pytest.fail("there is no lock")
    assert [path.name for path in tmp_path.iterdir()] == ["moved"]


def test_lock_does_not_survive_in_a_forked_child(tmp_path: Path) -> None:
    """The holder of the lock dies, and a child that it forked continues."""
    stop_out, stop_in = os.pipe()
    holder = os.fork()
    if holder == 0:
        with host_lock(tmp_path / "lock")():
            if os.fork() == 0:
                os.close(stop_in)
                os.read(stop_out, 1)
            os._exit(0)
    os.close(stop_out)
    os.waitpid(holder, 0)
    with host_lock(tmp_path / "lock", timeout=lambda: 20.0)():
        os.close(stop_in)


def test_a_child_forked_under_the_lock_does_not_release_it(tmp_path: Path) -> None:
    lock, other = host_lock(tmp_path / "lock"), host_lock(tmp_path / "lock", timeout=lambda: 0.0)
    with lock():
        child = os.fork()
        if child:
            assert os.waitpid(child, 0)[1] == 0
            with pytest.raises(OwnerUnavailableError), other():
                pytest.fail("two hold the lock")
    if not child:
        try:
            with pytest.raises(OwnerUnavailableError), other():
                os._exit(1)
            os._exit(0)
        finally:
            os._exit(2)


def test_a_lock_is_free_after_its_release_although_a_fork_copied_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread forks just after the file was opened, before this process knows the descriptor."""
    lock, other = host_lock(tmp_path / "lock"), host_lock(tmp_path / "lock", timeout=lambda: 0.0)
    stop_out, stop_in = os.pipe()
    real = os.open
    children: list[int] = []

    def fork_after_open(path: str, flags: int, mode: int = 0o777) -> int:
        fd = real(path, flags, mode)
        if not children:
            children.append(os.fork())
            if not children[0]:
                os.close(stop_in)
                os.read(stop_out, 1)
                os._exit(0)
        return fd

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", fork_after_open)
        with lock():
            pass
    with other():
        pass
    os.close(stop_in)
    os.close(stop_out)
    os.waitpid(children[0], 0)


# The queue of a table's writers: first come, first served, and dead writers are skipped

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs open-file-description locks")


def drawn(path: Path) -> int:
    """The number of tickets drawn so far."""
    return int.from_bytes(path.read_bytes()[:8].ljust(8, b"\0"), "little") if path.exists() else 0


def handed_back(path: Path) -> int:
    """The newest returned ticket."""
    return int.from_bytes(path.read_bytes()[8:16].ljust(8, b"\0"), "little")


def descriptors() -> int:
    """The number of open descriptors of this process."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


class Writer(threading.Thread):
    """Takes a turn, records it in `order`, and keeps it until the test releases the writer."""

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
            self.may_go.wait(120)


def queued(path: Path, names: str) -> tuple[list[Writer], list[str]]:
    """Writers in the queue, in this order. Each draws its ticket before the next writer starts."""
    order: list[str] = []
    writers = [Writer(path, name, order) for name in names]
    for number, writer in enumerate(writers, 1):
        writer.start()
        while drawn(path) < number:
            writer.join(0.001)
    return writers, order


def test_writers_take_turns_in_the_order_of_their_tickets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_WAIT_SECONDS", 600)
    before = descriptors()
    writers, order = queued(tmp_path / "turns", "abcd")
    for number, writer in enumerate(writers, 1):
        assert writer.has_turn.wait(120)
        assert order == list("abcd")[:number]
        assert handed_back(tmp_path / "turns") == max(0, number - 2)
        writer.may_go.set()
        writer.join(20)
        assert descriptors() == before + len(writers) - number, "the turn does not end, and the next writer waits"
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


def test_a_slow_turn_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_WAIT_SECONDS", 0.02)
    writers, _ = queued(tmp_path / "turns", "a")
    assert writers[0].has_turn.wait(120)
    with host_queue(tmp_path / "turns")() as waited:
        assert waited is True
    writers[0].may_go.set()
    writers[0].join(20)


def test_missing_queue_file_stops_no_writer(tmp_path: Path) -> None:
    before = descriptors()
    with host_queue(tmp_path / "no-such-folder" / "turns")() as waited:
        assert waited is False
    with host_queue(tmp_path / "turns")():
        assert descriptors() == before + 1
    assert descriptors() == before


@pytest.mark.parametrize("ticket", [2**62, 2**63, 2**64 - 1])
def test_damaged_queue_file_stops_no_writer(tmp_path: Path, ticket: int) -> None:
    (tmp_path / "turns").write_bytes(ticket.to_bytes(8, "little") * 2)
    for number in (1, 2):
        with host_queue(tmp_path / "turns")() as waited:
            assert waited is False
        assert drawn(tmp_path / "turns") == number


@pytest.mark.parametrize("size", [0, 16])
def test_writer_waits_its_time_for_a_turn_in_a_damaged_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """With the counters 2**61 and 0, the other writers are taken for 2**61; and then it is cut to `size`."""
    monkeypatch.setattr(module, "LONGEST_WAIT_SECONDS", 0.02)
    path = tmp_path / "turns"
    path.write_bytes((2**61).to_bytes(16, "little"))
    await_turn = module._await

    def cut(fd: int, ticket: int) -> bool:
        os.truncate(path, size)
        return await_turn(fd, ticket)

    with host_queue(path)():
        monkeypatch.setattr(module, "_await", cut)
        with host_queue(path)() as waited:
            assert waited is True


def test_no_writer_waits_on_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    def lock(fd: int, kind: int, start: int, length: int) -> None:
        tries.append(start)
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(module, "LONGEST_WAIT_SECONDS", 0.02)
    monkeypatch.setattr(module, "lock_description", lock)
    with host_queue(tmp_path / "turns")() as waited:
        assert waited is False
    assert tries == [0]


def test_drawn_ticket_is_locked_before_the_next_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the next writer would take the queue for empty."""
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
    """Another process was stopped while it drew its ticket."""
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
