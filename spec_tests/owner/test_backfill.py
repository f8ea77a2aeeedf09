"""managed-commits, "Commit Backfills"; catalog-managed, "Publishing Commits"."""

from __future__ import annotations

import logging
from pathlib import Path

import apsw
import msgspec
import pytest

import refimpl
from refimpl import log_path
from refimpl.commit_owner import Backfilled, MaintenancePolicy
from refimpl.commits import Ratified, Rejected, RejectionReason
from refimpl.environment import Environment
from refimpl.errors import CorruptLogError, InvalidRequestError, OwnerUnavailableError, TableNotFoundError
from refimpl.log_store import LogStore
from refimpl.owner import backfill
from refimpl.owner.ledger import FILE_NAME
from refimpl.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, CommitMode
from spec_tests.support.builders import START, OwnedTable, append, create, new_attempt
from spec_tests.support.faults import OPENING, FailingFiles, Faults, disk_is_broken


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
def test_the_policy_says_how_often_the_owner_publishes_by_itself(
    warehouse: refimpl.Warehouse, every: int | None, expected: list[int]
) -> None:
    table = create(warehouse, MANAGED_COMMIT, CommitMode.STAGED, policy=MaintenancePolicy(backfill_every=every))
    seen = []
    for _ in range(4):
        table.land()
        seen.append(max(table.published()))
    assert seen == expected


def test_a_long_backlog_is_published_in_bounded_holds_of_the_lock(
    warehouse: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "BATCH", 4)
    table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=10)
    truth = table.history()
    assert backfilled(table) == Backfilled(through=10, published=10)
    assert table.history() == truth
    assert table.published() == list(range(11))


def test_a_version_is_published_after_the_one_before_it_is_durable(warehouse: refimpl.Warehouse) -> None:
    """Sequential: no `<v>.json` appears before `<v-1>.json` and its name are durable, and the ledger forgets last."""
    create(warehouse, MANAGED_COMMIT, CommitMode.STAGED, commits=2)
    faults = Faults()
    with refimpl.open(warehouse.directory, environment=faults.environment(), create=True) as watched:
        faults.seen.clear()
        watched.owner.backfill_to_version(watched.owner.resolve("orders").table_id)
    one = ["create temporary", "write temporary", "fsync temporary"]
    assert faults.seen == [
        *one,
        "link 1.json",
        "fsync _delta_log/",
        "unlink temporary",
        *one,
        "link 2.json",
        "fsync _delta_log/",
        "unlink temporary",
        "commit",
    ]


def test_an_inline_commit_may_be_reformatted_when_published(warehouse: refimpl.Warehouse) -> None:
    table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=2)
    truth = table.history()[1]
    spelled = b"".join(msgspec.json.format(line, indent=0) + b"\r\n" for line in truth.splitlines())
    spelled = spelled.replace(b":", b" : ", 1)
    table.log.put_if_absent(log_path.commit(1), spelled)
    assert backfilled(table).through == 2
    assert table.history()[1] == spelled
    assert table.owner.resolve("orders").halted is None


@pytest.mark.parametrize("foreign", ["other actions", "no actions", "more", "a directory"])
def test_a_foreign_file_in_the_commit_mode_stops_the_table(delayed: OwnedTable, foreign: str) -> None:
    """FB45: "file already exists" is no success without a look at its content."""
    delayed.land(3)
    delayed.backfill(1)
    answer = delayed.owner.get_commits(delayed.table_id)
    path = delayed.log.folder / log_path.commit(2)
    truth = delayed.history()[2]
    contents = {"other actions": append(START + 2), "no actions": b"\xff", "more": truth + b"{}\n"}
    if foreign == "a directory":
        path.mkdir()
    else:
        path.write_bytes(contents[foreign])
    with pytest.raises((CorruptLogError, OwnerUnavailableError)):
        backfilled(delayed)
    assert delayed.owner.get_commits(delayed.table_id) == answer, "nothing was forgotten"
    assert delayed.owner.resolve("orders").halted
    assert not (delayed.log.folder / log_path.commit(3)).exists()
    outcome = delayed.commit(4)
    assert isinstance(outcome, Rejected)
    assert outcome.reason is RejectionReason.HALTED


@pytest.mark.parametrize("written", [0, 1, 100])
def test_a_copy_that_its_client_has_not_finished_is_finished(delayed: OwnedTable, written: int) -> None:
    """catalog-managed, "Publishing Commits": clients publish too. DuckDB makes the file first and writes it then."""
    delayed.land(3)
    truth = delayed.history()
    path = delayed.log.folder / log_path.commit(1)
    path.write_bytes(truth[1][:written])
    assert backfilled(delayed).through == 3
    assert path.read_bytes() == truth[1]
    assert delayed.history() == truth
    assert delayed.owner.resolve("orders").halted is None


@pytest.mark.parametrize("damage", ["altered", "truncated", "removed"])
def test_a_staged_file_that_is_not_as_ratified_stops_the_table(warehouse: refimpl.Warehouse, damage: str) -> None:
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
    assert caught.value.path == victim.file_name
    assert caught.value.version == 2
    assert table.published() == [0, 1], "what was before it is published"
    assert table.owner.resolve("orders").halted
    assert table.latest == 3
    path.write_bytes(content)
    assert backfilled(table).through == 3


def test_inline_bytes_that_are_not_as_ratified_stop_the_table(warehouse: refimpl.Warehouse) -> None:
    """The ledger may be damaged too; the bytes are as long as those that were ratified."""
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


def test_removed_staged_file_of_a_published_version_is_no_damage(
    warehouse: refimpl.Warehouse,
) -> None:
    """FB12."""
    table = create(warehouse, MANAGED_COMMIT, CommitMode.STAGED, commits=2)
    truth = table.history()
    first = table.owner.get_commits(table.table_id).commits[0]
    table.log.put_if_absent(log_path.commit(1), truth[1])
    table.log.delete(f"{MANAGED_COMMIT.staging_folder}/{first.file_name}")
    assert backfilled(table).through == 2
    assert table.history() == truth


def test_a_name_whose_fsync_failed_is_written_anew(warehouse: refimpl.Warehouse) -> None:
    """STORAGE.md#failed-fsync: after a failed fsync stop; a retried fsync lies."""
    table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=1)
    faults = Faults(fail_from=OPENING + 5, fail_count=1, error=disk_is_broken)
    failing = refimpl.open(warehouse.directory, environment=faults.environment(), create=True)
    with pytest.raises(OwnerUnavailableError):
        failing.owner.backfill_to_version(table.table_id)
    assert faults.seen[OPENING + 4] == "fsync _delta_log/"
    assert table.owner.get_commits(table.table_id).commits, "its bytes are kept"
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


def test_a_backfill_that_fails_after_a_commit_is_no_failed_commit(
    warehouse: refimpl.Warehouse, caplog: pytest.LogCaptureFixture
) -> None:
    """FB43."""
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
    assert table.published() == [0, 1, 2], "the next one makes up for it"


def test_a_client_publishes_in_order_or_not_at_all(delayed: OwnedTable) -> None:
    delayed.land(3)
    first, *others = delayed.owner.get_commits(delayed.table_id).commits
    with pytest.raises(CorruptLogError) as refused:
        delayed.log.publish_ratified(delayed.feature.staging_folder, others)
    assert refused.value.facts["missing_version"] == first.version
    assert not delayed.log.published(others[0].version)
    delayed.log.publish_ratified(delayed.feature.staging_folder, [first, *others])
    assert delayed.log.published(others[-1].version)


def test_a_client_makes_durable_what_another_one_published(warehouse: refimpl.Warehouse) -> None:
    """Its staged file may be gone by then: the owner removes it once a client has reported the version."""
    table = create(warehouse, CATALOG_MANAGED, CommitMode.STAGED, commits=1)
    (commit,) = table.owner.get_commits(table.table_id).commits
    table.log.put_if_absent(log_path.commit(1), table.history()[1])
    table.log.delete(f"{CATALOG_MANAGED.staging_folder}/{commit.file_name}")
    files = FailingFiles()
    LogStore(table.location, Environment(files=files)).publish_ratified(CATALOG_MANAGED.staging_folder, [commit])
    assert [operation for operation, _ in files.done[-2:]] == ["replace", "fsync_directory"], "it is written anew"


def test_the_ledger_can_be_read_by_its_user_alone(tmp_path: Path) -> None:
    with refimpl.open(tmp_path / "w", create=True) as warehouse:
        files = warehouse.owner.ledger.path.parent.glob(f"{FILE_NAME}*")
        assert {path.stat().st_mode & 0o077 for path in files} == {0}
