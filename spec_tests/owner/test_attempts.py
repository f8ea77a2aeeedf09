"""Attempts: a landed one is answered, an unresolved one is resolved, permanently. FB07 to FB10, FB27."""

from __future__ import annotations

from pathlib import Path

import pytest

import refimpl
from refimpl.commits import Landed, NotLanded, Ratified, Rejected, RejectionReason
from refimpl.environment import Environment
from refimpl.errors import CorruptionError, TableNotFoundError
from refimpl.log_path import commit as published_name
from refimpl.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, CommitMode
from spec_tests.support.builders import START, OwnedTable, append, create, hand_back_commit, new_attempt
from spec_tests.support.lock_watch import Others


def refused(outcome: object, reason: RejectionReason) -> None:
    assert isinstance(outcome, Rejected), outcome
    assert outcome.reason is reason, outcome


def test_a_replay_is_answered_when_the_staged_file_is_gone(warehouse: refimpl.Warehouse) -> None:
    """FB12: after publication the staged file is not needed."""
    table = create(warehouse, MANAGED_COMMIT, CommitMode.STAGED)
    proposal = table.propose(1, append(START + 1))
    table.owner.commit(table.table_id, 1, proposal)
    table.backfill()
    for path in table.log.staged_listing(MANAGED_COMMIT.staging_folder):
        table.log.delete(f"{MANAGED_COMMIT.staging_folder}/{path.name}")
    again = table.owner.commit(table.table_id, 1, proposal)
    assert isinstance(again, Ratified)
    assert again.replayed


def test_a_replay_is_answered_after_a_drop_and_a_hand_back(table: OwnedTable) -> None:
    proposal = table.propose(1, append(START + 1))
    table.owner.commit(table.table_id, 1, proposal)
    farewell = table.propose(2, hand_back_commit(START + 2), commit_mode=CommitMode.DIRECT)
    assert isinstance(table.owner.hand_back(table.table_id, 2, farewell), Ratified)  # type: ignore[arg-type]
    for version, sent in ((1, proposal), (2, farewell)):
        again = table.owner.commit(table.table_id, version, sent)
        assert isinstance(again, Ratified)
        assert again.replayed


def test_an_attempt_id_belongs_to_one_version_and_one_content(table: OwnedTable) -> None:
    attempt, content = new_attempt(), append(START + 1)
    table.commit(1, content, attempt=attempt)
    before = table.history()
    refused(table.commit(2, append(START + 2), attempt=attempt), RejectionReason.ATTEMPT_REUSED)
    if table.commit_mode is not CommitMode.STAGED:
        refused(table.commit(1, append(START + 1), attempt=attempt), RejectionReason.ATTEMPT_REUSED)
    assert table.history() == before
    assert isinstance(table.commit(2, append(START + 2)), Ratified)


def test_staged_file_with_other_bytes_is_no_replay(warehouse: refimpl.Warehouse) -> None:
    table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE)
    attempt, content = new_attempt(), append(START + 1)
    table.commit(1, content, attempt=attempt)
    other = table.propose(1, append(START + 1), attempt=attempt, commit_mode=CommitMode.STAGED)
    refused(table.owner.commit(table.table_id, 1, other), RejectionReason.ATTEMPT_REUSED)


def test_attempt_that_lands_during_the_lock_wait_landed(tmp_path: Path, table: OwnedTable) -> None:
    """It was unknown at the first look, and is looked up again under the lock."""
    attempt = new_attempt()
    late = Others(before=lambda: table.commit(1, attempt=attempt))
    with refimpl.open(tmp_path / "warehouse", environment=Environment(host_lock=late.lock)) as asking:
        assert isinstance(asking.owner.attempt_outcome(table.table_id, attempt), Landed)
    assert late.acted
    assert table.latest == 1


def test_the_same_attempt_id_in_two_tables_is_two_attempts(warehouse: refimpl.Warehouse) -> None:
    one = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, name="one")
    two = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, name="two")
    attempt = new_attempt()
    assert isinstance(one.commit(1, attempt=attempt), Ratified)
    assert two.owner.attempt_outcome(two.table_id, attempt) == NotLanded()
    assert isinstance(one.owner.attempt_outcome(one.table_id, attempt), Landed)


def test_an_attempt_of_an_unknown_table_is_not_found(table: OwnedTable) -> None:
    with pytest.raises(TableNotFoundError):
        table.owner.attempt_outcome(new_attempt(), new_attempt())


def test_a_ledger_that_may_have_forgotten_does_not_resolve(delayed: OwnedTable) -> None:
    """An unknown published version, or an older ledger: "not landed" could be wrong."""
    landed = delayed.land()[0].attempt
    delayed.backfill()
    delayed.log.put_if_absent(published_name(2), append(START + 2))
    attempt = new_attempt()
    with pytest.raises(CorruptionError):
        delayed.owner.attempt_outcome(delayed.table_id, attempt)
    assert isinstance(delayed.owner.attempt_outcome(delayed.table_id, landed), Landed)
    delayed.log.delete(published_name(2))
    assert delayed.owner.attempt_outcome(delayed.table_id, attempt) == NotLanded()


def test_a_table_that_was_handed_back_still_resolves(table: OwnedTable) -> None:
    """Its log goes on without the owner; no attempt is lost by that."""
    farewell = table.propose(1, hand_back_commit(START + 1), commit_mode=CommitMode.DIRECT)
    assert isinstance(table.owner.hand_back(table.table_id, 1, farewell), Ratified)  # type: ignore[arg-type]
    table.log.put_if_absent(published_name(2), append(START + 2))
    assert table.owner.attempt_outcome(table.table_id, new_attempt()) == NotLanded()
    assert isinstance(table.owner.attempt_outcome(table.table_id, farewell.attempt), Landed)
