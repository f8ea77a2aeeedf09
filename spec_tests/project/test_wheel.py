"""The wheel is complete: the kit and the owner run from the wheel alone, outside this repository."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from conformance.requirements.catalogue import load

pytestmark = [pytest.mark.longer, pytest.mark.xdist_group("wheel")]
"""All tests here run in one process, so the wheel is built once."""

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the unpacked wheel."""
    target = tmp_path_factory.mktemp("wheel")
    words = ["-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(target), str(ROOT)]
    subprocess.run([sys.executable, *words], check=True, capture_output=True, cwd=target)
    (wheel,) = target.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target / "site")
    return target / "site"


def python(installed: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    return subprocess.run([sys.executable, "-P", *words], cwd=folder, env=environment, capture_output=True, text=True)


def kit(installed: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    code = "import conformance.command as c, sys; assert sys.argv.pop(1) in c.__file__, c.__file__; c.main()"
    return python(installed, folder, "-c", code, str(installed), *words)


def test_wheel_contains_no_tests(installed: Path) -> None:
    assert {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")} == {
        "refimpl",
        "conformance",
    }


def test_the_kit_finds_a_bad_owner_and_reports_it_in_every_form(installed: Path, tmp_path: Path) -> None:
    done = kit(installed, tmp_path, "run", "mutant:replay-is-a-conflict", "--layer", "example", "-n", "1",
               "--requirement", "PROFILE-RETRY-01", "--report", "report")  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "PROFILE-RETRY-01" in done.stdout
    report = tmp_path / "report"
    assert {"index.html", "junit.xml", "summary.md", "badge.json", "result.json"} <= {
        path.name for path in report.iterdir()
    }
    assert json.loads((report / "result.json").read_text("utf-8"))["requirements"]


def test_the_wheel_contains_the_page_and_a_working_example(installed: Path, tmp_path: Path) -> None:
    page = kit(installed, tmp_path, "examples", "TEST_YOUR_OWNER.md")
    assert "first verdict" in page.stdout, page.stderr
    source = kit(installed, tmp_path, "examples", "owner.py")
    (tmp_path / "owner.py").write_text(source.stdout, "utf-8")
    done = kit(installed, tmp_path, "smoke", f"stdio:{sys.executable} owner.py")
    assert done.returncode == 0, done.stdout + done.stderr


def test_course_of_the_wheel_checks_an_owner(installed: Path, tmp_path: Path) -> None:
    made = kit(installed, tmp_path, "learn", "mine", "--language", "javascript")
    assert made.returncode == 0, made.stderr
    assert len(list((tmp_path / "mine").glob("*.md"))) == 15
    assert kit(installed, tmp_path, "learn", "exercise").returncode == 0
    judged = kit(installed, tmp_path, "learn", "exercise", "check", "--timeout", "20s")
    assert judged.returncode == 1, judged.stderr
    assert "`create_table` was answered `unsupported`" in judged.stdout


def test_every_page_that_the_catalogue_cites_is_in_the_wheel(installed: Path) -> None:
    pages = {document.page for document in load().documents if document.page}
    assert pages
    assert {page for page in pages if not (installed / page).is_file()} == set()


def test_wheel_contains_the_reference_and_its_command(installed: Path, tmp_path: Path) -> None:
    assert kit(installed, tmp_path, "smoke", "reference").returncode == 0
    code = "import refimpl.cli as c, sys; assert sys.argv.pop(1) in c.__file__; c.main()"
    made = python(installed, tmp_path, "-c", code, str(installed), "init", "lake", "--json")
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "lake" / "_owner").is_dir()
