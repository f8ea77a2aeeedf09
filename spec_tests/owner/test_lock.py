"""Whatever changes the ledger or makes a version visible happens under the owner's lock, and inside a transaction.

SQLite's own lock would let most of these pass unnoticed: what it does not cover is the log, and the fold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

import refimpl
from refimpl.commits import Conflict, DirectProposal, Ratified
from refimpl.environment import HostLock, host_lock
from refimpl.errors import NameTakenError
from refimpl.owner.repair import repair
from spec_tests.support.builders import (
    DIALECTS_AND_WAYS,
    ON_REQUEST,
    START,
    OwnedTable,
    create,
    filesystem_table,
    hand_back_commit,
    name_of,
    new_attempt,
    ownership_change,
)
from spec_tests.support.faults import Faults, FaultyConnection, Result


class Watch(Faults):
    """Notes every effect that only the holder of the lock may have, with whether the lock is held."""

    def __init__(self) -> None:
        super().__init__()
        self.held = 0
        self.inside: set[str] = set()
        self.outside: list[str] = []

    def lock(self, path: Path) -> HostLock:
        real = host_lock(path)

        @contextmanager
        def watched() -> Iterator[None]:
            with real():
                self.held += 1
                try:
                    yield
                finally:
                    self.held -= 1

        return watched

    def note(self, name: str, *, allowed: bool) -> None:
        if allowed:
            self.inside.add(name)
        else:
            self.outside.append(name)

    def effect(self, name: str, act: Callable[[], Result], torn: Callable[[], object] | None = None) -> Result:
        if name in ("commit", "fold") or name.startswith(("link ", "replace ")):
            self.note(name.partition(" ")[0], allowed=self.held > 0)
        return super().effect(name, act, torn)

    def _connect(self, path: Path) -> apsw.Connection:
        connection = WatchedConnection(str(path))
        connection.faults = connection.watch = self
        self._connections.append(connection)
        return connection


class WatchedConnection(FaultyConnection):
    watch: Watch | None = None

    def execute(self, statement: str, *values: Any, **more: Any) -> Any:  # type: ignore[override]
        kind = statement.split(maxsplit=1)[0]
        if self.watch is not None and statement.startswith("BEGIN IMMEDIATE"):
            self.watch.note("begin", allowed=self.watch.held > 0)
        if self.watch is not None and kind in ("INSERT", "UPDATE", "DELETE"):
            self.watch.note(kind.lower(), allowed=self.watch.held > 0 and self.in_transaction)
        return super().execute(statement, *values, **more)


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def watched(tmp_path: Path, watch: Watch) -> Iterator[refimpl.Warehouse]:
    warehouse = refimpl.open(tmp_path / "warehouse", environment=watch.environment(host_lock=watch.lock))
    yield warehouse
    warehouse.owner.close()
    assert watch.outside == []
    assert {"begin", "commit", "insert", "update"} <= watch.inside


@pytest.fixture(params=DIALECTS_AND_WAYS, ids=lambda pair: name_of(*pair))
def table(request: pytest.FixtureRequest, watched: refimpl.Warehouse) -> OwnedTable:
    return create(watched, *request.param, commits=2)


def test_commits_and_lost_races_and_backfills(table: OwnedTable, watch: Watch) -> None:
    attempt = new_attempt()
    assert isinstance(table.commit(3, attempt=attempt), Ratified)
    assert isinstance(table.commit(3), Conflict)
    table.backfill(2)
    table.backfill()
    assert table.published() == [0, 1, 2, 3]
    assert "link" in watch.inside


def test_outcomes_that_are_resolved_and_policies(table: OwnedTable, watch: Watch) -> None:
    table.owner.attempt_outcome(table.table_id, new_attempt())
    table.owner.set_policy(table.table_id, ON_REQUEST)
    table.owner.add_roots([Path("/elsewhere")])
    assert table.latest == 2


def test_a_hand_back_and_a_drop(table: OwnedTable, watched: refimpl.Warehouse) -> None:
    other = create(watched, table.feature, table.way, name="others", commits=1)
    proposal = DirectProposal(attempt=new_attempt(), content=hand_back_commit(START + 100))
    assert isinstance(table.owner.hand_back(table.table_id, 3, proposal), Ratified)
    other.owner.drop_table(other.table_id)
    assert table.published() == [0, 1, 2, 3]


def test_a_take_over(table: OwnedTable, watched: refimpl.Warehouse, tmp_path: Path) -> None:
    place = tmp_path / "warehouse" / "imports"
    filesystem_table(place)
    proposal = DirectProposal(attempt=new_attempt(), content=ownership_change(table.feature, START + 100))
    outcome = watched.owner.take_over(place, "imports", table.feature, 2, proposal)
    assert isinstance(outcome, Ratified)
    assert watched.owner.resolve("imports").commits.latest_ratified_version == 2


def test_a_creation_that_finds_its_name_taken(table: OwnedTable, watched: refimpl.Warehouse) -> None:
    with pytest.raises(NameTakenError):
        watched.owner.stage_table("orders", table.feature, way=table.way)
    assert [each.name for each in watched.owner.tables()] == ["orders"]


def test_a_repair(table: OwnedTable, watched: refimpl.Warehouse) -> None:
    with watched.owner.context.lock(), watched.owner.context.changing(table.table_id) as (writer, record):
        writer.halt(record, "a disk failed once")
    assert [each.done for each in repair(watched.owner)] == [True]
    assert isinstance(table.commit(3), Ratified)


def test_what_is_done_without_the_lock_is_seen(tmp_path: Path) -> None:
    """The watch is no check that cannot fail."""
    watch = Watch()
    warehouse = refimpl.open(tmp_path / "warehouse", environment=watch.environment(host_lock=watch.lock))
    table = create(warehouse, *DIALECTS_AND_WAYS[0])
    assert watch.outside == []
    with warehouse.owner.context.changing(table.table_id) as (writer, record):
        writer.halt(record, "why")
    writer.halt(record, None)
    assert watch.outside == ["begin", "update", "commit", "update"]
    warehouse.owner.close()
