"""Delta Spark as a client of the kit's owner, through a catalog and through a coordinator: known deviations are shown
by their checks; its other reads and writes are right."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import pytest

from conformance.adapters.engines.delta_spark import DeltaSpark
from spec_tests.engines.prerequisites import needed_jars

pytestmark = pytest.mark.engines

KNOWN: Final = {
    "delta-spark": {
        "a-commit-missing-from-the-listing-fails-the-read": "CM-READ-05",
        "the-catalogs-latest-version-limits-the-snapshot": "CM-READ-04",
        "a-client-backfills-a-full-backlog": "CONFLICT-RETRY-06",
        "a-writer-that-never-wins-gives-up": "CONFLICT-RETRY-06",
        "a-server-error-is-an-unknown-outcome": "PROFILE-UNKNOWN-01",
        "a-checkpoint-of-the-clients-choice-is-published": "CM-POLICY-01",
    },
    "delta-spark-coordinated": {
        "a-hand-back-is-one-commit": "MC-RELEASE-01",
        "a-writer-that-never-wins-gives-up": "CONFLICT-RETRY-06",
    },
}
"""By engine and check, a requirement that Delta 4.4.0 violates, or advice that it does not follow."""
RIGHT: Final = {
    "delta-spark": (
        "a-backfill-after-each-answer", "the-requested-version-is-read", "a-client-retries-a-lost-request",
    ),
    "delta-spark-coordinated": (
        "a-backfill-after-each-answer", "a-reader-asks-the-owner-for-every-snapshot", "every-retry-is-a-new-attempt",
        "a-checkpoint-of-the-clients-choice-is-published", "a-writer-follows-two-ownership-changes",
    ),
}  # fmt: skip
PASSED: Final = [(engine, check) for engine, checks in RIGHT.items() for check in checks]
DEVIATING: Final = [(engine, *known) for engine, checks in KNOWN.items() for known in checks.items()]


@pytest.fixture(scope="module")
def cases_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """The cases of an engine's checks, by check: one run for all its tests, because starting Spark takes longer than
    any of them."""
    needed_jars()
    if problem := DeltaSpark.missing(None):
        pytest.skip(problem)

    @cache
    def run(engine: str) -> dict[str, Any]:
        report = tmp_path_factory.mktemp("run") / "report"
        command = [sys.executable, "-m", "conformance", "run", f"engine:{engine}", "--strict", "--budget", "900s"]
        chosen = [argument for check in (*KNOWN[engine], *RIGHT[engine]) for argument in ("--check", check)]
        arguments = [*command, "-n", "1", *chosen, "--report", str(report)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        assert done.returncode == 1, done.stderr
        return {case["check"]: case for case in json.loads((report / "result.json").read_text())["cases"]}

    return run


@pytest.mark.parametrize(("engine", "check", "requirement"), DEVIATING)
def test_a_known_deviation_is_shown_by_its_check(
    cases_of: Callable[[str], dict[str, Any]], engine: str, check: str, requirement: str
) -> None:
    violated = {name for each in cases_of(engine)[check]["violations"] for name in each["requirements"]}
    assert requirement in violated


@pytest.mark.parametrize(("engine", "check"), PASSED)
def test_what_delta_spark_does_right_passes(cases_of: Callable[[str], dict[str, Any]], engine: str, check: str) -> None:
    assert cases_of(engine)[check]["verdict"] == "passed"


def test_an_unknown_version_is_rejected_with_those_that_fit() -> None:
    assert DeltaSpark.missing("4.3.0") == "unknown version '4.3.0'; expected 4.4.0, which PySpark 4.2 runs"
