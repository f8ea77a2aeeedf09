"""Tables with rules for rows, row tracking and column mapping, written in turn by our client and by Delta Spark."""

import datetime
import decimal
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError

from refimpl.client.create import create_filesystem_table
from refimpl.client.data_maintenance import optimize
from refimpl.client.table import Table
from refimpl.protocol.errors import InvalidRequestError
from refimpl.schema.schema import arrow_type
from refimpl.spark import connect
from spec_tests.engines.prerequisites import Engine, rows_of
from spec_tests.rows.test_row_rules import column
from spec_tests.support.other_readers import by_delta_rs, by_duckdb

IDENTITY: dict[str, Any] = {
    "delta__identity__start": 1,
    "delta__identity__step": 2,
    "delta__identity__allowExplicitInsert": False,
}
INVARIANT = json.dumps({"expression": {"expression": "x > 0"}})
RULES = [
    column("id", "long", **IDENTITY),
    column("x", "long", delta__invariants=INVARIANT),
    column("y", "long", delta__generationExpression="x * 2"),
    column("kind", "string", nullable=False, CURRENT_DEFAULT="'new'"),
]


def made(
    engine: Engine, name: str, columns: list[dict[str, Any]], partitioned: Sequence[str] = (), **properties: str
) -> Table:
    schema = json.dumps({"type": "struct", "fields": columns})
    named = {key.replace("__", "."): value for key, value in properties.items()}
    location, environment = engine.location(name), engine.warehouse.environment
    return create_filesystem_table(location, environment, schema, partition_columns=partitioned, properties=named)


def attempt(engine: Engine, statement: str) -> str:
    """The message of the error that ends the statement."""
    with pytest.raises(Exception) as caught:
        engine.sql(statement)
    return str(caught.value)


def test_delta_spark_applies_the_same_rules(engine: Engine) -> None:
    table = made(engine, "rules", RULES, delta__constraints__low="x IS NULL OR x < 100")
    name = f"delta.`{table.location}`"
    table.append(pa.table({"x": [1, 2]}))
    engine.sql(f"INSERT INTO {name} (x) VALUES (3)")
    table.append(pa.table({"x": [4], "kind": ["ours"]}))
    engine.sql(f"UPDATE {name} SET x = 5 WHERE x = 4")
    expected = [(1, 1, 2, "new"), (3, 2, 4, "new"), (5, 3, 6, "new"), (7, 5, 10, "ours")]
    assert rows_of(table) == expected
    engine.forget()
    assert sorted(engine.sql(f"SELECT * FROM {name}")) == expected
    for x, kind, named in ((0, "a", "> 0"), (None, "a", "> 0"), (100, "a", "low"), (1, None, "kind")):
        values = ["NULL" if value is None else repr(value) for value in (x, kind)]
        assert named in attempt(engine, f"INSERT INTO {name} (x, kind) VALUES ({', '.join(values)})")
        with pytest.raises(InvalidRequestError, match=named):
            table.append(pa.table({"x": pa.array([x], pa.int64()), "kind": pa.array([kind], pa.string())}))
    assert rows_of(table) == expected
    ours = connect(engine.spark, engine.warehouse).table_at(table.location)
    source = engine.spark.createDataFrame([(5, "m"), (6, "n")], "x long, kind string")
    merge = ours.merge(source, "target.x = source.x").whenMatchedUpdate(set={"x": "target.x + 10"})
    merge.whenNotMatchedInsertAll().execute()
    engine.sql(f"INSERT INTO {name} (x) VALUES (8)")
    engine.forget()
    rows = engine.sql(f"SELECT x, y, kind FROM {name} ORDER BY x")
    assert rows == [(1, 2, "new"), (2, 4, "new"), (3, 6, "new"), (6, 12, "n"), (8, 16, "new"), (15, 30, "ours")]
    ids = [row[0] for row in rows_of(table)]
    assert len(set(ids)) == len(ids)
    assert all(number % 2 for number in ids)


def test_delta_spark_reads_the_row_ids_that_we_assign_and_keep(engine: Engine) -> None:
    table = made(engine, "tracked", [column("id", "long"), column("x", "long")], delta__enableRowTracking="true")
    name = f"delta.`{table.location}`"

    def ids() -> dict[int, tuple[int, int]]:
        engine.forget()
        query = f"SELECT id, _metadata.row_id, _metadata.row_commit_version FROM {name}"
        return {row_id: (first, version) for row_id, first, version in engine.sql(query)}

    table.append(pa.table({"id": [1, 2, 3], "x": [1, 2, 3]}))
    engine.sql(f"INSERT INTO {name} VALUES (4, 4)")
    begun = table.transaction()
    engine.sql(f"INSERT INTO {name} VALUES (5, 5)")
    table._commit_with(begun, pa.table({"id": [6], "x": [6]}))
    before = ids()
    assert [before[number][1] for number in range(1, 7)] == [1, 1, 1, 2, 3, 4]
    assert len({row_id for row_id, _ in before.values()}) == 6
    table.update({"x": "x + 1"}, "id = 2")
    table.delete("id = 3")
    expected = {number: at for number, at in before.items() if number != 3} | {2: (before[2][0], 5)}
    assert ids() == expected
    engine.sql(f"UPDATE {name} SET x = 0 WHERE id = 1")
    table.update({"x": "1"}, "id = 1")
    expected |= {1: (before[1][0], 8)}
    assert ids() == expected
    ours = connect(engine.spark, engine.warehouse).table_at(table.location)
    ours.update({"x": "x + 1"}, "id = 4")
    source = engine.spark.createDataFrame([(4, 0), (5, 0), (7, 0)], "id long, x long")
    merge = ours.merge(source, "target.id = source.id").whenMatchedUpdateAll("source.id = 5").whenMatchedDelete()
    merge.whenNotMatchedInsertAll().execute()
    after = ids()
    inserted = after.pop(7)
    assert inserted[1] == 10
    assert inserted[0] > max(first for first, _ in before.values())
    assert after == {number: at for number, at in expected.items() if number != 4} | {5: (before[5][0], 10)}


@pytest.mark.parametrize("mode", ["name", "id"])
def test_a_table_with_column_mapping_is_written_in_turn(engine: Engine, mode: str) -> None:
    """We create the table. Delta Spark renames and drops columns. Both write, and both read the same rows."""
    inner = {"type": "struct", "fields": [column("a", "long"), column("b c", "string")]}
    columns = [
        column("id", "long"),
        column("day", "string"),
        column("s", "long") | {"type": inner},
        column("old", "long"),
    ]
    table = made(engine, "mapped", columns, delta__columnMapping__mode=mode)
    name = f"delta.`{table.location}`"

    def appended(number: int, **more: int) -> None:
        row = {"id": number, "day": str(number % 2), "s": {"a": number, "b c": "x"}, **more}
        kinds = {column.name: arrow_type(column.type) for column in table.snapshot().schema.fields}
        table.append(pa.table({key: pa.array([value], kinds[key]) for key, value in row.items()}))

    appended(1, old=1)
    engine.sql(f"INSERT INTO {name} VALUES (2, '0', named_struct('a', 2L, 'b c', 'x'), 2)")
    engine.sql(f"ALTER TABLE {name} RENAME COLUMN s.a TO z")
    engine.sql(f"ALTER TABLE {name} RENAME COLUMN s.`b c` TO a")
    engine.sql(f"ALTER TABLE {name} DROP COLUMN old")
    engine.sql(f"ALTER TABLE {name} ADD COLUMN old BIGINT")
    rows = pa.table({"id": [3], "day": ["1"], "s": [{"z": 3, "a": "x"}], "old": [30]})
    table.append(rows)
    assert table.delete("s.z = 2").metrics["numDeletedRows"] == 1
    assert table.update({"day": "'9'"}, "id = 3").metrics["numUpdatedRows"] == 1
    engine.forget()
    engine.sql(f"UPDATE {name} SET old = 10 WHERE s.a = 'x' AND id = 1")
    optimize(table)
    engine.forget()
    read = engine.sql(f"SELECT id, day, s.z, s.a, old FROM {name} WHERE s.z > 0 ORDER BY id")
    assert read == [(1, "1", 1, "x", 10), (3, "9", 3, "x", 30)]
    assert rows_of(table) == [(1, "1", {"z": 1, "a": "x"}, 10), (3, "9", {"z": 3, "a": "x"}, 30)]


def test_types_are_widened_in_turn(engine: Engine) -> None:
    """Types are widened by us, by Delta Spark, and by us again. Each reads all rows and, from one type on, the change
    data feed.

    Delta Spark rejects the feed of a range that begins before a type change: DELTA.md#feed-schema.
    """
    columns = [
        column("id", "long"), column("a", "byte"), column("b", "float"), column("c", "decimal(5,2)"),
        column("d", "date"), column("p", "integer"),
    ]  # fmt: skip
    on = {"delta__enableTypeWidening": "true", "delta__enableChangeDataFeed": "true"}
    table = made(engine, "widened", columns, ["p"], **on)
    name = f"delta.`{table.location}`"

    def appended(*values: Any) -> None:
        schema = table.snapshot().to_arrow().schema
        table.append(
            pa.table(
                [pa.array([value], field.type) for value, field in zip(values, schema, strict=True)], schema=schema
            )
        )

    appended(1, 1, 0.5, decimal.Decimal("1.25"), datetime.date(2026, 1, 1), 1)
    table.alter(types={"a": "integer", "b": "double", "c": "decimal(8,4)", "d": "timestamp_ntz"})
    engine.sql(f"INSERT INTO {name} VALUES (2, 70000, 0.1, 2.1234, TIMESTAMP_NTZ'2026-01-01 12:00:00', 2)")
    engine.sql(f"ALTER TABLE {name} ALTER COLUMN p TYPE BIGINT")
    table.alter(types={"a": "decimal(12,2)", "p": "decimal(20,0)"})
    noon = datetime.datetime(2026, 1, 1, 12)  # noqa: DTZ001
    appended(3, decimal.Decimal("0.25"), 0.25, decimal.Decimal("3.5000"), noon, decimal.Decimal(2**63))
    table.update({"b": "0.75"}, "id = 1")
    expected = [
        (1, decimal.Decimal("1.00"), 0.75, decimal.Decimal("1.2500"), noon.replace(hour=0), decimal.Decimal(1)),
        (2, decimal.Decimal("70000.00"), 0.1, decimal.Decimal("2.1234"), noon, decimal.Decimal(2)),
        (3, decimal.Decimal("0.25"), 0.25, decimal.Decimal("3.5000"), noon, decimal.Decimal(2**63)),
    ]
    engine.forget()
    assert rows_of(table) == sorted(engine.sql(f"SELECT * FROM {name}")) == expected
    assert by_duckdb(table.location, [column["name"] for column in columns]) == expected
    with pytest.raises(DeltaError, match="TypeWidening"):
        by_delta_rs(table.location)
    pipeline = connect(engine.spark, engine.warehouse)
    assert sorted(tuple(row) for row in pipeline.read.load(table.location).collect()) == expected
    feed = "SELECT _commit_version, _change_type, id, a FROM table_changes_by_path('{}', {})"
    ours = table.changes(1).read_all().select(["_commit_version", "_change_type", "id", "a"]).to_pylist()
    changes = sorted(tuple(row.values()) for row in ours)
    assert sorted(engine.sql(feed.format(table.location, 6))) == [row for row in changes if row[0] >= 6]
    assert [row[:3] for row in changes if row[0] < 6] == [(1, "insert", 1), (3, "insert", 2)]
    assert "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE" in attempt(engine, feed.format(table.location, 1))
    pipeline.table_at(table.location).update({"b": "b + 1", "c": "c * 2"}, "id < 3")
    engine.forget()
    changed = [(*row[:2], row[2] + (row[0] < 3), row[3] * (1 + (row[0] < 3)), *row[4:]) for row in expected]
    assert rows_of(table) == sorted(engine.sql(f"SELECT * FROM {name}")) == changed


def test_the_mapping_mode_is_changed_and_used_in_turn(engine: Engine) -> None:
    """We change the mode of a table with files. Delta Spark renames and drops columns. All readers see the same
    rows.
    """
    table = made(engine, "upgraded", [column("id", "long"), column("month", "string"), column("x", "long")])
    name = f"delta.`{table.location}`"
    table.append(pa.table({"id": [1], "month": ["01"], "x": [1]}))
    engine.sql(f"INSERT INTO {name} VALUES (2, '02', 2)")
    table.alter(properties={"delta.columnMapping.mode": "name"})
    engine.sql(f"ALTER TABLE {name} RENAME COLUMN x TO y")
    engine.sql(f"ALTER TABLE {name} ADD COLUMN x BIGINT")
    table.append(pa.table({"id": [3], "month": ["03"], "y": [3], "x": [30]}))
    engine.forget()
    engine.sql(f"UPDATE {name} SET x = 20 WHERE y = 2")
    expected = [(1, "01", 1, None), (2, "02", 2, 20), (3, "03", 3, 30)]
    engine.forget()
    assert rows_of(table) == sorted(engine.sql(f"SELECT * FROM {name}")) == expected
    names = ("id", "month", "y", "x")
    for read in (by_delta_rs, by_duckdb):
        assert sorted(read(table.location, names)) == expected
    assert "mode" in attempt(engine, f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'id')")
    for mode in ("id", "none"):  # for `none`, Delta Spark rewrites the files
        with pytest.raises(InvalidRequestError, match="only none can become name"):
            table.alter(properties={"delta.columnMapping.mode": mode})


@pytest.mark.longer
def test_the_feed_of_deletion_vectors_equals_delta_sparks(engine: Engine) -> None:
    """Our client and our pipeline read the same feed as Delta Spark, for DELETE, UPDATE and RESTORE with deletion
    vectors.
    """
    location = engine.location("vectors")
    name = f"delta.`{location}`"
    on = "'delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'true'"
    engine.sql(f"CREATE TABLE {name} (id BIGINT) USING delta TBLPROPERTIES ({on})")
    engine.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id FROM range(20)")
    for statement in (
        "DELETE FROM {} WHERE id IN (3, 7)", "DELETE FROM {} WHERE id = 9", "UPDATE {} SET id = 100 WHERE id = 5",
        "RESTORE TABLE {} TO VERSION AS OF 2", "DELETE FROM {} WHERE id < 100",
    ):  # fmt: skip
        engine.sql(statement.format(name))
    table = Table.by_path(location)
    assert any(remove.deletion_vector for remove in table.snapshot().tombstones.values())
    columns = ["_commit_version", "_change_type", "id"]
    theirs = sorted(engine.sql(f"SELECT {', '.join(columns)} FROM table_changes_by_path('{location}', 1)"))
    assert len(theirs) > 20
    assert sorted(tuple(row.values()) for row in table.changes(1).read_all().select(columns).to_pylist()) == theirs
    connect(engine.spark, engine.warehouse)
    feed = engine.spark.read.format("delta-owner").options(readChangeFeed="true", startingVersion="1")
    assert sorted(tuple(row) for row in feed.load(str(location)).select(*columns).collect()) == theirs


def test_delta_spark_loses_a_row_beside_several_matches(engine: Engine) -> None:
    """conformance/findings/README.md#merge-loses-rows. Our MERGE inserts the row."""
    feed, source = {"delta.enableChangeDataFeed": "true"}, pa.table({"id": pa.array([1, 1, 9], pa.int64())})
    tables = [made(engine, name, [column("id", "long")], **feed) for name in ("theirs", "ours")]
    for table in tables:
        table.append(pa.table({"id": pa.array([1, 2, 3], pa.int64())}))
    theirs, ours = tables
    ours.merge(source, "target.id = source.id").when_matched_delete().when_not_matched_insert_all().execute()
    assert rows_of(ours) == [(2,), (3,), (9,)]
    rows = "SELECT /*+ COALESCE(1) */ * FROM VALUES (1), (1), (9) AS s(id)"
    clauses = "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *"
    engine.sql(f"MERGE INTO delta.`{theirs.location}` t USING ({rows}) s ON t.id = s.id {clauses}")
    assert len(rows_of(theirs)) == 2
    changes = theirs.changes(2).read_all()
    assert sorted(zip(changes["_change_type"].to_pylist(), changes["id"].to_pylist(), strict=True)) == [
        ("delete", 1),
        ("insert", 9),
    ]
