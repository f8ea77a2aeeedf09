"""Opening a warehouse: what is refused, and that nothing is left behind then."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import refimpl
from refimpl import actions, log_path
from refimpl.environment import Environment
from refimpl.errors import CorruptLedgerError, InvalidRequestError, LocationError, OwnerUnavailableError
from refimpl.files import FileStatus, PosixFiles
from refimpl.log_store import LogStore
from refimpl.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, CommitMode, TableFeature
from spec_tests.support.builders import START, create, filesystem_table, info, metadata_of, protocol_of
from spec_tests.support.faults import opened


def test_warehouse_is_created_and_found_again(tmp_path: Path) -> None:
    made = refimpl.open(tmp_path / "deep" / "lake", create=True)
    assert refimpl.open(tmp_path / "deep" / "lake").directory == made.directory


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this host does not list a process's descriptors")
def test_a_closed_warehouse_has_no_file_open(tmp_path: Path) -> None:
    def held() -> list[str]:
        links = [str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
        return [link for link in links if link.startswith(str(tmp_path))]

    with refimpl.open(tmp_path / "lake", create=True) as warehouse:
        assert held()
    assert (held(), warehouse.directory) == ([], tmp_path / "lake")


def test_without_leave_to_create_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError):
        refimpl.open(tmp_path / "lake")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "lake" / "_owner").mkdir(parents=True)
    with pytest.raises(InvalidRequestError):
        refimpl.open(tmp_path / "lake")
    opened(tmp_path / "lake").close()
    assert refimpl.open(tmp_path / "lake").tables() == []


def test_a_warehouse_inside_a_warehouse_is_refused(tmp_path: Path) -> None:
    refimpl.open(tmp_path / "lake", create=True)
    with pytest.raises(LocationError):
        refimpl.open(tmp_path / "lake" / "lake", create=True)
    assert not (tmp_path / "lake" / "lake").exists()

    class WarehouseAtTheRoot(PosixFiles):
        def stat(self, path: Path) -> FileStatus | None:
            return super().stat(Path("/") if path == Path("/_owner") else path)

    with pytest.raises(LocationError):
        refimpl.open(tmp_path / "another", environment=Environment(files=WarehouseAtTheRoot()), create=True)


def test_an_invalid_root_is_rejected_before_any_change(tmp_path: Path) -> None:
    with pytest.raises(LocationError):
        refimpl.open(tmp_path / "lake", roots=[tmp_path / "nowhere"], create=True)
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize("name", ["file", "file/below", "loop", os.fsdecode(b"not\xfftext")])
def test_a_place_that_can_hold_no_directory_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(LocationError):
        refimpl.open(tmp_path / name, create=True)


@pytest.mark.parametrize("feature", [CATALOG_MANAGED, MANAGED_COMMIT], ids=lambda feature: feature.name)
def test_no_owner_is_made_beside_tables_whose_owner_is_gone(tmp_path: Path, feature: TableFeature) -> None:
    """It would begin without a single commit of theirs."""
    with opened(tmp_path / "lake") as warehouse:
        create(warehouse, feature, CommitMode.STAGED)
    (tmp_path / "lake" / "_owner").rename(tmp_path / "moved")
    with pytest.raises(CorruptLedgerError):
        refimpl.open(tmp_path / "lake", create=True)
    assert not (tmp_path / "lake" / "_owner").exists()
    (tmp_path / "moved").rename(tmp_path / "lake" / "_owner")
    assert refimpl.open(tmp_path / "lake").tables() == ["orders"]


def test_tables_of_others_do_not_hinder_a_first_start(tmp_path: Path) -> None:
    filesystem_table(tmp_path / "lake" / "2024" / "plain")
    (tmp_path / "lake" / "round").symlink_to(tmp_path / "lake")
    another = LogStore(tmp_path / "lake" / "another", Environment())
    another.create_folders()
    metadata = metadata_of(MANAGED_COMMIT, owner="another")
    another.put_if_absent(log_path.commit(0), actions.encode([info(START), protocol_of(MANAGED_COMMIT), metadata]))
    assert refimpl.open(tmp_path / "lake", create=True).tables() == []


def test_a_lock_does_not_make_the_folder_of_a_moved_owner(tmp_path: Path) -> None:
    """An empty folder looks like a first start."""
    with opened(tmp_path / "lake") as warehouse:
        table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE)
        (tmp_path / "lake" / "_owner").rename(tmp_path / "moved")
        with pytest.raises(OwnerUnavailableError):
            table.commit(1)
        assert not (tmp_path / "lake" / "_owner").exists()
        (tmp_path / "moved").rename(tmp_path / "lake" / "_owner")
        table.land()
