"""The catalogue of sabotages: every entry fits the code; a run names the survivors, and refuses invalid entries."""

import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from spec_tests.mutation import sabotage
from spec_tests.mutation.sabotage import Sabotage, judged

ROOT = Path(__file__).parents[2]
SOURCE = """
LIMIT = 3


def first(items):
    # the oldest one
    return items[0]


def latest(items):
    return items[-1]
"""
TESTS = """
from pathlib import Path

import pytest

from refimpl.storage.log_store import LIMIT, latest


@pytest.mark.parametrize("items", [[1], [1, 2]])
def test_latest(items):
    assert latest(items) == len(items)


def test_limit():
    assert LIMIT == 3


def test_of_nothing(tmp_path):
    assert Path.cwd() in tmp_path.parents
"""
TEST_FILE = "spec_tests/owner/test_items.py"
LATEST = Sabotage(
    id="latest-is-first",
    file="refimpl/storage/log_store.py",
    before="return items[-1]",
    after="return items[0]",
    harm="the oldest item is taken for the latest",
    tests=(f"{TEST_FILE}::test_latest",),
)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A repository with one module and its test."""
    folder = tmp_path / "copy"
    for name, text in {
        "pyproject.toml": "[tool.pytest.ini_options]\n",
        "refimpl/__init__.py": "",
        LATEST.file: SOURCE,
        TEST_FILE: TESTS,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def run(copy: Path, *entries: Sabotage) -> dict[str, str | None]:
    """The killer of each entry."""
    return {verdict.sabotage.id: verdict.killer for verdict in judged(entries, [copy])}


def test_an_edit_is_killed_by_its_test_or_survives(copy: Path) -> None:
    limit = replace(LATEST, id="limit", before="LIMIT = 3", after="LIMIT = 4", tests=(TEST_FILE,))
    unseen = replace(LATEST, id="unseen", tests=(f"{TEST_FILE}::test_of_nothing",))
    assert run(copy, LATEST, limit, unseen) == {
        "latest-is-first": f"{TEST_FILE}::test_latest[items1]",
        "limit": f"{TEST_FILE}::test_limit",
        "unseen": None,
    }
    assert {path.name for path in (copy / "refimpl").iterdir()} == {"__init__.py", "storage"}
    assert (copy / LATEST.file).read_text(encoding="utf-8") == SOURCE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"before": "return items[-2]"}, "0 times"),
        ({"before": "return items"}, "2 times"),
        ({"after": "return items[-1]  # so"}, "changes nothing"),
        ({"after": "return items["}, "not Python"),
        ({"before": "LIMIT = 3", "after": "LIMIT = NONE"}, "cannot be judged"),  # the module cannot be imported
        ({"tests": (f"{TEST_FILE}::test_none",)}, "not found"),
        ({"tests": ("spec_tests/owner/test_none.py",)}, "not found"),
    ],
)
def test_entry_that_does_not_fit_the_code_is_an_error(copy: Path, change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(copy, replace(LATEST, **change))  # type: ignore[arg-type]


def test_test_that_fails_without_the_edit_kills_nothing(copy: Path) -> None:
    (copy / TEST_FILE).write_text(TESTS.replace("len(items)", "99"), encoding="utf-8")
    with pytest.raises(ValueError, match=r"fail without any edit:\n.*test_latest\[items0\]"):
        run(copy, LATEST)


ENTRY = """
[[sabotage]]
id = "one"
file = "refimpl/storage/log_store.py"
before = "a"
after = "b"
harm = "a version is given away twice"
tests = ["spec_tests/owner/test_items.py"]
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ENTRY + ENTRY, "not unique"),
        (ENTRY.replace("a version is given away twice", "bad"), "sentence"),
        (ENTRY.replace('tests = ["spec_tests/owner/test_items.py"]', "tests = []"), "no test"),
        (ENTRY.replace('after = "b"\n', ""), "after"),
        (ENTRY + 'line = "3"\n', "line"),
    ],
)
def test_incomplete_entry_is_rejected(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sabotage.load(text)


@pytest.fixture(scope="module")
def catalogue() -> list[Sabotage]:
    return sabotage.load(sabotage.FILE.read_text(encoding="utf-8"))


def test_every_entry_fits_the_code(tmp_path: Path, catalogue: list[Sabotage]) -> None:
    """Each edit fits in exactly one place, is Python, and uses no undefined name, which any test would notice. Each
    named test exists."""
    for entry in catalogue:
        edited = sabotage.replaced((ROOT / entry.file).read_text(encoding="utf-8"), entry)
        (tmp_path / f"{entry.id}.py").write_text(edited, encoding="utf-8")
        for test in entry.tests:
            path, _, name = test.partition("::")
            text = (ROOT / path).read_text(encoding="utf-8")
            assert all(re.search(rf"(def|class) {part}\b", text) for part in name.split("::") if part), entry.id
    assert {entry.package for entry in catalogue} == {"owner", "client", "server", "spark", "files"}
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", "--output-format", "concise"]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_page_has_the_number_of_entries(catalogue: list[Sabotage]) -> None:
    of = Counter(entry.package for entry in catalogue)
    stated = (
        f"The catalogue has {len(catalogue)} edits ({of['client']} of the client, {of['owner']} of the owner, "
        f"{of['server']} of the server, {of['spark']} of the pipeline, {of['files']} of the layer below)."
    )
    assert stated in (ROOT / "spec_tests/README.md").read_text(encoding="utf-8")
