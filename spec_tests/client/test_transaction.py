"""The actions that a transaction writes, the requests that it refuses, and the conflicts that end it."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from refimpl.client.create import create_filesystem_table
from refimpl.client.table import Table
from refimpl.client.transaction import Transaction
from refimpl.protocol import actions, log_path
from refimpl.protocol.actions import Action, Add, CommitInfo, Format, Metadata, Txn
from refimpl.protocol.errors import (
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    ConcurrentModificationError,
    ConcurrentTransactionError,
    InvalidRequestError,
    MetadataChangedError,
)
from refimpl.protocol.table_feature import CATALOG_MANAGED, CommitMode, TableFeature
from refimpl.schema.features import IsolationLevel
from refimpl.schema.properties import KNOWN, checkpoint_interval
from refimpl.schema.schema import Field, Primitive, Struct
from refimpl.storage.environment import Environment
from spec_tests.client.conftest import OWNED_COMMIT_MODES, SCHEMA, Setting, adding, appending, both, name_of
from spec_tests.support.builders import commit, redefine
from spec_tests.support.faults import HOST_START as START

EVERY_COMMIT_MODE = [*OWNED_COMMIT_MODES, (None, None)]


def commit_of(table: Table, version: int) -> list[Action]:
    """The actions of a version, wherever the version is stored."""
    answer = table.reader.ask(version, version)
    stored = answer.commits if answer is not None else ()
    if stored:
        return table.reader.actions(stored[0])
    name = log_path.commit(version)
    return actions.decode(table.log.read(name), source=name)


def info_of(table: Table, version: int) -> dict[str, Any]:
    first = commit_of(table, version)[0]
    assert isinstance(first, CommitInfo)
    return first.fields


Step = Callable[[Transaction], object]
NEVER_ALONE = ("managedCommit", "inCommitTimestamp", "columnMapping", "unheardOf")


def claim(batch: Any, transaction: Transaction) -> object:
    return transaction.claim(*batch)


def test_the_commit_info_comes_first(setting: Setting) -> None:
    """in-commit timestamps, rule 2; catalog-managed, "Commit Provenance Information"."""
    table = setting.table()
    transaction = table.transaction(operation="WRITE", parameters={"mode": "Append"}, metrics={"numFiles": "1"})
    transaction.add(adding("a"))
    committed = transaction.commit()
    fields = info_of(table, 1)
    assert fields["operation"] == "WRITE"
    assert fields["operationParameters"] == {"mode": "Append"}
    assert fields["operationMetrics"] == {"numFiles": "1"}
    assert (fields["readVersion"], fields["isolationLevel"], fields["isBlindAppend"]) == (0, "Serializable", True)
    assert fields["txnId"] == committed.txn_id == transaction.id
    assert fields["engineInfo"].startswith("delta-commit-owner/")
    assert fields["inCommitTimestamp"] == committed.in_commit_timestamp == START + 1


REFUSED: list[tuple[str, Step]] = [
    ("the removal of a file that is not active", lambda t: t.remove(adding("b"))),
    ("other partition values", lambda t: t.add(adding("b"), replace(adding("a"), partition_values={"year": "2013"}))),
    ("an unknown partition column", lambda t: redefine(t, partition_columns=("nothing",))),
    ("only partition columns", lambda t: redefine(t, partition_columns=("id", "month"))),
    ("a column with a space in its name", lambda t: redefine(t, schema_string=SCHEMA.replace('"id"', '"an id"'))),
    ("no schema", lambda t: redefine(t, schema_string="{}")),
    ("another file format", lambda t: redefine(t, format=Format(provider="csv"))),
    ("another table's id", lambda t: redefine(t, id="another")),
    ("a domain of a table feature", lambda t: t.set_domain("delta.rowTracking", "{}")),
    *((f"the feature {name} alone", partial(Transaction.add_feature, name=name)) for name in NEVER_ALONE),
    *((f"the batch {batch}", partial(claim, batch)) for batch in (("app", "1"), ("app", True), (1, 1))),
]


@pytest.mark.parametrize("request_of", [step for _, step in REFUSED], ids=[what for what, _ in REFUSED])
def test_a_refused_request_changes_nothing(setting: Setting, request_of: Step) -> None:
    """Delta's protocol, "Domain Metadata": names that begin with `delta.` are reserved."""
    table = setting.table()
    transaction = table.transaction()
    with pytest.raises(InvalidRequestError):
        request_of(transaction)
    assert transaction.commit_if_needed() is None
    assert table.snapshot().version == 0


def test_commits_without_in_commit_timestamps_have_no_time(setting: Setting) -> None:
    table = setting.table(None)
    setting.append(table, "a")
    assert "inCommitTimestamp" not in info_of(table, 1)
    assert info_of(table, 1)["timestamp"] == START


def test_an_empty_commit_is_written_only_if_it_is_needed(setting: Setting) -> None:
    """DELTA.md#empty-commits."""
    table = setting.table()
    assert commit(table).version == 1
    levels = {None: None, IsolationLevel.SNAPSHOT_ISOLATION: None, IsolationLevel.WRITE_SERIALIZABLE: 2}
    for level, version in levels.items():
        written = table.transaction(isolation=level).commit_if_needed()
        assert (written and written.version) == version
    needed = appending(table, "a").commit_if_needed()
    assert needed is not None
    assert needed.version == 3


def test_a_transaction_is_used_once(setting: Setting) -> None:
    table = setting.table()
    transaction = table.transaction()
    transaction.commit()
    for use in (transaction.commit, transaction.commit_if_needed, transaction.read_whole_table):
        with pytest.raises(InvalidRequestError):
            use()
    with pytest.raises(InvalidRequestError):
        transaction.add(adding("a"))
    assert table.snapshot().version == 1


@pytest.mark.parametrize("data_change", [True, False])
def test_a_tombstone_has_the_fields_of_the_add(setting: Setting, data_change: bool) -> None:
    table = setting.table()
    setting.append(table, "a", "b")
    transaction = table.transaction(operation="DELETE")
    kept, gone = sorted(transaction.read_whole_table(), key=lambda add: add.path)[::-1]
    transaction.remove(gone, data_change=data_change)
    transaction.commit()
    snapshot = table.snapshot()
    assert list(snapshot.files.values()) == [kept]
    tombstone = snapshot.tombstones[gone.key]
    expected = (START + 1, 1, {"month": "01"})  # the time of the version that was read
    assert (tombstone.deletion_timestamp, tombstone.size, tombstone.partition_values) == expected
    assert tombstone.data_change is data_change
    assert info_of(table, 2)["isBlindAppend"] is False


def test_a_transaction_has_one_action_for_a_file(setting: Setting) -> None:
    """Delta's protocol, "Add File and Remove File": one commit has at most one action for a file."""
    table = setting.table()
    setting.append(table, "a", "b")
    transaction = table.transaction()
    transaction.remove(adding("a"))
    transaction.add(adding("c"))
    for twice in ([adding("c")], [adding("a")], [adding("d"), adding("d", size=2)]):
        with pytest.raises(InvalidRequestError):
            transaction.add(*twice)
    transaction.add(adding("b"))  # an active file may get new statistics
    with pytest.raises(InvalidRequestError):
        transaction.remove(adding("b"))
    transaction.commit()
    assert {path for path, _ in table.snapshot().files} == {"b", "c"}


def test_repartitioning_a_table_replaces_all_its_files(setting: Setting) -> None:
    table = setting.table()
    setting.append(table, "a", "b")
    transaction = table.transaction(operation="REPLACE TABLE")
    redefine(transaction, partition_columns=())
    transaction.remove(adding("a"))
    transaction.add(replace(adding("c"), partition_values={}))
    with pytest.raises(InvalidRequestError) as caught:
        transaction.commit()
    assert caught.value.files == 1, "a file that is added does not replace one"
    transaction.remove(adding("b"))
    transaction.commit()
    assert table.snapshot().partition_columns == ()
    assert set(table.snapshot().files) == {("c", None)}


@pytest.mark.parametrize("level", IsolationLevel)
def test_repartitioning_conflicts_with_an_append(setting: Setting, level: IsolationLevel) -> None:
    """The conflict exists at every level: no reader could read the other writer's file in the new partitioning."""
    table = setting.table()
    transaction = table.transaction(isolation=level)
    redefine(transaction, partition_columns=())
    setting.append(table, "theirs")
    with pytest.raises(ConcurrentAppendError):
        transaction.commit()
    assert setting.again(table).snapshot().version == 1


def test_added_files_must_fit_the_new_partitioning(setting: Setting) -> None:
    table = setting.table()
    with pytest.raises(InvalidRequestError) as caught:
        commit(table, lambda t: t.add(adding("a")), lambda t: redefine(t, partition_columns=()))
    assert caught.value.path == "a"
    assert table.snapshot().version == 0


def test_an_incompatible_schema_requires_that_all_files_are_replaced(setting: Setting) -> None:
    """Without column mapping, a column that is dropped and added again would show its old values."""
    table = setting.table()
    setting.append(table, "a")
    transaction = table.transaction()
    redefine(transaction, schema_string=SCHEMA.replace('"id"', '"new"'))
    with pytest.raises(InvalidRequestError) as caught:
        transaction.commit()
    assert caught.value.files == 1
    transaction.remove(adding("a"))
    setting.append(table, "theirs")
    with pytest.raises(ConcurrentAppendError):
        transaction.commit()
    assert "id" in table.snapshot().schema


def test_a_transaction_needs_a_snapshot_of_its_own_table(setting: Setting) -> None:
    table, other = setting.table(), setting.table(name="invoices")
    setting.append(other, "a")
    with pytest.raises(InvalidRequestError):
        table.transaction(snapshot=other.snapshot())
    assert table.transaction(snapshot=setting.again(table).snapshot()).commit().version == 1


@pytest.mark.parametrize(("feature", "commit_mode"), EVERY_COMMIT_MODE, ids=name_of)
def test_a_commit_that_no_reader_could_read_is_refused(
    setting: Setting, feature: TableFeature | None, commit_mode: CommitMode | None
) -> None:
    """An owner rejects such a commit. For a filesystem table the client must, or the table becomes unreadable."""
    table = setting.table(feature, commit_mode)
    sizes: tuple[Any, ...] = ("large", 2**63)
    for size in sizes:
        with pytest.raises(InvalidRequestError):
            commit(table, lambda t, size=size: t.add(adding("a", size=size)))
    for parameters in ({"a": object()}, {"a": "\ud800"}):
        with pytest.raises(InvalidRequestError):
            commit(table, parameters=parameters)
    assert setting.again(table).snapshot().version == 0
    setting.append(table, "a")
    assert setting.again(table).snapshot().version == 1


def test_an_append_only_table_keeps_its_rows(setting: Setting) -> None:
    """Delta's append-only tables: no row may be removed, but files may be rewritten without a data change."""
    table = setting.table(properties={"delta.appendOnly": "true"})
    setting.append(table, "a")
    with pytest.raises(InvalidRequestError):
        commit(table, lambda t: t.remove(adding("a")))
    commit(table, lambda t: t.remove(adding("a"), data_change=False), lambda t: t.add(adding("b", data_change=False)))
    assert set(table.snapshot().files) == {("b", None)}


# Conflicts between two transactions that began on the same snapshot


def overwrite(transaction: Transaction) -> None:
    transaction.remove(*transaction.read_whole_table())
    transaction.add(adding("new"))


def read(*files: str, month: str = "", partition: str = "") -> Step:
    """Read by a condition or by partition values, which finds these files; then add another file."""

    def step(transaction: Transaction) -> None:
        read = transaction.read_files(f"month = '{month}'") if month else None
        read = transaction.read_partitions([{"month": partition}]) if read is None else read
        assert [add.path for add in read] == [*files]
        transaction.add(adding("copy", "03"))

    return step


def add(month: str) -> Step:
    return lambda t: t.add(adding("x", month))


def delete_a(transaction: Transaction) -> None:
    transaction.remove(adding("a"))


def stream(transaction: Transaction) -> None:
    assert transaction.claim("stream", 1)


def domain(transaction: Transaction) -> None:
    transaction.set_domain("d", "{}")


def comment(transaction: Transaction) -> None:
    redefine(transaction, description=transaction.id)


def raced(setting: Setting, mine: Step, winners: Step) -> tuple[Table, Transaction]:
    """A table whose version 3 is the winner's, and a transaction that began before it."""
    table = setting.table()
    setting.append(table, "a")
    commit(table, lambda t: t.set_domain("some", "{}"))
    transaction = table.transaction()
    mine(transaction)
    commit(setting.again(table), winners)
    return table, transaction


@pytest.mark.parametrize(
    ("mine", "winners", "kind"),
    [
        (overwrite, add("02"), ConcurrentAppendError),
        (overwrite, overwrite, ConcurrentAppendError),
        (read("a", month="01"), add("01"), ConcurrentAppendError),
        (read(month="02"), add("02"), ConcurrentAppendError),
        (read(partition="02"), add("02"), ConcurrentAppendError),
        (read("a", partition="01"), delete_a, ConcurrentDeleteReadError),
        (read("a", month="01"), delete_a, ConcurrentDeleteReadError),
        (delete_a, delete_a, ConcurrentDeleteDeleteError),
        (stream, stream, ConcurrentTransactionError),
        (domain, domain, ConcurrentTransactionError),
        (comment, comment, MetadataChangedError),
    ],
)
def test_a_conflict_ends_the_transaction_without_a_commit(
    setting: Setting, mine: Step, winners: Step, kind: type[ConcurrentModificationError]
) -> None:
    """DELTA.md#conflict-append; FB34: two overwrites do not double the rows."""
    table, transaction = raced(setting, mine, winners)
    with pytest.raises(kind) as caught:
        transaction.commit()
    assert caught.value.version == 3
    assert setting.again(table).snapshot().version == 3
    assert [path.version for path in table.log.staged_listing(CATALOG_MANAGED.staging_folder)] == [1, 2, 3]


def test_a_batch_is_written_once(setting: Setting) -> None:
    """DELTA.md#idempotent-writers."""
    table = setting.table()
    first = table.transaction()
    assert first.transaction_version("stream") is None
    assert first.claim("stream", 7)
    first.add(adding("batch-7"))
    first.commit()
    assert table.snapshot().transactions["stream"] == Txn(app_id="stream", version=7, last_updated=START)
    again = table.transaction()
    assert again.transaction_version("stream") == 7
    assert not again.claim("stream", 7)
    assert not again.claim("stream", 6)
    assert again.claim("stream", 8)
    assert table.snapshot().version == 1


# Metadata


def test_properties_of_users_are_set_and_removed(setting: Setting) -> None:
    table = setting.table(properties={"team": "a", "delta.logRetentionDuration": "interval 30 days"})
    table.alter(properties={"owner": "b", "delta.appendOnly": "true"}, remove=["team"])
    before = set(setting.again(table).snapshot(version=0).metadata.configuration)
    snapshot = table.snapshot()
    assert set(snapshot.metadata.configuration) == before - {"team"} | {"owner", "delta.appendOnly"}
    assert snapshot.protocol.writes("appendOnly")


def test_an_invalid_interval_of_another_writer_is_named() -> None:
    for text in ("0", "-1", "ten"):
        metadata = Metadata(id="t", schema_string="", configuration={"delta.checkpointInterval": text})
        with pytest.raises(InvalidRequestError, match=text):
            checkpoint_interval(metadata)


VALUES = [
    ("delta.appendOnly", "TRUE", "maybe"),
    ("delta.checkpointInterval", "10", "0"),
    ("delta.columnMapping.mode", "NONE", "both"),
    ("delta.checkpointPolicy", "v2", "v3"),
    ("delta.dataSkippingNumIndexedCols", "-1", "all"),
    ("delta.dataSkippingStatsColumns", "id", ""),
    ("delta.deletedFileRetentionDuration", "interval 1 week", "interval 1 month"),
    ("delta.enableChangeDataFeed", "true", "yes"),
    ("delta.enableRowTracking", "FALSE", "yes"),
    ("delta.enableTypeWidening", "true", "maybe"),
    ("delta.isolationLevel", "WriteSerializable", "nonsense"),
    ("delta.logRetentionDuration", "12 hours", "long"),
    ("delta.checkpoint.writeStatsAsJson", "false", "no"),
    ("delta.checkpoint.writeStatsAsStruct", "true", "1"),
    ("delta.setTransactionRetentionDuration", "interval 1 day", "1 month"),
    ("delta.parquet.compression.codec", "GZIP", "lzo"),
    ("delta.parquet.format.version", "2.12.0", "3"),
]


@pytest.mark.parametrize(("key", "good", "bad"), VALUES)
def test_an_invalid_property_value_is_rejected(setting: Setting, key: str, good: str, bad: str) -> None:
    """With an invalid isolation level, no later transaction could begin, not even the one that corrects it."""
    with pytest.raises(InvalidRequestError):
        setting.table(properties={key: bad})
    table = setting.table(properties={key: good})
    transaction = table.transaction()
    with pytest.raises(InvalidRequestError):
        transaction.set_properties({key: bad})
    with pytest.raises(InvalidRequestError):
        transaction.set_metadata(replace(table.snapshot().metadata, configuration={key: bad}))
    setting.append(table, "a")


def test_every_settable_property_has_its_values_checked() -> None:
    assert {key for key, _, _ in VALUES} == KNOWN.keys()


@both
@pytest.mark.parametrize(
    "key",
    [
        "delta.enableInCommitTimestamps",
        "delta.inCommitTimestampEnablementVersion",
        "delta.inCommitTimestampEnablementTimestamp",
        "delta.managedCommit.commitOwner",
        "delta.managedCommit.commitOwnerConf",
        "DELTA.MANAGEDCOMMIT.COMMITOWNER",
        "delta.columnMapping.maxColumnId",
    ],
)
def test_internal_properties_cannot_be_set_directly(setting: Setting, feature: TableFeature, key: str) -> None:
    """FB21, FB22; DELTA.md#ict-replace."""
    transaction = setting.table(feature).transaction()
    changes: list[Step] = [
        lambda t: t.set_properties({key: "x"}),
        lambda t: t.set_properties({}, remove=[key]),
        lambda t: redefine(t, configuration={key: "x"}),
    ]
    for change in changes:
        with pytest.raises(InvalidRequestError):
            change(transaction)
    assert transaction.commit_if_needed() is None


@pytest.mark.parametrize("at_once", [False, True])
def test_replaced_metadata_keep_the_enablement_of_timestamps(setting: Setting, at_once: bool) -> None:
    """in-commit timestamps, rule 7. FB21. Also in the commit that enables them."""
    table = setting.table(None)
    steps = (Transaction.enable_in_commit_timestamps, lambda t: redefine(t, configuration={}, name="new"))
    for together in (steps,) if at_once else ((steps[0],), (steps[1],)):
        commit(table, *together)
    snapshot = setting.again(table).snapshot()
    assert snapshot.metadata.name == "new"
    assert snapshot.enablement is not None
    assert snapshot.enablement.version == 1
    assert snapshot.in_commit_timestamp is not None


@pytest.mark.parametrize(
    ("read", "blind"),
    [
        (lambda t: None, True),
        (lambda t: t.transaction_version("stream"), True),
        (lambda t: t.read_whole_table(), False),
        (lambda t: t.read_files("month = '01'"), False),
        (lambda t: t.read_files("month = '99'"), False),
    ],
    ids=["nothing", "application", "table", "files", "no-file"],
)
def test_an_append_that_read_files_is_not_blind(setting: Setting, read: Step, blind: bool) -> None:
    """DELTA.md#blind-append: writers at WriteSerializable ignore a blind append."""
    table = setting.table()
    setting.append(table, "a")
    commit(table, read, lambda t: t.add(adding("b")))
    assert info_of(table, 2)["isBlindAppend"] is blind


def test_edits_of_metadata_in_one_transaction_add_up(setting: Setting) -> None:
    """Each edit of the metadata or the protocol begins with the result of the edit before it."""
    table = setting.table(None)
    commit(
        table,
        lambda t: t.set_properties({"first": "1"}),
        lambda t: t.set_properties({"second": "2", "delta.appendOnly": "true"}),
        lambda t: t.set_domain("d", "{}"),
        Transaction.enable_in_commit_timestamps,
        lambda t: t.set_properties({"third": "3"}),
    )
    snapshot = setting.again(table).snapshot()
    edited = {"first": "1", "second": "2", "third": "3", "delta.appendOnly": "true"}
    assert edited.items() <= snapshot.metadata.configuration.items()
    assert snapshot.in_commit_timestamp is not None
    assert all(snapshot.protocol.writes(name) for name in ("appendOnly", "domainMetadata", "inCommitTimestamp"))


@pytest.mark.parametrize(
    ("kind", "spellings"),
    [
        ("float", ["0.1", "0.10000000149011612", "1e-1"]),
        ("double", ["-0.0", "0.0", "0"]),
        ("double", ["NaN", "nan"]),
        ("integer", ["7", "07"]),
    ],
)
def test_a_partition_is_read_in_every_spelling_of_its_value(
    tmp_path: Path, kind: str, spellings: Sequence[str]
) -> None:
    """Writers spell numbers differently. A dynamic overwrite that misses a file keeps its old rows."""
    columns = (Field(name="id", type=Primitive(name="long")), Field(name="p", type=Primitive(name=kind)))
    adds = [
        Add(path=f"f{number}", partition_values={"p": text}, size=1, modification_time=0, data_change=True)
        for number, text in enumerate([*spellings, "1.5" if kind != "integer" else "8"])
    ]
    schema = Struct(fields=columns)
    table = create_filesystem_table(tmp_path / "t", Environment(), schema, partition_columns=["p"], adds=adds)
    for text in spellings:
        assert len(table.transaction().read_partitions([{"p": text}])) == len(spellings)
