"""An immutable mapping whose next version costs only what changed.

A snapshot of a table with a million files and the snapshot after one more commit share everything
but that commit's files. Layers of changes lie on one another like the levels of a log-structured
tree: each is more than twice as large as the next, so that there are few of them to look through,
and an entry is copied a logarithmic number of times over the life of the map.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class LayeredMap(Mapping[Key, Value], Generic[Key, Value]):
    """`updated` makes the next version; iteration folds the layers into one, once."""

    __slots__ = ("_layers", "_length")

    def __init__(self) -> None:
        self._layers: tuple[dict[Key, Value | None], ...] = ({},)
        """Oldest first. In all but the oldest, None says that the key is gone."""
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
