"""Owners whose log is a folder of this machine, without crash points and without storage access: only what happens in
the folder during a request shows what they do wrong."""

from pathlib import Path

import msgspec

from conformance.interface import messages as m
from conformance.models.owner import ModelOwner, OwnedTable, content_of, time_of
from conformance.models.storage import FolderStorage
from conformance.mutants import good_method, mutant_method, original

UNDECLARED = ("storage-access", "harness-control", "version-0-by-filesystem", "ownership-transfer")


class InAFolder(ModelOwner):
    """Stores its logs in its own folder."""

    def __init__(self, directory: Path) -> None:
        super().__init__(FolderStorage(directory))

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        identity = super().hello(client, request)
        profiles = tuple(profile for profile in identity.profiles if profile not in UNDECLARED)
        return msgspec.structs.replace(identity, profiles=profiles, crash_points=(), storage=None)


@mutant_method("_backfill", "MC-BACKFILL-03", "CM-PUBLISH-06")
def publishes_in_descending_order(self: InAFolder, table: OwnedTable, version: int) -> None:
    """Publishes from the newest version to the oldest, and answers when all are published."""
    for due in reversed(range(table.backfilled + 1, version + 1)):
        self._publish(table, due)
    original(self)._backfill(table, version)


@mutant_method("_publish", "MC-LOG-01", "CM-LOG-01")
def publishes_in_place(self: InAFolder, table: OwnedTable, version: int) -> None:
    """Creates the published file under its final name, and writes it in two halves."""
    content, path = self._content(table, table.unbackfilled[version]).encode(), Path(self._path(table, version))
    if not path.exists():
        with path.open("xb", buffering=0) as file:
            file.write(content[: len(content) // 2])
            file.write(content[len(content) // 2 :])
    original(self)._publish(table, version)


@mutant_method("_backfill", "MC-FILES-08", "CM-FILES-07", "CM-PUBLISH-03")
def publishes_every_version_again(self: InAFolder, table: OwnedTable, version: int) -> None:
    """Replaces all published files by equal ones at each backfill."""
    original(self)._backfill(table, version)
    for published in range(1, table.backfilled + 1):
        file = self.storage.read(self._path(table, published))
        assert file is not None
        self.storage.put(self._path(table, published), *file)


@mutant_method("_gap", "MC-FILES-08", "CM-FILES-07")
def early_proposal_is_published_for_a_moment(self: InAFolder, table: OwnedTable, request: m.Commit) -> m.Answer | None:
    """Publishes a proposal before it finds that it is too early, and removes the file again."""
    path, actions = self._path(table, request.version), request.actions or ()
    if self.storage.put_if_absent(path, content_of(actions), time_of(actions)):
        self.storage.remove(path)
    return original(self)._gap(table, request)


@good_method("_publish", "FREE-BACKFILL-01")
def publishes_by_renaming(self: InAFolder, table: OwnedTable, version: int) -> None:
    """Writes a file beside its final name in pieces, and renames it. After a failure it does so again."""
    content, path = self._content(table, table.unbackfilled[version]).encode(), Path(self._path(table, version))
    if not path.exists():
        temporary = path.with_name(f".{path.name}.tmp")
        with temporary.open("wb", buffering=0) as file:
            file.write(content[: len(content) // 2])
            file.write(content[len(content) // 2 :])
        temporary.rename(path)
    original(self)._publish(table, version)
