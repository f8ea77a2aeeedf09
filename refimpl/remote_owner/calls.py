"""The calls of the Delta API. The result of a call is a value, a `Refusal` (the server did nothing), or an error."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Protocol, TypeVar

import msgspec

from refimpl.catalog.messages import ErrorBody, LoadedTable, StagedTable, TablePage
from refimpl.protocol.errors import (
    DeltaError,
    InvalidRequestError,
    OutcomeUnknown,
    OwnerUnavailableError,
    TableNotFoundError,
)
from refimpl.remote_owner.connection import NOTICED_SKEW_SECONDS, TOKEN_VARIABLE, Address, NoAnswerError, Reply
from refimpl.storage.environment import Environment

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


class Done(msgspec.Struct):
    """An answer whose content does not matter."""


T = TypeVar("T", LoadedTable, StagedTable, TablePage, Done)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An answer that says that the server did not carry out the request."""

    status: int
    kind: str
    message: str
    table: LoadedTable | None = None
    """The table after a lost race, if the server sends it: UNITY_CATALOG.md#conflict."""

    def __str__(self) -> str:
        return f"{self.status} {self.kind}: {self.message}"


_REFUSALS: Final = frozenset(
    {HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS}
)


class Transport(Protocol):
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

    def retried(
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
                answer = self.once(method, target, kind, body)
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

    def once(self, method: str, target: str, kind: type[T], body: bytes | None = None) -> T | Refusal:
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
            status=reply.status, kind=answer.error.type, message=answer.error.message, table=_table(answer.table)
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
            f"{self.address.server} has no {what}: {refusal}; add ?catalog=C&schema=S to the URL, or pass catalog= and "
            f"schema="
        )

    def refused(self, what: str, refusal: Refusal) -> DeltaError:
        if refusal.kind == "NoSuchTableException":
            return TableNotFoundError(f"{self.address.server} has no table {what}: {refusal.message}", reference=what)
        return InvalidRequestError(f"{self.address.server} rejected the request to {what}: {refusal}")

    def lacks(self, what: str, instead: str) -> InvalidRequestError:
        return InvalidRequestError(f"the Delta API of {self.address.server} has no call for {what}; {instead}")

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
