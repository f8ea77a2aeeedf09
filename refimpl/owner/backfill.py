"""Backfill: copy ratified commits to `<v>.json`, in order, and only then forget their bytes.

managed-commits, "Commit Backfills": sequential. catalog-managed, "Publishing Commits": in order;
the content of a ratified commit is immutable, so an existing file must have the same content.
"""

import contextlib
import hashlib
import itertools
from collections.abc import Sequence
from typing import Final

from refimpl.owner import decide, records
from refimpl.owner.records import TableRecord
from refimpl.owner.statements import Writer
from refimpl.owner.tables import Tables
from refimpl.protocol import log_path
from refimpl.protocol.actions import same_actions
from refimpl.protocol.commit_owner import Backfilled, TableState
from refimpl.protocol.commits import MAX_COMMIT_BYTES, RatifiedCommit
from refimpl.protocol.errors import CorruptLogError, InvalidRequestError, OwnerUnavailableError
from refimpl.protocol.log_path import LogPath, Version
from refimpl.storage.environment import LOCK_POLL_SECONDS
from refimpl.storage.log_store import LogStore

_Stored = tuple[RatifiedCommit, bytes]
"""A commit and the SHA-256 of its bytes."""
BATCH: Final = 64
"""Commits published, or confirmed as published, before the ledger records them."""
_PAUSE_SECONDS: Final = 3 * LOCK_POLL_SECONDS
"""Pause between two batches: longer than the polling interval of a process that waits for the publishing lock."""


def backfill(tables: Tables, table_id: str, version: Version | None, *, batches: int | None = None) -> Backfilled:
    """Publish up to `version`, or to the current latest one; see `CommitOwner.backfill_to_version`.

    The publishing lock is free between two batches, so that another process waits for one at most. `batches`: stop
    after this many.

    Raises `InvalidRequestError` for a version above the latest, before it publishes. Raises `CorruptLogError`, and
    halts the table, if a staged file is missing or altered, or if `<v>.json` has other bytes. The next call continues
    an interrupted one.
    """
    published = 0
    for number in itertools.count(1):
        with tables.publishing(table_id):
            through, count, done = _publish_batch(tables, table_id, version)
        published += count
        if done or number == batches:
            break
        tables.environment.pause(_PAUSE_SECONDS)
    return Backfilled(through=through, published=published)


def finish(tables: Tables, table_id: str) -> None:
    """Publish the remaining commits. The caller holds both locks, so that no commit is added meanwhile."""
    while not _publish_batch(tables, table_id, None)[2]:
        pass


def _publish_batch(tables: Tables, table_id: str, version: Version | None) -> tuple[Version | None, int, bool]:
    """Publish the next versions, then record them. Returns the last one, how many, and whether all are published.

    The caller holds the table's publishing lock. Writers can commit meanwhile: the owner's lock is taken only to
    record.
    """
    table, commits = _next(tables, table_id, version)
    if not commits or (version is not None and version >= table.next):
        with tables.lock(), tables.changing(table_id) as (_, table):  # completes an interrupted call
            pass
    if version is not None and version >= table.next:
        raise InvalidRequestError(
            f"version {version} of {table.label} is not ratified; the latest is {table.latest}", version=version
        )
    if not commits:
        return table.backfilled, 0, True
    target = table.next - 1 if version is None else version
    # Durability order: each `publish` returns after `<v>.json` and its name are durable, the next version
    # starts after that, and the ledger forgets the bytes in a later transaction.
    log = tables.log(table)
    published: list[_Stored] = []
    problem: CorruptLogError | OSError | None = None
    for commit, digest in commits:
        try:
            content = _content(table, log, commit, digest)
            if content is not None:
                log.publish(commit.version, content, commit.commit_mode)
        except (CorruptLogError, OSError) as error:
            problem = error
            break
        published.append((commit, digest))
    with tables.lock(), tables.changing(table_id) as (writer, table):
        through = _record(writer, table, published, tables.now)
        if through is not None and through >= commit.version:  # another process recorded it, so the problem is solved
            problem = None
        if isinstance(problem, CorruptLogError):
            writer.set(table, halted=f"backfill of version {commit.version} failed: {problem}")
    if isinstance(problem, OSError):
        raise OwnerUnavailableError(
            f"backfill of {table.label} stopped after version {through}: {problem}; "
            f"nothing is lost, and the next backfill continues from there"
        ) from problem
    if problem is not None:
        raise problem
    return through, len(commits), through is not None and through >= target


def _next(tables: Tables, table_id: str, version: Version | None) -> tuple[TableRecord, list[_Stored]]:
    """The table, and its next commits to publish."""
    with tables.ledger.read() as view:
        table = tables.required(view, table_id)
        if table.state is TableState.DROPPED:
            if table.latest is None:
                with contextlib.suppress(OSError):
                    tables.end_publishing(table_id)
            raise InvalidRequestError(f"{table.label} was dropped; a dropped table is not published")
        first, size = table.first_unbackfilled, 0
        commits: list[_Stored] = []
        while first + len(commits) < table.next and len(commits) < BATCH and size < records.MAX_INLINE_BYTES:
            if version is not None and first + len(commits) > version:
                break
            details = view.commit_details(table, first + len(commits))
            assert details is not None, f"the ledger of {table.label} lacks version {first + len(commits)}"
            commits.append(details[:2])
            size += len(details[0].content or b"")
    return table, commits


def _record(writer: Writer, table: TableRecord, published: Sequence[_Stored], now: int) -> Version | None:
    """Forget the bytes of the published commits; returns the newest version that is then recorded as published.

    A client may have reported some of these versions meanwhile, or a backup may have replaced the ledger: then the
    ledger may have another commit of the same version, which is not forgotten.
    """
    through = table.backfilled
    for commit, digest in published:
        if commit.version < table.first_unbackfilled:
            continue
        details = writer.commit_details(table, commit.version)
        if details is None or details[1] != digest:
            break
        through = commit.version
    if through is not None and through != table.backfilled:
        writer.mark_published(table, through, now)
    return through


def record_published(tables: Tables, table_id: str, through: Version) -> str | None:
    """Forget the versions up to `through`, which a client reports as published, in batches. Returns why one of them
    must not be forgotten."""
    while True:
        with tables.lock(), tables.changing(table_id) as (writer, table):
            refused = decide.not_accepting(table)
            if refused is not None:
                return refused.detail
            batch = range(table.first_unbackfilled, through + 1)[:BATCH]
            flaw = decide.report_flaw(table, through) or confirm_published(writer, table, tables.log(table), batch)
            if flaw is not None or not batch:
                return flaw
            writer.mark_published(table, batch[-1], tables.now)
            if batch[-1] == through:
                return None


def confirm_published(writer: Writer, table: TableRecord, log: LogStore, versions: Sequence[Version]) -> str | None:
    """Make versions durable that a client reports as published. Returns why one of them must not be forgotten, if
    its `<v>.json` is missing or differs. The caller holds the lock.

    catalog-managed, "Publishing Commits". Durability order: the same bytes become a new file, because the client's
    fsync may have failed; then the caller's transaction forgets them.
    """
    for version in versions:
        name = log_path.commit(version)
        path, details = log.find(name), writer.commit_details(table, version)
        if path is None and details is not None and details[0].content is None and log.in_checkpoint(version):
            continue
        if path is None:
            return f"version {version} of {table.label} is not published: {name} is missing; publish it, then report"
        content = None if details is None else _published_bytes(log, path, *details[:2])
        if content is None:
            return f"{name} of {table.label} is not the commit that was ratified as version {version}; run verify"
        log.overwrite(name, content)
    return None


def _published_bytes(log: LogStore, path: LogPath, commit: RatifiedCommit, digest: bytes) -> bytes | None:
    """The file's bytes if it is the ratified commit. Checks the size first: the file is read under the owner's lock,
    and could be of any size."""
    if path.size > MAX_COMMIT_BYTES or (commit.content is None and path.size != commit.size):
        return None
    try:
        content = log.read(path.name)
    except FileNotFoundError:
        return None
    is_ratified = hashlib.sha256(content).digest() == digest
    return content if is_ratified or (commit.content is not None and same_actions(content, commit.content)) else None


def _content(table: TableRecord, log: LogStore, commit: RatifiedCommit, digest: bytes) -> bytes | None:
    """The bytes that were ratified; None if a client published them, and a cleanup deleted the file."""
    content = log.ratified_bytes(table.feature.staging_folder, commit)
    if content is not None and hashlib.sha256(content).digest() != digest:
        raise CorruptLogError(
            f"the bytes of version {commit.version} of {table.label} are not those that were ratified "
            f"(attempt {commit.attempt}, {commit.size} bytes then, {len(content)} now)",
            path=commit.file_name,
            version=commit.version,
        )
    return content
