"""Owners that are wrong about who creates a table, and about what it is then."""

from __future__ import annotations

import json

import msgspec

from conformance.interface import messages as m
from conformance.models.owner import Commit, ModelOwner, OwnedTable, content_of, time_of
from conformance.models.storage import LOG
from conformance.mutants.registry import mutant


@mutant("MC-CREATE-02", "CM-COMMIT-08")
class EveryCreatorGetsATable(ModelOwner):
    """Names are not unique: a second creator of one name is told that it made the table, and has another one."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        answer = super().create_table(client, request)
        if not isinstance(answer, m.Conflict):
            return answer
        reference = f"{request.name}-{len(self.tables)}-again"
        table = OwnedTable(
            reference=reference, name=request.name, feature=request.feature, commit_mode=request.commit_mode,
            location=f"{self.storage.root}/{reference}",
        )  # fmt: skip
        return self._begin(table, 0, request.attempt, request.actions)


@mutant("MC-CREATE-02", "CM-COMMIT-08")
class LosingCreatorIsToldThatItWon(ModelOwner):
    """Whoever creates a table that is there is told that it worked, and goes on as if version 0 were its own."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        answer = super().create_table(client, request)
        return m.Ratified(version=0, table=answer.winner_table) if isinstance(answer, m.Conflict) else answer


@mutant("MC-CREATE-02", "CM-COMMIT-08", bugs=("FB28",))
class LastCreatorReplacesVersionZero(ModelOwner):
    """Version 0 is written by a rename that replaces what is there: the loser is refused, and the table is its own."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        answer = super().create_table(client, request)
        if isinstance(answer, m.Conflict) and answer.winner_table is not None:
            table = self.tables[answer.winner_table]
            content = self._with_owner(request.actions, request.feature)
            self.storage.put(self._path(table, 0), content_of(content), time_of(content))
        return answer


@mutant("PROFILE-CORE-04", bugs=("FB41",))
class LostCreationIsFatal(ModelOwner):
    """A creator whose name is taken is told of a failure like any other."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        answer = super().create_table(client, request)
        return m.Rejected(reason="cannot create the table") if isinstance(answer, m.Conflict) else answer


@mutant("PROFILE-CORE-06", "MC-CREATE-02", "CM-COMMIT-08")
class CreationIsAppliedAgain(ModelOwner):
    """A creation that is sent again makes a second table, which takes the name of the first."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        for table in self.tables.values():
            if request.attempt in table.landed and table.name == request.name:
                table.active = False
                table.landed.pop(request.attempt)
        return super().create_table(client, request)


@mutant("PROFILE-VERSION0-01")
class NoTablesAreMade(ModelOwner):
    """The owner declares that it creates tables, and refuses to."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        return m.Rejected(reason="not permitted")


@mutant("PROFILE-VERSION0-01")
class NamesAreComparedByTheirBeginning(ModelOwner):
    """A name is taken when another one begins with it."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        for reference, table in self.tables.items():
            if table.name != request.name and table.name.startswith(request.name):
                return m.Conflict(latest=table.latest, winner_table=reference)
        return super().create_table(client, request)


@mutant("PROFILE-VERSION0-02", bugs=("FB14",))
class NewTableHasNoVersion(ModelOwner):
    """The latest version of a table that was just created is told as none (-1) until its first commit."""

    def _latest(self, table: OwnedTable) -> int | None:
        return -1 if table.latest == 0 else super()._latest(table)


@mutant("PROFILE-VERSION0-03", "PROFILE-VERSION0-04", bugs=("FB23",))
class VersionZeroIsStaged(ModelOwner):
    """Version 0 is staged like every other commit, and waits for its publication."""

    def _begin(self, table: OwnedTable, version: int, attempt: str, actions: tuple[str, ...]) -> m.Answer:
        answer = super()._begin(table, version, attempt, actions)
        path = self._path(table, version)
        file = self.storage.read(path)
        if isinstance(answer, m.Ratified) and table.commit_mode == "staged" and version == 0 and file is not None:
            name = f"{version:020}.{attempt}.json"
            self.storage.put(self._staged_path(table, name), *file)
            self.storage.remove(path)
            table.backfilled = -1
            table.unbackfilled[0] = Commit(attempt=attempt, staged_file=name)
        return answer


@mutant("PROFILE-VERSION0-04", "MC-CREATE-02")
class CreationReplacesAFilesystemTable(ModelOwner):
    """A table is created without a look at the place: a filesystem table that is there is overwritten."""

    def _begin(self, table: OwnedTable, version: int, attempt: str, actions: tuple[str, ...]) -> m.Answer:
        if version == 0:
            self.storage.remove(self._path(table, version))
        return super()._begin(table, version, attempt, actions)


@mutant("PROFILE-VERSION0-04", "MC-CREATE-02")
class CreationTakesWhatIsThereForItsOwn(ModelOwner):
    """That version 0 exists already is taken as success of the creation, whoever wrote it."""

    def _begin(self, table: OwnedTable, version: int, attempt: str, actions: tuple[str, ...]) -> m.Answer:
        answer = super()._begin(table, version, attempt, actions)
        if not isinstance(answer, m.Conflict) or version > 0:
            return answer
        table.promised, table.backfilled = None, 0
        self.tables[table.reference] = table
        self._record(table, 0, attempt)
        return m.Ratified(version=0, table=table.reference)


@mutant("MC-API-03", "CM-CATALOG-03")
class NewTablesGetDefaultProperties(ModelOwner):
    """The owner writes version 0 from a template, and leaves out the properties that it does not know."""

    def _with_owner(self, actions: tuple[str, ...], feature: str) -> tuple[str, ...]:
        parsed = [json.loads(action) for action in super()._with_owner(actions, feature)]
        for action in parsed:
            if "metaData" in action:
                known = action["metaData"]["configuration"]
                action["metaData"]["configuration"] = {key: known[key] for key in known if key.startswith("delta.")}
        return tuple(json.dumps(action, separators=(",", ":")) for action in parsed)


@mutant("MC-ENABLE-05")
class ConfigurationIsNested(ModelOwner):
    """The owner's configuration in the table's properties is a JSON object with objects inside."""

    def _with_owner(self, actions: tuple[str, ...], feature: str) -> tuple[str, ...]:
        parsed = [json.loads(action) for action in super()._with_owner(actions, feature)]
        for action in parsed:
            if "metaData" in action and feature == "managedCommit":
                conf = json.dumps({"endpoint": {"host": "owner", "log": LOG}})
                action["metaData"]["configuration"]["delta.managedCommit.commitOwnerConf"] = conf
        return tuple(json.dumps(action, separators=(",", ":")) for action in parsed)


# Owners that are wrong about which tables there are, and what they are called.


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
