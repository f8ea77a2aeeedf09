"""Input files of an ingestion: reads CSV files as Arrow batches of a table's types.

    files = InputFiles.of([Path("day.csv")], Dialect())
    for batch in files.typed(schema).batches(): ...

Arrow splits CSV files into texts; a text becomes a value only if no digit is lost.
"""

from __future__ import annotations

import codecs
import contextlib
import dataclasses
import functools
import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
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
_SHOWN: Final = 100
"""Maximum number of characters of a value in a message."""
_ZONE: Final = r"\d\d:\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"
_UNZONED: Final = pa.timestamp("us")
_FORMS: Final = {
    "boolean": "true or false",
    "binary": "two hexadecimal digits for each byte",
    **{name: f"a whole number in the range of {name}" for name in ("byte", "short", "integer", "long")},
    **{name: f"a number in the range of {name}" for name in ("float", "double")},
    "date": "a date such as 2026-11-28",
    "timestamp": "a time such as 2026-11-28 09:30:00.25 (UTC) or 2026-11-28T09:30:00+01:00, to the microsecond",
    "timestamp_ntz": "a time without a zone, such as 2026-11-28 09:30:00.25, to the microsecond",
}


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

    @contextlib.contextmanager
    def opened(self, path: Path, names: Sequence[str] | None) -> Iterator[pa.csv.CSVStreamingReader]:
        """The rows of a file below its header, as texts in columns of these names; None: with those of the header."""
        with _readable(path), (gzip.open if path.suffix.lower() == ".gz" else open)(path, "rb") as raw:
            yield pa.csv.open_csv(
                _Content(raw, path, self.delimiter),
                pa.csv.ReadOptions(
                    use_threads=False,  # with threads, Arrow's errors do not name the row
                    block_size=BLOCK_BYTES,
                    column_names=names,
                    skip_rows_after_names=0 if names is None else 1,
                ),
                pa.csv.ParseOptions(
                    delimiter=self.delimiter,
                    newlines_in_values=True,
                    ignore_empty_lines=names is None or len(names) > 1,  # in one column, it is a null
                ),
                pa.csv.ConvertOptions(
                    column_types=dict.fromkeys(names or (), pa.string()),
                    null_values=[self.null],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )


class _Content:
    """The content of an opened CSV file, from its header on, and with a line break at its end, because Arrow
    takes a last empty value without one for a quoted one. Raises `InvalidRequestError` for a quote that neither begins
    nor ends a value, nor is doubled, because Arrow accepts it, and the rows up to the next quote become one value."""

    closed = False

    def __init__(self, raw: Any, path: Path, delimiter: str) -> None:
        self._raw, self._path = raw, path
        self._beside_quotes = pa.array((f'"{delimiter}\r\n').encode(), pa.uint8())
        self._quotes = self._lines = 0
        self._last, self._held, self._begun, self._ended = b"\n", b"", False, False

    def read(self, size: int) -> bytes:
        room = size - 2
        if self._ended:
            return b""
        data: bytes = self._raw.read(room)
        self._ended = len(data) < room
        data = self._held + data
        if not self._begun:
            data = data.removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n")
            self._begun = bool(data)
        held = data[-1:] in (b"\r", b'"') and not self._ended  # the next block's first byte decides on it
        self._held = data[-1:] if held else b""
        data = data.removesuffix(self._held)
        if not data and not self._ended:
            return self.read(size)
        if b'"' in data:
            self._check_quotes(data)
        if self._ended and self._quotes % 2:
            self._refuse(f"{self._path} has {self._quotes} quotes; expected an even number")
        self._lines += data.count(b"\n")
        self._last = data[-1:] or self._last
        return data + b"\n" if self._ended and self._last not in b"\r\n" else data

    def _check_quotes(self, data: bytes) -> None:
        around = pa.Array.from_buffers(pa.uint8(), len(data) + 2, [None, pa.py_buffer(self._last + data + b"\n")])
        quotes = pc.indices_nonzero(pc.equal(around.slice(1, len(data)), ord('"'))).cast(pa.int64())
        closing = self._quotes % 2  # the first quote of the block ends a value
        faults = []
        for first, beside in ((closing, 0), (1 - closing, 2)):  # those that begin a value, and those that end one
            places = quotes.take(pa.arange(first, len(quotes), 2)) if first < len(quotes) else quotes[:0]
            fault = pc.index(pc.is_in(around.take(pc.add(places, beside)), self._beside_quotes), False).as_py()
            faults += [places[fault].as_py()] if fault >= 0 else []
        if faults:
            line = self._lines + data.count(b"\n", 0, min(faults)) + 1
            self._refuse(f"{self._path}, line {line}: misplaced quote")
        self._quotes += len(quotes)

    def _refuse(self, problem: str) -> None:
        raise InvalidRequestError(f"{problem}; put a value with a quote in quotes, and double the quote")

    def close(self) -> None:
        """Do nothing: `Dialect.opened` closes the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    path: Path
    size: int
    modified: int
    """In ns since the epoch."""

    @classmethod
    def of(cls, path: Path) -> InputFile:
        with _readable(path):
            if not path.is_file():
                files = f"; give its files: {path}/*" if path.is_dir() else ""
                problem = f"is not a file{files}" if path.exists() else "does not exist"
                raise InvalidRequestError(f"{path} {problem}")
            status = path.stat()
        return cls(path=path, size=status.st_size, modified=status.st_mtime_ns)

    def check_unchanged(self) -> None:
        """Raise `InvalidRequestError` if the file has changed since it was found: its columns may differ."""
        if InputFile.of(self.path) != self:
            raise InvalidRequestError(
                f"{self.path} was changed while it was read; ingest it when it is complete, or ingest a copy"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFiles:
    """CSV files with the same columns."""

    files: tuple[InputFile, ...]
    names: tuple[str, ...] = ()
    dialect: Dialect = Dialect()
    schema: Struct | None = None
    """The table's columns of these names, in this order; None before `typed`."""

    @classmethod
    def of(cls, paths: Sequence[Path], dialect: Dialect | None = None) -> InputFiles:
        """Raises `InvalidRequestError` for files whose columns differ."""
        draft = cls(files=tuple(map(InputFile.of, paths)), dialect=dialect or Dialect())
        _check_given_once(draft.files)
        first: tuple[str, ...] = ()
        for file in draft.files:
            names = draft._header(file)
            _check_names(file.path, names)
            first = first or names
            if names != first:
                raise InvalidRequestError(
                    f"{file.path} has the columns {', '.join(names)}, but {draft.files[0].path} has "
                    f"{', '.join(first)}; ingest them separately"
                )
        return dataclasses.replace(draft, names=first)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, as the table spells them."""
        return self.names if self.schema is None else self.schema.names

    def typed(self, schema: Struct) -> InputFiles:
        """The same files, whose rows have the types and the names of a table. Raises `InvalidRequestError` for a column
        that the table does not have, and for a type that a CSV file cannot hold."""
        known = {column.name.lower(): column for column in schema.fields}
        surplus = [name for name in self.names if name.lower() not in known]
        if surplus:
            raise InvalidRequestError(
                f"the table has no column {', '.join(map(repr, surplus))}; its columns are {', '.join(schema.names)}: "
                "rename the column in the file, leave it out, or pass the right --delimiter"
            )
        columns = tuple(known[name.lower()] for name in self.names)
        for column in columns:
            if pa.types.is_nested(arrow_type(column.type)):
                raise InvalidRequestError(
                    f"the column {column.name!r} is {column.type}, which a CSV file cannot hold; append rows in Python"
                )
        return dataclasses.replace(self, schema=Struct(fields=columns))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows of all files. Raises `InvalidRequestError` with the file, the row and the column."""
        for file in self.files:
            yield from self._rows(file)

    def _header(self, file: InputFile) -> tuple[str, ...]:
        """The names of a file's columns. An empty name is replaced as in Spark."""
        with self.dialect.opened(file.path, None) as content:
            return tuple(name or f"_c{number}" for number, name in enumerate(content.schema.names))

    def _rows(self, file: InputFile) -> Iterator[pa.RecordBatch]:
        assert self.schema is not None
        row, null = 0, self.dialect.null
        with self.dialect.opened(file.path, self.names) as content:
            for batch in content:
                arrays = []
                for column, texts in zip(self.schema.fields, batch.columns, strict=True):
                    values = _typed(column, null, texts)
                    if values is None:
                        first = _first(texts, functools.partial(_typed, column, null))
                        where = f"row {row + first + 1} below the header, column {column.name!r}"
                        raise InvalidRequestError(f"{file.path}, {where}: {_misfit(column, texts[first].as_py())}")
                    arrays.append(values)
                row += batch.num_rows
                file.check_unchanged()
                yield pa.record_batch(arrays, list(self.schema.names))


def _check_given_once(files: Iterable[InputFile]) -> None:
    given: dict[Path, Path] = {}
    for file in files:
        first = given.setdefault(file.path.resolve(), file.path)
        if first is not file.path:
            again = "" if first == file.path else f", as {first}"
            raise InvalidRequestError(f"{file.path} is given twice{again}; pass it once")


def _check_names(path: Path, names: Sequence[str]) -> None:
    if not names:
        raise InvalidRequestError(f"{path} has no columns; expected at least one")
    lower = [name.lower() for name in names]
    twice = [name for name in names if lower.count(name.lower()) > 1]
    if twice:
        raise InvalidRequestError(f"{path} has the column {twice[-1]!r} twice; rename one of them")


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (EOFError, zlib.error, UnicodeError, OSError, pa.ArrowException) as error:
        problem = "".join(each if each.isprintable() else repr(each)[1:-1] for each in str(error).rstrip("."))
        raise InvalidRequestError(
            f"{path} cannot be read: {problem}; expected a complete CSV file in UTF-8 (iconv converts other encodings)"
        ) from error


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


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


def _typed(column: Field, null: str, texts: Any) -> Any:
    """The texts as values of the column's type; None if one is not. A text equal to `null` is
    null, except in columns of texts and bytes."""
    kind = arrow_type(column.type)
    try:
        try:
            values = _converted(texts, kind)
        except pa.ArrowInvalid:
            if pa.types.is_string(kind) or pa.types.is_binary(kind):
                return None
            values = _converted(pc.utf8_trim(pc.if_else(pc.equal(texts, null), None, texts), " \t"), kind)
    except pa.ArrowInvalid:
        return None
    return None if not column.nullable and values.null_count else values


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
    if (
        pa.types.is_integer(kind)
        and pc.any(pc.or_(pc.match_substring(texts, "x"), pc.match_substring(texts, "X"))).as_py()
    ):
        raise pa.ArrowInvalid("hexadecimal")
    values = texts.cast(kind)
    if pa.types.is_floating(kind) and pc.any(pc.is_inf(values)).as_py():
        grown = pc.and_(pc.is_inf(values), pc.invert(pc.match_substring(texts, "inf", ignore_case=True)))
        if pc.any(grown).as_py():
            raise pa.ArrowInvalid("beyond the range")
    return values


def _misfit(column: Field, text: str | None) -> str:
    if text is None or (text == "" and not column.nullable):
        return "null, but the column must not be null; give it a value"
    wanted = _FORMS.get(str(column.type), f"{column.type}, without a loss of digits")
    remedy = f"correct it, or, if it means null, pass --null {text if text and ' ' not in text else repr(text)}"
    return f"invalid value {_shown(text)}; expected {wanted}; {remedy}"
