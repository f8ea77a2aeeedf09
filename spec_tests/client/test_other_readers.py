"""Tables written here, read row for row by delta-rs and DuckDB."""

from __future__ import annotations

import pytest

from refimpl.client.maintenance import compact, write_checkpoint, write_checksum
from refimpl.client.ownership import hand_back
from refimpl.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, CommitMode, TableFeature
from spec_tests.client.conftest import ON_REQUEST, Setting
from spec_tests.support.busy_table import (
    EVERY_COMMIT,
    backfill,
    busy,
    hide,
    written,
)
from spec_tests.support.other_readers import by_delta_rs, by_duckdb


@pytest.mark.parametrize("feature", [None, MANAGED_COMMIT], ids=lambda f: f.name if f else "filesystem")
@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_other_readers_see_the_same_rows(setting: Setting, feature: TableFeature | None, with_checkpoint: bool) -> None:
    """DELTA.md#other-readers: plain and backfilled managedCommit tables, by delta-rs and by DuckDB."""
    table = setting.table(feature, policy=EVERY_COMMIT if feature else None)
    rows = busy(setting, table, 6)
    if with_checkpoint:
        compact(table, 1, 3)
        write_checkpoint(table, 4)
        compact(table, 5, 6)
        write_checksum(table, 6)
        hide(table, 0, 1, 2, 3)
    assert by_delta_rs(table.location) == rows
    assert by_duckdb(table.location) == rows


@pytest.mark.parametrize("feature", [MANAGED_COMMIT, CATALOG_MANAGED], ids=lambda f: f.name)
def test_other_readers_see_a_table_that_was_handed_back(setting: Setting, feature: TableFeature) -> None:
    """managed-commits, "Converting a managed-commit table to filesystem table"."""
    table = setting.table(feature)
    rows = busy(setting, table, 4)
    free = hand_back(table)
    write_checkpoint(free)
    transaction = free.transaction()
    transaction.add(*written(setting, free, [(7, "07")]))
    transaction.commit()
    rows = sorted([*rows, (7, "07")])
    assert by_delta_rs(table.location) == rows
    assert by_duckdb(table.location) == rows


@pytest.mark.parametrize("backfilled", [0, 3])
def test_duckdb_reads_a_catalog_managed_table_with_what_its_owner_says(setting: Setting, backfilled: int) -> None:
    """DELTA.md#duckdb: staged commits given as the log's tail."""
    table = setting.table(CATALOG_MANAGED, CommitMode.STAGED, policy=ON_REQUEST)
    rows = busy(setting, table, 6)
    backfill(setting, table, backfilled)
    if backfilled:
        write_checkpoint(table, backfilled)
    assert table.table_id is not None
    answer = setting.owner.get_commits(table.table_id)
    found = by_duckdb(
        table.location,
        staging_folder=CATALOG_MANAGED.staging_folder,
        latest=answer.latest_ratified_version,
        commits=answer.commits,
    )
    assert found == rows


def test_the_rows_written_here_are_the_rows_that_are_expected(setting: Setting) -> None:
    """The twin of the tests above: a file that is left out is missed."""
    table = setting.table(None)
    rows = busy(setting, table, 2)
    transaction = table.transaction()
    transaction.remove(*transaction.read_files("month = '01'"))
    transaction.commit()
    assert by_delta_rs(table.location) == [row for row in rows if row[1] != "01"] != rows
