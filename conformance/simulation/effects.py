"""The effects of the code under test.

A simulated file system, lock, database or clock calls its hook just before and just after each effect. Only at these
moments can a scheduler switch to another client, or a crash or a power cut happen.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Kind(StrEnum):
    """The kind of an effect. The list is closed, because coverage and counterexamples name the kinds."""

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
    """A file below the simulated root, a lock, or the name of a statement."""
    moment: Moment


Hook = Callable[[Effect], None]
"""A hook may switch to another client, or end this one with a `BaseException`, which no handler of the code under test
catches."""


@contextmanager
def happening(hook: Hook, kind: Kind, target: Path | str) -> Iterator[None]:
    """Call the hook before and after an effect; only before it if it fails."""
    hook(Effect(kind=kind, target=str(target), moment=Moment.BEFORE))
    yield
    hook(Effect(kind=kind, target=str(target), moment=Moment.AFTER))


def unobserved(effect: Effect) -> None:
    """The hook of an ordinary run, which does nothing."""
