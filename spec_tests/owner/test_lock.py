"""Every change of the ledger, and every new visible version, happens under the owner's lock and in a transaction.

`Watch` records changes outside the lock. SQLite's own lock covers neither the table's log nor the fold of the ledger.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import refimpl
from refimpl.care import dropping
from refimpl.care.repair import repair
from refimpl.catalog.owner import UpdatePreconditions
from refimpl.protocol import log_path
from refimpl.protocol.commit_owner import NameTaken, Registered, TableState
from refimpl.protocol.commits import Conflict, DirectProposal, Outcome, Ratified
from refimpl.protocol.errors import (
    InvalidRequestError,
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
from spec_tests.owner.test_recovery import interrupted
from spec_tests.support.builders import (
    FEATURES_AND_COMMIT_MODES,
    ON_REQUEST,
    START,
    OwnedTable,
    append,
    create,
    first_version,
    hand_back_commit,
    name_of,
    new_attempt,
    owned,
)
from spec_tests.support.faults import Faults, Others, Watch, crashed, dies_after, opened


@pytest.fixture
def watch() -> Iterator[Watch]:
    watch = Watch()
    yield watch
    watch.close()
    assert watch.outside == []
    assert {"begin", "commit"} <= watch.inside


@pytest.fixture
def watched(tmp_path: Path, watch: Watch) -> Iterator[refimpl.Warehouse]:
    warehouse = watch.opened(tmp_path / "warehouse")
    yield warehouse
    assert {"insert", "update"} <= watch.inside


@pytest.fixture(params=FEATURES_AND_COMMIT_MODES, ids=lambda pair: name_of(*pair))
def table(request: pytest.FixtureRequest, watched: refimpl.Warehouse) -> OwnedTable:
    return create(watched, *request.param, commits=2)


def test_commits_and_lost_races_and_backfills(table: OwnedTable, watch: Watch) -> None:
    attempt = new_attempt()
    assert isinstance(table.commit(3, attempt=attempt), Ratified)
    assert isinstance(table.commit(3), Conflict)
    table.backfill(2)
    table.backfill()
    assert table.published() == [0, 1, 2, 3]
    assert "link" in watch.inside


def test_an_undrop(table: OwnedTable, watched: refimpl.Warehouse) -> None:
    table.owner.drop_table(table.table_id)
    assert dropping.undrop_table(watched.owner, "orders").table_id == table.table_id


def test_a_rename(table: OwnedTable, watched: refimpl.Warehouse, watch: Watch) -> None:
    create(watched, table.feature, table.commit_mode, name="others")
    seen = len(watch.seen)
    for name, before, error in (
        ("others", "orders", NameTakenError),
        ("sales", "others", TableNotFoundError),
        ("a b", "orders", InvalidRequestError),
    ):
        with pytest.raises(error):
            watched.owner.rename_table(table.table_id, name, before=before)
    assert "commit" not in watch.seen[seen:]
    watched.owner.rename_table(table.table_id, "sales", before="orders")
    assert watch.seen[seen:].count("commit") == 1
    assert watched.tables() == ["others", "sales"]


def test_a_repair(table: OwnedTable, watched: refimpl.Warehouse) -> None:
    with watched.owner.lock(), watched.owner.changing(table.table_id) as (writer, record):
        writer.set(record, halted="a disk failed once")
    assert [action.done for action in repair(watched.owner)] == [True]
    assert isinstance(table.commit(3), Ratified)


def test_a_repair_of_an_abandoned_creation(table: OwnedTable, watched: refimpl.Warehouse) -> None:
    staged = watched.owner.stage_table("late", table.feature)
    assert "forget-abandoned" in {action.code for action in repair(watched.owner, orphan_age_ms=0)}
    assert not staged.location.exists()


def test_watch_records_changes_without_the_lock(tmp_path: Path) -> None:
    """The checks of this file can fail."""
    watch = Watch()
    warehouse = watch.opened(tmp_path / "warehouse")
    table = create(warehouse, *FEATURES_AND_COMMIT_MODES[0])
    assert watch.outside == []
    with warehouse.owner.changing(table.table_id) as (writer, record):
        writer.set(record, halted="why")
    writer.set(record, halted=None)
    assert watch.outside == ["begin", "update", "commit", "update"]


# Repairs after crashes and failing disks, and announced tables: also under the lock


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "warehouse"


def first(warehouse: refimpl.Warehouse, table_id: str) -> Registered | NameTaken | Outcome:
    proposal = DirectProposal(attempt=new_attempt(), content=first_version(MANAGED_COMMIT))
    return warehouse.owner.register_table(table_id, proposal)


def killed_creation(directory: Path, watch: Watch, after: str) -> tuple[refimpl.Warehouse, str]:
    """The id of a creation of `orders` that died after the effect `after`. Another table has the name now."""
    with opened(directory) as warehouse:
        mine = warehouse.owner.stage_table("orders", MANAGED_COMMIT).table_id
        other = warehouse.owner.stage_table("orders", MANAGED_COMMIT).table_id
    assert crashed(directory, dies_after(after), lambda dying: first(dying, mine)) is None
    watched = watch.opened(directory)
    assert isinstance(first(watched, other), Registered)
    assert watched.owner.resolve("orders").table_id == other
    return watched, mine


@pytest.mark.parametrize(
    "commit_mode", [CommitMode.DIRECT, CommitMode.STAGED], ids=lambda commit_mode: commit_mode.value
)
def test_next_call_repeats_a_failed_publication(directory: Path, watch: Watch, commit_mode: CommitMode) -> None:
    watched = watch.opened(directory)
    table = create(watched, MANAGED_COMMIT, commit_mode, commits=2)
    watch.failing = "fsync _delta_log/"
    if commit_mode is CommitMode.DIRECT:
        with pytest.raises(OutcomeUnknown):
            table.commit(3)
    else:
        with pytest.raises(OwnerUnavailableError):
            table.backfill()
    watch.failing = None
    first, before = (3 if commit_mode is CommitMode.DIRECT else 1), len(watch.seen)
    table.backfill()
    assert watched.owner.resolve("orders").halted is None
    assert f"replace {first}.json" in watch.seen[before:]


def rewrite_effects(version: int) -> list[str]:
    """The effects that rewrite a file of another writer. Its fsync may have failed, so another fsync proves nothing."""
    temporary = [f"{effect} temporary" for effect in ("create", "write", "fsync")]
    return [*temporary, f"replace {version}.json", "fsync _delta_log/"]


def test_repair_adopts_and_removes_under_the_lock(directory: Path, watch: Watch) -> None:
    watched = watch.opened(directory)
    table = create(watched, CATALOG_MANAGED, CommitMode.STAGED, commits=1)
    loser = table.propose(1, append(START + 1))
    assert isinstance(table.owner.commit(table.table_id, 1, loser), Conflict)
    table.backfill()
    (table.log.folder / ".tmp-of-the-dead").write_bytes(b"half")
    (table.log.folder / log_path.commit(2)).write_bytes(append(START + 2))
    before = len(watch.seen)
    done = repair(watched.owner, adopt_published=True, orphan_age_ms=-60_000)
    assert [action.code for action in done] == ["adopt", "remove-leftovers"]
    seen = watch.seen[before:]
    first = seen.index("replace 2.json") - 3
    assert seen[first : first + 6] == [*rewrite_effects(2), "commit"]
    assert seen[-4:] == ["unlink staged", "unlink staged", "unlink temporary", "fsync _delta_log/"]
    assert "unlink" in watch.inside
    assert table.log.staged_listing(table.feature.staging_folder) == []
    assert table.log.temporaries() == []
    assert table.latest == 2


def stage_with_its_version(warehouse: refimpl.Warehouse) -> None:
    """As after the restore of a ledger that is older than the creation."""
    staged = warehouse.owner.stage_table("late", CATALOG_MANAGED)
    (staged.location / "_delta_log" / log_path.commit(0)).write_bytes(first_version(CATALOG_MANAGED))


def test_repair_registers_a_durable_version_under_the_lock(directory: Path, watch: Watch) -> None:
    watched = watch.opened(directory)
    stage_with_its_version(watched)
    before = len(watch.seen)
    assert [action.code for action in repair(watched.owner, adopt_published=True)][:1] == ["register"]
    assert watch.seen[before : before + 6] == [*rewrite_effects(0), "commit"]


def test_repair_leaves_a_table_that_another_process_registered_meanwhile(directory: Path) -> None:
    def register() -> None:
        with opened(directory) as other:
            repair(other.owner, adopt_published=True)

    with opened(directory) as warehouse:
        stage_with_its_version(warehouse)
    environment = Faults().environment(host_lock=Others(before=register).lock)
    with refimpl.open(directory, environment=environment) as warehouse:
        assert repair(warehouse.owner, adopt_published=True) == []
        assert warehouse.tables() == ["late"]


def settled(directory: Path) -> None:
    with opened(directory) as other:
        table = owned(other, "orders")
        table.owner.attempt_outcome(table.table_id, new_attempt())


def landed(directory: Path) -> None:
    with opened(directory) as other:
        assert isinstance(owned(other, "orders").commit(2), Ratified)


@pytest.mark.parametrize(
    ("others", "done"),
    [
        (lambda directory: Others(before=lambda: settled(directory)), []),
        (lambda directory: Others(after=lambda: landed(directory)), ["completed the publish of version 1"]),
    ],
    ids=["another process settles first", "another process commits afterwards"],
)
def test_repair_reports_only_its_own_actions(
    directory: Path, others: Callable[[Path], Others], done: list[str]
) -> None:
    interrupted(directory)
    acting = others(directory)
    with refimpl.open(directory, environment=Faults().environment(host_lock=acting.lock), create=True) as warehouse:
        assert [action.message for action in repair(warehouse.owner)] == done
        assert acting.acted
        assert owned(warehouse, "orders").latest == (1 if not done else 2)


@pytest.mark.parametrize(
    ("table", "transactions"),
    [
        ((MANAGED_COMMIT, CommitMode.DIRECT), 2),
        ((MANAGED_COMMIT, CommitMode.STAGED), 1),
        ((CATALOG_MANAGED, CommitMode.INLINE), 1),
    ],
    ids=["direct", "staged", "inline"],
)
def test_each_operation_uses_the_fewest_transactions(
    directory: Path, watch: Watch, table: tuple[TableFeature, CommitMode], transactions: int
) -> None:
    """A direct commit takes two transactions, the promise and its record; other commits take one."""
    watched = watch.opened(directory)

    def commits(act: Callable[[], object]) -> int:
        before = watch.seen.count("commit")
        act()
        return watch.seen.count("commit") - before

    staged = watched.owner.stage_table("orders", *table[:1], commit_mode=table[1], policy=ON_REQUEST)
    proposal = DirectProposal(attempt=new_attempt(), content=first_version(table[0]))
    assert commits(lambda: watched.owner.register_table(staged.table_id, proposal)) == 2
    mine = owned(watched, "orders")
    assert commits(lambda: mine.commit(1)) == transactions
    assert isinstance(mine.commit(1), Conflict)
    assert commits(lambda: mine.commit(2)) == transactions, (
        "the lost attempt is stored in the transaction of the next commit"
    )
    assert commits(mine.backfill) == 1
    proposal = DirectProposal(attempt=new_attempt(), content=hand_back_commit(START + 100))
    if table[1] is not CommitMode.INLINE:
        assert commits(lambda: mine.owner.hand_back(mine.table_id, 3, proposal)) == 2
        assert watched.owner.resolve(mine.location).state is TableState.HANDED_BACK
    else:
        published = commits(mine.backfill)
        assert commits(lambda: mine.owner.drop_table(mine.table_id)) == 2 * published + 1
        assert commits(lambda: dropping.undrop_table(watched.owner, "orders")) == 1


def test_failed_creation_of_folders_is_forgotten_under_the_lock(directory: Path, watch: Watch) -> None:
    watched = watch.opened(directory)
    watch.failing = "mkdir _delta_log/"
    with pytest.raises(OwnerUnavailableError):
        watched.owner.stage_table("orders", MANAGED_COMMIT, location=directory / "orders")
    assert watch.seen[-2:] == ["mkdir _delta_log/", "commit"], "the table is forgotten in one transaction"
    watch.failing = None
    again = watched.owner.stage_table("orders", MANAGED_COMMIT, location=directory / "orders")
    assert isinstance(first(watched, again.table_id), Registered)
    assert "delete" in watch.inside


def test_announced_table_is_made_durable_and_adopted_under_lock(directory: Path, watch: Watch) -> None:
    watched = watch.opened(directory)
    table = watched.owner.announce(directory / "orders", "orders", COORDINATED_COMMITS, None)
    log = watched.owner.log(watched.owner.cached_record(table.table_id))
    assert log.folder.is_dir()
    assert (log.folder / COORDINATED_COMMITS.staging_folder).is_dir()
    (log.folder / log_path.commit(0)).write_bytes(first_version(COORDINATED_COMMITS))
    before = len(watch.seen)
    assert isinstance(watched.owner.adopt(table.table_id), Ratified)
    assert watch.seen[before:] == ["fsync 0.json", "fsync _delta_log/", *rewrite_effects(0), "commit"]
    assert watched.owner.resolve("orders").state is TableState.ACTIVE


def test_reported_files_are_made_durable_under_the_lock(directory: Path, watch: Watch) -> None:
    watched = watch.opened(directory)
    table = create(watched, CATALOG_MANAGED, CommitMode.STAGED, commits=2)
    for version in (1, 2):
        commit = table.owner.get_commits(table.table_id, version, version).commits[0]
        content = table.log.read_staged(table.feature.staging_folder, str(commit.file_name))
        (table.log.folder / log_path.commit(version)).write_bytes(content)
    before = len(watch.seen)
    assert table.owner.update(table.table_id, UpdatePreconditions(published_through=1)) is None
    assert watch.seen[before:] == [*rewrite_effects(1), "commit"]
    for version in (3, 4):
        table.land()
        content = table.history()[version]
        (table.log.folder / log_path.commit(version)).write_bytes(content)
    before = len(watch.seen)
    assert table.owner.update(table.table_id, UpdatePreconditions(published_through=3)) is None
    assert watch.seen[before:] == [*rewrite_effects(2), *rewrite_effects(3), "commit"], "every reported file"
    proposal = table.propose(5, first_version(CATALOG_MANAGED, START + 5))
    before = len(watch.seen)
    outcome = table.owner.commit_if(
        table.table_id, 5, proposal, UpdatePreconditions(published_through=4, properties={"team": "a"})
    )
    assert isinstance(outcome, Ratified)
    assert watch.seen[before:] == [*rewrite_effects(4), "commit"]
    assert [commit.version for commit in table.owner.get_commits(table.table_id).commits] == [5]
    described = table.owner.describe(table.table_id)
    assert described.catalog_properties == {"team": "a"}


def test_loser_of_a_name_frees_its_location(directory: Path, watch: Watch) -> None:
    watched = watch.opened(directory)
    mine, other = (
        watched.owner.stage_table("orders", MANAGED_COMMIT, location=directory / folder).table_id
        for folder in ("a", "b")
    )
    assert isinstance(first(watched, mine), Registered)
    assert isinstance(first(watched, other), NameTaken)
    again = watched.owner.stage_table("sales", MANAGED_COMMIT, location=directory / "b")
    assert isinstance(first(watched, again.table_id), Registered)
    assert [table.name for table in watched.owner.tables()] == ["orders", "sales"]


def test_commit_that_lands_during_a_drop_is_published(directory: Path) -> None:
    with opened(directory) as warehouse:
        table = create(warehouse, MANAGED_COMMIT, CommitMode.STAGED, commits=1)
    acting = Others(after=lambda: landed(directory))
    with refimpl.open(directory, environment=Faults().environment(host_lock=acting.lock), create=True) as warehouse:
        warehouse.owner.drop_table(table.table_id)
        assert acting.acted
    assert table.published() == [0, 1, 2]


@pytest.mark.parametrize("by_repair", [False, True])
def test_killed_creation_that_lost_its_name_is_forgotten(directory: Path, watch: Watch, by_repair: bool) -> None:
    watched, mine = killed_creation(directory, watch, "link 0.json")
    if by_repair:
        assert [(action.code, action.done) for action in repair(watched.owner)] == [("settle-promise", True)]
    else:
        watched.owner.attempt_outcome(mine, new_attempt())
    with watched.owner.ledger.read() as view:
        table = watched.owner.required(view, mine)
        assert (table.state, table.promised) == (TableState.DROPPED, False)


def test_a_creation_whose_folder_is_gone_is_forgotten(directory: Path, watch: Watch) -> None:
    with opened(directory) as warehouse:
        staged = warehouse.owner.stage_table("orders", MANAGED_COMMIT)
    died = crashed(directory, dies_after("write temporary"), lambda dying: first(dying, staged.table_id))
    assert died is None
    shutil.rmtree(staged.location)
    watched = watch.opened(directory)
    watched.owner.attempt_outcome(staged.table_id, new_attempt())
    with watched.owner.ledger.read() as view:
        assert not watched.owner.required(view, staged.table_id).promised


def commit_directly(warehouse: refimpl.Warehouse) -> Outcome:
    return owned(warehouse, "orders").commit(1)


def hand_back(warehouse: refimpl.Warehouse) -> Outcome:
    proposal = DirectProposal(attempt=new_attempt(), content=hand_back_commit(START + 1))
    return warehouse.owner.hand_back(owned(warehouse, "orders").table_id, 1, proposal)


@pytest.mark.parametrize("change", [commit_directly, hand_back], ids=lambda change: change.__name__)
def test_a_commit_whose_folder_is_gone_stays_promised(
    directory: Path, watch: Watch, change: Callable[[refimpl.Warehouse], Outcome]
) -> None:
    """The disk may not be mounted."""
    with opened(directory) as warehouse:
        table = create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT)
    died = crashed(directory, dies_after("write temporary"), change)
    assert died is None
    elsewhere = table.location.rename(table.location.with_name("unmounted"))
    watched = watch.opened(directory)
    mine = table.through(watched)
    with pytest.raises(OwnerUnavailableError):
        mine.owner.attempt_outcome(table.table_id, new_attempt())
    elsewhere.rename(table.location)
    mine.owner.attempt_outcome(table.table_id, new_attempt())
    assert mine.latest == 1
