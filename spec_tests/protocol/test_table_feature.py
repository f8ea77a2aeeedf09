"""The table features as values: "Enablement" and "Writer Requirements" of both documents."""

import msgspec
import pytest

from refimpl.protocol.actions import Metadata, Protocol
from refimpl.protocol.table_feature import (
    CATALOG_MANAGED,
    IN_COMMIT_TIMESTAMP_FEATURE,
    IN_COMMIT_TIMESTAMP_PROPERTY,
    IN_COMMIT_TIMESTAMP_SYNONYM,
    MANAGED_COMMIT,
    TABLE_FEATURES,
    CommitMode,
    TableFeature,
    feature_of,
    in_commit_timestamps_enabled,
    inconsistencies,
)
from spec_tests.support.builders import metadata_of, protocol_of

EACH = pytest.mark.parametrize("feature", TABLE_FEATURES.values(), ids=lambda feature: feature.name)
OWNER = MANAGED_COMMIT.owner_property or ""


def with_configuration(metadata: Metadata, **changes: str | None) -> Metadata:
    configuration = dict(metadata.configuration)
    for key, value in changes.items():
        if value is None:
            configuration.pop(key, None)
        else:
            configuration[key] = value
    return msgspec.structs.replace(metadata, configuration=configuration)


@EACH
def test_a_valid_table_has_no_inconsistency(feature: TableFeature) -> None:
    protocol, metadata = protocol_of(feature), metadata_of(feature)
    assert inconsistencies(protocol, metadata) == []
    assert feature.enabled_in(protocol)
    assert feature_of(protocol) is feature


@EACH
@pytest.mark.parametrize("writer_version", [2, 6, 8])
def test_owned_table_needs_writer_version_7(feature: TableFeature, writer_version: int) -> None:
    protocol = msgspec.structs.replace(protocol_of(feature), min_writer_version=writer_version)
    assert inconsistencies(protocol, metadata_of(feature))


@pytest.mark.parametrize("reader_version", [1, 2])
def test_catalog_managed_table_needs_reader_version_3(reader_version: int) -> None:
    protocol = msgspec.structs.replace(protocol_of(CATALOG_MANAGED), min_reader_version=reader_version)
    assert inconsistencies(protocol, metadata_of(CATALOG_MANAGED))
    managed = msgspec.structs.replace(protocol_of(MANAGED_COMMIT), min_reader_version=reader_version)
    assert inconsistencies(managed, metadata_of(MANAGED_COMMIT)) == []


@pytest.mark.parametrize("missing", ["reader_features", "writer_features"])
def test_catalog_managed_must_be_in_both_feature_lists(missing: str) -> None:
    good = protocol_of(CATALOG_MANAGED)
    listed = tuple(name for name in getattr(good, missing) if name != CATALOG_MANAGED.name)
    bad = msgspec.structs.replace(good, **{missing: listed})
    assert not CATALOG_MANAGED.enabled_in(bad)
    assert CATALOG_MANAGED.mentioned_in(bad)
    assert inconsistencies(bad, metadata_of(CATALOG_MANAGED))


def test_managed_commit_needs_its_owner_property() -> None:
    """managed-commits, "Managed Commit Enablement": the feature without its property, or the reverse, is invalid."""
    protocol, metadata = protocol_of(MANAGED_COMMIT), metadata_of(MANAGED_COMMIT)
    assert inconsistencies(protocol, with_configuration(metadata, **{OWNER: None}))
    assert inconsistencies(protocol, with_configuration(metadata, **{OWNER: ""}))
    assert inconsistencies(protocol_of(None), metadata)
    assert inconsistencies(protocol_of(CATALOG_MANAGED), metadata)
    assert inconsistencies(protocol_of(CATALOG_MANAGED), with_configuration(metadata, **{OWNER: None})) == []


@EACH
def test_in_commit_timestamps_are_supported_and_active(feature: TableFeature) -> None:
    protocol, metadata = protocol_of(feature), metadata_of(feature)
    for value in (None, "false", ""):
        assert inconsistencies(protocol, with_configuration(metadata, **{IN_COMMIT_TIMESTAMP_PROPERTY: value}))
    assert inconsistencies(protocol_of(feature, in_commit_timestamps=False), metadata)
    assert inconsistencies(protocol, with_configuration(metadata, **{IN_COMMIT_TIMESTAMP_PROPERTY: "TRUE"})) == []


def test_plural_name_of_in_commit_timestamps_is_accepted() -> None:
    """RULINGS.md#feature-name: one sentence of the document uses the plural."""
    for name, enabled in ((IN_COMMIT_TIMESTAMP_FEATURE, True), (IN_COMMIT_TIMESTAMP_SYNONYM, True), ("other", False)):
        protocol = Protocol(min_reader_version=1, min_writer_version=7, writer_features=(name,))
        assert in_commit_timestamps_enabled(protocol, metadata_of(None)) is enabled
    assert IN_COMMIT_TIMESTAMP_SYNONYM not in (protocol_of(CATALOG_MANAGED).writer_features or ())


def test_a_table_has_one_owner() -> None:
    both = Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=("catalogManaged",),
        writer_features=("catalogManaged", "managedCommit", IN_COMMIT_TIMESTAMP_FEATURE),
    )
    assert inconsistencies(both, metadata_of(MANAGED_COMMIT))


def test_feature_lists_need_their_protocol_versions() -> None:
    good = Protocol(min_reader_version=3, min_writer_version=7, reader_features=(), writer_features=())
    assert inconsistencies(good, metadata_of(None)) == []
    assert inconsistencies(msgspec.structs.replace(good, min_reader_version=2), metadata_of(None))
    assert inconsistencies(msgspec.structs.replace(good, min_writer_version=6), metadata_of(None))


def test_the_features_differ_where_the_documents_do() -> None:
    """RULINGS.md#disagreements."""
    assert CommitMode.INLINE not in MANAGED_COMMIT.commit_modes
    assert CATALOG_MANAGED.commit_modes == frozenset(CommitMode)
    assert (MANAGED_COMMIT.staging_folder, CATALOG_MANAGED.staging_folder) == ("_commits", "_staged_commits")
    for name in ("owner_copy_wins", "capped_at_latest", "requires_txn_id", "cleanup_deletes_checksums"):
        assert (getattr(MANAGED_COMMIT, name), getattr(CATALOG_MANAGED, name)) == (False, True)
    assert (MANAGED_COMMIT.path_access, CATALOG_MANAGED.path_access) == (True, False)
