"""Opens the file of `play FILE`: the finding of a report, or a recorded history."""

import contextlib
import mmap
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from conformance.checkers.check import check_file
from conformance.history.events import InvalidHistoryError
from conformance.interface.results import UnusableError, Violation
from conformance.reports.history_story import history_story
from conformance.reports.stored import FINDING, ReportError, read_finding, replay_command
from conformance.reports.summary import direct_first
from conformance.scenario.running import violations_of
from conformance.story import Story

EXPECTED: Final = "expected a finding (finding.json) or a history (JSON Lines)"
LARGE: Final = 1 << 24
"""The size in bytes above which the verdict on a history takes seconds."""
_SHOWN: Final = 60
"""The maximum number of bytes of the first line that a message quotes."""


class _Kind(msgspec.Struct):
    """The kinds of files."""

    event: Any = None
    violations: Any = None


def open_story(path: Path) -> Story:
    """Raises `UnusableError` if nothing can be played."""
    path = path / FINDING if path.is_dir() else path
    try:
        with path.open("rb") as stream:
            start = stream.readline()
        if not start:
            raise UnusableError(f"{path} is empty; {EXPECTED}")
        if _kind(start).event is not None:
            return _history(path)
        if _kind(path.read_bytes()).violations is not None:
            return _finding(path)
    except OSError as error:
        raise UnusableError(f"{error.filename or path} cannot be read: {error.strerror or error}") from None
    except InvalidHistoryError as error:
        where = "" if error.line is None else f", line {error.line}"
        raise UnusableError(f"{path}{where}: this history cannot be played: {error.problem}") from None
    except ReportError as error:
        raise UnusableError(error.problem) from None
    raise UnusableError(f"{path}, line 1: {start[:_SHOWN].decode('utf-8', 'replace').strip()!r}; {EXPECTED}")


def _kind(text: bytes) -> _Kind:
    try:
        return msgspec.json.decode(text, type=_Kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Kind()


def beginning(path: Path) -> Story | None:
    """The first events of a history whose verdict takes long; None for any other file."""
    with contextlib.suppress(OSError, InvalidHistoryError):
        if path.is_file() and path.stat().st_size > LARGE:
            return replace(_played(path, []), ends="The verdict is being computed.")
    return None


def _finding(path: Path) -> Story:
    finding = read_finding(path)
    if finding.history is None:
        raise UnusableError(f"{path} has no history, so there is nothing to play; run it again: {replay_command(path)}")
    return _played(path.with_name(finding.history), direct_first(finding.violations), f"Check: {finding.title}")


def _history(path: Path) -> Story:
    verdict = check_file(path)
    return _played(path, violations_of(verdict), more=verdict.left_out)


def _played(path: Path, violations: list[Violation], title: str = "", more: int = 0) -> Story:
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return history_story(text, violations, name=path.stem, title=title, more=more)
