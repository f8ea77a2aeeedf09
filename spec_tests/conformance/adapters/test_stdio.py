"""Subjects behind standard input and output: one process or many, crashes, restarts, and subjects that misbehave."""

import copy
import re
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from conformance.adapters.stdio import StdioSubject
from conformance.interface import messages as m
from conformance.interface.subject import GONE, AdapterError

pytestmark = pytest.mark.processes

SCRIPT = Path(__file__).with_name("misbehaving.py")
LONG = 120.0
"""Seconds: longer than any of these tests takes, however busy the machine is."""
SHORT = 0.01
"""Seconds: the timeout of subjects that hang, once they are started. No test needs anything to happen in this time."""


def command(thing: str = "") -> list[str]:
    return [sys.executable, "-S", str(SCRIPT), thing]


def pids(directory: Path) -> list[int]:
    """The ids of the subject's processes that still run. A killed process may need a moment to end."""
    running = []
    for path in directory.glob("pid-*"):
        try:
            process = psutil.Process(int(path.name.removeprefix("pid-")))
            if process.status() != psutil.STATUS_ZOMBIE:
                running.append(process)
        except psutil.NoSuchProcess:
            continue
    return [process.pid for process in running]


def none_left(directory: Path) -> bool:
    """Wait until all processes have ended; return whether they did."""
    return not psutil.wait_procs([psutil.Process(pid) for pid in pids(directory)], timeout=LONG)[1] or not pids(
        directory
    )


def impatient(thing: str, directory: Path) -> StdioSubject:
    subject = StdioSubject(command(thing), timeout=LONG, directory=directory)
    subject._timeout = SHORT
    return subject


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[StdioSubject]:
    with StdioSubject(command(), timeout=LONG, directory=tmp_path) as opened:
        yield opened


def client_seen_by(subject: StdioSubject, client: str) -> str:
    """The id of the process that answers the client."""
    answer = subject.ask(client, m.MaintenancePolicy(table="t"))
    assert isinstance(answer, m.Unsupported)
    return answer.reason


def test_a_subject_answers_hello_and_requests(subject: StdioSubject) -> None:
    assert subject.identity.name == "misbehaving"
    assert subject.ask("writer", m.GetCommits(table="t")) == m.NotFound()
    assert subject.ask("writer", m.DropTable(table="t")) == m.Rejected(reason="writer")


def test_with_shared_state_each_client_has_its_own_process(tmp_path: Path) -> None:
    with StdioSubject(command("shared"), timeout=LONG, directory=tmp_path) as subject:
        first, second = client_seen_by(subject, "a"), client_seen_by(subject, "b")
        assert first != second
        assert client_seen_by(subject, "a") == first
        assert len(pids(tmp_path)) == 3  # and the process that answered `hello`
    assert pids(tmp_path) == []


def test_concurrent_requests_get_their_own_answers(subject: StdioSubject) -> None:
    def ask(number: int) -> bool:
        client = f"client {number}"
        return subject.ask(client, m.DropTable(table="t")) == m.Rejected(reason=client)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(400)))


@pytest.mark.parametrize(
    "client", ["c" * 3_000_000, "half a character: \udce2"], ids=["longer than a pipe holds", "unpaired surrogate"]
)
def test_text_is_sent_and_returned_unchanged(subject: StdioSubject, client: str) -> None:
    assert subject.ask(client, m.DropTable(table="t")) == m.Rejected(reason=client)


def test_a_crash_ends_the_process_and_a_restart_starts_it_again(subject: StdioSubject, tmp_path: Path) -> None:
    before = client_seen_by(subject, "a")
    assert subject.ask("kit", m.Crash()) == m.Done()
    assert pids(tmp_path) == []
    answer = subject.ask("a", m.GetCommits(table="t"))
    assert isinstance(answer, m.Unknown)
    assert answer.reason.startswith("not running: it was crashed, as asked")
    assert subject.ask("kit", m.Restart()) == m.Done()
    assert client_seen_by(subject, "a") != before
    assert (tmp_path / "starts").read_text() == "2"  # both processes use the same directory


def test_a_request_during_a_crash_has_an_unknown_outcome(tmp_path: Path) -> None:
    with StdioSubject(command("hang"), timeout=LONG, directory=tmp_path) as subject:
        answers: list[m.Answer] = []
        asking = threading.Thread(target=lambda: answers.append(subject.ask("a", m.GetCommits(table="t"))))
        asking.start()
        while asking.is_alive() and not any(process._waiting for process in subject._processes.values()):
            asking.join(0.01)
        subject.ask("kit", m.Crash())
        asking.join(LONG)
        assert isinstance(answers[0], m.Unknown)
        assert answers[0].reason == "not running: it was crashed, as asked"


def test_a_late_answer_is_dropped_and_the_next_answer_is_used(tmp_path: Path) -> None:
    with impatient("late", tmp_path) as subject:
        answer = subject.ask("a", m.GetCommits(table="t"))
        subject._timeout = LONG
        assert isinstance(answer, m.Unknown)
        assert answer.reason == "no answer within 0.01 s"
        assert isinstance(subject.ask("a", m.MaintenancePolicy(table="t")), m.Unsupported)


@pytest.mark.parametrize(
    "thing",
    [
        "", "offspring", "deaf to the end",
        pytest.param("daemon", marks=pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="no /proc")),
    ],
)  # fmt: skip
def test_closing_leaves_no_process(thing: str, tmp_path: Path) -> None:
    subject = StdioSubject(command(thing), timeout=LONG, directory=tmp_path)
    subject.ask("a", m.GetCommits(table="t"))
    assert pids(tmp_path)
    subject.close()
    subject.close()
    assert none_left(tmp_path)
    assert subject.ask("a", m.GetCommits(table="t")) == m.Unknown(reason="not running: it was closed")
    assert tmp_path.exists()  # a given directory is kept


def test_a_temporary_directory_is_removed() -> None:
    with StdioSubject(command(), timeout=LONG) as subject:
        answer = subject.ask("a", m.GetCommits(table="t"))
        directory = subject.directory
        assert answer == m.NotFound()
        assert (directory / "starts").exists()
    assert not directory.exists()


def test_a_missing_command_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AdapterError) as raised:
        StdioSubject(["no-such-owner", "--port"], directory=tmp_path)
    assert raised.value.problem.startswith(
        "the process `no-such-owner --port` cannot be started: No such file or directory: 'no-such-owner'"
    )


# Subjects that misbehave: the kit stops waiting, and reports what it received and what it expected


def problem(thing: str, directory: Path) -> str:
    """The error for a subject that answers `hello`, and then sends an invalid reply."""
    with StdioSubject(command(thing), timeout=LONG, directory=directory) as subject:
        with pytest.raises(AdapterError) as raised:
            for _ in range(2):
                subject.ask("a", m.GetCommits(table="orders"))
        with pytest.raises(AdapterError) as again:
            subject.ask("b", m.GetCommits(table="orders"))
        assert again.value.problem == raised.value.problem
        assert "Traceback" not in raised.value.problem
    assert pids(directory) == []
    return raised.value.problem


WRONG_ANSWERS = {
    "unknown outcome": ("Invalid value 'not-found'", "did you mean 'not_found'", "The outcomes are identity, table"),
    "missing field": (
        "Object missing required field `commits`",
        "Write it even if its value is 0, false or empty",
        "delta-commit-conformance schema interface",
    ),
    "misspelt field": (
        "unknown field `lastest`",
        "did you mean 'latest'",
        "The fields of `commits` are commits, latest",
    ),
}


@pytest.mark.parametrize(("thing", "words"), WRONG_ANSWERS.items(), ids=WRONG_ANSWERS)
def test_an_invalid_answer_is_reported_and_later_answers_are_judged(
    thing: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    with StdioSubject(command(thing), timeout=LONG, directory=tmp_path) as subject:
        with pytest.raises(AdapterError) as raised:
            subject.ask("a", m.GetCommits(table="orders"))
        assert subject.ask("a", m.DropTable(table="orders")) == m.Rejected(reason="a")
    error = raised.value
    for word in words:
        assert word in error.expected
        assert word in error.problem
    assert '"op":"get_commits"' in error.problem
    assert error.received.startswith('`{"id": 2, "answer": {"outcome":')
    assert "standard error" not in error.problem
    copied = copy.copy(error)  # as an error is copied from process to process
    assert (copied.problem, copied.received, copied.expected) == (error.problem, error.received, error.expected)


NO_REPLIES = {
    "no JSON": ("`version 1 is ratified`, which is not JSON; a reply", "write everything else to stderr"),
    "a list": ("`[]`, which is not a valid reply", 'such as {"id": 7, "answer": {"outcome": "done"}}'),
    "no envelope": ('The outcome belongs in the field "answer"',),
    "a line of a log": ("which is not a valid reply", "write everything else to stderr"),
    "nested too deeply": ("which is no",),
    "no UTF-8": ("which is not JSON",),
    "Latin-1": ("which is not JSON (invalid UTF-8 in `b'caf\\xe9'`)",),
    "byte order mark": ("which is not JSON (it begins with a byte order mark)",),
    "wrong id": ("a reply to call 1002, which is unknown or already answered", "open calls: 2"),
    "twice": ("a reply to call 2, which is unknown or already answered",),
    "endless line": ("a line of more than 67,108,864 bytes", "which begins `xxx"),
}


@pytest.mark.parametrize(("thing", "words"), NO_REPLIES.items(), ids=NO_REPLIES)
def test_an_invalid_reply_is_shown_with_what_was_expected(thing: str, words: tuple[str, ...], tmp_path: Path) -> None:
    said = problem(thing, tmp_path)
    for word in words:
        assert word in said
    assert len(said) < 2000


def test_an_answer_of_another_operation_ends_the_test(tmp_path: Path) -> None:
    with StdioSubject(command("other outcome"), timeout=LONG, directory=tmp_path) as subject:
        with pytest.raises(AdapterError) as raised:
            subject.ask("a", m.GetCommits(table="orders"))
        said = raised.value.problem
        assert '"op":"get_commits"' in said
        assert 'was answered by `{"outcome":"done"}`' in said
        assert "The answers to `get_commits` are `commits`, `rejected`, `not_found`" in said


@pytest.mark.parametrize("thing", ["hang", "no line feed", "deaf after hello"])
def test_a_missing_answer_is_an_unknown_outcome_after_the_timeout(thing: str, tmp_path: Path) -> None:
    with impatient(thing, tmp_path) as subject:
        answer = subject.ask("c" * 1_000_000, m.GetCommits(table="orders"))
        assert isinstance(answer, m.Unknown)
        assert answer.reason.startswith("no answer within 0.01 s")
        assert ("without a line feed" in answer.reason) == (thing == "no line feed")
    assert pids(tmp_path) == []


DEATHS = {
    "death": "it ended with exit code 7; the end of its standard error: Traceback (most recent call last): | KeyError",
    "node": "it ended with exit code 1; the end of its standard error: file:///owner/owner.mjs:39 | const x = ; | "
    "SyntaxError: Unexpected token ';' | at step0 | at step1 | ... | at step3 | at step4 | Node.js v20",
    "panic": "it ended with exit code 2; the end of its standard error: panic: no such folder | goroutine 1 [running]: "
    "| main.step0(...) | ... | main.step39(...) | /owner/main.go:39 | exit status 2",
    "crash": "it was ended by SIGKILL; its standard error is empty",
    "half a line": "it ended with exit code 0; 10 bytes came without a line feed",
    "closed output": "it closed its standard output, and still runs",
}


@pytest.mark.parametrize(("thing", "how"), DEATHS.items(), ids=DEATHS)
def test_the_death_of_the_process_is_an_unknown_outcome_with_the_reason(thing: str, how: str, tmp_path: Path) -> None:
    with StdioSubject(command(thing), timeout=LONG, directory=tmp_path) as subject:
        for _ in range(2):
            answer = subject.ask("a", m.GetCommits(table="orders"))
            assert isinstance(answer, m.Unknown)
            assert answer.reason.startswith(f"{GONE}: {how}")
        assert pids(tmp_path) == []
        assert subject.ask("kit", m.Restart()) == m.Done()
        assert subject.ask("a", m.DropTable(table="orders")) == m.Rejected(reason="a")


NO_HELLO = {
    "death at the start": "does not answer `hello`: not running: it ended with exit code 3; the end of its standard "
    "error: no configuration",
    "deaf and mute": "does not answer `hello`: no answer within 0.01 s; its standard error is empty",
    "a greeting": "wrote to its standard output `Listening for calls`, which is not JSON",
    "a reply before any call": "a reply to call 99, which is unknown",
}


@pytest.mark.parametrize(("thing", "words"), NO_HELLO.items(), ids=NO_HELLO)
def test_a_subject_that_does_not_answer_hello_is_an_error(thing: str, words: str, tmp_path: Path) -> None:
    timeout = SHORT if thing == "deaf and mute" else LONG
    with pytest.raises(AdapterError, match=re.escape(words)):
        StdioSubject(command(thing), timeout=timeout, directory=tmp_path)
    assert pids(tmp_path) == []


def test_a_changed_identity_after_a_restart_is_an_error(tmp_path: Path) -> None:
    with StdioSubject(command("other after a restart"), timeout=LONG, directory=tmp_path) as subject:
        with pytest.raises(AdapterError) as raised:
            subject.ask("kit", m.Restart())
        assert "changed between calls" in raised.value.problem
        assert "profiles was `('core', 'version-0-by-owner', 'staged')` and is `('core',)`" in raised.value.problem
    assert pids(tmp_path) == []
