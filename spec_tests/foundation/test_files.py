"""The host's files: each sync of a file or directory reaches the kernel, for exactly this file or directory."""

import errno
import fcntl
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from refimpl.files import HAS_DESCRIPTION_LOCKS, PosixFiles, lock_description, reserve_private


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """All syncs: the inode, and the size at the time of the sync."""
    syncs: list[tuple[int, int]] = []

    def fsync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        syncs.append((status.st_ino, status.st_size))

    monkeypatch.setattr(os, "fsync", fsync)
    return syncs


def test_new_file_is_synced_with_all_its_bytes(tmp_path: Path, synced: list[tuple[int, int]]) -> None:
    with PosixFiles().create(tmp_path / "new") as file:
        file.write(b"bytes")
        assert synced == []
        file.fsync()
    assert synced == [((tmp_path / "new").stat().st_ino, 5)]


def test_write_continues_until_every_byte_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may write fewer bytes than requested."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, content: write(fd, content[:3]))
    with PosixFiles().create(tmp_path / "new") as file:
        file.write(b"more than three bytes")
    assert (tmp_path / "new").read_bytes() == b"more than three bytes"


def test_a_failed_sync_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    files = PosixFiles()
    with files.create(tmp_path / "new") as file:
        for sync in (file.fsync, lambda: files.fsync(tmp_path / "new"), lambda: files.fsync_directory(tmp_path)):
            with pytest.raises(OSError, match="Input/output error"):
                sync()


def test_exists_is_false_only_for_a_certainly_missing_name(tmp_path: Path) -> None:
    """If the disk cannot answer, that is an error: the caller must not act as if the name were free."""
    files = PosixFiles()
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, there in (("file", True), ("dangling", True), ("loop", True), ("none", False), ("file/below", False)):
        assert files.exists(f"{tmp_path}/{name}") is there
    for look in (lambda path: files.exists(str(path)), lambda path: files.identity(str(path)), files.stat):
        with pytest.raises(OSError, match="name too long"):
            look(tmp_path / ("n" * 300))
    with pytest.raises(OSError, match="symbolic links"):
        files.list_directory(tmp_path)
    for remove in (files.unlink, reserve_private):
        with pytest.raises(FileNotFoundError):
            remove(tmp_path / "none" / "below")


def test_create_never_opens_an_existing_file(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"bytes")
    with pytest.raises(FileExistsError):
        PosixFiles().create(tmp_path / "there")
    assert (tmp_path / "there").read_bytes() == b"bytes"


def test_listing_skips_a_file_that_disappears(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"bytes")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")  # its status cannot be read
    assert [(entry.name, entry.size) for entry in PosixFiles().list_directory(tmp_path)] == [("there", 5)]


def test_existing_file_and_directory_are_synced(tmp_path: Path, synced: list[tuple[int, int]]) -> None:
    (tmp_path / "there").write_bytes(b"more bytes")
    PosixFiles().fsync(tmp_path / "there")
    PosixFiles().fsync_directory(tmp_path)
    assert [inode for inode, _ in synced] == [(tmp_path / "there").stat().st_ino, tmp_path.stat().st_ino]
    with pytest.raises(NotADirectoryError):
        PosixFiles().fsync_directory(tmp_path / "there")
    assert len(synced) == 2


def _written(path: Path) -> None:
    with PosixFiles().create(path) as file:
        file.write(b"bytes")


@pytest.mark.parametrize(
    "use",
    [_written, lambda path: PosixFiles().fsync(path.parent), lambda path: PosixFiles().fsync_directory(path.parent)],
    ids=["create", "fsync", "fsync_directory"],
)
def test_no_descriptor_stays_open(tmp_path: Path, use: Callable[[Path], None]) -> None:
    before = os.dup(0)  # the lowest free number
    os.close(before)
    use(tmp_path / "new")
    after = os.dup(0)
    os.close(after)
    assert after == before


def test_directories_are_created_and_removed(tmp_path: Path) -> None:
    files = PosixFiles()
    files.make_directory(tmp_path / "made")
    assert (tmp_path / "made").is_dir()
    with pytest.raises(FileExistsError):
        files.make_directory(tmp_path / "made")
    files.remove_directory(tmp_path / "made")
    assert not (tmp_path / "made").exists()


@pytest.mark.skipif(not HAS_DESCRIPTION_LOCKS, reason="this host has no locks of open file descriptions")
def test_a_forked_child_does_not_keep_the_lock_of_its_parent(tmp_path: Path) -> None:
    files, path = PosixFiles(), tmp_path / "database"
    path.write_bytes(b"bytes")
    with files.opening():
        held = files.hold_shared(str(path), 0, 1)
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        theirs.send(b"!")
        theirs.recv(1)
        os._exit(0)
    theirs.close()
    ours.recv(1)
    with files.opening():
        del held
    other = os.open(path, os.O_RDWR)
    try:
        lock_description(other, fcntl.F_WRLCK, 0, 1)
    finally:
        os.close(other)
        ours.close()
        os.waitpid(child, 0)
