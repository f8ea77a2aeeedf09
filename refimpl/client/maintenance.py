"""The maintenance of a log: checkpoints, checksums, log compaction and metadata cleanup.

catalog-managed, "Maintenance Operations", as tightened since: checkpoints and log compaction of published
versions, and checksums of any version, are allowed unless the owner forbids them; every other job only if the owner
allows it.
managed-commits, "Maintenance operations on managed-commit tables". So every call asks the owner first; a filesystem
table has none.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from refimpl.client import checkpoint_writing
from refimpl.client.checkpoint_writing import Checkpointed, ask, check_published, point_to
from refimpl.client.snapshot import Snapshot
from refimpl.client.table import Table
from refimpl.log import checksum
from refimpl.log.loading import check_reconciled, load
from refimpl.log.log_reading import LogReader, last_checkpoint
from refimpl.log.log_segment import Commit, complete_checkpoints, known_commits
from refimpl.log.table_state import ReplayedState
from refimpl.protocol import log_path
from refimpl.protocol.actions import Action, Add, DomainMetadata, Metadata, Protocol, Remove, Txn, decode, same_actions
from refimpl.protocol.commit_owner import Maintenance
from refimpl.protocol.errors import (
    CorruptLogError,
    InvalidRequestError,
    MaintenanceRefusedError,
    NotFoundInHistoryError,
)
from refimpl.protocol.log_path import CHECKPOINT_KINDS, SIDECAR_FOLDER, FileKind, LogPath, Version
from refimpl.schema.features import check_writable
from refimpl.schema.properties import DELETED_FILES, LOG, retention
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


def compact(table: Table, start: Version, end: Version) -> str:
    """Write `<start>.<end>.compacted.json`, which replaces the commits from `start` to `end`; returns its name.

    Delta's protocol, "Log Compaction Files"; DELTA.md#checkpoint-published: only if the end is published. The file
    holds the last action of the range on each file, application or domain; removals stay, because they hide earlier
    adds. commitInfo is left out. Lines are copied unchanged, including fields and whole actions that this client does
    not know, because other clients may. Order: that of `LogStore.overwrite`; the commits stay until a cleanup.

    Raises `InvalidRequestError` for a range of fewer than two versions, `NotFoundInHistoryError` for one above the
    newest version, `MaintenanceRefusedError` if the end is not published, commits of the range are missing, or the
    owner forbids it.
    """
    if log_path.checked(start) >= log_path.checked(end):
        raise InvalidRequestError(f"invalid range {start} to {end}; expected at least two versions")
    newest = table.snapshot()
    ask(newest, Maintenance.LOG_COMPACTION)
    if end > newest.version:
        raise NotFoundInHistoryError(
            f"version {end} does not exist: the latest version is {newest.version}", version=end
        )
    check_published(table.reader, end, Maintenance.LOG_COMPACTION)
    answer = table.reader.ask()
    commits = {commit.version: commit for commit in known_commits(table.log.listing(), answer, table.feature)}
    missing = next((version for version in range(start, end) if version not in commits), None)
    if missing is not None:
        raise MaintenanceRefusedError(
            f"version {missing} of {table.label} is no longer in the log; compact from {min(commits, default=end)} on",
            job=Maintenance.LOG_COMPACTION,
            version=missing,
        )
    latest = _reconcile(table.reader, [commits[version] for version in range(start, end + 1)])
    if not latest:
        raise InvalidRequestError(
            f"versions {start} to {end} of {table.label} hold no action that a compaction keeps; compact a wider range",
            version=start,
        )
    name = log_path.compaction(start, end)
    table.log.overwrite(name, b"".join(line + b"\n" for line in latest.values()))
    return name


_Identity = tuple[object, ...]


def _reconcile(reader: LogReader, commits: Iterable[Commit]) -> dict[_Identity, bytes]:
    """The lines of commits that a compaction keeps, in their order, by the identities of their actions."""
    latest: dict[_Identity, bytes] = {}
    for commit in commits:
        source = reader.source(commit)
        for number, line in enumerate(reader.content(commit).split(b"\n")):
            if line and not line.isspace():
                decoded = decode(line, source=f"{source}, line {number + 1}")
                identity = _identity(decoded[0]) if decoded else (commit.version, number)
                if identity is not None:
                    latest.pop(identity, None)
                    latest[identity] = line
    return latest


def _identity(action: Action) -> _Identity | None:
    """The identity of a known action: of two with the same identity, the later counts. None: it is left out."""
    match action:
        case Add() | Remove():
            return ("file", *action.key)
        case Txn(app_id=app_id):
            return ("txn", app_id)
        case DomainMetadata(domain=domain):
            return ("domainMetadata", domain)
        case Protocol():
            return ("protocol",)
        case Metadata():
            return ("metaData",)
    return None


def _meaning(action: Action) -> object:
    """What two writers of the same action agree on."""
    match action:
        case Add():
            return action.size, {name: value for name, value in action.partition_values.items() if value}
        case Remove():
            return None
        case Txn():
            return action.version
        case Protocol():
            features = frozenset(action.reader_features or ()), frozenset(action.writer_features or ())
            return action.min_reader_version, action.min_writer_version, features
    return action


def _difference(table: Table, path: LogPath, actions: Iterable[Action]) -> str | None:
    """How the actions of a compaction differ from those of its commits; None if they do not, or if a commit is missing
    or cannot be read."""
    reader = table.reader
    commits = {commit.version: commit for commit in known_commits(table.log.listing(), reader.ask(), table.feature)}
    assert path.start_version is not None
    try:
        lines = _reconcile(reader, [commits[version] for version in range(path.start_version, path.version + 1)])
        wanted = decode(b"\n".join(lines.values()), source=path.name)
    except (KeyError, FileNotFoundError, CorruptLogError):
        return None
    meant, written = _meanings(wanted), _meanings(actions)
    try:
        missing = (action for action in wanted if _identity(action) not in written)
        needless = _needless(table, path.start_version, missing)
    except (NotFoundInHistoryError, CorruptLogError):  # no version before the range can be read, so it is not used
        return None
    problem = _first_difference(meant, written, needless) or _other_statistics(wanted, actions)
    return problem and f"the compaction {table.log.folder / path.name} differs from its commits: {problem}"


def _meanings(actions: Iterable[Action]) -> dict[_Identity | None, object]:
    return {_identity(action): (type(action), _meaning(action)) for action in actions}


def _first_difference(
    meant: dict[_Identity | None, object], written: dict[_Identity | None, object], needless: set[_Identity | None]
) -> str | None:
    for identity in (meant.keys() | written.keys()) - needless:
        if identity is not None and meant.get(identity) != written.get(identity):
            action = " ".join(str(part) for part in identity if part is not None)
            problem = "is missing" if identity not in written else "differs" if identity in meant else "is in no commit"
            return f"{action} {problem}"
    return None


def _other_statistics(wanted: Iterable[Action], actions: Iterable[Action]) -> str | None:
    """A file whose statistics differ. A writer may leave them out, but no writer of a compaction changes them."""
    stated = {add.key: add.stats for add in wanted if isinstance(add, Add)}
    for add in actions:
        if isinstance(add, Add) and add.stats and stated.get(add.key) and not _same_json(add.stats, stated[add.key]):
            return f"the statistics of {add.path}"
    return None


def _same_json(text: str, other: str | None) -> bool:
    return text == other or same_actions(text.encode(), (other or "").encode())


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
    expired: set[_Identity | None] = {("txn", name) for name in replayed.transactions.keys() - state.transactions}
    problem = _first_difference(meant, written, expired)
    names = ", ".join([*(str(table.log.folder / path.name) for path in files), *sidecars])
    return problem and f"the checkpoint {names} differs from the commits up to its version: {problem}"


def _needless(table: Table, start: Version, missing: Iterable[Action]) -> set[_Identity | None]:
    """The identities of the actions that a compaction from `start` on may lack: DELTA.md#removals-in-compactions."""
    removals = [action for action in missing if isinstance(action, Remove | DomainMetadata)]
    if not removals:
        return set()
    before = load(table.reader, start - 1).state if start else ReplayedState()
    oldest = table.environment.now() - retention(table.snapshot().metadata, DELETED_FILES)

    def hides_nothing(removal: Remove | DomainMetadata) -> bool:
        if isinstance(removal, DomainMetadata):
            return removal.removed and removal.domain not in before.domains
        return removal.key not in before.files and (removal.deletion_timestamp or 0) < oldest

    return {_identity(removal) for removal in removals if hides_nothing(removal)}


class Damage(Enum):
    """What is wrong with a checkpoint or a compaction."""

    REPLACED = "it cannot be read, and older files have what it held"
    LOST = "it cannot be read, and no other files have what it held"
    DIFFERENT = "it has other actions than the commits that it replaces"


def damaged_files(table: Table) -> Iterator[tuple[LogPath, str, Damage]]:
    """Each damaged compaction, and the first file of each damaged complete checkpoint; with the problem."""
    listing = table.log.listing()
    for path in listing:
        if path.kind is FileKind.COMPACTION:
            try:
                actions = table.reader.actions(path)
                check_reconciled(actions, str(table.log.folder / path.name))
            except FileNotFoundError:  # cleaned up since it was listed
                continue
            except CorruptLogError as error:  # only ever read in place of commits that exist
                yield path, str(error), Damage.REPLACED
                continue
            difference = _difference(table, path, actions)
            if difference is not None:
                yield path, difference, Damage.DIFFERENT
    for files in complete_checkpoints(listing):
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
