"""The stored reports of implementations: valid, whole, reproducible, and in the table of their page."""

import json
import re
import shlex
from collections import Counter
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from conformance.command.application import application
from conformance.findings import stored
from conformance.interface.results import RequirementVerdict, RunResult
from conformance.reports.stored import from_json, run_command, schema

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "conformance" / "implementations"
PAGE = (FOLDER / "README.md").read_text("utf-8")
REPORTS = sorted(FOLDER.glob("*/result.json"))
COUNTED = (
    RequirementVerdict.HELD, RequirementVerdict.VIOLATED, RequirementVerdict.WARNED, RequirementVerdict.INCONCLUSIVE,
)  # fmt: skip


def row(folder: str, result: RunResult) -> str:
    """The row of the page, without its last column, the contact."""
    counts = Counter(entry.verdict for entry in result.requirements)
    verdicts = " | ".join(str(counts[verdict]) for verdict in COUNTED)
    named, version, date = result.subject.named, result.subject.version, result.environment.started[:10]
    return f"| [`{named}`]({folder}) | {version} | {date} | {verdicts} | `{run_command(result)}` | "


@pytest.mark.parametrize("file", REPORTS, ids=lambda file: file.parent.name)
def test_a_report_is_whole_and_in_the_table(file: Path) -> None:
    text = file.read_bytes()
    jsonschema.validate(json.loads(text), schema("result"))
    result = from_json(text)
    assert (result.complete, result.selection, result.known, result.exit_code in (0, 1)) == (True, "", (), True)
    assert re.search(re.escape(row(file.parent.name, result)) + r"\[[^]]+\]\(https://\S+\) \|\n", PAGE)

    explained = {
        name
        for entry in stored.findings()
        if entry.subject == result.subject.named
        for name in entry.about.requirements
    }
    assert {entry.requirement for entry in result.requirements if entry.verdict == "violated"} <= explained


def test_the_table_has_no_other_row() -> None:
    assert set(re.findall(r"^\| \[`[^`]+`\]\(([\w-]+)\)", PAGE, re.MULTILINE)) == {file.parent.name for file in REPORTS}


@pytest.mark.longer
def test_the_command_of_the_page_writes_one_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conformance").symlink_to(ROOT / "conformance")
    monkeypatch.chdir(tmp_path)
    (command,) = re.findall(r"`delta-commit-conformance (matrix [^`]*)`", PAGE)
    ran = CliRunner().invoke(application, shlex.split(command))
    assert ran.exit_code == 0, ran.output
    *lines, _ = ran.stdout.splitlines()
    assert [line.partition(": ")[0] for line in lines] == [file.parent.name for file in REPORTS]
    html = (tmp_path / "matrix" / "index.html").read_text("utf-8")
    assert html.count('<span class="name">') == len(REPORTS)
