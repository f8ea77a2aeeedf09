"""Subjects by name: each form, the errors for invalid names, and `serve`, which offers one to other processes."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.adapters.http import HttpServer
from conformance.adapters.in_process import InProcess
from conformance.interface import messages as m
from conformance.interface.results import Verdict
from conformance.interface.subject import AdapterError, UsageError
from conformance.models.owner import ModelOwner
from conformance.programs.cases import run_case
from conformance.subjects import names
from conformance.subjects.names import FORMS, handler_of, open_subject
from conformance.subjects.serving import Served, make_durable
from conformance.teaching.learn import judges
from spec_tests.conformance.asking import Asking

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


@pytest.mark.parametrize("name", ["", "   ", "stdio:", "http:", "python:", "mutant:", "model:x", "nonsense", "stdio"])
def test_the_error_for_an_unknown_name_lists_the_forms(name: str) -> None:
    problem = refused(name)
    assert problem.endswith(FORMS.rstrip())
    assert repr(name) in problem


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
    with pytest.raises(AdapterError, match="Mute has no method 'hello'"):
        open_subject(f"python:{SUBJECTS}:Mute")


def test_every_documented_form_works(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    monkeypatch.setattr("conformance.adapters.uc.owner.UcSubject", lambda *args, **options: opened.append(args))
    monkeypatch.setattr("conformance.adapters.jvm.machine.java", lambda: "java")
    monkeypatch.setattr("conformance.adapters.jvm.jars.classpath", lambda group, **options: "")
    for kind in ("InProcessSubject", "StdioSubject", "HttpSubject"):
        monkeypatch.setattr(names, kind, lambda *args, **options: opened.append(args))
    for line in FORMS.splitlines():
        for form in line.split("   ")[0].split(", "):
            name = form.strip().strip('"')
            if not name or name in ("python:MODULE:CLASS", "mutant:ID", "good:ID") or name.startswith("engine:"):
                continue  # placeholders instead of names
            open_subject(name)
    assert len(opened) == 10


# The command `serve`


LONG = 120.0
SERVE = [sys.executable, "-m", "conformance", "serve"]


def test_an_invalid_call_is_an_error_without_a_traceback() -> None:
    ran = subprocess.run([*SERVE, "model"], input=b"hello\n", capture_output=True, timeout=LONG)
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert ran.stderr.startswith(b"error: `hello` is not a call of the interface")


def test_a_served_model_finds_its_state_after_a_restart(tmp_path: Path) -> None:
    """The model keeps its state in memory, and a served model in files."""
    first, second = ModelOwner(), ModelOwner()
    make_durable(first, tmp_path)
    before, after = Asking(InProcess(first)), Asking(InProcess(second))
    before.table("a/b ü")
    (sent,) = before.table("orders").land(1)
    make_durable(second, tmp_path)
    after.expect(m.Ratified, sent)
    after.expect(m.Table, m.LoadTable(name="a/b ü"))
    assert sorted(second.saved) == sorted(first.saved) == ["a/b ü-0", "orders-1"]
    del second.saved["orders-1"]
    assert list(second.saved) == ["a/b ü-0"]
    with pytest.raises(KeyError):
        del second.saved["orders-1"]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("name", "verdict"), [("model", Verdict.PASSED), ("mutant:replay-is-a-conflict", Verdict.FAILED)]
)
def test_a_case_has_the_same_verdict_over_every_transport(name: str, verdict: Verdict, tmp_path: Path) -> None:
    check, program = judges()["an immediate replay is ratified"]
    with HttpServer(Served(handler_of(name), tmp_path).ask) as server:
        for form in (name, f"stdio:{shlex.join(SERVE)} {name}", server.url):
            with open_subject(form, timeout=LONG) as subject:
                result = run_case(check, check.variants(subject.identity)[0], subject, reproduction=program)
                assert result.verdict == verdict, form


def test_a_client_uses_the_owner_that_hello_names(tmp_path: Path) -> None:
    served = Served(handler_of(f"python:{SUBJECTS}:Client"), tmp_path)
    with pytest.raises(AdapterError, match="the first request is `hello`"):
        served.ask("a", m.DropTable(table="t"))
    with pytest.raises(AdapterError, match="must name its owner in `owner_url`"):
        served.ask("a", m.Hello())
    for reason in ("first", "second"):
        owner = lambda client, request, reason=reason: (  # noqa: E731
            ModelOwner().hello(client, request) if isinstance(request, m.Hello) else m.Rejected(reason=reason)
        )
        with HttpServer(owner) as server:
            assert isinstance(served.ask("kit", m.Hello(owner_url=server.url)), m.Identity)
            assert served.ask("a", m.DropTable(table="t")) == m.Rejected(reason=reason)
    served.close()
