"""Histories of correct owners and clients, each of which uses a freedom that must never be flagged."""

from __future__ import annotations

from collections.abc import Callable

from conformance.history import digests, events
from conformance.history.events import (
    AttemptOutcome,
    BackfillToVersion,
    Cleanup,
    Commit,
    Commits,
    Conflict,
    CreateTable,
    Done,
    Entry,
    Fault,
    Gap,
    GetCommits,
    HandBack,
    Landed,
    NotLanded,
    Ratified,
    Rejected,
    Snapshot,
    SnapshotRead,
    Table,
    TakeOver,
    Unknown,
)
from spec_tests.conformance.drafts import Draft, Looked, Version

STAGED = digests.of_file(b'{"commitInfo":{"inCommitTimestamp":1}}\n{"add":{"path":"part-00000.parquet"}}\n')
PROPOSED = digests.of_file(b'{"commitInfo":{"inCommitTimestamp":2}}\n{"add":{"path":"part-00001.parquet"}}\n')
REFORMATTED = digests.of_file(b'{"commitInfo": {"inCommitTimestamp": 2}}\n{"add": {"path": "part-00001.parquet"}}\n')


def race_on_version_0() -> Draft:
    """Two creators of one table; one wins, the other learns who did, and commits version 1."""
    draft = Draft(subject="a correct owner", log=[Version("left"), Version("third")])
    draft.ask("left", 1, 4, CreateTable(attempt="left"), Ratified(version=0))
    draft.ask(
        "right", 2, 5, CreateTable(attempt="right"), Conflict(latest=0, winners=(Entry(version=0, attempt="left"),))
    )
    draft.ask("right", 6, 7, Commit(version=1, attempt="third"), Ratified(version=1))
    draft.ask("reader", 8, 9, GetCommits(), Commits(latest=1, commits=(Entry(version=0), Entry(version=1))))
    return draft


def unknown_outcome_resolved() -> Draft:
    """An answer is lost; the writer asks what became of its attempt, and goes on after it."""
    draft = Draft(subject="a correct owner", before=1, log=[Version("old"), Version("first"), Version("second")])
    draft.profiles = {"attempt-outcome", "idempotent-retry"}
    draft.ask("writer", 1, 3, Commit(version=1, attempt="first"), Unknown(reason="timeout"))
    draft.faults.append(Fault(at=2, kind="lost answer", client="writer"))
    draft.ask("writer", 4, 5, AttemptOutcome(attempt="first"), Landed(version=1))
    draft.ask("writer", 6, 7, Commit(version=2, attempt="second"), Ratified(version=2))
    draft.ask("writer", 8, 9, Commit(version=1, attempt="first"), Ratified(version=1))
    return draft


def delayed_request_meets_its_tombstone() -> Draft:
    """A request is delayed past the question what became of it: it was said that it never lands, and it does not."""
    draft = Draft(subject="a correct owner", before=1, log=[Version("old"), Version("other")])
    draft.profiles = {"attempt-outcome"}
    draft.ask("slow", 1, None, Commit(version=1, attempt="delayed"), None)
    draft.ask("slow", 2, 3, AttemptOutcome(attempt="delayed"), NotLanded())
    draft.ask("quick", 4, 5, Commit(version=1, attempt="other"), Ratified(version=1))
    draft.ask("slow", 6, 7, Commit(version=1, attempt="delayed"), Rejected(reason="resolved as not landed"))
    return draft


def tombstone_and_conflict_computed_anew() -> Draft:
    """The same, but the version is taken meanwhile, and the owner looks at versions first: a conflict is as good."""
    draft = Draft(subject="a correct owner", before=1, log=[Version("old"), Version("other")])
    draft.profiles = {"attempt-outcome"}
    draft.ask("slow", 1, None, Commit(version=1, attempt="delayed"), None)
    draft.ask("slow", 2, 3, AttemptOutcome(attempt="delayed"), NotLanded())
    draft.ask("quick", 4, 5, Commit(version=1, attempt="other"), Ratified(version=1))
    draft.ask("slow", 6, 7, Commit(version=1, attempt="delayed"), Conflict(latest=1))
    return draft


def replay_answered_both_ways() -> Draft:
    """Without the profile idempotent-retry, a replay may be ratified once and a conflict another time."""
    draft = Draft(subject="an owner without idempotent-retry", before=1, log=[Version("old"), Version("first")])
    draft.ask("writer", 1, 2, Commit(version=1, attempt="first"), Ratified(version=1))
    draft.ask("writer", 3, 4, Commit(version=1, attempt="first"), Conflict())
    draft.ask("writer", 5, 6, Commit(version=1, attempt="first"), Ratified(version=1))
    return draft


def gap_then_success() -> Draft:
    """A gap is not remembered: the same attempt lands once the version before it is there."""
    draft = Draft(subject="a correct owner", before=1, log=[Version("old"), Version("first"), Version("second")])
    draft.ask("eager", 1, 2, Commit(version=2, attempt="second"), Gap(latest=0))
    draft.ask("writer", 3, 4, Commit(version=1, attempt="first"), Ratified(version=1))
    draft.ask("eager", 5, 6, Commit(version=2, attempt="second"), Ratified(version=2))
    return draft


def late_backfill() -> Draft:
    """Commits are published long after they are ratified, in order, and are listed a while longer."""
    draft = Draft(subject="a correct owner", before=1, log=[Version("old"), Version("first"), Version("second")])
    draft.ask("writer", 1, 2, Commit(version=1, attempt="first"), Ratified(version=1))
    draft.ask("writer", 3, 4, Commit(version=2, attempt="second"), Ratified(version=2))
    listed = (Entry(version=1, attempt="first"), Entry(version=2, attempt="second"))
    draft.ask("reader", 5, 6, GetCommits(), Commits(latest=2, commits=listed))
    draft.looked.append(Looked(since=7, at=8, published=[0], absent=[1, 2]))
    draft.ask("maintenance", 9, 12, BackfillToVersion(version=1), Done())
    draft.looked.append(Looked(since=10, at=11, published=[0, 1]))
    draft.ask("reader", 13, 14, GetCommits(), Commits(latest=2, commits=listed))
    draft.looked.append(Looked(since=15, at=16, published=[0, 1], absent=[2]))
    return draft


def listing_is_not_one_moment() -> Draft:
    """One listing shows version 2 and not version 1, which were both published while it went on."""
    draft = Draft(subject="a correct owner", before=1, log=[Version("old"), Version("first"), Version("second")])
    draft.ask("writer", 1, 2, Commit(version=1, attempt="first"), Ratified(version=1))
    draft.ask("writer", 3, 4, Commit(version=2, attempt="second"), Ratified(version=2))
    draft.looked.append(Looked(since=5, at=9, published=[0, 2], absent=[1]))
    return draft


def no_claim_of_minus_one() -> Draft:
    """A managedCommit owner that never accepted a staged commit answers -1 for a table it has just taken over."""
    draft = Draft(subject="a managedCommit owner", feature="managedCommit", before=2)
    draft.log = [Version("old-0", direct=True), Version("old-1", direct=True), Version("change", direct=True)]
    draft.ask("operator", 1, 2, TakeOver(version=2, attempt="change"), Ratified(version=2))
    draft.ask("reader", 3, 4, GetCommits(), Commits(latest=-1))
    return draft


def direct_publish_not_noticed_yet() -> Draft:
    """A commit by put-if-absent counts as soon as it is visible; the owner may learn of it later."""
    draft = Draft(subject="a catalog without a server", before=1, log=[Version("old"), Version("new", direct=True)])
    draft.ask("writer", 1, 2, Commit(version=1, attempt="new"), Ratified(version=1))
    draft.looked.append(Looked(since=3, at=4, published=[0, 1]))
    draft.ask("reader", 5, 6, events.LoadTable(), Table(latest=0))
    draft.ask("reader", 7, 8, events.LoadTable(), Table(latest=1))
    return draft


def inline_commit_published_in_another_format() -> Draft:
    """Of a staged commit the bytes count, of an inline one the actions."""
    draft = Draft(subject="a catalog that stores actions", log=[Version("staged"), Version("inline")])
    inline = events.Content(actions=PROPOSED.actions)
    draft.ask("writer", 1, 2, Commit(version=0, attempt="staged", content=STAGED), Ratified(version=0))
    draft.ask("writer", 3, 4, Commit(version=1, attempt="inline", content=inline), Ratified(version=1))
    listed = (Entry(version=0, attempt="staged"), Entry(version=1, content=inline))
    draft.ask("reader", 5, 6, GetCommits(), Commits(latest=1, commits=listed))
    draft.looked.append(Looked(since=7, at=8, published=[0, 1], contents={0: STAGED, 1: REFORMATTED}))
    return draft


def stale_reader_by_path() -> Draft:
    """A reader of published files only is behind, and says so; no promise excludes that."""
    draft = Draft(subject="a managedCommit reader", feature="managedCommit", before=1)
    draft.log = [Version("old"), Version("first")]
    draft.ask("writer", 1, 2, Commit(version=1, attempt="first"), Ratified(version=1))
    draft.ask("reader", 3, 4, Snapshot(by_path=True), SnapshotRead(version=0, stale=True))
    draft.ask("reader", 5, 6, Snapshot(), SnapshotRead(version=1))
    return draft


def hand_back() -> Draft:
    """Everything is published, then the table goes back to the filesystem; cleanup removes the oldest commits."""
    draft = Draft(subject="a managedCommit owner", feature="managedCommit", before=1)
    draft.log = [Version("old"), Version("first"), Version("farewell", direct=True)]
    draft.ask("writer", 1, 2, Commit(version=1, attempt="first"), Ratified(version=1))
    draft.ask("operator", 3, 6, HandBack(version=2, attempt="farewell"), Ratified(version=2))
    draft.ask("writer", 4, 7, Commit(version=2, attempt="loser"), Conflict(latest=2))
    draft.looked.append(Looked(since=8, at=9, published=[0, 1, 2]))
    draft.ask("maintenance", 10, 12, Cleanup(), Done())
    draft.looked.append(Looked(since=11, at=13, published=[2], absent=[0, 1]))
    return draft


ALL: list[Callable[[], Draft]] = [
    race_on_version_0,
    unknown_outcome_resolved,
    delayed_request_meets_its_tombstone,
    tombstone_and_conflict_computed_anew,
    replay_answered_both_ways,
    gap_then_success,
    late_backfill,
    listing_is_not_one_moment,
    no_claim_of_minus_one,
    direct_publish_not_noticed_yet,
    inline_commit_published_in_another_format,
    stale_reader_by_path,
    hand_back,
]
