"""What a check is written with: clients that ask, a network that loses and delays, and demands with their requirements.

    table = s.create()
    s.land(table, 1)
    exchange = s.commit(table, 1, client="late")
    s.expect(exchange, Conflict, "MC-COMMIT-02", "CM-COMMIT-08", expected="version 1 is taken: a conflict")

A demand that is not met ends the scenario. At its end the history is judged by the checkers all the same.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NoReturn, TypeVar

from conformance.adapters.in_process import RAISED
from conformance.history import events
from conformance.history.events import Promise
from conformance.interface import messages as m
from conformance.interface.log_names import commit_file, version_of
from conformance.interface.messages import name_of
from conformance.interface.subject import Subject
from conformance.models import proposals
from conformance.results import Violation, headline
from conformance.scenario.check import Variant, applies
from conformance.scenario.formatting import in_words
from conformance.scenario.recording import NOWHERE, Recording, witnesses

TRIES: Final = 5
"""Proposals before a subject that refuses by a policy of its own cannot be judged."""

READS: Final = (m.GetCommits, m.LoadTable, m.MaintenancePolicy, m.Observe)
REPEATABLE: Final = (*READS, m.CreateTable, m.DropTable, m.AttemptOutcome)
"""Requests that their client sends again, unchanged, when they are refused for now. So are replays of any proposal."""

A = TypeVar("A", bound=m.Message)


class Stopped(Exception):  # noqa: N818  # it ends a scenario; it is not always an error
    """The scenario is over."""


class Violated(Stopped):
    """A demand was not met."""


class Inconclusive(Stopped):
    """The subject did not get to the point. `reason` says why; a run that is nothing but this is not green."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(slots=True, kw_only=True)
class TableHandle:
    """A table of the scenario."""

    name: str
    """In the history."""
    reference: m.TableRef
    """What the subject calls it."""
    versions: int
    """How many versions it has as far as the scenario knows: the next to propose."""
    before: int = 0
    """So many of them were there before the history."""
    ownership: list[str] = field(default_factory=list)
    """Attempts that became commits by becoming visible: changes of ownership, and what filesystem writers wrote."""
    path: str | None = None
    """Of a table that was made through the filesystem: where it is."""
    final: list[events.Witness] | None = None
    """Its log when it was dropped: afterwards its owner need not keep it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A request with its answer."""

    number: int
    request: m.Request
    answer: m.Answer


@dataclass(slots=True, kw_only=True)
class Delayed:
    """A request that is on its way."""

    number: int
    client: str
    request: m.Request
    given_up: bool = False


def _refused_for_now(answer: m.Answer) -> bool:
    return isinstance(answer, m.Rejected) and answer.retryable


def persist(ask: Callable[[], Exchange]) -> Exchange:
    """Ask again while the subject refuses by its own policy, `TRIES` times in all; `ask` proposes a new attempt."""
    for _ in range(TRIES - 1):
        exchange = ask()
        if not isinstance(exchange.answer, m.Rejected):
            return exchange
    return ask()


class Scenario:
    """One run of a check. `requirements` are all that the check is evidence for on this variant."""

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
    ) -> None:
        """`clock`: of real time, in ns, for clients that ask at the same time; otherwise time is a count of events."""
        self.subject = subject
        self.identity = subject.identity if judged is None else judged
        """Of whom the verdict speaks."""
        self.variant = variant
        self.feature = variant.feature
        self.commit_mode = variant.commit_mode
        self.random = Random(f"{seed}/{name}/{salt}")
        self.name = name
        self.salt = salt
        """Makes the names of tables, and attempts, unique where a subject remembers those of earlier runs."""
        self.tables: list[TableHandle] = []
        self.mortal = False
        """Whether the subject was crashed: it is started again before its final log is asked for."""
        self.broken = False
        """Whether the subject does not speak the interface any more: it is not asked for its final log."""
        self.violations: list[Violation] = []
        self.made: dict[tuple[str, int], int] = {}
        """By table and version: the operation that was first answered with it."""
        self.sent: set[m.AttemptId] = set()
        """Attempts that were sent: another request with one of them is a replay."""
        self.unresolved: dict[tuple[str, int], int] = {}
        """By table and version: the last proposal that the subject answered by `unknown`."""
        self.looked: int | None = None
        """The last operation, if it was a look at the files."""
        promises = tuple(promise for promise in Promise if promise.value in self.identity.promises)
        self.recording = Recording(
            events.Header(
                schema=events.SCHEMA_VERSION,
                clock=events.Clock(unit="tick" if clock is None else "ns"),
                subject=events.Subject(name=self.identity.name, version=self.identity.version),
                feature=variant.feature,  # type: ignore[arg-type]
                profiles=self.identity.profiles,
                promises=promises,
                seed=seed,
                note=name,
            ),
            clock,
        )

    # Asking

    def ask(self, client: str, request: m.Request, table: TableHandle | None = None) -> Exchange:
        """Ask, and record it. A request that can be repeated safely is sent again while it is refused for now."""
        repeatable = isinstance(request, REPEATABLE) or getattr(request, "attempt", None) in self.sent
        for _ in range(TRIES):
            number = self._invoke(client, request, table)
            exchange = self._ended(number, request, self.subject.ask(client, request))
            if not (repeatable and _refused_for_now(exchange.answer)):
                return exchange
        if isinstance(request, READS):
            raise Inconclusive(f"operation {number}: {TRIES} times refused for now: {in_words(exchange.answer)}")
        return exchange

    def _invoke(self, client: str, request: m.Request, table: TableHandle | None) -> int:
        if isinstance(attempt := getattr(request, "attempt", None), str):
            self.sent.add(attempt)
        return self.recording.invoke(client, self._name(request) if table is None else table.name, request)

    def lose(self, client: str, request: m.Request, table: TableHandle | None = None) -> Exchange:
        """Ask, and lose the answer: for the client the outcome is unknown. `answer` is what it would have been. A
        transport that can lose it on the wire does, so that the subject sees a client that hung up."""
        number = self._invoke(client, request, table)
        self.recording.fault("lost answer", client)
        answer = getattr(self.subject, "lose", self.subject.ask)(client, request)
        self.recording.lost(number, "the answer was lost")
        self.looked = None
        return Exchange(number=number, request=request, answer=answer)

    def delay(self, client: str, request: m.Request, table: TableHandle | None = None) -> Delayed:
        """Send a request that the network holds back."""
        number = self._invoke(client, request, table)
        return Delayed(number=number, client=client, request=request)

    def give_up(self, delayed: Delayed) -> None:
        """Its client stops waiting; the request may still arrive."""
        delayed.given_up = True
        self.recording.lost(delayed.number, "no answer in time")

    def deliver(self, delayed: Delayed) -> Exchange:
        """It arrives. The answer is lost if its client gave up."""
        if delayed.given_up:
            self.recording.fault("a request that was given up arrives", delayed.client)
            answer = self.subject.ask(delayed.client, delayed.request)
            return Exchange(number=delayed.number, request=delayed.request, answer=answer)
        answer = self.subject.ask(delayed.client, delayed.request)
        return self._ended(delayed.number, delayed.request, answer)

    def _ended(self, number: int, request: m.Request, answer: m.Answer) -> Exchange:
        self.looked = None
        if isinstance(answer, m.Ratified) and isinstance(request, m.Commit | m.CreateTable):
            self.made.setdefault((self._name(request), answer.version), number)
        if isinstance(answer, m.Unknown) and isinstance(request, m.Commit):
            self.unresolved[self._name(request), request.version] = number
        belongs = self.recording.ended(number, request, answer)
        exchange = Exchange(number=number, request=request, answer=answer)
        if isinstance(answer, m.Unknown) and answer.reason.startswith(RAISED):
            self.fail(
                "PROFILE-CORE-03", evidence=(exchange,), expected="one of the outcomes of the request",
                message=answer.reason,
            )  # fmt: skip
        if not belongs:
            message = f"`{name_of(request)}` was answered by {in_words(answer)}, which is no answer to it."
            self.fail(
                "PROFILE-CORE-03", evidence=(exchange,), expected="one of the outcomes of the request", message=message
            )
        return exchange

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
        """In-commit timestamps increase with the version."""
        return proposals.BASE_TIME + version * 1000

    def physical(self, name: str) -> str:
        """The name of a table as the subject hears it."""
        return f"{self.name}-{name}{self.salt}".replace("/", "-").replace("[", "-").replace("]", "")

    def logical(self, name: str) -> str:
        return name.removeprefix(self.physical("").removesuffix(self.salt)).removesuffix(self.salt) or name

    def creation(self, name: str = "orders", **options: Any) -> m.CreateTable:
        """A proposal of version 0, as a new attempt."""
        attempt = options.pop("attempt", None) or self.attempt()
        actions = proposals.version_0(self.feature, attempt, self.attempt(), timestamp=self.timestamp(0))
        return m.CreateTable(
            name=self.physical(name), feature=self.feature, commit_mode=self.commit_mode, attempt=attempt,
            **{"actions": actions, **options},
        )  # fmt: skip

    def create(self, name: str = "orders", client: str = "creator", **options: Any) -> TableHandle:
        """A table with its version 0, or the scenario is inconclusive."""
        exchange = self.ask(client, self.creation(name, **options))
        ratified = self.expect(
            exchange, m.Ratified, "PROFILE-VERSION0-01", "CM-CATALOG-03", "MC-API-03", may_refuse=True,
            expected="the only creator of a new name is answered `ratified` with version 0",
        )  # fmt: skip
        return self.created(name, exchange, ratified)

    def created(self, name: str, exchange: Exchange, ratified: m.Ratified) -> TableHandle:
        """The table that a `create_table` made."""
        if ratified.table is None or ratified.version != 0:
            self.fail("PROFILE-CORE-03", evidence=(exchange,), expected="`ratified` with version 0 and the table",
                      message=f"`create_table` was answered by {in_words(ratified)}.")  # fmt: skip
        table = TableHandle(name=name, reference=ratified.table, versions=1)
        self.tables.append(table)
        return table

    def proposal(
        self, table: TableHandle, version: int | None = None, *, attempt: str | None = None,
        actions: Sequence[str] | None = None,
    ) -> m.Commit:  # fmt: skip
        """A commit that adds one file; without a version, the next one."""
        number = table.versions if version is None else version
        own = attempt or self.attempt()
        content = proposals.append(own, self.timestamp(number)) if actions is None else tuple(actions)
        return m.Commit(table=table.reference, version=number, attempt=own, actions=content)

    def commit(
        self, table: TableHandle, version: int | None = None, client: str = "writer", **options: Any
    ) -> Exchange:
        """Propose, once."""
        return self.ask(client, self.proposal(table, version, **options))

    def land(self, table: TableHandle, client: str = "writer", **options: Any) -> Exchange:
        """Commit the next version: nothing stands in the way. A subject that refuses by its own policy is asked again
        with new attempts, `TRIES` times; then the scenario is inconclusive."""
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

    def land_all(self, table: TableHandle, number: int, client: str = "writer") -> list[Exchange]:
        """Commit the next `number` versions."""
        return [self.land(table, client=client) for _ in range(number)]

    def contend(self, table: TableHandle, version: int, client: str = "writer", **options: Any) -> Exchange:
        """Propose a version that is taken: a conflict, and never a success. A subject that refuses by its own policy
        is asked again with new attempts; one that refuses all of them calls a lost race something else."""
        exchange = persist(lambda: self.commit(table, version, client=client, **options))
        broken: tuple[str, ...] = ()
        if isinstance(exchange.answer, m.Ratified):
            elsewhere = exchange.answer.version != version
            broken = ("MC-API-03", "CM-CATALOG-03") if elsewhere else ("MC-COMMIT-02", "CM-COMMIT-08")
        self.expect(exchange, m.Conflict, *broken, "PROFILE-CORE-04",
                    expected=f"version {version} is taken: the proposal is answered as a conflict, so that its writer "
                    f"knows to rebase and propose again")  # fmt: skip
        return exchange

    def get_commits(
        self, table: TableHandle, start: int | None = None, end: int | None = None, client: str = "reader"
    ) -> m.Commits:
        exchange = self.ask(client, m.GetCommits(table=table.reference, start=start, end=end))
        return self.expect(exchange, m.Commits, "PROFILE-CORE-03", expected="the commits and the latest version")

    def ask_to_backfill(self, table: TableHandle, version: int, client: str = "publisher") -> Exchange:
        """A request that is refused for now (`retryable`) is sent again, `TRIES` times; then the scenario is
        inconclusive."""
        for _ in range(TRIES):
            exchange = self.ask(client, m.BackfillToVersion(table=table.reference, version=version))
            if not _refused_for_now(exchange.answer):
                return exchange
        raise Inconclusive(f"operation {exchange.number}: {TRIES} times refused for now: {in_words(exchange.answer)}")

    def backfill(self, table: TableHandle, version: int, client: str = "publisher") -> Exchange:
        """Backfill up to a ratified version; it must succeed. A catalog may leave all publishing to clients that do it
        themselves (catalog-managed, "Publishing Commits"): then the scenario is inconclusive."""
        exchange = self.ask_to_backfill(table, version, client)
        if self.feature == "catalogManaged" and isinstance(exchange.answer, m.Unsupported | m.Rejected):
            raise Inconclusive(
                f"operation {exchange.number}: the owner does not publish on request: {exchange.answer.reason}"
            )
        self.expect(exchange, m.Done, "MC-BACKFILL-05", "PROFILE-CORE-03",
                    expected=f"version {version} is ratified: `done` when it is published")  # fmt: skip
        return exchange

    def observe(self, table: TableHandle, client: str = "observer") -> list[m.LogFile]:
        """All files of the log, with contents. A version that the listing lacks was looked for too: there was a moment
        during the listing at which it was not there, and no more than that is concluded."""
        since = self.recording.now()
        request = m.Observe(table=table.reference)
        answer = self.subject.ask(client, request)
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
        """Content by version, of the published commits that an external observer sees."""
        versions = [(version_of(file.name), file.content or "") for file in self.observe(table)]
        return {version: content for version, content in versions if version is not None}

    # Demands

    def expect(
        self, exchange: Exchange, kinds: type[A] | tuple[type[A], ...], *requirements: str, expected: str,
        may_refuse: bool = False, because: Sequence[Exchange] = (), what: str = "",
    ) -> A:  # fmt: skip
        """The answer, which must be of the kind. `may_refuse`: a `rejected` leaves the scenario inconclusive; so does,
        always, an outcome that stayed unknown. `because`: the operations that make it the only right answer. `what`:
        the request in words, for the headline."""
        answer: Any = exchange.answer
        if isinstance(answer, kinds):
            return answer
        if isinstance(answer, m.Unknown):
            raise Inconclusive(f"operation {exchange.number}: the outcome stayed unknown: {answer.reason}")
        if isinstance(answer, m.Rejected) and may_refuse:
            raise Inconclusive(f"operation {exchange.number} was refused, which its owner may do: {answer.reason}")
        if isinstance(answer, m.Unsupported):
            self.fail("PROFILE-CORE-07", evidence=(exchange,), expected=expected,
                      message=f"`{name_of(exchange.request)}` is unsupported, but a declared profile needs it: "
                      f"{answer.reason}")  # fmt: skip
        version = getattr(exchange.request, "version", None)
        asked = what or f"`{name_of(exchange.request)}`{'' if version is None else f' of version {version}'}"
        return self.fail(*requirements, evidence=(exchange, *because), expected=expected,
                         observed=f"{asked} was answered {in_words(answer)}")  # fmt: skip

    def require(
        self, condition: bool, *requirements: str, evidence: Sequence[Exchange] = (), expected: str, observed: str = "",
        table: TableHandle | None = None, version: int | None = None,
    ) -> None:  # fmt: skip
        """Something that must be so."""
        if not condition:
            self.fail(
                *requirements, evidence=evidence, expected=expected, observed=observed, table=table, version=version
            )

    def fail(
        self, *requirements: str, evidence: Sequence[Exchange] = (), expected: str, observed: str = "",
        message: str = "",
        table: TableHandle | None = None, version: int | None = None,
    ) -> NoReturn:  # fmt: skip
        """These requirements are violated, as far as the subject is held to them."""
        held = tuple(each for each in requirements if applies(each, self.identity, self.variant))
        if not held:
            raise AssertionError(f"{self.name}: none of {requirements} holds for {self.variant} and these profiles")
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
        """The operations that contradict each other. Beside one alone: the look at the files that showed it, or the
        commit that made the version which it is about, or else the newest one."""
        numbers = [exchange.number for exchange in evidence]
        if len(numbers) < 2 and self.looked is not None:
            numbers.append(self.looked)
        if len(numbers) == 1:
            request = evidence[0].request if evidence else None
            name = table.name if table is not None else NOWHERE if request is None else self._name(request)
            made = {each: number for (log, each), number in self.made.items() if log == name and number not in numbers}
            about: int | None = getattr(request, "version", 0) if version is None else version
            if about is not None and about in made:
                numbers.append(made[about])
            elif made and isinstance(request, m.Commit):
                numbers.append(made[max(made)])
        return tuple(numbers)

    # The end

    def audit(self) -> list[Violation]:
        """What else is wrong, beside the scenario's demands and what its history shows."""
        return []

    def conclude(self) -> str:
        """Ask for the final log of every table, and complete the history. Of a table whose log cannot be read, what is
        on record is judged. Returns why the first of these cannot be read; empty if all were."""
        if self.mortal and not self.broken:
            self.subject.ask("kit", m.Restart())
        unseen = list(self._find_the_rest())
        logs: list[list[events.Witness]] = []
        for table in self.tables:
            try:
                logs.append(self.log_of(table) if table.final is None else table.final)
            except Inconclusive as error:
                unseen.append(self._unseen(table.name, error.reason, table))
        for log in logs:
            self.recording.final_log(log)
        for each in unseen:
            self.recording.unseen(each)
        self.recording.complete()
        return unseen[0].reason if unseen else ""

    def _unseen(self, name: str, reason: str, table: TableHandle | None = None) -> events.Unseen:
        """Filesystem writers and ownership changes make commits by their being visible, whatever the commit mode."""
        filesystem = table is None or table.path is not None or bool(table.ownership)
        mode = None if filesystem or self.commit_mode == "direct" else self.commit_mode
        before = 0 if table is None else table.before
        return events.Unseen(table=name, reason=reason, before=before, commit_mode=mode)  # type: ignore[arg-type]

    def _find_the_rest(self) -> Iterator[events.Unseen]:
        """Tables of which the scenario has no handle, because it ended before it got one; those that cannot be looked
        up any more are returned."""
        for name in sorted(self.recording.tables - {table.name for table in self.tables} - {NOWHERE}):
            try:
                found = self._looked_up(m.LoadTable(name=self.physical(name)), name)
            except Inconclusive as error:
                yield self._unseen(name, error.reason)
                continue
            if isinstance(found, m.Table):
                self.tables.append(TableHandle(name=name, reference=found.table, versions=0))
            elif self.violations:
                yield self._unseen(name, f"the final log of {name} cannot be seen: the table was not found")

    def log_of(self, table: TableHandle) -> list[events.Witness]:
        """The log as it is now: what is published, and what the owner lists. Raises `Inconclusive`, also if a violation
        is on record already and the list ends before the latest version: a commit that is not listed is not lost."""
        listed = self._looked_up(m.GetCommits(table=table.reference), table.name)
        seen = self._looked_up(m.Observe(table=table.reference), table.name)
        if not isinstance(seen, m.Observation):
            raise Inconclusive(f"the final log of {table.name} cannot be seen: {in_words(seen)}")
        commits = listed.commits if isinstance(listed, m.Commits) else ()  # a table that is given back has no owner
        self.recording.seen(seen.files, commits)
        log = witnesses(
            table.name,
            seen.files,
            commits,
            commit_mode=self.commit_mode,
            before=table.before,
            ownership=table.ownership,
        )
        known = max((each.version for each in log), default=-1)
        if self.violations and isinstance(listed, m.Commits) and listed.latest is not None and listed.latest > known:
            raise Inconclusive(
                f"the final log of {table.name} cannot be seen: the latest version is {listed.latest}, and versions "
                f"above {known} are neither listed nor published"
            )
        return log

    def _looked_up(self, request: m.Request, name: str) -> m.Answer:
        """Asked once more after an unknown outcome, and again while it is refused for now. Raises `Inconclusive`."""
        if self.broken:
            raise Inconclusive(f"the final log of {name} cannot be seen: the subject does not speak the interface")
        answer = self.subject.ask("kit", request)
        tries = 1
        while (_refused_for_now(answer) and tries < TRIES) or (isinstance(answer, m.Unknown) and tries < 2):
            answer = self.subject.ask("kit", request)
            tries += 1
        if isinstance(answer, m.Unknown) or _refused_for_now(answer):
            raise Inconclusive(f"the final log of {name} cannot be seen: {in_words(answer)}")
        return answer
