"""Delta Kernel 4.2 and its client of Unity Catalog's older calls on our server: UNITY_CATALOG.md#older-calls."""

import json
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet
import pytest

import refimpl
from conformance.adapters.jvm.machine import Machine
from spec_tests.engines.prerequisites import needed_classpath, served

DELTA: Final = "4.2.0"
LIMIT: Final = 2
_KERNEL: Final = "io.delta.kernel"
_UC: Final = "io.delta.storage.commit.uccommitcoordinator"
_CONNECTOR: Final = "spec-tests"

pytestmark = [
    pytest.mark.engines,
    pytest.mark.processes,
    pytest.mark.usefixtures("plain_py4j"),
    pytest.mark.xdist_group("older-clients"),
]


class Kernel:
    """A connector, for one table of the schema `unity.default` of a server."""

    def __init__(self, java: Machine, url: str) -> None:
        self.java, self.url = java, url
        self._none = java.type("java.util.Optional").empty()
        self._configuration = java.type("org.apache.hadoop.conf.Configuration")()
        self.engine = java.type(f"{_KERNEL}.defaults.engine.DefaultEngine").create(self._configuration)
        tokens = java.type("io.unitycatalog.client.auth.TokenProvider")
        token = tokens.create(java.map({"type": "static", "token": "unused"}))
        self.client = java.type(f"{_UC}.UCTokenBasedRestClient")(url, token, java.map({}))
        self._catalog = java.type(f"{_KERNEL}.unitycatalog.UCCatalogManagedClient")(self.client)
        self.id = self.location = ""

    @property
    def folder(self) -> Path:
        return Path(unquote(urlsplit(self.location).path))

    def create(self, name: str) -> None:
        """Stage the table as Unity Catalog's connector does; Kernel writes version 0 and registers the table."""
        body = json.dumps({"name": name, "catalog_name": "unity", "schema_name": "default"}).encode()
        staging = f"{self.url}/api/2.1/unity-catalog/staging-tables"
        headers = {"content-type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(staging, body, headers), timeout=30) as answer:
            staged = json.load(answer)
        self.id, self.location = staged["id"], staged["staging_location"]
        long = self.java.type(f"{_KERNEL}.types.LongType").LONG
        schema = self.java.type(f"{_KERNEL}.types.StructType")().add("id", long)
        named = self.java.type(f"{_KERNEL}.unitycatalog.UCTableIdentifier")("unity", "default", name)
        builder = self._catalog.buildCreateTableTransaction(self.id, self.location, schema, _CONNECTOR, named)
        self._commit(builder.build(self.engine), [])

    def snapshot(self) -> Any:
        return self._catalog.loadSnapshot(self.engine, self.id, self.location, self._none, self._none)

    def append(self, number: int, snapshot: Any = None) -> int:
        """Append a row in a file of its own to the newest snapshot, or to this one; return the version."""
        name = f"{number}.parquet"
        pa.parquet.write_table(pa.table({"id": [number]}), self.folder / name)
        operation = self.java.type(f"{_KERNEL}.Operation").WRITE
        transaction = (
            (snapshot or self.snapshot()).buildUpdateTableTransaction(_CONNECTOR, operation).build(self.engine)
        )
        state = transaction.getTransactionState(self.engine)
        kernel = self.java.type(f"{_KERNEL}.Transaction")
        context = kernel.getWriteContext(self.engine, state, self.java.map({}))
        size = (self.folder / name).stat().st_size
        status = self.java.type(f"{_KERNEL}.utils.DataFileStatus")(f"file:{self.folder / name}", size, 1, self._none)
        files = self._closeable([status])
        actions = kernel.generateAppendActions(self.engine, state, files, context)
        added = []
        while actions.hasNext():
            added.append(actions.next())
        return self._commit(transaction, added)

    def _commit(self, transaction: Any, actions: list[Any]) -> int:
        iterable = self.java.type(f"{_KERNEL}.utils.CloseableIterable").inMemoryIterable(self._closeable(actions))
        return int(transaction.commit(self.engine, iterable).getVersion())

    def _closeable(self, items: list[Any]) -> Any:
        listed = self.java.collection("ArrayList", items)
        return self.java.type(f"{_KERNEL}.internal.util.Utils").toCloseableIterator(listed.iterator())

    def commits(self) -> tuple[list[int], int]:
        answer = self.client.getCommits(self.id, self._uri(), self._none, self._none)
        return sorted(commit.getVersion() for commit in answer.getCommits()), answer.getLatestTableVersion()

    def propose(self, version: int, staged: Path, time: int) -> None:
        """Send a staged file with the client alone."""
        path = self.java.type("org.apache.hadoop.fs.Path")(staged.as_uri())
        status = path.getFileSystem(self._configuration).getFileStatus(path)
        commit = self.java.type("io.delta.storage.commit.Commit")(version, status, time)
        self._send(self.java.type("java.util.Optional").of(commit), self._none)

    def report(self, version: int) -> None:
        """Report that the versions up to this one are published."""
        reported = self.java.type("java.util.stream.LongStream").range(version, version + 1).boxed().findFirst()
        self._send(self._none, reported)

    def _send(self, commit: Any, reported: Any) -> None:
        self.client.commit(self.id, self._uri(), commit, reported, False, self._none, self._none, self._none)

    def _uri(self) -> Any:
        return self.java.type("java.net.URI").create(self.location)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("warehouse")
    refimpl.open(directory, create=True).close()
    return directory


@pytest.fixture(scope="module")
def kernel(warehouse: Path) -> Iterator[Kernel]:
    from conformance.adapters.jvm.machine import machine

    java = machine(needed_classpath("unity", hadoop=True, delta=DELTA))
    with served(warehouse, "--backlog-limit", str(LIMIT), "--backfill-every", "never") as url:
        kernel = Kernel(java, url)
        yield kernel
        kernel.client.close()


def ids(warehouse: Path, name: str) -> list[int]:
    with refimpl.open(warehouse) as opened:
        return sorted(opened.table(name).snapshot().to_arrow()["id"].to_pylist())


def test_kernel_creates_a_table_appends_and_reads(kernel: Kernel, warehouse: Path) -> None:
    kernel.create("orders")
    assert [kernel.append(1), kernel.append(2)] == [1, 2]
    assert kernel.commits() == ([1, 2], 2)
    assert kernel.snapshot().getVersion() == 2
    assert ids(warehouse, "orders") == [1, 2]
    kernel.snapshot().publish(kernel.engine)
    kernel.report(2)
    assert kernel.commits() == ([], 2)
    assert kernel.append(3) == 3


def test_an_append_after_a_lost_race_is_rebased(kernel: Kernel, warehouse: Path) -> None:
    """Kernel looks for the winners in the log alone, so the winner is published."""
    kernel.create("contended")
    before = kernel.snapshot()
    assert kernel.append(1) == 1
    kernel.snapshot().publish(kernel.engine)
    assert kernel.append(2, before) == 2
    assert ids(warehouse, "contended") == [1, 2]


def test_a_lost_race_and_a_full_backlog_can_be_retried(kernel: Kernel) -> None:
    """To this client, a full backlog looks like an unavailable server, as in Delta 4.4 (FB46)."""
    kernel.create("full")
    for number in range(LIMIT):
        kernel.append(number)
    for version, conflict in ((1, True), (LIMIT + 1, False)):
        exception = refusal(kernel, version)
        assert exception.getClass().getSimpleName() == "CommitFailedException"
        assert (exception.getRetryable(), exception.getConflict()) == (True, conflict)
    assert kernel.commits() == ([1, 2], 2)


def test_an_unknown_table_is_not_found(kernel: Kernel) -> None:
    kernel.create("dropped")
    kernel.id = "7d9e4d0e-8f43-4a6c-9a5b-6c1a8d0f2b11"
    assert refusal(kernel, 1).getClass().getSimpleName() == "InvalidTargetTableException"


def refusal(kernel: Kernel, version: int) -> Any:
    """The exception for a new staged file."""
    from py4j.protocol import Py4JJavaError

    staged = kernel.folder / "_delta_log" / "_staged_commits" / f"{version:020}.{uuid.uuid4()}.json"
    staged.parent.mkdir(exist_ok=True)
    time = 2_000_000_000_000 + version
    info = {"inCommitTimestamp": time, "timestamp": time, "operation": "WRITE", "txnId": staged.name}
    staged.write_text(json.dumps({"commitInfo": info}) + "\n")
    with pytest.raises(Py4JJavaError) as raised:
        kernel.propose(version, staged, time)
    return raised.value.java_exception
