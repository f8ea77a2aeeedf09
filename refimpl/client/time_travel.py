"""When versions were committed, as far back as the log reaches: the effects behind `CommitTimes`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from refimpl.client.in_commit_timestamp import CommitTimes, Enablement, enablement, monotonic
from refimpl.client.log_reading import LogReader
from refimpl.client.log_segment import Commit, known_commits
from refimpl.errors import CorruptLogError
from refimpl.log_path import LogPath, Version

if TYPE_CHECKING:
    from refimpl.client.snapshot import Snapshot


def commits_up_to(reader: LogReader, version: Version) -> tuple[Commit, ...]:
    """The commits that still exist and lead without a gap to `version`, the unpublished ones included."""
    answer = reader.ask()
    commits = known_commits(reader.log.listing(), answer, reader.feature)
    found = tuple(commit for commit in commits if commit.version <= version)
    if not found or found[-1].version != version:
        raise CorruptLogError(
            f"the commit of version {version} is no longer in {reader.log.folder}, although it is the latest one read",
            path=str(reader.log.folder),
            missing_version=version,
        )
    return found


def commit_times(snapshot: Snapshot) -> CommitTimes:
    """The times of all commits up to a snapshot, by that snapshot's properties (the latest one decides)."""
    commits = commits_up_to(snapshot.reader, snapshot.version)
    return times_of(snapshot.reader, commits, enablement(snapshot.protocol, snapshot.metadata))


def times_of(reader: LogReader, commits: tuple[Commit, ...], enabled: Enablement | None) -> CommitTimes:
    """The times of contiguous commits. Those that carry theirs are read one by one, only when asked for."""
    first, last = commits[0].version, commits[-1].version
    plain = [c for c in commits if enabled is None or c.version < enabled.version]
    times: dict[Version, int] = {}

    def stored(version: Version) -> int:
        if version not in times:
            times[version] = reader.stored_time(commits[version - first])
        return times[version]

    return CommitTimes(
        first=first,
        last=last,
        enabled=enabled,
        modified=monotonic(_modified(commit) for commit in plain),
        stored=stored,
    )


def _modified(commit: Commit) -> int:
    """Of a commit without a time of its own; one that an owner stores always has one."""
    return commit.modified if isinstance(commit, LogPath) else commit.in_commit_timestamp
