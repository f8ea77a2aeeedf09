"""The lock between the processes and threads of one host."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType

import filelock
import pytest

from refimpl import environment
from refimpl.environment import host_lock
from refimpl.errors import OwnerUnavailableError


def test_a_lock_that_is_held_too_long_is_an_error(tmp_path: Path) -> None:
    holder, other = host_lock(tmp_path / "lock"), host_lock(tmp_path / "lock", timeout=lambda: 0.01)
    with other():
        pass
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with holder():
            held.set()
            assert done.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert held.wait(30)
        with pytest.raises(OwnerUnavailableError) as caught, other():
            pytest.fail("two hold the lock")
        assert caught.value.path == str(tmp_path / "lock")
    finally:
        done.set()
        thread.join()


def test_a_lock_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OwnerUnavailableError), host_lock(tmp_path / "file" / "lock")():
        pytest.fail("locked nothing")


def test_a_removed_lock_file_is_made_anew_and_locks(tmp_path: Path) -> None:
    one, other = host_lock(tmp_path / "lock"), host_lock(tmp_path / "lock", timeout=lambda: 0.0)
    with one(), one():
        (tmp_path / "lock").unlink()
    with one(), pytest.raises(OwnerUnavailableError), other():
        pytest.fail("two hold the lock")
    with other():
        pass


def test_a_lock_file_removed_while_it_is_taken_leaves_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening and locking the file loses its name: the lock is then on the file that has the name."""
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
    assert taken[0] == taken[1], "the first descriptor was closed, so that its number was free"


def test_a_lock_file_that_cannot_be_looked_at_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be the one that other processes lock."""
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


def test_a_released_lock_leaves_no_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def take(fd: int, *, blocking: bool) -> bool:
        taken.append(fd)
        return real(fd, blocking=blocking)

    real = filelock.lock_descriptor
    monkeypatch.setattr(filelock, "lock_descriptor", take)
    with host_lock(tmp_path / "lock")():
        os.fstat(taken[0])
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(taken[0])


def test_an_interruption_at_any_line_leaves_the_lock_free(tmp_path: Path) -> None:
    """Ctrl-C, at every line between the request for the lock and the first line under it."""
    lock, other = host_lock(tmp_path / "lock"), host_lock(tmp_path / "lock", timeout=lambda: 0.0)
    lines = 0

    def lock_from_elsewhere() -> None:
        with other():
            pass

    def interrupt(frame: FrameType, event: str, _argument: object) -> object:
        nonlocal lines
        if frame.f_code.co_filename != environment.__file__ or frame.f_code.co_name == "__exit__":
            return None
        if event in ("line", "return") and (event, frame.f_code.co_name) != ("return", "__enter__"):
            lines += 1
            if lines == at:
                raise KeyboardInterrupt
        return interrupt

    at, entered = 0, False
    while not entered:
        at, lines = at + 1, 0
        sys.settrace(interrupt)
        try:
            with lock():
                entered = True
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(lock_from_elsewhere).exception() is None, f"event {at}"
    assert at > 10


def test_a_lock_whose_folder_is_gone_is_not_made_anew(tmp_path: Path) -> None:
    lock = host_lock(tmp_path / "owner" / "lock")
    (tmp_path / "owner").mkdir()
    with lock():
        (tmp_path / "owner").rename(tmp_path / "moved")
    with pytest.raises(OwnerUnavailableError), lock():
        pytest.fail("locked nothing")
    assert [path.name for path in tmp_path.iterdir()] == ["moved"]


def test_a_lock_does_not_live_on_in_a_forked_child(tmp_path: Path) -> None:
    """Its holder dies, and a child that was forked meanwhile goes on."""
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


def test_a_grandchild_keeps_the_descriptors_of_its_parent(tmp_path: Path) -> None:
    """The copies of the lock's descriptors are closed in the child, and not once more in a child of that."""
    with host_lock(tmp_path / "lock")():
        child = os.fork()
        if child == 0:
            opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(50)]  # one of them has the number of a copy
            grandchild = os.fork()
            if grandchild == 0:
                try:
                    os._exit(not all(os.fstat(fd) for fd in opened))
                finally:
                    os._exit(1)
            os._exit(os.waitpid(grandchild, 0)[1] != 0)
    assert os.waitpid(child, 0)[1] == 0


def test_a_child_forked_under_the_lock_does_not_release_it(tmp_path: Path) -> None:
    one, other = host_lock(tmp_path / "lock"), host_lock(tmp_path / "lock", timeout=lambda: 0.0)
    with one():
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
