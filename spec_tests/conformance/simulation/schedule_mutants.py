"""Mutants that only a schedule exposes: each is correct while one client runs at a time.

Each mutant moves or removes one step: a lock, the bounds of a transaction, the order of two effects.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

from refimpl.client import transaction
from refimpl.log import loading
from refimpl.log.log_reading import Loaded, LogReader
from refimpl.log.log_segment import build
from refimpl.log.table_state import ReplayedState
from refimpl.owner import decide, local
from refimpl.owner.local import LocalOwner
from refimpl.owner.records import Promise, TableRecord
from refimpl.owner.statements import Writer
from refimpl.owner.tables import Tables, stored_commits
from refimpl.protocol.commit_owner import Backfilled
from refimpl.protocol.commits import AttemptOutcome, CommitsAnswer, Landed, NotLanded, RatifiedCommit
from refimpl.protocol.log_path import Version
from refimpl.served.group import Groups, Waiting
from refimpl.storage.environment import Environment
from spec_tests.conformance.simulation.hunting import ScheduleMutant, Wrapped, connected, recorded, with_lock

SCHEDULE_MUTANTS: Final[list[ScheduleMutant]] = []
schedule = partial(recorded, SCHEDULE_MUTANTS, ScheduleMutant)


def _recorded(tables: Tables, writer: Writer, table: TableRecord, promise: Promise) -> RatifiedCommit:
    """Record a promise without a check whether another process has recorded it."""
    with mock.patch.object(writer, "attempt", lambda *_: None):
        return _record(tables, writer, table, promise)


_record: Final = Tables.record


def trusts_the_lock() -> AbstractContextManager[Any]:
    """Record a promise as if no other process could have recorded it. That is true only under the lock."""
    return mock.patch.object(Tables, "record", _recorded)


@schedule("change", "two-writers[managedCommit,direct]", "PROFILE-CORE-03", patch=trusts_the_lock)
def lock_not_taken(environment: Environment) -> Environment:
    """The owner's lock is not taken: the promise of a running process counts as abandoned."""
    return with_lock(environment, lambda _take: contextlib.nullcontext)


@schedule("change", "two-writers[catalogManaged,direct]", "PROFILE-CORE-03", patch=trusts_the_lock)
def lock_released_early(environment: Environment) -> Environment:
    """The first commit releases the lock, before the promised version is linked."""
    held: list[contextlib.ExitStack] = []

    class Frees(Wrapped):
        def execute(self, statement: str, *values: Any) -> Any:
            result = self.wrapped.execute(statement, *values)
            if statement == "COMMIT" and held:
                held[-1].close()
            return result

    def freed(take: Callable[[], Any]) -> Callable[[], AbstractContextManager[Any]]:
        @contextlib.contextmanager
        def lock() -> Iterator[None]:
            with contextlib.ExitStack() as stack:
                stack.enter_context(take())
                held.append(stack)
                try:
                    yield
                finally:
                    held.pop()

        return lock

    return with_lock(connected(environment, Frees), freed)


@schedule("change", "take-over[managedCommit,staged]", "MC-COMMIT-02")
def asks_then_replaces(environment: Environment) -> Environment:
    """Put-if-absent is a check and a rename: a filesystem writer's version is overwritten."""

    class Files(Wrapped):
        def link(self, source: Path, target: Path) -> None:
            if self.wrapped.exists(str(target)):
                raise FileExistsError(str(target))
            self.wrapped.replace(source, target)

    return replace(environment, files=Files(environment.files))


# Edits of the owner


class _LastOneStays(Wrapped):
    """A ledger in which a repeated insert of a version replaces the earlier row."""

    def execute(self, statement: str, *values: Any) -> Any:
        return self.wrapped.execute(statement.replace("INSERT INTO commits", "INSERT OR REPLACE INTO commits"), *values)


@schedule("patch", "looker[managedCommit,direct]", "MC-READ-06", Tables, "with_visible")
def answers_from_the_ledger_alone(
    _self: Tables, _table: TableRecord, answer: CommitsAnswer, *_range: Version | None
) -> CommitsAnswer:
    """A visible commit is not reported until the ledger knows it."""
    return answer


@schedule("patch", "delayed[managedCommit,staged]", "PROFILE-OUTCOME-02", LocalOwner, "attempt_outcome")
def resolves_from_an_old_look(owner: LocalOwner, table_id: str, attempt: str) -> AttemptOutcome:
    """The owner reads the ledger before it takes the lock, and records that old state under the lock."""
    with owner.ledger.read() as view:
        seen = view.attempt(owner.required(view, table_id), attempt)
    if seen is None:
        with owner.lock(), owner.changing(table_id) as (writer, _):
            writer.add_tombstone(table_id, attempt, owner.now)
    return NotLanded() if seen is None or seen.landed is None else Landed(commit=seen.landed)


def _contents(tables: Tables, table_id: str, version: Version | None) -> tuple[TableRecord, list[tuple[int, bytes]]]:
    """The versions to be published and their content, read from the ledger in one transaction."""
    with tables.ledger.read() as view:
        table = tables.required(view, table_id)
        latest = -1 if table.latest is None else table.latest
        wanted = range(table.first_unbackfilled, min(latest, latest if version is None else version) + 1)
        stored = [(number, view.commit_details(table, number)) for number in wanted]
    log, contents = tables.log(table), []
    for number, details in stored:
        assert details is not None
        content = log.ratified_bytes(table.feature.staging_folder, details[0])
        assert content is not None
        contents.append((number, content))
    return table, contents


@schedule("patch", "backfiller[managedCommit,staged]", "MC-FILES-06", local, "backfill")
def forgets_before_it_publishes(tables: Tables, table_id: str, version: Version | None) -> Backfilled:
    """The ledger forgets the bytes, and then the owner publishes them."""
    with tables.lock():
        table, contents = _contents(tables, table_id, version)
        if contents:
            with tables.ledger.write() as writer:
                writer.mark_published(table, contents[-1][0], tables.now)
        for number, content in contents:
            tables.log(table).publish(number, content)
    return Backfilled(through=table.backfilled, published=len(contents))


@schedule("patch", "two-backfillers[managedCommit,staged]", "MC-BACKFILL-03", local, "backfill")
def publishes_the_newest_first(tables: Tables, table_id: str, version: Version | None) -> Backfilled:
    """A backfill makes the last version visible before the versions below it."""
    with tables.lock():
        table, contents = _contents(tables, table_id, version)
        for number, content in reversed(contents):
            tables.log(table).publish(number, content)
        if contents:
            with tables.ledger.write() as writer:
                writer.mark_published(table, contents[-1][0], tables.now)
    return Backfilled(through=table.backfilled, published=len(contents))


@schedule("change", "two-writers[catalogManaged,inline]", "CM-COMMIT-08")
def decided_outside_the_transaction(environment: Environment) -> Environment:
    """A transaction begins with its first change. Its decision uses rows that were read before."""

    class Late(_LastOneStays):
        _wanted = False

        def execute(self, statement: str, *values: Any) -> Any:
            if statement == "BEGIN IMMEDIATE":
                self._wanted = True
                return None
            if statement in ("COMMIT", "ROLLBACK") and self._wanted:
                self._wanted = False
                return None
            if self._wanted and statement.lstrip().startswith(("INSERT", "UPDATE", "DELETE")):
                self._wanted = False
                self.wrapped.execute("BEGIN IMMEDIATE")
            return super().execute(statement, *values)

    return lock_not_taken(connected(environment, Late))


@schedule("change", "two-backfillers[catalogManaged,inline]", "CM-PUBLISH-03")
def publishes_in_place(environment: Environment) -> Environment:
    """A published file has its name before it has its content."""

    class Files(Wrapped):
        def link(self, source: Path, target: Path) -> None:
            content = self.wrapped.read(source)
            with self.wrapped.create(target) as file:
                file.write(content)

    return replace(environment, files=Files(environment.files))


@schedule("patch", "backfiller[catalogManaged,inline]", "CM-STORE-09", LocalOwner, "get_commits")
def latest_by_a_second_look(
    tables: Tables, table_id: str, start: Version | None = None, end: Version | None = None
) -> CommitsAnswer:
    """The commits and the latest version come from two reads of the ledger."""
    with tables.ledger.read() as view:
        commits = stored_commits(view, tables.required(view, table_id), start, end).commits
    with tables.ledger.read() as view:
        return CommitsAnswer(commits=commits, latest_ratified_version=tables.required(view, table_id).latest)


@schedule("patch", "backfiller[catalogManaged,direct]", "CM-STORE-09", Tables, "keep")
def recorded_before_it_is_visible(tables: Tables, table: TableRecord, promise: Promise) -> RatifiedCommit | None:
    """The ledger records a promise as kept, and then the owner links its file."""
    with tables.ledger.write() as writer:
        commit = tables.record(writer, table, promise)
    tables.link(table, promise)
    return commit


@schedule("patch", "take-over[catalogManaged,staged]", "CM-COMMIT-08", Tables, "link")
def take_over_without_a_check(tables: Tables, table: TableRecord, promise: Promise) -> bool:
    """An existing version counts as the promised one, whether or not a filesystem writer linked it."""
    tables.log(table).put_if_absent(f"{promise.version:020}.json", promise.content)
    return True


@schedule("patch", "reader[catalogManaged,inline]", "PROFILE-CLIENT-01", loading, "load")
def reader_lists_then_asks(reader: LogReader, version: Version | None = None) -> Loaded:
    """The reader lists the log, then asks the owner, once each. A commit published in between may be in neither
    answer.
    """
    listing = reader.log.listing()
    answer = reader.ask(end=version)
    segment = build(listing, answer, reader.feature, version=version, distrusted={})
    return loading._read(reader, segment, ReplayedState(), [])


@schedule("patch", "transactions[catalogManaged,inline]", "ICT-08")
@contextlib.contextmanager
def writer_keeps_its_time() -> Iterator[None]:
    """A client keeps the time of its first try after a lost race, and the owner does not check it."""
    with (
        mock.patch.object(transaction, "after_lost_race", lambda mine, _winner: mine),
        mock.patch.object(decide, "_timestamp_flaw", lambda _table, _examined: None),
    ):
        yield


@schedule("patch", "threads[catalogManaged,inline]", "CM-FEATURE-01", Groups, "_decide")
def group_answered_as_it_arrived(groups: Groups, group: Sequence[Waiting]) -> None:
    """The members are decided in the order of their versions, but get the answers in the order of their arrival."""
    arrived = [member for member in groups._waiting if member in group]
    for member, answer in zip(arrived, groups._together(group), strict=True):
        member.answer = answer
