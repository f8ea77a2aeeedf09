"""What belongs to the repository as a whole: its top level, how it is installed, and the commands for contributors. The
wheel is complete: the kit and the owner run from the wheel alone, outside of this repository.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from functools import cache
from pathlib import Path

import pytest

from conformance.requirements.catalogue import load

ROOT = Path(__file__).parents[2]
TOP = {"conformance", "fixtures", "refimpl", "spec_tests", "README.md", "LICENSE", "pyproject.toml"}


@cache
def tracked() -> tuple[str, ...]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    return tuple(
        subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")[
            :-1
        ]
    )


def test_the_top_level_holds_nothing_else() -> None:
    assert {name for name in {path.partition("/")[0] for path in tracked()} if not name.startswith(".")} == TOP


def test_no_text_names_an_install_that_does_not_work() -> None:
    """No package index has this project, so pip cannot install it by its name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    texts = [ROOT / path for path in tracked() if not path.startswith("fixtures/") and (ROOT / path).is_file()]
    found = [text.read_text("utf-8") for text in texts if text.suffix != ".png"]
    wrong = re.compile(rf"(?:pip|uvx?|pipx)\b[^\n]* install [^\n]*\b{project['name']}\b")
    assert [match for text in found for match in wrong.findall(text)] == []
    named = re.compile(r"""how_to_install\(['"]([\w-]+)['"]\)|pip install [^\n]*?['"]\.\[([\w,-]+)\]""")
    extras = {extra for text in found for match in named.findall(text) for extra in ",".join(match).split(",") if extra}
    assert {"jvm", "demo"} <= extras <= set(project["optional-dependencies"])


def test_the_commands_for_contributors_are_those_of_ci() -> None:
    page = (ROOT / ".github" / "CONTRIBUTING.md").read_text("utf-8")
    commands = re.findall(r"^\| `(\.\S+.*?)` \|", page, re.MULTILINE)
    known = "".join((ROOT / name).read_text("utf-8") for name in (".ci/run", "README.md", ".github/workflows/ci.yml"))
    assert len(commands) == 5
    assert [command for command in commands if command not in known] == []


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


@pytest.mark.longer
@pytest.mark.xdist_group("wheel")  # the wheel is built once
def test_wheel_contains_no_tests(installed: Path) -> None:
    assert {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")} == {
        "refimpl",
        "conformance",
    }


@pytest.mark.longer
@pytest.mark.xdist_group("wheel")  # the wheel is built once
def test_the_kit_finds_a_bad_owner_and_reports_it_in_every_form(installed: Path, tmp_path: Path) -> None:
    done = kit(installed, tmp_path, "run", "mutant:replay-is-a-conflict", "-n", "1",
               "--requirement", "PROFILE-RETRY-01", "--report", "report")  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "PROFILE-RETRY-01" in done.stdout
    report = tmp_path / "report"
    assert {"index.html", "junit.xml", "summary.md", "badge.json", "result.json"} <= {
        path.name for path in report.iterdir()
    }
    assert json.loads((report / "result.json").read_text("utf-8"))["requirements"]


@pytest.mark.longer
@pytest.mark.xdist_group("wheel")  # the wheel is built once
def test_the_wheel_contains_the_page_and_a_working_example(installed: Path, tmp_path: Path) -> None:
    page = kit(installed, tmp_path, "examples", "TEST_YOUR_OWNER.md")
    assert "first verdict" in page.stdout, page.stderr
    source = kit(installed, tmp_path, "examples", "owner.py")
    (tmp_path / "owner.py").write_text(source.stdout, "utf-8")
    done = kit(installed, tmp_path, "smoke", f"stdio:{sys.executable} owner.py")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.longer
@pytest.mark.xdist_group("wheel")  # the wheel is built once
def test_course_of_the_wheel_checks_an_owner(installed: Path, tmp_path: Path) -> None:
    made = kit(installed, tmp_path, "learn", "mine", "--language", "javascript")
    assert made.returncode == 0, made.stderr
    assert len(list((tmp_path / "mine").glob("*.md"))) == 15
    assert kit(installed, tmp_path, "learn", "exercise").returncode == 0
    judged = kit(installed, tmp_path, "learn", "exercise", "check", "--timeout", "20s")
    assert judged.returncode == 1, judged.stderr
    assert "`create_table` was answered `unsupported`" in judged.stdout


@pytest.mark.longer
@pytest.mark.xdist_group("wheel")  # the wheel is built once
def test_every_page_that_the_catalogue_cites_is_in_the_wheel(installed: Path) -> None:
    pages = {document.page for document in load().documents if document.page}
    assert pages
    assert {page for page in pages if not (installed / page).is_file()} == set()


@pytest.mark.longer
@pytest.mark.xdist_group("wheel")  # the wheel is built once
def test_wheel_contains_the_reference_and_its_command(installed: Path, tmp_path: Path) -> None:
    assert kit(installed, tmp_path, "smoke", "reference").returncode == 0
    code = "import refimpl.cli as c, sys; assert sys.argv.pop(1) in c.__file__; c.main()"
    made = python(installed, tmp_path, "-c", code, str(installed), "init", "lake", "--json")
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "lake" / "_owner").is_dir()
