"""Clients that change the owner of a table wrongly, or do not notice that it changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from conformance.interface import messages as m
from conformance.models.client import ModelClient
from conformance.models.log_files import Listing
from conformance.models.ownership import ENABLEMENT_TIMESTAMP, ENABLEMENT_VERSION
from conformance.models.reader import Resolved, State
from conformance.models.storage import LOG
from conformance.models.writer import Transaction
from conformance.mutants.registry import mutant
from conformance.scenario import proposals


@mutant("ICT-10", side="client")
class DoesNotSaySinceWhen(ModelClient):
    """It enables in-commit timestamps in the middle of a history, and not from which version on."""

    def _enablement(self, version: int, timestamp: int) -> dict[str, str]:
        return {ENABLEMENT_TIMESTAMP: str(timestamp)}


@mutant("ICT-11", side="client")
class SaysAnotherTime(ModelClient):
    """The enablement timestamp is the clock's, not the commit's."""

    def _enablement(self, version: int, timestamp: int) -> dict[str, str]:
        return {ENABLEMENT_VERSION: str(version), ENABLEMENT_TIMESTAMP: str(self.now - 1)}


@mutant("ICT-12", side="client")
class IgnoresModificationTimes(ModelClient):
    """The first in-commit timestamp is earlier than the file of the commit before it."""

    def _change_time(self, state: State, listed: Listing) -> int:
        return self.now


@mutant("ICT-15", side="client")
class KeepsItsEnablementAfterALostRace(ModelClient):
    """After a lost race the ownership change is proposed for the next version, with the first one's enablement."""

    def _enablement(self, version: int, timestamp: int) -> dict[str, str]:
        self._first = getattr(self, "_first", None) or super()._enablement(version, timestamp)
        return self._first


@mutant("ICT-13", side="client")
class SaysSinceWhenFromTheStart(ModelClient):
    """A new table gets enablement properties."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        actions = [json.loads(action) for action in request.actions]
        for action in actions:
            if "metaData" in action:
                action["metaData"]["configuration"] |= self._enablement(0, proposals.BASE_TIME)
        changed = tuple(json.dumps(action) for action in actions)
        return super().create_table(client, msgspec.structs.replace(request, actions=changed))


@mutant("MC-RELEASE-01", side="client")
class KeepsTheFeature(ModelClient):
    """The commit that ends the ownership leaves the feature in the protocol."""

    def _without(self, protocol: dict[str, Any], feature: str) -> dict[str, Any]:
        return protocol


@mutant("MC-RELEASE-01", side="client")
class KeepsTheOwnersName(ModelClient):
    """The commit that ends the ownership leaves the owner's name in the properties."""

    def _unowned(self, state: State) -> dict[str, str]:
        return state.properties


@mutant("MC-CONVERT-11", "MC-WRITE-03", "CM-WRITE-04", "CM-ACCESS-02", side="client")
class DoesNotNoticeATakeOver(ModelClient):
    """A filesystem writer that lost to an ownership change creates the file after it."""

    def _open(self, client: str, name: str) -> Resolved:
        if "/" not in name:
            return self._resolve(client, name)
        return Resolved(name=None, reference=None, feature=None, commit_mode="", log=Path(name) / LOG)

    def _check(self, transaction: Transaction, winner: list[dict[str, Any]]) -> None:
        """A blind append, it believes, cannot conflict."""
        if transaction.table.reference is not None:
            super()._check(transaction, winner)


@mutant("MC-CONVERT-10", "MC-FILES-12", "MC-WRITE-03", "CM-WRITE-04", side="client")
class WritesWhereItAlwaysDid(ModelClient):
    """It goes on creating files in tables that it took to an owner itself."""

    def take_over(self, client: str, request: m.TakeOver) -> m.Answer:
        self._mine = {**getattr(self, "_mine", {}), request.name: request.path}
        return super().take_over(client, request)

    def _resolve(self, client: str, name: str) -> Resolved:
        found = super()._resolve(client, name)
        if name in getattr(self, "_mine", {}):
            found.reference = None
        return found


@mutant("MC-CONVERT-04", side="client")
class BelievesInARefusedTakeOver(ModelClient):
    """After a take-over that the owner refused it waits for that owner."""

    def take_over(self, client: str, request: m.TakeOver) -> m.Answer:
        told = super().take_over(client, request)
        if not isinstance(told, m.Ratified):
            self._given = {*getattr(self, "_given", set()), request.path}
        return told

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        if request.table in getattr(self, "_given", ()):
            return m.Rejected(reason="the table is being taken over")
        return super().transact(client, request)
