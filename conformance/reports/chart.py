"""The chart of a history: a table with a column for each client and for the files, time from top to bottom.

A step's cell lasts from its request to its answer. The chart keeps the order of times, but not their distances. The
final log is below it, without a time.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from conformance.checkers.check import describe_answer, describe_look, describe_request
from conformance.history.events import FileLook, Other, Witness
from conformance.interface.results import Violation
from conformance.interface.safe_text import one_line
from conformance.reports.recorded import (
    LONGEST_ATTEMPT,
    Recorded,
    Step,
    began,
    contradiction,
    contradicts_the_log,
    cut,
    ended,
    in_letters,
    kind_of,
    sides,
    to_draw,
)

FILES: Final = "files, as an external observer sees them"
_LONGEST: Final = 40
"""The length of the longest name of a client or fault, in characters."""
COLOURS: Final = 6
"""The number of colours for attempts; further attempts use them again."""
MOST_VERSIONS: Final = 12
"""How many versions of the final log are shown."""


def chart(recorded: Recorded, violation: Violation) -> dict[str, Any]:
    """The chart of one violation, for the template."""
    steps = to_draw(recorded, violation)
    notes = _notes(recorded, steps)
    moments = sorted({began(step) for step in steps} | {at for step in steps if (at := ended(step))} | {*notes})
    rows = {at: number for number, at in enumerate(moments)}
    clients = dict.fromkeys(step.client for step in steps if not isinstance(step, FileLook))
    lanes: list[tuple[str, Sequence[Step]]] = [
        (cut(client, _LONGEST) or "unnamed client", _of(client, steps)) for client in clients
    ]
    lanes += [(FILES, looks)] if (looks := [step for step in steps if isinstance(step, FileLook)]) else []
    columns = [(name, [_column(recorded, track, rows, violation) for track in _tracks(of, rows)]) for name, of in lanes]
    return {
        "lanes": [(name, len(tracks)) for name, tracks in columns],
        "rows": [
            {
                "time": recorded.times.shown(at),
                "notes": notes.get(at, ()),
                "cells": [track[row] for _, tracks in columns for track in tracks if row in track],
            }
            for at, row in rows.items()
        ],
        "log": _log(recorded, violation),
        "visible": recorded.complete,
        "drawn": len(steps),
        "of": len(recorded.steps),
        "clock": "ms since the first event" if recorded.times.real else "numbers of events",
    }


def _of(client: str, steps: Sequence[Step]) -> list[Step]:
    return [step for step in steps if not isinstance(step, FileLook) and step.client == client]


def _end(step: Step, rows: dict[int, int]) -> int:
    at = ended(step)
    return len(rows) - 1 if at is None else rows[at]


def _tracks(steps: Sequence[Step], rows: dict[int, int]) -> list[list[Step]]:
    """The steps of one lane, those that overlap in different tracks."""
    tracks: list[list[Step]] = []
    for step in steps:
        free = (track for track in tracks if _end(track[-1], rows) < rows[began(step)])
        if (track := next(free, None)) is None:
            tracks.append(track := [])
        track.append(step)
    return tracks


def _column(
    recorded: Recorded, track: Sequence[Step], rows: dict[int, int], violation: Violation
) -> dict[int, dict[str, Any]]:
    """The cells of one track, each at its first row, with the empty cells between them."""
    cells: dict[int, dict[str, Any]] = {}
    row = 0
    for step in track:
        start, end = rows[began(step)], _end(step, rows)
        if start > row:
            cells[row] = {"rows": start - row, "number": None}
        cells[start] = {"rows": end - start + 1, **_cell(recorded, step, violation)}
        row = end + 1
    if row < len(rows):
        cells[row] = {"rows": len(rows) - row, "number": None}
    return cells


def _cell(recorded: Recorded, step: Step, violation: Violation) -> dict[str, Any]:
    marked = sides(recorded, violation)
    request = None if isinstance(step, FileLook) else step.request
    table = "" if isinstance(request, Other | None) or not recorded.several else step.table
    asked = "list the files" if request is None else describe_request(request)
    return {
        "number": step.id,
        "request": in_letters(asked, recorded) + (f" ({one_line(table)})" if table else ""),
        "answer": one_line(in_letters(_answer(step), recorded)),
        "kind": kind_of(step),
        "mark": marked.index(step.id) + 1 if step.id in marked else 0,
        "colour": colour_of(recorded, getattr(request, "attempt", None)),
    }


def _answer(step: Step) -> str:
    if isinstance(step, FileLook):
        return describe_look(step)
    return "no answer" if step.answer is None else describe_answer(step.answer)


def colour_of(recorded: Recorded, attempt: str | None) -> int | None:
    """The colour of an attempt, in the chart and in the text."""
    return list(recorded.letters).index(attempt) % COLOURS if attempt in recorded.letters else None


def _notes(recorded: Recorded, steps: Sequence[Step]) -> dict[int, list[str]]:
    """The faults, and the numbers of steps left out, at their times."""
    notes: dict[int, list[str]] = {}
    shown = {step.id for step in steps}
    for at, text in _left_out(recorded, shown):
        notes.setdefault(at, []).append(text)
    last = max((ended(step) or began(step) for step in steps), default=0)
    for fault in recorded.faults:
        if len(steps) == len(recorded.steps) or (steps and began(steps[0]) <= fault.at <= last):
            who = f" ({cut(fault.client, LONGEST_ATTEMPT)})" if fault.client else ""
            notes.setdefault(fault.at, []).append(cut(f"{fault.kind}{who}", _LONGEST))
    return notes


def _left_out(recorded: Recorded, shown: set[int]) -> Iterator[tuple[int, str]]:
    missing = 0
    for step in recorded.steps:
        if step.id not in shown:
            missing += 1
        elif missing:
            yield began(step), f"{missing} not drawn"
            missing = 0
    if missing:
        yield began(recorded.steps[-1]), f"{missing} not drawn"


def _log(recorded: Recorded, violation: Violation) -> list[dict[str, Any]]:
    """The table's final log, or its part around the violation's version, including a missing version."""
    tables = list(dict.fromkeys(witness.table for witness in recorded.log))
    table = violation.table if violation.table is not None else tables[0] if len(tables) == 1 else None
    versions: dict[int, Witness | None] = {line.version: line for line in recorded.log if line.table == table}
    about, wrong = violation.version, contradicts_the_log(violation)
    if about is not None and wrong and recorded.complete:
        versions.setdefault(about, None)
    ordered = sorted(versions)
    centre = ordered.index(about) if about in versions else len(ordered)
    start = max(0, min(centre - MOST_VERSIONS // 2, len(ordered) - MOST_VERSIONS))
    return [
        {
            "version": version,
            "attempt": "" if line is None or line.attempt is None else recorded.letters[line.attempt],
            "how": _how(line),
            "colour": None if line is None else colour_of(recorded, line.attempt),
            "mark": len(contradiction(violation)) + 1 if wrong and version == about else 0,
        }
        for version in ordered[start : start + MOST_VERSIONS]
        for line in (versions[version],)
    ]


def _how(line: Witness | None) -> str:
    if line is None:
        return "not there"
    return "before the history" if line.before else line.commit_mode or "ratified"
