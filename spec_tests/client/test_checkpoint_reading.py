"""Checkpoints of every kind, ours to read only: DELTA.md#file-names, DELTA.md#log-segment."""

from __future__ import annotations

import datetime
import decimal
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from refimpl import log_path
from refimpl.actions import Action, Add, DeletionVector, DomainMetadata, Protocol, Remove, Txn
from refimpl.client.snapshot import Snapshot
from refimpl.errors import CorruptLogError
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
    """The snapshot is `STATE` and nothing else."""
    assert snapshot.version == version
    assert snapshot.protocol == STATE[0]
    assert snapshot.metadata == STATE[1]
    assert dict(snapshot.files) == {a.key: a for a in STATE if isinstance(a, Add)}
    assert dict(snapshot.tombstones) == {a.key: a for a in STATE if isinstance(a, Remove)}
    assert dict(snapshot.transactions) == {"x": STATE[7]}
    assert dict(snapshot.domains) == {"d": STATE[8]}


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    """A log whose commits before 5 are cleaned up: the checkpoint must do."""
    return WrittenLog(tmp_path / "t").publish(5)


class TestKinds:
    def test_a_classic_checkpoint(self, log: WrittenLog) -> None:
        log.write(log_path.classic_checkpoint(5), classic_content(STATE))
        check(log.table().snapshot(), version=5)

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
            log.write(f"_sidecars/{name}", parquet([row(action) for action in files[number::2]], only_files))
            path = spelling.format(name=name)
            manifest.append({"sidecar": {"path": path, "sizeInBytes": 1, "modificationTime": 0}})
        log.write(v2(5, extension).name, lines(manifest) if extension == "json" else parquet(manifest))
        check(log.table().snapshot(), version=5)

    @pytest.mark.parametrize("extension", ["json", "parquet"])
    def test_a_v2_checkpoint_without_sidecars(self, log: WrittenLog, extension: str) -> None:
        rows = [{"checkpointMetadata": {"version": 5}}, *(row(action) for action in STATE)]
        log.write(v2(5, extension).name, lines(rows) if extension == "json" else parquet(rows))
        check(log.table().snapshot(), version=5)

    def test_a_v2_checkpoint_with_a_classic_name(self, log: WrittenLog) -> None:
        """What a checkpoint holds is found by its columns."""
        files = [action for action in STATE if isinstance(action, Add | Remove)]
        rest = [row(action) for action in STATE if not isinstance(action, Add | Remove)]
        log.write("_sidecars/x.parquet", classic_content(files))
        pointer = {"sidecar": {"path": "x.parquet", "sizeInBytes": 1, "modificationTime": 0}}
        log.write(log_path.classic_checkpoint(5), parquet([{"checkpointMetadata": {"version": 5}}, *rest, pointer]))
        check(log.table().snapshot(), version=5)

    def test_commits_after_the_checkpoint_are_applied_to_it(self, log: WrittenLog) -> None:
        log.write(log_path.classic_checkpoint(5), classic_content(STATE)).publish(6, remove("a"), add("gone2"))
        snapshot = log.table().snapshot()
        assert {path for path, _ in snapshot.files} == {"b%20c", "c", "gone2"}
        assert ("a", None) in snapshot.tombstones


class TestAnotherImplementationsCheckpoint:
    def test_delta_rs_writes_what_is_read(self, tmp_path: Path) -> None:
        from deltalake import DeltaTable

        log = WrittenLog(tmp_path / "t").create()
        log.publish(1, add("a", stats='{"numRecords":3}'), add("b", None), Txn(app_id="x", version=1))
        log.publish(2, remove("a", deletion_timestamp=9_999_999_999_999, size=100))
        expected = log.table().snapshot()
        DeltaTable(log.location).create_checkpoint()
        for version in range(3):
            log.delete(log_path.commit(version))
        found = log.table().snapshot()
        assert found.segment.checkpoint_version == 2
        assert found.protocol == expected.protocol
        assert found.metadata == expected.metadata
        assert set(found.files) == set(expected.files)
        assert found.files["b", None].partition_values == {"month": None}
        assert set(found.tombstones) == set(expected.tombstones)
        assert found.transactions["x"].version == 1


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

    def test_they_become_json_where_there_is_no_json(self, log: WrittenLog) -> None:
        log.write(log_path.classic_checkpoint(5), self.content(None))
        found = log.table().snapshot().files["a", None].stats
        assert found is not None
        assert json.loads(found, parse_float=decimal.Decimal) == {
            "numRecords": 3,
            "minValues": {"id": 1, "m": decimal.Decimal("0.10"), "d": "2020-01-02", "t": "2020-01-02T00:00:00"},
            "maxValues": {},
            "nullCount": {"id": 0},
        }

    def test_json_goes_before_them(self, log: WrittenLog) -> None:
        log.write(log_path.classic_checkpoint(5), self.content('{"numRecords":9}'))
        assert log.table().snapshot().files["a", None].stats == '{"numRecords":9}'


class TestCheckpointsThatCannotBeRead:
    """FB39: the JSON history is enough where it is complete."""

    @pytest.fixture
    def full(self, tmp_path: Path) -> WrittenLog:
        log = WrittenLog(tmp_path / "t").create()
        return log.publish(1, add("a")).publish(2, add("b")).publish(3, remove("a"), add("c"))

    GARBAGE = (b"", b"PAR1", b"no parquet at all", b"PAR1" + bytes(100) + b"PAR1")

    @pytest.mark.parametrize("content", GARBAGE)
    def test_older_history_serves_and_it_is_reported(self, full: WrittenLog, content: bytes) -> None:
        full.write(log_path.classic_checkpoint(2), content)
        snapshot = full.table().snapshot()
        assert {path for path, _ in snapshot.files} == {"b", "c"}
        (warning,) = snapshot.warnings
        assert log_path.classic_checkpoint(2) in warning

    def test_a_cut_off_file_is_one(self, full: WrittenLog) -> None:
        content = classic_content([*definition(), add("a"), add("b")])
        full.write(log_path.classic_checkpoint(2), content)
        assert full.table().snapshot().warnings == ()
        full.write(log_path.classic_checkpoint(2), content[:-20])
        snapshot = full.table().snapshot()
        assert {path for path, _ in snapshot.files} == {"b", "c"}
        assert len(snapshot.warnings) == 1

    def test_an_older_checkpoint_serves(self, full: WrittenLog) -> None:
        full.write(log_path.classic_checkpoint(1), classic_content([*definition(), add("a")]))
        full.write(log_path.classic_checkpoint(2), b"garbage").delete(log_path.commit(0))
        snapshot = full.table().snapshot()
        assert snapshot.segment.checkpoint_version == 1
        assert {path for path, _ in snapshot.files} == {"b", "c"}

    def test_without_older_history_the_error_names_the_checkpoint(self, full: WrittenLog) -> None:
        full.write(log_path.classic_checkpoint(2), b"garbage").delete(log_path.commit(0))
        with pytest.raises(CorruptLogError) as caught:
            full.table().snapshot()
        assert caught.value.path == str(full.folder / log_path.classic_checkpoint(2))

    def test_every_one_of_many_bad_ones_is_passed_over(self, full: WrittenLog) -> None:
        for version in range(4):
            full.write(log_path.classic_checkpoint(version), b"garbage").write(v2(version).name, b"garbage")
        snapshot = full.table().snapshot()
        assert {path for path, _ in snapshot.files} == {"b", "c"}
        assert len(snapshot.warnings) == 8

    def test_a_missing_sidecar_makes_one_unreadable(self, full: WrittenLog) -> None:
        pointer = {"sidecar": {"path": "gone.parquet", "sizeInBytes": 1, "modificationTime": 0}}
        full.write(v2(2, "json").name, lines([*(row(action) for action in definition()), pointer]))
        snapshot = full.table().snapshot()
        assert {path for path, _ in snapshot.files} == {"b", "c"}
        assert "gone.parquet" in snapshot.warnings[0]

    @pytest.mark.parametrize("absent", [0, 1], ids=["protocol", "metadata"])
    def test_one_without_protocol_or_metadata_is_unreadable(self, full: WrittenLog, absent: int) -> None:
        actions = [*definition(), add("a"), add("b")]
        del actions[absent]
        full.write(log_path.classic_checkpoint(2), classic_content(actions))
        snapshot = full.table().snapshot()
        assert {path for path, _ in snapshot.files} == {"b", "c"}
        assert len(snapshot.warnings) == 1

    def test_one_that_says_that_it_is_of_another_version_is_unreadable(self, full: WrittenLog) -> None:
        rows = [{"checkpointMetadata": {"version": 1}}, *(row(action) for action in [*definition(), add("a")])]
        full.write(v2(2, "json").name, lines(rows))
        snapshot = full.table().snapshot()
        assert {path for path, _ in snapshot.files} == {"b", "c"}
        assert len(snapshot.warnings) == 1

    @pytest.mark.parametrize("absent", ["path", "size", "modificationTime", "dataChange"])
    def test_one_with_a_file_that_lacks_what_each_must_have_is_unreadable(self, full: WrittenLog, absent: str) -> None:
        file = row(add("a"))
        file["add"][absent] = None
        full.write(log_path.classic_checkpoint(2), parquet([*(row(action) for action in definition()), file]))
        snapshot = full.table().snapshot()
        assert {path for path, _ in snapshot.files} == {"b", "c"}
        assert absent in snapshot.warnings[0]


def test_the_time_of_a_checkpointed_version_is_read_from_its_commit(tmp_path: Path) -> None:
    """DELTA.md#ict-commit-time: the checkpoint does not hold it."""
    from refimpl.table_feature import MANAGED_COMMIT

    log = WrittenLog(tmp_path / "t", MANAGED_COMMIT).create().publish(1, add("a"))
    expected = log.table(log.owner()).snapshot().in_commit_timestamp
    log.write(log_path.classic_checkpoint(1), classic_content([*definition(MANAGED_COMMIT), add("a")]))
    snapshot = log.table(log.owner()).snapshot()
    assert snapshot.segment.commits == ()
    assert snapshot.in_commit_timestamp == expected == snapshot.timestamp
    log.delete(log_path.commit(0)).delete(log_path.commit(1))
    without = log.table(log.owner()).snapshot()
    assert without.in_commit_timestamp is None
    with pytest.raises(CorruptLogError):
        _ = without.timestamp
    shutil.rmtree(log.folder)
