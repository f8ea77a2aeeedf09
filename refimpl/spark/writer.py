"""`delta.write(df)...`: write the rows of a data frame in one commit.

    delta.write(df).mode("overwrite").option("replaceWhere", "month = 3").saveAsTable("flights")

One write is one transaction, and nothing is visible before it lands. An append reads nothing. An overwrite reads and
removes the whole table; with `replaceWhere`, the partitions of the condition; with `partitionOverwriteMode=dynamic`,
the partitions that the rows are in. A new table is created with the rows, in version 0.

The driver makes a plan of the write before tasks run: its columns, its partitions, and the files that it replaces.

    plan = WritePlan.of(table.snapshot(), frames.table_schema(frame), WriteOptions(overwrite=True))
    transaction = plan.begin(table)
    written = plan.commit(transaction, files)

The data source `delta-owner` uses it too. Between `of` and `commit`, tasks write the files and make them durable. One
transaction adds them. If it certainly did not land, the files are deleted; after an unknown outcome they stay.

Tasks write the rows. If the driver holds the rows already (`createDataFrame` of local data, results of commands), the
driver writes them: they are few, and starting Python workers costs more than the write (measured by
`spec_tests.benchmarks.spark_write`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from refimpl.actions import Add, Metadata, Protocol
from refimpl.client import column_mapping, data_files, features, file_statistics, type_widening
from refimpl.client.condition import FileTest
from refimpl.client.file_statistics import Leaf, row_count
from refimpl.client.row_rules import RowRules
from refimpl.client.schema import Array, DataType, Field, Map, Primitive, Struct, check_columns, joined, widens
from refimpl.client.snapshot import Snapshot
from refimpl.client.table import Table
from refimpl.client.transaction import Transaction
from refimpl.environment import Environment, random_uuid
from refimpl.errors import InvalidRequestError, LocationError, MetadataChangedError, NameTakenError, TableNotFoundError
from refimpl.object_store import ObjectFiles
from refimpl.spark import commit_protocol, frames
from refimpl.spark.commit_protocol import JobFiles, WriteTask
from refimpl.spark.tables import NamedTarget, PathTarget, TableAccess, Target
from refimpl.table_feature import TABLE_FEATURES, CommitMode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OPTIONS: Final = ("replaceWhere", "partitionOverwriteMode", "mergeSchema", "overwriteSchema", "txnAppId", "txnVersion")
"""The options of Delta Spark's writer that a write supports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The result of a write. `rows` and `bytes` are those of the added files; `removed` is a number of files."""

    version: int
    files: int
    rows: int
    bytes: int
    removed: int = 0
    tries: int = 1
    rebased_over: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of a write. Raises `InvalidRequestError` for options that contradict each other."""

    overwrite: bool = False
    replace_where: str | None = None
    """With `overwrite`: replace only the partitions for which this condition is true."""
    dynamic: bool = False
    """With `overwrite`: replace only the partitions that the rows are in."""
    merge_schema: bool = False
    """Add columns to the table that only the rows have, and widen types."""
    overwrite_schema: bool = False
    """With `overwrite`: the table gets the columns of the rows."""
    partition_by: tuple[str, ...] | None = None
    app: tuple[str, int] | None = None
    """Application and number of a batch, which is committed at most once."""

    def __post_init__(self) -> None:
        for given, name in (
            (self.replace_where is not None, "replaceWhere"),
            (self.dynamic, "partitionOverwriteMode=dynamic"),
            (self.overwrite_schema, "overwriteSchema"),
        ):
            if given and not self.overwrite:
                raise InvalidRequestError(f"{name} needs the mode overwrite")
        if self.overwrite_schema and (self.dynamic or self.replace_where is not None):
            raise InvalidRequestError(
                "overwriteSchema replaces the whole table; leave out replaceWhere and partitionOverwriteMode"
            )
        if self.dynamic and self.replace_where is not None:
            raise InvalidRequestError("replaceWhere and partitionOverwriteMode=dynamic are mutually exclusive")

    @classmethod
    def parse(
        cls, given: dict[str, str], *, overwrite: bool, partition_by: tuple[str, ...] | None = None
    ) -> WriteOptions:
        """A writer's options, by their names in `OPTIONS`. Ignores case, and other options."""
        values = {name: given[name.lower()] for name in OPTIONS if name.lower() in given}
        mode = values.get("partitionOverwriteMode", "static").lower()
        if mode not in ("static", "dynamic"):
            raise InvalidRequestError(f"invalid partitionOverwriteMode {mode!r}; expected static or dynamic")
        if ("txnAppId" in values) != ("txnVersion" in values):
            raise InvalidRequestError("txnAppId and txnVersion are required together")
        number = values.get("txnVersion", "0")
        if not (number.isascii() and number.isdecimal()):
            raise InvalidRequestError(f"invalid txnVersion {number!r}; expected a number")
        return cls(
            overwrite=overwrite,
            replace_where=values.get("replaceWhere"),
            dynamic=mode == "dynamic",
            merge_schema=truth("mergeSchema", values.get("mergeSchema")),
            overwrite_schema=truth("overwriteSchema", values.get("overwriteSchema")),
            partition_by=partition_by,
            app=(values["txnAppId"], int(number)) if "txnAppId" in values else None,
        )


def truth(name: str, text: str | None) -> bool:
    """The value of an option that is on or off; off by default."""
    if text is None or text.lower() == "false":
        return False
    if text.lower() != "true":
        raise InvalidRequestError(f"invalid {name} {text!r}; expected true or false")
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """Picklable: the data source plans in one process, and commits in another."""

    location: str
    version: int
    """The version of the table that the plan is for."""
    protocol: Protocol
    before: Metadata
    after: Metadata
    """Metadata of the table after the write."""
    options: WriteOptions
    in_utc: bool
    clustered: frozenset[file_statistics.Leaf] = frozenset()
    objects: ObjectFiles | None = None

    @classmethod
    def of(cls, snapshot: Snapshot, given: Struct, options: WriteOptions, *, in_utc: bool) -> WritePlan:
        """The plan for rows with the columns `given`. Raises `InvalidRequestError` before a file is written."""
        before = snapshot.metadata
        schema, columns = snapshot.schema, snapshot.partition_columns
        if options.overwrite_schema:
            schema = given
            columns = columns if options.partition_by is None else options.partition_by
        elif options.merge_schema:
            schema = _merged_schema(snapshot, given)
        if options.partition_by not in (None, columns):
            raise InvalidRequestError(
                f"{snapshot.reader.label} is partitioned by {', '.join(columns) or 'nothing'}, not by "
                f"{', '.join(options.partition_by or ())}"
            )
        after = before
        if (schema, columns) != (snapshot.schema, snapshot.partition_columns):
            check_columns(schema, columns, mapped=snapshot.schema.is_mapped)
            after = msgspec.structs.replace(before, schema_string=schema.to_json(), partition_columns=columns)
            after = column_mapping.assigned(after, before, random_uuid)
        plan = cls(
            location=str(snapshot.location),
            version=snapshot.version,
            protocol=snapshot.protocol,
            before=before,
            after=after,
            options=options,
            in_utc=in_utc,
            clustered=snapshot.clustering_columns,
            objects=snapshot.objects,
        )
        plan.replaced()
        _ = plan.rules  # raises for rules that cannot be evaluated
        if options.overwrite and not options.dynamic and snapshot.files:
            features.check_removable(plan.protocol, before, snapshot.reader.label)
        return plan

    @property
    def schema(self) -> Struct:
        """The schema of the files to write, with the partition columns."""
        return column_mapping.of_table(self.protocol, self.after)

    @property
    def task(self) -> WriteTask:
        """The function that tasks run to write the files."""
        return WriteTask(
            location=self.location,
            schema=self.schema,
            partition_columns=self.after.partition_columns,
            indexed=self.indexed,
            rules=self.rules,
            objects=self.objects,
        )

    @property
    def indexed(self) -> frozenset[file_statistics.Leaf]:
        """The columns that get statistics."""
        own = self.schema.without(self.after.partition_columns)
        return file_statistics.indexed(own, self.after.configuration) | self.clustered

    @property
    def rules(self) -> RowRules:
        """The table's rules for the rows. A default of the current time has the time of this call."""
        return RowRules.of(self.protocol, self.after, now=Environment().now())

    def replaced(self) -> FileTest | None:
        """See the function `replaced`."""
        return replaced(self.options, self.schema, self.after.partition_columns, in_utc=self.in_utc)

    def begin(
        self,
        table: Table,
        *,
        snapshot: Snapshot | None = None,
        app: tuple[str, int] | None = None,
        operation: str = "WRITE",
        parameters: Mapping[str, str] | None = None,
    ) -> Transaction | None:
        """The transaction of the write, on the plan's version; None if the batch is already committed.

        `app`: application and number of the batch, if the options have none. An append may begin on a newer version
        with the same metadata and protocol, because it reads nothing else. Raises `MetadataChangedError` if the name or
        path now means another table: the files are not in that table's folder.
        """
        if snapshot is None:
            snapshot = self._planned(table)
        described = {"mode": "Overwrite" if self.options.overwrite else "Append"} if parameters is None else parameters
        transaction = table.transaction(
            snapshot=snapshot,
            operation=operation,
            parameters={**described, **self._parameters()},
            landed=table.checkpoint_if_due,
        )
        batch = app or self.options.app
        return None if batch is not None and not transaction.claim(*batch) else transaction

    def _planned(self, table: Table) -> Snapshot:
        """The snapshot on which the transaction begins."""
        newest = table.snapshot()
        if newest.version >= self.version:
            same = (newest.protocol, newest.metadata) == (self.protocol, self.before)
            stale = newest.version != self.version and (self.options.overwrite or not same)
            begun = table.snapshot(version=self.version) if stale else newest
            if begun.metadata.id == self.before.id:
                return begun
        raise MetadataChangedError(
            f"{table.label} was dropped and created again while rows were written to it; nothing is committed: write "
            "the rows again",
            version=newest.version,
        )

    def _parameters(self) -> dict[str, str]:
        parameters: dict[str, str] = {}
        if self.options.replace_where is not None:
            parameters["predicate"] = self.options.replace_where
        if self.options.partition_by is not None:
            parameters["partitionBy"] = msgspec.json.encode(self.options.partition_by).decode()
        return parameters

    def commit(self, transaction: Transaction, files: JobFiles) -> Written:
        """Commit durable files as one version. Deletes them if the commit certainly did not land."""
        adds, rules, test = files.added, self.rules, self.replaced()
        rules.advance(files.identities)
        after = rules.advanced(self.after) or self.after
        with transaction.deleting_unless_landed(adds):
            check_inside(adds, test)
            if after != self.before:
                own = self.before.configuration  # the transaction assigns the highest id of a mapped column again
                transaction.set_metadata(msgspec.structs.replace(after, configuration=own))
            removed = self._removed(transaction, adds, test)
            transaction.keeps_row_ids = True  # a write copies no rows
            transaction.remove(*removed)
            transaction.add(*adds)
            written = describe(0, adds)
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

    def _removed(self, transaction: Transaction, adds: Sequence[Add], test: FileTest | None) -> list[Add]:
        if not self.options.overwrite:
            return []
        if test is not None:
            read = transaction.read_files(test)
            return [add for add in read if test.matches_partition(add.partition_values) is True]
        if self.options.dynamic and self.after.partition_columns:
            return transaction.read_partitions([add.partition_values for add in adds])
        return transaction.read_whole_table()


def replaced(
    options: WriteOptions, schema: Struct, partition_columns: tuple[str, ...], *, in_utc: bool
) -> FileTest | None:
    """The condition of `replaceWhere`, which may test partition columns only."""
    from refimpl.client import predicate

    text = options.replace_where
    if text is None:
        return None
    test = predicate.parse(text).test(schema, partition_columns)
    if not test.partition_only:
        raise InvalidRequestError(
            f"replaceWhere {text!r} tests other columns than the partition columns "
            f"({', '.join(partition_columns) or 'the table has none'}); replace whole partitions",
            condition=text,
        )
    zoned = any(column.type == Primitive(name="timestamp") for column in test.condition.columns())
    if zoned and not in_utc:
        raise InvalidRequestError(
            f"replaceWhere {text!r} tests a timestamp, which is read in UTC; set spark.sql.session.timeZone to UTC",
            condition=text,
        )
    return test


def check_inside(adds: Sequence[Add], test: FileTest | None) -> None:
    """Raise `InvalidRequestError` for files outside the partitions that `replaceWhere` replaces."""
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


def describe(version: int, adds: Sequence[Add]) -> Written:
    """The result of a write of these files."""
    rows = _row_count(adds)
    return Written(version=version, files=len(adds), rows=rows, bytes=sum(add.size for add in adds))


def _merged_schema(snapshot: Snapshot, given: Struct) -> Struct:
    """DELTA.md#merged-types. Raises `InvalidRequestError` if a column cannot get the rows' wider type."""
    problem = type_widening.obstacle(snapshot.protocol, snapshot.metadata)

    def widened(table: DataType, rows: DataType, path: str) -> DataType:
        if not widens(table, rows):
            return table
        if problem is None and type_widening.widens_unasked(table, rows):
            return rows
        why = problem or (
            f"a write does not widen an integer to a decimal or a double; widen it first: commit-owner alter "
            f"{snapshot.reader.label} --type '{path}={rows}', or Table.alter in Python"
        )
        raise InvalidRequestError(f"mergeSchema does not widen {path!r} from {table} to {rows}: {why}", column=path)

    merged = _merged(snapshot.schema, given, "", widened)
    assert isinstance(merged, Struct)
    recorded = type_widening.recorded(snapshot.schema, merged, records=True)
    changed = [*type_widening.changed_columns(snapshot.schema, recorded)]
    type_widening.check_rules(snapshot.protocol, snapshot.metadata, merged, changed)
    return merged


def _merged(
    table: DataType, rows: DataType, path: str, widened: Callable[[DataType, DataType, str], DataType]
) -> DataType:
    """The table's type, with the types that `widened` returns, and with the members that only the rows have at the end.
    Other differences stay: `frames` decides whether the rows fit."""
    match table, rows:
        case Struct(fields=own), Struct(fields=given):
            by_name = {column.name.lower(): column for column in given}
            kept = [
                dataclasses.replace(
                    column,
                    type=_merged(column.type, by_name[column.name.lower()].type, joined(path, column.name), widened),
                )
                if column.name.lower() in by_name
                else column
                for column in own
            ]
            names = {column.name.lower() for column in own}
            return Struct(fields=(*kept, *(_nullable(column) for column in given if column.name.lower() not in names)))
        case Array(element=own_element), Array(element=given_element):
            return dataclasses.replace(
                table, element=_merged(own_element, given_element, joined(path, "element"), widened)
            )
        case Map(value=own_value), Map(value=given_value):
            return dataclasses.replace(table, value=_merged(own_value, given_value, joined(path, "value"), widened))
        case _:
            return widened(table, rows, path)


def _nullable(column: Field) -> Field:
    return dataclasses.replace(column, nullable=True)


MODES: Final = ("append", "overwrite", "ignore", "error")
_SYNONYMS: Final = {"errorifexists": "error", "default": "error"}
_OPTIONS: Final = (*OPTIONS, "feature", "commitMode")
_BY_LOWER_CASE: Final = {name.lower(): name for name in _OPTIONS}
_PROPERTY_PREFIX: Final = "delta."
_CREATION_RACES: Final = 3


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
        """Write to the table at this path: one of the warehouse's, or a plain filesystem table."""
        return self._save(PathTarget(self._access, Path(path).absolute(), self._options_of_creation()))

    def insertInto(self, name: str, overwrite: bool | None = None) -> Written | None:  # noqa: N802 - PySpark's
        """Write to an existing table; columns are matched by position.

        `overwrite` takes precedence over the mode. By default, the rows are appended.
        """
        target = NamedTarget(self._access, name, self._options_of_creation())
        table = target.find()
        if table is None:
            raise TableNotFoundError(f"table {name!r} does not exist; create it with saveAsTable")
        self._check_options_of_change()
        replaces = self._mode == "overwrite" if overwrite is None else overwrite
        options = self._write_options(overwrite=replaces)
        if options.merge_schema or options.overwrite_schema:
            raise InvalidRequestError("insertInto matches columns by position; use saveAsTable to change the schema")
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
                return self._change(table, overwrite=self._mode == "overwrite", by_position=False)
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
        partition_columns = self._partition_columns or ()
        creation = target.begin(schema, partition_columns)
        schema = creation.schema
        options = self._write_options(overwrite=self._mode == "overwrite")
        if options.app is not None or features.has_rules(schema, self._properties):
            return self._change(creation.finish(()), overwrite=False, by_position=False)
        files = JobFiles(added=())
        try:
            test = replaced(options, schema, partition_columns, in_utc=self._access.in_utc)
            indexed = file_statistics.indexed(schema.without(partition_columns), self._properties)
            files = self._write_files(self._frame, creation.location, schema, partition_columns, indexed)
            check_inside(files.added, test)
        except BaseException:
            creation.abandon(files.added)
            raise
        creation.finish(files.added)
        return describe(0, files.added)

    def _change(self, table: Table, *, overwrite: bool, by_position: bool) -> Written | None:
        snapshot = table.snapshot()
        plan = self._plan(snapshot, overwrite=overwrite)
        rules = plan.rules
        frame = frames.matched(self._frame, plan.schema, by_position=by_position, filled=rules.filled)
        transaction = plan.begin(table, snapshot=snapshot)
        if transaction is None:
            return None
        columns = plan.after.partition_columns
        files = self._write_files(frame, table.location, plan.schema, columns, plan.indexed, rules, plan.objects)
        return plan.commit(transaction, files)

    def _plan(self, snapshot: Snapshot, *, overwrite: bool) -> WritePlan:
        options = self._write_options(overwrite=overwrite)
        return WritePlan.of(snapshot, frames.table_schema(self._frame), options, in_utc=self._access.in_utc)

    def _write_options(self, *, overwrite: bool) -> WriteOptions:
        given = {name.lower(): value for name, value in self._options.items()}
        return WriteOptions.parse(given, overwrite=overwrite, partition_by=self._partition_columns)

    def _write_files(
        self,
        frame: DataFrame,
        location: Path,
        schema: Struct,
        partition_columns: tuple[str, ...],
        indexed: frozenset[Leaf],
        rules: RowRules | None = None,
        objects: ObjectFiles | None = None,
    ) -> JobFiles:
        """Write the rows of `frame` to durable files, which no log names yet. The caller commits or deletes them."""
        if self._frame.isLocal():  # `self._frame`: a frame derived from it is never local
            writer = data_files.DataFileWriter(location, schema, partition_columns, indexed=indexed, objects=objects)
            rows = frame.toArrow()
            adds = writer.write_all([rows if rules is None else rules.completed(rows)])
            reached = {} if rules is None else {name: (value,) for name, value in rules.reached.items()}
            return JobFiles(added=tuple(adds), identities=reached)
        return commit_protocol.write(
            frame, location, schema, partition_columns, indexed=indexed, rules=rules, objects=objects
        )

    def _check_options_of_change(self) -> None:
        for given in (*(name for name in ("feature", "commitMode") if name in self._options), *self._properties):
            raise InvalidRequestError(f"the option {given!r} needs a new table, but this table exists", option=given)
