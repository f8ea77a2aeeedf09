"""Spark on several hosts: after a killed executor, a failed task or a speculative attempt, each row is in the table
once.

DELTA.md#data-files-of-a-distributed-write
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

import refimpl
from refimpl.rows import partition_values
from spec_tests.engines.prerequisites import served
from spec_tests.engines.spark_cluster import ROWS, TASKS

pytestmark = [
    pytest.mark.engines,
    pytest.mark.longer,
    pytest.mark.spark,
    pytest.mark.xdist_group("spark-cluster"),
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and several loopback addresses"),
]

Reports = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[refimpl.Warehouse, Reports]]:
    """The reports of the jobs of `spark_cluster`, and their warehouse."""
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    folder = tmp_path_factory.mktemp("cluster")
    scratch, directory = folder / "scratch", folder / "warehouse"
    scratch.mkdir()
    with refimpl.open(directory, create=True) as warehouse:
        with served(directory) as url:
            command = [sys.executable, "-m", "spec_tests.engines.spark_cluster", str(scratch), str(directory), url]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=600, check=True)
        reports = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        yield warehouse, {report["job"]: report for report in reports}


def assert_rows(rows: Any, count: int) -> None:
    """The ids are exactly 0 to `count` - 1."""
    assert rows.num_rows == count
    assert (pc.min(rows["id"]).as_py(), pc.max(rows["id"]).as_py()) == (0, count - 1)
    assert pc.count_distinct(rows["id"]).as_py() == count


def test_disturbed_appends_commit_each_row_once(cluster: tuple[refimpl.Warehouse, Reports]) -> None:
    warehouse, reports = cluster
    for name, appends in (("local", 1), ("served", 3)):
        for number in range(appends):
            report = reports[f"append-{name}-{number * TASKS * ROWS}"]
            assert (report["version"], report["rows"]) == (number, TASKS * ROWS)
            assert report["attempts"] >= 2
        rows = warehouse.table(name).snapshot(version=appends - 1).to_arrow()
        assert_rows(rows, appends * TASKS * ROWS)


@pytest.mark.parametrize(("name", "versions"), [("local", 2), ("served", 3)])
def test_a_killed_executor_leaves_only_unnamed_files(
    cluster: tuple[refimpl.Warehouse, Reports], name: str, versions: int
) -> None:
    """Every file that a version names exists and is complete."""
    table = cluster[0].table(name)
    named: dict[Path, int] = {}
    for version in range(versions):
        files = table.snapshot(version=version).files.values()
        named |= {partition_values.local_path(table.location, add.path): add.size for add in files}
    assert len(named) == versions * TASKS
    assert {path: path.stat().st_size for path in named} == named
    assert set(table.location.glob("part-00000-*")) - set(named)


def test_a_disturbed_read_returns_each_row_once(cluster: tuple[refimpl.Warehouse, Reports]) -> None:
    count = 3 * TASKS * ROWS
    report = cluster[1]["read-served"]
    assert report["attempts"] >= 2
    assert (report["rows"], report["sum"]) == (count, count * (count - 1) // 2)


def test_a_disturbed_overwrite_or_merge_is_complete(cluster: tuple[refimpl.Warehouse, Reports]) -> None:
    warehouse, reports = cluster
    assert reports["overwrite-local-0"]["attempts"] >= 2
    assert_rows(warehouse.table("local").snapshot().to_arrow(), TASKS * ROWS)
    assert reports["merge-fares"]["attempts"] >= 2
    assert reports["merge-fares"]["rows"] == 100
    fares = warehouse.table("fares").snapshot().to_arrow().sort_by("id")
    assert fares["id"].to_pylist() == list(range(1100))
    assert fares["fare"].to_pylist() == [number * 2 if number < 900 else 0 for number in range(1100)]
