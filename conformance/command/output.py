"""Shared code of the subcommands: output and common options.

Results go to stdout, everything else to stderr. Control characters in a subject's text are escaped. Without a terminal
the output has no line width and no colour.
"""

import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
import typer

from conformance.interface.safe_text import visible
from conformance.interface.subject import TIMEOUT

_NARROWEST: Final = 24
"""The least width of a column that wraps."""


def show(text: str = "") -> None:
    """Print one or more lines of the result."""
    print(visible(text))


def say(text: str) -> None:
    """Print a message that is not part of the result."""
    print(visible(text), file=sys.stderr)


def show_json(value: Any) -> None:
    """Print one JSON document."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value, order="deterministic"), indent=2).decode() + "\n")


def show_rows(rows: Sequence[Mapping[str, str]], *, wide: str, also: Sequence[str] = ()) -> None:
    """Print rows with the same columns, below their headers. A terminal wraps the last column, `wide`, and those in
    `also`. If it is too narrow for the others, the first column has a line of its own, above the others."""
    columns = [name for name in rows[0] if name != wide] + [wide]
    if not sys.stdout.isatty():
        widths = {name: max(len(row[name]) for row in rows) for name in columns}
        widths = {name: max(width, len(name)) for name, width in widths.items()}
        for row in [dict(zip(columns, columns, strict=True)), *rows]:
            show("  ".join(f"{row[name]:<{widths[name]}}" for name in columns).rstrip())
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    fixed = [name for name in columns if name not in (wide, *also)]
    if sum(2 + max(len(row[name]) for row in rows) for name in fixed) + _NARROWEST > console.width:
        for row in rows:
            shown = [name for name in columns[1:] if row[name] not in ("", "-")]
            more = " · ".join(f"{name} {row[name]}" if row[name].isdigit() else row[name] for name in shown)
            show(row[columns[0]])
            show(textwrap.indent(textwrap.fill(more, max(1, console.width - 4)), "    "))
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="underline")
    for name in columns:
        table.add_column(name, no_wrap=name not in (wide, *also), overflow="fold")
    for row in rows:
        table.add_row(*(Text(visible(row[name])) for name in columns))
    console.print(table)


def option(form: str, text: str, **more: Any) -> Any:
    """An option of a command, with its help text. `form`: its names and its metavar, as in `--workers -n N`."""
    names = [word for word in form.split() if word.startswith("-")]
    metavar = " ".join(word for word in form.split() if word not in names) or None
    return typer.Option(*names, metavar=metavar, help=text, **more)


def argument(metavar: str, text: str, **more: Any) -> Any:
    """An argument of a command, with its help text."""
    return typer.Argument(metavar=metavar, help=text, **more)


SubjectArgument = Annotated[
    str | None,
    argument(
        "SUBJECT",
        "subject: `reference`, `mutant:ID`, `python:MODULE:CLASS`, `'stdio:COMMAND WITH ARGUMENTS'`, "
        "`http:URL`, `uc:URL`, `jvm:CLASS` or `engine:NAME` (required; all forms: `list subjects`)",
        show_default=False,
    ),
]
ClasspathOption = Annotated[
    str | None, option("--classpath JARS", "class path of a subject jvm:CLASS", show_default=False)
]
JsonOption = Annotated[bool, option("--json", "print one JSON document to stdout")]
TimeoutOption = Annotated[str, option("--timeout TIME", "timeout of one answer, for example `10s` or `500ms`")]
TIMEOUT_TEXT: Final = f"{TIMEOUT:g}s"


PROGRAM: Final = "delta-commit-conformance"


def examples(*words: str) -> str:
    """The text below a command's help."""
    return "\n\n".join(["Examples:", *(f"{PROGRAM} {example}" for example in words)])
