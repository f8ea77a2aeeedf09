"""The tools of a check: clients that send requests, a network that loses and delays them, and assertions of
requirements.

    table = s.create()
    s.land(table, 1)
    exchange = s.commit(table, 1, client="late")
    s.expect(exchange, Conflict, "MC-COMMIT-02", "CM-COMMIT-08", expected="version 1 is taken: a conflict")

A failed assertion ends the scenario. The checkers then check its history, as at any other end.
"""

import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final, NoReturn, TypeVar

from conformance.adapters.in_process import RAISED
from conformance.history import events
from conformance.history.events import Promise
from conformance.interface import log_names
from conformance.interface import messages as m
from conformance.interface.log_names import commit_file, version_of
from conformance.interface.messages import name_of
from conformance.interface.results import Violation, headline
from conformance.interface.subject import LONG_PAUSES, PAUSES, Ask, Subject, patiently, refused_for_now
from conformance.models import proposals
from conformance.scenario.check import Variant, applies
from conformance.scenario.formatting import answered, in_words
from conformance.scenario.recording import NOWHERE, Deferred, Recording, witnesses

TRIES: Final = 5
"""The number of proposals after which a subject that rejects them by its own policy is inconclusive."""

READS: Final = (m.GetCommits, m.LoadTable, m.MaintenancePolicy, m.Observe)
IDENTITY: Final = ("MC-FEATURE-02", "CM-FEATURE-01", "CM-LOG-07", "MC-FILES-08", "CM-FILES-07")
"""The requirements on which attempt is which version."""
CHANGES: Final = (m.CreateTable, m.Commit, m.AttemptOutcome, m.BackfillToVersion, m.DropTable, m.TakeOver, m.HandBack)

_NOT_OF_IDENTIFIERS: Final = re.compile("[^A-Za-z0-9]+")

A = TypeVar("A", bound=m.Message)


class Stopped(Exception):  # noqa: N818  # it ends a scenario; it is not always an error
    """The scenario is over."""


class Violated(Stopped):
    """An assertion failed."""


class Inconclusive(Stopped):
    """The subject did not reach the point of the check; `reason` says why. A run without any other result does not
    pass."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(slots=True, kw_only=True)
class TableHandle:
    """A table of the scenario."""

    name: str
    """The name in the history."""
    reference: m.TableRef
    """The subject's reference."""
    versions: int
    """The number of versions that the scenario knows, which is the next version to propose."""
    before: int = 0
    """The number of versions that existed before the history."""
    ownership: list[str] = field(default_factory=list)
    """Attempts that became commits by becoming visible: ownership changes and commits of filesystem writers."""
    id: str = ""
    """The id in its metadata, which no commit changes."""
    path: str | None = None
    """The location of a table that was created through the filesystem."""
    final: list[events.Witness] | None = None
    """Its log when it was dropped, because the owner may delete it afterwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A request with its answer."""

    number: int
    request: m.Request
    answer: m.Answer


@dataclass(slots=True, kw_only=True)
class Delayed:
    """A request that has not arrived yet."""

    number: int
    client: str
    request: m.Request
    given_up: bool = False


def persist(ask: Callable[[], Exchange]) -> Exchange:
    """Retry while the subject rejects by its own policy, `TRIES` times in all; `ask` proposes a new attempt."""
    for _ in range(TRIES - 1):
        exchange = ask()
        if not isinstance(exchange.answer, m.Rejected) or exchange.answer.retryable:
            return exchange
    return ask()


class Scenario:
    """One run of a check. `requirements` are all that the check tests on this variant."""

    def __init__(
        self,
        subject: Subject,
        variant: Variant,
        *,
        name: str,
        seed: int = 0,
        salt: str = "",
        judged: m.Identity | None = None,
        clock: Callable[[], int] | None = None,
        deferred: bool = False,
    ) -> None:
        """`clock`: real time in ns, for concurrent clients; by default time is a count of events. `deferred`: the
        history is written only if it is read."""
        self.subject = subject
        self.identity = subject.identity if judged is None else judged
        """The subject of the verdict."""
        self.variant = variant
        self.feature = variant.feature
        self.commit_mode = variant.commit_mode
        self.random = Random(f"{seed}/{name}/{salt}")
        self.name = name
        self.salt = salt
        """Makes the names of tables, and attempts, unique for subjects that remember those of earlier runs."""
        self.tables: list[TableHandle] = []
        self.mortal = False
        """Whether the subject was crashed; then it is restarted before its final log is requested."""
        self.broken = False
        """Whether the subject sent an invalid message; then its final log is not requested."""
        self.violations: list[Violation] = []
        self.made: dict[tuple[str, int], int] = {}
        """The operation that was first answered with a version, by table and version."""
        self._answered: dict[tuple[str, m.AttemptId], list[Exchange]] = {}
        """The exchanges about an attempt, in the order of their answers, by table and attempt."""
        self.sent: set[str] = set()
        """Attempts that the kit sent, also as the name of a file that it wrote, in lower case."""
        self._numbers: dict[int, int] = {}
        """The number of the operation, by the `id` of its request."""
        self.confused = False
        """Whether the subject named an attempt that the kit never sent."""
        self._names: dict[str, str] = {}
        """The names of tables in the history, by their names in requests."""
        self.pauses = LONG_PAUSES
        """Seconds between the tries of a request."""
        self.unresolved: dict[tuple[str, int], int] = {}
        """The last proposal that the subject answered `unknown`, by table and version."""
        self.looked: int | None = None
        """The last operation, if it was a listing."""
        promises = tuple(promise for promise in Promise if promise.value in self.identity.promises)
        header = events.Header(
            schema=events.SCHEMA_VERSION,
            clock=events.Clock(unit="tick" if clock is None else "ns"),
            subject=events.Subject(name=self.identity.name, version=self.identity.version),
            feature=variant.feature,  # type: ignore[arg-type]
            profiles=self.identity.profiles,
            promises=promises,
            seed=seed,
            note=name,
        )
        self.recording: Recording | Deferred = Deferred(header) if deferred else Recording(header, clock)

    # Requests

    def answer(self, client: str, request: m.Request, ask: Ask | None = None) -> m.Answer:
        """The subject's final answer, which is not recorded: a request that is rejected as retryable is sent again."""
        if isinstance(request, m.Restart):
            self.pauses = LONG_PAUSES
        return self._patiently(partial(ask or self.subject.ask, client, request), change=isinstance(request, CHANGES))

    def _patiently(self, ask: Callable[[], m.Answer], *, change: bool) -> m.Answer:
        """The pauses are long until the subject has accepted its first change since its start."""
        pauses = self.pauses
        answer = patiently(ask, pauses)
        changed = change and not isinstance(answer, m.Unknown)
        if pauses is self.pauses and (changed or refused_for_now(answer)):
            self.pauses = PAUSES
        return answer

    def ask(self, client: str, request: m.Request, table: TableHandle | None = None) -> Exchange:
        """Send a request, and record it with its final answer."""
        number = self._invoke(client, request, table)
        exchange = self._ended(number, request, self.answer(client, request))
        if isinstance(request, READS) and refused_for_now(exchange.answer):
            raise Inconclusive(f"operation {number}: all tries were rejected: {in_words(exchange.answer)}")
        return exchange

    def _invoke(self, client: str, request: m.Request, table: TableHandle | None = None) -> int:
        planted = log_names.attempt_of(getattr(request, "file", None) or getattr(request, "staged_file", None) or "")
        self.sent |= {name.lower() for name in (getattr(request, "attempt", None), planted) if name}
        number = self.recording.invoke(client, self._name(request) if table is None else table.name, request)
        self._numbers[id(request)] = number
        return number

    def under_way(self, request: m.Request) -> Exchange | None:
        """The operation of a request, which is still referenced, before its answer; None if it was not recorded."""
        number = self._numbers.get(id(request))
        if number is None:
            return None
        return Exchange(number=number, request=request, answer=m.Unknown(reason="it is under way"))

    def lose(self, client: str, request: m.Request, table: TableHandle | None = None) -> Exchange:
        """Send a request, and lose the answer, so that the client does not know the outcome. `answer` is the lost one.
        A transport that can lose it on the wire does so, and the subject then sees a closed connection."""
        number = self._invoke(client, request, table)
        self.recording.writer.fault("lost answer", client=client)
        answer = self.answer(client, request, getattr(self.subject, "lose", None))
        self.recording.lost(number, "the answer was lost")
        self.looked = None
        return self._remembered(Exchange(number=number, request=request, answer=answer))

    def delay(self, client: str, request: m.Request, table: TableHandle | None = None) -> Delayed:
        """Send a request that the network holds back."""
        number = self._invoke(client, request, table)
        return Delayed(number=number, client=client, request=request)

    def give_up(self, delayed: Delayed) -> None:
        """The client stops waiting; the request may still arrive."""
        delayed.given_up = True
        self.recording.lost(delayed.number, "no answer in time")

    def deliver(self, delayed: Delayed) -> Exchange:
        """The delayed request arrives. The answer is lost if the client gave up."""
        if delayed.given_up:
            self.recording.writer.fault("a request whose client stopped waiting arrives", client=delayed.client)
            answer = self.answer(delayed.client, delayed.request)
            return self._remembered(Exchange(number=delayed.number, request=delayed.request, answer=answer))
        answer = self.answer(delayed.client, delayed.request)
        return self._ended(delayed.number, delayed.request, answer)

    def _ended(self, number: int, request: m.Request, answer: m.Answer) -> Exchange:
        self.looked = None
        if isinstance(answer, m.Ratified) and isinstance(request, m.Commit | m.CreateTable):
            self.made.setdefault((self._name(request), answer.version), number)
        if isinstance(answer, m.Unknown) and isinstance(request, m.Commit):
            self.unresolved[self._name(request), request.version] = number
        belongs = self.recording.ended(number, request, answer)
        exchange = self._remembered(Exchange(number=number, request=request, answer=answer))
        if isinstance(answer, m.Unknown) and answer.reason.startswith(RAISED):
            self.fail(
                "PROFILE-CORE-03", evidence=(exchange,), expected="one of the outcomes of the request",
                message=f"the subject {answer.reason}",
            )  # fmt: skip
        if not belongs:
            message = f"`{name_of(request)}` was answered {in_words(answer)}, which is not a valid answer to it."
            self.fail(
                "PROFILE-CORE-03", evidence=(exchange,), expected="one of the outcomes of the request", message=message
            )
        for entry in (*(getattr(answer, "commits", None) or ()), *(getattr(answer, "winners", None) or ())):
            named = log_names.attempt_of(entry.file_name or "")
            if named is not None and named.lower() not in self.sent:
                self.confused = True
        return exchange

    def _remembered(self, exchange: Exchange) -> Exchange:
        """The exchange, which `_evidence` can find by its attempt from now on."""
        attempt = getattr(exchange.request, "attempt", None)
        if attempt is not None:
            self._answered.setdefault((self._name(exchange.request), attempt), []).append(exchange)
        return exchange

    def attributed(self, requirements: tuple[str, ...]) -> tuple[str, ...]:
        """The requirements; for a subject that names attempts that the kit never sent, the interface instead of those
        that say which attempt is a version."""
        other = () if set(IDENTITY).isdisjoint(requirements) or not self.confused else ("PROFILE-CORE-03",)
        return (*other, *(name for name in requirements if not other or name not in IDENTITY))

    def _name(self, request: m.Request) -> str:
        reference = getattr(request, "table", None) or getattr(request, "path", None)
        for table in self.tables:
            if reference is not None and table.reference == reference:
                return table.name
        name = getattr(request, "name", None)
        return NOWHERE if name is None else self.logical(name)

    # Proposals

    def attempt(self) -> m.AttemptId:
        """A new attempt's id."""
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def timestamp(self, version: int) -> int:
        """The in-commit timestamp of a version; it increases with the version, and stays an integer that all readers of
        JSON keep."""
        return proposals.BASE_TIME + version % 2**40 * 1000

    def physical(self, name: str) -> str:
        """The name of a table in requests to the subject: an identifier, which every catalog accepts, unless the check
        is about names."""
        physical = f"{_NOT_OF_IDENTIFIERS.sub('_', self.name)}{self.salt}_{name.replace('-', '_')}"
        self._names[physical] = name
        return physical

    def logical(self, name: str) -> str:
        return self._names.get(name, name)

    def creation(self, name: str = "orders", **options: Any) -> m.CreateTable:
        """A proposal of version 0, as a new attempt."""
        attempt = options.pop("attempt", None) or self.attempt()
        actions = proposals.version_0(self.feature, attempt, self.attempt(), timestamp=self.timestamp(0))
        return m.CreateTable(
            name=self.physical(name), feature=self.feature, commit_mode=self.commit_mode, attempt=attempt,
            **{"actions": actions, **options},
        )  # fmt: skip

    def create(self, name: str = "orders", client: str = "creator", **options: Any) -> TableHandle:
        """Create a table; if that is rejected, the scenario is inconclusive."""
        return self.only_creation(name, self.ask(client, self.creation(name, **options)))

    def only_creation(self, name: str, exchange: Exchange) -> TableHandle:
        """The table of the only `create_table` for a new name."""
        ratified = self.expect(
            exchange, m.Ratified, "PROFILE-VERSION0-01", "CM-CATALOG-03", "MC-API-03", may_refuse=True,
            expected=f"`{self.physical(name)}` is a new name with one creator: `ratified` with version 0",
        )  # fmt: skip
        return self.created(name, exchange, ratified)

    def created(self, name: str, exchange: Exchange, ratified: m.Ratified) -> TableHandle:
        """The table that a `create_table` created."""
        if ratified.table is None or ratified.version != 0:
            self.fail("PROFILE-CORE-03", evidence=(exchange,), expected="`ratified` with version 0 and the table",
                      message=f"`create_table` was answered {in_words(ratified)}.")  # fmt: skip
        own = proposals.table_id_in(getattr(exchange.request, "actions", ()))
        table = TableHandle(name=name, reference=ratified.table, versions=1, id=own)
        self.tables.append(table)
        return table

    def requests_for_an_unknown_table(self, attempt: m.AttemptId) -> list[m.Request]:
        """Every kind of request that the subject's profiles permit, for a table that does not exist."""
        unknown, profiles = "no-such-table", self.identity.profiles
        requests: list[m.Request] = [
            m.GetCommits(table=unknown),
            m.BackfillToVersion(table=unknown, version=1),
            m.Commit(table=unknown, version=1, attempt=attempt, actions=proposals.append(attempt, self.timestamp(1))),
        ]
        if "attempt-outcome" in profiles:
            requests.append(m.AttemptOutcome(table=unknown, attempt=attempt))
        if "maintenance-policy" in profiles:
            requests.append(m.MaintenancePolicy(table=unknown))
        if "discovery" in profiles:
            requests += [m.LoadTable(name=self.physical(unknown)), m.DropTable(table=unknown)]
        return requests

    def proposal(
        self, table: TableHandle, version: int | None = None, *, attempt: str | None = None,
        actions: Sequence[str] | None = None,
    ) -> m.Commit:  # fmt: skip
        """A proposal that adds one file; by default, of the next version."""
        number = table.versions if version is None else version
        own = attempt or self.attempt()
        content = proposals.append(own, self.timestamp(number)) if actions is None else tuple(actions)
        return m.Commit(table=table.reference, version=number, attempt=own, actions=content)

    def commit(
        self, table: TableHandle, version: int | None = None, client: str = "writer", **options: Any
    ) -> Exchange:
        """Propose; after a retryable rejection the same proposal again."""
        exchanges: list[Exchange] = []
        request = self.proposal(table, version, **options)

        def propose() -> m.Answer:
            exchanges.append(self._ended(self._invoke(client, request), request, self.subject.ask(client, request)))
            return exchanges[-1].answer

        self._patiently(propose, change=True)
        return exchanges[-1]

    def land(self, table: TableHandle, client: str = "writer", **options: Any) -> Exchange:
        """Commit the next version, without a race. If the subject rejects it by its own policy, retry with new
        attempts, `TRIES` times; then the scenario is inconclusive."""
        exchange = persist(lambda: self.commit(table, client=client, **options))
        earlier = self.unresolved.get((table.name, table.versions))
        if isinstance(exchange.answer, m.Conflict) and earlier is not None and not self.mortal:
            raise Inconclusive(f"operation {earlier}, whose outcome stayed unknown, may be version {table.versions}")
        ratified = self.expect(exchange, m.Ratified, "PROFILE-CORE-05", "MC-API-03", "CM-CATALOG-03", may_refuse=True,
                               expected=f"version {table.versions} is the next, and no other client proposed it: "
                               f"it is ratified")  # fmt: skip
        self.require(ratified.version == table.versions, "MC-COMMIT-02", "CM-CATALOG-03", evidence=(exchange,),
                     expected=f"ratified as version {table.versions}, as proposed",
                     observed=f"ratified as version {ratified.version}")  # fmt: skip
        table.versions += 1
        return exchange

    def land_all(self, table: TableHandle, number: int) -> list[Exchange]:
        """Commit the next `number` versions."""
        return [self.land(table) for _ in range(number)]

    def get_commits(self, table: TableHandle, client: str = "reader") -> m.Commits:
        exchange = self.ask(client, m.GetCommits(table=table.reference))
        return self.expect(exchange, m.Commits, "PROFILE-CORE-03", expected="the commits and the latest version")

    def ask_to_backfill(self, table: TableHandle, version: int, client: str = "publisher") -> Exchange:
        """Request a backfill. If all tries are rejected as retryable, the scenario is inconclusive."""
        exchange = self.ask(client, m.BackfillToVersion(table=table.reference, version=version))
        if refused_for_now(exchange.answer):
            raise Inconclusive(f"operation {exchange.number}: all tries were rejected: {in_words(exchange.answer)}")
        return exchange

    def backfill(self, table: TableHandle, version: int, client: str = "publisher") -> Exchange:
        """Backfill up to a ratified version; it must succeed. A catalog may leave all publishing to clients
        (catalog-managed, "Publishing Commits"): then the scenario is inconclusive."""
        exchange = self.ask_to_backfill(table, version, client)
        if self.feature == "catalogManaged" and isinstance(exchange.answer, m.Unsupported | m.Rejected):
            raise Inconclusive(
                f"operation {exchange.number}: the owner does not publish on request: {exchange.answer.reason}"
            )
        self.expect(exchange, m.Done, "MC-BACKFILL-05", "PROFILE-CORE-03",
                    expected=f"version {version} is ratified: `done` when it is published")  # fmt: skip
        return exchange

    def observe(self, table: TableHandle, client: str = "observer") -> list[m.LogFile]:
        """All files of the log, with contents. A version that the listing lacks counts as missing at some moment during
        the listing."""
        since = self.recording.writer.now()
        request = m.Observe(table=table.reference)
        answer = self.answer(client, request)
        if isinstance(answer, m.Observation):
            names = {file.name for file in answer.files}
            absent = [v for v in range(table.before, table.versions) if commit_file(v) not in names]
            self.looked = self.recording.look(table.name, since, answer.files, absent)
            return list(answer.files)
        number = self.recording.invoke(client, table.name, request)
        exchange = self._ended(number, request, answer)
        self.expect(exchange, m.Observation, "PROFILE-CORE-02", expected="the files of the log")
        raise AssertionError("unreachable")

    def published(self, table: TableHandle) -> dict[int, str]:
        """The content of published commits, by version, as an external observer sees them."""
        versions = [(version_of(file.name), file.content or "") for file in self.observe(table)]
        return {version: content for version, content in versions if version is not None}

    # Assertions

    def expect(
        self, exchange: Exchange, kinds: type[A] | tuple[type[A], ...], *requirements: str, expected: str,
        may_refuse: bool = False, because: Sequence[Exchange] = (), what: str = "",
    ) -> A:  # fmt: skip
        """Require that the answer is of this kind, and return it. `may_refuse`: the answer `rejected` makes the
        scenario inconclusive, as an unknown outcome always does. `because`: the operations that make it the only right
        answer. `what`: the request in words, for the headline."""
        answer: Any = exchange.answer
        if isinstance(answer, kinds):
            return answer
        if isinstance(answer, m.Unknown):
            raise Inconclusive(f"operation {exchange.number}: the outcome stayed unknown: {answer.reason}")
        if isinstance(answer, m.Rejected) and may_refuse:
            raise Inconclusive(
                f"operation {exchange.number} was rejected, which the specification permits: {answer.reason}"
            )
        if isinstance(answer, m.Unsupported):
            self.fail("PROFILE-CORE-07", evidence=(exchange,), observed=answered(exchange.request, answer),
                      expected="a declared profile needs the request: the subject supports it")  # fmt: skip
        if not isinstance(answer, m.Conflict | m.Gap):  # PROFILE-CORE-05 is about these answers
            requirements = tuple(name for name in requirements if name != "PROFILE-CORE-05") or requirements
        observed = f"{what} was answered {in_words(answer)}" if what else answered(exchange.request, answer)
        return self.fail(*requirements, evidence=(exchange, *because), expected=expected, observed=observed)

    def require(
        self, condition: bool, *requirements: str, evidence: Sequence[Exchange] = (), expected: str, observed: str = "",
        table: TableHandle | None = None, version: int | None = None,
    ) -> None:  # fmt: skip
        """Require that a condition holds. `observed`: by default, the answer to the first request in the evidence."""
        if not condition:
            observed = observed or f"the transaction was answered {in_words(evidence[0].answer)}"
            self.fail(
                *requirements, evidence=evidence, expected=expected, observed=observed, table=table, version=version
            )

    def fail(
        self, *requirements: str, evidence: Sequence[Exchange] = (), expected: str, observed: str = "",
        message: str = "",
        table: TableHandle | None = None, version: int | None = None,
    ) -> NoReturn:  # fmt: skip
        """End the scenario with a violation of those of the requirements that apply to the subject."""
        requirements = self.attributed(requirements)
        held = tuple(requirement for requirement in requirements if applies(requirement, self.identity, self.variant))
        if not held:
            raise AssertionError(f"{self.name}: none of {requirements} applies to {self.variant} and these profiles")
        self.violations.append(
            Violation(
                requirements=held,
                message=message or headline(expected, observed),
                expected=expected,
                observed=observed,
                operations=self._evidence(evidence, table, version),
                table=None if table is None else table.name,
                version=version,
            )
        )
        raise Violated(held[0])

    def _evidence(
        self, evidence: Sequence[Exchange], table: TableHandle | None, version: int | None
    ) -> tuple[int, ...]:
        """The operations that contradict each other. A single one is completed by the listing that showed it, by the
        last exchange before it about the same attempt, by the commit of its version, or else by the newest commit. If
        it is `ratified`, the commit of its version comes before the exchange."""
        numbers = [exchange.number for exchange in evidence]
        if len(numbers) < 2 and self.looked is not None:
            numbers.append(self.looked)
        if len(numbers) == 1:
            request = evidence[0].request if evidence else None
            name = table.name if table is not None else NOWHERE if request is None else self._name(request)
            made = {at: number for (log, at), number in self.made.items() if log == name and number not in numbers}
            about: int | None = getattr(request, "version", 0) if version is None else version
            same_attempt = self._earlier(name, evidence[0]) if evidence else None
            ratified = bool(evidence) and isinstance(evidence[0].answer, m.Ratified)
            if same_attempt is not None and not (ratified and about in made):
                numbers.append(same_attempt)
            elif about is not None and about in made:
                numbers.append(made[about])
            elif made and isinstance(request, m.Commit):
                numbers.append(made[max(made)])
        return tuple(numbers)

    def _earlier(self, name: str, exchange: Exchange) -> int | None:
        """The last other operation about the attempt of an exchange; one whose answer reached its client, if any."""
        others = [
            other.number
            for other in self._answered.get((name, getattr(exchange.request, "attempt", "")), [])
            if other.number != exchange.number and not isinstance(other.answer, m.Unknown)
        ]
        return others[-1] if others else None

    # The end

    def audit(self) -> list[Violation]:
        """Further violations, beyond the scenario's assertions and its history."""
        return []

    def conclude(self) -> str:
        """Request the final log of every table, and complete the history. For a table whose log cannot be read, the
        recorded operations are checked. Returns the first reason why a log cannot be read; empty if all were read."""
        if self.mortal and not self.broken:
            self.answer("kit", m.Restart())
        unseen = list(self._find_the_rest())
        logs: list[list[events.Witness]] = []
        for table in self.tables:
            try:
                logs.append(self.log_of(table) if table.final is None else table.final)
            except Inconclusive as error:
                unseen.append(self._unseen(table.name, error.reason, table))
        for log in logs:
            self.recording.final_log(log)
        for event in unseen:
            self.recording.writer.unseen(event)
        self.recording.writer.complete()
        return unseen[0].reason if unseen else ""

    def _unseen(self, name: str, reason: str, table: TableHandle | None = None) -> events.Unseen:
        """Commits of filesystem writers and ownership changes count by being visible, in every commit mode."""
        filesystem = table is None or table.path is not None or bool(table.ownership)
        mode = None if filesystem or self.commit_mode == "direct" else self.commit_mode
        before = 0 if table is None else table.before
        return events.Unseen(table=name, reason=reason, before=before, commit_mode=mode)  # type: ignore[arg-type]

    def _find_the_rest(self) -> Iterator[events.Unseen]:
        """Look up tables without a handle, because the scenario ended before it got one. Returns those that cannot be
        looked up."""
        for name in sorted(self.recording.writer.tables - {table.name for table in self.tables} - {NOWHERE}):
            try:
                answer = self._looked_up(m.LoadTable(name=self.physical(name)), name)
            except Inconclusive as error:
                yield self._unseen(name, error.reason)
                continue
            if isinstance(answer, m.Table):
                self.tables.append(TableHandle(name=name, reference=answer.table, versions=0))
            elif self.violations:
                yield self._unseen(name, f"the final log of {name} cannot be read: the table was not found")

    def log_of(self, table: TableHandle) -> list[events.Witness]:
        """The current log: published and listed commits. Raises `Inconclusive`, also if a violation is already recorded
        and the list ends before the latest version, because an unlisted commit need not be lost."""
        listed = self._looked_up(m.GetCommits(table=table.reference), table.name)
        seen = self._looked_up(m.Observe(table=table.reference), table.name)
        if not isinstance(seen, m.Observation):
            raise Inconclusive(f"the final log of {table.name} cannot be read: {in_words(seen)}")
        commits = list(listed.commits) if isinstance(listed, m.Commits) else []  # a table that was handed back has none
        published = max((version_of(file.name) or 0 for file in seen.files), default=0)
        while commits and (last := max(published, *(commit.version for commit in commits))) < table.versions - 1:
            more = self._looked_up(m.GetCommits(table=table.reference, start=last + 1), table.name)
            new = [commit for commit in getattr(more, "commits", ()) if commit.version > last]
            if not new:  # it is lost, and not on another page
                break
            commits += new
        self.recording.seen(seen.files, commits)
        log = witnesses(
            table.name,
            seen.files,
            commits,
            commit_mode=self.commit_mode,
            before=table.before,
            ownership=table.ownership,
        )
        known = max((witness.version for witness in log), default=-1)
        if self.violations and isinstance(listed, m.Commits) and listed.latest is not None and listed.latest > known:
            raise Inconclusive(
                f"the final log of {table.name} cannot be read: the latest version is {listed.latest}, and versions "
                f"above {known} are neither listed nor published"
            )
        return log

    def _looked_up(self, request: m.Request, name: str) -> m.Answer:
        """Look up a table, with one retry after an unknown outcome. Raises `Inconclusive`."""
        if self.broken:
            raise Inconclusive(f"the final log of {name} cannot be read: the subject does not implement the interface")
        answer = self.answer("kit", request)
        if isinstance(answer, m.Unknown):
            answer = self.answer("kit", request)
        if isinstance(answer, m.Unknown) or refused_for_now(answer):
            raise Inconclusive(f"the final log of {name} cannot be read: {in_words(answer)}")
        return answer
