"""The files of a checkpoint stay columns until a caller needs them as actions. Both forms describe the same files."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.client.maintenance import write_checkpoint
from refimpl.client.snapshot import Snapshot
from refimpl.log import checkpoint_format, file_columns
from refimpl.log.file_columns import FileRows
from refimpl.protocol import log_path
from refimpl.protocol.actions import Add, DeletionVector, FileKey, Remove
from spec_tests.support.written_log import (
    COLUMNS,
    VECTOR,
    WrittenLog,
    add,
    classic_content,
    definition,
    parquet,
    remove,
    row,
)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of actions that each call made from rows."""
    counts: list[int] = []
    actions = FileRows.actions

    def counted(rows: FileRows[Any]) -> Iterator[Any]:
        counts.append(len(rows.batch))
        return actions(rows)

    monkeypatch.setattr(FileRows, "actions", counted)
    return counts


def checkpointed(folder: Path, *actions: Add | Remove) -> WrittenLog:
    """A log that begins with a checkpoint of version 5."""
    log = WrittenLog(folder / "t").publish(5)
    return log.write(log_path.classic_checkpoint(5), checkpoint_format.classic_of([*definition(), *actions])[0])


class TestCost:
    def test_counting_files_makes_no_actions(self, tmp_path: Path, made: list[int]) -> None:
        log = checkpointed(tmp_path, remove("gone"), *(add(f"f{number}", size=number) for number in range(100)))
        snapshot = log.table().snapshot()
        assert (len(snapshot.files), snapshot.size_in_bytes, len(snapshot.tombstones)) == (100, 4950, 1)
        assert bool(snapshot.files)
        assert "100 files" in repr(snapshot)
        assert made == []

    def test_a_later_commit_converts_only_the_actions_that_it_names(self, tmp_path: Path, made: list[int]) -> None:
        log = checkpointed(tmp_path, *(add(f"f{number}", size=number) for number in range(100)))
        log.publish(6, remove("f3"), add("f4", size=1000), add("new", size=1))
        snapshot = log.table().snapshot()
        assert (len(snapshot.files), snapshot.size_in_bytes) == (100, 4950 - 3 - 4 + 1001)
        log.publish(7, remove("f5"), remove("f4"))
        assert (len(snapshot.refresh().files), snapshot.refresh().size_in_bytes) == (98, 4950 - 3 - 4 - 5 + 1)
        assert sum(made) <= 4

    def test_snapshots_share_the_converted_actions(self, tmp_path: Path, made: list[int]) -> None:
        log = checkpointed(tmp_path, *(add(f"f{number}") for number in range(100)))
        first = log.table().snapshot()
        log.publish(6, add("new"))
        later = first.refresh()
        made.clear()
        assert (len(list(first.files)), len(list(later.files)), len(list(first.files.values()))) == (100, 101, 100)
        assert sum(made) == 100

    def test_the_next_checkpoint_copies_columns(self, tmp_path: Path, made: list[int]) -> None:
        log = checkpointed(tmp_path, *(add(f"f{number}") for number in range(100)))
        log.publish(6, remove("f3", deletion_timestamp=10**15), add("f4", stats="{}"), add("new"))
        write_checkpoint(log.table())
        assert sum(made) <= 2
        log.delete(log_path.commit(5)).delete(log_path.commit(6))
        expected = {add(f"f{number}").key for number in range(100) if number != 3} | {("new", None)}
        after = log.table().snapshot()
        assert after.loaded.segment.checkpoint_version == 6
        assert set(after.files) == expected
        assert after.files["f4", None].stats == "{}"
        assert not any(file.data_change for file in after.files.values())


@pytest.mark.parametrize("stored", [True, False], ids=["null", "no column"])
def test_a_checkpoint_replaces_missing_partition_values_by_an_empty_map(tmp_path: Path, stored: bool) -> None:
    """The protocol requires the member. Other readers fail without it."""
    files = [row(add(f"a{number}")) for number in range(5)]
    for file in files:
        file["add"]["partitionValues"] = None
    members = [item for item in COLUMNS["add"] if stored or item.name != "partitionValues"]
    rows = [*(row(action) for action in definition()), *files]
    log = WrittenLog(tmp_path / "t").publish(5)
    log.write(log_path.classic_checkpoint(5), parquet(rows, COLUMNS | {"add": pa.struct(members)}))
    log.publish(6, add("b", "01"))
    write_checkpoint(log.table())
    written = pq.read_table(log.folder / log_path.classic_checkpoint(6))["add"].drop_null().to_pylist()
    expected = {f"a{number}": [] for number in range(5)} | {"b": [("month", "01")]}
    assert {added["path"]: added["partitionValues"] for added in written} == expected


PATHS = st.sampled_from(["a", "b%2fc", "b%2Fc", "FILE:///x", "/x", "ü%c3"])
ID = DeletionVector(storage_type="u", path_or_inline_dv="x", size_in_bytes=1, cardinality=1)
WITH_OFFSET = msgspec.structs.replace(ID, offset=0)
VECTORS = st.sampled_from([ID, WITH_OFFSET])
TAGS = st.none() | st.dictionaries(st.sampled_from("kl"), st.none() | st.just("v"))
MONTHS = st.none() | st.sampled_from(["01", ""])
ADDS = st.builds(
    add, PATHS, MONTHS, size=st.integers(0, 9), deletion_vector=st.none() | VECTORS, tags=TAGS,
    stats=st.none() | st.just("{}"), base_row_id=st.none() | st.just(2**40), data_change=st.just(False),
)  # fmt: skip
REMOVES = st.builds(
    remove, PATHS, deletion_vector=st.none() | VECTORS, deletion_timestamp=st.just(10**15), data_change=st.just(False)
)


def content(snapshot: Snapshot) -> tuple[object, ...]:
    files, gone = dict(snapshot.files), dict(snapshot.tombstones)
    return files, gone, snapshot.size_in_bytes, snapshot.state.files_with_deletion_vectors


@given(
    st.lists(ADDS | REMOVES, max_size=12),
    st.lists(st.lists(ADDS | REMOVES, max_size=3, unique_by=lambda file: file.key), max_size=3),
    st.booleans(),
    st.booleans(),
)
def test_columns_and_actions_give_the_same_state(
    stored: list[Add | Remove], commits: list[list[Add | Remove]], listed: bool, unique: bool
) -> None:
    """This holds for every checkpoint, whether this client or the test wrote it, and for all commits after it."""
    if unique:
        stored = list({file.key: file for file in stored}.values())
    stored.sort(key=lambda file: type(file).__name__, reverse=True)
    model: dict[FileKey, Add | Remove] = {file.key: file for file in stored}
    with tempfile.TemporaryDirectory() as folder:
        log = checkpointed(Path(folder), *stored)
        snapshot = log.table().snapshot()
        for version, commit in enumerate(commits, start=6):
            log.publish(version, *commit)
            model |= {file.key: file for file in commit}
            if listed:
                snapshot = snapshot.refresh()
                assert all(snapshot.files.get(key) == model[key] for key in model if isinstance(model[key], Add))
        files = {key: file for key, file in model.items() if isinstance(file, Add)}
        masked = sum(file.deletion_vector is not None for file in files.values())
        gone = {key: file for key, file in model.items() if isinstance(file, Remove)}
        expected = (files, gone, sum(file.size for file in files.values()), masked)
        newest = snapshot.refresh()
        assert (len(newest.files), len(newest.tombstones)) == (len(files), len(gone))
        written = write_checkpoint(log.table())
        assert written.actions == 2 + len(model)
        assert content(newest) == expected
        assert content(log.table().snapshot()) == expected


@pytest.mark.parametrize(
    ("stored", "removed"),
    [
        (add("b%2fc"), remove("b%2Fc")),
        (add("/x"), remove("FILE://localhost/x")),
        (add("a", deletion_vector=ID), remove("a", deletion_vector=ID)),
        (add("a", deletion_vector=WITH_OFFSET), remove("a", deletion_vector=WITH_OFFSET)),
    ],
)
def test_a_stored_file_is_found_by_every_spelling_of_its_name(tmp_path: Path, stored: Add, removed: Remove) -> None:
    """`DELTA.md#file-identity`."""
    snapshot = checkpointed(tmp_path, stored, add("other", size=3)).publish(6, removed).table().snapshot()
    assert (len(snapshot.files), snapshot.size_in_bytes, snapshot.state.files_with_deletion_vectors) == (1, 3, 0)


def test_a_file_that_a_checkpoint_holds_twice_counts_once(tmp_path: Path) -> None:
    """The last action wins, as in a log."""
    snapshot = checkpointed(tmp_path, remove("b"), add("a", size=1), add("b"), add("a", size=2)).table().snapshot()
    assert (len(snapshot.files), len(snapshot.tombstones), snapshot.size_in_bytes) == (2, 0, 102)


@pytest.mark.parametrize("extension", [".snappy.parquet", "-c000.snappy.parquet"])
def test_equal_ends_of_names_and_equal_names_are_distinguished(tmp_path: Path, extension: str) -> None:
    """The ends of names are compared first."""
    end = f"part-00000-baf96500-3166-4d1e-84e5-a95bece611df{extension}"
    first, other, partition = add(end), add(end.replace("1df", "1d0")), add(f"p=ä/{end}")
    assert len(checkpointed(tmp_path / "a", first, other).table().snapshot().files) == 2
    assert len(checkpointed(tmp_path / "b", first, partition).table().snapshot().files) == 2
    assert len(checkpointed(tmp_path / "c", first, other, first).table().snapshot().files) == 2
    assert len(checkpointed(tmp_path / "d", first, add("x"), first).table().snapshot().files) == 2


@pytest.mark.parametrize("few", [0, 1000])
def test_a_key_is_found_by_scan_and_by_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr(file_columns, "_FEW", few)
    masked = add("b", deletion_vector=ID, data_change=False)
    files = checkpointed(tmp_path, add("a"), masked).table().snapshot().files
    for _ in range(3):
        assert ("a", None) in files
        assert files["b", "ux"] == masked
        assert ("b", None) not in files
        with pytest.raises(KeyError):
            files["c", None]


WHOLE = {"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}


class TestTypes:
    """Writers choose the types of a checkpoint's columns; this client converts the values."""

    TEXT = pa.map_(pa.large_string(), pa.field("value", pa.string(), nullable=False))
    OTHER = pa.struct(
        [
            ("deletionVector", pa.struct([*reversed(list(VECTOR)), ("maxRowIndex", pa.int64())])),
            ("unknown", pa.int8()), ("path", pa.dictionary(pa.int8(), pa.string())), ("partitionValues", TEXT),
            ("size", pa.uint32()), ("modificationTime", pa.int64()), ("dataChange", pa.bool_()),
            ("stats", pa.large_string()), ("tags", TEXT),
        ]
    )  # fmt: skip

    def test_column_types_of_other_writers_are_converted(self, tmp_path: Path) -> None:
        vector = DeletionVector(storage_type="u", path_or_inline_dv="x", offset=1, size_in_bytes=1, cardinality=1)
        files = [add("a", "01", stats="{}", tags={"k": "v"}), add("b", "02", deletion_vector=vector)]
        rows = [row(action) for action in (*definition(), *files)]
        log = WrittenLog(tmp_path / "t").publish(5)
        log.write(log_path.classic_checkpoint(5), parquet(rows, COLUMNS | {"add": self.OTHER}))
        assert dict(log.table().snapshot().files) == {file.key: file for file in files}

    @pytest.mark.parametrize(
        ("member", "kind", "value"),
        [
            ("size", pa.string(), "many"),
            ("size", pa.uint64(), 2**63),
            *(("modificationTime", pa.timestamp(unit), 1) for unit in ("ms", "us")),
            ("path", pa.binary(), b"\xff"),
            ("stats", pa.binary(), b"\xff"),
            ("partitionValues", pa.map_(pa.string(), pa.binary()), {"month": b"\xff"}),
            ("deletionVector", pa.string(), "ux"),
            *(("deletionVector", VECTOR, {**WHOLE, absent: None}) for absent in WHOLE),
        ],
    )  # fmt: skip
    def test_a_value_that_does_not_fit_makes_the_checkpoint_unreadable(
        self, tmp_path: Path, member: str, kind: pa.DataType, value: object
    ) -> None:
        """The client finds this when it opens the checkpoint. It then reads the commits, and warns about the
        checkpoint.
        """
        members = {item.name: item.type for item in COLUMNS["add"]} | {member: kind}
        file = row(add("a"))
        file["add"][member] = value
        rows = [*(row(action) for action in definition()), file]
        log = WrittenLog(tmp_path / "t").create().publish(1, add("a"))
        log.write(log_path.classic_checkpoint(1), parquet(rows, COLUMNS | {"add": pa.struct(list(members.items()))}))
        snapshot = log.table().snapshot()
        assert list(snapshot.files) == [("a", None)]
        assert [log_path.classic_checkpoint(1) in warning for warning in snapshot.warnings] == [True]

    def test_text_that_is_not_utf_8_makes_the_checkpoint_unreadable(self, tmp_path: Path) -> None:
        """The Parquet reader does not check this itself."""
        content = classic_content([*definition(), add("a", stats="marker")])
        log = WrittenLog(tmp_path / "t").create().publish(1, add("a"))
        log.write(log_path.classic_checkpoint(1), content.replace(b"marker", b"mark\xffr"))
        (warning,) = log.table().snapshot().warnings
        assert log_path.classic_checkpoint(1) in warning


@pytest.mark.parametrize("name", ["modificationTime", "size"])
def test_a_time_in_place_of_a_number_is_refused(name: str) -> None:
    moments = pa.array([1], pa.timestamp("ms"))
    with pytest.raises(ValueError, match=rf"{name} is timestamp\[ms\]; expected int64"):
        FileRows.checked(Add, pa.StructArray.from_arrays([moments], [name]))
