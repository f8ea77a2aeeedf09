"""Small histories of a correct owner: clients, lost answers, delayed requests, repeated requests, backfills, observed
files.

A simulation picks three moments for every operation: its request, its effect and its answer. The effect, the answer or
both may be missing. The owner is correct and uses its freedoms at random. The result is a `Draft`, which `prove` may
change before it becomes events.
"""

import heapq
from collections.abc import Callable
from random import Random

from conformance.history import events
from conformance.history.events import Entry, Promise, Unknown
from spec_tests.conformance.drafts import Draft, DraftListing, DraftOperation, Version


class Simulation:
    """One table, its owner, and all clients."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.draft = Draft(
            feature=random.choice(("managedCommit", "catalogManaged")),
            profiles={"idempotent-retry"} if random.random() < 0.5 else set(),
            promises={promise for promise in Promise if random.random() < 0.3},
            open_world=random.random() < 0.1,
            skew=random.choice((0, 0, 0, 0, 1, 2)),
            before=random.choice((0, 0, 0, 1, 2)),
        )
        self.direct_share = random.choice((0, 0, 0.4))
        self.focus = random.choice(("everything", "everything", "attempts", "publication"))
        self.publishes = self.focus == "publication" or (self.focus == "everything" and random.random() < 0.3)
        self.log: list[Version] = [self._version(f"old{at}") for at in range(self.draft.before)]
        self.published = random.randint(0, len(self.log))
        for at, version in enumerate(self.log):
            if version.direct:
                self.published = max(self.published, at + 1)
        self.removed = 0
        self.buried: set[str] = set()
        self.sent: list[events.Commit | events.CreateTable | events.HandBack] = []
        self.waiting: list[tuple[int, int, Callable[[], None]]] = []
        self.now = 0
        self.offsets = {f"c{at}": random.randint(0, self.draft.skew) for at in range(3)}

    def run(self, operations: int) -> Draft:
        for _ in range(operations):
            self._at(self.random.randint(0, 2 * operations), self._ask)
        for _ in range(self.random.randint(0, 4) if self.publishes else 0):
            self._at(self.random.randint(0, 3 * operations), self._publish)
        while self.waiting:
            self.now, _, happen = heapq.heappop(self.waiting)
            happen()
        self.draft.log = self.log
        return self.draft

    def _at(self, time: int, happen: Callable[[], None]) -> None:
        heapq.heappush(self.waiting, (time, self.random.getrandbits(32), happen))

    def _version(self, attempt: str) -> Version:
        return Version(attempt, direct=self.random.random() < self.direct_share)

    @property
    def latest(self) -> int:
        return len(self.log) - 1

    def _ask(self) -> None:
        if self.focus == "attempts":
            kinds = [self._commit] * 4 + [self._resend] * 5 + [self._outcome] * 4 + [self._read]
        elif self.focus == "publication":
            kinds = [self._commit] * 5 + [self._look] * 6 + [self._backfill] * 3 + [self._checkpoint]
            kinds += [self._read] * 2 + [self._snapshot] * 2 + [self._clean_up]
        else:
            kinds = [self._commit] * 9 + [self._resend] * 3 + [self._outcome] * 2 + [self._read] * 3
            kinds += [self._snapshot] * 2 + [self._transact, self._external_commit]
            kinds += ([self._look] * 4 + [self._backfill] * 2 + [self._checkpoint]) if self.publishes else []
        self.random.choice(kinds)()

    def _send(self, request: events.Request, effect: Callable[[], events.Answer]) -> DraftOperation:
        """Send a request now; its effect and answer follow later, or never."""
        client = self.random.choice(list(self.offsets))
        offset = self.offsets[client]
        operation = DraftOperation(client, request, self.now + offset)
        self.draft.asked.append(operation)
        happens = self.now + self.random.choice((0, 0, 1, 1, 2, 3, 5))
        fate = self.random.random()

        def answered() -> None:
            answer = effect()
            if fate < 0.8:
                operation.answer = answer
                operation.answered = self.now + self.random.choice((0, 0, 1, 2, 3)) + offset

        if fate < 0.95:
            self._at(happens, answered)
        if fate >= 0.8 and self.random.random() < 0.5:
            operation.answer = Unknown()
            operation.answered = self.now + self.random.choice((0, 1, 2, 3)) + offset
        return operation

    def _commit(self) -> None:
        version = max(0, len(self.log) + self.random.choice((-1, 0, 0, 0, 0, 0, 1, 2)))
        attempt = f"a{len(self.sent)}"
        if version == 0 and self.random.random() < 0.5:
            self.sent.append(events.CreateTable(attempt=attempt))
        elif self.publishes and self.random.random() < 0.2:
            self.sent.append(events.HandBack(version=version, attempt=attempt))
        else:
            self.sent.append(events.Commit(version=version, attempt=attempt))
        self._propose(self.sent[-1])

    def _resend(self) -> None:
        if self.sent:
            self._propose(self.random.choice(self.sent))

    def _propose(self, request: events.Commit | events.CreateTable | events.HandBack) -> None:
        version = 0 if isinstance(request, events.CreateTable) else request.version

        def effect() -> events.Answer:
            if isinstance(request, events.HandBack) and version == len(self.log):
                self.published = len(self.log)
            return self._judge(request.attempt, version)

        self._send(request, effect)

    def _judge(self, attempt: str, version: int) -> events.Answer:
        landed = next((at for at, entry in enumerate(self.log) if entry.attempt == attempt), None)
        chance = self.random.random
        if attempt in self.buried and (Promise.TOMBSTONE_FIRST in self.draft.promises or version == len(self.log)):
            return events.Rejected(reason="resolved")
        if landed is not None and ("idempotent-retry" in self.draft.profiles or chance() < 0.5):
            return events.Ratified(version=landed)
        if landed is None and chance() < 0.05:
            return events.Rejected(reason="policy")
        if version > len(self.log):
            return events.Gap(latest=self._reported_latest(-1, min(self.latest, version - 2)))
        if version < len(self.log):
            latest = self._reported_latest(version, self.latest)
            last = self.latest if latest is None or Promise.FRESH_REFUSALS not in self.draft.promises else latest
            winners = self._entries(version, last) if chance() < 0.3 else ()
            return events.Conflict(latest=latest, winners=winners)
        self._append(self._version(attempt))
        return events.Ratified(version=version)

    def _append(self, version: Version) -> None:
        if version.direct:
            self.published = len(self.log) + 1
        self.log.append(version)

    def _known(self) -> int:
        """The latest version that the owner knows. It may not have noticed direct commits yet."""
        latest = self.latest
        if Promise.FRESH_DIRECT not in self.draft.promises:
            while latest >= 0 and self.log[latest].direct and self.random.random() < 0.3:
                latest -= 1
        return latest

    def _reported_latest(self, lowest: int, highest: int) -> int | None:
        """The latest version that a rejection reports."""
        if self.random.random() < 0.5:
            return None
        if Promise.FRESH_REFUSALS in self.draft.promises:
            return max(lowest, min(self._known(), highest))
        return self.random.randint(lowest, highest)

    def _entries(self, first: int, last: int) -> tuple[Entry, ...]:
        named = self.random.random() < 0.7
        return tuple(
            Entry(version=version, attempt=self.log[version].attempt if named else None)
            for version in range(max(first, 0), last + 1)
        )

    def _outcome(self) -> None:
        if not self.sent:
            return
        attempt = self.random.choice(self.sent).attempt

        def effect() -> events.Answer:
            for version, entry in enumerate(self.log):
                if entry.attempt == attempt:
                    return events.Landed(version=version)
            self.buried.add(attempt)
            return events.NotLanded()

        self._send(events.AttemptOutcome(attempt=attempt), effect)

    def _read(self) -> None:
        start = self.random.choice((None, None, 0, 1, 2))
        end = self.random.choice((None, None, None, self.latest if self.latest >= 0 else None))
        load = self.random.random() < 0.3

        def effect() -> events.Answer:
            latest = self._known()
            first = min(self.published, self.random.randint(0, len(self.log)))
            first = max(first, 0 if load else start or 0)
            last = latest if load or end is None else min(end, latest)
            commits = self._entries(first, last)
            claimed = None if latest == -1 and self.random.random() < 0.5 else latest
            if self.draft.feature == "managedCommit" and self.random.random() < 0.1:
                return events.Commits(latest=-1) if not load else events.Table(latest=-1)
            if load:
                return events.Table(latest=claimed, commits=commits if self.random.random() < 0.5 else None)
            return events.Commits(latest=claimed, commits=commits)

        self._send(events.LoadTable() if load else events.GetCommits(start=start, end=end), effect)

    def _snapshot(self) -> None:
        if not self.log:
            return
        pinned = self.random.randint(0, self.latest) if self.random.random() < 0.2 else None
        by_path = self.random.random() < (0.7 if self.focus == "publication" else 0.3)

        def effect() -> events.Answer:
            if pinned is not None:
                return (
                    events.SnapshotRead(version=pinned) if not by_path or pinned < self.published else events.NotFound()
                )
            if by_path:
                last = self.published - 1
                return events.SnapshotRead(version=last, stale=True) if last >= 0 else events.NotFound()
            if self.random.random() < 0.3:
                return events.SnapshotRead(version=self.random.randint(0, self.latest), stale=True)
            known = self._known()
            if self.draft.feature == "managedCommit" and Promise.FRESH_SNAPSHOTS not in self.draft.promises:
                known = self.random.randint(-1, self.latest)
            return events.SnapshotRead(version=known) if known >= 0 else events.NotFound()

        self._send(events.Snapshot(version=pinned, by_path=by_path), effect)

    def _transact(self) -> None:
        marker = f"m{len(self.draft.asked)}"

        def effect() -> events.Answer:
            if self.random.random() < 0.2:
                return events.Conflict(latest=None if self.latest < 0 else self.random.randint(0, self.latest))
            self._append(self._version(marker))
            return events.Committed(version=self.latest)

        self._send(events.Transact(attempt=marker), effect)

    def _external_commit(self) -> None:
        if self.draft.open_world:
            self._append(self._version(f"unknown{len(self.log)}"))

    def _publish(self) -> None:
        self.published = min(self.published + self.random.randint(1, 2), len(self.log))

    def _look(self) -> None:
        offset = self.random.randint(0, self.draft.skew)
        began = self.now
        looked = DraftListing(began + offset, began + offset)
        self.draft.looked.append(looked)

        def see() -> None:
            if self.published and self.random.random() < 0.5:
                looked.published.append(self.random.randint(self.removed, self.published - 1))
            if self.removed and self.random.random() < 0.3:
                looked.absent.append(self.random.randint(0, self.removed - 1))
            elif self.random.random() < 0.6:
                looked.absent.append(self.random.randint(self.published, max(self.published, len(self.log))))
            looked.at = self.now + offset

        see()
        self._at(began + self.random.choice((0, 1, 2)), see)

    def _backfill(self) -> None:
        version = self.random.randint(0, len(self.log) + 1)
        target = [0]

        def effect() -> events.Answer:
            self.published = max(self.published, min(target[0], len(self.log)))
            return events.Done()

        target[0] = min(version + 1, len(self.log))
        self._send(events.BackfillToVersion(version=version), effect)

    def _clean_up(self) -> None:
        """Delete all published commits but the newest ones."""

        def effect() -> events.Answer:
            self.removed = max(self.removed, self.published - 1)
            return events.Done()

        self._send(events.Cleanup(), effect)

    def _checkpoint(self) -> None:
        version = self.published - 1

        if version >= 0:
            self._send(events.Checkpoint(version=version), events.Done)


def simulate(random: Random, operations: int) -> Draft:
    """A history of a correct owner with about `operations` operations."""
    return Simulation(random).run(operations)
