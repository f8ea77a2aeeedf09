"""Simulate the reference: every interleaving, every crash, power loss.

    python -m conformance.simulation power [SCOPE...] [--thorough] [--seed N] [--jobs N] [--json]
    python -m conformance.simulation crash [SCOPE...] [--mode MODE] [--jobs N] [--json]
    python -m conformance.simulation explore [SCOPE...] [--quick] [--budget SECONDS] [--seed N] [--jobs N] [--json]
    python -m conformance.simulation replay FILE
    python -m conformance.simulation teeth [ID...] [--json]

The exit code is 0 if nothing was violated, 1 for a violation, 2 for a wrong call, 3 if a space was not finished.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from conformance.simulation import crash_command, explore_command, power_command, teeth_command


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance.simulation", description=(__doc__ or "").partition("\n")[0]
    )
    commands = parser.add_subparsers(dest="command", required=True)
    power_command.add(commands)
    crash_command.add(commands)
    explore_command.add(commands)
    teeth_command.add(commands)
    options = parser.parse_args(arguments)
    code: int = options.run(options)
    return code


if __name__ == "__main__":
    sys.exit(main())
