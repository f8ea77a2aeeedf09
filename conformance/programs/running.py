"""Draws and runs the programs of one property until they show enough violations, or the budget ends.

A property says how programs of one side are drawn, and how a step is done; everything else is here: the seeds, the
budget, the end of a subject that hangs, the replay, the shrinking, and the result. The result of many programs is
`passed`, or for each violated requirement the smallest failing program with its history.
"""

import itertools
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from conformance.interface import messages as m
from conformance.interface.messages import Identity
from conformance.interface.results import CaseResult, OtherProgram, Verdict, Violation
from conformance.interface.subject import AdapterError, Subject
from conformance.programs import program as programs
from conformance.programs.program import NotAProgramError, Program
from conformance.programs.watching import Watch
from conformance.requirements.catalogue import BINDING, load
from conformance.scenario.adversary import ClientHost
from conformance.scenario.check import Check, Variant
from conformance.scenario.client import ClientScenario
from conformance.scenario.running import BrokenInCaseError, finish
from conformance.scenario.scenario import Inconclusive, Scenario, Stopped, Violated

STEP_SECONDS: Final = 90
"""A step of a program that takes longer is hung. An adapter in another process gives up earlier: an engine after a
minute."""

SHRINKING_SECONDS: Final = 60
"""The time after which no smaller program is tried: an engine may need a minute for each. Other subjects need less for
all of them, so that their smallest program does not depend on the machine."""

MOST_VIOLATIONS: Final = 4
"""After so many failing programs, each with another first requirement that binds the subject, a family ends: a reader
needs no more, and each one is made small."""

NO_REPETITION: Final = "no time was left to repeat it, and to make it smaller"

SMALL: Final = 5
"""A failing program with so few steps shows which of them is to blame."""

S = TypeVar("S")
S_contra = TypeVar("S_contra", contravariant=True)


class Driver(Protocol[S_contra]):
    """Does the steps of one program in one scenario. Every method may raise `Stopped` or `AdapterError`."""

    ratified: int
    """How many of its commits were ratified, so far."""

    def do(self, step: S_contra) -> None: ...

    def end(self) -> None: ...


class Property(Protocol[S]):
    """The programs of one family."""

    @property
    def kind(self) -> type[Program[S]]: ...

    @property
    def side(self) -> str: ...

    def draw(self, seed: int, number: int, identity: Identity, variant: Variant) -> Program[S]:
        """The program of that number of a run with that seed."""
        ...

    def offers(self, words: Collection[str], identity: Identity, variant: Variant) -> bool:
        """Whether the alphabet for this subject has these words."""
        ...

    def suspect(self, program: Program[S]) -> "Suspect | None":
        """What probably caused the failure of a small program; None: any step."""
        ...

    def stakes(self, step: S) -> tuple[str, ...]:
        """The requirements that the step puts at stake."""
        ...

    def begin(self, scenario: Any) -> Driver[S]:
        """What does the steps in this scenario: a `ClientScenario` for the side `client`."""
        ...


class Suspect(NamedTuple):
    """Steps of one type that set these fields: words to these values, numbers to any."""

    kind: type
    fields: Mapping[str, object]

    def is_like(self, step: object) -> bool:
        body = msgspec.to_builtins(step) if type(step) is self.kind else {}
        return all(
            body.get(name) == value if isinstance(value, str) else name in body for name, value in self.fields.items()
        )


class HungError(BaseException):
    """A step did not end. Not an `Exception`, so that the subject, in this process, does not handle it."""


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Interrupt the block after that time, if that is possible here: in the main thread of a POSIX process."""
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: object) -> None:
        raise HungError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@dataclass
class Generation:
    """Runs generated programs on a subject. A check's function is given one, and calls `run`."""

    check: Check
    variant: Variant
    subject: Subject
    _: KW_ONLY
    seed: int
    count: int
    """The maximum number of programs."""
    seconds: float | None = None
    """The time after which no second program begins, and no program is made smaller."""
    salt: str = ""
    host: ClientHost | None = None
    """For a client under test: the address of the kit's owner, with which the subject was opened."""
    shrink: bool = True
    most: int = MOST_VIOLATIONS
    found: Callable[[CaseResult], None] | None = None
    """Called with the result so far after each new violation."""
    reproduction: str | None = None
    """The only program to run, as JSON."""
    drawn: int = 0
    """The number of programs that were drawn and run."""
    words: Counter[str] = field(default_factory=Counter)
    """How often each word was in a program that was run."""
    executions: int = 0
    """The number of runs, including replays and those of smaller programs."""
    operations: int = 0
    ratified: int = 0
    no_transactions: str = ""
    """The reason of a client that does not commit."""
    inconclusive: list[str] = field(default_factory=list)
    failures: list[tuple[Program[Any], CaseResult]] = field(default_factory=list)
    """The first one is complete; each other one has only violations whose first requirements are new."""
    violated: set[str] = field(default_factory=set)
    """The requirements that any execution violated."""
    repeated: set[str] = field(default_factory=set)
    """The first requirements of programs that showed a known violation again, when they were made small."""
    passed: int = 0
    suspects: list[Suspect] = field(default_factory=list)
    """What the later programs leave out, so that a bug that was shown does not hide others."""
    left_out: set[str] = field(default_factory=set)
    """The requirements that the steps left out put at stake."""
    broken: AdapterError | None = None
    hung: str = ""
    """The step that did not end."""
    _watch: Watch | None = None
    _began: float = field(default_factory=time.monotonic)

    def run(self, family: Property[S]) -> None:
        """Run programs of that family. The log folders of an owner are watched."""
        self._watched(lambda: self._run(family))

    def run_stored(self, family: Property[S], texts: Iterable[str]) -> None:
        """Run stored programs. Those for other variants or profiles are left out; a text that is not a program is
        skipped, and counted as one without a verdict."""
        self._watched(lambda: self._run_stored(family, texts))

    def _watched(self, run: Callable[[], None]) -> None:
        if self.check.side == "client":
            run()
            return
        with Watch(self.subject) as self._watch:
            run()

    def _run(self, family: Property[S]) -> None:
        if self.reproduction is not None:
            self._replay(family)
            return
        for number in range(self.count):
            if self._is_complete or (self.drawn and self._seconds_left <= 0):
                break
            drawn = family.draw(self.seed, number, self.subject.identity, self.variant)
            self._try(family, self._without_suspects(family, drawn), shrink=self.shrink)

    def _without_suspects(self, family: Property[S], program: Program[S]) -> Program[S]:
        kept = [not any(suspect.is_like(step) for suspect in self.suspects) for step in program.steps]
        if all(kept):
            return program
        words = tuple(itertools.compress(program.words, kept))
        steps = tuple(itertools.compress(program.steps, kept))
        for step in program.steps:
            if step not in steps:
                self.left_out.update(family.stakes(step))
        return msgspec.structs.replace(program, steps=steps, words=words)

    def _try(self, family: Property[S], program: Program[S], *, shrink: bool) -> None:
        """Run the next program, and keep it if it shows a new violation. If the program of a client says what it is
        about, so do its violations: the steps may put more at stake."""
        self.drawn += 1
        self.words.update(program.words)
        violated = set(self.violated)
        result = self.execute(family, program)
        if result is None:
            return
        about = set(program.requirements if program.side == "client" or self.reproduction is not None else ())
        result = _about(result, lambda names: tuple(name for name in names if name in about) or names)
        self.passed += result.held or (bool(result.violations) and not any(map(_binds, result.violations)))
        new = self._new(result)
        if not new:
            return
        self._keep(program, result)
        if self._is_over:
            return
        if self.found is not None:
            self.found(self._failed())
        if shrink:
            del self.failures[-1]  # the smaller program replaces it, and may show its violations
            small, failed = self._smallest(family, program, result, new[0].requirements[0])
            if len(small.steps) <= SMALL:
                failed = _about(failed, lambda requirements: _blamed(family, small, requirements))
                self.suspects += [suspect] if (suspect := family.suspect(small)) is not None else []
                small = msgspec.structs.replace(small, requirements=failed.violations[0].requirements)
                self.violated -= _named(result) - _named(failed) - violated
            if self._new(failed):
                self._keep(small, failed)
            else:
                self.repeated.add(new[0].requirements[0])

    def _keep(self, program: Program[S], result: CaseResult) -> None:
        kept = msgspec.structs.replace(result, violations=self._new(result), title=program.title or result.title)
        self.failures.append((program, kept))

    def _new(self, result: CaseResult) -> tuple[Violation, ...]:
        """The violations whose first requirement is not that of an earlier violation."""
        known = self.repeated | {shown.requirements[0] for _, failed in self.failures for shown in failed.violations}
        new: dict[str, Violation] = {}
        for shown in result.violations:
            new.setdefault(shown.requirements[0], shown)
        return tuple(shown for first, shown in new.items() if first not in known)

    @property
    def _seconds_left(self) -> float:
        return float("inf") if self.seconds is None else self._began + self.seconds - time.monotonic()

    @property
    def _is_complete(self) -> bool:
        binding = sum(any(map(_binds, failed.violations)) for _, failed in self.failures)
        return binding >= self.most or self._is_over

    @property
    def _is_over(self) -> bool:
        """Whether the subject cannot be used any more."""
        return self.broken is not None or bool(self.hung) or self._has_died

    @property
    def _has_died(self) -> bool:
        """Whether the subject's process ended by itself. `run_case` says so in the result."""
        return bool(getattr(self.subject, "deaths", ()))

    def execute(self, family: Property[S], program: Program[S]) -> CaseResult | None:
        """Run a program. Returns None if the subject sent an invalid message, or hangs."""
        if self._is_over:
            return None
        self.executions += 1
        scenario = self._scenario(program.seed)
        try:
            return self._executed(family, program, scenario)
        except AdapterError as error:
            self.broken = error
        finally:
            if isinstance(scenario, ClientScenario):
                self.no_transactions = scenario.unsupported.get(m.Transact, self.no_transactions)
                scenario.close()
        return None

    def _executed(self, family: Property[S], program: Program[S], scenario: Scenario) -> CaseResult | None:
        driver = family.begin(scenario)
        ended: Stopped | AdapterError | None = None
        doing: S | str = "the beginning"
        try:
            for doing in program.steps:
                with alarm(STEP_SECONDS):
                    driver.do(doing)
                if self._has_died:
                    raise Inconclusive("the subject ended")
            doing = "the end"
            with alarm(STEP_SECONDS):
                driver.end()
        except Stopped as stopped:
            ended = stopped
            with suppress(Stopped):
                driver.end()
        except AdapterError as error:
            ended = error
        except HungError:
            self.hung = f"no answer within {STEP_SECONDS} s: {doing} did not end, in {programs.encode(program)}"
            return None
        self.operations += scenario.recording.writer.operations
        self.ratified += driver.ratified
        result = self._judged(scenario, ended)
        self.violated.update(_named(result))
        if result.verdict is Verdict.INCONCLUSIVE:
            self.inconclusive.append(result.reason)
        return result

    def _judged(self, scenario: Scenario, ended: Stopped | AdapterError | None) -> CaseResult:
        """The oracle has judged every answer of an owner, so its history is completed only if the program failed."""
        if self.check.side == "client" or isinstance(ended, AdapterError):
            return finish(self.check, self.variant, self.subject, scenario, ended)
        held = self.check.held(self.subject.identity, self.variant)
        if isinstance(ended, Violated):
            scenario.conclude()
            return self.check.result(
                self.variant, held, Verdict.FAILED, violations=tuple(scenario.violations),
                operations=scenario.recording.writer.operations, history=scenario.recording.text,
            )  # fmt: skip
        reason = ended.reason if isinstance(ended, Inconclusive) else ""
        return self.check.result(self.variant, held, Verdict.INCONCLUSIVE if reason else Verdict.PASSED, reason)

    def _scenario(self, seed: int) -> Scenario:
        name, salt = self.check.case(self.variant), f"{self.salt}_{self.executions}"
        if self.check.side == "owner":
            if self._watch is not None:
                self._watch.begin()
            return Scenario(self._watch or self.subject, self.variant, name=name, seed=seed, salt=salt, deferred=True)
        if self.host is None:
            raise ValueError(f"{name} is for clients: it needs the host with which the subject was opened")
        return ClientScenario(self.subject, self.variant, self.host, name=name, seed=seed, salt=salt)

    def _smallest(
        self, family: Property[S], program: Program[S], failed: CaseResult, requirement: str
    ) -> tuple[Program[S], CaseResult]:
        """The smallest program whose first new violation is of that requirement, with its result."""

        end = time.monotonic() + min(SHRINKING_SECONDS, self._seconds_left)

        def again(candidate: Program[S]) -> CaseResult | None:
            result = self.execute(family, candidate) if time.monotonic() < end else None
            new = () if result is None else self._new(result)
            return result if new and new[0].requirements[0] == requirement else None

        repeated = again(program)
        if repeated is None:
            late = time.monotonic() >= end
            reason = NO_REPETITION if late else "the history shows it; a repetition of the same steps did not"
            return program, msgspec.structs.replace(failed, reason=reason)
        return smallest(program, repeated, again)

    def _replay(self, family: Property[S]) -> None:
        assert self.reproduction is not None
        program = programs.decode(self.reproduction, family.kind, family.side)
        self._try(family, program, shrink=False)

    def _run_stored(self, family: Property[S], texts: Iterable[str]) -> None:
        if self.reproduction is not None:
            self._replay(family)
            return
        for text in texts:
            if self._is_complete or (self.drawn and self._seconds_left <= 0):
                return
            try:
                program = programs.decode(text, family.kind, family.side)
            except NotAProgramError as error:
                self.inconclusive.append(error.problem)
                continue
            if not (
                program.variant in (None, str(self.variant))
                and family.offers(program.words, self.subject.identity, self.variant)
            ):
                continue
            self._try(family, program, shrink=False)

    def result(self) -> CaseResult:
        """Raises `AdapterError`, with the violation that was found before, if there is one."""
        if self.failures:
            failed = self._failed()
            if self.broken is not None:
                raise BrokenInCaseError(self.broken, failed)
            return failed
        if self.broken is not None:
            raise self.broken
        verdict, reason = Verdict.PASSED, ""
        if self.hung or 2 * len(self.inconclusive) > self.drawn:
            verdict, reason = Verdict.INCONCLUSIVE, self.hung or self.inconclusive[0]
        elif not self.executions:
            verdict, reason = Verdict.SKIPPED, "no pinned program applies to this table feature and commit mode"
        elif not self.ratified:
            verdict = Verdict.INCONCLUSIVE
            reason = self.no_transactions or "no commit was ratified in any program"
        held = self.check.held(self.subject.identity, self.variant)
        return self.check.result(self.variant, held, verdict, reason, operations=self.operations, **self._tried)

    @property
    def _tried(self) -> dict[str, Any]:
        """The fields of the result that say what was tried."""
        return {
            "programs": self.drawn, "words": dict(self.words),
            "unwatched": "" if self._watch is None else self._watch.unknown,
        }  # fmt: skip

    def _failed(self) -> CaseResult:
        """The first failing program, with the violations of the others."""
        (program, first), *others = self.failures
        shown = {name for _, failed in self.failures for name in _named(failed)}
        return msgspec.structs.replace(
            first,
            reason=first.reason or self.hung,
            reproduction=programs.encode(program),
            passed=0 if self._is_complete or not self.ratified else self.passed,
            doubtful=tuple(sorted((self.violated | self.left_out) - shown)),
            **self._tried,
            violations=tuple(
                msgspec.structs.replace(violation, program=number)
                for number, (_, failed) in enumerate(self.failures)
                for violation in failed.violations
            ),
            others=tuple(
                OtherProgram(
                    title=failed.title, operations=failed.operations, history=failed.history,
                    reproduction=programs.encode(other), reason=failed.reason,
                )
                for other, failed in others
            ),
        )  # fmt: skip


def _named(result: CaseResult) -> set[str]:
    return {name for violation in result.violations for name in violation.requirements}


def _blamed(family: Property[S], program: Program[S], requirements: tuple[str, ...]) -> tuple[str, ...]:
    """Of a wrong read, the requirements that the steps put at stake, because without these steps the read is right."""
    staked = {name for step in program.steps for name in family.stakes(step)}
    is_read = "PROFILE-CLIENT-01" in requirements
    return tuple(name for name in requirements if is_read and name in staked) or requirements


def _about(failed: CaseResult, about: Callable[[tuple[str, ...]], tuple[str, ...]]) -> CaseResult:
    """The result, with other requirements for each violation."""
    violations = (msgspec.structs.replace(shown, requirements=about(shown.requirements)) for shown in failed.violations)
    return msgspec.structs.replace(failed, violations=tuple(violations))


def _binds(violation: Violation) -> bool:
    """Whether the subject must not do that: it is no advice."""
    return any(load().requirement(name).level in BINDING for name in violation.requirements)


# Smaller programs


TRIALS: Final = 400
"""The maximum number of runs in the search for the smallest program."""
SIZES: Final = (64, 16, 8, 4, 2, 1)
"""How many neighbouring steps are removed at once."""

P = TypeVar("P", bound=Program[Any])
R = TypeVar("R")


def smallest(program: P, failure: R, run: Callable[[P], R | None], trials: int = TRIALS) -> tuple[P, R]:
    """The smallest program that fails like this one, as far as that many runs show, with its failure. `run` returns the
    failure of a candidate, or None if it does not fail in the same way."""
    candidates = simpler(program)
    for _ in range(trials):
        candidate = next(candidates, None)
        if candidate is None:
            break
        shown = run(candidate)
        if shown is not None:
            program, failure = candidate, shown
            candidates = simpler(program)
    return program, failure


def simpler(program: P) -> Iterator[P]:
    """Programs with one simplification each, the largest first."""
    for steps in _simpler_steps(program.steps):
        yield msgspec.structs.replace(program, steps=steps)


def _simpler_steps(steps: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    length = len(steps)
    for size in SIZES:
        for start in range(length - size, -1, -size) if length >= size else ():
            yield steps[:start] + steps[start + size :]
    for name in ("table", "client"):
        plain = tuple(msgspec.structs.replace(step, **{name: 0}) if hasattr(step, name) else step for step in steps)
        if plain != steps:
            yield plain
    for index, step in enumerate(steps):
        for changed in _simpler_step(step):
            yield (*steps[:index], changed, *steps[index + 1 :])


def _simpler_step(step: Any) -> Iterator[Any]:
    yield from getattr(step, "simpler", tuple)()
    for attribute in msgspec.structs.fields(step):
        value = getattr(step, attribute.name)
        for simple in _simpler_value(value, attribute.default) if value != attribute.default else ():
            yield msgspec.structs.replace(step, **{attribute.name: simple})


def _simpler_value(value: Any, default: Any) -> Iterator[Any]:
    """The default, then values between the value and the default; of a list, or of lanes of steps, shorter ones."""
    if default is not msgspec.NODEFAULT and value != default:
        yield default
    base = default if isinstance(default, int) else 0
    if isinstance(value, int) and not isinstance(value, bool) and value != base:
        halfway, nearer = base + (value - base) // 2, value + (1 if value < base else -1)
        yield from (between for between in dict.fromkeys((halfway, nearer)) if between not in (value, default))
    elif isinstance(value, tuple):
        for index, part in enumerate(value):
            yield value[:index] + value[index + 1 :]
            smaller = _simpler_step(part) if isinstance(part, msgspec.Struct) else _simpler_value(part, part)
            yield from ((*value[:index], simple, *value[index + 1 :]) for simple in smaller)
