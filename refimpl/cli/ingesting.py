"""The command `ingest`: commits the rows of files as one version."""

import dataclasses
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
    from refimpl.spark.commit_protocol import JobFiles, WriteTask
    from refimpl.spark.write_plan import WriteOptions, Written
    from refimpl.warehouse import AnyWarehouse


@command(
    "Rows",
    "ingest sales 2026-10.parquet 2026-11.parquet",
    "ingest sales day.csv --null NA --mode overwrite --replace-where 'month = 11'",
    "ingest events events.csv --create --partition-by day",
    server=True,
)
def ingest(
    warehouse: "AnyWarehouse",
    table: str,
    files: list[Path],
    mode: str = "append",
    replace_where: str | None = None,
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
    if replace_where is not None and mode != "overwrite":
        raise InvalidRequestError("--replace-where requires --mode overwrite")
    from refimpl.rows.input_files import Dialect, InputFiles
    from refimpl.spark.write_plan import WriteOptions

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
    write = WriteOptions(overwrite=mode == "overwrite", replace_where=replace_where)
    existing = _table(warehouse, table, create=create)
    written: Written | None = None
    if existing is None:
        try:
            written = _create(warehouse, table, inputs, write, creation)
        except NameTakenError:  # by another process, meanwhile
            existing = warehouse.table(table)
    if existing is not None:
        written = _change(existing, inputs, write, fill_missing=fill_missing)
    return _result(table, written)


def _table(warehouse: "AnyWarehouse", name: str, *, create: bool) -> "Table | None":
    try:
        return warehouse.table(name)
    except TableNotFoundError as error:
        if create:
            return None
        raise TableNotFoundError(f"{error}; pass --create to create it from these rows", reference=name) from None


def _write(files: "InputFiles", task: "WriteTask") -> "JobFiles":
    from refimpl.rows.data_files import DataFileWriter
    from refimpl.spark.commit_protocol import JobFiles

    rules, batches = task.rules, files.batches()
    rows = batches if rules is None else (rules.completed(batch) for batch in batches)
    adds = DataFileWriter(task.layout, indexed=task.indexed).write_all(rows)
    reached = {} if rules is None else {name: (value,) for name, value in rules.reached.items()}
    return JobFiles(added=tuple(adds), identities=reached)


def _change(table: "Table", inputs: "InputFiles", options: "WriteOptions", *, fill_missing: bool) -> "Written | None":
    """Commit the rows to a table; None if there is nothing to commit."""
    from refimpl.spark.write_plan import WritePlan

    snapshot = table.snapshot()
    plan = WritePlan.of(snapshot, snapshot.schema, options, in_utc=True)
    typed = inputs.typed(plan.schema)
    absent = plan.schema.without([*typed.columns, *plan.rules.filled])
    absent_names = {column.name: column.nullable for column in absent.fields} | typed.missing_members()
    _check_complete(absent_names, table.label, fill_missing=fill_missing)
    transaction = plan.begin(table, snapshot=snapshot)
    assert transaction is not None  # the rows are not the batch of an application
    files = _write(typed, plan.task)
    return plan.commit(transaction, files) if files.added or options.overwrite else None


def _check_complete(absent: dict[str, bool], table: str, *, fill_missing: bool) -> None:
    """Raise `InvalidRequestError` for columns and members of structs that the files lack and that the table does not
    fill. `absent`: whether each may be null."""
    required = [name for name, nullable in absent.items() if not nullable]
    if required or (absent and not fill_missing):
        names = ", ".join(map(repr, required or absent))
        remedy = "they must not be null: add them" if required else "add them, or pass --fill-missing to write null"
        raise InvalidRequestError(f"the files lack the columns {names} of {table}; {remedy}")


def _create(
    warehouse: "AnyWarehouse",
    name: str,
    inputs: "InputFiles",
    options: "WriteOptions",
    creation_options: dict[str, Any],
) -> "Written":
    """Create the table with the rows in version 0."""
    from refimpl.client.create import Creation
    from refimpl.rows import file_statistics
    from refimpl.rows.partition_values import FileLayout
    from refimpl.spark.commit_protocol import WriteTask
    from refimpl.spark.write_plan import check_inside, describe, replaced

    schema = inputs.inferred()
    creation = Creation.begin(warehouse.owner, warehouse.environment, name, schema, **creation_options)
    adds: Sequence[Add] = ()
    try:
        columns = creation.metadata.partition_columns
        test = replaced(options, creation.schema, columns, in_utc=True)
        indexed = file_statistics.indexed(creation.schema.without(columns), {})
        layout = FileLayout(location=creation.location, schema=creation.schema, partition_columns=columns)
        adds = _write(inputs.typed(creation.schema), WriteTask(layout=layout, indexed=indexed)).added
        check_inside(adds, test)
    except BaseException:
        creation.abandon(adds)
        raise
    creation.finish(adds)
    return describe(0, adds)


def _result(table: str, written: "Written | None") -> Result:
    if written is None:
        nothing = dict.fromkeys(("files", "rows", "bytes", "removed", "tries", "rebased_over"), 0)
        return Result({"table": table, "version": None, **nothing}, f"no rows; nothing was committed to {table}")
    removed = f", removed {output.counted(written.removed, 'file')}" if written.removed else ""
    races = f", after {output.counted(written.tries - 1, 'lost race')}" if written.tries > 1 else ""
    rows, files = output.counted(written.rows, "row"), output.counted(written.files, "file")
    made = f"{rows} in {files} ({output.size(written.bytes)})"
    return Result(
        {"table": table, **dataclasses.asdict(written)},
        f"committed version {written.version} of {table}: {made}{removed}{races}",
    )
