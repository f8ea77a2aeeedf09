"""`delta.write(df)...`: write the rows of a data frame in one commit.

    delta.write(df).mode("overwrite").option("replaceWhere", "month = 3").saveAsTable("flights")

One write is one transaction, and nothing is visible before it lands. If the query of the rows reads the table, it is a
transaction on the version that the query reads (`plan_reads`). Else, an append reads nothing. An overwrite reads and
removes the whole table; with `replaceWhere`, the partitions of the condition; with `partitionOverwriteMode=dynamic`,
the partitions that the rows are in. A new table is created with the rows, in version 0.

Tasks write the rows. If the driver holds the rows already (`createDataFrame` of local data, results of commands), the
driver writes them: they are few, and starting Python workers costs more than the write (measured by
`python -m spec_tests.benchmarks spark_write`).
"""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from refimpl.client.table import Table
from refimpl.protocol.errors import InvalidRequestError, LocationError, NameTakenError
from refimpl.protocol.table_feature import TABLE_FEATURES, CommitMode
from refimpl.rows import data_files, file_statistics
from refimpl.rows.partition_values import FileLayout
from refimpl.schema import features, properties
from refimpl.spark import commit_protocol, frames, plan_reads
from refimpl.spark.commit_protocol import JobFiles, WriteTask
from refimpl.spark.tables import NamedTarget, TableAccess, Target
from refimpl.spark.write_plan import OPTIONS as WRITE_OPTIONS
from refimpl.spark.write_plan import WriteOptions, WritePlan, Written, check_inside, describe, replaced

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MODES: Final = ("append", "overwrite", "ignore", "error")
_SYNONYMS: Final = {"errorifexists": "error", "default": "error"}
_OPTIONS: Final = (*WRITE_OPTIONS, "feature", "commitMode")
_BY_LOWER_CASE: Final = {name.lower(): name for name in _OPTIONS}
_PROPERTY_PREFIX: Final = "delta."
_CREATION_RACES: Final = 3


class DeltaWriter:
    """Configured like PySpark's `DataFrameWriter`; `saveAsTable` and `save` write."""

    def __init__(self, access: TableAccess, frame: "DataFrame") -> None:
        self._access = access
        self._frame = frame
        self._mode = "error"
        self._partition_columns: tuple[str, ...] | None = None
        self._options: dict[str, str] = {}
        self._properties: dict[str, str] = {}

    def mode(self, save_mode: str) -> Self:
        """What to do if the table exists: `append`, `overwrite`, `ignore`, or `error` (the default)."""
        mode = _SYNONYMS.get(save_mode.lower(), save_mode.lower())
        if mode not in MODES:
            raise InvalidRequestError(f"unknown mode {save_mode!r}; expected append, overwrite, ignore or error")
        self._mode = mode
        return self

    def partitionBy(self, *columns: str | Iterable[str]) -> Self:  # noqa: N802 - PySpark's name
        """Partition a new table by these columns. For an existing table, they must be its partition columns."""
        self._partition_columns = tuple(
            name for item in columns for name in ((item,) if isinstance(item, str) else item)
        )
        return self

    def option(self, key: str, value: Any) -> Self:
        """Set one option.

        `replaceWhere`: with mode overwrite, replace only the partitions for which this condition is true.
        `partitionOverwriteMode`: dynamic replaces, with mode overwrite, only the partitions that the rows are in.
        `mergeSchema`: add columns that only the rows have, and widen types where the table permits it.
        `overwriteSchema`: with mode overwrite, the table gets the columns of the rows, and the partition columns of
        `partitionBy`, if it is called.
        `txnAppId`, `txnVersion`: skip the write if this application has already committed this batch or a later one.
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
        """Write to the table of this name; columns are matched by name. Returns None if there was nothing to do.

        Raises `NameTakenError` (mode error); `InvalidRequestError` for rows that do not fit, before a file is
        written; and the errors of a commit: a `ConcurrentModificationError`, `OutcomeUnknown`...
        """
        return self._save(NamedTarget(self._access, name, self._options_of_creation()))

    def save(self, path: str | Path) -> Written | None:
        """Write to the existing table at this path: one of the warehouse's, or a plain filesystem table."""
        return self._save(self._access.target_at(Path(path).absolute()))

    def _options_of_creation(self) -> dict[str, Any]:
        wanted: dict[str, Any] = {"properties": self._properties}
        commit_modes = {commit_mode.value: commit_mode for commit_mode in CommitMode}
        for option, argument, known in (
            ("feature", "feature", TABLE_FEATURES),
            ("commitMode", "commit_mode", commit_modes),
        ):
            value = self._options.get(option)
            if value is not None and value not in known:
                raise InvalidRequestError(f"invalid {option} {value!r}; expected {' or '.join(known)}", option=option)
            if value is not None:
                wanted[argument] = known[value]
        return wanted

    def _save(self, target: Target) -> Written | None:
        """Create the table, or write to it. After a lost race to create it, the mode applies to the winner's table."""
        self._write_options(overwrite=self._mode == "overwrite")
        for race in range(_CREATION_RACES):
            table = target.find()
            if table is not None:
                if self._mode == "error":
                    raise target.exists()
                if self._mode == "ignore":
                    return None
                self._check_options_of_change()
                return self._change(table, overwrite=self._mode == "overwrite")
            try:
                return self._create(target)
            except (NameTakenError, LocationError):
                if self._mode == "error" or race == _CREATION_RACES - 1 or target.find() is None:
                    raise
        raise AssertionError("unreachable")

    def _create(self, target: Target) -> Written | None:
        """Create the table with the rows in version 0. It is first created empty if it has rules for its rows, or if
        the rows are a batch of an application, because version 0 cannot record the batch."""
        schema = frames.table_schema(self._frame)
        partition_columns = schema.spelled(self._partition_columns or ())
        creation = target.begin(schema, partition_columns)
        schema = creation.schema
        options = self._write_options(overwrite=self._mode == "overwrite")
        if options.app is not None or features.has_rules(schema, self._properties):
            return self._change(creation.finish(()), overwrite=options.overwrite)
        files = JobFiles(added=())
        try:
            test = replaced(options, schema, partition_columns, in_utc=self._access.in_utc)
            indexed = file_statistics.indexed(schema.without(partition_columns), self._properties)
            layout = FileLayout(
                location=creation.location,
                schema=schema,
                partition_columns=partition_columns,
                compression=properties.codec(self._properties),
                page_version=properties.page_version(self._properties),
            )
            task = WriteTask(layout=layout, indexed=indexed)
            files = _write_files(self._frame, task, self._job(self._frame, task))
            check_inside(files.added, test)
        except BaseException:
            creation.abandon(files.added)
            raise
        creation.finish(files.added)
        return describe(0, files.added)

    def _change(self, table: Table, *, overwrite: bool) -> Written | None:
        snapshot = table.snapshot()
        options, given = self._write_options(overwrite=overwrite), frames.table_schema(self._frame)
        plan = WritePlan.of(snapshot, given, options, in_utc=self._access.in_utc)
        frame = frames.matched(self._frame, plan.schema, filled=plan.rules.filled)
        job = self._job(frame, plan.task)
        if job is not None:
            plan = dataclasses.replace(plan, reads=plan_reads.of(self._access.rule, job))
        transaction = plan.begin(table, snapshot=snapshot)
        if transaction is None:
            return None
        files = _write_files(frame, plan.task, job)
        return plan.commit(transaction, files)

    def _write_options(self, *, overwrite: bool) -> WriteOptions:
        return WriteOptions.parse(
            self._options,
            overwrite=overwrite,
            default_mode=self._access.partition_overwrite_mode,
            partition_by=self._partition_columns,
        )

    def _job(self, frame: "DataFrame", task: WriteTask) -> "DataFrame | None":
        """The job that writes the rows of `frame`; None if the driver writes them."""
        return None if self._frame.isLocal() else commit_protocol.job(frame, task)  # a derived frame is never local

    def _check_options_of_change(self) -> None:
        given = [name for name in (*self._options, *self._properties) if name not in WRITE_OPTIONS]
        if given:
            raise InvalidRequestError(
                f"the option {given[0]!r} is for a new table, but this table exists; leave it out", option=given[0]
            )


def _write_files(frame: "DataFrame", task: WriteTask, job: "DataFrame | None") -> JobFiles:
    """Write the rows of `frame` to durable files, which no log names yet. The caller commits or deletes them."""
    if job is not None:
        return commit_protocol.write(job, task.layout)
    writer = data_files.DataFileWriter(task.layout, indexed=task.indexed)
    rows, rules = frame.toArrow(), task.rules
    adds = writer.write_all([rows if rules is None else rules.completed(rows)])
    reached = {} if rules is None else {name: (value,) for name, value in rules.reached.items()}
    return JobFiles(added=tuple(adds), identities=reached)
