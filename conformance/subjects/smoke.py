"""The smoke test: the first requests to a subject, which separate a broken adapter from a broken owner.

An adapter is broken if its answers are invalid: `hello` contradicts itself, or a file name is not relative to the log.
No verdict is possible until it is repaired. An owner is broken if its answers are valid but wrong, or an operation is
missing; the checks of a run find out more, and try the operations of the declared profiles.

Every failed step has the request, the answer, what the interface expects, and the section of the page about it.
"""

import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn, Self, TypeVar

from conformance.adapters import wire
from conformance.adapters.identity import COMMIT_MODE_OF, contradictions
from conformance.adapters.in_process import RAISED
from conformance.interface import messages as m
from conformance.interface.log_names import FILESYSTEM, attempt_of, commit_file
from conformance.interface.messages import name_of
from conformance.interface.results import UnusableError
from conformance.interface.subject import GONE, LONG_PAUSES, AdapterError, Closing, Subject, patiently
from conformance.models import proposals
from conformance.models.client_owner import ClientOwner
from conformance.models.storage import FolderStorage
from conformance.scenario.adversary import Adversary, ClientHost

PAGE: Final = "conformance/TEST_YOUR_OWNER.md"
LOG_FOLDER: Final = "_delta_log/"
MISSING: Final = "every owner needs this operation"
HELLO: Final = 2
"""The number of steps that only need `hello`."""
TRIES: Final = 5
"""How often a request is sent at most: an owner may reject some because of a policy."""
CLIENT_SECTION: Final = "a-client-instead-of-an-owner"
LATE: Final = "no answer within"
"""The beginning of the transports' reason for an answer that did not come in time."""
PROPOSALS: Final = (m.CreateTable, m.Commit, m.TakeOver, m.HandBack)

A = TypeVar("A")
P = TypeVar("P", m.CreateTable, m.Commit)


class Outcome(StrEnum):
    """The outcome of a step."""

    OK = "ok"
    ADAPTER = "adapter"
    """The adapter is broken."""
    OWNER = "owner"
    """The adapter works, but the answer of the owner, or of the client under test, is wrong."""
    SKIPPED = "skipped"
    """An earlier step failed, or the client does not implement the operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the smoke test."""

    name: str
    outcome: Outcome
    request: str = ""
    """The last request, as JSON."""
    answer: str = ""
    """Its answer, as JSON."""
    detail: str = ""
    """What the interface expects, or why the step was skipped."""
    see: str = ""
    """The section about it on the page TEST_YOUR_OWNER.md."""

    def __str__(self) -> str:
        if not self.detail:
            return f"{self.outcome:<8} {self.name}"
        facts = [f"request: {self.request}"] if self.request else []
        facts += [f"answer: {self.answer}"] if self.answer else []
        where = [f"see: {self.see}"] if self.see else []
        return "\n           ".join([f"{self.outcome:<8} {self.name}: {self.detail}", *facts, *where])


@dataclass(frozen=True, slots=True, kw_only=True)
class SmokeReport:
    """All steps, in order."""

    identity: m.Identity
    steps: tuple[Step, ...]

    @property
    def ok(self) -> bool:
        """Whether at least one step after those of `hello` succeeded, and none failed."""
        return not self.adapter and not self.owner and any(step.outcome is Outcome.OK for step in self.steps[HELLO:])

    @property
    def adapter(self) -> str:
        """The failed steps of the adapter, as text."""
        return self._problems(Outcome.ADAPTER)

    @property
    def owner(self) -> str:
        """The failed steps of the owner, as text."""
        return self._problems(Outcome.OWNER)

    def _problems(self, outcome: Outcome) -> str:
        return "\n".join(str(step) for step in self.steps if step.outcome is outcome)

    def __str__(self) -> str:
        who = f"{self.identity.name} {self.identity.version} ({self.identity.side})"
        if self.adapter:
            verdict = "the adapter is broken; fix it to get a verdict"
        elif self.owner:
            missing = all(MISSING in step.detail for step in self.steps if step.outcome is Outcome.OWNER)
            wrong = "operations are missing" if missing else f"the {self.identity.side}'s answers are wrong"
            verdict = f"the adapter works; {wrong}"
        elif self.ok:
            verdict = f"the adapter works, and the {self.identity.side}'s answers are correct"
        else:
            verdict = "only `hello` was answered; nothing else was tested"
        return "\n".join([f"{who}: {verdict}", *map(str, self.steps)])


def first_hello(received: str, expected: str) -> Step:
    """The failed step for an invalid answer to the first `hello`. No other request is sent after it."""
    request = wire.shown(wire.encode(m.Hello()))
    return Step(
        name="hello", outcome=Outcome.ADAPTER, detail=expected, request=request, answer=received, see=f"{PAGE}#hello"
    )


# The requests


def smoke(subject: Subject, host: ClientHost | None = None, reopen: Callable[[], Subject] | None = None) -> SmokeReport:
    """Send the first requests. `host`: serves the kit's own owner to a client under test. `reopen`: closes the subject
    and starts it again with another, empty folder. An invalid answer is a failed step; this function raises no
    error."""
    return _Smoke(subject, host, reopen).run()


class _StepSkippedError(Exception):
    """The client does not implement the operation."""


class _StepFailedError(Exception):
    def __init__(self, outcome: Outcome, detail: str, see: str) -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.detail = detail
        self.see = see


@dataclass(slots=True, kw_only=True)
class _Table:
    """A table of the smoke test. `proposed`: the attempt of each ratified version."""

    feature: str
    commit_mode: str
    name: str
    reference: str = ""
    proposed: dict[int, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.feature}/{self.commit_mode}"


class _Smoke:
    def __init__(self, subject: Subject, host: ClientHost | None, reopen: Callable[[], Subject] | None) -> None:
        self.subject = subject
        self.host = host
        self.reopen = reopen
        self.identity = subject.identity
        self.steps: list[Step] = []
        self.salt = uuid.uuid4().hex[:8]
        self.request: m.Request | None = None
        self.answer: m.Answer | None = None
        self.unreadable: set[str] = set()
        """The problems of invalid answers so far."""

    def run(self) -> SmokeReport:
        if self._step("repeated hello", self._hello) and self._step("identity", self._identity):
            if self.identity.side == "owner":
                self._owner()
            else:
                self._client()
        return SmokeReport(identity=self.identity, steps=tuple(self.steps))

    # Steps

    def _step(self, name: str, action: Callable[[], None]) -> bool:
        """Run a step. Returns whether it succeeded."""
        self.request = self.answer = None
        try:
            action()
        except _StepFailedError as failed:
            answer = "" if self.answer is None else wire.shown(wire.encode(self.answer))
            self._failed(name, failed.outcome, failed.detail, answer, failed.see)
        except AdapterError as error:
            self._unreadable(name, error)
        except _StepSkippedError as skipped:
            self._skip(name, str(skipped))
        else:
            self.steps.append(Step(name=name, outcome=Outcome.OK))
            return True
        return False

    def _failed(self, name: str, outcome: Outcome, detail: str, answer: str, see: str) -> None:
        request = "" if self.request is None else wire.shown(wire.encode(self.request))
        see = f"{PAGE}#{see}"
        self.steps.append(Step(name=name, outcome=outcome, detail=detail, request=request, answer=answer, see=see))

    def _unreadable(self, name: str, error: AdapterError) -> None:
        """Record an invalid answer. Later steps still run, because other operations may work."""
        if error.problem in self.unreadable:  # the transport sends no more requests
            self._skip(name, "no more requests are possible: see the `adapter` step above")
            return
        self.unreadable.add(error.problem)
        see = "hello" if self.request is None else name_of(self.request)
        self._failed(name, Outcome.ADAPTER, error.expected or error.problem, error.received, see)

    def _skip(self, name: str, because: str) -> None:
        self.steps.append(Step(name=name, outcome=Outcome.SKIPPED, detail=because))

    def _ask(self, request: m.Request, client: str = "smoke") -> m.Answer:
        """The answer. A request with a retryable rejection is repeated; so is, if that is harmless, a request that the
        subject itself answered `unknown`."""
        self.request, self.answer = request, None
        repeatable = not isinstance(request, PROPOSALS) or "idempotent-retry" in self.identity.profiles
        for _ in range(TRIES):
            self.answer = answer = patiently(partial(self.subject.ask, client, request), LONG_PAUSES)
            lost = isinstance(answer, m.Unknown) and not answer.reason.startswith((RAISED, GONE, LATE))
            if not (lost and repeatable):
                break
        return answer

    def _expect(self, request: m.Request, kind: type[A], expected: str) -> A:
        """The answer, which must be of that kind."""
        answer: Any = self._ask(request)
        return answer if isinstance(answer, kind) else self._wrong_kind(request, expected)

    def _ratified(self, proposal: Callable[[], P], expected: str) -> tuple[P, m.Ratified]:
        """A ratified proposal, with its answer. An owner may reject some proposals because of a policy, but not all."""
        for _ in range(TRIES):
            request = proposal()
            if not isinstance(sent := self._ask(request), m.Rejected) or sent.retryable:
                break
        answer: Any = self.answer
        return request, answer if isinstance(answer, m.Ratified) else self._wrong_kind(request, expected)

    def _wrong_kind(self, request: m.Request, expected: str, see: str = "") -> NoReturn:
        """Report an answer of another kind. A missing answer is the adapter's error. An exception in this process, or a
        missing operation, is the owner's error."""
        where = see or name_of(request)
        if isinstance(self.answer, m.Unknown) and not self.answer.reason.startswith(RAISED):
            self._broken(f"{self.answer.reason or 'the outcome is `unknown`'}; expected {expected}", where)
        if isinstance(self.answer, m.Unsupported):
            self._wrong(f"{MISSING}; expected {expected}", where)
        self._wrong(f"expected {expected}", where)

    def _broken(self, detail: str, see: str) -> NoReturn:
        raise _StepFailedError(Outcome.ADAPTER, detail, see)

    def _wrong(self, detail: str, see: str) -> NoReturn:
        raise _StepFailedError(Outcome.OWNER, detail, see)

    # hello

    def _hello(self) -> None:
        answer = self._ask(m.Hello())
        if answer != self.identity:
            self._broken("`hello` must always be answered by the same `identity`", "hello")

    def _identity(self) -> None:
        self.request, self.answer = m.Hello(), self.identity
        problems = contradictions(self.identity)
        if problems:
            self._broken("; ".join(problems), "hello")

    # An owner

    def _owner(self) -> None:
        self._step("get_commits of an unknown table", self._no_table)
        tables = []
        for feature in self.identity.features:
            for commit_mode in self.identity.commit_modes[feature]:
                table = _Table(
                    feature=feature, commit_mode=commit_mode, name=f"smoke_{feature}_{commit_mode}_{self.salt}"
                )
                if self._one_table(table):
                    tables.append(table)
        if self.reopen is not None and tables:
            kept = replace(tables[0], name=f"{tables[0].name}_kept", proposed={})
            self._step("empty folder", lambda: self._forgets_tables(kept))

    def _no_table(self) -> None:
        expected = "`not_found` for a table that was never created"
        request = m.GetCommits(table=f"smoke-unknown-{self.salt}")
        if not isinstance(self._ask(request), m.NotFound | m.Rejected):
            self._wrong_kind(request, expected)

    def _one_table(self, table: _Table) -> bool:
        steps: list[tuple[str, Callable[[], None]]] = [
            ("create_table", lambda: self._create(table)),
            ("commit of version 1", lambda: self._commit(table)),
            ("get_commits and observe", lambda: self._read_log(table)),
            ("commit of version 1 by another attempt", lambda: self._conflict(table)),
            ("backfill_to_version", lambda: self._backfill(table)),
        ]
        for number, (name, action) in enumerate(steps):
            if not self._step(f"{table}: {name}", action):
                for left, _ in steps[number + 1 :]:
                    self._skip(f"{table}: {left}", "an earlier step failed")
                return False
        return True

    def _create(self, table: _Table) -> None:
        request, ratified = self._ratified(
            lambda: self._creation(table), "`ratified` for the only creator of a new name"
        )
        if ratified.table is None:
            self._broken("`ratified` must name the table, in `table`, as the answer to `create_table`", "create_table")
        if ratified.version != 0:
            self._wrong(f"a table is created with version 0, not {ratified.version}", "create_table")
        table.reference = ratified.table
        table.proposed[0] = request.attempt

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
        request, ratified = self._ratified(lambda: self._append(table), "`ratified`: version 1 follows version 0")
        if ratified.version != 1:
            self._wrong(f"`ratified` must have the version that was proposed, 1, not {ratified.version}", "commit")
        table.proposed[1] = request.attempt

    def _read_log(self, table: _Table) -> None:
        """Every ratified version must be listed or published, with its attempt. A run compares the contents too."""
        listed = self._expect(m.GetCommits(table=table.reference), m.Commits, "the commits and the latest version")
        unaware = 0 if table.commit_mode == "direct" else None  # an owner may not know of a direct commit yet
        if listed.latest not in (None, -1, 1, unaware):
            self._wrong(f"`latest` must be 1, the latest ratified version, not {listed.latest}", "get_commits")
        seen = self._expect(m.Observe(table=table.reference), m.Observation, "the files of the log, with contents")
        log = Log(listed, seen)
        with self._attributed():
            log.check_names()
            for version, attempt in table.proposed.items():
                log.check_version(version, attempt)

    def _conflict(self, table: _Table) -> None:
        self._expect(self._append(table), m.Conflict, "`conflict`: another attempt is version 1")

    def _backfill(self, table: _Table) -> None:
        request = m.BackfillToVersion(table=table.reference, version=1)
        self._expect(request, m.Done, "`done` after version 1 is published")
        seen = self._expect(m.Observe(table=table.reference), m.Observation, "the files of the log, with contents")
        with self._attributed():
            Log(m.Commits(commits=(), latest=None), seen).check_version(1, table.proposed[1])

    def _forgets_tables(self, table: _Table) -> None:
        """With another, empty folder the subject must not know a table that its earlier process created. Otherwise runs
        and workers would see each other's tables, and the kit would take that for wrong answers."""
        assert self.reopen is not None
        self._create(table)
        self.request = self.answer = None
        try:
            self.subject = self.reopen()
        except UnusableError as error:
            self._broken(
                f"it did not start again with an empty folder: {error.problem}. Every start gets a new folder in "
                "$CONFORMANCE_DIRECTORY; create in it what the subject needs, and use no file of an earlier start",
                "2-connect-it-to-the-kit-3-minutes",
            )
        if not isinstance(self._created_anew(replace(table, name=f"another_{table.name}")), m.Ratified):
            return  # then a rejection of the other name proves nothing
        answer = self._created_anew(table)
        if isinstance(answer, m.Conflict):
            self._state_outside(f"it answers that the table {table.name!r} exists")
        if isinstance(answer, m.Ratified) and answer.table is not None:
            self._has_no_old_attempts(table, answer.table)

    def _created_anew(self, table: _Table) -> m.Answer:
        """The answer to a new creation, which is sent again after a rejection by a policy."""
        for _ in range(TRIES - 1):
            if not isinstance(answer := self._ask(self._creation(table)), m.Rejected) or answer.retryable:
                return answer
        return self._ask(self._creation(table))

    def _has_no_old_attempts(self, table: _Table, reference: m.TableRef) -> None:
        old = set(table.proposed.values())
        listed = self._ask(m.GetCommits(table=reference))
        commits = listed.commits if isinstance(listed, m.Commits) else ()
        seen = self._ask(m.Observe(table=reference))
        files = seen.files if isinstance(seen, m.Observation) else ()
        contents = ["\n".join(commit.actions or ()) for commit in commits] + [file.content or "" for file in files]
        attempts = {attempt_of(commit.file_name or "") for commit in commits} | set(map(proposals.attempt_of, contents))
        if attempts & old:
            self._state_outside(f"the new table {table.name!r} has commits that were never sent to this process")

    def _state_outside(self, what: str) -> NoReturn:
        self._broken(
            f"it has state outside $CONFORMANCE_DIRECTORY: started again with an empty folder, {what}. Keep all state "
            f"below that folder, or separate the runs by its name: in a database, one schema or key prefix for each",
            "2-connect-it-to-the-kit-3-minutes",
        )

    @contextmanager
    def _attributed(self) -> Iterator[None]:
        """Turn an error of `Log` into an error of the adapter or of the owner."""
        try:
            yield
        except Log.UnreadableError as error:
            self._broken(str(error), "observe")
        except Log.WrongError as error:
            self._wrong(str(error), "get_commits")

    # A client

    def _client(self) -> None:
        """A client needs the kit's own owner."""
        for feature in self.identity.features:
            if self.host is None:
                self._skip(f"{feature}: a snapshot", "requires the kit's own owner, which only a run starts")
                continue
            with ReadableTable(self.host, feature, self.identity.commit_modes[feature][0]) as table:
                self._step(f"{feature}: a snapshot", lambda table=table: self._read(table))  # type: ignore[misc]
                self._step(f"{feature}: a transaction", lambda table=table: self._write(table))  # type: ignore[misc]

    def _read(self, table: "ReadableTable") -> None:
        expected = f"`snapshot_read` of version {table.version} with the file {table.files[0]!r}"
        answer = self._asked(m.Snapshot(table=table.name), m.SnapshotRead, expected)
        if (answer.version, answer.files) != (table.version, table.files):
            self._wrong(f"expected {expected}", CLIENT_SECTION)

    def _write(self, table: "ReadableTable") -> None:
        expected = f"`committed` as version {table.version + 1}"
        added = m.DataFile(path="part-00001-smoke.snappy.parquet")
        request = m.Transact(table=table.name, marker=str(uuid.uuid4()), adds=(added,))
        answer = self._asked(request, m.Committed, expected)
        if answer.version != table.version + 1:
            self._wrong(f"expected {expected}", CLIENT_SECTION)
        if not table.has(table.version + 1):
            self._wrong(f"the kit's owner has no version {table.version + 1}; expected a commit by it", CLIENT_SECTION)
        needed = {mode: profile.value for profile, mode in COMMIT_MODE_OF.items()}[table.commit_mode]
        if table.feature != FILESYSTEM and needed not in self.identity.profiles:
            self._broken(
                f"`profiles` lacks `{needed}`, but the client commits to tables with {table.commit_mode} commits",
                "profiles",
            )

    def _asked(self, request: m.Request, kind: type[A], expected: str) -> A:
        """The answer of a client, which may implement only some operations."""
        answer: Any = self._ask(request)
        if isinstance(answer, m.Unsupported):
            raise _StepSkippedError(f"the client answers `{name_of(request)}` with `unsupported`")
        return answer if isinstance(answer, kind) else self._wrong_kind(request, expected, CLIENT_SECTION)


class Log:
    """The versions of a table, in an answer to `get_commits` and one to `observe` just after it."""

    class UnreadableError(Exception):
        """An answer is invalid."""

    class WrongError(Exception):
        """A ratified commit is missing, or another one is in its place."""

    def __init__(self, listed: m.Commits, seen: m.Observation) -> None:
        self._listed = {commit.version: commit for commit in listed.commits}
        self._files = {file.name: file for file in seen.files}

    def check_names(self) -> None:
        """Raises `UnreadableError` for names that are not relative to the log folder, and for wrong sizes."""
        for name, file in self._files.items():
            if name.startswith(("/", "./")) or LOG_FOLDER in name:
                right = name.rpartition(LOG_FOLDER)[2].lstrip("./")
                raise self.UnreadableError(
                    f"`observe` returned {wire.shown(name)}; expected a name relative to the log folder: {right!r}"
                )
            if file.content is not None and file.size != len(file.content.encode("utf-8", "surrogatepass")):
                raise self.UnreadableError(f"`observe` returned the wrong size {file.size} for {name!r}")

    def check_version(self, version: int, attempt: str) -> None:
        """Raises `WrongError` if the version is missing or is another attempt, `UnreadableError` if the answer is
        invalid."""
        published = commit_file(version)
        commit = self._listed.get(version)
        if published in self._files:
            self._check_attempt(published, attempt)
        elif commit is None:
            raise self.WrongError(
                f"version {version} was ratified, but `get_commits` does not list it, and it is not published as "
                f"{published!r} (`observe` lists {self._seen()})"
            )
        elif commit.actions is None:
            self._check_staged(version, commit.file_name, attempt)
        elif proposals.attempt_of("\n".join(commit.actions)) != attempt:
            raise self.WrongError(f"the actions listed as version {version} are not those of the attempt {attempt!r}")

    def _check_staged(self, version: int, name: str | None, attempt: str) -> None:
        if name is None:
            raise self.WrongError(
                f"`get_commits` lists version {version} with neither `file_name` nor `actions`, and it is not published"
            )
        if attempt_of(name) != attempt:
            named = name.startswith(f"{version:020}.") and attempt_of(name) is not None
            raise (self.WrongError if named else self.UnreadableError)(
                f"`get_commits` lists version {version} as the file {name!r}. A staged file of the kit's proposals is "
                f"named `<version with 20 digits>.<attempt>.json`, here '{version:020}.{attempt}.json'"
            )
        places = [path for path in self._files if path.endswith(f"/{name}")]
        if not places:
            raise self.WrongError(
                f"`get_commits` lists the staged file {name!r}, but `observe` lists no such file in a staging folder "
                f"(it lists {self._seen()})"
            )
        self._check_attempt(places[0], attempt)

    def _check_attempt(self, name: str, attempt: str) -> None:
        content = self._files[name].content
        if content is None:
            raise self.UnreadableError(f"`observe` returned no content of {name!r}, though `contents` was true")
        if proposals.attempt_of(content) != attempt:
            raise self.WrongError(f"the file {name!r} is not the commit of the attempt {attempt!r}, which was ratified")

    def _seen(self) -> str:
        return ", ".join(sorted(self._files)[:10]) or "nothing"


# A table for a client


class ReadableTable(Closing):
    """A table of the kit's own owner with one published commit, which `host` serves while this is open."""

    version = 1
    files = ("part-00000-smoke.snappy.parquet",)

    def __init__(self, host: ClientHost, feature: str, commit_mode: str) -> None:
        self._host = host
        self.feature = feature
        self.commit_mode = commit_mode
        self._folder = Path(tempfile.mkdtemp(prefix="conformance-"))
        self._owner = ClientOwner(FolderStorage(self._folder))
        first, second = str(uuid.uuid4()), str(uuid.uuid4())
        created = proposals.version_0(feature, first, str(uuid.uuid4()))
        appended = proposals.append(second, proposals.BASE_TIME + 1000, self.files)
        if feature == FILESYSTEM:
            self.name = str(self._folder / "smoke")
            for version, actions in enumerate((created, appended)):
                content = proposals.content(actions)
                self._owner.plant("kit", m.Plant(table=self.name, file=commit_file(version), content=content))
            return
        self.name = f"smoke_{feature}"  # an identifier, which every catalog accepts
        request = m.CreateTable(
            name=self.name, feature=feature, commit_mode=commit_mode, attempt=first, actions=created
        )
        answer = self._owner.create_table("kit", request)
        assert isinstance(answer, m.Ratified)
        reference = answer.table or ""
        self._owner.commit("kit", m.Commit(table=reference, version=1, attempt=second, actions=appended))
        self._owner.backfill_to_version("kit", m.BackfillToVersion(table=reference, version=1))

    def has(self, version: int) -> bool:
        """Whether the owner ratified the version, or, in a plain table, its file exists."""
        answer = self._owner.load_table("kit", m.LoadTable(name=self.name))
        if isinstance(answer, m.Table):
            return answer.latest == version
        return Path(self.name, LOG_FOLDER, commit_file(version)).exists()

    def __enter__(self) -> Self:
        self._host.current = Adversary(self._owner)
        return self

    def close(self) -> None:
        self._host.current = None
        shutil.rmtree(self._folder, ignore_errors=True)
