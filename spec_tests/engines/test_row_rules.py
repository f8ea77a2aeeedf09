"""Tables with rules of rows and with row tracking, written in turn by our client and by Delta Spark."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from refimpl.client.create import create_filesystem_table
from refimpl.client.table import Table
from refimpl.errors import InvalidRequestError
from spec_tests.engines.delta_spark_session import Engine, rows_of

pytestmark = [pytest.mark.engines, pytest.mark.spark, pytest.mark.xdist_group("spark")]


def column(name: str, kind: str, *, nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    keys = {key.replace("__", "."): value for key, value in metadata.items()}
    return {"name": name, "type": kind, "nullable": nullable, "metadata": keys}


IDENTITY = {"delta__identity__start": 1, "delta__identity__step": 2, "delta__identity__allowExplicitInsert": False}
INVARIANT = json.dumps({"expression": {"expression": "x > 0"}})
RULES = [
    column("id", "long", **IDENTITY),
    column("x", "long", delta__invariants=INVARIANT),
    column("y", "long", delta__generationExpression="x * 2"),
    column("kind", "string", nullable=False, CURRENT_DEFAULT="'new'"),
]


def made(engine: Engine, name: str, columns: list[dict[str, Any]], **properties: str) -> Table:
    schema = json.dumps({"type": "struct", "fields": columns})
    named = {key.replace("__", "."): value for key, value in properties.items()}
    return create_filesystem_table(engine.place(name), engine.warehouse.environment, schema, properties=named)


def attempt(engine: Engine, statement: str) -> str:
    """The message of the error that ends a statement."""
    with pytest.raises(Exception) as caught:
        engine.sql(statement)
    return str(caught.value)


def test_delta_spark_writes_by_the_same_rules(engine: Engine) -> None:
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


def test_delta_spark_sees_the_row_ids_that_we_assign_and_keep(engine: Engine) -> None:
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
    assert ids() == expected | {1: (before[1][0], 8)}
