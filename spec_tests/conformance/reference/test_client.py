"""The reference client through the shared interface: what it reads, commits, maintains and rejects."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
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

    def committed(self, **more: Any) -> int | None:
        return self.expect(m.Committed, self.write(**more)).version


@pytest.fixture
def s(tmp_path: Path) -> Serving:
    return Serving(tmp_path / "tables")


# Reading


def test_a_missing_table_is_not_found(s: Serving, tmp_path: Path) -> None:
    s.expect(m.NotFound, m.Snapshot(table="no such table"))
    s.expect(m.NotFound, m.Snapshot(path=str(tmp_path / "tables" / "nowhere")))
    s.expect(m.NotFound, m.Transact(table="no such table", marker=attempt()))


def test_a_path_reads_published_versions(tmp_path: Path) -> None:
    managed = Serving(tmp_path / "tables", "managedCommit")
    table = managed.table_of_others
    table.land(1)
    location = table.owner.expect(m.Table, m.LoadTable(name=TABLE)).location or ""
    read = managed.expect(m.SnapshotRead, m.Snapshot(path=location))
    assert (read.version, read.stale) == (0, True)
    managed.expect(m.Rejected, m.Transact(table=location, marker=attempt()))
    assert table.latest == 1


# Writing


def test_only_files_of_the_snapshot_are_removed(s: Serving) -> None:
    added = proposals.add("a%20b", proposals.BASE_TIME, "x", partitioned=True)
    proposal = s.table_of_others.proposal(1)
    info = proposals.commit_info(proposal.attempt, proposals.BASE_TIME + 1)
    s.table_of_others.owner.expect(m.Ratified, msgspec.structs.replace(proposal, actions=(info, added)))
    s.expect(m.Rejected, s.write(removes=("gone",)))
    assert s.committed(removes=("a b",), data_change=False) == 2
    assert s.read().files == ()


def test_properties_features_and_domains_are_changed(s: Serving) -> None:
    s.committed(set_properties={"color": "red", "size": "1"})
    s.committed(unset_properties=("size",), domain=("my.domain", "{}"), add_feature="appendOnly")
    read = s.read()
    assert read.properties is not None
    assert "size" not in read.properties
    assert read.properties["color"] == "red"
    assert read.domains == {"my.domain": "{}"}
    s.expect(m.Rejected, s.write(add_feature="unheardOf"))
    assert s.table_of_others.latest == 2


# Creating and changing the owner


def test_a_creation_without_an_answer_is_unknown(s: Serving) -> None:
    s.owner.on(m.CreateTable, lose_request=True, times=1000)
    s.expect(m.Unknown, s.creation("created"))


def test_a_table_is_dropped_and_published_through_the_client(s: Serving) -> None:
    s.table_of_others.land(1)
    s.expect(m.Done, m.BackfillToVersion(table=TABLE, version=1))
    assert s.table_of_others.published() == [0, 1]
    s.expect(m.Done, m.DropTable(table=TABLE))
    s.expect(m.NotFound, m.DropTable(table=TABLE))


# Maintenance


def test_a_missing_maintenance_job_is_unsupported(s: Serving) -> None:
    s.owner.on(m.MaintenancePolicy, answer=m.Policy(allowed=("reorg",)), times=1000)
    s.expect(m.Unsupported, m.Maintain(table=TABLE, job="reorg"))


def test_without_a_policy_only_the_jobs_that_are_always_allowed_are_done(s: Serving) -> None:
    s.owner.on(m.MaintenancePolicy, answer=m.Unsupported(), times=1000)
    s.expect(m.Done, m.Checkpoint(table=TABLE, version=0))
    s.expect(m.Rejected, m.Cleanup(table=TABLE, older_than=proposals.BASE_TIME))
    s.expect(m.Unsupported, m.Maintain(table=TABLE, job="no such job"))


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


@pytest.mark.parametrize(
    "answer",
    [
        m.Table(table="t", feature="managedCommit", commit_mode="staged", latest=0),
        m.Table(table="t", feature="other", commit_mode="staged", latest=0, location="/tmp"),
        m.Table(table="t", feature="managedCommit", commit_mode="by post", latest=0, location="/tmp"),
        m.Rejected(reason="no"),
        m.Done(),
    ],
    ids=["nowhere", "feature", "commit_mode", "refused", "wrong"],
)
def test_an_invalid_owners_answer_is_rejected(s: Serving, answer: m.Answer) -> None:
    s.owner.on(m.LoadTable, answer=answer)
    s.expect(m.Rejected, m.Snapshot(table=TABLE))
    assert s.read().version == 0
