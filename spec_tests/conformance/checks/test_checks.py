"""Each check passes on the models, and each of its demands names a requirement. `test_mutation_score.py` shows what the
checks find, and that they accuse no good subject. Other implementations can read the tables that the kit writes.
"""

import io
import uuid
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import deltalake
import msgspec
import pytest

from conformance.adapters.in_process import InProcess
from conformance.checks import all_checks
from conformance.history.files import read_events
from conformance.history_checkers.check import check_events
from conformance.interface import messages as m
from conformance.interface.log_names import commit_file, staged_file
from conformance.interface.results import CaseResult, Layer, Verdict
from conformance.interface.subject import AdapterError
from conformance.models import proposals
from conformance.models.client import ModelClient
from conformance.models.groups import GroupClient, GroupOwner
from conformance.models.owner import Entries, ModelOwner, OwnedTable
from conformance.mutants import Mutant
from conformance.mutants.api_clients import SpeaksTheDeltaApi
from conformance.mutants.delta_api import ServesTheDeltaApi
from conformance.mutants.good_owners import NoServer, PlainModel
from conformance.mutants.lifecycle import TwoCreatorsMakeATableUnreadable
from conformance.programs.cases import run_case
from conformance.requirements.catalogue import Profile, Side, load
from conformance.scenario import ownership
from conformance.scenario.adversary import ClientHost
from conformance.scenario.check import Check, Variant, applies
from conformance.scenario.client import ClientScenario
from conformance.scenario.log_builder import LogBuilder, application, domain, file, gone
from conformance.scenario.running import BrokenInCaseError, finish
from conformance.scenario.scenario import IDENTITY, TRIES, Inconclusive, Scenario, Stopped, TableHandle
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


# Good owners


INSIDE: Final = {PlainModel, NoServer}
"""Owners that use a freedom only inside: they answer as the model does."""


class Overheard(InProcess):
    """Keeps every answer, also those after which the kit sends the request again."""

    def __init__(self, owner: ModelOwner) -> None:
        self.answers: list[str] = []
        super().__init__(owner)

    def ask(self, client: str, request: m.Request) -> m.Answer:
        answer = super().ask(client, request)
        self.answers.append(str(answer))
        return answer


@cache
def transcript(make: type[ModelOwner], variant: Variant) -> str:
    """The answers and files of an owner after a scenario that uses every kind of request."""
    subject = Overheard(make())
    s = Scenario(subject, variant, name="a little of everything")
    try:
        table = s.create(backfill="subject")
        for request in (*(s.proposal(table, version) for version in (1, 2, 1, 5, 3, 4, 5, 6, 7)), s.proposal(table, 1)):
            s.ask("writer", request)
            s.ask("writer", request)
            s.ask("reader", m.GetCommits(table=table.reference))
            s.observe(table)
        s.ask("reader", m.LoadTable(name=s.physical("orders")))
        s.ask("creator", s.creation("Orders"))
        for version in (6, 70):
            s.ask("anybody", m.MaintenancePolicy(table=table.reference))
            s.ask("anybody", m.BackfillToVersion(table=table.reference, version=version))
            s.observe(table)
        table.versions = 8
        imported = TableHandle(name="imports", reference="", versions=2, path=f"{s.identity.storage}/imports")
        for version in range(2):
            content = proposals.content(proposals.version_0(None, s.attempt(), s.attempt()))
            s.ask("writer", m.Plant(table=str(imported.path), file=commit_file(version), content=content))
        s.ask("migrator", ownership.taking_over(s, imported), imported)
        s.ask("migrator", ownership.giving_back(s, table))
        s.observe(table)
        items = s.create("items")
        s.land(items)
        ownership.restart(s)
        s.subject.ask("operator", m.DropTable(table=items.reference))
        s.observe(items)
        late = s.create("late")
        for name, path in (("LATE", None), ("white space", None), ("a", "shared"), ("b", "shared")):
            where = {} if path is None else {"path": f"{s.identity.storage}/{path}"}
            s.ask("creator", s.creation(name, **where))
        s.commit(late, actions=(*proposals.append(s.attempt(), 0, ["x" * 100_000]),))
        wrong = proposals.append(attempt := s.attempt(), 0)
        s.commit(late, attempt=attempt, actions=wrong)
        s.commit(late, 2, attempt=s.attempt().upper())
        s.ask("reader", m.GetCommits(table=late.reference))
    except Stopped as stopped:
        subject.answers.append(str(stopped))
    return "\n".join(subject.answers)


@pytest.mark.parametrize(
    "owner",
    [
        subject
        for subject in kills.good()
        if subject.side == "owner" and subject.freedoms and subject.make not in INSIDE
    ],
    ids=lambda owner: owner.id,
)
def test_each_good_owner_differs_from_the_model(owner: Mutant) -> None:
    """If the owner equalled the model, its passed checks would prove nothing."""
    variants = [
        Variant(feature=feature, commit_mode=commit_mode)
        for feature, commit_mode in (
            ("managedCommit", "staged"), ("managedCommit", "direct"), ("catalogManaged", "staged"),
            ("catalogManaged", "inline"),
        )
    ]  # fmt: skip
    assert any(transcript(owner.make, variant) != transcript(ModelOwner, variant) for variant in variants)


def test_a_good_owner_keeps_no_state_in_memory() -> None:
    """It answers as the model does, and forgets everything between two requests."""
    variant = Variant(feature="managedCommit", commit_mode="staged")
    assert transcript(NoServer, variant) == transcript(ModelOwner, variant)
    stateless = NoServer()
    first = Scenario(InProcess(stateless), variant, name="stateless").create()
    assert stateless.tables[first.reference] is not stateless.tables[first.reference]


# What a network loses


CHECKS = {check.name: check for check in all_checks()}
VARIANT = Variant(feature="catalogManaged", commit_mode="staged")


class Losing(ModelOwner):
    """Leaves the first `losses` requests of a kind without an answer. It loses drops by any client, and otherwise only
    requests of the kit itself.
    """

    def __init__(self, lost: type[m.Request], losses: int) -> None:
        super().__init__()
        self.lost, self.losses = lost, losses

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        return self._lost(client, request) or super().get_commits(client, request)

    def observe(self, client: str, request: m.Observe) -> m.Answer:
        return self._lost(client, request) or super().observe(client, request)

    def drop_table(self, client: str, request: m.DropTable) -> m.Answer:
        return self._lost("kit", request) or super().drop_table(client, request)

    def _lost(self, client: str, request: m.Request) -> m.Unknown | None:
        if client != "kit" or not isinstance(request, self.lost) or not self.losses:
            return None
        self.losses -= 1
        return m.Unknown(reason="the connection broke")


def result(check: str, lost: type[m.Request], losses: int, count: int = 1) -> CaseResult:
    return run_case(CHECKS[check], VARIANT, InProcess(Losing(lost, losses)), count=count, shrink=False)


@pytest.mark.parametrize("lost", [m.GetCommits, m.Observe])
@pytest.mark.parametrize(("losses", "verdict"), [(0, Verdict.PASSED), (1, Verdict.PASSED), (2, Verdict.INCONCLUSIVE)])
def test_an_unknown_final_log_is_no_violation(lost: type[m.Request], losses: int, verdict: Verdict) -> None:
    case = result("two-writers-of-one-version-have-one-winner", lost, losses)
    assert case.verdict is verdict, case
    assert not case.violations


@pytest.mark.parametrize("losses", [0, 3])
def test_an_unanswered_drop_is_no_violation(losses: int) -> None:
    case = result("any-sequence-of-creations", m.DropTable, losses, count=30)
    assert case.verdict is not Verdict.FAILED, case.violations


# Recorded answers are judged, whatever fails afterwards

CREATORS = CHECKS["concurrent-creator-processes"]


def scenario_of(owner: ModelOwner) -> Scenario:
    return Scenario(InProcess(owner), VARIANT, name=CREATORS.case(VARIANT))


def two_creators(s: Scenario) -> None:
    for client in ("first", "second"):
        s.ask(client, s.creation())


def test_two_ratified_creators_are_found_without_a_final_log() -> None:
    s = scenario_of(TwoCreatorsMakeATableUnreadable())
    two_creators(s)
    case = finish(CREATORS, VARIANT, s.subject, s, Inconclusive("later reads failed"))
    assert case.verdict is Verdict.FAILED
    (violation,) = case.violations
    assert violation.requirements == ("CM-COMMIT-08",)
    assert (violation.operations, violation.contradicting) == ((2, 1), 2)
    assert case.history is not None
    verdict = check_events(list(read_events(io.BytesIO(case.history.encode()))))
    assert [violation.rule.value for violation in verdict.violations] == ["ratified-but-lost"]
    assert list(verdict.unseen) == ["orders"]


def test_one_ratified_creator_stays_inconclusive_without_a_final_log() -> None:
    owner = TwoCreatorsMakeATableUnreadable()
    s = scenario_of(owner)
    table = s.create()
    owner.unreadable = table.reference
    case = finish(CREATORS, VARIANT, s.subject, s)
    assert (case.verdict, case.violations) == (Verdict.INCONCLUSIVE, ())
    assert "status 500" in case.reason


class Breaking(TwoCreatorsMakeATableUnreadable):
    """Answers reads with an invalid answer."""

    def _fails(self, table: m.TableRef) -> m.Unknown | None:
        if super()._fails(table):
            raise AdapterError("not an answer")
        return None


@pytest.mark.parametrize("breaks", ["in the scenario", "in the final log"])
def test_a_violation_survives_an_adapter_that_breaks_later(breaks: str) -> None:
    s = scenario_of(Breaking())
    two_creators(s)
    ended = AdapterError("not an answer") if breaks == "in the scenario" else None
    with pytest.raises(BrokenInCaseError, match="not an answer") as caught:
        finish(CREATORS, VARIANT, s.subject, s, ended)
    assert caught.value.result.verdict is Verdict.FAILED
    assert caught.value.result.violations[0].requirements == ("CM-COMMIT-08",)


def test_a_broken_adapter_without_a_violation_is_an_adapter_error() -> None:
    s = scenario_of(ModelOwner())
    s.create()
    with pytest.raises(AdapterError) as caught:
        finish(CREATORS, VARIANT, s.subject, s, AdapterError("not an answer"))
    assert not isinstance(caught.value, BrokenInCaseError)


# A retryable rejection is repeated, and does not decide the verdict


class Busy(ModelOwner):
    """Rejects a number of requests to publish, in its own words."""

    refusals = TRIES - 1

    def backfill_to_version(self, client: str, request: m.BackfillToVersion) -> m.Answer:
        self.refusals -= 1
        if self.refusals >= 0:
            return m.Rejected(reason="busy", retryable=True)
        return super().backfill_to_version(client, request)


class TooBusy(Busy):
    refusals = 1 << 30


def committed(owner: ModelOwner) -> tuple[Scenario, TableHandle]:
    s = Scenario(InProcess(owner), Variant(feature="managedCommit", commit_mode="staged"), name="busy")
    table = s.create()
    s.land(table)
    return s, table


class NamesItsOwnAttempts(ModelOwner):
    """An adapter that gives every staged file an id of its own."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> Entries:
        return tuple(
            msgspec.structs.replace(entry, file_name=staged_file(entry.version, str(uuid.UUID(int=entry.version))))
            for entry in super()._entries(table, start, end)
        )


def test_an_adapter_that_confuses_attempts_violates_the_interface() -> None:
    result = run_case(CHECKS["two-writers-of-one-version-have-one-winner"], VARIANT, InProcess(NamesItsOwnAttempts()))
    named = {name for violation in result.violations for name in violation.requirements}
    assert "PROFILE-CORE-03" in named and named.isdisjoint(IDENTITY)


class FirstPage(ModelOwner):
    """Lists at most three commits, and tells the version of the last one as the latest."""

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        answer = super().get_commits(client, request)
        assert isinstance(answer, m.Commits)
        page = answer.commits[:3]
        return m.Commits(commits=page, latest=page[-1].version if page else answer.latest)


def test_commits_that_are_on_another_page_are_not_lost() -> None:
    s, table = committed(FirstPage())
    s.land_all(table, 5)
    assert s.conclude() == ""
    assert [violation.rule for violation in s.recording.judge().violations] == []


def test_a_request_to_publish_is_repeated_until_it_is_done() -> None:
    s, table = committed(Busy())
    s.backfill(table, 1)
    assert sorted(s.published(table)) == [0, 1]
    assert s.violations == []


def test_an_owner_that_is_always_busy_gets_no_verdict() -> None:
    s, table = committed(TooBusy())
    with pytest.raises(Inconclusive, match="all tries were rejected"):
        s.backfill(table, 1)
    assert s.violations == []
