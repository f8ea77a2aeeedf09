"""A story, simulated or recorded: its steps with their sentences, and the state after each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

READERS: Final = "Readers see"
"""The heading of a view's `readers` if they read the table itself."""

Rows = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Happening:
    """One visible step: an effect, a request, an answer, or a fault."""

    lane: str
    client: str
    kind: str
    target: str
    """A path below the table's folder or the warehouse, or the request."""
    detail: str = ""
    """The answer, or the error that ended the client."""


@dataclass(frozen=True, slots=True)
class View:
    """The known state after a step. The story has the headings of its parts."""

    ledger: Rows
    """The owner's durable records, or the part that answers show."""
    log: tuple[tuple[str, bool, int], ...]
    """Names below `_delta_log`, whether a power cut would leave them whole, and a checksum of the content."""
    readers: tuple[tuple[str, str], ...]
    """The current observations of each reader."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step as people read it."""

    happening: Happening
    text: str
    rule: str | None
    """The id of a requirement."""
    view: View
    """The state after the step."""
    choices: tuple[str, ...] = ()
    """All choices up to the step."""
    decides: bool = False
    """Whether the outcome depends on the step: a decision, an answer, a fault or an end."""
    violates: bool = False
    """Whether a violation becomes visible here."""


class Forks(Protocol):
    """Runs a story again with other choices."""

    def options(self, choices: Sequence[str]) -> list[tuple[str, str]]:
        """The options after these choices, each with its meaning."""
        ...

    def follow(self, choices: Sequence[str], option: str) -> list[Step]:
        """The steps of `option` after these choices, and then of all remaining clients."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A story for the player."""

    name: str
    title: str
    about: str
    ends: str
    """The result at the end."""
    clients: tuple[str, ...]
    others: tuple[str, ...]
    """Further lanes."""
    steps: tuple[Step, ...]
    headings: tuple[str, str, str] = (READERS, "The owner's ledger", "_delta_log")
    """The headings of a view's parts: readers, ledger and log."""
    forks: Forks | None = None
    """None for a recording, which cannot be run again."""

    @property
    def lanes(self) -> tuple[str, ...]:
        return *self.clients, *self.others
