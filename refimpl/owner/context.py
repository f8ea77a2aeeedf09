"""What the parts of the owner share: the ledger, the lock, the effects, and the logs of its tables."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from refimpl.owner import promises
from refimpl.owner.ledger import Ledger
from refimpl.owner.records import Promise, TableRecord
from refimpl.owner.statements import View, Writer
from refimpl.protocol import log_path
from refimpl.protocol.commit_owner import ResolvedTable, TableState, next_version
from refimpl.protocol.commits import CommitsAnswer, RatifiedCommit
from refimpl.protocol.errors import DeltaError, OutcomeUnknown, OwnerUnavailableError, TableNotFoundError
from refimpl.protocol.log_path import Version
from refimpl.protocol.table_feature import CommitMode
from refimpl.storage.environment import Environment, HostLock
from refimpl.storage.files import UncertainError
from refimpl.storage.log_store import LogStore

_SETTLED_MS: Final = 2000
"""A folder whose modification time is older than this has not changed since, even if its file system's clock is
coarse."""


class Context:
    """The shared parts of one owner in one process."""

    def __init__(self, warehouse: Path, ledger: Ledger, lock: HostLock, environment: Environment) -> None:
        self.warehouse = warehouse
        self.ledger = ledger
        self.lock = lock
        self.environment = environment
        self._records: dict[str, TableRecord] = {}
        self._logs: dict[Path, LogStore] = {}
        self._publishing: dict[str, HostLock] = {}
        self._listings: dict[Path, tuple[int, frozenset[Version]]] = {}

    @property
    def now(self) -> int:
        return self.environment.now()

    def log(self, table: TableRecord) -> LogStore:
        """Cached by location, not by id: after a rejected take-over, its id may be used again."""
        log = self._logs.get(table.location)
        if log is None:
            log = self._logs[table.location] = LogStore(table.location, self.environment)
        return log

    def publishing(self, table_id: str) -> AbstractContextManager[object]:
        """A table's publishing lock: only its holder publishes ratified commits of the table, or ends that (drop, hand
        back). So no commit is published late, when another table may be at the location.

        It is taken before the owner's lock: commits to this table and all others continue while it is held.
        """
        lock = self._publishing.get(table_id)
        if lock is None:
            lock = self._publishing[table_id] = self.environment.host_lock(self._publishing_path(table_id))
        return lock()

    def _publishing_path(self, table_id: str) -> Path:
        return self.ledger.path.parent / f"publishing-{self.cached_record(table_id).table_id}"

    def end_publishing(self, table_id: str) -> None:
        """Remove the lock file of a table whose purge is recorded, or that was dropped without a version; also the file
        of its queue. The caller holds the publishing lock and does nothing else under it afterwards: another process
        may create a new file of this name at once. A process that waits for the old file creates a new one, sees that
        the table is gone, and calls this. STORAGE.md#lock-file.
        """
        for path in (self._publishing_path(table_id), self.queue_path(table_id)):
            with contextlib.suppress(FileNotFoundError):
                self.environment.files.unlink(path)

    def queue_path(self, table_id: str) -> Path:
        """The file of the queue in which the table's writers take turns; it may be missing."""
        return self.ledger.path.parent / f"turns-{table_id}"

    def cached_record(self, table_id: str) -> TableRecord:
        """A cached record. Its key, location and table feature never change; its other fields may be outdated.

        A table whose take-over is only promised is not cached: the promise may be forgotten, and its id reused.
        """
        record = self._records.get(table_id)
        if record is None:
            with self.ledger.read() as view:
                record = self.required(view, table_id)
            if record.state is not TableState.TAKING_OVER:
                self._records[table_id] = record
        return record

    def required(self, view: View, table_id: str) -> TableRecord:
        table = view.table(table_id)
        if table is None:
            raise TableNotFoundError(f"unknown table id {table_id!r}", table_id=table_id)
        return table

    def changing(self, table_id: str) -> "_Change":
        """One write transaction on a table, under the lock that the caller holds.

        An open promise is completed or forgotten first, in a transaction of its own: a promise that is
        open while the lock is free was abandoned. A commit that is `unnoticed` is recorded first, too.
        """
        return _Change(self, table_id)

    def holder(self, name: str) -> TableRecord | None:
        """The table that has the name, after its open promise is settled. The caller holds the lock."""
        with self.ledger.read() as view:
            table = view.table_named(name)
        if table is None or not table.promised:
            return table
        self.settle(table)
        with self.ledger.read() as view:
            return view.table_named(name)

    def settle(self, table: TableRecord) -> None:
        """Complete or forget the table's open promise. The caller holds the lock.

        Raises `OwnerUnavailableError` if the disk fails; the promise stays open, and `interrupted` is its attempt.
        """
        with self.ledger.read() as view:
            promise = view.promise(table.key)
        try:
            with self.ledger.write() as writer:
                promises.settle(writer, table, self.log(table), self.now)
        except OSError as error:
            raise OwnerUnavailableError(
                f"an interrupted commit of {table.label} cannot be completed: {error}; try again",
                interrupted=None if promise is None else promise.attempt,
            ) from error

    def unnoticed(self, table: TableRecord) -> bool:
        """Whether a table with direct commits has a visible version above the latest.

        managed-commits, "Commit Protocol", choice 2, and catalog-managed, "Commit Protocol", option 3: such a commit
        has succeeded when its file is visible, regardless of when or whether the owner learns of it. In other tables
        the owner's record is the commit, and a writer that publishes by itself breaks the protocol. There the owner
        halts until an operator repairs the table: after a restore, its record may be older than the log.
        """
        direct = table.commit_mode is CommitMode.DIRECT and table.state is TableState.ACTIVE and table.halted is None
        return direct and self.log(table).published(table.next)

    def notice(self, table: TableRecord) -> None:
        """Record the visible versions of an `unnoticed` table; see `promises.adopt`. The caller holds the lock.

        Raises `OwnerUnavailableError` if the disk fails; the next call tries again, with a new file.
        """
        try:
            with self.ledger.write() as writer:
                promises.adopt(writer, table, self.log(table), self.now)
        except OSError as error:
            raise OwnerUnavailableError(
                f"version {table.next} of {table.label} is visible but cannot be recorded: {error}; try again"
            ) from error

    def keep(self, table: TableRecord, promise: Promise) -> RatifiedCommit | None:
        """Steps 2 and 3 of a stored promise: the commit, or None if another writer's file was first.

        Raises `OwnerUnavailableError` if the commit was not made and never will be; `OutcomeUnknown` whenever that
        is not certain. If the file is visible although the disk failed, the promise stays open: a name whose
        fsync failed may be gone after a power cut, and `settle` publishes the promised bytes again.
        """
        log = self.log(table)
        failure: OSError | None = None
        commit: RatifiedCommit | None = None
        try:
            try:
                mine = promises.publish(promise, log)
            except OSError as error:
                failure = error
                if log.published(promise.version):
                    raise
                if isinstance(error, UncertainError):  # perhaps it appears later
                    raise
            with self.ledger.write() as writer:
                if failure is None and mine:
                    commit = promises.record(writer, table, promise, self.now)
                else:
                    promises.forget(writer, table, promise)
        except (OSError, DeltaError) as error:
            raise self._unknown(table, promise, error) from error
        if failure is not None:
            raise OwnerUnavailableError(
                f"version {promise.version} of {table.label} could not be published: {failure}; nothing was committed"
            ) from failure
        return commit

    def _unknown(self, table: TableRecord, promise: Promise, error: Exception) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"version {promise.version} of {table.label} is promised, but its outcome could not be recorded "
            f"({error}); call attempt_outcome for {promise.attempt}",
            table_id=table.table_id,
            version=promise.version,
            attempt=promise.attempt,
        )

    def unknown_published_version(self, table: TableRecord) -> Version | None:
        """The lowest visible version above the latest one, if there is one.

        A cleanup of the log always keeps the newest published version. If that file is missing, the ledger is
        older than a cleanup: then the log is listed, because the next version may be missing as well.
        """
        log = self.log(table)
        if log.published(table.next):
            return table.next
        if table.backfilled is None or log.published(table.backfilled):
            return None
        return min((v for v in self._listed(log) if v >= table.next), default=None)

    def _listed(self, log: LogStore) -> frozenset[Version]:
        """The published versions; a listing is cached while the folder's modification time stays the same."""
        status = self.environment.files.stat(log.folder)
        changed = None if status is None else status.modified
        known = self._listings.get(log.location)
        if known is not None and known[0] == changed:
            return known[1]
        versions = frozenset(log.published_versions())
        if changed is not None and changed + _SETTLED_MS < self.now:
            self._listings[log.location] = (changed, versions)
        return versions

    def answer(self, table_id: str, start: Version | None = None, end: Version | None = None) -> CommitsAnswer:
        """The stored commits in the range and the latest ratified version, from one read state."""
        with self.ledger.read() as view:
            table = self.required(view, table_id)
            if table.state is TableState.DROPPED:
                raise TableNotFoundError(f"{table.label} was dropped", table_id=table_id)
            answer = stored_commits(view, table, start, end)
        return self._with_what_is_visible(table, answer, start, end)

    def resolve(self, find: Callable[[View], TableRecord]) -> ResolvedTable:
        """The table that `find` finds, as its clients see it, from one read state."""
        with self.ledger.read() as view:
            table = find(view)
            answer = stored_commits(view, table, None, None)
        return self.resolved(table, answer)

    def resolve_id(self, table_id: str) -> ResolvedTable:
        return self.resolve(lambda view: self.required(view, table_id))

    def resolved(self, table: TableRecord, answer: CommitsAnswer) -> ResolvedTable:
        """`resolve` for a record and answer of one read state. Not inside a transaction: it may read again."""
        return ResolvedTable(
            table_id=table.table_id,
            name=table.name,
            location=table.location,
            feature_name=table.feature.name,
            commit_mode=table.commit_mode,
            state=table.state,
            policy=table.policy,
            commits=self._with_what_is_visible(table, answer, None, None),
            halted=table.halted,
        )

    def _with_what_is_visible(
        self, table: TableRecord, answer: CommitsAnswer, start: Version | None, end: Version | None
    ) -> CommitsAnswer:
        """Never deny a commit that is visible as `<v>.json`.

        managed-commits and catalog-managed: that file proves that the version is committed. A version above
        the ledger's latest is a newer commit (read again), a kept promise that is not recorded yet, or the
        result of restoring an old ledger.
        """
        if table.state in (TableState.DROPPED, TableState.HANDED_BACK):  # later versions belong to other writers
            return answer
        log = self.log(table)
        try:
            while log.published(following := next_version(answer.latest_ratified_version)):
                with self.ledger.read() as view:
                    newer = stored_commits(view, self.required(view, table.table_id), start, end)
                if newer.latest_ratified_version == answer.latest_ratified_version:
                    return CommitsAnswer(commits=answer.commits, latest_ratified_version=contiguous_end(log, following))
                answer = newer
            unknown = self.unknown_published_version(table) if table.state is TableState.ACTIVE else None
            if unknown is not None and unknown > next_version(answer.latest_ratified_version):
                return CommitsAnswer(commits=answer.commits, latest_ratified_version=contiguous_end(log, unknown))
        except OSError as error:
            raise OwnerUnavailableError(f"cannot read the log of {table.label}: {error}") from error
        return answer


class _Change:
    """The context manager of `Context.changing`. A class: every commit uses it, and a generator costs more."""

    __slots__ = ("_context", "_table_id", "_transaction")

    def __init__(self, context: Context, table_id: str) -> None:
        self._context = context
        self._table_id = table_id

    def __enter__(self) -> tuple[Writer, TableRecord]:
        writer, table, unnoticed = self._begin()
        if table.promised:
            self._transaction.__exit__(None, None, None)
            self._context.settle(table)
            writer, table, unnoticed = self._begin()
        if unnoticed:
            self._transaction.__exit__(None, None, None)
            self._context.notice(table)
            writer, table, _ = self._begin()
        return writer, table

    def _begin(self) -> tuple[Writer, TableRecord, bool]:
        """The transaction, the table in it, and whether the table is `unnoticed`. An error ends the transaction."""
        self._transaction = self._context.ledger.write()
        writer = self._transaction.__enter__()
        try:
            table = self._context.required(writer, self._table_id)
            return writer, table, self._context.unnoticed(table)
        except BaseException as error:
            self._transaction.__exit__(type(error), error, None)
            raise

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._transaction.__exit__(kind, error, trace)


@contextmanager
def disk_errors(doing: str) -> Iterator[None]:
    """Raises `OwnerUnavailableError` for a failing disk. Only around calls that commit no version and can be
    repeated."""
    try:
        yield
    except (OSError, OutcomeUnknown) as error:
        raise OwnerUnavailableError(f"cannot {doing}: {error}; try again") from error


def stored_commits(view: View, table: TableRecord, start: Version | None, end: Version | None) -> CommitsAnswer:
    """The commits of a table that the ledger stores, within the range."""
    if table.latest is None:
        return CommitsAnswer(commits=(), latest_ratified_version=None)
    low = max(table.first_unbackfilled, start or 0)
    high = table.latest if end is None else min(end, table.latest)
    commits = view.commits(table, low, high) if low <= high else ()
    return CommitsAnswer(commits=commits, latest_ratified_version=table.latest)


def contiguous_end(log: LogStore, first: Version) -> Version:
    """The last of the published versions `first`, `first` + 1, ... without a gap; `first` is published."""
    published = log.published_versions()
    last = first
    while last + 1 in published:
        last += 1
    return log_path.checked(last)
