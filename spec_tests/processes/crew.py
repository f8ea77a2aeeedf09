"""Worker processes that live through many rounds, until they are killed; then another takes the place.

Each is forked from a process that has imported everything and has opened nothing, which takes
milliseconds. Orders and notes go through pipes: a round starts when the orders are written and ends when
every worker has said that it is done or is dead. Nobody sleeps, and nobody waits for a time.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from spec_tests.processes import worker
from spec_tests.processes.worker import Note, Order

PATIENCE_SECONDS = 120.0
"""A round that takes longer hangs: that is a finding."""


@dataclass(frozen=True, kw_only=True)
class Shot:
    """Kill the worker once it has made so many notes, and so many seconds later."""

    after_notes: int
    delay: float


@dataclass
class _Process:
    pid: int
    orders: int
    notes: int
    unread: bytes = b""

    def read(self) -> list[Note] | None:
        """Its notes since the last look; None: it is dead, and nothing is left to read."""
        chunk = os.read(self.notes, 65536)
        *lines, self.unread = (self.unread + chunk).split(b"\n")
        if not chunk and not lines:
            return None
        return [msgspec.json.decode(line, type=Note) for line in lines]

    def bury(self) -> None:
        os.close(self.orders)
        os.close(self.notes)
        os.waitpid(self.pid, 0)


@dataclass
class Crew:
    """The workers on one warehouse."""

    directory: Path
    durable: bool
    shot: int = 0
    """How many were killed from outside."""
    _members: dict[int, _Process] = field(default_factory=dict)

    def _hire(self, place: int) -> _Process:
        orders_out, orders_in = os.pipe()
        notes_out, notes_in = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                for other in self._members.values():
                    os.close(other.orders)
                    os.close(other.notes)
                os.close(orders_in)
                os.close(notes_out)
                worker.main(self.directory, orders_out, notes_in, self.durable)
            finally:
                os._exit(0)
        os.close(orders_out)
        os.close(notes_in)
        self._members[place] = _Process(pid, orders_in, notes_out)
        return self._members[place]

    def round(self, orders: Sequence[Order], shots: dict[int, Shot]) -> Iterator[tuple[int, Note]]:
        """All notes of one round, as (worker, note), in the order in which each worker made them."""
        members = {place: self._members.get(place) or self._hire(place) for place in range(len(orders))}
        for place, order in enumerate(orders):
            os.write(members[place].orders, msgspec.json.encode(order) + b"\n")
        seen = dict.fromkeys(members, 0)
        due: dict[int, float] = {}
        killed: set[int] = set()
        with selectors.DefaultSelector() as selector:
            for place, member in members.items():
                selector.register(member.notes, selectors.EVENT_READ, place)
            started = time.monotonic()
            while members:
                if time.monotonic() - started > PATIENCE_SECONDS:
                    raise TimeoutError(f"workers {sorted(members)} hang")
                for key, _ in selector.select(0 if due else PATIENCE_SECONDS):
                    place = key.data
                    notes = members[place].read()
                    for note in notes or ():
                        seen[place] += 1
                        yield place, note
                    done = notes is not None and any(note.what == "done" for note in notes)
                    if notes is None or (done and place not in killed):
                        selector.unregister(members[place].notes)
                        if notes is None:
                            self._members.pop(place).bury()
                        del members[place]
                        due.pop(place, None)
                        shots.pop(place, None)
                    elif not done and place in shots and seen[place] >= shots[place].after_notes:
                        due[place] = time.perf_counter() + shots.pop(place).delay
                for place in [place for place, moment in due.items() if time.perf_counter() >= moment]:
                    os.kill(members[place].pid, signal.SIGKILL)
                    self.shot += 1
                    killed.add(place)
                    del due[place]

    def dismiss(self) -> None:
        for member in self._members.values():
            os.kill(member.pid, signal.SIGKILL)
            member.bury()
        self._members.clear()
