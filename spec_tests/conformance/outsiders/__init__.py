"""Subjects written from the documents alone: their author read the requirements and the interface, but not the kit's
checks and mutants. Their score is a second opinion on the kit, and is counted apart from that of `conformance.mutants`.

The subjects in `owners` and `clients` violate a passage of the documents; those in `legal` use freedoms. `boundaries`
has a second set of both kinds, written when the kit found all of the first set. Each can be run:
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
    """Document, section and paraphrase of the passage that a bad subject violates, or that permits a legal one."""
    advice: bool
    """Whether the passage is advice: a run warns about a violation, and fails with `--strict`."""
    unseen: str
    """Why no check can find this bad subject, if none can."""

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
