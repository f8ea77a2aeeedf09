"""Answers in words, for people, without the contents of commits."""

import json
from collections.abc import Iterable
from itertools import zip_longest
from typing import Final

import msgspec

from conformance.history import digests
from conformance.interface import messages as m
from conformance.interface.messages import name_of

LONGEST: Final = 300
"""The maximum length of an answer that is shown as JSON."""

_LONGEST_VALUE: Final = 80
"""The maximum number of characters of a field's value."""
_MISSING: Final = object()

NO_SUCH_JOB: Final = "the client does not do that"
"""The beginning of the reason if a client under test does not support an operation."""


def in_words(answer: m.Answer) -> str:
    """An answer in words, beginning with the outcome's name in the interface."""
    name = f"`{name_of(answer)}`"
    match answer:
        case m.Ratified() | m.Committed() | m.Landed():
            where = "nothing to commit" if answer.version is None else f"as version {answer.version}"
            return f"{name} {where}"
        case m.Conflict():
            winners = "" if answer.winners is None else f", winners {_versions(answer.winners)}"
            return f"{name}, {_latest(answer.latest)}{winners}"
        case m.Gap():
            return f"{name}, {_latest(answer.latest)}"
        case m.Rejected() | m.Unknown() | m.Unsupported():
            retryable = ", retryable" if isinstance(answer, m.Rejected) and answer.retryable else ""
            return f"{name}{retryable}" + (f" ({answer.reason})" if answer.reason else "")
        case m.Commits() | m.Table():
            return f"{name}, {_latest(answer.latest)}, commits {_versions(answer.commits or ())}"
        case m.SnapshotRead():
            stale = ", perhaps stale" if answer.stale else ""
            return f"{name} of version {answer.version}{stale}, {len(answer.files)} files"
        case m.Observation():
            return f"{name} of {len(answer.files)} files"
        case m.Done() | m.NotFound() | m.NotLanded():
            return name
        case _:
            text = msgspec.json.encode(answer).decode("utf-8", "replace")
            return f"{name} {text[:LONGEST]}" + ("..." if len(text) > LONGEST else "")


def answered(request: m.Request, answer: m.Answer) -> str:
    """A request and its answer in words."""
    version = getattr(request, "version", None)
    of = "" if version is None else f" of version {version}"
    return f"`{name_of(request)}`{of} was answered {in_words(answer)}"


def _latest(version: int | None) -> str:
    return "no latest version" if version is None else f"latest {version}"


def _versions(entries: Iterable[m.CommitEntry]) -> str:
    return versions_in_words(entry.version for entry in entries)


def versions_in_words(versions: Iterable[int]) -> str:
    """Versions in the given order; more than three consecutive ones are written as `1 to 9`."""
    runs: list[list[int]] = []
    for version in versions:
        if runs and version == runs[-1][-1] + 1:
            runs[-1].append(version)
        else:
            runs.append([version])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 3 else ", ".join(map(str, run)) for run in runs) or "none"


def difference(label: str, first: str, other: str, second: str) -> str:
    """The first difference of two contents, and their lengths."""
    sizes = f"{label} are {len(first.encode())} bytes, {other} {len(second.encode())}"
    at = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second)))
    if first == second:
        return f"{sizes}, the same"
    return f"{sizes}; from character {at} on, {label}: {_from(first, at)}, {other}: {_from(second, at)}"


def different_action(label: str, first: Iterable[str], other: str, second: Iterable[str]) -> str:
    """The first action that differs in two lists of actions."""
    for number, (mine, theirs) in enumerate(zip_longest(first, second, fillvalue=""), start=1):
        if mine != theirs and not digests.same_actions([mine], [theirs]):
            field = _different_field(mine, theirs)
            if field is not None:
                name, left, right = field
                return f"action {number} differs in `{name}`: {label} {left}, {other} {right}"
            return f"action {number} differs: {difference(label, mine, other, theirs)}"
    return "the actions are the same"


def _different_field(action: str, other: str) -> tuple[str, str, str] | None:
    """The first field of two JSON objects that differs, such as `add.stats`, with both values."""
    try:
        left, right = json.loads(action or "{}"), json.loads(other or "{}")
    except (ValueError, RecursionError):
        return None
    path: list[str] = []
    while isinstance(left, dict) and isinstance(right, dict):
        name = next((key for key in (*left, *right) if left.get(key, _MISSING) != right.get(key, _MISSING)), None)
        if name is None:
            return None  # a duplicate key, or 1 and 1.0
        path.append(name)
        left, right = left.get(name, _MISSING), right.get(name, _MISSING)
    return ".".join(path), _shown(left), _shown(right)


def _shown(value: object) -> str:
    text = "nothing" if value is _MISSING else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}... ({len(text):,} characters)"


def _from(text: str, at: int) -> str:
    return repr(text[at : at + 60]) if at < len(text) else "nothing more"
