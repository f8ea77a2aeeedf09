"""Times of a history for people: milliseconds since its first event for real time; ticks unchanged."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from conformance.history.files import LONGEST_LINE

_IN_A_MILLISECOND: Final = {"ns": 1_000_000, "us": 1_000, "ms": 1}
_SPAN: Final = re.compile(
    r"(?P<operation>\(operation \d+), (?:events (?P<start>\d+) to (?P<end>\d+)|from event (?P<only>\d+))"
)
"""The begin and the end of an operation, as explanations write them."""
_MOMENT: Final = re.compile(r"\b(?P<when>by|before) (?P<at>\d+)\b(?!\.\d)")
"""A time in an explanation. A number below the first time of the history is not a time."""


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
    """The time of the first event."""

    @property
    def real(self) -> bool:
        return self.unit in _IN_A_MILLISECOND

    def shown(self, at: int) -> str:
        """Real time as `12.345`; a tick as its number."""
        return f"{(at - self.first) / _IN_A_MILLISECOND[self.unit]:.3f}" if self.real else str(at)

    def in_words(self, text: str) -> str:
        """The text, with all times of operations in milliseconds."""
        if not self.real:
            return text
        return _SPAN.sub(self._span, _MOMENT.sub(self._moment, text))

    def _moment(self, match: re.Match[str]) -> str:
        at = int(match["at"])
        return match[0] if at < self.first else f"{match['when']} {self.shown(at)} ms"

    def _span(self, match: re.Match[str]) -> str:
        if match["only"]:
            return f"{match['operation']}, from {self.shown(int(match['only']))} ms"
        return f"{match['operation']}, {self.shown(int(match['start']))} to {self.shown(int(match['end']))} ms"


def times_of(history: str | None) -> Times:
    """The clock of a history from its text. For a history that cannot be read: ticks, which stay unchanged."""
    lines = (history or "").split("\n", 2)
    try:
        header = msgspec.json.decode(lines[0], type=_Header)
        first = msgspec.json.decode(lines[1], type=_Event)
    except (msgspec.DecodeError, UnicodeEncodeError, IndexError):
        return Times()
    return Times(unit=header.clock.unit, first=first.at)


def times_of_file(path: Path) -> Times:
    """The clock of the history in a file."""
    try:
        with path.open("rb") as stream:
            start = b"".join(stream.readline(LONGEST_LINE) for _ in range(2))
    except OSError:
        return Times()
    return times_of(start.decode("utf-8", "replace"))
