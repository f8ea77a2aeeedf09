"""The plan of a run: its cases, in a stable order, and the size of each (`--profile`).

A profile fixes counts instead of times, so that the same seed does the same on every machine. There is also a time
budget: a run that exceeds it is incomplete. The programs of an engine have no fixed count: their families share a part
of the budget.
"""

import difflib
import hashlib
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Final, NamedTuple, TypeVar

from conformance.checks import all_checks
from conformance.interface.messages import Identity
from conformance.interface.results import PROGRAMS, CaseResult, Layer, UnusableError, Verdict, matches
from conformance.requirements.catalogue import load
from conformance.scenario.check import Check, Family, Variant

_Member = TypeVar("_Member", Family, Layer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The selected cases. A case must match at least one value of each field that is not empty."""

    check: tuple[str, ...] = ()
    """Names, or patterns with `*`, of checks (`the-check`, `family/the-check`) or cases
    (`family/the-check[FEATURE/MODE]`)."""
    requirement: tuple[str, ...] = ()
    family: tuple[Family, ...] = ()
    layer: tuple[Layer, ...] = ()

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) for field in fields(self))

    def __str__(self) -> str:
        """The options of the command line."""
        return shlex.join(
            word for field in fields(self) for value in getattr(self, field.name) for word in (f"--{field.name}", value)
        )

    def takes(self, check: Check, case: str, requirements: Iterable[str]) -> bool:
        """Whether a case is selected. `requirements`: the requirements that the case is evidence for."""
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


def select(
    *, check: Iterable[str] = (), requirement: Iterable[str] = (), family: Iterable[str] = (), layer: Iterable[str] = ()
) -> Selection:
    """Parse the options. Raises `UnusableError`, with suggestions, for a word that selects nothing."""
    checks = all_checks()
    for pattern in check:
        if not any(
            named(pattern, check, name)
            for check in checks
            for name in [
                check.case(Variant(feature=d, commit_mode=w)) for d in check.features for w in check.commit_modes
            ]
        ):
            raise UnusableError(_unknown("check", pattern, [check.name for check in checks]))
    return Selection(
        check=tuple(check),
        requirement=requirements_named(requirement),
        family=tuple(_member("family", Family, value) for value in family),
        layer=tuple(_member("layer", Layer, value) for value in layer),
    )


def requirements_named(patterns: Iterable[str]) -> tuple[str, ...]:
    """The ids that match the patterns. Raises `UnusableError` for a pattern without a match."""
    known = [requirement.id for requirement in load().requirements]
    selected: list[str] = []
    for pattern in patterns:
        named_ = [name for name in known if matches(pattern, name)]
        if not named_:
            raise UnusableError(_unknown("requirement", pattern, known))
        selected += named_
    return tuple(selected)


def _member(what: str, kind: type[_Member], value: str) -> _Member:
    try:
        return kind(value)
    except ValueError:
        raise UnusableError(_unknown(what, value, list(kind))) from None


def _unknown(what: str, value: str, known: list[str]) -> str:
    if what == "layer":
        return f"unknown layer {value!r}; expected one of {', '.join(known)}"
    near = difflib.get_close_matches(value, known, n=3, cutoff=0.5)
    command = {"requirement": "requirements", "family": "list families"}.get(what, f"list {what}s")
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"unknown {what} {value!r}{hint} (all {len(known)}: delta-commit-conformance {command})"


LAYERS: Final = (Layer.EXAMPLE, Layer.MODEL, Layer.PROCESSES)
"""The layers, the cheapest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCase:
    """One check on one variant: a task for a worker."""

    name: str
    check: Check
    variant: Variant
    seed: int
    count: int
    """The number of generated scenarios or rounds; 1 for an example."""
    requirements: tuple[str, ...]
    """The requirements of the check that bind the subject on this variant."""

    def without_verdict(self, verdict: Verdict, reason: str) -> CaseResult:
        return self.check.result(self.variant, self.requirements, verdict, reason)


class _Row(NamedTuple):
    """One case in the table of all cases, or a check that cannot run on the subject."""

    check: Check
    name: str
    requirements: tuple[str, ...]
    case: PlannedCase | CaseResult


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The table of all cases of one run, or the selected part of it."""

    rows: tuple[_Row, ...]

    def selected(self, selection: Selection) -> "Plan":
        return Plan(rows=tuple(row for row in self.rows if selection.takes(row.check, row.name, row.requirements)))

    @cached_property
    def cases(self) -> tuple[PlannedCase, ...]:
        return tuple(row.case for row in self.rows if isinstance(row.case, PlannedCase))

    @cached_property
    def skipped(self) -> tuple[CaseResult, ...]:
        """Checks for this side that cannot run on the subject, with the reason."""
        return tuple(row.case for row in self.rows if isinstance(row.case, CaseResult))

    def in_turn(self) -> list[PlannedCase]:
        """The cases in the order in which they run: first one variant of each check, then another variant of each. A
        check usually fails on all variants or on none, so the first failure comes early."""
        by_check: dict[str, list[PlannedCase]] = {}
        for case in self.cases:
            by_check.setdefault(case.check.name, []).append(case)
        turns: dict[str, int] = {}
        for number, cases in enumerate(by_check.values()):
            first = number % len(cases)
            turns.update({case.name: turn for turn, case in enumerate(cases[first:] + cases[:first])})
        return sorted(self.cases, key=lambda case: (LAYERS.index(case.check.layer), turns[case.name]))

    @property
    def order(self) -> tuple[str, ...]:
        """The names of all cases, in the order of the reports."""
        return tuple(case.name for case in self.cases) + tuple(case.case for case in self.skipped)


def plan(identity: Identity, profile: "RunProfile", seed: int) -> Plan:
    """All cases that apply to the subject. The plan may be empty."""
    checks = [check for check in all_checks() if check.side == identity.side and profile.counts[check.layer]]
    checks.sort(key=lambda check: LAYERS.index(check.layer))
    return Plan(rows=tuple(row for check in checks for row in _rows(check, identity, profile, seed)))


def _rows(check: Check, identity: Identity, profile: "RunProfile", seed: int) -> Iterator[_Row]:
    variants = check.variants(identity)
    if not variants:
        skipped = check.result(None, (), Verdict.SKIPPED, why_not(check, identity))
        yield _Row(check, skipped.case, check.requirements, skipped)
    for variant in variants:
        case = planned(check, variant, identity, profile, seed)
        if case.requirements or not check.requirements:
            yield _Row(check, case.name, case.requirements, case)
        else:
            reason = "none of its requirements binds the subject here"
            yield _Row(check, case.name, (), case.without_verdict(Verdict.SKIPPED, reason))


def planned(check: Check, variant: Variant, identity: Identity, profile: "RunProfile", seed: int) -> PlannedCase:
    """The case of that check on that variant."""
    name = check.case(variant)
    return PlannedCase(
        name=name,
        check=check,
        variant=variant,
        seed=case_seed(seed, name),
        count=profile.counts[check.layer],
        requirements=check.held(identity, variant),
    )


def case_seed(seed: int, case: str) -> int:
    """The seed of a case. It has 48 bits, so that every JSON parser reads it exactly."""
    return int.from_bytes(hashlib.blake2b(f"{seed}\n{case}".encode(), digest_size=6).digest())


def why_not(check: Check, identity: Identity) -> str:
    """Why a check has no case for the subject; empty: it has cases."""
    missing = sorted(profile.value for profile in check.needs if profile.value not in identity.profiles)
    if missing:
        return f"needs {' and '.join(missing)}, which the subject does not declare"
    wanted = ", ".join(f"{feature}/{commit_mode}" for feature in check.features for commit_mode in check.commit_modes)
    return f"the subject offers none of {wanted}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProfile:
    """The size of a run: a choice of `--profile`, each with all examples, or `--programs N`, which runs no examples."""

    name: str
    about: str
    counts: Mapping[Layer, int]
    """For each layer, the number of generated scenarios or rounds of each case; 0 omits the layer. An
    example counts as 1."""
    budget_seconds: float
    """The default of --budget, in seconds of wall-clock time."""


PROFILES: Final[Mapping[str, RunProfile]] = {
    profile.name: profile
    for profile in (
        RunProfile(
            name="quick",
            about="for every change of the subject; about a minute",
            counts={Layer.EXAMPLE: 1, Layer.MODEL: 10, Layer.PROCESSES: 1},
            budget_seconds=300,
        ),
        RunProfile(
            name="standard",
            about="for a release, or every night",
            counts={Layer.EXAMPLE: 1, Layer.MODEL: 100, Layer.PROCESSES: 5},
            budget_seconds=3_600,
        ),
        RunProfile(
            name="thorough",
            about="for a change of the protocol; hours",
            counts={Layer.EXAMPLE: 1, Layer.MODEL: 1_000, Layer.PROCESSES: 25},
            budget_seconds=8 * 3_600,
        ),
    )
}


def profile_of_programs(count: int) -> RunProfile:
    """The profile of `--programs COUNT`. Raises `UnusableError` if it is below 1."""
    if count < 1:
        raise UnusableError(f"invalid number of programs {count}; expected at least 1")
    counts = {layer: count if layer is Layer.MODEL else 0 for layer in LAYERS}
    return RunProfile(name=f"{PROGRAMS}{count}", about="generated programs alone", counts=counts, budget_seconds=3_600)


def profile_named(name: str) -> RunProfile:
    """One of `PROFILES`. Raises `UnusableError`."""
    try:
        return PROFILES[name]
    except KeyError:
        raise UnusableError(f"unknown --profile {name!r}; expected one of {', '.join(PROFILES)}") from None


def profile_of_result(name: str) -> RunProfile:
    """The profile with the name that results and findings record. Raises `UnusableError`."""
    number = name.removeprefix(PROGRAMS)
    return profile_of_programs(int(number)) if number != name and number.isdecimal() else profile_named(name)


def chosen_profile(profile: str | None, programs: int | None) -> RunProfile:
    """The profile that the options ask for; `quick` without any. Raises `UnusableError`."""
    if programs is None:
        return profile_named(profile or "quick")
    if profile is not None:
        raise UnusableError("--programs and --profile exclude each other; pass one")
    return profile_of_programs(programs)


def in_units(seconds: float) -> str:
    """A duration as an option has it: `90s`, `5m`, `8h`."""
    for unit, length in (("h", 3600), ("m", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds // length:g}{unit}"
    return f"{seconds:g}s"


_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str, option: str) -> float:
    """A duration in seconds from `90`, `90s`, `1.5m` or `2h`. Raises `UnusableError`, which names the option."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not (value := float(match[1]) * _SECONDS[match[2]]):
        raise UnusableError(f"invalid {option} {text!r}; expected a time above zero, such as 60s, 500ms, 5m or 2h")
    return value
