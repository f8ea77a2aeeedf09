"""Owners that publish or return too little, too much, outdated or wrong commits, or in the wrong order."""

from conformance.interface import messages as m
from conformance.interface.log_names import LOG, STAGING
from conformance.models.owner import Commit, Entries, ModelOwner, NotPublished, OwnedTable, content_of, time_of
from conformance.mutants import memory, memory_of, mutant, mutant_method, original
from conformance.mutants.committing import DirectCommitOverwrites
from conformance.mutants.good_owners import StagesVersion0

# Published versions and their order


@mutant_method("_backfill", "MC-BACKFILL-03", "CM-PUBLISH-06")
def backfills_one_version_only(self: ModelOwner, table: OwnedTable, version: int) -> None:
    """Publishes only the requested version of a backfill, and none of the earlier ones."""
    if version in table.unbackfilled:
        self._publish(table, version)


@mutant_method("_backfill", "MC-BACKFILL-03", "CM-PUBLISH-06")
def backfills_newest_first(self: ModelOwner, table: OwnedTable, version: int) -> None:
    """Publishes from the newest commit to the oldest; if one fails, later ones are already published."""
    for due in reversed(range(table.backfilled + 1, version + 1)):
        self._publish(table, due)
    original(self)._backfill(table, version)


@mutant_method("_backfill", "MC-BACKFILL-03", "CM-PUBLISH-06")
def missing_staged_file_is_skipped(self: ModelOwner, table: OwnedTable, version: int) -> None:
    """Skips a commit whose staged file is missing, publishes the next one, and reports the failure."""
    for due in [due for due in sorted(table.unbackfilled) if due <= version]:
        try:
            self._content(table, table.unbackfilled[due])
        except NotPublished:
            continue
        self._publish(table, due)
    original(self)._backfill(table, version)


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


@mutant_method("_backfill", "MC-BACKFILL-05")
def backfill_is_answered_early(self: ModelOwner, table: OwnedTable, version: int) -> None:
    """Answers a backfill as done when it is queued, before anything is published."""


@mutant_method("_backfill", "MC-BACKFILL-05", "PROFILE-CORE-10")
def backfill_stops_before_its_version(self: ModelOwner, table: OwnedTable, version: int) -> None:
    """Treats the version of a backfill as exclusive and does not publish it."""
    original(self)._backfill(table, version - 1)


@mutant("MC-FILES-08", "CM-FILES-07")
class PublishesProposals(DirectCommitOverwrites):
    """Publishes a proposal before it is ratified."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        actions = request.actions or ()
        self.storage.put_if_absent(self._path(table, request.version), content_of(actions), time_of(actions))
        return super()._refusal(table, request, staged)


# State after a backfill


@mutant_method("_backfill", "MC-FILES-06", "CM-STORE-04", "CM-STORE-05", "CM-STORE-09", bugs=("FB11",))
def partial_backfill_forgets_everything(self: ModelOwner, table: OwnedTable, version: int) -> None:
    """Forgets all tracked commits after a partial backfill."""
    original(self)._backfill(table, version)
    if version < table.latest:
        table.unbackfilled.clear()


@mutant_method("_entries", "MC-FILES-06", "CM-STORE-04", "CM-STORE-05", "CM-STORE-09", bugs=("FB11",))
def trusts_the_highest_published_file(self: ModelOwner, table: OwnedTable, start: int, end: int | None) -> Entries:
    """Forgets every commit up to the highest published one, although an earlier file is missing."""
    highest = self._published(table)
    return tuple(entry for entry in original(self)._entries(table, start, end) if entry.version > highest)


# Published content


@mutant_method("_publish", "MC-BACKFILL-01", "CM-PUBLISH-01", "CM-PUBLISH-02", bugs=("FB45",))
def accepts_any_existing_published_file(self: ModelOwner, table: OwnedTable, version: int) -> None:
    """Treats an existing file as the published commit, whatever its content."""
    content = self._content(table, table.unbackfilled[version])
    self.storage.put_if_absent(self._path(table, version), content, time_of(content.splitlines()))


@mutant_method("_publish", "MC-FILES-08", "CM-FILES-07", "MC-BACKFILL-05", "CM-PUBLISH-06", found_by="programs")
def shorter_published_file_counts_as_torn(self: ModelOwner, table: OwnedTable, version: int) -> None:
    """Replaces an existing published file that is shorter than the commit, as if a crash had cut it off."""
    content = self._content(table, table.unbackfilled[version])
    published = self.storage.read(self._path(table, version))
    if published is not None and len(published.content) < len(content):
        self.storage.put(self._path(table, version), content, time_of(content.splitlines()))
    original(self)._publish(table, version)


@mutant_method("_content", "MC-BACKFILL-01", "CM-PUBLISH-01")
def publishes_any_staged_file_of_the_version(self: ModelOwner, table: OwnedTable, commit: Commit) -> str:
    """Publishes the first staged file of a version instead of the ratified one."""
    if commit.staged_file is None:
        return original(self)._content(table, commit)
    first = self.storage.read(_staged(self, table, int(commit.staged_file[:20]))[0])
    return "" if first is None else first.content


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


@mutant_method("get_commits", "MC-READ-06", "CM-GET-04")
def caches_reads_per_client(self: ModelOwner, client: str, request: m.GetCommits) -> m.Answer:
    """Answers every second read of a client with its answer to the read before."""
    cache = memory_of(self, dict[tuple[str, str], m.Answer])
    answer = original(self).get_commits(client, request)
    cached = cache.pop((client, request.table), None)
    if cached is None:
        cache[client, request.table] = answer
    return cached or answer


@mutant_method("get_commits", "MC-GET-01", "CM-GET-03", "LOG-07", bugs=("FB13",))
def list_is_older_than_the_latest_version(self: ModelOwner, client: str, request: m.GetCommits) -> m.Answer:
    """Returns a list from an older state than the latest version: the list lacks that version."""
    answer = original(self).get_commits(client, request)
    if not isinstance(answer, m.Commits) or len(answer.commits) < 2 or answer.commits[-1].version != answer.latest:
        return answer
    return m.Commits(commits=answer.commits[:-1], latest=answer.latest)


@mutant_method("get_commits", "MC-READ-06", "CM-GET-04", bugs=("FB13",))
def latest_version_is_older_than_the_list(self: ModelOwner, client: str, request: m.GetCommits) -> m.Answer:
    """Returns a latest version from an older state than its list: after a backfill it decreases."""
    answer = original(self).get_commits(client, request)
    table = self.tables.get(request.table)
    if not isinstance(answer, m.Commits) or table is None or not 0 < table.backfilled < table.latest:
        return answer
    return m.Commits(commits=answer.commits, latest=table.backfilled)


# Answers that lack commits


@mutant_method("_latest", "MC-GET-02", "CM-GET-04")
def latest_version_is_lost_by_backfill(self: ModelOwner, table: OwnedTable) -> int | None:
    """Returns the highest unpublished version as the latest: a full backfill removes it."""
    return max(table.unbackfilled, default=None) if table.latest > 0 else original(self)._latest(table)


@mutant_method("_entries", "MC-API-04", "CM-CATALOG-04")
def lists_no_commits(self: ModelOwner, table: OwnedTable, start: int, end: int | None) -> Entries:
    """Returns the latest version without any commits."""
    return ()


@mutant_method("_entries", "MC-GET-01", "CM-GET-03", bugs=("FB47",))
def range_start_is_exclusive(self: ModelOwner, table: OwnedTable, start: int, end: int | None) -> Entries:
    """Treats the start of a range as exclusive."""
    return original(self)._entries(table, start + 1 if start > 0 else start, end)


@mutant("MC-GET-01", "CM-GET-03", bugs=("FB47",))
class RangeBelowPublishedVersionsIsEmpty(ModelOwner):
    """Answers a range that starts below the published versions with no commits."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> Entries:
        return () if 0 < start <= table.backfilled else super()._entries(table, start, end)


@mutant_method("_entries", "LOG-07", "MC-GET-01", "CM-GET-03")
def list_is_cut_after_two_commits(self: ModelOwner, table: OwnedTable, start: int, end: int | None) -> Entries:
    """Lists at most two commits, without a next page."""
    return original(self)._entries(table, start, end)[:2]


# Answers out of order


@mutant_method("_entries", "LOG-05")
def lists_newest_first(self: ModelOwner, table: OwnedTable, start: int, end: int | None) -> Entries:
    """Lists commits by descending version."""
    return tuple(reversed(original(self)._entries(table, start, end)))


# Answers with wrong commits or versions


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


# Tables with many versions


@mutant("MC-GET-01", "CM-GET-03")
class ListIsCutAfterTenCommits(ModelOwner):
    """Lists at most ten commits, without a next page."""

    page = 10

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> Entries:
        return super()._entries(table, start, end)[: self.page]


@mutant("CM-GET-03")
class ListIsCutAfterAThousandCommits(ListIsCutAfterTenCommits):
    """Lists at most 1,000 commits, without a next page."""

    page = 1000


@mutant_method("_backfill", "MC-BACKFILL-05", "PROFILE-CORE-10")
def backfill_is_done_after_a_hundred_commits(self: ModelOwner, table: OwnedTable, version: int) -> None:
    """Publishes at most 100 commits for one backfill request, and answers it as done."""
    original(self)._backfill(table, min(version, table.backfilled + 100))


# Beyond the range


@mutant_method("_entries", "MC-GET-01", "CM-GET-03", "PROFILE-CORE-09")
def ranges_have_thirty_two_bits(self: ModelOwner, table: OwnedTable, start: int, end: int | None) -> Entries:
    """Keeps only the lower 32 bits of a range's start and end."""
    return original(self)._entries(table, _lower_32_bits(start), None if end is None else _lower_32_bits(end))


def _lower_32_bits(number: int) -> int:
    """The number as a signed integer of 32 bits."""
    return (number + 2**31) % 2**32 - 2**31


@mutant_method("_entries", "PROFILE-CORE-09")
def range_end_is_one_too_high(self: ModelOwner, table: OwnedTable, start: int, end: int | None) -> Entries:
    """Lists one version more than the end of the range."""
    return original(self)._entries(table, start, None if end is None else end + 1)


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
