"""What holds of every command: it is documented, with an example, and says no when it is called wrongly."""

from __future__ import annotations

import re

import pytest

from refimpl import __version__
from refimpl.cli.application import application
from refimpl.cli.output import ExitCode
from spec_tests.cli.conftest import CommandLine

KIT = {"play"}
"""Commands of the kit: they run in a process of their own, and have their tests in `spec_tests/conformance/play`."""
COMMANDS = sorted(
    {command.name or command.callback.__name__ for command in application.registered_commands if command.callback} - KIT
)
ISSUED = {
    *("demo", "init", "create", "ingest", "show", "log", "commits", "backfill", "checkpoint", "cleanup"),
    *("take-over", "hand-back", "drop", "verify", "repair", "backup", "explain", "resolve", "policy"),
    *("optimize", "vacuum", "serve"),
}
SERVES = {"serve"}
"""Runs until it is stopped: its first line is JSON in any case."""


def test_the_commands_are_these() -> None:
    assert set(COMMANDS) == ISSUED


@pytest.mark.parametrize("command", COMMANDS)
def test_help_says_what_it_does_and_shows_an_example(cli: CommandLine, command: str) -> None:
    answer = cli(command, "--help")
    assert answer.code == ExitCode.OK
    assert f"Usage: commit-owner {command}" in answer.out
    assert re.search(rf"Examples?:[\s\S]*commit-owner {command}", answer.out)
    assert ("--json" in answer.out) == (command not in SERVES)
    assert max(len(line) for line in answer.out.splitlines()) <= 80


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_option_is_a_usage_error_in_two_lines(cli: CommandLine, command: str) -> None:
    answer = cli(command, "--no-such-option")
    assert answer.code == ExitCode.USAGE
    assert answer.out == ""
    first, second = answer.err.splitlines()
    assert first.startswith("error: No such option: --no-such-option")
    assert second == f"see: commit-owner {command} --help"


def test_help_lists_every_command_and_every_exit_code(cli: CommandLine) -> None:
    answer = cli("--help")
    assert answer.code == ExitCode.OK
    for command in COMMANDS:
        assert re.search(rf"│ {command}\s", answer.out), command
    help_text = " ".join(answer.out.split())
    for code in ExitCode:
        assert re.search(rf"[:·] {code.value} ", help_text), code


def test_without_a_command_the_help_is_shown_and_the_call_was_wrong(cli: CommandLine) -> None:
    answer = cli()
    assert answer.code == ExitCode.USAGE
    assert "Usage: commit-owner" in answer.out


def test_a_mistyped_command_is_answered_with_the_right_one(cli: CommandLine) -> None:
    answer = cli("comits")
    assert answer.code == ExitCode.USAGE
    assert "Did you mean 'commits'" in answer.err


def test_the_version_is_the_packages(cli: CommandLine) -> None:
    answer = cli("--version")
    assert (answer.code, answer.out) == (ExitCode.OK, f"commit-owner {__version__}\n")
