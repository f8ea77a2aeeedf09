"""Small histories of a correct owner: clients, lost answers, delayed requests, repeated requests, backfills, observed
files.

A simulation picks three moments for every operation: its request, its effect and its answer. The effect, the answer or
both may be missing. The owner is correct and uses its freedoms at random. The result is a `Draft`, which `prove` may
change before it becomes events.

A draft is a list of operations with their times, and a final log. Tests and `fixtures/histories` use drafts instead of
recording a run. The histories in `fixtures` are short: good ones that each use a freedom, bad ones that each violate
one rule. The files are the source; `index.json` says what happens in each, and which rules it violates.
"""

import heapq
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from conformance.history import events
from conformance.history.events import Content, Entry, Event, Fault, Footer, Header, Promise, Unknown, Witness
from conformance.history.files import write_events
from conformance.history.operations import operations
from conformance.history_checkers.check import HistoryVerdict, check_events
from conformance.history_checkers.rules import Rule
from spec_tests.conformance.brute_force import is_linearizable

TABLE = "orders"
REFUSALS = (events.Conflict, events.Gap, events.Rejected, events.NotFound, events.Unsupported)


@dataclass(slots=True)
class DraftOperation:
    """An operation of a draft. `answered` is None if no answer arrived."""

    client: str
    request: events.Request
    invoked: int
    answered: int | None = None
    answer: events.Answer | None = None


@dataclass(slots=True)
class DraftListing:
    """An observation of published files."""

    since: int
    at: int
    published: list[int] = field(default_factory=list)
    absent: list[int] = field(default_factory=list)
    contents: dict[int, Content] = field(default_factory=dict)


@dataclass(slots=True)
class Version:
    """A version of the final log."""

    attempt: str
    direct: bool = False
    content: Content | None = None


@dataclass(slots=True)
class Draft:
    """A history that can still be changed."""

    feature: str = "catalogManaged"
    profiles: set[str] = field(default_factory=set)
    promises: set[Promise] = field(default_factory=set)
    open_world: bool = False
    cleanup: bool = False
    skew: int = 0
    before: int = 0
    """The number of versions in the log before the history begins."""
    first: int = 0
    """The first version of the recorded log."""
    log: list[Version] = field(default_factory=list)
    asked: list[DraftOperation] = field(default_factory=list)
    looked: list[DraftListing] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    subject: str = "simulated"
    note: str = ""

    def ask(
        self, client: str, invoked: int, answered: int | None, request: events.Request, answer: events.Answer | None
    ) -> None:
        self.asked.append(DraftOperation(client, request, invoked, answered, answer))

    def events(self) -> list[Event]:
        """The events ordered by time. Operations are numbered in the order of their lines."""
        moments = [moment for at, operation in enumerate(self.asked) for moment in _moments(at, operation)]
        moments += [(listing.at, 1, len(self.asked) + at, listing) for at, listing in enumerate(self.looked)]
        moments += [(fault.at, 2, at, fault) for at, fault in enumerate(self.faults)]
        moments.sort(key=lambda moment: moment[:3])
        numbers: dict[int, int] = {}
        lines: list[Event] = []
        for time, _, at, drafted in moments:
            if isinstance(drafted, Fault):
                lines.append(drafted)
            elif isinstance(drafted, DraftListing):
                numbers[at] = len(numbers)
                lines.append(_look(drafted, numbers[at]))
            elif at not in numbers:
                numbers[at] = len(numbers)
                lines.append(
                    events.Invoke(at=time, id=numbers[at], client=drafted.client, table=TABLE, request=drafted.request)
                )
            else:
                assert drafted.answer is not None
                lines.append(ended(time, numbers[at], drafted.answer))
        return [self._header(), *lines, *self._witnesses(), self._footer(lines)]

    def text(self) -> str:
        """The lines of the history."""
        stream = io.BytesIO()
        write_events(stream, self.events())
        return stream.getvalue().decode()

    def _header(self) -> Header:
        return Header(
            schema=events.SCHEMA_VERSION,
            clock=events.Clock(unit="tick", skew=self.skew),
            subject=events.Subject(name=self.subject),
            feature="managedCommit" if self.feature == "managedCommit" else "catalogManaged",
            profiles=tuple(sorted(self.profiles)),
            promises=tuple(sorted(self.promises, key=lambda promise: promise.value)),
            open_world=self.open_world,
            cleanup=self.cleanup,
            note=self.note,
        )

    def _witnesses(self) -> Iterator[Witness]:
        for version, entry in enumerate(self.log, self.first):
            yield Witness(
                table=TABLE,
                version=version,
                attempt=entry.attempt,
                before=version - self.first < self.before,
                commit_mode="direct" if entry.direct else None,
                content=entry.content,
            )

    def _footer(self, lines: list[Event]) -> Footer:
        counts = dict.fromkeys(events.Counts.__struct_fields__, 0)
        for line in lines:
            counts[str(type(line).__struct_config__.tag)] += 1
        counts["witness"] = len(self.log)
        return Footer(counts=events.Counts(**counts), tables={TABLE: len(self.log)}, complete=True)


Moment = tuple[int, int, int, DraftOperation | DraftListing | Fault]


def _moments(at: int, operation: DraftOperation) -> Iterator[Moment]:
    yield operation.invoked, 0, at, operation
    if operation.answered is not None and operation.answer is not None:
        yield operation.answered, 1, at, operation


def _look(listing: DraftListing, number: int) -> events.FileLook:
    files = tuple(
        events.PublishedFile(version=version, content=listing.contents.get(version)) for version in listing.published
    )
    return events.FileLook(
        since=listing.since, at=listing.at, id=number, table=TABLE, published=files, absent=tuple(listing.absent)
    )


def ended(at: int, number: int, answer: events.Answer) -> Event:
    """The event for an answer."""
    if isinstance(answer, events.Unknown):
        return events.Info(at=at, id=number, answer=answer)
    if isinstance(answer, REFUSALS):
        return events.Fail(at=at, id=number, answer=answer)
    return events.Ok(at=at, id=number, answer=answer)


# The verdict on a draft, compared with brute force


def verdict_on(draft: Draft) -> HistoryVerdict:
    """The verdict. A history without contents is also judged by brute force, and the two verdicts must agree."""
    source = draft.events()
    verdict = check_events(source)
    if Rule.CONTENT_CHANGED not in {violation.rule for violation in verdict.violations}:
        assert verdict.conformant == is_linearizable(operations(source)), verdict.violations
    return verdict


def rules(draft: Draft) -> list[Rule]:
    """The violated rules, in the order of the verdict."""
    return [violation.rule for violation in verdict_on(draft).violations]


def log(*attempts: str) -> list[Version]:
    return [Version(attempt) for attempt in attempts]


def asked(
    client: str, invoked: int, answered: int | None, request: events.Request, answer: events.Answer | None = None
) -> DraftOperation:
    return DraftOperation(client, request, invoked, answered, answer)


def commit(
    attempt: str, version: int, invoked: int, answered: int | None, answer: events.Answer | None = None
) -> DraftOperation:
    """A proposal. If `answered` is None, the outcome is unknown. Without an `answer`, it was ratified."""
    given = events.Ratified(version=version) if answer is None and answered is not None else answer
    return DraftOperation("writer", events.Commit(version=version, attempt=attempt), invoked, answered, given)


def read(invoked: int, answered: int, latest: int | None) -> DraftOperation:
    """A read of versions that do not exist yet, so that the list is empty."""
    request = events.GetCommits(start=2**40)
    return DraftOperation("reader", request, invoked, answered, events.Commits(latest=latest))


# The histories in fixtures


FOLDER: Final = Path(__file__).resolve().parents[2] / "fixtures" / "histories"


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of the files. A good history violates no rule."""

    file: str
    """The path below `FOLDER`."""
    about: str
    violates: tuple[Rule, ...]

    @property
    def path(self) -> Path:
        return FOLDER / self.file


CASES: Final = msgspec.json.decode((FOLDER / "index.json").read_bytes(), type=tuple[Case, ...])


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
