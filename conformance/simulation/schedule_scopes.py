"""Small scopes, whose schedules can all be explored: a table, a few clients, and a sequence of requests for each.

Every schedule of a scope is recorded as a history, which the checkers judge. Moreover, no client may wait without end,
and every request must be answered.
"""

import io
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, cast

from conformance.history import events
from conformance.history.files import read_events
from conformance.history_checkers.check import check_events
from conformance.interface import messages as m
from conformance.interface.log_names import commit_file, version_of
from conformance.models import proposals
from conformance.scenario.formatting import in_words
from conformance.scenario.recording import Recording, final_contents, witnesses
from conformance.scenario.running import violations_of
from conformance.simulation.explore import Progress, Report, by_priorities, depth_first, no_progress
from conformance.simulation.host import Host, Process
from conformance.simulation.operations import COMMIT_MODES
from conformance.simulation.schedule import Scheduler

TABLE: Final = "orders"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The table before the clients begin."""

    table: str
    """The subject's reference of the table; if there is no table yet, a path or empty."""
    feature: str
    commit_mode: str
    identity: m.Identity
    setup: tuple[tuple[m.Request, m.Answer], ...] = ()
    """The requests that created the table, with their answers."""
    versions: int = 0
    before: int = 0
    """The number of versions that are older than the history."""
    archived: tuple[m.LogFile, ...] = ()
    """The log at the start, with the files that a cleanup removes later."""


Requests = Mapping[str, tuple[m.Request, ...]]
"""The requests of each client."""


def _nothing_more(_start: Start) -> tuple[m.Request, ...]:
    """No requests beyond the commits."""
    return ()


class Place(Enum):
    """The state before the clients begin."""

    TABLE = "a table of the owner"
    NOTHING = "no table"
    FILESYSTEM = "a filesystem table"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """A few clients and their requests, on one table."""

    name: str
    title: str
    feature: str
    commit_mode: str
    requests: Callable[[Start], Requests]
    """The requests of each client, in their order."""
    place: Place = Place.TABLE
    commits: int = 0
    """The number of commits after version 0 that are ratified but unpublished when the clients begin."""
    prepared: Callable[[Start], tuple[m.Request, ...]] = _nothing_more
    """Requests after these commits, before the clients begin."""
    threads: bool = False
    """Whether the clients are threads of one process."""

    @property
    def id(self) -> str:
        return f"{self.name}[{self.feature},{self.commit_mode}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one schedule."""

    answers: tuple[tuple[str, tuple[m.Answer, ...]], ...]
    """By client."""
    history: str
    violations: tuple[str, ...]
    """The violations, as `<requirement>: <what happened>`."""

    @property
    def requirements(self) -> frozenset[str]:
        """The violated requirements."""
        return frozenset(violation.partition(":")[0] for violation in self.violations)


def attempt(number: int) -> m.AttemptId:
    return str(uuid.UUID(int=number, version=4))


def timestamp(version: int) -> int:
    return proposals.BASE_TIME + version * 1000


def proposal(start: Start, version: int, number: int) -> m.Commit:
    """A commit that adds one file. `number`: the number of its attempt."""
    own = attempt(number)
    return m.Commit(table=start.table, version=version, attempt=own, actions=proposals.append(own, timestamp(version)))


def creation(start: Start, number: int, *, name: str = TABLE, path: str | None = None) -> m.CreateTable:
    actions = proposals.version_0(start.feature, attempt(number), attempt(number + 50), timestamp=timestamp(0))
    return m.CreateTable(
        name=name,
        feature=start.feature,
        commit_mode=start.commit_mode,
        attempt=attempt(number),
        actions=actions,
        path=path,
    )


def prepare(scope: Scope, host: Host) -> Start:
    """Create the start state of every run of the scope."""

    def make(subject: Process) -> Start:
        identity = subject.identity
        empty = Start(table="", feature=scope.feature, commit_mode=scope.commit_mode, identity=identity)
        exchanges: list[tuple[m.Request, m.Answer]] = []

        def ask(request: m.Request) -> m.Answer:
            answer = subject.ask("setup", request)
            assert isinstance(answer, m.Ratified | m.Done), f"{scope.id} cannot start: {answer}"
            exchanges.append((request, answer))
            return answer

        match scope.place:
            case Place.NOTHING:
                return empty
            case Place.FILESYSTEM:
                path = f"{identity.storage}/{TABLE}"
                content = proposals.content(proposals.version_0(None, attempt(1), attempt(2)))
                ask(m.Plant(table=path, file=commit_file(0), content=content, if_absent=True))
                return replace(empty, table=path, versions=1, before=1)
            case Place.TABLE:
                made = ask(creation(empty, 1))
                assert isinstance(made, m.Ratified)
                start = replace(empty, table=made.table or "", versions=1 + scope.commits)
                for version in range(1, scope.commits + 1):
                    ask(proposal(start, version, 100 + version))
                for request in scope.prepared(start):
                    ask(request)
                seen = subject.ask("setup", m.Observe(table=start.table))
                archived = seen.files if isinstance(seen, m.Observation) else ()
                return replace(start, setup=tuple(exchanges), archived=archived)

    return host.prepare(make)


class ScopeRun:
    """One run of a scope; a `Run` for `explore`."""

    def __init__(self, scope: Scope, host: Host, start: Start) -> None:
        self._start = start
        self._scope = scope
        self._host = host
        self._answers: dict[str, list[m.Answer]] = {}
        self._by_visibility: list[str] = []
        self._unread: list[str] = []
        self._recording = Recording(
            events.Header(
                schema=events.SCHEMA_VERSION,
                clock=events.Clock(unit="tick"),
                subject=events.Subject(name=start.identity.name, version=start.identity.version),
                feature=scope.feature,  # type: ignore[arg-type]
                profiles=start.identity.profiles,
                promises=tuple(promise for promise in events.Promise if promise.value in start.identity.promises),
                note=scope.id,
            )
        )
        for request, answer in start.setup:
            self._recording.ended(self._recording.invoke("setup", TABLE, request), request, answer)
        self.scheduler = Scheduler()
        requests = scope.requests(start)
        self._cleaned = any(isinstance(request, m.Cleanup) for todo in requests.values() for request in todo)
        self._subjects = host.clients(requests, self.scheduler.hook, threads=scope.threads)
        self.scheduler.start((client, self._client(client, todo)) for client, todo in requests.items())

    def _client(self, client: str, requests: tuple[m.Request, ...]) -> Callable[[], None]:
        answers = self._answers[client] = []

        def run() -> None:
            for request in requests:
                answer = self._look(client, request) if isinstance(request, m.Observe) else self._ask(client, request)
                answers.append(answer)

        return run

    def _ask(self, client: str, request: m.Request) -> m.Answer:
        """Send a request, and record it. The file of a filesystem writer is recorded as a commit."""
        numbers: list[int] = []
        planted = _meant(request) if isinstance(request, m.Plant) else None
        recorded = planted or request
        if planted is not None or isinstance(recorded, m.TakeOver | m.HandBack):
            self._by_visibility.append(recorded.attempt)  # type: ignore[union-attr]
        self.scheduler.invoking(lambda: numbers.append(self._recording.invoke(client, TABLE, recorded)))
        answer = self._subjects[client].ask(client, request)
        self.scheduler.returned()
        if planted is not None:
            answer = m.Ratified(version=planted.version) if isinstance(answer, m.Done) else m.Conflict()
        if isinstance(request, m.Snapshot) and not isinstance(answer, m.SnapshotRead):
            self._unread.append(f"{client} asked for a snapshot and was answered {in_words(answer)}")
        self._recording.ended(numbers[0], recorded, answer)
        return answer

    def _look(self, client: str, request: m.Observe) -> m.Answer:
        times: list[int] = []
        self.scheduler.invoking(lambda: times.append(self._recording.writer.now()))
        answer = self._subjects[client].ask(client, request)
        self.scheduler.returned()
        if isinstance(answer, m.Observation):
            names = {file.name for file in answer.files}
            last = self._start.versions + len(self._answers)
            absent = [version for version in range(self._start.before, last) if commit_file(version) not in names]
            self._recording.look(TABLE, times[0], answer.files, absent)
        return answer

    def finish(self, deadlock: str | None) -> Outcome:
        """The outcome. After all clients have ended, one of them reads the final log."""
        problems: list[str] = []
        if deadlock is not None:
            problems.append(f"PROFILE-CORE-02: deadlock: {deadlock}")
        problems += [f"PROFILE-CORE-02: {name} ended by {error!r}" for name, error in self.scheduler.errors.items()]
        for client, answers in self._answers.items():
            problems += [
                f"PROFILE-CORE-03: {client} was answered {answer}"
                for answer in answers
                if isinstance(answer, m.Unknown)
            ]
        problems += [f"PROFILE-CLIENT-01: {problem}" for problem in self._unread]
        if deadlock is None:
            problems += self._final_log()
            problems += _judged(self._recording.text)
        return Outcome(
            answers=tuple((client, tuple(answers)) for client, answers in sorted(self._answers.items())),
            history=self._recording.text,
            violations=tuple(problems),
        )

    def _final_log(self) -> list[str]:
        """Record the final log. Returns the problems with its timestamps."""
        client, subject = next(iter(self._subjects.items()))
        table = self._table()
        listed = subject.ask(client, m.GetCommits(table=table))
        files = subject.ask(client, m.Observe(table=table))
        commits = (listed.commits or ()) if isinstance(listed, m.Commits) else ()
        files_seen = files.files if isinstance(files, m.Observation) else ()
        if self._cleaned:
            there = {file.name for file in files_seen}
            files_seen += tuple(file for file in self._start.archived if file.name not in there)
        log = witnesses(
            TABLE,
            files_seen,
            commits,
            commit_mode=self._scope.commit_mode,
            before=self._start.before,
            ownership=self._by_visibility,
        )
        self._recording.final_log(log)
        self._recording.writer.complete()
        return _times_out_of_order(final_contents(files_seen, commits))

    def _table(self) -> str:
        """The table's reference at the end. Its creation or a change of owner may have given it one."""
        for answers in self._answers.values():
            for answer in answers:
                if isinstance(answer, m.Ratified) and answer.table is not None:
                    return answer.table
        return self._start.table

    def close(self) -> None:
        self.scheduler.close()
        self._host.stop()


def _times_out_of_order(log: Mapping[int, tuple[str | None, str | None]]) -> list[str]:
    """The problems with in-commit timestamps: each must be greater than the timestamp of the commit before."""
    times = [(version, _time_of(content or "")) for version, (_, content) in sorted(log.items())]
    return [
        f"ICT-08: version {version} has the time {time}, but the version before it {before}"
        for (_, before), (version, time) in pairwise(times)
        if before is not None and time is not None and time <= before
    ]


_time_of = lru_cache(maxsize=1024)(proposals.time_of)


def _meant(plant: m.Plant) -> m.Commit:
    """The commit of a filesystem writer."""
    version = version_of(plant.file) or 0
    own = proposals.attempt_of(plant.content) or plant.file
    return m.Commit(table=plant.table, version=version, attempt=own, actions=tuple(plant.content.splitlines()))


@lru_cache(maxsize=4096)
def _judged(history: str) -> tuple[str, ...]:
    """The violations that the checkers find. They are cached, because many schedules have the same history."""
    verdict = check_events(list(read_events(io.BytesIO(history.encode()))))
    return tuple(f"{violation.requirements[0]}: {violation.message}" for violation in violations_of(verdict))


def _backfill(start: Start, version: int) -> m.BackfillToVersion:
    return m.BackfillToVersion(table=start.table, version=version)


def _resolving_a_delayed_request(start: Start) -> Requests:
    delayed = proposal(start, 1, 11)
    return {
        "network": (delayed,),
        "resolver": (m.AttemptOutcome(table=start.table, attempt=delayed.attempt), proposal(start, 1, 12)),
    }


def _ownership_change(version: int, number: int, feature: str | None) -> dict[str, Any]:
    """The fields of a request that changes the owner: the version, the attempt and the actions."""
    own = attempt(number)
    actions = proposals.ownership_change(own, timestamp(version), feature, attempt(number + 50))
    return {"version": version, "attempt": own, "actions": actions}


def _take_over(start: Start, number: int, name: str = TABLE) -> m.TakeOver:
    change = _ownership_change(1, number, start.feature)
    return m.TakeOver(path=start.table, name=name, feature=start.feature, commit_mode=start.commit_mode, **change)


def _filesystem_writer_and_take_over(start: Start) -> Requests:
    actions = proposals.append(attempt(11), timestamp(1))
    plant = m.Plant(table=start.table, file=commit_file(1), content=proposals.content(actions), if_absent=True)
    return {"writer": (plant,), "migrator": (_take_over(start, 12),)}


def _appending(start: Start, number: int) -> m.Transact:
    return m.Transact(table=start.table, marker=attempt(number), adds=(m.DataFile(path=f"{number}.parquet"),))


def _published_with_a_checkpoint(start: Start) -> tuple[m.Request, ...]:
    return _backfill(start, 3), m.Checkpoint(table=start.table, version=2)


def _at_one_place(start: Start, number: int, name: str) -> m.CreateTable:
    return creation(start, number, name=name, path=f"{start.identity.storage}/{TABLE}")


_AGAIN: Final = f"{TABLE}_again"
_SCOPES: Final[tuple[tuple[str, str, Callable[[Start], Requests], Place, int], ...]] = (
    ("two-writers", "two writers of one version",
     lambda start: {"alice": (proposal(start, 1, 11),), "bob": (proposal(start, 1, 12),)}, Place.TABLE, 0),
    ("creators-of-a-name", "two creators of one name",
     lambda start: {"alice": (creation(start, 11),), "bob": (creation(start, 12),)}, Place.NOTHING, 0),
    ("creators-of-a-file", "two creators of one version 0",
     lambda start: {"alice": (_at_one_place(start, 11, TABLE),), "bob": (_at_one_place(start, 12, _AGAIN),)},
     Place.NOTHING, 0),
    ("backfiller", "a writer, a backfiller, a reader that asks, then lists",
     lambda start: {"writer": (proposal(start, 2, 11),), "backfiller": (_backfill(start, 2),),
                    "reader": (m.GetCommits(table=start.table), m.Observe(table=start.table))}, Place.TABLE, 1),
    ("looker", "a writer, and a reader that lists the log, then asks the owner",
     lambda start: {"writer": (proposal(start, 1, 11),),
                    "reader": (m.Observe(table=start.table), m.GetCommits(table=start.table))}, Place.TABLE, 0),
    ("two-backfillers", "two backfillers, and a reader that lists the log twice",
     lambda start: {"alice": (_backfill(start, 1),), "bob": (_backfill(start, 2),),
                    "reader": (m.Observe(table=start.table),) * 2}, Place.TABLE, 2),
    ("delayed", "an attempt that is resolved while its request is delayed", _resolving_a_delayed_request,
     Place.TABLE, 0),
    ("hand-back", "a writer, and the table is handed back",
     lambda start: {"writer": (proposal(start, 2, 11),),
                    "migrator": (m.HandBack(table=start.table, **_ownership_change(2, 12, None)),)},
     Place.TABLE, 1),
    ("take-over", "a filesystem writer, and the table is taken over", _filesystem_writer_and_take_over,
     Place.FILESYSTEM, 0),
    ("reader", "a backfiller, and a client that reads the table",
     lambda start: {"backfiller": (_backfill(start, 1),), "reader": (m.Snapshot(table=start.table),)},
     Place.TABLE, 1),
    ("transactions", "two clients that append each to the next free version",
     lambda start: {"alice": (_appending(start, 11),), "bob": (_appending(start, 12),)}, Place.TABLE, 0),
    ("two-take-overs", "two take-overs of one table",
     lambda start: {"alice": (_take_over(start, 11),), "bob": (_take_over(start, 12, _AGAIN),)},
     Place.FILESYSTEM, 0),
    ("cleanup", "the log is cleaned up while a reader reads the table",
     lambda start: {"cleaner": (m.Cleanup(table=start.table, older_than=timestamp(2)),),
                    "reader": (m.Snapshot(table=start.table),)}, Place.TABLE, 3),
    ("threads", "three threads of one process, whose proposals may form a group",
     lambda start: {"alice": (proposal(start, 1, 11),), "bob": (proposal(start, 1, 12),),
                    "carol": (proposal(start, 2, 13),)}, Place.TABLE, 0),
)  # fmt: skip

NAMES: Final = tuple(name for name, *_ in _SCOPES)
"""The names of the scopes. Each scope exists for every table feature and commit mode."""

QUICK: Final = tuple(name for name in NAMES if name not in ("creators-of-a-name", "transactions"))
"""The scopes with few schedules. The other scopes have two thirds of all schedules."""


def scopes(wanted: Callable[[Scope], bool] = lambda _scope: True) -> list[Scope]:
    """The scopes for which `wanted` is true, in their order."""
    known = [
        Scope(
            name=name,
            title=title,
            feature=feature,
            commit_mode=commit_mode,
            requests=requests,
            place=place,
            commits=commits,
            prepared=_published_with_a_checkpoint if name == "cleanup" else _nothing_more,
            threads=name == "threads",
        )
        for name, title, requests, place, commits in _SCOPES
        for feature, commit_mode in COMMIT_MODES
    ]
    return [scope for scope in known if wanted(scope)]


# Exploring a scope

DEPTH: Final = 3
"""The depth of random schedules: they find bugs that need this many orderings."""
VIOLATIONS_KEPT: Final = 5


@dataclass(slots=True, kw_only=True)
class Explored:
    """The result of the exploration of one scope."""

    scope: str
    title: str
    report: Report
    outcomes: int = 0
    """The number of outcomes with different answers."""
    seconds: float = 0.0
    random: int = 0
    """The number of schedules with random priorities, if the space was not finished."""
    bad: int = 0
    violations: list[str] = field(default_factory=list)
    """The first few different violations."""
    effects: tuple[str, ...] = ()
    """The effects of the first schedule with a violation, for people."""


def explore_scope(host: Host, scope: Scope, *, budget: float, seed: int, progress: Progress = no_progress) -> Explored:
    """Explore depth first for at most `budget` seconds. If the space is not finished, run the same number of random
    schedules."""
    start = prepare(scope, host)
    began = time.perf_counter()
    result = Explored(scope=scope.id, title=scope.title, report=Report())
    answers: set[str] = set()
    runs: list[ScopeRun] = []

    def begin() -> ScopeRun:
        runs[:] = [ScopeRun(scope, host, start)]
        return runs[0]

    def take(outcomes: Iterator[object]) -> Iterator[None]:
        for outcome in cast(Iterator[Outcome], outcomes):
            answers.add(str(outcome.answers))
            if outcome.violations and not result.bad:
                result.effects = tuple(map(str, runs[0].scheduler.steps))
            result.bad += bool(outcome.violations)
            new = [violation for violation in outcome.violations if violation not in result.violations]
            result.violations += new[: VIOLATIONS_KEPT - len(result.violations)]
            yield

    for _ in take(depth_first(begin, result.report)):
        progress(lambda: f"{result.report.schedules:,} schedules")
        if time.perf_counter() - began > budget:
            break
    if not result.report.finished:
        result.random = result.report.schedules
        by_chance = by_priorities(
            begin, result.report, seed=seed, schedules=result.random, depth=DEPTH, length=result.report.longest
        )
        for _ in take(by_chance):
            pass
    result.outcomes, result.seconds = len(answers), time.perf_counter() - began
    return result
