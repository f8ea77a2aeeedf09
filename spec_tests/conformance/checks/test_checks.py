"""Each check passes on the models, and each of its demands names a requirement. `test_mutation_score.py` shows what the
checks find, and that they accuse no good subject. Other implementations can read the tables that the kit writes.
"""

from collections.abc import Iterator
from typing import Any

import deltalake
import msgspec
import pytest

from conformance.adapters.in_process import InProcess
from conformance.checks import all_checks
from conformance.interface import messages as m
from conformance.interface.log_names import commit_file
from conformance.interface.results import CaseResult, Layer, Verdict
from conformance.models.client import ModelClient
from conformance.models.group_client import GroupClient
from conformance.models.groups import GroupOwner
from conformance.models.owner import ModelOwner
from conformance.mutants.api_clients import SpeaksTheDeltaApi
from conformance.mutants.delta_api import ServesTheDeltaApi
from conformance.requirements.catalogue import Profile, Side, load
from conformance.scenario.adversary import ClientHost
from conformance.scenario.check import Check, Variant, applies
from conformance.scenario.client import ClientScenario
from conformance.scenario.log_builder import LogBuilder, application, domain, file, gone
from conformance.scenario.running import run_case
from conformance.scenario.scenario import Scenario
from spec_tests.conformance import kills
from spec_tests.support.sampling import sampled

EXAMPLES = [check for check in all_checks() if check.layer is Layer.EXAMPLE]


class Modest(ModelOwner):
    """An owner with as few promises as possible."""

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        profiles = ("core", "staged", "inline", "direct-publish")
        return msgspec.structs.replace(super().hello(client, request), profiles=profiles, promises=(), crash_points=())


def results(check: Check, make: type, *, features_only: bool = False) -> Iterator[CaseResult]:
    """The results of the check, with a new subject for each variant, or for one variant of each table feature."""
    host = ClientHost()

    def subject() -> InProcess:
        return InProcess(make() if check.side == "owner" else make(host.ask))

    with subject() as first:
        variants = check.variants(first.identity)
    if features_only:
        variants = list({variant.feature: variant for variant in variants}.values())
    for variant in variants:
        with subject() as fresh:
            yield run_case(check, variant, fresh, host=host)


@pytest.fixture
def unnamed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The demands that name no requirement for this subject. The report of such a violation could not name one
    either.
    """
    demands: list[str] = []
    require, expect = Scenario.require, Scenario.expect

    def note(s: Scenario, requirements: tuple[str, ...]) -> None:
        sides = {load().requirement(requirement).side for requirement in requirements}
        of_the_kit = isinstance(s, ClientScenario) and sides == {Side.OWNER}
        if not of_the_kit and not any(applies(requirement, s.identity, s.variant) for requirement in requirements):
            demands.append(f"{s.name}: {requirements}")

    def required(s: Scenario, condition: bool, *requirements: str, **options: Any) -> None:
        note(s, requirements)
        require(s, condition, *requirements, **options)

    def expected(s: Scenario, answer: Any, kinds: Any, *requirements: str, **options: Any) -> Any:
        note(s, requirements)
        return expect(s, answer, kinds, *requirements, **options)

    monkeypatch.setattr(Scenario, "require", required)
    monkeypatch.setattr(Scenario, "expect", expected)
    return demands


@pytest.mark.parametrize("check", sampled(EXAMPLES, 6), ids=lambda check: check.name)
def test_the_models_pass(check: Check, unnamed: list[str]) -> None:
    special: dict[tuple[str, Profile], type] = {
        ("owner", Profile.UC_DELTA_API): ServesTheDeltaApi, ("owner", Profile.TRANSACTION_GROUP): GroupOwner,
        ("client", Profile.UC_DELTA_API): SpeaksTheDeltaApi, ("client", Profile.TRANSACTION_GROUP): GroupClient,
    }  # fmt: skip
    model = ModelOwner if check.side == "owner" else ModelClient
    needed = [special[check.side, need] for need in check.needs if (check.side, need) in special]
    outcomes = list(results(check, next(iter(needed), model)))
    assert outcomes
    if check.side == "owner":
        outcomes += results(check, Modest, features_only=True)
        assert unnamed == []
    assert [name for name in unnamed if "[filesystem/" in name] == []
    assert {outcome.case: outcome.reason or outcome.violations[0].message for outcome in outcomes
            if outcome.verdict is not Verdict.PASSED} == {}  # fmt: skip


def test_a_case_is_reproducible() -> None:
    """The same seed and the same subject give the same history, byte for byte."""
    mutant = next(mutant for mutant in kills.bad() if mutant.id == "last-writer-wins")
    check = next(candidate for candidate in EXAMPLES if candidate.name == "two-writers-of-one-version-have-one-winner")
    first, second = next(results(check, mutant.make)), next(results(check, mutant.make))
    assert first.history is not None
    assert first == second


# Tables that the kit writes for readers


def scenario(client: type, feature: str, commit_mode: str = "staged") -> ClientScenario:
    host = ClientHost()
    return ClientScenario(
        InProcess(client(host.ask)), Variant(feature=feature, commit_mode=commit_mode), host, name="fixture"
    )


@pytest.fixture(params=["managedCommit", "catalogManaged"])
def s(request: pytest.FixtureRequest) -> Iterator[ClientScenario]:
    made = scenario(ModelClient, request.param)
    yield made
    made.close()


def with_history(s: ClientScenario) -> LogBuilder:
    log = LogBuilder.create(s, properties={"kit.a": "1"})
    log.land(file("a"), file("b"), application("loader", 1), domain("d", "first"), domain("e", "kept"))
    log.land(gone("a"), file("x%20y"), application("loader", 2), domain("d", "first", removed=True))
    log.land(file("a"))
    log.backfill(2)
    return log


@pytest.mark.parametrize("parts", [1, 2])
def test_another_implementation_reads_a_planted_checkpoint(parts: int) -> None:
    """The table is a managedCommit table, whose published part any reader may read by its path."""
    s = scenario(ModelClient, "managedCommit")
    log = with_history(s)
    log.checkpoint(1, parts=parts)
    log.hide(commit_file(0))
    peer = deltalake.DeltaTable(log.location)
    assert peer.version() == 2
    assert sorted(path.rpartition("/")[2] for path in peer.file_uris()) == ["b", "x y"]
    s.close()


def test_another_implementation_reads_a_planted_compaction() -> None:
    s = scenario(ModelClient, "managedCommit")
    log = with_history(s)
    log.compaction(1, 2)
    peer = deltalake.DeltaTable(log.location)
    assert sorted(path.rpartition("/")[2] for path in peer.file_uris()) == ["b", "x y"]
    s.close()


def test_a_scenario_leaves_the_files_unchanged(s: ClientScenario) -> None:
    log = with_history(s)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in log.folder.rglob("*") if path.is_file()}
    log.checkpoint(2, parts=2)
    log.v2_checkpoint(1)
    log.hint(2)
    log.checksum(2)
    log.plant(commit_file(1), b"")
    log.touch(2, 5)
    log.hide(commit_file(0), *log.staged())
    s.conclude()
    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in log.folder.rglob("*") if path.is_file()}
    assert after == before
