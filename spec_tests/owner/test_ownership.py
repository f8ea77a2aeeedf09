"""Creation: catalog-managed, "Creating and Dropping"; managed-commits, "Creating a new managed-commit table".
Take-over and hand-back: managed-commits, "Converting an existing filesystem based table", "Converting a
managed-commit table". Drop and undrop: the tables that come back, and the files that stay.
"""

import os
from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest

import refimpl
from conformance.adapters.reference.host_effects import Killed
from refimpl.care import dropping
from refimpl.care.verify import Severity, verify
from refimpl.owner.tables import Tables
from refimpl.protocol import actions, log_path
from refimpl.protocol.commit_owner import MaintenancePolicy, Registered, TableState
from refimpl.protocol.commits import Conflict, DirectProposal, Outcome, Ratified, RejectionReason, VersionGap
from refimpl.protocol.errors import (
    InvalidRequestError,
    LocationError,
    NameTakenError,
    OutcomeUnknown,
    OwnerUnavailableError,
    TableNotFoundError,
)
from refimpl.protocol.table_feature import (
    CATALOG_MANAGED,
    COORDINATED_COMMITS,
    MANAGED_COMMIT,
    CommitMode,
    TableFeature,
)
from refimpl.storage.environment import Environment
from refimpl.storage.log_store import LogStore
from spec_tests.support import builders
from spec_tests.support.builders import (
    START,
    OwnedTable,
    append,
    create,
    dropped,
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
from spec_tests.support.faults import FailingFiles, Faults, Others, opened


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
        with patch.object(LogStore, "put_once", side_effect=Killed), pytest.raises(Killed):
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
    with patch.object(LogStore, "put_once", side_effect=Killed), pytest.raises(Killed):
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


def proposal_of(feature: TableFeature) -> DirectProposal:
    return DirectProposal(attempt=builders.new_attempt(), content=builders.first_version(feature, builders.START))


# The three phases


def test_registration_that_cannot_be_described_is_unknown(warehouse: refimpl.Warehouse) -> None:
    """Another error would say that nothing happened."""
    staged, proposal = warehouse.owner.stage_table("orders", CATALOG_MANAGED), proposal_of(CATALOG_MANAGED)
    with patch.object(Tables, "resolve_id", side_effect=OwnerUnavailableError("busy")), pytest.raises(OutcomeUnknown):
        warehouse.owner.register_table(staged.table_id, proposal)
    assert isinstance(warehouse.owner.register_table(staged.table_id, proposal), Registered)


# Names


def test_table_with_a_failing_backfill_is_not_dropped(warehouse: refimpl.Warehouse) -> None:
    """The disk fails. Only the owner has the last commits, and after a drop they would never be published."""
    table = builders.create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=3)
    storage = FailingFiles()
    storage.fail_when = lambda effect, path: effect == "link"
    failing = refimpl.open(warehouse.directory, environment=Environment(files=storage), create=True)
    with pytest.raises(OwnerUnavailableError):
        failing.owner.drop_table(table.table_id)
    failing.close()
    assert warehouse.owner.resolve("orders").table_id == table.table_id
    warehouse.owner.drop_table(table.table_id)
    assert table.published() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a..b", "a.b.c.d", "a/b", "../x", "a b", "a\n", "1a", "a-b", "é", "a\0", "x" * 256, "`a`", "a;b"],
)
def test_invalid_table_name_is_rejected(warehouse: refimpl.Warehouse, name: str) -> None:
    with pytest.raises(InvalidRequestError):
        warehouse.owner.stage_table(name, CATALOG_MANAGED)
    assert [path.name for path in warehouse.directory.iterdir()] == ["_owner"]


# Locations


def stage_at(warehouse: refimpl.Warehouse, location: Path, name: str = "orders") -> Path:
    return warehouse.owner.stage_table(name, CATALOG_MANAGED, location=location).location


def test_a_location_elsewhere_is_refused(warehouse: refimpl.Warehouse, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    link = warehouse.directory / "link"
    link.symlink_to(outside)
    loop = warehouse.directory / "loop"
    loop.symlink_to(loop)
    inside = warehouse.directory / "inside"
    inside.mkdir()
    (warehouse.directory / "alias").symlink_to(inside)
    for location in (
        outside,
        warehouse.directory,
        warehouse.directory.parent,
        tmp_path / "warehouse2",
        warehouse.directory / ".." / "warehouse" / "orders",
        warehouse.directory / "a" / ".." / "orders",
        Path("orders"),
        link,
        link / "orders",
        loop / "orders",
        warehouse.directory / "alias",
        warehouse.directory / "_owner",
        warehouse.directory / "_owner" / "orders",
        warehouse.directory / "x" / "_delta_log",
        warehouse.directory / "bad\udcff",
        warehouse.directory / "nul\0",
        warehouse.directory / ("x" * 300),
    ):
        with pytest.raises(LocationError):
            stage_at(warehouse, location)
    assert list(outside.iterdir()) == []
    assert warehouse.owner.tables() == []
    assert stage_at(warehouse, inside) == inside


def test_a_location_with_files_is_refused(warehouse: refimpl.Warehouse) -> None:
    chosen = warehouse.directory / "place"
    (chosen / "data").mkdir(parents=True)
    with pytest.raises(LocationError):
        stage_at(warehouse, chosen)
    (chosen / "data").rmdir()
    chosen.rmdir()
    chosen.write_text("a file")
    with pytest.raises(LocationError):
        stage_at(warehouse, chosen)
    with pytest.raises(LocationError):
        stage_at(warehouse, chosen / "below")
    chosen.unlink()
    stage_at(warehouse, chosen)


def test_tables_do_not_overlap(warehouse: refimpl.Warehouse) -> None:
    outer = warehouse.directory / "a" / "b"
    stage_at(warehouse, outer, "outer")
    for location in (outer, outer / "c", outer / "c" / "d", outer.parent):
        with pytest.raises(LocationError):
            stage_at(warehouse, location)
    stage_at(warehouse, warehouse.directory / "a" / "bc")
    for neighbour in ("b-", "b0", "b%", "b_", "B"):  # they sort before and after the separator, or are patterns
        stage_at(warehouse, warehouse.directory / "a" / neighbour)
    stage_at(warehouse, warehouse.directory / "%" / "b")
    with pytest.raises(LocationError):
        stage_at(warehouse, warehouse.directory / "%")


def test_a_table_around_the_warehouse_overlaps_every_table_in_it(tmp_path: Path) -> None:
    """A root may contain the warehouse itself."""
    with refimpl.open(tmp_path / "lake" / "warehouse", roots=[tmp_path], create=True) as warehouse:
        around = builders.filesystem_table(tmp_path / "lake", versions=3)
        beside = builders.filesystem_table(tmp_path / "lake2", versions=3)
        builders.create(warehouse, CATALOG_MANAGED, CommitMode.STAGED)

        def take_over(log: LogStore) -> object:
            proposal = DirectProposal(
                attempt=builders.new_attempt(), content=builders.ownership_change(MANAGED_COMMIT, builders.START + 3)
            )
            return warehouse.owner.take_over(log.location, "plain", MANAGED_COMMIT, 3, proposal)

        with pytest.raises(LocationError):
            take_over(around)
        assert isinstance(take_over(beside), Ratified)


def test_unknown_name_is_answered_with_known_names(warehouse: refimpl.Warehouse) -> None:
    for number in range(30):
        builders.create(warehouse, CATALOG_MANAGED, CommitMode.STAGED, name=f"table_{number:02}")
    with pytest.raises(TableNotFoundError) as caught:
        warehouse.owner.resolve("table_x")
    assert "table_00" in caught.value.message
    assert "table_29" not in caught.value.message, "the message lists only some names"


def test_no_table_is_created_inside_another_table(warehouse: refimpl.Warehouse) -> None:
    builders.filesystem_table(warehouse.directory / "plain")
    table = builders.create(warehouse, MANAGED_COMMIT, CommitMode.STAGED)
    farewell = DirectProposal(attempt=builders.new_attempt(), content=builders.hand_back_commit(builders.START + 1))
    assert isinstance(warehouse.owner.hand_back(table.table_id, 1, farewell), Ratified)
    for chosen in (warehouse.directory / "plain", table.location):
        with pytest.raises(LocationError):
            stage_at(warehouse, chosen / "month=1" / "inner", "inner")
        with pytest.raises(LocationError):
            stage_at(warehouse, chosen, "inner")


def test_a_deleted_table_frees_its_location(warehouse: refimpl.Warehouse) -> None:
    """catalog-managed, "Creating and Dropping": a hard delete may follow the soft one."""
    chosen = warehouse.directory / "place"
    staged = warehouse.owner.stage_table("orders", CATALOG_MANAGED, location=chosen)
    warehouse.owner.register_table(staged.table_id, proposal_of(CATALOG_MANAGED))
    warehouse.owner.drop_table(staged.table_id)
    with pytest.raises(LocationError):
        stage_at(warehouse, chosen)
    (chosen / "_delta_log" / log_path.commit(0)).unlink()
    second = warehouse.owner.stage_table("orders", CATALOG_MANAGED, location=chosen)
    warehouse.owner.register_table(second.table_id, proposal_of(CATALOG_MANAGED))
    builders.owned(warehouse, "orders").land(3)
    with pytest.raises(TableNotFoundError):  # the versions there belong to another table
        warehouse.owner.get_commits(staged.table_id)


def tree(location: Path) -> set[str]:
    return {str(path.relative_to(location)) for path in location.rglob("*")}


def test_undrop_restores_every_kind_of_table(warehouse: refimpl.Warehouse, table: OwnedTable) -> None:
    """The id, the history and the attempts are the same, and the table accepts commits again."""
    table.land(2)
    before = table.history()
    warehouse.owner.drop_table(table.table_id)
    back = dropping.undrop_table(warehouse.owner, "orders")
    assert (back.table_id, back.state, back.commits.latest_ratified_version) == (table.table_id, TableState.ACTIVE, 2)
    assert table.history() == before
    table.land()
    assert [finding for finding in verify(warehouse.owner) if finding.severity is Severity.ERROR] == []


def test_undrop_by_name_restores_the_table_dropped_last(warehouse: refimpl.Warehouse) -> None:
    first, second = dropped(warehouse), dropped(warehouse)
    assert dropping.undrop_table(warehouse.owner, "orders").table_id == second.table_id
    with pytest.raises(NameTakenError):
        dropping.undrop_table(warehouse.owner, first.table_id)
    assert warehouse.owner.resolve("orders").table_id == second.table_id


def test_rejected_attempt_never_lands_after_an_undrop(warehouse: refimpl.Warehouse) -> None:
    """A copy of the request may arrive late."""
    table = create(warehouse, CATALOG_MANAGED, CommitMode.STAGED)
    late = table.propose(1, append(START + 1))
    warehouse.owner.drop_table(table.table_id)
    refused(warehouse.owner.commit(table.table_id, 1, late), RejectionReason.NOT_ACTIVE)
    dropping.undrop_table(warehouse.owner, "orders")
    refused(warehouse.owner.commit(table.table_id, 1, late), RejectionReason.ATTEMPT_RESOLVED)
    assert isinstance(warehouse.owner.commit(table.table_id, 1, table.propose(1, append(START + 1))), Ratified)


def test_undrop_leaves_another_table_alone(warehouse: refimpl.Warehouse, tmp_path: Path) -> None:
    """Nothing changes if the location has another table of this owner, a filesystem table, or no table."""
    table = dropped(warehouse)
    moved = table.location.rename(tmp_path / "elsewhere")
    with pytest.raises(LocationError, match="does not hold"):
        dropping.undrop_table(warehouse.owner, table.table_id)
    filesystem_table(table.location)
    before = tree(table.location)
    with pytest.raises(LocationError, match="does not hold"):
        dropping.undrop_table(warehouse.owner, table.table_id)
    assert tree(table.location) == before
    table.location.rename(tmp_path / "other")
    other = create(warehouse, CATALOG_MANAGED, CommitMode.STAGED, location=table.location)
    with pytest.raises((LocationError, NameTakenError)):
        dropping.undrop_table(warehouse.owner, table.table_id)
    assert other.history()
    assert moved.is_dir()


def test_table_undropped_by_another_process_is_not_found(warehouse: refimpl.Warehouse) -> None:
    table = dropped(warehouse)
    meanwhile = Others(before=lambda: dropping.undrop_table(warehouse.owner, "orders"))
    environment = Faults().environment(host_lock=meanwhile.lock)
    with refimpl.open(warehouse.directory, environment=environment) as late, pytest.raises(TableNotFoundError):
        dropping.undrop_table(late.owner, "orders")
    table.land()


def test_table_with_a_later_version_stays_dropped_with_its_files(warehouse: refimpl.Warehouse) -> None:
    """Another catalog may have registered the location."""
    table = dropped(warehouse)
    table.log.put_if_absent(log_path.commit(3), b"{}")
    before = tree(table.location)
    with pytest.raises(LocationError, match="version 3"):
        dropping.undrop_table(warehouse.owner, "orders")
    assert warehouse.owner.tables() == []
    assert tree(table.location) == before


def test_a_drop_that_cannot_remove_a_lock_file_is_not_denied(tmp_path: Path) -> None:
    storage = FailingFiles()
    with refimpl.open(tmp_path / "lake", create=True, environment=Environment(files=storage)) as lake:
        staged = lake.owner.stage_table("late", CATALOG_MANAGED)
        storage.fail_when = lambda operation, path: operation == "unlink"
        lake.owner.drop_table(staged.table_id)
        with pytest.raises(TableNotFoundError):
            lake.owner.resolve("late")


def test_only_dropped_tables_are_undropped(warehouse: refimpl.Warehouse) -> None:
    table = create(warehouse, CATALOG_MANAGED, CommitMode.STAGED)
    staged = warehouse.owner.stage_table("other", CATALOG_MANAGED)
    warehouse.owner.drop_table(staged.table_id)
    for reference in ("orders", table.table_id, "nothing", staged.table_id):
        with pytest.raises(TableNotFoundError):
            dropping.undrop_table(warehouse.owner, reference)
    assert table.history()


@pytest.mark.parametrize("moved", ["", "_delta_log"])
def test_undrop_rejects_a_link_in_place_of_the_table_or_log(
    warehouse: refimpl.Warehouse, tmp_path: Path, moved: str
) -> None:
    table = dropped(warehouse)
    folder = (table.location / moved).rename(tmp_path / "moved")
    (table.location / moved).symlink_to(folder)
    before = tree(folder)
    with pytest.raises(LocationError, match="symbolic link"):
        dropping.undrop_table(warehouse.owner, "orders")
    assert tree(folder) == before
