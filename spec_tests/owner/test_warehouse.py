"""Opening a warehouse: what is refused, and that nothing is left behind then."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import refimpl
from refimpl.errors import InvalidRequestError, LocationError


def test_a_warehouse_is_made_where_there_is_none_and_found_again(tmp_path: Path) -> None:
    made = refimpl.open(tmp_path / "deep" / "lake")
    assert refimpl.open(tmp_path / "deep" / "lake", create=False).directory == made.directory


def test_without_leave_to_create_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError):
        refimpl.open(tmp_path / "lake", create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_warehouse_inside_a_warehouse_is_refused(tmp_path: Path) -> None:
    refimpl.open(tmp_path / "lake")
    with pytest.raises(LocationError):
        refimpl.open(tmp_path / "lake" / "lake")
    assert not (tmp_path / "lake" / "lake").exists()


def test_a_root_that_is_no_directory_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(LocationError):
        refimpl.open(tmp_path / "lake", roots=[tmp_path / "nowhere"])
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize("name", ["file", "file/below", "loop", os.fsdecode(b"not\xfftext")])
def test_a_place_that_can_hold_no_directory_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(LocationError):
        refimpl.open(tmp_path / name)
