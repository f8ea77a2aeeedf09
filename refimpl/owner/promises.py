"""Commits whose commit point is a link: creation, direct publication, take-over, hand-back.

    1. one transaction stores the promise: the version that will be linked, with its bytes
    2. put-if-absent of `<v>.json`: the commit point, at the moment it becomes visible
    3. one transaction records the visible version, and deletes the promise

managed-commits, "Converting an existing filesystem based table": a two-phase commit; after the link
the owner must not reject it, and if another writer was first it deletes the promise. A crash between the
steps leaves a promise. Every later change of the table begins with `settle`, which does the missing steps.

In a table with direct commits, a link that this owner did not promise is a commit as well: `adopt`.
"""

from refimpl.owner import decide
from refimpl.owner.records import Examined, Promise, PromiseKind, TableRecord, unknown_attempt
from refimpl.owner.statements import Writer
from refimpl.protocol import log_path
from refimpl.protocol.commit_owner import TableState
from refimpl.protocol.commits import AttemptId, DirectProposal, RatifiedCommit, Rejected
from refimpl.protocol.log_path import Version
from refimpl.protocol.table_feature import CommitMode
from refimpl.storage.log_store import LogStore


def promise_of(kind: PromiseKind, examined: Examined, now: int) -> Promise:
    return Promise(
        kind=kind,
        version=examined.version,
        attempt=examined.proposal.attempt,
        content=examined.content,
        digest=examined.digest,
        in_commit_timestamp=examined.in_commit_timestamp,
        promised_at=now,
    )


def settle(writer: Writer, table: TableRecord, log: LogStore, now: int) -> None:
    """Complete the promise of an interrupted call, or forget it.

    The promise holds the bytes: a link that was not made yet, or that a power cut removed after another
    process saw it, is made now. The promise is forgotten if another writer's `<v>.json` was first, also if a
    cleanup of the log removed that file since, or if another table got the name of the new table meanwhile.
    (A hand-back that a cleanup removed was visible: the other writers continued the table because it was theirs.)
    """
    current, promise = writer.table_by_key(table.key), writer.promise(table.key)
    if current is None or promise is None:
        return
    table = current
    if promise.kind is PromiseKind.CREATE and _name_is_gone(writer, table):
        forget(writer, table, promise)
        writer.set_state(table, TableState.DROPPED)
    elif _published_now(promise, log):
        record(writer, table, promise, now)
    else:
        forget(writer, table, promise)


def adopt(writer: Writer, table: TableRecord, log: LogStore, now: int) -> tuple[TableRecord, Rejected | None]:
    """Record published versions above the latest, in order, as commits. The caller holds the lock, and every version up
    to the latest is published.

    Returns the table after that, and why the next published version, if there is one, cannot be recorded. `<v>.json`
    proves that version v is committed, by any writer: catalog-managed, "Published commit"; managed-commits, "Backfilled
    commit files". It stops at a version that takes the table from this owner: later files belong to the filesystem.

    Hazard: a visible file counts as complete. A writer must make it visible at once, by link or rename. If a writer
    creates `<v>.json` and then writes it line by line, this may record only the first lines.

    Durability order: the same bytes become a new file, because the fsync of their writer may have failed; then
    the transaction of the caller records it.
    """
    while table.state is TableState.ACTIVE and log.published(table.next):
        version, name = table.next, log_path.commit(table.next)
        content = log.read(name)
        attempt = _staged_attempt(log, table, version, content)
        unknown = unknown_attempt(table.table_id, version)
        proposal = DirectProposal(attempt=attempt or unknown, content=content)
        examined = decide.examine(table.feature, version, proposal, content)
        if examined.flaw is not None:
            return table, examined.flaw
        log.overwrite(name, content)
        leaves = decide.leaves_owner(table, examined, writer.protocol_and_metadata(table.key))
        writer.ratify(table, examined, CommitMode.DIRECT, now, published=True)
        if attempt is None:
            writer.set_attempts_lost(table)
        if leaves:
            writer.set_state(table, TableState.HANDED_BACK)
        current = writer.table_by_key(table.key)
        assert current is not None
        table = current
    return table, None


def _staged_attempt(log: LogStore, table: TableRecord, version: Version, content: bytes) -> AttemptId | None:
    """The attempt id of a published commit, if a staged file has the same bytes."""
    folder = table.feature.staging_folder
    for path in log.staged_listing(folder):
        if path.version == version and path.size == len(content) and log.read_staged(folder, path.name) == content:
            return path.uuid
    return None


def _published_now(promise: Promise, log: LogStore) -> bool:
    try:
        overtaken = not log.published(promise.version) and log.newest_version() > promise.version
        if overtaken and promise.kind is not PromiseKind.HAND_BACK:
            return False  # no reader would read it, and the next commits would follow it below the table's history
        return publish(promise, log)
    except FileNotFoundError:
        if promise.kind is PromiseKind.CREATE:  # the creator removed the folder
            return False
        raise  # perhaps the disk is not mounted, so the promise stays


def _name_is_gone(writer: Writer, table: TableRecord) -> bool:
    holder = writer.table_named(table.name or "")
    return holder is not None and holder.key != table.key


def publish(promise: Promise, log: LogStore) -> bool:
    """Publish the promised bytes as `<v>.json`, durably. False if another writer's file has this name, even an
    unfinished one: the file is that writer's commit."""
    return log.put_once(log_path.commit(promise.version), promise.content)


def forget(writer: Writer, table: TableRecord, promise: Promise) -> None:
    """Delete a promise whose commit did not land, and the table, if it was only to be taken over.

    Does nothing if another process has ended the promise: see `record`.
    """
    if writer.promise(table.key) != promise:
        return
    if promise.kind is PromiseKind.TAKE_OVER:
        writer.forget_table(table)
    else:
        writer.forget_promise(table)


def record(writer: Writer, table: TableRecord, promise: Promise, now: int) -> RatifiedCommit:
    """Record the promised commit, which is visible durably, as the version.

    Another process may have recorded it already, if it got the owner's lock because the lock file was unlinked.
    """
    table = writer.table_by_key(table.key) or table
    known = writer.attempt(table, promise.attempt)
    if known is not None and known.landed is not None:
        return known.landed
    proposal = DirectProposal(attempt=promise.attempt, content=promise.content)
    examined = decide.examine(table.feature, promise.version, proposal, promise.content)
    commit = writer.ratify(table, examined, CommitMode.DIRECT, now, published=True)
    writer.forget_promise(table)
    if promise.kind in (PromiseKind.CREATE, PromiseKind.TAKE_OVER):
        writer.set_state(table, TableState.ACTIVE)
    elif promise.kind is PromiseKind.HAND_BACK:
        writer.set_state(table, TableState.HANDED_BACK)
    return commit
