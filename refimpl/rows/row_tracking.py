"""Row tracking: the ids and commit versions of rows. A writer assigns them, and keeps them when it copies rows.

DELTA.md#row-ids-assigned. A row's id is the file's `baseRowId` plus the row's number in the file, and its commit
version the file's `defaultRowCommitVersion`, unless the file has a hidden column with a value for it. Both depend on
the version that a commit gets and on the files that other commits added before, so they are assigned for one proposal
and again for the next one: `refimpl.client.transaction`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from refimpl.protocol.actions import Action, Add, DomainMetadata, Metadata, Protocol
from refimpl.protocol.errors import CorruptLogError, InvalidRequestError, InvalidTableError
from refimpl.protocol.log_path import Version
from refimpl.rows.file_statistics import record_count
from refimpl.schema.features import ROW_TRACKING, wants, writer_features
from refimpl.schema.properties import ROW_ID_COLUMN, ROW_VERSION_COLUMN
from refimpl.schema.schema import Field, Primitive

DOMAIN: Final = "delta.rowTracking"
_MARK: Final = "rowIdHighWaterMark"
SUSPENDED: Final = "delta.rowTrackingSuspended"
PRESERVED: Final = "delta.rowTracking.preserved"
"""A tag in `commitInfo`: whether copied rows kept their ids and commit versions, and changed rows their ids."""


def assigns(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether every `add` of a commit needs row ids: the feature is supported and not suspended."""
    suspended = metadata.configuration.get(SUSPENDED, "").lower() == "true"
    return ROW_TRACKING in writer_features(protocol) and not suspended


def enabled(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether all rows have ids, so that a writer must keep them when it copies rows."""
    return assigns(protocol, metadata) and wants(metadata, ROW_TRACKING)


def with_hidden_columns(metadata: Metadata, new_id: Callable[[], str]) -> Metadata:
    """The metadata with names for the hidden columns, if it enables row tracking and lacks them."""
    if not wants(metadata, ROW_TRACKING):
        return metadata
    names = {ROW_ID_COLUMN: f"_row-id-col-{new_id()}", ROW_VERSION_COLUMN: f"_row-commit-version-col-{new_id()}"}
    return msgspec.structs.replace(metadata, configuration={**names, **metadata.configuration})


def hidden_columns(protocol: Protocol, metadata: Metadata) -> tuple[Field, ...]:
    """The columns of data files that keep ids and commit versions of copied rows; empty if rows have no ids to keep.

    DELTA.md#row-ids-kept. Raises `InvalidTableError` if the table does not name them.
    """
    if not enabled(protocol, metadata):
        return ()
    names = {key: metadata.configuration.get(key) for key in (ROW_ID_COLUMN, ROW_VERSION_COLUMN)}
    missing = [key for key, name in names.items() if not name]
    if missing:
        raise InvalidTableError(
            f"row tracking is enabled, but the table has no {' and no '.join(missing)}; set them with the client that "
            "enabled row tracking"
        )
    return tuple(Field(name=str(name), type=Primitive(name="long")) for name in names.values())


def first_free(domains: Mapping[str, DomainMetadata]) -> int:
    """The first row id above the high water mark of these domains."""
    domain = domains.get(DOMAIN)
    return 0 if domain is None else high_water_mark(domain) + 1


def high_water_mark(domain: DomainMetadata) -> int:
    """The highest assigned row id; -1 if the domain is removed. Raises `CorruptLogError`."""
    if domain.removed:
        return -1
    try:
        mark = msgspec.json.decode(domain.configuration)[_MARK]
    except (msgspec.DecodeError, LookupError, TypeError, RecursionError):
        mark = None
    if type(mark) is not int:
        raise CorruptLogError(
            f"the metadata domain {DOMAIN} is {domain.configuration!r}; expected JSON with {_MARK}", domain=DOMAIN
        )
    return mark


def after_winner(free: int, domains: Iterable[DomainMetadata]) -> int:
    """The first free row id after a commit that landed in between; `free` is the one before it."""
    return max([free, *(high_water_mark(domain) + 1 for domain in domains if domain.domain == DOMAIN)])


def numbered(adds: Iterable[Add], version: Version, free: int) -> list[Action]:
    """The files with row ids from `free` on and the commit version `version`; then the new high water mark, if any.

    A file that has a `baseRowId` is committed again and keeps it. Raises `InvalidRequestError` for a file whose
    statistics lack the number of rows.
    """
    result: list[Action] = []
    first = free
    for add in adds:
        if add.base_row_id is not None:
            result.append(add)
            continue
        result.append(msgspec.structs.replace(add, base_row_id=free, default_row_commit_version=version))
        free += _physical_rows(add)
    if free > first:
        configuration = msgspec.json.encode({_MARK: free - 1}).decode()
        result.append(DomainMetadata(domain=DOMAIN, configuration=configuration, removed=False))
    return result


def _physical_rows(add: Add) -> int:
    """The number of rows in the file, deleted ones included."""
    count = record_count(add)
    if count is None or count < 0:
        raise InvalidRequestError(
            f"{add.path} has no number of rows in its statistics, which row tracking needs; add numRecords",
            path=add.path,
        )
    return count
