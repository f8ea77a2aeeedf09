"""Transactions over several tables over HTTP. UNITY_CATALOG.md#transactions"""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

import refimpl
from refimpl.client.proposing import OwnerProposer
from refimpl.protocol.commits import Landed, NotLanded
from refimpl.protocol.errors import InvalidRequestError, OutcomeUnknown
from refimpl.protocol.groups import GroupRefused, Member
from refimpl.remote_owner.connection import TRIES, Connection, NoAnswerError, Reply, address_of
from refimpl.remote_owner.owner import RemoteOwner
from refimpl.storage.environment import Environment
from refimpl.warehouse import RemoteWarehouse
from spec_tests.server.conftest import SCHEMA, Listen, ids_in, rows
from spec_tests.server.wire import DELTA, Staged, WireTable

COMMIT = f"{DELTA}/catalogs/unity/transactions/commit"
LOAD = f"{DELTA}/catalogs/unity/transactions/load"
Change = dict[str, Any]
Tables = tuple[WireTable, WireTable]


@pytest.fixture
def tables(http: TestClient) -> Tables:
    return WireTable(http).create(), WireTable(http, "stock").create()


def change(table: WireTable, staged: Staged, **more: Any) -> Change:
    return {
        "identifier": {"namespace": ["default"], "name": table.name},
        "requirements": [{"type": "assert-table-uuid", "uuid": table.table_id}],
        "updates": [{"action": "add-commit", "commit": staged.commit}],
        **more,
    }


def send(http: TestClient, *changes: Change) -> Any:
    return http.request("POST", COMMIT, json={"table-changes": list(changes)})


def latest(tables: Tables) -> list[int]:
    return [table.load()["latest-table-version"] for table in tables]


def test_config_lists_the_calls_and_a_commit_is_one_for_all_tables(http: TestClient, tables: Tables) -> None:
    listed = http.get(f"{DELTA}/config?catalog=unity&protocol-versions=1.0").json()["endpoints"]
    assert {f"POST /v1/catalogs/{{catalog}}/transactions/{call}" for call in ("commit", "load")} <= {*listed}
    changes = [change(table, table.write_staged(1)) for table in tables]
    for _ in range(2):  # the replay of a group that landed
        answer = send(http, *changes)
        assert (answer.status_code, answer.content) == (204, b"")
    assert latest(tables) == [1, 1]
    identifiers = [each["identifier"] for each in changes]
    together = http.request("POST", LOAD, json={"identifiers": identifiers}).json()["tables"]
    assert [each["latest-table-version"] for each in together] == [1, 1]
    assert [each["metadata"]["table-uuid"] for each in together] == [table.table_id for table in tables]


Spoil = Callable[[Tables, list[Change]], object]


def _other_table(_: Tables, changes: list[Change]) -> None:
    changes[1]["identifier"]["name"] = "missing"


def _other_uuid(_: Tables, changes: list[Change]) -> None:
    changes[1]["requirements"][0]["uuid"] = str(uuid.uuid4())


def _report(_: Tables, changes: list[Change]) -> None:
    changes[1]["updates"].append({"action": "set-latest-backfilled-version", "latest-published-version": 0})


def _missing(tables: Tables, changes: list[Change]) -> None:
    staged = tables[1].write_staged(1)
    staged.path.unlink()
    changes[1] = change(tables[1], staged)


def _many(_: Tables, changes: list[Change]) -> None:
    changes.extend(changes[:1] * 998)


REFUSED: dict[str, tuple[Spoil, int, str, int | None]] = {
    "conflict": (lambda tables, _: tables[1].land(1), 409, "unity.default.stock: Commit version", 1),
    "gap": (
        lambda tables, changes: changes.__setitem__(1, change(tables[1], tables[1].write_staged(5))),
        400, "must be the next version", 1,
    ),
    "staged file missing": (_missing, 400, "is missing", 1),
    "unknown table": (_other_table, 404, "unity.default.missing", 1),
    "another uuid": (_other_uuid, 409, "assert-table-uuid failed", 1),
    "no commit": (lambda _, changes: changes[1].update(updates=[]), 400, "At least one update", 1),
    "a report": (_report, 400, "cannot be in a transaction", 1),
    "etag": (
        lambda _, changes: changes[1]["requirements"].append({"type": "assert-etag", "etag": "old"}),
        409, "assert-etag failed", 1,
    ),
    "empty": (lambda _, changes: changes.clear(), 400, "without members", None),
    "one table twice": (lambda _, changes: changes.append(changes[0]), 400, "members 0 and 2", None),
    "1,000 members": (_many, 400, "1000 table changes; expected at most 100", None),
    "two schemas": (
        lambda _, changes: changes[1]["identifier"].update(namespace=["a", "b"]), 400, "namespace", None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_transaction_changes_no_table_and_names_the_member(http: TestClient, tables: Tables, name: str) -> None:
    spoil, status, message, member = REFUSED[name]
    changes = [change(table, table.write_staged(1)) for table in tables]
    spoil(tables, changes)
    before = latest(tables)
    answer = send(http, *changes)
    assert answer.status_code == status, answer.text
    assert message in answer.json()["error"]["message"]
    assert answer.json().get("member") == member
    assert latest(tables) == before


@pytest.mark.parametrize(
    ("names", "status", "message"),
    [
        (["orders", "missing"], 404, "unity.default.missing"),
        (["orders"] * 101, 400, "101 tables to read in one state; expected at most 100"),
    ],
)
def test_refused_load_names_its_reason(
    http: TestClient, tables: Tables, names: list[str], status: int, message: str
) -> None:
    answer = http.request("POST", LOAD, json={"identifiers": [{"namespace": ["default"], "name": n} for n in names]})
    assert answer.status_code == status, answer.text
    assert message in answer.json()["error"]["message"]


# The client


class Losing(Connection):
    """Loses requests or answers of transactions: `plan` says for each whether it is carried out."""

    def __init__(self, url: str) -> None:
        super().__init__(address_of(url), timeout=60)
        self.plan: list[bool] = []
        self.held: list[tuple[str, str, bytes | None]] = []
        self.config: bytes | None = None
        self.sent: list[str] = []

    def send(self, method: str, target: str, body: bytes | None = None) -> Reply:
        self.sent.append(f"{method} {target}")
        if "/config" in target and self.config is not None:
            return Reply(status=200, body=self.config)
        if not target.endswith("transactions/commit") or not self.plan:
            return super().send(method, target, body)
        if self.plan.pop(0):
            super().send(method, target, body)
        else:
            self.held.append((method, target, body))
        raise NoAnswerError("the answer is lost")


@pytest.fixture
def connection(listen: Listen) -> Losing:
    return Losing(listen())


@pytest.fixture
def remote(connection: Losing) -> Iterator[RemoteWarehouse]:
    environment = Environment(pause=lambda seconds: None)
    owner = RemoteOwner(connection.address, environment, connection=connection)
    with RemoteWarehouse(owner, environment) as warehouse:
        for name in ("orders", "stock"):
            warehouse.create_table(name, SCHEMA)
        yield warehouse


def both(warehouse: RemoteWarehouse | refimpl.Warehouse) -> list[list[int]]:
    return [sorted(s.to_arrow()["id"].to_pylist()) for s in warehouse.snapshots("orders", "stock")]


@pytest.mark.parametrize("carried_out", [True, False])
def test_lost_answer_is_resolved_by_sending_the_group_again(
    remote: RemoteWarehouse, connection: Losing, carried_out: bool
) -> None:
    connection.plan = [carried_out] * 2
    with remote.transaction() as tx:
        tx.table("orders").append(rows(1))
        tx.table("stock").append(rows(2))
    assert {committed.tries for committed in tx.committed.values()} == {1}
    assert both(remote) == [[1], [2]]


def test_unknown_group_is_resolved_as_a_whole(remote: RemoteWarehouse, connection: Losing) -> None:
    """No member is ever sent alone. Once another commit has the version of one member, none lands."""
    owner = remote.owner
    with pytest.raises(OutcomeUnknown) as caught, remote.transaction() as tx:
        tx.table("orders").append(rows(1))
        tx.table("stock").append(rows(2))
        connection.plan = [False] * 10_000
    connection.plan = []
    known = caught.value
    landed = owner.attempt_outcome(known.table_id, known.attempt)
    assert isinstance(landed, Landed)
    assert both(remote) == [[1], [2]]

    connection.plan = [False] * TRIES
    handles = [remote.table(name) for name in ("orders", "stock")]
    members = []
    for handle in handles:
        transaction = handle.transaction()
        loop = transaction.prepared()
        loop.begin()
        proposal = OwnerProposer(loop.reader, loop.policy).proposal(2, loop.bytes_now())
        members.append(Member(table_id=str(handle.table_id), version=2, proposal=proposal))
    with pytest.raises(OutcomeUnknown):
        owner.commit_group(members)
    remote.table("stock").append(rows(3))
    connection.plan = []
    assert owner.attempt_outcome(members[1].table_id, members[1].proposal.attempt) == NotLanded()
    assert connection.held
    for request in connection.held:  # the late copies
        Connection.send(connection, *request)
    refused = owner.commit_group(members)
    assert isinstance(refused, GroupRefused)
    assert refused.lost == (1,)
    assert [ids_in(handle) for handle in handles] == [[1], [2, 3]]


def test_server_without_transactions_is_refused_by_name(remote: RemoteWarehouse, connection: Losing) -> None:
    connection.config = b'{"endpoints": ["GET /v1/config"], "protocol-version": "1.0"}'
    for attempt in (lambda: remote.snapshots("orders"), lambda: remote.transaction("orders").__enter__()):
        with pytest.raises(InvalidRequestError, match=r"transactions over several tables; read and commit each table"):
            attempt()
    assert not any("transactions" in call for call in connection.sent)
