"""What the coordinator of a run and its workers say to each other: JSON, one message a line."""

from __future__ import annotations

import msgspec

from conformance import safe_text
from conformance.adapters.smoke_report import SmokeReport
from conformance.interface.messages import Identity
from conformance.results import CaseResult


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    pass


class Open(_Message, frozen=True, kw_only=True):
    """Open the subject. Answered by `Opened`."""

    subject: str
    timeout: float
    """Seconds that one answer may take."""
    directory: str
    """Of the worker's subject alone."""
    salt: str
    """Part of the names of tables, where several workers and runs share one subject; otherwise empty."""


class Smoke(_Message, frozen=True, kw_only=True):
    """Find out whether it speaks the interface. Answered by `Smoked`."""


class RunCase(_Message, frozen=True, kw_only=True):
    """Run a case. Answered by `Ran`."""

    check: str
    feature: str
    commit_mode: str
    seed: int
    count: int
    reproduction: str | None = None
    """Of a generated case that failed: run exactly that one again."""


Task = Open | Smoke | RunCase


class Opened(_Message, frozen=True, kw_only=True):
    identity: Identity


class Smoked(_Message, frozen=True, kw_only=True):
    report: SmokeReport


class Ran(_Message, frozen=True, kw_only=True):
    result: CaseResult


class Unusable(_Message, frozen=True, kw_only=True):
    """Instead of any other answer: the call is wrong, or the subject does not speak the interface."""

    problem: str
    came: str = ""
    says: str = ""


class Defect(_Message, frozen=True, kw_only=True):
    """Instead of any other answer: the kit itself failed."""

    problem: str
    where: str
    """The traceback."""


class Alive(_Message, frozen=True, kw_only=True):
    """Between a task and its answer, now and then: the subject has answered something since the last time."""


Report = Opened | Smoked | Ran | Unusable | Defect | Alive


def encode(message: Task | Report) -> bytes:
    """A line."""
    return safe_text.to_json(message) + b"\n"
