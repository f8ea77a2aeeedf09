"""A courtesy to those who lost a race: one proposal for a table is judged at a time, and who lost may try again alone.

Who wins knows the next version at once and would win again and again; who loses has to load the table and to stage
anew, and would starve. And if all losers are told at once, all but one of them stage for nothing. So one client has the
turn: while its proposal is judged, and after it was told that it lost, until it comes back on the same connection. The
others' proposals stand in a line, first come, first served, and are judged when the turn is theirs: they lost by then,
hear of the latest version, and lose no second time.

The turn is kept for a client that rebases. One that sends a version again of which it was told that it is taken has not
loaded the table: it neither waits nor is waited for, or it would keep the others from committing.

Advisory like `CommitOwner.turn`: nothing is decided here, a wait is short, and where clients do not come back on their
connections the courtesy is given up for a while.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

PATIENCE_SECONDS: Final = 0.25
"""How long the others wait for the one that has the turn."""

LONGEST_WAIT_SECONDS: Final = 2.0
"""How long a proposal waits at most: clients and what stands before them have time limits, too."""

GIVEN_UP_SECONDS: Final = 2.0
"""How long nobody waits any more after somebody did not come back."""

LOSERS_KEPT: Final = 10_000
"""Clients of which it is known what they were told; the oldest are forgotten first."""


@dataclass(slots=True)
class _Line:
    """Who has the turn on one table, and who waits for it."""

    holder: Hashable = None
    patience: asyncio.TimerHandle | None = None
    """Runs while the holder is waited for, and not while its proposal is judged."""
    waiting: deque[tuple[Hashable, asyncio.Future[None]]] = field(default_factory=deque)
    given_up_until: float = 0.0

    def stop_patience(self) -> None:
        if self.patience is not None:
            self.patience.cancel()
            self.patience = None

    def pass_on(self) -> None:
        """Give the turn to the first one who still waits, if there is any."""
        self.stop_patience()
        self.holder = None
        while self.waiting and self.holder is None:
            client, turn = self.waiting.popleft()
            if not turn.done():  # its own time limit may have ended the wait
                self.holder = client
                turn.set_result(None)


class Turns:
    """The lines of all tables of one server. For one event loop."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, _Line] = {}
        self._told: dict[tuple[Hashable, Hashable], int] = {}
        """The latest version, by table and client, when that client lost there."""

    async def wait(self, table: Hashable, client: Hashable, version: int, deadline: float) -> None:
        """Return when the client's proposal of `version` shall be judged: at once if no other client has the turn or
        the client knows that this version is taken, and at `deadline` (of the loop's clock) in any case. `lost` or
        `done` says what came of it."""
        loop = asyncio.get_running_loop()
        if version <= self._told.get((table, client), -1):
            self.done(table, client)
            return
        line = self._lines.setdefault(table, _Line())
        if loop.time() < line.given_up_until:
            return
        if line.holder in (None, client):
            line.stop_patience()
            line.holder = client
            return
        turn: asyncio.Future[None] = loop.create_future()
        line.waiting.append((client, turn))
        try:
            async with asyncio.timeout_at(deadline):
                await turn
        except TimeoutError:
            self.done(table, client)
        except BaseException:
            self.done(table, client)  # it may have been given the turn in the moment in which it went away
            raise

    def lost(self, table: Hashable, client: Hashable, latest: int) -> None:
        """The client is told that its version is taken, and the latest one. If it has the turn, it is waited for."""
        if len(self._told) >= LOSERS_KEPT:
            del self._told[next(iter(self._told))]
        self._told[table, client] = latest
        line = self._lines.get(table)
        if line is not None and line.holder == client:
            line.patience = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._give_up, line)

    def done(self, table: Hashable, client: Hashable) -> None:
        """The client is answered otherwise: it landed, or will not try this again. The turn goes to the next."""
        line = self._lines.get(table)
        if line is None or line.holder != client:
            return
        line.pass_on()
        if line.holder is None:
            del self._lines[table]

    def _give_up(self, line: _Line) -> None:
        """The holder did not come back: all who wait are judged now, and nobody waits for a while."""
        line.given_up_until = asyncio.get_running_loop().time() + GIVEN_UP_SECONDS
        while line.waiting:
            line.pass_on()
        line.pass_on()
