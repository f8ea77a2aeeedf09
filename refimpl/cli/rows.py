"""Commands about rows: `rows`, `delete`, `update`, `changes`."""

from typing import TYPE_CHECKING

from refimpl.cli import options, output
from refimpl.cli.commands import command
from refimpl.cli.output import Result
from refimpl.protocol.errors import InvalidRequestError

if TYPE_CHECKING:
    from refimpl.client.row_changes import RowsChanged
    from refimpl.warehouse import AnyWarehouse

_PANEL = "Rows"


@command(
    _PANEL, 'rows sales --where "month = 3" --columns id,price', "rows sales --version 12 --format csv", server=True
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
    json: bool = False,
) -> None:
    """Show the rows of a table.

    Rows are read in batches: memory does not grow with the table, and reading ends at --limit.
    """
    from refimpl.cli.row_output import chosen_format, write_rows

    chosen = chosen_format(kind, json=json)
    moment = options.moment_of(version, timestamp)
    snapshot = warehouse.table(table).snapshot(version=version, timestamp=moment)
    batches = snapshot.to_batches(options.names_of(columns) or None, where)
    write_rows(batches, chosen, limit)


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
    json: bool = False,
) -> None:
    """Show the change data feed: rows that were inserted, updated and deleted.

    The property delta.enableChangeDataFeed must be true at all versions that are read.
    """
    from refimpl.cli.row_output import chosen_format, write_rows

    chosen = chosen_format(kind, json=json)
    write_rows(warehouse.table(table).changes(from_version, to_version), chosen, limit)
