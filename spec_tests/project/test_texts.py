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
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

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
