"""The commit owner of this host: decisions made durable, under one file lock.

1. Stage, read, hash, parse: outside the lock.
2. Decide: under the lock, in one transaction, which is the commit point.
3. Backfill, if the policy requires it: after the lock, under the table's publishing lock. A failed backfill does not
make the commit fail.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from refimpl.owner import decide, lifecycle, policy
from refimpl.owner.backfill import backfill, record_published
from refimpl.owner.context import Context, disk_errors
from refimpl.owner.ledger import Ledger
from refimpl.owner.promises import promise_of
from refimpl.owner.records import AttemptRecord, Examined, PromiseKind, TableRecord
from refimpl.owner.statements import View, Writer
from refimpl.protocol import commit_owner, commits, log_path
from refimpl.protocol.errors import (
    DeltaError,
    InvalidRequestError,
    OutcomeUnknown,
    OwnerUnavailableError,
    TableNotFoundError,
)
from refimpl.protocol.log_path import Version
from refimpl.protocol.table_feature import CommitMode, TableFeature
from refimpl.storage.environment import Environment

OWNER_FOLDER = "_owner"
LOCK_FILE = "lock"
DEFAULT_NAME = "refimpl"
_LOST_KEPT = 1000
_DOUBTS_KEPT = 10_000
_NAMES_SHOWN = 20

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The outcome of a proposal, durable if it is `Ratified`; whether the policy requires a backfill now (`due`), and
    whether the next commit should wait for it (`overdue`)."""

    outcome: commits.Outcome
    due: bool = False
    overdue: bool = False


class LocalOwner:
    """A `CommitOwner` for any number of processes on one host; the contracts are there.

    Safe to share between threads, and across `fork`: a child opens its own connections.
    """

    name = DEFAULT_NAME
    conf: Mapping[str, str] = {}

    def __init__(self, warehouse: Path, environment: Environment) -> None:
        folder = warehouse / OWNER_FOLDER
        lock = environment.host_lock(folder / LOCK_FILE)
        self._context = Context(warehouse, Ledger(folder, lock, environment), lock, environment)
        self._lost: list[tuple[int, Version, commits.AttemptId, int]] = []
        self._due: set[str] = set()
        """Tables whose policies require a backfill now."""
        self._in_doubt: dict[str, object] = {}
        """Staged files whose fsync failed, or is under way, in this process; other processes see the marks of failed
        ones, unless the disk failed."""

    @property
    def ledger(self) -> Ledger:
        return self._context.ledger

    @property
    def context(self) -> Context:
        """The shared parts, for the rooms around the core."""
        return self._context

    # Tables

    def resolve(self, reference: str | Path) -> commit_owner.ResolvedTable:
        resolved = self._context.resolve(lambda view: self._find(view, reference))
        if resolved.state is commit_owner.TableState.TAKING_OVER:
            self._settle(resolved.table_id)
            return self._context.resolve(lambda view: self._find(view, reference))
        return resolved

    def _settle(self, table_id: str) -> None:
        """Wait for a running take-over, or end one whose process died."""
        with disk_errors("finish a take-over"), self._context.lock():
            with self.ledger.read() as view:
                table = view.table(table_id)
            if table is not None and table.promised:
                self._context.settle(table)

    def _find(self, view: View, reference: str | Path) -> TableRecord:
        if isinstance(reference, Path) or "/" in reference:
            try:
                table = view.table_at(Path(reference).resolve())
            except (OSError, RuntimeError, ValueError):  # too long, a loop of links, not text: no table is there
                table = None
        elif commits.is_attempt_id(reference):
            table = view.table(reference)
        else:
            table = view.table_named(policy.checked_name(reference))
        if table is None or table.state is commit_owner.TableState.DROPPED:
            names = view.names(_NAMES_SHOWN + 1)
            known = ", ".join(names[:_NAMES_SHOWN]) + (" and others" if len(names) > _NAMES_SHOWN else "")
            raise TableNotFoundError(
                f"unknown table {str(reference)!r}; the tables are: {known or 'none'}", reference=str(reference)
            )
        return table

    def tables(self) -> Sequence[commit_owner.TableSummary]:
        return self.recorded_tables()

    def recorded_tables(self) -> Sequence[commit_owner.TableSummary]:
        with self.ledger.read() as view:
            return [table for table in view.tables() if table.state is commit_owner.TableState.ACTIVE]

    def stage_table(
        self,
        name: str,
        feature: TableFeature,
        *,
        commit_mode: CommitMode | None = None,
        location: Path | None = None,
        policy: commit_owner.MaintenancePolicy | None = None,
        empty: bool = False,
    ) -> commit_owner.ResolvedTable:
        with disk_errors(f"create {name!r}"):
            return lifecycle.stage_table(self._context, name, feature, commit_mode, location, policy, empty)

    def register_table(
        self, table_id: str, proposal: commits.DirectProposal
    ) -> commit_owner.Registered | commit_owner.NameTaken | commits.Outcome:
        return self._registered(table_id, proposal, lambda _writer, _table, _examined: None)

    def _registered(
        self, table_id: str, proposal: commits.DirectProposal, also: lifecycle.Also
    ) -> commit_owner.Registered | commit_owner.NameTaken | commits.Outcome:
        with _reported("register a table", table_id, 0, proposal.attempt):
            return lifecycle.register_table(self._context, self.name, table_id, proposal, also)

    def drop_table(self, table_id: str) -> None:
        with disk_errors("drop a table"):
            lifecycle.drop_table(self._context, table_id)

    def set_policy(self, table_id: str, wanted: commit_owner.MaintenancePolicy) -> None:
        """Set which jobs clients may run on a table, and how it is backfilled."""
        self.change_policy(table_id, lambda _: wanted)

    def change_policy(
        self, table_id: str, change: Callable[[commit_owner.MaintenancePolicy], commit_owner.MaintenancePolicy]
    ) -> commit_owner.MaintenancePolicy:
        """Set the policy to `change` of the current one, in one transaction; returns the new policy."""
        with disk_errors("change a policy"), self._context.lock(), self._context.changing(table_id) as (writer, table):
            changed = policy.checked_policy(change(table.policy))
            if changed != table.policy:
                writer.set_policy(table, changed)
        return changed

    # Commits

    def commit(self, table_id: str, version: Version, proposal: commits.Proposal) -> commits.Outcome:
        return self._commit(table_id, version, proposal)

    def _commit(
        self,
        table_id: str,
        version: Version,
        proposal: commits.Proposal,
        as_request: Callable[[Examined], Examined] = lambda examined: examined,
    ) -> commits.Outcome:
        flaw = decide.message_flaw(log_path.checked(version), proposal)
        if flaw is not None:
            return flaw
        cached = self._context.cached_record(table_id)
        try:
            examined = as_request(self._examined(cached, version, proposal))
            decided = self._decided(cached, examined)
        except (OutcomeUnknown, OwnerUnavailableError, OSError) as error:
            raise _report(error, f"commit to {cached.label}", table_id, version, proposal.attempt) from error
        if decided.overdue:
            self._backfill_by_policy(cached)
        elif decided.due and cached.table_id not in self._due:
            self._due.add(cached.table_id)
            self._context.environment.afterwards(lambda: self._backfill_when_due(cached))
        return decided.outcome

    def _examined(self, cached: TableRecord, version: Version, proposal: commits.Proposal) -> Examined:
        """The parsed proposal. It is read before the lock is taken: its bytes never change."""
        if not isinstance(proposal, commits.StagedProposal):
            return decide.examine(cached.feature, version, proposal, proposal.content)
        log, folder = self._context.log(cached), cached.feature.staging_folder
        size = log.staged_size(folder, proposal.file_name)
        if size is None or size > decide.size_limit(CommitMode.STAGED):
            return decide.unread(version, proposal, size)
        try:
            content = log.read_staged(folder, proposal.file_name)
        except FileNotFoundError:
            return decide.unread(version, proposal, None)
        return decide.examine(cached.feature, version, proposal, content)

    def make_staged_durable(self, table_id: str, file_name: str) -> None:
        """Order: fsync file, fsync directory. After a failed fsync, a second one may report success for lost data:
        when the client sends the same file again, the same bytes become a new file, also if another process gets the
        request."""
        cached = self._context.cached_record(table_id)
        log, folder = self._context.log(cached), cached.feature.staging_folder
        try:
            with contextlib.suppress(FileNotFoundError):
                mine = object()  # in doubt before the fsync: the same request may arrive again while it fails
                if self._in_doubt.setdefault(file_name, mine) is mine and not log.is_doubtful(file_name):
                    log.make_staged_durable(folder, file_name)
                elif (log.staged_size(folder, file_name) or 0) <= decide.size_limit(CommitMode.STAGED):
                    log.stage_again(folder, file_name, log.read_staged(folder, file_name))
                    log.mark_doubtful(file_name, doubtful=False)
        except OSError as error:
            log.mark_doubtful(file_name, doubtful=True)
            for oldest in [*self._in_doubt][:-_DOUBTS_KEPT]:
                self._in_doubt.pop(oldest, None)
            raise OwnerUnavailableError(f"cannot make {file_name} durable: {error}; nothing was committed") from error
        self._in_doubt.pop(file_name, None)

    def _decided(self, cached: TableRecord, examined: Examined) -> Decision:
        with self._context.lock():
            return self._decide_alone(cached, examined)

    def _decide_alone(self, cached: TableRecord, examined: Examined) -> Decision:
        """Decide one proposal in a transaction of its own; one whose commit point is a file, in two."""
        context = self._context
        with context.changing(cached.table_id) as (writer, table):
            verdict = self._judge(writer, table, examined)
            if not isinstance(verdict, decide.Ratify):
                return Decision(outcome=verdict)
            if not isinstance(examined.proposal, commits.DirectProposal):
                return self._ratified(writer, table, verdict)
            promise = promise_of(PromiseKind.PUBLISH, examined, context.now)
            writer.add_promise(table, promise)
        published = context.keep(table, promise)
        if published is not None:
            return Decision(outcome=commits.Ratified(commit=published))
        with context.changing(cached.table_id) as (writer, table):
            verdict = self._judge(writer, table, examined)
        if isinstance(verdict, decide.Ratify):
            raise OwnerUnavailableError(f"the log of {cached.label} changed during the commit; propose again")
        return Decision(outcome=verdict)

    def _ratified(self, writer: Writer, table: TableRecord, verdict: decide.Ratify) -> Decision:
        """Write the decision. The end of the transaction is the commit point."""
        self._record_lost(writer)
        examined = verdict.examined
        commit_mode = commits.COMMIT_MODE_OF[type(examined.proposal)]
        commit = writer.ratify(table, examined, commit_mode, self._context.now, published=False)
        backlog, every, limit = table.backlog + 1, table.policy.backfill_every, table.policy.backlog_limit
        due = every is not None and backlog >= every
        overdue = every is not None and (backlog >= 2 * every or backlog + every > limit)
        return Decision(outcome=commits.Ratified(commit=commit), due=due, overdue=due and overdue)

    def _judge(self, writer: Writer, table: TableRecord, examined: Examined) -> decide.Ratify | commits.Outcome:
        attempt = writer.attempt_at(table, examined.version, examined.proposal.attempt)
        unknown = self._context.unknown_published_version(table) if examined.version >= table.next else None
        verdict = self._verdict(writer, table, examined, attempt, unknown)
        if isinstance(verdict, commits.Conflict):
            verdict = self._lost_race(writer, table, examined, verdict)
        if isinstance(verdict, commits.Rejected) and attempt is None and table.state is commit_owner.TableState.DROPPED:
            # A repeated request that arrives after an undrop must not land either.
            writer.add_tombstone(table.table_id, examined.proposal.attempt, self._context.now)
        return verdict

    def _verdict(
        self,
        writer: Writer,
        table: TableRecord,
        examined: Examined,
        attempt: AttemptRecord | None,
        unknown: Version | None,
    ) -> decide.Ratify | commits.Outcome:
        needs_current = examined.protocol is not None or examined.metadata is not None
        current = writer.protocol_and_metadata(table.key) if needs_current else None
        return decide.decide(table, examined, attempt, unknown_published=unknown, current=current)

    def _lost_race(
        self, writer: Writer, table: TableRecord, examined: Examined, conflict: commits.Conflict
    ) -> commits.Conflict:
        """The conflict with the commits that won. `explain` shows the lost attempt later."""
        self._remember_lost(table, examined.version, examined.proposal.attempt)
        winners = writer.commits(table, examined.version, conflict.latest_ratified_version, limit=commits.MAX_WINNERS)
        if winners and winners[0].version != examined.version:  # versions from before this owner
            winners = ()
        return commits.Conflict(latest_ratified_version=conflict.latest_ratified_version, winners=winners)

    def _remember_lost(self, table: TableRecord, version: Version, attempt: commits.AttemptId) -> None:
        if len(self._lost) < _LOST_KEPT:
            self._lost.append((table.key, version, attempt, self._context.now))

    def _record_lost(self, writer: Writer) -> None:
        """Record lost races in the next transaction of this process, so that they need no transaction of their own."""
        lost, self._lost = self._lost, []
        for key, version, attempt, lost_at in lost:
            writer.add_lost(key, version, attempt, lost_at)

    def turn(self, table_id: str) -> AbstractContextManager[bool]:  # noqa: ARG002
        return contextlib.nullcontext(False)

    def attempt_outcome(self, table_id: str, attempt: commits.AttemptId) -> commits.AttemptOutcome:
        if not commits.is_attempt_id(attempt):
            raise InvalidRequestError(f"{attempt!r} is not an attempt id; expected a lower-case uuid", attempt=attempt)
        with self.ledger.read() as view:
            seen = view.attempt(self._context.required(view, table_id), attempt)
        flaw: DeltaError | None = None
        if seen is None:
            with (
                disk_errors(f"resolve {attempt}"),
                self._context.lock(),
                self._context.changing(table_id) as (writer, table),
            ):
                seen = writer.attempt(table, attempt)
                if seen is None:
                    active = table.state is commit_owner.TableState.ACTIVE
                    unknown = self._context.unknown_published_version(table) if active else None
                    lost = writer.attempts_are_lost(table)
                    flaw = decide.unresolvable(table, attempt, unknown_published=unknown, attempts_are_lost=lost)
                    if flaw is None:
                        writer.add_tombstone(table_id, attempt, self._context.now)
        if flaw is not None:
            raise flaw
        return commits.NotLanded() if seen is None or seen.landed is None else commits.Landed(commit=seen.landed)

    def get_commits(
        self, table_id: str, start: Version | None = None, end: Version | None = None
    ) -> commits.CommitsAnswer:
        log_path.check_range(start, end)
        return self._context.answer(table_id, start, end)

    # Backfill and ownership

    def backfill_to_version(self, table_id: str, version: Version | None = None) -> commit_owner.Backfilled:
        if version is not None:
            log_path.checked(version)
        with disk_errors("backfill"):
            return backfill(self._context, table_id, version)

    def report_published(self, table_id: str, through: Version) -> None:
        with disk_errors("record published versions"):
            flaw = record_published(self._context, table_id, log_path.checked(through))
        if flaw is not None:
            raise InvalidRequestError(flaw, version=through)

    def _backfill_when_due(self, cached: TableRecord) -> None:
        self._due.discard(cached.table_id)  # first: this backfill may miss commits that land from now on
        self._backfill_by_policy(cached)

    def _backfill_by_policy(self, cached: TableRecord) -> None:
        try:
            # A commit publishes one batch at most, and waits for one batch of another process at most.
            backfill(self._context, cached.table_id, None, batches=1)
        except (DeltaError, OSError) as error:
            # The commit landed: a failed backfill must not make it fail.
            logger.warning("backfill of %s after a commit failed; the next commit tries again: %s", cached.label, error)

    def take_over(
        self,
        location: Path,
        name: str,
        feature: TableFeature,
        version: Version,
        proposal: commits.DirectProposal,
        *,
        commit_mode: CommitMode | None = None,
        policy: commit_owner.MaintenancePolicy | None = None,
    ) -> commits.Outcome:
        log_path.checked(version)
        with _reported(f"take over {location}", None, version, proposal.attempt):
            return lifecycle.take_over(
                self._context, self.name, location, name, feature, version, proposal, commit_mode, policy
            )

    def hand_back(self, table_id: str, version: Version, proposal: commits.DirectProposal) -> commits.Outcome:
        log_path.checked(version)
        with _reported("hand a table back", table_id, version, proposal.attempt):
            return lifecycle.hand_back(self._context, table_id, version, proposal)

    def identify(self, name: str | None, conf: Mapping[str, str] | None) -> None:
        """Load the owner's name and configuration, after setting those that are not None: in one transaction, so that
        two processes cannot give it two names. Raises `InvalidRequestError`."""
        if name is not None or conf is not None:
            with disk_errors("name the owner"), self._context.lock(), self.ledger.write() as writer:
                known, stored = writer.identity()
                has_tables = name is not None and bool(writer.tables())
                flaw = decide.identity_flaw(known or DEFAULT_NAME, name, conf, has_tables=has_tables)
                if flaw is not None:
                    raise InvalidRequestError(flaw)
                writer.set_identity(name or known or DEFAULT_NAME, stored if conf is None else conf)
        with self.ledger.read() as view:
            known, self.conf = view.identity()
        self.name = known or DEFAULT_NAME

    def add_roots(self, roots: list[Path]) -> None:
        """Allow take-overs below these directories too."""
        with disk_errors("store the roots"), self._context.lock(), self.ledger.write() as writer:
            writer.set_roots(tuple(dict.fromkeys((*writer.roots(), *roots))))

    def close(self) -> None:
        """Store the remembered lost races, if possible, and close this thread's connection."""
        if self._lost:
            with contextlib.suppress(DeltaError), self._context.lock(), self.ledger.write() as writer:
                self._record_lost(writer)
        self.ledger.close()


@contextlib.contextmanager
def _reported(doing: str, table_id: str | None, version: Version, attempt: commits.AttemptId) -> Iterator[None]:
    """Translates the errors of a request that commits."""
    try:
        yield
    except (OutcomeUnknown, OwnerUnavailableError, OSError) as error:
        raise _report(error, doing, table_id, version, attempt) from error


def _report(
    error: OutcomeUnknown | OwnerUnavailableError | OSError,
    doing: str,
    table_id: str | None,
    version: Version,
    attempt: commits.AttemptId,
) -> DeltaError:
    """The error to raise. An unknown outcome names the attempt. The outcome of a repeated attempt is unknown, too, if
    its interrupted commit cannot be completed now. In all other cases nothing landed."""
    if isinstance(error, OSError):
        return OwnerUnavailableError(f"cannot {doing}: {error}; nothing was committed")
    if isinstance(error, OwnerUnavailableError) and error.facts.get("interrupted") != attempt:
        return type(error)(error.message, **error.facts)
    return OutcomeUnknown(
        error.message, **{"table_id": table_id, "version": version, "attempt": attempt, **error.facts}
    )
