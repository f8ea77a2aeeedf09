"""A network may lose what the kit itself asks: then there is no verdict, and nobody is accused."""

from __future__ import annotations

import pytest

from conformance.adapters.in_process import InProcess
from conformance.checks.registry import all_checks
from conformance.generated.running import run_case
from conformance.interface import messages as m
from conformance.models.owner import ModelOwner
from conformance.results import CaseResult, Verdict
from conformance.scenario.check import Variant

CHECKS = {check.name: check for check in all_checks()}
VARIANT = Variant(feature="catalogManaged", commit_mode="staged")


class Losing(ModelOwner):
    """Leaves the first questions of a kind unanswered, `losses` of them: of the kit itself, or drops by anybody."""

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
    told = result("a-lost-race-is-a-conflict", lost, losses)
    assert told.verdict is verdict, told
    assert not told.violations


@pytest.mark.parametrize("losses", [0, 3])
def test_an_unanswered_drop_is_no_violation(losses: int) -> None:
    told = result("any-sequence-of-creations", m.DropTable, losses, count=30)
    assert told.verdict is not Verdict.FAILED, told.violations
