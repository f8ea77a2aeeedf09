"""Owners that publish or return too little, too much, outdated or wrong commits, or in the wrong order."""

from __future__ import annotations

import json
from contextlib import suppress

from conformance.interface import messages as m
from conformance.interface.log_names import LOG, STAGING
from conformance.models.owner import Commit, ModelOwner, NotPublished, OwnedTable, content_of, time_of
from conformance.mutants import memory, mutant
from conformance.mutants.good_owners import StagesVersion0

# Published versions and their order


@mutant("MC-BACKFILL-03", "CM-PUBLISH-06")
class BackfillsOneVersionOnly(ModelOwner):
    """Publishes only the requested version of a backfill, and none of the earlier ones."""

    def _backfill(self, table: OwnedTable, version: int) -> None:
        if version in table.unbackfilled:
            self._publish(table, version)


@mutant("MC-BACKFILL-03", "CM-PUBLISH-06")
class BackfillsNewestFirst(ModelOwner):
    """Publishes from the newest commit to the oldest; if one fails, later ones are already published."""

    def _backfill(self, table: OwnedTable, version: int) -> None:
        for due in reversed(range(table.backfilled + 1, version + 1)):
            self._publish(table, due)
        super()._backfill(table, version)


@mutant("MC-BACKFILL-01", "CM-PUBLISH-01", "CM-PUBLISH-02", "CM-PUBLISH-03")
class TakesATornCopy(ModelOwner):
    """Compares only the first line of a published file with its commit: a truncated file passes."""

    def _publish(self, table: OwnedTable, version: int) -> None:
        published = self.storage.read(self._path(table, version))
        content = self._content(table, table.unbackfilled[version])
        if published is None or published.content.partition("\n")[0] != content.partition("\n")[0]:
            super()._publish(table, version)


@mutant("MC-BACKFILL-03", "CM-PUBLISH-06")
class MissingStagedFileIsSkipped(ModelOwner):
    """Skips a commit whose staged file is missing, publishes the next one, and reports the failure."""

    def _backfill(self, table: OwnedTable, version: int) -> None:
        for due in [due for due in sorted(table.unbackfilled) if due <= version]:
            try:
                self._content(table, table.unbackfilled[due])
            except NotPublished:
                continue
            self._publish(table, due)
        super()._backfill(table, version)


@mutant("MC-BACKFILL-03", "CM-PUBLISH-06")
class AutomaticBackfillPublishesNewestFirst(ModelOwner):
    """Publishes the commit that was just ratified, and then those before it."""

    def _ratify(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
        if table.backfill != "subject" or table.commit_mode == "direct":
            return super()._ratify(table, request, staged)
        table.backfill = "on-request"
        answer = super()._ratify(table, request, staged)
        table.backfill = "subject"
        with suppress(NotPublished):
            if request.version % 3 == 2:
                self._publish(table, request.version)
                self._backfill(table, request.version)
        return answer


@mutant("MC-BACKFILL-03", "CM-PUBLISH-06")
class FailedPublicationIsSkipped(ModelOwner):
    """Skips a commit that cannot be published, and publishes the next one."""

    def _backfill(self, table: OwnedTable, version: int) -> None:
        failure: NotPublished | None = None
        for due in [due for due in sorted(table.unbackfilled) if due <= version]:
            try:
                self._publish(table, due)
            except NotPublished as error:
                failure = error
        if failure is not None:
            raise failure
        super()._backfill(table, version)


@mutant("MC-BACKFILL-05")
class FailsOnAnExistingPublishedFile(ModelOwner):
    """Fails a backfill permanently if the published file exists, even with the right content."""

    def _publish(self, table: OwnedTable, version: int) -> None:
        if self.storage.read(self._path(table, version)) is not None:
            raise NotPublished(f"version {version} of {table.name} exists")
        super()._publish(table, version)

    def backfill_to_version(self, client: str, request: m.BackfillToVersion) -> m.Answer:
        answer = super().backfill_to_version(client, request)
        return m.Rejected(reason=answer.reason, retryable=False) if isinstance(answer, m.Rejected) else answer


@mutant("MC-BACKFILL-03", "CM-PUBLISH-06")
class AutomaticBackfillLeavesGaps(ModelOwner):
    """Skips commits in its automatic backfill, and expects their writers to publish them."""

    def _ratify(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
        answer = super()._ratify(table, request, staged)
        if table.backfill == "subject" and request.version in table.unbackfilled and request.version % 3 == 1:
            self._publish(table, request.version)
        return answer


@mutant("MC-BACKFILL-05")
class BackfillIsAnsweredEarly(ModelOwner):
    """Answers a backfill as done when it is queued, before anything is published."""

    def _backfill(self, table: OwnedTable, version: int) -> None:
        pass


@mutant("MC-BACKFILL-05", "CM-PUBLISH-06")
class BackfillStopsBeforeItsVersion(ModelOwner):
    """Treats the version of a backfill as exclusive and does not publish it."""

    def _backfill(self, table: OwnedTable, version: int) -> None:
        super()._backfill(table, version - 1)


@mutant("MC-BACKFILL-05")
class RepeatedBackfillFails(ModelOwner):
    """Answers a repeated backfill with an error."""

    def backfill_to_version(self, client: str, request: m.BackfillToVersion) -> m.Answer:
        table = self.tables.get(request.table)
        if table is not None and request.version <= table.backfilled:
            return m.Rejected(reason="file exists")
        return super().backfill_to_version(client, request)


@mutant("MC-FILES-08", "CM-FILES-07")
class PublishesProposals(ModelOwner):
    """Publishes a proposal before it is ratified."""

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
class PublishesUnratifiedStagedFiles(ModelOwner):
    """Publishes unratified staged files in a backfill beyond the latest version."""

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
class KeepsThreePublishedCommits(ModelOwner):
    """Deletes all but the newest three published commits without a checkpoint."""

    def _publish(self, table: OwnedTable, version: int) -> None:
        super()._publish(table, version)
        if version > 2:
            self.storage.remove(self._path(table, version - 3))


# State after a backfill


@mutant("MC-FILES-06", "CM-STORE-04", "CM-STORE-05", "CM-STORE-09", bugs=("FB11",))
class PartialBackfillForgetsEverything(ModelOwner):
    """Forgets all tracked commits after a partial backfill."""

    def _backfill(self, table: OwnedTable, version: int) -> None:
        super()._backfill(table, version)
        if version < table.latest:
            table.unbackfilled.clear()


@mutant("MC-FILES-06", "CM-STORE-04", "CM-STORE-05", "CM-STORE-09", bugs=("FB11",))
class TrustsTheHighestPublishedFile(ModelOwner):
    """Forgets every commit up to the highest published one, although an earlier file is missing."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        highest = self._published(table)
        return tuple(entry for entry in super()._entries(table, start, end) if entry.version > highest)


# Published content


@mutant("MC-BACKFILL-01", "CM-PUBLISH-01", "CM-PUBLISH-02", bugs=("FB45",))
class AcceptsAnyExistingPublishedFile(ModelOwner):
    """Treats an existing file as the published commit, whatever its content."""

    def _publish(self, table: OwnedTable, version: int) -> None:
        content = self._content(table, table.unbackfilled[version])
        self.storage.put_if_absent(self._path(table, version), content, time_of(content.splitlines()))


@mutant("MC-BACKFILL-01", "CM-PUBLISH-01")
class PublishesAnyStagedFileOfTheVersion(ModelOwner):
    """Publishes the first staged file of a version instead of the ratified one."""

    def _content(self, table: OwnedTable, commit: Commit) -> str:
        if commit.staged_file is None:
            return super()._content(table, commit)
        first = self.storage.read(_staged(self, table, int(commit.staged_file[:20]))[0])
        return "" if first is None else first.content


@mutant("MC-BACKFILL-01", "CM-PUBLISH-01")
class PublishingReformats(ModelOwner):
    """Publishes reformatted JSON instead of the staged bytes."""

    def _content(self, table: OwnedTable, commit: Commit) -> str:
        content = super()._content(table, commit)
        return "".join(f"{json.dumps(json.loads(line))}\n" for line in content.splitlines())


@mutant("MC-BACKFILL-01", "CM-PUBLISH-01", "CM-PUBLISH-02", "CM-PUBLISH-03")
class PublishingAddsAnAction(ModelOwner):
    """Adds an action of its own to every published commit."""

    def _content(self, table: OwnedTable, commit: Commit) -> str:
        return (
            super()._content(table, commit)
            + '{"domainMetadata":{"domain":"owner","configuration":"","removed":false}}\n'
        )


@mutant("MC-BACKFILL-01", "CM-PUBLISH-01")
class MissingStagedFileIsPublishedEmpty(ModelOwner):
    """Publishes an empty file if the staged file of a commit is missing."""

    def _content(self, table: OwnedTable, commit: Commit) -> str:
        try:
            return super()._content(table, commit)
        except NotPublished:
            return ""


def _staged(owner: ModelOwner, table: OwnedTable, version: int) -> list[str]:
    folder = f"{table.location}/{LOG}/{STAGING[table.feature]}"
    return [f"{folder}/{name}" for name in owner.storage.list(folder) if name.startswith(f"{version:020}.")]


# Outdated answers


@mutant("MC-READ-06", "CM-GET-04")
class ReadsComeFromAReplica(ModelOwner):
    """Answers reads from a replica that is one commit behind."""

    replica: dict[str, m.Answer] = memory(dict)

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        self.replica[request.table] = super().get_commits(client, m.GetCommits(table=request.table))
        return super().commit(client, request)

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        answer = super().get_commits(client, request)
        table = self.tables.get(request.table)
        behind = table is not None and table.commit_mode != "direct" and request.start is None
        return self.replica.get(request.table, answer) if behind else answer


@mutant("MC-READ-06", "CM-GET-04")
class CachesReadsPerClient(ModelOwner):
    """Repeats its first answer to each client."""

    cache: dict[tuple[str, str], m.Answer] = memory(dict)

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        answer = super().get_commits(client, request)
        cached = self.cache.pop((client, request.table), None)
        if cached is None:
            self.cache[client, request.table] = answer
        return cached or answer


@mutant("MC-READ-06", "CM-GET-04")
class CachesTheFirstResolution(ModelOwner):
    """Caches the first resolution of each table for all clients."""

    cache: dict[str | None, m.Answer] = memory(dict)

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        answer = super().load_table(client, request)
        return self.cache.setdefault(request.name, answer) if isinstance(answer, m.Table) else answer


@mutant("MC-READ-06", "CM-GET-04")
class LatestVersionIsTheEndOfTheRange(ModelOwner):
    """Returns the end of the requested range as the latest version."""

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        answer = super().get_commits(client, request)
        if not isinstance(answer, m.Commits) or answer.latest is None or request.end is None:
            return answer
        return m.Commits(commits=answer.commits, latest=min(answer.latest, request.end))


@mutant("MC-GET-01", "CM-GET-03", "LOG-07", bugs=("FB13",))
class ListIsOlderThanTheLatestVersion(ModelOwner):
    """Returns a list from an older state than the latest version: the list lacks that version."""

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        answer = super().get_commits(client, request)
        if not isinstance(answer, m.Commits) or len(answer.commits) < 2 or answer.commits[-1].version != answer.latest:
            return answer
        return m.Commits(commits=answer.commits[:-1], latest=answer.latest)


@mutant("MC-READ-06", "CM-GET-04", bugs=("FB13",))
class LatestVersionIsOlderThanTheList(ModelOwner):
    """Returns a latest version from an older state than its list: after a backfill it decreases."""

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        answer = super().get_commits(client, request)
        table = self.tables.get(request.table)
        if not isinstance(answer, m.Commits) or table is None or not 0 < table.backfilled < table.latest:
            return answer
        return m.Commits(commits=answer.commits, latest=table.backfilled)


# Answers that lack commits


@mutant("MC-GET-02", "CM-GET-04")
class LatestVersionIsLostByBackfill(ModelOwner):
    """Returns the highest unpublished version as the latest: a full backfill removes it."""

    def _latest(self, table: OwnedTable) -> int | None:
        return max(table.unbackfilled, default=None) if table.latest > 0 else super()._latest(table)


@mutant("MC-API-04", "CM-CATALOG-04")
class ListsNoCommits(ModelOwner):
    """Returns the latest version without any commits."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        return ()


@mutant("MC-GET-02", "CM-GET-04", "CM-CATALOG-04")
class LatestVersionIsOmitted(ModelOwner):
    """Returns commits without a latest version."""

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        answer = super().get_commits(client, request)
        table = self.tables.get(request.table)
        if not isinstance(answer, m.Commits) or table is None or table.latest == 0:
            return answer
        return m.Commits(commits=answer.commits, latest=None)


@mutant("MC-GET-01", "CM-GET-03", bugs=("FB47",))
class RangeStartIsExclusive(ModelOwner):
    """Treats the start of a range as exclusive."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        return super()._entries(table, start + 1 if start > 0 else start, end)


@mutant("MC-GET-01", "CM-GET-03", bugs=("FB47",))
class RangeBelowPublishedVersionsIsEmpty(ModelOwner):
    """Answers a range that starts below the published versions with no commits."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        return () if 0 < start <= table.backfilled else super()._entries(table, start, end)


@mutant("LOG-07", "MC-GET-01", "CM-GET-03")
class ListIsCutAfterTwoCommits(ModelOwner):
    """Lists at most two commits, without a next page."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        return super()._entries(table, start, end)[:2]


# Answers out of order


@mutant("LOG-05")
class ListsNewestFirst(ModelOwner):
    """Lists commits by descending version."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        return tuple(reversed(super()._entries(table, start, end)))


@mutant("LOG-05")
class ListsTheBoundaryTwice(ModelOwner):
    """Lists the first unpublished commit twice."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        entries = super()._entries(table, start, end)
        return (*entries[:1], *entries)


# Answers with wrong commits or versions


@mutant("MC-GET-02", "CM-GET-04", "CM-LOG-07")
class ListsUnratifiedStagedFiles(ModelOwner):
    """Lists staged files above the latest version as ratified commits."""

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
class LatestVersionIsTheHighestProposal(ModelOwner):
    """Counts a proposed version as the latest before it is ratified."""

    proposed: dict[str, int] = memory(dict)

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
    """Returns a conflict that names the loser's own file as the winner."""

    def _conflict(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        if staged is None or request.version not in table.unbackfilled:
            return super()._conflict(table, request, staged)
        return m.Conflict(latest=table.latest, winners=(m.CommitEntry(version=request.version, file_name=staged),))


@mutant("CM-FEATURE-01")
class ConflictHasTheLosersContent(ModelOwner):
    """Returns a conflict whose winner has the content that the loser proposed."""

    def _conflict(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        if table.commit_mode != "inline":
            return super()._conflict(table, request, staged)
        own = m.CommitEntry(version=request.version, actions=request.actions)
        return m.Conflict(latest=table.latest, winners=(own,))


@mutant("PROFILE-CORE-08")
class WinnersBeginOneTooEarly(ModelOwner):
    """Returns winners whose versions are one too low: from the version before the proposed one to the one before the
    latest."""

    def _conflict(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        return m.Conflict(latest=table.latest, winners=self._entries(table, request.version - 1, table.latest - 1))


@mutant("PROFILE-CORE-08")
class WinnersLeaveOutTheProposedVersion(ModelOwner):
    """Returns the winners of later versions only: a client that trusts them skips one commit in its conflict check."""

    def _conflict(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        return m.Conflict(latest=table.latest, winners=self._entries(table, request.version + 1, None))


@mutant("PROFILE-CORE-05")
class ConflictHasAnOlderLatestVersion(ModelOwner):
    """Returns a conflict whose latest version is below the taken one: the loser proposes the same version again and
    again."""

    def _conflict(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        older = m.Conflict(latest=request.version - 1)
        return older if request.version else super()._conflict(table, request, staged)


@mutant("MC-GET-02", "CM-GET-04")
class ConflictHasTheNextVersion(ModelOwner):
    """Returns the next free version in a conflict as the latest version."""

    def _conflict(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        return m.Conflict(latest=table.latest + 1)


# Tables with many versions


@mutant("MC-GET-01", "CM-GET-03")
class ListIsCutAfterTenCommits(ModelOwner):
    """Lists at most ten commits, without a next page."""

    page = 10

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        return super()._entries(table, start, end)[: self.page]


@mutant("MC-GET-01", "CM-GET-03")
class ListIsCutAfterAHundredCommits(ListIsCutAfterTenCommits):
    """Lists at most 100 commits, without a next page."""

    page = 100


@mutant("CM-GET-03")
class ListIsCutAfterAThousandCommits(ListIsCutAfterTenCommits):
    """Lists at most 1,000 commits, without a next page."""

    page = 1000


@mutant("MC-GET-01", "CM-GET-03")
class PagesBeginOneTooLate(ModelOwner):
    """Begins every page of 100 commits but the first one version too late."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        entries = super()._entries(table, start, end)
        return tuple(entry for number, entry in enumerate(entries) if number % 100 or not number)


@mutant("MC-GET-01", "CM-GET-03")
class ListsLeaveOutEveryNinetySeventhVersion(ModelOwner):
    """Leaves every 97th version out of its lists."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        return tuple(entry for entry in super()._entries(table, start, end) if entry.version % 97)


@mutant("MC-BACKFILL-05", "CM-PUBLISH-06")
class BackfillIsDoneAfterAHundredCommits(ModelOwner):
    """Publishes at most 100 commits for one backfill request, and answers it as done."""

    def _backfill(self, table: OwnedTable, version: int) -> None:
        super()._backfill(table, min(version, table.backfilled + 100))


@mutant("LOG-05")
class SortsVersionsAsText(ModelOwner):
    """Lists version 10 before version 9."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        return tuple(sorted(super()._entries(table, start, end), key=lambda entry: str(entry.version)))


# Beyond the range


@mutant("PROFILE-CORE-09")
class RangeEndZeroIsNoEnd(ModelOwner):
    """Takes a range that ends at version 0 for one without an end."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        return super()._entries(table, start, end or None)


@mutant("MC-GET-01", "CM-GET-03")
class RangesHaveThirtyTwoBits(ModelOwner):
    """Keeps only the lower 32 bits of a range's start and end."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        return super()._entries(table, _lower_32_bits(start), None if end is None else _lower_32_bits(end))


def _lower_32_bits(number: int) -> int:
    """The number as a signed integer of 32 bits."""
    return (number + 2**31) % 2**32 - 2**31


@mutant("PROFILE-CORE-09")
class RangeEndIsOneTooHigh(ModelOwner):
    """Lists one version more than the end of the range."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        return super()._entries(table, start, None if end is None else end + 1)


@mutant("PROFILE-CORE-09")
class RangeBeyondTheLatestVersionHasTheLastCommit(ModelOwner):
    """Returns the last commit for a range that starts after it."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        return super()._entries(table, min(start, table.latest), end)


# Owners that break no rule but do not follow the documents' advice: a warning


@mutant("MC-CREATE-01")
class Version0WaitsInTheStagingFolder(StagesVersion0):
    """Stages version 0, and publishes it on request only."""

    without = ("version-0-by-filesystem",)


@mutant("CM-COMMIT-09")
class ConflictsNameNoWinners(ModelOwner):
    """Returns conflicts without the ratified commits that the client lacks."""

    def _conflict(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        return m.Conflict()
