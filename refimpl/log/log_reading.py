"""Asking the owner, listing, and reading commits: the effects behind a log segment.

The order is always owner first, then the files (catalog-managed, "Reading Catalog-managed Tables"): in
the other order a commit that is published in between is in neither answer. managed-commits would allow
it with a second listing; one order for both is simpler.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from refimpl.log.log_segment import Commit, LogSegment
from refimpl.log.table_state import ReplayedState
from refimpl.protocol import actions, log_path
from refimpl.protocol.actions import Action, CommitInfo
from refimpl.protocol.commit_owner import CommitOwner, ResolvedTable, TableState
from refimpl.protocol.commits import CommitsAnswer
from refimpl.protocol.errors import CorruptLogError, InvalidRequestError, TableNotFoundError
from refimpl.protocol.log_path import LAST_CHECKPOINT, LogPath, Version
from refimpl.storage.log_store import LogStore

_MOST_PARTS: Final = 10_000
"""A hint with more parts is ignored."""
LOOK_AHEAD: Final = 4
"""How many missing commits in a row end a log: a log that lacks a file in the middle must not look as if it ended
there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A version that was read."""

    state: ReplayedState
    segment: LogSegment
    """The files that were read. After a refresh: those since the earlier version (`known`)."""
    in_commit_timestamp: int | None
    """The in-commit timestamp in the target's commit."""
    warnings: tuple[str, ...] = ()


class LogReader:
    """One table's log and its owner, if any. Cheap to create; holds no state of the table."""

    __slots__ = ("catalog", "commit_mode", "feature", "log", "name", "owner", "table_id")

    def __init__(
        self,
        log: LogStore,
        *,
        catalog: CommitOwner | None = None,
        resolved: ResolvedTable | None = None,
        name: str | None = None,
    ) -> None:
        """`catalog`: the owner by which the table was found; None for access by path. `resolved`: its
        answer; None, or `HANDED_BACK`, for a table that it does not own. `name`: for messages."""
        owned = resolved if resolved is not None and resolved.state is not TableState.HANDED_BACK else None
        if owned is not None and catalog is None:
            raise ValueError("an owned table requires its owner")
        self.log = log
        self.name = name
        self.catalog = catalog
        self.owner = None if owned is None else catalog
        self.table_id = None if owned is None else owned.table_id
        self.feature = None if owned is None else owned.feature
        self.commit_mode = None if owned is None else owned.commit_mode

    @property
    def label(self) -> str:
        """The table in messages: its name, else its location."""
        return repr(self.name) if self.name is not None else str(self.log.location)

    def without_owner(self) -> LogReader:
        """A reader of the published commits alone."""
        return LogReader(self.log, catalog=self.catalog, name=self.name)

    def resolved_again(self) -> LogReader:
        """The table at this location as its catalog knows it now, after take-overs and hand-backs."""
        assert self.catalog is not None
        try:
            resolved = self.catalog.resolve(self.log.location)
        except TableNotFoundError:
            resolved = None
        return LogReader(self.log, catalog=self.catalog, resolved=resolved, name=self.name)

    def ask(self, start: Version | None = None, end: Version | None = None) -> CommitsAnswer | None:
        """The owner's commits and its latest version; None for access by path. Ask before listing."""
        if self.owner is None or self.table_id is None:
            return None
        return self.owner.get_commits(self.table_id, start, end)

    def listing_after(
        self, known: Version, answer: CommitsAnswer | None, target: Version | None = None
    ) -> list[LogPath]:
        """The published commits after `known`, up to `target`, that the owner did not list, found by their names.

        The cost depends on the number of new commits; a listing costs the whole history. It also tries `LOOK_AHEAD`
        names beyond the first missing one, to detect a gap.
        """
        capped = answer is not None and self.feature is not None and self.feature.capped_at_latest
        end = answer.latest_ratified_version if answer is not None and capped and target is None else target
        owned = {commit.version for commit in answer.commits} if answer is not None else set()
        paths: list[LogPath] = []
        version, missing = known + 1, 0
        while missing <= LOOK_AHEAD and version <= log_path.MAX_VERSION and (end is None or version <= end):
            path = None if version in owned else self.log.find(log_path.commit(version))
            if path is not None:
                paths.append(path)
            missing = 0 if path is not None or version in owned else missing + 1
            version += 1
        last = max([known, *owned, *(path.version for path in paths)])
        checksum = self.log.find(log_path.checksum(last)) if last > known else None
        return paths if checksum is None else [*paths, checksum]

    def listing_by_hint(self, answer: CommitsAnswer | None, version: Version | None) -> list[LogPath] | None:
        """The files that `_last_checkpoint` implies and the commits after them, without a listing; None: list the log.

        Only if the owner's latest version is the target, so that no newer version can be missed, and only if the
        hint names existing files at or below the target (DELTA.md#last-checkpoint).
        """
        if answer is None or self.feature is None or not self.feature.capped_at_latest:
            return None
        target = answer.latest_ratified_version if version is None else version
        hint = last_checkpoint(self.log)
        if hint is None or target is None or hint.version > target:
            return None
        files = [path for name in hint.names if (path := self.log.find(name)) is not None]
        if len(files) != len(hint.names) or any(path.version != hint.version for path in files):
            return None
        own = self.log.find(log_path.commit(hint.version))
        return [*files, *([own] if own else []), *self.listing_after(hint.version, answer, target)]

    def content(self, commit: Commit) -> bytes:
        """The bytes of a commit, from its staged file or the owner's answer, else from its published file.

        A staged file may be removed once it is published. Raises `FileNotFoundError` if both are missing.
        """
        if isinstance(commit, LogPath):
            return self.log.read(commit.name)
        if commit.content is not None:
            return commit.content
        if commit.file_name is not None and self.feature is not None:
            try:
                return self.log.read_staged(self.feature.staging_folder, commit.file_name)
            except FileNotFoundError:
                pass
        return self.log.read(log_path.commit(commit.version))

    def actions(self, commit: Commit) -> list[Action]:
        """The decoded actions. Raises `CorruptLogError` with the file's path, `FileNotFoundError`."""
        return actions.decode(self.content(commit), source=self.source(commit))

    def commit_info(self, commit: Commit) -> CommitInfo | None:
        """The commitInfo of a commit, or None. Decodes only one line if it is the first action."""
        content = self.content(commit)
        first = content.partition(b"\n")[0]
        text = first if first.startswith(b'{"commitInfo"') else content
        infos = (a for a in actions.decode(text, source=self.source(commit)) if isinstance(a, CommitInfo))
        return next(infos, None)

    def stored_time(self, commit: Commit) -> int:
        """The in-commit timestamp, in ms. Raises `CorruptLogError` for a commit that lacks it."""
        info = self.commit_info(commit)
        if info is None or info.in_commit_timestamp is None:
            raise CorruptLogError(
                f"{self.source(commit)} has no in-commit timestamp, although the table has them enabled",
                path=self.source(commit),
                version=commit.version,
            )
        return info.in_commit_timestamp

    def source(self, commit: Commit) -> str:
        """The location of a commit, for messages."""
        if isinstance(commit, LogPath):
            return str(self.log.folder / commit.name)
        if commit.content is not None:
            return f"the inline commit of version {commit.version} of {self.log.location}"
        if commit.file_name is not None and self.feature is not None:
            return str(self.log.folder / self.feature.staging_folder / commit.file_name)
        return str(self.log.folder / log_path.commit(commit.version))


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCheckpoint:
    """The content of `_last_checkpoint`: a hint that may be stale."""

    version: Version
    names: tuple[str, ...]
    """The version of the checkpoint's files."""


class _Pointer(msgspec.Struct, rename="camel"):
    class V2(msgspec.Struct):
        path: str

    version: int
    parts: int | None = None
    v2_checkpoint: V2 | None = None


def last_checkpoint(log: LogStore) -> LastCheckpoint | None:
    """The hint; None if it is missing, unreadable or impossible."""
    try:
        content = log.read(LAST_CHECKPOINT)
    except OSError:
        return None
    try:
        pointer = msgspec.json.decode(content, type=_Pointer)
        version = log_path.checked(pointer.version)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidRequestError):
        return None
    if pointer.v2_checkpoint is not None:
        return LastCheckpoint(version=version, names=(pointer.v2_checkpoint.path.rpartition("/")[2],))
    if pointer.parts is not None and not 0 < pointer.parts <= _MOST_PARTS:
        return None
    if pointer.parts is None:
        return LastCheckpoint(version=version, names=(log_path.classic_checkpoint(version),))
    names = (log_path.checkpoint_part(version, part, pointer.parts) for part in range(1, pointer.parts + 1))
    return LastCheckpoint(version=version, names=tuple(names))
