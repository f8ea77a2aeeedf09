"""A Spark session and a warehouse, together: where reads and writes begin."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from refimpl.client.table import Table
from refimpl.environment import Environment
from refimpl.errors import InvalidRequestError, TableNotFoundError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from refimpl.spark.reader import DeltaReader
    from refimpl.spark.writer import DeltaWriter
    from refimpl.warehouse import Warehouse


class DeltaConnection:
    """Made by `refimpl.spark.connect`. Any number of threads may use it."""

    def __init__(self, spark: SparkSession, warehouse: Warehouse | None) -> None:
        self.spark = spark
        self.warehouse = warehouse
        self._handles: dict[str, Table] = {}
        """By table id. A handle knows the newest version that it saw, and reads only what came after."""

    @property
    def read(self) -> DeltaReader:
        """Starts a read, as `spark.read` does."""
        from refimpl.spark.reader import DeltaReader

        return DeltaReader(self)

    def write(self, frame: DataFrame) -> DeltaWriter:
        """Starts a write of these rows, as `df.write` does."""
        from refimpl.spark.writer import DeltaWriter

        return DeltaWriter(self, frame)

    @property
    def environment(self) -> Environment:
        return Environment() if self.warehouse is None else self.warehouse.environment

    @property
    def time_zone(self) -> str:
        """The session's, by which Spark reads timestamps that do not say theirs."""
        return str(self.spark.conf.get("spark.sql.session.timeZone"))

    @property
    def in_utc(self) -> bool:
        return self.time_zone.upper() in ("UTC", "ETC/UTC", "Z", "GMT", "+00:00")

    def required_warehouse(self) -> Warehouse:
        """The warehouse; `InvalidRequestError` for a connection that was made without one."""
        if self.warehouse is None:
            raise InvalidRequestError(
                "this connection has no warehouse to look names up in; give connect one, or use a path"
            )
        return self.warehouse

    def table(self, name: str) -> Table:
        """The warehouse's table of this name. Raises `TableNotFoundError`."""
        return self._known(self.required_warehouse().table(name))

    def _known(self, resolved: Table) -> Table:
        """The handle that was used before, for a table that is still the same: a name may get another table."""
        if resolved.table_id is None:
            return resolved
        return self._handles.setdefault(resolved.table_id, resolved)

    def table_at(self, location: Path) -> Table:
        """The table at a path: through the warehouse's owner where it knows the path, else by path alone."""
        if self.warehouse is not None:
            try:
                return self._known(self.warehouse.table(location))
            except TableNotFoundError:
                pass
        return Table.by_path(location, self.environment)
