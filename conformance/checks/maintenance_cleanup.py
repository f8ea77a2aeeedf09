"""Metadata cleanup: up to a cut-off checkpoint, and nothing that somebody may still need.

All scenarios have the same log. Versions 0 to 6 are published, 7 and 8 only with the owner; there are checkpoints of 2
and 4; the time to clean up to is that of version 5, so the cut-off checkpoint is the one of version 4.
"""

from __future__ import annotations

from dataclasses import dataclass

from conformance.checks.maintenance import names
from conformance.checks.registry import Family, check
from conformance.interface import messages as m
from conformance.models.owner import STAGING
from conformance.scenario import proposals
from conformance.scenario.client import ClientScenario
from conformance.scenario.log_builder import LogBuilder, file
from conformance.scenario.scenario import Told

CUT_OFF = 4
KEEPS = ("MC-CLEANUP-02", "CM-CLEANUP-02", "MC-CLEANUP-04", "CM-CLEANUP-04")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """A cleanup, and what is left."""

    s: ClientScenario
    told: Told
    before: set[str]
    after: set[str]

    def keeps(self, name: str, *requirements: str, why: str) -> None:
        self.s.require(
            name in self.after, *requirements, told=(self.told,), expected=f"{why}: {name} stays",
            observed="it is gone",
        )  # fmt: skip

    def deletes(self, name: str, *requirements: str, why: str) -> None:
        """Advice. A cleanup that deletes nothing at all may do so."""
        self.s.require(
            name not in self.after or self.after == self.before, *requirements, told=(self.told,),
            expected=f"{why}: {name} is deleted", observed="it is still there",
        )  # fmt: skip


def prepare(s: ClientScenario, *, published: int = 6, latest: int = 8) -> LogBuilder:
    log = LogBuilder.create(s)
    for version in range(1, latest + 1):
        log.land(file(f"f{version}"))
    if s.commit_mode != "direct":
        log.backfill(published)
    return log


def clean(s: ClientScenario, log: LogBuilder, version: int = 5) -> Cleaned:
    """Clean up what is older than the time of a version."""
    before = everything(log)
    request = m.Cleanup(table=s.name_of(log.table), older_than=s.timestamp(version))
    told = s.act("maintenance", request, log.table)
    s.expect(told, m.Done, "PROFILE-CLIENT-02", may_refuse=True, expected="the owner allows metadata cleanup")
    return Cleaned(s=s, told=told, before=before, after=everything(log))


def everything(log: LogBuilder) -> set[str]:
    return {*names(log), *log.staged()}


def checkpoint(version: int) -> str:
    return f"{version:020}.checkpoint.parquet"


@check(
    Family.MAINTENANCE, "MC-CLEANUP-01", "CM-CLEANUP-01", "MC-CLEANUP-05", "CM-CLEANUP-05", *KEEPS, side="client"
)  # fmt: skip
def cleanup_keeps_the_cut_off_checkpoint_and_what_comes_after(s: ClientScenario) -> None:
    """Cleanup up to version 5 cuts off at the checkpoint of version 4: that checkpoint and the commits from version 4
    on stay, also where newer checkpoints exist, of which each stays; older checkpoints go."""
    log = prepare(s, published=8, latest=9)
    newer = (6, 8)
    for version in (2, CUT_OFF, *newer):
        log.checkpoint(version)
    cleaned = clean(s, log)
    cleaned.keeps(
        checkpoint(CUT_OFF), "MC-CLEANUP-01", "CM-CLEANUP-01", *KEEPS,
        why="it is the newest checkpoint that is not after version 5, and so the cut-off checkpoint",
    )  # fmt: skip
    for version in range(CUT_OFF, 9):
        cleaned.keeps(log.commit_name(version), *KEEPS, why="it is not before the cut-off checkpoint")
    for version in newer:
        cleaned.keeps(checkpoint(version), "MC-CLEANUP-04", "CM-CLEANUP-04", *KEEPS,
                      why="it is after the cut-off checkpoint, whether or not a newer one is there")  # fmt: skip
    cleaned.deletes(
        checkpoint(2), "MC-CLEANUP-05", "CM-CLEANUP-05", why="it is a checkpoint from before the cut-off checkpoint"
    )
    s.require(
        s.kit_reads(log.table, 9) == set(log.at(9).files), *KEEPS, told=(cleaned.told,),
        expected="the table can still be read", observed="it cannot",
    )  # fmt: skip


@check(Family.MAINTENANCE, *KEEPS, side="client")
def sidecars_of_checkpoints_that_stay_are_kept(s: ClientScenario) -> None:
    """The checkpoints of versions 2, 4 and 6 hold their files in sidecars. Cleanup may delete those that only the
    oldest one names; without its sidecar a checkpoint is lost."""
    log = prepare(s)
    _, kept, newer = (log.v2_checkpoint(version) for version in (2, CUT_OFF, 6))
    cleaned = clean(s, log)
    gone = [name for name in (*kept, *newer) if not (log.folder / name).exists()]
    s.require(
        not gone, *KEEPS, told=(cleaned.told,), observed=f"{', '.join(gone)} are gone",
        expected="the checkpoint of version 4 is the cut-off checkpoint, or there is none: it and the newer one stay, "
        "with the sidecars that they name",
    )  # fmt: skip


@check(Family.MAINTENANCE, "MC-CLEANUP-03", "CM-CLEANUP-03", side="client")
def without_a_cut_off_checkpoint_nothing_is_deleted(s: ClientScenario) -> None:
    """Where the only checkpoint is newer than what is to be cleaned up, cleanup deletes nothing; once there is an older
    one it may."""
    log = prepare(s)
    log.checkpoint(6)
    cleaned = clean(s, log)
    for name in sorted(cleaned.before):
        cleaned.keeps(name, "MC-CLEANUP-03", "CM-CLEANUP-03", why="no checkpoint is at or before version 5")


@check(Family.MAINTENANCE, "MC-CLEANUP-01", "CM-CLEANUP-01", *KEEPS, side="client")
def an_incomplete_checkpoint_is_no_cut_off(s: ClientScenario) -> None:
    """A checkpoint of which a part is missing does not count: the older, complete one is the cut-off checkpoint."""
    log = prepare(s)
    log.checkpoint(3)
    first, _ = log.checkpoint(5, parts=2)
    log.hide(first)
    cleaned = clean(s, log)
    for name in (checkpoint(3), *(log.commit_name(version) for version in (3, 4, 5))):
        cleaned.keeps(
            name, "MC-CLEANUP-01", "CM-CLEANUP-01", *KEEPS,
            why="the checkpoint of version 5 lacks a part, so the one of version 3 is the cut-off checkpoint",
        )  # fmt: skip


@check(Family.MAINTENANCE, "MC-CLEANUP-09", *KEEPS, side="client")
def the_newest_published_commit_stays(s: ClientScenario) -> None:
    """The newest backfilled commit stays even where a checkpoint covers it."""
    log = prepare(s, published=4, latest=5) if s.commit_mode != "direct" else prepare(s, latest=4)
    log.checkpoint(4)
    cleaned = clean(s, log, 4)
    cleaned.keeps(
        log.commit_name(4), "MC-CLEANUP-09", *KEEPS,
        why="it is the newest backfilled commit, and not before the cut-off checkpoint",
    )  # fmt: skip


@check(Family.MAINTENANCE, "MC-CLEANUP-06", "CM-CLEANUP-06", side="client")
def compactions_that_start_before_the_cut_off_are_deleted(s: ClientScenario) -> None:
    """Compactions that start at the cut-off checkpoint's version or earlier go; later ones may stay."""
    log = prepare(s)
    log.checkpoint(CUT_OFF)
    log.checkpoint(6)
    gone = [log.compaction(0, 3), log.compaction(4, 6)]
    kept = log.compaction(5, 6)
    cleaned = clean(s, log)
    for name in gone:
        cleaned.deletes(name, "MC-CLEANUP-06", "CM-CLEANUP-06", why="it starts at or before the cut-off checkpoint")
    cleaned.keeps(kept, *KEEPS, why="it starts after the cut-off checkpoint")


@check(Family.MAINTENANCE, "CM-CLEANUP-05", "CM-CLEANUP-04", side="client", features=("catalogManaged",))
def checksums_before_the_cut_off_are_deleted(s: ClientScenario) -> None:
    """Of a catalog-managed table the checksums from before the cut-off checkpoint go, and no others."""
    log = prepare(s)
    log.checkpoint(CUT_OFF)
    old, kept = log.checksum(2), [log.checksum(version) for version in (CUT_OFF, 5, 6)]
    cleaned = clean(s, log)
    cleaned.deletes(old, "CM-CLEANUP-05", why="it is a checksum from before the cut-off checkpoint")
    for name in kept:
        cleaned.keeps(name, "CM-CLEANUP-04", why="it is not before the cut-off checkpoint")


def orphan(s: ClientScenario, log: LogBuilder, version: int) -> str:
    """A staged file that became no commit, or has not yet."""
    attempt = s.attempt()
    name = f"{STAGING[s.feature]}/{version:020}.{attempt}.json"
    log.plant(name, proposals.content(proposals.append(attempt, s.timestamp(version))).encode())
    return name


@check(
    Family.MAINTENANCE,
    "MC-CLEANUP-07",
    "CM-CLEANUP-07",
    "MC-CLEANUP-08",
    "CM-CLEANUP-08",
    side="client",
    commit_modes=("staged",),
)
def staged_files_are_deleted_up_to_the_cut_off_only(s: ClientScenario) -> None:
    """Staged files of the cut-off checkpoint's version and of earlier ones go; those above may be in flight."""
    log = prepare(s)
    log.checkpoint(CUT_OFF)
    old, in_flight = orphan(s, log, 3), orphan(s, log, 9)
    between = orphan(s, log, 5)
    ratified = [f"{STAGING[s.feature]}/{each.file_name}" for each in s.listed(log.table) if each.version > 6]
    cleaned = clean(s, log)
    for name in (in_flight, between, *ratified):
        cleaned.keeps(
            name, "MC-CLEANUP-08", "CM-CLEANUP-08",
            why="it is of a version above the cut-off checkpoint, and may be ratified or in flight",
        )  # fmt: skip
    cleaned.deletes(
        old, "MC-CLEANUP-07", "CM-CLEANUP-07", why="it is of a version below the cut-off checkpoint, and not listed"
    )


@check(Family.MAINTENANCE, "RULING-CLEANUP-01", side="client", commit_modes=("staged",))
def staged_files_that_the_owner_lists_are_spared(s: ClientScenario) -> None:
    """An owner may list commits that are published already: their staged files stay for as long as it does."""
    log = prepare(s)
    entries = [
        m.CommitEntry(version=version, file_name=name.rpartition("/")[2])
        for version, name in enumerate(log.staged(), 1)
    ]
    log.checkpoint(CUT_OFF)

    def all_listed(told: m.Answer) -> m.Answer:
        return m.Commits(commits=tuple(entries), latest=8) if isinstance(told, m.Commits) else told

    s.owner.on(m.GetCommits, change=all_listed, times=100)
    before = log.staged()
    cleaned = clean(s, log)
    for name in before:
        cleaned.keeps(name, "RULING-CLEANUP-01", why="the owner still lists its commit")
