"""Reports on disk: files are written whole, one run at a time uses a folder, bundles are complete, and no other file
changes.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from conformance import reports
from conformance.checkers.check import check_file
from conformance.interface.results import RunResult, Verdict
from conformance.reports import folder as folders
from conformance.reports.stored import bundle_name, finding_of_case
from spec_tests.conformance.reports import runs
from spec_tests.conformance.reports.test_data_reports import hostile
from spec_tests.support.sampling import sampled

NAMES = {"result.json", "junit.xml", "summary.md", "badge.json", "index.html"}
BUNDLE = {"finding.json", "history.jsonl", "README.md"}


def result(number: int = 3) -> RunResult:
    bad = [runs.failed(path) for path in runs.histories("bad")[:number]]
    return runs.run(*bad, runs.passed(runs.histories("good")[0]))


def there(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {folders.LOCK}


def test_all_reports_and_a_bundle_for_each_finding_are_written(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "report"
    written = reports.write(result(), folder)
    assert {path.relative_to(folder).as_posix() for path in written} == there(folder)
    failing = [case for case in result().cases if case.verdict is Verdict.FAILED]
    bundles = {f"findings/{bundle_name(case)}/{name}" for case in failing for name in BUNDLE}
    assert there(folder) == NAMES | bundles
    assert reports.from_json((folder / "result.json").read_bytes()) == result()


def test_a_bundle_is_enough_to_reproduce_the_failure(tmp_path: Path) -> None:
    run = result(1)
    case = run.cases[0]
    written = reports.write_bundle(run, case, tmp_path / "bundle")
    assert {path.name for path in written} == BUNDLE
    finding = reports.read_finding(tmp_path / "bundle" / "finding.json")
    assert finding == finding_of_case(run, case)
    assert (finding.case, finding.seed, finding.profile) == (case.case, 7, "quick")
    assert finding.subject == run.subject
    verdict = check_file(tmp_path / "bundle" / "history.jsonl")
    assert [violation.message for violation in verdict.violations] == [
        violation.message for violation in case.violations
    ]
    readme = (tmp_path / "bundle" / "README.md").read_text("utf-8")
    assert "delta-commit-conformance replay FOLDER/finding.json" in readme
    assert case.violations[0].requirements[0] in readme


def test_each_failing_program_of_a_case_has_its_own_bundle(tmp_path: Path) -> None:
    one, other = result(2).cases[:2]
    assert one.history and other.history
    case = runs.failed_twice(one, other)
    further = case.violations[len(one.violations) :]
    run = runs.run(case)
    reports.write(run, tmp_path)
    assert reports.from_json((tmp_path / "result.json").read_bytes()) == run
    folders_ = {path.name for path in (tmp_path / "findings").iterdir()}
    assert folders_ == {bundle_name(one), f"{bundle_name(one)}-1"}
    page = (tmp_path / "index.html").read_text("utf-8")
    assert all(f"play {tmp_path}/findings/{name}/finding.json" in page for name in folders_)
    finding = reports.read_finding(tmp_path / "findings" / f"{bundle_name(one)}-1" / "finding.json")
    assert (finding.title, finding.operations, finding.reproduction) == ("Other.", 7, '{"seed":2}')
    assert finding.violations == further
    verdict = check_file(tmp_path / "findings" / f"{bundle_name(one)}-1" / "history.jsonl")
    assert [shown.message for shown in verdict.violations] == [shown.message for shown in further]


def test_a_case_without_a_history_has_a_bundle_without_one(tmp_path: Path) -> None:
    run = result(1)
    reports.write_bundle(run, run.cases[0], tmp_path)
    bare = msgspec.structs.replace(run.cases[0], history=None)
    reports.write_bundle(run, bare, tmp_path)
    assert there(tmp_path) == {"finding.json", "README.md"}
    assert reports.read_finding(tmp_path / "finding.json").history is None


def test_a_history_is_not_accepted_as_a_finding(tmp_path: Path) -> None:
    run = result(1)
    reports.write_bundle(run, run.cases[0], tmp_path)
    with pytest.raises(reports.ReportError) as raised:
        reports.read_finding(tmp_path / "history.jsonl")
    assert "check" in raised.value.problem
    for content in (b"", b"{}", b"\xff\xfe", b"[" * 100_000):
        (tmp_path / "other.json").write_bytes(content)
        with pytest.raises(reports.ReportError, match="is not a finding"):
            reports.read_finding(tmp_path / "other.json")
    with pytest.raises(reports.ReportError):
        reports.read_finding(tmp_path / "nothing.json")


def test_bundle_names_are_valid_and_distinct(tmp_path: Path) -> None:
    case = result(1).cases[0]
    names = ["a/b[c/d]", "a/B[c/d]", "a/b[c-d]", "../../etc/passwd", "x" * 500, "x" * 501, "\x00\ud800", "", "."]
    names_in_lower_case = {bundle_name(msgspec.structs.replace(case, case=name)).lower() for name in names}
    assert len(names_in_lower_case) == len(names)
    for name in names_in_lower_case:
        assert Path(name).name == name and len(name) < 100
        (tmp_path / name).mkdir()


def test_findings_of_an_earlier_run_are_deleted_and_other_files_kept(tmp_path: Path) -> None:
    reports.write(result(3), tmp_path)
    gone = tmp_path / "findings" / bundle_name(result(3).cases[2])
    kept = tmp_path / "findings" / bundle_name(result(3).cases[1])
    for path in (tmp_path / "mine.txt", kept / "notes.txt", tmp_path / "findings" / "mine" / "a.txt"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    (tmp_path / ".unfinished-report-1").write_text("left by a killed run")
    reports.write(result(1), tmp_path)
    assert not gone.exists()
    assert {path.name for path in kept.iterdir()} == {"notes.txt"}
    assert (tmp_path / "mine.txt").exists() and (tmp_path / "findings" / "mine" / "a.txt").exists()
    assert not (tmp_path / ".unfinished-report-1").exists()


def test_two_writes_of_one_result_give_the_same_bytes(tmp_path: Path) -> None:
    reports.write(hostile(), tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in there(tmp_path)}
    reports.write(hostile(), tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in there(tmp_path)} == before


def test_another_process_is_kept_out_until_the_first_ends(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib; from conformance import reports\n"
        "with reports.ReportFolder(pathlib.Path(sys.argv[1])):\n"
        "    print('mine', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == b"mine\n"
        with pytest.raises(reports.FolderInUseError):
            reports.write(result(), tmp_path)
        other.kill()
    assert reports.write(result(), tmp_path)


def test_an_unwritable_folder_is_an_error_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(reports.ReportError, match=re.escape(str(path))):
            reports.write(result(), path)


@pytest.mark.parametrize("at", sampled(range(8), 3))
def test_an_interrupt_leaves_only_complete_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Ctrl-C arrives just before the n-th file is renamed."""
    reports.write(result(1), tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in there(tmp_path)}
    reports.write(result(3), tmp_path / "after")
    replace, calls = Path.replace, iter(range(100))

    def interrupted(self: Path, target: Path) -> Path:
        if next(calls) == at:
            raise KeyboardInterrupt
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reports.write(result(3), tmp_path)
    monkeypatch.undo()
    for name in there(tmp_path):
        if not name.startswith("after/"):
            assert not Path(name).name.startswith(".unfinished")
            after = tmp_path / "after" / name
            whole = {before.get(name), *([after.read_bytes()] if after.exists() else [])}
            written = (tmp_path / name).read_bytes()
            assert nameless(written, tmp_path) in {nameless(content, tmp_path) for content in whole if content}


def nameless(content: bytes, folder: Path) -> bytes:
    """The content without the name of its own folder, which some reports contain."""
    return content.replace(os.fsencode(folder / "after"), b"").replace(os.fsencode(folder), b"")
