from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spec_tests.conformance.reference.asking import Asking


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Asking]:
    asking = Asking(tmp_path / "warehouse")
    yield asking
    asking.close()
