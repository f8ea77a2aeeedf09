"""The command `ingest`: files of rows become one commit, through Spark."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refimpl.cli import output
from refimpl.cli.file_formats import PARQUET, format_of
from refimpl.cli.options import JsonOption, WarehouseOption, feature_named, names_of, opened, way_named
from refimpl.errors import InvalidRequestError, TableNotFoundError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from refimpl.client.schema import Struct
    from refimpl.client.table import Table
    from refimpl.spark import DeltaConnection
    from refimpl.spark.writer import Written
    from refimpl.warehouse import Warehouse


def register(application: typer.Typer) -> None:
    application.command(rich_help_panel="Tables", epilog=_INGEST)(ingest)


_INGEST = """Examples:

commit-owner ingest sales 2026-10.parquet 2026-11.parquet

commit-owner ingest sales day.csv --null NA --mode overwrite --replace-where 'month = 11'

commit-owner ingest events events.csv --create --partition-by day"""


def ingest(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table's name.")],
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="CSV files with a header, or Parquet files.")],
    mode: Annotated[str, typer.Option("--mode", metavar="MODE", help="append or overwrite.")] = "append",
    replace_where: Annotated[
        str | None,
        typer.Option("--replace-where", metavar="SQL", help="With overwrite: replace only these partitions."),
    ] = None,
    create: Annotated[bool, typer.Option("--create", help="Create the table if there is none.")] = False,
    partition_by: Annotated[
        list[str] | None, typer.Option("--partition-by", "-p", metavar="COLUMN", help="Of a table that is created.")
    ] = None,
    feature: Annotated[
        str | None, typer.Option("--feature", metavar="DIALECT", help="Of a table that is created.")
    ] = None,
    way: Annotated[str | None, typer.Option("--way", metavar="WAY", help="Of a table that is created.")] = None,
    null: Annotated[str, typer.Option("--null", metavar="TEXT", help="A missing value in a CSV file.")] = "",
    delimiter: Annotated[str, typer.Option("--delimiter", metavar="CHARACTER", help="Of a CSV file.")] = ",",
    cores: Annotated[int | None, typer.Option("--cores", min=1, metavar="N", help="Without it: all.")] = None,
    warehouse: WarehouseOption = None,
    json: JsonOption = False,
) -> None:
    """Add files of rows to a table, through Spark.

    One commit, whatever the number of files: it lands whole or not at all. Columns are matched by name.
    """
    if mode not in ("append", "overwrite"):
        raise InvalidRequestError(f"{mode!r} is not a mode; choose append or overwrite")
    if not create and (partition_by or feature or way):
        raise InvalidRequestError("--partition-by, --feature and --way are for a table that is created: add --create")
    options, kind = _options(replace_where, feature, way), _kind(files)
    with opened(warehouse) as place:
        found = _table(place, table, create=create)
        schema = None if found is None else found.snapshot().schema
        with _connected(place, cores) as delta:
            rows = _rows(delta.spark, kind, files, _csv(null, delimiter), schema)
            writer = delta.write(rows).mode(mode)
            for option, value in options:
                writer.option(option, value)
            if found is None and partition_by:
                writer.partitionBy(*names_of(partition_by))
            written = writer.saveAsTable(table)
    assert written is not None, "neither mode leaves a write undone"
    _show(table, written, json=json)


def _options(replace_where: str | None, feature: str | None, way: str | None) -> list[tuple[str, str]]:
    """Those of the writer, checked before Spark is started."""
    found: list[tuple[str, str]] = []
    if replace_where is not None:
        found.append(("replaceWhere", replace_where))
    if feature is not None:
        found.append(("feature", feature_named(feature).name))
    chosen = way_named(way)
    if chosen is not None:
        found.append(("way", chosen.value))
    return found


def _kind(files: list[Path]) -> str:
    """CSV or Parquet, by the names; the same for all."""
    kinds: set[str] = set()
    for path in files:
        if not path.exists():
            raise InvalidRequestError(f"{path} does not exist")
        kinds.add(format_of(path))
    if len(kinds) > 1:
        raise InvalidRequestError("CSV and Parquet files cannot be one commit: ingest them one after the other")
    return kinds.pop()


def _table(place: Warehouse, name: str, *, create: bool) -> Table | None:
    try:
        return place.table(name)
    except TableNotFoundError as error:
        if create:
            return None
        raise TableNotFoundError(f"{error}; add --create to make it from these rows", reference=name) from None


@contextlib.contextmanager
def _connected(place: Warehouse, cores: int | None) -> Iterator[DeltaConnection]:
    """Spark for the length of a command; a session that runs in this process already is used, and left running."""
    import refimpl.spark

    running = _running_session()
    spark = running or _quietly_started(cores)
    try:
        yield refimpl.spark.connect(spark, place)
    finally:
        if running is None:
            spark.stop()


def _running_session() -> SparkSession | None:
    try:
        from pyspark.sql import SparkSession
    except ImportError:  # starting one says what is missing
        return None
    return SparkSession.getActiveSession()


def _quietly_started(cores: int | None) -> SparkSession:
    """What Java says while it starts is of no use to anybody: it is kept away from the standard error."""
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
    return {"header": "true", "mode": "FAILFAST", "nullValue": null, "sep": delimiter}


def _rows(
    spark: SparkSession, kind: str, files: list[Path], options: dict[str, str], schema: Struct | None
) -> DataFrame:
    """The files' rows. Those of a CSV file get the types of the table's columns, or guessed ones."""
    paths = [str(path.absolute()) for path in files]
    if kind == PARQUET:
        return spark.read.parquet(*paths)
    if schema is None:
        return spark.read.options(**options, inferSchema="true").csv(paths)
    from refimpl.client.schema import Field, Primitive, Struct
    from refimpl.spark.frames import spark_schema

    header = spark.read.options(**options).csv(paths).columns
    known = {column.name.lower(): column for column in schema.fields}
    columns = tuple(known.get(name.lower(), Field(name=name, type=Primitive(name="string"))) for name in header)
    given = spark_schema(Struct(fields=columns))
    return spark.read.options(**options, enforceSchema="false").schema(given).csv(paths)


def _show(table: str, written: Written, *, json: bool) -> None:
    if json:
        output.show_json({"table": table, **dataclasses.asdict(written)})
        return
    removed = f", removed {output.counted(written.removed, 'file')}" if written.removed else ""
    races = f", after {output.counted(written.tries - 1, 'lost race')}" if written.tries > 1 else ""
    rows, files = output.counted(written.rows, "row"), output.counted(written.files, "file")
    made = f"{rows} in {files} ({output.size(written.bytes)})"
    output.show_line(f"committed version {written.version} of {table}: {made}{removed}{races}")
