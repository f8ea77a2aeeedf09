"""The mutation score of the checks: every known-bad subject is found, and no good subject is accused.

    python -m spec_tests.conformance.mutation_score [--mutants PATTERN]              each mutant, and what finds it
    python -m spec_tests.conformance.mutation_score --sample N [--seed N]            N of them
    python -m spec_tests.conformance.mutation_score --remember [--mutants PATTERN]   search anew; write `kills.json`
    python -m spec_tests.conformance.mutation_score --clean N [--examples EVERY]     N scenarios on good subjects
    python -m spec_tests.conformance.mutation_score --layers programs [--side owner] [--sample N] [--holdout]
                                              what one layer finds alone, each mutant for `--seconds` of CPU time

Mutants whose remembered cases do not find them any more are named: their search is slow, until `--remember --mutants
NAME` repeats it. Exit code 1 if a mutant survives, is found only by requirements that it does not violate, or cannot
start; or if a good subject is accused.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase

from conformance.checks import all_checks
from conformance.interface.results import Layer, Verdict
from conformance.interface.subject import AdapterError
from conformance.mutants import Mutant, all_mutants
from conformance.requirements.catalogue import Level, load
from conformance.running.plan import case_seed
from conformance.running.verdicts import failing
from spec_tests.conformance import kills, layers
from spec_tests.conformance.kills import Fate


def good_names() -> list[str]:
    """The names of the good subjects."""
    return ["model", "model-client", *(kills.name_of(subject) for subject in kills.good())]


def clean(scenarios: int, *, seed: int = 0, every: int | None = None, pattern: str = "*") -> int:
    """Run `scenarios` generated scenarios in total on all good subjects that match, and with `every`, every so many of
    the examples on each subject. Each subject begins with another example. Print the false alarms, and return their
    number.
    """
    began = time.monotonic()
    names = [name for name in good_names() if fnmatchcase(name, pattern)]
    plans = [(name, list(kills.cases(kills.identity(name)))) for name in names]
    generated = [(name, case) for name, cases in plans for case in cases if case.check.layer is Layer.MODEL]
    subjects = {name for name, _ in (generated if every is None else plans)}
    made = shown = alarms = 0
    inconclusive = Counter[str]()

    def accuse(alarm: str) -> None:
        nonlocal alarms
        alarms += 1
        print(f"FALSE ALARM  {alarm}", file=sys.stderr, flush=True)

    for number, (name, cases) in enumerate(plans if every else ()):
        for case in [case for case in cases if case.check.layer is Layer.EXAMPLE][number % every :: every]:
            result = kills.run(case, name)
            shown += 1
            if failing([result]):
                accuse(f"{name}: {case}: {result.violations[0].message}")
    for number, (name, case) in enumerate(generated):
        share = scenarios * (number + 1) // len(generated) - scenarios * number // len(generated)
        if not share:
            continue
        try:
            result, ran = layers.generated(
                name, case, count=share, seed=case_seed(seed, f"{name} {case}"), shrink=False
            )  # fmt: skip
        except AdapterError as error:
            accuse(f"{name}: {case}: {error.problem}")
            continue
        made += ran
        if failing([result]):  # not only advice
            accuse(f"{name}: {case}: {result.violations[0].message} {result.reproduction}")
        elif result.verdict is Verdict.INCONCLUSIVE:
            inconclusive[result.reason] += 1
    for reason, number in sorted(inconclusive.items()):
        print(f"no verdict   {number} cases: {reason}")
    print(
        f"{alarms} false alarms in {made} generated scenarios and {shown} examples on {len(subjects)} good subjects, "
        f"{(made + shown) / (time.monotonic() - began):.0f} a second"
    )
    return alarms


def remember(pattern: str = "*") -> int:
    """Search for a case that finds each matching mutant, a mutant that each check finds, and a violation of each
    requirement. Store few of the cases, which the next search tries first, and return their number. What is remembered
    of other mutants stays."""
    before = {name: cases for name, cases in kills.REMEMBERED.items() if not fnmatchcase(name, pattern)}
    kills.REMEMBERED.clear()
    kills.REMEMBERED.update(before)
    mutants = [mutant for mutant in all_mutants().values() if mutant.violates and fnmatchcase(mutant.id, pattern)]
    trials: list[kills.Trial | None] = []
    for mutant in mutants:
        killer = kills.case_of(kills.kill(mutant).case)
        trials.append(None if killer is None else (mutant, killer))
        if killer is not None:
            kills.REMEMBERED[mutant.id] = [str(killer)]
    if pattern == "*":
        checks = [check for check in all_checks() if check.layer in kills.DETERMINISTIC]
        trials += [kills.found_by(check, kills.meant_for(check)) for check in checks]
    for requirement in [
        requirement.id
        for requirement in load().requirements
        if requirement.level is Level.MUST and not requirement.untestable
    ]:
        guilty = [mutant for mutant in mutants if requirement in mutant.violates and mutant.id in kills.REMEMBERED]
        trials.append(kills.shown_by(requirement, guilty) if guilty else None)
    pairs = {(mutant.id, str(case)) for mutant, case in fewest([trial for trial in trials if trial])}
    found = {mutant: sorted(case for name, case in pairs if name == mutant) for mutant, _ in pairs}
    kills.FILE.write_text(json.dumps({**before, **found}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return len(pairs)


def fewest(trials: Sequence[kills.Trial]) -> list[kills.Trial]:
    """Few of the trials that together show as much as all of them."""
    shown = {trial: _shown(*trial) for trial in trials}
    left, kept = set[tuple[str, ...]]().union(*shown.values()), list[kills.Trial]()
    while left:
        kept.append(max(shown, key=lambda trial: len(shown[trial] & left)))
        left -= shown[kept[-1]]
    return kept


def _shown(mutant: Mutant, case: kills.Case) -> set[tuple[str, ...]]:
    """What this case shows: the mutant is found, the check finds a mutant, these requirements are violated."""
    result = kills.run(case, kills.name_of(mutant))
    violated = {requirement for violation in result.violations for requirement in violation.requirements} & set(
        mutant.violates
    )
    shown: set[tuple[str, ...]] = {("requirement", requirement) for requirement in violated}
    requirement = kills.names(result, mutant.violates)
    return shown | ({("mutant", mutant.id), ("check", case.check.name)} if requirement else set[tuple[str, ...]]())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m spec_tests.conformance.mutation_score")
    parser.add_argument("--mutants", default="*", metavar="PATTERN", help="only mutants, or good subjects, that match")
    parser.add_argument("--clean", type=int, metavar="N", help="run N generated scenarios on good subjects")
    parser.add_argument(
        "--examples", type=int, metavar="EVERY", help="with --clean: also run every so many of the examples"
    )
    parser.add_argument("--remember", action="store_true", help="search anew, and write kills.json")
    parser.add_argument("--layers", nargs="+", choices=layers.LAYERS, help="what each of these layers finds alone")
    parser.add_argument("--side", choices=("owner", "client"), help="with --layers: only mutants of this side")
    parser.add_argument("--sample", type=int, metavar="N", help="N mutants, drawn with --seed")
    parser.add_argument("--seed", type=int, default=0, help="of the programs, and of the sample")
    parser.add_argument("--seconds", type=float, default=20, help="with --layers: of CPU time, for each mutant")
    parser.add_argument("--holdout", action="store_true", help="with --layers: the third that only this option runs")
    parser.add_argument("-n", type=int, default=1, dest="workers", help="with --layers: mutants at a time")
    options = parser.parse_args(arguments)
    if options.layers:
        return _layers(options)
    if options.remember:
        print(f"{remember(options.mutants)} cases are tried first from now on")
        return 0
    if options.clean is not None:
        return 1 if clean(options.clean, seed=options.seed, every=options.examples, pattern=options.mutants) else 0
    return _killed(_chosen(options))


def _chosen(options: argparse.Namespace) -> list[Mutant]:
    matching = [mutant for mutant in kills.bad() if fnmatchcase(mutant.id, options.mutants)]
    if options.sample is None:
        return matching
    return random.Random(options.seed).sample(matching, min(options.sample, len(matching)))


def _killed(mutants: Sequence[Mutant]) -> int:
    """Print what kills each mutant; return the exit code."""
    right, stale = 0, list[str]()
    for mutant in mutants:
        kill = kills.kill(mutant)
        text = f"{kill.requirement:20} {kill.operations:4} operations  {kill.layer:8} {kill.case}"
        killed = kill.fate is Fate.KILLED
        right += killed
        stale += [mutant.id] if kill.stale else []
        print(f"{mutant.id:45} {text if killed else f'{kill.fate.upper()}  {kill.note[:600]}'}", flush=True)
    if stale:
        print(
            f"stale, their remembered cases do not find them any more: {', '.join(stale)}; to search anew: --remember "
            "--mutants NAME", file=sys.stderr,
        )  # fmt: skip
    print(f"{right} of {len(mutants)} killed by a requirement that they violate" if mutants else "no subject matches")
    return 0 if mutants and right == len(mutants) else 1


def _layers(options: argparse.Namespace) -> int:
    mutants = layers.chosen(
        options.mutants, side=options.side, holdout=options.holdout, sample=options.sample, seed=options.seed
    )
    known: list[layers.Row] = []
    for layer in options.layers:
        for row in layers.rows(
            mutants, layer, seconds=options.seconds, seed=options.seed, workers=options.workers
        ):  # fmt: skip
            known.append(row)
            print(row, flush=True)
    print(
        *layers.totals(known) if known else ["no mutant matches, except perhaps some that only --holdout runs"],
        sep="\n",
    )
    return 0 if known and all(row.seen is layers.Seen.FOUND for row in known) else 1


if __name__ == "__main__":
    sys.exit(main())
