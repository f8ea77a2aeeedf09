"""The history of a case, read back: what a drawing and a table of it are made from."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Final

from conformance.history import events
from conformance.history.errors import InvalidHistoryError
from conformance.history.events import Fault, FileLook, Header, Witness
from conformance.history.operations import Operation, operations
from conformance.history.reading import read_events
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
    """The numbers of the operations that contradict each other, or of the one that contradicts the documents."""
    return violation.operations[: max(0, min(2, violation.contradicting))]


def to_draw(recorded: Recorded, violation: Violation) -> tuple[Step, ...]:
    """The steps worth drawing: all of a short history; of a long one those that the violation is about, and those that
    are nearest to them."""
    steps = recorded.steps
    if len(steps) <= MOST_DRAWN:
        return steps
    centre = set(contradiction(violation))
    places = [place for place, step in enumerate(steps) if step.id in centre] or [len(steps) - 1]

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
    return 2 if violation.version is not None and violation.version in _versions(step) else 3


def _versions(step: Step) -> set[int]:
    """The versions that a proposal, a publication or a single answer is about."""
    if isinstance(step, FileLook):
        return {file.version for file in step.published[-1:]} | set(step.absent)
    found = {getattr(step.request, "version", None), getattr(step.answer, "version", None)}
    return {version for version in found if version is not None}
