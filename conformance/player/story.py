"""A story: its steps with their sentences, and what is known after each. It was run just now, or recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

READERS: Final = "Readers see"
"""The heading of a view's `readers`, where they look at the table itself."""

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
    """What was answered, or the error that ended the client."""


@dataclass(frozen=True, slots=True)
class View:
    """What is there, or known, after a step. The headings of its parts are the story's."""

    ledger: Rows
    """What the owner has durably recorded, or what answers show of it."""
    log: tuple[tuple[str, bool, int], ...]
    """Names below `_delta_log`, whether a power cut would leave them whole, and a checksum of the content."""
    readers: tuple[tuple[str, str], ...]
    """Who sees what now."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step as people read it."""

    happening: Happening
    text: str
    rule: str | None
    """The id of a requirement."""
    view: View
    """What is there after it."""
    choices: tuple[str, ...] = ()
    """What made it happen: all choices up to it."""
    decides: bool = False
    """Whether the outcome depends on it: a decision, an answer, a fault, an end."""
    violates: bool = False
    """Whether a violation becomes visible here."""


class Forks(Protocol):
    """Runs a story again with other choices."""

    def options(self, choices: Sequence[str]) -> list[tuple[str, str]]:
        """What may be chosen after these choices, and what that means."""
        ...

    def follow(self, choices: Sequence[str], option: str) -> list[Step]:
        """After these choices: the steps of `option`, then of all that is left to do."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What the player plays."""

    name: str
    title: str
    about: str
    ends: str
    """What is to be seen at the end."""
    clients: tuple[str, ...]
    others: tuple[str, ...]
    """Further lanes."""
    steps: tuple[Step, ...]
    headings: tuple[str, str, str] = (READERS, "The owner's ledger", "_delta_log")
    """Of the parts of a view: readers, ledger and log."""
    forks: Forks | None = None
    """None: it was recorded, and cannot be run again."""

    @property
    def lanes(self) -> tuple[str, ...]:
        return *self.clients, *self.others
