"""In-commit timestamps: the times of the versions increase, and a time selects the newest version up to it."""

from conformance.checks import check
from conformance.checks.families import LOGS
from conformance.interface.results import Layer
from conformance.programs.client_words import ClientFamily
from conformance.programs.running import Generation
from conformance.scenario.check import Family


@check(Family.TIMESTAMPS, *LOGS, "ICT-08", "ICT-14", layer=Layer.MODEL, side="client")
def any_read_by_time(g: Generation) -> None:
    """Generated reads by the times at and between those of published and unpublished versions, before and after a table
    has in-commit timestamps, and transactions that continue the times."""
    factors = {"times": 6, "read": 2, "transact": 2, "transfer": 1, "maintain": 0.2, "layers": 0.2, "create": 0.2}
    g.run(ClientFamily(name=g.check.family, factors=factors))
