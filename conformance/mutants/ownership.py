"""Owners that are wrong about whose table it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from conformance.interface import messages as m
from conformance.models import proposals
from conformance.models.client import ENABLEMENT_TIMESTAMP, ENABLEMENT_VERSION, ModelClient
from conformance.models.log_files import Listing
from conformance.models.owner import ModelOwner, OwnedTable
from conformance.models.reader import Resolved, State
from conformance.models.storage import LOG
from conformance.models.writer import Transaction
from conformance.mutants.registry import mutant


@mutant("PROFILE-TRANSFER-01")
class TakesNoTableOver(ModelOwner):
    """It declares ownership transfer, and refuses every table."""

    def take_over(self, client: str, request: m.TakeOver) -> m.Answer:
        return m.Rejected(reason="not this one")


@mutant("MC-CONVERT-06")
class RefusesTheTablesItTookOver(ModelOwner):
    """It agrees to own a table and then refuses its commits, so that nobody can write to it ever again."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        taken_over = not table.location.endswith(table.reference)
        return m.Rejected(reason="no credentials") if taken_over else super()._refusal(table, request, staged)


@mutant("MC-CONVERT-03", "MC-CONVERT-05", "MC-CONVERT-08")
class TakeOverIsPublishedLater(ModelOwner):
    """It treats an ownership change as any other commit and backfills it some time: filesystem writers go on."""

    def _begin(self, table: OwnedTable, version: int, attempt: str, actions: tuple[str, ...]) -> m.Answer:
        answer = super()._begin(table, version, attempt, actions)
        if version > 0 and isinstance(answer, m.Ratified):
            self.storage.remove(self._path(table, version))
        return answer


@mutant("MC-CONVERT-02", "MC-CONVERT-01")
class TakesOverAtAnyVersion(ModelOwner):
    """It does not look which version is the table's next, and leaves a hole in the log."""

    def _published(self, table: OwnedTable) -> int:
        return 1000


@mutant("MC-CONVERT-05")
class TakeOverOverwrites(ModelOwner):
    """It writes the ownership change over the commit of a filesystem writer that was faster."""

    def _begin(self, table: OwnedTable, version: int, attempt: str, actions: tuple[str, ...]) -> m.Answer:
        self.storage.remove(self._path(table, version))
        return super()._begin(table, version, attempt, actions)


@mutant("MC-CONVERT-09", "MC-CONVERT-03")
class LostTakeOversAreKept(ModelOwner):
    """Its take-over loses to a filesystem commit, and it goes on to think that the table is its own."""

    def _forget(self, table: OwnedTable) -> None:
        table.promised, table.latest = None, self._published(table)
        table.backfilled = table.latest


@mutant("MC-CONVERT-09")
class LostTakeOversKeepTheirPlace(ModelOwner):
    """The name of a table leads it to the log of the first take-over of that name, although that one was lost."""

    def _begin(self, table: OwnedTable, version: int, attempt: str, actions: tuple[str, ...]) -> m.Answer:
        places: dict[str, str] = self.__dict__.setdefault("places", {})
        if version > 0:
            table.location = places.setdefault(table.name, table.location)
        return super()._begin(table, version, attempt, actions)


@mutant("MC-CONVERT-01")
class OwnsWhateverItIsAskedFor(ModelOwner):
    """It adopts every table that somebody proposes a commit for."""

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        if request.table not in self.tables:
            table = OwnedTable(
                reference=request.table,
                name=request.table,
                feature="managedCommit",
                commit_mode="staged",
                location=request.table,
            )
            table.latest = table.backfilled = self._published(table)
            self.tables[request.table] = table
        return super().commit(client, request)


@mutant("PROFILE-RETRY-01")
class ReplayedTakeOverIsRefused(ModelOwner):
    """Who sends a take-over again is told that the table has an owner: itself."""

    def take_over(self, client: str, request: m.TakeOver) -> m.Answer:
        if self._find(None, request.path) is not None:
            return m.Rejected(reason="that table has an owner")
        return super().take_over(client, request)


@mutant("MC-CONVERT-02", "MC-FEATURE-02")
class OneTableHasTwoNames(ModelOwner):
    """It takes a table over that it owns already, and has two records of one log from then on."""

    def _find(self, name: str | None, path: str | None) -> str | None:
        return super()._find(name, None)


@mutant("MC-CONVERT-06", "MC-CONVERT-07", "PROFILE-DURABLE-01")
class OwnershipIsOnlyRemembered(ModelOwner):
    """It keeps the tables that it took over in memory: after a restart it does not know them, and they are stuck."""

    def _save(self, table: OwnedTable) -> None:
        if table.location.endswith(table.reference):
            super()._save(table)


@mutant("MC-CONVERT-07", "MC-CONVERT-08")
class PromisesAfterTheFile(ModelOwner):
    """It writes the ownership change first, and notes down afterwards that it owns the table: a crash in between leaves
    a table whose owner does not know it."""

    def _begin(self, table: OwnedTable, version: int, attempt: str, actions: tuple[str, ...]) -> m.Answer:
        self.unsaved = table.reference
        answer = super()._begin(table, version, attempt, actions)
        self.unsaved = ""
        if isinstance(answer, m.Ratified):
            self._save(table)
        return answer

    def _save(self, table: OwnedTable) -> None:
        if table.reference != getattr(self, "unsaved", ""):
            super()._save(table)


@mutant("MC-CONVERT-03", "MC-CONVERT-09")
class PromisesAreTakenForFacts(ModelOwner):
    """After a crash it thinks that it owns every table that it had promised to own, whether or not the ownership change
    was ever written."""

    def _recover(self, table: OwnedTable) -> None:
        if table.promised is not None:
            version, attempt, _ = table.promised
            table.promised, table.backfilled = None, version
            self._record(table, version, attempt)


@mutant("MC-CONVERT-08", "MC-CONVERT-07")
class UnconfirmedTakeOversAreForgotten(ModelOwner):
    """After a crash it forgets every take-over of which it had not heard that it succeeded, although the file that
    makes it the owner is there."""

    def restart(self, client: str, request: m.Restart) -> m.Answer:
        for reference, saved in list(self.saved.items()):
            if msgspec.json.decode(saved, type=OwnedTable).promised is not None:
                del self.saved[reference]
        return super().restart(client, request)


# Owners that are wrong about how, or whether, they gave a table back.


@mutant("PROFILE-TRANSFER-01")
class GivesNoTableBack(ModelOwner):
    """It declares ownership transfer, and keeps every table that it has."""

    def hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        return m.Rejected(reason="it is ours")


@mutant("MC-RELEASE-03", bugs=("FB38",))
class GivesBackWithoutBackfill(ModelOwner):
    """It gives a table back while commits wait for their backfill: filesystem readers find a hole, and nobody knows any
    more which staged files were commits."""

    leaves = False

    def hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        self.leaves = True
        answer = super().hand_back(client, request)
        self.leaves = False
        return answer

    def _backfill(self, table: OwnedTable, version: int) -> None:
        if not self.leaves:
            super()._backfill(table, version)


@mutant("MC-RELEASE-04")
class RatifiesAfterItGaveBack(ModelOwner):
    """It gives a table back and goes on to ratify what writers propose that have not heard of it."""

    def hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        answer = super().hand_back(client, request)
        if isinstance(answer, m.Ratified):
            self.tables[request.table].active = True
        return answer


@mutant("MC-RELEASE-04")
class OneLateCommitIsLetThrough(ModelOwner):
    """It still ratifies a proposal that was sent before the table was given back."""

    def hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        answer = super().hand_back(client, request)
        self.late = request.table
        return answer

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        table = self.tables.get(request.table)
        if table is None or getattr(self, "late", "") != request.table:
            return super().commit(client, request)
        table.active, self.late = True, ""
        answer = super().commit(client, request)
        table.active = False
        return answer


@mutant("MC-RELEASE-05", "MC-RELEASE-07")
class GivesBackWithoutACommit(ModelOwner):
    """It says that the table is given back, and never writes the commit that says so: filesystem writers stay out, and
    so does it."""

    def hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        answer = super().hand_back(client, request)
        table = self.tables.get(request.table)
        if table is not None and isinstance(answer, m.Ratified):
            self.storage.remove(self._path(table, answer.version))
        return answer


@mutant("MC-RELEASE-05")
class WritesAnotherLastCommit(ModelOwner):
    """It writes an empty commit of its own as the one that ends its ownership: the owner stays in the metadata."""

    def hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        own = '{"commitInfo":{"inCommitTimestamp":1,"txnId":"the owner"}}'
        return super().hand_back(client, msgspec.structs.replace(request, actions=(own,)))


@mutant("MC-RELEASE-07")
class TheLastCommitStaysStaged(ModelOwner):
    """It stages the commit that ends its ownership and then has no more to do with the table: the commit is never
    backfilled, and nobody can write."""

    def hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        answer = super().hand_back(client, request)
        table = self.tables.get(request.table)
        if table is not None and isinstance(answer, m.Ratified):
            name = f"{request.version:020}.{request.attempt}.json"
            published = self.storage.read(self._path(table, request.version))
            if published is not None:
                self.storage.remove(self._path(table, request.version))
                self.storage.put(self._staged_path(table, name), published.content, published.modified)
        return answer


@mutant("MC-COMMIT-02", "MC-COMMIT-01")
class GivesBackAtWhateverVersion(ModelOwner):
    """It does not look at the version that is proposed, and gives the table back with the next one."""

    def hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        table = self.tables[request.table]
        if request.attempt not in table.landed:
            request = msgspec.structs.replace(request, version=table.latest + 1)
        return super().hand_back(client, request)


@mutant("MC-FEATURE-03", "MC-CONVERT-06")
class RefusedHandBackEndsTheOwnership(ModelOwner):
    """It stops to ratify as soon as somebody proposes to give the table back, also if it refuses that."""

    def hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        answer = super().hand_back(client, request)
        self.tables[request.table].active = False
        return answer


@mutant("PROFILE-RETRY-01")
class ReplayedHandBackIsRefused(ModelOwner):
    """Who sends a hand-back again is told that the table has no owner."""

    def hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        if not self.tables[request.table].active:
            return m.Rejected(reason="not owned any more")
        return super().hand_back(client, request)


@mutant("MC-CONVERT-02", "MC-CONVERT-05")
class TakesUpWhereItLeftOff(ModelOwner):
    """It takes a table over again that it gave back, with what it knew of the table then: the commits of filesystem
    writers in between are overwritten."""

    def take_over(self, client: str, request: m.TakeOver) -> m.Answer:
        for table in self.tables.values():
            if table.location == request.path and not table.active and request.version > table.latest:
                table.active, table.leaving = True, None
                self.storage.remove(self._path(table, request.version))
                return self._begin(table, request.version, request.attempt, request.actions)
        return super().take_over(client, request)


@mutant("MC-RELEASE-04", "PROFILE-DURABLE-01")
class ARestartBringsTheOwnershipBack(ModelOwner):
    """It does not write down that it gave a table back: after a restart it owns the table as before."""

    def restart(self, client: str, request: m.Restart) -> m.Answer:
        answer = super().restart(client, request)
        for table in self.tables.values():
            table.active = True
        return answer


@mutant("MC-RELEASE-04")
class HandBackIsForgottenInACrash(ModelOwner):
    """It dies after it wrote the commit that ends its ownership; back again it takes that commit for an ordinary one,
    and goes on to ratify."""

    def _notice(self, table: OwnedTable) -> None:
        table.leaving = None
        super()._notice(table)


@mutant("MC-RELEASE-04")
class RemovesWhatCameAfterIt(ModelOwner):
    """Asked for a commit of a table that it gave back, it refuses, and removes what filesystem writers have committed
    since as files that nobody ratified."""

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        table = self.tables.get(request.table)
        if table is not None and table.leaving is not None:
            for version in range(table.latest + 1, self._published(table) + 1):
                self.storage.remove(self._path(table, version))
        return super().commit(client, request)


# Clients that change the owner of a table wrongly, or do not notice that it changed.


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
