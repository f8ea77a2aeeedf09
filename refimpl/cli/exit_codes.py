"""The exit code of a failure, and its message of one or two lines on stderr."""

from __future__ import annotations

import errno
from enum import IntEnum

from refimpl import errors


class ExitCode(IntEnum):
    """The codes differ only where a script acts differently."""

    OK = 0
    REFUSED = 1
    """A check failed, or the operation was rejected or lost a race. Nothing was changed."""
    USAGE = 2
    """Usage error: an unknown table, an invalid option, a missing file."""
    UNAVAILABLE = 3
    """The owner or the disk is unavailable. Nothing landed; the same call may succeed later."""
    CORRUPTION = 4
    """Stored bytes contradict what was acknowledged: stop, and run verify."""
    OUTCOME_UNKNOWN = 5
    """The commit may or may not have landed: run resolve with the attempt id, never the same call."""
    DEFECT = 70
    """Internal error."""
    INTERRUPTED = 130
    """Ctrl-C."""


DOCUMENTED = """Exit codes: 0 success · 1 a check failed, or the operation was rejected or lost a race · 2 usage error \
· 3 owner or disk unavailable: try again · 4 corruption: stop, and run verify · 5 outcome unknown: resolve the \
attempt id, do not repeat · 70 internal error · 130 interrupted"""

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
        return f"Spark failed: {_first_line(error)}"
    return (
        f"internal error: {type(error).__name__}: {_first_line(error)}\n"
        "set COMMIT_OWNER_TRACEBACK=1 to get the traceback, and report it"
    )


def _way_to_know(error: errors.OutcomeUnknown) -> str:
    """An owner answers only for tables that it knows; a table that is being taken over has no id yet."""
    table, attempt = error.facts.get("table_id"), error.facts.get("attempt")
    if table is not None and attempt is not None:
        return f"find out whether it landed: commit-owner resolve {table} {attempt}"
    return "before a retry, check whether it landed: commit-owner show PATH --by-path, and commit-owner verify"


def _message_of_system(error: OSError) -> str:
    place = f" {error.filename}" if error.filename else ""
    what = error.strerror or str(error)
    step = (
        "free some space, then try again"
        if error.errno in (errno.ENOSPC, errno.EDQUOT)
        else "check the path and its permissions"
    )
    return f"system error{place}: {what}; {step}"


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
