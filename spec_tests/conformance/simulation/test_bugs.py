"""Bugs of the reference that the simulator found: without its fix each is there again, and with it nothing is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conformance.adapters.reference.simulated_teeth import hunted
from conformance.simulation import bugs
from conformance.simulation.__main__ import main
from conformance.simulation.teeth import Kill

FILES = sorted((Path(__file__).parents[3] / "fixtures" / "simulation").glob("*.json"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_without_the_fix_the_same_counterexample_is_found(file: Path) -> None:
    bug = bugs.from_json(file.read_bytes())
    kill: Kill = hunted(bug.subject, bug.family, bug.scope)
    assert (kill.found, kill.size) == (bug.requirement, bug.size)
    assert (kill.counterexample[0], kill.counterexample[-1]) == (bug.counterexample[0], bug.counterexample[-1])
    assert bugs.to_json(bug) == file.read_bytes()


@pytest.mark.parametrize(
    "file", [each for each in FILES if each.stem == "ledger-name-not-synced"], ids=lambda f: f.stem
)
def test_the_reference_passes_where_it_failed(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The others of these scopes are passed by tests of their own: `test_crash`, `test_power`."""
    assert main(["replay", str(file)]) == 1
    fixed = tmp_path / "fixed.json"
    fixed.write_text(json.dumps({**json.loads(file.read_text()), "subject": "reference"}))
    assert main(["replay", str(fixed)]) == 0
    assert "nothing is violated" in capsys.readouterr().out


def test_there_are_files() -> None:
    assert len(FILES) >= 3
