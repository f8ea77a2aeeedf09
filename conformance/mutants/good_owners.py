"""Good owners that answer, list and publish in other ways than the model, as the documents allow. Nobody may accuse
them of anything."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from conformance.interface import messages as m
from conformance.models.owner import ModelOwner, OwnedTable, content_of
from conformance.models.storage import Storage
from conformance.mutants.content import schema_of
from conformance.mutants.registry import good


class Promising(ModelOwner):
    """A model that promises less: without some profiles, and without some promises."""

    without: tuple[str, ...] = ()

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        told = super().hello(client, request)
        return msgspec.structs.replace(
            told,
            profiles=tuple(each for each in told.profiles if each not in self.without),
            promises=tuple(each for each in told.promises if each not in self.without),
        )


@good(
    "MC-LOG-02", "CM-LOG-04", "MC-GET-04", "LOG-06", "MC-BACKFILL-02", "CM-STORE-02", "CM-STORE-06", "CM-STORE-08",
    "CM-CREATE-02", "CM-DROP-01", "MC-RELEASE-06", "FREE-VALIDATE-01", "FREE-VALIDATE-02", "FREE-BACKFILL-02",
    "FREE-STAGING-01",
)  # fmt: skip
class PlainModel(ModelOwner):
    """The model itself, which uses every freedom that lies in doing no more than is asked: it validates nothing,
    forgets what is backfilled, publishes when somebody wants it, and takes a request to backfill beyond the latest
    version for one of everything."""


@good("FREE-LATEST-01", "FREE-LATEST-02")
class TellsNoLatestVersion(Promising):
    """Of a managedCommit table for which it never accepted a staged commit it tells no latest version, although the
    table has versions: one that was just created, one that was taken over, one whose commits are direct."""

    without = ("version-0-by-owner",)
    nothing: int | None = None

    def _latest(self, table: OwnedTable) -> int | None:
        accepted = table.commit_mode == "staged" and len(table.landed) > 1
        return super()._latest(table) if accepted or table.feature != "managedCommit" else self.nothing


@good("FREE-LATEST-01", "FREE-LATEST-02")
class TellsMinusOne(TellsNoLatestVersion):
    """The same, and it says -1 where others say nothing."""

    nothing = -1


@good("FREE-GET-01", "CM-GET-01")
class ListsEveryVersion(ModelOwner):
    """It lists all commits of the table, the published ones too."""

    first = 0

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        stored = {entry.version: entry for entry in super()._entries(table, start, end)}
        last = table.latest if end is None else min(end, table.latest)
        begin = max(start, table.backfilled + 1 - self.first if self.first else 0)
        return tuple(stored.get(version, m.CommitEntry(version=version)) for version in range(begin, last + 1))


@good("FREE-GET-02", "FREE-GET-01")
class ListsFromTheMiddle(ListsEveryVersion):
    """Whatever start it is asked for, it begins its list with the last published version."""

    first = 1


@good("FREE-GET-03", "FREE-PUBLISH-01", "CM-PUBLISH-04")
class ClientsPublishUnheard(ModelOwner):
    """The client side publishes every commit as soon as it is ratified, and does not tell the owner: it goes on to list
    what is published long since."""

    def _ratify(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
        answer = super()._ratify(table, request, staged)
        for version in sorted(table.unbackfilled):
            self._publish(table, version)
        return answer


@good("FREE-BACKFILL-01", "MC-GET-04")
class PublishesAtOnce(ModelOwner):
    """It publishes every commit before it answers: it never has anything to list."""

    def _ratify(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
        answer = super()._ratify(table, request, staged)
        self._backfill(table, table.latest)
        return answer


@good()
class BackfillsLater(ModelOwner):
    """The first request to publish some more is refused for now, and succeeds when it is sent again."""

    def backfill_to_version(self, client: str, request: m.BackfillToVersion) -> m.Answer:
        refused: set[m.BackfillToVersion] = self.__dict__.setdefault("_refused", set())
        if request.table not in self.tables or request in refused:
            return super().backfill_to_version(client, request)
        refused.add(request)
        return m.Rejected(reason="too busy to publish", retryable=True)


@good("FREE-BACKFILL-01")
class BackfillsEverything(ModelOwner):
    """Asked to backfill up to some version it backfills all that there is."""

    def backfill_to_version(self, client: str, request: m.BackfillToVersion) -> m.Answer:
        return super().backfill_to_version(client, msgspec.structs.replace(request, version=1 << 50))


@good("FREE-BACKFILL-02")
class RefusesToBackfillWhatIsNotThere(ModelOwner):
    """A request to backfill beyond the latest version is an error to it, and backfills nothing."""

    def backfill_to_version(self, client: str, request: m.BackfillToVersion) -> m.Answer:
        table = self.tables.get(request.table)
        if table is not None and request.version > table.latest:
            return m.Rejected(reason=f"version {request.version} does not exist")
        return super().backfill_to_version(client, request)


@good("FREE-BACKFILL-03", "CM-STORE-06")
class PublishesOnlyOnRequest(ModelOwner):
    """It publishes nothing of its own accord, also where the publishing is left to it."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        return super().create_table(client, msgspec.structs.replace(request, backfill="on-request"))


@good("FREE-ANSWER-01")
class BareConflicts(ModelOwner):
    """A conflict of it tells neither the latest version nor the winners."""

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        answer = super().commit(client, request)
        return m.Conflict() if isinstance(answer, m.Conflict) else answer

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        answer = super().create_table(client, request)
        return m.Conflict() if isinstance(answer, m.Conflict) else answer

    def take_over(self, client: str, request: m.TakeOver) -> m.Answer:
        answer = super().take_over(client, request)
        return m.Conflict() if isinstance(answer, m.Conflict) else answer


@good("FREE-ANSWER-02")
class GapsAreErrors(ModelOwner):
    """It has no special answer for a proposal that comes too early: it is an error like any other."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._refusal(table, request, staged)
        return m.Rejected(reason="the version before it is missing") if isinstance(answer, m.Gap) else answer

    def take_over(self, client: str, request: m.TakeOver) -> m.Answer:
        answer = super().take_over(client, request)
        return m.Rejected(reason="not the next version") if isinstance(answer, m.Gap) else answer


@good("FREE-ANSWER-03")
class AnswersReplaysAsItLikes(Promising):
    """It does not promise to recognise replays: it answers every second one as ratified, the others as a conflict."""

    without = ("idempotent-retry",)

    def __init__(self, storage: Storage | None = None) -> None:
        super().__init__(storage)
        self.replays = 0

    def _replay(self, table: OwnedTable, request: m.Commit) -> m.Answer | None:
        answer = super()._replay(table, request)
        if isinstance(answer, m.Ratified):
            self.replays += 1
            return answer if self.replays % 2 else m.Conflict(latest=table.latest)
        return answer


@good("FREE-POLICY-01")
class RefusesByPolicy(ModelOwner):
    """Every third proposal that it could ratify it refuses, for reasons of its own."""

    def __init__(self, storage: Storage | None = None) -> None:
        super().__init__(storage)
        self.proposals = 0

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._refusal(table, request, staged)
        self.proposals += answer is None
        refuses = answer is None and self.proposals % 3 == 0
        return m.Rejected(reason="not on a Sunday") if refuses else answer


@good("FREE-VALIDATE-01", "FREE-POLICY-01")
class ValidatesEverything(ModelOwner):
    """It looks at the times, the provenance and the schema of what it ratifies, and refuses what the writer should not
    have proposed."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._refusal(table, request, staged)
        if answer is not None:
            return answer
        proposed = tuple(self._proposed(table, request, staged))
        if any(schema_of(action) == {} for action in proposed):
            return m.Rejected(reason="nobody can read that schema")
        info = self._info(proposed)
        newest = self._info((self._newest(table, "commitInfo") or "{}",))
        if info.get("txnId") is None or not info.get("inCommitTimestamp", 0) > newest.get("inCommitTimestamp", 0):
            return m.Rejected(reason="a commit needs a txnId, and a time after that of the version before")
        return None

    def _proposed(self, table: OwnedTable, request: m.Commit, staged: str | None) -> Iterable[str]:
        file = self.storage.read(self._staged_path(table, staged or "")) if request.actions is None else None
        return file.content.splitlines() if file is not None else request.actions or ()

    def _info(self, actions: Iterable[str]) -> dict[str, Any]:
        parsed = [msgspec.json.decode(action) for action in actions if '"commitInfo"' in action]
        found: dict[str, Any] = parsed[0].get("commitInfo", {}) if parsed else {}
        return found


@good("FREE-STALE-04")
class ConflictsAreStale(Promising):
    """What its conflicts tell is as old as it may be: the proposed version, and who got that."""

    without = ("fresh-refusals",)

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._refusal(table, request, staged)
        if not isinstance(answer, m.Conflict):
            return answer
        return m.Conflict(latest=request.version, winners=self._entries(table, request.version, request.version))


@good("FREE-STALE-05", "CM-STORE-07")
class NoticesLate(Promising):
    """Of a table whose commits are published directly it tells a reader what it knew when the last reader asked; a
    take-over too it tells of one question late."""

    without = ("fresh-direct", "version-0-by-owner")

    def __init__(self, storage: Storage | None = None) -> None:
        super().__init__(storage)
        self.known: dict[str, int | None] = {}

    def _latest(self, table: OwnedTable) -> int | None:
        actual = super()._latest(table)
        if table.commit_mode != "direct":
            return actual
        known = self.known.get(table.reference, 0)
        self.known[table.reference] = actual
        return known


@good("FREE-LISTING-01")
class ListsFilesInPages(ModelOwner):
    """Its storage lists a log in two pages, and commits are published while they are fetched: one listing shows a
    version without the one before it."""

    def observe(self, client: str, request: m.Observe) -> m.Answer:
        before = super().observe(client, request)
        table = self.tables.get(request.table)
        if table is None or not isinstance(before, m.Observation) or table.latest - table.backfilled < 2:
            return before
        page = self._path(table, table.latest - 1).rpartition("/")[2]
        self._backfill(table, table.latest)
        after = super().observe(client, request)
        assert isinstance(after, m.Observation)
        later = [file for file in after.files if file.name > page]
        return m.Observation(files=(*(file for file in before.files if file.name <= page), *later))


@good("MC-FILES-13")
class StagedOrDirectAsItGoes(ModelOwner):
    """Of a managedCommit table it stages every second commit, and writes the others in place where everything before
    is backfilled."""

    def _ratify(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
        free = table.feature == "managedCommit" and table.latest == table.backfilled and request.version % 2 == 1
        if not free or staged is None:
            return super()._ratify(table, request, staged)
        file = self.storage.read(self._staged_path(table, staged))
        content = content_of(request.actions or ()) if file is None else file.content
        return self._publish_directly(table, msgspec.structs.replace(request, actions=tuple(content.splitlines())))


@good("FREE-ANSWER-01", "FREE-ANSWER-02", "FREE-GET-01", "FREE-GET-03", "FREE-BACKFILL-01", "FREE-POLICY-01")
class EverythingAtOnce(
    BareConflicts, GapsAreErrors, ListsEveryVersion, ClientsPublishUnheard, BackfillsEverything, RefusesByPolicy
):
    """It uses many freedoms together: bare conflicts, errors for gaps, a list of everything that clients have published
    unheard, more backfill than is asked for, and refusals by policy."""
