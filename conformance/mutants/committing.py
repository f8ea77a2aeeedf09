"""Owners that are wrong about who may commit what."""

from __future__ import annotations

from conformance.interface import messages as m
from conformance.models.owner import ModelOwner, OwnedTable
from conformance.mutants.registry import mutant


@mutant("PROFILE-RETRY-01", bugs=("FB09",))
class ReplayIsAConflict(ModelOwner):
    """The replay of a landed attempt is answered as a conflict."""

    def _replay(self, table: OwnedTable, request: m.Commit) -> m.Answer | None:
        return None
