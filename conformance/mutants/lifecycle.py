"""Owners that are wrong about the creator of a table, or about its version 0."""

import json
import re
from urllib.parse import unquote

import msgspec

from conformance.interface import messages as m
from conformance.interface.log_names import LOG, staged_file
from conformance.models.owner import Commit, ModelOwner, OwnedTable, content_of, time_of
from conformance.models.storage import MemoryStorage, Storage, StoredFile
from conformance.mutants import memory, memory_of, mutant, mutant_method, original
from conformance.mutants.good_owners import DropDeletesFiles, plain_name


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
        unreadable = getattr(self, "unreadable", None) == table
        return m.Unknown(reason="status 500: several tables of that name") if unreadable else None


@mutant_method("create_table", "MC-CREATE-02", "CM-COMMIT-08", bugs=("FB28",))
def rejected_creator_replaces_version_0(self: ModelOwner, client: str, request: m.CreateTable) -> m.Answer:
    """Rejects the second creator, but replaces version 0 with its proposal."""
    answer = original(self).create_table(client, request)
    if isinstance(answer, m.Conflict) and answer.winner_table is not None:
        table = self.tables[answer.winner_table]
        content = self._with_owner(request.actions, request.feature)
        self.storage.put(self._path(table, 0), content_of(content), time_of(content))
    return answer


@mutant_method("create_table", "PROFILE-CORE-04", bugs=("FB41",))
def lost_creation_is_fatal(self: ModelOwner, client: str, request: m.CreateTable) -> m.Answer:
    """Answers a creator whose name is taken with a rejection instead of a conflict."""
    answer = original(self).create_table(client, request)
    return m.Rejected(reason="cannot create the table") if isinstance(answer, m.Conflict) else answer


@mutant("PROFILE-DISCOVERY-03", "CM-CATALOG-05", found_by="programs")
class NoticesCommitsWithoutTheirMetadata(ModelOwner):
    """Notices a direct commit of another writer, but returns the metadata from before."""

    kept: dict[str, tuple[int, str | None]] = memory(dict)

    def _notice(self, table: OwnedTable) -> None:
        before, metadata = table.latest, self._newest(table, "metaData") if table.commit_mode == "direct" else None
        super()._notice(table)
        if metadata is not None and table.latest > before:
            self.kept[table.reference] = table.latest, metadata

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        answer = super().load_table(client, request)
        if isinstance(answer, m.Table):
            latest, metadata = self.kept.get(answer.table, (None, None))
            return msgspec.structs.replace(answer, metadata=metadata) if latest == answer.latest else answer
        return answer


@mutant_method("create_table", "MC-CREATE-02", "CM-COMMIT-08", found_by="programs")
def names_are_unique_for_a_feature(self: ModelOwner, client: str, request: m.CreateTable) -> m.Answer:
    """Compares a new name with the names of the tables of its own table feature only."""
    others = [table for table in self.tables.values() if table.feature != request.feature and table.active]
    for table in others:
        table.active = False
    answer = original(self).create_table(client, request)
    for table in others:
        table.active = True
    return answer


@mutant_method("create_table", "PROFILE-CORE-06", "MC-CREATE-02", "CM-COMMIT-08")
def repeated_creation_is_applied(self: ModelOwner, client: str, request: m.CreateTable) -> m.Answer:
    """Creates a second table for a repeated create request, under the same name."""
    for table in self.tables.values():
        if request.attempt in table.landed and table.name == request.name:
            table.active = False
            table.landed.pop(request.attempt)
    return original(self).create_table(client, request)


@mutant_method("create_table", "PROFILE-VERSION0-01")
def rejects_creations(self: ModelOwner, client: str, request: m.CreateTable) -> m.Answer:
    """Declares creation of catalog-managed tables, and rejects every request for it."""
    refused = m.Rejected(reason="not permitted")
    return refused if request.feature == "catalogManaged" else original(self).create_table(client, request)


@mutant_method("_latest", "PROFILE-VERSION0-02", bugs=("FB14",))
def new_table_has_no_version(self: ModelOwner, table: OwnedTable) -> int | None:
    """Returns -1 as the latest version of a new table until its first commit."""
    return -1 if table.latest == 0 else original(self)._latest(table)


@mutant("PROFILE-VERSION0-03", "PROFILE-VERSION0-04", bugs=("FB23",))
class Version0IsStaged(ModelOwner):
    """Stages version 0 like every other commit."""

    def _begin(self, table: OwnedTable, version: int, attempt: str, actions: tuple[str, ...]) -> m.Answer:
        answer = super()._begin(table, version, attempt, actions)
        path = self._path(table, version)
        file = self.storage.read(path)
        if isinstance(answer, m.Ratified) and table.commit_mode == "staged" and version == 0 and file is not None:
            name = staged_file(version, attempt)
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


@mutant_method("_with_owner", "MC-API-03", "CM-CATALOG-03")
def new_tables_lose_properties(self: ModelOwner, actions: tuple[str, ...], feature: str) -> tuple[str, ...]:
    """Writes version 0 from a template without the proposed properties."""
    parsed = [json.loads(action) for action in original(self)._with_owner(actions, feature)]
    for action in parsed:
        if "metaData" in action:
            known = action["metaData"]["configuration"]
            action["metaData"]["configuration"] = {key: known[key] for key in known if key.startswith("delta.")}
    return tuple(json.dumps(action, separators=(",", ":")) for action in parsed)


@mutant_method("_with_owner", "MC-ENABLE-05")
def configuration_is_nested(self: ModelOwner, actions: tuple[str, ...], feature: str) -> tuple[str, ...]:
    """Stores its configuration in the table's properties as a JSON object with nested objects."""
    parsed = [json.loads(action) for action in original(self)._with_owner(actions, feature)]
    for action in parsed:
        if "metaData" in action and feature == "managedCommit":
            conf = json.dumps({"endpoint": {"host": "owner", "log": LOG}})
            action["metaData"]["configuration"]["delta.managedCommit.commitOwnerConf"] = conf
    return tuple(json.dumps(action, separators=(",", ":")) for action in parsed)


# Owners that are wrong about which tables exist, and about their names.


@mutant_method("_find", "PROFILE-DISCOVERY-01")
def finds_among_a_hundred_tables(self: ModelOwner, name: str | None, path: str | None) -> str | None:
    """Looks a name up among the newest 100 tables, one page of its catalog."""
    reference = original(self)._find(name, path)
    return reference if reference in list(self.tables)[-100:] else None


@mutant_method("_find", "PROFILE-DISCOVERY-01")
def names_are_patterns(self: ModelOwner, name: str | None, path: str | None) -> str | None:
    """Finds a name with SQL's `LIKE`, for which `_` is any character."""
    pattern = re.compile(re.escape(name or "").replace("_", "."))
    alike = [ref for ref, table in self.tables.items() if table.active and pattern.fullmatch(table.name)]
    return original(self)._find(name, path) or next(iter(alike), None)


@mutant_method("create_table", "MC-CREATE-02", "CM-COMMIT-08")
def spellings_are_created_twice(self: ModelOwner, client: str, request: m.CreateTable) -> m.Answer:
    """Treats the spellings of a name as one table, and ratifies the creation of each."""
    for reference, table in self.tables.items():
        if table.active and table.name != request.name and plain_name(table.name) == plain_name(request.name):
            return m.Ratified(version=0, table=reference)
    return original(self).create_table(client, request)


@mutant_method("load_table", "PROFILE-DISCOVERY-01")
def paths_are_decoded(self: ModelOwner, client: str, request: m.LoadTable) -> m.Answer:
    """Decodes paths before it compares them: `a%20b` finds the table at `a b`, although both folders have one."""
    path = None if request.path is None else unquote(request.path)
    return original(self).load_table(client, m.LoadTable(name=request.name, path=path))


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


@mutant_method("take_over", "MC-CONVERT-02")
def take_over_decodes_paths(self: ModelOwner, client: str, request: m.TakeOver) -> m.Answer:
    """Reads the path of a take-over as a URI, and looks for the table in another folder."""
    return original(self).take_over(client, msgspec.structs.replace(request, path=unquote(request.path)))


@mutant("MC-CONVERT-02", "MC-CONVERT-05")
class EncodedPathsAreOtherTables(ModelOwner):
    """Reads paths as URIs and compares them as text: it takes over its own table by another spelling of its path."""

    def __init__(self, storage: Storage | None = None) -> None:
        super().__init__(_DecodingStorage() if storage is None else storage)


@mutant_method("load_table", "CM-GET-05")
def resolution_has_fifty_commits(self: ModelOwner, client: str, request: m.LoadTable) -> m.Answer:
    """Resolves a name with the first 50 unpublished commits only."""
    answer = original(self).load_table(client, request)
    if isinstance(answer, m.Table) and answer.commits is not None:
        return msgspec.structs.replace(answer, commits=answer.commits[:50])
    return answer


@mutant_method("load_table", "PROFILE-DISCOVERY-03")
def caches_metadata_by_name(self: ModelOwner, client: str, request: m.LoadTable) -> m.Answer:
    """Caches the protocol and metadata of each name and version: a new table has those of a dropped one."""
    actions = memory_of(self, dict[tuple[str, int], tuple[str | None, str | None]])
    answer = original(self).load_table(client, request)
    if not isinstance(answer, m.Table):
        return answer
    key = (self.tables[answer.table].name, self.tables[answer.table].latest)
    protocol, metadata = actions.setdefault(key, (answer.protocol, answer.metadata))
    return msgspec.structs.replace(answer, protocol=protocol, metadata=metadata)


@mutant_method("_backfill", "MC-BACKFILL-05", "PROFILE-CORE-10")
def caches_publication_by_name(self: ModelOwner, table: OwnedTable, version: int) -> None:
    """Remembers by name up to which version it published a table: it skips these versions of a new table of that
    name."""
    done = memory_of(self, dict[str, int])
    if version > done.get(table.name, 0):
        original(self)._backfill(table, version)
        done[table.name] = version


@mutant_method("load_table", "CM-GET-05", "CM-GET-04", "MC-READ-06")
def caches_resolutions(self: ModelOwner, client: str, request: m.LoadTable) -> m.Answer:
    """Repeats its first resolution of a table."""
    cache = memory_of(self, dict[str | None, m.Answer])
    return cache.setdefault(request.name or request.path, original(self).load_table(client, request))


@mutant_method("load_table", "CM-DISCOVER-01", "PROFILE-DISCOVERY-01")
def resolution_has_the_wrong_feature(self: ModelOwner, client: str, request: m.LoadTable) -> m.Answer:
    """Reports the feature `managedCommit` for every table."""
    answer = original(self).load_table(client, request)
    if not isinstance(answer, m.Table):
        return answer
    other = "catalogManaged" if answer.feature == "managedCommit" else "managedCommit"
    return msgspec.structs.replace(answer, feature=other)


@mutant_method("_newest", "PROFILE-DISCOVERY-03", "CM-CATALOG-05")
def resolution_has_the_first_metadata(self: ModelOwner, table: OwnedTable, kind: str) -> str | None:
    """Returns the metadata of version 0, even after a commit changed it."""
    file = self.storage.read(self._path(table, 0))
    actions = [] if file is None else file.content.splitlines()
    return next((action for action in actions if action.startswith(f'{{"{kind}"')), None)


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


@mutant_method("_newest", "PROFILE-DISCOVERY-03", "CM-CATALOG-05")
def resolution_has_the_published_metadata(self: ModelOwner, table: OwnedTable, kind: str) -> str | None:
    """Reads protocol and metadata from the published commits only: they are old until the next backfill."""
    return original(self)._newest(msgspec.structs.replace(table, latest=table.backfilled), kind)


@mutant_method("_newest", "PROFILE-DISCOVERY-03")
def second_take_over_keeps_the_metadata(self: ModelOwner, table: OwnedTable, kind: str) -> str | None:
    """Resolves a table that it took over again with the metadata of the first take-over."""
    same = [other for other in self.tables.values() if other.location == table.location]
    return original(self)._newest(same[0], kind)


@mutant_method("load_table", "PROFILE-DISCOVERY-01")
def folders_lead_to_tables_below_them(self: ModelOwner, client: str, request: m.LoadTable) -> m.Answer:
    """Finds a table by the beginning of its path: the path of a folder leads to a table in it."""
    below = [table.location for table in self.tables.values() if table.location.startswith(request.path or "-")]
    redirected = msgspec.structs.replace(request, path=below[0]) if below else request
    return original(self).load_table(client, redirected)


@mutant_method("_newest", "CM-CATALOG-05")
def resolution_lacks_protocol_and_metadata(self: ModelOwner, table: OwnedTable, kind: str) -> str | None:
    """Resolves a table without its protocol and metadata."""
    return None


@mutant_method("create_table", "PROFILE-CORE-06")
def repeated_creation_returns_the_new_table(self: ModelOwner, client: str, request: m.CreateTable) -> m.Answer:
    """Answers a repeated creation of a dropped table with the table that has its name now."""
    answer = original(self).create_table(client, request)
    now = self._find(request.name, None)
    return m.Ratified(version=0, table=now) if isinstance(answer, m.Ratified) and now is not None else answer


@mutant_method("get_commits", "PROFILE-DISCOVERY-04")
def dropped_tables_are_read(self: ModelOwner, client: str, request: m.GetCommits) -> m.Answer:
    """Answers requests for the commits of a dropped table as before."""
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
        commits, published = ({}, -1) if table is None else (dict(table.unbackfilled), table.backfilled)
        answer = super().drop_table(client, request)
        if table is not None:
            table.unbackfilled, table.backfilled = commits, published
        return answer

    def backfill_to_version(self, client: str, request: m.BackfillToVersion) -> m.Answer:
        table = self.tables.get(request.table)
        if table is not None and not table.active:
            self._backfill(table, min(request.version, table.latest))
        return super().backfill_to_version(client, request)


@mutant_method("commit", "MC-FILES-08", "CM-FILES-07")
def late_commit_writes_to_a_new_table(self: DropDeletesFiles, client: str, request: m.Commit) -> m.Answer:
    """Writes the file of a direct commit before it finds that the table was dropped."""
    table = self.tables.get(request.table)
    if table is not None and not table.active and table.commit_mode == "direct":
        self.storage.put(self._path(table, request.version), content_of(request.actions or ()), 0)
    return original(self).commit(client, request)


@mutant_method("drop_table", "MC-FILES-08", "CM-FILES-07")
def drop_deletes_by_prefix(self: ModelOwner, client: str, request: m.DropTable) -> m.Answer:
    """Deletes all files whose path begins with that of a dropped table: a drop of `orders` deletes `orders2`."""
    answer = original(self).drop_table(client, request)
    table = self.tables.get(request.table)
    for name in self.storage.list(self.storage.root) if table is not None else ():
        if table is not None and name.startswith(table.name):
            self.storage.remove(f"{self.storage.root}/{name}")
    return answer


@mutant_method("drop_table", "PROFILE-DISCOVERY-01")
def drops_by_name(self: ModelOwner, client: str, request: m.DropTable) -> m.Answer:
    """Drops the table that has the name of the requested one now."""
    table = self.tables.get(request.table)
    now = None if table is None else self._find(table.name, None)
    return original(self).drop_table(client, request if now is None else m.DropTable(table=now))


@mutant_method("create_table", "PROFILE-DISCOVERY-01")
def dropped_names_stay_taken(self: ModelOwner, client: str, request: m.CreateTable) -> m.Answer:
    """Keeps the name of a dropped table taken."""
    for reference, table in self.tables.items():
        if table.name == request.name and not table.active and request.attempt not in table.landed:
            return m.Conflict(latest=table.latest, winner_table=reference)
    return original(self).create_table(client, request)


@mutant_method("commit", "PROFILE-DISCOVERY-02")
def references_are_names(self: ModelOwner, client: str, request: m.Commit) -> m.Answer:
    """Uses the table's name as its reference: a request for a dropped table reaches the new one of that name."""
    table = self.tables.get(request.table)
    if table is not None and not table.active:
        named = self._find(table.name, None)
        request = request if named is None else msgspec.structs.replace(request, table=named)
    return original(self).commit(client, request)


@mutant_method("drop_table", "PROFILE-DISCOVERY-02", "PROFILE-DISCOVERY-01", "PROFILE-DURABLE-01")
def restart_undoes_drops(self: ModelOwner, client: str, request: m.DropTable) -> m.Answer:
    """Keeps drops in memory only: after a restart the tables exist again."""
    before = dict(self.saved)
    answer = original(self).drop_table(client, request)
    self.saved.update(before)
    return answer
