"""Who lost a race is told when the next version is its own to try: a courtesy, played without waiting for the clock."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from refimpl.server import turns
from refimpl.server.turns import Turns
from spec_tests.server.wire import WireTable, added

LONG = 60.0


async def waits(line: Turns, client: str, seconds: float = LONG) -> bool:
    return await line.wait("orders", client, asyncio.get_running_loop().time() + seconds)


async def settled() -> None:
    """Let every task go on until it waits for something."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_without_losers_nobody_waits() -> None:
    async def play() -> None:
        line = Turns()
        first = asyncio.create_task(waits(line, "a"))
        await settled()
        assert first.done()
        line.done("orders", "a")

    asyncio.run(play())


def test_who_lost_goes_before_who_won() -> None:
    async def play() -> None:
        line = Turns()
        assert line.lost("orders", "loser")
        winner = asyncio.create_task(waits(line, "winner"))
        await settled()
        assert not winner.done()
        assert await waits(line, "loser")
        await settled()
        assert not winner.done(), "the loser is being judged"
        line.done("orders", "loser")
        assert await winner

    asyncio.run(play())


def test_losers_are_told_one_after_the_other_in_the_order_in_which_they_came() -> None:
    async def play() -> None:
        line = Turns()
        told: list[str] = []

        async def client(name: str) -> None:
            while not line.lost("orders", name):
                assert await waits(line, name)
            told.append(name)
            await settled()
            assert await waits(line, name)
            line.done("orders", name)

        names = ["a", "b", "c", "d"]
        await asyncio.gather(*(client(name) for name in names))
        assert told == names

    asyncio.run(play())


def test_who_loses_again_in_its_turn_keeps_it() -> None:
    """Another server, or a local process, was first."""

    async def play() -> None:
        line = Turns()
        assert line.lost("orders", "a")
        other = asyncio.create_task(waits(line, "b"))
        assert await waits(line, "a")
        assert line.lost("orders", "a")
        await settled()
        assert not other.done()
        assert await waits(line, "a")
        line.done("orders", "a")
        assert await other

    asyncio.run(play())


def test_a_wait_ends_at_its_deadline_and_the_turn_then_goes_to_somebody_who_still_waits() -> None:
    async def play() -> None:
        line = Turns()
        assert line.lost("orders", "a")
        assert await waits(line, "a")
        assert not await waits(line, "b", 0.0)
        third = asyncio.create_task(waits(line, "c"))
        await settled()
        line.done("orders", "a")
        assert await third

    asyncio.run(play())


def test_who_does_not_come_back_is_not_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE_SECONDS", 0.01)

    async def play() -> None:
        line = Turns()
        assert line.lost("orders", "gone")
        assert await asyncio.gather(*(waits(line, name) for name in "abc")) == [True] * 3
        assert line.lost("orders", "a")
        assert line.lost("orders", "b"), "nobody has the turn for a while"
        last = asyncio.create_task(waits(line, "c"))
        await settled()
        assert last.done()

    asyncio.run(play())


def test_another_table_has_a_line_of_its_own() -> None:
    async def play() -> None:
        line = Turns()
        assert line.lost("invoices", "loser")
        task = asyncio.create_task(waits(line, "a"))
        await settled()
        assert task.done()

    asyncio.run(play())


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


def test_of_many_clients_on_one_table_each_lands_after_it_lost_once(
    table: WireTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "PATIENCE_SECONDS", 60.0)
    monkeypatch.setattr("refimpl.server.application.LONGEST_WAIT_SECONDS", 60.0)
    clients, each = 5, 4
    losses: list[int] = []

    async def client(port: int) -> None:
        version = 1
        for _ in range(each):
            lost = 0
            while True:
                staged = table.write_staged(version)
                body = {
                    "requirements": [{"type": "assert-table-uuid", "uuid": table.table_id}],
                    "updates": [added(staged)],
                }
                status, told = await called(table.http.app, port, "POST", table.url, body)
                if status == 200:
                    break
                assert told["error"]["type"] == "CommitVersionConflictException"
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
