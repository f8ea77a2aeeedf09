"""Owners that are wrong about what maintenance may run."""

from __future__ import annotations

from conformance.interface import messages as m
from conformance.models.owner import ModelOwner
from conformance.mutants.registry import mutant


@mutant("PROFILE-POLICY-01")
class ForbidsCheckpoints(ModelOwner):
    """It forbids all maintenance but the cleanup, checkpoints included."""

    def maintenance_policy(self, client: str, request: m.MaintenancePolicy) -> m.Answer:
        answer = super().maintenance_policy(client, request)
        return m.Policy(allowed=("metadata-cleanup",)) if isinstance(answer, m.Policy) else answer


@mutant("PROFILE-POLICY-01")
class ForbidsCompactionsWhileCommitsWait(ModelOwner):
    """It forbids log compactions of a table that has unbackfilled commits, of the published versions too."""

    def maintenance_policy(self, client: str, request: m.MaintenancePolicy) -> m.Answer:
        answer = super().maintenance_policy(client, request)
        table = self.tables.get(request.table)
        if isinstance(answer, m.Policy) and table is not None and table.unbackfilled:
            return m.Policy(allowed=("checkpoint", "checksum"))
        return answer


@mutant("PROFILE-POLICY-01")
class ForbidsChecksums(ModelOwner):
    """It does not know of checksums."""

    def maintenance_policy(self, client: str, request: m.MaintenancePolicy) -> m.Answer:
        answer = super().maintenance_policy(client, request)
        return m.Policy(allowed=("checkpoint", "log-compaction")) if isinstance(answer, m.Policy) else answer


@mutant("PROFILE-POLICY-01")
class AllowsEverythingWhereThereIsNothing(ModelOwner):
    """It tells a policy for tables that it never heard of."""

    def maintenance_policy(self, client: str, request: m.MaintenancePolicy) -> m.Answer:
        return m.Policy(allowed=("checkpoint", "log-compaction", "checksum", "vacuum", "optimize", "reorg"))


@mutant("PROFILE-POLICY-01", "PROFILE-DURABLE-03")
class ARestartForbidsTheCleanup(ModelOwner):
    """It keeps its policy in memory: after a restart it allows the least."""

    def restart(self, client: str, request: m.Restart) -> m.Answer:
        answer = super().restart(client, request)
        self.strict = set(self.tables)
        return answer

    def maintenance_policy(self, client: str, request: m.MaintenancePolicy) -> m.Answer:
        answer = super().maintenance_policy(client, request)
        if isinstance(answer, m.Policy) and request.table in getattr(self, "strict", ()):
            return m.Policy(allowed=("checkpoint", "log-compaction", "checksum"))
        return answer
