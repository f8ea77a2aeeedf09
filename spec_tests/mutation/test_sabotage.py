"""The catalogue of sabotages: every entry fits the code; a run names the survivors and the invalid entries."""

import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from spec_tests.mutation import sabotage
from spec_tests.mutation.conftest import repository
from spec_tests.mutation.sabotage import Result, Run, Sabotage

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
import pytest

from refimpl.log_store import LIMIT, latest


@pytest.mark.parametrize("items", [[1], [1, 2]])
def test_latest(items):
    assert latest(items) == len(items)


def test_limit():
    assert LIMIT == 3


def test_of_nothing():
    assert True
"""
LATEST = Sabotage(
    id="latest-is-first",
    file="refimpl/log_store.py",
    before="return items[-1]",
    after="return items[0]",
    harm="the oldest item is taken for the latest",
    tests=("spec_tests/owner/test_items.py::test_latest",),
)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return repository(tmp_path / "copy", SOURCE, "spec_tests/owner/test_items.py", TESTS)


def run(copy: Path, *entries: Sabotage) -> Result:
    return Run(copy, entries, at_once=1, say=lambda text: None).go()


def test_an_edit_is_killed_by_its_test_or_survives(copy: Path) -> None:
    test = "spec_tests/owner/test_items.py::test_latest[items1]"
    shorter = replace(
        LATEST, id="shorter", before="    # the oldest one\n    return items[0]", after="    return items[1]"
    )
    longer = replace(
        LATEST, id="longer", before="    # the oldest one\n", after="    # one\n    # two\n    items = items\n"
    )
    following = "    return items[0]\n\n\ndef latest"
    ends = replace(LATEST, id="ends", before=following, after=f"    items = items\n{following}")
    unseen = replace(LATEST, id="unseen", tests=("spec_tests/owner/test_items.py::test_of_nothing",))
    result = run(copy, LATEST, shorter, longer, ends, unseen)
    assert result.errors == []
    assert [(verdict.id, verdict.killer) for verdict in result.verdicts] == [
        ("latest-is-first", test),
        ("shorter", None),  # the next function is still found, although it moved
        ("longer", None),
        ("ends", None),
        ("unseen", None),
    ]
    assert (copy / LATEST.file).read_text(encoding="utf-8") == SOURCE


def test_an_edit_of_module_level_runs_on_disk(copy: Path) -> None:
    limit = replace(
        LATEST, id="limit", before="LIMIT = 3", after="LIMIT = 4", tests=("spec_tests/owner/test_items.py",)
    )
    (verdict,) = run(copy, limit).verdicts
    assert verdict.killer == "spec_tests/owner/test_items.py::test_limit"
    assert (copy / LATEST.file).read_text(encoding="utf-8") == SOURCE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"before": "return items[-2]"}, "0 times"),
        ({"before": "return items"}, "2 times"),
        ({"after": "return items[-1]  # so"}, "changes nothing"),
        ({"after": "return items["}, "not Python"),
        ({"tests": ("spec_tests/owner/test_items.py::test_none",)}, "no test"),
        ({"tests": ("spec_tests/owner/test_none.py",)}, "no file"),
    ],
)
def test_entry_that_does_not_fit_the_code_is_an_error(copy: Path, change: dict[str, object], message: str) -> None:
    result = run(copy, replace(LATEST, **change))  # type: ignore[arg-type]
    assert result.verdicts == []
    assert [message in error for error in result.errors] == [True], result.errors


def test_test_that_fails_without_the_edit_kills_nothing(copy: Path) -> None:
    path = copy / "spec_tests/owner/test_items.py"
    path.write_text(TESTS.replace("len(items)", "99"), encoding="utf-8")
    result = run(copy, LATEST)
    assert result.verdicts == []
    assert ["fails without the edit" in error for error in result.errors] == [True]


ENTRY = """
[[sabotage]]
id = "one"
file = "refimpl/log_store.py"
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
    """Each edit fits in exactly one place and uses no undefined name, which any test would notice. Each named test
    exists."""
    for entry in sorted(catalogue, key=lambda entry: entry.file):  # so that each file is parsed once
        edited = sabotage.sabotaged((ROOT / entry.file).read_text(encoding="utf-8"), entry)
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
