"""Reads by the client under test, and what its owner returned meanwhile."""

from collections.abc import Sequence
from typing import Any

from conformance.interface import messages as m
from conformance.interface.log_names import FILESYSTEM
from conformance.scenario.check import applies
from conformance.scenario.client import ClientScenario
from conformance.scenario.log_builder import LogBuilder
from conformance.scenario.scenario import Exchange


def held(s: ClientScenario, requirements: Sequence[str]) -> tuple[str, ...]:
    """The requirements that apply to this table feature and commit mode; if none does, the basic one of readers."""
    if any(applies(requirement, s.identity, s.variant) for requirement in requirements):
        return tuple(requirements)
    return (*requirements, "PROFILE-CLIENT-01")


def ask(log: LogBuilder, /, client: str = "reader", **fields: Any) -> tuple[Exchange, int]:
    """Read, and count the reader's earlier requests to its owner, for `newest_returned`."""
    since = len(log.s.owner.exchanges)
    if "path" not in fields:
        fields.update({"path": log.location} if log.s.feature == FILESYSTEM else {"table": log.s.physical(log.name)})
    return log.s.act(client, m.Snapshot(**fields), log.table), since


def newest_returned(s: ClientScenario, since: int, reference: str | None = None) -> int:
    """The newest version that the owner returned to the reader since then; -1 if it returned none. `reference`: of this
    table only."""
    heard = [(heard.request, heard.answer) for heard in s.owner.exchanges[since:]]
    parts = [(request, part) for request, answer in heard for part in getattr(answer, "tables", (answer,))]
    answers = [
        answer for request, answer in parts
        if reference in (None, getattr(answer, "table", None), getattr(request, "table", None))
    ]  # fmt: skip
    returned = [
        answer.latest for answer in answers if isinstance(answer, m.Table | m.Commits) and answer.latest is not None
    ]
    returned += [
        c.version for answer in answers if isinstance(answer, m.Table | m.Commits) for c in answer.commits or ()
    ]
    return max(returned, default=-1)
