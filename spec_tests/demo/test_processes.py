"""Processes of the demonstration: failures are reported, killed ones are dead, and no process is left."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import refimpl
from refimpl.cli.options import columns_of_sql
from refimpl.demo.processes import ENDED, GO, Watch, Worker, WorkerPool
from refimpl.errors import OwnerUnavailableError

pytestmark = pytest.mark.processes
TIMEOUT = 60.0


@pytest.fixture
def task(tmp_path: Path) -> Watch:
    """A reader that reads until the command comes."""
    with refimpl.open(tmp_path / "w", create=True) as warehouse:
        warehouse.create_table("t", columns_of_sql("id INT, month INT"), partition_columns=["month"])
    return Watch(warehouse=str(tmp_path / "w"), table="t", partition_column="month", rows={})


def _until(pool: WorkerPool, worker: Worker, what: str) -> dict[str, object]:
    return next(event.facts for sender, event in pool.events() if sender is worker and event.kind == what)


def test_a_process_ends_on_its_command(tmp_path: Path, task: Watch) -> None:
    with WorkerPool(tmp_path, timeout=TIMEOUT) as pool:
        worker = pool.start("reader", task)
        _until(pool, worker, "ready")
        worker.send(GO)
        assert _until(pool, worker, "watched")["faults"] == []
        assert _until(pool, worker, ENDED) == {"code": 0}


def test_a_killed_process_is_not_a_failure(tmp_path: Path, task: Watch) -> None:
    with WorkerPool(tmp_path, timeout=TIMEOUT) as pool:
        worker = pool.start("reader", task)
        _until(pool, worker, "ready")
        worker.kill()
        assert _until(pool, worker, ENDED) == {"code": -signal.SIGKILL}


def test_a_failed_process_is_reported_with_its_error(tmp_path: Path, task: Watch) -> None:
    import msgspec

    with WorkerPool(tmp_path, timeout=TIMEOUT) as pool:
        worker = pool.start("reader", msgspec.structs.replace(task, table="nothing"))
        with pytest.raises(OwnerUnavailableError) as failure:
            _until(pool, worker, ENDED)
    assert failure.value.facts["pid"] == worker.pid
    assert "TableNotFoundError" in str(failure.value)


def test_a_crashed_process_is_reported_with_its_last_line(tmp_path: Path, task: Watch) -> None:
    import msgspec

    with WorkerPool(tmp_path, timeout=TIMEOUT) as pool:
        worker = pool.start("reader", msgspec.structs.replace(task, partition_column="nothing"))
        with pytest.raises(OwnerUnavailableError) as failure:
            _until(pool, worker, ENDED)
    assert "nothing" in str(failure.value)


def test_no_event_before_the_timeout_is_a_failure(tmp_path: Path, task: Watch) -> None:
    with WorkerPool(tmp_path, timeout=0.01) as pool, pytest.raises(OwnerUnavailableError):
        next(pool.events())


def test_an_interrupted_demo_leaves_no_process(tmp_path: Path, task: Watch) -> None:
    with pytest.raises(KeyboardInterrupt), WorkerPool(tmp_path, timeout=TIMEOUT) as pool:
        worker = pool.start("reader", task)
        _until(pool, worker, "ready")
        raise KeyboardInterrupt
    with pytest.raises(ProcessLookupError):
        os.kill(worker.pid, 0)


def test_a_process_exits_when_its_starter_is_gone(tmp_path: Path, task: Watch) -> None:
    """It sees the end of its standard input."""
    with WorkerPool(tmp_path, timeout=TIMEOUT) as pool:
        worker = pool.start("reader", task)
        _until(pool, worker, "ready")
        assert worker.process.stdin is not None
        worker.killed = True  # it does not end well, and that is expected
        worker.process.stdin.close()
        assert _until(pool, worker, ENDED) == {"code": 1}
