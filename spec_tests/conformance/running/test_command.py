"""The command: its output, its files, and its exit codes."""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
import yaml
from typer.testing import CliRunner

from conformance import reports
from conformance.action.annotations import LIMIT, annotations
from conformance.command.application import EXIT_CODES, application
from conformance.interface.results import ExitCode
from conformance.reports.folder import ReportFolder
from conformance.reports.page import slug
from conformance.running import verdicts
from spec_tests.conformance.running.cases import ONE, budget_ends_soon
from spec_tests.support.sampling import sampled

ROOT = Path(__file__).parents[3]
OURS = "python:spec_tests.conformance.running.subjects"
FULL = Path("/dev/full")
SMALL = ("--check", ONE.name, "-n", "1")
COMMANDS = tuple(command.name for command in application.registered_commands if command.name)


def command(*words: object) -> Any:
    return CliRunner().invoke(application, [*map(str, words)], prog_name="delta-commit-conformance")


def test_every_command_has_a_help_with_an_example() -> None:
    ran = command("--help")
    assert ran.exit_code == 0
    for name in COMMANDS:
        assert f" {name} " in ran.stdout
        helped = command(name, "--help")
        assert "<bool>" not in helped.stdout
        assert helped.exit_code == 0
        assert f"delta-commit-conformance {name}" in helped.stdout.partition("Examples")[2]
    assert "3 incomplete" in EXIT_CODES


def test_the_script_and_the_module_are_the_same_command() -> None:
    script = Path(sys.executable).with_name("delta-commit-conformance")
    for start in ([str(script)], [sys.executable, "-m", "conformance"]):
        ran = subprocess.run([*start, "--version"], capture_output=True, text=True, cwd=ROOT)
        assert ran.returncode == 0
        assert ran.stdout.startswith("delta-commit-conformance ")


# Invalid calls


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("run",), "SUBJECT is required"),
        (("smoke",), "stdio:COMMAND"),
        (("serve",), "python:MODULE:CLASS"),
        (("run", "modell"), "model"),
        (("run", "model", "--profile", "fast"), "quick, standard, thorough"),
        (("run", "model", "--profile", "programs:3"), "expected one of quick, standard, thorough\n"),
        (
            ("run", "model", "--programs", "3", "--profile", "quick"),
            "--programs and --profile exclude each other; pass one",
        ),
        (("run", "model", "--programs", "0"), "invalid number of programs 0"),
        (("run", "model", "--budget", "soon"), "--budget"),
        (("run", "model", "--timeout", "0s"), "--timeout"),
        (("run", "model", "-n", "0"), "--workers '0'"),
        (("run", "model", "--family", "backfil"), "backfill-ordering"),
        (("run", "model", "--check", "no-such-check"), "unknown check 'no-such-check'"),
        (("run", "model", "--requirement", "MC-0"), "delta-commit-conformance requirements)"),
        (("run", "model", "--known", "/no/such.toml"), "/no/such.toml"),
        (("run", "model", "--seed", "one"), "expected a valid integer, not 'one'"),
        (("run", "model", "--layer", "slow"), "expected one of example, model"),
        (("run", "model", "--no-such-option"), "--no-such-option"),
        (("run", "model-client", *SMALL), "nothing to run"),
        (("run", "python:no_such_module:Owner"), "no_such_module"),
        (("run", f"{OURS}:Unmakeable"), "no database"),
        (("run", "stdio:/no/such/command"), "/no/such/command"),
        (("run", "http://127.0.0.1:9/"), "127.0.0.1:9"),
        (("list", "everything"), "'checks', 'families'"),
        (("list", "families", "--requirement", "MC-COMMIT-02"), "--requirement works only with"),
        (("list", "mutants", "--requirement", "MC-0"), "unknown requirement"),
        (("requirements", "--side", "everybody"), "'owner'"),
        (("requirements", "--side", "maintenance", "--profile", "inline"), "no entry"),
        (("requirements", "MC-NOPE"), "unknown requirement 'MC-NOPE'"),
        (("simulate", "power", "--failing-syncs", "0"), "expected greater than or equal to 1, not '0'"),
        (("report", "/no/such.json"), "/no/such.json"),
        (("replay", "/no/such.json"), "/no/such.json"),
        (("check", "/no/such.jsonl"), "error: /no/such.jsonl"),
        (("runn",), "runn"),
    ],
)
def test_a_usage_error_names_the_problem_and_exits_with_2(words: tuple[str, ...], says: str) -> None:
    ran = command(*words)
    assert ran.exit_code == ExitCode.USAGE
    assert says in ran.stderr
    assert "Traceback" not in ran.stderr
    assert ran.stdout == ""


@pytest.mark.parametrize(
    ("words", "library", "extra"),
    [
        (("run", "http://127.0.0.1:1", "--report", "report"), "jinja2", "conformance"),
        (("smoke", "jvm:in-memory"), "py4j", "jvm"),
        (("run", "jvm:dynamodb"), "pyspark", "jvm"),
    ],
)
def test_the_error_for_a_missing_extra_names_it(
    words: tuple[str, ...], library: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error comes before a process is started."""
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == library else find_spec(name))
    ran = command(*words)
    assert ran.exit_code == ExitCode.USAGE
    assert ran.stderr == (
        f"error: the library {library} is missing; install it: pip install '.[{extra}]' in a checkout of this project, "
        f"or 'WHEEL[{extra}]' with the path of its wheel\n"
    )


# run


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The reports of a run with violations, and what the command did."""
    folder = tmp_path_factory.mktemp("wrong") / "report"
    return folder, command("run", f"{OURS}:Wrong", *SMALL, "--report", folder)


@pytest.fixture(scope="module")
def green() -> Any:
    return command("run", "model", *SMALL)


def test_a_run_prints_the_verdict_and_writes_the_reports(wrong: tuple[Path, Any]) -> None:
    folder, ran = wrong
    assert ran.exit_code == ExitCode.VIOLATION
    assert "PROFILE-CORE-05 (promised by every subject" in ran.stdout
    assert "Not conformant" in ran.stdout
    assert f"report: {folder / 'index.html'}" in ran.stdout
    assert "5 of 5 cases, 5 failed" in ran.stderr
    assert "the first failure" in ran.stderr
    assert ran.stderr.count("FAILED") == 1, "one line for each check"
    result = reports.from_json((folder / "result.json").read_bytes())
    assert result.exit_code == ran.exit_code
    findings = sorted(folder.glob("findings/*/finding.json"))
    assert len(findings) == 5
    assert all(str(finding) in ran.stdout or str(findings[0].parent.parent) in ran.stdout for finding in findings)
    for name in ("index.html", "junit.xml", "summary.md", "badge.json"):
        assert (folder / name).read_text("utf-8")


def test_a_run_of_programs_is_described_by_its_option(tmp_path: Path) -> None:
    chosen = ("--check", "any-sequence-of-replays[managedCommit/direct]", "-n", "1")
    ran = command("run", "mutant:replay-is-a-conflict", "--programs", "3", *chosen, "--report", tmp_path)
    assert "3 generated programs per case, seed 0" in ran.stdout
    for file in (path for path in tmp_path.rglob("*") if path.suffix in {".md", ".xml", ".html"}):
        assert "programs:3" not in file.read_text("utf-8"), file
    assert "3 generated programs per case" in (tmp_path / "summary.md").read_text("utf-8")
    [readme] = tmp_path.glob("findings/*/README.md")
    assert "delta-commit-conformance run --programs 3 --seed 0 --check" in readme.read_text("utf-8")
    assert re.search(r"Contradictory operations in history.jsonl: \d+ and \d+\.", readme.read_text("utf-8"))
    assert re.search(r"\n3 programs: 3 generated\nsteps: \w+", ran.stdout)
    assert "1. A repeated request of a committed attempt is not answered `ratified` (violated)\n" in ran.stdout
    assert "\n    reproduce: delta-commit-conformance replay " in ran.stdout
    again = command("replay", readme.with_name("finding.json"))
    assert (ran.exit_code, again.exit_code) == (ExitCode.VIOLATION, ExitCode.VIOLATION)


@pytest.mark.longer
def test_a_client_that_does_not_commit_has_no_verdict_from_programs() -> None:
    ran = command("run", "good:only-reads", "--programs", "1", "--check", "any-transaction-*[managedCommit/staged]")
    assert ran.exit_code == ExitCode.INCOMPLETE
    assert "inconclusive: the client does not do that: `transact` is unsupported: it is a reader: " in ran.stdout


def test_a_report_that_cannot_be_written_loses_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "junit.xml").mkdir()
    wrong = command("run", f"{OURS}:Wrong", *SMALL, "--report", tmp_path)
    assert (wrong.exit_code, "Not conformant" in wrong.stdout) == (ExitCode.VIOLATION, True)
    assert "junit.xml" in wrong.stderr and "reports cannot be written" in wrong.stderr
    green = command("run", "model", *SMALL, "--report", tmp_path, "--write-known", tmp_path / "no" / "known.toml")
    assert (green.exit_code, "No violation in the selected cases: " in green.stdout) == (ExitCode.USAGE, True)
    assert "known.toml" in green.stderr


@pytest.mark.longer
@pytest.mark.processes
@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
def test_a_full_disk_below_the_output_loses_no_verdict() -> None:
    call = [sys.executable, "-m", "conformance", "run", f"{OURS}:Wrong", *SMALL]
    with FULL.open("w") as full:
        ran = subprocess.run(call, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert (ran.returncode, "Not conformant" in ran.stderr) == (ExitCode.VIOLATION, True), ran.stderr
    assert "cannot be printed: No space left" in ran.stderr


def test_a_matrix_takes_two_folders_of_one_name(tmp_path: Path, wrong: tuple[Path, Any]) -> None:
    folders = [tmp_path / name / "report" for name in ("a", "b")]
    for folder in folders:
        shutil.copytree(wrong[0], folder)
    ran = command("matrix", *folders, "-o", tmp_path / "matrix")
    assert (ran.exit_code, ran.stdout.count("Not conformant")) == (ExitCode.CONFORMANT, 2), "no subject was run"
    assert "a/report: " in ran.stdout and "b/report: " in ran.stdout


@pytest.mark.parametrize(
    "name",
    ["mutant:nonsuch", "good:nonsuch", "engine:x", "nonsuch", ".", "python:nonsuch:A", "stdio:'", "http:x:0", "uc:x"],
)
def test_a_matrix_refuses_an_unknown_subject_before_it_runs_one(tmp_path: Path, name: str) -> None:
    ran = command("matrix", "model", name, "-o", tmp_path / "matrix")
    assert (ran.exit_code, "1 of 2" in ran.stderr, (tmp_path / "matrix").exists()) == (ExitCode.USAGE, False, False)


def test_the_json_output_is_the_whole_result_and_no_other_text() -> None:
    ran = command("run", "model", *SMALL, "--json", "--seed", "3")
    result = reports.from_json(ran.stdout)
    assert (result.seed, result.exit_code, ran.exit_code) == (3, 0, 0)
    assert result.selection == f"--check {ONE.name}"


def test_a_list_of_known_failures_is_written_completed_and_used(tmp_path: Path) -> None:
    file = tmp_path / "known.toml"
    words = (
        "run",
        f"{OURS}:Wrong",
        *["--family", "concurrent-writers", "--layer", "example", "--check", "*-have-one-winner"],
    )
    assert command(*words, "--write-known", file).exit_code == ExitCode.VIOLATION
    entries = tomllib.loads(file.read_text("utf-8"))["known-failure"]
    assert entries
    assert all(entry["reason"] == "" for entry in entries)
    unfilled = command(*words, "--known", file)
    assert (unfilled.exit_code, "reason is empty" in unfilled.stderr) == (ExitCode.USAGE, True)
    file.write_text(file.read_text("utf-8").replace('reason = ""', 'reason = "ticket 17"'), "utf-8")
    accepted = command(*words, "--known", file)
    assert "failed as listed; no case passed.\n" in accepted.stdout and "exit code 3: no case passed" in accepted.stdout
    assert "Not conformant" not in accepted.stdout and "Incomplete" not in accepted.stdout
    fixed = command("run", "model", *words[2:], "--known", file)
    assert fixed.exit_code == ExitCode.VIOLATION
    assert "stale known failure: " in fixed.stdout and ": it did not fail as listed" in fixed.stdout


def test_a_list_of_known_failures_is_overwritten_only_if_read(tmp_path: Path) -> None:
    file = tmp_path / "known.toml"
    file.write_text("# my reasons\n", "utf-8")
    ran = command("run", "model", *SMALL, "--write-known", file)
    assert (ran.exit_code, "already exists" in ran.stderr) == (ExitCode.USAGE, True)
    assert file.read_text("utf-8") == "# my reasons\n"
    assert command("run", "model", *SMALL, "--write-known", file, "--known", file).exit_code == ExitCode.CONFORMANT
    assert "Known failures of model" in file.read_text("utf-8")


def test_two_runs_cannot_write_reports_to_one_folder(tmp_path: Path) -> None:
    with ReportFolder(tmp_path):
        ran = command("run", "model", *SMALL, "--report", tmp_path)
        assert ran.exit_code == ExitCode.USAGE
        assert "another run is writing its reports" in ran.stderr
        assert "cases" not in ran.stderr, "the second run must fail before its first case"
    assert command("run", "model", *SMALL, "--report", tmp_path).exit_code == ExitCode.CONFORMANT


def test_an_expired_budget_leaves_a_partial_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    budget_ends_soon(monkeypatch)
    ran = command("run", f"{OURS}:Hanging", *SMALL, "--budget", "1h", "--timeout", "2h", "--report", tmp_path)
    assert ran.exit_code == ExitCode.INCOMPLETE
    assert "the budget of 3600 s expired" in ran.stdout
    result = reports.from_json((tmp_path / "result.json").read_bytes())
    assert (result.complete, result.exit_code) == (False, ExitCode.INCOMPLETE)


def started(*words: object, **environment: str) -> subprocess.Popen[str]:
    """Start the command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "conformance", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


def interrupted(process: subprocess.Popen[str], number: signal.Signals) -> str:
    """Interrupt the process; return its last output, which must not be a traceback."""
    process.send_signal(number)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == ExitCode.INCOMPLETE, errors
    assert "Traceback" not in errors
    return out


@pytest.mark.processes
@pytest.mark.parametrize("number", sampled([signal.SIGINT, signal.SIGTERM], 2))
def test_an_interrupted_run_leaves_a_partial_report_and_no_process(tmp_path: Path, number: signal.Signals) -> None:
    words = ("run", f"{OURS}:Hanging", *SMALL, "-n", "2", "--report", tmp_path / "report", "--timeout", "60s")
    process = started(*words, TMPDIR=str(tmp_path))
    assert process.stderr is not None
    assert "5 cases" in process.stderr.readline()
    assert "interrupted" in interrupted(process, number)
    assert reports.from_json((tmp_path / "report" / "result.json").read_bytes()).stopped == "interrupted"
    assert [path.name for path in tmp_path.iterdir()] == ["report"], "the run must delete its temporary folders"


@pytest.mark.longer
@pytest.mark.processes
def test_an_interrupted_matrix_starts_no_further_subject(tmp_path: Path) -> None:
    hanging = f"{OURS}:Hanging"
    process = started("matrix", hanging, "model", "-o", tmp_path / "matrix", "-n", "1", "--timeout", "600s")
    assert process.stderr is not None
    assert hanging in process.stderr.readline()
    assert " cases" in process.stderr.readline()
    assert "model: not run: interrupted" in interrupted(process, signal.SIGINT)
    result = reports.from_json((tmp_path / "matrix" / slug(hanging) / "result.json").read_bytes())
    assert result.stopped == "interrupted"
    assert "interrupted" in (tmp_path / "matrix" / "index.html").read_text("utf-8")


# replay, report, check, smoke, list


def test_a_finding_is_replayed_on_its_own_or_another_subject(tmp_path: Path) -> None:
    checks = ("--check", "any-sequence-of-requests", "--fail-fast", "-n", "1")
    first = command("run", f"{OURS}:Wrong", *SMALL, *checks, "--report", tmp_path)
    assert first.exit_code == ExitCode.VIOLATION
    for finding in tmp_path.glob("findings/*/finding.json"):
        again = command("replay", finding)
        assert again.exit_code == ExitCode.VIOLATION, again.stdout
        other = command("replay", finding, "--subject", "model")
        assert other.exit_code == ExitCode.CONFORMANT, other.stdout
        assert "this is model" in other.stderr
        refusing = command("replay", finding, "--subject", f"{OURS}:Refusing")
        assert refusing.exit_code == ExitCode.INCOMPLETE
        history = command("replay", finding.with_name("history.jsonl"))
        assert (history.exit_code, " check " in history.stderr) == (ExitCode.USAGE, True)
        assert command("check", finding.with_name("history.jsonl")).exit_code in (0, 1)


def test_a_generated_finding_is_replayed_step_by_step(tmp_path: Path) -> None:
    words = ("--check", "any-sequence-of-requests[catalogManaged/inline]", "--report", tmp_path)
    assert command("run", f"{OURS}:Wrong", *words).exit_code == ExitCode.VIOLATION
    (file,) = tmp_path.glob("findings/*/finding.json")
    finding = reports.read_finding(file)
    assert finding.reproduction is not None
    again = command("replay", file, "--json")
    assert again.exit_code == ExitCode.VIOLATION
    (case,) = [case for case in reports.from_json(again.stdout).cases if case.violations]
    assert (case.reproduction, case.operations) == (finding.reproduction, finding.operations)
    assert case.violations[0].requirements == finding.violations[0].requirements
    for other in ('{"seed":1,"steps":[]}', finding.reproduction.replace('"format":2', '"format":1', 1)):
        file.write_bytes(msgspec.json.encode(msgspec.structs.replace(finding, reproduction=other)))
        refused = command("replay", file)
        assert (refused.exit_code, refused.stdout) == (ExitCode.USAGE, "")
        assert "the finding's `reproduction` cannot be replayed: " in refused.stderr


def test_an_earlier_result_is_shown_and_written_with_its_exit_code(tmp_path: Path, wrong: tuple[Path, Any]) -> None:
    file = wrong[0] / "result.json"
    shown = command("report", file)
    assert (shown.exit_code, "Not conformant" in shown.stdout) == (ExitCode.VIOLATION, True)
    assert command("report", file, "--folder", tmp_path / "two").exit_code == ExitCode.VIOLATION
    assert (tmp_path / "two" / "index.html").exists()
    assert command("report", wrong[0] / "badge.json").exit_code == ExitCode.USAGE


def test_smoke_distinguishes_adapter_from_owner() -> None:
    fine = command("smoke", "model")
    assert (fine.exit_code, "the adapter works" in fine.stdout) == (ExitCode.CONFORMANT, True)
    steps = json.loads(command("smoke", "model", "--json").stdout)
    assert steps["ok"]
    assert len(steps["steps"]) > 5
    silent = command("smoke", f"stdio:{sys.executable} -c pass")
    assert silent.exit_code == ExitCode.USAGE
    assert "`hello`" in silent.stderr


@pytest.mark.parametrize("what", ["checks", "families", "profiles", "mutants", "subjects"])
def test_everything_in_the_kit_is_listed(what: str) -> None:
    plain, as_json = command("list", what), command("list", what, "--json")
    assert (plain.exit_code, as_json.exit_code) == (0, 0)
    rows = json.loads(as_json.stdout)
    assert len(rows) >= 3
    headers, *lines = plain.stdout.strip().splitlines()
    assert sorted(headers.split()) == sorted(rows[0])
    assert len(lines) == len(rows)


@pytest.mark.parametrize(("what", "column"), [("mutants", "violates"), ("checks", "requirements")])
def test_a_list_is_filtered_by_requirement(what: str, column: str) -> None:
    everything = json.loads(command("list", what, "--json").stdout)
    rows = json.loads(command("list", what, "--requirement", "MC-COMMIT-02", "--json").stdout)
    assert rows
    assert rows == [row for row in everything if "MC-COMMIT-02" in row[column]]
    assert len(command("list", what, "--requirement", "MC-COMMIT-02").stdout.splitlines()) == len(rows) + 1


def test_a_list_written_to_a_closed_pipe_exits_with_141() -> None:
    """The same happens with `| head -n 1`. Here the reader closes the pipe before the command starts, so the test does
    not depend on timing.
    """
    reader, writer = os.pipe()
    os.close(reader)
    command_line = [sys.executable, "-m", "conformance", "requirements"]
    try:
        listed = subprocess.run(command_line, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    finally:
        os.close(writer)
    assert (listed.returncode, listed.stderr) == (141, "")


# The action for GitHub


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
