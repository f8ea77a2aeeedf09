"""Column mapping: files, statistics and partition values use physical names and field ids; rows use the
schema's names.
"""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refimpl.client.create import create_filesystem_table
from refimpl.client.data_maintenance import optimize, vacuum
from refimpl.client.maintenance import write_checkpoint
from refimpl.client.table import Table
from refimpl.client.transaction import Transaction
from refimpl.protocol.actions import Metadata, Protocol
from refimpl.protocol.errors import CorruptionError, InvalidRequestError, InvalidTableError
from refimpl.rows import arrow_columns
from refimpl.schema import schema as delta_schema
from refimpl.schema.schema import Array, Field, Map, Primitive, Struct
from refimpl.storage.environment import Environment
from spec_tests.support.builders import commit, redefine
from spec_tests.support.other_readers import by_delta_rs, by_duckdb
from spec_tests.support.written_log import WrittenLog, add, definition

LONG, TEXT = Primitive(name="long"), Primitive(name="string")
BOTH = ("columnMapping",)
PROTOCOLS = [
    Protocol(min_reader_version=2, min_writer_version=5),
    Protocol(min_reader_version=3, min_writer_version=7, reader_features=BOTH, writer_features=BOTH),
]
MODES = pytest.mark.parametrize("mode", ["name", "id"])


def mapped(name: str, physical: str, number: int, kind: Any = LONG) -> Field:
    metadata = {"delta.columnMapping.physicalName": physical, "delta.columnMapping.id": number}
    return Field(name=name, type=kind, metadata=metadata)


def table_of(*columns: Field, mode: str = "name", partitioned: Sequence[str] = ()) -> Metadata:
    configuration = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "50"}
    schema = Struct(fields=columns).to_json()
    return Metadata(id="t", schema_string=schema, partition_columns=tuple(partitioned), configuration=configuration)


def numbered(name: str, number: int | None, kind: pa.DataType | None = None) -> pa.Field:
    return pa.field(name, kind or pa.int64(), metadata=None if number is None else {"PARQUET:field_id": str(number)})


class Written:
    """A log and its data files, written by hand with the columns that a test needs."""

    def __init__(self, location: Path) -> None:
        self.log = WrittenLog(location)
        self._version = 0

    def begin(self, metadata: Metadata, protocol: Protocol = PROTOCOLS[0]) -> "Written":
        self.log.publish(self._version, protocol, metadata)
        self._version += 1
        return self

    def file(
        self, columns: dict[pa.Field, list[Any]], stats: dict[str, Any] | None = None, **partition: str
    ) -> "Written":
        name = f"f{self._version}.parquet"
        schema = pa.schema(list(columns))
        pq.write_table(pa.table(list(columns.values()), schema=schema), self.log.location / name, store_schema=False)
        text = None if stats is None else json.dumps(stats)
        joined = msgspec.structs.replace(add(name), partition_values=dict(partition), stats=text)
        self.log.publish(self._version, joined)
        self._version += 1
        return self

    def rows(self, where: str | None = None) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.log.table().snapshot().to_arrow(where=where).to_pylist()
        return rows


@pytest.fixture
def table(tmp_path: Path) -> Written:
    return Written(tmp_path / "t")


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=["legacy", "listed"])
def test_a_column_is_found_by_its_physical_name(table: Written, protocol: Protocol) -> None:
    table.begin(table_of(mapped("id", "col-1", 1), mapped("price", "col-2", 2)), protocol)
    table.file({numbered("col-2", None): [20], numbered("col-1", None): [1], numbered("price", None): [99]})
    assert table.rows() == [{"id": 1, "price": 20}]


def test_a_column_is_found_by_its_field_id(table: Written) -> None:
    table.begin(table_of(mapped("id", "col-1", 1), mapped("price", "col-2", 2), mapped("new", "x", 3), mode="id"))
    table.file({numbered("col-1", 2): [20], numbered("whatever", 1): [1], numbered("x", None): [99]})
    assert table.rows() == [{"id": 1, "price": 20, "new": None}]


def test_logical_names_are_used_if_the_protocol_has_no_column_mapping(table: Written) -> None:
    table.begin(table_of(mapped("id", "col-1", 1)), definition()[0])
    table.file({numbered("id", 7): [1], numbered("col-1", 1): [99]})
    assert table.rows() == [{"id": 1}]


@MODES
def test_members_at_any_depth_are_mapped(table: Written, mode: str) -> None:
    """Two members have swapped names, and one of them now has the old name of a third one."""
    inner = Struct(fields=(mapped("a", "b", 2), mapped("b", "a", 3), mapped("gone", "new", 4)))
    table.begin(
        table_of(
            mapped("s", "p", 1, inner),
            mapped("list", "q", 5, Array(element=inner)),
            mapped("map", "r", 6, Map(key=TEXT, value=inner)),
            mode=mode,
        )
    )
    stored = pa.struct([numbered("a", 3), numbered("b", 2), numbered("gone", 9)])
    value = {"a": 30, "b": 20, "gone": 99}
    table.file(
        {
            numbered("p", 1, stored): [value],
            numbered("q", 5, pa.list_(stored)): [[value]],
            numbered("r", 6, pa.map_(pa.string(), stored)): [[("k", value)]],
        }
    )
    seen = {"a": 20, "b": 30, "gone": None}
    assert table.rows() == [{"s": seen, "list": [seen], "map": [("k", seen)]}]


def test_renamed_and_dropped_columns(table: Written) -> None:
    table.begin(table_of(mapped("id", "id", 1), mapped("note", "note", 2)))
    table.file({numbered("id", None): [1], numbered("note", None): [10]})
    table.begin(table_of(mapped("number", "id", 1), mapped("note", "col-3", 3)))  # dropped, and added again
    table.file({numbered("id", 1): [2], numbered("col-3", 3): [20]})
    assert table.rows() == [{"number": 1, "note": None}, {"number": 2, "note": 20}]


@MODES
def test_files_are_skipped_by_physical_names(table: Written, mode: str) -> None:
    """The statistics have another column under the name that the condition uses."""
    table.begin(table_of(mapped("id", "x", 1), mapped("x", "id", 2), mapped("p", "q", 3), mode=mode, partitioned=["p"]))
    values = {"x": 1, "id": 2}
    stats = {"numRecords": 1, "minValues": values, "maxValues": values}
    table.file({numbered("x", 1): [1], numbered("id", 2): [2]}, stats, q="5", p="6")
    snapshot = table.log.table().snapshot()
    (file,) = snapshot.files.values()
    tests = {where: snapshot.file_test(where).may_match(file) for where in ("id = 1", "id = 2", "p = 5", "p = 6")}
    assert tests == {"id = 1": True, "id = 2": False, "p = 5": True, "p = 6": False}
    assert table.rows("id = 1 AND p = 5") == [{"id": 1, "x": 2, "p": 5}]


def test_mode_id_rejects_a_file_without_field_ids(table: Written) -> None:
    """The protocol permits two answers: reject such a file, or return nulls. The client rejects it, because nulls would
    be wrong rows.
    """
    table.begin(table_of(mapped("id", "id", 1), mode="id")).file({numbered("id", None): [1]})
    with pytest.raises(CorruptionError, match="no field ids"):
        table.rows()


@pytest.mark.parametrize("metadata", [{}, {"delta.columnMapping.physicalName": "x"}, {"delta.columnMapping.id": 1}])
def test_a_column_without_its_mapping_is_rejected(table: Written, metadata: dict[str, Any]) -> None:
    inner = Struct(fields=(Field(name="a", type=LONG, metadata=metadata),))
    table.begin(table_of(mapped("s", "p", 1, inner)))
    with pytest.raises(InvalidTableError, match=r"'s\.a'"):
        table.rows()


def created(location: Path, mode: str) -> Table:
    """A table with `id` and `at: {day, note}`, partitioned by `the month`."""
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("the month", pa.string()),
            ("at", pa.struct([("day", pa.int64()), ("note", pa.list_(pa.struct([("x y", pa.string())])))])),
        ]
    )
    properties = {"delta.columnMapping.mode": mode, "delta.enableChangeDataFeed": "true"}
    environment = Environment()
    table = create_filesystem_table(
        location, environment, schema, partition_columns=["the month"], properties=properties
    )
    table.append(rows_of(table, *((number, f"0{number % 2}") for number in range(6))))
    return table


def rows_of(table: Table, *rows: tuple[int, str]) -> pa.Table:
    schema = delta_schema.to_arrow(table.snapshot().schema)
    values = [
        {"id": number, "the month": month, "at": {"day": number, "note": [{"x y": str(number)}]}}
        for number, month in rows
    ]
    return pa.Table.from_pylist(values, schema=schema)


def ids(table: Table, where: str | None = None) -> list[int]:
    return sorted(table.snapshot().to_arrow(["id"], where).column("id").to_pylist())


def test_schemas_that_differ_in_field_ids_stay_apart() -> None:
    for number in (1, 2):
        [column] = arrow_columns.all_nullable(pa.schema([numbered("a", number)]))
        assert column.metadata == {b"PARQUET:field_id": str(number).encode()}


@MODES
def test_files_are_written_with_physical_names_and_field_ids(tmp_path: Path, mode: str) -> None:
    table = created(tmp_path / "t", mode)
    snapshot = table.snapshot()
    assert snapshot.protocol.reads("columnMapping")
    assert snapshot.metadata.configuration["delta.columnMapping.maxColumnId"] == "6"
    by_name = {column.name: column for column in snapshot.schema.fields}
    physical = {name: column.physical_name for name, column in by_name.items()}
    assert all(name.startswith("col-") for name in physical.values())
    add = next(iter(snapshot.files.values()))
    assert add.partition_values.keys() == {physical["the month"]}
    assert add.path.startswith(f"{physical['the month']}=0")
    at = by_name["at"].type
    assert isinstance(at, Struct)
    day, note = at.fields
    statistics = json.loads(add.stats or "")
    assert statistics["minValues"].keys() == {physical["id"], physical["at"]}
    assert statistics["minValues"][physical["at"]].keys() == {day.physical_name}
    assert statistics["nullCount"][physical["at"]] == {day.physical_name: 0, note.physical_name: 0}
    stored = pq.read_schema(table.location / add.path)
    assert stored.names == [physical["id"], physical["at"]]
    members = list(stored.field(1).type)
    leaf = members[1].type.value_type.field(0)
    assert [int(item.metadata[b"PARQUET:field_id"]) for item in (*stored, *members, leaf)] == [1, 3, 4, 5, 6]
    assert table.snapshot().to_arrow().sort_by("id").equals(rows_of(table, *((n, f"0{n % 2}") for n in range(6))))
    assert by_delta_rs(table.location, ["id", '"the month"']) == [(n, f"0{n % 2}") for n in range(6)]
    # DuckDB 1.5.5 reads NULL for the partition columns of such a table.
    assert by_duckdb(table.location, ["id", '"the month"']) == [(n, None) for n in range(6)]


@MODES
def test_rows_are_changed_and_files_maintained(tmp_path: Path, mode: str) -> None:
    table = created(tmp_path / "t", mode)
    table.append(rows_of(table, (6, "00"), (7, "01")))
    assert optimize(table).removed == 4
    assert table.delete("at.day = 1 AND `the month` = '01'").metrics["numDeletedRows"] == 1
    assert table.update({"the month": "'02'"}, "id = 2").metrics["numUpdatedRows"] == 1
    source = rows_of(table, (3, "09"), (10, "09"))
    merged = table.merge(source, "target.id = source.id").when_matched_delete().when_not_matched_insert_all().execute()
    assert merged.metrics["numTargetRowsInserted"] == merged.metrics["numTargetRowsDeleted"] == 1
    assert ids(table) == [0, 2, 4, 5, 6, 7, 10]
    assert ids(table, "`the month` = '02'") == [2]
    assert ids(table, "at.day > 6") == [7, 10]
    feed = table.changes(from_version=table.snapshot().version).read_all()
    assert sorted(zip(feed["id"].to_pylist(), feed["_change_type"].to_pylist(), strict=True)) == [
        (3, "delete"),
        (10, "insert"),
    ]
    write_checkpoint(table)
    again = Table.by_path(table.location)
    assert ids(again) == ids(table)
    kept = vacuum(table, older_than=0, dry_run=False, force=True).kept
    assert kept >= len(table.snapshot().files)
    assert ids(table) == [number for (number,) in by_duckdb(table.location, ["id"])]
    table.overwrite(rows_of(table, (1, "01")))
    assert ids(table) == [1]


def columns_of(table: Table) -> list[dict[str, Any]]:
    """The columns in the schema's JSON."""
    columns: list[dict[str, Any]] = json.loads(table.snapshot().metadata.schema_string)["fields"]
    return columns


def with_columns(columns: list[dict[str, Any]], **fields: Any) -> Callable[[Transaction], None]:
    """Replaces the columns of the table."""
    text = json.dumps({"type": "struct", "fields": columns})
    return lambda t: redefine(t, schema_string=text, **fields)


NEW = {"name": "new", "type": "long", "nullable": True, "metadata": {}}


def test_columns_are_renamed_dropped_and_added_without_a_rewrite(tmp_path: Path) -> None:
    table = created(tmp_path / "t", "name")
    number, month, _ = columns_of(table)
    number["name"], month["name"] = "the month", "id"  # the names are swapped; the data is not
    commit(table, with_columns([number, month, NEW], partition_columns=("id",)))
    after = table.snapshot()
    assert after.metadata.configuration["delta.columnMapping.maxColumnId"] == "7"
    assert after.schema["new"].field_id == 7
    rows = after.to_arrow().sort_by("the month").to_pylist()
    assert rows[1] == {"the month": 1, "id": "01", "new": None}
    assert rows == [
        dict(zip(("the month", "id", "new"), row, strict=True))
        for row in by_delta_rs(table.location, ['"the month"', "id", "new"])
    ]
    with pytest.raises(InvalidRequestError, match="renamed"):
        table.changes(from_version=1)


def test_a_renamed_partition_column_selects_the_same_files(tmp_path: Path) -> None:
    """The names of two columns are swapped in the transaction that reads a partition."""
    table = created(tmp_path / "t", "name")
    number, month, at = columns_of(table)
    number["name"], month["name"] = month["name"], number["name"]
    transaction = table.transaction()
    with_columns([number, month, at], partition_columns=(month["name"],))(transaction)
    physical = month["metadata"]["delta.columnMapping.physicalName"]
    read = transaction.read_partitions([{physical: "01"}])
    assert [add.partition_values for add in read] == [{physical: "01"}]


@pytest.mark.parametrize("change", [{"id": 1}, {"physicalName": "of-number"}, {"id": 9}, {"physicalName": "new"}])
def test_two_columns_cannot_share_a_physical_name(tmp_path: Path, change: dict[str, Any]) -> None:
    table = created(tmp_path / "t", "id")
    columns = columns_of(table)
    number, month = (column["metadata"] for column in columns[:2])
    of_number = number["delta.columnMapping.physicalName"]
    month |= {f"delta.columnMapping.{k}": of_number if v == "of-number" else v for k, v in change.items()}
    with pytest.raises(InvalidRequestError, match="another column's"):
        commit(table, with_columns(columns))


def test_each_column_keeps_its_own_id(tmp_path: Path) -> None:
    """The first column, the last one and each member keep their ids: another id, used or unused, is refused."""
    table = created(tmp_path / "t", "id")
    before = table.snapshot().metadata.schema_string
    numbers = re.findall(r'"delta\.columnMapping\.id":(\d+)', before)
    assert len(numbers) > 3
    for number in numbers:
        for other in ("99", numbers[numbers.index(number) - 1]):
            text = re.sub(rf'(columnMapping\.id":){number}\b', rf"\g<1>{other}", before)
            with pytest.raises(InvalidRequestError, match="another column's"):
                redefine(table.transaction(), schema_string=text)


def test_a_replaced_schema_keeps_the_earlier_types_of_columns(tmp_path: Path) -> None:
    """DELTA.md#type-widening: readers need the earlier types for the statistics of older files."""
    changes = [{"fromType": "float", "toType": "double"}]
    widened = Field(name="x", type=Primitive(name="double"), metadata={"delta.typeChanges": changes})
    schema = Struct(fields=(widened,)).to_json()
    table = WrittenLog(tmp_path).publish(0, PROTOCOLS[0], Metadata(id="t", schema_string=schema)).table()
    plain = Struct(fields=(Field(name="x", type=Primitive(name="double")), Field(name="new", type=LONG)))
    commit(table, lambda t: redefine(t, schema_string=plain.to_json()))
    assert [column.was_float for column in table.snapshot().schema.fields] == [True, False]


@pytest.mark.parametrize("mode", ["name", "none", None])
def test_the_mode_of_a_table_cannot_change(tmp_path: Path, mode: str | None) -> None:
    table = created(tmp_path / "t", "id")
    key = "delta.columnMapping.mode"
    with pytest.raises(InvalidRequestError, match="cannot change from id"):
        table.alter(properties={key: mode} if mode else {}, remove=() if mode else [key])
    commit(table, lambda t: redefine(t, configuration={}))
    assert table.snapshot().metadata.configuration[key] == "id"
    assert ids(table) == list(range(6))


def test_the_mode_can_change_from_none_to_name(tmp_path: Path) -> None:
    """DELTA.md#mapping-mode: the existing files keep their rows; then columns are renamed and dropped."""
    schema = pa.schema([("id", pa.int64()), ("month", pa.string()), ("s", pa.struct([("a", pa.int64())]))])
    properties = {"delta.enableChangeDataFeed": "true"}
    table = create_filesystem_table(
        tmp_path / "t", Environment(), schema, partition_columns=["month"], properties=properties
    )
    table.append(pa.table({"id": [1, 2], "month": ["01", "02"], "s": [{"a": 1}, {"a": 2}]}, schema=schema))
    table.alter(properties={"delta.columnMapping.mode": "name"})
    snapshot = table.snapshot()
    places = {path: column.physical_name for column, path in delta_schema.walk(snapshot.schema)}
    assert places == {"id": "id", "month": "month", "s": "s", "s.a": "a"}
    assert snapshot.metadata.configuration["delta.columnMapping.maxColumnId"] == "4"
    assert "columnMapping" in (snapshot.protocol.reader_features or ())
    assert ids(table, "month = '01' AND s.a = 1") == [1]
    table.append(pa.table({"id": [3], "month": ["01"], "s": [{"a": 3}]}, schema=schema))
    table.update({"id": "id + 10"}, "s.a = 2")
    assert by_delta_rs(table.location) == by_duckdb(table.location) == [(1, "01"), (3, "01"), (12, "02")]
    for name in ("number", "id"):  # renamed, and `s` dropped; then a new column gets the old name
        columns = columns_of(table)
        columns[2:] = [] if name == "number" else [NEW | {"name": name}]
        columns[0]["name"] = "number"
        commit(table, with_columns(columns))
    rows = table.snapshot().to_arrow().sort_by("number").to_pylist()
    assert rows == [{"number": n, "month": m, "id": None} for n, m in ((1, "01"), (3, "01"), (12, "02"))]
    kinds = [row["_change_type"] for row in table.changes(1, 4).read_all().to_pylist()]
    assert sorted(kinds) == ["insert"] * 3 + ["update_postimage", "update_preimage"]


@pytest.mark.parametrize("mode", ["id", "NONE"])
def test_other_changes_of_the_mode_are_rejected(tmp_path: Path, mode: str) -> None:
    table = create_filesystem_table(tmp_path / "t", Environment(), pa.schema([("id", pa.int64())]))
    if mode == "NONE":
        table.alter(properties={"delta.columnMapping.mode": "name"})
    before = table.snapshot().version
    with pytest.raises(InvalidRequestError, match="only none can become name"):
        table.alter(properties={"delta.columnMapping.mode": mode})
    assert table.snapshot().version == before


def test_the_new_mode_ignores_physical_names_in_the_schema(tmp_path: Path) -> None:
    """Files written without column mapping use the logical names. With other physical names, all their values would be
    null.
    """
    schema = Struct(fields=(mapped("id", "elsewhere", 7),)).to_json()
    log = WrittenLog(tmp_path / "t").publish(0, definition()[0], Metadata(id="t", schema_string=schema))
    table = log.table()
    table.append(pa.table({"id": [1]}))
    table.alter(properties={"delta.columnMapping.mode": "name"})
    table.append(pa.table({"id": [2]}))
    assert ids(log.table()) == [1, 2]
