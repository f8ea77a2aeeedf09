"""DELETE and UPDATE by copy on write: files that hold a matching row are replaced, all others stay.

    changed = delete(table.transaction(operation="DELETE"), "month = 3 AND price IS NULL")
    changed.metrics["numDeletedRows"]

One call is one transaction. Files are excluded by partition values and statistics, and the others are rewritten in
groups (`data_files.groups`), several at once, in threads: memory holds a few files, not the table
(`data_files.CONCURRENT_BYTES`). A row for which the condition is NULL does not change. The transaction records the
condition and the files that it read, so that the conflict rules can judge concurrent commits: DELTA.md#row-changes.

Durability order: the new data files and change data files are durable, with their folders, before the commit names
them; a process that dies before leaves only files that no log names. If the commit certainly did not land, they are
deleted; after an unknown outcome they stay. A file that cannot be read, a full disk and an interrupt end the operation
as a whole, after the threads have ended.
"""

import contextlib
import itertools
import json
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from refimpl.client.transaction import Committed, Transaction
from refimpl.protocol.actions import Add, Cdc
from refimpl.protocol.errors import CorruptDataError, CorruptLogError, UnsupportedFeatureError
from refimpl.rows import data_files, expression, row_tracking
from refimpl.rows.arrow_columns import scalar
from refimpl.rows.condition import FileTest
from refimpl.rows.data_files import DataFileWriter, StoredRows
from refimpl.rows.file_statistics import row_count
from refimpl.schema.features import feeds_changes
from refimpl.schema.schema import CHANGE_COLUMN, CHANGE_TYPE, Struct, to_arrow

DELETED, INSERTED, BEFORE, AFTER = "delete", "insert", "update_preimage", "update_postimage"
"""Delta's values of `_change_type`."""
_ONE_ARRAY = 2**31
"""More bytes than fit into one array of text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsChanged:
    """The result of a DELETE, UPDATE or MERGE."""

    committed: Committed | None
    """None: no row matched, and nothing was committed (DELTA.md#empty-commits)."""
    metrics: Mapping[str, int]
    """Delta's `operationMetrics` of the operation."""

    @property
    def version(self) -> int | None:
        return None if self.committed is None else self.committed.version


_CHANGING: Final = threading.Lock()
_POOLS: Final[list[pa.MemoryPool]] = []
"""One for each running change; the first is that of the process."""


@contextlib.contextmanager
def _allocator() -> Iterator[None]:
    """Arrow allocates with jemalloc, if it has it and the user chose nothing else. Each thread of its default,
    mimalloc, keeps several times the memory that it needs."""
    if "ARROW_DEFAULT_MEMORY_POOL" in os.environ:
        yield
        return
    with _CHANGING:
        _POOLS.append(pa.default_memory_pool())
        with contextlib.suppress(NotImplementedError):
            pa.set_memory_pool(pa.jemalloc_memory_pool())
    try:
        yield
    finally:
        with _CHANGING:
            before = _POOLS.pop()
            if not _POOLS:
                pa.set_memory_pool(before)


class RowChange:
    """The changes of one operation: removed files, the rows that replace them, and the change data feed's rows.

    A context manager: after an error, `deleting_unless_landed` deletes the files that it wrote.
    """

    def __init__(self, transaction: Transaction) -> None:
        self.feeds_changes = feeds_changes(transaction.snapshot.metadata)
        self.transaction = transaction
        self.snapshot = transaction.snapshot
        self._layout = transaction.snapshot.layout
        self._environment = transaction.reader.log.environment
        self._started = self._environment.now()
        self._adds: list[Add] = []
        self._removed: list[Add] = []
        self._writers: list[DataFileWriter] = []
        self._idle: list[DataFileWriter] = []
        self._feed = self._change_writer()
        self._changes: list[Cdc] = []
        self._undo = contextlib.ExitStack()
        self.hidden = row_tracking.hidden_columns(self.snapshot.protocol, self.snapshot.metadata)
        self._columns = to_arrow(Struct(fields=(*self.snapshot.schema.fields, *self.hidden)))

    def __enter__(self) -> Self:
        self._undo.enter_context(_allocator())
        self._undo.enter_context(self.transaction.deleting_unless_landed(self._adds))
        self._undo.enter_context(self.transaction.deleting_unless_landed(self._changes))
        return self

    def __exit__(self, *error: Any) -> None:
        if error[0] is not None:
            for writer in (*self._writers, self._feed):
                if writer is not None:
                    writer.abort()
        self._undo.__exit__(*error)

    @property
    def workers(self) -> int:
        """How many threads may make new rows: one where each row gets the next identity."""
        return 1 if self.transaction.rules.identities else data_files.CONCURRENT

    def _change_writer(self) -> DataFileWriter | None:
        """The writer of change data files; None if the feed is off."""
        return data_files.change_writer(self._layout, new_id=self._environment.new_id) if self.feeds_changes else None

    def opened(self, add: Add) -> contextlib.AbstractContextManager[StoredRows]:
        """See `data_files.opened`."""
        return data_files.opened(self._layout, add)

    def read(self, files: Sequence[StoredRows], columns: Collection[str]) -> list[pa.Table]:
        """The named columns of each file's rows. Raises the errors of `data_files.read_together`."""
        schema = self.snapshot.schema
        fields = tuple(column for column in schema.fields if column.name in columns)
        return data_files.read_together(files, Struct(fields=fields or schema.fields[:1]))  # no column: no row count

    def read_all(self, files: Sequence[StoredRows], known: pa.Table | None = None) -> pa.Table:
        """The rows of several files: all columns, including those that keep row ids. `known`: some columns of these
        rows, which are not read again. Raises the errors of `data_files.read_together`."""
        columns = {} if known is None else dict(zip(known.column_names, known.columns, strict=True))
        missing = Struct(fields=tuple(column for column in self.snapshot.schema.fields if column.name not in columns))
        if missing.fields or self.hidden:
            held = 0 if known is None else known.nbytes
            parts = data_files.read_together(files, missing, self.hidden, held=held)
            rest = pa.concat_tables(parts)
            columns |= zip(rest.column_names, rest.columns, strict=True)
        return pa.table([columns[name] for name in self._columns.names], self._columns)

    def changed(self, values: Mapping[str, pc.Expression], scope: pa.Table, before: pa.Table | None = None) -> pa.Table:
        """Rows of the table with these values, one for each row of `scope`.

        Other columns come from `before`; without it, from the table's defaults. Raises the errors of
        `RowRules.completed`.
        """
        rows = expression.evaluated(scope, values)
        if before is None:
            return self.transaction.rules.completed(rows, values)
        for name in set(self.snapshot.schema.names) - set(values):
            rows = rows.append_column(name, before.column(name))
        rows = self.transaction.rules.completed(rows, values)
        for column in self.hidden[:1]:  # a changed row keeps its id; its commit version is that of the new file
            rows = rows.append_column(column.name, before.column(column.name))
        return rows

    def remove(self, add: Add) -> None:
        """Remove a file from the table."""
        self._removed.append(add)

    def write(self, *parts: pa.Table) -> None:
        """Write rows to new files, which `commit` makes durable together. Several threads may call it."""
        if not any(rows.num_rows for rows in parts):
            return
        try:
            writer = self._idle.pop()
        except IndexError:  # each of the others is in use by another thread
            writer = self.transaction.data_file_writer(copies=True)
            self._writers.append(writer)
        for rows in parts:
            writer.write(rows)
        writer.end_files()
        self._idle.append(writer)

    def record(self, change_type: str, rows: pa.Table) -> None:
        """Write rows of the change data feed, if it is on."""
        if self._feed is None or not rows.num_rows:
            return
        rows = rows.select(self.snapshot.schema.names)
        for name, value in ((CHANGE_TYPE, change_type), (CHANGE_COLUMN, "true")):
            rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
        self._feed.write(rows)

    def adopt(self, adds: Sequence[Add], changes: Sequence[Cdc]) -> None:
        """Add durable files that other processes wrote, such as Spark's tasks."""
        self._adds += adds
        self._changes += changes

    def commit(self, metrics: Mapping[str, int], prefix: str = "num") -> RowsChanged:
        """Commit the transaction; no commit if no file changed (and the isolation level allows it).

        A commit that only adds, or only removes, files needs no change data: readers infer it from them.
        """
        transaction = self.transaction
        if self._writers:
            first, *others = self._writers
            self._adds += (action for action in first.finish(*others) if isinstance(action, Add))
            self._writers.clear()
        if self._feed is not None and self._adds and self._removed:
            self._changes += (action for action in self._feed.finish() if isinstance(action, Cdc))
            self._feed = None
        else:
            self._drop_changes()
        change_files = "numTargetChangeFilesAdded" if prefix == "numTarget" else "numAddedChangeFiles"
        all_metrics = {
            **metrics,
            **_file_metrics(self._adds, self._removed, prefix),
            change_files: len(self._changes),
            "executionTimeMs": max(0, self._environment.now() - self._started),
        }
        transaction.metrics |= {name: str(value) for name, value in all_metrics.items()}
        transaction.keeps_row_ids = True
        transaction.remove(*self._removed)
        transaction.add(*self._adds)
        transaction.add_changes(*self._changes)
        return RowsChanged(committed=transaction.commit_if_needed(), metrics=all_metrics)

    def _drop_changes(self) -> None:
        if self._feed is not None:
            self._feed.abort()
        data_files.delete(self._layout, self._changes)
        self._changes.clear()


def _file_metrics(adds: Sequence[Add], removed: Sequence[Add], prefix: str) -> dict[str, int]:
    sizes = (sum(add.size for add in adds), sum(add.size for add in removed))
    if prefix == "numTarget":
        names = ("numTargetFilesAdded", "numTargetFilesRemoved", "numTargetBytesAdded", "numTargetBytesRemoved")
    else:
        names = ("numAddedFiles", "numRemovedFiles", "numAddedBytes", "numRemovedBytes")
    return dict(zip(names, (len(adds), len(removed), *sizes), strict=True))


Recorded = tuple[str, pa.Table]
"""A `_change_type`, and its rows."""


def delete(transaction: Transaction, where: str | None = None) -> RowsChanged:
    """See `Table.delete`."""
    with RowChange(transaction) as change:
        change.transaction.check_removable()
        test = None if where is None else change.snapshot.file_test(where)
        rest: list[Add] = []
        deleted = 0
        for add in sorted(change.transaction.read_files(test), key=lambda add: add.path):
            if test is None or whole_partition(test, add):
                change.remove(add)
                deleted += row_count(add) or 0
            else:
                rest.append(add)

        def rewrite(rows: pa.Table, matches: pa.ChunkedArray | None) -> tuple[Sequence[Recorded], int]:
            kept = rows.filter(pc.invert(matches))
            change.write(kept)
            gone = ((DELETED, rows.filter(matches)),) if change.feeds_changes else ()
            return gone, rows.num_rows - kept.num_rows

        gone, copied = _rewritten(change, rest, test, rewrite)
        transaction.parameters |= predicate_parameter(where)
        return change.commit({"numDeletedRows": deleted + gone, "numCopiedRows": copied})


def update(transaction: Transaction, values: Mapping[str, Any], where: str | None = None) -> RowsChanged:
    """See `Table.update`."""
    with RowChange(transaction) as change:
        change.transaction.check_removable()
        schema = change.snapshot.schema
        assignments = expression.assigned(values, columns=schema, scope=schema)
        test = None if where is None else change.snapshot.file_test(where)
        files = change.transaction.read_files(test)
        same = set(schema.names) - assignments.keys() - change.transaction.rules.generated.keys()
        same |= {column.name for column in change.hidden[:1]}

        def rewrite(rows: pa.Table, matches: pa.ChunkedArray | None) -> tuple[Sequence[Recorded], int]:
            before = rows if matches is None else rows.filter(matches)
            after = change.changed(assignments, before, before)
            change.write(*((after,) if matches is None else _replaced(rows, matches, after, same)))
            changes = ((BEFORE, before), (AFTER, after)) if change.feeds_changes else ()
            return changes, after.num_rows

        updated, copied = _rewritten(change, files, test, rewrite, workers=change.workers)
        transaction.parameters |= predicate_parameter(where)
        return change.commit({"numUpdatedRows": updated, "numCopiedRows": copied})


def _replaced(rows: pa.Table, matches: pa.ChunkedArray, after: pa.Table, same: Collection[str]) -> tuple[pa.Table, ...]:
    """The rows with those of `after` instead of those that match. No column in `same` has new values."""
    changed = [item for item in rows.schema if item.name not in same]
    if rows.nbytes + after.nbytes > _ONE_ARRAY or any(pa.types.is_nested(item.type) for item in changed):
        return rows.filter(pc.invert(matches)), after
    mask = matches.combine_chunks()
    for item in changed:
        new = after.column(item.name).combine_chunks() if item.name in after.column_names else scalar(None, item.type)
        column = pc.replace_with_mask(rows.column(item.name), mask, new)
        rows = rows.set_column(rows.column_names.index(item.name), item, column)
    return (rows,)


def predicate_parameter(where: str | None) -> dict[str, str]:
    """The condition in Delta's form: a list of conditions, in JSON."""
    return {"predicate": json.dumps([] if where is None else [where])}


_Rewrite = Callable[[pa.Table, pa.ChunkedArray | None], tuple[Sequence[Recorded], int]]


def _rewritten(
    change: RowChange,
    files: Iterable[Add],
    test: FileTest | None,
    rewrite: _Rewrite,
    *,
    workers: int = data_files.CONCURRENT,
) -> tuple[int, int]:
    """Remove each file with a matching row, and record its changes. `rewrite` gets the rows of some files and whether
    each matches (None: all do), and returns the changes and the number of changed rows. Threads call it. The result is
    the numbers of all changed and copied rows."""
    total = [0, 0]
    condition = None if test is None else test.condition.to_arrow()
    named = {column.path[0] for column in test.condition.columns()} if test else set()
    first_columns: Collection[str] = named

    def act(group: Sequence[Add]) -> tuple[Sequence[Add], Sequence[Recorded], int, int]:
        nonlocal first_columns
        with contextlib.ExitStack() as opening:
            stored = [opening.enter_context(change.opened(add)) for add in group]
            if condition is None:
                return done(group, change.read_all(stored), None)
            try:
                parts = change.read(stored, first_columns)
            except (CorruptDataError, UnsupportedFeatureError):  # perhaps in a file without a matching row
                parts = change.read(stored, named)
            known = pa.concat_tables(parts)
            matches = expression.matching(known, condition)
            chosen, inside = touched(parts, matches)
            if not any(chosen):
                return (), (), 0, 0
            first_columns = change.snapshot.schema.names if all(chosen) else named
            if not all(chosen):
                known, matches = known.filter(inside), matches.filter(inside)
            rows = change.read_all(list(itertools.compress(stored, chosen)), known)
        return done(list(itertools.compress(group, chosen)), rows, matches)

    def done(
        files: Sequence[Add], rows: pa.Table, matches: pa.ChunkedArray | None
    ) -> tuple[Sequence[Add], Sequence[Recorded], int, int]:
        changes, changed = rewrite(rows, matches)
        return files, changes, changed, rows.num_rows - changed

    with contextlib.closing(data_files.side_by_side(data_files.groups(files), act, workers=workers)) as results:
        for removed, changes, changed, copied in results:
            for add in removed:
                change.remove(add)
            for change_type, rows in changes:
                change.record(change_type, rows)
            total = [total[0] + changed, total[1] + copied]
    return total[0], total[1]


def touched(parts: Sequence[pa.Table], marked: pa.Array | pa.ChunkedArray) -> tuple[list[bool], pa.Array]:
    """For each part, whether one of its rows is marked; and for each row, whether one of its part is."""
    ends = itertools.accumulate(part.num_rows for part in parts)
    slices = (marked.slice(end - part.num_rows, part.num_rows) for end, part in zip(ends, parts, strict=True))
    chosen = [bool(pc.any(of_part).as_py()) for of_part in slices]
    flags = {one: scalar(one, pa.bool_()) for one in (True, False)}
    inside = (pa.repeat(flags[one], part.num_rows) for one, part in zip(chosen, parts, strict=True))
    return chosen, pa.concat_arrays(inside)


def whole_partition(test: FileTest, add: Add) -> bool:
    """Whether the partition values alone show that every row of the file matches."""
    if not test.partition_only:
        return False
    try:
        return test.matches_partition(add.partition_values) is True
    except CorruptLogError:  # the read of the file names the invalid value
        return False
