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
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import refimpl
from refimpl.cli import demonstration
from refimpl.cli.application import application
from refimpl.cli.options import columns_of_sql
from refimpl.cli.output import ExitCode
from refimpl.demo import source, story
from refimpl.demo.acts import differences
from refimpl.demo.processes import ENDED, GO, Watch, Worker, WorkerPool
from refimpl.demo.source import Totals
from refimpl.demo.stage import Stage, Timeline
from refimpl.demo.worker import Channel, watch
from refimpl.errors import InvalidRequestError, OwnerUnavailableError

ROWS = """month,amount,price,note
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
    path.write_text(ROWS)
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
    words = [SCRIPT, "demo", "--input", small_file, "--warehouse", kept, "--no-conformance", "--json"]
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
        stage.check("the earth is round", "40,075 km around", ok=True)
        stage.check("the earth is flat", "0 corners were found", ok=False)
        return []

    monkeypatch.setattr(story, "_play", play)
    answer = _run("--input", small_file)
    assert answer.exit_code == ExitCode.REFUSED
    assert " FAIL   the earth is flat: 0 corners were found" in answer.stdout
    assert "1 of 2 checks passed" in answer.stdout
    assert "FAILED: the earth is flat" in answer.stdout
    as_json = _run("--input", small_file, "--json")
    assert as_json.exit_code == ExitCode.REFUSED
    assert [check["ok"] for check in json.loads(as_json.stdout)["checks"]] == [True, False]


def test_a_directory_that_is_not_empty_is_unchanged(small_file: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("the only copy")
    answer = _run("--input", small_file, "--warehouse", tmp_path / "mine")
    assert answer.exit_code == ExitCode.USAGE
    assert "empty" in answer.stderr
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_an_invalid_input_file_starts_nothing(tmp_path: Path) -> None:
    answer = _run("--input", tmp_path / "nowhere.csv", "--warehouse", tmp_path / "new")
    assert answer.exit_code == ExitCode.USAGE
    assert "nowhere.csv" in answer.stderr
    assert not (tmp_path / "new").exists()


def test_without_java_nothing_is_started(small_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def find_java() -> Path:
        raise InvalidRequestError("Spark needs Java 17 or newer")

    monkeypatch.setattr(story, "find_java", find_java)
    answer = _run("--input", small_file, "--warehouse", tmp_path / "new")
    assert (answer.exit_code, answer.stderr) == (ExitCode.USAGE, "error: Spark needs Java 17 or newer\n")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("script", "expected"), [("", True), ("raise SystemExit(1)", False)])
def test_demo_shows_the_result_of_the_kit(
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


def test_demo_without_the_kit_names_the_missing_package(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demonstration, "_KIT", ("conformance", "no_such_library"))
    monkeypatch.setattr(demonstration, "_KIT_COMMAND", ("-c", "raise SystemExit(1)"))
    assert demonstration._conforms(to_stderr=False)
    assert "no_such_library is missing: pip install 'delta-commit-owner[conformance]'" in capfd.readouterr().out


def test_the_demo_needs_no_library_that_the_kits_extra_does_not_install() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    installed = {re.split(r"[^\w.-]", needed)[0] for needed in project["optional-dependencies"]["conformance"]}
    assert {*demonstration._KIT} - {"conformance"} <= installed


# Processes: failures are reported, killed processes are dead, and no process is left


TIMEOUT = 60.0


@pytest.fixture
def task(tmp_path: Path) -> Watch:
    """A reader that reads until the command arrives."""
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
    with WorkerPool(tmp_path, timeout=TIMEOUT) as pool:
        worker = pool.start("reader", msgspec.structs.replace(task, table="nothing"))
        with pytest.raises(OwnerUnavailableError) as failure:
            _until(pool, worker, ENDED)
    assert failure.value.facts["pid"] == worker.pid
    assert "TableNotFoundError" in str(failure.value)


def test_a_crashed_process_is_reported_with_its_last_line(tmp_path: Path, task: Watch) -> None:
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


def test_process_exits_when_its_parent_is_gone(tmp_path: Path, task: Watch) -> None:
    """The process sees the end of its standard input."""
    with WorkerPool(tmp_path, timeout=TIMEOUT) as pool:
        worker = pool.start("reader", task)
        _until(pool, worker, "ready")
        assert worker.process.stdin is not None
        worker.killed = True  # its exit code is not 0, as expected
        worker.process.stdin.close()
        assert _until(pool, worker, ENDED) == {"code": 1}


# The checks can fail: each comparison gets wrong data, and right data


EXPECTED = {
    "1": Totals(rows=2, counts={"n": 2}, sums={"n": 30, "price": 0.3}),
    "2": Totals(rows=1, counts={"n": 0}, sums={"n": 0, "price": 0.0}),
}
FOUND: dict[str, dict[str, Any]] = {
    "1": {"rows": 2, "counts": {"n": 2}, "sums": {"n": 30, "price": 0.1 + 0.2}},
    "2": {"rows": 1, "counts": {"n": 0}, "sums": {"n": None, "price": None}},
}


def test_equal_totals_have_no_difference() -> None:
    """In SQL, the sum of no values is null. Sums of floating-point numbers may differ in their last digits."""
    assert list(differences(EXPECTED, FOUND)) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [(("1", "rows"), 3), (("1", "counts", "n"), 1), (("1", "sums", "n"), 31), (("1", "sums", "price"), 0.31)],
)
def test_one_different_total_is_one_difference(path: tuple[str, ...], value: float) -> None:
    computed = deepcopy(FOUND)
    part: Any = computed
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    assert len(list(differences(EXPECTED, computed))) == 1


def test_missing_or_additional_part_is_a_difference() -> None:
    assert len(list(differences(EXPECTED, {"1": FOUND["1"]}))) == 1
    assert len(list(differences(EXPECTED, {**FOUND, "3": FOUND["1"]}))) == 1


class Recorded(Channel):
    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}

    def report(self, kind: str, **facts: Any) -> None:
        self.events[kind] = facts

    def has_command(self) -> bool:
        return True


def _watched(directory: Path, months: list[list[int]]) -> dict[str, Any]:
    """The report of the reader about a table with one commit for each list."""
    with refimpl.open(directory, create=True) as warehouse:
        table = warehouse.create_table("t", columns_of_sql("id INT, month INT"), partition_columns=["month"])
        for listed in months:
            rows = {"id": pa.array(range(len(listed)), pa.int32()), "month": pa.array(listed, pa.int32())}
            table.append(pa.table(rows))
    channel = Recorded()
    task = Watch(warehouse=str(directory), table="t", partition_column="month", rows={"1": 2, "2": 1})
    watch(task, channel)
    return channel.events["watched"]


def test_the_reader_accepts_whole_parts(tmp_path: Path) -> None:
    seen = _watched(tmp_path / "w", [[1, 1], [2]])
    assert (seen["last"], seen["versions"], seen["faults"]) == (2, 1, [])


@pytest.mark.parametrize(
    "months",
    [
        pytest.param([[1], [2]], id="half a part"),
        pytest.param([[1, 1], [2], [2]], id="a part twice"),
        pytest.param([[1, 1, 2]], id="two parts in one version"),
        pytest.param([[1, 1], [7]], id="a part that is not in the input"),
    ],
)
def test_the_reader_rejects_incomplete_parts(tmp_path: Path, months: list[list[int]]) -> None:
    assert _watched(tmp_path / "w", months)["faults"]


# The expected totals come only from the input, and are right


def test_totals_equal_the_sums_of_the_rows(small_file: Path, tmp_path: Path) -> None:
    loaded = source.load(small_file, "month", tmp_path)
    assert (loaded.rows, list(loaded.parts)) == (6, ["1", "2", "3"])
    assert loaded.parts["1"] == Totals(
        rows=2, counts={"amount": 2, "price": 1, "note": 1}, sums={"amount": 30, "price": 0.5}
    )
    assert loaded.parts["3"] == Totals(
        rows=3, counts={"amount": 3, "price": 2, "note": 2}, sums={"amount": 6, "price": 6.0}
    )


def test_parts_are_sorted_by_value(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("day,n\n" + "".join(f"{day},1\n" for day in (10, 9, 2, 10)))
    assert list(source.load(path, "day", tmp_path).parts) == ["2", "9", "10"]


def test_parquet_file_is_accepted(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table({"city": ["Rome", "Bonn", "Oslo"], "n": [1, 2, 3]}), path)
    loaded = source.load(path, "city", tmp_path)
    assert not loaded.is_csv
    assert {part: totals.sums for part, totals in loaded.parts.items()} == {
        "Bonn": {"n": 2},
        "Oslo": {"n": 3},
        "Rome": {"n": 1},
    }


def test_columns_without_comparable_sums_have_no_total(tmp_path: Path) -> None:
    """A sum with NaN equals no other sum, and an empty text becomes null in the table."""
    from pyarrow import parquet

    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table({"city": ["", "Bonn", "Oslo"], "k": [1, 2, 3], "n": [1.5, math.nan, None]}), path)
    assert [list(part.sums) for part in source.load(path, "k", tmp_path).parts.values()] == [[], [], []]
    with pytest.raises(InvalidRequestError, match="has nulls"):
        source.load(path, "city", tmp_path)


def test_flights_are_complete(tmp_path: Path) -> None:
    """336,776 flights left New York City in 2013. The demo reads them without importing their package."""
    loaded = source.load(None, "month", tmp_path)
    assert loaded.rows == 336_776
    assert [int(part) for part in loaded.parts] == list(range(1, 13))
    assert loaded.parts["1"].rows == 27_004
    assert loaded.parts["1"].counts["dep_time"] == 26_483
    assert sum(part.sums["distance"] for part in loaded.parts.values()) == 350_217_607


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


def test_a_missing_input_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError):
        source.load(tmp_path / "nowhere.csv", "month", tmp_path)


def test_a_missing_data_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        source, "find_spec", lambda name: None if name == source.PACKAGE else importlib.util.find_spec(name)
    )
    with pytest.raises(InvalidRequestError) as refusal:
        source.load(None, "month", tmp_path)
    assert "delta-commit-owner[demo]" in str(refusal.value)
