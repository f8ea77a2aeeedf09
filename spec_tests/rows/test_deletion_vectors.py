"""Files with deletion vectors: the rows that are read, and the damage that is reported."""

import struct
import sys
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from refimpl.client.change_feed import FeedReader
from refimpl.client.create import create_filesystem_table
from refimpl.client.data_maintenance import missing_files, optimize, vacuum
from refimpl.client.table import Table
from refimpl.client.table_stream import StreamOptions, TableStream
from refimpl.protocol import log_path
from refimpl.protocol.actions import Add, DeletionVector
from refimpl.protocol.errors import CorruptionError, CorruptLogError, UnsupportedFeatureError
from refimpl.storage.environment import Environment
from spec_tests.support.builders import commit
from spec_tests.support.other_readers import by_delta_rs

SCHEMA = pa.schema([("id", pa.int64())])
NAME = "46aad0af-3d35-4c01-95d3-0eacc040a80e"


ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
"""The alphabet of ZeroMQ RFC 32/Z85."""


def z85(content: bytes) -> str:
    padded = content + bytes(-len(content) % 4)
    text = ""
    for (number,) in struct.iter_unpack(">I", padded):
        text += "".join(ALPHABET[number // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return text


def test_the_encoding_is_z85() -> None:
    """The example in ZeroMQ RFC 32/Z85."""
    assert z85(bytes.fromhex("864FD26FB559F75B")) == "HelloWorld"


def bitmap(*rows: int) -> bytes:
    return struct.pack("<i", 1681511377) + bytes(BitMap64(rows).serialize())


def stored(content: bytes) -> bytes:
    """A vector as a file stores it, from the vector's offset."""
    return len(content).to_bytes(4) + content + zlib.crc32(content).to_bytes(4)


def inline(_: Path, *rows: int) -> DeletionVector:
    content = bitmap(*rows)
    return DeletionVector(
        storage_type="i", path_or_inline_dv=z85(content), size_in_bytes=len(content), cardinality=len(rows)
    )


def in_a_file(location: Path, *rows: int, prefix: str = "ab") -> DeletionVector:
    content = bitmap(*rows)
    path = location / prefix / f"deletion_vector_{NAME}.bin"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"\x01" + stored(bitmap(0)) + stored(content))
    return DeletionVector(
        storage_type="u",
        path_or_inline_dv=prefix + z85(uuid.UUID(NAME).bytes),
        size_in_bytes=len(content),
        cardinality=len(rows),
        offset=1 + len(stored(bitmap(0))),
    )


def by_absolute_path(location: Path, *rows: int) -> DeletionVector:
    relative = in_a_file(location, *rows)
    path = location / "ab" / f"deletion_vector_{NAME}.bin"
    return msgspec.structs.replace(relative, storage_type="p", path_or_inline_dv=path.as_uri())


EVERY_STORAGE = pytest.mark.parametrize("vector", [inline, in_a_file, by_absolute_path])
Vector = Callable[..., DeletionVector]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Ids 0 to 9 are in one file, 10 and 11 in another."""
    table = create_filesystem_table(tmp_path / "plain", Environment(), SCHEMA)
    table.append(pa.table({"id": list(range(10))}))
    table.append(pa.table({"id": [10, 11]}))
    return table


def ten_rows(table: Table) -> Add:
    """The file with ten rows."""
    return next(add for add in table.snapshot().files.values() if '"numRecords":10' in (add.stats or ""))


def replace_vector(table: Table, old: Add, vector: DeletionVector | None, **fields: Any) -> Add:
    """Commit this vector for a file, as a DELETE or a RESTORE of Delta Spark does."""
    new = msgspec.structs.replace(old, deletion_vector=vector, **fields)
    commit(table, lambda t: t.add_feature("deletionVectors"), lambda t: t.remove(old), lambda t: t.add(new))
    return new


def mask(table: Table, vector: DeletionVector) -> Add:
    """Commit the vector for the file with ten rows."""
    return replace_vector(table, ten_rows(table), vector)


def ids(table: Table, where: str | None = None) -> list[int]:
    read = Table.by_path(table.location).snapshot().to_arrow(where=where)["id"].to_pylist()
    return sorted(value for value in read if value is not None)


@EVERY_STORAGE
def test_deleted_rows_are_not_read(table: Table, vector: Vector) -> None:
    mask(table, vector(table.location, 0, 3, 9))
    assert ids(table) == [1, 2, 4, 5, 6, 7, 8, 10, 11]
    assert ids(table, "id < 5") == [1, 2, 4]


@pytest.mark.parametrize("rows", [(1,), (4, 5, 7)])
def test_a_padded_last_group_is_read(table: Table, rows: tuple[int, ...]) -> None:
    """delta-kernel-rs pads a last group of less than four bytes with `#`."""
    content = bitmap(*rows)
    assert len(content) % 4 == 2
    number = int.from_bytes(content[-2:])
    tail = "##" + "".join(ALPHABET[number // 85**power % 85] for power in (2, 1, 0))
    vector = msgspec.structs.replace(inline(table.location, *rows), path_or_inline_dv=z85(content[:-2]) + tail)
    mask(table, vector)
    assert ids(table) == [number for number in range(12) if number not in rows]


def test_a_vector_of_all_rows_leaves_no_row(table: Table) -> None:
    mask(table, inline(table.location, *range(10)))
    assert ids(table) == [10, 11]


def test_time_travel_reads_the_rows_before_their_deletion(table: Table) -> None:
    mask(table, inline(table.location, 0))
    assert table.snapshot(version=2).to_arrow().num_rows == 12


@EVERY_STORAGE
def test_a_delete_rewrites_a_file_with_a_vector(table: Table, vector: Vector) -> None:
    masked = mask(table, vector(table.location, 0, 3))
    changed = table.delete("id = 5 OR id = 3")
    assert changed.metrics["numDeletedRows"] == 1, "the row with id 3 was deleted before"
    assert ids(table) == [1, 2, 4, 6, 7, 8, 9, 10, 11]
    assert masked.key in table.snapshot().tombstones


def test_deleting_all_rows_counts_only_those_not_yet_deleted(table: Table) -> None:
    mask(table, inline(table.location, 0, 3))
    assert table.delete().metrics["numDeletedRows"] == 10


def test_optimize_rewrites_a_single_file_with_a_vector(table: Table) -> None:
    """As Delta's REORG TABLE ... APPLY (PURGE)."""
    masked = mask(table, in_a_file(table.location, 0, 3))
    before = ids(table)
    untouched = {path for path, vector in table.snapshot().files if vector is None}
    done = optimize(table, target_size=1)
    assert (done.version, done.removed, done.added) == (4, 1, 1)
    after = table.snapshot()
    assert ids(table) == before
    assert untouched < {path for path, _ in after.files}
    assert not any(add.deletion_vector for add in after.files.values())
    assert not after.tombstones[masked.key].data_change
    assert not any(add.data_change for add in after.files.values() if add.path not in untouched)
    assert optimize(table, target_size=1).version is None
    assert by_delta_rs(table.location, ("id",)) == [(i,) for i in before]


def test_optimize_removes_a_file_whose_rows_are_all_deleted(table: Table) -> None:
    mask(table, inline(table.location, *range(10)))
    done = optimize(table, target_size=1)
    assert (done.removed, done.added) == (1, 0)
    assert ids(table) == [10, 11]


def test_vacuum_deletes_a_vector_that_no_version_needs(table: Table) -> None:
    mask(table, in_a_file(table.location, 0, 3))
    name = f"ab/deletion_vector_{NAME}.bin"
    later = -86_400_000
    assert name not in vacuum(table, older_than=later, force=True).files
    hidden = (table.location / name).rename(table.location / "_hidden")
    assert missing_files(table) == (3, [name])
    hidden.rename(table.location / name)
    optimize(table)
    assert name not in vacuum(table).files, "an older version needs it"
    assert name in vacuum(table, older_than=later, force=True).files


def test_vacuum_keeps_the_vector_of_a_file_that_is_elsewhere(table: Table) -> None:
    """The files of a clone may be in another store."""
    masked = mask(table, in_a_file(table.location, 0, 3))
    replace_vector(table, masked, masked.deletion_vector, path="s3://elsewhere/a.parquet")
    assert f"ab/deletion_vector_{NAME}.bin" not in vacuum(table, older_than=-86_400_000, force=True).files


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"storage_type": "x"}, CorruptionError),
        ({"storage_type": "p", "path_or_inline_dv": "http://["}, CorruptLogError),
    ],
)
def test_vacuum_deletes_nothing_while_a_vector_cannot_be_located(
    table: Table, change: dict[str, str], kind: type[Exception]
) -> None:
    mask(table, msgspec.structs.replace(in_a_file(table.location, 0, 3), **change))
    with pytest.raises(kind):
        vacuum(table, older_than=-86_400_000, force=True, dry_run=False)
    assert (table.location / f"ab/deletion_vector_{NAME}.bin").exists()


@EVERY_STORAGE
def test_the_feed_has_the_rows_by_which_vectors_differ(table: Table, vector: Vector) -> None:
    """DELTA.md#inferred-from-vectors: a vector deletes rows, a second one deletes others and restores some; then the
    file is removed.
    """
    feeding(table)
    masked = mask(table, vector(table.location, 0, 3, 9))
    masked = replace_vector(table, masked, inline(table.location, 3, 4))
    masked = replace_vector(table, masked, None)
    masked = replace_vector(table, masked, inline(table.location, *range(1, 10)))
    commit(table, lambda t: t.remove(masked))
    assert changed(table, 4) == [
        *((4, "delete", number) for number in (0, 3, 9)),
        *((5, "delete", 4), (5, "insert", 0), (5, "insert", 9)),
        *((6, "insert", 3), (6, "insert", 4)),
        *((7, "delete", number) for number in range(1, 10)),
        (8, "delete", 0),
    ]


def feeding(table: Table) -> Table:
    table.alter(properties={"delta.enableChangeDataFeed": "true"})
    return table


def changed(table: Table, first: int, last: int | None = None) -> list[tuple[int, str, int]]:
    feed = table.changes(first, last).read_all().to_pylist()
    return sorted((row["_commit_version"], row["_change_type"], row["id"]) for row in feed)


def test_two_spellings_of_a_path_are_one_file_in_the_feed(table: Table) -> None:
    """DELTA.md#file-identity: the path is a URI."""
    feeding(table)
    file = ten_rows(table)
    elsewhere = (table.location / file.path).rename(table.location / "a ü.parquet")
    moved = msgspec.structs.replace(file, path="a%20%C3%BC.parquet", size=elsewhere.stat().st_size, data_change=False)
    commit(table, lambda t: t.remove(file, data_change=False), lambda t: t.add(moved))
    replace_vector(table, moved, inline(table.location, 2), path="a%20%c3%bc.parquet", data_change=True)
    assert changed(table, 4) == [(5, "delete", 2)]


def test_rows_added_beside_a_new_vector_are_inserts(table: Table) -> None:
    """A commit without change data files replaces a vector and adds a file, as delta-kernel-rs once did for updates."""
    feeding(table)
    old, new = ten_rows(table), inline(table.location, 4)
    table.append(pa.table({"id": [4]}))
    (added,) = (add for add in table.snapshot().files.values() if '"numRecords":1,' in (add.stats or ""))
    commit(table, lambda t: t.remove(added))
    masked = msgspec.structs.replace(old, deletion_vector=new)
    commit(table, lambda t: t.add_feature("deletionVectors"), lambda t: t.remove(old), lambda t: t.add(masked, added))
    assert changed(table, 6) == [(6, "delete", 4), (6, "insert", 4)]


@pytest.mark.parametrize("name", ["p=New%20York/a%2520b.parquet", "p%3Dx/a b.parquet"])
def test_a_rewritten_file_is_removed_as_its_path_was_logged(table: Table, name: str) -> None:
    """Other readers compare paths as text. The vector covers rows of several row groups."""
    old = ten_rows(table)
    path = table.location / unquote(name)
    path.parent.mkdir()
    pq.write_table(pa.table({"id": list(range(10))}, schema=SCHEMA), path, row_group_size=3)
    moved = msgspec.structs.replace(
        old, path=name, size=path.stat().st_size, deletion_vector=inline(table.location, 2, 3, 9)
    )
    commit(table, lambda t: t.add_feature("deletionVectors"), lambda t: t.remove(old), lambda t: t.add(moved))
    assert ids(table, "id > 2") == [4, 5, 6, 7, 8, 10, 11]
    optimize(table)
    assert name.encode() in table.log.read(log_path.commit(table.snapshot().version))
    assert ids(table) == [0, 1, 4, 5, 6, 7, 8, 10, 11]


def test_a_stream_of_the_feed_has_the_rows_by_which_vectors_differ(table: Table) -> None:
    """DELTA.md#stream-feed."""
    feeding(table)
    replace_vector(table, mask(table, inline(table.location, 0, 3)), inline(table.location, 3, 4))
    stream = TableStream(table, StreamOptions(starting_version=4, feed=True))
    begin = stream.initial()
    files = stream.files(begin, stream.end(begin))
    reader = FeedReader(layout=table.snapshot().layout)
    changes = pa.Table.from_batches(reader.read(files)).select(["_commit_version", "_change_type", "id"]).to_pylist()
    assert sorted(tuple(row.values()) for row in changes) == changed(table, 4)


def test_change_files_win_over_vectors(table: Table) -> None:
    """DELTA.md#change-files."""
    feeding(table)
    masked = mask(table, inline(table.location, 0, 3))
    table.update({"id": "id + 100"}, "id = 5")
    assert changed(table, 5) == [(5, "update_postimage", 105), (5, "update_preimage", 5)]
    assert masked.key in table.snapshot().tombstones


def test_the_feed_names_the_missing_library(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    feeding(table)
    mask(table, inline(table.location, 0))
    table.delete()
    monkeypatch.setitem(sys.modules, "pyroaring", None)
    with pytest.raises(UnsupportedFeatureError, match="pip install"):
        table.changes(4)


def _flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-10] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "cannot be read"),
        (_flipped, "checksum"),
        (lambda path: path.write_bytes(path.read_bytes()[:-3]), "does not hold"),
        (lambda path: path.write_bytes(b"\x02" + path.read_bytes()[1:]), "format version 02"),
        (lambda path: path.write_bytes(b""), "format version none"),
    ],
    ids=["missing", "flipped", "cut", "version", "empty"],
)
def test_a_damaged_file_is_reported(table: Table, damage: Callable[[Path], object], message: str) -> None:
    mask(table, in_a_file(table.location, 0, 3))
    damage(table.location / "ab" / f"deletion_vector_{NAME}.bin")
    with pytest.raises(CorruptionError, match=rf"{message}.*; restore it: .* of \S+\.parquet are unknown"):
        ids(table)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cardinality": 3}, "deletes 2 rows, but the log says 3"),
        ({"size_in_bytes": 7}, "the log says 7"),
        ({"path_or_inline_dv": "~~~~~"}, "Z85"),
        ({"storage_type": "x"}, "storage type 'x'"),
        ({"path_or_inline_dv": z85(b"abcd"), "size_in_bytes": 4}, "magic number"),
        ({"path_or_inline_dv": z85(bitmap(0, 3)[:8] + b"\xff" * 20), "size_in_bytes": 28}, "damaged"),
    ],
    ids=["cardinality", "size", "encoding", "storage", "magic", "bitmap"],
)
def test_a_damaged_description_is_reported(table: Table, change: dict[str, object], message: str) -> None:
    mask(table, msgspec.structs.replace(inline(table.location, 0, 3), **change))
    with pytest.raises(CorruptionError, match=message):
        ids(table)


def test_a_vector_with_a_row_beyond_the_file_is_reported(table: Table) -> None:
    mask(table, inline(table.location, 10))
    with pytest.raises(CorruptionError, match="row 10 of a file that has 10"):
        ids(table)


def test_a_missing_library_is_named_before_any_file_is_read(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    mask(table, inline(table.location, 0))
    monkeypatch.setitem(sys.modules, "pyroaring", None)
    with pytest.raises(UnsupportedFeatureError, match=r"pip install '\.\[deletion-vectors\]' in a checkout"):
        Table.by_path(table.location).snapshot()
