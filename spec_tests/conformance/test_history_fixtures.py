"""`fixtures/histories`: what the script would write, and each with the verdict that its index tells."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conformance.checkers.check import check_file
from conformance.checkers.rules import Rule
from spec_tests.conformance import make_histories

CASES = list(make_histories.cases())
LONGEST = 18
"""Lines of a fixture: to be read at one look."""


def test_the_fixtures_are_what_the_script_writes() -> None:
    """Run `python -m spec_tests.conformance.make_histories` after a change."""
    assert make_histories.differences() == []


def test_the_index_lists_every_fixture_with_what_it_violates() -> None:
    index = json.loads((make_histories.FOLDER / make_histories.INDEX).read_text(encoding="utf-8"))
    files = {path.relative_to(make_histories.FOLDER).as_posix() for path in make_histories.FOLDER.rglob("*.jsonl")}
    assert {entry["file"] for entry in index} == files
    assert all(entry["about"] for entry in index)
    assert all(bool(entry["violates"]) == entry["file"].startswith("bad/") for entry in index)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.file)
def test_a_fixture_has_its_verdict_and_is_short(case: make_histories.Case) -> None:
    path: Path = make_histories.FOLDER / case.file
    verdict = check_file(path)
    assert {violation.rule for violation in verdict.violations} == set(case.rules)
    assert verdict.header.note == case.about
    assert len(path.read_bytes().splitlines()) <= LONGEST


def test_every_rule_has_a_fixture_that_violates_it_alone() -> None:
    alone = {case.rules[0] for case in CASES if len(case.rules) == 1}
    assert alone == set(Rule)
