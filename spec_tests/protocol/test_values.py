"""The values of the protocol. Actions and their lines: DELTA.md#actions; managed-commits, "Delta Log Entries". File
names of a log: DELTA.md#file-names; managed-commits, "Commit Files"; catalog-managed, "Staged commit". Table
features: "Enablement" and "Writer Requirements" of both documents. Errors, which have facts and can be sent to
another process without loss.
"""

import copy
import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.protocol import actions, errors, log_path
from refimpl.protocol.actions import Metadata, Protocol
from refimpl.protocol.errors import CorruptLogError, DeltaError, InvalidRequestError
from refimpl.protocol.log_path import MAX_VERSION, FileKind
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

UUID = "3a0d65cd-4056-49b8-937b-95f9e3ee90e5"
ZEROS = "0" * 20

versions = st.integers(min_value=0, max_value=MAX_VERSION)


@given(versions)
def test_every_written_name_is_parsed_to_its_version(version: int) -> None:
    for name, kind in (
        (log_path.commit(version), FileKind.COMMIT),
        (log_path.checksum(version), FileKind.CHECKSUM),
        (log_path.classic_checkpoint(version), FileKind.CLASSIC_CHECKPOINT),
    ):
        parsed = log_path.parse(name, size=7, modified=9)
        assert parsed is not None
        assert (parsed.kind, parsed.version, parsed.name, parsed.size, parsed.modified) == (kind, version, name, 7, 9)
        assert len(name.split(".")[0]) == 20


@given(st.text(max_size=60))
def test_parsing_any_text_never_fails(name: str) -> None:
    for parsed in (log_path.parse(name), log_path.parse_staged(name)):
        assert parsed is None or (parsed.name == name and name.isascii() and 0 <= parsed.version <= MAX_VERSION)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (f"{ZEROS}.json", FileKind.COMMIT),
        (f"{MAX_VERSION:020d}.json", FileKind.COMMIT),
        (f"{ZEROS}.checkpoint.parquet", FileKind.CLASSIC_CHECKPOINT),
        (f"{ZEROS}.checkpoint.0000000001.0000000002.parquet", FileKind.CHECKPOINT_PART),
        (f"{ZEROS}.checkpoint.{UUID}.json", FileKind.V2_CHECKPOINT),
        (f"{ZEROS}.checkpoint.{UUID}.parquet", FileKind.V2_CHECKPOINT),
        (f"{ZEROS}.checkpoint.{UUID.upper()}.parquet", FileKind.V2_CHECKPOINT),
        (f"{ZEROS}.{ZEROS}.compacted.json", FileKind.COMPACTION),
        (f"{ZEROS}.crc", FileKind.CHECKSUM),
    ],
)
def test_each_documented_name_has_its_kind(name: str, kind: FileKind) -> None:
    parsed = log_path.parse(name)
    assert parsed is not None
    assert parsed.kind is kind


@pytest.mark.parametrize(
    "name",
    [
        "0.json",
        f"{ZEROS}0.json",
        f"{ZEROS}.json\n",
        f"{ZEROS}.JSON",
        f" {ZEROS}.json",
        f"../{ZEROS}.json",
        f"_staged_commits/{ZEROS}.{UUID}.json",
        f"{ZEROS}.json/../{ZEROS}.json",
        f"{ZEROS}.json\0",
        "٠" * 20 + ".json",  # digits, but not ASCII digits
        "9" * 20 + ".json",  # twenty digits, but no long
        f"{MAX_VERSION + 1:020d}.json",
        "-0000000000000000001.json",
        f"{ZEROS}.CHECKPOINT.{UUID}.json",
        f"{ZEROS}.checkpoint.0000000000.0000000002.parquet",
        f"{ZEROS}.checkpoint.0000000003.0000000002.parquet",
        f"{ZEROS}.checkpoint.1.2.parquet",
        f"{1:020d}.{ZEROS}.compacted.json",
        f"{ZEROS}.{'9' * 20}.compacted.json",
        ".tmp-" + UUID,
        "_last_checkpoint",
    ],
)
def test_other_names_are_invalid(name: str) -> None:
    assert log_path.parse(name) is None


@pytest.mark.parametrize(
    "name",
    [
        f"{ZEROS}.{UUID}.JSON",
        f"{ZEROS}.{UUID}.json.tmp",
        f"{ZEROS}.{UUID[:-1]}.json",
        f"{ZEROS}.{UUID}x.json",
        f"../{ZEROS}.{UUID}.json",
        f"{'9' * 20}.{UUID}.json",
        f"{ZEROS}.{UUID.replace('-', '_')}.json",
    ],
)
def test_names_close_to_a_staged_one_are_invalid(name: str) -> None:
    assert log_path.parse_staged(f"{ZEROS}.{UUID}.json") is not None
    assert log_path.parse_staged(name) is None


@pytest.mark.parametrize("version", [-1, MAX_VERSION + 1, 2**100, True, False, 1.0, "1", None])
def test_invalid_version_is_rejected_in_a_name(version: object) -> None:
    for build in (log_path.commit, log_path.checksum, log_path.classic_checkpoint):
        with pytest.raises(InvalidRequestError):
            build(version)  # type: ignore[arg-type]


@pytest.mark.parametrize("attempt", ["", "../../evil", f"{UUID}/..", UUID[:-1], UUID + "\n", "attempt-1"])
def test_an_invalid_uuid_has_no_staged_name(attempt: str) -> None:
    assert log_path.staged_commit(0, UUID) == f"{ZEROS}.{UUID}.json"
    with pytest.raises(InvalidRequestError):
        log_path.staged_commit(0, attempt)


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


KINDS = sorted(
    (kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, DeltaError)),
    key=lambda kind: kind.__name__,
)


def test_every_error_can_be_pickled() -> None:
    made = [kind("version 3 is taken", version=3, path="a/b") for kind in KINDS]
    twins = [twin for error in made for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error))]  # noqa: S301
    for number, twin in enumerate(twins):
        assert type(twin) is KINDS[number // 2]
        assert str(twin) == "version 3 is taken"
        assert (twin.version, twin.path, twin.facts) == (3, "a/b", {"version": 3, "path": "a/b"})


def test_missing_fact_is_no_attribute() -> None:
    error = DeltaError("x", version=3)
    assert error.version == 3
    with pytest.raises(AttributeError):
        _ = error.attempt


def test_error_classes_differ_by_the_reaction_of_the_caller() -> None:
    """As in the table of the module: each reaction is one branch of the hierarchy, and no error is in two branches."""
    branches = (
        errors.InvalidRequestError,
        errors.LostRaceError,
        errors.ConcurrentModificationError,
        errors.OutcomeUnknown,
        errors.OwnerUnavailableError,
        errors.CorruptionError,
    )
    for kind in KINDS:
        if kind is not DeltaError:
            assert sum(issubclass(kind, branch) for branch in branches) == 1, kind


LONG = st.integers(min_value=-(2**63), max_value=2**63 - 1)
SIZE = st.integers(min_value=0, max_value=2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
STRINGS = st.dictionaries(TEXT, TEXT, max_size=3)
NULLABLE_STRINGS = st.dictionaries(TEXT, st.none() | TEXT, max_size=3)
NAMES = st.none() | st.lists(TEXT, max_size=3).map(tuple)
VECTORS = st.none() | st.builds(
    actions.DeletionVector,
    storage_type=st.sampled_from("upi"),
    path_or_inline_dv=TEXT,
    size_in_bytes=SIZE,
    cardinality=SIZE,
    offset=st.none() | SIZE,
)
JSON = st.recursive(
    st.none() | st.booleans() | LONG | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
OPTIONAL_FILE_FIELDS: dict[str, Any] = {
    "stats": st.none() | TEXT,
    "tags": st.none() | NULLABLE_STRINGS,
    "deletion_vector": VECTORS,
    "base_row_id": st.none() | LONG,
    "default_row_commit_version": st.none() | LONG,
}
ACTIONS: st.SearchStrategy[actions.Action] = st.one_of(
    st.builds(actions.CommitInfo, st.dictionaries(TEXT, JSON, max_size=4)),
    st.builds(
        actions.Protocol, min_reader_version=SIZE, min_writer_version=SIZE, reader_features=NAMES, writer_features=NAMES
    ),
    st.builds(
        actions.Metadata,
        id=TEXT,
        schema_string=TEXT,
        name=st.none() | TEXT,
        description=st.none() | TEXT,
        format=st.builds(actions.Format, provider=TEXT, options=STRINGS),
        partition_columns=st.lists(TEXT, max_size=3).map(tuple),
        configuration=STRINGS,
        created_time=st.none() | LONG,
    ),
    st.builds(
        actions.Add,
        path=TEXT,
        data_change=st.booleans(),
        partition_values=NULLABLE_STRINGS,
        size=SIZE,
        modification_time=LONG,
        clustering_provider=st.none() | TEXT,
        **OPTIONAL_FILE_FIELDS,
    ),
    st.builds(
        actions.Remove,
        path=TEXT,
        data_change=st.booleans(),
        partition_values=st.none() | NULLABLE_STRINGS,
        size=st.none() | SIZE,
        deletion_timestamp=st.none() | LONG,
        extended_file_metadata=st.none() | st.booleans(),
        **OPTIONAL_FILE_FIELDS,
    ),
    st.builds(actions.Txn, app_id=TEXT, version=LONG, last_updated=st.none() | LONG),
    st.builds(actions.DomainMetadata, domain=TEXT, configuration=TEXT, removed=st.booleans()),
    st.builds(actions.Cdc, path=TEXT, partition_values=NULLABLE_STRINGS, size=SIZE, data_change=st.booleans()),
    st.builds(actions.Sidecar, path=TEXT, size_in_bytes=SIZE, modification_time=LONG),
    st.builds(actions.CheckpointMetadata, version=LONG),
)


@given(st.lists(ACTIONS, min_size=1, max_size=6))
def test_actions_are_read_back_unchanged_one_in_each_line(written: list[actions.Action]) -> None:
    content = actions.encode(written)
    assert actions.decode(content, source="test") == written
    lines = content.split(b"\n")
    assert lines.pop() == b""
    assert [actions.decode(line, source="test") for line in lines] == [[action] for action in written]


@given(st.binary(max_size=80))
def test_any_bytes_are_actions_or_a_corrupt_log_error(content: bytes) -> None:
    try:
        decoded = actions.decode(content, source="test")
    except CorruptLogError as error:
        assert error.path == "test"
    else:
        assert actions.decode(actions.encode([actions.CommitInfo({}), *decoded]), source="test")[1:] == decoded


def test_unknown_actions_and_unknown_fields_are_ignored() -> None:
    content = (
        b'{"futureAction":{"deep":[1,{"x":null}]}}\n'
        b'{"txn":{"appId":"a","version":3,"futureField":{"x":1}},"futureSibling":7}\n'
        b"{}\n"
    )
    assert actions.decode(content, source="test") == [actions.Txn(app_id="a", version=3)]


def test_absent_and_null_mean_the_same() -> None:
    absent = actions.decode(b'{"txn":{"appId":"a","version":3}}', source="test")
    null = actions.decode(b'{"txn":{"appId":"a","version":3,"lastUpdated":null},"add":null}', source="test")
    assert absent == null == [actions.Txn(app_id="a", version=3, last_updated=None)]


def test_blank_lines_and_carriage_returns_are_harmless() -> None:
    content = b'\r\n\n{"txn":{"appId":"a","version":3}}\r\n \n{"txn":{"appId":"b","version":4}}'
    assert actions.decode(content, source="test") == [
        actions.Txn(app_id="a", version=3),
        actions.Txn(app_id="b", version=4),
    ]


GOOD = b'{"txn":{"appId":"a","version":3}}'


@pytest.mark.parametrize(
    "bad",
    [
        b"{",
        b"null",
        b"[]",
        b"1",
        b'"commitInfo"',
        b'{"txn":{"appId":"a"}}',
        b'{"txn":{"appId":"a","version":"3"}}',
        b'{"add":{"path":"x"}}',
        b'{"commitInfo":[]}',
        b'{"commitInfo":{"a":NaN}}',
        b'\xef\xbb\xbf{"txn":{"appId":"a","version":3}}',
        b'{"txn":{"appId":"\xff","version":3}}',
        b'{"futureAction":"\xff"}',
        b'{"txn":{"appId":"\\ud800","version":3}}',
        b'{"txn":{"appId":"a","version":3}',
        b'{"commitInfo":{"deep":' + b"[" * 5000 + b"]" * 5000 + b"}}",
    ],
)
def test_an_invalid_line_is_named(bad: bytes) -> None:
    assert len(actions.decode(GOOD + b"\n" + GOOD, source="7.json")) == 2
    with pytest.raises(CorruptLogError) as caught:
        actions.decode(GOOD + b"\n\n" + bad + b"\n" + GOOD, source="7.json")
    assert caught.value.line == 3
    assert caught.value.path == "7.json"


@pytest.mark.parametrize(
    "content",
    [
        GOOD + b" " + GOOD,
        GOOD + GOOD,
        GOOD.replace(b"{", b"{\n", 1),
        b'{"txn":{"appId":"a","version":3},"commitInfo":{}}',
    ],
)
def test_each_line_is_one_action(content: bytes) -> None:
    """managed-commits, "Delta Log Entries": other readers parse each line, and must get the same actions."""
    assert actions.decode(GOOD, source="test") == [actions.Txn(app_id="a", version=3)]
    with pytest.raises(CorruptLogError) as caught:
        actions.decode(content, source="test")
    assert caught.value.line == 1


def test_a_file_is_identified_by_its_path_and_deletion_vector() -> None:
    plain = actions.Add(path="f", data_change=True, partition_values={}, size=1, modification_time=1)
    vector = actions.DeletionVector(storage_type="u", path_or_inline_dv="ab", size_in_bytes=1, cardinality=1)
    marked = msgspec.structs.replace(plain, deletion_vector=vector)
    shifted = msgspec.structs.replace(plain, deletion_vector=msgspec.structs.replace(vector, offset=4))
    assert [add.key for add in (plain, marked, shifted)] == [("f", None), ("f", "uab"), ("f", "uab@4")]
