"""Which cases of the kit find which of the kit's bad subjects, and for which requirement."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

from conformance.adapters.in_process import InProcess
from conformance.checks import all_checks
from conformance.interface.messages import Identity
from conformance.interface.subject import AdapterError, Subject
from conformance.mutants import Mutant, all_mutants
from conformance.programs.cases import run_case
from conformance.results import CaseResult, Layer, Verdict
from conformance.running.plan import PROFILES, case_seed
from conformance.scenario.adversary import ClientHost
from conformance.scenario.check import Check, Variant
from conformance.scenario.scenario import Scenario, Stopped
from conformance.subjects.names import open_subject

DETERMINISTIC = (Layer.EXAMPLE, Layer.MODEL)
"""In the order in which they are tried."""
THOROUGH: Final = ("committing", "lifecycle", "publishing", "content", "interface")
"""Modules whose mutants are found for every requirement that they violate."""
FILE: Final = Path(__file__).with_name("kills.json")
REMEMBERED: Final[dict[str, list[str]]] = json.loads(FILE.read_text("utf-8"))
"""For each mutant and bad outsider, the cases that found it in an earlier search. They are tried first; if they do not
find it, the search continues. `python -m spec_tests.conformance.mutation_score --remember` writes the file.
"""


class Fate(StrEnum):
    """The result of the search for a case that finds a bad subject."""

    KILLED = "killed"
    SURVIVED = "survived"
    WRONGLY = "killed only by requirements that it does not violate"
    BROKEN = "broken: it does nothing, right or wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    mutant: str
    fate: Fate
    case: str = ""
    requirement: str = ""
    """The requirement whose violation was reported."""
    layer: str = ""
    operations: int = 0
    """The number of operations until the violation."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    check: Check
    variant: Variant

    def __str__(self) -> str:
        return self.check.case(self.variant)


def opened(name: str) -> tuple[Subject, ClientHost]:
    """The subject of that name, and the host of the kit's owner, which a client under test calls."""
    host = ClientHost()
    return open_subject(name, owner=host.ask), host


@lru_cache(maxsize=4096)
def run(case: Case, name: str, *, count: int | None = None, shrink: bool = False) -> CaseResult:
    """Run the case once on a new subject of that name. Equal calls have equal results. Raises `AdapterError`."""
    subject, host = opened(name)
    with subject:
        return run_case(
            case.check, case.variant, subject, seed=case_seed(0, str(case)),
            count=PROFILES["quick"].counts[case.check.layer] if count is None else count, host=host, shrink=shrink,
        )  # fmt: skip


def cases(identity: Identity, requirements: Iterable[str] = ()) -> Iterator[Case]:
    """All cases of the deterministic layers for a subject. Cases about one of the requirements come first; of these,
    the fast ones; of these, those about few other requirements.
    """
    wanted = set(requirements)

    def order(case: tuple[Case, frozenset[str]]) -> tuple[bool, int, bool, int]:
        check, held = case[0].check, case[1]
        return (wanted.isdisjoint(held), DETERMINISTIC.index(check.layer), check.requirements[0] not in wanted,
                len(check.requirements))  # fmt: skip

    yield from (case for case, _ in sorted(_cases(identity), key=order))


def every_case(identity: Identity) -> list[Case]:
    """The cases of all layers for a subject."""
    return [
        Case(check=check, variant=variant)
        for check in all_checks()
        if check.side == identity.side
        for variant in check.variants(identity)
    ]


def about(requirement: str, identity: Identity) -> list[Case]:
    """The cases that check the requirement."""
    evidence = {case for case, held in _cases(identity) if requirement in held}
    return [case for case in cases(identity, [requirement]) if case in evidence]


def is_remembered(subject: str, case: Case) -> bool:
    """Whether the case found this mutant, or this outsider, in an earlier search."""
    return str(case) in REMEMBERED.get(subject, ())


def failed_case(name: str) -> Case | None:
    """A case that the subject of that name fails; None if there is no such case."""
    everything = sorted(cases(identity(name)), key=lambda case: not is_remembered(name, case))
    return next((case for case in everything if run(case, name).verdict is Verdict.FAILED), None)


_KNOWN: dict[object, list[tuple[Case, frozenset[str]]]] = {}


def _cases(identity: Identity) -> list[tuple[Case, frozenset[str]]]:
    """The cases for a subject, with the subject's requirements. Most mutants have the same ones as the model."""
    checks = all_checks()
    key = (repr(identity), checks, DETERMINISTIC)
    if key not in _KNOWN:
        _KNOWN[key] = [
            (Case(check=check, variant=variant), frozenset(check.held(identity, variant)))
            for check in checks
            if check.side == identity.side and check.layer in DETERMINISTIC
            for variant in check.variants(identity)
        ]
    return _KNOWN[key]


def identity_of(mutant: Mutant) -> Identity:
    """The identity that the mutant returns for `hello`. Raises any exception that `hello` raises."""
    subject, _ = opened(name_of(mutant))
    with subject:
        return subject.identity


def name_of(mutant: Mutant) -> str:
    """The subject's name on the command line."""
    return f"{'mutant' if mutant.violates else 'good'}:{mutant.id}"


def bad() -> list[Mutant]:
    """The mutants that examples find."""
    return [mutant for mutant in all_mutants().values() if mutant.violates and not mutant.found_by]


def good() -> list[Mutant]:
    return [mutant for mutant in all_mutants().values() if not mutant.violates]


def is_thorough(mutant: Mutant) -> bool:
    """Whether the mutant is found for every requirement that it violates, not just for one of them."""
    return mutant.make.__module__.rpartition(".")[2] in THOROUGH


def names(result: CaseResult, requirements: Iterable[str]) -> str | None:
    """The first of the requirements that a violation of the result is about; None if no violation is about one."""
    wanted = set(requirements)
    return next(
        (violation.requirements[0] for violation in result.violations if violation.requirements[0] in wanted), None
    )


def shows(result: CaseResult, requirement: str) -> bool:
    """Whether one of the violations is about the requirement."""
    return any(requirement in violation.requirements for violation in result.violations)


def kill(mutant: Mutant) -> Kill:
    """Run cases until one reports a violation of a requirement that the mutant violates. The mutant must also work at
    all: pass a case, or, for an owner, create a table and commit.
    """
    wrong: list[str] = []
    name = name_of(mutant)
    try:
        everything = list(cases(identity_of(mutant), mutant.violates))
        for case in sorted(everything, key=lambda case: not is_remembered(mutant.id, case)):
            result = run(case, name)
            requirement = names(result, mutant.violates)
            if requirement is None:
                wrong += [f"{case}: {violation.requirements[0]}" for violation in result.violations]
            elif works(name, everything):
                return Kill(
                    mutant=mutant.id, fate=Fate.KILLED, case=str(case), requirement=requirement,
                    layer=case.check.layer.value, operations=result.operations,
                )  # fmt: skip
            else:
                break
        fate = Fate.BROKEN if not works(name, everything) else Fate.WRONGLY if wrong else Fate.SURVIVED
        return Kill(mutant=mutant.id, fate=fate, note="; ".join(dict.fromkeys(wrong)))
    except AdapterError as error:
        return Kill(mutant=mutant.id, fate=Fate.BROKEN, note=error.problem)


def works(name: str, mine: list[Case]) -> bool:
    """Whether the subject commits, or passes one of its cases. The last cases are tried, because they are rarely about
    its fault.
    """
    return commits(name) or any(run(case, name).verdict is Verdict.PASSED for case in reversed(mine))


def commits(name: str) -> bool:
    """Whether the owner of that name creates a table and ratifies a commit."""
    subject, _ = opened(name)
    with subject:
        for feature, commit_modes in subject.identity.commit_modes.items() if subject.identity.side == "owner" else ():
            scenario = Scenario(
                subject, Variant(feature=feature, commit_mode=commit_modes[0]), name="does it work at all?"
            )
            try:
                scenario.land(scenario.create())
            except Stopped:
                continue
            return True
    return False


Trial = tuple[Mutant, Case]


def shown_by(requirement: str, mutants: Iterable[Mutant]) -> Trial | None:
    """One of the mutants, and a case that reports that it violates this requirement; None if there is no such case."""
    trials = _trials((mutant, about(requirement, identity(name_of(mutant)))) for mutant in mutants)
    return next((trial for trial in trials if shows(run(trial[1], name_of(trial[0])), requirement)), None)


def found_by(check: Check, mutants: Iterable[Mutant]) -> Trial | None:
    """One of the mutants, and a case of the check that reports a requirement that it violates; None if there is no such
    case.
    """
    trials = _trials(
        (mutant, [Case(check=check, variant=variant) for variant in check.variants(identity(name_of(mutant)))])
        for mutant in mutants
        if mutant.side == check.side
    )
    return next((trial for trial in trials if names(run(trial[1], name_of(trial[0])), trial[0].violates)), None)


def _trials(plans: Iterable[tuple[Mutant, list[Case]]]) -> list[Trial]:
    """The remembered cases first."""
    trials = [(mutant, case) for mutant, mine in plans for case in mine]
    return sorted(trials, key=lambda trial: not is_remembered(trial[0].id, trial[1]))


def meant_for(check: Check) -> list[Mutant]:
    """The mutants that the check may find: they violate one of its requirements. The likely ones come first."""
    guilty = [mutant for mutant in bad() if set(mutant.violates) & set(check.requirements)]
    return sorted(guilty, key=lambda mutant: min(check.requirements.index(r) for r in mutant.violates
                                                 if r in check.requirements))  # fmt: skip


@cache
def identity(name: str) -> Identity:
    """The identity of the subject of that name."""
    subject, _ = opened(name)
    with subject:
        assert isinstance(subject, InProcess)
        return subject.identity
