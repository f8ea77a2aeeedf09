"""Every command and code block of the README is run here, or by `.ci/run`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from conformance.findings import clients, markdown, stored
from spec_tests.engines.jars import needed_classpath

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
        ("sh", "command: engines"),
        ("sh", ""),
        ("sh", "needs: server"),
        ("sh", "needs: maven"),
        ("python", ""),
        ("python", "needs: spark"),
        ("python", "needs: maven"),
        ("python", "file: by_duckdb.py"),
        ("text", ""),
    }


def test_the_two_commands_are_one_line_each_and_are_what_ci_runs() -> None:
    script = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")
    for name in ("demo", "test"):
        (command,) = blocks("sh", f"command: {name}")
        assert len(command.code.strip().splitlines()) == 1
        assert command.code.startswith("python3 -m venv .venv && ")
        assert f"readme_command {name}" in script
    assert "readme_command engines" in script


@pytest.mark.engines
@pytest.mark.spark
@pytest.mark.xdist_group("readme-spark")
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


@pytest.mark.engines
@pytest.mark.xdist_group("duckdb")
def test_duckdb_inserts_over_http_as_the_readme_says(tmp_path: Path) -> None:
    run(["commit-owner", "init", "lake"], tmp_path)
    (script,) = blocks("python", "file: by_duckdb.py")
    (tmp_path / "by_duckdb.py").write_text(script.code, "utf-8")
    (served,) = blocks("sh", "needs: server")
    shown = run(["bash", "-euo", "pipefail"], tmp_path, f"export COMMIT_OWNER_WAREHOUSE=lake\n{served.code}")
    assert [line.split()[0] for line in shown.stdout.splitlines()[-2:]] == ["1", "0"]


@pytest.mark.engines
@pytest.mark.xdist_group("readme-maven")
def test_delta_spark_and_deltas_own_coordinators_go_as_the_readme_says(tmp_path: Path) -> None:
    needed_classpath("spark")
    (kit,) = blocks("sh", "needs: maven")
    run(["bash", "-euo", "pipefail"], tmp_path, kit.code)
    run(["commit-owner", "init", "lake"], tmp_path)
    (session,) = blocks("python", "needs: maven")
    run([sys.executable, "-"], tmp_path, session.code)


def test_what_was_found_in_other_peoples_owners_is_what_the_findings_say() -> None:
    page = README.split("<!-- generated: python -m conformance.findings -->\n")[1].split("\n<!-- end -->")[0]
    assert page == markdown.page(stored.runs(), stored.findings(), clients.deviations()).strip()


def test_every_file_that_the_readme_links_to_exists() -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (REPOSITORY / link).exists()] == []
