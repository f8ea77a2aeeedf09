"""The kit's eyes and hands: a table's log as a stranger lists it, and changes to it behind everybody's back.

Nothing here goes through the owner, nor through its effects: a stranger has a file system and no more.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from conformance.adapters.planting import planted
from conformance.interface import messages as m
from refimpl.log_path import LOG_FOLDER


class OutsideError(Exception):
    """The path is not below the log folder."""


def listed(location: Path, *, contents: bool) -> tuple[m.LogFile, ...]:
    """Every file below the log folder, by its path relative to it, sorted. What goes away meanwhile is left out."""
    folder = location / LOG_FOLDER
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return tuple(file for path in found if (file := _file(folder, path, contents=contents)) is not None)


def _file(folder: Path, path: Path, *, contents: bool) -> m.LogFile | None:
    try:
        status = path.stat()
        content = path.read_bytes().decode("utf-8", "surrogateescape") if contents else None
    except FileNotFoundError:
        return None
    size, modified = status.st_size, status.st_mtime_ns // 1_000_000
    return m.LogFile(name=path.relative_to(folder).as_posix(), size=size, content=content, modified=modified)


def plant(location: Path, file: str, content: str, *, if_absent: bool, modified: int | None) -> bool:
    """Create or replace a file, whole at once; False if `if_absent` and it was there."""
    return planted(_inside(location, file), content, beside=location, if_absent=if_absent, modified=modified)


def remove(location: Path, file: str) -> None:
    """Nothing happens if it is not there."""
    _inside(location, file).unlink(missing_ok=True)


def _inside(location: Path, file: str) -> Path:
    parts = PurePosixPath(file).parts
    if not parts or file.startswith("/") or ".." in parts:
        raise OutsideError(f"{file!r} is no path below the log folder")
    return location.joinpath(LOG_FOLDER, *parts)
