"""Drafts of histories: operations with their times and a final log, which become the lines of a history.

Tests, simulations and `fixtures/histories` use them instead of recording a run. The histories in `fixtures` are short:
good ones that each use a freedom, bad ones that each violate one rule. The files are the source; `index.json` says what
happens in each file, as its header does, and which rules the history violates.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from conformance.checkers.check import HistoryVerdict, check_events
from conformance.checkers.rules import Rule
from conformance.history import events
from conformance.history.events import Content, Event, Fault, Footer, Header, Promise, Witness
from conformance.history.files import write_events
from conformance.history.operations import operations
from spec_tests.conformance.brute_force import is_linearizable

TABLE = "orders"
REFUSALS = (events.Conflict, events.Gap, events.Rejected, events.NotFound, events.Unsupported)


@dataclass(slots=True)
class DraftOperation:
    """An operation of a draft. `answered` is None if no answer arrived."""

    client: str
    request: events.Request
    invoked: int
    answered: int | None = None
    answer: events.Answer | None = None


@dataclass(slots=True)
class DraftListing:
    """An observation of published files."""

    since: int
    at: int
    published: list[int] = field(default_factory=list)
    absent: list[int] = field(default_factory=list)
    contents: dict[int, Content] = field(default_factory=dict)


@dataclass(slots=True)
class Version:
    """A version of the final log."""

    attempt: str
    direct: bool = False
    content: Content | None = None


@dataclass(slots=True)
class Draft:
    """A history that can still be changed."""

    feature: str = "catalogManaged"
    profiles: set[str] = field(default_factory=set)
    promises: set[Promise] = field(default_factory=set)
    open_world: bool = False
    cleanup: bool = False
    skew: int = 0
    before: int = 0
    """The number of versions in the log before the history begins."""
    first: int = 0
    """The first version of the recorded log."""
    log: list[Version] = field(default_factory=list)
    asked: list[DraftOperation] = field(default_factory=list)
    looked: list[DraftListing] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    subject: str = "simulated"
    note: str = ""

    def ask(
        self, client: str, invoked: int, answered: int | None, request: events.Request, answer: events.Answer | None
    ) -> None:
        self.asked.append(DraftOperation(client, request, invoked, answered, answer))

    def events(self) -> list[Event]:
        """The events ordered by time. Operations are numbered in the order of their lines."""
        moments = [moment for at, operation in enumerate(self.asked) for moment in _moments(at, operation)]
        moments += [(listing.at, 1, len(self.asked) + at, listing) for at, listing in enumerate(self.looked)]
        moments += [(fault.at, 2, at, fault) for at, fault in enumerate(self.faults)]
        moments.sort(key=lambda moment: moment[:3])
        numbers: dict[int, int] = {}
        lines: list[Event] = []
        for time, _, at, drafted in moments:
            if isinstance(drafted, Fault):
                lines.append(drafted)
            elif isinstance(drafted, DraftListing):
                numbers[at] = len(numbers)
                lines.append(_look(drafted, numbers[at]))
            elif at not in numbers:
                numbers[at] = len(numbers)
                lines.append(
                    events.Invoke(at=time, id=numbers[at], client=drafted.client, table=TABLE, request=drafted.request)
                )
            else:
                assert drafted.answer is not None
                lines.append(ended(time, numbers[at], drafted.answer))
        return [self._header(), *lines, *self._witnesses(), self._footer(lines)]

    def text(self) -> str:
        """The lines of the history."""
        stream = io.BytesIO()
        write_events(stream, self.events())
        return stream.getvalue().decode()

    def _header(self) -> Header:
        return Header(
            schema=events.SCHEMA_VERSION,
            clock=events.Clock(unit="tick", skew=self.skew),
            subject=events.Subject(name=self.subject),
            feature="managedCommit" if self.feature == "managedCommit" else "catalogManaged",
            profiles=tuple(sorted(self.profiles)),
            promises=tuple(sorted(self.promises, key=lambda promise: promise.value)),
            open_world=self.open_world,
            cleanup=self.cleanup,
            note=self.note,
        )

    def _witnesses(self) -> Iterator[Witness]:
        for version, entry in enumerate(self.log, self.first):
            yield Witness(
                table=TABLE,
                version=version,
                attempt=entry.attempt,
                before=version - self.first < self.before,
                commit_mode="direct" if entry.direct else None,
                content=entry.content,
            )

    def _footer(self, lines: list[Event]) -> Footer:
        counts = dict.fromkeys(events.Counts.__struct_fields__, 0)
        for line in lines:
            counts[str(type(line).__struct_config__.tag)] += 1
        counts["witness"] = len(self.log)
        return Footer(counts=events.Counts(**counts), tables={TABLE: len(self.log)}, complete=True)


Moment = tuple[int, int, int, DraftOperation | DraftListing | Fault]


def _moments(at: int, operation: DraftOperation) -> Iterator[Moment]:
    yield operation.invoked, 0, at, operation
    if operation.answered is not None and operation.answer is not None:
        yield operation.answered, 1, at, operation


def _look(listing: DraftListing, number: int) -> events.FileLook:
    files = tuple(
        events.PublishedFile(version=version, content=listing.contents.get(version)) for version in listing.published
    )
    return events.FileLook(
        since=listing.since, at=listing.at, id=number, table=TABLE, published=files, absent=tuple(listing.absent)
    )


def ended(at: int, number: int, answer: events.Answer) -> Event:
    """The event for an answer."""
    if isinstance(answer, events.Unknown):
        return events.Info(at=at, id=number, answer=answer)
    if isinstance(answer, REFUSALS):
        return events.Fail(at=at, id=number, answer=answer)
    return events.Ok(at=at, id=number, answer=answer)


# The verdict on a draft, compared with brute force


def verdict_on(draft: Draft) -> HistoryVerdict:
    """The verdict. A history without contents is also judged by brute force, and the two verdicts must agree."""
    source = draft.events()
    verdict = check_events(source)
    if Rule.CONTENT_CHANGED not in {violation.rule for violation in verdict.violations}:
        assert verdict.conformant == is_linearizable(operations(source)), verdict.violations
    return verdict


def rules(draft: Draft) -> list[Rule]:
    """The violated rules, in the order of the verdict."""
    return [violation.rule for violation in verdict_on(draft).violations]


def log(*attempts: str) -> list[Version]:
    return [Version(attempt) for attempt in attempts]


def asked(
    client: str, invoked: int, answered: int | None, request: events.Request, answer: events.Answer | None = None
) -> DraftOperation:
    return DraftOperation(client, request, invoked, answered, answer)


def commit(
    attempt: str, version: int, invoked: int, answered: int | None, answer: events.Answer | None = None
) -> DraftOperation:
    """A proposal. If `answered` is None, the outcome is unknown. Without an `answer`, it was ratified."""
    given = events.Ratified(version=version) if answer is None and answered is not None else answer
    return DraftOperation("writer", events.Commit(version=version, attempt=attempt), invoked, answered, given)


def read(invoked: int, answered: int, latest: int | None) -> DraftOperation:
    """A read of versions that do not exist yet, so that the list is empty."""
    request = events.GetCommits(start=2**40)
    return DraftOperation("reader", request, invoked, answered, events.Commits(latest=latest))


# The histories in fixtures


FOLDER: Final = Path(__file__).resolve().parents[2] / "fixtures" / "histories"


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of the files. A good history violates no rule."""

    file: str
    """The path below `FOLDER`."""
    about: str
    violates: tuple[Rule, ...]

    @property
    def path(self) -> Path:
        return FOLDER / self.file


CASES: Final = msgspec.json.decode((FOLDER / "index.json").read_bytes(), type=tuple[Case, ...])
