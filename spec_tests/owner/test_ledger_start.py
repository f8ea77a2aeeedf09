"""The first start of a ledger, the change of its schema and its backup: under the lock, and durable in their order."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

import refimpl
from refimpl.environment import Environment
from refimpl.errors import OwnerUnavailableError
from refimpl.owner.ledger import FILE_NAME
from refimpl.owner.schema import APPLICATION_ID, MIGRATIONS, SCHEMA_VERSION
from refimpl.table_feature import MANAGED_COMMIT, Way
from spec_tests.support.builders import create, owned
from spec_tests.support.faults import Faults, opened
from spec_tests.support.lock_watch import Others, Watch


def test_who_comes_second_to_the_first_start_keeps_the_ledger_of_the_first(tmp_path: Path) -> None:
    place = tmp_path / "warehouse"

    def start() -> None:
        with opened(place) as first:
            create(first, MANAGED_COMMIT, Way.DIRECT, commits=1)

    others = Others(before=start)
    with refimpl.open(place, environment=Faults().environment(host_lock=others.lock)) as warehouse:
        assert others.acted
        assert owned(warehouse, "orders").latest == 1


def test_a_ledger_is_there_under_its_name_when_it_is_whole_and_durable(tmp_path: Path) -> None:
    watch = Watch()
    watch.opened(tmp_path / "warehouse").close()
    at = watch.seen.index("fsync ledger.new")
    assert watch.seen[at - 1] == "commit"
    assert watch.seen[at + 1 : at + 3] == ["replace ledger.sqlite", "fsync _owner/"]
    assert watch.outside == []


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
    assert {"begin", "journal", "commit"} <= watch.inside
    assert version_of(path) == (SCHEMA_VERSION, "wal")
    assert watch.seen.index("fsync _owner/") < watch.seen.index("commit")


def test_who_finds_that_others_have_just_brought_it_up_to_date_has_nothing_to_do(tmp_path: Path) -> None:
    place = tmp_path / "warehouse"
    path = older(place, versions=1)
    others = Others(before=lambda: opened(place).close())
    with refimpl.open(place, environment=Faults().environment(host_lock=others.lock)) as warehouse:
        assert others.acted
        create(warehouse, MANAGED_COMMIT, Way.DIRECT, commits=1)
    assert version_of(path) == (SCHEMA_VERSION, "wal")


def test_a_backup_has_its_name_when_it_is_whole_and_durable(tmp_path: Path) -> None:
    faults = Faults()
    warehouse = refimpl.open(tmp_path / "warehouse", environment=faults.environment())
    create(warehouse, MANAGED_COMMIT, Way.DIRECT, commits=1)
    before = len(faults.seen)
    warehouse.owner.ledger.back_up(tmp_path / "copy.sqlite")
    made = [effect.split()[0] for effect in faults.seen[before:]]
    assert made == ["fsync", "link", "fsync", "unlink"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.sqlite", "warehouse"]
    assert version_of(tmp_path / "copy.sqlite") == (SCHEMA_VERSION, "delete")
    warehouse.close()


def test_a_commit_of_the_ledger_is_synced_before_it_is_told(tmp_path: Path) -> None:
    made: list[apsw.Connection] = []

    def connect(path: Path) -> apsw.Connection:
        made.append(apsw.Connection(str(path)))
        return made[-1]

    with refimpl.open(tmp_path / "w", environment=Environment(connect=connect)) as warehouse:
        create(warehouse, MANAGED_COMMIT, Way.DIRECT)
        assert [(each.pragma("synchronous"), each.pragma("journal_mode")) for each in made[1:]] == [(2, "wal")]


def test_where_no_write_ahead_log_can_be_kept_there_is_no_ledger(tmp_path: Path) -> None:
    class Stubborn(apsw.Connection):
        def pragma(self, name, value=None, **more):  # type: ignore[no-untyped-def]
            values = () if name == "journal_mode" or value is None else (value,)
            return super().pragma(name, *values, **more)

    with pytest.raises(OwnerUnavailableError, match="write-ahead log"):
        refimpl.open(tmp_path / "w", environment=Environment(connect=lambda path: Stubborn(str(path))))
    assert not (tmp_path / "w" / "_owner" / FILE_NAME).exists()
