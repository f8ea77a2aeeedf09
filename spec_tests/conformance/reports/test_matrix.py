"""The page of several subjects: what its cells say, and where they lead."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from typer.testing import CliRunner

from conformance import reports
from conformance.command.application import application
from conformance.reports.matrix import Column, slug, to_matrix
from conformance.results import RequirementVerdict, RunResult
from spec_tests.conformance.reports import runs
from spec_tests.conformance.reports.test_page import HTML, of_class, parsed, text_of

pytestmark = pytest.mark.xdist_group("page")
GO, OTHER = "stdio:go-owner", "stdio:other <owner>"
UNKNOWN = "engine:delta-kernel"


@cache
def page() -> ElementTree.Element:
    columns = [
        Column(subject=GO, result=runs.everything()),
        Column(subject=OTHER, result=runs.conformant()),
        Column(subject=UNKNOWN, reason="no Java was found; install a JDK 17"),
    ]
    return parsed(to_matrix(columns, Path("matrix")))


def cells(column: int) -> dict[str, ElementTree.Element]:
    """By requirement."""
    return {
        text_of(next(of_class(row, "id"))): row.findall(f"{HTML}td")[column]
        for row in of_class(page(), "row")
        if row.tag == f"{HTML}tr"
    }


def verdicts(result: RunResult) -> dict[str, RequirementVerdict]:
    return {each.requirement: each.verdict for each in result.requirements}


@pytest.mark.parametrize(("column", "make"), [(0, runs.everything), (1, runs.conformant)])
def test_each_cell_is_the_verdict_of_its_run(column: int, make: object) -> None:
    found = verdicts(make())  # type: ignore[operator]
    assert cells(column)
    for requirement, cell in cells(column).items():
        assert cell.attrib["class"] == (f"is-{found[requirement]}" if requirement in found else "")


def test_a_requirement_that_some_run_judged_has_a_row() -> None:
    silent = (RequirementVerdict.NOT_APPLICABLE, RequirementVerdict.NOT_CHECKED)
    both = [*runs.everything().requirements, *runs.conformant().requirements]
    assert set(cells(0)) == {each.requirement for each in both if each.verdict not in silent}


def test_a_violated_cell_leads_to_the_drawing_of_a_case_that_violates_it() -> None:
    there = {each.attrib["id"]: each for each in page().iter() if "id" in each.attrib}
    violated = {name: cell for name, cell in cells(0).items() if cell.attrib["class"] == "is-violated"}
    assert violated
    drawn = 0
    for requirement, cell in violated.items():
        link = cell.find(f"{HTML}a")
        assert link is not None
        finding = there[link.attrib["href"].removeprefix("#")]
        text = text_of(finding)
        cases = [case for case in runs.everything().cases if case.case in text]
        assert any(requirement in violation.requirements for case in cases for violation in case.violations)
        drawn += any(each.tag.endswith("svg") for each in finding.iter())
    assert drawn


def test_the_page_has_no_two_equal_ids_and_no_link_to_nothing() -> None:
    ids = [each.attrib["id"] for each in page().iter() if "id" in each.attrib]
    assert len(ids) == len(set(ids))
    links = {each.attrib["href"] for each in page().iter(f"{HTML}a")}
    assert {link[1:] for link in links if link.startswith("#")} <= set(ids)


def test_a_subject_that_was_not_run_is_there_with_the_reason() -> None:
    (term,) = (each for each in page().iter(f"{HTML}div") if UNKNOWN in text_of(each))
    assert "no Java was found; install a JDK 17" in text_of(term)


def test_reports_are_put_together_without_a_new_run(tmp_path: Path) -> None:
    """Exit code 3 says that one subject is missing on the page."""
    for name, result in (("go", runs.everything()), ("other", runs.conformant())):
        reports.write(result, tmp_path / name)
    output = tmp_path / "matrix"
    words = [*(str(tmp_path / name) for name in ("go", "other")), "stdio:no-such-command", "-o", str(output)]
    ran = CliRunner().invoke(application, ["matrix", *words, "--json"])
    assert ran.exit_code == 3
    go, other, missing = json.loads(ran.stdout)
    assert go["requirements"] == verdicts(runs.everything())
    assert (go["exit_code"], other["exit_code"]) == (runs.everything().exit_code, 0)
    assert set(missing) == {"subject", "reason"}
    assert (output / "index.html").read_text("utf-8").startswith("<!DOCTYPE html>")
    again = reports.from_json((output / "go" / "result.json").read_bytes())
    assert msgspec.structs.replace(again, causes=()) == msgspec.structs.replace(runs.everything(), causes=())
    shutil.rmtree(tmp_path / "go")
    ran = CliRunner().invoke(application, ["matrix", str(output / "go"), "-o", str(tmp_path / "second")])
    assert (ran.exit_code, "page: " in ran.stdout) == (0, True)


def test_a_word_that_names_no_subject_is_an_error_before_the_first_run(tmp_path: Path) -> None:
    output = tmp_path / "matrix"
    ran = CliRunner().invoke(application, ["matrix", "reference", "referense", "-o", str(output)])
    assert (ran.exit_code, output.exists()) == (2, False)
    assert "unknown subject 'referense'" in ran.stderr
    ran = CliRunner().invoke(application, ["matrix", "model", "engine:duckbd", "-o", str(output)])
    assert (ran.exit_code, output.exists()) == (2, False)
    assert "unknown engine 'duckbd'" in ran.stderr


def test_each_subject_has_a_budget_of_its_own(tmp_path: Path) -> None:
    output = tmp_path / "matrix"
    ran = CliRunner().invoke(application, ["matrix", "model", "-o", str(output), "-n", "1", "--budget", "2s"])
    result = reports.from_json((output / "model" / "result.json").read_bytes())
    assert (result.complete, result.stopped) == (False, "the budget of 2 s expired"), ran.stderr


def test_two_subjects_with_one_folder_are_an_error(tmp_path: Path) -> None:
    ran = CliRunner().invoke(application, ["matrix", "good:a", "good:a.", "-o", str(tmp_path / "matrix")])
    assert ran.exit_code == 2
    assert slug("good:a") == slug("good:a.") == "good-a"
