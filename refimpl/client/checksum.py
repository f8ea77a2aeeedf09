"""Writing version checksums `<v>.crc`: what a version holds, for those who want to compare.

Delta's protocol, "Version Checksum File"; catalog-managed, "Maintenance Operations": of any version,
published or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from refimpl import log_path
from refimpl.client import maintenance
from refimpl.commit_owner import Maintenance
from refimpl.log_path import Version

if TYPE_CHECKING:
    from refimpl.client.snapshot import Snapshot
    from refimpl.client.table import Table

_ENCODER: Final = msgspec.json.Encoder()


def write_checksum(table: Table, version: Version | None = None) -> str:
    """The checksum of a version, the newest by default; the file's name. One that is there already stays.

    Raises `MaintenanceRefusedError` where the owner forbids it, and what `Table.snapshot` raises.
    """
    snapshot = table.snapshot(version=version)
    maintenance.ask(table, snapshot, Maintenance.CHECKSUM)
    name = log_path.checksum(snapshot.version)
    table.log.put_if_absent(name, _content(snapshot))
    return name


def _content(snapshot: Snapshot) -> bytes:
    fields: dict[str, Any] = {
        "tableSizeBytes": snapshot.size_in_bytes,
        "numFiles": len(snapshot.files),
        "numMetadata": 1,
        "numProtocol": 1,
        "setTransactions": list(snapshot.transactions.values()),
        "domainMetadata": list(snapshot.domains.values()),
        "metadata": snapshot.metadata,
        "protocol": snapshot.protocol,
    }
    if snapshot.in_commit_timestamp is not None:
        fields["inCommitTimestampOpt"] = snapshot.in_commit_timestamp
    return _ENCODER.encode(fields)
