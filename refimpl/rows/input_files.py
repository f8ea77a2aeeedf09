"""CSV files as Arrow batches of a table's types: Arrow splits the files and converts their values.

file = CsvFile.of(Path("day.csv"), Dialect(), schema)
for batch in file.batches(): ...
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from refimpl.protocol.errors import InvalidRequestError
from refimpl.schema.schema import Field, Struct, arrow_type

BLOCK_BYTES: Final = 8 * 1024 * 1024
"""Of a CSV file. A row that does not fit into two blocks is an error."""
_ZONE: Final = r"\d\d:\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"
_COLUMN: Final = re.compile(r"In CSV column #(\d+): ")
"""How Arrow names the column of an invalid value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The form of CSV files; the default is RFC 4180, with the empty text, not quoted, as null."""

    delimiter: str = ","
    null: str = ""

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '\r\n\0"':
            raise InvalidRequestError(
                f"invalid --delimiter {self.delimiter!r}; expected one ASCII character, not a quote"
            )

    def opened(self, path: Path, types: dict[str, pa.DataType], *, columns: int = 0) -> pa.csv.CSVStreamingReader:
        """The rows of a file. `columns`: how many it has; 0: unknown."""
        return pa.csv.open_csv(
            pa.input_stream(path),
            pa.csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES),  # with threads, errors do not name the row
            pa.csv.ParseOptions(
                delimiter=self.delimiter,
                newlines_in_values=True,
                ignore_empty_lines=columns != 1,  # in one column, it is a null
            ),
            pa.csv.ConvertOptions(
                column_types=types,
                null_values=[self.null],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                true_values=["true", "True", "TRUE"],
                false_values=["false", "False", "FALSE"],
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvFile:
    path: Path
    dialect: Dialect
    names: tuple[str, ...]
    """Of its columns, as its header spells them."""
    schema: Struct
    """The table's columns of these names, in the order of the file."""

    @classmethod
    def of(cls, path: Path, dialect: Dialect, table: Struct) -> CsvFile:
        """Raises `InvalidRequestError` for a file that cannot be read, for a column that the table does not have, and
        for a type that a CSV file cannot hold."""
        with _readable(path):
            if not path.is_file():
                raise InvalidRequestError(f"{path} {'is not a file' if path.exists() else 'does not exist'}")
            _check_quotes(path)
            names = tuple(dialect.opened(path, {}).schema.names)
        known = {column.name.lower(): column for column in table.fields}
        lower = [name.lower() for name in names]
        surplus = [name for name in names if name.lower() not in known]
        if surplus:
            raise InvalidRequestError(
                f"the table has no column {', '.join(map(repr, surplus))}; its columns are {', '.join(table.names)}: "
                "rename the column in the file, leave it out, or pass the right --delimiter"
            )
        if len(set(lower)) < len(lower):
            raise InvalidRequestError(f"{path} has a column twice: {', '.join(names)}; rename one of them")
        columns = tuple(known[name] for name in lower)
        for column in columns:
            if pa.types.is_nested(arrow_type(column.type)):
                raise InvalidRequestError(
                    f"the column {column.name!r} is {column.type}, which a CSV file cannot hold; append rows in Python"
                )
        return cls(path=path, dialect=dialect, names=names, schema=Struct(fields=columns))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows. Raises `InvalidRequestError` with the file, the row and the column."""
        types = {name: _read_as(arrow_type(column.type)) for name, column in self._columns}
        with _readable(self.path, self.names):
            for batch in self.dialect.opened(self.path, types, columns=len(self.names)):
                pairs = zip(self.schema.fields, batch.columns, strict=True)
                yield pa.record_batch([_converted(*pair) for pair in pairs], list(self.schema.names))

    @property
    def _columns(self) -> Iterator[tuple[str, Field]]:
        return zip(self.names, self.schema.fields, strict=True)


def _check_quotes(path: Path) -> None:
    """Without its end, a quoted value would hold the rows after it."""
    with pa.input_stream(path) as content:
        count = sum(block.count(b'"') for block in iter(lambda: content.read(BLOCK_BYTES), b""))
    if count % 2:
        raise InvalidRequestError(
            f"{path} has {count} quotes; expected an even number: put a value with a quote in quotes, and double the "
            "quote"
        )


@contextlib.contextmanager
def _readable(path: Path, names: Sequence[str] = ()) -> Iterator[None]:
    try:
        yield
    except (ValueError, OSError, pa.ArrowException) as error:
        problem = _COLUMN.sub(lambda match: f"column {names[int(match[1])]!r}: " if names else "", str(error))
        problem = "".join(each if each.isprintable() else repr(each)[1:-1] for each in problem.rstrip("."))
        raise InvalidRequestError(
            f"{path} cannot be read: {problem}; expected a complete CSV file in UTF-8 (iconv converts other encodings)"
        ) from error


def _read_as(kind: pa.DataType) -> pa.DataType:
    """The type to which Arrow converts values when it splits the file."""
    is_text = pa.types.is_binary(kind) or (pa.types.is_timestamp(kind) and kind.tz is not None)
    return pa.string() if is_text else kind


def _converted(column: Field, values: Any) -> Any:
    """Values of the column's type: BINARY is hexadecimal, and a TIMESTAMP without a zone is in UTC."""
    kind = arrow_type(column.type)
    if pa.types.is_binary(kind):
        return pa.array([None if text is None else bytes.fromhex(text) for text in values.to_pylist()], kind)
    if not pa.types.is_timestamp(kind) or kind.tz is None:
        return values
    zoned = pc.match_substring_regex(values, _ZONE)
    own = pc.if_else(zoned, values, None).cast(kind)
    return pc.coalesce(own, pc.if_else(zoned, None, values).cast(pa.timestamp("us")).cast(kind))
