"""Hunt the known-bad variants of the reference that only the simulator exposes.

    python -m spec_tests.conformance.simulation                              all of them
    python -m spec_tests.conformance.simulation lock-not-taken power         one, and a family

Exit code 0: each is killed by its requirement; 1: one survived; 2: usage error.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from conformance.command.output import show, show_json
from conformance.interface.results import counted
from spec_tests.conformance.simulation.hunting import Hunt, Mutant
from spec_tests.conformance.simulation.interruption_mutants import POWER_MUTANTS
from spec_tests.conformance.simulation.schedule_mutants import SCHEDULE_MUTANTS

MUTANTS: Final[tuple[Mutant, ...]] = (*SCHEDULE_MUTANTS, *POWER_MUTANTS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m spec_tests.conformance.simulation", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("id", nargs="*", help="ids of mutants, or families: schedule, power")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    options = parser.parse_args(arguments)
    wanted = set(options.id)
    chosen = [mutant for mutant in MUTANTS if not wanted or wanted & {mutant.id, mutant.family}]
    if wanted - {mutant.id for mutant in chosen} - {mutant.family for mutant in chosen}:
        known = ", ".join(mutant.id for mutant in MUTANTS)
        print(f"unknown mutant; expected schedule, power, {known}", file=sys.stderr)
        return 2
    results, started = [], time.perf_counter()
    for mutant in chosen:
        hunt = mutant.hunt()
        results.append((mutant, hunt))
        if not options.json:
            _show(mutant, hunt, whole=len(chosen) == 1)
    killed = sum(hunt.found == mutant.requirement for mutant, hunt in results)
    if options.json:
        keys = ("id", "family", "title", "scope", "requirement")
        show_json({"mutants": [{key: getattr(mutant, key) for key in keys} | asdict(hunt) for mutant, hunt in results]})
    else:
        show(f"{counted(len(results), 'mutant')}, {killed} killed, in {time.perf_counter() - started:.0f} s")
    return 0 if killed == len(results) else 1


def _show(mutant: Mutant, hunt: Hunt, *, whole: bool) -> None:
    killed = hunt.found == mutant.requirement
    state = "killed" if killed else f"SURVIVED (found: {hunt.found}, expected {mutant.requirement})"
    show(f"{mutant.id} ({mutant.family}): {mutant.title}")
    show(f"  {state} by {mutant.requirement} in {mutant.scope} after {hunt.tried}: {hunt.size or 'nothing'}")
    for line in hunt.counterexample if whole else ():
        show(f"    {line}")


if __name__ == "__main__":
    sys.exit(main())
