"""Readers that are wrong about when a version was committed."""

from __future__ import annotations

from conformance.models.client import ModelClient
from conformance.models.log_files import Listing
from conformance.models.reader import Refused, Resolved, State
from conformance.mutants.registry import mutant


def _modified(listed: Listing, version: int) -> int:
    path = listed.commits.get(version)
    return 0 if path is None else path.stat().st_mtime_ns // 1_000_000


@mutant("ICT-16", "ICT-20", bugs=("FB20",), side="client")
class GoesByFiles(ModelClient):
    """Takes the modification times of files for the times of commits, in-commit timestamps or not."""

    def _time(self, table: Resolved, listed: Listing, state: State, version: int) -> int:
        return _modified(listed, version) or super()._time(table, listed, state, version)


@mutant("ICT-19", bugs=("FB20",), side="client")
class SearchesAllVersionsByTheirFiles(ModelClient):
    """Time travel looks at the files' modification times of all versions, also beyond the enablement."""

    def _at(self, table: Resolved, listed: Listing, timestamp: int) -> int:
        latest = self._replay(table, listed, self._target(table, listed, None))
        if latest.enabled_since in (None, 0):
            return super()._at(table, listed, timestamp)
        times = {v: _modified(listed, v) or self._time(table, listed, latest, v) for v in range(latest.version + 1)}
        reached = [version for version, time in times.items() if time <= timestamp]
        return max(reached, default=0)


@mutant("ICT-18", side="client")
class TakesTheEnablementForEarlier(ModelClient):
    """A time that is exactly that of the enablement leads to the version before it."""

    def _enabled_at(self, table: Resolved, listed: Listing, latest: State) -> int:
        enabled = super()._enabled_at(table, listed, latest)
        return enabled + 1 if enabled else 0


@mutant("ICT-19", side="client")
class TravelsNoFurtherThanTheEnablement(ModelClient):
    """A time before the enablement leads to the enabling version, as if there were none before it."""

    def _at(self, table: Resolved, listed: Listing, timestamp: int) -> int:
        latest = self._replay(table, listed, self._target(table, listed, None))
        if latest.enabled_since is None:
            return super()._at(table, listed, timestamp)
        return super()._at(table, listed, max(timestamp, self._enabled_at(table, listed, latest)))


@mutant("ICT-18", side="client")
class KeepsTimesInOrderAcrossTheEnablement(ModelClient):
    """Makes the times of all versions increase, so that a file that was copied late moves the commits after it."""

    def _at(self, table: Resolved, listed: Listing, timestamp: int) -> int:
        latest = self._replay(table, listed, self._target(table, listed, None))
        reached, newest = [], 0
        for version in range(latest.version + 1):
            newest = max(newest + 1, self._time(table, listed, latest, version))
            if newest <= timestamp:
                reached.append(version)
        return max(reached, default=0)


@mutant("ICT-17", side="client")
class TakesTheTimestampOfOldCommitInfos(ModelClient):
    """Before the enablement it takes the field `timestamp` of a commitInfo for the time of the commit."""

    def _time(self, table: Resolved, listed: Listing, state: State, version: int) -> int:
        if state.enabled_since is not None and version >= state.enabled_since:
            return super()._time(table, listed, state, version)
        actions = self._commit(table, listed, table.owned, version)
        return next((each["commitInfo"].get("timestamp", 0) for each in actions if "commitInfo" in each), 0)


@mutant("ICT-20", bugs=("FB18",), side="client")
class TravelsAmongPublishedVersions(ModelClient):
    """Looks a time up among the published commits only: the staged ones at the end are not there."""

    def _times(self, table: Resolved, listed: Listing, latest: State) -> dict[int, int]:
        times = super()._times(table, listed, latest)
        return {version: time for version, time in times.items() if version in listed.commits}


@mutant("ICT-20", bugs=("FB18",), side="client")
class NeedsPublishedCommitsToTravel(ModelClient):
    """Time travel fails as soon as a commit is not published."""

    def _times(self, table: Resolved, listed: Listing, latest: State) -> dict[int, int]:
        if latest.version not in listed.commits:
            raise Refused(f"version {latest.version} is missing")
        return super()._times(table, listed, latest)


@mutant("ICT-20", side="client")
class TravelsToTheNextVersion(ModelClient):
    """A time between two versions leads to the later one."""

    def _at(self, table: Resolved, listed: Listing, timestamp: int) -> int:
        latest = self._replay(table, listed, self._target(table, listed, None))
        times = self._times(table, listed, latest)
        return min((version for version, time in times.items() if time >= timestamp), default=latest.version)


@mutant("ICT-22", side="client")
class TrustsTimestampsThatWereDisabled(ModelClient):
    """Goes by in-commit timestamps wherever a commit has one, although the table has them disabled by now."""

    def _time(self, table: Resolved, listed: Listing, state: State, version: int) -> int:
        infos = [a["commitInfo"] for a in self._commit(table, listed, table.owned, version) if "commitInfo" in a]
        inside = infos[0].get("inCommitTimestamp") if infos else None
        return inside if isinstance(inside, int) else super()._time(table, listed, state, version)


@mutant("ICT-22", side="client")
class LetsEachVersionDecideAboutItsTime(ModelClient):
    """Asks the version that it reads, not the newest one, whether in-commit timestamps are enabled: an old snapshot has
    another time than time travel finds it by."""

    def _decisive(self, table: Resolved, listed: Listing, state: State) -> State:
        return state
