"""After a power cut: start, ask everything that a client would ask, and judge it strictly.

In this order: what strangers see before anybody recovers; the start; the outcomes of all attempts and the resend of
what nobody was told of (in either order, on a disk each); the whole log, version by version; one more commit and its
backfill; the recorded history, by the ordinary checkers; and the outcomes and the log again after the power failed a
second time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Final

from conformance.history import events
from conformance.interface import messages as m
from conformance.models import proposals
from conformance.scenario.recording import Recording, final_contents, witnesses
from conformance.simulation.effects import unobserved
from conformance.simulation.power_run import Ask, Asked, Host, Recorder, in_order_of_answers
from conformance.simulation.power_scopes import TABLE, Scope, append, attempt
from conformance.simulation.power_states import PowerCut
from conformance.simulation.storage import Disk, Tree

PROBE: Final = attempt(999)
"""The attempt of the commit that shows that the table goes on."""
VERSION_DIGITS: Final = 20

Proposal = m.CreateTable | m.TakeOver | m.HandBack | m.Commit
Log = dict[int, tuple[str | None, str | None]]
"""By version: attempt and content."""


OUTCOME: Final = "PROFILE-OUTCOME-01"
TOMBSTONE: Final = "PROFILE-OUTCOME-02"
DURABLE: Final = "PROFILE-DURABLE-01"
CONTENT: Final = {"managedCommit": "MC-BACKFILL-01", "catalogManaged": "CM-PUBLISH-03"}
ORDER: Final = {"managedCommit": "MC-BACKFILL-03", "catalogManaged": "CM-PUBLISH-06"}
"""Requirements of the catalogue; the last two by table feature."""


class Wrong(Exception):  # noqa: N818  # what it says is a finding, not an error of this code
    """What a power cut must not do, and the requirement that forbids it."""

    def __init__(self, problem: str, requirement: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.requirement = requirement


def require(holds: object, problem: str, requirement: str = DURABLE) -> None:
    if not holds:
        raise Wrong(problem, requirement)


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was found out after a start."""

    table: str
    alive: bool
    outcomes: dict[str, int | None]
    log: Log


class Examination:
    """Judges the disks that power cuts in one scope leave. `run`: the uninterrupted run, which shows what each attempt
    says. Raises `Unfit` if that one is not as it must be."""

    def __init__(self, host: Host, scope: Scope, run: Recorder) -> None:
        self._host = host
        self._scope = scope
        self._starts = count(2)
        self._may_halt = False
        self._judged: set[object] = set()
        self._truth: dict[str, tuple[int, str]] = {}
        run.disk.sync_everything()
        ask = host.start(run.disk, start=self.next_start, hook=unobserved)
        table = next(f.answer.table for f in run.facts if isinstance(f.answer, m.Ratified | m.Table) and f.answer.table)
        for version, (own, content) in log_of(ask, table).items():
            assert own is not None, "the kit's commits carry their attempts"
            assert content is not None, "the kit asks for contents"
            self._truth[own] = version, content
        host.stop()

    @property
    def next_start(self) -> int:
        """Every start has a number of its own."""
        return next(self._starts)

    def start_number(self) -> int:
        return self.next_start

    def expect(self, own: str, version: int, content: str) -> None:
        """One more attempt that may land, beside those of the run."""
        self._truth[own] = version, content

    def __call__(self, left: Tree | Disk, facts: Sequence[Asked], told: int, *, may_halt: bool = False) -> Wrong | None:
        """What is wrong after the subject started on this disk; None if nothing is. `left`: what the power left, or a
        disk that never lost it. `told`: the `moment` of the facts. `may_halt`: the disk had failed before, and the
        subject may wait for somebody who looks after it: then it commits nothing more, and keeps everything."""
        self._may_halt = may_halt
        state: object = None
        try:
            disk = _standing(left)
            seen = self._visible(disk)
            ask = self._start(disk)
            state = self._host.state(), told
            if state in self._judged:
                return None
            self._judged.add(state)
            pending = bool(facts) and facts[-1].answer is None
            self._examine(disk, ask, facts, seen, resend_first=False)
            if pending:
                self._host.stop()
                disk = _standing(left)
                self._examine(disk, self._start(disk), facts, seen, resend_first=True)
        except Wrong as wrong:
            self._judged.discard(state)  # who asks again hears it again
            return wrong
        finally:
            self._host.stop()
        return None

    @property
    def judged(self) -> int:
        """So many different states the subject was in after its start, each together with what had been answered.
        Every further question to a subject in a state that was judged would have the same answer."""
        return len(self._judged)

    def _examine(self, disk: Disk, ask: Ask, facts: Sequence[Asked], seen: Log, *, resend_first: bool) -> None:
        client = _Client(ask, self._scope, facts)
        found = self._recovered(client, in_order_of_answers(facts), seen, resend_first=resend_first)
        self._again(disk, found)

    def _start(self, disk: Disk) -> Ask:
        try:
            return self._host.start(disk, start=self.next_start, hook=unobserved)
        except Exception as error:  # a start that fails, however, is the finding
            raise Wrong(f"it does not start: {type(error).__name__}: {error}", DURABLE) from error

    # Before anybody recovers

    def _visible(self, disk: Disk) -> Log:
        """The published commits, as strangers see them."""
        found: Log = {}
        for path, number in disk.walk():
            name = path.rpartition("/")[2]
            stem, _, ending = name.partition(".")
            if ending == "json" and len(stem) == VERSION_DIGITS:
                content = bytes(disk.numbered(number).content).decode("utf-8", "surrogateescape")
                own = proposals.attempt_of(content)
                rule = CONTENT[self._scope.feature]
                require(own in self._truth, f"{name} is visible and is no commit: {content[:60]!r}", rule)
                whole = self._truth[own or ""] == (int(stem), content)
                require(whole, f"{name} is visible, torn: {content[-60:]!r}", rule)
                found[int(stem)] = own, content
        return found

    # After the start

    def _recovered(self, client: _Client, facts: Sequence[Asked], seen: Log, *, resend_first: bool) -> Recovered:
        table = self._found(client, facts)
        outcomes = self._resolved(client, table, facts, resend_first=resend_first)
        alive = self._alive(client, facts)
        log = log_of(client.ask, table)
        self._is_whole(log, outcomes)
        for version, each in seen.items():
            require(log.get(version) == each, f"version {version} was visible after the cut, and is another now")
        if alive:
            log = self._goes_on(client, table, log)
        client.judge(table)
        return Recovered(table, alive, outcomes, log)

    def _found(self, client: _Client, facts: Sequence[Asked]) -> str:
        """The table, made now if it was not."""
        made = [fact for fact in facts if isinstance(fact.request, m.CreateTable | m.TakeOver)]
        for fact in made:
            if isinstance(fact.answer, m.Ratified):
                assert fact.answer.table is not None
                return fact.answer.table
        told = client.ask(m.LoadTable(name=TABLE))
        if isinstance(told, m.Table):
            require(made, "a table is there that nobody made")
            return told.table
        require(isinstance(told, m.NotFound), f"the table is neither there nor absent: {told}")
        client.made_again = True
        told = client.ask(self._scope.made())
        require(isinstance(told, m.Ratified), f"the table is not there, and making it once more fails: {told}")
        assert isinstance(told, m.Ratified)
        require(told.table is not None, "the table was made, and its name not told")
        return told.table or ""

    def _resolved(
        self, client: _Client, table: str, facts: Sequence[Asked], *, resend_first: bool
    ) -> dict[str, int | None]:
        """By attempt: the version that it is, or None. Agrees with everything that was answered."""
        pending = facts[-1].request if facts and facts[-1].answer is None else None
        resent: m.Answer | None = None
        if pending is not None and resend_first:
            resent = self._resend(client, pending)
        outcomes: dict[str, int | None] = {}
        for own in dict.fromkeys((*map(_attempt_of, (fact.request for fact in facts)), self._scope.made().attempt)):
            if own is not None:
                told = client.ask(m.AttemptOutcome(table=table, attempt=own))
                require(isinstance(told, m.Landed | m.NotLanded), f"the outcome of {own} is not told: {told}", OUTCOME)
                outcomes[own] = told.version if isinstance(told, m.Landed) else None
        for number, fact in enumerate(facts):
            own = _attempt_of(fact.request)
            again = any(_attempt_of(later.request) == own for later in facts[number + 1 :])
            again = again or (client.made_again and own == self._scope.made().attempt)
            if not (again and isinstance(fact.answer, m.Rejected) and fact.answer.retryable):
                _agrees(fact.request, fact.answer, outcomes, "before the cut")
        if pending is not None and not resend_first:
            resent = self._resend(client, pending)
        if pending is not None:
            _agrees(pending, resent, outcomes, "when it was sent again")
        return outcomes

    def _resend(self, client: _Client, request: m.Request) -> m.Answer:
        told = client.ask(request)
        require(not isinstance(told, m.Unknown), f"what nobody was told of, sent again, is still unknown: {told}")
        return told

    def _alive(self, client: _Client, facts: Sequence[Asked]) -> bool:
        """Whether the table has its name: it may have lost it only where somebody asked for that."""
        told = client.ask(m.LoadTable(name=TABLE))
        alive = isinstance(told, m.Table)
        ending = [fact for fact in facts if isinstance(fact.request, m.DropTable | m.HandBack)]
        if not ending:
            require(alive, f"the table lost its name: {told}", "PROFILE-DISCOVERY-01")
        elif isinstance(ending[-1].answer, m.Done | m.Ratified):
            require(
                isinstance(told, m.NotFound), "the table is there again after it was given up", "PROFILE-DISCOVERY-01"
            )
        return alive

    def _is_whole(self, log: Log, outcomes: dict[str, int | None]) -> None:
        """No gap; what landed is where it says, and says what it always said; nothing else is there."""
        require(
            list(log) == list(range(len(log))), f"the log has gaps: versions {list(log)}", ORDER[self._scope.feature]
        )
        for version, (own, content) in log.items():
            require(own in self._truth, f"version {version} is nobody's: {str(content)[:60]!r}")
            require(self._truth[own or ""] == (version, content), f"version {version} is not what was proposed")
            before = version < self._scope.versions_before
            require(before or outcomes.get(own or "") == version, f"version {version} is {own}, which did not land")
        for own, landed in outcomes.items():
            if landed is not None:
                found = log.get(landed, (None, None))[0]
                require(found == own, f"{own} landed as version {landed}, which is {found}")

    def _goes_on(self, client: _Client, table: str, log: Log) -> Log:
        """The next version lands, and everything can be published, unchanged."""
        version = len(log)
        request = append(table, version, PROBE)
        told = client.ask(request)
        if isinstance(told, m.Rejected):  # perhaps a disk failed before: what is in doubt is published anew first
            client.ask(m.BackfillToVersion(table=table, version=version - 1))
            told = client.ask(request)
        if self._may_halt and isinstance(told, m.Rejected):
            return log
        require(told == m.Ratified(version=version), f"the table does not go on: version {version} is {told}")
        told = client.ask(m.BackfillToVersion(table=table, version=version))
        require(isinstance(told, m.Done), f"backfill to version {version} fails: {told}")
        published = final_contents(client.observed(table), ())
        expected = {**log, version: (PROBE, proposals.content(request.actions or ()))}
        require(published == expected, f"what is published is not what was ratified: versions {list(published)}")
        return expected

    # After the power failed once more

    def _again(self, disk: Disk, found: Recovered) -> None:
        """Nothing that was told after the first cut may be lost by a second one, which keeps nothing unsynced."""
        self._host.stop()
        left = next(PowerCut(disk.snapshot()).disks(Random(0), limit=1))
        ask = self._start(Disk.holding(left, now=0))
        for own, landed in found.outcomes.items():
            told = ask(m.AttemptOutcome(table=found.table, attempt=own))
            expected = m.NotLanded() if landed is None else m.Landed(version=landed)
            problem = f"after a second cut the outcome of {own} is {told}; it was {expected}"
            require(told == expected, problem, TOMBSTONE if landed is None else OUTCOME)
        alive = isinstance(ask(m.LoadTable(name=TABLE)), m.Table)
        problem = "after a second cut the table has its name again, or lost it"
        require(alive == found.alive, problem, "PROFILE-DISCOVERY-01")
        require(log_of(ask, found.table) == found.log, "after a second cut the log is another one")


class _Client:
    """Asks, and writes the history: of what was asked before the cut, too."""

    def __init__(self, ask: Ask, scope: Scope, facts: Sequence[Asked]) -> None:
        self.made_again = False
        """Whether the table's creation was sent once more."""
        self._ask = ask
        self._scope = scope
        header = events.Header(
            schema=events.SCHEMA_VERSION,
            clock=events.Clock(unit="tick"),
            subject=events.Subject(name="subject"),
            feature=scope.feature,  # type: ignore[arg-type]  # the scopes name table features only
            profiles=("idempotent-retry",),
        )
        self._recording = Recording(header)
        self._sent: list[m.Request] = []
        for fact in facts:
            self._before(fact, "before")
        self._recording.fault("power-cut")

    def _before(self, fact: Asked, client: str) -> None:
        """What was asked before the cut, and meanwhile."""
        if isinstance(fact.request, m.Plant):  # the version is from before the history
            return
        self._sent.append(fact.request)
        number = self._recording.invoke(client, TABLE, fact.request)
        for each in fact.meanwhile:
            self._before(each, "meanwhile")
        if fact.answer is None:
            self._recording.lost(number, "the power went")
        else:
            self._recording.ended(number, fact.request, fact.answer)

    def ask(self, request: m.Request) -> m.Answer:
        self._sent.append(request)
        number = self._recording.invoke("after", TABLE, request)
        answer = self._ask(request)
        require(self._recording.ended(number, request, answer), f"no answer to {request}: {answer}")
        return answer

    def observed(self, table: str) -> tuple[m.LogFile, ...]:
        since = self._recording.now()
        told = self._ask(m.Observe(table=table))
        require(isinstance(told, m.Observation), f"the log cannot be looked at: {told}")
        assert isinstance(told, m.Observation)
        self._recording.look(TABLE, since, told.files)
        return told.files

    def judge(self, table: str) -> None:
        """By the ordinary checkers."""
        log = witnesses(
            TABLE,
            self.observed(table),
            _listed(self._ask, table),
            commit_mode=self._scope.commit_mode,
            before=self._scope.versions_before,
            ownership=[fact.attempt for fact in self._sent if isinstance(fact, m.TakeOver | m.HandBack)],
        )
        self._recording.final_log(log)
        self._recording.complete()
        for violation in self._recording.judge().violations:
            raise Wrong(f"the history contradicts {violation.rule}: {violation}", DURABLE)


def moment(facts: Sequence[Asked]) -> int:
    """Equal for equal facts, within one process."""
    told = in_order_of_answers(facts)
    return hash(tuple(None if fact.answer is None else str(fact.answer) for fact in told))


def _standing(left: Tree | Disk) -> Disk:
    """A disk of one's own to start on. One that never lost its power may still lose what was not synced."""
    return left.copy() if isinstance(left, Disk) else Disk.holding(left, now=0)


def _attempt_of(request: m.Request) -> str | None:
    return request.attempt if isinstance(request, Proposal | m.AttemptOutcome) else None


def _agrees(request: m.Request, answer: m.Answer | None, outcomes: Mapping[str, int | None], when: str) -> None:
    """Whether an answer and the outcome of its attempt say the same."""
    own = _attempt_of(request)
    if own is None or answer is None:
        return
    if isinstance(answer, m.Ratified | m.Landed):
        expected: int | None = answer.version
    elif isinstance(answer, m.Conflict | m.Gap | m.Rejected | m.NotLanded):
        expected = None
    else:
        return
    outcome = "not landed" if outcomes[own] is None else f"version {outcomes[own]}"
    rule = TOMBSTONE if isinstance(answer, m.NotLanded) else OUTCOME if isinstance(answer, m.Landed) else DURABLE
    require(outcomes[own] == expected, f"{own} was answered by {answer} {when}, and its outcome is {outcome}", rule)


def _listed(ask: Ask, table: str) -> tuple[m.CommitEntry, ...]:
    """Of a table that was given up an owner may list nothing."""
    told = ask(m.GetCommits(table=table))
    return told.commits if isinstance(told, m.Commits) else ()


def log_of(ask: Ask, table: str) -> Log:
    """Every version, from the published files and what the owner lists."""
    seen = ask(m.Observe(table=table))
    require(isinstance(seen, m.Observation), f"the log cannot be looked at: {seen}")
    assert isinstance(seen, m.Observation)
    return dict(sorted(final_contents(seen.files, _listed(ask, table)).items()))
