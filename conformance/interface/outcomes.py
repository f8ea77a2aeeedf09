"""Everything that a subject answers. See `messages`."""

from __future__ import annotations

import msgspec

from conformance.interface.requests import TableRef, Version, _Message, _snake


class _Answer(_Message, frozen=True, kw_only=True, tag_field="outcome", tag=_snake, forbid_unknown_fields=True):
    """A field that an answer does not have is an error: mostly it is an optional one, misspelt."""


class CommitEntry(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
    commit_modes: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """By table feature: the commit modes that the subject offers."""
    limits: dict[str, int] = msgspec.field(default_factory=dict)
    shared_state: bool = False
    """Whether several processes of the subject share one state; otherwise all clients use one process."""
    storage: str | None = None
    """With `storage-access`: the folder below which the kit may make filesystem tables, as the subject calls it."""
    promises: tuple[str, ...] = ()
    """Beyond the profiles: the values of `conformance.history.events.Promise`."""
    crash_points: tuple[str, ...] = ()
    """With `harness-control`: what `crash` may name."""


class Table(_Answer, frozen=True, kw_only=True):
    """A table that was found or created."""

    table: TableRef
    feature: str
    commit_mode: str
    latest: Version | None
    location: str | None = None
    commits: tuple[CommitEntry, ...] | None = None
    """catalog-managed: part of the resolution."""
    protocol: str | None = None
    """The latest protocol action, as JSON, of an owner that tells it."""
    metadata: str | None = None
    """The latest metaData action, as JSON, of an owner that tells it."""


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


class LogFile(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file below the log folder, by its path relative to it."""

    name: str
    size: int
    content: str | None = None
    modified: int | None = None


class Observation(_Answer, frozen=True, kw_only=True):
    files: tuple[LogFile, ...]


class SnapshotRead(_Answer, frozen=True, kw_only=True):
    """What a client read. What it cannot tell it leaves out."""

    version: Version
    files: tuple[str, ...]
    """Paths of the active files, decoded."""
    stale: bool = False
    """Whether the client says that there may be newer versions."""
    timestamp: int | None = None
    """The time of the commit that the version is."""
    properties: dict[str, str] | None = None
    """The table's."""
    partitions: dict[str, str | None] | None = None
    """By file: its value of the column `part`."""
    applications: dict[str, int] | None = None
    """By application: its latest transaction version."""
    domains: dict[str, str] | None = None
    warnings: tuple[str, ...] = ()
    """Whatever the client reports without failing."""


class Committed(_Answer, frozen=True, kw_only=True):
    """A client's transaction landed as `version`; null: there was nothing to commit."""

    version: Version | None


Answer = (
    Identity | Table | NotFound | Ratified | Conflict | Gap | Rejected | Unknown | Unsupported | Landed | NotLanded
    | Commits | Done | Policy | Observation | SnapshotRead | Committed
)  # fmt: skip
