"""What maintenance an owner allows, as it tells clients.

The variations: of a new table, of one whose commits wait for their backfill, of one that has been backfilled, for
several clients. catalog-managed, "Maintenance Operations on Catalog-managed Tables", in its tightened form:
checkpoints, log compactions and checksums are always allowed, everything else only where the owner says so.
"""

from __future__ import annotations

from conformance.checks.registry import Family, check
from conformance.interface import messages as m
from conformance.requirements.catalogue import Profile
from conformance.scenario.ownership import restart
from conformance.scenario.scenario import Scenario, TableHandle

ALWAYS = ("checkpoint", "log-compaction", "checksum")
POLICY = (Profile.MAINTENANCE_POLICY,)


def allows(s: Scenario, table: TableHandle, client: str = "maintenance") -> tuple[str, ...]:
    """What the owner allows now."""
    told = s.ask(client, m.MaintenancePolicy(table=table.reference))
    allowed = s.expect(told, m.Policy, "PROFILE-POLICY-01", expected="which maintenance the table allows").allowed
    missing = [job for job in ALWAYS if job not in allowed]
    s.require(
        not missing,
        "PROFILE-POLICY-01",
        told=(told,),
        table=table,
        expected=f"{', '.join(ALWAYS)} are always allowed",
        observed=f"{', '.join(missing)} not among {', '.join(allowed) or 'nothing'}",
    )
    return allowed


@check(Family.MAINTENANCE, "PROFILE-POLICY-01", needs=POLICY)
def checkpoints_compactions_and_checksums_are_always_allowed(s: Scenario) -> None:
    """Asked for its policy, the owner allows checkpoints, log compactions and checksums: of a new table, while commits
    wait for their backfill, and afterwards."""
    table = s.create()
    allows(s, table)
    s.land(table)
    s.land(table)
    allows(s, table)
    s.backfill(table, 1)
    allows(s, table, "other")
    s.backfill(table, 2)
    allows(s, table)


@check(Family.MAINTENANCE, "PROFILE-POLICY-01", needs=POLICY)
def the_policy_is_the_same_for_every_table_that_nobody_changed(s: Scenario) -> None:
    """The policy is the table's: another table is asked for its own, and of one that does not exist nothing is told."""
    table, other = s.create("orders"), s.create("items")
    s.land(other)
    allows(s, table)
    allows(s, other)
    nowhere = s.ask("maintenance", m.MaintenancePolicy(table=f"{table.reference}-that-nobody-made"))
    s.expect(
        nowhere,
        (m.NotFound, m.Rejected, m.Unsupported),
        "PROFILE-POLICY-01",
        expected="there is no such table, so there is nothing to be allowed",
    )


@check(Family.MAINTENANCE, "PROFILE-POLICY-01", "PROFILE-DURABLE-03", needs=(*POLICY, Profile.DURABLE_RESTART))
def the_policy_outlives_a_restart(s: Scenario) -> None:
    """After a restart the owner tells the policy that it told before."""
    table = s.create()
    before = allows(s, table)
    restart(s)
    after = allows(s, table)
    s.require(
        set(before) == set(after),
        "PROFILE-POLICY-01",
        "PROFILE-DURABLE-03",
        table=table,
        expected=f"as before the restart: {', '.join(before)}",
        observed=", ".join(after),
    )
