"""New projects. In each language a project builds, answers every request of the interface, and begins the course."""

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from conformance.adapters import wire
from conformance.adapters.stdio import StdioSubject
from conformance.command.application import application
from conformance.command.listing import files
from conformance.interface import messages as m
from conformance.interface.messages import name_of
from conformance.subjects.smoke import CLIENT_SECTION, PAGE, Outcome, smoke
from conformance.teaching import scaffold
from conformance.teaching.scaffold import PROJECTS, Language
from spec_tests.conformance.adapters.test_page import ANCHORS, OF_CLIENTS
from spec_tests.project.test_texts import run

PATIENCE = 120.0
COMPILED = (Language.RUST, Language.GO, Language.JAVA)
WRITTEN = (m.Hello, m.Observe, m.Plant, m.Remove)
"""The operations that a new owner has."""
BLOCKS = {
    Language.PYTHON: (r"class NAME\(TypedDict\):", r"^    (\w+): ", r"\n\n\n"),
    Language.JAVASCRIPT: (r"@typedef \{Object\} NAME$", r"^ \* @property \{.+?\} \[?(\w+)", r"\*/"),
    Language.RUST: (r"struct NAME \{", r"^    pub (\w+): ", r"^\}"),
    Language.GO: (r"type NAME struct \{", r' `json:"(\w+)', r"^\}"),
    Language.JAVA: (r"record NAME\(", r" (\w+)(?=,|$)", r"\)(?: implements \w+)? \{\}$"),
}
"""In each language: the beginning of a message's type, the name of each field in it, and the end."""
EACH = [
    pytest.param(each, marks=[pytest.mark.engines, pytest.mark.xdist_group(each)] if each in COMPILED else [])
    for each in Language
]


def invoke(*words: object) -> Any:
    return CliRunner().invoke(application, [*map(str, words)], prog_name="delta-commit-conformance")


@cache
def built(language: Language, base: Path) -> Path:
    """An exercise, which is a new project with pages, with a built program. Skips the test if the language is not
    installed."""
    for tool in PROJECTS[language].tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    made = invoke("learn", base / language, "--language", language)
    assert made.exit_code == 0, made.stderr
    scaffold.build(base / language, language)
    return base / language


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(request.param, tmp_path_factory.getbasetemp())


def opened(folder: Path, home: Path) -> StdioSubject:
    return StdioSubject(scaffold.program(folder, Language(folder.name)), timeout=PATIENCE, directory=home)


def complete(kind: Any) -> Any:
    """A request with a value in every field."""
    schema = m.schema()["$defs"]

    def value(of: Any) -> Any:
        match of:
            case {"$ref": name}:
                definition = schema[name.rpartition("/")[2]]
                fields = definition.get("properties", {})
                return definition["enum"][0] if "enum" in definition else {k: value(v) for k, v in fields.items()}
            case {"anyOf": [first, *_]}:
                return value(first)
            case {"enum": [first, *_]}:
                return first
            case {"prefixItems": items}:
                return [value(item) for item in items]
            case {"items": item}:
                return [value(item)]
            case {"additionalProperties": item}:
                return {"a": value(item)}
        return {"string": "a", "integer": 2**53 + 1, "boolean": True}[of["type"]]

    return msgspec.convert(value({"$ref": kind.__name__}), type=kind)


@pytest.mark.parametrize("project", EACH, indirect=True)
def test_smoke_of_a_new_project_passes_the_steps_of_the_protocol(project: Path, tmp_path: Path) -> None:
    with opened(project, tmp_path) as subject:
        report = smoke(subject)
    assert report.steps[0].outcome is Outcome.OK
    assert report.adapter == ""
    assert "the adapter works; operations are missing" in str(report)
    assert "not implemented: see conformance/TEST_YOUR_OWNER.md#create_table" in report.owner


@pytest.mark.parametrize("project", EACH, indirect=True)
def test_a_new_project_answers_every_request(project: Path, tmp_path: Path) -> None:
    with opened(project, tmp_path / "home") as subject:
        for kind in m.ANSWERS:
            if kind not in (*WRITTEN, m.Crash, m.Restart):  # over stdio the kit itself crashes the owner
                answer = subject.ask("someone", complete(kind))
                assert isinstance(answer, m.Unsupported), kind
                section = CLIENT_SECTION if kind in OF_CLIENTS else name_of(kind)
                assert answer.reason == f"not implemented: see {PAGE}#{section}"
                assert section in ANCHORS
        table = str(tmp_path / "table")
        plant = m.Plant(table=table, file="a/0.json", content='{"é": 1}\n', if_absent=True)
        assert [subject.ask("kit", plant) for _ in range(2)] == [m.Done(), m.Conflict()]
        (tmp_path / "table/_delta_log/b.bin").write_bytes(b"\xff")
        assert subject.ask("kit", m.Observe(table=table)) == m.Observation(
            files=(m.LogFile(name="a/0.json", size=10, content='{"é": 1}\n'), m.LogFile(name="b.bin", size=1))
        )
        for file in ("a/0.json", "b.bin", "absent"):
            assert subject.ask("kit", m.Remove(table=table, file=file)) == m.Done()
        assert subject.ask("kit", m.Observe(table=table)) == m.Observation(files=())


@pytest.mark.parametrize("project", EACH, indirect=True)
def test_a_new_project_answers_null_fields_and_unknown_operations(project: Path, tmp_path: Path) -> None:
    plant = {"op": "plant", "table": str(tmp_path), "file": "a", "content": "", "if_absent": None, "modified": None}
    calls: list[dict[str, Any]] = [{"op": op} for op in ("constructor", "answer", "__init__", "Hello")]
    lines = [json.dumps({"id": 1, "client": "me", "request": request}) + "\n" for request in (plant, *calls)]
    command = scaffold.program(project, Language(project.name))
    done = subprocess.run(command, input="".join(lines).encode(), capture_output=True, check=True)
    answers = [wire.decode(line, m.Reply).answer for line in done.stdout.splitlines()]
    assert answers == [m.Done(), *[m.Unsupported(reason=f"not implemented: see {PAGE}")] * len(calls)]


@pytest.mark.parametrize("project", EACH, indirect=True)
def test_the_course_begins_in_each_language(project: Path) -> None:
    judged = invoke("learn", project, "check", "--timeout", "120s")
    assert judged.exit_code == 1, judged.output
    build = PROJECTS[Language(project.name)].build
    assert judged.stderr == (f"building: {build}\n" if build else "")
    assert "observed: `create_table` was answered `unsupported`" in judged.stdout


@pytest.mark.parametrize("project", EACH, indirect=True)
def test_an_owner_that_does_not_compile_is_shown_with_the_error(project: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(project, tmp_path / "mine")
    owner = broken / PROJECTS[Language(project.name)].owner
    owner.write_text(f"not a program\n{owner.read_text('utf-8')}", "utf-8")
    judged = invoke("learn", broken, "check", "--timeout", "120s")
    assert judged.exit_code == 2
    assert re.search(rf"{re.escape(owner.name)}\D*1(?!\d)", judged.output), judged.output


@pytest.mark.engines
def test_the_commands_at_the_beginning_of_the_page_run(tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    beginning = files()["TEST_YOUR_OWNER.md"].read_text("utf-8").partition("\n## 2. ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", beginning, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        run(["bash", "-uo", "pipefail"], tmp_path, f"{block}true\n")  # the first verdict is exit code 1
    results = [json.loads(path.read_text("utf-8")) for path in sorted(tmp_path.rglob("result.json"))]
    assert [result["exit_code"] for result in results] == [1, 0]
    assert not any(case.get("unwatched") for case in results[0]["cases"])  # the project has no log yet


@pytest.mark.parametrize("language", Language)
def test_the_types_of_each_language_have_every_message_and_field(language: Language) -> None:
    text = scaffold.files_of(language)[PROJECTS[language].types]
    for name, definition in m.schema()["$defs"].items():
        if name in ("Call", "Reply") or "enum" in definition:
            continue
        fields = set(definition["properties"]) - {"op", "outcome"}
        begin, field, end = BLOCKS[language]
        block = re.search(rf"{begin.replace('NAME', name)}(.*?){end}", text, re.DOTALL | re.MULTILINE)
        if block is None:
            assert not fields, name  # Rust has no type for it
            assert re.search(rf"^    {name},$", text, re.MULTILINE), name
            continue
        found = set(re.findall(field, block[1], re.MULTILINE)) - {"op", "outcome"}
        assert found == {scaffold.camel(name) if language is Language.JAVA else name for name in fields}, name


@pytest.mark.parametrize("on_path", ["python3", ""])
def test_the_printed_command_of_a_python_project_exists(on_path: str, tmp_path: Path) -> None:
    if on_path:
        (tmp_path / on_path).symlink_to(sys.executable)
    words = [sys.executable, "-m", "conformance", "new", tmp_path / "mine", "--language", "python"]
    done = subprocess.run(words, check=True, capture_output=True, env={**os.environ, "PATH": str(tmp_path)}, text=True)
    assert f'smoke "stdio:{on_path or sys.executable} owner.py"' in done.stdout


def test_new_writes_every_file_and_prints_the_build_and_the_subject(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda tool: tool)
    printed = invoke("new", tmp_path / "mine", "--language", "go").stdout
    assert "  go build -o my-owner .\n" in printed and 'smoke "stdio:./my-owner"' in printed
    files = {path.name: path.read_text("utf-8") for path in (tmp_path / "mine").rglob("*")}
    assert files == scaffold.files_of(Language.GO)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["{new}", "--language", "cobol"], "unknown --language 'cobol'; expected python, javascript, rust, go, java"),
        (["{new}"], "missing option '--language'"),
        (
            ["{new}", "--language", "java"],
            "javac was not found on the PATH; install a JDK 17 or newer: a project in java",
        ),
        (["{full}", "--language", "python"], "{full} is not empty; expected a new or an empty folder"),
        (["{link}", "--language", "python"], "{link} is not a folder; expected a new or an empty folder"),
        (["{file}/x/y", "--language", "python"], "{file} is not a folder; expected a new or an empty folder"),
        (["{file}", "--language", "python"], "{file} is not a folder; expected a new or an empty folder"),
    ],
)
def test_an_invalid_call_writes_nothing(
    words: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {name: tmp_path / name for name in ("new", "full", "file", "link")}
    places["full"].mkdir()
    (places["full"] / "owner.py").write_text("my work", encoding="utf-8")
    places["file"].write_text("mine", encoding="utf-8")
    places["link"].symlink_to("missing")
    monkeypatch.setenv("PATH", str(tmp_path))
    done = invoke("new", *(word.format(**places) for word in words))
    assert (done.exit_code, done.stdout) == (2, "")
    assert problem.format(**places) in done.stderr
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "full", "link", "owner.py"]
    assert (places["full"] / "owner.py").read_text(encoding="utf-8") == "my work"
