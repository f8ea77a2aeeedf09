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

ROUND_SECONDS = 120.0
"""A round that takes longer hangs: that is a finding."""


@dataclass(frozen=True, kw_only=True)
class ScheduledKill:
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

    def reap(self) -> None:
        os.close(self.orders)
        os.close(self.notes)
        os.waitpid(self.pid, 0)


@dataclass
class WorkerPool:
    """The workers on one warehouse."""

    directory: Path
    durable: bool
    killed: int = 0
    """How many were killed from outside."""
    _running: dict[int, _Process] = field(default_factory=dict)

    def _start(self, place: int) -> _Process:
        orders_out, orders_in = os.pipe()
        notes_out, notes_in = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                for other in self._running.values():
                    os.close(other.orders)
                    os.close(other.notes)
                os.close(orders_in)
                os.close(notes_out)
                worker.main(self.directory, orders_out, notes_in, self.durable)
            finally:
                os._exit(0)
        os.close(orders_out)
        os.close(notes_in)
        self._running[place] = _Process(pid, orders_in, notes_out)
        return self._running[place]

    def round(self, orders: Sequence[Order], kills: dict[int, ScheduledKill]) -> Iterator[tuple[int, Note]]:
        """All notes of one round, as (worker, note), in the order in which each worker made them."""
        workers = {place: self._running.get(place) or self._start(place) for place in range(len(orders))}
        for place, order in enumerate(orders):
            os.write(workers[place].orders, msgspec.json.encode(order) + b"\n")
        seen = dict.fromkeys(workers, 0)
        due: dict[int, float] = {}
        killed: set[int] = set()
        with selectors.DefaultSelector() as selector:
            for place, worker_process in workers.items():
                selector.register(worker_process.notes, selectors.EVENT_READ, place)
            started = time.monotonic()
            while workers:
                if time.monotonic() - started > ROUND_SECONDS:
                    raise TimeoutError(f"workers {sorted(workers)} hang")
                for key, _ in selector.select(0 if due else ROUND_SECONDS):
                    place = key.data
                    notes = workers[place].read()
                    for note in notes or ():
                        seen[place] += 1
                        yield place, note
                    done = notes is not None and any(note.what == "done" for note in notes)
                    if notes is None or (done and place not in killed):
                        selector.unregister(workers[place].notes)
                        if notes is None:
                            self._running.pop(place).reap()
                        del workers[place]
                        due.pop(place, None)
                        kills.pop(place, None)
                    elif not done and place in kills and seen[place] >= kills[place].after_notes:
                        due[place] = time.perf_counter() + kills.pop(place).delay
                for place in [place for place, moment in due.items() if time.perf_counter() >= moment]:
                    os.kill(workers[place].pid, signal.SIGKILL)
                    self.killed += 1
                    killed.add(place)
                    del due[place]

    def stop(self) -> None:
        for worker_process in self._running.values():
            os.kill(worker_process.pid, signal.SIGKILL)
            worker_process.reap()
        self._running.clear()
