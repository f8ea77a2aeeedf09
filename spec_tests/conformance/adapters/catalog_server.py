"""A small Delta API server in memory, with only the calls that the adapter makes. `Answers` selects the behaviour of
the documents or the recorded behaviour of Unity Catalog 0.6.0.
"""

import copy
import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from conformance.adapters.listener import Handler, Listener

BASE: Final = "/api/2.1/unity-catalog/delta/v1"
LIST: Final = "/api/2.1/unity-catalog/tables"
LIMIT: Final = 10
"""The maximum number of unbackfilled commits of a table."""
PAGE: Final = 100
"""The maximum number of tables in one page of a list, whatever the client requests."""
READER_FEATURES: Final = ("catalogManaged", "deletionVectors", "v2Checkpoint", "vacuumProtocolCheck")
WRITER_FEATURES: Final = (*READER_FEATURES, "inCommitTimestamp")
PROPERTIES: Final = {
    "delta.enableDeletionVectors": "true",
    "delta.checkpointPolicy": "v2",
    "delta.enableInCommitTimestamps": "true",
    "delta.checkpoint.writeStatsAsStruct": "true",
    "delta.checkpoint.writeStatsAsJson": "true",
}
"""Unity Catalog requires these for each table that it manages, at the creation and at each change of the protocol."""
DOMAIN_PROPERTIES: Final = {
    "delta.clustering": ("delta.clusteringColumns", "clusteringColumns"),
    "delta.rowTracking": ("delta.rowTracking.rowIdHighWaterMark", "rowIdHighWaterMark"),
}
"""For each metadata domain: the property that holds one of its members, and the member's name."""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """How the server behaves. The defaults are correct behaviour."""

    remembers: bool = True
    """Whether the server recognizes every landed commit; otherwise only the newest one, as recorded."""
    looks: bool = True
    """Whether a staged file must exist and have its version in its name; otherwise neither, as recorded."""
    consumes: bool = True
    """Whether a location is for one table only; otherwise a creation that arrives again after a drop creates another
    table.
    """
    token: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    """Further fields of the answers that describe a table."""


FORGETTING: Final = Answers(remembers=False, looks=False, consumes=False)
"""The recorded behaviour of Unity Catalog 0.6.0: the replay of an older commit, or of a creation, is a conflict."""


@dataclass
class Table:
    name: str
    uuid: str
    location: str
    columns: Any
    partition_columns: list[str]
    properties: dict[str, str]
    etag: int = 1
    latest: int = 0
    backfilled: int = 0
    commits: dict[int, dict[str, Any]] = field(default_factory=dict)
    landed: dict[int, str] = field(default_factory=dict)


class Refusal(Exception):  # noqa: N818  # it is an answer
    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


class Catalog:
    """The catalog `main` with the schema `s1`."""

    def __init__(self, root: Path, answers: Answers) -> None:
        self.root, self.answers = root, answers
        self.tables: dict[str, Table] = {}
        self.places: set[str] = set()
        """The locations of all tables that were ever created."""
        self.updates: list[Any] = []
        """The bodies of all updates of tables, as received."""
        self.lock = threading.Lock()

    def answer(self, method: str, target: str, body: Any, token: str) -> tuple[int, Any]:
        if self.answers.token is not None and token != f"Bearer {self.answers.token}":
            raise Refusal(401, "NotAuthorizedException", "who are you?")
        path = urlsplit(target).path.removeprefix(BASE)
        if path == LIST:
            return 200, self._listed(dict(parse_qsl(urlsplit(target).query)))
        if path == "/config":
            if "catalog=main" not in target:
                raise Refusal(404, "NoSuchCatalogException", "no such catalog")
            return 200, {"endpoints": [], "protocol-version": "1.0"}
        parts = path.strip("/").split("/")
        if parts[:4] != ["catalogs", "main", "schemas", "s1"]:
            raise Refusal(404, "NoSuchSchemaException", f"no such schema: {path}")
        match method, *parts[4:]:
            case "POST", "staging-tables":
                return 200, self._stage()
            case "POST", "tables":
                return 200, self._create(body)
            case "GET", "tables", name:
                return 200, self._shown(self._table(name))
            case "POST", "tables", name:
                return 200, self._update(self._table(name), body)
            case "DELETE", "tables", name:
                del self.tables[self._table(name).name]
                return 204, None
        raise Refusal(404, "NotFoundException", path)

    def _table(self, name: str) -> Table:
        if name not in self.tables:
            raise Refusal(404, "NoSuchTableException", name)
        return self.tables[name]

    def _stage(self) -> Any:
        identifier = str(uuid.uuid4())
        return {
            "table-id": identifier,
            "table-type": "MANAGED",
            "location": (self.root / identifier).as_uri(),
            "storage-credentials": [],
            "required-protocol": {
                "min-reader-version": 3, "min-writer-version": 7, "reader-features": list(READER_FEATURES),
                "writer-features": list(WRITER_FEATURES),
            },
            "suggested-protocol": {"reader-features": ["columnMapping"], "writer-features": ["rowTracking"]},
            "required-properties": {"io.unitycatalog.tableId": identifier, **PROPERTIES},
            "suggested-properties": {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": None},
        }  # fmt: skip

    def _listed(self, query: dict[str, str]) -> Any:
        if (query["catalog_name"], query["schema_name"]) != ("main", "s1"):
            raise Refusal(404, "NoSuchSchemaException", f"no such schema: {query}")
        names = sorted(name for name in self.tables if name > query.get("page_token", ""))
        page = names[: min(int(query["max_results"]), PAGE)]
        shown = [
            {"name": table.name, "table_id": table.uuid, "storage_location": table.location}
            for table in map(self.tables.__getitem__, page)
        ]
        return {"tables": shown, "next_page_token": page[-1] if len(page) < len(names) else None}

    def _create(self, body: Any) -> Any:
        if body["name"] in self.tables:
            raise Refusal(409, "AlreadyExistsException", body["name"])
        if self.answers.consumes and body["location"] in self.places:
            raise Refusal(404, "NoSuchTableException", f"nothing is staged at {body['location']}")
        if not body["columns"]["fields"]:
            raise Refusal(400, "InvalidParameterValueException", "no columns")
        table = Table(
            name=body["name"], uuid=body["location"].rpartition("/")[2], location=body["location"],
            columns=body["columns"], partition_columns=body["partition-columns"], properties=dict(body["properties"]),
        )  # fmt: skip
        self._describe(table, body["protocol"])
        self._set_domains(table, body.get("domain-metadata") or {})
        self.places.add(table.location)
        self.tables[table.name] = table
        return self._shown(table)

    def _set_domains(self, table: Table, domains: Any) -> None:
        for domain, (key, member) in DOMAIN_PROPERTIES.items():
            if domain in domains:
                table.properties[key] = json.dumps(domains[domain][member])

    def _describe(self, table: Table, protocol: Any) -> None:
        for kind, required in (("reader-features", READER_FEATURES), ("writer-features", WRITER_FEATURES)):
            if missing := set(required) - set(protocol[kind]):
                raise Refusal(400, "InvalidParameterValueException", f"missing required {kind}: {sorted(missing)}")
        for key, value in {**PROPERTIES, "io.unitycatalog.tableId": table.uuid}.items():
            if table.properties.get(key) != value:
                raise Refusal(400, "InvalidParameterValueException", f"required property {key} must be {value}")
        table.properties |= {
            "delta.minReaderVersion": str(protocol["min-reader-version"]),
            "delta.minWriterVersion": str(protocol["min-writer-version"]),
            **{f"delta.feature.{name}": "supported" for name in protocol["writer-features"]},
        }

    def _shown(self, table: Table) -> Any:
        return {
            "metadata": {
                "etag": f"etag-{table.etag}", "table-type": "MANAGED", "table-uuid": table.uuid,
                "location": table.location, "columns": table.columns, "partition-columns": table.partition_columns,
                "properties": table.properties, "created-time": 1, "updated-time": 1,
            },
            "commits": [table.commits[version] for version in sorted(table.commits, reverse=True)],
            "latest-table-version": table.latest, **self.answers.fields,
        }  # fmt: skip

    def _update(self, table: Table, body: Any) -> Any:
        self.updates.append(body)
        table = copy.deepcopy(table)
        updates = {update["action"]: update for update in body["updates"]}
        requirements = {requirement["type"]: requirement for requirement in body["requirements"]}
        commit = updates.get("add-commit", {}).get("commit")
        report = updates.get("set-latest-backfilled-version", {}).get("latest-published-version")
        if requirements["assert-table-uuid"]["uuid"] != table.uuid:
            raise Refusal(409, "UpdateRequirementConflictException", "another table")
        if commit is not None and table.landed.get(commit["version"]) == commit["file-name"]:
            return self._shown(table)
        if commit is not None:
            self._judge(table, commit, report)
        if report is not None and report > (table.latest if commit is None else commit["version"]):
            raise Refusal(400, "InvalidParameterValueException", "published before it was committed")
        if requirements.get("assert-etag", {}).get("etag") not in (None, f"etag-{table.etag}"):
            raise Refusal(409, "UpdateRequirementConflictException", "the metadata changed")
        if commit is not None:
            table.latest = commit["version"]
            table.commits[table.latest] = commit
            if not self.answers.remembers:
                table.landed.clear()
            table.landed[table.latest] = commit["file-name"]
        if report is not None:
            table.backfilled = max(table.backfilled, report)
            table.commits = {commit: table.commits[commit] for commit in table.commits if commit > table.backfilled}
        self._change(table, updates)
        self.tables[table.name] = table
        return self._shown(table)

    def _judge(self, table: Table, commit: Any, report: int | None) -> None:
        version = commit["version"]
        if version <= 0:
            raise Refusal(400, "InvalidParameterValueException", "versions are positive")
        if version <= table.latest:
            raise Refusal(409, "CommitVersionConflictException", f"the latest version is {table.latest}")
        if version > table.latest + 1:
            raise Refusal(400, "InvalidParameterValueException", f"not the next version after {table.latest}")
        if len([commit for commit in table.commits if commit > (report or 0)]) >= LIMIT:
            raise Refusal(429, "ResourceExhaustedException", "too many commits")
        staged = Path(urlsplit(table.location).path) / "_delta_log/_staged_commits" / commit["file-name"]
        if self.answers.looks and not (staged.name.startswith(f"{version:020}.") and staged.is_file()):
            raise Refusal(400, "InvalidParameterValueException", f"no such staged file: {staged.name}")

    def _change(self, table: Table, updates: Any) -> None:
        table.properties |= updates.get("set-properties", {}).get("updates", {})
        for key in updates.get("remove-properties", {}).get("removals", ()):
            table.properties.pop(key, None)
        self._set_domains(table, updates.get("set-domain-metadata", {}).get("updates", {}))
        for domain in updates.get("remove-domain-metadata", {}).get("domains", ()):
            table.properties.pop(DOMAIN_PROPERTIES[domain][0], None)
        if "set-protocol" in updates:
            self._describe(table, updates["set-protocol"]["protocol"])
        table.columns = updates.get("set-columns", {}).get("columns", table.columns)
        table.partition_columns = updates.get("set-partition-columns", {}).get(
            "partition-columns", table.partition_columns
        )
        table.etag += any(action.startswith(("set-p", "set-c", "remove-")) for action in updates)


@contextmanager
def serving(root: Path, answers: Answers | None = None) -> Iterator[tuple[str, Catalog]]:
    """Start the server; yield its URL and its catalog."""
    catalog = Catalog(root, answers or Answers())

    class Catalogs(Handler):
        def answer(self) -> None:
            text = self.body()
            body = json.loads(text) if text else None
            with catalog.lock:
                try:
                    status, answer = catalog.answer(
                        self.command, self.path, body, self.headers.get("Authorization", "")
                    )
                except Refusal as refusal:
                    status = refusal.status
                    answer = {"error": {"type": refusal.kind, "code": status, "message": str(refusal), "stack": None}}
            content = b"" if answer is None else json.dumps(answer).encode()
            self.send_response(status)
            if status != 204:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = answer  # noqa: N815

    with Listener(Catalogs) as server:
        yield server.url, catalog
