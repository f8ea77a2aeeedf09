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


# Owners that tell readers too little, too much, too late, or not all the same.

# Too late


@mutant("MC-READ-06", "CM-GET-04")
class ReadsComeFromAReplica(ModelOwner):
    """Reads are answered by a replica that is one commit behind."""

    def __init__(self) -> None:
        super().__init__()
        self.replica: dict[str, m.Answer] = {}

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        self.replica[request.table] = super().get_commits(client, m.GetCommits(table=request.table))
        return super().commit(client, request)

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        answer = super().get_commits(client, request)
        table = self.tables.get(request.table)
        behind = table is not None and table.commit_mode != "direct" and request.start is None
        return self.replica.get(request.table, answer) if behind else answer


@mutant("MC-READ-06", "CM-GET-04")
class EveryReaderHasACache(ModelOwner):
    """Who asked before is answered the same once more."""

    def __init__(self) -> None:
        super().__init__()
        self.cache: dict[tuple[str, str], m.Answer] = {}

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        answer = super().get_commits(client, request)
        cached = self.cache.pop((client, request.table), None)
        if cached is None:
            self.cache[client, request.table] = answer
        return cached or answer


@mutant("MC-READ-06", "CM-GET-04")
class FirstResolutionIsKept(ModelOwner):
    """The table is resolved from a cache that was filled when somebody found it first."""

    def __init__(self) -> None:
        super().__init__()
        self.cache: dict[str | None, m.Answer] = {}

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        answer = super().load_table(client, request)
        return self.cache.setdefault(request.name, answer) if isinstance(answer, m.Table) else answer


@mutant("MC-READ-06", "CM-GET-04")
class LatestIsCappedByTheRange(ModelOwner):
    """Asked for a range, the owner tells the end of the range as the latest version."""

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        answer = super().get_commits(client, request)
        if not isinstance(answer, m.Commits) or answer.latest is None or request.end is None:
            return answer
        return m.Commits(commits=answer.commits, latest=min(answer.latest, request.end))


@mutant("MC-GET-01", "CM-GET-03", "LOG-07", bugs=("FB13",))
class ListIsOlderThanLatest(ModelOwner):
    """The commits are read first and the latest version after another commit: the list lacks a version that is told as
    the latest."""

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        answer = super().get_commits(client, request)
        if not isinstance(answer, m.Commits) or len(answer.commits) < 2 or answer.commits[-1].version != answer.latest:
            return answer
        return m.Commits(commits=answer.commits[:-1], latest=answer.latest)


@mutant("MC-READ-06", "CM-GET-04", bugs=("FB13",))
class LatestIsOlderThanList(ModelOwner):
    """The latest version is read from an older state than the commits: after a backfill it goes back to what was
    published."""

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        answer = super().get_commits(client, request)
        table = self.tables.get(request.table)
        if not isinstance(answer, m.Commits) or table is None or not 0 < table.backfilled < table.latest:
            return answer
        return m.Commits(commits=answer.commits, latest=table.backfilled)


# Too little


@mutant("MC-GET-02", "CM-GET-04")
class LatestOfWhatIsTracked(ModelOwner):
    """The latest version is the highest one that is tracked: when everything is published there is none."""

    def _latest(self, table: OwnedTable) -> int | None:
        return max(table.unbackfilled, default=None) if table.latest > 0 else super()._latest(table)


@mutant("MC-API-04", "CM-CATALOG-04")
class NoCommitIsListed(ModelOwner):
    """The owner tells the latest version, and expects readers to find the commits themselves."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        return ()


@mutant("MC-GET-02", "CM-GET-04", "CM-CATALOG-04")
class LatestIsNeverTold(ModelOwner):
    """The owner lists its commits, and tells no latest version with them."""

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        answer = super().get_commits(client, request)
        table = self.tables.get(request.table)
        if not isinstance(answer, m.Commits) or table is None or table.latest == 0:
            return answer
        return m.Commits(commits=answer.commits, latest=None)


@mutant("MC-GET-01", "CM-GET-03", bugs=("FB47",))
class RangeStartIsExclusive(ModelOwner):
    """The start of a range is taken as the last version that the reader has."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        return super()._entries(table, start + 1 if start > 0 else start, end)


@mutant("MC-GET-01", "CM-GET-03", bugs=("FB47",))
class RangeMustStartAboveWhatIsPublished(ModelOwner):
    """A range that starts below what is published is answered with nothing; as long as everything is published at once
    nobody notices."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        return () if 0 < start <= table.backfilled else super()._entries(table, start, end)


@mutant("LOG-07", "MC-GET-01", "CM-GET-03")
class ListIsCutAfterTwo(ModelOwner):
    """The list is one page of two commits, and there is no next page."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        return super()._entries(table, start, end)[:2]


# Out of order


@mutant("LOG-05")
class NewestIsListedFirst(ModelOwner):
    """Commits are listed by descending version."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        return tuple(reversed(super()._entries(table, start, end)))


@mutant("LOG-05")
class BoundaryIsListedTwice(ModelOwner):
    """The first commit that is not published comes from two queries, and is listed twice."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        entries = super()._entries(table, start, end)
        return (*entries[:1], *entries)


# Too much, or something else


@mutant("MC-GET-02", "CM-GET-04", "CM-LOG-07")
class StagedFilesAreListed(ModelOwner):
    """What lies in the staging folder above the latest version is listed as if it were ratified."""

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        answer = super().get_commits(client, request)
        table = self.tables.get(request.table)
        if not isinstance(answer, m.Commits) or table is None:
            return answer
        names = self.storage.list(f"{table.location}/{LOG}/{STAGING[table.feature]}")
        more = [
            m.CommitEntry(version=int(name[:20]), file_name=name) for name in names if int(name[:20]) > table.latest
        ]
        latest = max((entry.version for entry in more), default=answer.latest)
        return m.Commits(commits=(*answer.commits, *more), latest=latest)


@mutant("MC-GET-02", "CM-GET-04")
class LatestIsTheHighestProposal(ModelOwner):
    """The latest version is counted when a version is proposed, not when it is ratified."""

    def __init__(self) -> None:
        super().__init__()
        self.proposed: dict[str, int] = {}

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        self.proposed[request.table] = max(request.version, self.proposed.get(request.table, 0))
        return super().commit(client, request)

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        answer = super().get_commits(client, request)
        if not isinstance(answer, m.Commits) or answer.latest is None:
            return answer
        return m.Commits(commits=answer.commits, latest=max(answer.latest, self.proposed.get(request.table, 0)))


@mutant("MC-FEATURE-02", "CM-FEATURE-01")
class ConflictNamesTheLoserAsWinner(ModelOwner):
    """The conflict hands the loser its own file as the commit that took the version."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._refusal(table, request, staged)
        if not isinstance(answer, m.Conflict) or staged is None or request.version not in table.unbackfilled:
            return answer
        return m.Conflict(latest=answer.latest, winners=(m.CommitEntry(version=request.version, file_name=staged),))


@mutant("PROFILE-CORE-05")
class ConflictTellsAnOlderLatest(ModelOwner):
    """A conflict at a version tells the one before it as the latest: the loser proposes the same version for ever."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._refusal(table, request, staged)
        return m.Conflict(latest=request.version - 1) if isinstance(answer, m.Conflict) and request.version else answer


@mutant("MC-GET-02", "CM-GET-04")
class ConflictTellsTheNextVersion(ModelOwner):
    """A conflict tells the version to propose next where the latest one belongs."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._refusal(table, request, staged)
        return m.Conflict(latest=table.latest + 1) if isinstance(answer, m.Conflict) else answer


# Of long tables


@mutant("MC-GET-01", "CM-GET-03")
class OnePageIsAll(ModelOwner):
    """Its lists have ten commits at most; nobody is told that there are more."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        return super()._entries(table, start, end)[:10]


@mutant("LOG-05")
class VersionsAreSortedAsText(ModelOwner):
    """In its lists version 10 comes before version 9."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        return tuple(sorted(super()._entries(table, start, end), key=lambda entry: str(entry.version)))
