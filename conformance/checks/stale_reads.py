"""Stale reads: a client that asks the owner gets every commit ratified before, and no other; each range is complete.

Owners may list published commits too. managed-commits, "Getting Un-backfilled Commits from Commit Owner";
catalog-managed, "Getting Ratified Commits from the Catalog".

Ranges have every combination of bounds, and tables are found by name and path between commits. A client under test
reads with an old and a new handle while other writers commit and publish.
"""

from conformance.checks import check, families
from conformance.interface.results import Layer
from conformance.programs.client_words import ClientFamily
from conformance.programs.owner_words import OwnerFamily
from conformance.programs.running import Generation
from conformance.scenario.check import Family


@check(Family.STALE_READS, *families.READING, *families.COMMITTING, layer=Layer.MODEL)
def any_sequence_of_reads(g: Generation) -> None:
    """Generated reads of every range between commits, publications and restarts: each one shows one fresh state, and
    none is older than an earlier one."""
    g.run(
        OwnerFamily(
            name=g.check.family, factors={"read": 5, "load": 3, "look": 2, "backfill": 2, "resend": 0.5, "together": 2}
        )
    )


@check(Family.STALE_READS, *families.LOGS, layer=Layer.MODEL, side="client")
def any_read_by_the_client(g: Generation) -> None:
    """Generated reads by an old and a new reader, while other writers commit and publish: each one has everything that
    was ratified before, and none is older than an earlier one."""
    factors = {"read": 5, "again": 4, "backfill": 2, "of_readers": 2, "maintain": 0.1, "create": 0, "transfer": 0}
    g.run(ClientFamily(name=g.check.family, factors=factors))
