"""Actions and their lines: DELTA.md#actions; managed-commits, "Delta Log Entries"."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.protocol import actions
from refimpl.protocol.errors import CorruptLogError

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
