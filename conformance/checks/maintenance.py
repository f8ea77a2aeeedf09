"""Maintenance: what may be written for which version, and what the owner must have allowed."""

from __future__ import annotations

from conformance.checks.registry import Family, check
from conformance.interface import messages as m
from conformance.models.log_files import actions_in
from conformance.models.reader import ModelReader
from conformance.requirements.catalogue import Profile
from conformance.scenario.client import ClientScenario
from conformance.scenario.log_builder import LogBuilder, file, gone
from conformance.scenario.proposals import line
from conformance.scenario.scenario import Inconclusive, Told
from conformance.scenario.words import in_words

CHECKPOINT = ("MC-CHECKPOINT-03", "CM-MAINT-01")
COMPACTION = ("MC-COMPACTION-01", "CM-MAINT-02")
TWO_STEPS = ("staged", "inline")
FORBIDDEN_JOBS = ("vacuum", "optimize", "reorg")


def log_of(s: ClientScenario, published: int = 3, latest: int = 5) -> LogBuilder:
    """A table of some versions, of which the older ones are published."""
    log = LogBuilder.create(s)
    for version in range(1, latest + 1):
        log.land(file(f"f{version}"), *([gone(f"f{version - 1}")] if version % 2 == 0 else []))
    if s.commit_mode != "direct":
        log.backfill(published)
    return log


def done(s: ClientScenario, log: LogBuilder, request: m.Request) -> Told:
    """The job, which has to succeed; a client that cannot do it leaves the scenario inconclusive."""
    told = s.act("maintenance", request, log.table)
    s.expect(told, m.Done, "PROFILE-CLIENT-02", may_refuse=True, expected="nothing stands in the way of the job")
    return told


def names(log: LogBuilder) -> list[str]:
    """All files directly in the log folder."""
    return sorted(path.name for path in log.folder.iterdir() if path.is_file())


def checkpoints(log: LogBuilder, version: int) -> list[str]:
    return [name for name in names(log) if name.startswith(f"{version:020}.checkpoint.")]


# Checkpoints


@check(Family.MAINTENANCE, *CHECKPOINT, "LOG-02", "LOG-34", side="client")
def a_checkpoint_of_a_published_version_is_what_the_version_is(s: ClientScenario) -> None:
    """A checkpoint of a published version, also of one that is not the newest, has its prescribed name, and a snapshot
    can be built from it alone."""
    log = log_of(s)
    name = s.name_of(log.table) if log.table else ""
    told = done(s, log, m.Checkpoint(table=name, version=2))
    s.require(
        bool(checkpoints(log, 2)), "LOG-02", told=(told,), observed=f"the log folder holds {names(log)}",
        expected="a checkpoint of version 2 is called `<version>.checkpoint...`, the version in 20 digits",
    )  # fmt: skip
    log.hide(*(log.commit_name(version) for version in range(3)))
    found = s.kit_reads(log.table, 2)
    s.require(
        found == set(log.at(2).files), "LOG-34", told=(told,),
        expected=f"the checkpoint alone gives the files of version 2: {sorted(log.at(2).files)}",
        observed=f"it gives {sorted(found)}",
    )  # fmt: skip


@check(Family.MAINTENANCE, *CHECKPOINT, side="client", commit_modes=TWO_STEPS)
def a_checkpoint_waits_for_backfilling(s: ClientScenario) -> None:
    """A checkpoint of a version that is not published is refused, or the version is published before any file of the
    checkpoint is there."""
    log = log_of(s)
    early: list[str] = []
    s.owner.on(m.BackfillToVersion, before=lambda: early.extend(checkpoints(log, 5)), times=10)
    told = s.act("maintenance", m.Checkpoint(table=s.name_of(log.table), version=5), log.table)
    there = checkpoints(log, 5)
    s.require(
        not there or log.published >= 5, *CHECKPOINT, told=(told,),
        expected="version 5 is ratified and not published: no checkpoint of it, or it is published first",
        observed=f"{there} is there, and the newest published commit is {log.published}",
    )  # fmt: skip
    s.require(
        not early, *CHECKPOINT, told=(told,), expected="version 5 is published before its checkpoint is begun",
        observed=f"{early} was there when the owner was asked to publish version 5",
    )  # fmt: skip


@check(Family.MAINTENANCE, "FIELD-01", side="client")
def the_hint_names_a_checkpoint_and_never_goes_back(s: ClientScenario) -> None:
    """`_last_checkpoint` names a checkpoint that is there; a checkpoint of an older version leaves it alone."""
    log = log_of(s)
    newer = done(s, log, m.Checkpoint(table=s.name_of(log.table), version=3))
    older = done(s, log, m.Checkpoint(table=s.name_of(log.table), version=1))
    hint = log.folder / "_last_checkpoint"
    if not hint.exists():
        return
    named = actions_in(hint)[0].get("version")
    s.require(
        named == 3, "FIELD-01", told=(older, newer), observed=f"it names version {named}",
        expected="the hint names version 3, the newest checkpoint, after one of version 1 was written",
    )  # fmt: skip


@check(Family.MAINTENANCE, "FIELD-02", side="client")
def checkpoints_of_one_version_leave_each_other_alone(s: ClientScenario) -> None:
    """Somebody else is writing a checkpoint of several parts for the same version: its parts stay as they are."""
    log = log_of(s)
    parts = log.checkpoint(2, parts=2)
    before = [(log.folder / name).read_bytes() for name in parts]
    told = done(s, log, m.Checkpoint(table=s.name_of(log.table), version=2))
    after = [(log.folder / name).read_bytes() if (log.folder / name).exists() else None for name in parts]
    s.require(
        after == before, "FIELD-02", told=(told,), expected=f"{parts} are another writer's: they stay as they are",
        observed=f"{[name for name, a, b in zip(parts, before, after, strict=True) if a != b]} changed",
    )  # fmt: skip


@check(Family.MAINTENANCE, "LOG-34", side="client")
def a_checkpoint_holds_more_than_files(s: ClientScenario) -> None:
    """A checkpoint holds what its version has beside files: the properties of the table, the last batch of each
    application, the metadata domains."""
    log = LogBuilder.create(s, properties={"kit.kept": "yes"})
    log.land(file("f1"), line("txn", {"appId": "stream", "version": 5}))
    log.land(file("f2"), line("domainMetadata", {"domain": "kit.domain", "configuration": "c", "removed": False}))
    if s.commit_mode != "direct":
        log.backfill(2)
    told = done(s, log, m.Checkpoint(table=s.name_of(log.table), version=2))
    log.hide(*(log.commit_name(version) for version in range(3)))
    read = ModelReader(s.owner.subject.ask).snapshot("kit", m.Snapshot(table=s.name_of(log.table), version=2))
    wanted = log.at(2)
    found = (read.applications, read.domains, (read.properties or {}).get("kit.kept")) if isinstance(
        read, m.SnapshotRead) else None  # fmt: skip
    s.require(
        found == (wanted.applications, wanted.domains, "yes"), "LOG-34", told=(told,),
        expected=f"the checkpoint alone gives the applications {wanted.applications}, the domains {wanted.domains} and "
        f"the property `kit.kept`", observed=f"it gives {read if found is None else found}",
    )  # fmt: skip


# Compactions and checksums


@check(Family.MAINTENANCE, *COMPACTION, "LOG-02", "LOG-35", side="client")
def a_compaction_is_what_its_commits_are(s: ClientScenario) -> None:
    """A compaction of published versions has its prescribed name, and stands for its commits."""
    log = log_of(s)
    told = done(s, log, m.Compact(table=s.name_of(log.table), start=1, end=3))
    name = f"{1:020}.{3:020}.compacted.json"
    s.require(
        name in names(log), "LOG-02", told=(told,), expected=f"the compaction of 1 to 3 is called {name}",
        observed=f"the log folder holds {names(log)}",
    )  # fmt: skip
    log.hide(*(log.commit_name(version) for version in (1, 2)))
    found = s.kit_reads(log.table, 3)
    s.require(
        found == set(log.at(3).files), "LOG-35", told=(told,), observed=f"it gives {sorted(found)}",
        expected=f"with the compaction in the place of its commits version 3 has the files {sorted(log.at(3).files)}",
    )  # fmt: skip


@check(Family.MAINTENANCE, *COMPACTION, "LOG-35", side="client")
def a_compaction_keeps_removals(s: ClientScenario) -> None:
    """What a compacted commit removed may have been added before the compaction begins: the removal is kept."""
    log = log_of(s)
    told = done(s, log, m.Compact(table=s.name_of(log.table), start=2, end=3))
    log.hide(*(log.commit_name(version) for version in (2,)))
    found = s.kit_reads(log.table, 3)
    s.require(
        found == set(log.at(3).files), "LOG-35", told=(told,), observed=f"it gives {sorted(found)}",
        expected=f"version 2 removed a file of version 1; with the compaction in the place of versions 2 and 3 version "
        f"3 has the files {sorted(log.at(3).files)}",
    )  # fmt: skip


@check(Family.MAINTENANCE, *COMPACTION, side="client", commit_modes=TWO_STEPS)
def a_compaction_waits_for_backfilling(s: ClientScenario) -> None:
    """A compaction up to a version that is not published is refused, or the version is published first."""
    log = log_of(s)
    told = s.act("maintenance", m.Compact(table=s.name_of(log.table), start=2, end=5), log.table)
    there = [name for name in names(log) if name.endswith(".compacted.json")]
    s.require(
        not there or log.published >= 5, *COMPACTION, told=(told,),
        expected="version 5 is ratified and not published: no compaction up to it, or it is published first",
        observed=f"{there} is there, and the newest published commit is {log.published}",
    )  # fmt: skip


@check(Family.MAINTENANCE, "LOG-02", side="client")
def a_checksum_has_its_name(s: ClientScenario) -> None:
    """The checksum of a version is called `<version>.crc`."""
    log = log_of(s)
    told = done(s, log, m.Checksum(table=s.name_of(log.table), version=3))
    s.require(
        f"{3:020}.crc" in names(log), "LOG-02", told=(told,), expected=f"the checksum of version 3 is {3:020}.crc",
        observed=f"the log folder holds {names(log)}",
    )  # fmt: skip


# Permission


@check(
    Family.MAINTENANCE, "CM-MAINT-04", "CM-MAINT-05", "CM-POLICY-01", "CM-POLICY-03", side="client",
    needs=(Profile.MAINTENANCE_POLICY,), features=("catalogManaged",),
)  # fmt: skip
def what_the_owner_does_not_allow_is_not_run(s: ClientScenario) -> None:
    """VACUUM, OPTIMIZE and REORG are not run on a table whose owner does not allow them; where it does they may be."""
    log = log_of(s)
    for job in FORBIDDEN_JOBS:
        told = s.act("maintenance", m.Maintain(table=s.name_of(log.table), job=job), log.table)
        s.require(
            not isinstance(told.answer, m.Done | m.Committed), "CM-POLICY-01", "CM-POLICY-03", "CM-MAINT-04",
            told=(told,), expected=f"the owner does not allow {job}: it is refused", observed=in_words(told.answer),
        )  # fmt: skip
        asked = len(s.asked(m.MaintenancePolicy))
        s.owner.on(m.MaintenancePolicy, answer=m.Policy(allowed=("checkpoint", "log-compaction", "checksum", job)))
        try:
            run = s.act("maintenance", m.Maintain(table=s.name_of(log.table), job=job), log.table)
        except Inconclusive:  # allowed now, and this client has no such job
            continue
        s.require(
            isinstance(run.answer, m.Rejected) or len(s.asked(m.MaintenancePolicy)) > asked, "CM-MAINT-05",
            told=(run,), expected=f"the owner's policy is asked for before every {job}",
            observed="nobody asked for it",
        )  # fmt: skip


@check(
    Family.MAINTENANCE, "CM-POLICY-01", "CM-POLICY-03", "CM-MAINT-04", side="client",
    needs=(Profile.MAINTENANCE_POLICY,), features=("catalogManaged",),
)  # fmt: skip
def a_cleanup_that_the_owner_forbids_deletes_nothing(s: ClientScenario) -> None:
    """Metadata cleanup deletes nothing on a table whose owner does not allow it."""
    log = log_of(s)
    log.checkpoint(2)
    before = names(log)
    s.owner.on(m.MaintenancePolicy, answer=m.Policy(allowed=("checkpoint", "log-compaction", "checksum")), times=10)
    told = s.act("maintenance", m.Cleanup(table=s.name_of(log.table), older_than=s.timestamp(3)), log.table)
    missing = sorted(set(before) - set(names(log)))
    s.require(
        not missing, "CM-POLICY-01", "CM-POLICY-03", "CM-MAINT-04", told=(told,),
        expected="the owner does not allow metadata cleanup: every file stays", observed=f"{missing} are gone",
    )  # fmt: skip
