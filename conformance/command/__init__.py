"""The command `delta-commit-conformance`."""

from __future__ import annotations


def main() -> None:
    """The console script."""
    from conformance.command.application import application

    application()
