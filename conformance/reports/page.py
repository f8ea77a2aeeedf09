"""The HTML pages of a run, and of several runs side by side: one file each, without network access.

A page shows failures first; then every requirement, every case, and cases without a verdict, with the reason. Without
JavaScript the page shows everything, without filters.

The page of several runs has a column for each subject, a row for each requirement, and a verdict in each cell. The cell
of a violation links to the finding with its chart, further down. Owners and clients have different requirements, and
so separate tables.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from conformance.history.events import FileLook, InvalidHistoryError, Other, Witness
from conformance.history_checkers.check import describe, describe_answer, describe_look, describe_request
from conformance.interface.results import (
    CaseResult,
    RequirementResult,
    RequirementVerdict,
    RunResult,
    Violation,
    counted,
    headline,
    size_in_words,
)
from conformance.interface.safe_text import one_line, visible
from conformance.reports.causes import Cause, Evidence, causes, variants_in_words
from conformance.reports.recorded import (
    LONGEST_ATTEMPT,
    Recorded,
    Step,
    began,
    contradiction,
    contradicts_itself,
    contradicts_the_log,
    cut,
    ended,
    in_letters,
    kind_of,
    read_history,
    sides,
    to_draw,
)
from conformance.reports.stored import bundle_name, finding_of, replay_command, run_command
from conformance.reports.summary import Standing, reason_for, side_of, standing, summarise
from conformance.requirements.catalogue import Side, load, origin

HERE: Final = Path(__file__).parent
SIGNS: Final = {
    RequirementVerdict.HELD: "✓",
    RequirementVerdict.VIOLATED: "✗",
    RequirementVerdict.WARNED: "!",
    RequirementVerdict.INCONCLUSIVE: "?",
    RequirementVerdict.NOT_APPLICABLE: "–",
    RequirementVerdict.NOT_CHECKED: "○",
}
"""The sign of each verdict. It is shown beside the word, never instead of it."""
WORDS: Final = {
    RequirementVerdict.HELD: "holds",
    RequirementVerdict.VIOLATED: "violated",
    RequirementVerdict.WARNED: "not followed",
    RequirementVerdict.INCONCLUSIVE: "inconclusive",
    RequirementVerdict.NOT_APPLICABLE: "not applicable",
    RequirementVerdict.NOT_CHECKED: "not checked",
}
CASE_SIGNS: Final = {
    Standing.FAILED: "✗",
    Standing.KNOWN: "✗",
    Standing.WARNED: "!",
    Standing.INCONCLUSIVE: "?",
    Standing.NOT_RUN: "○",
    Standing.SKIPPED: "–",
    Standing.PASSED: "✓",
}
OTHERS: Final = {"owner": "readers' and writers'", "client": "owners'"}
"""For each side of a subject, the parties that most of its not applicable requirements bind."""
MOST_NAMES: Final = 50
"""How many cases with the same reason are named."""


def to_html(result: RunResult, folder: Path | None = None) -> str:
    """The page. `folder`: the folder of the reports, if it has bundles to link to and to replay."""
    parts = explain(result, folder)
    return rendered(
        "page.html.jinja",
        result=result,
        summary=summarise(result),
        violated=[part for part in parts if not part["cause"].warning],
        warned=[part for part in parts if part["cause"].warning],
        places=_places(parts),
        documents=documents(result.requirements),
        families=families(result),
        reasons=reasons(result),
        run_again=run_command(result),
        sides=list(Side),
        case_signs=CASE_SIGNS,
        others=OTHERS.get(result.subject.side, OTHERS["owner"]),
    )


def rendered(template: str, **values: Any) -> str:
    """A page, with the style and the script that all pages share."""
    script, style = ((HERE / name).read_text("utf-8") for name in ("page.js", "page.css"))
    return (
        _environment()
        .get_template(template)
        .render(
            verdicts=list(RequirementVerdict),
            signs=SIGNS,
            words=WORDS,
            word_after=word,
            script=Markup(script),
            style=Markup(style),
            script_hash=_hash(script),
            style_hash=_hash(style),
            **values,
        )
    )


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    environment.globals |= {"origin": origin, "plural": counted, "size": size_in_words}
    environment.filters["prose"] = _prose
    environment.filters["variants"] = lambda variants: variants_in_words([case for case, *_ in variants])
    environment.filters["word"] = lambda text: str(text).replace(" ", "-")
    return environment


def _visible(value: Any) -> Any:
    """Make all characters of a subject's texts visible on the page."""
    return value if not isinstance(value, str) or isinstance(value, Markup) else visible(value)


def _hash(text: str) -> str:
    """The hash by which the page's content security policy allows only this text."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _prose(text: str) -> Markup:
    """The text, with words in backticks as code."""
    parts = visible(text).split("`")
    if len(parts) % 2 == 0:
        return escape("`".join(parts))
    tagged = (Markup("<code>{}</code>").format(part) if index % 2 else escape(part) for index, part in enumerate(parts))
    return Markup("").join(tagged)


def _places(parts: Sequence[dict[str, Any]]) -> dict[str, str]:
    """For each requirement and each case, the place of its first explanation on the page."""
    places: dict[str, str] = {}
    for part in parts:
        for requirement in part["cause"].requirements:
            places.setdefault(requirement.requirement, part["id"])
        for explained in part["explained"]:
            for case, _, _ in explained["variants"]:
                places.setdefault(case.case, explained["id"])
        for case, _ in part["named"]:
            places.setdefault(case.case, part["id"])
    return places


def _document(source: str) -> str:
    titles = {document.name: document.title for document in load().documents if document.title}
    return titles.get(source, source.removesuffix(".md"))


def documents(requirements: Iterable[RequirementResult]) -> list[dict[str, Any]]:
    """Requirements by document and section, each with its side, in the order of their first requirements."""
    sections_by_source: dict[str, dict[str, list[tuple[RequirementResult, str]]]] = {}
    for requirement in requirements:
        section = "" if "#" in requirement.section else requirement.section  # all rules of a page are in one list
        sections_by_source.setdefault(requirement.source, {}).setdefault(section, []).append(
            (requirement, side_of(requirement))
        )
    return [
        {
            "name": _document(source),
            "id": f"document-{number}",
            "sections": list(sections.items()),
            "counts": _counts([requirement for part in sections.values() for requirement, _ in part]),
        }
        for number, (source, sections) in enumerate(sections_by_source.items(), 1)
    ]


def _counts(requirements: Sequence[RequirementResult]) -> str:
    numbers = {
        verdict: sum(requirement.verdict is verdict for requirement in requirements) for verdict in RequirementVerdict
    }
    order = (RequirementVerdict.VIOLATED, RequirementVerdict.WARNED, RequirementVerdict.INCONCLUSIVE)
    ordered = [*order, *(verdict for verdict in RequirementVerdict if verdict not in order)]
    return ", ".join(f"{numbers[verdict]} {word(verdict, numbers[verdict])}" for verdict in ordered if numbers[verdict])


def word(verdict: RequirementVerdict, number: int) -> str:
    """The word after a number of requirements with this verdict."""
    return "hold" if verdict is RequirementVerdict.HELD and number != 1 else WORDS[verdict]


def families(result: RunResult) -> list[tuple[str, list[dict[str, Any]], str]]:
    """Cases by family and check, and for each family the number of cases of each standing."""
    checks_by_family: dict[str, dict[str, list[CaseResult]]] = {}
    for case in result.cases:
        checks_by_family.setdefault(case.family, {}).setdefault(case.check, []).append(case)
    return [(family, [_check(result, cases) for cases in checks.values()], _standings(result, checks.values()))
            for family, checks in checks_by_family.items()]  # fmt: skip


def _check(result: RunResult, cases: Sequence[CaseResult]) -> dict[str, Any]:
    """A check, with its result on each variant."""
    return {
        "name": cases[0].check,
        "title": cases[0].title,
        "requirements": dict.fromkeys(requirement for case in cases for requirement in case.requirements),
        "variants": [(case, standing(result, case)) for case in cases],
    }


def _standings(result: RunResult, checks: Iterable[Sequence[CaseResult]]) -> str:
    standings = [standing(result, case) for cases in checks for case in cases]
    return ", ".join(f"{standings.count(kind)} {kind}" for kind in Standing if kind in standings)


def reasons(result: RunResult) -> list[dict[str, Any]]:
    """The reasons why cases have no verdict; first those of cases that should have one."""
    cases_by_reason: dict[tuple[Standing, str], list[str]] = {}
    for case in result.cases:
        where = standing(result, case)
        if where in (Standing.INCONCLUSIVE, Standing.NOT_RUN, Standing.SKIPPED):
            cases_by_reason.setdefault((where, case.reason), []).append(case.case)
    order = list(Standing)
    return [
        {"standing": where, "reason": reason, "cases": cases[:MOST_NAMES], "more": max(0, len(cases) - MOST_NAMES)}
        for (where, reason), cases in sorted(cases_by_reason.items(), key=lambda pair: order.index(pair[0][0]))
    ]


# The findings, each under its probable cause, with its chart

MOST_EXPLAINED: Final = 4
"""How many checks of one cause are explained. The others are named, with their commands. All have a bundle."""
MOST_CHARTS: Final = 40
"""How many charts one page has. It should open quickly on a phone."""
MOST_ALIKE: Final = 5
"""How many further violations of the same case are shown."""


def explain(result: RunResult, folder: Path | None, *, prefix: str = "", link: str = "") -> list[dict[str, Any]]:
    """The probable causes with their evidence, in the same order as in all reports. `prefix`: the prefix of ids, on a
    page with several runs. `link`: the relative path from the page to the folder, with a final slash; empty if the page
    is in the folder."""
    return _Explanations(result, folder, prefix, link).all()


class _Explanations:
    def __init__(self, result: RunResult, folder: Path | None, prefix: str, link: str) -> None:
        self.result = result
        self.folder = folder
        self.prefix = prefix
        self.link = link
        self.explained = 0

    def all(self) -> list[dict[str, Any]]:
        return [self._part(number, cause) for number, cause in enumerate(causes(self.result), 1)]

    def _part(self, number: int, cause: Cause) -> dict[str, Any]:
        """`named`: cases of the other checks, each with the command that replays it. `sides`: for each requirement, the
        side that has to meet it."""
        further = cause.evidence[MOST_EXPLAINED:]
        return {
            "id": f"{self.prefix}cause-{number}",
            "number": number,
            "cause": cause,
            "explained": [self._explain(evidence) for evidence in cause.evidence[:MOST_EXPLAINED]],
            "named": [(case, self._replay(case)) for evidence in further for case in evidence.cases],
            "sides": {requirement.requirement: side_of(requirement) for requirement in cause.requirements},
        }

    def _replay(self, case: CaseResult) -> str:
        if self.folder is None:
            return run_command(self.result, case)
        return replay_command(finding_of(self.folder, bundle_name(case)))

    def _explain(self, evidence: Evidence) -> dict[str, Any]:
        """A check that shows the cause: its first case, and all of them as `variants`, with the commands that replay
        them. `sides`: the operations that contradict each other; `against`: what the operation contradicts, if there is
        only one; `missing`: those that the history does not have. `alike`: further violations of the case, and `more`
        of them that are not shown. `shortened`: the history was shrunk, or is too long for the page. `problem`: why
        there is no chart. `bundle`: the address of its folder, if it exists."""
        case, violation = evidence.case, evidence.violation
        self.explained += 1
        recorded, problem = self._recorded(case)
        shown = None if recorded is None else chart(recorded, violation)
        composed = headline(violation.expected, violation.observed)
        steps = None if recorded is None else {step.id for step in recorded.steps}
        missing = [str(operation) for operation in violation.operations if steps is not None and operation not in steps]
        return {
            "id": f"{self.prefix}finding-{self.explained}",
            "case": case,
            "variants": [(case, standing(self.result, case), self._replay(case)) for case in evidence.cases],
            "known": reason_for(self.result, case, violation),
            "message": _marked("" if violation.message == composed else violation.message, recorded),
            "expected": _marked(violation.expected, recorded),
            "observed": _marked(violation.observed, recorded),
            "sides": () if recorded is None else _sides(recorded, violation),
            "against": _against(violation),
            "missing": ", ".join(missing[:MOST_ALIKE]),
            "alike": [_marked(other.message, recorded) for other in evidence.others[:MOST_ALIKE]],
            "more": max(0, len(evidence.others) - MOST_ALIKE),
            "shortened": case.reproduction is not None or (shown is not None and shown["drawn"] < shown["of"]),
            "chart": shown,
            "problem": problem,
            "replay": self._replay(case),
            "run": run_command(self.result, case),
            "bundle": "" if self.folder is None else f"{self.link}findings/{bundle_name(case)}",
        }

    def _recorded(self, case: CaseResult) -> tuple[Recorded | None, str]:
        if case.history is None:
            return None, "no history was recorded"
        if self.explained > MOST_CHARTS:
            return None, f"this page has {MOST_CHARTS} charts at most"
        try:
            return read_history(case.history), ""
        except InvalidHistoryError as error:
            return None, f"the history cannot be read: {error}"


def _marked(text: str, recorded: Recorded | None) -> Markup:
    """The text, with words in backticks as code, and each attempt as its letter in the chart's colour."""
    marked = _prose(text)
    long = [attempt for attempt in ({} if recorded is None else recorded.letters) if len(attempt) > LONGEST_ATTEMPT]
    if recorded is None or not long:
        return marked
    letters = {
        str(escape(visible(attempt))): Markup('<b class="attempt attempt-{}" title="{}">{}</b>').format(
            colour_of(recorded, attempt), visible(attempt), recorded.letters[attempt]
        )
        for attempt in long
    }
    names = "|".join(map(re.escape, sorted(letters, key=len, reverse=True)))
    return Markup(re.sub(names, lambda match: letters[match[0]], str(marked)))


def _sides(recorded: Recorded, violation: Violation) -> tuple[Markup, ...]:
    steps = {step.id: step for step in recorded.steps}
    words = [recorded.times.in_words(describe(steps[number])) for number in sides(recorded, violation)]
    return tuple(_marked(word, recorded) for word in words)


def _against(violation: Violation) -> str:
    if contradicts_itself(violation):
        return "This answer contradicts itself:"
    return "This operation contradicts the final log:" if contradicts_the_log(violation) else "The operation:"


# The page of several runs


_TITLES: Final = {"owner": "Commit owners", "client": "Clients"}
_BAD: Final = frozenset({RequirementVerdict.VIOLATED, RequirementVerdict.WARNED})
_SHOWN: Final = frozenset(RequirementVerdict) - {RequirementVerdict.NOT_APPLICABLE, RequirementVerdict.NOT_CHECKED}
"""The verdicts that give a requirement a row. If no run has one of these for a requirement, it has no row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A subject, with its run or the reason why it is missing."""

    subject: str
    """The subject's name on the command line."""
    result: RunResult | None = None
    reason: str = ""
    """Why there is no run."""


def slug(subject: str) -> str:
    """The name of the subject's folder beside the page."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", subject).strip("-.") or "subject"


def to_matrix(columns: Sequence[Column], folder: Path | None = None) -> str:
    """The page. `folder`: the page's folder, which has the reports of each subject in the folder `slug(subject)`.

    Raises `ReportError` without the extra `conformance`.
    """
    runs = [
        _run(f"run-{number}-", column, folder) for number, column in enumerate(columns, 1) if column.result is not None
    ]
    sides = dict.fromkeys(run["result"].subject.side for run in runs)
    return rendered(
        "matrix.html.jinja",
        grids=[_grid(side, [run for run in runs if run["result"].subject.side == side]) for side in sides],
        runs=runs,
        missing=[column for column in columns if column.result is None],
    )


def _run(prefix: str, column: Column, folder: Path | None) -> dict[str, Any]:
    assert column.result is not None
    target = None if folder is None else folder / slug(column.subject)
    parts = explain(column.result, target, prefix=prefix, link=f"{slug(column.subject)}/")
    return {
        "id": prefix.rstrip("-"),
        "result": column.result,
        "summary": summarise(column.result),
        "parts": parts,
        "verdicts": {requirement.requirement: requirement for requirement in column.result.requirements},
        "places": _findings_by_requirement(parts),
    }


def _findings_by_requirement(parts: Sequence[dict[str, Any]]) -> dict[str, str]:
    """For each requirement, the finding that shows its violation, or otherwise its cause."""
    places: dict[str, str] = {}
    for part in parts:
        for explained in part["explained"]:
            for violation in explained["case"].violations:
                for requirement in violation.requirements:
                    places.setdefault(requirement, explained["id"])
    for part in parts:
        for entry in part["cause"].requirements:
            places.setdefault(entry.requirement, part["id"])
    return places


def _grid(side: str, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The table of all runs of one side, with all requirements that have a row. `first`: the verdicts whose rows the
    page shows when it opens."""
    rows: dict[str, RequirementResult] = {}
    for run in runs:
        for requirement in run["result"].requirements:
            if requirement.verdict in _SHOWN:
                rows.setdefault(requirement.requirement, requirement)
    order = list(dict.fromkeys(requirement.requirement for run in runs for requirement in run["result"].requirements))
    shown = [rows[name] for name in order if name in rows]
    verdicts = {verdict.verdict for run in runs for verdict in run["verdicts"].values()}
    return {
        "title": _TITLES.get(side, side),
        "side": side,
        "runs": runs,
        "documents": documents(shown),
        "first": _BAD if _BAD & verdicts else frozenset(RequirementVerdict),
    }


# The chart of a violation


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
