"""Metadata cleanup: old log files go, everything from a cut-off checkpoint on stays.

managed-commits and catalog-managed, "Metadata Cleanup"; DELTA.md#cleanup. The steps:

1. the newest commit that is older than the retention is the cut-off commit;
2. the newest complete and readable checkpoint at or below it is the cut-off checkpoint; without one
   nothing is deleted;
3. older commits and checkpoints go (checksums where the table feature says so), compactions that start at or
   before it, staged files at or before it unless the owner still lists them;
4. the newest k >= 1 published commits always stay;
5. sidecars go that are older than a day and that no checkpoint names any more.

The owner must allow it. Oldest first, so that a crash leaves a log that only begins later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from refimpl.client import checkpoint_reading, maintenance
from refimpl.client.checkpoint import point_to
from refimpl.client.log_segment import complete_checkpoints
from refimpl.client.retention import LOG, retention
from refimpl.client.time_travel import commit_times
from refimpl.commit_owner import Maintenance
from refimpl.errors import CorruptLogError, NotFoundInHistoryError
from refimpl.log_path import CHECKPOINT_KINDS, SIDECAR_FOLDER, FileKind, LogPath, Version

if TYPE_CHECKING:
    from refimpl.client.snapshot import Snapshot
    from refimpl.client.table import Table

KEPT_WITHOUT_FEATURE: Final = 1
"""Newest commits of a filesystem table that stay: the one that proves the cut-off checkpoint's version."""


SIDECARS_SPARED_FOR: Final = 24 * 3_600_000
"""ms since the last change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedUp:
    """What a cleanup did. `cut_off`: the checkpoint's version, None if there was none and nothing was deleted."""

    cut_off: Version | None
    deleted: tuple[str, ...]
    """Names below `_delta_log`, in the order of their deletion."""


def clean_up(table: Table, *, older_than: int | None = None) -> CleanedUp:
    """Delete log files that only versions older than the retention need.

    `older_than`: ms; by default the table's `delta.logRetentionDuration`, 30 days where it says nothing.
    Raises `MaintenanceRefusedError` where the owner does not allow it, and what `Table.snapshot` raises.
    """
    snapshot = table.snapshot()
    maintenance.ask(table, snapshot, Maintenance.METADATA_CLEANUP)
    kept_for = retention(snapshot.metadata, LOG) if older_than is None else older_than
    cut_off_commit = _newest_before(snapshot, table.environment.now() - kept_for)
    listing = table.log.listing()
    checkpoint = () if cut_off_commit is None else _cut_off_checkpoint(table, listing, cut_off_commit)
    if not checkpoint:
        return CleanedUp(cut_off=None, deleted=())
    cut_off = checkpoint[0].version
    doomed = _doomed(table, listing, cut_off) + _doomed_staged(table, cut_off)
    doomed += _doomed_sidecars(table, [path for path in listing if path.name not in doomed])
    _move_pointer(table, checkpoint)
    for name in doomed:
        table.log.delete(name)
    if doomed:
        table.log.sync()
    return CleanedUp(cut_off=cut_off, deleted=tuple(doomed))


def _newest_before(snapshot: Snapshot, time: int) -> Version | None:
    """The newest version committed at or before `time` (ms since the epoch), as far as the history reaches."""
    times = commit_times(snapshot)
    if times.of(times.last) <= time:
        return times.last
    try:
        return times.version_at(time)
    except NotFoundInHistoryError:
        return None


def _cut_off_checkpoint(table: Table, listing: list[LogPath], newest: Version) -> tuple[LogPath, ...]:
    """Only one that was read just now is worth the history before it. Empty: there is none."""
    for checkpoint in reversed(complete_checkpoints(listing)):
        if checkpoint[0].version <= newest:
            try:
                checkpoint_reading.read(table.log, checkpoint)
            except (CorruptLogError, FileNotFoundError):
                continue
            return checkpoint
    return ()


def _doomed(table: Table, listing: list[LogPath], cut_off: Version) -> list[str]:
    feature = table.feature
    with_checksums = feature is None or feature.cleanup_deletes_checksums
    keep = max(KEPT_WITHOUT_FEATURE if feature is None else feature.cleanup_keeps_newest, 1)
    newest_commits = {path.name for path in listing if path.kind is FileKind.COMMIT}
    protected = set(sorted(newest_commits)[-keep:])
    doomed: list[str] = []
    for path in listing:  # in order of version
        match path.kind:
            case FileKind.COMPACTION:
                assert path.start_version is not None
                goes = path.start_version <= cut_off
            case FileKind.COMMIT:
                goes = path.version < cut_off and path.name not in protected
            case FileKind.CHECKSUM:
                goes = path.version < cut_off and with_checksums
            case _:
                goes = path.kind in CHECKPOINT_KINDS and path.version < cut_off
        if goes:
            doomed.append(path.name)
    return doomed


def _doomed_staged(table: Table, cut_off: Version) -> list[str]:
    if table.feature is None:
        return []
    folder = table.feature.staging_folder
    answer = table.reader.ask(end=cut_off)
    listed = set() if answer is None else {commit.file_name for commit in answer.commits}
    staged = table.log.staged_listing(folder)
    return [f"{folder}/{path.name}" for path in staged if path.version <= cut_off and path.name not in listed]


def _doomed_sidecars(table: Table, left: list[LogPath]) -> list[str]:
    """Sidecars that none of the checkpoints in `left` names. Delta's protocol, "Metadata Cleanup": young ones may be
    of a checkpoint that is being written."""
    names: set[str] = set()
    files = table.log.sidecars()
    try:
        for path in left if files else ():
            if path.kind in CHECKPOINT_KINDS:
                names |= checkpoint_reading.sidecar_names(table.log, path)
    except (CorruptLogError, FileNotFoundError):  # nobody knows what it needs
        return []
    oldest = table.environment.now() - SIDECARS_SPARED_FOR
    return [f"{SIDECAR_FOLDER}/{file.name}" for file in files if file.name not in names and file.modified < oldest]


def _move_pointer(table: Table, cut_off: tuple[LogPath, ...]) -> None:
    """`_last_checkpoint` must not name what is about to go. Newer checkpoints may be there; this one was read."""
    named = checkpoint_reading.last_checkpoint(table.log)
    if named is not None and named.version < cut_off[0].version:
        point_to(table.log, cut_off)
