"""`commit-owner demo` on a small file; and the demo's processes, checks and input."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from refimpl.cli.application import application
from refimpl.cli.output import ExitCode
from refimpl.demo import story
from refimpl.demo.story import Flights, Stage, differences
from refimpl.demo.workers import Ended, WorkerPool
from refimpl.protocol.errors import InvalidRequestError, OwnerUnavailableError

pytestmark = pytest.mark.processes

SCRIPT = Path(sys.executable).with_name("commit-owner")
CHECKS = [
    "one process creates the table",
    "losers report the winner's table",
    "killed before proposing",
    "killed after ratification",
    "every month lands once",
    "attempts that did not land stay invisible",
    "rows and sums equal the input's",
    "no invariant is violated",
]


def _run(*words: object) -> Any:
    return CliRunner().invoke(application, ["demo", *map(str, words)], prog_name="commit-owner")


@pytest.mark.longer  # `.ci/run` runs the demo itself
@pytest.mark.engines
@pytest.mark.spark
@pytest.mark.xdist_group("demo")
def test_every_check_of_the_demo_holds(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    words: list[str | Path] = [SCRIPT, "demo", "--warehouse", kept, "--json"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == ExitCode.OK, done.stderr
    result = json.loads(done.stdout)
    assert sorted(check["name"] for check in result["checks"]) == sorted(CHECKS)
    assert [check["name"] for check in result["checks"] if not check["ok"]] == []
    assert (result["ok"], result["rows"], result["kept"]) == (True, 336_776, True)
    assert all(check["name"] in done.stderr for check in result["checks"])
    shown = subprocess.run([SCRIPT, "show", "-w", kept, "--json"], capture_output=True, text=True, check=True)
    assert sorted(table["name"] for table in json.loads(shown.stdout)) == ["flights"]


def test_a_failed_check_is_shown_and_exits_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def play(stage: Stage) -> None:
        stage.check("the earth is round", True, "40,075 km around")
        stage.check("the earth is flat", False, "0 corners were found")

    monkeypatch.setattr(story, "play", play)
    answer = _run()
    assert answer.exit_code == ExitCode.REFUSED
    assert " FAIL   the earth is flat: 0 corners were found" in answer.stderr
    assert "1 of 2 checks passed" in answer.stdout
    assert "FAILED: the earth is flat" in answer.stdout
    as_json = _run("--json")
    assert as_json.exit_code == ExitCode.REFUSED
    assert [check["ok"] for check in json.loads(as_json.stdout)["checks"]] == [True, False]


def test_invalid_options_start_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is not empty is unchanged; a missing file or Java creates no warehouse."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("the only copy")

    def refused(warehouse: str) -> str:
        answer = _run("--warehouse", tmp_path / warehouse)
        assert answer.exit_code == ExitCode.USAGE
        return str(answer.stderr)

    def find_java() -> Path:
        raise InvalidRequestError("Spark needs Java 17 or newer")

    assert "empty" in refused("mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]
    monkeypatch.setattr(story, "find_java", find_java)
    assert refused("new") == "error: Spark needs Java 17 or newer\n"
    assert not (tmp_path / "new").exists()


# Processes: failures are reported, killed processes are dead, and no process is left


TIMEOUT, NO_ERROR = 60.0, "it reported no error"


def until_go(connection: Connection) -> None:
    """A worker that ends on its first message."""
    connection.send("ready")
    connection.recv()
    connection.send("gone on")


def fail(connection: Connection) -> None:
    connection.send("ready")
    raise KeyError("the reason")


def leave(connection: Connection) -> None:
    os._exit(3)


@pytest.fixture(params=[pytest.param(True, id="fork"), pytest.param(False, id="spawn", marks=pytest.mark.longer)])
def pool(request: pytest.FixtureRequest) -> Iterator[WorkerPool]:
    with WorkerPool(fork=request.param) as pool:
        yield pool


def _until(pool: WorkerPool, message: object) -> None:
    assert message in (received for _, received in pool.messages(TIMEOUT))


def test_a_killed_process_is_not_a_failure(pool: WorkerPool) -> None:
    """What it reported before arrives. The name may be started again."""
    pool.start("worker", until_go).kill()
    _until(pool, Ended(-signal.SIGKILL, NO_ERROR))
    worker = pool.start("worker", until_go)
    assert worker.connection.poll(TIMEOUT)
    worker.kill()
    _until(pool, "ready")
    _until(pool, Ended(-signal.SIGKILL, NO_ERROR))


@pytest.mark.parametrize(("act", "reason"), [(fail, "KeyError: 'the reason'"), (leave, "code 3")])
def test_a_failed_process_is_reported_with_its_error(
    pool: WorkerPool, act: Callable[[Connection], None], reason: str
) -> None:
    worker = pool.start("worker", act)
    with pytest.raises(OwnerUnavailableError) as failure:
        _until(pool, None)
    assert failure.value.facts["pid"] == worker.process.pid
    assert reason in str(failure.value)


def test_no_message_before_the_timeout_is_a_failure(pool: WorkerPool) -> None:
    with pytest.raises(OwnerUnavailableError):
        next(pool.messages(0.001))


def test_an_interrupted_demo_leaves_no_process() -> None:
    with pytest.raises(KeyboardInterrupt), WorkerPool() as pool:
        worker = pool.start("worker", until_go)
        _until(pool, "ready")
        raise KeyboardInterrupt
    assert worker.process.exitcode == -signal.SIGKILL


def test_process_exits_when_its_parent_is_gone(pool: WorkerPool) -> None:
    """It sees the end of its connection, also if another process has started since."""
    workers = [pool.start("worker", until_go) for _ in range(2)]
    for worker in workers:
        worker.connection.close()
    for worker in workers:
        worker.process.join(TIMEOUT)
        assert worker.process.exitcode == 1
    pool.running.clear()


# The checks can fail: each comparison gets wrong data, and right data


EXPECTED = {1: {"count_all": 2, "n_sum": 30}, 2: {"count_all": 1, "n_sum": 0}}


@pytest.mark.parametrize(
    ("found", "count"),
    [
        (EXPECTED, 0),
        (EXPECTED | {1: {"count_all": 3, "n_sum": 30}}, 1),
        (EXPECTED | {1: {"count_all": 2, "n_sum": None}}, 1),
        ({1: EXPECTED[1]}, 1),
        (EXPECTED | {3: EXPECTED[1]}, 1),
    ],
)
def test_each_month_with_another_total_is_a_difference(found: dict[int, dict[str, Any]], count: int) -> None:
    assert len(differences(EXPECTED, found)) == count


# The expected totals come only from the input, and are right


def test_flights_are_complete(tmp_path: Path) -> None:
    """336,776 flights left New York City in 2013. The demo reads them without importing their package."""
    flights = Flights.load(tmp_path)
    assert flights.rows == 336_776
    assert list(flights.files) == list(range(1, 13))
    assert flights.totals[1]["count_all"] == 27_004
    assert sum(totals["distance_sum"] for totals in flights.totals.values()) == 350_217_607
    assert parquet.read_metadata(flights.files[1]).num_rows == 27_004


def test_a_missing_data_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        story, "find_spec", lambda name: None if name == story.PACKAGE else importlib.util.find_spec(name)
    )
    with pytest.raises(InvalidRequestError) as refusal:
        Flights.load(tmp_path)
    assert "'.[demo]' in a checkout" in str(refusal.value)
