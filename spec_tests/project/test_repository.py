"""What belongs to the repository as a whole: its top level, how it is installed, and the commands for contributors."""

import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest

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
