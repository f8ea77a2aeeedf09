"""Unity Catalog's calls beside the Delta API: lists of catalogs, schemas and tables, one of them, a drop by full name,
and commits by the table's id.

DuckDB lists schemas and tables with them; Spark's connector requests a schema and drops a table; Sail commits.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec

from refimpl.catalog.messages import UNSUPPORTED_FORMAT, CommitById, CommitsById
from refimpl.protocol.commit_owner import TableState
from refimpl.protocol.errors import CorruptionError
from refimpl.server import answers
from refimpl.server.delta_api import DeltaApi, is_served
from refimpl.server.errors import ApiError, bad_request, no_such_schema, no_such_table

_NOT_KEPT: Final = {"owner": None, "created_at": None, "created_by": None, "updated_at": None, "updated_by": None}
"""Fields of catalogs and schemas. Clients (polars 2.1) reject an answer without them."""

DEFAULT_PAGE: Final = 100
LARGEST_PAGE: Final = 1000
PART: Final = 100
"""Tables in one part of a list without `max_results`: together they may be too large for memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A JSON answer that ends with a list. Each call makes some of its elements, separated by commas."""

    head: bytes
    calls: Iterator[Callable[[], bytes]]
    tail: bytes


class CatalogApi:
    """These calls on one warehouse. Safe to share between threads."""

    def __init__(self, api: DeltaApi) -> None:
        self._api = api

    def catalogs(self) -> dict[str, Any]:
        return {"catalogs": [self._catalog()], "next_page_token": None}

    def catalog(self, name: str) -> dict[str, Any]:
        self._api.names.check_catalog(name)
        return self._catalog()

    def _catalog(self) -> dict[str, Any]:
        name, directory = self._api.names.catalog, self._api.directory
        return {
            "name": name,
            "comment": None,
            "properties": {},
            "id": str(uuid.uuid5(_NAMESPACE, f"{directory}/{name}")),
            **_NOT_KEPT,
        }

    def schemas(self, catalog: str, max_results: int | None, page_token: str) -> dict[str, Any]:
        self._api.names.check_catalog(catalog)
        schemas = self._api.names.schemas(self._api.live_names())
        page, following = paged(schemas, max_results, page_token)
        return {"schemas": [self._schema(name) for name in page], "next_page_token": following}

    def schema(self, full_name: str) -> dict[str, Any]:
        catalog, _, schema = full_name.partition(".")
        if not schema:
            raise no_such_schema(full_name)
        self._api.check_schema(catalog, schema)
        return self._schema(schema)

    def _schema(self, name: str) -> dict[str, Any]:
        catalog, directory = self._api.names.catalog, self._api.directory
        return {
            "name": name,
            "catalog_name": catalog,
            "full_name": f"{catalog}.{name}",
            "comment": None,
            "properties": {},
            "schema_id": str(uuid.uuid5(_NAMESPACE, f"{directory}/{catalog}.{name}")),
            **_NOT_KEPT,
        }

    def tables(self, catalog: str, schema: str, max_results: int | None, page_token: str) -> dict[str, Any] | Parts:
        """One page; without `max_results`, all tables."""
        page, following = paged(self._api.tables_in(catalog, schema), max_results, page_token)
        if max_results is None:
            return self._parts(catalog, schema, page)
        return {"tables": list(self._described(catalog, schema, page)), "next_page_token": following}

    def _parts(self, catalog: str, schema: str, names: Sequence[str]) -> Parts:
        def part(first: int) -> bytes:
            tables = self._described(catalog, schema, names[first : first + PART])
            return b",".join(msgspec.json.encode(table) for table in tables)

        calls = (partial(part, first) for first in range(0, len(names), PART))
        return Parts(head=b'{"next_page_token":null,"tables":[', calls=calls, tail=b"]}")

    def _described(self, catalog: str, schema: str, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        for name in names:
            try:
                yield self._table(catalog, schema, name)
            except ApiError as error:  # dropped since it was listed, or another table has the name now
                if error.kind not in ("NoSuchTableException", UNSUPPORTED_FORMAT):
                    raise
            except CorruptionError:  # a request for it by name reports that; the others are listed
                continue

    def table(self, full_name: str) -> dict[str, Any]:
        return self._table(*_three_parts(full_name))

    def credentials(self, table_id: str) -> dict[str, Any]:
        """Local files need none; 404 unless a served or staged table has this id."""
        table = self._api.resolve_id(table_id)
        if not is_served(table, live=table.state is not TableState.STAGING):
            raise no_such_table(table_id)
        return {}

    def commit(self, request: CommitById) -> dict[str, Any]:
        if request.commit_info is not None and request.commit_info.is_disown_commit:
            raise bad_request("is_disown_commit is true; this server keeps its tables, so leave it out")
        self._api.update_by_id(request.table_id, request.table_uri, request.updates)
        return {}

    def commits(self, request: CommitsById) -> dict[str, Any]:
        """Newest first."""
        last = request.end_version
        if last is not None and last < request.start_version:
            raise bad_request(f"end_version {last} is below start_version {request.start_version}")
        loaded = self._api.load_by_id(request.table_id, request.table_uri)
        return {
            "commits": [
                msgspec.structs.asdict(commit)
                for commit in loaded.commits or ()
                if request.start_version <= commit.version and (last is None or commit.version <= last)
            ],
            "latest_table_version": loaded.latest_table_version,
        }

    def drop(self, full_name: str) -> dict[str, Any]:
        self._api.drop(*_three_parts(full_name))
        return {}

    def _table(self, catalog: str, schema: str, name: str) -> dict[str, Any]:
        description = self._api.describe(catalog, schema, name)
        return answers.listed_table(catalog, schema, name, description, self._api.changes.of(description))


_NAMESPACE: Final = uuid.UUID("0b2ef6a4-6a3c-4a0b-9a3e-2f6d1f6f5f10")


def paged(names: Sequence[str], max_results: int | None, page_token: str) -> tuple[list[str], str | None]:
    """One page of sorted names, and the token of the next page: the last name of this one, so that it stays valid while
    tables are created and dropped. `max_results` 0: a page of the server's size; None: all names, for clients without
    paging such as DuckDB 1.5.5, which take the first page for everything."""
    waiting = [name for name in names if name > page_token]
    if max_results is None:
        return waiting, None
    size = min(max_results or DEFAULT_PAGE, LARGEST_PAGE)
    page = waiting[:size]
    return page, page[-1] if len(waiting) > size else None


def _three_parts(full_name: str) -> tuple[str, str, str]:
    parts = full_name.split(".")
    if len(parts) != 3:
        raise no_such_table(full_name)
    return parts[0], parts[1], parts[2]
