"""Subjects behind standard input and output that behave: one process or many, crashes and restarts."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from conformance.adapters.stdio import PROCESSES, StdioSubject
from conformance.adapters.wire import encode
from conformance.interface import messages as m
from conformance.interface.subject import AdapterError

pytestmark = pytest.mark.processes

SCRIPT = Path(__file__).with_name("misbehaving.py")
LONG = 60.0
"""Seconds that nothing here takes, however busy the machine is."""


def command(thing: str = "") -> list[str]:
    return [sys.executable, "-S", str(SCRIPT), thing]


def pids(directory: Path) -> list[int]:
    """Of all processes that were ever started for the subject and are there still. One that was killed may need a
    moment to go."""
    found = []
    for path in directory.glob("pid-*"):
        try:
            process = psutil.Process(int(path.name.removeprefix("pid-")))
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return [process.pid for process in found]


def none_left(directory: Path) -> bool:
    """Whether all end soon."""
    return not psutil.wait_procs([psutil.Process(pid) for pid in pids(directory)], timeout=5)[1] or not pids(directory)


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[StdioSubject]:
    with StdioSubject(command(), timeout=LONG, directory=tmp_path) as opened:
        yield opened


def client_seen_by(subject: StdioSubject, client: str) -> str:
    """The process that answers the client."""
    answer = subject.ask(client, m.MaintenancePolicy(table="t"))
    assert isinstance(answer, m.Unsupported)
    return answer.reason


def test_a_subject_is_greeted_and_asked(subject: StdioSubject) -> None:
    assert subject.identity.name == "misbehaving"
    assert subject.ask("writer", m.GetCommits(table="t")) == m.NotFound()
    assert subject.ask("writer", m.DropTable(table="t")) == m.Rejected(reason="writer")


def test_without_shared_state_all_clients_ask_one_process(subject: StdioSubject) -> None:
    assert client_seen_by(subject, "a") == client_seen_by(subject, "b")


def test_with_shared_state_each_client_has_a_process_of_its_own(tmp_path: Path) -> None:
    with StdioSubject(command("shared"), timeout=LONG, directory=tmp_path) as subject:
        first, second = client_seen_by(subject, "a"), client_seen_by(subject, "b")
        assert first != second
        assert client_seen_by(subject, "a") == first
        assert len(pids(tmp_path)) == 3  # and the one that was greeted first
    assert pids(tmp_path) == []


def test_there_are_no_more_processes_than_are_wanted_and_clients_share_them_in_turn(tmp_path: Path) -> None:
    with StdioSubject(command("shared"), timeout=LONG, directory=tmp_path) as subject:
        everybody = {client_seen_by(subject, f"client {number}") for number in range(8)}
        assert len(everybody) == len(pids(tmp_path)) == PROCESSES
    assert none_left(tmp_path)
    with StdioSubject(command("shared"), timeout=LONG, directory=tmp_path) as subject:
        subject.processes = 6
        assert len({client_seen_by(subject, f"client {number}") for number in range(8)}) == 6


def test_answers_find_those_who_asked_however_many_ask_at_once(subject: StdioSubject) -> None:
    def ask(number: int) -> bool:
        client = f"client {number}"
        return subject.ask(client, m.DropTable(table="t")) == m.Rejected(reason=client)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(400)))


def test_a_message_may_be_longer_than_a_pipe_holds(subject: StdioSubject) -> None:
    client = "c" * 3_000_000
    assert subject.ask(client, m.DropTable(table="t")) == m.Rejected(reason=client)


def test_unicode_line_separators_are_escaped_on_the_wire() -> None:
    """Node's `readline` ends a line at them."""
    sent = encode(m.Rejected(reason="a\u2028b\u2029c"))
    assert sent == b'{"outcome":"rejected","reason":"a\\u2028b\\u2029c"}'


def test_half_a_character_gets_there_and_back(subject: StdioSubject) -> None:
    client = "half a character: \udce2"
    assert subject.ask(client, m.DropTable(table="t")) == m.Rejected(reason=client)


def test_a_crash_ends_the_process_and_a_restart_starts_it_again(subject: StdioSubject, tmp_path: Path) -> None:
    before = client_seen_by(subject, "a")
    assert subject.ask("kit", m.Crash()) == m.Done()
    assert pids(tmp_path) == []
    answer = subject.ask("a", m.GetCommits(table="t"))
    assert isinstance(answer, m.Unknown)
    assert answer.reason.startswith("gone: it was crashed, as asked")
    assert subject.ask("kit", m.Restart()) == m.Done()
    assert client_seen_by(subject, "a") != before
    assert (tmp_path / "starts").read_text() == "2"  # in one and the same directory


def test_a_restart_without_a_crash_is_one_all_the_same(subject: StdioSubject) -> None:
    before = client_seen_by(subject, "a")
    assert subject.ask("kit", m.Restart()) == m.Done()
    assert client_seen_by(subject, "a") != before


def test_a_crash_at_a_point_is_passed_on(subject: StdioSubject) -> None:
    before = client_seen_by(subject, "a")
    assert isinstance(subject.ask("kit", m.Crash(point="after-stage")), m.Unsupported)
    assert client_seen_by(subject, "a") == before


def test_a_crash_ends_the_processes_of_all_clients(tmp_path: Path) -> None:
    with StdioSubject(command("shared"), timeout=LONG, directory=tmp_path) as subject:
        client_seen_by(subject, "a"), client_seen_by(subject, "b")
        subject.ask("a", m.Crash())
        assert pids(tmp_path) == []
        assert isinstance(subject.ask("b", m.GetCommits(table="t")), m.Unknown)


def test_one_client_can_be_killed_alone(tmp_path: Path) -> None:
    with StdioSubject(command("shared"), timeout=LONG, directory=tmp_path) as subject:
        first, second = client_seen_by(subject, "a"), client_seen_by(subject, "b")
        subject.kill("a")
        assert client_seen_by(subject, "b") == second
        assert client_seen_by(subject, "a") not in (first, second)


def test_who_waits_while_the_process_is_killed_does_not_learn_what_happened(tmp_path: Path) -> None:
    with StdioSubject(command("hang"), timeout=LONG, directory=tmp_path) as subject:
        answers: list[m.Answer] = []
        asking = threading.Thread(target=lambda: answers.append(subject.ask("a", m.GetCommits(table="t"))))
        asking.start()
        while asking.is_alive() and not any(process.busy for process in subject._processes.values()):
            asking.join(0.01)
        subject.ask("kit", m.Crash())
        asking.join(LONG)
        assert isinstance(answers[0], m.Unknown)
        assert answers[0].reason == "gone: it was crashed, as asked"


def test_a_late_answer_is_dropped_and_the_next_one_counts(tmp_path: Path) -> None:
    with StdioSubject(command("late"), timeout=1.5, directory=tmp_path) as subject:
        answer = subject.ask("a", m.GetCommits(table="t"))
        assert isinstance(answer, m.Unknown)
        assert answer.reason == "no answer within 1.5 s"
        assert isinstance(subject.ask("a", m.MaintenancePolicy(table="t")), m.Unsupported)


def test_whatever_it_writes_to_the_standard_error_is_read_and_not_kept(tmp_path: Path) -> None:
    with StdioSubject(command("noise"), timeout=LONG, directory=tmp_path) as subject:
        for _ in range(10):
            assert subject.ask("a", m.GetCommits(table="t")) == m.NotFound()


@pytest.mark.parametrize("thing", ["", "offspring", "deaf to the end"])
def test_closing_leaves_no_process(thing: str, tmp_path: Path) -> None:
    subject = StdioSubject(command(thing), timeout=1.5, directory=tmp_path)
    subject.ask("a", m.GetCommits(table="t"))
    assert pids(tmp_path)
    subject.close()
    subject.close()
    assert none_left(tmp_path)
    assert subject.ask("a", m.GetCommits(table="t")) == m.Unknown(reason="gone: it was closed")
    assert tmp_path.exists()  # it was given


def test_a_directory_that_was_not_given_is_removed() -> None:
    with StdioSubject(command(), timeout=LONG) as subject:
        answer = subject.ask("a", m.GetCommits(table="t"))
        directory = subject.directory
        assert answer == m.NotFound()
        assert (directory / "starts").exists()
    assert not directory.exists()


def test_a_command_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(AdapterError) as raised:
        StdioSubject(["no-such-owner", "--port"], directory=tmp_path)
    assert raised.value.problem.startswith(
        "the process `no-such-owner --port` cannot be started: No such file or directory: 'no-such-owner'"
    )
