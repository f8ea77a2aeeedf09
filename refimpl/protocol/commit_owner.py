"""The protocol that every commit owner implements, with its messages.

This is all that a client knows of an owner. The Delta client defines it, as managed-commits,
"Commit Owner API", and catalog-managed, "Terminology: Delta Client", say it should.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from pathlib import Path
from typing import Final, Protocol

import msgspec

from refimpl.protocol.commits import (
    AttemptId,
    AttemptOutcome,
    CommitsAnswer,
    DirectProposal,
    Outcome,
    Proposal,
    RatifiedCommit,
)
from refimpl.protocol.errors import InvalidRequestError, check_type
from refimpl.protocol.log_path import Version
from refimpl.protocol.table_feature import TABLE_FEATURES, CommitMode, TableFeature


class Maintenance(Enum):
    """Jobs that a client may run only with the owner's permission.

    catalog-managed, "Maintenance Operations": an owner's policy covers all of them. In its stricter, accepted text the
    first three are allowed unless the owner forbids them, all others only if the owner allows them.
    """

    CHECKPOINT = "checkpoint"
    LOG_COMPACTION = "log-compaction"
    CHECKSUM = "checksum"
    METADATA_CLEANUP = "metadata-cleanup"
    VACUUM = "vacuum"
    OPTIMIZE = "optimize"
    REORG = "reorg"


ALLOWED_BY_DEFAULT = frozenset({Maintenance.CHECKPOINT, Maintenance.LOG_COMPACTION, Maintenance.CHECKSUM})

UNPUBLISHED_COMMITS: Final = 10
"""Unity Catalog rejects a commit when this many commits of the table are unpublished."""
SERVER_PUBLISHES_AFTER: Final = UNPUBLISHED_COMMITS // 2
CLIENT_PUBLISHES_AFTER: Final = UNPUBLISHED_COMMITS - 2
"""The server here publishes at a lower count. With other servers the client publishes; this leaves room for the
proposals of other clients."""


class MaintenancePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What the owner of a table lets clients do, and how often the owner publishes by itself."""

    allowed: frozenset[Maintenance] = ALLOWED_BY_DEFAULT
    backfill_every: int | None = 1
    """The owner backfills after this many commits; None: only on request."""
    backlog_limit: int = 1000
    """Maximum number of unbackfilled commits; further commits are rejected until a backfill."""
    hand_back: bool = True
    """Whether the owner accepts a hand-back of the table to the filesystem."""

    @property
    def backfills(self) -> str:
        """When the owner backfills, in words: `after every 8 commits`."""
        if self.backfill_every is None:
            return "on request"
        return "after every commit" if self.backfill_every == 1 else f"after every {self.backfill_every} commits"


MAX_BACKLOG_LIMIT: Final = 100_000


def checked_policy(policy: MaintenancePolicy | None) -> MaintenancePolicy:
    """The policy, by default the default one; `InvalidRequestError` for a field of another type or out of range."""
    policy = MaintenancePolicy() if policy is None else policy
    check_type("policy", policy, MaintenancePolicy, "a `MaintenancePolicy`")
    try:
        policy = msgspec.convert(msgspec.to_builtins(policy), MaintenancePolicy)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"invalid policy {policy!r}: {error}; expected a `MaintenancePolicy`") from None
    if not 1 <= policy.backlog_limit <= MAX_BACKLOG_LIMIT:
        raise InvalidRequestError(f"invalid backlog limit {policy.backlog_limit}; expected 1 to {MAX_BACKLOG_LIMIT}")
    if policy.backfill_every is not None and not 1 <= policy.backfill_every <= policy.backlog_limit:
        raise InvalidRequestError(
            f"cannot publish after every {policy.backfill_every} commits with a backlog limit of "
            f"{policy.backlog_limit}; expected a number from 1 to this limit, or never"
        )
    return policy


class TableState(Enum):
    """The state of a table at this owner."""

    STAGING = "staging"
    """Has a location; version 0 is not registered."""
    TAKING_OVER = "taking-over"
    """The owner recorded a promise to take it over; the ownership change is not visible yet."""
    ACTIVE = "active"
    HANDED_BACK = "handed-back"
    DROPPED = "dropped"


def next_version(latest: Version | None) -> Version:
    """The version after the latest one; 0 for a table without versions."""
    return 0 if latest is None else latest + 1


class _Table(msgspec.Struct, frozen=True, kw_only=True):
    """What every answer about a table has."""

    table_id: str
    name: str | None
    location: Path
    """Absolute; the log is in `<location>/_delta_log`."""
    commit_mode: CommitMode
    """How commits of this table are proposed."""
    state: TableState
    policy: MaintenancePolicy
    halted: str | None = None
    """Why the owner rejects commits until an operator repairs the table; None: it accepts them."""


class TableSummary(_Table, frozen=True, kw_only=True):
    """A table as its owner records it: without its commits, and without reading its log."""

    feature: TableFeature
    latest: Version | None = None
    """The latest ratified version: never forgotten, never lower than before."""
    backfilled: Version | None = None
    """Every version up to this one is published, durably."""

    @property
    def next(self) -> Version:
        """The only version that may be ratified now."""
        return next_version(self.latest)

    @property
    def first_unbackfilled(self) -> Version:
        return 0 if self.backfilled is None else self.backfilled + 1

    @property
    def backlog(self) -> int:
        """How many ratified commits are not published yet."""
        return self.next - self.first_unbackfilled

    @property
    def label(self) -> str:
        """How messages call the table."""
        return f"'{self.name}'" if self.name else f"table {self.table_id}"


class NewTableDemands(msgspec.Struct, frozen=True, kw_only=True):
    """What a catalog requires of version 0, in addition to the table feature's own rules."""

    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()
    properties: dict[str, str] = {}


class ResolvedTable(_Table, frozen=True, kw_only=True):
    """Everything that a client needs before it knows the table's protocol.

    catalog-managed, "Table Discovery" and "Getting Ratified Commits": the ratified commits are
    part of the resolution.
    """

    feature_name: str
    commits: CommitsAnswer
    demands: NewTableDemands | None = None
    """Set for a staging table."""
    permissions: Mapping[Maintenance, str] = {}  # msgspec copies it
    """What the owner calls the permission for a job, if it has another name."""

    @property
    def feature(self) -> TableFeature:
        return TABLE_FEATURES[self.feature_name]


class Registered(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Version 0 is ratified under the name."""

    table: ResolvedTable
    commit: RatifiedCommit


class NameTaken(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Another creator registered the name first; `winner` is its table."""

    winner: ResolvedTable


class Backfilled(msgspec.Struct, frozen=True, kw_only=True):
    """How far the log is published: every version up to `through` is `<v>.json`, durably. None: no version is."""

    through: Version | None
    published: int
    """How many commits this request published."""


class CommitOwner(Protocol):
    """A commit owner, as its client side sees it. All methods are safe to call from several processes."""

    name: str
    """The value of the table property that names the owner, where the table feature has one."""
    conf: Mapping[str, str]
    """The configuration that its tables get beside the name, for its client; may be empty."""

    def resolve(self, reference: str | Path) -> ResolvedTable:
        """The live table of this name, id or absolute path, before its protocol is known.

        Raises `TableNotFoundError`; a staging or handed-back table is found by id or path only.
        """
        ...

    def tables(self) -> Sequence[TableSummary]:
        """All live tables, by name, without their commits: a damaged commit of one does not hide the others."""
        ...

    def stage_table(
        self,
        name: str,
        feature: TableFeature,
        *,
        commit_mode: CommitMode | None = None,
        location: Path | None = None,
        policy: MaintenancePolicy | None = None,
    ) -> ResolvedTable:
        """Phase 1 of creation: a new storage location for a table that will get `name`.

        catalog-managed, "Creating and Dropping". The name is not reserved: registration decides.
        Raises `LocationError`, `InvalidRequestError` (name, or a commit mode that the feature lacks).
        """
        ...

    def register_table(self, table_id: str, proposal: DirectProposal) -> Registered | NameTaken | Outcome:
        """Phase 3 of creation: register the name, once the location holds version 0 with the proposal's bytes.

        `Conflict`: the location holds other bytes. `VersionGap(None)`: it holds no version 0.
        """
        ...

    def drop_table(self, table_id: str) -> None:
        """Forget the name; files and history stay. catalog-managed, "Creating and Dropping": a soft delete."""
        ...

    def commit(self, table_id: str, version: Version, proposal: Proposal) -> Outcome:
        """Atomically ratify `proposal` as the version, or return why not.

        managed-commits and catalog-managed, "Commit Protocol". Always returns `Ratified` for a
        proposal that landed. Raises `OutcomeUnknown` when the outcome cannot be determined.
        """
        ...

    def turn(self, table_id: str) -> AbstractContextManager[bool]:
        """A queue in which writers wait for their turn to commit, so that no writer starves. Advisory: an owner without
        a queue returns `nullcontext(False)`, and a commit outside of a turn is valid.

        The value says whether the writer waited for others; a call of `get_commits` then avoids a lost race.
        """
        ...

    def attempt_outcome(self, table_id: str, attempt: AttemptId) -> AttemptOutcome:
        """The final outcome of an attempt: an attempt that has not landed by now never will."""
        ...

    def get_commits(self, table_id: str, start: Version | None = None, end: Version | None = None) -> CommitsAnswer:
        """Commits the owner stores with start <= version <= end, and the latest ratified version.

        For a table that was handed back, the latest version is the hand-back commit, also after later commits.
        Raises `TableNotFoundError` for a table that was dropped.
        """
        ...

    def backfill_to_version(self, table_id: str, version: Version | None = None) -> Backfilled:
        """Publish, in order, at least all commits up to `version` (None: the latest).

        Raises `InvalidRequestError` for a version above the latest.
        """
        ...

    def report_published(self, table_id: str, through: Version) -> None:
        """Report that a client published every version up to `through`, durably. The owner verifies it, and may then
        forget these commits.

        catalog-managed, "Publishing Commits". Raises `InvalidRequestError` for a wrong report.
        """
        ...

    def take_over(
        self,
        location: Path,
        name: str,
        feature: TableFeature,
        version: Version,
        proposal: DirectProposal,
        *,
        commit_mode: CommitMode | None = None,
        policy: MaintenancePolicy | None = None,
    ) -> Outcome:
        """Own a filesystem table: `proposal` is the ownership change, and becomes `<version>.json` unless another
        commit is first. managed-commits, "Converting an existing filesystem based table".

        If the change sets the table feature's `table_id_property`, that new uuid becomes the table's id.
        """
        ...

    def hand_back(self, table_id: str, version: Version, proposal: DirectProposal) -> Outcome:
        """Give a table back: publish everything, then `proposal`, which removes the feature.
        managed-commits, "Converting a managed-commit table to filesystem table"."""
        ...
