"""Commits whose commit point is a link: direct publication, take-over, hand-back.

    1. one transaction stores the promise: what will be linked, with its bytes
    2. put-if-absent of `<v>.json`: the commit point, at the moment it becomes visible
    3. one transaction records what is visible, and forgets the promise

managed-commits, "Converting an existing filesystem based table": a two-phase commit; after the link
the owner must not refuse, and if somebody else was first it forgets. A crash anywhere leaves a
promise, and `settle`, with which every later change of the table begins, is step 3 itself.
"""

from __future__ import annotations

from refimpl import log_path
from refimpl.commit_owner import TableState
from refimpl.commits import DirectProposal
from refimpl.log_store import LogStore
from refimpl.owner import decide
from refimpl.owner.records import Examined, Promise, PromiseKind, TableRecord
from refimpl.owner.statements import Writer
from refimpl.table_feature import Way


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
    """Complete or forget the table's promise, by what is visible.

    Visible with the promised bytes: they are made durable, then recorded. Not visible, or a
    stranger's bytes: the promise is forgotten, and with a take-over the whole table.
    """
    promise = writer.promise(table.key)
    if promise is None:
        return
    if _kept(promise, log):
        _record(writer, table, promise, now)
    elif promise.kind is PromiseKind.TAKE_OVER:
        writer.forget_table(table)
    else:
        writer.forget_promise(table)


def _kept(promise: Promise, log: LogStore) -> bool:
    name = log_path.commit(promise.version)
    if not log.published(promise.version) or log.read(name) != promise.content:
        return False
    log.make_durable(name)
    return True


def _record(writer: Writer, table: TableRecord, promise: Promise, now: int) -> None:
    proposal = DirectProposal(attempt=promise.attempt, content=promise.content)
    examined = decide.examine(table.feature, promise.version, proposal, promise.content)
    writer.ratify(table, examined, Way.DIRECT, now, published=True)
    writer.forget_promise(table)
    if promise.kind is PromiseKind.TAKE_OVER:
        writer.set_state(table, TableState.ACTIVE)
    elif promise.kind is PromiseKind.HAND_BACK:
        writer.set_state(table, TableState.HANDED_BACK)
