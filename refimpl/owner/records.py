"""What the ledger stores, as values. Loaded and saved by `ledger`, judged by `decide`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

import msgspec

from refimpl.actions import DomainMetadata, Metadata, Protocol
from refimpl.commit_owner import MaintenancePolicy, TableState
from refimpl.commits import AttemptId, Proposal, RatifiedCommit, Rejected
from refimpl.log_path import Version
from refimpl.table_feature import CommitMode, TableFeature


def next_version(latest: Version | None) -> Version:
    """The version after the latest one, 0 where there is none."""
    return 0 if latest is None else latest + 1


class TableRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One table, at one moment."""

    key: int = 0
    """The ledger's own number for the table."""
    table_id: str
    name: str | None
    location: Path
    feature: TableFeature
    commit_mode: CommitMode
    state: TableState
    latest: Version | None = None
    """The latest ratified version: never forgotten, never lower than before."""
    backfilled: Version | None = None
    """Every version up to here is published, durably."""
    in_commit_timestamp: int | None = None
    """Of the latest version; ms since the epoch."""
    policy: MaintenancePolicy
    halted: str | None = None
    created_at: int
    promised: bool = False
    """Whether a promise is open: see `promises`."""

    @property
    def next(self) -> Version:
        """The only version that may be ratified now."""
        return next_version(self.latest)

    @property
    def first_unbackfilled(self) -> Version:
        return 0 if self.backfilled is None else self.backfilled + 1

    @property
    def backlog(self) -> int:
        """How many ratified commits are not published yet."""
        return self.next - self.first_unbackfilled

    @property
    def label(self) -> str:
        """How messages call the table."""
        return f"'{self.name}'" if self.name else f"table {self.table_id}"


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal with what its bytes say, read before the lock is taken."""

    version: Version
    proposal: Proposal
    content: bytes
    digest: bytes
    """SHA-256 of `content`."""
    in_commit_timestamp: int = 0
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    domains: tuple[DomainMetadata, ...] = ()
    flaw: Rejected | None = None
    """What is wrong with the content by itself, if anything."""


class AttemptRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the ledger remembers of an attempt: `landed`, or resolved as never to land."""

    landed: RatifiedCommit | None
    digest: bytes | None


class PromiseKind(Enum):
    """What an owner may promise before it makes a file visible."""

    CREATE = "create"
    PUBLISH = "publish"
    TAKE_OVER = "take-over"
    HAND_BACK = "hand-back"


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """A commit whose commit point is a link: durable before the link, gone after it is recorded.

    managed-commits, "Converting an existing filesystem based table": a two-phase commit.
    """

    kind: PromiseKind
    version: Version
    attempt: AttemptId
    content: bytes
    digest: bytes
    in_commit_timestamp: int
    promised_at: int
