"""The kit's owner as a server of the Delta API: the shapes and statuses of its answers, and the HTTP events of its
rules.
"""

import http.client
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
import pytest

from conformance.adapters.uc.api import Staged, UnansweredError
from conformance.adapters.uc.owner import creation_of, with_requirements
from conformance.adapters.uc.server import DELTA, LEGACY, DeltaApi, DeltaApiServer
from conformance.interface import messages as m
from conformance.interface.log_names import LOG, STAGED_TABLES, commit_file
from conformance.models import proposals
from conformance.models.client_owner import ClientOwner
from conformance.models.storage import FolderStorage
from conformance.scenario.adversary import Adversary
from spec_tests.conformance.asking import Asking

NAME = "a-check-orders"
SCHEMA = f"{DELTA}/catalogs/kit/schemas/kit"
TIME = proposals.BASE_TIME
ATTEMPT = "0e4f2f0c-5d2b-4d35-9f5c-6f2f0c5d2b4d"


@dataclass
class Kit:
    """The owner with one table, and the API in front of it."""

    owner: Adversary
    api: DeltaApi
    table: str
    folder: Path

    def send(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        content = None if body is None else json.dumps(body).encode()
        status, answer = self.api.send(method, path, content, {"Authorization": "Bearer writer"})
        return status, json.loads(answer) if answer else None

    def load(self, name: str = NAME) -> tuple[int, Any]:
        return self.send("GET", f"{SCHEMA}/tables/{quote(name)}")

    def stage(self, version: int, attempt: str) -> dict[str, Any]:
        """The commit as a request describes it. Its file is in the staging folder."""
        name = f"{version:020}.{attempt}.json"
        file = self.folder / LOG / "_staged_commits" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(proposals.content(proposals.append(attempt, TIME + version)))
        return {
            "version": version, "timestamp": TIME + version, "file-name": name, "file-size": file.stat().st_size,
            "file-modification-timestamp": TIME,
        }  # fmt: skip

    def commit(self, version: int) -> tuple[int, Any]:
        update = {"action": "add-commit", "commit": self.stage(version, ATTEMPT)}
        body = {"requirements": [{"type": "assert-table-uuid", "uuid": self.table}], "updates": [update]}
        return self.send("POST", f"{SCHEMA}/tables/{NAME}", body)

    @property
    def latest(self) -> int:
        return self.owner.owner.tables[self.table].latest


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    owner = Adversary(ClientOwner(FolderStorage(tmp_path)))
    table = Asking(owner.subject).table(NAME).reference
    return Kit(owner=owner, api=DeltaApi(owner.ask), table=table, folder=tmp_path / table)


def kind_of(document: Any) -> str:
    return str(document["error"]["type"])


def test_a_client_of_the_older_calls_commits_and_lists_commits(kit: Kit) -> None:
    path, where = f"{LEGACY}/delta/preview/commits", {"table_id": kit.table, "table_uri": kit.folder.as_uri()}
    assert kit.send("GET", path, {**where, "start_version": 0})[0] == 404, "the client has not found the table"
    kit.load()
    for version, attempt in ((1, ATTEMPT), (2, ATTEMPT[::-1])):
        commit = {key.replace("-", "_"): value for key, value in kit.stage(version, attempt).items()}
        assert kit.send("POST", path, {**where, "commit_info": commit}) == (200, {})
    status, answer = kit.send("GET", path, {**where, "start_version": 0, "end_version": 1})
    assert (status, answer["latest_table_version"]) == (200, 2)
    assert [(commit["version"], commit["timestamp"]) for commit in answer["commits"]] == [(1, TIME + 1)]
    assert kit.send("POST", path, {**where, "latest_backfilled_version": 2}) == (200, {})
    assert kit.send("GET", path, {**where, "start_version": 0})[1] == {"commits": [], "latest_table_version": 2}


def test_the_older_calls_find_the_table_that_replaced_another(kit: Kit) -> None:
    find, commits = f"{LEGACY}/tables/kit.kit.{NAME}", f"{LEGACY}/delta/preview/commits"
    assert kit.send("GET", find)[1]["table_id"] == kit.table
    asking = Asking(kit.owner.subject)
    asking.expect(m.Done, m.DropTable(table=kit.table))
    asked = {"table_id": kit.table, "table_uri": kit.folder.as_uri(), "start_version": 0}
    new = asking.table(NAME).reference
    assert kit.send("GET", commits, asked)[0] == 404
    found = kit.send("GET", find)[1]
    assert (found["table_id"], found["storage_location"]) == (new, (kit.folder.parent / new).as_uri())
    assert kit.send("GET", commits, asked)[0] == 404
    assert kit.send("GET", commits, {**asked, "table_id": new}) == (200, {"commits": [], "latest_table_version": 0})


def test_a_client_creates_a_table_at_a_staged_location(kit: Kit) -> None:
    status, staged = kit.send("POST", f"{SCHEMA}/staging-tables", {"name": "new"})
    location = kit.folder.parent / STAGED_TABLES / staged["table-id"]
    creation, lines = creation_at(staged, "new")
    assert (status, staged["location"]) == (200, location.as_uri())
    assert kit.send("POST", f"{SCHEMA}/tables", creation)[0] == 400, "version 0 does not exist yet"
    (location / LOG).mkdir()
    (location / LOG / commit_file(0)).write_text(lines)
    for _ in range(2):  # a repeated request is the same creation
        status, made = kit.send("POST", f"{SCHEMA}/tables", creation)
        assert (status, made["metadata"]["table-uuid"], made["latest-table-version"]) == (200, staged["table-id"], 0)
    other = {**creation, "name": NAME}
    status, refused = kit.send("POST", f"{SCHEMA}/tables", other)
    assert (status, kind_of(refused)) == (400, "InvalidParameterValueException"), "the location has a table"


def creation_at(staged: dict[str, Any], name: str) -> tuple[dict[str, Any], str]:
    """The request that creates the staged table, and its version 0."""
    wanted = msgspec.convert(staged, Staged)
    lines = proposals.version_0("catalogManaged", "mine", name, properties=staged["required-properties"])
    content = proposals.content(with_requirements(line, wanted) for line in lines)
    return creation_of(name, wanted, content.encode()), content


@pytest.mark.parametrize(
    ("jobs", "operations"),
    [
        (("checkpoint", "vacuum", "optimize"), ["DATA_CLEANUP"]),
        (("optimize", "reorg", "metadata-cleanup"), ["DATA_REORGANIZATION", "METADATA_CLEANUP"]),
        (("checksum", "table-purge"), ["TABLE_PURGE"]),  # unknown to clients
        (None, []),
    ],
)
def test_an_answer_has_the_operations_that_the_owner_allows(
    kit: Kit, jobs: tuple[str, ...] | None, operations: list[str]
) -> None:
    """A load and an update. An owner without a policy allows none. The field of a draft tempts clients."""
    answer = m.Unsupported() if jobs is None else m.Policy(allowed=jobs)
    kit.owner.on(m.MaintenancePolicy, answer=answer, times=1000)
    for _, document in (kit.load(), kit.commit(1)):
        assert document["allowed-maintenance-operations"] == operations
        assert ("VACUUM" in document["additional-client-maintenance-operations"]) is ("DATA_CLEANUP" not in operations)


def test_a_renamed_table_changes_in_its_name_alone(kit: Kit) -> None:
    """The old name is free: a table of that name is another one."""
    before, rename = kit.load()[1], f"{SCHEMA}/tables/{NAME}/rename"
    kit.api.show(NAME)
    assert kit.send("POST", f"{SCHEMA}/tables/nope/rename", {"new-name": "sales"})[0] == 404
    assert kit.send("POST", rename, {"new-name": NAME}) == (204, None)
    assert kit.send("POST", rename, {"new-name": "sales"}) == (204, None)
    assert kit.load("sales")[1] == before
    status, refused = kit.load()
    assert (status, kind_of(refused), refused["error"].keys()) == (
        404, "NoSuchTableException", {"message", "type", "code"},
    )  # fmt: skip
    assert kit.send("GET", f"{SCHEMA}/tables")[1] == {"identifiers": [{"name": "sales"}]}
    staged = kit.send("POST", f"{SCHEMA}/staging-tables", {"name": NAME})[1]
    location = kit.folder.parent / STAGED_TABLES / staged["table-id"]
    creation, lines = creation_at(staged, NAME)
    (location / LOG).mkdir()
    (location / LOG / commit_file(0)).write_text(lines)
    made = kit.send("POST", f"{SCHEMA}/tables", creation)[1]
    assert made["metadata"]["table-uuid"] == staged["table-id"]
    status, refused = kit.send("POST", f"{SCHEMA}/tables/sales/rename", {"new-name": NAME})
    assert (status, kind_of(refused)) == (409, "AlreadyExistsException")
    assert kit.load("sales")[1] == before


def test_the_older_calls_list_tables_in_pages(kit: Kit) -> None:
    assert kit.send("GET", f"{LEGACY}/schemas?catalog_name=kit")[1]["schemas"][0]["full_name"] == "kit.kit"
    kit.api.show(NAME, "a-name-of-no-table")
    target = f"{LEGACY}/tables?catalog_name=kit&schema_name=kit"
    (listed,) = kit.send("GET", target)[1]["tables"]
    assert (listed["name"], listed["table_id"]) == (NAME, kit.table)
    assert [column["type_text"] for column in listed["columns"]] == ["bigint", "string"]
    kit.api.show(NAME, "z")
    first = kit.send("GET", f"{target}&max_results=1")[1]
    assert (len(first["tables"]), first["next_page_token"]) == (1, NAME)
    assert kit.send("GET", f"{target}&max_results=1&page_token={NAME}")[1] == {"tables": [], "next_page_token": None}
    assert kit.send("GET", f"{LEGACY}/tables/kit.kit.{NAME}")[1] == listed


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", f"{DELTA}/config?catalog=kit&protocol-versions=1.0", 200),
        ("GET", f"{DELTA}/config?catalog=other&protocol-versions=1.0", 404),
        ("HEAD", f"{SCHEMA}/tables/{NAME}", 204),
        ("POST", f"{SCHEMA}/tables/{NAME}/metrics", 400),
        ("POST", f"{SCHEMA}/tables/{NAME}/rename", 400),
        ("GET", f"{SCHEMA}/tables/{NAME}/credentials?operation=READ", 200),
        ("GET", f"{SCHEMA}/tables/{NAME}/credentials", 400),
        ("GET", f"{DELTA}/catalogs/kit/schemas/other/tables/{NAME}", 404),
        ("GET", "/api/2.0/settings/types/default_namespace_ws/names/default", 404),
        ("GET", "/elsewhere", 404),
    ],
)
def test_other_calls_have_these_statuses(kit: Kit, method: str, path: str, status: int) -> None:
    assert kit.send(method, path)[0] == status


RULES: list[tuple[str, dict[str, Any], int | None, int]] = [
    ("the request is lost", {"lose_request": True}, None, 0),
    ("the answer is lost", {"lose_answer": True}, None, 1),
    ("unavailable, nothing done", {"answer": m.Unknown(reason="503")}, 503, 0),
    ("unavailable, done", {"change": lambda _: m.Unknown(reason="503: a gateway lost the answer")}, 503, 1),
    ("the backlog is full", {"answer": m.Rejected(retryable=True)}, 429, 0),
    ("not allowed", {"answer": m.Rejected()}, 400, 0),
    ("a conflict without winners", {"answer": m.Conflict()}, 409, 0),
    ("a gap", {"answer": m.Gap()}, 400, 0),
]


@pytest.mark.parametrize(("rule", "status", "latest"), [row[1:] for row in RULES], ids=[row[0] for row in RULES])
def test_a_fault_rule_becomes_an_http_event(kit: Kit, rule: dict[str, Any], status: int | None, latest: int) -> None:
    """The identical request, sent again, is answered `ratified` if the first one landed or may land."""
    kit.owner.on(m.Commit, **rule)
    if status is None:
        with pytest.raises(UnansweredError):
            kit.commit(1)
    else:
        assert kit.commit(1)[0] == status
    assert kit.latest == latest
    assert kit.commit(1)[0] == 200
    assert kit.latest == 1


@pytest.mark.parametrize(
    ("listed", "latest", "versions"), [("published", 1, [1, 0]), ("nothing", None, []), ("as it is", 1, [1])]
)
def test_the_answer_has_the_commits_that_the_owner_lists(
    kit: Kit, listed: str, latest: int | None, versions: list[int]
) -> None:
    kit.commit(1)
    zero = m.CommitEntry(version=0, file_name=f"{0:020}.{ATTEMPT}.json")
    changes = {
        "published": lambda commits, latest: ((zero, *commits), latest),
        "nothing": lambda commits, latest: ((), None),
        "as it is": lambda commits, latest: (commits, latest),
    }
    kit.owner.override_commits(changes[listed])
    description = kit.load()[1]
    assert [commit["version"] for commit in description["commits"]] == versions
    assert description["latest-table-version"] == latest


def test_an_unanswered_request_closes_the_connection(kit: Kit) -> None:
    with DeltaApiServer(kit.owner.ask) as server:
        connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=120)
        kit.owner.on(m.GetCommits, lose_answer=True)
        connection.request("GET", f"{SCHEMA}/tables/{NAME}")
        with pytest.raises(http.client.RemoteDisconnected):
            connection.getresponse()
        connection.close()
        connection.request("GET", f"{SCHEMA}/tables/{NAME}", headers={"Authorization": "Bearer reader"})
        response = connection.getresponse()
        assert (response.status, json.loads(response.read())["latest-table-version"]) == (200, 0)
        connection.close()
    assert [exchange.client for exchange in kit.owner.exchanges[-2:]] == ["reader", "reader"]
