"""The public descriptions of the interface are correct: the page "Test your own owner" and the JSON Schema."""

import json
import re
from pathlib import Path
from typing import Any, Final

import jsonschema
import msgspec
import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from conformance.adapters import identity, wire
from conformance.adapters.identity import COMMIT_MODES
from conformance.adapters.in_process import InProcess
from conformance.adapters.wire import DIRECTORY_VARIABLE
from conformance.command.application import application
from conformance.command.listing import files
from conformance.history import translation
from conformance.history.events import Promise
from conformance.interface import messages as m
from conformance.interface.messages import name_of
from conformance.models.owner import ModelOwner
from conformance.mutants import all_mutants
from conformance.programs.cases import run_case
from conformance.requirements.catalogue import Profile, Side, load
from conformance.running.worker import check_named
from conformance.subjects import smoke as smoke_module
from conformance.subjects.names import FORMS
from conformance.subjects.smoke import CLIENT_SECTION, PAGE

PAGE_FILE: Final = files()["TEST_YOUR_OWNER.md"]
TEXT: Final = PAGE_FILE.read_text(encoding="utf-8")
ANCHORS: Final = {
    re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-")
    for heading in re.findall(r"^#+ (.*)$", TEXT, re.MULTILINE)
}
CLIENTS: Final = TEXT.split("### A client instead of an owner", 1)[1]
OF_CLIENTS: Final = (
    m.Snapshot, m.Transact, m.TransactGroup, m.Snapshots, m.Checkpoint, m.Compact, m.Checksum, m.Cleanup, m.Maintain,
)  # fmt: skip
TO_OWNERS: Final = [request for request in m.ANSWERS if request not in OF_CLIENTS]


def rows(first: str, text: str = TEXT) -> dict[str, list[str]]:
    """The cells of each row of the table whose head begins with `first`, by the row's first cell."""
    table = text.split(f"\n| {first} |", 1)[1].split("\n\n", 1)[0]
    table_rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {cells[0]: cells[1:] for cells in table_rows}


@pytest.mark.parametrize("request_type", TO_OWNERS, ids=name_of)
def test_every_operation_has_its_row_with_its_fields_and_answers(request_type: type[m.Request]) -> None:
    name = name_of(request_type)
    request, answers = rows("operation")[f"[`{name}`](#{name})"]
    documented = set(re.findall(r"`(\w+\??)`", request))
    either = {"load_table": {"name?", "path?"}, "commit": {"actions?", "staged_file?"}}.get(name, set())
    fields = {f"{field.name}?" if not field.required else field.name for field in msgspec.structs.fields(request_type)}
    assert documented == fields
    assert either <= documented
    assert re.findall(r"`(\w+)`", answers) == [name_of(answer) for answer in m.ANSWERS[request_type]]


def test_every_operation_has_its_section_with_pseudocode_or_prose() -> None:
    assert {name_of(request) for request in TO_OWNERS} <= ANCHORS
    for request in TO_OWNERS:
        section = TEXT.split(f"### `{name_of(request)}`", 1)[1].split("\n#", 1)[0]
        assert "```" in section, name_of(request)


def test_common_answers_are_documented() -> None:
    for kind in m.REFUSALS:
        assert f"`{name_of(kind)}`" in TEXT
    for request in OF_CLIENTS:
        assert f"`{name_of(request)}`" in CLIENTS


def test_every_profile_commit_mode_and_promise_is_explained() -> None:
    explained = {word for cell in rows("profile") for word in re.findall(r"`([\w-]+)`", cell)}
    assert explained == {profile.value for profile in set(Profile) - {Profile.CHANGE_DATA, Profile.ROW_TRACKING}}
    of_clients = {word for cell in rows("profile", CLIENTS) for word in re.findall(r"`([\w-]+)`", cell)}
    required = {requirement.profile.value for requirement in load().requirements if requirement.side is not Side.OWNER}
    assert of_clients == required | {"inline", "direct-publish"}
    assert {word.strip("`") for word in rows("commit mode")} == set(COMMIT_MODES)
    for promise in Promise:
        assert f"`{promise.value}`" in TEXT


def test_the_conversation_on_the_page_is_valid() -> None:
    lines = [line for line in TEXT.splitlines() if line.startswith('{"id"')]
    assert len(lines) == 2
    call, reply = msgspec.json.decode(lines[0], type=m.Call), msgspec.json.decode(lines[1], type=m.Reply)
    assert call.id == reply.id
    assert isinstance(reply.answer, m.Identity)
    assert identity.contradictions(reply.answer) == []
    assert json.loads(lines[0])["request"] == {"op": "hello"}


def test_smoke_links_to_the_page() -> None:
    assert PAGE_FILE.parts[-2:] == tuple(PAGE.split("/"))
    source = Path(smoke_module.__file__).read_text(encoding="utf-8")
    named = {*re.findall(r'[")], "([a-z0-9_-]+)"\)', source), CLIENT_SECTION}
    assert {"hello", "create_table", "observe"} <= named
    assert named <= ANCHORS


def test_every_link_has_a_target() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        if target.startswith("#"):
            assert target[1:] in ANCHORS
        elif target.startswith("https:"):
            assert target.startswith("https://github.com/delta-io/delta")  # the Delta documents
        else:
            file, _, anchor = target.partition("#")
            text = (PAGE_FILE.parent / file).read_text("utf-8")
            assert f"\n## {anchor.replace('-', ' ')}\n" in text.lower() or not anchor, target


def test_the_commands_on_the_page_exist() -> None:
    group = get_command(application)
    assert isinstance(group, typer.core.TyperGroup)
    commands = re.findall(r"delta-commit-conformance (\w+)([^\n`]*)", TEXT)
    assert {"smoke", "run", "replay", "list"} <= {name for name, _ in commands}
    for name, rest in commands:
        options = {option for parameter in group.commands[name].params for option in parameter.opts}
        assert set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", rest.split("#")[0])) <= options, name + rest
    run = {option for parameter in group.commands["run"].params for option in parameter.opts}
    for option in ("--timeout", "--write-known", "--known", "-n"):
        assert f"`{option}" in TEXT or f" {option} " in TEXT
        assert option in run


def test_other_names_on_the_page_exist() -> None:
    assert DIRECTORY_VARIABLE in TEXT
    for name in re.findall(r"conformance examples ([\w.]+)", TEXT):
        assert name in files()
    for form in ("stdio:COMMAND WITH ARGUMENTS", "http:URL", "python:MODULE:CLASS"):
        assert form in TEXT
        assert form in FORMS
    assert all_mutants()


# The JSON Schema


SAMPLES: dict[type, m.Answer] = {
    m.Identity: m.Identity(name="n", version="1", interface_version=1, side="owner", profiles=("core",)),
    m.Table: m.Table(table="t", feature="catalogManaged", commit_mode="inline", latest=3),
    m.Ratified: m.Ratified(version=3),
    m.Landed: m.Landed(version=3),
    m.Commits: m.Commits(commits=(), latest=3),
    m.Policy: m.Policy(allowed=("checkpoint",)),
    m.Observation: m.Observation(files=()),
    m.SnapshotRead: m.SnapshotRead(version=3, files=()),
    m.Committed: m.Committed(version=3),
}


def validator(which: str) -> jsonschema.Draft202012Validator:
    whole = m.schema()
    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{which}", "$defs": whole["$defs"]})


def is_valid(which: str, text: bytes) -> bool:
    return bool(validator(which).is_valid(json.loads(text)))


def test_the_released_file_is_up_to_date() -> None:
    assert m.SCHEMA_FILE.read_text(encoding="utf-8") == m.schema_text(), (
        "delta-commit-conformance schema interface > that file"
    )


def test_the_schema_can_be_printed_whole_and_by_message() -> None:
    printed = json.loads(CliRunner().invoke(application, ["schema", "interface"]).output)
    assert printed["x-interface-version"] == m.INTERFACE_VERSION
    jsonschema.Draft202012Validator.check_schema(printed)
    commit = json.loads(CliRunner().invoke(application, ["schema", "interface", "commit"]).output)
    assert commit["properties"] == printed["$defs"]["Commit"]["properties"]
    assert commit["x-answers"] == printed["x-answers"]["commit"]
    assert json.loads(CliRunner().invoke(application, ["schema", "interface", "Call"]).output)["title"] == "Call"
    unknown = CliRunner().invoke(application, ["schema", "interface", "comit"])
    assert unknown.exit_code == 2
    assert "unknown message 'comit'" in unknown.output


def test_real_calls_and_replies_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every message to the model and from it is valid on the wire."""
    original, operations = InProcess.ask, set[str]()
    calls, replies = validator("Call"), validator("Reply")

    def ask(subject: InProcess, client: str, request: m.Request) -> m.Answer:
        answer = original(subject, client, request)
        call, reply = m.Call(id=7, client=client, request=request), m.Reply(id=7, answer=answer)
        calls.validate(json.loads(wire.encode(call)))
        replies.validate(json.loads(wire.encode(reply)))
        assert (wire.decode(wire.encode(call), m.Call), wire.decode(wire.encode(reply), m.Reply)) == (call, reply)
        operations.add(name_of(request))
        return answer

    monkeypatch.setattr(InProcess, "ask", ask)
    check = check_named("any-sequence-of-requests")
    assert run_case(check, check.variants(ModelOwner().hello("kit", m.Hello()))[0], InProcess(ModelOwner())).held
    assert len(operations) > 10


WRONG: dict[str, Any] = {
    "no id": {"answer": {"outcome": "done"}},
    "an id that is a string": {"id": "1", "answer": {"outcome": "done"}},
    "no outcome": {"id": 1, "answer": {}},
    "an unknown outcome": {"id": 1, "answer": {"outcome": "okay"}},
    "no version": {"id": 1, "answer": {"outcome": "ratified"}},
    "a misspelt field": {"id": 1, "answer": {"outcome": "conflict", "lastest": 1}},
    "a misspelt field of a commit": {
        "id": 1,
        "answer": {"outcome": "commits", "latest": 1, "commits": [{"version": 1, "filename": "x"}]},
    },
    "a misspelt field of a file": {
        "id": 1,
        "answer": {"outcome": "observation", "files": [{"name": "x", "size": 1, "contents": "x"}]},
    },
}


@pytest.mark.parametrize("reply", WRONG.values(), ids=WRONG)
def test_the_schema_rejects_the_messages_that_the_types_reject(reply: Any) -> None:
    text = json.dumps(reply).encode()
    assert not is_valid("Reply", text)
    with pytest.raises(msgspec.ValidationError):
        wire.decode(text, m.Reply)
    right = json.dumps({"id": 1, "answer": {"outcome": "conflict", "latest": 1}}).encode()
    assert is_valid("Reply", right)
    assert wire.decode(right, m.Reply).answer == m.Conflict(latest=1)


def test_every_request_has_its_answers() -> None:
    assert set(m.ANSWERS) == set(m.Request.__args__)
    assert {kind for request in m.ANSWERS for kind in m.answers_to(request)} == set(m.Answer.__args__)
    assert m.belongs(m.DropTable(table="t"), m.Done())
    assert not m.belongs(m.DropTable(table="t"), m.Gap())


def test_every_answer_to_a_request_has_an_event() -> None:
    requests: list[m.Request] = [
        m.Commit(table="t", version=1, attempt="a", actions=()),
        m.CreateTable(name="t", feature="managedCommit", commit_mode="staged", attempt="a", actions=()),
        m.TakeOver(
            path="p", name="t", feature="managedCommit", commit_mode="staged", version=1, attempt="a", actions=()
        ),
        m.HandBack(table="t", version=1, attempt="a", actions=()),
        m.AttemptOutcome(table="t", attempt="a"),
        m.GetCommits(table="t"),
        m.LoadTable(name="t"),
        m.BackfillToVersion(table="t", version=1),
        m.Snapshot(table="t"),
        m.Transact(table="t", marker="a"),
        m.MaintenancePolicy(table="t"),
        m.DropTable(table="t"),
    ]
    for request in requests:
        for kind in m.answers_to(type(request)):
            answer = SAMPLES.get(kind) or kind()
            assert translation.answer(request, answer) is not None, (name_of(request), name_of(kind))
