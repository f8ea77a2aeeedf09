"""Owners that are wrong about how much they may keep."""

from __future__ import annotations

from conformance.interface import messages as m
from conformance.models.owner import ModelOwner, OwnedTable
from conformance.models.storage import Storage
from conformance.mutants.registry import mutant


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
