"""`delta.read...`: exactly the rows of one version, as a data frame.

    delta.read.option("versionAsOf", 3).where("month = 3").table("flights")

The snapshot says which files there are; Spark reads those with its own vectorised reader. Files that the
condition excludes, by partition values or statistics, are left out on the driver.
"""

from __future__ import annotations

import datetime
import re
import warnings
import zoneinfo
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from refimpl.actions import Add
from refimpl.client.in_commit_timestamp import milliseconds
from refimpl.client.schema import Primitive
from refimpl.client.snapshot import Snapshot
from refimpl.client.table import Table
from refimpl.errors import InvalidRequestError
from refimpl.spark.reading_files import read_files

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from refimpl.spark.connection import DeltaConnection

_OPTIONS: Final = ("versionAsOf", "timestampAsOf")
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?(?P<sign>[+-])(?P<hours>0?\d|1[0-8])(?::?(?P<minutes>[0-5]\d))?", re.ASCII)
"""What Spark takes for an offset from UTC, as far as it has no seconds."""
_BY_LOWER_CASE: Final = {name.lower(): name for name in _OPTIONS}


class DeltaReader:
    """Configured like PySpark's `DataFrameReader`: every method but the last returns the reader itself."""

    def __init__(self, connection: DeltaConnection) -> None:
        self._connection = connection
        self._options: dict[str, Any] = {}
        self._conditions: list[str | Column] = []

    def option(self, key: str, value: Any) -> Self:
        """Set one option: `versionAsOf` (a version) or `timestampAsOf`.

        A time is a string, in the session's time zone where it does not name one, a `datetime`, or ms since
        the epoch; it means the version that was the newest then.
        """
        if key.lower() not in _BY_LOWER_CASE:
            raise InvalidRequestError(f"unknown option {key!r}; there are {' and '.join(_OPTIONS)}", option=key)
        self._options[_BY_LOWER_CASE[key.lower()]] = value
        return self

    def options(self, **options: Any) -> Self:
        """Set several options."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def where(self, condition: str | Column) -> Self:
        """Read only rows for which this is true. SQL text also excludes files before Spark sees them."""
        self._conditions.append(condition)
        return self

    filter = where

    def table(self, name: str) -> DataFrame:
        """The rows of the warehouse's table of this name.

        Raises `TableNotFoundError`, `NotFoundInHistoryError` for a version or time outside the history,
        `UnsupportedFeatureError`.
        """
        return self._frame(self._connection.table(name))

    def load(self, path: str | Path) -> DataFrame:
        """The rows of the table at this path, through its owner where the warehouse has one for it.

        Of a managedCommit table whose owner is not asked, only the backfilled part is there: a warning says so.
        Raises `PathAccessError` for a catalog-managed table of another owner.
        """
        return self._frame(self._connection.table_at(Path(path).absolute()))

    def snapshot(self, table: Table) -> Snapshot:
        """The version that the options ask for."""
        version, moment = self._options.get("versionAsOf"), self._options.get("timestampAsOf")
        if version is not None and not str(version).isdecimal():
            raise InvalidRequestError(f"versionAsOf is a version, not {version!r}")
        return table.snapshot(
            version=None if version is None else int(version),
            timestamp=None if moment is None else _milliseconds(moment, self._connection.time_zone),
        )

    def _frame(self, table: Table) -> DataFrame:
        snapshot = self.snapshot(table)
        if snapshot.staleness is not None:
            warnings.warn(snapshot.staleness, stacklevel=3)
        frame = read_files(self._connection.spark, table.location, snapshot, self._files(snapshot))
        for condition in self._conditions:
            frame = frame.where(condition)
        return frame

    def _files(self, snapshot: Snapshot) -> Sequence[Add]:
        """The active files that may hold rows for which every condition is true."""
        files: list[Add] = list(snapshot.files.values())
        for condition in self._conditions:
            if isinstance(condition, str):
                files = self._matching(snapshot, files, condition)
        return files

    def _matching(self, snapshot: Snapshot, files: list[Add], condition: str) -> list[Add]:
        try:
            test = snapshot.file_test(condition)
        except InvalidRequestError:  # Spark understands more; it filters the rows, and reports what is wrong
            return files
        zoned = any(column.type == Primitive(name="timestamp") for column in test.condition.columns())
        if zoned and not self._connection.in_utc:  # the test takes times without a zone for UTC, Spark does not
            return files
        return [add for add in files if test.may_match(add)]


def _milliseconds(moment: Any, time_zone: str) -> int:
    if isinstance(moment, int) and not isinstance(moment, bool):
        return moment
    try:
        found = moment if isinstance(moment, datetime.datetime) else datetime.datetime.fromisoformat(str(moment))
    except ValueError:
        raise InvalidRequestError(f"timestampAsOf is a time such as '2024-05-01 12:00:00', not {moment!r}") from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=_zone(time_zone))
    return milliseconds(found)


def _zone(name: str) -> datetime.tzinfo:
    try:
        return zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        offset = _OFFSET.fullmatch(name)
    if offset is None:
        raise InvalidRequestError(
            f"spark.sql.session.timeZone is {name}, which says no offset here; set a region such as Europe/Berlin or "
            "an offset such as +01:00, or give timestampAsOf with its own offset"
        )
    distance = datetime.timedelta(hours=int(offset["hours"]), minutes=int(offset["minutes"] or 0))
    return datetime.timezone(-distance if offset["sign"] == "-" else distance)
