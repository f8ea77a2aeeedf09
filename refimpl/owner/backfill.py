"""Backfill: copy ratified commits to `<v>.json`, in order, and only then forget their bytes.

managed-commits, "Commit Backfills": sequential. catalog-managed, "Publishing Commits": in order;
the content of a ratified commit is immutable, so what is there already must be equal.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from typing import Final

from refimpl import log_path
from refimpl.actions import same_actions
from refimpl.commit_owner import Backfilled, TableState
from refimpl.commits import RatifiedCommit
from refimpl.errors import CorruptLogError, InvalidRequestError, OwnerUnavailableError
from refimpl.log_path import LogPath, Version
from refimpl.log_store import LogStore
from refimpl.owner import policy
from refimpl.owner.context import Context
from refimpl.owner.records import TableRecord
from refimpl.owner.statements import Writer
from refimpl.table_feature import CommitMode

BATCH: Final = 64
"""Commits published, or confirmed as published, under one hold of the lock; in between others get their turn."""


def backfill(context: Context, table_id: str, version: Version | None) -> Backfilled:
    """Publish up to `version`, or to the latest; see `CommitOwner.backfill_to_version`.

    Raises `CorruptLogError`, and halts the table, if a staged file is gone or altered or another
    `<v>.json` is in the way. An interruption anywhere is continued by the next call.
    """
    published = 0
    while True:
        with context.lock():
            through, count, done = _batch(context, table_id, version)
        published += count
        if done:
            return Backfilled(through=through, published=published)


def finish(context: Context, table_id: str) -> None:
    """Publish what is left. The caller holds the lock, so that nothing is added meanwhile."""
    done = False
    while not done:
        _, _, done = _batch(context, table_id, None)


def _batch(context: Context, table_id: str, version: Version | None) -> tuple[Version | None, int, bool]:
    with context.changing(table_id) as (writer, table):
        if table.state is TableState.DROPPED:
            raise InvalidRequestError(f"{table.label} was dropped: nothing is published there any more")
        if table.latest is None:
            return None, 0, True
        target = table.latest if version is None else min(version, table.latest)
        start = table.first_unbackfilled
        if start > target:
            return table.backfilled, 0, True
        end = min(target, start + BATCH - 1)
        # Durability order: each `publish` returns after `<v>.json` and its name are durable, the next
        # version starts after that, and the ledger forgets the bytes in the transaction that follows.
        problem: CorruptLogError | OSError | None = None
        through = table.backfilled
        log = context.log(table)
        for each in range(start, end + 1):
            try:
                log.publish(each, *_content(writer, table, log, each))
            except (CorruptLogError, OSError) as error:
                problem = error
                break
            through = each
        if through is not None and through >= start:
            writer.mark_published(table, through, context.now)
        if isinstance(problem, CorruptLogError):
            writer.halt(table, f"backfill of version {each} failed: {problem}")
    if isinstance(problem, OSError):
        raise OwnerUnavailableError(
            f"backfill of {table.label} stopped after version {through}: {problem}; "
            f"nothing is lost, and the next backfill goes on from there"
        ) from problem
    if problem is not None:
        raise problem
    return through, end - start + 1, end == target


def confirm_published(writer: Writer, table: TableRecord, log: LogStore, versions: Sequence[Version]) -> str | None:
    """Make versions durable that a client reports as published; or why one of them must not be forgotten: its
    `<v>.json` is not there, or holds something else. The caller holds the lock.

    catalog-managed, "Publishing Commits". Durability order: the same bytes become a new file, because an fsync of the
    client's may have failed; then the caller's transaction forgets them.
    """
    for version in versions:
        name = log_path.commit(version)
        found, details = log.find(name), writer.commit_details(table, version)
        if found is None:
            return f"version {version} of {table.label} is not published: {name} is not there; publish it, then report"
        content = None if details is None else _published_bytes(log, found, *details[:2])
        if content is None:
            return f"{name} of {table.label} does not hold what was ratified as version {version}; run verify"
        log.overwrite(name, content)
    return None


def _published_bytes(log: LogStore, found: LogPath, commit: RatifiedCommit, digest: bytes) -> bytes | None:
    """The file's bytes if it says what was ratified. Its size is looked at first: it is read under the owner's lock,
    and could be of any size."""
    if found.size > policy.MAX_COMMIT_BYTES or (commit.content is None and found.size != commit.size):
        return None
    try:
        content = log.read(found.name)
    except FileNotFoundError:
        return None
    is_ratified = hashlib.sha256(content).digest() == digest
    return content if is_ratified or (commit.content is not None and same_actions(content, commit.content)) else None


def _content(writer: Writer, table: TableRecord, log: LogStore, version: Version) -> tuple[bytes, CommitMode]:
    """The bytes that were ratified, and how they were proposed."""
    found = writer.commit_details(table, version)
    assert found is not None, f"the ledger of {table.label} lacks version {version}"
    commit, digest, _ = found
    content = commit.content if commit.content is not None else _stored_bytes(table, log, commit)
    if hashlib.sha256(content).digest() != digest:
        raise CorruptLogError(
            f"the bytes of version {version} of {table.label} are not those that were ratified "
            f"(attempt {commit.attempt}, {commit.size} bytes then, {len(content)} now)",
            path=commit.file_name,
            version=version,
        )
    return content, commit.commit_mode


def _stored_bytes(table: TableRecord, log: LogStore, commit: RatifiedCommit) -> bytes:
    if commit.file_name is not None:
        with contextlib.suppress(FileNotFoundError):
            return log.read_staged(table.feature.staging_folder, commit.file_name)
    try:  # adopted, or published by somebody who cleaned up
        return log.read(log_path.commit(commit.version))
    except FileNotFoundError:
        raise CorruptLogError(
            f"the staged file {commit.file_name} of {table.label} is gone and its version is not published",
            path=commit.file_name,
            version=commit.version,
        ) from None
