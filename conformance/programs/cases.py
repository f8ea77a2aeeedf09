"""Runs one case of any layer: an example, rounds of concurrent clients, or many generated programs. The result of many
programs is `passed`, or the smallest failing program with its history."""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

import msgspec

from conformance.interface.subject import AdapterError, Subject
from conformance.programs import steps
from conformance.programs.driving import Drive
from conformance.programs.rounds import REPEATS, Reproduction, Rounds
from conformance.programs.steps import Program, Step
from conformance.results import CaseResult, Layer, Verdict
from conformance.scenario.adversary import ClientHost
from conformance.scenario.check import Check, Variant
from conformance.scenario.running import BrokenInCaseError, finish
from conformance.scenario.running import run_case as run_example
from conformance.scenario.scenario import Scenario, Stopped

TRIALS: Final = 400
"""The maximum number of runs in the search for the smallest program."""


class FoundError(Exception):
    """A program failed, so the generation stops."""


@dataclass
class Generation:
    """Runs generated programs on a subject. A check's function is given one, and calls `run`."""

    check: Check
    variant: Variant
    subject: Subject
    _: KW_ONLY
    seed: int
    count: int
    salt: str = ""
    shrink: bool = True
    executions: int = 0
    operations: int = 0
    ratified: int = 0
    inconclusive: list[str] = field(default_factory=list)
    failure: tuple[Program, CaseResult] | None = None
    broken: AdapterError | None = None
    _program: list[Step] = field(default_factory=list)
    _drive: Drive | None = None
    _watched: bool = False
    _seed: int = 0

    def run(self, *kinds: type[Step]) -> None:
        """Run programs of these kinds of steps, without restarts if the subject does not promise durability."""
        from hypothesis.errors import HypothesisException  # imports Hypothesis only where it is used

        from conformance.programs import machine

        try:
            machine.generate(self, kinds, seed=self.seed, count=self.count)
        except (FoundError, HypothesisException, ExceptionGroup):
            if self.failure is None and self.broken is None:
                raise

    # What Hypothesis drives

    def begin(self, *, watched: bool) -> None:
        self._start(self.seed + self.executions, watched=watched)

    def do(self, step: Step) -> None:
        self._program.append(step)
        result = self._step(step)
        if result is not None and self._is_it(result):
            raise FoundError

    def end(self) -> None:
        result = self._finish()
        if result is not None and self._is_it(result):
            raise FoundError

    # One program

    def execute(self, program: Program) -> CaseResult | None:
        """Run a program. Returns None if the subject sent an invalid message."""
        self._start(program.seed, watched=program.watched)
        for step in program.steps:
            self._program.append(step)
            result = self._step(step)
            if result is not None:
                return result
        return self._finish()

    def _start(self, seed: int, *, watched: bool) -> None:
        self.executions += 1
        scenario = Scenario(
            self.subject, self.variant, name=self.check.case(self.variant), seed=seed,
            salt=f"{self.salt}_{self.executions}",
        )  # fmt: skip
        self._drive = Drive(scenario, watched=watched)
        self._program, self._watched, self._seed = [], watched, seed

    def _step(self, step: Step) -> CaseResult | None:
        """The result, if the step ended the scenario."""
        if self._drive is None or self.broken is not None:
            return None
        try:
            self._drive.do(step)
        except Stopped as stopped:
            return self._finish(stopped)
        except AdapterError as error:
            return self._finish(error)
        return None

    def _finish(self, ended: Stopped | AdapterError | None = None) -> CaseResult | None:
        drive, self._drive = self._drive, None
        if drive is None or self.broken is not None:
            return None
        try:
            if ended is None:
                try:
                    drive.end()
                except (Stopped, AdapterError) as stopped:
                    ended = stopped
            result = finish(self.check, self.variant, self.subject, drive.s, ended)
        except AdapterError as error:
            self.broken = error
            return None
        # The checkers see the whole history, so their findings are closer to the fault than the first failed step.
        ordered = sorted(result.violations, key=lambda violation: violation.rule is None)
        result = msgspec.structs.replace(result, violations=tuple(ordered))
        self.operations += result.operations
        self.ratified += drive.ratified
        if result.verdict is Verdict.INCONCLUSIVE:
            self.inconclusive.append(result.reason)
        return result

    def _is_it(self, result: CaseResult) -> bool:
        """Whether this is the failure to shrink: the first one, or one of the same requirement."""
        if result.verdict is not Verdict.FAILED:
            return False
        if self.failure is not None and named(self.failure[1]) != named(result):
            return False
        program = Program(seed=self._seed, steps=tuple(self._program), watched=self._watched)
        self.failure = (program, result)
        return True

    # The result

    def result(self) -> CaseResult:
        """Raises `AdapterError`, with the violation that was found before, if there is one."""
        if self.failure is not None:
            failed = self._failed(*self.failure)
            if self.broken is not None:
                raise BrokenInCaseError(self.broken, failed)
            return failed
        if self.broken is not None:
            raise self.broken
        verdict, reason = Verdict.PASSED, ""
        if self.inconclusive:
            verdict, reason = Verdict.INCONCLUSIVE, self.inconclusive[0]
        elif not self.ratified:
            verdict, reason = Verdict.INCONCLUSIVE, f"nothing was ratified in {self.executions} generated scenarios"
        held = self.check.held(self.subject.identity, self.variant)
        return self.check.result(self.variant, held, verdict, reason, operations=self.operations)

    def replayed(self, program: Program) -> CaseResult:
        """The result of that program alone. Raises `AdapterError`."""
        result = self.execute(program)
        if result is None:
            assert self.broken is not None
            raise self.broken
        failed = result.verdict is Verdict.FAILED
        return msgspec.structs.replace(result, reproduction=steps.encode(program) if failed else None)

    def _failed(self, program: Program, result: CaseResult) -> CaseResult:
        """The result with the smallest program that fails in the same way, and its history."""
        reason = ""
        if self.shrink:
            again = self.execute(program)
            if again is None or again.verdict is not Verdict.FAILED or named(again) != named(result):
                reason = "the history shows it; a repetition of the same steps did not"
            else:
                program, result = self._smallest(program, again)
        return msgspec.structs.replace(result, reproduction=steps.encode(program), reason=reason)

    def _smallest(self, program: Program, result: CaseResult) -> tuple[Program, CaseResult]:
        """The smallest failing program: no step can be removed or simplified, as far as `TRIALS` runs show."""
        trials = 0
        candidates = simpler(program)
        while trials < TRIALS and self.broken is None:
            candidate = next(candidates, None)
            if candidate is None:
                break
            trials += 1
            smaller = self.execute(candidate)
            if smaller is not None and smaller.verdict is Verdict.FAILED and named(smaller) == named(result):
                program, result = candidate, smaller
                candidates = simpler(program)
        return program, result


def named(result: CaseResult) -> str:
    """The first requirement of a failure."""
    return result.violations[0].requirements[0]


def simpler(program: Program) -> Iterator[Program]:
    """Programs with one simplification each, the largest first."""
    replace = msgspec.structs.replace
    length = len(program.steps)
    for size in (8, 4, 2, 1):
        for start in range(length - size, -1, -size) if length >= size else ():
            yield replace(program, steps=program.steps[:start] + program.steps[start + size :])
    if program.watched:
        yield replace(program, watched=False)
    for name in ("table", "client"):
        plain = tuple(replace(step, **{name: 0}) if hasattr(step, name) else step for step in program.steps)
        if plain != program.steps:
            yield replace(program, steps=plain)
    for index, step in enumerate(program.steps):
        for attribute in msgspec.structs.fields(step):
            if getattr(step, attribute.name) != attribute.default:
                changed = replace(step, **{attribute.name: attribute.default})
                yield replace(program, steps=(*program.steps[:index], changed, *program.steps[index + 1 :]))


def run_case(
    check: Check,
    variant: Variant,
    subject: Subject,
    *,
    seed: int = 0,
    count: int = 1,
    salt: str = "",
    reproduction: str | None = None,
    host: ClientHost | None = None,
    shrink: bool = True,
) -> CaseResult:
    """Run a check: an example once, a generated layer `count` times, or exactly the `reproduction` of an earlier
    result. Raises only `AdapterError`, if the subject does not implement the interface."""
    if check.layer is Layer.PROCESSES:
        if reproduction is not None:  # rounds are not deterministic, so a replay runs several of them
            seed, count = msgspec.json.decode(reproduction, type=Reproduction).seed, REPEATS
        rounds = Rounds(check, variant, subject, seed=seed, count=count, salt=salt, shrink=shrink)
        check.function(rounds)
        return rounds.result()
    if check.layer is not Layer.MODEL:
        return run_example(check, variant, subject, seed=seed, salt=salt, host=host)
    generation = Generation(check, variant, subject, seed=seed, count=count, salt=salt, shrink=shrink)
    if reproduction is not None:
        return generation.replayed(steps.decode(reproduction))
    check.function(generation)
    return generation.result()
