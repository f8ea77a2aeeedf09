"""Input files of an ingestion: reads CSV and Parquet files as Arrow batches of a table's types.

    files = InputFiles.of([Path("day.csv")], kind=CSV, dialect=Dialect())
    files.inferred()                            # the columns of a new table
    for batch in files.typed(schema).batches(): ...

A CSV file is RFC 4180: values with a delimiter, a quote or a line break are quoted, quotes in them are doubled, a
backslash is an ordinary character. A quote begins and ends a whole value, so the number of quotes before a position
says whether it is inside a value. Blocks are cut at the last end of a record within `block_bytes`. A block depends only
on where it begins: the client reads one after the other, Spark's tasks read some each, and both get the same batches
and the same errors. In a block, the first fault in the order of the file is reported.
"""

from __future__ import annotations

import codecs
import contextlib
import dataclasses
import functools
import gzip
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, DecimalException
from itertools import product
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from refimpl.protocol.errors import InvalidRequestError
from refimpl.rows import arrow_columns
from refimpl.rows.data_files import LEGACY_CALENDAR
from refimpl.schema.schema import Field, Primitive, Struct, arrow_type, from_arrow, to_arrow

CSV: Final = ".csv"
PARQUET: Final = ".parquet"
"""The kinds of files, by the ends of their names."""
BLOCK_BYTES: Final = 8 * 1024 * 1024
BATCH_ROWS: Final = 131_072
_SHOWN: Final = 100
"""Maximum number of characters of a value in a message."""
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
_BOOLEANS: Final = [["".join(word) for word in product(*zip(w, w.upper(), strict=True))] for w in ("true", "false")]
_ZONE: Final = r"\d\d:\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"
_UNZONED: Final = pa.timestamp("us")
_INT96: Final = b"int96"
"""Key in the metadata of an Arrow field: a Parquet column of this type."""
_FORMS: Final = {
    "boolean": "true or false",
    "binary": "two hexadecimal digits for each byte",
    **{name: f"a whole number in the range of {name}" for name in ("byte", "short", "integer", "long")},
    **{name: f"a number in the range of {name}" for name in ("float", "double")},
    "date": "a date such as 2026-11-28",
    "timestamp": "a time such as 2026-11-28 09:30:00.25 (UTC) or 2026-11-28T09:30:00+01:00, to the microsecond",
    "timestamp_ntz": "a time without a zone, such as 2026-11-28 09:30:00.25, to the microsecond",
}

_PATTERNS: Final = {
    "long": r"^(0|-?[1-9][0-9]{0,18})$",
    "double": r"^-?(0|[1-9][0-9]{0,14}|(0|[1-9][0-9]*)?\.[0-9]+([eE][+-]?[0-9]+)?|[0-9]+\.?[eE][+-]?[0-9]+)$",
    "boolean": "^(?i:true|false)$",
    "date": r"^\d{4}-\d\d-\d\d$",
    "timestamp": r"^\d{4}-\d\d-\d\d([ T]\d\d:\d\d.*)?$",
}
"""Types of the columns of a new table, in this order: all values of the column match, and are values of the type. A
number with leading zeros, and one that neither a long nor a double holds, is text."""
_KEPT_DIGITS: Final = 15
_LEAST: Final = sys.float_info.min
"""A double of at least this size keeps every number of so many digits, not counting zeros at the ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The form of CSV files; the default is RFC 4180, with the empty text, not quoted, as null."""

    delimiter: str = ","
    quote: str = '"'
    """Empty: no value is quoted."""
    escape: str = ""
    null: str = ""
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        for option, value in (("--delimiter", self.delimiter), ("--quote", self.quote), ("--escape", self.escape)):
            known = len(value) == 1 and value.isascii() and value not in "\r\n\0"
            if not known and (value or option == "--delimiter"):
                raise InvalidRequestError(f"invalid {option} {value!r}; expected one ASCII character")
        given = [character for character in (self.delimiter, self.quote, self.escape) if character]
        if len(set(given)) != len(given):
            raise InvalidRequestError(
                f"--delimiter, --quote and --escape are {' '.join(given)}; expected different ones"
            )
        try:
            "".encode(self.encoding)  # a codec that is not of text, such as rot13, is a LookupError here
            codecs.getincrementaldecoder(self.encoding)
        except (LookupError, ValueError):
            raise InvalidRequestError(f"unknown --encoding {self.encoding!r}; expected for example latin-1") from None

    @property
    def is_utf8(self) -> bool:
        return codecs.lookup(self.encoding).name == "utf-8"

    def masked(self, data: bytes) -> bytes:
        """The same number of bytes, without escaped characters."""
        escape = self.escape.encode()
        if escape and escape in data:
            data = re.sub(re.escape(escape) + b"[\x00-\xff]", b"xx", data, flags=re.DOTALL)
        return data

    def record_end(self, data: bytes) -> int:
        """The position after the last line break outside quotes, or 0. `data` is masked, and begins outside quotes."""
        quote = self.quote.encode()
        for mark in (b"\n", b"\r"):
            end = data.rfind(mark, 0, max(len(data) - (mark == b"\r"), 0))  # "\n" may follow a final "\r"
            inside = bool(quote) and data.count(quote, 0, max(end, 0)) % 2 == 1
            while end >= 0:
                if not inside:
                    return end + 1
                previous = data.rfind(mark, 0, end)
                inside ^= data.count(quote, max(previous, 0), end) % 2 == 1
                end = previous
        return 0

    def misplaced_quote(self, data: bytes) -> int | None:
        """The position of the first quote in masked data that neither begins nor ends a value, nor is doubled; or of
        the last one, if it begins a value that does not end."""
        quote = self.quote.encode()
        if not quote or quote not in data:
            return None
        padded = pa.Array.from_buffers(pa.uint8(), len(data) + 2, [None, pa.py_buffer(b"\n" + data + b"\n")])
        quotes = pc.indices_nonzero(pc.equal(padded, quote[0])).cast(pa.int64())
        allowed = pa.array([*quote, *self.delimiter.encode(), *b"\r\n"], pa.uint8())
        faults = [quotes[len(quotes) - 1].as_py()] if len(quotes) % 2 else []
        for first, step in ((0, -1), (1, 1)):  # opening quotes and what is before them; closing ones and what is after
            places = quotes.take(pa.arange(first, len(quotes), 2))
            if step == 1 or len(places):
                beside = padded.take(pc.add(places, step))
                fault = pc.index(pc.is_in(beside, allowed), False).as_py()
                faults += [places[fault].as_py()] if fault >= 0 else []
        return min(faults) - 1 if faults else None

    def records(self, data: bytes, *, blank: bool) -> Iterator[tuple[int, int, int]]:
        """Begin and end of each record of masked data, and the end of its line break; without blank lines unless
        `blank`. Ends before a record whose quotes are not in order."""
        quote = re.escape(self.quote.encode())
        inner = b"(?:[^%b\r\n]++|%b[^%b]*+%b)*+" % (quote, quote, quote, quote) if quote else b"[^\r\n]*+"
        end = 0
        for record in re.finditer(b"(" + inner + b")(?:\r\n|\n|\r|\\Z)", data):
            if record.start() != end:
                return
            end = record.end()
            if record[1] or (blank and record[0]):
                yield *record.span(1), end

    def width(self, record: bytes) -> int:
        """The number of values of a masked record."""
        quote = re.escape(self.quote.encode())
        plain = re.sub(quote + b"[^%b]*" % quote + quote, b"", record) if quote else record
        return plain.count(self.delimiter.encode()) + 1

    def parsed(self, data: bytes, types: dict[str, pa.DataType]) -> pa.Table:
        """The rows of well-formed records in these types, by Arrow. Raises `ArrowInvalid`."""
        quoted = bool(self.quote) and self.quote.encode() in data
        if not data.endswith((b"\n", b"\r")):  # at the end of a file, Arrow takes a last empty value for a quoted one
            data += b"\n"
        return pa.csv.read_csv(
            pa.BufferReader(data),
            pa.csv.ReadOptions(column_names=list(types), block_size=len(data) + 1),
            pa.csv.ParseOptions(
                delimiter=self.delimiter,
                quote_char=self.quote or False,
                double_quote=True,
                escape_char=self.escape or False,
                newlines_in_values=quoted or bool(self.escape),
                ignore_empty_lines=len(types) > 1,
            ),
            pa.csv.ConvertOptions(
                column_types=types,
                null_values=[self.null],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                true_values=_BOOLEANS[0],
                false_values=_BOOLEANS[1],
                check_utf8=False,  # the whole block is checked
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    path: Path
    size: int
    modified: int
    """In ns since the epoch."""
    folders: tuple[tuple[str, str | None], ...] = ()
    """Columns and their values by the names of folders (`month=1`), inside the folder that was given."""

    @classmethod
    def of(cls, path: Path, folders: tuple[tuple[str, str | None], ...] = ()) -> InputFile:
        status = path.stat()
        return cls(path=path, size=status.st_size, modified=status.st_mtime_ns, folders=folders)

    def check_unchanged(self) -> None:
        """Raise `InvalidRequestError` if the file is another than the one that was found: its columns and the places of
        its records would be others."""
        if InputFile.of(self.path, self.folders) != self:
            raise InvalidRequestError(
                f"{self.path} was changed while it was read; ingest it when it is complete, or ingest a copy"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a CSV file, from byte `start` to `end` (None: to its end); or row group `start` of a Parquet file."""

    file: InputFile
    start: int
    end: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """The types that all values of each column have, by its position; None for a column without values."""

    rows: int
    columns: list[list[str] | None]


def merged(parts: Iterable[Kinds]) -> Kinds:
    """The types of the rows of all parts, which have the same columns."""
    rows = 0
    columns: list[list[str] | None] = []
    for part in parts:
        before = columns or [None] * len(part.columns)
        rows += part.rows
        columns = [
            right if left is None else left if right is None else [kind for kind in left if kind in right]
            for left, right in zip(before, part.columns, strict=True)
        ]
    return Kinds(rows=rows, columns=columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFiles:
    """Files of one kind with the same columns. Small and picklable."""

    kind: str
    files: tuple[InputFile, ...]
    names: tuple[str, ...] = ()
    """The columns, those of the folders included."""
    dialect: Dialect = Dialect()
    schema: Struct | None = None
    """The table's columns of these names, in this order; None before `typed`."""
    block_bytes: int = BLOCK_BYTES

    @classmethod
    def of(
        cls, paths: Sequence[Path], *, kind: str, dialect: Dialect | None = None, block_bytes: int = BLOCK_BYTES
    ) -> InputFiles:
        """Raises `InvalidRequestError` for a path without files, and for files whose columns differ."""
        files = tuple(file for path in paths for file in inside(path))
        _check_given_once(files)
        draft = cls(kind=kind, files=files, dialect=dialect or Dialect(), block_bytes=block_bytes)
        first: tuple[str, ...] = ()
        for file in files:
            names = (*draft._header(file), *(name for name, _ in file.folders))
            _check_names(file.path, names)
            first = first or names
            same = names == first if kind == CSV else {n.lower() for n in names} == {n.lower() for n in first}
            if not same:
                raise InvalidRequestError(
                    f"{file.path} has the columns {', '.join(names)}, but {files[0].path} has {', '.join(first)}; "
                    "ingest them separately"
                )
        return dataclasses.replace(draft, names=first)

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(file.size for file in self.files)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, as the table spells them."""
        return self.names if self.schema is None else self.schema.names

    @property
    def _other_delimiter(self) -> str:
        """A remedy, if the only name is one that a new table cannot have, and looks like several."""
        only = self.names[0] if self.kind == CSV and len(self.names) == 1 else ""
        mark = next((mark for mark in ";\t" if mark in only), None)
        return f"if {mark!r} is between its columns, pass --delimiter {mark!r}" if mark else ""

    def typed(self, schema: Struct) -> InputFiles:
        """The same files, whose rows have the types and the names of a table. Raises `InvalidRequestError` for a column
        that the table does not have, and for a type that a CSV file cannot hold."""
        known = {column.name.lower(): column for column in schema.fields}
        surplus = [name for name in self.names if name.lower() not in known]
        if surplus:
            raise InvalidRequestError(
                f"the table has no column {', '.join(map(repr, surplus))}; its columns are {', '.join(schema.names)}: "
                + (self._other_delimiter or "rename the column in the file, or leave it out")
            )
        columns = tuple(known[name.lower()] for name in self.names)
        for column in columns:
            if self.kind == CSV and pa.types.is_nested(arrow_type(column.type)):
                raise InvalidRequestError(
                    f"the column {column.name!r} is {column.type}, which a CSV file cannot hold; ingest a Parquet file"
                )
        return dataclasses.replace(self, schema=Struct(fields=columns))

    def missing_members(self) -> dict[str, bool]:
        """The members of the table's structs that a file does not have, as paths, and whether they may be null:
        `batches` fills them with null."""
        assert self.schema is not None
        wanted = {item.name.lower(): item for item in to_arrow(self.schema) if pa.types.is_nested(item.type)}
        missing: dict[str, bool] = {}
        for file in self.files if wanted else ():  # only Parquet files have nested columns
            for item in _schema_of(file.path):
                if (column := wanted.get(item.name.lower())) is not None:
                    missing |= _missing_members(item.type, column.type, column.name)
        return missing

    def batches(self, pieces: Iterable[Piece] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of these pieces, or of all files, in their order. Raises `InvalidRequestError` with the file, the
        line or row, and the column."""
        if self.kind == PARQUET:
            for piece in self.pieces() if pieces is None else pieces:
                yield from self._row_group(piece)
            return
        whole = (Piece(file=file, start=0) for file in self.files)
        for place, data in self._blocks(whole if pieces is None else pieces):
            yield from self._block(place, data).combine_chunks().to_batches()

    def pieces(self) -> Iterator[Piece]:
        """The pieces of all files. A CSV file that is compressed, or not in UTF-8, is one piece."""
        for file in self.files:
            if self.kind == PARQUET:
                with _parquet(file.path) as parquet:
                    groups = parquet.num_row_groups
                file.check_unchanged()
                yield from (Piece(file=file, start=group) for group in range(groups))
            elif _is_compressed(file.path) or not self.dialect.is_utf8:
                yield Piece(file=file, start=0)
            else:
                yield from (place for place, _ in self._blocks([Piece(file=file, start=0)]))

    def inferred(self, found: Iterable[Kinds] | None = None) -> Struct:
        """The columns of a new table. `found`: the `kinds` of all pieces (default: reads the files).

        Raises `InvalidRequestError` for CSV files without rows, and for Parquet files with different types.
        """
        if self._other_delimiter:
            raise InvalidRequestError(
                f"{self.files[0].path} has one column, {self.names[0]!r}; {self._other_delimiter}"
            )
        columns: dict[str, Field] = {}
        for file in self.files if self.kind == PARQUET else ():
            for column in _columns_of(file.path).fields:
                first = columns.setdefault(column.name.lower(), dataclasses.replace(column, metadata={}))
                if first.type != column.type:
                    raise InvalidRequestError(
                        f"the column {column.name!r} is {column.type} in {file.path}, but {first.type} in "
                        f"{self.files[0].path}; create the table first, or ingest them separately"
                    )
        kinds = merged([self.kinds()] if found is None else [self.kinds(()), *found])
        if self.kind == CSV and not kinds.rows:
            raise InvalidRequestError(
                f"no rows in {', '.join(str(file.path) for file in self.files)}; types cannot be inferred; create the "
                "table first: commit-owner create"
            )
        for name, possible in zip(self.names, kinds.columns, strict=True):
            kind = next((kind for kind in _PATTERNS if kind in (possible or ())), "string")
            columns.setdefault(name.lower(), Field(name=name, type=Primitive(name=kind)))
        return Struct(fields=tuple(columns[name.lower()] for name in self.names))

    def kinds(self, pieces: Iterable[Piece] | None = None) -> Kinds:
        """The types that all values have: of the CSV columns in these pieces, and of the columns of folders."""
        found = Kinds(rows=0, columns=[None] * len(self.names))
        for file in self.files:
            folders = dict(file.folders)
            texts = [pa.array([folders.get(name)], pa.string()) for name in self.names]
            found = merged([found, Kinds(rows=0, columns=[_kinds_of(text) for text in texts])])
        if self.kind == CSV:
            text = Primitive(name="string")
            as_text = self.typed(Struct(fields=tuple(Field(name=name, type=text) for name in self.names)))
            for batch in as_text.batches(pieces):
                columns = [_kinds_of(column, self.dialect.null) for column in batch.columns]
                found = merged([found, Kinds(rows=batch.num_rows, columns=columns)])
        return found

    # CSV

    def _blocks(self, pieces: Iterable[Piece]) -> Iterator[tuple[Piece, bytes]]:
        """The blocks of pieces, with their places. A record that is longer than a block makes the block longer."""
        dialect = self.dialect
        for piece in pieces:
            with _readable(piece.file.path), self._open(piece.file.path) as content:
                start, rest, ended = piece.start, b"", False
                if start:
                    content.seek(start)
                while not ended and (piece.end is None or start < piece.end):
                    cut, goal = 0, 0
                    while not (cut or ended):
                        goal += self.block_bytes
                        while len(rest) < goal and (more := content.read(goal - len(rest))):
                            rest += more
                        masked, ended = dialect.masked(rest), len(rest) < goal
                        cut = dialect.record_end(masked)
                        fault = None if cut else dialect.misplaced_quote(masked)
                        # without this, one quote too many would read the whole file; the last quote may be in order
                        ended |= fault is not None and fault != masked.rfind(dialect.quote.encode())
                    cut = len(rest) if ended else cut
                    place = Piece(file=piece.file, start=start, end=None if ended else start + cut)
                    piece.file.check_unchanged()
                    if cut or not start:
                        yield place, rest[:cut]
                    start, rest = start + cut, rest[cut:]

    def _line(self, file: InputFile, start: int) -> int:
        """The number of the line in which a block begins. Only an error needs it, so the file is read again."""
        line, left, rest = 1, start, b""
        with self._open(file.path) as content:
            while left and (data := content.read(min(left, self.block_bytes))):
                rest += data[:left]
                left -= min(left, len(data))
                end = len(rest) - rest.endswith(b"\r")  # "\n" may follow
                line, rest = line + _lines(rest[:end]), rest[end:]
        return line + _lines(rest)

    def _open(self, path: Path) -> Any:
        raw: Any = (gzip.open if _is_compressed(path) else open)(path, "rb")
        return raw if self.dialect.is_utf8 else _Recoded(raw, path, self.dialect.encoding)

    def _header(self, file: InputFile) -> tuple[str, ...]:
        """The names of a file's columns. An empty name is replaced as in Spark."""
        if self.kind == PARQUET:
            return tuple(_schema_of(file.path).names)
        data = next(self._blocks([Piece(file=file, start=0)]))[1].removeprefix(codecs.BOM_UTF8)
        masked = self.dialect.masked(data)
        first = next(self.dialect.records(masked, blank=False), None)
        fault = self._fault(data, masked)
        if fault is not None and (first is None or fault[0] < first[1]):
            raise InvalidRequestError(f"{file.path}, line {1 + _lines(data[: fault[0]])}: {fault[1]}")
        if first is None:
            raise InvalidRequestError(f"{file.path} is empty; expected a header with the column names")
        numbers = [str(number) for number in range(self.dialect.width(masked[slice(*first[:2])]))]
        form = dataclasses.replace(self.dialect, null="")
        (values,) = form.parsed(data[first[0] : first[2]], dict.fromkeys(numbers, pa.string())).to_pylist()
        return tuple(values[number] or f"_c{number}" for number in numbers)

    def _fault(self, data: bytes, masked: bytes) -> tuple[int, str] | None:
        """The position of the first byte that is no UTF-8, or of the first misplaced quote, and what is wrong."""
        try:
            position = len(data) if data.isascii() else len(data.decode() and data)
            problem = ""
        except UnicodeDecodeError as error:
            position = error.start
            wide = not position and data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
            remedy = "pass --encoding utf-16" if wide else "or the right --encoding, such as latin-1"
            problem = f"invalid UTF-8 byte {data[position]:#04x}; expected UTF-8, {remedy}"
        quote = self.dialect.misplaced_quote(masked)
        if quote is not None and quote < position:
            return quote, (
                f"misplaced quote in {data[max(quote - 20, 0) : quote + 20].decode(errors='replace')!r}; expected a "
                "quoted value to begin and end next to a delimiter or a line break; quote the value and double the "
                "quotes in it, or pass --quote '' if quotes are ordinary characters"
            )
        escape = self.dialect.escape.encode()
        if escape and not problem and masked.endswith(escape):
            position = len(data) - 1
            problem = f"the file ends with the escape character {escape.decode()!r}; expected a character after it"
        return (position, problem) if problem else None

    def _block(self, place: Piece, data: bytes) -> pa.Table:
        """The typed rows of a block. Arrow reads it directly; where that would refuse or change values that fit,
        `_carefully` decides."""
        masked, start = self.dialect.masked(data), place.start
        if not start:
            begin = len(data) - len(data.removeprefix(codecs.BOM_UTF8))
            end = begin + next(self.dialect.records(masked[begin:], blank=False))[2]
            data, masked, start = data[end:], masked[end:], end
        fault, columns = self._fault(data, masked), self._columns(place.file)
        arrays: list[Any] = [None]
        if fault is None and data and not _has_hexadecimal(data):
            with contextlib.suppress(pa.ArrowInvalid):
                rows = self.dialect.parsed(data, {column.name: _read_as(column) for column in columns})
                arrays = [_direct(c, self.dialect.null, rows.column(c.name)) for c in columns]
        if any(array is None for array in arrays):
            arrays = self._carefully(place.file, start, data, masked, fault)
        return self._with_folders(place.file, pa.table(arrays, [column.name for column in columns]))

    def _carefully(
        self, file: InputFile, begin: int, data: bytes, masked: bytes, fault: tuple[int, str] | None
    ) -> list[Any]:
        """The typed columns of a block. Raises `InvalidRequestError` for the first fault."""

        def line_of(position: int) -> int:
            return self._line(file, begin) + _lines(data[:position])

        columns = self._columns(file)
        records = list(self.dialect.records(masked, blank=len(columns) == 1))
        problem = None
        if fault is not None:
            records = [record for record in records if record[1] <= fault[0]]
            problem = f"line {line_of(fault[0])}: {fault[1]}"
        texts = pa.table({column.name: pa.array([], pa.string()) for column in columns})
        for last in (True, False):
            try:
                if records:
                    end = records[-1][2]
                    texts = self.dialect.parsed(data[:end], {column.name: pa.string() for column in columns})
                break
            except pa.ArrowInvalid as error:
                widths = (self.dialect.width(masked[start:end]) for start, end, _ in records)
                ragged = next((number for number, width in enumerate(widths) if width != len(columns)), None)
                if ragged is None or not last:
                    raise InvalidRequestError(f"{file.path} cannot be read as CSV: {error}") from error
                start, end, _ = records[ragged]
                width = self.dialect.width(masked[start:end])
                problem = (
                    f"line {line_of(start)} has {width} {'value' if width == 1 else 'values'}, "
                    f"{_shown(data[start:end].decode())}; expected {len(columns)}: {', '.join(self.names)}"
                )
                records = records[:ragged]
        arrays = [_typed(column, self.dialect.null, texts.column(column.name)) for column in columns]
        faults = [
            (_first(texts.column(column.name), functools.partial(_typed, column, self.dialect.null)), position)
            for position, (column, values) in enumerate(zip(columns, arrays, strict=True))
            if values is None
        ]
        if faults:
            row, position = min(faults)
            where = f"line {line_of(records[row][0])}, column {columns[position].name!r}"
            problem = f"{where}: {_misfit(columns[position], texts.column(position)[row].as_py())}"
        if problem is not None:
            raise InvalidRequestError(f"{file.path}, {problem}")
        return arrays

    def _columns(self, file: InputFile) -> tuple[Field, ...]:
        """The columns that are in the file itself."""
        assert self.schema is not None
        return self.schema.fields[: len(self.names) - len(file.folders)]

    def _with_folders(self, file: InputFile, rows: pa.Table) -> pa.Table:
        assert self.schema is not None
        for name, text in file.folders:
            column = next(column for column in self.schema.fields if column.name.lower() == name.lower())
            value = _typed(column, None, pa.array([text], pa.string()))
            if value is None:
                problem = _misfit(column, text, kind=PARQUET)
                raise InvalidRequestError(f"{file.path}, folder of the column {name!r}: {problem}")
            rows = rows.append_column(column.name, pa.repeat(value[0], rows.num_rows))
        return rows

    # Parquet

    def _row_group(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """The typed rows of a row group: a value is converted only if it stays the same, as in `Table.append`."""
        assert self.schema is not None
        path, schema = piece.file.path, _schema_of(piece.file.path)
        own = {column.name.lower(): column for column in self.schema.fields}
        with _readable(path), _parquet(path) as parquet:
            row = sum(parquet.metadata.row_group(group).num_rows for group in range(piece.start))
            legacy = (parquet.metadata.metadata or {}).keys() & LEGACY_CALENDAR
            _check_int96(path, piece.start, [item.name for item in schema if _INT96 in (item.metadata or {})])
            for batch in parquet.iter_batches(BATCH_ROWS, row_groups=[piece.start]):
                piece.file.check_unchanged()
                arrays = {}
                for values, item in zip(batch.columns, schema, strict=True):
                    given = values.cast(item.type) if _INT96 in (item.metadata or {}) else values
                    arrays[own[item.name.lower()].name] = _fit(own[item.name.lower()], given, path, row)
                    if legacy and arrow_columns.is_ancient(given):
                        raise InvalidRequestError(
                            f"{path}, column {item.name!r}: dates before 1582 or times before 1900 in the calendar of "
                            "Spark 2; rewrite the file there in the rebase mode CORRECTED"
                        )
                row += batch.num_rows
                yield from self._with_folders(piece.file, pa.table(arrays)).to_batches()


def inside(path: Path) -> list[InputFile]:
    """The files in a folder, at any depth, without hidden ones. For a file: the file itself, whatever its name is.

    The paths are absolute, because Spark's tasks may run in another folder."""
    path = path.absolute()
    with _readable(path):
        if not path.exists():
            raise InvalidRequestError(f"{path} does not exist")
        if not path.is_dir():
            if not path.is_file():
                raise InvalidRequestError(f"{path} is neither a file nor a folder; copy its content to a file first")
            return [InputFile.of(path)]
        files = [InputFile.of(file, folders=_folders(file.relative_to(path))) for file in sorted(_walk(path))]
    if not files:
        raise InvalidRequestError(f"no file in the folder {path}; expected CSV or Parquet files")
    return files


def _walk(folder: Path) -> Iterator[Path]:
    """The files below a folder, except hidden ones. Whatever else is there is an error: its rows would be missing."""

    def fail(error: OSError) -> None:
        raise error

    for at, folders, names in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not _is_hidden(Path(name))]
        for found in (Path(at, name) for name in folders):
            if found.is_symlink():
                raise InvalidRequestError(f"{found} is a link to a folder; expected files: {_INSTEAD}")
        for found in (Path(at, name) for name in names if not _is_hidden(Path(name))):
            if not found.is_file():
                raise InvalidRequestError(f"{found} is neither a file nor a folder; expected files: {_INSTEAD}")
            yield found


_INSTEAD: Final = "ingest it by itself, or move it"


def _check_given_once(files: Iterable[InputFile]) -> None:
    given: dict[Path, Path] = {}
    for file in files:
        first = given.setdefault(file.path.resolve(), file.path)
        if first is not file.path:
            again = "" if first == file.path else f", as {first}"
            raise InvalidRequestError(f"{file.path} is given twice{again}; its rows would be too: leave one out")


def _is_hidden(path: Path) -> bool:
    """By the name of the file or of a folder, as in Spark. A folder `column=value` is never hidden."""
    return any(part.startswith((".", "_")) and "=" not in part for part in path.parts)


def _folders(path: Path) -> tuple[tuple[str, str | None], ...]:
    pairs = [part.partition("=") for part in path.parts[:-1] if "=" in part]
    return tuple((unquote(name), None if value == _NO_VALUE else unquote(value)) for name, _, value in pairs)


def _check_names(path: Path, names: Sequence[str]) -> None:
    if not names:
        raise InvalidRequestError(f"{path} has no columns; expected at least one")
    lower = [name.lower() for name in names]
    twice = [name for name in names if lower.count(name.lower()) > 1]
    if twice:
        raise InvalidRequestError(f"{path} has the column {twice[-1]!r} twice; rename one of them")


def _is_compressed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (EOFError, zlib.error, UnicodeError, OSError, pa.ArrowException) as error:
        problem = str(error).rstrip(".")
        raise InvalidRequestError(f"{path} cannot be read: {problem}; expected a complete file") from error


class _Recoded:
    """The content of a file in another encoding, as UTF-8."""

    def __init__(self, raw: Any, path: Path, encoding: str) -> None:
        self._raw = raw
        self._path = path
        self._encoding = encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._decoded = 0
        """Bytes that were given to the decoder."""

    def __enter__(self) -> _Recoded:
        return self

    def __exit__(self, *error: object) -> None:
        self._raw.close()

    def read(self, size: int) -> bytes:
        """The next bytes; none at the end."""
        text = ""
        while not text:
            given, (waiting, _) = self._raw.read(size), self._decoder.getstate()
            try:
                text = self._decoder.decode(given, final=not given)
            except UnicodeError as error:
                raise self._unreadable(error, self._decoded - len(waiting)) from None
            self._decoded += len(given)
            if not given:
                break
        return text.encode()

    def _unreadable(self, error: UnicodeError, begin: int) -> InvalidRequestError:
        """`begin`: the position of the bytes that were decoded. Only here, their line is counted."""
        place, what = str(self._path), str(error)
        if isinstance(error, UnicodeDecodeError):
            self._raw.seek(0)
            before = codecs.getincrementaldecoder(self._encoding)().decode(self._raw.read(begin + error.start))
            place = f"{place}, line {1 + _lines(before.encode())}"
            what = f"invalid byte {error.object[error.start]:#04x} ({error.reason})"
        return InvalidRequestError(f"{place}: {what}; expected --encoding {self._encoding}: pass the right one")


def _lines(data: bytes) -> int:
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")


def _has_hexadecimal(data: bytes) -> bool:
    """Whether Arrow might read a text as a hexadecimal number. One byte is found faster than two."""
    return any(mark[1:] in data and mark in data for mark in (b"0x", b"0X"))


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


def _parquet(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, coerce_int96_timestamp_unit="us")
    except (pa.ArrowException, OSError) as error:
        what = "is empty" if path.stat().st_size == 0 else f"cannot be read as Parquet: {str(error).rstrip('.')}"
        raise InvalidRequestError(f"{path} {what}; expected a Parquet file") from None


def _schema_of(path: Path) -> pa.Schema:
    """The columns of a Parquet file, all nullable. An INT96 column is a time in UTC, as in Spark."""
    with _parquet(path) as parquet:
        schema = arrow_columns.all_nullable(parquet.schema_arrow)
        for leaf in (parquet.schema.column(number) for number in range(len(parquet.schema))):
            if leaf.physical_type == "INT96":
                if leaf.path != leaf.name:
                    raise InvalidRequestError(
                        f"{path} has the INT96 column {leaf.path!r} inside another; cast it first"
                    )
                position = schema.get_field_index(leaf.name)
                schema = schema.set(position, pa.field(leaf.name, pa.timestamp("us", tz="UTC"), metadata={_INT96: b""}))
    return schema


def _columns_of(path: Path) -> Struct:
    schema = _schema_of(path)
    try:
        return from_arrow(schema)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{path}: {error.message}", **error.facts) from None


def _missing_members(given: pa.DataType, wanted: pa.DataType, path: str) -> Iterator[tuple[str, bool]]:
    types = pa.types
    if types.is_struct(given) and types.is_struct(wanted):
        own = {member.name: member.type for member in given}
        for member in wanted:
            inner = f"{path}.{member.name}"
            name = arrow_columns.stored_name(list(own), member.name)
            if name is not None:
                yield from _missing_members(own[name], member.type, inner)
            else:
                yield inner, member.nullable
    elif types.is_map(given) and types.is_map(wanted):
        yield from _missing_members(given.key_type, wanted.key_type, f"{path}.key")
        yield from _missing_members(given.item_type, wanted.item_type, f"{path}.value")
    elif types.is_nested(given) and hasattr(given, "value_type") and types.is_list(wanted):
        yield from _missing_members(given.value_type, wanted.value_type, f"{path}.element")


def _check_int96(path: Path, group: int, names: list[str]) -> None:
    """Raise `InvalidRequestError` for a time with digits beyond the microsecond."""
    with pq.ParquetFile(path) as fine, _parquet(path) as coarse:
        for name in names:
            nanoseconds = fine.read_row_group(group, [name]).column(0).cast(pa.int64())
            microseconds = coarse.read_row_group(group, [name]).column(0).cast(pa.int64())
            if pc.any(pc.not_equal(nanoseconds, pc.multiply(microseconds, 1000))).as_py():  # both may wrap around
                raise InvalidRequestError(
                    f"{path}, column {name!r}: INT96 times with nanoseconds; expected microseconds: round them first"
                )


def _fit(column: Field, values: pa.Array, path: Path, row: int) -> pa.Array:
    """Values of a Parquet file in the column's type. `row`: the number of the rows before them."""
    wanted = arrow_columns.all_nullable(to_arrow(Struct(fields=(column,)))).field(0)

    def cast(part: pa.Array) -> pa.Array | None:
        with contextlib.suppress(InvalidRequestError):
            return arrow_columns.cast(part, wanted) if column.nullable or not part.null_count else None
        return None

    if cast(values.slice(0, 0)) is None:
        try:
            arrow_columns.cast(values, wanted)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"{path}: {error.message}", column=column.name) from None
    fitted = cast(values)
    if fitted is None:
        first = _first(values, cast)
        where = f"row {row + first + 1}, column {column.name!r}"
        text = _text_of(values.slice(first, 1))
        raise InvalidRequestError(f"{path}, {where}: {_misfit(column, text, kind=PARQUET)}", column=column.name)
    return fitted


def _read_as(column: Field) -> pa.DataType:
    """The type as which Arrow reads a CSV column. Decimals are texts: Arrow does not check their precision. So are
    bytes. A column of
    times with zones is first read as one of times without."""
    kind = arrow_type(column.type)
    by_text = pa.types.is_decimal(kind) or pa.types.is_binary(kind)
    return pa.string() if by_text else _UNZONED if pa.types.is_timestamp(kind) else kind


def _direct(column: Field, null: str, values: Any) -> Any:
    """Values that were read as `_read_as` in the column's type. None if Arrow may have changed one (a number beyond the
    floats is infinite), or if one does not fit."""
    if values.type != arrow_type(column.type) and pa.types.is_string(values.type):
        return _typed(column, null, values)
    if pa.types.is_floating(values.type) and pc.any(pc.is_inf(values)).as_py():
        return None
    return None if not column.nullable and values.null_count else values.cast(arrow_type(column.type))


def _first(values: Any, fitted: Callable[[Any], object]) -> int:
    """The number of the first value for which `fitted` gives None; there must be one."""
    first, count = 0, len(values)
    while count > 1:
        half = count // 2
        if fitted(values.slice(first, half)) is not None:
            first, count = first + half, count - half
        else:
            count = half
    return first


def _typed(column: Field, null: str | None, texts: Any) -> Any:
    """The texts as values of the column's type; None if one is not. Text `null` is null, except in texts and bytes."""
    kind = arrow_type(column.type)
    try:
        if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
            texts = pc.utf8_trim(_without(texts, null), " \t")
        values = _converted(texts, kind)
    except pa.ArrowInvalid:
        return None
    return None if not column.nullable and values.null_count else values


def _without(texts: Any, null: str | None) -> Any:
    return texts if null is None else pc.if_else(pc.equal(texts, null), None, texts)


def _converted(texts: Any, kind: pa.DataType) -> Any:
    if pa.types.is_binary(kind):
        if not pc.all(pc.match_substring_regex(texts, "^([0-9A-Fa-f]{2})*$"), min_count=0).as_py():
            raise pa.ArrowInvalid("not hexadecimal")
        return pa.array([None if text is None else bytes.fromhex(text) for text in texts.to_pylist()], kind)
    if pa.types.is_boolean(kind):
        texts = pc.utf8_lower(texts)
        return pc.if_else(pc.is_in(texts, pa.array(["0", "1"])), "no boolean", texts).cast(kind)
    if pa.types.is_timestamp(kind):
        texts = pc.replace_substring_regex(texts, r"(\.\d{6})0+", r"\1")
        if kind.tz is None:
            return texts.cast(kind)
        zoned = pc.match_substring_regex(texts, _ZONE)
        own = pc.if_else(zoned, texts, None).cast(kind)
        return pc.coalesce(own, pc.if_else(zoned, None, texts).cast(_UNZONED).cast(kind))
    if pa.types.is_decimal(kind):
        form = rf"^[+-]?0*\d{{0,{kind.precision - kind.scale}}}(\.\d{{0,{kind.scale}}}0*)?$"
        if not pc.all(pc.match_substring_regex(texts, form), min_count=0).as_py():
            raise pa.ArrowInvalid("no decimal of the type")
        # Arrow's cast may overflow for more than 38 digits, zeros included
        texts = pc.replace_substring_regex(texts, rf"(\.\d{{{kind.scale}}})0+$", r"\1")
        texts = pc.replace_substring_regex(texts, r"^([+-]?)0+(\d)", r"\1\2")
    if pa.types.is_integer(kind) and pc.any(pc.match_substring(texts, "x", ignore_case=True)).as_py():
        raise pa.ArrowInvalid("hexadecimal")
    values = texts.cast(kind)
    if pa.types.is_floating(kind):
        grown = pc.and_(pc.is_inf(values), pc.invert(pc.match_substring(texts, "inf", ignore_case=True)))
        if pc.any(grown).as_py():
            raise pa.ArrowInvalid("beyond the range")
    return values


def _text_of(value: pa.Array) -> str | None:
    try:
        return str(value[0]) if value[0].is_valid else None
    except (ValueError, OverflowError):  # a time that Python does not have
        text: str | None = value.cast(pa.string())[0].as_py()
        return text


def _misfit(column: Field, text: str | None, *, kind: str = CSV) -> str:
    if text is None or (text == "" and not column.nullable):
        return "null, but the column must not be null; give it a value"
    wanted = _FORMS.get(str(column.type), f"{column.type}, without a loss of digits")
    null = f"pass --null {text if text and ' ' not in text else repr(text)}" if kind == CSV else "write null"
    remedy = f"correct it, or, if it means null, {null}"
    return f"invalid value {_shown(text)}; expected {wanted}; {remedy}"


def _kinds_of(texts: Any, null: str | None = None) -> list[str] | None:
    texts = pc.drop_null(_without(texts, null))
    return [kind for kind in _PATTERNS if _is_kind(texts, kind)] if len(texts) else None


def _is_kind(texts: Any, kind: str) -> bool:
    if not pc.all(pc.match_substring_regex(texts, _PATTERNS[kind])).as_py():
        return False
    values = _typed(Field(name="", type=Primitive(name=kind)), None, texts)
    return values is not None and (kind != "double" or _keeps_digits(texts, values))


def _keeps_digits(texts: Any, doubles: Any) -> bool:
    """Whether each double, written with as many digits as its text, is that number."""
    counts = pc.utf8_length(pc.utf8_trim(pc.replace_substring_regex(texts, r"[eE].*|[-.]", ""), "0"))
    long = pc.and_(pc.greater(counts, _KEPT_DIGITS), pc.not_equal(doubles.cast(pa.string()), texts))
    tiny = pc.and_(pc.greater(counts, 0), pc.less(pc.abs(doubles), _LEAST))
    columns = (column.filter(pc.or_(long, tiny)).to_pylist() for column in (texts, counts, doubles))
    try:
        return all(Decimal(f"{double:.{n}g}") == Decimal(text) for text, n, double in zip(*columns, strict=True))
    except DecimalException:  # an exponent that no number has
        return False
