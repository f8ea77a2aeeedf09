"""Take away what the owner's promises rest on, piece by piece, and see that some check notices each time.

    python -m spec_tests.mutation [--files PATTERN] [--operator NAME] [--seed N --slice K] [--jobs 2] [--json]

Every mutant (`operators`) runs in a copy of the repository against the tests that come its way, the quick ones first,
then against the simulation's schedules and power cuts, up to the first check that fails. A mutant that survives is a
check that is missing, or it is explained in `equivalent.toml`; an entry there that is no longer true fails the run.

Exit status: 0 all killed or explained; 1 a survivor, or a stale entry; 2 usage; 3 the unchanged source fails a check.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

import msgspec

from spec_tests.mutation import checking, explained, operators, overlay
from spec_tests.mutation.checking import Check, Ended, Job
from spec_tests.mutation.operators import Mutant

TARGETS: Final = (
    "refimpl/log_store.py",
    "refimpl/files.py",
    "refimpl/environment.py",
    "refimpl/host_queue.py",
    "refimpl/client/log_segment.py",
    "refimpl/owner/*.py",
)
KILLERS: Final = (
    "spec_tests/owner/test_*.py",
    "spec_tests/foundation/test_log_store*.py",
    "spec_tests/foundation/test_files.py",
    "spec_tests/foundation/test_host_queue.py",
    "spec_tests/client/test_log_segment*.py",
    "spec_tests/mutation/simulated.py",
)
SIMULATED: Final = "spec_tests/mutation/simulated.py"
FIRST: Final = tuple(f"spec_tests/owner/test_{name}.py" for name in ("lock", "read_state", "recovery"))
"""Few checks that notice much: they come before the others."""
_POINTS_OF_A_FILE: Final = 10_000
PATIENCE: Final = 90.0
"""Seconds of checks, as long as they take unchanged, after which a mutant counts as a survivor."""


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
    reason: str | None
    """Why it may survive."""


class Run:
    """One run over some files of a copy of the repository."""

    def __init__(self, copy: Path, patterns: Sequence[str], *, at_once: int, patience: float) -> None:
        self._copy = copy
        self._at_once = at_once
        self._patience = patience
        self.texts = {
            str(file.relative_to(copy)): file.read_text(encoding="utf-8")
            for target in TARGETS
            for file in sorted(copy.glob(target))
        }
        wanted = [file for file in self.texts if any(fnmatch(file, f"*{pattern}*") for pattern in patterns)]
        self.mutants = [each for file in wanted for each in operators.mutants(file, self.texts[file])]
        self._first = {file: _POINTS_OF_A_FILE * at for at, file in enumerate(self.texts)}
        self.checks: list[Check] = []
        self.broken: list[str] = []
        self._killers: dict[tuple[str, str], list[str]] = {}
        self.verdicts: list[Verdict] = []
        self.warm = False

    def warm_up(self) -> None:
        """Spare every mutant the imports. What this process had imported of the checkout, it imports anew."""
        overlay.warm_up(self._copy, self.texts)
        self.warm = True

    def measure(self, kept: Path | None) -> None:
        """Run every check on the unchanged source: it must pass, and tells how long it takes and where it comes by.

        `kept`: a file with the same of an earlier run on this copy, or for the next one.
        """
        if kept is not None and kept.exists():
            self.checks = msgspec.json.decode(kept.read_bytes(), type=list[Check])
            return
        trees = {
            file: operators.instrumented(self.texts[file], overlay.HIT, first) for file, first in self._first.items()
        }
        found = [str(path.relative_to(self._copy)) for one in KILLERS for path in sorted(self._copy.glob(one))]

        def done(ended: Ended) -> None:
            self.checks += ended.passed
            _say(f"{len(self.checks)} checks pass on the unchanged source")
            if ended.killer is not None:
                self.broken.append(f"{ended.killer}: {ended.detail}")

        jobs = (Job(modules=trees, files=[file], checks=None, done=done) for file in reversed(found))
        checking.run(jobs, self._copy, at_once=self._at_once)
        if kept is not None and not self.broken:
            kept.write_bytes(msgspec.json.encode(self.checks))

    def judge(self, chosen: Sequence[Mutant], reasons: dict[explained.Key, str]) -> None:
        """Let the checks find each of the mutants."""
        checking.run(self._jobs(chosen, reasons), self._copy, at_once=self._at_once)

    def _jobs(self, chosen: Sequence[Mutant], reasons: dict[explained.Key, str]) -> Iterator[Job]:
        for mutant in chosen:
            checks = self._checks_of(mutant)

            def done(ended: Ended, mutant: Mutant = mutant) -> None:
                if ended.killer is not None:
                    self._killers.setdefault(_place(mutant), []).insert(0, ended.killer)
                self._judged(mutant, ended, reasons.get(mutant.key), len(chosen))

            if not checks:
                self._judged(mutant, Ended(detail="no check comes this way"), reasons.get(mutant.key), len(chosen))
                continue
            yield Job(
                modules={mutant.file: operators.mutated(self.texts[mutant.file], mutant.number)},
                files=list(dict.fromkeys(_file_of(check) for check in checks)),
                checks=checks,
                done=done,
                warm=self.warm,
            )

    def _checks_of(self, mutant: Mutant) -> list[Check]:
        """Those that come its way, as far as patience goes: files in which a check found another mutant of this
        function first, then those that take the shortest, then the simulation. In a file it is the same with checks."""
        before = {killer: at for at, killer in enumerate(dict.fromkeys(self._killers.get(_place(mutant), ())))}
        point = self._first[mutant.file] + mutant.point
        coming = [check for check in self.checks if point in check.hits]
        whole: Counter[str] = Counter()
        for check in coming:
            whole[_file_of(check)] += check.seconds
        known = {killer.partition("::")[0]: at for killer, at in reversed(before.items())}

        def rank(check: Check) -> tuple[object, ...]:
            file = _file_of(check)
            late = file == SIMULATED
            return (
                known.get(file, len(before)),
                late,
                whole[file],
                file,
                before.get(check.id, len(before)),
                check.seconds,
            )

        coming.sort(key=rank)
        seconds = 0.0
        for at, check in enumerate(coming):
            seconds += check.seconds
            if seconds > self._patience:
                return coming[:at]
        return coming

    def _judged(self, mutant: Mutant, ended: Ended, reason: str | None, of: int) -> None:
        self.verdicts.append(
            Verdict(
                mutant=mutant,
                killer=ended.killer,
                detail=ended.detail,
                checks=len(ended.passed),
                seconds=round(ended.seconds, 1),
                reason=reason,
            )
        )
        fate = f"killed by {ended.killer} ({ended.detail})" if ended.killer else "survives"
        if not ended.killer and reason:
            fate = "survives, as explained"
        _say(
            f"{len(self.verdicts)}/{of} {mutant.file}:{mutant.line} {mutant.function}: {mutant.operator} "
            f"`{mutant.source}` {mutant.change}: {fate} [{ended.seconds:.1f} s]"
        )


def _place(mutant: Mutant) -> tuple[str, str]:
    return mutant.file, mutant.function


def _file_of(check: Check) -> str:
    return check.id.partition("::")[0]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    options = _options(arguments)
    entries = explained.load(explained.FILE.read_text(encoding="utf-8"))
    started = time.monotonic()
    checking.warm_up()
    with tempfile.TemporaryDirectory(prefix="mutation-", ignore_cleanup_errors=True) as temporary:
        place = options.place or Path(temporary)
        copy = place / "copy"
        if not copy.exists():
            overlay.copied(copy)
        run = Run(copy, options.files, at_once=options.jobs, patience=options.patience)
        if not run.mutants:
            print(f"no file matches {', '.join(options.files)}; there are {', '.join(TARGETS)}", file=sys.stderr)
            return 2
        chosen = _chosen(run.mutants, entries, options)
        run.measure(options.place and options.place / "measured.json")
        if run.broken:
            _say("\n".join(["the unchanged source fails its own checks:", *run.broken]))
            return 3
        ready = time.monotonic() - started
        _say(f"all of them, in {ready:.0f} s; {len(chosen)} mutants")
        run.warm_up()
        run.judge(chosen, {entry.key: entry.reason for entry in entries})
    killed = {each.mutant.key: each.killer for each in run.verdicts if each.killer is not None}
    stale = explained.stale(entries, run.mutants, killed)
    survivors = [each for each in run.verdicts if each.killer is None and each.reason is None]
    if options.json:
        print(json.dumps({"verdicts": [asdict(each) for each in run.verdicts], "stale": stale}, indent=1))
    else:
        _tell(run.verdicts, survivors, stale, time.monotonic() - started)
    return 1 if survivors or stale else 0


def _chosen(mutants: list[Mutant], entries: list[explained.Explained], options: argparse.Namespace) -> list[Mutant]:
    """All; or so many by the seed, of those that are not explained."""
    mutants = [each for each in mutants if options.operator is None or each.operator in options.operator]
    if options.slice is None:
        return mutants
    known = {entry.key for entry in entries}
    open_ones = [mutant for mutant in mutants if mutant.key not in known]
    return random.Random(options.seed).sample(open_ones, min(options.slice, len(open_ones)))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m spec_tests.mutation", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--files", action="append", metavar="PATTERN", help="only files with this in their path (default: all)"
    )
    parser.add_argument("--operator", action="append", metavar="NAME", help="only this operator (default: all)")
    parser.add_argument("--slice", type=int, metavar="K", help="only K mutants, chosen by the seed")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="which ones (default: 1)")
    parser.add_argument("--jobs", type=int, default=2, help="so many mutants at once (default: 2)")
    parser.add_argument(
        "--place", type=Path, metavar="DIR", help="keep the copy of the sources there, or go on with the one that is"
    )
    parser.add_argument("--patience", type=float, default=PATIENCE, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print every verdict as JSON")
    options = parser.parse_args(arguments)
    options.files = options.files or [""]
    if options.jobs < 1 or (options.slice is not None and options.slice < 1):
        parser.error("--jobs and --slice must be 1 or more")
    return options


def _tell(verdicts: list[Verdict], survivors: list[Verdict], stale: list[str], seconds: float) -> None:
    by = Counter(_kind(each) for each in verdicts)
    print(f"{len(verdicts)} mutants in {seconds:.0f} s: " + ", ".join(f"{n} {kind}" for kind, n in by.most_common()))
    for each in survivors:
        mutant = each.mutant
        print(
            f"SURVIVES {mutant.file}:{mutant.line} {mutant.function}: {mutant.operator} of `{mutant.source}`, "
            f"{mutant.change}; {each.checks} checks passed"
        )
    for line in stale:
        print(f"STALE {line}")


def _kind(verdict: Verdict) -> str:
    killer = verdict.killer
    if killer is None:
        return "explained" if verdict.reason else "survived"
    if killer.startswith(SIMULATED):
        return "killed by a schedule" if "schedule" in killer else "killed by a power cut"
    return "killed by a test"


if __name__ == "__main__":
    sys.exit(main())
