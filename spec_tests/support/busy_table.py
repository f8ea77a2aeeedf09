"""A table with some history and real data files, and what a test compares of it."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest

from refimpl import log_path
from refimpl.actions import Add
from refimpl.client.data_files import DataFileWriter
from refimpl.client.schema import parse
from refimpl.client.snapshot import Snapshot
from refimpl.client.table import Table
from refimpl.commit_owner import ALWAYS_ALLOWED, Maintenance, MaintenancePolicy
from refimpl.table_feature import TABLE_FEATURES
from spec_tests.client.conftest import SCHEMA, Setting
from spec_tests.support.other_readers import Rows

DAY = 86_400_000
GENEROUS = MaintenancePolicy(backfill_every=None, allowed=ALWAYS_ALLOWED | {Maintenance.METADATA_CLEANUP})
EVERY_COMMIT = MaintenancePolicy(backfill_every=1, allowed=ALWAYS_ALLOWED | {Maintenance.METADATA_CLEANUP})

every_kind = pytest.mark.parametrize(
    "feature", [None, *TABLE_FEATURES.values()], ids=lambda feature: feature.name if feature else "filesystem"
)
both = pytest.mark.parametrize("feature", TABLE_FEATURES.values(), ids=lambda feature: feature.name)


def backfill(setting: Setting, table: Table, version: int | None = None) -> None:
    if table.owner is not None and table.table_id is not None:
        setting.owner.backfill_to_version(table.table_id, version)


def written(setting: Setting, table: Table, rows: Rows) -> list[Add]:
    writer = DataFileWriter(table.location, parse(SCHEMA), ["month"], new_id=setting.environment.new_id)
    writer.write(pa.table({"id": [row[0] for row in rows], "month": [row[1] for row in rows]}))
    return [action for action in writer.finish() if isinstance(action, Add)]


def busy(setting: Setting, table: Table, commits: int) -> Rows:
    """So many commits with rows, the later ones replacing those of the first month; the rows that are left."""
    rows: Rows = []
    for number in range(commits):
        transaction = setting.again(table).transaction()
        new: Rows = [(number, f"{number % 3:02d}"), (number + 100, "ü/=%")]
        if number == commits - 1:
            gone = transaction.read_files("month = '00'")
            transaction.remove(*gone)
            rows = [row for row in rows if row[1] != "00"]
        transaction.add(*written(setting, table, new))
        transaction.claim("job", number)
        transaction.commit()
        rows += new
    return sorted(rows)


def state(snapshot: Snapshot) -> tuple[object, ...]:
    """What a snapshot holds, `dataChange` aside: a checkpoint does not keep it."""
    return (
        snapshot.version,
        snapshot.protocol,
        snapshot.metadata,
        {key: msgspec.structs.replace(add, data_change=True) for key, add in snapshot.files.items()},
        {key: msgspec.structs.replace(remove, data_change=True) for key, remove in snapshot.tombstones.items()},
        dict(snapshot.transactions),
        dict(snapshot.domains),
        snapshot.in_commit_timestamp,
    )


def names(table: Table) -> list[str]:
    return [path.name for path in table.log.listing()]


def hide(table: Table, *versions: int) -> None:
    for version in versions:
        table.log.delete(log_path.commit(version))
