"""Finding, dropping and re-creating tables: a name means one table, and a dropped one never comes back."""

from conformance.checks import check
from conformance.checks.families import DISCOVERY, OUTCOMES
from conformance.interface.results import Layer
from conformance.programs.owner_words import OwnerFamily
from conformance.programs.running import Generation
from conformance.requirements.catalogue import Profile
from conformance.scenario.check import Family


@check(Family.LIFECYCLE, *DISCOVERY, *OUTCOMES, layer=Layer.MODEL, needs=(Profile.DISCOVERY,))
def any_sequence_of_drops(g: Generation) -> None:
    """Generated drops and re-creations under the same name, with late requests for the old table: none of them reaches
    the new one."""
    g.run(OwnerFamily(name=g.check.family, factors={"recreate": 8, "drop": 4, "load": 4, "unknown": 4, "deliver": 2}))
