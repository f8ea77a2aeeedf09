"""Delta's own client of the Delta API on our server: the answers that it gets, and its exceptions for rejections."""

from __future__ import annotations

import json
import re
import shutil
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pytest

import refimpl
from conformance.adapters.jvm.machine import Machine, Supplier
from conformance.adapters.proxy import Fault, FaultProxy, Match
from spec_tests.engines.prerequisites import needed_classpath, served

_UC: Final = "io.delta.storage.commit.uccommitcoordinator"
BASE_TIME: Final = 1_700_000_000_000
COLUMNS: Final = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}


class WireClient:
    """The client, for tables of the schema `unity.default` of a server."""

    def __init__(self, machine: Machine, url: str) -> None:
        self.machine = machine
        self._configuration = machine.type("org.apache.hadoop.conf.Configuration")()
        options = machine.type("java.util.HashMap")()
        options.put("uri", url)
        options.put("token", "unused")
        self._client = machine.type(f"{_UC}.UCDeltaTokenBasedRestClient")(options, Supplier(self._configuration))
        self._none = machine.type("java.util.Optional").empty()

    def close(self) -> None:
        self._client.close()

    def create(self, name: str) -> Table:
        """Create a table: stage it, write version 0 as the client, and register the name."""
        staged = self._client.createStagingTable(self._identifier(name))
        table = Table(self, name, staged.getTableId().toString(), staged.getLocation())
        required = staged.getRequiredProtocol()
        protocol = {
            "minReaderVersion": 3, "minWriterVersion": 7,
            "readerFeatures": sorted(required.getReaderFeatures()),
            "writerFeatures": sorted(required.getWriterFeatures()),
        }  # fmt: skip
        properties = {key: value for key, value in dict(staged.getRequiredProperties()).items() if value is not None}
        metadata = {
            "id": str(uuid.uuid4()), "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(COLUMNS), "partitionColumns": [], "configuration": properties,
            "createdTime": BASE_TIME,
        }  # fmt: skip
        lines = [commit_info(0), json.dumps({"protocol": protocol}), json.dumps({"metaData": metadata})]
        table.log.mkdir(parents=True)
        table.write(table.published(0), lines)
        action = self.machine.type("org.apache.spark.sql.delta.actions.Action")
        managed = self.machine.type(f"{_UC}.UCDeltaModels$TableType").valueOf("MANAGED")
        self._client.createTable(
            self._uri(table.location), self._identifier(name), managed, action.fromJson(lines[2]),
            action.fromJson(lines[1]), self.machine.type("java.util.ArrayList")(), BASE_TIME, self._none,
        )  # fmt: skip
        return table

    def load(self, name: str) -> Any:
        """The table's `TableInfo`."""
        return self._client.loadTable(self._identifier(name))

    def commit(self, table: Table, version: int, staged: Path, *, backfilled: int | None = None) -> None:
        """Propose a staged file. Raises `Py4JJavaError`."""
        path = self.machine.type("org.apache.hadoop.fs.Path")(staged.as_uri())
        status = path.getFileSystem(self._configuration).getFileStatus(path)
        commit = self.machine.type("io.delta.storage.commit.Commit")(version, status, BASE_TIME + version)
        self._client.commit(
            table.id, self._uri(table.location), self._identifier(table.name),
            self.machine.type("java.util.Optional").of(commit), self._long(backfilled), self._none, self._none,
            self._none, self._none, self.machine.type("java.util.ArrayList")(), self._none,
        )  # fmt: skip

    def commits(self, table: Table, start: int | None = None, end: int | None = None) -> tuple[list[int], int]:
        """The versions of the commits that the server stores, and the latest version."""
        answer = self._client.getCommits(
            table.id, self._uri(table.location), self._identifier(table.name), self._long(start), self._long(end)
        )
        return sorted(commit.getVersion() for commit in answer.getCommits()), answer.getLatestTableVersion()

    def _identifier(self, name: str) -> Any:
        namespace = self.machine.gateway.new_array(self.machine.jvm.java.lang.String, 2)
        namespace[0], namespace[1] = "unity", "default"
        return self.machine.type("io.delta.storage.commit.TableIdentifier")(namespace, name)

    def _uri(self, location: str) -> Any:
        return self.machine.type("java.net.URI").create(location)

    def _long(self, value: int | None) -> Any:
        """An `Optional` of a Java `Long`. py4j would convert a small Python number to another type."""
        if value is None:
            return self._none
        return self.machine.type("java.util.stream.LongStream").range(value, value + 1).boxed().findFirst()


class Table:
    """A table that the client created. The test writes its files, as an engine would."""

    def __init__(self, client: WireClient, name: str, identifier: str, location: str) -> None:
        self.client, self.name, self.id, self.location = client, name, identifier, location
        self.log = Path(unquote(urlsplit(location).path)) / "_delta_log"

    def published(self, version: int) -> Path:
        return self.log / f"{version:020}.json"

    def stage(self, version: int) -> Path:
        """Write a new staged file for that version; return its name."""
        staged = self.log / "_staged_commits" / f"{version:020}.{uuid.uuid4()}.json"
        staged.parent.mkdir(exist_ok=True)
        self.write(staged, [commit_info(version)])
        return staged

    def land(self, version: int) -> Path:
        """Stage and commit that version; return the staged file."""
        staged = self.stage(version)
        self.client.commit(self, version, staged)
        return staged

    def write(self, path: Path, lines: Sequence[str]) -> None:
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")

    def commits(self, start: int | None = None, end: int | None = None) -> tuple[list[int], int]:
        return self.client.commits(self, start, end)


def commit_info(version: int) -> str:
    body = {
        "inCommitTimestamp": BASE_TIME + version, "timestamp": BASE_TIME + version, "operation": "WRITE",
        "operationParameters": {}, "txnId": str(uuid.uuid4()),
    }  # fmt: skip
    return json.dumps({"commitInfo": body})


pytestmark = [
    pytest.mark.engines,
    pytest.mark.processes,
    pytest.mark.usefixtures("plain_py4j"),
    pytest.mark.xdist_group("wire-client"),
]

COMMIT = Match(method="POST", body="add-commit")
LIMIT = 3


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("warehouse")
    refimpl.open(directory, create=True).close()
    return directory


@pytest.fixture(scope="module")
def proxy(warehouse: Path) -> Iterator[FaultProxy]:
    options = ("--backlog-limit", str(LIMIT), "--backfill-every", "never")
    with served(warehouse, *options) as url, FaultProxy(url) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def client(proxy: FaultProxy) -> Iterator[WireClient]:
    classpath = needed_classpath("all", hadoop=True)
    from conformance.adapters.jvm.machine import machine

    client = WireClient(machine(classpath), proxy.url)
    yield client
    client.close()


@pytest.fixture
def table(client: WireClient, request: pytest.FixtureRequest) -> Table:
    return client.create(re.sub(r"\W", "_", request.node.name))


def refusal(table: Table, version: int, staged: Path | None = None, **more: int | None) -> tuple[str, Any]:
    """The class of the exception, and the exception."""
    from py4j.protocol import Py4JJavaError

    with pytest.raises(Py4JJavaError) as raised:
        table.client.commit(table, version, staged or table.stage(version), **more)
    exception = raised.value.java_exception
    return exception.getClass().getSimpleName(), exception


def test_a_created_table_is_found(client: WireClient, table: Table, warehouse: Path) -> None:
    info = client.load(table.name)
    assert info.getTableId().toString() == table.id
    assert info.getLocation() == table.location
    assert info.getMetadata().getConfiguration()["delta.enableInCommitTimestamps"] == "true"
    assert table.commits() == ([], 0)
    with refimpl.open(warehouse, create=True) as opened:
        snapshot = opened.table(table.name).snapshot()
    assert (snapshot.version, snapshot.in_commit_timestamp) == (0, BASE_TIME)


def test_commits_land_in_order_and_are_listed(table: Table, warehouse: Path) -> None:
    for version in (1, 2, 3):
        table.land(version)
    assert table.commits() == ([1, 2, 3], 3)
    assert table.commits(2, 2) == ([2], 3)
    with refimpl.open(warehouse, create=True) as opened:
        assert opened.table(table.name).snapshot().version == 3


def test_a_replay_is_ratified_after_later_commits_and_backfill(table: Table) -> None:
    first = table.land(1)
    table.client.commit(table, 1, first)
    second = table.land(2)
    shutil.copy(first, table.published(1))
    shutil.copy(second, table.published(2))
    third = table.stage(3)
    table.client.commit(table, 3, third, backfilled=2)
    table.client.commit(table, 1, first)
    table.client.commit(table, 3, third, backfilled=2)
    assert table.commits() == ([3], 3)


@pytest.mark.parametrize("backfilled", [None, 5])
def test_a_lost_race_is_retryable(table: Table, backfilled: int | None) -> None:
    """Delta's client reports the newest published version that it saw, which may be above the version that it
    proposes.
    """
    winner = table.land(1)
    kind, exception = refusal(table, 1, backfilled=backfilled)
    assert (kind, exception.getRetryable(), exception.getConflict()) == ("CommitFailedException", True, True)
    assert table.commits() == ([1], 1)
    table.client.commit(table, 1, winner)
    table.land(2)


@pytest.mark.parametrize(
    ("version", "staged", "backfilled"), [(6, 6, None), (2, 3, None), (2, 2, 1)], ids=["gap", "other", "unpublished"]
)
def test_a_rejection_is_not_a_conflict(table: Table, version: int, staged: int, backfilled: int | None) -> None:
    """Also if the client reports a version as published that is not."""
    table.land(1)
    kind, exception = refusal(table, version, table.stage(staged), backfilled=backfilled)
    assert (kind, exception.getConflict()) == ("CommitFailedException", False)
    assert table.commits() == ([1], 1)
    table.land(2)


def test_a_full_backlog_is_reported_until_a_publication(table: Table) -> None:
    """FB46: Delta 4.4 has `CommitLimitReachedException` for this, but this client does not raise it. To the client, a
    full backlog looks like an unavailable server.
    """
    staged = [table.land(version) for version in range(1, LIMIT + 1)]
    kind, exception = refusal(table, LIMIT + 1)
    assert kind == "IOException"
    assert "ResourceExhaustedException" in exception.getMessage()
    for version, path in enumerate(staged, 1):
        shutil.copy(path, table.published(version))
    table.client.commit(table, LIMIT + 1, table.stage(LIMIT + 1), backfilled=LIMIT)
    assert table.commits() == ([LIMIT + 1], LIMIT + 1)


@pytest.mark.parametrize(
    ("fault", "landed"), [(Fault.UNAVAILABLE, 0), (Fault.UNAVAILABLE_LANDED, 1), (Fault.DROP_RESPONSE, 1)]
)
def test_a_repeated_request_succeeds_after_a_lost_answer(
    client: WireClient, proxy: FaultProxy, fault: Fault, landed: int
) -> None:
    table = client.create(f"unanswered_{fault.name.lower()}")
    staged = table.stage(1)
    proxy.next(*[fault] * 3, match=COMMIT)
    before = proxy.counts()[fault]
    refusal(table, 1, staged)
    assert table.commits()[1] == landed
    while proxy.counts()[fault] < before + 3:  # the requests that the client did not repeat itself
        refusal(table, 1, staged)
    client.commit(table, 1, staged)
    assert table.commits() == ([1], 1)
    assert refusal(table, 1)[1].getConflict()


def test_a_missing_table_is_not_found(client: WireClient) -> None:
    from py4j.protocol import Py4JJavaError

    with pytest.raises(Py4JJavaError) as raised:
        client.load("unknown")
    assert raised.value.java_exception.getClass().getSimpleName() == "NoSuchTableException"
