"""Subjects by name: each form, and the errors for invalid names."""

import copy
import pickle
import shlex
import sys
from pathlib import Path

import pytest

from conformance.adapters.http import HttpServer
from conformance.adapters.in_process import InProcess
from conformance.interface import messages as m
from conformance.interface.subject import AdapterError, UsageError
from conformance.models.owner import ModelOwner
from conformance.subjects import names
from conformance.subjects.names import FORMS, handler_of, open_subject
from spec_tests.conformance.adapters.test_stdio import SCRIPT

HERE = "spec_tests.conformance.adapters"
SUBJECTS = "spec_tests.conformance.running.subjects"


def refused(name: str) -> str:
    with pytest.raises(UsageError) as raised:
        open_subject(name)
    return raised.value.problem


@pytest.mark.parametrize(
    "name",
    ["model", "reference", "mutant:replay-is-a-conflict", f"python:{SUBJECTS}:Quiet", f"python:{SUBJECTS}:WithFolder"],
)
def test_a_subject_in_this_process_is_opened(name: str, tmp_path: Path) -> None:
    with open_subject(name, directory=tmp_path / "own") as subject:
        assert subject.identity.side == "owner"
        assert subject.ask("a", m.GetCommits(table="unknown")) == m.NotFound()


def test_every_good_subject_and_every_mutant_has_a_name() -> None:
    from conformance.mutants.registry import all_mutants

    for each in all_mutants().values():
        handler = handler_of(f"{'mutant' if each.violates else 'good'}:{each.id}")
        assert handler.takes_owner == (each.side == "client")


@pytest.mark.processes
def test_a_process_is_opened() -> None:
    with open_subject(f"stdio:{shlex.quote(sys.executable)} -S {shlex.quote(str(SCRIPT))}", timeout=60) as subject:
        assert subject.ask("a", m.GetCommits(table="t")) == m.NotFound()


def test_a_url_is_opened_with_or_without_its_prefix() -> None:
    with HttpServer(InProcess(ModelOwner()).ask) as server:
        for name in (server.url, f"http:{server.url}", server.url.replace("http://", "http:")):
            with open_subject(name, timeout=60) as subject:
                assert subject.identity.name == "model"


def test_a_subject_gets_the_given_folder_or_a_new_one(tmp_path: Path) -> None:
    def folder(directory: Path | None) -> Path:
        with open_subject(f"python:{SUBJECTS}:WithFolder", directory=directory) as subject:
            answer = subject.ask("a", m.DropTable(table="t"))
            assert isinstance(answer, m.Rejected)
            assert (Path(answer.reason) / "here").exists()
        return Path(answer.reason)

    assert folder(tmp_path) == tmp_path
    assert tmp_path.exists()
    own = folder(None)
    assert own != tmp_path
    assert not own.exists()


@pytest.mark.parametrize("name", ["Client", "ClientOfAnyName"])
def test_a_client_gets_its_owner_directly_or_by_its_url(name: str) -> None:
    owner = InProcess(ModelOwner())
    with open_subject(f"python:{SUBJECTS}:{name}", owner=owner.ask) as subject:
        assert subject.ask("a", m.DropTable(table="t")) == m.NotFound()
    client = f"python:{SUBJECTS}:{name}"
    with HttpServer(owner.ask) as server, open_subject(client, owner_url=server.url, timeout=60) as subject:
        assert subject.ask("a", m.DropTable(table="t")) == m.NotFound()
    assert "is a client" in refused(f"python:{SUBJECTS}:{name}")


@pytest.mark.processes
def test_a_client_in_another_process_calls_the_owner_at_a_url() -> None:
    serve = f"stdio:{shlex.quote(sys.executable)} -m conformance serve python:{SUBJECTS}:Client"
    with open_subject(serve, owner=InProcess(ModelOwner()).ask, timeout=60) as subject:
        assert subject.identity.side == "client"
        assert subject.ask("a", m.Hello()) == subject.identity
        assert subject.ask("a", m.DropTable(table="t")) == m.NotFound()


@pytest.mark.parametrize("name", ["", "   ", "stdio:", "http:", "python:", "mutant:", "model:x", "nonsense", "stdio"])
def test_the_error_for_an_unknown_name_lists_the_forms(name: str) -> None:
    problem = refused(name)
    assert problem.endswith(FORMS.rstrip())
    assert repr(name) in problem


def test_a_subject_name_is_required() -> None:
    with pytest.raises(TypeError):
        open_subject()  # type: ignore[call-arg]


NEAR = {
    "refrence": "did you mean 'reference'",
    "mutants:replay-is-a-conflict": "did you mean 'mutant'",
    "studio:python owner.py": "did you mean 'stdio'",
    "python owner.py": "for a command: 'stdio:python owner.py'",
    "./owner": "for a command: 'stdio:./owner'",
    "mutant:replay-is-a-conflikt": "did you mean 'replay-is-a-conflict'",
    "good:replay-is-a-conflict": "did you mean 'mutant:replay-is-a-conflict'?",
    f"python:{SUBJECTS}:Quite": "did you mean 'Quiet'",
    "python:my_owner.py:Owner": "a module is named without its file's ending: 'my_owner'",
}


@pytest.mark.parametrize(("name", "hint"), NEAR.items(), ids=NEAR)
def test_a_similar_name_is_suggested(name: str, hint: str) -> None:
    assert hint in refused(name)


WRONG = {
    "stdio:'owner": "invalid command line: no closing quotation",
    "http:///path": "has no host",
    "http://127.0.0.1:99999/": "Port out of range",
    "http://user:secret@127.0.0.1:8080/": "must not contain a user or a password",
    "python:json": "a Python subject is python:MODULE:CLASS",
    "python:no_such_module:Owner": "there is no module 'no_such_module'",
    f"python:{HERE}.no_such_module:Owner": f"there is no module '{HERE}.no_such_module'",
    "python:raises_when_imported:Owner": "failed: RuntimeError: no configuration",
    "python:imports_a_missing_library:Owner": "No module named 'a_library_that_is_not_installed'",
    f"python:{SUBJECTS}:NUMBER": "'NUMBER' is a int; it must be a class",
    f"python:{SUBJECTS}:Raises": "its constructor raised OSError: no database at port 5432",
    f"python:{SUBJECTS}:AsksForMore": "its constructor requires password",
}


@pytest.fixture
def broken_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "raises_when_imported.py").write_text("raise RuntimeError('no configuration')\n", "utf-8")
    (tmp_path / "imports_a_missing_library.py").write_text("import a_library_that_is_not_installed\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("broken_modules")
@pytest.mark.parametrize(("name", "words"), WRONG.items(), ids=WRONG)
def test_the_error_for_an_invalid_name_has_the_reason(name: str, words: str) -> None:
    printed = refused(name)
    assert words in printed
    assert "secret" not in printed


def test_a_class_without_hello_is_an_adapter_error() -> None:
    with pytest.raises(AdapterError) as raised:
        open_subject(f"python:{SUBJECTS}:Mute")
    assert "Mute has no method 'hello'" in raised.value.problem


def test_a_subject_in_another_process_has_no_handler() -> None:
    with pytest.raises(UsageError) as raised:
        handler_of("stdio:owner")
    assert "runs in another process" in raised.value.problem


def test_an_errors_problem_survives_pickling() -> None:
    error = UsageError("no such subject")
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301
        assert type(twin) is UsageError
        assert twin.problem == "no such subject"


def test_every_documented_form_works(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    monkeypatch.setattr("conformance.adapters.uc.owner.UcSubject", lambda *args, **options: opened.append(args))
    monkeypatch.setattr("conformance.adapters.jvm.machine.java", lambda: "java")
    monkeypatch.setattr("conformance.jars.classpath", lambda group, **options: "")
    for kind in ("InProcessSubject", "StdioSubject", "HttpSubject"):
        monkeypatch.setattr(names, kind, lambda *args, **options: opened.append(args))
    for line in FORMS.splitlines():
        for form in line.split("   ")[0].split(", "):
            name = form.strip().strip('"')
            if not name or name in ("python:MODULE:CLASS", "mutant:ID", "good:ID") or name.startswith("engine:"):
                continue  # placeholders instead of names
            open_subject(name)
    assert len(opened) == 10
