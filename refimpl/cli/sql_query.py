"""Runs a query in DuckDB on the tables of a warehouse, which it reads through the client."""

import contextlib
import json
import re
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.dataset as arrow_dataset

from refimpl.client.snapshot import Snapshot
from refimpl.client.table import Table
from refimpl.protocol.errors import InvalidRequestError, MissingCallError, TableNotFoundError
from refimpl.schema.schema import to_arrow
from refimpl.warehouse import AnyWarehouse

_BATCH_ROWS: Final = 10_000
_SETTINGS: Final = """
    SET python_enable_replacements = false;
    SET TimeZone = 'UTC';
    SET lock_configuration = true;
"""


class _Rows(arrow_dataset.Dataset):  # type: ignore[misc]
    """A snapshot that DuckDB scans, any number of times: it asks for columns, and filters rows while they are read."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.failure: Exception | None = None
        """The error of a scan, of which DuckDB keeps only the text."""

    @property
    def schema(self) -> pa.Schema:
        return to_arrow(self._snapshot.schema)

    def scanner(self, columns: Sequence[str] | None = None, filter: Any = None) -> Any:  # noqa: A002 - Arrow's name
        source = self._snapshot.to_batches(columns)
        batches = self._filtered(source, filter)
        return SimpleNamespace(to_reader=lambda: pa.RecordBatchReader.from_batches(source.schema, batches))

    def _filtered(self, source: pa.RecordBatchReader, condition: Any) -> Iterator[pa.RecordBatch]:
        try:
            for batch in source:
                yield batch if condition is None else batch.filter(condition)
        except Exception as error:
            self.failure = error
            raise


@contextlib.contextmanager
def run(query: str, warehouse: AnyWarehouse) -> Iterator[pa.RecordBatchReader]:
    """The rows of one SELECT over the tables of the warehouse, each at its newest version, and in one state of an owner
    that can show several tables together.

    Raises `InvalidRequestError` for a query that is not one SELECT, or that DuckDB rejects, `TableNotFoundError`, and
    the errors of reading a table.
    """
    opened: list[_Rows] = []
    with contextlib.ExitStack() as stack:
        with _errors(opened):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="commit-owner-sql-"))
            database = duckdb.connect(config={"enable_external_access": "false", "temp_directory": folder})
            stack.callback(database.close)
            database.execute(_SETTINGS)
            named = {parts: _table(".".join(parts), warehouse) for parts in sorted(_names(database, query))}
            tables = {parts: table for parts, table in named.items() if table is not None}
            snapshots = _snapshots(warehouse, tables.values())
            for number, (parts, snapshot) in enumerate(zip(tables, snapshots, strict=True)):
                opened.append(_Rows(snapshot))
                database.register(f"__{number}", opened[-1])
                _create_view(database, parts, f"__{number}", opened[-1].schema)
            result = database.execute(query).to_arrow_reader(_BATCH_ROWS)
        twice = [name for name, count in Counter(result.schema.names).items() if count > 1]
        if twice:
            raise InvalidRequestError(f"two columns of the result are called {twice[0]!r}; name one otherwise: AS name")
        yield pa.RecordBatchReader.from_batches(result.schema, _checked(result, opened))


def _names(database: Any, query: str) -> set[tuple[str, ...]]:
    """The names in the query, in parts: of tables, and of subqueries (WITH)."""
    (text,) = database.execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchone()
    document = json.loads(text)
    count = len(document.get("statements", ()))
    if document["error"] or count != 1:
        problem = document["error_message"] if document["error"] else f"it has {count} statements"
        if "SELECT" in problem:
            problem = "it is not a SELECT, and nothing is changed here"
        raise InvalidRequestError(f"invalid query: {problem}; expected one SELECT in DuckDB's SQL")
    names: set[tuple[str, ...]] = set()
    nodes = [document]
    for node in nodes:  # which grows
        nodes += [
            child for child in (node.values() if isinstance(node, dict) else node) if isinstance(child, dict | list)
        ]
        kind = node.get("type") if isinstance(node, dict) else None
        if kind == "BASE_TABLE":
            names.add(tuple(filter(None, (node["catalog_name"], node["schema_name"], node["table_name"]))))
        elif kind == "SHOW_REF" and node["query"] is None:
            raise InvalidRequestError("SHOW is not supported here; to list the tables, run: commit-owner show")
    return names


def _table(name: str, warehouse: AnyWarehouse) -> Table | None:
    """The table that SQL names, or None. Names ignore case if one table fits."""
    try:
        return warehouse.table(name)
    except (TableNotFoundError, InvalidRequestError):  # or no valid name
        alike = [known for known in warehouse.tables() if known.lower() == name.lower()]
        return warehouse.table(alike[0]) if len(alike) == 1 else None


def _snapshots(warehouse: AnyWarehouse, tables: Collection[Table]) -> Sequence[Snapshot]:
    """In one state of the owner; one after the other if it has no call for that, and beside tables without an owner."""
    if len(tables) > 1 and all(table.owner is not None for table in tables):
        with contextlib.suppress(MissingCallError):
            return warehouse.snapshots(*(table.table_id or table.location for table in tables))
    return [table.snapshot() for table in tables]


def _create_view(database: Any, parts: Sequence[str], source: str, schema: pa.Schema) -> None:
    """DuckDB itself compares columns with floats: for Arrow, NaN is not the largest number. It passes on comparisons of
    columns, but not those of expressions."""
    quoted = [_quoted(part) for part in parts]
    floats = [_quoted(item.name) for item in schema if "float" in str(item.type) or "double" in str(item.type)]
    replaced = ", ".join(f"CASE WHEN {name} IS NULL THEN NULL ELSE {name} END AS {name}" for name in floats)
    columns = f"* REPLACE ({replaced})" if floats else "*"
    if len(quoted) == 3:
        database.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {quoted[0]}")
    if len(quoted) > 1:
        database.execute(f"CREATE SCHEMA IF NOT EXISTS {'.'.join(quoted[:-1])}")
    database.execute(f"CREATE OR REPLACE VIEW {'.'.join(quoted)} AS SELECT {columns} FROM {source}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _checked(result: pa.RecordBatchReader, opened: Sequence[_Rows]) -> Iterator[pa.RecordBatch]:
    with _errors(opened):
        yield from result


@contextlib.contextmanager
def _errors(opened: Sequence[_Rows]) -> Iterator[None]:
    """DuckDB's errors as `InvalidRequestError`; that of a scan as it was raised."""
    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        for rows in opened:
            if rows.failure is not None:
                raise rows.failure from None
        problem = " ".join(re.split(r"\n\n|\s*Did you mean", str(error))[0].split())
        listed = "; to list the tables, run: commit-owner show" if isinstance(error, duckdb.CatalogException) else ""
        problem = problem.rstrip("!.") if listed else problem
        raise InvalidRequestError(f"DuckDB rejects the query: {problem}{listed}") from error
