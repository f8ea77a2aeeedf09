"""Log segments: checkpoints, compactions, published files and the owner's answers make one gap-free log."""

from conformance.adapters.identity import EVERY_TABLE
from conformance.checks import check
from conformance.checks.families import LOGS
from conformance.interface.results import Layer
from conformance.programs.client_words import ClientFamily
from conformance.programs.running import Generation
from conformance.scenario.check import Family


@check(Family.READING, *LOGS, layer=Layer.MODEL, side="client", features=EVERY_TABLE)
def any_log_is_read(g: Generation) -> None:
    """Generated logs with checkpoints, compactions, checksums, leftovers and cleaned-up prefixes, read by version, time
    and path while the owner publishes and other writers commit: every snapshot is the replay of the log."""
    factors = {"read": 4, "transact": 0.5, "maintain": 0.3, "create": 0, "transfer": 0}
    g.run(ClientFamily(name=g.check.family, factors=factors))
