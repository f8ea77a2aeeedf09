"""One process of a subject: calls go to its standard input, replies come from its standard output, a line each.

Any number of threads may ask at the same time; replies are matched to calls by their ids, in whatever order they come.
Nothing waits longer than it was told to, whatever the process does: it may hang, die, stop reading, or write for ever.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Final

from conformance.adapters import wire
from conformance.interface.messages import Answer, Call, Request, Unknown
from conformance.interface.subject import AdapterError, gone

CHUNK: Final = 2**16
KEPT: Final = 2**18
"""Bytes of the standard error that are kept: the last ones. Some runtimes write a stack for every thread."""
LAST_LINES: Final = 6
HEADLINE: Final = re.compile(
    r"panic: |fatal error: |Traceback |Exception in thread |Unhandled |Caused by: |thread '|"
    r"(?:Uncaught )?[\w.$]*(?:Error|Exception)\b"
)
"""How a line begins that says why a program dies: many languages write it above a stack that is longer than what is
shown."""
LOOK: Final = 0.2
"""Seconds of silence after which it is looked whether the process is there."""
ENDING: Final = 1.0
"""Seconds that a process may take to end when its output has ended, or its input."""


class Process:
    """Starts the command, in a group of its own. Raises `AdapterError` if that is not possible."""

    def __init__(self, command: Sequence[str], *, name: str, directory: Path) -> None:
        self.name = name
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env={**os.environ, wire.DIRECTORY_VARIABLE: str(directory)},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise AdapterError(
                f"{name} cannot be started: {reason}: {command[0]!r}. The command is run as it stands, without a "
                f"shell, from the folder in which the kit was started"
            ) from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._input, self._output, self._errors = self._process.stdin, self._process.stdout, self._process.stderr
        os.set_blocking(self._input.fileno(), False)
        self._numbers = count(1)
        self._state = threading.Lock()
        self._waiting: dict[int, tuple[Call, SimpleQueue[Answer | AdapterError | None]]] = {}
        self._given_up: set[int] = set()
        self._problem: str | None = None
        """Why it is not to be believed any more: an `AdapterError`."""
        self._death: str | None = None
        """Why it answers no more."""
        self._killed = ""
        """Why we ended it."""
        self._unfinished = 0
        """Bytes that it wrote without a line feed after them."""
        self._sending = threading.Lock()
        self._outbox = bytearray()
        self._life = threading.Lock()
        self._reaped = False
        self._last_words = bytearray()
        self._at_exit = weakref.finalize(self, _end_group, self._process.pid)
        self._listener = threading.Thread(target=self._listen, name=f"output of {name}", daemon=True)
        self._overhearer = threading.Thread(target=self._overhear, name=f"errors of {name}", daemon=True)
        self._overhearer.start()
        self._listener.start()

    @property
    def busy(self) -> bool:
        """Whether a call waits for its reply."""
        return bool(self._waiting)

    @property
    def pid(self) -> int:
        return self._process.pid

    # Asking

    def ask(self, client: str, request: Request, timeout: float) -> Answer:
        """The answer; `Unknown` if it does not come in `timeout` seconds, or the process is no more. Raises
        `AdapterError` if what came was no answer; then and from then on, if it was not even a reply."""
        deadline = time.monotonic() + timeout
        heard: SimpleQueue[Answer | AdapterError | None] = SimpleQueue()
        with self._state:
            if self._problem is not None:
                raise AdapterError(self._problem)
            if self._death is not None:
                return gone(self._death)
            call = Call(id=next(self._numbers), client=client, request=request)
            self._waiting[call.id] = (call, heard)
        self._send(wire.encode(call) + b"\n", deadline)
        try:
            answer = heard.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            with self._state:
                if self._waiting.pop(call.id, None) is not None:
                    self._given_up.add(call.id)
                    return Unknown(reason=f"no answer within {timeout:g} s{self._half_a_line()}")
            answer = heard.get()  # it came at the last moment
        if isinstance(answer, AdapterError):
            raise AdapterError(f"{answer.problem} (asked: {wire.asked(call)})", answer.came, answer.says) from answer
        if answer is not None:
            return wire.checked(call, answer, self.name)
        if self._problem is not None:
            raise AdapterError(self._problem)
        return gone(self._death or "it ended")

    def _half_a_line(self) -> str:
        if not self._unfinished:
            return ""
        return f"; {self._unfinished:,} bytes came without a line feed; write one after each reply, and flush"

    def _send(self, line: bytes, deadline: float) -> None:
        """As far as the process reads in time. The rest of a line goes before the next one."""
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
        except OSError:  # it reads no more; whether it still writes is seen elsewhere
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
        """Until the output ends. Raises `AdapterError` for anything else than replies to what was asked."""
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
            if heard is not None:  # one wrong answer; the process can be asked other things
                heard.put(error)
                return
            if wire.meant_as_reply(line):
                raise
            raise AdapterError(
                f"{error.problem}. Every line there must be one reply; write everything else to stderr",
                error.came,
                f"{error.says}; every line of stdout must be one reply; write everything else to stderr",
            ) from error
        with self._state:
            call, heard = self._waiting.pop(reply.id, (None, None))
            if heard is None and reply.id in self._given_up:
                self._given_up.discard(reply.id)  # nobody waits for it any more
                return
            open_calls = ", ".join(map(str, self._waiting)) or "none"
        if call is None or heard is None:
            raise AdapterError(
                f"{where} {wire.shown(line)}, a reply to call {reply.id}, which is unknown or already answered "
                f'(open calls: {open_calls}); "id" must be the id of the call, and is used once'
            )
        heard.put(reply.answer)

    def _overhear(self) -> None:
        for chunk in self._chunks(self._errors):
            self._last_words += chunk
            del self._last_words[:-KEPT]

    def _chunks(self, stream: IO[bytes]) -> Iterator[bytes]:
        """What it writes, until the stream ends, or the process has ended and something that it started holds on."""
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
        """The last lines of its standard error, and the one that says why it died, as the rest of a sentence."""
        lines = [line for line in bytes(self._last_words).decode("utf-8", "replace").splitlines() if line.strip()]
        shown = lines[-LAST_LINES:]
        headlines = [number for number, line in enumerate(lines) if HEADLINE.match(line)]
        if headlines and headlines[-1] < len(lines) - LAST_LINES:
            half = LAST_LINES // 2
            shown = [*lines[headlines[-1] :][:half], "...", *lines[-half:]]
        found = [wire.printable(line)[: wire.SHOWN] for line in shown]
        return f"; the end of its standard error: {' | '.join(found)}" if found else "; its standard error is empty"

    # Ending

    def _kill(self) -> None:
        """All processes of the group, unless it ended."""
        with self._life:
            if not self._reaped:
                _end_group(self._process.pid)

    def kill(self, why: str) -> None:
        """End it, and all that it started, at once. Who waits for a reply learns why."""
        self._killed = self._killed or why
        self._kill()
        self._listener.join(ENDING)

    def close(self) -> None:
        """Its input ends, which asks it to end; then it is ended. Idempotent."""
        self._killed = self._killed or "it was closed"
        if self._sending.acquire(timeout=ENDING / 10):
            try:
                with contextlib.suppress(OSError):
                    self._input.close()
            finally:
                self._sending.release()
        self._listener.join(ENDING)
        self.kill("it was closed")
        self._overhearer.join(ENDING)
        for stream in (self._input, self._output, self._errors):
            with contextlib.suppress(OSError):
                stream.close()

    def _finish(self) -> None:
        """The output has ended, or is not to be believed: wake all who wait."""
        closed = not self._ended(ENDING)
        self._kill()  # what it started may go on
        with self._life:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(ENDING)
            self._reaped = True
            self._at_exit.detach()
        self._overhearer.join(ENDING / 5)
        with self._state:
            how = "it closed its standard output, and went on" if closed else _how(self._process.returncode)
            self._death = self._killed or f"{how}{self.last_words()}"
            waiting, self._waiting = self._waiting, {}
        for _, heard in waiting.values():
            heard.put(None)

    def _ended(self, seconds: float) -> bool:
        """Whether it ends by itself in that time. It is not reaped yet: until then its group is certainly its own."""
        deadline = time.monotonic() + seconds
        while not self._has_ended():
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.002)
        return True

    def _has_ended(self) -> bool:
        with self._life:
            if not hasattr(os, "waitid"):  # macOS, with older Pythons: it is reaped a moment too early
                return self._reaped or self._process.poll() is not None
            look = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return self._reaped or os.waitid(os.P_PID, self._process.pid, look) is not None


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
