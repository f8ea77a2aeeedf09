"""More known-bad variants that only a schedule exposes: of the owner's reads and commits, and of its clients."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from unittest import mock

from conformance.adapters.reference.simulated_schedules import (
    ScheduleVariant,
    _connected,
    _Connection,
    _no_lock,
    trusts_the_lock,
)
from refimpl.client import loading, transaction
from refimpl.client.loading import Loaded
from refimpl.client.log_reading import LogReader
from refimpl.client.log_segment import build
from refimpl.client.table_state import TableState
from refimpl.commit_owner import Backfilled
from refimpl.commits import CommitsAnswer, RatifiedCommit
from refimpl.environment import Environment
from refimpl.log_path import Version
from refimpl.owner import decide, local, promises
from refimpl.owner.backfill import backfill
from refimpl.owner.context import Context, stored_commits
from refimpl.owner.records import Promise, TableRecord

TOMBSTONE_LIFE_MS: Final = 600_000


class _DecidesOutside(_Connection):
    """A transaction begins with the first change: what was decided on was read before it."""

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
            self.database.execute("BEGIN IMMEDIATE")
        return self.database.execute(
            statement.replace("INSERT INTO commits", "INSERT OR REPLACE INTO commits"), *values
        )


def _decides_outside(environment: Environment) -> Environment:
    return _no_lock(_connected(environment, _DecidesOutside))


def _tombstones_expire(environment: Environment) -> Environment:
    """Whoever writes removes what was resolved long ago, by his own clock."""

    class Expires(_Connection):
        def execute(self, statement: str, *values: Any) -> Any:
            found = self.database.execute(statement, *values)
            if statement == "BEGIN IMMEDIATE":
                long_ago = environment.now() - TOMBSTONE_LIFE_MS
                self.database.execute("DELETE FROM tombstones WHERE resolved_at < ?", (long_ago,))
            return found

    return _connected(environment, Expires)


class _WritesInPlace:
    """Files whose put-if-absent creates the name, and then writes its content."""

    def __init__(self, files: Any) -> None:
        self._files = files

    def link(self, source: Path, target: Path) -> None:
        content = self._files.read(source)
        with self._files.create(target) as file:
            file.write(content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)


def _writes_in_place(environment: Environment) -> Environment:
    return replace(environment, files=_WritesInPlace(environment.files))


def _latest_by_a_second_look(
    context: Context, table_id: str, start: Version | None = None, end: Version | None = None
) -> CommitsAnswer:
    """The commits from one look at the ledger, the latest version from another."""
    with context.ledger.read() as view:
        commits = stored_commits(view, context.required(view, table_id), start, end).commits
    with context.ledger.read() as view:
        return CommitsAnswer(commits=commits, latest_ratified_version=context.required(view, table_id).latest)


def _forgets_what_came_meanwhile(context: Context, table_id: str, _version: Version | None) -> Backfilled:
    """What is published is decided before the lock, what is forgotten under it: everything up to the latest."""
    with context.ledger.read() as view:
        last = context.required(view, table_id).latest
    found = backfill(context, table_id, last)
    with context.lock(), context.changing(table_id) as (writer, table):
        assert table.latest is not None
        writer.mark_published(table, table.latest, context.now)
    return found


def recorded_first(context: Context, table: TableRecord, promise: Promise) -> RatifiedCommit | None:
    """The ledger says that a promise was kept, and then its file is linked."""
    with context.ledger.write() as writer:
        commit = promises.record(writer, table, promise, context.now)
    promises.publish(promise, context.log(table))
    return commit


def _whatever_is_there(promise: Promise, log: Any, **_more: bool) -> bool:
    """Whoever linked the version: it is taken for the promised one."""
    log.put_if_absent(f"{promise.version:020}.json", promise.content)
    return True


def _listed_then_asked(reader: LogReader, version: Version | None = None) -> Loaded:
    """One look: what is listed first and asked for then may be in neither."""
    listing = reader.log.listing()
    answer = reader.ask(end=version)
    segment = build(listing, answer, reader.feature, version=version, distrusted={})
    return loading._read(reader, segment, TableState(), [])


@contextlib.contextmanager
def _time_of_the_first_try() -> Iterator[None]:
    """A client keeps the time that it took before it lost; the owner does not look."""
    with (
        mock.patch.object(transaction, "after_lost_race", lambda mine, _winner: mine),
        mock.patch.object(decide, "_timestamp_flaw", lambda _table, _examined: None),
    ):
        yield


def _patched(target: object, name: str, function: Any) -> Any:
    def patch() -> AbstractContextManager[Any]:
        return mock.patch.object(target, name, function)

    return patch


MORE_VARIANTS: Final = (
    ScheduleVariant(
        name="decided-outside-the-transaction",
        title="the version is compared before the transaction begins, and two writers get the same one",
        scope="two-writers[catalogManaged,inline]",
        requirement="CM-COMMIT-08",
        change=_decides_outside,
    ),
    ScheduleVariant(
        name="tombstones-expire",
        title="that an attempt was resolved is forgotten after ten minutes, by the clock of whoever writes",
        scope="delayed[catalogManaged,staged]",
        requirement="PROFILE-OUTCOME-02",
        change=_tombstones_expire,
        needs_clocks=True,
    ),
    ScheduleVariant(
        name="publishes-in-place",
        title="a published file has its name before it has its content",
        scope="two-backfillers[catalogManaged,inline]",
        requirement="CM-PUBLISH-03",
        change=_writes_in_place,
    ),
    ScheduleVariant(
        name="latest-by-a-second-look",
        title="the commits and the latest version are read from two states of the ledger",
        scope="backfiller[catalogManaged,inline]",
        requirement="CM-STORE-09",
        patch=_patched(Context, "answer", _latest_by_a_second_look),
    ),
    ScheduleVariant(
        name="forgets-what-came-meanwhile",
        title="a backfill marks as published what was ratified after it had looked",
        scope="backfiller[managedCommit,staged]",
        requirement="MC-COMMIT-02",
        patch=_patched(local, "backfill", _forgets_what_came_meanwhile),
    ),
    ScheduleVariant(
        name="recorded-before-it-is-visible",
        title="a direct commit is recorded, and then linked",
        scope="backfiller[catalogManaged,direct]",
        requirement="CM-STORE-09",
        patch=_patched(Context, "keep", recorded_first),
    ),
    ScheduleVariant(
        name="take-over-whoever-was-first",
        title="a take-over does not look whether it made the version, or a filesystem writer did",
        scope="take-over[catalogManaged,staged]",
        requirement="CM-COMMIT-08",
        patch=_patched(promises, "publish", _whatever_is_there),
    ),
    ScheduleVariant(
        name="two-take-overs-unlocked",
        title="two take-overs of one table, neither of which holds the lock",
        scope="two-take-overs[managedCommit,staged]",
        requirement="PROFILE-CORE-03",
        change=_no_lock,
        patch=trusts_the_lock,
    ),
    ScheduleVariant(
        name="reader-lists-then-asks",
        title="a reader lists, then asks, and does not list again: what is published in between is in neither",
        scope="reader[catalogManaged,inline]",
        requirement="PROFILE-CLIENT-01",
        patch=_patched(loading, "load", _listed_then_asked),
    ),
    ScheduleVariant(
        name="writer-keeps-its-time",
        title="a writer that lost takes the next version with the time of its first try",
        scope="transactions[catalogManaged,inline]",
        requirement="ICT-08",
        patch=_time_of_the_first_try,
    ),
)
