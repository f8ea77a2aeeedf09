"""Subjects written from the documents alone: their author read the requirements and the interface, but not the kit's
checks and mutants. Those whose fault or freedom a mutant or a good subject has too are not here.

Bad subjects violate a passage of the documents; legal ones use freedoms. Each can be run:
`delta-commit-conformance run python:spec_tests.conformance.outsiders:JanitorOffByOne`.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from conformance.interface import messages as m
from conformance.interface.log_names import LOG, STAGING
from conformance.models import proposals
from conformance.models.client import ModelClient
from conformance.models.log_files import Checkpoint, Listing
from conformance.models.owner import OWNER_PROPERTY, Commit, ModelOwner, NotPublished, OwnedTable
from conformance.models.reader import Resolved
from conformance.models.writer import Transaction
from conformance.mutants import around

Kind = Literal["bad owner", "bad client", "legal owner", "legal client"]
T = TypeVar("T", bound=type)


class Outsider(NamedTuple):
    kind: Kind
    subject: type
    passage: str
    """Document, section and paraphrase of the passage that a bad subject violates, or that permits a legal one."""

    @property
    def bad(self) -> bool:
        return self.kind.startswith("bad")

    @property
    def name(self) -> str:
        """The subject's name in the kit."""
        return f"python:{__name__}:{self.subject.__name__}"


OUTSIDERS: Final[list[Outsider]] = []


def outsider(kind: Kind, passage: str) -> Callable[[T], T]:
    """Record the class in the list."""

    def record(subject: T) -> T:
        OUTSIDERS.append(Outsider(kind, subject, passage))
        return subject

    return record


# Bad owners


class Owner(ModelOwner):
    """The model owner, but it describes a table without its metadata if a file is missing."""

    def _newest(self, table: OwnedTable, kind: str) -> str | None:
        with suppress(NotPublished):
            return super()._newest(table, kind)
        return None


@outsider(
    "bad owner", 'managed-commits, "Managed Commits": the owner is the source of truth for whether a commit succeeded'
)
class KeyStoredBeforeTheBacklogCheck(Owner):
    """Idempotency: the owner stores the attempt as landed before it checks the backlog. If it then rejects the attempt,
    the retry is answered `ratified` without a commit.
    """

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._refusal(table, request, staged)
        if isinstance(answer, m.Rejected) and answer.retryable:
            table.landed[request.attempt] = request.version
            self._save(table)
        return answer


@outsider("bad owner", 'managed-commits, "Sample Commit Owner API": backfillToVersion backfills all commits <= version')
class YieldsToAnotherPublisher(Owner):
    """Partial failure: a backfill that finds a published version assumes that another backfill is running, stops there,
    and reports success.
    """

    def _backfill(self, table: OwnedTable, version: int) -> None:
        for next_version in range(table.backfilled + 1, version + 1):
            published = self.storage.read(self._path(table, next_version)) is not None
            super()._backfill(table, next_version)
            if published:
                return


@outsider(
    "bad owner", 'managed-commits, "Commit Files": un-backfilled files are kept track of until they are backfilled'
)
class JanitorOffByOne(Owner):
    """Off by one: after a backfill the owner deletes the staged files of backfilled versions, and that of the next
    version.
    """

    def _backfill(self, table: OwnedTable, version: int) -> None:
        super()._backfill(table, version)
        folder = f"{table.location}/{LOG}/{STAGING[table.feature]}"
        for name in self.storage.list(folder):
            if name[:20].isdecimal() and int(name[:20]) <= table.backfilled + 1:
                self.storage.remove(f"{folder}/{name}")


@outsider(
    "bad owner", 'managed-commits, "Commit Protocol": un-backfilled commits are tracked until they are backfilled'
)
class WatermarkBeyondTheLatest(Owner):
    """Range: a backfill to a version beyond the latest moves the watermark to it. Later commits are below the watermark
    and are not listed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.watermarks: dict[str, int] = {}

    def backfill_to_version(self, client: str, request: m.BackfillToVersion) -> m.Answer:
        answer = super().backfill_to_version(client, request)
        if isinstance(answer, m.Done):
            self.watermarks[request.table] = max(request.version, self.watermarks.get(request.table, 0))
        return answer

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        return super()._entries(table, max(start, self.watermarks.get(table.reference, -1) + 1), end)


@outsider("bad owner", 'catalog-managed, "Commit Protocol": ratified commits are available to readers until published')
class NegativeSlice(Owner):
    """Off by one: `start` is an index into the list of unpublished commits. An index of -1 selects the last one."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        stored = super()._entries(table, 0, end)
        return stored[start - stored[0].version :] if stored and start > 0 else stored


@outsider("bad owner", 'managed-commits, "Getting Un-backfilled Commits": the latest ratified version is returned too')
class EmptyAnswerIsCached(Owner):
    """Wrong cache: each client's component caches an answer without commits, with its `latest`, until that client
    commits. A client that only reads never sees another client's commit.
    """

    def __init__(self) -> None:
        super().__init__()
        self.empty: dict[tuple[str, str], m.Answer] = {}

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        key = client, request.table
        if key not in self.empty:
            answer = super().get_commits(client, request)
            if not isinstance(answer, m.Commits) or answer.commits or request.start or request.end is not None:
                return answer
            self.empty[key] = answer
        return self.empty[key]

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        self.empty.pop((client, request.table), None)
        return super().commit(client, request)


@outsider(
    "bad owner", 'catalog-managed, "Catalog Responsibilities": a version is committed with the given set of actions'
)
class RecreatedTableInheritsRows(Owner):
    """Re-creation: unpublished commits are rows by table name and version, inserted only if missing. A table that is
    dropped with unpublished commits leaves them to the next table of its name.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[tuple[str, int], Commit] = {}

    def drop_table(self, client: str, request: m.DropTable) -> m.Answer:
        answer = super().drop_table(client, request)
        if isinstance(answer, m.Done):
            table = self.tables[request.table]
            self.rows |= {(table.name, version): commit for version, commit in table.unbackfilled.items()}
        return answer

    def _ratify(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
        answer = super()._ratify(table, request, staged)
        stored: Any = self.rows.get((table.name, request.version))
        if stored is not None and request.version in table.unbackfilled:
            table.unbackfilled[request.version] = stored
            self._save(table)
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


# Bad clients


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


# Unusual but legal owners and clients


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
