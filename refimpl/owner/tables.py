"""The tables of an owner in one process: their records in the ledger, their logs, and the promises that connect both.

A promise is a commit whose commit point is a link: creation, direct publication, take-over, hand-back.

    1. one transaction stores the promise: the version that will be linked, with its bytes
    2. put-if-absent of `<v>.json`: the commit point, at the moment it becomes visible
    3. one transaction records the visible version, and deletes the promise

managed-commits, "Converting an existing filesystem based table": a two-phase commit; after the link the owner must not
reject it, and if another writer was first it deletes the promise. A crash between the steps leaves a promise. Every
later change of the table begins with `settle`, which does the missing steps.

In a table with direct commits, a link that this owner did not promise is a commit as well: `record_visible`.
"""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from refimpl.owner import decide
from refimpl.owner.ledger import Ledger
from refimpl.owner.records import Examined, Promise, PromiseKind, TableRecord, unknown_attempt
from refimpl.owner.statements import View, Writer
from refimpl.protocol import log_path
from refimpl.protocol.commit_owner import ResolvedTable, TableState, next_version
from refimpl.protocol.commits import AttemptId, CommitsAnswer, DirectProposal, Ratified, RatifiedCommit, Rejected
from refimpl.protocol.errors import DeltaError, OutcomeUnknown, OwnerUnavailableError, TableNotFoundError
from refimpl.protocol.log_path import Version
from refimpl.protocol.table_feature import CommitMode
from refimpl.storage.environment import Environment, HostLock
from refimpl.storage.files import UncertainError
from refimpl.storage.locations import OWNER_FOLDER
from refimpl.storage.log_store import LogStore

LOCK_FILE: Final = "lock"
DEFAULT_NAME: Final = "refimpl"


Decided = TypeVar("Decided")
Judge = Callable[[Writer, TableRecord, Examined], decide.Ratify | Decided]


class Tables:
    """What all requests to an owner share: the ledger, the owner's lock, the effects, and the logs of its tables."""

    name = DEFAULT_NAME
    conf: Mapping[str, str] = {}

    def __init__(self, warehouse: Path, environment: Environment, ledger: type[Ledger] = Ledger) -> None:
        folder = warehouse / OWNER_FOLDER
        self.warehouse = warehouse
        self.environment = environment
        self.lock = environment.host_lock(folder / LOCK_FILE)
        self.ledger = ledger(folder, self.lock, environment)
        self._records: dict[str, TableRecord] = {}
        self._logs: dict[Path, LogStore] = {}
        self._publishing: dict[str, HostLock] = {}

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
            path = self.publishing_path(self.cached_record(table_id).table_id)
            lock = self._publishing[table_id] = self.environment.host_lock(path)
        return lock()

    def publishing_path(self, table_id: str) -> Path:
        return self.ledger.path.parent / f"publishing-{table_id}"

    def end_publishing(self, table_id: str) -> None:
        """Remove the lock file of a table that was dropped without a version. The caller holds the publishing lock and
        does nothing else under it afterwards: another process may create a new file of this name at once. A process
        that waits for the old file creates a new one, sees that the table is gone, and calls this.
        STORAGE.md#lock-file.
        """
        with suppress(FileNotFoundError):
            self.environment.files.unlink(self.publishing_path(table_id))

    # Records

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

    def holder(self, name: str) -> TableRecord | None:
        """The table that has the name, after its open promise is settled. The caller holds the lock."""
        with self.ledger.read() as view:
            table = view.table_named(name)
        if table is None or not table.promised:
            return table
        self.settle(table)
        with self.ledger.read() as view:
            return view.table_named(name)

    def changing(self, table_id: str) -> "_Change":
        """One write transaction on a table, under the lock that the caller holds.

        An open promise is completed or forgotten first, in a transaction of its own: a promise that is open while the
        lock is free was abandoned. A visible commit that is not recorded is recorded first, too.
        """
        return _Change(self, table_id)

    def land(self, table_id: str, decision: Callable[[Writer, TableRecord], Decided]) -> Decided:
        """`changing` for one function: what it returns."""
        with self.changing(table_id) as (writer, table):
            return decision(writer, table)

    def begin_change(self, table_id: str) -> tuple[Writer, TableRecord]:
        """Begin the transaction of `changing`. An error ends it."""
        settled = caught_up = False
        while True:
            writer = self.ledger.begin()
            try:
                table = self.required(writer, table_id)
                promised = table.promised and not settled
                if not promised and (caught_up or not self.is_behind(table)):
                    return writer, table
            except BaseException as error:
                self.ledger.end(error)
                raise
            self.ledger.end(None)
            if promised:
                self.settle(table)
            else:
                self._catch_up(table)
            settled, caught_up = True, not promised

    # Promises

    def publish(
        self, table_id: str, kind: PromiseKind, examined: Examined, judge: Judge[Decided]
    ) -> Ratified | Decided:
        """Judge a proposal, then promise and keep it if it wins; if another file was first, judge it again."""
        with self.changing(table_id) as (writer, table):
            verdict = judge(writer, table, examined)
            if not isinstance(verdict, decide.Ratify):
                return verdict
            promise = self.promise(writer, table, kind, examined)
        commit = self.keep(table, promise)
        if commit is not None:
            return Ratified(commit=commit)
        with self.changing(table_id) as (writer, table):
            verdict = judge(writer, table, examined)
        if isinstance(verdict, decide.Ratify):
            raise OwnerUnavailableError(f"the log of {table.label} changed during the commit; propose again")
        return verdict

    def promise(self, writer: Writer, table: TableRecord, kind: PromiseKind, examined: Examined) -> Promise:
        """Step 1: the promise to make the proposal visible."""
        promise = Promise(
            kind=kind,
            version=examined.version,
            attempt=examined.proposal.attempt,
            content=examined.content,
            digest=examined.digest,
            in_commit_timestamp=examined.in_commit_timestamp,
            promised_at=self.now,
        )
        writer.add_promise(table, promise)
        return promise

    def keep(self, table: TableRecord, promise: Promise) -> RatifiedCommit | None:
        """Steps 2 and 3 of a stored promise: the commit, or None if another writer's file was first.

        Raises `OwnerUnavailableError` if the commit was not made and never will be; `OutcomeUnknown` whenever that
        is not certain. If the file is visible although the disk failed, the promise stays open: a name whose
        fsync failed may be gone after a power cut, and `settle` publishes the promised bytes again.
        """
        failure: OSError | None = None
        commit: RatifiedCommit | None = None
        try:
            try:
                mine = self.link(table, promise)
            except OSError as error:
                failure = error
                if self.log(table).published(promise.version):
                    raise
                if isinstance(error, UncertainError):  # perhaps it appears later
                    raise
            with self.ledger.write() as writer:
                if failure is None and mine:
                    commit = self.record(writer, table, promise)
                else:
                    self.forget(writer, table, promise)
        except (OSError, DeltaError) as error:
            raise OutcomeUnknown(
                f"version {promise.version} of {table.label} is promised, but its outcome could not be recorded "
                f"({error}); call attempt_outcome for {promise.attempt}",
                table_id=table.table_id,
                version=promise.version,
                attempt=promise.attempt,
            ) from error
        if failure is not None:
            raise OwnerUnavailableError(
                f"version {promise.version} of {table.label} could not be published: {failure}; nothing was committed"
            ) from failure
        return commit

    def link(self, table: TableRecord, promise: Promise) -> bool:
        """Publish the promised bytes as `<v>.json`, durably. False if another writer's file has this name, even an
        unfinished one: the file is that writer's commit."""
        return self.log(table).put_once(log_path.commit(promise.version), promise.content)

    def record(self, writer: Writer, table: TableRecord, promise: Promise) -> RatifiedCommit:
        """Record the promised commit, which is visible durably, as the version.

        Another process may have recorded it already, if it got the owner's lock because the lock file was unlinked.
        """
        table = writer.table_by_key(table.key) or table
        known = writer.attempt(table, promise.attempt)
        if known is not None and known.landed is not None:
            return known.landed
        proposal = DirectProposal(attempt=promise.attempt, content=promise.content)
        examined = decide.examine(table.feature, promise.version, proposal, promise.content)
        commit = writer.ratify(table, examined, CommitMode.DIRECT, self.now, published=True)
        writer.forget_promise(table)
        if promise.kind in (PromiseKind.CREATE, PromiseKind.TAKE_OVER):
            writer.set(table, state=TableState.ACTIVE)
        elif promise.kind is PromiseKind.HAND_BACK:
            writer.set(table, state=TableState.HANDED_BACK)
        return commit

    def forget(self, writer: Writer, table: TableRecord, promise: Promise) -> None:
        """Delete a promise whose commit did not land, and the table, if it was only to be taken over.

        Does nothing if another process has ended the promise: see `record`.
        """
        if writer.promise(table.key) != promise:
            return
        if promise.kind is PromiseKind.TAKE_OVER:
            writer.forget_table(table)
        else:
            writer.forget_promise(table)

    def settle(self, table: TableRecord) -> None:
        """Complete the promise of an interrupted call, or forget it. The caller holds the lock.

        The promise holds the bytes: a link that was not made yet, or that a power cut removed after another process
        saw it, is made now. The promise is forgotten if another writer's `<v>.json` was first, also if a cleanup of the
        log removed that file since, or if another table got the name of the new table meanwhile. (A hand-back that a
        cleanup removed was visible: the other writers continued the table because it was theirs.)

        Raises `OwnerUnavailableError` if the disk fails; the promise stays open, and `interrupted` is its attempt.
        """
        promise = None
        try:
            with self.ledger.write() as writer:
                current, promise = writer.table_by_key(table.key), writer.promise(table.key)
                if current is not None and promise is not None:
                    self.complete(writer, current, promise)
        except OSError as error:
            raise OwnerUnavailableError(
                f"an interrupted commit of {table.label} cannot be completed: {error}; try again",
                interrupted=None if promise is None else promise.attempt,
            ) from error

    def complete(self, writer: Writer, table: TableRecord, promise: Promise) -> None:
        """Complete or forget the promise: see `settle`."""
        holder = writer.table_named(table.name or "") if promise.kind is PromiseKind.CREATE else None
        name_is_gone = holder is not None and holder.key != table.key
        if not name_is_gone and self.link_again(table, promise):
            self.record(writer, table, promise)
        else:
            self.forget(writer, table, promise)
        if name_is_gone:
            writer.set(table, state=TableState.DROPPED)

    def link_again(self, table: TableRecord, promise: Promise) -> bool:
        """`link` for an interrupted call. False also if the log went on without the promised version."""
        log = self.log(table)
        try:
            overtaken = not log.published(promise.version) and log.newest_version() > promise.version
            if overtaken and promise.kind is not PromiseKind.HAND_BACK:
                return False  # no reader would read it, and the next commits would follow it below the table's history
            return self.link(table, promise)
        except FileNotFoundError:
            if promise.kind is PromiseKind.CREATE:  # the creator removed the folder
                return False
            raise  # perhaps the disk is not mounted, so the promise stays

    # Commits that are visible before they are recorded

    def is_behind(self, table: TableRecord) -> bool:
        """Whether a table with direct commits has a visible version above the latest.

        managed-commits, "Commit Protocol", choice 2, and catalog-managed, "Commit Protocol", option 3: such a commit
        has succeeded when its file is visible, regardless of when or whether the owner learns of it. In other tables
        the owner's record is the commit, and a writer that publishes by itself breaks the protocol. There the owner
        halts until an operator repairs the table: after a restore, its record may be older than the log.
        """
        direct = table.commit_mode is CommitMode.DIRECT and table.state is TableState.ACTIVE and table.halted is None
        return direct and self.log(table).published(table.next)

    def _catch_up(self, table: TableRecord) -> None:
        """Raises `OwnerUnavailableError` if the disk fails; the next call tries again, with a new file."""
        try:
            with self.ledger.write() as writer:
                self.record_visible(writer, table)
        except OSError as error:
            raise OwnerUnavailableError(
                f"version {table.next} of {table.label} is visible but cannot be recorded: {error}; try again"
            ) from error

    def record_visible(self, writer: Writer, table: TableRecord) -> tuple[TableRecord, Rejected | None]:
        """Record published versions above the latest, in order, as commits. The caller holds the lock, and every
        version up to the latest is published.

        Returns the table after that, and why the next published version, if there is one, cannot be recorded.
        `<v>.json` proves that version v is committed, by any writer: catalog-managed, "Published commit";
        managed-commits, "Backfilled commit files". It stops at a version that takes the table from this owner: later
        files belong to the filesystem.

        Hazard: a visible file counts as complete. A writer must make it visible at once, by link or rename. If a writer
        creates `<v>.json` and then writes it line by line, this may record only the first lines.

        Durability order: the same bytes become a new file, because the fsync of their writer may have failed; then
        the transaction of the caller records it.
        """
        log = self.log(table)
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
            writer.ratify(table, examined, CommitMode.DIRECT, self.now, published=True)
            if attempt is None:
                writer.set_attempts_lost(table)
            if leaves:
                writer.set(table, state=TableState.HANDED_BACK)
            table = self.required(writer, table.table_id)
        return table, None

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
        return min((v for v in self.listed(log) if v >= table.next), default=None)

    def listed(self, log: LogStore) -> Collection[Version]:
        """The published versions."""
        return log.published_versions()

    # What readers see

    def look_up_table(self, find: Callable[[View], TableRecord]) -> ResolvedTable:
        """The table that `find` finds, as its clients see it, from one read state."""
        with self.ledger.read() as view:
            table = find(view)
            answer = stored_commits(view, table, None, None)
        return self.resolved(table, answer)

    def resolve_id(self, table_id: str) -> ResolvedTable:
        return self.look_up_table(lambda view: self.required(view, table_id))

    def resolved(self, table: TableRecord, answer: CommitsAnswer) -> ResolvedTable:
        """`look_up_table` for a record and answer of one read state. Not inside a transaction: it may read again."""
        return ResolvedTable(
            table_id=table.table_id,
            name=table.name,
            location=table.location,
            feature_name=table.feature.name,
            commit_mode=table.commit_mode,
            state=table.state,
            policy=table.policy,
            commits=self.with_visible(table, answer, None, None),
            halted=table.halted,
        )

    def with_visible(
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
    """The context manager of `Tables.changing`; not a generator, see `Ledger.write`."""

    def __init__(self, tables: Tables, table_id: str) -> None:
        self._tables = tables
        self._table_id = table_id

    def __enter__(self) -> tuple[Writer, TableRecord]:
        return self._tables.begin_change(self._table_id)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._tables.ledger.end(error)


def _staged_attempt(log: LogStore, table: TableRecord, version: Version, content: bytes) -> AttemptId | None:
    """The attempt id of a published commit, if a staged file has the same bytes."""
    folder = table.feature.staging_folder
    for path in log.staged_listing(folder):
        if path.version == version and path.size == len(content) and log.read_staged(folder, path.name) == content:
            return path.uuid
    return None


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
    return log_path.checked(next(last for last in itertools.count(first) if last + 1 not in published))


@contextmanager
def disk_errors(doing: str) -> Iterator[None]:
    """Raises `OwnerUnavailableError` for a failing disk. Only around calls that commit no version and can be
    repeated."""
    try:
        yield
    except (OSError, OutcomeUnknown) as error:
        raise OwnerUnavailableError(f"cannot {doing}: {error}; try again") from error


@contextmanager
def commit_errors(doing: str, table_id: str | None, version: Version, attempt: AttemptId) -> Iterator[None]:
    """The same around a request that commits: see `commit_error`."""
    try:
        yield
    except (OSError, OutcomeUnknown, OwnerUnavailableError) as error:
        raise commit_error(error, doing, table_id, version, attempt) from error


def commit_error(
    error: OSError | DeltaError, doing: str, table_id: str | None, version: Version, attempt: AttemptId
) -> DeltaError:
    """The error to raise. An unknown outcome names the attempt. The outcome of a repeated attempt is unknown, too, if
    its interrupted commit cannot be completed now. In all other cases nothing landed."""
    if isinstance(error, OSError):
        return OwnerUnavailableError(f"cannot {doing}: {error}; nothing was committed")
    if isinstance(error, OwnerUnavailableError) and error.facts.get("interrupted") != attempt:
        return type(error)(error.message, **error.facts)  # a group of proposals shares its error
    facts = {"table_id": table_id, "version": version, "attempt": attempt, **error.facts}
    return OutcomeUnknown(error.message, **facts)
