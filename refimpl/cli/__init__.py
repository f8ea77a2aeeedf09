"""The command line `commit-owner`: an edge that asks the owner and the client, and shows what they say.

Importing it is cheap; each command imports what it needs when it runs.
"""

from __future__ import annotations


def main() -> None:
    """The console script."""
    from refimpl.cli.application import application

    application()
