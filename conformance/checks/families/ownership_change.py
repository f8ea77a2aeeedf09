"""Ownership changes: a table has one owner at every version, and loses nothing when it gets another.

Filesystem tables are taken over and handed back, with writers of the filesystem in between, and with crashes, lost
answers and foreign files during the change.
"""

from conformance.checks import check
from conformance.checks.families import COMMITTING, OWNING, PUBLISHING, READING, TRANSFERRED
from conformance.interface.results import Layer
from conformance.programs.client_words import ClientFamily
from conformance.programs.owner_words import OwnerFamily
from conformance.programs.running import Generation
from conformance.requirements.catalogue import Profile
from conformance.scenario.check import Family


@check(Family.OWNERSHIP, *TRANSFERRED, *COMMITTING, *READING, *PUBLISHING, layer=Layer.MODEL,
       features=("managedCommit",), needs=(Profile.OWNERSHIP_TRANSFER,))  # fmt: skip
def any_sequence_of_transfers(g: Generation) -> None:
    """Generated take-overs and hand-backs with writers in between: each one is the next version, visible at once."""
    factors = {"filesystem": 8, "take_over": 6, "hand_back": 6, "write": 3, "crash": 2, "block": 2}
    g.run(OwnerFamily(name=g.check.family, factors=factors))


@check(Family.OWNERSHIP, *OWNING, layer=Layer.MODEL, side="client")
def any_change_of_ownership(g: Generation) -> None:
    """Generated take-overs and hand-backs by the client, with lost answers and faster writers: the table keeps its
    features and properties, and the outcome is reported."""
    g.run(ClientFamily(name=g.check.family, factors={"transfer": 8, "create": 1, "maintain": 0.3}))
