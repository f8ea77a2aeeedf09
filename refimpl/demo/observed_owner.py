"""The owner as a process of the demonstration holds it: it tells what it proposes, and stands still when it shall."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from refimpl.commit_owner import NameTaken, Registered
from refimpl.commits import COMMIT_MODE_OF, Conflict, DirectProposal, Outcome, Proposal, Ratified, StagedProposal
from refimpl.demo.tasks import Hold
from refimpl.environment import Environment
from refimpl.log_path import Version
from refimpl.owner.local import LocalOwner


class ObservedOwner(LocalOwner):
    """The same owner, on the same ledger, under the same lock. `tell` gets an event's name and facts; `wait` returns
    when the word comes."""

    def __init__(
        self,
        warehouse: Path,
        environment: Environment,
        *,
        tell: Callable[..., None],
        wait: Callable[[], str],
        holds: Sequence[Hold] = (),
    ) -> None:
        super().__init__(warehouse, environment)
        self._tell = tell
        self._wait = wait
        self._holds = list(holds)
        self.parts_done = 0

    def commit(self, table_id: str, version: Version, proposal: Proposal) -> Outcome:
        facts: dict[str, Any] = {
            "version": version,
            "attempt": proposal.attempt,
            "commit_mode": COMMIT_MODE_OF[type(proposal)].value,
            "staged_file": proposal.file_name if isinstance(proposal, StagedProposal) else None,
        }
        self._tell("proposing", **facts)
        self._hold(facts, ratified=False)
        outcome = super().commit(table_id, version, proposal)
        if isinstance(outcome, Ratified):
            self._hold(facts, ratified=True)
        elif isinstance(outcome, Conflict):
            self._tell("lost", **facts, latest=outcome.latest_ratified_version)
        return outcome

    def _hold(self, facts: dict[str, Any], *, ratified: bool) -> None:
        """Stand still if this is the place. Whether the commit landed is not told: the owner must be asked."""
        place = Hold(part=self.parts_done, ratified=ratified)
        if place in self._holds:
            self._holds.remove(place)
            self._tell("holding", **facts)
            self._wait()

    def register_table(self, table_id: str, proposal: DirectProposal) -> Registered | NameTaken | Outcome:
        self._tell("proposing", version=0, attempt=proposal.attempt, commit_mode="direct", staged_file=None)
        return super().register_table(table_id, proposal)
