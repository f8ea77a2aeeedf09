"""The actions of a Delta log, and newline-delimited JSON of them.

delta-facts section 1, "Actions": unknown actions and unknown fields are ignored when read;
the identity of a file is (path, deletion-vector id).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from refimpl.errors import CorruptLogError


class _Action(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Fields are spelled in camel case in the log; absent and null mean the same."""


class Protocol(_Action, frozen=True, kw_only=True):
    """Versions and table features that a client needs. The lists are absent below reader 3, writer 7."""

    min_reader_version: int
    min_writer_version: int
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None

    def writes(self, feature: str) -> bool:
        """Whether `feature` is listed for writers."""
        return feature in (self.writer_features or ())

    def reads(self, feature: str) -> bool:
        """Whether `feature` is listed for readers."""
        return feature in (self.reader_features or ())


class Format(_Action, omit_defaults=False, frozen=True, kw_only=True):
    provider: str = "parquet"
    options: dict[str, str] = msgspec.field(default_factory=dict)


class Metadata(_Action, frozen=True, kw_only=True):
    """The table's schema, partitioning and properties; `created_time` in ms since the epoch."""

    id: str
    schema_string: str
    name: str | None = None
    description: str | None = None
    format: Format = msgspec.field(default_factory=Format)
    partition_columns: tuple[str, ...] = ()
    configuration: dict[str, str] = msgspec.field(default_factory=dict)
    created_time: int | None = None


class DeletionVector(_Action, frozen=True, kw_only=True):
    storage_type: str
    path_or_inline_dv: str
    size_in_bytes: int
    cardinality: int
    offset: int | None = None

    @property
    def unique_id(self) -> str:
        suffix = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage_type}{self.path_or_inline_dv}{suffix}"


FileKey = tuple[str, str | None]
"""(path as written in the log, deletion-vector id): what identifies a file."""


class _FileAction(_Action, frozen=True, kw_only=True):
    path: str
    data_change: bool
    partition_values: dict[str, str | None] | None = None
    size: int | None = None
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None

    @property
    def key(self) -> FileKey:
        return (self.path, None if self.deletion_vector is None else self.deletion_vector.unique_id)


class Add(_FileAction, frozen=True, kw_only=True):
    """A data file joins the table. `path` is a URL-encoded URI; `size` in bytes; times in ms."""

    modification_time: int
    partition_values: dict[str, str | None]
    size: int
    clustering_provider: str | None = None


class Remove(_FileAction, frozen=True, kw_only=True):
    """A data file leaves the table."""

    deletion_timestamp: int | None = None
    extended_file_metadata: bool | None = None


class Txn(_Action, frozen=True, kw_only=True):
    """The newest version that a streaming application committed."""

    app_id: str
    version: int
    last_updated: int | None = None


class DomainMetadata(_Action, frozen=True, kw_only=True):
    domain: str
    configuration: str
    removed: bool


class Cdc(_Action, frozen=True, kw_only=True):
    path: str
    partition_values: dict[str, str | None]
    size: int
    data_change: bool
    tags: dict[str, str | None] | None = None


class Sidecar(_Action, frozen=True, kw_only=True):
    path: str
    size_in_bytes: int
    modification_time: int
    tags: dict[str, str | None] | None = None


class CheckpointMetadata(_Action, frozen=True, kw_only=True):
    version: int
    tags: dict[str, str | None] | None = None


class CommitInfo:
    """Provenance of a commit: any JSON object.

    in-commit timestamps and catalog-managed, "Commit Provenance Information", give two of its
    fields a meaning; those have properties here.
    """

    __slots__ = ("fields",)

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields

    @property
    def in_commit_timestamp(self) -> int | None:
        """ms since the epoch; None where absent or not a long."""
        value = self.fields.get("inCommitTimestamp")
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def txn_id(self) -> str | None:
        value = self.fields.get("txnId")
        return value if isinstance(value, str) and value else None

    def replacing(self, **fields: Any) -> CommitInfo:
        return CommitInfo({**self.fields, **fields})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CommitInfo) and self.fields == other.fields

    def __hash__(self) -> int:
        return hash(tuple(self.fields))

    def __repr__(self) -> str:
        return f"CommitInfo({self.fields!r})"


Action = Protocol | Metadata | Add | Remove | Txn | DomainMetadata | Cdc | Sidecar | CheckpointMetadata | CommitInfo


class _Line(msgspec.Struct, rename="camel", omit_defaults=True):
    """One line of a log: an object with one known key, or with none for an action unknown to us."""

    commit_info: dict[str, Any] | None = None
    protocol: Protocol | None = None
    meta_data: Metadata | None = None
    add: Add | None = None
    remove: Remove | None = None
    txn: Txn | None = None
    domain_metadata: DomainMetadata | None = None
    cdc: Cdc | None = None
    sidecar: Sidecar | None = None
    checkpoint_metadata: CheckpointMetadata | None = None


_KEYS: Final[dict[type, str]] = {
    Protocol: "protocol",
    Metadata: "metaData",
    Add: "add",
    Remove: "remove",
    Txn: "txn",
    DomainMetadata: "domainMetadata",
    Cdc: "cdc",
    Sidecar: "sidecar",
    CheckpointMetadata: "checkpointMetadata",
}
_DECODER: Final = msgspec.json.Decoder(_Line)
_ENCODER: Final = msgspec.json.Encoder()


def decode(content: bytes, *, source: str) -> list[Action]:
    """The known actions of newline-delimited JSON, in order.

    `source` names the bytes in the error. Raises `CorruptLogError` with the line number for
    anything that is not UTF-8 JSON objects of the documented shapes, and for no action at all.
    """
    try:
        lines = _DECODER.decode_lines(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _locate(content, source) from None
    if not lines:
        raise CorruptLogError(f"{source} holds no action ({len(content)} bytes)", path=source)
    actions: list[Action] = []
    for line in lines:
        action = (
            line.add or line.remove or line.meta_data or line.protocol or line.txn or line.domain_metadata
            or line.cdc or line.sidecar or line.checkpoint_metadata
        )  # fmt: skip
        if action is not None:
            actions.append(action)
        elif line.commit_info is not None:
            actions.append(CommitInfo(line.commit_info))
    return actions


def _locate(content: bytes, source: str) -> CorruptLogError:
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            _DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return CorruptLogError(
                f"{source}, line {number}, is not an action in JSON: {error}", path=source, line=number
            )
    return CorruptLogError(f"{source} is not newline-delimited JSON", path=source)


def encode(actions: Iterable[Action]) -> bytes:
    """Newline-delimited JSON, one action a line, each line ended by a newline."""
    return b"".join(_encode_line(action) + b"\n" for action in actions)


def _encode_line(action: Action) -> bytes:
    if isinstance(action, CommitInfo):
        return _ENCODER.encode({"commitInfo": action.fields})
    return _ENCODER.encode({_KEYS[type(action)]: action})
