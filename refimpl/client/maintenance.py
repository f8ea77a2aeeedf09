"""The maintenance of a log: checkpoints, checksums and metadata cleanup.

catalog-managed, "Maintenance Operations", as tightened since: checkpoints of published versions, and checksums
of any version, are allowed unless the owner forbids them; every other job only if the owner
allows it.
managed-commits, "Maintenance operations on managed-commit tables". So every call asks the owner first; a filesystem
table has none.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from refimpl.client import checkpoint_writing
from refimpl.client.checkpoint_writing import Checkpointed, ask, point_to
from refimpl.client.snapshot import Snapshot
from refimpl.client.table import Table
from refimpl.log import checksum
from refimpl.log.loading import load
from refimpl.log.log_reading import last_checkpoint
from refimpl.log.log_segment import complete_checkpoints
from refimpl.log.table_state import ReplayedState
from refimpl.protocol import log_path
from refimpl.protocol.actions import Action, Add, DomainMetadata, Protocol, Txn
from refimpl.protocol.commit_owner import Maintenance
from refimpl.protocol.errors import CorruptLogError, MaintenanceRefusedError, NotFoundInHistoryError
from refimpl.protocol.log_path import CHECKPOINT_KINDS, SIDECAR_FOLDER, FileKind, LogPath, Version
from refimpl.schema.features import check_writable
from refimpl.schema.properties import LOG, retention
from refimpl.storage.log_store import LogStore


def write_checkpoint(table: Table, version: Version | None = None) -> Checkpointed:
    """Write a checkpoint of `version`, by default of the newest published one. Raises the errors of
    `checkpoint_writing.write` and `Table.snapshot`."""
    return checkpoint_writing.write(table.published_snapshot() if version is None else table.snapshot(version=version))


def write_checksum(table: Table, version: Version | None = None) -> str:
    """Write the checksum of a version, by default the newest; returns the file's name. An existing file stays. Order:
    that of `LogStore.put_if_absent`.

    Raises `MaintenanceRefusedError` if the owner forbids it, and the errors of `Table.snapshot`.
    """
    snapshot = table.snapshot(version=version)
    ask(snapshot, Maintenance.CHECKSUM)
    name = log_path.checksum(snapshot.version)
    table.log.put_if_absent(
        name, checksum.encode(snapshot.state, snapshot.in_commit_timestamp, table.environment.now())
    )
    return name


_Identity = tuple[object, ...]


def _identity(action: Action) -> _Identity:
    """The identity of an action in a checkpoint."""
    match action:
        case Add():
            return ("file", *action.key)
        case Txn(app_id=app_id):
            return ("txn", app_id)
        case DomainMetadata(domain=domain):
            return ("domainMetadata", domain)
    return (type(action).__name__,)


def _meaning(action: Action) -> object:
    """What two writers of the same action agree on."""
    match action:
        case Add():
            return action.size, {name: value for name, value in action.partition_values.items() if value}
        case Txn():
            return action.version
        case Protocol():
            features = frozenset(action.reader_features or ()), frozenset(action.writer_features or ())
            return action.min_reader_version, action.min_writer_version, features
    return action


def _meanings(actions: Iterable[Action]) -> dict[_Identity, object]:
    return {_identity(action): (type(action), _meaning(action)) for action in actions}


def _first_difference(
    meant: dict[_Identity, object], written: dict[_Identity, object], needless: set[_Identity]
) -> str | None:
    for identity in (meant.keys() | written.keys()) - needless:
        if meant.get(identity) != written.get(identity):
            action = " ".join(str(part) for part in identity if part is not None)
            problem = "is missing" if identity not in written else "differs" if identity in meant else "is in no commit"
            return f"{action} {problem}"
    return None


def _checkpoint_difference(table: Table, files: tuple[LogPath, ...], state: ReplayedState) -> str | None:
    """How a checkpoint differs from the commits, or from an older checkpoint and the commits after it; None if it does
    not, or if they cannot be read. It may lack transactions of applications, which expire."""
    from refimpl.log import checkpoint_format

    try:
        replayed = load(table.reader, files[0].version, without={path.name for path in files}).state
        sidecars = sorted(name for path in files for name in checkpoint_format.sidecar_names(table.log, path))
    except (CorruptLogError, NotFoundInHistoryError, FileNotFoundError):
        return None
    meant, written = (_meanings([*checkpoint_format.small(each), *each.files.values()]) for each in (replayed, state))
    expired: set[_Identity] = {("txn", name) for name in replayed.transactions.keys() - state.transactions}
    problem = _first_difference(meant, written, expired)
    names = ", ".join([*(str(table.log.folder / path.name) for path in files), *sidecars])
    return problem and f"the checkpoint {names} differs from the commits up to its version: {problem}"


class Damage(Enum):
    """What is wrong with a checkpoint."""

    REPLACED = "it cannot be read, and older files have what it held"
    LOST = "it cannot be read, and no other files have what it held"
    DIFFERENT = "it has other actions than the commits that it replaces"


def damaged_files(table: Table) -> Iterator[tuple[LogPath, str, Damage]]:
    """The first file of each damaged complete checkpoint; with the problem."""
    for files in complete_checkpoints(table.log.listing()):
        from refimpl.log import checkpoint_format  # slow to import, and most often not needed

        try:
            other = _checkpoint_difference(table, files, checkpoint_format.read(table.log, files))
            if other is not None:
                yield files[0], other, Damage.DIFFERENT
        except FileNotFoundError:  # cleaned up since it was listed
            continue
        except CorruptLogError as error:
            if table.log.find(files[0].name) is None:
                continue
            try:
                load(table.reader, files[0].version)
                damage = Damage.REPLACED
            except (CorruptLogError, NotFoundInHistoryError):
                damage = Damage.LOST
            yield files[0], str(error), damage


KEPT_WITHOUT_FEATURE: Final = 1
"""How many of the newest commits of a filesystem table stay: one proves the cut-off checkpoint's version."""


YOUNG: Final = 24 * 3_600_000
"""ms since the last change: another process may still need a sidecar or temporary file that is younger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedUp:
    """The result of a cleanup. `cut_off`: the checkpoint's version, None if there was none and nothing was deleted."""

    cut_off: Version | None
    deleted: tuple[str, ...]
    """Names below `_delta_log`, in the order of their deletion."""


def clean_up(table: Table, *, older_than: int | None = None) -> CleanedUp:
    """Delete log files that only versions older than the retention need.

    managed-commits and catalog-managed, "Metadata Cleanup"; DELTA.md#cleanup. The steps:

    1. the newest commit that is older than the retention is the cut-off commit;
    2. the newest complete and readable checkpoint at or below it is the cut-off checkpoint; without one
       nothing is deleted;
    3. deleted are older commits, checkpoints and (if the table feature says so) checksums; compactions that start at
       or before it; and staged files at or before it that the owner no longer lists;
    4. the newest k >= 1 published commits always stay;
    5. sidecars that no checkpoint names any more, and temporary files that a crash left behind, are deleted if they
       are older than a day.

    DELTA.md#checkpoint-protection: no checkpoint is created, and none at or after the cut-off checkpoint is deleted.
    Order: the cut-off checkpoint is made durable, then `_last_checkpoint`; then the deletions, oldest first, so that a
    crash leaves a log that only begins later; fsync of the log at the end.

    `older_than`: ms; by default the table's `delta.logRetentionDuration`, else 30 days.
    Raises `MaintenanceRefusedError` if the owner does not allow it, and the errors of `Table.snapshot`.
    """
    snapshot = table.snapshot()
    ask(snapshot, Maintenance.METADATA_CLEANUP)
    check_writable(snapshot.protocol, snapshot.metadata)
    kept_for = retention(snapshot.metadata, LOG) if older_than is None else older_than
    cut_off_commit = _newest_before(snapshot, table.environment.now() - kept_for)
    listing = table.log.listing()
    kept = () if cut_off_commit is None else _cut_off_checkpoint(table, listing, cut_off_commit)
    if not kept:
        return CleanedUp(cut_off=None, deleted=())
    cut_off = kept[0].version
    doomed = _doomed(table, listing, cut_off) + _doomed_staged(table, cut_off)
    oldest = table.environment.now() - YOUNG
    doomed += _doomed_sidecars(table, [path for path in listing if path.name not in doomed], oldest)
    doomed += [name for name, modified in table.log.temporaries() if modified < oldest]
    if doomed and snapshot.objects is None:  # an object that is visible is durable
        try:
            _make_durable(table.log, kept)
        except FileNotFoundError as error:
            raise MaintenanceRefusedError(
                f"another cleanup of {table.label} deleted checkpoint {cut_off}, which this one keeps; run it again",
                job=Maintenance.METADATA_CLEANUP,
                version=cut_off,
            ) from error
    _move_pointer(table, kept)
    for name in doomed:
        table.log.delete(name)
    if doomed:
        table.log.sync()
    return CleanedUp(cut_off=cut_off, deleted=tuple(doomed))


def _newest_before(snapshot: Snapshot, time: int) -> Version | None:
    """The newest version committed at or before `time` (ms since the epoch), as far as the history reaches."""
    times = snapshot.commit_times()
    if times.of(times.last) <= time:
        return times.last
    try:
        return times.version_at(time)
    except NotFoundInHistoryError:
        return None


def _cut_off_checkpoint(table: Table, listing: list[LogPath], newest: Version) -> tuple[LogPath, ...]:
    """The newest complete and readable checkpoint; empty if there is none, and then no history may be deleted."""
    from refimpl.log import checkpoint_format

    for files in reversed(complete_checkpoints(listing)):
        if files[0].version <= newest:
            try:
                checkpoint_format.read(table.log, files)
            except (CorruptLogError, FileNotFoundError):
                continue
            return files
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


def _doomed_sidecars(table: Table, kept: list[LogPath], oldest: int) -> list[str]:
    """Sidecars from before `oldest` (ms) that no checkpoint in `kept` names. Delta's protocol, "Metadata Cleanup": a
    younger one may belong to a checkpoint that is being written."""
    from refimpl.log import checkpoint_format

    names: set[str] = set()
    files = table.log.sidecars()
    try:
        for path in kept if files else ():
            if path.kind in CHECKPOINT_KINDS:
                names |= checkpoint_format.sidecar_names(table.log, path)
    except (CorruptLogError, FileNotFoundError):  # the checkpoint may need any of them
        return []
    return [f"{SIDECAR_FOLDER}/{file.name}" for file in files if file.name not in names and file.modified < oldest]


def _make_durable(log: LogStore, checkpoint_files: tuple[LogPath, ...]) -> None:
    """Make a checkpoint durable that will replace deleted commits. Its writer may not have synced it, or its sync may
    have failed.

    Order: the same bytes become new files, the sidecars first. The last sync covers the name of their folder, too.
    """
    from refimpl.log import checkpoint_format

    for path in checkpoint_files:
        sidecars = (f"{SIDECAR_FOLDER}/{name}" for name in checkpoint_format.sidecar_names(log, path))
        for name in (*sidecars, path.name):
            log.overwrite(name, log.read(name))


def _move_pointer(table: Table, cut_off: tuple[LogPath, ...]) -> None:
    """Let `_last_checkpoint` name the cut-off checkpoint if it names a deleted one. Newer ones may exist, but only
    this one was checked to be readable."""
    named = last_checkpoint(table.log)
    if named is not None and named.version < cut_off[0].version:
        point_to(table.log, cut_off)
