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
from conformance.mutants.writers import RetriesAnUnknownOutcome
from conformance.oracle.client import replay
from conformance.requirements.catalogue import Profile, Side, load
from conformance.scenario.adversary import ClientHost
from conformance.scenario.audit import Proposed, of_all
from conformance.scenario.check import Check, Variant, applies
from conformance.scenario.client import ClientScenario
from conformance.scenario.log_builder import LogBuilder, application, domain, file, gone, vector
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


def test_one_transaction_committed_twice_does_not_violate_txnid_02() -> None:
    """CM-TXNID-02 is about two transactions with one id. A single transaction that landed twice violates another
    requirement.
    """
    check = next(check for check in EXAMPLES if check.name == "a-server-error-is-an-unknown-outcome")
    violations = [violation for result in results(check, RetriesAnUnknownOutcome) for violation in result.violations]
    violated = {name for violation in violations for name in violation.requirements}
    assert "PROFILE-UNKNOWN-01" in violated
    assert "CM-TXNID-02" not in violated


@pytest.mark.parametrize(
    ("version", "actions", "refused", "observed"),
    [
        (1, "a", False, None),
        (2, "a", False, "attempt x of version 1 was proposed again as version 2"),
        (1, "b", False, "attempt x of version 1 was proposed again with other content"),
        (1, "a", True, "attempt x of version 1 was proposed again after its rejection"),
    ],
)
def test_the_finding_says_how_an_attempt_was_reused(
    version: int, actions: str, refused: bool, observed: str | None
) -> None:
    def proposed(version: int, actions: str) -> Proposed:
        request = m.Commit(table="t", version=version, attempt="x", actions=(actions,))
        return Proposed(operation=version, request=request, lines=(actions,), refused=refused)

    observations = [problem.observed for _, problem in of_all([proposed(1, "a"), proposed(version, actions)])]
    assert observations == ([] if observed is None else [observed])


def test_a_case_is_reproducible() -> None:
    """The same seed and the same subject give the same history, byte for byte."""
    mutant = next(mutant for mutant in kills.bad() if mutant.id == "last-writer-wins")
    check = next(candidate for candidate in EXAMPLES if candidate.name == "two-writers-of-one-version-have-one-winner")
    first, second = next(results(check, mutant.make)), next(results(check, mutant.make))
    assert first.history is not None
    assert first == second


class Garbled(ModelOwner):
    """A subject whose every readable action is truncated, or replaced by bytes that are no action."""

    def __init__(self, garbled: str) -> None:
        super().__init__()
        self.garbled = garbled

    def _list(self, commits: tuple[m.CommitEntry, ...] | None) -> tuple[m.CommitEntry, ...] | None:
        return commits and tuple(
            msgspec.structs.replace(commit, actions=commit.actions and (self.garbled,)) for commit in commits
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
        files = (msgspec.structs.replace(file, content=file.content and self.garbled) for file in answer.files)
        return msgspec.structs.replace(answer, files=tuple(files))


READS_CONTENT = ("a-conflict-contains-no-false-information", "a-resolution-contains-protocol-and-metadata")


@pytest.mark.parametrize("garbled", ['{"metaData', '{"metaData":3}', '[1]\n{"commitInfo":[]}'])
@pytest.mark.parametrize("name", READS_CONTENT)
def test_unreadable_content_is_a_violation(name: str, garbled: str) -> None:
    (check,) = (candidate for candidate in EXAMPLES if candidate.name == name)
    judged = list(results(check, lambda: Garbled(garbled)))  # type: ignore[arg-type]
    assert {result.verdict for result in judged} == {Verdict.FAILED}


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


def test_the_expected_state_is_the_state_after_the_commits(s: ClientScenario) -> None:
    log = with_history(s)
    assert [sorted(replay(log.actions, version).files) for version in range(4)] == [
        [],
        ["a", "b"],
        ["b", "x y"],
        ["a", "b", "x y"],
    ]
    assert [replay(log.actions, version).applications for version in range(3)] == [{}, {"loader": 1}, {"loader": 2}]
    assert [replay(log.actions, version).domains for version in (1, 2)] == [{"d": "first", "e": "kept"}, {"e": "kept"}]
    assert replay(log.actions, 3).timestamp == s.timestamp(3)
    assert replay(log.actions, 3).properties == {"delta.enableInCommitTimestamps": "true", "kit.a": "1"}


def test_a_file_with_another_deletion_vector_is_another_file(s: ClientScenario) -> None:
    log = LogBuilder.create(s, reader_features=("deletionVectors",))
    log.land(file("a"))
    log.land(file("a", deletionVector=vector("one")), gone("a"))
    log.land(gone("a", deletionVector=vector("two")))
    assert sorted(replay(log.actions, 3).files) == ["a"]
    log.land(gone("a", deletionVector=vector("one")))
    assert sorted(replay(log.actions, 4).files) == []


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
