"""The command `ingest`: commits the rows of files as one version, through Spark."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import gzip
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import unquote

import typer
from typer import Argument, Option

from refimpl.cli import output
from refimpl.cli.options import (
    PARQUET,
    AnyWarehouseOption,
    JsonOption,
    commit_mode_named,
    feature_named,
    format_of,
    names_of,
    reached,
)
from refimpl.cli.output import is_of_spark
from refimpl.errors import InvalidRequestError, TableNotFoundError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from refimpl.client.schema import Struct
    from refimpl.client.table import Table
    from refimpl.spark import DeltaConnection
    from refimpl.spark.write_plan import Written
    from refimpl.warehouse import AnyWarehouse


commands = typer.Typer()


_INGEST = """Examples:

commit-owner ingest sales 2026-10.parquet 2026-11.parquet

commit-owner ingest sales day.csv --null NA --mode overwrite --replace-where 'month = 11'

commit-owner ingest events events.csv --create --partition-by day"""


@commands.command(rich_help_panel="Tables", epilog=_INGEST)
def ingest(
    table: Annotated[str, Argument(metavar="TABLE", help="name of the table")],
    files: Annotated[list[Path], Argument(metavar="FILE", help="CSV files with a header, or Parquet files")],
    mode: Annotated[str, Option("--mode", metavar="MODE", help="write mode: append or overwrite")] = "append",
    replace_where: Annotated[
        str | None,
        Option("--replace-where", metavar="SQL", help="replace only these partitions (only with --mode overwrite)"),
    ] = None,
    create: Annotated[bool, Option("--create", help="create the table if it does not exist")] = False,
    partition_by: Annotated[
        list[str] | None,
        Option("--partition-by", "-p", metavar="COLUMN", help="partition columns of the new table (with --create)"),
    ] = None,
    feature: Annotated[
        str | None, Option("--feature", metavar="FEATURE", help="table feature of the new table (with --create)")
    ] = None,
    commit_mode: Annotated[
        str | None, Option("--commit-mode", metavar="MODE", help="commit mode of the new table (with --create)")
    ] = None,
    null: Annotated[
        str, Option("--null", metavar="TEXT", help="text that means null in a CSV file (default: the empty text)")
    ] = "",
    delimiter: Annotated[str, Option("--delimiter", metavar="CHARACTER", help="column delimiter of a CSV file")] = ",",
    multi_line: Annotated[
        bool, Option("--multi-line", help="allow line breaks in quoted values of a CSV file (slower)")
    ] = False,
    fill_missing: Annotated[
        bool, Option("--fill-missing", help="write null to columns that the files do not have")
    ] = False,
    cores: Annotated[
        int | None, Option("--cores", min=1, metavar="N", help="CPU cores for Spark (default: all)")
    ] = None,
    address: AnyWarehouseOption = None,
    json: JsonOption = False,
) -> None:
    """Add the rows of CSV or Parquet files to a table, through Spark.

    All files become one atomic commit. Columns are matched by name. An append without rows commits nothing.
    """
    if mode not in ("append", "overwrite"):
        raise InvalidRequestError(f"invalid --mode {mode!r}; expected append or overwrite")
    if not create and (partition_by or feature or commit_mode):
        raise InvalidRequestError("--partition-by, --feature and --commit-mode require --create")
    if replace_where is not None and mode != "overwrite":
        raise InvalidRequestError("--replace-where requires --mode overwrite")
    options, kind = _options(replace_where, feature, commit_mode), _kind(files)
    csv_options = {**_csv(null, delimiter), "multiLine": str(multi_line).lower()}
    names = _columns_of_parquet(files) if kind == PARQUET else _header(files, csv_options["sep"])
    with reached(address) as warehouse:
        existing = _table(warehouse, table, create=create)
        schema = None if existing is None else existing.snapshot().schema
        if schema is not None and not fill_missing:
            _check_complete(schema, names, table)
        source = _Input(kind=kind, files=files, names=names, options=csv_options, schema=schema)
        with _connected(warehouse, cores) as delta, _explained(delta.spark, source):
            rows = _rows(delta.spark, source)
            empty = rows.isEmpty()
            if empty and schema is None and kind != PARQUET:
                raise InvalidRequestError(
                    f"no rows in {_listed(files)}; types cannot be inferred; create the table first: "
                    f"commit-owner create {table}"
                )
            writer = delta.write(rows).mode(mode)
            for option, value in options:
                writer.option(option, value)
            if existing is None and partition_by:
                writer.partitionBy(*names_of(partition_by))
            written = None if empty and schema is not None and mode == "append" else writer.saveAsTable(table)
    _show(table, written, json=json)


def _options(replace_where: str | None, feature: str | None, commit_mode: str | None) -> list[tuple[str, str]]:
    """The writer's options, checked before Spark starts."""
    options = [("partitionOverwriteMode", "static")]  # whatever the default of the session is
    if replace_where is not None:
        options.append(("replaceWhere", replace_where))
    if feature is not None:
        options.append(("feature", feature_named(feature).name))
    chosen = commit_mode_named(commit_mode)
    if chosen is not None:
        options.append(("commitMode", chosen.value))
    return options


def _kind(files: list[Path]) -> str:
    """CSV or Parquet, by the files' names. All files must have the same format."""
    kinds: set[str] = set()
    for path in files:
        if not path.exists():
            raise InvalidRequestError(f"{path} does not exist")
        kinds.add(format_of(path))
    if len(kinds) > 1:
        raise InvalidRequestError("CSV and Parquet files cannot be mixed in one commit; ingest them separately")
    return kinds.pop()


def _table(warehouse: AnyWarehouse, name: str, *, create: bool) -> Table | None:
    try:
        return warehouse.table(name)
    except TableNotFoundError as error:
        if create:
            return None
        raise TableNotFoundError(f"{error}; pass --create to create it from these rows", reference=name) from None


@contextlib.contextmanager
def _connected(warehouse: AnyWarehouse, cores: int | None) -> Iterator[DeltaConnection]:
    """Spark for the duration of a command. A session that already runs in this process is used, and not stopped."""
    import refimpl.spark

    running = _running_session()
    spark = running or _quietly_started(cores)
    try:
        yield refimpl.spark.connect(spark, warehouse)
    finally:
        if running is None:
            spark.stop()


def _running_session() -> SparkSession | None:
    try:
        from pyspark.sql import SparkSession
    except ImportError:  # `local_session` reports what is missing
        return None
    return SparkSession.getActiveSession()


def _quietly_started(cores: int | None) -> SparkSession:
    """Start Spark, and discard Java's output on the standard error, which does not help users."""
    from refimpl.spark import local_session

    with tempfile.TemporaryFile() as nowhere:
        kept = os.dup(2)
        os.dup2(nowhere.fileno(), 2)
        try:
            settings = {"spark.sql.session.timeZone": "UTC"}
            return local_session(app_name="commit-owner ingest", cores=cores, settings=settings)
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _csv(null: str, delimiter: str) -> dict[str, str]:
    """Spark's options for a CSV file. Raises `InvalidRequestError` for a delimiter that is not one character."""
    separator = "\t" if delimiter == "\\t" else delimiter
    if len(separator) != 1:
        raise InvalidRequestError(f"invalid --delimiter {delimiter!r}; expected one character")
    return {"header": "true", "mode": "FAILFAST", "nullValue": null, "sep": separator}


def _header(files: list[Path], delimiter: str) -> tuple[str, ...]:
    """The names of the columns, which must be the same in all files, in the same order. An empty name is replaced as in
    Spark.

    Raises `InvalidRequestError` for a file without a header, a file with another header, and a name that occurs twice.
    """
    first: list[str] = []
    for path in (file for given in files for file in _inside(given)):
        form: dict[str, Any] = {"encoding": "utf-8-sig", "newline": ""}
        with gzip.open(path, "rt", **form) if path.suffix.lower() == ".gz" else path.open(**form) as lines:
            try:
                header = next((line for line in csv.reader(lines, delimiter=delimiter) if line), None)
            except (UnicodeDecodeError, csv.Error, EOFError, gzip.BadGzipFile) as error:
                raise InvalidRequestError(f"{path} is not a valid UTF-8 CSV file: {error}") from None
        if header is None:
            raise InvalidRequestError(f"{path} is empty; expected a header with the column names")
        first = first or header
        if header != first:
            raise InvalidRequestError(
                f"{path} has the columns {', '.join(header)}, but {files[0]} has {', '.join(first)}; ingest them "
                "separately"
            )
    names = tuple(name or f"_c{number}" for number, name in enumerate(first))
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise InvalidRequestError(f"{files[0]} has the column {name!r} twice; rename one of them")
        seen.add(name.lower())
    return names


def _columns_of_parquet(files: list[Path]) -> tuple[str, ...]:
    """The names of the columns, which must be the same in all files, in any order. Otherwise Spark would take the
    columns of one file, drop other columns, and fill in nulls. A folder such as `month=1` adds a column, too.

    Raises `InvalidRequestError` for a file with other columns, and for a file that is not a Parquet file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    first: tuple[Path, tuple[str, ...]] | None = None
    for path in files:
        for file in _inside(path):
            folders = [part for part in file.relative_to(path).parts[:-1] if "=" in part]
            try:
                names = (*pq.read_schema(file).names, *(unquote(part.partition("=")[0]) for part in folders))
            except pa.ArrowException as error:
                problem = str(error).rstrip(".")
                what = "is empty" if file.stat().st_size == 0 else f"cannot be read as Parquet: {problem}"
                raise InvalidRequestError(f"{file} {what}; expected a Parquet file") from None
            if not names:
                raise InvalidRequestError(f"{file} has no columns; expected at least one")
            first = first or (file, names)
            if {name.lower() for name in names} != {name.lower() for name in first[1]}:
                raise InvalidRequestError(
                    f"{file} has the columns {', '.join(names)}, but {first[0]} has {', '.join(first[1])}; ingest them "
                    "separately"
                )
    assert first is not None
    return first[1]


def _inside(path: Path) -> list[Path]:
    """The files that Spark reads in a folder. For a file: the file itself."""
    if not path.is_dir():
        return [path]
    inner = [file for file in sorted(path.rglob("*")) if not _is_hidden(file.relative_to(path)) and file.is_file()]
    if not inner:
        raise InvalidRequestError(f"no file in the folder {path}; expected CSV or Parquet files")
    return inner


def _is_hidden(path: Path) -> bool:
    """Whether Spark skips a file, because of its name or the name of a folder. A folder `column=value` is never
    skipped."""
    return any(part.startswith((".", "_")) and "=" not in part for part in path.parts)


def _check_complete(schema: Struct, names: Sequence[str], table: str) -> None:
    given = {name.lower() for name in names}
    missing = [name for name in schema.names if name.lower() not in given]
    if missing:
        raise InvalidRequestError(
            f"the files lack the columns {', '.join(map(repr, missing))} of {table}; add them, or pass --fill-missing "
            "to write null"
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Input:
    """The files, the options to read them, and the table's columns (None: a new table)."""

    kind: str
    files: list[Path]
    names: Sequence[str]
    options: dict[str, str]
    schema: Struct | None

    @property
    def paths(self) -> list[str]:
        return [str(path.absolute()) for path in self.files]


def _rows(spark: SparkSession, source: _Input) -> DataFrame:
    """The rows of the files. For CSV files, the types are the table's; for a new table, Spark infers them."""
    reader = spark.read
    if source.kind == PARQUET:
        return reader.parquet(*source.paths)
    if source.schema is None:
        return reader.options(**source.options, inferSchema="true").csv(source.paths).toDF(*source.names)
    return reader.options(**source.options).schema(_typed(source.names, source.schema)).csv(source.paths)


def _typed(names: Sequence[str], schema: Struct) -> StructType:
    """These columns with the table's types. A column that the table does not have is text."""
    from refimpl.client.schema import Field, Primitive, Struct
    from refimpl.spark.frames import spark_schema

    known = {column.name.lower(): column.type for column in schema.fields}
    text = Primitive(name="string")
    return spark_schema(Struct(fields=tuple(Field(name=name, type=known.get(name.lower(), text)) for name in names)))


_MALFORMED: Final = "__malformed"
_FILE: Final = "__file"


@contextlib.contextmanager
def _explained(spark: SparkSession, source: _Input) -> Iterator[None]:
    """If Spark fails because of a CSV file, raise `InvalidRequestError` with the value and the column. Spark names
    neither, so a second read looks for the first line that does not fit."""
    try:
        yield
    except Exception as error:
        if source.kind == PARQUET or not is_of_spark(error):
            raise
        problem = _first_misfit(spark, source)
        if problem is None:
            raise
        raise InvalidRequestError(problem) from None


def _first_misfit(spark: SparkSession, source: _Input) -> str | None:
    from pyspark.sql import functions
    from pyspark.sql.types import StringType, StructField, StructType

    files, names, options = source.files, source.names, source.options
    typed = _rows(spark, source).schema if source.schema is None else _typed(names, source.schema)
    permissive = {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _MALFORMED}
    frame = spark.read.options(**permissive).schema(StructType([*typed.fields, StructField(_MALFORMED, StringType())]))
    lines = frame.csv(source.paths).withColumn(_FILE, functions.input_file_name())
    row = lines.where(functions.col(_MALFORMED).isNotNull()).first()
    if row is None:
        return None
    *values, line, uri = row
    name = next((str(path) for path in files if uri.endswith(f"/{path.name}")), uri)
    texts = next(csv.reader([line], delimiter=options["sep"]))
    if len(texts) != len(names):
        hint = "; if a quoted value continues on the next line, pass --multi-line" if line.count('"') % 2 else ""
        return f"{name}: expected {len(names)} values, found {len(texts)}, in the line {line!r}{hint}"
    suspects = [
        (field, text)
        for field, value, text in zip(typed.fields, values, texts, strict=True)
        if value is None and text != options["nullValue"]
    ]
    if not suspects:
        return f"{name}: the line {line!r} does not match the columns {', '.join(names)}"
    field, text = max(suspects, key=lambda suspect: suspect[1] != "")  # an empty value may mean null
    kind = field.dataType.simpleString()
    return (
        f"{name}: invalid {kind} {text!r} in the column {field.name!r}, in the line {line!r}; "
        f"correct it, or, if it means null, pass --null {text or repr(text)}"
    )


def _listed(files: list[Path]) -> str:
    return ", ".join(map(str, files))


def _show(table: str, written: Written | None, *, json: bool) -> None:
    if json:
        output.show_json({"table": table, **(_NOTHING if written is None else dataclasses.asdict(written))})
        return
    if written is None:
        output.show_line(f"no rows; nothing was committed to {table}")
        return
    removed = f", removed {output.counted(written.removed, 'file')}" if written.removed else ""
    races = f", after {output.counted(written.tries - 1, 'lost race')}" if written.tries > 1 else ""
    rows, files = output.counted(written.rows, "row"), output.counted(written.files, "file")
    made = f"{rows} in {files} ({output.size(written.bytes)})"
    output.show_line(f"committed version {written.version} of {table}: {made}{removed}{races}")


_NOTHING: Final[dict[str, Any]] = {
    "version": None, "files": 0, "rows": 0, "bytes": 0, "removed": 0, "tries": 0, "rebased_over": 0,
}  # fmt: skip
"""The output of `--json` for an append without rows."""
