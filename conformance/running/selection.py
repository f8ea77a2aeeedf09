"""What the user asked for instead of everything."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cache
from typing import Final, TypeVar

from conformance.checks.registry import all_checks
from conformance.requirements.catalogue import load
from conformance.results import Layer
from conformance.running.errors import UnusableError
from conformance.scenario.check import Check, Family, Variant

_Member = TypeVar("_Member", Family, Layer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Each field: one of these; none: all. The fields together: all of them."""

    check: tuple[str, ...] = ()
    """Names, or patterns with `*`, of checks (`the-check`, `family/the-check`) or cases (`family/the-check[d/w]`)."""
    requirement: tuple[str, ...] = ()
    family: tuple[Family, ...] = ()
    layer: tuple[Layer, ...] = ()

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) for field in fields(self))

    def __str__(self) -> str:
        """As on the command line."""
        return shlex.join(
            word for field in fields(self) for value in getattr(self, field.name) for word in (f"--{field.name}", value)
        )

    def takes(self, check: Check, case: str, requirements: Iterable[str]) -> bool:
        """Whether a case is selected. `requirements`: those that it is evidence for."""
        return (
            (not self.check or any(named(pattern, check, case) for pattern in self.check))
            and (not self.requirement or not set(self.requirement).isdisjoint(requirements))
            and (not self.family or check.family in self.family)
            and (not self.layer or check.layer in self.layer)
        )


EVERYTHING: Final = Selection()


def named(pattern: str, check: Check, case: str) -> bool:
    """Whether the pattern names the check, or this case of it."""

    names = (check.name, f"{check.family}/{check.name}", case, case.removeprefix(f"{check.family}/"))
    return any(matches(pattern, name) for name in names)


def matches(pattern: str, name: str) -> bool:
    """`*` stands for any characters. Nothing else is special: names of cases hold brackets."""
    return _expression(pattern).fullmatch(name) is not None


def select(
    *,
    check: Iterable[str] = (),
    requirement: Iterable[str] = (),
    family: Iterable[str] = (),
    layer: Iterable[str] = (),
) -> Selection:
    """From what was typed. Raises `UnusableError` for what cannot select anything, with what may have been meant."""
    checks = all_checks()
    for pattern in check:
        if not any(
            named(pattern, each, name)
            for each in checks
            for name in [each.case(Variant(feature=d, commit_mode=w)) for d in each.features for w in each.commit_modes]
        ):
            raise UnusableError(_unknown("check", pattern, [each.name for each in checks]))
    return Selection(
        check=tuple(check),
        requirement=requirements_named(requirement),
        family=tuple(_member("family", Family, value) for value in family),
        layer=tuple(_member("layer", Layer, value) for value in layer),
    )


def requirements_named(patterns: Iterable[str]) -> tuple[str, ...]:
    """The ids that the patterns name. Raises `UnusableError` for a pattern that names none."""
    known = [each.id for each in load().requirements]
    found: list[str] = []
    for pattern in patterns:
        named_ = [name for name in known if matches(pattern, name)]
        if not named_:
            raise UnusableError(_unknown("requirement", pattern, known))
        found += named_
    return tuple(found)


def _member(what: str, kind: type[_Member], value: str) -> _Member:
    try:
        return kind(value)
    except ValueError:
        raise UnusableError(_unknown(what, value, list(kind))) from None


def _unknown(what: str, value: str, known: list[str]) -> str:
    near = difflib.get_close_matches(value, known, n=3, cutoff=0.5)
    plural = f"{what.removesuffix('y')}ies" if what.endswith("y") else f"{what}s"
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {len(known)}"
    return f"no {what} is called {value!r}; {hint} (all: delta-commit-conformance list {plural})"


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in pattern.split("*")), re.DOTALL)
