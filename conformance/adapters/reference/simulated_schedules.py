"""Known-bad variants of the reference that only a schedule exposes: one client at a time, each of them works.

Each moves or leaves out one step: a lock, the bounds of a transaction, the order of two effects. Which requirement it
breaks, and in which scope, stands beside it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from unittest import mock

from conformance.adapters.reference.simulated_clients import Change, SimulatedClients, unchanged
from refimpl.commit_owner import Backfilled
from refimpl.commits import AttemptOutcome, CommitsAnswer, Landed, NotLanded, RatifiedCommit
from refimpl.environment import Environment
from refimpl.log_path import Version
from refimpl.owner import backfill as publishing
from refimpl.owner import local, promises
from refimpl.owner.context import Context
from refimpl.owner.records import AttemptRecord, Promise, TableRecord
from refimpl.owner.statements import Writer


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleVariant:
    """A bad owner. `scope` is the id of one that finds it, `requirement` what it is found by."""

    name: str
    title: str
    scope: str
    requirement: str
    change: Change = unchanged
    """Of what is between the owner and its effects."""
    patch: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext
    """Of the owner, while its clients run."""
    needs_clocks: bool = False
    """Whether clients whose clocks are an hour apart find it even where nobody interrupts anybody."""

    def host(self) -> SimulatedClients:
        return SimulatedClients(self.change, self.patch)


class _Connection:
    """A connection to the ledger, for those that change one statement."""

    def __init__(self, database: Any) -> None:
        self.database = database

    def __getattr__(self, name: str) -> Any:
        return getattr(self.database, name)


def _connected(environment: Environment, wrap: Callable[[Any], Any]) -> Environment:
    connect = environment.connect
    assert connect is not None
    return replace(environment, connect=lambda path: wrap(connect(path)))


def _no_lock(environment: Environment) -> Environment:
    return replace(environment, host_lock=lambda _path: contextlib.nullcontext)


def _recorded(writer: Writer, table: TableRecord, promise: Promise, now: int) -> RatifiedCommit:
    """Without a look whether another process has recorded it."""
    with mock.patch.object(writer, "attempt", lambda *_: None):
        return _record(writer, table, promise, now)


_record: Final = promises.record


def trusts_the_lock() -> AbstractContextManager[Any]:
    """What is promised is recorded as if nobody else could have done it: only under the lock is that so."""
    return mock.patch.object(promises, "record", _recorded)


def _lock_until_commit(environment: Environment) -> Environment:
    """The first commit frees the lock, although its holder goes on with what follows from it."""
    held: list[contextlib.ExitStack] = []

    class Frees(_Connection):
        def execute(self, statement: str, *values: Any) -> Any:
            found = self.database.execute(statement, *values)
            if statement == "COMMIT" and held:
                held[-1].close()
            return found

    def host_lock(path: Path) -> Callable[[], AbstractContextManager[object]]:
        take = environment.host_lock(path)

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

    return replace(_connected(environment, Frees), host_lock=host_lock)


class _AsksThenReplaces:
    """Files whose put-if-absent is a question and a rename."""

    def __init__(self, files: Any) -> None:
        self._files = files

    def link(self, source: Path, target: Path) -> None:
        if self._files.exists(str(target)):
            raise FileExistsError(str(target))
        self._files.replace(source, target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)


def _asks_then_replaces(environment: Environment) -> Environment:
    return replace(environment, files=_AsksThenReplaces(environment.files))


# Edits of the owner


def _what_is_stored(
    _self: Context, _table: TableRecord, answer: CommitsAnswer, *_range: Version | None
) -> CommitsAnswer:
    return answer


def _outcome_from_an_old_look(owner: local.LocalOwner, table_id: str, attempt: str) -> AttemptOutcome:
    """What the ledger said before the lock was taken is written down under it."""
    with owner.ledger.read() as view:
        seen = view.attempt(owner.context.required(view, table_id), attempt)
    if seen is None:
        with owner.context.lock(), owner.context.changing(table_id) as (writer, _):
            writer.add_tombstone(table_id, attempt, owner.context.now)
    return NotLanded() if seen is None or seen.landed is None else Landed(commit=seen.landed)


def _attempts_looked_up_early() -> AbstractContextManager[Any]:
    """Whether an attempt was resolved is looked up when its request arrives, and not again under the lock."""
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
    """What is to be published, from one look at the ledger."""
    with context.ledger.read() as view:
        table = context.required(view, table_id)
        latest = -1 if table.latest is None else table.latest
        wanted = range(table.first_unbackfilled, min(latest, latest if version is None else version) + 1)
        stored = [(each, view.commit_details(table, each)) for each in wanted]
    log, found = context.log(table), []
    for each, details in stored:
        assert details is not None
        found.append((each, details[0].content or publishing._stored_bytes(table, log, details[0])))
    return table, found


def _forget_first(context: Context, table_id: str, version: Version | None) -> Backfilled:
    """The ledger forgets the bytes, and then they are published."""
    with context.lock():
        table, found = _contents(context, table_id, version)
        if found:
            with context.ledger.write() as writer:
                writer.mark_published(table, found[-1][0], context.now)
        for each, content in found:
            context.log(table).publish(each, content)
    return Backfilled(through=table.backfilled, published=len(found))


def _newest_first(context: Context, table_id: str, version: Version | None) -> Backfilled:
    """The last version becomes visible before those that it follows."""
    with context.lock():
        table, found = _contents(context, table_id, version)
        for each, content in reversed(found):
            context.log(table).publish(each, content)
        if found:
            with context.ledger.write() as writer:
                writer.mark_published(table, found[-1][0], context.now)
    return Backfilled(through=table.backfilled, published=len(found))


def _shared_work(context: Context, table_id: str, version: Version | None) -> Backfilled:
    """Backfillers without a lock divide the versions among them: whoever claims one first publishes it."""
    table, found = _contents(context, table_id, version)
    log, files = context.log(table), context.environment.files
    for each, content in found:
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
    return Backfilled(through=last, published=len(found))


def _backfill(function: Callable[..., Backfilled]) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: mock.patch.object(local, "backfill", function)


VARIANTS: Final = (
    ScheduleVariant(
        name="lock-not-taken",
        title="the owner's lock is not taken: a promise that is being kept is taken for an abandoned one",
        scope="two-writers[managedCommit,direct]",
        requirement="PROFILE-CORE-03",
        change=_no_lock,
        patch=trusts_the_lock,
    ),
    ScheduleVariant(
        name="lock-released-early",
        title="the lock is released with the first commit, before the promised version is linked",
        scope="two-writers[catalogManaged,direct]",
        requirement="PROFILE-CORE-03",
        change=_lock_until_commit,
        patch=trusts_the_lock,
    ),
    ScheduleVariant(
        name="hand-back-unlocked",
        title="the lock is released between the promise to hand back and its link",
        scope="hand-back[managedCommit,staged]",
        requirement="PROFILE-CORE-03",
        change=_lock_until_commit,
        patch=trusts_the_lock,
    ),
    ScheduleVariant(
        name="asks-then-replaces",
        title="put-if-absent is a question and a rename: a filesystem writer's version is overwritten",
        scope="take-over[managedCommit,staged]",
        requirement="MC-COMMIT-02",
        change=_asks_then_replaces,
    ),
    ScheduleVariant(
        name="answers-from-the-ledger-alone",
        title="a commit that is visible already is denied until the ledger knows of it",
        scope="looker[managedCommit,direct]",
        requirement="MC-READ-06",
        patch=lambda: mock.patch.object(Context, "_with_what_is_visible", _what_is_stored),
    ),
    ScheduleVariant(
        name="resolves-from-an-old-look",
        title="an attempt is resolved by what the ledger said before the lock: it lands, and is said never to",
        scope="delayed[managedCommit,staged]",
        requirement="PROFILE-OUTCOME-02",
        patch=lambda: mock.patch.object(local.LocalOwner, "attempt_outcome", _outcome_from_an_old_look),
    ),
    ScheduleVariant(
        name="attempts-checked-outside-the-transaction",
        title="whether an attempt was resolved is looked up when its request arrives, not when it is decided",
        scope="delayed[catalogManaged,inline]",
        requirement="PROFILE-OUTCOME-02",
        patch=_attempts_looked_up_early,
    ),
    ScheduleVariant(
        name="forgets-before-it-publishes",
        title="the ledger forgets commits whose files are not visible yet",
        scope="backfiller[managedCommit,staged]",
        requirement="MC-FILES-06",
        patch=_backfill(_forget_first),
    ),
    ScheduleVariant(
        name="publishes-the-newest-first",
        title="a backfill makes the last version visible before those that it follows",
        scope="two-backfillers[managedCommit,staged]",
        requirement="MC-BACKFILL-03",
        patch=_backfill(_newest_first),
    ),
    ScheduleVariant(
        name="backfillers-divide-the-versions",
        title="two backfillers without a lock: one publishes the second version while the first is the other's",
        scope="two-backfillers[managedCommit,staged]",
        requirement="MC-BACKFILL-05",
        patch=_backfill(_shared_work),
    ),
)


def host_named(subject: str) -> SimulatedClients:
    """The clients of a variant, or of the reference itself. Raises `KeyError`."""
    if subject == "reference":
        return SimulatedClients()
    return {each.name: each for each in VARIANTS}[subject].host()
