"""The maintenance of data files: OPTIMIZE combines small files and rewrites those with deletion vectors, VACUUM
deletes files that no retained version needs.

None of them changes a row. Each call asks the owner first: catalog-managed, "Maintenance Operations".
"""

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from refimpl.client.checkpoint_writing import ask
from refimpl.client.row_changes import predicate_parameter
from refimpl.client.snapshot import Snapshot
from refimpl.client.table import Table
from refimpl.client.transaction import Transaction
from refimpl.log.history import actions_since
from refimpl.protocol import actions, log_path
from refimpl.protocol.actions import Add, Cdc, Remove
from refimpl.protocol.commit_owner import Maintenance
from refimpl.protocol.errors import (
    CorruptDataError,
    CorruptLogError,
    InvalidRequestError,
    MaintenanceRefusedError,
    UnsupportedFeatureError,
)
from refimpl.protocol.log_path import LogPath, Version
from refimpl.rows import data_files, deletion_vectors, row_tracking
from refimpl.schema.features import check_writable
from refimpl.schema.properties import DELETED_FILES, retention

TARGET_SIZE: Final = 128 * 1024 * 1024
"""Approximate size in bytes of a file that OPTIMIZE writes. Smaller files are combined, larger ones stay."""

_HOUR: Final = 3_600_000
"""ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimized:
    """The result of OPTIMIZE. `version`: None if no file had to be rewritten, and nothing was committed."""

    version: Version | None = None
    removed: int = 0
    """Number of files that were replaced."""
    added: int = 0
    removed_bytes: int = 0
    added_bytes: int = 0


def optimize(table: Table, where: str | None = None, *, target_size: int = TARGET_SIZE) -> Optimized:
    """Combine the small files of each partition, up to `target_size` bytes, and rewrite the files that have deletion
    vectors without their deleted rows, in one transaction.

    Delta calls this bin packing; Z-order and clustering are not implemented. `where`: only partitions for which this
    condition (SQL, on partition columns) is true. The rows stay the same (`dataChange` is false), so a concurrent
    append is never a conflict. A commit that removes one of the files is a conflict, and then nothing is changed.

    Order: the new files are durable before the transaction names them. The old ones stay until VACUUM.
    Raises `MaintenanceRefusedError` if the owner does not allow it, `InvalidRequestError` for a condition on other
    columns, and the errors of reads and commits.
    """
    if target_size < 1:
        raise InvalidRequestError(f"invalid target size {target_size}; expected a number of bytes")
    snapshot = table.snapshot()
    ask(snapshot, Maintenance.OPTIMIZE)
    chosen = [add for add in _chosen(snapshot, where) if add.size < target_size or add.deletion_vector is not None]
    bins = [files for files in _bins(chosen, target_size) if len(files) > 1 or files[0].deletion_vector is not None]
    if not bins:
        return Optimized()
    transaction = table.transaction(
        snapshot=snapshot,
        operation="OPTIMIZE",
        landed=table.checkpoint_if_due,
        parameters={**predicate_parameter(where), "zOrderBy": "[]", "auto": False},
    )
    removed = list(itertools.chain.from_iterable(bins))
    added: list[Add] = []
    with transaction.deleting_unless_landed(added):
        for files in bins:
            added += _write_combined(transaction, files)
        _replace(transaction, removed, added)
        version = transaction.commit().version
    return Optimized(
        version=version,
        removed=len(removed),
        added=len(added),
        removed_bytes=sum(add.size for add in removed),
        added_bytes=sum(add.size for add in added),
    )


def _chosen(snapshot: Snapshot, where: str | None) -> Iterable[Add]:
    if where is None:
        return snapshot.files.values()
    test = snapshot.file_test(where)
    if not test.partition_only:
        raise InvalidRequestError(
            f"OPTIMIZE rewrites whole partitions: {where!r} may name only partition columns "
            f"({', '.join(snapshot.partition_columns) or 'the table has none'})",
            where=where,
        )
    return (add for add in snapshot.files.values() if test.may_match(add))


def _bins(files: Iterable[Add], target_size: int) -> Iterator[list[Add]]:
    """Groups of files of one partition, each of at most `target_size` bytes, or with a single file."""
    partitions: dict[tuple[tuple[str, str | None], ...], list[Add]] = {}
    for add in files:
        partitions.setdefault(tuple(sorted(add.partition_values.items())), []).append(add)
    for small in partitions.values():
        bins: list[list[Add]] = []
        free = 0
        for add in sorted(small, key=lambda add: (add.size, add.path)):
            if not bins or add.size > free:
                bins.append([])
                free = target_size
            bins[-1].append(add)
            free -= add.size
        yield from bins


def _write_combined(transaction: Transaction, files: Sequence[Add]) -> list[Add]:
    """New durable files with the rows of `files`, all of one partition. One file is in memory at a time."""
    snapshot = transaction.snapshot
    hidden, layout = row_tracking.hidden_columns(snapshot.protocol, snapshot.metadata), snapshot.layout
    rows = (data_files.read_file(layout, add, hidden=hidden) for add in files)
    adds = transaction.data_file_writer(copies=True).write_all(rows)
    return [msgspec.structs.replace(add, data_change=False) for add in adds]


def _replace(transaction: Transaction, removed: Sequence[Add], added: Sequence[Add]) -> None:
    transaction.keeps_row_ids = True
    transaction.remove(*removed, data_change=False)
    transaction.add(*added)
    for name, files in (("Removed", removed), ("Added", added)):
        transaction.metrics[f"num{name}Files"] = str(len(files))
        transaction.metrics[f"num{name}Bytes"] = str(sum(add.size for add in files))


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacuumed:
    """The files that VACUUM deleted, or would delete. Paths are relative to the table; `size` in bytes."""

    files: tuple[str, ...]
    size: int
    kept: int
    """Number of data files that stay."""


def vacuum(table: Table, *, older_than: int | None = None, dry_run: bool = True, force: bool = False) -> Vacuumed:
    """Delete the data files that neither the newest version nor a retained older one needs.

    A file stays if the newest version has it, ratified or published; if it was removed less than `older_than` ms
    ago (default: the table's `delta.deletedFileRetentionDuration`, else 7 days); if a staged commit that is not
    ratified names it; or if it was written less than `older_than` ms ago, because it may belong to a running
    transaction. Hidden files and folders, and folders that are tables themselves, stay too. In an object store, the
    store's modification times are used.

    `dry_run`, the default, only lists. `force` allows an `older_than` below the table's retention: only when no other
    process writes the table or reads an old version.

    Order: list all files; sync the newest version, because an older one would need the files; delete them. An
    interrupted vacuum can be repeated.

    Limit: if the table's retention was shorter in the past, or `older_than` is longer than it, files that were removed
    before the oldest commit of the log may be deleted, because a checkpoint may have dropped their removals.

    Raises `MaintenanceRefusedError` if the owner does not allow it, or for a retention that is too short.
    """
    snapshot = table.snapshot()
    ask(snapshot, Maintenance.VACUUM)
    check_writable(snapshot.protocol, snapshot.metadata)
    least = retention(snapshot.metadata, DELETED_FILES)
    age = least if older_than is None else older_than
    if age < least and not force:
        raise MaintenanceRefusedError(
            f"vacuum of {table.label}: the age {_in_words(age)} is below its {DELETED_FILES}, "
            f"{_in_words(least)}; use a longer age, or --force (force=True in Python) if no other process uses the "
            "table",
            job=Maintenance.VACUUM,
        )
    oldest = table.environment.now() - age
    files = list(data_files.listing(snapshot.layout))
    # After the listing: files that are committed meanwhile are needed too.
    needed = _needed(table, oldest)
    doomed = [(path, size) for path, size, modified in files if path not in needed and modified < oldest]
    if doomed and not dry_run:
        table.log.sync_newest()
        for path, _ in doomed:
            with contextlib.suppress(FileNotFoundError):
                table.environment.files.unlink(table.location / path)
    return Vacuumed(
        files=tuple(path for path, _ in doomed), size=sum(size for _, size in doomed), kept=len(files) - len(doomed)
    )


def _in_words(milliseconds: int) -> str:
    """Rounded down: an age below the limit stays below it."""
    return f"{milliseconds * 10 // _HOUR / 10:g} h" if milliseconds >= _HOUR else f"{milliseconds / 1000:g} s"


def _needed(table: Table, oldest: int) -> set[str]:
    """The needed paths, relative to the table. `oldest`: files that were removed at this time (ms) or later are needed.

    The commits are read, too: a checkpoint keeps removals only for the retention that the table had then.
    """
    staged = _read_staged(table)  # before the snapshot, which includes those that are ratified meanwhile
    snapshot = table.snapshot()
    removed = (action for action in snapshot.tombstones.values() if (action.deletion_timestamp or 0) >= oldest)
    commits = actions_since(snapshot.reader, snapshot.version, snapshot.enablement, oldest)
    logged = (action for commit in commits for action in commit if isinstance(action, Remove))
    proposed = _still_proposed(table, snapshot.version, staged)
    return set(_named(snapshot, itertools.chain(snapshot.files.values(), removed, logged, proposed)))


def _named(snapshot: Snapshot, file_actions: Iterable[Add | Cdc | Remove]) -> dict[str, str]:
    """The data files and deletion vectors that the actions name, by their paths relative to the table: their paths in
    the log."""
    named: dict[str, str] = {}
    for action in file_actions:
        vector = None if isinstance(action, Cdc) else action.deletion_vector
        for path in (action.path, None if vector is None else deletion_vectors.relative_file(vector)):
            with contextlib.suppress(UnsupportedFeatureError):  # on another host, so not below this folder
                if path is not None:
                    named[data_files.relative_path(snapshot.location, path, snapshot.objects)] = path
    return named


def missing_files(table: Table) -> tuple[Version, list[str]]:
    """The newest version, and those of its data files and deletion vectors that are not on the storage; by their paths
    relative to the table.

    Files of the table's folder are listed, as in VACUUM; each other file, and each that is not in the listing, is
    looked up. Files on another host are not checked. The snapshot is read again after a file was not found, because
    other processes may remove and delete files meanwhile.
    """
    snapshot = table.snapshot()
    named = _named(snapshot, snapshot.files.values())
    for path, _, _ in data_files.listing(snapshot.layout):  # after the snapshot, whose files were written before it
        named.pop(path, None)
    layout, files = snapshot.layout, table.environment.files
    missing = {path for path, logged in named.items() if files.stat(layout.path_of(logged)) is None}
    if missing:
        snapshot = table.snapshot()
        missing &= _named(snapshot, snapshot.files.values()).keys()
    return snapshot.version, sorted(missing)


def damaged_files(table: Table) -> list[str]:
    """What is wrong with the content of data files and deletion vectors of the newest version. Reads all of them.

    Missing files are those of `missing_files`. Files that this client cannot read are not checked.
    """
    snapshot, problems = table.snapshot(), {}
    for key, add in snapshot.files.items():
        with contextlib.suppress(UnsupportedFeatureError):
            try:
                data_files.check(snapshot.layout, add)
            except CorruptDataError as error:
                if table.environment.files.stat(snapshot.layout.path_of(add.path)) is not None:
                    problems[key] = error.message
    if problems:  # other processes may remove and delete files meanwhile
        return [problems[key] for key in problems.keys() & table.snapshot().files.keys()]
    return []


def _read_staged(table: Table) -> dict[LogPath, bytes]:
    if table.feature is None:
        return {}
    folder, contents = table.feature.staging_folder, {}
    for path in table.log.staged_listing(folder):
        with contextlib.suppress(FileNotFoundError):
            contents[path] = table.log.read_staged(folder, path.name)
    return contents


def _still_proposed(table: Table, latest: Version, staged: Mapping[LogPath, bytes]) -> Iterator[Add | Cdc | Remove]:
    """File actions of staged commits that are not ratified: their writer may still propose or rebase them. `latest`:
    the version of a snapshot that was read after the staged files."""
    answer = table.reader.ask() if staged else None
    ratified = set() if answer is None else {commit.file_name for commit in answer.commits}
    for path, content in staged.items():
        if path.version <= latest and (path.name in ratified or _is_published(table, path.version, content)):
            continue
        with contextlib.suppress(CorruptLogError):  # a torn file is never proposed
            decoded = actions.decode(content, source=path.name)
            yield from (action for action in decoded if isinstance(action, Add | Cdc | Remove))


def _is_published(table: Table, version: Version, content: bytes) -> bool:
    return table.log.published(version) and table.log.holds(log_path.commit(version), content)
