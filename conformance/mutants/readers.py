"""Readers that see what is not there, or not what is."""

from __future__ import annotations

from conformance.models.client import ModelClient
from conformance.models.log_files import Listing
from conformance.models.reader import Resolved
from conformance.mutants.registry import mutant


@mutant("MC-READ-07", "CM-READ-05", "MC-GET-03", bugs=("FB01",), side="client")
class ListsThenAsks(ModelClient):
    """Lists the log, then asks the owner, and does not list again: a backfill in between makes versions vanish."""

    def _gather(self, client: str, table: Resolved) -> Listing:
        listed = self._list(table)
        self._ask(client, table)
        return listed
