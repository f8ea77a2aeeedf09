"""Owners that think that they know better what the time is."""

from __future__ import annotations

import json
from typing import Final

import msgspec

from conformance.interface import messages as m
from conformance.models.owner import ModelOwner, OwnedTable, content_of
from conformance.mutants.registry import mutant

NOW: Final = 1_750_000_000_000
"""What their clock says."""


def stamped(actions: tuple[str, ...], moment: int) -> tuple[str, ...]:
    """The same actions, at another time."""
    first = json.loads(actions[0])
    if "commitInfo" not in first:
        return actions
    first["commitInfo"]["inCommitTimestamp"] = moment
    return (json.dumps(first, separators=(",", ":")), *actions[1:])


class Restamps(ModelOwner):
    """Ratifies every proposal with the time that `moment` says."""

    def moment(self, table: OwnedTable, proposed: int) -> int:
        raise NotImplementedError

    def _ratify(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer:
        if request.actions is not None:
            proposed = json.loads(request.actions[0])["commitInfo"]["inCommitTimestamp"]
            actions = stamped(request.actions, self.moment(table, proposed))
            if staged is not None:
                self.storage.put(self._staged_path(table, staged), content_of(actions), 0)
            request = msgspec.structs.replace(request, actions=actions)
        return super()._ratify(table, request, staged)


@mutant("MC-API-03", "CM-CATALOG-03", "CM-PUBLISH-03")
class StampsCommitsWithItsOwnClock(Restamps):
    """It puts the time at which it ratified a commit in the place of the writer's."""

    def moment(self, table: OwnedTable, proposed: int) -> int:
        return min(proposed, NOW)


@mutant("MC-API-03", "CM-CATALOG-03", "CM-PUBLISH-03")
class PutsTimesRight(Restamps):
    """It makes a time that does not increase one later than the version before, in a commit that its writer has read
    already."""

    def moment(self, table: OwnedTable, proposed: int) -> int:
        newest: dict[str, int] = self.__dict__.setdefault("newest", {})
        newest[table.reference] = max(proposed, newest.get(table.reference, 0) + 1)
        return newest[table.reference]


@mutant("MC-API-04", "CM-CATALOG-04")
class TellsTheTimeOfTheRequest(ModelOwner):
    """Beside each commit that it lists it tells when it was asked."""

    def _entries(self, table: OwnedTable, start: int, end: int | None) -> tuple[m.CommitEntry, ...]:
        entries = super()._entries(table, start, end)
        return tuple(msgspec.structs.replace(entry, in_commit_timestamp=NOW) for entry in entries)
