"""Ten clients with one mistake each: readers, writers and maintenance jobs."""

import copy
import json
from typing import Any

from conformance.interface import messages as m
from conformance.interface.log_names import STAGING
from conformance.models.client import ModelClient, identity_of
from conformance.models.log_files import Checkpoint, Listing
from conformance.models.owner import OWNER_PROPERTY
from conformance.models.reader import Owner, Resolved, State, Unsure
from conformance.models.writer import Transaction
from spec_tests.conformance.outsiders import outsider

# Reading


@outsider("bad client", 'catalog-managed, "Reader Requirements": readers ask the catalog for unpublished commits')
class StagingFolderDecides(ModelClient):
    """Stale read: the client does not ask the owner if no staged file exists. But inline commits have no staged
    file.
    """

    def _ask(self, client: str, table: Resolved) -> None:
        folder = table.log / STAGING.get(table.feature or "", "")
        if table.reference is None or (folder.exists() and any(folder.iterdir())):
            super()._ask(client, table)


@outsider(
    "bad client", 'catalog-managed, "Reading Catalog-managed Tables": the snapshot consists of the table\'s own commits'
)
class SnapshotCachedByName(ModelClient):
    """Wrong cache: the last snapshot of a name is updated with newer commits, even if the table was created again."""

    def __init__(self, owner: Owner) -> None:
        super().__init__(owner)
        self.cached: dict[str, State] = {}
        self.resume: State | None = None

    def _replay(self, table: Resolved, listed: Listing, target: int) -> State:
        self.resume = self.cached.get(table.name or "")
        state = super()._replay(table, listed, target)
        if table.name and target == self._latest(table, listed):
            self.cached[table.name] = copy.deepcopy(state)
        return state

    def _start(self, listed: Listing, target: int) -> State:
        if self.resume is not None and self.resume.version <= target:
            return copy.deepcopy(self.resume)
        return super()._start(listed, target)


@outsider(
    "bad client", 'catalog-managed, "Reading Catalog-managed Tables": files above the catalog\'s latest are ignored'
)
class StartsFromTheNewestCheckpoint(ModelClient):
    """Listing: the newest snapshot starts from the newest checkpoint, even if the checkpoint is above the catalog's
    latest version.
    """

    newest = -1

    def _latest(self, table: Resolved, listed: Listing) -> int:
        self.newest = super()._latest(table, listed)
        return self.newest

    def _checkpoints(self, listed: Listing, target: int) -> list[Checkpoint]:
        return super()._checkpoints(listed, listed.newest if target == self.newest else target)


@outsider(
    "bad client",
    "in-commit timestamps: at the enablement timestamp itself the versions from the enablement on should count",
    advice=True,
)
class EnablementBoundaryIsExclusive(ModelClient):
    """Time travel: the client uses > instead of >= at the enablement timestamp."""

    def _enabled_at(self, table: Resolved, listed: Listing, latest: State) -> int:
        return super()._enabled_at(table, listed, latest) + 1


# Writing


@outsider("bad client", "in-commit timestamps: greater than that of the previous commit")
class TimestampOfTheReadVersion(ModelClient):
    """Rebase: the in-commit timestamp is later than that of the version that was read, but not than those of the
    winners.
    """

    def _actions(self, transaction: Transaction, version: int) -> tuple[str, ...]:
        self.base = transaction.base
        return super()._actions(transaction, version)

    def _timestamp(self, newest: State) -> int:
        return super()._timestamp(self.base)


@outsider(
    "bad client", "commits and conflicts: a conflict with what was committed since the read fails the transaction"
)
class ChecksTheNewestWinnerOnly(ModelClient):
    """Rebase: of several commits since the read, the client checks only the newest for conflicts."""

    def _catch_up(self, client: str, transaction: Transaction) -> None:
        listed = self._gather(client, transaction.table)
        target = self._target(transaction.table, listed, None)
        for version in range(transaction.checked.version + 1, target + 1):
            winner = self._commit(transaction.table, listed, transaction.table.owned, version)
            if version == target:
                self._check(transaction, winner)
            self._apply(transaction.checked, version, winner)


@outsider("bad client", 'managed-commits, "Commit Files": the existence of <v>.json proves that version v is committed')
class UnlistedMeansLost(ModelClient):
    """Unknown outcome: the client treats an attempt that the owner does not list as lost, even if it is already
    published, and commits it again.
    """

    def _resolved(self, client: str, transaction: Transaction, request: m.Commit) -> bool:
        for _ in range(self.most_questions):
            reply = self.owner(client, m.GetCommits(table=request.table))
            if isinstance(reply, m.Commits):
                return any(
                    request.attempt in (entry.file_name or "") or entry.actions == request.actions is not None
                    for entry in reply.commits
                    if entry.version == request.version
                )
        raise Unsure("the owner does not answer")


@outsider("bad client", 'managed-commits, "Writer Requirements": no filesystem-based commits to a managed table')
class OwnershipAsOfTheReadVersion(ModelClient):
    """Writing by path: the client looks up the table's owner in the version that it read, and does not treat a change
    of properties by another writer as a conflict.
    """

    read_version: int | None = None

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        self.read_version = request.read_version
        return super().transact(client, request)

    def _open(self, client: str, name: str) -> Resolved:
        if "/" in name and self.read_version is not None:
            table = self._by_path(name)
            if OWNER_PROPERTY not in self._read(client, table, self.read_version, None).properties:
                return table
        return super()._open(client, name)

    def _check(self, transaction: Transaction, winner: list[dict[str, Any]]) -> None:
        schema = transaction.base.metadata.get("schemaString")
        super()._check(
            transaction, [action for action in winner if action.get("metaData", {}).get("schemaString") != schema]
        )


# Maintenance


@outsider("bad client", 'managed-commits, "Log Compaction Files": only when commit y of [x, y] is backfilled')
class CompactsFromAPublishedStart(ModelClient):
    """Wrong end: the client checks that the first commit of the range is published, but not the last."""

    def _compact(self, client: str, table: Resolved, request: m.Compact) -> None:
        listed = self._published(client, table, request.start)
        kept: dict[str, dict[str, Any]] = {}
        for version in range(request.start, request.end + 1):
            for action in self._commit(table, listed, table.owned, version):
                kept[identity_of(action)] = action
        lines = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in kept.values())
        self._write(table.log / f"{request.start:020}.{request.end:020}.compacted.json", lines.encode())


@outsider(
    "bad client", 'managed-commits, "Metadata Cleanup" and "Checkpoints": complete checkpoints are what readers use'
)
class CutOffAtAnIncompleteCheckpoint(ModelClient):
    """Cleanup: the client takes a multi-part checkpoint with a missing part as the cut-off, and deletes the commits
    before it. Later versions cannot be read.
    """

    def _cut_off(self, table: Resolved, listed: Listing, older_than: int) -> int | None:
        commit = self._cut_off_commit(table, listed, older_than)
        return max(
            (checkpoint.version for checkpoint in listed.checkpoints if checkpoint.version <= commit), default=None
        )
