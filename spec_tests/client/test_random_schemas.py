"""Rows of random nested schemas, written to data files and read back."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refimpl.client import data_files
from refimpl.client.data_files import read_file
from refimpl.client.partition_values import local_path
from refimpl.client.schema import Array, DataType, Decimal, Field, Map, Primitive, Struct, from_arrow, parse, to_arrow

NAMES = st.sampled_from(
    ["a", "b", "a.b", "list.element", "element", "key", "value", "A1", "`", '"', "%", "/", "é", "."]
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
        lambda name, kind, nullable: Field(name=name, type=kind, nullable=nullable), NAMES, inner, st.booleans()
    )
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
        patch.setattr(data_files, "_fsync", lambda path, flags: None)
        yield tmp_path_factory.mktemp("random")


@given(case=TABLES)
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
def test_rows_of_any_schema_are_read_back(location: Path, case: tuple[Struct, list[Any]]) -> None:
    schema, rows = case
    assert parse(schema.to_json()) == from_arrow(to_arrow(schema)) == schema
    written = pa.Table.from_pylist(rows, schema=to_arrow(schema))
    for add in data_files.write(location, schema, (), written):
        read = read_file(local_path(location, add.path), add, schema, ())
        assert read.schema == to_arrow(schema)
        assert repr(read.to_pylist()) == repr(written.to_pylist())
