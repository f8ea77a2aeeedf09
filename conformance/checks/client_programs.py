"""Generated programs for clients, judged by the pure oracle `conformance.oracle.client`: whatever the layout of a log,
the freedoms of its owner and the other writers, every read, commit and file is one that the documents allow."""

from typing import Final

from conformance.adapters.identity import EVERY_TABLE
from conformance.checks import check
from conformance.programs.client_words import ClientFamily
from conformance.programs.running import Generation
from conformance.results import Layer
from conformance.scenario.check import Family

READING: Final = (
    "MC-READ-03", "MC-READ-04", "MC-READ-07", "MC-LOG-03", "MC-LOG-06", "MC-FILES-05", "MC-FILES-09", "MC-GET-03",
    "MC-CHECKPOINT-02", "CM-READ-01", "CM-READ-02", "CM-READ-03", "CM-READ-04", "CM-READ-05", "CM-READ-08",
    "CM-READ-09", "CM-LOG-03", "CM-LOG-08", "CM-FILES-04", "CM-ACCESS-01", "LOG-04", "LOG-08", "LOG-09", "LOG-10",
    "LOG-11", "LOG-13", "LOG-15", "LOG-16", "LOG-17", "LOG-18", "LOG-19", "LOG-20", "LOG-21", "LOG-22", "LOG-24",
    "LOG-25", "LOG-27", "LOG-28", "LOG-29", "LOG-30", "LOG-31", "LOG-32", "LOG-33", "LOG-38", "LOG-46", "FIELD-03",
    "ICT-16", "ICT-18", "ICT-19", "ICT-20", "PROFILE-CLIENT-01", "PROFILE-CLIENT-03",
)  # fmt: skip
WRITING: Final = (
    "CONFLICT-CHECK-01", "CONFLICT-CHECK-02", "CONFLICT-FILES-01", "CONFLICT-FILES-02", "CONFLICT-FILES-03",
    "CONFLICT-FILES-04", "CONFLICT-FILES-05", "CONFLICT-ISOLATION-01", "CONFLICT-ISOLATION-04", "CONFLICT-ORDER-01",
    "CONFLICT-ORDER-02", "CONFLICT-ORDER-03", "CONFLICT-ORDER-04", "CONFLICT-ORDER-05", "CONFLICT-ORDER-06",
    "CONFLICT-ORDER-07", "CONFLICT-ORDER-08", "CONFLICT-ORDER-09", "CONFLICT-ORDER-10", "CONFLICT-REPEAT-01",
    "CONFLICT-RETRY-01", "CONFLICT-RETRY-02", "CONFLICT-RETRY-04", "CONFLICT-RETRY-05", "CONFLICT-RETRY-06",
    "DELAYED-02", "DELAYED-03", "DELAYED-04", "DELAYED-05", "DELAYED-08", "DELAYED-10", "DELAYED-11", "FIELD-04",
    "ICT-08", "ICT-14", "LOG-30", "LOG-37", "LOG-47", "ROW-02", "ROW-03", "ROW-04", "ROW-05", "MC-COMMIT-06",
    "CM-COMMIT-06", "PROFILE-UNKNOWN-01", "PROFILE-UNKNOWN-03", "PROFILE-BACKLOG-03", "PROFILE-CLIENT-02",
)  # fmt: skip
MAINTAINING: Final = (
    "LOG-02", "LOG-34", "LOG-35", "LOG-36", "LOG-37", "LOG-39", "LOG-40", "LOG-41", "LOG-44", "LOG-45", "FIELD-01",
    "FIELD-02", "MC-CHECKPOINT-03", "MC-COMPACTION-01", "CM-MAINT-01", "CM-MAINT-02", "CM-MAINT-04", "CM-POLICY-01",
    "CM-POLICY-03", "MC-CLEANUP-01", "MC-CLEANUP-02", "MC-CLEANUP-03", "MC-CLEANUP-04", "MC-CLEANUP-05",
    "MC-CLEANUP-06", "MC-CLEANUP-07", "MC-CLEANUP-08", "MC-CLEANUP-09", "CM-CLEANUP-01", "CM-CLEANUP-02",
    "CM-CLEANUP-03", "CM-CLEANUP-04", "CM-CLEANUP-05", "CM-CLEANUP-06", "CM-CLEANUP-07", "CM-CLEANUP-08",
    "RULING-CLEANUP-01", "CM-PUBLISH-07", "CM-PUBLISH-08",
)  # fmt: skip
OWNING: Final = (
    "ICT-10", "ICT-11", "ICT-12", "ICT-15", "LOG-42", "LOG-43", "MC-CONVERT-04", "MC-CONVERT-10", "MC-CONVERT-11",
    "MC-FILES-12", "MC-RELEASE-01", "MC-WRITE-03", "CM-WRITE-04", "PROFILE-UNKNOWN-01", "PROFILE-UNKNOWN-02",
)  # fmt: skip
OTHERS: Final = {"create": 0.0, "transfer": 0.0}


@check(Family.READING, *READING, layer=Layer.MODEL, side="client", features=EVERY_TABLE)
def any_log_is_read(g: Generation) -> None:
    """Generated logs with checkpoints, compactions, checksums, leftovers and cleaned-up prefixes, read by version, time
    and path while the owner publishes and other writers commit: every snapshot is the replay of the log."""
    g.run(ClientFamily(name="reading", factors={**OTHERS, "read": 4, "transact": 0.5, "maintain": 0.3}))


@check(Family.CONFLICTS, *WRITING, layer=Layer.MODEL, side="client", features=EVERY_TABLE)
def any_transaction_against_any_winners(g: Generation) -> None:
    """Generated transactions that lose races to generated winners: each one is committed, or fails, as its reads, its
    isolation level and the winners decide, and its commit has exactly its changes."""
    factors = {**OTHERS, "transact": 4, "read": 0.3, "maintain": 0.1, "win": 1.5, "of_writers": 0.4}
    g.run(ClientFamily(name="conflicts", factors=factors))


@check(Family.REPLAYS, *WRITING, layer=Layer.MODEL, side="client")
def any_transaction_with_lost_answers(g: Generation) -> None:
    """Generated transactions whose requests and answers are lost, delayed, repeated and refused: each one is committed
    at most once, and reported as it ended."""
    factors = {"transact": 4, "read": 0.3, "maintain": 0.1, "win": 0.4, "of_writers": 1.8, "create": 2, "transfer": 0}
    g.run(ClientFamily(name="unknown-outcomes", factors=factors))


@check(Family.MAINTENANCE, *MAINTAINING, layer=Layer.MODEL, side="client", features=EVERY_TABLE)
def any_maintenance_of_any_log(g: Generation) -> None:
    """Generated logs that the client checkpoints, compacts, publishes, cleans up and vacuums: the files that it writes
    equal the replay of the log, and the ones that it deletes are not needed."""
    g.run(ClientFamily(name="maintenance", factors={**OTHERS, "maintain": 6, "transact": 0.5, "checkpoint": 1.5}))


@check(Family.OWNERSHIP, *OWNING, layer=Layer.MODEL, side="client")
def any_change_of_ownership(g: Generation) -> None:
    """Generated take-overs and hand-backs by the client, with lost answers and faster writers: the table keeps its
    features and properties, and the outcome is reported."""
    g.run(ClientFamily(name="ownership", factors={"transfer": 8, "create": 1, "maintain": 0.3}))
