"""The output of rows: a table for people, or batch by batch CSV, JSON or a Parquet file.

Text formats spell values alike: times as in ISO 8601 with a blank instead of `T`, those with a time zone in UTC; bytes
in hexadecimal; decimals with all digits. A float that is not a number is `NaN`, `Infinity` or `-Infinity`; in JSON this
is a text, because JSON has no such number. In CSV (RFC 4180; lines end in LF) null is empty, the empty text is `""`, a
nested value is JSON; if there is one column, null is `""`, too, because readers skip empty lines.
"""

import contextlib
import itertools
import math
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types
from rich.cells import cell_len, set_cell_size

from refimpl.cli import output
from refimpl.protocol.errors import InvalidRequestError
from refimpl.rows.arrow_columns import python_rows
from refimpl.storage.environment import random_uuid
from refimpl.storage.files import PosixFiles

FORMATS: Final = ("table", "csv", "jsonl", "parquet")
SHOWN_ROWS: Final = 100
"""Rows of a table without a limit. A table is in memory as a whole."""
_UNQUOTED: Final = re.compile(r'[^,"\r\n]+')
_JSON: Final = msgspec.json.Encoder(decimal_format="number")


def chosen_format(name: str | None, file: Path | None, *, json: bool) -> str:
    """The format of the output, before anything is read. Raises `InvalidRequestError` if the options do not fit."""
    if file is not None:
        kind = name or file.suffix.lower().removeprefix(".")
        if kind not in FORMATS[1:]:
            raise InvalidRequestError(f"unknown format of {str(file)!r}; expected one of *.{', *.'.join(FORMATS[1:])}")
        if file.exists() or not file.absolute().parent.is_dir():
            problem = "exists; choose a new file" if file.exists() else "is in no existing folder; create it first"
            raise InvalidRequestError(f"{file} {problem}", path=str(file))
        return kind
    if json and name is not None:
        raise InvalidRequestError("--json and --format are mutually exclusive; pass one of them")
    kind = "json" if json else name or ("table" if sys.stdout.isatty() else "csv")
    if kind not in (*FORMATS[:-1], "json"):
        if kind == FORMATS[-1]:
            raise InvalidRequestError("--format parquet needs a file; pass --output FILE")
        raise InvalidRequestError(f"invalid --format {kind!r}; expected one of {', '.join(FORMATS)}")
    return kind


def write_rows(reader: pa.RecordBatchReader, kind: str, file: Path | None, limit: int | None, *, json: bool) -> None:
    """Write at most `limit` rows in a format of `chosen_format`; further batches are not read."""
    counts: list[int] = []
    if kind == "table":
        most = SHOWN_ROWS if limit is None else limit
        rows = [row for batch in _limited(reader, most + 1, counts) for row in plain_rows(batch)]
        _show_table(reader.schema, rows[:most])
        if limit is None and len(rows) > most:
            output.show_hint("… more rows; to see them, pass --limit N or --format csv")
        return
    batches = _limited(reader, limit, counts)
    if file is not None:
        with _new_file(file.absolute()) as sink:
            _write(sink, kind, reader.schema, batches)
        size = file.stat().st_size
        line = f"wrote {output.counted(sum(counts), 'row')} to {file} ({output.size(size)})"
        output.Result({"path": str(file.absolute()), "rows": sum(counts), "bytes": size}, line).show(json=json)
    elif sys.stdout.isatty():
        for text in _texts(kind, reader.schema, batches):
            sys.stdout.write(output.printable(text, but="\n\t"))
    else:
        _write(sys.stdout.buffer, kind, reader.schema, batches)


def _limited(reader: Iterable[pa.RecordBatch], limit: int | None, counts: list[int]) -> Iterator[pa.RecordBatch]:
    """The first `limit` rows; `counts` gets the number of rows of each batch."""
    left = sys.maxsize if limit is None else limit
    for batch in reader if left else ():
        yield batch.slice(0, left)
        counts.append(min(left, batch.num_rows))
        left -= counts[-1]
        if not left:
            return


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that gets its name when it is complete. Order: write to another name, fsync, link, fsync the folder."""
    files, unfinished = PosixFiles(), path.with_name(f".commit-owner-{random_uuid()}")
    try:
        with unfinished.open("xb") as file:
            yield file
        files.fsync(unfinished)
        files.link(unfinished, path)
        files.fsync_directory(path.parent)
    finally:
        unfinished.unlink(missing_ok=True)


def _write(sink: IO[bytes], kind: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    if kind == "parquet":
        with pq.ParquetWriter(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
    else:
        sink.writelines(text.encode() for text in _texts(kind, schema, batches))


def _texts(kind: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[str]:
    """The rows as CSV, JSON lines, or one JSON document."""
    rows = (row for batch in batches for row in plain_rows(batch))
    if kind == "csv":
        for values in itertools.chain([schema.names], (row.values() for row in rows)):
            yield (",".join(map(_csv, values)) or '""') + "\n"
    elif kind == "jsonl":
        yield from (_json(row) + "\n" for row in rows)
    else:
        separator = "["
        for row in rows:
            yield separator + _json(row)
            separator = ",\n "
        yield "[]\n" if separator == "[" else "]\n"


def _json(value: Any) -> str:
    return _JSON.encode(value).decode()


def _csv(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        text = value
    else:
        text = _json(value) if isinstance(value, dict | list) else output.literal(value)
    return text if _UNQUOTED.fullmatch(text) else '"' + text.replace('"', '""') + '"'


def plain_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows with values that JSON has. Raises `InvalidRequestError` for a time that Arrow cannot spell."""
    rows = python_rows(batch)
    for field in batch.schema:
        if not (types.is_string(field.type) or types.is_integer(field.type) or types.is_boolean(field.type)):
            for row in rows:
                row[field.name] = _plain(row[field.name], field.type, field.name)
    return rows


def _plain(value: Any, kind: pa.DataType, column: str) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case bytes():
            return value.hex()
        case str() if types.is_temporal(kind) and value.startswith("<value out of range"):
            raise InvalidRequestError(
                f"the column {column!r} has a {kind} outside the years -32767 to 32767, which text cannot show; pass "
                "--output FILE.parquet, or select other columns",
                column=column,
            )
        case pa.MonthDayNano():
            return f"{value.months} months {value.days} days {value.nanoseconds} ns"
        case dict():
            return {name: _plain(item, kind.field(name).type, column) for name, item in value.items()}
        case list() if types.is_map(kind):
            keys = (_plain(key, kind.key_type, column) for key, _ in value)
            return {
                key if isinstance(key, str) else _json(key): _plain(item, kind.item_type, column)
                for key, (_, item) in zip(keys, value, strict=True)
            }
        case list():
            return [_plain(item, kind.value_type, column) for item in value]
    return value


_CUT: Final = 32
"""Maximum width of a column if the columns do not fit into the terminal."""


def _show_table(schema: pa.Schema, rows: list[dict[str, Any]]) -> None:
    """Print the rows. Columns that do not fit and the ends of long values are left out, with a hint."""
    names = [output.printable(name) for name in schema.names]
    columns = [[name, *(output.cell(row[key]) for row in rows)] for name, key in zip(names, schema.names, strict=True)]
    widths, room, cut = [max(map(cell_len, column)) + 2 for column in columns], output.width() + 2, False
    if sum(widths) > room:
        most = min(_CUT, room - 2)
        cut = max(widths) > most + 2
        columns = [[_cut(cell, most) for cell in column] for column in columns]
        ends = itertools.accumulate(min(width, most + 2) for width in widths)
        columns = columns[: sum(end <= room for end in ends)]
    numbers = {field.name for field in schema if types.is_primitive(field.type) and not types.is_temporal(field.type)}
    shown = [column[0] for column in columns]
    output.Table(columns=shown, rows=list(zip(*columns, strict=True))[1:], right=numbers, whole=shown).show()
    missing = [f"the columns {', '.join(names[len(shown) :])}"] if names[len(shown) :] else []
    missing += ["the ends of long values"] if cut else []
    if missing:
        output.show_hint(f"not shown: {' and '.join(missing)}; select fewer columns, or pass --format jsonl")


def _cut(cell: str, most: int) -> str:
    return cell if cell_len(cell) <= most else set_cell_size(cell, most - 1) + "…"
