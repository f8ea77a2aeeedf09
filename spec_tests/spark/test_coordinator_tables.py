"""Which table of ours a descriptor of Delta's means. No JVM: only the few calls that read the descriptor are played."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

import refimpl
from refimpl import log_path
from refimpl.commit_owner import TableState
from refimpl.errors import InvalidRequestError, TableNotFoundError
from refimpl.log_path import LOG_FOLDER
from refimpl.log_store import LogStore
from refimpl.spark.coordinator import TABLE_ID, Served, location_of
from refimpl.table_feature import COORDINATED_COMMITS
from spec_tests.support.builders import START, append, first_version


def descriptor(location: Path, table_id: str | None) -> Any:
    log_folder = SimpleNamespace(toString=lambda: f"file:{location / LOG_FOLDER}")
    conf = {} if table_id is None else {TABLE_ID: table_id}
    return SimpleNamespace(getLogPath=lambda: log_folder, getTableConf=lambda: conf)


@pytest.fixture
def served(warehouse: refimpl.Warehouse) -> Served:
    return Served(warehouse, MagicMock())


def announced(warehouse: refimpl.Warehouse, name: str = "orders") -> tuple[str, LogStore]:
    place = warehouse.directory / name
    found = warehouse.owner.announce(place, name, COORDINATED_COMMITS, None)
    return found.table_id, LogStore(place, warehouse.environment)


@pytest.mark.parametrize("by_id", [False, True])
def test_a_table_that_was_asked_for_before_it_was_written_is_owned_once_it_is(
    served: Served, warehouse: refimpl.Warehouse, by_id: bool
) -> None:
    table_id, log = announced(warehouse)
    asked = descriptor(log.location, table_id if by_id else None)
    assert served.log_of(asked)[0] == table_id
    assert warehouse.owner.resolve(table_id).state is TableState.STAGING
    assert log.put_if_absent(log_path.commit(0), first_version(COORDINATED_COMMITS))
    assert served.log_of(asked)[0] == table_id
    assert warehouse.owner.resolve(table_id).state is TableState.ACTIVE


def test_a_table_whose_log_names_no_owner_is_not_owned(served: Served, warehouse: refimpl.Warehouse) -> None:
    table_id, log = announced(warehouse)
    assert log.put_if_absent(log_path.commit(0), append(START))
    with pytest.raises(InvalidRequestError):
        served.log_of(descriptor(log.location, table_id))
    assert warehouse.owner.resolve(table_id).state is TableState.STAGING


def test_a_copy_of_a_table_has_no_owner(served: Served, warehouse: refimpl.Warehouse) -> None:
    table_id, log = announced(warehouse)
    assert log.put_if_absent(log_path.commit(0), first_version(COORDINATED_COMMITS))
    assert served.log_of(descriptor(log.location, table_id))[0] == table_id
    with pytest.raises(TableNotFoundError):
        served.log_of(descriptor(warehouse.directory / "copy", table_id))


@pytest.mark.parametrize("text", ["/data/a b%20c/_delta_log", "file:/data/a b%20c/_delta_log"])
def test_a_place_on_this_host_is_understood_as_it_is_spelled(text: str) -> None:
    assert location_of(SimpleNamespace(toString=lambda: text)) == Path("/data/a b%20c")


@pytest.mark.parametrize(
    "text", ["s3a://bucket/t/_delta_log", "hdfs:/t/_delta_log", "file://host/t/_delta_log", "t/_delta_log", "file:/t"]
)
def test_what_is_no_log_on_this_host_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match=text):
        location_of(SimpleNamespace(toString=lambda: text))
