"""An owner that runs given actions before or after it commits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import refimpl
from refimpl.commits import Outcome, Proposal
from refimpl.log_path import Version
from refimpl.owner.local import LocalOwner


class ScriptedOwner:
    """A `LocalOwner` with two hooks, each for the next commit only."""

    def __init__(self, owner: LocalOwner) -> None:
        self._owner = owner
        self.before: Callable[[], object] | None = None
        self.after: Callable[[], object] | None = None
        self.outcomes: list[Outcome] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._owner, name)

    def commit(self, table_id: str, version: Version, proposal: Proposal) -> Outcome:
        before, self.before = self.before, None
        if before is not None:
            before()
        outcome = self._owner.commit(table_id, version, proposal)
        self.outcomes.append(outcome)
        after, self.after = self.after, None
        if after is not None:
            after()
        return outcome


def scripted(warehouse: refimpl.Warehouse) -> tuple[refimpl.Warehouse, ScriptedOwner]:
    """The same warehouse with such an owner."""
    owner = ScriptedOwner(warehouse.owner)
    through: Any = owner
    return refimpl.Warehouse(warehouse.directory, through, warehouse.environment), owner
