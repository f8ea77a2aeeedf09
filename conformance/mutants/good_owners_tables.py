"""Good owners that keep their state, their files and their tables in other ways than the model, as the documents allow.
Nobody may accuse them of anything."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, MutableMapping

import msgspec

from conformance.interface import messages as m
from conformance.models.owner import OWNER_PROPERTY, ModelOwner, OwnedTable, content_of, time_of
from conformance.models.state import Commit
from conformance.models.storage import LOG, Storage
from conformance.mutants.good_owners import ListsFromTheMiddle, Promising
from conformance.mutants.registry import good


class SavedFiles(MutableMapping[str, bytes]):
    """What an owner keeps, as files in a folder of its own."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.folder = f"{storage.root}/.owner"

    def _path(self, key: str) -> str:
        return f"{self.folder}/{base64.urlsafe_b64encode(key.encode()).decode()[-100:]}"

    def __getitem__(self, key: str) -> bytes:
        file = self.storage.read(self._path(key))
        if file is None:
            raise KeyError(key)
        return file.content.partition("\n")[2].encode()

    def __setitem__(self, key: str, value: bytes) -> None:
        self.storage.put(self._path(key), f"{key}\n{value.decode()}", 0)

    def __delitem__(self, key: str) -> None:
        self[key]
        self.storage.remove(self._path(key))

    def __iter__(self) -> Iterator[str]:
        for name in self.storage.list(self.folder):
            file = self.storage.read(f"{self.folder}/{name}")
            if file is not None:
                yield file.content.partition("\n")[0]

    def __len__(self) -> int:
        return len(self.storage.list(self.folder))


@good("MC-OWNER-01", "CM-CATALOG-01")
class StateInFiles(ModelOwner):
    """It keeps what it knows in files beside the tables."""

    def __init__(self, storage: Storage | None = None) -> None:
        super().__init__(storage)
        self.saved = SavedFiles(self.storage)


@good("MC-API-01", "CM-CATALOG-02", "FREE-CATALOG-01")
class NoServer(ModelOwner):
    """There is no process that knows anything: each request reads the state anew, and writes it back."""

    @property
    def tables(self) -> dict[str, OwnedTable]:
        super().tables  # noqa: B018  # nobody answers for the dead
        return {name: msgspec.json.decode(saved, type=OwnedTable) for name, saved in self.saved.items()}


@good("CM-STORE-01")
class InlineInItsOwnFormat(ModelOwner):
    """It keeps inline commits with sorted fields and spaces between them, and publishes them so."""

    def _ratify(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
        if table.commit_mode == "inline" and request.actions is not None:
            actions = tuple(json.dumps(json.loads(action), sort_keys=True) for action in request.actions)
            request = msgspec.structs.replace(request, actions=actions)
        return super()._ratify(table, request, staged)


@good("FREE-STAGING-02", "FREE-STAGING-03", "FREE-STAGING-04", "MC-LOG-04", "CM-FILES-05")
class LittersTheStagingFolder(ModelOwner):
    """Beside every commit its staging folder gets files that are none: one of another attempt at the same version, cut
    off in the middle, and one for a version that is far away."""

    def _ratify(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
        answer = super()._ratify(table, request, staged)
        if table.commit_mode == "staged":
            half = content_of(request.actions or ("{}",))[:40]
            for version in (request.version, request.version + 7):
                name = f"{version:020}.{request.attempt[:-4]}{version % 10_000:04}.json"
                self.storage.put(self._staged_path(table, name), half, 0)
        return answer


@good("FREE-STAGING-01", "MC-BACKFILL-02", "CM-STORE-08")
class RemovesStagedFiles(ModelOwner):
    """When a commit is published it removes the staged file, so that there is often no staging folder at all."""

    def _backfill(self, table: OwnedTable, version: int) -> None:
        staged = [commit.staged_file for number, commit in table.unbackfilled.items() if number <= version]
        super()._backfill(table, version)
        for name in staged:
            if name is not None:
                self.storage.remove(self._staged_path(table, name))


@good("FREE-VERSION0-01")
class StagesVersion0(Promising):
    """It stages version 0 like any other commit of a table whose commits are staged."""

    without = ("version-0-by-owner", "version-0-by-filesystem")

    def _begin(self, table: OwnedTable, version: int, attempt: str, actions: tuple[str, ...]) -> m.Answer:
        if version > 0 or table.commit_mode != "staged":
            return super()._begin(table, version, attempt, actions)
        content = self._with_owner(actions, table.feature)
        name = f"{0:020}.{attempt}.json"
        self.storage.put_if_absent(self._staged_path(table, name), content_of(content), time_of(content))
        if self._published(table) >= 0:
            return m.Conflict(latest=self._published(table))
        table.unbackfilled[0] = Commit(attempt=attempt, staged_file=name)
        self.tables[table.reference] = table
        self._record(table, 0, attempt)
        return m.Ratified(version=0, table=table.reference)


@good("FREE-CONF-01", "MC-ENABLE-04", "MC-ENABLE-06")
class KeepsItsConfiguration(ModelOwner):
    """It writes down in the table how its client side reaches it, and by which kind of authentication."""

    def _with_owner(self, actions: tuple[str, ...], feature: str) -> tuple[str, ...]:
        told = {"endpoint": "http://owner.example/commits", "authenticationMode": "oauth2"}
        conf = json.dumps(json.dumps(told))
        owner = f'"{OWNER_PROPERTY}":'
        with_name = super()._with_owner(actions, feature)
        return tuple(action.replace(owner, f'"{OWNER_PROPERTY}Conf":{conf},{owner}') for action in with_name)


@good("FREE-CATALOG-02", "CM-READ-06")
class NamesItsCheckpoints(ModelOwner):
    """Its resolutions tell of the checkpoints too, beside the metadata, which is more than anybody asked for."""

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        answer = super().load_table(client, request)
        if not isinstance(answer, m.Table) or answer.metadata is None:
            return answer
        metadata = {"metaData": {**json.loads(answer.metadata)["metaData"], "checkpoints": [0]}}
        return msgspec.structs.replace(answer, metadata=json.dumps(metadata))


@good("CM-FEATURE-02", "CM-CREATE-01")
class OpaqueReferences(ModelOwner):
    """What it calls a table in requests looks like nothing that a client could guess: spaces, quotes and braces,
    letters of other languages."""

    def _reference(self, name: str) -> str:
        return json.dumps({"№": len(self.tables), "naïve": name}, ensure_ascii=False)


@good("CM-DROP-01", "CM-CREATE-01")
class DeletesAtOnce(ModelOwner):
    """A table that is dropped is gone with all its files before the answer."""

    def drop_table(self, client: str, request: m.DropTable) -> m.Answer:
        answer = super().drop_table(client, request)
        table = self.tables.get(request.table)
        if table is not None and isinstance(answer, m.Done):
            for name in self.storage.list(f"{table.location}/{LOG}"):
                self.storage.remove(f"{table.location}/{LOG}/{name}")
        return answer


@good("FREE-TRANSFER-01", "FREE-TRANSFER-02", "MC-RELEASE-02")
class HesitatesToTransfer(ModelOwner):
    """It refuses the first take-over of every table, and the first hand-back; who insists gets it."""

    def __init__(self, storage: Storage | None = None) -> None:
        super().__init__(storage)
        self.asked: set[str] = set()

    def _first(self, what: str) -> bool:
        first = what not in self.asked
        self.asked.add(what)
        return first

    def take_over(self, client: str, request: m.TakeOver) -> m.Answer:
        if self._first(request.path):
            return m.Rejected(reason="sure?")
        return super().take_over(client, request)

    def hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        if self._first(f"back: {request.table}"):
            return m.Rejected(reason="sure?")
        return super().hand_back(client, request)


@good("FREE-TRANSFER-03")
class StagesTheLastCommit(ModelOwner):
    """It stages the commit that ends its ownership, and publishes it when the table is next asked for."""

    def hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        table = self.tables.get(request.table)
        if table is None or table.commit_mode != "staged":
            return super().hand_back(client, request)
        proposal = m.Commit(
            table=request.table, version=request.version, attempt=request.attempt, actions=request.actions
        )
        answer = self._replay(table, proposal) or self._refusal(table, proposal, None)
        if answer is not None:
            return answer
        self._backfill(table, table.latest)
        staged = self._stage(table, proposal)
        table.active = False
        table.unbackfilled[request.version] = Commit(attempt=request.attempt, staged_file=staged)
        self._record(table, request.version, request.attempt)
        return m.Ratified(version=request.version)


@good("FREE-CHECKSUM-02", "MC-OWNER-01", "CM-CATALOG-01")
class KeepsOtherFilesInTheLog(ModelOwner):
    """Beside every published commit it writes the checksum, which names the commit's transaction, and what it knows of
    the table it keeps in a folder of the log that no reader looks into."""

    def _publish(self, table: OwnedTable, version: int) -> None:
        super()._publish(table, version)
        file = self.storage.read(self._path(table, version))
        if file is not None:
            self.storage.put(f"{table.location}/{LOG}/{version:020}.crc", checksum_of(file.content), file.modified)

    def _save(self, table: OwnedTable) -> None:
        super()._save(table)
        self.storage.put(f"{table.location}/{LOG}/.owner/attempts.db", " ".join(table.landed), 0)


def checksum_of(content: str) -> str:
    """Of a version whose numbers do not matter."""
    info = json.loads(content.partition("\n")[0]).get("commitInfo", {})
    return json.dumps({"txnId": info.get("txnId"), "tableSizeBytes": 0, "numFiles": 0})


@good("FREE-GET-02", "FREE-GET-01")
class RefusesRangesThatRunBackwards(ListsFromTheMiddle):
    """A range of versions that ends before it begins is an error to it; any other it answers, one that begins after the
    latest version too, and with a list that begins where it likes."""

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        if request.end is not None and request.end < (request.start or 0):
            return m.Rejected(reason="the range ends before it begins")
        return super().get_commits(client, request)
