"""What a run found: values that every report is made from, and that are written as JSON.

Nothing here depends on the time or on the machine, so that the same seed and the same subject give the same bytes:
`RunResult.environment` holds what does, and is left out of comparisons.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import IntEnum, StrEnum
from functools import cache
from typing import Final

import msgspec

from conformance.requirements.catalogue import BINDING, Level


class ExitCode(IntEnum):
    """The exit code of a run. If several apply: 2 before 1 before 3 before 0."""

    CONFORMANT = 0
    """Every case that ran was held, or is a known failure, and every declared profile was judged."""
    VIOLATION = 1
    """A requirement is violated, or a known failure is stale. What was found counts even if the run is incomplete."""
    USAGE = 2
    """Usage error, a subject that does not implement the interface, or an empty selection: no verdict is possible."""
    INCOMPLETE = 3
    """Nothing is violated so far, but not everything was judged: the budget expired, the run was interrupted, a
    worker died, or no case of a declared profile came to a verdict."""


class UnusableError(Exception):
    """No run is possible: the call is wrong, or the subject cannot be asked. `problem` says what and what to do. If it
    is the answer to the first `hello` that is wrong: `came` is that answer, and `says` what the interface asks for.
    `exit_code`: incomplete if time ran out before the kit knew whether a run is possible."""

    def __init__(self, problem: str, came: str = "", says: str = "", *, exit_code: ExitCode = ExitCode.USAGE) -> None:
        super().__init__(problem)
        self.problem = problem
        self.came = came
        self.says = says
        self.exit_code = exit_code


RESULT_SCHEMA_VERSION: Final = 1
STRAYS: Final = ("PROFILE-CLIENT-03",)
"""What files in other folders than the table's are advised against by."""


class _Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    pass


class Layer(StrEnum):
    """How the operations of a case are made."""

    EXAMPLE = "example"
    """A fixed scenario, with its positive twin."""
    MODEL = "model"
    """Generated sequences of operations against the pure model. Deterministic."""
    PROCESSES = "processes"
    """Real clients at the same time. Not deterministic."""
    SIMULATION = "simulation"
    """Every interleaving of effects, every crash. Deterministic."""


class Verdict(StrEnum):
    """The verdict on a case."""

    PASSED = "passed"
    FAILED = "failed"
    """A requirement is violated."""
    INCONCLUSIVE = "inconclusive"
    """The subject did not get far enough to be judged: it refused what it may refuse, or did not answer."""
    SKIPPED = "skipped"
    """The subject does not promise what the case is about."""
    NOT_RUN = "not-run"
    """The budget expired, or the run was interrupted."""


def headline(expected: str, observed: str) -> str:
    """The message of a violation: what went wrong, then what should have happened."""
    return f"{observed[:1].upper()}{observed[1:]}. Expected: {expected}."


class Violation(_Value, frozen=True, kw_only=True):
    """One way in which a case shows requirements to be violated."""

    requirements: tuple[str, ...]
    """Ids; the first is the one that names it."""
    message: str
    """The contradiction, with the numbers, for a reader who knows Delta but not the kit."""
    expected: str = ""
    """What the documents ask for at this point."""
    observed: str = ""
    """What the subject did instead."""
    operations: tuple[int, ...] = ()
    """The numbers, in the history, of the operations that contradict each other, at most two, then related ones."""
    contradicting: int = 2
    """How many of `operations`, from the first on, contradict each other. Of a single one: it contradicts the final
    log, or what the documents ask for."""
    rule: str | None = None
    """The checker's rule, if a checker found it."""
    table: str | None = None
    version: int | None = None


def only_strays(violations: Sequence[Violation]) -> bool:
    """Whether these are files in other folders, and nothing else: they are looked for after all other steps."""
    return bool(violations) and all(each.requirements == STRAYS for each in violations)


class CaseResult(_Value, frozen=True, kw_only=True):
    """One check, on one table feature and one commit mode."""

    case: str
    """`<family>/<check>[<table feature>/<commit mode>]`: stable, in reports and lists of known failures."""
    check: str
    title: str
    """The check in words."""
    family: str
    layer: Layer
    feature: str
    commit_mode: str
    requirements: tuple[str, ...]
    """All that the check is evidence for, of this table feature and these profiles."""
    verdict: Verdict
    reason: str = ""
    """Why it was skipped, or is inconclusive; also where only files in other folders were found."""
    violations: tuple[Violation, ...] = ()
    operations: int = 0
    """Requests until the end of the case, or until the violation showed."""
    history: str | None = None
    """Of a case that failed, shrunk as far as the layer can: JSON Lines."""
    whole_history: str | None = None
    """Of concurrent processes, which no replay repeats: the same before it was shrunk."""
    reproduction: str | None = None
    """Of a generated case that failed: what `replay` needs beside the name, as JSON."""

    @property
    def held(self) -> bool:
        """Whether all its steps went well. Files in other folders, which a client makes in all cases or in none, are
        advice on their own."""
        return self.verdict is Verdict.PASSED or (not self.reason and only_strays(self.violations))


class RequirementVerdict(StrEnum):
    """What the run says of one requirement."""

    HELD = "held"
    VIOLATED = "violated"
    WARNED = "warned"
    """A SHOULD is violated."""
    INCONCLUSIVE = "inconclusive"
    NOT_APPLICABLE = "not-applicable"
    """Another side's, another table feature's, or of a profile that the subject does not declare."""
    NOT_CHECKED = "not-checked"
    """No case of this run is evidence: not in this profile, or untestable."""


def fails(violation: Violation, levels: Mapping[str, Level], *, strict: bool = False) -> bool:
    """Whether it makes a subject not conformant: it violates a MUST or a promise, or with `strict` a SHOULD.
    `levels`: by requirement; an unknown level counts as MUST."""
    found = {levels.get(each, Level.MUST) for each in violation.requirements} or {Level.MUST}
    return not found.isdisjoint(BINDING) or (strict and Level.SHOULD in found)


class Link(_Value, frozen=True, kw_only=True):
    """A public address."""

    title: str
    url: str


class RequirementResult(_Value, frozen=True, kw_only=True):
    requirement: str
    level: Level
    section: str
    """Of the source; of a page of the kit, the anchor of the rule: `DELTA.md#overlap`."""
    source: str
    paraphrase: str
    rule: str = ""
    """The text of a rule of a page of the kit."""
    links: tuple[Link, ...] = ()
    """Public addresses where the source can be read."""
    verdict: RequirementVerdict
    cases: tuple[str, ...] = ()
    """Those that are evidence, failing ones first."""
    note: str = ""
    """Why it is not applicable, or cannot be tested."""


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in pattern.split("*")), re.DOTALL)


def matches(pattern: str, name: str) -> bool:
    """`*` stands for any characters. Nothing else is special: names of cases hold brackets."""
    return _expression(pattern).fullmatch(name) is not None


class KnownFailure(_Value, frozen=True, kw_only=True):
    """A known failure. One that passes, or matches nothing, fails the run."""

    case: str
    """A case's name, or a pattern with `*`."""
    reason: str
    requirement: str | None = None
    """Only violations of this requirement are known."""

    def covers(self, case: str, violation: Violation) -> bool:
        """Whether it is about this violation."""
        named = self.requirement is None or self.requirement in violation.requirements
        return named and matches(self.case, case)


class SubjectFacts(_Value, frozen=True, kw_only=True):
    """The subject, by its own answer to `hello`."""

    named: str
    """As on the command line."""
    name: str
    version: str
    side: str
    profiles: tuple[str, ...]
    commit_modes: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    promises: tuple[str, ...] = ()


class Cause(_Value, frozen=True, kw_only=True):
    """Cases that probably fail for one reason, as the reports group them."""

    headline: str
    """The defect, in words."""
    hints: tuple[str, ...] = ()
    """What its cases have in common."""
    requirements: tuple[str, ...]
    """Violated by its cases; the first names it best."""
    cases: tuple[str, ...]
    """The plainest first."""
    warning: bool = False
    """Whether only advice is not followed."""


class Environment(_Value, frozen=True, kw_only=True):
    """What differs from run to run."""

    started: str = ""
    """ISO 8601, UTC."""
    seconds: float = 0.0
    python: str = ""
    platform: str = ""
    first_failure_seconds: float | None = None


class RunResult(_Value, frozen=True, kw_only=True):
    """Everything about one run."""

    schema: int = RESULT_SCHEMA_VERSION
    kit_version: str
    interface_version: int
    subject: SubjectFacts
    profile: str
    """`quick`, `standard` or `thorough`."""
    seed: int
    selection: str = ""
    """The selected cases, if not all."""
    complete: bool
    """False: the budget expired, or the run was interrupted."""
    stopped: str = ""
    """Why it is not complete, or why the subject could not be tested any further."""
    strict: bool = False
    """Whether warnings fail the run."""
    cases: tuple[CaseResult, ...]
    requirements: tuple[RequirementResult, ...]
    known: tuple[KnownFailure, ...] = ()
    stale: tuple[KnownFailure, ...] = ()
    """Of those, the ones that passed or matched nothing."""
    causes: tuple[Cause, ...] = ()
    """What fails, by probable cause; written by the reports."""
    environment: Environment = Environment()
    exit_code: int
    """0 conformant, 1 violation or stale known failure, 2 usage, adapter or nothing selected, 3 incomplete."""
