"""What the owner rejects in a `metaData` action: what no reader could read, and what would make it another table.

Delta's protocol, "Change Metadata"; in-commit timestamps, "Enablement". RULINGS.md#validation: what an owner validates
is its own promise.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

import refimpl
from refimpl import actions
from refimpl.actions import Action, Format, Metadata
from refimpl.commits import DirectProposal, Ratified, Rejected, RejectionReason
from refimpl.table_feature import (
    CATALOG_MANAGED,
    ENABLEMENT_TIMESTAMP,
    ENABLEMENT_VERSION,
    MANAGED_COMMIT,
    CommitMode,
    TableFeature,
)
from spec_tests.support.builders import (
    START,
    create,
    filesystem_table,
    info,
    metadata_of,
    new_attempt,
    owned,
    protocol_of,
)


def proposed(content: Sequence[Action]) -> DirectProposal:
    return DirectProposal(attempt=new_attempt(), content=actions.encode(content))


def changed(metadata: Metadata, version: int = 1) -> bytes:
    return actions.encode([info(START + version), metadata])


def refused(outcome: object, reason: RejectionReason) -> None:
    assert isinstance(outcome, Rejected), outcome
    assert outcome.reason is reason, outcome


def one_column(schema: str) -> str:
    return f'{{"type":"struct","fields":[{schema}]}}'


COLUMN = '{"name":"id","type":"long","nullable":true,"metadata":{}}'
UNREADABLE = {
    "empty": "",
    "no-json": "{",
    "no-struct": '"long"',
    "no-columns": '{"type":"struct"}',
    "no-type": one_column('{"name":"id","nullable":true}'),
    "no-element": one_column('{"name":"id","type":{"type":"array"},"nullable":true}'),
    "unknown-kind": one_column('{"name":"id","type":{"type":"bag"},"nullable":true}'),
    "twice": one_column(COLUMN + "," + COLUMN.replace("id", "ID")),
}


@pytest.mark.parametrize("schema", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_schema_that_no_reader_parses_is_refused(warehouse: refimpl.Warehouse, schema: str) -> None:
    """The table would be unreadable, whether it is created or handed back."""
    metadata = msgspec.structs.replace(metadata_of(CATALOG_MANAGED), schema_string=schema)
    staged = warehouse.owner.stage_table("new", CATALOG_MANAGED)
    first = proposed([info(START), protocol_of(CATALOG_MANAGED), metadata])
    refused(warehouse.owner.register_table(staged.table_id, first), RejectionReason.INCONSISTENT_TABLE)
    table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE)
    refused(table.commit(1, changed(metadata)), RejectionReason.INCONSISTENT_TABLE)
    last = proposed([info(START + 1), protocol_of(None), metadata])
    refused(table.owner.hand_back(table.table_id, 1, last), RejectionReason.INCONSISTENT_TABLE)
    assert table.latest == 0
    table.land()


def test_every_shape_of_a_schema_is_accepted() -> None:
    items = f'{{"type":"array","elementType":{one_column(COLUMN)},"containsNull":true}}'
    nested = f'{{"type":"map","keyType":"string","valueType":{items},"valueContainsNull":false}}'
    columns = [
        COLUMN,
        COLUMN.replace("id", "price").replace('"long"', '"decimal(10,2)"'),
        COLUMN.replace("id", "deep").replace('"long"', nested),
        COLUMN.replace("id", "vector").replace('"long"', '{"type":"udt","class":"V","sqlType":"long"}'),
    ]
    assert actions.column_names(one_column(",".join(columns))) == ["id", "price", "deep", "vector"]


def change_of(feature: TableFeature, name: str) -> Metadata:
    before = metadata_of(feature)
    since = {ENABLEMENT_VERSION: "1", ENABLEMENT_TIMESTAMP: "5"}
    changes: dict[str, dict[str, object]] = {
        "id": {"id": new_attempt()},
        "format": {"format": Format(provider="orc")},
        "partition": {"partition_columns": ("gone",)},
        "since": {"configuration": before.configuration | since},
        "half": {"configuration": before.configuration | {ENABLEMENT_VERSION: "1"}},
        "table-id": {"configuration": before.configuration | {feature.table_id_property: new_attempt()}},
    }
    return msgspec.structs.replace(before, **changes[name])


@pytest.mark.parametrize("name", ["id", "format", "partition", "since", "half", "table-id"])
def test_change_of_identity_is_rejected(warehouse: refimpl.Warehouse, name: str) -> None:
    table = create(warehouse, CATALOG_MANAGED, CommitMode.STAGED)
    refused(table.commit(1, changed(change_of(CATALOG_MANAGED, name))), RejectionReason.INCONSISTENT_TABLE)
    assert table.latest == 0
    table.land()


def test_the_enablement_of_timestamps_stays(warehouse: refimpl.Warehouse) -> None:
    """in-commit timestamps, "Enablement"; FB22: the time of the commits before it would be unknown."""
    log = filesystem_table(warehouse.directory / "plain", versions=1, environment=warehouse.environment)
    enabled = {ENABLEMENT_VERSION: "1", ENABLEMENT_TIMESTAMP: str(START + 1)}
    enabling = metadata_of(MANAGED_COMMIT, configuration=enabled)
    proposal = proposed([info(START + 1), protocol_of(MANAGED_COMMIT), enabling])
    assert isinstance(warehouse.owner.take_over(log.location, "plain", MANAGED_COMMIT, 1, proposal), Ratified)
    table = owned(warehouse, "plain")
    for kept in ({}, {ENABLEMENT_VERSION: "1"}, {**enabled, ENABLEMENT_VERSION: "0"}):
        dropped = metadata_of(MANAGED_COMMIT, configuration=kept)
        refused(table.commit(2, changed(dropped, 2)), RejectionReason.INCONSISTENT_TABLE)
    more = metadata_of(MANAGED_COMMIT, configuration={**enabled, "mine": "1"})
    assert isinstance(table.commit(2, changed(more, 2)), Ratified)


def test_the_tables_id_in_the_log_stays(warehouse: refimpl.Warehouse) -> None:
    """Engines that commit through a catalog look for it there."""
    table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE)
    named = CATALOG_MANAGED.table_id_property
    assert named is not None
    mine = metadata_of(CATALOG_MANAGED, configuration={named: table.table_id})
    assert isinstance(table.commit(1, changed(mine)), Ratified)
    for configuration in ({}, {named: new_attempt()}):
        other = metadata_of(CATALOG_MANAGED, configuration=configuration)
        refused(table.commit(2, changed(other, 2)), RejectionReason.INCONSISTENT_TABLE)
    table.land()
