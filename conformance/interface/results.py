"""The result of a run: the values of every report, also written as JSON.

Only `RunResult.environment` depends on the time and the machine, and comparisons omit it: otherwise the same seed and
the same subject give the same bytes.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum, StrEnum
from functools import cache
from typing import Final

import msgspec

from conformance.requirements.catalogue import BINDING, Level
from conformance.requirements.catalogue import Link as Link


class ExitCode(IntEnum):
    """The exit code of a run. If several apply: 2 before 1 before 3 before 0."""

    CONFORMANT = 0
    """Every case that ran was held, or is a known failure, and every declared profile was judged."""
    VIOLATION = 1
    """A requirement is violated, or a known failure is stale, even if the run is incomplete."""
    USAGE = 2
    """Usage error, a subject that does not implement the interface, or an empty selection: no verdict is possible."""
    INCOMPLETE = 3
    """Nothing is violated so far, but not everything was judged: the budget expired, the run was interrupted, a
    worker died, or no case of a declared profile came to a verdict."""


class UnusableError(Exception):
    """No run is possible: the call is invalid, or the subject does not answer. `problem` says what is wrong and what to
    do. If the answer to the first `hello` is invalid, `received` is that answer, and `expected` what the interface
    requires. `exit_code` is that of an incomplete run if the time ran out before the kit knew whether a run is
    possible."""

    def __init__(
        self, problem: str, received: str = "", expected: str = "", *, exit_code: ExitCode = ExitCode.USAGE
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.received = received
        self.expected = expected
        self.exit_code = exit_code


RESULT_SCHEMA_VERSION: Final = 1
STRAYS: Final = ("PROFILE-CLIENT-03",)
"""The requirement (advice) against files outside the table's folder."""


class _Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    pass


class Layer(StrEnum):
    """The source of the operations of a case."""

    EXAMPLE = "example"
    """A fixed scenario, with its positive twin."""
    MODEL = "model"
    """Generated sequences of operations against the pure model. Deterministic."""
    PROCESSES = "processes"
    """Concurrent client processes. Not deterministic."""


class Verdict(StrEnum):
    """The verdict on a case."""

    PASSED = "passed"
    FAILED = "failed"
    """A requirement is violated."""
    INCONCLUSIVE = "inconclusive"
    """The subject did not reach the point of the check: it rejected what it may reject, or did not answer."""
    SKIPPED = "skipped"
    """The subject does not declare what the case needs."""
    NOT_RUN = "not-run"
    """The budget expired, or the run was interrupted."""


def headline(expected: str, observed: str) -> str:
    """The message of a violation: what went wrong, then what should have happened. An observation about "it" or
    "them" is about what `expected` names, and comes after it."""
    if observed.startswith(("it ", "they ")):
        return f"Expected: {expected}, but {observed}."
    return f"{observed[:1].upper()}{observed[1:]}. Expected: {expected}."


class Violation(_Value, frozen=True, kw_only=True):
    """One way in which a case shows requirements to be violated."""

    requirements: tuple[str, ...]
    """Requirement ids; the first one names the violation."""
    message: str
    """The contradiction, with the numbers, for a reader who knows Delta but not the kit."""
    expected: str = ""
    """What the documents require at this point."""
    observed: str = ""
    """What the subject did instead."""
    operations: tuple[int, ...] = ()
    """The numbers, in the history, of the operations that contradict each other (at most two), then of related ones."""
    contradicting: int = 2
    """How many of `operations`, from the first on, contradict each other. A single one contradicts the final log, or
    the documents."""
    rule: str | None = None
    """The checker's rule, if a checker found it."""
    table: str | None = None
    version: int | None = None
    program: int = 0
    """0: the case's own program, with the case's `history`, shows it; N: the Nth one of its `others`."""


PROGRAMS: Final = "programs:"
"""The beginning of `RunResult.profile` for a run with `--programs N`; N follows."""


def size_in_words(profile: str) -> str:
    """The size of a run, for a reader."""
    number = profile.removeprefix(PROGRAMS)
    if number != profile and number.isdecimal():
        return f"{counted(int(number), 'generated program')} per case"
    return f"profile {profile}"


def size_options(profile: str) -> list[str]:
    """The options of `run` for this size."""
    if profile.startswith(PROGRAMS):
        return ["--programs", profile.removeprefix(PROGRAMS)]
    return ["--profile", profile]


def listed(words: Iterable[str], limit: int) -> str:
    """The first few, and the number of further ones."""
    shown = list(words)
    more = f" and {len(shown) - limit} more" if len(shown) > limit else ""
    return ", ".join(shown[:limit]) + more


def counted(number: int, one: str, many: str = "") -> str:
    """`1 case`, `2 cases`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def only_strays(violations: Sequence[Violation]) -> bool:
    """Whether the only violations are files in other folders, which the kit checks after all other steps."""
    return bool(violations) and all(violation.requirements == STRAYS for violation in violations)


class OtherProgram(_Value, frozen=True, kw_only=True):
    """Another program of a generated case, which shows other violations. The fields are those of the case."""

    title: str
    operations: int
    history: str | None
    reproduction: str
    reason: str = ""


class CaseResult(_Value, frozen=True, kw_only=True):
    """One check, on one table feature and one commit mode."""

    case: str
    """`<family>/<check>[<table feature>/<commit mode>]`: stable, in reports and lists of known failures."""
    check: str
    title: str
    """The title of the check."""
    family: str
    layer: Layer
    feature: str
    commit_mode: str
    requirements: tuple[str, ...]
    """All requirements that the check tests for this table feature and these profiles."""
    verdict: Verdict
    reason: str = ""
    """Why the case was skipped or is inconclusive, or why a violation may not show again; also set if it found only
    files in other folders."""
    violations: tuple[Violation, ...] = ()
    operations: int = 0
    """The number of requests until the end of the case, or until the violation."""
    programs: int = 0
    """The number of generated programs that were run."""
    passed: int = 0
    """How many of them passed, except for advice, if the case failed and no violation ended it early."""
    doubtful: tuple[str, ...] = ()
    """The requirements that a violation which is not shown, or a step that was left out, concerns."""
    words: Mapping[str, int] = msgspec.field(default_factory=dict)
    """How often each kind of step was in them."""
    unwatched: str = ""
    """Why it is not known in which order files appeared in the log, for programs of an owner; empty if it is known."""
    history: str | None = None
    """The history of a failed case, shrunk as far as the layer permits: JSON Lines."""
    reproduction: str | None = None
    """The input of `replay` for a generated case that failed, in addition to the name, as JSON."""
    others: tuple[OtherProgram, ...] = ()
    """Of a generated case that failed: the programs that show violations of further requirements."""

    @property
    def held(self) -> bool:
        """Whether it is evidence for each of its requirements that it does not violate: all its steps succeeded, or
        most of its programs passed. The programs of a family are drawn from one alphabet, and the family goes on after
        a failure, so those that passed tested the other requirements. Files in other folders are separate advice,
        because a client creates them in all cases or in none."""
        strayed = not self.reason and only_strays(self.violations)
        return self.verdict is Verdict.PASSED or strayed or 2 * self.passed > self.programs

    def by_program(self) -> tuple["CaseResult", ...]:
        """The case as each of its failing programs shows it alone."""
        if not self.others:
            return (self,)
        own = (self, *(msgspec.structs.replace(self, **msgspec.structs.asdict(other)) for other in self.others))
        return tuple(
            msgspec.structs.replace(
                case, others=(), violations=tuple(shown for shown in self.violations if shown.program == number)
            )
            for number, case in enumerate(own)
        )


class RequirementVerdict(StrEnum):
    """The verdict of a run on one requirement."""

    HELD = "held"
    VIOLATED = "violated"
    WARNED = "warned"
    """A SHOULD is violated."""
    INCONCLUSIVE = "inconclusive"
    NOT_APPLICABLE = "not-applicable"
    """It belongs to the other side, another table feature, or a profile that the subject does not declare."""
    NOT_CHECKED = "not-checked"
    """No case of this run tests it: not in this profile, or untestable."""


def fails(violation: Violation, levels: Mapping[str, Level], *, strict: bool = False) -> bool:
    """Whether the violation makes a subject not conformant: of a MUST or a promise, or with `strict` of a SHOULD.
    `levels`: by requirement; an unknown level counts as MUST."""
    violated = {levels.get(requirement, Level.MUST) for requirement in violation.requirements} or {Level.MUST}
    return not violated.isdisjoint(BINDING) or (strict and Level.SHOULD in violated)


class RequirementResult(_Value, frozen=True, kw_only=True):
    requirement: str
    level: Level
    section: str
    """The section of the source or, in a page of the kit, the anchor of the rule: `DELTA.md#overlap`."""
    source: str
    paraphrase: str
    rule: str = ""
    """The text of the rule, if the source is a page of the kit."""
    links: tuple[Link, ...] = ()
    """Public addresses of the source."""
    verdict: RequirementVerdict
    cases: tuple[str, ...] = ()
    """The cases that test it, failing ones first."""
    note: str = ""
    """Why it is not applicable, or cannot be tested."""


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in pattern.split("*")), re.DOTALL)


def matches(pattern: str, name: str) -> bool:
    """Whether a name matches a pattern in which `*` stands for any characters. Brackets are literal, as in names of
    cases."""
    return _expression(pattern).fullmatch(name) is not None


class KnownFailure(_Value, frozen=True, kw_only=True):
    """A known failure. If it passes, and is not flaky, or matches no case, the run fails."""

    case: str
    """A case's name, or a pattern with `*`."""
    reason: str
    requirement: str | None = None
    """Only violations of this requirement are known."""
    flaky: bool = False
    """Whether the case may also pass."""

    def covers(self, case: str, violation: Violation) -> bool:
        """Whether the known failure includes this violation."""
        named = self.requirement is None or self.requirement in violation.requirements
        return named and matches(self.case, case)


class SubjectFacts(_Value, frozen=True, kw_only=True):
    """The subject, according to its answer to `hello`."""

    named: str
    """The subject's name on the command line."""
    name: str
    version: str
    side: str
    profiles: tuple[str, ...]
    commit_modes: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    promises: tuple[str, ...] = ()


class Cause(_Value, frozen=True, kw_only=True):
    """Cases that probably fail for one reason, which reports group together."""

    headline: str
    """The defect, in words."""
    hints: tuple[str, ...] = ()
    """What its cases have in common."""
    requirements: tuple[str, ...]
    """The requirements that its cases violate, the most specific one first."""
    cases: tuple[str, ...]
    """Its cases, the simplest one first."""
    warning: bool = False
    """Whether its cases violate only advice."""


class Environment(_Value, frozen=True, kw_only=True):
    """The facts that differ from run to run."""

    started: str = ""
    """ISO 8601, UTC."""
    seconds: float = 0.0
    python: str = ""
    platform: str = ""
    first_failure_seconds: float | None = None


class RunResult(_Value, frozen=True, kw_only=True, omit_defaults=False):
    """Everything about one run. Every field of it is written, `schema` among them."""

    schema: int = RESULT_SCHEMA_VERSION
    kit_version: str
    interface_version: int
    subject: SubjectFacts
    profile: str
    """`quick`, `standard` or `thorough`; `programs:N` for a run with `--programs N`."""
    seed: int
    selection: str = ""
    """The selected cases, if not all."""
    complete: bool
    """False if the budget expired or the run was interrupted."""
    stopped: str = ""
    """Why the run is incomplete, or why the subject could not be tested further."""
    strict: bool = False
    """Whether warnings fail the run."""
    cases: tuple[CaseResult, ...]
    requirements: tuple[RequirementResult, ...]
    known: tuple[KnownFailure, ...] = ()
    stale: tuple[KnownFailure, ...] = ()
    """Known failures that passed or matched no case."""
    causes: tuple[Cause, ...] = ()
    """The failures, by probable cause; set by the reports."""
    environment: Environment = Environment()
    exit_code: int
    """0 conformant, 1 violation or stale known failure, 2 usage, adapter or nothing selected, 3 incomplete."""
