"""Stale reads: a range of versions is answered in full, whatever part of it is published already.

The variations: where the range starts and ends (before, at and after what is published; one version; beyond the
latest), with nothing, something and everything published. Owners may list published commits too, start later if those
before are published, and list nothing if everything is. managed-commits, "Getting Un-backfilled Commits from Commit
Owner"; catalog-managed, "Getting Ratified Commits from the Catalog".
"""

from __future__ import annotations

from conformance.checks.backfill_ordering import UNPUBLISHED
from conformance.checks.registry import Family, check
from conformance.checks.stale_reads import FRESH, fresh, land
from conformance.scenario import reads
from conformance.scenario.scenario import Scenario, TableHandle, Told
from conformance.scenario.words import range_in_words

RANGE = ("MC-GET-01", "CM-GET-03")
Range = tuple[int | None, int | None]


def well_formed(s: Scenario, table: TableHandle, seen: reads.Listed, asked: Range, *because: Told) -> None:
    """Ascending, each once, none left out in between; and it reaches the end of the range, or what follows is
    published."""
    listed = list(seen.order)
    told = (seen.told, *because)
    contiguous = list(range(listed[0], listed[0] + len(listed))) if listed else []
    s.require(listed == contiguous, "LOG-05", told=told, table=table,
              expected="commits are listed by ascending version, each once, none left out in between",
              observed=f"the list is {listed}")  # fmt: skip
    end = table.versions - 1 if asked[1] is None else min(asked[1], table.versions - 1)
    if listed and listed[-1] < end:
        published = s.published(table)
        missing = [version for version in range(listed[-1] + 1, end + 1) if version not in published]
        s.require(not missing, "LOG-07", told=told, table=table, version=missing[0] if missing else None,
                  expected=f"the list reaches version {end}, or what follows was published",
                  observed=f"it is {listed}, and {missing} are not published")  # fmt: skip


def answered_in_full(s: Scenario, table: TableHandle, asked: Range, published: set[int], *because: Told) -> None:
    """Every version of the range that is not published is listed. `published`: known before the question."""
    start, end = asked
    seen = reads.ask(s, table, start, end)
    last = table.versions - 1 if end is None else min(end, table.versions - 1)
    wanted = [version for version in range(start or 0, last + 1) if version not in published]
    missing = [version for version in wanted if version not in seen.commits]
    if missing:  # the owner may have published them just now
        now = s.published(table)
        missing = [version for version in missing if version not in now]
    s.require(not missing, *RANGE, told=(seen.told, *because), table=table, version=missing[0] if missing else None,
              expected=f"asked for {range_in_words(start, end)}: those of {wanted} that are not published are listed",
              observed=f"listed are {list(seen.order)}; {missing} are nowhere")  # fmt: skip
    well_formed(s, table, seen, asked, *because)
    fresh(s, table, seen, *because)


@check(Family.STALE_READS, "LOG-05", "LOG-07", *RANGE)
def the_list_is_ascending_and_reaches_the_latest_version(s: Scenario) -> None:
    """After each of four commits, and after a backfill of two of them, the list is ascending without a gap, and reaches
    the latest version that is told with it: both are of one state."""
    table = s.create()
    for _ in range(4):
        landed = s.land(table)
        well_formed(s, table, reads.ask(s, table), (None, None), landed)
    done = s.backfill(table, 2)
    well_formed(s, table, reads.ask(s, table), (None, None), done)


@check(Family.STALE_READS, *RANGE, "LOG-05", "LOG-07", *FRESH, commit_modes=UNPUBLISHED)
def ranges_of_unpublished_commits_are_answered_in_full(s: Scenario) -> None:
    """Of five commits that nobody asked to publish, every range is answered with all of its versions: from the first,
    up to the last, one version alone, one that ends beyond the latest. The latest version is told with each, whatever
    the range."""
    table = s.create()
    landed = land(s, table, 5)[-1]
    published = set(s.published(table))
    for asked in ((None, None), (1, 5), (2, 4), (3, 3), (None, 2), (4, None), (5, 9)):
        answered_in_full(s, table, asked, published, landed)


@check(Family.STALE_READS, *RANGE, "LOG-05", "LOG-07", *FRESH, commit_modes=UNPUBLISHED)
def ranges_across_what_is_published_are_answered_in_full(s: Scenario) -> None:
    """Versions 1 and 2 of five are published. Ranges that begin below, at and above that boundary are answered with all
    that is not published, so that a reader which adds the published files lacks nothing."""
    table = s.create()
    land(s, table, 5)
    done = s.backfill(table, 2)
    published = set(s.published(table))
    for asked in ((None, None), (0, 5), (2, 3), (3, 4), (1, None), (None, 3), (5, 5)):
        answered_in_full(s, table, asked, published, done)


@check(Family.STALE_READS, *RANGE, *FRESH)
def ranges_of_a_table_that_is_all_published_are_answered(s: Scenario) -> None:
    """With everything published, ranges may be answered with nothing; the latest version is told all the same, and the
    next commit is in the range that contains it."""
    table = s.create()
    land(s, table, 3)
    done = s.backfill(table, 3)
    published = set(s.published(table))
    for asked in ((None, None), (1, 2), (3, None)):
        answered_in_full(s, table, asked, published, done)
    landed = s.land(table)
    answered_in_full(s, table, (3, 4), published, landed)
