"""`teeth`: known-bad variants of the reference that only a schedule, a crash or a power cut exposes."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from conformance.command.output import counted, show, show_json
from conformance.simulation.teeth import Verdict, judged


def add(commands: Any) -> None:
    """Add the command to those of the program."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "teeth",
        help="hunt known-bad variants; exit code 0 all killed by their requirement, 1 one survived, 2 usage error",
    )
    parser.add_argument("id", nargs="*", help="ids of variants, or families: schedule, crash, power")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from conformance.adapters.reference.simulated_teeth import TEETH

    wanted = set(options.id)
    chosen = [tooth for tooth in TEETH if not wanted or tooth.id in wanted or tooth.family in wanted]
    if not chosen or wanted - {each.id for each in chosen} - {each.family for each in chosen}:
        known = ", ".join(tooth.id for tooth in TEETH)
        print(f"there are the families schedule, crash and power, and {known}", file=sys.stderr)
        return 2
    verdicts = []
    for tooth in chosen:
        verdicts.append(judged(tooth))
        if not options.json:
            _tell(verdicts[-1], whole=len(chosen) == 1)
    survivors = [each for each in verdicts if not each.killed]
    if options.json:
        show_json({"teeth": [_as_json(each) for each in verdicts]})
    else:
        seconds = sum(each.seconds for each in verdicts)
        show(f"{counted(len(verdicts), 'variant')}, {len(verdicts) - len(survivors)} killed, in {seconds:.0f} s")
    return 1 if survivors else 0


def _tell(verdict: Verdict, *, whole: bool) -> None:
    tooth, kill = verdict.tooth, verdict.kill
    state = "killed" if verdict.killed else f"SURVIVED (found: {kill.found}, expected {tooth.requirement})"
    show(f"{tooth.id} ({tooth.family}): {tooth.title}")
    show(
        f"  {state} by {tooth.requirement} in {tooth.scope} after {kill.tried}: {kill.size or 'nothing'}; "
        f"{verdict.seconds:.1f} s"
    )
    for line in kill.counterexample if whole else ():
        show(f"    {line}")


def _as_json(verdict: Verdict) -> dict[str, Any]:
    tooth, kill = verdict.tooth, verdict.kill
    return {
        "id": tooth.id,
        "family": tooth.family,
        "title": tooth.title,
        "scope": tooth.scope,
        "requirement": tooth.requirement,
        "killed": verdict.killed,
        "found": kill.found,
        "tried": kill.tried,
        "size": kill.size,
        "counterexample": kill.counterexample,
    }
