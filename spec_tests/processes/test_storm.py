"""A slice of the rounds that `python -m spec_tests.processes.storm` runs by the thousand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.processes
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_processes_lose_nothing(tmp_path: Path, seed: int) -> None:
    """Every acknowledged commit is there once, every other is resolved, the published prefix is equal byte by byte."""
    ran = subprocess.run(
        [
            sys.executable,
            *("-m", "spec_tests.processes.storm"),
            *("--rounds", "20", "--seed", str(seed), "--directory", str(tmp_path / "w"), "--json"),
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
    assert summary["shot"] + sum(summary["deaths_by_effect"].values()) > 5
