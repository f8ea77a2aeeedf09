"""managed-commits: "Converting an existing filesystem based table", "Converting a managed-commit table"."""

import os
from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest

import refimpl
from refimpl.protocol import actions, log_path
from refimpl.protocol.commit_owner import MaintenancePolicy, TableState
from refimpl.protocol.commits import Conflict, DirectProposal, Outcome, Ratified, RejectionReason, VersionGap
from refimpl.protocol.errors import LocationError, TableNotFoundError
from refimpl.protocol.table_feature import (
    CATALOG_MANAGED,
    COORDINATED_COMMITS,
    MANAGED_COMMIT,
    CommitMode,
    TableFeature,
)
from refimpl.storage.log_store import LogStore
from spec_tests.support.builders import (
    START,
    OwnedTable,
    append,
    create,
    filesystem_table,
    hand_back_commit,
    info,
    metadata_of,
    new_attempt,
    owned,
    ownership_change,
    protocol_of,
    refused,
)
from spec_tests.support.faults import SimulatedCrash, opened


@pytest.fixture
def plain(warehouse: refimpl.Warehouse) -> LogStore:
    """A filesystem table with versions 0, 1 and 2 inside the warehouse."""
    return filesystem_table(warehouse.directory / "plain", versions=3, environment=warehouse.environment)


def proposed(content: bytes) -> DirectProposal:
    return DirectProposal(attempt=new_attempt(), content=content)


def take_over(
    warehouse: refimpl.Warehouse,
    log: LogStore,
    *,
    feature: TableFeature = MANAGED_COMMIT,
    version: int = 3,
    proposal: DirectProposal | None = None,
    name: str = "plain",
    commit_mode: CommitMode | None = None,
) -> Outcome:
    proposal = proposal or proposed(ownership_change(feature, START + version))
    return warehouse.owner.take_over(log.location, name, feature, version, proposal, commit_mode=commit_mode)


# Taking over


def change_with_id(table_id: str) -> DirectProposal:
    metadata = metadata_of(CATALOG_MANAGED)
    stamp = {**metadata.configuration, "io.unitycatalog.tableId": table_id}
    stamped = [info(START + 3), protocol_of(CATALOG_MANAGED), msgspec.structs.replace(metadata, configuration=stamp)]
    return proposed(actions.encode(stamped))


def test_ownership_change_gives_the_table_its_id(warehouse: refimpl.Warehouse, plain: LogStore) -> None:
    """Engines that commit through a catalog read the id from the log."""
    table_id = new_attempt()
    change = change_with_id(table_id)
    for replayed in (False, True):
        outcome = take_over(warehouse, plain, feature=CATALOG_MANAGED, proposal=change)
        assert isinstance(outcome, Ratified)
        assert outcome.replayed is replayed
    assert warehouse.owner.resolve("plain").table_id == table_id
    owned(warehouse, "plain").land(2)


def test_invalid_or_known_table_id_is_rejected(warehouse: refimpl.Warehouse, plain: LogStore) -> None:
    other = create(warehouse, CATALOG_MANAGED, CommitMode.STAGED, name="other")
    for table_id in (other.table_id, "", "orders", new_attempt().upper()):
        outcome = take_over(warehouse, plain, feature=CATALOG_MANAGED, proposal=change_with_id(table_id))
        refused(outcome, RejectionReason.INCONSISTENT_TABLE)
        assert not plain.published(3)
    assert warehouse.tables() == ["other"]
    outcome = take_over(warehouse, plain, feature=CATALOG_MANAGED, proposal=change_with_id(new_attempt()))
    assert isinstance(outcome, Ratified)


@pytest.mark.parametrize("crashed", [False, True])
def test_id_of_a_lost_take_over_may_be_used_again(warehouse: refimpl.Warehouse, plain: LogStore, crashed: bool) -> None:
    """The owner forgets the first location: the second table's version must not appear there."""
    table_id = new_attempt()
    change = change_with_id(table_id)
    other = filesystem_table(warehouse.directory / "other", versions=3, environment=warehouse.environment)
    if crashed:
        with patch.object(LogStore, "put_once", side_effect=SimulatedCrash), pytest.raises(SimulatedCrash):
            take_over(warehouse, plain, feature=CATALOG_MANAGED, proposal=change)
    plain.put_if_absent(log_path.commit(3), append(START + 3))
    if crashed:
        with pytest.raises(TableNotFoundError):
            warehouse.owner.hand_back(table_id, 4, proposed(hand_back_commit(START + 4)))
    else:
        assert isinstance(take_over(warehouse, plain, feature=CATALOG_MANAGED, proposal=change), Conflict)
    assert isinstance(take_over(warehouse, other, feature=CATALOG_MANAGED, proposal=change, name="other"), Ratified)
    assert other.read(log_path.commit(3)) == change.content
    owned(warehouse, "other").land(2)
    owned(warehouse, "other").backfill()
    assert sorted(plain.published_versions()) == [0, 1, 2, 3]
    assert sorted(other.published_versions()) == [0, 1, 2, 3, 4, 5]


def test_replay_of_a_take_over_after_the_hand_back_is_ratified(warehouse: refimpl.Warehouse, plain: LogStore) -> None:
    """A landed attempt stays landed, whichever owner the table has now."""
    first = proposed(ownership_change(MANAGED_COMMIT, START + 3))
    assert isinstance(take_over(warehouse, plain, proposal=first), Ratified)
    assert isinstance(hand_back(owned(warehouse, "plain"), 4), Ratified)
    again = take_over(warehouse, plain, proposal=first)
    assert isinstance(again, Ratified)
    assert (again.commit.version, again.replayed) == (3, True)
    assert warehouse.owner.resolve(plain.location).state is TableState.HANDED_BACK
    assert isinstance(take_over(warehouse, plain, version=5), Ratified)
    once_more = take_over(warehouse, plain, proposal=first)
    assert isinstance(once_more, Ratified)
    assert once_more.commit.version == 3
    assert owned(warehouse, "plain").latest == 5
    assert isinstance(hand_back(owned(warehouse, "plain"), 6), Ratified)
    after_both = take_over(warehouse, plain, proposal=first)
    assert isinstance(after_both, Ratified)
    assert (after_both.commit.version, after_both.replayed) == (3, True), "the first take-over landed as version 3"


def test_conflict_below_the_take_over_names_no_winners(warehouse: refimpl.Warehouse, plain: LogStore) -> None:
    """The owner knows only later commits. A loser that checks only these would miss the winner."""
    assert isinstance(take_over(warehouse, plain), Ratified)
    mine = owned(warehouse, "plain")
    mine.land(1)
    assert mine.commit(2) == Conflict(latest_ratified_version=4)
    late = mine.commit(4)
    assert isinstance(late, Conflict)
    assert [winner.version for winner in late.winners] == [4]


def test_a_log_without_version_0_is_not_taken_over(warehouse: refimpl.Warehouse) -> None:
    log = filesystem_table(warehouse.directory / "plain", versions=0)
    assert isinstance(take_over(warehouse, log, version=0), VersionGap)


def test_the_ownership_change_is_later_than_the_file_before_it(warehouse: refimpl.Warehouse) -> None:
    """in-commit timestamps, rule 3: if the table had no in-commit timestamps, the modification time counts."""
    log = filesystem_table(warehouse.directory / "plain", versions=1)
    log.put_if_absent(log_path.commit(1), actions.encode([info(START, inCommitTimestamp=None)]))
    os.utime(log.folder / log_path.commit(1), (5_000, 5_000))
    for timestamp, lands in ((5_000_000, False), (5_000_001, True)):
        outcome = take_over(warehouse, log, version=2, proposal=proposed(ownership_change(MANAGED_COMMIT, timestamp)))
        assert isinstance(outcome, Ratified) is lands, outcome


def test_a_forgotten_take_over_frees_its_name(warehouse: refimpl.Warehouse, plain: LogStore) -> None:
    with patch.object(LogStore, "put_once", side_effect=SimulatedCrash), pytest.raises(SimulatedCrash):
        take_over(warehouse, plain)
    plain.put_if_absent(log_path.commit(3), append(START + 3))
    assert create(warehouse, CATALOG_MANAGED, CommitMode.STAGED, name="plain").latest == 0


def test_take_over_rejects_a_location_that_is_no_table(
    warehouse: refimpl.Warehouse, tmp_path: Path, plain: LogStore
) -> None:
    (warehouse.directory / "nothing").mkdir()
    outside = filesystem_table(tmp_path / "outside", versions=3)
    link = warehouse.directory / "link"
    link.symlink_to(outside.location)
    nested = filesystem_table(create(warehouse, CATALOG_MANAGED, CommitMode.STAGED).location / "nested", versions=3)
    inside = filesystem_table(warehouse.directory / "_owner" / "x", versions=3)
    for location in (
        warehouse.directory / "nothing",
        warehouse.directory / "missing",
        outside.location,
        link,
        plain.location / ".." / "plain",
        Path("plain"),
        warehouse.directory,
        nested.location,
        inside.location,
    ):
        with pytest.raises(LocationError):
            take_over(warehouse, LogStore(location, warehouse.environment))
    assert isinstance(take_over(warehouse, plain), Ratified)


def test_roots_given_at_opening_are_remembered(tmp_path: Path) -> None:
    outside = filesystem_table(tmp_path / "lake" / "plain", versions=3)
    with opened(tmp_path / "warehouse") as warehouse, pytest.raises(LocationError):
        take_over(warehouse, outside)
    with pytest.raises(LocationError):
        refimpl.open(tmp_path / "warehouse", roots=[tmp_path / "missing"], create=True)
    with refimpl.open(tmp_path / "warehouse", roots=[tmp_path / "lake"], create=True):
        pass
    with opened(tmp_path / "warehouse") as warehouse:  # the ledger stores the roots
        with pytest.raises(LocationError):
            take_over(warehouse, LogStore(tmp_path / "lake", warehouse.environment))
        assert isinstance(take_over(warehouse, outside), Ratified)
        owned(warehouse, "plain").land()
        assert owned(warehouse, outside.location).location == outside.location


# Handing back


def hand_back(table: OwnedTable, version: int, content: bytes | None = None) -> Outcome:
    content = hand_back_commit(START + version) if content is None else content
    return table.owner.hand_back(table.table_id, version, proposed(content))


def test_owner_may_reject_a_hand_back(delayed: OwnedTable) -> None:
    """managed-commits: an owner is not required to support it."""
    delayed.land()
    policy = MaintenancePolicy(backfill_every=None, hand_back=False)
    delayed.owner.set_policy(delayed.table_id, policy)
    refused(hand_back(delayed, 2), RejectionReason.OWNER_REFUSES)
    assert delayed.published() == [0]
    delayed.land()
    delayed.owner.set_policy(delayed.table_id, MaintenancePolicy(backfill_every=None))
    assert isinstance(hand_back(delayed, 3), Ratified)


def test_a_feature_may_outlive_its_owner(warehouse: refimpl.Warehouse) -> None:
    """DELTA_SPARK.md#dropping-the-feature: Spark first removes the properties through the owner, then the feature."""
    table = create(warehouse, COORDINATED_COMMITS, CommitMode.STAGED)
    still_named = actions.encode([info(START + 1), metadata_of(COORDINATED_COMMITS)])
    refused(hand_back(table, 1, still_named), RejectionReason.INCONSISTENT_TABLE)
    assert table.owner.resolve("orders").state is TableState.ACTIVE
    assert isinstance(hand_back(table, 1, actions.encode([info(START + 1), metadata_of(None)])), Ratified)
    assert table.owner.resolve(table.log.location).state is TableState.HANDED_BACK
    assert table.published() == [0, 1]
