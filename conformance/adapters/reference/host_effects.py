"""The effects of one owner process on the real host: files and connections whose operations can fail, stop or die.

Crash points (`dying`), schedules (`simulated.clients`) and the faults of tests are built on these.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from refimpl.files import FileStatus, NewFile, PosixFiles

Result = TypeVar("Result")


class LedgerConnection:
    """A connection to the ledger. It passes every call that it does not define on to `database`."""

    def __init__(self, database: Any) -> None:
        self.database = database
        self.killed = False

    @property
    def in_transaction(self) -> bool:
        """Works after `kill` too: the real process lives on, and reads this before it forks."""
        return not self.killed and bool(self.database.in_transaction)

    def kill(self) -> None:
        """Close the connection, and roll an open transaction back, as the operating system does for a dead process.
        Idempotent."""
        self.killed = True
        self.database.close(True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.database, name)


class EffectFiles(PosixFiles):
    """The host's files. All calls except `identity` and the lock calls go through `effect`, which a subclass overrides.

    `synced`: whether an fsync reaches the disk. The files of a dead process do not depend on it, and syncs take two
    thirds of the time of a test.
    """

    def __init__(self, *, synced: bool = True) -> None:
        self.synced = synced

    def effect(
        self, operation: str, path: Path | str, act: Callable[[], Result], torn: Callable[[], object] | None = None
    ) -> Result:
        """Call `act`, or raise. `operation` is the name of the method, and `torn` writes half of the bytes.

        `path` is the target of a link or a replace. `exists` is called often, so it passes the path as text.
        """
        return act()

    def create(self, path: Path) -> NewFile:
        return _EffectNewFile(self, path, self.effect("create", path, lambda: PosixFiles.create(self, path)))

    def fsync(self, path: Path) -> None:
        self.effect("fsync", path, lambda: self._sync(PosixFiles.fsync, path))

    def fsync_directory(self, path: Path) -> None:
        self.effect("fsync_directory", path, lambda: self._sync(PosixFiles.fsync_directory, path))

    def _sync(self, sync: Callable[[PosixFiles, Path], None], path: Path) -> None:
        if self.synced:
            sync(self, path)
        else:
            path.stat()

    def make_directory(self, path: Path, mode: int = 0o777) -> None:
        self.effect("make_directory", path, lambda: PosixFiles.make_directory(self, path, mode))

    def remove_directory(self, path: Path) -> None:
        self.effect("remove_directory", path, lambda: PosixFiles.remove_directory(self, path))

    def link(self, source: Path, target: Path) -> None:
        self.effect("link", target, lambda: PosixFiles.link(self, source, target))

    def replace(self, source: Path, target: Path) -> None:
        self.effect("replace", target, lambda: PosixFiles.replace(self, source, target))

    def unlink(self, path: Path) -> None:
        self.effect("unlink", path, lambda: PosixFiles.unlink(self, path))

    def list_directory(self, directory: Path) -> list[FileStatus]:
        return self.effect("list_directory", directory, lambda: PosixFiles.list_directory(self, directory))

    def read(self, path: Path) -> bytes:
        return self.effect("read", path, lambda: PosixFiles.read(self, path))

    def stat(self, path: Path) -> FileStatus | None:
        return self.effect("stat", path, lambda: PosixFiles.stat(self, path))

    def exists(self, path: str) -> bool:
        return self.effect("exists", path, lambda: PosixFiles.exists(self, path))


READS: Final = frozenset({"list_directory", "read", "stat", "exists"})
"""The operations that change nothing."""


class _EffectNewFile:
    def __init__(self, files: EffectFiles, path: Path, file: NewFile) -> None:
        self._files = files
        self._path = path
        self._file = file

    def write(self, content: bytes) -> None:
        half = content[: len(content) // 2]
        self._files.effect("write", self._path, lambda: self._file.write(content), torn=lambda: self._file.write(half))

    def fsync(self) -> None:
        self._files.effect("fsync", self._path, self._file.fsync if self._files.synced else lambda: None)

    def __enter__(self) -> Self:
        self._file.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._file.__exit__(*error)
