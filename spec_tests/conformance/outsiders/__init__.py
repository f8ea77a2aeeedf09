"""Subjects written from the documents alone: the requirements and the interface were read, the kit's checks and its own
mutants were not. Their score is a second opinion on the kit, counted apart from that of `conformance.mutants`.

`owners` and `clients` make mistakes that violate a passage of the documents, `legal` uses freedoms; `boundaries` has a
second round of both, written when the kit found all of the first. Each can be run:
`delta-commit-conformance run python:spec_tests.conformance.outsiders.owners:JanitorOffByOne`.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Final, Literal, NamedTuple, TypeVar

Kind = Literal["bad owner", "bad client", "legal owner", "legal client"]
T = TypeVar("T", bound=type)


class Outsider(NamedTuple):
    kind: Kind
    subject: type
    passage: str
    """Document, section and what it says, paraphrased: what a bad one violates, or what permits a legal one."""
    advice: bool
    """Whether the passage is advice: a run warns of it, and fails with `--strict`."""
    unseen: str
    """Of a bad one that no check can see: why."""

    @property
    def bad(self) -> bool:
        return self.kind.startswith("bad")

    @property
    def name(self) -> str:
        """The subject's name in the kit."""
        return f"python:{self.subject.__module__}:{self.subject.__name__}"


_OUTSIDERS: Final[list[Outsider]] = []


def all_outsiders() -> list[Outsider]:
    for module in ("owners", "clients", "legal", "boundaries"):
        import_module(f"{__name__}.{module}")
    return _OUTSIDERS


def outsider(kind: Kind, passage: str, *, advice: bool = False, unseen: str = "") -> Callable[[T], T]:
    """Record the class in the list."""

    def record(subject: T) -> T:
        _OUTSIDERS.append(Outsider(kind, subject, passage, advice, unseen))
        return subject

    return record
