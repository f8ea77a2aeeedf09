"""How results are shown: tables and facts for people, one JSON document for scripts.

Standard output carries the result and nothing else. Where it is a pipe or a file, tables have no
limit of width and no lines, so that `grep`, `cut` and `less -S` work on them.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

_WIDTH_OF_A_PIPE = 400


def show_json(value: Any) -> None:
    """One JSON document. Structs, enums and paths are spelled as `msgspec` and `str` do."""
    import msgspec

    content = msgspec.json.encode(value, enc_hook=str)
    sys.stdout.write(msgspec.json.format(content, indent=2).decode() + "\n")


def show_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    right: Collection[str] = (),
    whole: Collection[str] = (),
    title: str | None = None,
) -> None:
    """Rows below their column names, which are taken literally.

    The columns named in `right` are set to the right; these and those in `whole` keep their values on one line.
    """
    from rich.table import Table
    from rich.text import Text

    console = _console()
    if title is not None:
        show_line(title, style="bold")
    table = Table(
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        header_style="underline",
    )
    for name in columns:
        table.add_column(
            Text(name),
            justify="right" if name in right else "left",
            no_wrap=name in right or name in whole or not console.is_terminal,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(text(value)) for value in row))
    _print(console, table)


def show_facts(facts: Mapping[str, Any], *, title: str | None = None) -> None:
    """Names and values in two columns. A list has a line for each item; None is left out."""
    from rich.table import Table
    from rich.text import Text

    console = _console()
    if title is not None:
        _print(console, Text(title, style="bold"))
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        if value is None:
            continue
        lines = [text(item) for item in value] if isinstance(value, list | tuple) else [text(value)]
        table.add_row(name, Text("\n".join(lines)))
    _print(console, table)


def show_line(line: str = "", *, style: str = "") -> None:
    """One line of text, taken literally."""
    from rich.text import Text

    console = _console()
    if console.is_terminal:
        console.print(Text(line, style=style), soft_wrap=True)
    else:
        sys.stdout.write(f"{line}\n")


def show_error(line: str) -> None:
    """For the standard error."""
    sys.stderr.write(f"error: {line}\n")


def show_hint(line: str) -> None:
    """Something worth knowing that is no result: on the standard error, too."""
    sys.stderr.write(f"{line}\n")


def text(value: Any) -> str:
    """A value as people read it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def cell(value: Any) -> str:
    """A value of a table's column, as it is: null is an empty cell, an empty text is `""`, bytes are hexadecimal."""
    if value == "":
        return '""'
    return "" if value is None else _literal(value)


def _literal(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case bytes():
            return value.hex()
        case dict():
            return "{" + ", ".join(f"{name}: {_literal(item)}" for name, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(_literal(item) for item in value) + "]"
        case tuple():  # an entry of a map
            return " -> ".join(_literal(item) for item in value)
    return str(value)


def counted(number: int, what: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def plain(number: int | None) -> str:
    """A number that is a name: a version."""
    return "-" if number is None else str(number)


def moment(milliseconds: int | None) -> str:
    """ms since the epoch as a moment in UTC."""
    if milliseconds is None:
        return "-"
    try:
        at = datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"
    return at.strftime("%Y-%m-%d %H:%M:%S.") + f"{milliseconds % 1000:03d}Z"


def size(number: int) -> str:
    """Bytes, as people count them."""
    amount = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def _console() -> Any:
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDTH_OF_A_PIPE, no_color=True)


def _print(console: Any, what: Any) -> None:
    """To a pipe without the blanks that fill a table's last column."""
    if console.is_terminal:
        console.print(what)
        return
    with console.capture() as captured:
        console.print(what)
    sys.stdout.writelines(line.rstrip() + "\n" for line in captured.get().splitlines())
