"""The checkers agree with brute force: on histories in which both verdicts and every kind of answer are frequent, and
on cases that neither these nor `fixtures/histories` contain (LOG_CHECKER.md).

`python -m spec_tests.conformance.prove --histories 200000 --seed 1` compares many more. These tests compare a seeded
part of them, and show that this part is enough to notice a wrong checker.
"""

from collections.abc import Callable

import msgspec
import pytest

from conformance.history import digests, events
from conformance.history.events import Conflict, Content, Done, Entry, Promise
from conformance.history_checkers import bounds, watermark
from conformance.history_checkers.bounds import MOST_CONTRADICTIONS
from conformance.history_checkers.check import check_events, check_file
from conformance.history_checkers.columns import HistoryColumns, Rows
from conformance.history_checkers.log import IDEMPOTENT_RETRY, LogChecker
from conformance.history_checkers.rules import Rule
from spec_tests.conformance import prove
from spec_tests.conformance.simulated_histories import (
    CASES,
    FOLDER,
    Case,
    Draft,
    DraftListing,
    DraftOperation,
    Version,
    asked,
    commit,
    log,
    read,
    rules,
    verdict_on,
)
from spec_tests.support.sampling import sampled

SLICE = 1500
SEED = 1


@pytest.mark.parametrize("part", sampled([0, 1], 2))
def test_the_checkers_agree_with_brute_force(part: int) -> None:
    """LOG_CHECKER.md#brute-force: compared on simulated histories, changed and unchanged."""
    figures = prove.compare(SEED, range(part * SLICE, (part + 1) * SLICE))
    assert figures.disagreements == []
    verdicts = figures.counts["verdict"]
    assert verdicts.total() == SLICE
    assert verdicts["conformant"] > SLICE * 0.4
    assert verdicts["violation"] > SLICE * 0.2
    kinds = {str(kind.__struct_config__.tag) for kind in (*events.Success.__args__, *events.Refusal.__args__)}
    assert {kind for kind in kinds if figures.counts["answer"][kind] < 10} == set()
    assert len(figures.counts["rule"]) >= 22


def disagrees() -> bool:
    """Whether a wrong checker gives another verdict on one of the histories."""
    return any(prove.compare(9, range(first, first + 100)).disagreements for first in range(0, SLICE, 100))


Weakening = Callable[[pytest.MonkeyPatch], None]


def any_send_counts(patch: pytest.MonkeyPatch) -> None:
    """Without "among those": every request of an attempt may have landed it, even a rejected one."""
    original = LogChecker._place_sends

    def place(self: LogChecker) -> None:
        original(self)
        for rows in (self.table.conflicts, self.table.gaps, self.table.refused):
            for attempt, version, invoked in zip(rows.attempt, rows.version, rows.invoked, strict=True):
                index = version - self.window.base
                if 0 <= index < self.window.length and self.log[index] == attempt:
                    self.first_sent[index] = min(self.first_sent[index], invoked)

    patch.setattr(LogChecker, "_place_sends", place)


def replays_always_refused(patch: pytest.MonkeyPatch) -> None:
    """Without the rule on replays: a conflict for a landed attempt is always a violation, whatever the profile."""
    original = LogChecker.__init__

    def initialize(self: LogChecker, *arguments: object) -> None:
        original(self, *arguments)  # type: ignore[arg-type]
        self.header = msgspec.structs.replace(self.header, profiles=(IDEMPOTENT_RETRY,))

    patch.setattr(LogChecker, "__init__", initialize)


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
    "no sweep": lambda patch: patch.setattr(LogChecker, "_sweep", lambda self: None),
    "no outcomes": lambda patch: patch.setattr(LogChecker, "_check_outcomes", lambda self: None),
}


@pytest.mark.parametrize("weaken", WEAKENINGS.values(), ids=WEAKENINGS)
def test_these_histories_expose_a_wrong_checker(weaken: Weakening, monkeypatch: pytest.MonkeyPatch) -> None:
    weaken(monkeypatch)
    assert disagrees()


# Single cases


def race(**changes: object) -> Draft:
    """`a` wins version 0; `b` gets a conflict and then commits version 1."""
    draft = Draft(
        log=log("a", "b"),
        asked=[commit("a", 0, 0, 3), commit("x", 0, 1, 4, Conflict(latest=0)), commit("b", 1, 5, 6), read(7, 8, 1)],
    )
    for name, value in changes.items():
        setattr(draft, name, value)
    return draft


def test_disagreeing_answers_are_reported_together() -> None:
    draft = race()
    for at, attempt in ((10, "a"), (12, "z")):
        listed = events.Commits(latest=1, commits=(Entry(version=0, attempt=attempt), Entry(version=1)))
        draft.ask("r", at, at, events.GetCommits(), listed)
    verdict = verdict_on(draft)
    assert [violation.rule for violation in verdict.violations] == [Rule.VERSION_CHANGED]
    assert len(verdict.violations[0].operations) == 2


def test_managed_commit_readers_may_skip_the_owner() -> None:
    """managed-commits, "Reading managed-commit tables": a reader has two choices. FB01, FB02 concern readers that ask
    the owner.
    """
    draft = race(feature="managedCommit")
    draft.ask("r", 9, 10, events.Snapshot(), events.SnapshotRead(version=0))
    assert rules(draft) == []
    draft.promises = {Promise.FRESH_SNAPSHOTS}
    assert rules(draft) == [Rule.STALE_READ]
    draft.asked[-1].answer = events.SnapshotRead(version=1)
    assert rules(draft) == []


def test_versions_before_the_history_may_lack_attempts() -> None:
    draft = Draft(first=6, before=1, log=log("o", "a"))
    draft.asked = [commit("a", 7, 0, 1), commit("x", 5, 0, 1, Conflict()), read(2, 3, 7)]
    source = draft.events()
    source[-3] = events.Witness(table="orders", version=6, before=True)
    assert check_events(source).conformant
    source[-2] = events.Witness(table="orders", version=7, attempt="z")
    assert [violation.rule for violation in check_events(source).violations] == [
        Rule.RATIFIED_BUT_LOST,
        Rule.NOT_PROPOSED,
    ]


def test_several_tables_are_judged_separately() -> None:
    """Two operations contradict each other in one table. On two tables, the same operations do not."""
    draft = Draft(log=log("a"), asked=[commit("a", 0, 0, 1), read(2, 3, -1)])
    source = draft.events()
    assert not check_events(source).conformant
    asking = next(event for event in source if isinstance(event, events.Invoke) and event.client == "reader")
    source[source.index(asking)] = msgspec.structs.replace(asking, table="customers")
    footer = source[-1]
    assert isinstance(footer, events.Footer)
    source[-1] = msgspec.structs.replace(footer, tables={"orders": 1, "customers": 0})
    verdict = check_events(source)
    assert verdict.conformant
    assert verdict.tables == {"orders": 1, "customers": 0}


def test_a_contradiction_names_both_operations() -> None:
    """The message has facts and numbers: the request, its times and its answer."""
    draft = race()
    draft.asked[3] = read(7, 8, 0)
    (violation,) = verdict_on(draft).violations
    assert violation.rule is Rule.STALE_READ
    assert violation.requirement == Rule.STALE_READ.meaning
    assert (violation.table, violation.version) == ("orders", 1)
    assert "reader's get_commits" in violation.message
    assert "operation 3, events 7 to 8, answer: commits, latest 0" in violation.message
    assert (
        "writer's commit of version 1 as attempt b (operation 2, events 5 to 6, answer: ratified, version 1)"
        in violation.message
    )
    assert [operation.id for operation in violation.operations] == [3, 2]


def wrong_everywhere(versions: int) -> Draft:
    """Each version is denied after it was acknowledged, and each replay is rejected."""
    draft = Draft(log=log(*(f"a{version}" for version in range(versions))), profiles={"idempotent-retry"})
    for version in range(versions):
        draft.asked.append(commit(f"a{version}", version, 10 * version, 10 * version + 1))
        draft.asked.append(read(10 * version + 2, 10 * version + 3, version - 1))
        draft.asked.append(commit(f"a{version}", version, 10 * version + 4, 10 * version + 5, Conflict()))
        draft.asked.append(commit(f"b{version}", version, 10 * version + 6, 10 * version + 7))
    return draft


def test_only_a_few_of_many_contradictions_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """An explanation reads the whole history. Therefore only a few are given; the other violations are counted."""
    looks: list[int] = []
    original = bounds.earliest

    def counted(groups: object, window: object, index: int) -> object:
        looks.append(index)
        return original(groups, window, index)  # type: ignore[arg-type]

    monkeypatch.setattr(bounds, "earliest", counted)
    verdict = check_events(wrong_everywhere(300).events())
    assert {violation.rule for violation in verdict.violations} == {
        Rule.STALE_READ,
        Rule.REPLAY_REFUSED,
        Rule.RATIFIED_BUT_LOST,
    }
    assert len(looks) <= MOST_CONTRADICTIONS
    assert len(verdict.violations) + verdict.left_out == 3 * 300


# The watermark: the published versions are a prefix of the ratified ones, and a list omits only published versions


def two_commits(*looked: DraftListing, **changes: object) -> Draft:
    """Versions 0 and 1, ratified at times 1 and 3."""
    draft = Draft(log=log("a", "b"), asked=[commit("a", 0, 0, 1), commit("b", 1, 2, 3)], looked=list(looked))
    for name, value in changes.items():
        setattr(draft, name, value)
    return draft


def seen(at: int, *published: int, absent: tuple[int, ...] = (), since: int | None = None) -> DraftListing:
    return DraftListing(since=at if since is None else since, at=at, published=list(published), absent=list(absent))


def backfill(to: int, invoked: int, answered: int | None) -> DraftOperation:
    return asked("m", invoked, answered, events.BackfillToVersion(version=to), None if answered is None else Done())


def test_a_contradiction_names_the_observation_and_the_answer() -> None:
    draft = two_commits(seen(6, 0, absent=(1,)))
    draft.asked.append(backfill(1, 4, 5))
    (violation,) = verdict_on(draft).violations
    assert [operation.id for operation in violation.operations] == [3, 2]
    assert "a listing (operation 3, events 6 to 6: version 0 published, no version 1)" in violation.message
    assert "m's backfill_to_version at version 1 (operation 2, events 4 to 5, answer: done)" in violation.message


# Content: a version keeps the proposed content, as bytes in files and as actions inline

LINE = b'{"commitInfo":{"inCommitTimestamp":1,"operation":"WRITE"}}'
SPACED = b'{ "commitInfo": {"operation": "WRITE", "inCommitTimestamp": 1} }'
OTHER = b'{"commitInfo":{"inCommitTimestamp":2,"operation":"WRITE"}}'


def history(
    proposed: Content | None, listed_content: Content | None, seen: Content | None, kept: Content | None
) -> Draft:
    """One version as proposed, listed, published, and kept by the recorder."""
    draft = Draft(log=[Version("a", content=kept)])
    draft.ask("w", 0, 1, events.Commit(version=0, attempt="a", content=proposed), events.Ratified(version=0))
    listed = (Entry(version=0, attempt="a", content=listed_content),)
    draft.ask("r", 2, 3, events.GetCommits(), events.Commits(latest=0, commits=listed))
    draft.looked = [DraftListing(since=4, at=5, published=[0], contents={} if seen is None else {0: seen})]
    return draft


SAME, FORMATTED, WRONG = digests.of_file(LINE + b"\n"), digests.of_file(SPACED + b"\n"), digests.of_file(OTHER + b"\n")
INLINE = Content(actions=SAME.actions)


def test_only_bytes_depend_on_spaces_and_field_order() -> None:
    assert SAME.bytes != FORMATTED.bytes
    assert SAME.actions == FORMATTED.actions == digests.of_actions([LINE.decode()])
    assert SAME.actions != WRONG.actions


def test_the_order_and_number_of_actions_matter() -> None:
    assert digests.of_actions(["1", "2"]) != digests.of_actions(["2", "1"])
    assert digests.of_actions(["[1,2]"]) != digests.of_actions(["1", "2"])
    assert digests.of_actions(["1"]) != digests.of_actions(["1.0"])


def test_content_that_is_no_json_is_compared_as_bytes() -> None:
    for content in (b"{", b"\xff", b"[" * 100_000):
        assert digests.of_file(content) == Content(bytes=digests.of_bytes(content))
    with pytest.raises(ValueError, match="nested"):
        digests.of_actions(["[" * 100_000])


def test_equal_content_everywhere_is_conformant() -> None:
    assert rules(history(SAME, SAME, SAME, SAME)) == []
    assert rules(history(None, None, None, None)) == []


@pytest.mark.parametrize(("first", "second"), [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])
def test_content_is_compared_between_any_two_places(first: int, second: int) -> None:
    """FB45: an owner accepted "already exists" without a comparison; FB26: an owner overwrote the file."""
    contents: list[Content | None] = [None] * 4
    contents[first], contents[second] = SAME, WRONG
    assert set(rules(history(*contents))) == {Rule.CONTENT_CHANGED}
    contents[second] = SAME
    assert rules(history(*contents)) == []


def test_staged_commits_keep_bytes_and_inline_commits_keep_actions() -> None:
    assert set(rules(history(SAME, None, FORMATTED, None))) == {Rule.CONTENT_CHANGED}
    assert rules(history(INLINE, INLINE, FORMATTED, FORMATTED)) == []
    assert set(rules(history(INLINE, INLINE, WRONG, None))) == {Rule.CONTENT_CHANGED}


def test_a_published_file_never_changes_even_in_its_spaces() -> None:
    draft = history(INLINE, INLINE, SAME, None)
    draft.looked.append(DraftListing(since=6, at=7, published=[0], contents={0: FORMATTED}))
    verdict = verdict_on(draft)
    assert [violation.rule for violation in verdict.violations] == [Rule.CONTENT_CHANGED]
    assert [operation.id for operation in verdict.violations[0].operations] == [2, 3]


# The fixtures

LONGEST = 18
"""The maximum number of lines of a fixture, so that a reader can take it in at once."""


def test_the_index_lists_every_fixture_once() -> None:
    assert [case.file for case in CASES] == list(dict.fromkeys(case.file for case in CASES))
    assert {case.path for case in CASES} == set(FOLDER.rglob("*.jsonl"))
    assert all(bool(case.violates) == case.file.startswith("bad/") for case in CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.file)
def test_a_fixture_has_its_verdict_and_is_short(case: Case) -> None:
    verdict = check_file(case.path)
    assert {violation.rule for violation in verdict.violations} == set(case.violates)
    assert verdict.header.note == case.about != ""
    assert len(case.path.read_bytes().splitlines()) <= LONGEST


def test_every_rule_has_a_fixture_that_violates_it_alone() -> None:
    assert {case.violates[0] for case in CASES if len(case.violates) == 1} == set(Rule)
