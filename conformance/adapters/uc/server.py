"""The kit's own owner as a server of Unity Catalog's Delta API, for engines that speak it.

`DeltaApi` turns one request of the API into requests of the shared interface, without a network; `DeltaApiServer`
serves it on the loopback interface. A client names itself by its bearer token: the token is the name of the simulated
client. The table NAME of the kit is `kit.kit.NAME`, and its id in the API is the reference by which the owner knows it.

The requests of a client, and the requests to the owner that answer them:

| HTTP request | requests to the owner |
|---|---|
| GET .../tables/{t} | `load_table` by name at the client's first request, `get_commits`, `maintenance_policy` |
| POST .../tables/{t} with `add-commit` | `commit`; for the answer, `get_commits` and `maintenance_policy` |
| the same with `set-latest-backfilled-version` | `backfill_to_version`, after the `commit` |
| GET L/tables, L/tables/{c.s.t} | `load_table` of each table that `show` named, or of the named table |
| POST .../staging-tables | `hello`, for the folder of the kit; the owner's state does not change |
| POST .../tables | `create_table` with the version 0 that the client wrote at the location |
| POST .../tables/{t}/rename | `load_table` of both names; the server keeps the new name |
| DELETE .../tables/{t}, L/tables/{c.s.t} | `load_table`, `drop_table` |
| POST .../tables, POST .../tables/{t} | first of all `call_api`, with the request as it is |

How a rule of `Adversary` becomes an event of HTTP:

| the rule makes the owner answer | the client gets |
|---|---|
| `Unknown` (`lose_request`, `lose_answer`) | the server closes the connection and sends nothing |
| `Unknown` with a reason that begins with `503` | 503, whether or not the request was carried out |
| `Rejected(retryable=True)` | 429; the request had no effect |
| `Rejected` | 400 |
| `Conflict` | 409 `CommitVersionConflictException`, without winners: the API has no field for them |
| `Gap` | 400: the API has no status of its own for it |
| `NotFound` | 404 `NoSuchTableException` |
| other `Commits` (`change`, `override_commits`) | other `commits` and `latest-table-version` |

No 429 follows a request that had an effect, because the API's clients may take a 429 as a promise that it had none.
Inline commits do not exist in the API. This module does not import the reference.
"""

import itertools
import json
import threading
import uuid
from collections.abc import Mapping
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from conformance.adapters.listener import BodyError, Handler, Listener
from conformance.adapters.uc.api import (
    FREE_JOBS,
    OPERATIONS,
    ApiCommit,
    Creation,
    Metrics,
    OlderCommits,
    OlderUpdate,
    Renaming,
    RequiredProtocol,
    Staged,
    Staging,
    TableUpdate,
    UnansweredError,
    repeated_columns,
    respelled,
)
from conformance.interface import messages as m
from conformance.interface.log_names import LOG, STAGED_TABLES, STAGING, TABLE_ID, attempt_of, commit_file
from conformance.interface.subject import AdapterError, Ask, Closing
from conformance.models import proposals

CATALOG: Final = "kit"
SCHEMA: Final = "kit"
UNAVAILABLE: Final = "503"
"""If the reason of an `Unknown` begins so, the client gets this status instead of a closed connection."""
LEGACY: Final = "/api/2.1/unity-catalog"
DELTA: Final = f"{LEGACY}/delta/v1"
_SETTINGS: Final = "/api/2.0/settings/"
_LONGEST: Final = 64 * 2**20
_BEARER: Final = "bearer "

T = TypeVar("T")
Answer = tuple[int, Any]
"""The status, and the document in the body; None: no body."""


class _RefusedError(Exception):
    """The server refuses the request."""

    def __init__(self, status: HTTPStatus, kind: str, message: str) -> None:
        super().__init__(message)
        self.answer: Answer = (status, {"error": {"message": message, "type": kind, "code": int(status)}})


class DeltaApi:
    """Answers requests of all clients, one at a time."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._shown: dict[str, None] = {}
        self._found: dict[tuple[str, str], _Known] = {}
        self._stagings: dict[str, Staged] = {}
        """The staged tables, by location."""
        self._created_at: dict[str, str] = {}
        """The name of the table that was created at each of these locations."""
        self._owner_names: dict[str, str] = {}
        """For a name that a table got by renaming, or lost so: the name by which the owner knows its table now. The
        shared interface cannot rename."""

    def show(self, *names: str) -> None:
        """List only these tables from now on. The shared interface has no list of tables, so an adapter names the
        tables that its engine looks for in a list. Each table in a list costs one `load_table`."""
        self._shown = dict.fromkeys(names)

    def send(
        self, method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """The status and the body of the answer. Raises `UnansweredError` if the owner does not answer."""
        given = {key.lower(): value for key, value in (headers or {}).items()}
        token = given.get("authorization", "")
        client = token[len(_BEARER) :].strip() if token.lower().startswith(_BEARER) else "client"
        try:
            status, document = self._routed(client, method, target, body)
        except _RefusedError as refused:
            status, document = refused.answer
        return int(status), b"" if document is None else msgspec.json.encode(document)

    def _routed(self, client: str, method: str, target: str, body: bytes | None) -> Answer:
        parts = urlsplit(target)
        options = parse_qs(parts.query)
        path = parts.path
        if path.startswith(f"{DELTA}/"):
            return self._delta(client, method, _segments(path.removeprefix(DELTA)), options, body)
        if path.startswith(f"{LEGACY}/"):
            return self._legacy(client, method, _segments(path.removeprefix(LEGACY)), options, body)
        if path.startswith(_SETTINGS):
            raise _RefusedError(HTTPStatus.NOT_FOUND, "NotFoundException", "this server has no settings")
        raise _no_such_call(method, path)

    # The Delta API

    def _delta(
        self, client: str, method: str, path: list[str], options: Mapping[str, list[str]], body: bytes | None
    ) -> Answer:
        match method, path:
            case "GET", ["config"]:
                return HTTPStatus.OK, _config(options)
            case _, ["catalogs", catalog, "schemas", schema, "tables", *rest]:
                _check_schema(catalog, schema)
                return self._tables(client, method, rest, options, body)
            case "POST", ["catalogs", catalog, "schemas", schema, "staging-tables"]:
                _check_schema(catalog, schema)
                return HTTPStatus.OK, self._stage(client, _decoded(body, Staging).name)
            case "GET", ["staging-tables", table_id, "credentials"]:
                found = [staged.location for staged in self._stagings.values() if staged.table_id == table_id]
                if not found:
                    raise _RefusedError(HTTPStatus.NOT_FOUND, "NoSuchTableException", f"no staged table {table_id}")
                return HTTPStatus.OK, _credentials(found[0], "READ_WRITE")
            case "GET", ["temporary-path-credentials"]:
                return HTTPStatus.OK, {"storage-credentials": []}
        raise _no_such_call(method, "/".join(path))

    def _tables(
        self, client: str, method: str, path: list[str], options: Mapping[str, list[str]], body: bytes | None
    ) -> Answer:
        match method, path:
            case "GET", []:
                return HTTPStatus.OK, {"identifiers": [{"name": name} for name in sorted(self._shown)]}
            case "POST", []:
                self._show_owner(client, "/tables", body)
                return HTTPStatus.OK, self._create(client, _decoded(body, Creation))
            case "GET", [name]:
                return HTTPStatus.OK, self._loaded(client, name)
            case "HEAD", [name]:
                self._loaded(client, name)
                return HTTPStatus.NO_CONTENT, None
            case "POST", [name]:
                self._show_owner(client, f"/tables/{name}", body)
                return self._updated(client, name, _decoded(body, TableUpdate))
            case "DELETE", [name]:
                self._drop(client, name)
                return HTTPStatus.NO_CONTENT, None
            case "POST", [name, "metrics"]:
                metrics = _decoded(body, Metrics)
                if metrics.table_id != self._loaded(client, name)["metadata"]["table-uuid"] or not metrics.consistent:
                    raise _invalid("the metrics are of another table, or the lists of their histogram differ in length")
                return HTTPStatus.NO_CONTENT, None
            case "POST", [name, "rename"]:
                self._rename(client, name, _decoded(body, Renaming).new_name)
                return HTTPStatus.NO_CONTENT, None
            case "GET", [name, "credentials"]:
                operation = options.get("operation", [""])[0]
                if operation not in ("READ", "READ_WRITE"):
                    raise _invalid(f"invalid operation {operation!r}; expected READ or READ_WRITE")
                location = Path(self._known(client, name).table.location or "").as_uri()
                return HTTPStatus.OK, _credentials(location, operation)
        raise _no_such_call(method, "/".join(path))

    def _show_owner(self, client: str, path: str, body: bytes | None) -> None:
        """Show the kit's owner a request as it is: it knows the rules about clients (UC_DELTA_API.md#clients), and
        answers nothing."""
        self._ask(client, m.CallApi(method="POST", path=path, body=(body or b"").decode("utf-8", "replace")))

    def _asked(self, client: str, request: m.Request) -> m.Answer:
        answer = self._ask(client, request)
        if isinstance(answer, m.Unknown):
            if answer.reason.startswith(UNAVAILABLE):
                raise _RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "InternalServerErrorException", answer.reason)
            raise UnansweredError(answer.reason)
        return answer

    def _known(self, client: str, name: str) -> "_Known":
        """The table, as this client found it when it last resolved the name."""
        known = self._found.get((client, name))
        if known is not None and Path(known.table.location or "").is_dir():
            return known
        return self._resolved(client, name)

    def _resolved(self, client: str, name: str) -> "_Known":
        """The table that has the name now."""
        table = self._asked(client, m.LoadTable(name=self._owner_names.get(name, name)))
        if not isinstance(table, m.Table) or table.location is None:
            raise _refusal(table)
        known = self._found.get((client, name))
        if known is None or (known.table.table, known.table.location) != (table.table, table.location):
            known = self._found[client, name] = _Known(table)
        return known

    def _exists(self, client: str, name: str) -> bool:
        try:
            self._known(client, name)
        except _RefusedError as refused:
            if refused.answer[0] != HTTPStatus.NOT_FOUND:
                raise
            return False
        return True

    def _loaded(self, client: str, name: str) -> dict[str, Any]:
        """The kit has one request to resolve a table and another to get its commits; the API has one call for both."""
        for _ in range(2):
            known = self._known(client, name)
            answer = self._asked(client, m.GetCommits(table=known.table.table))
            if isinstance(answer, m.Commits):
                document = known.described(answer)
                if known.catalog_managed:
                    return {**document, **self._permissions(client, known)}
                answer = m.NotFound()  # the table was handed back; its name may belong to another table now
            if not isinstance(answer, m.NotFound):
                break
            del self._found[client, name]
        raise _refusal(answer)

    def _permissions(self, client: str, known: "_Known") -> dict[str, list[str]]:
        """The operations that the owner's policy allows, unknown ones too; and as bait, in the field of a draft that no
        client may obey, the jobs that it does not allow."""
        answer = self._asked(client, m.MaintenancePolicy(table=known.table.table))
        jobs = answer.allowed if isinstance(answer, m.Policy) else ()
        allowed = [operation for operation, of in OPERATIONS.items() if {*of} <= {*jobs}]
        named = {*FREE_JOBS, *itertools.chain.from_iterable(OPERATIONS.values())}
        allowed += [job.upper().replace("-", "_") for job in jobs if job not in named]
        others = [job.upper() for job in ("optimize", "vacuum") if job not in jobs]
        return {"allowed-maintenance-operations": allowed, "additional-client-maintenance-operations": others}

    def _updated(self, client: str, name: str, update: TableUpdate) -> Answer:
        """Judges in this order: the table id, then replay and version (the owner judges these), the etag, and the
        version that is reported as published."""
        problem = update.problem
        if problem:
            raise _invalid(problem)
        columns = next((given.columns for given in update.updates if given.columns is not None), {})
        if repeated := repeated_columns(columns):
            raise _invalid(repeated)
        known = self._known(client, name)
        if update.table_id != known.table.table:
            # The name may belong to another table now.
            self._found.pop((client, name), None)
            known = self._known(client, name)
        if update.table_id != known.table.table:
            raise _RefusedError(
                HTTPStatus.CONFLICT, "UpdateRequirementConflictException",
                f"assert-table-uuid failed: {name!r} is {known.table.table}, not {update.table_id}",
            )  # fmt: skip
        commit, published = update.commit, update.published
        report = None if published is None else m.BackfillToVersion(table=known.table.table, version=published)
        if commit is not None:
            self._check_etag(client, known, update.etag, commit.version)
            proposal = m.Commit(
                table=known.table.table,
                version=commit.version,
                attempt=attempt_of(commit.file_name) or "",
                staged_file=commit.file_name,
            )
            answer = self._asked(client, proposal)
            if isinstance(answer, m.Rejected) and answer.retryable and report is not None:
                # The same request makes room in the backlog: record its report of published versions first.
                self._reported(client, report)
                report, answer = None, self._asked(client, proposal)
            if not isinstance(answer, m.Ratified):
                raise _refusal(answer)
        if report is not None:
            self._reported(client, report)
        return HTTPStatus.OK, self._loaded(client, name)

    def _check_etag(self, client: str, known: "_Known", etag: str | None, version: int) -> None:
        """Check the etag only if the version is free: the owner judges a replay and a lost race, before the etag."""
        if etag is None or etag == known.etag:
            return
        answer = self._asked(client, m.GetCommits(table=known.table.table))
        if not isinstance(answer, m.Commits):
            raise _refusal(answer)
        known.described(answer)
        if etag != known.etag and version > (-1 if answer.latest is None else answer.latest):
            raise _RefusedError(
                HTTPStatus.CONFLICT, "UpdateRequirementConflictException",
                f"assert-etag failed: the table has {known.etag}, not {etag}",
            )  # fmt: skip

    def _reported(self, client: str, report: m.BackfillToVersion) -> None:
        answer = self._asked(client, report)
        if not isinstance(answer, m.Done):
            raise _refusal(answer)

    def _rename(self, client: str, name: str, new_name: str) -> None:
        """Within the schema. The old name is free, for a table that has another name in the owner."""
        if not new_name:
            raise _invalid("invalid new-name ''; expected the table's new name")
        self._known(client, name)
        if new_name == name:
            return
        holder = self._asked(client, m.LoadTable(name=self._owner_names.get(new_name, new_name)))
        if not isinstance(holder, m.NotFound):
            raise _exists(new_name) if isinstance(holder, m.Table) else _refusal(holder)
        self._owner_names[new_name] = self._owner_names.get(name, name)
        self._owner_names[name] = f"{name}-{uuid.uuid5(uuid.NAMESPACE_URL, f'{name}/{len(self._owner_names)}')}"
        self._found = {key: known for key, known in self._found.items() if key[1] not in (name, new_name)}
        if name in self._shown:
            self._shown.pop(name)
            self._shown[new_name] = None

    def _drop(self, client: str, name: str) -> None:
        table = self._known(client, name).table
        self._found.pop((client, name), None)
        answer = self._asked(client, m.DropTable(table=table.table))
        if not isinstance(answer, m.Done):
            raise _refusal(answer)

    def _stage(self, client: str, name: str) -> dict[str, Any]:
        """A new id and an empty location, at each call. The name stays free."""
        identity = self._asked(client, m.Hello())
        if not isinstance(identity, m.Identity) or identity.storage is None:
            raise _refusal(identity)
        if self._exists(client, name):
            raise _exists(name)
        table_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{client}/{name}/{len(self._stagings)}"))
        location = Path(identity.storage) / STAGED_TABLES / table_id
        location.mkdir(parents=True)
        required = {
            "reader-features": ["catalogManaged", "vacuumProtocolCheck"],
            "writer-features": ["catalogManaged", "inCommitTimestamp", "vacuumProtocolCheck"],
        }
        properties = {"delta.enableInCommitTimestamps": "true", TABLE_ID: table_id}
        self._stagings[location.as_uri()] = Staged(
            table_id=table_id, location=location.as_uri(), required_properties=dict(properties),
            required_protocol=msgspec.convert(required, RequiredProtocol),
        )  # fmt: skip
        return {
            "table-id": table_id,
            "table-type": "MANAGED",
            "location": location.as_uri(),
            **_credentials(location.as_uri(), "READ_WRITE"),
            "required-protocol": {"min-reader-version": 3, "min-writer-version": 7, **required},
            "suggested-protocol": {"reader-features": [], "writer-features": []},
            "required-properties": properties,
            "suggested-properties": {},
        }

    def _create(self, client: str, creation: Creation) -> dict[str, Any]:
        staged = self._stagings.get(creation.location)
        if staged is None:
            raise _RefusedError(
                HTTPStatus.NOT_FOUND, "NoSuchTableException", f"no table was staged at {creation.location}"
            )
        if self._created_at.get(creation.location, creation.name) != creation.name:
            raise _invalid(f"the table staged at {creation.location} was already created")
        problem = creation.problem(staged)
        if problem:
            raise _invalid(problem)
        location = Path(unquote(urlsplit(creation.location).path))
        try:
            version_0 = (location / LOG / commit_file(0)).read_text(encoding="utf-8", errors="surrogateescape")
        except FileNotFoundError:
            raise _invalid(
                f"there is no version 0 at {creation.location}; write it before the table is created"
            ) from None
        answer = self._asked(
            client,
            m.CreateTable(
                name=self._owner_names.get(creation.name, creation.name),
                feature="catalogManaged",
                commit_mode="staged",
                attempt=proposals.attempt_of(version_0) or location.name,
                actions=tuple(proposals.lines(version_0)),
                path=str(location),
            ),
        )
        if isinstance(answer, m.Conflict):
            raise _exists(creation.name)
        if not isinstance(answer, m.Ratified):
            raise _refusal(answer)
        self._created_at[creation.location] = creation.name
        return self._loaded(client, creation.name)

    # The older calls, with which engines find tables, and some commit to them

    def _legacy(
        self, client: str, method: str, path: list[str], options: Mapping[str, list[str]], body: bytes | None
    ) -> Answer:
        match method, path:
            case "GET", ["catalogs"]:
                return HTTPStatus.OK, {"catalogs": [_named(CATALOG)], "next_page_token": None}
            case "GET", ["catalogs", name]:
                _check_catalog(name)
                return HTTPStatus.OK, _named(CATALOG)
            case "GET", ["schemas"]:
                _check_catalog(options.get("catalog_name", [""])[0])
                return HTTPStatus.OK, {"schemas": [_SCHEMA], "next_page_token": None}
            case "GET", ["schemas", full_name]:
                _check_schema(*full_name.partition(".")[::2])
                return HTTPStatus.OK, _SCHEMA
            case "GET", ["tables"]:
                _check_schema(options.get("catalog_name", [""])[0], options.get("schema_name", [""])[0])
                return HTTPStatus.OK, self._listed(client, options)
            case "GET", ["tables", full_name]:
                return HTTPStatus.OK, self._as_listed(client, _table_of(full_name))
            case "DELETE", ["tables", full_name]:
                self._drop(client, _table_of(full_name))
                return HTTPStatus.OK, None
            case "POST", ["temporary-table-credentials"]:
                return HTTPStatus.OK, {"expiration_time": 2**42}
            case "POST", ["delta", "preview", "commits"]:
                wanted = _decoded(body, OlderUpdate)
                return self._updated(client, self._name_of(client, wanted.table_id), wanted.update)[0], {}
            case "GET", ["delta", "preview", "commits"]:
                return HTTPStatus.OK, self._older_commits(client, _decoded(body, OlderCommits))
        raise _no_such_call(method, "/".join(path))

    def _name_of(self, client: str, table_id: str) -> str:
        """The name by which the client found the table: it cannot know the id without finding the table."""
        for (finder, name), known in self._found.items():
            if finder == client and known.table.table == table_id:
                return name
        raise _no_table(table_id)

    def _older_commits(self, client: str, request: OlderCommits) -> dict[str, Any]:
        loaded = self._loaded(client, self._name_of(client, request.table_id))
        if loaded["metadata"]["table-uuid"] != request.table_id:
            raise _no_table(request.table_id)  # its name belongs to another table now
        commits = [
            {key.replace("-", "_"): value for key, value in msgspec.to_builtins(commit).items()}
            for commit in loaded["commits"]
            if request.start_version <= commit.version
            and (request.end_version is None or commit.version <= request.end_version)
        ]
        return {"commits": commits, "latest_table_version": loaded["latest-table-version"]}

    def _listed(self, client: str, options: Mapping[str, list[str]]) -> dict[str, Any]:
        """One page of tables, sorted by name; its token is the last name in it. Without `max_results`: all tables."""
        after = options.get("page_token", [""])[0]
        waiting = [name for name in sorted(self._shown) if name > after]
        size = int(options.get("max_results", ["0"])[0] or 0) or len(waiting)
        tables = []
        for name in waiting[:size]:
            try:
                tables.append(self._as_listed(client, name))
            except _RefusedError as refused:
                if refused.answer[0] != HTTPStatus.NOT_FOUND:
                    raise
                self._shown.pop(name)  # the table was dropped
        return {"tables": tables, "next_page_token": waiting[size - 1] if len(waiting) > size else None}

    def _as_listed(self, client: str, name: str) -> dict[str, Any]:
        return self._resolved(client, name).as_listed(name)


# A table, as the API describes it


class _Known:
    """A table that a client has found, with its newest protocol and metadata."""

    def __init__(self, table: m.Table) -> None:
        self.table = table
        self._log = Path(table.location or "") / LOG
        self._seen = 0
        self._changed = (0, 0)
        """The version and the time of the newest commit that changed the metadata."""
        self._domains: dict[str, Any] = {}
        self._protocol = _body(table.protocol, "protocol")
        self._metadata = _body(table.metadata, "metaData")

    def described(self, commits: m.Commits) -> dict[str, Any]:
        """The answer to loading, creating and updating the table. It is consistent: protocol and metadata belong to the
        latest version in it, also if they changed since the table was resolved."""
        files = {entry.version: self._staged(entry) for entry in commits.commits if entry.file_name is not None}
        latest = -1 if commits.latest is None else commits.latest
        for version in range(self._seen, latest + 1):
            self._follow(version, files.get(version) or self._log / commit_file(version))
            self._seen = version
        location = Path(self.table.location or "").as_uri()
        return {
            "metadata": {
                "etag": self.etag,
                "data-source-format": "DELTA",
                "table-type": "MANAGED",
                "table-uuid": self.table.table,
                "location": location,
                "created-time": proposals.BASE_TIME,
                "updated-time": proposals.BASE_TIME,
                "columns": self._columns,
                "partition-columns": list(self._metadata.get("partitionColumns") or ()),
                "properties": self._properties,
                "last-commit-version": self._changed[0],
                "last-commit-timestamp-ms": self._changed[1],
            },
            "commits": [self._listed(version, files[version]) for version in sorted(files, reverse=True)],
            "latest-table-version": commits.latest,
        }

    @property
    def catalog_managed(self) -> bool:
        """Whether the newest known protocol makes the table catalog-managed."""
        return not self._protocol or self.table.feature in (self._protocol.get("readerFeatures") or ())

    def as_listed(self, name: str) -> dict[str, Any]:
        """The table, as the older calls describe it."""
        return {
            "name": name,
            "catalog_name": CATALOG,
            "schema_name": SCHEMA,
            "table_type": "MANAGED",
            "data_source_format": "DELTA",
            "columns": [_column(number, field) for number, field in enumerate(self._columns["fields"])],
            "storage_location": Path(self.table.location or "").as_uri(),
            "properties": self._properties,
            "created_at": proposals.BASE_TIME,
            "updated_at": proposals.BASE_TIME,
            "table_id": self.table.table,
            **dict.fromkeys(
                ("comment", "owner", "created_by", "updated_by", "view_definition", "view_dependencies"), None
            ),
        }

    def _follow(self, version: int, file: Path) -> None:
        """Apply what a commit changes. A missing file was cleaned up; then a checkpoint has its content."""
        try:
            content = file.read_text(encoding="utf-8", errors="surrogateescape")
        except FileNotFoundError:
            return
        before = self.etag
        self._protocol = proposals.body_of(content, "protocol") or self._protocol
        self._metadata = proposals.body_of(content, "metaData") or self._metadata
        for line in proposals.lines(content):
            body = proposals.body_of(line, "domainMetadata")
            if body is not None:
                self._domains[str(body.get("domain"))] = None if body.get("removed") else body.get("configuration")
        time = proposals.time_of(content) or 0
        if self.etag != before or version == 0:
            self._changed = (version, time)

    def _staged(self, entry: m.CommitEntry) -> Path:
        return self._log / STAGING[self.table.feature] / (entry.file_name or "")

    def _listed(self, version: int, file: Path) -> ApiCommit:
        """The commit. What the owner does not say about a staged file is read from the file."""
        content = file.read_bytes() if file.is_file() else b""
        modified = file.stat().st_mtime_ns // 1_000_000 if content else 0
        return ApiCommit(
            version=version,
            timestamp=proposals.time_of(content.decode("utf-8", "surrogateescape")) or modified,
            file_name=file.name,
            file_size=len(content) or 1,
            file_modification_timestamp=modified,
        )

    @property
    def etag(self) -> str:
        """The etag of the newest protocol, metadata and domains."""
        described = [self._protocol, self._metadata, self._domains]
        return sha256(msgspec.json.encode(described, order="deterministic")).hexdigest()[:16]

    @property
    def _columns(self) -> dict[str, Any]:
        try:
            schema = json.loads(self._metadata.get("schemaString") or "null")
        except ValueError:
            schema = None
        fields = schema.get("fields") if isinstance(schema, dict) else None
        return {"type": "struct", "fields": respelled(fields if isinstance(fields, list) else [])}

    @property
    def _properties(self) -> dict[str, str]:
        features = {*(self._protocol.get("readerFeatures") or ()), *(self._protocol.get("writerFeatures") or ())}
        return {
            **(self._metadata.get("configuration") or {}),
            "delta.minReaderVersion": str(self._protocol.get("minReaderVersion", 1)),
            "delta.minWriterVersion": str(self._protocol.get("minWriterVersion", 2)),
            **{f"delta.feature.{name}": "supported" for name in sorted({*features, self.table.feature})},
            TABLE_ID: self.table.table,
            "delta.lastUpdateVersion": str(self._changed[0]),
            "delta.lastCommitTimestamp": str(self._changed[1]),
            **self._of_domains,
        }

    @property
    def _of_domains(self) -> dict[str, str]:
        """The properties that hold a member of a metadata domain."""
        found = {}
        for domain, (key, member) in _DOMAINS.items():
            configuration = json.loads(self._domains.get(domain) or "{}")
            if member in configuration:
                found[key] = json.dumps(configuration[member], separators=(",", ":"))
        return found


_DOMAINS: Final = {
    "delta.clustering": ("delta.clusteringColumns", "clusteringColumns"),
    "delta.rowTracking": ("delta.rowTracking.rowIdHighWaterMark", "rowIdHighWaterMark"),
}
"""For each metadata domain: the property that has one of its members, and the member's name."""


def _body(line: str | None, kind: str) -> dict[str, Any]:
    return {} if line is None else proposals.body_of(line, kind) or {}


_TYPES: Final = {
    "byte": ("BYTE", "tinyint"), "short": ("SHORT", "smallint"), "integer": ("INT", "int"), "long": ("LONG", "bigint"),
}  # fmt: skip
"""Types whose names in SQL differ from those in the log."""


def _column(position: int, field: Mapping[str, Any]) -> dict[str, Any]:
    kind = field.get("type")
    name, text = _TYPES.get(str(kind), (str(kind).upper(), str(kind)))
    return {
        "name": field.get("name"),
        "type_text": text,
        "type_json": json.dumps(field, separators=(",", ":")),
        "type_name": name,
        "position": position,
        "nullable": field.get("nullable", True),
        **dict.fromkeys(("type_precision", "type_scale", "type_interval_type", "comment", "partition_index"), None),
    }


# Names and refusals


def _segments(path: str) -> list[str]:
    return [unquote(part) for part in path.strip("/").split("/")]


def _table_of(full_name: str) -> str:
    catalog, _, rest = full_name.partition(".")
    schema, _, name = rest.partition(".")
    _check_schema(catalog, schema)
    return name


def _check_catalog(name: str) -> None:
    if name != CATALOG:
        raise _RefusedError(
            HTTPStatus.NOT_FOUND, "NoSuchCatalogException", f"unknown catalog {name!r}; expected {CATALOG!r}"
        )


def _check_schema(catalog: str, schema: str) -> None:
    _check_catalog(catalog)
    if schema != SCHEMA:
        raise _RefusedError(
            HTTPStatus.NOT_FOUND, "NoSuchSchemaException", f"unknown schema {schema!r}; expected {SCHEMA!r}"
        )


def _decoded(body: bytes | None, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body or b"", type=kind)
    except msgspec.DecodeError as error:
        raise _invalid(str(error)) from error


def _no_table(table_id: str) -> _RefusedError:
    return _RefusedError(HTTPStatus.NOT_FOUND, "NoSuchTableException", f"no table {table_id}")


def _exists(name: str) -> _RefusedError:
    return _RefusedError(HTTPStatus.CONFLICT, "AlreadyExistsException", f"the table {name!r} already exists")


def _credentials(location: str, operation: str) -> dict[str, Any]:
    """Local files need none."""
    credential = {"prefix": location, "operation": operation, "config": {}, "expiration-time-ms": 2**42}
    return {"storage-credentials": [credential]}


def _config(options: Mapping[str, list[str]]) -> dict[str, Any]:
    """The highest version that the client and this server support: 1.0."""
    catalog, versions = (options.get(name, [""])[0] for name in ("catalog", "protocol-versions"))
    if not catalog or not versions:
        raise _invalid("the query parameters catalog and protocol-versions are required")
    _check_catalog(catalog)
    if "1" not in {version.strip().partition(".")[0] for version in versions.split(",")}:
        raise _invalid(f"this server supports the protocol version 1.0, and none of {versions}")
    return _CONFIG


def _no_such_call(method: str, path: str) -> _RefusedError:
    return _RefusedError(HTTPStatus.NOT_FOUND, "NotFoundException", f"there is no call {method} {path}")


def _invalid(message: str) -> _RefusedError:
    return _RefusedError(HTTPStatus.BAD_REQUEST, "InvalidParameterValueException", message)


def _refusal(answer: m.Answer) -> _RefusedError:
    match answer:
        case m.Conflict():
            return _RefusedError(HTTPStatus.CONFLICT, "CommitVersionConflictException", "the version is taken")
        case m.NotFound():
            return _RefusedError(HTTPStatus.NOT_FOUND, "NoSuchTableException", "no such table")
        case m.Rejected(retryable=True, reason=reason):
            return _RefusedError(HTTPStatus.TOO_MANY_REQUESTS, "ResourceExhaustedException", reason)
        case m.Gap():
            return _invalid("the version before is not ratified")
    return _invalid(str(answer))


_TABLES: Final = "/v1/catalogs/{catalog}/schemas/{schema}/tables"
_CONFIG: Final = {
    "endpoints": [
        f"GET {_TABLES}",
        f"POST {_TABLES}",
        "POST /v1/catalogs/{catalog}/schemas/{schema}/staging-tables",
        f"GET {_TABLES}/{{table}}",
        f"POST {_TABLES}/{{table}}",
        f"DELETE {_TABLES}/{{table}}",
        f"HEAD {_TABLES}/{{table}}",
        f"GET {_TABLES}/{{table}}/credentials",
        f"POST {_TABLES}/{{table}}/rename",
        f"POST {_TABLES}/{{table}}/metrics",
        "GET /v1/staging-tables/{table_id}/credentials",
    ],
    "protocol-version": "1.0",
}


def _named(name: str) -> dict[str, Any]:
    nothing = dict.fromkeys(("comment", "owner", "created_at", "created_by", "updated_at", "updated_by"), None)
    return {"name": name, "id": name, "properties": {}, **nothing}


_SCHEMA: Final = {
    **_named(SCHEMA), "catalog_name": CATALOG, "full_name": f"{CATALOG}.{SCHEMA}", "schema_id": f"{CATALOG}.{SCHEMA}",
}  # fmt: skip


# Over the network


class DeltaApiServer(Closing):
    """Serves the API at a URL of the loopback interface, for processes of an engine. It has its own threads, and asks
    the owner one request at a time."""

    def __init__(self, ask: Ask) -> None:
        self.api = DeltaApi(ask)
        self._listener = Listener(_handler_for(self.api, threading.Lock()))
        self.url = self._listener.url
        """Without a slash at the end."""

    def close(self) -> None:
        """Idempotent."""
        self._listener.close()


def _handler_for(api: DeltaApi, turn: threading.Lock) -> type[Handler]:
    class Calls(Handler):
        def _answer(self) -> None:
            try:
                body = self.body(_LONGEST)
                with turn:
                    status, content = api.send(self.command, self.path, body, dict(self.headers.items()))
            except (BodyError, UnansweredError):
                self.close_connection = True  # close it without an answer
                return
            except AdapterError as error:
                status, content = 500, error.problem.encode()
            self.reply(status, content, "application/json")

        do_GET = do_POST = do_DELETE = do_HEAD = do_PUT = do_PATCH = _answer  # noqa: N815

    return Calls
