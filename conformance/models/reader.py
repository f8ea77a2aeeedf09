"""A reader in one page: from an owner's commits and a listing to a snapshot.

catalog-managed, "Reading Catalog-managed Tables", and managed-commits, "Reading managed-commit tables": ask the owner
first, list after that, put both together without a gap.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from conformance.interface import messages as m
from conformance.models.owner import STAGING
from conformance.models.storage import LOG

Owner = Callable[[str, m.Request], m.Answer]


class Refused(Exception):  # noqa: N818  # it is an answer
    """The client does not do it, and says why."""


class Unsure(Exception):  # noqa: N818  # it is an answer
    """The client cannot know whether it did it."""


@dataclass(kw_only=True)
class State:
    """A snapshot: all actions of its versions, reconciled."""

    version: int = -1
    timestamp: int = 0
    protocol: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    files: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """By path as written and deletion vector."""
    applications: dict[str, int] = field(default_factory=dict)
    domains: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def properties(self) -> dict[str, str]:
        return dict(self.metadata.get("configuration") or {})


@dataclass(kw_only=True)
class Resolved:
    """A table as its owner told it."""

    name: str | None
    reference: str | None
    feature: str | None
    way: str
    log: Path
    latest: int | None = None
    commits: tuple[m.CommitEntry, ...] = ()


class ModelReader:
    """Reads through `owner`. Methods with an underscore are the steps, in the order in which they happen."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner

    def snapshot(self, client: str, request: m.Snapshot) -> m.Answer:
        try:
            if request.path is not None:
                table = self._by_path(request.path)
            else:
                table = self._resolve(client, request.table or "")
            state = self._read(client, table, request.version, request.timestamp)
        except Refused as refused:
            return m.Rejected(reason=str(refused))
        except Unsure as unsure:
            return m.Unknown(reason=str(unsure))
        return m.SnapshotRead(
            version=state.version,
            files=tuple(sorted(unquote(path) for path, _ in state.files)),
            stale=request.path is not None,
            timestamp=state.timestamp,
            properties=state.properties,
            partitions={
                unquote(add["path"]): add["partitionValues"].get("part") or None for add in state.files.values()
            },
            applications=state.applications,
            domains={name: body["configuration"] for name, body in state.domains.items()},
        )

    # Which table, and how far

    def _resolve(self, client: str, name: str) -> Resolved:
        """Through the owner, before anything of the table is known; its commits come with it."""
        told = self.owner(client, m.LoadTable(name=name))
        if isinstance(told, m.NotFound):
            raise Refused(f"there is no table {name}")
        if not isinstance(told, m.Table) or told.location is None:
            raise Unsure("the owner does not say where the table is")
        return Resolved(
            name=name, reference=told.table, feature=told.feature, way=told.way, log=Path(told.location) / LOG
        )

    def _by_path(self, path: str) -> Resolved:
        """managedCommit: the published versions, which may be stale. catalogManaged: only through the catalog."""
        table = Resolved(name=None, reference=None, feature=None, way="", log=Path(path) / LOG)
        listed = self._list(table)
        state = self._replay(table, listed, max(listed, default=-1))
        if "catalogManaged" in state.protocol.get("readerFeatures", ()):
            raise Refused("a catalog-managed table is read through its catalog")
        return table

    def _gather(self, client: str, table: Resolved) -> dict[int, Path]:
        """Ask the owner first, list after that: whatever is backfilled in between is in both, not in neither."""
        self._ask(client, table)
        return self._list(table)

    def _ask(self, client: str, table: Resolved) -> None:
        """The owner's latest version and its commits."""
        if table.reference is None:
            return
        told = self.owner(client, m.GetCommits(table=table.reference))
        if not isinstance(told, m.Commits):
            raise Unsure("the owner does not tell its commits")
        table.latest = None if told.latest == -1 else told.latest
        table.commits = told.commits

    def _target(self, table: Resolved, listed: dict[int, Path], version: int | None) -> int:
        """catalogManaged: the catalog's latest. managedCommit: the listing may show more, and -1 says nothing."""
        newest = max(listed, default=-1)
        latest = newest if table.latest is None else table.latest
        if table.feature != "catalogManaged":
            latest = max(newest, latest)
        if version is not None and version > latest:
            raise Refused(f"version {version} does not exist; the latest is {latest}")
        return latest if version is None else version

    # From files to a snapshot

    def _read(self, client: str, table: Resolved, version: int | None, timestamp: int | None) -> State:
        listed = self._gather(client, table)
        return self._replay(table, listed, self._target(table, listed, version))

    def _list(self, table: Resolved) -> dict[int, Path]:
        """Published commits by version. Only files directly in the log folder are looked at."""
        found = {}
        for path in table.log.iterdir():
            stem, _, ending = path.name.partition(".")
            if ending == "json" and len(stem) == 20 and stem.isdecimal():
                found[int(stem)] = path
        return found

    def _replay(self, table: Resolved, listed: dict[int, Path], target: int) -> State:
        state = State()
        owned = {commit.version: commit for commit in table.commits}
        for version in range(target + 1):
            self._apply(state, version, self._commit(table, listed, owned, version))
        return state

    def _commit(
        self, table: Resolved, listed: dict[int, Path], owned: dict[int, m.CommitEntry], version: int
    ) -> list[dict[str, Any]]:
        """The actions of a version: the owner's copy where it has one, else the published file."""
        commit = owned.get(version)
        if commit is not None and commit.actions is not None:
            return [json.loads(action) for action in commit.actions]
        if commit is not None and commit.file_name is not None:
            staged = table.log / STAGING[table.feature or ""] / commit.file_name
            if staged.exists():
                return self._parse(staged)
        published = table.log / f"{version:020}.json"
        if version not in listed and not (commit is not None and published.exists()):
            raise Refused(f"version {version} is missing")
        return self._parse(published)

    def _parse(self, path: Path) -> list[dict[str, Any]]:
        try:
            actions = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
        except (OSError, ValueError) as error:
            raise Refused(f"{path.name} cannot be read: {error}") from error
        if not actions:
            raise Refused(f"{path.name} is empty")
        return actions

    def _apply(self, state: State, version: int, actions: list[dict[str, Any]]) -> None:
        """One commit on top of the version before it."""
        state.version = version
        for action in actions:
            for kind, body in action.items():
                self._apply_action(state, kind, body)

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        match kind:
            case "commitInfo":
                state.timestamp = body.get("inCommitTimestamp", 0)
            case "protocol":
                state.protocol = body
            case "metaData":
                state.metadata = body
            case "add":
                state.files[file_of(body)] = body
            case "remove":
                state.files.pop(file_of(body), None)
            case "txn":
                state.applications[body["appId"]] = body["version"]
            case "domainMetadata":
                state.domains[body["domain"]] = body
                if body.get("removed"):
                    del state.domains[body["domain"]]


def file_of(body: dict[str, Any]) -> tuple[str, str]:
    """A file is the same only if its path and its deletion vector are."""
    vector = body.get("deletionVector") or {}
    return body["path"], f"{vector.get('storageType', '')}{vector.get('pathOrInlineDv', '')}{vector.get('offset', '')}"
