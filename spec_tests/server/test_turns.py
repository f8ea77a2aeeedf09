"""Who lost a race is let first, for a moment; and nobody waits long for one who does not come back."""

from __future__ import annotations

import asyncio

from refimpl.server import turns
from refimpl.server.turns import Turns


async def waited(line: Turns, client: str) -> float:
    """How long it takes until the client may propose."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    await line.wait("orders", client)
    return loop.time() - start


def test_without_losers_nobody_waits() -> None:
    async def play() -> None:
        line = Turns()
        assert await waited(line, "a") < turns.PATIENCE_SECONDS / 2
        line.done("orders", "a")

    asyncio.run(play())


def test_who_lost_goes_before_who_won() -> None:
    async def play() -> None:
        line = Turns()
        line.lost("orders", "loser")
        order: list[str] = []

        async def propose(client: str) -> None:
            await line.wait("orders", client)
            order.append(client)
            line.done("orders", client)

        winner = asyncio.create_task(propose("winner"))
        await asyncio.sleep(0)
        await asyncio.gather(winner, propose("loser"))
        assert order == ["loser", "winner"]

    asyncio.run(play())


def test_the_line_is_kept_while_its_clients_lose_again() -> None:
    async def play() -> None:
        line = Turns()
        for client in ("first", "second"):
            line.lost("orders", client)
        line.lost("orders", "first")
        assert await waited(line, "first") < turns.PATIENCE_SECONDS / 2
        line.done("orders", "first")
        line.lost("orders", "first")
        assert await waited(line, "second") < turns.PATIENCE_SECONDS / 2

    asyncio.run(play())


def test_who_does_not_come_back_is_not_waited_for_again() -> None:
    async def play() -> None:
        line = Turns()
        line.lost("orders", "gone")
        assert turns.PATIENCE_SECONDS * 0.9 <= await waited(line, "a") <= 10
        line.lost("orders", "gone too")
        assert await waited(line, "a") < turns.PATIENCE_SECONDS / 2

    asyncio.run(play())


def test_another_table_has_a_line_of_its_own() -> None:
    async def play() -> None:
        line = Turns()
        line.lost("invoices", "loser")
        assert await waited(line, "a") < turns.PATIENCE_SECONDS / 2

    asyncio.run(play())
