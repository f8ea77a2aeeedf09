"""Every call of the server, as one table: its scope, its parameters, its handler.

The application, `/config` and the OpenAPI document are made from this table. Starlette does the routing; the table is
our own, because Starlette's routes have no fields for scope, body and documented statuses.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from refimpl.catalog.messages import (
    DELTA_BASE,
    LEGACY_BASE,
    TRANSACTIONS,
    CommitById,
    CommitsById,
    CommitTransaction,
    CreateTable,
    CreateTableByName,
    ErrorAnswer,
    LoadTables,
    RenameTable,
    ReportMetrics,
    StageTable,
    StageTableByName,
    TableCredentials,
    UpdateTable,
)
from refimpl.protocol.release import __version__
from refimpl.server.access import Scope
from refimpl.server.delta_api import DeltaApi
from refimpl.server.errors import bad_request
from refimpl.server.legacy import LegacyApi

_SCHEMA: Final = "/v1/catalogs/{catalog}/schemas/{schema}"
_TABLES: Final = f"{_SCHEMA}/tables"
_TABLE: Final = f"{_TABLES}/{{table}}"
PROTOCOL_VERSION: Final = "1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The input of a handler: parts of the path, the query, and the decoded body if the route has one."""

    delta: DeltaApi
    legacy: LegacyApi
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Any = None
    shows_conflict: bool = False
    """Whether the answer to a lost race should include the table: UNITY_CATALOG.md#conflict."""

    def required(self, name: str) -> str:
        value = self.query.get(name)
        if not value:
            raise bad_request(f"the query parameter {name} is missing")
        return value

    def number(self, name: str) -> int | None:
        given = self.query.get(name)
        if given is None or given == "":
            return None
        if not given.isascii() or not given.isdigit() or len(given) > 9:
            raise bad_request(f"invalid query parameter {name}={given!r}; expected a number from 0 to 999999999")
        return int(given)

    @property
    def schema(self) -> tuple[str, str]:
        return self.path["catalog"], self.path["schema"]

    @property
    def table(self) -> tuple[str, str, str]:
        return *self.schema, self.path["table"]

    @property
    def page(self) -> tuple[int | None, str]:
        return self.number("max_results"), self.query.get("page_token", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRoute:
    """One call. `name` is used in logs and metrics; `query` lists its parameters, `required` the mandatory ones.

    Its handler answers with a JSON value; with the status 204, the answer is empty.
    """

    name: str
    method: str
    path: str
    handle: Callable[[Call], Any]
    summary: str
    body: type | None = None
    query: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    status: int = 200
    races: bool = False
    """Whether another client may be first: 409."""
    reads: bool = False
    """Whether a request other than GET and HEAD changes nothing."""

    lists: bool = False
    """Whether its answer grows with the number of tables: it has threads and slots of its own."""

    @property
    def scope(self) -> Scope:
        return Scope.READ if self.reads or self.method in ("GET", "HEAD") else Scope.WRITE


def _config(call: Call) -> Any:
    call.delta.names.check_catalog(call.required("catalog"))
    versions = call.required("protocol-versions")
    if PROTOCOL_VERSION.partition(".")[0] not in {version.strip().partition(".")[0] for version in versions.split(",")}:
        raise bad_request(f"this server supports protocol version {PROTOCOL_VERSION}, not {versions!r}")
    return {"endpoints": [f"{r.method} {r.path}" for r in DELTA_ROUTES[1:]], "protocol-version": PROTOCOL_VERSION}


def _list(call: Call) -> Any:
    return {"identifiers": [{"name": name} for name in call.delta.tables_in(*call.schema)], "next-page-token": None}


def _report(call: Call) -> Any:
    table_id = call.delta.describe(*call.table).table.table_id
    if call.body.table_id not in (None, table_id):
        raise bad_request(f"table-id is {call.body.table_id!r}; the table is {table_id}")
    report = call.body.report and call.body.report.commit_report
    histogram = report and report.file_size_histogram
    if histogram and len(set(map(len, msgspec.structs.astuple(histogram)))) > 1:
        raise bad_request("the lists of file-size-histogram differ in length; expected one value for each bin in all")


DELTA_ROUTES: Final = (
    ApiRoute(name="config", method="GET", path="/v1/config", summary="What this server can do", handle=_config,
             query=("catalog", "protocol-versions"), required=("catalog", "protocol-versions")),
    ApiRoute(name="stage", method="POST", path=f"{_SCHEMA}/staging-tables", summary="A location for a new table",
             handle=lambda call: call.delta.stage(*call.schema, call.body), body=StageTable, races=True),
    ApiRoute(name="create", method="POST", path=_TABLES, summary="Register a table whose version 0 exists",
             handle=lambda call: call.delta.create(*call.schema, call.body), body=CreateTable, races=True),
    ApiRoute(name="list", method="GET", path=_TABLES, summary="The tables of a schema", handle=_list,
             lists=True),
    ApiRoute(name="load", method="GET", path=_TABLE, summary="A table's metadata and its unpublished commits",
             handle=lambda call: call.delta.load(*call.table)),
    ApiRoute(name="update", method="POST", path=_TABLE, body=UpdateTable, races=True,
             summary="Commit, report published versions, change metadata: all or none",
             handle=lambda call: call.delta.update(*call.table, call.body, shows_conflict=call.shows_conflict)),
    ApiRoute(name="drop", method="DELETE", path=_TABLE, summary="Forget the table's name; its files stay", status=204,
             handle=lambda call: call.delta.drop(*call.table, call.query.get("table-id")), query=("table-id",)),
    ApiRoute(name="rename", method="POST", path=f"{_TABLE}/rename", body=RenameTable, races=True, status=204,
             summary="Another name in the same schema",
             handle=lambda call: call.delta.rename(*call.table, call.body.new_name)),
    ApiRoute(name="exists", method="HEAD", path=_TABLE, summary="Whether the table exists", status=204,
             handle=lambda call: call.delta.check_exists(*call.table)),
    ApiRoute(name="credentials", method="GET", path=f"{_TABLE}/credentials", summary="Local files need none",
             handle=lambda call: call.delta.credentials(*call.table, call.required("operation")),
             query=("operation",), required=("operation",)),
    ApiRoute(name="report", method="POST", path=f"{_TABLE}/metrics", summary="Metrics of a commit; not stored",
             handle=_report, body=ReportMetrics, status=204),
    ApiRoute(name="transact", method="POST", path=f"{TRANSACTIONS}/commit", body=CommitTransaction, races=True,
             summary="Commit to several tables, all or none", status=204,
             handle=lambda call: call.delta.commit_together(call.path["catalog"], call.body)),
    ApiRoute(name="load-together", method="POST", path=f"{TRANSACTIONS}/load", body=LoadTables, reads=True,
             summary="Several tables in one state of the catalog",
             handle=lambda call: call.delta.load_together(call.path["catalog"], call.body)),
    ApiRoute(name="staging-credentials", method="GET", path="/v1/staging-tables/{table_id}/credentials",
             summary="Local files need none",
             handle=lambda call: call.delta.staging_credentials(call.path["table_id"])),
)  # fmt: skip

_PAGED: Final = ("max_results", "page_token")
LEGACY_ROUTES: Final = (
    ApiRoute(name="metastore", method="GET", path="/metastore_summary", summary="What this server is",
             handle=lambda call: call.legacy.metastore()),
    ApiRoute(name="catalogs", method="GET", path="/catalogs", summary="The one catalog",
             handle=lambda call: call.legacy.catalogs()),
    ApiRoute(name="catalog", method="GET", path="/catalogs/{name}", summary="One catalog",
             handle=lambda call: call.legacy.catalog(call.path["name"])),
    ApiRoute(name="schemas", method="GET", path="/schemas", summary="The schemas of a catalog",
             handle=lambda call: call.legacy.schemas(call.required("catalog_name"), *call.page),
             query=("catalog_name", *_PAGED), required=("catalog_name",)),
    ApiRoute(name="schema", method="GET", path="/schemas/{full_name}", summary="One schema",
             handle=lambda call: call.legacy.schema(call.path["full_name"])),
    ApiRoute(name="tables", method="GET", path="/tables", summary="The tables of a schema, with their columns",
             handle=lambda call: call.legacy.tables(
                 call.required("catalog_name"), call.required("schema_name"), *call.page),
             query=("catalog_name", "schema_name", *_PAGED), required=("catalog_name", "schema_name"), lists=True),
    ApiRoute(name="table", method="GET", path="/tables/{full_name}", summary="One table",
             handle=lambda call: call.legacy.table(call.path["full_name"])),
    ApiRoute(name="table-credentials", method="POST", path="/temporary-table-credentials", reads=True,
             summary="Local files need none", handle=lambda call: call.legacy.credentials(call.body.table_id),
             body=TableCredentials),
    ApiRoute(name="drop-by-name", method="DELETE", path="/tables/{full_name}",
             summary="Forget the table's name; its files stay",
             handle=lambda call: call.legacy.drop(call.path["full_name"])),
    ApiRoute(name="stage-by-name", method="POST", path="/staging-tables", body=StageTableByName,
             summary="A location for a new table", handle=lambda call: call.legacy.stage(call.body)),
    ApiRoute(name="create-by-name", method="POST", path="/tables", body=CreateTableByName,
             summary="Register a table whose version 0 exists", handle=lambda call: call.legacy.create(call.body)),
    ApiRoute(name="commit-by-id", method="POST", path="/delta/preview/commits", body=CommitById, races=True,
             summary="Commit, report published versions, or both", handle=lambda call: call.legacy.commit(call.body)),
    ApiRoute(name="commits-by-id", method="GET", path="/delta/preview/commits", body=CommitsById,
             summary="A table's unpublished commits", handle=lambda call: call.legacy.commits(call.body)),
)  # fmt: skip
ROUTES: Final = (*((DELTA_BASE, route) for route in DELTA_ROUTES), *((LEGACY_BASE, route) for route in LEGACY_ROUTES))
"""All calls, each with the beginning of its path."""

SETTINGS_PATH: Final = "/api/2.0/settings/types/{rest:path}"


_REFERENCE: Final = "#/components/schemas/{name}"
_COMMON: Final = (400, 401, 403, 404, 405, 500, 503)
_WITH_BODY: Final = (408, 413, 429)
_TEXTS: Final = {
    400: "Rejected: a retry cannot succeed",
    401: "A token is required",
    403: "The token does not allow this",
    404: "No such catalog, schema or table",
    405: "Method not allowed",
    408: "The body arrived too slowly",
    409: "Another writer was first: load the table again",
    413: "The body is too large",
    429: "Too many unpublished commits",
    500: "The outcome is unknown: the identical request may be sent again",
    503: "Temporarily unavailable; nothing was changed",
}


def description() -> dict[str, Any]:
    """The OpenAPI document: every call of the API, with every status that it returns."""
    shapes = [route.body for _, route in ROUTES if route.body is not None]
    _, components = msgspec.json.schema_components([*shapes, ErrorAnswer], ref_template=_REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for base, route in ROUTES:
        paths.setdefault(base + route.path, {})[route.method.lower()] = _operation(base, route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "A commit owner that speaks Unity Catalog's Delta API",
            "version": __version__,
            "description": "The calls that Delta clients make to commit to catalog-managed tables.",
        },
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}, {}],
    }


def _operation(base: str, route: ApiRoute) -> dict[str, Any]:
    parts = re.findall(r"\{(\w+)\}", route.path)
    parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in parts]
    parameters += [
        {
            "name": name,
            "in": "query",
            "required": name in route.required,
            "schema": {"type": "integer", "minimum": 0, "maximum": 999_999_999}
            if name == "max_results"
            else {"type": "string"},
        }
        for name in route.query
    ]
    operation: dict[str, Any] = {
        "operationId": ("" if base == DELTA_BASE else "legacy-") + route.name,
        "summary": route.summary,
        "parameters": parameters,
        "responses": _responses(route),
    }
    if route.body is not None:
        schema = {"$ref": _REFERENCE.format(name=route.body.__name__)}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation


def _responses(route: ApiRoute) -> dict[str, Any]:
    done: dict[str, Any] = {"description": "Done"}
    if route.status != 204:
        done["content"] = {"application/json": {"schema": {"type": "object"}}}
    refusals = {*_COMMON, *((409,) if route.races else ()), *(_WITH_BODY if route.body is not None else ())}
    error: dict[str, Any] = {"application/json": {"schema": {"$ref": _REFERENCE.format(name="ErrorAnswer")}}}
    return {str(route.status): done} | {
        str(code): {"description": _TEXTS[code]} | ({} if route.method == "HEAD" else {"content": error})
        for code in sorted(refusals)
    }
