"""The layout of a history as a swim-lane drawing. Its style is in `lanes.svg.jinja` and `page.css`.

Each client has a lane, and so do the visible files; time runs to the right. The drawing keeps the order of times, but
not their distances: columns are as wide as their labels. A step with an unknown outcome is open-ended. The final log is
below the lanes, without a time.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from conformance.history.events import Fault, FileLook, Other, Witness
from conformance.history.times import Times
from conformance.interface.results import Violation
from conformance.reports.recorded import (
    LONGEST_ATTEMPT,
    LONGEST_NAME,
    Recorded,
    Step,
    answer_label,
    began,
    columns,
    contradiction,
    contradicts_the_log,
    cut,
    ended,
    is_unknown,
    kind_of,
    request_label,
    short_attempt,
    sides,
    to_draw,
)

CHARACTER: Final = 7.3
"""The width of a character in the drawing's fixed-width font, in px."""
MARGIN: Final = 12
COLUMN: Final = 16
"""The smallest distance of two times, in px."""
GAP: Final = 8
"""The distance of two bars in one row, in px."""
BAR: Final = 42
"""The height of a bar, which has two lines, in px."""
ROW: Final = 52
STRIP: Final = 24
"""The height above the bars of a lane, for its name, in px."""
BADGE: Final = 20
"""The width for the number of a contradicting bar, in px."""
FLAG: Final = 22
"""The height of a fault's label, in px."""
FILES_LANE: Final = "files, as an external observer sees them"
LOG_LANE: Final = "final log"
COLOURS: Final = 6
"""The number of colours for attempts; further attempts use them again."""
MOST_CHIPS: Final = 12
"""How many versions of the final log are drawn."""


@dataclass(slots=True, kw_only=True)
class Box:
    """A labelled box in one row of a lane, from one time to another."""

    start: int
    end: int
    """The last column of the box; for an open-ended box, the column of its answer."""
    endless: bool = False
    lines: tuple[str, ...] = ()
    title: str = ""
    kind: str = ""
    number: int | None = None
    mark: int = 0
    """1 or 2: the side of the contradiction; 0: none."""
    related: bool = False
    colour: int | None = None
    """The colour of the attempt that the box is about."""
    row: int = 0
    x: float = 0
    y: float = 0
    width: float = 0
    tail: float = 0
    """The end of an open-ended box's tail; 0 for all other boxes."""

    @property
    def needed(self) -> float:
        """The width that the longest line needs, in px."""
        widest = max((columns(line) for line in self.lines), default=0)
        return round(widest * CHARACTER) + 16 + (BADGE if self.mark else 0)


@dataclass(slots=True, kw_only=True)
class Lane:
    """A lane for a client, the files, the faults or the final log."""

    name: str
    kind: str
    boxes: list[Box] = field(default_factory=list)
    y: float = 0
    height: float = 0
    rows: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """The whole drawing. Positions are in px, from the top left corner."""

    width: float
    height: float
    lanes: tuple[Lane, ...]
    flags: Lane
    """The lane above the others, with faults and gaps where steps are left out."""
    log: Lane
    join: str
    """An SVG path from one side of the contradiction to the other; empty if there are not two sides."""
    focus: tuple[float, float]
    """The horizontal range that the page shows first."""
    drawn: int
    of: int
    coloured: bool
    """Whether the drawing uses letters for attempts."""
    title: str
    description: str


def draw(recorded: Recorded, violation: Violation) -> Drawing:
    """The drawing of one violation."""
    steps = to_draw(recorded, violation)
    lanes = _lanes(recorded, steps, violation)
    flags = Lane(name="", kind="flags", boxes=_flags(recorded, steps))
    log = Lane(name=LOG_LANE, kind="log", boxes=_chips(recorded, violation))
    for lane in (*lanes, flags):
        _place_rows(lane)
    right = _place_columns([*lanes, flags])
    width = max(right, _place_chips(log, lanes, right)) + MARGIN
    y = _stack(flags, MARGIN / 2, FLAG + 4, 0) if flags.boxes else MARGIN / 2
    for lane in lanes:
        y = _stack(lane, y, ROW, STRIP)
    if log.boxes:
        y = _stack(log, y, ROW, STRIP)
    for box in (box for lane in lanes for box in lane.boxes if box.endless):
        box.tail = width - MARGIN / 2
    marked = sorted((box for lane in (*lanes, log) for box in lane.boxes if box.mark), key=lambda box: box.mark)
    return Drawing(
        width=width,
        height=y + MARGIN / 2,
        lanes=tuple(lanes),
        flags=flags,
        log=log,
        join=_join(*marked[:2]) if len(marked) > 1 else "",
        focus=(min((box.x for box in marked), default=0), max((box.x + box.width for box in marked), default=0)),
        drawn=len(steps),
        of=len(recorded.steps),
        coloured=any(len(attempt) > LONGEST_ATTEMPT for attempt in recorded.letters),
        title=f"Swim lanes of {', '.join(lane.name for lane in lanes) or 'no client'}",
        description=_description(marked, steps, recorded),
    )


def _lanes(recorded: Recorded, steps: Sequence[Step], violation: Violation) -> list[Lane]:
    """Lanes for the clients, in the order of their first requests, then the lane for the files."""
    numbers = sides(recorded, violation)
    several = len({step.table for step in steps if not _is_about_no_table(step)}) > 1
    clients: dict[str, Lane] = {}
    files = Lane(name=FILES_LANE, kind="files")
    for step in steps:
        start, end = began(step), ended(step)
        request, outcome = request_label(step, recorded.letters), answer_label(step, recorded.letters)
        if several and not _is_about_no_table(step):
            request += f" ({cut(step.table, LONGEST_ATTEMPT)})"
        box = Box(
            start=start,
            end=start if end is None else end,
            endless=is_unknown(step),
            lines=(f"#{step.id} {request}", f"→ {outcome}"),
            title=f"operation {step.id}: {request}, {_time_range(recorded.times, start, end)}: {outcome}",
            kind=kind_of(step),
            number=step.id,
            mark=numbers.index(step.id) + 1 if step.id in numbers else 0,
            related=step.id in violation.operations and step.id not in numbers,
            colour=colour_of(recorded, None if isinstance(step, FileLook) else getattr(step.request, "attempt", None)),
        )
        if isinstance(step, FileLook):
            files.boxes.append(box)
        else:
            name = cut(step.client, LONGEST_NAME) or "unnamed client"
            clients.setdefault(step.client, Lane(name=name, kind="client")).boxes.append(box)
    return [*clients.values(), *([files] if files.boxes else [])]


def colour_of(recorded: Recorded, attempt: str | None) -> int | None:
    """The colour of an attempt, in the drawing and in the text."""
    return list(recorded.letters).index(attempt) % COLOURS if attempt in recorded.letters else None


def _time_range(times: Times, start: int, end: int | None) -> str:
    unit = " ms" if times.real else ""
    return f"from {times.shown(start)} to {'the end' if end is None else times.shown(end) + unit}"


def _is_about_no_table(step: Step) -> bool:
    return not isinstance(step, FileLook) and isinstance(step.request, Other)


def _flags(recorded: Recorded, steps: Sequence[Step]) -> list[Box]:
    """Faults next to a drawn step, and the numbers of steps left out before a drawn step."""
    drawn = {step.id for step in steps}
    last = max((max(began(step), ended(step) or 0) for step in steps), default=0)
    starts = [began(step) for step in recorded.steps]
    boxes = []
    for fault in recorded.faults:
        index = bisect_right(starts, fault.at)
        if any(step.id in drawn for step in recorded.steps[max(0, index - 1) : index + 1]) or not starts:
            boxes.append(_fault(fault, recorded.times))
    missing = 0
    for step in recorded.steps:
        if step.id not in drawn:
            missing += 1
        elif missing:
            boxes.append(_left_out(missing, began(step), recorded.times))
            missing = 0
    if missing:
        boxes.append(_left_out(missing, last, recorded.times))
    return sorted(boxes, key=lambda box: box.start)


def _fault(fault: Fault, times: Times) -> Box:
    who = f" ({cut(fault.client, LONGEST_ATTEMPT)})" if fault.client else ""
    text = cut(f"{fault.kind}{who}", LONGEST_NAME)
    note = f": {cut(fault.note, 200)}" if fault.note else ""
    return Box(
        start=fault.at,
        end=fault.at,
        lines=(text,),
        title=f"fault at {times.shown(fault.at)}: {text}{note}",
        kind="fault",
    )


def _left_out(number: int, before: int, times: Times) -> Box:
    text = f"{number} not drawn"
    return Box(start=before, end=before, lines=(text,), title=f"{text} before {times.shown(before)}", kind="break")


def _chips(recorded: Recorded, violation: Violation) -> list[Box]:
    """The table's final log, or its part around the violation's version, including a missing version."""
    log = recorded.log
    if not recorded.complete:
        text = ("not visible", "when the case ended")
        return [Box(start=0, end=0, lines=text, title="the final log could not be read", kind="missing")]
    tables = list(dict.fromkeys(witness.table for witness in log))
    table = violation.table if violation.table is not None else tables[0] if len(tables) == 1 else None
    versions: dict[int, Witness | None] = {witness.version: witness for witness in log if witness.table == table}
    about = violation.version
    joined = contradicts_the_log(violation)
    if about is not None and joined:
        versions.setdefault(about, None)
    ordered = sorted(versions)
    if len(ordered) > MOST_CHIPS:
        centre = ordered.index(about) if about in versions else len(ordered)
        start = max(0, min(centre - MOST_CHIPS // 2, len(ordered) - MOST_CHIPS))
        ordered = ordered[start : start + MOST_CHIPS]
    return [_chip(recorded, version, versions[version], violation, joined=joined) for version in ordered]


def _chip(recorded: Recorded, version: int, witness: Witness | None, violation: Violation, *, joined: bool) -> Box:
    about = version == violation.version
    text = (
        "not there"
        if witness is None
        else "before the history"
        if witness.before
        else witness.commit_mode or "ratified"
    )
    name = None if witness is None else witness.attempt
    attempt = "" if name is None else short_attempt(name, recorded.letters)
    return Box(
        start=0,
        end=0,
        lines=(f"v{version} {attempt}".rstrip(), text),
        title=f"version {version} of the final log: {attempt} {text}",
        kind="missing" if witness is None else "version",
        mark=len(contradiction(violation)) + 1 if about and joined else 0,
        related=about,
        colour=colour_of(recorded, name),
    )


def _place_rows(lane: Lane) -> None:
    """Put each box into the first row that is free at its time."""
    free: list[float] = []
    """For each row, the time until which it is taken."""
    for box in sorted(lane.boxes, key=lambda box: (box.start, box.number or 0)):
        row = next((row for row, until in enumerate(free) if until <= box.start), len(free))
        if row == len(free):
            free.append(0)
        free[row] = float("inf") if box.endless else max(box.end, box.start + 0.5)
        box.row = row
    lane.rows = max(1, len(free))


def _place_columns(lanes: Sequence[Lane]) -> float:
    """Give each time the first position at which all boxes before it fit. Returns the right edge of all boxes."""
    boxes = [box for lane in lanes for box in lane.boxes]
    before: dict[int, list[Box]] = {}
    """For each time, the boxes that are followed, in their row, by a box that begins at this time."""
    for lane in lanes:
        for row in range(lane.rows):
            in_row = sorted((box for box in lane.boxes if box.row == row), key=lambda box: box.start)
            for box, following in pairwise(in_row):
                before.setdefault(following.start, []).append(box)
    ending: dict[int, list[Box]] = {}
    for box in boxes:
        if box.end > box.start:
            ending.setdefault(box.end, []).append(box)
    x_at: dict[int, float] = {}
    at = float(MARGIN - COLUMN)
    for time in sorted({box.start for box in boxes} | {box.end for box in boxes}):
        at += COLUMN
        for box in ending.get(time, ()):
            at = max(at, x_at[box.start] + box.needed + GAP)
        for box in before.get(time, ()):
            at = max(at, x_at[box.start] + box.needed + GAP)
        x_at[time] = at
    for box in boxes:
        box.x = x_at[box.start]
        box.width = max(box.needed, x_at[box.end] - x_at[box.start] - GAP)
    return max((box.x + box.width + (2 * COLUMN if box.endless else 0) for box in boxes), default=float(MARGIN))


def _place_chips(log: Lane, lanes: Sequence[Lane], right: float) -> float:
    """Put the chips in a row, below the contradicting boxes if there is room. Returns the right edge of all chips."""
    needed = sum(box.needed + GAP for box in log.boxes)
    marked = min((box.x for lane in lanes for box in lane.boxes if box.mark), default=float(MARGIN))
    edge = max(float(MARGIN), min(marked, right - needed))
    for box in log.boxes:
        box.x, box.width = edge, box.needed
        edge += box.width + GAP
    return edge


def _stack(lane: Lane, y: float, row: float, strip: float) -> float:
    """Put the lane at `y`. Returns the position of the next lane."""
    lane.y, lane.height = y, strip + lane.rows * row
    for box in lane.boxes:
        box.y = y + strip + box.row * row
    return y + lane.height


def _join(first: Box, second: Box) -> str:
    """A line between the edges of two boxes: straight if one is above the other, otherwise a curve."""
    upper, lower = sorted((first, second), key=lambda box: box.y)
    left, right = sorted((first, second), key=lambda box: box.x)
    if upper.y == lower.y:
        top = upper.y - 4
        start, end = left.x + left.width - 10, right.x + 10
        return f"M{start:g} {top + 4:g} C{start:g} {top - 16:g} {end:g} {top - 16:g} {end:g} {top + 4:g}"
    overlap = (max(upper.x, lower.x), min(upper.x + upper.width, lower.x + lower.width))
    start_y, end_y = upper.y + BAR, lower.y
    if overlap[1] - overlap[0] > 2 * GAP:
        middle = sum(overlap) / 2
        return f"M{middle:g} {start_y:g} L{middle:g} {end_y:g}"
    start_x = upper.x + (upper.width - 14 if upper is left else 14)
    end_x = lower.x + (lower.width - 14 if lower is left else 14)
    bend = (end_y - start_y) / 2
    return f"M{start_x:g} {start_y:g} C{start_x:g} {start_y + bend:g} {end_x:g} {end_y - bend:g} {end_x:g} {end_y:g}"


def _description(marked: Sequence[Box], steps: Sequence[Step], recorded: Recorded) -> str:
    """A description for readers who cannot see the drawing."""
    shown = (
        f"{len(steps)} of {len(recorded.steps)} operations" if len(steps) < len(recorded.steps) else "All operations"
    )
    if not marked:
        return f"{shown}, time running to the right. The table below says the same."
    sides = "; ".join(f"{number}: {box.title}" for number, box in enumerate(marked, 1))
    what = "These two operations contradict each other" if len(marked) > 1 else "This operation is wrong"
    return f"{shown}, time running to the right. {what}: {sides}. The table below says the same."
