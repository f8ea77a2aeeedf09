"""The reference as a subject."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.adapters.in_process import InProcess
from conformance.adapters.reference.owner import ReferenceOwner
from spec_tests.conformance.asking import Asking


def opened(directory: Path | None = None, **options: Any) -> Asking:
    return Asking(InProcess(ReferenceOwner(directory, **options)))


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Asking]:
    with opened(tmp_path / "warehouse") as asking:
        yield asking


@pytest.fixture
def other(owner: Asking, tmp_path: Path) -> Iterator[Asking]:
    """Another process on the same warehouse."""
    with opened(tmp_path / "warehouse") as asking:
        yield asking
