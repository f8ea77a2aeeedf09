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
    CreateTable,
    ErrorAnswer,
    ReportMetrics,
    StageTable,
    TableCredentials,
    UpdateTable,
)
from refimpl.protocol.release import __version__
from refimpl.server.access import Scope
from refimpl.server.delta_api import DeltaApi
from refimpl.server.errors import bad_request
from refimpl.server.legacy import LegacyApi

_TABLES: Final = "/v1/catalogs/{catalog}/schemas/{schema}/tables"
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
    def table(self) -> tuple[str, str, str]:
        return self.path["catalog"], self.path["schema"], self.path["table"]


Handler = Callable[[Call], Any]
"""Answers with a JSON value, or None for "204, no content"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRoute:
    """One call. `name` is used in logs and metrics; `query` lists its parameters, `required` the mandatory ones."""

    name: str
    method: str
    path: str
    scope: Scope
    handle: Handler
    summary: str
    body: type | None = None
    query: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    status: int = 200
    refusals: tuple[int, ...] = ()
    """Documented statuses in addition to those of every call."""


def _config(call: Call) -> Any:
    call.delta.names.check_catalog(call.required("catalog"))
    versions = call.query.get("protocol-versions", PROTOCOL_VERSION)
    if PROTOCOL_VERSION.partition(".")[0] not in {version.strip().partition(".")[0] for version in versions.split(",")}:
        raise bad_request(f"this server supports protocol version {PROTOCOL_VERSION}, not {versions!r}")
    return {"endpoints": [f"{r.method} {r.path}" for r in DELTA_ROUTES[1:]], "protocol-version": PROTOCOL_VERSION}


def _list(call: Call) -> Any:
    catalog, schema = call.path["catalog"], call.path["schema"]
    return {"identifiers": [{"name": name} for name in call.delta.tables_in(catalog, schema)], "next-page-token": None}


def _stage(call: Call) -> Any:
    return call.delta.stage(call.path["catalog"], call.path["schema"], call.body)


def _create(call: Call) -> Any:
    return call.delta.create(call.path["catalog"], call.path["schema"], call.body)


def _load(call: Call) -> Any:
    return call.delta.load(*call.table)


def _exists(call: Call) -> Any:
    call.delta.describe(*call.table)


def _update(call: Call) -> Any:
    return call.delta.update(*call.table, call.body, shows_conflict=call.shows_conflict)


def _drop(call: Call) -> Any:
    call.delta.drop(*call.table, call.query.get("table-id"))


def _metrics(call: Call) -> Any:
    description = call.delta.describe(*call.table)
    if call.body.table_id not in (None, description.table.table_id):
        raise bad_request(f"table-id is {call.body.table_id!r}; the table is {description.table.table_id}")


def _credentials(call: Call) -> Any:
    return call.delta.credentials(*call.table, call.query.get("operation", "READ"))


def _staging_credentials(call: Call) -> Any:
    return call.delta.staging_credentials(call.path["table_id"])


def _legacy_credentials(call: Call) -> Any:
    call.legacy.check_table_id(call.body.table_id)
    return {}


def _legacy_drop(call: Call) -> Any:
    call.legacy.drop(call.path["full_name"])
    return {}


def _schemas(call: Call) -> Any:
    return call.legacy.schemas(
        call.required("catalog_name"), call.number("max_results"), call.query.get("page_token", "")
    )


def _tables(call: Call) -> Any:
    return call.legacy.tables(
        call.required("catalog_name"),
        call.required("schema_name"),
        call.number("max_results"),
        call.query.get("page_token", ""),
    )


DELTA_ROUTES: Final = (
    ApiRoute(name="config", method="GET", path="/v1/config", scope=Scope.READ, handle=_config,
             summary="What this server can do", query=("catalog", "protocol-versions"), required=("catalog",),
             refusals=(404,)),
    ApiRoute(name="stage", method="POST", path="/v1/catalogs/{catalog}/schemas/{schema}/staging-tables",
             scope=Scope.WRITE, handle=_stage, body=StageTable,
             summary="A location for a new table", refusals=(404, 409)),
    ApiRoute(name="create", method="POST", path=_TABLES, scope=Scope.WRITE, handle=_create, body=CreateTable,
             summary="Register a table whose version 0 exists", refusals=(404, 409)),
    ApiRoute(name="list", method="GET", path=_TABLES, scope=Scope.READ, handle=_list, summary="The tables of a schema",
             refusals=(404,)),
    ApiRoute(name="load", method="GET", path=_TABLE, scope=Scope.READ, handle=_load,
             summary="A table's metadata and its unpublished commits", refusals=(404,)),
    ApiRoute(name="update", method="POST", path=_TABLE, scope=Scope.WRITE, handle=_update, body=UpdateTable,
             summary="Commit, report published versions, change metadata: all or none", refusals=(404, 409)),
    ApiRoute(name="drop", method="DELETE", path=_TABLE, scope=Scope.WRITE, handle=_drop, status=204,
             summary="Forget the table's name; its files stay", query=("table-id",), refusals=(404,)),
    ApiRoute(name="exists", method="HEAD", path=_TABLE, scope=Scope.READ, handle=_exists, status=204,
             summary="Whether the table exists", refusals=(404,)),
    ApiRoute(name="credentials", method="GET", path=f"{_TABLE}/credentials", scope=Scope.READ, handle=_credentials,
             summary="Local files need none", query=("operation",), refusals=(404,)),
    ApiRoute(name="report", method="POST", path=f"{_TABLE}/metrics", scope=Scope.WRITE, handle=_metrics,
             body=ReportMetrics, status=204, summary="Metrics of a commit; not stored", refusals=(404,)),
    ApiRoute(name="staging-credentials", method="GET", path="/v1/staging-tables/{table_id}/credentials",
             scope=Scope.READ, handle=_staging_credentials, summary="Local files need none", refusals=(404,)),
)  # fmt: skip

_PAGED: Final = ("max_results", "page_token")
LEGACY_ROUTES: Final = (
    ApiRoute(name="metastore", method="GET", path="/metastore_summary", scope=Scope.READ,
             handle=lambda call: call.legacy.metastore(), summary="What this server is"),
    ApiRoute(name="catalogs", method="GET", path="/catalogs", scope=Scope.READ,
             handle=lambda call: call.legacy.catalogs(), summary="The one catalog"),
    ApiRoute(name="catalog", method="GET", path="/catalogs/{name}", scope=Scope.READ,
             handle=lambda call: call.legacy.catalog(call.path["name"]), summary="One catalog", refusals=(404,)),
    ApiRoute(name="schemas", method="GET", path="/schemas", scope=Scope.READ, handle=_schemas,
             summary="The schemas of a catalog", query=("catalog_name", *_PAGED), required=("catalog_name",),
             refusals=(404,)),
    ApiRoute(name="schema", method="GET", path="/schemas/{full_name}", scope=Scope.READ,
             handle=lambda call: call.legacy.schema(call.path["full_name"]), summary="One schema", refusals=(404,)),
    ApiRoute(name="tables", method="GET", path="/tables", scope=Scope.READ, handle=_tables,
             summary="The tables of a schema, with their columns", query=("catalog_name", "schema_name", *_PAGED),
             required=("catalog_name", "schema_name"), refusals=(404,)),
    ApiRoute(name="table", method="GET", path="/tables/{full_name}", scope=Scope.READ,
             handle=lambda call: call.legacy.table(call.path["full_name"]), summary="One table", refusals=(404,)),
    ApiRoute(name="table-credentials", method="POST", path="/temporary-table-credentials", scope=Scope.READ,
             handle=_legacy_credentials, body=TableCredentials, summary="Local files need none",
             refusals=(404,)),
    ApiRoute(name="drop-by-name", method="DELETE", path="/tables/{full_name}", scope=Scope.WRITE, handle=_legacy_drop,
             summary="Forget the table's name; its files stay", refusals=(404,)),
)  # fmt: skip

SETTINGS_PATH: Final = "/api/2.0/settings/types/{rest:path}"


_REFERENCE: Final = "#/components/schemas/{name}"
_COMMON: Final = (400, 401, 403, 405, 500, 503)
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
    routes = [(DELTA_BASE, route) for route in DELTA_ROUTES] + [(LEGACY_BASE, route) for route in LEGACY_ROUTES]
    shapes = [route.body for _, route in routes if route.body is not None]
    _, components = msgspec.json.schema_components([*shapes, ErrorAnswer], ref_template=_REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for base, route in routes:
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
    refusals = {*_COMMON, *route.refusals, *(_WITH_BODY if route.body is not None else ())}
    error: dict[str, Any] = {"application/json": {"schema": {"$ref": _REFERENCE.format(name="ErrorAnswer")}}}
    return {str(route.status): done} | {
        str(code): {"description": _TEXTS[code]} | ({} if route.method == "HEAD" else {"content": error})
        for code in sorted(refusals)
    }
