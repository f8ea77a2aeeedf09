"""Proposing one version: the two ways it can end, and how it is done on the file system.

A proposal ends as `Won` or as `Lost`; everything else is an error that says whether anything landed.
`refimpl.client.owner_proposer` proposes to a commit owner.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, NoReturn, Protocol

from refimpl import actions, log_path
from refimpl.client.checkpoint_reading import last_checkpoint
from refimpl.client.conflicts import Winner
from refimpl.client.log_reading import LogReader
from refimpl.commits import AttemptId, RatifiedCommit
from refimpl.errors import (
    ConcurrentModificationError,
    CorruptionError,
    CorruptLogError,
    InvalidRequestError,
    OutcomeUnknown,
    OwnerUnavailableError,
)
from refimpl.log_path import CHECKPOINT_KINDS, FileKind, Version
from refimpl.log_store import LogStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Won:
    """The proposal is the version. `attempt`: None on the file system."""

    version: Version
    attempt: AttemptId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Somebody else's commit is the version. `attempt` is the one that lost."""

    version: Version
    attempt: AttemptId | None = None
    staged_file: str | None = None
    latest: Version | None = None
    known: tuple[RatifiedCommit, ...] = ()
    """Winners that the conflict told; possibly none, possibly not all."""


class Proposer(Protocol):
    """Where a transaction proposes its versions."""

    def turn(self) -> AbstractContextManager[bool]:
        """Where to wait, so that no writer starves; for fairness only. The value: whether others were first."""
        ...

    def ahead(self, version: Version) -> Lost | None:
        """A race for `version` that is lost already, seen without proposing; None if there seems to be none."""
        ...

    def propose(self, version: Version, content: bytes) -> Won | Lost: ...

    def winners(self, lost: Lost) -> list[Winner] | Won:
        """The commits from the lost version on, contiguous, at least one; or `Won` after all."""
        ...

    def discard(self, lost: Lost) -> None:
        """Clean up after an attempt that has lost for certain, as far as possible."""
        ...


class FilesystemProposer:
    """Put-if-absent of `<v>.json` by the writer itself.

    A free name is not enough: a cleanup frees the names of old commits, and a commit below the table's history is
    read by no one. A cleanup deletes below a checkpoint and oldest first, so `<v>.json` is the next version if
    `<v-1>.json` is there, or no checkpoint is above it. Both are looked at before the link, when nothing is written,
    and after it, when the outcome is unknown.
    """

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._log = reader.log

    def turn(self) -> AbstractContextManager[bool]:
        """Nobody keeps a queue for a table without an owner."""
        return contextlib.nullcontext(False)

    def ahead(self, version: Version) -> Lost | None:
        return Lost(version=version) if self._log.published(version) else None

    def propose(self, version: Version, content: bytes) -> Won | Lost:
        """Raises `InvalidRequestError` for what no reader could read (here no owner validates it), and
        `ConcurrentModificationError` where `version` is not the next one, and its own commit is gone."""
        name = log_path.commit(version)
        try:
            actions.decode(content, source=f"the commit of version {version}")
        except CorruptLogError as error:
            raise InvalidRequestError(f"{error}; nothing was written", version=version) from error
        try:
            self._check_next(version)
        except OSError as error:
            raise OwnerUnavailableError(
                f"cannot list {self._log.folder}: {error}; nothing landed; try again"
            ) from error
        try:
            if self._log.put_if_absent(name, content):
                self._check_still_next(version)
                return Won(version=version)
            if self._log.read(name) == content:  # an earlier call that failed; so may have its fsync, for ever
                self._log.overwrite(name, content)
                return Won(version=version)
        except OSError as error:
            self._explain(version, content, error)
        return Lost(version=version)

    def _check_next(self, version: Version) -> None:
        """Before the link: a version whose commit is there is a lost race; any other must follow the newest one."""
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
        """After the link: a cleanup may have taken the name away in between, or right after it."""
        log = self._log
        if version > 0 and log.published(version - 1):
            return
        if newest_checkpoint(log) > version:
            raise OutcomeUnknown(
                f"version {version} was written to {log.folder} while a cleanup removed that version from the log; it "
                f"is unknown whether the commit landed: check the latest version for its changes before "
                f"you commit them again",
                version=version,
            )

    def _explain(self, version: Version, content: bytes, error: OSError) -> NoReturn:
        """Raise what the failed write was: certainly nothing, or perhaps visible and therefore committed."""
        name = log_path.commit(version)
        try:
            perhaps = self._log.holds(name, content)
        except FileNotFoundError:
            perhaps = False
        except OSError:  # what cannot be read may be this commit
            perhaps = True
        if perhaps:
            raise OutcomeUnknown(
                f"version {version} in {self._log.folder} may be this commit, but could not be made durable: {error}; "
                f"look for it again after the storage is repaired",
                version=version,
            ) from error
        raise OwnerUnavailableError(f"cannot write {self._log.folder / name}: {error}; nothing landed") from error

    def winners(self, lost: Lost) -> list[Winner] | Won:
        found: list[Winner] = []
        while True:
            version = lost.version + len(found)
            try:
                found.append(read_winner(self._reader, version))
            except FileNotFoundError:
                break
        if found:
            return found
        newest = newest_checkpoint(self._log)
        if newest > lost.version:
            raise history_moved(self._log, lost.version, newest)
        raise CorruptionError(
            f"{self._log.folder / log_path.commit(lost.version)} was there a moment ago and is gone; "
            f"find out who deletes commits",
            version=lost.version,
        )

    def discard(self, lost: Lost) -> None:
        """Nothing was left behind."""


_PROOFS: Final = CHECKPOINT_KINDS | {FileKind.COMMIT, FileKind.COMPACTION}
"""Files that exist only of versions that were committed."""


def newest_checkpoint(log: LogStore) -> Version:
    """The version of the newest checkpoint; -1 without one."""
    return max((path.version for path in log.listing() if path.kind in CHECKPOINT_KINDS), default=-1)


def history_moved(log: LogStore, version: Version, newest: Version) -> ConcurrentModificationError:
    """The error of a writer that needs the commit of `version`, although the log reaches to `newest` without it."""
    if newest >= version:
        why = f"the table is at version {newest} or later, and the commit of version {version} was cleaned up"
    else:
        why = f"the log in {log.folder} ends before version {version - 1}, which this transaction read"
    return ConcurrentModificationError(
        f"version {version} cannot be committed: {why}; read the table again, and repeat the transaction",
        version=version,
        latest=newest,
    )


def read_winner(reader: LogReader, version: Version, commit: RatifiedCommit | None = None) -> Winner:
    """A commit that landed, from where the owner has it or published; `FileNotFoundError` if it is not there (yet)."""
    if commit is not None:
        return Winner(version=version, actions=reader.actions(commit))
    name = log_path.commit(version)
    return Winner(version=version, actions=actions.decode(reader.log.read(name), source=str(reader.log.folder / name)))
