"""`delta.write(df)...`: rows of a data frame become one commit.

    delta.write(df).mode("overwrite").option("replaceWhere", "month = 3").saveAsTable("flights")

One write is one transaction, and nothing is visible before it lands: append reads nothing; overwrite
reads the whole table, and removes it; `replaceWhere` reads the partitions of its condition, and removes
those. A table that does not exist is created in one version, 0, that holds the rows already.

Tasks write the rows, or the driver where it holds them already (`createDataFrame` of local data, results of commands):
those are few, and starting Python workers costs more than the write (measured by `spec_tests.benchmarks.spark_write`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from refimpl.actions import Add
from refimpl.client import data_files, file_statistics
from refimpl.client.file_statistics import row_count
from refimpl.client.schema import Primitive, Struct
from refimpl.client.table import Table
from refimpl.errors import (
    InvalidRequestError,
    LocationError,
    NameTakenError,
    TableNotFoundError,
)
from refimpl.spark import commit_protocol, frames
from refimpl.spark.tables import NamedTarget, PathTarget, TableAccess, Target
from refimpl.table_feature import TABLE_FEATURES, CommitMode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from refimpl.client.condition import FileTest
    from refimpl.client.transaction import Transaction

MODES: Final = ("append", "overwrite", "ignore", "error")
_SYNONYMS: Final = {"errorifexists": "error", "default": "error"}
_OPTIONS: Final = ("replaceWhere", "txnAppId", "txnVersion", "feature", "commitMode")
_BY_LOWER_CASE: Final = {name.lower(): name for name in _OPTIONS}
_PROPERTY_PREFIX: Final = "delta."
_CREATION_RACES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a write did. `rows` and `bytes` of the files that were added; `removed` counts files."""

    version: int
    files: int
    rows: int
    bytes: int
    removed: int = 0
    tries: int = 1
    rebased_over: int = 0


class DeltaWriter:
    """Configured like PySpark's `DataFrameWriter`: every method but the last returns the writer itself."""

    def __init__(self, access: TableAccess, frame: DataFrame) -> None:
        self._access = access
        self._frame = frame
        self._mode = "error"
        self._partition_columns: tuple[str, ...] | None = None
        self._options: dict[str, str] = {}
        self._properties: dict[str, str] = {}

    def mode(self, save_mode: str) -> Self:
        """What to do with a table that exists: `append`, `overwrite`, `ignore`, or `error` (the default)."""
        mode = _SYNONYMS.get(save_mode.lower(), save_mode.lower())
        if mode not in MODES:
            raise InvalidRequestError(f"unknown mode {save_mode!r}; expected append, overwrite, ignore or error")
        self._mode = mode
        return self

    def partitionBy(self, *columns: str | Iterable[str]) -> Self:  # noqa: N802 - PySpark's name
        """Partition a new table by these columns. For a table that exists they must be its own."""
        self._partition_columns = tuple(
            name for item in columns for name in ((item,) if isinstance(item, str) else item)
        )
        return self

    def option(self, key: str, value: Any) -> Self:
        """Set one option.

        `replaceWhere`: with mode overwrite, replace only the partitions for which this condition is true.
        `txnAppId`, `txnVersion`: skip the write if this application has committed this batch, or a later one.
        `feature` (managedCommit, catalogManaged), `commitMode` (staged, inline, direct) and the table properties
        `delta.*` are for a table that this write creates.
        """
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if key.lower().startswith(_PROPERTY_PREFIX):
            self._properties[key] = text
        elif key.lower() in _BY_LOWER_CASE:
            self._options[_BY_LOWER_CASE[key.lower()]] = text
        else:
            raise InvalidRequestError(f"unknown option {key!r}; expected {', '.join(_OPTIONS)} or delta.*", option=key)
        return self

    def options(self, **options: Any) -> Self:
        """Set several options."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def saveAsTable(self, name: str) -> Written | None:  # noqa: N802 - PySpark's name
        """Write to the table of this name, columns by name. None if there was nothing to do.

        Raises `NameTakenError` (mode error), `InvalidRequestError` for rows that do not fit, before a file is
        written, and what a commit raises: a kind of `ConcurrentModificationError`, `OutcomeUnknown`...
        """
        return self._save(NamedTarget(self._access, name, self._options_of_creation()))

    def save(self, path: str | Path) -> Written | None:
        """Write to the table at this path: one of the warehouse's, or a plain filesystem table."""
        return self._save(PathTarget(self._access, Path(path).absolute(), self._options_of_creation()))

    def insertInto(self, name: str, overwrite: bool | None = None) -> Written | None:  # noqa: N802 - PySpark's
        """Write to a table that exists, columns by position. `overwrite` wins over the mode; else rows are appended."""
        target = NamedTarget(self._access, name, self._options_of_creation())
        table = target.find()
        if table is None:
            raise TableNotFoundError(f"table {name!r} does not exist; create it with saveAsTable")
        self._check_options_of_change()
        replaces = self._mode == "overwrite" if overwrite is None else overwrite
        return self._change(table, overwrite=replaces, by_position=True)

    def _options_of_creation(self) -> dict[str, Any]:
        wanted: dict[str, Any] = {"properties": self._properties}
        try:
            if "feature" in self._options:
                wanted["feature"] = TABLE_FEATURES[self._options["feature"]]
            if "commitMode" in self._options:
                wanted["commit_mode"] = CommitMode(self._options["commitMode"])
        except (KeyError, ValueError) as error:
            raise InvalidRequestError(
                f"invalid option {error}; expected feature {' or '.join(TABLE_FEATURES)}, "
                f"commitMode {', '.join(commit_mode.value for commit_mode in CommitMode)}"
            ) from None
        return wanted

    def _save(self, target: Target) -> Written | None:
        """Create or change. After a lost race for the creation, the mode decides about the winner's table."""
        self._check_options()
        for race in range(_CREATION_RACES):
            table = target.find()
            if table is not None:
                if self._mode == "error":
                    raise target.exists()
                if self._mode == "ignore":
                    return None
                self._check_options_of_change()
                return self._change(table, overwrite=self._mode == "overwrite", by_position=False)
            try:
                return self._create(target)
            except (NameTakenError, LocationError):
                if self._mode == "error" or race == _CREATION_RACES - 1 or target.find() is None:
                    raise
        raise AssertionError("unreachable")

    def _check_options(self) -> None:
        if "replaceWhere" in self._options and self._mode != "overwrite":
            raise InvalidRequestError(f"replaceWhere needs the mode overwrite, not {self._mode}")
        if ("txnAppId" in self._options) != ("txnVersion" in self._options):
            raise InvalidRequestError("txnAppId and txnVersion are required together")
        if not self._options.get("txnVersion", "0").isdecimal():
            raise InvalidRequestError(f"invalid txnVersion {self._options['txnVersion']!r}; expected a number")

    def _create(self, target: Target) -> Written | None:
        """Create the table with the rows in version 0. A batch of an application needs a version to be recorded
        in that is not the first, so for one the table is created empty."""
        schema = frames.table_schema(self._frame)
        partition_columns = self._partition_columns or ()
        creation = target.begin(schema, partition_columns)
        if "txnAppId" in self._options:
            return self._change(creation.finish(()), overwrite=False, by_position=False)
        adds: tuple[Add, ...] = ()
        try:
            test = self._replaced(schema, partition_columns)
            adds = self._write_files(self._frame, creation.location, schema, partition_columns, self._properties)
            _check_inside(adds, test)
        except BaseException:
            creation.abandon(adds)
            raise
        creation.finish(adds)
        return _written(0, adds)

    def _change(self, table: Table, *, overwrite: bool, by_position: bool) -> Written | None:
        snapshot = table.snapshot()
        schema, columns = snapshot.schema, snapshot.partition_columns
        if self._partition_columns not in (None, columns):
            raise InvalidRequestError(
                f"{table.label} is partitioned by {', '.join(columns) or 'nothing'}, not by "
                f"{', '.join(self._partition_columns or ())}"
            )
        frame = frames.matched(self._frame, schema, by_position=by_position)
        transaction = table.transaction(
            snapshot=snapshot,
            operation="WRITE",
            parameters=self._parameters(overwrite),
            landed=table.checkpoint_if_due,
        )
        if "txnAppId" in self._options and not transaction.claim(
            self._options["txnAppId"], int(self._options["txnVersion"])
        ):
            return None
        test = self._replaced(schema, columns) if overwrite else None
        removed = self._removed(transaction, test) if overwrite else []
        adds = self._write_files(frame, table.location, schema, columns, snapshot.metadata.configuration)
        with transaction.deleting_unless_landed(adds):
            _check_inside(adds, test)
            transaction.add(*adds)
            written = _written(0, adds)
            transaction.metrics |= {
                "numFiles": str(written.files),
                "numOutputRows": str(written.rows),
                "numOutputBytes": str(written.bytes),
            }
            committed = transaction.commit()
        return dataclasses.replace(
            written,
            version=committed.version,
            removed=len(removed),
            tries=committed.tries,
            rebased_over=committed.rebased_over,
        )

    def _write_files(
        self,
        frame: DataFrame,
        location: Path,
        schema: Struct,
        partition_columns: tuple[str, ...],
        properties: Mapping[str, str],
    ) -> tuple[Add, ...]:
        """Add actions of durable files with the rows of `frame`, which no log names yet: commit or delete them."""
        indexed = file_statistics.indexed(schema.without(partition_columns), properties)
        if self._frame.isLocal():  # the frame as it was given: one made of its columns never is
            writer = data_files.DataFileWriter(location, schema, partition_columns, indexed=indexed)
            return tuple(writer.write_all([frame.toArrow()]))
        return commit_protocol.write(frame, location, schema, partition_columns, indexed=indexed).added

    def _check_options_of_change(self) -> None:
        for given in (*(name for name in ("feature", "commitMode") if name in self._options), *self._properties):
            raise InvalidRequestError(f"the option {given!r} needs a new table, and this one exists", option=given)

    def _replaced(self, schema: Struct, partition_columns: tuple[str, ...]) -> FileTest | None:
        """The condition of `replaceWhere`, which partition values alone must decide."""
        from refimpl.client.condition import FileTest
        from refimpl.client.predicate import parse

        text = self._options.get("replaceWhere")
        if text is None:
            return None
        test = FileTest(text=text, condition=parse(text).condition(schema), partition_columns=tuple(partition_columns))
        if not test.partition_only:
            raise InvalidRequestError(
                f"replaceWhere {text!r} tests other columns than the partition columns "
                f"({', '.join(partition_columns) or 'the table has none'}); replace whole partitions",
                condition=text,
            )
        zoned = any(column.type == Primitive(name="timestamp") for column in test.condition.columns())
        if zoned and not self._access.in_utc:
            raise InvalidRequestError(
                f"replaceWhere {text!r} tests a timestamp, which is read in UTC; set spark.sql.session.timeZone to UTC",
                condition=text,
            )
        return test

    def _removed(self, transaction: Transaction, test: FileTest | None) -> list[Add]:
        if test is None:
            removed = transaction.read_whole_table()
        else:
            read = transaction.read_files(test.text)
            removed = [add for add in read if test.matches_partition(add.partition_values) is True]
        transaction.remove(*removed)
        return removed

    def _parameters(self, overwrite: bool) -> dict[str, str]:
        found = {"mode": "Overwrite" if overwrite else "Append"}
        if overwrite and "replaceWhere" in self._options:
            found["predicate"] = self._options["replaceWhere"]
        if self._partition_columns is not None:
            found["partitionBy"] = msgspec.json.encode(self._partition_columns).decode()
        return found


def _check_inside(adds: tuple[Add, ...], test: FileTest | None) -> None:
    if test is None:
        return
    outside = [add for add in adds if test.matches_partition(add.partition_values) is not True]
    if outside:
        raise InvalidRequestError(
            f"replaceWhere {test.text!r} is not true for {_row_count(outside)} of {_row_count(adds)} "
            f"rows, such as those of {outside[0].partition_values}; leave them out",
            condition=test.text,
        )


def _row_count(adds: Iterable[Add]) -> int:
    return sum(row_count(add) or 0 for add in adds)


def _written(version: int, adds: tuple[Add, ...]) -> Written:
    rows = _row_count(adds)
    return Written(version=version, files=len(adds), rows=rows, bytes=sum(add.size for add in adds))
