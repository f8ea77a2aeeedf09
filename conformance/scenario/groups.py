"""Groups of proposals in a scenario. A history records a group as its members: each is a `commit` of its table, and all
have the same beginning and the same end."""

from collections.abc import Sequence

from conformance.interface import messages as m
from conformance.models.groups import group_of as group_of
from conformance.oracle import groups
from conformance.scenario.formatting import answered
from conformance.scenario.scenario import TRIES, Exchange, Scenario, TableHandle


def invoke(s: Scenario, client: str, request: m.CommitGroup, tables: Sequence[TableHandle]) -> list[int]:
    """Record the members, before the group is sent. Returns the numbers of their operations."""
    commits = groups.commits_of(request)
    return [s._invoke(client, commit, table) for commit, table in zip(commits, tables, strict=True)]


def ended(
    s: Scenario, numbers: Sequence[int], request: m.CommitGroup, answer: m.Answer,
    known: frozenset[m.AttemptId] = frozenset(),
) -> list[Exchange]:  # fmt: skip
    """Record the answer, as the members' answers. `known`: attempts that may have landed before."""
    valid = m.belongs(request, answer)
    parts = groups.parts_of(request, answer if valid else m.Unknown(), known)
    exchanges = [
        s._ended(number, commit, part)
        for number, commit, part in zip(numbers, groups.commits_of(request), parts, strict=True)
    ]
    if not valid:
        s.fail(
            "PROFILE-CORE-03", evidence=exchanges[:1], expected="one of the outcomes of `commit_group`",
            message=f"`commit_group` was answered {m.name_of(answer)!r}, which is not a valid answer to it.",
        )  # fmt: skip
    return exchanges


def ask(
    s: Scenario, request: m.CommitGroup, tables: Sequence[TableHandle], client: str = "writer",
    known: frozenset[m.AttemptId] = frozenset(),
) -> tuple[m.Answer, list[Exchange]]:  # fmt: skip
    """Send a group; after a rejection, which may be a policy, again."""
    numbers = invoke(s, client, request, tables)
    answer = s.answer(client, request)
    for _ in range(TRIES - 1):
        refusal = answer.answer if isinstance(answer, m.GroupRefused) else answer
        if not isinstance(refusal, m.Rejected):
            break
        answer = s.answer(client, request)
    exchanges = ended(s, numbers, request, answer, known)
    if isinstance(answer, m.Unsupported):
        s.fail("PROFILE-CORE-07", evidence=exchanges[:1], observed=answered(request, answer),
               expected="the subject declared `transaction-group`: it supports the request")  # fmt: skip
    return answer, exchanges
