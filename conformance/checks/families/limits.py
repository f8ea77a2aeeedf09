"""Limits: with a maximum number of unpublished commits, the next one waits for a publication, and is then ratified."""

from conformance.checks import check
from conformance.checks.families import COMMITTING, LIMITED
from conformance.interface.results import Layer
from conformance.programs.owner_words import OwnerFamily
from conformance.programs.running import Generation
from conformance.requirements.catalogue import Profile
from conformance.scenario.check import Family


@check(Family.LIMITS, *LIMITED, *COMMITTING, layer=Layer.MODEL, needs=(Profile.BACKLOG_LIMIT,))
def any_sequence_within_a_limit(g: Generation) -> None:
    """Generated commits of tables with and without a limit: no commit exceeds it, and a publication makes room."""
    g.run(OwnerFamily(name=g.check.family, factors={"create": 3, "many": 6, "backfill": 3, "resend": 2, "load": 0.5}))
