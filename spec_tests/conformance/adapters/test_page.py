"""The page "Test your own owner" is correct: every operation, field, profile, command and link."""

import json
import re
from pathlib import Path
from typing import Final

import msgspec
import pytest
import typer
from typer.main import get_command

from conformance.adapters import identity
from conformance.adapters.identity import COMMIT_MODES
from conformance.adapters.wire import DIRECTORY_VARIABLE
from conformance.command.application import application
from conformance.command.listing import files
from conformance.history.events import Promise
from conformance.interface import messages as m
from conformance.interface.messages import ANSWERS, REFUSALS, name_of
from conformance.mutants.registry import all_mutants
from conformance.requirements.catalogue import Profile
from conformance.subjects import smoke
from conformance.subjects.names import FORMS
from conformance.subjects.smoke import PAGE

PAGE_FILE: Final = files()["TEST_YOUR_OWNER.md"]
TEXT: Final = PAGE_FILE.read_text(encoding="utf-8")
ANCHORS: Final = {
    re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-")
    for heading in re.findall(r"^#+ (.*)$", TEXT, re.MULTILINE)
}
OF_CLIENTS: Final = (m.Snapshot, m.Transact, m.Checkpoint, m.Compact, m.Checksum, m.Cleanup, m.Maintain)
TO_OWNERS: Final = [request for request in ANSWERS if request not in OF_CLIENTS]


def rows(first: str) -> dict[str, list[str]]:
    """The cells of each row of the table whose head begins with `first`, by the row's first cell."""
    table = TEXT.split(f"\n| {first} |", 1)[1].split("\n\n", 1)[0]
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
    assert re.findall(r"`(\w+)`", answers) == [name_of(answer) for answer in ANSWERS[request_type]]


def test_every_operation_has_its_section_with_pseudocode_or_prose() -> None:
    assert {name_of(request) for request in TO_OWNERS} <= ANCHORS
    for request in TO_OWNERS:
        section = TEXT.split(f"### `{name_of(request)}`", 1)[1].split("\n#", 1)[0]
        assert "```" in section, name_of(request)


def test_common_answers_are_documented() -> None:
    for kind in REFUSALS:
        assert f"`{name_of(kind)}`" in TEXT
    for request in OF_CLIENTS:
        assert f"`{name_of(request)}`" in TEXT


def test_every_profile_commit_mode_and_promise_is_explained() -> None:
    explained = {word for cell in rows("profile") for word in re.findall(r"`([\w-]+)`", cell)}
    of_clients = {Profile.CHANGE_DATA, Profile.ROW_TRACKING}
    assert explained == {profile.value for profile in set(Profile) - of_clients}
    assert all(f"`{profile.value}`" in TEXT for profile in of_clients)
    assert {word.strip("`") for word in rows("commit mode")} == set(COMMIT_MODES)
    for promise in set(Promise) - {Promise.FRESH_SNAPSHOTS}:  # a client promises this one
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
    source = Path(smoke.__file__).read_text(encoding="utf-8")
    named = set(re.findall(r'(?:see=|, )"([a-z_]+)"\)', source)) - {"surrogatepass"}
    assert {"hello", "get_commits", "observe", "plant"} <= named
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
    assert "commit-owner-subject" in TEXT
    assert all_mutants()
