"""Unity Catalog's Delta API, by HTTP requests that no client of Delta would change: UC_DELTA_API.md.

`ROWS` is a table: a request for a new table, and the answers that the specification permits. A rejected request must
leave the table as it was. The functions below it are about several requests. Every answer with an error has the API's
form (UC_DELTA_API.md#errors).

Why examples: the requests of programs go through an adapter, which sends only what Delta's clients send.
"""

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeVar
from urllib.parse import quote

import msgspec

from conformance.adapters.uc.api import ApiCommit, Staged
from conformance.adapters.uc.api import Loaded as Before
from conformance.adapters.uc.owner import creation_of, folder_of, table_name, updates_of, with_requirements
from conformance.checks import check
from conformance.interface import messages as m
from conformance.interface.log_names import LOG, commit_file, staged_file
from conformance.models import proposals
from conformance.requirements.catalogue import Profile
from conformance.scenario.check import Family
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
    """What the checks need."""

    table_id: uuid.UUID
    location: str


class CompleteStagedTable(StagedTable, frozen=True, kw_only=True):
    storage_credentials: tuple[Credential, ...]
    table_type: Literal["MANAGED"]
    required_protocol: Demand
    required_properties: dict[str, str | None]


class TableMetadata(_Document, frozen=True, kw_only=True):
    """What the checks need."""

    table_uuid: uuid.UUID
    location: str
    columns: dict[str, Any]
    properties: dict[str, str]
    etag: str | None = None
    last_commit_version: int | None = None
    partition_columns: tuple[str, ...] | None = ()


class Loaded(_Document, frozen=True, kw_only=True):
    """What the checks need."""

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


def kind_of(answer: m.ApiAnswer) -> str:
    """The type of the error in the answer; empty: it has no error."""
    try:
        return msgspec.json.decode(answer.body, type=ErrorDocument).error.type if answer.status >= 400 else ""
    except msgspec.DecodeError:
        return ""


@dataclass(slots=True, kw_only=True)
class ApiTable:
    """A table that the check created."""

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
        """Require one of the answers. A server that throttles or fails has not answered."""
        answer: Any = exchange.answer
        kind = kind_of(answer)
        if permits(permitted, answer.status, kind):
            accepted: m.ApiAnswer = answer
            return accepted
        if answer.status in (401, 403, 501, 503) or kind in (
            "TooManyRequestsException",
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

# One request for a new table

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


def _next(**fields: Any) -> Callable[[Api, ApiTable], dict[str, Any]]:
    return lambda api, table: api.commit(table, **fields)


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
        title="A staged table of an existing table's name: 409.",
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
        title="Two `add-commit` actions in one request: 400.", request=_updates(_next(), _next(version=2))),
    Row(requirement="UC-UPDATE-02", name="two-reports-in-one-request", permitted=INVALID,
        title="Two actions of another type in one request: 400.", request=_updates(report(0), report(0))),
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
    Row(requirement="UC-COMMIT-01", name="the-first-commit-skips-a-version", permitted=((400, ()), (409, ())),
        title="The first commit of a table proposes version 2.", request=_updates(_next(version=2))),
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
        title="A report that a version above the latest one is published: 400.", request=_updates(report(7))),
    Row(requirement="UC-META-02", name="a-comment-without-a-commit", permitted=((200, ()),), changes=True,
        title="A comment without a commit: the log has no place for it, so it needs none.", request=_updates(COMMENT)),
    Row(requirement="UC-METRICS-01", name="metrics-of-a-commit", permitted=((204, ()),),
        title="Metrics of a commit are accepted.", request=_metrics(report={"commit-report": {"num-files-added": 1}})),
    Row(requirement="UC-METRICS-02", name="metrics-of-another-table", permitted=INVALID,
        title="Metrics with the id of another table: 400.", request=_metrics(**{"table-id": NO_ID})),
    Row(requirement="UC-METRICS-03", name="a-histogram-with-missing-values", permitted=INVALID,
        title="A histogram whose lists differ in length: 400.",
        request=_metrics(report={"commit-report": {"file-size-histogram": HISTOGRAM}})),
    Row(requirement="UC-RENAME-02", name="rename-to-an-existing-name", permitted=EXISTS,
        title="A new name that another table has: 409.",
        request=lambda api, table: ("POST", f"{table.path}/rename", {"new-name": api.create("taken").name})),
)  # fmt: skip

api_check = partial(check, Family.INTERFACE, needs=(Profile.UC_DELTA_API,), features=("catalogManaged",),
                    commit_modes=("staged",))  # fmt: skip


def _register(row: Row) -> None:
    def run(s: Scenario) -> None:
        api = Api(s)
        table = api.create()
        before = api.load(table)
        method, path, body = row.request(api, table)
        exchange = api.call(method, path, body)
        api.wants(exchange, row.requirement, row.permitted, row.title)
        after, now = api.seen(table)
        api.demand(row.changes or now == before, "UC-UPDATE-10", after,
                   "a rejected request changes nothing", f"the table was {before}, and is {now}")  # fmt: skip

    run.__name__ = f"delta_api_{row.name.replace('-', '_')}"
    run.__doc__ = row.title
    api_check(row.requirement, "UC-UPDATE-10", "UC-ERROR-01")(run)


for _row in ROWS:
    _register(_row)


# Several requests


@api_check("UC-CONFIG-01", "UC-CONFIG-02", "PROFILE-API-01")
def delta_api_configuration(s: Scenario) -> None:
    """The configuration names its version, one that the client supports, and its calls as `METHOD /v1/path`. A rejected
    negotiation names the versions of the server."""
    api = Api(s)
    for versions in ("1.0", "1.7,99.3"):
        exchange = api.call("GET", f"/v1/config?catalog={{catalog}}&protocol-versions={versions}")
        config = api.got(exchange, Config, "UC-CONFIG-01")
        api.demand(config.protocol_version.startswith("1."), "UC-CONFIG-01", exchange,
                   "a version of those that the client supports", config.protocol_version)  # fmt: skip
        wrong = [text for text in config.endpoints if not text.partition(" ")[2].startswith("/v1/")]
        needed = {f"GET {TABLES}/{{table}}", f"POST {TABLES}/{{table}}", f"POST {TABLES}",
                  f"POST {SCHEMA}/staging-tables"}  # fmt: skip
        api.demand(not wrong and needed <= set(config.endpoints), "UC-CONFIG-01", exchange,
                   "the calls of managed tables, as METHOD /v1/path", config.endpoints)  # fmt: skip
    rejected = api.call("GET", "/v1/config?catalog={catalog}&protocol-versions=99.0")
    api.demand("1." in str(rejected.answer), "UC-CONFIG-02", rejected,
               "the error names the versions that the server supports", rejected.answer)  # fmt: skip


@api_check("UC-STAGE-01", "UC-STAGE-03", "UC-STAGE-04", "UC-CRED-01")
def delta_api_staged_tables(s: Scenario) -> None:
    """Each request stages another table, also for one name. A staged table cannot be loaded. Its credentials, like
    those of a table, are for the operation that the client asks for."""
    api = Api(s)
    first, second = api.stage(), api.stage()
    api.got(first[0], CompleteStagedTable, "UC-STAGE-01")
    api.demand(first[1].table_id != second[1].table_id and first[1].location != second[1].location, "UC-STAGE-01",
               second[0], "another id and another location for each staged table", second[1])  # fmt: skip
    loaded = api.call("GET", f"{TABLES}/{first[2]}")
    api.wants(loaded, "UC-STAGE-03", NO_TABLE, "a staged table cannot be loaded: 404")
    table = api.create()
    for path, operation, requirement in (
        (f"/v1/staging-tables/{second[1].table_id}/credentials", "READ_WRITE", "UC-STAGE-04"),
        (f"{table.path}/credentials?operation=READ", "READ", "UC-CRED-01"),
        (f"{table.path}/credentials?operation=READ_WRITE", "READ_WRITE", "UC-CRED-01"),
    ):
        exchange = api.call("GET", path)
        credentials = api.got(exchange, Credentials, requirement).storage_credentials
        api.demand({credential.operation for credential in credentials} <= {operation}, requirement, exchange,
                   f"credentials for {operation}", credentials)  # fmt: skip


@api_check("UC-CREATE-02", "UC-CREATE-03", "UC-CREATE-04", "UC-CREATE-05", "UC-CREATE-06", "UC-CREATE-07",
           "UC-COLUMNS-01", "UC-NAMES-01")  # fmt: skip
def delta_api_creations(s: Scenario) -> None:
    """A creation must fit its staged table and the server's requirements, and happens at most once."""
    api = Api(s)
    exchange, staged, name = api.stage()
    good = api.creation(exchange, staged, name)
    fields = good["columns"]["fields"]
    doubled = {**good["columns"], "fields": [*fields, {**fields[0], "name": fields[0]["name"].upper()}]}
    bare = {**good["protocol"], "reader-features": [], "writer-features": []}
    attempts: list[tuple[str, dict[str, Any], Permitted, str]] = [
        ("UC-CREATE-02", {**good, "location": f"{good['location'].rpartition('/')[0]}/{NO_ID}"}, NO_TABLE,
         "no table was staged at the location: 404"),
        ("UC-CREATE-03", {**good, "properties": {**good["properties"], "io.unitycatalog.tableId": NO_ID}}, INVALID,
         "the property with the table's id is another one: 400"),
        ("UC-CREATE-04", {**good, "protocol": bare}, INVALID, "the protocol lacks required features: 400"),
        ("UC-COLUMNS-01", {**good, "columns": doubled}, INVALID, "two column names differ only in case: 400"),
        *(("UC-CREATE-07", {key: value for key, value in good.items() if key != field}, INVALID,
           f"the required field {field} is missing: 400")
          for field in ("location", "table-type", "columns", "protocol", "properties", "last-commit-timestamp-ms")),
    ]  # fmt: skip
    for requirement, body, permitted, expected in attempts:
        api.wants(api.call("POST", TABLES, body), requirement, permitted, expected)
    elsewhere = api.call("POST", TABLES.replace("{schema}", "no_such_schema"), good)
    api.wants(elsewhere, "UC-NAMES-01", NO_SCHEMA, "the schema does not exist: 404")
    api.got(api.call("POST", TABLES, good), Loaded, "UC-CREATE-01")
    rejected: Permitted = ((400, ()), (409, ()), (404, ()), (500, ("CommitStateUnknownException",)))
    again = api.call("POST", TABLES, {**good, "name": f"{name}_2"})
    api.wants(again, "UC-CREATE-05", rejected, "the staged table was created already: rejected")
    exchange, staged, _ = api.stage("other")
    taken = api.call("POST", TABLES, api.creation(exchange, staged, name))
    api.wants(taken, "UC-CREATE-06", EXISTS, "another table has the name: 409")


@api_check("UC-CREATE-01", "UC-LOAD-01", "UC-LOAD-02", "UC-LOAD-03", "UC-LOAD-04", "UC-LOAD-05", "UC-COMMIT-01",
           "UC-COMMIT-02", "UC-BACKFILL-02", "UC-BACKFILL-04")  # fmt: skip
def delta_api_commits_and_loads(s: Scenario) -> None:
    """A load has all commits that are not reported as published, newest first, as they were proposed. Commits of data
    change neither the etag nor `last-commit-version`. A repeated report changes nothing."""
    api = Api(s)
    table = api.create()
    exchange, created = api.seen(table)
    api.got(exchange, CompleteLoaded, "UC-LOAD-01")
    api.demand((created.latest_table_version, created.commits, created.metadata.last_commit_version) == (0, (), 0),
               "UC-CREATE-01", exchange, "a new table has version 0 and no commits", created)  # fmt: skip
    sent = [api.commit(table)]
    api.land(table, commit=sent[0])
    for _ in range(3):
        sent.append(api.commit(table))
        api.land(table, commit=sent[-1])
    lost = api.update(table, api.commit(table, version=2))
    api.wants(lost, "UC-COMMIT-02", ((409, ("CommitVersionConflictException",)),), "version 2 is taken: 409")
    gap = api.update(table, api.commit(table, version=6))
    api.wants(gap, "UC-COMMIT-01", ((400, ()), (409, ())), "version 5 is missing, so version 6 is rejected")
    listed = _listed(api, table, 0)
    by_version = {update["commit"]["version"]: update["commit"] for update in sent}
    for commit in listed.commits:
        api.demand(commit == msgspec.convert(by_version[commit.version], ApiCommit), "UC-LOAD-03", exchange,
                   f"the commit as it was proposed: {by_version[commit.version]}", commit)  # fmt: skip
    before, now = created.metadata, listed.metadata
    api.demand(now.last_commit_version == 0, "UC-LOAD-04", exchange,
               "no commit has changed the metadata since version 0", now.last_commit_version)  # fmt: skip
    api.demand(now.etag == before.etag, "UC-LOAD-05", exchange, f"the etag stays {before.etag}", now.etag)
    api.publish(table, *(commit for commit in listed.commits if commit.version <= 2))
    for version in (2, 2, 1):
        reported = api.update(table, report(version))
        api.got(reported, Loaded, "UC-BACKFILL-02", f"version {version} is published: reporting it is accepted")
        kept = _listed(api, table, 2)
        api.demand(kept.metadata.etag == before.etag, "UC-LOAD-05", reported, "a report changes no etag", kept)


def _listed(api: Api, table: ApiTable, published: int) -> Loaded:
    """The load. Its commits are those above some version up to `published`, without gaps. A server may publish too."""
    exchange, loaded = api.seen(table)
    while (table.log / commit_file(published + 1)).exists():
        published += 1
    versions = [commit.version for commit in loaded.commits]
    api.demand(loaded.latest_table_version == table.latest, "UC-LOAD-02", exchange,
               f"the latest version is {table.latest}", loaded.latest_table_version)  # fmt: skip
    expected = list(range(table.latest, table.latest - len(versions), -1))
    requirement = "UC-BACKFILL-04" if published else "UC-LOAD-02"
    api.demand(versions == expected and len(versions) >= table.latest - published, requirement, exchange,
               f"all versions above {published}, newest first", versions)  # fmt: skip
    return loaded


@api_check("UC-COMMIT-05", "UC-COMMIT-06", "UC-UPDATE-09")
def delta_api_retries(s: Scenario) -> None:
    """The identical request is answered 200 with the newest state, also after later commits. After the commit was
    published and reported, the server may say that it does not know. The order of a request's parts has no meaning."""
    api = Api(s)
    table = api.create()
    commit = api.commit(table)
    first = api.land(table, commit=commit)
    api.land(table)
    body = api.body(table, commit, report(0))
    etag = api.load(table).metadata.etag
    for expected in ("the commit landed, and the identical request is answered 200",) * 2:
        again = api.call("POST", table.path, api.body(table, commit))
        known = api.got(again, Loaded, "UC-COMMIT-05", expected)
        api.demand(known.latest_table_version == table.latest, "UC-COMMIT-05", again,
                   f"the newest state of the table: version {table.latest}", known.latest_table_version)  # fmt: skip
        api.land(table)
    api.publish(table, *api.load(table).commits)
    api.got(api.update(table, report(table.latest)), Loaded, "UC-BACKFILL-02")
    late = api.call("POST", table.path, api.body(table, commit))
    api.wants(late, "UC-COMMIT-06", ((200, ()), (500, ("CommitStateUnknownException",))),
              f"operation {first.number} landed: 200, or the outcome is unknown")  # fmt: skip
    body = api.body(table, api.commit(table), report(table.latest), etag=etag)
    turned = {key: list(reversed(parts)) for key, parts in body.items()}
    api.got(api.call("POST", table.path, turned), Loaded, "UC-UPDATE-09", "the order of the parts has no meaning")


@api_check("UC-LIMIT-01", "UC-BACKFILL-03")
def delta_api_a_full_backlog(s: Scenario) -> None:
    """A server that limits the commits that are not reported as published answers 429 `ResourceExhaustedException`.
    Any client may publish and report them, and then the next commit is ratified."""
    api = Api(s)
    table = api.create()
    for _ in range(MANY):
        exchange = api.update(table, commit := api.commit(table))
        status = getattr(exchange.answer, "status", 0)
        if status != 200:
            break
        table.latest += 1
    if table.latest < MANY:
        api.wants(exchange, "UC-LIMIT-01", ((429, ("ResourceExhaustedException",)),), "a full backlog: 429")
    loaded = _listed(api, table, 0)
    api.publish(table, *loaded.commits)
    reported = api.update(table, report(table.latest), client="another")
    api.got(reported, Loaded, "UC-BACKFILL-03", "any client may report commits as published")
    commit = commit if table.latest < MANY else api.commit(table)
    api.got(api.update(table, commit), Loaded, "UC-BACKFILL-03", "the backlog has room for the next commit")


MANY: Final = 16
"""More commits than Unity Catalog lets wait."""


@api_check("UC-META-01", "UC-META-03", "UC-LOAD-04", "UC-LOAD-05", "UC-LOAD-06", "UC-COLUMNS-01")
def delta_api_changes_of_metadata(s: Scenario) -> None:
    """A load shows the columns, properties and domains that a commit set, the properties that it did not remove, and
    the keys that the server derives. The etag and `last-commit-version` change."""
    api = Api(s)
    table = api.create()
    exchange, before = api.seen(table)
    had = before.metadata.properties
    derived = ("delta.minReaderVersion", "delta.minWriterVersion", "delta.feature.catalogManaged",
               "delta.lastUpdateVersion", "delta.lastCommitTimestamp", "io.unitycatalog.tableId")  # fmt: skip
    api.demand(set(derived) <= set(had) and had["io.unitycatalog.tableId"] == table.id, "UC-LOAD-06", exchange,
               f"the properties {', '.join(derived)}", had)  # fmt: skip
    configuration = (proposals.body_of((table.log / commit_file(0)).read_text(), "metaData") or {})["configuration"]
    changed = {**configuration, "delta.logRetentionDuration": "interval 60 days"}
    fields = [*before.metadata.columns["fields"],
              {"name": "color", "type": "string", "nullable": True, "metadata": {}}]  # fmt: skip
    schema = json.dumps({"type": "struct", "fields": fields})
    for wanted in (changed, configuration):
        etag = api.load(table).metadata.etag
        commit, updates = api.change(table, configuration=wanted, schemaString=schema)
        api.land(table, *updates, commit=commit)
        exchange, now = api.seen(table)
        shown = {key: value for key, value in now.metadata.properties.items() if key in {**changed, **had}}
        names = [field["name"] for field in now.metadata.columns["fields"]]
        expected = {key: now.metadata.properties.get(key) if key in derived else wanted.get(key) for key in changed}
        api.demand(all(shown.get(key) == value for key, value in expected.items()) and "color" in names, "UC-META-01",
                   exchange, f"the properties {wanted} and the column `color`", now.metadata)  # fmt: skip
        api.demand(now.metadata.last_commit_version == table.latest, "UC-LOAD-04", exchange,
                   f"version {table.latest} changed the metadata", now.metadata.last_commit_version)  # fmt: skip
        api.demand(now.metadata.etag != etag, "UC-LOAD-05", exchange, "another etag", now.metadata.etag)
    repeated = {**now.metadata.columns, "fields": [*fields, {**fields[0], "name": fields[0]["name"].upper()}]}
    rejected = api.update(table, api.commit(table), {"action": "set-columns", "columns": repeated})
    api.wants(rejected, "UC-COLUMNS-01", INVALID, "two column names differ only in case: 400")
    features = {**(proposals.body_of((table.log / commit_file(0)).read_text(), "protocol") or {})}
    features["writerFeatures"] = sorted({*features["writerFeatures"], "clustering", "domainMetadata"})
    domain = {"domainMetadata": {"domain": "delta.clustering", "removed": False,
                                 "configuration": json.dumps({"clusteringColumns": [["id"]]})}}  # fmt: skip
    actions = [{"protocol": features}, domain]
    commit = api.commit(table, *map(json.dumps, actions))
    known = msgspec.json.decode(api.call("GET", table.path).answer.body, type=Before)  # type: ignore[union-attr]
    api.land(table, *updates_of(actions, known), commit=commit)
    exchange, now = api.seen(table)
    columns = now.metadata.properties.get("delta.clusteringColumns")
    api.demand(columns is not None and json.loads(columns) == [["id"]], "UC-META-03", exchange,
               "`delta.clusteringColumns` is derived from the metadata domain", columns)  # fmt: skip


@api_check("UC-REPLACE-01")
def delta_api_replace_is_one_commit(s: Scenario) -> None:
    """REPLACE TABLE is one commit with the new columns and partition columns: the table keeps its id and history."""
    api = Api(s)
    table = api.create()
    api.land(table)
    schema = json.dumps({"type": "struct", "fields": [
        {"name": "day", "type": "string", "nullable": True, "metadata": {}},
        {"name": "total", "type": "long", "nullable": True, "metadata": {}}]})  # fmt: skip
    commit, updates = api.change(table, schemaString=schema, partitionColumns=["day"])
    before = api.load(table)
    exchange = api.update(table, commit, *updates, etag=before.metadata.etag)
    now = api.got(exchange, Loaded, "UC-REPLACE-01", "a REPLACE in one commit is ratified")
    names = [field["name"] for field in now.metadata.columns["fields"]]
    same = (now.metadata.table_uuid, now.metadata.location) == (before.metadata.table_uuid, before.metadata.location)
    api.demand(same and now.latest_table_version == 2 and names == ["day", "total"]
               and now.metadata.partition_columns == ("day",), "UC-REPLACE-01", exchange,
               "version 2 of the same table, with the new columns and partition columns", now)  # fmt: skip


@api_check("UC-NOTABLE-01", "UC-HEAD-01", "UC-DROP-01", "UC-RENAME-01")
def delta_api_names_of_tables(s: Scenario) -> None:
    """A renamed table has the same content under its new name only. After a drop, and before a creation, each call
    about the table is answered 404."""
    api = Api(s)
    table = api.create()
    api.land(table)
    before = api.load(table)
    old, new = table.path, f"{table.name}_new"
    exists = api.call("HEAD", old)
    api.wants(exists, "UC-HEAD-01", ((204, ()),), "the table exists: 204")
    renamed = api.call("POST", f"{old}/rename", {"new-name": new})
    api.wants(renamed, "UC-RENAME-01", ((204, ()),), "the table is renamed: 204")
    gone = api.call("GET", old)
    api.wants(gone, "UC-RENAME-01", NO_TABLE, "the old name has no table: 404")
    table.name = new
    exchange, now = api.seen(table)
    api.demand((now.metadata.table_uuid, now.commits) == (before.metadata.table_uuid, before.commits), "UC-RENAME-01",
               exchange, "the same table under the new name", now)  # fmt: skip
    dropped = api.call("DELETE", table.path)
    api.wants(dropped, "UC-DROP-01", ((204, ()),), "the table is dropped: 204")
    missing = api.call("GET", table.path)
    api.wants(missing, "UC-DROP-01", NO_TABLE, "a dropped table is not found: 404")
    head = api.call("HEAD", table.path)
    api.wants(head, "UC-HEAD-01", ((404, ()),), "the table does not exist: 404")
    for method, path, body in (
        ("DELETE", table.path, None),
        ("POST", table.path, api.body(table, api.commit(table))),
        ("GET", f"{table.path}/credentials?operation=READ", None),
        ("POST", f"{table.path}/metrics", {"table-id": table.id}),
        ("POST", f"{table.path}/rename", {"new-name": f"{new}er"}),
    ):
        exchange = api.call(method, path, body)
        api.wants(exchange, "UC-NOTABLE-01", NO_TABLE, f"there is no such table: {method} is answered 404")
