"""A checkpoint is written with the owner's permission, and `_last_checkpoint` names the newest one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from refimpl import log_path
from refimpl.client.log_reading import LogReader, last_checkpoint
from refimpl.client.log_segment import complete_checkpoints
from refimpl.client.properties import DELETED_FILES, retention
from refimpl.client.snapshot import Snapshot
from refimpl.commit_owner import Maintenance, ResolvedTable, TableState
from refimpl.errors import MaintenanceRefusedError
from refimpl.log_path import LAST_CHECKPOINT, FileKind, LogPath, Version
from refimpl.log_store import LogStore


def ask(snapshot: Snapshot, job: Maintenance) -> ResolvedTable | None:
    """The owner's current answer about the snapshot's table; None for a filesystem table.

    Raises `MaintenanceRefusedError` (fact `job`) where the owner does not allow the job, or was not asked.
    """
    reader = snapshot.reader
    if reader.owner is None or reader.table_id is None:
        if snapshot.staleness is not None:
            raise MaintenanceRefusedError(
                f"{job.value} is rejected: {snapshot.staleness}; open the table by its name, if it has an owner",
                job=job,
            )
        return None
    resolved = reader.owner.resolve(reader.table_id)
    if job not in resolved.policy.allowed:
        allowed = ", ".join(sorted(allowed.value for allowed in resolved.policy.allowed))
        raise MaintenanceRefusedError(
            f"the owner of {reader.label} does not allow {job.value}, only {allowed}; allow it in the table's "
            f"policy, and run it on the owner's host",
            job=job,
        )
    if resolved.state is not TableState.ACTIVE or resolved.halted is not None:
        reason = resolved.halted or f"it is {resolved.state.value}"
        raise MaintenanceRefusedError(f"no {job.value} on {reader.label} now: {reason}; run verify first", job=job)
    return resolved


def check_published(reader: LogReader, version: Version, job: Maintenance) -> None:
    """managed-commits and catalog-managed: these jobs only for versions whose `<v>.json` exists."""
    if not reader.log.published(version):
        raise MaintenanceRefusedError(
            f"{job.value} of version {version} of {reader.label} needs {log_path.commit(version)}, which is not "
            f"published; backfill to version {version} first",
            job=job,
            version=version,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpointed:
    """A checkpoint that was written. `size` in bytes."""

    version: Version
    name: str
    size: int
    actions: int


def write(snapshot: Snapshot) -> Checkpointed:
    """A classic checkpoint of the snapshot's version.

    DELTA.md#checkpoint-published: only of a version whose `<v>.json` is published.
    Order: the checkpoint is durable before `_last_checkpoint` names it, and the pointer moves forward only.

    Raises `MaintenanceRefusedError` for a version that is not published (it says to backfill), or where the owner
    forbids it.
    """
    from refimpl.client import checkpoint

    log = snapshot.reader.log
    ask(snapshot, Maintenance.CHECKPOINT)
    check_published(snapshot.reader, snapshot.version, Maintenance.CHECKPOINT)
    oldest = log.environment.now() - retention(snapshot.metadata, DELETED_FILES)
    content, count = checkpoint.encode(snapshot.state, oldest_tombstone=oldest)
    name = log_path.classic_checkpoint(snapshot.version)
    log.overwrite(name, content)
    _point_to_last(log, snapshot.version, size=count, size_in_bytes=len(content), files=len(snapshot.files))
    return Checkpointed(version=snapshot.version, name=name, size=len(content), actions=count)


def _point_to_last(log: LogStore, version: Version, *, size: int, size_in_bytes: int, files: int) -> None:
    """Let `_last_checkpoint` name the checkpoint of `version`, unless there is a newer one.

    `size`: actions in the checkpoint; `files`: add actions among them. Another process may write a newer pointer
    between the check and the write: so it is checked again afterwards.
    """
    if _newest(log)[0].version > version or _names_newer(log, version):
        return
    log.overwrite(LAST_CHECKPOINT, _pointer(version, size, size_in_bytes, None, files))
    while (newest := _newest(log))[0].version > version:
        version = newest[0].version
        point_to(log, newest)


def _names_newer(log: LogStore, version: Version) -> bool:
    named = last_checkpoint(log)
    return named is not None and named.version > version and all(log.find(name) for name in named.names)


def _newest(log: LogStore) -> tuple[LogPath, ...]:
    """The newest of the complete checkpoints, of equals any one."""
    return complete_checkpoints(log.listing())[-1]


def point_to(log: LogStore, files: tuple[LogPath, ...]) -> None:
    """Let `_last_checkpoint` name this checkpoint of another writer. A V2 checkpoint is found by listing instead."""
    from refimpl.client import checkpoint

    first = files[0]
    if first.kind is FileKind.V2_CHECKPOINT:
        log.delete(LAST_CHECKPOINT)
        return
    rows = sum(checkpoint.row_count(log.read(path.name)) for path in files)
    size = sum(path.size for path in files)
    log.overwrite(LAST_CHECKPOINT, _pointer(first.version, rows, size, first.parts, None))


def _pointer(version: Version, size: int, size_in_bytes: int, parts: int | None, files: int | None) -> bytes:
    fields = {"version": version, "size": size, "parts": parts, "sizeInBytes": size_in_bytes, "numOfAddFiles": files}
    return _ENCODER.encode({name: value for name, value in fields.items() if value is not None})


_ENCODER: Final = msgspec.json.Encoder()
