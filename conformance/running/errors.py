"""Why there is no run, or none that goes on."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a run means to a script. Where several hold: 2 before 1 before 3 before 0."""

    CONFORMANT = 0
    """Every case that ran was held, or is a known failure, and every declared profile was judged."""
    VIOLATION = 1
    """A requirement is violated, or a known failure is stale. What was found counts even if the run is incomplete."""
    USAGE = 2
    """Usage error, a subject that does not implement the interface, or an empty selection: no verdict is possible."""
    INCOMPLETE = 3
    """Nothing is violated so far, but not everything was judged: the budget expired, the run was interrupted, a
    worker died, or no case of a declared profile came to a verdict."""


class UnusableError(Exception):
    """No run is possible: the call is wrong, or the subject cannot be asked. `problem` says what and what to do. If it
    is the answer to the first `hello` that is wrong: `came` is that answer, and `says` what the interface asks for.
    `exit_code`: incomplete if time ran out before anybody could know whether a run is possible."""

    def __init__(self, problem: str, came: str = "", says: str = "", *, exit_code: ExitCode = ExitCode.USAGE) -> None:
        super().__init__(problem)
        self.problem = problem
        self.came = came
        self.says = says
        self.exit_code = exit_code
