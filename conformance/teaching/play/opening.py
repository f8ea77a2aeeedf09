"""Opens the file of `play FILE`: the finding of a report, a recorded history, or the trace of a simulated schedule.

A trace is run again when it is opened, effect by effect, so that the user can try other choices.
"""

import contextlib
import io
import mmap
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from conformance.checkers.check import check_events, check_file
from conformance.history.events import InvalidHistoryError, Invoke
from conformance.history.files import read_events
from conformance.interface.results import UnusableError, Violation
from conformance.reports.history_story import HEADINGS, LOG, OBSERVER, HistoryTeller, history_story, in_short
from conformance.reports.stored import FINDING, ReportError, read_finding, replay_command
from conformance.reports.summary import direct_first
from conformance.scenario.running import violations_of
from conformance.simulation.effects import Kind
from conformance.simulation.python_subject import PythonHost
from conformance.simulation.reference import SimulatedReference
from conformance.simulation.schedule import Step as Effect
from conformance.simulation.schedule_scopes import Outcome, scopes
from conformance.simulation.traces import Trace, Watched, from_json, watched
from conformance.story import Happening, Step, Story, View
from conformance.teaching.play.narration import decides, sentence
from conformance.teaching.play.world import shorter
from refimpl.protocol.log_path import LOG_FOLDER
from refimpl.protocol.table_feature import CATALOG_MANAGED, MANAGED_COMMIT

EXPECTED: Final = (
    "expected a finding (finding.json), a history (JSON Lines), or a trace that `simulate explore --trace` wrote"
)
LARGE: Final = 1 << 24
"""The size in bytes above which the verdict on a history takes seconds."""
_SHOWN: Final = 60
"""The maximum number of bytes of the first line that a message quotes."""


class _Kind(msgspec.Struct):
    """The kinds of files."""

    event: Any = None
    violations: Any = None
    turns: Any = None


def open_story(path: Path) -> Story:
    """Raises `UnusableError` if nothing can be played."""
    path = path / FINDING if path.is_dir() else path
    try:
        with path.open("rb") as stream:
            start = stream.readline()
        if not start:
            raise UnusableError(f"{path} is empty; {EXPECTED}")
        if _kind(start).event is not None:
            return _history(path)
        whole = _kind(path.read_bytes())
        if whole.turns is not None:
            return trace_story(path)
        if whole.violations is not None:
            return _finding(path)
    except OSError as error:
        raise UnusableError(f"{error.filename or path} cannot be read: {error.strerror or error}") from None
    except InvalidHistoryError as error:
        where = "" if error.line is None else f", line {error.line}"
        raise UnusableError(f"{path}{where}: this history cannot be played: {error.problem}") from None
    except ReportError as error:
        raise UnusableError(error.problem) from None
    raise UnusableError(f"{path}, line 1: {start[:_SHOWN].decode('utf-8', 'replace').strip()!r}; {EXPECTED}")


def _kind(text: bytes) -> _Kind:
    try:
        return msgspec.json.decode(text, type=_Kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Kind()


def beginning(path: Path) -> Story | None:
    """The first events of a history whose verdict takes long; None for any other file."""
    with contextlib.suppress(OSError, InvalidHistoryError):
        if path.is_file() and path.stat().st_size > LARGE:
            return replace(_played(path, []), ends="The verdict is being computed.")
    return None


def _finding(path: Path) -> Story:
    finding = read_finding(path)
    if finding.history is None:
        raise UnusableError(f"{path} has no history, so there is nothing to play; run it again: {replay_command(path)}")
    return _played(path.with_name(finding.history), direct_first(finding.violations), f"Check: {finding.title}")


def _history(path: Path) -> Story:
    verdict = check_file(path)
    return _played(path, violations_of(verdict), more=verdict.left_out)


def _played(path: Path, violations: list[Violation], title: str = "", more: int = 0) -> Story:
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return history_story(text, violations, name=path.stem, title=title, more=more)


# Traces


FEATURES: Final = {feature.name: feature for feature in (CATALOG_MANAGED, MANAGED_COMMIT)}
_ABOVE: Final = re.compile(r"\S*/_delta_log/|^/warehouse/")
"""The prefix that is removed from paths of files."""


def trace_story(path: Path) -> Story:
    """The story of a trace. Raises `UnusableError` if the file is not a trace, or its scope or subject is unknown
    here."""
    try:
        trace = from_json(path.read_bytes())
        forks = TraceForks(trace)
        steps = forks.steps(trace.choices)
    except (ValueError, ImportError, AttributeError, msgspec.DecodeError) as error:
        raise UnusableError(f"the trace {path} cannot be run again here: {error}") from error
    return Story(
        name=path.stem,
        title=f"{trace.scope}: {forks.scope.title}",
        about=f"A schedule of {trace.subject}, run again by the simulator. Syncs are not shown.",
        ends=in_short(forks.violations, 0),
        clients=tuple(
            dict.fromkeys(step.happening.lane for step in steps if step.happening.lane not in (OBSERVER, LOG))
        ),
        others=(OBSERVER, LOG),
        steps=tuple(steps),
        headings=(*HEADINGS[:2], "_delta_log"),
        forks=forks,
    )


class TraceForks:
    """Runs the requests of a trace with any choices: each choice is the client whose effect is next."""

    def __init__(self, trace: Trace) -> None:
        """Raises `ValueError` if its scope is not known."""
        self._trace = trace
        (self.scope,) = scopes(lambda candidate: candidate.id == trace.scope)
        self.violations: list[Violation] = []
        """The effects of the last run."""

    def options(self, choices: Sequence[str]) -> list[tuple[str, str]]:
        """Every client that can take the next step."""
        _, seen = self._run(choices)
        return [(name, f"{name} goes next: {effect}") for name, effect in seen[len(choices)].enabled.items()]

    def follow(self, choices: Sequence[str], option: str) -> list[Step]:
        """Run the chosen client to its end, then the others by name."""
        return [step for step in self.steps([*choices, option]) if len(step.choices) > len(choices)]

    def _run(self, choices: Sequence[str]) -> tuple[Outcome, list[Watched]]:
        subject = self._trace.subject
        with SimulatedReference() if subject == "reference" else PythonHost.named(subject) as host:
            return watched(self._trace, self.scope, host, choices)

    def steps(self, choices: Sequence[str]) -> list[Step]:
        """The steps of a run with these choices."""
        outcome, seen = self._run(choices)
        self.violations = _violations(outcome)
        return list(self._shown(outcome, seen))

    def _shown(self, outcome: Outcome, seen: Sequence[Watched]) -> Iterator[Step]:
        """The requests, the effect and the answers of each step of the run."""
        text = outcome.history.encode()
        teller = HistoryTeller(list(read_events(io.BytesIO(text))), self.violations, text)
        made: tuple[str, ...] = ()
        before, shown = seen[0], 0
        for now in seen:
            until = len(now.history.encode())
            events = list(read_events(io.BytesIO(text[shown:until])))
            invoked = sum(isinstance(event, Invoke) for event in events) if now.step is not None else 0
            steps = [step for event in events[:invoked] for step in teller.steps_of(event)]
            if now.step is not None:
                made = (*made, now.step.client)
                steps.append(self._effect(teller, now.step, _log(teller, before), _log(teller, now)))
            steps += [step for event in events[invoked:] for step in teller.steps_of(event)]
            yield from (_seen(step, made, _log(teller, now)) for step in steps)
            before, shown = now, until
        rest = [step for event in read_events(io.BytesIO(text[shown:])) for step in teller.steps_of(event)]
        yield from (_seen(step, made, _log(teller, before)) for step in (*rest, *teller.rest()))

    def _effect(self, teller: HistoryTeller, effect: Effect, before: "Log", after: "Log") -> Step:
        target = _short(teller, effect.target)
        happening = Happening(effect.client, effect.client, effect.kind.value, target)
        then, now = (View((), log, ()) for log in (before, after))
        text, rule = sentence(happening, then, now, FEATURES[self.scope.feature])
        if effect.kind is Kind.COMMIT:  # the ledger of another owner cannot be read here
            text, rule = f"{effect.client} commits its transaction in the ledger", None
        return replace(teller.step(effect.client, effect.kind.value, text, rule=rule), decides=decides(happening))


Log = tuple[tuple[str, bool, int], ...]


def _log(teller: HistoryTeller, now: Watched) -> Log:
    names = (file for file in now.files if f"/{LOG_FOLDER}/" in file)
    return tuple((_short(teller, name), True, 0) for name in sorted(names))


def _short(teller: HistoryTeller, path: str) -> str:
    return shorter(_ABOVE.sub("", path), lambda identity: teller.letters.get(identity, identity[:8]))


def _seen(step: Step, made: tuple[str, ...], log: Log) -> Step:
    return replace(step, choices=made, view=replace(step.view, log=log))


def _violations(outcome: Outcome) -> list[Violation]:
    """The violations that the checkers find, with their operations, and the others."""
    try:
        violations = violations_of(check_events(list(read_events(io.BytesIO(outcome.history.encode())))))
    except InvalidHistoryError:
        violations = []  # the clients wait for each other, so there is no final log
    known = {f"{violation.requirements[0]}: {violation.message}" for violation in violations}
    others = (text.partition(": ") for text in outcome.violations if text not in known)
    return [*violations, *(Violation(requirements=(rule,), message=message) for rule, _, message in others)]
