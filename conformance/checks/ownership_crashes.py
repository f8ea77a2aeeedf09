"""Changes of ownership and crashes: whatever the owner was about to do, the table has one owner afterwards, or none.

An owner that can be told where to die (`crash_points`) dies at each of its points in turn. managed-commits, "Converting
an existing filesystem based table to managed-commit table": the promise is durable before the file is written, and the
file decides.
"""

from __future__ import annotations

from conformance.checks.ownership import MANAGED, TRANSFER, ratifies
from conformance.checks.ownership_back import GIVEN, refused
from conformance.checks.registry import Family, check
from conformance.interface import messages as m
from conformance.requirements.catalogue import Profile
from conformance.scenario import proposals
from conformance.scenario.ownership import (
    crash,
    filesystem_table,
    given_back,
    giving_back,
    owned,
    restart,
    taking_over,
    write_file,
)
from conformance.scenario.scenario import TRIES, Scenario, TableHandle, Told

DEADLY = (Profile.HARNESS_CONTROL, Profile.DURABLE_RESTART, Profile.IDEMPOTENT_RETRY)


def attempt_at(s: Scenario, table: TableHandle, version: int) -> str | None:
    """The attempt whose published commit the version is."""
    content = s.published(table).get(version)
    return None if content is None else proposals.attempt_of(content)


def dies_at(s: Scenario, point: str, client: str, request: m.Request, table: TableHandle | None = None) -> Told:
    """Ask a subject that dies when it reaches the point. If it died it is started again; otherwise the next point that
    it is told takes the place of this one."""
    crash(s, point)
    told = s.ask(client, request, table)
    if isinstance(told.answer, m.Unknown):
        restart(s)
    return told


@check(Family.OWNERSHIP, "MC-CONVERT-07", "MC-CONVERT-08", "MC-CONVERT-03", "MC-CONVERT-09", "PROFILE-HARNESS-01",
       needs=(*TRANSFER, *DEADLY), features=MANAGED)  # fmt: skip
def a_take_over_that_a_crash_interrupts_was_one_or_was_none(s: Scenario) -> None:
    """The owner dies while it takes a table over. If the ownership change is visible when it is back, it owns the table
    and ratifies its next commits, whoever noticed; if not, the table is a filesystem table, its writers go on, and it
    can be taken over anew."""
    for number, point in enumerate(s.identity.crash_points):
        table = filesystem_table(s, f"imports-{number}")
        request = taking_over(s, table)
        told = dies_at(s, point, "migrator", request, table)
        if not isinstance(told.answer, m.Unknown):
            continue
        if attempt_at(s, table, 1) is None:
            write_file(s, table, 1)
        if attempt_at(s, table, 1) == request.attempt:
            _is_owner(s, table, told, point)
        else:
            _is_no_owner(s, table, told, point)


def _is_owner(s: Scenario, table: TableHandle, interrupted: Told, point: str) -> None:
    again = s.ask("migrator", interrupted.request, table)
    ratified = s.expect(
        again, m.Ratified, "MC-CONVERT-08", "MC-CONVERT-07", because=(interrupted,),
        expected=f"version 1 is visible and names the owner, which died at {point} and had promised before to own the "
        f"table: it does, and tells who asks again that the take-over is ratified",
    )  # fmt: skip
    owned(s, table, again, ratified)
    ratifies(s, table, again)


def _is_no_owner(s: Scenario, table: TableHandle, interrupted: Told, point: str) -> None:
    for _ in range(TRIES):
        again = s.ask("migrator", taking_over(s, table, 2), table)
        if not isinstance(again.answer, m.Rejected):
            break
    ratified = s.expect(
        again, m.Ratified, "MC-CONVERT-03", "MC-CONVERT-09", because=(interrupted,),
        expected=f"the owner died at {point}, before its ownership change was visible, and version 1 is a filesystem "
        f"writer's: the owner does not own the table, and takes it over with version 2",
    )  # fmt: skip
    owned(s, table, again, ratified)
    ratifies(s, table, again)


@check(
    Family.OWNERSHIP, "MC-RELEASE-04", "MC-RELEASE-03", "PROFILE-HARNESS-01", needs=(*GIVEN, *DEADLY), features=MANAGED
)
def a_hand_back_that_a_crash_interrupts_was_one_or_was_none(s: Scenario) -> None:
    """The owner dies while it gives a table back. If the last commit is visible when it is back, it ratifies nothing
    more and everything before is published; if not, the proposal can be sent again, and is ratified then."""
    tables = [s.create(f"orders-{number}") for number, _ in enumerate(s.identity.crash_points)]
    for table in tables:
        s.land(table)
    for table, point in zip(tables, s.identity.crash_points, strict=True):
        request = giving_back(s, table)
        told = dies_at(s, point, "migrator", request)
        if not isinstance(told.answer, m.Unknown):
            continue
        if attempt_at(s, table, 2) != request.attempt:
            told = s.ask("migrator", request)
            s.expect(told, m.Ratified, "MC-RELEASE-05", "PROFILE-TRANSFER-01", may_refuse=True,
                     expected=f"the owner died at {point} and version 2 is not there: it is ratified now")  # fmt: skip
        given_back(s, table, told)
        s.require(sorted(s.published(table)) == [0, 1, 2], "MC-RELEASE-03", told=(told,), table=table,
                  expected="the table is given back with version 2: versions 0 to 2 are published",
                  observed="some are not")  # fmt: skip
        refused(s, table, s.commit(table, 3, client="other"), told)
