"""Whatever a subject does, the kit gets on in time, and says what it did and what the interface asks for."""

from __future__ import annotations

import copy
import time
from pathlib import Path

import pytest

from conformance.adapters.stdio import StdioSubject
from conformance.interface import messages as m
from conformance.interface.subject import GONE, AdapterError
from spec_tests.conformance.adapters.test_stdio import LONG, command, pids

pytestmark = pytest.mark.processes

SHORT = 1.5
"""Seconds that the hanging ones are given."""


def problem(thing: str, directory: Path) -> str:
    """Of a subject that answers `hello`, and then what cannot be a reply."""
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
def test_an_invalid_answer_is_reported_and_others_are_judged(
    thing: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    with StdioSubject(command(thing), timeout=LONG, directory=tmp_path) as subject:
        with pytest.raises(AdapterError) as raised:
            subject.ask("a", m.GetCommits(table="orders"))
        assert subject.ask("a", m.DropTable(table="orders")) == m.Rejected(reason="a")
    error = raised.value
    for each in words:
        assert each in error.says
        assert each in error.problem
    assert '"op":"get_commits"' in error.problem
    assert error.came.startswith('`{"id": 2, "answer": {"outcome":')
    assert "standard error" not in error.problem
    copied = copy.copy(error)  # as it goes from process to process
    assert (copied.problem, copied.came, copied.says) == (error.problem, error.came, error.says)


NO_REPLIES = {
    "no JSON": ("`version 1 is ratified`, which is not JSON; a reply", "write everything else to stderr"),
    "a list": ("`[]`, which is not a valid reply", 'such as {"id": 7, "answer": {"outcome": "done"}}'),
    "no envelope": ('The outcome belongs into the field "answer"',),
    "a line of a log": ("which is not a valid reply", "write everything else to stderr"),
    "nested too deeply": ("which is no",),
    "no UTF-8": ("which is not JSON",),
    "wrong id": ("a reply to call 1002, which is unknown or already answered", "open calls: 2"),
    "twice": ("a reply to call 2, which is unknown or already answered",),
    "endless line": ("a line of more than 67,108,864 bytes", "which begins `xxx"),
}


@pytest.mark.parametrize(("thing", "words"), NO_REPLIES.items(), ids=NO_REPLIES)
def test_what_is_no_reply_ends_the_test_with_the_text_and_what_is_expected(
    thing: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    said = problem(thing, tmp_path)
    for each in words:
        assert each in said
    assert len(said) < 2000


def test_an_answer_to_something_else_ends_the_test(tmp_path: Path) -> None:
    with StdioSubject(command("other outcome"), timeout=LONG, directory=tmp_path) as subject:
        with pytest.raises(AdapterError) as raised:
            subject.ask("a", m.GetCommits(table="orders"))
        said = raised.value.problem
        assert '"op":"get_commits"' in said
        assert 'was answered by `{"outcome":"done"}`' in said
        assert "The answers to `get_commits` are `commits`, `rejected`, `not_found`" in said


@pytest.mark.parametrize("thing", ["hang", "no line feed", "deaf after hello"])
def test_no_answer_in_time_is_unknown(thing: str, tmp_path: Path) -> None:
    with StdioSubject(command(thing), timeout=SHORT, directory=tmp_path) as subject:
        began = time.monotonic()
        answer = subject.ask("c" * 1_000_000, m.GetCommits(table="orders"))
        assert time.monotonic() - began < SHORT + 5
        assert isinstance(answer, m.Unknown)
        assert answer.reason.startswith("no answer within 1.5 s")
        assert ("without a line feed" in answer.reason) == (thing == "no line feed")
    assert pids(tmp_path) == []


DEATHS = {
    "death": "it ended with exit code 7; the end of its standard error: Traceback (most recent call last): | KeyError",
    "panic": "it ended with exit code 2; the end of its standard error: panic: no such folder | goroutine 1 [running]: "
    "| main.step0(...) | ... | main.step39(...) | /owner/main.go:39 | exit status 2",
    "crash": "it was ended by SIGKILL; its standard error is empty",
    "closed output": "it closed its standard output, and went on",
}


@pytest.mark.parametrize(("thing", "how"), DEATHS.items(), ids=DEATHS)
def test_the_death_of_the_process_is_unknown_and_says_how(thing: str, how: str, tmp_path: Path) -> None:
    with StdioSubject(command(thing), timeout=LONG, directory=tmp_path) as subject:
        for _ in range(2):
            answer = subject.ask("a", m.GetCommits(table="orders"))
            assert isinstance(answer, m.Unknown)
            assert answer.reason.startswith(f"{GONE}: {how}")
        assert pids(tmp_path) == []
        assert subject.ask("kit", m.Restart()) == m.Done()
        assert subject.ask("a", m.DropTable(table="orders")) == m.Rejected(reason="a")


NO_HELLO = {
    "death at the start": "does not answer `hello`: gone: it ended with exit code 3; the end of its standard error: no "
    "configuration",
    "deaf and mute": "does not answer `hello`: no answer within 1.5 s; its standard error is empty",
    "a greeting": "wrote to its standard output `Listening for calls`, which is not JSON",
    "a reply before any call": "a reply to call 99, which is unknown",
}


@pytest.mark.parametrize(("thing", "words"), NO_HELLO.items(), ids=NO_HELLO)
def test_a_subject_that_cannot_be_greeted_is_not_tested(thing: str, words: str, tmp_path: Path) -> None:
    timeout = SHORT if thing == "deaf and mute" else LONG
    with pytest.raises(AdapterError) as raised:
        StdioSubject(command(thing), timeout=timeout, directory=tmp_path)
    assert words in raised.value.problem
    assert pids(tmp_path) == []


def test_a_subject_that_is_another_one_after_a_restart_is_not_believed(tmp_path: Path) -> None:
    with StdioSubject(command("other after a restart"), timeout=LONG, directory=tmp_path) as subject:
        with pytest.raises(AdapterError) as raised:
            subject.ask("kit", m.Restart())
        assert "changed between calls" in raised.value.problem
        assert "profiles was `('core', 'version-0-by-owner', 'staged')` and is `('core',)`" in raised.value.problem
    assert pids(tmp_path) == []


def test_a_subject_that_does_not_start_again_refuses_to(tmp_path: Path) -> None:
    """It may be the owner's own fault: that is for a check to say."""
    with StdioSubject(command("no second start"), timeout=LONG, directory=tmp_path) as subject:
        answer = subject.ask("kit", m.Restart())
        assert isinstance(answer, m.Rejected)
        assert "it ended with exit code 4; the end of its standard error: cannot read the state" in answer.reason
        assert isinstance(subject.ask("a", m.GetCommits(table="orders")), m.Unknown)
