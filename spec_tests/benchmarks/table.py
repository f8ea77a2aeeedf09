"""Tables without data files, to measure the owner alone."""

import uuid

from refimpl.protocol import actions
from refimpl.protocol.actions import Add, CommitInfo, Metadata, Protocol
from refimpl.protocol.commit_owner import MaintenancePolicy, Registered
from refimpl.protocol.commits import DirectProposal
from refimpl.protocol.table_feature import CATALOG_MANAGED, CommitMode
from refimpl.warehouse import Warehouse

FEATURE = CATALOG_MANAGED
SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'


def new_id() -> str:
    return str(uuid.uuid4())


def commit_info(timestamp: int) -> CommitInfo:
    return CommitInfo({"inCommitTimestamp": timestamp, "operation": "WRITE", "txnId": new_id()})


def version_0() -> bytes:
    protocol = Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=(FEATURE.name,),
        writer_features=(FEATURE.name, "inCommitTimestamp"),
    )
    configuration = {"delta.enableInCommitTimestamps": "true"}
    return actions.encode(
        [commit_info(1), protocol, Metadata(id=new_id(), schema_string=SCHEMA, configuration=configuration)]
    )


def add() -> Add:
    """An add action with statistics."""
    return Add(
        path=f"part-00000-{new_id()}.c000.snappy.parquet",
        partition_values={},
        size=1234,
        modification_time=1_700_000_000_000,
        data_change=True,
        stats='{"numRecords":1,"minValues":{"id":1},"maxValues":{"id":1},"nullCount":{"id":0}}',
    )


def one_add(timestamp: int) -> bytes:
    """The bytes of a commit with one add action: about 500 bytes."""
    return actions.encode([commit_info(timestamp), add()])


def create(warehouse: Warehouse, name: str, commit_mode: CommitMode) -> str:
    """Create a table that is never backfilled automatically; return its id."""
    policy = MaintenancePolicy(backfill_every=None, backlog_limit=100_000)
    staged = warehouse.owner.stage_table(name, FEATURE, commit_mode=commit_mode, policy=policy)
    outcome = warehouse.owner.register_table(staged.table_id, DirectProposal(attempt=new_id(), content=version_0()))
    assert isinstance(outcome, Registered), outcome
    return staged.table_id
