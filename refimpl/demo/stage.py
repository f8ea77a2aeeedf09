"""What the acts of the demonstration share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from refimpl.demo.crew import Crew, Worker
from refimpl.demo.results import Check
from refimpl.demo.source import Source
from refimpl.demo.tasks import Told
from refimpl.warehouse import Warehouse

HERE: Final = "demo"
"""How this very process is called."""


def counted(number: int, what: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


class Display(Protocol):
    """Whoever shows what happens while it happens."""

    def chapter(self, title: str) -> None: ...
    def line(self, text: str) -> None: ...
    def check(self, check: Check) -> None: ...
    def status(self, text: str) -> None:
        """One line that replaces the one before."""
        ...


@dataclass(slots=True, kw_only=True)
class Stage:
    crew: Crew
    warehouse: Warehouse
    source: Source
    table: str
    """The name of the table that everything is about."""
    display: Display
    checks: list[Check] = field(default_factory=list)
    proposers: dict[str, str] = field(default_factory=dict)
    """Who made an attempt, by attempt id, as the processes told it."""

    def check(self, name: str, detail: str, *, ok: bool, **facts: Any) -> None:
        """Record a claim and show it. The demonstration goes on whatever comes out."""
        check = Check(name=name, ok=ok, detail=detail, facts=facts)
        self.checks.append(check)
        self.display.check(check)

    def hear(self, worker: Worker, told: Told) -> None:
        """Remember who proposed what."""
        if told.what == "proposing":
            self.proposers[told.facts["attempt"]] = worker.name

    def propose_here(self, attempt: str | None) -> None:
        """An attempt of this very process."""
        if attempt is not None:
            self.proposers[attempt] = HERE
