"""Owners that are wrong about which tables there are, and what they are called."""

from __future__ import annotations

import msgspec

from conformance.interface import messages as m
from conformance.models.owner import ModelOwner, OwnedTable
from conformance.mutants.registry import mutant


@mutant("PROFILE-DISCOVERY-01")
class NamesAreFoundByTheirBeginning(ModelOwner):
    """It finds the first table whose name begins with what was asked for."""

    def _find(self, name: str | None, path: str | None) -> str | None:
        beginnings = [
            ref for ref, table in self.tables.items() if name and table.active and table.name.startswith(name)
        ]
        return super()._find(name, path) or next(iter(beginnings), None)


@mutant("PROFILE-DISCOVERY-01")
class EveryNameIsFound(ModelOwner):
    """Asked for a table that does not exist, it answers with one that does."""

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        answer = super().load_table(client, request)
        others = [reference for reference, table in self.tables.items() if table.active]
        if isinstance(answer, m.NotFound) and others:
            return super().load_table(client, m.LoadTable(name=others[-1]))
        return answer


@mutant("PROFILE-DISCOVERY-01")
class TablesAreNotFound(ModelOwner):
    """It finds a table by the reference that it gave it, and not by its name."""

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        known = request.name in self.tables or request.path is not None
        return super().load_table(client, request) if known else m.NotFound()


@mutant("PROFILE-DISCOVERY-01")
class PathsFindTheNewestTable(ModelOwner):
    """It takes every path that it manages for that of the table that was created last."""

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        answer = super().load_table(client, request)
        if request.path is not None and isinstance(answer, m.Table):
            return msgspec.structs.replace(answer, table=list(self.tables)[-1])
        return answer


@mutant("CM-GET-05")
class ResolutionTellsNoCommits(ModelOwner):
    """It resolves a name to a table and says nothing of its commits: who reads with that misses what is not
    published."""

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        answer = super().load_table(client, request)
        return msgspec.structs.replace(answer, commits=None) if isinstance(answer, m.Table) else answer


@mutant("CM-GET-05", "CM-GET-04", "MC-READ-06")
class ResolutionIsCached(ModelOwner):
    """It answers the resolution of a table with what it answered the first time."""

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        cache: dict[str | None, m.Answer] = self.__dict__.setdefault("cache", {})
        return cache.setdefault(request.name or request.path, super().load_table(client, request))


@mutant("CM-DISCOVER-01", "PROFILE-DISCOVERY-01")
class EveryTableIsCalledManagedCommit(ModelOwner):
    """It says of every table that it has the older of the two features."""

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        answer = super().load_table(client, request)
        if not isinstance(answer, m.Table):
            return answer
        other = "catalogManaged" if answer.feature == "managedCommit" else "managedCommit"
        return msgspec.structs.replace(answer, feature=other)


@mutant("CM-CATALOG-05")
class MetadataOfTheFirstVersion(ModelOwner):
    """It tells the metadata that the table was created with, whatever a commit made of it."""

    def _newest(self, table: OwnedTable, kind: str) -> str | None:
        file = self.storage.read(self._path(table, 0))
        actions = [] if file is None else file.content.splitlines()
        return next((action for action in actions if action.startswith(f'{{"{kind}"')), None)


@mutant("CM-CATALOG-05")
class TellsNeitherProtocolNorMetadata(ModelOwner):
    """It keeps to itself what the table's protocol and metadata are."""

    def _newest(self, table: OwnedTable, kind: str) -> str | None:
        return None


@mutant("PROFILE-DISCOVERY-01")
class DroppedTablesAreStillFound(ModelOwner):
    """It drops a table for writers and goes on to find it for readers."""

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        answer = super().load_table(client, request)
        for reference, table in self.tables.items():
            if isinstance(answer, m.NotFound) and request.name == table.name:
                return m.Table(
                    table=reference, feature=table.feature, commit_mode=table.commit_mode, latest=table.latest
                )
        return answer


@mutant("PROFILE-DISCOVERY-02")
class DroppedTablesTakeCommits(ModelOwner):
    """It takes the name of a dropped table away, and commits from everybody who has the old reference."""

    def drop_table(self, client: str, request: m.DropTable) -> m.Answer:
        answer = super().drop_table(client, request)
        table = self.tables.get(request.table)
        if table is not None and isinstance(answer, m.Done):
            table.active, table.name = True, f"dropped {table.name}"
            self._save(table)
        return answer


@mutant("PROFILE-DISCOVERY-01")
class NamesAreNeverFree(ModelOwner):
    """The name of a dropped table stays taken."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        for reference, table in self.tables.items():
            if table.name == request.name and not table.active and request.attempt not in table.landed:
                return m.Conflict(latest=table.latest, winner_table=reference)
        return super().create_table(client, request)


@mutant("PROFILE-DISCOVERY-02")
class ReferencesAreNames(ModelOwner):
    """A table's reference is its name: a request that was meant for a dropped table lands in the one that has its name
    now."""

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        table = self.tables.get(request.table)
        if table is not None and not table.active:
            named = self._find(table.name, None)
            request = request if named is None else msgspec.structs.replace(request, table=named)
        return super().commit(client, request)


@mutant("PROFILE-CORE-06")
class LateCreationsBringTablesBack(ModelOwner):
    """It forgets the creation of a table with its drop: a copy of the request that arrives late creates it again."""

    def drop_table(self, client: str, request: m.DropTable) -> m.Answer:
        answer = super().drop_table(client, request)
        table = self.tables.get(request.table)
        if table is not None:
            table.landed = {attempt: version for attempt, version in table.landed.items() if version > 0}
        return answer


@mutant("PROFILE-OUTCOME-01")
class OutcomesGoWithTheTable(ModelOwner):
    """After a drop it says of every attempt of the table that it has not landed."""

    def attempt_outcome(self, client: str, request: m.AttemptOutcome) -> m.Answer:
        table = self.tables.get(request.table)
        return m.NotLanded() if table is not None and not table.active else super().attempt_outcome(client, request)


@mutant("PROFILE-DISCOVERY-02", "PROFILE-DISCOVERY-01", "PROFILE-DURABLE-01")
class DropsAreForgotten(ModelOwner):
    """It drops tables in memory only: after a restart they are back."""

    def drop_table(self, client: str, request: m.DropTable) -> m.Answer:
        before = dict(self.saved)
        answer = super().drop_table(client, request)
        self.saved.update(before)
        return answer
