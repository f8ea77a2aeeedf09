"""The kit's own owner for clients under test: correct, with any delay, loss and staleness that the documents permit.

    s.owner.on(m.GetCommits, before=lambda: s.backfill(table, 3))     # a backfill at the worst moment
    s.owner.on(m.Commit, lose_answer=True)                            # it is carried out; no answer arrives
    s.owner.on(m.Commit, lose_request=True)                           # it is not carried out; no answer arrives
    s.owner.on(m.Commit, answer=m.Rejected(reason="too many unbackfilled commits", retryable=True), times=2)

A rule applies to the next `times` requests of its kind from the client under test; the first matching rule is used.
Requests of the kit's other writers do not pass through here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from conformance.adapters.in_process import InProcess
from conformance.interface import messages as m
from conformance.interface.messages import name_of
from conformance.models.client_owner import ClientOwner
from conformance.models.owner import ModelOwner

Entries = Sequence[m.CommitEntry]
CommitsAndLatest = tuple[Entries, int | None]
QUESTIONS: Final = (m.GetCommits, m.LoadTable, m.LoadTables)
"""Requests by which a client reads commits."""
COMMITS: Final = (m.Commit, m.CommitGroup)
"""Requests by which a client commits."""

Kind = type | tuple[type, ...]
"""A kind of requests, or several."""

NO_ACCESS: Final = m.Rejected(reason="no access any more")
MOST_REQUESTS: Final = 500
"""The maximum number of requests of one operation, so that a client that never stops asking is stopped."""


@dataclass(slots=True, kw_only=True)
class Rule:
    """A rule for some requests."""

    kind: Kind
    before: Callable[[], object] | None = None
    after: Callable[[], object] | None = None
    lose_request: bool = False
    lose_answer: bool = False
    answer: m.Answer | None = None
    """The answer, instead of the owner's; to a group, that to its first member."""
    change: Callable[[m.Answer], m.Answer] | None = None
    """A function that changes the owner's answer to another valid one; of the refusal of a group, the
    answer to the member that decided."""
    skip: int = 0
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerExchange:
    """A request of the client under test to its owner, with the answer."""

    client: str
    request: m.Request
    answer: m.Answer


class Adversary:
    """The owner of one scenario. `heard` has all requests of the client under test, in order."""

    def __init__(self, owner: ClientOwner) -> None:
        self.owner = owner
        self.subject = InProcess(owner)
        self.rules: list[Rule] = []
        self.exchanges: list[OwnerExchange] = []
        self.listener: Callable[[OwnerExchange], None] | None = None
        self._left = MOST_REQUESTS

    def on(self, kind: Kind, **what: Any) -> Rule:
        """Add a rule for requests of this type, with the fields of `Rule`; `skip` of them pass first."""
        rule = Rule(kind=kind, **what)
        self.rules.append(rule)
        return rule

    def override_commits(self, change: Callable[[Entries, int | None], CommitsAndLatest]) -> None:
        """From now on `change` edits the commits and the latest version in answers, within the freedoms of an owner: it
        may list published commits, may not have noticed a direct commit, and may have no latest version. Resolutions
        and lists of commits agree."""

        def changed(answer: m.Answer) -> m.Answer:
            if isinstance(answer, m.Commits):
                commits, latest = change(answer.commits, answer.latest)
                return m.Commits(commits=tuple(commits), latest=latest)
            if isinstance(answer, m.Table):
                commits, latest = change(answer.commits or (), answer.latest)
                listed = None if answer.commits is None else tuple(commits)
                return msgspec.structs.replace(answer, commits=listed, latest=latest)
            return answer

        for kind in QUESTIONS:
            self.on(kind, change=changed, times=MOST_REQUESTS)

    def drop_requests(self, *kinds: type) -> None:
        """From now on such requests get no answer."""
        for kind in kinds:
            self.on(kind, lose_request=True, times=MOST_REQUESTS)

    def go_silent_at_the_commit(self) -> None:
        """From its next commit on, the client gets no answers. Commits are carried out."""

        def go_silent() -> None:
            self.drop_requests(m.AttemptOutcome, *QUESTIONS)

        self.on(COMMITS, before=go_silent, lose_answer=True, times=MOST_REQUESTS)

    def refuse_after(
        self, kind: Kind, *, again: m.Answer | None = None, refusal: m.Answer = NO_ACCESS, **what: Any
    ) -> None:
        """Carry out the client's next request of this kind, and lose its answer. From then on, answer every request of
        the client with `refusal`, by default as if its access was revoked; but answer the repetition of the request
        with `again`."""

        def refuse() -> None:
            if again is not None:
                self.on(kind, answer=again, times=MOST_REQUESTS)
            self.on(m.Message, answer=refusal, times=MOST_REQUESTS)

        self.on(kind, lose_answer=True, after=refuse, **what)

    def begin(self) -> None:
        """An operation of the client begins: it may send `MOST_REQUESTS` requests."""
        self._left = MOST_REQUESTS

    @property
    def endless(self) -> bool:
        """Whether the client reached the limit of requests."""
        return self._left <= 0

    def ask(self, client: str, request: m.Request) -> m.Answer:
        """Answer a request of the client under test."""
        if isinstance(request, m.CallApi):  # its catalog shows it, and then sends what the request means
            return self._noticed(OwnerExchange(client=client, request=request, answer=m.Unsupported()))
        self._left -= not isinstance(request, m.MaintenancePolicy)  # the Delta API asks with each load
        if self.endless:
            return m.Unknown(reason=f"more than {MOST_REQUESTS} requests for one operation: {name_of(request)}")
        rule = self._rule(request)
        answer = self.subject.ask(client, request) if rule is None else self._under(rule, client, request)
        return self._noticed(OwnerExchange(client=client, request=request, answer=answer))

    def _noticed(self, heard: OwnerExchange) -> m.Answer:
        self.exchanges.append(heard)
        if self.listener is not None:
            self.listener(heard)
        return heard.answer

    def _rule(self, request: m.Request) -> Rule | None:
        for rule in self.rules:
            if isinstance(request, rule.kind) and rule.times > 0:
                if rule.skip > 0:
                    rule.skip -= 1
                    return None
                rule.times -= 1
                return rule
        return None

    def _under(self, rule: Rule, client: str, request: m.Request) -> m.Answer:
        if rule.before is not None:
            rule.before()
        if rule.lose_request:
            answer: m.Answer = m.Unknown(reason="no answer in time")
        elif isinstance(request, m.CommitGroup) and isinstance(rule.answer, m.Conflict):
            answer = m.GroupRefused(decided_by=0, answer=rule.answer)
        elif rule.answer is not None:
            answer = rule.answer
        else:
            answer = self.subject.ask(client, request)
        if rule.change is not None:
            answer = _changed(rule.change, answer)
        if rule.after is not None:
            rule.after()
        return m.Unknown(reason="the connection broke") if rule.lose_answer else answer


def _changed(change: Callable[[m.Answer], m.Answer], answer: m.Answer) -> m.Answer:
    if isinstance(answer, m.GroupRefused) and isinstance(refusal := change(answer.answer), m.Conflict):
        return m.GroupRefused(decided_by=answer.decided_by, answer=refusal)
    return change(answer)


class ClientHost:
    """The address of the kit's owner for a client under test, constant during a run: `ask`, in process or over
    HTTP. Each scenario sets its own adversary here."""

    def __init__(self) -> None:
        self.current: Adversary | None = None

    def ask(self, client: str, request: m.Request) -> m.Answer:
        """Between two scenarios the answer is `Unknown`."""
        if isinstance(request, m.Hello):
            return (ModelOwner() if self.current is None else self.current.owner).hello(client, request)
        if self.current is None:
            return m.Unknown(reason="no scenario is running")
        return self.current.ask(client, request)
