"""A refusal that says `retryable` is no answer yet: it is asked again, and does not tell good owners from bad ones."""

from __future__ import annotations

import pytest

from conformance.adapters.in_process import InProcess
from conformance.interface import messages as m
from conformance.models.owner import ModelOwner
from conformance.scenario.check import Variant
from conformance.scenario.scenario import TRIES, Inconclusive, Scenario, TableHandle, Violated


class Busy(ModelOwner):
    """Refuses requests to publish: so many, and in these words."""

    refusals = TRIES - 1
    retryable = True

    def backfill_to_version(self, client: str, request: m.BackfillToVersion) -> m.Answer:
        self.refusals -= 1
        if self.refusals >= 0:
            return m.Rejected(reason="busy", retryable=self.retryable)
        return super().backfill_to_version(client, request)


class TooBusy(Busy):
    refusals = 1 << 30


class Unwilling(Busy):
    retryable = False


def committed(owner: ModelOwner) -> tuple[Scenario, TableHandle]:
    s = Scenario(InProcess(owner), Variant(feature="managedCommit", commit_mode="staged"), name="busy")
    table = s.create()
    s.land(table)
    return s, table


def test_it_is_asked_again_until_it_is_done() -> None:
    s, table = committed(Busy())
    s.backfill(table, 1)
    assert sorted(s.published(table)) == [0, 1]
    assert s.violations == []


def test_an_owner_that_never_finds_time_is_not_judged() -> None:
    s, table = committed(TooBusy())
    with pytest.raises(Inconclusive, match=f"{TRIES} times refused for now"):
        s.backfill(table, 1)
    assert s.violations == []


def test_an_owner_that_will_not_publish_violates_its_duty_at_once() -> None:
    s, table = committed(Unwilling())
    with pytest.raises(Violated):
        s.backfill(table, 1)
    assert [each.requirements for each in s.violations] == [("MC-BACKFILL-05", "PROFILE-CORE-03")]
    assert sorted(s.published(table)) == [0]
