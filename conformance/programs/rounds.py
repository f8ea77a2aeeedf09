"""The real-process layer: rounds of concurrent clients, recorded with a monotonic clock, and judged afterwards.

Each client is a thread with its own connection or process, and behaves as careful clients do: it rebases after a
conflict, reads after a gap, and resolves or repeats a request with an unknown outcome. Rounds are not deterministic,
and require only what holds under every schedule.
"""

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from threading import Barrier, BrokenBarrierError, Event, Thread, Timer
from typing import Any, Final

import msgspec

from conformance.adapters.http import HttpSubject
from conformance.adapters.in_process import InProcessSubject
from conformance.adapters.stdio import StdioSubject
from conformance.adapters.uc.owner import UcSubject
from conformance.interface import messages as m
from conformance.interface.results import CaseResult, Verdict
from conformance.interface.subject import AdapterError, Subject
from conformance.models import proposals
from conformance.scenario import ownership
from conformance.scenario.check import Check, Variant
from conformance.scenario.formatting import in_words
from conformance.scenario.running import finish
from conformance.scenario.scenario import Exchange, Inconclusive, Scenario, Stopped, TableHandle

COMMITS: Final = 6
"""The number of commits of a writer that loses every other race."""
READS: Final = 14
BACKFILLS: Final = 5
SILENT: Final = 3
"""The number of consecutive unanswered requests after which a client stops."""
RESTART_WITHIN: Final = 30.0
"""Seconds."""
KILL_WITHIN: Final = 0.004
"""Seconds after a request at which its process is killed: during the request, or just before or after it."""


@dataclass(slots=True, kw_only=True)
class Shared:
    """The shared state of the clients of a round."""

    s: Scenario
    table: TableHandle
    stop: Event = field(default_factory=Event)
    """A client found a violation: all clients stop."""
    down: Event = field(default_factory=Event)
    """The subject was crashed and is not restarted yet."""
    up: Event = field(default_factory=Event)
    """The subject was restarted."""
    given_back: Exchange | None = None
    """The request that handed the table back, or may have: its outcome can be unknown."""
    ratified: dict[int, Exchange] = field(default_factory=dict)
    """The commits that were answered as ratified, by version."""

    def resolvable(self) -> bool:
        return "attempt-outcome" in self.s.identity.profiles


class Client:
    """One of them."""

    def __init__(self, shared: Shared, name: str, seed: int) -> None:
        self.shared = shared
        self.s = shared.s
        self.name = name
        self.random = Random(f"{seed}/{name}")
        self.next = 1
        """The version to propose."""
        self._silent = 0

    def over(self) -> bool:
        return self.shared.stop.is_set() or self._silent >= SILENT

    def ask(self, request: m.Request) -> m.Answer:
        exchange = self.s.ask(self.name, request, self.shared.table)
        answer = exchange.answer
        if isinstance(answer, m.Unknown):
            self._unanswered()
        else:
            self._silent = 0
        if isinstance(answer, m.Ratified):
            self.shared.ratified[answer.version] = exchange
        return answer

    def look(self) -> None:
        """At the files."""
        try:
            self.s.observe(self.shared.table, self.name)
        except Inconclusive:
            self._unanswered()

    def _unanswered(self) -> None:
        if self.shared.down.is_set():
            self.shared.up.wait(RESTART_WITHIN)
        else:
            self._silent += 1

    def attempt(self) -> m.AttemptId:
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def read(self, start: int | None = None) -> None:
        answer = self.ask(m.GetCommits(table=self.shared.table.reference, start=start))
        if isinstance(answer, m.Commits) and answer.latest is not None:
            self.next = max(self.next, answer.latest + 1)


class Writer(Client):
    """Commits one version after the other. With `killed`, its process is killed during one of the commits. The
    `resolver` looks some of its commits up, and the `repeater` sends copies of others, as after a lost connection; the
    `migrator` requests a hand-back during the last ones."""

    def __init__(
        self, shared: Shared, name: str, seed: int, *, killed: StdioSubject | None, resolver: "Assistant | None",
        repeater: "Assistant", migrator: "Assistant | None",
    ) -> None:  # fmt: skip
        super().__init__(shared, name, seed)
        self._killed = killed
        self._resolver = resolver
        self._repeater = repeater
        self._migrator = migrator

    def run(self) -> None:
        victim = self.random.randrange(COMMITS)
        for number in range(COMMITS * 2):  # some proposals are lost
            if self.over() or self.shared.given_back is not None:
                return
            self._try(kill=self._killed is not None and number == victim, last=number >= COMMITS)

    def _try(self, *, kill: bool, last: bool) -> None:
        if self._migrator is not None and last and not kill:
            self._give_back(self._migrator)
            return
        request = self._proposal()
        if kill:
            answer = self._kill_while(lambda: self.ask(request))
        elif self._resolver is not None and self.random.randrange(3) == 0:
            lookup = m.AttemptOutcome(table=request.table, attempt=request.attempt)
            answer = self._together(request, self._resolver, lookup)
        elif self.random.randrange(4) == 0:
            answer = self._together(request, self._repeater, request)
        else:
            answer = self.ask(request)
        self._go_on(request, answer)

    def _proposal(self) -> m.Commit:
        version, attempt = self.next, self.attempt()
        return m.Commit(
            table=self.shared.table.reference, version=version, attempt=attempt,
            actions=proposals.append(attempt, self.s.timestamp(version)),
        )  # fmt: skip

    def _go_on(self, request: m.Commit, answer: m.Answer) -> None:
        version = request.version
        if isinstance(answer, m.Unknown):
            answer = self._find_out(request)
        match answer:
            case m.Ratified():
                self.next = version + 1
                self.shared.table.versions = max(self.shared.table.versions, self.next)
            case m.Conflict(latest=latest):
                self.next = max(version, -1 if latest is None else latest) + 1
            case m.Rejected(retryable=True):
                self.ask(m.BackfillToVersion(table=self.shared.table.reference, version=version - 1))
            case _:
                self.read()

    def _find_out(self, request: m.Commit) -> m.Answer:
        """Find the outcome: by lookup, by a replay, or not at all."""
        choice = self.random.randrange(3)
        if choice == 0 and self.shared.resolvable():
            answer = self.ask(m.AttemptOutcome(table=request.table, attempt=request.attempt))
            return m.Ratified(version=answer.version) if isinstance(answer, m.Landed) else answer
        return self.ask(request) if choice <= 1 else m.Unknown()

    def _together(self, request: m.Commit, assistant: "Assistant", other: m.Request) -> m.Answer:
        """Send the commit and another request about its attempt at the same time: either of them may arrive first."""
        with ThreadPoolExecutor(1) as pool:
            second = pool.submit(assistant.ask, other)
            answer = self.ask(request)
            second.result()
        return answer

    def _give_back(self, migrator: "Assistant") -> None:
        """Send a hand-back and a commit of the same version at the same time, of which at most one is ratified; and
        further commits until the hand-back is answered."""
        change = ownership.giving_back(self.s, self.shared.table, self.next)
        with ThreadPoolExecutor(1) as pool:
            leaving = pool.submit(self.s.ask, migrator.name, change, self.shared.table)
            for number in range(COMMITS):
                if number == 0 or not leaving.done():
                    request = self._proposal()
                    self._go_on(request, self.ask(request))
            if isinstance(leaving.result().answer, m.Ratified | m.Unknown):
                self.shared.given_back = leaving.result()

    def _kill_while(self, ask: Callable[[], m.Answer]) -> m.Answer:
        assert self._killed is not None
        self.s.recording.writer.fault("SIGKILL", client=self.name)
        timer = Timer(self.random.uniform(0, KILL_WITHIN), self._killed.kill, [self.name])
        timer.start()
        answer = ask()
        timer.join()
        return answer


class Assistant(Client):
    """Sends requests at the same time as a writer, when the writer wants it."""

    def run(self) -> None:
        """Nothing: the writers call `ask`."""


class Reader(Client):
    """Reads the commits, resolves the table, and lists the files."""

    def run(self) -> None:
        for _ in range(READS):
            if self.over():
                return
            match self.random.randrange(4):
                case 0:
                    self.look()
                case 1 if "discovery" in self.s.identity.profiles:
                    self.ask(m.LoadTable(name=self.s.physical(self.shared.table.name)))
                case 2:
                    self.read(start=max(0, self.next - self.random.randrange(4)))
                case _:
                    self.read()


class Publisher(Client):
    """Requests backfills, and checks that the commits are published."""

    def run(self) -> None:
        for _ in range(BACKFILLS):
            if self.over():
                return
            self.read()
            behind = self.random.randrange(2)
            self.ask(m.BackfillToVersion(table=self.shared.table.reference, version=max(0, self.next - 1 - behind)))
            self.look()


class Operator(Client):
    """Crashes the subject once, while clients send requests, and restarts it."""

    def run(self) -> None:
        for _ in range(self.random.randrange(2, READS)):
            self.read()
        self.shared.down.set()
        try:
            ownership.crash(self.s)
            ownership.restart(self.s)
        finally:
            self.shared.up.set()
            self.shared.down.clear()


class Creator(Client):
    """Creates the table, or another one. `exchange` is its last request with the answer."""

    def __init__(self, shared: Shared, name: str, seed: int, request: m.CreateTable, *, other: bool = False) -> None:
        super().__init__(shared, name, seed)
        self.request = request
        self.exchange: Exchange | None = None
        self._table = None if other else shared.table

    def run(self) -> None:
        self.exchange = self.s.ask(self.name, self.request, self._table)
        if isinstance(self.exchange.answer, m.Unknown):
            self.exchange = self.s.ask(self.name, self.request, self._table)

    @property
    def reference(self) -> m.TableRef | None:
        """The subject's reference to the table, if an answer has it."""
        match self.exchange:
            case Exchange(answer=m.Ratified(table=reference)) | Exchange(answer=m.Conflict(winner_table=reference)):
                return reference
        return None


WRITERS: Final = 3
CREATORS: Final = 4
OTHERS: Final = 3
"""Creators of other tables during a race of creators, each with a name of its own."""
REPEATS: Final = 20
"""The number of rounds in which a replay searches for the failure."""


class Reproduction(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a replay: a round with this seed failed once."""

    seed: int


class Rounds:
    """Runs rounds on a subject. A check's function is given one, and calls `run`."""

    def __init__(
        self, check: Check, variant: Variant, subject: Subject, *, seed: int, count: int, salt: str = "",
    ) -> None:  # fmt: skip
        self.check = check
        self.variant = variant
        self.subject = at_once(subject)
        self.own_identity = subject.identity
        self.seed = seed
        self.count = count
        self.salt = salt
        self.results: list[CaseResult] = []

    def run(self, *, creators: int = 1, writers: int = WRITERS, kills: bool = False) -> None:
        """Run rounds of this many clients, until one fails. `kills`: kill processes, if the subject survives that."""
        for number in range(self.count):
            if self.results and self.results[-1].verdict is not Verdict.PASSED:
                return
            self.results.append(self._round(self.seed + number, number, creators, writers, kills=kills))

    def _round(self, seed: int, number: int, creators: int, writers: int, *, kills: bool) -> CaseResult:
        if self.subject is None:
            held = self.check.held(self.own_identity, self.variant)
            reason = "it runs in this process, so its clients cannot be concurrent"
            return self.check.result(self.variant, held, Verdict.INCONCLUSIVE, reason)
        scenario = Scenario(
            self.subject, self.variant, name=self.check.case(self.variant), seed=seed,
            salt=f"{self.salt}_{number}", clock=time.monotonic_ns,
        )  # fmt: skip
        ended: Stopped | AdapterError | None = None
        try:
            with _apart(self.subject):
                Round(scenario, seed).run(creators, writers, kills=kills)
        except (Stopped, AdapterError) as stopped:
            ended = stopped
        result = finish(self.check, self.variant, self.subject, scenario, ended)
        if result.verdict is not Verdict.FAILED:
            return result
        return msgspec.structs.replace(result, reproduction=msgspec.json.encode(Reproduction(seed=seed)).decode())

    def result(self) -> CaseResult:
        """The result of the first round that did not pass, else of the last, with the operations of all rounds."""
        operations = sum(result.operations for result in self.results)
        last = self.results[-1]
        return msgspec.structs.replace(last, operations=last.operations if last.violations else operations)


def at_once(subject: Subject) -> Subject | None:
    """The subject for concurrent clients; None if it cannot serve them."""
    if isinstance(subject, InProcessSubject):
        return subject.beside()
    return subject if isinstance(subject, StdioSubject | HttpSubject | UcSubject) else None


@contextlib.contextmanager
def _apart(subject: Subject) -> Iterator[None]:
    """While this context is open, each client has its own process, if the subject has several."""
    if not isinstance(subject, StdioSubject):
        yield
        return
    before, subject.processes = subject.processes, 2**16
    try:
        yield
    finally:
        subject.processes = before


@dataclass
class _AtOnce:
    """Threads that start at the same time, and what they raised."""

    clients: Sequence[Client]
    stop: Event
    raised: list[BaseException] = field(default_factory=list)

    def run(self) -> None:
        barrier = Barrier(len(self.clients))
        threads = [Thread(target=self._one, args=(client, barrier), daemon=True) for client in self.clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for error in self.raised:
            if isinstance(error, AdapterError):
                raise error
        for error in self.raised:
            raise error

    def _one(self, client: Any, barrier: Barrier) -> None:
        try:
            client.s.answer(client.name, m.Hello())  # its process starts before the race
            with contextlib.suppress(BrokenBarrierError):
                barrier.wait()
            client.run()
        except BaseException as error:  # noqa: BLE001  # raised again by the waiting thread
            self.raised.append(error)
            self.stop.set()


class Round:
    """Creators race for a table; then writers, a reader and a publisher work on it concurrently."""

    def __init__(self, s: Scenario, seed: int) -> None:
        self.s = s
        self.seed = seed
        self.shared = Shared(s=s, table=TableHandle(name="orders", reference="", versions=0))

    def run(self, creators: int, writers: int, *, kills: bool) -> None:
        self._create(creators)
        subject = self._mortal() if kills else None
        one_by_one = subject is not None and self.s.identity.shared_state
        resolver = Assistant(self.shared, "resolver", self.seed) if self.shared.resolvable() else None
        repeater = Assistant(self.shared, "repeater", self.seed)
        leaves = "ownership-transfer" in self.s.identity.profiles and self.s.feature == "managedCommit" and not kills
        migrator = Assistant(self.shared, "migrator", self.seed) if leaves else None
        clients: list[Client] = [
            Writer(
                self.shared,
                f"client {number}",
                self.seed,
                killed=subject if one_by_one and number else None,
                resolver=resolver,
                repeater=repeater,
                migrator=None if number else migrator,
            )
            for number in range(writers)
        ]
        clients += [client for client in (resolver, repeater, migrator) if client is not None]
        clients += [Reader(self.shared, "reader", self.seed), Publisher(self.shared, "publisher", self.seed)]
        if subject is not None and not one_by_one:
            clients.append(Operator(self.shared, "operator", self.seed))
        _AtOnce(clients, self.shared.stop).run()
        if self.shared.given_back is not None:
            self._ended(self.shared.given_back)
            return
        self.s.get_commits(self.shared.table, client="reader")
        self.s.observe(self.shared.table)

    def _ended(self, call: Exchange) -> None:
        """The hand-back is the table's last version, if it landed."""
        table = self.shared.table
        if isinstance(call.answer, m.Unknown):
            table.ownership.append(getattr(call.request, "attempt", ""))
            self.s.observe(table)
            return
        ownership.given_back(self.s, table, call)
        last = table.versions - 1
        later = sorted(version for version in {*self.shared.ratified, *self.s.published(table)} if version > last)
        commits = [self.shared.ratified[version] for version in later[:1] if version in self.shared.ratified]
        self.s.require(
            not later, "MC-RELEASE-04", evidence=(*commits, call), table=table, version=last,
            expected=f"the table was handed back with version {last}: the owner ratifies no later one",
            observed=f"the former owner ratified version {', '.join(map(str, later))}",
        )  # fmt: skip

    def _mortal(self) -> StdioSubject:
        """The subject, if the kit may kill its processes: the client's own one, or the only one."""
        if isinstance(self.s.subject, StdioSubject):
            return self.s.subject
        raise Inconclusive("the kit did not start its processes, and must not kill them")

    def _create(self, creators: int) -> None:
        clients = [
            Creator(self.shared, f"client {number}", self.seed, self.s.creation(self.shared.table.name))
            for number in range(creators)
        ]
        others = {
            name: Creator(self.shared, name, self.seed, self.s.creation(name), other=True)
            for name in (f"other-{number}" for number in range(OTHERS if creators > 1 else 0))
        }
        _AtOnce([*clients, *others.values()], self.shared.stop).run()
        for name, other in others.items():
            if other.exchange is not None and isinstance(other.exchange.answer, m.Ratified | m.Conflict):
                self.s.observe(self.s.only_creation(name, other.exchange))
        winners = [
            client
            for client in clients
            if client.exchange is not None and isinstance(client.exchange.answer, m.Ratified)
        ]
        reference = next((creator.reference for creator in [*winners, *clients] if creator.reference is not None), None)
        if reference is None and "discovery" in self.s.identity.profiles:
            name = self.s.physical(self.shared.table.name)
            answer = self.s.ask("reader", m.LoadTable(name=name), self.shared.table).answer
            reference = answer.table if isinstance(answer, m.Table) else None
        if reference is None:
            answers = {in_words(client.exchange.answer): None for client in clients if client.exchange is not None}
            raise Inconclusive(f"no table was created: {', '.join(answers)}")
        self.shared.table.reference, self.shared.table.versions = reference, 1
        self.shared.table.id = proposals.table_id_in(winners[0].request.actions) if winners else ""
        self.s.tables.append(self.shared.table)
