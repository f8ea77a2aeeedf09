"""Scenarios for clients: a reader, a writer or a maintenance job under test, driven against the kit's own owner.

    table = s.create()
    s.land(table)                                  # the kit's other writers, by the owner's ordinary interface
    s.owner.on(m.GetCommits, before=lambda: s.backfill(table, 1))
    read = s.read(table)                           # the client under test
    s.require(read.version == 1, "MC-READ-07", "CM-READ-05", expected=...)

The owner is correct: whatever goes wrong is the client's. Its storage is a real folder, which the client reads itself.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conformance.adapters.in_process import operation
from conformance.adapters.subject import Subject
from conformance.checks.registry import Variant
from conformance.interface import messages as m
from conformance.models.owner import ModelOwner
from conformance.models.storage import FolderStorage
from conformance.scenario.adversary import Adversary, ClientHost, Heard
from conformance.scenario.scenario import Inconclusive, Scenario, TableHandle, Told, operation_of


class ClientScenario(Scenario):
    """As `Scenario`, whose requests go to the kit's owner; `act` asks the client under test."""

    def __init__(
        self, client: Subject, variant: Variant, host: ClientHost, *, name: str, seed: int = 0, salt: str = ""
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="conformance-"))
        self.owner = Adversary(ModelOwner(FolderStorage(self.folder)))
        super().__init__(self.owner.subject, variant, name=name, seed=seed, salt=salt, judged=client.identity)
        self.client = client
        self.host = host
        self.owner.listener = self._heard
        host.current = self.owner

    def act(self, client: str, request: m.Request, table: TableHandle | None = None) -> Told:
        """Ask the client under test to do something, and record it."""
        self.owner.begin()
        number = self.recording.invoke(client, self._name(request) if table is None else table.name, request)
        answer = self.client.ask(client, request)
        told = self._ended(number, request, answer)
        if isinstance(answer, m.Unsupported):
            raise Inconclusive(f"the client does not do that: {answer.reason}")
        self.require(
            not self.owner.endless, "CONFLICT-RETRY-06", "FIELD-04", "PROFILE-CLIENT-01", told=(told,),
            expected="a client ends its operation, with success or with an error",
            observed=f"it asked the owner more than {len(self.owner.heard)} times",
        )  # fmt: skip
        return told

    def read(self, table: TableHandle, *requirements: str, client: str = "reader", **options: Any) -> m.SnapshotRead:
        """A snapshot by the client under test, which must succeed."""
        told = self.act(client, m.Snapshot(table=self.name_of(table), **options))
        return self.expect(told, m.SnapshotRead, *requirements, "PROFILE-CLIENT-01", expected="a snapshot of the table")

    def name_of(self, table: TableHandle) -> str:
        """By which a client finds the table: its name."""
        return self.physical(table.name)

    def location(self, table: TableHandle) -> str:
        """The table's folder."""
        return self.owner.owner.tables[table.reference].location

    def asked(self, kind: type[m._Message]) -> Sequence[Heard]:
        """What the client under test asked of the owner, of this kind."""
        return [heard for heard in self.owner.heard if isinstance(heard.request, kind)]

    def close(self) -> None:
        """Remove the folder; nobody is answered any more."""
        self.host.current = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def _heard(self, heard: Heard) -> None:
        """For the reader of the history: what the client asked its owner."""
        version = getattr(heard.request, "version", None)
        what = operation(heard.request) + ("" if version is None else f" {version}")
        note = f"{what} -> {operation_of(heard.answer)}"
        self.recording.fault("asks the owner", client=heard.client, note=note)

    def _name(self, request: m.Request) -> str:
        named = getattr(request, "table", None)
        for table in self.tables:
            if named is not None and named == self.name_of(table):
                return table.name
        return super()._name(request)
