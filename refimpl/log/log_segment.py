"""The files and commits that make up one version of a table: a pure function of the listing and the owner's answer.

The rules (DELTA.md#log-segment; catalog-managed and
managed-commits, the sections on reading), in the order in which `build` applies them:

1. The owner's answer must be valid: ascending, contiguous, nothing above its latest version, staged files named after
   their version. An invalid answer is an error.
2. The target is the requested version, else the owner's latest one; if the table feature does not
limit readers to that, also a newer version that the listing proves.
3. Everything above the target is ignored: commits, checkpoints, checksums. Log compactions are always ignored:
DELTA.md#compaction-range.
4. The newest complete checkpoint at or below the target replaces all commits up to its version.
Multi-part checkpoints count only when complete; of one version, V2 is preferred to classic to multi-part.
5. All commits after it up to the target must exist. On overlap the table feature says whether the
owner's copy or the published one is read.
6. The newest checksum at or below the target and not older than the checkpoint may be compared.

The table feature's fields are the only place where the two table features differ.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Final

from refimpl.protocol import log_path
from refimpl.protocol.commits import CommitsAnswer, RatifiedCommit
from refimpl.protocol.errors import CorruptionError, CorruptLogError, NotFoundInHistoryError, TableNotFoundError
from refimpl.protocol.log_path import FileKind, LogPath, Version
from refimpl.protocol.table_feature import TableFeature

Commit = LogPath | RatifiedCommit
"""The location of a version's actions: a published file, or the owner's stored commit."""

_CHECKPOINT_RANK: Final = {FileKind.CHECKPOINT_PART: 0, FileKind.CLASSIC_CHECKPOINT: 1, FileKind.V2_CHECKPOINT: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSegment:
    """The files of one version without gaps: the checkpoint if any, then every commit after it."""

    version: Version
    """The target: the version of this segment."""
    known: Version | None = None
    """The state of this version was known before; the segment holds the later commits."""
    checkpoint: tuple[LogPath, ...] = ()
    """The one file, or all parts in order; empty if there is no checkpoint."""
    commits: tuple[Commit, ...] = ()
    """Ascending and contiguous, from the version after the checkpoint (or `known`, or from 0) to the target."""
    checksum: LogPath | None = None
    unclaimed: bool = False
    """Whether the target is newer than the latest version of the table's owner."""
    last_commit: Commit | None = None
    """The target's own commit, if it still exists; a checkpoint may cover it."""

    def __post_init__(self) -> None:
        versions = [commit.version for commit in self.commits]
        if versions != list(range(self.first_version, self.version + 1)):
            raise ValueError(f"a segment from {self.first_version} to {self.version} cannot hold commits {versions}")

    @property
    def checkpoint_version(self) -> Version | None:
        return self.checkpoint[0].version if self.checkpoint else None

    @property
    def first_version(self) -> Version:
        """The first version whose commit is needed; one above the target if no commit is needed."""
        before = self.checkpoint_version if self.checkpoint else self.known
        return 0 if before is None else before + 1


def build(
    listing: Iterable[LogPath],
    answer: CommitsAnswer | None = None,
    feature: TableFeature | None = None,
    *,
    version: Version | None = None,
    known: Version | None = None,
    distrusted: Container[str] = (),
) -> LogSegment:
    """Combine listed files and the owner's commits into one gap-free segment.

    `answer` and `feature`: the owner's answer, received *before* the listing was made; both None for a
    filesystem table and for access by path. `version`: the requested one, else the newest.
    `known`: the caller has the state of that version, so only later commits are needed.
    `distrusted`: names of unreadable checkpoints.

    The listing may be in any order and may hold other names. Raises `NotFoundInHistoryError`
    for a requested version that does not exist (yet, or any more), `TableNotFoundError` for an empty log,
    `CorruptLogError` for a gap (its fact `missing_version`), `CorruptionError` for an impossible answer.
    """
    files = _sorted_by_kind(listing)
    owned = () if answer is None else _checked_answer(answer)
    latest = _latest_version(files, answer, feature, known)
    target = _target(latest, version)
    if known is not None and target < known:
        raise CorruptionError(
            f"the latest version is {target}, but version {known} was read before: a ratified version is missing; "
            "run verify",
            version=target,
        )
    checkpoint = () if known is not None else _newest_checkpoint(files, target, distrusted)
    first = (checkpoint[0].version if checkpoint else -1 if known is None else known) + 1
    available = _available(files, owned, feature)
    missing = _first_missing(available, first, target)
    if missing is not None:
        raise _gap(missing, first, target, _complete_checkpoints(files, distrusted), requested=version)
    commits = tuple(available[v] for v in range(first, target + 1))
    return LogSegment(
        version=target,
        known=known,
        checkpoint=checkpoint,
        commits=commits,
        checksum=_newest_checksum(files, target, first),
        unclaimed=answer is not None
        and (answer.latest_ratified_version is None or target > answer.latest_ratified_version),
        last_commit=available.get(target),
    )


def known_commits(
    listing: Iterable[LogPath], answer: CommitsAnswer | None = None, feature: TableFeature | None = None
) -> tuple[Commit, ...]:
    """All existing commits that lead without a gap to the latest version."""
    files = _sorted_by_kind(listing)
    owned = () if answer is None else _checked_answer(answer)
    available = _available(files, owned, feature)
    version = _latest_version(files, answer, feature, None)
    run: list[Commit] = []
    while version is not None and version in available:
        run.append(available[version])
        version -= 1
    return tuple(reversed(run))


def complete_checkpoints(listing: Iterable[LogPath]) -> list[tuple[LogPath, ...]]:
    """The complete checkpoints of a listing, in order of version; of one version, the one that readers use last."""
    return sorted(_complete_checkpoints(_sorted_by_kind(listing), ()), key=_preference)


_Files = dict[FileKind, list[LogPath]]


def _sorted_by_kind(listing: Iterable[LogPath]) -> _Files:
    files: _Files = {kind: [] for kind in FileKind}
    for path in listing:
        files[path.kind].append(path)
    return files


def _checked_answer(answer: CommitsAnswer) -> tuple[RatifiedCommit, ...]:
    """Rule 1."""
    latest = answer.latest_ratified_version
    for before, commit in zip((None, *answer.commits), answer.commits, strict=False):
        if before is not None and commit.version != before.version + 1:
            raise CorruptionError(
                f"the owner listed version {commit.version} after {before.version}: its commits must be ascending, "
                "contiguous and without duplicates",
                version=commit.version,
            )
        if latest is None or commit.version > latest:
            raise CorruptionError(
                f"the owner listed version {commit.version}, but its latest version is {latest}", version=commit.version
            )
        if commit.file_name is not None:
            staged = log_path.parse_staged(commit.file_name)
            if staged is None or staged.version != commit.version:
                raise CorruptionError(
                    f"the owner names {commit.file_name!r} as the staged file of version {commit.version}",
                    version=commit.version,
                )
    return answer.commits


def _latest_version(
    files: _Files, answer: CommitsAnswer | None, feature: TableFeature | None, known: Version | None
) -> Version | None:
    """Rule 2 without a request; None for a table without a commit."""
    claimed = None if answer is None else answer.latest_ratified_version
    if feature is not None and feature.capped_at_latest:
        return claimed
    proofs = [path.version for path in files[FileKind.COMMIT]]
    proofs += [parts[0].version for parts in _complete_checkpoints(files, ())]
    proofs += [v for v in (claimed, known) if v is not None]
    return max(proofs, default=None)


def _target(latest: Version | None, requested: Version | None) -> Version:
    if latest is None:
        raise TableNotFoundError("no commit and no checkpoint in its _delta_log; expected the path of a table")
    if requested is None:
        return latest
    if log_path.checked(requested) > latest:
        raise NotFoundInHistoryError(
            f"version {requested} does not exist: the latest version is {latest}", version=requested, latest=latest
        )
    return requested


def _complete_checkpoints(files: _Files, distrusted: Container[str]) -> list[tuple[LogPath, ...]]:
    """Rule 4, without the target: every complete checkpoint, its parts in order."""
    single = files[FileKind.CLASSIC_CHECKPOINT] + files[FileKind.V2_CHECKPOINT]
    single_files = [(path,) for path in single if path.name not in distrusted]
    groups: dict[tuple[Version, int | None], dict[int | None, LogPath]] = {}
    for path in files[FileKind.CHECKPOINT_PART]:
        if path.name not in distrusted:
            groups.setdefault((path.version, path.parts), {})[path.part] = path
    complete = [
        tuple(parts[number] for number in range(1, count + 1))
        for (_, count), parts in groups.items()
        if count is not None and len(parts) == count
    ]
    return [*single_files, *complete]


def _newest_checkpoint(files: _Files, target: Version, distrusted: Container[str]) -> tuple[LogPath, ...]:
    """Rules 3 and 4. Of several equal ones the last by name, so that all readers of one listing choose the same."""
    usable = [parts for parts in _complete_checkpoints(files, distrusted) if parts[0].version <= target]
    return max(usable, key=_preference, default=())


def _preference(checkpoint: tuple[LogPath, ...]) -> tuple[Version, int, str]:
    first = checkpoint[0]
    return first.version, _CHECKPOINT_RANK[first.kind], first.name


def _available(files: _Files, owned: tuple[RatifiedCommit, ...], feature: TableFeature | None) -> dict[Version, Commit]:
    """Rule 5: every commit by version. Once a commit is recorded as published, the owner has no copy of it."""
    published: dict[Version, Commit] = {path.version: path for path in files[FileKind.COMMIT]}
    stored: dict[Version, Commit] = {commit.version: commit for commit in owned}
    if feature is not None and feature.owner_copy_wins:
        return published | stored
    return stored | published


def _first_missing(available: dict[Version, Commit], first: Version, target: Version) -> Version | None:
    """Stops at the first gap, so that even a huge target costs no more than the existing commits."""
    version = first
    while version <= target:
        if version not in available:
            return version
        version += 1
    return None


def _gap(
    missing: Version,
    first: Version,
    target: Version,
    checkpoints: list[tuple[LogPath, ...]],
    *,
    requested: Version | None,
) -> CorruptLogError | NotFoundInHistoryError:
    later = [parts[0].version for parts in checkpoints if parts[0].version > target]
    if requested is not None and missing == 0 and later:
        return NotFoundInHistoryError(
            f"version {requested} cannot be rebuilt any more: older log files were cleaned up, "
            f"and the earliest checkpoint is at version {min(later)}",
            version=requested,
            earliest=min(later),
        )
    start = f"everything after version {first - 1} is needed" if first else "no complete checkpoint replaces it"
    return CorruptLogError(
        f"the log has a gap: version {missing} is missing below version {target}, and {start}; "
        f"restore its commit file, or a checkpoint at or after it",
        missing_version=missing,
        version=target,
    )


def _newest_checksum(files: _Files, target: Version, first: Version) -> LogPath | None:
    """Rules 3 and 6."""
    usable = [path for path in files[FileKind.CHECKSUM] if first - 1 <= path.version <= target]
    return max(usable, key=lambda path: path.version, default=None)
