"""The commands `check`, which judges a recorded history, and `schema`."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import msgspec
import typer

from conformance.checkers.check import HistoryVerdict, check_file
from conformance.command.options import JsonOption
from conformance.history import events
from conformance.history.events import InvalidHistoryError
from conformance.history.times import Times, times_of_file
from conformance.interface import messages

CONFORMANT: Final = 0
VIOLATION: Final = 1
UNUSABLE: Final = 2
"""The history cannot be judged: it is cut off, contradicts itself, or cannot be read."""

_EPILOG: Final = """Examples:

delta-commit-conformance check report/findings/some-case/history.jsonl

delta-commit-conformance check production.jsonl --json

The format is JSON Lines: `delta-commit-conformance schema history` prints its schema."""


class Format(StrEnum):
    """Of which there is a JSON Schema."""

    HISTORY = "history"
    INTERFACE = "interface"


def register(application: typer.Typer) -> None:
    application.command(epilog=_EPILOG)(check)
    application.command()(schema)


def schema(of: Annotated[Format, typer.Argument(help="lines of a history, or messages to a subject")]) -> None:
    """Print a JSON Schema."""
    print(events.schema_text() if of is Format.HISTORY else messages.schema_text(), end="")


def check(
    file: Annotated[Path, typer.Argument(metavar="HISTORY", help="history file in JSON Lines, with header and footer")],
    json: JsonOption = False,
) -> None:
    """Check a recorded history, of this kit or of a system in production.

    Exit code 0: conformant; 1: the history shows a violation; 2: the file is not a valid history.
    """
    try:
        verdict = check_file(file)
    except InvalidHistoryError as error:
        _unusable(file, error.problem, error.line, as_json=json)
    except MemoryError:
        _unusable(file, "it is too large for the memory of this machine", None, as_json=json)
    if verdict.violations:
        verdict = _readable(verdict, times_of_file(file))
    word = "conformant" if verdict.conformant else "violation"
    if json:
        _print_json({"file": str(file), "verdict": word, **msgspec.to_builtins(verdict)})
    else:
        _show(file, word, verdict)
    raise typer.Exit(CONFORMANT if verdict.conformant else VIOLATION)


def _readable(verdict: HistoryVerdict, times: Times) -> HistoryVerdict:
    """With the times in its messages as people read them; the operations beside them keep those of the history."""
    found = [msgspec.structs.replace(each, message=times.in_words(each.message)) for each in verdict.violations]
    return msgspec.structs.replace(verdict, violations=tuple(found))


def _unusable(file: Path, problem: str, line: int | None, *, as_json: bool) -> NoReturn:
    if as_json:
        _print_json({"file": str(file), "verdict": "invalid", "line": line, "problem": problem})
    else:
        where = "" if line is None else f", line {line}"
        print(f"{file}{where}: this history cannot be judged: {problem}", file=sys.stderr)
    raise typer.Exit(UNUSABLE)


def _print_json(value: dict[str, Any]) -> None:
    print(msgspec.json.format(msgspec.json.encode(value)).decode())


def _show(file: Path, word: str, verdict: HistoryVerdict) -> None:
    tables = ", ".join(f"{table} ({_count(n, 'version')})" for table, n in verdict.tables.items()) or "no table"
    operations = _count(verdict.operations, "operation")
    print(f"{file}: {word}: {operations} on {tables}; {verdict.header.subject.name}")
    for number, violation in enumerate(verdict.violations, 1):
        where = "" if violation.version is None else f", version {violation.version}"
        print(f"\n{number}. {violation.rule.value}: {violation.table}{where}")
        print(f"   Required: {violation.requirement}")
        print(f"   Found: {violation.message}")
    if verdict.left_out:
        print(f"\nNot shown: {_count(verdict.left_out, 'more violation')} of the same rules.")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
