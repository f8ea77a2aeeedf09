"""Proposes one version, on the file system or to a commit owner; builds its bytes; decides about retries.

A proposal ends as `Won` or as `Lost`; any other result is an error that says whether the commit landed.

The rules of proposals to an owner, which prevent that a commit is lost or made twice:

- every try has a new attempt id, and with it a new staged file;
- a lost answer is resolved by attempt id before the next proposal: from then on the owner rejects a
request that is still on its way;
- a staged file is deleted only when another attempt is known to be the version;
- requests for winners, or for room in the backlog, are repeated a bounded number of times.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeVar

import msgspec

from refimpl.client.conflicts import Winner
from refimpl.client.snapshot import Snapshot
from refimpl.log.loading import load
from refimpl.log.log_reading import LogReader, last_checkpoint
from refimpl.protocol import errors, log_path
from refimpl.protocol.actions import Action, Add, CommitInfo, Metadata, decode, encode
from refimpl.protocol.commit_owner import CommitOwner
from refimpl.protocol.commits import (
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
from refimpl.protocol.in_commit_timestamp import stamp_enablement
from refimpl.protocol.log_path import CHECKPOINT_KINDS, FileKind, Version
from refimpl.protocol.release import __version__
from refimpl.protocol.table_feature import CommitMode
from refimpl.rows.row_tracking import numbered
from refimpl.schema.features import IsolationLevel
from refimpl.storage.environment import Environment
from refimpl.storage.files import UncertainError
from refimpl.storage.log_store import LogStore

Answer = TypeVar("Answer")

DEFAULT_MAX_TRIES: Final = 10_000
"""Ordinary contention can cost fifteen tries; a writer that loses this many races has another problem."""

MAX_LOOKS: Final = 12
"""How often a writer repeats a request whose result should exist, before it gives up. With the pauses this takes
about a second and a half."""

FIRST_PAUSE: Final = 0.001
LONGEST_PAUSE: Final = 0.25
"""Seconds. The pause before a try is random, between 0 and a limit that doubles with each try."""


class RetryPolicy:
    """The tries of one transaction."""

    def __init__(self, environment: Environment, *, label: str, max_tries: int = DEFAULT_MAX_TRIES) -> None:
        self.tries = 0
        self._max_tries = max_tries
        self._environment = environment
        self._label = label

    def next_try(self, version: Version) -> None:
        """Count a proposal of `version`; `LostRaceError` (fact `tries`) after the last allowed one."""
        if self.tries >= self._max_tries:
            raise errors.LostRaceError(
                f"{self._label} was proposed {self.tries} times and lost each race, the last one for version "
                f"{version - 1}; try again with fewer writers",
                tries=self.tries,
                version=version,
            )
        self.tries += 1

    def pause(self, doublings: int) -> None:
        """Wait for a random time that grows with `doublings`, up to `LONGEST_PAUSE` seconds."""
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(doublings, 20))
        self._environment.pause(self._environment.random() * longest)

    def ask_until_answered(self, send: Callable[[], Answer], unknown: errors.OutcomeUnknown) -> Answer:
        """Send an idempotent request until it is answered.

        It is sent again if its answer is lost; `unknown` is raised if no answer comes. After a lost answer, an
        unavailable or rejecting owner proves nothing any more: the lost answer may have said that the request landed.
        """
        lost: Exception | None = None
        for look in range(MAX_LOOKS):
            try:
                answer = send()
                if lost is None or not isinstance(answer, Rejected):
                    return answer
            except (errors.OutcomeUnknown, OSError) as error:
                lost = error
            except errors.DeltaError:
                if lost is None:
                    raise
            self.pause(look)
        raise unknown from lost

    def outcome_of(
        self, owner: CommitOwner, table_id: str, version: Version, attempt: AttemptId, cause: Exception, *, label: str
    ) -> AttemptOutcome:
        """The outcome of an attempt whose proposal ended with `cause`. Raises `OutcomeUnknown` if no answer comes.

        A rejected request proves nothing either: the table may have been dropped after the commit landed.
        """
        for look in range(MAX_LOOKS):
            try:
                return owner.attempt_outcome(table_id, attempt)
            except (errors.InvalidRequestError, errors.OwnerUnavailableError, errors.OutcomeUnknown, OSError) as error:
                last = error
                self.pause(look)
        raise errors.OutcomeUnknown(
            f"version {version} of {label} may or may not be attempt {attempt}: neither the commit nor {MAX_LOOKS} "
            f"requests for its outcome were answered (last error: {last}); call attempt_outcome before committing this "
            f"work again",
            table_id=table_id,
            version=version,
            attempt=attempt,
        ) from cause


ENGINE_INFO = f"delta-commit-owner/{__version__}"


def commit_info(
    *,
    txn_id: str,
    timestamp: int,
    operation: str,
    parameters: Mapping[str, Any],
    read_version: Version | None,
    isolation: str = IsolationLevel.SERIALIZABLE.value,
    blind_append: bool = False,
    metrics: Mapping[str, str] | None = None,
    tags: Mapping[str, str] | None = None,
) -> CommitInfo:
    """The provenance of a commit, without its in-commit timestamp. `timestamp`: wall clock in ms."""
    fields: dict[str, Any] = {"timestamp": timestamp, "operation": operation, "operationParameters": dict(parameters)}
    if read_version is not None:
        fields["readVersion"] = read_version
    fields |= {"isolationLevel": isolation, "isBlindAppend": blind_append}
    if metrics:
        fields["operationMetrics"] = dict(metrics)
    if tags:
        fields["tags"] = dict(tags)
    return CommitInfo(fields | {"engineInfo": ENGINE_INFO, "txnId": txn_id})


class CommitBytes:
    """One transaction as newline-delimited JSON, for any version and time, and for any row ids.

    `enables`: the metadata of a commit that turns in-commit timestamps on; it carries version and time too.
    Raises `InvalidRequestError` for values that JSON cannot express.
    """

    def __init__(self, info: CommitInfo, actions: Sequence[Action], *, enables: Metadata | None = None) -> None:
        self._info = info
        self._enables = enables
        self._adds = [action for action in actions if isinstance(action, Add)]
        others = (action for action in actions if not isinstance(action, Add))
        self._rest = _encode([action for action in others if enables is None or not isinstance(action, Metadata)])
        self._plain_adds: bytes | None = None

    def stamped(self, version: Version, timestamp: int | None, free_row_id: int | None = None) -> bytes:
        """The commit of `version` at `timestamp`, ms since the epoch; None if the table has no in-commit timestamps.

        `free_row_id`: the first unused row id; None if the table has no row tracking.
        """
        if timestamp is None:
            return _encode([self._info]) + self._rest + self._files(version, free_row_id)
        first: list[Action] = [CommitInfo({"inCommitTimestamp": timestamp, **self._info.fields})]
        if self._enables is not None:
            first.append(stamp_enablement(self._enables, version=version, timestamp=timestamp))
        return _encode(first) + self._rest + self._files(version, free_row_id)

    def _files(self, version: Version, free_row_id: int | None) -> bytes:
        if free_row_id is not None:
            return _encode(numbered(self._adds, version, free_row_id))
        if self._plain_adds is None:
            self._plain_adds = _encode(self._adds)
        return self._plain_adds


def _encode(actions: Sequence[Action]) -> bytes:
    try:
        return encode(actions)
    except (TypeError, ValueError, msgspec.EncodeError) as error:
        raise errors.InvalidRequestError(f"an action of this commit cannot be written as JSON: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Won:
    """The proposal is the version. `attempt`: None on the file system."""

    version: Version
    attempt: AttemptId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The commit of another writer is the version. `attempt` is the losing one."""

    version: Version
    attempt: AttemptId | None = None
    staged_file: str | None = None
    latest: Version | None = None
    known: tuple[RatifiedCommit, ...] = ()
    """Winners in the answer; possibly incomplete or empty."""


class FilesystemProposer:
    """Put-if-absent of `<v>.json` by the writer itself.

    A free name is not enough: a cleanup frees the names of old commits, and no reader reads a commit below the table's
    history. A cleanup deletes below a checkpoint and oldest first, so `<v>.json` is the next version if `<v-1>.json`
    exists, or no checkpoint is above it. Both are checked before the link (then nothing was written) and after it (then
    the outcome is unknown).
    """

    def __init__(self, reader: LogReader, read: Snapshot | None = None) -> None:
        """`read`: the version that the transaction is built on; None for version 0."""
        self._reader = reader
        self._log = reader.log
        self._read = read

    def turn(self) -> AbstractContextManager[bool]:
        """No wait: a table without an owner has no queue."""
        return contextlib.nullcontext(False)

    def ahead(self, version: Version) -> Lost | None:
        """The lost race, if `version` is visibly taken before the proposal; else None."""
        return Lost(version=version) if self._log.published(version) else None

    def propose(self, version: Version, content: bytes) -> Won | Lost:
        """Raises `InvalidRequestError` for an unreadable commit (no owner validates it here), and
        `ConcurrentModificationError` if `version` is not the next version and has no commit file any more."""
        name = log_path.commit(version)
        try:
            decode(content, source=f"the commit of version {version}")
        except errors.CorruptLogError as error:
            raise errors.InvalidRequestError(f"{error}; nothing was written", version=version) from error
        try:
            self._check_same_table(version)
            self._check_next(version)
        except OSError as error:
            raise errors.OwnerUnavailableError(
                f"cannot list {self._log.folder}: {error}; nothing landed; try again"
            ) from error
        visible = False
        try:
            visible = self._log.put_if_absent(name, content)
            if visible:
                self._check_still_next(version)
                return Won(version=version)
            if self._log.read(name) == content:  # from an earlier call that failed: its fsync may have failed too
                self._log.overwrite(name, content)
                return Won(version=version)
        except OSError as error:
            self._explain(version, content, error, was_visible=visible)
        return Lost(version=version)

    def _check_same_table(self, version: Version) -> None:
        """Before the link: the commit that was read last is still the same file. Otherwise the table may have been
        deleted, and another one created at its location: none of its commits need be a conflict."""
        read = self._read
        published = None if read is None else self._log.find(log_path.commit(read.version))
        if read is None or published is None or published == read.loaded.segment.last_commit:
            return
        now = load(self._reader).state.metadata
        if now is None or now.id != read.metadata.id:
            raise errors.MetadataChangedError(
                f"version {version} cannot be committed: another table was created at {self._log.location} since "
                f"version {read.version} was read; read the table again, and repeat the transaction",
                version=version,
            )

    def _check_next(self, version: Version) -> None:
        """Before the link: a version whose commit exists is a lost race; any other must follow the newest one."""
        log = self._log
        if log.published(version):
            return
        hint = last_checkpoint(log)
        if version > 0 and log.published(version - 1) and (hint is None or hint.version < version):
            return
        newest = max((path.version for path in log.listing() if path.kind in _PROOFS), default=-1)
        if newest != version - 1 and not log.published(version):
            raise history_moved(log, version, newest)

    def _check_still_next(self, version: Version) -> None:
        """After the link: a cleanup may have deleted the file before it or right after it."""
        log = self._log
        if version > 0 and log.published(version - 1):
            return
        if log.newest_checkpoint() > version:
            raise errors.OutcomeUnknown(
                f"version {version} was written to {log.folder} while a cleanup removed that version from the log; it "
                f"is unknown whether the commit landed: check the latest version for its changes before "
                f"you commit them again",
                version=version,
            )

    def _explain(self, version: Version, content: bytes, error: OSError, *, was_visible: bool) -> NoReturn:
        """Raise the error for a failed write: certainly not committed, or perhaps visible and so committed.
        `was_visible`: a cleanup may have deleted the file since."""
        name = log_path.commit(version)
        try:
            perhaps = self._log.holds(name, content)
        except FileNotFoundError:
            perhaps = was_visible or isinstance(error, UncertainError)  # it may appear later
        except OSError:  # an unreadable file may be this commit
            perhaps = True
        if perhaps:
            raise errors.OutcomeUnknown(
                f"version {version} in {self._log.folder} may be this commit, but could not be made durable: {error}; "
                f"look for it again after the storage is repaired",
                version=version,
            ) from error
        raise errors.OwnerUnavailableError(
            f"cannot write {self._log.folder / name}: {error}; nothing landed"
        ) from error

    def winners(self, lost: Lost) -> list[Winner] | Won:
        """The commits from the lost version on, contiguous, at least one; or `Won` after all."""
        winners = read_winners(self._reader, lost.version, None, {})
        if winners:
            return winners
        newest = self._log.newest_checkpoint()
        if newest > lost.version:
            raise history_moved(self._log, lost.version, newest)
        raise errors.CorruptionError(
            f"{self._log.folder / log_path.commit(lost.version)} existed a moment ago and is missing; "
            f"find out which process deletes commits",
            version=lost.version,
        )

    def discard(self, lost: Lost) -> None:
        """Does nothing: no files remain."""


_PROOFS: Final = CHECKPOINT_KINDS | {FileKind.COMMIT, FileKind.COMPACTION}
"""Kinds of files that exist only for committed versions."""


def history_moved(log: LogStore, version: Version, newest: Version) -> errors.ConcurrentModificationError:
    """The error for a writer that needs the missing commit of `version`, while the log has newer versions up to
    `newest`."""
    if newest >= version:
        reason = f"the table is at version {newest} or later, and the commit of version {version} was cleaned up"
    else:
        reason = f"the log in {log.folder} ends before version {version - 1}, which this transaction read"
    return errors.ConcurrentModificationError(
        f"version {version} cannot be committed: {reason}; read the table again, and repeat the transaction",
        version=version,
        latest=newest,
    )


def read_winners(
    reader: LogReader, first: Version, last: Version | None, known: Mapping[Version, RatifiedCommit]
) -> list[Winner]:
    """The commits from `first` on, up to `last` or to the first one that neither the owner (`known`) nor the log has
    (yet)."""
    winners: list[Winner] = []
    version = first
    while last is None or version <= max(first, last):
        try:
            winners.append(Winner(version=version, actions=_landed_actions(reader, version, known.get(version))))
        except FileNotFoundError:
            break
        version += 1
    return winners


def _landed_actions(reader: LogReader, version: Version, commit: RatifiedCommit | None) -> list[Action]:
    if commit is not None:
        return reader.actions(commit)
    name = log_path.commit(version)
    return decode(reader.log.read(name), source=str(reader.log.folder / name))


INLINE_LIMIT = 2**20
"""Bytes. Larger commits are staged even in a table of inline commits: the owner would send them to every reader until
they are published. catalog-managed: the catalog may host the content of *small* commits."""


class OwnerProposer:
    """Proposals to a commit owner, in the table's commit mode."""

    def __init__(self, reader: LogReader, policy: RetryPolicy) -> None:
        assert reader.owner is not None
        assert reader.table_id is not None
        assert reader.commit_mode is not None
        self.owner = reader.owner
        self.table_id = reader.table_id
        self.commit_mode = reader.commit_mode
        self.reader = reader
        self.policy = policy
        self.label = reader.label

    @property
    def _staging_folder(self) -> str:
        assert self.reader.feature is not None
        return self.reader.feature.staging_folder

    def turn(self) -> AbstractContextManager[bool]:
        """The owner's queue, for fairness only. The value says whether others were first."""
        return self.owner.turn(self.table_id)

    def ahead(self, version: Version) -> Lost | None:
        answer = self.owner.get_commits(self.table_id, version)
        latest = answer.latest_ratified_version
        if latest is None or latest < version:
            return None
        return Lost(version=version, latest=latest, known=answer.commits)

    def propose(self, version: Version, content: bytes) -> Won | Lost:
        """Raises `CommitRejectedError`, `BacklogFullError`, `OutcomeUnknown` and the owner's other errors."""
        commit_mode = self._mode_for(content)
        rounds = 0
        while True:
            proposal = self._proposal(commit_mode, version, content)
            outcome = self._propose_and_resolve(version, proposal)
            match outcome:
                case Ratified():
                    return Won(version=version, attempt=proposal.attempt)
                case Conflict():
                    return lost_race(version, proposal, outcome)
                case VersionGap():
                    self.check_gap(version, rounds)
                case Rejected(reason=RejectionReason.TOO_LARGE) if commit_mode is CommitMode.INLINE:
                    commit_mode = CommitMode.STAGED
                case Rejected(reason=reason) if reason is not RejectionReason.ATTEMPT_RESOLVED:
                    raise self.rejection(version, outcome)
            # This attempt did not land and never will: the next try is another attempt.
            self.policy.next_try(version)
            self.policy.pause(rounds)
            rounds += 1

    def rejection(self, version: Version, rejected: Rejected) -> errors.DeltaError:
        """The error for a rejection that no retry changes."""
        if rejected.reason is RejectionReason.HALTED:
            return errors.CorruptionError(f"the owner accepts no commits: {rejected.detail}", version=version)
        return errors.CommitRejectedError(
            f"the owner of {self.label} rejected version {version}: {rejected.detail}",
            reason=rejected.reason,
            version=version,
        )

    def proposal(self, version: Version, content: bytes) -> Proposal:
        """A new attempt; stages its file, durably, where the table or the size requires that."""
        return self._proposal(self._mode_for(content), version, content)

    def _mode_for(self, content: bytes) -> CommitMode:
        too_large = self.commit_mode is CommitMode.INLINE and len(content) > INLINE_LIMIT
        return CommitMode.STAGED if too_large else self.commit_mode

    def _proposal(self, commit_mode: CommitMode, version: Version, content: bytes) -> Proposal:
        attempt = self.reader.log.environment.new_id()
        if commit_mode is CommitMode.INLINE:
            return InlineProposal(attempt=attempt, content=content)
        if commit_mode is CommitMode.DIRECT:
            return DirectProposal(attempt=attempt, content=content)
        try:
            name = self.reader.log.stage(self._staging_folder, version, attempt, content)
        except OSError as error:
            raise errors.OwnerUnavailableError(
                f"cannot stage version {version} of {self.label}: {error}; nothing was proposed", version=version
            ) from error
        return StagedProposal(attempt=attempt, file_name=name)

    def _propose_and_resolve(self, version: Version, proposal: Proposal) -> Outcome | NotLanded:
        """The owner's answer; makes room if the backlog is full, and resolves a lost answer."""
        full = errors.BacklogFullError(
            f"the backlog of {self.label} is still full after {MAX_LOOKS} backfills; backfill, then commit again",
            version=version,
        )
        for look in range(MAX_LOOKS):
            outcome = self._answer(version, proposal)
            if not (isinstance(outcome, Rejected) and outcome.reason is RejectionReason.BACKLOG_FULL):
                return outcome
            try:
                self.owner.backfill_to_version(self.table_id, version - 1)
            except (errors.DeltaError, OSError) as error:
                full = errors.BacklogFullError(
                    f"{outcome.detail}; the backfill failed: {error}; version {version} was not committed",
                    version=version,
                )
                break
            self.policy.pause(look)
        return self._landed_before(version, proposal.attempt, full)

    def _landed_before(self, version: Version, attempt: AttemptId, full: errors.BacklogFullError) -> Outcome:
        """The proposal, if it landed although the owner answered that its backlog is full: the request may have arrived
        twice, and the answer be that of the second one. If it did not land, raise `full`."""
        try:
            latest = self.owner.get_commits(self.table_id, version).latest_ratified_version
            landed = latest is None or latest >= version
        except Exception:  # noqa: BLE001 - whatever it is, this proposal may have landed
            landed = True
        resolved = self._resolve(version, attempt, full) if landed else NotLanded()
        if isinstance(resolved, Landed):
            return Ratified(commit=resolved.commit, replayed=True)
        raise full

    def _answer(self, version: Version, proposal: Proposal) -> Outcome | NotLanded:
        try:
            return self.owner.commit(self.table_id, version, proposal)
        except (errors.InvalidRequestError, errors.OwnerUnavailableError):
            raise  # by the contract of these errors nothing landed
        except Exception as error:
            resolved = self._resolve(version, proposal.attempt, error)
            if isinstance(resolved, Landed):
                return Ratified(commit=resolved.commit, replayed=True)
            if isinstance(error, errors.OutcomeUnknown):
                return resolved
            raise

    def _resolve(self, version: Version, attempt: AttemptId, cause: Exception) -> AttemptOutcome:
        return self.policy.outcome_of(self.owner, self.table_id, version, attempt, cause, label=self.label)

    def check_gap(self, version: Version, rounds: int) -> None:
        """Compare a reported gap with the owner's latest version; raise if it is still a gap."""
        latest = self.owner.get_commits(self.table_id, version).latest_ratified_version
        if rounds < MAX_LOOKS and latest is not None and latest >= version - 1:
            return
        raise errors.CorruptionError(
            f"version {version} of {self.label} was built on version {version - 1}, which its owner never ratified "
            f"(its latest is {latest}); run verify: the log has an unknown published version, or the owner was "
            f"restored from a backup",
            version=version,
            latest=latest,
        )

    def winners(self, lost: Lost) -> list[Winner] | Won:
        known = {commit.version: commit for commit in lost.known}
        latest = lost.latest
        for look in range(MAX_LOOKS):
            if latest is not None and latest not in known:
                try:
                    answer = self.owner.get_commits(self.table_id, max(known, default=lost.version - 1) + 1)
                except Exception as error:  # noqa: BLE001 - whatever it is, this proposal may have landed
                    return self._won_after_all(lost, error)
                known |= {commit.version: commit for commit in answer.commits}
                latest = max(latest, answer.latest_ratified_version or 0)
            winners = read_winners(self.reader, lost.version, latest or lost.version, known)
            if winners:
                return winners
            self.policy.pause(look)
        return self._unshown_winner(lost)

    def _unshown_winner(self, lost: Lost) -> Won:
        """A conflict without a visible winner."""
        newest = self.reader.log.newest_checkpoint()
        if newest <= lost.version:
            unseen = errors.LostRaceError(
                f"the owner of {self.label} reports version {lost.version} as taken (latest {lost.latest}), but after "
                f"{MAX_LOOKS} requests it neither lists nor has published it; run verify",
                tries=self.policy.tries,
                version=lost.version,
            )
            return self._won_after_all(lost, unseen)
        moved = history_moved(self.reader.log, lost.version, newest)
        try:
            return self._won_after_all(lost, moved)
        except errors.OutcomeUnknown:  # sent once, so it lost: an owner that sends a request twice resolves it
            raise moved from None

    def _won_after_all(self, lost: Lost, cause: Exception) -> Won:
        """The lost proposal, if it landed: some owners answer a replay as a conflict. If it did not, raise `cause`."""
        if lost.attempt is not None:
            resolved = self._resolve(lost.version, lost.attempt, cause)
            if isinstance(resolved, Landed):
                return Won(version=resolved.commit.version, attempt=lost.attempt)
            self.discard(lost)
        raise cause

    def discard(self, lost: Lost) -> None:
        if lost.staged_file is not None:
            with contextlib.suppress(OSError):
                self.reader.log.delete(f"{self._staging_folder}/{lost.staged_file}")


def lost_race(version: Version, proposal: Proposal, conflict: Conflict) -> Lost:
    return Lost(
        version=version,
        attempt=proposal.attempt,
        staged_file=proposal.file_name if isinstance(proposal, StagedProposal) else None,
        latest=conflict.latest_ratified_version,
        known=conflict.winners,
    )


Proposer = FilesystemProposer | OwnerProposer
"""Proposes the versions of a transaction, in one of the two ways."""
