"""A brute-force search for an order of the operations in which a correct owner gives exactly the recorded answers.

The search is written from the sequential semantics alone, and shares only the form of a history with the checkers. A
table is a log that only grows, a set of attempts that were resolved as not landed, and the number of published
versions. Each operation is one step, or two steps if it is known not to happen at one moment. A step happens between
the operation's invoke and its answer. Without an answer, it happens at any time after the invoke, or never. Two steps
keep their order only if one ended before the other began. The search takes exponential time, which suits histories of
about ten operations.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from conformance.history import events
from conformance.history.events import Entry, FileLook, Header, Promise, Witness
from conformance.history.operations import Item, Operation

NEVER = 2**63
"""A time after the end of every history."""
PROPOSALS = (events.Commit, events.CreateTable, events.TakeOver, events.HandBack, events.Transact)


@dataclass(frozen=True, slots=True)
class State:
    """A table at one moment. The log is the first `length` versions of the final log."""

    length: int
    published: int = 0
    resolved: frozenset[str] = frozenset()
    targets: frozenset[tuple[int, int]] = frozenset()
    """Backfills that have begun: the operation, and the number of versions that it must publish."""


Effect = Callable[[State], Iterable[State]]
"""The states after a step that gives the recorded answer. There are none if a correct owner would not give that
answer.
"""


@dataclass(frozen=True, slots=True)
class Step:
    begin: int
    end: int
    effect: Effect
    needed: bool = True
    """Whether the step must have happened."""


@dataclass(slots=True)
class Owner:
    """A correct owner whose final log is `log`. It may use each freedom of its table feature, profiles and promises."""

    header: Header
    log: list[str] = field(default_factory=list)
    direct: list[bool] = field(default_factory=list)
    before: int = 0
    sent: set[str] = field(default_factory=set)

    @property
    def idempotent(self) -> bool:
        return "idempotent-retry" in self.header.profiles

    def landed(self, state: State, attempt: str) -> int | None:
        return self.log.index(attempt) if attempt in self.log[: state.length] else None

    def append(self, state: State, attempt: str) -> Iterator[State]:
        """The attempt becomes the next version, if it is the next version of the final log."""
        if state.length == len(self.log) or self.log[state.length] != attempt:
            return
        if attempt in state.resolved or self.landed(state, attempt) is not None:
            return
        yield from self.grow(state)

    def grow(self, state: State) -> Iterator[State]:
        if not self.direct[state.length]:
            yield replace(state, length=state.length + 1)
        elif state.published == state.length:  # put-if-absent: ratified and published at once, in order
            yield replace(state, length=state.length + 1, published=state.published + 1)

    def unnoticed(self, state: State, latest: int) -> bool:
        """Whether a correct owner can believe that `latest` is the latest version."""
        if latest >= state.length:
            return False
        newer = self.direct[latest + 1 : state.length]
        return not newer or (all(newer) and Promise.FRESH_DIRECT not in self.header.promises)

    def claim(self, latest: int | None, *, is_read: bool) -> int | None:
        """The version that a `latest` of null stands for: no version in a read, and no claim in a refusal."""
        if latest is None:
            latest = -1 if is_read else None
        if latest == -1 and self.header.feature == "managedCommit":
            return None
        return latest

    def payload_is_right(self, state: State, latest: int | None) -> bool:
        if latest is None:
            return True
        if latest >= state.length:
            return False
        return Promise.FRESH_REFUSALS not in self.header.promises or self.unnoticed(state, latest)

    def entries_are_right(self, state: State, entries: Iterable[Entry]) -> bool:
        return all(
            entry.version < state.length and entry.attempt in (None, self.log[entry.version]) for entry in entries
        )

    # Requests

    def commit(self, attempt: str, version: int, answer: events.Answer | None, state: State) -> Iterable[State]:
        landed = self.landed(state, attempt)
        if answer is None or isinstance(answer, events.Unknown):
            return self.append(state, attempt) if state.length == version else ()
        if isinstance(answer, events.Ratified):
            if answer.version != version:
                return ()
            if landed == version:
                return (state,)
            return self.append(state, attempt) if state.length == version else ()
        if isinstance(answer, (events.Conflict, events.Gap)):
            if attempt in state.resolved and Promise.TOMBSTONE_FIRST in self.header.promises:
                return ()
            return (state,) if self.refusal_is_right(state, version, landed, answer) else ()
        return (state,)  # an owner may reject a commit for any reason

    def refusal_is_right(
        self, state: State, version: int, landed: int | None, answer: events.Conflict | events.Gap
    ) -> bool:
        latest = self.claim(answer.latest, is_read=False)
        if not self.payload_is_right(state, latest):
            return False
        if isinstance(answer, events.Gap):
            return version > state.length and (latest is None or latest <= version - 2)
        if landed == version and self.idempotent:
            return False
        if Promise.FRESH_REFUSALS in self.header.promises and latest is not None:
            newest = max((entry.version for entry in answer.winners), default=latest)
            if newest > latest:
                return False  # a winner above `latest` shows that `latest` is not the newest version
        return (
            version < state.length
            and (latest is None or latest >= version)
            and self.entries_are_right(state, answer.winners)
        )

    def transact(self, attempt: str, answer: events.Answer | None, state: State) -> Iterable[State]:
        if answer is None or isinstance(answer, events.Unknown):
            return self.append(state, attempt)
        if isinstance(answer, events.Committed):
            if self.landed(state, attempt) == answer.version:
                return (state,)
            return self.append(state, attempt) if state.length == answer.version else ()
        if isinstance(answer, events.Conflict):
            latest = self.claim(answer.latest, is_read=False)
            agrees = latest is None or latest < state.length
            return (state,) if agrees and self.entries_are_right(state, answer.winners) else ()
        return (state,)

    def outcome(self, attempt: str, answer: events.Answer | None, state: State) -> Iterable[State]:
        landed = self.landed(state, attempt)
        if isinstance(answer, events.Landed):
            return (state,) if landed == answer.version else ()
        if isinstance(answer, events.NotLanded):
            return (replace(state, resolved=state.resolved | {attempt}),) if landed is None else ()
        return (state,)

    def read(self, answer: events.Commits | events.Table, state: State) -> Iterable[State]:
        latest = self.claim(answer.latest, is_read=True)
        listed = answer.commits or ()
        if latest is not None and not self.unnoticed(state, latest):
            return ()
        if latest is not None and any(entry.version > latest for entry in listed):
            return ()
        return (state,) if self.entries_are_right(state, listed) else ()

    def omission(self, request: events.Request, answer: events.Commits | events.Table, state: State) -> Iterable[State]:
        """Every version in the requested range that the owner does not list is published."""
        latest = self.claim(answer.latest, is_read=True)
        first, last = 0, -1 if latest is None else latest
        if isinstance(request, events.GetCommits):
            first = request.start or 0
            last = last if request.end is None else min(last, request.end)
        listed = {entry.version for entry in answer.commits or ()}
        left_out = [version for version in range(first, last + 1) if version not in listed]
        return (state,) if all(version < state.published for version in left_out) else ()

    def snapshot(self, request: events.Snapshot, answer: events.SnapshotRead, state: State) -> Iterable[State]:
        may_be_stale = request.version is not None or request.timestamp is not None or request.by_path or answer.stale
        if self.header.feature == "managedCommit" and Promise.FRESH_SNAPSHOTS not in self.header.promises:
            may_be_stale = True  # the client may read this table without asking the owner
        if request.by_path and answer.version >= state.published:
            return ()
        if may_be_stale:
            return (state,) if answer.version < state.length else ()
        return (state,) if self.unnoticed(state, answer.version) else ()

    def is_published(self, version: int, state: State) -> Iterable[State]:
        return (state,) if version < state.published else ()

    def is_not_published(self, version: int, state: State) -> Iterable[State]:
        return (state,) if version >= state.published else ()

    def backfill_begins(self, number: int, version: int, state: State) -> Iterable[State]:
        target = min(version + 1, state.length)
        yield replace(state, targets=state.targets | {(number, target)})

    def backfill_ends(self, number: int, state: State) -> Iterable[State]:
        for operation, target in state.targets:
            if operation == number and target <= state.published:
                yield replace(state, targets=state.targets - {(operation, target)})


def is_linearizable(items: Iterable[Item]) -> bool:
    """Whether such an order exists, for the complete history of one table whose versions are all known from version
    0.
    """
    recorded = list(items)
    header = next(item for item in recorded if isinstance(item, Header))
    owner = Owner(header)
    for item in recorded:
        if isinstance(item, Witness):
            assert item.attempt is not None
            if item.version != len(owner.log):
                return False  # versions are contiguous
            owner.log.append(item.attempt)
            owner.direct.append(item.commit_mode in ("direct", "ownership"))
            owner.before += item.before
        elif isinstance(item, Operation) and isinstance(item.request, PROPOSALS):
            owner.sent.add(item.request.attempt)
    old = owner.log[: owner.before]
    if len(set(old)) != len(old):
        return False  # no attempt lands twice, even before the history begins
    cleanups = [i.invoked for i in recorded if isinstance(i, Operation) and isinstance(i.request, events.Cleanup)]
    steps = [step for item in recorded for step in steps_of(owner, item, cleanups)]
    return Search(owner, steps).succeeds()


def steps_of(owner: Owner, item: Item, cleanups: list[int]) -> Iterator[Step]:
    if isinstance(item, FileLook):
        for file in item.published:
            yield Step(item.since, item.at, partial(owner.is_published, file.version))
        removed = owner.header.cleanup or any(item.at >= at - owner.header.clock.skew for at in cleanups)
        for version in () if removed else item.absent:
            yield Step(item.since, item.at, partial(owner.is_not_published, version))
    elif isinstance(item, Operation):
        known = item.answer is not None and not isinstance(item.answer, events.Unknown)
        end = item.answered if known and item.answered is not None else NEVER
        for effect in effects_of(owner, item):
            yield Step(item.invoked, end, effect, needed=known)


def effects_of(owner: Owner, item: Operation) -> Iterator[Effect]:
    request, answer = item.request, item.answer
    if isinstance(request, PROPOSALS) and not isinstance(request, events.Transact):
        version = getattr(request, "version", 0)
        yield partial(owner.commit, request.attempt, version, answer)
        if isinstance(request, events.HandBack) and isinstance(answer, events.Ratified) and answer.version > 0:
            yield partial(owner.is_published, answer.version - 1)
    elif isinstance(request, events.Transact):
        yield partial(owner.transact, request.attempt, answer)
    elif isinstance(request, events.AttemptOutcome):
        yield partial(owner.outcome, request.attempt, answer)
    elif isinstance(answer, (events.Commits, events.Table)):
        yield partial(owner.read, answer)
        if answer.commits is not None:
            yield partial(owner.omission, request, answer)
    elif isinstance(answer, events.SnapshotRead) and isinstance(request, events.Snapshot):
        yield partial(owner.snapshot, request, answer)
    elif isinstance(answer, events.Done) and isinstance(request, events.BackfillToVersion):
        yield partial(owner.backfill_begins, item.id, request.version)
        yield partial(owner.backfill_ends, item.id)
    elif isinstance(answer, events.Done) and isinstance(request, events.Checkpoint):
        yield partial(owner.is_published, request.version)


class Search:
    """Search all orders of the steps, depth first. Visit each pair of a set of done steps and a state once."""

    def __init__(self, owner: Owner, steps: list[Step]) -> None:
        self.owner = owner
        self.steps = steps
        skew = owner.header.clock.skew
        self.first: list[int] = []
        """For each step, a bit set of the steps that ended before it began."""
        for step in steps:
            ended = [1 << at for at, other in enumerate(steps) if other.needed and other.end < step.begin - skew]
            self.first.append(sum(ended))
        self.needed = sum(1 << at for at, step in enumerate(steps) if step.needed)
        self.seen: set[tuple[int, State]] = set()

    def succeeds(self) -> bool:
        before = self.owner.before
        direct = [at + 1 for at in range(before) if self.owner.direct[at]]
        starts = [State(before, published) for published in range(max(direct, default=0), before + 1)]
        waiting = [(0, state) for state in starts]
        while waiting:
            node = waiting.pop()
            if node in self.seen:
                continue
            self.seen.add(node)
            done, state = node
            if done & self.needed == self.needed and state.length == len(self.owner.log):
                return True
            waiting += self.after(done, state)
        return False

    def after(self, done: int, state: State) -> Iterator[tuple[int, State]]:
        if state.published < state.length:  # publishing needs no request
            yield done, replace(state, published=state.published + 1)
        following = self.owner.log[state.length : state.length + 1]
        if self.owner.header.open_world and following and following[0] not in self.owner.sent:
            for grown in self.owner.append(state, following[0]):  # by a writer that was not recorded
                yield done, grown
        for at, step in enumerate(self.steps):
            if not done >> at & 1 and not self.first[at] & ~done:
                for after in step.effect(state):
                    yield done | 1 << at, after
