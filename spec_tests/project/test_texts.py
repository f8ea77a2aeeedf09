"""Every citation of the code, the catalogue or a page has a target, in this repository or behind a public link.

Four forms, and no other (conformance/requirements/SOURCES.md):

- `DELTA.md#overlap`: an anchor or a heading of a page of this repository;
- `FB26`: a bug of FIELD_BUGS.md;
- `managed-commits, "Commit Backfills"`: a section of a public document, by any part of its heading in SOURCES.md;
- a relative link of a page.

The third form may also name a rule by its number in DELTA.md: `in-commit timestamps, rule 2`.

Plain English: texts for users contain no word for which there is a usual term.

Texts for users are pages, reports, the catalogue, strings (messages, help, ids), first paragraphs of public docstrings
(titles of checks, mutants and freedoms), and public names, also of tests. GLOSSARY.md lists the usual terms.

Commands: these tests or `.ci/run` execute every command and code block of the README and the packages' pages. Every
link exists.

A page is one session: its blocks run in the order of the page, in one empty directory. After `# ->`, a block shows a
line of its output; blanks and commas do not count. `.ci/run` executes a block after
`<!-- command: NAME -->`. A block after `<!-- needs: maven -->` needs a tool that not every machine has. A block after
`<!-- file: NAME -->` is only written to that file.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from conformance.findings import markdown, stored
from spec_tests.engines.prerequisites import needed_classpath

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("refimpl", "conformance", "spec_tests", ".github")
SUFFIXES = (".py", ".toml", ".md", ".jinja")
TEXTS = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [*sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*")), ROOT / "README.md"]
    if path.suffix in SUFFIXES and path != Path(__file__)
}
PAGES = {
    path.name: path
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.md"))
    if path.name != "README.md"
}
"""Pages that can be cited. Their names are unique, so a citation needs no path."""

WRITTEN = {"summary.md"}
"""Reports of the kit, which are no documents."""

ANCHOR = re.compile(r'<a id="([a-z0-9-]+)"></a>')
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
URL = re.compile(r"https?://[^\s)>\"'`]+")
LINK = re.compile(r"\]\(([^)\s]+)\)")
PAGE = re.compile(r"(?<![\w/-])(?:[\w./-]+/)?([A-Z][A-Z_]+\.md)(?:#([a-z0-9_-]+))?")
NAMED = re.compile(r"(?<![\w./-])(?:[\w.-]+/)*([a-z][a-z0-9_-]*\.md)\b")
BUG = re.compile(r"\bFB\d\d\b")
SECTIONS = r'"[^"]+"(?:(?:, | and |, and )"[^"]+")*'
PUBLIC = {
    "managed-commits": "managed-commits",
    "catalog-managed": "catalog-managed",
    "in-commit timestamps": "in-commit-timestamps",
    "in-commit-timestamps": "in-commit-timestamps",
    "DelayedCommitProtocol": "delayed-commit-protocol",
    "delayed-commit-protocol": "delayed-commit-protocol",
    "delta-commits-and-conflicts": "delta-commits-and-conflicts",
    "Delta's protocol": "Delta's protocol",
    "unity-catalog-delta-api": "unity-catalog-delta-api",
}
"""The names of public documents in prose, and their headings in SOURCES.md."""
NAME = "|".join(map(re.escape, PUBLIC))
PASSAGE = re.compile(rf"({NAME})(?: and ({NAME}))?, ({SECTIONS})")
WITHOUT_COMMA = re.compile(rf'(?:{NAME}) "[A-Z][^"]*"')
RULE = re.compile(r"in-commit timestamps, rules? (\d+)(?: and (\d+))?")
OTHER = re.compile(r'"""([a-z][a-z-]+(?: [a-z]+)?), "[A-Z]|(?<![\w-])([a-z]+-[a-z-]+), (?:"[A-Z]|`[A-Z]+-)')
NUMBERED = re.compile(r'\b[a-z]+-[a-z]+ (?:section \d|\d(?=, "|[:;] |\.?"""))')


def folded(text: str) -> str:
    """The text with its lines joined, because a citation may continue on the next line."""
    return re.sub(r"\s*\n\s*(?:#:? )?", " ", text)


def slug(heading: str) -> str:
    """The anchor that GitHub creates for a heading."""
    words = re.sub(r"\]\([^)]*\)|<[^>]*>", "", heading).replace("[", "")
    return re.sub(r"[^\w\- ]", "", words.lower()).strip().replace(" ", "-")


def anchors(path: Path) -> set[str]:
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    return {*ANCHOR.findall(text), *map(slug, HEADING.findall(text))}


ANCHORS = {name: anchors(path) for name, path in PAGES.items()}


def public_sections() -> dict[str, list[str]]:
    """The sections of each public document that SOURCES.md links."""
    sections: dict[str, list[str]] = {}
    document = ""
    for line in PAGES["SOURCES.md"].read_text(encoding="utf-8").splitlines():
        if line.startswith("### "):
            document = line.removeprefix("### ")
            sections[document] = []
        elif document and (item := re.fullmatch(r"- \[(.+)\]\(https://\S+\)", line)):
            sections[document].append(item[1].casefold())
    return sections


LINKED = public_sections()
RULES = {"", *re.findall(r'<a id="ict-[a-z-]+"></a>\*\*(\d)\.', PAGES["DELTA.md"].read_text(encoding="utf-8"))}


def wrong(path: str, text: str) -> Iterator[str]:
    """The citations of a file without a target."""
    without_urls = URL.sub("", text)
    plain = folded(without_urls)
    names = "\n".join(line for line in without_urls.splitlines() if ".md" in line)
    for name, anchor in PAGE.findall(names):
        if name not in ("README.md", "PROTOCOL.md") and (name not in PAGES or (anchor and anchor not in ANCHORS[name])):
            yield f"{name}#{anchor}" if anchor else name
    for named in NAMED.findall(names):
        if named not in WRITTEN and named.removesuffix(".md") not in LINKED:
            yield named
    yield from (bug for bug in BUG.findall(plain) if bug.lower() not in ANCHORS["FIELD_BUGS.md"])
    for first, second, quoted in PASSAGE.findall(plain):
        for section in re.findall(r'"([^"]+)"', quoted):
            documents = [PUBLIC[name] for name in (first, second) if name]
            if not all(any(section.casefold() in title for title in LINKED[document]) for document in documents):
                yield f'{first}, "{section}"'
    yield from WITHOUT_COMMA.findall(plain)
    for numbers in RULE.findall(plain):
        yield from (f"in-commit timestamps, rule {number}" for number in numbers if number not in RULES)
    others = ("".join(groups) for groups in OTHER.findall(plain))
    yield from (f'{other}, "..."' for other in others if other not in PUBLIC)
    yield from NUMBERED.findall(plain)
    if path.endswith(".md"):
        yield from broken_links(ROOT / path, FENCE.sub("", text))


def broken_links(page: Path, text: str) -> Iterator[str]:
    for target in LINK.findall(text):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path)):
            yield target


def test_every_citation_has_a_target() -> None:
    assert {path: dangling for path, text in TEXTS.items() if (dangling := sorted(set(wrong(path, text))))} == {}


def test_page_names_are_unique() -> None:
    """A citation such as `DELTA.md` needs no path."""
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.md") if path.name != "README.md"]
    assert len({path.name for path in paths}) == len(paths)


def test_anchors_of_a_page_are_unique() -> None:
    for name, page in PAGES.items():
        anchors = ANCHOR.findall(page.read_text(encoding="utf-8"))
        assert sorted(anchors) == sorted(set(anchors)), name


@pytest.mark.parametrize(
    "text",
    [
        "see DELTA.md#no-such-rule",
        "see conformance/NOT_THERE.md",
        "see design-notes.md",
        "FB99",
        'managed-commits, "Commit Dreams"',
        'catalog-managed and managed-commits, "Commit Files"',
        'managed-commits "Commit Files"',
        'unity-catalog-delta-api, "Dreams"',
        "in-commit timestamps, rules 2 and 8",
        '"""architecture, "Layers": who may use whom."""',
        "design-notes section 5",
        'design-notes 5, "Layers"',
        "see design-notes, `FREE-GET-01`",
    ],
)
def test_citation_without_a_target_is_found(text: str) -> None:
    assert list(wrong("example.py", text))


@pytest.mark.parametrize(
    "text",
    ["DELTA.md#overlap", "FB26", 'managed-commits and catalog-managed,\n    "Commit Protocol"', "FIELD_BUGS.md#fb26"],
)
def test_a_valid_citation_is_accepted(text: str) -> None:
    assert list(wrong("example.py", text)) == []


TREES = ("refimpl", "conformance", "spec_tests")

IDIOM = re.compile(
    r"\b(?:(?i:told|whoever|nobody|somebody|strangers?|for ever|teeth|tooth|who is|what stands|changed its mind|"
    r"hired?|bury|buried|cannot be had)|is none|are none)\b"
)
LOOSE = re.compile(
    r"(?i:told|whoever|nobody|somebody|stranger|for\W*_?ever|teeth|tooth|who\W?_?is|what\W?_?stands|changed\W?_?its|"
    r"hire|bury|buried|cannot\W?_?be\W?_?had)|(?:is|Is|IS|are|Are|ARE)(?:[_./\-][nN]one| none|_NONE|None)"
)
"""Matches every text that `IDIOM` matches, also in names. A file without a match need not be parsed."""
KINDS = (".py", ".md", ".jinja", ".toml", ".mjs")
QUOTED = {ROOT / "conformance/requirements/GLOSSARY.md", Path(__file__)}
"""Files that quote the words."""


def words_of(name: str) -> str:
    """`test_isTold-now` as `test is told now`."""
    return re.sub(r"[_./\-]+", " ", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)).lower()


def docstrings_of(tree: ast.Module) -> dict[ast.Constant, str]:
    """The public docstrings of a module, each with its first paragraph, and its other stand-alone strings with an empty
    text."""
    docstrings: dict[ast.Constant, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docstrings[node.value] = ""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            public = isinstance(node, ast.Module) or not node.name.startswith("_")
            if text is not None and public:
                statement = node.body[0]
                assert isinstance(statement, ast.Expr)
                assert isinstance(statement.value, ast.Constant)
                docstrings[statement.value] = text.partition("\n\n")[0]
    return docstrings


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a Python file that a user may read, by line."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = docstrings_of(tree)
    yield 1, words_of(path.stem)
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)):
                text = docstrings.get(node, text)
                yield node.lineno, text if " " in text else words_of(text)
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) if not name.startswith("_"):
                yield node.lineno, words_of(name)
            case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_"):
                yield node.lineno, words_of(name)


def faults(path: Path) -> list[str]:
    if path in QUOTED or not LOOSE.search(f"{path.stem} {path.read_text(encoding='utf-8')}"):
        return []
    if path.suffix != ".py":
        texts: Iterator[tuple[int, str]] = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    else:
        texts = texts_of(path)
    name = path.relative_to(ROOT)
    return [f"{name}:{line}: {match[0]!r} in {text!r}" for line, text in texts for match in IDIOM.finditer(text)]


FILES = [
    *(ROOT / page for page in ("README.md", ".github/CONTRIBUTING.md")),
    *(path for package in TREES for path in sorted((ROOT / package).rglob("*")) if path.suffix in KINDS),
]


def test_every_text_is_plain_english() -> None:
    assert [fault for path in FILES for fault in faults(path)] == []


@pytest.mark.parametrize(
    ("text", "plain"),
    [("it is none", False), ("the value is None", True), ("Nobody knows", False), ("retold by a strange host", True)],
)
def test_only_whole_words_are_found(text: str, plain: bool) -> None:
    assert (IDIOM.search(text) is None) is plain


def test_names_are_split_into_words() -> None:
    assert words_of("is-told_whatHappened.now") == "is told what happened now"


OUTPUT = re.compile(r"# -> (.*)")
BLOCK = re.compile(r"(?:<!-- (?P<mark>[^>]+) -->\n)?```(?P<language>\w*)\n(?P<code>.*?)```", re.DOTALL)
SESSIONS = [
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
RUN = [page for page in SESSIONS if page not in WITHOUT_BLOCKS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    kind: str
    """The mark before the block: `command`, `needs`, `file`, or empty."""
    argument: str
    language: str
    code: str


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


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
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(command, cwd=directory, input=text, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    printed = [re.findall(r"[^\s,]+", line) for line in done.stdout.splitlines()]
    shown = [line.split() for line in OUTPUT.findall(text)]
    assert shown == printed[len(printed) - len(shown) :], f"{text}\n{done.stdout}"


def test_every_block_is_executed_or_a_picture() -> None:
    for block in (block for page in SESSIONS for block in blocks_of(page)):
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
    commands = {b.argument: b.code for page in SESSIONS for b in blocks_of(page) if b.kind == "command"}
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
    for path, anchor in (link for page in SESSIONS for link in links_of(page)):
        assert path.exists(), path
        if anchor:
            text = path.read_text(encoding="utf-8")
            headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
            assert anchor in anchors | set(re.findall(r'<a id="([\w-]+)">', text)), anchor


def test_every_page_is_linked_from_another_one() -> None:
    linked = {path for page in SESSIONS for path, _ in links_of(page)}
    assert {ROOT / page for page in SESSIONS if page != "README.md"} <= linked


def links_of(page: str) -> list[tuple[Path, str]]:
    """The files and anchors of the page's relative links."""
    here = ROOT / page
    links = [link.partition("#") for link in re.findall(r"\]\((?!https?://)([^)]+)\)", text_of(page))]
    return [((here.parent / target).resolve() if target else here, anchor) for target, _, anchor in links]
