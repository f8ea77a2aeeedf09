"""Where the table of an owner may be, apart from its other tables: rules for a path and for what is there."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from refimpl.protocol.errors import LocationError
from refimpl.protocol.log_path import LOG_FOLDER
from refimpl.storage.files import Files

OWNER_FOLDER: Final = "_owner"
"""Below a warehouse; has the files of its owner."""

_LONGEST_FILE_NAME: Final = 255
"""Bytes; the limit of common file systems."""


def refuse_unusual_path(location: Path) -> None:
    """`LocationError` for a path that is relative, has `..`, is not text, or leads through a symbolic link."""
    if not location.is_absolute() or ".." in location.parts:
        raise LocationError(f"{location} is not an absolute path without '..'", location=str(location))
    try:
        too_long = any(len(part.encode()) > _LONGEST_FILE_NAME for part in location.parts)
        real = location.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, or not text
        raise LocationError(f"{str(location)!r} cannot be a location: {error}", location=str(location)) from error
    if too_long:
        raise LocationError(
            f"a part of {location} is longer than {_LONGEST_FILE_NAME} bytes; choose shorter names",
            location=str(location),
        )
    if real != location:
        raise LocationError(
            f"{location} leads to {real} through a symbolic link; pass the real path", location=str(location)
        )


def is_link(path: Path) -> bool:
    """Whether a path below a table's location is a symbolic link."""
    return path.resolve() != path


def refuse_reserved(owner_folder: Path, location: Path) -> None:
    """`LocationError` for the owner's own folder, and for a folder inside a log."""
    if location.is_relative_to(owner_folder) or LOG_FOLDER in location.parts:
        raise LocationError(f"{location} is reserved; choose another location", location=str(location))


def refuse_outside(allowed: Sequence[Path], location: Path) -> None:
    """`LocationError` for a location that is not below an allowed folder: the warehouse, or a root."""
    if not any(location.is_relative_to(root) and location != root for root in allowed):
        raise LocationError(
            f"{location} is not below {' or '.join(map(str, allowed))}; choose a location there, or add a root: "
            f"commit-owner init --root, or refimpl.open(..., roots=[...])",
            location=str(location),
        )


def refuse_outside_warehouse(warehouse: Path, location: Path) -> None:
    if not location.is_relative_to(warehouse) or location == warehouse:
        raise LocationError(
            f"{location} is not inside the warehouse; expected a folder below {warehouse}", location=str(location)
        )


def refuse_occupied(files: Files, warehouse: Path, location: Path) -> None:
    """`LocationError` for a location in the warehouse that is not empty, or is below a file or inside a table."""
    for parent in location.parents[: len(location.parts) - len(warehouse.parts) - 1]:
        parent_status = files.stat(parent)
        if parent_status is not None and not parent_status.is_directory:
            raise LocationError(f"{location} cannot be below {parent}, which is a file", location=str(location))
        if files.stat(parent / LOG_FOLDER) is not None:
            raise LocationError(f"{location} is inside the table at {parent}", location=str(location))
    status = files.stat(location)
    if status is not None and not (status.is_directory and _is_vacant(files, location)):
        raise LocationError(f"{location} is not an empty folder; a new table needs one", location=str(location))


def _is_vacant(files: Files, location: Path) -> bool:
    """Whether the location is missing, or has only the empty folders of an earlier creation."""

    def holds_no_file(directory: Path) -> bool:
        return all(
            entry.is_directory and holds_no_file(directory / entry.name) for entry in files.list_directory(directory)
        )

    return all(
        entry.is_directory and entry.name == LOG_FOLDER and holds_no_file(location / LOG_FOLDER)
        for entry in files.list_directory(location)
    )
