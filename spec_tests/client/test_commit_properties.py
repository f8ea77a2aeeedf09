"""Arbitrary histories of writers, faults and maintenance: the log holds exactly the commits that were reported."""

import itertools
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import refimpl
from refimpl.actions import Add, CommitInfo
from refimpl.client.table import Table
from refimpl.client.transaction import Transaction
from refimpl.commit_owner import MaintenancePolicy
from refimpl.errors import DeltaError, OutcomeUnknown
from refimpl.table_feature import CommitMode, TableFeature
from spec_tests.client.conftest import OWNED_COMMIT_MODES, Setting, adding, appending, at_once
from spec_tests.support.faults import ScriptedHost
from spec_tests.support.unreliable_owner import UnreliableOwner

FAULTS = st.fixed_dictionaries(
    {
        "lose_answers": st.sampled_from([0, 0, 1, 2]),
        "lose_requests": st.sampled_from([0, 0, 1, 2]),
        "unresolvable": st.sampled_from([0, 0, 3, 40]),
        "conflicts_without_winners": st.booleans(),
        "list_late": st.sampled_from([0, 0, 2]),
        "phantom_conflicts": st.sampled_from([0, 0, 0, 1]),
        "twice": st.booleans(),
        "conflict_for_replay": st.booleans(),
        "waited": st.booleans(),
    }
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.integers(0, 3)),
        st.tuples(st.just("commit"), st.integers(0, 3), FAULTS),
        st.tuples(st.just("backfill")),
        st.tuples(st.just("deliver")),
    ),
    min_size=4,
    max_size=20,
)


def transactions_in(table: Table) -> dict[str, list[int]]:
    """The versions of each transaction in the log, by its id."""
    versions: dict[str, list[int]] = {}
    for entry in table.history():
        assert isinstance(entry.info, CommitInfo)
        versions.setdefault(entry.info.txn_id or "", []).append(entry.version)
    return versions


def in_commit_timestamps(table: Table) -> list[int | None]:
    return [entry.in_commit_timestamp for entry in reversed(table.history())]


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(kind=st.sampled_from(OWNED_COMMIT_MODES), steps=STEPS, limit=st.sampled_from([1, 2, 100]))
def test_every_transaction_lands_as_often_as_reported(
    kind: tuple[TableFeature, CommitMode], steps: list[tuple[object, ...]], limit: int
) -> None:
    """FB07, FB08, FB09, FB40, FB46: once if it returned, never if it failed, at most once if the outcome is unknown."""
    host = ScriptedHost()
    environment = host.environment()
    with (
        tempfile.TemporaryDirectory() as name,
        refimpl.open(Path(name), environment=environment, create=True) as warehouse,
    ):
        owner = UnreliableOwner(warehouse.owner)
        setting = Setting(owner, host, environment, Path(name))
        table = setting.table(*kind, policy=MaintenancePolicy(backfill_every=None, backlog_limit=limit))
        open_transactions: dict[int, Transaction] = {}
        expected: dict[str, tuple[int, int]] = {}
        landed: dict[str, int] = {}
        for number, step in enumerate(steps):
            host.clock += 3 if number % 2 else -2
            match step:
                case ("begin", int(writer)):
                    open_transactions[writer] = setting.again(table).transaction()
                    open_transactions[writer].add(adding(f"file-{number}"))
                case ("commit", int(writer), dict(faults)) if writer in open_transactions:
                    transaction = open_transactions.pop(writer)
                    for fault, value in faults.items():
                        setattr(owner.faults, fault, value)
                    try:
                        landed[transaction.id] = transaction.commit().version
                        expected[transaction.id] = (1, 1)
                    except OutcomeUnknown:
                        expected[transaction.id] = (0, 1)
                    except DeltaError:
                        expected[transaction.id] = (0, 0)
                    owner.faults = type(owner.faults)()
                case ("backfill",):
                    assert table.table_id is not None
                    owner.backfill_to_version(table.table_id)
                case ("deliver",):
                    owner.deliver_delayed()
        owner.deliver_delayed()
        versions = transactions_in(setting.again(table))
        for txn_id, (least, most) in expected.items():
            assert least <= len(versions.get(txn_id, [])) <= most
        for txn_id, version in landed.items():
            assert versions[txn_id] == [version]
        snapshot = setting.again(table).snapshot()
        assert len(snapshot.files) == snapshot.version
        stamps = in_commit_timestamps(setting.again(table))
        assert all(a is not None and b is not None and a < b for a, b in itertools.pairwise(stamps))


@pytest.mark.parametrize("owned", [True, False], ids=["owned", "filesystem"])
def test_concurrent_writers_lose_nothing(setting: Setting, owned: bool) -> None:
    """Four threads append to one table. The table has each file once, and one version for each commit."""
    table = setting.table(*OWNED_COMMIT_MODES[-1]) if owned else setting.table(None)
    versions: list[int] = []

    def write(writer: int) -> None:
        handle = setting.again(table)
        versions.extend(appending(handle, f"{writer}-{number}").commit().version for number in range(6))

    assert at_once(4, write) == []
    assert sorted(versions) == list(range(1, 25))
    snapshot = setting.again(table).snapshot()
    assert snapshot.version == 24
    names: Counter[str] = Counter(
        action.path
        for version in range(1, 25)
        for action in _actions(setting.again(table), version)
        if isinstance(action, Add)
    )
    assert names == Counter(f"{writer}-{number}" for writer in range(4) for number in range(6))


def _actions(table: Table, version: int) -> list[object]:
    snapshot = table.snapshot(version=version)
    before = table.snapshot(version=version - 1)
    return [add for key, add in snapshot.files.items() if key not in before.files]
