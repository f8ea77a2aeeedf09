"""What a request waits for. Reads and health never wait for a writer, the loser of a race waits for its turn, and no
request waits beyond its deadline."""

import asyncio
import dataclasses
import errno
import gc
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx2
import pytest
from starlette.testclient import TestClient

import refimpl
from refimpl.protocol.commit_owner import MaintenancePolicy
from refimpl.protocol.errors import OutcomeUnknown, OwnerUnavailableError
from refimpl.server import scheduling
from refimpl.server.application import Limits
from refimpl.server.delta_api import DeltaApi
from refimpl.server.scheduling import (
    FairQueue,
    LockNeededError,
    Pool,
    Publisher,
    SideBySide,
    limited,
    request_lock,
    shared_environment,
)
from refimpl.storage.environment import HostLock, host_lock
from refimpl.storage.files import PosixFiles
from refimpl.storage.log_store import LogStore
from spec_tests.server.conftest import Serve, inline_table
from spec_tests.server.test_hostile import PROGRAM, answers_of
from spec_tests.server.wire import LEGACY, UNAVAILABLE, WireTable, added, refusal
from spec_tests.support.faults import Faults
from spec_tests.support.serving import started

THREADS = 2


def another_process(directory: Path) -> AbstractContextManager[object]:
    """Hold the owner's lock like another process, through another file descriptor."""
    return host_lock(directory / "_owner" / "lock")()


class Watched:
    """The server's lock, which counts how often a thread requests it."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)

    def __call__(self, path: Path) -> HostLock:
        take = request_lock(path)

        @contextmanager
        def lock() -> Iterator[None]:
            self.asked.release()
            with take():
                yield

        return lock


def test_reads_and_health_do_not_wait_for_writers(serve: Serve, directory: Path) -> None:
    lock = Watched()
    http = serve(environment=Faults().environment(host_lock=lock), limits=Limits(threads=THREADS))
    table = WireTable(http).create()
    table.land(1)
    while lock.asked.acquire(blocking=False):
        pass
    with ThreadPoolExecutor(2 * THREADS + 2) as pool:
        with another_process(directory):
            writers = [pool.submit(lambda: table.propose(table.write_staged(2))) for _ in range(2 * THREADS)]
            pool.submit(http.post, f"{table.base}/staging-tables", json={"name": "more"})
            pool.submit(http.delete, f"{table.base}/tables/nothing")
            assert lock.asked.acquire(timeout=120)  # one thread requests the lock, and decides for all
            tables = f"{table.base}/tables"
            for path in (table.url, tables, f"{LEGACY}/catalogs", "/health", "/metrics", "/openapi.json"):
                assert http.get(path).status_code == 200, path
            assert not any(writer.done() for writer in writers)
        assert sorted(writer.result().status_code for writer in writers) == [200] + [409] * (2 * THREADS - 1)


def test_write_is_rejected_at_its_deadline_and_changes_nothing(serve: Serve, directory: Path) -> None:
    """Also a write that no thread has begun."""
    environment = Faults().environment(host_lock=request_lock)
    http = serve(environment=environment, limits=Limits(threads=1, request_seconds=0.2))
    table = WireTable(http).create()
    staged = [table.write_staged(1) for _ in range(3)]
    with another_process(directory), ThreadPoolExecutor(3) as writers:
        answers = list(writers.map(table.propose, staged))
    assert [refusal(answer) for answer in answers] == [UNAVAILABLE] * 3
    assert table.state()[0] == 0
    assert table.propose(staged[0]).status_code == 200


def test_read_that_needs_the_lock_runs_among_the_writes(
    serve: Serve, directory: Path, warehouse: refimpl.Warehouse
) -> None:
    """An inline commit is published first, because the API cannot express it."""
    environment = Faults().environment(host_lock=request_lock)
    http = serve(environment=environment, limits=Limits(request_seconds=0.2))
    inline_table(warehouse)
    table = WireTable(http)
    with another_process(directory):
        assert refusal(http.get(table.url)) == UNAVAILABLE
        assert http.get("/health").status_code == 200
    assert table.state()[:2] == (1, [])


def test_failed_read_is_not_repeated(table: WireTable, http: TestClient) -> None:
    with patch.object(DeltaApi, "describe", side_effect=OwnerUnavailableError("busy")) as described:
        assert refusal(http.get(table.url)) == UNAVAILABLE
    assert described.call_count == 1


def test_closing_publisher_ends_its_job_and_begins_no_other(tmp_path: Path) -> None:
    publisher, begun, end, done = Publisher(1), threading.Event(), threading.Event(), list[str]()
    lock = request_lock(tmp_path / "lock")

    def first() -> None:
        with lock():
            begun.set()
            assert end.wait(120)
        done.append("first")

    shared_environment(publisher).afterwards(first)
    publisher.submit(lambda: done.append("second"))
    assert begun.wait(120)
    assert not publisher.close(0.0)
    publisher.submit(lambda: done.append("third"))
    end.set()
    assert publisher.close(20)
    assert done == ["first"]


def test_staged_file_and_its_name_are_synced_at_once(tmp_path: Path) -> None:
    """Each sync waits until the other begins, and the call waits until both end."""
    both, ended = threading.Barrier(2, timeout=120), list[str]()

    class Syncs(PosixFiles):
        def fsync(self, path: Path) -> None:
            both.wait()
            super().fsync(path)
            ended.append("file")

        def fsync_directory(self, path: Path) -> None:
            both.wait()
            super().fsync_directory(path)
            ended.append("name")

    publisher = Publisher(1)
    environment = dataclasses.replace(shared_environment(publisher), files=Syncs())
    (tmp_path / "_delta_log" / "_staged_commits").mkdir(parents=True)
    (tmp_path / "_delta_log" / "_staged_commits" / "file").write_bytes(b"{}")
    LogStore(tmp_path, environment).make_staged_durable("_staged_commits", "file")
    assert sorted(ended) == ["file", "name"]
    assert publisher.close(20)


@pytest.mark.parametrize("failing", ["first", "second", "both"])
def test_failure_of_one_of_two_syncs_is_raised_when_both_have_ended(failing: str) -> None:
    begun, ended = threading.Barrier(2, timeout=120), list[str]()

    def sync(name: str) -> None:
        begun.wait()
        ended.append(name)
        if failing in (name, "both"):
            raise OSError(errno.EIO, name)

    with pytest.raises(OSError, match="first" if failing == "both" else failing):
        SideBySide()(lambda: sync("first"), lambda: sync("second"))
    assert sorted(ended) == ["first", "second"]


def test_lock_is_free_after_a_thread_failed(tmp_path: Path) -> None:
    lock = request_lock(tmp_path / "lock")
    with host_lock(tmp_path / "lock")(), limited(time.monotonic(), lock=True), pytest.raises(OwnerUnavailableError):
        lock().__enter__()
    with patch("refimpl.storage.environment._locked", side_effect=MemoryError), pytest.raises(MemoryError):
        lock().__enter__()
    with ThreadPoolExecutor(1) as other:
        other.submit(lambda: lock().__enter__()).result()


def test_read_thread_never_takes_the_lock(tmp_path: Path) -> None:
    lock = request_lock(tmp_path / "lock")
    with limited(time.monotonic() + 60, lock=False), pytest.raises(LockNeededError), lock():
        pass
    with limited(time.monotonic() + 60, lock=True), lock(), lock():
        pass
    with lock():
        pass


@pytest.mark.parametrize(
    ("lock", "running"), [(True, OutcomeUnknown), (False, OwnerUnavailableError)], ids=["write", "read"]
)
def test_endless_call_is_answered_at_its_deadline(
    lock: bool, running: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop of the server does not wait for it, either."""
    monkeypatch.setattr(scheduling, "GRACE_SECONDS", 0.0)
    pool, go_on, begun = Pool(1, 10, lock=lock), threading.Event(), threading.Event()
    carried_out: list[int] = []
    submit = pool._threads.submit

    def hang() -> None:
        begun.set()
        go_on.wait(120)

    def submit_and_wait(work: Callable[[], Any]) -> Future[Any]:
        """Submit the work, and wait until its thread has begun: the deadline must come later, also on a busy host."""
        call = submit(work)
        assert begun.wait(120)
        return call

    async def ended(work: Callable[[], Any]) -> Exception | None:
        try:
            await pool.run(work, time.monotonic())
        except (OutcomeUnknown, OwnerUnavailableError) as error:
            return error
        return None

    async def play() -> None:
        first = asyncio.create_task(ended(hang))
        await asyncio.sleep(0)
        assert type(await ended(lambda: carried_out.append(1))) is OwnerUnavailableError
        assert type(await first) is running

    monkeypatch.setattr(pool._threads, "submit", submit_and_wait)
    try:
        asyncio.run(play())
        assert not pool.close(0.0)
    finally:
        go_on.set()
    assert pool.close(20.0)
    assert not carried_out


def test_abandoned_call_leaves_no_reported_exception() -> None:
    """The call fails after its client has gone. Nothing keeps or reports its exception."""
    pool, publisher, begun, go_on = Pool(1, 10, lock=True), Publisher(1), threading.Event(), threading.Event()
    reported: list[Any] = []

    def fail() -> None:
        begun.set()
        assert go_on.wait(120)
        raise ZeroDivisionError

    async def play() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        gone = asyncio.create_task(pool.run(fail, time.monotonic() + 60))
        assert await asyncio.to_thread(begun.wait, 120)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        go_on.set()
        await pool.run(lambda: None, time.monotonic() + 60)
        gc.collect()

    asyncio.run(play())
    publisher.submit(go_on.set)
    assert pool.close(20.0)
    assert publisher.close(20.0)
    with pytest.raises(RuntimeError):
        asyncio.run(pool.run(lambda: None, time.monotonic() + 60))
    assert not reported
    assert not pool._running
    assert not publisher._running


@contextmanager
def served_table(directory: Path) -> Iterator[tuple[subprocess.Popen[str], WireTable]]:
    """A server in another process, with a table."""
    with (
        started("-c", PROGRAM, directory, "10", "0.5") as (server, url),
        httpx2.Client(base_url=url, timeout=120) as client,
    ):
        yield server, WireTable(client).create()


@pytest.mark.processes
def test_a_server_stops_while_another_process_holds_the_lock(directory: Path) -> None:
    with served_table(directory) as (server, table):
        body = json.dumps(table.request(added(table.write_staged(1)))).encode()
        head = f"POST {table.url} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        with (
            another_process(directory),
            socket.create_connection(("127.0.0.1", table.http.base_url.port), 30) as writer,
        ):
            writer.sendall(head.encode() + body)
            assert table.http.get("/health").status_code == 200  # by now, the server has read the earlier request
            os.kill(server.pid, signal.SIGTERM)
            assert answers_of(writer).startswith(b"HTTP/1.1 503")
            assert server.wait(120) == 0


@pytest.mark.processes
def test_a_server_stops_while_another_process_publishes(directory: Path) -> None:
    """No request is open, so the server stops with success."""
    with (
        served_table(directory) as (server, table),
        refimpl.open(directory) as warehouse,
        host_lock(directory / "_owner" / f"publishing-{table.table_id}")(),
    ):
        warehouse.owner.set_policy(table.table_id, MaintenancePolicy(backfill_every=1))
        table.land(1)
        os.kill(server.pid, signal.SIGTERM)
        assert server.wait(120) == 0
        assert [commit.version for commit in warehouse.owner.get_commits(table.table_id).commits] == [1]


# The queue in which losers of a race get their turn; the tests do not depend on the clock


LONG = 120.0


def played(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a coroutine as a test, in its own event loop."""

    @wraps(test)
    def play(*values: Any, **fixtures: Any) -> None:
        asyncio.run(test(*values, **fixtures))

    return play


async def waits(line: FairQueue, client: str, seconds: float = LONG, version: int = 1) -> None:
    await line.wait("orders", client, version, asyncio.get_running_loop().time() + seconds)


async def loses(line: FairQueue, client: str, version: int = 1) -> None:
    """Let a client lose: another client has committed its version."""
    await waits(line, client, version=version)
    line.lost("orders", client, version)


async def settled() -> None:
    """Let every task run until it waits."""
    for _ in range(5):
        await asyncio.sleep(0)


async def blocked(line: FairQueue, client: str, version: int = 1) -> asyncio.Task[None]:
    """A client that waits, because another one has the turn."""
    waiting = asyncio.create_task(waits(line, client, version=version))
    await settled()
    assert not waiting.done()
    return waiting


@played
async def test_only_proposal_does_not_wait() -> None:
    line = FairQueue()
    for client in ("a", "b", "a"):
        await waits(line, client, 0.0)
        line.done("orders", client, landed=True)


@played
async def test_one_proposal_is_decided_at_a_time() -> None:
    line = FairQueue()
    await waits(line, "a")
    second = await blocked(line, "b")
    line.done("orders", "a", landed=True)
    await second


@played
async def test_loser_goes_before_the_winner() -> None:
    line = FairQueue()
    await loses(line, "loser")
    winner = await blocked(line, "winner")
    await waits(line, "loser", version=2)
    await settled()
    assert not winner.done(), "the owner still decides on the loser's proposal"
    line.done("orders", "loser", landed=True)
    await winner


@played
async def test_losers_are_answered_in_their_order_of_arrival() -> None:
    line = FairQueue()
    answered: list[str] = []

    async def client(name: str) -> None:
        await loses(line, name)
        answered.append(name)
        await settled()
        await waits(line, name, version=2)
        line.done("orders", name, landed=True)

    names = ["a", "b", "c", "d"]
    await asyncio.gather(*(client(name) for name in names))
    assert answered == names


@played
async def test_client_that_loses_another_version_keeps_its_turn() -> None:
    """A client of another server, or a local process, was first."""
    line = FairQueue()
    await loses(line, "a")
    other = asyncio.create_task(waits(line, "b"))
    await loses(line, "a", 2)
    await settled()
    assert not other.done()
    await waits(line, "a", version=3)
    line.done("orders", "a", landed=True)
    await other


@played
async def test_client_that_resends_a_lost_version_gives_up_its_turn() -> None:
    """The client has not loaded the table, so it would lose again after any wait."""
    line = FairQueue()
    await loses(line, "a", 5)
    other = await blocked(line, "b", version=6)
    await waits(line, "a", version=5)
    await settled()
    assert other.done(), "the other client does not wait for its time limit"
    await waits(line, "a", version=4)
    line.done("orders", "b", landed=True)


@pytest.mark.parametrize("version", [2, 1], ids=["rebased", "sent again"])
@played
async def test_timer_of_the_queue_stops_when_the_loser_returns(version: int) -> None:
    """The owner may decide on its proposal for longer than other clients wait for a loser to return."""
    line = FairQueue()
    await loses(line, "a")
    timer = line._lines["orders"].patience
    await waits(line, "a", version=version)
    assert timer is not None
    assert timer.cancelled()


@pytest.mark.parametrize("versions", [[1], [0, 1], list(range(50))], ids=["one", "two", "rising"])
def test_writer_is_not_blocked_by_a_client_with_stale_versions(versions: list[int]) -> None:
    """Two clients send the same number of requests. Every request of the writer lands."""

    async def play() -> tuple[int, int]:
        line, latest = FairQueue(), 100
        landed = {"writer": 0, "stale": 0}

        async def propose(client: str, version: int) -> None:
            nonlocal latest
            await waits(line, client, version=version)
            await settled()
            if version == latest + 1:
                latest += 1
                landed[client] += 1
                line.done("orders", client, landed=True)
            else:
                line.lost("orders", client, latest)

        async def stale() -> None:
            for number in range(50):
                await propose("stale", versions[number % len(versions)])

        async def writer() -> None:
            while landed["writer"] < 50 and not ended.done():
                await propose("writer", latest + 1)

        ended = asyncio.create_task(stale())
        await asyncio.gather(ended, writer())
        return landed["writer"], landed["stale"]

    assert asyncio.run(play()) >= (45, 0)


@played
async def test_wait_ends_at_its_deadline_and_the_turn_stays() -> None:
    line = FairQueue()
    await waits(line, "a")
    await waits(line, "b", 0.0)
    third = await blocked(line, "c")
    line.lost("orders", "b", 1)
    line.done("orders", "b", landed=True)
    await settled()
    assert not third.done(), "the client whose time was up does not have the turn"
    line.done("orders", "a", landed=True)
    await third


@pytest.mark.parametrize("at_the_moment_of_its_turn", [False, True])
@played
async def test_client_that_goes_away_blocks_no_other(at_the_moment_of_its_turn: bool) -> None:
    line = FairQueue()
    await waits(line, "a")
    gone, third = (asyncio.create_task(waits(line, name)) for name in "bc")
    await settled()
    if at_the_moment_of_its_turn:
        line.done("orders", "a", landed=True)
        gone.cancel()
    else:
        gone.cancel()
        await settled()
        line.done("orders", "a", landed=True)
    await settled()
    assert third.done(), "the third client does not wait for its time limit"
    await third
    assert gone.cancelled()


def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Returns the function that lets time pass: the machine's clock does not count."""
    loop = asyncio.get_running_loop()
    now = loop.time()

    def let_pass(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(loop, "time", lambda: now)
    return let_pass


async def slow_client(monkeypatch: pytest.MonkeyPatch) -> tuple[FairQueue, Callable[[float], None]]:
    """`slow` lost, came back after one second, and lost again, in its turn."""
    let_pass, line = stopped_clock(monkeypatch), FairQueue()
    await loses(line, "slow")
    other = await blocked(line, "a", version=2)
    let_pass(1.0)
    await other
    back = await blocked(line, "slow", version=2)
    line.done("orders", "a", landed=True)
    await back
    line.lost("orders", "slow", 2)
    return line, let_pass


@played
async def test_slow_client_gets_the_time_that_it_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    line, let_pass = await slow_client(monkeypatch)
    other = await blocked(line, "a", version=3)
    let_pass(1.2)
    await settled()
    assert not other.done()
    await waits(line, "slow", version=3)
    line.done("orders", "slow", landed=True)
    await other


@played
async def test_slow_clients_get_a_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    line, let_pass = await slow_client(monkeypatch)
    other = await blocked(line, "a", version=3)
    let_pass(1.7)
    await other
    back = await blocked(line, "slow", version=3)
    line.done("orders", "a", landed=True)
    let_pass(0.01)  # `a` does not propose again
    await back
    line.lost("orders", "slow", 3)
    other = await blocked(line, "a", version=4)
    let_pass(0.3)
    await settled()
    assert other.done()


@played
async def test_queue_ends_after_several_clients_never_return(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "PATIENCE_SECONDS", 0.01)
    line = FairQueue()
    for number in range(scheduling.MISSES):
        await loses(line, f"gone {number}")
    await asyncio.gather(*(waits(line, name) for name in "abc"))
    line.lost("orders", "a", 1)
    last = asyncio.create_task(waits(line, "d"))
    await settled()
    assert last.done(), "the queue has ended, so no client has the turn"


@played
async def test_one_slow_client_does_not_end_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    let_pass, line = stopped_clock(monkeypatch), FairQueue()
    for number in range(2 * scheduling.MISSES):
        await loses(line, f"slow {number}")
        turn = await blocked(line, "a", version=2 * number)
        let_pass(scheduling.PATIENCE_SECONDS)
        await turn
        line.lost("orders", "a", 2 * number)
        other = await blocked(line, "b", version=2 * number + 1)
        await waits(line, "a", version=2 * number + 1)
        line.done("orders", "a", landed=True)
        await other
        line.done("orders", "b", landed=True)


@played
async def test_separate_misses_do_not_end_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that lands in its turn has returned, so it counts as no miss."""
    monkeypatch.setattr(scheduling, "PATIENCE_SECONDS", 0.01)
    line = FairQueue()
    await loses(line, "gone")
    for number in range(2 * scheduling.MISSES):
        writer = asyncio.create_task(waits(line, f"writer {number}"))
        gone = asyncio.create_task(loses(line, f"gone {number}"))
        await writer
        line.done("orders", f"writer {number}", landed=True)
        if number == 2 * scheduling.MISSES - 1:
            monkeypatch.setattr(scheduling, "PATIENCE_SECONDS", LONG)
        await gone
    other = asyncio.create_task(waits(line, "other"))
    await settled()
    assert not other.done(), "the queue has not ended"


@played
async def test_queue_is_used_again_some_time_after_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(scheduling, "GIVEN_UP_SECONDS", 0.0)
    line = FairQueue()
    for number in range(scheduling.MISSES):
        await loses(line, f"gone {number}")
    await waits(line, "a")
    await waits(line, "a")
    line.done("orders", "a", landed=True)
    await loses(line, "a")
    other = await blocked(line, "b")
    await waits(line, "a", version=2)
    line.done("orders", "a", landed=True)
    await other


async def turn_of_a_prompt_client() -> tuple[FairQueue, asyncio.Task[None]]:
    """`a` landed, proposed again at once, and landed again in its next turn, while `b` waited."""
    line = FairQueue()
    await waits(line, "a")
    other = await blocked(line, "b")
    line.done("orders", "a", landed=True)
    await other
    prompt = await blocked(line, "a", version=2)
    line.done("orders", "b", landed=True)
    await prompt
    other = await blocked(line, "b", version=3)
    line.done("orders", "a", landed=True)
    await settled()
    return line, other


@played
async def test_client_that_returns_at_once_keeps_its_turn_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("PROMPT_SECONDS", "ROUND_SECONDS"):
        monkeypatch.setattr(scheduling, limit, LONG)
    line, other = await turn_of_a_prompt_client()
    await waits(line, "a", 0.0, version=4)
    assert not other.done()
    monkeypatch.setattr(scheduling, "ROUND_SECONDS", 0.0)
    line.done("orders", "a", landed=True)
    await other


@pytest.mark.parametrize("limit", ["PROMPT_SECONDS", "ROUND_SECONDS"])
@played
async def test_turn_ends_if_the_client_is_slow_or_had_it_for_long(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for other_limit in ("PROMPT_SECONDS", "ROUND_SECONDS"):
        monkeypatch.setattr(scheduling, other_limit, 0.0 if other_limit == limit else LONG)
    _, other = await turn_of_a_prompt_client()
    assert other.done()


@played
async def test_turn_ends_when_the_client_does_not_return(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("PROMPT_SECONDS", "ROUND_SECONDS"):
        monkeypatch.setattr(scheduling, limit, LONG)
    line, other = await turn_of_a_prompt_client()
    monkeypatch.setattr(scheduling, "PROMPT_SECONDS", 0.0)
    await waits(line, "a", 0.0, version=4)
    line.done("orders", "a", landed=True)
    await other


@played
async def test_each_table_has_its_own_queue() -> None:
    line = FairQueue()
    await line.wait("invoices", "loser", 1, asyncio.get_running_loop().time() + LONG)
    line.lost("invoices", "loser", 1)
    await waits(line, "a", 0.0)


async def called(application: Any, port: int, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Send one request on the connection from this port."""
    transport = httpx2.ASGITransport(application, client=("127.0.0.1", port))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        answer = await client.request(method, path, json=body)
        return answer.status_code, answer.json()


async def proposed(table: WireTable, port: int, version: int) -> tuple[int, Any]:
    body = table.request(added(table.write_staged(version)))
    return await called(table.http.app, port, "POST", table.url, body)


def test_client_keeps_the_turn_after_a_conflict_only(table: WireTable) -> None:
    queue: FairQueue = table.http.app_state["server"]._queue

    async def play() -> list[tuple[int, int, list[int]]]:
        return [
            (
                (await proposed(table, port, version))[0],
                len(queue._lines),
                [loser.latest for loser in queue._losers.values()],
            )
            for port, version in enumerate((7, 1, 1))
        ]

    assert asyncio.run(play()) == [(400, 0, []), (200, 0, []), (409, 1, [1])]


def test_each_of_many_clients_lands_after_one_lost_race(table: WireTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "PATIENCE_SECONDS", 60.0)
    monkeypatch.setattr("refimpl.server.scheduling.LONGEST_WAIT_SECONDS", 60.0)
    clients, commits = 5, 4
    losses: list[int] = []

    async def client(port: int) -> None:
        version = 1
        for _ in range(commits):
            lost = 0
            while True:
                status, answered = await proposed(table, port, version)
                if status == 200:
                    break
                assert answered["error"]["type"] == "CommitVersionConflictException"
                lost += 1
                version = (await called(table.http.app, port, "GET", table.url))[1]["latest-table-version"] + 1
            losses.append(lost)
            version += 1

    async def play() -> None:
        await asyncio.gather(*(client(port) for port in range(clients)))

    asyncio.run(play())
    assert table.state()[0] == clients * commits
    assert len(losses) == clients * commits
    assert max(losses) == 1
