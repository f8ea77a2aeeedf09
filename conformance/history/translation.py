"""Translates messages of the shared interface into events of a history.

A history has digests instead of contents, and one type `other` for operations that do not concern the log. None stands
for a message that a history does not record as a request (`observe` is recorded as a listing).
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from conformance.history import digests, events
from conformance.history.events import Answer, Content, Entry, PublishedFile, Request
from conformance.history.operations import ANSWERS
from conformance.interface import messages
from conformance.interface.log_names import attempt_of, version_of

HIGHEST: Final = 2**63 - 1
"""The highest version that a history can name."""


def request(message: messages.Request) -> Request | None:
    """The event for a request. The subject may add to the content of a creation or a take-over what its table feature
    needs; so only other proposals have a content."""
    more: dict[str, Any] = {}
    match message:
        case messages.Commit() | messages.HandBack():
            more["content"] = None if message.actions is None else _proposed(message.actions)
        case messages.Snapshot():
            more["by_path"] = message.path is not None
        case messages.Transact():
            return events.Transact(attempt=message.marker)
        case messages.Compact():
            return events.Checkpoint(version=message.end)
        case messages.Remove():
            return events.Cleanup()
        case messages.Plant():
            return events.Other(name=f"plant {message.file}")
        case messages.Observe():
            return None
    kind = getattr(events, type(message).__name__, None)
    if kind is None:
        return events.Other(name=messages.name_of(message))
    event: Request = kind(**_shared(message, kind), **more)
    return event


def _shared(message: messages.Message, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The fields of the message that an event of this kind has too."""
    return {name: getattr(message, name) for name in kind.__struct_fields__ if name in message.__struct_fields__}


def answer(message: messages.Request, given: messages.Answer) -> Answer | None:
    """The event for the answer to a request; None if the answer is invalid for the request, or names an impossible
    version."""
    event, about = _answer(message, given), request(message)
    if event is None or about is None or type(event) not in ANSWERS[type(about)]:
        return None
    try:
        return msgspec.convert(msgspec.to_builtins(event), type(event))
    except msgspec.ValidationError:
        return None


def _answer(message: messages.Request, given: messages.Answer) -> Answer | None:
    match given:
        case messages.Committed(version=None):
            return events.Rejected(reason="nothing to commit")
        case messages.Conflict():
            return events.Conflict(latest=given.latest, winners=_entries(given.winners or ()))
        case messages.Commits():
            return events.Commits(latest=given.latest, commits=_entries(given.commits))
        case messages.Table() if isinstance(message, messages.LoadTable):
            return events.Table(latest=given.latest, commits=None if given.commits is None else _entries(given.commits))
        case messages.Table() | messages.Observation():
            return None
        case (
            messages.Policy()
            | messages.Identity()
            | messages.ApiAnswer()
            | messages.GroupRatified()
            | messages.GroupRefused()
            | messages.Tables()
            | messages.GroupCommitted()
            | messages.SnapshotsRead()
        ):
            return events.Done()
    kind = getattr(events, type(given).__name__)
    event: Answer = kind(**_shared(given, kind))
    return event


def published(files: Iterable[messages.LogFile]) -> list[PublishedFile]:
    """The published commits in an observation of a log."""
    commits: list[PublishedFile] = []
    for file in files:
        version = version_of(file.name)
        if version is not None and version <= HIGHEST:
            content = None if file.content is None else digests.of_file(file.content.encode("utf-8", "surrogatepass"))
            commits.append(PublishedFile(version=version, content=content))
    return commits


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
