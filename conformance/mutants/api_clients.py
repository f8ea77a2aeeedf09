"""Clients of Unity Catalog's Delta API: the model client, whose proposals are requests to the kit's catalog, and small
edits of its requests."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

from conformance.adapters.uc.api import Loaded, Staged, TableMetadata, UnansweredError
from conformance.adapters.uc.owner import creation_of, parsed, updates_of, with_requirements
from conformance.adapters.uc.server import CATALOG, DELTA, SCHEMA, DeltaApi
from conformance.interface import messages as m
from conformance.interface.log_names import LOG, STAGING, TABLE_ID, commit_file
from conformance.models import proposals
from conformance.models.client import ModelClient
from conformance.models.reader import Resolved, State
from conformance.models.writer import Transaction
from conformance.mutants import good, mutant_method, original

Body = dict[str, Any]
_SCHEMA: Final = f"{DELTA}/catalogs/{CATALOG}/schemas/{SCHEMA}"
_FEATURE: Final = "catalogManaged"


@good()
class SpeaksTheDeltaApi(ModelClient):
    """Creates and commits by requests of Unity Catalog's Delta API, and reports what it has published."""

    def __init__(self, owner: Callable[[str, m.Request], m.Answer]) -> None:
        super().__init__(self._asked)
        self._direct = owner
        self._api = DeltaApi(owner)
        self._tables: dict[str, tuple[str, Path]] = {}
        """The name and the folder of each known table, by reference."""
        self._stagings: dict[str, Staged] = {}
        """The staged table of each creation, by attempt."""
        self._before = State()
        """The table before the version that is proposed."""

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        return msgspec.structs.replace(
            super().hello(client, request), features=(_FEATURE,), commit_modes={_FEATURE: ("staged",)},
            profiles=("core", "staged", "maintenance-policy", "backlog-limit", "discovery", "change-data",
                      "row-tracking", "uc-delta-api"),
        )  # fmt: skip

    def _asked(self, client: str, request: m.Request) -> m.Answer:
        known = self._tables.get(getattr(request, "table", None) or "")
        match request:
            case m.CreateTable(feature="catalogManaged", path=None):
                return self._create(client, request)
            case m.Commit(staged_file=str()) if known is not None:
                return self._commit_by_api(client, request, *known)
            case m.BackfillToVersion(table=reference) if known is not None:
                table = Resolved(
                    name=known[0], reference=reference, feature=_FEATURE, commit_mode="staged", log=known[1] / LOG
                )
                self._publish_before_a_report(client, table, request.version)
                report = {"action": "set-latest-backfilled-version", "latest-published-version": request.version}
                return self._sent(client, known[0], self._body(reference, [report]), m.Done())
        answer = self._direct(client, request)
        if isinstance(request, m.LoadTable) and isinstance(answer, m.Table) and answer.feature == _FEATURE:
            self._tables[answer.table] = (request.name or "", Path(answer.location or ""))
        return answer

    def _publish_before_a_report(self, client: str, table: Resolved, version: int) -> None:
        self._publish_all(client, table, version)

    def _propose(self, client: str, transaction: Transaction, version: int) -> bool:
        self._before = transaction.checked
        return super()._propose(client, transaction, version)

    def _metadata(self, newest: State, request: m.Transact) -> dict[str, Any]:
        """A replaced table keeps its id."""
        metadata = super()._metadata(newest, request)
        metadata["configuration"].update(self._kept_properties(newest))
        return metadata

    def _kept_properties(self, newest: State) -> dict[str, str]:
        return {key: value for key, value in newest.properties.items() if key == TABLE_ID}

    # Requests

    def _body(self, reference: str, updates: list[Body]) -> Body:
        return {"requirements": [{"type": "assert-table-uuid", "uuid": reference}], "updates": updates}

    def _commit_by_api(self, client: str, request: m.Commit, name: str, folder: Path) -> m.Answer:
        file = folder / LOG / STAGING[_FEATURE] / (request.staged_file or "")
        content = file.read_bytes()
        added = {"action": "add-commit", "commit": self._described(request.version, file, content)}
        updates = [added, *self._changes_of(content)]
        body = self._body(request.table, updates)
        landed = m.Ratified(version=request.version)
        answer = self._sent(client, name, body, landed)
        if isinstance(answer, m.Unknown):
            again = self._sent(client, name, self._repeated(body), landed)
            return again if again == landed else answer  # a refusal is about the second request
        return answer

    def _described(self, version: int, file: Path, content: bytes) -> Body:
        return {
            "version": version, "timestamp": proposals.time_of(content.decode()), "file-name": file.name,
            "file-size": len(content), "file-modification-timestamp": file.stat().st_mtime_ns // 1_000_000,
        }  # fmt: skip

    def _changes_of(self, content: bytes) -> list[Body]:
        """The updates for what the commit changes in the log."""
        columns = json.loads(self._before.metadata.get("schemaString") or "null")
        known = TableMetadata(
            table_uuid="", location="", columns=columns, properties=dict(self._before.properties),
            partition_columns=tuple(self._before.metadata.get("partitionColumns") or ()),
        )  # fmt: skip
        return updates_of(parsed(content), Loaded(metadata=known))

    def _repeated(self, body: Body) -> Body:
        """The request after an unknown outcome."""
        return body

    def _create(self, client: str, request: m.CreateTable) -> m.Answer:
        if request.attempt not in self._stagings:
            status, answer = self._send(client, f"{_SCHEMA}/staging-tables", {"name": request.name})
            if status != 200:
                return self._meaning(status, answer)
            self._stagings[request.attempt] = msgspec.json.decode(answer, type=Staged)
        staged = self._stagings[request.attempt]
        content = proposals.content(tuple(with_requirements(action, staged) for action in request.actions)).encode()
        log = Path(unquote(urlsplit(staged.location).path), LOG)
        log.mkdir(exist_ok=True)
        (log / commit_file(0)).write_bytes(content)
        status, answer = self._send(client, f"{_SCHEMA}/tables", self._creation(request.name, staged, content))
        return m.Ratified(version=0, table=staged.table_id) if status == 200 else self._meaning(status, answer)

    def _creation(self, name: str, staged: Staged, content: bytes) -> Body:
        return creation_of(name, staged, content)

    def _sent(self, client: str, name: str, body: Body, done: m.Answer) -> m.Answer:
        status, answer = self._send(client, f"{_SCHEMA}/tables/{name}", body)
        return done if status == 200 else self._meaning(status, answer)

    def _send(self, client: str, path: str, body: Body) -> tuple[int, bytes]:
        """Status 0: there was no answer."""
        headers = {"Authorization": f"Bearer {client}"}
        try:
            return self._api.send("POST", path, msgspec.json.encode(body), headers)
        except UnansweredError as error:
            return 0, str(error).encode()

    def _meaning(self, status: int, answer: bytes) -> m.Answer:
        reason = answer.decode()
        match status:
            case 0 | 500 | 503:
                return m.Unknown(reason=reason)
            case 404:
                return m.NotFound()
            case 409:
                return m.Conflict()
        return m.Rejected(reason=reason, retryable=status == 429)


@mutant_method("_body", "UC-CLIENT-01")
def asserts_no_table_id(self: SpeaksTheDeltaApi, reference: str, updates: list[Body]) -> Body:
    """Sends updates that assert no table id."""
    return {"requirements": [], "updates": updates}


@mutant_method("_changes_of", "UC-CLIENT-02")
def sends_stale_properties_with_its_commit(self: SpeaksTheDeltaApi, content: bytes) -> list[Body]:
    """Sends the properties that the commit replaces, with their old values."""
    updates = original(self)._changes_of(content)
    for update in updates:
        if update["action"] == "set-properties":
            update["updates"] |= {k: v for k, v in self._before.properties.items() if k in update["updates"]}
    return updates


@mutant_method("_kept_properties", "UC-CLIENT-03")
def copies_derived_properties_into_the_log(self: SpeaksTheDeltaApi, newest: State) -> dict[str, str]:
    """Writes the properties of a load into the log, with those that the catalog derives."""
    return {**original(self)._kept_properties(newest), "delta.lastUpdateVersion": str(newest.version)}


@mutant_method("_publish_before_a_report", "UC-CLIENT-04")
def reports_before_it_publishes(self: SpeaksTheDeltaApi, client: str, table: Resolved, version: int) -> None:
    """Reports versions as published that it has not published."""


@mutant_method("_described", "UC-CLIENT-05")
def sends_another_timestamp_than_the_files(self: SpeaksTheDeltaApi, version: int, file: Path, content: bytes) -> Body:
    """Sends the time of the request, not the in-commit timestamp of the staged file."""
    described = original(self)._described(version, file, content)
    return {**described, "timestamp": described["timestamp"] + 1}


@mutant_method("_repeated", "UC-CLIENT-06")
def adds_a_property_to_a_repeated_commit(self: SpeaksTheDeltaApi, body: Body) -> Body:
    """Repeats a commit of unknown outcome with one more update."""
    return {**body, "updates": [*body["updates"], {"action": "set-table-comment", "comment": "again"}]}


@mutant_method("_creation", "UC-CLIENT-07")
def declares_more_than_version_0_has(self: SpeaksTheDeltaApi, name: str, staged: Staged, content: bytes) -> Body:
    """Registers a table with a property that its version 0 lacks."""
    body = original(self)._creation(name, staged, content)
    return {**body, "properties": {**body["properties"], "team": "a"}}


@mutant_method("_kept_properties", "UC-CLIENT-08")
def drops_the_table_id(self: SpeaksTheDeltaApi, newest: State) -> dict[str, str]:
    """Replaces a table without its id."""
    return {}
