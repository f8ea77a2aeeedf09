"""Mutants that only an interrupted effect exposes: while no process dies, each of them works.

Most lack one step of the protocol by which an owner survives its death: a promise before the link, one transaction
instead of two, a look before an error is believed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final
from unittest import mock

from conformance.simulated_reference.processes import Patch
from refimpl.environment import Environment
from refimpl.errors import OutcomeUnknown, OwnerUnavailableError
from refimpl.log_store import LogStore
from refimpl.owner import lifecycle, promises
from refimpl.owner.context import Context
from refimpl.owner.ledger import Ledger
from refimpl.owner.records import Promise, PromiseKind, TableRecord
from refimpl.owner.statements import Writer
from spec_tests.conformance.simulation.hunting import CrashMutant, Wrapped, connected, patched, with_lock
from spec_tests.conformance.simulation.schedule_mutants import recorded_first, trusts_the_lock


def _without_promise(kind: PromiseKind) -> Patch:
    """One kind of commit by put-if-absent is linked first and recorded afterwards, and nothing says so before."""
    ordinary = Writer.add_promise

    def add_promise(writer: Writer, table: TableRecord, promise: Promise) -> None:
        if promise.kind is not kind:
            ordinary(writer, table, promise)

    return patched(Writer, "add_promise", add_promise)


def _always_forgotten(writer: Writer, table: TableRecord, _log: LogStore, _now: int) -> None:
    promise = writer.promise(table.key)
    if promise is not None:
        promises.forget(writer, table, promise)


def _recorded_in_two_transactions() -> AbstractContextManager[Any]:
    ordinary = Writer.forget_promise

    def forget_promise(writer: Writer, table: TableRecord) -> None:
        writer._db.execute("COMMIT")
        writer._db.execute("BEGIN IMMEDIATE")
        ordinary(writer, table)

    return mock.patch.object(Writer, "forget_promise", forget_promise)


_RESOLVED: Final = "tombstones WHERE table_id = ? AND attempt = ?"


class _ForgetsTombstones(Wrapped):
    """That an attempt was resolved is known to the process that did it, and to nobody else."""

    def __init__(self, database: Any) -> None:
        super().__init__(database)
        self._own: set[str] = set()

    def execute(self, statement: str, *values: Any) -> Any:
        if statement.startswith("INSERT OR IGNORE INTO tombstones"):
            self._own.add(values[0][1])
            return None
        if _RESOLVED in statement:
            known = int(values[0][-1] in self._own)
            statement = statement.replace(_RESOLVED, f"(SELECT ? AS table_id, ? AS attempt) WHERE {known}")
        return self.wrapped.execute(statement, *values)


def _error_believed(context: Context, table: TableRecord, promise: Promise) -> Any:
    """An error of the disk means that nothing became visible."""
    try:
        mine = promises.publish(promise, context.log(table))
    except OSError as error:
        with context.ledger.write() as writer:
            promises.forget(writer, table, promise)
        raise OwnerUnavailableError(f"not published: {error}; nothing was committed") from error
    with context.ledger.write() as writer:
        if mine:
            return promises.record(writer, table, promise, context.now)
        promises.forget(writer, table, promise)
    return None


def _failed_commit_believed() -> AbstractContextManager[Any]:
    """A transaction whose commit failed is said not to be one."""
    ordinary = Ledger._commit

    def commit(ledger: Ledger, database: Any) -> None:
        try:
            ordinary(ledger, database)
        except OutcomeUnknown as error:
            raise OwnerUnavailableError(f"{error.message}; nothing was committed") from error

    return mock.patch.object(Ledger, "_commit", commit)


def _lease(environment: Environment) -> Environment:
    """A lock that is taken from whoever holds it for too long, and who does not notice."""

    def leased(take: Callable[[], Any]) -> Callable[[], AbstractContextManager[Any]]:
        @contextlib.contextmanager
        def lock() -> Iterator[None]:
            with contextlib.ExitStack() as stack, contextlib.suppress(OwnerUnavailableError):
                stack.enter_context(take())
            yield

        return lock

    return with_lock(environment, leased)


def _described_after_the_commit() -> AbstractContextManager[Any]:
    """A creation that landed fails where the table cannot be described."""

    class Believes(OutcomeUnknown):
        def __new__(cls, message: str, **facts: Any) -> Any:
            return OwnerUnavailableError(message, **facts)

    return mock.patch.object(lifecycle, "OutcomeUnknown", Believes)


CRASH_MUTANTS: Final = (
    *(
        CrashMutant(
            id=f"{kind.value}-without-promise",
            title=f"{what} is linked first and recorded afterwards, and no promise tells of it",
            scope=scope,
            requirement=requirement,
            patch=_without_promise(kind),
        )
        for kind, what, scope, requirement in (
            (PromiseKind.PUBLISH, "a direct commit", "commit/managedCommit/direct", "PROFILE-OUTCOME-01"),
            (PromiseKind.TAKE_OVER, "a take-over", "take-over/managedCommit/staged", "PROFILE-DURABLE-01"),
            (PromiseKind.HAND_BACK, "a hand-back", "hand-back/managedCommit/staged", "PROFILE-OUTCOME-01"),
        )
    ),
    CrashMutant(
        id="direct-recorded-first",
        title="a direct commit is recorded as published, and then linked",
        scope="commit/catalogManaged/direct",
        requirement="PROFILE-DURABLE-01",
        patch=patched(Context, "keep", recorded_first),
    ),
    CrashMutant(
        id="hand-back-recorded-first",
        title="a table is recorded as handed back, and then its last commit is linked",
        scope="hand-back/catalogManaged/staged",
        requirement="PROFILE-DURABLE-01",
        patch=patched(Context, "keep", recorded_first),
    ),
    CrashMutant(
        id="promise-always-forgotten",
        title="recovery forgets every promise, whether or not its file is visible",
        scope="commit/managedCommit/direct",
        requirement="PROFILE-OUTCOME-01",
        patch=patched(promises, "settle", _always_forgotten),
    ),
    CrashMutant(
        id="promise-always-believed",
        title="recovery takes every promise for kept, and links nothing",
        scope="commit/catalogManaged/direct",
        requirement="PROFILE-DURABLE-01",
        patch=patched(promises, "_published_now", lambda _promise, _log, **_more: True),
    ),
    CrashMutant(
        id="recorded-in-two-transactions",
        title="a kept promise is recorded in one transaction and forgotten in another",
        scope="commit/managedCommit/direct",
        requirement="PROFILE-DURABLE-01",
        patch=_recorded_in_two_transactions,
    ),
    CrashMutant(
        id="tombstones-in-memory",
        title="that an attempt was resolved is known to the process that resolved it",
        scope="resolve/catalogManaged/staged",
        requirement="PROFILE-OUTCOME-02",
        change=lambda environment: connected(environment, _ForgetsTombstones),
    ),
    CrashMutant(
        id="error-of-a-link-believed",
        title="a link that failed is taken for one that was not made",
        scope="commit/managedCommit/direct",
        requirement="PROFILE-OUTCOME-01",
        patch=patched(Context, "keep", _error_believed),
    ),
    CrashMutant(
        id="error-of-a-commit-believed",
        title="a transaction whose commit failed is said not to be one",
        scope="commit/catalogManaged/inline",
        requirement="PROFILE-DURABLE-01",
        patch=_failed_commit_believed,
    ),
    CrashMutant(
        id="lock-with-a-lease",
        title="a lock is taken from a slow holder, which goes on",
        scope="commit/catalogManaged/direct",
        requirement="PROFILE-CORE-03",
        change=_lease,
        patch=trusts_the_lock,
    ),
    CrashMutant(
        id="description-decides",
        title="a creation that landed is said to have failed where the new table cannot be described",
        scope="create/catalogManaged/staged",
        requirement="PROFILE-DURABLE-01",
        patch=_described_after_the_commit,
    ),
)
