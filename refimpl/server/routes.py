"""Every call that the server answers, as one table: who may make it, what it takes, what it does.

The application, the description (`/openapi.json`) and `/config` are all made from this list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from refimpl.server import messages
from refimpl.server.access import Scope
from refimpl.server.delta_api import DeltaApi
from refimpl.server.errors import bad_request
from refimpl.server.legacy import LegacyApi

LEGACY_BASE: Final = "/api/2.1/unity-catalog"
DELTA_BASE: Final = f"{LEGACY_BASE}/delta"
_TABLES: Final = "/v1/catalogs/{catalog}/schemas/{schema}/tables"
_TABLE: Final = f"{_TABLES}/{{table}}"
PROTOCOL_VERSION: Final = "1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a handler gets: parts of the path, the query, and the decoded body where the route has one."""

    delta: DeltaApi
    legacy: LegacyApi
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Any = None

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
            raise bad_request(f"the query parameter {name} is {given!r}; give a number from 0 to 999999999")
        return int(given)

    @property
    def table(self) -> tuple[str, str, str]:
        return self.path["catalog"], self.path["schema"], self.path["table"]


Handler = Callable[[Call], Any]
"""Answers with a JSON value, or None for "204, no content"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRoute:
    """One call. `name` stands in logs and metrics; `query` lists its parameters, `required` those it needs."""

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
    """Documented statuses besides those that every call may have."""


def _config(call: Call) -> Any:
    call.delta.names.check_catalog(call.required("catalog"))
    asked = call.query.get("protocol-versions", PROTOCOL_VERSION)
    if PROTOCOL_VERSION.partition(".")[0] not in {version.strip().partition(".")[0] for version in asked.split(",")}:
        raise bad_request(f"this server speaks version {PROTOCOL_VERSION}, not {asked!r}")
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
    return call.delta.update(*call.table, call.body)


def _drop(call: Call) -> Any:
    call.delta.drop(*call.table)


def _metrics(call: Call) -> Any:
    found = call.delta.describe(*call.table)
    if call.body.table_id not in (None, found.table.table_id):
        raise bad_request(f"table-id is {call.body.table_id!r}; the table is {found.table.table_id}")


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
             scope=Scope.WRITE, handle=_stage, body=messages.StageTable,
             summary="A location for a table that is to be created", refusals=(404, 409)),
    ApiRoute(name="create", method="POST", path=_TABLES, scope=Scope.WRITE, handle=_create, body=messages.CreateTable,
             summary="Register a table whose version 0 is written", refusals=(404, 409)),
    ApiRoute(name="list", method="GET", path=_TABLES, scope=Scope.READ, handle=_list, summary="The tables of a schema",
             refusals=(404,)),
    ApiRoute(name="load", method="GET", path=_TABLE, scope=Scope.READ, handle=_load,
             summary="A table's metadata and the commits that are not published", refusals=(404,)),
    ApiRoute(name="update", method="POST", path=_TABLE, scope=Scope.WRITE, handle=_update, body=messages.UpdateTable,
             summary="Commit, report what is published, change metadata: all or nothing", refusals=(404, 409)),
    ApiRoute(name="drop", method="DELETE", path=_TABLE, scope=Scope.WRITE, handle=_drop, status=204,
             summary="Forget the table's name; its files stay", refusals=(404,)),
    ApiRoute(name="exists", method="HEAD", path=_TABLE, scope=Scope.READ, handle=_exists, status=204,
             summary="Whether there is such a table", refusals=(404,)),
    ApiRoute(name="credentials", method="GET", path=f"{_TABLE}/credentials", scope=Scope.READ, handle=_credentials,
             summary="Local files need none", query=("operation",), refusals=(404,)),
    ApiRoute(name="report", method="POST", path=f"{_TABLE}/metrics", scope=Scope.WRITE, handle=_metrics,
             body=messages.ReportMetrics, status=204, summary="What a commit did; not kept", refusals=(404,)),
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
             handle=_legacy_credentials, body=messages.TableCredentials, summary="Local files need none",
             refusals=(404,)),
    ApiRoute(name="drop-by-name", method="DELETE", path="/tables/{full_name}", scope=Scope.WRITE, handle=_legacy_drop,
             summary="Forget the table's name; its files stay", refusals=(404,)),
)  # fmt: skip

SETTINGS_PATH: Final = "/api/2.0/settings/types/{rest:path}"
