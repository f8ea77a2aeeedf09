"""Owners that cannot be tested as they say: who they are, what they answer, what they let the kit see and do."""

from __future__ import annotations

import msgspec

from conformance.interface import messages as m
from conformance.models.owner import ModelOwner, OwnedTable
from conformance.models.storage import Storage
from conformance.mutants.registry import mutant


@mutant("PROFILE-CORE-01")
class ProfilesDependOnTheMoment(ModelOwner):
    """The owner declares everything as long as it has nothing to do, and less as soon as it has a commit."""

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        identity = super().hello(client, request)
        busy = any(table.latest > 0 for table in self.tables.values())
        return msgspec.structs.replace(identity, profiles=("core",)) if busy else identity


@mutant("PROFILE-CORE-02")
class ContentsAreToldOnce(ModelOwner):
    """The content of version 0 is told in the first look at a log, and left out in those after it."""

    def observe(self, client: str, request: m.Observe) -> m.Answer:
        answer = super().observe(client, request)
        shown: set[str] = self.__dict__.setdefault("_shown", set())
        if not isinstance(answer, m.Observation) or request.table not in shown:
            shown.add(request.table)
            return answer
        first = f"{0:020}.json"
        files = [msgspec.structs.replace(f, content=None) if f.name == first else f for f in answer.files]
        return m.Observation(files=tuple(files))


@mutant("PROFILE-CORE-02")
class StagingFolderIsHiddenAtTimes(ModelOwner):
    """Without contents a look at the log shows the published commits only."""

    def observe(self, client: str, request: m.Observe) -> m.Answer:
        answer = super().observe(client, request)
        if request.contents or not isinstance(answer, m.Observation):
            return answer
        return m.Observation(files=tuple(file for file in answer.files if "/" not in file.name)[:-1])


@mutant("PROFILE-CORE-03")
class UnknownTableBreaksTheOwner(ModelOwner):
    """A request about a table that does not exist ends in an exception."""

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        self.tables[request.table]
        return super().get_commits(client, request)


@mutant("PROFILE-CORE-03")
class EmptyRangeIsNoAnswer(ModelOwner):
    """A range with nothing in it is answered as done, without the latest version."""

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        if request.start is not None and request.end is not None and request.start > request.end:
            return m.Done()
        return super().get_commits(client, request)


@mutant("PROFILE-CORE-07")
class PolicyIsDeclaredAndMissing(ModelOwner):
    """The owner declares a maintenance policy, and does not support the question for it."""

    def maintenance_policy(self, client: str, request: m.MaintenancePolicy) -> m.Answer:
        return m.Unsupported(reason="not yet")


@mutant("PROFILE-STORAGE-01")
class PlantedFilesAreKeptApart(ModelOwner):
    """What the kit plants goes to a copy of the log that nobody else looks at."""

    def plant(self, client: str, request: m.Plant) -> m.Answer:
        return m.Done()


@mutant("PROFILE-STORAGE-01")
class PutIfAbsentReplaces(ModelOwner):
    """The storage has no put-if-absent, and the owner says that it has."""

    def plant(self, client: str, request: m.Plant) -> m.Answer:
        return super().plant(client, msgspec.structs.replace(request, if_absent=False))


@mutant("PROFILE-STORAGE-01")
class RemovedFilesStay(ModelOwner):
    """A file that the kit removes is still there."""

    def remove(self, client: str, request: m.Remove) -> m.Answer:
        return m.Done()


# Owners that are wrong about how much they may keep.


@mutant("PROFILE-BACKLOG-01")
class BacklogWithoutEnd(ModelOwner):
    """It declares a limit, and ratifies whatever comes."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        answer = super().create_table(client, request)
        if isinstance(answer, m.Ratified):
            self.tables[answer.table or ""].backlog_limit = None
        return answer


@mutant("PROFILE-BACKLOG-01")
class OneMoreThanAllowed(ModelOwner):
    """It compares its backlog with the limit before it counts the commit that it ratifies."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        table.backfilled += 1
        answer = super()._refusal(table, request, staged)
        table.backfilled -= 1
        return answer


@mutant("PROFILE-BACKLOG-02", bugs=("FB46",))
class BacklogIsNeverCountedDown(ModelOwner):
    """It counts the commits that it ratified and never those that were backfilled: once the limit is reached, waiting
    does not help its writers, and backfilling does not either."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._refusal(table, request, staged)
        full = table.backlog_limit is not None and len(table.landed) > table.backlog_limit
        return answer or (m.Rejected(reason="too many commits", retryable=True) if full else None)


@mutant("PROFILE-BACKLOG-02")
class OnlyAnEmptyBacklogHasRoom(ModelOwner):
    """Once its limit was reached it ratifies again only when everything is backfilled."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        stuck: set[str] = self.__dict__.setdefault("stuck", set())
        answer = super()._refusal(table, request, staged)
        if isinstance(answer, m.Rejected) and answer.retryable:
            stuck.add(table.reference)
        if table.latest == table.backfilled:
            stuck.discard(table.reference)
        return answer or (m.Rejected(reason="too many unbackfilled commits") if table.reference in stuck else None)


@mutant("MC-FEATURE-03", "CM-COMMIT-01")
class RefusedProposalsWait(ModelOwner):
    """It keeps the proposal that it refused for the limit, and ratifies it when there is room."""

    def __init__(self, storage: Storage | None = None) -> None:
        super().__init__(storage)
        self.waiting: dict[str, tuple[m.Commit, str | None]] = {}

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
class FullBacklogRefusesReplays(ModelOwner):
    """It looks at its limit before anything else, and refuses the replay of a commit that it has."""

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        table = self.tables.get(request.table)
        if table is not None and table.latest - table.backfilled >= (table.backlog_limit or 1000):
            return m.Rejected(reason="too many unbackfilled commits", retryable=True)
        return super().commit(client, request)


@mutant("PROFILE-CORE-04")
class WhoMetTheLimitNeverLoses(ModelOwner):
    """It tells everybody of its limit that was ever told of it, also where the version is taken and there is room."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._refusal(table, request, staged)
        limited = table.backlog_limit == 1 and isinstance(answer, m.Conflict)
        return m.Rejected(reason="too many unbackfilled commits", retryable=True) if limited else answer


@mutant("PROFILE-BACKLOG-01")
class LimitIsForgottenInARestart(ModelOwner):
    """It keeps the limits of its tables in memory: after a restart there is none."""

    def restart(self, client: str, request: m.Restart) -> m.Answer:
        answer = super().restart(client, request)
        for table in self.tables.values():
            table.backlog_limit = None
        return answer
