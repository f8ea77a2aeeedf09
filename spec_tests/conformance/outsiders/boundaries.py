"""Owners and clients with small mistakes, and some that use rare freedoms. They concern several versions at once, a
second race, a reused name, or a missing file.
"""

import copy
import json
from typing import Any
from urllib.parse import quote

from conformance.interface import messages as m
from conformance.models import log_files, proposals
from conformance.models.client import ModelClient
from conformance.models.log_files import Listing
from conformance.models.owner import ModelOwner, NotPublished, time_of
from conformance.models.reader import Refused, Resolved, State
from conformance.models.storage import OwnedTable
from conformance.models.writer import Transaction
from conformance.mutants import memory
from spec_tests.conformance.outsiders import outsider


@outsider("bad owner", 'PROFILES.md, "attempt-outcome": an attempt that is reported as not landed never lands')
class GapNeedsNoTombstone(ModelOwner):
    """An attempt that was answered with a gap counts as rejected for good, so the owner does not record its outcome."""

    refused: set[str] = memory(set)

    def _gap(self, table: OwnedTable, request: m.Commit) -> m.Answer | None:
        self.refused.add(request.attempt)
        return super()._gap(table, request)

    def attempt_outcome(self, client: str, request: m.AttemptOutcome) -> m.Answer:
        answer = super().attempt_outcome(client, request)
        if request.table in self.tables:
            self.tables[request.table].never -= self.refused
        return answer


@outsider("bad owner", 'PROFILES.md, "attempt-outcome": an attempt that landed is reported as landed from then on')
class HandBackForgetsAttempts(ModelOwner):
    """After the hand-back the owner no longer knows which attempts landed."""

    def attempt_outcome(self, client: str, request: m.AttemptOutcome) -> m.Answer:
        table = self.tables.get(request.table)
        if table is not None and table.leaving is not None and not table.active:
            return m.NotLanded()
        return super().attempt_outcome(client, request)


@outsider(
    "bad owner", 'managed-commits, "Converting a managed-commit table": an owner may reject the request, and goes on'
)
class LostHandBackFreezesTable(ModelOwner):
    """A hand-back that loses the race for its version leaves the table closed."""

    def hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        answer = super().hand_back(client, request)
        table = self.tables.get(request.table)
        if table is not None and isinstance(answer, m.Conflict):
            table.active, table.leaving = False, request.attempt
            self._save(table)
        return answer


@outsider("bad owner", 'catalog-managed, "Terminology: Commits": a proposed commit becomes ratified or is rejected')
class QueuesBeyondBacklog(ModelOwner):
    """The owner rejects a commit because the backlog is full, but keeps it, and ratifies it when there is room."""

    queue: dict[str, tuple[m.Commit, str | None]] = memory(dict)

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._refusal(table, request, staged)
        if isinstance(answer, m.Rejected) and answer.retryable:
            self.queue[table.reference] = (request, staged)
        return answer

    def backfill_to_version(self, client: str, request: m.BackfillToVersion) -> m.Answer:
        answer = super().backfill_to_version(client, request)
        waiting = self.queue.pop(request.table, None)
        if waiting is not None:
            table = self.tables[request.table]
            if super()._refusal(table, *waiting) is None:
                self._ratify(table, *waiting)
        return answer


@outsider("bad owner", 'catalog-managed, "Catalog Responsibilities": the latest protocol and metadata of the table')
class ProtocolRidesOnMetadata(ModelOwner):
    """`load_table` returns a new protocol only if the metadata changed too: a commit that changes the protocol alone
    has no effect.
    """

    def _newest(self, table: OwnedTable, kind: str) -> str | None:
        if kind != "protocol":
            return super()._newest(table, kind)
        for version in range(table.latest, -1, -1):
            commit = table.unbackfilled.get(version)
            file = self.storage.read(self._path(table, version)) if commit is None else None
            content = self._content(table, commit) if commit else (file.content if file else "")
            if proposals.body_of(content, "metaData") is not None:
                body = proposals.body_of(content, "protocol")
                if body is not None:
                    return proposals.line("protocol", body)
        return None


@outsider("bad owner", 'PROFILES.md, "idempotent-retry": after backfill, after a restart')
class AttemptsRebuiltFromBacklog(ModelOwner):
    """A restart rebuilds the known attempts from the stored commits, and forgets the attempts of published commits."""

    def _restarted(self, table: OwnedTable) -> None:
        super()._restarted(table)
        known = {commit.attempt: version for version, commit in table.unbackfilled.items()}
        table.landed = known | {attempt: version for attempt, version in table.landed.items() if version == 0}


@outsider("bad owner", 'catalog-managed, "Getting Ratified Commits": the latest ratified version is authoritative')
class PathIsCached(ModelOwner):
    """`load_table` by path answers from a cache that only `load_table` by name refreshes."""

    cache: dict[str | None, m.Answer] = memory(dict)

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        answer = super().load_table(client, request)
        if isinstance(answer, m.Table) and (request.path is None or request.path not in self.cache):
            self.cache[answer.location] = answer
        return self.cache[request.path] if isinstance(answer, m.Table) and request.path is not None else answer


@outsider(
    "bad owner", 'managed-commits, "Creating a new managed-commit table": clients race to create a table, and one wins'
)
class CreationReplayNamesSuccessor(ModelOwner):
    """A repeated creation is recognized, but answered with the table that has the name now."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        answer = super().create_table(client, request)
        if isinstance(answer, m.Ratified):
            return m.Ratified(version=0, table=self._find(request.name, None) or answer.table)
        return answer


@outsider(
    "bad owner", 'catalog-managed, "Commit Protocol": the catalog provides the latest ratified commits with a conflict'
)
class LoserIsNamedAsWinner(ModelOwner):
    """The owner reads the winners of a conflict by version after it staged the loser's file: the newest file counts as
    the winner.
    """

    def _conflict(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        winners = [
            m.CommitEntry(version=entry.version, file_name=staged, actions=request.actions if staged is None else None)
            if entry.version == request.version else entry
            for entry in self._entries(table, request.version, None)
        ]  # fmt: skip
        return m.Conflict(latest=table.latest, winners=tuple(winners))


@outsider("bad owner", 'catalog-managed, "Catalog Responsibilities": a commit is atomic, with all of its actions')
class FirstThousandActions(ModelOwner):
    """The owner stores at most 1,000 actions of an inline commit and drops the others."""

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        table = self.tables.get(request.table)
        if table is not None and table.commit_mode == "inline" and request.actions is not None:
            request = m.Commit(
                table=request.table, version=request.version, attempt=request.attempt, actions=request.actions[:1000]
            )
        return super().commit(client, request)


@outsider("bad owner", 'catalog-managed, "Commit Protocol": a commit succeeds as soon as its file is visible')
class NoticesOneFile(ModelOwner):
    """Each request notices at most one commit that became visible without the owner."""

    def _notice(self, table: OwnedTable) -> None:
        visible = self.storage.read(self._path(table, table.latest + 1))
        further = self.storage.read(self._path(table, table.latest + 2))
        if visible is not None and further is not None and table.latest == table.backfilled and table.active:
            attempt = proposals.attempt_of(visible.content) or ""
            table.backfilled += 1
            self._record(table, table.backfilled, attempt)
            return
        super()._notice(table)


@outsider("bad owner", 'managed-commits, "Commit Backfills": backfilling copies the commit')
class PublishesWhatIsThere(ModelOwner):
    """The owner compares the published file by its first line only."""

    def _publish(self, table: OwnedTable, version: int) -> None:
        content = self._content(table, table.unbackfilled[version])
        if not self.storage.put_if_absent(self._path(table, version), content, time_of(content.splitlines())):
            published = self.storage.read(self._path(table, version))
            if published is None or published.content.split("\n")[0] != content.split("\n")[0]:
                raise NotPublished(f"version {version} of {table.name} is published with another content")


@outsider("bad client", "conflicts document: each retry checks for conflicts")
class SecondRaceUnchecked(ModelClient):
    """The client checks for conflicts after the first lost race, but not after later ones."""

    def _check(self, transaction: Transaction, winner: list[dict[str, Any]]) -> None:
        if len(transaction.attempts) < 2:
            super()._check(transaction, winner)


@outsider("bad client", 'catalog-managed, "Table Discovery": the catalog resolves the name')
class CacheSurvivesRecreation(ModelClient):
    """The client updates a cached snapshot by the table's name. After a drop and a new creation, the cache holds the
    old table's versions.
    """

    cache: dict[tuple[str, int], State] = memory(dict)

    def _replay(self, table: Resolved, listed: Listing, target: int) -> State:
        state = super()._replay(table, listed, target)
        return state if table.name is None else copy.deepcopy(self.cache.setdefault((table.name, target), state))


@outsider("bad client", 'PROTOCOL.md, "Add File": the path is a URI, encoded')
class VacuumComparesEncodedNames(ModelClient):
    """Vacuum compares file names with the paths in the log, which are URL-encoded."""

    def _vacuum(self, table: Resolved, listed: Listing, version: int) -> None:
        needed = {add["path"] for add in self._replay(table, listed, version).files.values()}
        files = (path for path in table.log.parent.iterdir() if path.is_file())
        self._delete(path for path in files if path.name not in needed)


@outsider("bad client", 'PROTOCOL.md, "Action Reconciliation": a file is its path and its deletion vector')
class CompactsByPath(ModelClient):
    """A compaction identifies files by path alone: an action on one deletion vector replaces the action on another."""

    def _compact(self, client: str, table: Resolved, request: m.Compact) -> None:
        listed = self._published(client, table, request.end)
        kept: dict[str, dict[str, Any]] = {}
        for version in range(request.start, request.end + 1):
            for action in log_files.actions_in(listed.commits[version]):
                kind, body = next(iter(action.items()))
                key = body.get("path") or body.get("appId") or body.get("domain") or kind
                kept[str(key)] = action
        lines = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in kept.values())
        self._write(table.log / f"{request.start:020}.{request.end:020}.compacted.json", lines.encode())


@outsider("bad client", 'PROTOCOL.md, "Log Compaction Files": the removals are kept')
class CompactsPairsAway(ModelClient):
    """A compaction drops a file that was added and removed in its range. If the file existed before the range, it comes
    back.
    """

    def _compact(self, client: str, table: Resolved, request: m.Compact) -> None:
        super()._compact(client, table, request)
        path = table.log / f"{request.start:020}.{request.end:020}.compacted.json"
        added = set()
        listed = self._list(table)
        for version in range(request.start, request.end + 1):
            actions = log_files.actions_in(listed.commits[version])
            added |= {action["add"]["path"] for action in actions if "add" in action}
        actions = log_files.actions_in(path)
        kept = [action for action in actions if "remove" not in action or action["remove"]["path"] not in added]
        self._write(path, "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in kept).encode())


@outsider("bad client", 'PROTOCOL.md, "V2 Spec": the sidecars are part of the checkpoint')
class SidecarIsOptional(ModelClient):
    """The client treats a missing sidecar as empty."""

    def _start(self, listed: Listing, target: int) -> State:
        for checkpoint in self._checkpoints(listed, target):
            folder = checkpoint.files[0].parent / log_files.SIDECARS
            if checkpoint.files[0].suffix == ".json" and not any(folder.glob("*")):
                state = State()
                self._apply(state, checkpoint.version, log_files.actions_in(checkpoint.files[0]))
                return state
        return super()._start(listed, target)


@outsider("bad client", "conflicts document: of two that rewrite the same files only one succeeds")
class DeletionVectorIsNoRemoval(ModelClient):
    """A winner that deletes rows with a deletion vector does not count as a removal, because the file is still
    there.
    """

    def _check(self, transaction: Transaction, winner: list[dict[str, Any]]) -> None:
        kept = {action["add"]["path"] for action in winner if action.get("add", {}).get("deletionVector")}
        super()._check(transaction, [
            action for action in winner
            if action.get("remove", {}).get("path") not in kept and action.get("add", {}).get("path") not in kept
        ])  # fmt: skip


@outsider("bad client", "conflicts document: of two that rewrite the same files only one succeeds")
class OptimizeIgnoresDeletes(ModelClient):
    """A transaction that only rearranges data skips the conflict checks, so its new files contain rows that a winner
    deleted.
    """

    def _check_removed(self, request: m.Transact, base: State, removed: list[dict[str, Any]]) -> None:
        if request.data_change:
            super()._check_removed(request, base, removed)


@outsider("bad client", 'PROTOCOL.md, "Action Reconciliation": a file is its path and its deletion vector')
class CheckpointsWithoutVectors(ModelClient):
    """A checkpoint has the files without their deletion vectors."""

    bare = False

    def _checkpoint(self, client: str, table: Resolved, version: int) -> None:
        self.bare = True
        try:
            super()._checkpoint(client, table, version)
        finally:
            self.bare = False

    def _replay(self, table: Resolved, listed: Listing, target: int) -> State:
        state = super()._replay(table, listed, target)
        if self.bare:
            state.files = {
                key: {name: value for name, value in body.items() if name != "deletionVector"}
                for key, body in state.files.items()
            }
        return state


@outsider("bad client", "in-commit timestamps: greater than that of the previous commit")
class TimestampAfterFileTime(ModelClient):
    """The previous commit's time is taken from its file once the commit is published."""

    def _actions(self, transaction: Transaction, version: int) -> tuple[str, ...]:
        path = transaction.table.log / f"{version - 1:020}.json"
        if path.exists() and transaction.table.reference is not None:
            transaction.checked.timestamp = path.stat().st_mtime_ns // 1_000_000
        return super()._actions(transaction, version)


@outsider("bad client", 'PROTOCOL.md, "Deletion Vectors": its id has the offset')
class VectorOffsetIgnored(ModelClient):
    """Two deletion vectors in one file count as the same vector."""

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        if kind in ("add", "remove") and body.get("deletionVector"):
            key = (body["path"], body["deletionVector"].get("pathOrInlineDv", ""))
            state.files.pop(key, None)
            if kind == "add":
                state.files[key] = body
            return
        super()._apply_action(state, kind, body)


@outsider(
    "bad client", 'catalog-managed, "Reading Catalog-managed Tables": the log is listed after the catalog answered'
)
class ListsTooEarly(ModelClient):
    """The client asks the owner, lists the log and asks again. If the latest version is unchanged, it combines the
    second answer with the earlier listing.
    """

    def _gather(self, client: str, table: Resolved) -> Any:
        for _ in range(5):
            self._ask(client, table)
            latest, listed = table.latest, self._list(table)
            self._ask(client, table)
            if table.latest == latest:
                return listed
        raise Refused("the table changes too fast")


@outsider("legal owner", 'managed-commits, "Commit Files": the owner decides which type of commit file to write')
class ChoosesCommitByCommit(ModelOwner):
    """Every other staged proposal is published at once, if all versions before it are published."""

    def _ratify(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
        if table.commit_mode != "staged" or request.version % 2 == 0 or table.backfilled < table.latest:
            return super()._ratify(table, request, staged)
        actions = request.actions
        if actions is None:
            file = self.storage.read(self._staged_path(table, staged or ""))
            actions = tuple(proposals.lines(file.content if file else ""))
        request = m.Commit(table=request.table, version=request.version, attempt=request.attempt, actions=actions)
        return self._publish_directly(table, request)


@outsider("legal owner", "interface: the name of a table is opaque to the kit")
class OddReferences(ModelOwner):
    """The references of tables contain blanks, slashes, quotes and non-ASCII letters."""

    def _reference(self, name: str) -> str:
        return f' {name}/../"ταблица 表" #{len(self.tables)}\n'

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        fields = {name: getattr(request, name) for name in request.__struct_fields__}
        path = request.path or f"{self.storage.root}/t{len(self.tables)}"
        return super().create_table(client, m.CreateTable(**{**fields, "path": path}))


@outsider("legal owner", 'catalog-managed, "Creating and Dropping": a soft delete first, the hard delete later')
class ReservesDroppedNames(ModelOwner):
    """A dropped table keeps its name until its data is purged."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        if any(
            not table.active and table.leaving is None and table.name == request.name for table in self.tables.values()
        ):
            known = any(request.attempt in table.landed for table in self.tables.values())
            if not known:
                return m.Rejected(reason="the name is reserved")
        return super().create_table(client, request)


@outsider("legal owner", 'managed-commits, "Converting a managed-commit table": the owner may reject the request')
class ReturnsOnlyPublishedTables(ModelOwner):
    """The owner rejects a hand-back until a client has requested the backfill of all commits."""

    def hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        table = self.tables.get(request.table)
        if (
            table is not None
            and table.active
            and table.backfilled < table.latest
            and request.attempt not in table.landed
        ):
            return m.Rejected(reason="backfill first", retryable=True)
        return super().hand_back(client, request)


@outsider("legal client", 'PROTOCOL.md, "Add File": a relative path or an absolute URI')
class WritesAbsolutePaths(ModelClient):
    """The client writes absolute URIs of data files. In answers, it names a file relative to the table if the file is
    below it.
    """

    folder = ""

    def _actions(self, transaction: Transaction, version: int) -> tuple[str, ...]:
        self.folder = f"file://{quote(str(transaction.table.log.parent))}/"
        return super()._actions(transaction, version)

    def _add(self, file: m.DataFile, request: m.Transact, timestamp: int, *, partitioned: bool) -> str:
        body = json.loads(super()._add(file, request, timestamp, partitioned=partitioned))["add"]
        if not body["path"].startswith("/") and ":" not in body["path"]:
            body["path"] = self.folder + body["path"]
        return proposals.line("add", body)


@outsider("legal client", 'PROFILES.md, "idempotent-retry": a landed attempt that is sent again is ratified')
class SendsAgain(ModelClient):
    """After an unknown outcome the client repeats the identical request until it gets an answer."""

    def _resolved(self, client: str, transaction: Transaction, request: m.Commit) -> bool:
        for _ in range(self.most_questions):
            reply = self.owner(client, request)
            if isinstance(reply, m.Ratified):
                return True
            if not isinstance(reply, m.Unknown):
                break
        return super()._resolved(client, transaction, request)
