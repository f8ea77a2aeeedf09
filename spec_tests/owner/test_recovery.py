"""A recovery that the disk fails: what is visible and perhaps not durable stops the table until it is made anew."""

from __future__ import annotations

from pathlib import Path

import pytest

import refimpl
from refimpl import log_path
from refimpl.commits import AttemptId, Landed, Ratified, Rejected, RejectionReason
from refimpl.environment import Environment
from refimpl.errors import OutcomeUnknown, OwnerUnavailableError
from refimpl.table_feature import MANAGED_COMMIT, Way
from spec_tests.support.builders import START, append, create, new_attempt, owned
from spec_tests.support.failing_files import FailingFiles
from spec_tests.support.faults import Faults, crashed, disk_is_broken, opened

CONTENT = append(START + 1)


def interrupted(place: Path) -> AttemptId:
    """A table, and a direct commit whose owner died when its file had just become visible."""
    with opened(place) as warehouse:
        create(warehouse, MANAGED_COMMIT, Way.DIRECT)
    attempt = new_attempt()

    class DiesAfterLink(Faults):
        def effect(self, name, act, torn=None):  # type: ignore[no-untyped-def]
            found = super().effect(name, act, torn)
            if name == "link 1.json":
                self.arm(0)
            return found

    died = crashed(place, DiesAfterLink(), lambda found: owned(found, "orders").commit(1, CONTENT, attempt=attempt))
    assert died is None
    return attempt


@pytest.mark.parametrize("failing", ["fsync 1.json", "fsync _delta_log/"])
def test_a_recovery_whose_sync_fails_halts_the_table_until_the_file_is_made_anew(tmp_path: Path, failing: str) -> None:
    place = tmp_path / "warehouse"
    attempt = interrupted(place)

    class Failing(Faults):
        def effect(self, name, act, torn=None):  # type: ignore[no-untyped-def]
            if name == failing:
                self.seen.append(name)
                raise disk_is_broken()
            return super().effect(name, act, torn)

    faults = Failing()
    troubled = refimpl.open(place, environment=faults.environment())
    table_id = owned(troubled, "orders").table_id
    with pytest.raises(OwnerUnavailableError):
        troubled.owner.attempt_outcome(table_id, attempt)
    assert failing in faults.seen
    halted = troubled.owner.resolve("orders").halted
    assert halted is not None
    assert "version 1" in halted
    faults.abandon()

    sound = Faults()
    again = refimpl.open(place, environment=sound.environment())
    outcome = again.owner.attempt_outcome(table_id, attempt)
    assert isinstance(outcome, Landed)
    assert "replace 1.json" in sound.seen, "a second fsync of the same file may lie"
    assert owned(again, "orders").log.read(log_path.commit(1)) == CONTENT
    refused = owned(again, "orders").commit(2)
    assert isinstance(refused, Rejected)
    assert refused.reason is RejectionReason.HALTED
    again.owner.close()


def test_a_promise_is_kept_while_its_file_may_be_visible(tmp_path: Path) -> None:
    """The disk fails after the link and cannot say whether the file is there."""
    place = tmp_path / "warehouse"
    storage = FailingFiles()
    with refimpl.open(place, environment=Environment(files=storage)) as warehouse:
        table = create(warehouse, MANAGED_COMMIT, Way.DIRECT)
        attempt = new_attempt()
        storage.fail_when = lambda effect, path: (
            (effect == "fsync_directory" and path == table.log.folder)
            or (effect == "exists" and ("link", table.log.folder / log_path.commit(1)) in storage.done)
        )
        with pytest.raises(OutcomeUnknown) as caught:
            table.commit(1, CONTENT, attempt=attempt)
        assert caught.value.attempt == attempt
        storage.fail_when = lambda effect, path: False
        assert isinstance(warehouse.owner.attempt_outcome(table.table_id, attempt), Landed)
        assert table.latest == 1


def test_a_recovery_on_a_sound_disk_halts_nothing(tmp_path: Path) -> None:
    place = tmp_path / "warehouse"
    attempt = interrupted(place)
    with opened(place) as warehouse:
        table = owned(warehouse, "orders")
        assert isinstance(table.owner.attempt_outcome(table.table_id, attempt), Landed)
        assert warehouse.owner.resolve("orders").halted is None
        assert isinstance(table.commit(2), Ratified)
