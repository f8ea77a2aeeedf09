"""Each check passes on the models, and each demand on the way names a requirement. What the checks find, and that they
accuse no good subject, is in `test_mutation_score.py` and `test_coverage.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from conformance.adapters.in_process import InProcess
from conformance.checks.registry import all_checks
from conformance.interface import messages as m
from conformance.models.client import ModelClient
from conformance.models.owner import ModelOwner
from conformance.mutants.writers import RetriesAnUnknownOutcome
from conformance.requirements.catalogue import Side, load
from conformance.results import CaseResult, Layer, Verdict
from conformance.scenario.adversary import ClientHost
from conformance.scenario.check import Check, applies
from conformance.scenario.client import ClientScenario
from conformance.scenario.running import run_case
from conformance.scenario.scenario import Scenario
from spec_tests.conformance import kills

EXAMPLES = [each for each in all_checks() if each.layer is Layer.EXAMPLE]


class Modest(ModelOwner):
    """Promises as little as an owner can."""

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        profiles = ("core", "staged", "inline", "direct-publish")
        return msgspec.structs.replace(super().hello(client, request), profiles=profiles, promises=(), crash_points=())


def results(check: Check, make: type) -> Iterator[CaseResult]:
    """The check on a new subject, for each variant."""
    host = ClientHost()

    def subject() -> InProcess:
        return InProcess(make() if check.side == "owner" else make(host.ask))

    with subject() as first:
        variants = check.variants(first.identity)
    for variant in variants:
        with subject() as each:
            yield run_case(check, variant, each, host=host)


@pytest.fixture
def unnamed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Demands without a requirement that applies to the subject: a violation could not be named."""
    found: list[str] = []
    require, expect = Scenario.require, Scenario.expect

    def note(s: Scenario, requirements: tuple[str, ...]) -> None:
        sides = {load().requirement(each).side for each in requirements}
        of_the_kit = isinstance(s, ClientScenario) and sides == {Side.OWNER}
        if not of_the_kit and not any(applies(each, s.identity, s.variant) for each in requirements):
            found.append(f"{s.name}: {requirements}")

    def required(s: Scenario, condition: bool, *requirements: str, **options: Any) -> None:
        note(s, requirements)
        require(s, condition, *requirements, **options)

    def expected(s: Scenario, answer: Any, kinds: Any, *requirements: str, **options: Any) -> Any:
        note(s, requirements)
        return expect(s, answer, kinds, *requirements, **options)

    monkeypatch.setattr(Scenario, "require", required)
    monkeypatch.setattr(Scenario, "expect", expected)
    return found


@pytest.mark.parametrize("check", EXAMPLES, ids=lambda check: check.name)
def test_the_models_pass(check: Check, unnamed: list[str]) -> None:
    found = list(results(check, ModelOwner if check.side == "owner" else ModelClient))
    assert found
    if check.side == "owner":
        found += results(check, Modest)
        assert unnamed == []
    assert [each for each in unnamed if "[filesystem/" in each] == []
    assert {each.case: each.reason or each.violations[0].message for each in found
            if each.verdict is not Verdict.PASSED} == {}  # fmt: skip


def test_a_transaction_committed_twice_is_not_two_with_one_txn_id() -> None:
    """CM-TXNID-02 is about two transactions. That this one landed twice is another violation."""
    check = next(each for each in EXAMPLES if each.name == "a-client-resolves-a-lost-answer-first")
    found = {
        name for each in results(check, RetriesAnUnknownOutcome) for one in each.violations for name in one.requirements
    }
    assert "PROFILE-UNKNOWN-01" in found
    assert "CM-TXNID-02" not in found


def test_a_case_is_reproducible() -> None:
    """The same seed and the same subject give the same history, byte for byte."""
    mutant = next(each for each in kills.bad() if each.id == "last-writer-wins")
    check = next(each for each in EXAMPLES if each.name == "two-writers-of-one-version-have-one-winner")
    first, second = next(results(check, mutant.make)), next(results(check, mutant.make))
    assert first.history is not None
    assert first == second


class Garbled(ModelOwner):
    """Every action that can be read is cut off, or is no action."""

    def __init__(self, garbled: str) -> None:
        super().__init__()
        self.garbled = garbled

    def _list(self, commits: tuple[m.CommitEntry, ...] | None) -> tuple[m.CommitEntry, ...] | None:
        return commits and tuple(
            msgspec.structs.replace(each, actions=each.actions and (self.garbled,)) for each in commits
        )

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        answer = super().commit(client, request)
        if isinstance(answer, m.Conflict):
            return msgspec.structs.replace(answer, winners=self._list(answer.winners))
        return answer

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        answer = super().get_commits(client, request)
        assert isinstance(answer, m.Commits)
        return msgspec.structs.replace(answer, commits=self._list(answer.commits))

    def observe(self, client: str, request: m.Observe) -> m.Answer:
        answer = super().observe(client, request)
        assert isinstance(answer, m.Observation)
        files = (msgspec.structs.replace(each, content=each.content and self.garbled) for each in answer.files)
        return msgspec.structs.replace(answer, files=tuple(files))


READS_CONTENT = (
    "a-conflict-contains-no-false-information", "a-losing-proposal-leaves-the-winner-unchanged",
    "inline-content-is-returned-until-published", "a-ratified-direct-commit-is-visible-and-complete",
    "a-resolution-contains-protocol-and-metadata", "times-far-from-the-wall-clock-are-kept",
    "unreadable-metadata-is-rejected-or-kept", "the-owners-configuration-is-a-map-of-strings",
)  # fmt: skip


@pytest.mark.parametrize("garbled", ['{"metaData', '{"metaData":3}', '[1]\n{"commitInfo":[]}'])
@pytest.mark.parametrize("name", READS_CONTENT)
def test_content_that_cannot_be_read_is_judged(name: str, garbled: str) -> None:
    (check,) = (each for each in EXAMPLES if each.name == name)
    assert list(results(check, lambda: Garbled(garbled)))  # type: ignore[arg-type]  # and no exception
