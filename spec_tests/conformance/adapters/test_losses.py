"""Answers that a client loses, and the fault proxy of these tests: what the client sees, what the server received."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from conformance.adapters.connections import BrokenError, Connections
from conformance.adapters.http import HttpServer, HttpSubject
from conformance.adapters.in_process import InProcess
from conformance.adapters.listener import Handler, Listener
from conformance.interface import messages as m
from conformance.models.owner import ModelOwner
from conformance.programs.cases import run_case
from conformance.running.worker import check_named
from conformance.scenario.check import Variant
from conformance.subjects.names import open_subject
from spec_tests.conformance.asking import Asking
from spec_tests.support.fault_proxy import Fault, FaultProxy, Match, Plan

LONG = 120.0
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


def post(url: str, body: bytes = b"x", path: str = "/orders") -> tuple[int, bytes] | str:
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
        assert post(proxy.url, b"other") == (201, b'{"number": 1}')
        arrived.clear()
        replies = post(proxy.url, b"first")
        assert seen == (replies[0] if isinstance(seen, int) else replies)
        assert arrived == [b"first"] * reached
        assert proxy.counts() == {fault: 1}
        assert post(proxy.url, b"first") == (201, json.dumps({"number": reached + 1}).encode())


def test_a_delayed_request_arrives_after_another_successful_one(server: Server) -> None:
    url, arrived = server
    with FaultProxy(url, patience=LONG) as proxy, ThreadPoolExecutor(1) as pool:
        proxy.next(Fault.DELAY)
        delayed = pool.submit(post, proxy.url, b"late")
        while not proxy.counts():
            pass
        assert post(proxy.url, b"another kind", "/lines") == (201, b'{"number": 1}')
        while not delayed.done():
            post(proxy.url, b"another")
        assert delayed.result()[0] == 201
    assert arrived.index(b"late") > arrived.index(b"another")


def test_the_same_seed_fails_the_same_requests(server: Server) -> None:
    def statuses(seed: int) -> list[object]:
        with FaultProxy(server[0], plan=Plan(seed=seed, shares={Fault.BUSY: 0.3, Fault.UNAVAILABLE: 0.3})) as proxy:
            return [post(proxy.url)[0] for _ in range(30)]

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
