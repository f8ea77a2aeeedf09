"""Invalid bodies, numbers out of range, unknown calls: each gets the documented error, and nothing changes."""

import asyncio
from typing import Any

import pytest
from starlette.testclient import TestClient

from refimpl.server.application import Limits
from refimpl.server.errors import bad_request
from spec_tests.server.conftest import Serve
from spec_tests.server.wire import BAD, DELTA, LEGACY, WireTable, added, refusal, reported


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"{}",
        b'{"updates":null}',
        b'{"updates":{}}',
        b'{"updates":[{}]}',
        b'{"updates":[{"action":"nonsense"}]}',
        b'{"updates":[{"action":"add-commit"}]}',
        b'{"updates":[{"action":"add-commit","commit":{"version":"1"}}]}',
        b'{"updates":[],"requirements":[{"type":"nonsense"}]}',
        b"\xff\xfe{}",
        b'{"updates":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"updates":NaN}',
    ],
)
def test_invalid_body_is_rejected(table: WireTable, http: TestClient, body: bytes) -> None:
    before = table.state()
    assert refusal(http.post(table.url, content=body, headers={"content-type": "application/json"})) == BAD
    assert table.state() == before


def test_largest_version_is_rejected_as_a_gap(table: WireTable) -> None:
    staged = table.write_staged(2**63 - 1)
    assert refusal(table.propose(staged)) == BAD
    assert refusal(table.update(reported(2**63 - 1))) == BAD
    assert table.state()[0] == 0


def test_the_tables_uuid_must_be_asserted(table: WireTable) -> None:
    staged = table.write_staged(1)
    assert refusal(table.send({"updates": [added(staged)]})) == BAD
    assert refusal(table.send({"requirements": None, "updates": [added(staged)]})) == BAD
    assert table.state()[0] == 0
    assert table.propose(staged).status_code == 200


def test_request_needs_one_update_and_at_most_one_of_each_kind(table: WireTable) -> None:
    staged = table.write_staged(1)
    assert refusal(table.update()) == BAD
    assert refusal(table.update(added(staged), added(table.write_staged(1)))) == BAD
    assert refusal(table.update(added(staged), added(table.write_staged(2)))) == BAD
    assert refusal(table.update(reported(0), reported(0))) == BAD
    twice = [{"type": "assert-table-uuid", "uuid": table.table_id}] * 2
    assert refusal(table.send({"requirements": twice, "updates": [added(staged)]})) == BAD
    assert refusal(table.update({"action": "update-metadata-snapshot-version", "last-commit-version": 1})) == BAD
    assert table.state()[0] == 0
    assert table.propose(staged).status_code == 200


def test_unknown_fields_are_ignored_as_everywhere_in_delta(table: WireTable) -> None:
    staged = table.write_staged(1)
    assert table.update({**added(staged, **{"new-field": 1}), "another": None}).status_code == 200


@pytest.mark.parametrize("method", ["PUT", "PATCH", "OPTIONS", "TRACE", "FROBNICATE"])
def test_unknown_method_is_405_with_the_allowed_methods(table: WireTable, http: TestClient, method: str) -> None:
    answer = http.request(method, table.url)
    assert refusal(answer) == (405, "BadRequestException")
    assert answer.headers["allow"] == "DELETE, GET, HEAD, POST"
    assert table.state()[0] == 0


@pytest.mark.parametrize(
    "path", ["/", "/api", f"{DELTA}/nonsense", f"{LEGACY}/volumes", "/api/2.0/nothing", "/etc/passwd", "/%00", "//x"]
)
def test_an_unknown_call_is_404(http: TestClient, path: str) -> None:
    assert refusal(http.get(path)) == (404, "NotFoundException")
    assert refusal(http.post(path, json={})) == (404, "NotFoundException")


def test_error_is_its_message_in_a_traceback() -> None:
    assert str(bad_request("the version is missing")) == "the version is missing"


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
    asked: list[str] = []

    async def receive() -> dict[str, Any]:
        assert len(asked) < 30, "the body is held in memory"
        asked.append("chunk")
        return {"type": "http.request", "body": b" " * 100, "more_body": True}

    async def send(message: dict[str, Any]) -> None:
        asked.append(str(message.get("status", "")))

    server: Any = http.app_state["server"]
    scope = {"type": "http", "method": "POST", "path": table.url, "headers": [(b"host", b"127.0.0.1")]}
    more = {"query_string": b"", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "scheme": "http"}
    asyncio.run(server.application({**scope, **more, "raw_path": table.url.encode()}, receive, send))
    assert "413" in asked
    assert refusal(http.post(table.url, content=b" ", headers={"content-length": "9" * 30})) == (
        413,
        "BadRequestException",
    )
    table.land(1)
