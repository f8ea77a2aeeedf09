"""Ten commit owners that are unusual but legal. They combine freedoms of the documents as real servers might."""

import json
import re
from collections.abc import Callable
from contextlib import suppress

import msgspec

from conformance.interface import messages as m
from conformance.models.owner import OWNER_PROPERTY, Commit, ModelOwner, NotPublished, OwnedTable
from conformance.mutants import around
from spec_tests.conformance.outsiders import outsider


@outsider("legal owner", 'managed-commits, "Commit Backfills": frequent backfill is encouraged')
class PublishesInCommit(ModelOwner):
    """Publishes every commit before it answers, and deletes the staged file, so it never lists a commit."""

    def _ratify(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
        answer = super()._ratify(table, request, staged)
        with suppress(NotPublished):
            self._backfill(table, table.latest)
            if staged is not None:
                self.storage.remove(self._staged_path(table, staged))
        return answer


@outsider(
    "legal owner", 'catalog-managed, "Terminology: Commits": the catalog may return information about published commits'
)
class ListsWhatIsPublished(ModelOwner):
    """Lists every commit since it owns the table, published or not."""

    def __init__(self) -> None:
        super().__init__()
        self.history: dict[str, dict[int, Commit]] = {}

    def _record(self, table: OwnedTable, version: int, attempt: str) -> None:
        if version in table.unbackfilled:
            self.history.setdefault(table.reference, {})[version] = table.unbackfilled[version]
        super()._record(table, version, attempt)

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        every = {**self.history.get(table.reference, {}), **table.unbackfilled}
        return super()._entries(msgspec.structs.replace(table, unbackfilled=every), start, end)


@outsider("legal owner", 'catalog-managed, "Terminology: Commits": it becomes ratified or is rejected')
class Throttles(ModelOwner):
    """Rejects every fourth proposal once; its retry is accepted."""

    def __init__(self) -> None:
        super().__init__()
        self.proposals: list[str] = []

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        if request.attempt not in self.proposals:
            self.proposals.append(request.attempt)
            if len(self.proposals) % 4 == 0:
                return m.Rejected(reason="too many requests", retryable=True)
        return super()._refusal(table, request, staged)


@outsider("legal owner", 'catalog-managed, "Publishing Commits": either component may initiate publishing, at any time')
class PublishesOnRead(ModelOwner):
    """A read publishes every commit but the newest before it is answered. A restart publishes every commit."""

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        table = self.tables.get(request.table)
        if table is not None and table.active:
            with suppress(NotPublished):
                self._backfill(table, table.latest - 1)
        return super().get_commits(client, request)

    def restart(self, client: str, request: m.Restart) -> m.Answer:
        answer = super().restart(client, request)
        for table in list(self.tables.values()):
            with suppress(NotPublished):
                self._backfill(table, table.latest)
        return answer


@outsider("legal owner", 'catalog-managed, "Commit Protocol": information about winners is encouraged, not required')
class SaysLittle(ModelOwner):
    """Rejections have no version, winner or table. Tables have no metadata, and managedCommit tables no commits. The
    owner makes no promises and does not backfill versions that do not exist yet.
    """

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        return msgspec.structs.replace(super().hello(client, request), promises=())

    @around("commit", "create_table", "take_over", "hand_back")
    def _bare(self, request: m.Request, ask: Callable[[], m.Answer]) -> m.Answer:
        answer = ask()
        return type(answer)() if isinstance(answer, m.Conflict | m.Gap | m.Rejected) else answer

    def backfill_to_version(self, client: str, request: m.BackfillToVersion) -> m.Answer:
        table = self.tables.get(request.table)
        if table is not None and request.version > table.latest:
            return m.Rejected(reason="no such version")
        return super().backfill_to_version(client, request)

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        answer = super().load_table(client, request)
        if isinstance(answer, m.Table):
            commits = answer.commits if answer.feature == "catalogManaged" else None
            answer = msgspec.structs.replace(answer, commits=commits, protocol=None, metadata=None)
        return answer


@outsider("legal owner", 'managed-commits, "Commit Protocol": a commit succeeds whether or not its writer is answered')
class LosesAnswers(ModelOwner):
    """The owner loses every seventh answer to a request that may change the table, after the change."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = 0

    @around("commit", "backfill_to_version", "hand_back", "take_over")
    def _perhaps(self, request: m.Request, ask: Callable[[], m.Answer]) -> m.Answer:
        answer = ask()
        self.answers += 1
        return m.Unknown(reason="connection reset") if self.answers % 7 == 0 else answer


@outsider(
    "legal owner", 'catalog-managed, "Terminology: Commits": inline commits have whatever format the catalog prefers'
)
class FormatsInlineCommits(ModelOwner):
    """Stores and publishes inline commits with a space after every colon and comma: the same JSON."""

    def _ratify(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
        if table.commit_mode == "inline":
            actions = tuple(_spaced(action) for action in request.actions or ())
            request = msgspec.structs.replace(request, actions=actions)
        return super()._ratify(table, request, staged)


def _spaced(action: str) -> str:
    """The line with a space after every separator outside of strings."""
    return re.sub(r'("(?:[^"\\]|\\.)*")|([:,])', lambda match: match[1] or f"{match[2]} ", action)


@outsider("legal owner", 'managed-commits, "Managed Commit Enablement": the owner may store its configuration')
class AddsProperties(ModelOwner):
    """Adds its configuration to managedCommit tables, and its own table id to catalogManaged ones."""

    def _with_owner(self, actions: tuple[str, ...], feature: str) -> tuple[str, ...]:
        if feature == "managedCommit":
            added = {f"{OWNER_PROPERTY}Conf": '{"endpoint":"http://localhost/commit","authenticationMode":"none"}'}
        else:
            added = {"io.example.tableId": "5a8c4d1e"}
        changed = []
        for action in super()._with_owner(actions, feature):
            parsed = json.loads(action)
            if "metaData" in parsed:
                parsed["metaData"].setdefault("configuration", {}).update(added)
                action = json.dumps(parsed, separators=(",", ":"))
            changed.append(action)
        return tuple(changed)


@outsider("legal owner", 'managed-commits, "Sample Commit Owner API": -1 if no un-backfilled commit was ever accepted')
class MinusOneUntilStaged(ModelOwner):
    """managedCommit: the latest version is -1 until a staged commit is accepted; direct commits do not change that.
    Therefore the owner does not promise to know a direct commit at once, or a new table's version.
    """

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        identity = super().hello(client, request)
        profiles = tuple(profile for profile in identity.profiles if profile != "version-0-by-owner")
        return msgspec.structs.replace(identity, profiles=profiles, promises=("fresh-refusals", "tombstone-first"))

    def __init__(self) -> None:
        super().__init__()
        self.staged: set[str] = set()

    def _record(self, table: OwnedTable, version: int, attempt: str) -> None:
        if version in table.unbackfilled:
            self.staged.add(table.reference)
        super()._record(table, version, attempt)

    def _latest(self, table: OwnedTable) -> int | None:
        return -1 if table.feature == "managedCommit" and table.reference not in self.staged else super()._latest(table)


@outsider(
    "legal owner", 'managed-commits, "Converting a managed-commit table": or it writes an unbackfilled commit first'
)
class HandsBackThroughStaging(ModelOwner):
    """The commit that hands a staged table back is ratified as a staged file and then published, also after a crash."""

    def hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        table = self.tables.get(request.table)
        if table is None or table.commit_mode != "staged":
            return super().hand_back(client, request)
        proposal = m.Commit(
            table=request.table, version=request.version, attempt=request.attempt, actions=request.actions
        )
        answer = self._replay(table, proposal) or self._refusal(table, proposal, None)
        if answer is not None:
            return answer
        try:
            self._backfill(table, table.latest)
        except NotPublished as error:
            return m.Rejected(reason=str(error), retryable=True)
        table.leaving, table.active = request.attempt, False
        staged = self._stage(table, proposal)
        table.unbackfilled[request.version] = Commit(attempt=request.attempt, staged_file=staged)
        self._record(table, request.version, request.attempt)
        self._reach("after-commit-point")
        with suppress(NotPublished):
            self._backfill(table, request.version)
        return m.Ratified(version=request.version)

    def _recover(self, table: OwnedTable) -> None:
        super()._recover(table)
        if table.leaving is not None and table.leaving in table.landed:
            with suppress(NotPublished):
                self._backfill(table, table.latest)
