"""Commands about rows: `rows`, `ingest`, `delete`, `update`, `changes`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from refimpl.cli import options, output
from refimpl.cli.commands import command
from refimpl.cli.output import Result
from refimpl.protocol.errors import InvalidRequestError

if TYPE_CHECKING:
    from refimpl.client.row_changes import RowsChanged
    from refimpl.client.table import Table
    from refimpl.protocol.actions import Add
    from refimpl.rows.input_files import InputFiles
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


@command(
    _PANEL, "ingest sales 2026-10.csv 2026-11.csv.gz", "ingest sales day.csv --null NA --mode overwrite", server=True
)
def ingest(
    warehouse: "AnyWarehouse",
    table: str,
    files: list[Path],
    mode: str = "append",
    null: str = "",
    delimiter: str = ",",
    fill_missing: bool = False,
) -> Result:
    """Add the rows of CSV files to a table.

    All files become one atomic commit. Columns are matched by name. An append without rows commits nothing. The files
    are RFC 4180 in UTF-8: a value with a quote, a delimiter or a line break is quoted, and quotes in it are doubled.
    """
    if mode not in ("append", "overwrite"):
        raise InvalidRequestError(f"invalid --mode {mode!r}; expected append or overwrite")
    from refimpl.rows.input_files import Dialect, InputFiles

    dialect = Dialect(delimiter="\t" if delimiter == "\\t" else delimiter, null=null)
    for path in files:
        if not path.name.lower().endswith((".csv", ".csv.gz")):
            raise InvalidRequestError(f"unsupported file type {str(path)!r}; expected a file *.csv or *.csv.gz")
    inputs = InputFiles.of(files, dialect)
    return _change(warehouse.table(table), table, inputs, overwrite=mode == "overwrite", fill_missing=fill_missing)


def _change(table: "Table", name: str, inputs: "InputFiles", *, overwrite: bool, fill_missing: bool) -> Result:
    snapshot, parameters = table.snapshot(), {"mode": "Overwrite" if overwrite else "Append"}
    transaction = table.transaction(snapshot=snapshot, parameters=parameters, landed=table.checkpoint_if_due)
    typed, removed = inputs.typed(snapshot.schema), transaction.read_whole_table() if overwrite else []
    absent = snapshot.schema.without([*typed.columns, *transaction.rules.filled])
    absent_names = {column.name: column.nullable for column in absent.fields}
    _check_complete(absent_names, table.label, fill_missing=fill_missing)
    transaction.keeps_row_ids = True  # it copies no rows
    transaction.remove(*removed)
    rows = (transaction.rules.completed(batch) for batch in typed.batches())
    adds = transaction.data_file_writer().write_all(rows)
    if not (adds or overwrite):
        return _ingested(name, None, (), tries=0)
    with transaction.deleting_unless_landed(adds):
        transaction.add(*adds)
        done = transaction.commit()
    return _ingested(name, done.version, adds, removed=len(removed), tries=done.tries, rebased_over=done.rebased_over)


def _check_complete(absent: dict[str, bool], table: str, *, fill_missing: bool) -> None:
    """Raise `InvalidRequestError` for columns that the files lack and that the table does not fill. `absent`: whether
    each may be null."""
    required = [name for name, nullable in absent.items() if not nullable]
    if required or (absent and not fill_missing):
        names = ", ".join(map(repr, required or absent))
        remedy = "they must not be null: add them" if required else "add them, or pass --fill-missing to write null"
        raise InvalidRequestError(f"the files lack the columns {names} of {table}; {remedy}")


def _ingested(
    table: str, version: int | None, adds: "Sequence[Add]", *, removed: int = 0, tries: int = 1, rebased_over: int = 0
) -> Result:
    from refimpl.rows.file_statistics import row_count

    rows, size = sum(row_count(add) or 0 for add in adds), sum(add.size for add in adds)
    counts = {"files": len(adds), "rows": rows, "bytes": size, "removed": removed}
    document = {"table": table, "version": version, **counts, "tries": tries, "rebased_over": rebased_over}
    if version is None:
        return Result(document, f"no rows; nothing was committed to {table}")
    gone = f", removed {output.counted(removed, 'file')}" if removed else ""
    races = f", after {output.counted(tries - 1, 'lost race')}" if tries > 1 else ""
    made = f"{output.counted(rows, 'row')} in {output.counted(len(adds), 'file')} ({output.size(size)})"
    return Result(document, f"committed version {version} of {table}: {made}{gone}{races}")


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
