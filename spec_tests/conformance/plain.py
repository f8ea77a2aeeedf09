"""What `delta-commit-conformance run SUBJECT` says, with no option at all, of every subject whose verdict is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from conformance.mutants.registry import Mutant, all_mutants
from conformance.requirements.catalogue import Level, load
from conformance.results import CaseResult, RequirementVerdict, RunResult
from conformance.running.errors import ExitCode, UnusableError
from conformance.running.execution import Options, execute
from spec_tests.conformance import kills


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """The verdict of one run, and whether it is the right one."""

    subject: str
    right: bool
    exit_code: int
    seconds: float
    note: str
    """What was found, or why nothing was."""


class Quiet:
    """Nobody watches the run."""

    def begins(self, identity: object, planned: object, workers: int) -> None:
        """Nothing is shown."""

    def case(self, result: CaseResult, *, fails: bool, known: bool, seconds: float) -> None:
        """Nothing is shown."""

    def note(self, text: str) -> None:
        """Nothing is shown."""


def only_advice(mutant: Mutant) -> bool:
    """Whether all that it breaks is advice: that is a warning, and nobody is not conformant because of one."""
    return all(load().requirement(each).level is Level.SHOULD for each in mutant.violates)


def judge(mutant: Mutant) -> Plain:
    """Run it as its user would. A bad subject's run stops at the first failure, which decides its exit code; one that
    only ignores advice is run as `--strict`, which makes a failure of what is a warning otherwise."""
    name = kills.name_of(mutant)
    bad = bool(mutant.violates)
    try:
        result = execute(Options(subject=name, fail_fast=bad, strict=bad and only_advice(mutant)), Quiet())
    except UnusableError as error:
        return Plain(subject=name, right=False, exit_code=ExitCode.USAGE, seconds=0, note=error.problem)
    right = result.exit_code == (ExitCode.VIOLATION if bad else ExitCode.CONFORMANT)
    return Plain(
        subject=name, right=right, exit_code=result.exit_code, seconds=result.environment.seconds, note=_note(result)
    )


def _note(result: RunResult) -> str:
    against = [
        each.requirement
        for each in result.requirements
        if each.verdict in (RequirementVerdict.VIOLATED, RequirementVerdict.WARNED)
    ]
    found = [f"{each.requirements[0]}: {each.message}" for case in result.cases for each in case.violations]
    return " | ".join(
        [*([", ".join(against)] if against else []), *found[:2], *([result.stopped] if not found else [])]
    )


def all_plain(pattern: str = "*") -> Iterator[Plain]:
    """The good subjects first, then the bad ones; of `good:ID` and `mutant:ID` those that match."""
    for mutant in sorted(all_mutants().values(), key=lambda each: bool(each.violates)):
        if fnmatchcase(kills.name_of(mutant), pattern):
            yield judge(mutant)
