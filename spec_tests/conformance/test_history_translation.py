"""Messages of the shared interface, as a history names them."""

from __future__ import annotations

import pytest

from conformance.history import digests, events, translation
from conformance.interface import messages

ACTIONS = ('{"commitInfo":{"inCommitTimestamp":1}}', '{"add":{"path":"a"}}')
PROPOSED = events.Content(actions=digests.of_actions(ACTIONS))
COMMIT = messages.Commit(table="t", version=3, attempt="a", actions=ACTIONS)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (COMMIT, events.Commit(version=3, attempt="a", content=PROPOSED)),
        (
            messages.Commit(table="t", version=3, attempt="a", staged_file="3.a.json"),
            events.Commit(version=3, attempt="a"),
        ),
        (
            messages.HandBack(table="t", version=3, attempt="a", actions=ACTIONS),
            events.HandBack(version=3, attempt="a", content=PROPOSED),
        ),
        (messages.Transact(table="t", marker="m"), events.Transact(attempt="m")),
        (messages.Compact(table="t", start=1, end=3), events.Checkpoint(version=3)),
        (messages.AttemptOutcome(table="t", attempt="a"), events.AttemptOutcome(attempt="a")),
        (messages.GetCommits(table="t", start=1, end=2), events.GetCommits(start=1, end=2)),
        (messages.LoadTable(name="t"), events.LoadTable()),
        (messages.Snapshot(table="t", version=1), events.Snapshot(version=1)),
        (messages.BackfillToVersion(table="t", version=1), events.BackfillToVersion(version=1)),
        (messages.Checkpoint(table="t", version=1), events.Checkpoint(version=1)),
        (messages.Cleanup(table="t", older_than=1), events.Cleanup()),
        (messages.Remove(table="t", file="f"), events.Cleanup()),
        (messages.Plant(table="t", file="f", content=""), events.Other(name="plant f")),
        (messages.DropTable(table="t"), events.Other(name="drop_table")),
        (messages.Hello(), events.Other(name="hello")),
        (messages.Observe(table="t"), None),
    ],
)
def test_a_request_is_named(message: messages.Request, expected: events.Request | None) -> None:
    assert translation.request(message) == expected


def test_the_content_of_version_0_is_not_compared_with_its_proposal() -> None:
    """The subject may add what its table feature needs."""
    message = messages.CreateTable(
        name="t", feature="managedCommit", commit_mode="staged", attempt="a", actions=ACTIONS
    )
    assert translation.request(message) == events.CreateTable(attempt="a")


def test_actions_that_are_no_json_have_no_content() -> None:
    message = messages.Commit(table="t", version=3, attempt="a", actions=("{",))
    assert translation.request(message) == events.Commit(version=3, attempt="a")


ENTRY = messages.CommitEntry(version=2, file_name="00000000000000000002.uuid.json")


@pytest.mark.parametrize(
    ("asked", "answered", "expected"),
    [
        (COMMIT, messages.Ratified(version=3), events.Ratified(version=3)),
        (
            COMMIT,
            messages.Conflict(latest=3, winners=(ENTRY,)),
            events.Conflict(latest=3, winners=(events.Entry(version=2, attempt="uuid"),)),
        ),
        (COMMIT, messages.Gap(), events.Gap()),
        (COMMIT, messages.Rejected(reason="policy"), events.Rejected(reason="policy")),
        (COMMIT, messages.Unknown(reason="timeout"), events.Unknown(reason="timeout")),
        (COMMIT, messages.Landed(version=3), None),
        (COMMIT, messages.Ratified(version=-4), None),
        (COMMIT, messages.Conflict(latest=-2), None),
        (messages.AttemptOutcome(table="t", attempt="a"), messages.NotLanded(), events.NotLanded()),
        (
            messages.GetCommits(table="t"),
            messages.Commits(commits=(messages.CommitEntry(version=2, actions=ACTIONS),), latest=2),
            events.Commits(latest=2, commits=(events.Entry(version=2, content=PROPOSED),)),
        ),
        (
            messages.LoadTable(name="t"),
            messages.Table(table="t", feature="managedCommit", commit_mode="staged", latest=None),
            events.Table(latest=None),
        ),
        (
            messages.Snapshot(table="t"),
            messages.SnapshotRead(version=2, files=("a",), stale=True),
            events.SnapshotRead(version=2, stale=True),
        ),
        (messages.MaintenancePolicy(table="t"), messages.Policy(allowed=()), events.Done()),
        (messages.Transact(table="t", marker="m"), messages.Committed(version=1), events.Committed(version=1)),
        (
            messages.Transact(table="t", marker="m", if_needed=True),
            messages.Committed(version=None),
            events.Rejected(reason="nothing to commit"),
        ),
        (messages.Observe(table="t"), messages.Done(), None),
    ],
)
def test_an_answer_is_named_where_the_request_can_have_it(
    asked: messages.Request, answered: messages.Answer, expected: events.Answer | None
) -> None:
    assert translation.answer(asked, answered) == expected


def test_published_commits_are_found_among_files() -> None:
    names = [
        "00000000000000000007.json",
        "00000000000000000007.crc",
        "00000000000000000007.checkpoint.parquet",
        "_staged_commits/00000000000000000008.uuid.json",
        "8.json",
        "99999999999999999999.json",
        "_last_checkpoint",
    ]
    found = translation.published([messages.LogFile(name=name, size=2, content="{}") for name in names])
    assert [file.version for file in found] == [7]
    assert found[0].content == digests.of_file(b"{}")


def test_the_attempt_of_a_staged_file_is_in_its_name() -> None:
    assert translation.attempt_of("00000000000000000002.uuid.json") == "uuid"
    assert translation.attempt_of("_commits/00000000000000000002.uuid.json") == "uuid"
    assert translation.attempt_of("00000000000000000002.json") is None
