"""The commit coordinator with a simulated JVM: registration, tables, commits and answers."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest
from py4j.protocol import Py4JJavaError

import refimpl
from refimpl.client.proposing import MAX_LOOKS
from refimpl.protocol import log_path
from refimpl.protocol.commit_owner import MaintenancePolicy, TableState
from refimpl.protocol.errors import CorruptionError, InvalidRequestError, OwnerUnavailableError, TableNotFoundError
from refimpl.protocol.log_path import LOG_FOLDER
from refimpl.protocol.table_feature import COORDINATED_COMMITS
from refimpl.spark import coordinator
from refimpl.spark.coordinator import TABLE_ID, CoordinatorClient, Served, location_of
from refimpl.storage.environment import Environment
from refimpl.storage.log_store import LogStore
from spec_tests.support.builders import START, append, first_version
from spec_tests.support.faults import FailingFiles
from spec_tests.support.unreliable_owner import UnreliableOwner

FOLDER = COORDINATED_COMMITS.staging_folder


class JavaList(list[int]):
    add = list.append


class JavaMap(dict[str, str]):
    put = dict.__setitem__


def descriptor(location: Path, table_id: str | None) -> Any:
    log_folder = SimpleNamespace(toString=lambda: f"file:{location / LOG_FOLDER}")
    conf = {} if table_id is None else {TABLE_ID: table_id}
    return SimpleNamespace(getLogPath=lambda: log_folder, getTableConf=lambda: conf)


class Engine:
    """Delta with one announced table. `owner`, between the coordinator and the warehouse's owner, can lose answers."""

    def __init__(self, warehouse: refimpl.Warehouse, *, backlog_limit: int = 1000) -> None:
        gateway = MagicMock()
        storage = gateway.jvm.io.delta.storage.commit
        storage.CommitFailedException = lambda retryable, conflict, message: SimpleNamespace(
            _target_id="o1", retryable=retryable, conflict=conflict
        )
        gateway.jvm.java.lang.IllegalStateException = lambda message: SimpleNamespace(
            _target_id="o2", unknown=True, message=message
        )
        storage.Commit = lambda version, status, timestamp: version
        storage.GetCommitsResponse = lambda commits, latest: (list(commits), latest)
        gateway.jvm.java.util.Collections.emptyList.return_value = []
        gateway.jvm.java.util.ArrayList = JavaList
        gateway.jvm.java.util.HashMap = JavaMap
        storage.CoordinatedCommitsUtils.isCoordinatedCommitsToFSConversion.return_value = False
        storage.CoordinatedCommitsUtils.writeUnbackfilledCommitFile = self.write
        policy = MaintenancePolicy(backfill_every=None, backlog_limit=backlog_limit)
        location = warehouse.directory / "orders"
        table = warehouse.owner.announce(location, "orders", COORDINATED_COMMITS, None, policy=policy)
        self.log = LogStore(location, Environment())
        self.table_id = table.table_id
        self.served = Served(warehouse, gateway)
        self.coordinator = CoordinatorClient("refimpl", self.served)
        self.descriptor = descriptor(location, table.table_id)

    def create(self) -> "Engine":
        self.log.put_if_absent(log_path.commit(0), first_version(COORDINATED_COMMITS))
        self.served.log_of(self.descriptor)
        self.owner = UnreliableOwner(self.served.owner)
        self.served.owner = self.owner  # type: ignore[assignment]
        return self

    def write(self, store: object, conf: object, folder: str, version: int, lines: bytes, attempt: str) -> None:
        """Write the file without a sync, as Delta does."""
        (self.log.folder / FOLDER / log_path.staged_commit(version, attempt)).write_bytes(lines)

    def commit(self, version: int, content: bytes | None = None) -> Any:
        lines = append(START + version) if content is None else content
        return self.coordinator.commit(None, None, self.descriptor, version, lines, None)

    def refusal(self, version: int, content: bytes | None = None) -> Any:
        with pytest.raises(Py4JJavaError) as caught:
            self.commit(version, content)
        return caught.value.java_exception

    def staged(self) -> list[int]:
        return [path.version for path in self.log.staged_listing(FOLDER)]

    def commits(self) -> tuple[list[int], int]:
        """The unbackfilled versions, and the latest version."""
        answer: tuple[list[int], int] = self.coordinator.getCommits(self.descriptor, None, None)
        return answer

    def latest(self) -> int:
        return self.commits()[1]


@pytest.fixture
def storage() -> FailingFiles:
    return FailingFiles()


@pytest.fixture
def warehouse(tmp_path: Path, storage: FailingFiles) -> Iterator[refimpl.Warehouse]:
    with refimpl.open(tmp_path / "warehouse", create=True, environment=Environment(files=storage)) as opened:
        yield opened


def test_missing_latest_version_is_minus_one(warehouse: refimpl.Warehouse) -> None:
    """Delta's value for no version: `DELTA_SPARK.md#answers`."""
    engine = Engine(warehouse)
    assert engine.latest() == -1
    assert engine.create().latest() == 0


def test_a_staged_file_is_durable_before_it_is_proposed(warehouse: refimpl.Warehouse, storage: FailingFiles) -> None:
    engine = Engine(warehouse).create()
    for effect in ("fsync", "fsync_directory"):
        storage.fail_when = lambda name, path, effect=effect: name == effect and FOLDER in path.parts
        refused = engine.refusal(1)
        assert (refused.retryable, refused.conflict) == (False, False)
        assert engine.latest() == 0
    storage.fail_when = lambda name, path: False
    engine.commit(1)
    assert engine.latest() == 1


def test_a_conflict_is_reported_and_its_file_deleted(warehouse: refimpl.Warehouse, storage: FailingFiles) -> None:
    engine = Engine(warehouse).create()
    engine.commit(1)
    refused = engine.refusal(1)
    assert (refused.retryable, refused.conflict) == (True, True)
    assert engine.staged() == [1]
    storage.fail_when = lambda name, path: name == "unlink"
    refused = engine.refusal(1)
    assert (refused.retryable, refused.conflict) == (True, True), "also if the staged file cannot be deleted"


@pytest.mark.parametrize(("version", "content"), [(3, None), (1, b"not an action")], ids=["gap", "rejected"])
def test_invalid_commit_is_not_retryable(warehouse: refimpl.Warehouse, version: int, content: bytes | None) -> None:
    engine = Engine(warehouse).create()
    refused = engine.refusal(version, content)
    assert (refused.retryable, refused.conflict) == (False, False)
    assert (engine.latest(), engine.staged()) == (0, [])


def test_backfill_ends_at_the_requested_version(warehouse: refimpl.Warehouse) -> None:
    engine = Engine(warehouse).create()
    for version in (1, 2):
        engine.commit(version)
    assert engine.commits() == ([1, 2], 2)
    engine.coordinator.backfillToVersion(None, None, engine.descriptor, 1, None)
    assert (engine.log.published(1), engine.log.published(2)) == (True, False)


def test_coordinator_asks_for_the_outcome_after_a_lost_answer(warehouse: refimpl.Warehouse) -> None:
    engine = Engine(warehouse).create()
    engine.owner.faults.lose_answers = 1
    engine.commit(1)
    assert engine.latest() == 1
    assert engine.staged() == [1], "the staged file of the landed commit stays"


def test_a_commit_that_landed_is_answered_although_the_disk_fails(
    warehouse: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(warehouse).create()
    with monkeypatch.context() as patched:
        patched.setattr(LogStore, "find", Mock(side_effect=OSError("Input/output error")))
        engine.commit(1)
    assert engine.latest() == 1


def test_a_lost_request_is_retryable(warehouse: refimpl.Warehouse) -> None:
    engine = Engine(warehouse).create()
    engine.owner.faults.lose_requests = 1
    refused = engine.refusal(1)
    assert (refused.retryable, refused.conflict) == (True, False)
    assert (engine.latest(), engine.staged()) == (0, [])
    engine.commit(1)
    assert engine.latest() == 1


def test_a_full_backlog_is_emptied(warehouse: refimpl.Warehouse) -> None:
    engine = Engine(warehouse, backlog_limit=1).create()
    for version in (1, 2, 3):
        engine.commit(version)
    assert engine.latest() == 3
    assert engine.log.published(2)


def test_a_file_that_cannot_be_staged_is_not_proposed(warehouse: refimpl.Warehouse) -> None:
    engine = Engine(warehouse).create()

    def fail(*arguments: object) -> None:
        engine.write(*arguments)  # type: ignore[arg-type]
        raise OSError("the connection broke")

    engine.served.java.utils.writeUnbackfilledCommitFile = fail
    assert engine.refusal(1).unknown
    assert engine.latest() == 0


@pytest.mark.parametrize(
    ("error", "count", "questions"),
    [
        (OwnerUnavailableError("busy"), MAX_LOOKS - 1, MAX_LOOKS),
        (OwnerUnavailableError("busy"), MAX_LOOKS, MAX_LOOKS),
        (TableNotFoundError("the table was dropped"), MAX_LOOKS, MAX_LOOKS),
        (CorruptionError("the ledger is damaged"), 1, 1),
    ],
    ids=["the last request is answered", "no request is answered", "each request is rejected", "the owner stopped"],
)
def test_coordinator_asks_for_the_outcome_a_few_times(
    warehouse: refimpl.Warehouse, error: Exception, count: int, questions: int
) -> None:
    engine = Engine(warehouse).create()
    ask, errors, attempts, pauses = engine.owner.attempt_outcome, [error] * count, [], list[float]()

    def attempt_outcome(table_id: str, attempt: str) -> Any:
        attempts.append(attempt)
        if errors:
            raise errors.pop()
        return ask(table_id, attempt)

    engine.owner.attempt_outcome = attempt_outcome  # type: ignore[method-assign]
    engine.owner.faults.lose_answers = 1
    engine.served.environment = dataclasses.replace(engine.served.environment, pause=pauses.append)
    if questions > count:
        engine.commit(1)
    else:
        refused = engine.refusal(1)
        assert refused.unknown
        assert str(error) in refused.message
    assert len(attempts) == questions
    assert engine.latest() == 1


# Registration


@pytest.mark.parametrize(("version", "latest"), [(-1, None), (0, 0), (3, 3)])
def test_a_registered_table_is_announced(warehouse: refimpl.Warehouse, version: int, latest: int | None) -> None:
    engine = Engine(warehouse)
    engine.served.owner = owner = MagicMock()
    owner.announce.return_value.table_id = "the-id"
    identifier = SimpleNamespace(isPresent=lambda: True, get=lambda: SimpleNamespace(getName=lambda: "orders"))
    metadata = SimpleNamespace(getConfiguration=dict)
    log_folder = engine.descriptor.getLogPath()
    assert engine.coordinator.registerTable(log_folder, identifier, version, metadata, None) == {TABLE_ID: "the-id"}
    owner.announce.assert_called_once_with(
        warehouse.directory / "orders", "orders", COORDINATED_COMMITS, latest, owner_conf=None
    )


def test_registration_serves_the_last_warehouse(
    warehouse: refimpl.Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from py4j.java_gateway import JavaClass

    started: list[Any] = []
    monkeypatch.setattr("pyspark.java_gateway.ensure_callback_server_started", started.append)
    spark = MagicMock()
    gateway = spark.sparkContext._gateway
    provider = MagicMock(spec=JavaClass, registerBuilder=MagicMock())
    gateway.jvm.org.apache.spark.sql.delta.coordinatedcommits.CommitCoordinatorProvider = provider
    properties = coordinator.register(spark, warehouse, new_tables=True)
    settings = {f"spark.databricks.delta.properties.defaults.{key.removeprefix('delta.')}" for key in properties}
    assert len(settings) == 2
    assert {call.args[0] for call in spark.conf.set.call_args_list} == settings
    ((builder,), _) = provider.registerBuilder.call_args
    assert started == [gateway]
    with refimpl.open(tmp_path / "other", create=True) as other:
        assert coordinator.register(spark, other) == properties
        assert builder.build(None, None)._served.owner is other.owner
    assert provider.registerBuilder.call_count == 1
    assert {call.args[0] for call in spark.conf.unset.call_args_list} == settings


# Tables


@pytest.fixture
def served(warehouse: refimpl.Warehouse) -> Served:
    return Served(warehouse, MagicMock())


def announced(warehouse: refimpl.Warehouse, name: str = "orders") -> tuple[str, LogStore]:
    location = warehouse.directory / name
    table = warehouse.owner.announce(location, name, COORDINATED_COMMITS, None)
    return table.table_id, LogStore(location, warehouse.environment)


@pytest.mark.parametrize("by_id", [False, True])
def test_announced_table_is_owned_after_its_first_version(
    served: Served, warehouse: refimpl.Warehouse, by_id: bool
) -> None:
    table_id, log = announced(warehouse)
    table = descriptor(log.location, table_id if by_id else None)
    assert served.log_of(table)[0] == table_id
    assert warehouse.owner.resolve(table_id).state is TableState.STAGING
    assert log.put_if_absent(log_path.commit(0), first_version(COORDINATED_COMMITS))
    assert served.log_of(table)[0] == table_id
    assert warehouse.owner.resolve(table_id).state is TableState.ACTIVE


def test_a_table_whose_log_names_no_owner_is_not_owned(served: Served, warehouse: refimpl.Warehouse) -> None:
    table_id, log = announced(warehouse)
    assert log.put_if_absent(log_path.commit(0), append(START))
    with pytest.raises(InvalidRequestError):
        served.log_of(descriptor(log.location, table_id))
    assert warehouse.owner.resolve(table_id).state is TableState.STAGING


def test_a_copy_of_a_table_has_no_owner(served: Served, warehouse: refimpl.Warehouse) -> None:
    table_id, log = announced(warehouse)
    assert log.put_if_absent(log_path.commit(0), first_version(COORDINATED_COMMITS))
    assert served.log_of(descriptor(log.location, table_id))[0] == table_id
    with pytest.raises(TableNotFoundError):
        served.log_of(descriptor(warehouse.directory / "copy", table_id))


@pytest.mark.parametrize("text", ["/data/a b%20c/_delta_log", "file:/data/a b%20c/_delta_log"])
def test_a_path_on_this_host_is_not_unescaped(text: str) -> None:
    assert location_of(SimpleNamespace(toString=lambda: text)) == Path("/data/a b%20c")


@pytest.mark.parametrize(
    "text", ["s3a://bucket/t/_delta_log", "hdfs:/t/_delta_log", "file://host/t/_delta_log", "t/_delta_log", "file:/t"]
)
def test_a_log_on_another_host_is_rejected(text: str) -> None:
    with pytest.raises(InvalidRequestError, match=text):
        location_of(SimpleNamespace(toString=lambda: text))
