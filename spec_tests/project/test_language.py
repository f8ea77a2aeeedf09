"""Plain English: texts for users contain no word for which there is a usual term.

Texts for users are pages, reports, the catalogue, strings (messages, help, ids), first paragraphs of public docstrings
(titles of checks, mutants and freedoms), and public names, also of tests. GLOSSARY.md lists the usual terms.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("refimpl", "conformance", "spec_tests")

IDIOM = re.compile(
    r"\b(?:(?i:told|whoever|nobody|somebody|strangers?|for ever|teeth|tooth|who is|what stands|changed its mind|"
    r"hired?|bury|buried|cannot be had)|is none|are none)\b"
)
LOOSE = re.compile(
    r"(?i:told|whoever|nobody|somebody|stranger|for\W*_?ever|teeth|tooth|who\W?_?is|what\W?_?stands|changed\W?_?its|"
    r"hire|bury|buried|cannot\W?_?be\W?_?had)|(?:is|Is|IS|are|Are|ARE)(?:[_./\-][nN]one| none|_NONE|None)"
)
"""Matches every text that `IDIOM` matches, also in names. A file without a match need not be parsed."""
SUFFIXES = (".py", ".md", ".jinja", ".toml", ".mjs")
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
    *(path for package in PACKAGES for path in sorted((ROOT / package).rglob("*")) if path.suffix in SUFFIXES),
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
