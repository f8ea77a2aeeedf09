"""Writing checkpoints, and the pointer to the last one.

DELTA.md#checkpoint-published: only of a version whose `<v>.json` is published.
Order: the checkpoint is durable before `_last_checkpoint` names it, and the pointer moves forward only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from refimpl import log_path
from refimpl.client import checkpoint_reading, maintenance
from refimpl.client.log_segment import complete_checkpoints
from refimpl.client.retention import DELETED_FILES, retention
from refimpl.commit_owner import Maintenance
from refimpl.log_path import LAST_CHECKPOINT, FileKind, LogPath, Version
from refimpl.log_store import LogStore

if TYPE_CHECKING:
    from refimpl.client.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpointed:
    """A checkpoint that was written. `size` in bytes."""

    version: Version
    name: str
    size: int
    actions: int


def write_checkpoint(table: Table, version: Version | None = None) -> Checkpointed:
    """A classic checkpoint of `version`; by default of the newest published one.

    Raises `MaintenanceRefusedError` for a version that is not published (it says to backfill), or where the owner
    forbids it, and what `Table.snapshot` raises.
    """
    from refimpl.client import checkpoint_writing

    snapshot = table.snapshot(version=version)
    maintenance.ask(table, snapshot, Maintenance.CHECKPOINT)
    if version is None and not table.log.published(snapshot.version):
        snapshot = table.snapshot(version=newest_published(table, snapshot.version))
    maintenance.check_published(table, snapshot.version, Maintenance.CHECKPOINT)
    oldest = table.environment.now() - retention(snapshot.metadata, DELETED_FILES)
    content, count = checkpoint_writing.encode(snapshot, oldest_tombstone=oldest)
    name = log_path.classic_checkpoint(snapshot.version)
    table.log.overwrite(name, content)
    point_to_last(table.log, snapshot.version, size=count, size_in_bytes=len(content), files=len(snapshot.files))
    return Checkpointed(version=snapshot.version, name=name, size=len(content), actions=count)


def newest_published(table: Table, latest: Version) -> Version:
    """The newest version up to `latest` whose `<v>.json` is there."""
    published = [p.version for p in table.log.listing() if p.kind is FileKind.COMMIT and p.version <= latest]
    return max(published, default=latest)


def point_to_last(log: LogStore, version: Version, *, size: int, size_in_bytes: int, files: int) -> None:
    """Let `_last_checkpoint` name the checkpoint of `version`, unless there is a newer one.

    `size`: actions in the checkpoint; `files`: add actions among them. Between the look and the write somebody
    else may point to a newer one: so it is looked again afterwards, and the newest is named in the end.
    """
    if _newest(log)[0].version > version or _names_newer(log, version):
        return
    log.overwrite(LAST_CHECKPOINT, _pointer(version, size, size_in_bytes, None, files))
    while (newest := _newest(log))[0].version > version:
        version = newest[0].version
        point_to(log, newest)


def _names_newer(log: LogStore, version: Version) -> bool:
    named = checkpoint_reading.last_checkpoint(log)
    return named is not None and named.version > version and all(log.find(name) for name in named.names)


def _newest(log: LogStore) -> tuple[LogPath, ...]:
    """Of the complete checkpoints; of equals any one."""
    return complete_checkpoints(log.listing())[-1]


def point_to(log: LogStore, checkpoint: tuple[LogPath, ...]) -> None:
    """Let `_last_checkpoint` name this checkpoint of another writer. A V2 checkpoint is found by listing instead."""
    first = checkpoint[0]
    if first.kind is FileKind.V2_CHECKPOINT:
        log.delete(LAST_CHECKPOINT)
        return
    rows = sum(_rows(log.read(path.name)) for path in checkpoint)
    size = sum(path.size for path in checkpoint)
    log.overwrite(LAST_CHECKPOINT, _pointer(first.version, rows, size, first.parts, None))


def _rows(content: bytes) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(pa.BufferReader(content)) as file:
        return int(file.metadata.num_rows)


def _pointer(version: Version, size: int, size_in_bytes: int, parts: int | None, files: int | None) -> bytes:
    fields = {"version": version, "size": size, "parts": parts, "sizeInBytes": size_in_bytes, "numOfAddFiles": files}
    return _ENCODER.encode({name: value for name, value in fields.items() if value is not None})


_ENCODER: Final = msgspec.json.Encoder()
