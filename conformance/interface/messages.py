"""Every request and every answer, as types. The JSON Schema of the wire is made from them.

A request is an object with `op`, the fields of its type, and around it an envelope: `id` (echoed in the
answer) and `client` (which of the simulated clients asks). An answer is an object with `outcome`.
An answer that does not come in time, or a broken connection, is `Unknown`: never a failure.

The kit never compares message texts, and never tells the subject what it expects. Versions are JSON
integers; `latest` is null where nothing was ever ratified (or -1, which some owners prefer).
Times are ms since the epoch.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

INTERFACE_VERSION: Final = 1

Version = int
AttemptId = str
TableRef = str
"""What a subject calls a table: whatever `create_table` or `load_table` answered. Opaque to the kit."""


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


class _Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    pass


# Requests


class _Request(_Message, frozen=True, kw_only=True, tag_field="op", tag=_snake):
    pass


class Hello(_Request, frozen=True, kw_only=True):
    """Who are you, and what do you promise? The first request of every connection."""

    interface_version: int = INTERFACE_VERSION


class LoadTable(_Request, frozen=True, kw_only=True):
    """Table discovery, before the protocol is known. Exactly one of `name` and `path`."""

    name: str | None = None
    path: str | None = None


class CreateTable(_Request, frozen=True, kw_only=True):
    """Propose version 0 of a new table. Creators of one name race."""

    name: str
    feature: str
    """`managedCommit` or `catalogManaged`."""
    way: str
    """How later commits will be proposed: `staged`, `inline` or `direct`."""
    attempt: AttemptId
    actions: tuple[str, ...]
    """One JSON document each, commitInfo first. The subject may add what its dialect needs to protocol
    and metadata (its own name as owner, for example), and nothing else."""
    backfill: str = "on-request"
    """`on-request`, or `subject` to leave it to the subject."""
    backlog_limit: int | None = None
    """With the profile `backlog-limit`: at most so many unbackfilled commits."""


class Commit(_Request, frozen=True, kw_only=True):
    """Propose `version`. Exactly one of `actions` and `staged_file`."""

    table: TableRef
    version: Version
    attempt: AttemptId
    actions: tuple[str, ...] | None = None
    staged_file: str | None = None
    """The name of a file in the staging folder, which the kit has written (profile `storage-access`)."""


class AttemptOutcome(_Request, frozen=True, kw_only=True):
    """What became of an attempt, finally. Profile `attempt-outcome`."""

    table: TableRef
    attempt: AttemptId


class GetCommits(_Request, frozen=True, kw_only=True):
    """The commits that the owner stores, start <= version <= end, and the latest ratified version."""

    table: TableRef
    start: Version | None = None
    end: Version | None = None


class BackfillToVersion(_Request, frozen=True, kw_only=True):
    """Publish all commits up to `version`."""

    table: TableRef
    version: Version


class DropTable(_Request, frozen=True, kw_only=True):
    table: TableRef


class TakeOver(_Request, frozen=True, kw_only=True):
    """Own the filesystem table at `path`: `actions` is the ownership change, for `version`."""

    path: str
    name: str
    feature: str
    way: str
    version: Version
    attempt: AttemptId
    actions: tuple[str, ...]


class HandBack(_Request, frozen=True, kw_only=True):
    """Give a table back to the filesystem with `version`."""

    table: TableRef
    version: Version
    attempt: AttemptId
    actions: tuple[str, ...]


class MaintenancePolicy(_Request, frozen=True, kw_only=True):
    """Which maintenance clients may run on the table."""

    table: TableRef


class Observe(_Request, frozen=True, kw_only=True):
    """The table's log as a stranger would list it. The kit's eyes."""

    table: TableRef
    contents: bool = True
    """Whether the bytes of published commits and staged files are wanted too."""


class Plant(_Request, frozen=True, kw_only=True):
    """Create or overwrite a file below the table's log folder. Profile `storage-access`."""

    table: TableRef
    file: str
    content: str


class Remove(_Request, frozen=True, kw_only=True):
    """Remove a file below the table's log folder. Profile `storage-access`."""

    table: TableRef
    file: str


class Crash(_Request, frozen=True, kw_only=True):
    """Die at once, without cleaning up, or (`point`) when the named crash point is reached next.
    Profile `harness-control`."""

    point: str | None = None


class Restart(_Request, frozen=True, kw_only=True):
    """Start again from what is durable. Profile `harness-control`, or `durable-restart`."""


class Snapshot(_Request, frozen=True, kw_only=True):
    """Client side: read the table, the newest version or `version`."""

    table: TableRef
    version: Version | None = None
    timestamp: int | None = None


class Append(_Request, frozen=True, kw_only=True):
    """Client side: one transaction that adds these files, reading nothing."""

    table: TableRef
    files: tuple[str, ...]
    marker: str
    """Stands in the commit's `txnId` or operation, so that the kit recognises it."""


class Overwrite(_Request, frozen=True, kw_only=True):
    """Client side: one transaction that removes all files and adds these."""

    table: TableRef
    files: tuple[str, ...]
    marker: str


class Checkpoint(_Request, frozen=True, kw_only=True):
    """Client side: write a checkpoint of `version`."""

    table: TableRef
    version: Version


class Cleanup(_Request, frozen=True, kw_only=True):
    """Client side: metadata cleanup of everything older than `older_than`."""

    table: TableRef
    older_than: int


Request = (
    Hello | LoadTable | CreateTable | Commit | AttemptOutcome | GetCommits | BackfillToVersion | DropTable | TakeOver
    | HandBack | MaintenancePolicy | Observe | Plant | Remove | Crash | Restart | Snapshot | Append | Overwrite
    | Checkpoint | Cleanup
)  # fmt: skip


# Answers


class _Answer(_Message, frozen=True, kw_only=True, tag_field="outcome", tag=_snake):
    pass


class CommitEntry(_Message, frozen=True, kw_only=True):
    """A commit that the owner stores. Exactly one of `file_name` and `actions`, or neither for one that is
    published."""

    version: Version
    file_name: str | None = None
    actions: tuple[str, ...] | None = None
    in_commit_timestamp: int | None = None


class Identity(_Answer, frozen=True, kw_only=True):
    """The answer to `hello`."""

    name: str
    version: str
    interface_version: int
    side: str
    """`owner` or `client`."""
    profiles: tuple[str, ...]
    features: tuple[str, ...] = ("managedCommit", "catalogManaged")
    ways: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """By dialect: the ways to commit that the subject offers."""
    limits: dict[str, int] = msgspec.field(default_factory=dict)
    shared_state: bool = False
    """Whether several processes of the subject share one state; otherwise all clients use one process."""


class Table(_Answer, frozen=True, kw_only=True):
    """A table that was found or created."""

    table: TableRef
    feature: str
    way: str
    latest: Version | None
    location: str | None = None
    commits: tuple[CommitEntry, ...] | None = None
    """catalog-managed: part of the resolution."""


class NotFound(_Answer, frozen=True, kw_only=True):
    pass


class Ratified(_Answer, frozen=True, kw_only=True):
    """The attempt is `version`; for `create_table`, of `table`."""

    version: Version
    table: TableRef | None = None


class Conflict(_Answer, frozen=True, kw_only=True):
    """The version was taken. What it tells is optional, and may be stale."""

    latest: Version | None = None
    winners: tuple[CommitEntry, ...] | None = None
    winner_table: TableRef | None = None
    """For `create_table`: the table that has the name."""


class Gap(_Answer, frozen=True, kw_only=True):
    """The version before the proposed one is not ratified."""

    latest: Version | None = None


class Rejected(_Answer, frozen=True, kw_only=True):
    """Refused for another reason; nothing changed."""

    reason: str = ""
    retryable: bool = False


class Unknown(_Answer, frozen=True, kw_only=True):
    """It may or may not have happened."""

    reason: str = ""


class Unsupported(_Answer, frozen=True, kw_only=True):
    """The subject has no such operation, or not for this table."""

    reason: str = ""


class Landed(_Answer, frozen=True, kw_only=True):
    version: Version


class NotLanded(_Answer, frozen=True, kw_only=True):
    """And it never will."""


class Commits(_Answer, frozen=True, kw_only=True):
    commits: tuple[CommitEntry, ...]
    latest: Version | None


class Done(_Answer, frozen=True, kw_only=True):
    """It is so."""


class Policy(_Answer, frozen=True, kw_only=True):
    """`checkpoint`, `log-compaction`, `checksum`, `metadata-cleanup`, `vacuum`, `optimize`, `reorg`."""

    allowed: tuple[str, ...]


class LogFile(_Message, frozen=True, kw_only=True):
    """A file below the log folder, by its path relative to it."""

    name: str
    size: int
    content: str | None = None


class Observation(_Answer, frozen=True, kw_only=True):
    files: tuple[LogFile, ...]


class SnapshotRead(_Answer, frozen=True, kw_only=True):
    """What a client read: the version, and the active files' paths."""

    version: Version
    files: tuple[str, ...]
    stale: bool = False
    metadata: dict[str, Any] | None = None


class Committed(_Answer, frozen=True, kw_only=True):
    """A client's transaction landed as `version`."""

    version: Version


Answer = (
    Identity | Table | NotFound | Ratified | Conflict | Gap | Rejected | Unknown | Unsupported | Landed | NotLanded
    | Commits | Done | Policy | Observation | SnapshotRead | Committed
)  # fmt: skip


class Call(_Message, frozen=True, kw_only=True):
    """A request on the wire."""

    id: int
    client: str
    request: Request


class Reply(_Message, frozen=True, kw_only=True):
    """An answer on the wire; `id` is the request's."""

    id: int
    answer: Answer
