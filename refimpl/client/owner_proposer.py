"""Proposing one version to a commit owner. The rules that keep a commit from being made twice, or lost:

- every try has a new attempt id, and with it a new staged file;
- an answer that did not come is resolved by attempt id before anything is proposed again: from then on the
  owner refuses a request that is still on its way;
- a staged file is deleted only when another attempt is known to be the version;
- winners, and room in the backlog, are looked for a bounded number of times.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from dataclasses import dataclass

from refimpl.client.conflicts import Winner
from refimpl.client.log_reading import LogReader
from refimpl.client.patience import MAX_LOOKS, Patience
from refimpl.client.proposing import Lost, Won, history_moved, newest_checkpoint, read_winner
from refimpl.commit_owner import CommitOwner
from refimpl.commits import (
    AttemptId,
    AttemptOutcome,
    Conflict,
    DirectProposal,
    InlineProposal,
    Landed,
    NotLanded,
    Outcome,
    Proposal,
    Ratified,
    RatifiedCommit,
    Rejected,
    RejectionReason,
    StagedProposal,
    VersionGap,
)
from refimpl.environment import Environment
from refimpl.errors import (
    BacklogFullError,
    CommitRejectedError,
    CorruptionError,
    DeltaError,
    InvalidRequestError,
    LostRaceError,
    OutcomeUnknown,
    OwnerUnavailableError,
)
from refimpl.log_path import Version
from refimpl.table_feature import CommitMode

INLINE_LIMIT = 2**20
"""Bytes. Larger commits are staged even where inline ones are usual: every reader would be sent them until
they are published. catalog-managed: the catalog may host the content of *small* commits."""


@dataclass(slots=True, kw_only=True)
class OwnerProposer:
    """Proposals to a commit owner, in the table's commit mode."""

    owner: CommitOwner
    table_id: str
    commit_mode: CommitMode
    reader: LogReader
    environment: Environment
    patience: Patience
    label: str

    @property
    def _staging_folder(self) -> str:
        assert self.reader.feature is not None
        return self.reader.feature.staging_folder

    def turn(self) -> AbstractContextManager[bool]:
        return self.owner.turn(self.table_id)

    def ahead(self, version: Version) -> Lost | None:
        answer = self.owner.get_commits(self.table_id, version)
        latest = answer.latest_ratified_version
        if latest is None or latest < version:
            return None
        return Lost(version=version, latest=latest, known=answer.commits)

    def propose(self, version: Version, content: bytes) -> Won | Lost:
        """Raises `CommitRejectedError`, `BacklogFullError`, `OutcomeUnknown` and others as they stand."""
        commit_mode = (
            CommitMode.STAGED
            if self.commit_mode is CommitMode.INLINE and len(content) > INLINE_LIMIT
            else self.commit_mode
        )
        rounds = 0
        while True:
            proposal = self._proposal(commit_mode, version, content)
            outcome = self._outcome(version, proposal)
            match outcome:
                case Ratified():
                    return Won(version=version, attempt=proposal.attempt)
                case Conflict():
                    return _lost(version, proposal, outcome)
                case VersionGap():
                    self._check_gap(version, rounds)
                case Rejected(reason=RejectionReason.TOO_LARGE) if commit_mode is CommitMode.INLINE:
                    commit_mode = CommitMode.STAGED
                case Rejected(reason=RejectionReason.HALTED):
                    raise CorruptionError(f"the owner takes no commits: {outcome.detail}", version=version)
                case Rejected(reason=reason) if reason is not RejectionReason.ATTEMPT_RESOLVED:
                    raise CommitRejectedError(
                        f"the owner of {self.label} rejected version {version}: {outcome.detail}",
                        reason=reason,
                        version=version,
                    )
            # It did not land and never will: the next try is another attempt.
            self.patience.next_try(version)
            self.patience.pause(rounds)
            rounds += 1

    def _proposal(self, commit_mode: CommitMode, version: Version, content: bytes) -> Proposal:
        attempt = self.environment.new_id()
        if commit_mode is CommitMode.INLINE:
            return InlineProposal(attempt=attempt, content=content)
        if commit_mode is CommitMode.DIRECT:
            return DirectProposal(attempt=attempt, content=content)
        try:
            name = self.reader.log.stage(self._staging_folder, version, attempt, content)
        except OSError as error:
            raise OwnerUnavailableError(
                f"cannot stage version {version} of {self.label}: {error}; nothing was proposed", version=version
            ) from error
        return StagedProposal(attempt=attempt, file_name=name)

    def _outcome(self, version: Version, proposal: Proposal) -> Outcome | NotLanded:
        """The owner's answer; room is made where the backlog is full, and a lost answer is resolved."""
        for look in range(MAX_LOOKS):
            outcome = self._answer(version, proposal)
            if not (isinstance(outcome, Rejected) and outcome.reason is RejectionReason.BACKLOG_FULL):
                return outcome
            self._make_room(version, outcome)
            self.patience.pause(look)
        raise BacklogFullError(
            f"{self.label} stays full of unbackfilled commits although {MAX_LOOKS} backfills were asked for; "
            f"backfill, then commit again",
            version=version,
        )

    def _make_room(self, version: Version, refusal: Rejected) -> None:
        try:
            self.owner.backfill_to_version(self.table_id, version - 1)
        except (DeltaError, OSError) as error:
            raise BacklogFullError(
                f"{refusal.detail}; the backfill failed: {error}; version {version} was not committed", version=version
            ) from error

    def _answer(self, version: Version, proposal: Proposal) -> Outcome | NotLanded:
        try:
            return self.owner.commit(self.table_id, version, proposal)
        except (InvalidRequestError, OwnerUnavailableError):
            raise  # by their contract nothing landed
        except Exception as error:
            resolved = self._resolve(version, proposal.attempt, error)
            if isinstance(resolved, Landed):
                return Ratified(commit=resolved.commit, replayed=True)
            if isinstance(error, OutcomeUnknown):
                return resolved
            raise

    def _resolve(self, version: Version, attempt: AttemptId, cause: Exception) -> AttemptOutcome:
        for look in range(MAX_LOOKS):
            try:
                return self.owner.attempt_outcome(self.table_id, attempt)
            except (OwnerUnavailableError, OutcomeUnknown, OSError):
                self.patience.pause(look)
        raise OutcomeUnknown(
            f"version {version} of {self.label} may or may not be attempt {attempt}: neither the commit nor "
            f"{MAX_LOOKS} questions about it were answered; ask attempt_outcome before committing this work again",
            table_id=self.table_id,
            version=version,
            attempt=attempt,
        ) from cause

    def _check_gap(self, version: Version, rounds: int) -> None:
        """A gap that the owner still states when it is asked for its latest version is an error."""
        latest = self.owner.get_commits(self.table_id, version).latest_ratified_version
        if rounds < MAX_LOOKS and latest is not None and latest >= version - 1:
            return
        raise CorruptionError(
            f"version {version} of {self.label} was built on version {version - 1}, which its owner never ratified (it "
            f"says its latest is {latest}); run verify: somebody published behind its back, or it was restored from a "
            f"backup",
            version=version,
            latest=latest,
        )

    def winners(self, lost: Lost) -> list[Winner] | Won:
        known = {commit.version: commit for commit in lost.known}
        latest = lost.latest
        for look in range(MAX_LOOKS):
            if latest is not None and latest not in known:
                answer = self.owner.get_commits(self.table_id, max(known, default=lost.version - 1) + 1)
                known |= {commit.version: commit for commit in answer.commits}
                latest = max(latest, answer.latest_ratified_version or 0)
            found = self._readable(lost.version, latest, known)
            if found:
                return found
            self.patience.pause(look)
        return self._nobody_won(lost)

    def _readable(self, version: Version, latest: Version | None, known: dict[Version, RatifiedCommit]) -> list[Winner]:
        """Winners from `version` on, up to the first that can be read neither at the owner nor in the log."""
        found: list[Winner] = []
        for wanted in range(version, max(version, latest or 0) + 1):
            try:
                found.append(read_winner(self.reader, wanted, known.get(wanted)))
            except FileNotFoundError:
                break
        return found

    def _nobody_won(self, lost: Lost) -> Won:
        """The owner says conflict and shows nothing. Perhaps it was this very attempt; else this is the end."""
        cause: DeltaError
        newest = newest_checkpoint(self.reader.log)
        if newest > lost.version:
            cause = history_moved(self.reader.log, lost.version, newest)
        else:
            cause = self._unseen_winner(lost)
        if lost.attempt is not None:
            resolved = self._resolve(lost.version, lost.attempt, cause)
            if isinstance(resolved, Landed):
                return Won(version=resolved.commit.version, attempt=lost.attempt)
            self.discard(lost)
        raise cause

    def _unseen_winner(self, lost: Lost) -> LostRaceError:
        return LostRaceError(
            f"the owner of {self.label} reports version {lost.version} as taken (latest {lost.latest}), but neither "
            f"lists nor published it after {MAX_LOOKS} looks; run verify",
            tries=self.patience.tries,
            version=lost.version,
        )

    def discard(self, lost: Lost) -> None:
        if lost.staged_file is not None:
            with contextlib.suppress(OSError):
                self.reader.log.delete(f"{self._staging_folder}/{lost.staged_file}")


def _lost(version: Version, proposal: Proposal, conflict: Conflict) -> Lost:
    return Lost(
        version=version,
        attempt=proposal.attempt,
        staged_file=proposal.file_name if isinstance(proposal, StagedProposal) else None,
        latest=conflict.latest_ratified_version,
        known=conflict.winners,
    )
