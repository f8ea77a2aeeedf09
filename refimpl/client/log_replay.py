"""From actions to the state of a table: the latest one wins.

DELTA.md#actions: a file is identified by its path and deletion vector; of protocol and
metadata there is one, of `txn` one for each application, of `domainMetadata` one for each domain.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from refimpl.actions import (
    Action,
    Add,
    CommitInfo,
    DomainMetadata,
    FileKey,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from refimpl.client.layered_map import LayeredMap


@dataclass(slots=True)
class Changes:
    """What a run of commits did, in the making. Feed it their actions, oldest first."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    files: dict[FileKey, Add | Remove] = field(default_factory=dict)
    transactions: dict[str, Txn | None] = field(default_factory=dict)
    domains: dict[str, DomainMetadata | None] = field(default_factory=dict)
    commit_info: CommitInfo | None = None
    """Of the newest commit."""

    def apply(self, actions: Iterable[Action]) -> None:
        """The actions of the next commit. Unknown ones were dropped when the commit was decoded."""
        files = self.files
        for action in actions:
            kind = type(action)
            if kind is Add or kind is Remove:
                files[action.key] = action  # type: ignore[union-attr, assignment]
            elif isinstance(action, CommitInfo):
                self.commit_info = action
            elif isinstance(action, Txn):
                self.transactions[action.app_id] = action
            elif isinstance(action, DomainMetadata):
                self.domains[action.domain] = None if action.removed else action
            elif isinstance(action, Protocol):
                self.protocol = action
            elif isinstance(action, Metadata):
                self.metadata = action


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """The reconciled actions of one version. Protocol and metadata are None only before version 0."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    files: LayeredMap[FileKey, Add] = field(default_factory=LayeredMap)
    """Active files."""
    tombstones: LayeredMap[FileKey, Remove] = field(default_factory=LayeredMap)
    transactions: LayeredMap[str, Txn] = field(default_factory=LayeredMap)
    domains: LayeredMap[str, DomainMetadata] = field(default_factory=LayeredMap)
    size_in_bytes: int = 0
    """Of all active files."""
    files_with_deletion_vectors: int = 0

    def after(self, changes: Changes) -> TableState:
        """The state that the changes make of this one; it costs their number, not that of the table's files."""
        adds: dict[FileKey, Add | None] = {}
        removes: dict[FileKey, Remove | None] = {}
        size, masked = self.size_in_bytes, self.files_with_deletion_vectors
        tracked, tombstones = len(self.files), len(self.tombstones)
        for key, action in changes.files.items():
            replaced = self.files.get_or_none(key) if tracked else None
            if replaced is not None:
                size -= replaced.size
                masked -= key[1] is not None
            if isinstance(action, Add):
                adds[key] = action
                size += action.size
                masked += key[1] is not None
                if tombstones:
                    removes[key] = None
            else:
                removes[key] = action
                if tracked:
                    adds[key] = None
        return TableState(
            protocol=changes.protocol or self.protocol,
            metadata=changes.metadata or self.metadata,
            files=self.files.updated(adds),
            tombstones=self.tombstones.updated(removes),
            transactions=self.transactions.updated(changes.transactions),
            domains=self.domains.updated(changes.domains),
            size_in_bytes=size,
            files_with_deletion_vectors=masked,
        )


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """No garbage collection meanwhile: replay makes many objects and no garbage, and the collector would visit
    all of them again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
