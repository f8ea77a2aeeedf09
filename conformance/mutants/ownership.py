"""Owners that are wrong about whose table it is."""

from __future__ import annotations

import msgspec

from conformance.interface import messages as m
from conformance.models.owner import ModelOwner, OwnedTable
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
