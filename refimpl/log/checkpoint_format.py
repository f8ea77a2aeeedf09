"""Reads checkpoints (classic, multi-part and V2, in Parquet or JSON, with sidecars) and writes classic and V2 ones.

DELTA.md#file-names; Delta's protocol, "Checkpoint Schema": one row per action, one struct column per kind of action,
all but one of them null. The columns of a checkpoint define its content, not its name, because a V2 checkpoint may
have a classic name. It is read column by column: a table may have millions of files.
"""

import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from refimpl.log.file_columns import MEMBERS, TEXTS, FileColumns, FileRows
from refimpl.log.table_state import Changes, LayeredMap, ReplayedState, collector_paused
from refimpl.protocol import actions
from refimpl.protocol.actions import (
    Action,
    Add,
    CheckpointMetadata,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Sidecar,
    Txn,
)
from refimpl.protocol.errors import CorruptLogError
from refimpl.protocol.log_path import SIDECAR_FOLDER, LogPath, Version
from refimpl.schema.properties import DEFAULT_CODEC
from refimpl.storage import parquet_seal
from refimpl.storage.log_store import LogStore

_LIST: Final = pa.list_(pa.field("element", pa.string()))
_COLUMNS: Final[dict[type, tuple[str, dict[str, pa.DataType]]]] = {
    Protocol: (
        "protocol",
        {
            "minReaderVersion": pa.int32(),
            "minWriterVersion": pa.int32(),
            "readerFeatures": _LIST,
            "writerFeatures": _LIST,
        },
    ),
    Metadata: (
        "metaData",
        {
            "id": pa.string(),
            "name": pa.string(),
            "description": pa.string(),
            "format": pa.struct([("provider", pa.string()), ("options", TEXTS)]),
            "schemaString": pa.string(),
            "partitionColumns": _LIST,
            "configuration": TEXTS,
            "createdTime": pa.int64(),
        },
    ),
    Txn: ("txn", {"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
    DomainMetadata: ("domainMetadata", {"domain": pa.string(), "configuration": pa.string(), "removed": pa.bool_()}),
    Remove: ("remove", MEMBERS[Remove]),
    Add: ("add", MEMBERS[Add]),
    CheckpointMetadata: ("checkpointMetadata", {"version": pa.int64(), "tags": TEXTS}),
    Sidecar: (
        "sidecar",
        {"path": pa.string(), "sizeInBytes": pa.int64(), "modificationTime": pa.int64(), "tags": TEXTS},
    ),
}
_SMALL: Final[Mapping[str, type[Action]]] = {name: kind for kind, (name, _) in _COLUMNS.items() if kind not in MEMBERS}
"""Columns with few rows: converted generically."""
_FILES: Final[Mapping[str, type[Add] | type[Remove]]] = {"add": Add, "remove": Remove}
_KINDS: Final = frozenset({*_SMALL, *_FILES})
PARSED_STATISTICS: Final = "stats_parsed"
PARSED_PARTITIONS: Final = "partitionValues_parsed"
_STATISTICS_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")


def read(log: LogStore, checkpoint: tuple[LogPath, ...]) -> ReplayedState:
    """The state in a checkpoint: of its one file, or of all its parts, with its sidecars.

    Everything is read and checked; file actions in Parquet stay columns until a caller needs them.

    Raises `CorruptLogError` (fact `path`) for a file that cannot be decoded, a missing sidecar, and a
    checkpoint without protocol or metadata; `FileNotFoundError` if one of its files is missing.
    """
    content: list[Action | FileRows[Any]] = []
    for path in checkpoint:
        content += _content(log.read(path.name), str(log.folder / path.name), _KINDS)
    small = [item for item in content if not isinstance(item, Add | Remove | FileRows)]
    for action in small:
        if isinstance(action, Sidecar):
            content += _sidecar(log, action, checkpoint[0])
        elif isinstance(action, CheckpointMetadata) and action.version != checkpoint[0].version:
            raise _corrupt(log, checkpoint, f"states version {action.version}")
    for kind in (Protocol, Metadata):
        if not any(isinstance(action, kind) for action in small):
            raise _corrupt(log, checkpoint, f"holds no {kind.__name__.lower()}")
    return _state(content)


def _state(content: Sequence[Action | FileRows[Any]]) -> ReplayedState:
    stored = {
        kind: pa.Table.from_batches(
            [item.batch for item in content if isinstance(item, FileRows) and item.kind is kind], pa.schema(members)
        )
        for kind, members in MEMBERS.items()
    }
    files, tombstones = FileColumns(Add, stored[Add]), FileColumns(Remove, stored[Remove])
    state, changes = ReplayedState(), Changes()
    if files.are_distinct(tombstones):
        state = ReplayedState(
            files=LayeredMap(files),
            tombstones=LayeredMap(tombstones),
            size_in_bytes=pc.sum(stored[Add]["size"]).as_py() or 0,
            files_with_deletion_vectors=len(files) - stored[Add]["deletionVector"].null_count,
        )
        changes.apply(item for item in content if not isinstance(item, FileRows))
    else:  # a writer's mistake: the last action on a file counts, as in a log
        for item in content:
            changes.apply(item.actions() if isinstance(item, FileRows) else (item,))
    return state.after(changes)


def _corrupt(log: LogStore, checkpoint: tuple[LogPath, ...], problem: str) -> CorruptLogError:
    path = str(log.folder / checkpoint[0].name)
    return CorruptLogError(f"the checkpoint {path} {problem}", path=path)


def _sidecar(log: LogStore, sidecar: Sidecar, checkpoint: LogPath) -> Iterator[Action | FileRows[Any]]:
    name = f"{SIDECAR_FOLDER}/{_sidecar_name(sidecar)}"
    path = str(log.folder / name)
    try:
        content = log.read(name)
    except FileNotFoundError:
        raise CorruptLogError(f"the sidecar {path} of {checkpoint.name} is missing", path=path) from None
    if len(content) != sidecar.size_in_bytes:
        raise CorruptLogError(
            f"the sidecar {path} has {len(content)} bytes, but {checkpoint.name} states {sidecar.size_in_bytes}; it is "
            "damaged, or another file",
            path=path,
        )
    return _content(content, path, _KINDS)


def _sidecar_name(sidecar: Sidecar) -> str:
    """Sidecars are in one folder; a manifest may spell the whole URI."""
    return sidecar.path.rpartition("/")[2]


def action_count(log: LogStore, path: LogPath) -> int:
    """How many actions a checkpoint file and its sidecars hold."""
    content = log.read(path.name)
    if path.name.endswith(".json"):
        return len(content.splitlines())
    sidecars = (log.read(f"{SIDECAR_FOLDER}/{name}") for name in sidecar_names(log, path))
    return sum(pq.read_metadata(pa.BufferReader(file)).num_rows for file in (content, *sidecars))


def sidecar_names(log: LogStore, path: LogPath) -> set[str]:
    """The sidecars that a checkpoint file names. Raises `CorruptLogError`, `FileNotFoundError`."""
    sidecars = decode(log.read(path.name), str(log.folder / path.name), kinds=("sidecar",))
    return {_sidecar_name(action) for action in sidecars if isinstance(action, Sidecar)}


def decode(content: bytes, source: str, kinds: Container[str] = _KINDS) -> Iterator[Action]:
    """The actions of these kinds in one file of a checkpoint. Raises `CorruptLogError`."""
    for item in _content(content, source, kinds):
        if isinstance(item, FileRows):
            yield from item.actions()
        else:
            yield item


def _content(content: bytes, source: str, kinds: Container[str]) -> Iterator[Action | FileRows[Any]]:
    if source.endswith(".json"):
        yield from actions.decode(content, source=source)
        return
    if parquet_seal.is_broken(content, source.rpartition("/")[2]):
        raise CorruptLogError(
            f"the checkpoint file {source} is damaged, or it is another file: its checksum does not match", path=source
        )
    try:
        with _CheckpointFile(pa.BufferReader(content)) as file:
            for name in file.schema_arrow.names:
                if name not in kinds:
                    continue
                if name in _FILES:
                    yield from _file_rows(file, name, _FILES[name])
                elif name in _SMALL:
                    yield from _small_actions(file, name, _SMALL[name])
    except (pa.ArrowException, msgspec.MsgspecError, OSError, ValueError, TypeError, KeyError) as error:
        raise CorruptLogError(f"the checkpoint file {source} cannot be decoded: {error}", path=source) from error


class _CheckpointFile(pq.ParquetFile):  # type: ignore[misc]
    """Reads only the row groups in which a column has values; the footer counts the nulls. Most row groups of a large
    checkpoint hold actions of one kind, and most members of these actions are null everywhere."""

    def __init__(self, source: pa.NativeFile) -> None:
        # In nanoseconds, years before 1678 would wrap.
        super().__init__(source, coerce_int96_timestamp_unit="us", page_checksum_verification=True)
        groups = [*map(self.metadata.row_group, range(self.num_row_groups))]
        self._filled = {
            f"{leaf.path}.": {n for n, group in enumerate(groups) if _has_values(group.column(position))}
            for position, leaf in enumerate(self.schema)
        }

    def groups(self, *columns: str) -> list[int]:
        """The row groups that may have values below these columns."""
        names = tuple(f"{column}." for column in columns)
        return sorted(set().union(*(groups for leaf, groups in self._filled.items() if leaf.startswith(names))))

    def rows(self, *columns: str) -> Iterator[pa.StructArray]:
        """The rows of one top-level struct that are not null, with the requested members."""
        for batch in self.iter_batches(columns=list(columns), row_groups=self.groups(*columns), use_threads=False):
            array = batch.column(0).drop_null()
            if len(array):
                yield array


def _has_values(chunk: pq.ColumnChunkMetaData) -> bool:
    statistics = chunk.statistics
    return statistics is None or not statistics.has_null_count or statistics.null_count < chunk.num_values


def _small_actions(file: _CheckpointFile, name: str, kind: type[Action]) -> Iterator[Action]:
    for array in file.rows(name):
        for value in array.to_pylist(maps_as_pydicts="lossy"):
            yield msgspec.convert({key: member for key, member in value.items() if member is not None}, kind)


def _file_rows(file: _CheckpointFile, name: str, kind: type[Add] | type[Remove]) -> Iterator[FileRows[Any]]:
    """Column by column: a checkpoint may hold millions of files."""
    stored = {member.name for member in file.schema_arrow.field(name).type}
    columns = [
        member
        for member, type_ in MEMBERS[kind].items()
        if member in stored and (type_ == TEXTS or file.groups(f"{name}.{member}"))  # an empty map has no values
    ]
    if PARSED_STATISTICS in stored and kind is Add and _lacks_text(file, name, stored):
        columns.append(PARSED_STATISTICS)
    for rows in file.rows(*(f"{name}.{member}" for member in columns or stored)):
        yield FileRows.checked(kind, _with_text(rows) if PARSED_STATISTICS in columns else rows)


def _with_text(rows: pa.StructArray) -> pa.StructArray:
    """Adds statistics as JSON to rows whose checkpoint has them only as columns."""
    members = {member.name: rows.field(member.name) for member in rows.type}
    parsed = _as_in_json(members.pop(PARSED_STATISTICS)).to_pylist()
    texts = members["stats"].to_pylist() if "stats" in members else [None] * len(rows)
    members["stats"] = pa.array(
        [
            text if text is not None or struct is None else _STATISTICS_ENCODER.encode(_present(struct)).decode()
            for text, struct in zip(texts, parsed, strict=True)
        ],
        pa.string(),
    )
    return pa.StructArray.from_arrays(list(members.values()), names=list(members))


def _as_in_json(values: pa.Array) -> pa.Array:
    """Statistics with dates and times as text, and null where a value is not valid: Python has no year 10000.

    An instant is spelled with the offset +00:00, not Z: its writer may have read it from a text with an offset.
    """
    if pa.types.is_struct(values.type):
        members = [_as_in_json(child) for child in values.flatten()]
        return pa.StructArray.from_arrays(members, names=[member.name for member in values.type], mask=values.is_null())
    if pa.types.is_timestamp(values.type):
        text = pc.replace_substring(values.cast(pa.timestamp(values.type.unit)).cast(pa.string()), " ", "T")
        return text if values.type.tz is None else pc.binary_join_element_wise(text, "+00:00", "")
    if pa.types.is_date(values.type):
        return values.cast(pa.string())
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:  # text that is not UTF-8
        return pa.nulls(len(values))
    return values


def _lacks_text(file: _CheckpointFile, name: str, stored: set[str]) -> bool:
    """Whether a file's statistics are missing as JSON."""
    if "stats" not in stored:
        return True
    return any(array.field("stats").null_count for array in file.rows(f"{name}.path", f"{name}.stats"))


def _present(value: Any) -> Any:
    """The value without its null members: JSON statistics omit unknown values."""
    if isinstance(value, dict):
        return {key: _present(member) for key, member in value.items() if member is not None}
    return value


ROWS_AT_ONCE: Final = 50_000
"""Rows of a row group."""
ACTIONS_OF_A_SIDECAR: Final = 100_000
"""Maximum number of actions in a sidecar. One sidecar at a time is encoded, so this bounds the memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How a checkpoint is written: DELTA.md#typed-statistics, DELTA.md#codec."""

    text: bool = True
    """Whether the statistics of files are written as JSON."""
    members: Mapping[str, pa.DataType] = field(default_factory=dict)
    """Typed columns of the files, beside those of `MEMBERS`."""
    parsed: Callable[[Sequence[str | None], Sequence[Mapping[str, str | None]]], Mapping[str, pa.Array]] | None = None
    """Makes these columns from the statistics and the partition values of files."""
    compression: str = DEFAULT_CODEC
    """Arrow's name of the codec."""

    def schema(self, *kinds: type[Action]) -> pa.Schema:
        columns = (_COLUMNS[kind] for kind in kinds)
        more = {"add": self.members.items()}
        return pa.schema([pa.field(name, pa.struct([*own.items(), *more.get(name, ())])) for name, own in columns])


_PLAIN: Final = Form()
_CLASSIC: Final = (Protocol, Metadata, Txn, DomainMetadata, Remove, Add)
_OF_SIDECARS: Final = (Remove, Add)
_TOP_LEVEL: Final = (CheckpointMetadata, Protocol, Metadata, Txn, DomainMetadata, Sidecar, Remove, Add)
"""Delta Spark needs the columns of files, although they are empty here."""


def classic(
    state: ReplayedState, *, oldest_tombstone: int, oldest_transaction: int | None = None, form: Form = _PLAIN
) -> tuple[bytes, int]:
    """The bytes of a checkpoint of one file, and how many actions it holds.

    `oldest_tombstone`: files removed at or before this time (ms since the epoch) are left out; no
    reader needs them once VACUUM may delete them. `oldest_transaction`: likewise, the expired `txn` of applications.
    """
    return _encode([*_alike(small(state, oldest_transaction)), *_files(state, oldest_tombstone)], _CLASSIC, form)


def classic_of(actions: Iterable[Action]) -> tuple[bytes, int]:
    """`classic` for these actions, which are grouped by kind."""
    return _encode(_alike(actions), _CLASSIC, _PLAIN)


def sidecars(state: ReplayedState, *, oldest_tombstone: int, form: Form = _PLAIN) -> Iterator[tuple[bytes, int]]:
    """The bytes of each sidecar of a V2 checkpoint, one by one, and how many actions it holds."""
    runs = _files(state, oldest_tombstone)
    for start in range(0, sum(map(len, runs)), ACTIONS_OF_A_SIDECAR):
        yield _encode(_cut(runs, start, start + ACTIONS_OF_A_SIDECAR), _OF_SIDECARS, form)


def top_level(
    state: ReplayedState,
    version: Version,
    named: Sequence[Sidecar],
    *,
    oldest_transaction: int | None = None,
    form: Form = _PLAIN,
) -> tuple[bytes, int]:
    """The bytes of the file of a V2 checkpoint that names its sidecars, and how many actions it holds."""
    actions = [CheckpointMetadata(version=version), *small(state, oldest_transaction), *named]
    return _encode(_alike(actions), _TOP_LEVEL, form)


def small(state: ReplayedState, oldest_transaction: int | None = None) -> list[Action]:
    """All actions except file actions."""
    assert state.protocol is not None
    assert state.metadata is not None
    transactions = state.transactions_after(oldest_transaction)
    return [state.protocol, state.metadata, *transactions.values(), *state.domains.values()]


_Run: TypeAlias = Sequence[Action] | pa.Table
"""Actions of one kind, or columns of add actions that are copied from an older checkpoint."""


def _files(state: ReplayedState, oldest_tombstone: int) -> list[_Run]:
    removed = [file for file in state.tombstones.values() if (file.deletion_timestamp or 0) > oldest_tombstone]
    oldest, changes = state.files.changes()
    rows = oldest.rows_without(changes) if isinstance(oldest, FileColumns) else None
    if rows is None:
        return [removed, list(state.files.values())]
    return [removed, rows, [add for add in changes.values() if add is not None]]


def _cut(runs: Iterable[_Run], start: int, end: int) -> Iterator[_Run]:
    """The actions from number `start` to `end` of all runs together."""
    for run in runs:
        yield run[max(start, 0) : max(end, 0)]
        start, end = start - len(run), end - len(run)


def _alike(actions: Iterable[Action]) -> Iterator[_Run]:
    """Groups actions into runs of one kind; one run is in memory at a time."""
    for _, run in itertools.groupby(actions, type):
        while alike := list(itertools.islice(run, ROWS_AT_ONCE)):
            yield alike


def _encode(runs: Iterable[_Run], kinds: Sequence[type[Action]], form: Form) -> tuple[bytes, int]:
    sink, count, schema = pa.BufferOutputStream(), 0, form.schema(*kinds)
    options = {"compression": form.compression, "write_page_checksum": True}
    with collector_paused(), pq.ParquetWriter(sink, schema, **options) as writer:
        for run in runs:
            for start in range(0, len(run), ROWS_AT_ONCE):
                writer.write_table(_table_of(run[start : start + ROWS_AT_ONCE], schema, form))
            count += len(run)
        writer.add_key_value_metadata({parquet_seal.KEY: parquet_seal.EMPTY})
    content: bytes = sink.getvalue().to_pybytes()
    return content, count


def _table_of(run: _Run, schema: pa.Schema, form: Form) -> pa.Table:
    """Rows of one kind of action."""
    kind = Add if isinstance(run, pa.Table) else type(run[0])
    name, members = _COLUMNS[kind]
    if isinstance(run, pa.Table):
        columns = {member: run.column(member).combine_chunks() for member in members}
        columns["dataChange"] = pa.repeat(False, len(run))
    else:
        columns = {spelled: _member(run, spelled, type_) for spelled, type_ in members.items()}
    if kind is Add and form.parsed is not None:
        values = columns["partitionValues"].to_pylist(maps_as_pydicts="lossy")
        columns |= form.parsed(columns["stats"].to_pylist(), values)
    if kind is Add and not form.text:
        columns["stats"] = pa.nulls(len(run), pa.string())
    filled = pa.StructArray.from_arrays(list(columns.values()), fields=list(schema.field(name).type))
    return pa.table(
        [filled if column.name == name else pa.nulls(len(run), column.type) for column in schema], schema=schema
    )


def _member(actions: Sequence[Any], spelled: str, kind: pa.DataType) -> pa.Array:
    attributes = dict(zip(actions[0].__struct_encode_fields__, actions[0].__struct_fields__, strict=True))
    values: Iterable[Any] = map(attrgetter(attributes[spelled]), actions)
    if spelled in _VALUES:
        values = map(_VALUES[spelled], values)
    return pa.array(list(values), kind)


def _pairs(value: dict[str, str | None] | None) -> list[tuple[str, str | None]] | None:
    return None if value is None else list(value.items())


def _vector(value: DeletionVector | None) -> dict[str, Any] | None:
    if value is None:
        return None
    spelled = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
    return {name: getattr(value, attribute) for name, attribute in spelled}


_VALUES: Final[dict[str, Callable[[Any], Any]]] = {
    "partitionValues": _pairs,
    "tags": _pairs,
    "configuration": lambda value: _pairs(value) if isinstance(value, dict) else value,
    "format": lambda value: {"provider": value.provider, "options": _pairs(value.options)},
    "deletionVector": _vector,
    "dataChange": lambda _: False,
}
"""Converters of some members to Arrow's values. File actions in a checkpoint have `dataChange` false."""
