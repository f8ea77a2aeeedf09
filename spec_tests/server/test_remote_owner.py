"""`refimpl.open` of a URL: the client works through a server, and no network fault loses or doubles a commit.

UNITY_CATALOG.md#status-is-a-promise"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import refimpl
from conformance.proxy.faults import Fault, Match
from conformance.proxy.server import FaultProxy
from refimpl.commits import Landed, NotLanded
from refimpl.environment import Environment
from refimpl.errors import OutcomeUnknown, OwnerUnavailableError
from refimpl.warehouse import RemoteWarehouse
from spec_tests.server.conftest import Listen

Reach = Callable[..., RemoteWarehouse]

SCHEMA = pa.schema({"id": pa.int64(), "day": pa.int32()})


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "day": pa.array([each % 2 for each in ids], pa.int32())}, schema=SCHEMA)


def ids_in(table: Any, **which: Any) -> list[int]:
    return sorted(table.snapshot(**which).to_arrow()["id"].to_pylist())


@pytest.fixture
def reach() -> Iterator[Reach]:
    """Opens a URL, with retries that do not wait."""
    with ExitStack() as stack:

        def reached(url: str, *, token: str | None = None, **options: Any) -> RemoteWarehouse:
            environment = Environment(pause=lambda seconds: None)
            return stack.enter_context(refimpl.open(url, token=token, environment=environment, **options))

        yield reached


@pytest.fixture
def remote(listen: Listen, reach: Reach) -> RemoteWarehouse:
    return reach(listen())


def test_tables_are_created_written_read_and_listed(remote: RemoteWarehouse, directory: Path) -> None:
    orders = remote.create_table("orders", SCHEMA, partition_columns=["day"], properties={"team": "a"})
    assert [orders.append(rows(1, 2)), orders.append(rows(3))] != [None, None]
    assert ids_in(remote.table("orders")) == [1, 2, 3]
    assert ids_in(orders, version=1) == [1, 2]
    assert [entry.version for entry in orders.history()] == [2, 1, 0]
    assert remote.tables() == ["orders"]
    assert orders.snapshot().metadata.configuration["team"] == "a"
    with refimpl.open(directory) as local:
        assert ids_in(local.table("orders")) == [1, 2, 3]
        local.table("orders").append(rows(4))
    assert ids_in(orders) == [1, 2, 3, 4]


def test_two_writers_through_two_servers_lose_no_row(listen: Listen, reach: Reach) -> None:
    first, second = reach(listen(backfill_every=3)), reach(listen(backfill_every=3))
    first.create_table("orders", SCHEMA)
    done: list[int] = []

    def write(warehouse: RemoteWarehouse, start: int) -> None:
        table = warehouse.table("orders")
        for each in range(start, start + 6):
            assert table.append(rows(each)) is not None
            done.append(each)

    writers = [threading.Thread(target=write, args=each) for each in ((first, 0), (second, 100), (second, 200))]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    table = first.table("orders")
    assert ids_in(table) == sorted(done)
    assert len(done) == 18
    assert table.snapshot().version == 18
    times = [entry.timestamp for entry in table.history()]
    assert times == sorted(times, reverse=True)


UPDATE = Match(method="POST", path=r"/tables/orders$")
CREATE = Match(method="POST", path=r"/tables$")
SURVIVED = [
    Fault.DROP_REQUEST, Fault.DROP_RESPONSE, Fault.DUPLICATE, Fault.BUSY, Fault.UNAVAILABLE, Fault.UNAVAILABLE_LANDED,
]  # fmt: skip


@pytest.mark.parametrize("fault", SURVIVED)
def test_lost_answer_neither_loses_nor_doubles_a_commit(listen: Listen, reach: Reach, fault: Fault) -> None:
    with FaultProxy(listen()) as proxy:
        remote = reach(proxy.url)
        proxy.next(fault, match=CREATE)
        table = remote.create_table("orders", SCHEMA)
        table.append(rows(1))
        proxy.next(fault, fault, match=UPDATE)
        table.append(rows(2))
        assert proxy.counts()[fault] >= 2
        assert ids_in(table) == [1, 2]
        assert table.snapshot().version == 2


def test_unanswered_commit_is_unknown_and_resolved_later(listen: Listen, reach: Reach) -> None:
    """No answer arrives any more, to the commit or to questions about it."""
    url = listen()
    with FaultProxy(url) as proxy:
        table = reach(proxy.url).create_table("orders", SCHEMA)
        transaction = table.transaction()
        transaction.claim("app", 1)
        proxy.next(*[Fault.DROP_RESPONSE] * 100)
        with pytest.raises(OutcomeUnknown, match="may or may not be attempt") as unknown:
            transaction.commit()
        outcome = reach(url).owner.attempt_outcome(unknown.value.table_id, unknown.value.attempt)
        assert isinstance(outcome, Landed)
        assert outcome.commit.version == unknown.value.version == 1


def test_undecided_attempt_stays_unknown_until_its_version_is_taken(listen: Listen, reach: Reach) -> None:
    url = listen()
    with FaultProxy(url) as proxy:
        table = reach(proxy.url).create_table("orders", SCHEMA)
        proxy.next(*[Fault.DROP_REQUEST] * 100, match=UPDATE)
        with pytest.raises(OutcomeUnknown) as unknown:
            table.append(rows(1))
    other = reach(url)
    asked = unknown.value.table_id, unknown.value.attempt
    with pytest.raises(OutcomeUnknown, match="not decided"):
        other.owner.attempt_outcome(*asked)
    other.table("orders").append(rows(2))
    assert other.owner.attempt_outcome(*asked) == NotLanded()
    assert ids_in(other.table("orders")) == [2]


def test_server_that_was_not_reached_took_no_commit(listen: Listen, reach: Reach, directory: Path) -> None:
    with FaultProxy(listen()) as proxy:
        table = reach(proxy.url).create_table("orders", SCHEMA)
        transaction = table.transaction()
        transaction.claim("app", 1)
        proxy.close()
        with pytest.raises(OwnerUnavailableError, match=r"cannot connect to http://127\.0\.0\.1"):
            transaction.commit()
    with refimpl.open(directory) as local:
        assert local.table("orders").snapshot().version == 0
