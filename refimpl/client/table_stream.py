"""Reading a table as a stream: first its rows, then what each commit adds; or its change data feed.

    stream = TableStream(table)
    start = stream.initial()
    end = stream.end(start, max_files=100)
    rows = [read(file) for file in stream.files(start, end)]

An offset says which file comes next, so it survives restarts. The same two offsets always give the same files:
versions and their files do not change. Commits that the owner has ratified and not published yet are included.
This module finds files; it reads no rows, and knows nothing of Spark.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from refimpl.client import change_feed
from refimpl.client.change_feed import ChangedFile
from refimpl.client.snapshot import Snapshot
from refimpl.client.table import Table
from refimpl.log.history import commits_between
from refimpl.protocol.actions import Action, Add, Metadata, Protocol, Remove
from refimpl.protocol.errors import CorruptLogError, InvalidRequestError, NotFoundInHistoryError
from refimpl.protocol.log_path import Version


class Offset(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The next file to read: number `index` of version `version`, counted from 0.

    `initial`: of all files of that version, as the stream began; else of those that its commit added.
    """

    table_id: str
    first_version: Version
    """The version at which the stream began. A query that restarts in its first batch knows only the batch's end."""
    first_initial: bool
    version: Version
    index: int = 0
    initial: bool = False
    read_at: int | None = None
    """The in-commit timestamp of the last version that was read, also in part; None if there is none."""

    @classmethod
    def first(cls, table_id: str, version: Version, *, initial: bool) -> "Offset":
        """Where a stream begins."""
        return cls(table_id=table_id, first_version=version, first_initial=initial, version=version, initial=initial)

    def at(self, version: Version, index: int = 0) -> "Offset":
        """The offset of the same stream in the commit of a version."""
        return msgspec.structs.replace(self, version=version, index=index, initial=False)

    @property
    def position(self) -> tuple[int, bool, int]:
        """The order of the offsets of one stream: the commit of a version follows the files of the initial snapshot."""
        return self.version, not self.initial, self.index

    @property
    def reached(self) -> Version:
        """The last version that was read, also in part."""
        return self.version if self.initial or self.index else self.version - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """Where a stream begins, and what it does about commits that remove rows."""

    starting_version: Version | Literal["latest"] | None = None
    """The first commit to read, or "latest" for later ones only; without a start, the rows of the newest version."""
    starting_timestamp: int | None = None
    """ms since the epoch: begin with the first commit at or after it."""
    feed: bool = False
    """Read the change data feed: each commit as a whole."""
    ignore_deletes: bool = False
    """Skip commits that only remove files."""
    skip_change_commits: bool = False
    """Skip all commits that remove files, with the files that they add."""

    def __post_init__(self) -> None:
        if self.starting_version is not None and self.starting_timestamp is not None:
            raise InvalidRequestError("startingVersion and startingTimestamp are mutually exclusive; give one of them")


class TableStream:
    """The files of a table that one stream reads. The next call reads only new commits."""

    def __init__(self, table: Table, options: StreamOptions | None = None, *, of: Snapshot | None = None) -> None:
        """`of`: the version whose schema the rows of the stream have (default: the newest)."""
        self._table = table
        self._options = options or StreamOptions()
        self._of = of or table.snapshot()
        self._listed: tuple[Version, int | None, list[ChangedFile]] | None = None
        self._known: dict[Version, tuple[Protocol, Metadata]] = {}
        """Protocol and metadata as of a version, or as of the one before it."""

    def newest(self) -> Version:
        """The newest version of the table."""
        return self._table.snapshot().version

    def initial(self) -> Offset:
        """Where the stream begins: DELTA.md#stream-start. Raises `NotFoundInHistoryError` for a start outside of the
        history."""
        newest, options = self._table.snapshot(), self._options
        version = newest.version
        if options.starting_timestamp is None and options.starting_version is None:
            return Offset.first(newest.metadata.id, version, initial=True)
        requested = version + 1 if options.starting_version == "latest" else options.starting_version
        if requested is not None and requested > version + 1 and not newest.stale:  # as in `_checked`
            raise NotFoundInHistoryError(
                f"startingVersion {requested} is above the newest version of {self._table.label}, which is {version}; "
                f"expected at most {version + 1}, or latest",
                version=requested,
                latest=version,
            )
        if requested is not None and requested > version:
            first = requested
        else:
            first, _ = change_feed.versions(
                newest.commit_times(),
                from_version=requested,
                from_timestamp=options.starting_timestamp,
                to_version=None,
                to_timestamp=None,
            )
        return Offset.first(newest.metadata.id, first, initial=False)

    def end(
        self, start: Offset, *, max_files: int | None = None, max_bytes: int | None = None, until: Version | None = None
    ) -> Offset:
        """Where a batch ends that begins at `start`: after at most so many files and bytes, but after one file at
        least; after version `until` at the latest. The same offset if there is nothing to read."""
        newest = self._checked(start)
        end, files, size = start, 0, 0
        for after, unit in self._units(start, min(newest.version, newest.version if until is None else until)):
            files += len(unit)
            size += sum(_size(changed) for changed in unit)
            too_many = (max_files is not None and files > max_files) or (max_bytes is not None and size > max_bytes)
            if unit and too_many and files > len(unit):
                break
            end = after
        return end

    def files(self, start: Offset, end: Offset) -> list[ChangedFile]:
        """The files between two offsets, in the order of the commits. Raises what `end` raises.

        After a restart in the first batch, `start` and `end` may name different first versions: that of `end` counts.
        """
        self._checked(end)
        if (start.first_version, start.first_initial) != (end.first_version, end.first_initial):
            start = Offset.first(end.table_id, end.first_version, initial=end.first_initial)
        files: list[ChangedFile] = []
        last = end.version - 1 if not end.index and not end.initial else end.version
        for after, unit in self._units(start, last):
            if after.position > end.position:
                break
            files += unit
        return files

    def _checked(self, offset: Offset) -> Snapshot:
        newest = self._table.snapshot()
        if offset.table_id != newest.metadata.id:
            raise InvalidRequestError(
                f"the stream has read another table: its offset is of the table with the id {offset.table_id}, and "
                f"{self._table.label} has the id {newest.metadata.id}; begin a new stream, with a new checkpoint "
                "location"
            )
        reached = offset.reached
        if reached > newest.version and not newest.stale:  # a path may lead to older versions than the owner
            raise NotFoundInHistoryError(
                f"the stream has reached version {reached} of {self._table.label}, whose newest version is "
                f"{newest.version}: an older state was restored; begin a new stream, with a new checkpoint location",
                version=reached,
                latest=newest.version,
            )
        if _is_replaced(offset, newest):
            raise NotFoundInHistoryError(
                f"version {reached} of {self._table.label} is another commit than the one that the stream has read: an "
                "older state was restored; begin a new stream, with a new checkpoint location",
                version=reached,
            )
        return newest

    def _units(self, start: Offset, last: Version) -> Iterator[tuple[Offset, Sequence[ChangedFile]]]:
        """Groups of files that belong into one batch, in order, up to version `last`, each with the offset after it."""
        if start.initial:
            read_at, initial = self._files_of(start.version)
            start = msgspec.structs.replace(start, read_at=read_at)
            for number, file in enumerate(initial):
                if number >= start.index:
                    yield msgspec.structs.replace(start, index=number + 1), (file,)
            start = start.at(start.version + 1)
            yield start, ()
        if start.version > last:
            return
        for version, read_at, files in self._commits(start.version, last):
            after = msgspec.structs.replace(start, read_at=read_at)
            units = [files] if self._options.feed else [[file] for file in files]  # DELTA.md#stream-feed
            for number, unit in enumerate(units):
                if version > start.version or number >= start.index:
                    yield after.at(version, number + 1), unit
            yield after.at(version + 1), ()

    def _files_of(self, version: Version) -> tuple[int | None, list[ChangedFile]]:
        """The in-commit timestamp of a version and all of its files, the oldest first."""
        if self._listed is None or self._listed[0] != version:
            snapshot = self._at(version)
            self._check(version, snapshot.protocol, snapshot.metadata)
            files = sorted(snapshot.files.values(), key=lambda add: (add.modification_time, add.path))
            timestamp = snapshot.timestamp if self._options.feed else 0
            listed = [ChangedFile(version=version, timestamp=timestamp, file=add) for add in files]
            self._listed = version, snapshot.in_commit_timestamp, listed
        return self._listed[1:]

    def _commits(self, first: Version, last: Version) -> Iterator[tuple[Version, int | None, list[ChangedFile]]]:
        self._known = {version: known for version, known in self._known.items() if version >= first}
        if first not in self._known:
            begun = self._at(first)
            self._known[first] = begun.protocol, begun.metadata
        protocol, metadata = self._known[first]
        newest = self._table.snapshot()
        enabled = newest.enablement
        commits = commits_between(newest.reader, first, last, enabled)
        for version in itertools.count(first):
            try:
                following = next(commits, None)
            except NotFoundInHistoryError as error:
                raise self._gone(version) from error
            if following is None:
                return
            _, timestamp, actions = following
            protocol = next((action for action in actions if isinstance(action, Protocol)), protocol)
            metadata = next((action for action in actions if isinstance(action, Metadata)), metadata)
            self._check(version, protocol, metadata)
            read_at = timestamp if enabled is not None and version >= enabled.version else None
            if self._options.feed:
                yield version, read_at, change_feed.files_of_commit(version, timestamp, actions, self._of)
            else:
                yield version, read_at, self._added(version, timestamp, actions)
            self._known[version + 1] = protocol, metadata

    def _at(self, version: Version) -> Snapshot:
        try:
            return self._table.snapshot(version=version)
        except NotFoundInHistoryError as error:
            raise self._gone(version) from error

    def _gone(self, version: Version) -> NotFoundInHistoryError:
        return NotFoundInHistoryError(
            f"the stream continues with version {version} of {self._table.label}, which is no longer in the history; "
            "begin a new stream, with a new checkpoint location, and keep the log longer (delta.logRetentionDuration)",
            version=version,
        )

    def _check(self, version: Version, protocol: Protocol, metadata: Metadata) -> None:
        """Raise `InvalidRequestError` if the rows do not fit the stream's schema: DELTA.md#stream-schema."""
        if self._options.feed:
            change_feed.check_commit(version, protocol, metadata, self._of)
        problem = change_feed.misfit_of(protocol, metadata, self._of)
        if problem is not None:
            raise InvalidRequestError(
                f"the schema of {self._table.label} at version {version} differs from the stream's, that of version "
                f"{self._of.version}: {problem}; restart the stream to read with the newest schema",
                version=version,
            )

    def _added(self, version: Version, timestamp: int, actions: Sequence[Action]) -> list[ChangedFile]:
        """DELTA.md#stream-commits."""
        added = [action for action in actions if isinstance(action, Add) and action.data_change]
        removed = [action for action in actions if isinstance(action, Remove) and action.data_change]
        if removed and not self._options.skip_change_commits:
            if added:
                raise self._removes(version, "changes rows", removed[0], "skipChangeCommits to skip such commits")
            if not self._options.ignore_deletes:
                raise self._removes(version, "deletes rows", removed[0], "ignoreDeletes to skip such commits")
        if removed:
            return []
        return [ChangedFile(version=version, timestamp=timestamp, file=add) for add in added]

    def _removes(self, version: Version, what: str, file: Remove, option: str) -> InvalidRequestError:
        return InvalidRequestError(
            f"version {version} of {self._table.label} {what} (it removes {file.path}), which a stream of added rows "
            f"cannot show; set {option}, or read the change data feed (readChangeFeed)",
            version=version,
        )


def _size(changed: ChangedFile) -> int:
    return changed.file.size or 0


def _is_replaced(offset: Offset, newest: Snapshot) -> bool:
    """Whether the last version that was read has another in-commit timestamp now; false if it was cleaned up."""
    reached, enabled = offset.reached, newest.enablement
    if offset.read_at is None or enabled is None or reached < enabled.version:
        return False
    if reached == newest.version:
        return newest.in_commit_timestamp != offset.read_at
    try:
        return newest.commit_times().of(reached) != offset.read_at
    except (NotFoundInHistoryError, CorruptLogError):
        return False
