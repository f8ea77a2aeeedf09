"""Which mutants one layer of the kit finds alone, and what it takes: generated programs, examples, or processes.

Each mutant gets a process and a budget of its own, so that one that hangs costs its own budget only. A third of the
mutants is held out: `--holdout` alone runs them, when alphabet and rules are built, and not before.
"""

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from statistics import median
from typing import Any, Final
from zlib import crc32

from conformance.interface.results import CaseResult, Layer
from conformance.interface.subject import AdapterError
from conformance.mutants import Mutant, all_mutants
from conformance.programs import pinned
from conformance.programs.program import HEAVY_EVERY
from conformance.programs.running import Generation
from spec_tests.conformance import kills

LAYERS: Final = {
    "programs": Layer.MODEL, "pinned": Layer.MODEL, "examples": Layer.EXAMPLE, "processes": Layer.PROCESSES,
}  # fmt: skip
GRACE: Final = 120
"""Seconds of wall-clock time for a process to start, to make a program smaller, and to end."""
LOAD: Final = 20
"""How much longer than its CPU time a search may take: the machine is busy, or the mutant waits."""


class Seen(StrEnum):
    """What a layer says about a mutant."""

    FOUND = "found"
    """Accused of what it does wrong."""
    ACCUSED = "reported for another requirement"
    NOTHING = "nothing seen"
    ENDED = "no verdict"
    """It hung, or could not be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One mutant, and one layer."""

    mutant: str
    side: str
    layer: str
    seen: Seen
    requirements: tuple[str, ...] = ()
    """Those of the violation."""
    case: str = ""
    programs: int = 0
    """The number of programs that ran until then, or of cases of another layer."""
    steps: int = 0
    """Of the smallest program."""
    operations: int = 0
    """Of its history, the closing steps included."""
    seconds: float = 0
    """Until the violation, without the search for the smallest program."""
    note: str = ""

    def __str__(self) -> str:
        size = f"{self.programs:6} programs {self.steps:3} steps {self.operations:4} operations {self.seconds:6.1f} s"
        return (
            f"{self.seen:26}{self.side:7}{self.mutant:52}{size}  {' '.join(self.requirements[:3])}  {self.note[:200]}"
        )


def is_held_out(identifier: str) -> bool:
    return crc32(identifier.encode()) % 3 == 0


def chosen(
    pattern: str = "*", *, side: str | None = None, holdout: bool = False, sample: int | None = None, seed: int = 0
) -> list[Mutant]:
    """The mutants to run, in an order that depends on the seed if they are a sample."""
    mutants = [
        mutant
        for mutant in all_mutants().values()
        if mutant.violates
        and fnmatchcase(mutant.id, pattern)
        and side in (None, mutant.side)
        and is_held_out(mutant.id) is holdout
    ]
    return mutants if sample is None else random.Random(seed).sample(mutants, min(sample, len(mutants)))


# One mutant, in this process


def search(mutant: Mutant, layer: str, *, seconds: float, seed: int) -> Row:
    """Run cases of the layer until one accuses the mutant of what it does wrong, or until the budget ends: seconds of
    CPU time, so that a busy machine does not change the score."""
    began, used, programs, other = time.monotonic(), time.process_time(), 0, None
    row: dict[str, Any] = {"mutant": mutant.id, "side": mutant.side, "layer": layer}
    try:
        for case, count, number in _planned(mutant, layer, seed):
            spent = time.process_time() - used + (time.monotonic() - began) / LOAD
            if spent > seconds:
                break
            result, ran = _run(mutant, case, count=count, seed=number)
            programs += ran
            if not result.violations:
                continue
            accused = result.violations[0]
            found = fits(result, mutant)
            sighting = Row(
                seen=Seen.FOUND if found else Seen.ACCUSED, requirements=accused.requirements, case=str(case),
                programs=programs, operations=result.operations, steps=_steps(result), note=accused.message,
                seconds=time.monotonic() - began, **row,
            )  # fmt: skip
            if found:
                return sighting
            other = other or sighting
    except AdapterError as error:
        other = other or Row(seen=Seen.ENDED, programs=programs, note=error.problem, **row)
    return other or Row(seen=Seen.NOTHING, programs=programs, seconds=time.monotonic() - began, **row)


def _planned(mutant: Mutant, layer: str, seed: int) -> Iterator[tuple[kills.Case, int, int]]:
    """Cases, numbers of programs, and seeds. Programs of every family in turn, each time on another variant, and twice
    as many as the draws need for a heavy one: its seed decides which."""
    identity = kills.identity_of(mutant)
    mine = [
        case
        for case in kills.every_case(identity)
        if case.check.layer is LAYERS[layer] and (layer == "pinned") is pinned.is_of_pinned(case.check.name)
    ]
    if layer != "programs":
        yield from ((case, 1, seed) for case in mine)
        return
    families: dict[str, list[kills.Case]] = {}
    for case in mine:
        families.setdefault(case.check.name, []).append(case)
    for turn in range(1_000):
        for number, cases in enumerate(families.values()):
            yield cases[(turn + number) % len(cases)], 2 * HEAVY_EVERY, seed + turn * len(families) + number


def _run(mutant: Mutant, case: kills.Case, *, count: int, seed: int) -> tuple[CaseResult, int]:
    """The result, and the number of programs until the violation."""
    name = kills.name_of(mutant)
    if case.check.layer is not Layer.MODEL:
        return kills.run(case, name, count=count), 1
    result, drawn = generated(name, case, count=count, seed=seed, shrink=False)
    if result.violations and fits(result, mutant):
        return generated(name, case, count=drawn, seed=seed, shrink=True)
    return result, drawn


def generated(name: str, case: kills.Case, *, count: int, seed: int, shrink: bool) -> tuple[CaseResult, int]:
    """The result of so many programs, and the number of those that ran. Raises `AdapterError`."""
    subject, host = kills.opened(name)
    with subject:
        generation = Generation(
            case.check, case.variant, subject, seed=seed, count=count, host=host, shrink=shrink, most=1
        )
        case.check.function(generation)
        return generation.result(), generation.drawn


def fits(result: CaseResult, mutant: Mutant) -> bool:
    """Whether the first violation names a requirement that the mutant violates."""
    return bool(set(result.violations[0].requirements) & set(mutant.violates))


def _steps(result: CaseResult) -> int:
    return 0 if result.reproduction is None else len(json.loads(result.reproduction)["steps"])


# Many mutants, each in a process


def rows(mutants: Iterable[Mutant], layer: str, *, seconds: float, seed: int, workers: int) -> Iterator[Row]:
    """One row for each mutant, in their order."""
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(lambda mutant: apart(mutant, layer, seconds, seed), mutants)


def apart(mutant: Mutant, layer: str, seconds: float, seed: int) -> Row:
    command = [sys.executable, "-m", __name__, mutant.id, layer, str(seconds), str(seed)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds * LOAD + GRACE, check=True
        )  # fmt: skip
    except subprocess.SubprocessError as error:
        note = f"{error} {getattr(error, 'stderr', '')}"
        return Row(mutant=mutant.id, side=mutant.side, layer=layer, seen=Seen.ENDED, note=note)
    read = json.loads(done.stdout.splitlines()[-1])
    return Row(**{**read, "seen": Seen(read["seen"]), "requirements": tuple(read["requirements"])})


def totals(known: Sequence[Row]) -> Iterator[str]:
    """A line for each layer and side, with the medians of what was found."""
    for layer, side in sorted({(row.layer, row.side) for row in known}):
        of = [row for row in known if (row.layer, row.side) == (layer, side)]
        found = [row for row in of if row.seen is Seen.FOUND]
        seen = ", ".join(f"{number} {kind}" for kind in Seen if (number := sum(row.seen is kind for row in of)))
        medians = (median(getattr(row, name) for row in found) for name in ("programs", "steps", "operations"))
        words = "programs {:g}, steps {:g}, operations {:g}".format(*medians) if found else "nothing found"
        yield f"{layer}, {side}s: {seen} of {len(of)}; medians of those found: {words}"


if __name__ == "__main__":
    identifier, layer, seconds, seed = sys.argv[1:]
    print(json.dumps(asdict(search(all_mutants()[identifier], layer, seconds=float(seconds), seed=int(seed)))))
