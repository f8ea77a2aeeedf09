"""One mutation run over some files: what each check comes by, which checks meet which mutant, and what became of it."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

import msgspec

from spec_tests.mutation import checking, comparisons, effects, operators, overlay
from spec_tests.mutation.checking import Check, Collected, Ended, Job
from spec_tests.mutation.explained import Key
from spec_tests.mutation.operators import Mutant


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """Files whose mutants are made, and the tests that may kill them. Both are patterns."""

    targets: tuple[str, ...]
    killers: tuple[str, ...]


_OWNER_TARGETS: Final = (
    "refimpl/log_store.py",
    "refimpl/files.py",
    "refimpl/environment.py",
    "refimpl/host_queue.py",
    "refimpl/client/log_segment.py",
    "refimpl/owner/[!e]*.py",
)
"""Not `owner/explain.py`, which decides nothing and writes nothing: it tells people what is stored."""
_OWNER_KILLERS: Final = (
    "spec_tests/owner/test_*.py",
    "spec_tests/foundation/test_log_store*.py",
    "spec_tests/foundation/test_files.py",
    "spec_tests/foundation/test_host_lock.py",
    "spec_tests/foundation/test_host_queue.py",
    "spec_tests/client/test_log_segment*.py",
    "spec_tests/server/test_commits.py",
    "spec_tests/server/test_creation.py",
    "spec_tests/server/test_metadata.py",
    "spec_tests/mutation/simulated.py",
)
PACKAGES: Final = {
    "owner": Package(targets=_OWNER_TARGETS, killers=_OWNER_KILLERS),
    "client": Package(targets=("refimpl/client/*.py",), killers=("spec_tests/client/test_*.py",)),
    "server": Package(
        targets=("refimpl/server/*.py",),
        killers=("spec_tests/server/test_[!o]*.py", "spec_tests/foundation/test_errors.py"),
    ),
    "spark": Package(
        targets=("refimpl/spark/commit_protocol.py", "refimpl/spark/coordinator.py"),
        killers=("spec_tests/spark/test_tasks.py", "spec_tests/spark/test_coordinator*.py"),
    ),
    "files": Package(
        targets=("refimpl/*.py",),
        killers=("spec_tests/foundation/test_*.py", "spec_tests/client/test_commit_storage.py", *_OWNER_KILLERS[:1]),
    ),
}
"""Without the tests that need a Java virtual machine or start servers of their own (`test_operation`). What else there
is of `refimpl/spark` runs in such a machine only: the slow entries of `sabotages.toml` are about that."""
SIMULATED: Final = "spec_tests/mutation/simulated.py"
FIRST: Final = tuple(
    f"spec_tests/owner/test_{name}.py" for name in ("lock", "lock_in_trouble", "read_state", "recovery")
)
"""Few checks that notice much: they come before the others."""
PATIENCE: Final = 90.0
"""Seconds of the processor: what the checks take that a mutant meets. After them it counts as a survivor."""
EXPLAINED: Final = 10.0
"""The same for a mutant that is explained as one that nothing can notice: enough to hear if something does."""
_POINTS_OF_A_FILE: Final = 10_000
_CHECKS_AT_ONCE: Final = 40
"""So many of a file are measured in one process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of a mutant."""

    mutant: Mutant
    killer: str | None
    """None: it survived."""
    detail: str
    checks: int
    """So many had passed before."""
    seconds: float
    reason: str | None = None
    """Why it may survive."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict of an earlier run. It holds as long as nothing changed in the mutant's file, nor in the killer's; that
    of a survivor, as long as nothing changed at all, its patience included."""

    key: Key
    of: str
    against: str
    killer: str | None
    detail: str
    checks: int
    seconds: float


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the checks in one file, as long as neither it nor a file with mutants changes."""

    of: str
    checks: list[Check]


class Result(msgspec.Struct, kw_only=True):
    """What a run tells. `broken`: checks that fail on the unchanged source, and mutants that could not be judged."""

    verdicts: list[Verdict]
    broken: list[str]
    checks: int


class Run:
    """One run over some files of a copy of the repository. `place`: where results are kept for the next one."""

    def __init__(
        self,
        copy: Path,
        patterns: Sequence[str],
        *,
        at_once: int,
        patience: float,
        place: Path,
        package: Package = PACKAGES["owner"],
    ) -> None:
        self._copy = copy
        self._at_once = at_once
        self._patience = patience
        texts = {name: (copy / name).read_text(encoding="utf-8") for name in _files(copy, package.targets)}
        self.texts = {name: text for name, text in texts.items() if operators.mutants(name, text)}
        self._tests = {name: (copy / name).read_text(encoding="utf-8") for name in _files(copy, package.killers)}
        wanted = [file for file in self.texts if any(fnmatch(file, f"*{pattern}*") for pattern in patterns)]
        self.mutants = [each for file in wanted for each in operators.mutants(file, self.texts[file])]
        self._first = {file: _POINTS_OF_A_FILE * at for at, file in enumerate(self.texts)}
        self._checks: list[Check] = []
        self._broken: list[str] = []
        self._measured_in, self._judged_in = place / "measured.json", place / "verdicts.jsonl"
        found = self._measured_in.read_bytes() if self._measured_in.exists() else b"{}"
        self._measured_before = msgspec.json.decode(found, type=dict[str, Measured])
        lines = self._judged_in.read_bytes().splitlines() if self._judged_in.exists() else []
        judged = [msgspec.json.decode(line, type=Kept) for line in lines]
        self._judged_before = {each.key: each for each in judged}
        self._killers: dict[tuple[str, str], list[str]] = {}
        self._verdicts: list[Verdict] = []
        self._whole = _digest(*self.texts.values(), *self._tests.values(), str(patience))

    def go(self, chosen: Sequence[Mutant], reasons: Mapping[Key, str]) -> Result:
        """Measure the checks, and let them find each of the mutants."""
        answer = checking.collect(
            self._copy, list(self._tests), list(self.texts), lambda held: self._told(held, chosen, reasons)
        )
        return msgspec.json.decode(answer, type=Result)

    def _told(self, held: Collected, chosen: Sequence[Mutant], reasons: Mapping[Key, str]) -> bytes:
        self._measure(held)
        if not self._broken:
            _say(f"{len(self._checks)} checks pass on the unchanged source; {len(chosen)} mutants")
            checking.run(self._jobs(chosen, reasons), held, self._copy.parent, at_once=self._at_once)
        result = Result(verdicts=self._verdicts, broken=self._broken, checks=len(self._checks))
        return msgspec.json.encode(result)

    def _measure(self, held: Collected) -> None:
        """Run every check on the unchanged source: it must pass, and tells how long it takes and where it comes by."""
        kept = self._measured_before
        trees = {
            file: operators.instrumented(self.texts[file], overlay.HIT, first) for file, first in self._first.items()
        }
        shapes = (operators, effects, comparisons)
        code = _digest(*self.texts.values(), *(inspect.getsource(module) for module in shapes))
        found = {file: Measured(of=_digest(code, text), checks=[]) for file, text in self._tests.items()}
        jobs = []
        for file, fresh in found.items():
            if file in kept and kept[file].of == fresh.of:
                found[file] = kept[file]
                continue
            ids = [check for check in held.items if check.partition("::")[0] == file]
            for at in range(0, len(ids), _CHECKS_AT_ONCE):

                def done(ended: Ended, fresh: Measured = fresh) -> None:
                    fresh.checks.extend(ended.passed)
                    if ended.broken is not None:
                        self._broken.append(ended.broken)
                    if ended.killer is not None:
                        self._broken.append(f"{ended.killer}: {ended.detail}")

                jobs.append(Job(modules=trees, checks=ids[at : at + _CHECKS_AT_ONCE], done=done, whole=True))
        checking.run(reversed(jobs), held, self._copy.parent, at_once=self._at_once)
        every = [check for each in found.values() for check in each.checks]
        self._checks = [check for check in every if check.id in held.items]  # some have a new name in every run
        if not self._broken:
            self._measured_in.write_bytes(msgspec.json.encode(found))

    def _jobs(self, chosen: Sequence[Mutant], reasons: Mapping[Key, str]) -> Iterator[Job]:
        kept = self._judged_before
        rest = []
        for mutant in chosen:
            known = kept.get(mutant.key)
            if known is not None and self._holds(known, mutant):
                ended = Ended(killer=known.killer, detail=known.detail, seconds=known.seconds)
                self._judged(mutant, ended, known.checks, reasons.get(mutant.key), len(chosen))
            else:
                rest.append(mutant)
        usual = {check.id: check.seconds for check in self._checks}
        for mutant in rest:
            patience = min(self._patience, EXPLAINED) if mutant.key in reasons else self._patience
            checks = self._checks_of(mutant, patience)

            def done(ended: Ended, mutant: Mutant = mutant) -> None:
                if ended.broken is not None:
                    self._broken.append(f"{mutant.file}:{mutant.line} cannot be judged: {ended.broken}")
                    return
                against = self._tests.get(_file_of(ended.killer)) if ended.killer else None
                fresh = Kept(
                    key=mutant.key,
                    of=_digest(self.texts[mutant.file]),
                    against=self._whole if against is None else _digest(against),
                    killer=ended.killer,
                    detail=ended.detail,
                    checks=len(ended.passed),
                    seconds=ended.seconds,
                )
                with self._judged_in.open("ab") as file:
                    file.write(msgspec.json.encode(fresh) + b"\n")
                self._judged(mutant, ended, len(ended.passed), reasons.get(mutant.key), len(chosen))

            if not checks:
                done(Ended(detail="no check comes this way"))
                continue
            tree = operators.mutated(self.texts[mutant.file], mutant.number)
            yield Job(modules={mutant.file: tree}, checks=checks, done=done, usual=usual)

    def _holds(self, known: Kept, mutant: Mutant) -> bool:
        if known.of != _digest(self.texts[mutant.file]):
            return False
        killers = self._tests.get(_file_of(known.killer)) if known.killer else None
        return known.against == (self._whole if killers is None else _digest(killers))

    def _checks_of(self, mutant: Mutant, patience: float) -> list[str]:
        """Those that come its way, as far as patience goes: what found another mutant of this function first, then
        the module's own tests, those that notice much, those that take the shortest, and the simulation at last."""
        before = {killer: at for at, killer in enumerate(dict.fromkeys(self._killers.get(_place(mutant), ())))}
        point = self._first[mutant.file] + mutant.point
        module = f"test_{Path(mutant.file).stem}"

        def rank(check: Check) -> tuple[object, ...]:
            file = _file_of(check.id)
            known = before.get(check.id, len(before))
            return known, file == SIMULATED, module not in file, file not in FIRST, check.seconds

        chosen, seconds = [], 0.0
        for check in sorted((each for each in self._checks if point in each.hits), key=rank):
            seconds += check.seconds
            if seconds > patience:
                break
            chosen.append(check.id)
        return chosen

    def _judged(self, mutant: Mutant, ended: Ended, checks: int, reason: str | None, of: int) -> None:
        if ended.killer is not None:
            self._killers.setdefault(_place(mutant), []).insert(0, ended.killer)
        self._verdicts.append(
            Verdict(
                mutant=mutant,
                killer=ended.killer,
                detail=ended.detail,
                checks=checks,
                seconds=round(ended.seconds, 1),
                reason=reason,
            )
        )
        fate = f"killed by {ended.killer} ({ended.detail})" if ended.killer else "survives"
        if not ended.killer and reason:
            fate = "survives, as explained"
        _say(
            f"{len(self._verdicts)}/{of} {mutant.file}:{mutant.line} {mutant.function}: {mutant.operator} "
            f"`{mutant.source}` {mutant.change}: {fate} [{checks} checks, {ended.seconds:.1f} s]"
        )


def _files(copy: Path, patterns: Sequence[str]) -> list[str]:
    return [str(path.relative_to(copy)) for pattern in patterns for path in sorted(copy.glob(pattern))]


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def _place(mutant: Mutant) -> tuple[str, str]:
    return mutant.file, mutant.function


def _file_of(check: str) -> str:
    return check.partition("::")[0]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
