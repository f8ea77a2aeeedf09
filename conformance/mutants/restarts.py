"""Owners that forget: in a restart, or only in a crash."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from conformance.interface import messages as m
from conformance.models.owner import Commit, ModelOwner, NotPublished, OwnedTable
from conformance.mutants.registry import mutant


@mutant("PROFILE-DURABLE-01", "PROFILE-DURABLE-02")
class OnlyWhatIsPublishedSurvives(ModelOwner):
    """It keeps its unbackfilled commits in memory: after a restart the table ends where the backfill did."""

    def restart(self, client: str, request: m.Restart) -> m.Answer:
        answer = super().restart(client, request)
        for table in self.tables.values():
            table.unbackfilled, table.latest = {}, table.backfilled
        return answer


@mutant("PROFILE-DURABLE-02")
class LatestIsReadFromTheFiles(ModelOwner):
    """After a restart it tells the last published version as the latest one until somebody commits, although it has the
    commits after that."""

    def restart(self, client: str, request: m.Restart) -> m.Answer:
        answer = super().restart(client, request)
        self.told = {reference: table.backfilled for reference, table in self.tables.items()}
        return answer

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        told: dict[str, int] = self.__dict__.get("told", {})
        answer = super().get_commits(client, request)
        if isinstance(answer, m.Commits) and request.table in told:
            return m.Commits(commits=(), latest=told.pop(request.table))
        return answer


@mutant("PROFILE-DURABLE-01", "CM-PUBLISH-03")
class InlineContentIsLost(ModelOwner):
    """It writes down which inline commits it has, and of what they say only the beginning."""

    def _save(self, table: OwnedTable) -> None:
        kept = {version: _cut(commit) for version, commit in table.unbackfilled.items()}
        super()._save(msgspec.structs.replace(table, unbackfilled=kept))


def _cut(commit: Commit) -> Commit:
    return commit if commit.actions is None else Commit(attempt=commit.attempt, actions=commit.actions[:1])


@mutant("PROFILE-DURABLE-03")
class ReadOnlyAfterARestart(ModelOwner):
    """After a restart it serves readers, and refuses every commit."""

    def restart(self, client: str, request: m.Restart) -> m.Answer:
        answer = super().restart(client, request)
        self.read_only = set(self.tables)
        return answer

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._refusal(table, request, staged)
        read_only = table.reference in self.__dict__.get("read_only", ())
        return answer or (m.Rejected(reason="recovering") if read_only else None)


@mutant("PROFILE-DURABLE-03", "MC-BACKFILL-05")
class NoBackfillAfterARestart(ModelOwner):
    """After a restart its backfill never starts again: it says done, and publishes nothing."""

    def restart(self, client: str, request: m.Restart) -> m.Answer:
        answer = super().restart(client, request)
        self.idle = set(self.tables)
        return answer

    def _backfill(self, table: OwnedTable, version: int) -> None:
        if table.reference not in self.__dict__.get("idle", ()):
            super()._backfill(table, version)


@mutant("PROFILE-RETRY-01", "PROFILE-OUTCOME-01")
class AttemptsAreForgottenInARestart(ModelOwner):
    """It knows in memory only which attempts landed."""

    def restart(self, client: str, request: m.Restart) -> m.Answer:
        answer = super().restart(client, request)
        for table in self.tables.values():
            table.landed = {attempt: version for attempt, version in table.landed.items() if version == 0}
        return answer


@mutant("PROFILE-RETRY-01")
class CreationsAreForgottenInARestart(ModelOwner):
    """It knows in memory only who created a table: after a restart the creator that asks again is told that somebody
    was faster."""

    def restart(self, client: str, request: m.Restart) -> m.Answer:
        answer = super().restart(client, request)
        for table in self.tables.values():
            table.landed = {attempt: version for attempt, version in table.landed.items() if version > 0}
        return answer


@mutant("PROFILE-OUTCOME-02")
class TombstonesAreForgottenInARestart(ModelOwner):
    """It knows in memory only which attempts it said never to land."""

    def restart(self, client: str, request: m.Restart) -> m.Answer:
        answer = super().restart(client, request)
        for table in self.tables.values():
            table.never.clear()
        return answer


@mutant("PROFILE-HARNESS-01")
class CrashesAreIgnored(ModelOwner):
    """Told to die, it says that it is dead, and goes on."""

    def crash(self, client: str, request: m.Crash) -> m.Answer:
        return m.Done()


@mutant("PROFILE-DURABLE-01", "PROFILE-DURABLE-02")
class SavesWhenItEndsInOrder(ModelOwner):
    """It writes its state down when it is stopped: an orderly restart finds everything, a crash nothing of late."""

    def _record(self, table: OwnedTable, version: int, attempt: str) -> None:
        before = dict(self.saved)
        super()._record(table, version, attempt)
        if version > 0 and table.commit_mode != "direct":
            self.unsaved = {**self.__dict__.get("unsaved", {}), table.reference: self.saved[table.reference]}
            self.saved.clear()
            self.saved.update(before)

    def crash(self, client: str, request: m.Crash) -> m.Answer:
        self.unsaved = {}
        return super().crash(client, request)

    def restart(self, client: str, request: m.Restart) -> m.Answer:
        self.saved.update(self.__dict__.get("unsaved", {}))
        self.unsaved = {}
        return super().restart(client, request)


@mutant("MC-COMMIT-03", "CM-COMMIT-02", "CM-COMMIT-03", "MC-GET-01", "CM-GET-03")
class OneCommitIsTwoWrites(ModelOwner):
    """It writes the new latest version first and the commit itself after that: a crash in between leaves a version that
    nobody can read."""

    def _ratify(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
        if table.commit_mode == "direct":
            return super()._ratify(table, request, staged)
        self._record(table, request.version, request.attempt)
        self._reach("after-commit-point")
        actions = request.actions if table.commit_mode == "inline" else None
        table.unbackfilled[request.version] = Commit(attempt=request.attempt, staged_file=staged, actions=actions)
        self._save(table)
        return m.Ratified(version=request.version)


class _PublishesBeforeItRecords(ModelOwner):
    """The commit that makes it publish is published before it is written down: who dies in between has a version in
    the log that it does not know, and hands out again. `mode`: of the tables that it does so for."""

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
        """Nobody but itself publishes, it thinks."""
        if table.commit_mode == "direct":
            super()._notice(table)


@mutant("MC-COMMIT-05", "CM-COMMIT-05", "MC-COMMIT-02", "CM-COMMIT-08")
class PublishesItsOwnBackfillTooEarly(_PublishesBeforeItRecords):
    """A table whose backfills are its own: the commit that starts one is published before it is durably recorded. It
    dies in between, and ratifies somebody else's commit as the version that everybody can read."""


@mutant("MC-COMMIT-05", "CM-COMMIT-05", "MC-COMMIT-02", "CM-COMMIT-08")
class PublishesBeforeItRecords(_PublishesBeforeItRecords):
    """Every commit is published before it is durably recorded; it dies in between, and ratifies the version twice."""

    mode = "on-request"


@mutant("PROFILE-DURABLE-03")
class InterruptedBackfillsAreStuck(ModelOwner):
    """It takes a file that it published itself just before it died for somebody else's, and publishes nothing any
    more."""

    def backfill_to_version(self, client: str, request: m.BackfillToVersion) -> m.Answer:
        table = self.tables.get(request.table)
        if table is not None and self.storage.read(self._path(table, table.backfilled + 1)) is not None:
            return m.Rejected(reason="a file is in the way")
        return super().backfill_to_version(client, request)


@mutant("MC-COMMIT-05", "CM-COMMIT-05")
class InterruptedDirectCommitsDoNotCount(ModelOwner):
    """It dies after it published a commit; back again it thinks that the version is free, and gives it to the next."""

    def _notice(self, table: OwnedTable) -> None:
        pass

    def _publish_directly(self, table: OwnedTable, request: m.Commit) -> m.Answer:
        if request.version > table.latest:
            self.storage.remove(self._path(table, request.version))
        return super()._publish_directly(table, request)


@mutant("PROFILE-DURABLE-03", "PROFILE-RETRY-01")
class HalfCreatedTablesStayHalf(ModelOwner):
    """It dies after it wrote version 0 and before it knew the name; the name can never be used, because version 0 is
    there already."""

    def _recover(self, table: OwnedTable) -> None:
        if table.promised is not None and table.promised[0] == 0 and self.__dict__.get("starting"):
            self._forget(table)
        else:
            super()._recover(table)

    def restart(self, client: str, request: m.Restart) -> m.Answer:
        self.starting = True
        answer = super().restart(client, request)
        self.starting = False
        return answer


@mutant("PROFILE-OUTCOME-02")
class TombstonesAreNotWrittenDown(ModelOwner):
    """It saves the tombstone of an attempt together with the next commit: a crash before that lets the request land."""

    def attempt_outcome(self, client: str, request: m.AttemptOutcome) -> m.Answer:
        before = self.saved.get(request.table)
        answer = super().attempt_outcome(client, request)
        if isinstance(answer, m.NotLanded) and before is not None:
            self.saved[request.table] = before
        return answer
