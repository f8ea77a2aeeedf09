"""What makes a history unusable, whatever it says of its subject."""

from __future__ import annotations


class InvalidHistoryError(Exception):
    """The history cannot be judged. `line` is where it stopped to make sense, counted from 1; None: it is about
    the whole."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem, line)
        self.problem = problem
        self.line = line

    def __str__(self) -> str:
        return self.problem if self.line is None else f"line {self.line}: {self.problem}"
