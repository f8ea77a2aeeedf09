"""`commit-owner demo` on a small file; and the demo's processes, checks and input."""

import importlib.util
import json
import math
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

import refimpl
from refimpl.cli import demonstration
from refimpl.cli.application import application
from refimpl.cli.options import columns_of_sql
from refimpl.cli.output import ExitCode
from refimpl.demo import source, story
from refimpl.demo.roles import watch
from refimpl.demo.source import ROWS, Totals
from refimpl.demo.story import Stage, Timeline, differences, faults
from refimpl.demo.workers import GO, Ended, WorkerPool
from refimpl.protocol.errors import InvalidRequestError, OwnerUnavailableError

FILE = """month,amount,price,note
1,10,0.5,a
1,20,NA,NA
2,5,1.5,b
3,7,2.5,c
3,8,,
3,-9,3.5,d
"""


@pytest.fixture
def small_file(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text(FILE)
    return path


pytestmark = pytest.mark.processes

SCRIPT = Path(sys.executable).with_name("commit-owner")
CHECKS = [
    "one process creates the table",
    "losers report the winner's table",
    "inline commits race and all land",
    "killed before proposing",
    "killed after ratification",
    "every part lands once",
    "attempts that did not land stay invisible",
    "every snapshot holds whole parts",
    "stale by path, fresh through the owner",
    "backfill on request",
    "catalog-managed tables reject path access",
    "row counts equal the input's",
    "sums equal the input's",
    "time travel",
    "no invariant is violated",
]


def _run(*words: object) -> Any:
    return CliRunner().invoke(application, ["demo", "--no-conformance", *map(str, words)], prog_name="commit-owner")


@pytest.mark.engines
@pytest.mark.spark
@pytest.mark.xdist_group("demo")
def test_every_check_of_the_demo_holds(small_file: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    words: list[str | Path] = [SCRIPT, "demo", "--input", small_file, "--warehouse", kept, "--no-conformance", "--json"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == ExitCode.OK, done.stderr
    result = json.loads(done.stdout)
    assert sorted(check["name"] for check in result["checks"]) == sorted(CHECKS)
    assert [check["name"] for check in result["checks"] if not check["ok"]] == []
    assert (result["ok"], result["rows"], result["parts"], result["kept"]) == (True, 6, 3, True)
    assert all(check["name"] in done.stderr for check in result["checks"])
    _check_timelines({timeline["table"]: timeline for timeline in result["timelines"]})
    shown = subprocess.run([SCRIPT, "show", "-w", kept, "--json"], capture_output=True, text=True, check=True)
    assert sorted(table["name"] for table in json.loads(shown.stdout)) == ["ingested", "race", "totals"]


def _check_timelines(timelines: dict[str, Any]) -> None:
    ingested = timelines["ingested"]["rows"]
    assert [row["version"] for row in ingested] == [0, 1, 2, 3]
    assert sorted(row["operation"] for row in ingested[1:]) == ["month 1", "month 2", "month 3"]
    assert {row["commit_mode"] for row in ingested[1:]} == {"staged"}
    assert "writer 3" in ingested[1]["lost"]
    assert len(ingested[1]["lost"]) == 2
    assert {row["writer"] for row in ingested[1:]} == {"writer 1", "writer 2"}
    assert {row["commit_mode"] for row in timelines["race"]["rows"][1:]} == {"inline"}
    assert {row["writer"] for row in timelines["race"]["rows"][1:]} == {f"creator {number}" for number in range(1, 9)}
    assert all(row["published_at"] is None for row in timelines["race"]["rows"][1:])
    for timeline in timelines.values():
        times = [row["in_commit_timestamp"] for row in timeline["rows"]]
        assert times == sorted(set(times))


def test_a_failed_check_is_shown_and_exits_with_1(small_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def play(stage: Stage) -> list[Timeline]:
        stage.check("the earth is round", True, "40,075 km around")
        stage.check("the earth is flat", False, "0 corners were found")
        return []

    monkeypatch.setattr(story, "play", play)
    answer = _run("--input", small_file)
    assert answer.exit_code == ExitCode.REFUSED
    assert " FAIL   the earth is flat: 0 corners were found" in answer.stdout
    assert "1 of 2 checks passed" in answer.stdout
    assert "FAILED: the earth is flat" in answer.stdout
    as_json = _run("--input", small_file, "--json")
    assert as_json.exit_code == ExitCode.REFUSED
    assert [check["ok"] for check in json.loads(as_json.stdout)["checks"]] == [True, False]


def test_invalid_options_start_nothing(small_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is not empty is unchanged; a missing file or Java creates no warehouse."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("the only copy")

    def refused(file: Path, warehouse: str) -> str:
        answer = _run("--input", file, "--warehouse", tmp_path / warehouse)
        assert answer.exit_code == ExitCode.USAGE
        return str(answer.stderr)

    def find_java() -> Path:
        raise InvalidRequestError("Spark needs Java 17 or newer")

    assert "empty" in refused(small_file, "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]
    assert "nowhere.csv" in refused(tmp_path / "nowhere.csv", "new")
    monkeypatch.setattr(story, "find_java", find_java)
    assert refused(small_file, "new") == "error: Spark needs Java 17 or newer\n"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("script", "expected"), [("", True), ("raise SystemExit(1)", False)])
def test_demo_shows_the_result_of_the_kit_or_the_missing_package(
    script: str, expected: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The kit runs in another process. Its output is shown unchanged; with `--json`, on the standard error."""
    monkeypatch.setattr(demonstration, "_KIT_COMMAND", ("-c", f"print('the verdict', flush=True); {script}"))
    for to_stderr in (False, True):
        assert demonstration._conforms(to_stderr=to_stderr) is expected
        captured = capfd.readouterr()
        shown, empty = (captured.err, captured.out) if to_stderr else (captured.out, captured.err)
        assert "against the reference owner" in shown
        assert shown.endswith("the verdict\n")
        assert empty == ""
    monkeypatch.setattr(demonstration, "_KIT", ("conformance", "no_such_library"))
    assert demonstration._conforms(to_stderr=False)
    assert "no_such_library is missing: pip install '.[conformance]' in a checkout" in capfd.readouterr().out


def test_the_demo_needs_no_library_that_the_kits_extra_does_not_install() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    installed = {re.split(r"[^\w.-]", needed)[0] for needed in project["optional-dependencies"]["conformance"]}
    assert {*demonstration._KIT} - {"conformance"} <= installed


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


def test_a_process_ends_on_its_command(pool: WorkerPool) -> None:
    worker = pool.start("worker", until_go)
    _until(pool, "ready")
    worker.send(GO)
    _until(pool, "gone on")
    _until(pool, Ended(0, NO_ERROR))


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


EXPECTED: dict[str, Totals] = {
    "1": {ROWS: 2, "n_count": 2, "n_sum": 30, "price_sum": 0.3},
    "2": {ROWS: 1, "n_count": 0, "n_sum": 0, "price_sum": 0.0},
}
FOUND: dict[str, dict[str, Any]] = {
    "1": {ROWS: 2, "n_count": 2, "n_sum": 30, "price_sum": 0.1 + 0.2},
    "2": {ROWS: 1, "n_count": 0, "n_sum": None, "price_sum": None},
}


@pytest.mark.parametrize(
    ("found", "count"),
    [
        pytest.param(FOUND, 0, id="no sum and a sum's last digits"),
        *(
            pytest.param(FOUND | {"1": FOUND["1"] | {name: value}}, 1, id=name)
            for name, value in {ROWS: 3, "n_count": 1, "n_sum": 31, "price_sum": 0.31}.items()
        ),
        pytest.param({"1": FOUND["1"]}, 1, id="missing part"),
        pytest.param({**FOUND, "3": FOUND["1"]}, 1, id="additional part"),
    ],
)
def test_each_different_total_is_one_difference(found: dict[str, dict[str, Any]], count: int) -> None:
    """In SQL, the sum of no values is null. Sums of floating-point numbers may differ in their last digits."""
    assert len(list(differences(EXPECTED, found))) == count


def test_the_reader_reports_each_versions_parts(tmp_path: Path, small_file: Path) -> None:
    directory = tmp_path / "w"
    with refimpl.open(directory, create=True) as warehouse:
        table = warehouse.create_table("t", columns_of_sql("id INT, month INT"), partition_columns=["month"])
        for months in ([1, 1], [2]):
            rows = {"id": pa.array(range(len(months)), pa.int32()), "month": pa.array(months, pa.int32())}
            table.append(pa.table(rows))
    ours, theirs = Pipe()
    ours.send(GO)
    watch(theirs, directory, "t", source.load(small_file, "month", tmp_path))
    kind, seen = ours.recv()
    assert (kind, seen["version"], seen["parts"]) == ("saw", 2, {"1": 2, "2": 1})
    assert seen["timestamp"] > 0
    assert ours.recv() == ("watched", {"reads": 1})
    assert list(faults([seen], EXPECTED)) == []


@pytest.mark.parametrize(
    ("version", "timestamp", "parts"),
    [
        pytest.param(2, 9, {"1": 1, "2": 1}, id="half a part"),
        pytest.param(3, 9, {"1": 2, "2": 2}, id="a part twice"),
        pytest.param(1, 9, {"1": 2, "2": 1}, id="two parts in one version"),
        pytest.param(2, 9, {"1": 2, "7": 1}, id="a part that is not in the input"),
        pytest.param(0, 9, {}, id="an older version"),
        pytest.param(2, 5, {"1": 2, "2": 1}, id="an equal timestamp"),
        pytest.param(1, 9, {"2": 1}, id="a part is lost"),
    ],
)
def test_a_snapshot_without_whole_parts_or_that_goes_back_is_a_fault(
    version: int, timestamp: int, parts: dict[str, int]
) -> None:
    first = {"version": 1, "timestamp": 5, "parts": {"1": 2}}
    assert list(faults([first], EXPECTED)) == []
    assert list(faults([first, {"version": 2, "timestamp": 9, "parts": {"1": 2, "2": 1}}], EXPECTED)) == []
    assert list(faults([first, {"version": version, "timestamp": timestamp, "parts": parts}], EXPECTED))


# The expected totals come only from the input, and are right


def test_totals_equal_the_sums_of_the_rows(small_file: Path, tmp_path: Path) -> None:
    loaded = source.load(small_file, "month", tmp_path)
    assert (loaded.rows, list(loaded.parts)) == (6, ["1", "2", "3"])
    counts, sums = ("amount_count", "price_count", "note_count"), ("amount_sum", "price_sum")
    names = (ROWS, *counts, *sums)
    assert loaded.parts["1"] == dict(zip(names, (2, 2, 1, 1, 30, 0.5), strict=True))
    assert loaded.parts["3"] == dict(zip(names, (3, 3, 2, 2, 6, 6.0), strict=True))


@pytest.mark.parametrize(
    ("column", "values", "parts"),
    [
        ("day", [10, 9, 2, 10], {"2": 1, "9": 1, "10": 2}),
        ("city", ["Rome", "Bonn", "Oslo"], {"Bonn": 1, "Oslo": 1, "Rome": 1}),
    ],
)
def test_the_files_of_the_parts_are_sorted_and_have_their_rows(
    tmp_path: Path, column: str, values: list[Any], parts: dict[str, int]
) -> None:
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table({column: values, "n": [1] * len(values)}), path)
    loaded = source.load(path, column, tmp_path)
    assert list(loaded.parts) == list(parts)
    assert {part: totals["n_sum"] for part, totals in loaded.parts.items()} == parts
    for part, file in loaded.files.items():
        assert {str(value) for value in parquet.read_table(file)[column].to_pylist()} == {part}


def test_columns_without_comparable_sums_have_no_total(tmp_path: Path) -> None:
    """A sum with NaN equals no other sum, and an empty text becomes null in the table."""
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table({"city": ["", "Bonn", "Oslo"], "k": [1, 2, 3], "n": [1.5, math.nan, None]}), path)
    assert source.load(path, "k", tmp_path).aggregates == [("city", "count"), ("n", "count")]
    with pytest.raises(InvalidRequestError, match="and nulls"):
        source.load(path, "city", tmp_path)


def test_flights_are_complete(tmp_path: Path) -> None:
    """336,776 flights left New York City in 2013. The demo reads them without importing their package."""
    loaded = source.load(None, "month", tmp_path)
    assert loaded.rows == 336_776
    assert [int(part) for part in loaded.parts] == list(range(1, 13))
    assert loaded.parts["1"][ROWS] == 27_004
    assert loaded.parts["1"]["dep_time_count"] == 26_483
    assert sum(part["distance_sum"] for part in loaded.parts.values()) == 350_217_607


@pytest.mark.parametrize(
    ("text", "column", "names"),
    [
        ("month,n\n1,1\n2,1\n3,1\n", "year", "month, n"),
        ("month,n\n1,1\n2,1\n", "month", "2 values"),
        ("month,n\n" + "".join(f"{n},1\n" for n in range(101)), "month", "101 values"),
        ("month,n\n1,1\n2,1\n3,1\n,1\n", "month", "nulls"),
        ("month,n\n0.5,1\n1.5,1\n2.5,1\n", "month", "double"),
        ("", "month", "rows.csv"),
    ],
)
def test_an_invalid_input_file_is_rejected_with_the_reason(tmp_path: Path, text: str, column: str, names: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text)
    with pytest.raises(InvalidRequestError) as refusal:
        source.load(path, column, tmp_path)
    assert names in str(refusal.value)


def test_a_missing_data_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        source, "find_spec", lambda name: None if name == source.PACKAGE else importlib.util.find_spec(name)
    )
    with pytest.raises(InvalidRequestError) as refusal:
        source.load(None, "month", tmp_path)
    assert "'.[demo]' in a checkout" in str(refusal.value)
