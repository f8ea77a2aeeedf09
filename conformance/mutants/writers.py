"""Writers that lose, double or misplace what they commit."""

from __future__ import annotations

from conformance.interface import messages as m
from conformance.models.client import ModelClient
from conformance.models.writer import Transaction
from conformance.mutants.registry import mutant


@mutant("PROFILE-UNKNOWN-01", "MC-COMMIT-06", "CM-COMMIT-06", bugs=("FB07",), side="client")
class TakesUnknownForFailed(ModelClient):
    """After an unknown outcome it proposes the same changes again: they are committed twice."""

    def _resolved(self, client: str, transaction: Transaction, request: m.Commit) -> bool:
        return False
