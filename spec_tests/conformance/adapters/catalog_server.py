"""The kit's server of the Delta API, for tests of its clients. `edit` gives its answers the form of other servers'."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from conformance.adapters.uc.server import DeltaApiServer
from conformance.interface import messages as m
from conformance.models.client_owner import ClientOwner
from conformance.models.owner import OwnedTable
from conformance.models.storage import FolderStorage
from conformance.scenario.adversary import Adversary

PAGE: Final = 40
"""The maximum number of tables in one page of a list, whatever the client requests."""


class Forgetting(ClientOwner):
    """As recorded of Unity Catalog 0.6.0: the replay of an older commit than the newest is a conflict. A table may have
    ten unpublished commits."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        return super().create_table(client, msgspec.structs.replace(request, backlog_limit=10))

    def _replay(self, table: OwnedTable, request: m.Commit) -> m.Answer | None:
        return super()._replay(table, request) if request.version == table.latest else None


class Catalog:
    """The catalog `kit` with the schema `kit`. `owner` answers its requests, under rules."""

    def __init__(self, folder: Path, make: type[ClientOwner]) -> None:
        folder.mkdir(exist_ok=True)
        self.owner = Adversary(make(FolderStorage(folder)))
        self.updates: list[Any] = []
        """The bodies of all updates of tables, as received."""
        self._edits: list[tuple[str, Callable[[Any], object]]] = []
        self._server = DeltaApiServer(self.owner.ask)
        self.api, self.url, self._send = self._server.api, self._server.url, self._server.api.send
        self.api.send = self._edited  # type: ignore[method-assign]

    def edit(self, calls: str, change: Callable[[Any], object]) -> None:
        """Change the documents that answer these calls from now on. `calls`: a pattern of method and path."""
        self._edits.append((calls, change))

    def _edited(
        self, method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        self.owner.begin()
        if method == "POST" and "/tables/" in target:
            self.updates.append(json.loads(body or b""))
        target = re.sub(r"max_results=\d+", f"max_results={PAGE}", target)
        status, content = self._send(method, target, body, headers)
        for calls, change in self._edits:
            if status == 200 and re.search(calls, f"{method} {target}"):
                document = json.loads(content)
                change(document)
                content = json.dumps(document).encode()
        return status, content

    def table(self, name: str) -> OwnedTable:
        """The table as its owner knows it."""
        (found,) = (table for table in self.owner.owner.tables.values() if table.name == name and table.active)
        return found


@contextmanager
def serving(folder: Path, make: type[ClientOwner] = ClientOwner) -> Iterator[Catalog]:
    """Start the server, with its tables in the folder."""
    catalog = Catalog(folder, make)
    with catalog._server:
        yield catalog
