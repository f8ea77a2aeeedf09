"""What a power cut may leave of a disk: everything that was synced, and any part of what was not.

Names first: of the unsynced changes of names each one is there or not, only that the changes of one name keep their
order, and a rename is one change. Then contents: of the unsynced writes to a file each one is there, absent or torn at
a sector's boundary, whatever the others did; where it makes its file longer, the length alone may have arrived.

That is more than one file system in use would do, and less than a disk that lies about its syncs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from random import Random

from conformance.simulation.disk import (
    ROOT,
    SECTOR,
    Change,
    Number,
    Renaming,
    Snapshot,
    Tree,
    Truncate,
    Write,
    applied,
    put,
    settled,
)

Option = tuple[Change, ...]
"""What may become of one change of a content: nothing, all of it, or parts."""

MOST_NAMES = 12
"""Beyond so many unsynced changes of names, their subsets are drawn instead of listed."""


class PowerCut:
    """All disks that a power cut at one moment may leave."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._names = names_kept(snapshot.renamings)
        self._options: dict[Number, tuple[tuple[Option, ...], ...]] = {
            number: options_of(durable, changes) for number, (durable, changes) in snapshot.files.items() if changes
        }
        self.choices = len(self._names) * math.prod(len(one) for each in self._options.values() for one in each)
        """The number of choices. Several may lead to the same disk."""

    def disks(self, random: Random, *, limit: int) -> Iterator[Tree]:
        """All of them, if there are no more choices than `limit`. Otherwise that many: the typical ones first (nothing
        kept, everything kept, a first part with and without a torn end, all but one, one alone), then random ones."""
        if self.choices <= limit:
            for kept in self._names:
                yield from self._all_with(kept)
            return
        count = len(self._names)
        for at in range(limit):
            kept = self._names[at % count] if at < (limit + 1) // 2 else random.choice(self._names)
            yield self._drawn(kept, at // min(count, limit), random)

    def _all_with(self, kept: frozenset[int]) -> Iterator[Tree]:
        directories, files = self._standing(kept)
        unsynced = [number for number in files if number in self._options]
        for chosen in product(*(product(*self._options[number]) for number in unsynced)):
            contents = dict(zip(unsynced, chosen, strict=True))
            yield Tree(directories, {number: self._content(number, contents.get(number, ())) for number in files})

    def least_lost(self, tree: Tree, shows: Callable[[Tree], bool]) -> tuple[Tree, tuple[str, ...]]:
        """From a disk that shows something: one that still does, and lost no more than it must for that. Giving back
        any one of the things that it lost, which are named, would hide it."""
        whole = frozenset(range(len(self._snapshot.renamings)))
        kept = next(each for each in self._names if self._standing(each)[0] == tree.directories)
        files = {number: content for number, content in tree.files.items() if content != self._whole(number)}

        def standing(names: frozenset[int], lost: dict[Number, bytes]) -> Tree:
            directories, reached = self._standing(names)
            return Tree(directories, {number: lost.get(number, self._whole(number)) for number in reached})

        again = True
        while again:
            again = False
            for number in sorted(files):
                fewer = {each: content for each, content in files.items() if each != number}
                if shows(standing(kept, fewer)):
                    files, again = fewer, True
            for at in sorted(whole - kept):
                more = kept | frozenset(settled(self._snapshot.renamings, {at}))
                if more in self._names and shows(standing(more, files)):
                    kept, again = more, True
        names = [f"the name {name}" for at in sorted(whole - kept) for _, name, _ in self._snapshot.renamings[at].names]
        return standing(kept, files), (*names, *(self._lost_of(number, each) for number, each in sorted(files.items())))

    def _whole(self, number: Number) -> bytes:
        durable, changes = self._snapshot.files[number]
        return applied(durable, changes)

    def _lost_of(self, number: Number, left: bytes) -> str:
        entries = (each.items() for each in self._snapshot.directories.values())
        names = [name for each in entries for name, found in each if found == number]
        names += [name for each in self._snapshot.renamings for _, name, found in each.names if found == number]
        whole = self._whole(number)
        right = sum(mine == yours for mine, yours in zip(left, whole, strict=False))
        return f"content of {names[0] if names else number}: {right} of {len(whole)} bytes are right"

    def _drawn(self, kept: frozenset[int], at: int, random: Random) -> Tree:
        directories, files = self._standing(kept)
        return Tree(
            directories,
            {number: self._content(number, drawn(self._options.get(number, ()), at, random)) for number in files},
        )

    def _content(self, number: Number, chosen: Sequence[Option]) -> bytes:
        durable, _ = self._snapshot.files[number]
        return applied(durable, [change for option in chosen for change in option])

    def _standing(self, kept: frozenset[int]) -> tuple[dict[Number, dict[str, Number]], list[Number]]:
        """The directories that can be reached, and the files in them."""
        entries = {number: dict(names) for number, names in self._snapshot.directories.items()}
        for at in sorted(kept):
            for directory, name, number in self._snapshot.renamings[at].names:
                put(entries[directory], name, number)
        reached: dict[Number, dict[str, Number]] = {}
        files: dict[Number, None] = {}
        waiting = [ROOT]
        while waiting:
            number = waiting.pop()
            reached[number] = entries[number]
            for found in entries[number].values():
                if found in entries:
                    waiting.append(found)
                else:
                    files[found] = None
        return reached, list(files)


def names_kept(renamings: Sequence[Renaming]) -> list[frozenset[int]]:
    """Every set of changes of names that may survive, by their positions. Of very many changes: every first part."""
    if len(renamings) > MOST_NAMES:
        return [frozenset(range(kept)) for kept in range(len(renamings) + 1)]
    found = {frozenset[int]()}
    for at in range(len(renamings)):
        needed = frozenset(settled(tuple(renamings[: at + 1]), {at}))
        found |= {kept | needed for kept in found}
    return sorted(found, key=lambda kept: (len(kept), sorted(kept)))


def options_of(durable: bytes, changes: Sequence[Change]) -> tuple[tuple[Option, ...], ...]:
    """For every unsynced change of one file: what may have become of it; nothing first, all of it second."""
    size = len(durable)
    found: list[tuple[Option, ...]] = []
    for change in changes:
        if isinstance(change, Truncate):
            found.append(((), (change,)))
            size = change.size
        else:
            found.append(((), (change,), *torn(change, size)))
            size = max(size, change.offset + len(change.data))
    return tuple(found)


def torn(write: Write, size: int) -> Iterator[Option]:
    """The parts of one write that may be there: its first sectors, its last sectors, and, of a write beyond `size`,
    the file's new length alone."""
    end = write.offset + len(write.data)
    first, last = write.offset // SECTOR, (end - 1) // SECTOR
    if last > first:
        middle = (first + last + 1) // 2 * SECTOR
        cut = middle - write.offset
        yield (Write(write.offset, write.data[:cut]),)
        yield (Write(middle, write.data[cut:]),)
    if end > size:
        yield (Truncate(end),)


def drawn(options: Sequence[Sequence[Option]], at: int, random: Random) -> list[Option]:
    """The typical choices by their number, then random ones."""
    count = len(options)
    if not count:
        return []
    patterns: tuple[Callable[[int, int], int], ...] = (
        lambda each, n: int(each < n),  # a first part
        lambda each, n: int(each != n),  # all but one
        lambda each, n: 1 if each < n else -1 if each == n else 0,  # a first part with a torn end
        lambda each, n: -1 if each == n else 1,  # one torn, all the others whole
        lambda each, n: int(each == n),  # one alone
    )
    number, pattern = divmod(at - 1, len(patterns))
    if at == 0 or number > count:
        weight = random.random()
        wanted = [1 if random.random() < weight else random.randrange(len(each)) for each in options]
    else:
        wanted = [patterns[pattern](each, count - number) for each in range(count)]
    if at == 0:
        wanted = [0] * count
    return [each[which] if which >= 0 else random.choice(each[1:]) for each, which in zip(options, wanted, strict=True)]


def identity(tree: Tree) -> int:
    """Equal for equal disks; 64 bits, the same within one process."""
    parts: list[object] = []
    names: dict[Number, str] = {}
    waiting = [(ROOT, "")]
    while waiting:
        number, path = waiting.pop()
        for name, found in sorted(tree.directories[number].items()):
            place = f"{path}/{name}"
            if found in tree.directories:
                parts.append(place)
                waiting.append((found, place))
            else:
                parts.append((place, hash(tree.files[found]), names.setdefault(found, place)))
    return hash(tuple(parts))
