"""The command `ingest`: commits the rows of files as one version, in this process or through Spark."""

import contextlib
import dataclasses
import functools
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from refimpl.cli import options, output
from refimpl.cli.commands import command
from refimpl.cli.output import Result
from refimpl.protocol.errors import InvalidRequestError, NameTakenError, TableNotFoundError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from refimpl.client.table import Table
    from refimpl.protocol.actions import Add
    from refimpl.rows.input_files import InputFiles
    from refimpl.schema.schema import Struct
    from refimpl.spark.commit_protocol import JobFiles, WriteTask
    from refimpl.spark.ingestion import Job
    from refimpl.spark.write_plan import WriteOptions, Written
    from refimpl.warehouse import AnyWarehouse

LIMIT: Final = 64 * 1024 * 1024
"""Bytes of files that are read in this process; more go through Spark."""


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
    escape: str = "",
    encoding: str = "utf-8",
    fill_missing: bool = False,
    through_spark: bool = False,
    cores: int | None = None,
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
    dialect = Dialect(delimiter=separator, quote=quote, escape=escape, null=null, encoding=encoding)
    inputs = InputFiles.of(files, kind=_kind(files), dialect=dialect)
    write = WriteOptions(overwrite=mode == "overwrite", replace_where=replace_where)
    big = through_spark or inputs.size > LIMIT or any(path.is_dir() for path in files)
    with _ThroughSpark(inputs, cores) if big else contextlib.nullcontext(_Here()) as engine:
        existing = _table(warehouse, table, create=create)
        written: Written | None = None
        if existing is None:
            try:
                written = _create(warehouse, table, inputs, engine, write, creation)
            except NameTakenError:  # by another process, meanwhile
                existing = warehouse.table(table)
        if existing is not None:
            written = _change(existing, inputs, engine, write, fill_missing=fill_missing)
    return _result(table, written)


def _kind(files: list[Path]) -> str:
    """CSV or Parquet, by the names of the files, or of those in a folder without a suffix. All must have one format."""
    from refimpl.rows.input_files import CSV, PARQUET, inside

    kinds = set()
    for path in files:
        named = path.suffix.lower() in (CSV, PARQUET)
        files_inside = [] if named else inside(path)
        kinds |= (
            {options.format_of(path)}
            if named or not path.is_dir()
            else {options.format_of(file.path) for file in files_inside}
        )
    if len(kinds) > 1:
        raise InvalidRequestError("CSV and Parquet files cannot be mixed in one commit; ingest them separately")
    return kinds.pop()


def _table(warehouse: "AnyWarehouse", name: str, *, create: bool) -> "Table | None":
    try:
        return warehouse.table(name)
    except TableNotFoundError as error:
        if create:
            return None
        raise TableNotFoundError(f"{error}; pass --create to create it from these rows", reference=name) from None


class _Here:
    """Reads and writes in this process."""

    def inferred(self, files: "InputFiles") -> "Struct":
        return files.inferred()

    def write(self, files: "InputFiles", task: "WriteTask") -> "JobFiles":
        from refimpl.rows.data_files import DataFileWriter
        from refimpl.spark.commit_protocol import JobFiles

        rules, batches = task.rules, files.batches()
        rows = batches if rules is None else (rules.completed(batch) for batch in batches)
        adds = DataFileWriter(task.layout, indexed=task.indexed).write_all(rows)
        reached = {} if rules is None else {name: (value,) for name, value in rules.reached.items()}
        return JobFiles(added=tuple(adds), identities=reached)


class _ThroughSpark:
    """Reads and writes in Spark's tasks. Spark starts with the first of them, and stops at the end; a session that
    already runs in this process is used, and not stopped."""

    def __init__(self, inputs: "InputFiles", cores: int | None) -> None:
        self._inputs = inputs
        self._cores = cores
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def inferred(self, files: "InputFiles") -> "Struct":
        return self._job.inferred(files)

    def write(self, files: "InputFiles", task: "WriteTask") -> "JobFiles":
        return self._job.write(files, task)

    @functools.cached_property
    def _job(self) -> "Job":
        from refimpl.spark.ingestion import Job

        what = output.counted(len(self._inputs.files), "file")
        output.show_hint(f"reading {what} ({output.size(self._inputs.size)}) through Spark")
        spark = _running_session()
        if spark is None:
            spark = _quietly_started(self._cores)
            self._stack.callback(spark.stop)
        return Job.of(spark, self._inputs, lambda ended, all_: output.show_hint(f"{ended} of {all_} tasks ended"))


def _running_session() -> "SparkSession | None":
    try:
        from pyspark.sql import SparkSession
    except ImportError:  # `local_session` reports what is missing
        return None
    return SparkSession.getActiveSession()


def _quietly_started(cores: int | None) -> "SparkSession":
    """Start Spark, and discard Java's output on the standard error, which does not help users."""
    from refimpl.spark import local_session

    with tempfile.TemporaryFile() as nowhere:
        kept = os.dup(2)
        os.dup2(nowhere.fileno(), 2)
        try:
            return local_session(app_name="commit-owner ingest", cores=cores)
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _change(
    table: "Table", inputs: "InputFiles", engine: _Here | _ThroughSpark, options: "WriteOptions", *, fill_missing: bool
) -> "Written | None":
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
    files = engine.write(typed, plan.task)
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
    engine: _Here | _ThroughSpark,
    options: "WriteOptions",
    creation_options: dict[str, Any],
) -> "Written":
    """Create the table with the rows in version 0."""
    from refimpl.client.create import Creation
    from refimpl.rows import file_statistics
    from refimpl.rows.partition_values import FileLayout
    from refimpl.spark.commit_protocol import WriteTask
    from refimpl.spark.write_plan import check_inside, describe, replaced

    schema = engine.inferred(inputs)
    creation = Creation.begin(warehouse.owner, warehouse.environment, name, schema, **creation_options)
    adds: Sequence[Add] = ()
    try:
        columns = creation.metadata.partition_columns
        test = replaced(options, creation.schema, columns, in_utc=True)
        indexed = file_statistics.indexed(creation.schema.without(columns), {})
        layout = FileLayout(location=creation.location, schema=creation.schema, partition_columns=columns)
        adds = engine.write(inputs.typed(creation.schema), WriteTask(layout=layout, indexed=indexed)).added
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
