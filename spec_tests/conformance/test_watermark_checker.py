"""LOG_CHECKER.md#watermark: published is a prefix of ratified, and a list leaves out nothing else.

managed-commits, "Commit Backfills"; catalog-managed, "Publishing Commits". Held against brute force as well.
"""

from __future__ import annotations

import pytest

from conformance.checkers.rules import Rule
from conformance.history import events
from conformance.history.events import Done, Entry
from spec_tests.conformance.drafts import Asked, Draft, Looked, Version, asked, commit, log, read, rules, verdict_on


def two_commits(*looked: Looked, **changes: object) -> Draft:
    """Versions 0 and 1, ratified at 1 and at 3."""
    draft = Draft(log=log("a", "b"), asked=[commit("a", 0, 0, 1), commit("b", 1, 2, 3)], looked=list(looked))
    for name, value in changes.items():
        setattr(draft, name, value)
    return draft


def seen(at: int, *published: int, absent: tuple[int, ...] = (), since: int | None = None) -> Looked:
    return Looked(since=at if since is None else since, at=at, published=list(published), absent=list(absent))


def test_a_visible_version_is_ratified_despite_a_stale_read() -> None:
    draft = two_commits(seen(4, 1))
    draft.asked[1] = commit("b", 1, 2, None)
    draft.asked.append(read(5, 6, 0))
    assert rules(draft) == [Rule.STALE_READ]


def test_a_published_version_stays_unless_cleaned_up() -> None:
    gone = two_commits(seen(5, 0), seen(7, absent=(0,)))
    assert rules(gone) == [Rule.PUBLISHED_THEN_GONE]
    gone.asked.append(asked("m", 6, 8, events.Cleanup(), Done()))
    assert rules(gone) == []
    gone.asked[-1] = asked("m", 8, 9, events.Cleanup(), Done())
    assert rules(gone) == [Rule.PUBLISHED_THEN_GONE]
    gone.asked.pop()
    gone.cleanup = True
    assert rules(gone) == []


def test_cleanup_may_overlap_the_listing() -> None:
    gone = two_commits(seen(5, 0), seen(7, absent=(0,)))
    gone.asked.append(asked("m", 7, None, events.Cleanup()))
    assert rules(gone) == []
    gone.asked[-1] = asked("m", 8, None, events.Cleanup())
    assert rules(gone) == [Rule.PUBLISHED_THEN_GONE]
    gone.skew = 1
    assert rules(gone) == []


def listing(at: int, latest: int, *versions: int, start: int | None = 0, end: int | None = None) -> Asked:
    commits = tuple(Entry(version=version) for version in versions)
    return asked("r", at, at, events.GetCommits(start=start, end=end), events.Commits(latest=latest, commits=commits))


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (listing(4, 1, 0, 1), []),
        (listing(4, 1, 1), [Rule.COMMIT_FORGOTTEN]),
        (listing(4, 1, 0), [Rule.COMMIT_FORGOTTEN]),
        (listing(4, 1), [Rule.COMMIT_FORGOTTEN]),
        (listing(4, 1, start=2), []),
        (listing(4, 1, 1, start=1), []),
        (listing(4, 1, 0, end=0), []),
        (listing(4, 1, end=0), [Rule.COMMIT_FORGOTTEN]),
        (asked("r", 4, 4, events.LoadTable(), events.Table(latest=1)), []),
        (asked("r", 4, 4, events.LoadTable(), events.Table(latest=1, commits=())), [Rule.COMMIT_FORGOTTEN]),
    ],
)
def test_unpublished_commits_of_the_range_are_listed(ask: Asked, expected: list[Rule]) -> None:
    """FB11, FB13: forgotten although nothing is published."""
    unpublished = two_commits(seen(6, absent=(0,)))
    unpublished.asked.append(ask)
    assert rules(unpublished) == expected
    published = two_commits(seen(4, 0, 1), seen(6, 0, 1))
    published.asked.append(ask)
    assert rules(published) == []


def backfill(to: int, invoked: int, answered: int | None) -> Asked:
    return asked("m", invoked, answered, events.BackfillToVersion(version=to), None if answered is None else Done())


def test_backfill_may_skip_later_commits() -> None:
    """Versions beyond the latest are no error, and commits go on meanwhile."""
    for invoked, expected in ((2, []), (3, []), (4, [Rule.BACKFILL_NOT_DONE])):
        draft = two_commits(seen(7, absent=(1,)))
        draft.asked.append(backfill(99, invoked, 5))
        assert rules(draft) == expected


@pytest.mark.parametrize(
    "witness",
    [
        asked("r", 4, 4, events.GetCommits(start=5), events.Commits(latest=1)),
        asked("x", 4, 4, events.Commit(version=1, attempt="x"), events.Conflict()),
        asked("o", 4, 4, events.AttemptOutcome(attempt="b"), events.Landed(version=1)),
    ],
)
def test_any_observation_proves_a_commit_before_the_backfill(witness: Asked) -> None:
    """The latest time that all upper bounds leave, not only the writer's own answer."""
    draft = two_commits(seen(9, absent=(1,)))
    draft.asked = [commit("a", 0, 0, 1), commit("b", 1, 2, None), backfill(1, 5, 6)]
    assert rules(draft) == []
    draft.asked.append(witness)
    assert rules(draft) == [Rule.BACKFILL_NOT_DONE]


def test_a_later_version_proves_the_earlier_ones() -> None:
    draft = Draft(log=log("a", "b"), asked=[commit("a", 0, 0, 9), commit("b", 1, 2, 3), backfill(0, 4, 5)])
    draft.looked = [seen(7, absent=(0,))]
    assert rules(draft) == [Rule.BACKFILL_NOT_DONE]


def test_ratification_is_inferred_in_any_order_of_answers() -> None:
    """Two slow answers, then a quick one for the version after: all three were ratified before it ended."""
    draft = Draft(
        log=log("a", "b", "c"),
        asked=[commit("a", 0, 0, 9), commit("b", 1, 0, 9), commit("c", 2, 2, 3), backfill(2, 4, 5)],
        looked=[seen(7, absent=(0,))],
    )
    assert rules(draft) == [Rule.BACKFILL_NOT_DONE]
    draft.asked[2] = commit("c", 2, 2, 4)
    assert rules(draft) == []


def test_a_published_file_proves_its_version_ratified() -> None:
    draft = Draft(log=log("a", "b"), asked=[commit("a", 0, 0, None), commit("b", 1, 0, None), backfill(1, 4, 5)])
    draft.looked = [seen(3, 0), seen(7, absent=(1,))]
    assert rules(draft) == []
    draft.looked = [seen(3, 0), seen(7, absent=(0,))]
    assert Rule.PUBLISHED_THEN_GONE in rules(draft)


def test_a_commit_by_put_if_absent_is_ratified_by_becoming_visible() -> None:
    """catalog-managed, "Commit Protocol", option 3."""
    direct = [Version("a", direct=True), Version("b", direct=True)]
    draft = two_commits(seen(4, absent=(1,)), log=direct)
    assert rules(draft) == [Rule.DIRECT_BUT_INVISIBLE]
    draft.looked = [seen(3, absent=(1,))]
    assert rules(draft) == []
    draft.looked = [seen(4, 1)]
    assert rules(draft) == []


def test_direct_commits_wait_for_earlier_publications() -> None:
    """managed-commits, "Commit Protocol": no backfilled commit until the previous one is backfilled."""
    draft = two_commits(seen(4, absent=(0,)), log=[Version("a"), Version("b", direct=True)])
    assert rules(draft) == [Rule.DIRECT_BUT_INVISIBLE]
    draft.log[1].direct = False
    assert rules(draft) == []


def test_a_later_version_proves_a_direct_commit_visible() -> None:
    draft = Draft(
        log=[Version("a", direct=True), Version("b")],
        asked=[commit("a", 0, 0, None), commit("b", 1, 1, 2)],
        looked=[seen(3, absent=(0,))],
    )
    assert rules(draft) == [Rule.DIRECT_BUT_INVISIBLE]
    draft.looked = [seen(3, absent=(1,))]
    assert rules(draft) == []


def test_old_direct_commits_are_visible() -> None:
    draft = Draft(log=[Version("old", direct=True)], before=1, looked=[seen(3, absent=(0,))])
    assert rules(draft) == [Rule.DIRECT_BUT_INVISIBLE]
    draft.log[0].direct = False
    assert rules(draft) == []


def test_direct_commits_are_already_published_for_backfill() -> None:
    draft = Draft(
        log=[Version("a"), Version("b", direct=True), Version("c")],
        asked=[commit("a", 0, 0, None), commit("b", 1, 0, None), commit("c", 2, 1, 2), backfill(0, 3, 4)],
    )
    draft.looked = [seen(5, 0, 1, absent=(2,))]
    assert rules(draft) == []


def test_several_clocks_leave_the_order_of_looks_open() -> None:
    draft = two_commits(seen(5, 1), seen(7, absent=(0,)))
    assert rules(draft) == [Rule.PUBLISHED_OUT_OF_ORDER]
    draft.skew = 2
    assert rules(draft) == []


def test_a_contradiction_names_the_look_and_the_answer() -> None:
    draft = two_commits(seen(6, 0, absent=(1,)))
    draft.asked.append(backfill(1, 4, 5))
    (violation,) = verdict_on(draft).violations
    assert [operation.id for operation in violation.operations] == [3, 2]
    assert "a look at the files (operation 3, 6..6: version 0 published, no version 1)" in violation.message
    assert "m's backfill_to_version at version 1 (operation 2, 4..5: done)" in violation.message
