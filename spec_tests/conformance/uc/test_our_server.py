"""Our own server under the kit, tested by its URL. The whole run is one command:
`delta-commit-conformance run 'uc:URL?catalog=unity&schema=default'`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import refimpl
from conformance.checks.registry import all_checks
from conformance.generated.running import run_case
from conformance.interface.subject import Subject
from conformance.results import Verdict
from conformance.scenario.check import Variant
from conformance.subjects.names import open_subject
from conformance.subjects.smoke import smoke
from spec_tests.engines.prerequisites import served

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("our-server")]

CHECKS = {check.name: check for check in all_checks()}
SLICE = (
    "an-immediate-replay-is-ratified",
    "a-replay-after-backfill-is-ratified",
    "a-duplicated-creation-after-the-drop-is-ignored",
    "a-staged-file-is-valid-for-one-version",
    "a-resolution-contains-protocol-and-metadata",
    "a-dropped-table-is-gone",
)
"""Where servers of the Delta API are known to go wrong, and where ours has rules of its own."""


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    directory: Path = tmp_path_factory.mktemp("warehouse")
    refimpl.open(directory, create=True).close()
    with served(directory) as url, open_subject(f"uc:{url}?catalog=unity&schema=default", timeout=60) as subject:
        yield subject


def test_the_first_questions_are_answered(subject: Subject) -> None:
    report = smoke(subject)
    assert report.ok, str(report)


@pytest.mark.parametrize("check", SLICE)
def test_a_check_is_passed(subject: Subject, check: str) -> None:
    result = run_case(CHECKS[check], Variant(feature="catalogManaged", commit_mode="staged"), subject, salt="-1")
    assert result.verdict is Verdict.PASSED, result
