"""The table features of managed commits, as values of one type.

managed-commits and catalog-managed name the same states differently and differ in a few rules.
Every difference is a field here; no other module asks which of them a feature is.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from refimpl.protocol.actions import CommitInfo, Metadata, Protocol, column_names
from refimpl.protocol.errors import CorruptLogError

IN_COMMIT_TIMESTAMP_FEATURE: Final = "inCommitTimestamp"
IN_COMMIT_TIMESTAMP_SYNONYM: Final = "inCommitTimestamps"
"""One sentence of the in-commit-timestamps document spells it so: accepted when read, never written."""
IN_COMMIT_TIMESTAMP_PROPERTY: Final = "delta.enableInCommitTimestamps"
VACUUM_PROTOCOL_CHECK: Final = "vacuumProtocolCheck"
ENABLEMENT_VERSION: Final = "delta.inCommitTimestampEnablementVersion"
ENABLEMENT_TIMESTAMP: Final = "delta.inCommitTimestampEnablementTimestamp"
"""Since when commits have such a time, where that is not since version 0."""


class CommitMode(Enum):
    """How a commit of version v is proposed, and what ratifies it.

    catalog-managed, "Commit Protocol", options 1 to 3; managed-commits, "Commit Protocol", knows
    the first and the last.
    """

    STAGED = "staged"
    """A staged file; ratified when the owner records its name."""
    INLINE = "inline"
    """Bytes sent to the owner; ratified when the owner records them."""
    DIRECT = "direct"
    """Put-if-absent of `<v>.json`; ratified when that file becomes visible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFeature:
    """One table feature. Fields cite the passages where the two documents differ."""

    name: str
    """As in the protocol action's feature lists, and the table feature's name here."""
    reader_feature: bool
    """catalog-managed, "Enablement": in both lists; managed-commits: a writer feature."""
    min_reader_version: int
    commit_modes: frozenset[CommitMode]
    staging_folder: str
    """Below `_delta_log`; holds `<v>.<uuid>.json`."""
    owner_copy_wins: bool
    """On overlap of the owner's commits and published files. catalog-managed: a MUST."""
    capped_at_latest: bool
    """Whether files above the owner's latest version are ignored. catalog-managed: a MUST."""
    path_access: bool
    """Whether a table may be read by path (a possibly stale prefix), or only through its owner."""
    clients_publish: bool
    """Whether clients may publish ratified commits. managed-commits: the owner does, clients only to rescue."""
    owner_property: str | None
    """Table property that names the owner; the feature without it, or it without the feature, is invalid."""
    owner_conf_property: str | None
    """Table property with a JSON string-to-string map for the owner's client; never secrets."""
    table_conf_property: str | None
    """Table property with a JSON string-to-string map by which the owner knows the table."""
    owner_leaves_first: bool
    """Whether a hand-back removes the owner's properties and leaves the feature in the protocol, for a later commit
    that the owner has no part in. managed-commits removes both at once."""
    engines_create: bool
    """Whether an engine writes version 0, or the change of owner, by itself, and the owner adopts the table then."""
    vacuum_protocol_check: bool
    """Whether engines expect the feature vacuumProtocolCheck beside it, in both lists."""
    requires_txn_id: bool
    """catalog-managed, "Commit Provenance Information"."""
    cleanup_deletes_checksums: bool
    """catalog-managed, "Metadata Cleanup", deletes checksums too."""
    cleanup_keeps_newest: int
    """managed-commits, "Writer Requirements": how many of the newest backfilled commits always stay."""
    table_id_property: str | None = None
    """Table property with the owner's id of the table: engines that commit through a catalog look for it in the log."""

    def enabled_in(self, protocol: Protocol) -> bool:
        """Whether the protocol action lists this feature everywhere that it must be listed."""
        return protocol.writes(self.name) and (not self.reader_feature or protocol.reads(self.name))

    def mentioned_in(self, protocol: Protocol) -> bool:
        return protocol.writes(self.name) or protocol.reads(self.name)


MANAGED_COMMIT: Final = TableFeature(
    name="managedCommit",
    reader_feature=False,
    min_reader_version=1,
    commit_modes=frozenset({CommitMode.STAGED, CommitMode.DIRECT}),
    staging_folder="_commits",
    owner_copy_wins=False,
    capped_at_latest=False,
    path_access=True,
    clients_publish=False,
    owner_property="delta.managedCommit.commitOwner",
    owner_conf_property="delta.managedCommit.commitOwnerConf",
    table_conf_property=None,
    owner_leaves_first=False,
    engines_create=False,
    vacuum_protocol_check=False,
    requires_txn_id=False,
    cleanup_deletes_checksums=False,
    cleanup_keeps_newest=1,
)

CATALOG_MANAGED: Final = TableFeature(
    name="catalogManaged",
    reader_feature=True,
    min_reader_version=3,
    commit_modes=frozenset({CommitMode.STAGED, CommitMode.INLINE, CommitMode.DIRECT}),
    staging_folder="_staged_commits",
    owner_copy_wins=True,
    capped_at_latest=True,
    path_access=False,
    clients_publish=True,
    owner_property=None,
    owner_conf_property=None,
    table_conf_property=None,
    owner_leaves_first=False,
    engines_create=False,
    vacuum_protocol_check=True,
    requires_txn_id=True,
    cleanup_deletes_checksums=True,
    cleanup_keeps_newest=1,
    table_id_property="io.unitycatalog.tableId",
)
"""`cleanup_keeps_newest` is 1 here too: the cut-off checkpoint's own commit proves its version."""

COORDINATED_COMMITS: Final = replace(
    MANAGED_COMMIT,
    name="coordinatedCommits-preview",
    commit_modes=frozenset({CommitMode.STAGED}),
    staging_folder="_staged_commits",
    owner_property="delta.coordinatedCommits.commitCoordinator-preview",
    owner_conf_property="delta.coordinatedCommits.commitCoordinatorConf-preview",
    table_conf_property="delta.coordinatedCommits.tableConf-preview",
    owner_leaves_first=True,
    engines_create=True,
    vacuum_protocol_check=True,
)
"""managed-commits as Delta Lake 4.x ships it, with names of its own: DELTA_SPARK.md#names."""

DOCUMENTED_FEATURES: Final = {feature.name: feature for feature in (MANAGED_COMMIT, CATALOG_MANAGED)}
"""The table features that the two documents define; the others are engines' renderings of them."""

TABLE_FEATURES: Final = {**DOCUMENTED_FEATURES, COORDINATED_COMMITS.name: COORDINATED_COMMITS}


def feature_of(protocol: Protocol) -> TableFeature | None:
    """The table feature that a protocol mentions, or None for a filesystem table."""
    return next((f for f in TABLE_FEATURES.values() if f.mentioned_in(protocol)), None)


def in_commit_timestamps_enabled(protocol: Protocol, metadata: Metadata) -> bool:
    """in-commit timestamps, "Enablement": writer feature and property."""
    listed = protocol.writes(IN_COMMIT_TIMESTAMP_FEATURE) or protocol.writes(IN_COMMIT_TIMESTAMP_SYNONYM)
    return listed and metadata.configuration.get(IN_COMMIT_TIMESTAMP_PROPERTY, "").lower() == "true"


def inconsistencies(protocol: Protocol, metadata: Metadata) -> list[str]:
    """What contradicts itself in a table's protocol and properties, one sentence each.

    managed-commits and catalog-managed, "Enablement" and "Writer Requirements".
    """
    problems: list[str] = []
    for feature in TABLE_FEATURES.values():
        problems += _feature_inconsistencies(feature, protocol, metadata)
    if sum(feature.mentioned_in(protocol) for feature in TABLE_FEATURES.values()) > 1:
        problems.append(f"a table has one owner, but the protocol lists {' and '.join(TABLE_FEATURES)}")
    if protocol.writer_features is not None and protocol.min_writer_version < 7:
        problems.append(f"writerFeatures need writer version 7, not {protocol.min_writer_version}")
    if protocol.reader_features is not None and protocol.min_reader_version < 3:
        problems.append(f"readerFeatures need reader version 3, not {protocol.min_reader_version}")
    return problems


def _feature_inconsistencies(feature: TableFeature, protocol: Protocol, metadata: Metadata) -> list[str]:
    owner = feature.owner_property
    if not feature.mentioned_in(protocol):
        if owner is not None and owner in metadata.configuration:
            return [f"the property {owner} is set, but the protocol lacks the feature {feature.name}"]
        return []
    problems: list[str] = []
    if not feature.enabled_in(protocol):
        lists = "readerFeatures and writerFeatures" if feature.reader_feature else "writerFeatures"
        problems.append(f"the feature {feature.name} must be in {lists}")
    if protocol.min_writer_version != 7:
        problems.append(f"{feature.name} needs writer version 7, not {protocol.min_writer_version}")
    if protocol.min_reader_version < feature.min_reader_version:
        problems.append(
            f"{feature.name} needs reader version {feature.min_reader_version}, not {protocol.min_reader_version}"
        )
    if owner is not None and not metadata.configuration.get(owner):
        problems.append(f"the protocol has the feature {feature.name}, but the property {owner} is not set")
    if not in_commit_timestamps_enabled(protocol, metadata):
        problems.append(
            f"{feature.name} needs the writer feature {IN_COMMIT_TIMESTAMP_FEATURE} and "
            f"{IN_COMMIT_TIMESTAMP_PROPERTY}=true"
        )
    return problems


def unreadable(metadata: Metadata) -> str | None:
    """Why no reader could make sense of a table with this metadata, or None."""
    try:
        columns = [name.lower() for name in column_names(metadata.schema_string)]
    except CorruptLogError as error:
        return error.message
    twice = sorted({name for name in columns if columns.count(name) > 1})
    missing = sorted(name for name in metadata.partition_columns if name.lower() not in columns)
    if twice:
        return f"the schema has the column {twice[0]!r} twice; column names are case-insensitive"
    if missing:
        return f"the partition column {missing[0]!r} is not in the schema"
    if (ENABLEMENT_VERSION in metadata.configuration) != (ENABLEMENT_TIMESTAMP in metadata.configuration):
        return f"{ENABLEMENT_VERSION} and {ENABLEMENT_TIMESTAMP} are required together; one of them is missing"
    return None


def missing_provenance(feature: TableFeature, info: CommitInfo) -> str | None:
    """What a commitInfo lacks that this table feature demands, or None."""
    if feature.requires_txn_id and info.txn_id is None:
        return f"{feature.name} demands a commitInfo.txnId (a non-empty string)"
    return None
