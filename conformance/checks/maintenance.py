"""Maintenance by clients, metadata cleanup, and the owner's policy.

catalog-managed, "Maintenance Operations on Catalog-managed Tables", in its stricter reading: checkpoints, log
compactions and checksums are always allowed, everything else only if the owner allows it.

The examples are here because no program demands statistics, or protects checkpoints.
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from conformance.adapters.identity import EVERY_TABLE
from conformance.checks import check, families
from conformance.interface import messages as m
from conformance.interface.results import Layer
from conformance.models.log_files import Unreadable, checkpoint_actions
from conformance.models.proposals import line
from conformance.programs.client_words import ClientFamily
from conformance.programs.running import Generation
from conformance.scenario.check import Family
from conformance.scenario.client import ClientScenario
from conformance.scenario.log_builder import LogBuilder, file
from conformance.scenario.scenario import Exchange


@check(Family.MAINTENANCE, *families.MAINTAINING, layer=Layer.MODEL, side="client", features=EVERY_TABLE)
def any_maintenance_of_any_log(g: Generation) -> None:
    """Generated logs that the client checkpoints, compacts, publishes, cleans up and vacuums: the files that it writes
    equal the replay of the log, and the ones that it deletes are not needed."""
    factors = {"maintain": 6, "transact": 0.5, "checkpoint": 1.5, "create": 0, "transfer": 0}
    g.run(ClientFamily(name=g.check.family, factors=factors))


def done(s: ClientScenario, log: LogBuilder, request: m.Request) -> Exchange:
    """Run a job, which must succeed. If the client does not support it, the scenario is inconclusive."""
    call = s.act("maintenance", request, log.table)
    s.expect(call, m.Done, "PROFILE-CLIENT-02", may_refuse=True, expected="the job is allowed")
    return call


def checkpoints(log: LogBuilder, version: int) -> list[str]:
    return sorted(path.name for path in log.folder.glob(f"{version:020}.checkpoint.*"))


# Checkpoints


STATISTICS = {"numRecords": 3, "minValues": {"id": 1}, "maxValues": {"id": 9}, "nullCount": {"id": 0}}
AS_TEXT, AS_COLUMNS = "delta.checkpoint.writeStatsAsJson", "delta.checkpoint.writeStatsAsStruct"


@check(Family.MAINTENANCE, "LOG-48", features=EVERY_TABLE)
def a_checkpoint_has_the_demanded_statistics(s: ClientScenario) -> None:
    """A table demands typed columns, JSON or both; without the properties, JSON. A client may write more than the
    properties demand. It may reject a checkpoint of such a table."""
    for number, (text, typed) in enumerate(((True, False), (True, True), (False, True))):
        given = {AS_TEXT: str(text).lower(), AS_COLUMNS: str(typed).lower()} if number else {}
        log = LogBuilder.create(s, f"t{number}", properties=given, partitioned=True)
        log.land(file("f1", "x", partitioned=True, stats=json.dumps(STATISTICS)))
        if s.commit_mode != "direct":
            log.backfill(1)
        call = done(s, log, m.Checkpoint(table=s.name_of(log.table), version=1))
        for held in in_checkpoints(s, log, call):
            (add,) = (action["add"] for action in held if action.get("add", {}).get("path") == "f1")
            values = add.get("partitionValues_parsed")
            lacks = [
                what
                for what, is_there in (
                    ("its statistics as JSON", not text or statistics_in(add) == STATISTICS),
                    ("the typed column `stats_parsed`", not typed or same_statistics(add.get("stats_parsed"))),
                    ("the typed column `partitionValues_parsed`", not typed or values == {"part": "x"}),
                )
                if not is_there
            ]
            s.require(
                not lacks, "LOG-48", evidence=(call,), version=1,
                observed=f"`f1` in the checkpoint lacks {', '.join(lacks)}",
                expected=f"the table has the properties {given}: `f1` has "
                + " and ".join(["its statistics as JSON"] * text + ["typed columns"] * typed),
            )  # fmt: skip


def statistics_in(add: dict[str, Any]) -> Any:
    try:
        return json.loads(add.get("stats") or "")
    except ValueError:
        return None


def same_statistics(typed: Any) -> bool:
    """Whether the typed statistics say of `id` what the log says. They may say more, such as `tightBounds`."""
    return isinstance(typed, dict) and all(
        typed.get(key) == value if not isinstance(value, dict) else (typed.get(key) or {}).get("id") == value["id"]
        for key, value in STATISTICS.items()
    )


PROTECTED_BEFORE = "delta.requireCheckpointProtectionBeforeVersion"


@check(Family.MAINTENANCE, "LOG-50", features=EVERY_TABLE)
def a_protected_version_of_an_unknown_protocol_gets_no_checkpoint(s: ClientScenario) -> None:
    """Version 1 has a writer feature that no client knows, and version 2 removes it, as DROP FEATURE does: versions
    before 2 are protected. A checkpoint of version 2 is allowed."""
    log = LogBuilder.create(s)
    (protocol,) = (action["protocol"] for action in log.actions[0] if "protocol" in action)
    (metadata,) = (action["metaData"] for action in log.actions[0] if "metaData" in action)
    configuration = {**metadata["configuration"], PROTECTED_BEFORE: "2"}

    def listing(feature: str) -> str:
        return line("protocol", {**protocol, "writerFeatures": sorted({*protocol["writerFeatures"], feature})})

    log.land(listing("kitFeatureOfTomorrow"), file("f1"))
    log.land(listing("checkpointProtection"), line("metaData", {**metadata, "configuration": configuration}))
    if s.commit_mode != "direct":
        log.backfill(2)
    call = s.act("maintenance", m.Checkpoint(table=s.name_of(log.table), version=1), log.table)
    s.require(
        not checkpoints(log, 1), "LOG-50", evidence=(call,), version=1, observed=f"it wrote {checkpoints(log, 1)}",
        expected=f"{PROTECTED_BEFORE} is 2, and version 1 has a feature that no client knows: no checkpoint",
    )  # fmt: skip
    done(s, log, m.Checkpoint(table=s.name_of(log.table), version=2))


def in_checkpoints(s: ClientScenario, log: LogBuilder, call: Exchange) -> Iterator[list[dict[str, Any]]]:
    """The actions of each complete checkpoint, which must be readable."""
    for checkpoint in log.listing().checkpoints:
        if checkpoint.complete:
            yield readable(s, call, "LOG-34", partial(checkpoint_actions, checkpoint))


def readable(s: ClientScenario, call: Exchange, requirement: str, read: Callable[[], list[dict[str, Any]]]) -> Any:
    """The actions of a file that the client wrote."""
    try:
        return read()
    except Unreadable as error:
        return s.fail(
            requirement, evidence=(call,), expected="a complete file of actions", observed=str(error).rstrip(".")
        )
