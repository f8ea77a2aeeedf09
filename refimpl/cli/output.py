"""The output of results and errors: tables and facts for people, one JSON document for scripts, exit codes.

The standard output has only the result. In a pipe or a file, each row of a table is one line with complete values, so
that `grep`, `cut` and `less -S` work on it.
"""

import datetime
import errno
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum
from typing import Any, Final

from refimpl.protocol import errors
from refimpl.storage.object_store import StoreError

_WIDTH_OF_A_PIPE: Final = 1_000_000_000
"""Cells are never cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """Rows below their column names, without markup.

    The columns in `right` are right-aligned. Values in the columns of `right` and `whole` stay on one line.
    """

    columns: Sequence[str]
    rows: Iterable[Sequence[Any]]
    right: Collection[str] = ()
    whole: Collection[str] = ()

    def show(self) -> None:
        from rich.table import Table as RichTable
        from rich.text import Text

        console = _console()
        rows = [list(map(text, row)) for row in self.rows]
        if not console.is_terminal:
            _write_aligned([self.columns, *rows], [name in self.right for name in self.columns])
            return
        table = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="underline")
        for name in self.columns:
            table.add_column(
                Text(name),
                justify="right" if name in self.right else "left",
                no_wrap=name in self.right or name in self.whole,
                overflow="fold",
            )
        for row in rows:
            table.add_row(*map(Text, row))
        console.print(table)


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values in two columns. A list has one line for each item; None is left out."""

    facts: Mapping[str, Any]
    title: str

    def show(self) -> None:
        from rich.table import Table as RichTable
        from rich.text import Text

        console = _console()
        rows = []
        for name, value in self.facts.items():
            values = value if isinstance(value, list | tuple) else [] if value is None else [value]
            rows += [("" if position else name, text(item)) for position, item in enumerate(values)]
        if not console.is_terminal:
            show_line(self.title)
            _write_aligned(rows, [False, False])
            return
        console.print(Text(self.title, style="bold"))
        table = RichTable(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for row in rows:
            table.add_row(*map(Text, row))
        console.print(table)


class Result:
    """What a command shows: the document with `--json`, otherwise the lines, tables and facts; and its exit code."""

    def __init__(self, document: Any, *parts: str | TextTable | Facts, code: int = 0) -> None:
        self.document, self.parts, self.code = document, parts, code

    def show(self, *, json: bool) -> None:
        """Print the result. Raises `typer.Exit` for an exit code other than 0."""
        import typer

        if json:
            show_json(self.document)
        else:
            for part in self.parts:
                show_line(part) if isinstance(part, str) else part.show()
        if self.code:
            raise typer.Exit(self.code)


def show_json(value: Any) -> None:
    """Print one JSON document. Structs and enums are encoded by `msgspec`, paths by `str`."""
    import msgspec

    content = msgspec.json.encode(value, enc_hook=str)
    sys.stdout.write(msgspec.json.format(content, indent=2).decode() + "\n")


def show_line(line: str) -> None:
    """Print one line of text, without markup."""
    from rich.text import Text

    console = _console()
    if console.is_terminal:
        console.print(Text(line), soft_wrap=True)
    else:
        sys.stdout.write(f"{line}\n")


def show_error(line: str) -> None:
    """Print an error to the standard error."""
    sys.stderr.write(f"error: {line}\n")


def show_hint(line: str) -> None:
    """Print a hint, which is not part of the result, to the standard error."""
    sys.stderr.write(f"{line}\n")


def text(value: Any) -> str:
    """A value for people."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return printable(str(value))


_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that move a terminal's cursor, run its commands, or change the order of a line."""


def printable(value: str, but: str = "") -> str:
    """The text with its control characters, except those in `but`, as escapes, which are those of JSON, too."""
    return _CONTROL.sub(lambda match: match[0] if match[0] in but else f"\\u{ord(match[0]):04x}", value)


def cell(value: Any) -> str:
    """A value of a table's column: null is an empty cell, an empty text is `""`, bytes are hexadecimal."""
    if value == "":
        return '""'
    return "" if value is None else printable(literal(value))


def literal(value: Any) -> str:
    """A value inside a list, or in CSV."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case bytes():
            return value.hex()
        case Decimal():
            return format(value, "f")
        case dict():
            return "{" + ", ".join(f"{name}: {literal(item)}" for name, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(literal(item) for item in value) + "]"
        case tuple():  # an entry of a map
            return " -> ".join(literal(item) for item in value)
    return str(value)


def counted(number: int, what: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def plain(number: int | None) -> str:
    """A number without separators, such as a version."""
    return "-" if number is None else str(number)


def moment(milliseconds: int | None) -> str:
    """A time in UTC, from ms since the epoch."""
    if milliseconds is None:
        return "-"
    try:
        at = datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"
    return at.strftime("%Y-%m-%d %H:%M:%S.") + f"{milliseconds % 1000:03d}Z"


def size(number: int) -> str:
    """A number of bytes with a unit."""
    amount = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def width() -> int:
    """The number of characters in a line of a table."""
    columns: int = _console().width
    return columns


def _console() -> Any:
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDTH_OF_A_PIPE, no_color=True)


_PADDED: Final = 200
"""A longer cell is complete, too, but the other rows are not padded to its width."""


def _write_aligned(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> None:
    """Write each row as a line, without blanks at its end. `right`: for each column."""
    from rich.cells import cell_len

    columns = zip(*rows, strict=True)
    widths = [max((cell_len(cell) for cell in column if len(cell) <= _PADDED), default=0) for column in columns]
    for row in rows:
        cells = []
        for cell, width, is_right in zip(row, widths, right, strict=True):
            blanks = " " * (width - cell_len(cell)) if len(cell) <= _PADDED else ""
            cells.append(blanks + cell if is_right else cell + blanks)
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


class ExitCode(IntEnum):
    """The exit codes. Two failures have different codes only if a script should react differently."""

    OK = 0
    REFUSED = 1
    """A check failed, or the operation was rejected or lost a race. Nothing was changed."""
    USAGE = 2
    """Usage error: an unknown table, an invalid option, a missing file."""
    UNAVAILABLE = 3
    """The owner or the disk is unavailable. Nothing landed; the same call may succeed later."""
    CORRUPTION = 4
    """Stored bytes contradict what was acknowledged: stop, and run verify."""
    OUTCOME_UNKNOWN = 5
    """The commit may or may not have landed: run resolve with the attempt id; never repeat the same call."""
    DEFECT = 70
    """Internal error."""
    INTERRUPTED = 130
    """Ctrl-C."""
    CLOSED_PIPE = 141
    """The reader closed the pipe, as in `commit-owner log t | head`: what a shell reports after SIGPIPE."""


DOCUMENTED = """Exit codes: 0 success · 1 a check failed, or the operation was rejected or lost a race · 2 usage error \
· 3 owner or disk unavailable: try again · 4 corruption: stop, and run verify · 5 outcome unknown: resolve the \
attempt id, do not repeat · 70 internal error · 130 interrupted · 141 the reader closed the pipe"""

_REFUSALS = (
    errors.NameTakenError,
    errors.UnsupportedFeatureError,
    errors.InvalidTableError,
    errors.PathAccessError,
    errors.CommitRejectedError,
    errors.MaintenanceRefusedError,
    errors.LostRaceError,
    errors.ConcurrentModificationError,
)

_KINDS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], ExitCode], ...] = (
    (errors.OutcomeUnknown, ExitCode.OUTCOME_UNKNOWN),
    (errors.CorruptionError, ExitCode.CORRUPTION),
    (errors.OwnerUnavailableError, ExitCode.UNAVAILABLE),
    (_REFUSALS, ExitCode.REFUSED),
    (errors.InvalidRequestError, ExitCode.USAGE),
    ((FileNotFoundError, NotADirectoryError, IsADirectoryError, FileExistsError), ExitCode.USAGE),
    (OSError, ExitCode.UNAVAILABLE),
)


def exit_code(error: Exception) -> ExitCode:
    """The exit code for `error`."""
    for kinds, code in _KINDS:
        if isinstance(error, kinds):
            return code
    return ExitCode.DEFECT


def message(error: Exception) -> str:
    """One or two lines with the fact, the numbers and the next step."""
    if isinstance(error, errors.OutcomeUnknown) and not error.facts.get("landed"):
        return f"{error}\n{_way_to_know(error)}"
    advised = isinstance(error, errors.CorruptDataError) or any(word in str(error) for word in ("verify", "backup"))
    if isinstance(error, errors.CorruptionError) and not advised:
        return f"{error}\nstop the writers, then run: commit-owner verify"
    if isinstance(error, errors.DeltaError):
        return str(error)
    if isinstance(error, OSError):
        return _message_of_system(error)
    return (
        f"internal error: {type(error).__name__}: {_first_line(error)}\n"
        "set COMMIT_OWNER_TRACEBACK=1 to get the traceback, and report it"
    )


def _way_to_know(error: errors.OutcomeUnknown) -> str:
    """How to find the outcome. `resolve` needs a table that the owner knows; during a take-over it has no id yet."""
    table, attempt = error.facts.get("table_id"), error.facts.get("attempt")
    if table is not None and attempt is not None:
        return f"find out whether it landed: commit-owner resolve {table} {attempt}"
    return "before a retry, check whether it landed: read the table at its path, and run commit-owner verify"


def _message_of_system(error: OSError) -> str:
    file = f" {error.filename}" if error.filename else ""
    what = error.strerror or str(error)
    step = (
        "free some space, then try again"
        if error.errno in (errno.ENOSPC, errno.EDQUOT)
        else "check the store, and the environment variables AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, ..., then try again"
        if isinstance(error, StoreError)
        else "check the path and its permissions"
    )
    return f"system error{file}: {what}; {step}"


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
