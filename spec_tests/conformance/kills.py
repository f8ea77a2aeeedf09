"""Which cases of the kit find which of the kit's bad subjects, and for which requirement."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path
from typing import Final

from conformance.adapters.in_process import InProcess
from conformance.checks import all_checks
from conformance.interface.messages import Identity
from conformance.interface.results import CaseResult, Layer, Verdict
from conformance.interface.subject import AdapterError, Subject
from conformance.mutants import Mutant, all_mutants
from conformance.programs.cases import run_case
from conformance.running.plan import PROFILES, case_seed
from conformance.scenario.adversary import ClientHost
from conformance.scenario.check import Check, Variant
from conformance.scenario.scenario import Scenario, Stopped
from conformance.subjects.names import open_subject

DETERMINISTIC = (Layer.EXAMPLE, Layer.MODEL)
"""In the order in which they are tried."""
FILE: Final = Path(__file__).with_name("kills.json")
REMEMBERED: Final[dict[str, list[str]]] = json.loads(FILE.read_text("utf-8"))
"""For each mutant, the cases that found it in an earlier search. They are tried first; if they do not
find it, the search continues. `python -m spec_tests.conformance.mutation_score --remember` writes the file. A property
has the seed of the programs: `conflicts/any-transaction-against-any-winners[managedCommit/staged] seed 7`.
"""
FEW: Final = 6
"""The number of programs of a property with a seed. A search tries many seeds, and finds one that needs so few."""
SEEDS: Final = 60


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
    stale: bool = False
    """Whether cases are remembered for it, and none of them finds it any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    check: Check
    variant: Variant
    seed: int | None = None
    """Of a property: the seed of a few programs; None: that of a run, which has more of them."""

    def __str__(self) -> str:
        return self.check.case(self.variant) + ("" if self.seed is None else f" seed {self.seed}")


def opened(name: str) -> tuple[Subject, ClientHost]:
    """The subject of that name, and the host of the kit's owner, which a client under test calls."""
    host = ClientHost()
    return open_subject(name, owner=host.ask), host


@lru_cache(maxsize=4096)
def run(case: Case, name: str, *, count: int | None = None, shrink: bool = False) -> CaseResult:
    """Run the case once on a new subject of that name. Equal calls have equal results. Raises `AdapterError`."""
    subject, host = opened(name)
    standard = PROFILES["quick"].counts[case.check.layer] if case.seed is None else FEW
    with subject:
        return run_case(
            case.check, case.variant, subject, seed=case_seed(0, str(case)) if case.seed is None else case.seed,
            count=standard if count is None else count, host=host, shrink=shrink, most=1,
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


def remembered(mutant: str) -> list[Case]:
    """The cases that found this mutant in an earlier search."""
    return [case for text in REMEMBERED.get(mutant, ()) if (case := case_of(text)) is not None]


@cache
def case_of(text: str) -> Case | None:
    """The case of that text; None if its check does not exist any more."""
    name, _, rest = text.partition("[")
    variant, _, seed = rest.partition("]")
    feature, _, commit_mode = variant.partition("/")
    return next(
        (
            Case(
                check=check, variant=Variant(feature=feature, commit_mode=commit_mode),
                seed=int(seed.removeprefix(" seed ")) if seed else None,
            )
            for check in all_checks()
            if f"{check.family}/{check.name}" == name
        ),
        None,
    )  # fmt: skip


def seeded(everything: Iterable[Case]) -> Iterator[Case]:
    """The properties, with a few programs of one seed after the other."""
    properties = [case for case in everything if case.check.layer is Layer.MODEL]
    for seed in range(SEEDS):
        yield from (replace(case, seed=seed) for case in properties)


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
    """The mutants that examples find, and those that a remembered program finds."""
    mutants = [mutant for mutant in all_mutants().values() if mutant.violates]
    return [mutant for mutant in mutants if not mutant.found_by or mutant.id in REMEMBERED]


def good() -> list[Mutant]:
    return [mutant for mutant in all_mutants().values() if not mutant.violates]


def names(result: CaseResult, requirements: Iterable[str]) -> str | None:
    """The first of the requirements that a violation of the result is about; None if no violation is about one. An
    example's violation is about its first requirement, a program's about all that its steps put at stake."""
    wanted = set(requirements)
    about = 1 if result.layer is Layer.EXAMPLE else None
    named = [name for violation in result.violations for name in violation.requirements[:about]]
    return next((name for name in named if name in wanted), None)


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
        for case in chain(remembered(mutant.id), () if mutant.found_by else everything, seeded(everything)):
            result = run(case, name)
            requirement = names(result, mutant.violates)
            if requirement is None:
                wrong += [f"{case}: {violation.requirements[0]}" for violation in result.violations]
            elif works(name, everything):
                return Kill(
                    mutant=mutant.id, fate=Fate.KILLED, case=str(case), requirement=requirement,
                    layer=case.check.layer.value, operations=result.operations,
                    stale=mutant.id in REMEMBERED and case not in remembered(mutant.id),
                )  # fmt: skip
            else:
                break
        fate = Fate.BROKEN if not works(name, everything) else Fate.WRONGLY if wrong else Fate.SURVIVED
        return Kill(mutant=mutant.id, fate=fate, note="; ".join(dict.fromkeys(wrong)))
    except AdapterError as error:
        return Kill(mutant=mutant.id, fate=Fate.BROKEN, note=error.problem)


def works(name: str, mine: list[Case]) -> bool:
    """Whether the subject commits, or passes one of its cases. The last examples are tried first, because they are
    short, and rarely about its fault.
    """
    examples = [case for case in mine if case.check.layer is Layer.EXAMPLE]
    return commits(name) or any(run(case, name).verdict is Verdict.PASSED for case in reversed([*mine, *examples]))


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
    """The remembered cases of the same checks first."""
    known, trials = list[Trial](), list[Trial]()
    for mutant, mine in plans:
        checks = {case.check for case in mine}
        known += [(mutant, case) for case in remembered(mutant.id) if case.check in checks]
        trials += [(mutant, case) for case in mine]
    return known + trials


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
