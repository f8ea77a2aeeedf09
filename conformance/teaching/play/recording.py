"""A recorded history as a story: the requests, the answers, and the owner's state as the answers show it.

This module does not read the owner's real state: a version counts as ratified because an answer says so, a file as
published because an observer saw it. For a long history it shows only the events around a violation, and the number of
the others.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from conformance.checkers.check import describe_answer, describe_look, describe_request
from conformance.history import events
from conformance.history.events import Event, Fault, FileLook, Header, InvalidHistoryError, Invoke, Unseen, Witness
from conformance.history.files import read
from conformance.history.times import Times, times_of_file
from conformance.interface.messages import name_of
from conformance.interface.results import Violation, counted
from conformance.interface.safe_text import one_line
from conformance.reports.recorded import contradiction, contradicts_the_log, letters_of
from conformance.requirements.catalogue import load
from conformance.story import Happening, Step, Story, View

OBSERVER: Final = "files"
"""The lane of an external observer."""
LOG: Final = "final log"
HEADINGS: Final = ("Last answers", "The owner, by its answers", "_delta_log, as observed")
WHY_NO_FORKS: Final = "Recorded: nothing runs, so no other choice can be tried."
MOST_EVENTS: Final = 400
"""The length of the longest history that is shown completely."""
AROUND: Final = 40
"""How many events of a longer history are shown before and after each operation of the violation."""
MOST_ROWS: Final = 10
"""How many versions or files are listed at one step."""
MOST_CLIENTS: Final = 4
"""How many clients' last answers are listed."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Events of a long history that are not shown."""

    number: int


def history_story(path: Path, violations: Sequence[Violation], *, title: str = "", more: int = 0) -> Story:
    """The story of the history in a file. `more`: the number of further violations, which are only counted. Raises
    `InvalidHistoryError` or `OSError`."""
    shown = list(_shown_events(path, violations[0] if violations else None))
    if not shown or not isinstance(header := shown[0], Header):
        raise InvalidHistoryError("a history begins with its header" if shown else "the history is empty", 1)
    left_out = sum(event.number for event in shown if isinstance(event, LeftOut))
    here = violations[:1] if left_out else violations
    teller = HistoryTeller(shown, here, times_of_file(path))
    steps = tuple(step for event in shown for step in teller.steps_of(event)) + tuple(teller.rest())
    subject = f"{header.subject.name} {header.subject.version}".strip()
    part = f"{left_out:,} events are not shown and not counted. " if left_out else ""
    return Story(
        name=path.stem,
        title=one_line(title or header.note or f"A history of {subject}"),
        about=one_line(f"{part}{subject}, {header.feature}. {WHY_NO_FORKS}"),
        ends=in_short(violations, more),
        clients=teller.clients,
        others=tuple(lane for lane in (OBSERVER, LOG) if any(step.happening.lane == lane for step in steps)),
        steps=steps,
        headings=HEADINGS,
    )


def in_short(violations: Sequence[Violation], more: int) -> str:
    names = ", ".join(dict.fromkeys(violation.requirements[0] for violation in violations if violation.requirements))
    number = len(violations) + more
    return f"{counted(number, 'violation')} of {names or 'no named requirement'}." if number else "No violation."


class HistoryTeller:
    """Turns events into steps, one after the other, and keeps the state that they have shown so far."""

    def __init__(self, shown: Sequence[Event | LeftOut], violations: Sequence[Violation], times: Times) -> None:
        self._due = [(violation, times.in_words(violation.message)) for violation in violations]
        self._asked = {event.id: event for event in shown if isinstance(event, Invoke)}
        self.clients = tuple(dict.fromkeys(_client(invoke) for invoke in self._asked.values()))
        attempts = [getattr(invoke.request, "attempt", None) for invoke in self._asked.values()]
        self.letters = letters_of([*attempts, *(event.attempt for event in shown if isinstance(event, Witness))])
        self._several = len({event.table for event in shown if isinstance(event, Invoke | FileLook)}) > 1
        self._rules = {requirement.id for requirement in load().requirements}
        self._ended: set[int] = set()
        self._log: list[Witness] = []
        self._versions: dict[tuple[str, int], dict[str, str]] = {}
        self._latest: dict[str, str] = {}
        self._not_landed: dict[str, str] = {}
        self._files: set[tuple[str, int]] = set()
        self._answers: dict[str, str] = {}

    def steps_of(self, event: Event | LeftOut) -> Iterator[Step]:
        """The step for the event, and a step for every violation that it makes visible."""
        match event:
            case Witness():
                self._log.append(event)
            case LeftOut() if not self._log:
                yield self.step("", "left out", f"{event.number:,} events are not shown")
            case Invoke(id=number):
                client = _client(event)
                self._note_answer(client, f"waits for operation {number}")
                yield self.step(client, "send", f"{client} sends operation {number}: {describe_request(event.request)}")
            case events.Ok() | events.Fail() | events.Info() if event.id in self._asked:
                yield from self._answered(self._asked[event.id], event.answer)
            case FileLook(id=number):
                self._files |= {(event.table, file.version) for file in event.published}
                self._files -= {(event.table, version) for version in event.absent}
                text = f"An external observer lists the files (operation {number}): {describe_look(event)}"
                yield from self._end(number, self.step(OBSERVER, "look", text, decides=True))
            case Fault():
                who = f" of {event.client}" if event.client else ""
                note = f" ({event.note})" if event.note else ""
                lane = one_line(event.client)
                yield self.step(lane, "fault", f"Fault{who}: {event.kind}{note}", decides=True)
            case Unseen():
                yield self.step(LOG, "unseen", f"The final log could not be read: {event.reason}", decides=True)

    def _answered(self, invoke: Invoke, answer: events.Answer) -> Iterator[Step]:
        client, text = _client(invoke), describe_answer(answer)
        operation = f"operation {invoke.id}"
        self._record_state(invoke, answer, operation)
        self._note_answer(client, f"{text} ({operation})")
        yield from self._end(
            invoke.id, self.step(client, "answer", f"{client} gets the answer to {operation}: {text}", decides=True)
        )

    def _record_state(self, invoke: Invoke, answer: events.Answer, operation: str) -> None:
        """Record what the answer says about the owner's state."""
        attempt = getattr(invoke.request, "attempt", None)
        match answer:
            case events.Ratified() | events.Committed() | events.Landed():
                self._version(invoke.table, answer.version, attempt, f"({name_of(answer)}, {operation})")
            case events.NotLanded() if attempt is not None:
                self._not_landed[attempt] = f"({operation})"
            case events.Commits() | events.Table():
                for entry in answer.commits or ():
                    self._version(invoke.table, entry.version, entry.attempt, f"(listed, {operation})")
            case events.Conflict():
                for entry in answer.winners:
                    self._version(invoke.table, entry.version, entry.attempt, f"(winner, {operation})")
        if (latest := getattr(answer, "latest", None)) is not None:
            self._latest[invoke.table] = f"{latest} ({operation})"

    def _version(self, table: str, version: int, attempt: str | None, how: str) -> None:
        self._versions.setdefault((table, version), {}).setdefault(attempt or "an unnamed attempt", how)

    def _note_answer(self, client: str, text: str) -> None:
        """Record the client's last answer, as the newest of all."""
        self._answers.pop(client, None)
        self._answers[client] = text

    def _end(self, number: int, step: Step) -> Iterator[Step]:
        """The last step of an operation, and the violations that it proves together with the earlier operations."""
        self._ended.add(number)
        yield step
        for violation, message in list(self._due):
            sides = contradiction(violation)
            if sides and self._ended.issuperset(sides) and not contradicts_the_log(violation):
                self._due.remove((violation, message))
                yield self._violation(violation, f"Violation, visible now: {message}", step.happening.lane)

    def rest(self) -> Iterator[Step]:
        """The steps without an event: requests without an answer, the final log, and the violations that it shows."""
        for number, invoke in self._asked.items():
            if number not in self._ended:
                text = f"{_client(invoke)} never gets an answer to operation {number}"
                yield from self._end(number, self.step(_client(invoke), "no answer", text))
        if self._log:
            versions = "; ".join(f"version {line.version}{self._of(line.table)} {_origin(line)}" for line in self._log)
            yield self.step(LOG, "final log", f"In the final log: {versions}", decides=True)
        for violation, message in self._due:
            yield self._violation(violation, f"Violation, visible at the end: {message}", LOG)
        self._due.clear()

    def _violation(self, violation: Violation, text: str, lane: str) -> Step:
        rule = next((requirement for requirement in violation.requirements if requirement in self._rules), None)
        return self.step(lane, "violation", text, decides=True, rule=rule, violates=True)

    def step(self, lane: str, kind: str, text: str, **more: Any) -> Step:
        """A step with the present state."""
        text = self.short(text).rstrip(".")
        return Step(Happening(lane, lane, kind, text), text, more.pop("rule", None), self._view(), **more)

    def short(self, text: str) -> str:
        """The text on one line, with a letter instead of each long attempt id."""
        for attempt, letter in self.letters.items():
            if attempt != letter:
                text = text.replace(attempt, letter)
        return one_line(text)

    def _view(self) -> View:
        rows: list[tuple[str, ...]] = [
            (f"version {version}{self._of(table)}:", self.short(attempt), how)
            for (table, version), attempts in sorted(self._versions.items())
            for attempt, how in attempts.items()
        ]
        rows += [("did not land:", self.short(attempt), how) for attempt, how in self._not_landed.items()]
        earlier = [(f"{len(rows) - MOST_ROWS} more before",)] if len(rows) > MOST_ROWS else []
        latest = [(f"latest version{self._of(table)}:", text) for table, text in self._latest.items()]
        files = [(f"{version}.json{self._of(table)}", True, 0) for table, version in sorted(self._files)]
        recent = set(list(self._answers)[-MOST_CLIENTS:])
        return View(
            ledger=(*earlier, *rows[-MOST_ROWS:], *latest),
            log=tuple(files[-MOST_ROWS:]),
            readers=tuple((client, self.short(self._answers[client])) for client in self.clients if client in recent),
        )

    def _of(self, table: str) -> str:
        return f" of {one_line(table)}" if self._several else ""


def _client(invoke: Invoke) -> str:
    return one_line(invoke.client) or "a client"


def _origin(witness: Witness) -> str:
    if witness.before:
        return "from before the history"
    return f"by attempt {witness.attempt}" + (f" ({witness.commit_mode})" if witness.commit_mode else "")


# The visible part of a long history


def _shown_events(path: Path, violation: Violation | None) -> Iterator[Event | LeftOut]:
    """All events of a short history; for a long one those around the violation, or its first ones."""
    with path.open("rb") as stream:
        long = sum(1 for _ in stream) > MOST_EVENTS
    numbers = set() if violation is None else {*contradiction(violation)}
    version = None if violation is None else violation.version
    asked: dict[int, Invoke] = {}
    """The requests without an answer so far."""
    sent: set[int] = set()
    """The requests that were shown."""
    earlier: deque[tuple[Invoke | None, Event]] = deque(maxlen=AROUND)
    """The latest events that are not shown, answers with their requests."""
    skipped, more = 0, 0 if numbers else AROUND
    for event in read(path):
        request = asked.pop(event.id, None) if isinstance(event, events.Ok | events.Fail | events.Info) else None
        if isinstance(event, Invoke):
            asked[event.id] = event
        near = getattr(event, "id", None) in numbers or (isinstance(event, Witness) and event.version == version)
        if long and not near and not more and not isinstance(event, Header):
            earlier.append((request, event))
            skipped += 1
            continue
        if skipped > len(earlier):
            yield LeftOut(skipped - len(earlier))
        for before, shown in (*earlier, (request, event)):
            if before is not None and before.id not in sent:
                yield before
            if isinstance(shown, Invoke):
                sent.add(shown.id)
            yield shown
        earlier.clear()
        skipped, more = 0, AROUND if near else max(0, more - 1)
    if skipped:
        yield LeftOut(skipped)
