"""Where a table may be: in the warehouse or below a root, neither inside nor around another table."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Final

from refimpl.commit_owner import TableState
from refimpl.errors import LocationError
from refimpl.files import Files
from refimpl.log_path import LOG_FOLDER
from refimpl.object_store import objects_at
from refimpl.owner.context import Context
from refimpl.owner.statements import View

_LONGEST_FILE_NAME: Final = 255
"""Bytes; the limit of common file systems."""


def check_new_location(context: Context, view: View, location: Path) -> None:
    """`LocationError` unless it is inside the warehouse, neither inside nor around another table, and empty."""
    warehouse, files = context.warehouse, context.environment.files
    if not location.is_relative_to(warehouse) or location == warehouse:
        raise LocationError(f"{location} is not inside the warehouse {warehouse}", location=str(location))
    refuse_reserved(context, location)
    refuse_overlap(context, view, location)
    for parent in location.parents[: len(location.parts) - len(warehouse.parts) - 1]:
        found = files.stat(parent)
        if found is not None and not found.is_directory:
            raise LocationError(f"{location} cannot be below {parent}, which is a file", location=str(location))
        if files.stat(parent / LOG_FOLDER) is not None:
            raise LocationError(f"{location} is inside the table at {parent}", location=str(location))
    status = files.stat(location)
    if status is not None and not (status.is_directory and _is_vacant(files, location)):
        raise LocationError(f"{location} is not an empty directory; a new table needs one", location=str(location))


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


def check_roots(context: Context, view: View, location: Path) -> None:
    """`LocationError` for a location that is neither in the warehouse nor below a root, or is reserved."""
    allowed = (context.warehouse, *view.roots())
    if not any(location.is_relative_to(root) and location != root for root in allowed):
        raise LocationError(
            f"{location} is not below {' or '.join(map(str, allowed))}; choose a location there, or add a root: "
            f"commit-owner init --root, or refimpl.open(..., roots=[...])",
            location=str(location),
        )
    refuse_reserved(context, location)


def refuse_reserved(context: Context, location: Path) -> None:
    """`LocationError` for the owner's own folder, and for a folder inside a log."""
    if location.is_relative_to(context.ledger.path.parent) or LOG_FOLDER in location.parts:
        raise LocationError(f"{location} is reserved; choose another location", location=str(location))


def refuse_overlap(context: Context, view: View, location: Path) -> None:
    """`LocationError` for a location inside or around that of a table of this owner."""
    objects = objects_at(context.environment, location)
    places = (location,) if objects is None else (location, *objects.aliases(location))
    for other in itertools.chain.from_iterable(map(view.overlapping, places)):
        forgotten = f", or drop the table {other.table_id} if no process is creating it"
        raise LocationError(
            f"{location} overlaps {other.label} ({other.state.value}) at {other.location}; choose another location"
            f"{forgotten if other.state is TableState.STAGING else ''}",
            location=str(location),
        )


def is_link(path: Path) -> bool:
    """Whether a path below a table's location is a symbolic link."""
    return path.resolve() != path


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
