"""The commit owner of this host: decisions made durable, under one file lock.

1. Stage, read, hash, parse: outside the lock.
2. Decide: under the lock, in one transaction, which is the commit point.
3. Backfill, if the policy requires it: after the lock, under the table's publishing lock. A failed backfill does not
make the commit fail.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from refimpl.owner import decide
from refimpl.owner.backfill import backfill, record_published
from refimpl.owner.lifecycle import Lifecycle
from refimpl.owner.records import AttemptRecord, Examined, PromiseKind, TableRecord, checked_name
from refimpl.owner.statements import View, Writer
from refimpl.owner.tables import commit_error, disk_errors, stored_commits
from refimpl.protocol import commit_owner, commits, errors, log_path
from refimpl.protocol.log_path import Version
from refimpl.protocol.table_feature import CommitMode

_NAMES_SHOWN: Final = 20

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The outcome of a proposal, durable if it is `Ratified`; and the table before it, if it is a new commit."""

    outcome: commits.Outcome
    table: TableRecord | None = None


class LocalOwner(Lifecycle):
    """A `CommitOwner` for any number of processes on one host; the contracts are there.

    Safe to share between threads. Packages around the core override `decide_one`, `verdict`, `ratify`,
    `backfill_due`, `turn`, `resolve` and `tables`.
    """

    # Tables

    def resolve(self, reference: str | Path) -> commit_owner.ResolvedTable:
        resolved = self.look_up_table(lambda view: self.find(view, reference))
        if resolved.state is commit_owner.TableState.TAKING_OVER:
            self._end_take_over(resolved.table_id)
            return self.look_up_table(lambda view: self.find(view, reference))
        return resolved

    def _end_take_over(self, table_id: str) -> None:
        """Wait for a running take-over, or end one whose process died."""
        with disk_errors("finish a take-over"), self.lock():
            with self.ledger.read() as view:
                table = view.table(table_id)
            if table is not None and table.promised:
                self.settle(table)

    def find(self, view: View, reference: str | Path) -> TableRecord:
        """The live table of this path, id or name. Raises `TableNotFoundError`."""
        if isinstance(reference, Path) or "/" in reference:
            try:
                table = view.table_at(Path(reference).resolve())
            except (OSError, RuntimeError, ValueError):  # too long, a loop of links, not text: no table is there
                table = None
        elif commits.is_attempt_id(reference):
            table = view.table(reference)
        else:
            table = view.table_named(checked_name(reference))
        if table is None or table.state is commit_owner.TableState.DROPPED:
            names = view.names(_NAMES_SHOWN + 1)
            known = ", ".join(names[:_NAMES_SHOWN]) + (" and others" if len(names) > _NAMES_SHOWN else "")
            raise errors.TableNotFoundError(
                f"unknown table {str(reference)!r}; the tables are: {known or 'none'}", reference=str(reference)
            )
        return table

    def tables(self) -> Sequence[commit_owner.TableSummary]:
        with self.ledger.read() as view:
            return view.tables(state=commit_owner.TableState.ACTIVE)

    # Commits

    def commit(self, table_id: str, version: Version, proposal: commits.Proposal) -> commits.Outcome:
        return self.propose(table_id, version, proposal, lambda examined: examined)

    def propose(
        self, table_id: str, version: Version, proposal: commits.Proposal, as_request: Callable[[Examined], Examined]
    ) -> commits.Outcome:
        """`as_request`: adds what a package around the core needs to judge the proposal."""
        flaw = decide.message_flaw(log_path.checked(version), proposal)
        if flaw is not None:
            return flaw
        cached = self.cached_record(table_id)
        try:
            decision = self.decide_one(cached, as_request(self.examine(cached, version, proposal)))
        except (OSError, errors.OutcomeUnknown, errors.OwnerUnavailableError) as error:
            raise commit_error(error, f"commit to {cached.label}", table_id, version, proposal.attempt) from error
        if decision.table is not None:
            self.backfill_if_due(decision.table)
        return decision.outcome

    def backfill_if_due(self, table: TableRecord) -> None:
        every = table.policy.backfill_every
        if every is not None and table.backlog + 1 >= every:
            self.backfill_due(table)

    def examine(self, cached: TableRecord, version: Version, proposal: commits.Proposal) -> Examined:
        """The parsed proposal. It is read before the lock is taken: its bytes never change."""
        if not isinstance(proposal, commits.StagedProposal):
            return decide.examine(cached.feature, version, proposal, proposal.content)
        log, folder = self.log(cached), cached.feature.staging_folder
        size = log.staged_size(folder, proposal.file_name)
        if size is None or size > decide.size_limit(CommitMode.STAGED):
            return decide.unread(version, proposal, size)
        try:
            content = log.read_staged(folder, proposal.file_name)
        except FileNotFoundError:
            return decide.unread(version, proposal, None)
        return decide.examine(cached.feature, version, proposal, content)

    def decide_one(self, cached: TableRecord, examined: Examined) -> Decision:
        with self.lock():
            return self.decide_alone(cached, examined)

    def decide_alone(self, cached: TableRecord, examined: Examined) -> Decision:
        """Decide one proposal in a transaction of its own; one whose commit point is a file, in two."""

        def decide_now(writer: Writer, table: TableRecord) -> Decision:
            verdict = self.judge(writer, table, examined)
            if isinstance(verdict, decide.Ratify):
                return self.ratify(writer, table, verdict)
            return Decision(outcome=verdict)

        if not isinstance(examined.proposal, commits.DirectProposal):
            return self.land(cached.table_id, decide_now)
        return Decision(outcome=self.publish(cached.table_id, PromiseKind.PUBLISH, examined, self.judge))

    def ratify(self, writer: Writer, table: TableRecord, verdict: decide.Ratify) -> Decision:
        """Write the decision. The end of the transaction is the commit point."""
        examined = verdict.examined
        commit_mode = commits.COMMIT_MODE_OF[type(examined.proposal)]
        commit = writer.ratify(table, examined, commit_mode, self.now, published=False)
        return Decision(outcome=commits.Ratified(commit=commit), table=table)

    def judge(self, writer: Writer, table: TableRecord, examined: Examined) -> decide.Ratify | commits.Outcome:
        attempt = writer.attempt_at(table, examined.version, examined.proposal.attempt)
        unknown = self.unknown_published_version(table) if examined.version >= table.next else None
        verdict = self.verdict(writer, table, examined, attempt, unknown)
        if isinstance(verdict, commits.Conflict):
            return _with_winners(writer, table, examined.version, verdict)
        if isinstance(verdict, commits.Rejected) and attempt is None and table.state is commit_owner.TableState.DROPPED:
            # A repeated request that arrives after an undrop must not land either.
            writer.add_tombstone(table.table_id, examined.proposal.attempt, self.now)
        return verdict

    def verdict(
        self,
        writer: Writer,
        table: TableRecord,
        examined: Examined,
        attempt: AttemptRecord | None,
        unknown: Version | None,
    ) -> decide.Ratify | commits.Outcome:
        """`unknown`: a visible version above the latest that the owner did not ratify."""
        needs_current = examined.protocol is not None or examined.metadata is not None
        current = writer.protocol_and_metadata(table.key) if needs_current else None
        return decide.decide(table, examined, attempt, unknown_published=unknown, current=current)

    def turn(self, table_id: str) -> AbstractContextManager[bool]:  # noqa: ARG002
        return nullcontext(False)

    def attempt_outcome(self, table_id: str, attempt: commits.AttemptId) -> commits.AttemptOutcome:
        if not commits.is_attempt_id(attempt):
            raise errors.InvalidRequestError(
                f"{attempt!r} is not an attempt id; expected a lower-case UUID", attempt=attempt
            )
        with self.ledger.read() as view:
            seen = view.attempt(self.required(view, table_id), attempt)
        flaw: errors.DeltaError | None = None
        if seen is None:
            with disk_errors(f"resolve {attempt}"), self.lock(), self.changing(table_id) as (writer, table):
                seen = writer.attempt(table, attempt)
                if seen is None:
                    active = table.state is commit_owner.TableState.ACTIVE
                    unknown = self.unknown_published_version(table) if active else None
                    lost = writer.attempts_are_lost(table)
                    flaw = decide.unresolvable(table, attempt, unknown_published=unknown, attempts_are_lost=lost)
                    if flaw is None:
                        writer.add_tombstone(table_id, attempt, self.now)
        if flaw is not None:
            raise flaw
        return commits.NotLanded() if seen is None or seen.landed is None else commits.Landed(commit=seen.landed)

    def get_commits(
        self, table_id: str, start: Version | None = None, end: Version | None = None
    ) -> commits.CommitsAnswer:
        log_path.check_range(start, end)
        with self.ledger.read() as view:
            table = self.required(view, table_id)
            if table.state is commit_owner.TableState.DROPPED:
                raise errors.TableNotFoundError(f"{table.label} was dropped", table_id=table_id)
            answer = stored_commits(view, table, start, end)
        return self.with_visible(table, answer, start, end)

    # Backfill

    def backfill_to_version(self, table_id: str, version: Version | None = None) -> commit_owner.Backfilled:
        if version is not None:
            log_path.checked(version)
        with disk_errors("backfill"):
            return backfill(self, table_id, version)

    def report_published(self, table_id: str, through: Version) -> None:
        with disk_errors("record published versions"):
            flaw = record_published(self, table_id, log_path.checked(through))
        if flaw is not None:
            raise errors.InvalidRequestError(flaw, version=through)

    def backfill_due(self, table: TableRecord) -> None:
        """Publish after a commit, because the policy requires it. `table`: before the commit."""
        try:
            # A commit publishes one batch at most, and waits for one batch of another process at most.
            backfill(self, table.table_id, None, batches=1)
        except (errors.DeltaError, OSError) as error:
            # The commit landed: a failed backfill must not make it fail.
            logger.warning("backfill of %s after a commit failed; the next commit tries again: %s", table.label, error)

    def close(self) -> None:
        """Close this thread's connection."""
        self.ledger.close()


def _with_winners(view: View, table: TableRecord, version: Version, conflict: commits.Conflict) -> commits.Conflict:
    """The conflict with the commits that won."""
    latest = conflict.latest_ratified_version
    winners = view.commits(table, version, latest, limit=commits.MAX_WINNERS)
    if winners and winners[0].version != version:  # versions from before this owner
        winners = ()
    return commits.Conflict(latest_ratified_version=latest, winners=winners)
