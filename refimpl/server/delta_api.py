"""The calls of the Delta API: take a request's values, return an answer's shape, raise `ApiError` to reject.

An update is judged in the order of `refimpl.owner.decide`, each step with its own status. Before it come authentication
and shape, then the table and its uuid (404, 409):

    1. a replay of a commit that landed    200, permanently
    2. an attempt that was resolved        409
    3. a table that accepts no commits     400, 404
    4. a version that is taken, or a gap   409, 400
    5. the reported published versions, then the etag   400, 409
    6. the staged file, then the request's statements about it   400
    7. room in the backlog                 429
"""

import os
import stat
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

import msgspec

from refimpl.catalog.messages import (
    MANAGED,
    TABLE_ID,
    UNSUPPORTED_FORMAT,
    AddCommit,
    AssertEtag,
    AssertTableUuid,
    CommitTransaction,
    CreateTable,
    LoadedTable,
    LoadedTables,
    LoadTables,
    RemoveProperties,
    SetLatestBackfilledVersion,
    SetProperties,
    StagedTable,
    StageTable,
    TableChange,
    Update,
    UpdateSnapshotVersion,
    UpdateTable,
    WireCommit,
    path_of,
    tag_of,
)
from refimpl.catalog.owner import AttemptLookup, CatalogOwner, PreconditionFailed, TableDescription, UpdatePreconditions
from refimpl.protocol import actions, errors, log_path
from refimpl.protocol.actions import Action, Metadata, Protocol
from refimpl.protocol.commit_owner import (
    MaintenancePolicy,
    NameTaken,
    Registered,
    ResolvedTable,
    TableState,
    TableSummary,
    checked_policy,
)
from refimpl.protocol.commits import (
    MAX_COMMIT_BYTES,
    AttemptId,
    Conflict,
    DirectProposal,
    Landed,
    Outcome,
    Ratified,
    RatifiedCommit,
    Rejected,
    StagedProposal,
    VersionGap,
    is_attempt_id,
)
from refimpl.protocol.groups import MAX_MEMBERS, GroupRatified, GroupRefused, Member, check_readable
from refimpl.protocol.log_path import LOG_FOLDER, Version
from refimpl.protocol.table_feature import CATALOG_MANAGED
from refimpl.server import answers
from refimpl.server.errors import (
    ApiError,
    VersionConflictError,
    already_exists,
    bad_request,
    no_such_table,
    of_failed_precondition,
    of_rejection,
    requirement_conflict,
    unsupported_format,
)
from refimpl.server.last_change import LastChanges
from refimpl.server.names import Names, parts_of
from refimpl.server.request_validation import preconditions_of, properties_beside, with_creation
from refimpl.storage.log_store import LogStore
from refimpl.warehouse import Warehouse

COMMITS_KEPT: Final = 10_000
"""How many unpublished commits are cached in the API's shape."""


class DeltaApi:
    """The calls on one warehouse. Safe to share between threads.

    `policy`: for tables that are created here; `InvalidRequestError` if its limits contradict each other.
    """

    def __init__(self, warehouse: Warehouse, names: Names, policy: MaintenancePolicy) -> None:
        self.owner: CatalogOwner = warehouse.owner
        self.directory = warehouse.directory
        self.names = names
        self._policy = checked_policy(policy)
        self._environment = warehouse.environment
        self._files = warehouse.environment.files
        self.changes = LastChanges(self._files)
        self._commit_of_file = lru_cache(COMMITS_KEPT)(self._look_up_commit)
        """Cached, because every answer has all unpublished commits, and a ratified file does not change."""

    # Tables

    def live_names(self) -> list[str]:
        """The owner's names of the tables that the API serves."""
        return [table.name for table in self.owner.recorded_tables() if table.name is not None and is_served(table)]

    def check_schema(self, catalog: str, schema: str) -> None:
        self.names.check_schema(catalog, schema, self.live_names() if schema not in self.names.declared else ())

    def tables_in(self, catalog: str, schema: str) -> list[str]:
        """The names of a schema's tables, sorted."""
        self.check_schema(catalog, schema)
        names = (parts_of(name) for name in self.live_names())
        return sorted(parts[1] for parts in names if parts is not None and parts[0] == schema)

    def describe(self, catalog: str, schema: str, table: str) -> TableDescription:
        """The table; 400 for one that the API cannot express. Commits that it cannot express are published first."""
        full = f"{catalog}.{schema}.{table}"
        name = self.names.owner_name(catalog, schema, table)
        try:
            return self._served(full, self.owner.describe(name))
        except errors.InvalidRequestError:  # no table of this name, or without version 0, or dropped since
            self.check_schema(catalog, schema)
            raise no_such_table(full) from None

    def _describe_id(self, table_id: str) -> TableDescription:
        """`describe` for the table with this id."""
        try:
            return self._served(table_id, self.owner.describe(table_id))
        except errors.InvalidRequestError:
            raise no_such_table(table_id) from None

    def _served(self, full: str, description: TableDescription) -> TableDescription:
        if not is_served(description.table, live=False):
            raise unsupported_format(f"{full} is a {description.table.feature_name} table")
        if not is_served(description.table):
            raise no_such_table(full)
        return self._without_inline_commits(description)

    def _without_inline_commits(self, description: TableDescription) -> TableDescription:
        """The same state, with its inline commits published, because the API cannot express them. Commits that land
        meanwhile belong to a later state."""
        commits = description.table.commits
        if all(commit.file_name is not None for commit in commits.commits):
            return description
        self.owner.backfill_to_version(description.table.table_id, commits.latest_ratified_version)
        published = msgspec.structs.replace(commits, commits=())
        return msgspec.structs.replace(description, table=msgspec.structs.replace(description.table, commits=published))

    def load(self, catalog: str, schema: str, table: str) -> LoadedTable:
        return self._answer(self.describe(catalog, schema, table))

    def check_exists(self, catalog: str, schema: str, table: str) -> None:
        """Also a table that the API cannot express exists."""
        try:
            self.describe(catalog, schema, table)
        except ApiError as error:
            if error.kind != UNSUPPORTED_FORMAT:
                raise

    def drop(self, catalog: str, schema: str, table: str, table_id: str | None = None) -> None:
        """`table_id`: drop only the table with this id: UNITY_CATALOG.md#drop."""
        description = self.describe(catalog, schema, table)
        if table_id not in (None, description.table.table_id):
            raise no_such_table(f"{catalog}.{schema}.{table} with the id {table_id}")
        try:
            self.owner.drop_table(description.table.table_id)
        except errors.InvalidRequestError:  # another request dropped it first
            raise no_such_table(f"{catalog}.{schema}.{table}") from None

    def rename(self, catalog: str, schema: str, table: str, new_name: str) -> None:
        """Within the schema. Nothing else of the table changes."""
        name = self.names.new_owner_name(schema, new_name)
        seen = self._look_up(catalog, schema, table, None, None)
        self.owner.rename_table(seen.table.table_id, name, before=self.names.owner_name(catalog, schema, table))

    def staging_credentials(self, table_id: str) -> dict[str, Any]:
        return {"storage-credentials": answers.credentials(self.resolve_id(table_id).location, "READ_WRITE")}

    def resolve_id(self, table_id: str) -> ResolvedTable:
        """The table with this id, which may be staged."""
        try:
            return self.owner.resolve(_canonical(table_id))
        except errors.TableNotFoundError:
            raise no_such_table(table_id) from None

    def credentials(self, catalog: str, schema: str, table: str, operation: str) -> dict[str, Any]:
        if operation not in ("READ", "READ_WRITE"):
            raise bad_request(f"invalid operation {operation!r}; expected READ or READ_WRITE")
        description = self.describe(catalog, schema, table)
        return {"storage-credentials": answers.credentials(description.table.location, operation)}

    def _answer(self, description: TableDescription) -> LoadedTable:
        return answers.table(description, self._commit_shape, self.changes.of(description))

    def _answer_of_done(self, table_id: str) -> LoadedTable:
        """The answer to a completed request. The table's name may be another one since. If the table cannot be
        described now, the error must say that the request was carried out."""
        try:
            return self._answer(self._describe_id(table_id))
        except (ApiError, errors.DeltaError) as error:
            raise errors.OutcomeUnknown(
                f"the request was carried out, but the table cannot be described: {error.message}"
            ) from error

    def _commit_shape(self, folder: str, commit: RatifiedCommit) -> WireCommit:
        try:
            return self._commit_of_file(folder, commit)
        except FileNotFoundError:
            return answers.commit(commit, commit.ratified_at)

    def _look_up_commit(self, folder: str, commit: RatifiedCommit) -> WireCommit:
        """Raises `FileNotFoundError` for a missing file; this is not cached, because the file may be restored."""
        path = Path(folder, commit.file_name or "")
        status = self._files.stat(path)
        if status is None:
            raise FileNotFoundError(path)
        return answers.commit(commit, status.modified or commit.ratified_at)

    # Creation

    def stage(self, catalog: str, schema: str, request: StageTable) -> StagedTable:
        """Phase 1: a location for the new table. The name is not reserved."""
        self.check_schema(catalog, schema)
        name = self.names.new_owner_name(schema, request.name)
        staged = self.owner.stage_table(name, CATALOG_MANAGED, policy=self._policy, empty=True)
        return answers.staged(staged.table_id, staged.location)

    def create(self, catalog: str, schema: str, request: CreateTable) -> LoadedTable:
        """Phase 3: version 0 is at the location; register the name. A repeated request gets the same answer."""
        if not request.columns.fields:
            raise bad_request("a table needs at least one column")
        self.check_schema(catalog, schema)
        name = self.names.new_owner_name(schema, request.name)
        if request.table_type != MANAGED:
            raise bad_request(f"invalid table-type {request.table_type!r}; expected {MANAGED}")
        location = self._place(request.location)
        staged = None if location is None else self._staged(name, location)
        if staged is None:
            registered = () if location is None else self.owner.registered_at(location)
            if request.properties.get(TABLE_ID) in registered:  # the repeated request of its creator
                raise errors.OutcomeUnknown(f"the table at {location} was created, and renamed or dropped since")
            if self.owner.look_up(name, None, None) is not None:  # a loser's repeated request
                raise already_exists(f"Table already exists: {catalog}.{schema}.{request.name}")
            if registered:
                problem = f"the location {request.location} is that of the table {registered[-1]}"
                raise bad_request(f"{problem}; create a staging table first")
            raise no_such_table(f"none was staged for {name!r} at {request.location}; create a staging table first")
        content = self._first_version(staged)
        logged_actions, protocol, metadata = _table_actions(content)
        extra = properties_beside(metadata, request.properties)
        flaw = with_creation(request, staged.table_id, logged_actions, protocol, metadata)
        if flaw is not None:
            raise bad_request(flaw)
        attempt = str(uuid.uuid5(uuid.UUID(staged.table_id), "version 0"))
        self._make_folders_durable(staged)
        proposal = DirectProposal(attempt=attempt, content=content)
        outcome = self.owner.register_table(staged.table_id, proposal, properties=extra)
        match outcome:
            case Registered():
                return self._answer_of_done(staged.table_id)
            case NameTaken() | Conflict():
                raise already_exists(f"Table already exists: {catalog}.{schema}.{request.name}")
            case Rejected():
                raise of_rejection(outcome)
            case _:
                raise bad_request(f"version 0 of {name!r} could not be registered: {type(outcome).__name__}")

    def _make_folders_durable(self, staged: ResolvedTable) -> None:
        """Sync the log's folder, which the creator made, so that version 0 survives a power cut."""
        try:
            log = LogStore(staged.location, self._environment)
            log.create_folders(staged.feature.staging_folder)
        except OSError as error:
            raise errors.OwnerUnavailableError(f"cannot make the log of {staged.location} durable: {error}") from error

    def _place(self, location: str) -> Path | None:
        """The path of a location in the warehouse; None for any other text."""
        path = path_of(location)
        return None if path is None or ".." in path.parts or not path.is_relative_to(self.directory) else path

    def _staged(self, name: str, location: Path) -> ResolvedTable | None:
        """The table that was staged there for this name, and was not dropped; None if there is none."""
        try:
            table = self.owner.resolve(location)
        except errors.InvalidRequestError:
            return None
        if table.name != name or table.location != location or not is_served(table, live=False):
            return None
        return table

    def _first_version(self, staged: ResolvedTable) -> bytes:
        path = staged.location / LOG_FOLDER / log_path.commit(0)
        _refuse_all_but_files(str(path))
        status = self._files.stat(path)
        if status is None or status.is_directory:
            raise bad_request(f"version 0 is not at {path}; write it, then register the table")
        if status.size > MAX_COMMIT_BYTES:
            raise bad_request(f"{path} has {status.size} bytes; the limit is {MAX_COMMIT_BYTES}")
        return self._files.read(path)

    # Commits

    def update(
        self, catalog: str, schema: str, table: str, request: UpdateTable, *, shows_conflict: bool = False
    ) -> LoadedTable:
        """Carry out a request's updates, all or none. `shows_conflict`: a lost race is answered with the table."""
        updates, seen, preconditions = self._checked(partial(self._look_up, catalog, schema, table), request)
        try:
            self._carry_out(updates, seen, preconditions)
        except VersionConflictError as error:
            if shows_conflict:
                with suppress(Exception):  # the race is lost, even if the table cannot be shown
                    error.table = self.load(catalog, schema, table)
            raise
        return self._answer_of_done(seen.table.table_id)

    def _carry_out(self, updates: Mapping[type, Any], seen: AttemptLookup, preconditions: UpdatePreconditions) -> None:
        added = updates.get(AddCommit)
        if added is None:
            _refuse_reported_links(seen.table, preconditions)
            self._change(seen.table.table_id, preconditions)
        else:
            self._commit(seen, added.commit, _attempt_of(added.commit), preconditions)

    # The same for a table that a client names by its id and location; its name may change meanwhile.

    def update_by_id(self, table_id: str, location: str, updates: tuple[Update, ...]) -> None:
        table_id = _canonical(table_id)
        request = UpdateTable(updates=updates, requirements=(AssertTableUuid(uuid=table_id),))
        updates_of_kind, seen, preconditions = self._checked(partial(self._look_up_id, table_id), request)
        _refuse_other(seen.table, location)
        self._carry_out(updates_of_kind, seen, preconditions)

    def load_by_id(self, table_id: str, location: str) -> LoadedTable:
        description = self._describe_id(_canonical(table_id))
        _refuse_other(description.table, location)
        return self._answer(description)

    def _look_up_id(self, table_id: str, version: Version | None, attempt: AttemptId | None) -> AttemptLookup:
        seen = self.owner.look_up(table_id, version, attempt)
        if seen is None or not is_served(seen.table):
            self._describe_id(table_id)
            raise no_such_table(table_id)
        return seen

    # What an update requires

    def _checked(
        self, look_up: Callable[[Version | None, AttemptId | None], AttemptLookup], request: UpdateTable
    ) -> tuple[Mapping[type, Any], AttemptLookup, UpdatePreconditions]:
        """The updates by kind, the table that the request means, and its preconditions."""
        updates = _one_of_each(request.updates)
        required = _one_of_each(request.requirements or ())
        demanded = required.get(AssertTableUuid)
        if not request.updates:
            raise bad_request("At least one update is required.")
        if demanded is None:
            raise bad_request("the requirement assert-table-uuid is missing")
        if UpdateSnapshotVersion in updates:
            raise bad_request("update-metadata-snapshot-version is for tables that are not catalog-managed")
        changed, removed = updates.get(SetProperties), updates.get(RemoveProperties)
        if changed is not None and removed is not None and (both := changed.updates.keys() & set(removed.removals)):
            raise bad_request(f"the request sets and removes {', '.join(sorted(both))}; do one of them")
        added = updates.get(AddCommit)
        if added is not None and added.uniform is not None:
            raise bad_request("uniform is for tables that enable it, which this server does not support; leave it out")
        attempt = None if added is None else _attempt_of(added.commit)
        try:
            seen = look_up(None if added is None else added.commit.version, attempt)
            if demanded.uuid != seen.table.table_id:
                raise requirement_conflict(
                    f"assert-table-uuid failed: expected {demanded.uuid} but table has {seen.table.table_id}"
                )
        except ApiError:
            if attempt is not None:
                self._resolve_if_gone(demanded.uuid, attempt)
            raise
        etag = required.get(AssertEtag)
        preconditions = preconditions_of(updates, seen.table.table_id, None if etag is None else etag.etag)
        return updates, seen, preconditions

    def _look_up(
        self, catalog: str, schema: str, table: str, version: Version | None, attempt: AttemptId | None
    ) -> AttemptLookup:
        """The table from one read state. A table that is not served is rejected as in `describe`."""
        seen = self.owner.look_up(self.names.owner_name(catalog, schema, table), version, attempt)
        if seen is None or not is_served(seen.table):
            self.describe(catalog, schema, table)
            raise no_such_table(f"{catalog}.{schema}.{table}")
        return seen

    def _resolve_if_gone(self, table_id: str, attempt: AttemptId) -> None:
        """Resolve a proposal to a table that was dropped, handed back or renamed. If it did not land, it must not land
        after an undrop or another rename either: the answer says that it did not. Raises `OutcomeUnknown` if it landed.
        """
        seen = self.owner.look_up(table_id, None, None) if is_attempt_id(table_id) else None
        if seen is None or seen.table.state is TableState.STAGING or not is_served(seen.table, live=False):
            return  # it is not there yet, or this API commits nothing to it
        with suppress(errors.TableNotFoundError):
            outcome = self.owner.attempt_outcome(table_id, attempt)
            if isinstance(outcome, Landed):
                raise errors.OutcomeUnknown(
                    f"the commit landed as version {outcome.commit.version}; since then the table was dropped, handed "
                    "back or renamed",
                    version=outcome.commit.version,
                    attempt=attempt,
                )

    def _change(self, table_id: str, preconditions: UpdatePreconditions) -> None:
        refused = self.owner.update(table_id, preconditions)
        if isinstance(refused, PreconditionFailed):
            raise of_failed_precondition(refused)
        if refused is not None:
            raise of_rejection(refused)

    def _commit(
        self, seen: AttemptLookup, commit: WireCommit, attempt: AttemptId, preconditions: UpdatePreconditions
    ) -> None:
        """Sync the staged file, then commit. A replay and a proposal that already lost do not read the file. A version
        gap does: it may be filled meanwhile."""
        table, version = seen.table, commit.version
        if seen.lost:
            raise VersionConflictError(table.latest or 0)
        if version >= table.next:
            _refuse_reported_links(table, preconditions)
            self._make_durable(table, commit)
        proposal = StagedProposal(attempt=attempt, file_name=commit.file_name)
        raise_unless_ratified(self.owner.commit_if(table.table_id, version, proposal, preconditions))

    # Transactions over several tables

    def load_together(self, catalog: str, request: LoadTables) -> LoadedTables:
        """Several tables in one state of the owner."""
        check_readable(request.identifiers)
        tables = [(each.namespace[0], each.name) for each in request.identifiers]
        try:
            described = self.owner.describe_together([self.names.owner_name(catalog, *table) for table in tables])
        except errors.InvalidRequestError:
            for table in tables:
                self.describe(catalog, *table)  # names the table that cannot be served
            raise
        served = [self._served(".".join((catalog, *at)), each) for at, each in zip(tables, described, strict=True)]
        return LoadedTables(tables=tuple(map(self._answer, served)))

    def commit_together(self, catalog: str, request: CommitTransaction) -> None:
        """Commit to all tables of the request, or to none: UNITY_CATALOG.md#transactions."""
        members: list[Member] = []
        preconditions: list[UpdatePreconditions] = []
        if len(request.table_changes) > MAX_MEMBERS:
            raise bad_request(f"{len(request.table_changes)} table changes; expected at most {MAX_MEMBERS}")
        for index, change in enumerate(request.table_changes):
            try:
                member, demanded = self._member(catalog, change)
            except ApiError as error:
                error.member = index
                raise
            members.append(member)
            preconditions.append(demanded)
        outcome = self.owner.commit_group_if(members, preconditions)
        if isinstance(outcome, GroupRatified):
            return
        failed = outcome.outcome if isinstance(outcome, GroupRefused) else outcome.failed
        try:
            raise_unless_ratified(failed)
        except ApiError as error:
            at = request.table_changes[outcome.decided_by].identifier
            error.message = f"{'.'.join((catalog, *at.namespace, at.name))}: {error.message}; no table was changed"
            error.member = outcome.decided_by
            raise

    def _member(self, catalog: str, change: TableChange) -> tuple[Member, UpdatePreconditions]:
        """A member, whose staged file is durable then."""
        at = change.identifier
        updates, seen, preconditions = self._checked(partial(self._look_up, catalog, at.namespace[0], at.name), change)
        added = updates.get(AddCommit)
        if added is None:
            raise bad_request(f"the update add-commit of {at.name} is missing; a transaction has one for each table")
        if SetLatestBackfilledVersion in updates:
            raise bad_request(
                "set-latest-backfilled-version cannot be in a transaction; report it by an update of the table"
            )
        attempt, table = _attempt_of(added.commit), seen.table
        if added.commit.version >= table.next:
            self._make_durable(table, added.commit)
        proposal = StagedProposal(attempt=attempt, file_name=added.commit.file_name)
        return Member(table_id=table.table_id, version=added.commit.version, proposal=proposal), preconditions

    def _make_durable(self, table: TableSummary, commit: WireCommit) -> None:
        """Sync the staged file: clients write staged files without syncing them."""
        _refuse_all_but_files(f"{table.location}/{LOG_FOLDER}/{table.feature.staging_folder}/{commit.file_name}")
        self.owner.make_staged_durable(table.table_id, commit.file_name)


def raise_unless_ratified(outcome: Outcome | PreconditionFailed) -> None:
    match outcome:
        case Ratified():
            return
        case Conflict(latest_ratified_version=latest):
            raise VersionConflictError(latest)
        case VersionGap(latest_ratified_version=latest):
            raise bad_request(f"Commit version must be the next version after the latest commit {latest}")
        case Rejected():
            raise of_rejection(outcome)
        case PreconditionFailed():
            raise of_failed_precondition(outcome)


def _attempt_of(commit: WireCommit) -> AttemptId:
    """The uuid in the staged file's name; 400 for any other name."""
    name = log_path.parse_staged(commit.file_name)
    if name is None or name.uuid is None or name.version != commit.version or name.uuid not in commit.file_name:
        raise bad_request(
            f"invalid file-name {commit.file_name!r} for a staged commit of version {commit.version}; expected "
            f"{commit.version:020d}.<lower-case uuid>.json"
        )
    return name.uuid


def _canonical(table_id: str) -> str:
    """The id as the owner spells it; 404 for a text that no table can have as its id."""
    try:
        return str(uuid.UUID(table_id))
    except ValueError:
        raise no_such_table(table_id) from None


def _refuse_other(table: ResolvedTable | TableSummary, location: str) -> None:
    """404 for a table without a name in the API, 400 for one that is not at the location."""
    if table.name is None or parts_of(table.name) is None:
        raise no_such_table(table.table_id)
    if path_of(location) != table.location:
        raise bad_request(f"table_uri is {location!r}; the table {table.table_id} is at {table.location.as_uri()}")


def is_served(table: ResolvedTable | TableSummary, *, live: bool = True) -> bool:
    """Whether the API can express the table: catalog-managed, so not accessible by its path."""
    return not table.feature.path_access and (not live or table.state is TableState.ACTIVE)


def _one_of_each(items: Iterable[Any]) -> dict[type, Any]:
    """The items by their kind; 400 for two of a kind."""
    listed = list(items)
    counts = Counter(type(item) for item in listed)
    for kind, count in counts.items():
        if count > 1:
            raise bad_request(f"{count} times {tag_of(kind)}: at most one of each kind in a request")
    return {type(item): item for item in listed}


def _refuse_all_but_files(path: str) -> None:
    """400 for a symbolic link, which could lead to any file of any user, and for a pipe or a device, whose reader would
    wait. A missing file is judged later."""
    name = path.rpartition("/")[2]
    if os.path.realpath(path) != path:
        raise bad_request(f"{name} leads through a symbolic link; write a file into the table's own log")
    with suppress(FileNotFoundError, NotADirectoryError):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise bad_request(f"{name} is not a file; write a file into the table's own log")


def _refuse_reported_links(table: TableSummary, preconditions: UpdatePreconditions) -> None:
    """`_refuse_all_but_files` for the versions that are reported as published: if such a name were a link to the staged
    file, the commit's bytes would be deleted with that file."""
    latest, through = table.latest, preconditions.published_through
    if through is None or latest is None or through > latest:
        return
    for version in range(table.first_unbackfilled, through + 1):
        _refuse_all_but_files(f"{table.location}/{LOG_FOLDER}/{log_path.commit(version)}")


def _table_actions(content: bytes) -> tuple[list[Action], Protocol, Metadata]:
    try:
        parsed = actions.decode(content, source="version 0")
    except errors.CorruptLogError as error:
        raise bad_request(error.message) from None
    protocol = next((action for action in parsed if isinstance(action, Protocol)), None)
    metadata = next((action for action in parsed if isinstance(action, Metadata)), None)
    if protocol is None or metadata is None:
        raise bad_request("version 0 needs a protocol and a metaData action")
    return parsed, protocol, metadata
