"""Giving a table back to the filesystem: what its owner does before, with the last commit, and never again.

The variations: with a backlog and without, a proposal that lost its version or came too early, a commit on its way
meanwhile, the same proposal again, what filesystem writers do next, and the way back. managed-commits, "Converting a
managed-commit table to filesystem table".
"""

from __future__ import annotations

from conformance.checks.ownership import MANAGED, TRANSFER, ratifies
from conformance.checks.registry import Family, check
from conformance.interface import messages as m
from conformance.requirements.catalogue import Profile
from conformance.scenario.ownership import (
    file_of,
    filesystem_table,
    given_back,
    giving_back,
    hand_back,
    owned,
    restart,
    take_over,
    taking_over,
    write_file,
)
from conformance.scenario.scenario import TRIES, Inconclusive, Scenario, TableHandle, Told

GIVEN = (Profile.OWNERSHIP_TRANSFER,)


def refused(s: Scenario, table: TableHandle, told: Told, because: Told) -> None:
    """A commit that came after the table was given back."""
    version = getattr(told.request, "version", 0)
    s.require(
        not isinstance(told.answer, m.Ratified), "MC-RELEASE-04", told=(told, because), table=table, version=version,
        expected="the owner gave the table back, so it ratifies nothing more for it",
        observed=f"it ratified version {version}",
    )  # fmt: skip


@check(Family.OWNERSHIP, "PROFILE-TRANSFER-01", "MC-RELEASE-05", needs=GIVEN, features=MANAGED)
def a_table_is_given_back(s: Scenario) -> None:
    """Asked to give a table back, the owner does it with the version that was proposed. An owner may refuse that for
    some tables, not for every one."""
    table = s.create()
    s.land(table)
    for _ in range(TRIES):
        told = s.ask("migrator", giving_back(s, table))
        if not isinstance(told.answer, m.Rejected):
            break
    ratified = s.expect(
        told, m.Ratified, "PROFILE-TRANSFER-01", expected="version 2 is the table's next: it is given back with it"
    )
    s.require(ratified.version == 2, "PROFILE-TRANSFER-01", told=(told,), expected="given back with version 2",
              observed=f"with version {ratified.version}")  # fmt: skip
    given_back(s, table, told)


@check(Family.OWNERSHIP, "MC-RELEASE-03", "MC-RELEASE-05", "MC-RELEASE-07", needs=GIVEN, features=MANAGED)
def whatever_was_not_backfilled_is_before_the_table_is_given_back(s: Scenario) -> None:
    """Three commits wait for their backfill when the table is given back. Nobody asks the owner for them any more, so
    all of them are published by then."""
    table = s.create()
    for _ in range(3):
        s.land(table)
    told = hand_back(s, table)
    log = s.published(table)
    missing = [version for version in range(4) if version not in log]
    s.require(
        not missing, "MC-RELEASE-03", told=(told,), table=table, version=missing[0] if missing else None,
        expected="versions 0 to 3 are published before the table is given back with version 4",
        observed=f"{', '.join(map(file_of, missing))} missing",
    )  # fmt: skip


@check(Family.OWNERSHIP, "MC-RELEASE-04", needs=GIVEN, features=MANAGED)
def an_owner_that_gave_a_table_back_ratifies_nothing_more(s: Scenario) -> None:
    """Two writers do not know that the table was given back: one whose proposal was on its way, and one that proposes
    afterwards. Both are refused; before that a commit was ratified."""
    table = s.create()
    s.land(table)
    late = s.delay("slow", s.proposal(table, 3))
    told = hand_back(s, table)
    refused(s, table, s.deliver(late), told)
    refused(s, table, s.commit(table, 3, client="other"), told)
    refused(s, table, s.commit(table, 3, client="other"), told)


@check(Family.OWNERSHIP, "MC-RELEASE-04", "MC-RELEASE-03", needs=TRANSFER, features=MANAGED)
def filesystem_writers_go_on_where_the_owner_stopped(s: Scenario) -> None:
    """A table is taken over, committed to, and given back. Filesystem writers see a filesystem table: they commit the
    next versions, and the owner neither refuses nor replaces them."""
    table = filesystem_table(s, versions=1)
    take_over(s, table)
    s.land(table)
    told = hand_back(s, table)
    written = [write_file(s, table) for _ in range(2)]
    if not all(won for _, won in written):
        refused(s, table, written[0][0], told)
    before = s.published(table)
    refused(s, table, s.commit(table, 6, client="other"), told)
    refused(s, table, s.commit(table, 4, client="other"), told)
    s.require(
        s.published(table) == before and sorted(before) == [0, 1, 2, 3, 4, 5], "MC-RELEASE-04", told=(told,),
        table=table, expected="versions 4 and 5 are the filesystem writers', and stay so",
        observed=f"versions {sorted(before)}, or another content",
    )  # fmt: skip


@check(Family.OWNERSHIP, "MC-COMMIT-02", "MC-COMMIT-01", "MC-FEATURE-03", needs=GIVEN, features=MANAGED)
def a_table_is_not_given_back_out_of_turn(s: Scenario) -> None:
    """A proposal to give the table back loses its version to a commit; another comes two versions too early. Both are
    refused, the owner goes on to own the table and to ratify, and the table is given back with the right version."""
    table = s.create()
    s.land(table)
    lost = s.ask("migrator", giving_back(s, table, 1))
    s.expect(lost, (m.Conflict, m.Rejected), "MC-COMMIT-02", expected="version 1 is taken: the table is not given back")
    early = s.ask("migrator", giving_back(s, table, 4))
    s.expect(early, (m.Gap, m.Rejected), "MC-COMMIT-01", expected="version 3 is missing: the table is not given back")
    for _ in range(TRIES):
        told = s.commit(table, client="other")
        if not isinstance(told.answer, m.Rejected):
            break
    s.expect(
        told, m.Ratified, "MC-FEATURE-03", "MC-CONVERT-06", because=(lost, early),
        expected="the owner refused to give the table back, so nothing changed: it ratifies version 2",
    )  # fmt: skip
    table.versions = 3
    hand_back(s, table)


@check(Family.OWNERSHIP, "PROFILE-RETRY-01", "PROFILE-CORE-06", needs=(*GIVEN, Profile.IDEMPOTENT_RETRY),
       features=MANAGED)  # fmt: skip
def a_hand_back_that_is_sent_again_is_ratified_again(s: Scenario) -> None:
    """The answer to a hand-back is lost. Sent again it is answered as ratified, although the owner has given the table
    back; it is not told that it is too late, which would leave its sender in doubt."""
    table = s.create()
    s.land(table)
    for _ in range(TRIES):
        sent = s.lose("migrator", giving_back(s, table))
        if not isinstance(sent.answer, m.Rejected):
            break
    if not isinstance(sent.answer, m.Ratified):
        raise Inconclusive(f"operation {sent.number}: the table was not given back")
    given_back(s, table, sent)
    again = s.ask("migrator", sent.request)
    s.expect(again, m.Ratified, "PROFILE-RETRY-01", because=(sent,),
             expected="the table was given back with version 2 by this attempt: ratified")  # fmt: skip


@check(Family.OWNERSHIP, "MC-CONVERT-02", "MC-CONVERT-05", needs=TRANSFER, features=MANAGED)
def a_table_that_was_given_back_is_taken_over_where_it_is_now(s: Scenario) -> None:
    """A table is given back, filesystem writers commit two versions, and the same owner takes it over again. It is the
    version after theirs, and what the owner remembers of the first time is of no account."""
    table = filesystem_table(s, versions=1)
    take_over(s, table)
    s.land(table)
    hand_back(s, table)
    write_file(s, table)
    write_file(s, table)
    stale = s.ask("migrator", taking_over(s, table, 4), table)
    s.expect(stale, (m.Conflict, m.Rejected), "MC-CONVERT-05", "MC-CONVERT-02",
             expected="version 4 is a filesystem writer's: the take-over is refused")  # fmt: skip
    for _ in range(TRIES):
        change = s.ask("migrator", taking_over(s, table), table)
        if not isinstance(change.answer, m.Rejected):
            break
    ratified = s.expect(
        change, m.Ratified, "MC-CONVERT-02", may_refuse=True, expected="version 6 is the table's next: taken over"
    )
    owned(s, table, change, ratified)
    ratifies(s, table, change)
    s.contend(table, 5, client="other")


@check(
    Family.OWNERSHIP, "MC-RELEASE-04", "PROFILE-DURABLE-01", needs=(*GIVEN, Profile.DURABLE_RESTART), features=MANAGED
)
def a_restart_does_not_bring_the_ownership_back(s: Scenario) -> None:
    """An owner that gave a table back and restarts ratifies nothing for it; another table, which it still owns, goes
    on."""
    table = s.create()
    kept = s.create("kept")
    s.land(table)
    told = hand_back(s, table)
    restart(s)
    refused(s, table, s.commit(table, 3, client="other"), told)
    s.land(kept)
