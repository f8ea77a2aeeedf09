"""Writes a checkpoint, with the owner's permission, and lets `_last_checkpoint` name the newest one."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from refimpl.client.snapshot import Snapshot
from refimpl.log.log_reading import LogReader, last_checkpoint
from refimpl.log.log_segment import complete_checkpoints
from refimpl.protocol import log_path
from refimpl.protocol.actions import Sidecar
from refimpl.protocol.commit_owner import Maintenance, ResolvedTable, TableState
from refimpl.protocol.errors import MaintenanceRefusedError
from refimpl.protocol.log_path import LAST_CHECKPOINT, SIDECAR_FOLDER, FileKind, LogPath, Version
from refimpl.schema import properties
from refimpl.schema.features import (
    CHECKPOINT_PROTECTION,
    PROTECTED_BEFORE,
    check_writable,
    writer_features,
    writes_v2_checkpoints,
)
from refimpl.schema.properties import DELETED_FILES, retention
from refimpl.storage import parquet_seal
from refimpl.storage.files import UncertainError
from refimpl.storage.log_store import LogStore

if TYPE_CHECKING:
    from refimpl.log.checkpoint_format import Form


def ask(snapshot: Snapshot, job: Maintenance) -> ResolvedTable | None:
    """The owner's current answer about the snapshot's table; None for a filesystem table.

    Raises `MaintenanceRefusedError` (fact `job`) if the owner does not allow the job, or the snapshot was read
    without the owner.
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
        more = f"only {allowed}" if allowed else "and no other job"
        permission = resolved.permissions.get(job)
        jobs = [one.value for one, name in resolved.permissions.items() if name == permission] or [job.value]
        missing = "" if permission is None else f" (its answer lacks the permission {permission})"
        raise MaintenanceRefusedError(
            f"the owner of {reader.label} does not allow {job.value}{missing}, {more}; ask its administrator "
            f"to allow it (in refimpl: commit-owner policy {reader.label} --allow {','.join(sorted(jobs))})",
            job=job,
        )
    if resolved.state is not TableState.ACTIVE or resolved.halted is not None:
        reason = resolved.halted or f"it is {resolved.state.value}"
        raise MaintenanceRefusedError(f"{job.value} of {reader.label} is not possible: {reason}; run verify", job=job)
    return resolved


def _check_published(reader: LogReader, version: Version) -> None:
    """managed-commits and catalog-managed: checkpoints only of versions whose `<v>.json` exists."""
    if not reader.log.published(version):
        raise MaintenanceRefusedError(
            f"{Maintenance.CHECKPOINT.value} of version {version} of {reader.label} needs {log_path.commit(version)}, "
            f"which is not published; backfill to version {version} first",
            job=Maintenance.CHECKPOINT,
            version=version,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpointed:
    """A written checkpoint. `size` in bytes."""

    version: Version
    name: str
    size: int
    actions: int
    sidecars: int = 0
    """The number of its sidecars; `size` and `actions` include them."""


def write(snapshot: Snapshot) -> Checkpointed:
    """Write a checkpoint of the snapshot's version: V2 if the table's `delta.checkpointPolicy` is `v2`, else classic.

    DELTA.md#checkpoint-published: only of a version whose `<v>.json` is published. DELTA.md#v2-checkpoints.
    Order: the sidecars and their names are durable before a file names them; the checkpoint is durable before
    `_last_checkpoint` names it, and the pointer moves forward only.

    Raises `MaintenanceRefusedError` for a version that is not published (it says to backfill), or where the owner
    forbids it.
    """
    from refimpl.log import checkpoint_format

    log = snapshot.reader.log
    ask(snapshot, Maintenance.CHECKPOINT)
    _check_published(snapshot.reader, snapshot.version)
    _check_protection(snapshot)
    form, now = _form(snapshot), log.environment.now()
    oldest = now - retention(snapshot.metadata, DELETED_FILES)
    expired = properties.oldest_transaction(snapshot.metadata, now)
    sidecars: list[Sidecar] = []
    count = 0
    if writes_v2_checkpoints(snapshot.protocol, snapshot.metadata):
        name = log_path.v2_checkpoint(snapshot.version, log.environment.new_id())
        try:
            for content, actions in checkpoint_format.sidecars(snapshot.state, oldest_tombstone=oldest, form=form):
                sidecars.append(_write_sidecar(log, content))
                count += actions
            log.sync_sidecars()
            content, actions = checkpoint_format.top_level(
                snapshot.state, snapshot.version, sidecars, oldest_transaction=expired, form=form
            )
            log.overwrite(name, parquet_seal.sealed(content, name))
        except OSError as error:
            if log.find(name) is None and not isinstance(error, UncertainError):  # perhaps it appears later
                for sidecar in sidecars:
                    log.delete(f"{SIDECAR_FOLDER}/{sidecar.path}")
            raise
    else:
        name = log_path.classic_checkpoint(snapshot.version)
        content, actions = checkpoint_format.classic(
            snapshot.state, oldest_tombstone=oldest, oldest_transaction=expired, form=form
        )
        log.overwrite(name, parquet_seal.sealed(content, name))
    count += actions
    size = len(content) + sum(sidecar.size_in_bytes for sidecar in sidecars)
    written = log.find(name)
    if written is not None:  # otherwise a cleanup has removed the checkpoint already
        _point_to_last(log, (written,), size=count, size_in_bytes=size, files=len(snapshot.files))
    return Checkpointed(version=snapshot.version, name=name, size=size, actions=count, sidecars=len(sidecars))


def _form(snapshot: Snapshot) -> "Form":
    from refimpl.client.checkpoint_columns import form_of

    metadata = snapshot.metadata
    return form_of(
        snapshot.schema,
        snapshot.partition_columns,
        snapshot.indexed_columns,
        lambda: (add.partition_values for add in snapshot.files.values()),
        text=properties.is_on(metadata, properties.STATISTICS_AS_TEXT, "true"),
        typed=properties.is_on(metadata, properties.STATISTICS_AS_COLUMNS, "false"),
        compression=properties.codec(metadata.configuration),
    )


def _check_protection(snapshot: Snapshot) -> None:
    """DELTA.md#checkpoint-protection: below the protected version, a checkpoint only by a writer that supports the
    protocol of its version."""
    newest = snapshot.newest_state
    assert newest.protocol is not None
    assert newest.metadata is not None
    if CHECKPOINT_PROTECTION not in writer_features(newest.protocol):
        return
    text = newest.metadata.configuration.get(PROTECTED_BEFORE, "")
    if not text.isdecimal() or snapshot.version < int(text):
        check_writable(snapshot.protocol, snapshot.metadata)


def _write_sidecar(log: LogStore, content: bytes) -> Sidecar:
    """Write a sidecar and make its bytes durable; `LogStore.sync_sidecars` makes its name durable."""
    name = f"{log.environment.new_id()}.parquet"
    log.write_sidecar(name, parquet_seal.sealed(content, name))
    return Sidecar(path=name, size_in_bytes=len(content), modification_time=log.environment.now())


def is_checkpointed(log: LogStore, version: Version) -> bool:
    """Whether this version has a complete checkpoint."""
    if log.find(log_path.classic_checkpoint(version)) is not None:
        return True
    return any(files[0].version == version for files in complete_checkpoints(log.listing()))


def _point_to_last(log: LogStore, written: tuple[LogPath, ...], *, size: int, size_in_bytes: int, files: int) -> None:
    """Let `_last_checkpoint` name this checkpoint, unless there is a newer one.

    `size`: actions in the checkpoint; `files`: add actions among them. Another process may write a newer pointer
    between the check and the write: so it is checked again afterwards.
    """
    version = written[0].version
    if _newest(log)[0].version > version or _names_newer(log, version):
        return
    log.overwrite(LAST_CHECKPOINT, _pointer(written, size, size_in_bytes, files))
    while (newest := _newest(log))[0].version > version:
        version = newest[0].version
        point_to(log, newest)


def _names_newer(log: LogStore, version: Version) -> bool:
    named = last_checkpoint(log)
    return named is not None and named.version > version and all(log.find(name) for name in named.names)


def _newest(log: LogStore) -> tuple[LogPath, ...]:
    """The newest complete checkpoint; any one of several of the same version."""
    return complete_checkpoints(log.listing())[-1]


def point_to(log: LogStore, files: tuple[LogPath, ...]) -> None:
    """Let `_last_checkpoint` name this checkpoint of another writer."""
    from refimpl.log import checkpoint_format

    actions = sum(checkpoint_format.action_count(log, path) for path in files)
    log.overwrite(LAST_CHECKPOINT, _pointer(files, actions, sum(path.size for path in files), None))


def _pointer(checkpoint: tuple[LogPath, ...], size: int, size_in_bytes: int, files: int | None) -> bytes:
    """PROTOCOL.md, "Last Checkpoint File"; names a V2 checkpoint by its file name, as Delta Lake does."""
    first = checkpoint[0]
    v2 = {"path": first.name, "sizeInBytes": first.size, "modificationTime": first.modified}
    fields = {
        "version": first.version,
        "size": size,
        "parts": first.parts,
        "sizeInBytes": size_in_bytes,
        "numOfAddFiles": files,
        "v2Checkpoint": v2 if first.kind is FileKind.V2_CHECKPOINT else None,
    }
    return _ENCODER.encode({name: value for name, value in fields.items() if value is not None})


_ENCODER: Final = msgspec.json.Encoder()
