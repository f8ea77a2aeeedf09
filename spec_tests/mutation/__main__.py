"""Make the edits of the catalogue of sabotages, one at a time, and see that a test fails each time.

    python -m spec_tests.mutation [--id PATTERN ...] [--slow] [--seed N --slice K] [--jobs 2]

Each edit runs in a copy of the repository, against the tests that its entry names. Entries that need a Java virtual
machine run only with --slow. `spec_tests/README.md` names a library that makes edits by itself.

Exit status: 0 all killed or explained; 1 a survivor, or an explained edit that a test kills; 2 usage; 3 an edit does
not fit the code, or a test fails without the edit.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from spec_tests.mutation import sabotage


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    options = _options(arguments)
    wanted = options.id or [""]
    entries = [
        entry
        for entry in sabotage.load(sabotage.FILE.read_text(encoding="utf-8"))
        if any(part in entry.id or part in entry.file for part in wanted) and (options.slow or not entry.slow)
    ]
    if not entries:
        print(f"no entry has {' or '.join(map(repr, wanted))} in its id or file", file=sys.stderr)
        return 2
    if options.slice is not None:
        entries = random.Random(options.seed).sample(entries, min(options.slice, len(entries)))
    started = time.monotonic()
    killed, survivors, explained, stale = 0, [], 0, []
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="sabotage-", dir=memory, ignore_cleanup_errors=True) as folder:
        copies = [sabotage.copied(Path(folder) / str(at)) for at in range(options.jobs)]
        try:
            for number, verdict in enumerate(sabotage.judged(entries, copies), start=1):
                entry, killer = verdict.sabotage, verdict.killer
                fate = f"killed by {killer} ({verdict.detail})" if killer else "survives"
                print(f"{number}/{len(entries)} {entry.id}: {fate}", file=sys.stderr, flush=True)
                killed += killer is not None
                explained += entry.explained is not None and killer is None
                if killer is not None and entry.explained:
                    stale.append(entry.id)
                if killer is None and not entry.explained:
                    survivors.append(entry.id)
        except ValueError as error:
            print(error, file=sys.stderr)
            return 3
    print(
        f"{len(entries)} sabotages in {time.monotonic() - started:.0f} s: {killed} killed, {explained} explained, "
        f"{len(survivors)} survived"
    )
    for entry_id in survivors:
        print(f"SURVIVES {entry_id}")
    for entry_id in stale:
        print(f"STALE {entry_id} is explained, and a test kills it")
    return 1 if survivors or stale else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m spec_tests.mutation", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--id", action="extend", nargs="+", metavar="PATTERN", help="only entries with one of these in their id or file"
    )
    parser.add_argument("--slow", action="store_true", help="also entries that need a Java virtual machine")
    parser.add_argument("--slice", type=int, metavar="K", help="only K edits, chosen by the seed")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the choice (default: 1)")
    parser.add_argument("--jobs", type=int, default=2, help="number of edits at the same time (default: 2)")
    options = parser.parse_args(arguments)
    if options.jobs < 1 or (options.slice is not None and options.slice < 1):
        parser.error("--jobs and --slice must be 1 or more")
    return options


if __name__ == "__main__":
    sys.exit(main())
