"""Mutants that only a schedule exposes: each is correct while one client runs at a time.

Each mutant moves or removes one step: a lock, the bounds of a transaction, the order of two effects.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from unittest import mock

from refimpl.client import loading, transaction
from refimpl.client.log_reading import Loaded, LogReader
from refimpl.client.log_segment import build
from refimpl.client.table_state import ReplayedState
from refimpl.commit_owner import Backfilled
from refimpl.commits import AttemptOutcome, CommitsAnswer, Landed, NotLanded, RatifiedCommit
from refimpl.environment import Environment
from refimpl.log_path import Version
from refimpl.owner import backfill as publishing
from refimpl.owner import decide, local, promises
from refimpl.owner.backfill import backfill
from refimpl.owner.context import Context, stored_commits
from refimpl.owner.group import Decision, Groups, Waiting
from refimpl.owner.local import LocalOwner
from refimpl.owner.records import AttemptRecord, Promise, TableRecord
from refimpl.owner.statements import Writer
from spec_tests.conformance.simulation.hunting import ScheduleMutant, Wrapped, connected, patched, with_lock

TOMBSTONE_LIFE_MS: Final = 600_000


def no_lock(environment: Environment) -> Environment:
    return with_lock(environment, lambda _take: contextlib.nullcontext)


def _recorded(writer: Writer, table: TableRecord, promise: Promise, now: int) -> RatifiedCommit:
    """Record a promise without a check whether another process has recorded it."""
    with mock.patch.object(writer, "attempt", lambda *_: None):
        return _record(writer, table, promise, now)


_record: Final = promises.record


def trusts_the_lock() -> AbstractContextManager[Any]:
    """Record a promise as if no other process could have recorded it. That is true only under the lock."""
    return mock.patch.object(promises, "record", _recorded)


def _lock_until_commit(environment: Environment) -> Environment:
    """The first commit releases the lock, although its holder has more to do under it."""
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


class _AsksThenReplaces(Wrapped):
    """Files whose put-if-absent is a check and a rename."""

    def link(self, source: Path, target: Path) -> None:
        if self.wrapped.exists(str(target)):
            raise FileExistsError(str(target))
        self.wrapped.replace(source, target)


def _asks_then_replaces(environment: Environment) -> Environment:
    return replace(environment, files=_AsksThenReplaces(environment.files))


# Edits of the owner


def _what_is_stored(
    _self: Context, _table: TableRecord, answer: CommitsAnswer, *_range: Version | None
) -> CommitsAnswer:
    return answer


def _outcome_from_an_old_look(owner: local.LocalOwner, table_id: str, attempt: str) -> AttemptOutcome:
    """The owner reads the ledger before it takes the lock, and records that old state under the lock."""
    with owner.ledger.read() as view:
        seen = view.attempt(owner.context.required(view, table_id), attempt)
    if seen is None:
        with owner.context.lock(), owner.context.changing(table_id) as (writer, _):
            writer.add_tombstone(table_id, attempt, owner.context.now)
    return NotLanded() if seen is None or seen.landed is None else Landed(commit=seen.landed)


def _attempts_looked_up_early() -> AbstractContextManager[Any]:
    """The owner looks up the attempt when its request arrives, and not again under the lock."""
    looked_up: dict[str, AttemptRecord | None] = {}
    examined, attempt = local.LocalOwner._examined, Writer.attempt

    def examined_early(owner: local.LocalOwner, place: TableRecord, version: int, proposal: Any) -> Any:
        with owner.ledger.read() as view:
            looked_up[proposal.attempt] = view.attempt(place, proposal.attempt)
        return examined(owner, place, version, proposal)

    def remembered(writer: Writer, table: TableRecord, wanted: str) -> AttemptRecord | None:
        return looked_up[wanted] if wanted in looked_up else attempt(writer, table, wanted)

    stack = contextlib.ExitStack()
    stack.enter_context(mock.patch.object(local.LocalOwner, "_examined", examined_early))
    stack.enter_context(mock.patch.object(Writer, "attempt", remembered))
    return stack


def _contents(context: Context, table_id: str, version: Version | None) -> tuple[TableRecord, list[tuple[int, bytes]]]:
    """The versions to be published and their content, read from the ledger in one transaction."""
    with context.ledger.read() as view:
        table = context.required(view, table_id)
        latest = -1 if table.latest is None else table.latest
        wanted = range(table.first_unbackfilled, min(latest, latest if version is None else version) + 1)
        stored = [(each, view.commit_details(table, each)) for each in wanted]
    log, contents = context.log(table), []
    for each, details in stored:
        assert details is not None
        contents.append((each, details[0].content or publishing._stored_bytes(table, log, details[0])))
    return table, contents


def _forget_first(context: Context, table_id: str, version: Version | None) -> Backfilled:
    """The ledger forgets the bytes, and then the owner publishes them."""
    with context.lock():
        table, contents = _contents(context, table_id, version)
        if contents:
            with context.ledger.write() as writer:
                writer.mark_published(table, contents[-1][0], context.now)
        for each, content in contents:
            context.log(table).publish(each, content)
    return Backfilled(through=table.backfilled, published=len(contents))


def _newest_first(context: Context, table_id: str, version: Version | None) -> Backfilled:
    """The last version becomes visible before the versions below it."""
    with context.lock():
        table, contents = _contents(context, table_id, version)
        for each, content in reversed(contents):
            context.log(table).publish(each, content)
        if contents:
            with context.ledger.write() as writer:
                writer.mark_published(table, contents[-1][0], context.now)
    return Backfilled(through=table.backfilled, published=len(contents))


def _shared_work(context: Context, table_id: str, version: Version | None) -> Backfilled:
    """Backfillers share the versions without a lock: the first that claims a version publishes it."""
    table, contents = _contents(context, table_id, version)
    log, files = context.log(table), context.environment.files
    for each, content in contents:
        try:
            with files.create(table.location / f".publishing-{each}"):
                pass
        except FileExistsError:
            continue
        log.publish(each, content)
    with context.lock(), context.changing(table_id) as (writer, now):
        last = now.first_unbackfilled - 1
        while log.published(last + 1):
            last += 1
        if last >= now.first_unbackfilled:
            writer.mark_published(now, last, context.now)
    return Backfilled(through=last, published=len(contents))


class _DecidesOutside(Wrapped):
    """A transaction begins with its first change. Its decision uses rows that were read before."""

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
        return self.wrapped.execute(statement.replace("INSERT INTO commits", "INSERT OR REPLACE INTO commits"), *values)


def _decides_outside(environment: Environment) -> Environment:
    return no_lock(connected(environment, _DecidesOutside))


def _tombstones_expire(environment: Environment) -> Environment:
    """Each writer deletes tombstones that are old by its own clock."""

    class Expires(Wrapped):
        def execute(self, statement: str, *values: Any) -> Any:
            result = self.wrapped.execute(statement, *values)
            if statement == "BEGIN IMMEDIATE":
                long_ago = environment.now() - TOMBSTONE_LIFE_MS
                self.wrapped.execute("DELETE FROM tombstones WHERE resolved_at < ?", (long_ago,))
            return result

    return connected(environment, Expires)


class _WritesInPlace(Wrapped):
    """Files whose put-if-absent creates the name, and then writes the content."""

    def link(self, source: Path, target: Path) -> None:
        content = self.wrapped.read(source)
        with self.wrapped.create(target) as file:
            file.write(content)


def _writes_in_place(environment: Environment) -> Environment:
    return replace(environment, files=_WritesInPlace(environment.files))


def _latest_by_a_second_look(
    context: Context, table_id: str, start: Version | None = None, end: Version | None = None
) -> CommitsAnswer:
    """The commits and the latest version come from two reads of the ledger."""
    with context.ledger.read() as view:
        commits = stored_commits(view, context.required(view, table_id), start, end).commits
    with context.ledger.read() as view:
        return CommitsAnswer(commits=commits, latest_ratified_version=context.required(view, table_id).latest)


def _forgets_what_came_meanwhile(context: Context, table_id: str, _version: Version | None) -> Backfilled:
    """The versions to publish are decided before the lock is taken; under the lock, every version up to the latest is
    marked as published.
    """
    with context.ledger.read() as view:
        last = context.required(view, table_id).latest
    backfilled = backfill(context, table_id, last)
    with context.lock(), context.changing(table_id) as (writer, table):
        assert table.latest is not None
        writer.mark_published(table, table.latest, context.now)
    return backfilled


def recorded_first(context: Context, table: TableRecord, promise: Promise) -> RatifiedCommit | None:
    """The ledger records a promise as kept, and then the owner links its file."""
    with context.ledger.write() as writer:
        commit = promises.record(writer, table, promise, context.now)
    promises.publish(promise, context.log(table))
    return commit


def _whatever_is_there(promise: Promise, log: Any, **_more: bool) -> bool:
    """An existing version counts as the promised one, whoever linked it."""
    log.put_if_absent(f"{promise.version:020}.json", promise.content)
    return True


def _listed_then_asked(reader: LogReader, version: Version | None = None) -> Loaded:
    """The reader lists the log, then asks the owner, once each. A commit published in between may be in neither
    answer.
    """
    listing = reader.log.listing()
    answer = reader.ask(end=version)
    segment = build(listing, answer, reader.feature, version=version, distrusted={})
    return loading._read(reader, segment, ReplayedState(), [])


@contextlib.contextmanager
def _time_of_the_first_try() -> Iterator[None]:
    """A client keeps the time of its first try after a lost race, and the owner does not check it."""
    with (
        mock.patch.object(transaction, "after_lost_race", lambda mine, _winner: mine),
        mock.patch.object(decide, "_timestamp_flaw", lambda _table, _examined: None),
    ):
        yield


def _answers_as_they_arrived(groups: Groups, group: Sequence[Waiting]) -> None:
    """The members are decided in the order of their versions, but get the answers in the order of their arrival."""
    arrived = [each for each in groups._waiting if each in group]
    for each, answer in zip(arrived, groups._together(group), strict=True):
        each.answer = answer


def _judged_before_any_is_written(owner: LocalOwner, group: Sequence[Waiting]) -> list[Decision | None]:
    with owner.context.ledger.write() as writer:
        judged = []
        for each in group:
            table = owner.context.required(writer, each.place.table_id)
            judged.append((table, *owner._judge(writer, table, each)))
        return [
            owner._ratified(writer, table, each.examined, facts) if isinstance(verdict, decide.Ratify)
            else None if verdict is None else Decision(outcome=verdict)
            for each, (table, verdict, facts) in zip(group, judged, strict=True)
        ]  # fmt: skip


class _LastOneStays(Wrapped):
    """A ledger in which a repeated insert of a version replaces the earlier row."""

    def execute(self, statement: str, *values: Any) -> Any:
        return self.wrapped.execute(statement.replace("INSERT INTO commits", "INSERT OR REPLACE INTO commits"), *values)


SCHEDULE_MUTANTS: Final = (
    ScheduleMutant(
        id="group-answered-as-it-arrived",
        title="the members of a group are decided by version, but answered in the order of their arrival",
        scope="threads[catalogManaged,inline]",
        requirement="CM-COMMIT-08",
        patch=patched(Groups, "_decide", _answers_as_they_arrived),
    ),
    ScheduleMutant(
        id="group-judged-before-any-is-written",
        title="the members of a group are all judged in the state before the group: two of them get the same version",
        scope="threads[managedCommit,staged]",
        requirement="MC-COMMIT-02",
        change=lambda environment: connected(environment, _LastOneStays),
        patch=patched(LocalOwner, "_decide_together", _judged_before_any_is_written),
    ),
    ScheduleMutant(
        id="lock-not-taken",
        title="the owner's lock is not taken: the promise of a running process counts as abandoned",
        scope="two-writers[managedCommit,direct]",
        requirement="PROFILE-CORE-03",
        change=no_lock,
        patch=trusts_the_lock,
    ),
    ScheduleMutant(
        id="lock-released-early",
        title="the lock is released by the first commit, before the promised version is linked",
        scope="two-writers[catalogManaged,direct]",
        requirement="PROFILE-CORE-03",
        change=_lock_until_commit,
        patch=trusts_the_lock,
    ),
    ScheduleMutant(
        id="hand-back-unlocked",
        title="the lock is released between the promise to hand back and its link",
        scope="hand-back[managedCommit,staged]",
        requirement="PROFILE-CORE-03",
        change=_lock_until_commit,
        patch=trusts_the_lock,
    ),
    ScheduleMutant(
        id="asks-then-replaces",
        title="put-if-absent is a check and a rename: a filesystem writer's version is overwritten",
        scope="take-over[managedCommit,staged]",
        requirement="MC-COMMIT-02",
        change=_asks_then_replaces,
    ),
    ScheduleMutant(
        id="answers-from-the-ledger-alone",
        title="a visible commit is not reported until the ledger knows it",
        scope="looker[managedCommit,direct]",
        requirement="MC-READ-06",
        patch=patched(Context, "_with_what_is_visible", _what_is_stored),
    ),
    ScheduleMutant(
        id="resolves-from-an-old-look",
        title="an attempt is resolved by a ledger state from before the lock: it lands, but is reported otherwise",
        scope="delayed[managedCommit,staged]",
        requirement="PROFILE-OUTCOME-02",
        patch=patched(local.LocalOwner, "attempt_outcome", _outcome_from_an_old_look),
    ),
    ScheduleMutant(
        id="attempts-checked-outside-the-transaction",
        title="an attempt is looked up when its request arrives, and not again when it is decided",
        scope="delayed[catalogManaged,inline]",
        requirement="PROFILE-OUTCOME-02",
        patch=_attempts_looked_up_early,
    ),
    ScheduleMutant(
        id="forgets-before-it-publishes",
        title="the ledger forgets commits whose files are not visible yet",
        scope="backfiller[managedCommit,staged]",
        requirement="MC-FILES-06",
        patch=patched(local, "backfill", _forget_first),
    ),
    ScheduleMutant(
        id="publishes-the-newest-first",
        title="a backfill makes the last version visible before the versions below it",
        scope="two-backfillers[managedCommit,staged]",
        requirement="MC-BACKFILL-03",
        patch=patched(local, "backfill", _newest_first),
    ),
    ScheduleMutant(
        id="backfillers-divide-the-versions",
        title="two backfillers without a lock: one publishes version 2 before the other has published version 1",
        scope="two-backfillers[managedCommit,staged]",
        requirement="MC-BACKFILL-05",
        patch=patched(local, "backfill", _shared_work),
    ),
    ScheduleMutant(
        id="decided-outside-the-transaction",
        title="the version is compared before the transaction begins, and two writers get the same version",
        scope="two-writers[catalogManaged,inline]",
        requirement="CM-COMMIT-08",
        change=_decides_outside,
    ),
    ScheduleMutant(
        id="tombstones-expire",
        title="the outcome of an attempt is forgotten after ten minutes, by the writer's clock",
        scope="delayed[catalogManaged,staged]",
        requirement="PROFILE-OUTCOME-02",
        change=_tombstones_expire,
        needs_clocks=True,
    ),
    ScheduleMutant(
        id="publishes-in-place",
        title="a published file has its name before it has its content",
        scope="two-backfillers[catalogManaged,inline]",
        requirement="CM-PUBLISH-03",
        change=_writes_in_place,
    ),
    ScheduleMutant(
        id="latest-by-a-second-look",
        title="the commits and the latest version are read from two states of the ledger",
        scope="backfiller[catalogManaged,inline]",
        requirement="CM-STORE-09",
        patch=patched(Context, "answer", _latest_by_a_second_look),
    ),
    ScheduleMutant(
        id="forgets-what-came-meanwhile",
        title="a backfill marks commits as published that were ratified after it read the ledger",
        scope="backfiller[managedCommit,staged]",
        requirement="MC-COMMIT-02",
        patch=patched(local, "backfill", _forgets_what_came_meanwhile),
    ),
    ScheduleMutant(
        id="recorded-before-it-is-visible",
        title="a direct commit is recorded, and then linked",
        scope="backfiller[catalogManaged,direct]",
        requirement="CM-STORE-09",
        patch=patched(Context, "keep", recorded_first),
    ),
    ScheduleMutant(
        id="take-over-without-a-check",
        title="a take-over does not check whether it or a filesystem writer created the version",
        scope="take-over[catalogManaged,staged]",
        requirement="CM-COMMIT-08",
        patch=patched(promises, "publish", _whatever_is_there),
    ),
    ScheduleMutant(
        id="two-take-overs-unlocked",
        title="two take-overs of one table run without the lock",
        scope="two-take-overs[managedCommit,staged]",
        requirement="PROFILE-CORE-03",
        change=no_lock,
        patch=trusts_the_lock,
    ),
    ScheduleMutant(
        id="reader-lists-then-asks",
        title="a reader lists, then asks, and does not list again: a commit published in between is in neither answer",
        scope="reader[catalogManaged,inline]",
        requirement="PROFILE-CLIENT-01",
        patch=patched(loading, "load", _listed_then_asked),
    ),
    ScheduleMutant(
        id="writer-keeps-its-time",
        title="a writer that lost a race commits the next version with the time of its first try",
        scope="transactions[catalogManaged,inline]",
        requirement="ICT-08",
        patch=_time_of_the_first_try,
    ),
)
