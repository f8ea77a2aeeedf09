"""Checkpoints: classic, multi-part and V2, Parquet or JSON, with their sidecars, read; classic and V2 ones written.

DELTA.md#file-names; Delta's protocol, "Checkpoint Schema": one row per action, one struct column per kind of action,
all but one of them null. The columns of a checkpoint decide what it holds, not its name, because a V2 checkpoint may
have a classic name. It is read column by column: a table may have millions of files.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from refimpl import actions
from refimpl.actions import (
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
from refimpl.client.table_state import ReplayedState, collector_paused
from refimpl.errors import CorruptLogError
from refimpl.log_path import SIDECAR_FOLDER, LogPath, Version
from refimpl.log_store import LogStore

_SMALL: Final[Mapping[str, type[Action]]] = {
    "protocol": Protocol,
    "metaData": Metadata,
    "txn": Txn,
    "domainMetadata": DomainMetadata,
    "sidecar": Sidecar,
    "checkpointMetadata": CheckpointMetadata,
}
"""Columns with few rows: converted generically."""
_FILES: Final[Mapping[str, type[Add] | type[Remove]]] = {"add": Add, "remove": Remove}
_KINDS: Final = frozenset({*_SMALL, *_FILES})
_PARSED_STATISTICS: Final = "stats_parsed"
_STATISTICS_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")


def read(log: LogStore, checkpoint: tuple[LogPath, ...]) -> list[Action]:
    """All actions of a checkpoint: one file, or all parts of it, sidecars included.

    Raises `CorruptLogError` (fact `path`) for a file that cannot be decoded, a missing sidecar, and a
    checkpoint without protocol or metadata; `FileNotFoundError` if one of its files is missing.
    """
    content: list[Action] = []
    for path in checkpoint:
        content += decode(log.read(path.name), str(log.folder / path.name))
    small = [action for action in content if type(action) is not Add and type(action) is not Remove]
    for action in small:
        if isinstance(action, Sidecar):
            content += _sidecar(log, action, checkpoint[0])
        elif isinstance(action, CheckpointMetadata) and action.version != checkpoint[0].version:
            raise _corrupt(log, checkpoint, f"states version {action.version}")
    for kind in (Protocol, Metadata):
        if not any(isinstance(action, kind) for action in small):
            raise _corrupt(log, checkpoint, f"holds no {kind.__name__.lower()}")
    return content


def _corrupt(log: LogStore, checkpoint: tuple[LogPath, ...], problem: str) -> CorruptLogError:
    path = str(log.folder / checkpoint[0].name)
    return CorruptLogError(f"the checkpoint {path} {problem}", path=path)


def _sidecar(log: LogStore, sidecar: Sidecar, checkpoint: LogPath) -> Iterator[Action]:
    name = f"{SIDECAR_FOLDER}/{_sidecar_name(sidecar)}"
    path = str(log.folder / name)
    try:
        content = log.read(name)
    except FileNotFoundError:
        raise CorruptLogError(f"the sidecar {path} of {checkpoint.name} is missing", path=path) from None
    return decode(content, path)


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
    """The actions of one file of a checkpoint, or of those kinds. Raises `CorruptLogError`."""
    if source.endswith(".json"):
        return iter(actions.decode(content, source=source))
    return _decode_parquet(content, source, kinds)


def _decode_parquet(content: bytes, source: str, kinds: Container[str]) -> Iterator[Action]:
    try:
        with pq.ParquetFile(pa.BufferReader(content)) as file:
            for name in file.schema_arrow.names:
                if name not in kinds:
                    continue
                if name in _FILES:
                    yield from _file_actions(file, name, _FILES[name])
                elif name in _SMALL:
                    yield from _small_actions(file, name, _SMALL[name])
    except (pa.ArrowException, msgspec.MsgspecError, OSError, ValueError, TypeError, KeyError) as error:
        raise CorruptLogError(f"the checkpoint file {source} cannot be decoded: {error}", path=source) from error


def _small_actions(file: pq.ParquetFile, name: str, kind: type[Action]) -> Iterator[Action]:
    for array in _rows(file, name):
        for value in _plain(array):
            yield msgspec.convert({key: member for key, member in value.items() if member is not None}, kind)


def _file_actions(file: pq.ParquetFile, name: str, kind: type[Add] | type[Remove]) -> Iterator[Add | Remove]:
    """Column by column: a checkpoint may hold millions of files."""
    stored = {member.name for member in file.schema_arrow.field(name).type}
    fields = dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
    columns_read = [spelled for spelled in fields if spelled in stored]
    if _PARSED_STATISTICS in stored and kind is Add and _lacks_text(file, name, stored):
        columns_read.append(_PARSED_STATISTICS)
    for array in _rows(file, *(f"{name}.{spelled}" for spelled in columns_read)):
        found = {spelled: array.field(spelled) for spelled in columns_read}
        columns = {
            fields.get(spelled, spelled): _plain(values)
            for spelled, values in found.items()
            if values.null_count < len(values)
        }
        if _PARSED_STATISTICS in columns:
            parsed = columns.pop(_PARSED_STATISTICS)
            columns["stats"] = _as_text(columns.get("stats") or [None] * len(parsed), parsed)
        if "deletion_vector" in columns:
            columns["deletion_vector"] = [v and _deletion_vector(v) for v in columns["deletion_vector"]]
        if kind is Add:
            columns["partition_values"] = [
                values or {} for values in columns.get("partition_values", [None] * len(array))
            ]
        for member in msgspec.structs.fields(kind):
            if member.required and None in columns.get(member.name, (None,)):
                raise ValueError(f"an action {name} has no {member.encode_name}")
        yield from map(_constructor(kind, tuple(columns)), *columns.values())


@lru_cache
def _constructor(kind: type[Action], names: tuple[str, ...]) -> Callable[..., Any]:
    """`kind` with these fields by position. Made from text, as `collections.namedtuple` is: to pass a dictionary for
    each of a million files costs four times as much as the files."""
    fields = ", ".join(f"{name}={name}" for name in names)
    made: Callable[..., Any] = eval(f"lambda {', '.join(names)}: kind({fields})", {"kind": kind})  # noqa: S307 - fields of our structs
    return made


def _deletion_vector(value: dict[str, Any]) -> DeletionVector:
    return msgspec.convert({key: member for key, member in value.items() if member is not None}, DeletionVector)


def _lacks_text(file: pq.ParquetFile, name: str, stored: set[str]) -> bool:
    """Whether a file's statistics are missing as JSON."""
    if "stats" not in stored:
        return True
    return any(array.field("stats").null_count for array in _rows(file, f"{name}.path", f"{name}.stats"))


def _rows(file: pq.ParquetFile, *columns: str) -> Iterator[pa.StructArray]:
    """The rows of one top-level struct that are not null, with the requested members."""
    for batch in file.iter_batches(columns=list(columns), use_threads=False):
        array = batch.column(0).drop_null()
        if len(array):
            yield array


def _plain(array: pa.Array) -> list[Any]:
    """Python values, with maps as dictionaries at any depth."""
    values: list[Any] = array.to_pylist()
    if pa.types.is_map(array.type):
        return [None if value is None else dict(value) for value in values]
    return [_without_pairs(value, array.type) for value in values] if _has_map(array.type) else values


def _has_map(kind: pa.DataType) -> bool:
    return pa.types.is_map(kind) or (pa.types.is_struct(kind) and any(_has_map(member.type) for member in kind))


def _without_pairs(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_map(kind):
        return dict(value)
    if pa.types.is_struct(kind):
        return {member.name: _without_pairs(value[member.name], member.type) for member in kind}
    return value


def _as_text(texts: list[str | None], parsed: list[Any]) -> list[str | None]:
    """Statistics as JSON where a checkpoint holds them as columns only."""
    return [
        text if text is not None or struct is None else _STATISTICS_ENCODER.encode(_present(struct)).decode()
        for text, struct in zip(texts, parsed, strict=True)
    ]


def _present(value: Any) -> Any:
    """Without the members that are null: JSON statistics omit unknown values."""
    if isinstance(value, dict):
        return {key: _present(member) for key, member in value.items() if member is not None}
    return value


ROWS_AT_ONCE: Final = 50_000
"""Rows of a row group."""
ACTIONS_OF_A_SIDECAR: Final = 100_000
"""At most. One sidecar at a time is encoded, so this bounds the memory that a V2 checkpoint needs."""

_TEXTS: Final = pa.map_(pa.string(), pa.string())
_LIST: Final = pa.list_(pa.field("element", pa.string()))
_DELETION_VECTOR: Final = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
_FILE: Final = {
    "path": pa.string(),
    "partitionValues": _TEXTS,
    "size": pa.int64(),
    "tags": _TEXTS,
    "deletionVector": _DELETION_VECTOR,
    "baseRowId": pa.int64(),
    "defaultRowCommitVersion": pa.int64(),
}
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
            "format": pa.struct([("provider", pa.string()), ("options", _TEXTS)]),
            "schemaString": pa.string(),
            "partitionColumns": _LIST,
            "configuration": _TEXTS,
            "createdTime": pa.int64(),
        },
    ),
    Txn: ("txn", {"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
    DomainMetadata: (
        "domainMetadata",
        {"domain": pa.string(), "configuration": pa.string(), "removed": pa.bool_()},
    ),
    Remove: (
        "remove",
        _FILE | {"deletionTimestamp": pa.int64(), "dataChange": pa.bool_(), "extendedFileMetadata": pa.bool_()},
    ),
    Add: (
        "add",
        _FILE
        | {
            "modificationTime": pa.int64(),
            "dataChange": pa.bool_(),
            "stats": pa.string(),
            "clusteringProvider": pa.string(),
        },
    ),
    CheckpointMetadata: ("checkpointMetadata", {"version": pa.int64(), "tags": _TEXTS}),
    Sidecar: (
        "sidecar",
        {"path": pa.string(), "sizeInBytes": pa.int64(), "modificationTime": pa.int64(), "tags": _TEXTS},
    ),
}


def _schema(*kinds: type[Action]) -> pa.Schema:
    columns = (_COLUMNS[kind] for kind in kinds)
    return pa.schema([pa.field(name, pa.struct(list(members.items()))) for name, members in columns])


_CLASSIC: Final = _schema(Protocol, Metadata, Txn, DomainMetadata, Remove, Add)
_OF_SIDECARS: Final = _schema(Remove, Add)
_TOP_LEVEL: Final = _schema(CheckpointMetadata, Protocol, Metadata, Txn, DomainMetadata, Sidecar, Remove, Add)
"""Delta Spark needs the columns of files, although they are empty here."""


def classic(state: ReplayedState, *, oldest_tombstone: int) -> tuple[bytes, int]:
    """The bytes of a checkpoint of one file, and how many actions it holds.

    `oldest_tombstone`: files removed at or before this time (ms since the epoch) are left out; no
    reader needs them once VACUUM may delete them.
    """
    return classic_of([*small(state), *_files(state, oldest_tombstone)])


def classic_of(actions: Iterable[Action]) -> tuple[bytes, int]:
    """The same of these actions, those of one kind after each other."""
    return _encoded(actions, _CLASSIC)


def sidecars(state: ReplayedState, *, oldest_tombstone: int) -> Iterator[tuple[bytes, int]]:
    """The bytes of each sidecar of a V2 checkpoint, one by one, and how many actions it holds."""
    files = _files(state, oldest_tombstone)
    for start in range(0, len(files), ACTIONS_OF_A_SIDECAR):
        yield sidecar(files[start : start + ACTIONS_OF_A_SIDECAR])


def sidecar(files: Iterable[Action]) -> tuple[bytes, int]:
    """The bytes of a sidecar with these files, and how many there are."""
    return _encoded(files, _OF_SIDECARS)


def top_level(state: ReplayedState, version: Version, named: Sequence[Sidecar]) -> tuple[bytes, int]:
    """The bytes of the file of a V2 checkpoint that names its sidecars, and how many actions it holds."""
    return _encoded([CheckpointMetadata(version=version), *small(state), *named], _TOP_LEVEL)


def small(state: ReplayedState) -> list[Action]:
    """All actions but those of files."""
    assert state.protocol is not None
    assert state.metadata is not None
    return [state.protocol, state.metadata, *state.transactions.values(), *state.domains.values()]


def _files(state: ReplayedState, oldest_tombstone: int) -> list[Action]:
    return [*(file for file in state.tombstones.values() if is_kept(file, oldest_tombstone)), *state.files.values()]


def is_kept(file: Add | Remove, oldest_tombstone: int) -> bool:
    """Whether a checkpoint holds this action of a file."""
    return isinstance(file, Add) or (file.deletion_timestamp or 0) > oldest_tombstone


def _encoded(actions: Iterable[Action], schema: pa.Schema) -> tuple[bytes, int]:
    sink, count = pa.BufferOutputStream(), 0
    with collector_paused(), pq.ParquetWriter(sink, schema, compression="snappy") as writer:
        for _, run in itertools.groupby(actions, type):
            while alike := list(itertools.islice(run, ROWS_AT_ONCE)):
                writer.write_table(_table_of(alike, schema))
                count += len(alike)
    content: bytes = sink.getvalue().to_pybytes()
    return content, count


def _table_of(actions: Sequence[Action], schema: pa.Schema) -> pa.Table:
    """Rows of one kind of action."""
    kind = type(actions[0])
    name, members = _COLUMNS[kind]
    attributes = dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))  # type: ignore[union-attr]
    arrays = []
    for spelled, kind_of in members.items():
        values: Iterable[Any] = map(attrgetter(attributes[spelled]), actions)
        if spelled in _VALUES:
            values = map(_VALUES[spelled], values)
        arrays.append(pa.array(list(values), kind_of))
    filled = pa.StructArray.from_arrays(arrays, fields=[pa.field(key, kind_of) for key, kind_of in members.items()])
    return pa.table(
        [filled if field.name == name else pa.nulls(len(actions), field.type) for field in schema], schema=schema
    )


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
"""How some members become Arrow's values. A checkpoint changes no data."""
