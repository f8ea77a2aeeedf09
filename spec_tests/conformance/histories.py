"""The histories in `fixtures/histories`: bad ones in which one thing went wrong, most of them in the shape of a bug of
a real owner or client, and good ones that use a freedom."""

from __future__ import annotations

from collections.abc import Callable

from conformance.checkers.rules import Rule
from conformance.history import digests, events
from conformance.history.events import (
    AttemptOutcome,
    BackfillToVersion,
    Cleanup,
    Commit,
    Commits,
    Committed,
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
    Promise,
    Ratified,
    Rejected,
    Snapshot,
    SnapshotRead,
    Table,
    TakeOver,
    Transact,
    Unknown,
)
from spec_tests.conformance.drafts import Draft, Looked, Version

ONE = digests.of_file(b'{"commitInfo":{"inCommitTimestamp":1}}\n{"add":{"path":"part-00000.parquet"}}\n')
ANOTHER = digests.of_file(b'{"commitInfo":{"inCommitTimestamp":1}}\n{"add":{"path":"part-00001.parquet"}}\n')


def _table(*attempts: str, subject: str, **changes: object) -> Draft:
    """A table whose version 0 is old."""
    draft = Draft(subject=subject, before=1, log=[Version("old"), *(Version(attempt) for attempt in attempts)])
    for name, value in changes.items():
        setattr(draft, name, value)
    return draft


def two_winners_of_one_version() -> Draft:
    """A rename that overwrites: both writers are answered that they won version 1, one commit is gone."""
    draft = _table("right", subject="local rename overwrites")
    draft.ask("left", 1, 4, Commit(version=1, attempt="left"), Ratified(version=1))
    draft.ask("right", 2, 5, Commit(version=1, attempt="right"), Ratified(version=1))
    return draft


def lost_on_restart() -> Draft:
    """An acknowledged commit was not durable; after the crash its version is given to another writer."""
    draft = _table("second", subject="no fsync")
    draft.ask("writer", 1, 2, Commit(version=1, attempt="first"), Ratified(version=1))
    draft.faults.append(events.Fault(at=3, kind="power cut"))
    draft.ask("other", 4, 5, Commit(version=1, attempt="second"), Ratified(version=1))
    return draft


def blind_retry_commits_twice() -> Draft:
    """A client loses an answer and tries again at the next version: its rows are there twice."""
    draft = _table("job", "job", subject="client that retries blindly")
    draft.ask("client", 1, 6, Transact(attempt="job"), Committed(version=2))
    draft.faults.append(events.Fault(at=3, kind="lost answer", client="client"))
    return draft


def failed_and_yet_there() -> Draft:
    """The commit landed, publishing it failed, and the answer said that nothing happened."""
    draft = _table("first", subject="backfill error answered as a failed commit")
    draft.ask("writer", 1, 2, Commit(version=1, attempt="first"), events.Rejected(reason="i/o error"))
    return draft


def unknown_attempt_in_the_log() -> Draft:
    """A version that no request proposed: a stray staged file was taken for a commit."""
    draft = _table("first", "stray", subject="stray staged file")
    draft.ask("writer", 1, 2, Commit(version=1, attempt="first"), Ratified(version=1))
    return draft


def ratified_as_another_version() -> Draft:
    """The owner moves a proposal to the next free version instead of answering with a conflict."""
    draft = _table("first", "second", subject="owner that rebases by itself")
    draft.ask("left", 1, 2, Commit(version=1, attempt="first"), Ratified(version=1))
    draft.ask("right", 3, 4, Commit(version=1, attempt="second"), Ratified(version=2))
    return draft


def first_commit_of_any_version() -> Draft:
    """The first commit of an empty log is accepted at version 5: there is no version before it."""
    draft = Draft(subject="first commit may have any version", log=[Version("first")], first=5)
    draft.ask("writer", 1, 2, Commit(version=5, attempt="first"), Ratified(version=5))
    return draft


def replay_answered_as_conflict() -> Draft:
    """With the profile idempotent-retry: after publication the owner no longer knows whose version 1 is."""
    draft = _table("first", subject="replay unknown after backfill", profiles={"idempotent-retry"})
    draft.ask("writer", 1, 2, Commit(version=1, attempt="first"), Ratified(version=1))
    draft.ask("maintenance", 3, 4, BackfillToVersion(version=1), Done())
    draft.ask("writer", 5, 6, Commit(version=1, attempt="first"), Conflict(latest=1))
    return draft


def delayed_request_lands_after_its_tombstone() -> Draft:
    """The owner answered that the attempt never lands; the writer rebased, and then the delayed request arrived."""
    draft = _table("delayed", "again", subject="tombstone not kept", profiles={"attempt-outcome"})
    draft.ask("writer", 1, None, Commit(version=1, attempt="delayed"), None)
    draft.ask("writer", 2, 3, AttemptOutcome(attempt="delayed"), NotLanded())
    draft.ask("writer", 4, 5, Commit(version=2, attempt="again"), Ratified(version=2))
    return draft


def tombstone_forgotten() -> Draft:
    """An owner that promises to look at tombstones first answers a resolved attempt with a gap, as if it were new."""
    draft = _table(subject="tombstone not looked at first", promises={Promise.TOMBSTONE_FIRST})
    draft.ask("writer", 1, None, Commit(version=2, attempt="early"), None)
    draft.ask("writer", 2, 3, AttemptOutcome(attempt="early"), NotLanded())
    draft.ask("writer", 4, 5, Commit(version=2, attempt="early"), Gap(latest=0))
    return draft


def conflict_tells_an_older_latest() -> Draft:
    """A conflict at version 1 that says that the latest version is 0: the client would propose 1 again and again."""
    draft = _table("first", subject="conflict from a stale replica")
    draft.ask("left", 1, 2, Commit(version=1, attempt="first"), Ratified(version=1))
    draft.ask("right", 3, 4, Commit(version=1, attempt="second"), Conflict(latest=0))
    return draft


def list_and_latest_of_two_states() -> Draft:
    """The list was read after a commit, the latest version before it."""
    draft = _table("first", subject="two reads without a transaction")
    draft.ask("writer", 1, 4, Commit(version=1, attempt="first"), Ratified(version=1))
    listed = (Entry(version=0, attempt="old"), Entry(version=1, attempt="first"))
    draft.ask("reader", 2, 5, GetCommits(), Commits(latest=0, commits=listed))
    return draft


def winner_named_wrongly() -> Draft:
    """A conflict names a winner that is not the one in the log."""
    draft = _table("first", subject="eventually consistent read after a lost race")
    draft.ask("left", 1, 4, Commit(version=1, attempt="first"), Ratified(version=1))
    winners = (Entry(version=1, attempt="right"),)
    draft.ask("right", 2, 5, Commit(version=1, attempt="right"), Conflict(latest=1, winners=winners))
    return draft


def ratified_out_of_order() -> Draft:
    """Version 2 is acknowledged before anybody has proposed version 1."""
    draft = _table("first", "second", subject="no check of the version before")
    draft.ask("eager", 1, 2, Commit(version=2, attempt="second"), Ratified(version=2))
    draft.ask("writer", 3, 4, Commit(version=1, attempt="first"), Ratified(version=1))
    return draft


def conflict_before_anybody_won() -> Draft:
    """A version is called taken while it was free: the winner's request came later."""
    draft = _table("second", subject="reservation answered as a conflict")
    draft.ask("left", 1, 2, Commit(version=1, attempt="first"), Conflict())
    draft.ask("right", 3, 4, Commit(version=1, attempt="second"), Ratified(version=1))
    return draft


def conflict_at_a_version_that_never_was() -> Draft:
    """A conflict without a winner: the client retries without end, and leaves one orphan file per try."""
    draft = _table(subject="owner says conflict and lists nothing")
    draft.ask("writer", 1, 2, Commit(version=1, attempt="first"), Conflict())
    draft.ask("writer", 3, 4, Commit(version=1, attempt="second"), Conflict())
    return draft


def gap_without_a_missing_version() -> Draft:
    """The version before the proposed one was acknowledged, and is called missing."""
    draft = _table("first", subject="stale check of the version before")
    draft.ask("writer", 1, 2, Commit(version=1, attempt="first"), Ratified(version=1))
    draft.ask("writer", 3, 4, Commit(version=2, attempt="second"), Gap(latest=0))
    return draft


def fresh_read_misses_a_commit() -> Draft:
    """A reader asks after a commit was acknowledged, and gets the version before it."""
    draft = _table("first", subject="read from a replica")
    draft.ask("writer", 1, 2, Commit(version=1, attempt="first"), Ratified(version=1))
    draft.ask("reader", 3, 4, GetCommits(), Commits(latest=0, commits=(Entry(version=0, attempt="old"),)))
    return draft


def latest_goes_back() -> Draft:
    """Two reads, one after the other; the second returns an older latest version."""
    draft = _table("first", subject="two replicas")
    draft.ask("writer", 1, 9, Commit(version=1, attempt="first"), Ratified(version=1))
    draft.ask("reader", 2, 3, GetCommits(start=5), Commits(latest=1))
    draft.ask("reader", 4, 5, GetCommits(start=5), Commits(latest=0))
    return draft


def fresh_table_answers_minus_one() -> Draft:
    """catalogManaged: version 0 is acknowledged, and the latest version is -1."""
    draft = Draft(subject="fresh table answers -1", log=[Version("first")])
    draft.ask("writer", 1, 2, CreateTable(attempt="first"), Ratified(version=0))
    draft.ask("reader", 3, 4, GetCommits(), Commits(latest=-1))
    return draft


def refusal_from_a_cache() -> Draft:
    """An owner that promises fresh refusals tells the loser of an older latest version."""
    draft = _table("first", "second", subject="refusals from a cache", promises={Promise.FRESH_REFUSALS})
    draft.ask("left", 1, 2, Commit(version=1, attempt="first"), Ratified(version=1))
    draft.ask("left", 3, 4, Commit(version=2, attempt="second"), Ratified(version=2))
    draft.ask("right", 5, 6, Commit(version=1, attempt="third"), Conflict(latest=1))
    return draft


def reported_before_it_was_ratified() -> Draft:
    """A read returns version 1 before any client proposed it."""
    draft = _table("first", subject="counter incremented first")
    draft.ask("reader", 1, 2, GetCommits(start=5), Commits(latest=1))
    draft.ask("writer", 3, 4, Commit(version=1, attempt="first"), Ratified(version=1))
    return draft


def reported_version_does_not_exist() -> Draft:
    """A read returns version 1; the writer's request was lost, and there is no version 1."""
    draft = _table(subject="counter incremented first, then a crash")
    draft.ask("writer", 1, 3, Commit(version=1, attempt="first"), Unknown(reason="connection lost"))
    draft.ask("reader", 2, 4, GetCommits(start=5), Commits(latest=1))
    return draft


def published_before_it_was_proposed() -> Draft:
    """A file appears as version 1 before the request that makes it version 1."""
    draft = _table("first", subject="published from the staging folder")
    draft.looked.append(Looked(since=1, at=2, published=[0, 1]))
    draft.ask("writer", 3, 4, Commit(version=1, attempt="first"), Ratified(version=1))
    return draft


def published_out_of_order() -> Draft:
    """Version 2 is visible while version 1 is not: a reader by path finds a gap."""
    draft = _table("first", "second", subject="backfill without order")
    draft.ask("writer", 1, 2, Commit(version=1, attempt="first"), Ratified(version=1))
    draft.ask("writer", 3, 4, Commit(version=2, attempt="second"), Ratified(version=2))
    draft.looked.append(Looked(since=5, at=6, published=[0, 2]))
    draft.looked.append(Looked(since=7, at=8, published=[0, 2], absent=[1]))
    return draft


def published_then_gone() -> Draft:
    """A published commit disappears without a cleanup: it was not durable."""
    draft = _table("first", subject="directory not synced")
    draft.ask("writer", 1, 2, Commit(version=1, attempt="first"), Ratified(version=1))
    draft.looked.append(Looked(since=3, at=4, published=[0, 1]))
    draft.faults.append(events.Fault(at=5, kind="power cut"))
    draft.looked.append(Looked(since=6, at=7, published=[0], absent=[1]))
    return draft


def direct_commit_is_not_visible() -> Draft:
    """A commit by put-if-absent was acknowledged, and its file is not there."""
    draft = _table(subject="acknowledged before the link")
    draft.log.append(Version("first", direct=True))
    draft.ask("writer", 1, 2, Commit(version=1, attempt="first"), Ratified(version=1))
    draft.looked.append(Looked(since=3, at=4, published=[0], absent=[1]))
    draft.looked.append(Looked(since=5, at=6, published=[0, 1]))
    return draft


def forgotten_before_it_was_published() -> Draft:
    """The owner no longer lists version 1, and it is not published: no reader finds it."""
    draft = _table("first", "second", subject="forgets by age")
    draft.ask("writer", 1, 2, Commit(version=1, attempt="first"), Ratified(version=1))
    draft.ask("writer", 3, 4, Commit(version=2, attempt="second"), Ratified(version=2))
    draft.ask("reader", 5, 6, GetCommits(), Commits(latest=2, commits=(Entry(version=2, attempt="second"),)))
    draft.looked.append(Looked(since=7, at=8, published=[0], absent=[1, 2]))
    return draft


def backfill_answered_and_not_done() -> Draft:
    """A backfill to version 1 is answered as done, and version 1 is not published."""
    draft = _table("first", subject="backfill in the background")
    draft.ask("writer", 1, 2, Commit(version=1, attempt="first"), Ratified(version=1))
    draft.ask("maintenance", 3, 4, BackfillToVersion(version=1), Done())
    draft.looked.append(Looked(since=5, at=6, published=[0], absent=[1]))
    return draft


def handed_back_with_commits_left() -> Draft:
    """The table goes back to the filesystem, and version 1 is not published: it is lost to everybody."""
    draft = _table("first", subject="hand-back without backfill", feature="managedCommit")
    draft.log.append(Version("farewell"))
    draft.ask("writer", 1, 2, Commit(version=1, attempt="first"), Ratified(version=1))
    draft.ask("operator", 3, 4, HandBack(version=2, attempt="farewell"), Ratified(version=2))
    draft.looked.append(Looked(since=5, at=6, published=[0], absent=[1]))
    return draft


def checkpoint_of_an_unpublished_version() -> Draft:
    """A checkpoint of version 1 while version 1 is not published: readers by path take the table for damaged."""
    draft = _table("first", subject="maintenance that does not ask for a backfill")
    draft.ask("writer", 1, 2, Commit(version=1, attempt="first"), Ratified(version=1))
    draft.ask("maintenance", 3, 4, events.Checkpoint(version=1), Done())
    draft.looked.append(Looked(since=5, at=6, published=[0], absent=[1]))
    return draft


def reader_takes_staged_files() -> Draft:
    """A reader by path finds version 1 in the staging folder, where nothing says that it is a commit."""
    draft = _table("first", subject="recursive listing")
    draft.ask("writer", 1, 2, Commit(version=1, attempt="first"), Ratified(version=1))
    draft.ask("reader", 3, 4, Snapshot(by_path=True), SnapshotRead(version=1))
    draft.looked.append(Looked(since=5, at=6, published=[0], absent=[1]))
    return draft


def other_content_published() -> Draft:
    """The file existed, and the owner did not compare its content with what was ratified."""
    draft = _table("first", subject="already exists, accepted unseen")
    draft.ask("writer", 1, 2, Commit(version=1, attempt="first", content=ONE), Ratified(version=1))
    draft.looked.append(Looked(since=3, at=4, published=[0, 1], contents={1: ANOTHER}))
    return draft


BAD: list[tuple[tuple[Rule, ...], Callable[[], Draft]]] = [
    ((Rule.RATIFIED_BUT_LOST,), two_winners_of_one_version),
    ((Rule.RATIFIED_BUT_LOST,), lost_on_restart),
    ((Rule.LANDED_TWICE,), blind_retry_commits_twice),
    ((Rule.REFUSED_BUT_LANDED,), failed_and_yet_there),
    ((Rule.NOT_PROPOSED,), unknown_attempt_in_the_log),
    ((Rule.RATIFIED_ELSEWHERE,), ratified_as_another_version),
    ((Rule.LOG_HAS_GAP,), first_commit_of_any_version),
    ((Rule.REPLAY_REFUSED,), replay_answered_as_conflict),
    ((Rule.OUTCOME_WRONG,), delayed_request_lands_after_its_tombstone),
    ((Rule.TOMBSTONE_IGNORED,), tombstone_forgotten),
    ((Rule.REFUSAL_CONTRADICTS_ITSELF,), conflict_tells_an_older_latest),
    ((Rule.LISTED_BEYOND_LATEST,), list_and_latest_of_two_states),
    ((Rule.VERSION_CHANGED,), winner_named_wrongly),
    ((Rule.RATIFIED_OUT_OF_ORDER,), ratified_out_of_order),
    ((Rule.FALSE_CONFLICT,), conflict_before_anybody_won),
    ((Rule.FALSE_CONFLICT,), conflict_at_a_version_that_never_was),
    ((Rule.FALSE_GAP,), gap_without_a_missing_version),
    ((Rule.STALE_READ,), fresh_read_misses_a_commit),
    ((Rule.STALE_READ,), latest_goes_back),
    ((Rule.STALE_READ,), fresh_table_answers_minus_one),
    ((Rule.STALE_REFUSAL,), refusal_from_a_cache),
    ((Rule.REPORTED_TOO_EARLY,), reported_before_it_was_ratified),
    ((Rule.NEVER_RATIFIED,), reported_version_does_not_exist),
    ((Rule.PUBLISHED_TOO_EARLY,), published_before_it_was_proposed),
    ((Rule.PUBLISHED_OUT_OF_ORDER,), published_out_of_order),
    ((Rule.PUBLISHED_THEN_GONE,), published_then_gone),
    ((Rule.DIRECT_BUT_INVISIBLE,), direct_commit_is_not_visible),
    ((Rule.COMMIT_FORGOTTEN,), forgotten_before_it_was_published),
    ((Rule.BACKFILL_NOT_DONE,), backfill_answered_and_not_done),
    ((Rule.HANDED_BACK_UNPUBLISHED,), handed_back_with_commits_left),
    ((Rule.CHECKPOINT_UNPUBLISHED,), checkpoint_of_an_unpublished_version),
    ((Rule.READ_UNPUBLISHED,), reader_takes_staged_files),
    ((Rule.CONTENT_CHANGED,), other_content_published),
]


# Histories of correct owners and clients, each of which uses a freedom that must never be flagged

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


GOOD: list[Callable[[], Draft]] = [
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
