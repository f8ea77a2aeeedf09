"""The kit's transactions and snapshots, as the reference's client makes them."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

import msgspec

from conformance.adapters.reference import translation
from conformance.interface import messages as m
from refimpl.actions import Add
from refimpl.client.snapshot import Snapshot
from refimpl.client.transaction import Transaction
from refimpl.errors import (
    CERTAINLY_NOT_COMMITTED,
    ConcurrentModificationError,
    CorruptLogError,
    DeltaError,
    InvalidRequestError,
)
from refimpl.table_feature import IN_COMMIT_TIMESTAMP_FEATURE

PARTITION_COLUMN: Final = "part"
"""The kit's only one."""


def snapshot_read(snapshot: Snapshot) -> m.SnapshotRead:
    adds = sorted(snapshot.files.values(), key=lambda add: add.path)
    warnings = list(snapshot.warnings)
    try:
        timestamp: int | None = snapshot.timestamp
    except CorruptLogError as error:
        timestamp = None
        warnings.append(str(error))
    return m.SnapshotRead(
        version=snapshot.version,
        files=tuple(sorted(unquote(add.path) for add in adds)),
        stale=snapshot.stale,
        timestamp=timestamp,
        properties=dict(snapshot.metadata.configuration),
        partitions={unquote(add.path): add.partition_values.get(PARTITION_COLUMN) or None for add in adds},
        applications={name: txn.version for name, txn in snapshot.transactions.items()},
        domains={name: domain.configuration for name, domain in snapshot.domains.items()},
        warnings=tuple(warnings),
    )


def described(transaction: Transaction, request: m.Transact) -> bool:
    """Tell the transaction what it reads and does; False if the table has the application's batch already."""
    if request.application is not None and not transaction.claim(*request.application):
        return False
    if request.reads == "*":
        transaction.read_whole_table()
    elif request.reads is not None:
        transaction.read_files(_in_partition(request.reads))
    if request.replace_table:
        transaction.remove(*transaction.read_whole_table(), data_change=request.data_change)
        transaction.set_metadata(msgspec.structs.replace(transaction.snapshot.metadata, configuration={}))
    else:
        transaction.remove(*_named(transaction.snapshot, request.removes), data_change=request.data_change)
    if request.partition_by is not None:
        now = transaction.snapshot.metadata
        transaction.set_metadata(msgspec.structs.replace(now, partition_columns=request.partition_by))
    if request.set_properties or request.unset_properties:
        transaction.set_properties(request.set_properties, remove=request.unset_properties)
    if request.add_feature == IN_COMMIT_TIMESTAMP_FEATURE:
        transaction.enable_in_commit_timestamps()
    elif request.add_feature is not None:
        transaction.add_feature(request.add_feature)
    if request.domain is not None:
        transaction.set_domain(*request.domain)
    columns = transaction.snapshot.partition_columns if request.partition_by is None else request.partition_by
    transaction.add(*(_joining(transaction, file, columns, data_change=request.data_change) for file in request.adds))
    return True


def _in_partition(value: str) -> str:
    """The condition in Spark's SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"{PARTITION_COLUMN} = '{escaped}'"


def _named(snapshot: Snapshot, paths: tuple[str, ...]) -> list[Add]:
    """The active files with these paths, which the log writes encoded."""
    active = {unquote(add.path): add for add in snapshot.files.values()}
    missing = [path for path in paths if path not in active]
    if missing:
        raise InvalidRequestError(
            f"{missing[0]} is no active file of version {snapshot.version}; remove what the snapshot has"
        )
    return [active[path] for path in paths]


def _joining(transaction: Transaction, file: m.DataFile, columns: tuple[str, ...], *, data_change: bool) -> Add:
    return Add(
        path=quote(file.path),
        partition_values={PARTITION_COLUMN: file.partition} if PARTITION_COLUMN in columns else {},
        size=1,
        modification_time=transaction.reader.log.environment.now(),
        data_change=data_change,
    )


def landed(transaction: Transaction, *, if_needed: bool) -> m.Answer:
    """Once something may have been proposed, only some errors say that nothing landed."""
    try:
        committed = transaction.commit_if_needed() if if_needed else transaction.commit()
    except ConcurrentModificationError:
        return m.Conflict()
    except CERTAINLY_NOT_COMMITTED as error:
        return translation.failure(error)
    except DeltaError as error:
        return m.Unknown(reason=f"{type(error).__name__}: {error.message}")
    return m.Committed(version=None if committed is None else committed.version)
