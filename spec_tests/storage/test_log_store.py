"""Staging, put-if-absent, replacing: the files that become visible, and the order in which they become durable. Each
sync reaches the kernel, for exactly this file or directory.
"""

import errno
import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random
from typing import cast

import pytest

from conformance.simulation.disk import Disk, PowerCut, SimulatedFiles
from conformance.simulation.effects import Effect
from refimpl.protocol import log_path
from refimpl.protocol.errors import CorruptLogError, InvalidRequestError
from refimpl.protocol.log_path import MAX_VERSION, SIDECAR_FOLDER
from refimpl.storage.environment import Environment
from refimpl.storage.files import HAS_DESCRIPTION_LOCKS, Files, PosixFiles, lock_description, reserve_private
from refimpl.storage.locations import OWNER_FOLDER
from refimpl.storage.log_store import LogStore
from refimpl.warehouse import make_folders
from spec_tests.support.builders import new_attempt
from spec_tests.support.faults import Faults, disk_is_full

FOLDER = "_staged_commits"
TEMPORARY = ["create temporary", "write temporary", "fsync temporary"]


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def log(tmp_path: Path, faults: Faults) -> LogStore:
    store = LogStore(tmp_path / "table", faults.environment())
    store.create_folders(FOLDER)
    faults.seen.clear()
    return store


def test_a_checkpoint_proves_its_own_version(log: LogStore) -> None:
    log.overwrite(log_path.classic_checkpoint(3), b"x")
    assert [log.in_checkpoint(version) for version in (2, 3, 4)] == [True, True, False]
    assert log.newest_version() == 3
    log.put_if_absent(log_path.commit(4), b"x")
    assert (log.newest_version(), log.in_checkpoint(4)) == (4, False)


def broken(log: LogStore, **how: object) -> LogStore:
    return LogStore(log.location, Faults(**how).environment())  # type: ignore[arg-type]


def test_folders_are_durable_from_the_outside_in(tmp_path: Path, faults: Faults) -> None:
    store = LogStore(tmp_path / "a" / "b" / "table", faults.environment())
    store.create_folders(FOLDER)
    made = ["a", "b", "table", "_delta_log", FOLDER]
    parents = [tmp_path.name.split("-")[0], *made]
    expected = [
        step for parent, name in zip(parents, made, strict=False) for step in (f"mkdir {name}/", f"fsync {parent}/")
    ]
    assert faults.seen == expected
    faults.seen.clear()
    store.create_folders(FOLDER)
    assert [step for step in faults.seen if step.startswith("fsync")] == [f"fsync {p}/" for p in parents[2:5]]


def test_a_staging_folder_is_made_when_it_is_missing(tmp_path: Path) -> None:
    store = LogStore(tmp_path / "table", Environment())
    name = store.stage("_commits", 0, new_attempt(), b"x")
    assert store.read_staged("_commits", name) == b"x"


def test_attempt_stages_only_one_file(log: LogStore) -> None:
    attempt = new_attempt()
    log.stage(FOLDER, 7, attempt, b"x")
    with pytest.raises(FileExistsError):
        log.stage(FOLDER, 7, attempt, b"y")
    assert log.read_staged(FOLDER, log_path.staged_commit(7, attempt)) == b"x"
    with pytest.raises(InvalidRequestError):
        log.stage(FOLDER, 7, "../../evil", b"x")


@pytest.mark.parametrize("effect", [1, 2, 3])
def test_staged_file_is_removed_if_it_cannot_be_made_durable(log: LogStore, effect: int) -> None:
    """A writer never proposes a name whose bytes may be lost. The next attempt has another name."""
    with pytest.raises(OSError, match="No space left"):
        broken(log, fail_from=effect, fail_count=1, error=disk_is_full).stage(FOLDER, 7, new_attempt(), b"x")
    assert log.staged_listing(FOLDER) == []


def test_only_equal_bytes_can_be_published_twice(log: LogStore, faults: Faults) -> None:
    """STORAGE.md#failed-fsync: the file is rewritten, because after a failed fsync, another fsync may succeed without
    writing."""
    log.publish(3, b"x")
    before = (log.folder / log_path.commit(3)).stat().st_ino
    faults.seen.clear()
    log.publish(3, b"x")
    assert (log.folder / log_path.commit(3)).stat().st_ino != before
    assert faults.seen[-5:] == [*TEMPORARY, "replace 3.json", "fsync _delta_log/"]
    with pytest.raises(CorruptLogError) as caught:
        log.publish(3, b"y")
    assert caught.value.version == 3
    assert log.holds(log_path.commit(3), b"x")
    (log.folder / log_path.commit(4)).mkdir()
    with pytest.raises(CorruptLogError):
        log.publish(4, b"x")


def test_replaced_file_is_completely_old_or_new(log: LogStore, faults: Faults) -> None:
    log.overwrite("_last_checkpoint", b"old")
    faults.seen.clear()
    log.overwrite("_last_checkpoint", b"new")
    assert faults.seen == [*TEMPORARY, "replace _last_checkpoint", "fsync _delta_log/"]
    for effect in range(1, 5):
        with pytest.raises(OSError, match="No space left"):
            broken(log, fail_from=effect, fail_count=1).overwrite("_last_checkpoint", b"newer")
        assert log.read("_last_checkpoint") == b"new"
        assert log.temporaries() == []


ATTEMPT = "3a0d65cd-4056-49b8-937b-95f9e3ee90e5"
STAGED = log_path.staged_commit(7, ATTEMPT)
COMMIT = log_path.commit(7)


EFFECTS: dict[str, tuple[str, Callable[[LogStore], object]]] = {
    "folders": ("", lambda log: log.create_folders(FOLDER)),
    "location": ("", lambda log: log.create_location()),
    "stage": ("", lambda log: log.stage(FOLDER, 7, ATTEMPT, b"x")),
    "stage again": ("stage", lambda log: log.stage_again(FOLDER, STAGED, b"x")),
    "make staged durable": ("stage", lambda log: log.make_staged_durable(FOLDER, STAGED)),
    "put": ("folders", lambda log: log.put_if_absent(COMMIT, b"x")),
    "put over a file": ("folders put", lambda log: log.put_if_absent(COMMIT, b"y")),
    "put once": ("folders put", lambda log: log.put_once(COMMIT, b"x")),
    "publish": ("folders put", lambda log: log.publish(7, b"x")),
    "overwrite": ("folders put", lambda log: log.overwrite(COMMIT, b"y")),
    "delete": ("folders put", lambda log: log.delete(COMMIT)),
    "sync": ("folders", lambda log: log.sync()),
}
"""The steps before a call, and the call."""


@pytest.mark.parametrize(("prepare", "act"), EFFECTS.values(), ids=EFFECTS)
def test_each_failed_effect_is_an_error(tmp_path: Path, prepare: str, act: Callable[[LogStore], object]) -> None:
    """Except a failed removal of a file that this call did not complete."""

    def prepared(number: int, faults: Faults) -> LogStore:
        log = LogStore(tmp_path / str(number) / "table", Environment())
        for step in prepare.split():
            if step == "folders":
                log.create_folders()
            elif step == "put":
                log.put_if_absent(COMMIT, b"x")
            else:
                log.stage(FOLDER, 7, ATTEMPT, b"x")
        return LogStore(log.location, faults.environment())

    good = Faults()
    act(prepared(0, good))
    assert good.seen
    for number, effect in enumerate(good.seen, start=1):
        log = prepared(number, Faults(fail_from=number, fail_count=1))
        if effect in ("unlink temporary", "unlink staged"):
            act(log)
        else:
            with pytest.raises(OSError, match="No space left"):
                act(log)


def test_unreadable_disk_is_an_error_and_no_empty_log(log: LogStore) -> None:
    log.put_if_absent(COMMIT, b"x")
    unreadable = broken(log, fail_from=1, fail_reads=True)
    for look in (unreadable.listing, unreadable.sidecars, lambda: unreadable.bytes_or_none(COMMIT)):
        with pytest.raises(OSError, match="No space left"):
            look()


def test_a_listing_shows_log_files_and_nothing_staged(log: LogStore) -> None:
    """FB05: a reader must not take a staged file for a commit."""
    log.stage(FOLDER, 1, new_attempt(), b"staged")
    for name in (log_path.commit(1), log_path.commit(0), log_path.checksum(1), log_path.classic_checkpoint(0)):
        log.put_if_absent(name, b"xy")
    (log.folder / "notes.txt").write_text("x")
    (log.folder / log_path.commit(2)).mkdir()
    (log.folder / FOLDER / log_path.staged_commit(2, new_attempt())).mkdir()
    listing = log.listing()
    assert [path.name for path in listing] == sorted(
        [log_path.commit(0), log_path.classic_checkpoint(0), log_path.checksum(1), log_path.commit(1)],
        key=lambda name: (name[:20], name),
    )
    assert all(path.size == 2 and path.modified > 0 for path in listing)
    assert [path.version for path in log.staged_listing(FOLDER)] == [1]


def test_the_newest_part_begins_at_the_newest_complete_checkpoint(log: LogStore) -> None:
    """Of the parts of a checkpoint, one may be missing."""
    new = [log_path.classic_checkpoint(2), log_path.commit(2), log_path.checkpoint_part(3, 1, 2)]
    for name in (log_path.commit(0), log_path.classic_checkpoint(1), log_path.commit(1), *new, "x.checkpoint.parquet"):
        log.put_if_absent(name, b"x")
    assert [path.name for path in log.listing(newest=True)] == new
    for name in (log_path.classic_checkpoint(1), log_path.classic_checkpoint(2)):
        (log.folder / name).unlink()
    assert log.listing(newest=True) == log.listing()


def test_a_log_that_does_not_exist_is_empty(tmp_path: Path) -> None:
    store = LogStore(tmp_path / "nothing", Environment())
    assert store.listing() == []
    assert store.staged_listing(FOLDER) == []
    assert not store.published(0)
    assert store.modified(log_path.commit(0)) is None
    assert store.staged_size(FOLDER, log_path.staged_commit(0, new_attempt())) is None
    with pytest.raises(FileNotFoundError):
        store.read(log_path.commit(0))
    store.delete(log_path.commit(0))


def test_no_version_is_published_after_a_gap(log: LogStore) -> None:
    log.put_if_absent(log_path.commit(MAX_VERSION), b"x")
    assert log.published(MAX_VERSION)
    assert not log.published(MAX_VERSION + 1)


# A power cut at each effect, on a simulated disk: finished work stays, and other files are complete or absent

STAGING = "_staged_commits"
STAGED_3 = log_path.staged_commit(3, ATTEMPT)
COMMIT_3 = log_path.commit(3)
OLD, NEW = b"old" * 600, b"new!" * 500
"""Contents longer than a sector, so that a power cut can tear them."""
LOCATION = Path("/warehouse/of/tables/orders")


@dataclass(frozen=True)
class Host:
    """A log on a simulated disk."""

    disk: Disk
    files: SimulatedFiles
    log: LogStore

    @property
    def folder(self) -> Path:
        return self.log.folder

    def write(self, path: Path, content: bytes = NEW) -> None:
        """Write a file as another writer, without a sync."""
        with self.files.create(path) as file:
            file.write(content)

    def write_in_vain(self, path: Path) -> None:
        """Write a file as another writer whose fsync fails: no later fsync makes the file durable."""
        self.disk.failing_sync = self.disk.syncs + 1
        with self.files.create(path) as file, pytest.raises(OSError, match="error"):
            file.write(NEW)
            file.fsync()


def host(disk: Disk | None = None, hook: Callable[[Effect], None] = lambda _: None) -> Host:
    disk = disk or Disk()
    files, numbers = SimulatedFiles(disk, hook=hook), count(1)
    environment = Environment(files=cast("Files", files), new_id=lambda: f"temporary-{next(numbers)}")
    return Host(disk, files, LogStore(LOCATION, environment))


def nothing(_: Host) -> None:
    """The folder is empty."""


def unsynced_sidecar(at: Host) -> None:
    at.files.make_directory(at.folder / SIDECAR_FOLDER)
    at.write(at.folder / SIDECAR_FOLDER / "1.parquet")


@dataclass(frozen=True, kw_only=True)
class Case:
    """`act` leaves the content `after` at `path`, durably. A power cut during `act` leaves one of `meanwhile` (None: no
    file)."""

    act: Callable[[LogStore], object]
    path: str
    before: Callable[[Host], None] = nothing
    """Writes of other processes, without a sync."""
    durable: bool = False
    """Whether the writes of `before` are durable."""
    meanwhile: tuple[bytes | None, ...] | None = None
    """None: any content, because no other process knows the name yet."""
    after: bytes | None = NEW
    folders: bool = True


def writes(path: str, content: bytes = NEW) -> Callable[[Host], None]:
    return lambda at: at.write(at.folder / path, content)


def writes_in_vain(path: str) -> Callable[[Host], None]:
    return lambda at: at.write_in_vain(at.folder / path)


FILE = f"{STAGING}/{STAGED_3}"
SIDECAR = f"{SIDECAR_FOLDER}/1.parquet"
CASES = {
    **{
        name: Case(act=lambda log: log.stage(STAGING, 3, ATTEMPT, NEW), path=FILE, folders=folders)
        for name, folders in (("stage", True), ("stage without folders", False))
    },
    **{
        f"stage {name} again": Case(
            act=lambda log: log.stage_again(STAGING, STAGED_3, NEW), path=FILE, before=before, durable=bool(meanwhile),
            meanwhile=meanwhile,
        )
        for name, before, meanwhile in (
            ("an unsynced file", writes(FILE), None),
            ("a file with a failed sync", writes_in_vain(FILE), None),
            ("a durable file", writes(FILE), (NEW,)),
        )
    },
    "make an engine's staged file durable": Case(
        act=lambda log: log.make_staged_durable(STAGING, STAGED_3), path=FILE, before=writes(FILE)
    ),
    "put": Case(act=lambda log: log.put_if_absent(COMMIT_3, NEW), path=COMMIT_3, meanwhile=(None, NEW)),
    "put after another writer": Case(
        act=lambda log: log.put_if_absent(COMMIT_3, NEW), path=COMMIT_3, before=writes(COMMIT_3, OLD), after=OLD
    ),
    "put a file with a failed sync again": Case(
        act=lambda log: log.put_once(COMMIT_3, NEW), path=COMMIT_3, before=writes_in_vain(COMMIT_3)
    ),
    "publish": Case(act=lambda log: log.publish(3, NEW), path=COMMIT_3, meanwhile=(None, NEW)),
    "publish an existing file": Case(act=lambda log: log.publish(3, NEW), path=COMMIT_3, before=writes(COMMIT_3)),
    "publish a file with a failed sync": Case(
        act=lambda log: log.publish(3, NEW), path=COMMIT_3, before=writes_in_vain(COMMIT_3)
    ),
    "sync the newest commit of another writer": Case(
        act=lambda log: log.sync_newest(), path=COMMIT_3, before=writes(COMMIT_3)
    ),
    "sync a sidecar of another writer": Case(act=lambda log: log.sync_newest(), path=SIDECAR, before=unsynced_sidecar),
    "write a sidecar": Case(act=lambda log: (log.write_sidecar("1.parquet", NEW), log.sync_sidecars()), path=SIDECAR),
    "overwrite": Case(
        act=lambda log: log.overwrite("_last_checkpoint", NEW), path="_last_checkpoint",
        before=writes("_last_checkpoint", OLD), durable=True, meanwhile=(OLD, NEW),
    ),
    "delete": Case(
        act=lambda log: (log.delete(COMMIT_3), log.sync()), path=COMMIT_3, before=writes(COMMIT_3), durable=True,
        meanwhile=(None, NEW), after=None,
    ),
}  # fmt: skip


def left(disk: Disk) -> Iterator[Disk]:
    """The disks that a power cut may leave, at most some hundreds."""
    for tree in PowerCut(disk.snapshot()).disks(Random(1), limit=300):
        yield Disk.holding(tree, now=0)


def content_of(disk: Disk, path: Path) -> bytes | None:
    return bytes(disk.file(path).content) if disk.find(path) is not None else None


@pytest.mark.parametrize("name", CASES)
def test_power_cut_leaves_complete_files_or_none(name: str) -> None:
    case, moments = CASES[name], list[Disk]()
    at = host()
    if case.folders:
        at.log.create_folders(STAGING)
    at.disk.sync_everything()
    case.before(at)
    if case.durable:
        at.disk.sync_everything()
    log = host(at.disk, lambda _: moments.append(at.disk.copy())).log
    case.act(log)
    assert {content_of(disk, at.folder / case.path) for disk in left(at.disk)} == {case.after}
    if case.meanwhile is not None:
        seen = {content_of(disk, at.folder / case.path) for moment in moments for disk in left(moment)}
        assert seen == set(case.meanwhile)
    assert len(moments) > 2
    assert [entry for folder in ("", STAGING) for entry in names(at, folder) if entry.startswith(".tmp-")] == []


def names(at: Host, folder: str) -> list[str]:
    return [entry.name for entry in at.files.list_directory(at.folder / folder)]


def test_folders_of_a_new_warehouse_are_durable() -> None:
    at, folder = host(), LOCATION / OWNER_FOLDER
    make_folders(folder, at.log.environment)
    assert all(disk.find(folder) is not None for disk in left(at.disk))
    syncs = at.disk.syncs
    assert syncs == len(folder.parents)
    for number in range(1, syncs + 1):
        at = host()
        at.disk.failing_sync = number
        with pytest.raises(OSError, match="error"):
            make_folders(folder, at.log.environment)


def test_unsynced_folders_of_others_are_made_durable() -> None:
    at = host()
    for folder in (*reversed(LOCATION.parents[:-1]), LOCATION, at.folder, at.folder / STAGING):
        at.files.make_directory(folder)
    at.disk.sync_directory("/")
    for parent in reversed(LOCATION.parents[1:-1]):
        at.disk.sync_directory(parent)
    at.log.create_folders(STAGING)
    assert all(disk.find(at.folder / STAGING) is not None for disk in left(at.disk))


def test_another_writers_file_is_durable_before_it_is_reported() -> None:
    at = host()
    at.log.create_folders(STAGING)
    at.disk.sync_everything()
    at.write(at.folder / COMMIT_3, OLD)
    with pytest.raises(CorruptLogError):
        at.log.publish(3, NEW)
    assert {content_of(disk, at.folder / COMMIT_3) for disk in left(at.disk)} == {OLD}


# The host's files: each sync reaches the kernel


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
