"""What a commit says of the transaction behind it: whether it is blind, what it removed, every edit of its metadata."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from refimpl.actions import DeletionVector
from refimpl.client.transaction import Transaction, removal
from spec_tests.client.conftest import Setting, adding
from spec_tests.client.test_transaction import info_of


@pytest.mark.parametrize(
    ("read", "blind"),
    [
        (lambda transaction: None, True),
        (lambda transaction: transaction.transaction_version("stream"), True),
        (lambda transaction: transaction.read_whole_table(), False),
        (lambda transaction: transaction.read_files("month = '01'"), False),
        (lambda transaction: transaction.read_files("month = '99'"), False),
    ],
    ids=["nothing", "application", "table", "files", "no-file"],
)
def test_an_append_that_read_files_is_not_blind(
    setting: Setting, read: Callable[[Transaction], object], blind: bool
) -> None:
    """DELTA.md#blind-append: others at WriteSerializable ignore a blind one."""
    table = setting.table()
    setting.append(table, "a")
    transaction = table.transaction()
    read(transaction)
    transaction.add(adding("b"))
    transaction.commit()
    assert info_of(table, 2)["isBlindAppend"] is blind


def test_a_removal_is_of_the_very_same_file() -> None:
    """DELTA.md#file-identity: path and deletion vector identify it, and the rest says what it was."""
    vector = DeletionVector(storage_type="u", path_or_inline_dv="x", size_in_bytes=1, cardinality=1, offset=1)
    add = adding("a", tags={"t": "1"}, base_row_id=7, default_row_commit_version=3, deletion_vector=vector)
    gone = removal(add, at=5)
    assert gone.key == add.key
    kept = ("partition_values", "size", "tags", "base_row_id", "default_row_commit_version")
    assert [getattr(gone, name) for name in kept] == [getattr(add, name) for name in kept]
    assert (gone.deletion_timestamp, gone.data_change) == (5, True)
    assert not removal(add, at=5, data_change=False).data_change


def test_edits_of_one_transaction_add_up(setting: Setting) -> None:
    """Whatever edits the metadata or the protocol begins where the edit before it ended."""
    table = setting.table(None)
    transaction = table.transaction()
    transaction.set_properties({"first": "1"})
    transaction.set_properties({"second": "2", "delta.appendOnly": "true"})
    transaction.set_domain("d", "{}")
    transaction.enable_in_commit_timestamps()
    transaction.set_properties({"third": "3"})
    transaction.commit()
    snapshot = setting.again(table).snapshot()
    edited = {"first": "1", "second": "2", "third": "3", "delta.appendOnly": "true"}
    assert edited.items() <= snapshot.metadata.configuration.items()
    assert snapshot.in_commit_timestamp is not None
    assert all(snapshot.protocol.writes(name) for name in ("appendOnly", "domainMetadata", "inCommitTimestamp"))


def test_a_replacement_of_the_metadata_keeps_an_enablement_before_it(setting: Setting) -> None:
    table = setting.table(None)
    transaction = table.transaction()
    transaction.enable_in_commit_timestamps()
    transaction.set_metadata(transaction.snapshot.metadata)
    transaction.commit()
    snapshot = setting.again(table).snapshot()
    assert snapshot.metadata.configuration["delta.enableInCommitTimestamps"] == "true"
    assert snapshot.in_commit_timestamp is not None
