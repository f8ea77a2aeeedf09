"""The command `demo`, and its display."""

import sys
from functools import partial
from pathlib import Path

from refimpl.cli.commands import command
from refimpl.cli.output import ExitCode, Result

_PANEL = "Start here"


@command(_PANEL, "demo", "demo --warehouse /tmp/demo", "demo --json")
def demo(folder: Path | None = None) -> Result:
    """Run a demonstration: competing writers commit real data, and nothing is lost.

    Eight processes race to create one table; three ingest a year of flights through Spark; two of them are killed in
    the middle of a commit, and their outcomes are resolved; Spark reads the table back, and every sum must equal the
    input's. This takes about a minute. Exit code 1: a check failed.
    """
    from refimpl.demo.story import run

    result = run(folder, partial(print, file=sys.stderr, flush=True))
    failed = [check.name for check in result.checks if not check.ok]
    held = f"{len(result.checks) - len(failed)} of {len(result.checks)} checks passed"
    return Result(
        result,
        f"{held}, {result.rows:,} rows, {result.seconds:.1f} s" + (f"; FAILED: {', '.join(failed)}" if failed else ""),
        f"kept in {result.warehouse}; next: commit-owner log flights -w {result.warehouse}"
        if result.kept
        else "the temporary warehouse was removed; to keep it: commit-owner demo --warehouse FOLDER",
        code=ExitCode.OK if result.ok else ExitCode.REFUSED,
    )
