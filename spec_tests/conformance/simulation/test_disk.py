"""The simulated disk keeps the promises of POSIX and no others: names and contents become durable only by their own
fsync.

A power cut keeps all synced changes, and any part of the other changes.
"""

import errno
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from conformance.simulation.disk import SECTOR, Disk, PowerCut, SimulatedFiles, Tree, Truncate, Write
from conformance.simulation.effects import Effect, Kind, Moment
from conformance.simulation.sqlite_vfs import SimulatedSqlite
from refimpl.storage.files import Files, PosixFiles

LOG = Path("/log")


@pytest.fixture
def files() -> SimulatedFiles:
    simulated = SimulatedFiles(Disk())
    simulated.make_directory(LOG)
    simulated.fsync_directory(Path("/"))
    return simulated


def write(files: SimulatedFiles, name: str, content: bytes, *, synced: bool = True) -> Path:
    path = LOG / name
    with files.create(path) as file:
        file.write(content)
        if synced:
            file.fsync()
    return path


def number_of(files: SimulatedFiles, path: Path) -> int:
    number = files.disk.find(path)
    assert number is not None
    return number


def durable_names(files: SimulatedFiles) -> set[str]:
    return set(files.disk.snapshot().directories[number_of(files, LOG)])


def on_disk(files: SimulatedFiles, path: Path) -> tuple[bytes, int]:
    """The durable content of a file, and the number of changes that are not durable."""
    content, unsynced = files.disk.snapshot().files[number_of(files, path)]
    return content, len(unsynced)


def test_a_file_sync_makes_content_durable_but_not_names(files: SimulatedFiles) -> None:
    path = write(files, "a", b"one")
    assert on_disk(files, path) == (b"one", 0)
    assert durable_names(files) == set()
    files.fsync_directory(LOG)
    assert durable_names(files) == {"a"}


def test_a_directory_sync_makes_names_durable_but_not_content(files: SimulatedFiles) -> None:
    path = write(files, "a", b"one", synced=False)
    files.fsync_directory(LOG)
    assert on_disk(files, path) == (b"", 1)
    files.fsync(path)
    assert on_disk(files, path) == (b"one", 0)
    with pytest.raises(FileNotFoundError):
        files.fsync_directory(LOG / "absent")


NAMES = st.sampled_from(("a", "b", "sub/a", "absent/a"))
OPERATIONS = st.one_of(
    st.tuples(st.just("create"), NAMES),
    st.tuples(st.sampled_from(("link", "replace")), NAMES, NAMES),
    st.tuples(st.sampled_from(("unlink", "read")), NAMES),
    st.tuples(st.sampled_from(("make_directory", "remove_directory")), st.sampled_from(("sub", "absent/sub"))),
    st.tuples(st.just("list_directory"), st.sampled_from(("sub", "a", "absent"))),
    st.tuples(st.just("read"), st.just("sub")),
)


def outcome(files: Files, root: Path, operation: str, *names: str) -> object:
    """The content that was read, the listed names, or the number of the error."""
    try:
        result = getattr(files, operation)(*(root / name for name in names))
        if operation == "create":
            with result as file:
                file.write(names[0].encode())
    except OSError as error:
        return error.errno
    if operation == "list_directory":
        return sorted(status.name for status in result)
    return result if operation == "read" else None


@example([("create", "a"), ("link", "a", "b"), ("replace", "a", "b")])
@example([("make_directory", "sub"), ("create", "sub/a"), ("remove_directory", "sub"), ("unlink", "sub/a")])
@given(st.lists(OPERATIONS, max_size=12))
def test_operations_have_the_results_and_errors_of_a_real_file_system(operations: list[tuple[str, ...]]) -> None:
    simulated = SimulatedFiles(Disk())
    simulated.make_directory(LOG)
    with tempfile.TemporaryDirectory() as folder:
        for operation in (*operations, *(("read", name) for name in ("a", "b", "sub/a"))):
            assert outcome(cast(Files, simulated), LOG, *operation) == outcome(PosixFiles(), Path(folder), *operation)


def test_a_failed_sync_is_reported_once_and_its_data_is_lost(files: SimulatedFiles) -> None:
    path = write(files, "a", b"one", synced=False)
    files.disk.failing_sync = files.disk.syncs + 1
    with pytest.raises(OSError, match="Input/output error") as failed:
        files.fsync(path)
    assert failed.value.errno == errno.EIO
    files.fsync(path)
    assert on_disk(files, path) == (b"", 0)
    assert files.read(path) == b"one"


# Power cuts


def left(files: SimulatedFiles, *, limit: int = 10_000) -> list[dict[str, bytes]]:
    """The log in each state that a power cut may leave, without duplicates."""
    states: list[dict[str, bytes]] = []
    for tree in PowerCut(files.disk.snapshot()).disks(Random(1), limit=limit):
        log = of(tree)
        if log not in states:
            states.append(log)
    return states


def of(tree: Tree) -> dict[str, bytes]:
    disk = Disk.holding(tree, now=0)
    number = disk.find(LOG)
    if number is None:
        return {}
    return {name: bytes(disk.file(LOG / name).content) for name in disk.names(LOG)}


def test_a_synced_file_with_a_synced_name_always_survives(files: SimulatedFiles) -> None:
    write(files, "a", b"one", synced=True)
    files.fsync_directory(LOG)
    assert left(files) == [{"a": b"one"}]


def test_an_unsynced_name_may_or_may_not_survive(files: SimulatedFiles) -> None:
    write(files, "a", b"one", synced=True)
    assert left(files) == [{}, {"a": b"one"}]


def test_unsynced_content_is_missing_zeros_or_complete(files: SimulatedFiles) -> None:
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


def test_a_listing_has_no_order(files: SimulatedFiles) -> None:
    """An owner that takes the entry listed last as the newest one must fail."""
    names = [f"{version}.json" for version in range(9)]
    for name in names:
        write(files, name, b"", synced=True)
    listed = [entry.name for entry in files.list_directory(LOG)]
    assert listed != names
    assert sorted(listed) == names


def test_changes_of_one_name_survive_in_their_order(files: SimulatedFiles) -> None:
    temporary = write(files, "t", b"one", synced=True)
    files.link(temporary, LOG / "a")
    files.unlink(temporary)
    logs = left(files)
    assert {frozenset(log) for log in logs} == {
        frozenset(), frozenset({"t"}), frozenset({"a"}), frozenset({"a", "t"}),
    }  # fmt: skip


def test_an_unsynced_rename_survives_as_a_whole_or_not_at_all(files: SimulatedFiles) -> None:
    write(files, "a", b"old", synced=True)
    new = write(files, "b", b"new", synced=True)
    files.fsync_directory(LOG)
    files.replace(new, LOG / "a")
    assert left(files) == [{"a": b"old", "b": b"new"}, {"a": b"new"}]


def test_writes_survive_in_any_combination(files: SimulatedFiles) -> None:
    path = write(files, "a", b"....", synced=True)
    files.fsync_directory(LOG)
    number = number_of(files, path)
    for change in (Write(0, b"A"), Write(1, b"B"), Truncate(3)):
        files.disk.change(number, change, now=0)
    assert {log["a"] for log in left(files)} == {
        b"....", b"A...", b".B..", b"AB..", b"...", b"A..", b".B.", b"AB.",
    }  # fmt: skip


def test_above_the_limit_the_seed_chooses_the_states(files: SimulatedFiles) -> None:
    path = write(files, "a", b"", synced=True)
    files.fsync_directory(LOG)
    number = number_of(files, path)
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


# SQLite keeps its database on the simulated disk: transactions, connections and syncs share one timeline

DATABASE = Path("/ledger.sqlite")
WAL = "/ledger.sqlite-wal"


@pytest.fixture
def sqlite() -> Iterator[SimulatedSqlite]:
    with SimulatedSqlite() as simulated:
        yield simulated


def test_two_connections_share_one_write_ahead_log(sqlite: SimulatedSqlite) -> None:
    disk = Disk()
    connect = sqlite.mounted(disk)
    first, second = connect(DATABASE), connect(DATABASE)
    assert first.pragma("journal_mode", "wal") == "wal"
    first.execute("CREATE TABLE t(a); INSERT INTO t VALUES (1)").fetchall()
    assert second.execute("SELECT a FROM t").fetchall() == [(1,)]
    second.execute("INSERT INTO t VALUES (2)")
    assert first.execute("SELECT a FROM t ORDER BY a").fetchall() == [(1,), (2,)]
    assert len(disk.file(WAL).content) > 0
    first.close()
    second.close()
    assert disk.find(WAL) is None, "the last connection moves the log into the database"
    assert sqlite.mounted(disk)(DATABASE).execute("SELECT count(*) FROM t").fetchall() == [(2,)]


def test_a_full_commit_is_synced_and_a_lazy_one_is_not(sqlite: SimulatedSqlite) -> None:
    for level, unsynced in (("FULL", False), ("NORMAL", True)):
        disk = Disk()
        database = sqlite.mounted(disk)(DATABASE)
        database.pragma("journal_mode", "wal")
        database.pragma("synchronous", level)
        database.execute("CREATE TABLE t(a)")
        database.execute("INSERT INTO t VALUES (1)")
        number = disk.find(WAL)
        assert number is not None
        _, changes = disk.snapshot().files[number]
        assert bool(changes) is unsynced, level
        assert (
            all("-wal" not in name for change in disk.snapshot().renamings for _, name, _ in change.names) or unsynced
        )
        database.close()


def test_database_and_file_effects_share_one_timeline(sqlite: SimulatedSqlite) -> None:
    seen: list[Effect] = []
    disk = Disk()
    database = sqlite.mounted(disk, hook=seen.append)(DATABASE)
    database.pragma("journal_mode", "wal")
    database.execute("CREATE TABLE t(a)")
    seen.clear()
    database.execute("INSERT INTO t VALUES (1)")
    done = [(effect.kind, effect.target) for effect in seen if effect.moment is Moment.AFTER]
    assert done[-1] == (Kind.FSYNC, WAL)
    assert set(done[:-1]) == {(Kind.WRITE, WAL)}
    database.close()


def test_two_mounts_of_one_disk_share_no_locks(sqlite: SimulatedSqlite) -> None:
    """When a host starts again, its earlier locks are gone."""
    disk = Disk()
    before = sqlite.mounted(disk)(DATABASE)
    before.execute("CREATE TABLE t(a)")
    before.execute("BEGIN EXCLUSIVE")
    after = sqlite.mounted(disk)(DATABASE)
    after.execute("INSERT INTO t VALUES (1)")
    assert after.execute("SELECT a FROM t").fetchall() == [(1,)]
    before.close()
    after.close()
