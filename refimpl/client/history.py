"""What happened to a table, newest first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from refimpl.actions import CommitInfo
from refimpl.client.in_commit_timestamp import enablement
from refimpl.client.log_segment import Commit
from refimpl.client.time_travel import commits_up_to, times_of
from refimpl.errors import InvalidRequestError
from refimpl.log_path import LogPath, Version

if TYPE_CHECKING:
    from refimpl.client.snapshot import Snapshot


class Stored(Enum):
    """Where a commit was found."""

    PUBLISHED = "published"
    STAGED = "staged"
    INLINE = "inline"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One commit, and what it says of itself."""

    version: Version
    timestamp: int
    """When it was committed, in ms since the epoch: DELTA.md#ict-commit-time."""
    stored: Stored
    info: CommitInfo | None

    @property
    def operation(self) -> str | None:
        return self._text("operation")

    @property
    def parameters(self) -> dict[str, Any]:
        value = self._field("operationParameters")
        return value if isinstance(value, dict) else {}

    @property
    def engine(self) -> str | None:
        """The program that committed."""
        return self._text("engineInfo")

    @property
    def user(self) -> str | None:
        return self._text("userName")

    @property
    def txn_id(self) -> str | None:
        return None if self.info is None else self.info.txn_id

    @property
    def in_commit_timestamp(self) -> int | None:
        return None if self.info is None else self.info.in_commit_timestamp

    def _field(self, name: str) -> Any:
        return None if self.info is None else self.info.fields.get(name)

    def _text(self, name: str) -> str | None:
        value = self._field(name)
        return value if isinstance(value, str) else None


def history(latest: Snapshot, limit: int | None = None) -> Iterator[HistoryEntry]:
    """The commits up to the latest snapshot, newest first, at most `limit`; the unpublished ones included.

    Each is read when it is asked for. The history ends where the log was cleaned up, before or meanwhile.
    """
    if limit is not None and limit < 0:
        raise InvalidRequestError(f"invalid limit {limit}; expected a number >= 0", limit=limit)
    reader = latest.reader
    commits = commits_up_to(reader, latest.version)
    enabled = enablement(latest.protocol, latest.metadata)
    times = times_of(reader, commits, enabled)
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
