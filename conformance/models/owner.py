"""A commit owner in one page: what managed-commits and catalog-managed ask of one, and nothing else.

One request at a time, state in memory, what must survive in `saved`. `_refusal` is a list of demands, one a line: who
wants to know who may commit what reads that. The bad owners of `conformance.mutants` are small edits of this one.
"""

from __future__ import annotations

import json
from typing import Final

import msgspec

from conformance.interface import messages as m
from conformance.models.storage import LOG, MemoryStorage, Storage

STAGING: Final = {"managedCommit": "_commits", "catalogManaged": "_staged_commits"}
WAYS: Final = {"managedCommit": ("staged", "direct"), "catalogManaged": ("staged", "inline", "direct")}
OWNER_PROPERTY: Final = "delta.managedCommit.commitOwner"
PROFILES: Final = (
    "core", "version-0-by-owner", "version-0-by-filesystem", "staged", "inline", "direct-publish", "idempotent-retry",
    "attempt-outcome", "ownership-transfer", "durable-restart", "maintenance-policy", "backlog-limit", "discovery",
    "storage-access", "harness-control",
)  # fmt: skip


class Commit(msgspec.Struct, kw_only=True):
    """A ratified commit that the owner still stores: where its file is, or for an inline commit what it says."""

    attempt: str
    staged_file: str | None = None
    actions: tuple[str, ...] | None = None


class OwnedTable(msgspec.Struct, kw_only=True):
    """All that the owner knows of a table."""

    reference: str
    name: str
    feature: str
    way: str
    location: str
    latest: int = -1
    """The latest ratified version."""
    backfilled: int = -1
    """Every version up to it is `<v>.json`."""
    unbackfilled: dict[int, Commit] = {}
    landed: dict[str, int] = {}
    """Version by attempt, for ever."""
    never: set[str] = set()
    """Attempts that were resolved as not landed."""
    active: bool = True
    backfill: str = "on-request"
    backlog_limit: int | None = None


class ModelOwner:
    """Answers the shared interface, see `conformance.interface.messages`."""

    name = "model"

    def __init__(self, storage: Storage | None = None) -> None:
        self.storage: Storage = MemoryStorage() if storage is None else storage
        self.tables: dict[str, OwnedTable] = {}
        self.saved: dict[str, bytes] = {}
        """By table: what a restart finds."""

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        return m.Identity(
            name=self.name, version="1", interface_version=m.INTERFACE_VERSION, side="owner", profiles=PROFILES,
            ways=dict(WAYS), storage=self.storage.root, promises=("fresh-refusals", "fresh-direct", "tombstone-first"),
        )  # fmt: skip

    # Committing

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        table = self.tables.get(request.table)
        if table is None:
            return m.NotFound()
        staged = self._stage(table, request)
        return (
            self._replay(table, request)
            or self._refusal(table, request, staged)
            or self._ratify(table, request, staged)
        )

    def _stage(self, table: OwnedTable, request: m.Commit) -> str | None:
        """The proposer's part: a new file of its own in the staging folder. Its name."""
        if table.way != "staged" or request.actions is None:
            return request.staged_file
        name = f"{request.version:020}.{request.attempt}.json"
        self.storage.put_if_absent(
            self._staged_path(table, name), content_of(request.actions), time_of(request.actions)
        )
        return name

    def _replay(self, table: OwnedTable, request: m.Commit) -> m.Answer | None:
        self._notice(table)
        landed = table.landed.get(request.attempt)
        if landed is None:
            return None
        return m.Ratified(version=landed) if landed == request.version else m.Rejected(reason="attempt used before")

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        """Every reason not to ratify, in the order in which they count."""
        if request.attempt in table.never:
            return m.Rejected(reason="resolved as not landed")
        if not table.active:
            return m.Rejected(reason="not owned any more")
        if request.version > table.latest + 1:
            return m.Gap(latest=latest_of(table))
        if request.version <= table.latest:
            return m.Conflict(latest=table.latest, winners=self._entries(table, request.version, None))
        if request.staged_file is not None and not self._is_proposal(table, request):
            return m.Rejected(reason=f"{request.staged_file} is no staged file of version {request.version}")
        if request.actions is None and (staged is None or table.way != "staged"):
            return m.Rejected(reason="nothing is proposed")
        if table.backlog_limit is not None and table.latest - table.backfilled >= table.backlog_limit:
            return m.Rejected(reason="too many unbackfilled commits", retryable=True)
        return None

    def _is_proposal(self, table: OwnedTable, request: m.Commit) -> bool:
        named = request.staged_file == f"{request.version:020}.{request.attempt}.json"
        return named and self.storage.read(self._staged_path(table, request.staged_file or "")) is not None

    def _ratify(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
        """Make it the version. The commit point is the one assignment, or the one file."""
        if table.way == "direct":
            return self._publish_directly(table, request)
        actions = request.actions if table.way == "inline" else None
        table.unbackfilled[request.version] = Commit(attempt=request.attempt, staged_file=staged, actions=actions)
        self._record(table, request.version, request.attempt)
        if table.backfill == "subject" and request.version % 3 == 2:
            self._backfill(table, request.version)
        return m.Ratified(version=request.version)

    def _publish_directly(self, table: OwnedTable, request: m.Commit) -> m.Answer:
        actions = request.actions or ()
        if not self.storage.put_if_absent(self._path(table, request.version), content_of(actions), time_of(actions)):
            self._notice(table)
            return m.Conflict(latest=table.latest)
        table.backfilled = request.version
        self._record(table, request.version, request.attempt)
        return m.Ratified(version=request.version)

    def _record(self, table: OwnedTable, version: int, attempt: str) -> None:
        table.latest = version
        table.landed[attempt] = version
        self._save(table)

    def _notice(self, table: OwnedTable) -> None:
        """Commits that became visible without us: a direct commit is ratified by being there."""
        while table.active and table.latest == table.backfilled:
            visible = self.storage.read(self._path(table, table.latest + 1))
            if visible is None:
                break
            table.backfilled += 1
            self._record(table, table.backfilled, attempt_of(visible.content))

    def attempt_outcome(self, client: str, request: m.AttemptOutcome) -> m.Answer:
        table = self.tables.get(request.table)
        if table is None:
            return m.NotFound()
        self._notice(table)
        if request.attempt in table.landed:
            return m.Landed(version=table.landed[request.attempt])
        table.never.add(request.attempt)
        self._save(table)
        return m.NotLanded()

    # Reading and publishing

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        table = self.tables.get(request.table)
        if table is None:
            return m.NotFound()
        self._notice(table)
        commits = self._entries(table, request.start or 0, request.end)
        return m.Commits(commits=commits, latest=latest_of(table))

    def backfill_to_version(self, client: str, request: m.BackfillToVersion) -> m.Answer:
        table = self.tables.get(request.table)
        if table is None:
            return m.NotFound()
        self._backfill(table, min(request.version, table.latest))
        return m.Done()

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        last = table.latest if end is None else min(end, table.latest)
        return tuple(
            m.CommitEntry(version=version, file_name=commit.staged_file, actions=commit.actions)
            for version, commit in sorted(table.unbackfilled.items())
            if start <= version <= last
        )

    def _backfill(self, table: OwnedTable, version: int) -> None:
        """In order; a commit is forgotten only when its file is there."""
        for next_version in range(table.backfilled + 1, version + 1):
            self._publish(table, next_version)
            table.backfilled = next_version
            del table.unbackfilled[next_version]
            self._save(table)

    def _publish(self, table: OwnedTable, version: int) -> None:
        content = self._content(table, table.unbackfilled[version])
        if not self.storage.put_if_absent(self._path(table, version), content, time_of(content.splitlines())):
            found = self.storage.read(self._path(table, version))
            if found is None or found.content != content:
                raise RuntimeError(f"version {version} of {table.name} is published with another content")

    def _content(self, table: OwnedTable, commit: Commit) -> str:
        if commit.actions is not None:
            return content_of(commit.actions)
        staged = self.storage.read(self._staged_path(table, commit.staged_file or ""))
        if staged is None:
            raise RuntimeError(f"the staged file {commit.staged_file} of {table.name} is gone")
        return staged.content

    # Creating, finding and dropping

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        for reference, table in self.tables.items():
            if request.attempt in table.landed and table.name == request.name:
                return m.Ratified(version=0, table=reference)
        found = self._find(request.name, None)
        if found is not None:
            return m.Conflict(latest=self.tables[found].latest, winner_table=found)
        reference = f"{request.name}-{len(self.tables)}"
        table = OwnedTable(
            reference=reference, name=request.name, feature=request.feature, way=request.way,
            location=f"{self.storage.root}/{reference}",
            backfill=request.backfill, backlog_limit=request.backlog_limit,
        )  # fmt: skip
        actions = self._with_owner(request.actions, request.feature)
        if not self.storage.put_if_absent(self._path(table, 0), content_of(actions), time_of(actions)):
            return m.Conflict(latest=0)
        self.tables[reference] = table
        table.backfilled = 0
        self._record(table, 0, request.attempt)
        return m.Ratified(version=0, table=reference)

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        reference = self._find(request.name, request.path)
        if reference is None:
            return m.NotFound()
        table = self.tables[reference]
        self._notice(table)
        return m.Table(
            table=reference, feature=table.feature, way=table.way, latest=latest_of(table), location=table.location,
            commits=self._entries(table, 0, None),
        )  # fmt: skip

    def drop_table(self, client: str, request: m.DropTable) -> m.Answer:
        table = self.tables.get(request.table)
        if table is None or not table.active:
            return m.NotFound()
        table.active = False
        self._save(table)
        return m.Done()

    def maintenance_policy(self, client: str, request: m.MaintenancePolicy) -> m.Answer:
        if request.table not in self.tables:
            return m.NotFound()
        return m.Policy(allowed=("checkpoint", "log-compaction", "checksum", "metadata-cleanup"))

    def _find(self, name: str | None, path: str | None) -> str | None:
        for reference, table in self.tables.items():
            if table.active and (table.name == name or table.location == path or (name and reference == name)):
                return reference
        return None

    # Changing the owner

    def take_over(self, client: str, request: m.TakeOver) -> m.Answer:
        """The promise is saved before the ownership change can be seen, and forgotten if another commit won."""
        for reference, table in self.tables.items():
            if request.attempt in table.landed:
                return m.Ratified(version=table.landed[request.attempt], table=reference)
        if self._find(request.name, request.path) is not None:
            return m.Rejected(reason="that table has this owner already, or the name is taken")
        reference = f"{request.name}-{len(self.tables)}"
        table = OwnedTable(
            reference=reference, name=request.name, feature=request.feature, way=request.way, location=request.path
        )
        latest = self._published(table)
        if request.version > latest + 1:
            return m.Gap(latest=latest if latest >= 0 else None)
        self.tables[reference] = table
        self._save(table)
        actions = self._with_owner(request.actions, request.feature)
        if not self.storage.put_if_absent(self._path(table, request.version), content_of(actions), time_of(actions)):
            del self.tables[reference], self.saved[reference]
            return m.Conflict(latest=latest)
        table.backfilled = request.version
        self._record(table, request.version, request.attempt)
        return m.Ratified(version=request.version, table=reference)

    def hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        table = self.tables.get(request.table)
        if table is None:
            return m.NotFound()
        proposal = m.Commit(
            table=request.table, version=request.version, attempt=request.attempt, actions=request.actions
        )
        answer = self._replay(table, proposal) or self._refusal(table, proposal, None)
        if answer is not None:
            return answer
        self._backfill(table, table.latest)
        answer = self._publish_directly(table, proposal)
        if isinstance(answer, m.Ratified):
            table.active = False
            self._save(table)
        return answer

    def _published(self, table: OwnedTable) -> int:
        names = self.storage.list(f"{table.location}/{LOG}")
        return max((int(name[:20]) for name in names if len(name) == 25 and name.endswith(".json")), default=-1)

    def _with_owner(self, actions: tuple[str, ...], feature: str) -> tuple[str, ...]:
        """managed-commits, "Enablement": the owner's name stands in the table's properties."""
        if feature != "managedCommit":
            return actions
        parsed = [json.loads(action) for action in actions]
        for action in parsed:
            if "metaData" in action:
                action["metaData"].setdefault("configuration", {})[OWNER_PROPERTY] = self.name
        return tuple(json.dumps(action, separators=(",", ":")) for action in parsed)

    # The storage, and the kit's hands on it

    def observe(self, client: str, request: m.Observe) -> m.Answer:
        folder = f"{self._location(request.table)}/{LOG}"
        found = []
        for name in self.storage.list(folder):
            file = self.storage.read(f"{folder}/{name}")
            if file is not None:
                content = file.content if request.contents else None
                found.append(m.LogFile(name=name, size=len(file.content), content=content, modified=file.modified))
        return m.Observation(files=tuple(found))

    def plant(self, client: str, request: m.Plant) -> m.Answer:
        path = f"{self._location(request.table)}/{LOG}/{request.file}"
        modified = 0 if request.modified is None else request.modified
        if not request.if_absent:
            self.storage.put(path, request.content, modified)
            return m.Done()
        return m.Done() if self.storage.put_if_absent(path, request.content, modified) else m.Conflict()

    def remove(self, client: str, request: m.Remove) -> m.Answer:
        self.storage.remove(f"{self._location(request.table)}/{LOG}/{request.file}")
        return m.Done()

    def _location(self, table: str) -> str:
        return self.tables[table].location if table in self.tables else table

    def _path(self, table: OwnedTable, version: int) -> str:
        return f"{table.location}/{LOG}/{version:020}.json"

    def _staged_path(self, table: OwnedTable, name: str) -> str:
        return f"{table.location}/{LOG}/{STAGING[table.feature]}/{name}"

    # Dying and starting again

    def crash(self, client: str, request: m.Crash) -> m.Answer:
        if request.point is not None:
            return m.Unsupported(reason="the model has no crash points")
        self.tables = {}
        return m.Done()

    def restart(self, client: str, request: m.Restart) -> m.Answer:
        self.tables = {name: msgspec.json.decode(saved, type=OwnedTable) for name, saved in self.saved.items()}
        return m.Done()

    def _save(self, table: OwnedTable) -> None:
        self.saved[table.reference] = msgspec.json.encode(table)


def latest_of(table: OwnedTable) -> int | None:
    return None if table.latest < 0 else table.latest


def content_of(actions: tuple[str, ...]) -> str:
    return "".join(f"{action}\n" for action in actions)


def attempt_of(content: str) -> str:
    """The kit writes the attempt's id as the `txnId` of its commits."""
    return str(json.loads(content.partition("\n")[0]).get("commitInfo", {}).get("txnId", ""))


def time_of(actions: tuple[str, ...] | list[str]) -> int:
    """The in-commit timestamp, which also is the modification time that files get here."""
    try:
        return int(json.loads(actions[0])["commitInfo"]["inCommitTimestamp"])
    except (ValueError, KeyError, TypeError, IndexError):
        return 0
