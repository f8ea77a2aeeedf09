"""What a version says is what was proposed, and stays it: bytes for files, actions for inline commits.

catalog-managed, "Terminology: Commits" and "Publishing Commits": the content of a ratified commit is immutable.
"""

from __future__ import annotations

import pytest

from conformance.checkers.rules import Rule
from conformance.history import digests, events
from conformance.history.events import Content, Entry
from spec_tests.conformance.drafts import Draft, Looked, Version, rules, verdict_on

LINE = b'{"commitInfo":{"inCommitTimestamp":1,"operation":"WRITE"}}'
SPACED = b'{ "commitInfo": {"operation": "WRITE", "inCommitTimestamp": 1} }'
OTHER = b'{"commitInfo":{"inCommitTimestamp":2,"operation":"WRITE"}}'


def history(
    proposed: Content | None, listed_content: Content | None, seen: Content | None, kept: Content | None
) -> Draft:
    """One version, as it was proposed, listed, published, and kept by the recorder."""
    draft = Draft(log=[Version("a", content=kept)])
    draft.ask("w", 0, 1, events.Commit(version=0, attempt="a", content=proposed), events.Ratified(version=0))
    listed = (Entry(version=0, attempt="a", content=listed_content),)
    draft.ask("r", 2, 3, events.GetCommits(), events.Commits(latest=0, commits=listed))
    draft.looked = [Looked(since=4, at=5, published=[0], contents={} if seen is None else {0: seen})]
    return draft


SAME, FORMATTED, WRONG = digests.of_file(LINE + b"\n"), digests.of_file(SPACED + b"\n"), digests.of_file(OTHER + b"\n")
INLINE = Content(actions=SAME.actions)


def test_spaces_and_the_order_of_fields_are_of_the_bytes_only() -> None:
    assert SAME.bytes != FORMATTED.bytes
    assert SAME.actions == FORMATTED.actions == digests.of_actions([LINE.decode()])
    assert SAME.actions != WRONG.actions


def test_the_order_of_actions_and_their_numbers_count() -> None:
    assert digests.of_actions(["1", "2"]) != digests.of_actions(["2", "1"])
    assert digests.of_actions(["[1,2]"]) != digests.of_actions(["1", "2"])
    assert digests.of_actions(["1"]) != digests.of_actions(["1.0"])


def test_what_is_no_json_has_bytes_only() -> None:
    for content in (b"{", b"\xff", b"[" * 100_000):
        assert digests.of_file(content) == Content(bytes=digests.of_bytes(content))
    with pytest.raises(ValueError, match="nested"):
        digests.of_actions(["[" * 100_000])


def test_the_same_everywhere_is_conformant() -> None:
    assert rules(history(SAME, SAME, SAME, SAME)) == []
    assert rules(history(None, None, None, None)) == []


@pytest.mark.parametrize("wrong", range(4))
def test_one_that_differs_from_the_others_is_found_wherever_it_is(wrong: int) -> None:
    """FB45: "already exists" accepted without comparing; FB26: overwritten."""
    contents = [SAME] * 4
    contents[wrong] = WRONG
    assert set(rules(history(*contents))) == {Rule.CONTENT_CHANGED}


@pytest.mark.parametrize(("one", "other"), [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])
def test_any_two_places_are_compared(one: int, other: int) -> None:
    contents: list[Content | None] = [None] * 4
    contents[one], contents[other] = SAME, WRONG
    assert set(rules(history(*contents))) == {Rule.CONTENT_CHANGED}
    contents[other] = SAME
    assert rules(history(*contents)) == []


def test_staged_commits_keep_bytes_inline_ones_actions() -> None:
    assert set(rules(history(SAME, None, FORMATTED, None))) == {Rule.CONTENT_CHANGED}
    assert rules(history(INLINE, INLINE, FORMATTED, FORMATTED)) == []
    assert set(rules(history(INLINE, INLINE, WRONG, None))) == {Rule.CONTENT_CHANGED}


def test_a_published_file_never_changes_even_in_its_spaces() -> None:
    draft = history(INLINE, INLINE, SAME, None)
    draft.looked.append(Looked(since=6, at=7, published=[0], contents={0: FORMATTED}))
    verdict = verdict_on(draft)
    assert [violation.rule for violation in verdict.violations] == [Rule.CONTENT_CHANGED]
    assert [operation.id for operation in verdict.violations[0].operations] == [2, 3]


def test_of_two_contents_sent_for_one_attempt_either_may_stand() -> None:
    """An owner may take either content; a third content is a violation."""
    draft = history(SAME, None, WRONG, None)
    assert set(rules(draft)) == {Rule.CONTENT_CHANGED}
    draft.ask("w", 0, None, events.Commit(version=0, attempt="a", content=WRONG), None)
    assert rules(draft) == []


def test_content_of_a_losing_attempt_is_ignored() -> None:
    draft = history(SAME, SAME, SAME, SAME)
    draft.ask("x", 2, 3, events.Commit(version=0, attempt="x", content=WRONG), events.Conflict())
    assert rules(draft) == []
