"""Log replay and checkpoints by Spark's tasks give the same version, rows and files as on the driver."""

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pytest

from refimpl.client.maintenance import compact, write_checkpoint
from refimpl.client.snapshot import Snapshot
from refimpl.client.table import Table
from refimpl.log.table_state import ReplayedState
from refimpl.protocol import actions, log_path
from refimpl.protocol.actions import Add, DeletionVector, Remove
from refimpl.protocol.commit_owner import Maintenance, MaintenancePolicy
from refimpl.protocol.errors import CorruptLogError, InvalidRequestError
from refimpl.protocol.table_feature import CATALOG_MANAGED, CommitMode
from refimpl.spark import DeltaConnection
from refimpl.spark.log_replay import SETTING, OnSpark, SparkReplay
from refimpl.warehouse import Warehouse
from spec_tests.spark.conftest import lose_checkpoints

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("id", pa.int64()), ("month", pa.string())])
ALLOWED = MaintenancePolicy(backfill_every=None, allowed=frozenset(Maintenance))


@pytest.fixture(autouse=True)
def every_log(spark: "SparkSession") -> Iterator[None]:
    """Set the limit so low that every log is too large for the driver."""
    spark.conf.set(SETTING, "0")
    yield
    spark.conf.unset(SETTING)


class RandomLog:
    """A table with a random history: files are added, removed and added again, with and without deletion vectors. The
    history has batches of applications, domains, properties, both kinds of checkpoints, compactions and unpublished
    commits."""

    def __init__(self, warehouse: Warehouse, name: str, seed: int) -> None:
        self.random = random.Random(seed)
        properties = {"delta.checkpointPolicy": self.random.choice(["classic", "v2"])}
        mode = self.random.choice([CommitMode.STAGED, CommitMode.INLINE])
        self.table = warehouse.create_table(
            name,
            SCHEMA,
            partition_columns=("month",),
            properties=properties,
            feature=CATALOG_MANAGED,
            commit_mode=mode,
            policy=ALLOWED,
        )
        for _ in range(self.random.randint(3, 12)):
            self.commit()
            if self.random.random() < 0.4:
                self.maintain(warehouse)

    def commit(self) -> None:
        transaction, chance = self.table.transaction(), self.random.random
        active = list(transaction.read_whole_table())
        gone = self.random.sample(active, self.random.randint(0, len(active) // 2))
        transaction.remove(*gone)
        taken = {add.key for add in (*active, *transaction.snapshot.tombstones.values())}
        joining = {add.key: add for add in (self.add() for _ in range(self.random.randint(0, 5)))}
        back = [Add(**vars_of(file)) for file in transaction.snapshot.tombstones.values() if chance() < 0.2]
        transaction.add(*back, *(add for key, add in joining.items() if key not in taken))
        if chance() < 0.5:
            transaction.claim(self.random.choice("ab"), transaction.snapshot.version)
        if chance() < 0.4:
            transaction.set_domain(self.random.choice("xy"), self.random.choice([None, "{}", "{1}"]))
        if chance() < 0.2:
            transaction.set_properties({"delta.appendOnly": "false", "note": str(chance())})
        transaction.commit()

    def add(self) -> Add:
        number, month = self.random.randint(0, 30), self.random.choice(["01", "a b", None])
        vector = None
        if self.random.random() < 0.3:
            vector = DeletionVector(
                storage_type="u", path_or_inline_dv="0" * 20, size_in_bytes=9, cardinality=1, offset=number % 3
            )
        return Add(
            path=f"f%20{number}",
            partition_values={"month": month},
            size=number,
            modification_time=1,
            data_change=True,
            stats='{"numRecords":5}',
            deletion_vector=vector,
            tags={"t": "1"} if number % 2 else None,
        )

    def maintain(self, warehouse: Warehouse) -> None:
        version = self.table.snapshot().version
        last = self.random.randint(0, version)
        assert self.table.table_id is not None
        warehouse.owner.backfill_to_version(self.table.table_id, last)
        if self.random.random() < 0.5:
            write_checkpoint(self.table, last)
        elif last > 1:
            compact(self.table, self.random.randint(0, last - 1), last)


def vars_of(file: Remove) -> dict[str, object]:
    known = {"path", "partition_values", "size", "tags", "deletion_vector"}
    values = {name: value for name, value in msgspec.structs.asdict(file).items() if name in known}
    return values | {"data_change": True, "modification_time": 2}


def on_spark(delta: DeltaConnection, table: Table, version: int | None = None) -> Snapshot:
    snapshot = table.replayed_by(SparkReplay(spark=delta.spark)).snapshot(version=version)
    assert isinstance(snapshot.loaded, OnSpark)
    return snapshot


def files_of(snapshot: Snapshot) -> set[bytes]:
    """The actions of all files, active and removed, as lines of JSON."""
    if isinstance(snapshot.loaded, OnSpark):
        return {row[0].encode() for row in snapshot.loaded.rows.select("action").collect()}
    return {actions.encode([file]) for file in (*snapshot.files.values(), *snapshot.tombstones.values())}


def facts(snapshot: Snapshot) -> tuple[object, ...]:
    state, loaded = snapshot.state, snapshot.loaded
    small = (state.protocol, state.metadata, dict(state.transactions), dict(state.domains))
    totals = (len(snapshot.files), len(snapshot.tombstones), state.size_in_bytes, state.files_with_deletion_vectors)
    return (snapshot.version, *small, *totals, snapshot.in_commit_timestamp, len(loaded.warnings))


@pytest.mark.parametrize("seed", range(1, 12))
def test_a_random_log_is_replayed_as_on_the_driver(delta: DeltaConnection, warehouse: Warehouse, seed: int) -> None:
    """Compares the newest and an old version. Then every reader gets the whole version from the tasks' checkpoint."""
    table = RandomLog(warehouse, "t", seed).table
    newest = warehouse.table("t").snapshot()
    for version in (None, newest.version // 2):
        theirs, ours = on_spark(delta, table, version), warehouse.table("t").snapshot(version=version)
        assert facts(theirs) == facts(ours)
        assert files_of(theirs) == files_of(ours)
    assert table.table_id is not None
    warehouse.owner.backfill_to_version(table.table_id)
    written = delta.table("t").checkpoint()
    assert written.version == newest.version
    again = warehouse.table("t").snapshot()
    assert again.loaded.segment.checkpoint_version == newest.version
    assert facts(again) == facts(newest)
    assert kept(again.state) == kept(newest.state)
    assert facts(on_spark(delta, table)) == facts(newest)


def kept(state: ReplayedState) -> list[set[object]]:
    """The files' facts that a checkpoint keeps: all except `dataChange`."""
    return [
        {actions.encode([msgspec.structs.replace(file, data_change=False)]) for file in files.values()}
        for files in (state.files, state.tombstones)
    ]


def test_rows_are_read_without_files_on_the_driver(delta: DeltaConnection, warehouse: Warehouse) -> None:
    table = warehouse.create_table("t", SCHEMA, partition_columns=("month",), policy=ALLOWED)
    for first in range(4):
        table.append(pa.table({"id": [first, first + 10], "month": [str(first), None]}, schema=SCHEMA))
    table.delete("id = 11")
    frame = delta.read.where("month = '2' or id > 11").table("t")
    assert sorted(tuple(row) for row in frame.collect()) == [(2, "2"), (12, None), (13, None)]
    assert delta.read.option("versionAsOf", 2).table("t").count() == 4
    table.append(pa.table({"id": [5], "month": ["5"]}, schema=SCHEMA))
    assert delta.read.table("t").count() == 8
    with pytest.raises(RuntimeError, match="in Spark"):
        _ = list(on_spark(delta, table).files)
    delta.spark.conf.set(SETTING, "few")
    with pytest.raises(InvalidRequestError, match="'few'"):
        on_spark(delta, table)


def test_a_version_is_replayed_again_after_a_lost_executor(delta: DeltaConnection, warehouse: Warehouse) -> None:
    table = warehouse.create_table("t", SCHEMA)
    table.append(pa.table({"id": [1, 2], "month": ["1", "2"]}, schema=SCHEMA))
    assert delta.read.table("t").count() == 2
    assert delta.read.option("versionAsOf", 0).table("t").count() == 0
    assert delta.read.option("versionAsOf", 1).table("t").count() == 2
    lose_checkpoints(delta.spark)
    assert delta.read.table("t").count() == 2


def test_unreadable_log_files_are_replaced_or_named(delta: DeltaConnection, warehouse: Warehouse) -> None:
    """The commits that still exist replace a checkpoint, with a warning. For a missing commit, the error names it."""
    table = warehouse.create_table("t", SCHEMA, policy=ALLOWED)
    for number in range(3):
        table.append(pa.table({"id": [number], "month": ["1"]}, schema=SCHEMA))
    assert table.table_id is not None
    warehouse.owner.backfill_to_version(table.table_id)
    expected = files_of(table.snapshot())
    checkpoint = table.log.folder / delta.table("t").checkpoint().name
    content = checkpoint.read_bytes()
    for broken in (b"no Parquet", content[: len(content) // 2], content[:40] + bytes(200) + content[240:]):
        checkpoint.write_bytes(broken)
        snapshot = on_spark(delta, warehouse.table("t"))
        assert files_of(snapshot) == expected
        assert str(checkpoint) in snapshot.warnings[0]
    (table.log.folder / log_path.commit(2)).unlink()
    with pytest.raises(CorruptLogError) as caught:
        on_spark(delta, warehouse.table("t"))
    assert caught.value.path == str(checkpoint)
