"""Transactions over several tables: profile `transaction-group`, the form of which follows a draft RFC.

The variations: groups of two or three tables; overlapping groups in opposite order; a member that cannot be ratified;
lost answers, late and repeated requests of a group, of a part of it, and of one member alone; crashes between its
effects; a table that is dropped or handed back; readers of all tables. Everything is generated.
"""

from typing import Final

from conformance.checks import check, families
from conformance.interface.results import Layer
from conformance.programs.owner_words import OwnerFamily
from conformance.programs.running import Generation
from conformance.requirements.catalogue import Profile
from conformance.scenario.check import Family

GROUPS: Final = ("PROFILE-GROUP-01", "PROFILE-GROUP-02", "PROFILE-GROUP-03", "PROFILE-GROUP-04", "PROFILE-GROUP-05")
FEWER: Final = {
    "commit": 0.5, "resend": 0.7, "resolve": 0.7, "read": 0.5, "load": 0.5, "create": 0.3, "recreate": 0.5, "drop": 0.5,
    "filesystem": 0.3, "take_over": 0.3, "write": 0.3, "misplace": 0.3, "audit": 0.5, "metadata": 0.3, "deliver": 2,
}  # fmt: skip


@check(
    Family.TRANSACTIONS, *GROUPS, *families.REQUESTS, *families.OUTCOMES, *families.DURABLE, layer=Layer.MODEL,
    needs=(Profile.TRANSACTION_GROUP,), commit_modes=("staged", "inline"),
)  # fmt: skip
def any_sequence_of_groups(g: Generation) -> None:
    """Generated groups of proposals of several tables: each is ratified whole, or not at all."""
    g.run(OwnerFamily(name=g.check.family, factors=FEWER, groups=True))
