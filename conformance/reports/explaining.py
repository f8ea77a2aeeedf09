"""The findings of a run as a page shows them: under the requirement that names each, with its drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from conformance.checkers.check import describe, describe_answer, describe_request
from conformance.history.events import Fault, FileLook, InvalidHistoryError, Witness
from conformance.history.times import Times
from conformance.reports import labels
from conformance.reports.bundle import bundle_name
from conformance.reports.lanes import Drawing, draw
from conformance.reports.ordering import direct_first, in_order
from conformance.reports.recorded import (
    Recorded,
    Step,
    began,
    contradicts_itself,
    contradicts_the_log,
    ended,
    read_history,
    sides,
)
from conformance.reports.replaying import finding_of, replay_command, run_command
from conformance.reports.summary import (
    Standing,
    failing_cases,
    fails,
    levels_of,
    reason_for,
    side_of,
    standing,
)
from conformance.results import CaseResult, RequirementVerdict, RunResult, Violation

MOST_EXPLAINED: Final = 6
"""Cases of one requirement. The others are named, with their commands; all of them have a bundle."""
MOST_DRAWINGS: Final = 60
"""Of one page, which should stay quick to open on a phone."""
MOST_ROWS: Final = 200
"""Operations of one table."""
MOST_ALIKE: Final = 5
"""Further violations of the same requirement by the same case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table that says what the drawing shows."""

    number: str
    client: str
    request: str
    time: str
    answer: str
    mark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A history in words."""

    rows: tuple[Row, ...]
    left_out: int
    log: tuple[str, ...]
    clock: str


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
    level: str = ""
    source: str = ""
    section: str = ""
    side: str = ""
    paraphrase: str = ""
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
        composed = f"Expected: {violation.expected}. Observed: {violation.observed}."
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


def tabulate(recorded: Recorded, violation: Violation) -> Table:
    """The history in words, or its part around the contradiction if it is long."""
    numbers = sides(recorded, violation)
    rows = [(began(step), _row(step, numbers, recorded.times)) for step in recorded.steps]
    rows += [(fault.at, _fault(fault, recorded.times)) for fault in recorded.faults]
    rows.sort(key=lambda pair: pair[0])
    places = [place for place, (_, row) in enumerate(rows) if row.mark] or [len(rows) - 1]
    start = max(0, min((places[0] + places[-1] - MOST_ROWS) // 2, len(rows) - MOST_ROWS))
    kept = tuple(row for _, row in rows[start : start + MOST_ROWS])
    return Table(
        rows=kept,
        left_out=len(rows) - len(kept),
        log=tuple(_version(witness) for witness in recorded.log[-MOST_ROWS:]),
        clock="ms since the first event" if recorded.times.real else "events, counted",
    )


def _row(step: Step, numbers: Sequence[int], times: Times) -> Row:
    end = ended(step)
    return Row(
        number=str(step.id),
        client="a stranger" if isinstance(step, FileLook) else step.client,
        request="look at files" if isinstance(step, FileLook) else describe_request(step.request),
        time=f"{times.told(began(step))} to {'the end' if end is None else times.told(end)}",
        answer=_told(step),
        mark=str(numbers.index(step.id) + 1) if step.id in numbers else "",
    )


def _told(step: Step) -> str:
    if isinstance(step, FileLook):
        return labels.told(step)
    return "no answer" if step.answer is None else describe_answer(step.answer)


def _fault(fault: Fault, times: Times) -> Row:
    return Row(
        number="", client=fault.client, request=f"fault: {fault.kind}", time=times.told(fault.at), answer=fault.note
    )


def _version(witness: Witness) -> str:
    attempt = witness.attempt or "of before"
    how = "before the history" if witness.before else witness.commit_mode or "ratified"
    return f"{witness.table}, version {witness.version}: {attempt}, {how}"
