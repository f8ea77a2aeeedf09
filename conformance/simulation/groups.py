"""Two transactions over the same two tables, by an owner with the profile `transaction-group`.

Schedules: two clients propose a group each, in opposite orders of the tables, and a third one loads both tables.
Every interleaving of their effects must end: one group wins, the other one loses in both tables, and the reader sees
all of the winner or nothing.

Interruptions: one client proposes two groups, one after the other, and both tables are published. At every effect the
process dies, or the power is cut, and the owner starts from each disk that this may leave. Then the tables have the
same versions, the outcomes of all members of a group agree with each other and with the answer before, the interrupted
request is recognized, and another group lands.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Final

from conformance.interface import messages as m
from conformance.models import proposals
from conformance.simulation.disk import Disk, PowerCut
from conformance.simulation.effects import unobserved
from conformance.simulation.examination import Flaw as _Flaw
from conformance.simulation.examination import expect, log_of, require
from conformance.simulation.explore import Report, depth_first
from conformance.simulation.host import Ask, Host, Process
from conformance.simulation.operations import Cut, Operation, attempt, recorded
from conformance.simulation.schedule import Scheduler

NAMES: Final = ("orders", "stock")
SCOPES: Final = ("catalogManaged/staged", "catalogManaged/inline", "managedCommit/staged")
_STATES: Final = 8
"""The greatest number of disks for each power cut."""
ATOMIC: Final = "PROFILE-GROUP-01"
LOSERS: Final = "PROFILE-GROUP-02"
VISIBLE: Final = "PROFILE-GROUP-03"
OUTCOME: Final = "PROFILE-GROUP-04"
ENDS: Final = "PROFILE-CORE-02"


@dataclass(slots=True)
class Result:
    """The result of one scope."""

    scope: str
    schedules: int = 0
    finished: bool = False
    """Whether all schedules were explored."""
    cuts: int = 0
    """The number of moments at which the process died, and the power was cut."""
    starts: int = 0
    violations: list[str] = field(default_factory=list)
    """As `<requirement>: <what happened>`."""


def explore(host: Host, scope: str) -> Result:
    """All schedules and all interruptions of a scope. Each of the two ends with its first violation."""
    feature, commit_mode = scope.split("/")
    operation = Operation(
        kind="two-groups", feature=feature, commit_mode=commit_mode, setup=_create, script=_two_groups
    )
    result, report = Result(scope=scope), Report()
    tables = host.prepare(lambda process: _create(operation, process))
    for problem in depth_first(lambda: _GroupRun(host, tables), report):
        if problem is not None:
            result.violations.append(str(problem))
            break
    result.schedules, result.finished = report.schedules, report.finished
    _interrupt(host, operation, result)
    return result


def _create(operation: Operation, ask: Ask) -> tuple[str, ...]:
    """The ids of the new tables."""
    made = []
    for number, name in enumerate(NAMES):
        own = attempt(900 + number)
        actions = proposals.version_0(operation.feature, own, own, timestamp=proposals.BASE_TIME)
        request = m.CreateTable(
            name=name, feature=operation.feature, commit_mode=operation.commit_mode, attempt=own, actions=actions
        )
        made.append(expect(m.Ratified, ask(request), f"{name} cannot be created").table or "")
    return tuple(made)


def _group(tables: Sequence[str], version: int, number: int) -> m.CommitGroup:
    """`number`: of the group; its attempts have numbers from ten times this on."""
    members = []
    for index, table in enumerate(tables):
        own = attempt(10 * number + index)
        actions = proposals.append(own, proposals.BASE_TIME + version)
        members.append(m.GroupMember(table=table, version=version, attempt=own, actions=actions))
    return m.CommitGroup(members=tuple(members))


def _both(answer: m.Answer) -> set[int | None]:
    """The latest versions of the tables in one answer."""
    return {table.latest for table in expect(m.Tables, answer, "the tables cannot be loaded").tables}


# Schedules


class _GroupRun:
    """One schedule; a `Run` for `depth_first`. Its outcome is the violation, or None."""

    def __init__(self, host: Host, tables: tuple[str, ...]) -> None:
        self._host, self._tables = host, tables
        self._requests: dict[str, m.Request] = {
            "first": _group(tables, 1, 1), "second": _group(tables[::-1], 1, 2), "reader": m.LoadTables(names=NAMES),
        }  # fmt: skip
        self._answers: dict[str, m.Answer] = {}
        self.scheduler = Scheduler()
        self._processes = host.clients(self._requests, self.scheduler.hook)
        self.scheduler.start((client, self._asking(client)) for client in self._requests)

    def _asking(self, client: str) -> Callable[[], None]:
        def run() -> None:
            self._answers[client] = self._processes[client].ask(client, self._requests[client])

        return run

    def finish(self, deadlock: str | None) -> str | None:
        try:
            require(deadlock is None, f"deadlock: {deadlock}", ENDS)
            require(not self.scheduler.errors, f"a client ended by {self.scheduler.errors}", ENDS)
            self._judge(self._processes["first"])
        except _Flaw as flaw:
            return f"{flaw.requirement}: {flaw.problem}; the answers: {self._answers}"
        return None

    def _judge(self, process: Process) -> None:
        writers = ("first", "second")
        won = [client for client in writers if isinstance(self._answers[client], m.GroupRatified)]
        require(len(won) == 1, f"{len(won)} of two groups for the same versions were ratified", ATOMIC)
        (lost,) = set(writers) - set(won)
        refusal = expect(m.GroupRefused, self._answers[lost], "the other group was not refused")
        conflict = isinstance(refusal.answer, m.Conflict) and refusal.lost in ((), (0, 1))
        require(conflict, f"the other group lost both races, and its answer is {refusal}", LOSERS)
        seen = _both(self._answers["reader"])
        require(len(seen) == 1, f"the reader of both tables saw the latest versions {seen}", VISIBLE)
        request = self._requests[won[0]]
        assert isinstance(request, m.CommitGroup)
        for member in request.members:
            logged = log_of(process, member.table)
            right = list(logged) == [0, 1] and logged[1][0] == member.attempt
            require(right, f"{member.table} has {logged}, not the attempt {member.attempt} of the winner", ATOMIC)

    def close(self) -> None:
        self.scheduler.close()
        self._host.stop()


# Interruptions


def _tables(ask: Ask) -> tuple[str, ...]:
    return tuple(expect(m.Table, ask(m.LoadTable(name=name)), f"{name} is missing").table for name in NAMES)


def _two_groups(_: Operation, ask: Ask) -> None:
    tables = _tables(ask)
    for number, order in ((1, tables), (2, tables[::-1])):
        expect(m.GroupRatified, ask(_group(order, number, number)), "a group without a competitor does not land")
    for table in tables:
        expect(m.Done, ask(m.BackfillToVersion(table=table, version=2)), "a group cannot be published")


def _interrupt(host: Host, operation: Operation, result: Result) -> None:
    starts = count(100)
    seen: set[object] = set()
    for cut in recorded(host, operation).cuts:
        power = PowerCut(cut.disk.snapshot())
        trees = power.disks(Random(f"{operation.name}/{cut.at}"), limit=_STATES)
        disks: list[Disk] = [cut.disk.copy(), *(Disk.holding(tree, now=0) for tree in trees)]
        result.cuts += 1
        pending = cut.exchanges[-1:] if cut.exchanges and cut.exchanges[-1].answer is None else ()
        runs = [(disk.copy(), again) for disk in disks for again in ((), pending)[: 1 + len(pending)]]
        for disk, again in runs:
            try:
                ask = host.start(disk, start=next(starts), hook=unobserved)
                state = host.state(), str(cut.exchanges), bool(again)
                if state not in seen:
                    seen.add(state)
                    result.starts += 1
                    for exchange in again:  # before its outcome is looked up, which would end it
                        ask(exchange.request)
                    _examine(ask, cut)
            except _Flaw as flaw:
                result.violations.append(f"{flaw.requirement}: {flaw.problem}; interrupted {cut}")
                return
            finally:
                host.stop()


def _examine(ask: Ask, cut: Cut) -> None:
    tables = _tables(ask)
    latest = _both(ask(m.LoadTables(names=NAMES)))
    require(len(latest) == 1, f"half of a group is visible: the latest versions are {latest}", VISIBLE)
    for exchange in cut.exchanges:
        request = exchange.request
        if not isinstance(request, m.CommitGroup):
            continue
        outcomes = [ask(m.AttemptOutcome(table=each.table, attempt=each.attempt)) for each in request.members]
        landed = {isinstance(outcome, m.Landed) for outcome in outcomes}
        require(len(landed) == 1, f"the outcomes of one group differ: {outcomes}", ATOMIC)
        answered = exchange.answer is None or isinstance(exchange.answer, m.GroupRatified) == landed.pop()
        require(answered, f"a group was answered {exchange.answer}, its outcome is {outcomes[0]}", OUTCOME)
        again = ask(request)
        agrees = isinstance(again, m.GroupRatified) == isinstance(outcomes[0], m.Landed)
        require(agrees, f"a group with the outcome {outcomes[0]} is answered {again} when it is sent again", OUTCOME)
    logs = [log_of(ask, table) for table in tables]
    require(list(logs[0]) == list(logs[1]) == list(range(len(logs[0]))), f"the logs differ: {logs}", ATOMIC)
    version = len(logs[0])
    expect(m.GroupRatified, ask(_group(tables, version, 50)), f"no further group lands as version {version}")
