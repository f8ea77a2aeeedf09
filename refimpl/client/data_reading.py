"""Rows of a snapshot, by Arrow: data files, partition values, the table's types.

A file holds the columns that the table had when it was written: those added since are null, those
dropped since are not read, narrower types are widened. Columns and members of structs are found without regard
to the case of their names, as Delta's are. Partition columns are not in the files; their values are in the add
actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from refimpl.actions import Add
from refimpl.client import arrow_columns
from refimpl.client import schema as delta_schema
from refimpl.client.partition_values import from_text, local_path
from refimpl.client.schema import Field, Struct
from refimpl.errors import CorruptionError, CorruptLogError, InvalidRequestError, UnsupportedFeatureError

if TYPE_CHECKING:
    import pyarrow as pa

    from refimpl.client.predicate import Predicate
    from refimpl.client.snapshot import Snapshot


_LEGACY_CALENDAR: Final = {b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"}
"""In the footer of a file whose ancient dates and times Spark wrote in the rebase mode LEGACY."""


def read_rows(
    location: Path, snapshot: Snapshot, columns: Sequence[str] | None, where: str | Predicate | None
) -> pa.Table:
    """See `Snapshot.to_arrow`. Files are read in the order of their paths, so that equal reads give equal tables."""
    import pyarrow as pa

    wanted = _selected(snapshot.schema, columns)
    test = None if where is None else snapshot.file_test(where)
    names = set(wanted.names) | ({column.path[0] for column in test.condition.columns()} if test else set())
    needed = Struct(fields=tuple(field for field in snapshot.schema.fields if field.name in names))
    files = [add for add in snapshot.files.values() if test is None or test.may_match(add)]
    result = delta_schema.to_arrow(wanted)
    condition = None if test is None else test.condition.to_arrow()
    parts: list[pa.Table] = [result.empty_table()]
    for add in sorted(files, key=lambda add: add.path):
        rows = read_file(local_path(location, add.path), add, needed, snapshot.partition_columns)
        if condition is not None:
            rows = rows.filter(condition)
        parts.append(rows.select(wanted.names))
    return pa.concat_tables(parts)


def _selected(schema: Struct, columns: Sequence[str] | None) -> Struct:
    if columns is None:
        return schema
    if not columns or len(set(columns)) != len(columns):
        raise InvalidRequestError(f"name at least one column, and each once, not {list(columns)}")
    return Struct(fields=tuple(schema[name] for name in columns))


def read_file(path: Path, add: Add, needed: Struct, partition_columns: Sequence[str]) -> pa.Table:
    """The `needed` columns of one file. Raises `CorruptionError` where it is missing or unreadable."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    partitioned = {name.lower() for name in partition_columns}
    values = {name.lower(): text for name, text in add.partition_values.items()}
    try:
        with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
            names = {
                column.name: arrow_columns.stored_name(file.schema_arrow.names, column.name)
                for column in needed.fields
                if column.name.lower() not in partitioned
            }
            stored = file.read(columns=[name for name in names.values() if name is not None])
            count = file.metadata.num_rows
            described = file.metadata.metadata or {}
    except FileNotFoundError:
        raise CorruptionError(f"the data file {path} is missing, although the log has it", path=str(path)) from None
    except (pa.ArrowException, OSError, InvalidRequestError) as error:
        raise CorruptionError(f"the data file {path} cannot be read: {error}", path=str(path)) from error
    if described.keys() & _LEGACY_CALENDAR and any(arrow_columns.is_ancient(column) for column in stored.columns):
        raise UnsupportedFeatureError(
            f"the data file {path} has dates before 1582 or times before 1900 in the calendar of Spark 2, "
            "which only Spark reads; rewrite it there in the rebase mode CORRECTED",
            path=str(path),
        )
    target = delta_schema.to_arrow(needed)
    arrays: list[Any] = []
    for column, field in zip(needed.fields, target, strict=True):
        name = names.get(column.name)
        if column.name.lower() in partitioned:
            arrays.append(_repeated(values.get(column.name.lower()), column, field.type, count))
        elif name is not None:
            arrays.append(_fitted(stored.column(name), column, field, path))
        else:
            arrays.append(pa.nulls(count, field.type))
    return pa.Table.from_arrays(arrays, schema=target)


def _repeated(text: str | None, column: Field, kind: pa.DataType, count: int) -> pa.Array:
    import pyarrow as pa

    value = from_text(text, column.type)
    if value is None:
        return pa.nulls(count, kind)
    try:
        return pa.repeat(pa.scalar(value, kind), count)
    except (pa.ArrowException, OverflowError) as error:
        raise CorruptLogError(
            f"the partition value {text!r} of {column.name!r} is out of the range of {column.type}",
            value=text,
            column=column.name,
        ) from error


def _fitted(values: pa.ChunkedArray, column: Field, field: pa.Field, path: Path) -> pa.ChunkedArray:
    """The column as the table has it. Raises `CorruptionError` where its type, or a null in it, does not fit."""
    import pyarrow as pa

    if values.type == field.type:
        return values
    try:
        return arrow_columns.fitted(values, column, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, InvalidRequestError) as error:
        raise CorruptionError(
            f"the column {column.name!r} of {path} is {values.type}, which does not fit the table's {field.type}: "
            f"{error}",
            path=str(path),
            column=column.name,
        ) from error
