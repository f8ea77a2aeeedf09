"""`check`: the verdict on a recorded history, for people and for scripts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from conformance.checkers.check import HistoryVerdict, check_file
from conformance.history.events import InvalidHistoryError
from conformance.history.times import Times, times_of_file

CONFORMANT: Final = 0
VIOLATION: Final = 1
UNUSABLE: Final = 2
"""The history cannot be judged: it is cut off, it makes no sense, it cannot be read."""
INTERRUPTED: Final = 130


def check(file: Path, *, as_json: bool) -> int:
    """Judge the history in a file, and print the verdict. The exit code; nothing is raised."""
    try:
        verdict = check_file(file)
    except InvalidHistoryError as error:
        return _unusable(file, error.problem, error.line, as_json=as_json)
    except MemoryError:
        return _unusable(file, "it is too large for the memory of this machine", None, as_json=as_json)
    except KeyboardInterrupt:
        print(f"{file}: interrupted; there is no verdict", file=sys.stderr)
        return INTERRUPTED
    if verdict.violations:
        verdict = _readable(verdict, times_of_file(file))
    if as_json:
        _print_json({"file": str(file), "verdict": _word(verdict), **msgspec.to_builtins(verdict)})
    else:
        _tell(file, verdict)
    return CONFORMANT if verdict.conformant else VIOLATION


def _word(verdict: HistoryVerdict) -> str:
    return "conformant" if verdict.conformant else "violation"


def _readable(verdict: HistoryVerdict, times: Times) -> HistoryVerdict:
    """With the times in its messages as people read them; the operations beside them keep those of the history."""
    found = [msgspec.structs.replace(each, message=times.in_words(each.message)) for each in verdict.violations]
    return msgspec.structs.replace(verdict, violations=tuple(found))


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _unusable(file: Path, problem: str, line: int | None, *, as_json: bool) -> int:
    if as_json:
        _print_json({"file": str(file), "verdict": "invalid", "line": line, "problem": problem})
    else:
        where = "" if line is None else f", line {line}"
        print(f"{file}{where}: this history cannot be judged: {problem}", file=sys.stderr)
    return UNUSABLE


def _print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, indent=2))


def _tell(file: Path, verdict: HistoryVerdict) -> None:
    tables = ", ".join(f"{table} ({_count(n, 'version')})" for table, n in verdict.tables.items()) or "no table"
    operations = _count(verdict.operations, "operation")
    print(f"{file}: {_word(verdict)}: {operations} on {tables}; {verdict.header.subject.name}")
    for number, violation in enumerate(verdict.violations, 1):
        where = "" if violation.version is None else f", version {violation.version}"
        print(f"\n{number}. {violation.rule.value}: {violation.table}{where}")
        print(f"   Required: {violation.requirement}")
        print(f"   Found: {violation.message}")
    if verdict.left_out:
        print(f"\nNot shown: {_count(verdict.left_out, 'more violation')} of the same rules.")
