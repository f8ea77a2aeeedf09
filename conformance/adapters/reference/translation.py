"""Translates between the reference's values and the interface's messages: names, contents, outcomes, errors.

An error of the reference says what its caller should do. So it shows whether the request had no effect, or its outcome
is unknown.
"""

import hashlib
import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from conformance.interface import messages as m
from conformance.models.proposals import lines
from refimpl.protocol import commits
from refimpl.protocol.actions import Metadata, Protocol
from refimpl.protocol.errors import DeltaError, OutcomeUnknown, OwnerUnavailableError, TableNotFoundError
from refimpl.protocol.groups import GroupRatified, GroupRefused
from refimpl.protocol.table_feature import TableFeature

_LEGAL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)
_READABLE: Final = 100
"""How many characters of an invalid name stay readable in its replacement."""


def table_name(name: str) -> str:
    """The table's name in the reference, whose names are identifiers. A valid name stays as it is."""
    if _LEGAL_NAME.fullmatch(name):
        return name
    readable = re.sub(r"[^A-Za-z0-9]+", "_", name)[:_READABLE]
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"t_{readable}_{digest}"


# Contents


def actions_of(content: bytes) -> tuple[str, ...]:
    """The lines of a commit that are not blank."""
    return tuple(lines(content.decode("utf-8", "replace")))


def with_owner(actions: Iterable[str], feature: TableFeature, owner: str) -> tuple[str, ...]:
    """The actions, which also make `owner` the table's owner: if the table feature has a property for the owner's name,
    the metadata gets it.

    managed-commits, "Managed Commit Enablement". The owner rejects actions that cannot be parsed.
    """
    if feature.owner_property is None:
        return tuple(actions)
    return tuple(_with_property(action, feature.owner_property, owner) for action in actions)


def _with_property(action: str, key: str, value: str) -> str:
    try:
        parsed: Any = msgspec.json.decode(action)
        configuration = parsed["metaData"].setdefault("configuration", {})
        configuration[key] = value
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
        return action
    return msgspec.json.encode(parsed).decode()


def action(kind: str, body: Protocol | Metadata | None) -> str | None:
    """One action as a line of a log."""
    return None if body is None else msgspec.json.encode({kind: body}).decode()


# Outcomes


def entry(commit: commits.RatifiedCommit) -> m.CommitEntry:
    return m.CommitEntry(
        version=commit.version,
        file_name=commit.file_name,
        actions=None if commit.content is None else actions_of(commit.content),
        in_commit_timestamp=commit.in_commit_timestamp,
    )


def entries(ratified: Iterable[commits.RatifiedCommit]) -> tuple[m.CommitEntry, ...]:
    return tuple(entry(commit) for commit in ratified)


def outcome(answer: commits.Outcome, table: str | None = None) -> m.Answer:
    """The outcome of a proposal. `table`: its reference, if the answer should hold it."""
    match answer:
        case commits.Ratified(commit=commit):
            return m.Ratified(version=commit.version, table=table)
        case commits.Conflict():
            return m.Conflict(latest=answer.latest_ratified_version, winners=entries(answer.winners) or None)
        case commits.VersionGap():
            return m.Gap(latest=answer.latest_ratified_version)
        case commits.Rejected():
            return m.Rejected(reason=f"{answer.reason.value}: {answer.detail}", retryable=answer.retryable)


def group(answer: GroupRatified | GroupRefused) -> m.Answer:
    """The outcome of a group."""
    if isinstance(answer, GroupRatified):
        return m.GroupRatified()
    refusal = outcome(answer.outcome)
    assert isinstance(refusal, m.Conflict | m.Gap | m.Rejected)
    return m.GroupRefused(decided_by=answer.decided_by, answer=refusal, lost=answer.lost)


def attempt_outcome(answer: commits.AttemptOutcome) -> m.Answer:
    match answer:
        case commits.Landed(commit=commit):
            return m.Landed(version=commit.version)
        case commits.NotLanded():
            return m.NotLanded()


def failure(error: DeltaError) -> m.Answer:
    """An error as an answer. After `OutcomeUnknown` the request may have been executed; after others it was not."""
    match error:
        case OutcomeUnknown():
            return m.Unknown(reason=error.message)
        case TableNotFoundError():
            return m.NotFound()
        case _:
            reason = f"{type(error).__name__}: {error.message}"
            return m.Rejected(reason=reason, retryable=isinstance(error, OwnerUnavailableError))
