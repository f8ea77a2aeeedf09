"""A subject behind its standard input and output: `stdio:COMMAND WITH ARGUMENTS`.

One process answers all clients; or, if `hello` says `shared_state`, simulated clients have processes of their own.
All of them find the folder named by `CONFORMANCE_DIRECTORY`, which is empty at first and survives their restarts.

The adapter itself is the hand that crashes a subject: `crash` without a point is a SIGKILL, `restart` starts the
command again. So every owner that keeps its state in that folder can promise `durable-restart`, and needs no code for
it. A crash at a named point is the subject's own affair.
"""

from __future__ import annotations

import shlex
import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from conformance.adapters import wire
from conformance.adapters.process import Process
from conformance.interface.messages import Answer, Crash, Done, Hello, Identity, Rejected, Request, Restart, Unknown
from conformance.interface.subject import GONE, TIMEOUT, AdapterError, gone

PROCESSES: Final = 3
"""Of a subject with shared state, where nothing happens at the same time: enough to see what one of them does not know
of another. More would only have to be started, again after every crash."""


class StdioSubject:
    """Safe for threads: each may ask at any time. `directory`: of the subject, which is given back as it is; without
    one it gets a temporary one. `at_close`: called last. Raises `AdapterError` if the command does not start, or does
    not answer `hello`."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        timeout: float = TIMEOUT,
        directory: Path | None = None,
        owner_url: str | None = None,
        at_close: Callable[[], object] = lambda: None,
    ) -> None:
        self._command = tuple(command)
        self._name = f"the process `{shlex.join(command)}`"
        self._timeout = timeout
        self._owner_url = owner_url
        self._at_close = at_close
        self._temporary = None if directory is not None else Path(tempfile.mkdtemp(prefix="conformance-"))
        self.directory = directory or self._temporary or Path()
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._alive: set[Process] = set()
        """All that have to be ended, those that have not answered `hello` yet included."""
        self._processes: dict[int, Process] = {}
        self.processes = PROCESSES
        """With shared state: each client has a process of its own, up to this number; then they share them in turn.
        Whoever lets clients work at the same time raises it first."""
        self._numbers: dict[str, int] = {"kit": 0}
        """By client, in the order in which they came."""
        self._ended = ""
        """Why there is no process, and none may be started."""
        try:
            self.identity: Identity = self._open()
        except AdapterError:
            self.close()
            raise

    def _open(self) -> Identity:
        process, answer = self._started()
        if isinstance(answer, Unknown):
            more = "" if answer.reason.startswith(GONE) else process.last_words()
            raise AdapterError(f"{self._name} does not answer `hello`: {answer.reason}{more}")
        identity = wire.identity_of(answer, self._name)
        self._processes[0] = process
        return identity

    # Asking

    def ask(self, client: str, request: Request) -> Answer:
        match request:
            case Crash(point=None):
                return self._crash()
            case Restart():
                return self._restart(client)
        if isinstance(request, Hello) and request.owner_url is None:
            request = Hello(owner_url=self._owner_url)
        process = self._process_of(client)
        if not isinstance(process, Process):
            return process
        answer = process.ask(client, request, self._timeout)
        if isinstance(request, Hello) and not isinstance(answer, Unknown):
            wire.same_identity(self.identity, wire.identity_of(answer, self._name), self._name)
        return answer

    def kill(self, client: str) -> None:
        """End the client's process at once (without shared state: everybody's). Requests that wait for it are
        `Unknown`; with shared state the next one starts a process anew."""
        with self._lock:
            place = self._place(client)
            process = self._processes.get(place)
            if self.identity.shared_state:
                self._processes.pop(place, None)
        if process is not None:
            process.kill("it was killed, as asked")
            if self.identity.shared_state:
                self._end(process)

    def _place(self, client: str) -> int:
        """Which of the processes is the client's."""
        if not self.identity.shared_state:
            return 0
        return self._numbers.setdefault(client, len(self._numbers)) % self.processes

    def _process_of(self, client: str) -> Process | Answer:
        """The client's process, started if need be; or why it has none, as its answer."""
        with self._lock:
            if self._ended:
                return gone(self._ended)
            place = self._place(client)
            if place not in self._processes:
                process, answer = self._greeted()
                if process is None:
                    return answer
                self._processes[place] = process
            return self._processes[place]

    # Starting and ending

    def _started(self) -> tuple[Process, Answer]:
        """A new process, and its answer to `hello`. It is ended if it has none."""
        process = Process(self._command, name=self._name, directory=self.directory)
        self._alive.add(process)
        answer = process.ask("kit", Hello(owner_url=self._owner_url), self._timeout)
        if isinstance(answer, Unknown):
            self._end(process)
        return process, answer

    def _greeted(self) -> tuple[Process, Answer] | tuple[None, Answer]:
        """A new process that is what the first one was; or none, and why."""
        process, answer = self._started()
        if isinstance(answer, Unknown):
            return None, answer
        wire.same_identity(self.identity, wire.identity_of(answer, self._name), self._name)
        return process, answer

    def _crash(self) -> Answer:
        """Every process of the subject dies at once."""
        with self._lock:
            if self._ended != CLOSED:
                self._ended = "it was crashed, as asked, and not started again yet"
            self._end_all("it was crashed, as asked")
        return Done()

    def _restart(self, client: str) -> Answer:
        """A process that does not start again refuses to: that may be its own fault."""
        with self._lock:
            if self._ended == CLOSED:
                return gone(CLOSED)
            self._end_all("it was restarted, as asked")
            process, answer = self._greeted()
            if process is None:
                reason = answer.reason if isinstance(answer, Unknown) else ""
                self._ended = f"it did not start again: {reason}"
                return Rejected(reason=self._ended) if reason.startswith(GONE) else Unknown(reason=self._ended)
            self._ended = ""
            self._processes[self._place(client)] = process
        return Done()

    def _end_all(self, why: str) -> None:
        for process in list(self._alive):
            process.kill(why)
            self._end(process)
        self._processes = {}

    def _end(self, process: Process) -> None:
        process.close()
        self._alive.discard(process)

    def close(self) -> None:
        """All its processes end; a temporary folder is removed. Idempotent."""
        self._ended = CLOSED
        for process in list(self._alive):  # also one that somebody waits for, holding the lock
            process.close()
        with self._lock:
            self._end_all(CLOSED)
            self._ended = CLOSED
            if self._temporary is not None:
                shutil.rmtree(self._temporary, ignore_errors=True)
        self._at_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


CLOSED: Final = "it was closed"
