"""What a failure means to a script: its exit code, and one or two lines on the standard error."""

from __future__ import annotations

import errno
from enum import IntEnum

from refimpl import errors


class ExitCode(IntEnum):
    """The codes differ only where a script acts differently."""

    OK = 0
    REFUSED = 1
    """What was checked is wrong, or the operation was refused or lost. Nothing was changed."""
    USAGE = 2
    """The call is wrong: an unknown table, a bad option, a file that is not there."""
    UNAVAILABLE = 3
    """The owner or the disk cannot answer now. Nothing landed; the same call may succeed later."""
    CORRUPTION = 4
    """Stored bytes contradict what was acknowledged: stop, and run verify."""
    OUTCOME_UNKNOWN = 5
    """The commit may or may not have landed: run resolve with the attempt id, never the same call."""
    DEFECT = 70
    """A defect of this program."""
    INTERRUPTED = 130
    """Ctrl-C."""


DOCUMENTED = """Exit codes: 0 it is so, or done · 1 what was checked is wrong, or the operation was refused or lost \
· 2 the call is wrong · 3 the owner or the disk cannot answer now, try again · 4 corruption: stop, and run verify \
· 5 outcome unknown: resolve the attempt id, do not repeat · 70 a defect of this program · 130 interrupted"""

_REFUSALS = (
    errors.NameTakenError,
    errors.UnsupportedFeatureError,
    errors.InvalidTableError,
    errors.PathAccessError,
    errors.CommitRejectedError,
    errors.MaintenanceRefusedError,
    errors.LostRaceError,
    errors.ConcurrentModificationError,
)

_KINDS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], ExitCode], ...] = (
    (errors.OutcomeUnknown, ExitCode.OUTCOME_UNKNOWN),
    (errors.CorruptionError, ExitCode.CORRUPTION),
    (errors.OwnerUnavailableError, ExitCode.UNAVAILABLE),
    (_REFUSALS, ExitCode.REFUSED),
    (errors.InvalidRequestError, ExitCode.USAGE),
    ((FileNotFoundError, NotADirectoryError, IsADirectoryError, FileExistsError), ExitCode.USAGE),
    (OSError, ExitCode.UNAVAILABLE),
)


def exit_code(error: Exception) -> ExitCode:
    """The code that tells a script what to do about `error`."""
    for kinds, code in _KINDS:
        if isinstance(error, kinds):
            return code
    if is_of_spark(error):
        return ExitCode.REFUSED
    return ExitCode.DEFECT


def message(error: Exception) -> str:
    """The fact, the numbers and the next step, on one line or two."""
    if isinstance(error, errors.OutcomeUnknown):
        return f"{error}\n{_way_to_know(error)}"
    if isinstance(error, errors.DeltaError):
        return str(error)
    if isinstance(error, OSError):
        return _message_of_system(error)
    if is_of_spark(error):
        return f"Spark could not do it: {_first_line(error)}"
    return (
        f"this is a defect of commit-owner: {type(error).__name__}: {_first_line(error)}\n"
        "set COMMIT_OWNER_TRACEBACK=1 to see where, and report it"
    )


def _way_to_know(error: errors.OutcomeUnknown) -> str:
    """An owner answers only for tables that it knows; a table that is being taken over has no id yet."""
    table, attempt = error.facts.get("table_id"), error.facts.get("attempt")
    if table is not None and attempt is not None:
        return f"ask for it: commit-owner resolve {table} {attempt}"
    return "look before it is tried again: commit-owner show PATH --by-path, and commit-owner verify"


def _message_of_system(error: OSError) -> str:
    place = f" {error.filename}" if error.filename else ""
    what = error.strerror or str(error)
    step = (
        "make room, then try again" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "check the path and its rights"
    )
    return f"the system refused{place}: {what}; {step}"


def is_of_spark(error: Exception) -> bool:
    """Whether PySpark, or the bridge to its JVM, raised it."""
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def _first_line(error: Exception) -> str:
    """Of an exception in Java, that of its first cause: what Spark wraps around it names calls, not reasons."""
    cause = getattr(error, "java_exception", None)
    while cause is not None:
        inner = cause.getCause()
        if inner is None:
            return str(cause.getMessage() or cause.toString()).strip().partition("\n")[0]
        cause = inner
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
