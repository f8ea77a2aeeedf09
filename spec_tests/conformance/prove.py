"""Do the checkers and the brute-force linearizer agree? On as many small histories as you have time for.

    python -m spec_tests.conformance.prove --histories 200000 --seed 1

And without the final log, which could not be read: does the checker report only what is wrong with it too?

Each history is a simulation of a correct owner, perturbed or not; number i of a seed is always the same one. Prints
progress to the standard error and figures as JSON; exit code 1 if there was any disagreement, each of which is
named so that `--only N` shows it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from conformance.checkers.check import explain, judge
from conformance.checkers.columns import HistoryColumns
from conformance.history import events
from conformance.history.events import Event
from conformance.history.operations import Operation, operations
from spec_tests.conformance.brute_force import is_linearizable
from spec_tests.conformance.drafts import TABLE
from spec_tests.conformance.perturbation import perturb
from spec_tests.conformance.simulated_histories import simulate

BATCH = 1000


@dataclass(slots=True)
class Figures:
    """What was compared, and what it held."""

    histories: int = 0
    operations: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    untouched: int = 0
    """Histories of a correct owner that nobody perturbed: all of them must be conformant."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """Histories that hold an answer of this kind."""
    traits: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    """Histories in which this rule is violated."""
    disagreements: list[int] = field(default_factory=list)

    def add(self, other: Figures) -> None:
        self.histories += other.histories
        self.operations += other.operations
        self.untouched += other.untouched
        self.verdicts += other.verdicts
        self.outcomes += other.outcomes
        self.traits += other.traits
        self.rules += other.rules
        self.disagreements += other.disagreements


def history(seed: int, number: int) -> tuple[list[Event], bool]:
    """History `number` of a seed, and whether it was perturbed."""
    random = Random(f"{seed}/{number}")
    draft = simulate(random, random.randint(3, 12))
    changes = random.choice((0, 1, 1, 2, 2, 3, 4))
    perturb(draft, random, changes)
    return draft.events(), changes > 0


def compare(seed: int, numbers: range) -> Figures:
    """Judge some histories both ways."""
    figures = Figures()
    for number in numbers:
        found, perturbed = history(seed, number)
        items = list(operations(found))
        findings, _ = judge(HistoryColumns(items))
        explain(findings, items)
        expected = is_linearizable(items)
        figures.histories += 1
        figures.untouched += not perturbed
        figures.verdicts["conformant" if expected else "violation"] += 1
        figures.rules.update({finding.rule.value for finding in findings})
        seen = [item for item in items if isinstance(item, Operation)]
        figures.operations += len(seen)
        figures.outcomes.update({_tag(operation) for operation in seen})
        figures.traits.update(traits(seen, found))
        on_record = violated_without_final_log(found)
        figures.traits["a violation without the final log"] += on_record
        if expected == bool(findings) or (not perturbed and not expected) or (on_record and expected):
            figures.disagreements.append(number)
    return figures


def violated_without_final_log(found: list[Event]) -> bool:
    """What the checker says if the final log could not be read."""
    log = [event for event in found if isinstance(event, events.Witness)]
    direct = any(event.commit_mode == "direct" for event in log)
    before = [event.version + 1 for event in log if event.before]
    unseen = events.Unseen(table=TABLE, before=max(before, default=0), commit_mode=None if direct else "staged")
    *rest, footer = [event for event in found if not isinstance(event, events.Witness)]
    assert isinstance(footer, events.Footer)
    counts = msgspec.structs.replace(footer.counts, witness=0, unseen=1)
    ended = msgspec.structs.replace(footer, counts=counts, tables={TABLE: 0})
    items = list(operations([*rest, unseen, ended]))
    findings, _ = judge(HistoryColumns(items))
    explain(findings, items)
    return bool(findings)


def _tag(operation: Operation) -> str:
    return "no answer" if operation.answer is None else str(type(operation.answer).__struct_config__.tag)


def traits(seen: list[Operation], found: list[Event]) -> Iterator[str]:
    """What makes a history worth having."""
    sends = Counter(o.request.attempt for o in seen if isinstance(o.request, (events.Commit, events.CreateTable)))
    if any(count > 1 for count in sends.values()):
        yield "an attempt sent again"
    resolved = {o.request.attempt for o in seen if isinstance(o.answer, events.NotLanded)}  # type: ignore[union-attr]
    if resolved:
        yield "a tombstone"
    if any(getattr(o.request, "attempt", None) in resolved and isinstance(o.request, events.Commit) for o in seen):
        yield "a request of an attempt with a tombstone"
    if any(o.answer is None or isinstance(o.answer, events.Unknown) for o in seen):
        yield "an unknown outcome"
    if any(getattr(o.answer, "stale", False) for o in seen):
        yield "a stale read"
    if any(isinstance(o.answer, events.Conflict) and o.answer.latest is not None for o in seen):
        yield "a conflict that tells latest"
    if any(isinstance(o.answer, events.Gap) and o.answer.latest is not None for o in seen):
        yield "a gap that tells latest"
    kinds = {str(type(event).__struct_config__.tag) for event in found}
    if "fs" in kinds:
        yield "a look at files"
    header = found[0]
    assert isinstance(header, events.Header)
    yield from header.profiles
    yield from (promise.value for promise in header.promises)
    yield header.feature
    if header.clock.skew:
        yield "several clocks"
    if any(isinstance(event, events.Witness) and event.before for event in found):
        yield "versions from before"
    if any(isinstance(event, events.Witness) and event.commit_mode == "direct" for event in found):
        yield "direct commits"


def _work(task: tuple[int, int, int]) -> Figures:
    seed, start, end = task
    return compare(seed, range(start, end))


def prove(seed: int, histories: int, processes: int) -> Figures:
    """Compare histories 0..histories-1 of a seed."""
    figures = Figures()
    tasks = [(seed, start, min(start + BATCH, histories)) for start in range(0, histories, BATCH)]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for part in pool.imap_unordered(_work, tasks):
            figures.add(part)
            verdicts = ", ".join(f"{name} {count}" for name, count in sorted(figures.verdicts.items()))
            print(
                f"{figures.histories} of {histories} histories: {verdicts}; {len(figures.disagreements)} disagreements",
                file=sys.stderr,
                flush=True,
            )
    figures.disagreements.sort()
    return figures


def as_json(figures: Figures, seconds: float, seed: int) -> dict[str, Any]:
    return {
        "seed": seed,
        "histories": figures.histories,
        "operations": figures.operations,
        "agreement": 1 - len(figures.disagreements) / figures.histories,
        "disagreements": figures.disagreements[:20],
        "verdicts": dict(sorted(figures.verdicts.items())),
        "of_a_correct_owner_untouched": figures.untouched,
        "histories_with_an_answer": dict(sorted(figures.outcomes.items())),
        "histories_with": dict(sorted(figures.traits.items())),
        "histories_that_violate": dict(sorted(figures.rules.items())),
        "seconds": round(seconds, 1),
    }


def show(seed: int, number: int) -> None:
    """One history, and what both say of it."""
    found, perturbed = history(seed, number)
    for event in found:
        print(msgspec.json.encode(event).decode())
    items = list(operations(found))
    findings, _ = judge(HistoryColumns(items))
    print(f"perturbed: {perturbed}; brute force: {'conformant' if is_linearizable(items) else 'violation'}")
    for violation in explain(findings, items):
        print(f"checker: {violation.rule.value}: {violation.message}")


def main() -> int:
    parser = argparse.ArgumentParser(description="compare the checkers with brute force")
    parser.add_argument("--histories", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", type=int, help="show this history instead")
    options = parser.parse_args()
    if options.only is not None:
        show(options.seed, options.only)
        return 0
    start = time.perf_counter()
    figures = prove(options.seed, options.histories, options.processes)
    print(json.dumps(as_json(figures, time.perf_counter() - start, options.seed), indent=2))
    return 1 if figures.disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
