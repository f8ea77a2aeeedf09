"""Known-bad owners, clients and maintenance jobs, each one small edit away from a model; and good ones that use the
freedoms of the documents. The kit's tests require that its checks fail every bad one and no good one.

    @mutant("PROFILE-RETRY-01", bugs=("FB09",))
    class ReplayIsAConflict(ModelOwner):
        "Answers the replay of a landed attempt as a conflict."

        def _replay(self, table, request): return None

Its id is the class's name with hyphens: `replay-is-a-conflict`. `good` registers a subject that no check may accuse.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, TypeVar

from conformance.requirements.catalogue import load

T = TypeVar("T", bound=type)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A subject whose verdict is known."""

    id: str
    title: str
    """What the subject does wrong, or which freedom it uses."""
    make: type
    side: str
    """`owner` or `client`: how the kit drives it."""
    violates: tuple[str, ...]
    """The violation that detects the mutant must name one of these requirements; empty for a good subject."""
    bugs: tuple[str, ...] = ()
    """The rows of the list of field bugs that have its shape."""
    freedoms: tuple[str, ...] = ()
    """The freedoms that a good subject uses."""


_mutants: dict[str, Mutant] = {}


def mutant(*violates: str, bugs: tuple[str, ...] = (), side: str = "owner") -> Callable[[T], T]:
    """Register a known-bad subject. Raises `ValueError` if it has no requirement, or one that does not exist."""
    if not violates:
        raise ValueError("a mutant violates at least one requirement")
    return _register(side, violates=violates, bugs=bugs)


def good(*freedoms: str, side: str = "owner") -> Callable[[T], T]:
    """Register a subject that violates nothing, and uses these freedoms."""
    return _register(side, freedoms=freedoms)


def _register(
    side: str, *, violates: tuple[str, ...] = (), bugs: tuple[str, ...] = (), freedoms: tuple[str, ...] = ()
) -> Callable[[T], T]:
    known = {entry.id for entry in (*load().requirements, *load().freedoms)}
    unknown = [each for each in (*violates, *freedoms) if each not in known]
    if unknown:
        raise ValueError(f"the catalogue has no {', '.join(unknown)}")

    def register(made: T) -> T:
        identifier = re.sub(r"(?<!^)(?=[A-Z0-9])", "-", made.__name__).lower()
        if identifier in _mutants and _mutants[identifier].make.__module__ != made.__module__:
            raise ValueError(f"two mutants are called {identifier!r}")
        title = " ".join((made.__doc__ or "").split())
        _mutants[identifier] = Mutant(
            id=identifier, title=title, make=made, side=side, violates=violates, bugs=bugs, freedoms=freedoms
        )
        return made

    return register


@cache
def all_mutants() -> dict[str, Mutant]:
    """Every mutant and every good subject, by id."""
    for module in sorted(module.name for module in pkgutil.iter_modules(__path__, f"{__name__}.")):
        importlib.import_module(module)
    return dict(sorted(_mutants.items()))


def memory(make: Callable[[], Any]) -> Any:
    """State of each instance, initially empty: `seen: set[str] = memory(set)` in the body of a class."""
    return cached_property(lambda _: make())


def handler(identifier: str, *arguments: Any) -> Any:
    """A new handler for the mutant of this id. Raises `KeyError` for an unknown id."""
    return all_mutants()[identifier].make(*arguments)
