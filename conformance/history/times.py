"""Times of a history as people read them: of real time, milliseconds since its first event; of ticks, as they are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from conformance.history.files import LONGEST_LINE

_IN_A_MILLISECOND: Final = {"ns": 1_000_000, "us": 1_000, "ms": 1}
_SPAN: Final = re.compile(r"(?P<operation>\(operation \d+), (?P<start>\d+)\.\.(?P<end>\d*)")
"""How explanations tell when an operation began and ended."""
_MOMENT: Final = re.compile(r"\b(?P<when>by|before) (?P<at>\d+)\b(?!\.\d)")
"""How they tell when something was known. What is less than the first time of the history is a number of its own."""


class _Clock(msgspec.Struct):
    unit: str = "tick"


class _Header(msgspec.Struct):
    clock: _Clock


class _Event(msgspec.Struct):
    at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The clock of a history."""

    unit: str = "tick"
    first: int = 0
    """When the history begins."""

    @property
    def real(self) -> bool:
        return self.unit in _IN_A_MILLISECOND

    def shown(self, at: int) -> str:
        """`12.345` of real time; the number of a tick."""
        return f"{(at - self.first) / _IN_A_MILLISECOND[self.unit]:.3f}" if self.real else str(at)

    def in_words(self, text: str) -> str:
        """The text, with the times of the operations that it names in milliseconds."""
        if not self.real:
            return text
        return _SPAN.sub(self._span, _MOMENT.sub(self._moment, text))

    def _moment(self, found: re.Match[str]) -> str:
        at = int(found["at"])
        return found[0] if at < self.first else f"{found['when']} {self.shown(at)} ms"

    def _span(self, found: re.Match[str]) -> str:
        end = self.shown(int(found["end"])) if found["end"] else ""
        return f"{found['operation']}, {self.shown(int(found['start']))}..{end} ms"


def times_of(history: str | None) -> Times:
    """Of a history as it is written. Of one that cannot be read: as if its times were ticks, which stay as they are."""
    lines = (history or "").split("\n", 2)
    try:
        header = msgspec.json.decode(lines[0], type=_Header)
        first = msgspec.json.decode(lines[1], type=_Event)
    except (msgspec.DecodeError, UnicodeEncodeError, IndexError):
        return Times()
    return Times(unit=header.clock.unit, first=first.at)


def times_of_file(path: Path) -> Times:
    """Of the history in a file."""
    try:
        with path.open("rb") as stream:
            start = b"".join(stream.readline(LONGEST_LINE) for _ in range(2))
    except OSError:
        return Times()
    return times_of(start.decode("utf-8", "replace"))
