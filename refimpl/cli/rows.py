"""Commands about rows: `rows`, `sql`, `delete`, `update`, `merge`, `changes`."""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refimpl.cli import options, output
from refimpl.cli.commands import command
from refimpl.cli.output import Result
from refimpl.protocol.errors import InvalidRequestError
from refimpl.protocol.release import how_to_install

if TYPE_CHECKING:
    from refimpl.client.row_changes import RowsChanged
    from refimpl.warehouse import AnyWarehouse

_PANEL = "Rows"


@command(
    _PANEL,
    'rows sales --where "month = 3" --columns id,price',
    "rows sales --version 12 --output sales.parquet",
    server=True,
)
def rows(
    warehouse: "AnyWarehouse",
    table: str,
    where: str | None = None,
    columns: list[str] | None = None,
    limit: int | None = None,
    version: int | None = None,
    timestamp: str | None = None,
    kind: str | None = None,
    file: Path | None = None,
    json: bool = False,
) -> None:
    """Show the rows of a table, or write them to a file.

    Rows are read in batches: memory does not grow with the table, and reading ends at --limit.
    """
    from refimpl.cli.row_output import chosen_format, write_rows

    chosen = chosen_format(kind, file, json=json)
    moment = options.moment_of(version, timestamp)
    snapshot = warehouse.table(table).snapshot(version=version, timestamp=moment)
    batches = snapshot.to_batches(options.names_of(columns) or None, where)
    write_rows(batches, chosen, file, limit, json=json)


@command(
    _PANEL,
    'sql "SELECT month, sum(price) FROM sales GROUP BY month"',
    'sql "FROM sales JOIN people USING (id)" --output joined.parquet',
    server=True,
)
def sql(
    warehouse: "AnyWarehouse",
    query: str,
    limit: int | None = None,
    kind: str | None = None,
    file: Path | None = None,
    json: bool = False,
) -> None:
    """Query the tables of a warehouse with DuckDB. Read-only.

    Only the tables that the query names are opened, each at its newest version, and of a transaction over several of
    them all or nothing is read. Only the columns that the query uses are read. The query cannot read files.
    """
    if importlib.util.find_spec("duckdb") is None:
        raise InvalidRequestError(f"sql needs DuckDB; install it with: {how_to_install('sql')}")
    from refimpl.cli.row_output import chosen_format, write_rows
    from refimpl.cli.sql_query import run

    chosen = chosen_format(kind, file, json=json)
    with run(query, warehouse) as batches:
        write_rows(batches, chosen, file, limit, json=json)


@command(_PANEL, 'delete sales --where "month = 3 AND price IS NULL"', "delete sales --all", server=True)
def delete(warehouse: "AnyWarehouse", table: str, where: str | None = None, every: bool = False) -> Result:
    """Delete rows of a table, in one commit.

    Only files that hold a row to delete are rewritten. A row for which the condition is NULL is not deleted.
    """
    _check_where(where, every)
    done = warehouse.table(table).delete(where)
    return _changed(table, done, f"deleted {output.counted(done.metrics['numDeletedRows'], 'row')}")


@command(
    _PANEL,
    'update sales --set "price = price * 2" --where "month = 3"',
    'update sales --set "name = \'unknown\'" --where "name IS NULL"',
    server=True,
)
def update(
    warehouse: "AnyWarehouse", table: str, set_: list[str], where: str | None = None, every: bool = False
) -> Result:
    """Set columns of rows of a table, in one commit.

    Only files that hold a row to change are rewritten. A row for which the condition is NULL is not changed.
    """
    _check_where(where, every)
    values: dict[str, str] = {}
    for pair in set_:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise InvalidRequestError(f'invalid --set {pair!r}; expected COLUMN=SQL, such as "price = price * 2"')
        if name.strip() in values:
            raise InvalidRequestError(f"--set names the column {name.strip()!r} twice; pass one value for each column")
        values[name.strip()] = value.strip()
    done = warehouse.table(table).update(values, where)
    return _changed(table, done, f"updated {output.counted(done.metrics['numUpdatedRows'], 'row')}")


def _check_where(where: str | None, every: bool) -> None:
    if (where is None) != every:
        raise InvalidRequestError("exactly one of --where SQL and --all is required")


_ACTIONS = {
    "--matched": ("update", "delete", "ignore"),
    "--not-matched": ("insert", "ignore"),
    "--not-matched-by-source": ("delete", "ignore"),
}


@command(
    _PANEL,
    'merge sales updates.parquet --on "target.id = source.id"',
    'merge sales gone.parquet --on "target.id = source.id" --matched delete --not-matched ignore',
    server=True,
)
def merge(
    warehouse: "AnyWarehouse",
    table: str,
    file: Path,
    on: str,
    matched: str = "update",
    not_matched: str = "insert",
    not_matched_by_source: str = "ignore",
) -> Result:
    """Merge the rows of a Parquet file into a table, in one commit.

    By default, a source row replaces the target row that it matches, or is inserted. Columns are matched by name.
    """
    for (option, known), value in zip(_ACTIONS.items(), (matched, not_matched, not_matched_by_source), strict=True):
        if value not in known:
            raise InvalidRequestError(f"invalid {option} {value!r}; expected one of {', '.join(known)}")
    work = warehouse.table(table).merge(_rows_of(file), on)
    if matched == "update":
        work.when_matched_update_all()
    elif matched == "delete":
        work.when_matched_delete()
    if not_matched == "insert":
        work.when_not_matched_insert_all()
    if not_matched_by_source == "delete":
        work.when_not_matched_by_source_delete()
    done = work.execute()
    counts = {what: done.metrics[f"numTargetRows{what.title()}"] for what in ("inserted", "updated", "deleted")}
    return _changed(table, done, ", ".join(f"{name} {output.counted(count, 'row')}" for name, count in counts.items()))


def _rows_of(file: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if file.suffix.lower() != options.PARQUET:
        raise InvalidRequestError(f"unsupported file type {str(file)!r}; expected *{options.PARQUET}")
    if not file.exists():
        raise InvalidRequestError(f"{file} does not exist")
    try:
        return pq.read_table(file)
    except pa.ArrowException as error:
        problem = str(error).rstrip(".")
        raise InvalidRequestError(f"{file} cannot be read as Parquet: {problem}; expected a Parquet file") from None


def _changed(table: str, done: "RowsChanged", what: str) -> Result:
    line = f"committed version {done.version} of {table}: {what}"
    if done.version is None:
        line = f"no row matches; nothing was committed to {table}"
    return Result({"table": table, "version": done.version, "metrics": done.metrics}, line)


@command(_PANEL, "changes sales --from 3", "changes sales --from 3 --to 5 --limit 20 --json", server=True)
def changes(
    warehouse: "AnyWarehouse",
    table: str,
    from_version: int,
    to_version: int | None = None,
    limit: int | None = None,
    kind: str | None = None,
    file: Path | None = None,
    json: bool = False,
) -> None:
    """Show the change data feed: rows that were inserted, updated and deleted.

    The property delta.enableChangeDataFeed must be true at all versions that are read.
    """
    from refimpl.cli.row_output import chosen_format, write_rows

    chosen = chosen_format(kind, file, json=json)
    write_rows(warehouse.table(table).changes(from_version, to_version), chosen, file, limit, json=json)
