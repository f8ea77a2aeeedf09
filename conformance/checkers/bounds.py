"""Bounds on the times at which versions take effect, from single observations, and which two contradict each other.

Version v is ratified at t_v and published at p_v. Every observation over [invoked, answered] is a bound on one of them:
*not before* its invoke, or *not after* its answer. The checkers gather bounds by kind, keep the tightest per version,
and search for a version that must be later than it may be. Only then do they look up the two observations.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Final, Generic, NamedTuple, TypeVar

from conformance.checkers.columns import NO_LATEST, Rows
from conformance.checkers.rules import Rule

INFINITY: Final = 2**63 - 1
"""A time after all times; its negative is before all times."""


class Early(Enum):
    """Why a version is *not before* a time."""

    SENT = "sent"
    """Its attempt was not sent before."""
    GAP = "gap"
    """An answer shows that it is missing."""
    READ = "read"
    """A read returned an older latest version."""
    REFUSAL = "refusal"
    """The same, in a refusal that promises to be fresh."""
    ABSENT = "absent"
    """A listing did not have its published file."""


class Late(Enum):
    """Why a version is *not after* a time."""

    BEFORE = "before"
    """It existed before the history."""
    RATIFIED = "ratified"
    CONFLICT = "conflict"
    TOMBSTONE = "tombstone"
    """A conflict or a gap was about it before its attempt was resolved."""
    LISTED = "listed"
    """An answer named it, or a later one, as existing."""
    VISIBLE = "visible"
    OMITTED = "omitted"
    """The owner's list of stored commits lacks it."""
    BACKFILLED = "backfilled"
    PATH_READ = "path-read"
    HANDED_BACK = "handed-back"
    CHECKPOINT = "checkpoint"


Kind = TypeVar("Kind", Early, Late)


class Observations(NamedTuple, Generic[Kind]):
    """All observations of one kind; each is about version `versions[i] + shift`."""

    kind: Kind
    rows: Rows
    versions: array[int]
    shift: int = 0


class Bound(NamedTuple, Generic[Kind]):
    """The tightest observation. `id` is its operation, or None for `Late.BEFORE`."""

    kind: Kind
    version: int
    time: int
    id: int | None


class Window(NamedTuple):
    """The versions of a final log, `base` the first; `lag[i]` is the first version not before i that a reader must
    know of (others are commits by put-if-absent that the owner may not have noticed)."""

    base: int
    length: int
    lag: Sequence[int] | None = None

    def place(self, version: int, kind: Early | Late) -> int:
        """The index of a version: negative if it is before the log, `length` or more if it is after its end."""
        index = version - self.base
        if self.lag is not None and kind in (Early.READ, Early.REFUSAL) and 0 <= index < self.length:
            return self.lag[index]
        return index


def lower(bounds: list[int], window: Window, seen: Observations[Early]) -> bool:
    """Raise `bounds` to the observed times. Returns whether an observation is about a version before the log."""
    base, length, lag = window
    shift = seen.shift - base
    before = False
    lagging = lag if seen.kind is Early.READ or seen.kind is Early.REFUSAL else None
    for version, time in zip(seen.versions, seen.rows.invoked, strict=True):
        index = version + shift
        if index >= length:
            continue
        if index < 0:
            before = before or version != NO_LATEST
            continue
        if lagging is not None:
            index = lagging[index]
            if index >= length:
                continue
        if time > bounds[index]:
            bounds[index] = time
    return before


def upper(bounds: list[int], window: Window, seen: Observations[Late]) -> bool:
    """Lower `bounds` to the observed times. Returns whether an observation is about a version after the log."""
    length = window.length
    shift = seen.shift - window.base
    beyond = False
    for version, time in zip(seen.versions, seen.rows.answered, strict=True):
        index = version + shift
        if index >= length:
            beyond = True
        elif index >= 0 and time < bounds[index]:
            bounds[index] = time
    return beyond


def earliest(groups: Iterable[Observations[Early]], window: Window, index: int) -> Bound[Early] | None:
    """The observation with the latest lower bound of version `index` or one before it."""
    best: Bound[Early] | None = None
    for kind, rows, versions, shift in groups:
        for row, version in enumerate(versions):
            at = window.place(version + shift, kind)
            if 0 <= at <= index and (best is None or rows.invoked[row] > best.time):
                best = Bound(kind, at + window.base, rows.invoked[row], rows.id[row])
    return best


def latest(groups: Iterable[Observations[Late]], window: Window, index: int) -> Bound[Late] | None:
    """The observation with the earliest upper bound of version `index`."""
    best: Bound[Late] | None = None
    for kind, rows, versions, shift in groups:
        for row, version in enumerate(versions):
            if version + shift - window.base == index and (best is None or rows.answered[row] < best.time):
                best = Bound(kind, version + shift, rows.answered[row], rows.id[row])
    return best


def outside(seen: Observations[Kind], window: Window) -> Iterator[Bound[Kind]]:
    """Answers that a version of the log is missing, or that one after its end exists."""
    kind, rows, versions, shift = seen
    late = isinstance(kind, Late)
    times = rows.answered if late else rows.invoked
    for row, version in enumerate(versions):
        index = version + shift - window.base
        if (index >= window.length) if late else (index < 0 and version != NO_LATEST):
            yield Bound(kind, version + shift, times[row], rows.id[row])


_ABSENT_AND: Final = {
    Late.OMITTED: Rule.COMMIT_FORGOTTEN,
    Late.BACKFILLED: Rule.BACKFILL_NOT_DONE,
    Late.PATH_READ: Rule.READ_UNPUBLISHED,
    Late.HANDED_BACK: Rule.HANDED_BACK_UNPUBLISHED,
    Late.CHECKPOINT: Rule.CHECKPOINT_UNPUBLISHED,
}

_SENT_AND: Final = {
    Late.RATIFIED: Rule.RATIFIED_OUT_OF_ORDER,
    Late.CONFLICT: Rule.FALSE_CONFLICT,
    Late.TOMBSTONE: Rule.TOMBSTONE_IGNORED,
    Late.LISTED: Rule.REPORTED_TOO_EARLY,
}

_ALWAYS: Final = {Early.GAP: Rule.FALSE_GAP, Early.READ: Rule.STALE_READ, Early.REFUSAL: Rule.STALE_REFUSAL}


def violated(early: Bound[Early], late: Bound[Late]) -> Rule:
    """The rule that two observations violate together, the first later than the second."""
    if early.kind in _ALWAYS:
        return _ALWAYS[early.kind]
    if early.kind is Early.SENT:
        return _SENT_AND.get(late.kind, Rule.PUBLISHED_TOO_EARLY)
    if late.kind is Late.VISIBLE:
        return Rule.PUBLISHED_THEN_GONE if early.version == late.version else Rule.PUBLISHED_OUT_OF_ORDER
    return _ABSENT_AND.get(late.kind, Rule.DIRECT_BUT_INVISIBLE)
