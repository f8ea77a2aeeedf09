"""Subjects at a URL: which replies are answers, which outcomes are unknown, and which errors end the test."""

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from conformance.adapters.connections import BrokenError, Connections
from conformance.adapters.http import HttpServer, HttpSubject
from conformance.adapters.in_process import InProcess
from conformance.adapters.listener import Handler, Listener
from conformance.adapters.wire import encode
from conformance.interface import messages as m
from conformance.interface.subject import AdapterError
from conformance.models.owner import ModelOwner
from conformance.programs.cases import run_case
from conformance.running.worker import check_named
from conformance.scenario.check import Variant
from conformance.subjects.names import open_subject
from spec_tests.conformance.asking import Asking
from spec_tests.support.serving import Fault, FaultProxy, Match, Plan

LONG = 120.0
IDENTITY = m.Identity(
    name="scripted", version="1", interface_version=1, side="owner",
    profiles=("core",), commit_modes={"managedCommit": ("staged",)}, features=("managedCommit",),
)  # fmt: skip


class Scripted:
    """An owner that gives the answers of a function."""

    def __init__(self, answer: Callable[[str, m.Request], m.Answer]) -> None:
        self.identity = IDENTITY
        self.answer = answer

    def ask(self, client: str, request: m.Request) -> m.Answer:
        return self.identity if isinstance(request, m.Hello) else self.answer(client, request)


@contextmanager
def raw(respond: Callable[[bytes, socket.socket], Any]) -> Iterator[str]:
    """Start a server that answers `hello`, and then sends any bytes. Yields its URL."""
    greeted = threading.Event()

    class Raw(Handler):
        def respond(self) -> None:
            received = self.body()
            if greeted.is_set():
                respond(received, self.connection)
            else:
                greeted.set()
                self.connection.sendall(response(encode(m.Reply(id=1, answer=IDENTITY))))

        do_POST = respond  # noqa: N815

    with Listener(Raw) as server:
        yield f"{server.url}/"


def response(body: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def answer_of(url: str, timeout: float = LONG) -> m.Answer:
    with HttpSubject(url, timeout=LONG) as subject:
        subject._timeout = subject._connections._timeout = timeout
        return subject.ask("a", m.GetCommits(table="orders"))


def test_a_subject_at_a_url_equals_one_in_this_process() -> None:
    with HttpServer(InProcess(ModelOwner()).ask) as server, HttpSubject(server.url, timeout=LONG) as subject:
        assert subject.identity == InProcess(ModelOwner()).identity
        assert subject.ask("a", m.GetCommits(table="orders")) == m.NotFound()
        answer = subject.ask(
            "a", m.Plant(table="/t", file="x", content="half a character \udce2, and a long one" * 1000)
        )
        assert answer == m.Done()


def ask_at_once(server: HttpServer, times: int) -> list[m.Answer]:
    with server, HttpSubject(server.url, timeout=LONG) as subject, ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda number: subject.ask(str(number), m.DropTable(table="t")), range(times)))


def test_requests_are_served_one_at_a_time_by_default() -> None:
    inside: list[str] = []
    most: list[int] = []

    def slowly(client: str, request: m.Request) -> m.Answer:
        inside.append(client)
        most.append(len(inside))
        threading.Event().wait(0.01)
        inside.remove(client)
        return m.Done()

    assert ask_at_once(HttpServer(Scripted(slowly).ask), 12) == [m.Done()] * 12
    assert max(most) == 1
    together = threading.Barrier(2, timeout=LONG)

    def meet(client: str, request: m.Request) -> m.Answer:
        together.wait()
        return m.Done()

    assert ask_at_once(HttpServer(Scripted(meet).ask, serialized=False), 2) == [m.Done()] * 2


def test_a_refused_connection_is_an_error_at_start_and_unknown_later() -> None:
    server = HttpServer(InProcess(ModelOwner()).ask)
    subject = HttpSubject(server.url, timeout=LONG)
    server.close()
    answer = subject.ask("a", m.GetCommits(table="orders"))
    assert isinstance(answer, m.Unknown)
    assert answer.reason == "not running: connection refused"
    subject.close()
    assert subject.ask("a", m.GetCommits(table="orders")) == m.Unknown(reason="not running: it was closed")
    with pytest.raises(AdapterError) as raised:
        HttpSubject(server.url, timeout=LONG)
    assert raised.value.problem == (f"no server at {server.url}: connection refused. Start the subject before the kit")


NO_ANSWERS = {
    "404": (response(b"no such page", "404 Not Found"), "was answered with HTTP status 404 and `no such page`"),
    "302": (response(b"", "302 Found\r\nLocation: /x"), "was answered with HTTP status 302"),
    "400": (response(b"bad", "400 Bad Request"), "POSTed to exactly this URL"),
    "a page": (response(b"<html>welcome"), "`<html>welcome`, which is not JSON"),
    "nothing": (response(b""), "which is not JSON"),
    "another id": (response(b'{"id": 7, "answer": {"outcome": "not_found"}}'), "was answered by a reply to call 7"),
}


@pytest.mark.parametrize(("answer", "words"), NO_ANSWERS.values(), ids=NO_ANSWERS)
def test_an_invalid_reply_is_an_error_with_the_reason(answer: bytes, words: str) -> None:
    with raw(lambda received, connection: connection.sendall(answer)) as url, pytest.raises(AdapterError) as raised:
        answer_of(url)
    assert words in raised.value.problem
    assert url in raised.value.problem


BROKEN: dict[str, Callable[[bytes, socket.socket], Any]] = {
    "hangs up": lambda received, connection: connection.shutdown(socket.SHUT_RDWR),
    "hangs up in the middle": lambda received, connection: (
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"),
        connection.shutdown(socket.SHUT_RDWR),
    ),
    "speaks something else": lambda received, connection: (
        connection.sendall(b"220 mail ready\r\n"),
        connection.shutdown(socket.SHUT_RDWR),
    ),
}


@pytest.mark.parametrize("respond", BROKEN.values(), ids=BROKEN)
def test_a_broken_connection_has_an_unknown_outcome(respond: Callable[[bytes, socket.socket], Any]) -> None:
    with raw(respond) as url:
        answer = answer_of(url)
    assert isinstance(answer, m.Unknown)
    assert answer.reason.startswith("not running: the connection broke")


def drip(received: bytes, connection: socket.socket) -> None:
    """Send a byte at a time: the connection is never silent for long, and never finished."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while True:
        threading.Event().wait(0.05)
        connection.sendall(b" ")


@pytest.mark.parametrize("respond", [lambda received, connection: None, drip], ids=["silence", "a drip"])
def test_a_missing_answer_is_an_unknown_outcome_after_the_timeout(
    respond: Callable[[bytes, socket.socket], Any],
) -> None:
    with raw(respond) as url:
        assert answer_of(url, timeout=0.01) == m.Unknown(reason="no answer within 0.01 s")


def test_no_request_is_sent_twice() -> None:
    calls: list[bytes] = []

    def hang_up(received: bytes, connection: socket.socket) -> None:
        calls.append(received)
        connection.shutdown(socket.SHUT_RDWR)

    with raw(hang_up) as url:
        answer_of(url)
    assert len(calls) == 1


def test_a_changed_identity_after_a_restart_is_an_error() -> None:
    owner = Scripted(lambda client, request: m.Done())
    with HttpServer(owner.ask) as server, HttpSubject(server.url, timeout=LONG) as subject:
        assert subject.ask("kit", m.Restart()) == m.Done()
        owner.identity = m.Identity(name="other", version="1", interface_version=1, side="owner", profiles=("core",))
        with pytest.raises(AdapterError) as raised:
            subject.ask("kit", m.Restart())
    assert "changed between calls" in raised.value.problem
    assert "name was `'scripted'` and is `'other'`" in raised.value.problem


# The server


def post(url: str, body: bytes, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(url.removeprefix("http://").strip("/"), timeout=LONG)
    try:
        connection.request(
            "POST", "/anything", body, {name.replace("_", "-"): value for name, value in headers.items()}
        )
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_the_server_reports_the_error_of_a_call() -> None:
    def fail(client: str, request: m.Request) -> m.Answer:
        raise ZeroDivisionError("division by zero")

    with HttpServer(Scripted(fail).ask) as server:
        good = b'{"id": 3, "client": "a", "request": {"op": "hello"}}'
        status, body = post(server.url, good)
        assert (status, json.loads(body)["id"]) == (200, 3)
        status, body = post(server.url, b"{}")
        assert (status, body) == (400, b"invalid call: Object missing required field `id`")
        status, body = post(server.url, b'{"id": 3, "client": "a", "request": {"op": "drop_table", "table": "t"}}')
        assert (status, body) == (500, b"ZeroDivisionError: division by zero")


# Answers that a client loses, and the fault proxy of these tests


Server = tuple[str, list[bytes]]


@pytest.fixture
def server() -> Iterator[Server]:
    with remembering() as server:
        yield server


@contextmanager
def remembering() -> Iterator[Server]:
    """A server's URL, and the bodies that it received. It answers 201 with the number of the request."""
    arrived: list[bytes] = []
    lock = threading.Lock()

    class Remembers(Handler):
        def do_POST(self) -> None:  # noqa: N802  # the name is the base class's
            body = self.body()
            with lock:
                arrived.append(body)
                number = len(arrived)
            self.reply(201, json.dumps({"number": number}).encode(), "application/json")

    with Listener(Remembers) as server:
        yield server.url, arrived


def sent_to(url: str, body: bytes = b"x", path: str = "/orders") -> tuple[int, bytes] | str:
    """Status and body of the response, or how the connection ended without a response."""
    connections = Connections(url, timeout=LONG)
    try:
        return connections.send("POST", path, body)
    except BrokenError:
        return "broken"
    finally:
        connections.close()


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
def test_a_fault_affects_one_matching_request(server: Server, fault: Fault, seen: object, reached: int) -> None:
    url, arrived = server
    with FaultProxy(url) as proxy:
        proxy.next(fault, match=Match(path="^/orders", body="first"))
        assert sent_to(proxy.url, b"other") == (201, b'{"number": 1}')
        arrived.clear()
        replies = sent_to(proxy.url, b"first")
        assert seen == (replies[0] if isinstance(seen, int) else replies)
        assert arrived == [b"first"] * reached
        assert proxy.counts() == {fault: 1}
        assert sent_to(proxy.url, b"first") == (201, json.dumps({"number": reached + 1}).encode())


def test_a_delayed_request_arrives_after_another_successful_one(server: Server) -> None:
    url, arrived = server
    with FaultProxy(url, patience=LONG) as proxy, ThreadPoolExecutor(1) as pool:
        proxy.next(Fault.DELAY)
        delayed = pool.submit(sent_to, proxy.url, b"late")
        while not proxy.counts():
            pass
        assert sent_to(proxy.url, b"another kind", "/lines") == (201, b'{"number": 1}')
        while not delayed.done():
            sent_to(proxy.url, b"another")
        assert delayed.result()[0] == 201
    assert arrived.index(b"late") > arrived.index(b"another")


def test_the_same_seed_fails_the_same_requests(server: Server) -> None:
    def statuses(seed: int) -> list[object]:
        with FaultProxy(server[0], plan=Plan(seed=seed, shares={Fault.BUSY: 0.3, Fault.UNAVAILABLE: 0.3})) as proxy:
            return [sent_to(proxy.url)[0] for _ in range(30)]

    assert statuses(7) == statuses(7) != statuses(8)
    assert set(statuses(7)) == {201, 429, 503}


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
