"""Delta Kernel, for Java and in Rust, as a subject: what it violates on a slice of the quick profile is what is known,
and a bug that was fixed is shown on the last version that has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from conformance.adapters.engines.delta_kernel import DeltaKernel
from conformance.adapters.engines.delta_kernel_rs import DeltaKernelRs
from conformance.command.application import application

pytestmark = [pytest.mark.engines, pytest.mark.processes]

KNOWN: Final = {
    "delta-kernel": (("writing", "conflicts"), {"CONFLICT-RETRY-05", "FIELD-04"}),
    "delta-kernel-rs": (
        ("reading", "backfill-ordering", "limits"),
        {"FIELD-05", "LOG-08", "LOG-21", "LOG-26", "LOG-38", "FIELD-03"},
    ),
}
"""By engine: families of checks, and the requirements that it violates there, or advice that it does not follow."""


def cases_of(subject: str, report: Path, *options: str) -> list[dict[str, Any]]:
    """The cases of a run. Skips the test where the engine or this version of it is missing."""
    engine = DeltaKernelRs if "delta-kernel-rs" in subject else DeltaKernel
    if problem := engine.missing(subject.partition("@")[2] or None):
        pytest.skip(problem)
    CliRunner().invoke(application, ["run", subject, "-n", "1", "--report", str(report), *options])
    cases: list[dict[str, Any]] = json.loads((report / "result.json").read_text())["cases"]
    return cases


@pytest.mark.parametrize("engine", KNOWN)
def test_what_delta_kernel_violates_is_known(engine: str, tmp_path: Path) -> None:
    families, known = KNOWN[engine]
    options = [word for family in families for word in ("--family", family)]
    cases = cases_of(f"engine:{engine}", tmp_path, *options)
    violated = {name for case in cases for each in case.get("violations", ()) for name in each["requirements"]}
    assert violated == known
    assert sum(case["verdict"] == "passed" for case in cases) > len(cases) // 3


@pytest.mark.parametrize(("version", "verdict"), [("4.3.1", "failed"), ("4.4.0", "passed")])
def test_an_unpublished_winner_fails_only_the_older_kernel(version: str, verdict: str, tmp_path: Path) -> None:
    """delta-io/delta#7402: the writer looks for the winner in the log folder alone."""
    (case,) = cases_of(f"engine:delta-kernel@{version}", tmp_path, "--check", "*a-conflict-without-details-is-enough*")
    assert case["verdict"] == verdict
