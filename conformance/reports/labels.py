"""What a drawing writes on an operation: as few words as say it, without who and when, which the place says."""

from __future__ import annotations

import unicodedata
from typing import Final

from conformance.history import events
from conformance.history.events import FileLook
from conformance.history.operations import Operation
from conformance.reports.recorded import Step
from conformance.safe_text import one_line

LONGEST_ATTEMPT: Final = 12
LONGEST_LABEL: Final = 28
LONGEST_NAME: Final = 40
"""Of a client, a fault."""


def asked(step: Step) -> str:
    """The request: `commit v3 as a1`."""
    if isinstance(step, FileLook):
        return "look at files"
    request = step.request
    parts = [request.name if isinstance(request, events.Other) else _tag(request)]
    if (version := getattr(request, "version", None)) is not None:
        parts.append(f"v{version}")
    if isinstance(request, events.GetCommits) and (request.start is not None or request.end is not None):
        parts.append(_range(request.start, request.end))
    if isinstance(request, events.Snapshot):
        parts += ["at a time"] * (request.timestamp is not None) + ["by path"] * request.by_path
    if (attempt := getattr(request, "attempt", None)) is not None:
        parts.append(f"as {short_attempt(attempt)}")
    return cut(" ".join(parts), LONGEST_LABEL)


def told(step: Step) -> str:
    """The answer: `conflict, latest 4`."""
    if isinstance(step, FileLook):
        there = [f"sees {_versions([file.version for file in step.published])}"] if step.published else []
        missing = [f"no {_versions(list(step.absent))}"] if step.absent else []
        return cut(", ".join([*there, *missing]) or "sees none", LONGEST_LABEL)
    return cut(_answer(step), LONGEST_LABEL)


def _answer(step: Operation) -> str:
    answer = step.answer
    if answer is None:
        return "no answer"
    name = _tag(answer).replace("_", " ")
    if isinstance(answer, events.Unknown):
        return "unknown"
    parts = []
    if (version := getattr(answer, "version", None)) is not None:
        name += f" v{version}"
    if isinstance(answer, (events.Commits, events.Table)):
        name = "latest none" if answer.latest is None else f"latest {answer.latest}"
    elif (latest := getattr(answer, "latest", None)) is not None:
        parts.append(f"latest {latest}")
    if listed := getattr(answer, "commits", None):
        parts.append(f"lists {_versions([entry.version for entry in listed])}")
    if isinstance(answer, events.Conflict) and answer.winners:
        parts.append("won by " + " ".join(short_attempt(entry.attempt or "somebody") for entry in answer.winners[:3]))
    if isinstance(answer, events.SnapshotRead) and answer.stale:
        parts.append("may be stale")
    if reason := getattr(answer, "reason", ""):
        parts.append(reason)
    return ", ".join([name, *parts])


def kind(step: Step) -> str:
    """Which of the five looks a step has: `done`, `refused`, `unknown`, `told` of a state, or a stranger's `look`."""
    if isinstance(step, FileLook):
        return "look"
    match step.answer:
        case None | events.Unknown():
            return "unknown"
        case events.Conflict() | events.Gap() | events.Rejected() | events.NotFound() | events.Unsupported():
            return "refused"
        case events.Commits() | events.Table() | events.SnapshotRead() | events.Landed() | events.NotLanded():
            return "told"
        case _:
            return "done"


def short_attempt(attempt: str) -> str:
    """An attempt's id, without its middle if it is long: attempts of one client often begin alike."""
    text = one_line(attempt)
    return text if len(text) <= LONGEST_ATTEMPT else f"{text[:5]}…{text[-5:]}"


def cut(text: str, length: int) -> str:
    """On one line, and not longer than that."""
    text = one_line(text)
    return text if len(text) <= length else f"{text[: length - 1]}…"


def columns(text: str) -> int:
    """How many columns of a fixed-width font the text takes."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def _tag(value: object) -> str:
    return str(type(value).__struct_config__.tag)  # type: ignore[attr-defined]


def _range(start: int | None, end: int | None) -> str:
    return f"v{'' if start is None else start}..{'' if end is None else end}"


def _versions(versions: list[int]) -> str:
    """`v2`, `v2..5`, `v2 v4 v7`."""
    ordered = sorted(set(versions))
    if len(ordered) > 1 and ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"v{ordered[0]}..{ordered[-1]}"
    return " ".join(f"v{version}" for version in ordered)
