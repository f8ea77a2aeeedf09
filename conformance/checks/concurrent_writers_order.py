"""Concurrent writers: a version is ratified only after the one before it, and a proposal that was refused is over.

The variations: how far ahead a proposal is (one version, many), of which table (new, with commits, all published), how
many are too early at once, and what comes afterwards. managed-commits, "Commit Protocol"; catalog-managed, "Commit
Protocol".
"""

from __future__ import annotations

from conformance.checks.registry import Family, check
from conformance.interface.messages import Conflict, Gap, Rejected
from conformance.scenario import reads
from conformance.scenario.scenario import Scenario, TableHandle, Told

ORDER = ("MC-COMMIT-01", "CM-COMMIT-07", "MC-COMMIT-07")
EARLY = ("MC-COMMIT-07", "MC-COMMIT-01", "CM-COMMIT-07")
"""What is violated by ratifying a version too early: the rule for files that are written directly, where it holds."""
REFUSED = ("MC-FEATURE-03", "CM-COMMIT-01")


def too_early(s: Scenario, table: TableHandle, version: int, client: str = "hasty") -> Told:
    """Propose a version whose predecessor is missing: any refusal will do."""
    told = s.commit(table, version, client=client)
    s.expect(told, (Gap, Rejected, Conflict), *EARLY,
             expected=f"version {table.versions - 1} is the latest: version {version} is not ratified before version "
             f"{version - 1} is")  # fmt: skip
    return told


@check(Family.CONCURRENT_WRITERS, *ORDER, "PROFILE-CORE-05")
def a_version_is_ratified_only_after_the_one_before(s: Scenario) -> None:
    """With version 1 as the latest, a proposal of version 3 is refused, and a stranger sees no version 3. Once another
    writer has landed version 2, version 3 is ratified."""
    table = s.create()
    s.land(table)
    early = too_early(s, table, 3)
    s.require(3 not in s.published(table), *EARLY, told=(early,), table=table, version=3,
              expected="version 3 is refused, and not published", observed="its file is there")  # fmt: skip
    s.land(table)
    s.land(table, client="hasty")


@check(Family.CONCURRENT_WRITERS, *ORDER)
def the_first_commit_of_a_table_is_version_1(s: Scenario) -> None:
    """A table that was just created has version 0, so its first commit is version 1: proposals of versions 2 and 5 are
    refused, version 1 is ratified."""
    table = s.create()
    too_early(s, table, 5)
    too_early(s, table, 2)
    s.land(table)


@check(Family.CONCURRENT_WRITERS, *ORDER, "PROFILE-CORE-05")
def publishing_does_not_change_which_version_is_next(s: Scenario) -> None:
    """With versions 1 and 2 published, and perhaps forgotten by the owner, version 4 is as early as before, and
    version 3 is the next."""
    table = s.create()
    for _ in range(2):
        s.land(table)
    s.backfill(table, 2)
    too_early(s, table, 4)
    s.land(table)


@check(Family.CONCURRENT_WRITERS, *REFUSED, *ORDER)
def a_proposal_that_came_too_early_does_not_land_later(s: Scenario) -> None:
    """A proposal of version 3 is refused because version 2 is missing. A refusal is final: when another writer lands
    version 2, version 3 is still free, and whoever proposes it then gets it."""
    table = s.create()
    s.land(table)
    early = too_early(s, table, 3)
    s.land(table, client="other")
    seen = reads.ask(s, table)
    s.require(seen.latest is None or seen.latest <= 2, *REFUSED, told=(early, seen.told), table=table, version=3,
              expected="version 3 was refused: version 2 is the latest",
              observed=f"the latest version is {seen.latest}")  # fmt: skip
    s.land(table, client="other")


@check(Family.CONCURRENT_WRITERS, *ORDER, *REFUSED)
def early_proposals_that_arrive_in_reverse_land_none(s: Scenario) -> None:
    """Proposals of versions 4, 3 and 2 arrive, in this order, before any of version 1. None of them is ratified. Then
    versions 1 to 4 are committed one after the other, by others."""
    table = s.create()
    sent = [s.delay(f"hasty {version}", s.proposal(table, version)) for version in (2, 3, 4)]
    for delayed in reversed(sent):
        s.expect(s.deliver(delayed), (Gap, Rejected, Conflict), *EARLY,
                 expected="no commit follows version 0 yet: nothing but version 1 is ratified")  # fmt: skip
    for _ in range(4):
        s.land(table, client="patient")
    reads.ask(s, table)


@check(Family.CONCURRENT_WRITERS, *REFUSED, "MC-FEATURE-02", "CM-FEATURE-01")
def whoever_is_refused_is_not_in_the_log(s: Scenario) -> None:
    """One writer loses version 1, another comes too early with version 3. Both were refused: neither is listed or
    published, then or after the winner has gone on and everything is published."""
    table = s.create()
    s.land(table, client="first")
    lost = s.contend(table, 1, client="second")
    early = too_early(s, table, 3)
    for _ in range(2):
        s.land(table, client="first")
    refused = {lost.request.attempt, early.request.attempt}  # type: ignore[union-attr]
    seen = reads.ask(s, table)
    for version, commit in seen.commits.items():
        s.require(not any(each in (commit.file_name or "") for each in refused), *REFUSED, told=(lost, seen.told),
                  table=table, version=version, expected="an attempt that was refused is not in the log",
                  observed=f"version {version} is listed as {commit.file_name}")  # fmt: skip
    s.backfill(table, 3)
    s.published(table)
