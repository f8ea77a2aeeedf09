"""What `LogStore` has done stays done when the power goes, and what it was doing is there whole or not at all.

Each operation runs on a simulated disk. At each of its effects the power goes, and every disk that this may leave is
looked at: what was synced, with any part of what was not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random
from typing import cast

import pytest

from conformance.simulation.disk import Disk, SimulatedFiles
from conformance.simulation.effects import Effect
from conformance.simulation.power_cut import PowerCut
from refimpl import log_path
from refimpl.environment import Environment
from refimpl.errors import CorruptLogError
from refimpl.files import Files
from refimpl.log_store import LogStore
from refimpl.owner.local import OWNER_FOLDER
from refimpl.warehouse import _make_folders

STAGING = "_staged_commits"
ATTEMPT = "3a0d65cd-4056-49b8-937b-95f9e3ee90e5"
STAGED = log_path.staged_commit(3, ATTEMPT)
COMMIT = log_path.commit(3)
OLD, NEW = b"old" * 600, b"new!" * 500
"""Each longer than a sector, so that it can be torn."""
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
        """A file of another writer, not synced."""
        with self.files.create(path) as file:
            file.write(content)

    def write_in_vain(self, path: Path) -> None:
        """A file of another writer whose fsync failed: no later fsync makes it durable."""
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


@dataclass(frozen=True, kw_only=True)
class Case:
    """`act` leaves `after` at `path`, permanently; while it goes on, one of `meanwhile` is there (None: nothing is)."""

    act: Callable[[LogStore], object]
    path: str
    before: Callable[[Host], None] = nothing
    """What others did, and did not sync."""
    durable: bool = False
    """Whether that was long ago."""
    meanwhile: tuple[bytes | None, ...] | None = None
    """None: anything, because nobody knows the name yet."""
    after: bytes | None = NEW
    folders: bool = True


CASES = {
    "stage": Case(act=lambda log: log.stage(STAGING, 3, ATTEMPT, NEW), path=f"{STAGING}/{STAGED}"),
    "stage, where the folders are gone": Case(
        act=lambda log: log.stage(STAGING, 3, ATTEMPT, NEW), path=f"{STAGING}/{STAGED}", folders=False
    ),
    "stage again what was not synced": Case(
        before=lambda at: at.write(at.folder / STAGING / STAGED),
        act=lambda log: log.stage_again(STAGING, STAGED, NEW),
        path=f"{STAGING}/{STAGED}",
    ),
    "stage again what cannot be synced": Case(
        before=lambda at: at.write_in_vain(at.folder / STAGING / STAGED),
        act=lambda log: log.stage_again(STAGING, STAGED, NEW),
        path=f"{STAGING}/{STAGED}",
    ),
    "stage again what is durable": Case(
        before=lambda at: at.write(at.folder / STAGING / STAGED),
        durable=True,
        act=lambda log: log.stage_again(STAGING, STAGED, NEW),
        path=f"{STAGING}/{STAGED}",
        meanwhile=(NEW,),
    ),
    "what an engine staged": Case(
        before=lambda at: at.write(at.folder / STAGING / STAGED),
        act=lambda log: log.make_staged_durable(STAGING, STAGED),
        path=f"{STAGING}/{STAGED}",
    ),
    "put": Case(act=lambda log: log.put_if_absent(COMMIT, NEW), path=COMMIT, meanwhile=(None, NEW)),
    "put, where another writer was first": Case(
        before=lambda at: at.write(at.folder / COMMIT, OLD),
        act=lambda log: log.put_if_absent(COMMIT, NEW),
        path=COMMIT,
        after=OLD,
    ),
    "publish": Case(act=lambda log: log.publish(3, NEW), path=COMMIT, meanwhile=(None, NEW)),
    "publish what is there": Case(
        before=lambda at: at.write(at.folder / COMMIT), act=lambda log: log.publish(3, NEW), path=COMMIT
    ),
    "publish what is in doubt": Case(
        before=lambda at: at.write_in_vain(at.folder / COMMIT),
        act=lambda log: log.publish(3, NEW),
        path=COMMIT,
    ),
    "put again what is in doubt": Case(
        before=lambda at: at.write_in_vain(at.folder / COMMIT),
        act=lambda log: log.put_once(COMMIT, NEW),
        path=COMMIT,
    ),
    "make durable what is in doubt": Case(
        before=lambda at: at.write_in_vain(at.folder / COMMIT),
        act=lambda log: log.make_durable(COMMIT),
        path=COMMIT,
    ),
    "overwrite": Case(
        before=lambda at: at.write(at.folder / "_last_checkpoint", OLD),
        durable=True,
        act=lambda log: log.overwrite("_last_checkpoint", NEW),
        path="_last_checkpoint",
        meanwhile=(OLD, NEW),
    ),
    "another writer's file": Case(
        before=lambda at: at.write(at.folder / COMMIT), act=lambda log: log.make_durable(COMMIT), path=COMMIT
    ),
    "delete": Case(
        before=lambda at: at.write(at.folder / COMMIT),
        durable=True,
        act=lambda log: (log.delete(COMMIT), log.sync()),
        path=COMMIT,
        meanwhile=(None, NEW),
        after=None,
    ),
}


def left(disk: Disk) -> Iterator[Disk]:
    """Every disk that a power cut may leave, up to some hundreds."""
    for tree in PowerCut(disk.snapshot()).disks(Random(1), limit=300):
        yield Disk.holding(tree, now=0)


def found(disk: Disk, path: Path) -> bytes | None:
    return bytes(disk.file(path).content) if disk.find(path) is not None else None


@pytest.mark.parametrize("name", CASES)
def test_a_power_cut_leaves_whole_files_or_none(name: str) -> None:
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
    assert {found(disk, at.folder / case.path) for disk in left(at.disk)} == {case.after}
    if case.meanwhile is not None:
        seen = {found(disk, at.folder / case.path) for moment in moments for disk in left(moment)}
        assert seen == set(case.meanwhile)
    assert len(moments) > 2
    assert [entry for folder in ("", STAGING) for entry in names(at, folder) if entry.startswith(".tmp-")] == []


def names(at: Host, folder: str) -> list[str]:
    return [entry.name for entry in at.files.list_directory(at.folder / folder)]


def test_folders_stay_and_those_above_them() -> None:
    at = host()
    at.log.create_folders(STAGING)
    assert all(disk.find(at.folder / STAGING) is not None for disk in left(at.disk))
    at = host()
    at.log.create_folders()
    assert all(disk.find(at.folder) is not None for disk in left(at.disk))
    assert at.disk.find(at.folder / STAGING) is None


def test_the_folders_of_a_new_warehouse_stay() -> None:
    at, folder = host(), LOCATION / OWNER_FOLDER
    _make_folders(folder, at.log.environment)
    assert all(disk.find(folder) is not None for disk in left(at.disk))
    syncs = at.disk.syncs
    assert syncs == len(folder.parents)
    for number in range(1, syncs + 1):
        at = host()
        at.disk.failing_sync = number
        with pytest.raises(OSError, match="error"):
            _make_folders(folder, at.log.environment)


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
    at.write(at.folder / COMMIT, OLD)
    with pytest.raises(CorruptLogError):
        at.log.publish(3, NEW)
    assert {found(disk, at.folder / COMMIT) for disk in left(at.disk)} == {OLD}
