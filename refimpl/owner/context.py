"""What all parts of the owner share: the ledger, the lock, the effects, and the logs of its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from refimpl import log_path
from refimpl.commit_owner import ResolvedTable
from refimpl.commits import CommitsAnswer, RatifiedCommit
from refimpl.environment import Environment, HostLock
from refimpl.errors import OutcomeUnknown, OwnerUnavailableError, TableNotFoundError
from refimpl.log_path import FileKind, Version
from refimpl.log_store import LogStore
from refimpl.owner import promises
from refimpl.owner.ledger import Ledger
from refimpl.owner.records import Promise, TableRecord
from refimpl.owner.statements import View, Writer


class Context:
    """The shared parts of one owner in one process."""

    def __init__(self, warehouse: Path, ledger: Ledger, lock: HostLock, environment: Environment) -> None:
        self.warehouse = warehouse
        self.ledger = ledger
        self.lock = lock
        self.environment = environment
        self._places: dict[str, TableRecord] = {}
        self._logs: dict[str, LogStore] = {}

    @property
    def now(self) -> int:
        return self.environment.now()

    def log(self, table: TableRecord) -> LogStore:
        found = self._logs.get(table.table_id)
        if found is None:
            found = self._logs[table.table_id] = LogStore(table.location, self.environment)
        return found

    def place(self, table_id: str) -> TableRecord:
        """What never changes of a table (key, location, dialect); the rest of the record may be old."""
        found = self._places.get(table_id)
        if found is None:
            with self.ledger.read() as view:
                found = self.required(view, table_id)
            self._places[table_id] = found
        return found

    def required(self, view: View, table_id: str) -> TableRecord:
        found = view.table(table_id)
        if found is None:
            raise TableNotFoundError(f"this owner has no table with the id {table_id!r}", table_id=table_id)
        return found

    @contextmanager
    def changing(self, table_id: str) -> Iterator[tuple[Writer, TableRecord]]:
        """One write transaction on a table, under the lock that the caller holds.

        A promise that was left open is completed or forgotten first, in a transaction of its own.
        """
        with self.ledger.write() as writer:
            table = self.required(writer, table_id)
            if not table.promised:
                yield writer, table
                return
        with self.ledger.write() as writer:
            promises.settle(writer, table, self.log(table), self.now)
        with self.ledger.write() as writer:
            yield writer, self.required(writer, table_id)

    def keep(self, table: TableRecord, promise: Promise) -> RatifiedCommit | None:
        """Steps 2 and 3 of a promise that is stored: the commit, or None if somebody else's file was first.

        Raises `OutcomeUnknown`, and halts the table, if the disk failed and the file is visible all the
        same: a name whose fsync failed may be gone after a power cut.
        """
        log = self.log(table)
        failure: OSError | None = None
        try:
            log.put_if_absent(log_path.commit(promise.version), promise.content)
        except OSError as error:
            failure = error
        if failure is not None and log.published(promise.version):
            with self.ledger.write() as writer:
                writer.halt(table, f"the disk failed while version {promise.version} was published: {failure}")
            raise OutcomeUnknown(
                f"the disk failed while version {promise.version} of {table.label} was published ({failure}); "
                f"it is visible, but a power cut could still take it: run verify, then repair"
            ) from failure
        with self.ledger.write() as writer:
            promises.settle(writer, table, log, self.now)
            seen = writer.attempt(table, promise.attempt)
        if failure is not None:
            raise OwnerUnavailableError(
                f"version {promise.version} of {table.label} could not be published: {failure}; nothing was committed"
            ) from failure
        return None if seen is None else seen.landed

    def answer(self, table_id: str, start: Version | None = None, end: Version | None = None) -> CommitsAnswer:
        """The stored commits in the range and the latest ratified version, from one read state."""
        with self.ledger.read() as view:
            table = self.required(view, table_id)
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
        """The same for a record and answer of one read state. Not inside a transaction: it may read again."""
        return ResolvedTable(
            table_id=table.table_id,
            name=table.name,
            location=table.location,
            feature_name=table.feature.name,
            way=table.way,
            state=table.state,
            policy=table.policy,
            commits=self._with_what_is_visible(table, answer, None, None),
            halted=table.halted,
        )

    def _with_what_is_visible(
        self, table: TableRecord, answer: CommitsAnswer, start: Version | None, end: Version | None
    ) -> CommitsAnswer:
        """Never deny a commit that is visible as `<v>.json`.

        managed-commits and catalog-managed: that file proves that the version is committed. One above
        what the ledger knew is a newer commit (read again), a promise that was kept and not yet
        recorded, or the trace of a ledger that was restored from an old backup.
        """
        log = self.log(table)
        while log.published(
            following := 0 if answer.latest_ratified_version is None else answer.latest_ratified_version + 1
        ):
            with self.ledger.read() as view:
                newer = stored_commits(view, self.required(view, table.table_id), start, end)
            if newer.latest_ratified_version == answer.latest_ratified_version:
                return CommitsAnswer(commits=answer.commits, latest_ratified_version=contiguous_end(log, following))
            answer = newer
        return answer


def _next(latest: Version | None) -> Version:
    return 0 if latest is None else latest + 1


def stored_commits(view: View, table: TableRecord, start: Version | None, end: Version | None) -> CommitsAnswer:
    """What the ledger stores of a table, within the range."""
    if table.latest is None:
        return CommitsAnswer(commits=(), latest_ratified_version=None)
    low = max(table.first_unbackfilled, start or 0)
    high = table.latest if end is None else min(end, table.latest)
    commits = view.commits(table, low, high) if low <= high else ()
    return CommitsAnswer(commits=commits, latest_ratified_version=table.latest)


def contiguous_end(log: LogStore, first: Version) -> Version:
    """The last of the published versions `first`, `first` + 1, ... without a gap; `first` is published."""
    published = {path.version for path in log.listing() if path.kind is FileKind.COMMIT}
    last = first
    while last + 1 in published:
        last += 1
    return log_path.checked(last)
