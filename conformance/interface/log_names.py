"""The names of files in a table's log folder."""

from collections.abc import Mapping
from typing import Final

LOG: Final = "_delta_log"
FILESYSTEM: Final = "filesystem"
"""Stands for a table feature: a plain table, without an owner, where creating `<version>.json` is the commit."""
STAGING: Final[Mapping[str, str]] = {"managedCommit": "_commits", "catalogManaged": "_staged_commits"}
"""The staging folder of each table feature, below the log folder."""
STAGED_TABLES: Final = "staged-tables"
"""The folder, below the kit's own storage, in which clients of its Delta API create tables."""

TABLE_ID: Final = "io.unitycatalog.tableId"
"""The table property in which Unity Catalog stores its table id."""

_DIGITS: Final = 20


def commit_file(version: int) -> str:
    """The name of a published commit."""
    return f"{version:0{_DIGITS}}.json"


def staged_file(version: int, attempt: str) -> str:
    """The name of a staged commit in the staging folder."""
    return f"{version:0{_DIGITS}}.{attempt}.json"


def checkpoint_file(version: int) -> str:
    """The name of a classic checkpoint in one file."""
    return f"{version:0{_DIGITS}}.checkpoint.parquet"


def compacted_file(start: int, end: int) -> str:
    """The name of a log compaction."""
    return f"{start:0{_DIGITS}}.{end:0{_DIGITS}}.compacted.json"


def checksum_file(version: int) -> str:
    """The name of a version checksum."""
    return f"{version:0{_DIGITS}}.crc"


def attempt_of(staged: str) -> str | None:
    """The attempt in the name or path of a staged file."""
    parts = staged.rpartition("/")[2].split(".")
    return parts[1] if len(parts) == 3 and parts[2] == "json" else None


def version_in(stem: str) -> int | None:
    """The version at the beginning of a file's name, up to the first dot."""
    return int(stem) if len(stem) == _DIGITS and stem.isascii() and stem.isdecimal() else None


def version_of(name: str) -> int | None:
    """The version of a published commit; None for another file."""
    stem, _, ending = name.partition(".")
    return version_in(stem) if ending == "json" else None
