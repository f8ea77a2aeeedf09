"""One process of the demonstration: `python -m refimpl.demo.worker TASK`. See `tasks` for how it is spoken to."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from typing import Any

import msgspec

from refimpl.demo import creating, ingesting, reading
from refimpl.demo.tasks import Create, Ingest, ReadBack, Task, Told, Watch
from refimpl.errors import DeltaError


class Line:
    """The line to the process that started this one."""

    def __init__(self) -> None:
        # Whatever Spark, Java or a library prints goes to the standard error: the line carries events only.
        self._out = os.dup(1)
        os.dup2(2, 1)
        self._words: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._hear, daemon=True).start()

    def _hear(self) -> None:
        """Reads the descriptor itself: a thread that waits inside `sys.stdin` disturbs the interpreter's end."""
        pending = b""
        while heard := os.read(0, 65536):
            *words, pending = (pending + heard).split(b"\n")
            for word in words:
                self._words.put(word.decode())
        os._exit(1)  # nobody is there any more: leave at once, as if killed

    def tell(self, what: str, **facts: Any) -> None:
        told = Told(what=what, at=time.time_ns() // 1_000_000, facts=facts)
        os.write(self._out, msgspec.json.encode(told) + b"\n")

    def wait(self) -> str:
        """The next word, when it comes."""
        return self._words.get()

    def word_came(self) -> bool:
        return not self._words.empty()


def run(task: Task, line: Line) -> None:
    match task:
        case Create():
            creating.create(task, line.tell, line.wait)
        case Ingest():
            ingesting.ingest(task, line.tell, line.wait)
        case Watch():
            reading.watch(task, line.tell, line.word_came)
        case ReadBack():
            reading.read_back(task, line.tell, line.wait)


def main() -> None:
    task: Task = msgspec.json.decode(sys.argv[1], type=Task)
    line = Line()
    try:
        run(task, line)
    except DeltaError as error:
        line.tell("failed", error=f"{type(error).__name__}: {error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
