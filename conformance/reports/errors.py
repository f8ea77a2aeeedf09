"""What goes wrong with reports, for the person who asked for them."""

from __future__ import annotations


class ReportError(Exception):
    """A report cannot be written or read. `problem` says what, where, and what to do."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


class FolderInUseError(ReportError):
    """Another run writes its reports into the same folder."""
