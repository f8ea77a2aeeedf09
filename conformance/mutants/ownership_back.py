"""Owners that are wrong about how, or whether, they gave a table back."""

from __future__ import annotations

import msgspec

from conformance.interface import messages as m
from conformance.models.owner import ModelOwner, OwnedTable
from conformance.mutants.registry import mutant


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
