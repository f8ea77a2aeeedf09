"""Faults between a client and its owner, for any owner."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from refimpl.protocol.commit_owner import CommitOwner, NameTaken, Registered
from refimpl.protocol.commits import (
    AttemptId,
    AttemptOutcome,
    CommitsAnswer,
    Conflict,
    DirectProposal,
    Outcome,
    Proposal,
    Ratified,
    Rejected,
    RejectionReason,
)
from refimpl.protocol.errors import OutcomeUnknown, OwnerUnavailableError
from refimpl.protocol.log_path import Version
from refimpl.protocol.table_feature import TableFeature

Answer = TypeVar("Answer")


@dataclass(kw_only=True)
class Faults:
    """The planned faults. Each use lowers a count by one."""

    lose_answers: int = 0
    """The request is carried out, but its answer is lost."""
    lose_requests: int = 0
    """The request is held back (see `deliver_delayed`), and no answer comes."""
    unresolvable: int = 0
    """`attempt_outcome` fails: the owner cannot be reached."""
    conflicts_without_winners: bool = False
    """Conflicts name no winners, which is permitted."""
    nothing_listed: bool = False
    """`get_commits` lists no commit, although there are unbackfilled commits: a broken owner."""
    list_late: int = 0
    """`get_commits` lists no commit this many times, then all commits: a lagging replica."""
    phantom_conflicts: int = 0
    """Conflicts, although no other commit won."""
    conflict_for_replay: bool = False
    """The replay of a landed attempt is a conflict, which is permitted without the promise of idempotent retry."""
    full_for_replay: bool = False
    """The replay of a landed attempt is rejected, because the backlog is full: also permitted without that promise."""
    before_proposal: list[Callable[[], object]] = field(default_factory=list)
    """Each proposal first runs one of these: the turn of another writer."""
    after_proposal: list[Callable[[], object]] = field(default_factory=list)
    """The same, after the owner's decision and before the answer reaches the client."""
    raise_after_landing: list[Exception] = field(default_factory=list)
    """The request is carried out, then fails with this."""
    waited: bool = False
    """Every turn reports that it waited for other writers."""
    twice: bool = False
    """Every proposal is delivered twice; the client gets the second answer."""

    def use(self, name: str) -> bool:
        left: int = getattr(self, name)
        if left:
            setattr(self, name, left - 1)
        return left > 0


def unavailable() -> None:
    """For `Faults.before_proposal`: the owner cannot answer this request."""
    raise OwnerUnavailableError("the owner's lock is held by another process")


class UnreliableOwner:
    """A `CommitOwner` that passes all requests on, except for `faults`. `calls` counts requests by name."""

    def __init__(self, owner: CommitOwner) -> None:
        self.owner = owner
        self.name, self.conf = owner.name, owner.conf
        self.faults = Faults()
        self.calls: dict[str, int] = {}
        self.proposals: list[tuple[Version, Proposal]] = []
        self.delayed: list[Callable[[], object]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        passed_on = getattr(self.owner, name)

        def call(*values: Any, **more: Any) -> Any:
            self._count(name)
            return passed_on(*values, **more)

        return call

    def register_table(self, table_id: str, proposal: DirectProposal) -> Registered | NameTaken | Outcome:
        return self._propose("register_table", 0, proposal, lambda: self.owner.register_table(table_id, proposal))

    def commit(self, table_id: str, version: Version, proposal: Proposal) -> Outcome:
        outcome = self._propose("commit", version, proposal, lambda: self.owner.commit(table_id, version, proposal))
        if isinstance(outcome, Conflict) and self.faults.conflicts_without_winners:
            return msgspec.structs.replace(outcome, winners=())
        return outcome

    def _propose(self, name: str, version: Version, proposal: Proposal, request: Callable[[], Answer]) -> Answer:
        self._count(name)
        self.proposals.append((version, proposal))
        if self.faults.before_proposal:
            self.faults.before_proposal.pop(0)()
        if self.faults.use("phantom_conflicts"):
            return Conflict(latest_ratified_version=version)  # type: ignore[return-value]
        if self.faults.use("lose_requests"):
            self.delayed.append(request)
            raise OutcomeUnknown("the request was lost on its way")
        answer = request()
        if self.faults.twice:
            answer = request()
        if self.faults.after_proposal:
            self.faults.after_proposal.pop(0)()
        if self.faults.use("lose_answers"):
            raise OutcomeUnknown("the answer was lost on its way")
        if self.faults.raise_after_landing:
            raise self.faults.raise_after_landing.pop(0)
        replayed = isinstance(answer, Ratified) and answer.replayed
        if replayed and self.faults.conflict_for_replay:
            return Conflict(latest_ratified_version=version)  # type: ignore[return-value]
        if replayed and self.faults.full_for_replay:
            return Rejected(reason=RejectionReason.BACKLOG_FULL, detail="no room")  # type: ignore[return-value]
        return answer

    def deliver_delayed(self) -> list[object]:
        """Deliver the requests that were held back, and return their answers."""
        requests, self.delayed = self.delayed, []
        return [request() for request in requests]

    def turn(self, table_id: str) -> AbstractContextManager[bool]:
        return nullcontext(self.faults.waited)  # other writers act during a turn, on the same thread

    def attempt_outcome(self, table_id: str, attempt: AttemptId) -> AttemptOutcome:
        self._count("attempt_outcome")
        if self.faults.use("unresolvable"):
            raise OwnerUnavailableError("the owner cannot be reached")
        return self.owner.attempt_outcome(table_id, attempt)

    def get_commits(self, table_id: str, start: Version | None = None, end: Version | None = None) -> CommitsAnswer:
        self._count("get_commits")
        answer = self.owner.get_commits(table_id, start, end)
        if self.faults.nothing_listed or self.faults.use("list_late"):
            return msgspec.structs.replace(answer, commits=())
        return answer

    def take_over(
        self, location: Path, name: str, feature: TableFeature, version: Version, proposal: DirectProposal, **more: Any
    ) -> Outcome:
        request = partial(self.owner.take_over, location, name, feature, version, proposal, **more)
        return self._propose("take_over", version, proposal, request)

    def hand_back(self, table_id: str, version: Version, proposal: DirectProposal) -> Outcome:
        return self._propose("hand_back", version, proposal, lambda: self.owner.hand_back(table_id, version, proposal))

    def _count(self, name: str) -> None:
        self.calls[name] = self.calls.get(name, 0) + 1
