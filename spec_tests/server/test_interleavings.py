"""Events between two steps of one request: another commit, another process, a drop, an error.

Each test runs a function between the two steps.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

import refimpl
from refimpl.protocol.commit_owner import TableState
from refimpl.protocol.errors import OwnerUnavailableError
from refimpl.served import catalog_requests
from refimpl.served.catalog_requests import CatalogRequests
from refimpl.server.access import Scope, Tokens
from refimpl.server.application import Server
from spec_tests.server.conftest import Serve, inline_table
from spec_tests.server.wire import BAD, NO_TABLE, WireTable, refusal
from spec_tests.support.faults import Faults

ENABLED = {"delta.enableInCommitTimestamps": "true"}
UNKNOWN = (500, "CommitStateUnknownException")


def server_of(http: TestClient) -> Server:
    server: Server = http.app_state["server"]
    return server


def between(monkeypatch: pytest.MonkeyPatch, target: Any, name: str, act: Callable[[], object]) -> None:
    """Run `act` once, right after the next call of `place.name`."""
    original = getattr(target, name)
    acted: list[bool] = []

    def called(*words: Any, **more: Any) -> Any:
        result = original(*words, **more)
        if not acted:
            acted.append(True)
            act()
        return result

    monkeypatch.setattr(target, name, called)


# A commit whose predecessor lands while the owner decides on it


def test_former_gap_is_made_durable_before_it_lands(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = Faults()
    table = WireTable(serve(environment=faults.environment())).create()
    first, second = table.write_staged(1), table.write_staged(2)
    between(monkeypatch, CatalogRequests, "look_up", lambda: table.propose(first))
    before = len(faults.seen)
    assert table.propose(second).status_code == 200
    assert faults.seen[before:].count("fsync staged") == 2
    assert table.state()[0] == 2


def test_link_is_no_staged_file_of_a_former_gap(table: WireTable, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = table.write_staged(1), table.write_staged(2)
    elsewhere = table.location.parent / "elsewhere.json"
    second.path.rename(elsewhere)
    second.path.symlink_to(elsewhere)
    between(monkeypatch, CatalogRequests, "look_up", lambda: table.propose(first))
    assert refusal(table.propose(second)) == BAD
    assert table.state()[0] == 1


# A landed commit or creation is never reported as failed


@pytest.mark.parametrize("gone", [False, True], ids=["unavailable", "dropped"])
def test_commit_that_cannot_be_described_is_unknown(
    table: WireTable, warehouse: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    """503 would mean that nothing changed, and 404 that the table does not exist."""
    staged = table.write_staged(1)
    api = server_of(table.http)._delta

    def unavailable(*_: str) -> Any:
        raise OwnerUnavailableError("the disk does not answer")

    with monkeypatch.context() as patched:
        if gone:
            between(patched, api.owner, "commit_if", lambda: warehouse.owner.drop_table(table.table_id))
        else:
            between(patched, api.owner, "commit_if", lambda: patched.setattr(api, "describe", unavailable))
        assert refusal(table.propose(staged)) == UNKNOWN
    with warehouse.owner.ledger.read() as view:
        record = view.table(table.table_id)
        assert record is not None
        assert record.latest == 1
    assert (table.propose(staged).status_code == 200) is not gone


def test_creation_that_cannot_be_described_is_unknown(http: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    table = WireTable(http).prepared()
    api = server_of(http)._delta

    def unavailable(*_: str) -> Any:
        raise OwnerUnavailableError("the disk does not answer")

    with monkeypatch.context() as patched:
        between(patched, api.owner, "register_table", lambda: patched.setattr(api, "describe", unavailable))
        assert refusal(table.register()) == UNKNOWN
    assert table.register().status_code == 200


def test_load_is_consistent_while_inline_commits_land(
    http: TestClient, warehouse: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = inline_table(warehouse)
    owner = server_of(http)._warehouse.owner
    between(monkeypatch, owner, "backfill_to_version", lambda: local.append(pa.table({"id": [2]})))
    assert WireTable(http).state()[:2] == (1, [])
    assert WireTable(http).state()[:2] == (2, [])


def test_answer_has_the_metadata_of_its_latest_version(
    table: WireTable, warehouse: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another client commits and publishes after the server has read the ledger, before it reads the log."""
    before = table.state()[2]

    def change() -> None:
        local = warehouse.table("orders").transaction(operation="SET TBLPROPERTIES")
        local.set_properties({"team": "b"})
        local.commit()
        warehouse.owner.backfill_to_version(table.table_id)

    between(monkeypatch, catalog_requests, "stored_commits", change)
    loaded = table.load()
    assert loaded["latest-table-version"] == loaded["metadata"]["last-commit-version"] == 1
    assert loaded["metadata"]["properties"]["team"] == "b"
    assert loaded["metadata"]["etag"] != before
    assert loaded["metadata"]["etag"] == table.state()[2]


def test_published_version_that_the_ledger_lacks_is_in_the_answer(table: WireTable) -> None:
    staged = table.land(1)
    foreign = table.location / "_delta_log" / f"{2:020d}.json"
    foreign.write_bytes(staged.content)
    assert table.state()[:2] == (2, [1])
    foreign.unlink()
    assert table.state()[:2] == (1, [1])


# Repeated creations


def test_repeated_creation_changes_nothing(http: TestClient) -> None:
    """The answer was lost, and other clients have used the table since."""
    table = WireTable(http).prepared()
    properties = {**ENABLED, "team": "a", "steward": "x"}
    assert table.register(properties=properties).json()["metadata"]["properties"]["steward"] == "x"
    staged = table.write_staged(1, {"metaData": table.metadata({**ENABLED, "team": "b"})})
    update = {"action": "set-properties", "updates": {"steward": "y"}}
    assert table.propose(staged, update).status_code == 200
    before = table.state()
    assert table.register(properties=properties).status_code == 200
    assert table.state() == before
    properties = table.load()["metadata"]["properties"]
    assert (properties["team"], properties["steward"]) == ("b", "y")


def test_a_table_is_created_with_all_of_its_properties_at_once(
    http: TestClient, warehouse: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = WireTable(http).prepared()
    seen: list[dict[str, str]] = []
    owner = server_of(http)._warehouse.owner

    def look() -> None:
        seen.append(owner.description(lambda view: owner._find(view, "orders")).catalog_properties)

    between(monkeypatch, owner, "register_table", look)
    assert table.register(properties={**ENABLED, "steward": "x"}).status_code == 200
    assert seen == [{"steward": "x"}]


# Dropped tables, and tables that do not exist yet


@pytest.mark.parametrize("legacy", [False, True])
def test_the_second_of_two_drops_finds_no_table(
    table: WireTable, warehouse: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch, legacy: bool
) -> None:
    api = server_of(table.http)._delta
    between(monkeypatch, api, "describe", lambda: warehouse.owner.drop_table(table.table_id))
    url = "/api/2.1/unity-catalog/tables/unity.default.orders" if legacy else table.url
    assert refusal(table.http.delete(url)) == NO_TABLE
    assert refusal(table.http.get(table.url)) == NO_TABLE


def test_unfinished_take_over_is_not_found(table: WireTable, warehouse: refimpl.Warehouse) -> None:
    """Its name is taken, but it has no version until the owner keeps its promise."""
    other = WireTable(table.http, "invoices")
    other.stage()
    owner = warehouse.owner
    with owner.context.lock(), owner.ledger.write() as writer:
        record = writer.table(other.table_id)
        assert record is not None
        writer.set_state(record, TableState.TAKING_OVER)
    assert refusal(other.http.get(other.url)) == NO_TABLE
    assert other.http.head(other.url).status_code == 404
    assert refusal(other.propose(other.staged_nowhere(1))) == NO_TABLE
    assert table.state()[0] == 0


# Tokens


def test_removed_token_stays_removed_under_concurrent_reads(
    warehouse: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several threads read the file at the same time. A slow thread must not store an older state."""
    maker = Tokens(warehouse)
    secret = maker.add("pipeline", Scope.WRITE)
    old = maker.path.read_bytes()
    maker.remove("pipeline")
    new = maker.path.read_bytes()
    for late in range(1, 4):
        contents = [new]

        class Files:
            def read(self, _path: object) -> bytes:
                return contents[-1]  # noqa: B023 - called in this round only

        class Racing(Tokens):
            """Another thread stores an older file just before a value of the newer file is stored."""

            left = 0

            def __setattr__(self, name: str, value: object) -> None:
                if self.left > 0:
                    object.__setattr__(self, "left", self.left - 1)
                    if self.left == 0:
                        contents.append(old)  # noqa: B023
                        self.all()
                        contents.pop()  # noqa: B023
                object.__setattr__(self, name, value)

        racing = Racing(warehouse)
        monkeypatch.setattr(racing, "_environment", type("Environment", (), {"files": Files()})())
        object.__setattr__(racing, "left", late)
        racing.all()
        assert racing.holder(secret) is None
    assert maker.holder(secret) is None
