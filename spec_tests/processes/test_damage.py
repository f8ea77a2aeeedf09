"""A few damages of `spec_tests.processes.damage`, and the seals of Parquet files."""

import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import refimpl
from refimpl.client.maintenance import write_checkpoint
from refimpl.protocol.actions import Add
from refimpl.protocol.errors import CorruptDataError
from refimpl.protocol.table_feature import CATALOG_MANAGED, CommitMode
from refimpl.rows.data_files import read_file
from refimpl.rows.partition_values import FileLayout
from refimpl.schema.schema import from_arrow
from refimpl.storage import parquet_seal
from spec_tests.support.builders import create

ROOT = Path(__file__).resolve().parents[2]
ROWS = pa.table({"id": range(100)})


@pytest.mark.processes
@pytest.mark.longer
def test_no_damage_gives_a_wrong_answer_without_a_word() -> None:
    command = [sys.executable, "-m", "spec_tests.processes.damage", "--damages", "12", "--seed", "5", "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert ran.returncode == 0, ran.stderr
    outcomes = json.loads(ran.stdout)["outcomes"]
    assert sum(outcomes.values()) == 12
    assert outcomes["named"] > 0


def sealed(name: str) -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, ROWS.schema) as writer:
        writer.write_table(ROWS)
        writer.add_key_value_metadata({parquet_seal.KEY: parquet_seal.EMPTY})
    return parquet_seal.sealed(sink.getvalue(), name)


def test_a_seal_is_that_of_its_bytes_and_name() -> None:
    content = sealed("a.parquet")
    assert pq.read_table(io.BytesIO(content)).equals(ROWS)
    assert not parquet_seal.is_broken(content, "a.parquet")
    assert parquet_seal.is_broken(content, "b.parquet")
    assert parquet_seal.is_broken(content, "a.parquet", body=1)
    start = content.index(parquet_seal.KEY.encode())
    for bit in range(0, 8 * len(content), 13):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        own = start <= bit // 8 < start + len(parquet_seal.KEY) + 2  # without the key there is no seal
        assert parquet_seal.is_broken(bytes(damaged), "a.parquet") != own, bit


@pytest.fixture
def warehouse(tmp_path: Path) -> refimpl.Warehouse:
    return refimpl.open(tmp_path / "w", create=True)


def test_another_file_in_the_place_of_a_sidecar_or_data_file_is_named(warehouse: refimpl.Warehouse) -> None:
    table = warehouse.create_table("orders", ROWS.schema, properties={"delta.checkpointPolicy": "v2"})
    for _ in range(2):
        table.append(ROWS)
        table.publish()
        write_checkpoint(table)
    older, newer = sorted((table.log.folder / "_sidecars").iterdir(), key=lambda path: path.stat().st_size)
    newer.write_bytes(older.read_bytes())
    (warning,) = warehouse.table("orders").snapshot().warnings
    assert newer.name in warning
    assert any(newer.name in finding.message for finding in warehouse.verify())
    first, second = table.location.glob("*.parquet")
    first.write_bytes(second.read_bytes())
    with pytest.raises(CorruptDataError, match=first.name):
        warehouse.table("orders").snapshot().to_arrow()


@pytest.mark.parametrize(
    ("rows", "size", "warned"), [(100, 1, True), (100, 0, False), (100, None, False), (99, 1, "has 99 rows")]
)
def test_another_size_than_the_logs_is_a_warning_and_with_other_rows_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, rows: int, size: int | None, warned: bool | str
) -> None:
    """None: the right size. A size of 0 is that of early versions of delta-rs, which did not know it."""
    path = tmp_path / "a.parquet"
    pq.write_table(ROWS[:rows], path)
    layout = FileLayout(location=tmp_path, schema=from_arrow(ROWS.schema))
    size, stats = path.stat().st_size if size is None else size, '{"numRecords":100}'
    add = Add(path=path.name, partition_values={}, size=size, modification_time=0, data_change=True, stats=stats)
    if isinstance(warned, str):
        with pytest.raises(CorruptDataError, match=warned):
            read_file(layout, add)
    else:
        assert read_file(layout, add).num_rows == 100
        assert (str(path) in caplog.text) == warned


def damaged_files(warehouse: refimpl.Warehouse) -> list[str]:
    return [finding.message for finding in warehouse.verify(data=True) if finding.code == "data-file-damaged"]


def test_verify_reads_all_bytes_of_a_data_file(warehouse: refimpl.Warehouse) -> None:
    table = warehouse.create_table("orders", ROWS.schema)
    table.append(ROWS)
    (path,) = table.location.glob("*.parquet")
    content = path.read_bytes()
    assert damaged_files(warehouse) == []
    for bit in range(0, 8 * len(content) // 3, 67):  # pages and their headers
        altered = bytearray(content)
        altered[bit // 8] ^= 1 << bit % 8
        path.write_bytes(altered)
        (message,) = damaged_files(warehouse)
        assert path.name in message, bit


def test_a_read_gives_no_fewer_rows_than_the_footer_states(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(ROWS, path)
    content, layout = path.read_bytes(), FileLayout(location=tmp_path, schema=from_arrow(ROWS.schema))
    add = Add(path=path.name, partition_values={}, size=len(content), modification_time=0, data_change=True)
    for bit in range(0, 8 * len(content) // 3, 3):
        altered = bytearray(content)
        altered[bit // 8] ^= 1 << bit % 8
        path.write_bytes(altered)
        with contextlib.suppress(CorruptDataError):
            assert read_file(layout, add).num_rows == 100, bit


@pytest.mark.parametrize(
    ("size", "rows", "least", "problem"), [(0, 0, 0, ""), (1, 0, 0, "bytes"), (0, 1, 0, "rows"), (0, 0, 1, "exclude")]
)
def test_verify_compares_a_file_of_another_writer_with_its_action(
    warehouse: refimpl.Warehouse, size: int, rows: int, least: int, problem: str
) -> None:
    table = warehouse.create_table("orders", ROWS.schema)
    path = table.location / "a.parquet"
    pq.write_table(ROWS, path)
    stats = json.dumps({"numRecords": 100 + rows, "minValues": {"id": least}, "maxValues": {"id": 99}})
    size += path.stat().st_size
    add = Add(path=path.name, partition_values={}, size=size, modification_time=0, data_change=True, stats=stats)
    transaction = table.transaction()
    transaction.add(add)
    transaction.commit()
    found = damaged_files(warehouse)
    assert [problem in message and path.name in message for message in found] == [True] * bool(problem)


@pytest.mark.parametrize(("ahead", "severity"), [(1, "note"), (2, "warning")])
def test_verify_reports_staged_files_above_the_latest_version(
    warehouse: refimpl.Warehouse, ahead: int, severity: str
) -> None:
    """A ledger that lost its newest transactions looks like this, and so does a writer at work."""
    table = create(warehouse, CATALOG_MANAGED, CommitMode.STAGED, commits=2)
    codes = {finding.code for finding in warehouse.verify()}
    assert "staged-above-latest" not in codes
    assert table.latest is not None
    table.propose(table.latest + ahead, b"{}\n")
    found = [finding for finding in warehouse.verify() if finding.code == "staged-above-latest"]
    assert [finding.severity.value for finding in found] == [severity]
