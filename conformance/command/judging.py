"""The command `check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from conformance.command.options import JsonOption
from conformance.history import command

_EPILOG: Final = """Examples:

delta-commit-conformance check report/findings/some-case/history.jsonl

delta-commit-conformance check production.jsonl --json

The format is JSON Lines: `python -m conformance.history schema` prints its schema."""


def register(application: typer.Typer) -> None:
    application.command(epilog=_EPILOG)(check)


def check(
    file: Annotated[Path, typer.Argument(metavar="HISTORY", help="history file in JSON Lines, with header and footer")],
    json: JsonOption = False,
) -> None:
    """Check a recorded history, of this kit or of a system in production.

    Exit code 0: conformant; 1: the history shows a violation; 2: the file is not a valid history.
    """
    code = command.check(file, as_json=json)
    raise typer.Exit(code)
