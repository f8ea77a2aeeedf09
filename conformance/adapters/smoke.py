"""The first requests to a subject: do they show a broken adapter, or a broken owner?

An adapter is broken if its answers mean nothing: `hello` contradicts itself, an operation is missing, a file has no
name that the kit could find again. An owner is broken if its answers mean something that is wrong. The former must be
repaired before any verdict is possible; of the latter the checks of a run say more.

Every step says what was asked, what came, what the interface asks for, and where the page explains it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, NoReturn, TypeVar

import msgspec

from conformance.adapters import wire
from conformance.adapters.in_process import RAISED
from conformance.adapters.smoke_client import ReadableTable
from conformance.adapters.smoke_identity import contradictions
from conformance.adapters.smoke_log import Log
from conformance.adapters.smoke_report import PAGE, Outcome, SmokeReport, Step
from conformance.interface import messages as m
from conformance.interface.messages import name_of
from conformance.interface.subject import AdapterError, Subject
from conformance.models import proposals
from conformance.scenario.adversary import ClientHost

CORE: Final = (m.CreateTable, m.Commit, m.GetCommits, m.BackfillToVersion, m.Observe)
"""Operations of every owner."""
TRIES: Final = 5
"""Proposals of the same kind, to an owner that refuses."""

A = TypeVar("A", bound=m.Message)
P = TypeVar("P", m.CreateTable, m.Commit)


def smoke(subject: Subject, host: ClientHost | None = None) -> SmokeReport:
    """Ask the first questions. What the subject does beyond that is not looked at. `host`: where a client under test
    finds the kit's own owner. Never raises: answers that mean nothing are steps of the report, too."""
    return _Smoke(subject, host).run()


class _StepFailedError(Exception):
    def __init__(self, outcome: Outcome, says: str, see: str) -> None:
        super().__init__(says)
        self.outcome = outcome
        self.says = says
        self.see = see


@dataclass(slots=True, kw_only=True)
class _Table:
    """A table of the smoke test. `proposals`: what was ratified, by version."""

    feature: str
    commit_mode: str
    name: str
    reference: str = ""
    proposed: dict[int, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    location: str | None = None

    def __str__(self) -> str:
        return f"{self.feature}/{self.commit_mode}"


class _Smoke:
    def __init__(self, subject: Subject, host: ClientHost | None) -> None:
        self.subject = subject
        self.host = host
        self.identity = subject.identity
        self.steps: list[Step] = []
        self.salt = uuid.uuid4().hex[:8]
        self.request: m.Request | None = None
        self.answer: m.Answer | None = None
        self.unreadable: set[str] = set()
        """What was wrong with answers that are none."""

    def run(self) -> SmokeReport:
        if self._step("hello, again", self._hello) and self._step("who it says it is", self._identity):
            if self.identity.side == "owner":
                self._owner()
            else:
                self._client()
        return SmokeReport(identity=self.identity, steps=tuple(self.steps))

    # Steps

    def _step(self, name: str, action: Callable[[], None]) -> bool:
        """Whether it succeeded."""
        self.request = self.answer = None
        try:
            action()
        except _StepFailedError as failed:
            came = "" if self.answer is None else wire.shown(wire.encode(self.answer))
            self._failed(name, failed.outcome, failed.says, came, failed.see)
        except AdapterError as error:
            self._unreadable(name, error)
        else:
            self.steps.append(Step(name=name, outcome=Outcome.OK))
            return True
        return False

    def _failed(self, name: str, outcome: Outcome, says: str, came: str, see: str) -> None:
        asked = "" if self.request is None else wire.shown(wire.encode(self.request))
        self.steps.append(Step(name=name, outcome=outcome, says=says, asked=asked, came=came, see=f"{PAGE}#{see}"))

    def _unreadable(self, name: str, error: AdapterError) -> None:
        """What came is no answer. The next steps are tried all the same: other operations may be understood."""
        if error.problem in self.unreadable:  # so says a transport that asks no more
            self._skip(name, "nothing can be asked any more: see the `adapter` step above")
            return
        self.unreadable.add(error.problem)
        see = "hello" if self.request is None else name_of(self.request)
        self._failed(name, Outcome.ADAPTER, error.says or error.problem, error.came, see)

    def _skip(self, name: str, because: str) -> None:
        self.steps.append(Step(name=name, outcome=Outcome.SKIPPED, says=because))

    def _ask(self, request: m.Request, client: str = "smoke") -> m.Answer:
        self.request, self.answer = request, None
        self.answer = self.subject.ask(client, request)
        return self.answer

    def _expect(self, request: m.Request, kind: type[A], says: str, *, see: str = "") -> A:
        """The answer, of that kind."""
        answer: Any = self._ask(request)
        return answer if isinstance(answer, kind) else self._otherwise(request, says, see)

    def _ratified(self, proposal: Callable[[], P], says: str) -> tuple[P, m.Ratified]:
        """A proposal that was ratified. An owner may refuse some by a policy of its own; not all of them."""
        for _ in range(TRIES):
            request = proposal()
            if not isinstance(self._ask(request), m.Rejected):
                break
        answer: Any = self.answer
        return request, answer if isinstance(answer, m.Ratified) else self._otherwise(request, says)

    def _otherwise(self, request: m.Request, says: str, see: str = "") -> NoReturn:
        """It was not answered as it should be. No answer, or no such operation, is the adapter's fault; but what a
        subject in this process raises, and a profile without its operations, are things that the checks judge."""
        where = see or name_of(request)
        if isinstance(self.answer, m.Unknown) and not self.answer.reason.startswith(RAISED):
            self._broken(f"no answer came; {says}", where)
        if isinstance(self.answer, m.Unsupported):
            if isinstance(request, CORE):
                self._broken(f"every owner has this operation; {says}", where)
            self._wrong(f"a profile that `hello` declares needs this operation; {says}", where)
        self._wrong(says, where)

    def _broken(self, says: str, see: str) -> NoReturn:
        raise _StepFailedError(Outcome.ADAPTER, says, see)

    def _wrong(self, says: str, see: str) -> NoReturn:
        raise _StepFailedError(Outcome.OWNER, says, see)

    # Who is there

    def _hello(self) -> None:
        answer = self._ask(m.Hello())
        if answer != self.identity:
            self._broken("`hello` is answered the same every time, by `identity`", "hello")

    def _identity(self) -> None:
        self.request, self.answer = m.Hello(), self.identity
        found = contradictions(self.identity)
        if found:
            self._broken("; ".join(found), "hello")

    # An owner

    def _owner(self) -> None:
        self._step("a table that does not exist", self._no_table)
        tables = []
        for feature in self.identity.features:
            for commit_mode in self.identity.commit_modes[feature]:
                table = _Table(
                    feature=feature, commit_mode=commit_mode, name=f"smoke-{feature}-{commit_mode}-{self.salt}"
                )
                if self._one_table(table):
                    tables.append(table)
        self._profiles(tables)

    def _no_table(self) -> None:
        says = "a table that was never created is answered by `not_found`"
        request = m.GetCommits(table=f"smoke-nobody-created-this-{self.salt}")
        if not isinstance(self._ask(request), m.NotFound | m.Rejected):
            self._otherwise(request, says)

    def _one_table(self, table: _Table) -> bool:
        steps: list[tuple[str, Callable[[], None]]] = [
            ("create_table", lambda: self._create(table)),
            ("commit of version 1", lambda: self._commit(table)),
            ("get_commits and observe", lambda: self._look(table)),
            ("commit of version 1 by another attempt", lambda: self._conflict(table)),
            ("backfill_to_version", lambda: self._backfill(table)),
        ]
        for number, (name, action) in enumerate(steps):
            if not self._step(f"{table}: {name}", action):
                for left, _ in steps[number + 1 :]:
                    self._skip(f"{table}: {left}", "a step before it failed")
                return False
        return True

    def _create(self, table: _Table) -> None:
        request, ratified = self._ratified(
            lambda: self._creation(table), "the only creator of a new name is answered by `ratified`"
        )
        if ratified.table is None:
            self._broken("`ratified` as the answer to `create_table` names the table, in `table`", "create_table")
        if ratified.version != 0:
            self._wrong("a table is created with version 0", "create_table")
        table.reference = ratified.table
        table.proposed[0] = (request.attempt, request.actions)

    def _creation(self, table: _Table) -> m.CreateTable:
        attempt, identifier = str(uuid.uuid4()), str(uuid.uuid4())
        actions = proposals.version_0(table.feature, attempt, identifier)
        return m.CreateTable(
            name=table.name, feature=table.feature, commit_mode=table.commit_mode, attempt=attempt, actions=actions
        )

    def _append(self, table: _Table) -> m.Commit:
        attempt = str(uuid.uuid4())
        actions = proposals.append(attempt, proposals.BASE_TIME + 1000)
        return m.Commit(table=table.reference, version=1, attempt=attempt, actions=actions)

    def _commit(self, table: _Table) -> None:
        request, ratified = self._ratified(lambda: self._append(table), "version 1 comes after version 0: `ratified`")
        if ratified.version != 1:
            self._wrong("`ratified` tells the version that was proposed, 1", "commit")
        table.proposed[1] = (request.attempt, request.actions or ())

    def _look(self, table: _Table) -> None:
        """Every ratified version is listed or published, and its attempt and content can be seen."""
        listed = self._expect(m.GetCommits(table=table.reference), m.Commits, "the commits and the latest version")
        unaware = 0 if table.commit_mode == "direct" else None  # of a direct commit an owner may not have heard yet
        if listed.latest not in (None, -1, 1, unaware):
            self._wrong("version 1 is the latest that was ratified: `latest` is 1", "get_commits")
        seen = self._expect(m.Observe(table=table.reference), m.Observation, "the files of the log, with contents")
        log = Log(listed, seen)
        with self._blame():
            log.check_names()
            for version, (attempt, actions) in table.proposed.items():
                log.check_version(version, attempt, actions)

    def _conflict(self, table: _Table) -> None:
        self._expect(self._append(table), m.Conflict, "version 1 is taken by another attempt: `conflict`")

    def _backfill(self, table: _Table) -> None:
        request = m.BackfillToVersion(table=table.reference, version=1)
        for _ in range(TRIES - 1):
            answer = self._ask(request)
            if not isinstance(answer, m.Rejected) or not answer.retryable:
                break
        self._expect(request, m.Done, "`done` when version 1 is published")
        seen = self._expect(m.Observe(table=table.reference), m.Observation, "the files of the log, with contents")
        with self._blame():
            Log(m.Commits(commits=(), latest=None), seen).check_version(1, *table.proposed[1])

    @contextmanager
    def _blame(self) -> Iterator[None]:
        """What `Log` finds is the adapter's fault, or the owner's."""
        try:
            yield
        except Log.UnreadableError as error:
            self._broken(str(error), "observe")
        except Log.WrongError as error:
            self._wrong(str(error), "get_commits")

    # What it promises

    def _profiles(self, tables: list[_Table]) -> None:
        """One request for each declared profile, which must not be `unsupported`."""
        tries: dict[str, Callable[[_Table], None]] = {
            "idempotent-retry": self._replay,
            "attempt-outcome": self._outcome,
            "maintenance-policy": self._policy,
            "backlog-limit": self._backlog,
            "storage-access": self._plant,
            "ownership-transfer": self._transfer,
            "harness-control": self._crash,
            "durable-restart": self._restart,
            "discovery": self._discover,
        }
        for profile, action in tries.items():
            if profile in self.identity.profiles:
                if tables:
                    self._step(f"profile {profile}", lambda action=action: action(tables[0]))  # type: ignore[misc]
                else:
                    self._skip(f"profile {profile}", "there is no table to try it on")

    def _sent(self, table: _Table) -> m.Commit:
        attempt, actions = table.proposed[1]
        return m.Commit(table=table.reference, version=1, attempt=attempt, actions=actions)

    def _replay(self, table: _Table) -> None:
        self._expect(self._sent(table), m.Ratified, "an attempt that landed is `ratified` again", see="profiles")

    def _outcome(self, table: _Table) -> None:
        request = m.AttemptOutcome(table=table.reference, attempt=table.proposed[1][0])
        landed = self._expect(request, m.Landed, "the attempt is version 1: `landed`")
        if landed.version != 1:
            self._wrong("the attempt landed as version 1", "attempt_outcome")

    def _policy(self, table: _Table) -> None:
        self._expect(m.MaintenancePolicy(table=table.reference), m.Policy, "which maintenance is allowed: `policy`")

    def _backlog(self, table: _Table) -> None:
        limited = replace(table, name=f"{table.name}-limited")
        self._ratified(
            lambda: msgspec.structs.replace(self._creation(limited), backlog_limit=1),
            "a table with a limit for its backlog can be created",
        )

    def _plant(self, table: _Table) -> None:
        name = "smoke.txt"
        self._expect(m.Plant(table=table.reference, file=name, content="x\n"), m.Done, "`done`: the file is there")
        seen = self._expect(m.Observe(table=table.reference), m.Observation, "the files of the log, with contents")
        if not any(file.name == name and file.content == "x\n" for file in seen.files):
            self._wrong(f"`observe` does not show {name!r}, which was planted a moment ago", "plant")
        self._expect(m.Remove(table=table.reference, file=name), m.Done, "`done`: the file is gone")

    def _transfer(self, table: _Table) -> None:
        """A hand-back may be refused; the operation must exist."""
        attempt = str(uuid.uuid4())
        actions = (
            proposals.commit_info(attempt, proposals.BASE_TIME + 2000),
            proposals.protocol(None),
            proposals.metadata(str(uuid.uuid4()), proposals.BASE_TIME),
        )
        # Not of the next version, so that the table stays this owner's.
        request = m.HandBack(table=table.reference, version=1, attempt=attempt, actions=actions)
        answer = self._ask(request)
        if isinstance(answer, m.Unknown | m.Unsupported):
            self._otherwise(request, "`hand_back` of a version that is taken is answered by `conflict`, or refused")
        if isinstance(answer, m.Ratified):
            self._wrong("version 1 is taken: nothing else can become it", "hand_back")

    def _crash(self, table: _Table) -> None:
        self._expect(m.Crash(), m.Done, "`done`: it is dead")
        self._restart(table)

    def _restart(self, table: _Table) -> None:
        self._expect(m.Restart(), m.Done, "`done`: it has started again")
        seen = self._expect(m.Observe(table=table.reference), m.Observation, "the table is there after a restart")
        with self._blame():
            Log(m.Commits(commits=(), latest=None), seen).check_version(1, *table.proposed[1])

    def _discover(self, table: _Table) -> None:
        found = self._expect(m.LoadTable(name=table.name), m.Table, "the table is found by its name: `table`")
        if found.table != table.reference:
            self._wrong("it is the table that `create_table` answered", "load_table")
        self._expect(m.DropTable(table=table.reference), m.Done, "`done`: nobody finds it any more")
        answer = self._ask(m.LoadTable(name=table.name))
        if not isinstance(answer, m.NotFound):
            self._wrong("a table that was dropped is answered by `not_found`", "load_table")

    # A client

    def _client(self) -> None:
        """Its operations need the kit's own owner."""
        for feature in self.identity.features:
            if self.host is None:
                self._skip(f"{feature}: a snapshot", "it needs the kit's own owner, which a run has")
            else:
                with ReadableTable(self.host, feature) as table:
                    self._step(f"{feature}: a snapshot", lambda table=table: self._read(table))  # type: ignore[misc]

    def _read(self, table: ReadableTable) -> None:
        says = f"the newest version is {table.version}, published, with the file {table.files[0]!r}: `snapshot_read`"
        answer = self._ask(m.Snapshot(table=table.name))
        if isinstance(answer, m.Unsupported):
            return  # a writer or a maintenance job that reads nothing for others
        if not isinstance(answer, m.SnapshotRead):
            self._otherwise(m.Snapshot(table=table.name), says, "a-client-instead-of-an-owner")
        if (answer.version, answer.files) != (table.version, table.files):
            self._wrong(says, "a-client-instead-of-an-owner")
