"""Changes of a catalog besides commits, and their preconditions; and the description of a table that changes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import refimpl
from refimpl.catalog.messages import COMMENT
from refimpl.catalog.owner import PreconditionFailed, UpdatePreconditions
from refimpl.owner.records import TableRecord
from refimpl.owner.statements import View
from refimpl.protocol import actions, log_path
from refimpl.protocol.actions import Action, Format, Metadata
from refimpl.protocol.commit_owner import Registered, TableState
from refimpl.protocol.commits import DirectProposal, Ratified, RejectionReason
from refimpl.protocol.table_feature import (
    CATALOG_MANAGED,
    ENABLEMENT_TIMESTAMP,
    ENABLEMENT_VERSION,
    MANAGED_COMMIT,
    CommitMode,
    TableFeature,
)
from refimpl.served import catalog_requests
from refimpl.storage.environment import Environment
from spec_tests.support.builders import (
    START,
    OwnedTable,
    append,
    create,
    filesystem_table,
    first_version,
    info,
    metadata_of,
    new_attempt,
    owned,
    protocol_of,
    refused,
)
from spec_tests.support.faults import FailingFiles, Watch, opened


def test_a_replay_of_a_registration_stores_no_properties(tmp_path: Path) -> None:
    watch = Watch()
    with watch.opened(tmp_path) as warehouse:
        owner = warehouse.owner
        table_id = owner.stage_table("orders", CATALOG_MANAGED).table_id
        proposal = DirectProposal(attempt=new_attempt(), content=first_version(CATALOG_MANAGED))
        refused(
            owner.register_table(table_id, proposal, properties={"team.password": "a"}),
            RejectionReason.INCONSISTENT_TABLE,
        )
        for team in ("a", "b"):
            assert isinstance(owner.register_table(table_id, proposal, properties={"team": team}), Registered)
            assert owner.describe(table_id).catalog_properties == {"team": "a"}
    assert watch.outside == []


@pytest.mark.parametrize("how", ["a request", "a commit", "a visible commit"])
def test_new_description_in_the_log_replaces_the_catalogs_comment(table: OwnedTable, how: str) -> None:
    """However it lands. A commit that keeps the description keeps the comment, too."""
    if (how == "a visible commit") is not (table.commit_mode is CommitMode.DIRECT) and how != "a commit":
        return
    owner, kept = table.owner, {COMMENT: "visits", "team": "a"}
    assert owner.update(table.table_id, UpdatePreconditions(properties=kept)) is None
    for version, description in ((1, None), (2, "newer")):
        current = owner.describe(table.table_id).metadata
        metadata = msgspec.structs.replace(current, description=description)
        content = actions.encode([info(START + version), metadata])
        if how == "a visible commit":
            (table.log.folder / log_path.commit(version)).write_bytes(content)
            with owner.lock(), owner.changing(table.table_id):
                pass
        elif how == "a request":
            proposal = table.propose(version, content)
            assert isinstance(owner.commit_if(table.table_id, version, proposal, UpdatePreconditions()), Ratified)
        else:
            assert isinstance(table.commit(version, content), Ratified)
        description_now = owner.describe(table.table_id)
        assert description_now.metadata.description == description
        assert description_now.catalog_properties == (kept if description is None else {"team": "a"})


@pytest.mark.parametrize("with_commit", [False, True])
def test_versions_that_are_published_during_a_false_report_are_not_all_taken_for_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_commit: bool
) -> None:
    """A client reports five versions. The first two are published just after the owner missed them."""
    monkeypatch.setattr(catalog_requests, "BATCH", 2)
    with refimpl.open(tmp_path, create=True) as warehouse:
        table = create(warehouse, CATALOG_MANAGED, CommitMode.STAGED, commits=5)
        confirm, truth, folder = catalog_requests.confirm_published, table.history(), table.log.folder

        def then_published(*words: Any) -> str | None:
            flaw = confirm(*words)
            for version in (1, 2):
                (folder / log_path.commit(version)).write_bytes(truth[version])
            return flaw

        monkeypatch.setattr(catalog_requests, "confirm_published", then_published)
        report, proposal = UpdatePreconditions(published_through=5), table.propose(6, append(START + 6))
        for _ in range(2):
            if with_commit:
                refused = table.owner.commit_if(table.table_id, 6, proposal, report)
            else:
                refused = table.owner.update(table.table_id, report)  # type: ignore[assignment]
            assert isinstance(refused, PreconditionFailed)
        assert {3, 4, 5} <= {commit.version for commit in table.owner.get_commits(table.table_id).commits}


def test_a_reported_file_of_another_size_is_not_read(tmp_path: Path) -> None:
    """The owner holds its lock, and a client may have written a file of any size."""
    reads: list[str] = []
    storage = FailingFiles()
    storage.fail_when = lambda effect, path: effect == "read" and reads.append(path.name) is not None
    with refimpl.open(tmp_path, create=True, environment=Environment(files=storage)) as warehouse:
        table = create(warehouse, CATALOG_MANAGED, CommitMode.STAGED, commits=1)
        published = table.log.folder / log_path.commit(1)
        published.write_bytes(append(START + 1, lines=9))
        report = UpdatePreconditions(published_through=1)
        assert isinstance(table.owner.update(table.table_id, report), PreconditionFailed)
        assert published.name not in reads
        published.write_bytes(table.history()[1])
        reads.clear()
        assert table.owner.update(table.table_id, report) is None
        assert reads == [published.name], "it is read once"


def test_description_shows_one_version_while_commits_land(tmp_path: Path) -> None:
    """The metadata and the latest version are of one state, however many commits land between two look-ups."""
    with opened(tmp_path) as warehouse:
        create(warehouse, CATALOG_MANAGED, CommitMode.STAGED, commits=1)

    def land() -> None:
        with opened(tmp_path) as other:
            table = owned(other, "orders")
            version = (table.latest or 0) + 1
            proposal = table.propose(version, append(START + version))
            outcome = other.owner.commit_if(
                table.table_id, version, proposal, UpdatePreconditions(properties={"newest": str(version)})
            )
            assert isinstance(outcome, Ratified)
            table.backfill()

    with opened(tmp_path) as warehouse:
        looks = 0

        def find(view: View) -> TableRecord:
            nonlocal looks
            record = view.table_named("orders")
            assert record is not None
            assert record.state is TableState.ACTIVE
            looks += 1
            if looks <= 2:
                land()
            return record

        description = warehouse.owner.description(find)
        assert description.table.commits.latest_ratified_version == 3
        assert description.catalog_properties == {"newest": "3"}
        assert looks == 3


def test_properties_have_a_size_limit(warehouse: refimpl.Warehouse) -> None:
    table = create(warehouse, CATALOG_MANAGED, CommitMode.STAGED)
    empty = len(msgspec.json.encode({"note": ""}))
    fitting = "x" * (catalog_requests.MAX_CATALOG_PROPERTIES_BYTES - empty)
    refused = table.owner.update(table.table_id, UpdatePreconditions(properties={"note": fitting + "x"}))
    assert isinstance(refused, PreconditionFailed)
    assert str(catalog_requests.MAX_CATALOG_PROPERTIES_BYTES) in refused.detail
    assert table.owner.describe(table.table_id).catalog_properties == {}
    assert table.owner.update(table.table_id, UpdatePreconditions(properties={"note": fitting})) is None
    assert table.owner.describe(table.table_id).catalog_properties == {"note": fitting}


@pytest.mark.parametrize("change", [{"note": None}, {"other": None}])
def test_properties_beyond_the_limit_can_be_removed(
    warehouse: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch, change: dict[str, None]
) -> None:
    """An older release may have accepted more."""
    table = create(warehouse, CATALOG_MANAGED, CommitMode.STAGED)
    assert table.owner.update(table.table_id, UpdatePreconditions(properties={"note": "x" * 100, "other": "y"})) is None
    monkeypatch.setattr(catalog_requests, "MAX_CATALOG_PROPERTIES_BYTES", 10)
    assert table.owner.update(table.table_id, UpdatePreconditions(properties=change)) is None
    assert set(table.owner.describe(table.table_id).catalog_properties) == {"note", "other"} - set(change)


# Invalid `metaData` actions


def proposed(content: Sequence[Action]) -> DirectProposal:
    return DirectProposal(attempt=new_attempt(), content=actions.encode(content))


def changed(metadata: Metadata, version: int = 1) -> bytes:
    return actions.encode([info(START + version), metadata])


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
    """The table would be unreadable. This applies to a creation and to a hand-back."""
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


def test_commit_cannot_change_the_enablement_of_timestamps(warehouse: refimpl.Warehouse) -> None:
    """in-commit timestamps, "Enablement"; FB22: otherwise the time of earlier commits would be unknown."""
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


def test_commit_cannot_change_the_table_id_in_the_log(warehouse: refimpl.Warehouse) -> None:
    """Engines that commit through a catalog read the id there."""
    table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE)
    named = CATALOG_MANAGED.table_id_property
    assert named is not None
    mine = metadata_of(CATALOG_MANAGED, configuration={named: table.table_id})
    assert isinstance(table.commit(1, changed(mine)), Ratified)
    for configuration in ({}, {named: new_attempt()}):
        other = metadata_of(CATALOG_MANAGED, configuration=configuration)
        refused(table.commit(2, changed(other, 2)), RejectionReason.INCONSISTENT_TABLE)
    table.land()
