"""The reference client against the kit's own owner, whose tables are in a real folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from conformance.adapters.in_process import InProcess
from conformance.adapters.reference.client import ReferenceClient
from conformance.interface import messages as m
from conformance.models import proposals
from conformance.models.owner import ModelOwner
from conformance.models.storage import FolderStorage
from conformance.scenario.adversary import Adversary
from spec_tests.conformance.reference.asking import attempt, published_name

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
        """Past the adversary."""
        answer = self.owner.subject.ask("other", request)
        assert isinstance(answer, kind), answer
        return answer

    def create(self, **options: Any) -> None:
        own = attempt()
        actions = proposals.version_0(self.feature, own, attempt(), partition_columns=("part",))
        request = m.CreateTable(
            name=TABLE, feature=self.feature, commit_mode=self.commit_mode, attempt=own, actions=actions, **options
        )
        self.reference = self.direct(m.Ratified, request).table or ""

    def land(self, version: int, *actions: str, time: int | None = None) -> str:
        """The next version, by another client. Its attempt."""
        own = attempt()
        when = proposals.BASE_TIME + version * 1000 if time is None else time
        lines = (proposals.commit_info(own, when), *actions)
        self.direct(m.Ratified, m.Commit(table=self.reference, version=version, attempt=own, actions=lines))
        return own

    def adds(self, path: str, part: str = "x") -> str:
        return proposals.add(path, proposals.BASE_TIME, part, partitioned=True)

    def backfill(self, version: int) -> None:
        self.direct(m.Done, m.BackfillToVersion(table=self.reference, version=version))

    def latest(self) -> int | None:
        return self.direct(m.Commits, m.GetCommits(table=self.reference)).latest

    @property
    def location(self) -> str:
        return self.direct(m.Table, m.LoadTable(name=TABLE)).location or ""

    @property
    def log(self) -> Path:
        return Path(self.location) / "_delta_log"

    def names(self) -> set[str]:
        return {path.name for path in self.log.iterdir() if path.is_file()}

    def asked(self, kind: type[m.Message]) -> list[m.Request]:
        return [heard.request for heard in self.owner.exchanges if isinstance(heard.request, kind)]


__all__ = ["TABLE", "Serving", "published_name"]
