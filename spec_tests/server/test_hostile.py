"""Clients that try to read other files, to block the server, or to disturb other clients.

Each of these attacks once succeeded, or would succeed if a check of the server were removed.
"""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.testclient import TestClient

import refimpl
from refimpl.protocol.errors import DeltaError
from refimpl.server.access import Scope, Tokens
from refimpl.server.routes import ROUTES
from refimpl.server.serving import Serving, configuration
from spec_tests.server.wire import BAD, CATALOG, DELTA, WireTable, refusal, reported
from spec_tests.support.serving import started

FORBIDDEN = (403, "PermissionDeniedException")
LISTING = f"{CATALOG}/tables?catalog_name=unity&schema_name=default"

# Paths that are no regular files


def pipe(path: Path, _other: Path) -> None:
    os.mkfifo(path)


def folder(path: Path, _other: Path) -> None:
    path.mkdir()


def endless(path: Path, _other: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


def link(path: Path, other: Path) -> None:
    path.symlink_to(other)


@pytest.mark.parametrize("made", [pipe, folder, endless, link], ids=lambda made: made.__name__)
def test_path_that_is_no_file_is_refused_at_once(http: TestClient, made: Callable[[Path, Path], None]) -> None:
    """In place of version 0, of a staged file, and of a published version, which the owner reads under its lock. A link
    to the staged file would break when that file is removed."""

    def replaced(path: Path, refused: Callable[[], None], other: Path | None = None) -> None:
        kept = path.rename(path.with_name("kept")) if other is None else other
        made(path, kept)
        refused()
        path.rmdir() if path.is_dir() else path.unlink()
        if other is None:
            kept.rename(path)

    table = WireTable(http).prepared()
    log = table.location / "_delta_log"
    replaced(log / f"{0:020d}.json", lambda: _is_bad(table.register()))
    assert table.register().status_code == 200
    staged = table.write_staged(1)
    replaced(staged.path, lambda: _is_bad(table.propose(staged)))
    assert table.propose(staged).status_code == 200
    second, published = table.write_staged(2), log / f"{1:020d}.json"
    replaced(published, lambda: _is_bad(table.update(reported(1)), table.propose(second, reported(1))), staged.path)
    assert table.state()[:2] == (1, [1])
    table.publish(staged)
    assert table.update(reported(1)).status_code == 200
    assert table.state()[:2] == (1, [])


def _is_bad(*answers: Any) -> None:
    assert [refusal(answer) for answer in answers] == [BAD] * len(answers)


def test_a_first_version_is_not_read_from_a_pipe(http: TestClient) -> None:
    """A pipe returns the right bytes only once."""
    table = WireTable(http).prepared()
    first = table.location / "_delta_log" / f"{0:020d}.json"
    content = first.read_bytes()
    first.unlink()
    os.mkfifo(first)
    with os.fdopen(os.open(first, os.O_RDWR), "r+b", buffering=0) as writer:
        writer.write(content)
        _is_bad(table.register())


def test_pipe_in_place_of_a_version_does_not_block_the_owner(warehouse: refimpl.Warehouse) -> None:
    """A publisher opens an existing file of that name."""
    import pyarrow as pa

    schema = pa.schema([("id", pa.int64())])
    spoilt, other = warehouse.create_table("spoilt", schema), warehouse.create_table("other", schema)
    os.mkfifo(spoilt.location / "_delta_log" / f"{1:020d}.json")
    with pytest.raises(DeltaError):
        spoilt.append(pa.table({"id": [1]}))
        warehouse.owner.backfill_to_version(spoilt.table_id or "")
    other.append(pa.table({"id": [1]}))
    assert other.snapshot().version == 1


# Values that could break their readers


def nested(depth: int, element: str) -> Any:
    kind: Any = "long"
    for _ in range(depth):
        kind = {"type": "array", element: kind}
    return kind


@pytest.mark.parametrize(
    "schema",
    [
        "[" * 3000 + "]" * 3000,
        json.dumps({"fields": [{"name": "a", "type": nested(450, "elementType")}]}),
        '{"fields":[{"name":"a","type":' + '{"type":"array","elementType":' * 600 + '"long"' + "}" * 600 + "}]}",
        '{"fields":[{"name":"a","type":{"type":"struct","fields":[1]}}]}',
        '{"fields":[{"name":[1],"type":[2],"metadata":3},4]}',
        '{"fields":5}',
    ],
    ids=["brackets", "deep", "deeper", "no-field", "no-column", "no-columns"],
)
def test_table_with_invalid_columns_does_not_hide_other_tables(
    table: WireTable, http: TestClient, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner now rejects such a commit, but an older ledger may contain one."""
    monkeypatch.setattr("refimpl.protocol.table_feature.unreadable", lambda _metadata: None)
    WireTable(http, "other").create()
    metadata = table.metadata({"delta.enableInCommitTimestamps": "true", "io.unitycatalog.tableId": table.table_id})
    staged = table.write_staged(1, {"metaData": {**metadata, "schemaString": schema}})
    assert table.propose(staged).status_code == 200
    assert table.state()[0] == 1
    listed = http.get(LISTING)
    assert [entry["name"] for entry in listed.json()["tables"]] == ["orders", "other"]


# Access


def test_read_token_allows_no_changing_call(http: TestClient, warehouse: refimpl.Warehouse) -> None:
    tokens = Tokens(warehouse)
    reader = {"authorization": f"Bearer {tokens.add('dashboard', Scope.READ)}"}
    for base, route in ROUTES:
        path = base + route.path
        writes = route.method not in ("GET", "HEAD") and route.name not in {"table-credentials", "load-together"}
        assert (route.scope is Scope.WRITE) is writes, path
        filled = path.replace("{", "").replace("}", "")
        answer = http.request(route.method, filled, headers=reader)
        assert (answer.status_code == 403) is writes, (path, answer.status_code)
        for sent in ({}, {"authorization": "Bearer x"}):
            assert http.request(route.method, filled, headers=sent).status_code == 401, path


def test_token_is_accepted_in_its_header_only(http: TestClient, warehouse: refimpl.Warehouse) -> None:
    secret = Tokens(warehouse).add("pipeline", Scope.WRITE)
    path = f"{CATALOG}/catalogs"
    for query in ("access_token", "token", "authorization", "Authorization"):
        assert http.get(f"{path}?{query}={secret}").status_code == 401
        assert http.get(path, headers={"cookie": f"{query}={secret}"}).status_code == 401
    assert http.get(path, headers={"authorization": f"Bearer {secret}"}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"}, {"host": "127.0.0.1.evil.example:80"}, {"host": ""}, {"host": "[::1"},
        {"origin": "https://evil.example"}, {"origin": "null"}, {"origin": "http://192.168.0.1:8080"},
    ],
    ids=str,
)  # fmt: skip
def test_foreign_page_in_a_local_browser_is_rejected(
    table: WireTable, http: TestClient, warehouse: refimpl.Warehouse, headers: dict[str, str]
) -> None:
    """Without tokens, the server accepts every local request, and a browser's request is local."""
    assert refusal(http.get(table.url, headers=headers)) == FORBIDDEN
    assert refusal(http.delete(table.url, headers=headers)) == FORBIDDEN
    body = json.dumps({"name": "more"})
    plain = {**headers, "content-type": "text/plain"}
    assert refusal(http.post(f"{table.base}/staging-tables", content=body, headers=plain)) == FORBIDDEN
    assert table.state()[0] == 0
    for here in ("127.0.0.1:8080", "localhost", "[::1]:8080"):
        assert http.get(table.url, headers={"host": here, "origin": f"http://{here}"}).status_code == 200
    secret = Tokens(warehouse).add("pipeline", Scope.READ)
    assert http.get(table.url, headers={**headers, "authorization": f"Bearer {secret}"}).status_code == 200


def test_no_request_is_redirected(http: TestClient) -> None:
    """A redirect would go to the host that the request names, before any access check."""
    for path in ("/health/", f"{CATALOG}/catalogs/"):
        answer = http.get(path, follow_redirects=False)
        assert refusal(answer) == (404, "NotFoundException")


# The connection

PROGRAM = """
import sys; from pathlib import Path
import refimpl
from refimpl.server.application import Limits
from refimpl.server.serving import Serving, serve
refimpl.open(sys.argv[1], create=True).close()
seconds, request_seconds = map(float, sys.argv[2:])
serve(Serving(warehouse=Path(sys.argv[1]), header_seconds=seconds, connections=12,
              limits=Limits(body_seconds=seconds, request_seconds=request_seconds, requests=4), log_level="error"))
"""
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
POST = f"POST {DELTA}/catalogs/unity/schemas/default/staging-tables HTTP/1.1\r\nHost: localhost\r\n".encode()


def answers_of(connection: socket.socket) -> bytes:
    """All bytes until the other side closes. Raises `TimeoutError` if it does not close."""
    received = b""
    try:
        while more := connection.recv(65536):
            received += more
    except ConnectionError:  # closed while bytes of the test were under way
        pass
    return received


def sent_to(address: tuple[str, int], stack: ExitStack, sent: bytes) -> socket.socket:
    connection = stack.enter_context(socket.create_connection(address, 30))
    connection.sendall(sent)
    return connection


@pytest.mark.processes
def test_connections_that_never_end_are_closed(tmp_path: Path) -> None:
    with started("-c", PROGRAM, tmp_path / "warehouse", "0.3", "20") as (server, url), ExitStack() as stack:
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        opened = partial(sent_to, address, stack)
        chunked = opened(POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{    \r\n")
        response = answers_of(chunked)
        assert response.startswith(b"HTTP/1.1 408"), "the connection closes, although the client still sends its body"
        for wrong in (
            b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            b"GET /\0 HTTP/1.1\r\n\r\n",
            b"\x16\x03\x01" * 99,
        ):
            assert answers_of(opened(wrong)).startswith((b"HTTP/1.1 400", b"HTTP/1.1 404"))
        large = opened(b"GET /health HTTP/1.1\r\nX: " + b"x" * 200_000)
        assert b" 200 " not in answers_of(large)[:20]
        body = b'{"name": "java"}' + b" " * 100_000
        upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: A\r\n"
        java = opened(POST + upgrade + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        java.sendall(HEALTH + upgrade + b"\r\n" + HEALTH + b"\r\n")
        java.shutdown(socket.SHUT_WR)
        assert answers_of(java).count(b"HTTP/1.1 200") == 3
        chunk = b'10\r\n{"name": "last"}\r\n0\r\n'
        trailer = POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunk + b"Origin: http://foreign\r\n\r\n"
        assert answers_of(opened(trailer + b"GET /hea")).startswith(b"HTTP/1.1 200"), "a trailer is no header"
        followed = answers_of(opened(POST + b"Content-Length: 16\r\n\r\n" + b'{"name": "next"}' + b"\0"))
        assert followed.startswith(b"HTTP/1.1 200"), "what follows a request does not change its answer"

        begun = (b"", b"GET /hea", b"POST /health HTTP/1.1\r\nContent-Le")
        for connection in [opened(sent) for sent in begun for _ in range(10)]:
            assert b" 200 " not in answers_of(connection)
        kept = opened(HEALTH + b"\r\n")
        assert kept.recv(65536).startswith(b"HTTP/1.1 200")
        kept.sendall(begun[1])
        answers_of(kept)
        deaf = stack.enter_context(socket.socket())
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        deaf.connect(address)
        deaf.settimeout(30)
        request = b"GET /api/2.1/unity-catalog/catalogs HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with pytest.raises(ConnectionError):
            while True:  # never reads, so the answers fill all buffers, and the server closes the connection
                deaf.sendall(request * 200)

        with httpx2.Client(base_url=url, timeout=120) as client:
            WireTable(client).create().land(1)
        waiting = opened(b"")
        server.send_signal(signal.SIGTERM)
        assert server.wait(120) == 0, sys.platform
        assert answers_of(waiting) == b""


@pytest.mark.longer
@pytest.mark.processes
def test_hostile_connections_do_not_block_other_clients(tmp_path: Path) -> None:
    """More connections than the server keeps, and more slow bodies than it accepts requests. No time limit ends
    them."""
    with started("-c", PROGRAM, tmp_path / "warehouse", "60", "60") as (server, url), ExitStack() as stack:
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        opened = partial(sent_to, address, stack)

        def answered(sent: bytes) -> bytes:
            """The answer to a request after which the client shuts down its side."""
            connection = opened(sent)
            connection.shutdown(socket.SHUT_WR)
            return answers_of(connection)

        with httpx2.Client(base_url=url, timeout=120) as client:
            table = WireTable(client).create()
            for number, sent in enumerate((POST + b"Content-Length: 99\r\n\r\n{", b"", b"GET /hea", HEALTH)):
                for _ in range(8 if number == 0 else 30):
                    opened(sent)
                with httpx2.Client(base_url=url, timeout=120) as other:
                    assert other.get("/health").status_code == 200
                    table.http = other
                    table.land(number + 1)

            body = b'{"name": "more"}'
            whole = POST + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
            assert answered(HEALTH + b"\r\n").startswith(b"HTTP/1.1 200")
            assert answered(whole).startswith(b"HTTP/1.1 200")
            assert answered(whole + HEALTH + b"\r\n").count(b"HTTP/1.1 200") == 2
            assert answered(whole[:-1]) == b""
            assert answered(b"GET /hea") == b""
        server.send_signal(signal.SIGTERM)
        assert server.wait(120) == 0


def test_forwarded_headers_do_not_change_the_client_address(tmp_path: Path) -> None:
    seen: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope["client"], scope["scheme"]))

    config = configuration(application, Serving(warehouse=tmp_path))
    config.load()
    headers = [(b"x-forwarded-for", b"10.0.0.1"), (b"x-forwarded-proto", b"https")]
    scope = {"type": "http", "client": ("127.0.0.1", 1), "scheme": "http", "headers": headers}
    asyncio.run(config.loaded_app(scope, None, None))
    assert seen == [(("127.0.0.1", 1), "http")]


def test_errors_before_the_access_check_name_no_file(http: TestClient, warehouse: refimpl.Warehouse) -> None:
    owner = warehouse.owner
    tokens = Tokens(warehouse)
    for spoil in (lambda: tokens.path.write_bytes(b"{"), tokens.path.mkdir):
        spoil()
        answer = http.get(f"{CATALOG}/catalogs")
        assert answer.status_code == 503
        assert str(warehouse.directory) not in answer.text
        tokens.path.unlink() if tokens.path.is_file() else tokens.path.rmdir()
    away = owner.ledger.path.rename(owner.ledger.path.with_name("away"))
    answer = http.get("/health")
    assert answer.status_code == 500
    assert str(warehouse.directory) not in answer.text
    away.rename(owner.ledger.path)
    assert http.get("/health").status_code == 200
