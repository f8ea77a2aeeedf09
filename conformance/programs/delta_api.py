"""Tests of Unity Catalog's Delta API by single HTTP requests, most of them invalid: UC_DELTA_API.md.

`ROWS` is a table: a request about a table, and the answers that the specification permits, whatever happened to the
table before. A rejected request must leave the table as it was. Every answer with an error has the API's form
(UC_DELTA_API.md#errors).
"""

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar
from urllib.parse import quote

import msgspec

from conformance.adapters.uc.api import ApiCommit, Staged
from conformance.adapters.uc.api import Loaded as Before
from conformance.adapters.uc.owner import creation_of, folder_of, table_name, updates_of, with_requirements
from conformance.interface import messages as m
from conformance.interface.log_names import LOG, commit_file, staged_file
from conformance.models import proposals
from conformance.scenario.scenario import Exchange, Inconclusive, Scenario

T = TypeVar("T")
SCHEMA: Final = "/v1/catalogs/{catalog}/schemas/{schema}"
TABLES: Final = f"{SCHEMA}/tables"
NO_ID: Final = "00000000-0000-4000-8000-000000000000"
"""An id that no table has."""

# The documents of the API: the fields that the specification requires for managed tables. A null stands for a missing
# field.


class _Document(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    pass


class Config(_Document, frozen=True, kw_only=True):
    endpoints: tuple[str, ...]
    protocol_version: str


class Credential(_Document, frozen=True, kw_only=True):
    prefix: str
    operation: Literal["READ", "READ_WRITE"]
    expiration_time_ms: int
    config: dict[str, str | None]


class Credentials(_Document, frozen=True, kw_only=True):
    storage_credentials: tuple[Credential, ...]


class Demand(_Document, frozen=True, kw_only=True):
    min_reader_version: int
    min_writer_version: int


class StagedTable(_Document, frozen=True, kw_only=True):
    """The fields that the checks read."""

    table_id: uuid.UUID
    location: str


class CompleteStagedTable(StagedTable, frozen=True, kw_only=True):
    storage_credentials: tuple[Credential, ...]
    table_type: Literal["MANAGED"]
    required_protocol: Demand
    required_properties: dict[str, str | None]


class TableMetadata(_Document, frozen=True, kw_only=True):
    """The fields that the checks read."""

    table_uuid: uuid.UUID
    location: str
    columns: dict[str, Any]
    properties: dict[str, str]
    etag: str | None = None
    last_commit_version: int | None = None
    partition_columns: tuple[str, ...] | None = ()


class Loaded(_Document, frozen=True, kw_only=True):
    """The fields that the checks read."""

    metadata: TableMetadata
    commits: tuple[ApiCommit, ...]
    latest_table_version: int


class CompleteMetadata(TableMetadata, frozen=True, kw_only=True):
    etag: str
    table_type: Literal["MANAGED"]
    created_time: int
    updated_time: int
    last_commit_version: int
    last_commit_timestamp_ms: int


class CompleteLoaded(Loaded, frozen=True, kw_only=True):
    metadata: CompleteMetadata


class _Error(msgspec.Struct, frozen=True, kw_only=True):
    message: str
    type: Literal[
        "BadRequestException", "InvalidParameterValueException", "UnsupportedTableFormatException",
        "NotAuthorizedException", "PermissionDeniedException", "NotFoundException", "NoSuchCatalogException",
        "NoSuchSchemaException", "NoSuchTableException", "AlreadyExistsException", "CommitVersionConflictException",
        "UpdateRequirementConflictException", "ResourceExhaustedException", "TooManyRequestsException",
        "CommitStateUnknownException", "InternalServerErrorException", "NotImplementedException",
    ]  # fmt: skip
    code: int
    stack: tuple[str, ...] | None = None


class ErrorDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    error: _Error


Permitted = tuple[tuple[int, tuple[str, ...]], ...]
"""Answers: statuses, each with the types of its error; no types: all."""
INVALID: Final[Permitted] = ((400, ("BadRequestException", "InvalidParameterValueException")),)
NO_TABLE: Final[Permitted] = ((404, ("NoSuchTableException",)),)
NO_SCHEMA: Final[Permitted] = ((404, ("NoSuchSchemaException", "NoSuchCatalogException")),)
NO_CATALOG: Final[Permitted] = ((404, ("NoSuchCatalogException",)),)
EXISTS: Final[Permitted] = ((409, ("AlreadyExistsException",)),)
REQUIREMENT: Final[Permitted] = ((409, ("UpdateRequirementConflictException",)),)


def permits(permitted: Permitted, status: int, kind: str) -> bool:
    return any(status == code and (not kinds or kind in kinds) for code, kinds in permitted)


def kind_of(answer: m.Answer) -> str:
    """The type of the error in the answer; empty: it has no error."""
    if not isinstance(answer, m.ApiAnswer) or answer.status < 400:
        return ""
    try:
        return msgspec.json.decode(answer.body, type=ErrorDocument).error.type
    except msgspec.DecodeError:
        return ""


@dataclass(slots=True, kw_only=True)
class ApiTable:
    """A table of the program or the check."""

    name: str
    staged: StagedTable
    latest: int = 0

    @property
    def path(self) -> str:
        return f"{TABLES}/{quote(self.name)}"

    @property
    def id(self) -> str:
        return str(self.staged.table_id)

    @property
    def log(self) -> Path:
        return folder_of(self.staged.location) / LOG


class Api:
    """Sends requests, and writes the files that they name, as the clients of a scenario."""

    def __init__(self, s: Scenario) -> None:
        self.s = s

    def call(self, method: str, path: str, body: Any = None, client: str = "client") -> Exchange:
        """One request. Its answer has the API's form if it is an error."""
        text = body if body is None or isinstance(body, str) else json.dumps(body)
        exchange = self.s.ask(client, m.CallApi(method=method, path=path, body=text))
        answer = self.s.expect(exchange, m.ApiAnswer, "PROFILE-API-01", expected="the server's answer")
        if answer.status >= 400 and method != "HEAD":
            document = self._decoded(exchange, ErrorDocument, "UC-ERROR-01")
            self.s.require(document.error.code == answer.status, "UC-ERROR-01", evidence=(exchange,),
                           expected="the code of an error is the status of its answer",
                           observed=f"{answer.status} has the code {document.error.code}")  # fmt: skip
        return exchange

    def wants(self, exchange: Exchange, requirement: str, permitted: Permitted, expected: str) -> m.ApiAnswer:
        """Require one of the answers. Raises `Inconclusive` if the server denies access, throttles, fails, or does not
        implement the call."""
        answer: Any = exchange.answer
        kind = kind_of(answer)
        if permits(permitted, answer.status, kind):
            accepted: m.ApiAnswer = answer
            return accepted
        if answer.status in (401, 403, 501, 503) or kind in (
            "TooManyRequestsException",
            "ResourceExhaustedException",
            "InternalServerErrorException",
        ):
            raise Inconclusive(f"operation {exchange.number} was answered {answer.status} {answer.body[:200]}")
        return self.s.fail(requirement, evidence=(exchange,), expected=expected,
                           observed=f"{answer.status} {kind or answer.body[:200]}")  # fmt: skip

    def got(self, exchange: Exchange, kind: type[T], requirement: str, expected: str = "the request succeeds") -> T:
        """The document of a successful answer."""
        self.wants(exchange, requirement, ((200, ()),), expected)
        return self._decoded(exchange, kind, requirement)

    def _decoded(self, exchange: Exchange, kind: type[T], requirement: str) -> T:
        answer: Any = exchange.answer
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except msgspec.DecodeError as error:
            return self.s.fail(requirement, evidence=(exchange,), expected="the fields that the specification requires",
                               observed=f"{answer.status} {answer.body[:300]}: {error}")  # fmt: skip

    def demand(self, condition: bool, requirement: str, exchange: Exchange, expected: str, observed: object) -> None:
        self.s.require(condition, requirement, evidence=(exchange,), expected=expected, observed=str(observed)[:300])

    # Tables

    def stage(self, name: str = "orders", client: str = "client") -> tuple[Exchange, StagedTable, str]:
        """A staged table, with its name."""
        name = table_name(self.s.physical(name))
        exchange = self.call("POST", f"{SCHEMA}/staging-tables", {"name": name}, client)
        return exchange, self.got(exchange, StagedTable, "UC-STAGE-01"), name

    def creation(self, exchange: Exchange, staged: StagedTable, name: str) -> dict[str, Any]:
        """The request that creates the staged table, whose version 0 is written now."""
        answer: Any = exchange.answer
        wanted = msgspec.json.decode(answer.body, type=Staged)
        actions = [with_requirements(action, wanted) for action in self.s.creation().actions]
        self.write(folder_of(staged.location) / LOG / commit_file(0), actions)
        return creation_of(name, wanted, proposals.content(actions).encode())

    def create(self, name: str = "orders") -> ApiTable:
        exchange, staged, name = self.stage(name)
        created = self.call("POST", TABLES, self.creation(exchange, staged, name))
        self.got(created, Loaded, "UC-CREATE-01", "a staged table with the required version 0 is created")
        return ApiTable(name=name, staged=staged)

    @staticmethod
    def write(path: Path, actions: list[str]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(proposals.content(actions), encoding="utf-8")

    def load(self, table: ApiTable) -> Loaded:
        return self.seen(table)[1]

    def seen(self, table: ApiTable) -> tuple[Exchange, Loaded]:
        exchange = self.call("GET", table.path)
        return exchange, self.got(exchange, Loaded, "UC-LOAD-01")

    # Commits

    def commit(self, table: ApiTable, *actions: str, version: int | None = None, **fields: Any) -> dict[str, Any]:
        """A staged commit, as the update that proposes it: by default, the next version, with a new file."""
        version = table.latest + 1 if version is None else version
        attempt, time = self.s.attempt(), self.s.timestamp(max(version, 1))
        lines = list(proposals.append(attempt, time)) if not actions else [proposals.commit_info(attempt, time)]
        name = staged_file(version, attempt)
        path = table.log / "_staged_commits" / name
        self.write(path, [*lines, *actions])
        status = path.stat()
        commit = {"version": version, "timestamp": time, "file-name": name, "file-size": status.st_size,
                  "file-modification-timestamp": status.st_mtime_ns // 1_000_000}  # fmt: skip
        return {"action": "add-commit", "commit": {**commit, **fields}}

    @staticmethod
    def body(table: ApiTable, *updates: Mapping[str, Any], **requirements: str | None) -> dict[str, Any]:
        """An update of the table: its id and the given etag are required."""
        required = [{"type": "assert-table-uuid", "uuid": requirements.get("uuid", table.id)}]
        required += [{"type": "assert-etag", "etag": requirements["etag"]}] if "etag" in requirements else []
        return {"requirements": required, "updates": list(updates)}

    def update(
        self, table: ApiTable, *updates: Mapping[str, Any], client: str = "client", **more: str | None
    ) -> Exchange:
        return self.call("POST", table.path, self.body(table, *updates, **more), client)

    def land(self, table: ApiTable, *others: Mapping[str, Any], commit: Mapping[str, Any] | None = None) -> Exchange:
        """Commit the next version."""
        exchange = self.update(table, commit or self.commit(table), *others)
        self.got(exchange, Loaded, "UC-COMMIT-01", f"version {table.latest + 1}, the next one, is ratified")
        table.latest += 1
        return exchange

    def publish(self, table: ApiTable, *commits: ApiCommit) -> None:
        """Copy the staged files of the commits, oldest first."""
        for commit in sorted(commits, key=lambda commit: commit.version):
            content = (table.log / "_staged_commits" / commit.file_name).read_bytes()
            (table.log / commit_file(commit.version)).write_bytes(content)

    def change(self, table: ApiTable, **changes: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """A staged commit that changes the metadata, and the updates that describe the change."""
        before = msgspec.json.decode(self.call("GET", table.path).answer.body, type=Before)  # type: ignore[union-attr]
        text = (table.log / commit_file(0)).read_text(encoding="utf-8")
        metadata = {**(proposals.body_of(text, "metaData") or {}), **changes}
        action = {"metaData": metadata}
        return self.commit(table, json.dumps(action)), updates_of([action], before)


def report(version: int) -> dict[str, Any]:
    return {"action": "set-latest-backfilled-version", "latest-published-version": version}


def properties(action: str, *keys: str) -> dict[str, Any]:
    values: Any = list(keys) if action == "remove-properties" else dict.fromkeys(keys, "1")
    return {"action": action, "removals" if action == "remove-properties" else "updates": values}


COMMENT: Final = {"action": "set-table-comment", "comment": "of the catalog"}
CLUSTERING: Final = {"action": "set-domain-metadata", "updates": {"delta.clustering": {"clusteringColumns": [["id"]]}}}
UNCLUSTERED: Final = {"action": "remove-domain-metadata", "domains": ["delta.clustering"]}
HISTOGRAM: Final = {"sorted-bin-boundaries": [0, 8], "file-counts": [1, 2], "total-bytes": [3]}

# One request about a table

Request = Callable[[Api, ApiTable], tuple[str, str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A request, and the answers that it may get. The table is as before unless `changes`."""

    requirement: str
    name: str
    title: str
    request: Request
    permitted: Permitted
    changes: bool = False


def _get(path: str) -> Request:
    return lambda _, table: ("GET", path.replace("{table}", table.path), None)


def _update(make: Callable[[Api, ApiTable], dict[str, Any]]) -> Request:
    return lambda api, table: ("POST", table.path, make(api, table))


def _updates(*makers: Callable[[Api, ApiTable], Mapping[str, Any]] | Mapping[str, Any]) -> Request:
    return _update(
        lambda api, table: api.body(table, *(make(api, table) if callable(make) else make for make in makers))
    )


def _next(ahead: int = 0, **fields: Any) -> Callable[[Api, ApiTable], dict[str, Any]]:
    """A commit of the next version, or of one that is `ahead` of it."""
    return lambda api, table: api.commit(table, **{"version": table.latest + 1 + ahead, **fields})


def _metrics(**fields: Any) -> Request:
    return lambda _, table: ("POST", f"{table.path}/metrics", {"table-id": table.id, **fields})


def _twice_required(api: Api, table: ApiTable) -> dict[str, Any]:
    body = api.body(table, api.commit(table))
    return {**body, "requirements": body["requirements"] * 2}


def _snake(api: Api, table: ApiTable) -> dict[str, Any]:
    renamed: dict[str, Any] = json.loads(json.dumps(api.body(table, api.commit(table))).replace("file-", "file_"))
    return renamed


ROWS: Final = (
    Row(requirement="UC-CONFIG-02", name="no-common-version", permitted=((400, ("InvalidParameterValueException",)),),
        title="A client and a server without a common protocol version: 400.",
        request=_get("/v1/config?catalog={catalog}&protocol-versions=99.0")),
    Row(requirement="UC-CONFIG-03", name="config-without-versions", permitted=INVALID,
        title="A request for the configuration without the client's versions: 400.",
        request=_get("/v1/config?catalog={catalog}")),
    Row(requirement="UC-CONFIG-03", name="config-without-a-catalog", permitted=INVALID,
        title="A request for the configuration without a catalog: 400.",
        request=_get("/v1/config?protocol-versions=1.0")),
    Row(requirement="UC-CONFIG-04", name="config-of-an-unknown-catalog", permitted=NO_CATALOG,
        title="A request for the configuration of an unknown catalog: 404.",
        request=_get("/v1/config?catalog=no_such_catalog&protocol-versions=1.0")),
    Row(requirement="UC-STAGE-02", name="stage-an-existing-name", permitted=EXISTS,
        title="Staging a table under an existing name: 409.",
        request=lambda _, table: ("POST", f"{SCHEMA}/staging-tables", {"name": table.name})),
    Row(requirement="UC-STAGE-05", name="stage-without-a-name", permitted=INVALID,
        title="A staged table without a name: 400.",
        request=lambda *_: ("POST", f"{SCHEMA}/staging-tables", {})),
    Row(requirement="UC-STAGE-06", name="credentials-of-no-staged-table", permitted=NO_TABLE,
        title="Credentials for a staged table that does not exist: 404.",
        request=_get(f"/v1/staging-tables/{NO_ID}/credentials")),
    Row(requirement="UC-NAMES-01", name="a-table-of-an-unknown-schema", permitted=NO_SCHEMA,
        title="A table in a schema that does not exist: 404.",
        request=_get("/v1/catalogs/{catalog}/schemas/no_such_schema/tables/t")),
    Row(requirement="UC-CRED-02", name="credentials-without-operation", permitted=INVALID,
        title="Credentials without an operation: 400.", request=_get("{table}/credentials")),
    Row(requirement="UC-CRED-02", name="credentials-for-an-unknown-operation", permitted=INVALID,
        title="Credentials for an operation that does not exist: 400.",
        request=_get("{table}/credentials?operation=DELETE")),
    Row(requirement="UC-UPDATE-01", name="no-updates", permitted=INVALID,
        title="An update without actions: 400.", request=_updates()),
    Row(requirement="UC-UPDATE-02", name="two-commits-in-one-request", permitted=INVALID,
        title="Two `add-commit` actions in one request: 400.", request=_updates(_next(), _next(ahead=1))),
    Row(requirement="UC-UPDATE-02", name="two-reports-in-one-request", permitted=INVALID,
        title="Two reports of the published version in one request: 400.", request=_updates(report(0), report(0))),
    Row(requirement="UC-UPDATE-03", name="one-requirement-twice", permitted=INVALID,
        title="Two requirements of one type: 400.", request=_update(_twice_required)),
    Row(requirement="UC-UPDATE-04", name="no-table-id-required", permitted=INVALID,
        title="An update without `assert-table-uuid`: 400.",
        request=_update(lambda api, table: {**api.body(table, api.commit(table)), "requirements": []})),
    Row(requirement="UC-UPDATE-05", name="one-property-set-and-removed", permitted=INVALID,
        title="One property set and removed in one request: 400.",
        request=_updates(_next(), properties("set-properties", "color"), properties("remove-properties", "color"))),
    Row(requirement="UC-UPDATE-06", name="one-domain-set-and-removed", permitted=INVALID,
        title="One metadata domain set and removed in one request: 400.",
        request=_updates(_next(), CLUSTERING, UNCLUSTERED)),
    Row(requirement="UC-UPDATE-07", name="an-unknown-action", permitted=INVALID,
        title="An action that does not exist: 400.", request=_updates(_next(), {"action": "no-such-action"})),
    Row(requirement="UC-UPDATE-08", name="a-commit-of-version-0", permitted=INVALID,
        title="A commit whose version is not above 0: 400.", request=_updates(_next(version=0))),
    Row(requirement="UC-UPDATE-08", name="a-commit-without-a-size", permitted=INVALID,
        title="A commit whose file has no bytes: 400.", request=_updates(_next(**{"file-size": 0}))),
    Row(requirement="UC-UPDATE-11", name="names-with-underscores", permitted=INVALID,
        title="The field names of an earlier version, with underscores: 400.", request=_update(_snake)),
    Row(requirement="UC-COMMIT-01", name="a-commit-skips-a-version", permitted=((400, ()), (409, ())),
        title="A commit that skips a version: 400 or 409.", request=_updates(_next(ahead=1))),
    Row(requirement="UC-COMMIT-03", name="another-tables-id", permitted=(*REQUIREMENT, *NO_TABLE),
        title="A requirement with another table's id: 409.",
        request=_update(lambda api, table: api.body(table, api.commit(table), uuid=NO_ID))),
    Row(requirement="UC-COMMIT-04", name="another-etag", permitted=REQUIREMENT,
        title="A requirement with an etag that the table does not have: 409.",
        request=_update(lambda api, table: api.body(table, api.commit(table), etag="no-such-etag"))),
    Row(requirement="UC-COMMIT-08", name="uniform-without-its-property", permitted=INVALID,
        title="A commit with `uniform`, of a table whose properties do not enable it: 400.",
        request=_update(lambda api, table: api.body(table, {**api.commit(table), "uniform": {"iceberg": {
            "metadata-location": f"{table.staged.location}/metadata/1.json", "converted-delta-version": 1,
            "converted-delta-timestamp": 1}}}))),
    Row(requirement="UC-BACKFILL-01", name="a-report-above-the-latest-version", permitted=INVALID,
        title="A report that a version above the latest one is published: 400.",
        request=_updates(lambda _, table: report(table.latest + 7))),
    Row(requirement="UC-META-02", name="a-comment-without-a-commit", permitted=((200, ()),), changes=True,
        title="The table's comment is set without a commit, because the log does not contain it: 200.",
        request=_updates(COMMENT)),
    Row(requirement="UC-METRICS-01", name="metrics-of-a-commit", permitted=((204, ()),),
        title="Metrics of a commit are accepted.", request=_metrics(report={"commit-report": {"num-files-added": 1}})),
    Row(requirement="UC-METRICS-02", name="metrics-of-another-table", permitted=INVALID,
        title="Metrics with the id of another table: 400.", request=_metrics(**{"table-id": NO_ID})),
    Row(requirement="UC-METRICS-03", name="a-histogram-with-missing-values", permitted=INVALID,
        title="A histogram whose lists differ in length: 400.",
        request=_metrics(report={"commit-report": {"file-size-histogram": HISTOGRAM}})),
    Row(requirement="UC-RENAME-02", name="rename-to-an-existing-name", permitted=EXISTS,
        title="A new name that another table has: 409.",
        request=lambda api, table: (
            "POST", f"{table.path}/rename", {"new-name": api.create(f"taken {api.s.attempt()}").name})),
)  # fmt: skip
NAMED: Final = {row.name: row for row in ROWS}


def send(s: Scenario, name: str, row: Row, client: str) -> None:
    """Send the request of the row about the table of that name, and require one of the permitted answers. A server
    whose backlog is full may say so first."""
    api = Api(s)
    before = api.got(api.call("GET", f"{TABLES}/{quote(name)}"), Loaded, "UC-LOAD-01")
    staged = StagedTable(table_id=before.metadata.table_uuid, location=before.metadata.location)
    table = ApiTable(name=name, staged=staged, latest=before.latest_table_version)
    method, path, body = row.request(api, table)
    exchange = api.call(method, path, body, client)
    if kind_of(exchange.answer) != "ResourceExhaustedException":
        api.wants(exchange, row.requirement, row.permitted, row.title)
    after, now = api.seen(table)
    api.demand(row.changes or _lasting(now) == _lasting(before), "UC-UPDATE-10", after,
               "a rejected request changes nothing", f"the table was {before}, and is {now}")  # fmt: skip


def _lasting(loaded: Loaded) -> tuple[object, ...]:
    """What publication does not change."""
    return loaded.metadata, loaded.latest_table_version
