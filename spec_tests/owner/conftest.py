"""A fresh warehouse, and tables of every table feature and commit mode."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import refimpl
from spec_tests.support.builders import FEATURES_AND_COMMIT_MODES, OwnedTable, create, name_of
from spec_tests.support.faults import opened


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[refimpl.Warehouse]:
    with opened(tmp_path / "warehouse") as fresh:
        yield fresh


@pytest.fixture(params=FEATURES_AND_COMMIT_MODES, ids=lambda pair: name_of(*pair))
def table(request: pytest.FixtureRequest, warehouse: refimpl.Warehouse) -> OwnedTable:
    """A table with version 0, which is backfilled only on request. One for each table feature and commit mode."""
    return create(warehouse, *request.param)


@pytest.fixture(
    params=[p for p in FEATURES_AND_COMMIT_MODES if p[1].value != "direct"], ids=lambda pair: name_of(*pair)
)
def delayed(request: pytest.FixtureRequest, warehouse: refimpl.Warehouse) -> OwnedTable:
    """The same for the commit modes in which a ratified commit may be unpublished."""
    return create(warehouse, *request.param)
