"""Maintenance: what a client writes beside the log equals its replay, and what it deletes is not needed."""

from conformance.adapters.identity import EVERY_TABLE
from conformance.checks import check
from conformance.checks.families import MAINTAINING
from conformance.interface.results import Layer
from conformance.programs.client_words import ClientFamily
from conformance.programs.running import Generation
from conformance.scenario.check import Family


@check(Family.MAINTENANCE, *MAINTAINING, layer=Layer.MODEL, side="client", features=EVERY_TABLE)
def any_maintenance_of_any_log(g: Generation) -> None:
    """Generated logs that the client checkpoints, compacts, publishes, cleans up and vacuums: the files that it writes
    equal the replay of the log, and the ones that it deletes are not needed."""
    factors = {"maintain": 6, "transact": 0.5, "checkpoint": 1.5, "create": 0, "transfer": 0}
    g.run(ClientFamily(name=g.check.family, factors=factors))
