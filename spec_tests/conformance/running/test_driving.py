"""A subject in a worker: what is counted, what is opened anew, and what no result may hold."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from conformance.adapters.stdio import StdioSubject
from conformance.interface.messages import Hello
from conformance.interface.subject import AdapterError
from conformance.results import Verdict
from conformance.running.errors import UnusableError
from conformance.running.worker import (
    ActivityMonitor,
    DrivenSubject,
    Open,
    RunCase,
    SubjectFolders,
    demand_same,
    is_remote,
)
from conformance.subjects.names import open_subject
from spec_tests.conformance.running.cases import MUST, ONE, case, identity

OURS = "python:spec_tests.conformance.running.subjects"


@pytest.fixture(autouse=True)
def _own_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker changes where its process has temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", tempfile.gettempdir())


def opened(subject: str, directory: Path) -> DrivenSubject:
    return DrivenSubject(Open(subject=subject, timeout=5.0, directory=str(directory), salt=""))


def one(seed: int = 1) -> RunCase:
    return RunCase(check=ONE.name, feature="catalogManaged", commit_mode="staged", seed=seed, count=1)


def test_every_answer_counts_as_activity() -> None:
    activity = ActivityMonitor()
    with activity.watch(open_subject("model")) as subject:
        subject.ask("a", Hello())
        assert activity.answers == 1
        beside = subject.beside()  # type: ignore[attr-defined]
        assert isinstance(beside, StdioSubject)
        assert subject.beside() is beside  # type: ignore[attr-defined]
        beside.ask("a", Hello())
        assert activity.answers == 2


def test_a_subject_is_reopened_after_a_failed_case(tmp_path: Path) -> None:
    good, bad = opened("model", tmp_path_of(tmp_path, "good")), opened(f"{OURS}:Wrong", tmp_path_of(tmp_path, "bad"))
    for driven, verdict, folders in ((good, Verdict.PASSED, ["1"]), (bad, Verdict.FAILED, ["1", "2"])):
        assert driven.run(one()).verdict is verdict
        directory = Path(driven._task.directory)
        assert sorted(path.name for path in directory.iterdir() if path.name.isdecimal()) == folders
        driven.close()


def tmp_path_of(tmp_path: Path, name: str) -> Path:
    (tmp_path / name).mkdir()
    return tmp_path / name


def test_a_case_is_the_same_whatever_was_run_before_it(tmp_path: Path) -> None:
    driven = opened(f"{OURS}:Wrong", tmp_path)
    first = driven.run(one(1))
    driven.run(one(2))
    assert driven.run(one(1)) == first
    driven.close()


def test_no_name_of_a_folder_stays_in_a_result(tmp_path: Path) -> None:
    places = SubjectFolders(tmp_path)
    names = [str(places.subject()), tempfile.mkdtemp(prefix="conformance-")]
    assert all(name.startswith(str(tmp_path)) for name in names)
    failed = case("limits/a[x/y]", Verdict.FAILED, (MUST,), reason=f"{names[0]}/table and {names[1]}/other")
    hidden = places.hidden_in(failed)
    assert hidden.reason == "DIRECTORY/table and DIRECTORY/other"
    assert places.hidden_in(hidden) == hidden


@pytest.mark.parametrize(("name", "problem"), [("modell", "unknown subject"), (f"{OURS}:Unmakeable", "no database")])
def test_a_subject_that_cannot_be_opened_is_the_callers_problem(name: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(UnusableError) as refused:
        opened(name, tmp_path)
    assert problem in refused.value.problem


def test_a_subject_may_move_its_storage_and_change_nothing_else() -> None:
    demand_same(identity(storage="/a"), identity(storage="/b"))
    with pytest.raises(AdapterError) as refused:
        demand_same(identity("staged"), identity("inline"))
    assert "`profiles`" in refused.value.problem


@pytest.mark.parametrize(
    ("name", "remote"), [("http://h/", True), ("https:h", True), ("model", False), ("stdio:http", False)]
)
def test_only_a_url_is_shared_by_all_workers(name: str, remote: bool) -> None:
    assert is_remote(name) is remote
