"""The recorded history of a case: its steps, their labels, and the contradicting operations."""

import io
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from conformance.history import events
from conformance.history.events import Fault, FileLook, Header, InvalidHistoryError, Witness
from conformance.history.files import read_events
from conformance.history.operations import Operation, operations
from conformance.history.times import Times, times_of
from conformance.history_checkers.rules import Rule
from conformance.interface.results import Violation
from conformance.interface.safe_text import one_line

Step = Operation | FileLook

MOST_DRAWN: Final = 24
"""How many steps one chart has. One with more is unreadable."""


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A valid history."""

    header: Header
    steps: tuple[Step, ...]
    """The steps, sorted by the numbers of their operations, which follow the order of their beginnings."""
    faults: tuple[Fault, ...]
    log: tuple[Witness, ...]
    times: Times
    complete: bool = True
    """Whether the final log could be read."""

    @cached_property
    def several(self) -> bool:
        """Whether the steps are about more than one table."""
        about = [
            step for step in self.steps if isinstance(step, FileLook) or not isinstance(step.request, events.Other)
        ]
        return len({step.table for step in about}) > 1

    @cached_property
    def letters(self) -> dict[str, str]:
        """For each attempt, its letter: A for the first, Z for the 26th, then A1. A short name is kept."""
        attempts = [getattr(step.request, "attempt", None) for step in self.steps if isinstance(step, Operation)]
        attempts += [witness.attempt for witness in self.log]
        names = {attempt: one_line(attempt) for attempt in attempts if attempt}
        long = [attempt for attempt, shown in names.items() if len(shown) > LONGEST_ATTEMPT]
        return {**names, **{attempt: f"{chr(ord('A') + n % 26)}{n // 26 or ''}" for n, attempt in enumerate(long)}}


def read_history(text: str) -> Recorded:
    """The history in the text. For any invalid text it raises `InvalidHistoryError`, and no other error."""
    header: Header | None = None
    steps: list[Step] = []
    faults: list[Fault] = []
    log: list[Witness] = []
    read = list(read_events(io.BytesIO(text.encode("utf-8", "surrogatepass"))))
    complete = bool(read) and isinstance(read[-1], events.Footer)
    try:
        for item in operations(read):
            match item:
                case Header():
                    header = item
                case Fault():
                    faults.append(item)
                case Witness():
                    log.append(item)
                case events.Unseen():
                    complete = False
                case _:
                    steps.append(item)
    except InvalidHistoryError:
        if not steps or isinstance(read[-1], events.Footer):
            raise
        ended = {step.id for step in steps}
        steps += [
            Operation(id=event.id, client=event.client, table=event.table, request=event.request, invoked=event.at)
            for event in read
            if isinstance(event, events.Invoke) and event.id not in ended
        ]
    if header is None:
        raise InvalidHistoryError("it has no header")
    return Recorded(
        header=header,
        steps=tuple(sorted(steps, key=lambda step: step.id)),
        faults=tuple(faults),
        log=tuple(log),
        times=times_of(text),
        complete=complete,
    )


def in_letters(text: str, recorded: Recorded | None) -> str:
    """The text, with a letter instead of each attempt id."""
    if recorded is not None:
        for attempt, letter in recorded.letters.items():
            if len(attempt) > LONGEST_ATTEMPT:
                text = text.replace(attempt, letter)
    return text


def began(step: Step) -> int:
    """The time of the step's beginning, in the unit of the history's clock."""
    return step.since if isinstance(step, FileLook) else step.invoked


def ended(step: Step) -> int | None:
    """The time of the step's end; None: it never ended."""
    return step.at if isinstance(step, FileLook) else step.answered


def contradiction(violation: Violation) -> tuple[int, ...]:
    """The numbers of the operations that contradict each other, or of the single operation that is wrong. If only the
    final log is wrong, the number of a request of the attempt in question."""
    return violation.operations[: max(1, min(2, violation.contradicting))]


def sides(recorded: Recorded, violation: Violation) -> tuple[int, ...]:
    """The numbers of `contradiction`, in the order in which the operations began."""
    numbers = set(contradiction(violation))
    return tuple(step.id for step in recorded.steps if step.id in numbers)


def contradicts_the_log(violation: Violation) -> bool:
    """Whether the second side of the contradiction is the final log."""
    return (
        violation.rule is not None
        and violation.version is not None
        and violation.rule not in _IN_ITSELF
        and len(contradiction(violation)) < 2
    )


_IN_ITSELF: Final = frozenset(
    {Rule.LISTED_BEYOND_LATEST.value, Rule.REFUSAL_CONTRADICTS_ITSELF.value, Rule.RATIFIED_ELSEWHERE.value}
)
"""Rules that a single answer can violate, independently of the log."""


def contradicts_itself(violation: Violation) -> bool:
    """Whether a single answer is wrong by itself."""
    return violation.rule in _IN_ITSELF


def to_draw(recorded: Recorded, violation: Violation) -> tuple[Step, ...]:
    """The steps to draw: all steps of a short history; for a long one the steps that the violation is about, and the
    steps nearest to them."""
    steps = recorded.steps
    if len(steps) <= MOST_DRAWN:
        return steps
    centre = set(contradiction(violation))
    places = [index for index, step in enumerate(steps) if step.id in centre]
    places = places or [index for index, step in enumerate(steps) if _is_about(step, violation)] or [len(steps) - 1]

    def distance(index: int) -> int:
        return min(abs(index - other) for other in places)

    ranked = sorted(range(len(steps)), key=lambda index: (_rank(steps[index], violation), distance(index), index))
    return tuple(steps[index] for index in sorted(ranked[:MOST_DRAWN]))


def _rank(step: Step, violation: Violation) -> int:
    """How far the step is from the violation: 0 for a contradicting operation."""
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
    """The versions that the step is about, for a proposal, a publication or a single answer."""
    if isinstance(step, FileLook):
        return {file.version for file in step.published[-1:]} | set(step.absent)
    versions = {getattr(step.request, "version", None), getattr(step.answer, "version", None)}
    return {version for version in versions if version is not None}


LONGEST_ATTEMPT: Final = 12
"""The length of the longest attempt id that is shown whole, in characters."""


def kind_of(step: Step) -> str:
    """The style of a step: `done`, `refused`, `unknown`, `state`, or `look` for an external observer."""
    if isinstance(step, FileLook):
        return "look"
    match step.answer:
        case None | events.Unknown():
            return "unknown"
        case events.Conflict() | events.Gap() | events.Rejected() | events.NotFound() | events.Unsupported():
            return "refused"
        case events.Commits() | events.Table() | events.SnapshotRead() | events.Landed() | events.NotLanded():
            return "state"
        case _:
            return "done"


def cut(text: str, length: int) -> str:
    """The text on one line, not longer than `length`."""
    text = one_line(text)
    return text if len(text) <= length else f"{text[: length - 1]}…"
