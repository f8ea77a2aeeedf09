"""Writers that lose more than once: every race is looked into, and silence is no success.

The variations: which of several lost races has the conflict; what stays unknown after a commit of which nobody hears.
"""

from __future__ import annotations

from functools import partial

from conformance.checks.conflicts import added, prepare, removed
from conformance.checks.registry import Family, check
from conformance.checks.writing import append
from conformance.interface import messages as m
from conformance.interface.messages import Isolation, Transact
from conformance.scenario import proposals
from conformance.scenario.client import ClientScenario
from conformance.scenario.scenario import TableHandle
from conformance.scenario.words import in_words

RACES = 5
OFTEN = 1_000
"""More requests than any client may make."""


@check(Family.CONFLICTS, "CONFLICT-RETRY-04", "CONFLICT-RETRY-01", side="client")
def the_last_of_many_lost_races_is_looked_into(s: ClientScenario) -> None:
    """A transaction that removes the file `a` loses five versions in a row, each in the moment it is proposed. The
    first four winners add files, the last one removes `a`: it ends with a conflict. Another one, which loses to
    appends only, is committed, unless it gives up, which it should not."""
    for name, conflicts in (("taken", True), ("passed", False)):
        table = prepare(s, name)
        winners = [added(s, f"theirs-{number}") for number in range(RACES)]
        if conflicts:
            winners[-1] = removed(s, "a")
        for winner in winners:
            s.owner.on(m.Commit, before=partial(_wins, s, table, winner))
        mine = Transact(table=s.name_of(table), marker=s.attempt(), removes=("a",), isolation=Isolation.SNAPSHOT)
        told = s.act("writer", mine)
        right = isinstance(told.answer, m.Conflict | m.Rejected if conflicts else m.Committed)
        why = "the fifth winner removed the file `a`" if conflicts else "five winners only added files"
        s.require(
            right, "CONFLICT-RETRY-04" if conflicts else "CONFLICT-RETRY-01", told=(told,), table=table,
            expected=f"{why}: {'a conflict' if conflicts else 'the transaction is committed after them'}",
            observed=in_words(told.answer),
        )  # fmt: skip
        s.owner.rules.clear()
        if isinstance(told.answer, m.Committed):
            table.versions += 1


def _wins(s: ClientScenario, table: TableHandle, action: str) -> None:
    """Another writer is faster."""
    attempt = s.attempt()
    info = proposals.commit_info(attempt, s.timestamp(table.versions))
    s.land(table, client="winner", attempt=attempt, actions=(info, action))


@check(Family.REPLAYS, "PROFILE-UNKNOWN-01", "PROFILE-CLIENT-02", side="client")
def silence_is_no_success(s: ClientScenario) -> None:
    """No request of the writer arrives once it has read the table: neither its commit nor any question what became of
    it. Nothing is committed, and it does not say so. A writer that is heard commits."""
    table = s.create()
    s.owner.on(m.Commit, lose_request=True, times=OFTEN)
    s.owner.on(m.AttemptOutcome, lose_request=True, times=OFTEN)
    told = append(s, table)
    s.require(
        not isinstance(told.answer, m.Committed), "PROFILE-UNKNOWN-01", "PROFILE-CLIENT-02", told=(told,), table=table,
        expected="nobody answered, and nothing was ratified: no success", observed=in_words(told.answer),
    )  # fmt: skip
    s.owner.rules.clear()
    again = append(s, table, "heard")
    s.expect(again, m.Committed, "PROFILE-CLIENT-02", expected="the owner answers again: version 1")
    table.versions = 2
