"""Owners that are wrong about the creator of a table, or about its version 0."""

from __future__ import annotations

import json
import re
from urllib.parse import unquote

import msgspec

from conformance.interface import messages as m
from conformance.interface.log_names import LOG
from conformance.models.owner import Commit, ModelOwner, OwnedTable, content_of, time_of
from conformance.models.storage import MemoryStorage, Storage, StoredFile
from conformance.mutants import memory, mutant
from conformance.mutants.good_owners import DropDeletesFiles, plain_name


@mutant("MC-CREATE-02", "CM-COMMIT-08")
class NamesAreNotUnique(ModelOwner):
    """Creates another table for a second creator of the same name."""

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
class LosingCreatorIsAnsweredAsCreated(ModelOwner):
    """Answers a create request for an existing table as ratified."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        answer = super().create_table(client, request)
        return m.Ratified(version=0, table=answer.winner_table) if isinstance(answer, m.Conflict) else answer


@mutant("MC-CREATE-02", "CM-COMMIT-08")
class TwoCreatorsMakeATableUnreadable(LosingCreatorIsAnsweredAsCreated):
    """Ratifies every create request for a name; a table with two creators cannot be read afterwards."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        answer = super().create_table(client, request)
        if isinstance(answer, m.Ratified) and request.attempt not in self.tables[answer.table or ""].landed:
            self.unreadable = answer.table
        return answer

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        return self._fails(request.table) or super().get_commits(client, request)

    def observe(self, client: str, request: m.Observe) -> m.Answer:
        return self._fails(request.table) or super().observe(client, request)

    def _fails(self, table: m.TableRef) -> m.Unknown | None:
        found = getattr(self, "unreadable", None) == table
        return m.Unknown(reason="status 500: several tables of that name") if found else None


@mutant("MC-CREATE-02", "CM-COMMIT-08", bugs=("FB28",))
class RejectedCreatorReplacesVersion0(ModelOwner):
    """Rejects the second creator, but replaces version 0 with its proposal."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        answer = super().create_table(client, request)
        if isinstance(answer, m.Conflict) and answer.winner_table is not None:
            table = self.tables[answer.winner_table]
            content = self._with_owner(request.actions, request.feature)
            self.storage.put(self._path(table, 0), content_of(content), time_of(content))
        return answer


@mutant("PROFILE-CORE-04", bugs=("FB41",))
class LostCreationIsFatal(ModelOwner):
    """Answers a creator whose name is taken with a rejection instead of a conflict."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        answer = super().create_table(client, request)
        return m.Rejected(reason="cannot create the table") if isinstance(answer, m.Conflict) else answer


@mutant("PROFILE-CORE-06", "MC-CREATE-02", "CM-COMMIT-08")
class RepeatedCreationIsApplied(ModelOwner):
    """Creates a second table for a repeated create request, under the same name."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        for table in self.tables.values():
            if request.attempt in table.landed and table.name == request.name:
                table.active = False
                table.landed.pop(request.attempt)
        return super().create_table(client, request)


@mutant("PROFILE-VERSION0-01")
class RejectsCreations(ModelOwner):
    """Declares table creation, and rejects every create request."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        return m.Rejected(reason="not permitted")


@mutant("PROFILE-VERSION0-01")
class NamePrefixesAreTaken(ModelOwner):
    """Treats a name as taken if an existing name begins with it."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        for reference, table in self.tables.items():
            if table.name != request.name and table.name.startswith(request.name):
                return m.Conflict(latest=table.latest, winner_table=reference)
        return super().create_table(client, request)


@mutant("PROFILE-VERSION0-02", bugs=("FB14",))
class NewTableHasNoVersion(ModelOwner):
    """Returns -1 as the latest version of a new table until its first commit."""

    def _latest(self, table: OwnedTable) -> int | None:
        return -1 if table.latest == 0 else super()._latest(table)


@mutant("PROFILE-VERSION0-03", "PROFILE-VERSION0-04", bugs=("FB23",))
class Version0IsStaged(ModelOwner):
    """Stages version 0 like every other commit."""

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
    """Creates a table without checking its location: an existing filesystem table is overwritten."""

    def _begin(self, table: OwnedTable, version: int, attempt: str, actions: tuple[str, ...]) -> m.Answer:
        if version == 0:
            self.storage.remove(self._path(table, version))
        return super()._begin(table, version, attempt, actions)


@mutant("PROFILE-VERSION0-04", "MC-CREATE-02")
class CreationAcceptsAnyVersion0(ModelOwner):
    """Reports success of a creation if version 0 exists, even of another client."""

    def _begin(self, table: OwnedTable, version: int, attempt: str, actions: tuple[str, ...]) -> m.Answer:
        answer = super()._begin(table, version, attempt, actions)
        if not isinstance(answer, m.Conflict) or version > 0:
            return answer
        table.promised, table.backfilled = None, 0
        self.tables[table.reference] = table
        self._record(table, 0, attempt)
        return m.Ratified(version=0, table=table.reference)


@mutant("MC-API-03", "CM-CATALOG-03")
class NewTablesLoseProperties(ModelOwner):
    """Writes version 0 from a template without the proposed properties."""

    def _with_owner(self, actions: tuple[str, ...], feature: str) -> tuple[str, ...]:
        parsed = [json.loads(action) for action in super()._with_owner(actions, feature)]
        for action in parsed:
            if "metaData" in action:
                known = action["metaData"]["configuration"]
                action["metaData"]["configuration"] = {key: known[key] for key in known if key.startswith("delta.")}
        return tuple(json.dumps(action, separators=(",", ":")) for action in parsed)


@mutant("MC-ENABLE-05")
class ConfigurationIsNested(ModelOwner):
    """Stores its configuration in the table's properties as a JSON object with nested objects."""

    def _with_owner(self, actions: tuple[str, ...], feature: str) -> tuple[str, ...]:
        parsed = [json.loads(action) for action in super()._with_owner(actions, feature)]
        for action in parsed:
            if "metaData" in action and feature == "managedCommit":
                conf = json.dumps({"endpoint": {"host": "owner", "log": LOG}})
                action["metaData"]["configuration"]["delta.managedCommit.commitOwnerConf"] = conf
        return tuple(json.dumps(action, separators=(",", ":")) for action in parsed)


# Owners that are wrong about which tables exist, and about their names.


@mutant("PROFILE-DISCOVERY-01")
class NamePrefixesAreFound(ModelOwner):
    """Resolves a name to the first table whose name begins with it."""

    def _find(self, name: str | None, path: str | None) -> str | None:
        beginnings = [
            ref for ref, table in self.tables.items() if name and table.active and table.name.startswith(name)
        ]
        return super()._find(name, path) or next(iter(beginnings), None)


@mutant("PROFILE-DISCOVERY-01")
class FindsAmongAHundredTables(ModelOwner):
    """Looks a name up among the newest 100 tables, one page of its catalog."""

    def _find(self, name: str | None, path: str | None) -> str | None:
        found = super()._find(name, path)
        return found if found in list(self.tables)[-100:] else None


@mutant("PROFILE-DISCOVERY-01")
class ConflictNamesTheDroppedTable(ModelOwner):
    """Names the first table of a name, which was dropped, to a creator that lost to the second."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        answer = super().create_table(client, request)
        first = [reference for reference, table in self.tables.items() if table.name == request.name]
        return m.Conflict(winner_table=first[0]) if isinstance(answer, m.Conflict) and first else answer


@mutant("PROFILE-DISCOVERY-01")
class NamesArePatterns(ModelOwner):
    """Finds a name with SQL's `LIKE`, for which `_` is any character."""

    def _find(self, name: str | None, path: str | None) -> str | None:
        pattern = re.compile(re.escape(name or "").replace("_", "."))
        alike = [ref for ref, table in self.tables.items() if table.active and pattern.fullmatch(table.name)]
        return super()._find(name, path) or next(iter(alike), None)


@mutant("PROFILE-DISCOVERY-01")
class SpellingsFindTheFirstTable(ModelOwner):
    """Creates a table for each spelling of a name (case, Unicode form, encoded spaces), and finds the first by all."""

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        alike = [table.name for table in self.tables.values() if table.active and request.name is not None
                 and plain_name(table.name) == plain_name(request.name)]  # fmt: skip
        return super().load_table(client, m.LoadTable(name=alike[0]) if alike else request)


@mutant("MC-CREATE-02", "CM-COMMIT-08")
class SpellingsAreCreatedTwice(ModelOwner):
    """Treats the spellings of a name as one table, and ratifies the creation of each."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        for reference, table in self.tables.items():
            if table.active and table.name != request.name and plain_name(table.name) == plain_name(request.name):
                return m.Ratified(version=0, table=reference)
        return super().create_table(client, request)


@mutant("PROFILE-DISCOVERY-01")
class PathsAreDecoded(ModelOwner):
    """Decodes paths before it compares them: `a%20b` finds the table at `a b`, although both folders have one."""

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        path = None if request.path is None else unquote(request.path)
        return super().load_table(client, m.LoadTable(name=request.name, path=path))


class _DecodingStorage(MemoryStorage):
    """Reads a path as a URI."""

    def put(self, path: str, content: str, modified: int) -> None:
        super().put(unquote(path), content, modified)

    def put_if_absent(self, path: str, content: str, modified: int) -> bool:
        return super().put_if_absent(unquote(path), content, modified)

    def read(self, path: str) -> StoredFile | None:
        return super().read(unquote(path))

    def list(self, folder: str) -> list[str]:
        return super().list(unquote(folder))


@mutant("MC-CONVERT-02", "MC-CONVERT-05")
class EncodedPathsAreOtherTables(ModelOwner):
    """Reads paths as URIs and compares them as text: it takes over its own table by another spelling of its path."""

    def __init__(self, storage: Storage | None = None) -> None:
        super().__init__(_DecodingStorage() if storage is None else storage)


class _NormalizingStorage(MemoryStorage):
    """Ignores a repeated `/`, as file systems do."""

    def put(self, path: str, content: str, modified: int) -> None:
        super().put(path.replace("//", "/"), content, modified)

    def put_if_absent(self, path: str, content: str, modified: int) -> bool:
        return super().put_if_absent(path.replace("//", "/"), content, modified)

    def read(self, path: str) -> StoredFile | None:
        return super().read(path.replace("//", "/"))

    def list(self, folder: str) -> list[str]:
        return super().list(folder.replace("//", "/"))


@mutant("MC-CONVERT-02", "MC-CONVERT-05")
class PathsAreComparedAsText(ModelOwner):
    """Takes over its own table by its path with a `/` at the end."""

    def __init__(self, storage: Storage | None = None) -> None:
        super().__init__(_NormalizingStorage() if storage is None else storage)


@mutant("CM-GET-05")
class ResolutionHasFiftyCommits(ModelOwner):
    """Resolves a name with the first 50 unpublished commits only."""

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        answer = super().load_table(client, request)
        if isinstance(answer, m.Table) and answer.commits is not None:
            return msgspec.structs.replace(answer, commits=answer.commits[:50])
        return answer


@mutant("PROFILE-DISCOVERY-03")
class CachesMetadataByName(ModelOwner):
    """Caches the protocol and metadata of each name and version: a new table has those of a dropped one."""

    actions: dict[tuple[str, int], tuple[str | None, str | None]] = memory(dict)

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        answer = super().load_table(client, request)
        if not isinstance(answer, m.Table):
            return answer
        key = (self.tables[answer.table].name, self.tables[answer.table].latest)
        protocol, metadata = self.actions.setdefault(key, (answer.protocol, answer.metadata))
        return msgspec.structs.replace(answer, protocol=protocol, metadata=metadata)


@mutant("MC-BACKFILL-05", "CM-PUBLISH-06")
class CachesPublicationByName(ModelOwner):
    """Remembers by name up to which version it published a table: it skips these versions of a new table of that
    name."""

    done: dict[str, int] = memory(dict)

    def _backfill(self, table: OwnedTable, version: int) -> None:
        if version > self.done.get(table.name, 0):
            super()._backfill(table, version)
            self.done[table.name] = version


@mutant("PROFILE-DISCOVERY-01")
class UnknownNamesAreFound(ModelOwner):
    """Resolves an unknown name to an existing table."""

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        answer = super().load_table(client, request)
        others = [reference for reference, table in self.tables.items() if table.active]
        if isinstance(answer, m.NotFound) and others:
            return super().load_table(client, m.LoadTable(name=others[-1]))
        return answer


@mutant("PROFILE-DISCOVERY-01")
class NamesAreNotFound(ModelOwner):
    """Finds a table by reference only, not by name."""

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        known = request.name in self.tables or request.path is not None
        return super().load_table(client, request) if known else m.NotFound()


@mutant("PROFILE-DISCOVERY-01")
class PathsFindTheNewestTable(ModelOwner):
    """Resolves every managed path to the table created last."""

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        answer = super().load_table(client, request)
        if request.path is not None and isinstance(answer, m.Table):
            return msgspec.structs.replace(answer, table=list(self.tables)[-1])
        return answer


@mutant("CM-GET-05")
class ResolutionLacksCommits(ModelOwner):
    """Resolves a name without returning the unpublished commits."""

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        answer = super().load_table(client, request)
        return msgspec.structs.replace(answer, commits=None) if isinstance(answer, m.Table) else answer


@mutant("CM-GET-05", "CM-GET-04", "MC-READ-06")
class CachesResolutions(ModelOwner):
    """Repeats its first resolution of a table."""

    cache: dict[str | None, m.Answer] = memory(dict)

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        return self.cache.setdefault(request.name or request.path, super().load_table(client, request))


@mutant("CM-GET-04", "MC-READ-06")
class CachesResolutionsByPath(ModelOwner):
    """Caches the first resolution of a path; resolutions by name are current."""

    cache: dict[str | None, m.Answer] = memory(dict)

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        answer = super().load_table(client, request)
        return answer if request.path is None else self.cache.setdefault(request.path, answer)


@mutant("CM-DISCOVER-01", "PROFILE-DISCOVERY-01")
class ResolutionHasTheWrongFeature(ModelOwner):
    """Reports the feature `managedCommit` for every table."""

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        answer = super().load_table(client, request)
        if not isinstance(answer, m.Table):
            return answer
        other = "catalogManaged" if answer.feature == "managedCommit" else "managedCommit"
        return msgspec.structs.replace(answer, feature=other)


@mutant("PROFILE-DISCOVERY-03", "CM-CATALOG-05")
class ResolutionHasTheFirstMetadata(ModelOwner):
    """Returns the metadata of version 0, even after a commit changed it."""

    def _newest(self, table: OwnedTable, kind: str) -> str | None:
        file = self.storage.read(self._path(table, 0))
        actions = [] if file is None else file.content.splitlines()
        return next((action for action in actions if action.startswith(f'{{"{kind}"')), None)


@mutant("PROFILE-DISCOVERY-03", "CM-CATALOG-05")
class ResolutionHasRejectedMetadata(ModelOwner):
    """Records the metadata of a proposal before it is ratified: a resolution has those of a proposal that lost."""

    proposed: dict[str, str] = memory(dict)

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        for action in request.actions or ():
            if action.startswith('{"metaData"'):
                self.proposed[table.reference] = action
        return super()._refusal(table, request, staged)

    def _newest(self, table: OwnedTable, kind: str) -> str | None:
        found = super()._newest(table, kind)
        return self.proposed.get(table.reference, found) if kind == "metaData" else found


@mutant("PROFILE-CORE-07")
class ResolutionsOverlookVisibleFiles(ModelOwner):
    """Promises to know direct commits at once, and resolves a table without looking at its files."""

    resolves = False

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        self.resolves = True
        answer = super().load_table(client, request)
        self.resolves = False
        return answer

    def _notice(self, table: OwnedTable) -> None:
        if not self.resolves:
            super()._notice(table)


@mutant("PROFILE-DISCOVERY-03", "CM-CATALOG-05")
class ResolutionHasThePublishedMetadata(ModelOwner):
    """Reads protocol and metadata from the published commits only: they are old until the next backfill."""

    def _newest(self, table: OwnedTable, kind: str) -> str | None:
        return super()._newest(msgspec.structs.replace(table, latest=table.backfilled), kind)


@mutant("PROFILE-DISCOVERY-03", "CM-CATALOG-05")
class ResolutionHasTheFirstProtocol(ModelOwner):
    """Returns the protocol of version 0, even after a commit changed it."""

    def _newest(self, table: OwnedTable, kind: str) -> str | None:
        first = msgspec.structs.replace(table, latest=0) if kind == "protocol" else table
        return super()._newest(first, kind)


@mutant("PROFILE-DISCOVERY-03", "CM-CATALOG-05")
class RestartRestoresTheFirstMetadata(ModelOwner):
    """Keeps changes of the metadata in memory: after a restart a table is resolved with those of version 0."""

    restarted: set[str] = memory(set)

    def _restarted(self, table: OwnedTable) -> None:
        super()._restarted(table)
        self.restarted.add(table.reference)

    def _newest(self, table: OwnedTable, kind: str) -> str | None:
        first = msgspec.structs.replace(table, latest=0, unbackfilled={})
        return super()._newest(first if table.reference in self.restarted else table, kind)


@mutant("PROFILE-DISCOVERY-03")
class SecondTakeOverKeepsTheMetadata(ModelOwner):
    """Resolves a table that it took over again with the metadata of the first take-over."""

    def _newest(self, table: OwnedTable, kind: str) -> str | None:
        same = [each for each in self.tables.values() if each.location == table.location]
        return super()._newest(same[0], kind)


@mutant("PROFILE-DISCOVERY-01")
class NamesAreLookedUpAsFolders(ModelOwner):
    """Finds a table by the name of its folder, in which an underscore stands for a slash: two names lead to one
    table."""

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        wanted = (request.name or "").replace("/", "_")
        names = [
            table.name for table in self.tables.values() if table.active and table.name.replace("/", "_") == wanted
        ]
        return super().load_table(client, msgspec.structs.replace(request, name=names[0]) if names else request)


@mutant("PROFILE-DISCOVERY-01")
class FoldersLeadToTablesBelowThem(ModelOwner):
    """Finds a table by the beginning of its path: the path of a folder leads to a table in it."""

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        below = [table.location for table in self.tables.values() if table.location.startswith(request.path or "-")]
        found = msgspec.structs.replace(request, path=below[0]) if below else request
        return super().load_table(client, found)


@mutant("CM-CATALOG-05")
class ResolutionLacksProtocolAndMetadata(ModelOwner):
    """Resolves a table without its protocol and metadata."""

    def _newest(self, table: OwnedTable, kind: str) -> str | None:
        return None


@mutant("PROFILE-CORE-06")
class RepeatedCreationReturnsTheNewTable(ModelOwner):
    """Answers a repeated creation of a dropped table with the table that has its name now."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        answer = super().create_table(client, request)
        now = self._find(request.name, None)
        return m.Ratified(version=0, table=now) if isinstance(answer, m.Ratified) and now is not None else answer


@mutant("PROFILE-DISCOVERY-01")
class DroppedTablesAreStillFound(ModelOwner):
    """Rejects commits to a dropped table, but still resolves it."""

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        answer = super().load_table(client, request)
        for reference, table in self.tables.items():
            if isinstance(answer, m.NotFound) and request.name == table.name:
                return m.Table(
                    table=reference, feature=table.feature, commit_mode=table.commit_mode, latest=table.latest
                )
        return answer


@mutant("PROFILE-DISCOVERY-01")
class DroppedTablesAreFoundByPath(ModelOwner):
    """Removes the name of a dropped table only: its path still finds it."""

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        answer = super().load_table(client, request)
        for reference, table in self.tables.items():
            if isinstance(answer, m.NotFound) and request.path == table.location:
                return m.Table(
                    table=reference, feature=table.feature, commit_mode=table.commit_mode, latest=table.latest
                )
        return answer


@mutant("PROFILE-DISCOVERY-04")
class DroppedTablesAreRead(ModelOwner):
    """Answers requests for the commits of a dropped table as before."""

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        table = self.tables.get(request.table)
        if table is None:
            return m.NotFound()
        return m.Commits(commits=self._entries(table, request.start or 0, request.end), latest=self._latest(table))


@mutant("MC-COMMIT-02", "CM-COMMIT-08")
class ReusedNamesKeepAttempts(ModelOwner):
    """Stores attempts by the table's name: a new table of that name reports those of the dropped one as landed."""

    def _begin(self, table: OwnedTable, version: int, attempt: str, actions: tuple[str, ...]) -> m.Answer:
        for old in self.tables.values():
            if not old.active and self._same(old, table):
                table.landed |= old.landed
        return super()._begin(table, version, attempt, actions)

    def _same(self, old: OwnedTable, new: OwnedTable) -> bool:
        return old.name == new.name


@mutant("MC-COMMIT-02", "CM-COMMIT-08")
class ReusedPathsKeepAttempts(ReusedNamesKeepAttempts, DropDeletesFiles):
    """Stores attempts by the table's path: a new table at that path reports those of the dropped one as landed."""

    def _same(self, old: OwnedTable, new: OwnedTable) -> bool:
        return old.location == new.location


@mutant("MC-FILES-08", "CM-FILES-07")
class LateDropDeletesANewTable(DropDeletesFiles):
    """Deletes the files of a dropped table in the background, and with them those of a new table at its path."""

    def _begin(self, table: OwnedTable, version: int, attempt: str, actions: tuple[str, ...]) -> m.Answer:
        table.location = table.location.removesuffix(table.reference) + table.name
        return super()._begin(table, version, attempt, actions)

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        answer = super().commit(client, request)
        table = self.tables.get(request.table)
        for old in list(self.tables.values()):
            if table is not None and table.active and not old.active and old.location == table.location:
                old.location = ""
                for name in self.storage.list(f"{table.location}/{LOG}"):
                    self.storage.remove(f"{table.location}/{LOG}/{name}")
        return answer


@mutant("CM-FILES-07")
class LateBackfillWritesToANewTable(DropDeletesFiles):
    """Publishes commits of a dropped table on request, even if its path belongs to a new table."""

    def drop_table(self, client: str, request: m.DropTable) -> m.Answer:
        table = self.tables.get(request.table)
        commits = {} if table is None else dict(table.unbackfilled)
        answer = super().drop_table(client, request)
        if table is not None:
            table.unbackfilled = commits
        return answer


@mutant("MC-FILES-08", "CM-FILES-07")
class LateCommitWritesToANewTable(DropDeletesFiles):
    """Writes the file of a direct commit before it finds that the table was dropped."""

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        table = self.tables.get(request.table)
        if table is not None and not table.active and table.commit_mode == "direct":
            self.storage.put(self._path(table, request.version), content_of(request.actions or ()), 0)
        return super().commit(client, request)


@mutant("MC-FILES-08", "CM-FILES-07")
class DropDeletesByPrefix(ModelOwner):
    """Deletes all files whose path begins with that of a dropped table: a drop of `orders` deletes `orders2`."""

    def drop_table(self, client: str, request: m.DropTable) -> m.Answer:
        answer = super().drop_table(client, request)
        table = self.tables.get(request.table)
        for name in self.storage.list(self.storage.root) if table is not None else ():
            if table is not None and name.startswith(table.name):
                self.storage.remove(f"{self.storage.root}/{name}")
        return answer


@mutant("PROFILE-DISCOVERY-02")
class DroppedTablesTakeCommits(ModelOwner):
    """Ratifies commits to a dropped table."""

    def drop_table(self, client: str, request: m.DropTable) -> m.Answer:
        answer = super().drop_table(client, request)
        table = self.tables.get(request.table)
        if table is not None and isinstance(answer, m.Done):
            table.active, table.name = True, f"dropped {table.name}"
            self._save(table)
        return answer


@mutant("PROFILE-DISCOVERY-01")
class DropsByName(ModelOwner):
    """Drops the table that has the name of the requested one now."""

    def drop_table(self, client: str, request: m.DropTable) -> m.Answer:
        table = self.tables.get(request.table)
        now = None if table is None else self._find(table.name, None)
        return super().drop_table(client, request if now is None else m.DropTable(table=now))


@mutant("PROFILE-DISCOVERY-01")
class DroppedNamesStayTaken(ModelOwner):
    """Keeps the name of a dropped table taken."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        for reference, table in self.tables.items():
            if table.name == request.name and not table.active and request.attempt not in table.landed:
                return m.Conflict(latest=table.latest, winner_table=reference)
        return super().create_table(client, request)


@mutant("PROFILE-DISCOVERY-02")
class ReferencesAreNames(ModelOwner):
    """Uses the table's name as its reference: a request for a dropped table reaches the new one of that name."""

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        table = self.tables.get(request.table)
        if table is not None and not table.active:
            named = self._find(table.name, None)
            request = request if named is None else msgspec.structs.replace(request, table=named)
        return super().commit(client, request)


@mutant("PROFILE-CORE-06")
class LateCreationRestoresADroppedTable(ModelOwner):
    """Forgets a creation with its drop: a late copy of the create request creates the table again."""

    def drop_table(self, client: str, request: m.DropTable) -> m.Answer:
        answer = super().drop_table(client, request)
        table = self.tables.get(request.table)
        if table is not None:
            table.landed = {attempt: version for attempt, version in table.landed.items() if version > 0}
        return answer


@mutant("PROFILE-RETRY-01")
class DropForgetsAttempts(ModelOwner):
    """Answers the replay of a landed commit with a conflict after the table was dropped."""

    def _replay(self, table: OwnedTable, request: m.Commit) -> m.Answer | None:
        answer = super()._replay(table, request)
        dropped = not table.active and table.leaving is None
        return m.Conflict(latest=table.latest) if answer is not None and dropped else answer


@mutant("PROFILE-OUTCOME-01")
class DropForgetsOutcomes(ModelOwner):
    """Reports every attempt of a dropped table as not landed."""

    def attempt_outcome(self, client: str, request: m.AttemptOutcome) -> m.Answer:
        table = self.tables.get(request.table)
        return m.NotLanded() if table is not None and not table.active else super().attempt_outcome(client, request)


@mutant("PROFILE-DISCOVERY-02", "PROFILE-DISCOVERY-01", "PROFILE-DURABLE-01")
class RestartUndoesDrops(ModelOwner):
    """Keeps drops in memory only: after a restart the tables exist again."""

    def drop_table(self, client: str, request: m.DropTable) -> m.Answer:
        before = dict(self.saved)
        answer = super().drop_table(client, request)
        self.saved.update(before)
        return answer
