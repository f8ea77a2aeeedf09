"""The layer `processes`: concurrent clients in processes of their own find violations that need a race, and accuse no
correct subject.
"""

import contextlib
import io
import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Event, Lock

import filelock
import msgspec
import pytest

from conformance.adapters.http import HttpServer
from conformance.adapters.in_process import InProcess, InProcessSubject
from conformance.checks import all_checks
from conformance.history.files import read_events
from conformance.history_checkers.check import check_events
from conformance.interface import messages as m
from conformance.interface.messages import name_of
from conformance.interface.results import CaseResult, Layer, Verdict
from conformance.interface.subject import Subject
from conformance.models.owner import ModelOwner, OwnedTable
from conformance.models.storage import FolderStorage
from conformance.programs.cases import run_case
from conformance.scenario.check import Variant
from conformance.subjects.names import open_subject

CHECKS = [check for check in all_checks() if check.layer is Layer.PROCESSES]
AT_ONCE = next(check for check in CHECKS if check.name == "concurrent-client-processes")
KILLED = next(check for check in CHECKS if check.name == "killed-client-processes")
CREATING = next(check for check in CHECKS if check.name == "concurrent-creator-processes")
INLINE = Variant(feature="catalogManaged", commit_mode="inline")
STAGED = Variant(feature="managedCommit", commit_mode="staged")
ROUNDS_TO_RACE = 20
"""The number of rounds in which a violation by an owner without a lock is found. The first round is usually enough."""

pytestmark = pytest.mark.processes


@contextmanager
def opened(name: str) -> Iterator[Subject]:
    subject = open_subject(name)
    with subject:
        yield subject


def of_files(kind: type[object]) -> str:
    return f"python:{kind.__module__}:{kind.__name__}"


@pytest.fixture(scope="module")
def unlocked() -> Iterator[Subject]:
    with opened(of_files(UnlockedOwner)) as subject:
        yield subject


@pytest.mark.longer
def test_an_owner_with_a_lock_is_not_accused() -> None:
    with opened(of_files(LockedOwner)) as subject:
        for check in (AT_ONCE, KILLED):
            result = run_case(check, INLINE, subject, seed=1)
            assert result.verdict is Verdict.PASSED, result.reason or result.violations
            assert result.operations > 30


def test_an_owner_without_a_lock_is_found(unlocked: Subject) -> None:
    result = run_case(AT_ONCE, INLINE, unlocked, seed=1, count=ROUNDS_TO_RACE)
    assert result.verdict is Verdict.FAILED
    assert result.history is not None
    assert result.history.splitlines()[0].count('"unit":"ns"') == 1
    assert result.violations[0].rule in _rules(result)


def test_a_request_that_is_not_atomic_is_found() -> None:
    """A lookup of an attempt, a second copy of the request, or a hand-back, races with a commit. An owner that locks
    each request is not accused, nor if the answer to its hand-back is lost."""
    for owner, requirement in (
        (LocksEachRequest(), None), (LosesItsHandBack(), None), (LooksUpAndRecordsSeparately(), "PROFILE-OUTCOME-02"),
        (ChecksAndHandsBackSeparately(), "MC-COMMIT-02"),
    ):  # fmt: skip
        with HttpServer(InProcess(owner).ask, serialized=False) as server, opened(server.url) as subject:
            count = 1 if requirement is None else ROUNDS_TO_RACE
            result = run_case(AT_ONCE, STAGED, subject, seed=1, count=count, shrink=False)
        assert result.verdict is (Verdict.PASSED if requirement is None else Verdict.FAILED), result.reason
        named = {name for violation in result.violations for name in violation.requirements}
        assert requirement is None or requirement in named, (requirement, result.violations)


def test_two_successful_creators_are_found_without_a_readable_table() -> None:
    with opened("mutant:two-creators-make-a-table-unreadable") as subject:
        result = run_case(CREATING, STAGED, subject, seed=1)
    assert result.verdict is Verdict.FAILED, result.reason
    assert result.violations[0].requirements == ("MC-COMMIT-02",)
    assert result.violations[0].contradicting == 2
    assert result.history is not None


@pytest.mark.longer
def test_a_found_violation_can_be_searched_for_again(unlocked: Subject) -> None:
    result = run_case(AT_ONCE, INLINE, unlocked, seed=5, count=ROUNDS_TO_RACE)
    assert result.reproduction is not None
    assert isinstance(json.loads(result.reproduction)["seed"], int)
    again = run_case(AT_ONCE, INLINE, unlocked, reproduction=result.reproduction)
    assert again.verdict is Verdict.FAILED


def test_an_owner_with_one_process_dies_as_a_whole_and_continues() -> None:
    with opened("model") as subject:
        result = run_case(KILLED, STAGED, subject, seed=1)
        assert (result.verdict, result.reason) == (Verdict.PASSED, "")


@pytest.mark.longer
def test_an_owner_that_loses_ratified_commits_in_a_crash_is_found() -> None:
    """This owner saves its state only now and then, and loses the commits since the last save."""
    with opened("mutant:saves-on-shutdown-only") as subject:
        result = run_case(KILLED, STAGED, subject, seed=1, count=ROUNDS_TO_RACE)
        assert result.verdict is Verdict.FAILED
        assert result.history is not None


def test_the_kit_does_not_kill_an_owner_at_a_url() -> None:
    with HttpServer(InProcess(ModelOwner()).ask) as server, opened(server.url) as subject:
        for check in (AT_ONCE, CREATING):
            assert run_case(check, STAGED, subject, seed=1).verdict is Verdict.PASSED
        result = run_case(KILLED, STAGED, subject, seed=1)
        assert result.verdict is Verdict.INCONCLUSIVE
        assert "kill" in result.reason


@pytest.mark.longer
def test_the_reference_continues_when_its_clients_are_killed() -> None:
    with opened("reference") as subject:
        result = run_case(KILLED, STAGED, subject, seed=1)
        assert result.verdict is Verdict.PASSED, result.reason or result.violations


def test_a_subject_inside_this_process_gets_no_verdict() -> None:
    """Its clients could not run concurrently: each would wait for the others."""
    result = run_case(AT_ONCE, INLINE, InProcess(ModelOwner()))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "cannot be concurrent" in result.reason


def test_the_client_processes_end_with_the_subject() -> None:
    subject = open_subject("model")
    assert isinstance(subject, InProcessSubject)
    beside = subject.beside()
    assert subject.beside() is beside
    subject.close()
    answer = beside.ask("kit", m.GetCommits(table="orders"))
    assert isinstance(answer, m.Unknown)
    assert "closed" in answer.reason


def _rules(result: CaseResult) -> set[str | None]:
    """The rules that the checkers report for the result's history."""
    assert result.history is not None
    verdict = check_events(list(read_events(io.BytesIO(result.history.encode()))))
    return {violation.rule.value for violation in verdict.violations}


# Two owners with a shared state in a file: one locks the file; without the lock, processes overwrite each other's
# changes


class LockedOwner:
    """Reads its state, answers, and writes the state, under a lock."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory
        self._state = directory / "state"
        self._owner = ModelOwner(FolderStorage(directory))
        self._locked: Callable[[], AbstractContextManager[object]] = filelock.FileLock(directory / "lock").acquire

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        identity = self._owner.hello(client, request)
        profiles = tuple(profile for profile in identity.profiles if profile != "harness-control")
        return msgspec.structs.replace(identity, profiles=profiles, shared_state=True, promises=(), crash_points=())

    def _ask(self, client: str, request: m.Request) -> m.Answer:
        with self._locked():
            if self._state.exists():
                self._owner._tables = msgspec.json.decode(self._state.read_bytes(), type=dict[str, OwnedTable])
            answer: m.Answer = getattr(self._owner, name_of(request))(client, request)
            temporary = self._folder / f"state.{os.getpid()}"
            temporary.write_bytes(msgspec.json.encode(self._owner._tables))
            temporary.replace(self._state)
            return answer

    create_table = load_table = commit = attempt_outcome = get_commits = backfill_to_version = observe = _ask


class UnlockedOwner(LockedOwner):
    """Without the lock, a process overwrites the decisions of another."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._locked = contextlib.nullcontext


# Two owners with threads in one process


class LocksEachRequest:
    """Answers one request at a time."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.owner = ModelOwner()
        self.landed: dict[m.AttemptId, Event] = defaultdict(Event)
        self.looked_up: dict[m.AttemptId, Event] = defaultdict(Event)
        self.committed = Event()

    def _ask(self, client: str, request: m.Request) -> m.Answer:
        with self.lock:
            answer: m.Answer = getattr(self.owner, name_of(request))(client, request)
        if isinstance(request, m.Commit):
            self.landed[request.attempt].set()
            if isinstance(answer, m.Ratified):
                self.committed.set()
        return answer

    hello = create_table = load_table = commit = attempt_outcome = get_commits = backfill_to_version = observe = _ask
    hand_back = _ask


class LooksUpAndRecordsSeparately(LocksEachRequest):
    """Unlocks between the lookup of an attempt and the record that it never lands: a commit may land in between."""

    def commit(self, client: str, request: m.Request) -> m.Answer:
        assert isinstance(request, m.Commit)
        self.looked_up[request.attempt].wait(0.02)
        return self._ask(client, request)

    def attempt_outcome(self, client: str, request: m.Request) -> m.Answer:
        assert isinstance(request, m.AttemptOutcome)
        table = self.owner.tables[request.table]
        with self.lock:
            version = table.landed.get(request.attempt)
        if version is not None:
            return m.Landed(version=version)
        self.looked_up[request.attempt].set()
        self.landed[request.attempt].wait(0.1)
        with self.lock:
            table.never.add(request.attempt)
        return m.NotLanded()


class LosesItsHandBack(LocksEachRequest):
    """Does not answer the request with which it hands a table back, and does not know the table from then on."""

    def hand_back(self, client: str, request: m.Request) -> m.Answer:
        answer = self._ask(client, request)
        return m.Unknown(reason="timeout") if isinstance(answer, m.Ratified) else answer

    def get_commits(self, client: str, request: m.Request) -> m.Answer:
        assert isinstance(request, m.GetCommits)
        return self._ask(client, request) if self.owner.tables[request.table].active else m.NotFound()


class ChecksAndHandsBackSeparately(LocksEachRequest):
    """Unlocks between the check of a hand-back and its commit: another commit may land in between."""

    def hand_back(self, client: str, request: m.Request) -> m.Answer:
        assert isinstance(request, m.HandBack)
        table = self.owner.tables[request.table]
        change = m.Commit(table="", version=request.version, attempt=request.attempt, actions=request.actions)
        with self.lock:
            refusal = self.owner._refusal(table, change, None)
            if refusal is not None:
                return refusal
            self.owner._backfill(table, table.latest)
        self._while_another_commits()
        with self.lock:
            table.leaving = request.attempt
            answer = self.owner._publish_directly(table, change)
            table.active = not isinstance(answer, m.Ratified)
        return answer

    def _while_another_commits(self) -> None:
        self.committed.clear()
        self.committed.wait(0.1)
