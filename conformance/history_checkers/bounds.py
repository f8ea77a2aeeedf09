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

from conformance.history_checkers.columns import NO_LATEST, Rows
from conformance.history_checkers.rules import Rule

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


# Findings, with numbers of operations; `check` looks these up in the history

MOST_OF_ONE_RULE: Final = 10
"""The limit of breaches of one rule in one table."""
MOST_CONTRADICTIONS: Final = 20
"""The limit of contradictions between times, of all rules, in one table: explaining one takes linear time."""
FIRST: Final = "{first}"
SECOND: Final = "{second}"


class Breach(NamedTuple):
    """`problem` is a sentence in which {first} and {second} stand for the operations of these numbers; a number None
    stands for the final log. If `attempt` is set, all of its requests belong to the breach."""

    rule: Rule
    table: str
    version: int | None
    problem: str
    first: int | None = None
    second: int | None = None
    attempt: str | None = None


class Breaches:
    """Breaches of one table, few of each rule."""

    def __init__(self, table: str) -> None:
        self.table = table
        self.found: list[Breach] = []
        self.unexplained = 0
        """The number of contradictions without an explanation."""
        self._counts: dict[Rule, int] = {}

    def has_room(self, rule: Rule) -> bool:
        """Whether another breach of the rule is explained; if not, it is only counted."""
        if self._counts.get(rule, 0) < MOST_OF_ONE_RULE:
            return True
        self._counts[rule] += 1
        return False

    def add(
        self,
        rule: Rule,
        version: int | None,
        problem: str,
        first: int | None = None,
        second: int | None = None,
        attempt: str | None = None,
    ) -> None:
        count = self._counts[rule] = self._counts.get(rule, 0) + 1
        if count <= MOST_OF_ONE_RULE:
            self.found.append(Breach(rule, self.table, version, problem, first, second, attempt))

    @property
    def left_out(self) -> int:
        return self.unexplained + sum(max(0, count - MOST_OF_ONE_RULE) for count in self._counts.values())

    def contradiction(self, early: Bound[Early], late: Bound[Late], attempt: str | None) -> None:
        """Add two observations that contradict each other: a version is not before the first, and must be before the
        second."""
        u, v = early.version, late.version
        after = f", and version {v} comes after version {u}" if u != v else ""
        older = "no version at all" if u == 0 else f"nothing newer than version {u - 1}"
        not_before = _EARLY[early.kind].format(v=u, at=early.time, first=FIRST, older=older)
        but_there = _LATE[late.kind].format(v=v, at=late.time, second=SECOND)
        shown = attempt if early.kind is Early.SENT else None
        self.add(violated(early, late), v, f"{not_before} {but_there}{after}.", early.id, late.id, shown)


_EARLY: Final = {
    Early.SENT: "The attempt that is version {v} was first sent, in a request that was not rejected, by {first}, so "
    "it was not ratified before {at}.",
    Early.GAP: "{first} got the answer that version {v} is missing, so it was not ratified before {at}.",
    Early.READ: "{first} returned {older}, so version {v} was not ratified before {at}.",
    Early.REFUSAL: "{first} returned {older}, so version {v} was not ratified before {at}.",
    Early.ABSENT: "{first} did not find the published file of version {v}, so it was not published before {at}.",
}

_LATE: Final = {
    Late.BEFORE: "But version {v} existed before the history began",
    Late.RATIFIED: "But {second} got the answer by {at} that version {v} is ratified",
    Late.CONFLICT: "But {second} got the answer by {at} that version {v} is taken",
    Late.TOMBSTONE: "But {second} got an answer about version {v} for an attempt that was resolved by {at}, and would "
    "have been rejected as resolved after that",
    Late.LISTED: "But {second} got the answer by {at} that version {v} exists",
    Late.VISIBLE: "But {second} saw the published file of version {v} by {at}",
    Late.OMITTED: "But {second} got a list without version {v} by {at}, as if it had been published",
    Late.BACKFILLED: "But {second} got the answer by {at} that its backfill is done, and version {v} was ratified "
    "before that request",
    Late.PATH_READ: "But {second} read version {v} from published files by {at}",
    Late.HANDED_BACK: "But {second} handed the table back to the filesystem by {at}, with version {v} published",
    Late.CHECKPOINT: "But {second} made a checkpoint of version {v} by {at}",
}
