"""Where a write goes: a name in the warehouse, or a path. Each can be looked for, and created with its rows."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from refimpl.actions import Add
from refimpl.client import data_files
from refimpl.client.create import Creation, create_filesystem_table
from refimpl.client.schema import Struct, check_columns
from refimpl.client.table import Table
from refimpl.environment import Environment
from refimpl.errors import DeltaError, InvalidRequestError, LocationError, NameTakenError, TableNotFoundError
from refimpl.log_path import LOG_FOLDER

if TYPE_CHECKING:
    from refimpl.spark.connection import DeltaConnection
    from refimpl.warehouse import Warehouse


class PendingTable(Protocol):
    """A table that does not exist yet: files may be written at `location`, then `finish` makes it one."""

    @property
    def location(self) -> Path: ...
    def finish(self, adds: Sequence[Add]) -> Table: ...
    def abandon(self, adds: Sequence[Add]) -> None: ...


class Target(Protocol):
    def find(self) -> Table | None: ...
    def exists(self) -> DeltaError:
        """The error for a table that should not be there."""
        ...

    def begin(self, schema: Struct, partition_columns: Sequence[str]) -> PendingTable: ...


@dataclass(frozen=True, slots=True)
class NamedTarget:
    connection: DeltaConnection
    name: str
    options: Mapping[str, Any]

    @property
    def warehouse(self) -> Warehouse:
        return self.connection.required_warehouse()

    def find(self) -> Table | None:
        try:
            return self.connection.table(self.name)
        except TableNotFoundError:
            return None

    def exists(self) -> DeltaError:
        return NameTakenError(
            f"the table {self.name!r} exists already; choose the mode append, overwrite or ignore",
            name=self.name,
            winner=self.warehouse.owner.resolve(self.name),
        )

    def begin(self, schema: Struct, partition_columns: Sequence[str]) -> PendingTable:
        return Creation.begin(
            self.warehouse.owner,
            self.warehouse.environment,
            self.name,
            schema,
            partition_columns=partition_columns,
            **self.options,
        )


@dataclass(frozen=True, slots=True)
class PathTarget:
    connection: DeltaConnection
    location: Path
    options: Mapping[str, Any]

    def find(self) -> Table | None:
        if not (self.location / LOG_FOLDER).is_dir():
            return None
        return self.connection.table_at(self.location)

    def exists(self) -> DeltaError:
        return LocationError(
            f"there is a table at {self.location} already; choose the mode append, overwrite or ignore",
            location=str(self.location),
        )

    def begin(self, schema: Struct, partition_columns: Sequence[str]) -> PendingTable:
        for option in ("feature", "commitMode"):
            if option in self.options:
                raise InvalidRequestError(f"a table at a path has no owner, so the option {option!r} means nothing")
        check_columns(schema, partition_columns)
        made = not self.location.exists()
        try:
            self.location.mkdir(exist_ok=True)
        except OSError as error:
            raise LocationError(
                f"cannot make a table at {self.location}: {error}", location=str(self.location)
            ) from error
        return _PendingFilesystemTable(
            self.location,
            self.connection.environment,
            schema,
            tuple(partition_columns),
            self.options["properties"],
            made,
        )


@dataclass(frozen=True, slots=True)
class _PendingFilesystemTable:
    location: Path
    environment: Environment
    schema: Struct
    partition_columns: tuple[str, ...]
    properties: Mapping[str, str]
    made: bool

    def finish(self, adds: Sequence[Add]) -> Table:
        try:
            return create_filesystem_table(
                self.location,
                self.environment,
                self.schema,
                partition_columns=self.partition_columns,
                properties=self.properties,
                adds=adds,
            )
        except LocationError:
            data_files.delete(self.location, adds)
            raise

    def abandon(self, adds: Sequence[Add]) -> None:
        data_files.delete(self.location, adds)
        if self.made:
            with contextlib.suppress(OSError):
                self.location.rmdir()
