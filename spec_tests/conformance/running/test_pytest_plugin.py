"""The kit in another project: its cases as pytest items."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
