"""The checks of some families of clients, run on a client in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from conformance.adapters.in_process import InProcess
from conformance.checks.registry import Check, Variant
from conformance.models.client import ModelClient
from conformance.mutants.registry import Mutant
from conformance.results import CaseResult, Verdict
from conformance.scenario.adversary import ClientHost
from conformance.scenario.client import ClientScenario
from conformance.scenario.running import run_case
from spec_tests.conformance import kills


def on_the_model(check: Check) -> list[CaseResult]:
    """The check on the model client, on every variant."""
    host = ClientHost()
    with InProcess(ModelClient(host.ask)) as subject:
        return [run_case(check, variant, subject, host=host) for variant in check.variants(subject.identity)]


def found_by(mutant: Mutant, checks: Sequence[Check]) -> str | None:
    """The requirement that it violates and by which one of the checks finds it; None: none does."""
    name = kills.name_of(mutant)
    for case in kills.cases(kills.identity(name), mutant.violates):
        if case.check in checks:
            named = kills.names(kills.run(case, name), mutant.violates)
            if named is not None:
                return named
    return None


def on_one_variant_each(mutant: Mutant, checks: Sequence[Check]) -> list[CaseResult]:
    """Each check on one variant, another one each time."""
    name = kills.name_of(mutant)
    results = []
    for number, check in enumerate(checks):
        variants = check.variants(kills.identity(name))
        chosen = variants[number % max(len(variants), 1) :][:1]
        results += [kills.run(kills.Case(check=check, variant=variant), name) for variant in chosen]
    return results


def accused(results: Sequence[CaseResult]) -> dict[str, str]:
    """What is said of a good one, by case."""
    return {each.case: each.violations[0].message for each in results if each.verdict is Verdict.FAILED}


def unjudged(results: Sequence[CaseResult]) -> dict[str, str]:
    """Cases that did not pass, and why."""
    return {each.case: each.reason or each.violations[0].message for each in results
            if each.verdict is not Verdict.PASSED}  # fmt: skip


@contextmanager
def scenario(
    client: type[ModelClient], feature: str = "managedCommit", commit_mode: str = "staged"
) -> Iterator[ClientScenario]:
    """One of its own, for this client."""
    host = ClientHost()
    with InProcess(client(host.ask)) as subject:
        s = ClientScenario(subject, Variant(feature=feature, commit_mode=commit_mode), host, name=client.__name__)
        try:
            yield s
        finally:
            s.close()
