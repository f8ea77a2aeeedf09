"""Maintenance by clients, metadata cleanup, and the owner's policy.

catalog-managed, "Maintenance Operations on Catalog-managed Tables", in its stricter reading: checkpoints, log
compactions and checksums are always allowed, everything else only if the owner allows it.

The examples are here because no program has a data file that is written and not committed yet.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from conformance.adapters.identity import EVERY_TABLE
from conformance.checks import check, families
from conformance.interface import messages as m
from conformance.interface.log_names import STAGING, checkpoint_file, commit_file, staged_file
from conformance.interface.results import Layer
from conformance.models import proposals
from conformance.models.log_files import Unreadable, checkpoint_actions, vector_file
from conformance.models.proposals import line
from conformance.models.reader import ModelReader
from conformance.oracle.client import replay
from conformance.programs.client_words import ClientFamily
from conformance.programs.running import Generation
from conformance.scenario.check import Family
from conformance.scenario.client import ClientScenario
from conformance.scenario.log_builder import LogBuilder, domain, file, gone, stored_vector
from conformance.scenario.scenario import Exchange, Inconclusive


@check(Family.MAINTENANCE, *families.MAINTAINING, layer=Layer.MODEL, side="client", features=EVERY_TABLE)
def any_maintenance_of_any_log(g: Generation) -> None:
    """Generated logs that the client checkpoints, compacts, publishes, cleans up and vacuums: the files that it writes
    equal the replay of the log, and the ones that it deletes are not needed."""
    factors = {"maintain": 6, "transact": 0.5, "checkpoint": 1.5, "create": 0, "transfer": 0}
    g.run(ClientFamily(name=g.check.family, factors=factors))


CHECKPOINT = ("MC-CHECKPOINT-03", "CM-MAINT-01")
COMPACTION = ("MC-COMPACTION-01", "CM-MAINT-02")
TWO_STEPS = ("staged", "inline")


def log_of(s: ClientScenario, published: int = 3) -> LogBuilder:
    """A table with five versions after version 0, of which the older ones are published."""
    log = LogBuilder.create(s)
    for version in range(1, 6):
        log.land(file(f"f{version}"), *([gone(f"f{version - 1}")] if version % 2 == 0 else []))
    if s.commit_mode != "direct":
        log.backfill(published)
    return log


def done(s: ClientScenario, log: LogBuilder, request: m.Request) -> Exchange:
    """Run a job, which must succeed. If the client does not support it, the scenario is inconclusive."""
    call = s.act("maintenance", request, log.table)
    s.expect(call, m.Done, "PROFILE-CLIENT-02", may_refuse=True, expected="the job is allowed")
    return call


def names(log: LogBuilder) -> list[str]:
    """All files directly in the log folder."""
    return sorted(path.name for path in log.folder.iterdir() if path.is_file())


def checkpoints(log: LogBuilder, version: int) -> list[str]:
    return [name for name in names(log) if name.startswith(f"{version:020}.checkpoint.")]


# Checkpoints


LONG_AGO = 1_500_000_000_000
"""ms since the epoch: older than any retention period."""


@check(Family.MAINTENANCE, *CHECKPOINT, "LOG-34", "CM-POLICY-01", "CM-POLICY-03", "CM-MAINT-04", commit_modes=TWO_STEPS)
def a_checkpoint_of_the_clients_choice_is_published(s: ClientScenario) -> None:
    """Asked for a checkpoint of any version, a client writes one of a published version. It may publish a version
    first, before it writes any file of the checkpoint. All files of the log are old, and the catalog does not allow
    metadata cleanup: the client deletes none."""
    log = log_of(s)
    for version in range(log.published + 1):
        log.touch(version, LONG_AGO + version)
    before = set(names(log))

    def unpublished() -> list[str]:
        versions = {name: version_of_checkpoint(name) for name in names(log)}
        return sorted(name for name, of in versions.items() if of is not None and of > log.published)

    early: list[str] = []
    s.owner.on(m.BackfillToVersion, before=lambda: early.extend(unpublished()), times=10)
    s.owner.on(m.MaintenancePolicy, answer=m.Policy(allowed=("checkpoint", "log-compaction", "checksum")), times=1000)
    call = done(s, log, m.Checkpoint(table=s.name_of(log.table), version=log.published, any_version=True))
    s.require(
        not (early or unpublished()), *CHECKPOINT, evidence=(call,),
        expected=f"checkpoints of published versions only; the newest one is {log.published}",
        observed=f"{early or unpublished()} was written before its version was published",
    )  # fmt: skip
    if s.feature == "catalogManaged":
        missing = sorted(before - set(names(log)))
        s.require(
            not missing, "CM-POLICY-01", "CM-POLICY-03", "CM-MAINT-04", evidence=(call,),
            expected="the catalog does not allow metadata cleanup: every file stays",
            observed=f"{missing} were deleted with the checkpoint",
        )  # fmt: skip
    made = [of for name in names(log) if (of := version_of_checkpoint(name)) is not None]
    if not made:
        raise Inconclusive(f"operation {call.number}: the client wrote no checkpoint")
    log.hide(*{commit_file(version) for version in range(max(made) + 1)}.intersection(names(log)))
    equals(s, log, call, max(made), "LOG-34", what="checkpoint")


def version_of_checkpoint(name: str) -> int | None:
    """The version of a checkpoint file; None for any other file of the log."""
    version, _, rest = name.partition(".")
    return int(version) if rest.startswith("checkpoint.") and version.isdigit() else None


@check(Family.MAINTENANCE, "FIELD-01", features=EVERY_TABLE)
def the_checkpoint_hint_never_goes_back(s: ClientScenario) -> None:
    """`_last_checkpoint` names an existing checkpoint; a checkpoint of an older version does not change it."""
    log = log_of(s)
    newer = done(s, log, m.Checkpoint(table=s.name_of(log.table), version=3))
    older = done(s, log, m.Checkpoint(table=s.name_of(log.table), version=1))
    hint = log.folder / "_last_checkpoint"
    if not hint.exists():
        return
    named = json_object(hint).get("version")
    s.require(
        named == 3, "FIELD-01", evidence=(older, newer), observed=f"`_last_checkpoint` names version {named}",
        expected="the hint names version 3, the newest checkpoint, after one of version 1 was written",
    )  # fmt: skip


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


def read_by_kit(s: ClientScenario, log: LogBuilder, version: int, what: str) -> dict[str, Any]:
    """A field of the version's snapshot, as the kit's own reader finds it; empty if it cannot read the version."""
    read = ModelReader(s.owner.subject.ask).snapshot("kit", m.Snapshot(table=s.name_of(log.table), version=version))
    return dict(getattr(read, what, None) or {})


# Compactions and checksums


@check(Family.MAINTENANCE, *COMPACTION, "LOG-35", features=EVERY_TABLE)
def a_compaction_keeps_removals(s: ClientScenario) -> None:
    """A compacted commit removes a file that was added before the compaction's first version: the compaction contains
    the removal, even if another compacted commit added the file again. The same holds for a metadata domain."""

    def added_again(s: ClientScenario) -> LogBuilder:
        log = LogBuilder.create(s, "again")
        kept, other = domain("kit.kept", "a"), domain("kit.domain", "b")
        for actions in (
            [file("f1"), file("f2"), kept, other],
            [file("f1", size=2)],
            [gone("f1"), domain("kit.domain", "b", removed=True)],
        ):
            log.land(*actions)
        if s.commit_mode != "direct":
            log.backfill(3)
        return log

    for make in (log_of, added_again):
        log = make(s)
        call = done(s, log, m.Compact(table=s.name_of(log.table), start=2, end=3))
        log.hide(commit_file(2))
        equals(s, log, call, 3, "LOG-35", what="compaction", why="a file of version 1 was removed; ")
        domains = read_by_kit(s, log, 3, "domains")
        s.require(
            domains == replay(log.actions, 3).domains, "LOG-35", evidence=(call,),
            observed=f"the kit reads the domains {domains}",
            expected=f"version 3 removes `kit.domain` (RULINGS.md#removed-domains): with the compaction in place of "
            f"versions 2 and 3 it has the domains {replay(log.actions, 3).domains}",
        )  # fmt: skip


def equals(
    s: ClientScenario, log: LogBuilder, call: Exchange, version: int, *requirements: str, what: str, why: str = ""
) -> None:
    """The kit reads the client's checkpoint or compaction instead of the commits, and finds the files of the
    version."""
    files = s.kit_reads(log.table, version)
    s.require(
        files == set(replay(log.actions, version).files), *requirements, evidence=(call,), version=version,
        observed=f"the kit reads the files {sorted(files)} with the {what}",
        expected=f"{why}with the {what} in place of its commits version {version} has the files "
        f"{sorted(replay(log.actions, version).files)}",
    )  # fmt: skip


def json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if the file has anything else."""
    try:
        parsed = json.loads(path.read_bytes())
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


# Permission


UNPERMITTED = ("CM-POLICY-01", "CM-POLICY-03", "CM-MAINT-04")


@check(Family.MAINTENANCE, *UNPERMITTED, features=("catalogManaged",))
def an_unknown_permission_permits_nothing(s: ClientScenario) -> None:
    """The owner permits a job that the client does not know, and does not permit VACUUM: an old file that no version
    names stays."""
    log = LogBuilder.create(s, writer_features=())
    log.land(file("a"))
    make_old(log, "a", "orphan.parquet")
    allowed = m.Policy(allowed=("checkpoint", "log-compaction", "checksum", "data-cleanup-dry-run"))
    s.owner.on(m.MaintenancePolicy, answer=allowed, times=1000)
    call = s.act("maintenance", m.Maintain(table=s.name_of(log.table), job="vacuum"), log.table)
    s.require(
        (log.folder.parent / "orphan.parquet").exists(), *UNPERMITTED, evidence=(call,),
        expected=f"the owner permits {', '.join(allowed.allowed)}: VACUUM deletes nothing",
        observed="orphan.parquet was deleted",
    )  # fmt: skip


def make_old(log: LogBuilder, *names: str) -> None:
    """Write these files of the table, long ago."""
    for name in names:
        path = log.folder.parent / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"rows")
        os.utime(path, (LONG_AGO / 1000, LONG_AGO / 1000))


def vacuumed(
    s: ClientScenario, log: LogBuilder, kept: Sequence[str], requirement: str, *, why: str, others: Sequence[str] = (),
    young: Sequence[str] = (),
) -> None:  # fmt: skip
    """VACUUM runs where the owner allows it. The files `kept`, `others` and one that no version names are old, `young`
    was written just now. `kept` and `young` stay. A client that deletes no file leaves the scenario inconclusive."""
    table, orphan = log.folder.parent, "orphan.parquet"
    make_old(log, *kept, *others, *young, orphan)
    for name in young:
        os.utime(table / name)
    allowed = m.Policy(allowed=("checkpoint", "log-compaction", "checksum", "vacuum"))
    s.owner.on(m.MaintenancePolicy, answer=allowed, times=1000)
    call = s.act("maintenance", m.Maintain(table=s.name_of(log.table), job="vacuum"), log.table)
    missing = [name for name in (*kept, *young) if not (table / name).exists()]
    s.require(
        not missing, requirement, evidence=(call,), version=log.latest, observed=f"VACUUM deleted {', '.join(missing)}",
        expected=f"{why} {', '.join((*kept, *young))}: they stay",
    )  # fmt: skip
    if (table / orphan).exists():
        raise Inconclusive(f"operation {call.number}: the client did not delete the file that no version needs")


@check(Family.MAINTENANCE, "LOG-37", features=EVERY_TABLE)
def vacuum_spares_files_with_absolute_paths(s: ClientScenario) -> None:
    """The log names a file of the table's folder by its URL, and one that is elsewhere on this host: VACUUM spares the
    first, as it does a file with a relative path."""
    log = LogBuilder.create(s, writer_features=())
    table, elsewhere = log.folder.parent, s.place / "elsewhere" / "part.parquet"
    log.land(file("a"), file((table / "by url.parquet").as_uri()), file(elsewhere.as_uri()))
    vacuumed(s, log, ["a", "by url.parquet"], "LOG-37", why="the actions of version 1 name the files")


@check(Family.MAINTENANCE, "LOG-37", features=EVERY_TABLE)
def vacuum_spares_deletion_vectors(s: ClientScenario) -> None:
    """Deletion vectors are in files of the table's folder, with relative or absolute paths. VACUUM spares them, also if
    the data is in a store that the client does not support; it may delete a vector that no action names."""
    log = LogBuilder.create(s, reader_features=("deletionVectors",), writer_features=())
    beside, below, far, free = (stored_vector(s.attempt(), prefix) for prefix in ("", "ab", "", ""))
    by_url = {**beside, "storageType": "p", "pathOrInlineDv": (log.folder.parent / "by url.bin").as_uri()}
    log.land(masked("a", beside), masked("b", below), masked("c", by_url))
    named = ["a", "b", "c", *(vector_file(vector) or "" for vector in (beside, below)), "by url.bin"]
    others = [vector_file(free) or ""]
    vacuumed(s, log, named, "LOG-37", why="the actions of version 1 name the files", others=others)
    log.land(masked("s3://elsewhere/part.parquet", far))
    named.append(vector_file(far) or "")
    vacuumed(s, log, named, "LOG-37", why="the actions of versions 1 and 2 name the files", others=others)


def masked(path: str, vector: dict[str, Any]) -> str:
    """A file with a deletion vector; its rows must be counted."""
    return file(path, deletionVector=vector, stats='{"numRecords":3}')


# Metadata cleanup. Versions 0 to 6 are published, 7 and 8 are not; versions 2 and 4 have checkpoints. The cleanup time
# is that of version 5, so the cut-off checkpoint is the one of version 4.

KEEPS = ("MC-CLEANUP-02", "CM-CLEANUP-02", "MC-CLEANUP-04", "CM-CLEANUP-04", "LOG-36")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """A cleanup, and the files before and after it."""

    s: ClientScenario
    exchange: Exchange
    before: set[str]
    after: set[str]

    def keeps(self, name: str, *requirements: str, why: str) -> None:
        self.s.require(
            name in self.after, *requirements, evidence=(self.exchange,), expected=f"{why}: {name} stays",
            observed=f"{name} was deleted",
        )  # fmt: skip


def prepare(s: ClientScenario) -> LogBuilder:
    log = LogBuilder.create(s)
    for version in range(1, 9):
        log.land(file(f"f{version}"))
    if s.commit_mode != "direct":
        log.backfill(6)
    return log


def clean(s: ClientScenario, log: LogBuilder, version: int = 5) -> Cleaned:
    """Clean up what is older than the time of a version. The result counts what a failed cleanup deleted, too."""
    before = everything(log)
    request = m.Cleanup(table=s.name_of(log.table), older_than=s.timestamp(version))
    call = s.act("maintenance", request, log.table)
    after = everything(log)
    if after == before:
        s.expect(call, m.Done, "PROFILE-CLIENT-02", may_refuse=True, expected="the owner allows metadata cleanup")
    return Cleaned(s=s, exchange=call, before=before, after=after)


def everything(log: LogBuilder) -> set[str]:
    return {*names(log), *log.staged()}


def checkpoint(version: int) -> str:
    return checkpoint_file(version)


@check(Family.MAINTENANCE, "MC-CLEANUP-03", "CM-CLEANUP-03", "LOG-36", features=EVERY_TABLE)
def without_a_cut_off_checkpoint_nothing_is_deleted(s: ClientScenario) -> None:
    """If the only checkpoint is newer than the cleanup version, cleanup deletes nothing; with an older one it may."""
    log = prepare(s)
    log.checkpoint(6)
    cleaned = clean(s, log)
    for name in sorted(cleaned.before):
        cleaned.keeps(name, "MC-CLEANUP-03", "CM-CLEANUP-03", "LOG-36", why="no checkpoint is at or before version 5")


@check(Family.MAINTENANCE, "MC-CLEANUP-01", "CM-CLEANUP-01", "LOG-39", *KEEPS, features=EVERY_TABLE)
def an_incomplete_checkpoint_is_no_cut_off(s: ClientScenario) -> None:
    """A checkpoint with a missing part does not count: the older, complete one is the cut-off checkpoint."""
    log = prepare(s)
    log.checkpoint(3)
    first, _ = log.checkpoint(5, parts=2)
    log.hide(first)
    cleaned = clean(s, log)
    s.require(
        s.kit_reads(log.table, log.latest) == set(replay(log.actions, log.latest).files), "LOG-39", "MC-CLEANUP-01",
        "CM-CLEANUP-01", *KEEPS, evidence=(cleaned.exchange,),
        expected="the checkpoint of version 5 lacks a part: the one of version 3 and all later commits are needed",
        observed="the table cannot be read after the cleanup",
    )  # fmt: skip
    for name in (checkpoint(3), *(commit_file(version) for version in (3, 4, 5))):
        cleaned.keeps(
            name, "MC-CLEANUP-01", "CM-CLEANUP-01", *KEEPS,
            why="the checkpoint of version 5 lacks a part, so the one of version 3 is the cut-off checkpoint",
        )  # fmt: skip


def orphan(s: ClientScenario, log: LogBuilder, version: int) -> str:
    """Write a staged file that is not a commit, or not yet. Returns its name."""
    attempt = s.attempt()
    name = f"{STAGING[s.feature]}/{staged_file(version, attempt)}"
    log.plant(name, proposals.content(proposals.append(attempt, s.timestamp(version))).encode())
    return name
