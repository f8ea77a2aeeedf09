"""Judge a recorded history, or print the schema of its lines.

    python -m conformance.history check FILE [--json]
    python -m conformance.history schema

`check` exits with 0 if the history is conformant, 1 if it shows a violation, 2 if it cannot be judged or the call is
wrong.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance.history", description=(__doc__ or "").partition("\n")[0]
    )
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="check a history; exit code 0 conformant, 1 violation, 2 invalid history")
    check.add_argument("file", type=Path, help="the history: JSON Lines, from header to footer")
    check.add_argument("--json", action="store_true", help="print the verdict as JSON")
    commands.add_parser("schema", help="print the JSON Schema of a line")
    options = parser.parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a history may hold what a terminal cannot show
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        if options.command == "schema":
            from conformance.history.events import schema_text

            print(schema_text(), end="")
            code = 0
        else:
            from conformance.history import command

            code = command.check(options.file, as_json=options.json)
        sys.stdout.flush()
    except BrokenPipeError:  # `check FILE | head`: who reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return code


if __name__ == "__main__":
    sys.exit(main())
