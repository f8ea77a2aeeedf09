"""What the checkers say of a draft, held against brute force every time."""

from __future__ import annotations

from conformance.checkers.check import HistoryVerdict, check_events
from conformance.checkers.rules import Rule
from conformance.history import events
from conformance.history.events import Answer, Request
from conformance.history.operations import operations
from spec_tests.conformance.brute_force import is_linearizable
from spec_tests.conformance.drafts import Asked, Draft, Version


def verdict_on(draft: Draft) -> HistoryVerdict:
    """The verdict; a history without contents is judged by brute force too, and both agree."""
    source = draft.events()
    verdict = check_events(source)
    if Rule.CONTENT_CHANGED not in {violation.rule for violation in verdict.violations}:
        assert verdict.conformant == is_linearizable(operations(source)), verdict.violations
    return verdict


def rules(draft: Draft) -> list[Rule]:
    """The rules that it violates, in the order of the verdict."""
    return [violation.rule for violation in verdict_on(draft).violations]


def log(*attempts: str) -> list[Version]:
    return [Version(attempt) for attempt in attempts]


def asked(client: str, invoked: int, answered: int | None, request: Request, answer: Answer | None = None) -> Asked:
    return Asked(client, request, invoked, answered, answer)


def commit(attempt: str, version: int, invoked: int, answered: int | None, answer: Answer | None = None) -> Asked:
    """A proposal; `answered` None: the outcome is unknown; without an `answer`: it was ratified."""
    given = events.Ratified(version=version) if answer is None and answered is not None else answer
    return Asked("writer", events.Commit(version=version, attempt=attempt), invoked, answered, given)


def read(invoked: int, answered: int, latest: int | None) -> Asked:
    """Of an owner that returns an empty list from the first missing version on."""
    request = events.GetCommits(start=2**40)
    return Asked("reader", request, invoked, answered, events.Commits(latest=latest))
