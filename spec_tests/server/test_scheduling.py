"""What a request waits for: reads and health for no writer, and nothing beyond the request's deadline."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import gc
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx2
import pytest
from starlette.testclient import TestClient

import refimpl
from refimpl.commit_owner import MaintenancePolicy
from refimpl.environment import HostLock, host_lock
from refimpl.errors import OutcomeUnknown, OwnerUnavailableError
from refimpl.files import PosixFiles
from refimpl.log_store import LogStore
from refimpl.server import scheduling
from refimpl.server.application import Limits
from refimpl.server.delta_api import DeltaApi
from refimpl.server.scheduling import (
    LockNeededError,
    Pool,
    Publisher,
    SideBySide,
    limited,
    request_lock,
    shared_environment,
)
from spec_tests.server.conftest import Serve, inline_table
from spec_tests.server.test_faults import process
from spec_tests.server.test_hostile import PROGRAM, answers_of
from spec_tests.server.wire import LEGACY, UNAVAILABLE, WireTable, added, refusal
from spec_tests.support.faults import Faults

THREADS = 2


def another_process(directory: Path) -> AbstractContextManager[object]:
    """Holds the owner's lock, as a process of its own would: through a file of its own."""
    return host_lock(directory / "_owner" / "lock")()


class Watched:
    """The server's lock, that tells how often it was asked for."""

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


def test_reads_and_health_are_answered_while_all_writers_wait(serve: Serve, directory: Path) -> None:
    lock = Watched()
    http = serve(environment=Faults().environment(host_lock=lock), limits=Limits(threads=THREADS))
    table = WireTable(http).create()
    table.land(1)
    while lock.asked.acquire(blocking=False):
        pass
    statuses: list[int] = []

    def write() -> None:
        statuses.append(table.propose(table.write_staged(2)).status_code)

    drop = threading.Thread(target=lambda: http.delete(f"{table.base}/tables/nothing"))
    writers = [threading.Thread(target=write) for _ in range(2 * THREADS)]
    staging = threading.Thread(target=lambda: http.post(f"{table.base}/staging-tables", json={"name": "more"}))
    with another_process(directory):
        for each in (*writers, staging, drop):
            each.start()
        assert lock.asked.acquire(timeout=120)  # one thread asks, and decides what the others propose
        for path in (table.url, f"{table.base}/tables", f"{LEGACY}/catalogs", "/health", "/metrics", "/openapi.json"):
            assert http.get(path).status_code == 200, path
        assert not statuses
    for each in (*writers, staging, drop):
        each.join(20)
    assert sorted(statuses) == [200] + [409] * (2 * THREADS - 1)


def test_a_write_is_refused_at_its_deadline_and_changes_nothing(serve: Serve, directory: Path) -> None:
    """Also one that no thread has begun."""
    environment = Faults().environment(host_lock=request_lock)
    http = serve(environment=environment, limits=Limits(threads=1, request_seconds=0.2))
    table = WireTable(http).create()
    staged = [table.write_staged(1) for _ in range(3)]
    answers: list[Any] = []
    with another_process(directory):
        writers = [threading.Thread(target=lambda each=each: answers.append(table.propose(each))) for each in staged]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(20)
    assert [refusal(answer) for answer in answers] == [UNAVAILABLE] * 3
    assert table.state()[0] == 0
    assert table.propose(staged[0]).status_code == 200


def test_a_read_that_needs_the_lock_goes_on_among_the_writes(
    serve: Serve, directory: Path, warehouse: refimpl.Warehouse
) -> None:
    """A commit that is in no file is published first, because the API has no words for it."""
    environment = Faults().environment(host_lock=request_lock)
    http = serve(environment=environment, limits=Limits(request_seconds=0.2))
    inline_table(warehouse)
    table = WireTable(http)
    with another_process(directory):
        assert refusal(http.get(table.url)) == UNAVAILABLE
        assert http.get("/health").status_code == 200
    assert table.state()[:2] == (1, [])


def test_read_that_fails_is_not_carried_out_again(table: WireTable, http: TestClient) -> None:
    with patch.object(DeltaApi, "describe", side_effect=OwnerUnavailableError("busy")) as described:
        assert refusal(http.get(table.url)) == UNAVAILABLE
    assert described.call_count == 1


def test_a_publisher_that_closes_ends_what_it_began_and_begins_nothing(tmp_path: Path) -> None:
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
    """Each sync waits for the other one to begin, and the call for both to end."""
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


def test_thread_that_did_not_get_the_lock_in_time_keeps_no_other_from_it(tmp_path: Path) -> None:
    lock = request_lock(tmp_path / "lock")
    with host_lock(tmp_path / "lock")(), limited(time.monotonic(), lock=True), pytest.raises(OwnerUnavailableError):
        lock().__enter__()
    with ThreadPoolExecutor(1) as other:
        other.submit(lambda: lock().__enter__()).result()


def test_a_thread_for_reads_never_takes_the_lock(tmp_path: Path) -> None:
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
def test_a_call_that_does_not_end_is_answered_at_its_deadline(
    lock: bool, running: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a stop does not wait for it."""
    monkeypatch.setattr(scheduling, "GRACE_SECONDS", 0.0)
    pool, go_on, begun = Pool(1, 10, lock=lock), threading.Event(), threading.Event()
    carried_out: list[int] = []

    def hang() -> None:
        begun.set()
        go_on.wait(120)

    async def ended(work: Callable[[], Any]) -> Exception | None:
        try:
            await pool.run(work, time.monotonic() + 0.05)
        except (OutcomeUnknown, OwnerUnavailableError) as error:
            return error
        return None

    async def play() -> None:
        first = asyncio.create_task(ended(hang))
        while not begun.is_set():
            await asyncio.sleep(0)
        assert type(await ended(lambda: carried_out.append(1))) is OwnerUnavailableError
        assert type(await first) is running

    try:
        asyncio.run(play())
        assert not pool.close(0.0)
    finally:
        go_on.set()
    assert pool.close(20.0)
    assert not carried_out


def test_nothing_is_kept_or_reported_of_calls_that_ended() -> None:
    """Also of one that failed when its client had gone."""
    pool, publisher, begun, go_on = Pool(1, 10, lock=True), Publisher(1), threading.Event(), threading.Event()
    reported: list[Any] = []

    def fail() -> None:
        begun.set()
        assert go_on.wait(120)
        raise ZeroDivisionError

    async def play() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        gone = asyncio.create_task(pool.run(fail, time.monotonic() + 60))
        while not begun.is_set():
            await asyncio.sleep(0)
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


@pytest.mark.processes
def test_a_server_stops_while_another_process_holds_the_lock(tmp_path: Path) -> None:
    directory = tmp_path / "warehouse"
    with (
        process("-c", PROGRAM, str(directory), "10", "0.5") as (started, url),
        httpx2.Client(base_url=url, timeout=120) as client,
    ):
        table = WireTable(client).create()
        requirements = [{"type": "assert-table-uuid", "uuid": table.table_id}]
        updates = [added(table.write_staged(1))]
        body = json.dumps({"requirements": requirements, "updates": updates}).encode()
        head = f"POST {table.url} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        with (
            another_process(directory),
            socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 30) as writer,
        ):
            writer.sendall(head.encode() + body)
            assert client.get("/health").status_code == 200  # the server has read by then what came before
            os.kill(started.pid, signal.SIGTERM)
            assert answers_of(writer).startswith(b"HTTP/1.1 503")
            assert started.wait(120) == 0


@pytest.mark.processes
def test_a_server_stops_while_another_process_publishes(tmp_path: Path) -> None:
    """No request is open, so that the stop is no failure."""
    directory = tmp_path / "warehouse"
    with (
        process("-c", PROGRAM, str(directory), "10", "0.5") as (started, url),
        httpx2.Client(base_url=url, timeout=120) as client,
    ):
        table = WireTable(client).create()
        with refimpl.open(directory) as warehouse, host_lock(directory / "_owner" / f"publishing-{table.table_id}")():
            warehouse.owner.set_policy(table.table_id, MaintenancePolicy(backfill_every=1))
            table.land(1)
            os.kill(started.pid, signal.SIGTERM)
            assert started.wait(120) == 0
            assert [commit.version for commit in warehouse.owner.get_commits(table.table_id).commits] == [1]
