"""Checkpoints: their content, the versions that may have one, `_last_checkpoint`, and checkpoints of other writers:
DELTA.md#file-names, DELTA.md#log-segment.
"""

import datetime
import decimal
import errno
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refimpl.client.create import create_filesystem_table
from refimpl.client.maintenance import Checkpointed, write_checkpoint
from refimpl.client.snapshot import Snapshot
from refimpl.client.table import Table
from refimpl.log import checkpoint_format
from refimpl.protocol import log_path
from refimpl.protocol.actions import Action, Add, DeletionVector, DomainMetadata, Protocol, Remove, Txn
from refimpl.protocol.errors import CorruptLogError
from refimpl.protocol.log_path import LAST_CHECKPOINT, FileKind
from refimpl.protocol.table_feature import MANAGED_COMMIT, TableFeature
from refimpl.storage.environment import Environment
from refimpl.storage.files import UncertainError
from refimpl.storage.log_store import LogStore
from spec_tests.client.conftest import DAY, EVERY_COMMIT, Setting, busy, every_kind, failing, hide, once, state
from spec_tests.support.builders import commit
from spec_tests.support.faults import HOST_START as START
from spec_tests.support.faults import FailingFiles
from spec_tests.support.other_readers import by_delta_rs, by_duckdb
from spec_tests.support.written_log import (
    COLUMNS,
    SCHEMA,
    WrittenLog,
    add,
    classic_content,
    definition,
    lines,
    metadata,
    parquet,
    part,
    remove,
    row,
    v2,
)


@every_kind
def test_a_checkpoint_holds_the_whole_state(setting: Setting, feature: TableFeature | None) -> None:
    """Delta's protocol, "Checkpoints": a reader of the checkpoint does not need older commits."""
    table = setting.table(feature, policy=EVERY_COMMIT if feature else None)
    rows = busy(setting, table, 5)
    commit(table, lambda t: t.set_domain("some", '{"a":1}'))
    before = table.snapshot()
    made = write_checkpoint(table)
    assert (made.version, made.name) == (6, log_path.classic_checkpoint(6))
    assert json.loads(table.log.read(LAST_CHECKPOINT)) == {
        "version": 6,
        "size": made.actions,
        "sizeInBytes": made.size,
        "numOfAddFiles": len(before.files),
    }
    assert made.actions == 2 + 1 + 1 + len(before.tombstones) + len(before.files)
    hide(table, *range(6))
    after = setting.again(table).snapshot()
    assert after.loaded.segment.checkpoint_version == 6
    assert state(after) == state(before)
    read = after.to_arrow()
    assert sorted(zip(read["id"].to_pylist(), read["month"].to_pylist(), strict=True)) == rows


@pytest.mark.parametrize("files", [0, 1, 2, 3, 4, 7])
def test_a_checkpoint_of_any_length_holds_every_action(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    """The client writes a checkpoint in row groups and reads it in batches."""
    monkeypatch.setattr(checkpoint_format, "ROWS_AT_ONCE", 3)
    table = setting.table(None)
    for kind in ("gone", "kept"):
        setting.append(table, *(f"{kind}-{number}" for number in range(files)))
    transaction = table.transaction()
    transaction.remove(*(add for add in transaction.read_whole_table() if add.path.startswith("gone")))
    for number in range(files):
        transaction.claim(f"application-{number}", number)
    transaction.commit()
    before = setting.again(table).snapshot()
    assert write_checkpoint(table).actions == 2 + 3 * files
    for version in range(4):
        table.log.delete(log_path.commit(version))
    batches = pq.ParquetFile.iter_batches
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda file, **options: batches(file, 2, **options))
    after = setting.again(table).snapshot()
    assert len(after.files) == files
    assert set(after.files) == set(before.files)
    assert set(after.tombstones) == set(before.tombstones)
    assert set(after.transactions) == set(before.transactions)


def test_a_checkpoint_keeps_deletion_vectors(tmp_path: Path) -> None:
    """`DELTA.md#file-identity`: a removed file is identified by its path and its deletion vector."""
    vector = DeletionVector(storage_type="u", path_or_inline_dv="x", offset=1, size_in_bytes=9, cardinality=3)
    log = WrittenLog(tmp_path / "t").create()
    log.publish(1, remove("a", deletion_timestamp=10**15, deletion_vector=vector), add("a"))
    before = log.table().snapshot()
    write_checkpoint(log.table())
    for version in (0, 1):
        log.delete(log_path.commit(version))
    after = log.table().snapshot()
    assert [gone.deletion_vector for gone in after.tombstones.values()] == [vector]
    assert (set(after.files), set(after.tombstones)) == (set(before.files), set(before.tombstones))


def test_a_checkpoint_has_the_columns_that_other_readers_expect(setting: Setting) -> None:
    """Delta's protocol, "Checkpoint Schema": maps are maps, and the protocol's versions are 32 bits wide."""
    table = setting.table(None)
    busy(setting, table, 2)
    made = write_checkpoint(table)
    file = pq.ParquetFile(pa.BufferReader(table.log.read(made.name)))
    schema = file.schema_arrow
    assert set(schema.names) == {"protocol", "metaData", "txn", "domainMetadata", "remove", "add"}
    assert schema.field("add").type.field("partitionValues").type == pa.map_(pa.string(), pa.string())
    assert schema.field("metaData").type.field("configuration").type == pa.map_(pa.string(), pa.string())
    assert schema.field("protocol").type.field("minReaderVersion").type == pa.int32()
    assert file.metadata.num_rows == made.actions
    rows = pq.read_table(pa.BufferReader(table.log.read(made.name))).to_pylist()
    assert all(sum(value is not None for value in row.values()) == 1 for row in rows)
    assert not any(row["add"] and row["add"]["dataChange"] for row in rows)


@pytest.mark.parametrize(("age", "kept"), [(7 * DAY - 1, True), (7 * DAY, False)])
def test_tombstones_stay_for_the_retention_of_the_table(setting: Setting, age: int, kept: bool) -> None:
    """Delta's protocol: a removed file's tombstone stays until VACUUM may delete the file."""
    table = setting.table(None)
    busy(setting, table, 4)
    removed = set(table.snapshot().tombstones)
    assert removed
    setting.host.clock = START + age
    write_checkpoint(table)
    hide(table, *range(4))
    assert set(setting.again(table).snapshot().tombstones) == (removed if kept else set())


def test_the_pointer_moves_forward_only(setting: Setting) -> None:
    """FB31: an older checkpoint does not replace the pointer to a newer one."""
    table = setting.table(None)
    busy(setting, table, 4)
    write_checkpoint(table, 3)
    newer = table.log.read(LAST_CHECKPOINT)
    assert write_checkpoint(table, 1).version == 1
    assert table.log.read(LAST_CHECKPOINT) == newer
    write_checkpoint(table, 4)
    assert json.loads(table.log.read(LAST_CHECKPOINT))["version"] == 4


def test_a_checkpoint_that_a_cleanup_removes_at_once_is_no_error(setting: Setting) -> None:
    table = setting.table(None)
    busy(setting, table, 1)
    with patch.object(LogStore, "find", return_value=None):
        assert write_checkpoint(Table.by_path(table.location, table.environment)).version == 1
    assert not (table.log.folder / LAST_CHECKPOINT).exists()


def test_a_pointer_to_a_missing_checkpoint_is_replaced(setting: Setting) -> None:
    table = setting.table(None)
    busy(setting, table, 4)
    write_checkpoint(table, 3)
    table.log.delete(log_path.classic_checkpoint(3))
    write_checkpoint(table, 1)
    assert json.loads(table.log.read(LAST_CHECKPOINT))["version"] == 1
    table.log.overwrite(log_path.checkpoint_part(3, 1, 2), b"")  # part 2 of 2 is missing
    table.log.overwrite(LAST_CHECKPOINT, json.dumps({"version": 3, "size": 1, "parts": 2}).encode())
    write_checkpoint(table, 2)
    assert json.loads(table.log.read(LAST_CHECKPOINT))["version"] == 2


def test_the_pointer_names_the_newer_of_two_concurrent_checkpoints(setting: Setting, storage: FailingFiles) -> None:
    """FB31: the writer of the older checkpoint reads the pointer again after its own write."""
    table = setting.table(None)
    busy(setting, table, 4)
    others: list[Checkpointed] = []
    moment = ("replace", table.log.folder / LAST_CHECKPOINT)
    once(storage, moment, lambda: others.append(write_checkpoint(setting.again(table), 4)))
    write_checkpoint(table, 2)
    pointer = json.loads(table.log.read(LAST_CHECKPOINT))
    assert (pointer["version"], pointer["size"]) == (4, others[0].actions)


@pytest.mark.parametrize("properties", [{}, {"delta.checkpointPolicy": "v2"}], ids=["classic", "v2"])
@pytest.mark.parametrize("operation", ["create", "write", "fsync", "replace"])
def test_a_checkpoint_that_fails_leaves_the_table_as_it_was(
    setting: Setting, storage: FailingFiles, operation: str, properties: dict[str, str]
) -> None:
    table = setting.table(None, properties=properties)
    busy(setting, table, 3)
    before, files = state(table.snapshot()), sorted(path.name for path in table.log.folder.iterdir())
    with failing(storage, operation), pytest.raises(OSError, match="injected"):
        write_checkpoint(table)
    assert sorted(path.name for path in table.log.folder.iterdir() if path.name != "_sidecars") == files
    assert sidecars(table) == []
    assert state(setting.again(table).snapshot()) == before


V2 = {"delta.checkpointPolicy": "v2"}


def sidecars(table: Table) -> list[str]:
    return sorted(file.name for file in table.log.sidecars())


@every_kind
def test_a_v2_checkpoint_holds_the_whole_state(
    setting: Setting, feature: TableFeature | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DELTA.md#v2-checkpoints. A sidecar holds a bounded number of actions, so the memory is bounded."""
    monkeypatch.setattr(checkpoint_format, "ACTIONS_OF_A_SIDECAR", 3)
    table = setting.table(feature, policy=EVERY_COMMIT if feature else None, properties=V2)
    rows = busy(setting, table, 5)
    commit(table, lambda t: t.set_domain("some", '{"a":1}'), lambda t: t.claim("app", 7))
    before = table.snapshot()
    made = write_checkpoint(table)
    files = len(before.files) + len(before.tombstones)
    assert files > 3
    assert made.sidecars == len(sidecars(table)) == -(-files // 3)
    named = log_path.parse(made.name)
    assert named is not None
    assert (named.kind, named.version) == (FileKind.V2_CHECKPOINT, 6)
    top = {path.name: path for path in table.log.listing()}[made.name]
    assert json.loads(table.log.read(LAST_CHECKPOINT)) == {
        "version": 6,
        "size": made.actions,
        "sizeInBytes": made.size,
        "numOfAddFiles": len(before.files),
        "v2Checkpoint": {"path": made.name, "sizeInBytes": top.size, "modificationTime": top.modified},
    }
    assert checkpoint_format.action_count(table.log, top) == made.actions
    columns = set(pq.read_schema(pa.BufferReader(table.log.read(made.name))).names)
    assert columns >= {"add", "remove", "sidecar", "checkpointMetadata"}, "Delta Spark needs these columns"
    hide(table, *range(6))
    after = setting.again(table).snapshot()
    assert after.loaded.segment.checkpoint == (top,)
    assert state(after) == state(before)
    read = after.to_arrow()
    assert sorted(zip(read["id"].to_pylist(), read["month"].to_pylist(), strict=True)) == rows
    if feature is None or (feature.path_access and not feature.vacuum_protocol_check):
        assert by_delta_rs(table.location) == rows
        assert by_duckdb(table.location) == rows


def test_a_v2_checkpoint_of_a_table_without_files_has_no_sidecar(setting: Setting) -> None:
    table = setting.table(None, properties=V2)
    assert write_checkpoint(table).sidecars == 0
    assert sidecars(table) == []
    assert setting.again(table).snapshot().loaded.segment.checkpoint_version == 0


@pytest.mark.parametrize("another_made_the_folder", [False, True])
def test_sidecars_are_durable_before_a_checkpoint_names_them(
    setting: Setting, storage: FailingFiles, another_made_the_folder: bool
) -> None:
    """A power cut must not leave a checkpoint without its sidecars, or a pointer to a missing checkpoint."""
    table = setting.table(None, properties=V2)
    busy(setting, table, 3)
    if another_made_the_folder:  # and died before it synced the folder's name
        (table.log.folder / "_sidecars").mkdir()
    storage.done.clear()
    made = write_checkpoint(table)
    folder = table.log.folder / "_sidecars"
    (sidecar,) = sidecars(table)
    order = [
        ("fsync", folder / sidecar),
        ("fsync_directory", folder),
        ("fsync_directory", table.log.folder),
        ("replace", table.log.folder / made.name),
        ("fsync_directory", table.log.folder),
        ("replace", table.log.folder / LAST_CHECKPOINT),
    ]
    remaining = iter(storage.done)
    assert all(step in remaining for step in order), storage.done


def test_sidecars_stay_when_the_checkpoint_is_visible(setting: Setting, storage: FailingFiles) -> None:
    """The sync of the folder fails after the rename made the checkpoint visible."""
    table = setting.table(None, properties=V2)
    busy(setting, table, 3)
    before = state(table.snapshot())

    def after_the_rename(operation: str, path: Path) -> bool:
        return operation == "fsync_directory" and any(".checkpoint." in entry.name for entry in table.log.listing())

    storage.fail_when = after_the_rename
    with pytest.raises(OSError, match="injected"):
        write_checkpoint(table)
    storage.fail_when = lambda operation, path: False
    hide(table, *range(3))
    assert sidecars(table)
    assert state(setting.again(table).snapshot()) == before


def test_sidecars_stay_when_the_checkpoint_may_appear_later(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object store may carry out a request that it did not answer."""
    table = setting.table(None, properties=V2)
    busy(setting, table, 3)
    monkeypatch.setattr(LogStore, "overwrite", Mock(side_effect=UncertainError(errno.EIO, "no answer")))
    with pytest.raises(UncertainError):
        write_checkpoint(table)
    assert sidecars(table)


def test_the_v2_policy_adds_the_feature_for_readers_and_writers(setting: Setting) -> None:
    """Without the feature, a reader would ignore the checkpoint's sidecars."""
    table = setting.table(None)
    table.alter(properties=V2)
    protocol = table.snapshot().protocol
    assert protocol.reads("v2Checkpoint")
    assert protocol.writes("v2Checkpoint")
    assert write_checkpoint(table).name.count("-") == 4
    table.alter(properties={"delta.checkpointPolicy": "classic"})
    assert write_checkpoint(table).name == log_path.classic_checkpoint(2)


def test_a_table_without_the_feature_gets_classic_checkpoints(tmp_path: Path) -> None:
    """Another client set the property without the feature."""
    table = WrittenLog(tmp_path / "t").create(**V2).publish(1, add("a")).table()
    assert write_checkpoint(table).name == log_path.classic_checkpoint(1)


def test_a_due_checkpoint_is_not_written_twice(setting: Setting) -> None:
    table = setting.table(None, properties=V2 | {"delta.checkpointInterval": "1"})
    committed = table.append(pa.table({"id": [1], "month": ["01"]}))
    assert committed is not None
    table.checkpoint_if_due(committed)
    assert [path.version for path in table.log.listing() if path.kind is FileKind.V2_CHECKPOINT] == [1]


VECTORED = DeletionVector(storage_type="u", path_or_inline_dv="ab", offset=4, size_in_bytes=1, cardinality=1)
STATE: list[Action] = [
    Protocol(min_reader_version=1, min_writer_version=2),
    metadata(**{"delta.appendOnly": "false"}),
    add("a", "01", stats='{"numRecords":3}', tags={"k": "v"}, base_row_id=7),
    add("b%20c", None),
    add("c", ""),
    remove("gone", deletion_vector=VECTORED),
    remove("older"),
    Txn(app_id="x", version=3, last_updated=9),
    DomainMetadata(domain="d", configuration="{}", removed=False),
]


def check(snapshot: Snapshot, *, version: int) -> None:
    """The snapshot holds exactly `STATE`."""
    assert snapshot.version == version
    assert snapshot.protocol == STATE[0]
    assert snapshot.metadata == STATE[1]
    assert dict(snapshot.files) == {a.key: a for a in STATE if isinstance(a, Add)}
    assert dict(snapshot.tombstones) == {a.key: a for a in STATE if isinstance(a, Remove)}
    assert dict(snapshot.transactions) == {"x": STATE[7]}
    assert dict(snapshot.domains) == {"d": STATE[8]}


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    """A log whose commits before version 5 were cleaned up, so a reader needs the checkpoint."""
    return WrittenLog(tmp_path / "t").publish(5)


class TestKinds:
    @pytest.mark.parametrize("counted", [True, False])
    def test_null_columns_are_not_read(
        self, log: WrittenLog, monkeypatch: pytest.MonkeyPatch, *, counted: bool
    ) -> None:
        """Only if the footer counts the nulls."""
        file, batches = io.BytesIO(), pq.ParquetFile.iter_batches
        pq.write_table(
            pq.read_table(io.BytesIO(classic_content(STATE))), file, row_group_size=2, write_statistics=counted
        )
        log.write(log_path.classic_checkpoint(5), file.getvalue())
        read: dict[str, list[int]] = {}

        def recorded(file: pq.ParquetFile, *, columns: list[str], row_groups: list[int], **options: Any) -> Any:
            read.update(dict.fromkeys(columns, row_groups))
            return batches(file, columns=columns, row_groups=row_groups, **options)

        monkeypatch.setattr(pq.ParquetFile, "iter_batches", recorded)
        check(log.table().snapshot(), version=5)
        assert read["txn"] == ([3] if counted else [0, 1, 2, 3, 4])
        assert "add.path" in read
        assert ("add.deletionVector" in read) is not counted

    def test_a_multi_part_checkpoint(self, log: WrittenLog) -> None:
        for number in range(1, 4):
            log.write(part(5, number, 3).name, classic_content(STATE[number - 1 :: 3]))
        check(log.table().snapshot(), version=5)

    @pytest.mark.parametrize("extension", ["json", "parquet"])
    @pytest.mark.parametrize("spelling", ["{name}", "file:///somewhere/_delta_log/_sidecars/{name}"])
    def test_a_v2_checkpoint_with_sidecars(self, log: WrittenLog, extension: str, spelling: str) -> None:
        files = [action for action in STATE if isinstance(action, Add | Remove)]
        rest = [action for action in STATE if not isinstance(action, Add | Remove)]
        only_files = {name: COLUMNS[name] for name in ("add", "remove")}
        manifest = [{"checkpointMetadata": {"version": 5}}, *(row(action) for action in rest)]
        for number in range(2):
            name = f"{number}.parquet"
            content = parquet([row(action) for action in files[number::2]], only_files)
            log.write(f"_sidecars/{name}", content)
            path = spelling.format(name=name)
            manifest.append({"sidecar": {"path": path, "sizeInBytes": len(content), "modificationTime": 0}})
        log.write(v2(5, extension).name, lines(manifest) if extension == "json" else parquet(manifest))
        check(log.table().snapshot(), version=5)

    def test_a_v2_checkpoint_with_a_classic_name(self, log: WrittenLog) -> None:
        """The columns of a checkpoint say what kind it is, not its name."""
        files = [action for action in STATE if isinstance(action, Add | Remove)]
        rest = [row(action) for action in STATE if not isinstance(action, Add | Remove)]
        content = classic_content(files)
        log.write("_sidecars/x.parquet", content)
        pointer = {"sidecar": {"path": "x.parquet", "sizeInBytes": len(content), "modificationTime": 0}}
        log.write(log_path.classic_checkpoint(5), parquet([{"checkpointMetadata": {"version": 5}}, *rest, pointer]))
        check(log.table().snapshot(), version=5)


class TestStatisticsAsColumns:
    SCHEMA = SCHEMA.replace('"month","type":"string"', '"month","type":"date"')

    def content(self, stats: str | None) -> bytes:
        bounds = pa.struct(
            [("id", pa.int64()), ("m", pa.decimal128(5, 2)), ("d", pa.date32()), ("t", pa.timestamp("us"))]
        )
        parsed = pa.struct(
            [
                ("numRecords", pa.int64()), ("minValues", bounds), ("maxValues", bounds),
                ("nullCount", pa.struct([("id", pa.int64())])),
            ]
        )  # fmt: skip
        members = [m for m in COLUMNS["add"] if m.name != "stats"] + [pa.field("stats_parsed", parsed)]
        if stats is not None:
            members.append(pa.field("stats", pa.string()))
        low = {
            "id": 1,
            "m": decimal.Decimal("0.10"),
            "d": datetime.date(2020, 1, 2),
            "t": datetime.datetime.fromisoformat("2020-01-02"),
        }
        file = row(add("a"))
        file["add"] |= {"stats_parsed": {"numRecords": 3, "minValues": low, "maxValues": {}, "nullCount": {"id": 0}}}
        file["add"] |= {"stats": stats}
        return parquet([*(row(action) for action in STATE[:2]), file], COLUMNS | {"add": pa.struct(members)})

    def test_column_statistics_become_json_if_the_json_is_missing(self, log: WrittenLog) -> None:
        log.write(log_path.classic_checkpoint(5), self.content(None))
        stats = log.table().snapshot().files["a", None].stats
        assert stats is not None
        assert json.loads(stats, parse_float=decimal.Decimal) == {
            "numRecords": 3,
            "minValues": {"id": 1, "m": decimal.Decimal("0.10"), "d": "2020-01-02", "t": "2020-01-02T00:00:00.000000"},
            "maxValues": {},
            "nullCount": {"id": 0},
        }

    def test_column_statistics_become_json_if_only_a_late_file_lacks_json(self, log: WrittenLog) -> None:
        """Arrow reads the first 65,536 rows as one batch. In this test that batch has a file with JSON, and rows of
        unknown actions.
        """
        first = pq.read_table(io.BytesIO(self.content("{}")))
        unknown = pa.table([pa.nulls(65_536, kind) for kind in first.schema.types], schema=first.schema)
        late = {"add": {**first.to_pylist()[-1]["add"], "path": "late", "stats": None}}
        file = io.BytesIO()
        pq.write_table(pa.concat_tables([first, unknown, pa.Table.from_pylist([late], first.schema)]), file)
        log.write(log_path.classic_checkpoint(5), file.getvalue())
        stats = log.table().snapshot().files["late", None].stats
        assert stats is not None
        assert json.loads(stats)["numRecords"] == 3

    def test_json_statistics_win_over_column_statistics(self, log: WrittenLog) -> None:
        log.write(log_path.classic_checkpoint(5), self.content('{"numRecords":9}'))
        assert log.table().snapshot().files["a", None].stats == '{"numRecords":9}'


CLASSIC, MANIFEST = log_path.classic_checkpoint(2), v2(2, "json").name
WHOLE = classic_content([*definition(), add("a"), add("b")])


def without(field: str) -> bytes:
    """A checkpoint with a file whose action lacks `field`."""
    file = row(add("a"))
    file["add"][field] = None
    return parquet([*(row(action) for action in definition()), file])


def manifest(*rows: dict[str, Any]) -> bytes:
    return lines([*(row(action) for action in definition()), *rows])


FOREIGN = parquet([row(add("a"))])
"""A sidecar without the digest that this client appends."""

UNREADABLE = {
    "empty": (CLASSIC, b"", ""),
    "begun": (CLASSIC, b"PAR1", ""),
    "no Parquet": (CLASSIC, b"no parquet at all", ""),
    "no footer": (CLASSIC, b"PAR1" + bytes(100) + b"PAR1", ""),
    "cut off": (CLASSIC, WHOLE[:-20], ""),
    "without protocol": (CLASSIC, classic_content([definition()[1], add("a"), add("b")]), ""),
    "without metadata": (CLASSIC, classic_content([definition()[0], add("a"), add("b")]), ""),
    "of another version": (MANIFEST, manifest({"checkpointMetadata": {"version": 1}}, row(add("a"))), ""),
    "with another sidecar of the same name": (
        MANIFEST, manifest({"sidecar": {"path": "other.parquet", "sizeInBytes": 1, "modificationTime": 0}}),
        "other.parquet",
    ),
    "with a sidecar that is gone": (
        MANIFEST, manifest({"sidecar": {"path": "gone.parquet", "sizeInBytes": 1, "modificationTime": 0}}),
        "gone.parquet",
    ),
    **{
        f"with a file without {field}": (CLASSIC, without(field), field)
        for field in ("path", "size", "modificationTime", "dataChange")
    },
}  # fmt: skip


class TestCheckpointsThatCannotBeRead:
    """FB39: a client reads the JSON commits instead, if they are complete."""

    @pytest.fixture
    def full(self, tmp_path: Path) -> WrittenLog:
        log = WrittenLog(tmp_path / "t").create()
        return log.publish(1, add("a")).publish(2, add("b")).publish(3, remove("a"), add("c"))

    @pytest.mark.parametrize(("name", "content", "message"), UNREADABLE.values(), ids=UNREADABLE.keys())
    def test_the_commits_are_read_instead_with_a_warning(
        self, full: WrittenLog, name: str, content: bytes, message: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        full.write("_sidecars/other.parquet", FOREIGN)
        full.write(name, content)
        snapshot = full.table().snapshot()
        assert {path for path, _ in snapshot.files} == {"b", "c"}
        (warning,) = snapshot.warnings
        assert name in warning
        assert message in warning
        assert "older files were read instead" in warning
        assert name in caplog.text

    def test_without_older_history_the_error_names_the_checkpoint(self, full: WrittenLog) -> None:
        full.write(log_path.classic_checkpoint(2), b"garbage").delete(log_path.commit(0))
        with pytest.raises(CorruptLogError) as caught:
            full.table().snapshot()
        assert caught.value.path == str(full.folder / log_path.classic_checkpoint(2))
        assert "cannot be decoded" in caught.value.message
        assert "version 0 is missing" in caught.value.message

    def test_several_damaged_checkpoints_are_skipped(self, full: WrittenLog) -> None:
        for version in range(4):
            full.write(log_path.classic_checkpoint(version), b"garbage").write(v2(version).name, b"garbage")
        snapshot = full.table().snapshot()
        assert {path for path, _ in snapshot.files} == {"b", "c"}
        assert len(snapshot.warnings) == 8


def test_the_time_of_a_checkpointed_version_comes_from_its_commit(tmp_path: Path) -> None:
    """DELTA.md#ict-commit-time: a checkpoint does not hold the time."""
    log = WrittenLog(tmp_path / "t", MANAGED_COMMIT).create().publish(1, add("a"))
    expected = log.table(log.owner()).snapshot().in_commit_timestamp
    log.write(log_path.classic_checkpoint(1), classic_content([*definition(MANAGED_COMMIT), add("a")]))
    snapshot = log.table(log.owner()).snapshot()
    assert snapshot.loaded.segment.commits == ()
    assert snapshot.in_commit_timestamp == expected == snapshot.timestamp
    log.delete(log_path.commit(0)).delete(log_path.commit(1)).checksum(1, inCommitTimestampOpt=expected)
    without = log.table(log.owner()).snapshot()
    assert (without.in_commit_timestamp, without.warnings) == (None, ()), "an unknown time disagrees with no checksum"
    with pytest.raises(CorruptLogError):
        _ = without.timestamp


@pytest.mark.longer
def test_first_operations_of_a_process_import_no_pandas(tmp_path: Path) -> None:
    """Arrow imports it for the first number that Python hands over; that takes more time than the operation."""
    schema = pa.schema([("id", pa.int64()), ("price", pa.float64()), ("day", pa.date32())])
    table = create_filesystem_table(tmp_path / "t", Environment(), schema, partition_columns=["day"])
    for number in range(2):
        table.append(pa.table({"id": [number], "price": [1.5], "day": [datetime.date(2026, 1, 1 + number)]}, schema))
    write_checkpoint(table)
    script = (
        "import sys; from refimpl.client.table import Table; table = Table.by_path(sys.argv[1])\n"
        "print(len(table.snapshot().to_arrow()), 'sqlglot' in sys.modules)\n"
        "print(len(table.snapshot().to_arrow(where='id = 1 AND price < 2.5')))\n"
        "table.update({'price': 'price * 2', 'id': '7'}, \"day = '2026-01-01'\"); table.delete('price = 1.5')\n"
        "print(len(table.snapshot().to_arrow(where='id > 5')), 'pandas' in sys.modules)"
    )
    words = [sys.executable, "-c", script, str(table.location)]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    assert printed == ["2", "False", "1", "1", "False"]
