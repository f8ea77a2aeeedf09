"""The cases as pytest items, in the test folder of another project."""

from __future__ import annotations

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
    """With one test of its own."""
    (tmp_path / "test_own.py").write_text(
        "import sys\n\n\ndef test_own():\n    kit = [name for name in sys.modules if name.startswith('conformance.')]\n"
        "    assert kit == ['conformance.pytest_plugin'] or '--commit-owner-subject' in sys.argv\n",
        "utf-8",
    )
    return tmp_path


def run(folder: Path, *words: str, installed: bool = False) -> subprocess.CompletedProcess[str]:
    """`installed`: with all plugins, as pytest finds them; otherwise, which is quicker, with those that are needed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    environment.pop("PYTEST_ADDOPTS", None)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(folder), *words]
    if not installed:
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        command += ["-p", "conformance.pytest_plugin", *(("-p", "xdist") if "-n" in words else ())]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)


def test_without_a_subject_the_plugin_is_silent_and_imports_nothing(folder: Path) -> None:
    done = run(folder, installed=True)
    assert (done.returncode, "1 passed" in done.stdout) == (0, True)
    assert "commit owner" not in done.stdout


def test_cases_run_beside_ordinary_tests(folder: Path) -> None:
    done = run(folder, "--commit-owner-subject", "model", "-k", f"{ONE.name} or test_own", installed=True)
    assert done.returncode == 0, done.stdout
    assert "6 passed" in done.stdout
    assert "commit owner: model, model 1, profile quick, seed 0" in done.stdout


@pytest.mark.processes
def test_each_process_of_xdist_opens_its_own_subject(folder: Path) -> None:
    """Whose answers differ from process to process only in what does not matter."""
    done = run(folder, "--commit-owner-subject", "model", "-n", "2", "-v", *SMALL)
    assert done.returncode == 0, done.stdout
    assert "5 passed" in done.stdout
    assert all(f"{ONE.name}[{variant}]" in done.stdout for variant in ("managedCommit/staged", "catalogManaged/inline"))


def test_a_failure_is_explained_and_says_how_to_see_it_again(folder: Path) -> None:
    done = run(folder, "--commit-owner-subject", f"{OURS}:Wrong", *SMALL)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "5 failed" in done.stdout
    assert ONE.title in done.stdout
    assert "PROFILE-CORE-05" in done.stdout
    assert "create_table" in done.stdout
    assert f"--check 'concurrent-writers/{ONE.name}[managedCommit/staged]' -- {OURS}:Wrong" in done.stdout
    assert "Traceback" not in done.stdout


def test_known_failures_are_expected_and_stale_ones_fail_the_session(folder: Path) -> None:
    known = folder / "known.toml"
    known.write_text(f"[[known-failure]]\ncase = 'concurrent-writers/{ONE.name}[*]'\nreason = 'ticket 17'\n", "utf-8")
    words = ("--commit-owner-known", str(known), "-k", f"{ONE.name} or test_own", "-rx")
    expected = run(folder, "--commit-owner-subject", f"{OURS}:Wrong", *words)
    assert "5 xfailed" in expected.stdout
    assert "ticket 17" in expected.stdout
    assert expected.returncode == 0, "what is known to fail is a verdict"
    gone = run(folder, "--commit-owner-subject", "model", *words)
    assert gone.returncode == pytest.ExitCode.TESTS_FAILED
    assert "no longer true" in gone.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--commit-owner-subject", "modell"), "unknown subject 'modell'"),
        (("--commit-owner-subject", f"stdio:{sys.executable} -c pass"), "`hello`"),
        (("--commit-owner-subject", "modell", "-n", "2"), "unknown subject 'modell'"),
        (("--commit-owner-subject", "model", "--commit-owner-known", "/no/such.toml"), "/no/such.toml"),
    ],
)
def test_an_unusable_subject_ends_the_session(folder: Path, words: tuple[str, ...], says: str) -> None:
    done = run(folder, *words)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert says in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert "passed" not in done.stdout


def test_a_session_in_which_the_owner_was_never_judged_is_not_green(folder: Path) -> None:
    refusing = run(folder, "--commit-owner-subject", f"{OURS}:Refusing", *SMALL, "-rs")
    assert refusing.returncode == pytest.ExitCode.TESTS_FAILED
    assert "inconclusive" in refusing.stdout
    assert "came to a verdict" in refusing.stdout
    nothing = run(folder, "--commit-owner-subject", "model", "-k", "test_own")
    assert nothing.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "no case of the kit was run" in nothing.stdout


def test_a_subject_that_dies_fails_no_test_and_is_not_green_either(folder: Path) -> None:
    done = run(folder, "--commit-owner-subject", f"{OURS}:Dying", "-k", f"{ONE.name} and managedCommit", "-rs")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "SIGKILL" in done.stdout
