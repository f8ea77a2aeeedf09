"""The output of rows: a table for people, or batch by batch CSV or JSON.

Text formats spell values alike: times as in ISO 8601 with a blank instead of `T`, those with a time zone in UTC; bytes
in hexadecimal; decimals with all digits. A float that is not a number is `NaN`, `Infinity` or `-Infinity`; in JSON this
is a text, because JSON has no such number. In CSV (RFC 4180; lines end in LF) null is empty, the empty text is `""`, a
nested value is JSON; if there is one column, null is `""`, too, because readers skip empty lines.
"""

import itertools
import math
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyarrow import types
from rich.cells import cell_len, set_cell_size

from refimpl.cli import output
from refimpl.protocol.errors import InvalidRequestError
from refimpl.rows.arrow_columns import python_rows

FORMATS: Final = ("table", "csv", "jsonl")
SHOWN_ROWS: Final = 100
"""Rows of a table without a limit. A table is in memory as a whole."""
_UNQUOTED: Final = re.compile(r'[^,"\r\n]+')
_JSON: Final = msgspec.json.Encoder(decimal_format="number")


def chosen_format(name: str | None, *, json: bool) -> str:
    """The format of the output, before anything is read. Raises `InvalidRequestError` if the options do not fit."""
    if json and name is not None:
        raise InvalidRequestError("--json and --format are mutually exclusive; pass one of them")
    kind = "json" if json else name or ("table" if sys.stdout.isatty() else "csv")
    if kind not in (*FORMATS, "json"):
        raise InvalidRequestError(f"invalid --format {kind!r}; expected one of {', '.join(FORMATS)}")
    return kind


def write_rows(reader: pa.RecordBatchReader, kind: str, limit: int | None) -> None:
    """Write at most `limit` rows in a format of `chosen_format`; further batches are not read."""
    if kind == "table":
        most = SHOWN_ROWS if limit is None else limit
        rows = [row for batch in _limited(reader, most + 1) for row in plain_rows(batch)]
        _show_table(reader.schema, rows[:most])
        if limit is None and len(rows) > most:
            output.show_hint("… more rows; to see them, pass --limit N or --format csv")
        return
    texts = _texts(kind, reader.schema, _limited(reader, limit))
    if sys.stdout.isatty():
        sys.stdout.writelines(output.printable(text, but="\n\t") for text in texts)
    else:
        sys.stdout.buffer.writelines(text.encode() for text in texts)


def _limited(reader: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """The first `limit` rows."""
    left = sys.maxsize if limit is None else limit
    for batch in reader if left else ():
        yield batch.slice(0, left)
        left -= batch.num_rows
        if left <= 0:
            return


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
                f"the column {column!r} has a {kind} outside the years -32767 to 32767, which text cannot show; "
                "select other columns",
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
    output.TextTable(columns=shown, rows=list(zip(*columns, strict=True))[1:], right=numbers, whole=shown).show()
    missing = [f"the columns {', '.join(names[len(shown) :])}"] if names[len(shown) :] else []
    missing += ["the ends of long values"] if cut else []
    if missing:
        output.show_hint(f"not shown: {' and '.join(missing)}; select fewer columns, or pass --format jsonl")


def _cut(cell: str, most: int) -> str:
    return cell if cell_len(cell) <= most else set_cell_size(cell, most - 1) + "…"
