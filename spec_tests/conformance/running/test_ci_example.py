"""The example for an implementer's CI: its commands are run as they stand, with an owner of the kit in its place."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from conformance import reports
from conformance.running import known_failures
from spec_tests.conformance.running.cases import ONE

ROOT = Path(__file__).parents[3]
SCRIPT = Path(sys.executable).with_name("delta-commit-conformance")
EXAMPLE = ROOT / "conformance" / "ci_example"


def scripts(workflow: str) -> dict[str, str]:
    """By the name of the step."""
    text = (EXAMPLE / workflow).read_text("utf-8")
    steps = re.findall(r"- name: (.+)\n(?: +if: .+\n)? +run: (\|\n((?: {10}.*\n)+)|.+)", text)
    return {name: textwrap.dedent(block) if block else line for name, line, block in steps}


@pytest.mark.processes
@pytest.mark.parametrize(
    ("workflow", "subject", "check", "code"),
    [
        ("conformance.yml", f"stdio:{SCRIPT} serve model", ONE.name, 0),
        ("conformance.yml", "python:spec_tests.conformance.running.subjects:Wrong", ONE.name, 1),
        ("engine.yml", "model-client", "the-requested-version-is-read", 0),
    ],
)
def test_the_workflow_does_what_it_says(workflow: str, subject: str, check: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "known-failures.toml").write_bytes((EXAMPLE / "known-failures.toml").read_bytes())
    environment = {
        **os.environ,
        "PATH": f"{SCRIPT.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "SUBJECT": subject,
        "KNOWN": "known-failures.toml",
        "PROFILE": "quick",
        "SEED": "0",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "step-summary.md"),
    }
    steps = scripts(workflow)
    test = next(text for name, text in steps.items() if name.endswith("conformant?"))
    smoke = [(text, (0,)) for name, text in steps.items() if name == "Is the adapter in order?" and code == 0]
    smaller = test.rstrip() + f" --check {check} -n 1"
    for each, expected in (*smoke, (smaller, (code,)), (steps["Say so on the page of the job"], (0,))):
        done = subprocess.run(["bash", "-e", "-c", each], cwd=tmp_path, capture_output=True, text=True, env=environment)
        assert done.returncode in expected, f"{each}\n{done.stdout}\n{done.stderr}"
    assert (tmp_path / "step-summary.md").read_text("utf-8").startswith("# ")
    assert reports.from_json((tmp_path / "report" / "result.json").read_bytes()).exit_code == code


def test_the_steps_are_all_there_is_to_do() -> None:
    last = "Say so on the page of the job"
    assert list(scripts("conformance.yml")) == [
        "Install the kit", "Is the adapter in order?", "Is the owner conformant?", last,
    ]  # fmt: skip
    assert list(scripts("engine.yml")) == ["Install the kit", "Fetch the engine", "Is the engine conformant?", last]
    assert "delta-commit-owner[conformance]" in scripts("conformance.yml")["Install the kit"]


def test_the_list_of_known_failures_is_one_and_its_example_would_be() -> None:
    text = (EXAMPLE / "known-failures.toml").read_text("utf-8")
    assert known_failures.read(EXAMPLE / "known-failures.toml") == ()
    assert "[[known-failure]]" in text


def test_the_example_in_the_list_of_known_failures_is_valid(tmp_path: Path) -> None:
    text = (EXAMPLE / "known-failures.toml").read_text("utf-8")
    file = tmp_path / "known.toml"
    file.write_text(text[text.index("# [[") :].replace("# ", ""), "utf-8")
    (entry,) = known_failures.read(file)
    assert entry.requirement == "CM-PUBLISH-06"
