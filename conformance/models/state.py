"""What an owner knows of its tables."""

from __future__ import annotations

from typing import Final

import msgspec

STAGING: Final = {"managedCommit": "_commits", "catalogManaged": "_staged_commits"}
"""The staging folder of each table feature."""


class Commit(msgspec.Struct, kw_only=True):
    """A ratified commit that the owner still stores: where its file is, or for an inline commit what it says."""

    attempt: str
    staged_file: str | None = None
    actions: tuple[str, ...] | None = None


class OwnedTable(msgspec.Struct, kw_only=True):
    """All that the owner knows of a table."""

    reference: str
    name: str
    feature: str
    commit_mode: str
    location: str
    latest: int = -1
    """The latest ratified version."""
    backfilled: int = -1
    """Every version up to it is `<v>.json`."""
    unbackfilled: dict[int, Commit] = {}
    landed: dict[str, int] = {}
    """Version by attempt, for ever."""
    never: set[str] = set()
    """Attempts that were resolved as not landed."""
    active: bool = True
    promised: tuple[int, str, str] | None = None
    """The commit that makes the table this owner's, from the promise until it is known to be visible: its version,
    its attempt and its content."""
    leaving: str | None = None
    """The attempt that gives the table back, from the promise on."""
    backfill: str = "on-request"
    backlog_limit: int | None = None
