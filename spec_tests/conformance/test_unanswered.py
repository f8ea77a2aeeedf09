"""A network may lose the kit's own requests. Then the final log is missing, and only the recorded answers are
judged.
"""

import io
import uuid

import msgspec
import pytest

from conformance.adapters.in_process import InProcess
from conformance.checkers.check import check_events
from conformance.checks import all_checks
from conformance.history.files import read_events
from conformance.interface import messages as m
from conformance.interface.log_names import staged_file
from conformance.interface.results import CaseResult, Verdict
from conformance.interface.subject import AdapterError
from conformance.models.owner import Entries, ModelOwner, OwnedTable
from conformance.mutants.lifecycle import TwoCreatorsMakeATableUnreadable
from conformance.programs.cases import run_case
from conformance.scenario.check import Variant
from conformance.scenario.running import BrokenInCaseError, finish
from conformance.scenario.scenario import IDENTITY, TRIES, Inconclusive, Scenario, TableHandle

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
    case = result("a-lost-race-is-a-conflict", lost, losses)
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
    result = run_case(CHECKS["versions-are-counted-per-table"], VARIANT, InProcess(NamesItsOwnAttempts()))
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
