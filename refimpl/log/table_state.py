"""From actions to the state of a table: the latest action wins.

DELTA.md#actions: path and deletion vector identify a file. The state has one protocol, one metadata,
one `txn` for each application, and one `domainMetadata` for each domain.
"""

import contextlib
import gc
import typing
from collections.abc import Collection, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from refimpl.protocol.actions import Action, Add, CommitInfo, DomainMetadata, FileKey, Metadata, Protocol, Remove, Txn

Key = TypeVar("Key")
Value = TypeVar("Value")


class Entries(typing.Protocol[Key, Value]):
    """The oldest layer of a `LayeredMap` while it is not a dictionary: its values are made on demand, or are in another
    process."""

    def __len__(self) -> int: ...

    def look_up(self, keys: Collection[Key]) -> dict[Key, Value]:
        """The entries of the keys that exist."""

    def as_dict(self) -> dict[Key, Value]:
        """All entries; the same dictionary each time."""


class LayeredMap(Mapping[Key, Value], Generic[Key, Value]):
    """An immutable mapping whose next version, made by `updated`, costs only what changed.

    A snapshot of a table with a million files and the snapshot after one more commit share everything but that
    commit's files. Layers of changes are stacked like the levels of a log-structured tree: each is more than twice as
    large as the next, so that a lookup visits few layers, and an entry is copied a logarithmic number of times in the
    life of the map. The first iteration merges the layers into one. This is our own class, because `immutables.Map`
    takes 5 s to store a million files and seven times as long to list them.
    """

    __slots__ = ("_layers", "_length")

    def __init__(self, entries: Entries[Key, Value] | None = None) -> None:
        self._layers: tuple[Any, ...] = ({} if entries is None else entries,)
        """Oldest first. In all but the oldest, None means that the key is removed."""
        self._length = len(self._layers[0])

    def updated(
        self, changes: Mapping[Key, Value | None], current: Mapping[Key, Value] | None = None
    ) -> "LayeredMap[Key, Value]":
        """The map with these values; None removes a key, if it exists. `current`: the entries of the changed
        keys, if the caller has looked them up."""
        if not changes:
            return self
        after: LayeredMap[Key, Value] = LayeredMap()
        if not self._length:
            alive: dict[Key, Value | None] = {key: value for key, value in changes.items() if value is not None}
            after._layers, after._length = (alive,), len(alive)
            return after
        before = self.look_up(changes) if current is None else current
        after._length = self._length - len(before) + sum(value is not None for value in changes.values())
        layers = [*self._layers, dict(changes)]
        while len(layers) > 1 and len(layers[-2]) <= 2 * len(layers[-1]):
            top = layers.pop()
            layers[-1] = _merged(layers[-1], top, bottom=len(layers) == 1)
        after._layers = tuple(layers)
        return after

    def look_up(self, keys: Collection[Key]) -> dict[Key, Value]:
        """The entries of the keys that exist."""
        entries: dict[Key, Value] = {}
        oldest, *newer = self._layers
        for layer in reversed(newer):
            entries |= {key: value for key in keys if (value := layer.get(key)) is not None}
            keys = [key for key in keys if key not in layer]
        if isinstance(oldest, dict):
            return entries | {key: oldest[key] for key in keys if key in oldest}
        return entries | oldest.look_up(keys) if keys else entries

    def __getitem__(self, key: Key) -> Value:
        return self.look_up((key,))[key]

    def __contains__(self, key: object) -> bool:
        return key in self.look_up((key,))  # type: ignore[arg-type]

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

    def changes(self) -> tuple[Mapping[Key, Value] | Entries[Key, Value], dict[Key, Value | None]]:
        """The oldest layer, and the later changes."""
        oldest, *newer = self._layers
        changes: dict[Key, Value | None] = {}
        for layer in newer:
            changes |= layer
        return oldest, changes

    def _folded(self) -> dict[Key, Value]:
        oldest, *newer = self._layers
        folded = oldest if isinstance(oldest, dict) else oldest.as_dict()
        for layer in newer:
            folded = _merged(folded, layer, bottom=True)
        self._layers = (folded,)  # another thread may do the same: the results are equal
        return folded

    def __repr__(self) -> str:
        return f"LayeredMap({dict(self)!r})"


def _merged(older: Any, newer: dict[Key, Value | None], *, bottom: bool) -> dict[Key, Value | None]:
    merged: dict[Key, Value | None] = (older if isinstance(older, dict) else older.as_dict()) | newer
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
    """The newest commit's commitInfo."""

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

    def transactions_after(self, oldest: int | None) -> Mapping[str, Txn]:
        """Without those that were last updated at or before this time (ms since the epoch); None: all."""
        if oldest is None:
            return self.transactions
        return {name: txn for name, txn in self.transactions.items() if _lives(txn, oldest)}

    def after(self, changes: Changes) -> "ReplayedState":
        """This state with the changes applied, in time proportional to their number, not to the number of files."""
        adds: dict[FileKey, Add | None] = {}
        removes: dict[FileKey, Remove | None] = {}
        size, masked = self.size_in_bytes, self.files_with_deletion_vectors
        tracked, tombstones = len(self.files), len(self.tombstones)
        for key, action in changes.files.items():
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
        replaced = self.files.look_up(adds) if tracked else {}
        for key, add in replaced.items():
            size -= add.size
            masked -= key[1] is not None
        return ReplayedState(
            protocol=changes.protocol or self.protocol,
            metadata=changes.metadata or self.metadata,
            files=self.files.updated(adds, replaced),
            tombstones=self.tombstones.updated(removes),
            transactions=self.transactions.updated(changes.transactions),
            domains=self.domains.updated(changes.domains),
            size_in_bytes=size,
            files_with_deletion_vectors=masked,
        )


def _lives(txn: Txn, oldest: int) -> bool:
    """An unknown time never expires: a forgotten `txn` would let its application write a batch twice."""
    return txn.last_updated is None or txn.last_updated > oldest


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Pause garbage collection: replay makes many objects and no garbage, and the collector would visit all of them
    again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
