"""Pairs requests with their answers in a stream of events, and rejects invalid histories.

One pass, with memory for the requests in flight only. A history that breaks one of these rules is invalid, which is
never a verdict on the subject:
- the first line is the one header, of a schema that this version knows;
- times never go back, and the numbers of operations increase: otherwise "before" would mean nothing;
- an answer belongs to a request in flight, and is valid for it: otherwise a recorder that mixes up answers would accuse
  a correct subject;
- a table's final log is ascending, and begins with the versions from before the history; or it is one line that says
  that it could not be read;
- the footer agrees with the lines: without it a truncated history cannot be recognized.

A gap in the final log is valid here: it is a finding about the subject.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, get_args

import msgspec

from conformance.history import events
from conformance.interface import messages
from conformance.interface.messages import name_of


class Operation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request with its answer; `answer` and `answered` are None if none arrived before the end."""

    id: int
    client: str
    table: str
    request: events.Request
    invoked: events.Time
    answered: events.Time | None = None
    answer: events.Answer | None = None


Item = events.Header | Operation | events.Fault | events.FileLook | events.Witness | events.Unseen

_REFUSALS = (events.Rejected, events.NotFound, events.Unsupported, events.Unknown)
ANSWERS: Final[dict[type[Any], frozenset[type[Any]]]] = {
    kind: frozenset({*_REFUSALS, *(getattr(events, answer.__name__) for answer in messages.ANSWERS[message])})
    for kind in get_args(events.Request)
    if (message := getattr(messages, kind.__name__, None)) is not None
}
ANSWERS[events.CreateTable] |= {events.Gap}
ANSWERS[events.Other] = frozenset({events.Done, events.Conflict, *_REFUSALS})
"""The valid answers to each request, as in the interface."""


def operations(source: Iterable[events.Event]) -> Iterator[Item]:
    """The header, then operations in the order in which they end, then those without an answer. Raises
    `InvalidHistoryError`, with lines counted from 1. A verdict needs a stream that was read to its end."""
    pairing = _Pairing()
    for event in source:
        item = pairing.accept(event)
        if item is not None:
            yield item
    yield from pairing.finish()


class _Pairing:
    def __init__(self) -> None:
        self.line = 0
        self.now: int | None = None
        self.last_id = -1
        self.in_flight: dict[int, events.Invoke] = {}
        self.counts = dict.fromkeys(events.Counts.__struct_fields__, 0)
        self.logs: dict[str, tuple[int, bool]] = {}
        """By table: the last version of its final log, and whether it existed before the history."""
        self.unseen: set[str] = set()
        """Tables whose final log could not be read."""
        self.tables: dict[str, int] = {}
        self.header: events.Header | None = None
        self.footer: events.Footer | None = None

    def accept(self, event: events.Event) -> Item | None:
        self.line += 1
        if self.header is None or self.footer is not None or isinstance(event, events.Header):
            return self._frame(event)
        if isinstance(event, events.Invoke):
            self._invoke(event)
            return None
        if isinstance(event, (events.Ok, events.Fail, events.Info)):
            return self._ended(event)
        if isinstance(event, events.Witness):
            return self._witness(event)
        if isinstance(event, events.FileLook):
            return self._look(event)
        if isinstance(event, events.Unseen):
            return self._unseen(event)
        if isinstance(event, events.Footer):
            self._footer(event)
            return None
        self._at(event.at, "fault")
        return event

    def _refuse(self, problem: str) -> events.InvalidHistoryError:
        return events.InvalidHistoryError(problem, self.line)

    def _frame(self, event: events.Event) -> Item:
        if self.footer is not None:
            raise self._refuse("a line follows the footer; a history ends with its footer")
        if self.header is not None:
            raise self._refuse("a second header; two histories in one file cannot be judged together")
        if not isinstance(event, events.Header):
            raise self._refuse(f"a history begins with its header, not with `{name_of(event)}`")
        if event.schema != events.SCHEMA_VERSION:
            raise self._refuse(f"the history has schema {event.schema}; this version reads {events.SCHEMA_VERSION}")
        self.header = event
        return event

    def _at(self, at: int, counted: str) -> None:
        if self.now is not None and at < self.now:
            raise self._refuse(f"time decreases from {self.now} to {at}; events must be in the order of their times")
        if self.logs:
            raise self._refuse(f"`{counted}` after the final log has begun; only witnesses and the footer may follow")
        self.now = at
        self.counts[counted] += 1

    def _number(self, number: int, table: str) -> None:
        if number <= self.last_id:
            raise self._refuse(f"operation {number} follows operation {self.last_id}; numbers must increase")
        self.last_id = number
        self.tables.setdefault(table, 0)

    def _invoke(self, event: events.Invoke) -> None:
        self._at(event.at, "invoke")
        self._number(event.id, event.table)
        self.in_flight[event.id] = event

    def _ended(self, event: events.Ended) -> Operation:
        self._at(event.at, name_of(event))
        invoke = self.in_flight.pop(event.id, None)
        if invoke is None:
            why = "was never sent" if event.id > self.last_id else "was answered before, or is not a request"
            raise self._refuse(f"an answer to operation {event.id}, which {why}")
        if type(event.answer) not in ANSWERS[type(invoke.request)]:
            raise self._refuse(
                f"`{name_of(event.answer)}` is not a valid answer to `{name_of(invoke.request)}` (operation {event.id})"
            )
        return Operation(
            id=event.id,
            client=invoke.client,
            table=invoke.table,
            request=invoke.request,
            invoked=invoke.at,
            answered=event.at,
            answer=event.answer,
        )

    def _look(self, event: events.FileLook) -> events.FileLook:
        self._at(event.at, "fs")
        self._number(event.id, event.table)
        if event.since > event.at:
            raise self._refuse(f"the listing began at {event.since}, after its end at {event.at}")
        return event

    def _witness(self, event: events.Witness) -> events.Witness:
        self.counts["witness"] += 1
        if event.table in self.unseen:
            raise self._refuse(f"a version of the final log of {event.table!r}, which could not be read")
        last, before = self.logs.get(event.table, (-1, True))
        if event.version <= last:
            raise self._refuse(
                f"the final log of {event.table!r} goes from version {last} to {event.version}; it must be ascending"
            )
        if event.before and not before:
            raise self._refuse(
                f"version {event.version} of {event.table!r} existed before the history, but {last} did not"
            )
        if event.attempt is None and not event.before:
            raise self._refuse(
                f"version {event.version} of {event.table!r} has no attempt, and is not from before the history"
            )
        self.logs[event.table] = (event.version, event.before)
        self.tables[event.table] = self.tables.get(event.table, 0) + 1
        return event

    def _unseen(self, event: events.Unseen) -> events.Unseen:
        self.counts["unseen"] += 1
        if event.table in self.logs:
            raise self._refuse(f"a second final log of {event.table!r}")
        self.unseen.add(event.table)
        self.logs[event.table] = (-1, True)
        self.tables.setdefault(event.table, 0)
        return event

    def _footer(self, event: events.Footer) -> None:
        stated = msgspec.structs.asdict(event.counts)
        wrong = [
            f"{stated[kind]} `{kind}` lines, found {count}"
            for kind, count in self.counts.items()
            if stated[kind] != count
        ]
        if wrong:
            raise self._refuse(f"the footer counts {'; '.join(wrong)}: lines were lost or added")
        for table, length in self.tables.items():
            if table not in event.tables:
                raise self._refuse(f"the footer lacks table {table!r}: its final log was not recorded")
            if event.tables[table] != length:
                raise self._refuse(
                    f"the footer counts {event.tables[table]} versions in the final log of {table!r}, found {length}"
                )
        unknown = [table for table, length in event.tables.items() if length and table not in self.tables]
        if unknown:
            raise self._refuse(f"the footer names a final log of {unknown[0]!r}, which is missing")
        if not event.complete:
            raise self._refuse("its recorder marked it as incomplete; record it again")
        self.footer = event

    def finish(self) -> Iterator[Operation]:
        if self.footer is None:
            what = f"it ends after line {self.line} without a footer" if self.line else "it is empty"
            raise events.InvalidHistoryError(
                f"{what}: it was truncated, or its recorder crashed; no verdict is possible"
            )
        for invoke in self.in_flight.values():
            yield Operation(
                id=invoke.id, client=invoke.client, table=invoke.table, request=invoke.request, invoked=invoke.at
            )
