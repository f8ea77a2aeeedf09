"""What `play FILE` opens: the finding of a report, a recorded history, or the trace of a simulated schedule."""

from __future__ import annotations

import contextlib
import mmap
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from conformance.checkers.check import check_file
from conformance.history.events import InvalidHistoryError
from conformance.player.story import Story
from conformance.reports.as_json import ReportError
from conformance.reports.bundle import FINDING, read_finding, replay_command
from conformance.reports.history_story import history_story
from conformance.reports.summary import direct_first
from conformance.results import UnusableError, Violation
from conformance.scenario.running import violations_of

EXPECTED: Final = (
    "expected a finding (finding.json), a history (JSON Lines), or a trace that `simulate explore --trace` wrote"
)
LARGE: Final = 1 << 24
"""Bytes of a history whose verdict takes seconds."""
_SHOWN: Final = 60
"""Bytes of the first line that a message quotes."""


class _Kind(msgspec.Struct):
    """By what the files differ."""

    event: Any = None
    violations: Any = None
    turns: Any = None


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
        whole = _kind(path.read_bytes())
        if whole.turns is not None:
            from conformance.play.traced import trace_story

            return trace_story(path)
        if whole.violations is not None:
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
    """The first events of a history whose verdict takes longer than a person wants to wait; None of any other file."""
    with contextlib.suppress(OSError, InvalidHistoryError):
        if path.is_file() and path.stat().st_size > LARGE:
            return replace(_played(path, []), ends="The history is being judged.")
    return None


def _finding(path: Path) -> Story:
    finding = read_finding(path)
    if finding.history is None:
        raise UnusableError(f"{path} has no history, so there is nothing to play; run it again: {replay_command(path)}")
    return _played(path.with_name(finding.history), direct_first(finding.violations), finding.title)


def _history(path: Path) -> Story:
    verdict = check_file(path)
    return _played(path, violations_of(verdict), more=verdict.left_out)


def _played(path: Path, violations: list[Violation], title: str = "", more: int = 0) -> Story:
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return history_story(text, violations, name=path.stem, title=title, more=more)
