"""The reference passes its own kit: every example check, on both sides, each with one table feature and commit mode,
and a few programs of every third family of clients.

`delta-commit-conformance run reference --profile quick` and the same command for `reference-client` run all
combinations.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from conformance.adapters.in_process import InProcess
from conformance.adapters.reference.client import ReferenceClient, RemoteReferenceClient
from conformance.adapters.reference.owner import ReferenceOwner
from conformance.checks import all_checks
from conformance.interface.results import CaseResult, Layer, Verdict
from conformance.interface.subject import Subject
from conformance.programs import pinned
from conformance.programs.running import Generation
from conformance.scenario.adversary import ClientHost
from conformance.scenario.check import Check, Family, Variant
from conformance.scenario.running import run_case
from spec_tests.support.sampling import sampled

REFUSED = {"a-compaction-keeps-removals": "the client writes no log compactions"}
"""Checks without a verdict, because the reference rejects a request, as the documents permit."""


PROGRAMS, SEED = 6, 8


def checks_of(side: str, layer: Layer = Layer.EXAMPLE) -> dict[Family, list[Check]]:
    checks: dict[Family, list[Check]] = {}
    for check in all_checks():
        if check.side == side and check.layer is layer:
            checks.setdefault(check.family, []).append(check)
    return checks


def cases(subject: Subject, checks: Iterable[Check]) -> Iterator[tuple[Check, Variant]]:
    """Each check with one of its variants, in turn."""
    for number, check in enumerate(checks):
        if variants := check.variants(subject.identity):
            yield check, variants[number % len(variants)]


def every_pinned(subject: Subject, checks: Iterable[Check]) -> Iterator[tuple[Check, Variant]]:
    """Pinned programs with all their variants, and the generated ones of a check with one."""
    for check in checks:
        variants = check.variants(subject.identity)
        yield from ((check, variant) for variant in variants[: None if pinned.is_of_pinned(check.name) else 1])


def judged(results: Iterator[tuple[Check, CaseResult]]) -> None:
    """No check is violated, and each check without a verdict has a known reason."""
    some = False
    for check, result in results:
        some = True
        if check.name in REFUSED:
            assert result.verdict in (Verdict.INCONCLUSIVE, Verdict.PASSED), result
        else:
            messages = [violation.message for violation in result.violations]
            assert result.verdict is Verdict.PASSED, (result.case, result.reason, messages)
    assert some


@pytest.mark.parametrize("family", checks_of("owner"), ids=str)
def test_the_owner_passes_every_check(tmp_path: Path, family: Family) -> None:
    def results() -> Iterator[tuple[Check, CaseResult]]:
        with InProcess(ReferenceOwner(tmp_path / "warehouse")) as subject:
            for check, variant in cases(subject, checks_of("owner")[family]):
                yield check, run_case(check, variant, subject)

    judged(results())


@pytest.mark.parametrize("family", checks_of("client"), ids=str)
def test_the_client_passes_every_check(family: Family) -> None:
    host = ClientHost()

    def results() -> Iterator[tuple[Check, CaseResult]]:
        with InProcess(ReferenceClient(host.ask)) as subject:
            for check, variant in cases(subject, checks_of("client")[family]):
                yield check, run_case(check, variant, subject, host=host)

    judged(results())


@pytest.mark.parametrize("family", sampled(checks_of("client", Layer.MODEL), 3), ids=str)
def test_the_client_passes_programs(family: Family) -> None:
    host = ClientHost()
    with InProcess(ReferenceClient(host.ask)) as subject:
        for check, variant in every_pinned(subject, checks_of("client", Layer.MODEL)[family]):
            generation = Generation(check, variant, subject, seed=SEED, count=PROGRAMS, host=host, shrink=False)
            check.function(generation)
            result = generation.result()
            assert result.violations == (), (result.case, result.reproduction)
            assert generation.operations > 0


@pytest.mark.longer
def test_the_client_over_the_delta_api_violates_nothing() -> None:
    """The remote owner allows only the maintenance that is always allowed, and returns no additional metadata of a
    table.
    """
    host = ClientHost()
    passed = 0
    with InProcess(RemoteReferenceClient(host.ask)) as subject:
        for check, variant in cases(subject, (check for checks in checks_of("client").values() for check in checks)):
            result = run_case(check, variant, subject, host=host)
            assert result.verdict in (Verdict.PASSED, Verdict.INCONCLUSIVE), (result.case, result.violations)
            passed += result.verdict is Verdict.PASSED
    assert passed > 40


def test_every_check_with_a_known_reason_exists() -> None:
    assert REFUSED.keys() <= {check.name for check in all_checks()}
