"""Owners that are wrong about who creates a table, and about what it is then."""

from __future__ import annotations

import json

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
