"""Repair what is safe; on request, trust published files.

- complete or forget a promise, depending on the visible files;
- finish a backfill, and lift a halt whose cause is gone;
- on request, trust the files: adopt versions that are published above the ledger's latest, as after
the restore of an older ledger, and register staged tables that have a version 0. `<v>.json` proves that version v is
ratified. Commits that were ratified after the backup and never published cannot be recovered;
- remove staged files of decided versions, and temporary files, that are older than an age; of a table that was handed
back, only staged files, if the log at its location is still this table's;
- forget tables that were staged before that age and have no version, and remove their empty folders.
"""

import contextlib
from collections.abc import Callable, Sequence

import msgspec

from refimpl.care.dropping import check_own_log
from refimpl.care.verify import ORPHAN_AGE_MS, another_table, commits_of, orphaned
from refimpl.owner import decide
from refimpl.owner.backfill import backfill, finish
from refimpl.owner.local import LocalOwner
from refimpl.owner.records import TableRecord, unknown_attempt
from refimpl.protocol import log_path
from refimpl.protocol.commit_owner import TableState
from refimpl.protocol.commits import DirectProposal
from refimpl.protocol.errors import CorruptionError, DeltaError
from refimpl.protocol.log_path import LOG_FOLDER, Version
from refimpl.protocol.table_feature import CommitMode


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """One repair that was done, or (`done` false) failed."""

    table: str
    code: str
    message: str
    done: bool = True


def repair(owner: LocalOwner, *, orphan_age_ms: int = ORPHAN_AGE_MS, adopt_published: bool = False) -> list[Action]:
    """Repair every table; returns what was done. Run `verify` before and after.

    `orphan_age_ms`: the age from which left-over files and abandoned tables are removed. `adopt_published`: adopt the
    published versions above the ledger's latest.
    """
    repairs: list[Action] = []
    with owner.ledger.read() as view:
        staged = [table for table in view.tables() if table.state is TableState.STAGING and not table.promised]
    for table in staged:
        log, code = owner.log(table), "register"
        try:
            if adopt_published and not table.feature.engines_create and (log.published(0) or log.published_versions()):
                repairs += _register(owner, table, staged)
            code = "forget-abandoned"
            repairs += _forget_abandoned(owner, table.table_id, orphan_age_ms)
        except (DeltaError, OSError) as error:
            label = table.name or table.table_id
            repairs.append(Action(table=label, code=code, message=f"{table.location}: {error}", done=False))
    with owner.ledger.read() as view:
        everything = view.tables()
    for table in (table for table in everything if table.promised or table.state is TableState.ACTIVE):
        try:
            repairs += _repair_table(owner, table, orphan_age_ms, adopt_published)
        except OSError as error:
            label = table.name or table.table_id
            repairs.append(Action(table=label, code="unreadable", message=f"{table.location}: {error}", done=False))
    for table in (table for table in everything if table.state is TableState.HANDED_BACK):
        with contextlib.suppress(OSError, DeltaError):  # the owner needs nothing of it
            message = _remove_leftovers(owner, table.table_id, orphan_age_ms)
            if message is not None:
                repairs.append(Action(table=table.name or table.table_id, code="remove-leftovers", message=message))
    return repairs


def _register(owner: LocalOwner, table: TableRecord, staged: Sequence[TableRecord]) -> list[Action]:
    """Register a table that has versions: an older ledger was restored. Not if another table has its name, or may have
    had it. Raises `CorruptionError` if version 0 was cleaned up.

    Order: the same bytes become a new file, because the fsync of their writer may have failed; then the transaction.
    """
    label = table.name or table.table_id
    log, name = owner.log(table), log_path.commit(0)
    if not log.published(0):
        raise CorruptionError("version 0 was cleaned up after the ledger's backup; restore a newer backup")
    rivals = [rival for rival in staged if rival.name == table.name and owner.log(rival).published(0)]
    proposal = DirectProposal(attempt=unknown_attempt(table.table_id, 0), content=log.read(name))
    examined = decide.examine(table.feature, 0, proposal, proposal.content)
    flaw = decide.first_version_flaw(table, examined, owner.name)
    with owner.lock(), owner.changing(table.table_id) as (writer, table):
        if table.state is not TableState.STAGING:  # its creator has gone on
            return []
        holder = writer.table_named(label)
        problem = None if flaw is None else flaw.detail
        if holder is not None or len(rivals) > 1:
            others = ", ".join(str(rival.location) for rival in rivals if rival.key != table.key)
            problem = (
                f"the table at {others if holder is None else holder.location} has this name, too; drop one of them"
            )
        if problem is None:
            log.overwrite(name, proposal.content)
            writer.ratify(table, examined, CommitMode.DIRECT, owner.now, published=True)
            writer.set_attempts_lost(table)
            writer.set(table, state=TableState.ACTIVE)
    message = f"registered the table at {table.location}" if problem is None else f"{table.location}: {problem}"
    return [Action(table=label, code="register", message=message, done=problem is None)]


def _repair_table(owner: LocalOwner, table: TableRecord, orphan_age_ms: int, adopt_published: bool) -> list[Action]:
    label = table.name or table.table_id
    repairs: list[Action] = []
    with owner.ledger.read() as view:
        recorded = {commit.version for commit, _, _ in view.digests(table)}
        other = another_table(owner.log(table), recorded, view.protocol_and_metadata(table.key))
    if other is not None:
        return [Action(table=label, code="another-table", message=other, done=False)]
    steps: dict[str, Callable[[LocalOwner, str], str | None]] = {
        "settle-promise": _settle_promise,
        **({"adopt": _adopt} if adopt_published else {}),
        "finish-backfill": _finish_backfill,
        "remove-leftovers": lambda owner, table_id: _remove_leftovers(owner, table_id, orphan_age_ms),
    }
    for code, step in steps.items():
        try:
            message = step(owner, table.table_id)
        except (DeltaError, OSError) as error:
            repairs.append(Action(table=label, code=code, message=str(error), done=False))
            return repairs
        if message is not None:
            repairs.append(Action(table=label, code=code, message=message))
        with owner.ledger.read() as view:
            left = view.table(table.table_id)
        if left is None or left.state is TableState.DROPPED:  # a take-over or creation that was forgotten
            return repairs
    return repairs


def _forget_abandoned(owner: LocalOwner, table_id: str, age_ms: int) -> list[Action]:
    """Forget a table that was staged long ago and has no version: its creator gave up. Folders that are not empty
    stay, because the owner did not write their files.

    Order: the transaction, then the folders. After a crash in between, empty folders remain that no record names.
    """
    with owner.lock(), owner.changing(table_id) as (writer, table):
        log = owner.log(table)
        if table.state is not TableState.STAGING or owner.now - table.created_at < age_ms or log.published_versions():
            return []
        writer.set(table, state=TableState.DROPPED)
    files, folder = owner.environment.files, table.location / LOG_FOLDER
    for path in (folder / table.feature.staging_folder, folder, table.location):
        with contextlib.suppress(OSError):
            files.remove_directory(path)
    left = f"; the files in {table.location} stay" if files.stat(table.location) is not None else ""
    message = f"removed a staged table that was never registered{left}"
    return [Action(table=table.name or table_id, code="forget-abandoned", message=message)]


def _settle_promise(owner: LocalOwner, table_id: str) -> str | None:
    with owner.lock():
        with owner.ledger.read() as view:
            table = owner.required(view, table_id)
            promise = view.promise(table.key)
        if promise is None:
            return None
        owner.settle(table)
        with owner.ledger.read() as view:
            after = view.table(table_id)
    kept = after is not None and after.latest == promise.version
    return f"{'completed' if kept else 'forgot'} the {promise.kind.value} of version {promise.version}"


def _adopt(owner: LocalOwner, table_id: str) -> str | None:
    """Record published versions above the latest; stored lower versions are published first. The last of them may hand
    the table back, so no other process publishes meanwhile."""
    with owner.publishing(table_id), owner.lock():
        with owner.ledger.read() as view:
            first = owner.required(view, table_id).next
        with owner.changing(table_id) as (_, table):
            _refuse_hole(owner, table)
        finish(owner, table_id)
        with owner.changing(table_id) as (writer, table):
            after, flaw = owner.record_visible(writer, table)
            if flaw is not None:
                raise CorruptionError(f"{log_path.commit(after.next)} cannot be adopted: {flaw.detail}")
            if after.next == first:
                return None
            writer.set(table, halted=None)
            lost = writer.attempts_are_lost(table)
    done = f"adopted the published versions {first} to {after.latest}"
    done += "; the last of them gave the table back to the filesystem" if after.state is TableState.HANDED_BACK else ""
    return done + ("; some of its attempt ids are lost, and cannot be resolved" if lost else "")


def _refuse_hole(owner: LocalOwner, table: TableRecord) -> None:
    unknown = owner.unknown_published_version(table)
    if unknown is not None and unknown != table.next:
        raise CorruptionError(
            f"versions {table.next} to {unknown - 1} of {table.label} were cleaned up after the ledger's backup, "
            f"and their changes of protocol and metadata are lost; restore a newer backup",
            version=unknown,
        )


def _finish_backfill(owner: LocalOwner, table_id: str) -> str | None:
    with owner.ledger.read() as view:
        halted = owner.required(view, table_id).halted
    published = backfill(owner, table_id, None).published
    if halted is not None and _published_next(owner, table_id) is None:
        with owner.lock(), owner.changing(table_id) as (writer, table):
            writer.set(table, halted=None)
        return f"{_published(published)} and lifted the halt"
    return _published(published) if published else None


def _published(number: int) -> str:
    return f"published {number} {'commit' if number == 1 else 'commits'}"


def _published_next(owner: LocalOwner, table_id: str) -> Version | None:
    with owner.ledger.read() as view:
        following = owner.required(view, table_id).next
    return following if owner.log(owner.cached_record(table_id)).published(following) else None


def left_over(owner: LocalOwner) -> int:
    """The number of staged files of active tables that no reader needs. `repair` removes those that are old."""
    number = 0
    with owner.ledger.read() as view:
        active = [table for table in view.tables() if table.state is TableState.ACTIVE]
        commits = {table.key: commits_of(view, table) for table in active}
    for table in active:
        with contextlib.suppress(OSError):  # `repair` reports it
            number += sum(1 for _ in orphaned(owner.log(table), table, commits[table.key]))
    return number


def _remove_leftovers(owner: LocalOwner, table_id: str, age_ms: int) -> str | None:
    with owner.lock():
        with owner.ledger.read() as view:
            table = owner.required(view, table_id)
            if table.state is TableState.HANDED_BACK:
                check_own_log(owner, view, table)
            elif table.state is not TableState.ACTIVE:  # another table may have staged files in its folder by now
                return None
            commits = commits_of(view, table)
        log, oldest = owner.log(table), owner.now - age_ms
        names = [
            f"{table.feature.staging_folder}/{path.name}"
            for path in orphaned(log, table, commits)
            if path.modified < oldest
        ]
        if table.state is TableState.ACTIVE:
            names += [name for name, modified in log.temporaries() if modified < oldest]
        for name in names:
            log.delete(name)
        with contextlib.suppress(FileNotFoundError):
            log.sync()
        return f"removed {len(names)} old {'file' if len(names) == 1 else 'files'}" if names else None
