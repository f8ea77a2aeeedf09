"""The actions of a Delta log, and newline-delimited JSON of them.

DELTA.md#actions: unknown actions and unknown fields are ignored when read;
the identity of a file is (path, deletion-vector id).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, Final

import msgspec

from refimpl.protocol.errors import CorruptLogError

Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Delta's integers; other readers read a larger one differently."""


class _Action(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Fields are spelled in camel case in the log; absent and null mean the same."""


class Protocol(_Action, frozen=True, kw_only=True):
    """Versions and table features that a client needs. The lists are absent below reader 3, writer 7."""

    min_reader_version: Long
    min_writer_version: Long
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


class Metadata(_Action, omit_defaults=False, frozen=True, kw_only=True):
    """The table's schema, partitioning and properties; `created_time` in ms since the epoch.

    Written with every field: other readers reject a table without `partitionColumns`, partitioned or not.
    """

    id: str
    schema_string: str
    name: str | None = None
    description: str | None = None
    format: Format = msgspec.field(default_factory=Format)
    partition_columns: tuple[str, ...] = ()
    configuration: dict[str, str] = msgspec.field(default_factory=dict)
    created_time: Long | None = None


class _Row(msgspec.Struct, tag="struct"):
    fields: list[_Column]


class _List(msgspec.Struct, tag="array", rename="camel"):
    element_type: _Type
    contains_null: bool


class _Map(msgspec.Struct, tag="map", rename="camel"):
    key_type: _Type
    value_type: _Type
    value_contains_null: bool


class _UserDefined(msgspec.Struct, tag="udt"):
    """A user-defined type of Spark; only Spark reads it."""


_Type = str | _Row | _List | _Map | _UserDefined


class _Column(msgspec.Struct):
    name: str
    type: _Type
    nullable: bool


_SCHEMA_DECODER: Final = msgspec.json.Decoder(_Row)


def column_names(schema_string: str) -> list[str]:
    """The columns of a `schemaString`. Checks its shape, down to the names of the types.

    Raises `CorruptLogError` for a schema that no reader can parse.
    """
    try:
        return [column.name for column in _SCHEMA_DECODER.decode(schema_string).fields]
    except (msgspec.DecodeError, RecursionError) as error:
        raise CorruptLogError(f"schemaString is not a schema in JSON: {error}", path="schemaString") from None


class DeletionVector(_Action, frozen=True, kw_only=True):
    storage_type: str
    path_or_inline_dv: str
    size_in_bytes: Long
    cardinality: Long
    offset: Long | None = None

    @property
    def unique_id(self) -> str:
        suffix = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage_type}{self.path_or_inline_dv}{suffix}"


FileKey = tuple[str, str | None]
"""(`canonical_path`, deletion-vector id): what identifies a file."""

_LOCAL_URI: Final = re.compile(r"^file:(?://(?:localhost)?)?(?=/(?!/))", re.IGNORECASE)
_LOWER_ESCAPE: Final = re.compile(r"%(?:[a-f][0-9A-Fa-f]|[0-9A-F][a-f])")


def canonical_path(path: str) -> str:
    """One spelling for all equivalent URIs of a file.

    RFC 3986, 6.2.2.1: the case of the scheme and of escapes does not matter. `file:/x`, `file:///x`,
    `file://localhost/x` (RFC 8089, 2) and `/x` are the same file of this host.
    """
    return _LOWER_ESCAPE.sub(lambda escape: escape[0].upper(), _LOCAL_URI.sub("", path))


class _FileAction(_Action, frozen=True, kw_only=True):
    path: str
    data_change: bool
    partition_values: dict[str, str | None] | None = None
    size: Long | None = None
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: Long | None = None
    default_row_commit_version: Long | None = None

    @property
    def key(self) -> FileKey:
        path = self.path
        if ":" in path or "%" in path:
            path = canonical_path(path)
        return (path, None if self.deletion_vector is None else self.deletion_vector.unique_id)


class Add(_FileAction, frozen=True, kw_only=True):
    """Adds a data file to the table. `path` is a URL-encoded URI; `size` in bytes; times in ms."""

    modification_time: Long
    partition_values: dict[str, str | None]
    size: Long
    clustering_provider: str | None = None


class Remove(_FileAction, frozen=True, kw_only=True):
    """Removes a data file from the table."""

    deletion_timestamp: Long | None = None
    extended_file_metadata: bool | None = None


class Txn(_Action, frozen=True, kw_only=True):
    """The newest version that a streaming application committed."""

    app_id: str
    version: Long
    last_updated: Long | None = None


class DomainMetadata(_Action, frozen=True, kw_only=True):
    domain: str
    configuration: str
    removed: bool


class Cdc(_Action, frozen=True, kw_only=True):
    path: str
    partition_values: dict[str, str | None]
    size: Long
    data_change: bool
    tags: dict[str, str | None] | None = None


class Sidecar(_Action, frozen=True, kw_only=True):
    path: str
    size_in_bytes: Long
    modification_time: Long
    tags: dict[str, str | None] | None = None


class CheckpointMetadata(_Action, frozen=True, kw_only=True):
    version: Long
    tags: dict[str, str | None] | None = None


class CommitInfo:
    """Provenance of a commit: any JSON object.

    Two of its fields are defined, by in-commit timestamps and by catalog-managed, "Commit Provenance
    Information"; these have properties here.
    """

    __slots__ = ("fields",)

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields

    @property
    def in_commit_timestamp(self) -> int | None:
        """ms since the epoch; None if it is absent or not a long."""
        value = self.fields.get("inCommitTimestamp")
        return value if type(value) is int and -(2**63) <= value < 2**63 else None

    @property
    def txn_id(self) -> str | None:
        value = self.fields.get("txnId")
        return value if isinstance(value, str) and value else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CommitInfo) and self.fields == other.fields

    def __hash__(self) -> int:
        return hash(tuple(self.fields))

    def __repr__(self) -> str:
        return f"CommitInfo({self.fields!r})"


Action = Protocol | Metadata | Add | Remove | Txn | DomainMetadata | Cdc | Sidecar | CheckpointMetadata | CommitInfo


class _Line(msgspec.Struct, rename="camel", omit_defaults=True):
    """One line of a log: an object with one known key, or without any if we do not know the action."""

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

    Raises `CorruptLogError` (with `source` and the line number) unless each line is a JSON object in UTF-8, of a
    documented shape, with at most one known action. Content without lines is an error too.
    """
    try:
        content.decode()  # the parser does not decode the values that it skips
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise _corrupt(source, number, f"is not UTF-8: {error.reason} at byte {error.start}") from None
    actions: list[Action] = []
    empty = True
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line or line.isspace():
            continue
        empty = False
        try:
            known = msgspec.structs.astuple(_DECODER.decode(line))
        except (msgspec.DecodeError, RecursionError) as error:
            raise _corrupt(source, number, f"is not an action in JSON: {error}") from None
        count = len(known) - known.count(None)
        if count > 1:
            raise _corrupt(source, number, f"holds {count} actions, not one")
        actions += [CommitInfo(action) if type(action) is dict else action for action in known if action is not None]
    if empty:
        raise CorruptLogError(f"{source} holds no action ({len(content)} bytes)", path=source)
    return actions


def _corrupt(source: str, line: int, problem: str) -> CorruptLogError:
    return CorruptLogError(f"{source}, line {line}, {problem}", path=source, line=line)


def same_actions(content: bytes, other: bytes) -> bool:
    """Whether two commits have the same actions, however their JSON is spelled."""
    try:
        return list(msgspec.json.Decoder().decode_lines(content)) == list(msgspec.json.Decoder().decode_lines(other))
    except msgspec.DecodeError:
        return False


def encode(actions: Iterable[Action]) -> bytes:
    """Newline-delimited JSON, one action a line, each line ended by a newline."""
    return b"".join(_encode_line(action) + b"\n" for action in actions)


def _encode_line(action: Action) -> bytes:
    if isinstance(action, CommitInfo):
        return _ENCODER.encode({"commitInfo": action.fields})
    return _ENCODER.encode({_KEYS[type(action)]: action})
