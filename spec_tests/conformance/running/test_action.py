"""The action for GitHub: its steps are run as GitHub's runner runs them, on good, bad and broken subjects."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from conformance.action.annotations import LIMIT, annotations
from conformance.running import verdicts
from spec_tests.conformance.running.cases import ONE

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "conformance" / "action"
ACTION = yaml.safe_load((FOLDER / "action.yml").read_text("utf-8"))
WORKFLOWS = [*FOLDER.glob("[!a]*.yml"), ROOT / ".github" / "workflows" / "ci.yml"]
WRONG = "python:spec_tests.conformance.running.subjects:Wrong"


def run(step: str, folder: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run a step of the action in that folder, with the defaults of the other inputs."""
    values = {f"inputs.{name}": field.get("default", "") for name, field in ACTION["inputs"].items()}
    values |= {f"inputs.{name}": value for name, value in inputs.items()} | {"github.action_path": str(FOLDER)}
    (chosen,) = (each for each in ACTION["runs"]["steps"] if each["name"] == step)
    given = {name: re.sub(r"\$\{\{ (.+?) \}\}", lambda m: values[m[1]], text) for name, text in chosen["env"].items()}
    files = {"GITHUB_OUTPUT": str(folder / "output"), "GITHUB_STEP_SUMMARY": str(folder / "summary")}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RUNNER_TEMP": str(folder), **files, **given}
    script = folder / "step.sh"
    script.write_text(chosen["run"], "utf-8")
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder in which the first step is done: the kit is that of this environment."""
    (tmp_path / "conformance").mkdir()
    (tmp_path / "conformance" / "bin").symlink_to(Path(sys.executable).parent)
    return tmp_path


def check(installed: Path, subject: str, **inputs: str) -> tuple[subprocess.CompletedProcess[str], dict[str, str]]:
    options = f"--check {ONE.name} -n 1\n--timeout 7s\n--seed 7\n"  # on several lines
    done = run("Check the subject", installed, subject=subject, options=options, **inputs)
    return done, dict(line.split("=", 1) for line in (installed / "output").read_text("utf-8").splitlines())


def test_a_good_owner_gets_a_summary_and_a_badge(installed: Path) -> None:
    done, output = check(installed, "model")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "::" not in done.stdout
    assert output == {"report": "conformance-report", "badge": "conformance-report/badge.json", "exit-code": "0"}
    assert json.loads((installed / output["badge"]).read_text("utf-8"))["color"] == "brightgreen"
    assert (installed / "summary").read_text("utf-8").startswith("# ✅")
    assert json.loads((installed / "conformance-report" / "result.json").read_text("utf-8"))["seed"] == 7


def test_a_bad_owner_is_annotated(installed: Path) -> None:
    done, output = check(installed, WRONG, report="report of $(date)", known=str(FOLDER / "known-failures.toml"))
    assert (done.returncode, output["exit-code"]) == (1, "1"), done.stderr
    (annotation,) = re.findall("^::.*", done.stdout, re.MULTILINE)
    assert annotation.startswith(
        f"::error title=conformance::concurrent-writers/{ONE.name}: PROFILE-CORE-05, MC-API-03: "
    )
    assert annotation.endswith(" (and in 4 more cases)")
    assert json.loads((installed / output["badge"]).read_text("utf-8"))["color"] == "red"
    assert "PROFILE-CORE-05" in (installed / "summary").read_text("utf-8")


@pytest.mark.longer
def test_a_broken_adapter_and_an_invalid_option_have_no_report(installed: Path) -> None:
    broken, output = check(installed, "stdio:true")
    assert (broken.returncode, output) == (2, {"exit-code": "2"})
    assert "::error title=conformance::the adapter of 'stdio:true' is broken" in broken.stdout
    unusable, output = check(installed, "model", profile="huge")
    assert (unusable.returncode, output) == (2, {"exit-code": "2"})
    assert "::error title=conformance::there is no report" in unusable.stdout


def test_a_missing_kit_and_an_old_python_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run("Install the kit", tmp_path, kit="no/such.whl")
    assert (done.returncode, "no kit at 'no/such.whl'" in done.stdout) == (2, True)
    old = tmp_path / "bin" / "python3"
    old.parent.mkdir()
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.1\n', "utf-8")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{old.parent}{os.pathsep}{os.environ['PATH']}")
    done = run("Install the kit", tmp_path)
    assert (done.returncode, "python3 is Python 3.9.1; expected" in done.stdout) == (2, True)


@pytest.mark.longer
def test_the_kit_is_installed_from_the_repository(tmp_path: Path) -> None:
    """With its dependencies, from the package index."""
    done = run("Install the kit", tmp_path, subject="model")
    assert done.returncode == 0, done.stderr
    assert subprocess.run([tmp_path / "conformance/bin/delta-commit-conformance", "--version"]).returncode == 0


def test_many_checks_are_annotated_within_the_limit() -> None:
    cases = "".join(
        f'<testcase name="family/check-{number}[x]"><error message="100% &#10;gone"/></testcase>'
        for number in range(12)
    )
    lines = list(annotations(ElementTree.fromstring(f"<testsuites>{cases}</testsuites>")))
    assert lines[0] == "::warning title=conformance::family/check-0: 100%25 %0Agone"
    assert (len(lines), lines[-1]) == (LIMIT, "::warning title=conformance::3 more checks; the report has all")


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_a_workflow_gives_the_action_its_inputs(file: Path) -> None:
    jobs = yaml.safe_load(file.read_text("utf-8"))["jobs"].values()
    used = [s["with"] for job in jobs for s in job["steps"] if "conformance/action" in s.get("uses", "")]
    assert used
    for inputs in used:
        assert {"subject"} <= set(inputs) <= set(ACTION["inputs"])


def test_the_example_list_of_known_failures_and_its_entry_are_valid(tmp_path: Path) -> None:
    example, file = FOLDER / "known-failures.toml", tmp_path / "known.toml"
    assert verdicts.read(example) == ()
    text = example.read_text("utf-8")
    file.write_text(text[text.index("# [[") :].replace("# ", ""), "utf-8")
    (entry,) = verdicts.read(file)
    assert entry.requirement == "CM-PUBLISH-06"
