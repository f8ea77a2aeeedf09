"""The delayed commit protocol: tasks write, the driver commits.

It implements DELTA.md#data-files-of-a-distributed-write. The parts of Delta Spark's DelayedCommitProtocol are:

=======================  ==============================================================================
DelayedCommitProtocol    here
=======================  ==============================================================================
set up job, set up task  nothing: each task begins with an empty `DataFileWriter`, which records its files
new task temp file       `data_files.file_folder` and `file_name`: a file has its final path from the start
commit task              `WriteTask`: one message row for each durable file of the task
commit job               `gather`: the messages become added files and change files, once
abort task, abort job    nothing: no log names the files of a failed attempt, and VACUUM deletes them
absolute path            rejected by `gather`
=======================  ==============================================================================

A task knows a folder and a schema. It never sees a log, a transaction or an owner. Spark delivers the message
rows of exactly one successful attempt of each task, so `gather` need not choose between attempts. The message rows
must be collected exactly once: a second collection would run all tasks again, and write all files again.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import msgspec

from refimpl.protocol import actions, errors
from refimpl.protocol.actions import Add, Cdc
from refimpl.protocol.errors import CorruptionError, DeltaError, InvalidRequestError
from refimpl.rows import data_files
from refimpl.rows.data_files import DataFileWriter, change_writer
from refimpl.rows.file_statistics import Leaf
from refimpl.rows.partition_values import FileLayout
from refimpl.schema.schema import CHANGE_COLUMN, CHANGE_TYPE, Field, Struct

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from refimpl.rows.row_rules import RowRules

MESSAGE_SCHEMA: Final = "split int, attempt long, action string, error string, totals string"
"""One row for each file of a task, and one row with `totals`, if there are any. A task that rejects its rows does not
fail, but sends one row with `error`: Spark would retry a failed task, and would lose the kind of
the error."""


class _TaskError(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    message: str


class _Totals(msgspec.Struct, frozen=True, kw_only=True):
    counts: dict[str, int]
    identities: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRows:
    """How a task completes the rows of an UPDATE or MERGE before it writes them."""

    given: frozenset[str]
    """The columns that have new values."""
    inserted: bool
    """Whether the other columns get the table's defaults; otherwise they keep the values of the old row."""
    change: str | None
    """Their `_change_type` in the change data feed; None if the feed is off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTask:
    """The function that tasks run, by `DataFrame.mapInArrow`. Small and picklable."""

    layout: FileLayout
    indexed: frozenset[Leaf]
    columns: tuple[str, ...] | None = None
    """The table's columns that the rows have; None: all."""
    rules: RowRules | None = None
    """The table's rules for the rows; None if the rows already satisfy them."""
    new_rows: Mapping[str, NewRows] | None = None
    """For rows with two more columns after the table's: `_change_type` and `__is_cdc`. Rows whose `__is_cdc` is "true"
    go to change data files, and rows with "false" to data files, without the two columns; other rows are only counted.
    The totals have the number of rows by `_change_type`, without those of the change data. The rules apply to the rows
    whose `_change_type` is a key of this mapping; other rows are copies."""
    hidden: tuple[Field, ...] = ()
    """With `new_rows`: the columns that keep row ids. They follow the table's columns."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of one task. Returns one message row for each file, after all files are durable."""
        from pyspark import TaskContext

        context = TaskContext.get()
        split, attempt = (0, 0) if context is None else (context.partitionId(), context.taskAttemptId())
        names = [*(self.columns or self.layout.schema.names)]
        if self.new_rows is not None:
            names += [*(column.name for column in self.hidden), CHANGE_TYPE, CHANGE_COLUMN]
        yield self.run((batch.rename_columns(names) for batch in batches), split=split, attempt=attempt)

    def run(self, batches: Iterator[pa.RecordBatch], *, split: int, attempt: int) -> pa.RecordBatch:
        """The same for attempt `attempt` of task `split`, also outside Spark."""
        stored = Struct(fields=(*self.layout.schema.fields, *self.hidden))
        rows = DataFileWriter(replace(self.layout, schema=stored), split=split, indexed=self.indexed)
        changes = change_writer(self.layout, split=split)
        counts = Counter[str]()
        try:
            rules = None if self.rules is None else self.rules.of_split(split)
            for batch in batches:
                if self.new_rows is not None:
                    self._write_changes(batch, rules, rows, changes, counts)
                else:
                    rows.write(batch if rules is None else rules.completed(batch))
            files = [*rows.finish(), *changes.finish()]
        except DeltaError as error:  # the task rejects its rows: it does not fail, so Spark aborts nothing
            rows.abort()
            changes.abort()
            rejected = _TaskError(kind=type(error).__name__, message=error.message)
            return _messages(split, attempt, [{"error": msgspec.json.encode(rejected).decode()}])
        except BaseException:
            rows.close()
            changes.close()
            raise
        messages = [{"action": actions.encode([file]).decode()} for file in files]
        totals = _Totals(counts=dict(counts), identities={} if rules is None else rules.reached)
        if totals.counts or totals.identities:
            messages.append({"totals": msgspec.json.encode(totals).decode()})
        return _messages(split, attempt, messages)

    def _write_changes(
        self,
        batch: pa.RecordBatch,
        rules: RowRules | None,
        rows: DataFileWriter,
        changes: DataFileWriter,
        counts: Counter[str],
    ) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        assert self.new_rows is not None
        last = batch.num_columns - 1  # by position: a table without a feed may itself have a column `_change_type`
        names = self.layout.schema.names
        own, stored = list(range(len(names))), list(range(last - 1))
        labels, kinds = batch.column(last - 1), batch.column(last)
        changes.write(batch.filter(pc.equal(kinds, "true")).select([*own, last - 1, last]))
        counts.update(labels.filter(pc.not_equal(kinds, "true")).to_pylist())
        kept = batch.filter(pc.equal(kinds, "false"))
        labels = kept.column(last - 1)
        rows.write(kept.filter(pc.invert(pc.is_in(labels, pa.array(list(self.new_rows), pa.string())))).select(stored))
        for label, new in self.new_rows.items():
            chosen = kept.filter(pc.equal(labels, label)).select(stored)
            if not chosen.num_rows:
                continue
            after = pa.Table.from_batches([chosen.select(own)])
            if rules is not None:
                given = [name for name in names if name in new.given or not new.inserted]
                after = rules.completed(after.select(given), new.given)
            tracked = after
            for number, column in enumerate(self.hidden, start=len(own)):
                tracked = tracked.append_column(column.name, chosen.column(number))
            rows.write(tracked)
            if new.change is not None:
                for name, value in ((CHANGE_TYPE, new.change), (CHANGE_COLUMN, "true")):
                    after = after.append_column(name, pa.repeat(value, after.num_rows))
                changes.write(after)


def _messages(split: int, attempt: int, messages: Sequence[Mapping[str, str]]) -> pa.RecordBatch:
    """Rows of `MESSAGE_SCHEMA`; each message has one of the texts."""
    import pyarrow as pa

    texts = [(name, pa.string()) for name in ("action", "error", "totals")]
    return pa.RecordBatch.from_pylist(
        [{"split": split, "attempt": attempt, **message} for message in messages],
        pa.schema([("split", pa.int32()), ("attempt", pa.int64()), *texts]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFiles:
    """The files of one job: the input of one transaction."""

    added: tuple[Add, ...]
    changes: tuple[Cdc, ...] = ()
    counts: Counter[str] = field(default_factory=Counter)
    """Rows by `_change_type`: see `WriteTask.new_rows`."""
    identities: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The last value that the tasks gave to each identity column: see `RowRules.advance`."""


def gather(messages: pa.Table) -> JobFiles:
    """Commit the job: the files of all task messages, in the order of the tasks.

    Raises the error of the first task that rejected its rows; `InvalidRequestError` for a file outside the
    table's folder; `CorruptionError` if two attempts of one task report files, which Spark rules out.
    """
    attempts: dict[int, int] = {}
    files: list[Add | Cdc] = []
    counts = Counter[str]()
    identities: dict[str, list[int]] = {}
    for message in messages.sort_by("split").to_pylist():
        if message["error"] is not None:
            raise _rebuilt(message["error"])
        split, attempt = message["split"], message["attempt"]
        if attempts.setdefault(split, attempt) != attempt:
            raise CorruptionError(
                f"task {split} reports files of two attempts, {attempts[split]} and {attempt}; nothing is committed",
                split=split,
            )
        if message["totals"] is not None:
            totals = msgspec.json.decode(message["totals"], type=_Totals)
            counts.update(totals.counts)
            for name, value in totals.identities.items():
                identities.setdefault(name, []).append(value)
            continue
        files += _files_in(message["action"], f"the message of task {split}")
    return JobFiles(
        added=tuple(action for action in files if isinstance(action, Add)),
        changes=tuple(action for action in files if isinstance(action, Cdc)),
        counts=counts,
        identities=identities,
    )


def gather_or_delete(messages: pa.Table, layout: FileLayout) -> JobFiles:
    """`gather`. If it fails, nothing can be committed, and the files of all tasks are deleted."""
    try:
        return gather(messages)
    except DeltaError:
        delete_files(messages, layout)
        raise


def delete_files(messages: pa.Table, layout: FileLayout) -> None:
    """Delete the files of a job that is certainly not committed. Files that no message names stay until VACUUM: those
    of a task that failed, and of a task whose message had not arrived when another task failed."""
    for text in messages.column("action").drop_null().to_pylist():
        with contextlib.suppress(DeltaError):
            data_files.delete(layout, [*_files_in(text, "a task")])


def _files_in(text: str, source: str) -> Iterator[Add | Cdc]:
    for action in actions.decode(text.encode(), source=source):
        if isinstance(action, Add | Cdc):
            _check_relative(action.path)
            yield action


def _rebuilt(text: str) -> DeltaError:
    error = msgspec.json.decode(text, type=_TaskError)
    kind: Callable[[str], DeltaError] = getattr(errors, error.kind, InvalidRequestError)
    return kind(error.message)


def _check_relative(path: str) -> None:
    first, *rest = path.split("/")
    if not first or ":" in first or ".." in (first, *rest):
        raise InvalidRequestError(
            f"a task reported the file {path!r}; expected a relative path in the table's folder; nothing is committed",
            path=path,
        )


def job(frame: DataFrame, task: WriteTask) -> DataFrame:
    """One write job of the protocol, for `write`: its rows are the messages of its tasks.

    `frame` has the columns of the layout's schema in their order (without those that the rules fill), then those that
    `WriteTask.new_rows` describes. The job runs once: its messages are collected here and nowhere else. The tasks
    get the columns by position: `mapInArrow` would take a name with a dot for a member of a struct.
    """
    if task.new_rows is None:
        task = replace(task, columns=tuple(frame.columns))
    by_position = frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))
    return by_position.mapInArrow(task.__call__, MESSAGE_SCHEMA)


def write(prepared: DataFrame, layout: FileLayout) -> JobFiles:
    """Run a job of `job`. Its files are durable and in no log; after an error they are deleted."""
    return gather_or_delete(prepared.toArrow(), layout)
