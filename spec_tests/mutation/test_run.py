"""The run finds a missing fsync, honours an explained mutant, and refuses an explanation that is no longer true."""

from __future__ import annotations

from pathlib import Path

import pytest

from spec_tests.mutation import explained
from spec_tests.mutation.__main__ import main
from spec_tests.mutation.operators import mutants
from spec_tests.mutation.run import Result, Run

SOURCE = """
def put(files, content):
    files.write(content)
    files.fsync()
    files.close()


def wait(files):
    while files.busy():
        files.pause()
"""
TESTS = """
from refimpl.log_store import put, wait


class Files:
    def __init__(self):
        self.seen = []

    def busy(self):
        return "pause" not in self.seen

    def __getattr__(self, name):
        return lambda *_: self.seen.append(name)


def test_it_is_durable():
    files = Files()
    put(files, b"bytes")
    assert files.seen[:2] == ["write", "fsync"]
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A repository with one module and its test."""
    place = tmp_path / "copy"
    for name, text in (("refimpl/log_store.py", SOURCE), ("spec_tests/owner/test_put.py", TESTS)):
        (place / name).parent.mkdir(parents=True)
        (place / name).write_text(text, encoding="utf-8")
    (place / "pyproject.toml").write_text("[tool.pytest.ini_options]\n", encoding="utf-8")
    return place


def run(copy: Path, reasons: dict[explained.Key, str]) -> Result:
    found = Run(copy, [""], at_once=2, patience=10.0, place=copy.parent)
    chosen = [each for each in found.mutants if each.operator in ("delete-effect", "swap-effects")]
    return found.go(chosen, reasons)


def test_a_removed_fsync_is_found_and_what_no_check_sees_survives(copy: Path) -> None:
    entry = ("refimpl/log_store.py", "put", "delete-effect", "files.close()", 1)
    judged = run(copy, {entry: "the file is closed by whoever gave it"})
    fates = {(each.mutant.operator, each.mutant.source): each for each in judged.verdicts}
    missing = fates["delete-effect", "files.fsync()"]
    assert missing.killer == "spec_tests/owner/test_put.py::test_it_is_durable"
    assert "assert ['write', 'close'] == ['write', 'fsync']" in missing.detail
    assert fates["swap-effects", "files.write(content) ; files.fsync()"].killer == missing.killer
    survivor = fates["delete-effect", "files.close()"]
    assert (survivor.killer, survivor.checks) == (None, 1)
    assert survivor.reason == "the file is closed by whoever gave it"
    unseen = fates["delete-effect", "files.pause()"]
    assert (unseen.killer, unseen.checks, unseen.reason) == (None, 0, None)
    assert (copy / "refimpl/log_store.py").read_text(encoding="utf-8") == SOURCE
    again = run(copy, {entry: "the file is closed by whoever gave it"})
    assert set(again.verdicts) == set(judged.verdicts), "nothing changed, and seconds would have"


def test_a_source_that_fails_its_own_checks_is_not_judged(copy: Path) -> None:
    (copy / "refimpl/log_store.py").write_text(SOURCE.replace("    files.fsync()\n", ""), encoding="utf-8")
    judged = run(copy, {})
    assert judged.verdicts == []
    assert len(judged.broken) == 1
    assert "test_it_is_durable" in judged.broken[0]


ENTRY = """
[[mutant]]
file = "refimpl/log_store.py"
function = "put"
operator = "delete-effect"
source = "files.close()"
reason = "the file is closed by whoever gave it"
"""


def test_an_explanation_holds_as_long_as_its_mutant_exists_and_survives() -> None:
    entries = explained.load(ENTRY)
    known = mutants("refimpl/log_store.py", SOURCE)
    assert explained.stale(entries, known, {}) == []
    killed = explained.stale(entries, known, {entries[0].key: "test_it_is_durable"})
    assert len(killed) == 1
    assert "test_it_is_durable kills it" in killed[0]
    gone = mutants("refimpl/log_store.py", SOURCE.replace("    files.close()\n", ""))
    assert ["there is no such mutant" in each for each in explained.stale(entries, gone, {})] == [True]
    assert explained.stale(entries, mutants("refimpl/files.py", SOURCE), {}) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ENTRY + ENTRY, "twice"),
        (ENTRY.replace("the file is closed by whoever gave it", "equivalent"), "no reason"),
        (ENTRY.replace('operator = "delete-effect"\n', ""), "operator"),
        (ENTRY + 'line = "3"\n', "line"),
    ],
)
def test_an_explanation_that_explains_nothing_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        explained.load(text)


def test_every_explanation_that_is_checked_in_is_of_a_mutant_that_exists() -> None:
    root = Path(__file__).parents[2]
    entries = explained.load(explained.FILE.read_text(encoding="utf-8"))
    files = sorted({entry.file for entry in entries})
    known = [each for file in files for each in mutants(file, (root / file).read_text(encoding="utf-8"))]
    assert explained.stale(entries, known, {}) == []


def test_a_wrong_call_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--slice", "0"], ["--jobs", "0"], ["--unknown"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
    assert "--jobs and --slice must be 1 or more" in capsys.readouterr().err
