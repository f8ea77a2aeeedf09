"""The history of a case, read back: what a drawing and a table of it are made from."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Final

from conformance.checkers.rules import Rule
from conformance.history import events
from conformance.history.events import Fault, FileLook, Header, InvalidHistoryError, Witness
from conformance.history.files import read_events
from conformance.history.operations import Operation, operations
from conformance.history.times import Times, times_of
from conformance.results import Violation

Step = Operation | FileLook

MOST_DRAWN: Final = 24
"""Steps of one drawing. More of them are a wall, and the table below has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A history that makes sense."""

    header: Header
    steps: tuple[Step, ...]
    """By the numbers of the operations, which is the order in which they began."""
    faults: tuple[Fault, ...]
    log: tuple[Witness, ...]
    times: Times


def read_history(text: str) -> Recorded:
    """Raises `InvalidHistoryError`, whatever the text is."""
    header: Header | None = None
    steps: list[Step] = []
    faults: list[Fault] = []
    log: list[Witness] = []
    for item in operations(read_events(io.BytesIO(text.encode("utf-8", "surrogatepass")))):
        match item:
            case Header():
                header = item
            case Fault():
                faults.append(item)
            case Witness():
                log.append(item)
            case _:
                steps.append(item)
    if header is None:
        raise InvalidHistoryError("it has no header")
    return Recorded(
        header=header,
        steps=tuple(sorted(steps, key=lambda step: step.id)),
        faults=tuple(faults),
        log=tuple(log),
        times=times_of(text),
    )


def began(step: Step) -> int:
    """When, in the unit of the history's clock."""
    return step.since if isinstance(step, FileLook) else step.invoked


def ended(step: Step) -> int | None:
    """When; None: it never did."""
    return step.at if isinstance(step, FileLook) else step.answered


def is_unknown(step: Step) -> bool:
    """Whether nobody knows if it took effect, or when it will."""
    return isinstance(step, Operation) and (step.answer is None or isinstance(step.answer, events.Unknown))


def contradiction(violation: Violation) -> tuple[int, ...]:
    """The numbers of the operations that contradict each other, or of the one that contradicts something else. Where
    the final log alone is wrong, of a request of the attempt that it is about."""
    return violation.operations[: max(1, min(2, violation.contradicting))]


def sides(recorded: Recorded, violation: Violation) -> tuple[int, ...]:
    """The same, in the order in which they began, which is how people read: first 1, then 2."""
    numbers = set(contradiction(violation))
    return tuple(step.id for step in recorded.steps if step.id in numbers)


def contradicts_the_log(violation: Violation) -> bool:
    """Whether the final log is the other side of the contradiction."""
    return (
        violation.rule is not None
        and violation.version is not None
        and violation.rule not in _IN_ITSELF
        and len(contradiction(violation)) < 2
    )


_IN_ITSELF: Final = frozenset(
    {Rule.LISTED_BEYOND_LATEST.value, Rule.REFUSAL_CONTRADICTS_ITSELF.value, Rule.RATIFIED_ELSEWHERE.value}
)
"""Rules that a single answer violates whatever the log is."""


def contradicts_itself(violation: Violation) -> bool:
    """Whether one answer is wrong by itself."""
    return violation.rule in _IN_ITSELF


def to_draw(recorded: Recorded, violation: Violation) -> tuple[Step, ...]:
    """The steps worth drawing: all of a short history; of a long one those that the violation is about, and those that
    are nearest to them."""
    steps = recorded.steps
    if len(steps) <= MOST_DRAWN:
        return steps
    centre = set(contradiction(violation))
    places = [place for place, step in enumerate(steps) if step.id in centre]
    places = places or [place for place, step in enumerate(steps) if _is_about(step, violation)] or [len(steps) - 1]

    def distance(place: int) -> int:
        return min(abs(place - other) for other in places)

    ranked = sorted(range(len(steps)), key=lambda place: (_rank(steps[place], violation), distance(place), place))
    return tuple(steps[place] for place in sorted(ranked[:MOST_DRAWN]))


def _rank(step: Step, violation: Violation) -> int:
    """How little the step has to do with the violation."""
    if step.id in contradiction(violation):
        return 0
    if step.id in violation.operations:
        return 1
    if violation.table is not None and step.table != violation.table:
        return 4
    if isinstance(step, Operation) and isinstance(step.request, events.Other):
        return 4
    return 2 if _is_about(step, violation) else 3


def _is_about(step: Step, violation: Violation) -> bool:
    same_table = violation.table is None or step.table == violation.table
    return same_table and violation.version is not None and violation.version in _versions(step)


def _versions(step: Step) -> set[int]:
    """The versions that a proposal, a publication or a single answer is about."""
    if isinstance(step, FileLook):
        return {file.version for file in step.published[-1:]} | set(step.absent)
    found = {getattr(step.request, "version", None), getattr(step.answer, "version", None)}
    return {version for version in found if version is not None}
