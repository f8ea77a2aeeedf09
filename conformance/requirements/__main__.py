"""List the requirements that the kit holds subjects to, and the freedoms that it grants.

    python -m conformance.requirements --side owner --level MUST
    python -m conformance.requirements --profile idempotent-retry --json
    python -m conformance.requirements --freedoms

A filter may be given several times. The exit code is 0, or 2 if nothing is selected or the call is wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from itertools import groupby

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from conformance.requirements import Freedom, Level, Profile, Requirement, Side, citation, load

_ID_WIDTH = 21
"""Columns of the longest id."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    options = _parser().parse_args(arguments)
    selected = _selected(options)
    if not selected:
        sys.stderr.write("error: nothing in the catalogue matches all of these filters; leave one out\n")
        return 2
    try:
        if options.json:
            sys.stdout.write(msgspec.json.format(msgspec.json.encode(selected), indent=2).decode() + "\n")
        else:
            _show(selected)
        sys.stdout.flush()
    except BrokenPipeError:  # `... | head`: who reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return 0


def _parser() -> argparse.ArgumentParser:
    summary, _, examples = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m conformance.requirements",
        description=summary,
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, values in (("side", Side), ("level", Level), ("profile", Profile)):
        parser.add_argument(
            f"--{name}",
            action="append",
            choices=[value.value for value in values],
            metavar=name.upper(),
            help=f"only requirements with this {name}: {', '.join(values)}",
        )
    parser.add_argument("--freedoms", action="store_true", help="list the freedoms instead: what is never a violation")
    parser.add_argument("--json", action="store_true", help="print a JSON array")
    return parser


def _selected(options: argparse.Namespace) -> list[Requirement | Freedom]:
    catalogue = load()
    found: list[Requirement | Freedom] = []
    if options.freedoms:
        if not options.level and not options.profile:  # a freedom has neither
            found.extend(catalogue.freedoms)
    else:
        found.extend(
            entry
            for entry in catalogue.requirements
            if (not options.level or entry.level in options.level)
            and (not options.profile or entry.profile in options.profile)
        )
    return [entry for entry in found if not options.side or entry.side in options.side]


def _show(selected: list[Requirement | Freedom]) -> None:
    if not sys.stdout.isatty():  # one line for each, for `grep` and `less -S`
        for entry in selected:
            words = " ".join([entry.paraphrase, *_conditions(entry)])
            print(f"{entry.id:<{_ID_WIDTH}} {_level(entry):<6} {entry.side:<11} {words} ({_source(entry)})")
        return
    console = Console(highlight=False)
    for source, entries in groupby(selected, _source):
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
        for width in (_ID_WIDTH, 6, 11):
            table.add_column(no_wrap=True, width=width)
        table.add_column()
        for entry in entries:
            text = Text(entry.paraphrase)
            for condition in _conditions(entry):
                text.append(f" {condition}", style="yellow")
            table.add_row(Text(entry.id, style="cyan"), _level(entry), entry.side, text)
        console.print(Text(source, style="bold"))
        console.print(table)
        console.print()
    console.print(f"{len(selected)} {'freedoms' if isinstance(selected[0], Freedom) else 'requirements'}")


def _level(entry: Requirement | Freedom) -> str:
    return entry.level.value if isinstance(entry, Requirement) else "free"


def _conditions(entry: Requirement | Freedom) -> list[str]:
    found = []
    if isinstance(entry, Requirement):
        if entry.profile is not Profile.CORE:
            found.append(f"[{entry.profile}]")
        if entry.untestable:
            found.append(f"Untestable: {entry.untestable}")
    return found


def _source(entry: Requirement | Freedom) -> str:
    return citation(entry.source, entry.passage)


if __name__ == "__main__":
    sys.exit(main())
