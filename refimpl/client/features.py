"""Which table features this client lists in a protocol: the closed set, and who needs which.

==================  ===============  ====================================================================
feature             lists            listed when
==================  ===============  ====================================================================
managedCommit,      writer           the table has that table feature's owner
coordinatedCommits-
preview
catalogManaged      reader, writer   the same
inCommitTimestamp   writer           the table has an owner, or asked for in-commit timestamps
vacuumProtocolCheck reader, writer   the table is catalogManaged or coordinatedCommits-preview: engines expect it
appendOnly          writer           the property delta.appendOnly is set
(legacy ones)       as they were     what the versions of an older table implied, when it is upgraded
timestampNtz        reader, writer   a column is a timestamp without time zone
==================  ===============  ====================================================================

Only `refimpl.client.supported` says which tables are touched at all; this module never lists what it refuses.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from refimpl.actions import Metadata, Protocol
from refimpl.client.schema import parse, required_features
from refimpl.client.supported import writer_features
from refimpl.table_feature import (
    IN_COMMIT_TIMESTAMP_FEATURE,
    IN_COMMIT_TIMESTAMP_SYNONYM,
    VACUUM_PROTOCOL_CHECK,
    TableFeature,
)

APPEND_ONLY_FEATURE: Final = "appendOnly"
READER_VERSION_WITH_LISTS: Final = 3
WRITER_VERSION_WITH_LISTS: Final = 7

PLAIN_PROTOCOL: Final = Protocol(min_reader_version=1, min_writer_version=2)
"""What a filesystem table gets that needs nothing more."""

_READER_FEATURES: Final = frozenset({"timestampNtz", VACUUM_PROTOCOL_CHECK})
"""Of those listed on demand: the ones that readers need too."""

ADDED_ALONE: Final = frozenset({APPEND_ONLY_FEATURE, "domainMetadata", "timestampNtz"})
"""What a transaction may list before anything in the table uses it. The others change who may commit, or when a commit
was: creation, take-over, hand-back and the enablement of in-commit timestamps list those."""


def needed_features(metadata: Metadata) -> frozenset[str]:
    """Features that a table needs because of its columns and properties."""
    needed = set(required_features(parse(metadata.schema_string)))
    if metadata.configuration.get("delta.appendOnly", "").lower() == "true":
        needed.add(APPEND_ONLY_FEATURE)
    return frozenset(needed)


def first_protocol(metadata: Metadata, feature: TableFeature | None, *, in_commit_timestamps: bool) -> Protocol:
    """The protocol of a new table's version 0: nothing that the table does not need."""
    needed = needed_features(metadata)
    if feature is None and not in_commit_timestamps and needed <= {APPEND_ONLY_FEATURE}:
        return PLAIN_PROTOCOL
    empty = Protocol(min_reader_version=1, min_writer_version=WRITER_VERSION_WITH_LISTS, writer_features=())
    if in_commit_timestamps:
        needed |= {IN_COMMIT_TIMESTAMP_FEATURE}
    protocol = supporting(empty, needed)
    return protocol if feature is None else owned(protocol, feature)


def supporting(protocol: Protocol, features: Iterable[str]) -> Protocol:
    """The protocol with these features; itself if it has them all. Versions become lists where they must."""
    present = writer_features(protocol)
    missing = [name for name in sorted(set(features)) if name not in present]
    if not missing:
        return protocol
    return _listing(protocol, missing, [name for name in missing if name in _READER_FEATURES])


def owned(protocol: Protocol, feature: TableFeature) -> Protocol:
    """The protocol of a table that is given to an owner: managed-commits and catalog-managed, "Enablement"."""
    beside = (VACUUM_PROTOCOL_CHECK,) if feature.vacuum_protocol_check else ()
    both = (feature.name, *beside) if feature.reader_feature else beside
    writer = (feature.name, *beside)
    if not protocol.writes(IN_COMMIT_TIMESTAMP_SYNONYM):
        writer = (*writer, IN_COMMIT_TIMESTAMP_FEATURE)
    return _listing(protocol, writer, both)


def disowned(protocol: Protocol, feature: TableFeature, kept: str | None) -> Protocol:
    """The protocol of a table that goes back to the filesystem: without the table feature, in-commit timestamps stay.

    managed-commits, "Converting a managed-commit table to filesystem table". What came with the table feature
    goes with it, and so does an empty list for readers: those that never heard of lists read the table again.
    `kept`: the feature that the table had before, see `properties.KEPT_FEATURE`.
    """
    leaving = {feature.name} | ({VACUUM_PROTOCOL_CHECK} if feature.vacuum_protocol_check else set())
    leaving -= {kept}
    writer = tuple(name for name in protocol.writer_features or () if name not in leaving)
    if protocol.reader_features is None:
        return msgspec.structs.replace(protocol, writer_features=writer)
    reader = tuple(name for name in protocol.reader_features if name not in leaving)
    return Protocol(
        min_reader_version=READER_VERSION_WITH_LISTS if reader else 1,
        min_writer_version=WRITER_VERSION_WITH_LISTS,
        reader_features=reader or None,
        writer_features=writer,
    )


def _listing(protocol: Protocol, writer: Iterable[str], reader: Iterable[str]) -> Protocol:
    """Add to the lists; what the versions implied is listed by name."""
    wanted_by_readers = tuple(reader)
    readers = protocol.reader_features
    if readers is None and wanted_by_readers:
        readers = ("columnMapping",) if protocol.min_reader_version == 2 else ()
    return msgspec.structs.replace(
        protocol,
        min_reader_version=protocol.min_reader_version if readers is None else READER_VERSION_WITH_LISTS,
        min_writer_version=WRITER_VERSION_WITH_LISTS,
        reader_features=None if readers is None else _joined(readers, wanted_by_readers),
        writer_features=_joined(writer_features(protocol), writer),
    )


def _joined(present: Iterable[str], more: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*present, *more)))
