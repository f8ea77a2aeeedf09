"""Every command and code block of the README is run here, or by `.ci/run`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"(?:<!-- (?P<mark>[^>]+) -->\n)?```(?P<language>\w*)\n(?P<code>.*?)```", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    mark: str
    language: str
    code: str


BLOCKS = [
    Block(mark=found["mark"] or "", language=found["language"], code=found["code"]) for found in BLOCK.finditer(README)
]


def blocks(language: str, mark: str = "") -> list[Block]:
    return [block for block in BLOCKS if block.language == language and block.mark == mark]


def run(command: list[str], directory: Path, text: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("COMMIT_OWNER_WAREHOUSE", None)
    done = subprocess.run(command, cwd=directory, input=text, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done


def test_every_block_is_of_a_kind_that_is_run() -> None:
    """Two install commands, which `.ci/run` executes as they stand; shell and Python, which run below; pictures."""
    kinds = {(block.language, block.mark) for block in BLOCKS}
    assert kinds == {
        ("sh", "command: demo"),
        ("sh", "command: test"),
        ("sh", ""),
        ("python", ""),
        ("python", "needs: spark"),
        ("text", ""),
    }


def test_the_two_commands_are_one_line_each_and_are_what_ci_runs() -> None:
    script = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")
    for name in ("demo", "test"):
        (command,) = blocks("sh", f"command: {name}")
        assert len(command.code.strip().splitlines()) == 1
        assert command.code.startswith("python3 -m venv .venv && ")
        assert f"readme_command {name}" in script


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_the_first_five_minutes_go_as_the_readme_says(tmp_path: Path) -> None:
    """Shell, then Python, then PySpark, in the order of the README and in one directory."""
    shell, kit, development = blocks("sh")
    five = run(["bash", "-euo", "pipefail"], tmp_path, shell.code)
    assert "committed version 1 of sales: 3 rows in" in five.stdout
    assert five.stderr == "", "the console script of `ingest` passes on what Java says"
    run(["bash", "-euo", "pipefail"], tmp_path, kit.code)
    run(["bash", "-euo", "pipefail"], REPOSITORY, development.code)
    for block in [*blocks("python"), *blocks("python", "needs: spark")]:
        run([sys.executable, "-"], tmp_path, block.code)


def test_every_file_that_the_readme_links_to_exists() -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (REPOSITORY / link).exists()] == []
