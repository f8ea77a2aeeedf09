"""Cuts the power at every effect of every operation, starts the subject normally, and judges it by the `examination`.
Some of the disks that a cut may leave hold all unsynced changes, as after the death of the process alone.

An operation runs once, and the exploration records the disk and the answers so far at every effect. At each of these
moments it cuts the power, and starts the owner from every disk that the cut may leave (`disk.PowerCut`), within the
budget. Then:

- acknowledged commits exist, unchanged; rejected ones do not;
- a commit without an answer exists completely or not at all. The outcome of its attempt says whether it exists, and
does not change after a resend or a second power cut;
- no `<v>.json` is torn or belongs to another version; the log has no gap, and the table accepts commits.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from conformance.simulation.disk import PowerCut, Tree, identity
from conformance.simulation.examination import Examination, Flaw, FoundError, Violation
from conformance.simulation.explore import Progress, no_progress
from conformance.simulation.host import Host
from conformance.simulation.operations import Cut, Operation, answers_hash, in_words, recorded, recovery

MOST_SYNCS: Final = 8
"""About the number of syncs in the start of a process and its first request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerViolation(Violation):
    """A violation after one power cut."""

    lost: tuple[str, ...] = ()
    """What the power cut lost. With any one of these restored, the violation would disappear."""


@dataclass(slots=True)
class Result:
    """The result of the exploration of one operation."""

    scope: str
    effects: int = 0
    cuts: int = 0
    exhausted: int = 0
    """The number of cuts whose possible disks were all checked."""
    recoveries: int = 0
    """The number of recoveries that were interrupted at each of their effects."""
    states: int = 0
    """The number of distinct disks after a cut."""
    starts: int = 0
    """The number of ordinary starts on these disks: one for each different sequence of answers before."""
    judged: int = 0
    """The number of different states of the subject after its start. Each state was examined once."""
    violations: list[PowerViolation] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits the number of faults that are tried."""

    states: int
    """The greatest number of disks for each cut."""
    deaths: bool = False
    """Whether the process also dies at every effect without a power cut, and restarts, and the power is cut at every
    effect of that recovery."""
    lost_answers: bool = False
    """Whether each effect on the disk happens, in a run of its own, but its process gets an I/O error. The failed
    request is sent once more, and then the process dies."""
    states_in_recovery: int = 1
    failing_syncs: bool = False
    """Whether each sync of the script fails, in a run of its own, and in another one in which another process gets the
    failed request again. For every cut after that, `states_in_recovery` disks are tried."""
    deaths_after_failing: int = 0
    """The number of moments after each failed sync at which the process dies (the seed chooses them, if there are
    more). Then another process starts, and the power is cut at every effect of its recovery. In every second recovery a
    sync fails too."""


def explore(host: Host, operation: Operation, budget: Budget, *, seed: int, progress: Progress = no_progress) -> Result:
    """Cut the power at every recorded moment of an operation. Ends with the first violation."""
    run = recorded(host, operation)
    exploration = _Exploration(host, operation, Examination(host, operation, run), budget, seed, progress)
    exploration.result.effects = run.effects
    try:
        for cut in run.cuts:
            exploration.cut(cut, budget.states)
            exploration.death(cut, f"the process died {cut}")
        for cut in run.cuts if budget.deaths else ():
            exploration.interrupted(cut, f"the process died {cut}")
        losses = run.losses if budget.lost_answers and operation.setup is not None else {}
        for number, what in losses.items():
            lost = recorded(host, operation, lost_answer=number)
            for cut in lost.cuts:
                if cut.exchanges[-1].answer is not None:
                    exploration.death(cut, f"the answer of effect {number}, {what}, was lost, and the process died")
        if budget.failing_syncs and operation.setup is not None:
            for sync in range(1, run.syncs + 1):
                cuts = recorded(host, operation, failing_sync=sync).cuts
                for cut in cuts:
                    exploration.cut(cut, budget.states_in_recovery, f"sync {sync} failed")
                *_, last = recorded(host, operation, failing_sync=sync, elsewhere=True).cuts
                after = f"sync {sync} failed, and another process got the request again"
                exploration.cut(last, budget.states_in_recovery, after)
                exploration.die_after(cuts, f"sync {sync} failed, and the process died")
    except FoundError as error:
        exploration.result.violations.append(error.violation)
    return exploration.finished()


class _Exploration:
    def __init__(
        self, host: Host, operation: Operation, examine: Examination, budget: Budget, seed: int, progress: Progress
    ) -> None:
        self._host = host
        self._operation = operation
        self._examine = examine
        self._budget = budget
        self._seed = seed
        self._progress = progress
        self._seen: set[tuple[int, int]] = set()
        self.result = Result(scope=operation.name)

    def finished(self) -> Result:
        self.result.states = len({disk for disk, _ in self._seen})
        self.result.starts = len(self._seen)
        self.result.judged = self._examine.judged
        return self.result

    def _random(self, cut: Cut, after: str = "") -> Random:
        return Random(f"{self._seed}/{self._operation.name}/{after}/{cut.at}/{cut.effect.moment}")

    def cut(self, cut: Cut, states: int, after: str = "") -> None:
        """Cut the power. `after`: the faults before the cut."""
        answers = answers_hash(cut.exchanges)
        self._progress(lambda: f"{self.result.cuts:,} cuts, {len(self._seen):,} starts")
        power = PowerCut(cut.disk.snapshot())
        self.result.cuts += 1
        self.result.exhausted += power.choices <= states
        for tree in power.disks(self._random(cut, after), limit=states):
            state = identity(tree), answers
            if state in self._seen:
                continue
            self._seen.add(state)
            flaw = self._examine(tree, cut.exchanges, answers)
            if flaw is not None:

                def shows(smaller: Tree, wanted: str = flaw.requirement) -> bool:
                    smaller_flaw = self._examine(smaller, cut.exchanges, answers)
                    return smaller_flaw is not None and smaller_flaw.requirement == wanted

                _, lost = power.least_lost(tree, shows)
                raise FoundError(replace(self._violation(flaw, cut, after), lost=lost))

    def death(self, cut: Cut, after: str) -> None:
        """Let the process die, and start the subject on the disk as it is."""
        answers = answers_hash(cut.exchanges)
        state = cut.disk.fingerprint(), answers
        if state not in self._seen:
            self._seen.add(state)
            if flaw := self._examine(cut.disk, cut.exchanges, answers):
                raise FoundError(self._violation(flaw, cut, after))

    def die_after(self, cuts: Sequence[Cut], after: str) -> None:
        """Let the process die at some of these moments. In every second recovery a sync fails too."""
        random = self._random(cuts[0], after)
        for number, cut in enumerate(random.sample(cuts, min(self._budget.deaths_after_failing, len(cuts)))):
            sync = random.randint(1, MOST_SYNCS) if number % 2 else None
            too = "" if sync is None else f", and sync {sync} of the next one failed"
            self.interrupted(cut, f"{after} {cut}{too}", sync)

    def interrupted(self, cut: Cut, after: str, failing_sync: int | None = None) -> None:
        """Let the process die, and cut the power at every effect of its recovery."""
        self.result.recoveries += 1
        run = recovery(self._host, cut.disk.copy(), cut.exchanges, self._examine.next_start, failing_sync)
        for second in run.cuts:
            self.cut(second, self._budget.states_in_recovery, after)

    def _violation(self, flaw: Flaw, cut: Cut, after: str) -> PowerViolation:
        return PowerViolation(
            scope=self._operation.name,
            requirement=flaw.requirement,
            problem=flaw.problem,
            at=cut.at,
            effect=f"{after}; then {cut}" if after else str(cut),
            exchanges=in_words(cut.exchanges),
        )
