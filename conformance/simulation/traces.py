"""A schedule that shows a violation: made as small as it can be, written so that a person can read it, run again.

The fixture is JSON: the scope, the clients with the numbers of the requests that they still make, the schedule as
turns (who goes on, for how many effects), and for people every effect, the answers, and what was violated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final, cast

import msgspec

from conformance.scenario.formatting import in_words
from conformance.simulation.explore import follow
from conformance.simulation.schedule import Step
from conformance.simulation.scopes import Host, Outcome, Scope, ScopeRun, prepare

SCHEMA_VERSION: Final = 1


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One client goes on for so many effects."""

    client: str
    effects: int


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule of a scope, with what came of it."""

    schema: int
    subject: str
    """The name of a known-bad variant, or of the subject itself."""
    scope: str
    """Its id."""
    requests: dict[str, tuple[int, ...]]
    """By client: which of its requests in the scope it makes, from 0."""
    turns: tuple[Turn, ...]
    """Who is not named any more goes on when all turns are over, by name."""
    requirement: str
    violations: tuple[str, ...]
    effects: tuple[str, ...]
    """For people."""
    answers: dict[str, tuple[str, ...]]
    """For people; by client."""

    @property
    def switches(self) -> int:
        return max(0, len(self.turns) - 1)


Requests = dict[str, tuple[int, ...]]


def to_json(trace: Trace) -> bytes:
    """Ends with a newline; the same trace gives the same bytes."""
    return msgspec.json.format(msgspec.json.encode(trace), indent=2) + b"\n"


def from_json(text: bytes) -> Trace:
    """Raises `msgspec.ValidationError` or `msgspec.DecodeError` for what is no trace, `ValueError` for one of another
    schema."""
    found = msgspec.json.decode(text, type=Trace)
    if found.schema != SCHEMA_VERSION:
        raise ValueError(f"the trace has schema {found.schema}; this release reads {SCHEMA_VERSION}")
    return found


def replayed(trace: Trace, scope: Scope, host: Host) -> Trace:
    """The same schedule again, with what came of it this time. `violations` is empty where nothing is wrong now."""
    clients = [turn.client for turn in trace.turns for _ in range(turn.effects)]
    outcome, steps = _run(host, scope, trace.requests, clients)
    return _trace(trace.subject, scope, trace.requests, trace.requirement, outcome, steps)


def shrunk(subject: str, scope: Scope, host: Host, steps: Iterable[Step], requirement: str) -> Trace:
    """The schedule without every client, every request and every switch that the violation does not need: taking away
    any one of those that are left loses it. Raises `ValueError` if the schedule does not show it."""
    start = prepare(scope, host)
    requests = {client: tuple(range(len(todo))) for client, todo in scope.requests(start).items()}
    smaller = _Shrinking(scope, host, requirement)
    if not smaller.shows(requests, [step.client for step in steps]):
        raise ValueError(f"this schedule of {scope.id} does not violate {requirement}")
    while smaller.without_a_client() or smaller.without_a_request() or smaller.without_a_switch():
        pass
    assert smaller.outcome is not None
    return _trace(subject, scope, smaller.requests, requirement, smaller.outcome, smaller.steps)


class _Shrinking:
    """The smallest schedule so far."""

    def __init__(self, scope: Scope, host: Host, requirement: str) -> None:
        self._scope = scope
        self._host = host
        self._requirement = requirement
        self.requests: Requests = {}
        self.steps: list[Step] = []
        self.outcome: Outcome | None = None

    def shows(self, requests: Requests, clients: Sequence[str], *, fewer_switches: bool = False) -> bool:
        """Whether this is a violation still; then it is the smallest so far."""
        outcome, steps = _run(self._host, self._scope, requests, clients)
        if self._requirement not in outcome.requirements:
            return False
        if fewer_switches and len(turns(steps)) >= len(turns(self.steps)):
            return False
        self.requests, self.steps, self.outcome = requests, steps, outcome
        return True

    def without_a_client(self) -> bool:
        return len(self.requests) > 1 and any(
            self.shows(
                {name: each for name, each in self.requests.items() if name != client},
                [step.client for step in self.steps if step.client != client],
            )
            for client in sorted(self.requests)
        )

    def without_a_request(self) -> bool:
        return any(
            self.shows(
                {**self.requests, client: tuple(each for each in numbers if each != number)},
                [step.client for step in self.steps],
            )
            for client, numbers in sorted(self.requests.items())
            if len(numbers) > 1
            for number in numbers
        )

    def without_a_switch(self) -> bool:
        """Two turns of one client become one, before or after what stood between them."""
        found = [[turn.client] * turn.effects for turn in turns(self.steps)]
        for at in range(len(found) - 1):
            for moved in (
                [*found[:at], found[at + 1], found[at], *found[at + 2 :]],
                [*found[:at], *found[at + 1 :]],
            ):
                if self.shows(self.requests, [client for turn in moved for client in turn], fewer_switches=True):
                    return True
        return False


def turns(steps: Iterable[Step]) -> tuple[Turn, ...]:
    grouped = groupby(step.client for step in steps)
    return tuple(Turn(client=client, effects=len(list(each))) for client, each in grouped)


def _run(host: Host, scope: Scope, requests: Requests, clients: Sequence[str]) -> tuple[Outcome, list[Step]]:
    start = prepare(scope, host)
    wanted = {client: tuple(todo[each] for each in requests[client]) for client, todo in scope.requests(start).items()
              if client in requests}  # fmt: skip
    smaller = replace(scope, requests=lambda _start: wanted)
    outcome, steps = follow(lambda: ScopeRun(smaller, host, start), list(clients))
    return cast(Outcome, outcome), steps


def _trace(
    subject: str, scope: Scope, requests: Requests, requirement: str, outcome: Outcome, steps: list[Step]
) -> Trace:
    return Trace(
        schema=SCHEMA_VERSION,
        subject=subject,
        scope=scope.id,
        requests=requests,
        turns=turns(steps),
        requirement=requirement,
        violations=outcome.violations,
        effects=tuple(str(step) for step in steps),
        answers={client: tuple(in_words(each) for each in told) for client, told in outcome.answers},
    )
