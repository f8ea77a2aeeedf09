"""Conflicts: a transaction that lost a race is checked against the winners."""

from conformance.adapters.identity import EVERY_TABLE
from conformance.checks import check, families
from conformance.interface.results import Layer
from conformance.programs.client_words import ClientFamily
from conformance.programs.running import Generation
from conformance.scenario.check import Family


@check(Family.CONFLICTS, *families.TRANSACTIONS, layer=Layer.MODEL, side="client", features=EVERY_TABLE)
def any_transaction_against_any_winners(g: Generation) -> None:
    """Generated transactions that lose races to generated winners: each one is committed, or fails, as its reads, its
    isolation level and the winners decide, and its commit has exactly its changes."""
    factors = {"transact": 4, "read": 0.3, "maintain": 0.1, "win": 1.5, "of_writers": 0.4, "create": 0, "transfer": 0}
    g.run(ClientFamily(name=g.check.family, factors=factors))
