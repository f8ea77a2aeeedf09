"""Storage that fails where a test wants it to."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Self

from refimpl.files import FileStatus, NewFile, PosixFiles


class FailingFiles(PosixFiles):
    """Real files. `fail_when(operation, path)` says of each effect whether it fails instead.

    Operations by name: create, write, fsync, fsync_directory, make_directory, link, replace, unlink, remove_directory,
    list_directory, read, exists. `after`: the effect happens, and is then reported as failed.
    """

    def __init__(self) -> None:
        self.fail_when: Callable[[str, Path], bool] = lambda operation, path: False
        self.after = False
        self.error = errno.ENOSPC
        self.done: list[tuple[str, Path]] = []

    def _effect(self, operation: str, path: Path, effect: Callable[[], object]) -> object:
        fails = self.fail_when(operation, path)
        if fails and not self.after:
            raise OSError(self.error, "injected", str(path))
        result = effect()
        self.done.append((operation, path))
        if fails:
            raise OSError(self.error, "injected", str(path))
        return result

    def create(self, path: Path) -> NewFile:
        created: list[NewFile] = []
        self._effect("create", path, lambda: created.append(super(FailingFiles, self).create(path)))
        return _WatchedFile(self, path, created[0])

    def fsync(self, path: Path) -> None:
        self._effect("fsync", path, lambda: super(FailingFiles, self).fsync(path))

    def fsync_directory(self, path: Path) -> None:
        self._effect("fsync_directory", path, lambda: super(FailingFiles, self).fsync_directory(path))

    def make_directory(self, path: Path, mode: int = 0o777) -> None:
        self._effect("make_directory", path, lambda: super(FailingFiles, self).make_directory(path, mode))

    def link(self, source: Path, target: Path) -> None:
        self._effect("link", target, lambda: super(FailingFiles, self).link(source, target))

    def replace(self, source: Path, target: Path) -> None:
        self._effect("replace", target, lambda: super(FailingFiles, self).replace(source, target))

    def unlink(self, path: Path) -> None:
        self._effect("unlink", path, lambda: super(FailingFiles, self).unlink(path))

    def remove_directory(self, path: Path) -> None:
        self._effect("remove_directory", path, lambda: super(FailingFiles, self).remove_directory(path))

    def list_directory(self, directory: Path) -> list[FileStatus]:
        if self.fail_when("list_directory", directory):
            raise OSError(self.error, "injected", str(directory))
        return super().list_directory(directory)

    def exists(self, path: str) -> bool:
        if self.fail_when("exists", Path(path)):
            raise OSError(self.error, "injected", path)
        return super().exists(path)

    def read(self, path: Path) -> bytes:
        if self.fail_when("read", path):
            raise OSError(self.error, "injected", str(path))
        return super().read(path)


class _WatchedFile:
    def __init__(self, files: FailingFiles, path: Path, file: NewFile) -> None:
        self._files = files
        self._path = path
        self._file = file

    def write(self, content: bytes) -> None:
        self._files._effect("write", self._path, lambda: self._file.write(content))

    def fsync(self) -> None:
        self._files._effect("fsync", self._path, self._file.fsync)

    def __enter__(self) -> Self:
        self._file.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._file.__exit__(*error)
