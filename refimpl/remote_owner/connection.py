"""HTTP calls to one server: reused connections, a token, TLS, timeouts, tries; and the error for each failure.

The result of a call is a value, a `Refusal` (the server did nothing), or an error.

A failure before the request is sent proves that the server did nothing. After that, only an answer proves anything.
Redirects are not followed: a token is sent only to the server that the user named. The standard library sends the
requests: other libraries repeat one by themselves, or do not say whether it was sent.
"""

import contextlib
import email.utils
import http.client
import io
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeVar
from typing import Protocol as Interface
from urllib.parse import parse_qsl, quote, urlsplit

import msgspec

from refimpl.catalog.messages import (
    CATALOG_BASE,
    DEFAULT_CATALOG,
    DEFAULT_SCHEMA,
    DELTA_BASE,
    UNSUPPORTED_FORMAT,
    ErrorBody,
    LoadedTable,
    LoadedTables,
    StagedTable,
    TablePage,
    is_loopback,
)
from refimpl.protocol.errors import (
    DeltaError,
    InvalidRequestError,
    MissingCallError,
    OutcomeUnknown,
    OwnerUnavailableError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from refimpl.protocol.release import __version__
from refimpl.storage.environment import Environment

TOKEN_VARIABLE: Final = "COMMIT_OWNER_TOKEN"
_PORTS: Final = {"http": 80, "https": 443}
_OPTIONS: Final = ("catalog", "schema", "allow-http")
MAX_ANSWER_BYTES: Final = 256 * 2**20
_CHUNK: Final = 2**16
NOTICED_SKEW_SECONDS: Final = 60
"""If the two clocks differ by at least this much, an error about a token or a certificate mentions it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A server, with a catalog and a schema. The `repr` does not contain the token."""

    scheme: str
    host: str
    port: int
    path: str
    """The path before the API's, without a slash at the end."""
    catalog: str
    schema: str
    token: str | None = field(default=None, repr=False)

    @property
    def server(self) -> str:
        """The server's URL, for messages."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{shown}:{self.port}{self.path}"

    @property
    def delta(self) -> str:
        return f"{self.path}{DELTA_BASE}/v1"

    def schema_path(self, catalog: str, schema: str) -> str:
        return f"{self.delta}/catalogs/{quote(catalog, safe='')}/schemas/{quote(schema, safe='')}"


def address_of(url: str, *, token: str | None = None) -> Address:
    """The address for the URL `https://host:port?catalog=C&schema=S`.

    `token`: default $COMMIT_OWNER_TOKEN. `allow-http=true` in the URL allows another host without TLS, although the
    network could read the token. Raises `InvalidRequestError`.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")
    except ValueError as error:
        raise InvalidRequestError(
            f"invalid URL of a server {without_secrets(url)!r}: {error}; expected https://host:port"
        ) from error
    scheme = parts.scheme.lower()
    is_path = parts.path.isascii() and parts.path.isprintable() and " " not in parts.path
    if scheme not in _PORTS or not host or port == 0 or parts.fragment or not is_path:
        raise InvalidRequestError(f"invalid URL of a server {without_secrets(url)!r}; expected https://host:port")
    if CATALOG_BASE in parts.path:
        raise InvalidRequestError(f"invalid URL of a server {without_secrets(url)!r}; leave out {CATALOG_BASE}")
    if "@" in parts.netloc:
        raise InvalidRequestError(
            f"the URL of {host} has a user or password; pass the token as token=..., or set {TOKEN_VARIABLE}"
        )
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = [name for name in given if name not in _OPTIONS]
    if unknown:
        raise InvalidRequestError(
            f"unknown option {unknown[0]!r} in the URL of {host}; expected one of {', '.join(_OPTIONS)}"
        )
    allowed = given.get("allow-http", "").lower() == "true"
    if scheme == "http" and not is_loopback(host) and not allowed:
        raise InvalidRequestError(
            f"http://{host} would send the token and the data's locations unencrypted; use https://, or add "
            "allow-http=true to the URL's query"
        )
    secret = (os.environ.get(TOKEN_VARIABLE) if token is None else token) or None
    if secret is not None and not (secret.isascii() and secret.isprintable() and " " not in secret):
        raise InvalidRequestError("the token has characters that an HTTP header cannot have; pass the token alone")
    return Address(
        scheme=scheme,
        host=host,
        port=port or _PORTS[scheme],
        path=parts.path.rstrip("/"),
        catalog=given.get("catalog") or DEFAULT_CATALOG,
        schema=given.get("schema") or DEFAULT_SCHEMA,
        token=secret,
    )


def without_secrets(url: str) -> str:
    """The URL for a message, without user, password and query."""
    return url.partition("?")[0].rpartition("@")[2]


class NoAnswerError(Exception):
    """The request was sent, and no answer gave its outcome. `retry_after`: seconds that the server asks to wait."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer, not decoded."""

    status: int
    body: bytes
    retry_after: float | None = None
    """Seconds that the server asks to wait."""
    location: str | None = None
    """The target of a redirect."""
    clock_ahead: float = 0.0
    """Seconds by which the server's clock is ahead of this host's."""


class Connection:
    """Connections to one server, one for each thread and process. `close` closes this thread's connection."""

    def __init__(self, address: Address, *, timeout: float) -> None:
        """`timeout`: maximum seconds to connect, and for a whole answer."""
        self.address = address
        self.timeout = timeout
        self._kept = _Kept()
        self._headers = {
            "Accept": "application/json",
            "Prefer": "return=representation",
            "User-Agent": f"delta-commit-owner/{__version__}",
        }
        if address.token is not None:
            self._headers["Authorization"] = f"Bearer {address.token}"

    def send(self, method: str, target: str, body: bytes | None = None) -> Reply:
        """Send a request. Raises `OwnerUnavailableError` or `InvalidRequestError` (TLS) if nothing was sent, and
        `NoAnswerError`."""
        connection = self._connect()
        connection.sock.settimeout(self.timeout)
        connection.response_class = partial(_Response, deadline=time.monotonic() + self.timeout)  # type: ignore[assignment]
        headers = self._headers if body is None else {**self._headers, "Content-Type": "application/json"}
        try:
            connection.request(method, target, body, headers)
            response = connection.getresponse()
            content = b"".join(self._chunks(response))
        except TimeoutError as error:
            self.close()
            raise NoAnswerError(f"{self.address.server} did not answer within {self.timeout:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise NoAnswerError(f"the connection to {self.address.server} broke: {_reason(error)}") from error
        except BaseException:  # interrupted: a later request must not read the rest of this answer
            self.close()
            raise
        if response.will_close or response.status < 200:  # after an interim answer, another answer would follow
            self.close()
        return Reply(
            status=response.status,
            body=content,
            retry_after=_seconds(response.headers.get("Retry-After")),
            location=response.headers.get("Location"),
            clock_ahead=_clock_ahead(response.headers.get("Date")),
        )

    def _chunks(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        size = 0
        while chunk := response.read(_CHUNK):
            size += len(chunk)
            if size > MAX_ANSWER_BYTES:
                raise http.client.HTTPException(f"the answer has more than {MAX_ANSWER_BYTES} bytes")
            yield chunk

    def _connect(self) -> http.client.HTTPConnection:
        kept = self._kept
        if kept.process != os.getpid():  # a forked child: the parent uses the same socket
            kept.process, kept.connection = os.getpid(), None
        if kept.connection is not None and not _was_closed(kept.connection):
            return kept.connection
        self.close()
        address = self.address
        new: http.client.HTTPConnection
        if address.scheme == "https":
            context = ssl.create_default_context()
            new = http.client.HTTPSConnection(address.host, address.port, timeout=self.timeout, context=context)
        else:
            new = http.client.HTTPConnection(address.host, address.port, timeout=self.timeout)
        try:
            new.connect()
        except ssl.SSLCertVerificationError as error:
            raise InvalidRequestError(
                f"the TLS certificate of {address.server} is not accepted: {error.verify_message}; check the host name "
                f"and this host's clock, or set SSL_CERT_FILE to the certificate of the authority that signed it; "
                f"nothing was sent"
            ) from error
        except ssl.SSLError as error:
            raise InvalidRequestError(
                f"no TLS connection to {address.server}: {error.reason or error}; check that this port serves https; "
                f"nothing was sent"
            ) from error
        except OSError as error:
            raise OwnerUnavailableError(
                f"cannot connect to {address.server}: {_reason(error)}; check that the server runs, and the URL; "
                f"nothing was sent"
            ) from error
        kept.connection = new
        return new

    def close(self) -> None:
        """Idempotent."""
        if self._kept.connection is not None and self._kept.process == os.getpid():
            self._kept.connection.close()
        self._kept.connection = None


class _Response(http.client.HTTPResponse):
    """An answer that must be complete by a deadline, even if its bytes arrive slowly."""

    def __init__(self, sock: socket.socket, *args: Any, deadline: float, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp = io.BufferedReader(_Timed(sock, self.fp, deadline))


class _Timed(io.RawIOBase):
    """Reads a socket's file until the deadline."""

    def __init__(self, sock: socket.socket, file: io.BufferedReader, deadline: float) -> None:
        self._socket, self._file, self._deadline = sock, file, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
        return self._file.readinto1(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


class _Kept(threading.local):
    process = 0
    connection: http.client.HTTPConnection | None = None


def _was_closed(connection: http.client.HTTPConnection) -> bool:
    """Whether the server closed an idle connection. A server sends nothing unasked, so readable data means the end."""
    sock: socket.socket | None = connection.sock
    if sock is None:
        return True
    with contextlib.suppress(OSError, ValueError):
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return bool(poll.poll(0))
    return True


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return str(error) or type(error).__name__


def _seconds(retry_after: str | None) -> float | None:
    """The seconds of `Retry-After`, which is a number or a date."""
    if retry_after is None:
        return None
    if retry_after.strip().isascii() and retry_after.strip().isdigit():
        return float(retry_after.strip()[:9])
    ahead = _clock_ahead(retry_after)
    return ahead if ahead > 0 else None


def _clock_ahead(date: str | None) -> float:
    if date is None:
        return 0.0
    try:
        return email.utils.parsedate_to_datetime(date).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return 0.0


# Calls

TRIES: Final = 6
"""The number of sends after which a request counts as unanswered."""
PATIENCE: Final = 60.0
"""Seconds after which a request is not sent again, also before `TRIES` sends."""
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 10.0
"""Seconds between two sends: doubled each time, or the server's `Retry-After`; at most `LONGEST_PAUSE`."""


class _Error(msgspec.Struct):
    """An `ErrorAnswer`. In an answer of another server, `table` may have any type."""

    error: ErrorBody
    table: msgspec.Raw = msgspec.Raw(b"null")
    member: int | None = None


class Config(msgspec.Struct):
    """What a server says that it can do."""

    endpoints: tuple[str, ...] = ()


class Done(msgspec.Struct):
    """An answer whose content does not matter."""


T = TypeVar("T", LoadedTable, LoadedTables, StagedTable, TablePage, Done, Config)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An answer that says that the server did not carry out the request."""

    status: int
    kind: str
    message: str
    table: LoadedTable | None = None
    """The table after a lost race, if the server sends it: UNITY_CATALOG.md#conflict."""
    member: int | None = None
    """The index of the table change that decided a transaction."""

    @property
    def is_gone(self) -> bool:
        """Whether the API has no table of this name. A table that it cannot express may have the name."""
        return self.status == HTTPStatus.NOT_FOUND or self.kind == UNSUPPORTED_FORMAT

    def __str__(self) -> str:
        return f"{self.status} {self.kind}: {self.message}"


_REFUSALS: Final = frozenset(
    {HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS}
)


class Transport(Interface):
    """Sends requests: see `Connection`."""

    def send(self, method: str, target: str, body: bytes | None = None) -> Reply: ...

    def close(self) -> None: ...


class DeltaCalls:
    """The calls to one server. Safe to share between threads, and across `fork`."""

    def __init__(self, address: Address, environment: Environment, connection: Transport) -> None:
        self.address = address
        self._environment = environment
        self._connection = connection

    def close(self) -> None:
        """Close this thread's connection."""
        self._connection.close()

    def call(
        self,
        method: str,
        target: str,
        kind: type[T],
        body: bytes | None = None,
        *,
        lost: bool = False,
        tries: int = TRIES,
    ) -> T | Refusal:
        """The answer to a request that may be sent any number of times.

        Raises `OwnerUnavailableError` if no answer came. With `lost`, raises `OutcomeUnknown` if the server may have
        carried out the request. A refusal after a lost answer proves nothing: the first request may arrive later.
        """
        unanswered: Exception | None = None
        doubt: NoAnswerError | None = None
        for retry in self.tries(tries):
            try:
                answer = self.call_once(method, target, kind, body)
                busy = isinstance(answer, Refusal) and answer.status == HTTPStatus.TOO_MANY_REQUESTS
                if not isinstance(answer, Refusal) or (doubt is None and not busy):
                    return answer
                unanswered = OwnerUnavailableError(
                    f"{self.address.server} {'is busy' if busy else 'rejected the request'}: {answer}"
                )
                if not busy:
                    break
                self.pause(retry, None, tries)
            except NoAnswerError as error:
                unanswered, doubt = error, error if lost else None
                self.pause(retry, error.retry_after, tries)
            except OwnerUnavailableError as error:
                unanswered = error
                self.pause(retry, error.facts.get("retry_after"), tries)
            except InvalidRequestError as error:
                if doubt is None:
                    raise
                unanswered = error
                break
        what = f"{method} {target.partition('?')[0]}"
        if doubt is not None:
            then = "" if unanswered is doubt else f"; its repetition: {unanswered}"
            raise OutcomeUnknown(
                f"{what} was not answered and may have been carried out: {doubt}{then}"
            ) from unanswered
        raise OwnerUnavailableError(f"{what} failed: {unanswered}; try again later") from unanswered

    def tries(self, most: int = TRIES) -> Iterator[int]:
        """Numbers the tries, until `PATIENCE` has passed."""
        deadline = time.monotonic() + PATIENCE
        for number in range(most):
            if number and time.monotonic() > deadline:
                return
            yield number

    def call_once(self, method: str, target: str, kind: type[T], body: bytes | None = None) -> T | Refusal:
        """Send a request once.

        Raises `NoAnswerError`. If the request certainly changed nothing, raises `OwnerUnavailableError` (fact
        `retry_after`) or `InvalidRequestError`.
        """
        reply = self._connection.send(method, target, body)
        if reply.status in (HTTPStatus.OK, HTTPStatus.NO_CONTENT):
            try:
                return msgspec.json.decode(reply.body or b"{}", type=kind)
            except (msgspec.DecodeError, RecursionError) as error:
                raise NoAnswerError(self._garbage(reply, str(error))) from error
        refusal = self._refusal(reply)
        if refusal.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise InvalidRequestError(self._about_token(reply, refusal), status=refusal.status)
        if refusal.status == HTTPStatus.TOO_MANY_REQUESTS and refusal.kind != "ResourceExhaustedException":
            raise OwnerUnavailableError(f"{self.address.server} is busy: {refusal}", retry_after=reply.retry_after)
        if refusal.status in _REFUSALS:
            return refusal
        if 300 <= refusal.status < 400:
            raise InvalidRequestError(
                f"{self.address.server} redirects to {reply.location or 'another address'}; open that URL instead, if "
                f"you trust it: the token is not sent to another server by itself"
            )
        if refusal.status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY):
            raise OwnerUnavailableError(f"{self.address.server} answered {refusal}", retry_after=reply.retry_after)
        if 400 <= refusal.status < 500:
            raise InvalidRequestError(f"{self.address.server} rejected the request: {refusal}", status=refusal.status)
        if refusal.status >= 500:
            raise NoAnswerError(f"{self.address.server} answered {refusal}", reply.retry_after)
        raise NoAnswerError(self._garbage(reply, "unexpected status"))

    def _refusal(self, reply: Reply) -> Refusal:
        try:
            answer = msgspec.json.decode(reply.body, type=_Error)
        except (msgspec.DecodeError, RecursionError):
            if reply.status == HTTPStatus.NOT_FOUND:
                raise InvalidRequestError(
                    f"{self._garbage(reply, 'not an error of the Delta API')}; check the URL, "
                    "which must not contain /api/2.1/unity-catalog"
                ) from None
            return Refusal(status=reply.status, kind="", message=_shown(reply.body))
        return Refusal(
            status=reply.status,
            kind=answer.error.type,
            message=answer.error.message,
            table=_table(answer.table),
            member=answer.member,
        )

    def _garbage(self, reply: Reply, problem: str) -> str:
        answer = f"{reply.status} {_shown(reply.body)!r}"
        return f"{self.address.server} answered {answer}, which is not the Delta API: {problem}"

    def _about_token(self, reply: Reply, refusal: Refusal) -> str:
        rejection = f"{self.address.server} rejected the request ({refusal})"
        if refusal.status == HTTPStatus.FORBIDDEN:
            return f"{rejection}; use a token with this permission ({TOKEN_VARIABLE}, or token=... in Python)"
        known = "the token is missing" if self.address.token is None else "the token is wrong or has expired"
        skew = round(reply.clock_ahead)
        clock = f"; its clock differs from this host's by {skew} s" if abs(skew) >= NOTICED_SKEW_SECONDS else ""
        return f"{rejection}: {known}; set {TOKEN_VARIABLE} to a valid one, or pass token=... in Python{clock}"

    def not_found(self, refusal: Refusal, what: str) -> DeltaError:
        if refusal.kind == "NoSuchTableException" or refusal.status != HTTPStatus.NOT_FOUND:
            return self.refused(what, refusal)
        return InvalidRequestError(
            f"{self.address.server} has no {what}: {refusal}; add catalog=C and schema=S to the URL's query"
        )

    def refused(self, what: str, refusal: Refusal) -> DeltaError:
        if refusal.kind == "NoSuchTableException":
            return TableNotFoundError(f"{self.address.server} has no table {what}: {refusal.message}", reference=what)
        if refusal.kind == UNSUPPORTED_FORMAT:
            message = f"{self.address.server}: {refusal.message}; read it by its path"
            return UnsupportedFeatureError(message, features=())
        return InvalidRequestError(f"{self.address.server} rejected the request to {what}: {refusal}")

    def lacks(self, what: str, instead: str) -> MissingCallError:
        return MissingCallError(f"the Delta API of {self.address.server} has no call for {what}; {instead}")

    def pause(self, retry: int, retry_after: float | None, tries: int = TRIES) -> None:
        """Pause before the next try; not after the last."""
        if retry + 1 < tries:
            longest = FIRST_PAUSE * 2**retry if retry_after is None else retry_after
            self._environment.pause(
                min(longest, LONGEST_PAUSE) * (1 if retry_after else 0.5 + self._environment.random() / 2)
            )


def _shown(body: bytes) -> str:
    text = body[:200].decode("utf-8", "replace")
    return text + ("..." if len(body) > 200 else "")


def _table(stored: msgspec.Raw) -> LoadedTable | None:
    try:
        return msgspec.json.decode(stored, type=LoadedTable | None)
    except (msgspec.DecodeError, RecursionError):
        return None
