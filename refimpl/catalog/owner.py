"""What a catalog server requires of a commit owner in addition to `CommitOwner`, and the messages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol as Interface

import msgspec

from refimpl.protocol.actions import DomainMetadata, Metadata, Protocol
from refimpl.protocol.commit_owner import (
    CommitOwner,
    MaintenancePolicy,
    NameTaken,
    Registered,
    ResolvedTable,
    TableSummary,
)
from refimpl.protocol.commits import AttemptId, DirectProposal, Outcome, Proposal, Rejected
from refimpl.protocol.groups import GroupRatified, GroupRefused, Member
from refimpl.protocol.log_path import Version
from refimpl.protocol.table_feature import CommitMode, TableFeature

Contradiction = Callable[[Protocol, Metadata, Sequence[DomainMetadata]], str | None]
"""Returns how a request contradicts the table's log, or None; a pure function. Takes the protocol and metadata that
apply once the request's commit is in the log, and the domain metadata in that commit."""


def _agrees(_protocol: Protocol, _metadata: Metadata, _domains: Sequence[DomainMetadata]) -> str | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatePreconditions:
    """What must hold for an update, and what it changes besides its commit, all or none: UNITY_CATALOG.md#updates."""

    etag: str | None = None
    """The table's metadata must still have this etag."""
    published_through: Version | None = None
    """The client reports every version up to here as published."""
    properties: Mapping[str, str | None] = field(default_factory=dict)
    """Properties to set, or (None) to remove. A property in the log keeps its value; a request may repeat it."""
    in_commit_timestamp: int | None = None
    """The staged file's modification time according to the request, in ms since the epoch."""
    size: int | None = None
    """The staged file's length according to the request, in bytes."""
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


class GroupPreconditionFailed(msgspec.Struct, frozen=True, kw_only=True):
    """A precondition of the first member that cannot be ratified does not hold. Nothing was changed."""

    decided_by: int
    failed: PreconditionFailed


class TableDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A table with its metadata, from one read state. Times in ms since the epoch."""

    table: ResolvedTable
    protocol: Protocol
    metadata: Metadata
    catalog_properties: dict[str, str]
    """Properties that were set in the catalog and are not in the log."""
    etag: str
    created_at: int
    updated_at: int
    in_commit_timestamp: int


class AttemptLookup(msgspec.Struct, frozen=True, kw_only=True):
    """A table, and whether a proposal has certainly lost, from one read state. `commit_if` decides all other cases."""

    table: TableSummary
    lost: bool


class CatalogOwner(CommitOwner, Interface):
    """An owner that a catalog server can use. Safe to call from several threads."""

    def recorded_tables(self) -> Sequence[TableSummary]:
        """All live tables, by name, from the ledger alone: reads no log and takes no lock."""
        ...

    def describe(self, reference: str | Path) -> TableDescription:
        """Raises the errors of `resolve`, and `InvalidRequestError` while the table has no version 0."""
        ...

    def look_up(self, reference: str, version: Version | None, attempt: AttemptId | None) -> AttemptLookup | None:
        """The live table of this name, or the table with this id in any state, and the outcome of a proposal, without
        any lock; None for an unknown table."""
        ...

    def registered_at(self, location: Path) -> Sequence[str]:
        """The ids of the tables that were registered at this location; they may have been renamed or dropped since."""
        ...

    def rename_table(self, table_id: str, name: str, *, before: str) -> None:
        """Give a live table another name, durably, in one transaction; its id, location and log stay.

        Raises `NameTakenError`, and `TableNotFoundError` if the table no longer has the name `before`.
        """
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
        """`properties`: the ones that version 0 does not have. A repeated registration does not change them."""
        ...

    def make_staged_durable(self, table_id: str, file_name: str) -> None:
        """Make a staged file durable, before it is proposed: its client wrote it without syncing it.

        Does nothing if the file is missing. After `OwnerUnavailableError`, this file must not be proposed until a later
        call succeeds.
        """
        ...

    def commit_if(
        self, table_id: str, version: Version, proposal: Proposal, preconditions: UpdatePreconditions
    ) -> Outcome | PreconditionFailed:
        """`commit`, if the preconditions hold; their changes are part of the commit's transaction.

        Versions that the client reports as published are recorded in bounded batches. They stay recorded if the request
        then fails, because they are published.
        """
        ...

    def commit_group_if(
        self, members: Sequence[Member], preconditions: Sequence[UpdatePreconditions]
    ) -> GroupRatified | GroupRefused | GroupPreconditionFailed:
        """`commit_group`, if the preconditions of each member hold; without reports of published versions."""
        ...

    def describe_together(self, references: Sequence[str | Path]) -> Sequence[TableDescription]:
        """`describe` for several tables in one state of the owner: of each group, all members or none."""
        ...

    def update(self, table_id: str, preconditions: UpdatePreconditions) -> PreconditionFailed | Rejected | None:
        """`commit_if` for an update without a commit."""
        ...
