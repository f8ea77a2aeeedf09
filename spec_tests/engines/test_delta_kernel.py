"""Delta Kernel for Java as a subject: what it violates on a slice of the quick profile is what is known, and a bug that
was fixed is shown on the last version that has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from conformance.adapters.engines.delta_kernel import DeltaKernel
from conformance.command.application import application

pytestmark = [pytest.mark.engines, pytest.mark.processes]

KNOWN: Final = {"CONFLICT-RETRY-05", "FIELD-04"}


def cases_of(subject: str, report: Path, *options: str) -> list[dict[str, Any]]:
    """The cases of a run. Skips the test where the engine or this version of it is missing."""
    if problem := DeltaKernel.missing(subject.partition("@")[2] or None):
        pytest.skip(problem)
    CliRunner().invoke(application, ["run", subject, "-n", "1", "--report", str(report), *options])
    cases: list[dict[str, Any]] = json.loads((report / "result.json").read_text())["cases"]
    return cases


def test_what_delta_kernel_violates_is_known(tmp_path: Path) -> None:
    cases = cases_of("engine:delta-kernel", tmp_path, "--family", "writing", "--family", "conflicts")
    violated = {name for case in cases for each in case.get("violations", ()) for name in each["requirements"]}
    assert violated == KNOWN
    assert sum(case["verdict"] == "passed" for case in cases) > len(cases) // 3


@pytest.mark.parametrize(("version", "verdict"), [("4.3.1", "failed"), ("4.4.0", "passed")])
def test_an_unpublished_winner_fails_only_the_older_kernel(version: str, verdict: str, tmp_path: Path) -> None:
    """delta-io/delta#7402: the writer looks for the winner in the log folder alone."""
    (case,) = cases_of(f"engine:delta-kernel@{version}", tmp_path, "--check", "*a-conflict-without-details-is-enough*")
    assert case["verdict"] == verdict
