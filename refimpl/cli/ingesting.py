"""The command `ingest`: commits the rows of files as one version."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refimpl.cli import options, output
from refimpl.cli.commands import command
from refimpl.cli.output import Result
from refimpl.protocol.errors import InvalidRequestError, NameTakenError, TableNotFoundError

if TYPE_CHECKING:
    from refimpl.client.table import Table
    from refimpl.protocol.actions import Add
    from refimpl.rows.input_files import InputFiles
    from refimpl.warehouse import AnyWarehouse


@command(
    "Rows",
    "ingest sales 2026-10.parquet 2026-11.parquet",
    "ingest sales day.csv --null NA --mode overwrite",
    "ingest events events.csv --create --partition-by day",
    server=True,
)
def ingest(
    warehouse: "AnyWarehouse",
    table: str,
    files: list[Path],
    mode: str = "append",
    create: bool = False,
    partition_by: list[str] | None = None,
    feature: str | None = None,
    commit_mode: str | None = None,
    null: str = "",
    delimiter: str = ",",
    quote: str = '"',
    encoding: str = "utf-8",
    fill_missing: bool = False,
) -> Result:
    """Add the rows of CSV or Parquet files to a table.

    All files become one atomic commit. Columns are matched by name. An append without rows commits nothing. CSV files
    are RFC 4180 in UTF-8: a value with a quote, a delimiter or a line break is quoted, and quotes in it are doubled.
    """
    if mode not in ("append", "overwrite"):
        raise InvalidRequestError(f"invalid --mode {mode!r}; expected append or overwrite")
    if not create and (partition_by or feature or commit_mode):
        raise InvalidRequestError("--partition-by, --feature and --commit-mode require --create")
    from refimpl.rows.input_files import Dialect, InputFiles

    chosen = options.commit_mode_named(commit_mode)
    creation: dict[str, Any] = {"partition_columns": options.names_of(partition_by)}
    creation |= {} if feature is None else {"feature": options.feature_named(feature)}
    creation |= {} if chosen is None else {"commit_mode": chosen}
    separator = "\t" if delimiter == "\\t" else delimiter
    dialect = Dialect(delimiter=separator, quote=quote, null=null, encoding=encoding)
    kinds = {options.format_of(path) for path in files}
    if len(kinds) > 1:
        raise InvalidRequestError("CSV and Parquet files cannot be mixed in one commit; ingest them separately")
    inputs = InputFiles.of(files, kind=kinds.pop(), dialect=dialect)
    existing = _table(warehouse, table, create=create)
    if existing is None:
        try:
            return _create(warehouse, table, inputs, creation)
        except NameTakenError:  # by another process, meanwhile
            existing = warehouse.table(table)
    return _change(existing, table, inputs, overwrite=mode == "overwrite", fill_missing=fill_missing)


def _table(warehouse: "AnyWarehouse", name: str, *, create: bool) -> "Table | None":
    try:
        return warehouse.table(name)
    except TableNotFoundError as error:
        if create:
            return None
        raise TableNotFoundError(f"{error}; pass --create to create it from these rows", reference=name) from None


def _change(table: "Table", name: str, inputs: "InputFiles", *, overwrite: bool, fill_missing: bool) -> Result:
    snapshot, parameters = table.snapshot(), {"mode": "Overwrite" if overwrite else "Append"}
    transaction = table.transaction(snapshot=snapshot, parameters=parameters, landed=table.checkpoint_if_due)
    typed, removed = inputs.typed(snapshot.schema), transaction.read_whole_table() if overwrite else []
    absent = snapshot.schema.without([*typed.columns, *transaction.rules.filled])
    absent_names = {column.name: column.nullable for column in absent.fields} | typed.missing_members()
    _check_complete(absent_names, table.label, fill_missing=fill_missing)
    transaction.keeps_row_ids = True  # it copies no rows
    transaction.remove(*removed)
    rows = (transaction.rules.completed(batch) for batch in typed.batches())
    adds = transaction.data_file_writer().write_all(rows)
    if not (adds or overwrite):
        return _result(name, None, (), tries=0)
    with transaction.deleting_unless_landed(adds):
        transaction.add(*adds)
        done = transaction.commit()
    return _result(name, done.version, adds, removed=len(removed), tries=done.tries, rebased_over=done.rebased_over)


def _check_complete(absent: dict[str, bool], table: str, *, fill_missing: bool) -> None:
    """Raise `InvalidRequestError` for columns and members of structs that the files lack and that the table does not
    fill. `absent`: whether each may be null."""
    required = [name for name, nullable in absent.items() if not nullable]
    if required or (absent and not fill_missing):
        names = ", ".join(map(repr, required or absent))
        remedy = "they must not be null: add them" if required else "add them, or pass --fill-missing to write null"
        raise InvalidRequestError(f"the files lack the columns {names} of {table}; {remedy}")


def _create(warehouse: "AnyWarehouse", name: str, inputs: "InputFiles", options: dict[str, Any]) -> Result:
    """Create the table with the rows in version 0."""
    from refimpl.client.create import Creation
    from refimpl.rows import file_statistics
    from refimpl.rows.data_files import DataFileWriter
    from refimpl.rows.partition_values import FileLayout

    creation = Creation.begin(warehouse.owner, warehouse.environment, name, inputs.inferred(), **options)
    adds: Sequence[Add] = ()
    try:
        columns = creation.metadata.partition_columns
        indexed = file_statistics.indexed(creation.schema.without(columns), {})
        layout = FileLayout(location=creation.location, schema=creation.schema, partition_columns=columns)
        adds = DataFileWriter(layout, indexed=indexed).write_all(inputs.typed(creation.schema).batches())
    except BaseException:
        creation.abandon(adds)
        raise
    creation.finish(adds)
    return _result(name, 0, adds)


def _result(
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
