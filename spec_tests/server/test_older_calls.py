"""Tables through the calls that Delta 4.0 to 4.2 makes: UNITY_CATALOG.md#older-calls. They change what an update of the
Delta API changes, so these tests are about their own shapes, statuses and errors."""

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from starlette.testclient import TestClient

import refimpl
from refimpl.server.routes import LEGACY_ROUTES, ApiRoute
from refimpl.server.scheduling import FairQueue
from spec_tests.server.conftest import inline_table
from spec_tests.server.wire import LEGACY, PROTOCOL, VERSION_CONFLICT, Staged, WireTable, refusal

COMMITS = f"{LEGACY}/delta/preview/commits"
INVALID = (400, "INVALID_ARGUMENT")
OLDER_PROTOCOL = {key.replace("-", "_"): value for key, value in PROTOCOL.items()}
NOT_FOUND = (404, "TABLE_NOT_FOUND")
CONFLICT = (409, "COMMIT_VERSION_CONFLICT")


class OlderTable(WireTable):
    """A table whose client knows the older calls alone."""

    def stage(self) -> dict[str, Any]:
        names = {"name": self.name, "catalog_name": "unity", "schema_name": "default"}
        answer = self.http.request("POST", f"{LEGACY}/staging-tables", json=names)
        assert answer.status_code == 200, answer.text
        staged: dict[str, Any] = answer.json()
        assert {key: staged[key] for key in names} == names
        self.table_id = staged["id"]
        self.location = Path(unquote(urlsplit(staged["staging_location"]).path))
        return staged

    def register(self, **changes: Any) -> Any:
        body = {
            "name": self.name, "catalog_name": "unity", "schema_name": "default", "table_type": "MANAGED",
            "data_source_format": "DELTA", "storage_location": self.location.as_uri(),
            "columns": [{"name": "id", "type_name": "LONG", "type_text": "bigint", "position": 0, "nullable": True},
                        {"name": "tags", "type_name": "ARRAY", "type_text": "array<string>", "position": 1}],
            "properties": {"io.unitycatalog.tableId": self.table_id, "delta.feature.catalogManaged": "supported"},
            **changes,
        }  # fmt: skip
        return self.http.request("POST", f"{LEGACY}/tables", json=body)

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

    def land(self, version: int) -> Staged:
        staged = self.write_staged(version)
        answer = self.commit(staged)
        assert (answer.status_code, answer.json()) == (200, {})
        return staged


def older(answer: Any) -> tuple[int, str]:
    """The status and the code of an error of the older API."""
    refusal(answer)
    return answer.status_code, answer.json()["error_code"]


@pytest.fixture
def table(http: TestClient) -> OlderTable:
    created = OlderTable(http)
    created.create()
    return created


def test_a_table_is_created_and_described(table: OlderTable, http: TestClient) -> None:
    described = http.get(f"{LEGACY}/tables/unity.default.orders").json()
    assert table.register().json() == described, "a repeated creation gets the same answer"
    assert (described["table_id"], described["storage_location"]) == (table.table_id, table.location.as_uri())
    assert [column["name"] for column in described["columns"]] == ["id", "tags"], "the columns are those of version 0"
    assert table.load()["metadata"]["table-uuid"] == table.table_id
    assert table.versions() == ([], 0)


@pytest.mark.parametrize(
    "changes",
    [{"table_type": "EXTERNAL"}, {"data_source_format": "PARQUET"}, {"storage_location": None},
     {"properties": {"io.unitycatalog.tableId": "other"}}, {"properties": {"delta.feature.clustering": "supported"}},
     {"comment": "not in the log"}, {"data_source_format": None}, {"columns": [{"name": "id"}, {"name": "other"}]}],
)  # fmt: skip
def test_a_creation_that_contradicts_version_0_is_invalid(http: TestClient, changes: dict[str, Any]) -> None:
    table = OlderTable(http)
    table.prepared()
    assert older(table.register(**changes)) == INVALID
    assert table.register().status_code == 200


def test_a_staged_table_has_credentials(http: TestClient) -> None:
    staged = {"table_id": OlderTable(http).stage()["id"], "operation": "READ_WRITE"}
    assert http.post(f"{LEGACY}/temporary-table-credentials", json=staged).status_code == 200


def test_both_apis_have_one_queue_for_a_table(table: OlderTable) -> None:
    queue: FairQueue = table.http.app_state["server"]._queue
    table.land(1)
    assert older(table.commit(table.write_staged(1), table_id=table.table_id.upper())) == CONFLICT
    assert refusal(table.propose(table.write_staged(1))) == VERSION_CONFLICT
    assert len(queue._losers) == 1, "the two lost races are of one client of one table"


def test_a_commit_changes_the_metadata_that_it_repeats(table: OlderTable) -> None:
    properties = {"io.unitycatalog.tableId": table.table_id, "delta.enableInCommitTimestamps": "true", "new": "1"}
    staged = table.write_staged(1, {"metaData": {**table.metadata(properties), "description": "all orders"}})
    other = {"properties": {"properties": {**properties, "delta.appendOnly": "true"}}}
    for metadata in (other, {"description": "few orders"}):
        assert older(table.commit(staged, metadata=metadata)) == INVALID
    said = {"description": "all orders", "properties": {"properties": properties}, "schema": None}
    assert table.commit(staged, metadata=said, protocol=OLDER_PROTOCOL).status_code == 200
    described = table.http.get(f"{LEGACY}/tables/unity.default.orders").json()
    assert (described["comment"], described["properties"]["new"]) == ("all orders", "1")


def test_the_properties_in_a_commit_are_all_properties(table: OlderTable) -> None:
    """Those in the catalog alone are removed; the comment in the catalog is no property."""
    new = {"action": "set-properties", "updates": {"kept": "1", "gone": "1"}}
    assert table.update(new, {"action": "set-table-comment", "comment": "all orders"}).status_code == 200
    said = {"properties": {"io.unitycatalog.tableId": table.table_id, "kept": "2"}}
    assert table.commit(table.write_staged(1), metadata={"properties": said}).status_code == 200
    described = table.http.get(f"{LEGACY}/tables/unity.default.orders").json()
    assert {key: value for key, value in described["properties"].items() if key in new["updates"]} == {"kept": "2"}
    assert described["comment"] == "all orders"


@pytest.mark.parametrize(
    "more", [{}, {"metadata": {"description": "new"}, "latest_backfilled_version": 0}, {"uniform": {}, "staged": 1},
             {"table_uri": "file:///elsewhere", "staged": 1}, {"table_uri": "s3://bucket/orders", "staged": 1},
             {"uniform": {}, "latest_backfilled_version": 0},
             {"protocol": OLDER_PROTOCOL, "latest_backfilled_version": 0},
             {"metadata": {}, "staged": 1}, {"metadata": {"properties": {"properties": {}}}, "staged": 1},
             {"disowns": True, "staged": 1},
             {"protocol": {**OLDER_PROTOCOL, "reader_features": []}, "staged": 1}],
)  # fmt: skip
def test_a_request_without_a_valid_commit_is_invalid(table: OlderTable, more: dict[str, Any]) -> None:
    staged = table.write_staged(1) if more.pop("staged", None) else None
    assert older(table.commit(staged, **more)) == INVALID
    assert table.versions() == ([], 0)


def test_the_location_of_a_table_may_end_with_a_slash(table: OlderTable) -> None:
    for location in (f"{table.location.as_uri()}/", f"file:{table.location}"):
        assert table.versions(table_uri=location) == ([], 0)
    assert older(table.commits(table_uri="file:///elsewhere")) == INVALID


def test_invalid_versions_are_rejected(table: OlderTable) -> None:
    assert older(table.commits(-1)) == INVALID
    assert older(table.commits(3, end_version=2)) == INVALID


@pytest.mark.parametrize("identifier", ["", "orders", "7d9e4d0e-8f43-4a6c-9a5b-6c1a8d0f2b11"])
def test_an_unknown_table_is_not_found(table: OlderTable, identifier: str) -> None:
    staged = table.write_staged(1)
    assert older(table.commit(staged, table_id=identifier)) == NOT_FOUND
    assert older(table.commits(table_id=identifier)) == NOT_FOUND


def test_a_dropped_table_is_not_found_and_its_commits_are_resolved(
    table: OlderTable, http: TestClient, warehouse: refimpl.Warehouse
) -> None:
    """A proposal that is answered 404 does not land after an undrop; a replay is not answered 404."""
    landed, late = table.land(1), table.write_staged(2)
    assert http.delete(f"{LEGACY}/tables/unity.default.orders").status_code == 200
    assert older(table.commit(late)) == NOT_FOUND
    assert older(table.commits()) == NOT_FOUND
    assert older(table.commit(landed)) == (500, "COMMIT_STATE_UNKNOWN")
    warehouse.undrop_table(table.table_id)
    assert older(table.commit(late)) == (409, "UPDATE_REQUIREMENT_CONFLICT")
    assert table.commit(landed).status_code == 200


def test_a_staged_table_is_not_the_table_that_has_its_name(http: TestClient) -> None:
    staged, other = OlderTable(http), OlderTable(http)
    staged.prepared()
    other.create()
    landed, first = other.land(1), staged.write_staged(1)
    assert older(staged.commits()) == NOT_FOUND
    assert older(staged.commit(first)) == NOT_FOUND
    assert other.versions() == ([1], 1)
    assert other.commit(landed).status_code == 200


@pytest.mark.parametrize("reads", [True, False], ids=["read", "commit"])
def test_a_rename_during_a_request_does_not_matter(
    table: OlderTable, warehouse: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    """The next table of the old name is not the one that the request means."""
    table.land(1)
    staged, owner = table.write_staged(2), type(warehouse.owner)

    def then_renamed(look_up: Any) -> Any:
        def changed(*terms: Any) -> Any:
            seen = look_up(*terms)
            monkeypatch.undo()
            assert table.http.post(f"{table.url}/rename", json={"new-name": "sales"}).status_code == 204
            OlderTable(table.http).create()
            return seen

        return changed

    for name in ("resolve", "look_up", "describe"):
        monkeypatch.setattr(owner, name, then_renamed(getattr(owner, name)))
    if reads:
        assert table.versions() == ([1], 1)
    else:
        assert table.commit(staged).status_code == 200
        assert table.versions() == ([2, 1], 2)


def test_commits_without_files_are_published_first(warehouse: refimpl.Warehouse, http: TestClient) -> None:
    inline = inline_table(warehouse)
    table = OlderTable(http)
    table.table_id, table.location = inline.table_id, inline.location
    assert table.versions() == ([], 1)


ODD = (
    b"",
    b"{",
    b"[]",
    b"{}",
    b'{"table_id": 7}',
    b'{"table_id": "x", "table_uri": "", "commit_info": {"version": -1}}',
)
QUERY = "?max_results=x&page_token=%00&catalog_name=unity&schema_name=default"


@pytest.mark.parametrize("route", LEGACY_ROUTES, ids=lambda route: route.name)
def test_an_odd_request_is_no_internal_error(http: TestClient, route: ApiRoute) -> None:
    for number, body in enumerate(ODD):
        path = LEGACY + route.path.format(name="%00", full_name="a.b.c.d") + QUERY * (number % 2)
        assert http.request(route.method, path, content=body).status_code < 500, (path, body)
