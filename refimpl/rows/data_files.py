"""Data files: writes Arrow rows to Parquet files of a table, and reads Parquet files as Arrow rows.

Writing: DELTA.md#data-file-names: a file is named `part-<split>-<uuid>` and is in its partition's folder from
the start; it joins the table only when a transaction commits its action. Until then no reader sees it, and a writer
that dies leaves only files that no log names.

    writer = DataFileWriter(snapshot.layout)
    writer.write(batch)
    adds = writer.finish()

Reading: a file holds the columns that the table had when it was written. Columns that were added since are null if
nullable, dropped columns are not read, narrower types are widened. The table's column mapping
(`refimpl.schema.schema`) says how columns and members of structs are found; names are case-insensitive, as in Delta.
Partition columns are not in the files; their values are in the add actions.

`pyarrow.dataset.write_dataset` cannot be used: it does not fsync, escapes folders differently and ignores NaN.
The plain client and Spark's tasks use this module. It knows neither logs nor owners.
"""

import contextlib
import dataclasses
import errno
import io
import logging
import os
import re
import zlib
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from refimpl.protocol.actions import Add, Cdc, Remove
from refimpl.protocol.errors import CorruptDataError, CorruptLogError, InvalidRequestError, UnsupportedFeatureError
from refimpl.protocol.log_path import LOG_FOLDER
from refimpl.rows import arrow_columns, deletion_vectors, file_statistics, partition_values
from refimpl.rows.file_statistics import Leaf
from refimpl.rows.partition_values import FileLayout, from_text, local_path
from refimpl.schema import schema as delta_schema
from refimpl.schema.properties import DEFAULT_CODEC
from refimpl.schema.schema import CHANGE_COLUMN, CHANGE_TYPE, ColumnMapping, Field, Primitive, Struct, to_arrow
from refimpl.storage import parquet_seal
from refimpl.storage.environment import random_uuid
from refimpl.storage.files import FileStatus, PosixFiles
from refimpl.storage.object_store import LONGEST_KEY, ObjectFiles, StoreError

if TYPE_CHECKING:
    from refimpl.rows.condition import FileTest


logger = logging.getLogger(__name__)
Result = TypeVar("Result")

BATCH_ROWS: Final = 131_072
"""Rows that are gathered before they are split by partition: splitting small batches one by one is slow."""
GROUP_ROWS: Final = 1_048_576
"""Rows of a row group."""
BUFFER_BYTES: Final = 192 * 1024 * 1024
"""Bytes of buffered rows of all partitions together; when this is reached, all of them are written."""
OPEN_FILES: Final = 200
"""Files kept open at once. A table with more partitions gets further files for some of them."""

_HOST: Final = PosixFiles()
_ONLY_FILES: Final = "{} is in an object store, but this operation supports only files of this host"
SYNCS: Final = 8
"""Files that are made durable at the same time."""
CONCURRENT: Final = 4
"""Files that are read or rewritten at the same time: at most so many, and at most one for each processor."""
CONCURRENT_BYTES: Final = 128 * 1024 * 1024
"""Bytes on disk of the files that are in memory at the same time, unless one file alone is larger."""
_LARGE: Final = 4 * 1024 * 1024
"""Bytes of a file whose columns are worth decoding in several threads."""
GROUP_FILES: Final = 64
"""Maximum number of small files that are rewritten as one; all of them are open at the same time."""
TOGETHER_ROWS: Final = 65_536
"""Maximum number of rows of these files together."""
TOGETHER_BYTES: Final = 64 * 1024 * 1024
"""Maximum number of bytes of these rows in memory, which is known only when they are read."""
_EXTENSIONS: Final = {
    "none": ".parquet", "snappy": ".snappy.parquet", "gzip": ".gz.parquet", "brotli": ".br.parquet",
    "zstd": ".zstd.parquet", "lz4": ".lz4raw.parquet",
}  # fmt: skip
"""By Arrow's name of the codec, as Spark names its files."""
CHANGE_FOLDER: Final = "_change_data"

PartitionKey = tuple[str | None, ...]
"""The partition values of one file in the log's spelling, in the order of the partition columns."""


def file_name(split: int, uuid: str, extension: str = _EXTENSIONS[DEFAULT_CODEC], *, change: bool = False) -> str:
    """`part-<split, 5 digits>-<uuid><extension>`; `cdc-...` for change data. DELTA.md#data-file-names."""
    return f"{'cdc' if change else 'part'}-{split:05d}-{uuid}{extension}"


_OWN_NAME: Final = re.compile(rf"(part|cdc)-\d{{5,}}-[-0-9a-f]{{36}}({'|'.join(map(re.escape, _EXTENSIONS.values()))})")
"""The names of `file_name`. Another program may have renamed a file with another name, whose seal then says nothing."""


def file_folder(values: Sequence[tuple[str, str | None]]) -> tuple[str, bool]:
    """The folder for these partition values, relative to the table, and whether it is for change data.

    DELTA.md#partition-folders: the virtual column has no folder of its own; change data files are below `_change_data`.
    """
    change = (CHANGE_COLUMN, "true") in values
    inner = partition_values.folder(pair for pair in values if pair[0] != CHANGE_COLUMN)
    return ("/".join(filter(None, (CHANGE_FOLDER, inner))) if change else inner), change


@dataclasses.dataclass(slots=True)
class _OpenFile:
    """One Parquet file while it is written, with the statistics that its footer lacks."""

    path: Path
    relative: str
    key: PartitionKey
    parquet: Any
    content: pa.BufferOutputStream | None
    """The bytes of the future object; None for a file of this host."""
    footers: list[Any]
    computed: dict[Leaf, file_statistics.LeafStatistics] = dataclasses.field(default_factory=dict)


class DataFileWriter:
    """Writes the rows of one task. Single use: `write` any number of times, then `finish`, `abort` or `close`.

    `split` is the task's number; `indexed` the columns that get statistics (None: as in a table without properties).
    Columns are matched by name, in any case, and cast only if no value changes. Raises `InvalidRequestError`, naming
    the column, for a missing or surplus column, a value that does not fit, and a null that the schema forbids.
    """

    def __init__(
        self,
        layout: FileLayout,
        *,
        split: int = 0,
        new_id: Callable[[], str] = random_uuid,
        indexed: Collection[Leaf] | None = None,
    ) -> None:
        self._layout = layout
        data_schema = layout.schema.without(layout.partition_columns).stored()
        if not data_schema.fields:
            raise InvalidRequestError("every column of the data files is void; add a column of another type")
        self._stored = arrow_columns.all_nullable(to_arrow(data_schema))
        self._data_schema = data_schema.physical()
        self._physical_columns = layout.schema.physical_names(layout.partition_columns)
        self._arrow = to_arrow(layout.schema)
        self._file_arrow = arrow_columns.all_nullable(to_arrow(self._data_schema))
        self._split = split
        self._new_id = new_id
        self._files = layout.objects or _HOST
        self._indexed = file_statistics.indexed(data_schema) if indexed is None else indexed
        self._process = os.getpid()
        self._incoming: list[pa.RecordBatch] = []
        self._incoming_rows = 0
        self._waiting: dict[PartitionKey, list[pa.RecordBatch]] = {}
        self._waiting_bytes = 0
        self._open: dict[PartitionKey, _OpenFile] = {}
        self._made: list[Path] = []
        self._folders: set[str] = set()
        self._dictionary: list[str] | None = None
        self._actions: list[Add | Cdc] = []

    def write_all(self, parts: Iterable[pa.RecordBatch | pa.Table]) -> list[Add]:
        """Write these rows and finish; returns the add actions. After an error no file remains."""
        try:
            for rows in parts:
                self.write(rows)
            return [action for action in self.finish() if isinstance(action, Add)]
        except BaseException:
            self.abort()
            raise

    def write(self, data: pa.RecordBatch | pa.Table) -> None:
        """Add rows; they are on disk when `finish` returns, or earlier."""
        data = data.rename_columns(self._layout.schema.spelled(data.schema.names))
        batches = data.to_batches() if isinstance(data, pa.Table) else [data]
        for batch in arrow_columns.conform(filter(len, batches), self._arrow):
            self._incoming.append(batch)
            self._incoming_rows += batch.num_rows
            if self._incoming_rows >= BATCH_ROWS:
                self._split_by_partition()

    def finish(self, *others: "DataFileWriter") -> list[Add | Cdc]:
        """Write the buffered rows, make every file and folder durable, and return the actions. `others`: writers of the
        same table, which end with this one.

        Order: fsync all files, then the folders from the deepest up to the table's, whose entry the creation
        of the table made durable. Only then may a transaction name the files.
        """
        for writer in others:
            writer.end_files()
            self._made += writer._made
            self._folders |= writer._folders
            self._actions += writer._actions
        self.end_files()
        if self._layout.objects is None:
            sync_files(self._made)
            sync_folders(self._layout.location, self._folders)
        return self._actions

    def end_files(self) -> None:
        """End the current files; later rows go to other files. `finish` makes the ended files durable."""
        self._split_by_partition()
        for key in list(self._waiting):
            self._write_group(key)
        for key in list(self._open):
            self._close(key)

    def abort(self) -> None:
        """Delete every file of this writer; no proposed commit may name one. Does nothing in a forked child, because
        the files belong to its parent."""
        if self._process != os.getpid():
            return
        self.close()
        for path in self._made:
            with contextlib.suppress(OSError):
                self._files.unlink(path)

    def close(self) -> None:
        """Close the unfinished files, and leave them to VACUUM."""
        for file in self._open.values():
            with contextlib.suppress(Exception):
                file.parquet.close()

    def _split_by_partition(self) -> None:
        if not self._incoming:
            return
        rows = arrow_columns.one_batch(pa.Table.from_batches(self._incoming))
        self._incoming, self._incoming_rows = [], 0
        schema, columns = self._layout.schema, self._layout.partition_columns
        arrow_columns.check_nulls(rows, schema)
        for values, part in arrow_columns.split(rows, columns):
            key = tuple(self._partition_value(name, value) for name, value in zip(columns, values, strict=True))
            waiting = self._waiting.setdefault(key, [])
            part = arrow_columns.without_void(part, self._stored)
            waiting.append(arrow_columns.relabelled(part, self._file_arrow) if schema.is_mapped else part)
            self._waiting_bytes += part.nbytes
            if sum(batch.num_rows for batch in waiting) >= GROUP_ROWS:
                self._write_group(key)
        if self._waiting_bytes >= BUFFER_BYTES:
            for key in list(self._waiting):
                self._write_group(key)

    def _partition_value(self, name: str, value: Any) -> str | None:
        column = self._layout.schema[name]
        text = partition_values.to_text(value, column.type)
        if text is None and not column.nullable:
            raise InvalidRequestError(
                f"the column {name!r} must not be null, and {value!r} is null as a partition value; use another value",
                column=name,
            )
        return text

    def _write_group(self, key: PartitionKey) -> None:
        batches = self._waiting.pop(key)
        self._waiting_bytes -= sum(batch.nbytes for batch in batches)
        table = pa.Table.from_batches(batches)
        file = self._open.get(key) or self._create(key, table)
        for leaf, values in arrow_columns.without_footer_statistics(table, self._data_schema):
            file.computed.setdefault(leaf, file_statistics.LeafStatistics()).add(values)
        with _naming(file.path):
            file.parquet.write_table(table, row_group_size=GROUP_ROWS)

    def _create(self, key: PartitionKey, sample: pa.Table) -> _OpenFile:
        if len(self._open) >= OPEN_FILES:
            self._close(next(iter(self._open)))
        folder, change = file_folder(list(zip(self._physical_columns, key, strict=True)))
        extension = _EXTENSIONS[self._layout.compression]
        name = file_name(self._split, self._new_id(), extension, change=change)
        relative = f"{folder}/{name}" if folder else name
        location, objects = self._layout.location, self._layout.objects
        path = location / relative
        if objects is None:
            make_folder(location, folder)
        elif (size := objects.key_size(path)) > LONGEST_KEY:
            raise InvalidRequestError(
                f"a partition value makes a key of {size} bytes, more than the {LONGEST_KEY} of S3: {folder[:100]}...; "
                "partition by something shorter"
            )
        if self._dictionary is None:
            self._dictionary = arrow_columns.repetitive_leaves(sample)
        footers: list[Any] = []
        self._made.append(path)
        content = None if objects is None else pa.BufferOutputStream()
        parquet = pq.ParquetWriter(
            path if content is None else content,
            self._file_arrow,
            use_dictionary=self._dictionary,
            write_statistics=file_statistics.footer_columns(self._data_schema),
            compression=self._layout.compression,
            data_page_version=self._layout.page_version,
            store_schema=False,
            write_page_checksum=True,
            metadata_collector=footers,
        )
        self._folders.add(folder)
        file = _OpenFile(path, relative, key, parquet, content, footers)
        self._open[key] = file
        return file

    def _close(self, key: PartitionKey) -> None:
        file = self._open.pop(key)
        file.parquet.add_key_value_metadata({parquet_seal.KEY: parquet_seal.EMPTY})
        with _naming(file.path):
            file.parquet.close()
        content = None if file.content is None else io.BytesIO(file.content.getvalue())
        with file.path.open("r+b") if content is None else content as stream:
            body, footer = _body_and_footer(stream)
            stream.seek(-len(footer), os.SEEK_END)
            stream.write(parquet_seal.sealed(footer, file.path.name, body))
            if content is not None and self._layout.objects is not None:
                self._layout.objects.write(file.path, content.getvalue())
        stats = file_statistics.from_footer(file.footers[0], self._data_schema, self._indexed, file.computed)
        values = dict(zip(self._physical_columns, key, strict=True))
        self._actions.append(file_action(self._files.stat(file.path), file.relative, values, stats))


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Arrow's errors of a disk (full, for example) do not name the file."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error


def _footer(stream: Any) -> bytes:
    """The footer of a Parquet file and the bytes after it; all bytes of a file that is too short."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - parquet_seal.TAIL))
    stream.seek(max(0, size - parquet_seal.footer_size(stream.read())))
    footer: bytes = stream.read()
    return footer


def _body_and_footer(stream: Any) -> tuple[int, bytes]:
    """The CRC-32 of the bytes before the footer, and the footer."""
    footer = _footer(stream)
    left, body = stream.seek(-len(footer), os.SEEK_END), 0
    stream.seek(0)
    while part := stream.read(min(left, 1 << 20)):
        left, body = left - len(part), zlib.crc32(part, body)
    return body, footer


def change_writer(layout: FileLayout, *, split: int = 0, new_id: Callable[[], str] = random_uuid) -> DataFileWriter:
    """A writer of change data files, which have no statistics. In addition to the table's columns, their rows have
    `_change_type`, and the text "true" in `__is_cdc`."""
    text = Primitive(name="string")
    extra = (Field(name=CHANGE_TYPE, type=text), Field(name=CHANGE_COLUMN, type=text))
    columns = (CHANGE_COLUMN, *layout.partition_columns)
    marked = dataclasses.replace(
        layout, schema=Struct(fields=(*layout.schema.fields, *extra)), partition_columns=columns
    )
    return DataFileWriter(marked, split=split, new_id=new_id, indexed=())


def file_action(status: FileStatus | None, relative: str, values: dict[str, str | None], stats: str) -> Add | Cdc:
    """The action for a durable file; `status`: its size and times.

    DELTA.md#partition-folders: the virtual column of the change data feed decides the kind and is no partition value.
    """
    if status is None:
        raise FileNotFoundError(errno.ENOENT, "a data file vanished while it was written", relative)
    encoded = partition_values.encode_path(relative)
    change = values.pop(CHANGE_COLUMN, None) == "true"
    if change:
        return Cdc(path=encoded, partition_values=values, size=status.size, data_change=False)
    return Add(
        path=encoded,
        partition_values=values,
        size=status.size,
        modification_time=status.modified,
        data_change=True,
        stats=stats,
    )


def groups(files: Iterable[Add]) -> list[list[Add]]:
    """The files in the groups that are rewritten together: small files with at most `TOGETHER_ROWS` rows.

    They are in the order of their folders, then of their times, so that the new files keep narrow ranges of values.
    There are a few groups at least, whose files threads can rewrite side by side.
    """
    ordered = sorted(files, key=lambda add: (add.path.rpartition("/")[0], add.modification_time, add.path))
    shares = [max(add.size / _LARGE, _rows_share(add), 1 / GROUP_FILES) for add in ordered]
    limit = min(1.0, sum(shares) / CONCURRENT) + 1e-9
    made: list[list[Add]] = []
    filled = limit
    for add, share in zip(ordered, shares, strict=True):
        if filled + share > limit:
            made.append([])
            filled = 0.0
        made[-1].append(add)
        filled += share
    return made


def _rows_share(add: Add) -> float:
    count = file_statistics.record_count(add)
    return 1.0 if count is None else count / TOGETHER_ROWS


def side_by_side(
    groups: Iterable[Sequence[Add]], act: Callable[[Sequence[Add]], Result], *, workers: int = CONCURRENT
) -> Generator[Result, None, None]:
    """The results of `act` for groups of files, in their order. Threads call `act` for the next groups meanwhile: Arrow
    decodes and encodes without the lock of the interpreter. After `GroupTooLargeError`, each file becomes a group.

    Memory: `CONCURRENT_BYTES`. Close the iterator (`contextlib.closing`) before undoing what `act` does: after that,
    and after an error of `act`, it is not running for any group.
    """

    def results(group: Sequence[Add]) -> Iterable[Result]:
        try:
            return (act(group),)
        except GroupTooLargeError:
            return side_by_side([[add] for add in group], act, workers=workers)  # runs when it is iterated

    groups = list(groups)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else CONCURRENT
    at_once = min(workers, cores, len(groups))
    if at_once < 2:
        for group in groups:
            yield from results(group)
        return
    pending: deque[tuple[Sequence[Add], Future[Iterable[Result]]]] = deque()
    threads = ThreadPoolExecutor(at_once)
    try:
        for group in groups:
            while len(pending) > at_once or (
                pending and sum(map(_bytes, (group, *(waiting for waiting, _ in pending)))) > CONCURRENT_BYTES
            ):
                yield from pending.popleft()[1].result()
            pending.append((group, threads.submit(results, group)))
        while pending:
            yield from pending.popleft()[1].result()
    finally:
        threads.shutdown(cancel_futures=True)


def _bytes(group: Iterable[Add]) -> int:
    return sum(add.size for add in group)


def make_folder(location: Path, folder: str) -> None:
    """Create a partition's folder; `InvalidRequestError` for a value that is too long for a folder name, and below an
    object store."""
    try:
        (location / folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno == errno.ENOTDIR:
            raise InvalidRequestError(_ONLY_FILES.format(location)) from error
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise InvalidRequestError(
            f"a partition value makes a folder name of more than 255 bytes: {folder[:100]}...; partition by "
            "something shorter"
        ) from error


def sync_files(paths: Sequence[Path]) -> None:
    """Make closed data files durable, several at once: a file system needs one write to its journal for all of them."""
    with ThreadPoolExecutor(SYNCS) as threads:  # starts no thread for a single file
        for _ in (threads.map if len(paths) > 1 else map)(_HOST.fsync, paths):
            """Raises the error of a file, after all syncs have ended."""


def sync_folders(location: Path, folders: set[str]) -> None:
    """Make the entries of these folders, and of all folders between them and the table, durable."""
    pending = {location}
    for folder in folders:
        path = location / folder
        while path != location:
            pending.add(path)
            path = path.parent
    for path in sorted(pending, key=lambda item: len(item.parts), reverse=True):
        _HOST.fsync_directory(path)


def batches_of(data: Any) -> Iterable[pa.Table | pa.RecordBatch]:
    """The rows of an Arrow table, batch or stream. Raises `InvalidRequestError` for anything else."""
    if not isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        raise InvalidRequestError(
            f"invalid rows of type {type(data)}; expected a pyarrow Table, RecordBatch or RecordBatchReader"
        )
    return data if isinstance(data, pa.RecordBatchReader) else (data,)


def delete(layout: FileLayout, files: Iterable[Add | Cdc]) -> None:
    """Delete data files that were written but certainly not committed. Ignores missing ones."""
    for add in files:
        with contextlib.suppress(OSError):
            (layout.objects or _HOST).unlink(layout.path_of(add.path))


def listing(layout: FileLayout) -> Iterator[tuple[str, int, int]]:
    """All files of a table that may hold rows: path relative to the table, size in bytes, modification time in ms.

    Does not follow links, and skips folders with a log of their own: they are other tables.
    """
    columns, objects = layout.schema.physical_names(layout.partition_columns), layout.objects
    partitions = tuple(f"{partition_values.escape(name)}=" for name in columns)
    if objects is None:
        return _listing(layout.location, "", partitions)
    return _objects(objects, layout.location, partitions)


def _objects(objects: ObjectFiles, location: Path, partitions: tuple[str, ...]) -> Iterator[tuple[str, int, int]]:
    """A store may record whole seconds, so an object may be up to a second younger than its time says. `below` raises
    `OSError` for an object whose name is not a valid path (`a//b`), because as a path it would be another object."""
    tables: set[str] = set()
    files: list[tuple[str, FileStatus]] = []
    for relative, status in objects.below(location):
        folder, log, _ = f"/{relative}".partition(f"/{LOG_FOLDER}/")
        if log:
            tables.add(f"{folder[1:]}/")
        else:
            files.append((relative, status))
    others = tuple(tables - {"/"})
    for relative, status in files:
        hidden = any(_hidden(name, partitions) for name in relative.split("/"))
        if not hidden and not relative.startswith(others):
            yield relative, status.size, status.modified + 999


def _listing(folder: Path, relative: str, partitions: tuple[str, ...]) -> Iterator[tuple[str, int, int]]:
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as scan:
        for entry in sorted(scan, key=lambda entry: entry.name):
            if _hidden(entry.name, partitions):
                continue
            if entry.is_dir(follow_symlinks=False):
                if not Path(entry.path, LOG_FOLDER).exists():
                    yield from _listing(Path(entry.path), f"{relative}{entry.name}/", partitions)
            elif entry.is_file(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    yield f"{relative}{entry.name}", status.st_size, status.st_mtime_ns // 1_000_000


def _hidden(name: str, partitions: tuple[str, ...]) -> bool:
    """Whether Delta's VACUUM ignores the name, too. Folders of change data and of partitions are not hidden."""
    if name.startswith(("_", ".")):
        return name != CHANGE_FOLDER and not name.startswith(partitions)
    return False


def relative_path(location: Path, path: str, objects: ObjectFiles | None = None) -> str:
    """The path of an action's data file as in `listing`. Raises the errors of `local_path`."""
    file = None if objects is None else objects.path_of(path)
    file = file or local_path(Path(), path)
    if file.is_absolute() or (objects is None and ".." in file.parts):
        return os.path.relpath(os.path.realpath(location / file), os.path.realpath(location))
    return str(file)


_LEGACY_CALENDAR: Final = {b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"}
"""Key in the footer of a file whose ancient dates and times Spark wrote in the rebase mode LEGACY."""


def read_rows(
    layout: FileLayout, files: Iterable[Add], columns: Sequence[str] | None, test: "FileTest | None", *, ahead: bool
) -> pa.RecordBatchReader:
    """See `Snapshot.to_batches`. Files are read in the order of their paths, so that equal reads give equal rows.
    `ahead`: several files at once."""
    if test is not None:
        from refimpl.rows import expression
    wanted = _selected(layout.schema, columns)
    names = set(wanted.names) | ({column.path[0] for column in test.condition.columns()} if test else set())
    needed = Struct(fields=tuple(column for column in layout.schema.fields if column.name in names))
    condition = None if test is None else test.condition.to_arrow()
    matching = sorted((add for add in files if test is None or test.may_match(add)), key=lambda add: add.path)

    def kept(add: Add) -> Iterator[pa.Table]:
        for part in _parts(layout, add, needed, at_once=BATCH_ROWS):
            if condition is not None:
                part = part.filter(expression.matching(part, condition))
            yield part.select(wanted.names)

    done = side_by_side([[add] for add in matching], lambda group: list(kept(*group))) if ahead else map(kept, matching)
    batches = (batch for parts in done for part in parts for batch in part.to_batches())
    return pa.RecordBatchReader.from_batches(to_arrow(wanted), batches)


def _selected(schema: Struct, columns: Sequence[str] | None) -> Struct:
    if columns is None:
        return schema
    if not columns or len(set(columns)) != len(columns):
        raise InvalidRequestError(f"invalid columns {list(columns)}; expected at least one, each once")
    return Struct(fields=tuple(schema[name] for name in columns))


def read_file(
    layout: FileLayout,
    file: Add | Remove | Cdc,
    needed: Struct | None = None,
    *,
    hidden: Sequence[Field] = (),
    other: Add | Remove | None = None,
) -> pa.Table:
    """The `needed` columns (None: all of the table's) of one file's rows, without the rows that its deletion vector
    deletes.

    `hidden`: the columns of `row_tracking.hidden_columns`; they come last, with the id and commit version of each row.
    `other`: the same file with another deletion vector; rows that it keeps are left out.
    Raises `CorruptDataError` if the file or its deletion vector is missing or unreadable, and `StoreError`.
    """
    (rows,) = _parts(layout, file, needed, hidden=hidden, other=other)
    return rows


_EXACT: Final = [Primitive(name=name) for name in ("byte", "short", "integer", "long", "string")]


def check(layout: FileLayout, add: Add) -> None:
    """Read all of a file and of its deletion vector, and compare them with their checksums and with the action: size,
    number of rows, and the bounds of integers and texts.

    Raises `CorruptDataError`, `StoreError`, and `UnsupportedFeatureError` for a file that cannot be read here.
    """
    from refimpl.rows.condition import Column, Nulls, Statistics

    statistics = Statistics(add.stats)
    for rows in _parts(layout, add, None, at_once=BATCH_ROWS, whole=True):
        for field in layout.schema.fields:
            if field.type not in _EXACT or field.name in layout.partition_columns:
                continue
            column = Column(path=(field.name,), type=field.type, physical=(field.physical_name,))
            low, high, nulls, _ = statistics.bounds(column)
            least, greatest = pc.min_max(rows.column(field.name)).as_py().values()
            outside = None not in (low, high, least) and not low <= least <= greatest <= high
            if outside or (nulls is Nulls.NONE and rows.column(field.name).null_count):
                problem = f"{field.name!r} has values that the statistics in the log exclude"
                raise _damaged(layout.path_of(add.path), problem)


def _parts(
    layout: FileLayout,
    file: Add | Remove | Cdc,
    needed: Struct | None,
    *,
    hidden: Sequence[Field] = (),
    other: Add | Remove | None = None,
    at_once: int | None = None,
    whole: bool = False,
) -> Iterator[pa.Table]:
    """The rows of `read_file` in parts, each of at most `at_once` rows of the file; None: all rows in one part.
    `whole`: after comparing the checksum of the whole file, its size and number of rows."""
    with opened(layout, file, other=other, whole=whole) as rows:
        yield from rows.parts(layout.schema if needed is None else needed, hidden, at_once)


@contextlib.contextmanager
def opened(
    layout: FileLayout, file: Add | Remove | Cdc, *, other: Add | Remove | None = None, whole: bool = False
) -> Iterator["StoredRows"]:
    """An open data file. The arguments, and the errors, are those of `read_file` and of `check`."""
    path = layout.path_of(file.path)
    with _open_file(path, layout.objects, whole=whole) as (parquet, size):
        with _naming_damage(path):
            total = parquet.metadata.num_rows
            differs = file.size not in (None, 0, size)  # early versions of delta-rs did not know it, and wrote 0
            stated = file_statistics.record_count(file) if (whole or differs) and isinstance(file, Add) else None
            if stated not in (None, total):
                raise _damaged(path, f"it has {total} rows, but the log states {stated}")
            if differs and whole:
                raise _damaged(path, f"it has {size} bytes, but the log states {file.size}")
            if differs:  # no error: a connector for Pulsar wrote the size before compression
                sizes = f"{size} bytes, but the log states {file.size}"
                logger.warning("the data file %s has %s; if it was replaced, restore it", path, sizes)
            kept = _kept(layout, file, total)
            if other is not None:
                left_out = _kept(layout, other, total)
                kept = pc.and_not(_all(total) if kept is None else kept, _all(total) if left_out is None else left_out)
        yield StoredRows(layout, file, path, parquet, kept)


@dataclasses.dataclass(frozen=True, slots=True)
class StoredRows:
    """The rows of an open data file, whose columns can be read one after the other."""

    _layout: FileLayout
    _file: Add | Remove | Cdc
    _path: Path
    _parquet: pq.ParquetFile
    _kept: pa.BooleanArray | None

    def read(self, needed: Struct, hidden: Sequence[Field] = ()) -> pa.Table:
        """See `read_file`."""
        (rows,) = self.parts(needed, hidden, None)
        return rows

    def parts(self, needed: Struct, hidden: Sequence[Field], at_once: int | None) -> Iterator[pa.Table]:
        """The rows in parts, each of at most `at_once` rows of the file; None: all rows in one part."""
        needed = Struct(fields=(*needed.fields, *hidden))
        file, path, parquet = self._file, self._path, self._parquet
        partitioned = {name.lower() for name in self._layout.partition_columns}
        values = {name.lower(): text for name, text in (file.partition_values or {}).items()}
        target = delta_schema.to_arrow(needed)
        total, described = parquet.metadata.num_rows, parquet.metadata.metadata or {}
        first = 0
        with _naming_damage(path):
            stored_fields = list(parquet.schema_arrow)
            positions = {
                column.name: arrow_columns.stored_field(stored_fields, column)
                for column in needed.fields
                if column.name.lower() not in partitioned
            }
            wanted = [stored_fields[position].name for position in positions.values() if position is not None]
            for stored in _read_columns(parquet, wanted, at_once, threads=(file.size or 0) >= _LARGE):
                count = stored.num_rows
                if described.keys() & _LEGACY_CALENDAR and any(map(arrow_columns.is_ancient, stored.columns)):
                    raise UnsupportedFeatureError(
                        f"the data file {path} has dates before 1582 or times before 1900 in the calendar of Spark 2, "
                        "which only Spark reads; rewrite it there in the rebase mode CORRECTED",
                        path=str(path),
                    )
                arrays: list[Any] = []
                for column, field in zip(needed.fields, target, strict=True):
                    position = positions.get(column.name)
                    if column.name.lower() in partitioned:
                        arrays.append(_repeat(values.get(column.physical_name.lower()), column, field.type, count))
                    elif position is not None:
                        arrays.append(_fit(stored.column(stored_fields[position].name), column, field, path))
                    elif not column.nullable:
                        raise CorruptDataError(
                            f"the data file {path} lacks the column {column.name!r}, which must not be null; restore "
                            "the file, or allow nulls in the column",
                            path=str(path),
                            column=column.name,
                        )
                    else:
                        arrays.append(pa.nulls(count, field.type))
                if hidden and isinstance(file, Add | Remove) and file.base_row_id is not None:
                    arrays[-2] = pc.coalesce(arrays[-2], pc.add(pa.arange(first, first + count), file.base_row_id))
                    arrays[-1] = pc.coalesce(arrays[-1], pa.scalar(file.default_row_commit_version, pa.int64()))
                rows = pa.Table.from_arrays(arrays, schema=target)
                yield rows if self._kept is None else rows.filter(self._kept.slice(first, count))
                first += count
            if first != total:  # a page's header states fewer values
                raise _damaged(path, f"it has {total} rows, but only {first} can be read")


class GroupTooLargeError(Exception):
    """Several files have more than `TOGETHER_BYTES` of rows."""


def read_together(
    files: Sequence[StoredRows], needed: Struct, hidden: Sequence[Field] = (), *, held: int = 0
) -> list[pa.Table]:
    """The rows of each file. `held`: bytes of their other columns, which are in memory.

    Raises the errors of `read_file`, and `GroupTooLargeError` as soon as several files exceed the limit.
    """
    parts: list[pa.Table] = []
    for stored in files:
        parts.append(stored.read(needed, hidden))
        held += parts[-1].nbytes
        if held > TOGETHER_BYTES and len(files) > 1:
            raise GroupTooLargeError
    return parts


@contextlib.contextmanager
def _open_file(path: Path, objects: ObjectFiles | None, *, whole: bool) -> Iterator[tuple[pq.ParquetFile, int]]:
    """An open data file and its size. `whole`: compare the checksum of the whole file, not only that of the footer."""
    with contextlib.ExitStack() as closing:
        with _naming_damage(path):
            source = pa.OSFile(str(path)) if objects is None else pa.BufferReader(objects.read(path))
            size = closing.enter_context(source).size()
            if _OWN_NAME.fullmatch(path.name):
                body, footer = _body_and_footer(source) if whole else (None, _footer(source))
                if parquet_seal.is_broken(footer, path.name, body):
                    raise _damaged(path, "its checksum does not match")
            options = {"coerce_int96_timestamp_unit": "us", "page_checksum_verification": True, "pre_buffer": False}
            parquet = closing.enter_context(pq.ParquetFile(source, **options))
        yield parquet, size


@contextlib.contextmanager
def _naming_damage(path: Path) -> Iterator[None]:
    """The errors of a data file's bytes become `CorruptDataError`, which names it."""
    try:
        yield
    except (StoreError, UnsupportedFeatureError):
        raise
    except NotADirectoryError as error:
        raise InvalidRequestError(_ONLY_FILES.format(path)) from error
    except FileNotFoundError:
        raise CorruptDataError(
            f"the data file {path} is missing, although the log has it; VACUUM deletes change data and files of old "
            "versions: read newer versions, or restore the file",
            path=str(path),
        ) from None
    except (pa.ArrowException, OSError, InvalidRequestError) as error:
        raise CorruptDataError(
            f"the data file {path} cannot be read: {str(error).rstrip('.')}; restore the file", path=str(path)
        ) from error


def _damaged(path: Path, problem: str) -> CorruptDataError:
    return CorruptDataError(
        f"the data file {path} is damaged, or it is another file: {problem}; restore the file", path=str(path)
    )


def _read_columns(
    parquet: pq.ParquetFile, wanted: list[str], at_once: int | None, *, threads: bool
) -> Iterator[pa.Table]:
    if at_once is None:
        yield parquet.read(columns=wanted, use_threads=threads)
        return
    for batch in parquet.iter_batches(at_once, columns=wanted, use_threads=threads):
        yield pa.Table.from_batches([batch])


def _kept(layout: FileLayout, file: Add | Remove | Cdc, count: int) -> pa.BooleanArray | None:
    """For each row of a file, whether its deletion vector keeps it; None: it keeps all rows."""
    vector = None if isinstance(file, Cdc) else file.deletion_vector
    if vector is None:
        return None
    try:
        kept = pa.py_buffer(deletion_vectors.kept_rows(layout.location, vector, count, layout.objects))
    except CorruptDataError as error:
        raise CorruptDataError(
            f"{error.message}; restore it: without it, the deleted rows of {file.path} are unknown", **error.facts
        ) from error
    return pa.Array.from_buffers(pa.uint8(), count, [None, kept]).cast(pa.bool_())


def _all(count: int) -> pa.BooleanArray:
    return pa.repeat(True, count)


def _repeat(text: str | None, column: Field, kind: pa.DataType, count: int) -> pa.Array:
    value = from_text(text, column.type)
    if value is None:
        return pa.nulls(count, kind)
    try:
        return pa.repeat(arrow_columns.scalar(value, kind), count)
    except (pa.ArrowException, OverflowError) as error:
        raise CorruptLogError(
            f"the partition value {text!r} of {column.name!r} is out of the range of {column.type}",
            value=text,
            column=column.name,
        ) from error


def _fit(values: pa.ChunkedArray, column: Field, field: pa.Field, path: Path) -> pa.ChunkedArray:
    """The column in the table's type. Raises `CorruptDataError` if its type, or a null in it, does not fit."""
    if values.type == field.type and not (column.mapping is not ColumnMapping.NONE and pa.types.is_nested(field.type)):
        return values
    try:
        return arrow_columns.fitted(values, column, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, InvalidRequestError) as error:
        raise CorruptDataError(
            f"the column {column.name!r} of {path} is {values.type}, which does not fit the table's {field.type}: "
            f"{error}",
            path=str(path),
            column=column.name,
        ) from error
