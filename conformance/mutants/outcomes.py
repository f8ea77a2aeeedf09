"""Owners that are wrong about earlier attempts: their replays and their outcomes."""

from contextlib import suppress

import msgspec

from conformance.interface import messages as m
from conformance.models.owner import ModelOwner, NotPublished, OwnedTable, content_of, time_of
from conformance.models.storage import Commit
from conformance.mutants import memory, memory_of, mutant, mutant_method, original
from conformance.mutants.good_owners import Promising


class _OneListOfAttempts(ModelOwner):
    """Finds the attempts that landed in other tables."""

    def _elsewhere(self, table: OwnedTable, attempt: str) -> int | None:
        landed = [other.landed for other in self.tables.values() if other is not table and attempt in other.landed]
        return landed[0][attempt] if landed else None


@mutant_method("_replay", "MC-COMMIT-02", "CM-COMMIT-08", "MC-COMMIT-01", "CM-COMMIT-07")
def attempts_are_not_per_table(self: _OneListOfAttempts, table: OwnedTable, request: m.Commit) -> m.Answer | None:
    """Does not check in which table an attempt landed: the same id in another table is answered as ratified."""
    landed = self._elsewhere(table, request.attempt)
    return original(self)._replay(table, request) if landed != request.version else m.Ratified(version=landed)


@mutant_method("attempt_outcome", "PROFILE-OUTCOME-01")
def outcomes_are_not_per_table(self: _OneListOfAttempts, client: str, request: m.AttemptOutcome) -> m.Answer:
    """Reports the outcome of an attempt in another table."""
    table = self.tables.get(request.table)
    landed = None if table is None else self._elsewhere(table, request.attempt)
    return original(self).attempt_outcome(client, request) if landed is None else m.Landed(version=landed)


@mutant_method("_replay", "PROFILE-RETRY-01", bugs=("FB10",))
def backfilled_attempts_are_forgotten(self: ModelOwner, table: OwnedTable, request: m.Commit) -> m.Answer | None:
    """Forgets an attempt once its commit is backfilled: a replay gets a conflict."""
    if table.landed.get(request.attempt, -1) <= table.backfilled and table.commit_mode != "direct":
        return None
    return original(self)._replay(table, request)


@mutant_method("commit", "PROFILE-RETRY-01")
def recognizes_the_first_client(self: ModelOwner, client: str, request: m.Commit) -> m.Answer:
    """Recognizes a replay by its client and its attempt: a process that continues for another one loses to itself."""
    senders = memory_of(self, dict[str, str])
    answer = original(self).commit(client, request)
    another = senders.setdefault(request.attempt, client) != client
    return m.Conflict() if another and isinstance(answer, m.Ratified) else answer


@mutant_method("_replay", "PROFILE-RETRY-01", "PROFILE-CORE-06")
def recognizes_one_replay(self: ModelOwner, table: OwnedTable, request: m.Commit) -> m.Answer | None:
    """Recognizes the first replay of an attempt, and answers the second with a conflict."""
    answer = original(self)._replay(table, request)
    if answer is not None:
        del table.landed[request.attempt]
    return answer


@mutant_method("_replay", "PROFILE-CORE-06", bugs=("FB08",))
def recognizes_attempts_by_version(self: ModelOwner, table: OwnedTable, request: m.Commit) -> m.Answer | None:
    """Recognizes an attempt only at the version where it landed: a rebased retry commits its changes twice."""
    answer = original(self)._replay(table, request)
    return None if isinstance(answer, m.Rejected) else answer


@mutant("MC-FEATURE-02", "CM-PUBLISH-03")
class ReplayOverwritesTheCommit(ModelOwner):
    """Replaces a commit's content with that of its replay."""

    def _replay(self, table: OwnedTable, request: m.Commit) -> m.Answer | None:
        answer = super()._replay(table, request)
        commit = table.unbackfilled.get(request.version)
        if isinstance(answer, m.Ratified) and commit is not None and request.actions is not None:
            self._overwrite(table, request, commit)
        elif isinstance(answer, m.Ratified) and request.actions is not None:
            self.storage.put(self._path(table, request.version), content_of(request.actions), time_of(request.actions))
        return answer

    def _overwrite(self, table: OwnedTable, request: m.Commit, commit: Commit) -> None:
        actions = request.actions or ()
        if commit.actions is not None:
            commit.actions = actions
        else:
            path = self._staged_path(table, commit.staged_file or "")
            self.storage.put(path, content_of(actions), time_of(actions))


@mutant_method("_conflict", "PROFILE-RETRY-02")
def conflicts_are_cached(self: ModelOwner, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
    """Repeats its first answer to a conflict, with an outdated latest version."""
    answered = memory_of(self, dict[m.Commit, m.Answer | None])
    return answered.setdefault(request, original(self)._conflict(table, request, staged))


@mutant_method("_refusal", "PROFILE-RETRY-03")
def gaps_are_remembered(self: ModelOwner, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
    """Permanently rejects an attempt that was once too early."""
    early = memory_of(self, set[str])
    answer = original(self)._refusal(table, request, staged)
    if isinstance(answer, m.Gap):
        early.add(request.attempt)
    return m.Gap() if request.attempt in early else answer


@mutant("MC-FEATURE-03", "CM-COMMIT-01", bugs=("FB27",))
class LockExpiresDuringACommit(ModelOwner):
    """Loses its lock while it commits version 2: it reports a failure, and the commit lands at the next read."""

    half_done: dict[str, m.Commit] = memory(dict)

    def _ratify(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
        if request.version == 2 and table.reference not in self.half_done:
            self.half_done[table.reference] = msgspec.structs.replace(request, staged_file=staged)
            return m.Rejected(reason="the lock expired", retryable=True)
        return super()._ratify(table, request, staged)

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        pending = self.half_done.get(request.table)
        if pending is not None and pending.attempt not in self.tables[request.table].landed:
            super()._ratify(self.tables[request.table], pending, pending.staged_file)
        return super().commit(client, request)


@mutant_method("attempt_outcome", "PROFILE-OUTCOME-02")
def lookup_leaves_no_tombstone(self: ModelOwner, client: str, request: m.AttemptOutcome) -> m.Answer:
    """Reports an attempt as not landed, and still ratifies it when it arrives."""
    answer = original(self).attempt_outcome(client, request)
    if isinstance(answer, m.NotLanded):
        self.tables[request.table].never.discard(request.attempt)
    return answer


@mutant_method("_record", "PROFILE-OUTCOME-02", "PROFILE-CORE-07")
def next_commit_deletes_tombstones(self: ModelOwner, table: OwnedTable, version: int, attempt: str) -> None:
    """Deletes all tombstones at the next commit."""
    table.never.clear()
    original(self)._record(table, version, attempt)


@mutant_method("_backfill", "PROFILE-OUTCOME-02", "PROFILE-CORE-07", found_by="programs")
def backfill_deletes_tombstones(self: ModelOwner, table: OwnedTable, version: int) -> None:
    """Deletes all tombstones once everything is published."""
    original(self)._backfill(table, version)
    if not table.unbackfilled:
        table.never.clear()


@mutant_method("attempt_outcome", "PROFILE-OUTCOME-01", bugs=("FB12",))
def backfill_forgets_outcomes(self: ModelOwner, client: str, request: m.AttemptOutcome) -> m.Answer:
    """Reports a backfilled attempt as not landed: its writer commits the changes again."""
    answer = original(self).attempt_outcome(client, request)
    table = self.tables.get(request.table)
    if table is not None and isinstance(answer, m.Landed) and 0 < answer.version <= table.backfilled:
        return m.NotLanded()
    return answer


@mutant("PROFILE-OUTCOME-01", "MC-COMMIT-05", "CM-COMMIT-05")
class LookupOverlooksVisibleFiles(ModelOwner):
    """Looks an attempt up in its own records only: a direct commit that a client published has not landed."""

    looks_up = False

    def attempt_outcome(self, client: str, request: m.AttemptOutcome) -> m.Answer:
        self.looks_up = True
        answer = super().attempt_outcome(client, request)
        self.looks_up = False
        return answer

    def _notice(self, table: OwnedTable) -> None:
        if not self.looks_up:
            super()._notice(table)


@mutant("PROFILE-RETRY-01")
class ReplayOfAVisibleFileIsAConflict(Promising):
    """Notices direct commits of clients, and not their attempts: a client that repeats its commit loses to itself."""

    without = ("attempt-outcome",)

    def _notice(self, table: OwnedTable) -> None:
        before = table.latest
        super()._notice(table)
        for attempt in [attempt for attempt, version in table.landed.items() if version > before]:
            del table.landed[attempt]


@mutant("PROFILE-CORE-07")
class ChecksTombstonesLast(ModelOwner):
    """Promises to check tombstones first, and answers resolved attempts with conflicts."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        if request.version <= table.latest:
            return m.Conflict(latest=table.latest)
        return super()._refusal(table, request, staged)


@mutant("PROFILE-RETRY-01", "PROFILE-OUTCOME-01")
class KeepsEightAttempts(ModelOwner):
    """Keeps the last eight attempts: earlier ones are unknown."""

    most = 8

    def _record(self, table: OwnedTable, version: int, attempt: str) -> None:
        super()._record(table, version, attempt)
        while len(table.landed) > self.most:
            del table.landed[next(iter(table.landed))]
        self._save(table)


for name, most in (("AHundred", 100), ("AThousand", 1000)):
    members = {"most": most, "__doc__": f"Keeps the last {most:,} attempts.", "__module__": __name__}
    mutant("PROFILE-RETRY-01", "PROFILE-OUTCOME-01")(type(f"Keeps{name}Attempts", (KeepsEightAttempts,), members))


@mutant_method("_replay", "PROFILE-CORE-05", "MC-COMMIT-02", "CM-COMMIT-08", "CM-CATALOG-03")
def equal_commits_are_replays(self: ModelOwner, table: OwnedTable, request: m.Commit) -> m.Answer | None:
    """Takes a commit with the actions of an earlier one, apart from commitInfo, for its replay."""
    landed = memory_of(self, dict[tuple[str, tuple[str, ...]], int])
    replay = original(self)._replay(table, request)
    if replay is not None or request.actions is None:
        return replay
    content = tuple(action for action in request.actions if not action.startswith('{"commitInfo"'))
    if request.version == table.latest + 1:
        landed.setdefault((table.reference, content), request.version)
    version = landed.get((table.reference, content), request.version)
    return m.Ratified(version=version) if version < request.version else None


@mutant("PROFILE-CORE-05", "MC-FEATURE-02", "CM-FEATURE-01")
class CommitInfoAloneIsNotRecorded(ModelOwner):
    """Answers a commit of commitInfo alone as ratified, and does not record it."""

    def _ratify(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
        if request.actions is not None and len(request.actions) == 1:
            return m.Ratified(version=request.version)
        return super()._ratify(table, request, staged)


@mutant("PROFILE-OUTCOME-02")
class KeepsAHundredTombstones(ModelOwner):
    """Keeps the last 100 tombstones of each table."""

    def attempt_outcome(self, client: str, request: m.AttemptOutcome) -> m.Answer:
        answer = super().attempt_outcome(client, request)
        table = self.tables.get(request.table)
        if table is not None and isinstance(answer, m.NotLanded):
            tombstones = self.oldest_first.setdefault(table.reference, {})
            tombstones[request.attempt] = None
            while len(tombstones) > 100:
                table.never.discard(next(iter(tombstones)))
                del tombstones[next(iter(tombstones))]
            self._save(table)
        return answer

    oldest_first: dict[str, dict[str, None]] = memory(dict)


# Owners that lose state in a restart, or only in a crash.


@mutant_method("_restarted", "PROFILE-DURABLE-01", "PROFILE-DURABLE-02")
def restart_forgets_unbackfilled_commits(self: ModelOwner, table: OwnedTable) -> None:
    """Keeps unbackfilled commits in memory: they are lost in a restart."""
    original(self)._restarted(table)
    table.unbackfilled, table.latest = {}, table.backfilled


@mutant_method("_restarted", "PROFILE-DURABLE-01", "PROFILE-DURABLE-02", found_by="programs")
def restart_takes_commits_without_files_back(self: ModelOwner, table: OwnedTable) -> None:
    """Loses in a restart the unbackfilled commits from the first one whose staged file is missing."""
    original(self)._restarted(table)
    for version, commit in sorted(table.unbackfilled.items()):
        missing = (
            commit.actions is None and self.storage.read(self._staged_path(table, commit.staged_file or "")) is None
        )
        if missing or table.latest < version:
            table.latest = min(table.latest, version - 1)
            table.landed.pop(table.unbackfilled.pop(version).attempt)


@mutant("PROFILE-DURABLE-02")
class RestartDerivesLatestVersionFromFiles(ModelOwner):
    """Returns the last published version as the latest one after a restart, although it has later commits."""

    published: dict[str, int] = memory(dict)

    def _restarted(self, table: OwnedTable) -> None:
        super()._restarted(table)
        self.published[table.reference] = table.backfilled

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        answer = super().get_commits(client, request)
        if isinstance(answer, m.Commits) and request.table in self.published:
            return m.Commits(commits=(), latest=self.published.pop(request.table))
        return answer


def _cut(commit: Commit) -> Commit:
    return commit if commit.actions is None else Commit(attempt=commit.attempt, actions=commit.actions[:1])


class _RestartReadsActions(ModelOwner):
    """Reads the actions of inline commits from its saved state after a restart, and changes them."""

    def _restarted(self, table: OwnedTable) -> None:
        super()._restarted(table)
        for commit in table.unbackfilled.values():
            if commit.actions is not None:
                commit.actions = tuple(map(self._read, commit.actions))

    def _read(self, action: str) -> str:
        raise NotImplementedError


@mutant_method("_read", "CM-PUBLISH-02", "PROFILE-DURABLE-01")
def restart_replaces_characters(self: _RestartReadsActions, action: str) -> str:
    """Reads its saved state as ASCII."""
    return action.encode("ascii", "replace").decode()


@mutant_method("_read", "CM-PUBLISH-02", "PROFILE-DURABLE-01")
def restart_cuts_actions(self: _RestartReadsActions, action: str) -> str:
    """Reads the first 64 KiB of each saved action."""
    return action[: 2**16]


@mutant("PROFILE-DURABLE-03")
class RestartRejectsCommits(ModelOwner):
    """Rejects every commit after a restart."""

    read_only: set[str] = memory(set)

    def _restarted(self, table: OwnedTable) -> None:
        super()._restarted(table)
        self.read_only.add(table.reference)

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._refusal(table, request, staged)
        return answer or (m.Rejected(reason="recovering") if table.reference in self.read_only else None)


@mutant("PROFILE-DURABLE-03", "MC-BACKFILL-05")
class RestartStopsBackfill(ModelOwner):
    """Answers backfills as done after a restart, and publishes nothing."""

    idle: set[str] = memory(set)

    def _restarted(self, table: OwnedTable) -> None:
        super()._restarted(table)
        self.idle.add(table.reference)

    def _backfill(self, table: OwnedTable, version: int) -> None:
        if table.reference not in self.idle:
            super()._backfill(table, version)


@mutant_method("_restarted", "PROFILE-RETRY-01", "PROFILE-OUTCOME-01")
def restart_forgets_attempts(self: ModelOwner, table: OwnedTable) -> None:
    """Keeps landed attempts in memory only: after a restart replays are not recognized."""
    original(self)._restarted(table)
    table.landed = {attempt: version for attempt, version in table.landed.items() if version == 0}


@mutant_method("hand_back", "PROFILE-OUTCOME-02")
def tombstones_do_not_bind_hand_backs(self: ModelOwner, client: str, request: m.HandBack) -> m.Answer:
    """Hands a table back with an attempt that was resolved as not landed."""
    if request.table in self.tables:
        self.tables[request.table].never.discard(request.attempt)
    return original(self).hand_back(client, request)


@mutant_method("_restarted", "PROFILE-OUTCOME-02")
def restart_forgets_tombstones(self: ModelOwner, table: OwnedTable) -> None:
    """Keeps tombstones in memory only."""
    original(self)._restarted(table)
    table.never.clear()


class _ShortensItsJournal(ModelOwner):
    """Replaces its journal by a snapshot after 100 commits. A restart reads the snapshot, which lacks something."""

    def _restarted(self, table: OwnedTable) -> None:
        super()._restarted(table)
        if max(table.latest for table in self.tables.values()) >= 100:
            self._shortened(table)

    def _shortened(self, table: OwnedTable) -> None:
        raise NotImplementedError


@mutant_method("_shortened", "PROFILE-OUTCOME-02")
def snapshot_lacks_tombstones(self: _ShortensItsJournal, table: OwnedTable) -> None:
    """Replaces its journal by a snapshot without the tombstones."""
    table.never.clear()


@mutant_method("_shortened", "PROFILE-RETRY-01", "PROFILE-OUTCOME-01")
def snapshot_lacks_published_attempts(self: _ShortensItsJournal, table: OwnedTable) -> None:
    """Replaces its journal by a snapshot that has only the attempts of unpublished commits."""
    table.landed = {attempt: version for attempt, version in table.landed.items() if version > table.backfilled}


@mutant_method("_shortened", "PROFILE-DISCOVERY-01")
def snapshot_lacks_drops(self: _ShortensItsJournal, table: OwnedTable) -> None:
    """Replaces its journal by a snapshot that does not say which tables were dropped."""
    table.active = True


@mutant_method("_shortened", "MC-RELEASE-04", "PROFILE-DURABLE-01")
def snapshot_lacks_hand_backs(self: _ShortensItsJournal, table: OwnedTable) -> None:
    """Replaces its journal by a snapshot that does not say which tables were handed back."""
    table.active, table.leaving = table.active or table.leaving is not None, None


@mutant_method("crash", "PROFILE-HARNESS-01")
def crash_requests_are_ignored(self: ModelOwner, client: str, request: m.Crash) -> m.Answer:
    """Answers a crash request as done, and does not crash."""
    return m.Done()


@mutant("PROFILE-DURABLE-01", "PROFILE-DURABLE-02")
class SavesOnShutdownOnly(ModelOwner):
    """Saves its state on an orderly shutdown only: a crash loses recent commits."""

    unsaved: dict[str, bytes] = memory(dict)

    def _record(self, table: OwnedTable, version: int, attempt: str) -> None:
        before = dict(self.saved)
        super()._record(table, version, attempt)
        if version > 0 and table.commit_mode != "direct":
            self.unsaved[table.reference] = self.saved[table.reference]
            self.saved.clear()
            self.saved.update(before)

    def crash(self, client: str, request: m.Crash) -> m.Answer:
        self.unsaved.clear()
        return super().crash(client, request)

    def restart(self, client: str, request: m.Restart) -> m.Answer:
        self.saved.update(self.unsaved)
        self.unsaved.clear()
        return super().restart(client, request)


@mutant_method("_ratify", "MC-COMMIT-03", "CM-COMMIT-02", "CM-COMMIT-03", "MC-GET-01", "CM-GET-03")
def commit_is_two_writes(self: ModelOwner, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
    """Writes the new latest version before the commit: a crash between leaves a version without content."""
    if table.commit_mode == "direct":
        return original(self)._ratify(table, request, staged)
    self._record(table, request.version, request.attempt)
    self._reach("after-commit-point")
    actions = request.actions if table.commit_mode == "inline" else None
    table.unbackfilled[request.version] = Commit(attempt=request.attempt, staged_file=staged, actions=actions)
    self._save(table)
    return m.Ratified(version=request.version)


class _PublishesBeforeItRecords(ModelOwner):
    """Publishes a commit before it records it, in tables with the commit mode `mode`: after a crash in between, the log
    has a version that the owner does not know and ratifies again."""

    mode = "subject"

    def _ratify(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
        if table.commit_mode == "direct" or table.backfill != self.mode:
            return super()._ratify(table, request, staged)
        actions = request.actions if table.commit_mode == "inline" else None
        table.unbackfilled[request.version] = Commit(attempt=request.attempt, staged_file=staged, actions=actions)
        if self.mode != "subject" or request.version % 3 == 2:
            for version in sorted(table.unbackfilled):
                with suppress(NotPublished):
                    self._publish(table, version)
            self._reach("after-publish")
        self._record(table, request.version, request.attempt)
        return m.Ratified(version=request.version)

    def _notice(self, table: OwnedTable) -> None:
        """Assumes that no other process publishes."""
        if table.commit_mode == "direct":
            super()._notice(table)


@mutant("MC-COMMIT-05", "CM-COMMIT-05", "MC-COMMIT-02", "CM-COMMIT-08", "PROFILE-DURABLE-01")
class AutomaticBackfillPrecedesTheRecord(_PublishesBeforeItRecords):
    """Publishes a commit that starts an automatic backfill before it is durable; it crashes between, and ratifies the
    version twice."""


@mutant("MC-COMMIT-05", "CM-COMMIT-05", "MC-COMMIT-02", "CM-COMMIT-08", "PROFILE-DURABLE-01")
class PublishesBeforeItRecords(_PublishesBeforeItRecords):
    """Publishes every commit before it is durable; it crashes between, and ratifies the version twice."""

    mode = "on-request"


@mutant("MC-COMMIT-05", "CM-COMMIT-05")
class CrashForgetsDirectCommits(ModelOwner):
    """Crashes after it published a commit; after the restart it ratifies the version again."""

    def _notice(self, table: OwnedTable) -> None:
        pass

    def _publish_directly(self, table: OwnedTable, request: m.Commit) -> m.Answer:
        if request.version > table.latest:
            self.storage.remove(self._path(table, request.version))
        return super()._publish_directly(table, request)


@mutant_method("attempt_outcome", "PROFILE-OUTCOME-02")
def crash_forgets_tombstones(self: ModelOwner, client: str, request: m.AttemptOutcome) -> m.Answer:
    """Saves a tombstone with the next commit: a crash before that lets the request land."""
    before = self.saved.get(request.table)
    answer = original(self).attempt_outcome(client, request)
    if isinstance(answer, m.NotLanded) and before is not None:
        self.saved[request.table] = before
    return answer
