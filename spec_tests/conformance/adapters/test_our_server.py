"""Our own server under the kit, tested by its URL. The whole run is one command:
`delta-commit-conformance run 'uc:URL?catalog=unity&schema=default'`."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import refimpl
from conformance.checks import all_checks
from conformance.interface import messages as m
from conformance.interface.results import Layer, Verdict
from conformance.interface.subject import Subject
from conformance.programs.cases import run_case
from conformance.programs.delta_api import NAMED, permits
from conformance.requirements.catalogue import Profile
from conformance.running.plan import plan, profile_named
from conformance.running.verdicts import fails
from conformance.scenario.check import Variant
from conformance.subjects.names import open_subject
from conformance.teaching.learn import judges
from spec_tests.engines.prerequisites import served
from spec_tests.support.serving import Fault, FaultProxy, Match, Plan

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("our-server")]

SLICE = (
    "an immediate replay is ratified",
    "a-staged-file-is-valid-for-one-version",
    "load_table returns the protocol and the metadata",
    "load_table returns the newest metadata",
)
"""Checks, and titles of pinned programs, of the rules that servers of the Delta API are known to violate, and of our
server's additional rules."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory: Path = tmp_path_factory.mktemp("warehouse")
    refimpl.open(directory, create=True).close()
    with served(directory) as url:
        yield url


@pytest.fixture(scope="module")
def subject(url: str) -> Iterator[Subject]:
    with open_subject(f"uc:{url}?catalog=unity&schema=default", timeout=60) as subject:
        yield subject


@pytest.mark.parametrize("name", SLICE)
def test_the_server_passes_a_check(subject: Subject, name: str) -> None:
    (check, program), variant = judges()[name], Variant(feature="catalogManaged", commit_mode="staged")
    result = run_case(check, variant, subject, salt=f"-{SLICE.index(name)}", reproduction=program)
    assert result.verdict is Verdict.PASSED, result


API_CHECKS = [check for check in all_checks() if check.side == "owner" and Profile.UC_DELTA_API in check.needs]


def test_the_server_does_what_the_specification_of_its_api_says(subject: Subject) -> None:
    variant = Variant(feature="catalogManaged", commit_mode="staged")
    results = [run_case(check, variant, subject, count=10, salt="-1") for check in API_CHECKS]
    assert len(results) >= 10
    assert {result.case: result.violations for result in results if result.verdict is not Verdict.PASSED} == {}


RECORDED = {
    "config-of-an-unknown-catalog": (404, "NoSuchCatalogException"),
    "no-updates": (400, "InvalidParameterValueException"),
    "an-unknown-action": (400, "InvalidParameterValueException"),
    "another-tables-id": (409, "UpdateRequirementConflictException"),
    "another-etag": (409, "UpdateRequirementConflictException"),
    "a-report-above-the-latest-version": (400, "InvalidParameterValueException"),
    "a-commit-skips-a-version": (400, "InvalidParameterValueException"),
    "no-table-id-required": (400, "InvalidParameterValueException"),
    "two-commits-in-one-request": (400, "InvalidParameterValueException"),
    "a-commit-of-version-0": (400, "InvalidParameterValueException"),
}
"""Answers of Unity Catalog 0.6.0 that its specification permits: UNITY_CATALOG.md#rejections."""


def test_recorded_answers_of_unity_catalog_are_permitted() -> None:
    assert [name for name, recorded in RECORDED.items() if not permits(NAMED[name].permitted, *recorded)] == []
    assert not permits(NAMED["another-etag"].permitted, 400, "InvalidParameterValueException")


# Each seed runs half of the kit, over a network that fails at random

SHARES: Final = {
    Fault.DROP_RESPONSE: 0.05, Fault.UNAVAILABLE_LANDED: 0.04, Fault.DROP_REQUEST: 0.03, Fault.DUPLICATE: 0.05,
    Fault.DUPLICATE_SECOND: 0.03, Fault.DELAY: 0.03, Fault.BUSY: 0.03, Fault.UNAVAILABLE: 0.03,
}  # fmt: skip
"""Together these are a quarter of all requests about tables."""
FIRST, _, LAST = os.environ.get("UNRELIABLE_SEEDS", "1").partition("-")
SEEDS: Final = range(int(FIRST), int(LAST or FIRST) + 1)
SENDS: Final = 6


class Persistent:
    """Clients that repeat unanswered requests, except drops: the API has no id for a drop, so a repeated one might drop
    another table. If a drop finds no table, the network may have delivered it twice.
    """

    def __init__(self, subject: Subject) -> None:
        self.identity = subject.identity
        self._subject = subject

    def ask(self, client: str, request: m.Request) -> m.Answer:
        unknown: m.Unknown | None = None
        for _ in range(SENDS):
            answer = self._subject.ask(client, request)
            if isinstance(request, m.DropTable):
                return m.Unknown(reason="not found") if isinstance(answer, m.NotFound) else answer
            if isinstance(answer, m.Unknown):
                unknown = answer
            elif unknown is None or not (isinstance(answer, m.Rejected) and answer.retryable):
                return answer  # a retryable rejection of a later try says nothing about an earlier try
        return unknown or answer

    def close(self) -> None:
        self._subject.close()


@pytest.mark.engines
@pytest.mark.longer
@pytest.mark.parametrize("seed", SEEDS)
def test_an_unreliable_network_causes_no_violation(url: str, seed: int) -> None:
    faults = Plan(seed=seed, shares=SHARES, match=Match(path="tables"))
    verdicts: Counter[Verdict] = Counter()
    with (
        FaultProxy(url, plan=faults, patience=0.05) as proxy,
        open_subject(f"uc:{proxy.url}?catalog=unity&schema=default", timeout=60) as direct,
    ):
        subject = Persistent(direct)
        cases = plan(subject.identity, profile_named("quick"), seed).in_turn()
        layers = (Layer.EXAMPLE, Layer.MODEL)  # an example of the API repeats no request that is not answered
        mine = [case for case in cases if case.check.layer in layers and case.check not in API_CHECKS][seed % 2 :: 2]
        for case in mine:
            result = run_case(
                case.check, case.variant, subject, seed=case.seed, count=case.count, salt=f"-{seed}", shrink=False
            )
            accused = [violation for violation in result.violations if fails(violation)]
            assert not accused, (result.case, accused, result.history)
            verdicts[result.verdict] += 1
        happened = proxy.counts()
    assert set(happened) == set(Fault)
    decided, open_ = verdicts[Verdict.PASSED] + verdicts[Verdict.FAILED], verdicts[Verdict.INCONCLUSIVE]
    assert decided > 4 * open_, "the network's faults must leave most cases decided"
