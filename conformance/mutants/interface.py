"""Owners with a wrong interface: their identity, their answers, and the kit's access to their files."""

from __future__ import annotations

import msgspec

from conformance.interface import messages as m
from conformance.models.owner import ModelOwner, OwnedTable
from conformance.mutants import memory, mutant


@mutant("PROFILE-CORE-01")
class ProfilesChange(ModelOwner):
    """Declares fewer profiles after its first commit."""

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        identity = super().hello(client, request)
        busy = any(table.latest > 0 for table in self.tables.values())
        return msgspec.structs.replace(identity, profiles=("core",)) if busy else identity


@mutant("PROFILE-CORE-02")
class ObserveShowsContentOnce(ModelOwner):
    """Shows the content of version 0 only in the first observation of a log."""

    shown: set[str] = memory(set)

    def observe(self, client: str, request: m.Observe) -> m.Answer:
        answer = super().observe(client, request)
        if not isinstance(answer, m.Observation) or request.table not in self.shown:
            self.shown.add(request.table)
            return answer
        first = f"{0:020}.json"
        files = [msgspec.structs.replace(f, content=None) if f.name == first else f for f in answer.files]
        return m.Observation(files=tuple(files))


@mutant("PROFILE-CORE-02")
class ObserveHidesTheStagingFolder(ModelOwner):
    """Shows only published commits in an observation without contents."""

    def observe(self, client: str, request: m.Observe) -> m.Answer:
        answer = super().observe(client, request)
        if request.contents or not isinstance(answer, m.Observation):
            return answer
        return m.Observation(files=tuple(file for file in answer.files if "/" not in file.name)[:-1])


@mutant("PROFILE-CORE-03")
class FailsOnUnknownTables(ModelOwner):
    """Raises an exception for a request about an unknown table."""

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        self.tables[request.table]
        return super().get_commits(client, request)


@mutant("PROFILE-CORE-03")
class EmptyRangeLacksLatestVersion(ModelOwner):
    """Answers an empty range without the latest version."""

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        if request.start is not None and request.end is not None and request.start > request.end:
            return m.Done()
        return super().get_commits(client, request)


@mutant("PROFILE-CORE-07")
class PolicyIsUnsupported(ModelOwner):
    """Declares a maintenance policy, and does not support the request."""

    def maintenance_policy(self, client: str, request: m.MaintenancePolicy) -> m.Answer:
        return m.Unsupported(reason="not yet")


@mutant("PROFILE-STORAGE-01")
class PlantedFilesGoToACopy(ModelOwner):
    """Writes files that the kit plants to a copy of the log."""

    def plant(self, client: str, request: m.Plant) -> m.Answer:
        return m.Done()


@mutant("PROFILE-STORAGE-01")
class PutIfAbsentReplaces(ModelOwner):
    """Overwrites existing files in a put-if-absent."""

    def plant(self, client: str, request: m.Plant) -> m.Answer:
        return super().plant(client, msgspec.structs.replace(request, if_absent=False))


@mutant("PROFILE-STORAGE-01")
class RemovedFilesStay(ModelOwner):
    """Does not delete a file that the kit removes."""

    def remove(self, client: str, request: m.Remove) -> m.Answer:
        return m.Done()


# Owners with a wrong backlog limit.


@mutant("PROFILE-BACKLOG-01")
class BacklogLimitIsIgnored(ModelOwner):
    """Declares a backlog limit and does not enforce it."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        answer = super().create_table(client, request)
        if isinstance(answer, m.Ratified):
            self.tables[answer.table or ""].backlog_limit = None
        return answer


@mutant("PROFILE-BACKLOG-01")
class BacklogLimitIsOffByOne(ModelOwner):
    """Checks the backlog limit before it counts the new commit."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        table.backfilled += 1
        answer = super()._refusal(table, request, staged)
        table.backfilled -= 1
        return answer


@mutant("PROFILE-BACKLOG-02", bugs=("FB46",))
class BacklogNeverShrinks(ModelOwner):
    """Counts ratified commits and never subtracts backfilled ones: once the limit is reached, it stays full."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._refusal(table, request, staged)
        full = table.backlog_limit is not None and len(table.landed) > table.backlog_limit
        return answer or (m.Rejected(reason="too many commits", retryable=True) if full else None)


@mutant("PROFILE-BACKLOG-02")
class FullBacklogMustBeEmptied(ModelOwner):
    """Rejects commits after its limit was reached until everything is backfilled."""

    stuck: set[str] = memory(set)

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._refusal(table, request, staged)
        if isinstance(answer, m.Rejected) and answer.retryable:
            self.stuck.add(table.reference)
        if table.latest == table.backfilled:
            self.stuck.discard(table.reference)
        stuck = table.reference in self.stuck
        return answer or (m.Rejected(reason="too many unbackfilled commits") if stuck else None)


@mutant("MC-FEATURE-03", "CM-COMMIT-01")
class KeepsProposalsAboveTheLimit(ModelOwner):
    """Stores a proposal that it rejected for the limit, and ratifies it later."""

    waiting: dict[str, tuple[m.Commit, str | None]] = memory(dict)

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._refusal(table, request, staged)
        if isinstance(answer, m.Rejected) and answer.retryable:
            self.waiting[table.reference] = (request, staged)
        return answer

    def backfill_to_version(self, client: str, request: m.BackfillToVersion) -> m.Answer:
        answer = super().backfill_to_version(client, request)
        proposal, staged = self.waiting.pop(request.table, (None, None))
        if proposal is not None:
            self._ratify(self.tables[request.table], proposal, staged)
        return answer


@mutant("PROFILE-RETRY-01")
class FullBacklogRejectsReplays(ModelOwner):
    """Checks its limit before anything else, and rejects the replay of a landed commit."""

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        table = self.tables.get(request.table)
        if table is not None and table.latest - table.backfilled >= (table.backlog_limit or 1000):
            return m.Rejected(reason="too many unbackfilled commits", retryable=True)
        return super().commit(client, request)


@mutant("PROFILE-CORE-04")
class RepeatsTheLimitInsteadOfConflicts(ModelOwner):
    """Repeats the rejection for the limit to every client that once got it, even for a lost race."""

    def _conflict(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        limited = m.Rejected(reason="too many unbackfilled commits", retryable=True)
        return limited if table.backlog_limit == 1 else super()._conflict(table, request, staged)


@mutant("PROFILE-BACKLOG-01")
class LimitOfTheNewestTable(ModelOwner):
    """Applies the backlog limit of the table that was created last to all tables."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        newest = list(self.tables.values())[-1]
        return super()._refusal(msgspec.structs.replace(table, backlog_limit=newest.backlog_limit), request, staged)


@mutant("PROFILE-BACKLOG-01")
class RestartForgetsTheLimit(ModelOwner):
    """Keeps the backlog limits in memory: a restart removes them."""

    def _restarted(self, table: OwnedTable) -> None:
        super()._restarted(table)
        table.backlog_limit = None
