"""What others left behind, what a disk fails and what an engine announced is also put right under the owner's lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import refimpl
from refimpl import log_path
from refimpl.commit_owner import NameTaken, Registered, TableState
from refimpl.commits import AttemptId, DirectProposal, Outcome, Ratified
from refimpl.errors import NameTakenError, OutcomeUnknown, OwnerUnavailableError
from refimpl.owner.repair import repair
from refimpl.owner.terms import Terms
from refimpl.table_feature import CATALOG_MANAGED, COORDINATED_COMMITS, MANAGED_COMMIT, Way
from spec_tests.support.builders import (
    START,
    create,
    filesystem_table,
    first_version,
    hand_back_commit,
    new_attempt,
    owned,
    ownership_change,
)
from spec_tests.support.faults import Faults, crashed, opened
from spec_tests.support.lock_watch import Watch


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "warehouse"


@pytest.fixture
def watch() -> Iterator[Watch]:
    watch = Watch()
    yield watch
    assert watch.outside == []
    assert {"begin", "commit"} <= watch.inside


def dies_after(effect: str) -> Faults:
    class Dies(Faults):
        def effect(self, name, act, torn=None):  # type: ignore[no-untyped-def]
            found = super().effect(name, act, torn)
            if name == effect:
                self.arm(0)
            return found

    return Dies()


PROPOSAL = DirectProposal(attempt=new_attempt(), content=ownership_change(MANAGED_COMMIT, START + 100))


def take_over(warehouse: refimpl.Warehouse) -> Outcome:
    return warehouse.owner.take_over(warehouse.directory / "imports", "imports", MANAGED_COMMIT, 2, PROPOSAL)


def first(
    warehouse: refimpl.Warehouse, table_id: str, attempt: AttemptId | None = None
) -> Registered | NameTaken | Outcome:
    proposal = DirectProposal(attempt=new_attempt(), content=first_version(MANAGED_COMMIT))
    return warehouse.owner.register_table(table_id, proposal)


def test_a_creation_that_died_before_its_file_leaves_the_name_to_another(place: Path, watch: Watch) -> None:
    with opened(place) as warehouse:
        mine = warehouse.owner.stage_table("orders", MANAGED_COMMIT).table_id
        other = warehouse.owner.stage_table("orders", MANAGED_COMMIT).table_id
    assert crashed(place, dies_after("write temporary"), lambda found: first(found, mine)) is None
    watched = watch.opened(place)
    assert isinstance(first(watched, other), Registered)
    assert watched.owner.resolve("orders").table_id == other
    watched.owner.close()


def interrupted_take_over(place: Path) -> str:
    """Its file is there. The id of another table that is to be made under the same name."""
    with opened(place) as warehouse:
        filesystem_table(place / "imports", environment=warehouse.environment)
        other = warehouse.owner.stage_table("imports", MANAGED_COMMIT).table_id
    assert crashed(place, dies_after("link 2.json"), take_over) is None
    return other


def test_a_take_over_that_died_is_settled_by_the_next_one(place: Path, watch: Watch) -> None:
    interrupted_take_over(place)
    watched = watch.opened(place)
    outcome = take_over(watched)
    assert isinstance(outcome, Ratified)
    assert outcome.replayed
    assert watched.owner.resolve("imports").state is TableState.ACTIVE
    watched.owner.close()


def test_a_take_over_that_died_is_settled_by_who_stages_a_table_of_its_name(place: Path, watch: Watch) -> None:
    interrupted_take_over(place)
    watched = watch.opened(place)
    with pytest.raises(NameTakenError):
        watched.owner.stage_table("imports", MANAGED_COMMIT)
    assert watched.owner.resolve("imports").state is TableState.ACTIVE
    watched.owner.close()


def test_a_take_over_that_died_is_settled_by_who_registers_a_table_of_its_name(place: Path, watch: Watch) -> None:
    other = interrupted_take_over(place)
    watched = watch.opened(place)
    outcome = first(watched, other)
    assert isinstance(outcome, NameTaken)
    assert outcome.winner.state is TableState.ACTIVE
    assert outcome.winner.commits.latest_ratified_version == 2
    watched.owner.close()


@pytest.mark.parametrize(
    "call",
    [
        lambda found, table: table.owner.attempt_outcome(table.table_id, new_attempt()),
        lambda found, table: table.commit(2),
        lambda found, table: table.backfill(),
        lambda found, table: table.owner.hand_back(
            table.table_id, 2, DirectProposal(attempt=new_attempt(), content=hand_back_commit(START + 100))
        ),
        lambda found, table: table.owner.drop_table(table.table_id),
        lambda found, table: repair(found.owner),
    ],
    ids=["resolve", "commit", "backfill", "hand-back", "drop", "repair"],
)
def test_a_commit_that_died_is_settled_by_the_next_call(place: Path, watch: Watch, call: Callable[..., object]) -> None:
    with opened(place) as warehouse:
        create(warehouse, MANAGED_COMMIT, Way.DIRECT)
    attempt = new_attempt()
    died = crashed(place, dies_after("link 1.json"), lambda found: owned(found, "orders").commit(1, attempt=attempt))
    assert died is None
    watched = watch.opened(place)
    table = owned(watched, "orders")
    call(watched, table)
    record = watched.owner.context.place(table.table_id)
    with watched.owner.ledger.read() as view:
        seen = view.attempt(record, attempt)
    assert seen is not None
    assert seen.landed is not None
    watched.owner.close()


@pytest.mark.parametrize("failing", ["fsync 1.json", "fsync _delta_log/"])
def test_a_recovery_that_fails_halts_the_table_under_the_lock(place: Path, watch: Watch, failing: str) -> None:
    with opened(place) as warehouse:
        create(warehouse, MANAGED_COMMIT, Way.DIRECT)
    crashed(place, dies_after("link 1.json"), lambda found: owned(found, "orders").commit(1))
    watched = watch.opened(place)
    table = owned(watched, "orders")
    watch.failing = failing
    with pytest.raises(OwnerUnavailableError):
        table.owner.attempt_outcome(table.table_id, new_attempt())
    watch.failing = None
    assert watched.owner.resolve("orders").halted is not None
    watched.owner.close()


@pytest.mark.parametrize("way", [Way.DIRECT, Way.STAGED], ids=lambda way: way.value)
def test_a_publication_that_fails_halts_the_table_under_the_lock(place: Path, watch: Watch, way: Way) -> None:
    watched = watch.opened(place)
    table = create(watched, MANAGED_COMMIT, way, commits=2)
    watch.failing = "fsync _delta_log/"
    if way is Way.DIRECT:
        with pytest.raises(OutcomeUnknown):
            table.commit(3)
    else:
        with pytest.raises(OwnerUnavailableError):
            table.backfill()
    watch.failing = None
    assert watched.owner.resolve("orders").halted is not None
    assert {"update"} <= watch.inside
    assert [action.done for action in repair(watched.owner)] == [True] * (2 if way is Way.DIRECT else 1)
    assert watched.owner.resolve("orders").halted is None
    watched.owner.close()


def test_folders_that_cannot_be_made_are_given_up_under_the_lock(place: Path, watch: Watch) -> None:
    watched = watch.opened(place)
    watch.failing = "mkdir _delta_log/"
    with pytest.raises(OwnerUnavailableError):
        watched.owner.stage_table("orders", MANAGED_COMMIT, location=place / "orders")
    watch.failing = None
    assert isinstance(first(watched, watched.owner.stage_table("orders", MANAGED_COMMIT).table_id), Registered)
    assert "delete" in watch.inside
    watched.owner.close()


def test_what_an_engine_announced_is_adopted_under_the_lock_once_it_is_durable(place: Path, watch: Watch) -> None:
    watched = watch.opened(place)
    table = watched.owner.announce(place / "orders", "orders", COORDINATED_COMMITS, None)
    log = watched.owner.context.log(watched.owner.context.place(table.table_id))
    assert log.folder.is_dir()
    assert (log.folder / COORDINATED_COMMITS.staging_folder).is_dir()
    (log.folder / log_path.commit(0)).write_bytes(first_version(COORDINATED_COMMITS))
    before = len(watch.seen)
    assert isinstance(watched.owner.adopt(table.table_id), Ratified)
    assert watch.seen[before:] == ["fsync 0.json", "fsync _delta_log/", "commit"]
    assert watched.owner.resolve("orders").state is TableState.ACTIVE
    watched.owner.close()


def test_a_report_is_taken_under_the_lock_once_what_it_reports_is_durable(place: Path, watch: Watch) -> None:
    watched = watch.opened(place)
    table = create(watched, CATALOG_MANAGED, Way.STAGED, commits=2)
    for version in (1, 2):
        commit = table.owner.get_commits(table.table_id, version, version).commits[0]
        content = table.log.read_staged(table.feature.staging_folder, str(commit.file_name))
        (table.log.folder / log_path.commit(version)).write_bytes(content)
    before = len(watch.seen)
    assert table.owner.change(table.table_id, Terms(published_through=1)) is None
    assert watch.seen[before:] == ["fsync 1.json", "fsync _delta_log/", "commit"]
    proposal = table.propose(3, first_version(CATALOG_MANAGED, START + 3))
    before = len(watch.seen)
    outcome = table.owner.commit_on(table.table_id, 3, proposal, Terms(published_through=2, properties={"team": "a"}))
    assert isinstance(outcome, Ratified)
    assert watch.seen[before:] == ["fsync 2.json", "fsync _delta_log/", "commit"]
    assert [commit.version for commit in table.owner.get_commits(table.table_id).commits] == [3]
    described = table.owner.describe(table.table_id)
    assert described.catalog_properties == {"team": "a"}
    watched.owner.close()
