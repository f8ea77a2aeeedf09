"""What a simulation sees of the code under it: effects, one after the other.

Whatever carries an effect out (a simulated file system, a lock, a database, a clock) calls its hook just before, and
once more just after. At these points, and nowhere else, a scheduler may let another client go on, a crash may happen,
or the power may go.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What an effect does. Closed: coverage and counterexamples name them."""

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
"""May switch to another client, or raise what ends this one (`BaseException`, so that no handler of the code under
test takes it for an error of its own)."""


def unobserved(effect: Effect) -> None:
    """The hook of an ordinary run: nothing happens."""
