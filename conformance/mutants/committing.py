"""Owners that are wrong about who may commit what."""

from __future__ import annotations

from conformance.interface import messages as m
from conformance.models.owner import Commit, ModelOwner, OwnedTable, content_of, time_of
from conformance.mutants.registry import mutant


@mutant("PROFILE-RETRY-01", bugs=("FB09",))
class ReplayIsAConflict(ModelOwner):
    """The replay of a landed attempt is answered as a conflict."""

    def _replay(self, table: OwnedTable, request: m.Commit) -> m.Answer | None:
        return None


# One version, several winners


@mutant("MC-COMMIT-02", "CM-COMMIT-08", bugs=("FB42",))
class LoserIsToldThatItWon(ModelOwner):
    """The conditional write of the loser fails, a second look finds nothing wrong, and success is returned."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        if request.version == table.latest:
            return m.Ratified(version=request.version)
        return super()._refusal(table, request, staged)


@mutant("MC-COMMIT-02", "CM-COMMIT-08", bugs=("FB28",))
class LastWriterWins(ModelOwner):
    """A rename replaces the commit that is there: of two writers of one version both are told that they won."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        if request.version != table.latest or request.version == 0:
            return super()._refusal(table, request, staged)
        self.storage.remove(self._path(table, request.version))
        table.backfilled = min(table.backfilled, request.version - 1)
        return None


@mutant("MC-COMMIT-02", "CM-COMMIT-08", bugs=("FB26",))
class PublishedVersionsAreForgotten(ModelOwner):
    """What is published is dropped from the tracking table, and with it the knowledge that the version is taken: a
    late writer's proposal of it is ratified, too."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        if 0 < request.version <= table.backfilled and table.commit_mode != "direct":
            return m.Ratified(version=request.version)
        return super()._refusal(table, request, staged)


@mutant("MC-COMMIT-02", "CM-COMMIT-08")
class ConflictsOnlyWithTheNewest(ModelOwner):
    """Only the newest version is compared: a proposal that arrives long after others have committed replaces an old
    one."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        if 0 < request.version < table.latest and request.version in table.unbackfilled:
            table.unbackfilled[request.version] = Commit(
                attempt=request.attempt, staged_file=staged, actions=None if staged else request.actions
            )
            return m.Ratified(version=request.version)
        return super()._refusal(table, request, staged)


@mutant("MC-COMMIT-02", "CM-COMMIT-08")
class VersionZeroCanBeCommittedAgain(ModelOwner):
    """The check for a taken version begins with version 1."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        return m.Ratified(version=0) if request.version == 0 else super()._refusal(table, request, staged)


@mutant("MC-COMMIT-03", "CM-COMMIT-02", "CM-COMMIT-03")
class LoserOverwritesTheRecord(ModelOwner):
    """The record of the version is written before the check: the loser is refused, but what stands there is now its
    file, or its content."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._refusal(table, request, staged)
        record = table.unbackfilled.get(request.version)
        if isinstance(answer, m.Conflict) and record is not None:
            record.staged_file, record.actions = staged, None if staged else request.actions
        return answer


@mutant("MC-FEATURE-02", "CM-FEATURE-01", "CM-LOG-07")
class EverybodySeesTheirOwnCommit(ModelOwner):
    """The client's side caches what it staged last: a loser who asks is shown its own file, or content, for the version
    that another got."""

    def __init__(self) -> None:
        super().__init__()
        self.mine: dict[tuple[str, str, int], Commit] = {}

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        table = self.tables.get(request.table)
        if table is not None and table.commit_mode != "direct":
            name = f"{request.version:020}.{request.attempt}.json" if table.commit_mode == "staged" else None
            actions = None if name else request.actions
            own = Commit(attempt=request.attempt, staged_file=name, actions=actions)
            self.mine[client, request.table, request.version] = own
        return super().commit(client, request)

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        answer = super().get_commits(client, request)
        if not isinstance(answer, m.Commits):
            return answer
        shown = []
        for entry in answer.commits:
            own = self.mine.get((client, request.table, entry.version))
            shown.append(
                m.CommitEntry(version=entry.version, file_name=own.staged_file, actions=own.actions) if own else entry
            )
        return m.Commits(commits=tuple(shown), latest=answer.latest)


# The version before


@mutant("MC-COMMIT-01", "CM-COMMIT-07")
class GapIsRatified(ModelOwner):
    """The version before the proposed one need not be there."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._refusal(table, request, staged)
        return None if isinstance(answer, m.Gap) else answer


@mutant("MC-COMMIT-01", "CM-COMMIT-07")
class OneVersionMayBeMissing(ModelOwner):
    """The check is off by one: a proposal of the version after the next is ratified."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._refusal(table, request, staged)
        return None if isinstance(answer, m.Gap) and request.version == table.latest + 2 else answer


@mutant("MC-COMMIT-01", "CM-COMMIT-07", bugs=("FB44",))
class FirstCommitMayHaveAnyVersion(ModelOwner):
    """The first commit after the table was registered is taken at whatever version it names."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._refusal(table, request, staged)
        return None if isinstance(answer, m.Gap) and table.latest == 0 else answer


@mutant("MC-COMMIT-07", "MC-COMMIT-01", "CM-COMMIT-07")
class DirectWriteAboveAHole(ModelOwner):
    """A commit by put-if-absent only looks whether its own file is there, not whether the one before it is."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._refusal(table, request, staged)
        return None if isinstance(answer, m.Gap) and table.commit_mode == "direct" else answer


@mutant("PROFILE-CORE-05")
class GapAfterBackfill(ModelOwner):
    """The latest version is computed from the commits that are still tracked: when all are published, the next
    proposal is refused as if the one before it were missing."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        if request.version == table.latest + 1 and table.latest > 1 and not table.unbackfilled:
            return m.Gap()
        return super()._refusal(table, request, staged)


# Refusals that are not true


@mutant("PROFILE-CORE-04", bugs=("FB41",))
class LostRaceIsFatal(ModelOwner):
    """A lost race is reported as a failure like any other, not as a conflict: the writer gives up."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._refusal(table, request, staged)
        return m.Rejected(reason="commit failed") if isinstance(answer, m.Conflict) else answer


@mutant("PROFILE-CORE-05")
class LosersStayLosers(ModelOwner):
    """The owner remembers who lost: the writer's next proposal, of a version that is free, is a conflict too."""

    def __init__(self) -> None:
        super().__init__()
        self.lost: set[tuple[str, str]] = set()

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        if (client, request.table) in self.lost:
            self.lost.discard((client, request.table))
            return m.Conflict()
        answer = super().commit(client, request)
        if isinstance(answer, m.Conflict):
            self.lost.add((client, request.table))
        return answer


@mutant("PROFILE-CORE-05")
class TablesShareTheirVersions(ModelOwner):
    """Versions are looked up without the table: what one table has is taken in all."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        taken = {version for other in self.tables.values() for version in other.landed.values()}
        if request.version == table.latest + 1 and request.version in taken:
            return m.Conflict()
        return super()._refusal(table, request, staged)


# What was refused, or was applied already


@mutant("MC-FEATURE-03", "CM-COMMIT-01")
class EarlyProposalsAreKept(ModelOwner):
    """A proposal that comes too early is refused as a gap, kept all the same, and committed when its turn comes."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, int], m.Commit] = {}

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        answer = super().commit(client, request)
        if isinstance(answer, m.Gap):
            self.kept[request.table, request.version] = request
        if isinstance(answer, m.Ratified):
            waiting = self.kept.pop((request.table, request.version + 1), None)
            if waiting is not None:
                self.commit(client, waiting)
        return answer


@mutant("MC-FEATURE-03", "CM-COMMIT-01", bugs=("FB43",))
class FailedBackfillFailsTheCommit(ModelOwner):
    """The commit landed, then the backfill that follows it failed: the commit is reported as failed."""

    def _ratify(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
        answer = super()._ratify(table, request, staged)
        stuck = table.backfill == "subject" and request.version % 3 == 2 and table.backfilled < request.version
        return m.Rejected(reason="cannot write the published file") if stuck else answer


@mutant("PROFILE-CORE-06")
class ReplayIsAppliedAgain(ModelOwner):
    """A request that is delivered twice is committed twice, the second time as the next version."""

    def _replay(self, table: OwnedTable, request: m.Commit) -> m.Answer | None:
        landed = table.landed.get(request.attempt)
        if landed is None or landed == table.latest:
            return super()._replay(table, request)
        again = m.Commit(
            table=request.table, version=table.latest + 1, attempt=request.attempt, actions=request.actions
        )
        self._ratify(table, again, self._stage(table, again))
        return m.Ratified(version=landed)


@mutant("MC-API-03", "CM-CATALOG-03")
class OwnerRebases(ModelOwner):
    """A proposal whose version is taken is committed as the next version, without its writer having looked at what came
    between."""

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        answer = super().commit(client, request)
        if not isinstance(answer, m.Conflict) or request.version == 0:
            return answer
        later = self.tables[request.table].latest + 1
        return super().commit(
            client, m.Commit(table=request.table, version=later, attempt=request.attempt, actions=request.actions)
        )


# Commits by put-if-absent


@mutant("MC-COMMIT-04", "CM-COMMIT-04")
class DirectCommitReplaces(ModelOwner):
    """The file of a direct commit is written by a plain put, and the owner looks only into its own records before."""

    def _notice(self, table: OwnedTable) -> None:
        pass

    def _publish_directly(self, table: OwnedTable, request: m.Commit) -> m.Answer:
        self.storage.remove(self._path(table, request.version))
        return super()._publish_directly(table, request)


@mutant("MC-COMMIT-04", "CM-COMMIT-04")
class DirectCommitIsCut(ModelOwner):
    """The file of a direct commit appears before all of it is written, and its last action never comes."""

    def _publish_directly(self, table: OwnedTable, request: m.Commit) -> m.Answer:
        answer = super()._publish_directly(table, request)
        if isinstance(answer, m.Ratified) and request.actions is not None:
            cut = request.actions[:-1]
            self.storage.put(self._path(table, request.version), content_of(cut), time_of(cut))
        return answer


@mutant("MC-COMMIT-05", "CM-COMMIT-05")
class OnlyItsOwnDirectCommitsCount(ModelOwner):
    """A commit by put-if-absent that nobody told the owner of is in the way for ever: the version is taken, and the one
    after it is refused as if it were not."""

    def _notice(self, table: OwnedTable) -> None:
        pass


@mutant("PROFILE-DIRECT-01")
class DirectCommitIsPublishedLater(ModelOwner):
    """A direct commit is answered before its file is there; it appears with the next one."""

    def _publish_directly(self, table: OwnedTable, request: m.Commit) -> m.Answer:
        answer = super()._publish_directly(table, request)
        if isinstance(answer, m.Ratified):
            self.storage.remove(self._path(table, request.version))
        return answer


# Promises of a profile that are not kept


@mutant("PROFILE-STAGED-01")
class NoStagedCommits(ModelOwner):
    """The owner declares staged commits, and refuses all of them."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        return super()._refusal(table, request, staged) or (m.Rejected() if table.commit_mode == "staged" else None)


@mutant("PROFILE-INLINE-01")
class NoInlineCommits(ModelOwner):
    """The owner declares inline commits, and refuses all of them."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        return super()._refusal(table, request, staged) or (m.Rejected() if table.commit_mode == "inline" else None)


@mutant("PROFILE-DIRECT-01")
class NoDirectCommits(ModelOwner):
    """The owner declares commits by put-if-absent, and refuses all of them."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        return super()._refusal(table, request, staged) or (m.Rejected() if table.commit_mode == "direct" else None)
