"""The kit in another project: its cases as pytest items, and the example for CI. The example's commands are run
unchanged, but with an owner of the kit.
"""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from conformance import reports
from conformance.running import verdicts
from spec_tests.conformance.running.cases import ONE

ROOT = Path(__file__).parents[3]
OURS = "python:spec_tests.conformance.running.subjects"
SMALL = ("-k", ONE.name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one test of its own."""
    (tmp_path / "test_own.py").write_text(
        "import sys\n\n\ndef test_own():\n    kit = [name for name in sys.modules if name.startswith('conformance.')]\n"
        "    assert kit == ['conformance.pytest_plugin'] or '--commit-owner-subject' in sys.argv\n",
        "utf-8",
    )
    return tmp_path


def run(folder: Path, *words: str, installed: bool = False) -> subprocess.CompletedProcess[str]:
    """Run pytest. With `installed`, it loads all plugins, as it finds them; otherwise only the needed ones, which is
    faster.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    environment.pop("PYTEST_ADDOPTS", None)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(folder), *words]
    if not installed:
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        command += ["-p", "conformance.pytest_plugin", *(("-p", "xdist") if "-n" in words else ())]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)


def test_without_a_subject_the_plugin_does_nothing(folder: Path) -> None:
    done = run(folder, installed=True)
    assert (done.returncode, "1 passed" in done.stdout) == (0, True)
    assert "commit owner" not in done.stdout


def test_cases_run_beside_ordinary_tests(folder: Path) -> None:
    done = run(folder, "--commit-owner-subject", "model", "-k", f"{ONE.name} or test_own", installed=True)
    assert done.returncode == 0, done.stdout
    assert "6 passed" in done.stdout
    assert "commit owner: model, model 1, profile quick, seed 0" in done.stdout


@pytest.mark.processes
@pytest.mark.longer
def test_each_process_of_xdist_opens_its_own_subject(folder: Path) -> None:
    """The answers of these subjects differ only in details that do not matter."""
    done = run(folder, "--commit-owner-subject", "model", "-n", "2", "-v", *SMALL)
    assert done.returncode == 0, done.stdout
    assert "5 passed" in done.stdout
    assert all(f"{ONE.name}[{variant}]" in done.stdout for variant in ("managedCommit/staged", "catalogManaged/inline"))


@pytest.mark.longer
def test_a_known_failure_is_expected_and_a_stale_one_fails(folder: Path) -> None:
    known = folder / "known.toml"
    words = ("--commit-owner-subject", f"{OURS}:Wrong", "--commit-owner-known", str(known), "-rx", "-k")
    entry = "[[known-failure]]\ncase = '{}'\nreason = 'ticket 17'\n".format
    known.write_text(entry(f"*/{ONE.name}[catalogManaged/*") + entry("limits/gone[*]"), "utf-8")
    done = run(folder, *words, ONE.name)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "2 failed, " in done.stdout and ", 3 xfailed" in done.stdout
    assert "ticket 17" in done.stdout
    assert "no longer true" in done.stdout
    assert ONE.title in done.stdout
    assert "PROFILE-CORE-05" in done.stdout
    assert "create_table" in done.stdout
    assert f"--check 'concurrent-writers/{ONE.name}[managedCommit/staged]' -- {OURS}:Wrong" in done.stdout
    assert "Traceback" not in done.stdout
    known.write_text(entry(f"concurrent-writers/{ONE.name}[*]"), "utf-8")
    expected = run(folder, *words, f"{ONE.name} or test_own")
    assert "5 xfailed" in expected.stdout
    assert expected.returncode == 0, "a known failure is a verdict"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--commit-owner-subject", f"stdio:{sys.executable} -c pass"), "`hello`"),
        (("--commit-owner-subject", "modell", "-n", "2"), "unknown subject 'modell'"),
        (("--commit-owner-subject", "model", "--commit-owner-known", "/no/such.toml"), "/no/such.toml"),
        (
            ("--commit-owner-subject", "model", "--commit-owner-programs", "3", "--commit-owner-profile", "quick"),
            "--commit-owner-programs and --commit-owner-profile exclude each other; pass one",
        ),
    ],
)
@pytest.mark.longer
def test_an_unusable_subject_ends_the_session(folder: Path, words: tuple[str, ...], says: str) -> None:
    done = run(folder, *words)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert says in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert "passed" not in done.stdout


@pytest.mark.longer
def test_a_session_without_any_verdict_is_not_green(folder: Path) -> None:
    refusing = run(folder, "--commit-owner-subject", f"{OURS}:Refusing", *SMALL, "-rs")
    assert refusing.returncode == pytest.ExitCode.TESTS_FAILED
    assert "inconclusive" in refusing.stdout
    assert "came to a verdict" in refusing.stdout
    nothing = run(folder, "--commit-owner-subject", "model", "-k", "test_own")
    assert nothing.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "no case of the kit was run" in nothing.stdout


@pytest.mark.longer
def test_a_dead_subject_fails_no_test_but_is_not_green(folder: Path) -> None:
    done = run(folder, "--commit-owner-subject", f"{OURS}:Dying", "-k", f"{ONE.name} and managedCommit", "-rs")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "SIGKILL" in done.stdout


# The example for CI


SCRIPT = Path(sys.executable).with_name("delta-commit-conformance")
EXAMPLE = ROOT / "conformance" / "ci_example"


def scripts(workflow: str) -> dict[str, str]:
    """The commands of each step, by the step's name."""
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
@pytest.mark.longer
def test_the_workflow_gives_the_expected_exit_codes(
    workflow: str, subject: str, check: str, code: int, tmp_path: Path
) -> None:
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
    test = next(text for name, text in steps.items() if name in ("Check the owner", "Check the engine"))
    smoke = [(text, (0,)) for name, text in steps.items() if name == "Check the adapter" and code == 0]
    smaller = test.rstrip() + f" --check {check} -n 1"
    for text, expected in (*smoke, (smaller, (code,)), (steps["Show the summary on the page of the job"], (0,))):
        done = subprocess.run(["bash", "-e", "-c", text], cwd=tmp_path, capture_output=True, text=True, env=environment)
        assert done.returncode in expected, f"{text}\n{done.stdout}\n{done.stderr}"
    assert (tmp_path / "step-summary.md").read_text("utf-8").startswith("# ")
    assert reports.from_json((tmp_path / "report" / "result.json").read_bytes()).exit_code == code


def test_the_workflow_has_no_other_steps() -> None:
    last = "Show the summary on the page of the job"
    assert list(scripts("conformance.yml")) == [
        "Install the kit", "Check the adapter", "Check the owner", last,
    ]  # fmt: skip
    assert list(scripts("engine.yml")) == ["Install the kit", "Fetch the engine", "Check the engine", last]
    assert "delta-commit-owner[conformance]" in scripts("conformance.yml")["Install the kit"]


def test_the_example_list_of_known_failures_and_its_entry_are_valid(tmp_path: Path) -> None:
    example, file = EXAMPLE / "known-failures.toml", tmp_path / "known.toml"
    assert verdicts.read(example) == ()
    text = example.read_text("utf-8")
    file.write_text(text[text.index("# [[") :].replace("# ", ""), "utf-8")
    (entry,) = verdicts.read(file)
    assert entry.requirement == "CM-PUBLISH-06"
