"""The interface over HTTP. The body of each POST is a call, the body of its response is the reply.

`HttpSubject` is a subject at a URL (`http:URL` or `https:URL`). `HttpServer` serves, at any path, either a subject of
this process to the kit, or the kit's own owner to a client under test. There is no authentication.
"""

import threading
from collections.abc import Callable
from contextlib import nullcontext
from itertools import count
from typing import Final
from urllib.parse import urlsplit

import msgspec

from conformance.adapters import wire
from conformance.adapters.connections import BrokenError, Connections, NoConnectionError
from conformance.adapters.listener import BodyError, Handler, Listener
from conformance.interface import messages as m
from conformance.interface.subject import TIMEOUT, AdapterError, Closing, gone

BUSY: Final = (408, 425, 429)
"""Statuses below 500 that describe the network or the load, not the result of the call."""
TOO_LARGE: Final = 413
"""The status by which a server rejects a call for its size, before the subject sees the call."""


HEADERS: Final = {"Content-Type": "application/json", "Accept": "application/json"}


class HttpSubject(Closing):
    """Safe for threads: each call uses a connection of its own. `at_close`: called last. Raises `AdapterError` if
    the server does not answer `hello`."""

    concurrent = True
    """Whether several requests may be under way."""

    def __init__(
        self,
        url: str,
        *,
        timeout: float = TIMEOUT,
        owner_url: str | None = None,
        at_close: Callable[[], object] = lambda: None,
    ) -> None:
        self._url = url
        self._name = f"the subject at {url}"
        self._timeout = timeout
        self._owner_url = owner_url
        self._at_close = at_close
        parts = urlsplit(url)
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._numbers = count(1)
        self._lock = threading.Lock()
        self._connections = Connections(url, timeout=timeout)
        self._lossy = Connections(url, timeout=timeout, reuse=False)
        try:
            self.identity: m.Identity = self._opened()
        except AdapterError:
            self.close()
            raise

    def _opened(self) -> m.Identity:
        try:
            answer = self._exchange("kit", m.Hello(owner_url=self._owner_url), self._connections)
        except NoConnectionError as error:
            raise AdapterError(f"no server at {self._url}: {error}. Start the subject before the kit") from error
        if isinstance(answer, m.Unknown):
            raise AdapterError(f"{self._name} does not answer `hello`: {answer.reason}")
        return wire.identity_of(answer, self._name)

    def ask(self, client: str, request: m.Request) -> m.Answer:
        return self._asked(client, request, self._connections)

    def lose(self, client: str, request: m.Request) -> m.Answer:
        """Ask for a client that loses the answer: the subject sees that its connection is closed after the answer.
        Only the kit learns the answer."""
        return self._asked(client, request, self._lossy)

    def _asked(self, client: str, request: m.Request, over: Connections) -> m.Answer:
        if self._connections.closed:
            return gone("it was closed")
        if isinstance(request, m.Hello) and request.owner_url is None:
            request = m.Hello(owner_url=self._owner_url)
        try:
            answer = self._exchange(client, request, over)
        except NoConnectionError as error:
            return gone(str(error))
        if isinstance(request, m.Hello):
            self._same(answer)
        elif isinstance(request, m.Restart) and isinstance(answer, m.Done):
            self._same(self.ask("kit", m.Hello(owner_url=self._owner_url)))
        return answer

    def _same(self, answer: m.Answer) -> None:
        if not isinstance(answer, m.Unknown):
            wire.same_identity(self.identity, answer, self._name)

    def _exchange(self, client: str, request: m.Request, over: Connections) -> m.Answer:
        with self._lock:
            call = m.Call(id=next(self._numbers), client=client, request=request)
        try:
            status, body = over.send("POST", self._target, wire.encode(call), HEADERS)
        except TimeoutError:
            return m.Unknown(reason=f"no answer within {self._timeout:g} s")
        except BrokenError as error:
            return m.Done() if isinstance(request, m.Crash) else gone(str(error))
        if status >= 500 or status in BUSY:
            return m.Unknown(reason=f"HTTP status {status}: {wire.shown(body)}")
        if status == TOO_LARGE:
            return m.Rejected(reason=f"HTTP status {status}: {wire.shown(body)}")
        problem = ""
        if status != 200:
            problem = (
                f"with HTTP status {status} and {wire.shown(body)}. A reply comes with status 200; calls are POSTed "
                f"to exactly this URL, and a refusal is an answer such as `rejected`"
            )
        elif len(body) > wire.LONGEST:
            problem = f"by more than {wire.LONGEST:,} bytes, which begin {wire.shown(body[:200])}"
        if problem:
            raise AdapterError(f"{self._name}: {wire.asked(call)}, was answered {problem}")
        reply = wire.reply_of(body, f"{self._name} answered `{m.name_of(request)}` by")
        if reply.id != call.id:
            raise AdapterError(
                f"{self._name}: {wire.asked(call)}, was answered by a reply to call {reply.id}. "
                f'"id" must be the id of the call'
            )
        return wire.checked(call, reply.answer, self._name)

    def close(self) -> None:
        """Close every connection; waiting requests are answered `Unknown`. Idempotent; the subject itself goes on."""
        self._connections.close()
        self._lossy.close()
        self._at_close()


# The server


class HttpServer(Listener):
    """Calls `ask(client, request)` in its own threads: one call at a time, unless `serialized` is false. Only this
    machine can reach it, because there is no authentication."""

    def __init__(self, ask: Callable[[str, m.Request], m.Answer], *, serialized: bool = True) -> None:
        turn = threading.Lock() if serialized else nullcontext()

        def reply(call: m.Call) -> m.Reply:
            with turn:
                return m.Reply(id=call.id, answer=ask(call.client, call.request))

        super().__init__(_handler_for(reply))
        self.url = f"{self.url}/"


def _handler_for(reply: Callable[[m.Call], m.Reply]) -> type[Handler]:
    class Calls(Handler):
        def do_POST(self) -> None:  # noqa: N802  # the name is the base class's
            try:
                self._send(200, wire.encode(reply(wire.decode(self.body(wire.LONGEST), m.Call))))
            except BodyError as error:
                self.close_connection = True
                self._send(error.status, f"{error}; a call is a body of at most {wire.LONGEST:,} bytes".encode())
            except msgspec.DecodeError as error:
                self._send(400, f"invalid call: {error}".encode())
            except AdapterError as error:
                self._send(400, error.problem.encode())
            except ConnectionError:
                raise
            except Exception as error:  # noqa: BLE001  # a subject that raises has not answered
                self._send(500, f"{type(error).__name__}: {error}".encode())

        def do_GET(self) -> None:  # noqa: N802
            self._send(405, b"POST a call here; its schema: delta-commit-conformance schema interface\n")

        def _send(self, status: int, body: bytes) -> None:
            self.reply(status, body, "application/json" if status == 200 else "text/plain; charset=utf-8")

    return Calls
