"""The checkers agree with brute force, on histories in which both verdicts and every kind of answer are frequent.

`python -m spec_tests.conformance.prove --histories 200000 --seed 1` compares many more. These tests compare a seeded
part of them, and show that this part is enough to notice a wrong checker.
"""

import random
from collections.abc import Callable

import msgspec
import pytest

from conformance.checkers import log, watermark
from conformance.checkers.columns import HistoryColumns, Rows
from conformance.history import events
from conformance.history.events import Conflict, Gap
from conformance.history.operations import operations
from spec_tests.conformance import prove
from spec_tests.conformance.brute_force import is_linearizable
from spec_tests.conformance.drafts import Draft, DraftListing, Version
from spec_tests.conformance.simulated_histories import simulate

SLICE = 1500
SEED = 1


@pytest.mark.parametrize("part", [0, 1])
def test_the_checkers_agree_with_brute_force(part: int) -> None:
    """LOG_CHECKER.md#brute-force: compared on simulated histories, changed and unchanged."""
    figures = prove.compare(SEED, range(part * SLICE, (part + 1) * SLICE))
    assert figures.disagreements == []
    assert figures.histories == SLICE
    assert figures.verdicts["conformant"] > SLICE * 0.4
    assert figures.verdicts["violation"] > SLICE * 0.2
    assert figures.untouched > SLICE * 0.1
    kinds = {str(kind.__struct_config__.tag) for kind in (*events.Success.__args__, *events.Refusal.__args__)}
    assert {kind for kind in kinds if figures.outcomes[kind] < 10} == set()
    wanted = {
        "an unknown outcome": 0.3,
        "an attempt sent again": 0.2,
        "a tombstone": 0.1,
        "a request of an attempt with a tombstone": 0.05,
        "a stale read": 0.03,
        "a conflict that tells latest": 0.1,
        "a gap that tells latest": 0.1,
        "a look at files": 0.2,
        "idempotent-retry": 0.3,
        "several clocks": 0.2,
        "direct commits": 0.1,
        "versions from before": 0.2,
    }
    assert {trait: count for trait, count in wanted.items() if figures.traits[trait] < count * SLICE} == {}
    assert len(figures.rules) >= 22


def test_a_correct_owner_is_never_accused() -> None:
    for number in range(SLICE):
        items = list(operations(simulate(random.Random(f"clean/{number}"), 12).events()))
        assert is_linearizable(items), number


def disagrees() -> bool:
    """Whether a wrong checker gives another verdict on one of the histories."""
    return any(prove.compare(9, range(first, first + 100)).disagreements for first in range(0, SLICE, 100))


Weakening = Callable[[pytest.MonkeyPatch], None]


def any_send_counts(patch: pytest.MonkeyPatch) -> None:
    """Without "among those": every request of an attempt may have landed it, even a rejected one."""
    original = log.LogChecker._place_sends

    def place(self: log.LogChecker) -> None:
        original(self)
        for rows in (self.table.conflicts, self.table.gaps, self.table.refused):
            for attempt, version, invoked in zip(rows.attempt, rows.version, rows.invoked, strict=True):
                index = version - self.window.base
                if 0 <= index < self.window.length and self.log[index] == attempt:
                    self.first_sent[index] = min(self.first_sent[index], invoked)

    patch.setattr(log.LogChecker, "_place_sends", place)


def replays_always_refused(patch: pytest.MonkeyPatch) -> None:
    """Without the rule on replays: a conflict for a landed attempt is always a violation, whatever the profile."""
    original = log.LogChecker.__init__

    def initialize(self: log.LogChecker, *arguments: object) -> None:
        original(self, *arguments)  # type: ignore[arg-type]
        self.header = msgspec.structs.replace(self.header, profiles=(log.IDEMPOTENT_RETRY,))

    patch.setattr(log.LogChecker, "__init__", initialize)


def no_unknown_lands(patch: pytest.MonkeyPatch) -> None:
    original = HistoryColumns.__init__

    def initialize(self: HistoryColumns, items: object) -> None:
        original(self, items)  # type: ignore[arg-type]
        for table in self.tables.values():
            table.unknown = Rows()

    patch.setattr(HistoryColumns, "__init__", initialize)


WEAKENINGS: dict[str, Weakening] = {
    "any send counts": any_send_counts,
    "replays are always refused": replays_always_refused,
    "nothing unknown lands": no_unknown_lands,
    "no watermark": lambda patch: patch.setattr(watermark.WatermarkChecker, "check", lambda self: None),
    "no sweep": lambda patch: patch.setattr(log.LogChecker, "_sweep", lambda self: None),
    "no outcomes": lambda patch: patch.setattr(log.LogChecker, "_check_outcomes", lambda self: None),
}


@pytest.mark.parametrize("weaken", WEAKENINGS.values(), ids=WEAKENINGS)
def test_these_histories_expose_a_wrong_checker(weaken: Weakening, monkeypatch: pytest.MonkeyPatch) -> None:
    weaken(monkeypatch)
    assert disagrees()


# The linearizer alone: the histories that it accepts and rejects


def linear(draft: Draft) -> bool:
    return is_linearizable(operations(draft.events()))


def commits(*given: tuple[str, int, int, int | None, events.Answer | None]) -> Draft:
    draft = Draft()
    for attempt, version, invoked, answered, answer in given:
        draft.ask("w", invoked, answered, events.Commit(version=version, attempt=attempt), answer)
    return draft


def test_brute_force_finds_the_order_of_overlapping_requests() -> None:
    draft = commits(
        ("b", 1, 0, 9, events.Ratified(version=1)),
        ("a", 0, 0, 9, events.Ratified(version=0)),
        ("x", 1, 0, 9, Conflict(latest=1)),
        ("y", 1, 0, 9, Gap(latest=-1)),
    )
    draft.log = [Version("a"), Version("b")]
    assert linear(draft)
    draft.asked[0].answered = 3
    draft.asked[1].invoked = 4
    assert not linear(draft)


def test_brute_force_lets_an_unanswered_request_land_later_or_never() -> None:
    draft = commits(("a", 0, 0, 1, events.Unknown()), ("x", 0, 5, 6, Conflict()))
    assert not linear(draft)
    draft.log = [Version("a")]
    assert linear(draft)
    draft.asked.pop()
    draft.log = []
    assert linear(draft)


def test_brute_force_rejects_a_commit_after_its_tombstone() -> None:
    draft = commits(("a", 0, 0, None, None), ("a", 0, 5, 6, events.Rejected()))
    draft.ask("w", 2, 3, events.AttemptOutcome(attempt="a"), events.NotLanded())
    assert linear(draft)
    draft.log = [Version("a")]
    assert not linear(draft)


def test_brute_force_publishes_in_order_without_a_request() -> None:
    draft = commits(("a", 0, 0, 1, events.Ratified(version=0)), ("b", 1, 0, 1, events.Ratified(version=1)))
    draft.log = [Version("a"), Version("b")]
    draft.looked = [
        DraftListing(since=2, at=2, absent=[0]),
        DraftListing(since=4, at=4, published=[1]),
        DraftListing(5, 5, published=[0]),
    ]
    assert linear(draft)
    draft.looked[2] = DraftListing(5, 5, absent=[0])
    assert not linear(draft)
