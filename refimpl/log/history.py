"""The history of a table: its commits and their times, as far back as the log reaches."""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from refimpl.log.log_reading import LogReader
from refimpl.log.log_segment import Commit, known_commits
from refimpl.protocol.actions import Action, CommitInfo
from refimpl.protocol.errors import CorruptLogError, InvalidRequestError, NotFoundInHistoryError
from refimpl.protocol.in_commit_timestamp import CommitTimes, Enablement, monotonic
from refimpl.protocol.log_path import LogPath, Version

Found = TypeVar("Found")


def _list_existing(reader: LogReader, version: Version) -> tuple[Commit, ...]:
    """The existing commits that lead without a gap to `version`, including unpublished ones; none if another client's
    cleanup has left only a checkpoint."""
    answer = reader.ask()
    commits = known_commits(reader.log.listing(), answer, reader.feature)
    return tuple(commit for commit in commits if commit.version <= version)


def _commits_up_to(reader: LogReader, version: Version) -> tuple[Commit, ...]:
    reachable = _list_existing(reader, version)
    if not reachable or reachable[-1].version != version:
        raise CorruptLogError(
            f"the commit of version {version} is no longer in {reader.log.folder}, although it is the latest one read",
            path=str(reader.log.folder),
            missing_version=version,
        )
    return reachable


def commit_times(reader: LogReader, version: Version, enabled: Enablement | None) -> CommitTimes:
    """The times of all commits up to `version`. Commits with an in-commit timestamp are read lazily, one by one."""
    return _times_of(reader, _commits_up_to(reader, version), enabled)


def _times_of(reader: LogReader, commits: tuple[Commit, ...], enabled: Enablement | None) -> CommitTimes:
    first = commits[0].version
    plain = [c for c in commits if enabled is None or c.version < enabled.version]
    return CommitTimes(
        first=first,
        last=commits[-1].version,
        enabled=enabled,
        modified=monotonic(_modified(commit) for commit in plain),
        stored=cache(lambda version: _read(reader.stored_time, commits[version - first])),
    )


def _read(read: Callable[[Commit], Found], commit: Commit) -> Found:
    try:
        return read(commit)
    except FileNotFoundError as error:
        raise NotFoundInHistoryError(
            f"the commit of version {commit.version} was cleaned up while the history was read; try again",
            version=commit.version,
        ) from error


def commits_between(
    reader: LogReader, first: Version, last: Version, enabled: Enablement | None
) -> Iterator[tuple[Version, int, list[Action]]]:
    """Version, time (DELTA.md#ict-commit-time) and actions of each commit from `first` to `last`, the unpublished ones
    included. Raises `NotFoundInHistoryError` for a version outside the history."""
    commits = _commits_up_to(reader, last)
    times = _times_of(reader, commits, enabled)
    for version in range(first, last + 1):
        yield version, times.of(version), _read(reader.actions, commits[version - commits[0].version])


def actions_since(reader: LogReader, last: Version, enabled: Enablement | None, time: int) -> Iterator[list[Action]]:
    """The actions of each commit up to `last` that was made at `time` (ms since the epoch) or later, as far as the log
    reaches. Reads each of them once, and a logarithmic number of others. Raises `NotFoundInHistoryError` beside a
    cleanup."""
    commits = _list_existing(reader, last)
    if commits:
        times = _times_of(reader, commits, enabled)
        first = bisect_left(commits, time, key=lambda commit: times.of(commit.version))
        yield from (_read(reader.actions, commit) for commit in commits[first:])


def _modified(commit: Commit) -> int:
    """The modification time of a published commit; for a commit that the owner stores, the owner's time."""
    return commit.modified if isinstance(commit, LogPath) else commit.in_commit_timestamp


class Stored(Enum):
    """Where a commit was found."""

    PUBLISHED = "published"
    STAGED = "staged"
    INLINE = "inline"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One commit with its commitInfo."""

    version: Version
    timestamp: int
    """When it was committed, in ms since the epoch: DELTA.md#ict-commit-time."""
    stored: Stored
    info: CommitInfo | None

    @property
    def operation(self) -> str | None:
        value = self._field("operation")
        return value if isinstance(value, str) else None

    @property
    def parameters(self) -> dict[str, Any]:
        value = self._field("operationParameters")
        return value if isinstance(value, dict) else {}

    def _field(self, name: str) -> Any:
        return None if self.info is None else self.info.fields.get(name)


def history(
    reader: LogReader, version: Version, enabled: Enablement | None, limit: int | None = None
) -> Iterator[HistoryEntry]:
    """The commits up to `version`, newest first, at most `limit`; the unpublished ones included.

    Commits are read lazily. The history ends where a cleanup has removed the log.
    """
    if limit is not None and limit < 0:
        raise InvalidRequestError(f"invalid limit {limit}; expected a number >= 0", limit=limit)
    commits = _commits_up_to(reader, version)
    times = _times_of(reader, commits, enabled)
    wanted = commits if limit is None else commits[max(0, len(commits) - limit) :]
    for commit in reversed(wanted):
        try:
            info = reader.commit_info(commit)
        except FileNotFoundError:
            return
        own = None if info is None else info.in_commit_timestamp
        carries = enabled is not None and commit.version >= enabled.version
        timestamp = own if own is not None and carries else times.of(commit.version)
        yield HistoryEntry(version=commit.version, timestamp=timestamp, stored=_stored(commit), info=info)


def _stored(commit: Commit) -> Stored:
    if isinstance(commit, LogPath):
        return Stored.PUBLISHED
    if commit.content is not None:
        return Stored.INLINE
    return Stored.STAGED if commit.file_name is not None else Stored.PUBLISHED
