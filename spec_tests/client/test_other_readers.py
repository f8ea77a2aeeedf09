"""Tables that Delta Spark 4.4 wrote through our owner, read by our client; and our tables, read by delta-rs and DuckDB.

Delta Spark's tables are in `fixtures/delta_spark`; `python -m spec_tests.engines.make_fixtures` made them.
"""

import decimal
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from deltalake.exceptions import DeltaError

import refimpl
from refimpl.client.maintenance import write_checkpoint
from refimpl.client.snapshot import Snapshot
from refimpl.client.table import Table
from refimpl.protocol import log_path
from refimpl.protocol.commit_owner import MaintenancePolicy, Registered
from refimpl.protocol.commits import DirectProposal, Ratified, StagedProposal
from refimpl.protocol.errors import PathAccessError
from refimpl.protocol.log_path import LOG_FOLDER
from refimpl.protocol.table_feature import (
    CATALOG_MANAGED,
    COORDINATED_COMMITS,
    ENABLEMENT_VERSION,
    CommitMode,
    TableFeature,
)
from spec_tests.client.conftest import ON_REQUEST, Setting, backfill, busy, hide
from spec_tests.support.builders import new_attempt
from spec_tests.support.other_readers import by_delta_rs, by_duckdb

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "delta_spark"
OWNED = pytest.mark.parametrize(
    "name, feature", [("coordinated", COORDINATED_COMMITS), ("catalog_managed", CATALOG_MANAGED)]
)


def expected_of(name: str) -> list[dict[str, Any]]:
    versions: list[dict[str, Any]] = json.loads((FOLDER / name / "expected.json").read_text())
    return versions


def rows_at(table: Table, version: int) -> list[dict[str, Any]]:
    """The rows ordered by id, with dates as text."""
    rows = table.snapshot(version=version).to_arrow().to_pylist()
    plain = [{k: v.isoformat() if hasattr(v, "isoformat") else v for k, v in row.items()} for row in rows]
    return sorted(plain, key=lambda row: int(row["id"]))


def assert_reads_as_delta_does(table: Table, expected: list[dict[str, Any]]) -> None:
    assert {entry["version"]: entry["rows"] for entry in expected} == {
        entry["version"]: rows_at(table, entry["version"]) for entry in expected
    }
    newest = table.snapshot()
    stamped = int(newest.metadata.configuration.get(ENABLEMENT_VERSION, "0"))
    history = table.history()[::-1]
    assert [(entry.version, entry.operation) for entry in history] == [(e["version"], e["operation"]) for e in expected]
    # Before that version, a commit's time is its file's modification time, which is that of the checkout.
    assert [entry.timestamp for entry in history[stamped:]] == [entry["timestamp"] for entry in expected[stamped:]]
    assert newest.version == expected[-1]["version"]
    assert list(newest.warnings) == []  # Delta's checksums agree with the replayed log


@pytest.mark.parametrize("name", ["coordinated", "there_and_back"])
def test_a_table_is_read_by_its_path_as_delta_reads_it(name: str) -> None:
    table = Table.by_path(FOLDER / name)
    assert_reads_as_delta_does(table, expected_of(name))
    assert (table.snapshot().feature is COORDINATED_COMMITS) is (name == "coordinated")


@pytest.mark.parametrize("name", ["coordinated", "there_and_back"])
def test_duckdb_reads_the_table_and_delta_rs_refuses_it(name: str) -> None:
    """Delta adds the feature vacuumProtocolCheck to such tables and does not remove it. delta-rs 1.6 does not support
    it.
    """
    expected = sorted((row["id"], row["name"]) for row in expected_of(name)[-1]["rows"])
    assert by_duckdb(FOLDER / name, ("id", "name")) == expected
    with pytest.raises(DeltaError, match="VacuumProtocolCheck"):
        by_delta_rs(FOLDER / name, ("id", "name"))


REFUSED_BY_DELTA_RS = {"type_widening": "TypeWidening"}
"""DELTA.md#features-in-other-readers: the text in each error."""
FEATURES = [
    "mapping_name", "mapping_id", "mapping_upgraded", "mapping_vectors", "type_widening", "row_tracking", "clustered",
    "column_rules", "v2_checkpoint",
]  # fmt: skip


def as_json(value: Any) -> Any:
    """The value as `expected.json` spells it."""
    match value:
        case dict():
            return {name: as_json(member) for name, member in value.items()}
        case list() | tuple():
            return [as_json(item) for item in value]
        case decimal.Decimal():
            return str(value)
    return value.isoformat() if hasattr(value, "isoformat") else value


@pytest.mark.parametrize("name", FEATURES)
def test_each_version_is_read_as_by_delta_and_other_readers(name: str) -> None:
    """Tables without an owner, one for each feature. The test knows every refusal and wrong answer of the other
    readers.

    DELTA.md#features-in-other-readers.
    """
    location, table = FOLDER / name, Table.by_path(FOLDER / name)
    for entry in expected_of(name):
        version, expected = entry["version"], entry["rows"]
        snapshot = table.snapshot(version=version)
        assert list(snapshot.warnings) == []  # Delta's checksums agree with the replayed log
        rows = [as_json(row) for row in snapshot.to_arrow().to_pylist()]
        assert sorted(rows, key=lambda row: int(row["id"])) == expected, version
        names = snapshot.schema.names
        quoted = [f'"{column}"' for column in names]
        if name in REFUSED_BY_DELTA_RS:
            with pytest.raises(DeltaError, match=REFUSED_BY_DELTA_RS[name]):
                by_delta_rs(location, quoted, version)
        else:
            assert named(names, by_delta_rs(location, quoted, version)) == expected, version
        renamed = any(column.physical_name != column.name for column in snapshot.schema.fields)
        null = snapshot.partition_columns if renamed else ()
        partial = [{key: None if key in null else value for key, value in row.items()} for row in expected]
        assert named(names, by_duckdb(location, quoted, version=version)) == partial, version


@pytest.mark.parametrize("name", ["row_tracking", "clustered", "column_rules", "type_widening", "mapping_id"])
def test_parts_that_only_other_writers_use_are_kept(tmp_path: Path, name: str) -> None:
    """Our checkpoints keep row ids, clustering and the metadata of columns."""
    location = tmp_path / name
    shutil.copytree(FOLDER / name, location)
    before = Table.by_path(location).snapshot()
    for path in (location / LOG_FOLDER).glob("*.checkpoint.parquet"):
        path.unlink()
    table = Table.by_path(location)
    write_checkpoint(table)
    hide(table, *range(before.version))
    assert kept(Table.by_path(location).snapshot()) == kept(before)


def kept(snapshot: Snapshot) -> tuple[object, ...]:
    files = {
        add.path: (add.base_row_id, add.default_row_commit_version, add.clustering_provider, add.tags, add.stats)
        for add in snapshot.files.values()
    }
    return snapshot.protocol, snapshot.metadata, dict(snapshot.domains), files


def named(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> list[dict[str, Any]]:
    return [dict(zip(names, as_json(row), strict=True)) for row in rows]


@OWNED
@pytest.mark.parametrize("backfill_every", [1, None])
def test_commits_that_delta_staged_are_ratified_and_read(
    tmp_path: Path, name: str, feature: TableFeature, backfill_every: int | None
) -> None:
    """A strict owner gets the commits again, as files that Delta staged. It rejects none, and publishes none or all."""
    with refimpl.open(tmp_path / "warehouse", create=True) as warehouse:
        owner = warehouse.owner
        policy = MaintenancePolicy(backfill_every=backfill_every)
        staged = owner.stage_table(name, feature, policy=policy)
        first = (FOLDER / name / LOG_FOLDER / log_path.commit(0)).read_bytes()
        table_id = re.search(rb'"io\.unitycatalog\.tableId":"([^"]+)"', first)
        ids = (table_id[1] if table_id else b"no id", staged.table_id.encode())
        first = first.replace(*ids)
        proposals = copied(FOLDER / name, staged.location, feature, ids)
        proposal = DirectProposal(attempt=new_attempt(), content=first)
        assert isinstance(owner.register_table(staged.table_id, proposal), Registered)
        for version, staged_proposal in enumerate(proposals, start=1):
            assert isinstance(owner.commit(staged.table_id, version, staged_proposal), Ratified)
        table = warehouse.table(name)
        assert table.log.published(1) is (backfill_every == 1)
        assert_reads_as_delta_does(table, expected_of(name))


def copied(table: Path, target: Path, feature: TableFeature, ids: tuple[bytes, bytes]) -> list[StagedProposal]:
    """Copy the data files and staged commits, but no published file; return the proposals of versions 1, 2, and so on.
    `ids` are the id of Delta's table and the id of the copy.
    """
    shutil.copytree(table, target, ignore=shutil.ignore_patterns(LOG_FOLDER, "expected.json"), dirs_exist_ok=True)
    staged = sorted((table / LOG_FOLDER / feature.staging_folder).iterdir())
    for path in staged:
        content = path.read_bytes().replace(*ids)
        (target / LOG_FOLDER / feature.staging_folder / path.name).write_bytes(content)
    assert [int(path.name[:20]) for path in staged] == [*range(1, len(staged) + 1)]
    return [StagedProposal(attempt=path.name.split(".")[1], file_name=path.name) for path in staged]


def test_a_catalog_managed_table_is_not_read_by_its_path() -> None:
    with pytest.raises(PathAccessError):
        Table.by_path(FOLDER / "catalog_managed").snapshot()


def test_a_newest_version_that_cannot_be_read_opens_no_path(tmp_path: Path) -> None:
    """An older version is readable, and says that the table has a catalog."""
    copy = tmp_path / "t"
    shutil.copytree(FOLDER / "catalog_managed", copy)
    log = copy / LOG_FOLDER
    newest = max(int(path.stem) for path in log.glob("*.json") if path.stem.isdecimal())
    (log / f"{newest + 1:020}.json").write_text('{"commitInfo":{"inCommit', encoding="utf-8")
    with pytest.raises(PathAccessError):
        Table.by_path(copy).snapshot(version=newest)


def test_a_table_with_a_deletion_vector_of_delta_spark_is_read() -> None:
    table = Table.by_path(FOLDER / "deletion_vectors")
    assert any(add.deletion_vector is not None for add in table.snapshot().files.values())
    for expected in expected_of("deletion_vectors"):
        assert rows_at(table, expected["version"]) == expected["rows"]


@pytest.mark.parametrize("backfilled", [0, 3])
def test_duckdb_reads_a_catalog_managed_table(setting: Setting, backfilled: int) -> None:
    """DELTA.md#duckdb: DuckDB gets the staged commits as the tail of the log."""
    table = setting.table(CATALOG_MANAGED, CommitMode.STAGED, policy=ON_REQUEST)
    rows = busy(setting, table, 6)
    backfill(setting, table, backfilled)
    if backfilled:
        write_checkpoint(table, backfilled)
    assert table.table_id is not None
    answer = setting.owner.get_commits(table.table_id)
    read = by_duckdb(
        table.location,
        staging_folder=CATALOG_MANAGED.staging_folder,
        latest=answer.latest_ratified_version,
        commits=answer.commits,
    )
    assert read == rows
