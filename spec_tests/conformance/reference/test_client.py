"""The reference client through the shared interface: what it reads, commits, maintains and rejects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

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
from spec_tests.conformance.reference.conftest import attempt, published_name

MANAGED = ("managedCommit", "staged")


@pytest.fixture
def s(tmp_path: Path) -> Serving:
    serving = Serving(tmp_path / "tables")
    serving.create()
    return serving


@pytest.fixture
def managed(tmp_path: Path) -> Serving:
    serving = Serving(tmp_path / "tables", *MANAGED)
    serving.create()
    return serving


# Reading


def test_a_missing_table_is_not_found(s: Serving) -> None:
    s.expect(m.NotFound, m.Snapshot(table="no such table"))
    s.expect(m.NotFound, m.Snapshot(path=str(s.folder / "nowhere")))
    s.expect(m.NotFound, m.Transact(table="no such table", marker=attempt()))


def test_a_path_reads_published_versions(managed: Serving) -> None:
    managed.land(1)
    read = managed.expect(m.SnapshotRead, m.Snapshot(path=managed.location))
    assert (read.version, read.stale) == (0, True)
    managed.expect(m.Rejected, m.Transact(table=managed.location, marker=attempt()))
    assert managed.latest() == 1


# Writing


def test_only_files_of_the_snapshot_are_removed(s: Serving) -> None:
    s.land(1, s.adds("a%20b"))
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
    assert s.latest() == 2


# Creating and changing the owner


def creation(s: Serving, name: str = "created") -> m.CreateTable:
    own = attempt()
    actions = proposals.version_0(s.feature, own, attempt())
    return m.CreateTable(name=name, feature=s.feature, commit_mode=s.commit_mode, attempt=own, actions=actions)


def test_a_creation_without_an_answer_is_unknown(s: Serving) -> None:
    s.owner.on(m.CreateTable, lose_request=True, times=1000)
    s.expect(m.Unknown, creation(s))


def test_a_table_is_dropped_and_published_through_the_client(s: Serving) -> None:
    s.land(1)
    s.expect(m.Done, m.BackfillToVersion(table=TABLE, version=1))
    assert s.names() == {published_name(0), published_name(1)}
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
        assert s.latest() == answer.version == 1
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


# An owner with a client

A = TypeVar("A", bound=m.Message)

TABLE = "orders"


class Serving:
    """An owner with one table, partitioned by `part`, and the client under test."""

    def __init__(self, folder: Path, feature: str = "catalogManaged", commit_mode: str = "staged") -> None:
        folder.mkdir(exist_ok=True)
        self.feature = feature
        self.commit_mode = commit_mode
        self.owner = Adversary(ModelOwner(FolderStorage(folder)))
        self.handler = ReferenceClient(self.owner.ask)
        self.subject = InProcess(self.handler)
        self.folder = folder
        self.reference = ""

    # The client under test

    def ask(self, request: m.Request, client: str = "client") -> m.Answer:
        return self.subject.ask(client, request)

    def expect(self, kind: type[A], request: m.Request, client: str = "client") -> A:
        answer = self.ask(request, client)
        assert isinstance(answer, kind), answer
        return answer

    def read(self, **what: Any) -> m.SnapshotRead:
        return self.expect(m.SnapshotRead, m.Snapshot(table=TABLE, **what))

    def write(self, *paths: str, part: str | None = "x", **more: Any) -> m.Transact:
        adds = tuple(m.DataFile(path=path, partition=part) for path in paths)
        return m.Transact(table=TABLE, **{"marker": attempt(), "adds": adds, **more})

    def committed(self, *paths: str, **more: Any) -> int | None:
        return self.expect(m.Committed, self.write(*paths, **more)).version

    # The kit's other clients

    def direct(self, kind: type[A], request: m.Request) -> A:
        """Send a request without passing through the adversary."""
        answer = self.owner.subject.ask("other", request)
        assert isinstance(answer, kind), answer
        return answer

    def create(self) -> None:
        own = attempt()
        actions = proposals.version_0(self.feature, own, attempt(), partition_columns=("part",))
        request = m.CreateTable(
            name=TABLE, feature=self.feature, commit_mode=self.commit_mode, attempt=own, actions=actions
        )
        self.reference = self.direct(m.Ratified, request).table or ""

    def land(self, version: int, *actions: str) -> None:
        """Commit the next version, as another client."""
        own = attempt()
        lines = (proposals.commit_info(own, proposals.BASE_TIME + version * 1000), *actions)
        self.direct(m.Ratified, m.Commit(table=self.reference, version=version, attempt=own, actions=lines))

    def adds(self, path: str, part: str = "x") -> str:
        return proposals.add(path, proposals.BASE_TIME, part, partitioned=True)

    def latest(self) -> int | None:
        return self.direct(m.Commits, m.GetCommits(table=self.reference)).latest

    @property
    def location(self) -> str:
        return self.direct(m.Table, m.LoadTable(name=TABLE)).location or ""

    def names(self) -> set[str]:
        return {path.name for path in (Path(self.location) / "_delta_log").iterdir() if path.is_file()}
