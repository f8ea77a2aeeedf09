"""Updates of a table over HTTP, in the order of the checks: UNITY_CATALOG.md#order-of-judging. The log decides about
the metadata: a request can only repeat it, or add what the log does not have.

Commits of clients without the Delta API, such as Sail, are updates of the Delta API: UNITY_CATALOG.md#by-id. Their
tests are about their own shapes, and about a table that is named by its id.
"""

import errno
import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

import refimpl
from refimpl.client import proposing
from refimpl.client.ownership import hand_back
from refimpl.protocol.actions import Protocol
from refimpl.protocol.commits import Ratified, StagedProposal
from refimpl.protocol.errors import OwnerUnavailableError
from refimpl.protocol.table_feature import MANAGED_COMMIT, CommitMode
from refimpl.server import answers
from refimpl.server.delta_api import DeltaApi
from refimpl.server.last_change import LastChange
from spec_tests.server.conftest import SCHEMA, Serve, inline_table
from spec_tests.server.wire import (
    BAD,
    CATALOG,
    EXHAUSTED,
    NO_TABLE,
    PROTOCOL,
    REQUIREMENT,
    START,
    UNKNOWN,
    VERSION_CONFLICT,
    WIRE_COLUMNS,
    Staged,
    WireTable,
    added,
    commit_info,
    lines,
    refusal,
    reported,
)

ENABLED = {"delta.enableInCommitTimestamps": "true"}


def setting(**properties: str) -> dict[str, Any]:
    return {"action": "set-properties", "updates": properties}


def properties(table: WireTable) -> dict[str, str]:
    loaded: dict[str, str] = table.load()["metadata"]["properties"]
    return loaded


def with_metadata(table: WireTable, version: int, *actions: dict[str, Any], **configuration: str) -> Staged:
    """A staged file whose commit has exactly these properties."""
    return table.write_staged(version, {"metaData": table.metadata({**ENABLED, **configuration})}, *actions)


def ratified_locally(table: WireTable, warehouse: refimpl.Warehouse, staged: Staged) -> None:
    """Commit a staged file without the server."""
    proposal = StagedProposal(attempt=staged.name.split(".")[1], file_name=staged.name)
    assert isinstance(warehouse.owner.commit(table.table_id, staged.version, proposal), Ratified)


# What loses


def test_loser_of_a_race_is_answered_with_the_table_on_request(table: WireTable) -> None:
    """UNITY_CATALOG.md#conflict."""
    table.land(1)
    staged = table.write_staged(1)
    plain = table.propose(staged)
    assert refusal(plain) == VERSION_CONFLICT
    table.http.headers["Prefer"] = "return=representation"
    shown = table.propose(staged)
    assert shown.status_code == 409
    assert shown.json() == {"error": plain.json()["error"], "table": table.load()}


@pytest.mark.parametrize(
    "problem",
    [OSError(errno.EIO, "disk"), OwnerUnavailableError("busy"), ZeroDivisionError()],
    ids=["disk", "busy", "defect"],
)
def test_lost_race_is_a_conflict_although_the_table_cannot_be_shown(table: WireTable, problem: Exception) -> None:
    """Any other answer would mean that the outcome is unknown."""
    table.land(1)
    table.http.headers["Prefer"] = "return=representation"
    with patch.object(DeltaApi, "load", side_effect=problem):
        answer = table.propose(table.write_staged(1))
    assert refusal(answer) == VERSION_CONFLICT
    assert "table" not in answer.json()


def test_lost_race_is_answered_before_all_other_errors(table: WireTable) -> None:
    """This loser reports versions at or above its own, has an old etag, and has removed its file."""
    table.land(1)
    staged = table.write_staged(1)
    staged.path.unlink()
    assert refusal(table.propose(staged, reported(1), etag="another")) == VERSION_CONFLICT
    assert refusal(table.propose(staged, reported(5))) == VERSION_CONFLICT


# What is refused

SOME_ID = "8a1f64b2-97d3-4c5e-b0aa-6e2c1d9f7b35"
Body = Callable[[WireTable, Staged], Any]


def beside(action: str, **members: Any) -> Body:
    """The commit, and another update, which contradicts it."""
    return lambda table, staged: table.request(added(staged), {"action": action, **members})


def alone(action: str, **members: Any) -> Body:
    return lambda table, staged: table.request({"action": action, **members})


MEMBERS: list[tuple[str, Any]] = [
    *(("version", value) for value in (0, -1, 2**63, 10**400, 1.5, True, None)),
    *(("file-size", value) for value in (0, -5, 2**64, 7)),
    *(("timestamp", value) for value in (-1, 2**63, START + 99)),
    *(("file-name", value) for value in (None, "", "x" * 100_000, "foo", "../../0000.json", f"1.{SOME_ID}.json")),
    ("file-name", f"{2:020d}.{SOME_ID}.json"),  # of another version
    ("file-name", f"{1:020d}.{SOME_ID}.json/.."),
    ("file-name", f"{1:020d}.not-a-uuid.json"),
    ("file-name", f"{1:020d}.json"),
    ("file-name", f"{1:020d}.{SOME_ID.upper()}.json"),
]
REFUSED: dict[str, Body] = {
    "no asserted uuid": lambda table, staged: {"updates": [added(staged)]},
    "null requirements": lambda table, staged: {"requirements": None, "updates": [added(staged)]},
    "two uuids": lambda table, staged: {
        "requirements": [{"type": "assert-table-uuid", "uuid": table.table_id}] * 2, "updates": [added(staged)]
    },
    "no update": lambda table, staged: table.request(),
    "two commits": lambda table, staged: table.request(added(staged), added(table.write_staged(1))),
    "two versions": lambda table, staged: table.request(added(staged), added(table.write_staged(2))),
    "two reports": lambda table, staged: table.request(reported(0), reported(0)),
    "report of a missing version": lambda table, staged: table.request(reported(99)),
    "report of the largest version": lambda table, staged: table.request(reported(2**63 - 1)),
    "another kind of table": alone("update-metadata-snapshot-version", **{"last-commit-version": 1}),
    "gap": lambda table, staged: table.request(added(table.write_staged(2))),
    "large gap": lambda table, staged: table.request(added(table.write_staged(2**63 - 1))),
    "another uuid": lambda table, staged: table.request(added(staged), table_uuid=SOME_ID),
    "another etag": lambda table, staged: table.request(added(staged), etag="etag-of-yesterday"),
    **{
        f"{member}: {str(value)[:60]}": lambda table, staged, change=(member, value): table.request(
            added(staged, **dict([change]))
        )
        for member, value in MEMBERS
    },
    "value of a property": beside("set-properties", updates={"team": "b"}),
    "removal of a property": beside("remove-properties", removals=["team"]),
    "another table's id": beside("set-properties", updates={"io.unitycatalog.tableId": "another"}),
    "another feature": beside("set-properties", updates={"delta.feature.rowTracking": "supported"}),
    "fewer columns": beside("set-columns", columns={"type": "struct", "fields": WIRE_COLUMNS[:1]}),
    "partition columns": beside("set-partition-columns", **{"partition-columns": ["id"]}),
    "comment": beside("set-table-comment", comment="something"),
    "protocol": beside("set-protocol", protocol={"min-reader-version": 1, "min-writer-version": 2}),
    "feature list": beside("set-protocol", protocol={**PROTOCOL, "writer-features": PROTOCOL["reader-features"]}),
    "value of a domain": beside("set-domain-metadata", updates={"d": {"mark": 8}}),
    "more of a domain": beside("set-domain-metadata", updates={"d": {"mark": 7, "more": None}}),
    "another domain": beside("set-domain-metadata", updates={"d": {"mark": 7}, "other": {}}),
    "removed domain": beside("set-domain-metadata", updates={"gone": {}}),
    "removal of a domain": beside("remove-domain-metadata", domains=["d"]),
    "removal of two domains": beside("remove-domain-metadata", domains=["gone", "other"]),
    "domain without a commit": alone("set-domain-metadata", updates={"d": {"mark": 7}}),
    "property that is set and removed": lambda table, staged: table.request(
        setting(team="a"), {"action": "remove-properties", "removals": ["other", "team"]}
    ),
    "property of the log": alone("set-properties", updates={"delta.enableInCommitTimestamps": "false"}),
    "delta property without a commit": alone("set-properties", updates={"delta.appendOnly": "true"}),
    "delta property that the commit lacks": beside("set-properties", updates={"delta.appendOnly": "true"}),
    "removal of a property of the log": alone("remove-properties", removals=["delta.enableInCommitTimestamps"]),
    **{
        f"secret {key}": alone("set-properties", updates={key: "hunter2"})
        for key in ("fs.s3a.secret.key", "AWS_SESSION_TOKEN", "password")
    },
}  # fmt: skip
CONFLICTS = ("another uuid", "another etag")


def domain(name: str, configuration: str, *, removed: bool = False) -> dict[str, Any]:
    return {"domainMetadata": {"domain": name, "configuration": configuration, "removed": removed}}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_refused_update_changes_nothing(table: WireTable, body: Body, request: pytest.FixtureRequest) -> None:
    """What a commit says of a file must be true, and what a request says beside its commit must be in it. Then the same
    commit lands, with updates that agree with it."""
    changed = (domain("d", '{"mark": 7, "domainName": "d"}'), domain("gone", "{}", removed=True))
    staged, before = with_metadata(table, 1, *changed, team="a"), table.state()
    answer = table.send(body(table, staged))
    assert refusal(answer) == (REQUIREMENT if request.node.callspec.id in CONFLICTS else BAD)
    assert "hunter2" not in answer.text
    assert table.state() == before
    landed = table.propose(
        staged,
        {"action": "set-columns", "columns": {"type": "struct", "fields": WIRE_COLUMNS}},
        {"action": "set-table-comment"},
        {"action": "set-domain-metadata", "updates": {"d": {"mark": 7}}},
        {"action": "remove-domain-metadata", "domains": ["gone"]},
        setting(team="a", **ENABLED, **{"delta.feature.catalogManaged": "supported"}),
        etag=before[2],
    )
    assert landed.status_code == 200, landed.text
    assert properties(table)["team"] == "a"


def test_wrong_table_uuid_is_answered_before_all_other_errors(table: WireTable) -> None:
    staged = table.land(1)
    assert refusal(table.propose(staged, table_uuid=str(uuid.uuid4()))) == REQUIREMENT
    assert table.propose(staged).status_code == 200


def test_a_staged_file_behind_a_symbolic_link_is_refused(table: WireTable) -> None:
    staged = table.write_staged(1)
    elsewhere = table.location.parent.parent / "elsewhere.json"
    staged.path.rename(elsewhere)
    staged.path.symlink_to(elsewhere)
    assert refusal(table.propose(staged)) == BAD
    assert table.state()[0] == 0


# Metadata


def test_the_etag_changes_with_the_metadata_and_only_with_it(table: WireTable, warehouse: refimpl.Warehouse) -> None:
    """Properties that only the catalog has count, too."""
    first = table.state()[2]
    table.land(1)
    assert table.state()[2] == first
    assert table.propose(with_metadata(table, 2, team="a"), setting(team="a"), etag=first).status_code == 200
    second = table.state()[2]
    assert second != first
    assert refusal(table.propose(table.write_staged(3), etag=first)) == REQUIREMENT
    assert table.update(setting(steward="x"), etag=second).status_code == 200
    third = table.state()[2]
    assert third != second
    assert properties(table)["steward"] == "x"
    assert "steward" not in warehouse.table("orders").snapshot().metadata.configuration
    removal = {"action": "remove-properties", "removals": ["steward"]}
    assert refusal(table.update(removal, etag=second)) == REQUIREMENT
    assert table.update(removal).status_code == 200
    assert table.state() == (2, [2, 1], second)


def test_an_append_leaves_the_catalogs_properties_alone(table: WireTable, warehouse: refimpl.Warehouse) -> None:
    """Also a property that a local client has committed to the log since; other clients still have the etag from
    before."""
    assert table.update(setting(team="a")).status_code == 200
    ratified_locally(table, warehouse, with_metadata(table, 1, team="a"))
    etag = table.state()[2]
    table.land(2)
    assert table.state()[2] == etag


def test_property_of_a_commit_replaces_the_catalogs_property(table: WireTable) -> None:
    assert table.update(setting(team="a")).status_code == 200
    assert table.propose(with_metadata(table, 1, team="b")).status_code == 200
    assert properties(table)["team"] == "b"
    assert table.propose(with_metadata(table, 2)).status_code == 200
    assert "team" not in properties(table)


def test_comment_without_a_commit_is_stored_by_the_catalog(table: WireTable) -> None:
    """Until a commit has a comment."""

    def commented(text: str) -> dict[str, Any]:
        return {"action": "set-table-comment", "comment": text}

    def shown() -> Any:
        return table.http.get(f"{CATALOG}/tables/unity.default.orders").json()["comment"]

    before = table.state()
    assert table.update(commented("visits"), etag=before[2]).status_code == 200
    assert refusal(table.update(commented("late"), etag=before[2])) == REQUIREMENT
    table.land(1)
    assert shown() == "visits"
    staged = table.write_staged(2, {"metaData": {**table.metadata(ENABLED), "description": "of the log"}})
    assert refusal(table.propose(staged, commented("visits"))) == BAD
    assert table.propose(staged, commented("of the log")).status_code == 200
    assert shown() == "of the log"
    assert table.update({"action": "set-table-comment"}).status_code == 200
    assert shown() is None
    assert table.update(commented("")).status_code == 200
    table.land(3)
    assert shown() is None
    assert table.update({"action": "remove-properties", "removals": ["commitOwner.comment"]}).status_code == 200
    assert shown() == "of the log"


def test_derived_properties_may_be_sent_back(table: WireTable) -> None:
    """Clients send back all properties that they loaded."""
    before = table.state()
    assert table.update(setting(**{**properties(table), "delta.lastUpdateVersion": "77"})).status_code == 200
    assert table.state() == before
    assert properties(table)["delta.lastUpdateVersion"] == "0"


def test_a_property_of_the_log_hides_that_of_the_catalog() -> None:
    described = Mock(catalog_properties={"a": "catalog", "b": "catalog"}, metadata=Mock(configuration={"a": "log"}))
    described.protocol = Protocol(min_reader_version=1, min_writer_version=2)
    described.table.policy.allowed = frozenset()
    shown = answers.properties(described, LastChange(0, 0, {}))
    assert (shown["a"], shown["b"]) == ("log", "catalog")


# Published versions


def test_report_of_the_ratified_bytes_is_recorded(table: WireTable) -> None:
    """Not before version 1 is published, and no version that is not ratified."""
    staged = table.land(1)
    assert refusal(table.update(reported(1))) == BAD
    assert table.state()[:2] == (1, [1])
    table.publish(staged)
    assert refusal(table.update(reported(99))) == BAD
    assert table.update(reported(1)).status_code == 200
    assert table.update(reported(0)).status_code == 200
    assert table.state()[:2] == (1, [])


def test_a_report_of_other_bytes_is_refused_and_the_commit_stays(table: WireTable) -> None:
    staged = table.land(1)
    published = table.location / "_delta_log" / f"{1:020d}.json"
    forged = lines(commit_info(START + 1, operation="forged"))
    published.symlink_to(staged.path)  # the target of a link can change
    assert refusal(table.update(reported(1))) == BAD
    published.unlink()
    for content in (forged, staged.content.replace(b"WRITE", b"wRITE"), b""):
        published.write_bytes(content)
        assert refusal(table.update(reported(1))) == BAD
    published.unlink()
    answered = table.load()
    assert [c["file-name"] for c in answered["commits"]] == [staged.name]


@pytest.mark.parametrize("limit", [1, 2])
def test_report_makes_room_for_the_commit_beside_it(serve: Serve, limit: int) -> None:
    """Both take effect together or not at all."""
    table = WireTable(serve(backlog_limit=limit)).create()
    landed = [table.land(version) for version in range(1, limit + 1)]
    before = table.state()
    assert refusal(table.propose(table.write_staged(limit + 1))) == EXHAUSTED
    table.publish(landed[0])
    early = table.write_staged(limit + 1, timestamp=START)  # not greater than that of the version before
    assert refusal(table.propose(early, reported(1))) == BAD
    assert table.state() == before
    assert table.propose(table.write_staged(limit + 1), reported(1)).status_code == 200
    assert table.state()[:2] == (limit + 1, list(range(limit + 1, 1, -1)))


# Attempts, and tables of other commit modes


@pytest.mark.parametrize("named", ["gone", "taken"])
def test_a_proposal_to_a_dropped_table_does_not_land_after_an_undrop(
    table: WireTable, warehouse: refimpl.Warehouse, named: str
) -> None:
    """The answer said that it did not land, and the client deleted its data files."""
    warehouse.owner.drop_table(table.table_id)
    other = warehouse.create_table("orders", pa.schema([("id", pa.int64())])) if named == "taken" else None
    staged = table.write_staged(1)
    assert refusal(table.propose(staged)) == (NO_TABLE if other is None else REQUIREMENT)
    if other is not None:
        warehouse.owner.drop_table(other.table_id or "")
    warehouse.undrop_table(table.table_id)
    assert refusal(table.propose(staged)) == REQUIREMENT
    table.land(1)


@pytest.mark.parametrize("end", ["dropped", "handed back", "renamed"])
def test_replay_after_the_end_of_a_table_is_not_denied(
    table: WireTable, warehouse: refimpl.Warehouse, end: str
) -> None:
    """A 404 says that the commit did not land: its client would delete its data files."""
    staged = table.land(1)
    if end == "dropped":
        warehouse.owner.drop_table(table.table_id)
    elif end == "handed back":
        hand_back(warehouse.table("orders"))
    else:
        warehouse.owner.rename_table(table.table_id, "sales", before="orders")
    late = table.write_staged(2)
    assert refusal(table.propose(staged)) == UNKNOWN
    assert refusal(table.propose(late)) == NO_TABLE
    if end == "handed back":
        return
    if end == "dropped":
        warehouse.undrop_table(table.table_id)
    else:
        warehouse.owner.rename_table(table.table_id, "orders", before="sales")
    assert table.propose(staged).status_code == 200
    assert refusal(table.propose(late)) == REQUIREMENT, "it was answered that it did not land"


def test_commit_is_listed_with_the_time_of_its_file(
    table: WireTable, warehouse: refimpl.Warehouse, tmp_path: Path
) -> None:
    """The server does not remember that a file was missing. It does not take an unreadable one for a missing one, whose
    commit is listed with the time of its ratification."""

    def listed() -> int:
        (answered,) = table.load()["commits"]
        return int(answered["file-modification-timestamp"])

    staged = table.write_staged(1)
    ratified_locally(table, warehouse, staged)
    os.utime(staged.path, (1_000, 1_000))
    moved = staged.path.rename(tmp_path / "moved")
    assert listed() != 1_000_000
    staged.path.symlink_to(staged.name)
    assert table.http.get(table.url).status_code == 500
    moved.rename(staged.path)
    assert listed() == 1_000_000


@pytest.mark.parametrize("staged_after", [False, True])
def test_inline_commit_is_published_before_a_load(
    http: TestClient, warehouse: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch, staged_after: bool
) -> None:
    """The API cannot express a commit without a file."""
    local = inline_table(warehouse)
    if staged_after:
        monkeypatch.setattr(proposing, "INLINE_LIMIT", 1)
        local.append(pa.table({"id": [2]}))
    latest = 1 + staged_after
    assert len(warehouse.owner.get_commits(local.table_id).commits) == latest
    assert WireTable(http).state()[:2] == (latest, [])
    assert (local.location / "_delta_log" / f"{1:020d}.json").exists()


def test_direct_table_is_readable_and_rejects_writers(http: TestClient, warehouse: refimpl.Warehouse) -> None:
    direct = warehouse.create_table("orders", pa.schema([("id", pa.int64())]), commit_mode=CommitMode.DIRECT)
    wire = WireTable(http)
    wire.table_id, wire.location = direct.table_id, direct.location
    (wire.location / "_delta_log" / "_staged_commits").mkdir(exist_ok=True)
    at = json.loads((wire.location / "_delta_log" / f"{0:020d}.json").read_text().splitlines()[0])
    later = at["commitInfo"]["inCommitTimestamp"] + 1
    assert refusal(wire.propose(wire.write_staged(1, timestamp=later))) == BAD
    assert wire.state()[0] == 0


def test_table_that_the_api_cannot_express_exists(http: TestClient, warehouse: refimpl.Warehouse) -> None:
    wire = WireTable(http)
    wire.table_id = warehouse.create_table("orders", SCHEMA, feature=MANAGED_COMMIT).table_id or ""
    assert http.head(wire.url).status_code == 204
    calls = [("GET", "", None), ("DELETE", "", None), ("POST", "", wire.request(reported(0))),
             ("POST", "/metrics", {}), ("GET", "/credentials?operation=READ", None)]  # fmt: skip
    for method, path, body in calls:
        answer = http.request(method, wire.url + path, json=body)
        assert refusal(answer) == (400, "UnsupportedTableFormatException"), (method, path)
    listed = http.get(f"{CATALOG}/tables", params={"catalog_name": "unity", "schema_name": "default"})
    assert listed.json()["tables"] == []


COMMITS = f"{CATALOG}/delta/preview/commits"


class TableById(WireTable):
    """A table whose client names it by its id and location."""

    def commit(self, staged: Staged | None = None, **more: Any) -> Any:
        body = {"table_id": self.table_id, "table_uri": self.location.as_uri(), **more}
        if staged is not None:
            body["commit_info"] = {key.replace("-", "_"): value for key, value in staged.commit.items()}
            body["commit_info"]["is_disown_commit"] = body.pop("disowns", False)
        return self.http.request("POST", COMMITS, json=body)

    def commits(self, start: int = 0, **more: Any) -> Any:
        body = {"table_id": self.table_id, "table_uri": self.location.as_uri(), "start_version": start, **more}
        return self.http.request("GET", COMMITS, json=body)

    def versions(self, start: int = 0, **more: Any) -> tuple[list[int], int]:
        answer = self.commits(start, **more)
        assert answer.status_code == 200, answer.text
        return [commit["version"] for commit in answer.json()["commits"]], answer.json()["latest_table_version"]


@pytest.fixture
def by_id(http: TestClient) -> TableById:
    created = TableById(http)
    created.create()
    return created


def test_a_commit_lands_and_is_listed_until_it_is_reported_as_published(by_id: TableById) -> None:
    first, second = by_id.write_staged(1), by_id.write_staged(2)
    assert [by_id.commit(staged).json() for staged in (first, second)] == [{}, {}]
    assert (by_id.versions(), by_id.versions(2), by_id.versions(end_version=1)) == (([2, 1], 2), ([2], 2), ([1], 2))
    by_id.publish(first)
    assert by_id.commit(latest_backfilled_version=1).status_code == 200
    assert by_id.versions() == ([2], 2)


def test_a_lost_race_is_a_conflict_in_any_case_of_the_id(by_id: TableById) -> None:
    by_id.land(1)
    assert refusal(by_id.commit(by_id.write_staged(1), table_id=by_id.table_id.upper())) == VERSION_CONFLICT


@pytest.mark.parametrize(
    "more", [{}, {"metadata": {"description": "new"}, "staged": 1}, {"disowns": True, "staged": 1},
             {"uniform": {}, "staged": 1}, {"table_uri": "file:///elsewhere", "staged": 1}],
)  # fmt: skip
def test_a_request_without_a_valid_commit_is_invalid(by_id: TableById, more: dict[str, Any]) -> None:
    staged = by_id.write_staged(1) if more.pop("staged", None) else None
    assert by_id.commit(staged, **more).status_code == 400
    assert by_id.versions() == ([], 0)


@pytest.mark.parametrize("terms", [{"start": -1}, {"start": 3, "end_version": 2}, {"table_uri": "file:///elsewhere"}])
def test_an_invalid_list_is_rejected(by_id: TableById, terms: dict[str, Any]) -> None:
    assert by_id.commits(**terms).status_code == 400


def test_a_dropped_table_is_not_found_and_its_commits_are_resolved(
    by_id: TableById, http: TestClient, warehouse: refimpl.Warehouse
) -> None:
    """A proposal that is answered 404 does not land after an undrop; a replay is not answered 404."""
    landed, late = by_id.land(1), by_id.write_staged(2)
    assert http.delete(f"{CATALOG}/tables/unity.default.orders").status_code == 200
    assert [refusal(answer) for answer in (by_id.commit(late), by_id.commits())] == [NO_TABLE] * 2
    assert refusal(by_id.commit(landed)) == UNKNOWN
    warehouse.undrop_table(by_id.table_id)
    assert by_id.commit(late).status_code == 409
    assert by_id.commit(landed).status_code == 200


def test_a_rename_during_a_commit_does_not_matter(
    by_id: TableById, warehouse: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next table of the old name is not the one that the request means."""
    staged, owner = by_id.write_staged(1), type(warehouse.owner)
    look_up = owner.look_up

    def then_renamed(*terms: Any) -> Any:
        seen = look_up(*terms)
        monkeypatch.undo()
        assert by_id.http.post(f"{by_id.url}/rename", json={"new-name": "sales"}).status_code == 204
        TableById(by_id.http).create()
        return seen

    monkeypatch.setattr(owner, "look_up", then_renamed)
    assert by_id.commit(staged).status_code == 200
    assert by_id.versions() == ([1], 1)


def test_commits_without_files_are_published_first(warehouse: refimpl.Warehouse, http: TestClient) -> None:
    inline = inline_table(warehouse)
    by_id = TableById(http)
    by_id.table_id, by_id.location = inline.table_id, inline.location
    assert by_id.versions() == ([], 1)
