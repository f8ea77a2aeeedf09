"""In-commit timestamps: writers set them, owners do not change them, and readers select versions by them.

The kit's owner audits every proposal of every scenario (`conformance.scenario.audit`); the scenarios for writers
are such that a wrong writer's proposal has a wrong timestamp.
"""

from conformance.checks import check, families
from conformance.interface.results import Layer
from conformance.programs.client_words import ClientFamily
from conformance.programs.running import Generation
from conformance.scenario.check import Family


@check(Family.TIMESTAMPS, *families.LOGS, "ICT-08", "ICT-14", layer=Layer.MODEL, side="client")
def any_read_by_time(g: Generation) -> None:
    """Generated reads by the times at and between those of published and unpublished versions, before and after a table
    has in-commit timestamps, and transactions that continue the times."""
    factors = {"times": 6, "read": 2, "transact": 2, "transfer": 1, "maintain": 0.2, "layers": 0.2, "create": 0.2}
    g.run(ClientFamily(name=g.check.family, factors=factors))
