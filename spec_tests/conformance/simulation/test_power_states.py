"""A power cut keeps what was synced, and any part of what was not: no more, no less."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from conformance.simulation.files import SimulatedFiles
from conformance.simulation.power_states import PowerCut, identity
from conformance.simulation.storage import SECTOR, Disk, Tree, Truncate, Write

LOG = Path("/log")


@pytest.fixture
def files() -> SimulatedFiles:
    found = SimulatedFiles(Disk())
    found.make_directory(LOG)
    found.fsync_directory(Path("/"))
    return found


def write(files: SimulatedFiles, name: str, content: bytes, *, synced: bool) -> Path:
    with files.create(LOG / name) as file:
        file.write(content)
        if synced:
            file.fsync()
    return LOG / name


def left(files: SimulatedFiles, *, limit: int = 10_000) -> list[dict[str, bytes]]:
    """The log as each power cut may leave it, without repetitions."""
    found: list[dict[str, bytes]] = []
    for tree in PowerCut(files.disk.snapshot()).disks(Random(1), limit=limit):
        log = of(tree)
        if log not in found:
            found.append(log)
    return found


def of(tree: Tree) -> dict[str, bytes]:
    disk = Disk.holding(tree, now=0)
    number = disk.find(LOG)
    if number is None:
        return {}
    return {name: bytes(disk.file(LOG / name).content) for name in disk.names(LOG)}


def test_what_is_synced_with_its_name_is_there_whatever_happens(files: SimulatedFiles) -> None:
    write(files, "a", b"one", synced=True)
    files.fsync_directory(LOG)
    assert left(files) == [{"a": b"one"}]


def test_a_name_that_was_not_synced_is_there_or_not(files: SimulatedFiles) -> None:
    write(files, "a", b"one", synced=True)
    assert left(files) == [{}, {"a": b"one"}]


def test_a_name_without_its_content_may_stand_for_nothing_for_zeros_or_for_all(files: SimulatedFiles) -> None:
    write(files, "a", b"one", synced=False)
    files.fsync_directory(LOG)
    assert left(files) == [{"a": b""}, {"a": b"one"}, {"a": bytes(3)}]


def test_a_write_is_torn_at_a_sector(files: SimulatedFiles) -> None:
    first, second = b"x" * SECTOR, b"y" * 10
    write(files, "a", first + second, synced=False)
    files.fsync_directory(LOG)
    assert {log["a"] for log in left(files)} == {
        b"", first, bytes(SECTOR) + second, first + second, bytes(SECTOR + 10),
    }  # fmt: skip


def test_names_of_different_files_survive_in_any_combination(files: SimulatedFiles) -> None:
    for name in ("a", "b"):
        write(files, name, name.encode(), synced=True)
    assert left(files) == [{}, {"a": b"a"}, {"b": b"b"}, {"a": b"a", "b": b"b"}]


def test_one_name_keeps_the_order_of_its_changes(files: SimulatedFiles) -> None:
    temporary = write(files, "t", b"one", synced=True)
    files.link(temporary, LOG / "a")
    files.unlink(temporary)
    logs = left(files)
    assert {frozenset(log) for log in logs} == {
        frozenset(), frozenset({"t"}), frozenset({"a"}), frozenset({"a", "t"}),
    }  # fmt: skip


def test_a_rename_is_there_as_a_whole_or_not_at_all(files: SimulatedFiles) -> None:
    write(files, "a", b"old", synced=True)
    new = write(files, "b", b"new", synced=True)
    files.fsync_directory(LOG)
    files.replace(new, LOG / "a")
    assert left(files) == [{"a": b"old", "b": b"new"}, {"a": b"new"}]


def test_what_stands_below_a_lost_directory_is_lost(files: SimulatedFiles) -> None:
    files.make_directory(LOG / "sub")
    with files.create(LOG / "sub" / "a") as file:
        file.write(b"one")
        file.fsync()
    files.fsync_directory(LOG / "sub")
    found = [disk.find(LOG / "sub" / "a") is not None for disk in disks(files)]
    assert found == [False, True]


def disks(files: SimulatedFiles) -> list[Disk]:
    return [Disk.holding(tree, now=0) for tree in PowerCut(files.disk.snapshot()).disks(Random(1), limit=100)]


def test_writes_survive_in_any_combination(files: SimulatedFiles) -> None:
    path = write(files, "a", b"....", synced=True)
    files.fsync_directory(LOG)
    number = files.disk.find(path)
    assert number is not None
    for change in (Write(0, b"A"), Write(1, b"B"), Truncate(3)):
        files.disk.change(number, change, now=0)
    assert {log["a"] for log in left(files)} == {
        b"....", b"A...", b".B..", b"AB..", b"...", b"A..", b".B.", b"AB.",
    }  # fmt: skip


def test_beyond_the_limit_the_telling_states_come_first_and_the_seed_decides_the_rest(files: SimulatedFiles) -> None:
    path = write(files, "a", b"", synced=True)
    files.fsync_directory(LOG)
    number = files.disk.find(path)
    assert number is not None
    for at in range(20):
        files.disk.change(number, Write(at, b"x"), now=0)
    cut = PowerCut(files.disk.snapshot())
    assert cut.choices == 3**20

    def sampled(seed: int, limit: int) -> list[bytes]:
        return [of(tree)["a"] for tree in cut.disks(Random(seed), limit=limit)]

    few = sampled(1, 12)
    assert len(few) == 12
    assert {b"", b"x" * 20, b"x" * 19} <= set(few)
    assert sampled(7, 300) == sampled(7, 300)
    assert sampled(7, 300) != sampled(8, 300)
    assert len(set(sampled(7, 300))) > 150


def test_the_same_disk_has_the_same_identity_however_it_came_about(files: SimulatedFiles) -> None:
    write(files, "a", b"one", synced=True)
    other = SimulatedFiles(Disk())
    other.make_directory(LOG)
    write(other, "b", b"else", synced=True)
    other.unlink(LOG / "b")
    write(other, "a", b"one", synced=True)
    for each in (files, other):
        each.disk.sync_everything()
    assert identity(next(trees(files))) == identity(next(trees(other)))
    write(other, "c", b"more", synced=True)
    other.disk.sync_everything()
    assert identity(next(trees(files))) != identity(next(trees(other)))


def trees(files: SimulatedFiles) -> Iterator[Tree]:
    return PowerCut(files.disk.snapshot()).disks(Random(1), limit=1)
