"""Type changes: which are permitted, what is recorded, and that readers see the same rows before and after."""

import contextlib
import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pytest

from refimpl.client.create import create_filesystem_table
from refimpl.client.maintenance import write_checkpoint
from refimpl.client.table import Table
from refimpl.protocol.actions import Protocol
from refimpl.protocol.errors import InvalidRequestError, UnsupportedFeatureError
from refimpl.schema.schema import Field, Primitive, Struct, holds, parse, type_named, widens
from refimpl.storage.environment import Environment
from refimpl.warehouse import Warehouse
from spec_tests.support.builders import commit, redefine
from spec_tests.support.other_readers import by_duckdb
from spec_tests.support.written_log import WrittenLog, metadata

ON = {"delta.enableTypeWidening": "true"}
FED = ON | {"delta.enableChangeDataFeed": "true"}

WHOLE = "decimal(10,0) decimal(12,2) decimal(20,0) decimal(38,18)"
PERMITTED = {
    "byte": f"short integer long double {WHOLE}",
    "short": f"integer long double {WHOLE}",
    "integer": f"long double {WHOLE}",
    "long": "decimal(20,0) decimal(38,18)",
    "float": "double",
    "date": "timestamp_ntz",
    "decimal(5,2)": "decimal(6,2) decimal(6,3) decimal(10,2) decimal(12,2) decimal(38,18)",
    "decimal(6,2)": "decimal(10,2) decimal(12,2) decimal(38,18)",
    "decimal(6,3)": "decimal(38,18)",
    "decimal(10,0)": "decimal(12,2) decimal(20,0) decimal(38,18)",
    "decimal(10,2)": "decimal(12,2) decimal(38,18)",
    "decimal(12,2)": "decimal(38,18)",
    "decimal(20,0)": "decimal(38,18)",
}
"""Each type with the types that a column may change to: PROTOCOL.md, "Type Widening"."""
TYPES = [
    *("byte", "short", "integer", "long", "float", "double", "date", "timestamp", "timestamp_ntz", "string", "binary"),
    *("boolean", "decimal(5,2)", "decimal(6,2)", "decimal(6,3)", "decimal(10,0)", "decimal(10,2)", "decimal(12,2)"),
    *("decimal(20,0)", "decimal(38,18)"),
]


def test_the_permitted_changes_are_those_of_the_protocol() -> None:
    permitted = {old: {new for new in TYPES if widens(type_named(old), type_named(new))} for old in TYPES}
    assert permitted == {old: {*PERMITTED.get(old, "").split()} for old in TYPES}


def test_a_reader_accepts_each_decimal_that_holds_all_values() -> None:
    """PROTOCOL.md requires writers to use more digits than previews of Delta Spark used."""
    fitting = {"byte": 3, "short": 5, "integer": 10, "long": 19}
    for old, digits in fitting.items():
        assert holds(type_named(old), type_named(f"decimal({digits + 1},1)"))
        assert not holds(type_named(old), type_named(f"decimal({digits},1)"))
    assert holds(type_named("decimal(5,2)"), type_named("decimal(6,2)"))
    assert not holds(type_named("long"), type_named("integer"))


CASES: list[tuple[str, str, pa.DataType, Any, Any]] = [
    ("byte", "short", pa.int8(), 7, 300),
    ("short", "integer", pa.int16(), -7, 70_000),
    ("integer", "long", pa.int32(), 2**31 - 1, 2**31),
    ("float", "double", pa.float32(), 0.1, 0.2),
    ("integer", "double", pa.int32(), 3, 0.5),
    ("date", "timestamp_ntz", pa.date32(), datetime.date(2026, 1, 2), datetime.datetime(2026, 1, 2, 3)),  # noqa: DTZ001
    ("decimal(5,2)", "decimal(8,4)", pa.decimal128(5, 2), decimal.Decimal("9.25"), decimal.Decimal("9.1234")),
    ("integer", "decimal(12,2)", pa.int32(), 5, decimal.Decimal("5.25")),
    ("long", "decimal(20,0)", pa.int64(), 2**63 - 1, decimal.Decimal(2**63)),
    ("byte", "long", pa.int8(), 7, 2**40),
    ("byte", "double", pa.int8(), 7, 0.5),
    ("short", "double", pa.int16(), -7, 0.5),
    ("byte", "decimal(10,0)", pa.int8(), 7, decimal.Decimal(10**9)),
    ("short", "decimal(11,1)", pa.int16(), 7, decimal.Decimal("7.5")),
]


@pytest.mark.parametrize("partitioned", [False, True])
def test_rows_of_both_types_are_read(tmp_path: Path, partitioned: bool) -> None:
    """Our client also reads them through a checkpoint, by a condition and after a rewrite. DuckDB reads them too."""
    names = [old.partition("(")[0] + str(number) for number, (old, *_) in enumerate(CASES)]
    schema = pa.schema(
        [("id", pa.int64()), *((name, kind) for name, (_, _, kind, *_) in zip(names, CASES, strict=True))]
    )
    columns = names if partitioned else []
    table = create_filesystem_table(tmp_path / "t", Environment(), schema, partition_columns=columns, properties=ON)
    befores = [pa.array([before], kind) for _, _, kind, before, _ in CASES]
    table.append(pa.table([pa.array([1]), *befores], schema=schema))
    table.alter(types={name: new for name, (_, new, *_) in zip(names, CASES, strict=True)})
    wide = table.snapshot().to_arrow().schema
    afters = [pa.array([after], wide.field(name).type) for name, (*_, after) in zip(names, CASES, strict=True)]
    table.append(pa.table([pa.array([2]), *afters], schema=wide))
    widened = [array.cast(wide.field(name).type)[0].as_py() for name, array in zip(names, befores, strict=True)]
    expected = [(1, *widened), (2, *(case[4] for case in CASES))]

    def read(where: str | None = None) -> list[tuple[Any, ...]]:
        snapshot = Table.by_path(table.location).snapshot()
        return sorted(tuple(row.values()) for row in snapshot.to_arrow(where=where).to_pylist())

    assert read() == expected
    assert read("integer2 = 2147483647 AND byte0 < 8 AND decimal6 = 9.25 AND date5 < DATE '2026-01-03'") == expected[:1]
    if partitioned:  # DELTA.md#features-in-other-readers
        with pytest.raises(duckdb.IOException, match="Failed to parse value"):
            by_duckdb(table.location, ("id", *names))
    else:
        assert by_duckdb(table.location, ("id", *names)) == expected
    write_checkpoint(table)
    assert read() == expected
    stored = parse(table.snapshot().metadata.schema_string)
    changes = [stored[name].metadata["delta.typeChanges"] for name in names]
    assert changes == [[{"fromType": old, "toType": new}] for old, new, *_ in CASES]
    assert table.delete("id = 2").metrics["numDeletedRows"] == 1
    table.update({"id": "id + 10"}, "id = 1")
    assert read() == [(11, *widened)]


def test_a_table_with_only_the_preview_feature_is_not_widened(tmp_path: Path) -> None:
    table = create_filesystem_table(tmp_path / "t", Environment(), pa.schema([("n", pa.int32())]), properties=ON)
    path = table.location / "_delta_log" / f"{0:020}.json"
    path.write_text(path.read_text().replace('"typeWidening"', '"typeWidening-preview"'))
    with pytest.raises(InvalidRequestError, match=r"only the preview.*DROP FEATURE `typeWidening-preview`"):
        Table.by_path(table.location).alter(types={"n": "long"})


NESTED = pa.schema(
    [
        ("id", pa.int64()),
        ("s", pa.struct([("a", pa.int32())])),
        ("l", pa.list_(pa.map_(pa.string(), pa.decimal128(6, 2)))),
    ]
)


@pytest.mark.parametrize("mode", ["none", "name", "id"])
def test_members_elements_and_values_can_be_widened(tmp_path: Path, mode: str) -> None:
    """PROTOCOL.md, "Type Change Metadata": the change is recorded at the nearest field, with a path below arrays and
    maps.
    """
    properties = ON | {"delta.columnMapping.mode": mode}
    table = create_filesystem_table(tmp_path / "t", Environment(), NESTED, properties=properties)
    kind = table.snapshot().to_arrow().schema
    old = {"id": 1, "s": {"a": 1}, "l": [[("k", decimal.Decimal("1.25"))]]}
    table.append(pa.Table.from_pylist([old], schema=kind))
    table.alter(types={"s.a": "long", "l.element.value": "decimal(10,4)"})
    table.alter(types={"s.a": "decimal(20,0)"})
    schema = parse(table.snapshot().metadata.schema_string)
    inner = schema["s"].type
    assert isinstance(inner, Struct)
    assert inner["a"].metadata["delta.typeChanges"] == [
        {"fromType": "integer", "toType": "long"},
        {"fromType": "long", "toType": "decimal(20,0)"},
    ]
    assert schema["l"].metadata["delta.typeChanges"] == [
        {"fromType": "decimal(6,2)", "toType": "decimal(10,4)", "fieldPath": "element.value"}
    ]
    new = {"id": 2, "s": {"a": decimal.Decimal(2**63)}, "l": [[("k", decimal.Decimal("1.1234"))]]}
    table.append(pa.Table.from_pylist([new], schema=table.snapshot().to_arrow().schema))
    rows = table.snapshot().to_arrow().sort_by("id").to_pylist()
    assert rows == [old | {"s": {"a": decimal.Decimal(1)}, "l": [[("k", decimal.Decimal("1.2500"))]]}, new]


def ints(location: Path, properties: dict[str, str] = ON, **columns: pa.DataType) -> Table:
    schema = pa.schema(list((columns or {"x": pa.int32()}).items()))
    return create_filesystem_table(location, Environment(), schema, properties=properties)


@pytest.mark.parametrize(
    ("types", "problem"),
    [
        ({"x": "short"}, "cannot change from integer to short"),
        ({"x": "string"}, "cannot change from integer to string"),
        ({"x": "float"}, "cannot change from integer to float"),
        ({"x": "decimal(9,0)"}, r"cannot change from integer to decimal\(9,0\)"),
        ({"x": "integer"}, "cannot change from integer to integer"),
        ({"y": "long"}, "unknown column 'y'"),
        ({"x.element": "long"}, "unknown column 'x.element'"),
        ({"x": "bigint"}, "invalid type 'bigint'"),
        ({}, "nothing to change"),
    ],
)
def test_other_changes_are_refused(tmp_path: Path, types: dict[str, str], problem: str) -> None:
    table = ints(tmp_path / "t")
    with pytest.raises(InvalidRequestError, match=problem):
        table.alter(types=types)
    assert table.snapshot().version == 0


def test_only_a_table_with_type_widening_is_widened(tmp_path: Path) -> None:
    """PROTOCOL.md: a writer must reject a change if the property is not set. One commit may set it and widen."""
    table = ints(tmp_path / "t", {})
    table.append(pa.table({"x": pa.array([1], pa.int32())}))
    with pytest.raises(InvalidRequestError, match=r"delta\.enableTypeWidening=true"):
        table.alter(types={"x": "long"})
    table.alter(properties=ON, types={"x": "long"})
    protocol = table.snapshot().protocol
    assert "typeWidening" in (protocol.reader_features or ()) and "typeWidening" in (protocol.writer_features or ())
    table.alter(properties={"delta.enableTypeWidening": "false"})
    with pytest.raises(InvalidRequestError, match="is off"):
        table.alter(types={"x": "decimal(20,0)"})
    assert table.snapshot().to_arrow().to_pydict() == {"x": [1]}


def widening(location: Path, *columns: Field, features: tuple[str, ...] = (), **properties: str) -> WrittenLog:
    """The log of a table with type widening that another client created."""
    own = ("typeWidening",)
    protocol = Protocol(min_reader_version=3, min_writer_version=7, reader_features=own, writer_features=own + features)
    schema = Struct(fields=columns).to_json()
    return WrittenLog(location).publish(0, protocol, metadata(schema, partitioned=(), **ON, **properties))


RULES: list[tuple[str, dict[str, str], dict[str, Any]]] = [
    ("delta.constraints.low", {"delta.constraints.low": "x < 100 AND z > 0"}, {}),
    ("generated column depends on it", {}, {"y": {"delta.generationExpression": "x * 2"}}),
    ("it is a generated column", {}, {"x": {"delta.generationExpression": "y * 2"}}),
    ("it is an identity column", {}, {"x": {"delta.identity.start": 1, "delta.identity.step": 1}}),
    ("invariant", {}, {"x": {"delta.invariants": json.dumps({"expression": {"expression": "x > 0"}})}}),
    ("cannot be evaluated|delta.constraints.h", {"delta.constraints.h": "hash(X) > 0"}, {}),
]


@pytest.mark.parametrize(("problem", "properties", "columns"), RULES, ids=[rule[0] for rule in RULES])
def test_a_column_that_a_rule_uses_keeps_its_type(
    tmp_path: Path, problem: str, properties: dict[str, str], columns: dict[str, Any]
) -> None:
    """The rule may give another value for the wider type. Only the first rule uses `z`."""
    fields = [Field(name=name, type=Primitive(name="integer"), metadata=columns.get(name, {})) for name in "xyz"]
    features = ("checkConstraints", "generatedColumns", "identityColumns", "invariants")
    log = widening(tmp_path / "t", *fields, features=features, **properties)
    with pytest.raises((InvalidRequestError, UnsupportedFeatureError), match=problem):
        log.table().alter(types={"x": "long"})
    assert log.table().snapshot().version == 0
    if "low" not in problem and "hash" not in str(properties):
        log.table().alter(types={"z": "long"})


def test_a_rule_on_another_member_does_not_prevent_the_change(tmp_path: Path) -> None:
    """A rule on the member itself, or on the last column, prevents its change."""
    member = pa.struct([("a", pa.int32()), ("b", pa.int32())])
    properties = ON | {"delta.constraints.low": "s.b > 0 AND z > 0"}
    table = ints(tmp_path / "t", properties, s=member, z=pa.int32())
    table.alter(types={"s.a": "long"})
    for column in ("s.b", "z"):
        with pytest.raises(InvalidRequestError, match=r"delta\.constraints\.low depends on it"):
            table.alter(types={column: "long"})
    assert table.snapshot().version == 1


def test_a_caller_cannot_set_the_history_of_types(tmp_path: Path) -> None:
    """With a wrong history, readers would read files with a wrong type."""
    table = ints(tmp_path / "t", x=pa.int32(), y=pa.string())
    table.append(pa.table({"x": pa.array([1], pa.int32()), "y": ["a"]}))
    table.alter(types={"x": "long"})
    forged = [{"fromType": "string", "toType": "integer"}]
    for name, kind, history in (("y", "integer", forged), ("x", "integer", []), ("y", "string", forged)):
        schema = json.loads(table.snapshot().metadata.schema_string)
        for column in schema["fields"]:
            if column["name"] == name:
                column |= {"type": kind, "metadata": {"delta.typeChanges": history}}
        with contextlib.nullcontext() if kind == "string" else pytest.raises(InvalidRequestError, match="would become"):
            commit(table, lambda t, schema=schema: redefine(t, schema_string=json.dumps(schema)))
    kept = parse(table.snapshot().metadata.schema_string)
    assert [column.type_changes != () for column in kept.fields] == [True, False]


def test_a_renamed_column_keeps_its_history(tmp_path: Path) -> None:
    """The files have the column's physical name."""
    table = ints(tmp_path / "t", ON | {"delta.columnMapping.mode": "name"}, x=pa.int32(), y=pa.int32())
    table.append(pa.table({"x": pa.array([1], pa.int32()), "y": pa.array([2], pa.int32())}))
    table.alter(types={"x": "long"})
    x, y = parse(table.snapshot().metadata.schema_string).fields
    own = {key: value for key, value in x.metadata.items() if "Mapping" in key}
    swapped = (Field(name="y", type=x.type, metadata=own), Field(name="x", type=y.type, metadata=y.metadata))
    commit(table, lambda t: redefine(t, schema_string=Struct(fields=swapped).to_json()))
    after = parse(table.snapshot().metadata.schema_string)
    assert {column.name: len(column.type_changes) for column in after.fields} == {"y": 1, "x": 0}
    assert table.snapshot().to_arrow().to_pylist() == [{"y": 1, "x": 2}]


def test_a_schema_with_an_unsupported_change_is_refused(tmp_path: Path) -> None:
    """PROTOCOL.md, "Reader Requirements for Type Widening"."""
    changes = [{"fromType": "string", "toType": "integer"}]
    column = Field(name="x", type=Primitive(name="integer"), metadata={"delta.typeChanges": changes})
    with pytest.raises(UnsupportedFeatureError, match="'x' changed from string to integer"):
        widening(tmp_path / "t", column).table().snapshot()


@pytest.mark.parametrize(("value", "where"), [(0.7, "x < 0.7"), (0.1, "x = 0.10000000149011612")])
def test_bounds_of_floats_are_widened_by_their_rounding(tmp_path: Path, value: float, where: str) -> None:
    """The statistics say 0.7 and 0.1. As doubles, the values are a little less and a little greater."""
    table = ints(tmp_path / "t", x=pa.float32())
    table.append(pa.table({"x": pa.array([value], pa.float32())}))
    (add,) = table.snapshot().files.values()
    exact = json.dumps({"numRecords": 1, "minValues": {"x": value}, "maxValues": {"x": value}, "nullCount": {"x": 0}})
    commit(table, lambda t: t.add(msgspec.structs.replace(add, stats=exact)))
    table.alter(types={"x": "double"})
    assert table.snapshot().to_arrow(where=where).num_rows == 1
    assert table.snapshot().to_arrow(where="x > 0.8").num_rows == 0


def test_the_feed_is_read_with_the_wider_type(warehouse: Warehouse) -> None:
    """DELTA.md#feed-schema: the feed has inserts, change files of an update, and a file that was removed after the
    change.
    """
    schema = pa.schema([("id", pa.int64()), ("x", pa.int32())])
    table = warehouse.create_table("fed", schema, properties=FED)
    table.append(pa.table({"id": [1, 2], "x": pa.array([1, 2], pa.int32())}))
    table.update({"x": "x + 10"}, "id = 1")
    table.alter(types={"x": "long"})
    table.update({"x": "9000000000"}, "id = 1")
    table.delete("id = 2")
    feed = table.changes(1).read_all()
    assert feed.schema.field("x").type == pa.int64()
    changes = sorted((row["_commit_version"], row["_change_type"], row["id"], row["x"]) for row in feed.to_pylist())
    assert changes == [
        (1, "insert", 1, 1), (1, "insert", 2, 2),
        (2, "update_postimage", 1, 11), (2, "update_preimage", 1, 1),
        (4, "update_postimage", 1, 9_000_000_000), (4, "update_preimage", 1, 11),
        (5, "delete", 2, 2),
    ]  # fmt: skip
    assert table.changes(1, 2).read_all().schema.field("x").type == pa.int32()


def test_the_feed_is_refused_across_a_replaced_type(warehouse: Warehouse) -> None:
    """One commit replaces all files, and the type by one that cannot hold the old values."""
    table = warehouse.create_table("fed", pa.schema([("x", pa.int32())]), properties=FED)
    table.append(pa.table({"x": pa.array([1], pa.int32())}))
    table.alter(types={"x": "long"})
    text = Struct(fields=(Field(name="x", type=Primitive(name="string")),)).to_json()
    commit(table, lambda t: t.remove(*t.read_whole_table()), lambda t: redefine(t, schema_string=text))
    with pytest.raises(InvalidRequestError, match="'x' would become string from integer"):
        table.changes(1)
    assert parse(table.snapshot().metadata.schema_string)["x"].metadata == {}
