"""Take-over: gives a filesystem table to an owner. Hand-back: the reverse.

managed-commits, "Converting an existing filesystem based table to managed-commit table" and the reverse.
Both are one commit of protocol and metadata that becomes `<v>.json` by put-if-absent; the owner records a promise
before it and the result after it. After a concurrent commit the change is built again on the new version. It depends
only on protocol and metadata, so no other conflict is checked.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from refimpl.client.create import owned_metadata
from refimpl.client.proposing import CommitBytes, RetryPolicy, commit_info
from refimpl.client.snapshot import Snapshot
from refimpl.client.table import Table
from refimpl.protocol import log_path
from refimpl.protocol.actions import Metadata, Protocol
from refimpl.protocol.commit_owner import CommitOwner, MaintenancePolicy
from refimpl.protocol.commits import Conflict, DirectProposal, Outcome, Ratified, Rejected
from refimpl.protocol.errors import (
    CommitRejectedError,
    CorruptionError,
    DeltaError,
    InvalidRequestError,
    OutcomeUnknown,
    ProtocolChangedError,
)
from refimpl.protocol.in_commit_timestamp import next_timestamp
from refimpl.protocol.log_path import Version
from refimpl.protocol.table_feature import CATALOG_MANAGED, CommitMode, TableFeature
from refimpl.schema import features
from refimpl.schema.features import check_writable
from refimpl.schema.properties import KEPT_FEATURE, OWNER_PROPERTIES, with_kept_feature, with_table_id
from refimpl.storage.environment import Environment

TAKE_OVER: Final = "TAKE OVER"
HAND_BACK: Final = "HAND BACK"


def take_over(
    table: Table,
    owner: CommitOwner,
    name: str,
    feature: TableFeature = CATALOG_MANAGED,
    *,
    commit_mode: CommitMode | None = None,
    policy: MaintenancePolicy | None = None,
    owner_conf: Mapping[str, str] | None = None,
    txn_id: str | None = None,
) -> Table:
    """The filesystem table `table`, owned by `owner` under `name` from its next version on.

    Versions of the protocol become lists of features; in-commit timestamps are enabled. `txn_id`: the identity of
    the change in the log, the same in all its tries; by default a new one. Raises
    `InvalidRequestError` for a table that has an owner, `ProtocolChangedError` if it got one meanwhile,
    `CommitRejectedError`, `NameTakenError` and `LocationError` from the owner, `UnsupportedFeatureError`,
    `OutcomeUnknown`.
    """
    if table.owner is not None:
        raise InvalidRequestError(f"{table.label} is owned by {table.owner.name!r}; hand it back first")
    handle = Table.by_path(table.location, table.environment)
    retries = RetryPolicy(table.environment, label=f"the take-over of {table.location}")
    identity = txn_id or table.environment.new_id()
    while True:
        snapshot = handle.snapshot()
        _check_free(handle, snapshot, first=retries.tries == 0)
        check_writable(snapshot.protocol, snapshot.metadata)
        version = snapshot.version + 1
        retries.next_try(version)
        metadata = owned_metadata(snapshot.metadata, feature, owner, owner_conf)
        metadata = with_table_id(metadata, feature, table.environment.new_id())
        metadata = with_kept_feature(metadata, snapshot.protocol, feature)
        protocol = features.owned(snapshot.protocol, feature)
        parameters = {"owner": owner.name, "name": name}
        proposal = _proposal(handle, snapshot, protocol, metadata, TAKE_OVER, parameters, txn_id=identity)
        change = (handle.location, name, feature, version, proposal)
        send = partial(owner.take_over, *change, commit_mode=commit_mode, policy=policy)
        if _propose(send, handle, version, proposal, retries, identity):
            return _open_owned(handle, owner, version)


def _open_owned(handle: Table, owner: CommitOwner, version: Version) -> Table:
    """The table after its take-over landed: an error must not say that nothing landed."""
    try:
        return Table.resolve(handle.location, owner, handle.environment)
    except (DeltaError, OSError) as error:
        raise OutcomeUnknown(
            f"{owner.name!r} owns {handle.location} from version {version} on, but it cannot be opened: {error}; open "
            f"it again by its name",
            version=version,
        ) from error


def hand_back(table: Table, *, txn_id: str | None = None) -> Table:
    """The table without an owner, from its next version on; all earlier versions are published. `txn_id` as above.

    In-commit timestamps stay enabled. Raises `InvalidRequestError` for a table without an owner,
    `CommitRejectedError` (reason `OWNER_REFUSES` and others), `OutcomeUnknown`.
    """
    retries = RetryPolicy(table.environment, label=f"the hand-back of {table.label}")
    identity = txn_id or table.environment.new_id()
    while True:
        snapshot = table.snapshot()
        owner, table_id, feature = table.owner, table.table_id, snapshot.feature
        if owner is None or table_id is None or feature is None:
            raise InvalidRequestError(f"{table.label} is already a filesystem table at version {snapshot.version}")
        version = snapshot.version + 1
        retries.next_try(version)
        kept = {key: value for key, value in snapshot.metadata.configuration.items() if key not in OWNER_PROPERTIES}
        metadata = msgspec.structs.replace(snapshot.metadata, configuration=kept)
        protocol = features.disowned(snapshot.protocol, feature, snapshot.metadata.configuration.get(KEPT_FEATURE))
        proposal = _proposal(table, snapshot, protocol, metadata, HAND_BACK, {"owner": owner.name}, txn_id=identity)
        send = partial(owner.hand_back, table_id, version, proposal)
        if _propose(send, table, version, proposal, retries, identity):
            return Table(table.location, table.environment, owner=owner, name=table.name)


def _check_free(table: Table, snapshot: Snapshot, *, first: bool) -> None:
    if snapshot.feature is None:
        return
    if first:
        raise InvalidRequestError(f"{table.location} is already a {snapshot.feature.name} table; hand it back first")
    raise ProtocolChangedError(
        f"{table.location} became a {snapshot.feature.name} table during the take-over; use it through its owner",
        version=snapshot.version,
    )


def _proposal(
    table: Table,
    snapshot: Snapshot,
    protocol: Protocol,
    metadata: Metadata,
    operation: str,
    parameters: Mapping[str, Any],
    *,
    txn_id: str,
) -> DirectProposal:
    """The commit of an ownership change. in-commit timestamps, rules 2 and 3."""
    environment: Environment = table.environment
    now = environment.now()
    info = commit_info(
        txn_id=txn_id, timestamp=now, operation=operation, parameters=parameters, read_version=snapshot.version
    )
    content = CommitBytes(info, [protocol, metadata], enables=None if snapshot.enablement else metadata)
    stamped = content.stamped(snapshot.version + 1, next_timestamp(now, snapshot.timestamp))
    return DirectProposal(attempt=environment.new_id(), content=stamped)


def _propose(
    send: Callable[[], Outcome],
    table: Table,
    version: Version,
    proposal: DirectProposal,
    retries: RetryPolicy,
    txn_id: str,
) -> bool:
    """Whether the change became the version; False: another commit was first."""
    unknown = OutcomeUnknown(
        f"version {version} of {table.label} may or may not be the change of owner: its answer was lost, or its commit "
        f"was cleaned up; read the table before another attempt",
        table_id=table.table_id,
        version=version,
        attempt=proposal.attempt,
    )
    outcome = retries.ask_until_answered(send, unknown)
    match outcome:
        case Ratified():
            return True
        case Conflict():
            if _is_own(table, version, txn_id, unknown):
                return True
            retries.pause(retries.tries)
            return False
        case Rejected(reason=reason, detail=detail):
            raise CommitRejectedError(f"the owner rejected version {version} of {table.label}: {detail}", reason=reason)
    raise CorruptionError(
        f"the owner does not know the versions before {version} of {table.label}: it knows "
        f"{outcome.latest_ratified_version}; run verify",
        version=version,
    )


def _is_own(table: Table, version: Version, txn_id: str, unknown: OutcomeUnknown) -> bool:
    """Whether the version is this very change: some owners answer a replay as a conflict. Raises `unknown` if a cleanup
    deleted the commit."""
    path = table.log.find(log_path.commit(version))
    if path is None and table.log.newest_version() > version:
        raise unknown
    info = None if path is None else table.reader.commit_info(path)
    return info is not None and info.txn_id == txn_id
