"""A worker process: opens a subject of its own and runs the cases that it is told to.

The coordinator's messages come by the standard input, the answers go to what was the standard output. A subject that
runs in the process may print: that goes to the standard error. When the input ends, because the run is over, or was
given up, or the coordinator is no more, the subject is closed and the process ends, whatever is still running in it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from queue import SimpleQueue
from typing import BinaryIO, Final

import msgspec

from conformance.interface.subject import AdapterError
from conformance.running import driving
from conformance.running.errors import UnusableError
from conformance.running.tasks import Alive, Defect, Open, Opened, Ran, Report, RunCase, Smoke, Task, Unusable, encode

CLOSING_SECONDS: Final = 5.0
"""How long a subject may take to close."""

PULSE_SECONDS: Final = 1.0
"""Between two signs of life."""


class Worker:
    """Does one task after the other."""

    def __init__(self) -> None:
        self._driven: driving.Driven | None = None

    def do(self, task: Task) -> Report:
        """Whatever happens is an answer."""
        try:
            return self._do(task)
        except (AdapterError, UnusableError) as error:
            return Unusable(problem=error.problem, came=error.came, says=error.says)
        except Exception as error:  # noqa: BLE001  # the coordinator says it, and the run goes no further
            return Defect(problem=f"{type(error).__name__}: {error}", where=traceback.format_exc())

    def _do(self, task: Task) -> Report:
        match task:
            case Open():
                self._driven = driving.Driven(task)
                return Opened(identity=self._driven.identity)
            case Smoke():
                return self._opened().smoke()
            case RunCase():
                return Ran(result=self._opened().run(task))

    @property
    def answers(self) -> int:
        """Of the subject, so far."""
        return 0 if self._driven is None else self._driven.pulse.answers

    def _opened(self) -> driving.Driven:
        if self._driven is None:
            raise RuntimeError("a worker was given work before a subject")
        return self._driven

    def close(self) -> None:
        """From any thread, while a case is running."""
        if self._driven is not None:
            with contextlib.suppress(Exception):
                self._driven.close()


def main() -> None:
    """Until the standard input ends."""
    signal.signal(signal.SIGINT, lambda *_: None)  # the coordinator's to handle; a subject's process gets the default
    reports = _Reports(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    worker = Worker()
    tasks: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, tasks, worker.close), daemon=True).start()
    threading.Thread(target=_feel_the_pulse, args=(worker, reports), daemon=True).start()
    while True:
        task: Task = msgspec.json.decode(tasks.get(), type=Task)
        reports.put(worker.do(task))


class _Reports:
    """What the coordinator hears, a line at a time, from any thread."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def put(self, report: Report) -> None:
        line = encode(report)
        with self._lock, contextlib.suppress(OSError):  # nobody hears any more: the input has ended too
            self._stream.write(line)
            self._stream.flush()


def _feel_the_pulse(worker: Worker, reports: _Reports) -> None:
    """A slow subject is not one that hangs."""
    before = 0
    while True:
        time.sleep(PULSE_SECONDS)
        now = worker.answers
        if now != before:
            before = now
            reports.put(Alive())


def _listen(stream: BinaryIO, tasks: SimpleQueue[bytes], close: Callable[[], None]) -> None:
    for line in stream:
        tasks.put(line)
    closing = threading.Thread(target=close, daemon=True)
    closing.start()
    closing.join(CLOSING_SECONDS)
    os._exit(0)  # the main thread may be in the middle of a case, in code that never returns
