"""The first start of a ledger, the change of its schema and its backup: under the lock, and durable in their order."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import pytest

import refimpl
from refimpl.commits import Ratified
from refimpl.environment import Environment
from refimpl.errors import InvalidRequestError, OwnerUnavailableError
from refimpl.owner.ledger import FILE_NAME, Ledger
from refimpl.owner.statements import APPLICATION_ID, MIGRATIONS, SCHEMA_VERSION
from refimpl.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, CommitMode
from spec_tests.support.builders import create, owned
from spec_tests.support.faults import Faults, FaultyConnection, opened
from spec_tests.support.lock_watch import Others, Watch


def test_the_second_of_two_first_starts_keeps_the_ledger(tmp_path: Path) -> None:
    place = tmp_path / "warehouse"

    def start() -> None:
        with opened(place) as first:
            create(first, MANAGED_COMMIT, CommitMode.DIRECT, commits=1)

    others = Others(before=start)
    with refimpl.open(place, environment=Faults().environment(host_lock=others.lock), create=True) as warehouse:
        assert others.acted
        assert owned(warehouse, "orders").latest == 1


class Overtaken(Watch):
    """Another start runs from beginning to end before one step that this one takes without the lock."""

    def __init__(self, before_step: int, start: Callable[[], object]) -> None:
        super().__init__()
        self.steps_left = before_step
        self._start = start

    def _step(self) -> None:
        if not self.held and self.steps_left >= 0:
            self.steps_left -= 1
            if self.steps_left < 0:
                self._start()

    def effect(self, name: str, act: Callable[[], Any], torn: Callable[[], object] | None = None) -> Any:
        self._step()
        return super().effect(name, act, torn)

    def read(self, act: Callable[[], Any]) -> Any:
        self._step()
        return super().read(act)


def test_a_first_start_may_be_overtaken_by_another_at_every_step(tmp_path: Path) -> None:
    for step in itertools.count():
        place = tmp_path / str(step) / "deep" / "warehouse"

        def start(place: Path = place) -> None:
            with opened(place) as other:
                create(other, MANAGED_COMMIT, CommitMode.DIRECT, commits=1)

        overtaken = Overtaken(step, start)
        with overtaken.opened(place) as warehouse:
            if overtaken.steps_left >= 0:
                assert step > 10
                return
            assert owned(warehouse, "orders").latest == 1
            assert warehouse.owner.ledger.integrity_errors() == []


def test_a_ledger_is_renamed_into_place_when_durable(tmp_path: Path) -> None:
    watch = Watch()
    ledger = Ledger(tmp_path, watch.lock(tmp_path / "lock"), watch.environment())
    ledger.create()
    assert watch.seen[-4:] == ["journal", "fsync ledger.new", "replace ledger.sqlite", "fsync " + tmp_path.name + "/"]
    assert watch.outside == []
    before = len(watch.seen)
    ledger.create()
    assert watch.seen[before:] == []
    assert version_of(ledger.path) == (SCHEMA_VERSION, "wal")


def test_what_a_first_start_left_that_died_is_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "warehouse" / "_owner"
    folder.mkdir(parents=True)
    unfinished = (folder / FILE_NAME).with_suffix(".new")
    for suffix in ("", "-wal", "-shm", "-journal"):
        unfinished.with_name(unfinished.name + suffix).write_bytes(b"half of it" * 1000)
    with opened(tmp_path / "warehouse") as warehouse:
        create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT, commits=1)
        assert warehouse.owner.ledger.integrity_errors() == []
    assert not unfinished.exists()


def test_an_interruption_just_after_a_transaction_began_leaves_none(tmp_path: Path) -> None:
    class Interrupted(FaultyConnection):
        armed = False

        def execute(self, statement: str, *values: Any, **more: Any) -> Any:  # type: ignore[override]
            found = super().execute(statement, *values, **more)
            if statement == "BEGIN IMMEDIATE" and Interrupted.armed:
                Interrupted.armed = False
                raise KeyboardInterrupt
            return found

    environment = Environment(connect=lambda path: Interrupted(str(path)))
    with refimpl.open(tmp_path / "w", environment=environment, create=True) as warehouse:
        table = create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT)
        Interrupted.armed = True
        with pytest.raises(KeyboardInterrupt):
            table.commit(1)
        assert not Interrupted.armed
        table.land(1)
        assert table.latest == 1


def older(place: Path, *, versions: int) -> Path:
    """A ledger of an earlier release, as a rollback journal keeps it."""
    (place / "_owner").mkdir(parents=True)
    path = place / "_owner" / FILE_NAME
    database = apsw.Connection(str(path))
    database.execute(f"PRAGMA application_id={APPLICATION_ID}").fetchall()
    for migration in MIGRATIONS[:versions]:
        database.execute(migration).fetchall()
    database.execute(f"PRAGMA user_version={versions}").fetchall()
    database.close()
    return path


def version_of(path: Path) -> tuple[int, str]:
    database = apsw.Connection(str(path))
    try:
        return database.pragma("user_version"), database.pragma("journal_mode")
    finally:
        database.close()


def test_an_older_ledger_is_brought_up_to_date_under_the_lock(tmp_path: Path) -> None:
    path = older(tmp_path / "warehouse", versions=1)
    assert version_of(path) == (1, "delete")
    watch = Watch()
    watch.opened(tmp_path / "warehouse").close()
    assert watch.outside == []
    assert {"begin", "journal", "migration", "commit"} <= watch.inside
    assert version_of(path) == (SCHEMA_VERSION, "wal")
    at = watch.seen.index("journal")
    assert watch.seen[at + 1 : at + 3] == ["fsync _owner/", "commit"]


def test_a_failed_migration_is_repeated(tmp_path: Path) -> None:
    path = older(tmp_path / "warehouse", versions=1)
    watch = Watch()
    ledger = Ledger(path.parent, watch.lock(path.parent / "lock"), watch.environment())
    watch.failing = "commit"
    with pytest.raises(OwnerUnavailableError):
        ledger.open()
    watch.failing = None
    ledger.open()
    ledger.close()
    assert version_of(path) == (SCHEMA_VERSION, "wal")


def test_a_migration_by_another_process_is_not_repeated(tmp_path: Path) -> None:
    place = tmp_path / "warehouse"
    path = older(place, versions=1)
    others = Others(before=lambda: opened(place).close())
    with refimpl.open(place, environment=Faults().environment(host_lock=others.lock), create=True) as warehouse:
        assert others.acted
        create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT, commits=1)
    assert version_of(path) == (SCHEMA_VERSION, "wal")


def test_a_backup_has_its_name_when_it_is_whole_and_durable(tmp_path: Path) -> None:
    faults = Faults()
    warehouse = refimpl.open(tmp_path / "warehouse", environment=faults.environment(), create=True)
    create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT, commits=1)
    before = len(faults.seen)
    warehouse.owner.ledger.back_up(tmp_path / "copy.sqlite")
    made = [effect.split()[0] for effect in faults.seen[before:]]
    assert made == ["fsync", "link", "fsync", "unlink"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.sqlite", "warehouse"]
    assert version_of(tmp_path / "copy.sqlite") == (SCHEMA_VERSION, "delete")
    warehouse.close()


def test_commit_of_the_ledger_is_synced_before_it_is_answered(tmp_path: Path) -> None:
    made: list[apsw.Connection] = []

    def connect(path: Path) -> apsw.Connection:
        made.append(apsw.Connection(str(path)))
        made[-1].execute("PRAGMA synchronous=OFF").fetchall()  # as an SQLite that was built for speed
        return made[-1]

    with refimpl.open(tmp_path / "w", environment=Environment(connect=connect), create=True) as warehouse:
        create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT)
        (mine,) = made[1:]
        assert (mine.pragma("synchronous"), mine.pragma("journal_mode")) == (2, "wal")
        assert mine.pragma("busy_timeout") == 10_000
        assert mine.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, -1) == 1, "a fold needs the owner's lock"


def test_a_ledger_needs_a_write_ahead_log(tmp_path: Path) -> None:
    class Stubborn(apsw.Connection):
        def pragma(self, name, value=None, **more):  # type: ignore[no-untyped-def]
            values = () if name == "journal_mode" or value is None else (value,)
            return super().pragma(name, *values, **more)

    with pytest.raises(OwnerUnavailableError, match="write-ahead log"):
        refimpl.open(tmp_path / "w", environment=Environment(connect=lambda path: Stubborn(str(path))), create=True)
    assert not (tmp_path / "w" / "_owner" / FILE_NAME).exists()


def test_a_fork_closes_the_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hooks of a fork, called by hand: `test_ledger` forks for real."""
    hooks: list[dict[str, Callable[[], None]]] = []
    monkeypatch.setattr(os, "register_at_fork", lambda **each: hooks.append(each))
    with opened(tmp_path / "w") as warehouse:
        table = create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT)
        (mine,) = hooks
        mine["before"]()
        mine["after_in_child"]()
        assert table.latest == 0
        with warehouse.owner.ledger.read():
            mine["before"]()
            mine["after_in_child"]()
            refused: list[Exception] = []

            def ask() -> None:
                try:
                    table.owner.get_commits(table.table_id)
                except OwnerUnavailableError as error:
                    refused.append(error)

            asking = threading.Thread(target=ask)
            asking.start()
            asking.join()
        assert len(refused) == 1
        assert "forked inside a transaction" in str(refused[0])


def replaced(path: Path, by: Path) -> None:
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    by.replace(path)


def test_a_ledger_that_replaces_another_is_checked_like_at_a_start(tmp_path: Path) -> None:
    newer = older(tmp_path / "other", versions=len(MIGRATIONS))
    database = apsw.Connection(str(newer))
    database.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}").fetchall()
    database.close()
    with opened(tmp_path / "w") as warehouse:
        table = create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT, commits=1)
        replaced(warehouse.owner.ledger.path, newer)
        with pytest.raises(InvalidRequestError) as refused:
            table.owner.get_commits(table.table_id)
        assert refused.value.found == SCHEMA_VERSION + 1


def test_a_backup_is_of_the_ledger_that_is_there_now(tmp_path: Path) -> None:
    with opened(tmp_path / "w") as warehouse:
        create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=1).land(1)
        ledger = warehouse.owner.ledger
        replaced(ledger.path, older(tmp_path / "other", versions=len(MIGRATIONS)))
        ledger.back_up(tmp_path / "backup")
        copy = apsw.Connection(str(tmp_path / "backup"))
        assert copy.execute("SELECT count(*) FROM commits").fetchall() == [(0,)]
        copy.close()


def test_all_threads_go_on_with_a_backup_that_is_restored_under_them(tmp_path: Path) -> None:
    """Its first connection finds a ledger without a write-ahead log, to which another one then gives one."""
    with opened(tmp_path / "w") as warehouse, ThreadPoolExecutor(1) as other:
        table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=1)
        warehouse.owner.ledger.back_up(tmp_path / "backup")
        replaced(warehouse.owner.ledger.path, tmp_path / "backup")
        for version in (2, 4):
            assert isinstance(other.submit(table.commit, version).result(), Ratified)
            assert isinstance(table.commit(version + 1), Ratified)
        other.submit(warehouse.close).result()


def test_a_ledgers_name_is_durable_before_its_log_exists(tmp_path: Path) -> None:
    """The process that renamed it into place may have died before it synced that."""
    with opened(tmp_path / "w") as warehouse:
        table = create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT, commits=1)
        with warehouse.owner.context.lock():
            warehouse.owner.ledger.fold()
        path = warehouse.owner.ledger.path
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    faults, found = Faults(), list[list[str]]()

    def connect(path: Path) -> apsw.Connection:
        found.append(list(faults.seen))
        return apsw.Connection(str(path))

    environment = Environment(files=faults.environment().files, connect=connect)
    with refimpl.open(tmp_path / "w", environment=environment, create=True) as warehouse:
        assert found == [["fsync _owner/"]]
        assert warehouse.owner.get_commits(table.table_id).latest_ratified_version == 1
