"""The values that the ledger stores, and their limits. `statements` loads and saves them, `decide` judges them."""

import re
import uuid
from enum import Enum
from typing import Final

import msgspec

from refimpl.protocol.actions import DomainMetadata, Metadata, Protocol
from refimpl.protocol.commit_owner import TableSummary
from refimpl.protocol.commits import AttemptId, Proposal, RatifiedCommit, Rejected
from refimpl.protocol.errors import InvalidRequestError
from refimpl.protocol.log_path import Version
from refimpl.protocol.table_feature import CommitMode, TableFeature

MAX_INLINE_BYTES: Final = 16 * 2**20
"""An inline commit is held in the ledger and sent to every reader until it is published."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*){0,2}", re.ASCII)
MAX_NAME_LENGTH: Final = 255


class TableRecord(TableSummary, frozen=True, kw_only=True):
    """One table, from one read state."""

    key: int = 0
    """The ledger's own number for the table."""
    in_commit_timestamp: int | None = None
    """In-commit timestamp of the latest version; ms since the epoch."""
    created_at: int
    dropped_at: int | None = None
    """ms since the epoch."""
    promised: bool = False
    """Whether a promise is open: see `tables`."""


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal with its parsed bytes, read before the lock is taken."""

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
    """The recorded outcome of an attempt: `landed`, or (None) resolved as not landed."""

    landed: RatifiedCommit | None
    digest: bytes | None


def unknown_attempt(table_id: str, version: Version) -> AttemptId:
    """Replaces the attempt id of a commit that a client published without the owner, and that no staged file names."""
    return str(uuid.uuid5(uuid.UUID(table_id), f"version {version}"))


class PromiseKind(Enum):
    """The kinds of commits that an owner promises before it makes their file visible."""

    CREATE = "create"
    PUBLISH = "publish"
    TAKE_OVER = "take-over"
    HAND_BACK = "hand-back"


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """A commit whose commit point is a link: stored durably before the link, deleted once the commit is recorded.

    managed-commits, "Converting an existing filesystem based table": a two-phase commit.
    """

    kind: PromiseKind
    version: Version
    attempt: AttemptId
    content: bytes
    digest: bytes
    in_commit_timestamp: int
    promised_at: int


def checked_name(name: str) -> str:
    """The name itself, or `InvalidRequestError`: one to three identifiers joined by dots."""
    if len(name) > MAX_NAME_LENGTH or not _NAME.fullmatch(name):
        raise InvalidRequestError(
            f"invalid table name {name!r}; expected one to three identifiers of the letters A to Z and a to z, digits "
            f"and _, joined by dots, at most {MAX_NAME_LENGTH} characters",
            name=name,
        )
    return name


def checked_commit_mode(feature: TableFeature, commit_mode: CommitMode | None) -> CommitMode:
    """The commit mode, staged by default; `InvalidRequestError` where the table feature has no such commit mode."""
    chosen = commit_mode or CommitMode.STAGED
    if chosen not in feature.commit_modes:
        known = ", ".join(sorted(w.value for w in feature.commit_modes))
        raise InvalidRequestError(
            f"{feature.name} has no {chosen.value} commits; expected one of {known}", commit_mode=chosen.value
        )
    return chosen
