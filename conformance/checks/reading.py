"""Readers: from an owner's answer and a listing to one gap-free snapshot."""

from __future__ import annotations

from conformance.checks.registry import Family, check
from conformance.interface import messages as m
from conformance.scenario.client import ClientScenario


@check(Family.READING, "MC-READ-07", "CM-READ-05", "MC-GET-03", "LOG-04", side="client", ways=("staged", "inline"))
def a_backfill_between_question_and_listing_hides_nothing(s: ClientScenario) -> None:
    """A reader that asks the owner sees every ratified commit, even if all of them are backfilled at that moment."""
    table = s.create()
    landed = [s.land(table) for _ in range(3)]
    s.require(s.read(table).version == 3, "MC-READ-07", "CM-READ-05", told=landed, expected="a snapshot of version 3")
    s.owner.on(m.GetCommits, before=lambda: s.backfill(table, 3))
    read = s.read(table)
    s.require(
        read.version == 3, "MC-READ-07", "CM-READ-05", "LOG-04", told=landed,
        expected="version 3 was ratified before the read began: a snapshot of version 3",
        observed=f"a snapshot of version {read.version}",
    )  # fmt: skip
