"""Owners that publish too little, too much, in the wrong order, or something else."""

from __future__ import annotations

import json

from conformance.interface import messages as m
from conformance.models.owner import STAGING, Commit, ModelOwner, NotPublished, OwnedTable, content_of, time_of
from conformance.models.storage import LOG
from conformance.mutants.registry import mutant

# What, and in which order


@mutant("MC-BACKFILL-03", "CM-PUBLISH-06")
class BackfillsOnlyTheNamedVersion(ModelOwner):
    """Asked to backfill up to a version, the owner publishes that one, and none of those before it."""

    def _backfill(self, table: OwnedTable, version: int) -> None:
        if version in table.unbackfilled:
            self._publish(table, version)


@mutant("MC-BACKFILL-03", "CM-PUBLISH-06")
class BackfillsTheNewestFirst(ModelOwner):
    """The owner publishes from the newest commit to the oldest; where one fails, those after it are there already."""

    def _backfill(self, table: OwnedTable, version: int) -> None:
        for each in reversed(range(table.backfilled + 1, version + 1)):
            self._publish(table, each)
        super()._backfill(table, version)


@mutant("MC-BACKFILL-03", "CM-PUBLISH-06")
class FailedPublicationIsSkipped(ModelOwner):
    """A commit that cannot be published now is left for later, and the next one is published."""

    def _backfill(self, table: OwnedTable, version: int) -> None:
        failure: NotPublished | None = None
        for each in [waiting for waiting in sorted(table.unbackfilled) if waiting <= version]:
            try:
                self._publish(table, each)
            except NotPublished as error:
                failure = error
        if failure is not None:
            raise failure
        super()._backfill(table, version)


@mutant("MC-BACKFILL-05")
class FileExistsIsAFailure(ModelOwner):
    """A published file that is there already makes the backfill fail for good, although it is the very commit."""

    def _publish(self, table: OwnedTable, version: int) -> None:
        if self.storage.read(self._path(table, version)) is not None:
            raise NotPublished(f"version {version} of {table.name} exists")
        super()._publish(table, version)

    def backfill_to_version(self, client: str, request: m.BackfillToVersion) -> m.Answer:
        answer = super().backfill_to_version(client, request)
        return m.Rejected(reason=answer.reason, retryable=False) if isinstance(answer, m.Rejected) else answer


@mutant("MC-BACKFILL-03", "CM-PUBLISH-06")
class OwnBackfillLeavesHoles(ModelOwner):
    """Publishing by itself, the owner skips the commits of writers that it thinks publish their own."""

    def _ratify(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
        answer = super()._ratify(table, request, staged)
        if table.backfill == "subject" and request.version in table.unbackfilled and request.version % 3 == 1:
            self._publish(table, request.version)
        return answer


@mutant("MC-BACKFILL-05")
class BackfillIsOnlyPromised(ModelOwner):
    """A request to backfill is answered as done when it is queued, and nothing is published yet."""

    def _backfill(self, table: OwnedTable, version: int) -> None:
        pass


@mutant("MC-BACKFILL-05", "CM-PUBLISH-06")
class BackfillStopsBeforeItsVersion(ModelOwner):
    """The version that was asked for is left out: the end of the range is taken as exclusive."""

    def _backfill(self, table: OwnedTable, version: int) -> None:
        super()._backfill(table, version - 1)


@mutant("MC-BACKFILL-05")
class SecondBackfillFails(ModelOwner):
    """A backfill to a version that is published already is answered as a failure: the file exists."""

    def backfill_to_version(self, client: str, request: m.BackfillToVersion) -> m.Answer:
        table = self.tables.get(request.table)
        if table is not None and request.version <= table.backfilled:
            return m.Rejected(reason="file exists")
        return super().backfill_to_version(client, request)


@mutant("MC-FILES-08", "CM-FILES-07")
class ProposalsArePublished(ModelOwner):
    """The published file is written together with the staged one, before anybody has decided who gets the version."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        actions = request.actions or ()
        self.storage.put_if_absent(self._path(table, request.version), content_of(actions), time_of(actions))
        return super()._refusal(table, request, staged)

    def _notice(self, table: OwnedTable) -> None:
        pass

    def _publish_directly(self, table: OwnedTable, request: m.Commit) -> m.Answer:
        self.storage.remove(self._path(table, request.version))
        return super()._publish_directly(table, request)


@mutant("MC-FILES-08", "CM-FILES-07")
class WhateverIsStagedIsPublished(ModelOwner):
    """A backfill beyond the latest version takes the staged files that it finds for ratified commits."""

    def backfill_to_version(self, client: str, request: m.BackfillToVersion) -> m.Answer:
        answer = super().backfill_to_version(client, request)
        table = self.tables.get(request.table)
        if table is not None:
            for version in range(table.latest + 1, request.version + 1):
                for name in _staged(self, table, version):
                    file = self.storage.read(name)
                    if file is not None:
                        self.storage.put_if_absent(self._path(table, version), *file)
        return answer


@mutant("MC-FILES-08", "CM-FILES-07")
class OldPublishedCommitsVanish(ModelOwner):
    """The owner keeps the newest three published commits, and removes the others without a checkpoint."""

    def _publish(self, table: OwnedTable, version: int) -> None:
        super()._publish(table, version)
        if version > 2:
            self.storage.remove(self._path(table, version - 3))


# What stays behind


@mutant("MC-FILES-06", "CM-STORE-04", "CM-STORE-05", "CM-STORE-09", bugs=("FB11",))
class PartialBackfillForgetsEverything(ModelOwner):
    """After a backfill of some commits the owner forgets all that it tracks."""

    def _backfill(self, table: OwnedTable, version: int) -> None:
        super()._backfill(table, version)
        if version < table.latest:
            table.unbackfilled.clear()


@mutant("MC-FILES-06", "CM-STORE-04", "CM-STORE-05", "CM-STORE-09", bugs=("FB11",))
class HighestPublishedFileIsTrusted(ModelOwner):
    """The owner forgets every commit up to the highest published one that it sees, although a file in between is
    missing."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        highest = self._published(table)
        return tuple(entry for entry in super()._entries(table, start, end) if entry.version > highest)


# Which content


@mutant("MC-BACKFILL-01", "CM-PUBLISH-01", "CM-PUBLISH-02", bugs=("FB45",))
class FileExistsIsTakenAsPublished(ModelOwner):
    """That the published file exists already is taken as success, whoever wrote it and whatever it says."""

    def _publish(self, table: OwnedTable, version: int) -> None:
        content = self._content(table, table.unbackfilled[version])
        self.storage.put_if_absent(self._path(table, version), content, time_of(content.splitlines()))


@mutant("MC-BACKFILL-01", "CM-PUBLISH-01")
class AnyStagedFileOfTheVersionIsPublished(ModelOwner):
    """The publisher looks into the staging folder for a file of the version, instead of asking which one was
    ratified."""

    def _content(self, table: OwnedTable, commit: Commit) -> str:
        if commit.staged_file is None:
            return super()._content(table, commit)
        first = self.storage.read(_staged(self, table, int(commit.staged_file[:20]))[0])
        return "" if first is None else first.content


@mutant("MC-BACKFILL-01", "CM-PUBLISH-01")
class PublishingFormatsAnew(ModelOwner):
    """The published file is written from parsed actions: the same JSON, other bytes than were staged."""

    def _content(self, table: OwnedTable, commit: Commit) -> str:
        content = super()._content(table, commit)
        return "".join(f"{json.dumps(json.loads(line))}\n" for line in content.splitlines())


@mutant("MC-BACKFILL-01", "CM-PUBLISH-01", "CM-PUBLISH-02", "CM-PUBLISH-03")
class PublishingAddsAnAction(ModelOwner):
    """The owner adds an action of its own to every commit that it publishes."""

    def _content(self, table: OwnedTable, commit: Commit) -> str:
        return (
            super()._content(table, commit)
            + '{"domainMetadata":{"domain":"owner","configuration":"","removed":false}}\n'
        )


@mutant("MC-BACKFILL-01", "CM-PUBLISH-01")
class MissingStagedFileIsPublishedEmpty(ModelOwner):
    """When the staged file of a ratified commit cannot be found, an empty file is published in its place."""

    def _content(self, table: OwnedTable, commit: Commit) -> str:
        try:
            return super()._content(table, commit)
        except NotPublished:
            return ""


def _staged(owner: ModelOwner, table: OwnedTable, version: int) -> list[str]:
    folder = f"{table.location}/{LOG}/{STAGING[table.feature]}"
    return [f"{folder}/{name}" for name in owner.storage.list(folder) if name.startswith(f"{version:020}.")]
