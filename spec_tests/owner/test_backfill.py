"""The ratified commits of a table. Publication: managed-commits, "Commit Backfills"; catalog-managed, "Publishing
Commits". Answers: managed-commits, "Getting Un-backfilled Commits"; catalog-managed, "Getting Ratified Commits". An
answer shows one state of the table, whatever other processes do at the same time.
"""

import contextlib
import hashlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import refimpl
from refimpl.care.repair import Action, repair
from refimpl.care.verify import Severity, verify
from refimpl.catalog.owner import UpdatePreconditions
from refimpl.owner import backfill
from refimpl.owner.statements import COMMITS_BETWEEN
from refimpl.owner.tables import LOCK_FILE
from refimpl.protocol import log_path
from refimpl.protocol.commit_owner import Backfilled, MaintenancePolicy, TableState
from refimpl.protocol.commits import (
    CommitsAnswer,
    Conflict,
    DirectProposal,
    Landed,
    NotLanded,
    Ratified,
    RejectionReason,
)
from refimpl.protocol.errors import (
    CorruptLedgerError,
    CorruptLogError,
    InvalidRequestError,
    OutcomeUnknown,
    OwnerUnavailableError,
    TableNotFoundError,
)
from refimpl.protocol.log_path import LOG_FOLDER
from refimpl.protocol.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, CommitMode, TableFeature
from refimpl.storage.environment import Environment, HostLock, host_lock
from refimpl.storage.locations import OWNER_FOLDER
from spec_tests.support.builders import START, OwnedTable, append, create, hand_back_commit, new_attempt, owned, refused
from spec_tests.support.faults import OPENING, FailingFiles, Faults, Result, disk_is_broken, opened, watched_lock


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


def test_file_is_rewritten_after_a_failed_fsync_of_its_folder(warehouse: refimpl.Warehouse) -> None:
    """STORAGE.md#failed-fsync: after a failed fsync, the owner stops, because a retry may succeed without writing."""
    table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=1)
    faults = Faults(fail_from=OPENING + 5, fail_count=1, error=disk_is_broken)
    failing = refimpl.open(warehouse.directory, environment=faults.environment(), create=True)
    with pytest.raises(OwnerUnavailableError):
        failing.owner.backfill_to_version(table.table_id)
    assert faults.seen[OPENING + 4] == "fsync _delta_log/"
    assert table.owner.get_commits(table.table_id).commits, "the owner keeps the bytes"
    faults.abandon()
    works = Faults()
    refimpl.open(warehouse.directory, environment=works.environment(), create=True).owner.backfill_to_version(
        table.table_id
    )
    works.abandon()
    assert works.seen[-6:] == [
        "create temporary",
        "write temporary",
        "fsync temporary",
        "replace 1.json",
        "fsync _delta_log/",
        "commit",
    ]


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


UNKNOWN_ID = "3a0d65cd-4056-49b8-937b-95f9e3ee90e5"


def test_open_write_transaction_does_not_delay_answers(warehouse: refimpl.Warehouse, table: OwnedTable) -> None:
    """A reader sees one state, and no part of an unfinished transaction."""
    table.land(2)
    before = table.owner.get_commits(table.table_id)
    with opened(warehouse.directory) as other, other.lock(), other.owner.ledger.write() as writer:
        record = writer.table(table.table_id)
        assert record is not None
        writer.set(record, halted="an unfinished change")
        assert table.owner.get_commits(table.table_id) == before
        assert table.owner.resolve("orders").halted is None
    assert table.owner.resolve("orders").halted is not None


@pytest.mark.parametrize("reference", ["nothing", "a/b", "/", "/\0", "/" + "x" * 5000, "\udcff/x", UNKNOWN_ID])
def test_unknown_reference_is_not_found(warehouse: refimpl.Warehouse, reference: str) -> None:
    create(warehouse, CATALOG_MANAGED, CommitMode.STAGED)
    with pytest.raises(TableNotFoundError):
        warehouse.owner.resolve(reference)


def test_staging_table_is_found_by_id_and_path_only(warehouse: refimpl.Warehouse) -> None:
    """catalog-managed, "Creating and Dropping": unnamed until it is registered."""
    staged = warehouse.owner.stage_table("orders", CATALOG_MANAGED)
    assert staged.state is TableState.STAGING
    assert warehouse.owner.resolve(staged.table_id) == warehouse.owner.resolve(staged.location) == staged
    assert staged.commits.latest_ratified_version is None
    with pytest.raises(TableNotFoundError):
        warehouse.owner.resolve("orders")
    assert warehouse.owner.tables() == []
    create(warehouse, CATALOG_MANAGED, CommitMode.STAGED)
    assert owned(warehouse, "orders").table_id != staged.table_id


def test_a_visible_commit_is_synced_before_it_is_recorded(tmp_path: Path) -> None:
    faults = Faults()
    warehouse = refimpl.open(tmp_path / "warehouse", environment=faults.environment(), create=True)
    table = create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT)
    publish(table, 1)
    faults.seen.clear()
    assert isinstance(table.commit(1), Conflict)
    first = faults.seen.index("replace 1.json")
    assert faults.seen[first - 1 : first + 3] == ["fsync temporary", "replace 1.json", "fsync _delta_log/", "commit"]
    warehouse.close()


# Commits by put-if-absent: managed-commits, "Commit Protocol", choice 2; catalog-managed, option 3

both_features = pytest.mark.parametrize("feature", [MANAGED_COMMIT, CATALOG_MANAGED], ids=lambda f: f.name)


def publish(table: OwnedTable, version: int, content: bytes | None = None) -> bytes:
    """A commit by put-if-absent, without the owner."""
    content = append(START + version) if content is None else content
    assert table.log.put_if_absent(log_path.commit(version), content)
    return content


def errors(warehouse: refimpl.Warehouse) -> list[str]:
    return [finding.code for finding in verify(warehouse.owner) if finding.severity is Severity.ERROR]


@pytest.mark.parametrize("failing", ["fsync temporary", "fsync _delta_log/"])
def test_visible_commit_with_a_failed_sync_is_rewritten(tmp_path: Path, failing: str) -> None:
    with opened(tmp_path / "warehouse") as warehouse:
        content = publish(create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT), 1)
    faults = Faults(failing=failing, error=disk_is_broken)
    troubled = refimpl.open(tmp_path / "warehouse", environment=faults.environment(), create=True)
    with pytest.raises(OwnerUnavailableError):
        owned(troubled, "orders").commit(2)
    troubled.close()
    sound = Faults()
    warehouse = refimpl.open(tmp_path / "warehouse", environment=sound.environment(), create=True)
    table = owned(warehouse, "orders")
    assert isinstance(table.commit(2), Ratified)
    assert "replace 1.json" in sound.seen, "a second fsync of the same file may succeed without writing"
    assert table.log.read(log_path.commit(1)) == content
    table.land()
    warehouse.close()


@both_features
def test_replay_of_a_commit_without_the_owner_is_ratified(warehouse: refimpl.Warehouse, feature: TableFeature) -> None:
    """The file was the commit point, and its bytes identify it; the owner noticed it with a later commit."""
    table = create(warehouse, feature, CommitMode.DIRECT, commits=1)
    content = publish(table, 2)
    table.land()
    attempt = new_attempt()
    replay = table.propose(2, content, attempt=attempt)
    for _ in range(2):
        again = table.owner.commit(table.table_id, 2, replay)
        assert isinstance(again, Ratified)
        assert (again.replayed, again.commit.version, again.commit.attempt) == (True, 2, attempt)
    assert table.latest == 3
    for version, other in ((2, append(START + 2)), (1, content), (3, content)):
        assert isinstance(table.commit(version, other), Conflict)
    farewell = hand_back_commit(START + 5)
    publish(table, 4, farewell)
    given = table.propose(4, farewell)
    assert isinstance(table.owner.hand_back(table.table_id, 4, given), Ratified)  # type: ignore[arg-type]


def test_outcome_is_not_guessed_after_a_visible_commit(warehouse: refimpl.Warehouse) -> None:
    """The visible commit may have been that attempt."""
    table = create(warehouse, CATALOG_MANAGED, CommitMode.DIRECT, commits=1)
    mine = new_attempt()
    assert isinstance(table.commit(2, attempt=mine), Ratified)
    assert isinstance(table.owner.attempt_outcome(table.table_id, new_attempt()), NotLanded)
    publish(table, 3)
    with pytest.raises(OutcomeUnknown, match="propose the same commit again"):
        table.owner.attempt_outcome(table.table_id, new_attempt())
    assert isinstance(table.owner.attempt_outcome(table.table_id, mine), Landed)


@pytest.mark.parametrize("commit_mode", CommitMode)
def test_put_if_absent_is_no_commit_in_staged_and_inline_mode(
    warehouse: refimpl.Warehouse, commit_mode: CommitMode
) -> None:
    """Writers must not commit by put-if-absent in these modes, nor with invalid content in mode direct. But the owner
    must not deny the visible version."""
    table = create(warehouse, CATALOG_MANAGED, commit_mode)
    direct = commit_mode is CommitMode.DIRECT
    publish(table, 1, *([b'{"add":'] if direct else []))
    assert direct or table.latest == 1
    refused(table.commit(1), RejectionReason.HALTED)
    refused(table.commit(2), RejectionReason.HALTED)
    assert all(action.done for action in repair(warehouse.owner, adopt_published=True)) is not direct
    assert direct or isinstance(table.commit(2), Ratified)


def test_unreadable_log_leaves_no_open_transaction(warehouse: refimpl.Warehouse) -> None:
    table, other = (create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT, name=name) for name in ("orders", "others"))
    table.log.folder.rename(table.location / "kept")
    table.log.folder.symlink_to(LOG_FOLDER)  # a link to itself
    with pytest.raises(OwnerUnavailableError):
        table.commit(1)
    with opened(warehouse.directory) as second:
        assert isinstance(other.through(second).commit(1), Ratified)
    assert isinstance(other.commit(2), Ratified)


# An answer shows one state of the table


class Between:
    """Acts once, just before the owner reads the commits of a table."""

    def __init__(self) -> None:
        self.act: Callable[[], object] | None = None

    def connect(self, path: Path) -> apsw.Connection:
        between = self

        class Connection(apsw.Connection):
            def execute(self, statement: str, *values: Any, **more: Any) -> Any:  # type: ignore[override]
                act = between.act
                if act is not None and statement == COMMITS_BETWEEN:
                    between.act = None
                    act()
                return super().execute(statement.replace("synchronous=FULL", "synchronous=OFF"), *values, **more)

        return Connection(str(path))


def _asked(owner: refimpl.Warehouse, table_id: str) -> CommitsAnswer:
    return owner.owner.get_commits(table_id)


def _resolved(owner: refimpl.Warehouse, table_id: str) -> CommitsAnswer:
    return owner.owner.resolve(table_id).commits


@pytest.mark.parametrize("ask", [_asked, _resolved])
def test_unreadable_log_gives_no_answer(
    tmp_path: Path, delayed: OwnedTable, ask: Callable[[refimpl.Warehouse, str], CommitsAnswer]
) -> None:
    """A newer version may be visible there, and the owner must not deny a visible version."""
    storage = FailingFiles()
    storage.fail_when = lambda effect, path: effect == "exists"
    with refimpl.open(tmp_path / "warehouse", environment=Environment(files=storage)) as reader:
        with pytest.raises(OwnerUnavailableError):
            ask(reader, delayed.table_id)
        storage.fail_when = lambda effect, path: False
        assert ask(reader, delayed.table_id).latest_ratified_version == 0


def test_listing_reads_no_commit_contents(tmp_path: Path, warehouse: refimpl.Warehouse) -> None:
    """Inline commits may be large, and a damaged commit must not hide the other tables."""
    for name in ("damaged", "sound"):
        create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, name=name, commits=2)
    with apsw.Connection(str(warehouse.owner.ledger.path)) as database:
        altered = "CAST(replace(content, 'add', 'bdd') AS BLOB)"
        damaged = "(SELECT key FROM tables WHERE name = 'damaged')"
        database.execute(f"UPDATE commits SET content = {altered} WHERE version = 1 AND table_key = {damaged}")
    with pytest.raises(CorruptLedgerError):
        warehouse.owner.resolve("damaged")
    between = Between()
    environment = Environment(files=Faults().environment().files, connect=between.connect)
    with refimpl.open(tmp_path / "warehouse", environment=environment) as reader:
        between.act = lambda: pytest.fail("commits were read")
        assert [(table.name, table.latest, table.backlog) for table in reader.owner.tables()] == [
            ("damaged", 2, 2), ("sound", 2, 2),
        ]  # fmt: skip
        between.act = None
