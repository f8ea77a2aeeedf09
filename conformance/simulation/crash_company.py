"""Who comes while a process stalls: somebody who resolves, somebody who sends again, and a rival."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from conformance.interface import messages as m
from conformance.models import proposals
from conformance.simulation.power_run import Ask
from conformance.simulation.power_scopes import TABLE, Scope, append, attempt

RIVAL: Final = 950
"""The attempt of the rival for version v has this number plus v; the one for the table's first version has this one."""
MOST_VERSIONS: Final = 8

Making = m.CreateTable | m.TakeOver


@dataclass(frozen=True, slots=True)
class Company:
    """What another process is asked meanwhile. `go` gets what the stalled one was asked, if anything."""

    name: str
    go: Callable[[Ask, m.Request | None], None]


@dataclass(frozen=True, slots=True)
class Expected:
    """A commit that company may land. Without content, it is what the subject makes of the request."""

    request: Making | m.Commit
    version: int
    content: str | None


def company(scope: Scope) -> tuple[Company, ...]:
    """Everybody who comes, one per run."""
    return (
        Company("somebody resolves", _resolves),
        Company("somebody sends again", _sends_again),
        Company("a rival commits", lambda ask, stalled: _rival(scope, ask, stalled)),
    )


def expected(scope: Scope) -> Iterator[Expected]:
    """All that company may land beside the operation itself."""
    yield Expected(scope.made(attempt(RIVAL)), scope.versions_before, None)
    for version in range(1, MOST_VERSIONS):
        yield _appended(version, attempt(RIVAL + version))
    yield _appended(2, attempt(900))


def _appended(version: int, own: str) -> Expected:
    request = append("", version, own)
    return Expected(request, version, proposals.content(request.actions or ()))


def _resolves(ask: Ask, stalled: m.Request | None) -> None:
    _resolve(ask, stalled)
    if stalled is not None:
        ask(stalled)


def _sends_again(ask: Ask, stalled: m.Request | None) -> None:
    if stalled is not None:
        ask(stalled)
    _resolve(ask, stalled)


def _resolve(ask: Ask, stalled: m.Request | None) -> None:
    found = ask(m.LoadTable(name=TABLE))
    own = getattr(stalled, "attempt", None)
    if isinstance(found, m.Table) and own is not None:
        ask(m.AttemptOutcome(table=found.table, attempt=own))


def _rival(scope: Scope, ask: Ask, stalled: m.Request | None) -> None:
    """Wants the version that the stalled process is about, or the next one, and publishes everything."""
    found = ask(m.LoadTable(name=TABLE))
    if not isinstance(found, m.Table):
        if isinstance(stalled, Making):
            ask(scope.made(attempt(RIVAL)))
        return
    late = isinstance(stalled, m.AttemptOutcome)
    latest = -1 if found.latest is None else found.latest
    version = stalled.version if isinstance(stalled, m.Commit | m.HandBack) else latest + 1
    ask(append(found.table, version, stalled.attempt if late else attempt(RIVAL + version)))  # type: ignore[union-attr]
    ask(m.BackfillToVersion(table=found.table, version=version))
