"""Staging, put-if-absent, listing and reading of one table's log, on top of `Files`.

Each function states its order of writes and syncs. The rule behind all of them: a name that others may
act upon appears only after the bytes behind it are durable, and it is reported only after the name
itself is durable.
"""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from refimpl.protocol import log_path
from refimpl.protocol.actions import same_actions
from refimpl.protocol.commits import RatifiedCommit
from refimpl.protocol.errors import CorruptLogError
from refimpl.protocol.log_path import (
    CHECKPOINT_KINDS,
    LOG_FOLDER,
    MAX_VERSION,
    SIDECAR_FOLDER,
    FileKind,
    LogPath,
    Version,
)
from refimpl.protocol.table_feature import CommitMode
from refimpl.storage.environment import Environment
from refimpl.storage.files import UNCERTAIN, FileStatus, UncertainError

_TEMPORARY_PREFIX = ".tmp-"
"""Readers of a log ignore names with this prefix."""
_DOUBT_PREFIX = f"{_TEMPORARY_PREFIX}doubt-"
"""Of the empty files that mark staged files: `LogStore.mark_doubtful`."""


class LogStore:
    """The log of the table at `location`."""

    def __init__(self, location: Path, environment: Environment) -> None:
        self.location = location
        self.environment = environment
        self.folder = location / LOG_FOLDER
        self._folder = str(self.folder)
        self._files = environment.files
        self._new_id = environment.new_id
        self._staging: dict[str, Path] = {}

    def staging(self, folder: str) -> Path:
        """The staging folder of this name. Cached: every commit needs it several times, and pathlib is slow."""
        path = self._staging.get(folder)
        if path is None:
            path = self._staging[folder] = self.folder / folder
        return path

    def create_folders(self, staging_folder: str | None = None) -> None:
        """Create the table, log and staging directories and missing parents, durably. Existing ones are kept.

        Order: mkdir parent, mkdir child, fsync each parent whose entries changed.
        """
        folders = [self.location, self.folder]
        if staging_folder is not None:
            folders.append(self.folder / staging_folder)
        self._create(folders)

    def create_location(self) -> None:
        """Create the table's directory alone, durably, with missing parents."""
        self._create([self.location])

    def _create(self, folders: list[Path]) -> None:
        missing = [parent for parent in self.location.parents if self._files.stat(parent) is None]
        for directory in (*reversed(missing), *folders):
            with contextlib.suppress(FileExistsError):
                self._files.make_directory(directory)
            self._files.fsync_directory(directory.parent)

    def stage(self, staging_folder: str, version: Version, attempt: str, content: bytes) -> str:
        """Write `<version>.<attempt>.json` to the staging folder, durably; returns its name.

        Order: create exclusively, write, fsync file, fsync directory. Only then may it be proposed.
        A failed fsync ends this attempt: the next one has another name (a retry may report success for lost data).
        """
        name = log_path.staged_commit(version, attempt)
        folder = self.staging(staging_folder)
        try:
            self._write_durably(folder / name, content)
        except FileNotFoundError:
            self.create_folders(staging_folder)
            self._write_durably(folder / name, content)
        self._files.fsync_directory(folder)
        return name

    def stage_again(self, staging_folder: str, name: str, content: bytes) -> None:
        """Make an existing staged file with these bytes durable, by writing them to a new file.

        The file's writer may have died before the fsync. Or its fsync failed: then a second fsync may report success
        although the bytes are not on the disk.

        Order: that of `overwrite`.
        """
        self.overwrite(f"{staging_folder}/{name}", content)

    def make_staged_durable(self, staging_folder: str, name: str) -> None:
        """Make a staged file durable that an engine has just written. Then it may be proposed.

        Order: fsync file and fsync directory, in any order or at the same time: the file has its name already, and the
        caller waits for both. A failed fsync ends this attempt.
        """
        folder, files = self.staging(staging_folder), self._files
        self.environment.together(lambda: files.fsync(folder / name), lambda: files.fsync_directory(folder))

    def mark_doubtful(self, name: str, *, doubtful: bool) -> None:
        """Tell all processes whether the fsync of this staged file failed, as far as the disk allows it.

        The mark need not be durable: after a power cut, the file is read from the disk.
        """
        mark = self.folder / f"{_DOUBT_PREFIX}{name}"
        with contextlib.suppress(OSError):
            if not doubtful:
                self._files.unlink(mark)
            else:
                with self._files.create(mark):
                    pass

    def is_doubtful(self, name: str) -> bool:
        """Whether a process marked this staged file."""
        return self._files.exists(f"{self._folder}/{_DOUBT_PREFIX}{name}")

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """Make `<log>/<name>` visible with exactly these bytes; False if the name is taken.

        Order: write a temporary file, fsync it, link it to the name (the atomic step), fsync the
        directory, unlink the temporary. A name that is taken is made durable before it is reported,
        because its creator may have died before that. (After a failed fsync this is not enough: see `put_once`.)
        Raises `UncertainError` if the name may be visible with these bytes, or appear later.
        """
        temporary = self.folder / f"{_TEMPORARY_PREFIX}{self._new_id()}"
        target = self.folder / name
        created = False
        try:
            self._write_durably(temporary, content)
            try:
                try:
                    self._files.link(temporary, target)
                    created = True
                except FileExistsError:
                    self._files.fsync(target)
                self._files.fsync_directory(self.folder)
            except OSError as error:
                if (created or error.errno in UNCERTAIN) and not isinstance(error, UncertainError):
                    raise UncertainError(error.errno, error.strerror, str(target)) from error
                raise
        finally:
            with contextlib.suppress(OSError):
                self._files.unlink(temporary)
        return created

    def put_once(self, name: str, content: bytes) -> bool:
        """`put_if_absent` for bytes that no other writer has: True if the name has exactly these, durably, also from an
        earlier call. That call's fsync may have failed, and a second one may report success for lost data: so the
        bytes are written again."""
        if self.put_if_absent(name, content):
            return True
        if self.bytes_or_none(name) != content:
            return False
        self.overwrite(name, content)
        return True

    def publish(self, version: Version, content: bytes, commit_mode: CommitMode | None = None) -> None:
        """Make `<version>.json` exist with exactly these bytes, durably, as `put_once` does.

        Raises `CorruptLogError` if the file has other bytes. It replaces a file with a prefix of these bytes: the
        unfinished copy of another publishing client (DuckDB creates the file first and then writes it). For an inline
        commit, equal actions are enough: another client that published it may spell the JSON differently.
        """
        name = log_path.commit(version)
        if self.put_if_absent(name, content):
            return
        present = self.bytes_or_none(name)
        if present is not None and commit_mode is CommitMode.INLINE and same_actions(present, content):
            content = present
        elif present is None or not content.startswith(present):
            raise CorruptLogError(
                f"{self.folder / name} exists, but its content is not the ratified version {version}",
                path=str(self.folder / name),
                version=version,
            )
        self.overwrite(name, content)

    def publish_ratified(self, staging_folder: str, commits: Sequence[RatifiedCommit]) -> None:
        """Publish commits as their owner lists them: ascending, all stored ones up to some version.

        catalog-managed, "Publishing Commits". Order: the version before the first one is published already; each
        `<v>.json` and its name are durable before the next one begins. The caller reports them to the owner, which may
        then forget them. Raises `CorruptLogError` for a version that is missing, or published with other content.
        """
        missing = commits[0].version - 1 if commits else -1
        if missing >= 0 and not self.published(missing) and not self.in_checkpoint(missing):
            raise CorruptLogError(
                f"the owner stores {self.location} from version {missing + 1} on, but version {missing} is not "
                f"published; restore {self.folder / log_path.commit(missing)}",
                path=str(self.folder / log_path.commit(missing)),
                missing_version=missing,
            )
        for commit in commits:
            content = self.ratified_bytes(staging_folder, commit)
            if content is not None:
                self.publish(commit.version, content, commit.commit_mode)

    def ratified_bytes(self, staging_folder: str, commit: RatifiedCommit) -> bytes | None:
        """The bytes of a commit that its owner lists; None if it was published and cleaned up (`in_checkpoint`).

        They are in its `<v>.json` alone if the owner adopted it, or a client published it and removed the staged file.
        Raises `CorruptLogError` if they are missing.
        """
        if commit.content is not None:
            return commit.content
        if commit.file_name is not None:
            with contextlib.suppress(FileNotFoundError):
                return self.read_staged(staging_folder, commit.file_name)
        try:
            return self.read(log_path.commit(commit.version))
        except FileNotFoundError:
            if self.in_checkpoint(commit.version):
                return None
            raise CorruptLogError(
                f"version {commit.version} of {self.location} is ratified and not published, but its staged file "
                f"{commit.file_name} is missing; restore it",
                path=str(self.folder / staging_folder / str(commit.file_name)),
                version=commit.version,
            ) from None

    def in_checkpoint(self, version: Version) -> bool:
        """Whether a checkpoint contains this version.

        If so, a commit without a staged and a published file is not missing. It was published, because a checkpoint
        contains only published versions (DELTA.md#checkpoint-published), and a cleanup deleted its file. Readers take
        the version from the checkpoint.
        """
        return self.newest_checkpoint() >= version

    def newest_checkpoint(self) -> Version:
        """The version of the newest checkpoint; -1 if the log has none."""
        return max((path.version for path in self.listing() if path.kind in CHECKPOINT_KINDS), default=-1)

    def newest_version(self) -> Version:
        """The newest version that has a published commit or a checkpoint; -1 for an empty log."""
        kinds = CHECKPOINT_KINDS | {FileKind.COMMIT}
        return max((path.version for path in self.listing() if path.kind in kinds), default=-1)

    def overwrite(self, name: str, content: bytes) -> None:
        """Atomically replace `<log>/<name>` or `<log>/<folder>/<name>`: a file that is a hint or can be rebuilt
        (checkpoint, checksum, `_last_checkpoint`), or one that already has these bytes.

        Order: write a temporary file in the log, fsync it, rename it over the name, fsync the name's directory.
        """
        temporary, target = self.folder / f"{_TEMPORARY_PREFIX}{self._new_id()}", self.folder / name
        try:
            self._write_durably(temporary, content)
            self._files.replace(temporary, target)
        except OSError:
            with contextlib.suppress(OSError):
                self._files.unlink(temporary)
            raise
        self._files.fsync_directory(target.parent)

    def _write_durably(self, path: Path, content: bytes) -> None:
        try:
            with self._files.create(path) as file:
                file.write(content)
                file.fsync()
        except FileExistsError:
            raise
        except OSError:
            with contextlib.suppress(OSError):
                self._files.unlink(path)
            raise

    def listing(self, *, newest: bool = False) -> list[LogPath]:
        """The files of the log that Delta defines, by version, without staged files; empty if there is no log.

        `newest`: leaves out the files before the newest checkpoint that is one file. To parse their names takes most of
        the time.
        """
        entries, start = self._entries(self.folder), ""
        if newest:
            checkpoints = _parsed((entry for entry in entries if ".checkpoint." in entry.name), log_path.parse)
            complete = (path.name for path in checkpoints if path.kind is not FileKind.CHECKPOINT_PART)
            start = max(complete, default="").partition(".")[0]
        return _parsed((entry for entry in entries if entry.name >= start), log_path.parse)

    def staged_listing(self, staging_folder: str) -> list[LogPath]:
        """The staged files, by version: proposals with any outcome. Never a source of commits."""
        return _parsed(self._entries(self.folder / staging_folder), log_path.parse_staged)

    def _entries(self, folder: Path) -> list[FileStatus]:
        try:
            return [entry for entry in self._files.list_directory(folder) if not entry.is_directory]
        except FileNotFoundError:
            return []

    def sidecars(self) -> list[FileStatus]:
        """The files in the folder of V2 checkpoints' sidecars."""
        return self._entries(self.folder / SIDECAR_FOLDER)

    def write_sidecar(self, name: str, content: bytes) -> None:
        """Write a new sidecar and make its bytes durable. `sync_sidecars` makes its name durable; only then may a
        checkpoint name it."""
        folder = self.folder / SIDECAR_FOLDER
        with contextlib.suppress(FileExistsError):
            self._files.make_directory(folder)
        self._write_durably(folder / name, content)

    def sync_sidecars(self) -> None:
        """Make the names of all sidecars durable, and the name of their folder, which another process may have
        created."""
        if self._files.stat(self.folder / SIDECAR_FOLDER) is not None:
            self._files.fsync_directory(self.folder / SIDECAR_FOLDER)
            self._files.fsync_directory(self.folder)

    def sync_newest(self) -> None:
        """Make the newest version durable, as far as its writers have not done so. Nothing helps if their fsync failed.

        Order: fsync the commits and checkpoints from the newest checkpoint on, and the sidecars; then their folders.
        """
        names = [path.name for path in self.listing(newest=True) if path.kind in CHECKPOINT_KINDS | {FileKind.COMMIT}]
        for name in (*names, *(f"{SIDECAR_FOLDER}/{file.name}" for file in self.sidecars())):
            with contextlib.suppress(FileNotFoundError):  # cleaned up meanwhile
                self._files.fsync(self.folder / name)
        self.sync_sidecars()
        self.sync()

    def temporaries(self) -> list[tuple[str, int]]:
        """Unfinished temporary files, as (name, modification time in ms): left behind by a crash. The owner's repair
        and a client's cleanup delete old ones."""
        return [
            (entry.name, entry.modified)
            for entry in self._files.list_directory(self.folder)
            if entry.name.startswith(_TEMPORARY_PREFIX) and not entry.is_directory
        ]

    def published(self, version: Version) -> bool:
        """Whether `<version>.json` is visible."""
        if version > MAX_VERSION:  # the one after the last
            return False
        return self._files.exists(f"{self._folder}/{log_path.commit(version)}")

    def published_versions(self) -> set[Version]:
        """All versions that are visible as `<v>.json`."""
        return {path.version for path in self.listing() if path.kind is FileKind.COMMIT}

    def find(self, name: str) -> LogPath | None:
        """One file of the log as `listing` shows it; None if it is missing or not defined by Delta."""
        status = self._files.stat(self.folder / name)
        if status is None or status.is_directory:
            return None
        return log_path.parse(name, size=status.size, modified=status.modified)

    def modified(self, name: str) -> int | None:
        """Modification time in ms of a file of the log; None if it is missing."""
        status = self._files.stat(self.folder / name)
        return None if status is None else status.modified

    def read(self, name: str) -> bytes:
        """The bytes of `<log>/<name>`; `FileNotFoundError` if it is missing."""
        return self._files.read(self.folder / name)

    def holds(self, name: str, content: bytes) -> bool:
        """Whether `<log>/<name>` is a file with exactly these bytes."""
        return self.bytes_or_none(name) == content

    def bytes_or_none(self, name: str) -> bytes | None:
        """The bytes of a file; None for a folder; `FileNotFoundError` if it is missing."""
        try:
            return self.read(name)
        except IsADirectoryError:
            return None

    def staged_size(self, staging_folder: str, name: str) -> int | None:
        """Length of a staged file in bytes; None if it is missing."""
        status = self._files.stat(self.staging(staging_folder) / name)
        return None if status is None or status.is_directory else status.size

    def read_staged(self, staging_folder: str, name: str) -> bytes:
        return self._files.read(self.staging(staging_folder) / name)

    def delete(self, name: str) -> None:
        """Remove `<log>/<name>` (or `<staging folder>/<name>`), unless it is missing. Not durable by itself."""
        with contextlib.suppress(FileNotFoundError):
            self._files.unlink(self.folder / name)

    def sync(self) -> None:
        """Make deletions and creations of names in the log durable."""
        self._files.fsync_directory(self.folder)


def _parsed(entries: Iterable[FileStatus], parse: Callable[..., LogPath | None]) -> list[LogPath]:
    paths = [parse(entry.name, size=entry.size, modified=entry.modified) for entry in entries]
    return sorted((path for path in paths if path is not None), key=lambda path: (path.version, path.name))
