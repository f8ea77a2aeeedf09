"""The names of files in a table's log folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LOG: Final = "_delta_log"
FILESYSTEM: Final = "filesystem"
"""In the place of a table feature: a plain table. No owner knows it, and creating `<version>.json` is the commit."""
STAGING: Final[Mapping[str, str]] = {"managedCommit": "_commits", "catalogManaged": "_staged_commits"}
"""The staging folder of each table feature, below the log folder."""
STAGED_TABLES: Final = "staged-tables"
"""Below the kit's own storage: where clients of its Delta API create tables."""

TABLE_ID: Final = "io.unitycatalog.tableId"
"""The table property in which Unity Catalog keeps its id of the table."""

_DIGITS: Final = 20


def commit_file(version: int) -> str:
    """A published commit."""
    return f"{version:0{_DIGITS}}.json"


def staged_file(version: int, attempt: str) -> str:
    """A staged commit, in the staging folder."""
    return f"{version:0{_DIGITS}}.{attempt}.json"


def attempt_of(staged: str) -> str | None:
    """The attempt of a staged file, by its name or path."""
    parts = staged.rpartition("/")[2].split(".")
    return parts[1] if len(parts) == 3 and parts[2] == "json" else None


def version_in(stem: str) -> int | None:
    """The version that a file's name begins with, up to the first dot."""
    return int(stem) if len(stem) == _DIGITS and stem.isascii() and stem.isdecimal() else None


def version_of(name: str) -> int | None:
    """The version of a published commit; None for another file."""
    stem, _, ending = name.partition(".")
    return version_in(stem) if ending == "json" else None
