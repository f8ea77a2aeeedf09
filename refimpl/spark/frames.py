"""Spark's data frames and a table's columns: the schema of a frame, and whether a frame fits a table."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from refimpl.protocol.errors import InvalidRequestError, UnsupportedFeatureError
from refimpl.schema.schema import Array, DataType, Field, Map, Struct, holds, parse, parts, portable, refuse_void

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType


class _Functions:
    """PySpark's functions of columns. The first use imports Spark."""

    def __getattr__(self, name: str) -> Any:
        from pyspark.sql import functions

        return getattr(functions, name)


functions: Final[Any] = _Functions()
_COLLATIONS: Final = "__COLLATIONS"
_SPARKS_OWN: Final = ("CURRENT_DEFAULT", "EXISTS_DEFAULT")
"""Spark's metadata keys for column defaults. A table with column defaults would need another table feature."""


def table_schema(frame: DataFrame) -> Struct:
    """The schema of a new table for the frame's rows. Delta uses Spark's JSON, without Spark's private metadata.

    As in Spark and Delta, every column is nullable: a literal or a range is never null, but later rows may be. For a
    type or a collation that Delta lacks, raises `UnsupportedFeatureError` with the column's name.
    """
    return table_schema_of(frame.schema)


def table_schema_of(columns: StructType) -> Struct:
    """The same for the schema of a frame."""
    schema = parse(columns.json())
    refuse_void(schema)
    return optional(schema)


def optional(schema: Struct) -> Struct:
    """The schema with every column, member and element nullable, and without Spark's private metadata."""
    changed = _delta_type(schema)
    assert isinstance(changed, Struct)
    return changed


def _delta_type(kind: DataType) -> DataType:
    match kind:
        case Struct(fields=fields):
            return Struct(fields=tuple(_delta_field(column) for column in fields))
        case Array(element=element):
            return Array(element=_delta_type(element))
        case Map(key=key, value=value):
            return Map(key=_delta_type(key), value=_delta_type(value))
        case _:
            return kind


def _delta_field(column: Field) -> Field:
    if _COLLATIONS in column.metadata:
        raise UnsupportedFeatureError(
            f"column {column.name!r} has a collation ({column.metadata[_COLLATIONS]}), which is not supported; "
            "cast it to a plain string",
            column=column.name,
        )
    metadata = portable(column.metadata)
    kept = {key: value for key, value in metadata.items() if not key.startswith("__") and key not in _SPARKS_OWN}
    return Field(name=column.name, type=_delta_type(column.type), metadata=kept)


def spark_schema(schema: Struct) -> StructType:
    """The schema in Spark's types."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(schema.to_json()))


def quoted(name: str) -> str:
    """A column's name in backticks: Spark's expressions then do not take a dot in it for a member of a struct."""
    return f"`{name.replace('`', '``')}`"


def matched(frame: DataFrame, schema: Struct, *, filled: Collection[str] = ()) -> DataFrame:
    """The frame with the columns of the table, in its order and types.

    Columns are matched by name, ignoring case as Spark does. A missing nullable column becomes null, and a missing
    column of `filled` is left out. Casts are limited to types that hold every value. Raises `InvalidRequestError` with
    every difference, before anything runs or is written.
    """
    given = table_schema(frame)
    pairs, faults = _by_name(given, schema)
    columns = [_column(wanted, present, faults) for wanted, present in _present(pairs, filled)]
    _raise(faults)
    return frame.select(*columns)


def check_columns_of(given: Struct, schema: Struct, *, filled: Collection[str] = ()) -> None:
    """Raise the error of `matched` for rows with the columns `given`."""
    pairs, faults = _by_name(given, schema)
    for wanted, present in _present(pairs, filled):
        _compare(wanted, present, faults)
    _raise(faults)


def _present(pairs: Sequence[tuple[Field, Field | None]], filled: Collection[str]) -> list[tuple[Field, Field | None]]:
    return [(wanted, present) for wanted, present in pairs if present is not None or wanted.name not in filled]


def _raise(faults: Sequence[str]) -> None:
    if faults:
        raise InvalidRequestError(f"the rows do not fit the table: {'; '.join(faults)}", differences=tuple(faults))


def _by_name(given: Struct, schema: Struct) -> tuple[list[tuple[Field, Field | None]], list[str]]:
    by_name = {column.name.lower(): column for column in given.fields}
    twice = [column.name for column in given.fields if by_name[column.name.lower()] is not column]
    faults = [f"the rows have the column {name!r} twice" for name in twice]
    known = {column.name.lower() for column in schema.fields}
    faults += [
        f"the table has no column {column.name!r} (leave it out, or write it in Python with "
        f".option('mergeSchema', True))"
        for column in given.fields
        if column.name.lower() not in known
    ]
    pairs = [(wanted, by_name.get(wanted.name.lower())) for wanted in schema.fields]
    return pairs, faults


def _column(wanted: Field, present: Field | None, faults: list[str]) -> Column:
    _compare(wanted, present, faults)
    kind = spark_schema(Struct(fields=(wanted,))).fields[0].dataType
    if present is None:
        return functions.lit(None).cast(kind).alias(wanted.name)
    column = functions.col(quoted(present.name))
    return (column if _same(present.type, wanted.type) else column.cast(kind)).alias(wanted.name)


def _compare(wanted: Field, present: Field | None, faults: list[str]) -> None:
    if present is None:
        if not wanted.nullable:
            faults.append(f"the column {wanted.name!r} must not be null, but the rows lack it")
    elif not _same(present.type, wanted.type) and not holds(present.type, wanted.type):
        faults.append(
            f"the column {wanted.name!r} is {wanted.type} in the table and {present.type} in the rows (cast it)"
        )


def _same(given: DataType, wanted: DataType) -> bool:
    """Whether the types are equal apart from nullability and metadata. Struct members need equal names and order."""
    if not isinstance(wanted, Struct | Array | Map) or type(given) is not type(wanted):
        return given == wanted
    left, right = parts(given), parts(wanted)
    return len(left) == len(right) and all(
        own == name and _same(part, kind) for (own, part), (name, kind) in zip(left, right, strict=True)
    )
