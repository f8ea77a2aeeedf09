"""Delta Spark 4.4 with our owner as its commit coordinator (DELTA_SPARK.md#coordinated-commits), and with our server as
its catalog: then all work on tables goes through Delta's own client of the Delta API."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import refimpl
from refimpl.owner.local import LocalOwner
from refimpl.protocol import log_path
from refimpl.protocol.commit_owner import MaintenancePolicy, TableState
from refimpl.protocol.commits import Conflict, Outcome, Proposal, Ratified
from refimpl.protocol.errors import OutcomeUnknown, TableNotFoundError
from refimpl.protocol.log_path import Version
from refimpl.protocol.table_feature import CATALOG_MANAGED, COORDINATED_COMMITS
from refimpl.spark import coordinator
from refimpl.spark.coordinator import CoordinatorClient
from spec_tests.engines.prerequisites import Engine, rows_of

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
REFUSED = (PySparkException, Py4JJavaError)
"""PySpark raises this for errors without a class of their own."""


class ScriptedOwner:
    """A `LocalOwner` with two hooks, each for the next commit only."""

    def __init__(self, owner: LocalOwner) -> None:
        self._owner = owner
        self.before: Callable[[], object] | None = None
        self.after: Callable[[], object] | None = None
        self.outcomes: list[Outcome] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._owner, name)

    def commit(self, table_id: str, version: Version, proposal: Proposal) -> Outcome:
        (before, after), self.before, self.after = (self.before, self.after), None, None
        if before is not None:
            before()
        outcome = self._owner.commit(table_id, version, proposal)
        self.outcomes.append(outcome)
        if after is not None:
            after()
        return outcome


@pytest.fixture
def owner(engine: Engine) -> ScriptedOwner:
    owner: Any = ScriptedOwner(engine.warehouse.owner)
    coordinator.register(
        engine.spark, refimpl.Warehouse(engine.warehouse.directory, owner, engine.warehouse.environment)
    )
    scripted: ScriptedOwner = owner
    return scripted


def appended(engine: Engine, name: str, row: tuple[int, str]) -> Callable[[], object]:
    """A function in which our client appends one row."""
    rows = pa.table({"id": [row[0]], "name": [row[1]]})
    return lambda: engine.table(name).append(rows)


def failing(error: Exception) -> Callable[[], object]:
    def fail() -> object:
        raise error

    return fail


def test_every_statement_commits_through_the_owner(any_engine: Engine) -> None:
    table, name = any_engine.create("orders"), f"{any_engine.prefix}orders"
    any_engine.insert("orders", (1, "one"), (2, "two"))
    any_engine.insert("orders", (3, "three"))
    any_engine.sql(f"UPDATE {name} SET name = 'TWO' WHERE id = 2")
    any_engine.sql(f"DELETE FROM {name} WHERE id = 1")
    any_engine.sql(
        f"MERGE INTO {name} t USING (SELECT 3 AS id, 'THREE' AS name UNION ALL SELECT 4, 'four') s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET name = s.name WHEN NOT MATCHED THEN INSERT *"
    )
    any_engine.sql(f"ALTER TABLE {name} ADD COLUMN price INT")
    expected = [(2, "TWO", None), (3, "THREE", None), (4, "four", None)]
    assert any_engine.rows("orders") == expected
    assert rows_of(table) == expected
    assert any_engine.latest("orders") == 6
    operations = [row.operation for row in any_engine.spark.sql(f"DESCRIBE HISTORY {name}").collect()]
    assert operations == ["ADD COLUMNS", "MERGE", "DELETE", "UPDATE", "WRITE", "WRITE", "CREATE TABLE"]
    assert [entry.operation for entry in table.history()] == operations
    earlier = any_engine.sql(f"SELECT * FROM {name} VERSION AS OF 2")
    assert sorted(earlier) == [(1, "one"), (2, "two"), (3, "three")]


def test_a_lost_insert_is_retried_on_top_of_the_winner(engine: Engine, owner: ScriptedOwner) -> None:
    table = engine.create("orders")
    owner.before = appended(engine, "orders", (1, "ours"))
    engine.insert("orders", (2, "theirs"))
    assert [type(outcome) for outcome in owner.outcomes] == [Conflict, Ratified]
    assert rows_of(table) == engine.rows("orders") == [(1, "ours"), (2, "theirs")]
    assert engine.latest("orders") == 2
    staged = table.log.staged_listing(COORDINATED_COMMITS.staging_folder)
    assert [path.version for path in staged] == [1, 2]  # the loser's file is deleted


def test_concurrent_inserts_all_land_once(any_engine: Engine) -> None:
    if any_engine.prefix:  # a table by Delta has row tracking
        table = any_engine.warehouse.create_table("races", SCHEMA, feature=CATALOG_MANAGED)
    else:
        table = any_engine.create("races")
    start = threading.Barrier(5)

    def by_spark(number: int) -> None:
        start.wait()
        for index in range(2):
            any_engine.insert("races", (number * 10 + index, "spark"))

    def by_our_client() -> None:
        start.wait()
        for number in range(4):
            table.append(pa.table({"id": [100 + number], "name": ["ours"]}))

    with ThreadPoolExecutor(5) as pool:
        for future in [*(pool.submit(by_spark, number) for number in range(4)), pool.submit(by_our_client)]:
            future.result()
    expected = [0, 1, 10, 11, 20, 21, 30, 31, 100, 101, 102, 103]
    assert [row[0] for row in any_engine.rows("races")] == expected
    assert [row[0] for row in rows_of(table)] == expected
    assert any_engine.latest("races") == 12


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_answer_neither_loses_nor_repeats_a_row(engine: Engine, owner: ScriptedOwner, when: str) -> None:
    """An attempt that landed is recognized. An attempt that did not land never will, so the version is proposed
    again.
    """
    table = engine.create("orders")
    setattr(owner, when, failing(OutcomeUnknown("the answer was lost")))
    engine.insert("orders", (1, "one"))
    assert rows_of(table) == engine.rows("orders") == [(1, "one")]
    assert engine.latest("orders") == 1
    assert len(owner.outcomes) == 1


def test_a_rejection_is_an_error_with_its_reason(engine: Engine) -> None:
    table = engine.create("orders")
    resolved = engine.warehouse.owner.resolve(table.location)
    with engine.warehouse.owner.lock(), engine.warehouse.owner.ledger.write() as writer:
        record = writer.table(resolved.table_id)
        assert record is not None
        writer.set(record, halted="an operator looks at it")
    with pytest.raises(REFUSED, match="an operator looks at it"):
        engine.insert("orders", (1, "one"))
    assert engine.rows("orders") == []
    assert engine.latest("orders") == 0


def test_unpublished_commits_are_read_from_the_owner(engine: Engine) -> None:
    table = engine.create("orders")
    policy = MaintenancePolicy(backfill_every=None)
    engine.warehouse.owner.set_policy(engine.warehouse.owner.resolve(table.location).table_id, policy)
    for number in range(3):
        engine.insert("orders", (number, "x"))
    assert not table.log.published(1)
    assert [row[0] for row in engine.rows("orders")] == [0, 1, 2]
    assert engine.sql("SELECT count(*) FROM orders VERSION AS OF 2") == [(2,)]
    assert [row[0] for row in rows_of(table)] == [0, 1, 2]


def test_a_filesystem_table_is_taken_over_and_handed_back(engine: Engine) -> None:
    """SET TBLPROPERTIES takes the table over. DROP FEATURE hands it back with two commits, the first through the
    owner.
    """
    by_path = engine.create("orders", owned=False)
    engine.insert("orders", (1, "one"))
    engine.sql(f"ALTER TABLE orders SET TBLPROPERTIES ({engine.properties})")
    engine.insert("orders", (2, "two"))
    owner = engine.warehouse.owner
    assert owner.resolve("orders").state is TableState.ACTIVE
    assert engine.latest("orders") == 3
    assert rows_of(engine.table("orders")) == [(1, "one"), (2, "two")]
    engine.sql(f"ALTER TABLE orders DROP FEATURE `{COORDINATED_COMMITS.name}`")
    assert owner.resolve(engine.location("orders")).state is TableState.HANDED_BACK
    engine.insert("orders", (3, "three"))
    assert rows_of(by_path) == engine.rows("orders") == [(1, "one"), (2, "two"), (3, "three")]
    with pytest.raises(TableNotFoundError):
        owner.resolve("orders")
    assert by_path.snapshot().feature is None


def test_statements_that_change_a_tables_metadata_commit(engine: Engine) -> None:
    """Delta compares the table's coordinator before and after, and the JVM gives each side a different object for
    it.
    """
    engine.create("orders")
    engine.insert("orders", (1, "one"))
    for statement in (
        "ALTER TABLE orders SET TBLPROPERTIES ('team' = 'sales')",
        "ALTER TABLE orders UNSET TBLPROPERTIES ('team')",
        "ALTER TABLE orders SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
        "ALTER TABLE orders ADD CONSTRAINT positive CHECK (id > 0)",
        "ALTER TABLE orders ADD COLUMN price DOUBLE",
        "COMMENT ON TABLE orders IS 'what was sold'",
    ):
        engine.sql(statement)
    engine.insert("orders", (2, "two", 0.5))
    assert engine.latest("orders") == 8
    assert engine.rows("orders") == [(1, "one", None), (2, "two", 0.5)]


def test_delta_reads_and_writes_a_table_of_our_client(engine: Engine) -> None:
    table = engine.warehouse.create_table("ours", SCHEMA, feature=COORDINATED_COMMITS, location=engine.location("ours"))
    table.append(pa.table({"id": [1], "name": ["ours"]}))
    name = f"delta.`{table.location}`"
    engine.insert(name, (2, "theirs"))
    table.append(pa.table({"id": [3], "name": ["ours"]}))
    assert engine.rows(name) == rows_of(table) == [(1, "ours"), (2, "theirs"), (3, "ours")]


def test_a_table_is_created_with_its_rows(engine: Engine) -> None:
    coordinator.register(engine.spark, engine.warehouse, new_tables=True)
    engine.sql(f"CREATE TABLE copy USING delta LOCATION '{engine.location('copy')}' AS SELECT 7 AS id, 'x' AS name")
    assert rows_of(engine.warehouse.table("copy")) == [(7, "x")]
    assert engine.latest("copy") == 0
    coordinator.register(engine.spark, engine.warehouse)


def test_a_second_registration_replaces_the_first(engine: Engine) -> None:
    """Registrations belong to the JVM: the second one replaces the first with all its tables. Tables of the first
    warehouse then have no owner and cannot be written.
    """
    engine.create("orders")
    engine.insert("orders", (1, "before"))
    with refimpl.open(engine.warehouse.directory, create=True) as again:
        session = engine.spark.newSession()
        other = Engine(session, again, coordinator.register(session, again))
        other.insert("orders", (2, "after"))
        assert other.rows("orders") == [(1, "before"), (2, "after")]
        with refimpl.open(engine.warehouse.directory.parent / "other", create=True) as elsewhere:
            coordinator.register(session, elsewhere)
            with pytest.raises(REFUSED, match="unknown table"):
                other.insert("orders", (3, "lost"))
        coordinator.register(session, again)
        other.insert("orders", (4, "again"))
        assert [row[0] for row in other.rows("orders")] == [1, 2, 4]
    assert engine.latest("orders") == 3


@pytest.mark.parametrize("folder", ["elsewhere", "warehouse/secret"])
def test_a_table_that_cannot_be_owned_is_not_created(engine: Engine, tmp_path: Path, folder: str) -> None:
    """The table is outside of the warehouse, or has a secret in its configuration, which every reader of the storage
    would see.
    """
    location = tmp_path / folder
    secret = '{"password": "x"}' if folder.endswith("secret") else "{}"
    properties = engine.properties.replace("{}", secret)
    with pytest.raises(REFUSED):
        engine.sql(f"CREATE TABLE t (id BIGINT) USING delta LOCATION '{location}' TBLPROPERTIES ({properties})")
    assert not (location / "_delta_log" / log_path.commit(0)).exists()
    assert engine.warehouse.tables() == []
    engine.create("t")
    assert engine.rows("t") == []


def test_a_coordinator_equals_only_its_proxies() -> None:
    served: Any = None
    client = CoordinatorClient("ours", served)
    assert client.semanticEquals(CoordinatorClient("ours", served))
    for other in (CoordinatorClient("theirs", served), coordinator.CoordinatorBuilder("ours", client), None, "ours"):
        assert not client.semanticEquals(other)


def test_a_catalogs_table_is_created_with_its_rows_described_replaced_and_dropped(catalog: Engine) -> None:
    create = f"TABLE unity.default.notes USING delta TBLPROPERTIES ({catalog.properties}) AS SELECT"
    catalog.sql(f"CREATE {create} 7L AS id, 'x' AS name")
    assert catalog.rows("notes") == rows_of(catalog.table("notes")) == [(7, "x")]
    assert catalog.latest("notes") == 0
    catalog.sql("COMMENT ON TABLE unity.default.notes IS 'what was noted'")
    assert catalog.table("notes").snapshot().metadata.description == "what was noted"
    table_id = catalog.warehouse.owner.resolve("notes").table_id
    catalog.sql(f"CREATE OR REPLACE {create} 5L AS id, 'five' AS name")
    assert catalog.rows("notes") == [(5, "five")]
    assert catalog.warehouse.owner.resolve("notes").table_id == table_id
    assert catalog.latest("notes") == 2
    assert catalog.sql("SELECT count(*) FROM unity.default.notes VERSION AS OF 0") == [(1,)]
    catalog.sql("DROP TABLE unity.default.notes")
    assert "notes" not in catalog.warehouse.tables()
