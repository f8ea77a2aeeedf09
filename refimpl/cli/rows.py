"""Commands about rows: `rows` and `ingest`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from refimpl.cli import options, output
from refimpl.cli.commands import command
from refimpl.cli.output import Result
from refimpl.protocol.errors import InvalidRequestError

if TYPE_CHECKING:
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
