"""The HTML page of a run: one file, without network access.

Failures first; then every requirement, every case, and cases without a verdict, with the reason. Without JavaScript
everything is shown, without filters.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from conformance.checkers.check import describe
from conformance.history.events import InvalidHistoryError
from conformance.reports.bundle import bundle_name, finding_of, replay_command, run_command
from conformance.reports.lanes import Drawing, draw
from conformance.reports.recorded import (
    Recorded,
    Table,
    contradicts_itself,
    contradicts_the_log,
    read_history,
    sides,
    tabulate,
)
from conformance.reports.summary import (
    Standing,
    direct_first,
    failing_cases,
    in_order,
    levels_of,
    plural,
    reason_for,
    side_of,
    standing,
    summarise,
)
from conformance.requirements.catalogue import Level, Side, load, origin
from conformance.results import (
    CaseResult,
    Link,
    RequirementResult,
    RequirementVerdict,
    RunResult,
    Violation,
    fails,
    headline,
)
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
    environment.globals["origin"] = origin
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


# The findings, each under the requirement that it names first, with its drawing

MOST_EXPLAINED: Final = 6
"""Cases of one requirement. The others are named, with their commands; all of them have a bundle."""
MOST_DRAWINGS: Final = 60
"""Of one page, which should stay quick to open on a phone."""
MOST_ALIKE: Final = 5
"""Further violations of the same requirement by the same case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """One case that violates one requirement."""

    id: str
    case: CaseResult
    standing: Standing
    known: str
    message: str
    expected: str
    observed: str
    sides: tuple[str, ...]
    """The operations that contradict each other, in words."""
    against: str
    """What a single one of them contradicts."""
    also: tuple[str, ...]
    """Other requirements that the same thing violates."""
    alike: tuple[str, ...]
    """What else this case shows of the requirement."""
    more: int
    """How much more of it."""
    shortened: bool
    """Whether the case does more than the history shows: it was shrunk, or is too long for a page."""
    drawing: Drawing | None
    table: Table | None
    problem: str
    """Why there is no drawing."""
    replay: str
    run: str
    bundle: str
    """Relative path of its bundle's folder; empty if there is none."""


@dataclass(slots=True, kw_only=True)
class Accused:
    """A requirement with all that violates it."""

    id: str
    name: str
    level: Level = Level.MUST
    source: str = ""
    section: str = ""
    side: str = ""
    paraphrase: str = ""
    rule: str = ""
    links: tuple[Link, ...] = ()
    warning: bool = False
    explained: list[Explained] = field(default_factory=list)
    named: list[tuple[CaseResult, str]] = field(default_factory=list)
    """Further cases, each with the command that replays it."""
    elsewhere: list[tuple[CaseResult, str]] = field(default_factory=list)
    """Cases that are explained under another requirement, and the id of that place."""


def accuse(result: RunResult, folder: Path | None) -> list[Accused]:
    """Every requirement that a case of the run violates, in the order of all reports (`ordering`).

    A violation is explained under the requirement that it names first; direct evidence, then the cases with the fewest
    operations, come first.
    """
    return _Accusations(result, folder).all()


class _Accusations:
    def __init__(self, result: RunResult, folder: Path | None) -> None:
        self.result = result
        self.folder = folder
        self.levels = levels_of(result)
        self.requirements = {each.requirement: each for each in result.requirements}
        self.found: dict[str, Accused] = {}
        self.explained = 0

    def all(self) -> list[Accused]:
        for case, name, violations in self._accusations():
            self._accuse(case, name, violations)
        for requirement in self.result.requirements:
            if requirement.verdict in (RequirementVerdict.VIOLATED, RequirementVerdict.WARNED):
                self._of(requirement.requirement)
        order = {name: place for place, name in enumerate(in_order(self.result))}
        return sorted(self.found.values(), key=lambda each: (each.warning, order.get(each.name, len(order)), each.name))

    def _accusations(self) -> list[tuple[CaseResult, str, list[Violation]]]:
        """What each case shows of each requirement that one of its violations names first; direct evidence first."""
        found = []
        for case in failing_cases(self.result):
            by_name: dict[str, list[Violation]] = {}
            for violation in direct_first(case.violations) or (_UNEXPLAINED,):
                by_name.setdefault(violation.requirements[0] if violation.requirements else "", []).append(violation)
            found += [(case, name, violations) for name, violations in by_name.items()]
        return sorted(found, key=lambda each: each[2][0].rule is not None)

    def _accuse(self, case: CaseResult, name: str, violations: list[Violation]) -> None:
        accused = self._of(name)
        place = accused.id
        if len(accused.explained) < MOST_EXPLAINED:
            explained = self._explain(case, violations)
            accused.explained.append(explained)
            place = explained.id
        else:
            accused.named.append((case, self._replay(case)))
        for other in dict.fromkeys(each for violation in violations for each in violation.requirements[1:]):
            if other != name:
                self._of(other).elsewhere.append((case, place))

    def _of(self, name: str) -> Accused:
        if name not in self.found:
            accused = Accused(id=f"accused-{len(self.found) + 1}", name=name)
            requirement = self.requirements.get(name)
            if requirement is not None:
                accused.level, accused.source = requirement.level, requirement.source
                accused.section, accused.paraphrase = requirement.section, requirement.paraphrase
                accused.rule, accused.links = requirement.rule, requirement.links
                accused.side = side_of(requirement)
            named = Violation(requirements=(name,) if name else (), message="")
            accused.warning = not fails(named, self.levels, strict=self.result.strict)
            self.found[name] = accused
        return self.found[name]

    def _replay(self, case: CaseResult) -> str:
        if self.folder is None:
            return run_command(self.result, case)
        return replay_command(finding_of(self.folder, bundle_name(case)))

    def _explain(self, case: CaseResult, violations: Sequence[Violation]) -> Explained:
        violation = violations[0]
        self.explained += 1
        recorded, problem = self._recorded(case)
        drawing = None if recorded is None else draw(recorded, violation)
        table = None if recorded is None else tabulate(recorded, violation)
        composed = headline(violation.expected, violation.observed)
        return Explained(
            id=f"finding-{self.explained}",
            case=case,
            standing=standing(self.result, case),
            known=reason_for(self.result, case, violation),
            message="" if violation.message == composed else violation.message,
            expected=violation.expected,
            observed=violation.observed,
            sides=() if recorded is None else _sides(recorded, violation),
            against=_against(violation),
            also=violation.requirements[1:],
            alike=tuple(each.message for each in violations[1 : MOST_ALIKE + 1]),
            more=max(0, len(violations) - 1 - MOST_ALIKE),
            shortened=case.reproduction is not None or (drawing is not None and drawing.drawn < drawing.of),
            drawing=drawing,
            table=table,
            problem=problem,
            replay=self._replay(case),
            run=run_command(self.result, case),
            bundle="" if self.folder is None else f"findings/{bundle_name(case)}",
        )

    def _recorded(self, case: CaseResult) -> tuple[Recorded | None, str]:
        if case.history is None:
            return None, "no history was recorded"
        if self.explained > MOST_DRAWINGS:
            return None, f"this page draws {MOST_DRAWINGS} findings at most"
        try:
            return read_history(case.history), ""
        except InvalidHistoryError as error:
            return None, f"the history cannot be read: {error}"


_UNEXPLAINED: Final = Violation(requirements=(), message="The case failed, and does not say why.")


def _sides(recorded: Recorded, violation: Violation) -> tuple[str, ...]:
    steps = {step.id: step for step in recorded.steps}
    return tuple(recorded.times.in_words(describe(steps[number])) for number in sides(recorded, violation))


def _against(violation: Violation) -> str:
    if contradicts_itself(violation):
        return "This answer contradicts itself:"
    return "This operation contradicts the final log:" if contradicts_the_log(violation) else "The operation:"
