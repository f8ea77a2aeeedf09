"""Log replay by Spark's tasks, for a table whose log is too large for the driver's memory.

Tasks decode the files of the log segment with the client's decoders, and a shuffle keeps the last action on each data
file (DELTA.md#actions). The driver gets protocol, metadata, transactions and domains, and the totals of the data files.
The data files' actions stay in Spark: `delta.read` passes them to the tasks that read rows, and `DeltaTable.checkpoint`
to the tasks that write checkpoint files.

The driver itself replays a log of at most `spark.commitOwner.logBytes` bytes (default: `DEFAULT_BYTES`), which is
faster. Writes always replay on the driver: a transaction needs the files for its conflict rules.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from refimpl.client.checkpoint_writing import written_sidecar
from refimpl.log import checkpoint_format, loading
from refimpl.log.loading import Unreadable
from refimpl.log.log_reading import Loaded, LogReader
from refimpl.log.log_segment import LogSegment
from refimpl.log.table_state import Changes, LayeredMap, ReplayedState
from refimpl.protocol import actions, log_path
from refimpl.protocol.errors import CorruptLogError, InvalidRequestError
from refimpl.protocol.log_path import SIDECAR_FOLDER, FileKind, LogPath
from refimpl.storage import parquet_seal
from refimpl.storage.environment import Environment
from refimpl.storage.log_store import LogStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTING: Final = "spark.commitOwner.logBytes"
DEFAULT_BYTES: Final = 64 * 2**20
_TASK_BYTES: Final = 16 * 2**20
"""Approximate size of the log files that one task decodes. A file is not split."""
_DATA_BYTES: Final = 128 * 2**20
_DATA_FILES: Final = 1000
"""Approximate size and number of the data files that one task reads."""
_LINES: Final = 1 << 40
"""More lines than a log file has. The position of an action is the file's number times this, plus the line."""
_BATCH_ROWS: Final = 10_000
_SOURCES: Final = "number long, kind string, names array<string>, content binary"
_ROWS: Final = "kind string, key string, position long, action string, size long, masked boolean"
_SIDECARS: Final = "action string, count long"
_FILE, _ERROR, _SEEN = "file", "error", "seen"
_CHECKPOINT, _SIDECAR, _COMMIT, _LAST_COMMIT, _COMPACTION = "checkpoint", "sidecar", "commit", "last", "compaction"


class _Error(msgspec.Struct, frozen=True, kw_only=True):
    message: str
    path: str
    missing: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """One file of a log segment, or a commit that the owner stores."""

    kind: str
    names: tuple[str, ...]
    """In the log folder. The first name that exists is read."""
    size: int
    content: bytes | None = None
    of: tuple[LogPath, ...] = ()
    """The files of the checkpoint or compaction that are not used if this file is unreadable; for a commit, none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnSpark(Loaded):
    """A version whose files are rows of a data frame; its `state` has only their totals."""

    rows: DataFrame
    """One row for each active or removed file. `action`: its action, as a line of JSON; `size`: null if it was
    removed."""

    @property
    def complete(self) -> bool:
        return False

    def active(self) -> DataFrame:
        """The actions of the active files, as lines of JSON, divided among the tasks that read the files."""
        tasks = 1 + max(self.state.size_in_bytes // _DATA_BYTES, len(self.state.files) // _DATA_FILES)
        return self.rows.where("size IS NOT NULL").select("action").repartition(tasks)

    # Checkpoints: the methods of `checkpoint_writing.CheckpointFiles`

    def sidecars(self, log: LogStore, oldest_tombstone: int) -> Iterator[tuple[actions.Sidecar, int]]:
        tasks = 1 + len(self.state.files) // checkpoint_format.ACTIONS_OF_A_SIDECAR
        task = _CheckpointTask(location=str(log.location), oldest_tombstone=oldest_tombstone)
        rows = self.rows.repartition(tasks).sortWithinPartitions("size").select("action")
        for line, count in rows.mapInArrow(task.__call__, _SIDECARS).collect():
            (sidecar,) = actions.decode(line.encode(), source="a checkpoint task")
            assert isinstance(sidecar, actions.Sidecar)
            yield sidecar, count

    def classic(self, log: LogStore, name: str, oldest_tombstone: int) -> tuple[int, int]:
        small = actions.encode(checkpoint_format.small(self.state))
        task = _CheckpointTask(location=str(log.location), oldest_tombstone=oldest_tombstone, name=name, small=small)
        rows = self.rows.repartition(1).sortWithinPartitions("size").select("action")
        ((line, count),) = rows.mapInArrow(task.__call__, _SIDECARS).collect()
        (written,) = actions.decode(line.encode(), source="a checkpoint task")
        assert isinstance(written, actions.Sidecar)
        return written.size_in_bytes, count


@dataclass(frozen=True, slots=True)
class _InSpark:
    """The `Entries` of a state whose files are only in Spark: this process can count them, and no more."""

    count: int

    def __len__(self) -> int:
        return self.count

    def look_up(self, keys: object) -> NoReturn:  # noqa: ARG002
        raise RuntimeError(_ELSEWHERE)

    def as_dict(self) -> NoReturn:
        raise RuntimeError(_ELSEWHERE)


_ELSEWHERE: Final = (
    "the files of this version are in Spark, not in this process; read rows with `delta.read`, the files' actions with "
    f"`snapshot.loaded.rows`, or set {SETTING} above the size of the log and load the version again"
)


@dataclass(slots=True, kw_only=True)
class SparkReplay:
    """See `LogReader.replay`. Keeps the rows of the newest replayed version."""

    spark: SparkSession
    _newest: int = -1
    _rdd: int = 0
    """The id of the RDD with its rows."""
    _bytes: int = 0

    def __call__(self, reader: LogReader, segment: LogSegment, warnings: Sequence[str]) -> OnSpark | None:
        """The version; None if its log is small enough for the driver. Raises the errors that `loading.load`
        handles."""
        sources = list(_sources(reader, segment))
        if sum(source.size for source in sources) <= self._bound():
            return None
        rows = self._latest(reader.log, sources)
        by_kind: dict[str, list[tuple[str, str]]] = {}
        for kind, key, line in rows.where(f"kind <> '{_FILE}'").select("kind", "key", "action").collect():
            by_kind.setdefault(kind, []).append((key, line))
        _raise_first(by_kind.pop(_ERROR, ()), sources)
        _check_checkpoint(reader.log, segment, by_kind.pop(_SEEN, ()), by_kind.pop("checkpointMetadata", ()))
        changes = Changes()
        for lines in by_kind.values():
            changes.apply(actions.decode("".join(line for _, line in lines).encode(), source="a replay task"))
        files = rows.where(f"kind = '{_FILE}'").select("action", "size", "masked")
        totals = files.selectExpr("count(size)", "sum(size)", "count_if(masked)", "count_if(size IS NULL)").first()
        assert totals is not None
        state = ReplayedState(
            protocol=changes.protocol,
            metadata=changes.metadata,
            files=LayeredMap(_InSpark(totals[0])),
            tombstones=LayeredMap(_InSpark(totals[3])),
            transactions=ReplayedState().transactions.updated(changes.transactions),
            domains=ReplayedState().domains.updated(changes.domains),
            size_in_bytes=totals[1] or 0,
            files_with_deletion_vectors=totals[2],
        )
        newest = next(reversed(list(segment.deltas())), None)
        time = loading.checked_time(reader, segment, state, changes.commit_info, newest)
        if segment.version > self._newest:
            self._newest, self._rdd = segment.version, rows._jdf.queryExecution().analyzed().rdd().id()
            self._bytes = self._stored()
        return OnSpark(state=state, segment=segment, in_commit_timestamp=time, warnings=tuple(warnings), rows=files)

    def is_lost(self) -> bool:
        """Whether an executor was lost with rows of the newest version."""
        return self._bytes > 0 and self._stored() < self._bytes

    def _stored(self) -> int:
        executors = self.spark._jvm.org.apache.spark.SparkEnv.get().blockManager().master().getStorageStatus()
        return sum(executor.diskUsedByRdd(self._rdd) for executor in executors)

    def _bound(self) -> int:
        text = self.spark.conf.get(SETTING, str(DEFAULT_BYTES)) or ""
        if not (text.isascii() and text.isdecimal()):
            raise InvalidRequestError(f"invalid {SETTING} {text!r}; expected a number of bytes")
        return int(text)

    def _latest(self, log: LogStore, sources: Sequence[_Source]) -> DataFrame:
        """The last action for each identity. Computed once, now: the log files may be cleaned up later."""
        from pyspark import StorageLevel
        from pyspark.sql import functions

        given = [(number, source.kind, list(source.names), source.content) for number, source in enumerate(sources)]
        tasks = min(len(sources), 1 + sum(source.size for source in sources) // _TASK_BYTES)
        work = self.spark.createDataFrame(given, _SOURCES).repartition(tasks, "number")
        decoded = work.mapInArrow(_ReplayTask(location=str(log.location)).__call__, _ROWS)
        newest = functions.max_by(functions.struct("action", "size", "masked"), "position").alias("newest")
        last = decoded.groupBy("kind", "key").agg(newest).select("kind", "key", "newest.*")
        return last.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)


def _sources(reader: LogReader, segment: LogSegment) -> Iterator[_Source]:
    """Oldest first. Raises `Unreadable`, `FileNotFoundError`."""
    for path in segment.checkpoint:
        yield _Source(kind=_CHECKPOINT, names=(path.name,), size=path.size, of=segment.checkpoint)
        sidecars = sorted(_sidecars(reader.log, segment, path))
        sizes = {status.name: status.size for status in reader.log.sidecars()} if sidecars else {}
        for name in sidecars:
            inside = (f"{SIDECAR_FOLDER}/{name}",)
            yield _Source(kind=_SIDECAR, names=inside, size=sizes.get(name, 0), of=segment.checkpoint)
    deltas = list(segment.deltas())
    for commit in deltas:
        kind = _LAST_COMMIT if commit is deltas[-1] else _COMMIT
        if not isinstance(commit, LogPath):
            names = [log_path.commit(commit.version)]
            if commit.file_name is not None and reader.feature is not None:
                names.insert(0, f"{reader.feature.staging_folder}/{commit.file_name}")
            yield _Source(kind=kind, names=tuple(names), size=commit.size, content=commit.content)
        elif commit.kind is FileKind.COMPACTION:
            yield _Source(kind=_COMPACTION, names=(commit.name,), size=commit.size, of=(commit,))
        else:
            yield _Source(kind=kind, names=(commit.name,), size=commit.size)


def _sidecars(log: LogStore, segment: LogSegment, path: LogPath) -> set[str]:
    """The sidecars that a checkpoint file names. If a Parquet file has no sidecar column, only its footer is read."""
    try:
        if path.name.endswith(".parquet") and "sidecar" not in pq.read_schema(log.folder / path.name).names:
            return set()
        return checkpoint_format.sidecar_names(log, path)
    except pa.ArrowException as error:
        source = str(log.folder / path.name)
        cause = CorruptLogError(f"the checkpoint file {source} cannot be decoded: {error}", path=source)
        raise Unreadable(segment.checkpoint, cause) from error
    except CorruptLogError as error:
        raise Unreadable(segment.checkpoint, error) from error


def _raise_first(errors: Iterable[tuple[str, str]], sources: Sequence[_Source]) -> None:
    """Raise the error of the first file that cannot be read, as replay on the driver does."""
    first = min(errors, key=lambda error: int(error[0]), default=None)
    if first is None:
        return
    source, error = sources[int(first[0])], msgspec.json.decode(first[1], type=_Error)
    if error.missing and source.kind != _SIDECAR:
        raise FileNotFoundError(errno.ENOENT, error.message, error.path)
    cause = CorruptLogError(error.message, path=error.path)
    raise Unreadable(source.of, cause) if source.of else cause


def _check_checkpoint(
    log: LogStore, segment: LogSegment, seen: Iterable[tuple[str, str]], stated: Iterable[tuple[str, str]]
) -> None:
    if not segment.checkpoint:
        return
    first = segment.checkpoint[0]
    problems = [f"holds no {kind}" for kind in ("protocol", "metadata") if kind not in {key for key, _ in seen}]
    for _, line in stated:
        (action,) = actions.decode(line.encode(), source="a replay task")
        if isinstance(action, actions.CheckpointMetadata) and action.version != first.version:
            problems.append(f"states version {action.version}")
    if problems:
        path = str(log.folder / first.name)
        raise Unreadable(segment.checkpoint, CorruptLogError(f"the checkpoint {path} {problems[0]}", path=path))


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReplayTask:
    """Decodes log files. For an unreadable file it yields an error row: after an exception, Spark would retry the
    task."""

    location: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        log = LogStore(Path(self.location), Environment())
        for batch in batches:
            for source in batch.to_pylist():
                try:
                    yield from self._rows(source, self._actions(log, source))
                except (FileNotFoundError, CorruptLogError) as error:
                    yield _batch([(_ERROR, str(source["number"]), 0, self._described(log, source, error), None, None)])

    def _described(self, log: LogStore, source: dict[str, Any], error: Exception) -> str:
        missing = isinstance(error, FileNotFoundError)
        path = str(log.folder / source["names"][-1])
        message = f"the file {path} is missing, but the log names it" if missing else str(error)
        return msgspec.json.encode(_Error(message=message, path=path, missing=missing)).decode()

    def _actions(self, log: LogStore, source: dict[str, Any]) -> Iterable[actions.Action]:
        content, name = source["content"], source["names"][0]
        *others, last = source["names"]
        if content is None:
            for name in others:
                try:
                    content = log.read(name)
                    break
                except FileNotFoundError:  # published in the meantime
                    continue
            else:
                name, content = last, log.read(last)
        path = str(log.folder / name)
        if source["kind"] in (_CHECKPOINT, _SIDECAR):
            return checkpoint_format.decode(bytes(content), path)
        decoded = actions.decode(bytes(content), source=path)
        if source["kind"] == _COMPACTION:
            loading.check_reconciled(decoded, path)
        return decoded

    def _rows(self, source: dict[str, Any], decoded: Iterable[actions.Action]) -> Iterator[pa.RecordBatch]:
        rows: list[tuple[Any, ...]] = []
        first, kind = source["number"] * _LINES, source["kind"]
        for position, action in enumerate(decoded, start=first):
            identity = _identity(action)
            if identity is None or (isinstance(action, actions.CommitInfo) and kind != _LAST_COMMIT):
                continue
            size = action.size if isinstance(action, actions.Add) else None
            masked = isinstance(action, actions.Add) and action.deletion_vector is not None
            rows.append((*identity, position, actions.encode([action]).decode(), size, masked))
            if kind == _CHECKPOINT and isinstance(action, actions.Protocol | actions.Metadata):
                rows.append((_SEEN, type(action).__name__.lower(), position, "", None, None))
            if len(rows) >= _BATCH_ROWS:
                yield _batch(rows)
                rows = []
        if rows:
            yield _batch(rows)


def _identity(action: actions.Action) -> tuple[str, str] | None:
    """The identity of an action: of two actions with the same identity, the later counts. None: not part of a
    version."""
    match action:
        case actions.Add() | actions.Remove():
            path, vector = action.key
            return _FILE, path if vector is None else f"{path}\0{vector}"
        case actions.Txn():
            return "txn", action.app_id
        case actions.DomainMetadata():
            return "domainMetadata", action.domain
        case actions.Protocol() | actions.Metadata() | actions.CommitInfo() | actions.CheckpointMetadata():
            name = type(action).__name__
            return f"{name[0].lower()}{name[1:]}", ""
        case _:
            return None


def _batch(rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    kinds = {"kind": pa.string(), "key": pa.string(), "position": pa.int64(), "action": pa.string()}
    kinds |= {"size": pa.int64(), "masked": pa.bool_()}
    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_pydict(
        {name: pa.array(values, kind) for (name, kind), values in zip(kinds.items(), columns, strict=True)}
    )


def _files(batches: Iterator[pa.RecordBatch]) -> Iterator[actions.Add | actions.Remove]:
    for batch in batches:
        for line in batch.column("action").to_pylist():
            (file,) = actions.decode(line.encode(), source="a replay task")
            assert isinstance(file, actions.Add | actions.Remove)
            yield file


@dataclass(frozen=True, slots=True, kw_only=True)
class _CheckpointTask:
    """Writes sidecars or, with a `name`, the single file of a classic checkpoint.

    A sidecar is durable before the task reports it. No report names the sidecars of a killed attempt, and the log
    cleanup deletes them. A second attempt at a classic checkpoint replaces the file by an equal file.
    """

    location: str
    oldest_tombstone: int
    name: str | None = None
    small: bytes = b""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        log = LogStore(Path(self.location), Environment())
        files = (file for file in _files(batches) if checkpoint_format.is_kept(file, self.oldest_tombstone))
        if self.name is not None:
            own = actions.decode(self.small, source="the driver")
            content, count = checkpoint_format.classic_of(itertools.chain(own, files))
            log.overwrite(self.name, parquet_seal.sealed(content, self.name))
            written = actions.Sidecar(
                path=self.name, size_in_bytes=len(content), modification_time=log.environment.now()
            )
            yield _report(written, count)
            return
        while some := list(itertools.islice(files, checkpoint_format.ACTIONS_OF_A_SIDECAR)):
            content, count = checkpoint_format.sidecar(some)
            yield _report(written_sidecar(log, content), count)


def _report(written: actions.Sidecar, count: int) -> pa.RecordBatch:
    line = actions.encode([written]).decode()
    return pa.RecordBatch.from_pydict({"action": pa.array([line]), "count": pa.array([count], pa.int64())})
