"""What the first requests to a subject showed, step by step, and the verdict on its adapter."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from conformance.adapters import wire
from conformance.interface import messages as m

PAGE: Final = "conformance/TEST_YOUR_OWNER.md"


class Outcome(StrEnum):
    """What became of a step."""

    OK = "ok"
    ADAPTER = "adapter"
    """The adapter is broken."""
    OWNER = "owner"
    """The adapter works, and what it tells is wrong."""
    SKIPPED = "skipped"
    """A step before it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing that was tried."""

    name: str
    outcome: Outcome
    asked: str = ""
    """The last request, as on the wire."""
    came: str = ""
    """Its answer, as on the wire."""
    says: str = ""
    """What the interface asks for, or why the step was skipped."""
    see: str = ""
    """Where the page says so."""

    def __str__(self) -> str:
        if not self.says:
            return f"{self.outcome:<8} {self.name}"
        facts = [f"asked: {self.asked}"] if self.asked else []
        facts += [f"came: {self.came}"] if self.came else []
        where = [f"see: {self.see}"] if self.see else []
        return "\n           ".join([f"{self.outcome:<8} {self.name}: {self.says}", *facts, *where])


@dataclass(frozen=True, slots=True, kw_only=True)
class SmokeReport:
    """All steps, in their order."""

    identity: m.Identity
    steps: tuple[Step, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing failed. There are always steps that have to succeed for that."""
        return not self.adapter and not self.owner and any(step.outcome is Outcome.OK for step in self.steps)

    @property
    def adapter(self) -> str:
        """Why no verdict is possible; or nothing."""
        return self._problems(Outcome.ADAPTER)

    @property
    def owner(self) -> str:
        """What the subject behind the adapter does wrong; or nothing."""
        return self._problems(Outcome.OWNER)

    def _problems(self, outcome: Outcome) -> str:
        return "\n".join(str(step) for step in self.steps if step.outcome is outcome)

    def __str__(self) -> str:
        who = f"{self.identity.name} {self.identity.version} ({self.identity.side})"
        if self.adapter:
            verdict = "the adapter is broken; repair it to get a verdict"
        elif self.owner:
            verdict = "the adapter works; the owner's answers are wrong"
        else:
            verdict = "the adapter works, and the owner's answers are correct"
        return "\n".join([f"{who}: {verdict}", *map(str, self.steps)])


def first_hello(came: str, says: str) -> Step:
    """The step that failed where the answer to the first `hello` means nothing, so that nothing else was asked."""
    asked = wire.shown(wire.encode(m.Hello()))
    return Step(name="hello", outcome=Outcome.ADAPTER, says=says, asked=asked, came=came, see=f"{PAGE}#hello")
