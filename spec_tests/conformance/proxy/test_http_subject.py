"""A subject at a URL whose answers are lost on the wire: it is asked once, and does what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from conformance.adapters.http import HttpSubject
from conformance.adapters.http_server import HttpServer
from conformance.adapters.in_process import InProcess
from conformance.checks.registry import all_checks
from conformance.generated.running import run_case
from conformance.interface import messages as m
from conformance.interface.subject import Subject
from conformance.models.owner import ModelOwner
from conformance.results import Verdict
from conformance.scenario.adversary import ClientHost
from conformance.scenario.check import Variant

LONG = 60.0
LOSING = {check.name: check for check in all_checks()}
VARIANT = Variant(feature="catalogManaged", commit_mode="staged")


class Counting(ModelOwner):
    """Counts what reaches it."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[m.Commit] = []

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        self.commits.append(request)
        return super().commit(client, request)


def test_a_lost_answer_is_known_to_the_kit() -> None:
    owner = Counting()
    with HttpServer(InProcess(owner).ask) as server, HttpSubject(server.url, timeout=LONG) as subject:
        created = subject.ask("a", creation())
        assert isinstance(created, m.Ratified)
        request = m.Commit(table=created.table or "", version=1, attempt="a", actions=("{}",))
        assert subject.lose("a", request) == m.Ratified(version=1)
        assert owner.commits == [request]
        assert subject.ask("a", request) == m.Ratified(version=1), "sent again, it is recognised"
        assert subject.lose("b", m.GetCommits(table="unknown")) == m.NotFound()


def test_answers_are_lost_for_many_at_once() -> None:
    with HttpServer(InProcess(ModelOwner()).ask) as server, HttpSubject(server.url, timeout=LONG) as subject:
        answers: list[m.Answer] = []

        def lose() -> None:
            answers.append(subject.lose("a", m.GetCommits(table="unknown")))

        threads = [threading.Thread(target=lose) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG)
    assert answers == [m.NotFound()] * 8


def test_a_closed_subject_sends_no_request() -> None:
    with HttpServer(InProcess(ModelOwner()).ask) as server:
        subject = HttpSubject(server.url, timeout=LONG)
        subject.close()
        assert isinstance(subject.lose("a", m.GetCommits(table="t")), m.Unknown)


@pytest.mark.parametrize("lossy", [True, False])
def test_a_check_loses_answers_on_the_wire(lossy: bool) -> None:
    lost: list[m.Request] = []
    with HttpServer(InProcess(ModelOwner()).ask) as server, HttpSubject(server.url, timeout=LONG) as subject:
        watch(subject, lost.append)
        subjects: dict[bool, Subject] = {True: subject, False: InProcess(ModelOwner())}
        result = run_case(
            LOSING["an-immediate-replay-is-ratified"], VARIANT, subjects[lossy],
            seed=0, count=1, salt="", reproduction=None, host=ClientHost(),
        )  # fmt: skip
    assert result.verdict is Verdict.PASSED
    assert [type(each) for each in lost] == [m.Commit] * lossy


def watch(subject: HttpSubject, seen: Callable[[m.Request], None]) -> None:
    lose = subject.lose

    def watched(client: str, request: m.Request) -> m.Answer:
        seen(request)
        return lose(client, request)

    subject.lose = watched  # type: ignore[method-assign]


def creation() -> m.CreateTable:
    return m.CreateTable(name="t", feature="catalogManaged", commit_mode="staged", attempt="0", actions=("{}",))
