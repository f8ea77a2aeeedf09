"""The ASGI application: routes around the API's functions, errors in the documented shape, limits, access, logs.

A request passes, in this order: the number of requests at once, the access check, the route's method, the body's
size and time, its shape, and then the call itself, on one of a few threads. Whatever is refused on the way has changed
nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from refimpl.commit_owner import MaintenancePolicy, TableState
from refimpl.errors import DeltaError
from refimpl.owner.local import LocalOwner
from refimpl.server import errors
from refimpl.server.access import Scope, Tokens, authorized, refuse_foreign_page
from refimpl.server.delta_api import DeltaApi
from refimpl.server.description import description
from refimpl.server.errors import ApiError, VersionConflictError
from refimpl.server.legacy import LegacyApi
from refimpl.server.names import Names
from refimpl.server.observation import Observation, Seen
from refimpl.server.routes import DELTA_BASE, DELTA_ROUTES, LEGACY_BASE, LEGACY_ROUTES, SETTINGS_PATH, ApiRoute, Call
from refimpl.server.turns import LONGEST_WAIT_SECONDS, Turns

JSON: Final = "application/json"

_COMMITTING: Final = frozenset({"create", "update"})
"""The calls whose outcome is a version of a table."""

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one server takes. Beyond it a request is refused before anything is done."""

    body_bytes: int = 1_048_576
    body_seconds: float = 10.0
    """For the whole body to arrive."""
    requests: int = 256
    """At once; further ones are told to come again."""
    threads: int = 8
    """Calls that are carried out at once."""


class Server:
    """One application on one owner. `close` when it has stopped."""

    def __init__(
        self,
        owner: LocalOwner,
        names: Names,
        *,
        policy: MaintenancePolicy | None = None,
        limits: Limits | None = None,
        always_token: bool = False,
    ) -> None:
        """`always_token`: answer nobody without one, even while the warehouse has none."""
        self.limits = limits or Limits()
        self.observation = Observation()
        self.tokens = Tokens(owner.ledger.path.parent, owner.context.lock, owner.context.environment)
        self._owner = owner
        self._always_token = always_token
        self._delta = DeltaApi(owner, names, policy or MaintenancePolicy())
        self._legacy = LegacyApi(self._delta)
        self._threads = ThreadPoolExecutor(self.limits.threads, thread_name_prefix="call")
        self._waiting = 0
        self._turns = Turns()
        self._description = msgspec.json.encode(description())
        self.application = Starlette(routes=self._routes(), exception_handlers={HTTPException: self._no_route})
        self.application.router.redirect_slashes = False  # to wherever the request says that this is, before any check

    def close(self) -> None:
        """Finish what is being carried out, then let go of the ledger."""
        self._threads.shutdown(wait=True)
        self._owner.close()

    def _routes(self) -> list[Route]:
        listed = [(DELTA_BASE, route) for route in DELTA_ROUTES] + [(LEGACY_BASE, route) for route in LEGACY_ROUTES]
        by_path: dict[str, dict[str, ApiRoute]] = {}
        for base, route in listed:
            by_path.setdefault(base + route.path, {})[route.method] = route
        return [
            *(Route(path, _Endpoint(self._dispatcher(routes))) for path, routes in by_path.items()),
            Route(SETTINGS_PATH, _Endpoint(self._plain("setting", Scope.READ, self._setting))),
            Route("/health", _Endpoint(self._plain("health", None, self._health))),
            Route("/metrics", _Endpoint(self._plain("metrics", Scope.READ, self._metrics))),
            Route("/openapi.json", _Endpoint(self._plain("openapi", Scope.READ, self._openapi))),
        ]

    # From a request to its answer

    def _dispatcher(self, routes: dict[str, ApiRoute]) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            route = routes.get(request.method)
            name = route.name if route is not None else next(iter(routes.values())).name

            async def answered(seen: Seen) -> Response:
                wanted = route.scope if route is not None else Scope.READ
                seen.caller = self._caller(request, wanted)
                if route is None:
                    raise method_not_allowed(request.method, sorted(routes))
                return await self._called(route, request, seen)

            return await self._observed(name, request, answered)

        return endpoint

    def _caller(self, request: Request, wanted: Scope) -> str | None:
        """Reads a small file, so quickly that another thread would cost more."""
        headers = request.headers
        caller = authorized(self.tokens, headers.get("authorization"), wanted, always=self._always_token)
        if caller is None:
            refuse_foreign_page(headers.get("host"), headers.get("origin"))
        return caller

    async def _called(self, route: ApiRoute, request: Request, seen: Seen) -> Response:
        path = {key: str(value) for key, value in request.path_params.items()}
        seen.path = path
        body = None
        if route.body is not None:
            body = decoded(await self._body(request), route.body)
            seen.commit = getattr(body, "updates", None)
        call = Call(delta=self._delta, legacy=self._legacy, path=path, query=dict(request.query_params), body=body)

        def carried_out() -> bytes | None:
            answer = route.handle(call)
            return None if answer is None else msgspec.json.encode(answer)

        if seen.version is None:
            content = await self._on_thread(carried_out)
        else:
            content = await self._in_turn(request, tuple(path.values()), seen.version, carried_out)
        if content is None:
            return Response(status_code=HTTPStatus.NO_CONTENT)
        return Response(content, media_type=JSON)

    async def _in_turn(
        self, request: Request, table: tuple[str, ...], version: int, work: Callable[[], bytes | None]
    ) -> Any:
        """Carry a proposal out, and tell who lost a race when the next version is its own to try."""
        client = request.client
        if client is None:
            return await self._on_thread(work)
        deadline = asyncio.get_running_loop().time() + LONGEST_WAIT_SECONDS
        await self._turns.wait(table, client, version, deadline)
        try:
            content = await self._on_thread(work)
        except VersionConflictError as error:
            self._turns.lost(table, client, error.latest)
            raise
        except BaseException:
            self._turns.done(table, client)
            raise
        self._turns.done(table, client)
        return content

    async def _on_thread(self, work: Callable[[], Any]) -> Any:
        """Carry `work` out on a thread, to its end even if the client goes away meanwhile."""
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._threads, work))

    async def _body(self, request: Request) -> bytes:
        limit, seconds = self.limits.body_bytes, self.limits.body_seconds
        told = request.headers.get("content-length", "0")
        too_large = ApiError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "BadRequestException", f"the body is larger than {limit} bytes"
        )
        if told.isascii() and told.isdigit() and int(told[:19]) > limit:
            raise too_large
        content = bytearray()
        try:
            async with asyncio.timeout(seconds):
                async for chunk in request.stream():
                    content += chunk
                    if len(content) > limit:
                        raise too_large
        except TimeoutError:
            message = f"the body did not arrive within {seconds:g} s; nothing was done"
            raise ApiError(HTTPStatus.REQUEST_TIMEOUT, "BadRequestException", message) from None
        return bytes(content)

    async def _observed(self, name: str, request: Request, answered: Callable[[Seen], Awaitable[Response]]) -> Response:
        """The answer, or the error in the documented shape; either is counted and logged."""
        started = time.perf_counter()
        seen = Seen(route=name, method=request.method)
        self._waiting += 1
        try:
            self._refuse_too_many()
            response = await answered(seen)
        except ApiError as error:
            response = refused(seen, error, request.method)
        except DeltaError as error:
            response = refused(seen, errors.of_owner(error), request.method)
        except ClientDisconnect:
            gone = ApiError(HTTPStatus.BAD_REQUEST, "BadRequestException", "the body was cut short; nothing was done")
            response = refused(seen, gone, request.method)
        except Exception as error:  # noqa: BLE001 - the border: nothing of it reaches the client
            self.observation.defect(seen, error)
            unknown = ApiError(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                "CommitStateUnknownException" if name in _COMMITTING else "InternalServerErrorException",
                "the server has a defect and does not know what came of the request; the server's log says more",
            )
            response = refused(seen, unknown, request.method)
        finally:
            self._waiting -= 1
        self.observation.answered(seen, response.status_code, time.perf_counter() - started)
        return response

    def _refuse_too_many(self) -> None:
        if self._waiting > self.limits.requests:
            raise ApiError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "TooManyRequestsException",
                f"{self.limits.requests} requests are being answered; send the same again",
            )

    # What is not the API's

    def _plain(self, name: str, scope: Scope | None, work: Callable[[], Response]) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            async def answered(seen: Seen) -> Response:
                def carried_out() -> Response:
                    if scope is not None:
                        seen.caller = self._caller(request, scope)
                    if request.method not in ("GET", "HEAD"):
                        raise method_not_allowed(request.method, ["GET"])
                    return work()

                response: Response = await self._on_thread(carried_out)
                return response

            return await self._observed(name, request, answered)

        return endpoint

    def _setting(self) -> Response:
        self._legacy.setting()
        return Response()

    def _health(self) -> Response:
        """Whether the ledger answers; to be asked by whoever starts and stops servers."""
        with self._owner.ledger.read() as view:
            view.roots()
        return Response(b'{"status":"ok"}', media_type=JSON)

    def _metrics(self) -> Response:
        with self._owner.ledger.read() as view:
            live = [table for table in view.tables() if table.state is TableState.ACTIVE]
        return Response(self.observation.exposition(live), media_type="text/plain; version=0.0.4; charset=utf-8")

    def _openapi(self) -> Response:
        return Response(self._description, media_type=JSON)

    async def _no_route(self, request: Request, _error: Exception) -> Response:
        async def answered(seen: Seen) -> Response:
            seen.caller = self._caller(request, Scope.READ)
            raise errors.not_found("there is no such call; /openapi.json lists all of them")

        return await self._observed("none", request, answered)


class _Endpoint:
    """A route for every method, so that a wrong one is refused in the documented shape."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        response = await self._endpoint(Request(scope, receive))
        await response(scope, receive, send)


def refused(seen: Seen, error: ApiError, method: str) -> Response:
    seen.error = error.kind
    seen.message = error.message
    headers = {}
    if error.status is HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    if error.status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS):
        headers["retry-after"] = "1"
    allowed = getattr(error, "allowed", None)
    if allowed is not None:
        headers["allow"] = ", ".join(allowed)
    content = b"" if method == "HEAD" else msgspec.json.encode(error.answer)
    return Response(content, status_code=int(error.status), media_type=JSON, headers=headers)


def decoded(content: bytes, shape: type) -> Any:
    """The body as a value of its shape; 400 that says where it differs."""
    try:
        return msgspec.json.decode(content, type=shape)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise errors.bad_request(f"the body is not a {shape.__name__}: {error}") from None


class MethodNotAllowedError(ApiError):
    """405, with the methods that there are."""

    def __init__(self, method: str, allowed: list[str]) -> None:
        super().__init__(
            HTTPStatus.METHOD_NOT_ALLOWED, "BadRequestException", f"{method} is not possible here: {', '.join(allowed)}"
        )
        self.method, self.allowed = method, allowed

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.method, self.allowed)


def method_not_allowed(method: str, allowed: list[str]) -> ApiError:
    return MethodNotAllowedError(method, allowed)
