"""What a request waits for. Reads and health never wait for a writer, the loser of a race waits for its turn, and no
request waits beyond its deadline."""

import asyncio
import dataclasses
import errno
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx2
import pytest
from starlette.testclient import TestClient

import refimpl
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
from spec_tests.server.wire import CATALOG, UNAVAILABLE, WireTable, added, refusal
from spec_tests.support.faults import Faults
from spec_tests.support.serving import started

THREADS = 2


def another_process(directory: Path) -> AbstractContextManager[object]:
    """Hold the owner's lock like another process, through another file descriptor."""
    return host_lock(directory / "_owner" / "lock")()


def deadline_after(seconds: float, http: TestClient) -> AbstractContextManager[object]:
    return patch.object(http.app_state["server"], "limits", Limits(request_seconds=seconds))


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
            for path in (table.url, tables, f"{CATALOG}/catalogs", "/health"):
                assert http.get(path).status_code == 200, path
            assert not any(writer.done() for writer in writers)
        assert sorted(writer.result().status_code for writer in writers) == [200] + [409] * (2 * THREADS - 1)


def test_write_is_rejected_at_its_deadline_and_changes_nothing(serve: Serve, directory: Path) -> None:
    """Also a write that no thread has begun."""
    http = serve(environment=Faults().environment(host_lock=request_lock), limits=Limits(threads=1))
    table = WireTable(http).create()
    staged = [table.write_staged(1) for _ in range(3)]
    with another_process(directory), deadline_after(0, http), ThreadPoolExecutor(3) as writers:
        answers = list(writers.map(table.propose, staged))
    assert [refusal(answer) for answer in answers] == [UNAVAILABLE] * 3
    assert table.state()[0] == 0
    assert table.propose(staged[0]).status_code == 200


def test_read_that_needs_the_lock_runs_among_the_writes(
    serve: Serve, directory: Path, warehouse: refimpl.Warehouse
) -> None:
    """An inline commit is published first, because the API cannot express it."""
    http = serve(environment=Faults().environment(host_lock=request_lock))
    inline_table(warehouse)
    table = WireTable(http)
    with another_process(directory), deadline_after(0.05, http):
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


# The queue in which losers of a race get their turn; the clock is the test's

STEP = re.compile(r"(?P<client>[a-z]+\d*)(?:@(?P<version>\d+))?(?P<mark>[?/!.~+]|-(?P<latest>\d+))?")
MISSES = range(2 * scheduling.MISSES)
SLOW = "s s-1 a@2? 1s a! s@2? a+ s! s-2 a@3?"
"""`s` lost, came back after one second, and lost again, in its turn."""
PROMPT = "a b? a+ b! a@2? b+ a! b@3? a+"
"""`a` landed, proposed again at once, and landed again in its next turn, while `b` waited."""
GONE = "x x-1 y? 0.3s y! y-1 z? 0.3s z! z-1"
"""Three clients lost, and did not come back."""
QUEUE = {
    "a proposal alone does not wait": "a a+ b b+ a a+",
    "one proposal is decided at a time": "a b? a+ b!",
    "a loser goes before the winner": "a a-1 w? a@2 w. a+ w!",
    "losers are answered in their order of arrival": "a b? c? a-1 a@2 a+ b! b-1 b@2 b+ c! c-1 c@2 c+",
    "a client that loses another version keeps its turn": "a a-1 b? a@2 a-2 b. a@3 a+ b!",
    "a client that has not loaded the table gives up its turn": "a a-5 b@6? a@5 b! a@4 b+",
    "stale versions block no writer": "s s-100 s@0 w@101 w+ s@99 w@102 w+",
    "the decision on a loser's proposal takes as long as it needs": "a a-1 b? a@2 60s b. a+ b!",
    "a wait ends at its deadline, and the turn stays": "a b/ c? b-1 b+ c. a+ c!",
    "a client that goes away blocks no other": "a b? c? b~ a+ c!",
    "a client that goes away at the moment of its turn passes it on": "a b? c? a+ b~ c!",
    "a slow client gets the time that it needed": f"{SLOW} 1.2s a. s@3 s+ a!",
    "slow clients get a share of the time": f"{SLOW} 1.7s a! s@3? a+ 0.01s s! s-3 a@4? 0.3s a!",
    "the queue ends after several clients never return": f"{GONE} a? b? c? 0.3s a! b! c! a-1 d",
    "the queue is used again some time after it ended": f"{GONE} 0.3s 2.5s a a+ a a-1 b? a@2 a+ b!",
    "one slow client does not end the queue": " ".join(
        f"s{n} s{n}-1 a@{2 * n}? 0.3s a! a-{2 * n} b@{2 * n + 1}? a@{2 * n + 1} a+ b! b+" for n in MISSES
    ),
    "a client that lands is no miss": " ".join(
        ["g g-1", *(f"w{n}? g{n}? 0.3s w{n}! w{n}+ g{n}! g{n}-1" for n in MISSES), "o?"]
    ),
    "a client that returns at once keeps its turn for a while": f"{PROMPT} a@4 b. 0.2s a+ b!",
    "a turn ends if the client does not return": f"{PROMPT} a@4 a+ 0.01s b!",
    "a turn ends if the client is slow": f"{PROMPT} b. 0.01s b!",
    "a turn ends if the client had it for long": f"{PROMPT.removesuffix('a+')}0.2s a+ b!",
    "a client that returned late has no turn to keep": "a b? a+ b! 0.01s a@2? b+ a! b@3? a+ b!",
}
"""`a@2`: client a proposes version 2, and is decided on at once; `a?`: it waits; `a/`: its deadline has passed; `a!`:
its wait has ended; `a.`: it still waits; `a~`: it goes away; `a+`: it landed; `a-5`: it lost, the latest version is 5;
`1.5s`: this time passes."""


async def settled() -> None:
    """Let every task run until it waits."""
    for _ in range(5):
        await asyncio.sleep(0)


async def play_steps(steps: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, queue, waiting = asyncio.get_running_loop(), FairQueue(), dict[str, asyncio.Task[None]]()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)
    for number, step in enumerate(steps.split()):
        at = f"step {number}, {step}"
        if step.endswith("s") and step[0].isdigit():
            now += float(step[:-1])
            await settled()
            continue
        match = STEP.fullmatch(step)
        assert match is not None, at
        client, mark = match["client"], match["mark"] or ""
        if mark in ("", "?", "/"):
            deadline = now if mark == "/" else now + 1e6
            waiting[client] = asyncio.create_task(queue.wait("orders", client, int(match["version"] or 1), deadline))
            await settled()
            assert waiting[client].done() is (mark != "?"), at
        elif mark in ("!", "."):
            await settled()
            assert waiting[client].done() is (mark == "!"), at
        elif mark == "~":
            waiting[client].cancel()
            await settled()
        elif mark == "+":
            queue.done("orders", client, landed=True)
        else:
            queue.lost("orders", client, int(match["latest"]))
    for task in waiting.values():
        task.cancel()


@pytest.mark.parametrize("steps", QUEUE.values(), ids=QUEUE)
def test_queue_gives_turns_by_its_rules(steps: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(play_steps(steps, monkeypatch))


def test_each_table_has_its_own_queue() -> None:
    async def play() -> None:
        queue, soon = FairQueue(), asyncio.get_running_loop().time()
        await queue.wait("invoices", "loser", 1, soon + 120)
        queue.lost("invoices", "loser", 1)
        await queue.wait("orders", "a", 1, soon + 120)
        assert set(queue._lines) == {"invoices", "orders"}

    asyncio.run(play())


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
