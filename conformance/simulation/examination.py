"""Judges a subject after a crash or a power cut: starts it, sends all requests that a client would send, and checks the
answers strictly.

The order is: the files that an external observer sees before recovery; the start; the outcomes of all attempts and the
resend of the interrupted request (in both orders, each on a disk of its own); the whole log, version by version; one
more commit and its backfill; the recorded history, judged by the ordinary checkers; outcomes and log again after a
second power cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any, Final, TypeVar

from conformance.history import events
from conformance.history_checkers.rules import Rule
from conformance.interface import messages as m
from conformance.interface.log_names import version_of
from conformance.models import proposals
from conformance.scenario.recording import Recording, final_contents, witnesses
from conformance.scenario.running import violations_of
from conformance.simulation.disk import Disk, PowerCut, Tree
from conformance.simulation.effects import unobserved
from conformance.simulation.host import Ask, Host
from conformance.simulation.operations import TABLE, Exchange, Operation, Recorder, append, attempt, in_order_of_answers

PROBE: Final = attempt(999)
"""The attempt of the commit which shows that the table still accepts commits."""

Proposal = m.CreateTable | m.TakeOver | m.HandBack | m.Commit
Log = dict[int, tuple[str | None, str | None]]
"""The attempt and the content of each version."""


OUTCOME: Final = "PROFILE-OUTCOME-01"
TOMBSTONE: Final = "PROFILE-OUTCOME-02"
DURABLE: Final = "PROFILE-DURABLE-01"
CONTENT: Final = {"managedCommit": "MC-BACKFILL-01", "catalogManaged": "CM-PUBLISH-03"}
ORDER: Final = {"managedCommit": "MC-BACKFILL-03", "catalogManaged": "CM-PUBLISH-06"}
"""Requirements of the catalogue. The last two depend on the table feature."""
BROKEN: Final = {Rule.OUTCOME_WRONG.value: TOMBSTONE, Rule.TOMBSTONE_IGNORED.value: TOMBSTONE}
"""The requirements of some rules of histories; any other broken rule means that something was lost."""


class Flaw(Exception):  # noqa: N818  # a finding, not an error of this code
    """A violation after a fault, and its requirement."""

    def __init__(self, problem: str, requirement: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.requirement = requirement


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A violation after one fault."""

    scope: str
    requirement: str
    problem: str
    at: int
    """The number of the effect in the operation, starting with 1."""
    effect: str
    exchanges: tuple[str, ...] = ()
    """The requests and answers before the fault, in the order of the answers."""


class FoundError(Exception):
    """Ends an exploration: `violation` is the first one."""

    def __init__(self, violation: Any) -> None:
        super().__init__(violation)
        self.violation = violation


def require(holds: object, problem: str, requirement: str = DURABLE) -> None:
    if not holds:
        raise Flaw(problem, requirement)


Answer = TypeVar("Answer", bound=m.Answer)


def expect(kind: type[Answer], answer: m.Answer, problem: str) -> Answer:
    if not isinstance(answer, kind):
        raise Flaw(f"{problem}: {answer}", DURABLE)
    return answer


@dataclass(frozen=True, slots=True)
class Recovered:
    """The state of the subject after a start."""

    table: str
    alive: bool
    outcomes: dict[str, int | None]
    log: Log


class Examination:
    """Judges the disks after the faults in one operation. `run`: the uninterrupted run, which gives the content of each
    attempt."""

    def __init__(self, host: Host, operation: Operation, run: Recorder) -> None:
        self._host = host
        self._operation = operation
        self._starts = count(2)
        self._judged: set[object] = set()
        self._truth: dict[str, tuple[int, str]] = {}
        run.disk.sync_everything()
        ask = host.start(run.disk, start=self.next_start(), hook=unobserved)
        table = next(
            f.answer.table for f in run.exchanges if isinstance(f.answer, m.Ratified | m.Table) and f.answer.table
        )
        for version, (own, content) in log_of(ask, table).items():
            assert own is not None, "the kit's commits carry their attempts"
            assert content is not None, "the kit asks for contents"
            self._truth[own] = version, content
        host.stop()

    def next_start(self) -> int:
        """A new number for each start."""
        return next(self._starts)

    def __call__(self, left: Tree | Disk, exchanges: Sequence[Exchange], answers: int) -> Flaw | None:
        """Start the subject on this disk and judge it: the flaw, or None. `left`: the disk after a power cut, or a disk
        without one. `answers`: the `answers_hash` of the exchanges."""
        state: object = None
        try:
            disk = _disk_to_start_on(left)
            seen = self._visible(disk)
            ask = self._start(disk)
            state = self._host.state(), answers
            if state in self._judged:
                return None
            self._judged.add(state)
            pending = bool(exchanges) and exchanges[-1].answer is None
            self._examine(disk, ask, exchanges, seen, resend_first=False)
            if pending:
                self._host.stop()
                disk = _disk_to_start_on(left)
                self._examine(disk, self._start(disk), exchanges, seen, resend_first=True)
        except Flaw as flaw:
            self._judged.discard(state)  # so that the same state fails again
            return flaw
        finally:
            self._host.stop()
        return None

    @property
    def judged(self) -> int:
        """The number of different states of the subject after its start, with the answers before it. Each state was
        examined once."""
        return len(self._judged)

    def _examine(self, disk: Disk, ask: Ask, exchanges: Sequence[Exchange], seen: Log, *, resend_first: bool) -> None:
        client = _Client(ask, self._operation, exchanges)
        recovered = self._recovered(client, in_order_of_answers(exchanges), seen, resend_first=resend_first)
        self._survives_a_second_cut(disk, recovered)

    def _start(self, disk: Disk) -> Ask:
        try:
            return self._host.start(disk, start=self.next_start(), hook=unobserved)
        except Exception as error:  # any failure of a start is a finding
            raise Flaw(f"it does not start: {type(error).__name__}: {error}", DURABLE) from error

    # Before recovery

    def _visible(self, disk: Disk) -> Log:
        """The published commits, as an external observer sees them."""
        log: Log = {}
        for path, number in disk.walk():
            name = path.rpartition("/")[2]
            version = version_of(name)
            if version is not None:
                content = bytes(disk.numbered(number).content).decode("utf-8", "surrogateescape")
                own = proposals.attempt_of(content)
                rule = CONTENT[self._operation.feature]
                require(own in self._truth, f"{name} is visible and is no commit: {content[:60]!r}", rule)
                whole = self._truth[own or ""] == (version, content)
                require(whole, f"{name} is visible, torn: {content[-60:]!r}", rule)
                log[version] = own, content
        return log

    # After the start

    def _recovered(self, client: _Client, exchanges: Sequence[Exchange], seen: Log, *, resend_first: bool) -> Recovered:
        table = self._found(client, exchanges)
        outcomes = self._resolved(client, table, exchanges, resend_first=resend_first)
        alive = self._has_its_name(client, exchanges)
        log = log_of(client.ask, table)
        require(
            list(log) == list(range(len(log))),
            f"the log has gaps: versions {list(log)}",
            ORDER[self._operation.feature],
        )
        for version in range(self._operation.versions_before):
            own, content = log.get(version, (None, None))
            require(self._truth.get(own or "") == (version, content), f"version {version} has changed")
        for version, commit in seen.items():
            require(log.get(version) == commit, f"version {version} was visible after the cut, but has changed since")
        if alive:
            log = self._accepts_commits(client, table, log)
        client.judge(table)
        return Recovered(table, alive, outcomes, log)

    def _found(self, client: _Client, exchanges: Sequence[Exchange]) -> str:
        """The table. If it does not exist, create it now."""
        made = [exchange for exchange in exchanges if isinstance(exchange.request, m.CreateTable | m.TakeOver)]
        for exchange in made:
            if isinstance(exchange.answer, m.Ratified):
                assert exchange.answer.table is not None
                return exchange.answer.table
        answer = client.ask(m.LoadTable(name=TABLE))
        if isinstance(answer, m.Table):
            require(made, "a table exists that was never created")
            return answer.table
        require(isinstance(answer, m.NotFound), f"`load_table` was answered {answer}")
        created = expect(
            m.Ratified, client.ask(self._operation.creation()), "the table is missing; a new creation fails"
        )
        require(created.table is not None, "the answer to the creation names no table")
        return created.table or ""

    def _resolved(
        self, client: _Client, table: str, exchanges: Sequence[Exchange], *, resend_first: bool
    ) -> dict[str, int | None]:
        """The version of each attempt, or None. The checkers compare it with all answers."""
        pending = exchanges[-1].request if exchanges and exchanges[-1].answer is None else None
        if pending is not None and resend_first:
            self._resend(client, pending)
        outcomes: dict[str, int | None] = {}
        for own in dict.fromkeys(
            (*map(_attempt_of, (exchange.request for exchange in exchanges)), self._operation.creation().attempt)
        ):
            if own is not None:
                answer = client.ask(m.AttemptOutcome(table=table, attempt=own))
                require(isinstance(answer, m.Landed | m.NotLanded), f"no outcome of {own}: {answer}", OUTCOME)
                outcomes[own] = answer.version if isinstance(answer, m.Landed) else None
        if pending is not None and not resend_first:
            self._resend(client, pending)
        return outcomes

    def _resend(self, client: _Client, request: m.Request) -> None:
        answer = client.ask(request)
        require(not isinstance(answer, m.Unknown), f"the outcome of the resent request is unknown: {answer}")

    def _has_its_name(self, client: _Client, exchanges: Sequence[Exchange]) -> bool:
        """Whether the table has its name. Only a drop or a hand-back may remove it."""
        answer = client.ask(m.LoadTable(name=TABLE))
        alive = isinstance(answer, m.Table)
        ending = [exchange for exchange in exchanges if isinstance(exchange.request, m.DropTable | m.HandBack)]
        if not ending:
            require(alive, f"the table lost its name: {answer}", "PROFILE-DISCOVERY-01")
        elif isinstance(ending[-1].answer, m.Done | m.Ratified):
            require(
                isinstance(answer, m.NotFound), "the table exists after a drop or hand-back", "PROFILE-DISCOVERY-01"
            )
        return alive

    def _accepts_commits(self, client: _Client, table: str, log: Log) -> Log:
        """Require that the next version lands, and that all commits can be published unchanged."""
        version = len(log)
        request = append(table, version, PROBE)
        answer = client.ask(request)
        if isinstance(answer, m.Rejected):  # after a failed sync, the owner first publishes a version in doubt anew
            client.ask(m.BackfillToVersion(table=table, version=version - 1))
            answer = client.ask(request)
        require(answer == m.Ratified(version=version), f"no further commit: version {version} was answered {answer}")
        expect(m.Done, client.ask(m.BackfillToVersion(table=table, version=version)), f"backfill to {version} fails")
        published = final_contents(client.observed(table), ())
        expected = {**log, version: (PROBE, proposals.content(request.actions or ()))}
        require(published == expected, f"published commits differ from ratified ones: versions {list(published)}")
        return expected

    # After a second power cut

    def _survives_a_second_cut(self, disk: Disk, recovered: Recovered) -> None:
        """Require that a second cut, which loses all unsynced changes, loses no answer given after the first cut."""
        self._host.stop()
        left = next(PowerCut(disk.snapshot()).disks(Random(0), limit=1))
        ask = self._start(Disk.holding(left, now=0))
        for own, landed in recovered.outcomes.items():
            answer = ask(m.AttemptOutcome(table=recovered.table, attempt=own))
            expected = m.NotLanded() if landed is None else m.Landed(version=landed)
            problem = f"after a second cut the outcome of {own} is {answer}; it was {expected}"
            require(answer == expected, problem, TOMBSTONE if landed is None else OUTCOME)
        alive = isinstance(ask(m.LoadTable(name=TABLE)), m.Table)
        problem = "after a second cut the table has its name again, or has lost it"
        require(alive == recovered.alive, problem, "PROFILE-DISCOVERY-01")
        require(log_of(ask, recovered.table) == recovered.log, "after a second cut the log has changed")


class _Client:
    """Sends requests and writes the history, including the requests before the cut."""

    def __init__(self, ask: Ask, operation: Operation, exchanges: Sequence[Exchange]) -> None:
        self._ask = ask
        self._operation = operation
        header = events.Header(
            schema=events.SCHEMA_VERSION,
            clock=events.Clock(unit="tick"),
            subject=events.Subject(name="subject"),
            feature=operation.feature,  # type: ignore[arg-type]  # the scopes name table features only
            profiles=("idempotent-retry",),
        )
        self._recording = Recording(header)
        self._sent: list[m.Request] = []
        for exchange in exchanges:
            self._before(exchange, "before")
        self._recording.writer.fault("power-cut")

    def _before(self, exchange: Exchange, client: str) -> None:
        """Record an exchange before the cut, and the exchanges during it."""
        if isinstance(exchange.request, m.Plant):  # the version is older than the history
            return
        self._sent.append(exchange.request)
        number = self._recording.invoke(client, TABLE, exchange.request)
        for other in exchange.meanwhile:
            self._before(other, "meanwhile")
        if exchange.answer is None:
            self._recording.lost(number, "the power went")
        else:
            self._recording.ended(number, exchange.request, exchange.answer)

    def ask(self, request: m.Request) -> m.Answer:
        self._sent.append(request)
        number = self._recording.invoke("after", TABLE, request)
        answer = self._ask(request)
        require(self._recording.ended(number, request, answer), f"no answer to {request}: {answer}")
        return answer

    def observed(self, table: str) -> tuple[m.LogFile, ...]:
        since = self._recording.writer.now()
        files = observed(self._ask, table)
        self._recording.look(TABLE, since, files)
        return files

    def judge(self, table: str) -> None:
        """Judge the history with the ordinary checkers."""
        log = witnesses(
            TABLE,
            self.observed(table),
            _listed(self._ask, table),
            commit_mode=self._operation.commit_mode,
            before=self._operation.versions_before,
            ownership=[exchange.attempt for exchange in self._sent if isinstance(exchange, m.TakeOver | m.HandBack)],
        )
        self._recording.final_log(log)
        self._recording.writer.complete()
        for violation in violations_of(self._recording.judge()):
            raise Flaw(
                f"the history contradicts {violation.rule}: {violation.message}",
                BROKEN.get(violation.rule or "", DURABLE),
            )


def _disk_to_start_on(left: Tree | Disk) -> Disk:
    """A disk to start on. Without a power cut it keeps its unsynced changes, which a later cut may lose."""
    return left.copy() if isinstance(left, Disk) else Disk.holding(left, now=0)


def _attempt_of(request: m.Request) -> str | None:
    return request.attempt if isinstance(request, Proposal | m.AttemptOutcome) else None


def _listed(ask: Ask, table: str) -> tuple[m.CommitEntry, ...]:
    """The listed commits. For a dropped or handed back table an owner may list none."""
    answer = ask(m.GetCommits(table=table))
    return answer.commits if isinstance(answer, m.Commits) else ()


def observed(ask: Ask, table: str) -> tuple[m.LogFile, ...]:
    return expect(m.Observation, ask(m.Observe(table=table)), "the log cannot be observed").files


def log_of(ask: Ask, table: str) -> Log:
    """Every version, from the published files and the commits that the owner lists."""
    return dict(sorted(final_contents(observed(ask, table), _listed(ask, table)).items()))
