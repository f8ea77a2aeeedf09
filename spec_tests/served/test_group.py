"""Group commit: proposals of several threads in one transaction, each with its own outcome.

To form a group, the tests use a lock that starts the other threads while the first thread takes it. The lock waits
until all other threads wait for their turn.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import refimpl
from conformance.adapters.reference.host_effects import Killed
from refimpl.owner.local import Decision
from refimpl.owner.records import Examined, TableRecord
from refimpl.owner.statements import Writer
from refimpl.owner.tables import Tables
from refimpl.protocol.commits import (
    Conflict,
    InlineProposal,
    NotLanded,
    Ratified,
    Rejected,
    RejectionReason,
    VersionGap,
)
from refimpl.protocol.errors import OutcomeUnknown, OwnerUnavailableError
from refimpl.protocol.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, CommitMode
from refimpl.served.group import Groups, Waiting
from refimpl.storage.environment import Environment, HostLock, ThreadTurn
from spec_tests.support.builders import ON_REQUEST, OwnedTable, append, create, new_attempt, refused
from spec_tests.support.faults import Faults, disk_is_broken, disk_is_full, opened, watched_lock

Act = Callable[[], Any]


class Threads(Faults):
    """A process whose threads commit at the same time. Effects are recorded as in `Faults`."""

    def __init__(self) -> None:
        super().__init__()
        self._asked = threading.Semaphore(0)
        self._others: list[Act] = []
        self._at_commit: list[Act] = []
        self._after_commit: Act | None = None

    def opened(self, directory: Path) -> refimpl.Warehouse:
        environment = self.environment(host_lock=watched_lock(self._hold), thread_turn=lambda: _Announced(self._asked))
        return refimpl.open(directory, environment=environment, create=True)

    def at_commit(self, *acts: Act, after: Act | None = None) -> None:
        """Run the first act just before the next transaction commits, the second act before the one after it, and so
        on. Run `after` just after the next transaction."""
        self._at_commit, self._after_commit = list(acts), after

    def effect(self, name: str, act: Act, torn: Act | None = None) -> Any:
        if name != "commit":
            return super().effect(name, act, torn)
        if self._at_commit:
            self._at_commit.pop(0)()
        result = super().effect(name, act, torn)
        after, self._after_commit = self._after_commit, None
        if after is not None:
            after()
        return result

    def together(self, *acts: Act) -> list[Any]:
        """The results, or the exceptions, of acts that form one group. The acts arrive in this order."""
        results: list[Any] = [None] * len(acts)

        def carry_out(number: int) -> None:
            try:
                results[number] = acts[number]()
            except BaseException as error:  # noqa: BLE001 - a simulated crash, too, is a result
                results[number] = error

        threads = [threading.Thread(target=carry_out, args=(number,)) for number in range(1, len(acts))]
        while self._asked.acquire(blocking=False):
            pass
        self._others = [thread.start for thread in threads]
        carry_out(0)
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
        return results

    def _hold(self, path: Path, real: HostLock) -> Iterator[None]:
        others, self._others = self._others, []
        if others:
            assert self._asked.acquire(timeout=60)  # the leader itself
        for start in others:
            start()
            assert self._asked.acquire(timeout=60)
        with real():
            yield


def raising(error: BaseException) -> Act:
    def act() -> None:
        raise error

    return act


class _Announced(ThreadTurn):
    """Releases a semaphore when a thread waits."""

    def __init__(self, waits: threading.Semaphore) -> None:
        super().__init__()
        self._waits = waits

    def take(self, done: Callable[[], bool]) -> bool:
        self._waits.release()
        return super().take(done)


@pytest.fixture
def threads() -> Threads:
    return Threads()


@pytest.fixture
def warehouse(tmp_path: Path, threads: Threads) -> Iterator[refimpl.Warehouse]:
    with threads.opened(tmp_path / "warehouse") as fresh:
        yield fresh


@pytest.fixture
def tables(warehouse: refimpl.Warehouse) -> list[OwnedTable]:
    """Three tables, in different commit modes."""
    kinds = ((CATALOG_MANAGED, CommitMode.INLINE), (CATALOG_MANAGED, CommitMode.STAGED),
             (MANAGED_COMMIT, CommitMode.STAGED))  # fmt: skip
    return [create(warehouse, *kind, name=f"t{number}") for number, kind in enumerate(kinds)]


def transactions(threads: Threads, act: Act) -> tuple[Any, int]:
    before = threads.seen.count("commit")
    result = act()
    return result, threads.seen.count("commit") - before


def test_waiting_proposals_share_one_transaction(threads: Threads, tables: list[OwnedTable]) -> None:
    outcomes, used = transactions(threads, lambda: threads.together(*(lambda t=t: t.commit(1) for t in tables)))
    assert [type(outcome) for outcome in outcomes] == [Ratified] * 3
    assert used == 1
    assert [table.latest for table in tables] == [1, 1, 1]
    assert [len(table.history()) for table in tables] == [2, 2, 2]


def test_next_versions_of_one_table_are_decided_in_order(threads: Threads, tables: list[OwnedTable]) -> None:
    """They arrive in another order."""
    table = tables[0]
    order = (3, 1, 2)
    outcomes, used = transactions(threads, lambda: threads.together(*(lambda v=v: table.commit(v) for v in order)))
    assert [outcome.commit.version for outcome in outcomes] == list(order)
    assert used == 1
    assert sorted(table.history()) == [0, 1, 2, 3]


def test_of_one_version_the_first_to_arrive_wins(threads: Threads, tables: list[OwnedTable]) -> None:
    table = tables[1]
    first, second = threads.together(lambda: table.commit(1), lambda: table.commit(1))
    assert isinstance(first, Ratified)
    assert isinstance(second, Conflict)
    assert (second.latest_ratified_version, second.winners) == (1, (first.commit,))


def test_timestamp_is_compared_with_the_member_before(threads: Threads, tables: list[OwnedTable]) -> None:
    table = tables[0]
    first, second = threads.together(lambda: table.commit(1, append(5_000)), lambda: table.commit(2, append(5_000)))
    assert isinstance(first, Ratified)
    refused(second, RejectionReason.IN_COMMIT_TIMESTAMP)


def test_each_member_gets_its_own_outcome(threads: Threads, tables: list[OwnedTable]) -> None:
    inline, staged, other = tables
    outcomes, used = transactions(
        threads,
        lambda: threads.together(
            lambda: inline.commit(1, b"{"), lambda: staged.commit(5), lambda: other.commit(0), lambda: other.commit(1)
        ),
    )
    assert [type(outcome) for outcome in outcomes] == [Rejected, VersionGap, Conflict, Ratified]
    assert used == 1
    assert [table.latest for table in tables] == [0, 0, 1]


def test_same_attempt_twice_in_a_group_lands_once(threads: Threads, tables: list[OwnedTable]) -> None:
    table, attempt, content = tables[0], new_attempt(), append(5_000)
    first, second = threads.together(*[lambda: table.commit(1, content, attempt=attempt)] * 2)
    assert (first.replayed, second.replayed) == (False, True)
    assert first.commit == second.commit
    assert table.latest == 1


def test_no_member_is_answered_before_the_commit(tmp_path: Path) -> None:
    """The process dies just before the commit of the transaction."""
    threads = Threads()
    warehouse = threads.opened(tmp_path / "warehouse")
    table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE)
    threads.at_commit(lambda: threads.arm(0))
    outcomes = threads.together(*(lambda v=v: table.commit(v) for v in (1, 1, 2)))
    assert [type(outcome) for outcome in outcomes] == [Killed] * 3
    threads.abandon()
    with opened(tmp_path / "warehouse") as again:
        assert table.through(again).latest == 0


def test_every_member_gets_the_error_of_a_failed_sync(threads: Threads, tables: list[OwnedTable]) -> None:
    """Also the loser gets it: a conflict would claim that its winner landed."""
    table, other, _ = tables
    attempts = [new_attempt() for _ in range(4)]
    threads.at_commit(raising(disk_is_broken()))
    outcomes = threads.together(
        *(lambda v=v, a=a: table.commit(v, attempt=a) for v, a in zip((1, 1, 2), attempts, strict=False)),
        lambda: other.commit(1, attempt=attempts[3]),
    )
    assert [type(outcome) for outcome in outcomes] == [OutcomeUnknown] * 4
    assert [outcome.facts["attempt"] for outcome in outcomes] == attempts
    assert [outcome.facts["version"] for outcome in outcomes] == [1, 1, 2, 1]
    assert [table.latest, other.latest] == [0, 0]
    assert isinstance(table.owner.attempt_outcome(table.table_id, attempts[0]), NotLanded)
    assert isinstance(other.commit(1), Ratified)


def test_after_a_full_disk_each_member_gets_its_own_transaction(threads: Threads, tables: list[OwnedTable]) -> None:
    threads.at_commit(raising(disk_is_full()), raising(disk_is_full()))
    outcomes, used = transactions(threads, lambda: threads.together(*(lambda t=t: t.commit(1) for t in tables)))
    assert [type(outcome) for outcome in outcomes] == [OwnerUnavailableError, Ratified, Ratified]
    assert used == 2, "the transactions of the group and of its first member failed"
    assert [table.latest for table in tables] == [0, 1, 1]


@pytest.mark.parametrize("failing", ["judged", "written"])
def test_error_of_one_member_does_not_affect_the_others(
    threads: Threads, tables: list[OwnedTable], monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    bad = tables[1]
    unknown, ratify = Tables.unknown_published_version, Writer.ratify

    def look(owner: Tables, table: TableRecord) -> Any:
        if failing == "judged" and table.table_id == bad.table_id:
            raise disk_is_broken()
        return unknown(owner, table)

    def write(writer: Writer, table: TableRecord, *values: Any, **more: Any) -> Any:
        result = ratify(writer, table, *values, **more)
        if failing == "written" and table.table_id == bad.table_id:
            raise disk_is_broken()
        return result

    with monkeypatch.context() as patched:
        patched.setattr(Tables, "unknown_published_version", look)
        patched.setattr(Writer, "ratify", write)
        outcomes = threads.together(*(lambda t=t: t.commit(1) for t in tables))
    assert [type(outcome) for outcome in outcomes] == [Ratified, OwnerUnavailableError, Ratified]
    assert [table.latest for table in tables] == [1, 0, 1]
    assert isinstance(bad.commit(1), Ratified)


def test_direct_commit_beside_a_group_has_its_own_transactions(
    threads: Threads, tables: list[OwnedTable], warehouse: refimpl.Warehouse
) -> None:
    direct = create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT, name="direct")
    acts = [lambda: tables[0].commit(1), lambda: direct.commit(1), lambda: tables[1].commit(1)]
    outcomes, used = transactions(threads, lambda: threads.together(*acts))
    assert [type(outcome) for outcome in outcomes] == [Ratified] * 3
    assert used == 3, "one for the group, two for the direct commit: its promise and its record"
    assert direct.published() == [0, 1]
    outcomes = threads.together(lambda: direct.commit(2), lambda: tables[0].commit(2), lambda: tables[1].commit(2))
    assert [type(outcome) for outcome in outcomes] == [Ratified] * 3


def test_visible_commit_is_recorded_before_a_member_is_decided(
    threads: Threads, tables: list[OwnedTable], warehouse: refimpl.Warehouse
) -> None:
    direct = create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT, name="direct")
    proposal = direct.propose(1, append(6_000), commit_mode=CommitMode.STAGED)
    assert direct.log.put_if_absent(f"{1:020d}.json", append(5_000))
    outcomes = threads.together(lambda: tables[0].commit(1), lambda: direct.owner.commit(direct.table_id, 1, proposal))
    assert [type(outcome) for outcome in outcomes] == [Ratified, Conflict]
    assert direct.latest == 1


@pytest.mark.parametrize("moment", ["before", "after"])
def test_next_leader_decides_members_of_an_interrupted_leader(
    threads: Threads, tables: list[OwnedTable], moment: str
) -> None:
    """Ctrl-C interrupts the leader before or after the transaction. The next leader recognizes commits that landed."""
    act = raising(KeyboardInterrupt())
    threads.at_commit(*((act,) if moment == "before" else ()), after=act if moment == "after" else None)
    outcomes = threads.together(*(lambda t=t: t.commit(1) for t in tables))
    assert [type(outcome) for outcome in outcomes] == [KeyboardInterrupt, Ratified, Ratified]
    assert [outcome.replayed for outcome in outcomes[1:]] == [moment == "after"] * 2
    assert [table.latest for table in tables] == [int(moment == "after"), 1, 1]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("error", [OwnerUnavailableError("busy"), disk_is_broken()], ids=["busy", "broken"])
def test_outcome_is_unknown_if_no_leader_follows_an_interrupted_one(
    threads: Threads, tables: list[OwnedTable], moment: str, error: Exception
) -> None:
    """An unavailable owner would prove that nothing landed, and a client would delete the commit's data files."""
    groups, lock = tables[0].owner.groups, tables[0].owner.lock
    attempts = [new_attempt() for _ in tables]

    @contextmanager
    def failing() -> Iterator[None]:
        raise error
        yield

    def interrupt() -> None:
        groups._lock = failing
        raise KeyboardInterrupt

    threads.at_commit(*((interrupt,) if moment == "before" else ()), after=interrupt if moment == "after" else None)
    pairs = zip(tables, attempts, strict=True)
    outcomes = threads.together(*(lambda t=t, a=a: t.commit(1, attempt=a) for t, a in pairs))
    groups._lock = lock
    assert [type(outcome) for outcome in outcomes] == [KeyboardInterrupt, OutcomeUnknown, OutcomeUnknown]
    assert [outcome.facts["attempt"] for outcome in outcomes[1:]] == attempts[1:]
    assert [table.latest for table in tables] == [int(moment == "after")] * 3


def test_interruption_at_any_call_leaves_the_turn_and_the_lock_free(tmp_path: Path) -> None:
    """Python checks for signals (Ctrl-C) at the start of each Python function. Afterwards, another thread must
    commit, also while a console keeps the interruption for a post-mortem."""
    places = ("group.py", "threading.py", "environment.py", "contextlib.py")
    kept: BaseException | None = None
    interrupted_in: set[str] = set()
    left = -1

    def trace(frame: Any, _event: str, _argument: object) -> None:
        nonlocal left
        code = frame.f_code
        if code.co_filename.endswith(places):
            left -= 1
            if left == -1:
                interrupted_in.add(code.co_name)
                raise KeyboardInterrupt

    with refimpl.open(tmp_path / "w", create=True) as warehouse:
        table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE)
        outcomes: list[Any] = []
        for number in range(100):
            left, before = number, sys.gettrace()
            outcomes.clear()
            sys.settrace(trace)
            try:
                table.commit((table.latest or 0) + 1)
            except KeyboardInterrupt as interruption:
                kept = interruption
            finally:
                sys.settrace(before)
            other = threading.Thread(target=lambda: outcomes.append(table.commit((table.latest or 0) + 1)), daemon=True)
            other.start()
            other.join(10)
            assert [type(outcome) for outcome in outcomes] == [Ratified], f"after call {number}: {kept!r}"
            if left >= 0:
                break
    assert {"decide", "take", "_lead", "pass_on", "notify_all", "flush"} <= interrupted_in
    assert left >= 0


def test_interrupted_member_is_not_decided_later(
    warehouse: refimpl.Warehouse, tables: list[OwnedTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python checks for signals after a call of a C function, too: here just after the member was added."""

    class Interrupted(list[Any]):
        def append(self, member: Any) -> None:
            super().append(member)
            raise KeyboardInterrupt

    waiting = Interrupted()
    monkeypatch.setattr(warehouse.owner.groups, "_waiting", waiting)
    with pytest.raises(KeyboardInterrupt):
        tables[0].commit(1)
    assert waiting == []


def test_every_waiting_member_gets_the_error_of_a_busy_lock(threads: Threads, tables: list[OwnedTable]) -> None:
    """Otherwise each member in turn would wait for the lock as long as the member before it."""
    lock = tables[0].owner.lock
    tries = []

    @contextmanager
    def busy() -> Iterator[None]:
        with lock():
            tries.append(None)
        raise OwnerUnavailableError("the owner's lock was held by another process")
        yield

    groups = tables[0].owner.groups
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(groups, "_lock", busy)
        outcomes = threads.together(*(lambda v=v: tables[0].commit(v) for v in (1, 2, 3, 4)))
    assert [type(outcome) for outcome in outcomes] == [OwnerUnavailableError] * 4
    assert len(tries) == 2, "one by the first member, one for the members that arrived after it began"
    assert tables[0].latest == 0


def test_busy_lock_replaces_no_answer_of_an_earlier_leader() -> None:
    """The thread of a decided proposal may not have run since."""
    proposal = InlineProposal(attempt=new_attempt(), content=b"")
    examined = Examined(version=1, proposal=proposal, content=b"", digest=b"")
    record: Any = None
    decided, mine = (Waiting(record, examined) for _ in range(2))
    answer = decided.answer = Decision(outcome=VersionGap(latest_ratified_version=None))
    busy, unused = raising(OwnerUnavailableError("busy")), lambda _: pytest.fail("decided without the lock")
    groups = Groups(Environment(), busy, unused, unused)
    groups._waiting.append(decided)
    with pytest.raises(OwnerUnavailableError):
        groups.decide(mine)
    assert decided.answer is answer


def test_every_member_is_backfilled_by_its_policy(threads: Threads, warehouse: refimpl.Warehouse) -> None:
    policy = msgspec.structs.replace(ON_REQUEST, backfill_every=2)
    made = [create(warehouse, CATALOG_MANAGED, CommitMode.STAGED, name=f"p{n}", policy=policy) for n in range(2)]
    threads.together(*(lambda t=t: t.commit(1) for t in made))
    assert [table.published() for table in made] == [[0], [0]]
    threads.together(*(lambda t=t: t.commit(2) for t in made))
    assert [table.published() for table in made] == [[0, 1, 2]] * 2


def test_forked_child_commits_while_threads_of_its_parent_wait(tmp_path: Path) -> None:
    """The child has none of these threads."""
    forked: list[int] = []

    @watched_lock
    def lock(path: Path, real: HostLock) -> Iterator[None]:
        if armed and not forked:
            forked.append(os.fork())
            if forked == [0]:
                signal.alarm(10)  # kills a child that waits
                os._exit(0 if isinstance(table.commit(1), Ratified) else 1)
            assert os.waitpid(forked[0], 0)[1] == 0
        with real():
            yield

    armed = False
    with refimpl.open(tmp_path / "w", environment=Faults().environment(host_lock=lock), create=True) as warehouse:
        table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE)
        armed = True
        assert isinstance(table.commit(1), Conflict)
