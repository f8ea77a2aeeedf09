"""Commands about rows: `delete`, `update`, `merge`, `changes`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from refimpl.cli import output
from refimpl.cli.options import (
    PARQUET,
    AnyWarehouseOption,
    FormatOption,
    JsonOption,
    LimitOption,
    OutputOption,
    TableArgument,
    WhereOption,
    moment_of,
    reached,
)
from refimpl.protocol.errors import InvalidRequestError

if TYPE_CHECKING:
    from refimpl.client.row_changes import RowsChanged

commands = typer.Typer()

_PANEL = "Tables"

AllOption = Annotated[bool, Option("--all", help="all rows (instead of --where)")]


_DELETE = """Examples:

commit-owner delete sales --where "month = 3 AND price IS NULL"

commit-owner delete sales --all"""


@commands.command(rich_help_panel=_PANEL, epilog=_DELETE)
def delete(
    table: TableArgument,
    where: WhereOption = None,
    every: AllOption = False,
    address: AnyWarehouseOption = None,
    json: JsonOption = False,
) -> None:
    """Delete rows of a table, in one commit.

    Only files that hold a row to delete are rewritten. A row for which the condition is NULL is not deleted.
    """
    _check_where(where, every)
    with reached(address) as warehouse:
        done = warehouse.table(table).delete(where)
    _show(table, done, f"deleted {output.counted(done.metrics['numDeletedRows'], 'row')}", json=json)


_UPDATE = """Examples:

commit-owner update sales --set "price = price * 2" --where "month = 3"

commit-owner update sales --set "name = 'unknown'" --where "name IS NULL" """


@commands.command(rich_help_panel=_PANEL, epilog=_UPDATE)
def update(
    table: TableArgument,
    set_: Annotated[
        list[str], Option("--set", metavar="COLUMN=SQL", help="new value of a column; SQL on the old row (repeatable)")
    ],
    where: WhereOption = None,
    every: AllOption = False,
    address: AnyWarehouseOption = None,
    json: JsonOption = False,
) -> None:
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
    with reached(address) as warehouse:
        done = warehouse.table(table).update(values, where)
    _show(table, done, f"updated {output.counted(done.metrics['numUpdatedRows'], 'row')}", json=json)


def _check_where(where: str | None, every: bool) -> None:
    if (where is None) != every:
        raise InvalidRequestError("exactly one of --where SQL and --all is required")


_MERGE = """Examples:

commit-owner merge sales updates.parquet --on "target.id = source.id"

commit-owner merge sales gone.parquet --on "target.id = source.id" --matched delete --not-matched ignore"""


@commands.command(rich_help_panel=_PANEL, epilog=_MERGE)
def merge(
    table: TableArgument,
    file: Annotated[Path, Argument(metavar="FILE", help="Parquet file with the source's rows")],
    on: Annotated[str, Option("--on", metavar="SQL", help="condition for a match, such as target.id = source.id")],
    matched: Annotated[
        str, Option("--matched", metavar="ACTION", help="target rows with a match: update, delete or ignore")
    ] = "update",
    not_matched: Annotated[
        str, Option("--not-matched", metavar="ACTION", help="source rows without a match: insert or ignore")
    ] = "insert",
    not_matched_by_source: Annotated[
        str, Option("--not-matched-by-source", metavar="ACTION", help="target rows without a match: delete or ignore")
    ] = "ignore",
    address: AnyWarehouseOption = None,
    json: JsonOption = False,
) -> None:
    """Merge the rows of a Parquet file into a table, in one commit.

    By default, a source row replaces the target row that it matches, or is inserted. Columns are matched by name.
    """
    for option, value, known in (
        ("--matched", matched, ("update", "delete", "ignore")),
        ("--not-matched", not_matched, ("insert", "ignore")),
        ("--not-matched-by-source", not_matched_by_source, ("delete", "ignore")),
    ):
        if value not in known:
            raise InvalidRequestError(f"invalid {option} {value!r}; expected one of {', '.join(known)}")
    with reached(address) as warehouse:
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
    what = ", ".join(f"{name} {output.counted(count, 'row')}" for name, count in counts.items())
    _show(table, done, what, json=json)


def _rows_of(file: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if file.suffix.lower() != PARQUET:
        raise InvalidRequestError(f"unsupported file type {str(file)!r}; expected *{PARQUET}")
    if not file.exists():
        raise InvalidRequestError(f"{file} does not exist")
    try:
        return pq.read_table(file)
    except pa.ArrowException as error:
        problem = str(error).rstrip(".")
        raise InvalidRequestError(f"{file} cannot be read as Parquet: {problem}; expected a Parquet file") from None


def _show(table: str, done: "RowsChanged", what: str, *, json: bool) -> None:
    line = f"committed version {done.version} of {table}: {what}"
    if done.version is None:
        line = f"no row matches; nothing was committed to {table}"
    output.show({"table": table, "version": done.version, "metrics": done.metrics}, line, json=json)


_CHANGES = """Examples:

commit-owner changes sales --from 3

commit-owner changes sales --from-time 2026-11-21T12:00:00 --limit 20 --json"""


@commands.command(rich_help_panel=_PANEL, epilog=_CHANGES)
def changes(
    table: TableArgument,
    from_version: Annotated[int | None, Option("--from", metavar="N", help="first version")] = None,
    to_version: Annotated[int | None, Option("--to", metavar="N", help="last version (default: the latest)")] = None,
    from_time: Annotated[
        str | None,
        Option("--from-time", metavar="TIMESTAMP", help="first version by its time: ISO 8601 or epoch milliseconds"),
    ] = None,
    to_time: Annotated[
        str | None, Option("--to-time", metavar="TIMESTAMP", help="last version by its time (default: the latest)")
    ] = None,
    limit: LimitOption = None,
    kind: FormatOption = None,
    file: OutputOption = None,
    address: AnyWarehouseOption = None,
    json: JsonOption = False,
) -> None:
    """Show the change data feed: rows that were inserted, updated and deleted.

    The property delta.enableChangeDataFeed must be true at all versions that are read.
    """
    if (from_version is None) == (from_time is None):
        raise InvalidRequestError("exactly one of --from N and --from-time TIMESTAMP is required")
    if to_version is not None and to_time is not None:
        raise InvalidRequestError("--to and --to-time are mutually exclusive; pass one of them")
    from refimpl.cli.row_output import chosen_format, write_rows

    chosen = chosen_format(kind, file, json=json)
    with reached(address) as warehouse:
        feed = warehouse.table(table).changes(
            from_version, to_version, from_timestamp=moment_of(None, from_time), to_timestamp=moment_of(None, to_time)
        )
        write_rows(feed, chosen, file, limit, json=json)
