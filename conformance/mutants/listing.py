"""Owners that tell readers too little, too much, too late, or not all the same."""

from __future__ import annotations

from conformance.interface import messages as m
from conformance.models.owner import STAGING, ModelOwner, OwnedTable
from conformance.models.storage import LOG
from conformance.mutants.registry import mutant

# Too late


@mutant("MC-READ-06", "CM-GET-04")
class ReadsComeFromAReplica(ModelOwner):
    """Reads are answered by a replica that is one commit behind."""

    def __init__(self) -> None:
        super().__init__()
        self.replica: dict[str, m.Answer] = {}

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        self.replica[request.table] = super().get_commits(client, m.GetCommits(table=request.table))
        return super().commit(client, request)

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        answer = super().get_commits(client, request)
        table = self.tables.get(request.table)
        behind = table is not None and table.commit_mode != "direct" and request.start is None
        return self.replica.get(request.table, answer) if behind else answer


@mutant("MC-READ-06", "CM-GET-04")
class EveryReaderHasACache(ModelOwner):
    """Who asked before is answered the same once more."""

    def __init__(self) -> None:
        super().__init__()
        self.cache: dict[tuple[str, str], m.Answer] = {}

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        answer = super().get_commits(client, request)
        cached = self.cache.pop((client, request.table), None)
        if cached is None:
            self.cache[client, request.table] = answer
        return cached or answer


@mutant("MC-READ-06", "CM-GET-04")
class FirstResolutionIsKept(ModelOwner):
    """The table is resolved from a cache that was filled when somebody found it first."""

    def __init__(self) -> None:
        super().__init__()
        self.cache: dict[str | None, m.Answer] = {}

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        answer = super().load_table(client, request)
        return self.cache.setdefault(request.name, answer) if isinstance(answer, m.Table) else answer


@mutant("MC-READ-06", "CM-GET-04")
class LatestIsCappedByTheRange(ModelOwner):
    """Asked for a range, the owner tells the end of the range as the latest version."""

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        answer = super().get_commits(client, request)
        if not isinstance(answer, m.Commits) or answer.latest is None or request.end is None:
            return answer
        return m.Commits(commits=answer.commits, latest=min(answer.latest, request.end))


@mutant("MC-GET-01", "CM-GET-03", "LOG-07", bugs=("FB13",))
class ListIsOlderThanLatest(ModelOwner):
    """The commits are read first and the latest version after another commit: the list lacks a version that is told as
    the latest."""

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        answer = super().get_commits(client, request)
        if not isinstance(answer, m.Commits) or len(answer.commits) < 2 or answer.commits[-1].version != answer.latest:
            return answer
        return m.Commits(commits=answer.commits[:-1], latest=answer.latest)


@mutant("MC-READ-06", "CM-GET-04", bugs=("FB13",))
class LatestIsOlderThanList(ModelOwner):
    """The latest version is read from an older state than the commits: after a backfill it goes back to what was
    published."""

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        answer = super().get_commits(client, request)
        table = self.tables.get(request.table)
        if not isinstance(answer, m.Commits) or table is None or not 0 < table.backfilled < table.latest:
            return answer
        return m.Commits(commits=answer.commits, latest=table.backfilled)


# Too little


@mutant("MC-GET-02", "CM-GET-04")
class LatestOfWhatIsTracked(ModelOwner):
    """The latest version is the highest one that is tracked: when everything is published there is none."""

    def _latest(self, table: OwnedTable) -> int | None:
        return max(table.unbackfilled, default=None) if table.latest > 0 else super()._latest(table)


@mutant("MC-API-04", "CM-CATALOG-04")
class NoCommitIsListed(ModelOwner):
    """The owner tells the latest version, and expects readers to find the commits themselves."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        return ()


@mutant("MC-GET-02", "CM-GET-04", "CM-CATALOG-04")
class LatestIsNeverTold(ModelOwner):
    """The owner lists its commits, and tells no latest version with them."""

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        answer = super().get_commits(client, request)
        table = self.tables.get(request.table)
        if not isinstance(answer, m.Commits) or table is None or table.latest == 0:
            return answer
        return m.Commits(commits=answer.commits, latest=None)


@mutant("MC-GET-01", "CM-GET-03", bugs=("FB47",))
class RangeStartIsExclusive(ModelOwner):
    """The start of a range is taken as the last version that the reader has."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        return super()._entries(table, start + 1 if start > 0 else start, end)


@mutant("MC-GET-01", "CM-GET-03", bugs=("FB47",))
class RangeMustStartAboveWhatIsPublished(ModelOwner):
    """A range that starts below what is published is answered with nothing; as long as everything is published at once
    nobody notices."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        return () if 0 < start <= table.backfilled else super()._entries(table, start, end)


@mutant("LOG-07", "MC-GET-01", "CM-GET-03")
class ListIsCutAfterTwo(ModelOwner):
    """The list is one page of two commits, and there is no next page."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        return super()._entries(table, start, end)[:2]


# Out of order


@mutant("LOG-05")
class NewestIsListedFirst(ModelOwner):
    """Commits are listed by descending version."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        return tuple(reversed(super()._entries(table, start, end)))


@mutant("LOG-05")
class BoundaryIsListedTwice(ModelOwner):
    """The first commit that is not published comes from two queries, and is listed twice."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        entries = super()._entries(table, start, end)
        return (*entries[:1], *entries)


# Too much, or something else


@mutant("MC-GET-02", "CM-GET-04", "CM-LOG-07")
class StagedFilesAreListed(ModelOwner):
    """What lies in the staging folder above the latest version is listed as if it were ratified."""

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        answer = super().get_commits(client, request)
        table = self.tables.get(request.table)
        if not isinstance(answer, m.Commits) or table is None:
            return answer
        names = self.storage.list(f"{table.location}/{LOG}/{STAGING[table.feature]}")
        more = [
            m.CommitEntry(version=int(name[:20]), file_name=name) for name in names if int(name[:20]) > table.latest
        ]
        latest = max((entry.version for entry in more), default=answer.latest)
        return m.Commits(commits=(*answer.commits, *more), latest=latest)


@mutant("MC-GET-02", "CM-GET-04")
class LatestIsTheHighestProposal(ModelOwner):
    """The latest version is counted when a version is proposed, not when it is ratified."""

    def __init__(self) -> None:
        super().__init__()
        self.proposed: dict[str, int] = {}

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        self.proposed[request.table] = max(request.version, self.proposed.get(request.table, 0))
        return super().commit(client, request)

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        answer = super().get_commits(client, request)
        if not isinstance(answer, m.Commits) or answer.latest is None:
            return answer
        return m.Commits(commits=answer.commits, latest=max(answer.latest, self.proposed.get(request.table, 0)))


@mutant("MC-FEATURE-02", "CM-FEATURE-01")
class ConflictNamesTheLoserAsWinner(ModelOwner):
    """The conflict hands the loser its own file as the commit that took the version."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._refusal(table, request, staged)
        if not isinstance(answer, m.Conflict) or staged is None or request.version not in table.unbackfilled:
            return answer
        return m.Conflict(latest=answer.latest, winners=(m.CommitEntry(version=request.version, file_name=staged),))


@mutant("PROFILE-CORE-05")
class ConflictTellsAnOlderLatest(ModelOwner):
    """A conflict at a version tells the one before it as the latest: the loser proposes the same version for ever."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._refusal(table, request, staged)
        return m.Conflict(latest=request.version - 1) if isinstance(answer, m.Conflict) and request.version else answer


@mutant("MC-GET-02", "CM-GET-04")
class ConflictTellsTheNextVersion(ModelOwner):
    """A conflict tells the version to propose next where the latest one belongs."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._refusal(table, request, staged)
        return m.Conflict(latest=table.latest + 1) if isinstance(answer, m.Conflict) else answer


# Of long tables


@mutant("MC-GET-01", "CM-GET-03")
class OnePageIsAll(ModelOwner):
    """Its lists have ten commits at most; nobody is told that there are more."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        return super()._entries(table, start, end)[:10]


@mutant("LOG-05")
class VersionsAreSortedAsText(ModelOwner):
    """In its lists version 10 comes before version 9."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        return tuple(sorted(super()._entries(table, start, end), key=lambda entry: str(entry.version)))
