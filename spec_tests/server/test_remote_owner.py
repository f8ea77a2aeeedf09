"""`refimpl.open` with a URL: the client works through a server, and no network fault loses or repeats a commit.

UNITY_CATALOG.md#status-is-a-promise"""

import dataclasses
import itertools
import re
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import Mock, patch
from urllib.request import urlopen

import msgspec
import pytest

import refimpl
from conformance.adapters.listener import Handler, Listener
from refimpl.catalog.messages import LoadedTable
from refimpl.cli.options import WAREHOUSE_VARIABLE
from refimpl.cli.output import ExitCode
from refimpl.client.data_maintenance import optimize, vacuum
from refimpl.client.maintenance import clean_up, write_checkpoint
from refimpl.client.ownership import hand_back
from refimpl.client.table import Table
from refimpl.protocol import log_path
from refimpl.protocol.commit_owner import (
    ALLOWED_BY_DEFAULT,
    CLIENT_PUBLISHES_AFTER,
    Backfilled,
    Maintenance,
    MaintenancePolicy,
)
from refimpl.protocol.commits import Conflict, Landed, NotLanded, Rejected, StagedProposal
from refimpl.protocol.errors import (
    InvalidRequestError,
    MaintenanceRefusedError,
    OutcomeUnknown,
    OwnerUnavailableError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from refimpl.protocol.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, CommitMode, TableFeature
from refimpl.remote_owner.connection import (
    LONGEST_PAUSE,
    TRIES,
    Connection,
    DeltaCalls,
    NoAnswerError,
    Refusal,
    Reply,
    address_of,
)
from refimpl.remote_owner.owner import RemoteOwner
from refimpl.server.access import Scope, Tokens
from refimpl.storage.environment import Environment, clock_ms, random_uuid
from refimpl.warehouse import RemoteWarehouse
from spec_tests.cli.conftest import CommandLine, cli
from spec_tests.conformance.adapters.catalog_server import PAGE, Catalog, Forgetting, serving
from spec_tests.server.conftest import SCHEMA, Listen, ids_in, rows
from spec_tests.server.wire import DELTA
from spec_tests.support.builders import append
from spec_tests.support.serving import Fault, FaultProxy, Match, Plan

__all__ = ["cli"]

Reach = Callable[..., RemoteWarehouse]


@pytest.fixture
def reach() -> Iterator[Reach]:
    """Opens a URL, with retries that do not wait."""
    with ExitStack() as stack:

        def reached(url: str, *, token: str | None = None) -> RemoteWarehouse:
            environment = Environment(pause=lambda seconds: None)
            return stack.enter_context(refimpl.open(url, token=token, environment=environment))

        yield reached


@pytest.fixture
def remote(listen: Listen, reach: Reach) -> RemoteWarehouse:
    return reach(listen())


class Sent(Connection):
    """Records the methods of all requests. `table_id`: replaces the real id in answers to a lost race."""

    def __init__(self, url: str, table_id: str | None) -> None:
        super().__init__(address_of(url), timeout=120)
        self.methods: list[str] = []
        self._table_id = table_id

    def send(self, method: str, target: str, body: bytes | None = None) -> Reply:
        self.methods.append(method)
        reply = super().send(method, target, body)
        if reply.status != 409 or self._table_id is None:
            return reply
        answer = msgspec.json.decode(reply.body)
        answer["table"]["metadata"]["table-uuid"] = self._table_id
        return dataclasses.replace(reply, body=msgspec.json.encode(answer))


@pytest.mark.parametrize(
    ("table_id", "requests"), [(None, ["POST"]), (str(uuid.uuid4()), ["POST", "GET"])], ids=["its own", "another"]
)
def test_answer_to_a_lost_race_has_the_table(
    listen: Listen, reach: Reach, table_id: str | None, requests: list[str]
) -> None:
    """UNITY_CATALOG.md#conflict: the loser need not load the table, unless the answer has another table."""
    url = listen()
    table = reach(url).create_table("orders", SCHEMA)
    table.append(rows(1))
    sent = Sent(url, table_id)
    owner = RemoteOwner(sent.address, Environment(), connection=sent)
    resolved = owner.resolve("orders")
    attempt, winner = str(uuid.uuid4()), resolved.commits.commits[0].file_name or ""
    name = table.log.stage("_staged_commits", 1, attempt, table.log.read_staged("_staged_commits", winner))
    table.append(rows(2))
    sent.methods.clear()
    outcome = owner.commit(resolved.table_id, 1, StagedProposal(attempt=attempt, file_name=name))
    assert sent.methods == requests
    assert outcome == Conflict(latest_ratified_version=2, winners=owner.get_commits(resolved.table_id, 1).commits)
    owner.close()


def calls_answered(answer: Reply, *before: Exception) -> DeltaCalls:
    """Calls to a server that gives every request this answer, after these errors."""
    address = address_of("http://localhost:1")
    connection = Connection(address, timeout=1)
    connection.send = Mock(side_effect=itertools.chain(before, itertools.repeat(answer)))  # type: ignore[method-assign]
    return DeltaCalls(address, Environment(pause=lambda _: None), connection)


@pytest.mark.parametrize(("status", "kind"), [(429, "ResourceExhaustedException"), (400, "InvalidParameterException")])
@pytest.mark.parametrize("answered", [True, False], ids=["answered", "lost"])
def test_refusal_after_a_lost_answer_proves_nothing(status: int, kind: str, answered: bool) -> None:
    """The first request may have created the table, or may still arrive. Taken as "nothing landed", the refusal of the
    second one made the client delete version 0 and the data files."""

    refusal = Reply(status=status, body=msgspec.json.encode({"error": {"message": "no", "type": kind, "code": 0}}))
    calls = calls_answered(refusal, *([] if answered else [NoAnswerError("the connection broke")]))
    if not answered:
        with pytest.raises(OutcomeUnknown, match=f"the connection broke; its repetition: .* {status} {kind}: no"):
            calls.call("POST", "/t", LoadedTable, b"", lost=True)
    elif status == 429:
        with pytest.raises(OwnerUnavailableError):
            calls.call("POST", "/t", LoadedTable, b"", lost=True)
    else:
        assert calls.call("POST", "/t", LoadedTable, b"", lost=True) == Refusal(status=400, kind=kind, message="no")


UPDATE = Match(method="POST", path=r"/tables/orders$")
CREATE = Match(method="POST", path=r"/tables$")


def test_a_refused_replay_stays_unknown_if_the_table_cannot_be_read(listen: Listen) -> None:
    """The first request arrives late, just before its replay, whose refusal does not have the table. Then the server is
    gone. The owner answered that nothing landed."""
    with refimpl.open(listen(), token=None, environment=Environment(pause=lambda seconds: None)) as remote:
        table = remote.create_table("orders", SCHEMA)
        owner, table_id, attempt = remote.owner, table.table_id or "", str(uuid.uuid4())
        assert isinstance(owner, RemoteOwner)
        name = table.log.stage("_staged_commits", 1, attempt, append(clock_ms() + 1))
        connection, posts = owner._calls._connection, itertools.count(1)
        send, gone = connection.send, False

        def late(method: str, target: str, body: bytes | None = None) -> Reply:
            nonlocal gone
            number = next(posts) if method == "POST" else 0
            if gone or 0 < number <= TRIES:
                raise NoAnswerError("the connection broke")
            reply = send(method, target, body)
            if number == 0:
                return reply
            assert reply.status == 200
            gone = True
            error = {"message": "no", "type": "CommitVersionConflictException", "code": 409}
            return Reply(status=409, body=msgspec.json.encode({"error": error}))

        with patch.object(connection, "send", late):
            with pytest.raises(OutcomeUnknown):
                owner.commit(table_id, 1, StagedProposal(attempt=attempt, file_name=name))
            with pytest.raises(OutcomeUnknown):
                owner.attempt_outcome(table_id, attempt)
        assert isinstance(owner.attempt_outcome(table_id, attempt), Landed)


def test_undecided_attempt_stays_unknown_until_its_version_is_taken(listen: Listen, reach: Reach) -> None:
    url = listen()
    with FaultProxy(url) as proxy:
        table = reach(proxy.url).create_table("orders", SCHEMA)
        proxy.next(*[Fault.DROP_REQUEST] * 100, match=UPDATE)
        with pytest.raises(OutcomeUnknown) as unknown:
            table.append(rows(1))
    other = reach(url)
    ids = unknown.value.table_id, unknown.value.attempt
    with pytest.raises(OutcomeUnknown, match="not decided"):
        other.owner.attempt_outcome(*ids)
    other.table("orders").append(rows(2))
    assert other.owner.attempt_outcome(*ids) == NotLanded()
    assert ids_in(other.table("orders")) == [2]


def test_server_that_was_not_reached_took_no_commit(listen: Listen, reach: Reach, directory: Path) -> None:
    with FaultProxy(listen()) as proxy:
        table = reach(proxy.url).create_table("orders", SCHEMA)
        transaction = table.transaction()
        transaction.claim("app", 1)
        proxy.close()
        with pytest.raises(OwnerUnavailableError, match=r"cannot connect to http://127\.0\.0\.1"):
            transaction.commit()
    with refimpl.open(directory) as local:
        assert local.table("orders").snapshot().version == 0


# Servers that behave like Unity Catalog's


@pytest.fixture
def forgetting(tmp_path: Path) -> Iterator[Catalog]:
    with serving(tmp_path / "catalog", Forgetting) as catalog:
        yield catalog


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with serving(tmp_path / "catalog") as catalog:
        yield catalog


PLACE = "?catalog=kit&schema=kit"


def test_tables_of_the_catalog_are_found_by_name_id_and_path(catalog: Catalog, reach: Reach) -> None:
    """The catalog has more tables than a page of its list, and the process has seen none of them."""
    writer = reach(catalog.url + PLACE)
    made = {name: writer.create_table(name, SCHEMA) for name in (f"t{number:02}" for number in range(PAGE + 2))}
    catalog.api.show(*made)
    last = f"t{PAGE + 1}"
    made[last].append(rows(1, 2))
    for reference in (last, f"kit.{last}", f"kit.kit.{last}", made[last].table_id or "", made[last].location):
        table = reach(catalog.url + PLACE).table(reference)
        assert (table.name, ids_in(table), ids_in(table, version=0)) == (last, [1, 2], [])
    assert reach(catalog.url + PLACE).tables() == sorted(made)


def test_client_publishes_where_the_server_does_not(forgetting: Catalog, reach: Reach) -> None:
    """The client makes more commits than the ten that Unity Catalog keeps. Readers by path see the published
    versions."""
    table = reach(forgetting.url + PLACE).create_table("orders", SCHEMA, partition_columns=["day"])
    for number in range(CLIENT_PUBLISHES_AFTER + 4):
        table.append(rows(number))
    assert ids_in(table) == list(range(CLIENT_PUBLISHES_AFTER + 4))
    owner = table.owner
    assert owner is not None
    assert table.log.published_versions() == set(range(CLIENT_PUBLISHES_AFTER + 1))
    assert [commit.version for commit in owner.get_commits(table.table_id).commits] == [9, 10, 11, 12]
    assert owner.backfill_to_version(table.table_id, 10) == Backfilled(through=10, published=2)
    assert table.publish() == Backfilled(through=12, published=2)
    assert owner.backfill_to_version(table.table_id) == Backfilled(through=12, published=0)
    with pytest.raises(InvalidRequestError, match=r"version 99 .* is not ratified"):
        owner.backfill_to_version(table.table_id, 99)


@pytest.mark.parametrize("name", ["{folder}/secret", "../../../../secret", "a/secret"])
def test_commit_file_outside_of_the_staging_folder_is_refused(
    catalog: Catalog, tmp_path: Path, reach: Reach, name: str
) -> None:
    """Publishing it would give a file of this host to the readers of the server's storage."""
    (tmp_path / "secret").write_text("mine")
    table = reach(catalog.url + PLACE).create_table("orders", SCHEMA)
    table.append(rows(1))
    renamed = {"file-name": name.format(folder=tmp_path)}
    catalog.edit("/tables/", lambda loaded: loaded["commits"][0].update(renamed))
    owner = table.owner
    assert owner is not None
    with pytest.raises(InvalidRequestError, match="secret"):
        owner.backfill_to_version(table.table_id)
    assert table.log.published_versions() == {0}


def test_table_that_the_server_does_not_manage_is_refused(catalog: Catalog, reach: Reach) -> None:
    """Other writers commit to it without the server, which does not know its newest version."""
    table = reach(catalog.url + PLACE).create_table("orders", SCHEMA)
    catalog.edit("/tables/", lambda loaded: loaded["metadata"]["properties"].pop("delta.feature.catalogManaged"))
    with pytest.raises(UnsupportedFeatureError, match="read it by its path"):
        reach(catalog.url + PLACE).table("orders")
    with pytest.raises(UnsupportedFeatureError, match="read it by its path"):
        table.append(rows(1))


CONFIG = f"{DELTA}/config?catalog=unity&protocol-versions=1.0"


@pytest.mark.parametrize(
    ("failure", "raised"),
    [(KeyboardInterrupt, KeyboardInterrupt), (TimeoutError, NoAnswerError), (ConnectionResetError, NoAnswerError)],
)
def test_answer_of_an_interrupted_request_is_not_read_by_the_next(
    listen: Listen, failure: type[BaseException], raised: type[BaseException]
) -> None:
    connection = Connection(address_of(listen()), timeout=60)
    with patch.object(Connection, "_chunks", side_effect=failure), pytest.raises(raised):
        connection.send("GET", "/nothing")
    assert connection.send("GET", CONFIG).status == 200


def test_a_forked_child_reads_no_answer_of_its_parent(listen: Listen) -> None:
    """The parent forks in the middle of a request: its child and it have the same socket."""
    connection = Connection(address_of(listen()), timeout=60)

    def forking(response: Any) -> Iterator[bytes]:
        with patch("os.getpid", return_value=0), patch.object(Connection, "_chunks", chunks):
            assert connection.send("GET", CONFIG).status == 200
        return chunks(connection, response)

    chunks = Connection._chunks
    with patch.object(Connection, "_chunks", side_effect=forking):
        assert connection.send("GET", "/nothing").status == 404


def test_full_backlog_is_published_and_the_commit_lands(forgetting: Catalog, reach: Reach) -> None:
    """Another client left ten commits unpublished: 429."""
    table = reach(forgetting.url + PLACE).create_table("orders", SCHEMA)
    with patch("refimpl.protocol.commit_owner.CLIENT_PUBLISHES_AFTER", 100):
        for number in range(12):
            table.append(rows(number))
    assert ids_in(table) == list(range(12))


@pytest.mark.parametrize(
    ("fault", "published", "version"),
    [(Fault.DROP_RESPONSE, False, 1), (Fault.DROP_RESPONSE, True, 1), (Fault.DROP_REQUEST, False, 2)],
)
def test_replay_answered_as_a_conflict_is_recognized_in_the_log(
    forgetting: Catalog, reach: Reach, fault: Fault, published: bool, version: int
) -> None:
    """Before the request is repeated, another writer commits the next version, and publishes. If only the answer was
    lost, the request landed before; otherwise the client rebases its work."""
    with FaultProxy(forgetting.url) as proxy:
        other = reach(forgetting.url + PLACE)
        other.create_table("orders", SCHEMA)

        def overtake(seconds: float) -> None:
            if not overtaken:
                overtaken.append(other.table("orders").append(rows(2)))
                if published:
                    other.owner.backfill_to_version(other.table("orders").table_id or "")

        overtaken: list[object] = []
        slow = refimpl.open(proxy.url + PLACE, token=None, environment=Environment(pause=overtake))
        table = slow.table("orders")
        proxy.next(fault, match=UPDATE)
        committed = table.append(rows(1))
        assert (committed and committed.version, len(overtaken)) == (version, 1)
        assert ids_in(other.table("orders")) == [1, 2]


@pytest.mark.longer
def test_writers_over_a_bad_network_commit_each_row_once(forgetting: Catalog, reach: Reach) -> None:
    """A third of all requests or answers is lost, repeated, rejected or late. After an unknown outcome, the row may be
    there or not."""
    shares = {
        Fault.DROP_REQUEST: 0.05, Fault.DROP_RESPONSE: 0.1, Fault.DUPLICATE: 0.05, Fault.BUSY: 0.05,
        Fault.UNAVAILABLE: 0.05, Fault.UNAVAILABLE_LANDED: 0.05, Fault.DELAY: 0.02,
    }  # fmt: skip
    reach(forgetting.url + PLACE).create_table("orders", SCHEMA)
    acknowledged: list[int] = []
    unknown: list[int] = []

    def write(table: Table, start: int) -> None:
        for number in range(start, start + 8):
            with suppress(OwnerUnavailableError):
                try:
                    table.append(rows(number))
                except OutcomeUnknown:
                    unknown.append(number)
                else:
                    acknowledged.append(number)

    with FaultProxy(forgetting.url, plan=Plan(seed=1, shares=shares), patience=0.05) as proxy:
        tables = [table_through(reach(proxy.url + PLACE)) for _ in range(3)]
        with ThreadPoolExecutor() as writers:
            list(writers.map(write, tables, (0, 100, 200)))
        assert proxy.counts().total() > 20
    landed = ids_in(reach(forgetting.url + PLACE).table("orders"))
    assert len(acknowledged) > 12
    assert sorted(set(landed)) == landed
    assert set(acknowledged) <= set(landed) <= {*acknowledged, *unknown}


def table_through(warehouse: RemoteWarehouse) -> Table:
    for _ in range(20):
        with suppress(OwnerUnavailableError):
            return warehouse.table("orders")
    return warehouse.table("orders")


def test_creation_answered_with_another_table_keeps_version_0(catalog: Catalog, reach: Reach) -> None:
    """The server registered the table. If the client took its name for taken, it would delete the table's files."""
    once = iter([{"table-uuid": "0b0b0b0b-0b0b-4b0b-8b0b-0b0b0b0b0b0b"}])
    catalog.edit("POST .*/tables$", lambda made: made["metadata"].update(next(once, {})))
    table = reach(catalog.url + PLACE).create_table("orders", SCHEMA)
    assert (table.table_id, table.snapshot().version) == (catalog.table("orders").reference, 0)


@pytest.mark.parametrize("feature", ["checkConstraints", "v2Checkpoint", "nextFeature"])
def test_required_feature_is_written_or_named_in_the_error(
    catalog: Catalog, tmp_path: Path, reach: Reach, feature: str
) -> None:
    def demand(staged: Any) -> None:
        staged["required-protocol"]["writer-features"].append(feature)
        staged["required-properties"]["delta.demanded"] = "yes"

    catalog.edit("/staging-tables", demand)
    remote = reach(catalog.url + PLACE)
    if feature == "nextFeature":
        with pytest.raises(UnsupportedFeatureError, match=feature):
            remote.create_table("orders", SCHEMA)
        assert not [path for path in (tmp_path / "catalog").rglob("*") if path.is_file()]
        return
    snapshot = remote.create_table("orders", SCHEMA).snapshot()
    assert feature in (snapshot.protocol.writer_features or ())
    assert snapshot.metadata.configuration["delta.demanded"] == "yes"


@pytest.mark.parametrize(
    "of_the_server",
    [{"of the catalog": "kept"}, {"delta.rowTracking.rowIdHighWaterMark": "7", "delta.clusteringColumns": '[["day"]]'}],
)
def test_server_gets_changed_metadata(catalog: Catalog, reach: Reach, of_the_server: dict[str, str]) -> None:
    """The server keeps its own properties, and those in which Unity Catalog has two metadata domains, which are not in
    the table's configuration."""
    table = reach(catalog.url + PLACE).create_table(
        "orders", SCHEMA, properties={"delta.appendOnly": "true", "team": "a", "old": "1"}
    )
    catalog.edit("/tables/", lambda loaded: loaded["metadata"]["properties"].update(of_the_server))
    transaction = table.transaction()
    transaction.set_properties({"team": "b"}, remove=["delta.appendOnly", "old"])
    transaction.commit()
    updates = {update["action"]: update for update in catalog.updates[-1]["updates"]}
    assert updates["set-properties"]["updates"] == {"team": "b"}
    assert updates["remove-properties"]["removals"] == ["delta.appendOnly", "old"]


# Names, errors and invalid input


def test_dropped_table_is_not_found_under_its_id(remote: RemoteWarehouse) -> None:
    first = remote.create_table("orders", SCHEMA)
    assert remote.table(first.table_id or "").name == "orders"
    assert remote.table(first.location).name == "orders"
    staged = first.log.stage(CATALOG_MANAGED.staging_folder, 1, random_uuid(), append(clock_ms()))
    remote.owner.drop_table(first.table_id or "")
    with pytest.raises(TableNotFoundError):  # it did not land
        remote.owner.commit(first.table_id or "", 1, StagedProposal(attempt=staged.split(".")[1], file_name=staged))
    second = remote.create_table("orders", SCHEMA)
    with pytest.raises(TableNotFoundError):
        first.append(rows(1))
    second.append(rows(2))
    assert ids_in(remote.table("orders")) == [2]


def test_error_names_the_operation_that_the_api_lacks(remote: RemoteWarehouse, tmp_path: Path) -> None:
    table = remote.create_table("orders", SCHEMA)
    for options, lacks in (
        ({"commit_mode": CommitMode.INLINE}, "inline commits"),
        ({"location": tmp_path / "here"}, "location"),
        ({"policy": MaintenancePolicy()}, "policy"),
        ({"feature": MANAGED_COMMIT}, "managedCommit"),
    ):
        with pytest.raises(InvalidRequestError, match=lacks):
            remote.create_table("other", SCHEMA, **options)
    with pytest.raises(InvalidRequestError, match="no call for a hand-back"):
        hand_back(table)
    assert remote.tables() == ["orders"]


JOBS: dict[Maintenance, Callable[[Table], object]] = {
    Maintenance.OPTIMIZE: optimize,
    Maintenance.VACUUM: vacuum,
    Maintenance.METADATA_CLEANUP: clean_up,
}


@pytest.mark.parametrize(
    ("allowed", "shown", "runs"),
    [
        ((), [], ()),
        ((Maintenance.OPTIMIZE,), [], ()),  # with its permission the client could run REORG, too
        ((Maintenance.OPTIMIZE, Maintenance.REORG), ["DATA_REORGANIZATION"], (Maintenance.OPTIMIZE,)),
        ((Maintenance.VACUUM,), ["DATA_CLEANUP"], (Maintenance.VACUUM,)),
        ((Maintenance.METADATA_CLEANUP,), ["METADATA_CLEANUP"], (Maintenance.METADATA_CLEANUP,)),
    ],
)
def test_client_runs_the_maintenance_that_the_server_permits(
    remote: RemoteWarehouse, directory: Path, allowed: tuple[Maintenance, ...], shown: list[str],
    runs: tuple[Maintenance, ...],
) -> None:  # fmt: skip
    """UNITY_CATALOG.md#maintenance. The error names the missing permission, and the table stays as it is."""
    table = remote.create_table("orders", SCHEMA)
    for number in (1, 3):
        table.append(rows(number))
    with refimpl.open(directory) as local:
        local.owner.set_policy(table.table_id or "", MaintenancePolicy(allowed=ALLOWED_BY_DEFAULT | {*allowed}))
    url = f"{remote.owner.address.server}{DELTA}/catalogs/unity/schemas/default/tables/orders"
    with urlopen(url) as answer:
        assert msgspec.json.decode(answer.read())["allowed-maintenance-operations"] == shown
    for job, run in JOBS.items():
        if job in runs:
            run(table)
        else:
            before = table.snapshot().version
            with pytest.raises(MaintenanceRefusedError, match=f"{job.value}.*_(REORGANIZATION|CLEANUP)"):
                run(table)
            assert table.snapshot().version == before
    assert table.snapshot().version == 2 + (Maintenance.OPTIMIZE in runs)
    assert ids_in(table) == [1, 3]


@pytest.mark.parametrize(
    ("fields", "allowed"),
    [
        ({}, ()),
        ({"allowed-maintenance-operations": None}, ()),
        ({"allowed-maintenance-operations": []}, ()),
        ({"allowed-maintenance-operations": ["TABLE_PURGE", "data_cleanup", "VACUUM"]}, ()),
        ({"additional-client-maintenance-operations": ["VACUUM", "DATA_CLEANUP"]}, ()),
        ({"allowed-maintenance-operations": ["TABLE_PURGE", "DATA_CLEANUP"]}, (Maintenance.VACUUM,)),
    ],
)
def test_unknown_operation_permits_nothing(
    catalog: Catalog, reach: Reach, fields: dict[str, Any], allowed: tuple[Maintenance, ...]
) -> None:
    """Nor does the field of a draft, or a server that has no such field."""

    def replace(loaded: Any) -> None:
        del loaded["allowed-maintenance-operations"], loaded["additional-client-maintenance-operations"]
        loaded.update(fields)

    table = reach(f"{catalog.url}?catalog=kit&schema=kit").create_table("orders", SCHEMA)
    catalog.edit("/tables/", replace)
    assert table.owner is not None
    policy = table.owner.resolve("orders").policy
    assert policy.allowed == ALLOWED_BY_DEFAULT | {*allowed}


def test_name_of_a_table_that_the_api_cannot_express(remote: RemoteWarehouse, directory: Path) -> None:
    """Another table may have had this name before."""
    table = remote.create_table("orders", SCHEMA)
    with refimpl.open(directory) as local:
        local.owner.drop_table(table.table_id or "")
        local.create_table("orders", SCHEMA, feature=MANAGED_COMMIT)
    with pytest.raises(UnsupportedFeatureError, match="read it by its path"):
        remote.table("orders")
    with pytest.raises(TableNotFoundError):
        table.append(rows(1))
    assert remote.tables() == []


def test_token_that_expires_in_the_middle(listen: Listen, reach: Reach, directory: Path) -> None:
    url = listen()
    with refimpl.open(directory) as local:
        tokens = Tokens(local)
        table = reach(url, token=tokens.add("writer", Scope.WRITE)).create_table("orders", SCHEMA)
        with pytest.raises(InvalidRequestError, match="the token is missing; set COMMIT_OWNER_TOKEN"):
            reach(url).table("orders")
        reader = reach(url, token=tokens.add("reader", Scope.READ)).table("orders")
        with pytest.raises(InvalidRequestError, match="use a token with this permission"):
            reader.append(rows(1))
        tokens.remove("writer")
        with pytest.raises(InvalidRequestError, match="the token is wrong or has expired"):
            table.append(rows(1))
        tokens.remove("reader")
        assert local.table("orders").snapshot().version == 0
        assert not list(table.location.rglob("*.parquet"))


@pytest.mark.parametrize("match", [CREATE, UPDATE])
def test_a_token_that_expires_leaves_the_outcome_unknown(
    listen: Listen, directory: Path, monkeypatch: pytest.MonkeyPatch, match: Match
) -> None:
    """The commit landed. The rejection of the repeated request does not prove the contrary."""
    with refimpl.open(directory, create=True) as local, FaultProxy(listen()) as proxy:
        tokens = Tokens(local)
        tokens.add("other", Scope.READ)
        monkeypatch.setenv("COMMIT_OWNER_TOKEN", tokens.add("writer", Scope.WRITE))

        def expire(seconds: float) -> None:
            with suppress(InvalidRequestError):
                tokens.remove("writer")

        with refimpl.open(proxy.url, token=None, environment=Environment(pause=expire)) as remote:
            proxy.next(Fault.DROP_RESPONSE, match=match)
            with pytest.raises(OutcomeUnknown) as unknown:
                remote.create_table("orders", SCHEMA).append(rows(1))
        assert "the token is wrong or has expired" in str(unknown.value.__cause__ or unknown.value)
        assert ids_in(local.table("orders")) == ([1] if match is UPDATE else [])


def test_drop_after_a_lost_answer_leaves_the_outcome_unknown(listen: Listen, directory: Path) -> None:
    """The commit landed, and then the table was dropped: no later answer "no such table" proves the contrary."""
    with refimpl.open(directory, create=True) as local, FaultProxy(listen()) as proxy:

        def drop(seconds: float) -> None:
            with suppress(InvalidRequestError):  # was dropped
                local.owner.drop_table(table.table_id or "")

        with refimpl.open(proxy.url, token=None, environment=Environment(pause=drop)) as remote:
            table = remote.create_table("orders", SCHEMA)
            proxy.next(Fault.DROP_RESPONSE, match=UPDATE)
            with pytest.raises(OutcomeUnknown) as unknown:
                table.append(rows(1))
            attempt, version = unknown.value.attempt, unknown.value.version
            (staged,) = table.log.staged_listing(CATALOG_MANAGED.staging_folder)
            proposal = StagedProposal(attempt=attempt, file_name=staged.name)
            for _ in range(2):
                with pytest.raises(OutcomeUnknown, match=attempt):
                    remote.owner.commit(table.table_id or "", version, proposal)
        assert len(list(table.location.rglob("*.parquet"))) == 1


class Twice(Connection):
    """The first commit arrives twice, and `between` runs in between. The client gets the second answer, or (`forgets`)
    that of a server that knows nothing of dropped tables."""

    def __init__(self, url: str, between: Callable[[], object], *, forgets: bool) -> None:
        super().__init__(address_of(url), timeout=120)
        self.between: Callable[[], object] | None = between
        self.forgets = forgets

    def send(self, method: str, target: str, body: bytes | None = None) -> Reply:
        reply = super().send(method, target, body)
        if self.between is None or method != "POST" or not target.endswith("/tables/orders"):
            return reply
        self.between()
        self.between = None
        if not self.forgets:
            return super().send(method, target, body)
        error = {"message": "dropped", "type": "NoSuchTableException", "code": 404}
        return Reply(status=404, body=msgspec.json.encode({"error": error}))


@pytest.mark.parametrize(
    ("forgets", "after", "error"),
    [
        (False, "published", OutcomeUnknown),
        (True, "published", None),
        (True, "cleaned up", OutcomeUnknown),
        (True, "deleted", OutcomeUnknown),
        (True, "recreated", OutcomeUnknown),
    ],
)
def test_commit_that_arrived_twice_around_a_drop_is_not_denied(
    listen: Listen, directory: Path, forgets: bool, after: str, error: type[Exception] | None
) -> None:
    """Taken as "nothing landed", the second answer made the client delete the data files of a commit that landed."""
    with refimpl.open(directory, create=True) as local:
        table_id = local.create_table("orders", SCHEMA).table_id or ""

        def drop() -> None:
            local.owner.drop_table(table_id)
            if after == "cleaned up":
                table.log.put_if_absent(log_path.commit(2), b"")
                table.log.delete(log_path.commit(1))
            elif after in ("deleted", "recreated"):
                shutil.rmtree(table.location)
            if after == "recreated":
                local.create_table("orders", SCHEMA, location=table.location).append(rows(2))

        twice = Twice(listen(), drop, forgets=forgets)
        owner = RemoteOwner(twice.address, Environment(pause=lambda seconds: None), connection=twice)
        table = Table.resolve("orders", owner, local.environment)
        with nullcontext() if error is None else pytest.raises(error):
            table.append(rows(1))
        owner.close()
        assert twice.between is None
        assert len(list(table.location.rglob("*.parquet"))) == (0 if after == "deleted" else 1)


@pytest.mark.parametrize("feature", [CATALOG_MANAGED, MANAGED_COMMIT], ids=lambda feature: feature.name)
def test_drop_whose_answer_was_lost_spares_the_next_table_of_the_name(
    listen: Listen, directory: Path, feature: TableFeature
) -> None:
    with FaultProxy(listen()) as proxy, refimpl.open(directory) as local:

        def create_again(seconds: float) -> None:
            if not local.tables():
                local.create_table("orders", SCHEMA, feature=feature)

        with refimpl.open(proxy.url, token=None, environment=Environment(pause=create_again)) as remote:
            table = remote.create_table("orders", SCHEMA)
            proxy.next(Fault.DROP_RESPONSE, match=Match(method="DELETE"))
            remote.owner.drop_table(table.table_id or "")
        assert local.tables() == ["orders"]


def test_commit_whose_answer_was_lost_is_found_after_a_rename(listen: Listen, directory: Path) -> None:
    with FaultProxy(listen()) as proxy, refimpl.open(directory, create=True) as local:

        def rename(seconds: float) -> None:
            if local.tables() == ["orders"]:
                local.owner.rename_table(table.table_id or "", "sales", before="orders")

        with refimpl.open(proxy.url, token=None, environment=Environment(pause=rename)) as remote:
            table = remote.create_table("orders", SCHEMA)
            proxy.next(Fault.DROP_RESPONSE, match=UPDATE)
            assert [table.append(rows(number)).version for number in (1, 2)] == [1, 2]
            assert ids_in(remote.table("sales")) == [1, 2]


@pytest.mark.parametrize("replies", [[None], [None] + [409] * 9], ids=["ours", "conflict"])
def test_creation_whose_answer_was_lost_is_found_after_a_rename(
    listen: Listen, directory: Path, replies: list[int | None]
) -> None:
    """Another table has the first name by then. As our server answers the repeated request, and as another one does."""
    with refimpl.open(directory, create=True) as local:

        def rename(seconds: float) -> None:
            if local.tables() == ["orders"]:
                local.owner.rename_table(local.table("orders").table_id or "", "sales", before="orders")
                local.create_table("orders", SCHEMA)

        with refimpl.open(listen(), token=None, environment=Environment(pause=rename)) as remote:
            with answering(remote.owner, "POST", replies, True):
                table = remote.create_table("orders", SCHEMA)
            table.append(rows(1))
            assert ids_in(remote.table("sales")) == [1]
            assert ids_in(remote.table("orders")) == []


def test_drop_that_arrives_twice_spares_the_next_table_of_the_name(listen: Listen, directory: Path) -> None:
    with refimpl.open(directory, create=True) as local, refimpl.open(listen(), token=None) as remote:
        table_id = remote.create_table("orders", SCHEMA).table_id or ""
        assert isinstance(remote.owner, RemoteOwner)
        connection = remote.owner._calls._connection
        send = connection.send

        def twice(method: str, target: str, body: bytes | None = None) -> Reply:
            reply = send(method, target, body)
            if method == "DELETE":
                local.create_table("orders", SCHEMA)
                assert send(method, target, body).status == 404
            return reply

        with patch.object(connection, "send", twice):
            remote.owner.drop_table(table_id)
        assert local.tables() == ["orders"]


def answering(owner: object, method: str, replies: list[int | None], landed: bool) -> AbstractContextManager[object]:
    """The owner's requests of this method get these answers, or none (None). `landed`: the server carries out the
    first one."""
    assert isinstance(owner, RemoteOwner)
    connection = owner._calls._connection
    send, left = connection.send, iter(replies)

    def answer(sent: str, target: str, body: bytes | None = None) -> Reply:
        status = next(left, 0) if sent == method and not target.endswith("/staging-tables") else 0
        if status == 0:
            return send(sent, target, body)
        if status is None:
            if landed:
                send(sent, target, body)
            raise NoAnswerError("the connection broke")
        kind = {404: "NoSuchTableException", 409: "AlreadyExistsException"}.get(status, "InvalidParameterException")
        return Reply(
            status=status, body=msgspec.json.encode({"error": {"message": "no", "type": kind, "code": status}})
        )

    return patch.object(connection, "send", answer)


@pytest.mark.parametrize(
    ("replies", "loads", "landed", "created"),
    [
        *(([None, status], [], True, True) for status in (400, 404, 409, 429)),
        ([409] * 99, [None] * 99, False, False),  # the request may have arrived twice: then the name is this table's
    ],
)
def test_refused_replay_of_a_creation_is_resolved_or_unknown(
    reach: Reach, listen: Listen, replies: list[int | None], loads: list[int | None], landed: bool, created: bool
) -> None:
    """As another server refuses it: the name is taken, or the staged table is not there any more. The files stay."""
    remote = reach(listen())
    with (
        answering(remote.owner, "POST", replies, landed),
        answering(remote.owner, "GET", loads, False),
        nullcontext() if created else pytest.raises(OutcomeUnknown),
    ):
        remote.create_table("orders", SCHEMA).append(rows(1))
    assert not created or ids_in(remote.table("orders")) == [1]


@pytest.mark.parametrize(
    ("replies", "loads", "landed", "known"),
    [
        ([None] + [404] * 9, [], True, True),
        *(([None] + [status] * 9, [], landed, landed) for status in (409, 429, 401, 503) for landed in (True, False)),
        ([404], [], False, True),  # the table was renamed meanwhile: a name that is gone does not prove a drop
        ([None], [0] + [None] * 99, True, False),
    ],
)
def test_refused_replay_of_a_drop_is_resolved_or_unknown(
    reach: Reach, listen: Listen, directory: Path, replies: list[int | None], loads: list[int | None], landed: bool,
    known: bool,
) -> None:  # fmt: skip
    remote = reach(listen())
    table_id = remote.create_table("orders", SCHEMA).table_id or ""
    with (
        answering(remote.owner, "DELETE", replies, landed),
        answering(remote.owner, "GET", loads, False),
        nullcontext() if known else pytest.raises(OutcomeUnknown),
    ):
        remote.owner.drop_table(table_id)
    with refimpl.open(directory) as local:
        assert local.tables() == ([] if landed or known else ["orders"])


def test_undecided_attempt_is_not_sent_for_another_version(reach: Reach, listen: Listen) -> None:
    remote, attempt = reach(listen()), str(uuid.uuid4())
    table = remote.create_table("orders", SCHEMA)
    name = table.log.stage("_staged_commits", 1, attempt, append(clock_ms() + 1))
    with answering(remote.owner, "POST", [None] * 99, False), pytest.raises(OutcomeUnknown):
        remote.owner.commit(table.table_id or "", 1, StagedProposal(attempt=attempt, file_name=name))
    other = StagedProposal(attempt=attempt, file_name=log_path.staged_commit(2, attempt))
    assert isinstance(remote.owner.commit(table.table_id or "", 2, other), Rejected)
    assert table.snapshot().version == 0


def test_a_version_that_was_published_and_cleaned_up_is_reported(listen: Listen, reach: Reach, directory: Path) -> None:
    """Another client published it, removed its staged file, and died before it reported that; a cleanup removed the
    published one."""
    remote = reach(listen())
    table = remote.create_table("orders", SCHEMA)
    for number in range(3):
        table.append(rows(number))
    with refimpl.open(directory) as local:
        local.owner.set_policy(table.table_id or "", MaintenancePolicy(allowed=frozenset(Maintenance)))
        same = local.table("orders")
        same.log.publish_ratified("_staged_commits", local.owner.get_commits(table.table_id or "").commits)
        write_checkpoint(same)
        assert clean_up(same, older_than=-1000).cut_off == 3
    for path in table.log.staged_listing("_staged_commits"):
        table.log.delete(f"_staged_commits/{path.name}")
    assert table.publish() == Backfilled(through=3, published=3)
    assert table.append(rows(3)).version == 4
    assert ids_in(remote.table("orders")) == [0, 1, 2, 3]


def test_a_job_that_the_owner_forbids_is_forbidden_to_remote_clients(
    listen: Listen, reach: Reach, directory: Path
) -> None:
    remote = reach(listen(backfill_every=1, allowed=frozenset({Maintenance.CHECKSUM})))
    table = remote.create_table("orders", SCHEMA)
    with pytest.raises(MaintenanceRefusedError, match="only checksum"):
        write_checkpoint(table)
    assert "commitOwner" not in "".join(table.snapshot().metadata.configuration)
    with refimpl.open(directory) as local:
        local.owner.set_policy(table.table_id or "", MaintenancePolicy())
    assert write_checkpoint(table).version == 0


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://10.0.0.1:8080", "use https://"),
        ("https://", "expected https://host:port"),
        ("https://host:99999", "expected https://host:port"),
        ("https://me:secret@host", "pass the token as token="),
        ("https://host?schemas=x", "unknown option 'schemas'"),
        ("https://a..b", "expected https://host:port"),
        ("http://localhost/a b", "expected https://host:port"),
        ("http://localhost/api/2.1/unity-catalog", "leave out /api/2.1/unity-catalog"),
        ("http://localhost/\u00e4", "expected https://host:port"),
    ],
)
def test_invalid_url_is_refused(url: str, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=re.escape(message)) as refused:
        refimpl.open(url)
    assert "secret" not in str(refused.value)


def test_options_of_servers_and_folders_do_not_mix(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="needs the URL of a server"):
        refimpl.open(str(tmp_path), token="x")
    with pytest.raises(InvalidRequestError, match=r"'htp://host': unknown scheme htp; expected http:// or"):
        refimpl.open("htp://host")
    with pytest.raises(InvalidRequestError, match="are for folders"):
        refimpl.open("https://host", create=True)


def handler(status: int, body: bytes, headers: dict[str, str]) -> type[Handler]:
    """Gives every GET request this answer."""

    class Answering(Handler):
        def do_GET(self) -> None:  # noqa: N802
            self.send_response_only(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    return Answering


@pytest.mark.parametrize(
    ("status", "headers", "body", "message"),
    [
        (200, {}, b"<html>welcome</html>", "is not the Delta API"),
        (200, {}, b'{"metadata": {}}', "is not the Delta API"),
        (404, {}, b"nothing here", "check the URL"),
        (302, {"Location": "https://elsewhere/"}, b"", "redirects to https://elsewhere/; open that URL"),
        (502, {}, b"bad gateway", "try again later"),
        (401, {"Date": "Thu, 01 Jan 1970 00:00:00 GMT"}, b"", "its clock differs from this host's by -"),
    ],
)
def test_answer_of_another_kind_of_server_is_explained(
    reach: Reach, status: int, headers: dict[str, str], body: bytes, message: str
) -> None:
    with Listener(handler(status, body, headers)) as server:
        with pytest.raises((InvalidRequestError, OwnerUnavailableError), match=re.escape(message)) as refused:
            reach(server.url, token="dco_secret").table("orders")
        assert server.url in str(refused.value)
        assert "dco_secret" not in str(refused.value)


def test_port_without_tls_is_explained(listen: Listen, reach: Reach) -> None:
    url = listen().replace("http://", "https://")
    with pytest.raises(InvalidRequestError, match="check that this port serves https"):
        reach(url).table("orders")


class NoTables(Handler):
    """A server without tables, which closes an idle connection after two answers."""

    connections: ClassVar[list[int]] = []

    def setup(self) -> None:
        super().setup()
        self.connections.append(0)

    def do_GET(self) -> None:  # noqa: N802
        body = b'{"error": {"type": "NoSuchTableException", "code": 404, "message": "no such table"}}'
        self.reply(404, body, "application/json")
        self.connections[-1] += 1
        self.close_connection = self.connections[-1] == 2


def test_connection_is_kept_and_replaced_when_the_server_closed_it(reach: Reach) -> None:
    NoTables.connections.clear()
    with Listener(NoTables) as server:
        remote = reach(server.url)
        for _ in range(4):
            with pytest.raises(TableNotFoundError, match="has no table"):
                remote.table("orders")
    assert NoTables.connections == [2, 2]


@pytest.mark.parametrize("beginning", [b"HTTP/1.1 ", b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n"])
def test_slow_answer_ends_at_the_timeout(beginning: bytes) -> None:
    stop = threading.Event()

    class Drips(Handler):
        def do_GET(self) -> None:  # noqa: N802
            self.wfile.write(beginning)
            self.wfile.flush()
            while not stop.wait(0.01):
                self.wfile.write(b"2")
                self.wfile.flush()

    with Listener(Drips) as server, pytest.raises(NoAnswerError, match=r"did not answer within 0\.05 s"):
        try:
            Connection(address_of(server.url), timeout=0.05).send("GET", "/")
        finally:
            stop.set()


# The command line


def test_command_line_works_on_a_server(
    cli: CommandLine, listen: Listen, monkeypatch: pytest.MonkeyPatch, directory: Path
) -> None:
    monkeypatch.setenv(WAREHOUSE_VARIABLE, listen())
    assert "has no tables" in cli("show").out
    assert cli("create", "sales", "-c", "id BIGINT, day INT").code == ExitCode.OK
    with refimpl.open(directory) as local:
        local.table("sales").append(rows(7, 8))
    assert cli("rows", "sales", "--json").json == [{"id": 7, "day": 1}, {"id": 8, "day": 0}]
    assert [entry["version"] for entry in cli("log", "sales", "--json").json] == [1, 0]
    (commit,) = cli("commits", "sales", "--json").json["commits"]
    assert cli("resolve", "sales", commit["attempt"]).code == ExitCode.OK
    assert cli("backfill", "sales", "--json").json == {"through": 1, "published": 1}
    assert cli("checkpoint", "sales").code == ExitCode.OK
    assert cli("create", "other", "-c", "id BIGINT", "--commit-mode", "inline").refuses("no call for inline commits")
    for words in (["verify"], ["policy", "sales"], ["hand-back", "sales"], ["token", "list"]):
        assert cli(*words).refuses("run it on the server's host")
    assert cli("vacuum", "sales").refuses("lacks the permission DATA_CLEANUP", ExitCode.REFUSED)
    assert cli("optimize", "sales").refuses("--allow optimize,reorg", ExitCode.REFUSED)
    with refimpl.open(directory) as local:
        table_id = local.owner.resolve("sales").table_id
        local.owner.set_policy(table_id, MaintenancePolicy(allowed=frozenset(Maintenance)))
    for job in ("vacuum", "optimize", "cleanup"):
        assert cli(job, "sales").code == ExitCode.OK
    assert cli("init").code == ExitCode.USAGE
    assert cli("drop", "sales", "--yes").code == ExitCode.OK
    assert cli("show", "--json").json == []


@pytest.mark.parametrize(("retry_after", "paused"), [("7", 7.0), ("86400", LONGEST_PAUSE)])
def test_busy_server_says_how_long_to_wait_within_a_limit(retry_after: str, paused: float) -> None:
    pauses: list[float] = []
    with (
        Listener(handler(503, b"", {"Retry-After": retry_after})) as server,
        refimpl.open(server.url, token=None, environment=Environment(pause=pauses.append)) as remote,
        pytest.raises(OwnerUnavailableError, match="503"),
    ):
        remote.table("orders")
    assert pauses == [paused] * (TRIES - 1)
