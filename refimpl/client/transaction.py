"""One optimistic transaction: what it read, what it changes, and the loop that commits it.

    transaction = table.transaction(operation="DELETE")
    for file in transaction.read_files("month = '2013-01'"):
        transaction.remove(file)
    committed = transaction.commit()

DELTA.md#transactions; delta-commits-and-conflicts; the commit protocols of managed-commits and
catalog-managed. After a lost race the winners are checked, oldest first, and the same actions are
proposed for the next version; nothing is read again and only the commitInfo is encoded again.
A conflict ends the transaction. A transaction can be committed once.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from refimpl.client import conflicts
from refimpl.client.proposing import (
    DEFAULT_MAX_TRIES,
    CommitBytes,
    FilesystemProposer,
    Lost,
    OwnerProposer,
    Proposer,
    RetryPolicy,
    Won,
    commit_info,
)
from refimpl.client.snapshot import Snapshot
from refimpl.log.log_reading import LogReader
from refimpl.protocol import log_path, table_feature
from refimpl.protocol.actions import Action, Add, Cdc, DomainMetadata, FileKey, Metadata, Protocol, Remove, Txn
from refimpl.protocol.commits import AttemptId
from refimpl.protocol.errors import CERTAINLY_NOT_COMMITTED, CorruptLogError, InvalidRequestError, PathAccessError
from refimpl.protocol.in_commit_timestamp import after_lost_race, next_timestamp
from refimpl.protocol.log_path import Version
from refimpl.rows import row_tracking, type_widening
from refimpl.rows.condition import FileTest
from refimpl.rows.partition_values import from_text
from refimpl.schema import column_mapping, features, properties
from refimpl.schema.features import IsolationLevel, check_writable, isolation_level
from refimpl.schema.schema import DataType, Struct, check_columns, misfit, parse
from refimpl.storage.environment import Environment, process_id

if TYPE_CHECKING:
    from refimpl.rows.data_files import DataFileWriter
    from refimpl.rows.row_rules import RowRules


class Transaction:
    """Made by `Table.transaction`. Raises `UnsupportedFeatureError` and `PathAccessError` before any effect.

    `isolation`: by default the table's property `delta.isolationLevel`, else Serializable.
    `max_tries`: maximum number of proposals. `landed`: called after the commit; must not raise.
    """

    def __init__(
        self,
        reader: LogReader,
        snapshot: Snapshot,
        *,
        operation: str = "WRITE",
        parameters: Mapping[str, Any] | None = None,
        metrics: Mapping[str, str] | None = None,
        isolation: IsolationLevel | None = None,
        max_tries: int = DEFAULT_MAX_TRIES,
        landed: Callable[[Committed], None] | None = None,
    ) -> None:
        check_writable(snapshot.protocol, snapshot.metadata)
        _check_owner(reader, snapshot)
        self.reader = reader
        self.snapshot = snapshot
        self.id = self._environment.new_id()
        """The transaction's identity, `commitInfo.txnId`: the same in all its tries."""
        self.operation = operation
        self.parameters = dict(parameters or {})
        self.metrics = dict(metrics or {})
        self.isolation = isolation or isolation_level(
            snapshot.metadata.configuration.get("delta.isolationLevel", IsolationLevel.SERIALIZABLE.value)
        )
        self._max_tries = max_tries
        self._landed = landed
        self._whole_table = False
        self._predicates: list[conflicts.ReadPredicate] = []
        self._files_read: set[FileKey] = set()
        self._app_ids: set[str] = set()
        self._protocol: Protocol | None = None
        self._metadata: Metadata | None = None
        self._enables_timestamps = False
        self._adds: dict[FileKey, Add] = {}
        self._removes: dict[FileKey, Remove] = {}
        self._changes: list[Cdc] = []
        self._transactions: dict[str, Txn] = {}
        self._domains: dict[str, DomainMetadata] = {}
        self._rules: RowRules | None = None
        self._over = False
        self._may_have_landed = False
        self.keeps_row_ids = False
        """Whether copied and changed rows keep their ids: `refimpl.rows.row_tracking`."""

    # Reads

    def read_whole_table(self) -> list[Add]:
        """All active files; any file that another transaction adds or removes meanwhile is a conflict."""
        self._check_open()
        self._whole_table = True
        return list(self.snapshot.files.values())

    def read_files(self, predicate: FileTest | str | None = None) -> list[Add]:
        """The active files that may hold matching rows; without a predicate all files.

        Partition values alone decide which files of other transactions conflict: DELTA.md#pruning.
        """
        if predicate is None:
            return self.read_whole_table()
        self._check_open()
        test = predicate if isinstance(predicate, FileTest) else self.snapshot.file_test(predicate)
        self._predicates.append(conflicts.ReadPredicate(text=test.text, may_match=test.may_match_partition))
        return self._record_reads(test.may_match)

    def read_partitions(self, values: Iterable[Mapping[str, str | None]]) -> list[Add]:
        """The active files of the partitions with these values, in any spelling of the values.

        After `set_metadata`, values are compared in the types of the new metadata: a wider type can distinguish values
        that are equal in the old one.
        """
        self._check_open()
        before, after = self.snapshot.schema, {column.physical_name: column for column in self._schema().fields}
        known = [before[name] for name in self.snapshot.partition_columns]
        # this transaction may rename or drop a partition column
        columns = [after.get(column.physical_name, column) for column in known]

        def key(given: Mapping[str, str | None]) -> tuple[str, ...]:
            values = [from_text(given.get(column.physical_name), column.type) for column in columns]
            return tuple(repr(0.0 if value == 0.0 else value) for value in values)  # by `repr`, NaN equals itself

        wanted = {key(given) for given in values}
        test = conflicts.ReadPredicate(
            text=f"{len(wanted)} partitions", may_match=lambda add: key(add.partition_values) in wanted
        )
        self._predicates.append(test)
        return self._record_reads(test.may_match)

    def _record_reads(self, may_match: Callable[[Add], bool]) -> list[Add]:
        matching = [add for add in self.snapshot.files.values() if may_match(add)]
        self._files_read.update(add.key for add in matching)
        return matching

    def transaction_version(self, app_id: str) -> int | None:
        """The newest version that this application committed, or None."""
        self._check_open()
        self._app_ids.add(app_id)
        recorded = self.snapshot.transactions.get(app_id)
        return None if recorded is None else recorded.version

    # Changes

    def add(self, *adds: Add) -> None:
        """Add data files to the table, each once; with a value for each partition column."""
        self._check_open()
        joining = {add.key: add for add in adds}
        self._check_partition_values(adds)
        for add in adds:
            if joining[add.key] is not add or add.key in self._adds or add.key in self._removes:
                raise InvalidRequestError(
                    f"{add.path} is already in this transaction; add every file once", path=add.path
                )
        self._adds |= joining

    def remove(self, *files: Add, data_change: bool = True) -> None:
        """Remove active files from the table. `data_change`: False if other files keep their rows.

        The removal is never recorded as older than the version that was read, so a clock that is behind does not let
        VACUUM delete the file at once. Raises `InvalidRequestError` for a file that is not active, and for data removed
        from an append-only table.
        """
        self._check_open()
        now = max(self._environment.now(), self.snapshot.in_commit_timestamp or 0)
        if data_change and files:
            self.check_removable()
        for add in files:
            if add.key not in self.snapshot.files:
                raise InvalidRequestError(
                    f"{add.path} is not an active file of {self._label} in version {self.snapshot.version}",
                    path=add.path,
                )
            if add.key in self._adds:
                raise InvalidRequestError(
                    f"{add.path} is added in this transaction; it cannot be removed", path=add.path
                )
        for add in files:
            self._removes[add.key] = removal(add, at=now, data_change=data_change)

    def check_removable(self) -> None:
        """Raise `InvalidRequestError` for an append-only table."""
        features.check_removable(self.snapshot.protocol, self.snapshot.metadata, self._label)

    def add_changes(self, *changes: Cdc) -> None:
        """Add change data files. If a commit has any, they are its whole change data feed.

        DELTA.md#change-files. Raises `InvalidRequestError` for a table whose feed is off.
        """
        self._check_open()
        if changes and not features.feeds_changes(self.snapshot.metadata):
            raise InvalidRequestError(
                f"the change data feed of {self._label} is off; set {features.CHANGE_FEED_PROPERTY}=true"
            )
        self._changes += changes

    def claim(self, app_id: str, version: int) -> bool:
        """Whether a batch must be written: False if the application committed this version or a later one, or if this
        transaction records one.

        DELTA.md#idempotent-writers. If it returns True, this transaction records the batch, and a
        concurrent batch of the same application is a conflict.
        """
        if not isinstance(app_id, str) or type(version) is not int:
            raise InvalidRequestError(f"invalid batch ({app_id!r}, {version!r}); expected (app_id: str, version: int)")
        recorded = self.transaction_version(app_id)
        claimed = self._transactions.get(app_id)
        newest = recorded if claimed is None else claimed.version
        if newest is not None and version <= newest:
            return False
        self._transactions[app_id] = Txn(app_id=app_id, version=version, last_updated=self._environment.now())
        return True

    def set_domain(self, domain: str, configuration: str | None) -> None:
        """Replace the metadata of a domain; None removes it. Domains of Delta's features are rejected."""
        self._check_open()
        if domain.startswith("delta."):
            raise InvalidRequestError(f"the metadata domain {domain!r} belongs to a table feature", domain=domain)
        self._need("domainMetadata")
        removed = configuration is None
        self._domains[domain] = DomainMetadata(domain=domain, configuration=configuration or "", removed=removed)

    def set_properties(self, changes: Mapping[str, str], *, remove: Iterable[str] = ()) -> None:
        """Set and remove table properties. Those of the owner are rejected; `delta.enableInCommitTimestamps` can only
        become true: `enable_in_commit_timestamps`."""
        self._check_open()
        changes, enables = properties.without_enablement(changes)
        metadata = properties.edited(self._new_metadata, changes, remove)
        if column_mapping.maps_columns(metadata) != column_mapping.maps_columns(self._new_metadata):
            metadata = self._mapped(metadata)
        self._change(metadata)
        if enables:
            self.enable_in_commit_timestamps()

    def change_type(self, column: str, to: DataType) -> None:
        """Widen the type of a column, a member of a struct (`address.number`), or a part of an array or map
        (`tags.element`, `prices.value`); files stay. DELTA.md#type-widening.

        Raises `InvalidRequestError` for a change that is not permitted, for a column that a rule depends on, and if the
        table does not have `delta.enableTypeWidening`.
        """
        self._check_open()
        schema = type_widening.retyped(self._schema(), column, to)
        problem = type_widening.obstacle(self._new_protocol, self._new_metadata)
        if problem is not None:
            raise InvalidRequestError(
                f"the type of {column!r} in {self._label} cannot change: {problem}", column=column
            )
        self.set_metadata(msgspec.structs.replace(self._new_metadata, schema_string=schema.to_json()))

    def set_metadata(self, metadata: Metadata) -> None:
        """Replace schema, partitioning, name, comment or properties. Owner and in-commit timestamps stay.

        This transaction must replace the files that do not fit any more: `refimpl.schema.schema`.
        """
        self._check_open()
        before = self.snapshot.metadata
        if (metadata.id, metadata.format) != (before.id, before.format):
            raise InvalidRequestError(f"the id of {self._label} ({before.id}) and its format (parquet) cannot change")
        if (metadata.schema_string, metadata.partition_columns) != (before.schema_string, before.partition_columns):
            mapped = self.snapshot.schema.is_mapped
            check_columns(parse(metadata.schema_string), metadata.partition_columns, mapped=mapped)
        self._change(self._mapped(properties.carried_over(self._new_metadata, metadata)))
        self._record_types()

    def add_feature(self, name: str) -> None:
        """Add a table feature to the protocol, so that the table may use it; does nothing if it is listed.

        Raises `InvalidRequestError` for a feature that is not in `features.ADDED_ALONE`.
        """
        self._check_open()
        if name not in features.ADDED_ALONE:
            known = ", ".join(sorted(features.ADDED_ALONE))
            raise InvalidRequestError(f"the table feature {name!r} cannot be added alone; these can: {known}")
        self._need(name)

    def enable_in_commit_timestamps(self) -> None:
        """Enable in-commit timestamps from this commit on. Tables with an owner have them from version 0."""
        self._check_open()
        if self._enables_timestamps or self.snapshot.in_commit_timestamp is not None:
            return
        self._enables_timestamps = True
        self._need(table_feature.IN_COMMIT_TIMESTAMP_FEATURE)
        before = self._new_metadata
        configuration = {**before.configuration, table_feature.IN_COMMIT_TIMESTAMP_PROPERTY: "true"}
        self._metadata = msgspec.structs.replace(before, configuration=configuration)

    def _mapped(self, metadata: Metadata) -> Metadata:
        return column_mapping.assigned(metadata, self.snapshot.metadata, self._environment.new_id)

    def _record_types(self) -> None:
        """DELTA.md#type-widening: record the history of the types in the schema."""
        before, after, metadata = self.snapshot.schema, self._schema(), self._new_metadata
        records = type_widening.enabled(self._new_protocol, metadata)
        schema = type_widening.recorded(before, after, records=records)
        if schema is not after:
            self._metadata = msgspec.structs.replace(metadata, schema_string=schema.to_json())

    def _change(self, metadata: Metadata) -> None:
        metadata = properties.with_table_id(metadata, self.snapshot.feature, self.reader.table_id)
        metadata = row_tracking.with_hidden_columns(metadata, self._environment.new_id)
        needed = features.needed_features(metadata)
        self._metadata = metadata
        self._need(*needed)

    @property
    def _new_metadata(self) -> Metadata:
        """The table's metadata after this transaction."""
        return self._metadata or self.snapshot.metadata

    @property
    def _new_protocol(self) -> Protocol:
        return self._protocol or self.snapshot.protocol

    def _need(self, *names: str) -> None:
        before = self._new_protocol
        after = features.supporting(before, names)
        if after != before:
            self._protocol = after

    # Committing

    def data_file_writer(self, *, copies: bool = False) -> DataFileWriter:
        """A writer of rows of this table. `add` its files, inside `deleting_unless_landed`.

        `copies`: the rows may have the columns of `row_tracking.hidden_columns`, which keep their ids.
        """
        from refimpl.rows.data_files import DataFileWriter

        snapshot = self.snapshot
        hidden = row_tracking.hidden_columns(snapshot.protocol, snapshot.metadata) if copies else ()
        layout = dataclasses.replace(snapshot.layout, schema=Struct(fields=(*snapshot.schema.fields, *hidden)))
        return DataFileWriter(layout, new_id=self._environment.new_id, indexed=snapshot.indexed_columns)

    @property
    def rules(self) -> RowRules:
        """The rules for new rows; the commit advances the identity columns that they used."""
        if self._rules is None:
            from refimpl.rows.row_rules import RowRules

            snapshot = self.snapshot
            self._rules = RowRules.of(snapshot.protocol, snapshot.metadata, now=self._environment.now())
        return self._rules

    @contextlib.contextmanager
    def deleting_unless_landed(
        self, files: Collection[Add | Cdc], *, named: Callable[[], bool] = lambda: False
    ) -> Iterator[None]:
        """Delete new data files after an error (`files` may grow meanwhile), unless the commit may have landed: then
        the log may name them. A forked child that leaves the block deletes nothing: its parent commits the files.
        `named`: whether the log names the files because another request with the same files landed."""
        process = process_id()
        try:
            yield
        except BaseException:
            from refimpl.rows import data_files

            if not self._may_have_landed and process == process_id() and not named():
                data_files.delete(self.snapshot.layout, files)
            raise

    def commit(self) -> Committed:
        """Commit the transaction, also an empty one.

        Raises a kind of `ConcurrentModificationError` (redo the work), `LostRaceError` (too many tries),
        `CommitRejectedError` and similar errors (fix the call), `OutcomeUnknown` (ask the owner by attempt id).
        """
        loop = self.prepared()
        self._may_have_landed = True
        try:
            committed = loop.run()
        except CERTAINLY_NOT_COMMITTED:
            self._may_have_landed = False
            raise
        if self._landed is not None:
            self._landed(committed)
        return committed

    def prepared(self) -> CommitLoop:
        """The loop that commits this transaction, which gets no further changes."""
        self._check_open()
        self._advance_identities()
        self._check_metadata()
        self._over = True
        return self._loop(self._actions())

    def commit_if_needed(self) -> Committed | None:
        """Commit the transaction, or do nothing if it changes nothing.

        delta-commits-and-conflicts: an empty commit is skipped only at Serializable and SnapshotIsolation.
        """
        actions = self._actions()
        level = conflicts.effective_isolation(self.isolation, actions)
        if actions or level is IsolationLevel.WRITE_SERIALIZABLE:
            return self.commit()
        self._check_open()
        self._over = True
        return None

    def _advance_identities(self) -> None:
        """DELTA.md#identity-columns: the high water marks move in the commit of the rows."""
        before = self._new_metadata
        metadata = None if self._rules is None else self._rules.advanced(before)
        if metadata is not None:
            self._change(metadata)

    def _check_metadata(self) -> None:
        """Check that kept files, new files and files that other transactions add meanwhile fit the metadata."""
        if self._metadata is None:
            return
        self._check_partition_values(self._adds.values())
        self._give_row_ids()
        self._check_rules()
        self._check_clustering()
        before, after = self.snapshot.schema, self._schema()
        columns = after.physical_names(self._metadata.partition_columns)
        problem = misfit(before, after)
        if columns != before.physical_names(self.snapshot.partition_columns):
            problem = f"the table would be partitioned by {', '.join(self._metadata.partition_columns) or 'nothing'}"
        if problem is None:
            return
        kept = len(self.snapshot.files) - len(self._removes)
        if kept:
            raise InvalidRequestError(
                f"the metadata of {self._label} cannot be replaced: {problem}, and {kept} kept files do not fit; "
                f"replace them in the same transaction",
                files=kept,
            )
        self._whole_table = True

    def _check_rules(self) -> None:
        """DELTA.md#new-rules: existing rows must meet the rules that this commit adds, and all rules if it gives a
        column's name to another column."""
        assert self._metadata is not None
        before, after, protocol = self.snapshot, self._metadata, self._new_protocol
        widened = [*type_widening.changed_columns(before.schema, self._schema())]
        type_widening.check_rules(protocol, after, self._schema(), widened)
        rules_after = features.rules_of_rows(protocol, after)
        places, places_after = before.schema.places(), self._schema().places()
        moved = any(places_after.get(path) != physical_name for path, physical_name in places.items())
        if rules_after - features.rules_of_rows(before.protocol, before.metadata) or (rules_after and moved):
            from refimpl.rows.row_rules import RowRules

            self._whole_table = True
            rules = RowRules.of(protocol, after, now=self._environment.now())
            kept = (add for key, add in before.files.items() if key not in self._removes)
            rules.check_files(before.layout, [*kept, *self._adds.values()])

    def _check_clustering(self) -> None:
        """DELTA.md#clustering: a clustered table must have its clustering columns and no partitions."""
        assert self._metadata is not None
        clustered = self.snapshot.clustering_columns
        missing = [".".join(leaf) for leaf in sorted(clustered) if leaf[0] not in self._schema().physical().names]
        if clustered and (missing or self._metadata.partition_columns):
            problem = f"the column {missing[0]!r} would be missing" if missing else "it would have partitions"
            raise InvalidRequestError(f"{self._label} is clustered, but {problem}; write to a new table instead")

    def _give_row_ids(self) -> None:
        """DELTA.md#row-tracking: a commit that enables row tracking commits files without row ids again."""
        before, after, protocol = self.snapshot, self._new_metadata, self._new_protocol
        if row_tracking.enabled(protocol, after) and not row_tracking.enabled(before.protocol, before.metadata):
            self._whole_table = True
            for key, add in before.files.items():
                if add.base_row_id is None and key not in self._removes:
                    self._adds[key] = msgspec.structs.replace(add, data_change=False)

    def _check_partition_values(self, adds: Iterable[Add]) -> None:
        columns = self._schema().physical_names(self._new_metadata.partition_columns)
        for add in adds:
            if add.partition_values.keys() != set(columns):
                raise InvalidRequestError(
                    f"{add.path} has the partition values {add.partition_values}, but the table is partitioned by "
                    f"{', '.join(columns) or 'nothing'}",
                    path=add.path,
                )

    def _schema(self) -> Struct:
        """The table's schema after this transaction."""
        if self._metadata is None:
            return self.snapshot.schema
        return column_mapping.of_table(self._new_protocol, self._metadata)

    def _actions(self) -> list[Action]:
        described = [action for action in (self._protocol, self._metadata) if action is not None]
        return [
            *described,
            *self._transactions.values(),
            *self._domains.values(),
            *self._removes.values(),
            *self._adds.values(),
            *self._changes,
        ]

    def _loop(self, actions: list[Action]) -> CommitLoop:
        reads = conflicts.Reads(
            whole_table=self._whole_table,
            predicates=tuple(self._predicates),
            files=frozenset(self._files_read),
            app_ids=frozenset(self._app_ids),
        )
        summary = conflicts.TransactionSummary.of(actions, reads, self.isolation)
        info = commit_info(
            txn_id=self.id,
            timestamp=self._environment.now(),
            operation=self.operation,
            parameters=self.parameters,
            read_version=self.snapshot.version,
            isolation=summary.isolation.value,
            blind_append=conflicts.is_blind_append(reads, actions),
            metrics=self.metrics,
            tags=self._tags(),
        )
        return CommitLoop(
            reader=self.reader,
            snapshot=self.snapshot,
            txn_id=self.id,
            summary=summary,
            content=CommitBytes(info, actions, enables=self._metadata if self._enables_timestamps else None),
            enables_timestamps=self._enables_timestamps,
            own=(self._protocol, self._metadata),
            policy=RetryPolicy(self._environment, max_tries=self._max_tries, label=f"a commit to {self._label}"),
            free_row_id=row_tracking.first_free(self.snapshot.domains),
        )

    def _tags(self) -> dict[str, str]:
        """DELTA.md#row-ids-kept."""
        if not row_tracking.enabled(self._new_protocol, self._new_metadata):
            return {}
        kept = self.keeps_row_ids or not (self._adds and self._removes)
        return {row_tracking.PRESERVED: "true" if kept else "false"}

    @property
    def _environment(self) -> Environment:
        return self.reader.log.environment

    @property
    def _label(self) -> str:
        return self.reader.label

    def _check_open(self) -> None:
        if self._over:
            raise InvalidRequestError(f"this transaction on {self._label} was already committed; begin another one")


def _check_owner(reader: LogReader, snapshot: Snapshot) -> None:
    """managed-commits and catalog-managed, "Writer Requirements": commits go through the owner only."""
    if snapshot.location != reader.log.location:
        raise InvalidRequestError(
            f"the snapshot is of the table at {snapshot.location}, the transaction on {reader.label}",
            location=str(snapshot.location),
        )
    if reader.owner is None and snapshot.staleness is not None:
        raise PathAccessError(
            f"commits are rejected: {snapshot.staleness}; open the table by its name, if it has an owner",
            path=str(snapshot.location),
        )
    if table_feature.feature_of(snapshot.protocol) is None and reader.owner is not None:
        raise InvalidRequestError(
            f"version {snapshot.version} of {reader.label} has no owner; begin on the newest version, or, if the "
            f"table was handed back, open it by path",
            version=snapshot.version,
        )


def removal(add: Add, *, at: int, data_change: bool = True) -> Remove:
    """The action that removes an active file. `at`: ms since the epoch; retention counts from this time."""
    return Remove(
        path=add.path,
        data_change=data_change,
        deletion_timestamp=at,
        extended_file_metadata=True,
        partition_values=add.partition_values,
        size=add.size,
        tags=add.tags,
        deletion_vector=add.deletion_vector,
        base_row_id=add.base_row_id,
        default_row_commit_version=add.default_row_commit_version,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A transaction that landed."""

    version: Version
    in_commit_timestamp: int | None
    """ms since the epoch; None if the table has no in-commit timestamps."""
    txn_id: str
    attempt: AttemptId | None
    """The attempt that landed; None on the file system."""
    tries: int
    """Number of proposals, including the one that landed."""
    rebased_over: int
    """Commits of other writers that landed after the snapshot without a conflict."""


@dataclass(slots=True, kw_only=True)
class CommitLoop:
    """Propose, and after a lost race check the winners and propose the next version. `run` is called once."""

    reader: LogReader
    snapshot: Snapshot
    txn_id: str
    summary: conflicts.TransactionSummary
    content: CommitBytes
    enables_timestamps: bool
    own: tuple[Protocol | None, Metadata | None]
    """The protocol and metadata of the transaction, if it changes them."""
    policy: RetryPolicy
    free_row_id: int
    stamp: int | None = None
    version: Version = 0
    """The version to propose next."""
    basis: conflicts.ReadBasis = field(init=False)

    def run(self) -> Committed:
        """Returns the commit, or raises the error that ended it. Nothing happens after the commit point, so no later
        error can make a landed commit fail."""
        reader = self.reader
        files_only = reader.owner is None
        proposer = FilesystemProposer(reader, self.snapshot) if files_only else OwnerProposer(reader, self.policy)
        with proposer.turn() as waited:
            return self._propose_until_landed(proposer, look_first=waited)

    def begin(self) -> None:
        """The first version and its time."""
        self.basis = conflicts.ReadBasis(protocol=self.snapshot.protocol, metadata=self.snapshot.metadata)
        self.version = self.snapshot.version + 1
        self.stamp = self._first_stamp()

    def _propose_until_landed(self, proposer: Proposer, *, look_first: bool) -> Committed:
        self.begin()
        races = 0
        seen = proposer.ahead(self.version) if look_first else None
        while True:
            result = seen or self._propose(proposer)
            if isinstance(result, Won):
                return self.committed(result)
            winners = proposer.winners(result)
            if isinstance(winners, Won):
                return self.committed(winners)
            own = self.own_among(winners)
            if own is not None:
                return self.committed(Won(version=own.version, attempt=result.attempt))
            proposer.discard(result)
            self.rebase(winners)
            if seen is None:
                self.policy.pause(races)
                races += 1
            seen = None

    def own_among(self, winners: Sequence[conflicts.Winner]) -> conflicts.Winner | None:
        """The winner that is this transaction: some owners answer a replay as a conflict."""
        return next((winner for winner in winners if winner.info and winner.info.txn_id == self.txn_id), None)

    def rebase(self, winners: Sequence[conflicts.Winner]) -> None:
        """Check the winners, and continue after them. Raises a kind of `ConcurrentModificationError`."""
        for winner in winners:
            self.basis = conflicts.check(self.summary, winner, self.basis)
            self.free_row_id = row_tracking.after_winner(self.free_row_id, winner.of(DomainMetadata))
        self._restamp(winners[-1])
        self.version = winners[-1].version + 1

    def bytes_now(self) -> bytes:
        """The commit of `version`."""
        return self.content.stamped(self.version, self.stamp, self._row_id(self.basis))

    def _propose(self, proposer: Proposer) -> Won | Lost:
        self.policy.next_try(self.version)
        return proposer.propose(self.version, self.bytes_now())

    def _row_id(self, basis: conflicts.ReadBasis) -> int | None:
        """DELTA.md#row-ids-after-conflict: the first free row id; None if the table has no row tracking."""
        protocol, metadata = self.own
        tracked = row_tracking.assigns(protocol or basis.protocol, metadata or basis.metadata)
        return self.free_row_id if tracked else None

    def committed(self, won: Won) -> Committed:
        """This transaction as the version that it won."""
        return Committed(
            version=won.version,
            in_commit_timestamp=self.stamp,
            txn_id=self.txn_id,
            attempt=won.attempt,
            tries=self.policy.tries,
            rebased_over=won.version - self.snapshot.version - 1,
        )

    def _first_stamp(self) -> int | None:
        """in-commit timestamps, rules 2 and 3."""
        snapshot = self.snapshot
        if self.enables_timestamps or table_feature.in_commit_timestamps_enabled(snapshot.protocol, snapshot.metadata):
            return next_timestamp(self.reader.log.environment.now(), snapshot.timestamp)
        return None

    def _restamp(self, winner: conflicts.Winner) -> None:
        """in-commit timestamps, rule 4. For a commit that enables them, the winner's modification time counts."""
        if self.stamp is None:
            return
        log, name = self.reader.log, log_path.commit(winner.version)
        time = (log.modified(name) or 0) if self.enables_timestamps else winner.in_commit_timestamp
        if time is None:
            raise CorruptLogError(
                f"version {winner.version} of {self.reader.label} has no inCommitTimestamp although the table has "
                f"them enabled; correct the client that wrote it",
                path=str(log.folder / name),
            )
        self.stamp = after_lost_race(self.stamp, time)
