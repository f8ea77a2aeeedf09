"""The backfill watermark: published is a prefix of ratified, and both only grow.

Let p_v be the time at which `<v>.json` becomes visible: t_v <= p_v, and p_0 <= p_1 <= ... A commit by put-if-absent,
and an ownership change, is ratified by becoming visible: p_v = t_v. Observations over [invoked, answered]:

  a visible `<v>.json`                          p_v <= its end
  a file that a listing did not find            p_v >= its start, unless cleanup may have removed it
  v missing from a list within its range         p_v <= its end: the owner lists what is not published
  a reader by path at v, a checkpoint of v      p_v <= its end
  a table handed back with version v+1          p_v <= its end
  a backfill to w that was answered             p_v <= its end for every v <= w that was ratified before its invoke

The last one needs the versions that *must* have been ratified by then: it uses the latest time that the log's upper
bounds leave to t_v, which is safe because it violates no other bound. The rest is the sweep of the log checker, over
both times at once. A list and the latest version in the same answer need not be of one moment, nor the files of one
listing.

managed-commits, "Commit Backfills" and "Commit Files"; catalog-managed, "Publishing Commits".
"""

from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from itertools import accumulate

from conformance.history_checkers import bounds
from conformance.history_checkers.bounds import (
    INFINITY,
    MOST_CONTRADICTIONS,
    Bound,
    Breaches,
    Early,
    Late,
    Observations,
    Window,
)
from conformance.history_checkers.columns import Rows, TableColumns
from conformance.history_checkers.log import LogChecker
from conformance.history_checkers.rules import Rule


class WatermarkChecker:
    """Checks the times of publication, after the log checker has bounded the times of ratification."""

    def __init__(self, log: LogChecker, breaches: Breaches) -> None:
        self.log = log
        self.table: TableColumns = log.table
        self.breaches = breaches
        self.skew = log.skew
        self.window = Window(log.window.base, log.window.length)
        length = self.window.length
        self.lower = [-INFINITY] * length
        self.upper = [INFINITY] * length
        self.direct = [self.table.base + index in self.table.direct for index in range(length)]
        self.contradictions = 0
        self.absent = self._absent()
        self.late_groups: list[Observations[Late]] = [
            Observations(Late.VISIBLE, self.table.visible, self.table.visible.version),
            Observations(Late.OMITTED, self.table.omitted, self.table.omitted.version),
            Observations(Late.PATH_READ, self.table.path_reads, self.table.path_reads.version),
            Observations(Late.HANDED_BACK, self.table.handed_back, self.table.handed_back.version),
            Observations(Late.CHECKPOINT, self.table.checkpoints, self.table.checkpoints.version),
        ]

    def check(self) -> None:
        """Fill `breaches`."""
        bounds.lower(self.lower, self.window, self.absent)
        for group in self.late_groups:
            if bounds.upper(self.upper, self.window, group):
                self._never_ratified(group)
        backfilled = self._backfilled()
        bounds.upper(self.upper, self.window, backfilled)
        self.late_groups.append(backfilled)
        self._sweep()

    def _absent(self) -> Observations[Early]:
        """Listings that did not find a file, before a cleanup may have removed any."""
        rows, kept = self.table.absent, Rows()
        cleanup = self.table.first_cleanup
        if not self.log.header.cleanup:
            columns = zip(rows.id, rows.version, rows.invoked, rows.answered, strict=True)
            for number, version, since, until in columns:
                if cleanup is None or until < cleanup - self.skew:
                    kept.add(number, version, since, until)
        return Observations(Early.ABSENT, kept, kept.version)

    def _never_ratified(self, group: Observations[Late]) -> None:
        for bound in bounds.outside(group, self.window):
            if bound.kind is Late.OMITTED:  # the latest version in the same answer reports it
                continue
            problem = f"{{first}} shows that version {bound.version} is published; {self.log.end_in_words()}."
            self.breaches.add(Rule.NEVER_RATIFIED, bound.version, problem, bound.id)

    def _backfilled(self) -> Observations[Late]:
        """Per answered backfill, the last version that it must have published: a bound for all before it too."""
        rows, kept = self.table.backfilled, Rows()
        if rows:
            latest = self._latest_ratified()
            for number, version, invoked, answered in zip(
                rows.id, rows.version, rows.invoked, rows.answered, strict=True
            ):
                index = min(version - self.window.base, bisect_left(latest, invoked - self.skew) - 1)
                if index >= 0:
                    kept.add(number, index + self.window.base, invoked, answered)
        return Observations(Late.BACKFILLED, kept, kept.version)

    def _latest_ratified(self) -> list[int]:
        """Per version, the latest time at which it can have been ratified, ascending. Times of publication are not
        needed: if one bounded it, the version would already be published."""
        return list(accumulate(reversed(self.log.upper), min))[::-1]

    def _sweep(self) -> None:
        """`alone` is the result of the log checker, whose contradictions are not repeated."""
        alone = ratified = published = -INFINITY
        last_direct = -1
        skew = self.skew
        for index in range(self.window.length):
            alone = max(alone, self.log.lower[index])
            ratified = max(ratified, self.log.lower[index])
            published = max(published, ratified, self.lower[index])
            if self.direct[index]:
                ratified, last_direct = published, index
            if published - skew > self.upper[index]:
                self._contradiction(index, partial(bounds.latest, self.late_groups, self.window, index), index)
                alone = ratified = published = -INFINITY
            elif ratified - skew > self.log.upper[index]:
                if alone - skew <= self.log.upper[index]:
                    self._contradiction(index, partial(self.log.late_bound, index), last_direct)
                alone = ratified = published = -INFINITY

    def _contradiction(self, index: int, late_of: Callable[[], Bound[Late] | None], published: int) -> None:
        """`late_of` returns the observation with the upper bound of the version at `index`; `published` is the last
        version whose publication that version needs."""
        self.contradictions += 1
        if self.contradictions > MOST_CONTRADICTIONS:
            self.breaches.unexplained += 1
            return
        late = late_of()
        ratified = self.log.early_bound(index)
        absent = bounds.earliest([self.absent], self.window, published)
        candidates = [bound for bound in (absent, ratified) if bound is not None]
        early = max(candidates, key=lambda bound: bound.time)
        assert late is not None
        self.breaches.contradiction(early, late, self.log.attempt_name(early.version))
