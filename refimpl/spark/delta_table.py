"""`delta.table("flights")`: DELETE, UPDATE and MERGE with Spark. Methods are named as in Delta.

    delta.table("flights").update(set={"price": "price * 2"}, condition="month = 3")

Copy on write: a first job finds the files that hold a row to change. A second job rewrites these files through the
delayed commit protocol. One transaction commits. DELTA.md#row-changes defines the rows and the conflicts. If only Spark
understands a condition, and not `refimpl.rows.predicate`, then the transaction counts as a read of the whole table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

from refimpl.client import row_changes
from refimpl.client.merging import METRICS, Clause, Clauses, Kind, bound_on
from refimpl.client.table import Table
from refimpl.protocol.actions import Add
from refimpl.protocol.errors import InvalidRequestError
from refimpl.rows import predicate
from refimpl.rows.condition import And, Comparison, Condition, FileTest, Not, OneOf, Operator
from refimpl.rows.condition import Column as TableColumn
from refimpl.rows.file_statistics import row_count
from refimpl.rows.predicate import Sides
from refimpl.schema.schema import CHANGE_COLUMN, CHANGE_TYPE, Primitive
from refimpl.spark import commit_protocol, plan_reads
from refimpl.spark.commit_protocol import NewRows, WriteTask
from refimpl.spark.frames import functions, quoted, spark_schema, table_schema
from refimpl.spark.plan_reads import Read
from refimpl.spark.reader import FILE_COLUMN, path_of, read_files
from refimpl.spark.tables import TableAccess

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_FILES_PER_TASK: Final = 16
_KEYS: Final = 10_000
"""With at most this many distinct keys in the source, a MERGE skips target files without these keys. With more keys, it
skips target files outside the range of the keys."""
_ATTEMPTS: Final = 4
_LOST_ROWS: Final = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"
"""Spark's error after the loss of an executor with rows of `DataFrame.localCheckpoint`."""
_ROW: Final = "__row"
_IN_SOURCE: Final = "__in_source"
_KEY_TYPES: Final = tuple(Primitive(name=name) for name in ("long", "integer", "short", "byte", "string", "date"))
_KEPT, _COUNTED, _CHANGE = "false", "none", "true"
"""Values of `__is_cdc`: a row for a data file, a row that is only counted, a row for a change data file."""
_COPY: Final = "copy"


class DeltaTable:
    """Made by `DeltaConnection.table` and `table_at`."""

    def __init__(self, access: TableAccess, table: Table) -> None:
        self._access = access
        self._table = table

    def delete(self, condition: str | Column | None = None) -> row_changes.RowsChanged:
        """Delete the rows for which the condition is true, or all rows. See `refimpl.client.table.Table.delete`."""
        work = self._work("DELETE", condition)
        with work.change:
            return work.delete(condition)

    def update(self, set: Mapping[str, Any], condition: str | Column | None = None) -> row_changes.RowsChanged:  # noqa: A002
        """Set columns of the rows for which the condition is true, or of all rows. Text in `set` is SQL."""
        work = self._work("UPDATE", condition)
        with work.change:
            return work.update(set, condition)

    def merge(
        self, source: DataFrame, condition: str, *, source_alias: str = "source", target_alias: str = "target"
    ) -> DeltaMerge:
        """Begin a MERGE. In its SQL, columns are `target.x` and `source.x`, or named by the given aliases."""
        return DeltaMerge(self._access, self._table, source, condition, source_alias, target_alias)

    def _work(self, operation: str, condition: str | Column | None) -> _Work:
        text = None if condition is None else str(condition)
        work = _Work(self._access, self._table, operation)
        work.check_rules()
        work.change.transaction.parameters |= row_changes.predicate_parameter(text)
        work.change.transaction.check_removable()
        return work


class _Work:
    """One operation: its transaction, and the frames of the table's files."""

    def __init__(self, access: TableAccess, table: Table, operation: str, reads: Sequence[Read] = ()) -> None:
        self._access = access
        self._table = table
        version = plan_reads.oldest(reads, table.snapshot()) if reads else None
        begun = None if version is None else table.snapshot(version=version)
        transaction = table.transaction(snapshot=begun, operation=operation, landed=table.checkpoint_if_due)
        plan_reads.declare(transaction, reads, in_utc=access.in_utc)
        self.change = row_changes.RowChange(transaction)
        self.schema = self.change.snapshot.schema
        self._by_path: dict[str, Add] = {}
        self._new_rows: dict[str, NewRows] = {}
        """By the `_change_type` of their rows."""

    def check_rules(self) -> None:
        """Raise `UnsupportedFeatureError` for rules that cannot be evaluated, before a job runs."""
        if self.change.transaction.operation != "DELETE":
            _ = self.change.transaction.rules

    def delete(self, condition: str | Column | None) -> row_changes.RowsChanged:
        test = self._access.file_test(self.change.snapshot, condition)
        if condition is None or (test is not None and test.partition_only):
            files = self._candidates(condition, test)
            whole = files if test is None else [add for add in files if row_changes.whole_partition(test, add)]
            if len(whole) == len(files):
                for add in whole:
                    self.change.remove(add)
                deleted = sum(row_count(add) or 0 for add in whole)
                return self.change.commit({"numDeletedRows": deleted, "numCopiedRows": 0})
        changed = [self._counted("delete"), *self._changes((row_changes.DELETED, self._columns()))]
        counts = self._rewritten(condition, test, changed)
        return self.change.commit({"numDeletedRows": counts["delete"], "numCopiedRows": counts["copy"]})

    def update(self, values: Mapping[str, Any], condition: str | Column | None) -> row_changes.RowsChanged:
        after, given = self._assigned(values, self._columns())
        changed = [self._new("update", after, given), *self._changes((row_changes.BEFORE, self._columns()))]
        test = self._access.file_test(self.change.snapshot, condition)
        counts = self._rewritten(condition, test, changed, after)
        return self.change.commit({"numUpdatedRows": counts["update"], "numCopiedRows": counts["copy"]})

    def _rewritten(
        self,
        condition: str | Column | None,
        test: FileTest | None,
        changed: Sequence[Column],
        after: Sequence[Column] = (),
    ) -> Mapping[str, int]:
        """Write each row for which the condition is true as `changed`, and the other rows of its file unchanged."""
        true = self._true(condition)
        rows = self._touched(condition, test, true, after)
        kept = functions.array(self._kept())
        return self._write(rows, functions.when(true, functions.array(*changed)).otherwise(kept))

    # Files

    def _candidates(self, condition: object, test: FileTest | None) -> list[Add]:
        transaction = self.change.transaction
        return transaction.read_whole_table() if condition is None or test is None else transaction.read_files(test)

    def _touched(self, condition: object, test: FileTest | None, true: Column, after: Sequence[Column]) -> DataFrame:
        """Remove the files that hold a matching row from the table, and return their rows."""
        columns = self.rows([])  # without `FILE_COLUMN`, which Spark's errors would suggest
        check_step(columns.where(true), f"the condition {condition}")
        check_step(columns.select(*after), "a value of set")
        matching = self.rows(self._candidates(condition, test), with_file=True).where(true)
        removed = self.leaving(row[0] for row in matching.select(FILE_COLUMN).distinct().collect())
        return self.rows(removed, tracked=True)

    def rows(self, files: Sequence[Add], *, with_file: bool = False, tracked: bool = False) -> DataFrame:
        """The rows of the files. `tracked`: with the columns that keep row ids, for rows that are written again."""
        snapshot, hidden = self.change.snapshot, self.change.hidden if tracked else ()
        layout = snapshot.layout
        self._by_path |= {str(layout.path_of(add.path)): add for add in files}
        return read_files(self._access.spark, snapshot, files, with_file=with_file, hidden=hidden)

    def leaving(self, uris: Iterator[str]) -> list[Add]:
        """Remove these files from the table."""
        removed = [self._by_path[path_of(uri)] for uri in sorted(uris)]
        for add in removed:
            self.change.remove(add)
        return removed

    # Rows

    def _true(self, condition: str | Column | None) -> Column:
        """A column that is true if the condition is; false if the condition is null (DELTA.md#null-condition)."""
        if condition is None:
            return functions.lit(True)
        _check_no_query(condition)
        return functions.coalesce(
            functions.expr(condition) if isinstance(condition, str) else condition, functions.lit(False)
        )

    def _columns(self, alias: str | None = None) -> list[Column]:
        side = "" if alias is None else f"{quoted(alias)}."
        return [functions.col(side + quoted(name)) for name in self.schema.names]

    def _assigned(
        self, values: Mapping[str, Any], otherwise: Sequence[Column] | None
    ) -> tuple[list[Column], frozenset[str]]:
        """All columns of the table, and the names of the columns in `values`.

        The columns in `values` have these values, cast to the table's types; the others are those of `otherwise`, or
        null.
        """

        if not values:
            raise InvalidRequestError("no column is set; expected at least one, as in {'price': 'price * 2'}")
        if self._access.spark.conf.get("spark.sql.ansi.enabled", "true") != "true":
            raise InvalidRequestError(
                "spark.sql.ansi.enabled is false: Spark would change values that do not fit their column, without an "
                "error; set it to true for this session"
            )
        names: list[str] = []
        by_name = {name.lower(): position for position, name in enumerate(self.schema.names)}
        types = [field.dataType for field in spark_schema(self.schema).fields]
        columns = list(otherwise) if otherwise is not None else [functions.lit(None).cast(kind) for kind in types]
        for name, value in values.items():
            position = by_name.get(name.lower())
            if position is None:
                raise InvalidRequestError(f"unknown column {name!r}; the columns are {', '.join(self.schema.names)}")
            if self.schema.names[position] in names:
                raise InvalidRequestError(f"the column {name!r} is set twice")
            _check_no_query(value)
            given = functions.expr(value) if isinstance(value, str) else functions.lit(value)  # a Column stays itself
            columns[position] = given.cast(types[position])
            names.append(self.schema.names[position])
        return columns, frozenset(names)

    def _row(self, change_type: str, kind: str, columns: Sequence[Column], hidden: Sequence[Column] = ()) -> Column:
        names = (*self.schema.names, *(column.name for column in self.change.hidden), CHANGE_TYPE, CHANGE_COLUMN)
        nulls = [functions.lit(None).cast("long") for _ in self.change.hidden]
        values = (*columns, *hidden, *nulls[len(hidden) :], functions.lit(change_type), functions.lit(kind))
        return functions.struct(*(column.alias(name) for column, name in zip(values, names, strict=True)))

    def _kept(self, alias: str | None = None) -> Column:
        """An unchanged row, with its id and commit version."""
        return self._row(_COPY, _KEPT, self._columns(alias), self._hidden(alias))

    def _hidden(self, alias: str | None) -> list[Column]:
        side = "" if alias is None else f"{quoted(alias)}."
        return [functions.col(side + quoted(column.name)) for column in self.change.hidden]

    def _new(
        self,
        what: str,
        columns: Sequence[Column],
        given: frozenset[str],
        *,
        inserted: bool = False,
        alias: str | None = None,
    ) -> Column:
        """A changed row, which keeps its id, or an inserted row."""
        label = f"{what} {len(self._new_rows)}"
        change = None if not self.change.feeds_changes else row_changes.INSERTED if inserted else row_changes.AFTER
        self._new_rows[label] = NewRows(given=given, inserted=inserted, change=change)
        return self._row(label, _KEPT, columns, () if inserted else self._hidden(alias)[:1])

    def _counted(self, what: str) -> Column:
        """A row that is not written: only its operation is counted."""
        nulls = [functions.lit(None).cast(field.dataType) for field in spark_schema(self.schema).fields]
        return self._row(what, _COUNTED, nulls)

    def _changes(self, *changes: tuple[str, Sequence[Column]]) -> list[Column]:
        """Rows of the change data feed; none if it is off."""
        if not self.change.feeds_changes:
            return []
        return [self._row(change_type, _CHANGE, columns) for change_type, columns in changes]

    def _write(self, rows: DataFrame, outputs: Column) -> Mapping[str, int]:
        """Run the job that writes the rows. `outputs`: an array with the new rows for each old row.

        Returns the number of rows by operation.
        """
        snapshot = self.change.snapshot
        rules = self.change.transaction.rules if self._new_rows else None
        task = WriteTask(
            layout=snapshot.layout,
            indexed=snapshot.indexed_columns,
            rules=rules or None,
            new_rows=self._new_rows,
            hidden=self.change.hidden,
        )
        output = rows.select(functions.explode(outputs).alias("output")).select("output.*")
        if output._jdf.queryExecution().analyzed().subqueriesAll().nonEmpty():
            raise InvalidRequestError("a condition or value has a subquery, which is not supported; join with MERGE")
        files = commit_protocol.write(commit_protocol.job(output, task), task.layout)
        self.change.adopt(files.added, files.changes)
        if rules is not None:
            rules.advance(files.identities)
        counts = Counter[str]()
        for label, count in files.counts.items():
            counts[label.partition(" ")[0]] += count
        return counts


def check_step(frame: DataFrame, what: str) -> None:
    """Raise `InvalidRequestError` if the frame's last step reads tables that the transaction does not know, or if a
    second evaluation of it may give other rows."""
    found = frame._jdf.queryExecution().analyzed().expressions()
    expressions = [found.apply(number) for number in range(found.size())]
    jvm: Any = frame.sparkSession._jvm
    if any(map(jvm.org.apache.spark.sql.catalyst.expressions.SubqueryExpression.hasSubquery, expressions)):
        raise InvalidRequestError(f"{what} has a subquery, which is not supported; join the tables with MERGE")
    if not all(expression.deterministic() for expression in expressions):
        raise InvalidRequestError(f"{what} is not deterministic: a second evaluation may give another result")


def _check_no_query(given: object) -> None:
    """Reject a subquery: the transaction would not know what it reads."""
    from sqlglot import exp

    try:
        tree = predicate.syntax(given) if isinstance(given, str) else None
    except InvalidRequestError:  # Spark understands more SQL, and reports errors itself
        return
    if tree is not None and tree.find(exp.Query):
        predicate.refuse(tree, "has a subquery, which is not supported; join the tables with MERGE")


class DeltaMerge:
    """Made by `DeltaTable.merge`. Clauses are named as in Delta. Of each kind, the first clause that is true
    applies."""

    def __init__(
        self, access: TableAccess, table: Table, source: DataFrame, on: str, source_alias: str, target_alias: str
    ) -> None:
        if source_alias.lower() == target_alias.lower():
            raise InvalidRequestError(f"source and target have the same alias {source_alias!r}; choose two")
        self.access = access
        self.table = table
        self.source = source
        self.on = on
        self.aliases = (target_alias, source_alias)
        self.clauses = Clauses()

    def whenMatchedUpdate(self, condition: Any = None, set: Mapping[str, Any] | None = None) -> Self:  # noqa: A002, N802
        """Set columns of a target row that a source row matches."""
        return self._with(Clause(kind=Kind.MATCHED, values=set or {}, where=condition))

    def whenMatchedUpdateAll(self, condition: Any = None) -> Self:  # noqa: N802
        """Set every column to the source's column of the same name."""
        return self._with(Clause(kind=Kind.MATCHED, all_columns=True, where=condition))

    def whenMatchedDelete(self, condition: Any = None) -> Self:  # noqa: N802
        """Delete a target row that a source row matches."""
        return self._with(Clause(kind=Kind.MATCHED, where=condition))

    def whenNotMatchedInsert(self, condition: Any = None, values: Mapping[str, Any] | None = None) -> Self:  # noqa: N802
        """Insert a row for a source row that matches no target row; columns without a value are null."""
        return self._with(Clause(kind=Kind.NOT_MATCHED, values=values or {}, where=condition))

    def whenNotMatchedInsertAll(self, condition: Any = None) -> Self:  # noqa: N802
        """Insert a source row that matches no target row, columns by name."""
        return self._with(Clause(kind=Kind.NOT_MATCHED, all_columns=True, where=condition))

    def whenNotMatchedBySourceUpdate(  # noqa: N802
        self,
        condition: Any = None,
        set: Mapping[str, Any] | None = None,  # noqa: A002
    ) -> Self:
        """Set columns of a target row that no source row matches."""
        return self._with(Clause(kind=Kind.NOT_MATCHED_BY_SOURCE, values=set or {}, where=condition))

    def whenNotMatchedBySourceDelete(self, condition: Any = None) -> Self:  # noqa: N802
        """Delete a target row that no source row matches."""
        return self._with(Clause(kind=Kind.NOT_MATCHED_BY_SOURCE, where=condition))

    def _with(self, clause: Clause) -> Self:
        self.clauses.append(clause)
        return self

    def execute(self) -> row_changes.RowsChanged:
        """Run the MERGE on the table's newest version. Rejects several source rows that match one target row.

        If an executor is lost with rows of the source, the whole operation starts again, up to `_ATTEMPTS` times.
        """
        attempt = 0
        while True:
            attempt += 1
            work = _MergeWork(self)
            work.check_rules()
            self.clauses.begin(work.change.transaction, self.on)
            try:
                with work.change:
                    return work.run()
            except Exception as error:  # every Spark job is before the commit
                if attempt == _ATTEMPTS or _LOST_ROWS not in str(error):
                    raise


class _MergeWork(_Work):
    """One execution of a MERGE. The source is evaluated once, so that both jobs see the same rows."""

    def __init__(self, merge: DeltaMerge) -> None:
        super().__init__(merge.access, merge.table, "MERGE", plan_reads.of(merge.access.rule, merge.source))
        self._target_alias, self._source_alias = merge.aliases
        self._on, self._clauses, self._given = merge.on, merge.clauses, merge.source
        self._keys: list[str] = []
        self._several = False
        """Whether several source rows match one target row, which is only deleted."""

    def run(self) -> row_changes.RowsChanged:
        clauses = [clause for kind in Kind for clause in self._clauses.of(kind)]
        parts = [part for clause in clauses for part in _sql_of(clause)]
        self._resolve(*parts)
        given = self._given.localCheckpoint()
        source = given.withColumn(_IN_SOURCE, functions.lit(True)).alias(self._source_alias)
        inserts = bool(self._clauses.of(Kind.NOT_MATCHED))
        candidates = self._files(given)
        files = self._find(candidates, source)
        target = self._target(files or candidates[:0], tracked=True)
        if not self._clauses.of(Kind.MATCHED) and not self._clauses.of(Kind.NOT_MATCHED_BY_SOURCE):
            joined = source.join(self._target(candidates), functions.expr(self._on), "left_anti")
            outputs = self._outputs(Kind.NOT_MATCHED)
        else:
            joined = target.join(source, functions.expr(self._on), "full_outer" if inserts else "left")
            in_target, in_source = functions.col(_ROW).isNotNull(), functions.col(_IN_SOURCE).isNotNull()
            if self._several:
                joined = joined.where(in_target).dropDuplicates([_ROW]).union(joined.where(~in_target))
            outputs = (
                functions.when(in_target & in_source, self._outputs(Kind.MATCHED))
                .when(in_target, self._outputs(Kind.NOT_MATCHED_BY_SOURCE))
                .otherwise(self._outputs(Kind.NOT_MATCHED))
            )
        counts = self._write(joined, outputs)
        return self.change.commit(self._metrics(counts, given.count()), prefix="numTarget")

    def _resolve(self, *parts: Any) -> None:
        """Resolve the conditions and values without this module's own columns, which Spark's errors would suggest."""
        from pyspark.sql import Column

        for part in (self._on, *parts):
            _check_no_query(part)
        source = self._given.alias(self._source_alias)
        both = self.rows([]).alias(self._target_alias).join(source)
        check_step(both.select(functions.expr(self._on)), f"the condition {self._on!r}")
        scope = both if self._clauses.of(Kind.MATCHED) or self._clauses.of(Kind.NOT_MATCHED_BY_SOURCE) else source
        columns = [functions.expr(part) if isinstance(part, str) else part for part in parts]
        columns = [column for column in columns if isinstance(column, Column)]
        check_step(scope.select(*columns), "a condition or value of a clause")

    def _target(self, files: Sequence[Add], *, tracked: bool = False) -> DataFrame:
        rows = self.rows(files, with_file=True, tracked=tracked).withColumn(
            _ROW, functions.monotonically_increasing_id()
        )
        return rows.alias(self._target_alias)

    def _files(self, source: DataFrame) -> list[Add]:
        """The files that can hold a key of the source; all files if only Spark understands the condition."""
        transaction = self.change.transaction
        sides = Sides.of(
            target_alias=self._target_alias,
            target=self.schema,
            source_alias=self._source_alias,
            source=table_schema(source),
        )
        columns = self.change.snapshot.partition_columns

        def test_of(target: TableColumn, key: TableColumn) -> Condition | None:
            self._keys.append(".".join(target.path[1:]))
            if len(key.path) != 2 or key.type != target.type or key.type not in _KEY_TYPES:
                return None
            column, values = target.inner(), source.selectExpr(f"{quoted(key.path[1])} AS key")
            try:
                ((count, least, most),) = values.selectExpr(
                    "approx_count_distinct(key)", "min(key)", "max(key)"
                ).collect()
            except (ValueError, OverflowError):  # a date that Python does not have
                return None
            if count <= _KEYS:
                keys = [row[0] for row in values.distinct().collect()]
                return OneOf(column=column, values=sorted(value for value in keys if value is not None))
            if isinstance(least, str) and "\ufffd" in least + most:  # it may stand for bytes that are not UTF-8
                return None
            below = Comparison(column=column, operator=Operator.LESS, value=least)
            return And(
                operands=(Not(operand=below), Comparison(column=column, operator=Operator.LESS_OR_EQUAL, value=most))
            )

        if self._access.reads_otherwise(self._on):
            return transaction.read_whole_table()
        try:
            _, _, test = bound_on(self._on, sides, test_of, columns)
        except InvalidRequestError:
            return transaction.read_whole_table()
        if self._clauses.of(Kind.NOT_MATCHED_BY_SOURCE) or not self._access.is_sound(test):
            return transaction.read_whole_table()
        return transaction.read_files(test)

    def _find(self, candidates: Sequence[Add], source: DataFrame) -> list[Add]:
        """Remove the files with a row that a clause may change from the table, and return them.

        Several source rows for one target row are rejected, unless it is only deleted (DELTA.md#several-matches).
        """
        matched, by_source = self._clauses.of(Kind.MATCHED), self._clauses.of(Kind.NOT_MATCHED_BY_SOURCE)
        if not matched and not by_source:
            return []
        joined = self._target(candidates).join(source, functions.expr(self._on), "left" if by_source else "inner")
        wanted = in_source = functions.col(_IN_SOURCE).isNotNull()
        for clause in by_source:
            wanted = wanted | (~in_source & self._true(clause.where))
        pairs = joined.where(wanted).groupBy(FILE_COLUMN, _ROW).agg(functions.count("*").alias("pairs"))
        touched = pairs.groupBy(FILE_COLUMN).agg(functions.max("pairs").alias("most")).collect()
        if any(row["most"] > 1 for row in touched):  # even without a clause for them: the join would repeat the row
            self._several = self._clauses.only_delete_matches
            if not self._several:
                self._refuse_several(joined)
        return self.leaving(row[0] for row in touched)

    def _refuse_several(self, joined: DataFrame) -> None:
        names = self._keys or list(self.schema.names)
        key = functions.struct(*(functions.col(f"{quoted(self._target_alias)}.{quoted(name)}") for name in names))
        counted = joined.where(functions.col(_IN_SOURCE).isNotNull()).groupBy(FILE_COLUMN, _ROW)
        row = (
            counted.agg(functions.first(key).alias("key"), functions.count("*").alias("pairs"))
            .where("pairs > 1")
            .first()
        )
        assert row is not None
        named = ", ".join(f"{name} = {value!r}" for name, value in zip(names, row["key"], strict=True))
        raise InvalidRequestError(
            f"{row['pairs']} rows of the source match the target row with {named}; expected at most one: remove "
            "duplicates from the source",
            key=named,
        )

    def _outputs(self, kind: Kind) -> Column:
        """The new rows for a row of this kind, by the first clause whose condition is true; by default, the row
        unchanged."""
        old = None if kind is Kind.NOT_MATCHED else self._columns(self._target_alias)
        nothing = functions.array(self._kept(self._target_alias) if old is not None else self._counted("nothing"))
        branches: Column | None = None
        for clause in self._clauses.of(kind):
            outputs = functions.array(*self._applied(clause, old))
            true = self._true(clause.where)
            branches = functions.when(true, outputs) if branches is None else branches.when(true, outputs)
        return nothing if branches is None else branches.otherwise(nothing)

    def _applied(self, clause: Clause, old: Sequence[Column] | None) -> list[Column]:
        what = {Kind.MATCHED: "Matched", Kind.NOT_MATCHED_BY_SOURCE: "NotMatchedBySource", Kind.NOT_MATCHED: ""}
        if clause.action == "delete":
            assert old is not None
            return [self._counted(f"{what[clause.kind]}Deleted"), *self._changes((row_changes.DELETED, old))]
        rules = self.change.transaction.rules
        values = clause.assignments(self.schema.names, self._given.columns, self._source_alias, rules)
        new, given = self._assigned(values or {}, old)
        if old is None:
            return [self._new("Inserted", new, given, inserted=True)]
        changed = self._new(f"{what[clause.kind]}Updated", new, given, alias=self._target_alias)
        return [changed, *self._changes((row_changes.BEFORE, old))]

    def _metrics(self, counts: Mapping[str, int], source_rows: int) -> dict[str, int]:
        metrics = dict.fromkeys(METRICS, 0)
        for name in METRICS:
            what = name.removeprefix("numTargetRows")
            metrics[name] = sum(counts.get(f"{side}{what}", 0) for side in ("", "Matched", "NotMatchedBySource"))
        metrics["numTargetRowsCopied"] = counts.get("copy", 0)
        output = sum(metrics[f"numTargetRows{what}"] for what in ("Inserted", "Updated", "Copied"))
        return {"numSourceRows": source_rows, "numOutputRows": output, **metrics}


def _sql_of(clause: Clause) -> Iterator[Any]:
    yield clause.where
    yield from (clause.values or {}).values()
