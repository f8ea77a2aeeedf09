"""The table features that this client reads, writes and lists. Any other feature is rejected with its name.

Reading
    Reader versions 1, 2 and 3. Version 2 means columnMapping, version 3 any of `READ`.

Writing
    Writer versions 1 to 7. A version below 7 implies the features that it introduced; version 7 has those
    that the protocol lists. All must be in `WRITTEN`.
    A table must be readable to be written.

`refimpl.rows.row_rules` implements the rules that rows must meet (invariants, CHECK constraints, generated, identity
and default columns); a write to a table with a rule that cannot be evaluated is rejected.

A feature for writers only does not concern readers, so a table with an unknown one can be read.
DELTA.md#conflict-protocol requires a transaction to apply the same list to the protocol of each winner.

The features that this client adds to a protocol are those of `needed_features`, `owned`, `demanded` and
`ADDED_ALONE`; never one that it does not support.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

import msgspec

from refimpl.protocol.actions import Metadata, Protocol
from refimpl.protocol.errors import InvalidRequestError, InvalidTableError, UnsupportedFeatureError
from refimpl.protocol.table_feature import (
    CATALOG_MANAGED,
    COORDINATED_COMMITS,
    IN_COMMIT_TIMESTAMP_FEATURE,
    IN_COMMIT_TIMESTAMP_SYNONYM,
    MANAGED_COMMIT,
    VACUUM_PROTOCOL_CHECK,
    TableFeature,
    inconsistencies,
)
from refimpl.schema.column_mapping import COLUMN_MAPPING, mapping_mode, maps_columns
from refimpl.schema.schema import FEED_COLUMNS, TYPE_CHANGES, Struct, holds, parse, required_features, walk

MAX_READER_VERSION: Final = 3
MAX_WRITER_VERSION: Final = 7

DELETION_VECTORS: Final = "deletionVectors"
ROW_TRACKING: Final = "rowTracking"
CLUSTERING: Final = "clustering"
CLUSTERING_DOMAIN: Final = "delta.clustering"
ENABLE_ROW_TRACKING: Final = "delta.enableRowTracking"
V2_CHECKPOINT: Final = "v2Checkpoint"
CHECKPOINT_PROTECTION: Final = "checkpointProtection"
PROTECTED_BEFORE: Final = "delta.requireCheckpointProtectionBeforeVersion"
TYPE_WIDENING: Final = ("typeWidening", "typeWidening-preview")
ENABLE_TYPE_WIDENING: Final = "delta.enableTypeWidening"
CONSTRAINT_PREFIX: Final = "delta.constraints."
"""The rest of such a property's name is the name of a CHECK constraint; its value is the condition."""
INVARIANTS: Final = "delta.invariants"
GENERATION: Final = "delta.generationExpression"
IDENTITY_PREFIX: Final = "delta.identity."
HIGH_WATER_MARK: Final = f"{IDENTITY_PREFIX}highWaterMark"
DEFAULT: Final = "CURRENT_DEFAULT"
TEXT_TYPE: Final = "__CHAR_VARCHAR_TYPE_STRING"
"""Keys of the metadata of columns that hold rules of rows: `refimpl.rows.row_rules`."""

READ: Final = frozenset(
    {
        COLUMN_MAPPING,  # by name and by id; new files have physical names and field ids
        DELETION_VECTORS,  # with the extra of that name; a file that loses further rows is rewritten, without a vector
        "timestampNtz",
        *TYPE_WIDENING,  # new files have the newest types; types are widened: refimpl.rows.type_widening
        V2_CHECKPOINT,  # written if delta.checkpointPolicy is v2
        "vacuumProtocolCheck",  # VACUUM rejects tables with unsupported features
        CATALOG_MANAGED.name,  # through the table's owner
    }
)

WRITTEN: Final = READ | {
    "appendOnly",  # transactions remove no rows
    "changeDataFeed",  # refimpl.client.change_feed
    "invariants",
    "checkConstraints",
    "generatedColumns",
    "identityColumns",
    "allowColumnDefaults",
    CLUSTERING,  # new files are not clustered
    "domainMetadata",  # domains are kept, and replaced as a whole
    ROW_TRACKING,  # refimpl.rows.row_tracking
    IN_COMMIT_TIMESTAMP_FEATURE,
    IN_COMMIT_TIMESTAMP_SYNONYM,  # the RFC's spelling
    MANAGED_COMMIT.name,  # through the table's owner
    COORDINATED_COMMITS.name,  # through the table's owner
    CHECKPOINT_PROTECTION,  # refimpl.client.checkpoint_writing; a cleanup creates no checkpoint
}
"""Of the features that are not in `READ`, a reader knows nothing."""

_LEGACY_WRITER_FEATURES: Final[Mapping[int, tuple[str, ...]]] = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: (COLUMN_MAPPING,),
    6: ("identityColumns",),
}
"""The features that each writer version below 7 introduced."""


def check_readable(protocol: Protocol, metadata: Metadata) -> None:
    """Raise `UnsupportedFeatureError` (fact `features`) unless this client reads such a snapshot correctly."""
    if protocol.min_reader_version > MAX_READER_VERSION:
        raise _version_error("read", "reader", protocol.min_reader_version, MAX_READER_VERSION)
    listed = _reader_features(protocol)
    _refuse("read", [name for name in listed if name not in READ])
    mapping_mode(protocol, metadata)
    if TYPE_CHANGES in metadata.schema_string and not {*listed}.isdisjoint(TYPE_WIDENING):
        _check_type_changes(metadata)


def _check_type_changes(metadata: Metadata) -> None:
    """DELTA.md#type-widening: no change may lose a value."""
    for column, path in walk(parse(metadata.schema_string)):
        for change in column.type_changes:
            if not holds(change.before, change.after):
                raise UnsupportedFeatureError(
                    f"cannot read this table: the type of the column {path!r} changed from {change.before} to "
                    f"{change.after}, which the protocol does not permit; its files may hold values that do not fit",
                    features=TYPE_WIDENING[:1],
                    column=path,
                )


def check_writable(protocol: Protocol, metadata: Metadata) -> None:
    """Raise unless this client can write such a table correctly.

    `UnsupportedFeatureError` (fact `features`) for features that this client does not implement, `InvalidTableError`
    for a table whose protocol and properties contradict each other: managed-commits, "Managed Commit Enablement".
    """
    check_readable(protocol, metadata)
    if protocol.min_writer_version > MAX_WRITER_VERSION:
        raise _version_error("write", "writer", protocol.min_writer_version, MAX_WRITER_VERSION)
    listed = writer_features(protocol)
    _refuse("write", [name for name in listed if name not in WRITTEN])
    problems = inconsistencies(protocol, metadata)
    if problems:
        raise InvalidTableError(
            f"cannot write this table: {'; '.join(problems)}; correct it with the client that wrote it"
        )


def _reader_features(protocol: Protocol) -> tuple[str, ...]:
    """The features that readers must support, including the one that reader version 2 implies."""
    return (COLUMN_MAPPING,) if protocol.min_reader_version == 2 else protocol.reader_features or ()


def writer_features(protocol: Protocol) -> tuple[str, ...]:
    """The features that writers must support, including those that a legacy writer version implies."""
    if protocol.min_writer_version >= MAX_WRITER_VERSION:
        return protocol.writer_features or ()
    brought = (names for version, names in _LEGACY_WRITER_FEATURES.items() if version <= protocol.min_writer_version)
    return tuple(name for names in brought for name in names)


def check_removable(protocol: Protocol, metadata: Metadata, label: str) -> None:
    """Raise `InvalidRequestError` for a table that forbids removing rows; rewriting files without a change of data
    stays allowed. `label`: the table in the message."""
    if uses(protocol, metadata, APPEND_ONLY_FEATURE):
        raise InvalidRequestError(
            f"{label} is append-only: no rows can be removed; set delta.appendOnly=false to allow it"
        )


def feeds_changes(metadata: Metadata) -> bool:
    """Whether commits must record their row-level changes: DELTA.md#change-feed. Raises `InvalidRequestError` for a
    column with the name of one that the feed adds: another writer may have created it."""
    is_on = wants(metadata, CHANGE_FEED_FEATURE)
    if is_on:
        check_no_change_columns(metadata)
    return is_on


def writes_v2_checkpoints(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether checkpoints of the table are V2 ones. DELTA.md#v2-checkpoints: readers without the feature would skip
    them, so the property alone is not enough."""
    return uses(protocol, metadata, V2_CHECKPOINT)


def uses(protocol: Protocol, metadata: Metadata, feature: str) -> bool:
    """Whether a feature of `_ENABLED_BY` is in effect: the property enables it, and the protocol has it."""
    return wants(metadata, feature) and feature in writer_features(protocol)


def wants(metadata: Metadata, feature: str) -> bool:
    """Whether the metadata enables a feature of `_ENABLED_BY`."""
    key, value = _ENABLED_BY[feature]
    return metadata.configuration.get(key, "").lower() == value


def _refuse(verb: str, names: list[str]) -> None:
    if names:
        raise UnsupportedFeatureError(
            f"cannot {verb} this table: it uses {', '.join(names)}, which this client does not implement "
            f"(refimpl.schema.features has the list); use an engine that does, or, if it can remove features, "
            f"ALTER TABLE ... DROP FEATURE {names[0]} there (the feature that this leaves, {CHECKPOINT_PROTECTION}, is "
            "implemented here)",
            features=tuple(names),
        )


def _version_error(verb: str, kind: str, required: int, known: int) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"cannot {verb} this table: it needs {kind} version {required}, this client implements up to {known}",
        features=(f"{kind} version {required}",),
    )


APPEND_ONLY_FEATURE: Final = "appendOnly"
CHANGE_FEED_FEATURE: Final = "changeDataFeed"
CHANGE_FEED_PROPERTY: Final = "delta.enableChangeDataFeed"
_ENABLED_BY: Final[Mapping[str, tuple[str, str]]] = {
    APPEND_ONLY_FEATURE: ("delta.appendOnly", "true"),
    CHANGE_FEED_FEATURE: (CHANGE_FEED_PROPERTY, "true"),
    ROW_TRACKING: (ENABLE_ROW_TRACKING, "true"),
    TYPE_WIDENING[0]: (ENABLE_TYPE_WIDENING, "true"),
    V2_CHECKPOINT: ("delta.checkpointPolicy", "v2"),
}
"""The property that enables a feature, and its value."""
READER_VERSION_WITH_LISTS: Final = 3
WRITER_VERSION_WITH_LISTS: Final = 7

PLAIN_PROTOCOL: Final = Protocol(min_reader_version=1, min_writer_version=2)
"""The protocol of a filesystem table without features."""

_READER_FEATURES: Final = frozenset(
    {COLUMN_MAPPING, DELETION_VECTORS, "timestampNtz", TYPE_WIDENING[0], V2_CHECKPOINT, VACUUM_PROTOCOL_CHECK}
)
"""The features added on demand that readers need too."""

ADDED_ALONE: Final = frozenset(
    {APPEND_ONLY_FEATURE, CHANGE_FEED_FEATURE, DELETION_VECTORS, "domainMetadata", "timestampNtz", V2_CHECKPOINT}
)
"""Features that a transaction may add before the table uses them. The other features change the owner or the commit
times; creation, take-over, hand-back and the enablement of in-commit timestamps add those."""


def needed_features(metadata: Metadata) -> frozenset[str]:
    """Features that a table needs because of its columns and properties."""
    schema = parse(metadata.schema_string)
    needed = set(required_features(schema))
    if maps_columns(metadata):
        needed.add(COLUMN_MAPPING)
    needed |= {feature for feature in _ENABLED_BY if wants(metadata, feature)}
    if CHANGE_FEED_FEATURE in needed:
        check_no_change_columns(metadata)
    if ROW_TRACKING in needed:
        needed.add("domainMetadata")
    if any(key.lower().startswith(CONSTRAINT_PREFIX) for key in metadata.configuration):
        needed.add("checkConstraints")
    keys = {key for column, _ in walk(schema) for key in column.metadata}
    needed |= {feature for key, feature in _COLUMN_KEYS.items() if key in keys}
    return frozenset(needed)


def rules_of_rows(protocol: Protocol, metadata: Metadata) -> frozenset[tuple[str, str]]:
    """The conditions that all rows must meet: CHECK constraints, invariants and generated columns, with their SQL.

    Rules whose feature is missing are ignored."""
    supported = writer_features(protocol)
    constraints = {
        (key, text) for key, text in metadata.configuration.items() if key.lower().startswith(CONSTRAINT_PREFIX)
    }
    columns = (column.metadata for column, _ in walk(parse(metadata.schema_string)))
    rules = constraints | {(k, str(column[k])) for column in columns for k in (INVARIANTS, GENERATION) if k in column}
    return frozenset(rule for rule in rules if _COLUMN_KEYS.get(rule[0], "checkConstraints") in supported)


def has_rules(schema: Struct, properties: Mapping[str, str]) -> bool:
    """Whether rows may have to meet rules, or lack columns that the table fills: `refimpl.rows.row_rules`."""
    keys = {key for column, _ in walk(schema) for key in column.metadata}
    constrained = any(key.lower().startswith(CONSTRAINT_PREFIX) for key in properties)
    return constrained or not keys.isdisjoint((*_COLUMN_KEYS, TEXT_TYPE))


_COLUMN_KEYS: Final = {
    INVARIANTS: "invariants",
    GENERATION: "generatedColumns",
    f"{IDENTITY_PREFIX}start": "identityColumns",
    DEFAULT: "allowColumnDefaults",
}
RULES: Final = frozenset({"checkConstraints", *_COLUMN_KEYS.values()})
"""Features whose rules `refimpl.rows.row_rules` evaluates."""


def check_no_change_columns(metadata: Metadata) -> None:
    """Raise `InvalidRequestError` for a column whose name the change data feed uses."""
    for name in parse(metadata.schema_string).names:
        if name.lower() in FEED_COLUMNS:
            raise InvalidRequestError(
                f"the column name {name!r} is reserved by the change data feed; rename it, or set "
                f"{CHANGE_FEED_PROPERTY}=false",
                column=name,
            )


def first_protocol(metadata: Metadata, feature: TableFeature | None, *, in_commit_timestamps: bool) -> Protocol:
    """The protocol of a new table's version 0, with only the features that the table needs."""
    needed = needed_features(metadata)
    if feature is None and not in_commit_timestamps and needed <= {APPEND_ONLY_FEATURE, "invariants"}:
        return PLAIN_PROTOCOL
    empty = Protocol(min_reader_version=1, min_writer_version=WRITER_VERSION_WITH_LISTS, writer_features=())
    if in_commit_timestamps:
        needed |= {IN_COMMIT_TIMESTAMP_FEATURE}
    protocol = supporting(empty, needed)
    return protocol if feature is None else owned(protocol, feature)


def supporting(protocol: Protocol, features: Iterable[str]) -> Protocol:
    """The protocol with these features; itself if it has them all. Replaces legacy versions by lists if necessary.

    A feature that readers need, too, may be missing for them only: writer version 5 implies column mapping, and reader
    version 1 does not.
    """
    written, read = {*writer_features(protocol)}, {*_reader_features(protocol)}
    for present in (written, read):
        if TYPE_WIDENING[1] in present:  # the preview of it
            present.add(TYPE_WIDENING[0])
    unread = _READER_FEATURES - read
    missing = [name for name in sorted(set(features)) if name not in written or name in unread]
    if not missing:
        return protocol
    return _listing(protocol, missing, [name for name in missing if name in _READER_FEATURES])


def owned(protocol: Protocol, feature: TableFeature) -> Protocol:
    """The protocol of a table that is given to an owner: managed-commits and catalog-managed, "Enablement"."""
    beside = (VACUUM_PROTOCOL_CHECK,) if feature.vacuum_protocol_check else ()
    both = (feature.name, *beside) if feature.reader_feature else beside
    writer = (feature.name, *beside)
    if not protocol.writes(IN_COMMIT_TIMESTAMP_SYNONYM):
        writer = (*writer, IN_COMMIT_TIMESTAMP_FEATURE)
    return _listing(protocol, writer, both)


def demanded(protocol: Protocol, reader: Iterable[str], writer: Iterable[str]) -> Protocol:
    """The protocol with the features that a catalog requires of its tables."""
    readers = tuple(reader)
    return _listing(protocol, (*readers, *writer), readers)


def disowned(protocol: Protocol, feature: TableFeature, kept: str | None) -> Protocol:
    """The protocol of a table that goes back to the filesystem: without the table feature, in-commit timestamps stay.

    managed-commits, "Converting a managed-commit table to filesystem table". Features that came with the table feature
    are removed with it, and so is an empty list for readers: readers that do not support lists can then read the table.
    `kept`: the feature that the table had before, see `properties.KEPT_FEATURE`.
    """
    leaving = {feature.name} | ({VACUUM_PROTOCOL_CHECK} if feature.vacuum_protocol_check else set())
    leaving -= {kept}
    writer = tuple(name for name in protocol.writer_features or () if name not in leaving)
    if protocol.reader_features is None:
        return msgspec.structs.replace(protocol, writer_features=writer)
    reader = tuple(name for name in protocol.reader_features if name not in leaving)
    return Protocol(
        min_reader_version=READER_VERSION_WITH_LISTS if reader else 1,
        min_writer_version=WRITER_VERSION_WITH_LISTS,
        reader_features=reader or None,
        writer_features=writer,
    )


def _listing(protocol: Protocol, writer: Iterable[str], reader: Iterable[str]) -> Protocol:
    """The protocol with these features added to the lists; implied features are listed by name."""
    wanted_by_readers = tuple(reader)
    readers = protocol.reader_features
    if readers is None and wanted_by_readers:
        readers = _reader_features(protocol)
    return msgspec.structs.replace(
        protocol,
        min_reader_version=protocol.min_reader_version if readers is None else READER_VERSION_WITH_LISTS,
        min_writer_version=WRITER_VERSION_WITH_LISTS,
        reader_features=None if readers is None else _joined(readers, wanted_by_readers),
        writer_features=_joined(writer_features(protocol), writer),
    )


def _joined(present: Iterable[str], more: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*present, *more)))


class IsolationLevel(Enum):
    """Which files added by others a transaction may ignore. The values are Delta's names."""

    SERIALIZABLE = "Serializable"
    """Ignores no added file: as if all transactions had run one after another in the order of their versions."""
    WRITE_SERIALIZABLE = "WriteSerializable"
    """Ignores the files of concurrent blind appends: as if these had run later."""
    SNAPSHOT_ISOLATION = "SnapshotIsolation"
    """Ignores all files added since its snapshot. A transaction that changes the metadata ignores none at any level."""


def isolation_level(name: str) -> IsolationLevel:
    """The level with this name, in any case; `InvalidRequestError` for an unknown one."""
    for level in IsolationLevel:
        if level.value.lower() == name.lower():
            return level
    known = ", ".join(level.value for level in IsolationLevel)
    raise InvalidRequestError(f"unknown isolation level {name!r}; expected one of {known}", name=name)
