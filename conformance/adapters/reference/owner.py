"""The reference owner as a subject of the kit.

Its methods are the owner together with its client side: they stage what is to be staged, name the owner in the
metadata where the table feature asks for that, and translate. Everything else is `refimpl.owner`. A warehouse may be
served by any number of processes of this class at once.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import refimpl
from conformance.adapters.reference import log_files, tables, translation
from conformance.adapters.reference.dying import CRASH_POINTS, Killed, Life
from conformance.adapters.wire import DIRECTORY_VARIABLE
from conformance.interface import messages as m
from conformance.interface.messages import INTERFACE_VERSION
from conformance.interface.subject import ProcessDied
from refimpl.commits import (
    MAX_WINNERS,
    DirectProposal,
    InlineProposal,
    Proposal,
    Ratified,
    StagedProposal,
    is_attempt_id,
)
from refimpl.errors import DeltaError, OwnerUnavailableError
from refimpl.log_store import LogStore
from refimpl.owner.policy import MAX_INLINE_BYTES
from refimpl.table_feature import DOCUMENTED_FEATURES, CommitMode, TableFeature

PROFILES: Final = (
    "core", "version-0-by-owner", "version-0-by-filesystem", "staged", "inline", "direct-publish", "idempotent-retry",
    "attempt-outcome", "ownership-transfer", "durable-restart", "maintenance-policy", "backlog-limit", "discovery",
    "storage-access", "harness-control",
)  # fmt: skip
PROMISES: Final = ("fresh-refusals", "fresh-direct", "tombstone-first")
COMMIT_MODES: Final = {
    name: tuple(commit_mode.value for commit_mode in CommitMode if commit_mode in feature.commit_modes)
    for name, feature in DOCUMENTED_FEATURES.items()
}
SYNCED_VARIABLE: Final = "CONFORMANCE_SYNCED"
FILESYSTEM_TABLES: Final = "filesystem"
"""The folder in the warehouse below which the kit may make tables without an owner."""


class ReferenceOwner:
    """Answers the owner side of the shared interface, from any thread.

    `directory`: the warehouse, made where there is none; by default what `CONFORMANCE_DIRECTORY` names, else a
    temporary directory that `close` removes. `synced`: whether it waits until its bytes are on the disk, as it does
    for everybody but the kit, which cuts no power; by default if `CONFORMANCE_SYNCED` is set.
    """

    def __init__(self, directory: Path | None = None, *, synced: bool | None = None) -> None:
        self._synced = bool(os.environ.get(SYNCED_VARIABLE)) if synced is None else synced
        named = directory or os.environ.get(DIRECTORY_VARIABLE) or None
        self._temporary = tempfile.mkdtemp(prefix="conformance-reference-") if named is None else None
        self.directory = Path(named or self._temporary or "").resolve()
        self._process: OwnerProcess | None = None
        self._start()

    def _start(self) -> None:
        self._process = OwnerProcess(self.directory, Life(synced=self._synced))
        (self.directory / FILESYSTEM_TABLES).mkdir(exist_ok=True)

    def close(self) -> None:
        """Stop in good order. Idempotent."""
        if self._process is not None:
            self._process.stop()
            self._process = None
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _answered(self, ask: Callable[[refimpl.Warehouse], m.Answer]) -> m.Answer:
        """The answer, errors included. Raises `ProcessDied` from a simulated crash until the restart."""
        process = self._process
        if process is None:
            raise ProcessDied("it was told to crash")
        try:
            answer = ask(process.warehouse)
        except DeltaError as error:
            answer = translation.failure(error)
        except log_files.OutsideError as error:
            answer = m.Rejected(reason=str(error))
        except Killed as killed:
            self._bury(process)
            raise ProcessDied(f"it died at {killed}") from None
        if process.life.dead:  # another thread killed it meanwhile: nobody is left who could answer
            self._bury(process)
            raise ProcessDied("it was told to crash")
        return answer

    def _bury(self, process: OwnerProcess) -> None:
        process.life.end()
        if self._process is process:
            self._process = None

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        return m.Identity(
            name="reference",
            version=refimpl.__version__,
            interface_version=INTERFACE_VERSION,
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

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        def ask(warehouse: refimpl.Warehouse) -> m.Answer:
            proposal = self._proposal(warehouse, request)
            if isinstance(proposal, m.Rejected):
                return proposal
            return translation.outcome(warehouse.owner.commit(request.table, request.version, proposal))

        return self._answered(ask)

    def _proposal(self, warehouse: refimpl.Warehouse, request: m.Commit) -> Proposal | m.Rejected:
        """What a client of the reference sends, in the table's commit mode; a staged file is durable before."""
        if (request.actions is None) == (request.staged_file is None):
            return m.Rejected(reason="a proposal is either actions or the name of a staged file")
        place = warehouse.owner.context.place(request.table)
        if request.staged_file is not None:
            return StagedProposal(attempt=request.attempt, file_name=request.staged_file)
        content = translation.content_of(request.actions or ())
        match place.commit_mode:
            case CommitMode.INLINE:
                return InlineProposal(attempt=request.attempt, content=content)
            case CommitMode.DIRECT:
                return DirectProposal(attempt=request.attempt, content=content)
            case CommitMode.STAGED:
                log = LogStore(place.location, warehouse.environment)
                return self._staged(log, place.feature, request, content)

    def _staged(
        self, log: LogStore, feature: TableFeature, request: m.Commit, content: bytes
    ) -> StagedProposal | m.Rejected:
        """A request that is sent again finds its file, perhaps not durable, because its writer died or its disk
        failed; one attempt has one content."""
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

    def attempt_outcome(self, client: str, request: m.AttemptOutcome) -> m.Answer:
        return self._answered(
            lambda warehouse: translation.attempt_outcome(
                warehouse.owner.attempt_outcome(request.table, request.attempt)
            )
        )

    # Reading and publishing

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        """The reference takes a range that ends before it begins for a mistake; here it holds no commit."""

        def ask(warehouse: refimpl.Warehouse) -> m.Answer:
            empty = request.end is not None and request.start is not None and request.end < request.start
            told = warehouse.owner.get_commits(request.table, request.start, request.start if empty else request.end)
            commits = () if empty else translation.entries(told.commits)
            return m.Commits(commits=commits, latest=told.latest_ratified_version)

        return self._answered(ask)

    def backfill_to_version(self, client: str, request: m.BackfillToVersion) -> m.Answer:
        def ask(warehouse: refimpl.Warehouse) -> m.Answer:
            warehouse.owner.backfill_to_version(request.table, request.version)
            return m.Done()

        return self._answered(ask)

    # Creating, finding and dropping

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        return self._answered(lambda warehouse: tables.create(warehouse, request))

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        return self._answered(lambda warehouse: tables.load(warehouse, request))

    def drop_table(self, client: str, request: m.DropTable) -> m.Answer:
        def ask(warehouse: refimpl.Warehouse) -> m.Answer:
            tables.owned(warehouse, request.table)
            warehouse.owner.drop_table(request.table)
            return m.Done()

        return self._answered(ask)

    def maintenance_policy(self, client: str, request: m.MaintenancePolicy) -> m.Answer:
        def ask(warehouse: refimpl.Warehouse) -> m.Answer:
            allowed = tables.owned(warehouse, request.table).policy.allowed
            return m.Policy(allowed=tuple(sorted(job.value for job in allowed)))

        return self._answered(ask)

    # Changing the owner

    def take_over(self, client: str, request: m.TakeOver) -> m.Answer:
        def ask(warehouse: refimpl.Warehouse) -> m.Answer:
            feature, owner, location = tables.feature_named(request.feature), warehouse.owner, Path(request.path)
            actions = translation.with_owner(request.actions, feature, owner.name)
            proposal = DirectProposal(attempt=request.attempt, content=translation.content_of(actions))
            name = translation.table_name(request.name)
            told = owner.take_over(
                location,
                name,
                feature,
                request.version,
                proposal,
                commit_mode=tables.commit_mode_named(request.commit_mode),
            )
            try:
                table = owner.resolve(location).table_id if isinstance(told, Ratified) else None
            except OwnerUnavailableError as error:  # it landed, whatever the disk says of its log now
                return m.Unknown(reason=error.message)
            return translation.outcome(told, table)

        return self._answered(ask)

    def hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        def ask(warehouse: refimpl.Warehouse) -> m.Answer:
            content = translation.content_of(request.actions)
            proposal = DirectProposal(attempt=request.attempt, content=content)
            return translation.outcome(warehouse.owner.hand_back(request.table, request.version, proposal))

        return self._answered(ask)

    # The kit's eyes and hands

    def observe(self, client: str, request: m.Observe) -> m.Answer:
        return self._answered(
            lambda warehouse: m.Observation(
                files=log_files.listed(self._location(warehouse, request.table), contents=request.contents)
            )
        )

    def plant(self, client: str, request: m.Plant) -> m.Answer:
        def ask(warehouse: refimpl.Warehouse) -> m.Answer:
            location = self._location(warehouse, request.table)
            planted = log_files.plant(
                location, request.file, request.content, if_absent=request.if_absent, modified=request.modified
            )
            return m.Done() if planted else m.Conflict()

        return self._answered(ask)

    def remove(self, client: str, request: m.Remove) -> m.Answer:
        def ask(warehouse: refimpl.Warehouse) -> m.Answer:
            log_files.remove(self._location(warehouse, request.table), request.file)
            return m.Done()

        return self._answered(ask)

    def _location(self, warehouse: refimpl.Warehouse, table: str) -> Path:
        """Of a table of the owner, in whatever state, or of a filesystem table of the kit."""
        if "/" not in table:
            return warehouse.owner.context.place(table).location
        location, storage = Path(table), self.directory / FILESYSTEM_TABLES
        if ".." in location.parts or not location.is_relative_to(storage) or location == storage:
            raise log_files.OutsideError(f"{table!r} is no path of a table below {storage}")
        return location

    # Dying and starting again

    def crash(self, client: str, request: m.Crash) -> m.Answer:
        if request.point is not None and request.point not in CRASH_POINTS:
            return m.Unsupported(reason=f"crash points are {', '.join(CRASH_POINTS)}; not {request.point}")
        process = self._process
        if process is None:
            raise ProcessDied("it was told to crash before")
        if request.point is None:
            self._bury(process)
        else:
            process.life.deadly = request.point
        return m.Done()

    def restart(self, client: str, request: m.Restart) -> m.Answer:
        """What is still alive stops in good order first."""
        if self._process is not None:
            self._process.stop()
        self._start()
        return m.Done()


class OwnerProcess:
    """One start of the owner, until it stops or dies."""

    def __init__(self, directory: Path, life: Life) -> None:
        self.life = life
        self.warehouse = refimpl.open(directory, environment=life.environment(), create=True)

    def stop(self) -> None:
        with contextlib.suppress(Killed):
            self.warehouse.close()
        self.life.end()
