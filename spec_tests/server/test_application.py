"""Health, logs, addresses, limits, and generated requests."""

import asyncio
import itertools
import json
import logging
import resource
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance
from starlette.testclient import TestClient
from typer.testing import CliRunner
from uvicorn.server import ServerState

import refimpl
from refimpl.cli.application import application
from refimpl.protocol.errors import InvalidRequestError
from refimpl.server.application import SMALL_BODY_BYTES, Limits
from refimpl.server.serving import LEAST_READ, JsonLines, affordable, http_protocol, open_listener
from spec_tests.server.conftest import Serve
from spec_tests.server.wire import CATALOG, WireTable, refusal


def test_health_reports_whether_the_ledger_answers(http: TestClient, warehouse: refimpl.Warehouse) -> None:
    assert http.get("/health").json() == {"status": "ok"}
    ledger = warehouse.owner.ledger.path
    away = ledger.rename(ledger.with_name("away"))
    assert http.get("/health").status_code == 500
    away.rename(ledger)
    assert http.get("/health").json() == {"status": "ok"}


def test_each_request_is_one_line_of_json(table: WireTable, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="refimpl.server"):
        table.land(1)
        table.propose(table.write_staged(7))
    answered = [json.loads(JsonLines().format(record)) for record in caplog.records]
    assert [(line["call"], line["status"], line["on"], line["version"]) for line in answered] == [
        ("update", 200, "unity.default.orders", 1),
        ("update", 400, "unity.default.orders", 7),
    ]
    assert answered[1]["error"] == "InvalidParameterValueException"
    assert all(line["ms"] >= 0 and line["level"] == "info" for line in answered)


def test_internal_error_is_logged_and_not_shown_to_the_client(
    table: WireTable, http: TestClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not known whether the commit landed: the answer is a 500 with the type for this case, and the same request,
    sent again, settles it."""
    staged = table.write_staged(1)
    with monkeypatch.context() as patched:
        patched.setattr("refimpl.server.answers.table", lambda *_: 1 / 0)
        answer = table.propose(staged)
    assert refusal(answer) == (500, "CommitStateUnknownException")
    assert "division" not in answer.text
    assert "ZeroDivisionError" in JsonLines().format(caplog.records[-1]) or "ZeroDivisionError" in caplog.text
    assert table.propose(staged).status_code == 200
    other = WireTable(http, "other").prepared()
    with monkeypatch.context() as patched:
        patched.setattr("refimpl.server.answers.table", lambda *_: 1 / 0)
        assert refusal(other.register()) == (500, "CommitStateUnknownException")
    assert other.register().status_code == 200


@pytest.mark.parametrize(
    ("soft", "hard", "allowed", "raised"),
    [
        (1024, 4096, 1000, 1200),
        (1024, 1100, 900, 1100),
        (1024, 1024, 824, None),
        (1024, resource.RLIM_INFINITY, 1000, 1200),
        (1200, 1200, 1000, None),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 1000, None),
        (100, 100, 1, None),
    ],
)
def test_connections_leave_open_files_to_commits(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, allowed: int, raised: int | None
) -> None:
    answered: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: answered.append(limits))
    assert affordable(1000) == allowed
    assert answered == ([] if raised is None else [(raised, hard)])


@pytest.mark.parametrize("host", ["x" * 70, "256.1.1.1", "a b"])
def test_invalid_address_is_rejected_with_the_next_step(host: str) -> None:
    with pytest.raises(InvalidRequestError, match="choose another address or port"):
        open_listener(host, 0)


@pytest.mark.parametrize(
    ("words", "answered"),
    [
        (("--catalog", "a-b"), "invalid name"),
        (("--schema", "a b"), "invalid name"),
        (("--log-level", "loud"), "invalid log level"),
        (("--backlog-limit", "4"), "with a backlog limit of 4"),
        (("--backlog-limit", "0"), "backlog"),
        (("-w", "nowhere"), "commit-owner init"),
        (("-w", "nowhere", "--host", "0.0.0.0"), "commit-owner init"),
        (("--host", "0.0.0.0"), "commit-owner token add"),
    ],
)
def test_invalid_serve_options_are_explained_and_change_nothing(
    words: tuple[str, ...], answered: str, warehouse: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(warehouse.directory)
    before = sorted(warehouse.directory.rglob("*"))
    result = CliRunner().invoke(application, ["serve", "--port", "0", *words], prog_name="commit-owner")
    assert result.exit_code == 2, result.output
    assert answered in result.stderr
    assert "defect" not in result.stderr
    assert sorted(warehouse.directory.rglob("*")) == before


# Requests that no call understands


def test_body_with_two_lengths_is_rejected_and_the_connection_closed(table: WireTable, http: TestClient) -> None:
    answer = http.post(table.url, content=b"{}", headers={"content-length": "2", "transfer-encoding": "chunked"})
    assert refusal(answer) == (400, "BadRequestException")
    assert answer.headers["connection"] == "close"


def test_too_large_body_is_413_with_and_without_its_length(serve: Serve) -> None:
    http = serve(limits=Limits(body_bytes=2000))
    table = WireTable(http).create()
    large = {"requirements": [], "updates": [], "more": "x" * 3000}
    assert refusal(table.send(large)) == (413, "BadRequestException")

    def unannounced() -> Any:
        for _ in range(30):
            yield b" " * 100

    assert refusal(http.post(table.url, content=unannounced())) == (413, "BadRequestException")
    asked = itertools.count()

    async def receive() -> dict[str, Any]:
        assert next(asked) < 30, "the body is held in memory"
        return {"type": "http.request", "body": b" " * 100, "more_body": True}

    assert asyncio.run(posted(http.app, table.url, receive))[0] == 413
    assert refusal(http.post(table.url, content=b" ", headers={"content-length": "9" * 30})) == (
        413,
        "BadRequestException",
    )
    table.land(1)


# Limits


@pytest.mark.parametrize("read", [LEAST_READ, LEAST_READ - 1])
def test_connection_is_closed_if_the_client_reads_too_slowly(read: int) -> None:
    timers: list[Callable[[], None]] = []
    loop = MagicMock(call_later=lambda _seconds, act: timers.append(act))
    transport = MagicMock()
    transport.get_extra_info.return_value = None
    transport.is_closing.return_value = False
    config = uvicorn.Config(lambda: None, lifespan="off", log_config=None)
    config.load()
    protocol = http_protocol(1.0, 10)(config, ServerState(), {}, loop)
    protocol.connection_made(transport)
    timers.clear()
    transport.get_write_buffer_size.return_value = 10 * LEAST_READ
    protocol.pause_writing()
    for _ in range(3):
        transport.get_write_buffer_size.return_value -= read
        timers.pop()()
        assert bool(timers) is not transport.abort.called
        if transport.abort.called:
            break
    assert transport.abort.called is (read < LEAST_READ)


def test_requests_beyond_the_limit_get_503(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    http = serve(limits=Limits(requests=1))
    table = WireTable(http).create()
    entered, leave = threading.Event(), threading.Event()
    owner = table.http.app_state["server"]._delta.owner
    original = owner.describe

    def slow(*words: str) -> Any:
        entered.set()
        assert leave.wait(120)
        return original(*words)

    staged = table.write_staged(1)
    with monkeypatch.context() as patched, ThreadPoolExecutor(1) as pool:
        patched.setattr(owner, "describe", slow)
        first = pool.submit(table.propose, staged)
        assert entered.wait(120)
        refused = http.post(f"{table.base}/staging-tables", json={"name": "more"})
        assert http.get("/health").status_code == 200
        assert http.get(f"{CATALOG}/catalogs").status_code == 200, "reads have their own limit"
        leave.set()
        assert first.result().status_code == 200
    assert refusal(refused) == (503, "TooManyRequestsException")
    assert refused.headers["retry-after"] == "1"


def test_lists_of_tables_delay_no_other_read(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two lists hold the threads for lists, a third waits, and a fourth is beyond the limit."""
    http = serve(limits=Limits(threads=1, requests=1, lists=3))
    table = WireTable(http).create()
    delta = table.http.app_state["server"]._delta
    entered, leave, original = threading.Semaphore(0), threading.Event(), delta.tables_in
    listed = f"{CATALOG}/tables?catalog_name=unity&schema_name=default"

    def slow(*words: str) -> Any:
        entered.release()
        assert leave.wait(120)
        return original(*words)

    with monkeypatch.context() as patched, ThreadPoolExecutor(3) as pool:
        patched.setattr(delta, "tables_in", slow)
        lists = [pool.submit(http.get, path) for path in (f"{table.base}/tables", listed)]
        assert all(entered.acquire(timeout=120) for _ in lists)
        slots = table.http.app_state["server"]._lists.slots
        lists.append(pool.submit(http.get, listed))
        while slots._taken < 3:
            threading.Event().wait(0.001)
        beyond = http.get(listed)
        others = [http.get(path).status_code for path in ("/health", table.url)]
        leave.set()
        assert [each.result().status_code for each in lists] == [200, 200, 200]
    assert (refusal(beyond)[0], others) == (503, [200, 200])


Receive = Callable[[], Awaitable[dict[str, Any]]]


async def posted(application: Any, path: str, receive: Receive) -> tuple[int, Any]:
    """The status and the body of the answer to a request whose body arrives in pieces."""
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(dict(message))

    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"",
        "headers": [(b"host", b"127.0.0.1")], "http_version": "1.1", "scheme": "http", "server": ("test", 80),
        "client": ("test", 1), "root_path": "",
    }  # fmt: skip
    await application(scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


@pytest.mark.parametrize(("wait", "status"), [(10.0, 408), (0.0, 400)], ids=["slow", "cut-short"])
def test_incomplete_body_ends_the_request(serve: Serve, wait: float, status: int) -> None:
    table = WireTable(serve(limits=Limits(body_seconds=0.05, request_seconds=600))).create()
    pieces = iter([{"type": "http.request", "body": b"{", "more_body": True}])

    async def receive() -> dict[str, Any]:
        piece = next(pieces, None)
        if piece is None:
            await asyncio.sleep(wait)
        return piece or {"type": "http.disconnect"}

    answered, answer = asyncio.run(posted(table.http.app, table.url, receive))
    assert (answered, answer["error"]["code"]) == (status, status)
    table.land(1)


def test_long_bodies_beyond_the_limit_get_503(serve: Serve) -> None:
    """Long bodies count as long as they are in memory. Short bodies are accepted at the same time."""
    table = WireTable(serve(limits=Limits(requests=1))).create()
    long = b" " * (SMALL_BODY_BYTES + 1)

    async def play() -> list[int]:
        held, go_on = asyncio.Event(), asyncio.Event()

        async def status(body: bytes, *, slow: bool = False) -> int:
            async def receive() -> dict[str, Any]:
                if held.is_set() and slow:
                    await go_on.wait()
                more = slow and not held.is_set()
                held.set()
                return {"type": "http.request", "body": body, "more_body": more}

            return (await posted(table.http.app, table.url, receive))[0]

        first = asyncio.create_task(status(long, slow=True))
        await held.wait()
        meanwhile = [await status(long), await status(b"")]
        go_on.set()
        return [*meanwhile, await first, await status(long)]

    assert asyncio.run(play()) == [503, 400, 400, 400]


# Generated requests


HERE = {"host": "127.0.0.1"}
PUBLIC = Path(__file__).parents[2] / "fixtures" / "uc-delta-api" / "openapi-1.0.json"
"""The facts of the API's public description."""


@pytest.mark.parametrize("cases", [2, pytest.param(25, marks=pytest.mark.longer)])
def test_generated_requests_are_answered_as_the_public_document_says(
    table: WireTable, http: TestClient, cases: int
) -> None:
    """Every status and every body is described, no answer is a 500, and the table survives."""
    document = json.loads(PUBLIC.read_text(encoding="utf-8"))
    schema = schemathesis.openapi.from_dict(document)
    schema.app = http.app
    call_all(schema, cases)
    table.land(1)


def call_all(schema: Any, cases: int) -> None:
    """Send generated requests for each call of the document, half of them about the table that exists."""
    http_calls = 0
    for described in schema.get_all_operations():
        operation = described.ok()
        if operation.method.upper() == "DELETE" or operation.path.endswith("/rename"):
            continue  # this call would sometimes drop or rename the table

        @seed(20261121)
        @settings(max_examples=cases, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        def check_answer(case: Any) -> None:
            nonlocal http_calls
            for name, value in (("catalog", "unity"), ("schema", "default"), ("table", "orders")):
                if name in case.path_parameters and http_calls % 2:
                    case.path_parameters[name] = value
            http_calls += 1
            checks = [not_a_server_error, status_code_conformance, response_schema_conformance]
            case.call_and_validate(checks=checks, headers=HERE)

        given(case=operation.as_strategy())(check_answer)()
    assert http_calls >= cases * 6
