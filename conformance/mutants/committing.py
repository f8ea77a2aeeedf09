"""Owners that ratify what they must reject, or reject what they must ratify."""

import time
from pathlib import Path
from typing import ClassVar

import msgspec

from conformance.interface import messages as m
from conformance.interface.log_names import staged_file
from conformance.models.owner import Commit, ModelOwner, OwnedTable, content_of, time_of
from conformance.models.storage import FolderStorage, Storage
from conformance.mutants import memory, memory_of, mutant, mutant_method, original


@mutant_method("_replay", "PROFILE-RETRY-01", bugs=("FB09",))
def replay_is_a_conflict(self: ModelOwner, table: OwnedTable, request: m.Commit) -> m.Answer | None:
    """Answers the replay of a landed attempt with a conflict."""
    return None


# One version, several winners


@mutant("MC-COMMIT-02", "CM-COMMIT-08", bugs=("FB42",))
class LoserIsAnsweredAsRatified(ModelOwner):
    """Answers a loser as ratified after its conditional write failed."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        if request.version == table.latest:
            return m.Ratified(version=request.version)
        return super()._refusal(table, request, staged)


@mutant_method("_refusal", "MC-COMMIT-02", "CM-COMMIT-08", bugs=("FB28",))
def last_writer_wins(self: ModelOwner, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
    """Replaces an existing commit by a rename: both writers of a version are answered as ratified."""
    if request.version != table.latest or request.version == 0:
        return original(self)._refusal(table, request, staged)
    self.storage.remove(self._path(table, request.version))
    table.backfilled = min(table.backfilled, request.version - 1)
    return None


@mutant("MC-COMMIT-02", "CM-COMMIT-08", bugs=("FB26",))
class PublishedVersionsAreForgotten(ModelOwner):
    """Forgets published versions: a late proposal of one is ratified."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        if 0 < request.version <= table.backfilled and table.commit_mode != "direct":
            return m.Ratified(version=request.version)
        return super()._refusal(table, request, staged)


@mutant("MC-COMMIT-02", "CM-COMMIT-08")
class AttemptsAreComparedByTheirBeginning(ModelOwner):
    """Recognizes a replay by the first eight characters of the attempt, which UUIDs made within a minute may share."""

    same: ClassVar = slice(8)

    def _replay(self, table: OwnedTable, request: m.Commit) -> m.Answer | None:
        alike = [attempt for attempt in table.landed if attempt[self.same] == request.attempt[self.same]]
        known = request.attempt if request.attempt in table.landed or not alike else alike[-1]
        return super()._replay(table, msgspec.structs.replace(request, attempt=known))


@mutant("MC-COMMIT-03", "CM-COMMIT-02", "CM-COMMIT-03", "MC-FEATURE-02", "CM-FEATURE-01")
class RejectedProposalOverwritesTheWinner(ModelOwner):
    """Writes the record of a version before its check: the loser is rejected, but its content replaces the winner's."""

    def _conflict(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._conflict(table, request, staged)
        record = table.unbackfilled.get(request.version)
        if record is not None:
            record.staged_file, record.actions = staged, None if staged else request.actions
        return answer


@mutant("MC-FEATURE-02", "CM-FEATURE-01", "CM-LOG-07")
class LosersSeeTheirOwnCommit(ModelOwner):
    """Shows a loser its own commit as the version that another writer won."""

    mine: dict[tuple[str, str, int], Commit] = memory(dict)

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        table = self.tables.get(request.table)
        if table is not None and table.commit_mode != "direct":
            name = staged_file(request.version, request.attempt) if table.commit_mode == "staged" else None
            actions = None if name else request.actions
            own = Commit(attempt=request.attempt, staged_file=name, actions=actions)
            self.mine[client, request.table, request.version] = own
        return super().commit(client, request)

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        answer = super().get_commits(client, request)
        if not isinstance(answer, m.Commits):
            return answer
        shown = []
        for entry in answer.commits:
            own = self.mine.get((client, request.table, entry.version))
            shown.append(
                m.CommitEntry(version=entry.version, file_name=own.staged_file, actions=own.actions) if own else entry
            )
        return m.Commits(commits=tuple(shown), latest=answer.latest)


# The previous version


@mutant_method("_gap", "MC-COMMIT-01", "CM-COMMIT-07")
def gaps_are_ratified(self: ModelOwner, table: OwnedTable, request: m.Commit) -> m.Answer | None:
    """Ratifies a version whose predecessor is missing."""
    return None


@mutant_method("_gap", "MC-COMMIT-01", "CM-COMMIT-07", bugs=("FB44",))
def first_commit_may_have_any_version(self: ModelOwner, table: OwnedTable, request: m.Commit) -> m.Answer | None:
    """Accepts any version for the first commit of a table."""
    return None if table.latest == 0 else original(self)._gap(table, request)


@mutant_method("_gap", "MC-COMMIT-01", "CM-COMMIT-07")
def staged_predecessor_is_enough(self: ModelOwner, table: OwnedTable, request: m.Commit) -> m.Answer | None:
    """Ratifies a version if a file of the version before it is staged, although none was ratified."""
    before = f"{request.version - 1:020}."
    files = self.storage.list(self._staged_path(table, "").rstrip("/"))
    return None if any(file.startswith(before) for file in files) else original(self)._gap(table, request)


@mutant_method("_gap", "MC-COMMIT-07", "MC-COMMIT-01", "CM-COMMIT-07")
def direct_commit_leaves_a_gap(self: ModelOwner, table: OwnedTable, request: m.Commit) -> m.Answer | None:
    """Accepts a commit by put-if-absent although the previous version is missing."""
    return None if table.commit_mode == "direct" else original(self)._gap(table, request)


# Wrong rejections


@mutant_method("_conflict", "PROFILE-CORE-04", bugs=("FB41",))
def lost_race_is_fatal(self: ModelOwner, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
    """Answers a lost race with a rejection instead of a conflict."""
    return m.Rejected(reason="commit failed")


@mutant_method("_conflict", "PROFILE-CORE-04", bugs=("FB41",), found_by="programs")
def lost_race_of_a_staged_file_is_fatal(
    self: ModelOwner, table: OwnedTable, request: m.Commit, staged: str | None
) -> m.Answer | None:
    """Answers a lost race with a rejection, if the client wrote the staged file itself."""
    lost = original(self)._conflict(table, request, staged)
    return lost if request.staged_file is None else m.Rejected(reason="the version is taken")


@mutant("PROFILE-CORE-05")
class TablesShareTheirVersions(ModelOwner):
    """Counts versions across all tables."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        taken = {version for other in self.tables.values() for version in other.landed.values()}
        if request.version == table.latest + 1 and request.version in taken:
            return m.Conflict()
        return super()._refusal(table, request, staged)


@mutant_method("_ratify", "MC-FEATURE-02", "CM-FEATURE-01")
def keys_run_together(self: ModelOwner, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
    """Stores a commit under name and version without a separator: version 1 of `orders1` replaces version 11 of
    `orders`."""
    answer = original(self)._ratify(table, request, staged)
    commit = table.unbackfilled.get(request.version)
    for other in self.tables.values() if commit is not None else ():
        alike = [number for number in other.unbackfilled if f"{other.name}{number}" == f"{table.name}{request.version}"]
        other.unbackfilled |= dict.fromkeys(alike, commit)  # type: ignore[arg-type]
    return answer


# Proposals that were rejected, or were already applied


@mutant_method("commit", "MC-FEATURE-03", "CM-COMMIT-01")
def early_proposals_are_kept(self: ModelOwner, client: str, request: m.Commit) -> m.Answer:
    """Rejects a proposal that is too early, stores it, and ratifies it when its version is next."""
    kept = memory_of(self, dict[tuple[str, int], m.Commit])
    answer = original(self).commit(client, request)
    if isinstance(answer, m.Gap):
        kept[request.table, request.version] = request
    if isinstance(answer, m.Ratified):
        waiting = kept.pop((request.table, request.version + 1), None)
        if waiting is not None:
            self.commit(client, waiting)
    return answer


@mutant("MC-FEATURE-03", "CM-COMMIT-01", bugs=("FB43",))
class FailedBackfillFailsTheCommit(ModelOwner):
    """Reports a landed commit as failed if the backfill that follows it fails."""

    def _ratify(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
        answer = super()._ratify(table, request, staged)
        stuck = table.backfill == "subject" and request.version % 3 == 2 and table.backfilled < request.version
        return m.Rejected(reason="cannot write the published file") if stuck else answer


@mutant_method("_replay", "PROFILE-CORE-06", "PROFILE-OUTCOME-01")
def replay_is_applied_again(self: ModelOwner, table: OwnedTable, request: m.Commit) -> m.Answer | None:
    """Commits a duplicated request twice, the second time as the next version."""
    landed = table.landed.get(request.attempt)
    if landed is None or landed == table.latest:
        return original(self)._replay(table, request)
    again = m.Commit(table=request.table, version=table.latest + 1, attempt=request.attempt, actions=request.actions)
    self._ratify(table, again, self._stage(table, again))
    return m.Ratified(version=landed)


@mutant_method("commit", "MC-API-03", "CM-CATALOG-03")
def owner_rebases(self: ModelOwner, client: str, request: m.Commit) -> m.Answer:
    """Commits a proposal whose version is taken as the next version."""
    answer = original(self).commit(client, request)
    if not isinstance(answer, m.Conflict) or request.version == 0:
        return answer
    later = self.tables[request.table].latest + 1
    return original(self).commit(
        client, m.Commit(table=request.table, version=later, attempt=request.attempt, actions=request.actions)
    )


# Commits by put-if-absent


@mutant("MC-COMMIT-04", "CM-COMMIT-04")
class DirectCommitOverwrites(ModelOwner):
    """Writes a direct commit by a plain put, and checks only its own records first."""

    def _notice(self, table: OwnedTable) -> None:
        pass

    def _publish_directly(self, table: OwnedTable, request: m.Commit) -> m.Answer:
        self.storage.remove(self._path(table, request.version))
        return super()._publish_directly(table, request)


@mutant("MC-COMMIT-04", "CM-COMMIT-04")
class DirectCommitLooksThenWrites(ModelOwner):
    """Checks whether the version of a direct commit is free, and writes it 10 ms later without another check."""

    def __init__(self, storage: Storage | None = None, directory: Path | None = None) -> None:
        super().__init__(storage if directory is None else FolderStorage(directory))

    def _publish_directly(self, table: OwnedTable, request: m.Commit) -> m.Answer:
        if self.storage.read(self._path(table, request.version)) is None:
            time.sleep(0.01)
            self.storage.remove(self._path(table, request.version))
        return super()._publish_directly(table, request)


@mutant_method("_publish_directly", "MC-COMMIT-04", "CM-COMMIT-04")
def direct_commit_is_truncated(self: ModelOwner, table: OwnedTable, request: m.Commit) -> m.Answer:
    """Publishes a direct commit without its last action."""
    answer = original(self)._publish_directly(table, request)
    if isinstance(answer, m.Ratified) and request.actions is not None:
        cut = request.actions[:-1]
        self.storage.put(self._path(table, request.version), content_of(cut), time_of(cut))
    return answer


@mutant_method("_notice", "MC-COMMIT-05", "CM-COMMIT-05")
def ignores_direct_commits_of_clients(self: ModelOwner, table: OwnedTable) -> None:
    """Rejects further commits after a client published a version without notifying it."""


# Broken promises of a profile


@mutant("PROFILE-STAGED-01")
class RejectsStagedCommits(ModelOwner):
    """Declares staged commits, and rejects all of them."""

    mode = "staged"

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        return super()._refusal(table, request, staged) or (m.Rejected() if table.commit_mode == self.mode else None)


@mutant("PROFILE-INLINE-01")
class RejectsInlineCommits(RejectsStagedCommits):
    """Declares inline commits, and rejects all of them."""

    mode = "inline"


@mutant("PROFILE-DIRECT-01")
class RejectsDirectCommits(RejectsStagedCommits):
    """Declares direct commits, and rejects all of them."""

    mode = "direct"
