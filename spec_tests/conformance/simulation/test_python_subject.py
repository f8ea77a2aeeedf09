"""Any owner in Python is explored, interrupted and power-cut by the same commands; the example shows how."""

from __future__ import annotations

import pytest

from conformance.simulation import example_owner
from conformance.simulation.__main__ import main
from conformance.simulation.python_subject import PythonClients, split

EXAMPLE = "python:conformance.simulation.example_owner:"


@pytest.mark.parametrize(
    ("command", "scope", "bad", "requirement"),
    [
        ("explore", "two-writers", "UnlockedOwner", "CM-COMMIT-08"),
        ("power", "commit", "UnsyncedOwner", "PROFILE-OUTCOME-01"),
        ("crash", "commit", "UnlockedOwner", "PROFILE-OUTCOME-02"),
    ],
)
def test_the_example_is_clean_and_a_planted_bug_is_found(
    command: str, scope: str, bad: str, requirement: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, EXAMPLE + "ExampleOwner", scope]) == 0
    assert main([command, EXAMPLE + bad, scope]) == 1
    assert requirement in capsys.readouterr().out


def test_scopes_that_need_what_a_subject_lacks_are_left_out() -> None:
    host, rest = split([EXAMPLE + "ExampleOwner", "two-writers"], PythonClients)
    assert rest == ["two-writers"]
    assert host is not None
    assert host.identity.name == "example"
    assert not hasattr(example_owner.ExampleOwner, "hand_back")


def test_a_subject_that_is_not_there_is_a_wrong_call(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", "python:nothing"]) == 2
    assert "python:MODULE:CLASS" in capsys.readouterr().err
    assert main(["power", "python:no_such_module_at_all:Owner"]) == 2
