"""Opens the file of `play FILE`: the finding of a report, or a recorded history."""

from pathlib import Path
from typing import Any, Final

import msgspec

from conformance.checkers.check import check_file
from conformance.history.events import InvalidHistoryError
from conformance.interface.results import UnusableError
from conformance.reports.stored import FINDING, ReportError, read_finding, replay_command
from conformance.reports.summary import direct_first
from conformance.scenario.running import violations_of
from conformance.story import Story
from conformance.teaching.play.recording import history_story

EXPECTED: Final = "expected a finding (finding.json) or a history (JSON Lines)"
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


def _finding(path: Path) -> Story:
    finding = read_finding(path)
    if finding.history is None:
        raise UnusableError(f"{path} has no history, so there is nothing to play; run it again: {replay_command(path)}")
    return history_story(
        path.with_name(finding.history), direct_first(finding.violations), title=f"Check: {finding.title}"
    )


def _history(path: Path) -> Story:
    verdict = check_file(path)
    return history_story(path, violations_of(verdict), more=verdict.left_out)
