"""Row tracking: no two rows get the same id, whatever race a commit lost, and copied rows keep their ids."""

import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import refimpl
from refimpl.client.data_maintenance import optimize
from refimpl.client.table import Table
from refimpl.client.transaction import Transaction
from refimpl.protocol.actions import Add, DomainMetadata
from refimpl.protocol.commit_owner import Maintenance, MaintenancePolicy, NewTableDemands
from refimpl.protocol.errors import ConcurrentModificationError, CorruptLogError, InvalidRequestError, InvalidTableError
from refimpl.protocol.table_feature import CATALOG_MANAGED, CommitMode
from refimpl.rows import row_tracking
from refimpl.schema.properties import ROW_ID_COLUMN, ROW_VERSION_COLUMN
from spec_tests.client.conftest import OWNED_COMMIT_MODES, Setting, adding
from spec_tests.support.builders import commit, name_of
from spec_tests.support.faults import ScriptedHost
from spec_tests.support.unreliable_owner import UnreliableOwner

TRACKED = {"delta.enableRowTracking": "true"}


def rows_file(path: str, rows: int, **fields: Any) -> Add:
    return adding(path, stats=f'{{"numRecords":{rows}}}', **fields)


def begun(table: Table, path: str, rows: int) -> Transaction:
    transaction = table.transaction()
    transaction.add(rows_file(path, rows))
    return transaction


def ranges(table: Table) -> dict[str, tuple[int | None, int | None]]:
    """The first row id and the commit version of each active file."""
    return {add.path: (add.base_row_id, add.default_row_commit_version) for add in table.snapshot().files.values()}


def mark(table: Table) -> int:
    return row_tracking.high_water_mark(table.snapshot().domains[row_tracking.DOMAIN])


@pytest.mark.parametrize(
    "kind", [(None, None), *OWNED_COMMIT_MODES], ids=lambda kind: name_of(*kind) if kind[0] else "no owner"
)
def test_ids_and_version_are_assigned_again_after_a_lost_race(setting: Setting, kind: tuple[Any, Any]) -> None:
    """DELTA.md#row-ids-after-conflict: each attempt has its own bytes."""
    table = setting.table(*kind, properties=TRACKED)
    late = begun(setting.again(table), "late", 4)
    begun(setting.again(table), "first", 3).commit()
    begun(setting.again(table), "second", 2).commit()
    committed = late.commit()
    assert (committed.version, committed.rebased_over) == (3, 2)
    assert ranges(table) == {"first": (0, 1), "second": (3, 2), "late": (5, 3)}
    assert mark(table) == 8


def test_the_mark_survives_winners_without_new_rows(setting: Setting) -> None:
    """The last of three lost races is against commits that say nothing of row ids."""
    table = setting.table(properties=TRACKED)
    begun(table, "old", 3).commit()
    own = [
        begun(table, "first", 2).commit,
        lambda: table.alter(properties={"team": "a"}),
        lambda: commit(table, lambda t: t.remove(*t.snapshot.files.values())),
    ]
    setting.owner.faults.before_proposal = [step for win in own for step in (win, lambda: None)]
    committed = begun(setting.again(table), "late", 4).commit()
    assert (committed.tries, committed.rebased_over) == (4, 3)
    assert (ranges(table), mark(table)) == ({"late": (5, 5)}, 8)


def test_a_restored_file_keeps_its_ids(setting: Setting) -> None:
    """DELTA.md#row-ids-assigned: a file that is committed again has the ids of its first commit."""
    table = setting.table(properties=TRACKED)
    begun(table, "a", 3).commit()
    begun(table, "b", 2).commit()
    (old,) = [add for add in table.snapshot().files.values() if add.path == "a"]
    commit(table, lambda t: t.remove(old))
    (removed,) = table.snapshot().tombstones.values()
    assert (removed.base_row_id, removed.default_row_commit_version) == (0, 1)
    commit(table, lambda t: t.add(old), operation="RESTORE")
    assert ranges(table) == {"a": (0, 1), "b": (3, 2)}
    assert mark(table) == 4


def test_a_file_without_a_row_count_is_refused(setting: Setting) -> None:
    table = setting.table(properties=TRACKED)
    with pytest.raises(InvalidRequestError, match=r"uncounted.*numRecords"):
        commit(table, lambda t: t.add(adding("uncounted")))
    assert table.snapshot().version == 0


def test_enabling_row_tracking_gives_ids_to_existing_files(setting: Setting) -> None:
    """DELTA.md#row-tracking: in the commit that enables row tracking."""
    table = setting.table(None)
    begun(table, "a", 3).commit()
    begun(table, "b", 2).commit()
    rival = begun(setting.again(table), "c", 7)
    table.alter(properties=TRACKED)
    assert set(ranges(table).values()) in ({(0, 3), (3, 3)}, {(0, 3), (2, 3)})
    assert mark(table) == 4
    with pytest.raises(ConcurrentModificationError):
        rival.commit()
    late = setting.table(None, name="late")
    enabling = late.transaction(operation="SET TBLPROPERTIES")
    enabling.set_properties(TRACKED)
    begun(setting.again(late), "a", 3).commit()
    with pytest.raises(ConcurrentModificationError):  # else a table with row tracking has a file without ids
        enabling.commit()


def test_a_required_property_enables_row_tracking_completely(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog requires properties but does not set the names of the hidden columns."""
    plain = setting.owner.stage_table

    def demanding(*arguments: Any, **options: Any) -> Any:
        demands = NewTableDemands(
            reader_features=(), writer_features=("rowTracking", "domainMetadata"), properties=TRACKED
        )
        return msgspec.structs.replace(plain(*arguments, **options), demands=demands)

    monkeypatch.setattr(setting.owner, "stage_table", demanding)
    table = setting.table()
    snapshot = table.snapshot()
    assert len(row_tracking.hidden_columns(snapshot.protocol, snapshot.metadata)) == 2
    again = row_tracking.with_hidden_columns(snapshot.metadata, lambda: "new")
    assert again == snapshot.metadata, "copied rows keep their ids in the same columns"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rowIdHighWaterMark":"1"}', "[" * 10**5], ids=len)
def test_the_error_names_an_unreadable_high_water_mark(text: str) -> None:
    domain = DomainMetadata(domain=row_tracking.DOMAIN, configuration=text, removed=False)
    with pytest.raises(CorruptLogError, match=row_tracking.DOMAIN):
        row_tracking.high_water_mark(domain)


@pytest.mark.parametrize("missing", [ROW_ID_COLUMN, ROW_VERSION_COLUMN])
def test_a_table_that_does_not_name_both_hidden_columns_is_invalid(setting: Setting, missing: str) -> None:
    snapshot = setting.table(properties=TRACKED).snapshot()
    configuration = {key: value for key, value in snapshot.metadata.configuration.items() if key != missing}
    metadata = msgspec.structs.replace(snapshot.metadata, configuration=configuration)
    with pytest.raises(InvalidTableError, match=missing):
        row_tracking.hidden_columns(snapshot.protocol, metadata)


def test_suspended_row_tracking_assigns_no_ids(setting: Setting) -> None:
    """DELTA.md#row-tracking."""
    table = setting.table(None, properties=TRACKED)
    snapshot = table.snapshot()
    suspended = {row_tracking.SUSPENDED: "true", "delta.enableRowTracking": "false"}
    metadata = msgspec.structs.replace(
        snapshot.metadata, configuration={**snapshot.metadata.configuration, **suspended}
    )
    table.log.put_if_absent("00000000000000000001.json", refimpl.protocol.actions.encode([metadata]))
    begun(table, "a", 3).commit()
    assert ranges(table) == {"a": (None, None)}


def stable(table: Table, key: str = "id") -> dict[int, tuple[int, int]]:
    """The row id and row commit version of each row, by its `key`, computed as PROTOCOL.md tells readers."""
    snapshot = table.snapshot()
    names = [snapshot.metadata.configuration[key] for key in (ROW_ID_COLUMN, ROW_VERSION_COLUMN)]
    ids: dict[int, tuple[int, int]] = {}
    logical = {column.physical_name: column.name for column in snapshot.schema.fields}
    for add in snapshot.files.values():
        assert add.base_row_id is not None
        assert add.default_row_commit_version is not None
        rows = pq.read_table(table.location / add.path, partitioning=None).rename_columns(logical).to_pylist()
        for number, row in enumerate(rows):
            row_id, version = row.get(names[0]), row.get(names[1])
            ids[row[key]] = (
                add.base_row_id + number if row_id is None else row_id,
                add.default_row_commit_version if version is None else version,
            )
    assert len({row_id for row_id, _ in ids.values()}) == len(ids)
    return ids


def preserved(table: Table) -> str:
    info = table.history(1)[0].info
    assert info is not None
    return str(info.fields["tags"]["delta.rowTracking.preserved"])


@pytest.mark.parametrize("mode", ["none", "name", "id"])
def test_copied_rows_keep_their_ids_and_versions(tmp_path: Path, mode: str) -> None:
    """DELTA.md#row-ids-kept: a changed row keeps its id and gets a new commit version."""
    warehouse = refimpl.open(tmp_path / "lake", create=True)
    schema = pa.schema([("id", pa.int64()), ("x", pa.int64())])
    policy = MaintenancePolicy(allowed=frozenset(Maintenance))
    properties = {**TRACKED, "delta.columnMapping.mode": mode, "delta.enableChangeDataFeed": "true"}
    table = warehouse.create_table("t", schema, properties=properties, policy=policy)
    table.append(pa.table({"id": [1, 2, 3], "x": [1, 2, 3]}))
    table.append(pa.table({"id": [4, 5], "x": [4, 5]}))
    expected = {1: (0, 1), 2: (1, 1), 3: (2, 1), 4: (3, 2), 5: (4, 2)}
    assert stable(table) == expected
    table.update({"x": "x + 1"}, "id = 2")
    assert stable(table) == expected | {2: (1, 3)}
    assert preserved(table) == "true"
    table.delete("id = 1")
    merge = table.merge(pa.table({"id": [4, 6], "x": [0, 0]}), "target.id = source.id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    after = stable(table)
    assert after.pop(6)[1] == 5
    assert after == {2: (1, 3), 3: (2, 1), 4: (3, 5), 5: (4, 2)}
    kept = stable(table)
    optimize(table)
    assert stable(table) == kept
    assert preserved(table) == "true"
    assert len(table.snapshot().files) == 1
    assert [row["id"] for row in table.snapshot().to_arrow().sort_by("id").to_pylist()] == [2, 3, 4, 5, 6]
    table.overwrite(pa.table({"id": [9], "x": [9]}))
    (only,) = stable(table).values()
    assert only[0] > max(row_id for row_id, _ in kept.values())


def test_rows_that_a_caller_replaces_are_not_marked_as_kept(setting: Setting) -> None:
    """DELTA.md#row-ids-kept: the client does not know the row ids in files that a caller wrote."""
    table = setting.table(properties=TRACKED)
    begun(table, "a", 3).commit()
    assert preserved(table) == "true"
    commit(table, lambda t: t.remove(*t.read_whole_table()), lambda t: t.add(rows_file("b", 3)))
    assert preserved(table) == "false"


STEPS = st.lists(st.tuples(st.sampled_from(["begin", "commit"]), st.integers(0, 3), st.integers(0, 5)), max_size=24)


@given(steps=STEPS, mode=st.sampled_from(list(CommitMode)), lost=st.sampled_from([0, 1]))
def test_ranges_of_ids_never_overlap(steps: list[tuple[str, int, int]], mode: CommitMode, lost: int) -> None:
    """Any interleaving of appends, rebases and lost answers: no id is assigned twice, and the mark is the
    highest id.
    """
    host = ScriptedHost()
    environment = host.environment()
    with (
        tempfile.TemporaryDirectory() as name,
        refimpl.open(Path(name), environment=environment, create=True) as warehouse,
    ):
        setting = Setting(UnreliableOwner(warehouse.owner), host, environment, Path(name))
        table = setting.table(CATALOG_MANAGED, mode, properties=TRACKED)
        begun_by: dict[int, Transaction] = {}
        for number, (step, writer, rows) in enumerate(steps):
            if step == "begin":
                begun_by[writer] = begun(setting.again(table), f"file-{number}", rows)
            elif writer in begun_by:
                setting.owner.faults.lose_answers = lost
                begun_by.pop(writer).commit()
        snapshot = setting.again(table).snapshot()
        taken: set[int] = set()
        for add in snapshot.files.values():
            assert add.base_row_id is not None
            own = set(range(add.base_row_id, add.base_row_id + msgspec.json.decode(add.stats or "")["numRecords"]))
            assert not taken & own
            taken |= own
        domain = snapshot.domains.get(row_tracking.DOMAIN)
        assert (-1 if domain is None else row_tracking.high_water_mark(domain)) == max(taken, default=-1)
        assert taken == set(range(len(taken)))
