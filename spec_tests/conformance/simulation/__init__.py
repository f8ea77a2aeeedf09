"""Tests of the simulator, and the mutants that only it exposes."""

from __future__ import annotations

from conformance.command.application import application


def simulate(*arguments: str) -> int:
    """The exit code of `delta-commit-conformance simulate`."""
    code: int = application(["simulate", *arguments], standalone_mode=False)
    return code
