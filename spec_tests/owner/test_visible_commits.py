"""managed-commits, "Commit Protocol", choice 2; catalog-managed, "Commit Protocol", option 3: a commit by put-if-absent
has succeeded when its file is visible, whether or not the owner hears of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import refimpl
from refimpl import actions, log_path
from refimpl.commit_owner import TableState
from refimpl.commits import Conflict, Landed, NotLanded, Outcome, Ratified, Rejected, RejectionReason
from refimpl.errors import CorruptionError, OwnerUnavailableError
from refimpl.log_path import LOG_FOLDER
from refimpl.owner.repair import repair
from refimpl.owner.verify import Severity, verify
from refimpl.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, CommitMode, TableFeature
from spec_tests.support.builders import (
    START,
    OwnedTable,
    append,
    create,
    hand_back_commit,
    info,
    metadata_of,
    new_attempt,
    owned,
)
from spec_tests.support.faults import Faults, disk_is_broken, opened

both_features = pytest.mark.parametrize("feature", [MANAGED_COMMIT, CATALOG_MANAGED], ids=lambda f: f.name)


def publish(table: OwnedTable, version: int, content: bytes | None = None) -> bytes:
    """A put-if-absent past the owner."""
    content = append(START + version) if content is None else content
    assert table.log.put_if_absent(log_path.commit(version), content)
    return content


def refused(outcome: Outcome, reason: RejectionReason) -> None:
    assert isinstance(outcome, Rejected), outcome
    assert outcome.reason is reason, outcome


def errors(warehouse: refimpl.Warehouse) -> list[str]:
    return [finding.code for finding in verify(warehouse.owner) if finding.severity is Severity.ERROR]


@both_features
def test_a_visible_direct_commit_is_a_version(warehouse: refimpl.Warehouse, feature: TableFeature) -> None:
    table = create(warehouse, feature, CommitMode.DIRECT)
    contents = [publish(table, version) for version in (1, 2)]
    assert table.latest == 2
    lost = table.commit(1)
    assert isinstance(lost, Conflict)
    assert [winner.version for winner in lost.winners] == [1, 2]
    assert isinstance(table.commit(3), Ratified)
    assert [table.history()[version] for version in (1, 2)] == contents
    assert errors(warehouse) == []


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


@pytest.mark.parametrize("failing", ["fsync temporary", "fsync _delta_log/"])
def test_visible_commit_with_a_failed_sync_is_rewritten(tmp_path: Path, failing: str) -> None:
    with opened(tmp_path / "warehouse") as warehouse:
        content = publish(create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT), 1)

    class Failing(Faults):
        def effect(self, name, act, torn=None):  # type: ignore[no-untyped-def]
            if name == failing:
                raise disk_is_broken()
            return super().effect(name, act, torn)

    troubled = refimpl.open(tmp_path / "warehouse", environment=Failing().environment(), create=True)
    with pytest.raises(OwnerUnavailableError):
        owned(troubled, "orders").commit(2)
    troubled.close()
    sound = Faults()
    warehouse = refimpl.open(tmp_path / "warehouse", environment=sound.environment(), create=True)
    table = owned(warehouse, "orders")
    assert isinstance(table.commit(2), Ratified)
    assert "replace 1.json" in sound.seen, "a second fsync of the same file may lie"
    assert table.log.read(log_path.commit(1)) == content
    table.land()
    warehouse.close()


def test_what_became_of_an_attempt_is_not_guessed_afterwards(warehouse: refimpl.Warehouse) -> None:
    """The visible commit may have been that attempt."""
    table = create(warehouse, CATALOG_MANAGED, CommitMode.DIRECT, commits=1)
    mine = new_attempt()
    assert isinstance(table.commit(2, attempt=mine), Ratified)
    assert isinstance(table.owner.attempt_outcome(table.table_id, new_attempt()), NotLanded)
    publish(table, 3)
    with pytest.raises(CorruptionError):
        table.owner.attempt_outcome(table.table_id, new_attempt())
    assert isinstance(table.owner.attempt_outcome(table.table_id, mine), Landed)


@both_features
def test_a_visible_hand_back_ends_the_ownership(warehouse: refimpl.Warehouse, feature: TableFeature) -> None:
    table = create(warehouse, feature, CommitMode.DIRECT)
    publish(table, 1, hand_back_commit(START + 1))
    publish(table, 2)
    refused(table.commit(3), RejectionReason.NOT_ACTIVE)
    assert warehouse.owner.resolve(table.location).state is TableState.HANDED_BACK
    with warehouse.owner.ledger.read() as view:
        found = view.table(table.table_id)
    assert found is not None
    assert found.latest == 1, "what comes after is the filesystem's"


def test_a_change_of_the_named_owner_ends_the_ownership(warehouse: refimpl.Warehouse) -> None:
    table = create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT)
    publish(table, 1, actions.encode([info(START + 1), metadata_of(MANAGED_COMMIT, owner="another")]))
    refused(table.commit(2), RejectionReason.NOT_ACTIVE)


def test_a_visible_file_that_is_no_commit_is_not_recorded(warehouse: refimpl.Warehouse) -> None:
    table = create(warehouse, CATALOG_MANAGED, CommitMode.DIRECT)
    publish(table, 1, b'{"add":')
    refused(table.commit(1), RejectionReason.HALTED)
    refused(table.commit(2), RejectionReason.HALTED)
    assert not all(action.done for action in repair(warehouse.owner, adopt_published=True))


@pytest.mark.parametrize("commit_mode", [CommitMode.STAGED, CommitMode.INLINE])
def test_a_file_is_no_commit_where_the_owner_ratifies(warehouse: refimpl.Warehouse, commit_mode: CommitMode) -> None:
    """Writers must not perform filesystem-based commits there; the file is not denied either."""
    table = create(warehouse, CATALOG_MANAGED, commit_mode)
    publish(table, 1)
    assert table.latest == 1
    refused(table.commit(1), RejectionReason.HALTED)
    refused(table.commit(2), RejectionReason.HALTED)
    assert all(action.done for action in repair(warehouse.owner, adopt_published=True))
    assert isinstance(table.commit(2), Ratified)


def test_unreadable_log_leaves_no_open_transaction(warehouse: refimpl.Warehouse) -> None:
    table, other = (create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT, name=name) for name in ("orders", "others"))
    table.log.folder.rename(table.location / "kept")
    table.log.folder.symlink_to(LOG_FOLDER)  # to itself
    with pytest.raises(OwnerUnavailableError):
        table.commit(1)
    with opened(warehouse.directory) as second:
        assert isinstance(other.through(second).commit(1), Ratified)
    assert isinstance(other.commit(2), Ratified)
