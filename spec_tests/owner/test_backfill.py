"""managed-commits, "Commit Backfills"; catalog-managed, "Publishing Commits"."""

import contextlib
import hashlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

import refimpl
from refimpl.care.repair import Action, repair
from refimpl.catalog.owner import UpdatePreconditions
from refimpl.owner import backfill
from refimpl.owner.tables import LOCK_FILE
from refimpl.protocol import log_path
from refimpl.protocol.commit_owner import Backfilled, MaintenancePolicy
from refimpl.protocol.commits import DirectProposal, Ratified
from refimpl.protocol.errors import CorruptLogError, InvalidRequestError, OwnerUnavailableError, TableNotFoundError
from refimpl.protocol.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, CommitMode
from refimpl.storage.environment import Environment, HostLock, host_lock
from refimpl.storage.locations import OWNER_FOLDER
from spec_tests.support.builders import START, OwnedTable, append, create, hand_back_commit, new_attempt, owned
from spec_tests.support.faults import OPENING, Faults, Result, disk_is_broken, watched_lock


def backfilled(table: OwnedTable, version: int | None = None) -> Backfilled:
    return table.owner.backfill_to_version(table.table_id, version)


def test_a_backfill_publishes_the_ratified_bytes(delayed: OwnedTable) -> None:
    delayed.land(5)
    truth = delayed.history()
    assert backfilled(delayed, 3) == Backfilled(through=3, published=3)
    assert delayed.published() == [0, 1, 2, 3]
    assert backfilled(delayed) == Backfilled(through=5, published=2)
    assert delayed.published() == [0, 1, 2, 3, 4, 5]
    assert delayed.history() == truth
    assert {v: delayed.log.read(log_path.commit(v)) for v in range(6)} == truth


def test_a_backfill_of_no_version_or_no_table_is_refused(table: OwnedTable) -> None:
    for version in (-1, 2**63, True):
        with pytest.raises(InvalidRequestError):
            backfilled(table, version)
    with pytest.raises(TableNotFoundError):
        table.owner.backfill_to_version(new_attempt())


@pytest.mark.parametrize(
    ("every", "expected"), [(1, [1, 2, 3, 4]), (2, [0, 2, 2, 4]), (3, [0, 0, 3, 3]), (None, [0] * 4)]
)
def test_owner_publishes_after_every_n_commits(
    warehouse: refimpl.Warehouse, every: int | None, expected: list[int]
) -> None:
    table = create(warehouse, MANAGED_COMMIT, CommitMode.STAGED, policy=MaintenancePolicy(backfill_every=every))
    seen = []
    for _ in range(4):
        table.land()
        seen.append(max(table.published()))
    assert seen == expected


def test_server_publishes_in_the_background_until_the_backlog_doubles(warehouse: refimpl.Warehouse) -> None:
    create(warehouse, MANAGED_COMMIT, CommitMode.STAGED, policy=MaintenancePolicy(backfill_every=2, backlog_limit=6))
    later: list[Callable[[], None]] = []
    with refimpl.open(warehouse.directory, environment=Faults().environment(afterwards=later.append)) as server:
        table = owned(server, "orders")
        table.land(3)
        assert len(later) == 1
        assert table.published() == [0]
        later.pop()()
        assert table.published() == [0, 1, 2, 3]
        table.land(3)
        assert len(later) == 1, "the server schedules another backfill"
        table.land()
        assert table.published() == [0, 1, 2, 3, 4, 5, 6, 7], "with a double backlog, the commit itself publishes"
        table.owner.set_policy(table.table_id, MaintenancePolicy(backfill_every=2, backlog_limit=3))
        table.land(2)
        assert table.published()[-1] == 9, "the commit itself publishes before the backlog is full"
        table.owner.set_policy(table.table_id, MaintenancePolicy(backfill_every=2, backlog_limit=4))
        table.land(2)
        assert table.published()[-1] == 9, "two more commits fit into the backlog"


def test_commits_during_a_background_backfill_get_another_one(warehouse: refimpl.Warehouse) -> None:
    """Otherwise they stay unpublished until the next commit, which may come days later."""
    later: list[Callable[[], None]] = []
    waiting: list[Callable[[], object]] = []

    @watched_lock
    def lock(path: Path, real: HostLock) -> Iterator[None]:
        with real():
            yield
        if path.name.startswith("publishing") and waiting:
            waiting.pop()()

    create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, policy=MaintenancePolicy(backfill_every=2))
    with refimpl.open(warehouse.directory, environment=Environment(host_lock=lock, afterwards=later.append)) as server:
        table = owned(server, "orders")
        table.land(2)
        waiting.append(lambda: table.land(2))
        later.pop()()
        assert (waiting, table.published()) == ([], [0, 1, 2])
        later.pop()()
        assert table.published() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("version", "in_bytes"), [(None, False), (10, False), (10, True)])
def test_publishing_lock_is_free_between_two_batches(
    warehouse: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch, version: int | None, in_bytes: bool
) -> None:
    """Otherwise a commit of another process, which publishes by policy, waits until a long backlog is published. The
    owner pauses between two batches, but not after the last. A batch of large inline commits is shorter."""
    table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=10)
    three = sum(len(table.history()[version]) for version in (1, 2, 3))
    limit = (backfill.records, "MAX_INLINE_BYTES", three + 1) if in_bytes else (backfill, "BATCH", 4)
    monkeypatch.setattr(*limit)
    free: list[bool] = []
    environment = Faults().environment(pause=lambda seconds: free.append(publishing_is_free(warehouse)))
    with refimpl.open(warehouse.directory, environment=environment) as other:
        assert backfilled(owned(other, "orders"), version) == Backfilled(through=10, published=10)
    assert free == [True, True]


def test_commit_publishes_one_batch_of_a_long_backlog(
    warehouse: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "BATCH", 2)
    table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=5)
    table.owner.set_policy(table.table_id, MaintenancePolicy(backfill_every=1))
    for through in (2, 4, 6):
        table.land()
        assert table.published() == list(range(through + 1))
    table.land(2)
    assert table.published() == list(range(11))


class Publishing(Faults):
    """During a backfill, another process acts once, as soon as version 1 has its name."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self.act: Callable[[], object] | None = act

    def effect(self, name: str, act: Callable[[], Result], torn: Callable[[], object] | None = None) -> Result:
        done = super().effect(name, act, torn)
        others, self.act = (self.act, None) if name == "link 1.json" else (None, self.act)
        if others is not None:
            others()
        return done


@contextlib.contextmanager
def impatient(warehouse: refimpl.Warehouse) -> Iterator[OwnedTable]:
    """The table in another process, which does not wait for locks."""
    environment = Faults().environment(host_lock=lambda path: host_lock(path, timeout=lambda: 0.0))
    with refimpl.open(warehouse.directory, environment=environment) as other:
        yield owned(other, "orders")


def backfill_while(warehouse: refimpl.Warehouse, act: Callable[[], object], version: int = 2) -> Backfilled:
    """Backfill the table while another process acts."""
    publishing = Publishing(act)
    with refimpl.open(warehouse.directory, environment=publishing.environment()) as publisher:
        done = publisher.owner.backfill_to_version(publisher.owner.resolve("orders").table_id, version)
    assert publishing.act is None
    return done


def test_versions_are_published_under_the_publishing_lock(warehouse: refimpl.Warehouse) -> None:
    create(warehouse, MANAGED_COMMIT, CommitMode.STAGED, commits=2)
    free: list[bool] = []
    backfill_while(warehouse, lambda: free.append(publishing_is_free(warehouse)))
    assert free == [False]


def publishing_is_free(warehouse: refimpl.Warehouse) -> bool:
    (path,) = (warehouse.directory / OWNER_FOLDER).glob("publishing-*")
    try:
        with host_lock(path, timeout=lambda: 0.0)():
            return True
    except OwnerUnavailableError:
        return False


@pytest.mark.parametrize("end", ["drop", "hand back"])
def test_publishing_lock_is_held_while_a_table_ends(warehouse: refimpl.Warehouse, end: str) -> None:
    """Otherwise a version could be published at a location that another table uses by then."""
    table = create(warehouse, MANAGED_COMMIT, CommitMode.STAGED, commits=1)
    table.backfill()
    free: list[bool] = []

    @watched_lock
    def lock(path: Path, real: HostLock) -> Iterator[None]:
        with real():
            if path.name == LOCK_FILE:
                free.append(publishing_is_free(warehouse))
            yield

    with refimpl.open(warehouse.directory, environment=Faults().environment(host_lock=lock)) as other:
        if end == "drop":
            other.owner.drop_table(table.table_id)
        else:
            proposal = DirectProposal(attempt=new_attempt(), content=hand_back_commit(START + 2))
            assert isinstance(other.owner.hand_back(table.table_id, 2, proposal), Ratified)
    assert free
    assert not any(free)


def test_repair_adopts_nothing_during_a_backfill(warehouse: refimpl.Warehouse) -> None:
    """The last version that it adopts may hand the table back."""
    create(warehouse, MANAGED_COMMIT, CommitMode.STAGED, commits=2)
    done: list[Action] = []
    environment = Faults().environment(host_lock=lambda path: host_lock(path, timeout=lambda: 0.0))
    with refimpl.open(warehouse.directory, environment=environment) as other:
        backfill_while(warehouse, lambda: done.extend(repair(other.owner, adopt_published=True)))
    assert [(action.code, action.done) for action in done] == [("adopt", False)]


@pytest.mark.parametrize(("wanted", "reported"), [(2, 1), (2, 2), (1, 2)])
def test_versions_reported_during_a_backfill_are_recorded_once(
    warehouse: refimpl.Warehouse, wanted: int, reported: int
) -> None:
    """Their files may already be cleaned up. The owner must not take this for damage."""
    table = create(warehouse, CATALOG_MANAGED, CommitMode.STAGED, commits=2)
    commits, truth = table.owner.get_commits(table.table_id).commits, table.history()

    def reports(other: OwnedTable) -> None:
        for commit in commits[1:reported]:
            other.log.publish(commit.version, truth[commit.version])
        assert other.owner.update(table.table_id, UpdatePreconditions(published_through=reported)) is None
        for commit in commits[:reported]:
            other.log.delete(f"{CATALOG_MANAGED.staging_folder}/{commit.file_name}")
            other.log.delete(log_path.commit(commit.version))

    with impatient(warehouse) as other:
        assert backfill_while(warehouse, lambda: reports(other), wanted).through == 2
    after = table.owner.resolve("orders")
    assert after.halted is None
    assert after.commits.commits == ()


def test_restored_ledger_keeps_its_commit_and_halts_the_table(warehouse: refimpl.Warehouse) -> None:
    """The backfill published the version of the replaced ledger, so the owner halts the table."""
    table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=1)
    other = append(START + 1)

    def replaced() -> None:
        with apsw.Connection(str(warehouse.owner.ledger.path)) as database:
            values = (other, hashlib.sha256(other).digest(), len(other))
            database.execute("UPDATE commits SET content = ?, digest = ?, size = ? WHERE version = 1", values)

    with pytest.raises(CorruptLogError):
        backfill_while(warehouse, replaced, version=1)
    (kept,) = table.owner.get_commits(table.table_id).commits
    assert kept.content == other
    assert table.owner.resolve("orders").halted


@pytest.mark.parametrize("written", [0, 1, 100])
def test_incomplete_copy_by_a_client_is_completed(delayed: OwnedTable, written: int) -> None:
    """catalog-managed, "Publishing Commits": clients publish, too. DuckDB first creates the file, and then writes
    it."""
    delayed.land(3)
    truth = delayed.history()
    path = delayed.log.folder / log_path.commit(1)
    path.write_bytes(truth[1][:written])
    assert backfilled(delayed).through == 3
    assert path.read_bytes() == truth[1]
    assert delayed.history() == truth
    assert delayed.owner.resolve("orders").halted is None


@pytest.mark.parametrize("damage", ["altered", "truncated", "removed"])
def test_damaged_staged_file_halts_the_table(warehouse: refimpl.Warehouse, damage: str) -> None:
    table = create(warehouse, MANAGED_COMMIT, CommitMode.STAGED, commits=3)
    victim = table.owner.get_commits(table.table_id).commits[1]
    assert victim.file_name is not None
    path = table.log.folder / MANAGED_COMMIT.staging_folder / victim.file_name
    content = path.read_bytes()
    if damage == "removed":
        path.unlink()
    else:
        path.write_bytes(content[:-9] if damage == "truncated" else content.replace(b"WRITE", b"wRITE"))
    with pytest.raises(CorruptLogError) as caught:
        backfilled(table)
    assert caught.value.path.endswith(victim.file_name)
    assert caught.value.version == 2
    assert table.published() == [0, 1], "earlier versions are published"
    assert table.owner.resolve("orders").halted
    assert table.latest == 3
    path.write_bytes(content)
    assert backfilled(table).through == 3


def test_damaged_inline_bytes_halt_the_table(warehouse: refimpl.Warehouse) -> None:
    """The ledger can be damaged, too. The damaged bytes have the ratified length."""
    table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=3)
    truth = table.history()[2]

    def store(content: bytes) -> None:
        with apsw.Connection(str(warehouse.owner.ledger.path)) as database:
            database.execute("UPDATE commits SET content = ? WHERE version = 2", (content,))

    store(truth.replace(b"WRITE", b"wRITE"))
    with pytest.raises(CorruptLogError) as caught:
        backfilled(table)
    assert caught.value.version == 2
    assert table.published() == [0, 1]
    store(truth)
    assert table.owner.resolve("orders").halted
    assert backfilled(table).through == 3


def test_removed_staged_file_of_a_published_version_is_no_damage(warehouse: refimpl.Warehouse) -> None:
    """FB12: the published file proves the commit, although the staged file is gone."""
    table = create(warehouse, MANAGED_COMMIT, CommitMode.STAGED, commits=2)
    truth = table.history()
    first = table.owner.get_commits(table.table_id).commits[0]
    table.log.put_if_absent(log_path.commit(1), truth[1])
    table.log.delete(f"{MANAGED_COMMIT.staging_folder}/{first.file_name}")
    assert backfilled(table).through == 2
    assert table.history() == truth


def test_failed_backfill_does_not_fail_the_commit(
    warehouse: refimpl.Warehouse, caplog: pytest.LogCaptureFixture
) -> None:
    """FB43: the commit landed, so a failure of the backfill must not be reported as a failed commit."""
    policy = MaintenancePolicy(backfill_every=1)
    table = create(warehouse, MANAGED_COMMIT, CommitMode.STAGED, policy=policy)
    faults = Faults(fail_from=OPENING + 2, error=disk_is_broken)
    failing = refimpl.open(warehouse.directory, environment=faults.environment(), create=True)
    proposal = table.propose(1, append(START + 1))
    with caplog.at_level(logging.WARNING):
        outcome = failing.owner.commit(table.table_id, 1, proposal)
    faults.abandon()
    assert isinstance(outcome, Ratified)
    assert caplog.records
    assert table.published() == [0]
    assert table.latest == 1
    table.land()
    assert table.published() == [0, 1, 2], "the next backfill publishes both commits"
