"""MERGE by copy on write: the rows of a source update, delete and insert rows of a table, in one transaction.

    merge = table.merge(rows, on="target.id = source.id")
    merge.when_matched_update({"price": "source.price"}).when_not_matched_insert_all().execute()

`on` has at least one equality between a column of the target and one of the source; its other conditions may use
both. The source is in memory. The table's files are read several at once, and only those that can hold a key of the
source (all of them if a clause is for target rows without a source row). Durability and conflicts:
`refimpl.client.row_changes`.
"""

import contextlib
import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from refimpl.client.row_changes import AFTER, BEFORE, DELETED, INSERTED, Recorded, RowChange, RowsChanged, touched
from refimpl.client.transaction import Transaction
from refimpl.protocol.actions import Add
from refimpl.protocol.errors import InvalidRequestError
from refimpl.rows import arrow_columns, data_files, predicate
from refimpl.rows.condition import And, Column, Condition, Constant, FileTest, OneOf
from refimpl.rows.expression import assigned, evaluated, matching
from refimpl.rows.predicate import Sides
from refimpl.rows.row_rules import RowRules
from refimpl.schema.schema import Array, Map, Struct, arrow_type, from_arrow, to_arrow


class Kind(Enum):
    """Which rows a clause is for. The values are those of Delta's operation parameters."""

    MATCHED = "matchedPredicates"
    NOT_MATCHED = "notMatchedPredicates"
    NOT_MATCHED_BY_SOURCE = "notMatchedBySourcePredicates"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """One WHEN clause, with the caller's SQL."""

    kind: Kind
    values: Mapping[str, Any] | None = None
    """The columns that it sets; None: delete, or all columns."""
    all_columns: bool = False
    where: Any = None

    @property
    def action(self) -> str:
        """The clause's name in Delta's operation parameters."""
        if self.values is None and not self.all_columns:
            return "delete"
        return "insert" if self.kind is Kind.NOT_MATCHED else "update"

    def assignments(
        self, target: Sequence[str], source: Sequence[str], alias: str, rules: RowRules
    ) -> Mapping[str, Any] | None:
        """The columns that it sets; None: delete. A clause for all columns omits those that the source lacks and the
        table fills."""
        if not self.all_columns:
            return self.values
        filled = rules.filled if self.kind is Kind.NOT_MATCHED else rules.filled - rules.defaults.keys()
        present = {name for name in target if arrow_columns.stored_name(source, name) is not None}
        missing = [name for name in target if name not in present and name not in filled]
        if missing:
            raise InvalidRequestError(
                f"the source lacks the columns {', '.join(map(repr, missing))} of the table, which a clause for all "
                "columns sets; add them, or name the columns to set"
            )
        return {name: f"`{alias}`.`{name.replace('`', '``')}`" for name in target if name in present}


class Clauses:
    """The clauses of one MERGE, in their order."""

    def __init__(self) -> None:
        self._clauses: list[Clause] = []

    def append(self, clause: Clause) -> None:
        if any(other.where is None for other in self.of(clause.kind)):
            raise InvalidRequestError(
                "the clause never applies: a clause of its kind without a condition precedes it; reorder them"
            )
        self._clauses.append(clause)

    def of(self, kind: Kind) -> list[Clause]:
        return [clause for clause in self._clauses if clause.kind is kind]

    @property
    def only_delete_matches(self) -> bool:
        """Whether several source rows may match one target row: DELTA.md#several-matches."""
        return [clause.where is None and clause.action for clause in self.of(Kind.MATCHED)] == ["delete"]

    def begin(self, transaction: Transaction, on: str) -> None:
        """Check the clauses, and put them into the transaction's parameters as Delta does."""
        if not self._clauses:
            raise InvalidRequestError("a merge needs at least one clause, such as when_matched_update_all()")
        if any(clause.kind is not Kind.NOT_MATCHED for clause in self._clauses):
            transaction.check_removable()
        transaction.parameters["predicate"] = json.dumps([on])
        for kind in Kind:
            described = [
                ({} if clause.where is None else {"predicate": str(clause.where)}) | {"actionType": clause.action}
                for clause in self.of(kind)
            ]
            transaction.parameters[kind.value] = json.dumps(described)


@dataclass(frozen=True, slots=True, kw_only=True)
class _BoundClause:
    """A clause whose SQL is bound to the columns of both sides."""

    condition: Condition | None
    assignments: Mapping[str, pc.Expression] | None


class Merge:
    """Made by `Table.merge`. Of the clauses of one kind, the first one whose condition is true applies.

    In the clauses' SQL, columns are named `target.x` and `source.x` (or by the given aliases); the alias may be left
    out if only one side has the column. Text in `updates` is SQL, other values are literals.
    """

    def __init__(
        self,
        begin: Callable[[], Transaction],
        source: pa.Table | pa.RecordBatch | pa.RecordBatchReader,
        on: str,
        *,
        source_alias: str = "source",
        target_alias: str = "target",
    ) -> None:
        if not isinstance(source, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
            raise InvalidRequestError(
                f"invalid source of type {type(source)}; expected a pyarrow Table, RecordBatch or RecordBatchReader"
            )
        if source_alias.lower() == target_alias.lower():
            raise InvalidRequestError(f"source and target have the same alias {source_alias!r}; choose two")
        self._begin = begin
        self._source = (
            source.read_all()
            if isinstance(source, pa.RecordBatchReader)
            else pa.Table.from_batches([source])
            if isinstance(source, pa.RecordBatch)
            else source
        )
        self._on = on
        self._aliases = (target_alias, source_alias)
        self._clauses = Clauses()

    def when_matched_update(self, updates: Mapping[str, Any], where: str | None = None) -> Self:
        """Set columns of a target row that a source row matches."""
        return self._with(Clause(kind=Kind.MATCHED, values=updates, where=where))

    def when_matched_update_all(self, where: str | None = None) -> Self:
        """Set every column to the source's column of the same name."""
        return self._with(Clause(kind=Kind.MATCHED, all_columns=True, where=where))

    def when_matched_delete(self, where: str | None = None) -> Self:
        """Delete a target row that a source row matches."""
        return self._with(Clause(kind=Kind.MATCHED, where=where))

    def when_not_matched_insert(self, updates: Mapping[str, Any], where: str | None = None) -> Self:
        """Insert a row for a source row that matches no target row; columns that are not set are null."""
        return self._with(Clause(kind=Kind.NOT_MATCHED, values=updates, where=where))

    def when_not_matched_insert_all(self, where: str | None = None) -> Self:
        """Insert a source row that matches no target row, columns by name."""
        return self._with(Clause(kind=Kind.NOT_MATCHED, all_columns=True, where=where))

    def when_not_matched_by_source_update(self, updates: Mapping[str, Any], where: str | None = None) -> Self:
        """Set columns of a target row that no source row matches. The whole table is read."""
        return self._with(Clause(kind=Kind.NOT_MATCHED_BY_SOURCE, values=updates, where=where))

    def when_not_matched_by_source_delete(self, where: str | None = None) -> Self:
        """Delete a target row that no source row matches. The whole table is read."""
        return self._with(Clause(kind=Kind.NOT_MATCHED_BY_SOURCE, where=where))

    def _with(self, clause: Clause) -> Self:
        self._clauses.append(clause)
        return self

    def execute(self) -> RowsChanged:
        """Run it, on the table's newest version. After a conflict it may be executed again.

        Raises `InvalidRequestError` if several source rows match one target row (DELTA.md#several-matches), and the
        errors of `Table.update`.
        """
        transaction = self._begin()
        self._clauses.begin(transaction, self._on)
        with RowChange(transaction) as change:
            return _Run(change, self._source, self._on, self._aliases, self._clauses).run()


METRICS: Final = (
    "numTargetRowsInserted",
    "numTargetRowsUpdated",
    "numTargetRowsDeleted",
    "numTargetRowsCopied",
    "numTargetRowsMatchedUpdated",
    "numTargetRowsMatchedDeleted",
    "numTargetRowsNotMatchedBySourceUpdated",
    "numTargetRowsNotMatchedBySourceDeleted",
)


def _plain(source: pa.Table) -> pa.Table:
    """The rows with the types of Delta's files: pandas and Polars have others for text, and few functions of Arrow take
    them. Columns with times stay as they are."""
    for position, item in enumerate(to_arrow(from_arrow(source.schema))):
        if source.schema.types[position] != item.type and not _has_times(item.type):
            chunks = [arrow_columns.cast(chunk, item) for chunk in source.column(position).chunks]
            source = source.set_column(position, item.name, pa.chunked_array(chunks, item.type))
    return source.combine_chunks()  # `take` visits each chunk, for each file: a source of 10,000 took 30 times as long


def _has_times(kind: pa.DataType) -> bool:
    return pa.types.is_temporal(kind) or any(_has_times(kind.field(i).type) for i in range(kind.num_fields))


@dataclass(slots=True, kw_only=True)
class _Merged:
    """The result of one group of files."""

    matched: pa.Array
    """The numbers of the source rows that match one of their rows."""
    rewritten: list[Add] = field(default_factory=list)
    changes: list[Recorded] = field(default_factory=list)
    metrics: Counter[str] = field(default_factory=Counter)


class _Run:
    """One execution: the clauses bound to the columns, the source's keys, and the matches so far."""

    def __init__(
        self, change: RowChange, source: pa.Table, on: str, aliases: tuple[str, str], clauses: Clauses
    ) -> None:
        self._change = change
        self._source = source = _plain(source)
        self._target_alias, self._source_alias = aliases
        target = change.snapshot.schema
        self._sides = Sides.of(
            target_alias=aliases[0], target=target, source_alias=aliases[1], source=from_arrow(source.schema)
        )
        self._clauses = {kind: [self._bound(clause) for clause in clauses.of(kind)] for kind in Kind}
        self._only_deletes = clauses.only_delete_matches
        self._source_keys = pa.table({"source": pa.arange(0, source.num_rows)})
        self._keys, self._rest, self._test = bound_on(on, self._sides, self._test_of, change.snapshot.partition_columns)
        keys = self._source_keys.column(1)
        self._unique = len(self._keys) == 1 and pc.count_distinct(keys).as_py() == len(keys) - keys.null_count
        self._matched: list[pa.Array] = []
        self._metrics = Counter[str](dict.fromkeys(METRICS, 0))

    def run(self) -> RowsChanged:
        change, transaction = self._change, self._change.transaction
        by_source = self._clauses[Kind.NOT_MATCHED_BY_SOURCE]
        files = transaction.read_whole_table() if by_source else transaction.read_files(self._test)
        groups = data_files.groups(files)
        with contextlib.closing(data_files.side_by_side(groups, self._merged, workers=change.workers)) as results:
            for done in results:
                self._matched.append(done.matched)
                self._metrics.update(done.metrics)
                for add in done.rewritten:
                    change.remove(add)
                for change_type, rows in done.changes:
                    change.record(change_type, rows)
        self._insert()
        metrics = self._metrics
        output = sum(metrics[f"numTargetRows{what}"] for what in ("Inserted", "Updated", "Copied"))
        return change.commit(
            {"numSourceRows": self._source.num_rows, "numOutputRows": output, **metrics}, prefix="numTarget"
        )

    # Binding

    def _bound(self, clause: Clause) -> _BoundClause:
        scope = self._sides
        if clause.kind is Kind.NOT_MATCHED:
            scope = scope.only(self._source_alias)
        elif clause.kind is Kind.NOT_MATCHED_BY_SOURCE:
            scope = scope.only(self._target_alias)
        target = self._change.snapshot.schema
        rules = self._change.transaction.rules
        values = clause.assignments(target.names, self._source.column_names, self._source_alias, rules)
        return _BoundClause(
            condition=None if clause.where is None else predicate.condition(clause.where, scope),
            assignments=None if values is None else assigned(values, columns=target, scope=scope),
        )

    def _test_of(self, target: Column, source: Column) -> OneOf | None:
        """The condition that the target has one of the source's keys, without nulls and NaN; None if Python cannot
        represent a key. Also adds the keys to the columns of the join."""
        wanted = pa.field(".".join(source.path), arrow_type(target.type))
        given = evaluated(self._source, {"key": pc.field(*source.path[1:])}).column(0)
        cast = [arrow_columns.cast(chunk, wanted) for chunk in given.chunks]
        keys = _comparable(pa.chunked_array(cast, type=wanted.type))
        self._source_keys = self._source_keys.append_column(f"key{self._source_keys.num_columns - 1}", keys)
        try:
            values = sorted(value for value in keys.unique().to_pylist() if value is not None and value == value)
        except (ValueError, OverflowError):  # a time after the year 9999
            return None
        return OneOf(column=target.inner(), values=values)

    # Files

    def _merged(self, group: Sequence[Add]) -> _Merged:
        """Match the rows of some files with source rows, and write their new rows. Several threads call it."""
        change = self._change
        used = {target.path[1] for target, _ in self._keys} | {
            column.path[1] for condition in self._rest for column in condition.columns() if self._of_target(column)
        }
        matched, by_source = self._clauses[Kind.MATCHED], self._clauses[Kind.NOT_MATCHED_BY_SOURCE]
        with contextlib.ExitStack() as opening:
            stored = [opening.enter_context(change.opened(add)) for add in group]
            files = change.read(stored, used)
            known = pa.concat_tables(files).combine_chunks()
            pairs = self._pairs(known)
            done = _Merged(matched=pairs.column("source").combine_chunks())
            if not (matched and pairs.num_rows) and not by_source:
                return done
            if not by_source:
                chosen, inside = touched(files, _marked(known, pairs.column("target").combine_chunks()))
                if not all(chosen):
                    group, stored, files = (list(itertools.compress(items, chosen)) for items in (group, stored, files))
                    known = known.filter(inside)
                    pairs = self._pairs(known)
            pairs = self._single(pairs, known)
            rows = change.read_all(stored, known)
        parts: list[pa.Table] = []
        leaving: list[pa.Array] = []
        if matched:
            numbers = pairs.column("target").combine_chunks()
            scope = self._scope(rows.take(numbers), self._source.take(pairs.column("source")))
            leaving += self._apply(matched, scope, rows, numbers, parts, "Matched", done)
        if by_source:
            unmatched = pc.invert(_marked(rows, pairs.column("target").combine_chunks()))
            numbers = pa.arange(0, rows.num_rows).filter(unmatched)
            scope = self._scope(rows.take(numbers), None)
            leaving += self._apply(by_source, scope, rows, numbers, parts, "NotMatchedBySource", done)
        if not leaving:
            return done
        gone = _marked(rows, pa.concat_arrays(leaving))
        chosen, inside = touched(files, gone)
        kept = rows.filter(pc.and_not(inside, gone))
        change.write(kept, *parts)
        done.rewritten += itertools.compress(group, chosen)
        done.metrics["numTargetRowsCopied"] += kept.num_rows
        return done

    def _of_target(self, column: Column) -> bool:
        return column.path[0] == self._target_alias

    def _pairs(self, rows: pa.Table) -> pa.Table:
        """The numbers of the rows of both sides that match, in their order."""
        keys = evaluated(rows, {f"key{n}": pc.field(*target.path[1:]) for n, (target, _) in enumerate(self._keys)})
        names = keys.column_names
        keys = pa.table([_comparable(column) for column in keys.columns], names)
        targets = pa.arange(0, rows.num_rows)
        if self._unique:  # a lookup is cheaper than a join
            sources = pc.index_in(keys.column(0), value_set=self._source_keys.column(1), skip_nulls=True)
            pairs = pa.table({"target": targets, "source": sources.cast(pa.int64())}).drop_null()
        else:
            joined = keys.append_column("target", targets)
            joined = joined.join(self._source_keys, names, join_type="inner", use_threads=False)
            pairs = joined.select(["target", "source"]).sort_by([("target", "ascending"), ("source", "ascending")])
        for condition in self._rest:
            scope = self._scope(rows.take(pairs.column("target")), self._source.take(pairs.column("source")))
            pairs = pairs.filter(matching(scope, condition.to_arrow()))
        return pairs

    def _scope(self, target: pa.Table | None, source: pa.Table | None) -> pa.Table:
        """Rows side by side: a column of structs for each side."""
        sides = {self._target_alias: target, self._source_alias: source}
        return pa.table({name: rows.to_struct_array() for name, rows in sides.items() if rows is not None})

    def _single(self, pairs: pa.Table, rows: pa.Table) -> pa.Table:
        """At most one pair for each target row. DELTA.md#several-matches."""
        numbers = pairs.column("target").combine_chunks()
        if len(numbers) < 2:
            return pairs
        repeated = pa.concat_arrays([pa.array([False]), pc.equal(numbers.slice(1), numbers.slice(0, len(numbers) - 1))])
        if not pc.any(repeated).as_py():
            return pairs
        if not self._only_deletes:
            first = numbers.filter(repeated)[0].as_py()
            row = arrow_columns.python_rows(rows.slice(first, 1))[0]
            key = ", ".join(f"{target.path[1]} = {row[target.path[1]]!r}" for target, _ in self._keys)
            count = pc.sum(pc.equal(numbers, first)).as_py()
            raise InvalidRequestError(
                f"{count} rows of the source match the target row with {key}; expected at most one: remove duplicates "
                "from the source",
                key=key,
            )
        return pairs.filter(pc.invert(repeated))

    def _apply(
        self,
        clauses: Sequence[_BoundClause],
        scope: pa.Table,
        rows: pa.Table,
        numbers: pa.Array,
        parts: list[pa.Table],
        what: str,
        result: "_Merged",
    ) -> Iterator[pa.Array]:
        """The numbers of the rows that leave the file; their replacements are added to `parts`. `numbers`: for each row
        of `scope`, its number in `rows`."""
        for clause, chosen in _first_true(clauses, scope):
            leaving = numbers.take(chosen)
            before = rows.take(leaving)
            if clause.assignments is None:
                changes: tuple[Recorded, ...] = ((DELETED, before),)
                done = "Deleted"
            else:
                after = self._change.changed(clause.assignments, scope.take(chosen), before)
                changes = ((BEFORE, before), (AFTER, after))
                parts.append(after)
                done = "Updated"
            result.changes += changes if self._change.feeds_changes else ()
            result.metrics[f"numTargetRows{done}"] += len(leaving)
            result.metrics[f"numTargetRows{what}{done}"] += len(leaving)
            yield leaving

    def _insert(self) -> None:
        clauses = self._clauses[Kind.NOT_MATCHED]
        if not clauses:
            return
        numbers = pa.arange(0, self._source.num_rows)
        if self._matched:
            numbers = numbers.filter(pc.invert(pc.is_in(numbers, pa.concat_arrays(self._matched))))
        scope = self._scope(None, self._source.take(numbers))
        parts: list[pa.Table] = []
        for clause, chosen in _first_true(clauses, scope):
            assert clause.assignments is not None
            rows = self._change.changed(clause.assignments, scope.take(chosen))
            self._change.record(INSERTED, rows)
            self._metrics["numTargetRowsInserted"] += rows.num_rows
            parts.append(rows)
        self._change.write(*parts)


def bound_on(
    on: str, sides: Sides, test_of: Callable[[Column, Column], Condition | None], partition_columns: tuple[str, ...]
) -> tuple[list[tuple[Column, Column]], list[Condition], FileTest]:
    """The pairs of key columns (target's, source's), the other conditions, and the test for the target's files.

    `test_of`: a condition on the target's files that every row with a key of the source fulfils, for such a pair; None
    for no condition.
    """
    target_alias, source_alias = sides.names
    tree = predicate.bare(predicate.parse(on))
    keys: list[tuple[Column, Column]] = []
    rest: list[Condition] = []
    tests: list[Condition] = []
    for node in tree.flatten() if isinstance(tree, exp.And) else [tree]:
        key = _key(predicate.bare(node), sides)
        if key is not None:
            keys.append(key)
            continue
        condition = predicate.condition_of(node, sides)
        rest.append(condition)
        if {column.path[0] for column in condition.columns()} == {target_alias}:
            tests.append(predicate.condition_of(node, sides.members(target_alias)))
    if not keys:
        raise InvalidRequestError(
            f"the condition {on!r} has no equality of a target column and a source column; expected one, as in "
            f"{target_alias}.id = {source_alias}.id",
            condition=on,
        )
    for target, source in keys:
        test = test_of(target, source)
        if test is not None:
            tests.append(test)
    condition = And(operands=tuple(tests)) if tests else Constant(value=True)
    return keys, rest, FileTest(text=on, condition=condition, partition_columns=partition_columns)


def _key(node: exp.Expression, sides: Sides) -> tuple[Column, Column] | None:
    if not isinstance(node, exp.EQ):
        return None
    both = [predicate.bare(side) for side in (node.left, node.right)]
    if not all(isinstance(side, exp.Column) for side in both):
        return None
    columns = {column.path[0]: column for column in (predicate.column_of(side, sides) for side in both)}
    if len(columns) != 2:
        return None
    for column in columns.values():
        if isinstance(column.type, Struct | Array | Map):
            predicate.refuse(node, f"compares {'.'.join(column.path)}, which is {column.type}; compare its members")
    return columns[sides.names[0]], columns[sides.names[1]]


def _comparable(keys: pa.ChunkedArray) -> pa.ChunkedArray:
    """Equal floats with equal bits, as a join compares them: -0.0 is 0.0, and there is one NaN."""
    if not pa.types.is_floating(keys.type):
        return keys
    return pc.if_else(pc.is_nan(keys), pa.scalar(math.nan, keys.type), pc.add(keys, pa.scalar(0, keys.type)))


def _marked(rows: pa.Table, numbers: pa.Array) -> pa.BooleanArray:
    """For each row, whether its number is one of these."""
    return pc.is_in(pa.arange(0, rows.num_rows), numbers)


def _first_true(clauses: Sequence[_BoundClause], scope: pa.Table) -> Iterator[tuple[_BoundClause, pa.Array]]:
    """For each clause, the rows for which it is the first clause whose condition is true."""
    remaining = pa.arange(0, scope.num_rows)
    for clause in clauses:
        chosen = remaining
        if clause.condition is not None:
            true = matching(scope.take(remaining), clause.condition.to_arrow()).combine_chunks()
            chosen, remaining = remaining.filter(true), remaining.filter(pc.invert(true))
        if len(chosen):
            yield clause, chosen
