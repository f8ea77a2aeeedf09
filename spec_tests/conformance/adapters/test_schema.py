"""The JSON Schema of the interface: it is up to date, and it accepts the messages that are really exchanged."""

import json
from typing import Any

import jsonschema
import msgspec
import pytest
from typer.testing import CliRunner

from conformance.adapters import wire
from conformance.adapters.in_process import InProcess
from conformance.command.application import application
from conformance.history import translation
from conformance.interface import messages as m
from conformance.interface.messages import ANSWERS, REFUSALS, answers_to, belongs, name_of
from conformance.models.owner import ModelOwner
from conformance.subjects.smoke import smoke

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


class Recorded:
    """A subject with every message to it and from it, as on the wire."""

    def __init__(self) -> None:
        self.subject = InProcess(ModelOwner())
        self.identity = self.subject.identity
        self.said: list[tuple[bytes, bytes]] = []

    def ask(self, client: str, request: m.Request) -> m.Answer:
        answer = self.subject.ask(client, request)
        number = len(self.said)
        call, reply = m.Call(id=number, client=client, request=request), m.Reply(id=number, answer=answer)
        self.said.append((wire.encode(call), wire.encode(reply)))
        return answer


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


def test_real_calls_and_replies_are_valid() -> None:
    recorded = Recorded()
    assert smoke(recorded).ok  # type: ignore[arg-type]
    assert len({json.loads(call)["request"]["op"] for call, _ in recorded.said}) > 10
    calls, replies = validator("Call"), validator("Reply")
    for call, reply in recorded.said:
        calls.validate(json.loads(call))
        replies.validate(json.loads(reply))
        assert wire.decode(call, m.Call).id == wire.decode(reply, m.Reply).id


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
    assert set(ANSWERS) == set(m.Request.__args__)
    assert {kind for request in ANSWERS for kind in answers_to(request)} == set(m.Answer.__args__)
    assert belongs(m.DropTable(table="t"), m.Done())
    assert not belongs(m.DropTable(table="t"), m.Gap())


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
        for kind in answers_to(type(request)):
            answer = SAMPLES.get(kind) or kind()
            assert translation.answer(request, answer) is not None, (name_of(request), name_of(kind))


def test_the_schema_says_which_answers_belong_to_a_request() -> None:
    documented = m.schema()["x-answers"]
    assert documented["drop_table"] == ["done", *(name_of(kind) for kind in REFUSALS)]
    assert set(documented) == {name_of(request) for request in m.Request.__args__}
