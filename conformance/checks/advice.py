"""Advice of the documents that can be observed: an owner that does not follow it gets a warning, never a violation.

managed-commits, "Creating a new managed-commit table" and "Commit Backfills"; catalog-managed, "Commit Protocol" and
"Publishing Commits".
"""

from __future__ import annotations

from typing import Final

from conformance.checks.registry import check
from conformance.interface import messages as m
from conformance.requirements.catalogue import Profile
from conformance.scenario.check import Family
from conformance.scenario.formatting import in_words
from conformance.scenario.scenario import Inconclusive, Scenario

WAITING: Final = 8
"""Commits after which a part of them should be published."""


@check(Family.CONCURRENT_WRITERS, "CM-COMMIT-09", features=("catalogManaged",), commit_modes=("staged", "inline"))
def a_conflict_tells_what_was_ratified(s: Scenario) -> None:
    """A writer loses version 1, and version 2 is ratified too: the conflict has the commits that it lacks, or at
    least the latest version, so that the writer need not ask for them."""
    table = s.create()
    s.land_all(table, 2)
    lost = s.contend(table, 1, client="other")
    if not isinstance(lost.answer, m.Conflict):
        raise Inconclusive(f"operation {lost.number}: expected a conflict, not {in_words(lost.answer)}")
    s.require(
        bool(lost.answer.winners) or lost.answer.latest is not None, "CM-COMMIT-09", evidence=(lost,), table=table,
        expected="the conflict names the latest ratified commits",
        observed="the conflict has neither the latest version nor the winners",
    )  # fmt: skip


@check(Family.VERSION_0, "MC-CREATE-01", needs=(Profile.VERSION_0_BY_OWNER,), features=("managedCommit",))
def version_0_needs_no_backfill(s: Scenario) -> None:
    """Version 0 of a new table is a published commit at once, so that creators with and without the owner meet."""
    table = s.create()
    s.require(
        0 in s.published(table), "MC-CREATE-01", table=table, version=0,
        expected="version 0 is written directly as a backfilled commit",
        observed="a new table has no published version 0",
    )  # fmt: skip


@check(Family.BACKFILL, "MC-BACKFILL-04", "CM-PUBLISH-05", commit_modes=("staged", "inline"))
def commits_are_published_without_a_request(s: Scenario) -> None:
    """A table whose publishing is left to the owner gets eight commits, and is read between them: some of them are
    published without a request."""
    table = s.create(backfill="subject")
    for _ in range(WAITING):
        s.land(table)
        s.get_commits(table)
    s.require(
        max(s.published(table), default=0) > 0, "MC-BACKFILL-04", "CM-PUBLISH-05", table=table,
        expected="the owner publishes commits soon and often, without a request",
        observed=f"not one of {WAITING} commits was published when the last one was ratified",
    )  # fmt: skip
