"""Storage that fails under a writer: nothing landed, or nobody knows, and both are told as what they are."""

from __future__ import annotations

import pyarrow as pa
import pytest

from refimpl import log_path
from refimpl.client.table import Table
from refimpl.client.transaction import Transaction
from refimpl.errors import (
    OutcomeUnknown,
    OwnerUnavailableError,
)
from refimpl.log_path import LOG_FOLDER
from refimpl.table_feature import CATALOG_MANAGED
from spec_tests.client.conftest import Setting, adding
from spec_tests.support.faults import FailingFiles


def appending(table: Table, path: str, **options: int) -> Transaction:
    transaction = table.transaction(**options)  # type: ignore[arg-type]
    transaction.add(adding(path))
    return transaction


def paths(setting: Setting, table: Table) -> set[str]:
    return {path for path, _ in setting.again(table).snapshot().files}


@pytest.mark.parametrize("operation", ["create", "write", "fsync", "fsync_directory"])
def test_a_staged_file_that_cannot_be_made_durable_is_not_proposed(
    setting: Setting, storage: FailingFiles, operation: str
) -> None:
    """A full disk: nothing is changed, and the same work lands once there is room."""
    table = setting.table()
    transaction = appending(table, "mine")
    staging = table.log.folder / CATALOG_MANAGED.staging_folder
    storage.fail_when = lambda name, path: name == operation and staging in (path, path.parent)
    setting.owner.proposals.clear()
    with pytest.raises(OwnerUnavailableError):
        transaction.commit()
    assert setting.owner.proposals == []
    storage.fail_when = lambda name, path: False
    assert setting.again(table).snapshot().version == 0
    assert appending(table, "mine").commit().version == 1


@pytest.mark.parametrize("operation", ["create", "write", "fsync", "link"])
def test_a_filesystem_commit_that_fails_before_its_link_did_not_land(
    setting: Setting, storage: FailingFiles, operation: str
) -> None:
    table = setting.table(None)
    transaction = appending(table, "mine")
    storage.fail_when = lambda name, path: name == operation
    with pytest.raises(OwnerUnavailableError):
        transaction.commit()
    storage.fail_when = lambda name, path: False
    assert setting.again(table).snapshot().version == 0
    assert appending(table, "mine").commit().version == 1


def test_a_filesystem_commit_that_is_visible_but_perhaps_not_durable_is_unknown(
    setting: Setting, storage: FailingFiles
) -> None:
    """After a failed fsync nobody can promise; the commit is not repeated."""
    table = setting.table(None)
    transaction = appending(table, "mine")
    storage.fail_when = lambda name, path: name == "fsync_directory" and path.name == LOG_FOLDER
    with pytest.raises(OutcomeUnknown) as caught:
        transaction.commit()
    assert caught.value.version == 1
    storage.fail_when = lambda name, path: False
    assert paths(setting, table) == {"mine"}


def test_a_filesystem_commit_that_cannot_be_read_back_is_unknown_and_keeps_its_data(
    setting: Setting, storage: FailingFiles
) -> None:
    """The disk fails right after the link: the commit is visible, so the rows that it names must stay."""
    table = setting.table(None)
    table.snapshot()
    storage.fail_when = lambda name, path: (
        ("link", table.log.folder / log_path.commit(1)) in storage.done and (name in ("fsync_directory", "read"))
    )
    with pytest.raises(OutcomeUnknown):
        table.append(pa.table({"id": [1], "month": ["01"]}))
    storage.fail_when = lambda name, path: False
    assert setting.again(table).snapshot().to_arrow().num_rows == 1


def test_a_filesystem_commit_recognises_its_own_bytes(setting: Setting, storage: FailingFiles) -> None:
    """FB24: the link succeeded, its answer did not arrive; the file that is there is this commit's."""
    table = setting.table(None)
    transaction = appending(table, "mine")
    linked: list[str] = []

    def lie_once(name: str, path: object) -> bool:
        if name == "link" and not linked:
            linked.append(name)
            return True
        return False

    storage.after, storage.error, storage.fail_when = True, 17, lie_once
    assert transaction.commit().version == 1
    assert setting.again(table).snapshot().version == 1
