"""Commands that read rows: `rows`, `sql`."""

from __future__ import annotations

import importlib.util
from typing import Annotated

import typer
from typer import Argument, Option

from refimpl.cli import options
from refimpl.protocol.errors import InvalidRequestError

commands = typer.Typer()

_PANEL = "Tables"


_ROWS = """Examples:

commit-owner rows sales --where "month = 3" --columns id,price

commit-owner rows sales --version 12 --output sales.parquet"""


@commands.command(rich_help_panel=_PANEL, epilog=_ROWS)
def rows(
    table: options.TableArgument,
    where: options.WhereOption = None,
    columns: Annotated[
        list[str] | None,
        Option("--columns", "-c", metavar="NAME", help="only these columns (repeatable, or joined by commas)"),
    ] = None,
    limit: options.LimitOption = None,
    version: options.VersionOption = None,
    timestamp: options.TimestampOption = None,
    kind: options.FormatOption = None,
    file: options.OutputOption = None,
    address: options.AnyWarehouseOption = None,
    json: options.JsonOption = False,
) -> None:
    """Show the rows of a table, or write them to a file.

    Rows are read in batches: memory does not grow with the table, and reading ends at --limit.
    """
    from refimpl.cli.row_output import chosen_format, write_rows

    chosen = chosen_format(kind, file, json=json)
    moment = options.moment_of(version, timestamp)
    with options.reached(address) as warehouse:
        snapshot = warehouse.table(table).snapshot(version=version, timestamp=moment)
        batches = snapshot.to_batches(options.names_of(columns) or None, where)
        write_rows(batches, chosen, file, limit, json=json)


_SQL = """Examples:

commit-owner sql "SELECT month, sum(price) FROM sales GROUP BY month"

commit-owner sql "FROM sales JOIN people USING (id)" --output joined.parquet"""


@commands.command(rich_help_panel=_PANEL, epilog=_SQL)
def sql(
    query: Annotated[str, Argument(metavar="QUERY", help="one SELECT in DuckDB's SQL")],
    limit: options.LimitOption = None,
    kind: options.FormatOption = None,
    file: options.OutputOption = None,
    address: options.AnyWarehouseOption = None,
    json: options.JsonOption = False,
) -> None:
    """Query the tables of a warehouse with DuckDB. Read-only.

    Only the tables that the query names are opened, each at its newest version; only the columns that it uses are read.
    The query cannot read files.
    """
    if importlib.util.find_spec("duckdb") is None:
        raise InvalidRequestError("sql needs DuckDB; install it with: pip install 'delta-commit-owner[sql]'")
    from refimpl.cli.row_output import chosen_format, write_rows
    from refimpl.cli.sql_query import run

    chosen = chosen_format(kind, file, json=json)
    with options.reached(address) as warehouse, run(query, warehouse) as batches:
        write_rows(batches, chosen, file, limit, json=json)
