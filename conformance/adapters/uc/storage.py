"""A table's log on this machine's disk, as the clients of a catalog work on it, and as a stranger sees it.

Files become visible whole, by a link or a rename of what was written beside the log folder, where nobody looks.
Nothing is made durable: the kit cuts nobody's power here.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import unquote, urlsplit

from conformance.interface import messages as m
from conformance.interface.subject import AdapterError

LOG: Final = "_delta_log"
STAGING: Final = "_staged_commits"


class OutsideError(Exception):
    """The path is not below the log folder."""


def folder_of(location: str) -> Path:
    """The folder that a location names. Raises `AdapterError` for one that is not on this machine."""
    parts = urlsplit(location)
    if parts.scheme == "" and location.startswith("/"):
        return Path(location)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise AdapterError(
            f"the server keeps tables at {location!r}; the kit looks at their logs itself, and can only look into "
            f"folders of this machine (file:///...): give the catalog a local storage root"
        )
    return Path(unquote(parts.path))


def published(version: int) -> str:
    return f"{version:020}.json"


class LocalLog:
    """The log of the table in a folder."""

    def __init__(self, location: Path) -> None:
        self.location = location
        self.folder = location / LOG

    def read(self, name: str) -> bytes | None:
        """None: there is no such file. Raises `OutsideError`."""
        try:
            return self._path(name).read_bytes()
        except FileNotFoundError:
            return None

    def status(self, name: str) -> os.stat_result | None:
        try:
            return self._path(name).stat()
        except FileNotFoundError:
            return None

    def put_if_absent(self, name: str, content: bytes, modified: int | None = None) -> bool:
        """Whether it was absent. `modified`: ms since the epoch."""
        with self._written(name, content, modified) as temporary:
            try:
                os.link(temporary, self._path(name))
            except FileExistsError:
                return False
        return True

    def put(self, name: str, content: bytes, modified: int | None = None) -> None:
        with self._written(name, content, modified) as temporary:
            temporary.replace(self._path(name))

    def remove(self, name: str) -> None:
        """Nothing happens if it is not there."""
        self._path(name).unlink(missing_ok=True)

    def files(self, *, contents: bool) -> tuple[m.LogFile, ...]:
        """Every file below the log folder, sorted. What goes away meanwhile is left out."""
        found = (path for path in sorted(self.folder.rglob("*")) if path.is_file())
        return tuple(file for path in found if (file := self._file(path, contents=contents)) is not None)

    def _file(self, path: Path, *, contents: bool) -> m.LogFile | None:
        try:
            status = path.stat()
            content = path.read_bytes().decode("utf-8", "surrogateescape") if contents else None
        except FileNotFoundError:
            return None
        name = path.relative_to(self.folder).as_posix()
        return m.LogFile(name=name, size=status.st_size, content=content, modified=status.st_mtime_ns // 1_000_000)

    def _path(self, name: str) -> Path:
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or ".." in parts:
            raise OutsideError(f"{name!r} is no path below the log folder")
        return self.folder.joinpath(*parts)

    @contextmanager
    def _written(self, name: str, content: bytes, modified: int | None) -> Iterator[Path]:
        self._path(name).parent.mkdir(parents=True, exist_ok=True)
        temporary = self.location / f".written-{uuid.uuid4()}"
        temporary.write_bytes(content)
        if modified is not None:
            os.utime(temporary, ns=(modified * 1_000_000, modified * 1_000_000))
        try:
            yield temporary
        finally:
            temporary.unlink(missing_ok=True)
