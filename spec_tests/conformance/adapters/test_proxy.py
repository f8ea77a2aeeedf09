"""The fault proxy: for every fault, what the client sees, and what the server received."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest

from conformance.adapters.connections import BrokenError, Connections, LossyConnections
from conformance.adapters.http import HttpServer, HttpSubject
from conformance.adapters.in_process import InProcess
from conformance.adapters.proxy import Fault, FaultProxy, Handler, Listener, Match, Plan
from conformance.interface import messages as m
from conformance.models.owner import ModelOwner
from conformance.programs.cases import run_case
from conformance.running.worker import check_named
from conformance.scenario.check import Variant
from conformance.subjects.names import open_subject
from spec_tests.conformance.asking import Asking

LONG = 120.0


@pytest.fixture
def server() -> Iterator[Remembering]:
    with remembering() as server:
        yield server


@pytest.fixture
def proxy(server: Remembering) -> Iterator[FaultProxy]:
    with FaultProxy(server.url, patience=LONG) as proxy:
        yield proxy


def post(url: str, body: bytes = b"x", path: str = "/orders") -> tuple[int, bytes] | str:
    """Status and body of the response, or how the connection ended without a response."""
    connections = Connections(url, timeout=LONG)
    try:
        return connections.send("POST", path, body)
    except BrokenError:
        return "broken"
    finally:
        connections.close()


# Requests that pass unchanged


def test_without_faults_the_proxy_changes_nothing(server: Remembering, proxy: FaultProxy) -> None:
    parts = urlsplit(proxy.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=LONG)
    connection.request("POST", "/orders?x=1", b"content", {"Authorization": "Bearer t", "X-Mine": "yes"})
    answer = connection.getresponse()
    assert (answer.status, answer.getheader("ETag"), answer.read()) == (201, '"1"', b'{"number": 1}')
    sock = connection.sock
    connection.request("GET", "/")
    assert connection.getresponse().read() == b"hello"
    connection.request("HEAD", "/")
    head = connection.getresponse()
    assert (head.getheader("Content-Length"), head.read()) == ("4711", b"")
    connection.request("DELETE", "/")
    gone = connection.getresponse()
    assert (gone.status, gone.read()) == (204, b"")
    assert connection.sock is sock, "all requests must use one connection"
    connection.close()
    assert server.arrived == [b"content"]
    assert server.headers[0]["Authorization"] == "Bearer t"
    assert server.headers[0]["X-Mine"] == "yes"
    assert [(exchange.method, exchange.status, exchange.fault) for exchange in proxy.exchanges] == [
        ("POST", 201, None), ("GET", 200, None), ("HEAD", 200, None), ("DELETE", 204, None),
    ]  # fmt: skip


def test_a_chunked_body_arrives_complete(server: Remembering, proxy: FaultProxy) -> None:
    parts = urlsplit(proxy.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=LONG)
    connection.request("POST", "/", iter([b"one ", b"two"]), encode_chunked=True)
    assert connection.getresponse().status == 201
    connection.close()
    assert server.arrived == [b"one two"]


def test_no_upgrade_of_the_protocol_is_forwarded_and_no_header_recorded(server: Remembering, proxy: FaultProxy) -> None:
    """Java's HTTP client asks for HTTP/2 in every request, which some servers reject."""
    connections = Connections(proxy.url, timeout=LONG)
    headers = {"Upgrade": "h2c", "HTTP2-Settings": "AAEAAEAA", "Connection": "Upgrade", "Authorization": "Bearer hush"}
    connections.send("POST", "/", b"", headers)
    connections.close()
    assert not {"Upgrade", "HTTP2-Settings"} & set(server.headers[0])
    assert "hush" not in repr(proxy.exchanges)


def test_without_a_server_the_connection_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with FaultProxy(f"http://127.0.0.1:{port}") as proxy:
        assert post(proxy.url) == "broken"
        assert proxy.exchanges[0].status is None


# Faults


@pytest.mark.parametrize(
    ("fault", "seen", "reached"),
    [
        (Fault.DROP_REQUEST, "broken", 0),
        (Fault.DROP_RESPONSE, "broken", 1),
        (Fault.DUPLICATE, (201, b'{"number": 1}'), 2),
        (Fault.DUPLICATE_SECOND, (201, b'{"number": 2}'), 2),
        (Fault.BUSY, 429, 0),
        (Fault.UNAVAILABLE, 503, 0),
        (Fault.UNAVAILABLE_LANDED, 503, 1),
    ],
)
def test_a_fault_affects_one_request(
    server: Remembering, proxy: FaultProxy, fault: Fault, seen: object, reached: int
) -> None:
    proxy.next(fault)
    replies = post(proxy.url, b"first")
    assert seen == (replies[0] if isinstance(seen, int) else replies)
    assert server.arrived == [b"first"] * reached
    exchange = proxy.exchanges[0]
    assert (exchange.fault, exchange.reached, exchange.status) == (fault, reached, 201 if reached else None)
    lost = fault in (Fault.DROP_RESPONSE, Fault.UNAVAILABLE_LANDED)
    assert exchange.lost == (b'{"number": 1}' if lost else None)
    assert proxy.counts() == {fault: 1}
    assert post(proxy.url, b"second") == (201, json.dumps({"number": reached + 1}).encode())


def test_a_rejection_by_the_proxy_has_the_form_of_the_delta_api(proxy: FaultProxy) -> None:
    proxy.next(Fault.BUSY)
    replies = post(proxy.url)
    assert not isinstance(replies, str)
    error = json.loads(replies[1])["error"]
    assert (error["code"], error["type"]) == (429, "ResourceExhaustedException")


def test_a_delayed_request_arrives_after_another_successful_one(server: Remembering, proxy: FaultProxy) -> None:
    match = Match(method="POST", body="a")
    proxy.next(Fault.DELAY, match=match)
    with ThreadPoolExecutor(1) as pool:
        delayed = pool.submit(post, proxy.url, b"late commit a")
        proxy.await_delayed()
        assert post(proxy.url, b"other") == (201, b'{"number": 1}'), "another kind of request"
        assert post(proxy.url, b"taken") == (409, b'{"number": 2}'), "a rejected request does not count"
        assert not delayed.done()
        assert post(proxy.url, b"another commit a") == (201, b'{"number": 3}')
        assert delayed.result(LONG) == (201, b'{"number": 4}')
    assert server.arrived == [b"other", b"taken", b"another commit a", b"late commit a"]
    late = proxy.await_exchange(lambda exchange: exchange.fault is Fault.DELAY)
    assert late.overtaken


def test_a_delayed_request_without_a_successor_is_forwarded(server: Remembering) -> None:
    with FaultProxy(server.url, patience=0.01) as proxy:
        proxy.next(Fault.DELAY)
        assert post(proxy.url) == (201, b'{"number": 1}')
        assert not proxy.exchanges[0].overtaken


# The affected requests


def test_requested_faults_are_applied_in_order_to_matching_requests(server: Remembering, proxy: FaultProxy) -> None:
    proxy.next(Fault.UNAVAILABLE, Fault.BUSY, match=Match(path="^/orders"))
    proxy.next(Fault.DROP_REQUEST, match=Match(body="secret"))
    replies = [
        post(proxy.url, b"x", "/lines"), post(proxy.url), post(proxy.url, b"a secret", "/lines"), post(proxy.url),
        post(proxy.url, b"a secret"),
    ]  # fmt: skip
    assert [reply if isinstance(reply, str) else reply[0] for reply in replies] == [201, 503, "broken", 429, 201]
    assert server.arrived == [b"x", b"a secret"]


def test_the_same_seed_fails_the_same_requests(server: Remembering) -> None:
    def statuses(seed: int) -> list[object]:
        shares = {Fault.BUSY: 0.3, Fault.UNAVAILABLE: 0.3}
        with FaultProxy(server.url, plan=Plan(seed=seed, shares=shares, match=Match(method="POST"))) as proxy:
            replies = [post(proxy.url) for _ in range(30)]
            assert proxy.counts().total() == sum(reply[0] != 201 for reply in replies)
        return [reply[0] for reply in replies]

    assert statuses(7) == statuses(7)
    assert set(statuses(7)) == {201, 429, 503}
    assert statuses(7) != statuses(8)


@pytest.mark.parametrize("once", [True, False])
def test_a_repeated_request_passes_if_faults_happen_once(server: Remembering, once: bool) -> None:
    plan = Plan(seed=0, shares={Fault.UNAVAILABLE: 1}, once=once)
    with FaultProxy(server.url, plan=plan) as proxy:
        replies = [post(proxy.url, body)[0] for body in (b"a", b"a", b"b", b"a", b"b")]
        assert replies == ([503, 201, 503, 201, 201] if once else [503] * 5)
        assert proxy.counts() == {Fault.UNAVAILABLE: 2 if once else 5}


@pytest.mark.parametrize("shares", [{Fault.BUSY: 0.6, Fault.DELAY: 0.5}, {Fault.BUSY: -0.1}])
def test_invalid_shares_are_rejected(shares: dict[Fault, float]) -> None:
    with pytest.raises(ValueError, match="together at most 1"):
        Plan(seed=0, shares=shares)


@pytest.mark.parametrize("url", ["127.0.0.1:80", "ftp://127.0.0.1", "http://", ""])
def test_an_invalid_server_url_is_rejected(url: str) -> None:
    with pytest.raises(ValueError, match="invalid URL"):
        FaultProxy(url)


# The proxy inside the kit


def test_the_lost_answer_is_known_to_the_kit(server: Remembering) -> None:
    lossy = LossyConnections(server.url, timeout=LONG)
    assert lossy.send("POST", "/", b"first") == (201, b'{"number": 1}')
    assert lossy.send("POST", "/", b"taken") == (409, b'{"number": 2}')
    lossy.close()
    assert server.arrived == [b"first", b"taken"]


# A test server


@dataclass
class Remembering:
    """A server's `url`, and the bodies that it received, in order."""

    url: str = ""
    arrived: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)


@contextmanager
def remembering() -> Iterator[Remembering]:
    """Answers 201 with the number of the request, but 409 to the body `taken`."""
    seen = Remembering()
    lock = threading.Lock()

    class Remembers(Handler):
        def answer(self) -> None:
            body = self.body()
            if self.command == "POST":
                with lock:
                    seen.arrived.append(body)
                    seen.headers.append(dict(self.headers.items()))
                    number = len(seen.arrived)
                content = json.dumps({"number": number})
                headers = {"ETag": f'"{number}"', "Content-Length": str(len(content))}
                self.reply(409 if body == b"taken" else 201, content, headers)
            elif self.command == "GET":
                self.reply(200, "5\r\nhello\r\n0\r\n\r\n", {"Transfer-Encoding": "chunked"})
            else:
                self.reply(*((200, "", {"Content-Length": "4711"}) if self.command == "HEAD" else (204, "", {})))

        do_GET = do_POST = do_HEAD = do_DELETE = answer  # noqa: N815

        def reply(self, status: int, content: str, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content.encode())

    with Listener("127.0.0.1", 0, Remembers) as server:
        seen.url = server.url
        yield seen


# Subjects at a URL

VARIANT = Variant(feature="catalogManaged", commit_mode="staged")


class Counting(ModelOwner):
    """Counts the requests that it receives."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[m.Commit] = []

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        self.commits.append(request)
        return super().commit(client, request)


def test_the_kit_knows_the_answer_that_a_client_lost() -> None:
    owner = Counting()
    with HttpServer(InProcess(owner).ask) as server, HttpSubject(server.url, timeout=LONG) as subject:
        request = Asking(subject).table().proposal(1)
        assert subject.lose("a", request) == m.Ratified(version=1)
        assert owner.commits == [request]
        assert subject.ask("a", request) == m.Ratified(version=1), "the repeated request must be recognized"
        assert subject.lose("b", m.GetCommits(table="unknown")) == m.NotFound()


@pytest.mark.parametrize("owner", ["model", "mutant:replay-is-a-conflict"])
def test_a_second_answer_shows_an_owner_that_forgets_attempts(owner: str) -> None:
    check = check_named("two-writers-of-one-version-have-one-winner")
    plan = Plan(seed=0, shares={Fault.DUPLICATE_SECOND: 1})
    with (
        open_subject(owner) as subject,
        HttpServer(subject.ask) as server,
        FaultProxy(server.url, plan=plan) as proxy,
        HttpSubject(f"{proxy.url}/", timeout=LONG) as behind,
    ):
        violations = run_case(check, VARIANT, behind).violations
    named = {requirement for violation in violations for requirement in violation.requirements}
    assert ("PROFILE-RETRY-01" in named) == bool(named) == (owner != "model")
