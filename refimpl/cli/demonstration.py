"""The command `demo`, and its display."""

import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from refimpl.cli import output
from refimpl.cli.commands import command
from refimpl.cli.output import ExitCode
from refimpl.protocol.release import how_to_install

if TYPE_CHECKING:
    from refimpl.demo.story import Result

_PANEL = "Start here"


@command(_PANEL, "demo", "demo --warehouse /tmp/demo", "demo --json")
def demo(folder: Path | None = None, conformance: bool = True, json: bool = False) -> None:
    """Run a demonstration: competing writers commit real data, and nothing is lost.

    Eight processes race to create one table; three ingest a year of flights through Spark while another one reads;
    two of them are killed in the middle of a commit, and their outcomes are resolved; Spark reads the table
    back, and every sum must equal the input's. This takes about a minute. At the end the conformance kit tests
    the owner, if the kit is installed. Exit code 1: a check failed, or a requirement is violated.
    """
    from refimpl.demo.story import run

    result = run(folder, partial(print, file=sys.stderr if json else sys.stdout, flush=True))
    if json:
        output.show_json(result)
    else:
        _show_result(result)
    conformant = not conformance or _conforms(to_stderr=json)
    if not (result.ok and conformant):
        raise typer.Exit(ExitCode.REFUSED)


_KIT: Final = ("conformance", "jinja2")
"""Modules that the conformance kit needs. None is imported here: the kit runs in its own process."""

_KIT_COMMAND: Final = ("-m", "conformance", "run", "reference", "--profile", "quick")


def _conforms(*, to_stderr: bool) -> bool:
    """Run the kit's quick profile against the reference owner, and show its output. If the kit is not installed, show
    the reason, and return true."""
    out = sys.stderr if to_stderr else sys.stdout
    missing = [name for name in _KIT if find_spec(name) is None]
    print(file=out)
    if missing:
        reason = f"{', '.join(missing)} is missing: {how_to_install('conformance')}"
        print(f"The conformance kit was not run: {reason}", file=out, flush=True)
        return True
    print("The conformance kit, profile quick, against the reference owner:", file=out, flush=True)
    ran = subprocess.run([sys.executable, *_KIT_COMMAND], check=False, stdout=sys.stderr if to_stderr else None)
    return ran.returncode == 0


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
