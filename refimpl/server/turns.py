"""A courtesy to those who lost a race: the next version is theirs to try first.

Who wins knows the next version at once and would win again and again; who loses has to load the table and to stage
anew, and would starve. So proposals of others wait a moment for the client that lost first, and it is asked for nothing
but to come back on the same connection. Advisory like `CommitOwner.turn`: nothing is decided here, a wait is short, and
where clients do not come back on their connections the courtesy is given up for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

PATIENCE_SECONDS: Final = 0.1
"""How long the others wait for one that lost."""

LONGEST_WAIT_SECONDS: Final = 0.5
"""How long a proposal waits at most."""

GIVEN_UP_SECONDS: Final = 2.0
"""How long nobody waits any more after somebody did not come back."""


@dataclass(slots=True)
class _Line:
    """Those who lost on one table, the first of them first, and until when they are waited for."""

    losers: dict[Hashable, None] = field(default_factory=dict)
    until: float = 0.0
    given_up_until: float = 0.0
    moved: asyncio.Event = field(default_factory=asyncio.Event)


class Turns:
    """The lines of all tables of one server. For one event loop."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, _Line] = {}

    async def wait(self, table: Hashable, client: Hashable) -> None:
        """Return when the client's proposal shall be judged: at once, if nobody lost before it."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LONGEST_WAIT_SECONDS
        while (line := self._lines.get(table)) is not None and line.losers:
            now = loop.time()
            if next(iter(line.losers)) == client or now >= deadline or now < line.given_up_until:
                return
            if now >= line.until:
                line.losers.clear()
                line.given_up_until = now + GIVEN_UP_SECONDS
                return
            try:
                async with asyncio.timeout(min(line.until, deadline) - now):
                    await line.moved.wait()
            except TimeoutError:
                continue

    def lost(self, table: Hashable, client: Hashable) -> None:
        """The client was told that its version is taken. It keeps its place in the line if it has one."""
        now = asyncio.get_running_loop().time()
        line = self._lines.setdefault(table, _Line())
        if now < line.given_up_until:
            return
        if next(iter(line.losers), client) == client:
            line.until = now + PATIENCE_SECONDS
        line.losers[client] = None

    def done(self, table: Hashable, client: Hashable) -> None:
        """The client was answered otherwise: it landed, or will not try this again."""
        line = self._lines.get(table)
        if line is None or client not in line.losers:
            return
        del line.losers[client]
        line.until = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        line.moved.set()
        line.moved = asyncio.Event()
        if not line.losers and not line.given_up_until:
            del self._lines[table]
