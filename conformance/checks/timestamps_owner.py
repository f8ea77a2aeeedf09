"""In-commit timestamps, as far as they are an owner's business: they are part of what a writer proposes.

The variations: times far from the wall clock, times that do not increase, times that the owner tells beside its
commits. An owner may look at times and refuse (RULINGS.md#validation), or not look; it changes
none: they are the writer's to choose (in-commit timestamps), and the content of a commit never changes
(catalog-managed, "Publishing Commits").
"""

from __future__ import annotations

import json

from conformance.checks.registry import Family, check
from conformance.history import digests
from conformance.interface import messages as m
from conformance.scenario import proposals
from conformance.scenario.scenario import Scenario, TableHandle, Told

CENTURY = 100 * 365 * 86_400_000
CONTENT = ("MC-API-03", "CM-CATALOG-03", "CM-PUBLISH-03")


def timed(s: Scenario, table: TableHandle, time: int) -> m.Commit:
    """A proposal of the next version with this in-commit timestamp."""
    attempt = s.attempt()
    return s.proposal(table, attempt=attempt, actions=proposals.append(attempt, time))


def time_of(content: str) -> int | None:
    """The in-commit timestamp of a published commit."""
    info = json.loads(content.partition("\n")[0]).get("commitInfo", {})
    found = info.get("inCommitTimestamp")
    return found if isinstance(found, int) else None


def unchanged(s: Scenario, table: TableHandle, sent: list[Told]) -> None:
    """What was ratified is published as it was proposed, its time included."""
    s.backfill(table, table.versions - 1)
    log = s.published(table)
    for told in sent:
        assert isinstance(told.request, m.Commit)
        version, actions = told.request.version, told.request.actions or ()
        content = log.get(version, "")
        wanted = time_of(proposals.content(actions))
        same = digests.of_file(content.encode("utf-8", "surrogatepass")).actions == digests.of_actions(actions)
        s.require(
            same,
            *CONTENT,
            told=(told,),
            table=table,
            version=version,
            expected=f"version {version} says what was proposed, at the time {wanted}",
            observed=f"it says something else, at the time {time_of(content) if content else None}",
        )


@check(Family.TIMESTAMPS, *CONTENT)
def times_far_from_the_wall_clock_stay_as_they_are(s: Scenario) -> None:
    """Writers' clocks may be wrong by a hundred years, and times have to increase all the same. The owner may not like
    such a time; if it ratifies the commit, the commit says that time."""
    table = s.create()
    sent = []
    for step in (1, 2):
        told = s.ask("writer", timed(s, table, proposals.BASE_TIME + CENTURY + step))
        s.expect(told, m.Ratified, "PROFILE-CORE-05", may_refuse=True, expected=f"version {table.versions} is the next")
        table.versions += 1
        sent.append(told)
    unchanged(s, table, sent)


@check(Family.TIMESTAMPS, *CONTENT, "MC-FEATURE-03", "CM-COMMIT-01")
def a_time_that_does_not_increase_is_refused_or_left_alone(s: Scenario) -> None:
    """A writer that does it wrong proposes a time that is not later than that of the version before. The owner may
    refuse that or not look at it. It does not put it right: others have read what was proposed, and a commit never
    changes. The next commit, with a later time, is as it was proposed too."""
    table = s.create()
    first = s.land(table)
    assert isinstance(first.request, m.Commit)
    told = s.ask("writer", timed(s, table, s.timestamp(1)))
    s.expect(
        told,
        (m.Ratified, m.Rejected),
        "PROFILE-CORE-05",
        "PROFILE-CORE-03",
        expected="version 2: ratified, or rejected",
    )
    sent = [first]
    if isinstance(told.answer, m.Ratified):
        table.versions += 1
        sent.append(told)
    sent.append(s.land(table))
    unchanged(s, table, sent)


@check(Family.TIMESTAMPS, "MC-API-04", "CM-CATALOG-04")
def a_time_that_the_owner_tells_is_that_of_the_commit(s: Scenario) -> None:
    """An owner that tells the times of the commits that it lists tells what the commits say, not when it ratified
    them."""
    table = s.create()
    for _ in range(2):
        s.land(table)
    told = s.ask("reader", m.GetCommits(table=table.reference))
    listed = s.expect(told, m.Commits, "PROFILE-CORE-03", expected="the commits and the latest version")
    for commit in listed.commits:
        wanted = s.timestamp(commit.version)
        s.require(
            commit.in_commit_timestamp in (None, wanted),
            "MC-API-04",
            "CM-CATALOG-04",
            told=(told,),
            table=table,
            version=commit.version,
            expected=f"the in-commit timestamp of version {commit.version} is {wanted}",
            observed=f"{commit.in_commit_timestamp} is told",
        )
