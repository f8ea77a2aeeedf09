"""Translates messages of the shared interface into events of a history.

A history has digests instead of contents, and one type `other` for operations that do not concern the log. None stands
for a message that a history does not record as a request (`observe` is recorded as a listing).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from conformance.history import digests, events
from conformance.history.events import Answer, Content, Entry, PublishedFile, Request
from conformance.history.operations import ANSWERS
from conformance.interface import messages
from conformance.interface.log_names import attempt_of, version_of

_HIGHEST: Final = 2**63 - 1
"""The highest version that a history can name."""


def request(message: messages.Request) -> Request | None:
    """The event for a request."""
    match message:
        case messages.Commit():
            content = None if message.actions is None else _proposed(message.actions)
            return events.Commit(version=message.version, attempt=message.attempt, content=content)
        case messages.CreateTable():
            # The subject may add what its table feature needs to protocol and metadata: other content than proposed.
            return events.CreateTable(attempt=message.attempt)
        case messages.TakeOver():  # the subject may add its name, as in a creation
            return events.TakeOver(version=message.version, attempt=message.attempt)
        case messages.HandBack():
            content = _proposed(message.actions)
            return events.HandBack(version=message.version, attempt=message.attempt, content=content)
        case messages.Transact():
            return events.Transact(attempt=message.marker)
        case messages.AttemptOutcome():
            return events.AttemptOutcome(attempt=message.attempt)
        case messages.GetCommits():
            return events.GetCommits(start=message.start, end=message.end)
        case messages.LoadTable():
            return events.LoadTable()
        case messages.Snapshot():
            by_path = message.path is not None
            return events.Snapshot(version=message.version, timestamp=message.timestamp, by_path=by_path)
        case messages.BackfillToVersion():
            return events.BackfillToVersion(version=message.version)
        case messages.Checkpoint():
            return events.Checkpoint(version=message.version)
        case messages.Compact():
            return events.Checkpoint(version=message.end)
        case messages.Cleanup() | messages.Remove():
            return events.Cleanup()
        case messages.Plant():
            return events.Other(name=f"plant {message.file}")
        case messages.Observe():
            return None
        case _:
            return events.Other(name=messages.name_of(message))


def answer(asked: messages.Request, given: messages.Answer) -> Answer | None:
    """The event for the answer to a request; None if the answer is invalid for the request, or names an impossible
    version."""
    found, about = _answer(asked, given), request(asked)
    if found is None or about is None or type(found) not in ANSWERS[type(about)]:
        return None
    try:
        return msgspec.convert(msgspec.to_builtins(found), type(found))
    except msgspec.ValidationError:
        return None


def _answer(asked: messages.Request, given: messages.Answer) -> Answer | None:
    match given:
        case messages.Ratified(version=version):
            return events.Ratified(version=version)
        case messages.Committed(version=None):
            return events.Rejected(reason="nothing to commit")
        case messages.Committed(version=int(version)):
            return events.Committed(version=version)
        case messages.Landed(version=version):
            return events.Landed(version=version)
        case messages.NotLanded():
            return events.NotLanded()
        case messages.Conflict():
            return events.Conflict(latest=given.latest, winners=_entries(given.winners or ()))
        case messages.Gap(latest=latest):
            return events.Gap(latest=latest)
        case messages.Rejected(reason=reason):
            return events.Rejected(reason=reason)
        case messages.Unsupported(reason=reason):
            return events.Unsupported(reason=reason)
        case messages.Unknown(reason=reason):
            return events.Unknown(reason=reason)
        case messages.NotFound():
            return events.NotFound()
        case messages.Commits():
            return events.Commits(latest=given.latest, commits=_entries(given.commits))
        case messages.Table() if isinstance(asked, messages.LoadTable):
            return events.Table(latest=given.latest, commits=None if given.commits is None else _entries(given.commits))
        case messages.SnapshotRead():
            return events.SnapshotRead(version=given.version, stale=given.stale)
        case messages.Done() | messages.Policy() | messages.Identity():
            return events.Done()
        case _:
            return None


def published(files: Iterable[messages.LogFile]) -> list[PublishedFile]:
    """The published commits in an observation of a log."""
    found: list[PublishedFile] = []
    for file in files:
        version = version_of(file.name)
        if version is not None and version <= _HIGHEST:
            content = None if file.content is None else digests.of_file(file.content.encode("utf-8", "surrogatepass"))
            found.append(PublishedFile(version=version, content=content))
    return found


def _proposed(actions: Iterable[str]) -> Content | None:
    try:
        return Content(actions=digests.of_actions(actions))
    except ValueError:  # invalid JSON was proposed on purpose, and has no digest of its actions
        return None


def _entries(commits: Iterable[messages.CommitEntry]) -> tuple[Entry, ...]:
    return tuple(
        Entry(
            version=commit.version,
            attempt=None if commit.file_name is None else attempt_of(commit.file_name),
            content=None if commit.actions is None else _proposed(commit.actions),
        )
        for commit in commits
    )
