"""All errors of the project, one class for each reaction of the caller.

======================  ==========================================================
the caller should       error
======================  ==========================================================
fix the call            `InvalidRequestError` and its kinds
rebase and try again    `LostRaceError` (the commit loop does this; callers get
                        the error only after the last try)
redo the whole work     `ConcurrentModificationError` and its kinds
resolve, never guess    `OutcomeUnknown`
wait or make room       `OwnerUnavailableError`
stop and investigate    `CorruptionError` and its kinds
======================  ==========================================================

Each error carries its facts as attributes and survives pickling, because Spark
tasks and worker processes raise them across process borders.
"""

from typing import Any


class DeltaError(Exception):
    """Base of all errors. `facts` are the values in the message."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts

    def __getattr__(self, name: str) -> Any:
        facts: dict[str, Any] = self.__dict__.get("facts", {})
        if name in facts:
            return facts[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.facts))


def _rebuild(kind: type[DeltaError], message: str, facts: dict[str, Any]) -> DeltaError:
    return kind(message, **facts)


class InvalidRequestError(DeltaError):
    """The request can never succeed unchanged; nothing was changed."""


class TableNotFoundError(InvalidRequestError):
    """No live table has this name, path or id."""


class MissingCallError(InvalidRequestError):
    """The owner does not have this call."""


class NameTakenError(InvalidRequestError):
    """Another table holds the name. Facts: `name`, `winner` (a `ResolvedTable`)."""


class LocationError(InvalidRequestError):
    """A table cannot live there: outside the warehouse, a symbolic link, or not empty."""


class UnsupportedFeatureError(InvalidRequestError):
    """The table uses a protocol version or feature that this client does not implement."""


class InvalidTableError(InvalidRequestError):
    """The table's protocol and properties contradict each other."""


class PathAccessError(InvalidRequestError):
    """A catalog-managed table was addressed by path.

    catalog-managed, "Reader Requirements": readers and writers discover it by catalog calls.
    """


class CommitRejectedError(InvalidRequestError):
    """The commit owner rejected the proposal. Facts: `reason`."""


class MaintenanceRefusedError(InvalidRequestError):
    """The owner's policy or the documents do not allow this maintenance now."""


class NotFoundInHistoryError(InvalidRequestError):
    """No version matches this time-travel request."""


class LostRaceError(DeltaError):
    """Another attempt has the proposed version. Rebase on the winners and propose again."""


class ConcurrentModificationError(DeltaError):
    """A commit that landed first invalidates this transaction: read again, then redo the work.

    DELTA.md#order-of-checks lists the kinds and the order of the checks.
    Facts: `version` of the winning commit.
    """


class ProtocolChangedError(ConcurrentModificationError):
    """Both commits changed the protocol, or the winner removed a feature."""


class MetadataChangedError(ConcurrentModificationError):
    """The winner changed metadata that this transaction relied on."""


class ConcurrentTransactionError(ConcurrentModificationError):
    """The same application transaction or metadata domain was committed meanwhile."""


class ConcurrentAppendError(ConcurrentModificationError):
    """The winner added files that this transaction would have read."""


class ConcurrentDeleteReadError(ConcurrentModificationError):
    """The winner removed a file that this transaction read."""


class ConcurrentDeleteDeleteError(ConcurrentModificationError):
    """The winner removed a file that this transaction removes too."""


class OutcomeUnknown(DeltaError):  # noqa: N818 - the documents' own word; it is a state, not a failure
    """The commit may or may not have landed. Ask the owner by attempt id; never propose again first.

    Facts: `table_id`, `version`, `attempt`; `landed` if the command line knows that the change landed.
    """


class OwnerUnavailableError(DeltaError):
    """The owner cannot answer now (full disk, read-only directory, lock held too long). Nothing landed."""


class BacklogFullError(OwnerUnavailableError):
    """Too many unbackfilled commits. Backfill, then propose the same version again. Facts: `limit`."""


class CorruptionError(DeltaError):
    """Stored bytes contradict what was acknowledged. Nothing is written until an operator has repaired it."""


class CorruptDataError(CorruptionError):
    """A data file or its deletion vector is missing or damaged. `commit-owner verify` does not read these."""


class CorruptLogError(CorruptionError):
    """A file of the log is missing, malformed or altered. Facts: `path`."""


class CorruptLedgerError(CorruptionError):
    """The owner's database is damaged, or has a schema that this release does not know. Facts: `path`."""


CERTAINLY_NOT_COMMITTED = (InvalidRequestError, LostRaceError, ConcurrentModificationError, OwnerUnavailableError)
"""Errors of a commit after which no log can name the new data files. After any other error a log may name them, so
they stay."""


def check_type(what: str, value: object, kinds: type | tuple[type | None, ...], expected: str) -> None:
    """Raise `InvalidRequestError` for an argument of another type; None among `kinds` allows None."""
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    types = tuple(type(None) if kind is None else kind for kind in kinds)
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise InvalidRequestError(f"invalid {what} {value!r}; expected {expected}")
