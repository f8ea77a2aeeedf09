"""What a catalog server requires of a commit owner in addition to `CommitOwner`, and the messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol as Interface

import msgspec

from refimpl.actions import DomainMetadata, Metadata, Protocol
from refimpl.commit_owner import CommitOwner, MaintenancePolicy, NameTaken, Registered, ResolvedTable, TableSummary
from refimpl.commits import AttemptId, DirectProposal, Outcome, Proposal, Rejected
from refimpl.log_path import Version
from refimpl.table_feature import CommitMode, TableFeature

Contradiction = Callable[[Protocol, Metadata, Sequence[DomainMetadata]], str | None]
"""What a request says of a table that its log does not say, or None; a pure function. Takes the protocol and metadata
that are in force once the request's commit is in the log, and the domain metadata in that commit."""


def _agrees(_protocol: Protocol, _metadata: Metadata, _domains: Sequence[DomainMetadata]) -> str | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatePreconditions:
    """What must hold for an update, and what it changes beside its commit, all or nothing: UNITY_CATALOG.md#updates."""

    etag: str | None = None
    """The table's metadata must still be what it was under this etag."""
    published_through: Version | None = None
    """The client reports every version up to here as published."""
    properties: Mapping[str, str | None] = field(default_factory=dict)
    """Properties to set, or (None) to remove. One that the log has keeps its value; a request may repeat it."""
    in_commit_timestamp: int | None = None
    """What the request says of the staged file's time, in ms since the epoch."""
    size: int | None = None
    """What it says of the staged file's length, in bytes."""
    contradiction: Contradiction = _agrees


class Precondition(Enum):
    """Which precondition failed."""

    PUBLISHED = "published"
    ETAG = "etag"
    METADATA = "metadata"


class PreconditionFailed(msgspec.Struct, frozen=True, kw_only=True):
    """A precondition does not hold. No commit was made and no property was changed."""

    precondition: Precondition
    detail: str


class TableDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A table with its metadata, from one read state. Times in ms since the epoch."""

    table: ResolvedTable
    protocol: Protocol
    metadata: Metadata
    catalog_properties: dict[str, str]
    """Properties that the catalog was given and the log does not have."""
    etag: str
    created_at: int
    updated_at: int
    in_commit_timestamp: int


class AttemptLookup(msgspec.Struct, frozen=True, kw_only=True):
    """A table, and whether a proposal has certainly lost, from one read state. Anything else is for `commit_if`."""

    table: TableSummary
    lost: bool


class CatalogOwner(CommitOwner, Interface):
    """An owner that a catalog server can use. Safe to call from several threads."""

    def recorded_tables(self) -> Sequence[TableSummary]:
        """All live tables, by name, from the ledger alone: reads no log and takes no lock."""
        ...

    def describe(self, reference: str | Path) -> TableDescription:
        """Errors as of `resolve`; `InvalidRequestError` while the table has no version 0."""
        ...

    def look_up(self, name: str, version: Version | None, attempt: AttemptId | None) -> AttemptLookup | None:
        """The live table of this name and the fate of a proposal, without any lock; None for an unknown table."""
        ...

    def stage_table(
        self,
        name: str,
        feature: TableFeature,
        *,
        commit_mode: CommitMode | None = None,
        location: Path | None = None,
        policy: MaintenancePolicy | None = None,
        empty: bool = False,
    ) -> ResolvedTable:
        """`empty`: the creator makes the folders of the log; engines reject a location that is not empty."""
        ...

    def register_table(
        self, table_id: str, proposal: DirectProposal, *, properties: Mapping[str, str] | None = None
    ) -> Registered | NameTaken | Outcome:
        """`properties`: those that version 0 does not have. A repeated registration changes none."""
        ...

    def make_staged_durable(self, table_id: str, file_name: str) -> None:
        """Make a staged file durable that its client wrote without syncing it: before it is proposed.

        Does nothing if the file is missing. After `OwnerUnavailableError`, this file may not be proposed until a later
        call succeeds.
        """
        ...

    def commit_if(
        self, table_id: str, version: Version, proposal: Proposal, preconditions: UpdatePreconditions
    ) -> Outcome | PreconditionFailed:
        """`commit`, if the preconditions hold; what they change is changed in the commit's own transaction.

        Reported versions are recorded as published in bounded batches. What is recorded so is published, even if the
        request then fails.
        """
        ...

    def update(self, table_id: str, preconditions: UpdatePreconditions) -> PreconditionFailed | Rejected | None:
        """The same for an update without a commit."""
        ...
