"""Assertions of a check about a reader, compared with the expected snapshot of a fixture's log.

    must_read(log, 3, "MC-READ-07", expected="version 3 was ratified before the read began")
    must_read(log, 1, "LOG-09", version=1, expected=...)          # a pinned read
    must_refuse(log, "LOG-11", version=9, expected=...)

A reader of a managedCommit table need not ask its owner, unless it promises fresh snapshots: then its snapshot must be
a correct older one, and the scenario is inconclusive about later versions.
"""

from collections.abc import Sequence
from typing import Any

from conformance.history.events import Promise
from conformance.interface import messages as m
from conformance.interface.log_names import FILESYSTEM
from conformance.oracle.client import differences, replay
from conformance.scenario.check import applies
from conformance.scenario.client import ClientScenario
from conformance.scenario.log_builder import LogBuilder
from conformance.scenario.scenario import Exchange, Inconclusive


def must_read(
    log: LogBuilder, version: int, /, *requirements: str, expected: str, because: Sequence[Exchange] = (),
    may_refuse: bool = False, about: Sequence[str] = (), client: str | None = None, **fields: Any,
) -> m.SnapshotRead:  # fmt: skip
    """A read must return the complete, correct snapshot of `version`. `about`: fields of the answer that the assertion
    needs; if the reader does not return them, the scenario is inconclusive. `may_refuse`: the table has a feature that
    a reader need not support. `fields`: more fields of the request."""
    published = log.published
    exchange, since = ask(log, client, **fields)
    read = exchange.answer
    if isinstance(read, m.Rejected) and may_refuse:
        raise Inconclusive(f"operation {exchange.number}: the reader does not support such a table: {read.reason}")
    excuse = _excuse(log, exchange, version, published, newest_returned(log.s, since))
    if excuse and isinstance(read, m.SnapshotRead):
        is_snapshot(log, exchange, read, *requirements)
    if excuse:
        raise Inconclusive(f"operation {exchange.number}: {excuse}")
    because = because or [log.committed[version]] if version in log.committed else because
    snapshot = log.s.expect(exchange, m.SnapshotRead, *held(log.s, requirements), expected=expected, because=because)
    named = ("LOG-09",) if fields.get("version") is not None else requirements
    log.s.require(
        snapshot.version == version, *held(log.s, named), evidence=(exchange, *because), table=log.table,
        version=version, expected=expected, observed=f"a snapshot of version {snapshot.version}",
    )  # fmt: skip
    is_snapshot(log, exchange, snapshot, *requirements, because=because, about=about, expected=expected)
    return snapshot


def must_refuse(log: LogBuilder, /, *requirements: str, expected: str, **fields: Any) -> Exchange:
    """A read must not succeed; any kind of error is valid."""
    exchange, _ = ask(log, **fields)
    if isinstance(exchange.answer, m.SnapshotRead):
        log.s.fail(
            *held(log.s, requirements), evidence=(exchange,), table=log.table, expected=expected,
            observed=f"a snapshot of version {exchange.answer.version} with the files {list(exchange.answer.files)}",
        )  # fmt: skip
    return exchange


def may_read(log: LogBuilder, version: int, /, *requirements: str) -> None:
    """A read of a version before the corrupt one. It may fail, because a reader may open the newest version first."""
    exchange, _ = ask(log, version=version)
    if isinstance(exchange.answer, m.SnapshotRead):
        is_snapshot(log, exchange, exchange.answer, *requirements)


def must_report(log: LogBuilder, version: int, /, *requirements: str, expected: str) -> None:
    """A read of a corrupt file must end with a warning or an error."""
    exchange, _ = ask(log)
    if isinstance(exchange.answer, m.SnapshotRead) and _excuse(log, exchange, version, log.published, -1) is None:
        log.s.require(
            bool(exchange.answer.warnings), *requirements, evidence=(exchange,), table=log.table, version=version,
            expected=expected, observed="a snapshot without a warning",
        )  # fmt: skip


def held(s: ClientScenario, requirements: Sequence[str]) -> tuple[str, ...]:
    """The requirements that apply to this table feature and commit mode; if none does, the basic one of readers."""
    if any(applies(requirement, s.identity, s.variant) for requirement in requirements):
        return tuple(requirements)
    return (*requirements, "PROFILE-CLIENT-01")


def ask(log: LogBuilder, /, client: str | None = None, **fields: Any) -> tuple[Exchange, int]:
    """Read, and count the reader's earlier requests to its owner, for `newest_returned`."""
    since, who = len(log.s.owner.exchanges), log.reader() if client is None else client
    if "path" not in fields:
        fields.update({"path": log.location} if log.s.feature == FILESYSTEM else {"table": log.s.physical(log.name)})
    return log.s.act(who, m.Snapshot(**fields), log.table), since


def newest_returned(s: ClientScenario, since: int, reference: str | None = None) -> int:
    """The newest version that the owner returned to the reader since then; -1 if it returned none. `reference`: of this
    table only."""
    heard = [(heard.request, heard.answer) for heard in s.owner.exchanges[since:]]
    parts = [(request, part) for request, answer in heard for part in getattr(answer, "tables", (answer,))]
    answers = [
        answer for request, answer in parts
        if reference in (None, getattr(answer, "table", None), getattr(request, "table", None))
    ]  # fmt: skip
    returned = [
        answer.latest for answer in answers if isinstance(answer, m.Table | m.Commits) and answer.latest is not None
    ]
    returned += [
        c.version for answer in answers if isinstance(answer, m.Table | m.Commits) for c in answer.commits or ()
    ]
    return max(returned, default=-1)


def is_snapshot(
    log: LogBuilder, exchange: Exchange, read: m.SnapshotRead, *requirements: str, because: Sequence[Exchange] = (),
    about: Sequence[str] = (), expected: str = "",
) -> None:  # fmt: skip
    """Require that the returned fields are those of the version's snapshot."""
    if read.version not in log.actions:
        log.s.fail(
            *held(log.s, requirements), evidence=(exchange,), table=log.table, version=read.version,
            expected=f"a version of the table, which has {log.latest + 1}", observed=f"version {read.version}",
        )  # fmt: skip
    different = differences(replay(log.actions, read.version), read, log.location)
    log.s.require(
        not different, *held(log.s, requirements), evidence=(exchange, *because), table=log.table, version=read.version,
        expected=expected or f"the result of all commits up to version {read.version}", observed="; ".join(different),
    )  # fmt: skip
    missing = [field for field in about if getattr(read, field) is None]
    if missing:
        raise Inconclusive(f"operation {exchange.number}: the reader does not return {', '.join(missing)}")


def does_without_its_owner(s: ClientScenario) -> bool:
    """Whether the reader may read without asking the owner."""
    return s.feature == "managedCommit" and Promise.FRESH_SNAPSHOTS.value not in s.identity.promises


def _excuse(log: LogBuilder, exchange: Exchange, version: int, published: int, known: int) -> str | None:
    """The reason why a reader that missed `version` was permitted to miss it; None: it did not miss it, or had no such
    reason. `published`: the newest version that was published before the read; `known`: the newest that the owner
    returned during it."""
    read, request = exchange.answer, exchange.request
    assert isinstance(request, m.Snapshot)
    travels = request.version is not None or request.timestamp is not None
    if isinstance(read, m.SnapshotRead):
        missed = read.version < version and request.version is None
    else:
        missed = isinstance(read, m.Rejected) and travels
    if not missed:
        return None
    if travels and request.path is None and known < version:
        return f"a read of a version or a time may be stale, and version {version} is newer than what the reader knew"
    says_so = isinstance(read, m.SnapshotRead) and read.stale and log.s.feature == "managedCommit"
    enough = not isinstance(read, m.SnapshotRead) or travels or read.version >= published
    if (says_so or does_without_its_owner(log.s)) and version > published and enough:
        return f"a managedCommit table may be read without its owner: version {version} was not published before"
    return None
