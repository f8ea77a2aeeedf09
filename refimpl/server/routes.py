"""Every call of the server, as one table: its scope, its body, its handler.

The application and `/config` are made from this table. Starlette does the routing; the table is our own, because
Starlette's routes have no fields for scope and body.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from refimpl.catalog.messages import (
    CATALOG_BASE,
    DELTA_BASE,
    TRANSACTIONS,
    CommitById,
    CommitsById,
    CommitTransaction,
    CreateTable,
    LoadTables,
    RenameTable,
    ReportMetrics,
    StageTable,
    TableCredentials,
    UpdateTable,
)
from refimpl.server.access import Scope
from refimpl.server.catalog_api import CatalogApi
from refimpl.server.delta_api import DeltaApi
from refimpl.server.errors import bad_request

_SCHEMA: Final = "/v1/catalogs/{catalog}/schemas/{schema}"
_TABLES: Final = f"{_SCHEMA}/tables"
_TABLE: Final = f"{_TABLES}/{{table}}"
PROTOCOL_VERSION: Final = "1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The input of a handler: parts of the path, the query, and the decoded body if the route has one."""

    delta: DeltaApi
    catalog: CatalogApi
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
    """One call. `name` is used in logs.

    Its handler answers with a JSON value; with the status 204, the answer is empty.
    """

    name: str
    method: str
    path: str
    handle: Callable[[Call], Any]
    body: type | None = None
    status: int = 200
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
    ApiRoute(name="config", method="GET", path="/v1/config", handle=_config),
    ApiRoute(name="stage", method="POST", path=f"{_SCHEMA}/staging-tables",
             handle=lambda call: call.delta.stage(*call.schema, call.body), body=StageTable),
    ApiRoute(name="create", method="POST", path=_TABLES,
             handle=lambda call: call.delta.create(*call.schema, call.body), body=CreateTable),
    ApiRoute(name="list", method="GET", path=_TABLES, handle=_list,
             lists=True),
    ApiRoute(name="load", method="GET", path=_TABLE,
             handle=lambda call: call.delta.load(*call.table)),
    ApiRoute(name="update", method="POST", path=_TABLE, body=UpdateTable,
             handle=lambda call: call.delta.update(*call.table, call.body, shows_conflict=call.shows_conflict)),
    ApiRoute(name="drop", method="DELETE", path=_TABLE, status=204,
             handle=lambda call: call.delta.drop(*call.table, call.query.get("table-id"))),
    ApiRoute(name="rename", method="POST", path=f"{_TABLE}/rename", body=RenameTable, status=204,
             handle=lambda call: call.delta.rename(*call.table, call.body.new_name)),
    ApiRoute(name="exists", method="HEAD", path=_TABLE, status=204,
             handle=lambda call: call.delta.check_exists(*call.table)),
    ApiRoute(name="credentials", method="GET", path=f"{_TABLE}/credentials",
             handle=lambda call: call.delta.credentials(*call.table, call.required("operation"))),
    ApiRoute(name="report", method="POST", path=f"{_TABLE}/metrics",
             handle=_report, body=ReportMetrics, status=204),
    ApiRoute(name="transact", method="POST", path=f"{TRANSACTIONS}/commit", body=CommitTransaction, status=204,
             handle=lambda call: call.delta.commit_together(call.path["catalog"], call.body)),
    ApiRoute(name="load-together", method="POST", path=f"{TRANSACTIONS}/load", body=LoadTables, reads=True,
             handle=lambda call: call.delta.load_together(call.path["catalog"], call.body)),
    ApiRoute(name="staging-credentials", method="GET", path="/v1/staging-tables/{table_id}/credentials",
             handle=lambda call: call.delta.staging_credentials(call.path["table_id"])),
)  # fmt: skip

CATALOG_ROUTES: Final = (
    ApiRoute(name="catalogs", method="GET", path="/catalogs",
             handle=lambda call: call.catalog.catalogs()),
    ApiRoute(name="catalog", method="GET", path="/catalogs/{name}",
             handle=lambda call: call.catalog.catalog(call.path["name"])),
    ApiRoute(name="schemas", method="GET", path="/schemas",
             handle=lambda call: call.catalog.schemas(call.required("catalog_name"), *call.page)),
    ApiRoute(name="schema", method="GET", path="/schemas/{full_name}",
             handle=lambda call: call.catalog.schema(call.path["full_name"])),
    ApiRoute(name="tables", method="GET", path="/tables",
             handle=lambda call: call.catalog.tables(
                 call.required("catalog_name"), call.required("schema_name"), *call.page), lists=True),
    ApiRoute(name="table", method="GET", path="/tables/{full_name}",
             handle=lambda call: call.catalog.table(call.path["full_name"])),
    ApiRoute(name="table-credentials", method="POST", path="/temporary-table-credentials", reads=True,
             handle=lambda call: call.catalog.credentials(call.body.table_id), body=TableCredentials),
    ApiRoute(name="commit-by-id", method="POST", path="/delta/preview/commits",
             handle=lambda call: call.catalog.commit(call.body), body=CommitById),
    ApiRoute(name="commits-by-id", method="GET", path="/delta/preview/commits",
             handle=lambda call: call.catalog.commits(call.body), body=CommitsById),
    ApiRoute(name="drop-by-name", method="DELETE", path="/tables/{full_name}",
             handle=lambda call: call.catalog.drop(call.path["full_name"])),
)  # fmt: skip
ROUTES: Final = (*((DELTA_BASE, route) for route in DELTA_ROUTES), *((CATALOG_BASE, route) for route in CATALOG_ROUTES))
"""All calls, each with the beginning of its path."""
