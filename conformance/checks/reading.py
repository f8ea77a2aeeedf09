"""Readers: from an owner's answer, a listing, checkpoints, compactions, checksums and hints to one gap-free snapshot.

The rules are those of the log, and hold for every owner. Fixtures are made by `LogBuilder`; the expected snapshots are
computed from the actions as they were committed. Every read is that of a new reader, and reads that must fail come
before reads that succeed, because a client may cache what it has read.

The example is here because no program has transactions that have expired.
"""

from conformance.adapters.identity import EVERY_TABLE
from conformance.checks import check, families
from conformance.interface import messages as m
from conformance.interface.results import Layer
from conformance.models import proposals
from conformance.programs.client_words import ClientFamily
from conformance.programs.running import Generation
from conformance.scenario.check import Family
from conformance.scenario.client import ClientScenario
from conformance.scenario.log_builder import LogBuilder
from conformance.scenario.scenario import Inconclusive
from conformance.scenario.snapshots import ask


@check(Family.READING, *families.LOGS, layer=Layer.MODEL, side="client", features=EVERY_TABLE)
def any_log_is_read(g: Generation) -> None:
    """Generated logs with checkpoints, compactions, checksums, leftovers and cleaned-up prefixes, read by version, time
    and path while the owner publishes and other writers commit: every snapshot is the replay of the log."""
    factors = {"read": 4, "transact": 0.5, "maintain": 0.3, "create": 0, "transfer": 0}
    g.run(ClientFamily(name=g.check.family, factors=factors))


@check(Family.READING, "LOG-49", features=EVERY_TABLE)
def expired_applications_are_ignored(s: ClientScenario) -> None:
    """A transaction that was last updated long ago has expired; one that was updated in the future, and one of an
    unknown time, have not."""
    log = LogBuilder.create(s, properties={"delta.setTransactionRetentionDuration": "interval 7 days"})
    times: dict[str, dict[str, int]] = {"old": {"lastUpdated": 1}, "new": {"lastUpdated": 2**42}, "timeless": {}}
    log.land(*(proposals.line("txn", {"appId": name, "version": 5, **time}) for name, time in times.items()))
    call, _ = ask(log, version=1)
    found = call.answer.applications if isinstance(call.answer, m.SnapshotRead) else None
    if found is None:
        raise Inconclusive(f"operation {call.number}: the client returned no applications")
    s.require(
        "old" not in found and found.get("new") == 5, "LOG-49", evidence=(call,), version=1,
        observed=f"the applications are {sorted(found)}",
        expected="`old` was last updated in 1970, and the table keeps transactions for 7 days; `new` must be there",
    )  # fmt: skip
