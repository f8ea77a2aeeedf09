"""Loading and refreshing a version: ask the owner, list, choose, read; repeated if the log changed meanwhile.

Between the owner's answer, the listing and the reading, other processes publish, checkpoint and clean up. An apparent
gap or missing file is checked again with a new answer and a new listing; the same result twice is reported. If a
checkpoint cannot be read, the commits that it replaces are read, if they exist, and a warning is given.
"""

import logging
from collections.abc import Collection, Sequence
from typing import Final

from refimpl.log import log_segment
from refimpl.log.checksum import disagreements, parse
from refimpl.log.log_reading import Loaded, LogReader
from refimpl.log.log_segment import Commit, LogSegment
from refimpl.log.table_state import Changes, ReplayedState, collector_paused
from refimpl.protocol import log_path
from refimpl.protocol.actions import CommitInfo
from refimpl.protocol.commits import CommitsAnswer
from refimpl.protocol.errors import CorruptLogError
from refimpl.protocol.log_path import LogPath, Version
from refimpl.protocol.table_feature import in_commit_timestamps_enabled

logger = logging.getLogger(__name__)

ATTEMPTS: Final = 6
"""Maximum number of listings of one load while the log changes."""


def load(reader: LogReader, version: Version | None = None, *, without: Collection[str] = ()) -> Loaded:
    """A version, by default the newest. `without`: names of files that are not used. Raises the errors of
    `log_segment.build`, and `CorruptLogError` for files that cannot be read."""
    if version is not None:
        log_path.checked(version)
    distrusted: dict[str, CorruptLogError] = {}
    evidence: object = None
    for attempt in range(ATTEMPTS):
        answer = reader.ask(end=version)
        by_hint = reader.listing_by_hint(answer, version) if attempt == 0 and not without else None
        newest = attempt == 0 and version is None and answer is None  # after a gap: all files
        listing = reader.log.listing(newest=newest) if by_hint is None else by_hint
        listing = [path for path in listing if path.name not in without]
        try:
            return _load_from(reader, answer, listing, version, distrusted)
        except FileNotFoundError as error:
            failure = CorruptLogError(
                f"the file {error.filename} is missing, but the log names it; restore it", path=str(error.filename)
            )
        except CorruptLogError as error:
            if "missing_version" not in error.facts:
                raise
            broken = next(iter(distrusted.values()), None)
            failure = error if broken is None else CorruptLogError(f"{broken}; without it, {error}", **broken.facts)
        if (answer, listing) == evidence:
            raise failure
        evidence = (answer, listing)
    raise CorruptLogError(
        f"the log {reader.log.folder} changed during each of {ATTEMPTS} attempts to read it; try again",
        path=str(reader.log.folder),
    )


def _load_from(
    reader: LogReader,
    answer: CommitsAnswer | None,
    listing: Sequence[LogPath],
    version: Version | None,
    distrusted: dict[str, CorruptLogError],
) -> Loaded:
    """`distrusted`: unreadable checkpoints with the reason; new ones are added."""
    while True:
        segment = log_segment.build(listing, answer, reader.feature, version=version, distrusted=distrusted)
        warnings = [f"{error}; older files were read instead; write a checkpoint" for error in distrusted.values()]
        try:
            return _read(reader, segment, ReplayedState(), warnings)
        except _Unreadable as failure:
            logger.warning("%s; older files are read instead", failure.cause)
            distrusted |= dict.fromkeys((path.name for path in failure.files), failure.cause)


def refresh(reader: LogReader, loaded: Loaded) -> Loaded:
    """The newest version, reading only the commits after `loaded`; `loaded` itself if it is the newest.

    If the new commits were cleaned up, or the known commit was replaced, everything is loaded again.
    """
    known = loaded.segment.version
    if reader.owner is None and not _still_there(reader, loaded.segment):
        return load(reader)
    answer = reader.ask(start=known + 1)
    try:
        listing = reader.listing_after(known, answer)
        segment = log_segment.build(listing, answer, reader.feature, known=known)
        if segment.version == known:
            return load(reader) if _may_be_cleaned_up(reader, answer, known) else loaded
        return _read(reader, segment, loaded.state, list(loaded.warnings))
    except FileNotFoundError:
        return load(reader)
    except CorruptLogError as error:
        if "missing_version" not in error.facts:
            raise
        return load(reader)


def _still_there(reader: LogReader, segment: LogSegment) -> bool:
    """Whether the last read commit is still the same file, and not a file of a newer table at this location."""
    last = segment.last_commit
    return isinstance(last, LogPath) and reader.log.find(last.name) == last


def _may_be_cleaned_up(reader: LogReader, answer: CommitsAnswer | None, known: Version) -> bool:
    """Whether a cleanup may have deleted all commits from `known` to a newer checkpoint. managed-commits: an owner need
    not know the latest version of a table whose commits are all published."""
    if answer is None or answer.latest_ratified_version == known:
        return False
    return reader.log.find(log_path.commit(known)) is None


class _Unreadable(Exception):  # noqa: N818 - `load` reads the commits instead
    """Files that replace commits cannot be read; the commits themselves may still exist."""

    def __init__(self, files: tuple[LogPath, ...], cause: CorruptLogError) -> None:
        super().__init__(str(cause))
        self.files = files
        self.cause = cause


def _read(reader: LogReader, segment: LogSegment, base: ReplayedState, warnings: list[str]) -> Loaded:
    with collector_paused():
        state, changes = base, Changes()
        if segment.checkpoint:
            from refimpl.log import checkpoint_format

            try:
                state = checkpoint_format.read(reader.log, segment.checkpoint)
            except CorruptLogError as error:
                raise _Unreadable(segment.checkpoint, error) from error
        reached, newest = segment.checkpoint_version, None
        checksum = segment.checksum
        for commit in segment.commits:
            if checksum is not None and reached == checksum.version:
                state, changes = state.after(changes), Changes()
                warnings += _compare(reader, checksum, state, None)
            changes.commit_info = None
            changes.apply(reader.actions(commit))
            reached, newest = commit.version, commit
        state = state.after(changes)
    time = _checked_time(reader, segment, state, changes.commit_info, newest)
    if checksum is not None and checksum.version == segment.version:
        warnings += _compare(reader, checksum, state, time)
    return Loaded(state=state, segment=segment, in_commit_timestamp=time, warnings=tuple(warnings))


def _checked_time(
    reader: LogReader, segment: LogSegment, state: ReplayedState, info: CommitInfo | None, newest: Commit | None
) -> int | None:
    """The in-commit timestamp of the target. `info`: of `newest`, the last commit that was read.

    Raises `CorruptLogError` for a log without protocol or metadata.
    """
    if state.protocol is None or state.metadata is None:
        absent = "protocol" if state.protocol is None else "metaData"
        raise CorruptLogError(
            f"the log {reader.log.folder} has no {absent} action up to version {segment.version}",
            path=str(reader.log.folder),
        )
    if newest is not segment.last_commit and in_commit_timestamps_enabled(state.protocol, state.metadata):
        info = _info_if_there(reader, segment.last_commit)
    return None if info is None else info.in_commit_timestamp


def _info_if_there(reader: LogReader, commit: Commit | None) -> CommitInfo | None:
    """The commitInfo of a commit that a checkpoint replaced; None if it was cleaned up."""
    if commit is None:
        return None
    try:
        return reader.commit_info(commit)
    except FileNotFoundError:
        return None


def _compare(reader: LogReader, path: LogPath, state: ReplayedState, in_commit_timestamp: int | None) -> list[str]:
    """How the checksum of this version differs from `state`. An unreadable checksum is ignored."""
    try:
        stated = parse(reader.log.read(path.name))
    except OSError:
        return []
    sentences = (
        [] if stated is None else disagreements(stated, state, in_commit_timestamp, reader.log.environment.now())
    )
    return [
        f"the checksum {reader.log.folder / path.name} disagrees with the log: {sentence}" for sentence in sentences
    ]
