"""One mutation run over some files: the points that each check reaches, the checks of each mutant, and the result.

`equivalent.toml` explains mutants that no check can kill, because no caller can distinguish them from the source. An
explanation is valid as long as its mutant exists and survives.
"""

import re
import sys
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

import msgspec

from spec_tests.mutation import checking, operators
from spec_tests.mutation.checking import HIT, Check, Collected, Ended, Job
from spec_tests.mutation.operators import Mutant

FILE: Final = Path(__file__).with_name("equivalent.toml")
Key = tuple[str, str, str, str, int]
"""The key of a mutant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """The files to mutate, and the tests that may kill the mutants. Both are patterns."""

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
"""Without `owner/explain.py`, which decides and writes nothing: it only shows stored facts."""
_OWNER_KILLERS: Final = (
    "spec_tests/owner/test_*.py",
    "spec_tests/foundation/test_log_store.py",
    "spec_tests/foundation/test_host_lock.py",
    "spec_tests/client/test_log_segment*.py",
    "spec_tests/server/test_commits.py",
    "spec_tests/server/test_creation.py",
    "spec_tests/server/test_faults.py",
    "spec_tests/server/test_metadata.py",
    "spec_tests/mutation/simulated.py",
)
PACKAGES: Final = {
    "owner": Package(targets=_OWNER_TARGETS, killers=_OWNER_KILLERS),
    "client": Package(
        targets=("refimpl/client/*.py",),
        killers=(
            "spec_tests/client/test_*.py",
            "spec_tests/conformance/reference/test_conformant.py",
            "spec_tests/cli/test_upkeep.py",
            "spec_tests/owner/test_verify_and_repair.py",
        ),
    ),
    "server": Package(
        targets=("refimpl/server/[!s]*.py", "refimpl/server/scheduling.py"),
        killers=("spec_tests/server/test_*.py", "spec_tests/foundation/test_errors.py"),
    ),
    "spark": Package(
        targets=("refimpl/spark/commit_protocol.py", "refimpl/spark/coordinator.py"),
        killers=("spec_tests/spark/test_tasks.py", "spec_tests/spark/test_coordinator*.py"),
    ),
    "files": Package(
        targets=("refimpl/*.py",),
        killers=(
            "spec_tests/foundation/test_[aefht]*.py",
            "spec_tests/foundation/test_log*.py",
            "spec_tests/client/test_commit_loop.py",
            "spec_tests/client/test_object_store.py",
            *_OWNER_KILLERS[:1],
        ),
    ),
}
"""The packages, without the tests that need a Java virtual machine. A mutant exists only in the process of the test, so
`server/serving.py`, which runs in other processes, is left out. The rest of `refimpl/spark` runs only with a Java
virtual machine: the slow entries of `sabotages.toml` cover it."""
SIMULATED: Final = "spec_tests/mutation/simulated.py"
FIRST: Final = tuple(f"spec_tests/owner/test_{name}.py" for name in ("lock", "get_commits", "recovery"))
"""A few checks that find most mutants. They run first."""
SECONDS: Final = 90.0
"""Processor time for the checks of one mutant. Afterwards, the mutant counts as a survivor."""
EXPLAINED: Final = 10.0
"""The same for an explained mutant: enough to find a check that kills it."""
_POINTS_OF_A_FILE: Final = 10_000
_CHECKS_AT_ONCE: Final = 40
"""The number of checks of a file that are measured in one process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result for one mutant."""

    mutant: Mutant
    killer: str | None
    """The check that failed; None: the mutant survived."""
    detail: str
    checks: int
    """The number of checks that passed before."""
    seconds: float
    reason: str | None = None
    """The reason why the mutant may survive."""


class Result(msgspec.Struct, kw_only=True):
    """The result of a run. `broken`: checks that fail on the unchanged source; then there are no verdicts. `unjudged`:
    mutants for which no check could begin, with the reason."""

    verdicts: list[Verdict]
    broken: list[str]
    unjudged: list[str]


class Run:
    """One run over some files of a copy of the repository."""

    def __init__(
        self, copy: Path, patterns: Sequence[str], *, at_once: int, seconds: float, package: Package = PACKAGES["owner"]
    ) -> None:
        self._copy = copy
        self._at_once = at_once
        self._seconds = seconds
        texts = {name: (copy / name).read_text(encoding="utf-8") for name in files_of(copy, package.targets)}
        self.known = [mutant for name, text in texts.items() for mutant in operators.mutants(name, text)]
        """Of all files, also of those that no pattern chooses."""
        self.texts = {mutant.file: texts[mutant.file] for mutant in self.known}
        self._tests = files_of(copy, package.killers)
        self.mutants = [mutant for mutant in self.known if any(fnmatch(mutant.file, f"*{part}*") for part in patterns)]
        self._first = {file: _POINTS_OF_A_FILE * at for at, file in enumerate(self.texts)}
        self._checks: list[Check] = []
        self._broken: list[str] = []
        self._unjudged: list[str] = []
        self._killers: dict[tuple[str, str], list[str]] = {}
        self._verdicts: list[Verdict] = []

    def go(self, chosen: Sequence[Mutant], reasons: Mapping[Key, str]) -> Result:
        """Measure the checks, and run them against each mutant."""
        answer = checking.collect(
            self._copy, self._tests, list(self.texts), lambda held: self._judged_all(held, chosen, reasons)
        )
        return msgspec.json.decode(answer, type=Result)

    def _judged_all(self, held: Collected, chosen: Sequence[Mutant], reasons: Mapping[Key, str]) -> bytes:
        self._measure(held)
        if not self._broken:
            _say(f"{len(self._checks)} checks pass on the unchanged source; {len(chosen)} mutants")
            checking.run(self._jobs(chosen, reasons), held, self._copy.parent, at_once=self._at_once)
        return msgspec.json.encode(Result(verdicts=self._verdicts, broken=self._broken, unjudged=self._unjudged))

    def _measure(self, held: Collected) -> None:
        """Run every check on the unchanged source. Each must pass; records its duration and the points that it
        reaches."""
        trees = {file: operators.instrumented(self.texts[file], HIT, first) for file, first in self._first.items()}

        def done(ended: Ended) -> None:
            self._checks += ended.passed
            if ended.broken is not None:
                self._broken.append(ended.broken)
            if ended.killer is not None:
                self._broken.append(f"{ended.killer}: {ended.detail}")

        ids = list(held.items)
        parts = [ids[at : at + _CHECKS_AT_ONCE] for at in range(0, len(ids), _CHECKS_AT_ONCE)]
        jobs = (Job(modules=trees, checks=part, done=done, whole=True) for part in reversed(parts))
        checking.run(jobs, held, self._copy.parent, at_once=self._at_once)

    def _jobs(self, chosen: Sequence[Mutant], reasons: Mapping[Key, str]) -> Iterator[Job]:
        usual = {check.id: check.seconds for check in self._checks}
        for mutant in chosen:
            seconds = min(self._seconds, EXPLAINED) if mutant.key in reasons else self._seconds
            checks = self._checks_of(mutant, seconds)

            def done(ended: Ended, mutant: Mutant = mutant) -> None:
                if ended.broken is not None:
                    self._unjudged.append(
                        f"{mutant.file}:{mutant.line} {mutant.function}: {mutant.operator} of `{mutant.source}`, "
                        f"{mutant.change}: {ended.broken}"
                    )
                else:
                    self._judged(mutant, ended, reasons.get(mutant.key), len(chosen))

            if not checks:
                done(Ended(detail="no check reaches it"))
                continue
            try:
                tree = operators.mutated(self.texts[mutant.file], mutant.number)
            except ValueError as error:
                done(Ended(broken=str(error)))
                continue
            yield Job(modules={mutant.file: tree}, checks=checks, done=done, usual=usual)

    def _checks_of(self, mutant: Mutant, budget: float) -> list[str]:
        """The checks that reach the mutant, within the budget. The order: checks that killed another mutant of this
        function, the module's own tests, `FIRST`, other tests by duration, and last the simulation."""
        before = {killer: at for at, killer in enumerate(dict.fromkeys(self._killers.get(_place(mutant), ())))}
        point = self._first[mutant.file] + mutant.point
        module = f"test_{Path(mutant.file).stem}"

        def rank(check: Check) -> tuple[object, ...]:
            file = _file_of(check.id)
            known = before.get(check.id, len(before))
            return known, file == SIMULATED, module not in file, file not in FIRST, check.seconds

        chosen, seconds = [], 0.0
        for check in sorted((check for check in self._checks if point in check.hits), key=rank):
            seconds += check.seconds
            if seconds > budget:
                break
            chosen.append(check.id)
        return chosen

    def _judged(self, mutant: Mutant, ended: Ended, reason: str | None, of: int) -> None:
        checks = len(ended.passed)
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


def files_of(copy: Path, patterns: Sequence[str]) -> list[str]:
    """The files of the repository that match one of these."""
    return [str(path.relative_to(copy)) for pattern in patterns for path in sorted(copy.glob(pattern))]


def _place(mutant: Mutant) -> tuple[str, str]:
    return mutant.file, mutant.function


def _file_of(check: str) -> str:
    return check.partition("::")[0]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# Mutants that no check can kill


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """One entry of the list. With the function `*`, it explains a class of mutants: `file` is a pattern, and `source` a
    regular expression that the changed text contains."""

    file: str
    function: str
    operator: str
    source: str
    reason: str
    occurrence: int = 1

    @property
    def key(self) -> Key:
        """The key of the explained mutant."""
        return self.file, self.function, self.operator, self.source, self.occurrence

    def explains(self, mutant: Mutant) -> bool:
        """Whether the entry explains this mutant."""
        if self.function != "*":
            return mutant.key == self.key
        return (
            mutant.operator == self.operator
            and fnmatch(mutant.file, self.file)
            and re.search(self.source, mutant.source) is not None
        )


def load(text: str) -> list[Explained]:
    """The entries. Raises `ValueError` for an entry that is incomplete, has no reason, or occurs twice."""
    try:
        entries = [Explained(**entry) for entry in tomllib.loads(text).get("mutant", [])]
    except TypeError as error:
        raise ValueError(f"invalid entry in the list of explained mutants: {error}") from error
    keys = [entry.key for entry in entries]
    for explained in entries:
        if len(explained.reason.split()) < 5:
            raise ValueError(f"{explained.key} has no reason that explains it")
        if keys.count(explained.key) > 1:
            raise ValueError(f"{explained.key} is explained twice")
    return entries


def reasons(entries: Collection[Explained], known: Iterable[Mutant]) -> dict[Key, str]:
    """The reasons why these mutants may survive."""
    by_key: dict[Key, str] = {}
    for mutant in known:
        reason = next((entry.reason for entry in entries if entry.explains(mutant)), None)
        if reason is not None:
            by_key[mutant.key] = reason
    return by_key


def stale(
    entries: Iterable[Explained],
    known: Collection[Mutant],
    killed: Mapping[Key, str | None],
    targets: Collection[str] = (),
) -> list[str]:
    """Outdated entries of the list: those of examined files that have no mutant, and those whose mutants were all
    killed. A class must have a mutant only if its pattern is one of the `targets`, because other packages make only
    some edits in these files."""
    files = {mutant.file for mutant in known}
    faults = []
    for entry in entries:
        where = f"{entry.file} {entry.function}: {entry.operator} of `{entry.source}`"
        keys = [mutant.key for mutant in known if entry.explains(mutant)]
        looked_at = entry.function != "*" or entry.file in targets
        if not keys and looked_at and any(fnmatch(file, entry.file) for file in files):
            faults.append(f"{where} is explained, but there is no such mutant; remove the entry")
        elif keys and all(key in killed for key in keys):
            faults.append(f"{where} is explained, but {killed[keys[0]]} kills it; remove the entry")
    return faults
