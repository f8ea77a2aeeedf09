"""Writers and the answers they may get: old conflicts, no latest version, a refilled backlog, lost answers."""

from __future__ import annotations

from functools import partial

import msgspec

from conformance.checks.conflicts import added, prepare, removed
from conformance.checks.registry import check
from conformance.checks.writing import UNKNOWN, append, landed
from conformance.interface import messages as m
from conformance.interface.messages import Isolation, Transact
from conformance.models import proposals
from conformance.requirements.catalogue import Profile
from conformance.scenario.check import Family
from conformance.scenario.client import ClientScenario
from conformance.scenario.formatting import in_words
from conformance.scenario.scenario import TableHandle

OFTEN = 1_000
"""More requests than any client may make."""


@check(Family.REPLAYS, *UNKNOWN, side="client")
def a_client_repeats_a_lost_lookup(s: ClientScenario) -> None:
    """The answer to a commit is lost, and so are the first two lookups. The writer reports its one commit."""
    table = s.create()
    s.owner.on(m.Commit, lose_answer=True)
    s.owner.on(m.AttemptOutcome, lose_request=True, times=2)
    landed(s, table, append(s, table), 1, *UNKNOWN, why="it was ratified before the answer was lost")


@check(Family.WRITING, "CONFLICT-RETRY-05", "FIELD-04", side="client")
def a_conflict_may_be_out_of_date(s: ClientScenario) -> None:
    """A conflict names an old latest version and old winners: the writer continues from what it finds, and is committed
    after the last winner."""
    table = s.create()
    winners = [s.proposal(table, version) for version in (1, 2, 3)]
    s.owner.on(
        m.Commit, before=lambda: [s.ask("winner", winner) for winner in winners],
        change=lambda call: m.Conflict(latest=0, winners=()) if isinstance(call, m.Conflict) else call,
    )  # fmt: skip
    table.versions = 4
    landed(s, table, append(s, table), 4, "CONFLICT-RETRY-05", why="three others were faster, and none conflicts")


@check(Family.WRITING, "PROFILE-CLIENT-02", "CONFLICT-RETRY-05", side="client", features=("managedCommit",))
def a_missing_latest_version_is_no_empty_table(s: ClientScenario) -> None:
    """An owner without staged commits may return no latest version, or -1, for a table with versions: the writer
    proposes the version after those that it sees."""
    for name, nothing in (("none", None), ("minus-one", -1)):
        table = s.create(name)
        rules = [
            s.owner.on(kind, change=partial(_untold, nothing), times=OFTEN) for kind in (m.GetCommits, m.LoadTable)
        ]
        landed(s, table, append(s, table), 1, "PROFILE-CLIENT-02", why="version 0 is there for everybody to see")
        for rule in rules:
            rule.times = 0


def _untold(latest: int | None, call: m.Answer) -> m.Answer:
    """The answer of an owner that has nothing staged, with this as the latest version."""
    if isinstance(call, m.Commits | m.Table) and not call.commits:
        return msgspec.structs.replace(call, latest=latest)
    return call


@check(
    Family.LIMITS, "PROFILE-BACKLOG-03",
    side="client", commit_modes=("staged", "inline"), needs=(Profile.BACKLOG_LIMIT,),
)  # fmt: skip
def a_client_backfills_a_refilled_backlog(s: ClientScenario) -> None:
    """The writer has a full backlog backfilled, and other writers fill it first: it requests another backfill, and
    commits."""
    table = s.create(backlog_limit=2)
    s.land(table)
    s.land(table)

    def fill() -> None:
        s.land_all(table, 2, client="faster")

    s.owner.on(m.BackfillToVersion, after=fill)
    call = append(s, table)
    landed(s, table, call, table.versions, "PROFILE-BACKLOG-03", why="what fills the backlog can be backfilled")


# Repeated races, and no answer

RACES = 5
OFTEN = 1_000
"""More requests than any client may make."""


@check(Family.CONFLICTS, "CONFLICT-RETRY-04", "CONFLICT-RETRY-01", side="client")
def the_last_of_many_lost_races_is_checked(s: ClientScenario) -> None:
    """A transaction that removes file `a` loses five versions in a row. The first four winners add files, the last one
    removes `a`: it fails. Another transaction, which loses to appends only, is committed or, against advice, gives
    up."""
    for name, conflicts in (("taken", True), ("passed", False)):
        table = prepare(s, name)
        winners = [added(s, f"theirs-{number}") for number in range(RACES)]
        if conflicts:
            winners[-1] = removed(s, "a")
        for winner in winners:
            s.owner.on(m.Commit, before=partial(_wins, s, table, winner))
        mine = Transact(table=s.name_of(table), marker=s.attempt(), removes=("a",), isolation=Isolation.SNAPSHOT)
        call = s.act("writer", mine)
        right = isinstance(call.answer, m.Conflict | m.Rejected if conflicts else m.Committed)
        why = "the fifth winner removed the file `a`" if conflicts else "five winners only added files"
        s.require(
            right, "CONFLICT-RETRY-04" if conflicts else "CONFLICT-RETRY-01", evidence=(call,), table=table,
            expected=f"{why}: {'a conflict' if conflicts else 'the transaction is committed after them'}",
            observed=f"the transaction was answered {in_words(call.answer)}",
        )  # fmt: skip
        s.owner.rules.clear()
        if isinstance(call.answer, m.Committed):
            table.versions += 1


def _wins(s: ClientScenario, table: TableHandle, action: str) -> None:
    """Another writer is faster."""
    attempt = s.attempt()
    info = proposals.commit_info(attempt, s.timestamp(table.versions))
    s.land(table, client="winner", attempt=attempt, actions=(info, action))


@check(Family.REPLAYS, "PROFILE-UNKNOWN-01", "PROFILE-CLIENT-02", side="client")
def no_answer_is_no_success(s: ClientScenario) -> None:
    """No request of the writer arrives after it read the table: neither its commit nor any lookup. It does not report
    success. A writer that is heard commits."""
    table = s.create()
    s.owner.on(m.Commit, lose_request=True, times=OFTEN)
    s.owner.on(m.AttemptOutcome, lose_request=True, times=OFTEN)
    call = append(s, table)
    s.require(
        not isinstance(call.answer, m.Committed), "PROFILE-UNKNOWN-01", "PROFILE-CLIENT-02", evidence=(call,),
        table=table,
        expected="no request was answered, and nothing was ratified: no success",
        observed=f"the transaction was answered {in_words(call.answer)}",
    )  # fmt: skip
    s.owner.rules.clear()
    again = append(s, table, "heard")
    s.expect(again, m.Committed, "PROFILE-CLIENT-02", expected="the owner answers again: version 1")
    table.versions = 2
