"""The queue in which losers of a race get their turn, played without waiting for the clock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from refimpl.server import scheduling
from refimpl.server.scheduling import FairQueue
from spec_tests.server.wire import WireTable, added

LONG = 120.0


def played(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The test is a coroutine, on a loop of its own."""

    @wraps(test)
    def play(*values: Any, **fixtures: Any) -> None:
        asyncio.run(test(*values, **fixtures))

    return play


async def waits(line: FairQueue, client: str, seconds: float = LONG, version: int = 1) -> None:
    await line.wait("orders", client, version, asyncio.get_running_loop().time() + seconds)


async def loses(line: FairQueue, client: str, version: int = 1) -> None:
    """Its version is the latest one already."""
    await waits(line, client, version=version)
    line.lost("orders", client, version)


async def settled() -> None:
    """Let every task go on until it waits for something."""
    for _ in range(5):
        await asyncio.sleep(0)


@played
async def test_whose_proposal_comes_alone_does_not_wait() -> None:
    line = FairQueue()
    for client in ("a", "b", "a"):
        await waits(line, client, 0.0)
        line.done("orders", client)


@played
async def test_one_proposal_is_judged_at_a_time() -> None:
    line = FairQueue()
    await waits(line, "a")
    second = asyncio.create_task(waits(line, "b"))
    await settled()
    assert not second.done()
    line.done("orders", "a")
    await second


@played
async def test_who_lost_goes_before_who_won() -> None:
    line = FairQueue()
    await loses(line, "loser")
    winner = asyncio.create_task(waits(line, "winner"))
    await settled()
    assert not winner.done()
    await waits(line, "loser", version=2)
    await settled()
    assert not winner.done(), "the loser is being judged"
    line.done("orders", "loser")
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
        line.done("orders", name)

    names = ["a", "b", "c", "d"]
    await asyncio.gather(*(client(name) for name in names))
    assert answered == names


@played
async def test_who_loses_a_later_version_in_its_turn_keeps_it() -> None:
    """Another server, or a local process, was first."""
    line = FairQueue()
    await loses(line, "a")
    other = asyncio.create_task(waits(line, "b"))
    await loses(line, "a", 2)
    await settled()
    assert not other.done()
    await waits(line, "a", version=3)
    line.done("orders", "a")
    await other


@played
async def test_a_client_that_sends_a_lost_version_again_gives_up_its_turn() -> None:
    """It has not loaded the table, and loses whatever it waits for."""
    line = FairQueue()
    await loses(line, "a", 5)
    other = asyncio.create_task(waits(line, "b", version=6))
    await settled()
    assert not other.done()
    await waits(line, "a", version=5)
    await settled()
    assert other.done(), "it need not wait for its own time limit"
    await waits(line, "a", version=4)
    line.done("orders", "b")


@pytest.mark.parametrize("version", [2, 1], ids=["rebased", "sent again"])
@played
async def test_a_loser_that_came_back_is_not_waited_for_any_longer(version: int) -> None:
    """Its proposal may be judged for longer than the others wait for it to come back."""
    line = FairQueue()
    await loses(line, "a")
    timer = line._lines["orders"].patience
    await waits(line, "a", version=version)
    assert timer is not None
    assert timer.cancelled()


@pytest.mark.parametrize("versions", [[1], [0, 1], list(range(50))], ids=["one", "two", "rising"])
def test_a_writer_commits_beside_one_that_sends_stale_versions(versions: list[int]) -> None:
    """Of two clients that each make the same number of requests, every one of the writer's lands."""

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
                line.done("orders", client)
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
async def test_wait_ends_at_its_deadline_and_the_turn_goes_on() -> None:
    line = FairQueue()
    await waits(line, "a")
    await waits(line, "b", 0.0)
    third = asyncio.create_task(waits(line, "c"))
    await settled()
    assert not third.done()
    line.lost("orders", "b", 1)
    line.done("orders", "b")
    await settled()
    assert not third.done(), "the turn is not that of the one whose time was up"
    line.done("orders", "a")
    await third


@pytest.mark.parametrize("at_the_moment_of_its_turn", [False, True])
@played
async def test_client_that_goes_away_blocks_no_other(at_the_moment_of_its_turn: bool) -> None:
    line = FairQueue()
    await waits(line, "a")
    gone, third = (asyncio.create_task(waits(line, name)) for name in "bc")
    await settled()
    if at_the_moment_of_its_turn:
        line.done("orders", "a")
        gone.cancel()
    else:
        gone.cancel()
        await settled()
        line.done("orders", "a")
    await settled()
    assert third.done(), "it need not wait for its own time limit"
    await third
    assert gone.cancelled()


@played
async def test_who_does_not_come_back_is_not_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "PATIENCE_SECONDS", 0.01)
    line = FairQueue()
    for number in range(scheduling.MISSES):
        await loses(line, f"gone {number}")
    await asyncio.gather(*(waits(line, name) for name in "abc"))
    line.lost("orders", "a", 1)
    last = asyncio.create_task(waits(line, "d"))
    await settled()
    assert last.done(), "no client has the turn for a while"


@played
async def test_one_slow_client_does_not_end_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "PATIENCE_SECONDS", 0.01)
    line = FairQueue()
    for number in range(2 * scheduling.MISSES):
        await loses(line, f"slow {number}")
        await loses(line, "a", 2 * number)  # has the turn, once that of the slow one has ended
        other = asyncio.create_task(waits(line, "b", version=2 * number + 1))
        await settled()
        assert not other.done()
        await waits(line, "a", version=2 * number + 1)
        line.done("orders", "a")
        await other
        line.done("orders", "b")


@played
async def test_misses_that_are_not_in_a_row_do_not_end_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that lands in its turn has come back."""
    monkeypatch.setattr(scheduling, "PATIENCE_SECONDS", 0.01)
    line = FairQueue()
    await loses(line, "gone")
    for number in range(2 * scheduling.MISSES):
        writer = asyncio.create_task(waits(line, f"writer {number}"))
        gone = asyncio.create_task(loses(line, f"gone {number}"))
        await writer
        line.done("orders", f"writer {number}")
        if number == 2 * scheduling.MISSES - 1:
            monkeypatch.setattr(scheduling, "PATIENCE_SECONDS", LONG)
        await gone
    other = asyncio.create_task(waits(line, "other"))
    await settled()
    assert not other.done(), "the queue was given up"


@played
async def test_queue_is_used_again_some_time_after_it_was_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(scheduling, "GIVEN_UP_SECONDS", 0.0)
    line = FairQueue()
    for number in range(scheduling.MISSES):
        await loses(line, f"gone {number}")
    await waits(line, "a")
    await waits(line, "a")
    line.done("orders", "a")
    await loses(line, "a")
    other = asyncio.create_task(waits(line, "b"))
    await settled()
    assert not other.done()
    await waits(line, "a", version=2)
    line.done("orders", "a")
    await other


@played
async def test_another_table_has_a_line_of_its_own() -> None:
    line = FairQueue()
    await line.wait("invoices", "loser", 1, asyncio.get_running_loop().time() + LONG)
    line.lost("invoices", "loser", 1)
    await waits(line, "a", 0.0)


async def called(application: Any, port: int, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """One request on the connection from this port."""
    content = b"" if body is None else json.dumps(body).encode()
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(dict(message))

    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"", "headers": [],
        "http_version": "1.1", "scheme": "http", "server": ("test", 80), "client": ("test", port), "root_path": "",
    }  # fmt: skip
    await application(scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


async def proposed(table: WireTable, port: int, version: int) -> tuple[int, Any]:
    body = {
        "requirements": [{"type": "assert-table-uuid", "uuid": table.table_id}],
        "updates": [added(table.write_staged(version))],
    }
    return await called(table.http.app, port, "POST", table.url, body)


def test_client_keeps_the_turn_after_a_conflict_only(table: WireTable) -> None:
    queue: FairQueue = table.http.app_state["server"]._queue

    async def play() -> list[tuple[int, int, list[int]]]:
        return [
            ((await proposed(table, port, version))[0], len(queue._lines), list(queue._lost_at.values()))
            for port, version in enumerate((7, 1, 1))
        ]

    assert asyncio.run(play()) == [(400, 0, []), (200, 0, []), (409, 1, [1])]


def test_of_many_clients_on_one_table_each_lands_after_it_lost_once(
    table: WireTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "PATIENCE_SECONDS", 60.0)
    monkeypatch.setattr("refimpl.server.application.LONGEST_WAIT_SECONDS", 60.0)
    clients, each = 5, 4
    losses: list[int] = []

    async def client(port: int) -> None:
        version = 1
        for _ in range(each):
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
    assert table.state()[0] == clients * each
    assert len(losses) == clients * each
    assert max(losses) == 1
