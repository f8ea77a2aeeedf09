"""The owner that a catalog asks: its tables can be created by clients that write version 0 themselves."""

import json
import uuid
from collections.abc import Sequence
from pathlib import Path

from conformance.interface import messages as m
from conformance.interface.log_names import TABLE_ID
from conformance.models import proposals
from conformance.models.groups import GroupOwner, Staged
from conformance.models.owner import NotPublished, OwnedTable
from conformance.models.storage import FolderStorage


class ClientOwner(GroupOwner):
    """The model owner as a catalog that engines can use. The id of a table is a UUID in the table's properties, and the
    protocol has `vacuumProtocolCheck`: an owner may require both, and Delta Spark and DuckDB reject catalog-managed
    tables without them. It knows the newest protocol and metadata even after a cleanup of their commits.
    """

    def __init__(self, storage: FolderStorage | None = None) -> None:
        super().__init__(storage)
        self._recorded: dict[tuple[str, str], tuple[int, str | None]] = {}
        self._staged: str | None = None

    def _record(self, table: OwnedTable, version: int, attempt: str) -> None:
        super()._record(table, version, attempt)
        self._remember(table)

    def _ratify_group(self, members: Sequence[Staged]) -> m.Answer:
        answer = super()._ratify_group(members)
        for table, _, _ in members:
            self._remember(table)
        return answer

    def _remember(self, table: OwnedTable) -> None:
        for kind in ("protocol", "metaData"):
            self._newest(table, kind)

    def _newest(self, table: OwnedTable, kind: str) -> str | None:
        """Only the versions since the last call are read."""
        known, newest = self._recorded.get((table.reference, kind), (-1, None))
        newest = self._newest_after(known, table, kind) or newest
        self._recorded[table.reference, kind] = (table.latest, newest)
        return newest

    def _reference(self, name: str) -> str:
        return self._staged or str(uuid.uuid5(uuid.NAMESPACE_URL, super()._reference(name)))

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        """With a `path`, the table has the id that the path ends with, and its creator may have written version 0."""
        self._staged = None if request.path is None else Path(request.path).name
        return super().create_table(client, request)

    def backfill_to_version(self, client: str, request: m.BackfillToVersion) -> m.Answer:
        """A report of versions that do not exist is a mistake: UC_DELTA_API.md#report-above."""
        table = self.tables.get(request.table)
        if table is not None and request.version > table.latest:
            return m.Rejected(reason=f"version {request.version} does not exist; the latest one is {table.latest}")
        return super().backfill_to_version(client, request)

    def listed_content(self, table: OwnedTable, version: int) -> str | None:
        """The content of a commit that it lists; None if the staged file does not exist."""
        try:
            return self._content(table, table.unbackfilled[version])
        except NotPublished:
            return None

    def _begin(self, table: OwnedTable, version: int, attempt: str, actions: tuple[str, ...]) -> m.Answer:
        written = self.storage.read(self._path(table, version)) if self._staged is not None else None
        if written is not None and written.content == proposals.content(actions):
            table.promised = (version, attempt, written.content)
            self.tables[table.reference] = table
            self._recover(table)
            return m.Ratified(version=version, table=table.reference)
        if table.feature == "catalogManaged":
            actions = tuple(_for_catalog(action, table.reference) for action in actions)
        return super()._begin(table, version, attempt, actions)


def _for_catalog(line: str, table: str) -> str:
    action = json.loads(line)
    for kind in ("readerFeatures", "writerFeatures"):
        if kind in action.get("protocol", ()):
            action["protocol"][kind] = sorted({*action["protocol"][kind], "vacuumProtocolCheck"})
    if "metaData" in action:
        action["metaData"].setdefault("configuration", {})[TABLE_ID] = table
    return json.dumps(action, separators=(",", ":"))
