"""Backfill ordering: the published commits are a prefix of the ratified ones, in order, and never change.

Backlogs grow and are published in parts; foreign files block a publication; the log folder is watched while requests
are under way. A client under test publishes, and reads while others do.
"""

from conformance.checks import check
from conformance.checks.families import CONTENT, LOGS, MAINTAINING, PUBLISHING, READING
from conformance.interface.results import Layer
from conformance.programs.client_words import ClientFamily
from conformance.programs.owner_words import OwnerFamily
from conformance.programs.running import Generation
from conformance.scenario.check import Family


@check(Family.BACKFILL, *PUBLISHING, *CONTENT, *READING, layer=Layer.MODEL)
def any_sequence_of_publications(g: Generation) -> None:
    """Generated backlogs that are published in parts, with foreign files in the way: each commit is published after its
    predecessor, with its content, and never changes."""
    g.run(OwnerFamily(name=g.check.family, factors={"backfill": 4, "block": 4, "many": 4, "read": 2, "drop": 0}))


@check(Family.BACKFILL, *MAINTAINING, *LOGS, layer=Layer.MODEL, side="client")
def any_publication_and_the_client(g: Generation) -> None:
    """Generated logs that are published in parts, by the client too: it reads each version from the right place, and
    replaces no published file."""
    factors = {"backfill": 4, "leftover": 3, "maintain": 2, "of_readers": 2, "create": 0, "transfer": 0}
    g.run(ClientFamily(name=g.check.family, factors=factors))
