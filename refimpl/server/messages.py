"""The bodies of the Delta API's requests. Unknown fields are ignored, as everywhere in Delta.

UNITY_CATALOG.md#calls; names are hyphenated on the wire. Numbers have Delta's range, so that an absurd one is refused
as a shape and nothing behind it has to think of it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from refimpl.log_path import MAX_VERSION

NewVersion = Annotated[int, msgspec.Meta(ge=1, le=MAX_VERSION)]
"""Version 0 is written in place and registered by the creation: no request commits it."""
AnyVersion = Annotated[int, msgspec.Meta(ge=0, le=MAX_VERSION)]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Bytes = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Text = Annotated[str, msgspec.Meta(max_length=4000)]


class _Wire(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    pass


class WireProtocol(_Wire, frozen=True, kw_only=True):
    """The protocol action, as the API spells it."""

    min_reader_version: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    min_writer_version: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None


class WireField(_Wire, frozen=True, kw_only=True):
    """A column. `type` is a name, or an object for a nested type."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=4000)]
    type: str | dict[str, Any]
    nullable: bool = True
    metadata: dict[str, Any] | None = None


class Columns(_Wire, frozen=True, kw_only=True):
    """A schema: the struct of all columns."""

    fields: tuple[WireField, ...]
    type: str = "struct"


class StageTable(_Wire, frozen=True, kw_only=True):
    name: Text


class CreateTable(_Wire, frozen=True, kw_only=True):
    """Register a table whose version 0 stands at `location`, which a staging call gave."""

    name: Text
    location: Text
    columns: Columns
    protocol: WireProtocol
    table_type: str
    partition_columns: tuple[str, ...] | None = None
    properties: dict[str, str] | None = None
    comment: str | None = None
    domain_metadata: dict[str, Any] | None = None
    last_commit_timestamp_ms: Milliseconds | None = None


class AssertTableUuid(_Wire, frozen=True, kw_only=True, tag_field="type", tag="assert-table-uuid"):
    uuid: Text


class AssertEtag(_Wire, frozen=True, kw_only=True, tag_field="type", tag="assert-etag"):
    etag: Text


Requirement = AssertTableUuid | AssertEtag


class WireCommit(_Wire, frozen=True, kw_only=True):
    """A staged commit. Times in ms since the epoch; `timestamp` is the commit's in-commit timestamp."""

    version: NewVersion
    timestamp: Milliseconds
    file_name: Text
    file_size: Bytes
    file_modification_timestamp: Milliseconds


class _Update(_Wire, frozen=True, kw_only=True, tag_field="action"):
    pass


class AddCommit(_Update, frozen=True, kw_only=True, tag="add-commit"):
    commit: WireCommit
    uniform: dict[str, Any] | None = None


class SetLatestBackfilledVersion(_Update, frozen=True, kw_only=True, tag="set-latest-backfilled-version"):
    latest_published_version: AnyVersion


class SetProperties(_Update, frozen=True, kw_only=True, tag="set-properties"):
    updates: dict[str, str]


class RemoveProperties(_Update, frozen=True, kw_only=True, tag="remove-properties"):
    removals: tuple[str, ...]


class SetColumns(_Update, frozen=True, kw_only=True, tag="set-columns"):
    columns: Columns


class SetProtocol(_Update, frozen=True, kw_only=True, tag="set-protocol"):
    protocol: WireProtocol


class SetPartitionColumns(_Update, frozen=True, kw_only=True, tag="set-partition-columns"):
    partition_columns: tuple[str, ...]


class SetTableComment(_Update, frozen=True, kw_only=True, tag="set-table-comment"):
    comment: str | None = None


class SetDomainMetadata(_Update, frozen=True, kw_only=True, tag="set-domain-metadata"):
    updates: dict[str, Any]


class RemoveDomainMetadata(_Update, frozen=True, kw_only=True, tag="remove-domain-metadata"):
    domains: tuple[str, ...]


class UpdateSnapshotVersion(_Update, frozen=True, kw_only=True, tag="update-metadata-snapshot-version"):
    """Known to the API for tables that no catalog manages: refused here."""

    last_commit_version: AnyVersion | None = None
    last_commit_timestamp_ms: Milliseconds | None = None


Update = (
    AddCommit
    | SetLatestBackfilledVersion
    | SetProperties
    | RemoveProperties
    | SetColumns
    | SetProtocol
    | SetPartitionColumns
    | SetTableComment
    | SetDomainMetadata
    | RemoveDomainMetadata
    | UpdateSnapshotVersion
)


class UpdateTable(_Wire, frozen=True, kw_only=True):
    """Requirements that must hold and updates that are made, all or none; at most one of each kind."""

    updates: tuple[Update, ...]
    requirements: tuple[Requirement, ...] | None = None


class TableCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """Of the older API, whose names are not hyphenated."""

    table_id: Text
    operation: Literal["READ", "READ_WRITE"]


class ReportMetrics(_Wire, frozen=True, kw_only=True):
    table_id: Text | None = None
    report: dict[str, Any] | None = None
