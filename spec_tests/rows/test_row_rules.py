"""Rules for rows: which rows a table refuses, which values it computes, and that a refused row leaves no change."""

import contextlib
import datetime
import decimal
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import refimpl
from refimpl.client.create import create_filesystem_table
from refimpl.client.data_maintenance import optimize
from refimpl.client.table import Table
from refimpl.client.transaction import Transaction
from refimpl.protocol import actions, log_path
from refimpl.protocol.actions import DomainMetadata
from refimpl.protocol.commit_owner import Maintenance, MaintenancePolicy
from refimpl.protocol.errors import (
    InvalidRequestError,
    InvalidTableError,
    MetadataChangedError,
    UnsupportedFeatureError,
)
from refimpl.schema.features import PLAIN_PROTOCOL
from refimpl.storage.environment import Environment
from refimpl.warehouse import Warehouse
from spec_tests.support.builders import commit, redefine
from spec_tests.support.other_readers import by_delta_rs
from spec_tests.support.written_log import WrittenLog, metadata

UTC = datetime.UTC


def column(name: str, kind: Any = "long", *, nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    keys = {key.replace("__", "."): value for key, value in metadata.items()}
    return {"name": name, "type": kind, "nullable": nullable, "metadata": keys}


def struct(*columns: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(columns)}


def generated(name: str, text: str, kind: str = "long") -> dict[str, Any]:
    return column(name, kind, delta__generationExpression=text)


def identity(name: str = "id", *, start: int = 1, step: int = 1, explicit: bool = False, **more: Any) -> dict[str, Any]:
    keys = {"start": start, "step": step, "allowExplicitInsert": explicit, **more}
    return column(name, **{f"delta__identity__{key}": value for key, value in keys.items()})


def invariant(name: str, text: str) -> dict[str, Any]:
    return column(name, delta__invariants=json.dumps({"expression": {"expression": text}}))


def limited(name: str, kind: str) -> dict[str, Any]:
    """A column of text as Spark stores it."""
    return column(name, "string") | {"metadata": {"__CHAR_VARCHAR_TYPE_STRING": kind}}


def made(warehouse: Warehouse, *columns: dict[str, Any], **properties: str) -> Table:
    named = {key.replace("__", "."): value for key, value in properties.items()}
    policy = MaintenancePolicy(allowed=frozenset(Maintenance))
    return warehouse.create_table("t", json.dumps(struct(*columns)), properties=named, policy=policy)


def rows_of(table: Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.snapshot().to_arrow().to_pylist()
    return sorted(rows, key=lambda row: tuple((value is not None, str(value)) for value in row.values()))


def refused(table: Table, rows: pa.Table) -> InvalidRequestError:
    """The error of an append that must leave no file and no version."""
    before = (table.snapshot().version, rows_of(table), sorted(table.location.rglob("*.parquet")))
    with pytest.raises(InvalidRequestError) as caught:
        table.append(rows)
    assert (table.snapshot().version, rows_of(table), sorted(table.location.rglob("*.parquet"))) == before
    return caught.value


NESTED = struct(column("a", nullable=False))
LIST = {"type": "array", "elementType": "long", "containsNull": False}
X = column("x")


@pytest.mark.parametrize(
    ("columns", "properties", "good", "bad", "facts"),
    [
        ([column("x", nullable=False)], {}, {"x": [1]}, {"x": [1, None, None]}, {"column": "x", "row": 1}),
        ([column("s", NESTED)], {}, {"s": [None, {"a": 1}]}, {"s": [None, {"a": None}]}, {"column": "s.a", "row": 1}),
        ([column("l", LIST)], {}, {"l": [[], None]}, {"l": [[1], [2, None]]}, {"column": "l.element", "row": 1}),
        ([X], {"delta.constraints.low": "x < 5"}, {"x": [4]}, {"x": [9, 1, 5]}, {"constraint": "low", "count": 2}),
        ([X], {"delta.constraints.low": "x < 5"}, {"x": [4]}, {"x": [1, None]}, {"constraint": "low", "row": 1}),
        ([X], {"delta.constraints.c": "x IS NULL OR x * 2 > 4"}, {"x": [3, None]}, {"x": [2]}, {"constraint": "c"}),
        ([column("s", "string")], {"delta.constraints.c": "length(s) = 2"}, {"s": ["ab"]}, {"s": ["a"]}, {"count": 1}),
        ([limited("a.b", "varchar(2)")], {}, {"a.b": ["é€", None]}, {"a.b": ["a", "abc"]}, {"column": "a.b", "row": 1}),
        ([limited("s", "char(1)")], {}, {"s": ["a", ""]}, {"s": ["ab"]}, {"column": "s", "count": 1}),
        ([invariant("x", "x > 3")], {}, {"x": [4]}, {"x": [3, None]}, {"column": "x", "count": 2, "row": 0}),
        ([column("s", struct(invariant("x", "s.x > 3")))], {}, {"s": [{"x": 4}]}, {"s": [{"x": 3}]}, {"column": "s.x"}),
        ([X, generated("y", "x + 1")], {}, {"x": [1], "y": [2]}, {"x": [1, 2], "y": [2, 4]}, {"column": "y", "row": 1}),
        ([X, generated("y", "x + 1")], {}, {"x": [None], "y": [None]}, {"x": [1], "y": [None]}, {"column": "y"}),
        ([identity(), X], {}, {"x": [1]}, {"id": [7], "x": [1]}, {"column": "id"}),
    ],
)
def test_a_row_that_violates_a_rule_is_refused(
    warehouse: Warehouse,
    columns: list[dict[str, Any]],
    properties: Mapping[str, str],
    good: dict[str, Any],
    bad: dict[str, Any],
    facts: dict[str, Any],
) -> None:
    """DELTA.md#rules-of-rows: the error names the rule, the first row and the count. A rule that gives null is
    violated.
    """
    table = made(warehouse, *columns, **properties)
    table.append(pa.table(good))
    error = refused(table, pa.table(bad))
    assert facts.items() <= error.facts.items()
    assert table.append(pa.table(good)) is not None


@pytest.mark.parametrize(
    ("expression", "kind", "given", "expected"),
    [
        (
            "CAST(x AS DATE)",
            "date",
            ("timestamp", datetime.datetime(2026, 1, 2, 23, tzinfo=UTC)),
            datetime.date(2026, 1, 2),
        ),
        ("year(x)", "integer", ("timestamp", datetime.datetime(2026, 1, 2, tzinfo=UTC)), 2026),
        ("month(x) * 100 + day(x)", "long", ("date", datetime.date(2026, 3, 4)), 304),
        ("hour(x)", "integer", ("timestamp_ntz", datetime.datetime(2026, 1, 2, 5)), 5),  # noqa: DTZ001
        ("substring(x, 1, 2)", "string", ("string", "äöü"), "äö"),
        ("upper(x) || '!'", "string", ("string", "a"), "A!"),
        ("upper(x)", "string", ("string", "straße"), "STRASSE"),
        ("lower(x)", "string", ("string", "ΟΔΟΣ"), "οδος"),
        ("upper(x)", "string", ("string", None), None),
        ("CASE WHEN x > 3 THEN 'big' ELSE 'small' END", "string", ("long", 4), "big"),
        ("coalesce(x, 7)", "long", ("long", None), 7),
        ("7", "long", ("long", 1), 7),
        # Spark computes with doubles where a number of single precision meets an integer
        ("x + 1", "double", ("float", 0.1), 1.1000000014901161),
        ("x * 2", "double", ("float", 2.0**127), 2.0**128),
        ("x * 0.5D", "double", ("long", 2**62 + 1), 2.0**61),
        ("coalesce(x, 1.5D)", "double", ("long", 2**62 + 1), 2.0**62),
        ("x * 1e0", "double", ("decimal(10,2)", decimal.Decimal("1.25")), 1.25),
        ("x + 100L", "long", ("integer", 1), 101),
        ("x + CAST(5 AS INT)", "integer", ("integer", 1), 6),
        ("x + 100", "integer", ("byte", 100), 200),
        ("-1 - x", "integer", ("short", 32767), -32768),
        ("x % 3", "long", ("long", -7), -1),
        ("x % -1", "long", ("long", -(2**63)), 0),
        ("mod(x, 100)", "integer", ("byte", -128), -28),
        ("5 % x", "long", ("long", None), None),
    ],
)
def test_a_missing_generated_column_is_computed(
    warehouse: Warehouse, expression: str, kind: str, given: tuple[str, Any], expected: Any
) -> None:
    """DELTA.md#generated-columns."""
    table = made(warehouse, column("x", given[0]), generated("y", expression, kind))
    table.append(pa.table({"x": pa.array([given[1]])}).cast(pa.schema([table.snapshot().to_arrow().schema.field("x")])))
    assert rows_of(table)[0]["y"] == expected


def test_rules_see_an_empty_partition_value_as_null(warehouse: Warehouse) -> None:
    """DELTA.md#partition-values. Delta Spark does the same."""
    columns = [column("p", "string"), generated("g", "coalesce(p, 'none')", "string")]
    schema, rule = json.dumps(struct(*columns)), {"delta.constraints.c": "p <> 'q'"}
    free = warehouse.create_table("free", schema, partition_columns=["p"])
    free.append(pa.table({"p": ["x", ""]}))
    assert rows_of(free) == [{"p": None, "g": "none"}, {"p": "x", "g": "x"}]
    ruled = warehouse.create_table("ruled", schema, partition_columns=["p"], properties=rule)
    assert refused(ruled, pa.table({"p": ["x", ""]})).facts["constraint"] == "c"


def test_a_value_out_of_the_columns_range_is_refused(warehouse: Warehouse) -> None:
    table = made(warehouse, X, generated("y", "x * 1000", "short"))
    assert refused(table, pa.table({"x": [1, 40]})).column == "y"


@pytest.mark.parametrize("expression", ["x * 2", "x * -2", "x - -2", "x + CAST(2 AS INT)"])
def test_an_overflow_of_the_operands_type_is_refused(warehouse: Warehouse, expression: str) -> None:
    """As in Spark's ANSI mode, also if the column holds the result."""
    table = made(warehouse, column("x", "integer"), generated("y", expression, "long"))
    assert "overflow" in str(refused(table, pa.table({"x": pa.array([2**31 - 1], pa.int32())})))


def test_a_remainder_by_zero_is_refused(warehouse: Warehouse) -> None:
    """As in Spark's ANSI mode."""
    table = made(warehouse, X, generated("y", "7 % x", "long"))
    assert "divide by zero" in str(refused(table, pa.table({"x": [7, 0]})))


def test_a_default_replaces_a_missing_column(warehouse: Warehouse) -> None:
    """DELTA.md#default-columns: an explicit null stays null."""
    moment = column("at", "timestamp", CURRENT_DEFAULT="current_timestamp()")
    kinds = column("kind", "string", nullable=False, CURRENT_DEFAULT="'new'")
    table = made(warehouse, X, column("n", "integer", CURRENT_DEFAULT="-3"), kinds, moment)
    assert table.snapshot().protocol.writes("allowColumnDefaults")
    table.append(pa.table({"x": [1]}))
    table.append(pa.table({"x": [2], "n": pa.array([None], pa.int32()), "kind": ["old"]}))
    first, second = rows_of(table)
    assert (first["n"], first["kind"], second["n"], second["kind"]) == (-3, "new", None, "old")
    assert isinstance(first["at"], datetime.datetime)
    table.update({"x": "x + 10"}, "x = 2")
    changed = rows_of(table)[1]
    assert (changed["x"], changed["n"], changed["kind"]) == (12, None, "old")


class TestIdentityColumns:
    def test_assigned_values_raise_the_high_water_mark(self, warehouse: Warehouse) -> None:
        """DELTA.md#identity-columns."""
        table = made(warehouse, X, identity(start=10, step=-3))
        table.append(pa.table({"x": [1, 2]}))
        table.append(pa.table({"x": [3]}))
        assert {row["x"]: row["id"] for row in rows_of(table)} == {1: 10, 2: 7, 3: 4}
        assert table.snapshot().schema["id"].metadata["delta.identity.highWaterMark"] == 4
        assert table.snapshot().protocol.writes("identityColumns")

    def test_explicit_values_are_never_assigned_again(self, warehouse: Warehouse) -> None:
        table = made(warehouse, identity(start=1, step=2, explicit=True), X)
        table.append(pa.table({"id": [8, 2], "x": [1, 2]}))
        table.append(pa.table({"x": [3]}))
        table.append(pa.table({"id": [3], "x": [4]}))
        assert {row["x"]: row["id"] for row in rows_of(table)} == {1: 8, 2: 2, 3: 9, 4: 3}

    def test_two_writers_never_assign_the_same_value(self, warehouse: Warehouse) -> None:
        """Both writers change the high-water mark, which is metadata, so the second writer must start again."""
        table = made(warehouse, identity(), X)
        other = warehouse.table("t")
        begun = other.transaction()
        table.append(pa.table({"x": [1]}))
        with pytest.raises(MetadataChangedError):
            other._commit_with(begun, pa.table({"x": [2]}))
        other.append(pa.table({"x": [2]}))
        assert {row["x"]: row["id"] for row in rows_of(table)} == {1: 1, 2: 2}

    def test_a_moved_mark_does_not_disturb_other_transactions(self, warehouse: Warehouse) -> None:
        """DELTA.md#identity-columns: a transaction that assigns no value does not depend on the mark."""
        table = made(warehouse, identity(explicit=True), X)
        table.append(pa.table({"x": [1, 2]}))
        begun = warehouse.table("t").transaction()
        table.append(pa.table({"x": [3]}))
        assert table._commit_with(begun, pa.table({"id": [1], "x": [4]})).rebased_over == 1

    @pytest.mark.parametrize(("start", "step"), [(2**63 - 2, 1), (-(2**63) + 1, -1)])
    def test_a_column_without_free_values_refuses_rows(self, warehouse: Warehouse, start: int, step: int) -> None:
        table = made(warehouse, identity(start=start, step=step), X)
        assert "values left" in refused(table, pa.table({"x": [1, 2, 3]})).message
        table.append(pa.table({"x": [1, 2]}))

    def test_the_mark_is_above_the_values_of_all_tasks(self, warehouse: Warehouse) -> None:
        table = made(warehouse, identity(), identity("other", start=0, step=-1), X)
        transaction = table.transaction()
        tasks = [transaction.rules.of_split(number) for number in range(2)]
        for task in tasks:
            task.completed(pa.table({"x": [1, 2]}))
        reached = {name: [task.reached[name] for task in tasks] for name in ("id", "other")}
        transaction.rules.advance(reached)
        assert (transaction.rules.reached, reached) == (
            {"id": 4098, "other": -4097},
            {"id": [4097, 4098], "other": [-4096, -4097]},
        )

    def test_the_error_for_invalid_column_metadata_names_the_column(self, warehouse: Warehouse) -> None:
        """Delta Spark calls a column without `allowExplicitInsert` inconsistent."""
        without = column("id", delta__identity__start=1, delta__identity__step=1)
        for invalid in (identity(step=0), without):
            with pytest.raises(InvalidTableError, match="'id'"):
                made(warehouse, invalid, X)

    def test_values_of_another_type_are_refused_or_cast(self, warehouse: Warehouse) -> None:
        table = made(warehouse, identity(explicit=True), X)
        assert "string" in refused(table, pa.table({"id": ["a"], "x": [1]})).message
        table.append(pa.table({"id": pa.array([5]).dictionary_encode(), "x": [1]}))
        table.append(pa.table({"x": [2]}))
        assert [row["id"] for row in rows_of(table)] == [5, 6]

    @pytest.mark.parametrize(("step", "mark", "expected"), [(1, None, [1, 2, 3]), (-1, 1, [1, 0, -1])])
    def test_a_replaced_schema_does_not_lower_the_mark(
        self, warehouse: Warehouse, step: int, mark: int | None, expected: list[int]
    ) -> None:
        table = made(warehouse, identity(step=step), X)
        table.append(pa.table({"x": [1, 2]}))
        given = identity(step=step) if mark is None else identity(step=step, highWaterMark=mark)
        commit(table, lambda t: redefine(t, schema_string=json.dumps(struct(given, X, column("new")))))
        table.append(pa.table({"x": [3]}))
        assert sorted((row["id"] for row in rows_of(table)), reverse=step < 0) == expected


class TestRowChanges:
    def test_update_computes_generated_columns_and_checks_changed_rows_only(self, warehouse: Warehouse) -> None:
        feed = {"delta.constraints.low": "x < 5", "delta.enableChangeDataFeed": "true"}
        table = made(warehouse, identity(), X, generated("y", "x * 2"), **feed)
        table.append(pa.table({"x": [1, 2]}))
        table.update({"x": "x + 2"}, "id = 2")
        assert rows_of(table) == [{"id": 1, "x": 1, "y": 2}, {"id": 2, "x": 4, "y": 8}]
        images = {row["_change_type"]: row["y"] for row in table.changes(2).read_all().to_pylist()}
        assert images == {"update_preimage": 4, "update_postimage": 8}
        for values in ({"x": 7}, {"y": 1}, {"id": 1}):
            with pytest.raises(InvalidRequestError):
                table.update(values, "id = 2")
        assert table.snapshot().version == 2

    def test_merge_fills_the_columns_that_an_insert_lacks(self, warehouse: Warehouse) -> None:
        default = column("kind", "string", CURRENT_DEFAULT="'new'")
        table = made(warehouse, identity(), X, default, generated("y", "x * 2"), delta__constraints__low="x < 5")
        table.append(pa.table({"x": [1]}))
        merge = table.merge(pa.table({"x": [1, 2, 3]}), "target.x = source.x")
        merge.when_matched_update({"kind": "'seen'"}).when_not_matched_insert_all().execute()
        assert [tuple(row.values()) for row in rows_of(table)] == [
            (1, 1, "seen", 2),
            (2, 2, "new", 4),
            (3, 3, "new", 6),
        ]
        with pytest.raises(InvalidRequestError) as caught:
            table.merge(pa.table({"x": [9]}), "target.x = source.x").when_not_matched_insert_all().execute()
        assert caught.value.constraint == "low"
        assert table.snapshot().version == 2

    def test_copied_rows_are_not_checked_again(self, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
        """DELTA.md#rules-of-rows: another client may have added a rule without checking the existing rows."""
        table = made(warehouse, X)
        table.append(pa.table({"x": [1, 9]}))
        table.append(pa.table({"x": [2]}))
        with monkeypatch.context() as patched:
            patched.setattr(Transaction, "_check_rules", lambda _: None)
            table.alter(properties={"delta.constraints.low": "x < 5"})
        table.update({"x": "3"}, "x = 1")
        table.delete("x = 2")
        optimize(table)
        assert [row["x"] for row in rows_of(table)] == [3, 9]
        with pytest.raises(InvalidRequestError):
            table.update({"x": "x + 1"}, "x = 9")


def test_a_new_constraint_must_hold_for_all_existing_rows(warehouse: Warehouse) -> None:
    """DELTA.md#new-rules: also for rows of the same commit, and those that other writers append in the meantime."""
    table = made(warehouse, X)
    table.append(pa.table({"x": [1, 9]}))
    for text, own, good in (("x < 5", 1, False), ("x < 10", 10, False), ("x < 10", 8, True)):
        transaction = table.transaction()
        transaction.set_properties({"delta.constraints.low": text})
        transaction.add(*transaction.data_file_writer().write_all([pa.table({"x": [own]})]))
        with contextlib.nullcontext() if good else pytest.raises(InvalidRequestError):
            transaction.commit()
    assert table.snapshot().protocol.writes("checkConstraints")
    assert refused(table, pa.table({"x": [10]})).constraint == "low"
    stricter = warehouse.table("t").transaction()
    stricter.set_properties({"delta.constraints.low": "x < 9 OR x = 9"})
    table.append(pa.table({"x": [2]}))
    with pytest.raises(refimpl.protocol.errors.ConcurrentModificationError):
        stricter.commit()


@pytest.mark.parametrize(
    ("names", "good"),
    [("yx", False), ("xz", True), ("zy", False), ("y", False)],
    ids=["swap", "other", "rename", "drop"],
)
def test_a_rule_applies_to_the_column_that_now_has_its_name(warehouse: Warehouse, names: str, good: bool) -> None:
    mode = {"delta.columnMapping.mode": "name", "delta.constraints.positive": "x > 0"}
    table = made(warehouse, column("x"), column("y"), **mode)
    table.append(pa.table({"x": [1], "y": [-1]}))
    columns = json.loads(table.snapshot().metadata.schema_string)["fields"][-len(names) :]
    text = json.dumps(struct(*({**given, "name": name} for given, name in zip(columns, names, strict=True))))
    with contextlib.nullcontext() if good else pytest.raises(InvalidRequestError, match="positive"):
        commit(table, lambda t: redefine(t, schema_string=text))
    assert table.snapshot().version == 1 + good


def test_a_generated_column_may_be_required(warehouse: Warehouse) -> None:
    table = made(warehouse, X, {**generated("y", "x * 2"), "nullable": False})
    table.append(pa.table({"x": [1]}))
    assert rows_of(table) == [{"x": 1, "y": 2}]


def test_a_rule_in_the_last_property_is_applied(tmp_path: Path) -> None:
    properties = {"delta.constraints.low": "x < 5"}
    table = create_filesystem_table(tmp_path / "t", Environment(), json.dumps(struct(X)), properties=properties)
    assert refused(table, pa.table({"x": [9]})).constraint == "low"


def test_a_rule_is_new_when_its_feature_is_added(tmp_path: Path) -> None:
    """DELTA.md#new-rules: every change of the metadata adds the missing feature."""
    rule = {"delta.constraints.low": "x < 5"}
    log = WrittenLog(tmp_path).publish(0, PLAIN_PROTOCOL, metadata(json.dumps(struct(X)), partitioned=(), **rule))
    table = log.table()
    table.append(pa.table({"x": [9]}))
    with pytest.raises(InvalidRequestError, match="low"):
        table.alter(properties={"user": "1"})


@pytest.mark.parametrize(
    ("columns", "properties", "feature"),
    [
        ([X], {"delta.constraints.c": "x RLIKE '^a'"}, "checkConstraints"),
        ([X], {"delta.constraints.c": "nothing > 1"}, "checkConstraints"),
        ([column("x", delta__invariants="x > 3")], {}, "invariants"),
        ([column("x", delta__invariants="[" * 10**5)], {}, "invariants"),
        ([column("l", {**LIST, "elementType": struct(invariant("x", "x > 3"))})], {}, "invariants"),
        ([X, generated("y", "rand()")], {}, "generatedColumns"),
        ([column("x", "string"), generated("y", "substring(x, 2)", "string")], {}, "generatedColumns"),
        ([X, generated("y", "date_format(x, 'yyyy')")], {}, "generatedColumns"),
        ([column("x", CURRENT_DEFAULT="uuid()")], {}, "allowColumnDefaults"),
    ],
)  # fmt: skip
def test_the_error_for_an_unsupported_rule_names_the_rule(
    warehouse: Warehouse, columns: list[dict[str, Any]], properties: Mapping[str, str], feature: str
) -> None:
    with pytest.raises(UnsupportedFeatureError) as caught:
        made(warehouse, *columns, **properties)
    assert caught.value.features == (feature,)
    assert warehouse.tables() == []


def test_a_rule_is_checked_in_each_batch_of_a_stream(warehouse: Warehouse) -> None:
    table = made(warehouse, identity(), X, delta__constraints__low="x < 5")
    batches = [pa.record_batch({"x": [1, 2]}), pa.record_batch({"x": [3]})]
    table.append(pa.RecordBatchReader.from_batches(batches[0].schema, batches))
    assert [row["id"] for row in rows_of(table)] == [1, 2, 3]
    bad = [*batches, pa.record_batch({"x": [8]})]
    with pytest.raises(InvalidRequestError):
        table.append(pa.RecordBatchReader.from_batches(bad[0].schema, bad))
    assert len(list(table.location.rglob("*.parquet"))) == 1


def test_delta_rs_reads_known_rules_and_refuses_the_others(warehouse: Warehouse) -> None:
    """The data files of tables with rules are ordinary. The errors of delta-rs name the features that it does not
    support.
    """
    table = create_filesystem_table(
        warehouse.directory / "outside",
        warehouse.environment,
        json.dumps(struct(X, generated("y", "x * 2"))),
        properties={"delta.constraints.low": "x < 5", "delta.enableRowTracking": "true"},
    )
    table.append(pa.table({"x": [1, 2]}))
    table.update({"x": "x + 1"}, "x = 2")
    assert by_delta_rs(table.location, ("x", "y")) == [(1, 2), (3, 6)]


def clustered(warehouse: Warehouse, columns: str, *more: dict[str, Any]) -> Table:
    """A table that another client clustered by these columns. It has 40 columns, or the given ones (`more`)."""
    table = create_filesystem_table(
        warehouse.directory / "clustered",
        warehouse.environment,
        json.dumps(struct(*(more or (column(f"c{number}") for number in range(40))))),
    )
    snapshot = table.snapshot()
    features = ("appendOnly", "invariants", "domainMetadata", "clustering")
    protocol = msgspec.structs.replace(snapshot.protocol, min_writer_version=7, writer_features=features)
    domain = DomainMetadata(
        domain="delta.clustering", configuration=f'{{"clusteringColumns":{columns}}}', removed=False
    )
    table.log.put_if_absent(log_path.commit(1), actions.encode([protocol, domain]))
    return table


@pytest.mark.parametrize("columns", ['["c1","c39"]', '[["c1"],["c39"]]'])
def test_a_clustered_table_stays_clustered(warehouse: Warehouse, columns: str) -> None:
    """DELTA.md#clustering: clustering columns have statistics wherever they are in the schema. New files are not
    clustered.
    """
    table = clustered(warehouse, columns)
    table.append(pa.table({f"c{number}": [number] for number in range(40)}))
    table.update({"c2": "7"})
    (add,) = table.snapshot().files.values()
    assert {"c1", "c39"} <= json.loads(add.stats or "")["minValues"].keys()
    assert "c38" not in json.loads(add.stats or "")["minValues"]
    assert add.clustering_provider is None
    assert (
        json.loads(columns)
        == json.loads(table.snapshot().domains["delta.clustering"].configuration)["clusteringColumns"]
    )


@pytest.mark.parametrize(
    "change", [{"partition_columns": ("c3",)}, {"schema_string": json.dumps(struct(column("c1")))}]
)
def test_the_columns_of_a_clustered_table_cannot_change(warehouse: Warehouse, change: dict[str, Any]) -> None:
    """DELTA.md#clustering."""
    table = clustered(warehouse, '["c1","c39"]')
    with pytest.raises(InvalidRequestError, match="clustered"):
        commit(table, lambda t: redefine(t, **change))
    assert table.snapshot().version == 1


def test_a_column_inside_a_struct_clusters_a_table(warehouse: Warehouse) -> None:
    table = clustered(warehouse, '[["c1","inner"]]', column("c1", struct(column("inner"))))
    assert table.alter(properties={"a.property": "1"}).version == 2
