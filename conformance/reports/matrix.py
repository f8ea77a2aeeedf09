"""The page that shows several runs side by side: subjects across, requirements down, and a verdict in each cell.

One file without network access. A cell that is violated leads to the finding with its drawing, further down on the
page. Owners and clients have requirements of their own, hence a table each.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conformance.reports.page import CausePart, DocumentPart, documents, explain, rendered
from conformance.reports.summary import Summary, summarise
from conformance.results import RequirementResult, RequirementVerdict, RunResult

_TITLES: Final = {"owner": "Commit owners", "client": "Clients"}
_BAD: Final = frozenset({RequirementVerdict.VIOLATED, RequirementVerdict.WARNED})
_SHOWN: Final = frozenset(RequirementVerdict) - {RequirementVerdict.NOT_APPLICABLE, RequirementVerdict.NOT_CHECKED}
"""A requirement for which all runs say something else has no row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A subject with its run, or with the reason why it was not run."""

    subject: str
    """As on the command line."""
    result: RunResult | None = None
    reason: str = ""
    """Of a missing run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """A column with a result, as the page shows it."""

    id: str
    result: RunResult
    summary: Summary
    parts: tuple[CausePart, ...]
    verdicts: dict[str, RequirementResult]
    places: dict[str, str]
    """Where on the page the violation of a requirement is explained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grid:
    """The runs of one side."""

    title: str
    side: str
    runs: tuple[_Run, ...]
    documents: tuple[DocumentPart, ...]
    first: frozenset[RequirementVerdict]
    """The verdicts whose rows the page shows at first."""


def slug(subject: str) -> str:
    """The name of the subject's folder beside the page."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", subject).strip("-.") or "subject"


def to_matrix(columns: Sequence[Column], folder: Path | None = None) -> str:
    """The page. `folder`: where it will be, with the reports of each subject in the folder `slug(subject)`.

    Raises `ReportError` without the extra `conformance`.
    """
    runs = [_run(f"run-{number}-", each, folder) for number, each in enumerate(columns, 1) if each.result is not None]
    sides = dict.fromkeys(each.result.subject.side for each in runs)
    return rendered(
        "matrix.html.jinja",
        grids=[_grid(side, [each for each in runs if each.result.subject.side == side]) for side in sides],
        runs=runs,
        missing=[each for each in columns if each.result is None],
    )


def _run(prefix: str, column: Column, folder: Path | None) -> _Run:
    assert column.result is not None
    place = None if folder is None else folder / slug(column.subject)
    parts = explain(column.result, place, prefix=prefix, link=f"{slug(column.subject)}/")
    return _Run(
        id=prefix.rstrip("-"),
        result=column.result,
        summary=summarise(column.result),
        parts=tuple(parts),
        verdicts={each.requirement: each for each in column.result.requirements},
        places=_places(parts),
    )


def _places(parts: Sequence[CausePart]) -> dict[str, str]:
    """By requirement: the finding that shows its violation, or else its cause."""
    found: dict[str, str] = {}
    for part in parts:
        for explained in part.explained:
            for violation in explained.case.violations:
                for requirement in violation.requirements:
                    found.setdefault(requirement, explained.id)
    for part in parts:
        for each in part.cause.requirements:
            found.setdefault(each.requirement, part.id)
    return found


def _grid(side: str, runs: Sequence[_Run]) -> _Grid:
    """All requirements about which one of the runs says something."""
    rows: dict[str, RequirementResult] = {}
    for run in runs:
        for each in run.result.requirements:
            if each.verdict in _SHOWN:
                rows.setdefault(each.requirement, each)
    order = list(dict.fromkeys(each.requirement for run in runs for each in run.result.requirements))
    shown = [rows[name] for name in order if name in rows]
    found = {each.verdict for run in runs for each in run.verdicts.values()}
    return _Grid(
        title=_TITLES.get(side, side),
        side=side,
        runs=tuple(runs),
        documents=tuple(documents(shown)),
        first=_BAD if _BAD & found else frozenset(RequirementVerdict),
    )
