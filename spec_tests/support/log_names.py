"""Files of a log and answers of an owner, written as one would on a whiteboard."""

from __future__ import annotations

from refimpl import log_path
from refimpl.commits import CommitsAnswer, RatifiedCommit
from refimpl.log_path import LogPath
from refimpl.table_feature import CommitMode


def named(name: str) -> LogPath:
    path = log_path.parse(name)
    assert path is not None, name
    return path


def published(*versions: int) -> list[LogPath]:
    return [named(log_path.commit(version)) for version in versions]


def classic(version: int) -> LogPath:
    return named(log_path.classic_checkpoint(version))


def part(version: int, number: int, of: int) -> LogPath:
    return named(f"{version:020d}.checkpoint.{number:010d}.{of:010d}.parquet")


def parts(version: int, of: int) -> list[LogPath]:
    return [part(version, number, of) for number in range(1, of + 1)]


def v2(version: int, extension: str = "parquet") -> LogPath:
    return named(f"{version:020d}.checkpoint.{uuid(version)}.{extension}")


def compaction(start: int, end: int) -> LogPath:
    return named(log_path.compaction(start, end))


def checksum(version: int) -> LogPath:
    return named(log_path.checksum(version))


def uuid(number: int) -> str:
    return f"3a0d65cd-4056-49b8-937b-{number:012d}"


def staged(version: int, *, file_name: str | None = None) -> RatifiedCommit:
    name = log_path.staged_commit(version, uuid(version)) if file_name is None else file_name
    return _ratified(version, CommitMode.STAGED, file_name=name)


def inline(version: int, content: bytes = b"{}\n") -> RatifiedCommit:
    return _ratified(version, CommitMode.INLINE, content=content)


def direct(version: int) -> RatifiedCommit:
    """One that the owner knows to be published."""
    return _ratified(version, CommitMode.DIRECT)


def _ratified(
    version: int, commit_mode: CommitMode, *, file_name: str | None = None, content: bytes | None = None
) -> RatifiedCommit:
    return RatifiedCommit(
        version=version,
        attempt=uuid(version),
        commit_mode=commit_mode,
        in_commit_timestamp=1000 + version,
        size=3,
        ratified_at=0,
        file_name=file_name,
        content=content,
    )


def answer(*commits: RatifiedCommit, latest: int | None) -> CommitsAnswer:
    return CommitsAnswer(commits=commits, latest_ratified_version=latest)
