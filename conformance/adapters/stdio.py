"""A subject behind its standard input and output: `stdio:COMMAND WITH ARGUMENTS`.

One process answers all clients. If `hello` says `shared_state`, simulated clients have processes of their own.
All processes share the folder named by `CONFORMANCE_DIRECTORY`, which is empty at first and survives their restarts.

The adapter itself crashes a subject: `crash` without a point is a SIGKILL, and `restart` starts the command again. So
every owner that keeps its state in that folder can promise `durable-restart` without any code for it. The subject
itself implements a crash at a named point.
"""

import contextlib
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Final

from conformance.adapters import wire
from conformance.interface import messages as m
from conformance.interface.subject import GONE, TIMEOUT, AdapterError, Closing, gone

MARKS: Final = "CONFORMANCE_PROCESSES"
"""The environment variable that marks all processes of a subject, also those outside of its process group."""
LOOKS: Final = 10
PROCESSES: Final = 3
"""The number of processes of a subject with shared state, while clients are not concurrent. Three are enough to find
state that a process does not share. Each further process costs a start, and another one after every crash."""
CLOSED: Final = "it was closed"


class StdioSubject(Closing):
    """Safe for threads: each may ask at any time. `directory`: the subject's folder, which `close` keeps; by default a
    temporary one. `environment`: variables besides the kit's own. `at_close`: called last. Raises `AdapterError` if the
    command does not start, or does not answer `hello`."""

    concurrent = True
    """Whether several requests may be under way."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        timeout: float = TIMEOUT,
        directory: Path | None = None,
        owner_url: str | None = None,
        environment: Mapping[str, str] | None = None,
        working_directory: Path | None = None,
        at_close: Callable[[], object] = lambda: None,
    ) -> None:
        self._command = tuple(command)
        self._mark = uuid.uuid4().hex
        self._environment = {**(environment or {}), MARKS: f"{os.environ.get(MARKS, '')} {self._mark}"}
        self._working_directory = working_directory
        self._name = f"the process `{shlex.join(command)}`"
        self._timeout = timeout
        self._owner_url = owner_url
        self._at_close = at_close
        self._temporary = None if directory is not None else Path(tempfile.mkdtemp(prefix="conformance-"))
        self.directory = directory or self._temporary or Path()
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._alive: set[Process] = set()
        """All running processes, also those that have not answered `hello` yet."""
        self._processes: dict[int, Process] = {}
        self.processes = PROCESSES
        """With shared state: the number of processes. Each client has its own; clients beyond that number share them in
        turn. Code that runs concurrent clients raises it first."""
        self._numbers: dict[str, int] = {"kit": 0}
        """The number of each client, in the order of their first requests."""
        self._ended = ""
        """The reason why no process runs or may start; empty: one may."""
        self.deaths: list[str] = []
        """The requests at which a process had ended although the kit neither killed it nor set a crash point."""
        self._armed = False
        """Whether a crash point was set since the last restart."""
        try:
            self.identity: m.Identity = self._open()
        except AdapterError:
            self.close()
            raise

    def _open(self) -> m.Identity:
        process, answer = self._started()
        if isinstance(answer, m.Unknown):
            more = "" if answer.reason.startswith(GONE) else process.last_words()
            raise AdapterError(f"{self._name} does not answer `hello`: {answer.reason}{more}")
        identity = wire.identity_of(answer, self._name)
        self._processes[0] = process
        return identity

    # Asking

    def ask(self, client: str, request: m.Request) -> m.Answer:
        match request:
            case m.Crash(point=None):
                return self._crash()
            case m.Restart():
                return self._restart(client)
        if isinstance(request, m.Hello) and request.owner_url is None:
            request = m.Hello(owner_url=self._owner_url)
        process = self._process_of(client)
        if not isinstance(process, Process):
            return process
        self._armed |= isinstance(request, m.Crash)
        answer = process.ask(client, request, self._timeout)
        if isinstance(answer, m.Unknown) and process.ended_by_itself and not self._armed:
            self.deaths.append(f"the subject ended during {client}'s `{m.name_of(request)}`; {answer.reason}")
        if isinstance(request, m.Hello) and not isinstance(answer, m.Unknown):
            wire.same_identity(self.identity, answer, self._name)
        return answer

    def kill(self, client: str) -> None:
        """Kill the client's process (without shared state: the only one). Waiting requests are answered `Unknown`. With
        shared state the next request starts a new process."""
        with self._lock:
            number = self._number_of(client)
            process = self._processes.get(number)
            if self.identity.shared_state:
                self._processes.pop(number, None)
        if process is not None:
            process.kill("it was killed, as asked")
            if self.identity.shared_state:
                self._end(process)

    def last_words(self) -> str:
        """The end of what the first process wrote to its standard error, as the rest of a sentence."""
        process = self._processes.get(0)
        return "" if process is None else process.last_words()

    def _number_of(self, client: str) -> int:
        """Which of the processes is the client's."""
        if not self.identity.shared_state:
            return 0
        return self._numbers.setdefault(client, len(self._numbers)) % self.processes

    def _process_of(self, client: str) -> "Process | m.Answer":
        """The client's process, started if necessary; or the answer that says why it does not run."""
        with self._lock:
            if self._ended:
                return gone(self._ended)
            number = self._number_of(client)
            if number not in self._processes:
                started = self._started_again()
                if isinstance(started, m.Unknown):
                    return started
                self._processes[number] = started
            return self._processes[number]

    # Starting and ending

    def _started(self) -> "tuple[Process, m.Answer]":
        """A new process, and its answer to `hello`. A process that does not answer is ended."""
        process = Process(
            self._command,
            name=self._name,
            environment={**self._environment, wire.DIRECTORY_VARIABLE: str(self.directory)},
            working_directory=self._working_directory,
        )
        self._alive.add(process)
        answer = process.ask("kit", m.Hello(owner_url=self._owner_url), self._timeout)
        if isinstance(answer, m.Unknown):
            self._end(process)
        return process, answer

    def _started_again(self) -> "Process | m.Unknown":
        """A new process with the identity of the first one; or why there is none."""
        process, answer = self._started()
        if isinstance(answer, m.Unknown):
            return answer
        wire.same_identity(self.identity, answer, self._name)
        return process

    def _crash(self) -> m.Answer:
        """Every process of the subject dies at once."""
        with self._lock:
            if self._ended != CLOSED:
                self._ended = "it was crashed, as asked, and not started again yet"
            self._end_all("it was crashed, as asked")
        return m.Done()

    def _restart(self, client: str) -> m.Answer:
        """Restart the subject. If it does not start again, the answer is `rejected`, because that may be a
        violation."""
        with self._lock:
            if self._ended == CLOSED:
                return gone(CLOSED)
            self._end_all("it was restarted, as asked")
            started = self._started_again()
            if isinstance(started, m.Unknown):
                self._ended = f"it did not start again: {started.reason}"
                gone_ = started.reason.startswith(GONE)
                return m.Rejected(reason=self._ended) if gone_ else m.Unknown(reason=self._ended)
            self._ended, self._armed = "", False
            self._processes[self._number_of(client)] = started
        return m.Done()

    def _end_all(self, why: str) -> None:
        for process in list(self._alive):
            process.kill(why)
            self._end(process)
        self._processes = {}

    def _end(self, process: "Process") -> None:
        process.close()
        self._alive.discard(process)

    def close(self) -> None:
        """End all processes of the subject; remove a temporary folder. Idempotent."""
        self._ended = CLOSED
        for process in list(self._alive):  # also a process for which a thread waits that holds the lock
            process.close()
        with self._lock:
            self._end_all(CLOSED)
            self._ended = CLOSED
            _end_marked(self._mark)
            if self._temporary is not None:
                shutil.rmtree(self._temporary, ignore_errors=True)
        self._at_close()


# One process

CHUNK: Final = 2**16
KEPT: Final = 2**18
"""How many bytes of the standard error are kept, from its end. Some runtimes write a stack for every thread."""
LAST_LINES: Final = 6
SOURCE_LINES: Final = 2
"""How many lines Node writes above the error's name: the error's location, and the line of the program."""
LOCATION: Final = re.compile(r"(?:file://)?/.*:\d+$")
HEADLINE: Final = re.compile(
    r"panic: |fatal error: |Traceback |Exception in thread |Unhandled |Caused by: |thread '|"
    r"(?:Uncaught )?[\w.$]*(?:Error|Exception)\b"
)
"""The beginning of a line that names the cause of a crash. Many languages write it above a stack that is longer than
the lines that the kit shows."""
LOOK: Final = 0.2
"""Seconds of silence after which the kit checks that the process is alive."""
ENDING: Final = 1.0
"""Seconds that a process may take to end after its output or its input has ended."""


class Process:
    """Starts the command, in a process group of its own. Raises `AdapterError` if that is not possible."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        name: str,
        environment: Mapping[str, str],
        working_directory: Path | None = None,
    ) -> None:
        self.name = name
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env={**os.environ, **environment},
                cwd=working_directory,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise AdapterError(
                f"{name} cannot be started: {reason}: {command[0]!r}. The command runs without a shell, "
                f"from the folder in which the kit was started"
            ) from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._input, self._output, self._errors = self._process.stdin, self._process.stdout, self._process.stderr
        os.set_blocking(self._input.fileno(), False)
        self._numbers = count(1)
        self._state = threading.Lock()
        self._waiting: dict[int, tuple[m.Call, SimpleQueue[m.Answer | AdapterError | None]]] = {}
        self._given_up: set[int] = set()
        self._problem: str | None = None
        """The message of the `AdapterError`, if the process wrote invalid output."""
        self._death: str | None = None
        """Why the process no longer answers."""
        self._killed = ""
        """Why the kit killed the process; empty: it did not."""
        self._unfinished = 0
        """How many bytes the process wrote after its last line feed."""
        self._sending = threading.Lock()
        self._outbox = bytearray()
        self._life = threading.Lock()
        self._reaped = False
        self._last_words = bytearray()
        self._at_exit = weakref.finalize(self, _end_group, self._process.pid)
        self._listener = threading.Thread(target=self._listen, name=f"output of {name}", daemon=True)
        self._error_reader = threading.Thread(target=self._read_errors, name=f"errors of {name}", daemon=True)
        self._error_reader.start()
        self._listener.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended_by_itself(self) -> bool:
        """Whether the process has ended, and the kit did not end it."""
        return self._death is not None and self._problem is None and not self._killed

    # Asking

    def ask(self, client: str, request: m.Request, timeout: float) -> m.Answer:
        """The answer; `Unknown` if none comes within `timeout` seconds, or the process has ended. Raises `AdapterError`
        for an invalid answer. After a line that is no reply at all, every later call raises it too."""
        deadline = time.monotonic() + timeout
        heard: SimpleQueue[m.Answer | AdapterError | None] = SimpleQueue()
        with self._state:
            if self._problem is not None:
                raise AdapterError(self._problem)
            if self._death is not None:
                return gone(self._death)
            call = m.Call(id=next(self._numbers), client=client, request=request)
            self._waiting[call.id] = (call, heard)
        self._send(wire.encode(call) + b"\n", deadline)
        try:
            answer = heard.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            with self._state:
                if self._waiting.pop(call.id, None) is not None:
                    self._given_up.add(call.id)
                    return m.Unknown(reason=f"no answer within {timeout:g} s{self._unfinished_line()}")
            answer = heard.get()  # the answer came at the last moment
        if isinstance(answer, AdapterError):
            raise AdapterError(
                f"{answer.problem} (asked: {wire.asked(call)})", answer.received, answer.expected
            ) from answer
        if answer is not None:
            return wire.checked(call, answer, self.name)
        if self._problem is not None:
            raise AdapterError(self._problem)
        return gone(self._death or "it ended")

    def _unfinished_line(self) -> str:
        if not self._unfinished:
            return ""
        return f"; {self._unfinished:,} bytes came without a line feed; write one after each reply, and flush"

    def _send(self, line: bytes, deadline: float) -> None:
        """Send as much as the process reads in time. The rest of a line is sent before the next line."""
        if not self._sending.acquire(timeout=max(0.0, deadline - time.monotonic())):
            return
        try:
            self._outbox += line
            while self._outbox and not self._input.closed:
                try:
                    del self._outbox[: os.write(self._input.fileno(), self._outbox[:CHUNK])]
                except BlockingIOError:
                    ready = select.poll()
                    ready.register(self._input.fileno(), select.POLLOUT)
                    if not ready.poll(max(0.0, deadline - time.monotonic()) * 1000):
                        return
        except OSError:  # the process reads no more; `_listen` sees whether it still writes
            self._outbox.clear()
        finally:
            self._sending.release()

    # Listening

    def _listen(self) -> None:
        try:
            self._replies()
        except AdapterError as error:
            self._problem = error.problem
            self._kill()
        self._finish()

    def _replies(self) -> None:
        """Read replies until the output ends. Raises `AdapterError` for any line that is not a reply to an open
        call."""
        buffer = bytearray()
        for chunk in self._chunks(self._output):
            buffer += chunk
            if b"\n" in chunk:
                *lines, rest = bytes(buffer).split(b"\n")
                for line in lines:
                    if line.strip():
                        self._reply(line)
                buffer = bytearray(rest)
            self._unfinished = len(buffer)
            if len(buffer) > wire.LONGEST:
                raise AdapterError(
                    f"{self.name} wrote a line of more than {wire.LONGEST:,} bytes to its standard output, which "
                    f"begins {wire.shown(bytes(buffer[:200]))}. A reply is one line, and no longer than that"
                )

    def _reply(self, line: bytes) -> None:
        where = f"{self.name} wrote to its standard output"
        try:
            reply = wire.reply_of(line, where)
        except AdapterError as error:
            with self._state:
                _, heard = self._waiting.pop(wire.answered_by(line) or 0, (None, None))
            if heard is not None:  # one wrong answer; the process can still answer other calls
                heard.put(error)
                return
            if wire.meant_as_reply(line):
                raise
            raise AdapterError(
                f"{error.problem}. Every line there must be one reply; write everything else to stderr",
                error.received,
                f"{error.expected}; every line of stdout must be one reply; write everything else to stderr",
            ) from error
        with self._state:
            call, heard = self._waiting.pop(reply.id, (None, None))
            if heard is None and reply.id in self._given_up:
                self._given_up.discard(reply.id)  # the client gave this call up
                return
            open_calls = ", ".join(map(str, self._waiting)) or "none"
        if call is None or heard is None:
            raise AdapterError(
                f"{where} {wire.shown(line)}, a reply to call {reply.id}, which is unknown or already answered "
                f'(open calls: {open_calls}); "id" must be the id of the call, and is used once'
            )
        heard.put(reply.answer)

    def _read_errors(self) -> None:
        for chunk in self._chunks(self._errors):
            self._last_words += chunk
            del self._last_words[:-KEPT]

    def _chunks(self, stream: IO[bytes]) -> Iterator[bytes]:
        """The output, until the stream ends, or the process has ended and a child of it keeps the stream open."""
        ready = select.poll()
        ready.register(stream.fileno(), select.POLLIN)
        while True:
            if ready.poll(LOOK * 1000):
                chunk = os.read(stream.fileno(), CHUNK)
                if not chunk:
                    return
                yield chunk
            elif self._ended(0):
                return

    def last_words(self) -> str:
        """The last lines of the standard error, and the line that names the cause of death, as the rest of a sentence.
        Lines that only underline the line above are left out."""
        text = bytes(self._last_words).decode("utf-8", "replace")
        lines = [line for line in text.splitlines() if line.strip(" \t^~")]
        shown = lines[-LAST_LINES:]
        headlines = [number for number, line in enumerate(lines) if HEADLINE.match(line)]
        if headlines:
            above = range(max(headlines[-1] - SOURCE_LINES, 0), headlines[-1])
            first = next((number for number in above if LOCATION.match(lines[number])), headlines[-1])
            half = LAST_LINES // 2
            end = headlines[-1] + half
            if first < len(lines) - LAST_LINES:
                shown = [*lines[first:end], "...", *lines[max(end, len(lines) - half) :]]
        quoted = [wire.printable(line)[: wire.SHOWN] for line in shown]
        return f"; the end of its standard error: {' | '.join(quoted)}" if quoted else "; its standard error is empty"

    # Ending

    def _kill(self) -> None:
        """Kill all processes of the group, unless the process has ended."""
        with self._life:
            if not self._reaped:
                _end_group(self._process.pid)

    def kill(self, why: str) -> None:
        """Kill the process and its children. Waiting requests get the reason."""
        self._killed = self._killed or why
        self._kill()
        self._listener.join(ENDING)

    def close(self) -> None:
        """Close its input, which asks it to end; then kill it. Idempotent."""
        self._killed = self._killed or "it was closed"
        if self._sending.acquire(timeout=ENDING / 10):
            try:
                with contextlib.suppress(OSError):
                    self._input.close()
            finally:
                self._sending.release()
        self._listener.join(ENDING)
        self.kill("it was closed")
        self._error_reader.join(ENDING)
        for stream in (self._input, self._output, self._errors):
            with contextlib.suppress(OSError):
                stream.close()

    def _finish(self) -> None:
        """End all waiting requests, because the output has ended or is invalid."""
        closed = not self._ended(ENDING)
        self._kill()  # its child processes may still run
        with self._life:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(ENDING)
            self._reaped = True
            self._at_exit.detach()
        self._error_reader.join(ENDING / 5)
        with self._state:
            how = "it closed its standard output, and still runs" if closed else _how(self._process.returncode)
            self._death = self._killed or f"{how}{self._unfinished_line()}{self.last_words()}"
            waiting, self._waiting = self._waiting, {}
        for _, heard in waiting.values():
            heard.put(None)

    def _ended(self, seconds: float) -> bool:
        """Whether the process ends by itself in that time. It is not reaped here: until it is reaped, the number of its
        group cannot be another group's."""
        deadline = time.monotonic() + seconds
        while not self._has_ended():
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.002)
        return True

    def _has_ended(self) -> bool:
        with self._life:
            if not hasattr(os, "waitid"):  # macOS, with older Pythons: `poll` reaps it a moment too early
                return self._reaped or self._process.poll() is not None
            look = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return self._reaped or os.waitid(os.P_PID, self._process.pid, look) is not None


def _end_marked(mark: str) -> None:
    """Kill the processes that a subject started outside of its process group, such as daemons. Only Linux tells which
    processes these are; on other systems they go on."""
    for _ in range(LOOKS):  # a process may start another one meanwhile
        marked = list(_marked(mark.encode()))
        for number in marked:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(number, signal.SIGKILL)
        if not marked:
            break


def _marked(mark: bytes) -> Iterator[int]:
    for file in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # the process ended, or is another user's
            if mark in file.read_bytes():
                yield int(file.parent.name)


def _end_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _how(code: int | None) -> str:
    if code is None:
        return "it cannot be ended"
    if code >= 0:
        return f"it ended with exit code {code}"
    try:
        return f"it was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"it was ended by signal {-code}"
