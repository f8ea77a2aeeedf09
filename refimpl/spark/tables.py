"""The tables that a Spark session reaches, by a name in a warehouse or by a path; and how a write creates a table."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from refimpl.client.create import Creation
from refimpl.client.table import Table
from refimpl.protocol.errors import DeltaError, InvalidRequestError, LocationError, NameTakenError, TableNotFoundError
from refimpl.protocol.log_path import LOG_FOLDER
from refimpl.schema.schema import Primitive, Struct
from refimpl.spark import plan_reads
from refimpl.storage.environment import Environment

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from refimpl.client.snapshot import Snapshot
    from refimpl.rows.condition import FileTest
    from refimpl.warehouse import AnyWarehouse


class Tables:
    """Finds tables of a warehouse by name, and tables by path. Any number of threads may use it."""

    def __init__(self, warehouse: AnyWarehouse | None) -> None:
        self.warehouse = warehouse
        self.environment = Environment() if warehouse is None else warehouse.environment
        self._handles: dict[str, Table] = {}
        """By table id. A handle keeps the newest version that it read, and reads only later commits."""

    def required_warehouse(self) -> AnyWarehouse:
        """The warehouse. Raises `InvalidRequestError` without one."""
        if self.warehouse is None:
            raise InvalidRequestError("no warehouse to look up table names; pass one to connect, or use a path")
        return self.warehouse

    def by_name(self, name: str) -> Table:
        """The warehouse's table of this name. Raises `TableNotFoundError`."""
        return self._known(self.required_warehouse().table(name))

    def by_path(self, location: Path) -> Table:
        """The table at a path; through the warehouse's owner, if it knows the path, or the owner that the table
        names, if that is found and knows it."""
        if self.warehouse is not None:
            with contextlib.suppress(TableNotFoundError):
                return self._known(self.warehouse.table(location))
        from refimpl.warehouse.owner_names import with_owner  # the tasks, which import this module, need no owner

        table = Table.by_path(location, self.environment)
        with contextlib.suppress(InvalidRequestError, TableNotFoundError):
            return self._known(with_owner(table))
        return table

    def _known(self, resolved: Table) -> Table:
        """The handle that was used before, if the name or path still means the same table."""
        if resolved.table_id is None:
            return resolved
        return self._handles.setdefault(resolved.table_id, resolved)


class TableAccess(Tables):
    """The tables that a Spark session reaches."""

    def __init__(self, spark: SparkSession, warehouse: AnyWarehouse | None) -> None:
        super().__init__(warehouse)
        self.spark = spark
        self.rule = plan_reads.installed(spark)

    @property
    def time_zone(self) -> str:
        """The session's time zone. Spark uses it for timestamps that name no zone."""
        return str(self.spark.conf.get("spark.sql.session.timeZone"))

    @property
    def partition_overwrite_mode(self) -> str:
        """The session's `spark.sql.sources.partitionOverwriteMode`."""
        return str(self.spark.conf.get("spark.sql.sources.partitionOverwriteMode"))

    @property
    def in_utc(self) -> bool:
        return is_utc(self.time_zone)

    def by_name(self, name: str) -> Table:
        self._refuse_other_names()
        return super().by_name(name)

    def by_path(self, location: Path) -> Table:
        self._refuse_other_names()
        return super().by_path(location)

    def target_at(self, location: Path) -> PathTarget:
        return PathTarget(self, location)

    def _refuse_other_names(self) -> None:
        if self._is_on("spark.sql.caseSensitive"):
            raise InvalidRequestError(
                "spark.sql.caseSensitive is true: Spark would read a column as NULL whose name has another case in a "
                "data file; set it to false for this session"
            )

    def file_test(self, snapshot: Snapshot, condition: str | Column | None) -> FileTest | None:
        """The condition as a test of files; None if only Spark understands it, or understands it in another way."""
        if not isinstance(condition, str) or self.reads_otherwise(condition):
            return None
        with contextlib.suppress(InvalidRequestError):
            test = snapshot.file_test(condition)
            return test if self.is_sound(test) else None
        return None

    def is_sound(self, test: FileTest) -> bool:
        """Whether Spark evaluates the condition in the same way. The test reads times without a zone as UTC."""
        zoned = any(column.type == Primitive(name="timestamp") for column in test.condition.columns())
        return self.in_utc or not zoned

    def reads_otherwise(self, condition: str) -> bool:
        """Whether a setting of the session gives this SQL text another meaning than Spark's default."""
        return ("\\" in condition and self._is_on("spark.sql.parser.escapedStringLiterals")) or (
            '"' in condition and self._is_on("spark.sql.ansi.doubleQuotedIdentifiers")
        )

    def _is_on(self, setting: str) -> bool:
        return str(self.spark.conf.get(setting, "false")).lower() == "true"


def is_utc(time_zone: str) -> bool:
    """Whether a value of spark.sql.session.timeZone means UTC."""
    return time_zone.upper() in ("UTC", "ETC/UTC", "Z", "GMT", "+00:00")


@dataclass(frozen=True, slots=True)
class NamedTarget:
    access: Tables
    name: str
    options: Mapping[str, Any]

    def find(self) -> Table | None:
        try:
            return self.access.by_name(self.name)
        except TableNotFoundError:
            return None

    def exists(self) -> DeltaError:
        return NameTakenError(
            f"the table {self.name!r} exists already; choose the mode append, overwrite or ignore",
            name=self.name,
            winner=self.access.required_warehouse().owner.resolve(self.name),
        )

    def begin(self, schema: Struct, partition_columns: Sequence[str]) -> Creation:
        return Creation.begin(
            self.access.required_warehouse().owner,
            self.access.environment,
            self.name,
            schema,
            partition_columns=partition_columns,
            **self.options,
        )


@dataclass(frozen=True, slots=True)
class PathTarget:
    access: Tables
    location: Path

    def find(self) -> Table | None:
        if self.access.environment.files.stat(self.location / LOG_FOLDER) is None:
            return None
        return self.access.by_path(self.location)

    def exists(self) -> DeltaError:
        return LocationError(
            f"{self.location} is a table already; choose the mode append, overwrite or ignore",
            location=str(self.location),
        )

    def begin(self, schema: Struct, partition_columns: Sequence[str]) -> NoReturn:  # noqa: ARG002
        raise TableNotFoundError(
            f"no table at {self.location}; a write by path needs an existing table; create it with: "
            f"commit-owner create NAME --columns SQL --location {self.location}"
        )


Target = NamedTarget | PathTarget
