"""A fresh warehouse, and tables of every dialect and way to commit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import refimpl
from spec_tests.support.builders import DIALECTS_AND_WAYS, OwnedTable, create, name_of
from spec_tests.support.faults import opened


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[refimpl.Warehouse]:
    with opened(tmp_path / "warehouse") as fresh:
        yield fresh


@pytest.fixture(params=DIALECTS_AND_WAYS, ids=lambda pair: name_of(*pair))
def table(request: pytest.FixtureRequest, warehouse: refimpl.Warehouse) -> OwnedTable:
    """A table with version 0, which is backfilled only on request, of every dialect in every way."""
    return create(warehouse, *request.param)


@pytest.fixture(params=[p for p in DIALECTS_AND_WAYS if p[1].value != "direct"], ids=lambda pair: name_of(*pair))
def delayed(request: pytest.FixtureRequest, warehouse: refimpl.Warehouse) -> OwnedTable:
    """The same where a ratified commit may wait to be published."""
    return create(warehouse, *request.param)
