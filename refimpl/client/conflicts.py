"""Whether a commit that landed first invalidates a transaction: pure checks, one winner at a time.

    basis = check(summary, winner, basis)      for each winning commit, oldest first

DELTA.md#order-of-checks, and delta-commits-and-conflicts. Step 8, the new in-commit
timestamp, is not a check: the commit loop stamps it. No I/O, clock or randomness here.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn, TypeVar, cast

from refimpl.protocol.actions import Action, Add, CommitInfo, DomainMetadata, FileKey, Metadata, Protocol, Remove, Txn
from refimpl.protocol.errors import (
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    ConcurrentModificationError,
    ConcurrentTransactionError,
    MetadataChangedError,
    ProtocolChangedError,
)
from refimpl.protocol.log_path import Version
from refimpl.protocol.table_feature import feature_of
from refimpl.schema.features import IsolationLevel, check_writable

Kind = TypeVar("Kind", bound=Action)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPredicate:
    """A condition by which a transaction read. `may_match` may return True for too many files, but never False for a
    matching one."""

    text: str
    may_match: Callable[[Add], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """The reads of a transaction."""

    whole_table: bool = False
    predicates: tuple[ReadPredicate, ...] = ()
    files: frozenset[FileKey] = frozenset()
    app_ids: frozenset[str] = frozenset()

    @property
    def any_file(self) -> bool:
        """Whether the transaction depends on files at all."""
        return self.whole_table or bool(self.predicates) or bool(self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSummary:
    """The parts of a transaction that a winner can conflict with."""

    reads: Reads
    isolation: IsolationLevel
    changes_protocol: bool = False
    changes_metadata: bool = False
    domains: frozenset[str] = frozenset()
    removed: frozenset[FileKey] = frozenset()

    @classmethod
    def of(cls, actions: Sequence[Action], reads: Reads, isolation: IsolationLevel) -> "TransactionSummary":
        """`isolation` is the requested level; it is downgraded here if that does not change the result."""
        return cls(
            reads=reads,
            isolation=effective_isolation(isolation, actions),
            changes_protocol=any(isinstance(action, Protocol) for action in actions),
            changes_metadata=any(isinstance(action, Metadata) for action in actions),
            domains=frozenset(action.domain for action in actions if isinstance(action, DomainMetadata)),
            removed=frozenset(action.key for action in actions if isinstance(action, Remove)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """A commit that landed first. `actions` as in its bytes, including its commitInfo if it has one."""

    version: Version
    actions: Sequence[Action]
    _by_kind: dict[type[Action], list[Action]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Group the actions once: every check needs one kind, and a winner may have many files."""
        for action in self.actions:
            self._by_kind.setdefault(type(action), []).append(action)

    def of(self, kind: type[Kind]) -> list[Kind]:
        """Its actions of one kind, in their order."""
        return cast("list[Kind]", self._by_kind.get(cast(type[Action], kind), []))

    @property
    def info(self) -> CommitInfo | None:
        return next(iter(self.of(CommitInfo)), None)

    @property
    def blind_append(self) -> bool:
        """Whether the winner's commitInfo declares it a blind append."""
        return self.info is not None and self.info.fields.get("isBlindAppend") is True

    @property
    def in_commit_timestamp(self) -> int | None:
        return None if self.info is None else self.info.in_commit_timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBasis:
    """Protocol and metadata of the version below the one that is checked."""

    protocol: Protocol
    metadata: Metadata

    def after(self, winner: Winner) -> "ReadBasis":
        changed = self
        for protocol in winner.of(Protocol):
            changed = replace(changed, protocol=protocol)
        for metadata in winner.of(Metadata):
            changed = replace(changed, metadata=metadata)
        return changed


def effective_isolation(requested: IsolationLevel, actions: Sequence[Action]) -> IsolationLevel:
    """The isolation level at which a transaction with these actions runs.

    DELTA.md#downgrade: if a transaction changes no data, its order among others does not matter, so
    SnapshotIsolation is enough. This applies only to transactions with nothing but file actions. An empty
    transaction at WriteSerializable keeps its level: that it is empty depends on what it read.
    """
    files = [action for action in actions if isinstance(action, Add | Remove)]
    if len(files) != len(actions) or any(action.data_change for action in files):
        return requested
    if requested is IsolationLevel.WRITE_SERIALIZABLE and not files:
        return requested
    return IsolationLevel.SNAPSHOT_ISOLATION


def is_blind_append(reads: Reads, actions: Sequence[Action]) -> bool:
    """DELTA.md#blind-append: it read no predicate and no file, and its only file actions are adds."""
    return not reads.any_file and not any(isinstance(action, Remove) for action in actions)


def check(summary: TransactionSummary, winner: Winner, basis: ReadBasis) -> ReadBasis:
    """The basis for the next winner. Raises the kind of `ConcurrentModificationError` that `winner` causes.

    Raises `UnsupportedFeatureError` if this client cannot write the table after `winner`.
    """
    after = basis.after(winner)
    _protocol(summary, winner, basis, after)
    _metadata(summary, winner, basis, after)
    _domains(summary, winner)
    _application_transactions(summary, winner)
    _added_files(summary, winner, basis)
    _removed_files_read(summary, winner)
    _removed_files_removed(summary, winner)
    return after


def _protocol(summary: TransactionSummary, winner: Winner, basis: ReadBasis, after: ReadBasis) -> None:
    """Step 1. A change of the owner is a change of the protocol: managed-commits, "Converting an existing filesystem
    based table", makes filesystem writers abort, and a hand-back removes a feature."""
    if not winner.of(Protocol):
        return
    old_owner, new_owner = feature_of(basis.protocol), feature_of(after.protocol)
    if old_owner is not new_owner:
        names = [feature.name if feature else "filesystem" for feature in (old_owner, new_owner)]
        _conflict(
            ProtocolChangedError, winner, f"made the {names[0]} table a {names[1]} table", "resolve the table again"
        )
    check_writable(after.protocol, after.metadata)
    if summary.changes_protocol:
        _conflict(ProtocolChangedError, winner, "changed the protocol, as this transaction does")
    dropped = _features(basis.protocol) - _features(after.protocol)
    if dropped:
        _conflict(ProtocolChangedError, winner, f"dropped the table feature {', '.join(sorted(dropped))}")


def _features(protocol: Protocol) -> set[str]:
    return {*(protocol.reader_features or ()), *(protocol.writer_features or ())}


def _metadata(summary: TransactionSummary, winner: Winner, basis: ReadBasis, after: ReadBasis) -> None:
    """Step 2. The files and statistics of every transaction depend on the schema, the partitioning and Delta's own
    properties, but not on names, comments and users' own properties."""
    if not winner.of(Metadata):
        return
    if summary.changes_metadata:
        _conflict(MetadataChangedError, winner, "changed the metadata, as this transaction does")
    changed = changed_foundations(basis.metadata, after.metadata)
    if changed:
        _conflict(MetadataChangedError, winner, f"changed {', '.join(changed)}")


def changed_foundations(before: Metadata, after: Metadata) -> list[str]:
    """The changes of metadata that every transaction relies on, as phrases."""
    parts = {
        "the table's id": (before.id, after.id),
        "the schema": (_without_marks(before.schema_string), _without_marks(after.schema_string)),
        "the partitioning": (before.partition_columns, after.partition_columns),
        "the file format": (before.format, after.format),
    }
    changed = [name for name, (old, new) in parts.items() if old != new]
    keys = sorted(before.configuration.keys() | after.configuration.keys())
    return changed + [
        f"the property {key}"
        for key in keys
        if key.lower().startswith("delta.") and before.configuration.get(key) != after.configuration.get(key)
    ]


def _without_marks(schema_string: str) -> str:
    """The schema without the high water marks of identity columns: only transactions that assign identity values
    depend on these marks, and they change the metadata themselves. DELTA.md#identity-columns."""
    return _MARK.sub("", schema_string)


_MARK: Final = re.compile(
    r',\s*"delta\.identity\.highWaterMark"\s*:\s*-?\d+|"delta\.identity\.highWaterMark"\s*:\s*-?\d+\s*,?'
)


def _domains(summary: TransactionSummary, winner: Winner) -> None:
    """Step 3."""
    for action in winner.of(DomainMetadata):
        if action.domain in summary.domains:
            _conflict(
                ConcurrentTransactionError, winner, f"wrote the metadata domain {action.domain!r}, as this one does"
            )


def _application_transactions(summary: TransactionSummary, winner: Winner) -> None:
    """Step 4."""
    for action in winner.of(Txn):
        if action.app_id in summary.reads.app_ids:
            _conflict(
                ConcurrentTransactionError,
                winner,
                f"recorded version {action.version} of application {action.app_id!r}, which this one read",
            )


def _added_files(summary: TransactionSummary, winner: Winner, basis: ReadBasis) -> None:
    """Step 5, the only one that depends on the isolation level. A transaction that changes the metadata ignores no
    file at any level: files that were written with the old schema or partitioning may not fit the new one."""
    if not summary.changes_metadata:
        if summary.isolation is IsolationLevel.SNAPSHOT_ISOLATION:
            return
        if summary.isolation is IsolationLevel.WRITE_SERIALIZABLE and winner.blind_append:
            return
    for action in winner.of(Add):
        read = _why_it_would_have_been_read(summary.reads, action, basis.metadata)
        if read is not None:
            _conflict(ConcurrentAppendError, winner, f"added {action.path}, and this transaction read {read}")


def _why_it_would_have_been_read(reads: Reads, add: Add, metadata: Metadata) -> str | None:
    """DELTA.md#pruning."""
    if reads.whole_table:
        return "the whole table"
    if reads.predicates and not metadata.partition_columns:
        return "by a condition from a table without partitions"
    for predicate in reads.predicates:
        if predicate.may_match(add):
            return predicate.text
    return None


def _removed_files_read(summary: TransactionSummary, winner: Winner) -> None:
    """Step 6."""
    for action in winner.of(Remove):
        if summary.reads.whole_table or action.key in summary.reads.files:
            _conflict(ConcurrentDeleteReadError, winner, f"removed {action.path}, which this transaction read")


def _removed_files_removed(summary: TransactionSummary, winner: Winner) -> None:
    """Step 7."""
    for action in winner.of(Remove):
        if action.key in summary.removed:
            _conflict(ConcurrentDeleteDeleteError, winner, f"removed {action.path}, as this transaction does")


def _conflict(
    kind: type[ConcurrentModificationError], winner: Winner, what: str, next_step: str = "read again, then redo it"
) -> NoReturn:
    operation = winner.info.fields.get("operation") if winner.info is not None else None
    named = f" ({operation})" if isinstance(operation, str) else ""
    rule = kind.__name__.removesuffix("Error")
    raise kind(
        f"version {winner.version}{named} landed first and {what} ({rule}); {next_step}",
        version=winner.version,
        operation=operation,
        rule=rule,
    )
