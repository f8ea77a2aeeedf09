"""The ASGI application: routes around the API's functions, errors in the documented shape, limits, access, logs.

A request passes these checks, in this order: one length, access, method, the body's size and time (with the number of
concurrent large bodies), its shape, the number of concurrent requests. Then one of a few threads runs the call. A
request that fails a check has changed nothing.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from refimpl.catalog.messages import AddCommit
from refimpl.protocol.commit_owner import MaintenancePolicy
from refimpl.protocol.errors import DeltaError
from refimpl.server import errors, scheduling
from refimpl.server.access import Scope, Tokens, authorize, refuse_foreign_page
from refimpl.server.catalog_api import CatalogApi, Parts
from refimpl.server.delta_api import DeltaApi
from refimpl.server.errors import ApiError, VersionConflictError
from refimpl.server.names import Names
from refimpl.server.routes import ROUTES, ApiRoute, Call
from refimpl.warehouse import Warehouse

logger = logging.getLogger("refimpl.server")


@dataclass(slots=True, kw_only=True)
class Seen:
    """The facts about a request that are known so far."""

    route: str
    method: str
    deadline: float
    """The deadline of its answer, by the monotonic clock."""
    admitted: bool = False
    """Whether it passed the access check."""
    caller: str | None = None
    path: dict[str, str] = field(default_factory=dict)
    commit: Any = None
    """The updates in the request, in their order."""
    error: str | None = None
    message: str | None = None

    @property
    def version(self) -> int | None:
        """The proposed version."""
        added = next((update for update in self.commit or () if isinstance(update, AddCommit)), None)
        return None if added is None else added.commit.version


def log_answer(seen: Seen, status: int, seconds: float) -> None:
    """Log an answer as a line of JSON. It contains neither headers nor bodies, so no token can get into it."""
    if not logger.isEnabledFor(logging.INFO):
        return
    facts = {
        "call": seen.route,
        "method": seen.method,
        "status": status,
        "ms": round(seconds * 1000, 3),
        "caller": seen.caller,
        "on": ".".join(seen.path.values()) or None,
        "version": seen.version,
        "error": seen.error,
        "message": seen.message if status >= 500 else None,
    }
    logger.log(
        logging.WARNING if status >= 500 else logging.INFO,
        "%s",
        line({key: value for key, value in facts.items() if value is not None}),
    )


def line(facts: dict[str, Any]) -> str:
    """One line of JSON."""
    return msgspec.json.encode(facts).decode()


JSON: Final = "application/json"

_COMMITTING: Final = frozenset({"create", "update", "transact", "commit-by-id"})
"""The calls whose outcome is a version of a table."""

SMALL_BODY_BYTES: Final = 65_536
"""Longer bodies are received by at most as many requests at once as are answered at once."""

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one server. A request beyond them is rejected before anything is done."""

    body_bytes: int = 1_048_576
    body_seconds: float = 10.0
    """For the whole body to arrive."""
    request_seconds: float = 15.0
    """From a request's headers to its answer. Only a running call may end later."""
    requests: int = 256
    """Maximum concurrent requests, for reads and writes separately; further ones get 503."""
    threads: int = 8
    """Maximum running calls, for reads and writes separately."""
    lists: int = 16
    """Maximum lists of tables that are begun at the same time, two of which run; further ones get 503."""


class Server:
    """One application on one owner. Call `close` when it has stopped."""

    def __init__(
        self,
        warehouse: Warehouse,
        names: Names,
        *,
        policy: MaintenancePolicy | None = None,
        limits: Limits | None = None,
        always_token: bool = False,
    ) -> None:
        """`always_token`: reject requests without one, even while the warehouse has none."""
        self.limits = limits or Limits()
        self.tokens = Tokens(warehouse)
        self._warehouse = warehouse
        self._always_token = always_token
        self._delta = DeltaApi(warehouse, names, policy or MaintenancePolicy())
        self._catalog = CatalogApi(self._delta)
        self._reads = scheduling.Pool(self.limits.threads, self.limits.requests, lock=False)
        self._writes = scheduling.Pool(self.limits.threads, self.limits.requests, lock=True)
        self._lists = scheduling.Pool(2, self.limits.lists, lock=False)
        self._checks = scheduling.Pool(1, self.limits.requests, lock=False)
        self._large_bodies = scheduling.Slots(self.limits.requests)
        self._queue = scheduling.FairQueue()
        self.application = Starlette(routes=self._routes(), exception_handlers={HTTPException: self._no_route})
        self.application.router.redirect_slashes = False  # it would follow the request's Host, unchecked

    @property
    def _pools(self) -> tuple[scheduling.Pool, ...]:
        return self._reads, self._lists, self._checks, self._writes

    def close(self, seconds: float = 30.0) -> bool:
        """Finish the running calls, then close the ledger; False if that took longer than `seconds`."""
        deadline = time.monotonic() + seconds
        ended = [pool.close(deadline - time.monotonic()) for pool in self._pools]
        with scheduling.limited(time.monotonic() + scheduling.GRACE_SECONDS, lock=True):
            self._warehouse.close()
        return all(ended)

    def _routes(self) -> list[Route]:
        by_path: dict[str, dict[str, ApiRoute]] = {}
        for base, route in ROUTES:
            by_path.setdefault(base + route.path, {})[route.method] = route
        return [
            *(Route(path, _Endpoint(self._dispatcher(routes))) for path, routes in by_path.items()),
            Route("/health", _Endpoint(self._answer_health)),
        ]

    # From a request to its answer

    def _dispatcher(self, routes: dict[str, ApiRoute]) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            route = routes.get(request.method)
            name = route.name if route is not None else next(iter(routes.values())).name

            async def answered(seen: Seen) -> Response:
                wanted = route.scope if route is not None else Scope.READ
                self._admit(seen, request, wanted)
                if route is None:
                    raise _method_not_allowed(request.method, sorted(routes))
                return await self._call(route, request, seen)

            return await self._observe(name, request, answered)

        return endpoint

    def _admit(self, seen: Seen, request: Request, wanted: Scope) -> None:
        """The access check. Reads a small file on this thread: another thread would cost more."""
        headers = request.headers
        seen.caller = authorize(self.tokens, headers.get("authorization"), wanted, always=self._always_token)
        if seen.caller is None:
            refuse_foreign_page(headers.get("host"), headers.get("origin"))
        seen.admitted = True

    async def _call(self, route: ApiRoute, request: Request, seen: Seen) -> Response:
        path = {key: str(value) for key, value in request.path_params.items()}
        seen.path = path
        body = None
        if route.body is not None:
            body = decoded(await self._body(request, seen.deadline), route.body)
            seen.commit = getattr(body, "updates", None)
            seen.path = path or {"table": getattr(body, "table_id", "")}
        call = Call(
            delta=self._delta,
            catalog=self._catalog,
            path=path,
            query=dict(request.query_params),
            body=body,
            shows_conflict="return=representation" in request.headers.get("prefer", ""),
        )

        def carried_out() -> bytes | tuple[Parts, bytes]:
            answer = route.handle(call)
            if isinstance(answer, Parts):
                return answer, next(answer.calls, bytes)()
            return b"" if route.status == HTTPStatus.NO_CONTENT else msgspec.json.encode(answer)

        if body is not None and seen.version is not None and request.client is not None:
            with self._writes.slots.taken():
                content = await self._in_turn(request.client, body.table_id.lower(), seen, carried_out)
        else:
            reads = None if route.scope is not Scope.READ else self._lists if route.lists else self._reads
            content = await self._carry_out(carried_out, seen.deadline, reads)
        if isinstance(content, tuple):
            return StreamingResponse(self._streamed(*content), media_type=JSON)
        return Response(content, status_code=route.status, media_type=JSON if content else None)

    async def _streamed(self, parts: Parts, first: bytes) -> AsyncIterator[bytes]:
        """The next part is made when the client has taken the one before. An error ends the connection before the end
        of the answer, so that no client takes it for complete."""
        yield parts.head + first
        comma = bool(first)
        for call in parts.calls:
            deadline = time.monotonic() + self.limits.request_seconds
            try:
                part = await self._lists.run(call, deadline)
            except scheduling.LockNeededError:
                part = await self._writes.run(call, deadline)
            yield b"," * (comma and bool(part)) + part
            comma = comma or bool(part)
        yield parts.tail

    async def _carry_out(self, work: Callable[[], Any], deadline: float, reads: scheduling.Pool | None) -> Any:
        """Returns the result of `work`. `reads`: the pool of a read; one that needs the owner's lock, for example to
        publish inline commits, continues on a thread for writes."""
        if reads is not None:
            with reads.slots.taken(), suppress(scheduling.LockNeededError):
                return await reads.run(work, deadline)
        with self._writes.slots.taken():
            return await self._writes.run(work, deadline)

    async def _in_turn(self, client: Hashable, table: str, seen: Seen, work: Callable[[], Any]) -> Any:
        """Run a proposal in the client's turn; a client that lost a race is answered when it may try the next
        version."""
        assert seen.version is not None
        longest = asyncio.get_running_loop().time() + scheduling.LONGEST_WAIT_SECONDS
        await self._queue.wait(table, client, seen.version, min(longest, seen.deadline))
        try:
            content = await self._writes.run(work, seen.deadline)
        except VersionConflictError as error:
            self._queue.lost(table, client, error.latest)
            raise
        except BaseException:
            self._queue.done(table, client, landed=False)
            raise
        self._queue.done(table, client, landed=True)
        return content

    async def _body(self, request: Request, deadline: float) -> bytes:
        limit, seconds = self.limits.body_bytes, self.limits.body_seconds
        declared = request.headers.get("content-length", "0")
        too_large = ApiError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "BadRequestException", f"the body is larger than {limit} bytes"
        )
        if declared.isascii() and declared.isdigit() and int(declared[:19]) > limit:
            raise too_large
        content = bytearray()
        is_large = False
        try:
            async with asyncio.timeout_at(min(asyncio.get_running_loop().time() + seconds, deadline)):
                with ExitStack() as large:
                    async for chunk in request.stream():
                        content += chunk
                        if len(content) > limit:
                            raise too_large
                        if len(content) > SMALL_BODY_BYTES and not is_large:
                            is_large = True
                            large.enter_context(self._large_bodies.taken())
        except TimeoutError:
            message = f"the body did not arrive within {seconds:g} s; nothing was done"
            raise ApiError(HTTPStatus.REQUEST_TIMEOUT, "BadRequestException", message) from None
        return bytes(content)

    async def _observe(self, name: str, request: Request, answered: Callable[[Seen], Awaitable[Response]]) -> Response:
        """The answer, or an error in the documented shape; both are logged."""
        started = time.perf_counter()
        deadline = time.monotonic() + self.limits.request_seconds
        seen = Seen(route=name, method=request.method, deadline=deadline)
        try:
            _refuse_two_lengths(request)
            response = await answered(seen)
        except ApiError as error:
            response = refused(seen, error, request.method)
        except DeltaError as error:
            response = refused(seen, errors.of_owner(error), request.method)
        except ClientDisconnect:
            gone = ApiError(HTTPStatus.BAD_REQUEST, "BadRequestException", "the body was cut short; nothing was done")
            response = refused(seen, gone, request.method)
        except Exception as error:
            logger.exception("%s", line({"call": seen.route, "defect": type(error).__name__}))
            unknown = ApiError(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                "CommitStateUnknownException" if name in _COMMITTING else "InternalServerErrorException",
                "internal error; the outcome is unknown; see the server log",
            )
            response = refused(seen, unknown, request.method)
        log_answer(seen, response.status_code, time.perf_counter() - started)
        return response

    # Endpoints that are not part of the API

    async def _answer_health(self, request: Request) -> Response:
        async def answered(seen: Seen) -> Response:
            if request.method not in ("GET", "HEAD"):
                raise _method_not_allowed(request.method, ["GET"])
            with self._checks.slots.taken():
                response: Response = await self._checks.run(self._health, seen.deadline)
            return response

        return await self._observe("health", request, answered)

    def _health(self) -> Response:
        """Whether the ledger can be read; for the process that starts and stops servers."""
        self._delta.owner.look_up("", None, None)  # the cheapest read: no table has this name
        return Response(b'{"status":"ok"}', media_type=JSON)

    async def _no_route(self, request: Request, _error: Exception) -> Response:
        async def answered(seen: Seen) -> Response:
            self._admit(seen, request, Scope.READ)
            raise errors.not_found("unknown endpoint; /config of the Delta API lists its calls")

        return await self._observe("none", request, answered)


class _Endpoint:
    """A route for every method, so that a wrong method is rejected in the documented shape."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        response = await self._endpoint(Request(scope, receive))
        await response(scope, receive, send)


def _refuse_two_lengths(request: Request) -> None:
    """RFC 9112, section 6.3: `Content-Length` together with `Transfer-Encoding` may be an attempt to smuggle a request
    past a proxy that reads the other one; the connection is closed after the answer."""
    if "content-length" in request.headers and "transfer-encoding" in request.headers:
        message = "the request has both Content-Length and Transfer-Encoding; send one of them"
        raise ApiError(HTTPStatus.BAD_REQUEST, "BadRequestException", message, headers={"connection": "close"})


def _method_not_allowed(method: str, allowed: list[str]) -> ApiError:
    names = ", ".join(allowed)
    message = f"method {method} is not allowed; allowed: {names}"
    return ApiError(HTTPStatus.METHOD_NOT_ALLOWED, "BadRequestException", message, headers={"allow": names})


def refused(seen: Seen, error: ApiError, method: str) -> Response:
    seen.error = error.kind
    seen.message = error.message
    if not seen.admitted and error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:  # it may name files of this machine
        error = ApiError(error.status, error.kind, "the server is unavailable; see the server log, then try again")
    content = b"" if method == "HEAD" else msgspec.json.encode(error.answer)
    return Response(content, status_code=int(error.status), media_type=JSON, headers=error.headers)


def decoded(content: bytes, shape: type) -> Any:
    """The body as a value of its shape; raises a 400 that says where it differs."""
    try:
        return msgspec.json.decode(content, type=shape)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise errors.bad_request(f"the body is not a {shape.__name__}: {error}") from None
