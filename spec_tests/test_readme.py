"""These tests or `.ci/run` execute every command and code block of the README and the packages' pages. Every link
exists.

A page is one session: its blocks run in the order of the page, in one empty directory. After `# ->`, a block shows a
line of its output; blanks and commas do not count. `.ci/run` executes a block after
`<!-- command: NAME -->`. A block after `<!-- needs: maven -->` needs a tool that not every machine has. A block after
`<!-- file: NAME -->` is only written to that file.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from conformance.findings import markdown, stored
from spec_tests.engines.prerequisites import needed_classpath

REPOSITORY = Path(__file__).parents[1]
OUTPUT = re.compile(r"# -> (.*)")
BLOCK = re.compile(r"(?:<!-- (?P<mark>[^>]+) -->\n)?```(?P<language>\w*)\n(?P<code>.*?)```", re.DOTALL)
PAGES = [
    "README.md",
    ".github/CONTRIBUTING.md",
    "refimpl/README.md",
    "refimpl/LEARN.md",
    "refimpl/server/README.md",
    "refimpl/spark/README.md",
    "conformance/README.md",
    "conformance/action/README.md",
    "conformance/findings/README.md",
    "conformance/implementations/README.md",
    "conformance/simulation/README.md",
    "spec_tests/README.md",
    "spec_tests/benchmarks/README.md",
]
WITHOUT_BLOCKS = {
    ".github/CONTRIBUTING.md", "conformance/findings/README.md", "conformance/implementations/README.md",
    "conformance/simulation/README.md",
}  # fmt: skip
"""Their commands are in tables, which have their own tests."""
RUN = [page for page in PAGES if page not in WITHOUT_BLOCKS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    kind: str
    """The mark before the block: `command`, `needs`, `file`, or empty."""
    argument: str
    language: str
    code: str


def text_of(page: str) -> str:
    return (REPOSITORY / page).read_text(encoding="utf-8")


def blocks_of(page: str) -> list[Block]:
    blocks = []
    for match in BLOCK.finditer(text_of(page)):
        kind, _, argument = (match["mark"] or "").partition(": ")
        blocks.append(Block(kind=kind, argument=argument, language=match["language"], code=match["code"]))
    return blocks


def run(command: list[str], directory: Path, text: str) -> None:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
    }
    done = subprocess.run(command, cwd=directory, input=text, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    printed = [re.findall(r"[^\s,]+", line) for line in done.stdout.splitlines()]
    shown = [line.split() for line in OUTPUT.findall(text)]
    assert shown == printed[len(printed) - len(shown) :], f"{text}\n{done.stdout}"


def test_every_block_is_executed_or_a_picture() -> None:
    for block in (block for page in PAGES for block in blocks_of(page)):
        assert block.kind in {"", "command", "needs", "file"}, block
        if block.kind == "needs":
            assert block.argument in {"maven", "duckdb"}, block
        assert block.language in {"sh", "python"} or (block.language, block.kind) == ("text", ""), block


@pytest.mark.engines
@pytest.mark.spark
@pytest.mark.parametrize("page", [pytest.param(page, marks=pytest.mark.xdist_group(f"page-{page}")) for page in RUN])
def test_the_blocks_of_a_page_run_in_its_order(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COMMIT_OWNER_WAREHOUSE", raising=False)
    blocks = [block for block in blocks_of(page) if block.language != "text" and block.kind != "command"]
    for block in blocks:
        if (block.kind, block.argument) == ("needs", "maven"):
            needed_classpath("spark")
        if block.kind == "file":
            (tmp_path / block.argument).write_text(block.code, "utf-8")
        elif block.language == "sh":
            run(["bash", "-euo", "pipefail"], tmp_path, block.code)
        else:
            run([sys.executable, "-"], tmp_path, block.code)


def test_the_two_commands_are_one_line_each_and_run_in_ci() -> None:
    script = text_of(".ci/run")
    commands = {b.argument: b.code for page in PAGES for b in blocks_of(page) if b.kind == "command"}
    assert set(commands) == {"demo", "test", "engines"}
    for name, code in commands.items():
        assert len(code.strip().splitlines()) == 1
        assert f"command {name}" in script
        assert name == "engines" or code.startswith("python3 -m venv .venv && ")


def test_the_readme_has_at_most_150_lines() -> None:
    assert len(text_of("README.md").splitlines()) <= 150


def test_the_readme_shows_output() -> None:
    assert len(OUTPUT.findall(text_of("README.md"))) >= 5


def test_findings_page_equals_the_generated_text() -> None:
    page = text_of("conformance/findings/README.md")
    generated = page.split("<!-- generated: delta-commit-conformance findings -->\n")[1].split("\n<!-- end -->")[0]
    assert generated == markdown.page(stored.runs(), stored.findings()).strip()


def test_every_relative_link_of_a_page_exists() -> None:
    for path, anchor in (link for page in PAGES for link in links_of(page)):
        assert path.exists(), path
        if anchor:
            text = path.read_text(encoding="utf-8")
            headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
            assert anchor in anchors | set(re.findall(r'<a id="([\w-]+)">', text)), anchor


def test_every_page_is_linked_from_another_one() -> None:
    linked = {path for page in PAGES for path, _ in links_of(page)}
    assert {REPOSITORY / page for page in PAGES if page != "README.md"} <= linked


def links_of(page: str) -> list[tuple[Path, str]]:
    """The files and anchors of the page's relative links."""
    here = REPOSITORY / page
    links = [link.partition("#") for link in re.findall(r"\]\((?!https?://)([^)]+)\)", text_of(page))]
    return [((here.parent / target).resolve() if target else here, anchor) for target, _, anchor in links]
