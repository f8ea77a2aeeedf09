"""What a catalog is told about a table beside its commits, and what it tells of a table that changes meanwhile."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import refimpl
from refimpl import log_path
from refimpl.commit_owner import Registered, TableState
from refimpl.commits import Conflict, DirectProposal, Ratified, VersionGap
from refimpl.environment import Environment
from refimpl.owner import policy
from refimpl.owner.records import TableRecord
from refimpl.owner.statements import View
from refimpl.owner.terms import Terms, TermsRefused, describe
from refimpl.table_feature import CATALOG_MANAGED, CommitMode
from spec_tests.support.builders import START, append, create, first_version, new_attempt, owned
from spec_tests.support.failing_files import FailingFiles
from spec_tests.support.faults import opened
from spec_tests.support.lock_watch import Watch


def test_properties_are_prepared_under_the_lock_for_a_table_that_is_not_there_yet(tmp_path: Path) -> None:
    watch = Watch()
    with watch.opened(tmp_path) as warehouse:
        owner = warehouse.owner
        table_id = owner.stage_table("orders", CATALOG_MANAGED).table_id
        owner.prepare_properties(table_id, Terms(properties={"team": "a", "gone": None}))
        proposal = DirectProposal(attempt=new_attempt(), content=first_version(CATALOG_MANAGED))
        assert isinstance(owner.register_table(table_id, proposal), Registered)
        assert owner.describe(table_id).catalog_properties == {"team": "a"}
        owner.prepare_properties(table_id, Terms(properties={"team": "b"}))
        assert owner.describe(table_id).catalog_properties == {"team": "a"}, "the creation was a repeated one"
    assert watch.outside == []


def test_a_lost_race_and_a_gap_come_before_the_terms(warehouse: refimpl.Warehouse) -> None:
    """A loser's etag and report are naturally stale: it hears that it lost, and rebases."""
    table = create(warehouse, CATALOG_MANAGED, CommitMode.STAGED, commits=1)
    stale = Terms(etag="stale", published_through=99)
    outcomes = [
        table.owner.commit_on(table.table_id, version, table.propose(version, append(START + version)), stale)
        for version in (1, 2, 3)
    ]
    assert [type(outcome) for outcome in outcomes] == [Conflict, TermsRefused, VersionGap]
    assert table.latest == 1


def test_a_reported_file_of_another_size_is_not_read(tmp_path: Path) -> None:
    """It is looked at under the owner's lock, and a client may have made it as large as it likes."""
    reads: list[str] = []
    storage = FailingFiles()
    storage.fail_when = lambda effect, path: effect == "read" and reads.append(path.name) is not None
    with refimpl.open(tmp_path, create=True, environment=Environment(files=storage)) as warehouse:
        table = create(warehouse, CATALOG_MANAGED, CommitMode.STAGED, commits=1)
        published = table.log.folder / log_path.commit(1)
        published.write_bytes(append(START + 1, lines=9))
        assert isinstance(table.owner.change(table.table_id, Terms(published_through=1)), TermsRefused)
        assert published.name not in reads
        published.write_bytes(table.history()[1])
        assert table.owner.change(table.table_id, Terms(published_through=1)) is None
        assert published.name in reads


def test_a_table_whose_versions_land_while_it_is_described_is_told_of_as_one_of_them_is(tmp_path: Path) -> None:
    """The metadata and the latest version are those of one state, however many land between two looks."""
    with opened(tmp_path) as warehouse:
        create(warehouse, CATALOG_MANAGED, CommitMode.STAGED, commits=1)

    def land() -> None:
        with opened(tmp_path) as other:
            table = owned(other, "orders")
            version = (table.latest or 0) + 1
            proposal = table.propose(version, append(START + version))
            outcome = other.owner.commit_on(
                table.table_id, version, proposal, Terms(properties={"newest": str(version)})
            )
            assert isinstance(outcome, Ratified)
            table.backfill()

    with opened(tmp_path) as warehouse:
        looks = 0

        def find(view: View) -> TableRecord:
            nonlocal looks
            found = view.table_named("orders")
            assert found is not None
            assert found.state is TableState.ACTIVE
            looks += 1
            if looks <= 2:
                land()
            return found

        told = describe(warehouse.owner.context, find)
        assert told.table.commits.latest_ratified_version == 3
        assert told.catalog_properties == {"newest": "3"}
        assert looks == 3


def test_properties_of_exactly_the_limit_are_taken_and_of_one_byte_more_are_not(warehouse: refimpl.Warehouse) -> None:
    table = create(warehouse, CATALOG_MANAGED, CommitMode.STAGED)
    empty = len(msgspec.json.encode({"note": ""}))
    fitting = "x" * (policy.MAX_CATALOG_PROPERTIES_BYTES - empty)
    refused = table.owner.change(table.table_id, Terms(properties={"note": fitting + "x"}))
    assert isinstance(refused, TermsRefused)
    assert str(policy.MAX_CATALOG_PROPERTIES_BYTES) in refused.detail
    assert table.owner.describe(table.table_id).catalog_properties == {}
    assert table.owner.change(table.table_id, Terms(properties={"note": fitting})) is None
    assert table.owner.describe(table.table_id).catalog_properties == {"note": fitting}


@pytest.mark.parametrize("change", [{"note": None}, {"other": None}])
def test_properties_beyond_the_limit_may_always_become_fewer(
    warehouse: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch, change: dict[str, None]
) -> None:
    """An older release may have taken more."""
    table = create(warehouse, CATALOG_MANAGED, CommitMode.STAGED)
    assert table.owner.change(table.table_id, Terms(properties={"note": "x" * 100, "other": "y"})) is None
    monkeypatch.setattr(policy, "MAX_CATALOG_PROPERTIES_BYTES", 10)
    assert table.owner.change(table.table_id, Terms(properties=change)) is None
    assert set(table.owner.describe(table.table_id).catalog_properties) == {"note", "other"} - set(change)
