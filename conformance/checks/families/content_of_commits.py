"""The content of commits: every commit keeps all of its actions, whatever their size and form."""

from conformance.checks import check
from conformance.checks.families import CONTENT, PUBLISHING
from conformance.interface.results import Layer
from conformance.programs.owner_words import OwnerFamily
from conformance.programs.running import Generation
from conformance.scenario.check import Family


@check(Family.CONTENT, *CONTENT, *PUBLISHING, layer=Layer.MODEL)
def any_sequence_of_contents(g: Generation) -> None:
    """Generated commits with every size at which buffers end, every escape of JSON and unknown fields: each one is
    listed and published as it was proposed."""
    g.run(OwnerFamily(name=g.check.family, factors={"commit": 3, "metadata": 4, "backfill": 2, "stray": 3, "drop": 0}))
