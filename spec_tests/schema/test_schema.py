"""Schemas: Delta's JSON and its Arrow form, unsupported types, permitted changes, and rows of random nested schemas.
Tables: the closed list of those that are read and written. The error for any other table names the unsupported feature.
"""

import datetime
import decimal
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.protocol.actions import Metadata, Protocol
from refimpl.protocol.errors import InvalidRequestError, InvalidTableError, UnsupportedFeatureError
from refimpl.protocol.table_feature import TABLE_FEATURES, TableFeature
from refimpl.rows import data_files
from refimpl.rows.data_files import read_file
from refimpl.rows.partition_values import FileLayout
from refimpl.rows.row_rules import RowRules
from refimpl.schema import features
from refimpl.schema import schema as s
from refimpl.schema.features import check_readable, check_removable, check_writable
from refimpl.schema.schema import (
    Array,
    DataType,
    Decimal,
    Field,
    Map,
    Primitive,
    Struct,
    from_arrow,
    misfit,
    parse,
    to_arrow,
)
from spec_tests.support.written_log import definition

ALL_PRIMITIVES = Struct(
    fields=tuple(Field(name=f"c_{name}", type=Primitive(name=name)) for name in sorted(s.PRIMITIVES))
)


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
    tags = {"type": "array", "elementType": "string", "containsNull": False}
    pairs = {"type": "map", "keyType": "string", "valueType": "decimal(5,2)", "valueContainsNull": True}
    assert json.loads(schema.to_json()) == {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": False, "metadata": {"comment": "the key"}},
            {"name": "tags", "type": tags, "nullable": True, "metadata": {}},
            {"name": "m", "type": pairs, "nullable": True, "metadata": {}},
        ],
    }


@pytest.mark.parametrize("name", ["variant", "interval day to second", "char(3)", "decimal(39,0)", "time(6)"])
def test_the_error_for_an_unsupported_type_names_the_column(name: str) -> None:
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
def test_text_that_is_no_schema_is_an_invalid_table(text: str) -> None:
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
def test_arrow_types_become_their_plain_form(given_type: pa.DataType, expected: str) -> None:
    assert str(s.from_arrow(pa.schema([("x", given_type)]))["x"].type) == expected


@pytest.mark.parametrize(
    "given_type",
    [pa.uint64(), pa.uint8(), pa.float16(), pa.null(), pa.time64("us"), pa.duration("s"), pa.decimal256(50, 0)],
)
def test_the_error_for_an_unknown_arrow_type_names_the_column(given_type: pa.DataType) -> None:
    with pytest.raises(UnsupportedFeatureError) as refused:
        s.from_arrow(pa.schema([("outer", pa.struct([("x", given_type)]))]))
    assert refused.value.column == "outer.x"


def test_foreign_arrow_metadata_is_kept_as_text() -> None:
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


@pytest.mark.parametrize(
    ("schema", "partition_columns", "valid"),
    [
        (_columns("a", "b"), ["c"], ["b"]),
        (_columns("a", "b"), ["a", "b"], []),
        (_columns("a", "b", "c"), ["a", "a"], ["a", "b"]),
        (_columns("a", "b", kind=Array(element=Primitive(name="long"))), ["a"], []),
        (_columns("a", "b", kind=Primitive(name="binary")), ["a"], []),
        (ALL_PRIMITIVES, ["c_binary"], ["c_date", "c_timestamp", "c_string"]),
        (Struct(), [], None),
        (_columns("id", "ID"), [], None),
        (_columns("id", kind=_columns("x", "x")), [], None),
        (_columns("id", "__is_cdc"), ["__is_cdc"], None),
    ],
)
def test_invalid_columns_are_refused(schema: Struct, partition_columns: list[str], valid: list[str] | None) -> None:
    """DELTA.md#partition-folders: rows in a column `__is_cdc` would become change data, not rows of the table."""
    with pytest.raises(InvalidRequestError):
        s.check_columns(schema, partition_columns)
    if valid is not None:
        s.check_columns(schema, valid)


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (Struct(), "v"),
        (Array(element=_columns("b", kind=Struct())), "v.element.b"),
        (s.Map(key=Primitive(name="string"), value=Struct()), "v.value"),
    ],
)
def test_a_struct_without_members_is_refused(kind: s.DataType, path: str) -> None:
    with pytest.raises(UnsupportedFeatureError) as refused:
        s.check_columns(_columns("v", kind=kind))
    assert (refused.value.column, refused.value.type) == (path, "struct<>")


def test_only_timestamps_without_a_zone_need_a_table_feature() -> None:
    ntz = Primitive(name="timestamp_ntz")
    nested: Any = _columns("x", kind=Map(key=Primitive(name="string"), value=Array(element=_columns("t", kind=ntz))))
    assert s.required_features(nested) == {"timestampNtz"}
    assert s.required_features(_columns("x", kind=Primitive(name="timestamp"))) == frozenset()


def test_a_schema_may_be_given_in_three_forms() -> None:
    schema = _columns("a")
    assert s.as_struct(schema) is schema
    assert s.as_struct(schema.to_json()) == schema
    assert s.as_struct(s.to_arrow(schema)) == schema


LONG, TEXT = pa.int64(), pa.string()


def described(*columns: pa.Field) -> Struct:
    return from_arrow(pa.schema(columns))


def of(kind: pa.DataType, *, nullable: bool = True) -> pa.Field:
    return pa.field("x", kind, nullable=nullable)


def members(*names: str) -> pa.DataType:
    return pa.struct([pa.field(name, LONG) for name in names])


INSIDE = [
    lambda kind: kind,
    lambda kind: pa.struct([pa.field("y", kind)]),
    pa.list_,
    lambda kind: pa.map_(TEXT, kind),
    lambda kind: pa.map_(kind, TEXT),
]


@pytest.mark.parametrize("inside", INSIDE, ids=["column", "struct", "array", "value", "key"])
def test_structs_may_gain_members_but_lose_none(inside: Callable[[pa.DataType], pa.DataType]) -> None:
    fewer, more = described(of(inside(members("a")))), described(of(inside(members("b", "a"))))
    assert misfit(fewer, more) is None
    assert "would be dropped" in str(misfit(more, fewer))


@pytest.mark.parametrize("inside", INSIDE, ids=["column", "struct", "array", "value", "key"])
def test_a_type_may_not_change(inside: Callable[[pa.DataType], pa.DataType]) -> None:
    for other in (pa.int32(), TEXT, members("a"), pa.list_(LONG)):
        assert misfit(described(of(inside(LONG))), described(of(inside(other)))) is not None
    assert misfit(described(of(inside(LONG))), described(of(inside(LONG)))) is None


@pytest.mark.parametrize(
    "kind",
    [
        lambda nullable: of(LONG, nullable=nullable),
        lambda nullable: of(pa.struct([pa.field("y", LONG, nullable=nullable)])),
        lambda nullable: of(pa.list_(pa.field("element", LONG, nullable=nullable))),
        lambda nullable: of(pa.map_(TEXT, pa.field("value", LONG, nullable=nullable))),
    ],
    ids=["column", "member", "element", "value"],
)
def test_a_column_may_become_nullable_but_not_required(kind: Callable[[bool], pa.Field]) -> None:
    assert misfit(described(kind(False)), described(kind(True))) is None
    assert "would be required" in str(misfit(described(kind(True)), described(kind(False))))


def test_new_columns_are_null_in_older_files() -> None:
    before = described(of(LONG))
    assert misfit(before, described(pa.field("new", TEXT), of(LONG))) is None
    assert "'new'" in str(misfit(before, described(of(LONG), pa.field("new", TEXT, nullable=False))))


def test_a_changed_comment_is_no_schema_change() -> None:
    commented = pa.field("x", LONG, metadata={"comment": "what it is"})
    assert misfit(described(of(LONG)), described(commented)) is None


NAMES = st.sampled_from(
    ["a", "b", "a.b", "list.element", "element", "key", "value", "A1", "`", '"', "%", "/", "é", "."]
)
METADATA = st.dictionaries(
    st.sampled_from(["comment", "unit", "n"]), st.one_of(st.text(), st.integers(), st.none()), max_size=2
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": TEXTS,
    "long": st.integers(-(2**63), 2**63 - 1),
    "integer": st.integers(-(2**31), 2**31 - 1),
    "short": st.integers(-(2**15), 2**15 - 1),
    "byte": st.integers(-128, 127),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "boolean": st.booleans(),
    "binary": st.binary(max_size=5),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(datetime.UTC)),
    "timestamp_ntz": st.datetimes(),
}
PRIMITIVES = st.sampled_from(sorted(VALUES)).map(lambda name: Primitive(name=name))
DECIMALS = st.tuples(st.integers(1, 38), st.integers(0, 38)).map(
    lambda digits: Decimal(precision=max(digits), scale=min(digits))
)


def structs(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Struct]:
    members = st.builds(
        lambda name, kind, nullable, metadata: Field(name=name, type=kind, nullable=nullable, metadata=metadata),
        NAMES, inner, st.booleans(), METADATA,
    )  # fmt: skip
    unique = st.lists(members, min_size=1, max_size=3, unique_by=lambda member: member.name.lower())
    return unique.map(lambda fields: Struct(fields=tuple(fields)))


TYPES: st.SearchStrategy[DataType] = st.recursive(
    PRIMITIVES | DECIMALS,
    lambda inner: (
        structs(inner)
        | st.builds(lambda element, nulls: Array(element=element, contains_null=nulls), inner, st.booleans())
        | st.builds(
            lambda key, value, nulls: Map(key=key, value=value, value_contains_null=nulls), inner, inner, st.booleans()
        )
    ),
    max_leaves=6,
)


def values(kind: DataType, *, nullable: bool) -> st.SearchStrategy[Any]:
    present: st.SearchStrategy[Any]
    match kind:
        case Primitive(name=name):
            present = VALUES[name]
        case Decimal(precision=precision, scale=scale):
            digits = st.integers(1 - 10**precision, 10**precision - 1)
            present = digits.map(lambda number: decimal.Context(prec=76).scaleb(decimal.Decimal(number), -scale))
        case Array(element=element, contains_null=contains_null):
            present = st.lists(values(element, nullable=contains_null), max_size=3)
        case Map(key=key, value=value, value_contains_null=contains_null):
            entry = st.tuples(values(key, nullable=False), values(value, nullable=contains_null))
            present = st.lists(entry, max_size=2, unique_by=lambda entry: repr(entry[0]))
        case Struct(fields=fields):
            present = st.fixed_dictionaries({item.name: values(item.type, nullable=item.nullable) for item in fields})
    return st.none() | present if nullable else present


TABLES = structs(TYPES).flatmap(
    lambda schema: st.tuples(st.just(schema), st.lists(values(schema, nullable=False), max_size=6))
)


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for data files that need not be durable."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_files, "sync_files", lambda paths: None)
        patch.setattr(data_files, "sync_folders", lambda location, folders: None)
        yield tmp_path_factory.mktemp("random")


@given(case=TABLES)
def test_rows_of_any_schema_are_read_back_unchanged(location: Path, case: tuple[Struct, list[Any]]) -> None:
    schema, rows = case
    assert parse(schema.to_json()) == from_arrow(to_arrow(schema)) == schema
    written = pa.Table.from_pylist(rows, schema=to_arrow(schema))
    layout = FileLayout(location=location, schema=schema)
    for add in data_files.DataFileWriter(layout).write_all([written]):
        read = read_file(layout, add)
        assert read.schema == to_arrow(schema)
        assert repr(read.to_pylist()) == repr(written.to_pylist())


def metadata(column: dict[str, object] | None = None, **configuration: str) -> Metadata:
    field = {"name": "id", "type": "long", "nullable": True, "metadata": column or {}}
    schema = json.dumps({"type": "struct", "fields": [field]})
    return Metadata(id="t", schema_string=schema, configuration=configuration)


def listing(*features: str, readers: bool = True) -> Protocol:
    return Protocol(
        min_reader_version=3 if readers else 1,
        min_writer_version=7,
        reader_features=features if readers else None,
        writer_features=features,
    )


PLAIN = metadata()


def test_listed_features_and_known_versions_are_supported() -> None:
    for feature in features.READ:
        check_readable(listing(feature), PLAIN)
    for feature in features.WRITTEN - TABLE_FEATURES.keys():
        check_writable(listing(feature, readers=False), PLAIN)
    for owned in TABLE_FEATURES.values():
        check_writable(*definition(owned))
    for reader, writer in ((1, 7), (2, 7), (3, 7), *((1, writer) for writer in range(1, 8))):
        check_writable(Protocol(min_reader_version=reader, min_writer_version=writer), PLAIN)


@pytest.mark.parametrize("feature", TABLE_FEATURES.values(), ids=list(TABLE_FEATURES))
def test_a_table_with_contradicting_metadata_is_not_written(feature: TableFeature) -> None:
    """managed-commits, "Managed Commit Enablement": the feature without its properties, or the reverse, is invalid."""
    protocol, properties = definition(feature)
    check_readable(protocol, PLAIN)
    with pytest.raises(InvalidTableError):
        check_writable(protocol, PLAIN)
    if feature.owner_property is not None:
        with pytest.raises(InvalidTableError):
            check_writable(Protocol(min_reader_version=1, min_writer_version=2), properties)


@pytest.mark.parametrize("feature", ["variantType", "variantShredding-preview", "fromTheFuture", "reader version 4"])
def test_an_unknown_reader_feature_is_refused_by_name(feature: str) -> None:
    newer = Protocol(min_reader_version=4, min_writer_version=7)
    for check in (check_readable, check_writable):
        with pytest.raises(UnsupportedFeatureError) as caught:
            check(newer if feature.startswith("reader") else listing(feature, "timestampNtz"), PLAIN)
        assert caught.value.features == (feature,)


@pytest.mark.parametrize("feature", ["icebergCompatV1", "icebergCompatV2", "fromTheFuture"])
def test_an_unknown_writer_feature_prevents_only_writing(feature: str) -> None:
    protocol = listing(feature, "appendOnly", readers=False)
    check_readable(protocol, PLAIN)
    with pytest.raises(UnsupportedFeatureError) as caught:
        check_writable(protocol, PLAIN)
    assert caught.value.features == (feature,)


def test_a_newer_writer_version_is_refused_for_writing_only() -> None:
    protocol = Protocol(min_reader_version=1, min_writer_version=8)
    check_readable(protocol, PLAIN)
    with pytest.raises(UnsupportedFeatureError):
        check_writable(protocol, PLAIN)


def test_a_rule_without_its_feature_is_ignored() -> None:
    using = metadata({"delta.identity.start": 1}, **{"delta.constraints.x": "id RLIKE 'a'"})
    rules = RowRules.of(Protocol(min_reader_version=1, min_writer_version=2), using, now=0)
    assert (rules.checks, rules.filled) == ((), frozenset())


@pytest.mark.parametrize("protocol", [listing("columnMapping"), Protocol(min_reader_version=2, min_writer_version=5)])
def test_an_unknown_column_mapping_mode_is_refused(protocol: Protocol) -> None:
    for mode in ("none", "name", "ID"):
        check_readable(protocol, metadata(**{"delta.columnMapping.mode": mode}))
    with pytest.raises(UnsupportedFeatureError, match="expected none, name or id") as caught:
        check_readable(protocol, metadata(**{"delta.columnMapping.mode": "magic"}))
    assert caught.value.features == ("columnMapping",)
    check_readable(
        Protocol(min_reader_version=1, min_writer_version=2), metadata(**{"delta.columnMapping.mode": "magic"})
    )


def test_append_only_needs_the_property_and_the_feature() -> None:
    on = metadata(**{"delta.appendOnly": "true"})
    for protocol in (Protocol(min_reader_version=1, min_writer_version=2), listing("appendOnly", readers=False)):
        check_removable(protocol, PLAIN, "t")
        with pytest.raises(InvalidRequestError):
            check_removable(protocol, on, "t")
    for protocol in (Protocol(min_reader_version=1, min_writer_version=1), listing("timestampNtz")):
        check_removable(protocol, on, "t")


def test_a_reserved_name_is_found_in_the_last_column() -> None:
    names = ("id", "_Change_Type")
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in names]
    columns = Metadata(id="t", schema_string=json.dumps({"type": "struct", "fields": fields}))
    with pytest.raises(InvalidRequestError, match="'_Change_Type' is reserved"):
        features.check_no_change_columns(columns)


def test_the_preview_of_type_widening_needs_no_second_feature() -> None:
    preview = listing("typeWidening-preview")
    assert features.supporting(preview, ["typeWidening"]) == preview
    assert features.supporting(listing("typeWidening"), ["typeWidening-preview"]) != listing("typeWidening")


def test_a_rule_counts_if_the_table_has_its_own_feature() -> None:
    rules = metadata({"delta.invariants": "x"}, **{"delta.constraints.low": "id > 0"})
    invariant, constraint = ("delta.invariants", "x"), ("delta.constraints.low", "id > 0")
    assert features.rules_of_rows(listing("invariants", readers=False), rules) == {invariant}
    assert features.rules_of_rows(listing("checkConstraints", readers=False), rules) == {constraint}
