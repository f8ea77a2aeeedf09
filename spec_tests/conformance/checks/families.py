"""The checks of some families, run on a subject in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from conformance.adapters.in_process import InProcess
from conformance.checks.registry import Check, Variant, all_checks
from conformance.mutants.registry import Mutant, all_mutants
from conformance.results import CaseResult
from conformance.scenario.running import run_case


def module_of(made: Any) -> str:
    """The last name of the module that it stands in."""
    return str(made.__module__.rpartition(".")[2])


def checks_of(modules: Iterable[str]) -> list[Check]:
    """The checks of these modules of `conformance.checks`."""
    wanted = set(modules)
    return [each for each in all_checks() if module_of(each.function) in wanted]


def mutants_of(modules: Iterable[str]) -> list[Mutant]:
    """The bad and good subjects of these modules of `conformance.mutants`."""
    wanted = set(modules)
    return [each for each in all_mutants().values() if module_of(each.make) in wanted]


def results(checks: Iterable[Check], make: type, *, all_variants: bool = True) -> Iterator[CaseResult]:
    """Each check on a new subject; on one variant only, another one each time, unless all are wanted."""
    for number, check in enumerate(checks):
        variants: list[Variant] = check.variants(InProcess(make()).identity)
        chosen = variants if all_variants else variants[number % len(variants) :][:1] if variants else []
        for variant in chosen:
            yield run_case(check, variant, InProcess(make()))


def found(mutant: Mutant, checks: Iterable[Check]) -> CaseResult | None:
    """The first case that finds it by a requirement that it violates. Checks that name one come first."""
    wanted = set(mutant.violates)
    ordered = sorted(checks, key=lambda check: not wanted & set(check.requirements))
    for result in results(ordered, mutant.make):
        if any(wanted & set(violation.requirements) for violation in result.violations):
            return result
    return None
