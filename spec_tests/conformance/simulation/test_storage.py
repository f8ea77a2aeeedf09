"""The disk model does what POSIX promises, and no more: names and contents become durable by their own fsync only."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from conformance.simulation.effects import Effect, Kind, Moment
from conformance.simulation.files import SimulatedFiles
from conformance.simulation.storage import Disk

LOG = Path("/log")


@pytest.fixture
def files() -> SimulatedFiles:
    found = SimulatedFiles(Disk())
    found.make_directory(LOG)
    found.fsync_directory(Path("/"))
    return found


def write(files: SimulatedFiles, name: str, content: bytes, *, synced: bool = True) -> Path:
    path = LOG / name
    with files.create(path) as file:
        file.write(content)
        if synced:
            file.fsync()
    return path


def durable_names(files: SimulatedFiles) -> set[str]:
    number = files.disk.find(LOG)
    assert number is not None
    return set(files.disk.snapshot().directories[number])


def test_what_is_written_is_read_before_anything_is_durable(files: SimulatedFiles) -> None:
    path = write(files, "a", b"one", synced=False)
    assert files.read(path) == b"one"
    assert [entry.name for entry in files.list_directory(LOG)] == ["a"]
    assert durable_names(files) == set()


def test_an_fsync_of_a_file_makes_its_content_durable_and_not_its_name(files: SimulatedFiles) -> None:
    path = write(files, "a", b"one")
    number = files.disk.find(path)
    assert number is not None
    assert files.disk.snapshot().files[number] == (b"one", ())
    assert durable_names(files) == set()
    files.fsync_directory(LOG)
    assert durable_names(files) == {"a"}


def test_an_fsync_of_a_directory_makes_names_durable_and_no_content(files: SimulatedFiles) -> None:
    path = write(files, "a", b"one", synced=False)
    files.fsync_directory(LOG)
    number = files.disk.find(path)
    assert number is not None
    durable, unsynced = files.disk.snapshot().files[number]
    assert (durable, len(unsynced)) == (b"", 1)
    files.fsync(path)
    assert files.disk.snapshot().files[number] == (b"one", ())


def test_a_link_is_a_second_name_of_one_file_and_takes_no_name_that_is_there(files: SimulatedFiles) -> None:
    source = write(files, "a", b"one")
    files.link(source, LOG / "b")
    files.unlink(source)
    assert files.read(LOG / "b") == b"one"
    assert files.stat(source) is None
    other = write(files, "c", b"two")
    with pytest.raises(FileExistsError):
        files.link(other, LOG / "b")
    assert files.read(LOG / "b") == b"one"


def test_a_rename_replaces_what_was_there_in_one_step(files: SimulatedFiles) -> None:
    old, new = write(files, "a", b"old"), write(files, "b", b"new")
    files.fsync_directory(LOG)
    files.replace(new, old)
    assert files.read(old) == b"new"
    assert not files.exists(str(new))
    assert len(files.disk.snapshot().renamings) == 1
    files.fsync_directory(LOG)
    assert durable_names(files) == {"a"}


def test_a_rename_of_two_names_of_one_file_does_nothing(files: SimulatedFiles) -> None:
    one = write(files, "a", b"one")
    files.link(one, LOG / "b")
    files.replace(one, LOG / "b")
    assert {entry.name for entry in files.list_directory(LOG)} == {"a", "b"}


def test_a_rename_to_another_directory_becomes_durable_as_a_whole(files: SimulatedFiles) -> None:
    files.make_directory(LOG / "sub")
    source = write(files, "a", b"one")
    files.fsync_directory(LOG)
    files.replace(source, LOG / "sub" / "a")
    files.fsync_directory(LOG / "sub")
    assert durable_names(files) == {"sub"}


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (lambda files: files.read(LOG / "absent"), FileNotFoundError),
        (lambda files: files.read(LOG), IsADirectoryError),
        (lambda files: files.list_directory(LOG / "absent"), FileNotFoundError),
        (lambda files: files.list_directory(LOG / "there"), NotADirectoryError),
        (lambda files: files.create(LOG / "there"), FileExistsError),
        (lambda files: files.create(LOG / "absent" / "a"), FileNotFoundError),
        (lambda files: files.make_directory(LOG), FileExistsError),
        (lambda files: files.unlink(LOG / "absent"), FileNotFoundError),
        (lambda files: files.fsync_directory(LOG / "absent"), FileNotFoundError),
    ],
)
def test_errors_are_those_of_a_file_system(files: SimulatedFiles, wrong: object, kind: type[OSError]) -> None:
    write(files, "there", b"x")
    assert callable(wrong)
    with pytest.raises(kind):
        wrong(files)
    assert [entry.name for entry in files.list_directory(LOG)] == ["there"]


def test_only_an_empty_directory_is_removed(files: SimulatedFiles) -> None:
    files.make_directory(LOG / "sub")
    with files.create(LOG / "sub" / "a"):
        pass
    with pytest.raises(OSError, match="not empty") as refused:
        files.remove_directory(LOG / "sub")
    assert refused.value.errno == errno.ENOTEMPTY
    files.unlink(LOG / "sub" / "a")
    files.remove_directory(LOG / "sub")
    assert files.stat(LOG / "sub") is None


def test_a_failed_sync_is_told_once_and_what_it_lost_stays_lost(files: SimulatedFiles) -> None:
    path = write(files, "a", b"one", synced=False)
    files.disk.failing_sync = files.disk.syncs + 1
    with pytest.raises(OSError, match="Input/output error") as failed:
        files.fsync(path)
    assert failed.value.errno == errno.EIO
    files.fsync(path)
    number = files.disk.find(path)
    assert number is not None
    assert files.disk.snapshot().files[number] == (b"", ())
    assert files.read(path) == b"one"


def test_a_failed_sync_of_a_directory_loses_its_names_and_no_later_ones(files: SimulatedFiles) -> None:
    write(files, "a", b"one", synced=True)
    files.disk.failing_sync = files.disk.syncs + 1
    with pytest.raises(OSError, match="Input/output error"):
        files.fsync_directory(LOG)
    write(files, "b", b"two", synced=True)
    files.fsync_directory(LOG)
    assert durable_names(files) == {"b"}
    assert {entry.name for entry in files.list_directory(LOG)} == {"a", "b"}


def test_every_effect_is_seen_before_and_after() -> None:
    seen: list[Effect] = []
    files = SimulatedFiles(Disk(), hook=seen.append)
    files.make_directory(LOG)
    path = write(files, "a", b"one")
    files.fsync_directory(LOG)
    kinds = [Kind.MAKE_DIRECTORY, Kind.CREATE, Kind.WRITE, Kind.FSYNC, Kind.FSYNC_DIRECTORY]
    assert [(effect.kind, effect.moment) for effect in seen] == [
        (kind, moment) for kind in kinds for moment in (Moment.BEFORE, Moment.AFTER)
    ]
    assert seen[2].target == str(path)
