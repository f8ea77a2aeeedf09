"""Checkpoints: classic, multi-part and V2, Parquet or JSON, with their sidecars; and the pointer to the last one.

DELTA.md#file-names. What a checkpoint holds is found by its columns, not by its name,
because a V2 checkpoint may have a classic name. Bytes come through the log store; Arrow decodes them.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from refimpl import actions, log_path
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
from refimpl.errors import CorruptLogError, InvalidRequestError
from refimpl.log_path import LAST_CHECKPOINT, SIDECAR_FOLDER, LogPath, Version

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

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
_MOST_PARTS: Final = 10_000
"""A hint that claims more is no hint."""
_STATISTICS_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")


def read(log: LogStore, checkpoint: tuple[LogPath, ...]) -> list[Action]:
    """All actions of a checkpoint: one file, or all parts of it, sidecars included.

    Raises `CorruptLogError` (fact `path`) for a file that cannot be decoded, a sidecar that is missing, and
    a checkpoint without protocol or metadata; `FileNotFoundError` if one of the files is gone.
    """
    found: list[Action] = []
    for path in checkpoint:
        found += _decode(log.read(path.name), str(log.folder / path.name))
    for action in list(found):
        if isinstance(action, Sidecar):
            found += _sidecar(log, action, checkpoint[0])
        elif isinstance(action, CheckpointMetadata) and action.version != checkpoint[0].version:
            raise _corrupt(log, checkpoint, f"says that it is of version {action.version}")
    for kind in (Protocol, Metadata):
        if not any(isinstance(action, kind) for action in found):
            raise _corrupt(log, checkpoint, f"holds no {kind.__name__.lower()}")
    return found


def _corrupt(log: LogStore, checkpoint: tuple[LogPath, ...], what: str) -> CorruptLogError:
    path = str(log.folder / checkpoint[0].name)
    return CorruptLogError(f"the checkpoint {path} {what}", path=path)


def _sidecar(log: LogStore, sidecar: Sidecar, checkpoint: LogPath) -> Iterator[Action]:
    name = f"{SIDECAR_FOLDER}/{_sidecar_name(sidecar)}"
    path = str(log.folder / name)
    try:
        content = log.read(name)
    except FileNotFoundError:
        raise CorruptLogError(f"the sidecar {path} of {checkpoint.name} is missing", path=path) from None
    return _decode(content, path)


def _sidecar_name(sidecar: Sidecar) -> str:
    """Sidecars are in one folder; a manifest may spell the whole URI."""
    return sidecar.path.rpartition("/")[2]


def sidecar_names(log: LogStore, path: LogPath) -> set[str]:
    """The sidecars that a checkpoint file names. Raises `CorruptLogError`, `FileNotFoundError`."""
    found = _decode(log.read(path.name), str(log.folder / path.name), kinds=("sidecar",))
    return {_sidecar_name(action) for action in found if isinstance(action, Sidecar)}


def _decode(content: bytes, source: str, kinds: Container[str] = _KINDS) -> Iterator[Action]:
    if source.endswith(".json"):
        return iter(actions.decode(content, source=source))
    return _decode_parquet(content, source, kinds)


def _decode_parquet(content: bytes, source: str, kinds: Container[str]) -> Iterator[Action]:
    import pyarrow as pa
    import pyarrow.parquet as pq

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
    there = {member.name for member in file.schema_arrow.field(name).type}
    fields = dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
    wanted = [spelled for spelled in fields if spelled in there]
    if _PARSED_STATISTICS in there and kind is Add and _lacks_text(file, name, there):
        wanted.append(_PARSED_STATISTICS)
    for array in _rows(file, *(f"{name}.{spelled}" for spelled in wanted)):
        columns = {fields.get(spelled, spelled): _plain(array.field(spelled)) for spelled in wanted}
        if _PARSED_STATISTICS in columns:
            parsed = columns.pop(_PARSED_STATISTICS)
            columns["stats"] = _as_text(columns.get("stats") or [None] * len(parsed), parsed)
        if "deletion_vector" in columns:
            columns["deletion_vector"] = [v and _deletion_vector(v) for v in columns["deletion_vector"]]
        if kind is Add:
            columns["partition_values"] = [values or {} for values in columns["partition_values"]]
        for member in msgspec.structs.fields(kind):
            if member.required and None in columns.get(member.name, (None,)):
                raise ValueError(f"an action {name} has no {member.encode_name}")
        names = tuple(columns)
        for row in zip(*columns.values(), strict=True):
            yield kind(**dict(zip(names, row, strict=True)))


def _deletion_vector(value: dict[str, Any]) -> DeletionVector:
    return msgspec.convert({key: member for key, member in value.items() if member is not None}, DeletionVector)


def _lacks_text(file: pq.ParquetFile, name: str, there: set[str]) -> bool:
    """Whether some statistics are not there as JSON."""
    if "stats" not in there:
        return True
    return any(array.field("stats").null_count for array in _rows(file, f"{name}.path", f"{name}.stats"))


def _rows(file: pq.ParquetFile, *columns: str) -> Iterator[pa.StructArray]:
    """The rows of one top-level struct that are not null, with the members that are asked for."""
    for batch in file.iter_batches(columns=list(columns), use_threads=False):
        array = batch.column(0).drop_null()
        if len(array):
            yield array


def _plain(array: pa.Array) -> list[Any]:
    """Python values, with maps as dictionaries at any depth."""
    values: list[Any] = array.to_pylist()
    return [_without_pairs(value, array.type) for value in values] if _has_map(array.type) else values


def _has_map(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return pa.types.is_map(kind) or (pa.types.is_struct(kind) and any(_has_map(member.type) for member in kind))


def _without_pairs(value: Any, kind: pa.DataType) -> Any:
    import pyarrow as pa

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
    """Without the members that are null: statistics say nothing of a column by leaving it out."""
    if isinstance(value, dict):
        return {key: _present(member) for key, member in value.items() if member is not None}
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCheckpoint:
    """What `_last_checkpoint` says: a hint that may be stale, and never more."""

    version: Version
    names: tuple[str, ...]
    """Of the checkpoint's files."""


class _Pointer(msgspec.Struct, rename="camel"):
    class V2(msgspec.Struct):
        path: str

    version: int
    parts: int | None = None
    v2_checkpoint: V2 | None = None


def last_checkpoint(log: LogStore) -> LastCheckpoint | None:
    """None where there is no such hint, it cannot be read, or it is one that no log can fulfil."""
    try:
        content = log.read(LAST_CHECKPOINT)
    except OSError:
        return None
    try:
        pointer = msgspec.json.decode(content, type=_Pointer)
        version = log_path.checked(pointer.version)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidRequestError):
        return None
    if pointer.v2_checkpoint is not None:
        return LastCheckpoint(version=version, names=(pointer.v2_checkpoint.path.rpartition("/")[2],))
    if pointer.parts is not None and not 0 < pointer.parts <= _MOST_PARTS:
        return None
    if pointer.parts is None:
        return LastCheckpoint(version=version, names=(log_path.classic_checkpoint(version),))
    names = tuple(
        f"{version:020d}.checkpoint.{part:010d}.{pointer.parts:010d}.parquet" for part in range(1, pointer.parts + 1)
    )
    return LastCheckpoint(version=version, names=names)
