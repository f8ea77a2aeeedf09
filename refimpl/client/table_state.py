"""From actions to the state of a table: the latest one wins.

DELTA.md#actions: a file is identified by its path and deletion vector; of protocol and
metadata there is one, of `txn` one for each application, of `domainMetadata` one for each domain.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from dataclasses import dataclass, field
from typing import Generic, TypeVar

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

Key = TypeVar("Key")
Value = TypeVar("Value")


class LayeredMap(Mapping[Key, Value], Generic[Key, Value]):
    """An immutable mapping whose next version, made by `updated`, costs only what changed.

    A snapshot of a table with a million files and the snapshot after one more commit share everything but that
    commit's files. Layers of changes are stacked like the levels of a log-structured tree: each is more than twice as
    large as the next, so that a lookup visits few, and an entry is copied a logarithmic number of times over the life
    of the map. Iteration folds the layers into one, once. Our own, because `immutables.Map` takes 5 s to hold a
    million files and seven times as long to list them.
    """

    __slots__ = ("_layers", "_length")

    def __init__(self) -> None:
        self._layers: tuple[dict[Key, Value | None], ...] = ({},)
        """Oldest first. In all but the oldest, None means that the key is removed."""
        self._length = 0

    def updated(self, changes: Mapping[Key, Value | None]) -> LayeredMap[Key, Value]:
        """The map with these values; None removes a key, whether it is there or not."""
        if not changes:
            return self
        after: LayeredMap[Key, Value] = LayeredMap()
        if not self._length:
            alive: dict[Key, Value | None] = {key: value for key, value in changes.items() if value is not None}
            after._layers, after._length = (alive,), len(alive)
            return after
        difference = 0
        for key, value in changes.items():
            difference += (value is not None) - (key in self)
        after._length = self._length + difference
        layers = [*self._layers, dict(changes)]
        while len(layers) > 1 and len(layers[-2]) <= 2 * len(layers[-1]):
            top = layers.pop()
            layers[-1] = _merged(layers[-1], top, bottom=len(layers) == 1)
        after._layers = tuple(layers)
        return after

    def get_or_none(self, key: Key) -> Value | None:
        """The value, or None: without the cost of an exception."""
        for layer in reversed(self._layers):
            if key in layer:
                return layer[key]
        return None

    def __getitem__(self, key: Key) -> Value:
        value = self.get_or_none(key)
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        return self.get_or_none(key) is not None  # type: ignore[arg-type]

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Key]:
        return iter(self._folded())

    def keys(self) -> KeysView[Key]:
        return self._folded().keys()

    def values(self) -> ValuesView[Value]:
        return self._folded().values()

    def items(self) -> ItemsView[Key, Value]:
        return self._folded().items()

    def _folded(self) -> dict[Key, Value]:
        layers = self._layers
        if len(layers) > 1:
            folded = layers[0]
            for layer in layers[1:]:
                folded = _merged(folded, layer, bottom=True)
            self._layers = layers = (folded,)  # another thread may do the same: the results are equal
        return layers[0]  # type: ignore[return-value]  # no None in the oldest layer

    def __repr__(self) -> str:
        return f"LayeredMap({dict(self)!r})"


def _merged(older: dict[Key, Value | None], newer: dict[Key, Value | None], *, bottom: bool) -> dict[Key, Value | None]:
    merged = older | newer
    if bottom:
        for key, value in newer.items():
            if value is None:
                del merged[key]
    return merged


@dataclass(slots=True)
class Changes:
    """Accumulates the changes of successive commits. Add their actions, oldest first."""

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
class ReplayedState:
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

    def after(self, changes: Changes) -> ReplayedState:
        """This state with the changes applied, in time proportional to their number, not to the number of files."""
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
        return ReplayedState(
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
