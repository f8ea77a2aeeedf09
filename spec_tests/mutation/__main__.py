"""Mutation testing: change the code in one place at a time, and see that a check fails each time.

    python -m spec_tests.mutation [--package owner] [--files PATTERN] [--operator NAME] [--seed N --slice K] [--jobs 2]
    python -m spec_tests.mutation sabotage [--id PATTERN] [--slow] [--seed N --slice K] [--jobs 2]

Every mutant (`operators`) runs in a copy of the repository: first against the tests that execute its code, quick tests
first, then against the simulation's schedules and power cuts, until a check fails. If a mutant survives, a check is
missing, or `equivalent.toml` explains it; an entry there that is no longer true fails the run.

The operators that drop a rule (`operators.RULES`) run only if --operator names them: their mutants accept invalid
requests, which has nothing to do with durability, order or atomicity. Careless edits (`operators.CARELESS`) are made in
all packages except `owner`, whose own operators are stricter. In a file that also belongs to `owner`, another package
makes only the careless edits.

`sabotage` instead makes the edits of the catalogue `sabotages.toml`, each against the tests that it names. An edit that
does not fit in exactly one place is an error. Entries that need a Java virtual machine run only with --slow.

No library is used: general tools for mutation testing know no locks, transactions and syncs.

Exit status: 0 all killed or explained; 1 a survivor, or a stale entry; 2 usage; 3 the unchanged source fails a check,
or a mutant could not be judged.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from spec_tests.mutation import checking, run, sabotage
from spec_tests.mutation.operators import CARELESS, RULES, Mutant
from spec_tests.mutation.run import PACKAGES, SECONDS, SIMULATED, Explained, Run, Verdict


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["sabotage"]:
        return _sabotage(arguments[1:])
    options = _options(arguments)
    entries = run.load(run.FILE.read_text(encoding="utf-8"))
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutation-", ignore_cleanup_errors=True) as temporary:
        copy = checking.copied(Path(temporary) / "copy")
        package = PACKAGES[options.package]
        mutation = Run(copy, options.files, at_once=options.jobs, seconds=SECONDS, package=package)
        chosen = _chosen(mutation.mutants, entries, options, run.files_of(copy, PACKAGES["owner"].targets))
        if not chosen:
            print(f"no such mutant; the files are {', '.join(package.targets)}", file=sys.stderr)
            return 2
        try:
            result = mutation.go(chosen, run.reasons(entries, chosen))
        except ValueError as error:
            print(f"the checks cannot be collected:\n{error}", file=sys.stderr)
            return 3
    if result.broken:
        print("\n".join(["the run has no result:", *result.broken]), file=sys.stderr)
        return 3
    killed = {verdict.mutant.key: verdict.killer for verdict in result.verdicts if verdict.killer is not None}
    stale = run.stale(entries, mutation.known, killed, package.targets)
    survivors = [verdict for verdict in result.verdicts if verdict.killer is None and verdict.reason is None]
    if options.json:
        verdicts = [asdict(verdict) for verdict in result.verdicts]
        print(json.dumps({"verdicts": verdicts, "stale": stale, "unjudged": result.unjudged}, indent=1))
    else:
        _tell(result.verdicts, survivors, stale, time.monotonic() - started)
        for line in result.unjudged:
            print(f"NOT JUDGED {line}")
    return 3 if result.unjudged else 1 if survivors or stale else 0


def _sabotage(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m spec_tests.mutation sabotage", description="make the edits of the catalogue, one at a time"
    )
    parser.add_argument("--id", default="", metavar="PATTERN", help="only entries with this in their id or file")
    parser.add_argument("--slow", action="store_true", help="also entries that need a Java virtual machine")
    _add_common(parser)
    options = _checked(parser, arguments)
    entries = [
        entry
        for entry in sabotage.load(sabotage.FILE.read_text(encoding="utf-8"))
        if (options.id in entry.id or options.id in entry.file) and (options.slow or not entry.slow)
    ]
    if options.slice is not None:
        entries = random.Random(options.seed).sample(entries, min(options.slice, len(entries)))
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sabotage-", ignore_cleanup_errors=True) as temporary:
        copy = checking.copied(Path(temporary) / "copy")
        try:
            result = sabotage.Run(
                copy, entries, at_once=options.jobs, say=lambda text: print(text, file=sys.stderr)
            ).go()
        except ValueError as error:
            print(f"the checks cannot be collected:\n{error}", file=sys.stderr)
            return 3
    explained_ones = {entry.id for entry in entries if entry.explained}
    killed = {verdict.id for verdict in result.verdicts if verdict.killer is not None}
    survivors = [
        verdict.id for verdict in result.verdicts if verdict.killer is None and verdict.id not in explained_ones
    ]
    stale = sorted(killed & explained_ones)
    print(
        f"{len(entries)} sabotages in {time.monotonic() - started:.0f} s: {len(killed)} killed, "
        f"{len(explained_ones - killed)} explained, {len(survivors)} survived, {len(result.errors)} errors"
    )
    for survivor in survivors:
        print(f"SURVIVES {survivor}")
    for entry_id in stale:
        print(f"STALE {entry_id} is explained, and a test kills it")
    for line in result.errors:
        print(f"ERROR {line}")
    return 3 if result.errors else 1 if survivors or stale else 0


def _chosen(
    mutants: list[Mutant], entries: list[Explained], options: argparse.Namespace, of_owner: list[str]
) -> list[Mutant]:
    """All mutants; with --slice, a random choice of those that are not explained."""
    wanted = options.operator
    if wanted is not None:
        mutants = [mutant for mutant in mutants if mutant.operator in wanted]
    elif options.package == "owner":
        mutants = [mutant for mutant in mutants if mutant.operator not in (*RULES, *CARELESS)]
    else:  # in the owner's files, only the edits that the owner's run leaves out
        mutants = [
            mutant
            for mutant in mutants
            if mutant.operator in CARELESS or (mutant.operator not in RULES and mutant.file not in of_owner)
        ]
    if options.slice is None:
        return mutants
    known = run.reasons(entries, mutants)
    open_ones = [mutant for mutant in mutants if mutant.key not in known]
    return random.Random(options.seed).sample(open_ones, min(options.slice, len(open_ones)))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m spec_tests.mutation", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--package", choices=PACKAGES, default="owner", help="package to mutate (default: owner)")
    parser.add_argument(
        "--files", action="append", metavar="PATTERN", help="only files with this in their path (default: all)"
    )
    parser.add_argument(
        "--operator",
        action="append",
        metavar="NAME",
        help="only this operator (default: all but those that drop a rule)",
    )
    parser.add_argument("--json", action="store_true", help="print every verdict as JSON")
    _add_common(parser)
    options = _checked(parser, arguments)
    options.files = options.files or [""]
    return options


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--slice", type=int, metavar="K", help="only K edits, chosen by the seed")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the choice (default: 1)")
    parser.add_argument("--jobs", type=int, default=2, help="number of edits at the same time (default: 2)")


def _checked(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    options = parser.parse_args(arguments)
    if options.jobs < 1 or (options.slice is not None and options.slice < 1):
        parser.error("--jobs and --slice must be 1 or more")
    return options


def _tell(verdicts: list[Verdict], survivors: list[Verdict], stale: list[str], seconds: float) -> None:
    by = Counter(_kind(verdict) for verdict in verdicts)
    print(f"{len(verdicts)} mutants in {seconds:.0f} s: " + ", ".join(f"{n} {kind}" for kind, n in by.most_common()))
    for survivor in survivors:
        mutant = survivor.mutant
        print(
            f"SURVIVES {mutant.file}:{mutant.line} {mutant.function}: {mutant.operator} of `{mutant.source}`, "
            f"{mutant.change}; {survivor.checks} checks passed"
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
