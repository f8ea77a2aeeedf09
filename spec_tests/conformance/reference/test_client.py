"""The reference client through the shared interface: what it reads, commits, maintains and rejects."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.adapters.http import HttpServer
from conformance.adapters.in_process import InProcess
from conformance.adapters.reference.client import ReferenceClient
from conformance.interface import messages as m
from conformance.interface.subject import AdapterError
from conformance.models import proposals
from conformance.models.owner import ModelOwner
from conformance.models.storage import FolderStorage
from conformance.scenario.adversary import Adversary
from spec_tests.conformance.asking import Asking, attempt

TABLE = "orders"


class Serving(Asking):
    """The client under test, with an owner that has one table, partitioned by `part`."""

    def __init__(self, folder: Path, feature: str = "catalogManaged") -> None:
        folder.mkdir()
        self.owner = Adversary(ModelOwner(FolderStorage(folder)))
        super().__init__(InProcess(ReferenceClient(self.owner.ask)))
        own = attempt()
        actions = proposals.version_0(feature, own, attempt(), partition_columns=("part",))
        self.table_of_others = Asking(self.owner.subject).table(TABLE, feature, attempt=own, actions=actions)
        """The table for the kit's other clients, whose requests do not pass through the adversary."""

    def read(self) -> m.SnapshotRead:
        return self.expect(m.SnapshotRead, m.Snapshot(table=TABLE))

    def write(self, *paths: str, **more: Any) -> m.Transact:
        adds = tuple(m.DataFile(path=path, partition="x") for path in paths)
        return m.Transact(table=TABLE, **{"marker": attempt(), "adds": adds, **more})


@pytest.fixture
def s(tmp_path: Path) -> Serving:
    return Serving(tmp_path / "tables")


# Creating and changing the owner


def test_a_creation_without_an_answer_is_unknown(s: Serving) -> None:
    s.owner.on(m.CreateTable, lose_request=True, times=1000)
    s.expect(m.Unknown, s.creation("created"))


# Maintenance


def test_a_missing_maintenance_job_is_unsupported(s: Serving) -> None:
    s.owner.on(m.MaintenancePolicy, answer=m.Policy(allowed=("reorg",)), times=1000)
    s.expect(m.Unsupported, m.Maintain(table=TABLE, job="reorg"))


# The client's owner


def test_the_error_without_an_owner_says_how_to_name_one() -> None:
    with pytest.raises(AdapterError, match="owner_url"):
        InProcess(ReferenceClient())
    with pytest.raises(AdapterError, match="hello"):
        ReferenceClient().snapshot("client", m.Snapshot(table=TABLE))


@pytest.fixture
def url(s: Serving) -> Iterator[str]:
    with HttpServer(s.owner.ask) as server:
        yield server.url


def test_the_client_finds_its_owner_by_url(s: Serving, url: str) -> None:
    handler = ReferenceClient()
    try:
        identity = handler.hello("kit", m.Hello(owner_url=url))
        assert identity.side == "client"
        assert handler.hello("kit", m.Hello(owner_url=url)) == identity
        answer = handler.transact("client", s.write("a"))
        assert isinstance(answer, m.Committed)
        assert s.table_of_others.latest == answer.version == 1
    finally:
        handler.close()
        handler.close()
