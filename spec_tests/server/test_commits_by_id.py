"""Commits of clients without the Delta API, such as Sail: UNITY_CATALOG.md#by-id. They are updates of the Delta API, so
these tests are about their own shapes, and about a table that is named by its id."""

from typing import Any

import pytest
from starlette.testclient import TestClient

import refimpl
from spec_tests.server.conftest import inline_table
from spec_tests.server.wire import CATALOG, NO_TABLE, UNKNOWN, VERSION_CONFLICT, Staged, WireTable, refusal

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
def table(http: TestClient) -> TableById:
    created = TableById(http)
    created.create()
    return created


def test_a_commit_lands_and_is_listed_until_it_is_reported_as_published(table: TableById) -> None:
    first, second = table.write_staged(1), table.write_staged(2)
    assert [table.commit(staged).json() for staged in (first, second)] == [{}, {}]
    assert (table.versions(), table.versions(2), table.versions(end_version=1)) == (([2, 1], 2), ([2], 2), ([1], 2))
    table.publish(first)
    assert table.commit(latest_backfilled_version=1).status_code == 200
    assert table.versions() == ([2], 2)


def test_a_lost_race_is_a_conflict_in_any_case_of_the_id(table: TableById) -> None:
    table.land(1)
    assert refusal(table.commit(table.write_staged(1), table_id=table.table_id.upper())) == VERSION_CONFLICT


@pytest.mark.parametrize(
    "more", [{}, {"metadata": {"description": "new"}, "staged": 1}, {"disowns": True, "staged": 1},
             {"uniform": {}, "staged": 1}, {"table_uri": "file:///elsewhere", "staged": 1}],
)  # fmt: skip
def test_a_request_without_a_valid_commit_is_invalid(table: TableById, more: dict[str, Any]) -> None:
    staged = table.write_staged(1) if more.pop("staged", None) else None
    assert table.commit(staged, **more).status_code == 400
    assert table.versions() == ([], 0)


@pytest.mark.parametrize("terms", [{"start": -1}, {"start": 3, "end_version": 2}, {"table_uri": "file:///elsewhere"}])
def test_an_invalid_list_is_rejected(table: TableById, terms: dict[str, Any]) -> None:
    assert table.commits(**terms).status_code == 400


def test_a_dropped_table_is_not_found_and_its_commits_are_resolved(
    table: TableById, http: TestClient, warehouse: refimpl.Warehouse
) -> None:
    """A proposal that is answered 404 does not land after an undrop; a replay is not answered 404."""
    landed, late = table.land(1), table.write_staged(2)
    assert http.delete(f"{CATALOG}/tables/unity.default.orders").status_code == 200
    assert [refusal(answer) for answer in (table.commit(late), table.commits())] == [NO_TABLE] * 2
    assert refusal(table.commit(landed)) == UNKNOWN
    warehouse.undrop_table(table.table_id)
    assert table.commit(late).status_code == 409
    assert table.commit(landed).status_code == 200


def test_a_rename_during_a_commit_does_not_matter(
    table: TableById, warehouse: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next table of the old name is not the one that the request means."""
    staged, owner = table.write_staged(1), type(warehouse.owner)
    look_up = owner.look_up

    def then_renamed(*terms: Any) -> Any:
        seen = look_up(*terms)
        monkeypatch.undo()
        assert table.http.post(f"{table.url}/rename", json={"new-name": "sales"}).status_code == 204
        TableById(table.http).create()
        return seen

    monkeypatch.setattr(owner, "look_up", then_renamed)
    assert table.commit(staged).status_code == 200
    assert table.versions() == ([1], 1)


def test_commits_without_files_are_published_first(warehouse: refimpl.Warehouse, http: TestClient) -> None:
    inline = inline_table(warehouse)
    table = TableById(http)
    table.table_id, table.location = inline.table_id, inline.location
    assert table.versions() == ([], 1)
