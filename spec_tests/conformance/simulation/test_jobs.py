"""Several processes share the scopes, and print what one would."""

from __future__ import annotations

import json

import pytest

from conformance.simulation import jobs
from conformance.simulation.__main__ import main


def told(capsys: pytest.CaptureFixture[str], command: list[str]) -> object:
    assert main([*command, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_two_processes_print_what_one_prints(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["explore", "take-over[managed"]
    assert told(capsys, [*command, "--jobs", "2"]) == told(capsys, command)


def test_how_far_it_is_is_asked_for_only_when_it_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 1.0, jobs.TELLS_EVERY, jobs.TELLS_EVERY + 1])
    asked: list[str] = []

    def so_far() -> str:
        asked.append("3 cuts")
        return asked[-1]

    progress = jobs.Progress("commit", lambda: next(times))
    for _ in range(3):
        progress(so_far)
    assert capsys.readouterr().err == "commit: 3 cuts so far\n"
    assert len(asked) == 1
