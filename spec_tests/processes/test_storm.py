"""A few rounds of `spec_tests.processes.storm`, and its check finds each kind of damage."""

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa
import pytest

import refimpl
from refimpl.demo.workers import GO, Ended, WorkerPool
from spec_tests.benchmarks.measure import wait_for_others
from spec_tests.processes.rows import Line, Operation, replay
from spec_tests.processes.table_record import Answer, Attempt, violations
from spec_tests.support.faults import Faults

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.processes
@pytest.mark.longer
def test_killed_processes_lose_nothing(tmp_path: Path) -> None:
    """Every acknowledged commit is in the log once, every other attempt is resolved, and published bytes are
    unchanged."""
    ran = subprocess.run(
        [
            sys.executable,
            *("-m", "spec_tests.processes.storm"),
            *("--rounds", "20", "--seed", "2", "--directory", str(tmp_path / "w"), "--json"),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    summary = json.loads(ran.stdout)
    assert summary["violations"] == []
    assert summary["rounds"] == 20
    assert summary["acknowledged"] > 10
    assert summary["killed_from_outside"] + sum(summary["deaths_by_effect"].values()) > 5


@dataclass
class World:
    """An undamaged table with the versions 0 to 3: four attempts landed, one lost, and one was killed and never
    landed."""

    history: dict[int, str] = field(default_factory=lambda: {0: "a", 1: "b", 2: "c", 3: "d"})
    published: list[int] = field(default_factory=lambda: [0, 1])
    before: dict[int, str] = field(default_factory=lambda: {0: "a", 1: "b"})
    attempts: dict[str, Attempt] = field(
        default_factory=lambda: {
            "zero": Attempt("zero", 0, "a", Answer.RATIFIED),
            "one": Attempt("one", 1, "b", Answer.RATIFIED),
            "two": Attempt("two", 2, "c", Answer.IN_FLIGHT, resolved=True),
            "three": Attempt("three", 3, "d", Answer.RATIFIED, resolved=True),
            "lost": Attempt("lost", 2, "x", Answer.REFUSED),
            "died": Attempt("died", 4, "y", Answer.IN_FLIGHT, resolved=False),
        }
    )

    def verdict(self) -> list[str]:
        return list(violations(self.history, self.published, self.attempts, self.before))


def test_undamaged_world_has_no_violation() -> None:
    assert World().verdict() == []
    assert World(published=[], before={}).verdict() == []
    assert World(published=[0, 1, 2, 3]).verdict() == []


DAMAGES: dict[str, Callable[[World], object]] = {
    "an acknowledged commit is missing": lambda w: w.history.pop(3),
    "an acknowledged commit has other bytes": lambda w: w.history.update({3: "z"}),
    "a version is missing in the middle": lambda w: w.history.pop(1),
    "a version changed": lambda w: w.before.update({1: "other"}),
    "a version seen before is missing": lambda w: w.before.update({4: "e"}),
    "a published version is missing": lambda w: w.published.remove(0),
    "a published version is above the latest": lambda w: w.published.extend([2, 3, 4]),
    "a rejected attempt landed": lambda w: w.attempts.update(lost=Attempt("lost", 2, "c", Answer.REFUSED)),
    "an attempt landed at another version": lambda w: w.attempts.update(one=Attempt("one", 2, "b", Answer.RATIFIED)),
    "an attempt landed twice": lambda w: w.history.update({4: "d"}),
    "a version was not proposed": lambda w: w.history.update({4: "unknown"}),
    "an attempt resolved as not landed is in the log": lambda w: w.history.update({4: "y"}),
    "an attempt resolved as landed is not in the log": lambda w: w.attempts.update(
        died=Attempt("died", 4, "y", Answer.IN_FLIGHT, resolved=True)
    ),
    "an attempt was not resolved": lambda w: w.attempts.update(died=Attempt("died", 4, "y", Answer.IN_FLIGHT)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_each_damage_is_found(damage: Callable[[World], object]) -> None:
    world = World()
    damage(world)
    assert world.verdict() != []


def replayed(log: Path, *lines: Line, versions: int = 3) -> list[str]:
    """The violations of a log with the operations 1, 2, ... in its versions, of which these answers were reported."""
    operations = [Operation.made(number, random.Random(number)) for number in range(1, 4)]
    for version, operation in enumerate(operations[:versions], start=1):
        info = {"operation": "WRITE", "predicate": operation.name}
        (log / f"{version:020}.json").write_text(json.dumps({"commitInfo": info}))
    sent = [Line(what="sent", number=operation.number, operation=operation) for operation in operations]
    return replay(log, [*sent, *lines])[1]


def test_right_answers_about_operations_have_no_violation(tmp_path: Path) -> None:
    answers = Line(what="landed", number=1, version=1), Line(what="unknown", number=2)
    assert replayed(tmp_path, *answers, Line(what="refused", number=3), versions=2) == []


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(Line(what="landed", number=3, version=3), id="an acknowledged operation is missing"),
        pytest.param(Line(what="landed", number=2, version=1), id="an operation landed at another version"),
        pytest.param(Line(what="refused", number=2), id="a rejected operation landed"),
        pytest.param(Line(what="nothing", number=2), id="an operation without rows landed"),
        pytest.param(Line(what="bug", text="an error"), id="a process failed"),
    ],
)
def test_each_wrong_answer_about_an_operation_is_found(line: Line, tmp_path: Path) -> None:
    assert len(replayed(tmp_path, line, versions=2)) == 1


def test_an_operation_that_landed_twice_is_found(tmp_path: Path) -> None:
    (tmp_path / f"{4:020}.json").write_text(json.dumps({"commitInfo": {"operation": "WRITE", "predicate": "id <> -1"}}))
    assert len(replayed(tmp_path)) == 1


# Transactions over several tables, in processes that are killed


def start(connection: Connection, directory: Path) -> int:
    wait_for_others(connection)
    with refimpl.open(directory, create=True) as warehouse:
        return len(warehouse.tables())


ACCOUNTS = ("a", "b", "c")
Transfer = tuple[int, tuple[str, str]]
"""Its number, which is unique, and the two accounts that get it."""


def transfer(connection: Connection, directory: Path, number: int, die_after: int | None) -> None:
    """Transactions over two of three tables, each reported before it begins and after it is acknowledged. After
    `die_after` effects of the owner and the client, the process gets SIGKILL."""
    faults = Faults(die=lambda _: os.kill(os.getpid(), signal.SIGKILL), below_sqlite=True)
    with refimpl.open(directory, environment=faults.environment()) as warehouse:
        chosen = random.Random(number)
        wait_for_others(connection)
        faults.arm(die_after)
        for transaction in range(number * 1000, number * 1000 + 8):
            both = chosen.sample(ACCOUNTS, 2)
            connection.send(("sent", (transaction, tuple(both))))
            with warehouse.transaction() as tx:
                for name in both:
                    tx.table(name).append(pa.table({"id": [transaction]}))
            connection.send(("landed", (transaction, tuple(both))))


@pytest.mark.processes
@pytest.mark.longer
def test_killed_processes_leave_no_half_transaction_and_lose_none(tmp_path: Path) -> None:
    """Eight processes write overlapping pairs of tables; six of them are killed in the middle."""
    with refimpl.open(tmp_path / "w", create=True) as warehouse:
        for name in ACCOUNTS:
            warehouse.create_table(name, {"id": "long"})
    sent, landed, killed = set[Transfer](), set[Transfer](), 0
    with WorkerPool(fork=True) as pool:
        deaths = (None, None, 3, 20, 45, 70, 95, 120)
        workers = [
            pool.start(str(number), transfer, tmp_path / "w", number, death)
            for number, death in enumerate(deaths, start=1)
        ]
        ready = 0
        while pool.running:
            for _, message in pool.receive(120):
                if message == GO:
                    ready += 1
                elif isinstance(message, Ended):
                    assert message.code in (0, -signal.SIGKILL), message
                    killed += message.code != 0
                else:
                    (sent if message[0] == "sent" else landed).add(message[1])
            if ready == len(workers):
                ready = 0
                for worker in workers:
                    worker.send(GO)
    assert killed == 6
    assert len(landed) >= 16
    with refimpl.open(tmp_path / "w") as warehouse:
        seen = dict(zip(ACCOUNTS, warehouse.snapshots(*ACCOUNTS), strict=True))
        found = Counter((name, number) for name in ACCOUNTS for number in seen[name].to_arrow()["id"].to_pylist())
        assert all(count == 1 for count in found.values()), "a transaction landed twice"
        whole = {(number, both) for number, both in sent if all((name, number) in found for name in both)}
        assert landed <= whole, "an acknowledged transaction is lost"
        assert {(name, number) for number, both in whole for name in both} == set(found), "half of one landed"
        with warehouse.transaction() as tx:  # the tables accept commits
            for name in ACCOUNTS:
                tx.table(name).append(pa.table({"id": [0]}))
