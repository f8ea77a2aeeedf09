"""SQLite keeps its database on the simulated disk: transactions, connections, syncs in one timeline."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import cast

import pytest

from conformance.simulation.disk import Disk, SimulatedFiles
from conformance.simulation.effects import Effect, Kind, Moment
from conformance.simulation.sqlite_vfs import SimulatedSqlite
from refimpl.environment import Environment
from refimpl.files import Files
from refimpl.owner.ledger import Ledger

DATABASE = Path("/ledger.sqlite")
WAL = "/ledger.sqlite-wal"


@pytest.fixture
def sqlite() -> Iterator[SimulatedSqlite]:
    with SimulatedSqlite() as found:
        yield found


def test_two_connections_share_one_write_ahead_log(sqlite: SimulatedSqlite) -> None:
    disk = Disk()
    connect = sqlite.mounted(disk)
    one, other = connect(DATABASE), connect(DATABASE)
    assert one.pragma("journal_mode", "wal") == "wal"
    one.execute("CREATE TABLE t(a); INSERT INTO t VALUES (1)").fetchall()
    assert other.execute("SELECT a FROM t").fetchall() == [(1,)]
    other.execute("INSERT INTO t VALUES (2)")
    assert one.execute("SELECT a FROM t ORDER BY a").fetchall() == [(1,), (2,)]
    assert len(disk.file(WAL).content) > 0
    one.close()
    other.close()
    assert disk.find(WAL) is None, "the last connection folds the log into the database"
    assert sqlite.mounted(disk)(DATABASE).execute("SELECT count(*) FROM t").fetchall() == [(2,)]


def test_a_full_commit_leaves_nothing_unsynced_and_a_lazy_one_does(sqlite: SimulatedSqlite) -> None:
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


def test_writes_and_syncs_of_the_database_stand_in_one_timeline_with_those_of_files(sqlite: SimulatedSqlite) -> None:
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


def test_a_database_that_another_file_replaced_has_moved(sqlite: SimulatedSqlite) -> None:
    """The reference asks SQLite whether the ledger was restored under it."""
    disk = Disk()
    files = cast(Files, SimulatedFiles(disk))
    environment = Environment(files=files, connect=sqlite.mounted(disk), host_lock=lambda _path: nullcontext)
    environment.files.make_directory(Path("/_owner"))
    ledger = Ledger(Path("/_owner"), environment.host_lock(Path("/lock")), environment)
    ledger.create()
    ledger.open()
    with ledger.read() as view:
        assert view.tables() == []
    before = ledger._database()
    with environment.files.create(Path("/copy")) as copy:
        copy.write(environment.files.read(ledger.path))
    assert ledger._current_database() is before
    environment.files.replace(Path("/copy"), ledger.path)
    environment.files.unlink(ledger.path.with_name("ledger.sqlite-wal"))
    assert ledger._current_database() is not before
    ledger.close()


def test_two_mounts_of_one_disk_know_nothing_of_each_other(sqlite: SimulatedSqlite) -> None:
    """What a host knew of its locks is gone when it starts again."""
    disk = Disk()
    before = sqlite.mounted(disk)(DATABASE)
    before.execute("CREATE TABLE t(a)")
    before.execute("BEGIN EXCLUSIVE")
    after = sqlite.mounted(disk)(DATABASE)
    after.execute("INSERT INTO t VALUES (1)")
    assert after.execute("SELECT a FROM t").fetchall() == [(1,)]
    before.close()
    after.close()
