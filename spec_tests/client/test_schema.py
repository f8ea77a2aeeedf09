"""Schemas: Delta's JSON, Arrow's form, and what neither can hold."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.client import schema as s
from refimpl.client.schema import Array, Decimal, Field, Map, Primitive, Struct
from refimpl.errors import InvalidRequestError, InvalidTableError, UnsupportedFeatureError

ALL_PRIMITIVES = Struct(
    fields=tuple(Field(name=f"c_{name}", type=Primitive(name=name)) for name in sorted(s.PRIMITIVES))
)


def _types() -> st.SearchStrategy[s.DataType]:
    decimals = st.integers(1, 38).flatmap(
        lambda p: st.integers(0, p).map(lambda scale: Decimal(precision=p, scale=scale))
    )
    plain = st.one_of(st.sampled_from(sorted(s.PRIMITIVES)).map(lambda name: Primitive(name=name)), decimals)
    return st.recursive(
        plain,
        lambda inner: st.one_of(
            st.builds(Array, element=inner, contains_null=st.booleans()),
            st.builds(Map, key=inner, value=inner, value_contains_null=st.booleans()),
            _structs(inner),
        ),
        max_leaves=6,
    )


def _structs(kinds: st.SearchStrategy[s.DataType]) -> st.SearchStrategy[Struct]:
    metadata = st.dictionaries(
        st.sampled_from(["comment", "unit", "n"]), st.one_of(st.text(), st.integers(), st.none())
    )
    fields = st.lists(st.tuples(kinds, st.booleans(), metadata), min_size=1, max_size=4)
    return fields.map(
        lambda found: Struct(
            fields=tuple(
                Field(name=f"f{i}", type=kind, nullable=nullable, metadata=extra)
                for i, (kind, nullable, extra) in enumerate(found)
            )
        )
    )


@given(_structs(_types()))
@settings(max_examples=150, deadline=None)
def test_a_schema_survives_json_and_arrow_unchanged(schema: Struct) -> None:
    assert s.parse(schema.to_json()) == schema
    assert s.from_arrow(s.to_arrow(schema)) == schema


def test_every_primitive_has_deltas_spelling_and_an_arrow_type() -> None:
    names = [field["type"] for field in json.loads(ALL_PRIMITIVES.to_json())["fields"]]
    assert sorted(names) == sorted(s.PRIMITIVES)
    arrow = {item.name: item.type for item in s.to_arrow(ALL_PRIMITIVES)}
    assert arrow["c_timestamp"] == pa.timestamp("us", tz="UTC")
    assert arrow["c_timestamp_ntz"] == pa.timestamp("us")
    assert arrow["c_byte"] == pa.int8()


def test_the_json_is_what_spark_and_delta_write() -> None:
    schema = Struct(
        fields=(
            Field(name="id", type=Primitive(name="long"), nullable=False, metadata={"comment": "the key"}),
            Field(name="tags", type=Array(element=Primitive(name="string"), contains_null=False)),
            Field(name="m", type=Map(key=Primitive(name="string"), value=Decimal(precision=5, scale=2))),
        )
    )
    assert json.loads(schema.to_json()) == {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": False, "metadata": {"comment": "the key"}},
            {
                "name": "tags",
                "type": {"type": "array", "elementType": "string", "containsNull": False},
                "nullable": True,
                "metadata": {},
            },
            {
                "name": "m",
                "type": {
                    "type": "map",
                    "keyType": "string",
                    "valueType": "decimal(5,2)",
                    "valueContainsNull": True,
                },
                "nullable": True,
                "metadata": {},
            },
        ],
    }


@pytest.mark.parametrize("name", ["variant", "void", "interval day to second", "char(3)", "decimal(39,0)", "time(6)"])
def test_a_type_that_is_not_implemented_is_refused_by_the_columns_name(name: str) -> None:
    inner = {"type": "struct", "fields": [{"name": "b", "type": name, "nullable": True, "metadata": {}}]}
    text = json.dumps({"type": "struct", "fields": [{"name": "a", "type": inner, "nullable": True, "metadata": {}}]})
    with pytest.raises(UnsupportedFeatureError) as refused:
        s.parse(text)
    assert (refused.value.column, refused.value.type) == ("a.b", name)
    assert s.parse(text.replace(json.dumps(name), '"decimal(38,0)"'))["a"].nullable


@pytest.mark.parametrize(
    "text",
    ["", "[]", "7", '"long"', '{"type":"struct"}', '{"type":"struct","fields":[{}]}', "{", "[" * 100_000],
    ids=lambda text: text[:20],
)
def test_what_is_not_a_schema_is_an_invalid_table(text: str) -> None:
    with pytest.raises(InvalidTableError):
        s.parse(text)


@pytest.mark.parametrize(
    ("given_type", "expected"),
    [
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.dictionary(pa.int8(), pa.string()), "string"),
        (pa.binary(4), "binary"),
        (pa.timestamp("ns", tz="Asia/Tokyo"), "timestamp"),
        (pa.timestamp("s"), "timestamp_ntz"),
        (pa.date64(), "date"),
        (pa.large_list(pa.int16()), "array<short>"),
        (pa.list_(pa.float32(), 3), "array<float>"),
        (pa.decimal256(38, 3), "decimal(38,3)"),
    ],
)
def test_arrow_types_that_only_store_otherwise_become_their_plain_form(given_type: pa.DataType, expected: str) -> None:
    assert str(s.from_arrow(pa.schema([("x", given_type)]))["x"].type) == expected


@pytest.mark.parametrize(
    "given_type",
    [pa.uint64(), pa.uint8(), pa.float16(), pa.null(), pa.time64("us"), pa.duration("s"), pa.decimal256(50, 0)],
)
def test_arrow_types_without_a_counterpart_are_refused_by_the_columns_name(given_type: pa.DataType) -> None:
    with pytest.raises(UnsupportedFeatureError) as refused:
        s.from_arrow(pa.schema([("outer", pa.struct([("x", given_type)]))]))
    assert refused.value.column == "outer.x"


def test_foreign_arrow_metadata_is_kept_as_text_and_parquets_own_is_dropped() -> None:
    item = pa.field("x", pa.int64(), metadata={b"comment": b"5", b"PARQUET:field_id": b"1"})
    assert s.from_arrow(pa.schema([item]))["x"].metadata == {"comment": "5"}


def _columns(*names: str, kind: s.DataType = Primitive(name="long")) -> Struct:  # noqa: B008 - immutable
    return Struct(fields=tuple(Field(name=name, type=kind) for name in names))


@pytest.mark.parametrize("name", ["a b", "a,b", "a;b", "a{", "a}", "(a", "a)", "a\nb", "a\tb", "a=b", ""])
def test_names_that_need_column_mapping_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError):
        s.check_columns(_columns("id", name))
    with pytest.raises(InvalidRequestError):
        s.check_columns(_columns("id", kind=Array(element=_columns(name))))
    s.check_columns(_columns("id", "naïve-name.x"))


def test_the_name_of_the_virtual_column_of_change_data_is_reserved() -> None:
    """DELTA.md#partition-folders: rows under that name would become change data, not rows of the table."""
    with pytest.raises(InvalidRequestError):
        s.check_columns(_columns("id", "__is_cdc"), ["__is_cdc"])
    s.check_columns(_columns("id", "is_cdc"), ["is_cdc"])


def test_names_that_differ_in_nothing_but_case_are_refused_at_any_depth() -> None:
    with pytest.raises(InvalidRequestError):
        s.check_columns(_columns("id", "ID"))
    with pytest.raises(InvalidRequestError):
        s.check_columns(_columns("id", kind=_columns("x", "x")))
    s.check_columns(_columns("id", "id2"))


@pytest.mark.parametrize(
    ("schema", "partition_columns"),
    [
        (_columns("a", "b"), ["c"]),
        (_columns("a", "b"), ["a", "b"]),
        (_columns("a", "b", "c"), ["a", "a"]),
        (_columns("a", "b", kind=Array(element=Primitive(name="long"))), ["a"]),
        (_columns("a", "b", kind=Primitive(name="binary")), ["a"]),
        (Struct(), []),
    ],
)
def test_partitionings_that_no_table_can_have_are_refused(schema: Struct, partition_columns: list[str]) -> None:
    with pytest.raises(InvalidRequestError):
        s.check_columns(schema, partition_columns)


def test_a_partitioning_by_some_primitive_columns_is_fine() -> None:
    s.check_columns(_columns("a", "b"), ["b"])
    s.check_columns(ALL_PRIMITIVES, ["c_date", "c_timestamp", "c_string"])


def test_only_timestamps_without_a_zone_need_a_table_feature() -> None:
    ntz = Primitive(name="timestamp_ntz")
    nested: Any = _columns("x", kind=Map(key=Primitive(name="string"), value=Array(element=_columns("t", kind=ntz))))
    assert s.required_features(nested) == {"timestampNtz"}
    assert s.required_features(_columns("x", kind=Primitive(name="timestamp"))) == frozenset()


def test_all_three_forms_of_a_schema_are_taken() -> None:
    schema = _columns("a")
    assert s.as_struct(schema) is schema
    assert s.as_struct(schema.to_json()) == schema
    assert s.as_struct(s.to_arrow(schema)) == schema
