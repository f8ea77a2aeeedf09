"""The page that an implementer looks at all day: one file, no network, readable by anybody who knows Delta.

Failures first; then every requirement, every case, and whatever was not judged, with the reason. Without JavaScript
everything is there and nothing can be filtered.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from conformance.reports.explaining import Accused, accuse
from conformance.reports.replaying import run_command
from conformance.reports.summary import Standing, plural, side_of, standing, summarise
from conformance.requirements.catalogue import Level, Side, citation, load
from conformance.results import CaseResult, RequirementResult, RequirementVerdict, RunResult
from conformance.safe_text import visible

HERE: Final = Path(__file__).parent
SIGNS: Final = {
    RequirementVerdict.HELD: "✓",
    RequirementVerdict.VIOLATED: "✗",
    RequirementVerdict.WARNED: "!",
    RequirementVerdict.INCONCLUSIVE: "?",
    RequirementVerdict.NOT_APPLICABLE: "–",
    RequirementVerdict.NOT_CHECKED: "○",
}
"""Beside the word, never instead of it."""
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
"""By side of the subject: whose requirements most of those are that do not bind it."""
MOST_NAMES: Final = 50
"""Cases that share one reason and are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentPart:
    """A document with the requirements that come from it, by section."""

    name: str
    id: str
    sections: tuple[tuple[str, tuple[tuple[RequirementResult, str], ...]], ...]
    """Per section: each requirement with its side."""
    counts: str
    open: bool
    """Whether the run says something of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPart:
    """A check, with what became of it on each variant."""

    name: str
    title: str
    requirements: tuple[str, ...]
    variants: tuple[tuple[CaseResult, Standing], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonPart:
    """Cases without a verdict that share the reason."""

    standing: Standing
    reason: str
    cases: tuple[str, ...]
    more: int


def to_html(result: RunResult, folder: Path | None = None) -> str:
    """The page. `folder`: where the reports are, if there are bundles to link to and to replay from."""
    script, style = ((HERE / name).read_text("utf-8") for name in ("page.js", "page.css"))
    accused = accuse(result, folder)
    return (
        _environment()
        .get_template("page.html.jinja")
        .render(
            result=result,
            summary=summarise(result),
            violated=[each for each in accused if not each.warning],
            warned=[each for each in accused if each.warning],
            places=_places(accused),
            documents=documents(result.requirements),
            families=families(result),
            reasons=reasons(result),
            run_again=run_command(result),
            verdicts=list(RequirementVerdict),
            sides=list(Side),
            signs=SIGNS,
            words=WORDS,
            case_signs=CASE_SIGNS,
            plural=plural,
            others=OTHERS.get(result.subject.side, OTHERS["owner"]),
            advice=Level.SHOULD,
            script=Markup(script),
            style=Markup(style),
            script_hash=_hash(script),
            style_hash=_hash(style),
        )
    )


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_seen,
    )
    environment.filters["cited"] = citation
    environment.filters["prose"] = _prose
    environment.filters["word"] = lambda text: str(text).replace(" ", "-")
    return environment


def _seen(value: Any) -> Any:
    """No character of a subject's is invisible on the page."""
    return value if not isinstance(value, str) or isinstance(value, Markup) else visible(value)


def _hash(text: str) -> str:
    """By which the page's own policy lets this text in, and no other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _prose(text: str) -> Markup:
    """Words in backticks as code."""
    parts = visible(text).split("`")
    if len(parts) % 2 == 0:
        return escape("`".join(parts))
    tagged = (Markup("<code>{}</code>").format(part) if place % 2 else escape(part) for place, part in enumerate(parts))
    return Markup("").join(tagged)


def _places(accused: Sequence[Accused]) -> dict[str, str]:
    """Where on the page a requirement, or a case, is explained first."""
    found: dict[str, str] = {}
    for each in accused:
        found.setdefault(each.name, each.id)
        for explained in each.explained:
            found.setdefault(explained.case.case, explained.id)
        for case, _ in each.named:
            found.setdefault(case.case, each.id)
    return found


def _document(source: str) -> str:
    titles = {document.name: document.title for document in load().documents if document.title}
    return titles.get(source, source.removesuffix(".md"))


def documents(requirements: Iterable[RequirementResult]) -> list[DocumentPart]:
    """Requirements by document and section, in the order in which they first come."""
    found: dict[str, dict[str, list[tuple[RequirementResult, str]]]] = {}
    for each in requirements:
        section = "" if "#" in each.section else each.section  # the rules of a page are listed together
        found.setdefault(each.source, {}).setdefault(section, []).append((each, side_of(each)))
    silent = (RequirementVerdict.NOT_APPLICABLE, RequirementVerdict.NOT_CHECKED)
    return [
        DocumentPart(
            name=_document(source),
            id=f"document-{number}",
            sections=tuple((section, tuple(each)) for section, each in sections.items()),
            counts=_counts([each for part in sections.values() for each, _ in part]),
            open=any(each.verdict not in silent for part in sections.values() for each, _ in part),
        )
        for number, (source, sections) in enumerate(found.items(), 1)
    ]


def _counts(requirements: Sequence[RequirementResult]) -> str:
    numbers = {verdict: sum(each.verdict is verdict for each in requirements) for verdict in RequirementVerdict}
    order = (RequirementVerdict.VIOLATED, RequirementVerdict.WARNED, RequirementVerdict.INCONCLUSIVE)
    ordered = [*order, *(verdict for verdict in RequirementVerdict if verdict not in order)]
    return ", ".join(f"{numbers[verdict]} {WORDS[verdict]}" for verdict in ordered if numbers[verdict])


def families(result: RunResult) -> list[tuple[str, list[CheckPart], str]]:
    """Cases by family and check, and how many of each standing a family has."""
    found: dict[str, dict[str, list[CaseResult]]] = {}
    for case in result.cases:
        found.setdefault(case.family, {}).setdefault(case.check, []).append(case)
    return [(family, [_check(result, cases) for cases in checks.values()], _standings(result, checks.values()))
            for family, checks in found.items()]  # fmt: skip


def _check(result: RunResult, cases: Sequence[CaseResult]) -> CheckPart:
    return CheckPart(
        name=cases[0].check,
        title=cases[0].title,
        requirements=tuple(dict.fromkeys(each for case in cases for each in case.requirements)),
        variants=tuple((case, standing(result, case)) for case in cases),
    )


def _standings(result: RunResult, checks: Iterable[Sequence[CaseResult]]) -> str:
    found = [standing(result, case) for cases in checks for case in cases]
    return ", ".join(f"{found.count(each)} {each}" for each in Standing if each in found)


def reasons(result: RunResult) -> list[ReasonPart]:
    """Why cases have no verdict: what should have one first."""
    found: dict[tuple[Standing, str], list[str]] = {}
    for case in result.cases:
        where = standing(result, case)
        if where in (Standing.INCONCLUSIVE, Standing.NOT_RUN, Standing.SKIPPED):
            found.setdefault((where, case.reason), []).append(case.case)
    order = list(Standing)
    return [
        ReasonPart(standing=where, reason=reason, cases=tuple(cases[:MOST_NAMES]), more=max(0, len(cases) - MOST_NAMES))
        for (where, reason), cases in sorted(found.items(), key=lambda pair: order.index(pair[0][0]))
    ]
