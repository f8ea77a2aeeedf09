"""The checks of readers: each passes on the model client on every variant, and every bad reader is found by a
requirement that it violates. A good reader meets a quarter of the checks, each on one variant; all of them, on all
variants, in `test_teeth.py`."""

from __future__ import annotations

from typing import Final

import pytest

from conformance.adapters.in_process import InProcess
from conformance.checks.registry import Check
from conformance.models.client import ModelClient
from conformance.mutants.registry import Mutant
from conformance.results import Verdict
from conformance.scenario.adversary import ClientHost
from conformance.scenario.running import run_case
from spec_tests.conformance import kills
from spec_tests.conformance.checks.families import checks_of, mutants_of

CHECKS: Final = checks_of(
    ("reading", "reading_access", "reading_actions", "reading_segments", "stale_reads_of_clients", "time_travel")
)
BAD: Final = mutants_of(("readers", "readers_of_actions", "readers_of_segments", "readers_of_times"))
GOOD: Final = mutants_of(("good_readers",))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_the_model_client_is_judged_and_passes(check: Check) -> None:
    host = ClientHost()
    with InProcess(ModelClient(host.ask)) as subject:
        results = [run_case(check, variant, subject, host=host) for variant in check.variants(subject.identity)]
    assert {result.case: result.reason for result in results if result.verdict is not Verdict.PASSED} == {}
    assert results


@pytest.mark.parametrize("mutant", BAD, ids=lambda mutant: mutant.id)
def test_a_bad_reader_is_found_by_a_requirement_that_it_violates(mutant: Mutant) -> None:
    name = kills.name_of(mutant)
    mine = (case for case in kills.cases(kills.identity(name), mutant.violates) if case.check in CHECKS)
    assert any(kills.names(kills.run(case, name), mutant.violates) for case in mine)


@pytest.mark.parametrize("mutant", GOOD, ids=lambda mutant: mutant.id)
def test_a_good_reader_is_not_accused(mutant: Mutant) -> None:
    name = kills.name_of(mutant)
    verdicts = set()
    for number, check in enumerate(CHECKS[GOOD.index(mutant) % 4 :: 4]):
        variants = check.variants(kills.identity(name))
        for variant in variants[number % max(len(variants), 1) :][:1]:
            result = kills.run(kills.Case(check=check, variant=variant), name)
            assert result.verdict is not Verdict.FAILED, f"{result.case}: {result.violations[0].message}"
            verdicts.add(result.verdict)
    assert Verdict.PASSED in verdicts
