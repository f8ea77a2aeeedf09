"""A commit of Delta's through the coordinator, from its staged file to its answer. No JVM: Delta's side is played."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JJavaError

import refimpl
from refimpl import log_path
from refimpl.commit_owner import MaintenancePolicy
from refimpl.environment import Environment
from refimpl.log_path import LOG_FOLDER
from refimpl.log_store import LogStore
from refimpl.spark.coordinator import TABLE_ID, CoordinatorClient, Served
from refimpl.table_feature import COORDINATED_COMMITS
from spec_tests.support.builders import START, append, first_version
from spec_tests.support.failing_files import FailingFiles
from spec_tests.support.unreliable_owner import UnreliableOwner

FOLDER = COORDINATED_COMMITS.staging_folder


class Engine:
    """Delta with one announced table; `owner` between the coordinator and the warehouse's owner loses answers."""

    def __init__(self, warehouse: refimpl.Warehouse, *, backlog_limit: int = 1000) -> None:
        gateway = MagicMock()
        storage = gateway.jvm.io.delta.storage.commit
        storage.CommitFailedException = lambda retryable, conflict, message: SimpleNamespace(
            _target_id="o1", retryable=retryable, conflict=conflict
        )
        storage.GetCommitsResponse = lambda commits, latest: latest
        storage.CoordinatedCommitsUtils.isCoordinatedCommitsToFSConversion.return_value = False
        storage.CoordinatedCommitsUtils.writeUnbackfilledCommitFile = self._write
        policy = MaintenancePolicy(backfill_every=None, backlog_limit=backlog_limit)
        place = warehouse.directory / "orders"
        table = warehouse.owner.announce(place, "orders", COORDINATED_COMMITS, None, policy=policy)
        self.log = LogStore(place, Environment())
        self.table_id = table.table_id
        self.served = Served(warehouse, gateway)
        self.coordinator = CoordinatorClient("refimpl", self.served)
        self.descriptor = SimpleNamespace(
            getLogPath=lambda: SimpleNamespace(toString=lambda: f"file:{place / LOG_FOLDER}"),
            getTableConf=lambda: {TABLE_ID: table.table_id},
        )

    def create(self) -> Engine:
        self.log.put_if_absent(log_path.commit(0), first_version(COORDINATED_COMMITS))
        self.served.log_of(self.descriptor)
        self.owner = UnreliableOwner(self.served.owner)
        self.served.owner = self.owner  # type: ignore[assignment]
        return self

    def _write(self, store: object, conf: object, folder: str, version: int, lines: bytes, attempt: str) -> None:
        """As Delta does it: without a sync."""
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

    def latest(self) -> int:
        latest: int = self.coordinator.getCommits(self.descriptor, None, None)
        return latest


@pytest.fixture
def storage() -> FailingFiles:
    return FailingFiles()


@pytest.fixture
def warehouse(tmp_path: Path, storage: FailingFiles) -> Iterator[refimpl.Warehouse]:
    with refimpl.open(tmp_path / "warehouse", create=True, environment=Environment(files=storage)) as opened:
        yield opened


def test_no_version_is_minus_one(warehouse: refimpl.Warehouse) -> None:
    """`DELTA_SPARK.md#answers`: how Delta spells it."""
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


def test_a_loser_hears_of_the_conflict_and_its_file_goes(warehouse: refimpl.Warehouse) -> None:
    engine = Engine(warehouse).create()
    engine.commit(1)
    refused = engine.refusal(1)
    assert (refused.retryable, refused.conflict) == (True, True)
    assert engine.staged() == [1]


@pytest.mark.parametrize(("version", "content"), [(3, None), (1, b"not an action")], ids=["gap", "rejected"])
def test_what_cannot_land_is_refused_for_good(
    warehouse: refimpl.Warehouse, version: int, content: bytes | None
) -> None:
    engine = Engine(warehouse).create()
    refused = engine.refusal(version, content)
    assert (refused.retryable, refused.conflict) == (False, False)
    assert (engine.latest(), engine.staged()) == (0, [])


def test_a_backfill_goes_up_to_the_version_that_is_asked_for(warehouse: refimpl.Warehouse) -> None:
    engine = Engine(warehouse).create()
    for version in (1, 2):
        engine.commit(version)
    engine.coordinator.backfillToVersion(None, None, engine.descriptor, 1, None)
    assert (engine.log.published(1), engine.log.published(2)) == (True, False)


def test_a_lost_answer_is_asked_for_again(warehouse: refimpl.Warehouse) -> None:
    engine = Engine(warehouse).create()
    engine.owner.faults.lose_answers = 1
    engine.commit(1)
    assert engine.latest() == 1
    assert engine.staged() == [1], "the file is the commit"


def test_a_lost_request_is_tried_again_by_the_engine(warehouse: refimpl.Warehouse) -> None:
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
