"""The requirements that generated programs put to the test, and the pinned programs of each family.

All programs of a side have the same kinds of steps, and one oracle judges every answer and every file. A family's file
begins with its properties, one for owners and one for clients: which kinds of steps are more frequent, and which
requirements they test.

    run SUBJECT --family backfill-ordering --programs 5000 --seed 7
"""

from typing import Final

from conformance.adapters.identity import EVERY_TABLE, FEATURES
from conformance.checks import check
from conformance.interface.results import Layer
from conformance.programs import pinned
from conformance.programs.client_words import ClientFamily
from conformance.programs.owner_words import OwnerFamily
from conformance.programs.running import Generation
from conformance.scenario.check import Family

# What the oracle says of owners (`conformance.oracle.owner`, `conformance.oracle.folder`)

COMMITTING: Final = (
    "MC-COMMIT-01", "CM-COMMIT-07", "MC-COMMIT-02", "CM-COMMIT-08", "MC-API-03", "CM-CATALOG-03", "MC-FEATURE-02",
    "CM-FEATURE-01", "MC-FEATURE-03", "CM-COMMIT-01", "PROFILE-CORE-03", "PROFILE-CORE-05", "PROFILE-CORE-06",
    "PROFILE-CORE-07", "PROFILE-RETRY-01", "PROFILE-OUTCOME-01", "PROFILE-OUTCOME-02", "PROFILE-DIRECT-01",
    "MC-COMMIT-05", "CM-COMMIT-05", "PROFILE-STAGED-01", "MC-COMMIT-07", "PROFILE-CORE-02", "MC-COMMIT-04",
    "CM-COMMIT-04",
)  # fmt: skip
READING: Final = (
    "MC-READ-06", "CM-GET-04", "MC-GET-01", "CM-GET-03", "MC-GET-02", "LOG-05", "LOG-07", "MC-FILES-06",
    "CM-STORE-09", "MC-API-04", "CM-CATALOG-04",
    "MC-FILES-01", "MC-FILES-03", "CM-FILES-03", "MC-LOG-05", "CM-FILES-01",
)  # fmt: skip
PUBLISHING: Final = (
    "MC-BACKFILL-01", "CM-PUBLISH-03", "MC-BACKFILL-03", "CM-PUBLISH-06", "MC-BACKFILL-05", "PROFILE-CORE-10",
    "MC-FILES-08", "CM-FILES-07", "PROFILE-BACKLOG-01", "MC-LOG-01", "CM-LOG-01", "MC-FILES-07", "CM-FILES-06",
    "MC-FILES-02", "MC-FILES-04", "CM-FILES-02", "LOG-01",
)  # fmt: skip
REQUESTS: Final = (*COMMITTING, *READING, *PUBLISHING)
OUTCOMES: Final = (
    "PROFILE-RETRY-01", "PROFILE-RETRY-02", "PROFILE-RETRY-03", "PROFILE-OUTCOME-01", "PROFILE-OUTCOME-02",
)  # fmt: skip
CONTENT: Final = (
    "MC-FEATURE-01", "MC-FEATURE-02", "MC-BACKFILL-01", "CM-STORE-03", "CM-STORE-05", "CM-PUBLISH-03", "CM-LOG-07",
    "PROFILE-INLINE-01", "CM-INLINE-01", "MC-LOG-05", "CM-LOG-02",
)  # fmt: skip
DISCOVERY: Final = ("PROFILE-DISCOVERY-01", "PROFILE-DISCOVERY-02", "CM-DISCOVER-01", "CM-CATALOG-05")
DURABLE: Final = (
    "PROFILE-DURABLE-01", "PROFILE-DURABLE-02", "PROFILE-DURABLE-03", "PROFILE-POLICY-01", "PROFILE-HARNESS-01",
)  # fmt: skip
LIMITED: Final = ("PROFILE-BACKLOG-01", "PROFILE-BACKLOG-02")
TRANSFERRED: Final = (
    "MC-CONVERT-01", "MC-CONVERT-02", "MC-CONVERT-03", "MC-CONVERT-05", "MC-CONVERT-06", "MC-CONVERT-07",
    "MC-CONVERT-08", "MC-ENABLE-10", "MC-RELEASE-03", "MC-RELEASE-04", "MC-RELEASE-05", "MC-RELEASE-07",
    "PROFILE-TRANSFER-01", "PROFILE-TRANSFER-02",
)  # fmt: skip

# What the oracle says of clients (`conformance.oracle.client`)

LOGS: Final = (
    "MC-READ-03", "MC-READ-04", "MC-READ-07", "MC-LOG-03", "MC-LOG-06", "MC-FILES-05", "MC-FILES-09", "MC-GET-03",
    "MC-CHECKPOINT-02", "CM-READ-01", "CM-READ-02", "CM-READ-03", "CM-READ-04", "CM-READ-05", "CM-READ-08",
    "CM-READ-09", "CM-LOG-03", "CM-LOG-08", "CM-FILES-04", "CM-ACCESS-01", "LOG-04", "LOG-08", "LOG-09", "LOG-10",
    "LOG-11", "LOG-13", "LOG-15", "LOG-16", "LOG-17", "LOG-18", "LOG-19", "LOG-20", "LOG-21", "LOG-22", "LOG-24",
    "LOG-25", "LOG-27", "LOG-28", "LOG-29", "LOG-30", "LOG-31", "LOG-32", "LOG-33", "LOG-38", "LOG-46", "LOG-51",
    "FIELD-03", "ICT-16", "ICT-17", "ICT-18", "ICT-19", "ICT-20", "PROFILE-CLIENT-01", "PROFILE-CLIENT-03",
)  # fmt: skip
API: Final = tuple(f"UC-CLIENT-{number:02}" for number in range(1, 9))
"""What `conformance.scenario.api_requests` says of each request of a client to its catalog."""
TRANSACTIONS: Final = (
    *API,
    "CONFLICT-CHECK-01", "CONFLICT-CHECK-02", "CONFLICT-FILES-01", "CONFLICT-FILES-02", "CONFLICT-FILES-03",
    "CONFLICT-FILES-04", "CONFLICT-FILES-05", "CONFLICT-ISOLATION-01", "CONFLICT-ISOLATION-04", "CONFLICT-ORDER-01",
    "CONFLICT-ORDER-02", "CONFLICT-ORDER-03", "CONFLICT-ORDER-04", "CONFLICT-ORDER-05", "CONFLICT-ORDER-06",
    "CONFLICT-ORDER-07", "CONFLICT-ORDER-08", "CONFLICT-ORDER-09", "CONFLICT-ORDER-10", "CONFLICT-REPEAT-01",
    "CONFLICT-RETRY-01", "CONFLICT-RETRY-02", "CONFLICT-RETRY-04", "CONFLICT-RETRY-05", "CONFLICT-RETRY-06",
    "CM-ENABLE-01", "CM-ENABLE-02", "MC-ENABLE-01", "MC-ENABLE-02", "MC-ENABLE-03", "MC-ENABLE-07", "MC-ENABLE-09",
    "CM-WRITE-01", "ICT-03", "ICT-05", "ICT-06", "ICT-07", "ICT-21",
    "DELAYED-01", "DELAYED-02", "DELAYED-03", "DELAYED-04", "DELAYED-05",
    "DELAYED-08", "DELAYED-10", "DELAYED-11", "FIELD-04", "ICT-08", "ICT-09", "ICT-14", "LOG-30", "LOG-37",
    "LOG-47", "CM-ACCESS-02", "CM-TXNID-01", "CM-TXNID-02", "PROFILE-CHANGES-01", "PROFILE-ROWS-01", "ROW-01", "ROW-02",
    "ROW-03", "ROW-04", "ROW-05", "MC-COMMIT-06", "CM-COMMIT-06", "PROFILE-UNKNOWN-01", "PROFILE-UNKNOWN-03",
    "CONFLICT-ISOLATION-05", "LOG-52", "LOG-53", "LOG-54", "PROFILE-BACKLOG-03", "PROFILE-CLIENT-02",
)  # fmt: skip
MAINTAINING: Final = (
    *API,
    "LOG-02", "LOG-34", "LOG-35", "LOG-36", "LOG-37", "LOG-39", "LOG-40", "LOG-41", "LOG-44", "LOG-45", "FIELD-01",
    "FIELD-02", "MC-CHECKPOINT-03", "MC-COMPACTION-01", "CM-MAINT-01", "CM-MAINT-02", "CM-MAINT-04", "CM-MAINT-05",
    "CM-POLICY-01", "CM-POLICY-03", "MC-CLEANUP-01", "MC-CLEANUP-02", "MC-CLEANUP-03", "MC-CLEANUP-04",
    "MC-CLEANUP-05", "MC-CLEANUP-06", "MC-CLEANUP-07", "MC-CLEANUP-08", "MC-CLEANUP-09", "CM-CLEANUP-01",
    "CM-CLEANUP-02", "CM-CLEANUP-03", "CM-CLEANUP-04", "CM-CLEANUP-05", "CM-CLEANUP-06", "CM-CLEANUP-07",
    "CM-CLEANUP-08", "RULING-CLEANUP-01", "CM-PUBLISH-07", "CM-PUBLISH-08",
)  # fmt: skip
OWNING: Final = (
    *API,
    "ICT-10", "ICT-11", "ICT-12", "ICT-13", "ICT-15", "LOG-42", "LOG-43", "MC-CONVERT-04", "MC-CONVERT-10",
    "MC-CONVERT-11", "MC-FILES-12", "MC-RELEASE-01", "MC-RELEASE-09", "MC-WRITE-03", "CM-WRITE-04",
    "PROFILE-UNKNOWN-01", "PROFILE-UNKNOWN-02",
)  # fmt: skip


# The pinned programs of each family, one check for each side: what generation rarely reaches, as data


def _register(family: Family, side: str) -> None:
    texts = tuple(pinned.texts(family, side))
    if not texts:
        return

    def run(g: Generation) -> None:
        if side == "owner":
            g.run_stored(OwnerFamily(name=family), texts)
        else:
            g.run_stored(ClientFamily(name=family), texts)

    run.__name__ = f"{pinned.CHECKS}{'' if side == 'owner' else 'clients_in_'}{family.replace('-', '_')}"
    run.__doc__ = f"The {len(texts)} pinned programs of the family {family}: each answer and file is possible."
    labels = [label for text in texts if (label := pinned.labelled(text)) is not None]
    requirements = dict.fromkeys(name for label in labels for name in label.requirements)
    features = FEATURES if side == "owner" else EVERY_TABLE
    check(family, *requirements, layer=Layer.MODEL, side=side, features=features)(run)


for _family in Family:
    for _side in ("owner", "client"):
        _register(_family, _side)
