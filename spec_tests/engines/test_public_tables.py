"""The public test tables of delta-kernel-rs: our client reads each version as DuckDB and delta-rs do, and the change
data feed as the tests of delta-kernel-rs expect it.

The crate `delta_kernel` contains the tables up to its version 0.12; `cargo info` fetches it.
"""

import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError

from refimpl.client.table import Table
from refimpl.protocol.errors import CorruptionError
from spec_tests.support.other_readers import by_delta_rs, by_duckdb

pytestmark = pytest.mark.engines

CRATE: Final = "delta_kernel"
VERSION: Final = "0.12.1"
WITHOUT_FILES: Final = {"table-with-cdf": {0}, "with_checkpoint_no_last_checkpoint": {1, 2, 3}}
"""Versions whose data files are missing from the crate: every reader reports a missing file."""
REFUSED_BY_DELTA_RS: Final = {"type-widening": {1, 2}}


@pytest.fixture(scope="module")
def folder() -> Path:
    """The tables of the crate, fetched once. Skips the test without cargo."""
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    where = f"registry/src/*/{CRATE}-{VERSION}/tests/data"
    if not list(home.glob(where)):
        if shutil.which("cargo") is None:
            pytest.skip("no cargo: the crate with the tables cannot be fetched")
        subprocess.run(["cargo", "info", f"{CRATE}@{VERSION}"], check=True, capture_output=True, cwd="/")
    (directory,) = home.glob(where)
    return directory


def unpacked(folder: Path, target: Path) -> dict[str, Path]:
    """Unpack each table to a folder of its name. An archive may contain it below other folders."""
    tables: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        name, root = path.name.removesuffix(".tar.zst"), path
        if path.suffix == ".zst":
            root = target / name
            with (
                pa.input_stream(str(path), compression="zstd") as stream,
                tarfile.open(fileobj=stream, mode="r|") as tar,
            ):
                tar.extractall(root, filter="data")
        (log,) = root.rglob("_delta_log")
        tables[name] = log.parent
    return tables


def rows(read: Callable[[], list[tuple[Any, ...]]]) -> list[str]:
    """The rows as sorted text, because rows with nulls cannot be compared."""
    return sorted(repr(row).replace("Etc/UTC", "UTC") for row in read())


def ours(table: Table, version: int) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.snapshot(version=version).to_arrow().to_pylist()]


def test_each_version_is_read_as_by_other_readers(folder: Path, tmp_path: Path) -> None:
    tables = unpacked(folder, tmp_path)
    compared = 0
    for name, location in tables.items():
        table = Table.by_path(location)
        newest = table.snapshot()
        for version in range(newest.version + 1):
            columns = [f'"{column}"' for column in table.snapshot(version=version).schema.names]
            theirs = {
                duckdb.Error: partial(by_duckdb, location, columns, version=version),
                DeltaError: partial(by_delta_rs, location, columns, version),
            }
            if version in WITHOUT_FILES.get(name, ()):
                with pytest.raises(CorruptionError, match="is missing"):
                    ours(table, version)
                continue
            mine = rows(partial(ours, table, version))
            for error, read in theirs.items():
                if error is DeltaError and version in REFUSED_BY_DELTA_RS.get(name, ()):
                    with pytest.raises(DeltaError, match="TypeWidening"):
                        read()
                    continue
                assert mine == rows(read), (name, version, read)
                compared += 1
        assert newest.warnings == (), name
    assert len(tables) == 35
    assert compared == 274


def test_the_change_data_feed_is_as_the_crates_tests_expect(folder: Path, tmp_path: Path) -> None:
    """Each expected feed in the crate's tests is the text of a table, after the call that names the table."""
    tables = unpacked(folder, tmp_path)
    tests = (folder.parent / "cdf.rs").read_text(encoding="utf-8")
    calls = re.findall(r'read_cdf_for_table\("([^"]+)", (\d+), (\d+|None), None\)\?;(.*?)\];', tests, re.DOTALL)
    for name, first, last, text in calls:
        lines = re.findall(r'"\| (.*) \|"', text)
        columns, *expected = ([cell.strip() for cell in line.split(" | ")] for line in lines)
        feed = Table.by_path(tables[name]).changes(int(first), None if last == "None" else int(last)).read_all()
        assert sorted([shown(row[column]) for column in columns] for row in feed.to_pylist()) == sorted(expected), name
    assert len(calls) == 15


def shown(value: Any) -> str:
    """A value as Arrow for Rust formats it."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {shown(member)}' for name, member in value.items())}}}"
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
