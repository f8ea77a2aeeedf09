"""Ingestion through Spark: tasks read pieces of the input files with the client's reader, and write the data files.

The rows are those that the client reads in one process, and so are the errors: `refimpl.rows.input_files`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from refimpl.protocol.errors import InvalidRequestError
from refimpl.rows.input_files import InputFiles, Kinds, Piece
from refimpl.rows.row_rules import SPLITS
from refimpl.schema.schema import Struct
from refimpl.spark.commit_protocol import MESSAGE_SCHEMA, JobFiles, WriteTask, gather_or_delete

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_SPLIT_BYTES: Final = 128 * 1024 * 1024
"""Bytes of the input files that a task reads."""
_KINDS_SCHEMA: Final = "split int, kinds string, error string"
_SECONDS: Final = 2.0
"""Between two looks at the progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The pieces of the input files for each task, and a callback for the progress: ended tasks, and all tasks."""

    spark: SparkSession
    splits: Sequence[Sequence[Piece]]
    progress: Callable[[int, int], None]

    @classmethod
    def of(cls, spark: SparkSession, files: InputFiles, progress: Callable[[int, int], None]) -> Job:
        """Reads all CSV files once, to find the ends of records."""
        pieces = list(files.pieces())
        tasks = max(spark.sparkContext.defaultParallelism, files.size // _SPLIT_BYTES)
        tasks = max(1, min(tasks, len(pieces), SPLITS))
        splits = [pieces[len(pieces) * n // tasks : len(pieces) * (n + 1) // tasks] for n in range(tasks)]
        return cls(spark=spark, splits=splits, progress=progress)

    def inferred(self, files: InputFiles) -> Struct:
        """See `InputFiles.inferred`."""
        messages = self._run(_Task(files=files, splits=self.splits), _KINDS_SCHEMA)
        rows = messages.sort_by("split").to_pylist()
        for row in rows:
            if row["error"] is not None:
                raise InvalidRequestError(row["error"])
        return files.inferred(msgspec.json.decode(row["kinds"], type=Kinds) for row in rows)

    def write(self, files: InputFiles, task: WriteTask) -> JobFiles:
        """Write the rows to durable files, which no log names yet. After an error they are deleted."""
        messages = self._run(_Task(files=files, splits=self.splits, write=task), MESSAGE_SCHEMA)
        return gather_or_delete(messages, task.layout)

    def _run(self, task: _Task, schema: str) -> pa.Table:
        count = len(self.splits)
        frame = self.spark.range(0, count, 1, count).mapInArrow(task.__call__, schema)
        with self._watched(count):
            return frame.toArrow()

    @contextlib.contextmanager
    def _watched(self, count: int) -> Iterator[None]:
        tracker, ended = self.spark.sparkContext.statusTracker(), threading.Event()

        def watch() -> None:
            shown = -1
            while not ended.wait(_SECONDS):
                stages: list[Any] = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
                done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
                if done != shown:
                    self.progress(done, count)
                shown = done

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """Reads the pieces of one split. Writes their rows, or with `write` None, finds the kinds of their columns."""

    files: InputFiles
    splits: Sequence[Sequence[Piece]]
    write: WriteTask | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        for _ in batches:
            """The rows only start the task."""
        context = TaskContext.get()
        assert context is not None
        split = context.partitionId()
        if self.write is not None:
            yield self.write.run(self.files.batches(self.splits[split]), split=split, attempt=context.taskAttemptId())
            return
        kinds, error = None, None
        try:
            kinds = msgspec.json.encode(self.files.kinds(self.splits[split])).decode()
        except InvalidRequestError as refused:
            error = refused.message
        types = [("split", pa.int32()), ("kinds", pa.string()), ("error", pa.string())]
        yield pa.RecordBatch.from_pylist([{"split": split, "kinds": kinds, "error": error}], pa.schema(types))
