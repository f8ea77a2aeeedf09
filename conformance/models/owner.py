"""A commit owner in one file: only what managed-commits and catalog-managed require.

One request at a time, state in memory, durable state in `saved`. `_refusal` lists the reasons to reject a new attempt,
one on each line: read it first. The bad owners of `conformance.mutants` are small edits of this one.
"""

import json
from contextlib import suppress
from typing import Final

from conformance.interface import messages as m
from conformance.interface.log_names import LOG, staged_file, version_of
from conformance.models import proposals
from conformance.models.storage import CRASH_POINTS, Commit, FaultControl, OwnedTable

__all__ = ["COMMIT_MODES", "OWNER_PROPERTY", "PROFILES", "Commit", "Entries", "ModelOwner", "OwnedTable"]

COMMIT_MODES: Final = {"managedCommit": ("staged", "direct"), "catalogManaged": ("staged", "inline", "direct")}
OWNER_PROPERTY: Final = "delta.managedCommit.commitOwner"
PROFILES: Final = (
    "core", "version-0-by-owner", "version-0-by-filesystem", "staged", "inline", "direct-publish", "idempotent-retry",
    "attempt-outcome", "ownership-transfer", "durable-restart", "maintenance-policy", "backlog-limit", "discovery",
    "storage-access", "harness-control",
)  # fmt: skip
Entries = tuple[m.CommitEntry, ...]


class NotPublished(Exception):  # noqa: N818  # the name of the state, not of an error
    """Another file has the name of a commit to publish, or its staged file is missing."""


class ModelOwner(FaultControl):
    """Answers the requests of `conformance.interface.messages`."""

    name = "model"

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        return m.Identity(
            name=self.name, version="1", interface_version=m.INTERFACE_VERSION, side="owner", profiles=PROFILES,
            commit_modes=dict(COMMIT_MODES), storage=self.storage.root,
            promises=("fresh-refusals", "fresh-direct", "tombstone-first"), crash_points=CRASH_POINTS,
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
        """Write the staged file for the proposer; that of a commit is never replaced. Returns its name."""
        if table.commit_mode != "staged" or request.actions is None:
            return request.staged_file
        name = staged_file(request.version, request.attempt)
        put = self.storage.put_if_absent if request.attempt in table.landed else self.storage.put
        put(self._staged_path(table, name), content_of(request.actions), time_of(request.actions))
        return name

    def _replay(self, table: OwnedTable, request: m.Commit) -> m.Answer | None:
        self._notice(table)
        landed = table.landed.get(request.attempt)
        if landed is None:
            return None
        return m.Ratified(version=landed) if landed == request.version else m.Rejected(reason="attempt used before")

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        """Every reason not to ratify, in order of precedence."""
        if request.attempt in table.never:
            return m.Rejected(reason="resolved as not landed")
        if not table.active:
            return m.Rejected(reason="no longer owned")
        if request.version > table.latest + 1:
            return self._gap(table, request)
        if request.version <= table.latest:
            return self._conflict(table, request, staged)
        if request.staged_file is not None and not self._is_proposal(table, request):
            return m.Rejected(reason=f"{request.staged_file} is not a staged file of version {request.version}")
        if request.actions is None and (staged is None or table.commit_mode != "staged"):
            return m.Rejected(reason="the proposal has no content")
        if table.backlog_limit is not None and table.latest - table.backfilled >= table.backlog_limit:
            return m.Rejected(reason="too many unbackfilled commits", retryable=True)
        return None

    def _gap(self, table: OwnedTable, request: m.Commit) -> m.Answer | None:
        return m.Gap(latest=self._latest(table))

    def _conflict(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        return m.Conflict(latest=table.latest, winners=self._entries(table, request.version, None))

    def _is_proposal(self, table: OwnedTable, request: m.Commit) -> bool:
        named = request.staged_file == staged_file(request.version, request.attempt)
        return named and self.storage.read(self._staged_path(table, request.staged_file or "")) is not None

    def _ratify(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
        """Ratify the proposal. The commit point is a single save, or the creation of the file."""
        self._reach("before-commit-point")
        if table.commit_mode == "direct":
            return self._publish_directly(table, request)
        actions = request.actions if table.commit_mode == "inline" else None
        table.unbackfilled[request.version] = Commit(attempt=request.attempt, staged_file=staged, actions=actions)
        self._record(table, request.version, request.attempt)
        self._reach("after-commit-point")
        if table.backfill == "subject" and request.version % 3 == 2:
            with suppress(NotPublished):  # the commit landed, even if its publication fails
                self._backfill(table, request.version)
        return m.Ratified(version=request.version)

    def _publish_directly(self, table: OwnedTable, request: m.Commit) -> m.Answer:
        actions = request.actions or ()
        if not self.storage.put_if_absent(self._path(table, request.version), content_of(actions), time_of(actions)):
            self._notice(table)
            return m.Conflict(latest=table.latest)
        self._reach("after-publish")
        table.backfilled = request.version
        self._record(table, request.version, request.attempt)
        return m.Ratified(version=request.version)

    def _record(self, table: OwnedTable, version: int, attempt: str) -> None:
        table.latest = version
        table.landed[attempt] = version
        self._save(table)

    def _notice(self, table: OwnedTable) -> None:
        """Record commits that became visible without a request: a direct commit is ratified by being visible."""
        while table.active and table.latest == table.backfilled:
            visible = self.storage.read(self._path(table, table.latest + 1))
            if visible is None:
                break
            attempt = attempt_of(visible.content)
            table.backfilled += 1
            table.active = attempt != table.leaving
            self._record(table, table.backfilled, attempt)

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
        if table is None or (not table.active and table.leaving is None):  # it was dropped
            return m.NotFound()
        self._notice(table)
        commits = self._entries(table, request.start or 0, request.end)
        return m.Commits(commits=commits, latest=self._latest(table))

    def backfill_to_version(self, client: str, request: m.BackfillToVersion) -> m.Answer:
        table = self.tables.get(request.table)
        if table is None or (not table.active and table.leaving is None):  # another table may be in its folder
            return m.NotFound()
        try:
            self._backfill(table, min(request.version, table.latest))
        except NotPublished as error:
            return m.Rejected(reason=str(error), retryable=True)
        return m.Done()

    def _latest(self, table: OwnedTable) -> int | None:
        return None if table.latest < 0 else table.latest

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> Entries:
        last = table.latest if end is None else min(end, table.latest)
        return tuple(
            m.CommitEntry(version=version, file_name=commit.staged_file, actions=commit.actions)
            for version, commit in sorted(table.unbackfilled.items())
            if start <= version <= last
        )

    def _backfill(self, table: OwnedTable, version: int) -> None:
        """Publish in order. A commit is forgotten only when its published file exists."""
        for next_version in range(table.backfilled + 1, version + 1):
            self._publish(table, next_version)
            self._reach("after-publish")
            table.backfilled = next_version
            del table.unbackfilled[next_version]
            self._save(table)

    def _publish(self, table: OwnedTable, version: int) -> None:
        content = self._content(table, table.unbackfilled[version])
        if not self.storage.put_if_absent(self._path(table, version), content, time_of(content.splitlines())):
            published = self.storage.read(self._path(table, version))
            if published is None or published.content != content:
                raise NotPublished(f"version {version} of {table.name} is published with other content")

    def _content(self, table: OwnedTable, commit: Commit) -> str:
        if commit.actions is not None:
            return content_of(commit.actions)
        staged = self.storage.read(self._staged_path(table, commit.staged_file or ""))
        if staged is None:
            raise NotPublished(f"the staged file {commit.staged_file} of {table.name} does not exist")
        return staged.content

    # Creating, finding and dropping

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        for reference, table in self.tables.items():
            if request.attempt in table.landed and table.name == request.name:
                return m.Ratified(version=0, table=reference)
            if request.attempt in table.never and table.name == request.name:
                return m.Rejected(reason="resolved as not landed")
        existing = self._find(request.name, None)
        if existing is not None:
            return m.Conflict(latest=self.tables[existing].latest, winner_table=existing)
        reference = self._reference(request.name)
        table = OwnedTable(
            reference=reference, name=request.name, feature=request.feature, commit_mode=request.commit_mode,
            location=request.path or self._folder_of(reference),
            backfill=request.backfill, backlog_limit=request.backlog_limit,
        )  # fmt: skip
        return self._begin(table, 0, request.attempt, request.actions)

    def _begin(self, table: OwnedTable, version: int, attempt: str, actions: tuple[str, ...]) -> m.Answer:
        """The commit that gives the table to this owner. The promise to own it is saved before the commit is visible;
        of all writers of the version, the one that created the file wins."""
        content = self._with_owner(actions, table.feature)
        table.promised = (version, attempt, content_of(content))
        self.tables[table.reference] = table
        self._save(table)
        self._reach("after-promise")
        if not self.storage.put_if_absent(self._path(table, version), content_of(content), time_of(content)):
            self._forget(table)
            return m.Conflict(latest=self._published(table))
        self._reach("after-publish")
        self._recover(table)
        return m.Ratified(version=version, table=table.reference)

    def _recover(self, table: OwnedTable) -> None:
        """Keep a promise of ownership only if its file exists; otherwise delete it."""
        if table.promised is None:
            return
        version, attempt, content = table.promised
        visible = self.storage.read(self._path(table, version))
        if visible is None or visible.content != content:
            self._forget(table)
            return
        table.promised, table.backfilled = None, version
        self._record(table, version, attempt)

    def _reference(self, name: str) -> str:
        """The reference to a new table, for requests."""
        return f"{name}-{len(self.tables)}"

    def _folder_of(self, reference: str) -> str:
        """The location of a new table. The name of a folder has at most 255 bytes."""
        return f"{self.storage.root}/{reference if len(reference.encode()) < 256 else reference[-60:]}"

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        reference = self._find(request.name, request.path)
        if reference is None:
            return m.NotFound()
        table = self.tables[reference]
        self._notice(table)
        return m.Table(
            table=reference, feature=table.feature, commit_mode=table.commit_mode, latest=self._latest(table),
            location=table.location, commits=self._entries(table, 0, None), protocol=self._newest(table, "protocol"),
            metadata=self._newest(table, "metaData"),
        )  # fmt: skip

    def _newest(self, table: OwnedTable, kind: str) -> str | None:
        """The latest action of a kind."""
        return self._newest_after(-1, table, kind)

    def _newest_after(self, known: int, table: OwnedTable, kind: str) -> str | None:
        """The same, among the versions after `known`, found from the newest version back."""
        for version in range(table.latest, known, -1):
            commit = table.unbackfilled.get(version)
            file = self.storage.read(self._path(table, version)) if commit is None else None
            content = "" if commit is None else self._content(table, commit)
            for action in (content if file is None else file.content).splitlines():
                if action.lstrip("{ ").startswith(f'"{kind}"'):
                    return action
        return None

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
        for reference, table in self.tables.items():
            if request.attempt in table.landed:
                return m.Ratified(version=table.landed[request.attempt], table=reference)
        if self._find(request.name, request.path) is not None:
            return m.Rejected(reason="the table already has this owner, or the name is taken")
        reference = self._reference(request.name)
        table = OwnedTable(
            reference=reference,
            name=request.name,
            feature=request.feature,
            commit_mode=request.commit_mode,
            location=request.path,
        )
        latest = self._published(table)
        if request.version > latest + 1:
            return m.Gap(latest=latest if latest >= 0 else None)
        return self._begin(table, request.version, request.attempt, request.actions)

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
        try:
            self._backfill(table, table.latest)
        except NotPublished as error:
            return m.Rejected(reason=str(error), retryable=True)
        table.leaving = request.attempt
        self._save(table)
        self._reach("after-promise")
        answer = self._publish_directly(table, proposal)
        if isinstance(answer, m.Ratified):
            table.active = False
            self._save(table)
        return answer

    def _published(self, table: OwnedTable) -> int:
        names = self.storage.list(f"{table.location}/{LOG}")
        return max((version for name in names if (version := version_of(name)) is not None), default=-1)

    def _with_owner(self, actions: tuple[str, ...], feature: str) -> tuple[str, ...]:
        """managed-commits, "Enablement": add the owner's name to the table's properties."""
        if feature != "managedCommit":
            return actions
        parsed = [json.loads(action) for action in actions]
        for action in parsed:
            if "metaData" in action:
                action["metaData"].setdefault("configuration", {})[OWNER_PROPERTY] = self.name
        return tuple(json.dumps(action, separators=(",", ":")) for action in parsed)


content_of = proposals.content


def attempt_of(content: str) -> str:
    """The kit writes the attempt's id as the `txnId` of its commits."""
    return proposals.attempt_of(content) or ""


def time_of(actions: tuple[str, ...] | list[str]) -> int:
    """The in-commit timestamp, which is also the modification time of the files here."""
    return proposals.time_of(actions[0]) or 0 if actions else 0
