"""The effects of the code under test, as the simulation sees them.

A simulated file system, lock, database or clock calls its hook just before and just after each effect. Only at these
points a scheduler may switch to another client, and a crash or a power cut may happen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The kind of an effect. A closed list: coverage and counterexamples name them."""

    CREATE = "create"
    WRITE = "write"
    FSYNC = "fsync"
    FSYNC_DIRECTORY = "fsync-directory"
    MAKE_DIRECTORY = "make-directory"
    REMOVE_DIRECTORY = "remove-directory"
    LINK = "link"
    REPLACE = "replace"
    UNLINK = "unlink"
    LIST = "list"
    READ = "read"
    STAT = "stat"
    ACQUIRE = "acquire"
    RELEASE = "release"
    BEGIN = "begin"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    QUERY = "query"
    CLOCK = "clock"
    PAUSE = "pause"
    SEND = "send"
    ANSWER = "answer"
    WORK = "work"


class Moment(StrEnum):
    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One effect of one client, at one moment."""

    kind: Kind
    target: str
    """The file below the simulated root, the lock, or the statement's name."""
    moment: Moment


Hook = Callable[[Effect], None]
"""May switch to another client, or raise a `BaseException` that ends this one, so that no handler of the code under
test catches it."""


def unobserved(effect: Effect) -> None:
    """The hook of an ordinary run: nothing happens."""
