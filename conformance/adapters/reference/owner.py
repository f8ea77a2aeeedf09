"""The reference owner as a subject of the kit.

Its methods are the owner together with its client side: they stage commits, write the owner's name into the metadata if
the table feature requires that, and translate. Everything else is `refimpl.owner`. Any number of processes of this
class may serve one warehouse at once.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

import refimpl
from conformance.adapters.log_folder import LogAccess, LogFolder, OutsideError, content_of
from conformance.adapters.reference import translation
from conformance.adapters.reference.host_effects import CRASH_POINTS, Killed, Life
from conformance.adapters.wire import DIRECTORY_VARIABLE
from conformance.interface import messages as m
from conformance.interface.subject import ProcessDied
from refimpl.owner.records import MAX_INLINE_BYTES, TableRecord
from refimpl.owner.statements import View
from refimpl.protocol import errors
from refimpl.protocol.actions import Metadata, Protocol
from refimpl.protocol.commit_owner import MaintenancePolicy, NameTaken, Registered, ResolvedTable, TableState
from refimpl.protocol.commits import (
    MAX_WINNERS,
    Conflict,
    DirectProposal,
    InlineProposal,
    Proposal,
    Ratified,
    StagedProposal,
    is_attempt_id,
)
from refimpl.protocol.groups import Member
from refimpl.protocol.table_feature import DOCUMENTED_FEATURES, CommitMode, TableFeature
from refimpl.storage.environment import Environment
from refimpl.storage.log_store import LogStore

PROFILES: Final = (
    "core", "version-0-by-owner", "version-0-by-filesystem", "staged", "inline", "direct-publish", "idempotent-retry",
    "attempt-outcome", "ownership-transfer", "durable-restart", "maintenance-policy", "backlog-limit", "discovery",
    "storage-access", "harness-control", "transaction-group",
)  # fmt: skip
PROMISES: Final = ("fresh-refusals", "fresh-direct", "tombstone-first")
COMMIT_MODES: Final = {
    name: tuple(commit_mode.value for commit_mode in CommitMode if commit_mode in feature.commit_modes)
    for name, feature in DOCUMENTED_FEATURES.items()
}
SYNCED_VARIABLE: Final = "CONFORMANCE_SYNCED"
BACKFILL_EVERY: Final = 3
"""After so many commits the owner backfills, if the kit leaves backfilling to the subject."""
FILESYSTEM_TABLES: Final = "filesystem"
"""The folder in the warehouse in which the kit may make tables without an owner."""


_Asked = TypeVar("_Asked", bound=m.Request)
_OnWarehouse = Callable[["ReferenceOwner", "refimpl.Warehouse", _Asked], m.Answer]


def _answering(method: _OnWarehouse[_Asked]) -> Callable[[ReferenceOwner, str, _Asked], m.Answer]:
    """A method that gets the warehouse of the running process, and whose errors become answers."""

    @functools.wraps(method)
    def ask(self: ReferenceOwner, _client: str, request: _Asked) -> m.Answer:
        return self._answered(lambda warehouse: method(self, warehouse, request))

    return ask


class ReferenceOwner(LogAccess):
    """Answers the owner side of the shared interface, from any thread.

    `directory`: the warehouse, created if it is missing; by default the folder in `CONFORMANCE_DIRECTORY`, otherwise a
    temporary one that `close` removes. `synced`: whether the owner waits until its bytes are on the disk, as it always
    does outside of the kit; the kit cuts no power. By default true if `CONFORMANCE_SYNCED` is set.
    """

    concurrent = True

    @staticmethod
    def opened(directory: Path, environment: Environment) -> refimpl.Warehouse:
        """The owner under test: a subclass may open another one."""
        return refimpl.open(directory, environment=environment, create=True)

    def __init__(self, directory: Path | None = None, *, synced: bool | None = None) -> None:
        self._synced = bool(os.environ.get(SYNCED_VARIABLE)) if synced is None else synced
        named = directory or os.environ.get(DIRECTORY_VARIABLE) or None
        self._temporary = tempfile.mkdtemp(prefix="conformance-reference-") if named is None else None
        self.directory = Path(named or self._temporary or "").resolve()
        self._process: OwnerProcess | None = None
        self._start()

    def _start(self) -> None:
        self._process = OwnerProcess(self.directory, Life(synced=self._synced), self.opened)
        (self.directory / FILESYSTEM_TABLES).mkdir(exist_ok=True)

    def close(self) -> None:
        """Stop cleanly. Idempotent."""
        if self._process is not None:
            self._process.stop()
            self._process = None
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _answered(self, ask: Callable[[refimpl.Warehouse], m.Answer]) -> m.Answer:
        """The answer; an error becomes an answer too. Raises `ProcessDied` from a simulated crash until the restart."""
        process = self._running()
        try:
            answer = ask(process.warehouse)
        except errors.DeltaError as error:
            answer = translation.failure(error)
        except OutsideError as error:
            answer = m.Rejected(reason=str(error))
        except Killed as killed:
            self._kill(process)
            raise ProcessDied(f"it died at {killed}") from None
        if process.life.dead:  # another thread killed it meanwhile: no process is left to answer
            self._kill(process)
            raise ProcessDied("it was crashed, as requested")
        return answer

    def _running(self) -> OwnerProcess:
        if self._process is None:
            raise ProcessDied("it was crashed, as requested")
        return self._process

    def _kill(self, process: OwnerProcess) -> None:
        process.life.end()
        if self._process is process:
            self._process = None

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        return m.Identity(
            name="reference",
            version=refimpl.__version__,
            interface_version=m.INTERFACE_VERSION,
            side="owner",
            profiles=PROFILES,
            features=tuple(DOCUMENTED_FEATURES),
            commit_modes=COMMIT_MODES,
            limits={"inline_bytes": MAX_INLINE_BYTES, "winners": MAX_WINNERS},
            shared_state=True,
            storage=str(self.directory / FILESYSTEM_TABLES),
            promises=PROMISES,
            crash_points=tuple(CRASH_POINTS),
        )

    # Committing

    @_answering
    def commit(self, warehouse: refimpl.Warehouse, request: m.Commit) -> m.Answer:
        proposal = self._proposal(warehouse, request)
        if isinstance(proposal, m.Rejected):
            return proposal
        return translation.outcome(warehouse.owner.commit(request.table, request.version, proposal))

    def _proposal(self, warehouse: refimpl.Warehouse, request: m.Commit) -> Proposal | m.Rejected:
        """The proposal that a client of the reference sends, in the table's commit mode. A staged file is durable
        before."""
        if (request.actions is None) == (request.staged_file is None):
            return m.Rejected(reason="a proposal is either actions or the name of a staged file")
        table = warehouse.owner.cached_record(request.table)
        if request.staged_file is not None:
            return StagedProposal(attempt=request.attempt, file_name=request.staged_file)
        content = content_of(request.actions or ())
        match table.commit_mode:
            case CommitMode.INLINE:
                return InlineProposal(attempt=request.attempt, content=content)
            case CommitMode.DIRECT:
                return DirectProposal(attempt=request.attempt, content=content)
            case CommitMode.STAGED:
                log = LogStore(table.location, warehouse.environment)
                return self._staged(log, table.feature, request, content)

    def _staged(
        self, log: LogStore, feature: TableFeature, request: m.Commit, content: bytes
    ) -> StagedProposal | m.Rejected:
        """Stage the file. A repeated request finds it, perhaps not durable yet, because its writer died or its disk
        failed. All requests of one attempt must have the same content."""
        if not is_attempt_id(request.attempt):
            return m.Rejected(reason=f"the attempt id {request.attempt!r} is not a lower-case uuid")
        try:
            name = log.stage(feature.staging_folder, request.version, request.attempt, content)
        except FileExistsError as error:
            name = Path(error.filename).name
            if log.read_staged(feature.staging_folder, name) != content:
                return m.Rejected(reason=f"{name} is staged with other actions; every try needs a new attempt id")
            log.stage_again(feature.staging_folder, name, content)
        return StagedProposal(attempt=request.attempt, file_name=name)

    @_answering
    def commit_group(self, warehouse: refimpl.Warehouse, request: m.CommitGroup) -> m.Answer:
        members = []
        for index, member in enumerate(request.members):
            alone = m.Commit(
                table=member.table, version=member.version, attempt=member.attempt, actions=member.actions,
                staged_file=member.staged_file,
            )  # fmt: skip
            proposal = self._proposal(warehouse, alone)
            if isinstance(proposal, m.Rejected):
                return m.GroupRefused(decided_by=index, answer=proposal)
            members.append(Member(table_id=member.table, version=member.version, proposal=proposal))
        return translation.group(warehouse.owner.commit_group(members))

    @_answering
    def load_tables(self, warehouse: refimpl.Warehouse, request: m.LoadTables) -> m.Answer:
        """Protocol and metadata are left out: those are read in another transaction."""
        tables = warehouse.owner.resolve_together([_reference(m.LoadTable(name=name)) for name in request.names])
        if any(table.state is not TableState.ACTIVE for table in tables):
            return m.NotFound()
        return m.Tables(
            tables=tuple(
                m.Table(
                    table=table.table_id, feature=table.feature_name, commit_mode=table.commit_mode.value,
                    latest=table.commits.latest_ratified_version, location=str(table.location),
                    commits=translation.entries(table.commits.commits),
                )
                for table in tables
            )
        )  # fmt: skip

    @_answering
    def attempt_outcome(self, warehouse: refimpl.Warehouse, request: m.AttemptOutcome) -> m.Answer:
        return translation.attempt_outcome(warehouse.owner.attempt_outcome(request.table, request.attempt))

    # Reading and publishing

    @_answering
    def get_commits(self, warehouse: refimpl.Warehouse, request: m.GetCommits) -> m.Answer:
        """A range that ends before it begins holds no commit here; the reference rejects such a range."""
        empty = request.end is not None and request.start is not None and request.end < request.start
        outcome = warehouse.owner.get_commits(request.table, request.start, request.start if empty else request.end)
        commits = () if empty else translation.entries(outcome.commits)
        return m.Commits(commits=commits, latest=outcome.latest_ratified_version)

    @_answering
    def backfill_to_version(self, warehouse: refimpl.Warehouse, request: m.BackfillToVersion) -> m.Answer:
        warehouse.owner.backfill_to_version(request.table, request.version)
        return m.Done()

    # Creating, finding and dropping

    @_answering
    def create_table(self, warehouse: refimpl.Warehouse, request: m.CreateTable) -> m.Answer:
        """catalog-managed, "Creating and Dropping": get a location, write version 0 there, then register the name. If
        the name is taken, the creator registers its version 0 with that table; the owner recognizes the table's own
        creator."""
        feature, owner = _feature_named(request.feature), warehouse.owner
        actions = translation.with_owner(request.actions, feature, owner.name)
        proposal = DirectProposal(attempt=request.attempt, content=content_of(actions))
        table_id = _place(warehouse, request, feature)
        if table_id is None:
            return m.Conflict()
        outcome = owner.register_table(table_id, proposal)
        if isinstance(outcome, NameTaken):  # another creator took the name between the two steps
            table_id = outcome.winner.table_id
            outcome = owner.register_table(table_id, proposal)
        match outcome:
            case Registered(commit=commit):
                return m.Ratified(version=commit.version, table=table_id)
            case NameTaken(winner=winner):
                return m.Conflict(latest=winner.commits.latest_ratified_version, winner_table=winner.table_id)
            case Conflict(latest_ratified_version=latest):
                return m.Conflict(latest=latest, winner_table=table_id)
            case _:
                return translation.outcome(outcome, table_id)

    @_answering
    def load_table(self, warehouse: refimpl.Warehouse, request: m.LoadTable) -> m.Answer:
        if (request.name is None) == (request.path is None):
            return m.Rejected(reason="give either a name or a path to find a table")
        table_id = _owned(warehouse, _reference(request)).table_id
        table, described = _described(warehouse, table_id)
        return m.Table(
            table=table_id,
            feature=table.feature_name,
            commit_mode=table.commit_mode.value,
            latest=table.commits.latest_ratified_version,
            location=str(table.location),
            commits=translation.entries(table.commits.commits),
            protocol=translation.action("protocol", described and described[0]),
            metadata=translation.action("metaData", described and described[1]),
        )

    @_answering
    def drop_table(self, warehouse: refimpl.Warehouse, request: m.DropTable) -> m.Answer:
        _owned(warehouse, request.table)
        warehouse.owner.drop_table(request.table)
        return m.Done()

    @_answering
    def maintenance_policy(self, warehouse: refimpl.Warehouse, request: m.MaintenancePolicy) -> m.Answer:
        allowed = _owned(warehouse, request.table).policy.allowed
        return m.Policy(allowed=tuple(sorted(job.value for job in allowed)))

    # Changing the owner

    @_answering
    def take_over(self, warehouse: refimpl.Warehouse, request: m.TakeOver) -> m.Answer:
        feature, owner, location = _feature_named(request.feature), warehouse.owner, Path(request.path)
        actions = translation.with_owner(request.actions, feature, owner.name)
        proposal = DirectProposal(attempt=request.attempt, content=content_of(actions))
        name = translation.table_name(request.name)
        outcome = owner.take_over(
            location, name, feature, request.version, proposal, commit_mode=_commit_mode_named(request.commit_mode)
        )
        try:
            table = owner.resolve(location).table_id if isinstance(outcome, Ratified) else None
        except errors.OwnerUnavailableError as error:  # the take-over landed, although its log cannot be read now
            return m.Unknown(reason=error.message)
        return translation.outcome(outcome, table)

    @_answering
    def hand_back(self, warehouse: refimpl.Warehouse, request: m.HandBack) -> m.Answer:
        proposal = DirectProposal(attempt=request.attempt, content=content_of(request.actions))
        return translation.outcome(warehouse.owner.hand_back(request.table, request.version, proposal))

    # Reading and changing the log's files for the kit

    def answered(self, ask: Callable[[], m.Answer]) -> m.Answer:
        return self._answered(lambda _: ask())

    def log_of(self, table: m.TableRef) -> LogFolder:
        return LogFolder(self._location(self._running().warehouse, table))

    def _location(self, warehouse: refimpl.Warehouse, table: str) -> Path:
        """The location of a table of the owner, in any state, or of a filesystem table of the kit."""
        if "/" not in table:
            return warehouse.owner.cached_record(table).location
        location, storage = Path(table), self.directory / FILESYSTEM_TABLES
        if ".." in location.parts or not location.is_relative_to(storage) or location == storage:
            raise OutsideError(f"{table!r} is not the path of a table below {storage}")
        return location

    # Crash and restart

    def crash(self, client: str, request: m.Crash) -> m.Answer:
        if request.point is not None and request.point not in CRASH_POINTS:
            return m.Unsupported(reason=f"unknown crash point {request.point!r}; expected {', '.join(CRASH_POINTS)}")
        process = self._running()
        if request.point is None:
            self._kill(process)
        else:
            process.life.crash_point = request.point
        return m.Done()

    def restart(self, client: str, request: m.Restart) -> m.Answer:
        """A process that still runs stops cleanly first."""
        if self._process is not None:
            self._process.stop()
        self._start()
        return m.Done()


class OwnerProcess:
    """One run of the owner, from its start until it stops or dies."""

    def __init__(
        self, directory: Path, life: Life, opened: Callable[[Path, Environment], refimpl.Warehouse]
    ) -> None:  # fmt: skip
        self.life = life
        self.warehouse = opened(directory, life.environment())

    def stop(self) -> None:
        with contextlib.suppress(Killed):
            self.warehouse.close()
        self.life.end()


# Creating tables, and finding them


def _feature_named(name: str) -> TableFeature:
    feature = DOCUMENTED_FEATURES.get(name)
    if feature is None:
        raise errors.InvalidRequestError(f"unknown table feature {name!r}; expected {' or '.join(DOCUMENTED_FEATURES)}")
    return feature


def _commit_mode_named(name: str) -> CommitMode:
    try:
        return CommitMode(name)
    except ValueError:
        known = ", ".join(commit_mode.value for commit_mode in CommitMode)
        raise errors.InvalidRequestError(f"unknown commit mode {name!r}; expected one of {known}") from None


def _place(warehouse: refimpl.Warehouse, request: m.CreateTable, feature: TableFeature) -> str | None:
    """The id of a new table with a location; or of the table that has the name; or of the table that an earlier send of
    this request created or began. A real client remembers that table, but the kit uses a new client at each send.

    None if another creator's version 0 exists at the requested location.
    """
    owner, commit_mode = warehouse.owner, _commit_mode_named(request.commit_mode)
    name = translation.table_name(request.name)
    location = None if request.path is None else Path(request.path)
    with owner.ledger.read() as view:
        created = [table for table in view.tables() if table.name == name and _created_by(view, table, request.attempt)]
        begun = None if location is None else view.table_at(location)
    if created:
        return created[0].table_id
    wanted = (TableState.STAGING, name, feature, commit_mode)
    if begun is not None and (begun.state, begun.name, begun.feature, begun.commit_mode) == wanted:
        return begun.table_id
    try:
        staged = owner.stage_table(name, feature, commit_mode=commit_mode, location=location, policy=_policy(request))
    except errors.NameTakenError as taken:
        holder: ResolvedTable = taken.winner
        return holder.table_id
    except errors.LocationError:
        if location is None or not LogStore(location, warehouse.environment).published(0):
            raise
        return None
    return staged.table_id


def _created_by(view: View, table: TableRecord, attempt: str) -> bool:
    """Whether version 0 of a table was this attempt, also if the table was dropped or renamed since."""
    known = view.attempt(table, attempt)
    return known is not None and known.landed is not None and known.landed.version == 0


def _policy(request: m.CreateTable) -> MaintenancePolicy:
    """With the backfill `subject`, the owner publishes several commits together, so that others see both published and
    unpublished commits."""
    policy = MaintenancePolicy()
    limit = policy.backlog_limit if request.backlog_limit is None else request.backlog_limit
    every = min(BACKFILL_EVERY, limit) if request.backfill == "subject" else None
    return msgspec.structs.replace(policy, backlog_limit=limit, backfill_every=every)


def _reference(request: m.LoadTable) -> str | Path:
    if request.path is not None:
        return Path(request.path)
    name = request.name or ""
    return name if is_attempt_id(name) else translation.table_name(name)


def _owned(warehouse: refimpl.Warehouse, reference: str | Path) -> ResolvedTable:
    """The table, if this owner owns it. Raises `TableNotFoundError`.

    The next writing request completes or forgets an interrupted take-over. So a backfill is sent here, which writes
    nothing else.
    """
    table = warehouse.owner.resolve(reference)
    if table.state is TableState.TAKING_OVER:
        warehouse.owner.backfill_to_version(table.table_id)
        table = warehouse.owner.resolve(reference)
    if table.state is not TableState.ACTIVE:
        raise errors.TableNotFoundError(f"{table.table_id} is {table.state.value}", table_id=table.table_id)
    return table


def _described(warehouse: refimpl.Warehouse, table_id: str) -> tuple[ResolvedTable, tuple[Protocol, Metadata] | None]:
    """The table with its latest protocol and metadata, read in one transaction; without them, if the owner has not
    recorded yet what it sees.

    catalog-managed, "Catalog Responsibilities", encourages owners to return both; the ledger has them.
    """
    owner = warehouse.owner
    described: list[tuple[int | None, tuple[Protocol, Metadata] | None]] = []

    def find(view: View) -> TableRecord:
        record = owner.required(view, table_id)
        described.append((record.latest, view.protocol_and_metadata(record.key)))
        return record

    for _ in range(2):  # the first answer may record a version that a writer of direct commits made visible
        table = owner.look_up_table(find)
        latest, current = described[-1]
        if latest == table.commits.latest_ratified_version:
            return table, current
    return table, None
