"""The plan of a write: its columns, its partitions, and the files that it replaces. The driver makes it before tasks
run.

    plan = WritePlan.of(table.snapshot(), frames.table_schema(frame), WriteOptions(overwrite=True))
    transaction = plan.begin(table)
    written = plan.commit(transaction, files)

`delta.write(df)` and the data source `delta-owner` share it. Between `of` and `commit`, tasks write the files and make
them durable. One transaction names them. If it certainly did not land, the files are deleted; after an unknown outcome
they stay.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from refimpl.client.snapshot import Snapshot
from refimpl.client.table import Table
from refimpl.client.transaction import Transaction
from refimpl.protocol.actions import Add, Metadata, Protocol
from refimpl.protocol.errors import InvalidRequestError, MetadataChangedError
from refimpl.rows import file_statistics, type_widening
from refimpl.rows.condition import FileTest
from refimpl.rows.file_statistics import row_count
from refimpl.rows.partition_values import FileLayout
from refimpl.rows.row_rules import RowRules
from refimpl.schema import column_mapping, features
from refimpl.schema.schema import (
    Array,
    DataType,
    Field,
    Map,
    Primitive,
    Struct,
    check_columns,
    joined,
    parts,
    widens,
    with_parts,
)
from refimpl.spark import plan_reads
from refimpl.spark.commit_protocol import JobFiles, WriteTask
from refimpl.spark.plan_reads import Read
from refimpl.storage.environment import random_uuid

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
        cls,
        given: Mapping[str, str],
        *,
        overwrite: bool,
        default_mode: str,
        partition_by: tuple[str, ...] | None = None,
    ) -> "WriteOptions":
        """A writer's options, by their names in `OPTIONS`. Ignores case, and other options.

        `default_mode`: the session's `partitionOverwriteMode`. As in Delta, it applies only to an overwrite without
        `replaceWhere` and `overwriteSchema`.
        """
        lower = {name.lower(): value for name, value in given.items()}
        values = {name: lower[name.lower()] for name in OPTIONS if name.lower() in lower}
        overwrites_schema = truth("overwriteSchema", values.get("overwriteSchema"))
        if not overwrite or overwrites_schema or "replaceWhere" in values:
            default_mode = "static"
        mode = values.get("partitionOverwriteMode", default_mode).lower()
        if mode not in ("static", "dynamic"):
            raise InvalidRequestError(f"invalid partitionOverwriteMode {mode!r}; expected static or dynamic")
        if ("txnAppId" in values) != ("txnVersion" in values):
            raise InvalidRequestError("txnAppId and txnVersion are required together")
        number = values.get("txnVersion", "0")
        if not (number.isascii() and number.isdecimal()):
            raise InvalidRequestError(f"invalid txnVersion {number!r}; expected a number >= 0")
        return cls(
            overwrite=overwrite,
            replace_where=values.get("replaceWhere"),
            dynamic=mode == "dynamic",
            merge_schema=truth("mergeSchema", values.get("mergeSchema")),
            overwrite_schema=overwrites_schema,
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

    table: FileLayout
    """The layout of the table before the write."""
    version: int
    """The version of the table that the plan is for."""
    protocol: Protocol
    before: Metadata
    after: Metadata
    """Metadata of the table after the write."""
    options: WriteOptions
    in_utc: bool
    now: int
    """ms since the epoch: the value of `current_timestamp()` as a default, in all tasks."""
    clustered: frozenset[file_statistics.Leaf] = frozenset()
    reads: tuple[Read, ...] = ()
    """What the query of the rows reads, of this table and others."""

    @classmethod
    def of(cls, snapshot: Snapshot, given: Struct, options: WriteOptions, *, in_utc: bool) -> "WritePlan":
        """The plan for rows with the columns `given`. Raises `InvalidRequestError` before a file is written."""
        before = snapshot.metadata
        schema, columns = snapshot.schema, snapshot.partition_columns
        if options.overwrite_schema:
            schema = given
            columns = given.spelled(columns if options.partition_by is None else options.partition_by)
        elif options.merge_schema:
            schema = _merged_schema(snapshot, given)
        if options.partition_by is not None and schema.spelled(options.partition_by) != columns:
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
            table=snapshot.layout,
            version=snapshot.version,
            protocol=snapshot.protocol,
            before=before,
            after=after,
            options=options,
            in_utc=in_utc,
            now=snapshot.reader.log.environment.now(),
            clustered=snapshot.clustering_columns,
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
    def layout(self) -> FileLayout:
        """The layout of the files to write."""
        return dataclasses.replace(self.table, schema=self.schema, partition_columns=self.after.partition_columns)

    @property
    def task(self) -> WriteTask:
        """The function that tasks run to write the files."""
        return WriteTask(layout=self.layout, indexed=self.indexed, rules=self.rules)

    @property
    def indexed(self) -> frozenset[file_statistics.Leaf]:
        """The columns that get statistics."""
        own = self.schema.without(self.after.partition_columns)
        return file_statistics.indexed(own, self.after.configuration) | self.clustered

    @property
    def rules(self) -> RowRules:
        """The table's rules for the rows."""
        return RowRules.of(self.protocol, self.after, now=self.now)

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
        """Begin the write's transaction on the plan's version; None if the batch is already committed.

        `snapshot`: the newest, if the caller has it. `app`: application and number of the batch, if the options have
        none. If the query of the rows reads the table, the transaction begins on the version that it reads. Else, an
        append may begin on a newer version with the same metadata and protocol, because it reads nothing else. Raises
        `MetadataChangedError` if the name or path now means another table: the files are not in that table's folder.
        """
        newest = snapshot or table.snapshot()
        reads = self.reads if self.options.overwrite else ()
        if reads and (missing := plan_reads.missing(reads, newest)):
            raise MetadataChangedError(
                f"the frame or view from which the rows were read lacks columns of {table.label}: "
                f"{', '.join(missing)}; they would become NULL: create it again, then redo the write"
            )
        described = {"mode": "Overwrite" if self.options.overwrite else "Append"} if parameters is None else parameters
        transaction = table.transaction(
            snapshot=self._planned(table, newest),
            operation=operation,
            parameters={**described, **self._parameters()},
            landed=table.checkpoint_if_due,
        )
        plan_reads.declare(transaction, self.reads, in_utc=self.in_utc)
        batch = app or self.options.app
        return None if batch is not None and not transaction.claim(*batch) else transaction

    def _planned(self, table: Table, newest: Snapshot) -> Snapshot:
        """The snapshot on which the transaction begins."""
        read = plan_reads.oldest(self.reads, newest)
        version = self.version if read is None else read
        if newest.version >= version:
            same = (newest.protocol, newest.metadata) == (self.protocol, self.before)
            stale = newest.version != version and (read is not None or self.options.overwrite or not same)
            begun = table.snapshot(version=version) if stale else newest
            if read is not None and (begun.protocol, begun.metadata) != (self.protocol, self.before):
                raise MetadataChangedError(
                    f"the metadata of {table.label} changed after version {version}, which the rows to write were read "
                    "from; read again, then redo it",
                    version=newest.version,
                )
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

    def commit(
        self, transaction: Transaction, files: JobFiles, *, named: Callable[[], bool] = lambda: False
    ) -> Written:
        """Commit durable files as one version. Deletes them if the commit certainly did not land. `named`: whether the
        log names them because another request with the same files landed."""
        adds, rules, test = files.added, self.rules, self.replaced()
        rules.advance(files.identities)
        after = rules.advanced(self.after) or self.after
        with transaction.deleting_unless_landed(adds, named=named):
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
    from refimpl.rows import predicate

    text = options.replace_where
    if text is None:
        return None
    test = predicate.file_test(text, schema, partition_columns)
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
        case (Array(), Array()) | (Map(), Map()):
            inner = dict(parts(rows))
            return with_parts(table, lambda part, name: _merged(part, inner[name], joined(path, name), widened))
        case _:
            return widened(table, rows, path)


def _nullable(column: Field) -> Field:
    return dataclasses.replace(column, nullable=True)
