"""The command `demo`, and its display."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from refimpl.cli import output
from refimpl.cli.commands import command
from refimpl.cli.output import ExitCode

if TYPE_CHECKING:
    from refimpl.demo.story import Result

_PANEL = "Start here"


@command(_PANEL, "demo", "demo --warehouse /tmp/demo", "demo --json")
def demo(folder: Path | None = None, json: bool = False) -> None:
    """Run a demonstration: competing writers commit real data, and nothing is lost.

    Eight processes race to create one table; three ingest a year of flights through Spark; two of them are killed in
    the middle of a commit, and their outcomes are resolved; Spark reads the table back, and every sum must equal the
    input's. This takes about a minute. Exit code 1: a check failed.
    """
    from refimpl.demo.story import run

    result = run(folder, partial(print, file=sys.stderr if json else sys.stdout, flush=True))
    if json:
        output.show_json(result)
    else:
        _show_result(result)
    if not result.ok:
        raise typer.Exit(ExitCode.REFUSED)


def _show_result(result: "Result") -> None:
    failed = [check.name for check in result.checks if not check.ok]
    held = len(result.checks) - len(failed)
    output.show_line()
    output.show_line(
        f"{held} of {len(result.checks)} checks passed, {result.rows:,} rows, "
        f"{result.seconds:.1f} s" + (f"; FAILED: {', '.join(failed)}" if failed else ""),
        style="bold red" if failed else "bold green",
    )
    if result.kept:
        output.show_line(f"kept in {result.warehouse}; next: commit-owner log flights -w {result.warehouse}")
    else:
        output.show_line("the temporary warehouse was removed; to keep it: commit-owner demo --warehouse FOLDER")
