"""Writers: one transaction, one commit, whatever happens on the way."""

from __future__ import annotations

from conformance.checks.registry import Family, check
from conformance.interface import messages as m
from conformance.scenario.client import ClientScenario


@check(Family.WRITING, "PROFILE-CLIENT-02", "PROFILE-UNKNOWN-01", "MC-COMMIT-06", "CM-COMMIT-06", side="client")
def a_lost_answer_is_resolved_before_anything_is_proposed_again(s: ClientScenario) -> None:
    """A writer whose commit landed but whose answer was lost reports success, and the table has its files once."""
    table = s.create()
    marker = s.attempt()
    request = m.Transact(table=s.name_of(table), marker=marker, adds=(m.DataFile(path="a.parquet"),))
    s.owner.on(m.Commit, lose_answer=True)
    told = s.act("writer", request)
    table.versions = 2
    done = s.expect(told, m.Committed, "PROFILE-UNKNOWN-01", "MC-COMMIT-06", expected="the transaction is version 1")
    s.require(
        done.version == 1, "PROFILE-UNKNOWN-01", told=(told,),
        expected="the transaction landed as version 1 before its answer was lost: it is version 1, once",
        observed=f"committed as version {done.version}",
    )  # fmt: skip
