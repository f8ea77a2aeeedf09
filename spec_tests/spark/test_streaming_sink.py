"""The writers of `delta-owner` without a session. The test runs the tasks, and commits their messages as Spark does."""

import pickle
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import FloatType, LongType, MapType, StructType

import refimpl
from refimpl.client.create import create_filesystem_table
from refimpl.client.data_maintenance import vacuum
from refimpl.client.table import Table
from refimpl.client.transaction import Transaction
from refimpl.protocol import errors, log_path
from refimpl.protocol.commit_owner import Maintenance, MaintenancePolicy
from refimpl.schema.schema import parse, to_arrow
from refimpl.spark import data_source, plan_reads
from refimpl.spark.data_source import Connection, DeltaOwnerSource
from refimpl.spark.write_plan import WritePlan
from refimpl.warehouse import Warehouse
from spec_tests.engines.prerequisites import served
from spec_tests.storage.test_object_store import directory, objects, server, store

__all__ = ["directory", "server", "store"]  # fixtures

SCHEMA = pa.schema([("id", pa.int64()), ("month", pa.int32())])
COLUMNS_OF_TABLE = StructType().add("id", "long").add("month", "integer")
COLUMNS = StructType().add("ID", "integer").add("month", "integer")
DYNAMIC = {plan_reads.MODE: "dynamic"}
"""The session's `spark.sql.sources.partitionOverwriteMode`."""
QUERY = "2ac6ec97-0000-4000-8000-7f5b0b6d6c01"


@pytest.fixture
def table(warehouse: Warehouse) -> Table:
    """A table with the ids 1 and 2 in the months 1 and 2."""
    made = warehouse.create_table("sink", SCHEMA, partition_columns=["month"])
    made.append(pa.table({"id": [1, 2], "month": [1, 2]}, schema=SCHEMA))
    return made


def source(warehouse: Warehouse, **options: str) -> DeltaOwnerSource:
    kind = type("Source", (DeltaOwnerSource,), {"connection": Connection.of(warehouse)})
    return kind({"path": "sink", plan_reads.KEY: "[]", **options})  # type: ignore[no-any-return]


def again(value: Any) -> Any:
    """The copy that another process gets."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - made here


def message(writer: Any, *rows: tuple[int, int], split: int = 0, query: str | None = QUERY, columns: Any = None) -> Any:
    """The message of a task that has written these rows."""
    names = columns or ["ID", "month"]
    batch = pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True)) for row in rows] or [], schema_of(names))
    return again(again(writer.work).run(iter([batch]), split=split, attempt=split, query_id=query))


def schema_of(names: list[str]) -> pa.Schema:
    return pa.schema([(name, pa.int32()) for name in names])


def stream(warehouse: Warehouse, *, overwrite: bool = False, **options: str) -> Any:
    return source(warehouse, **options).streamWriter(COLUMNS, overwrite)


def ids(table: Table) -> list[int]:
    return sorted(table.snapshot().to_arrow()["id"].to_pylist())


def files(table: Table) -> int:
    return len(list(table.location.rglob("*.parquet")))


def test_a_batch_is_committed_once(warehouse: Warehouse, table: Table) -> None:
    for _ in range(2):
        writer = stream(warehouse)
        writer.commit([message(writer, (3, 1), (4, 2)), message(writer, (5, 1), split=1)], 7)
    assert ids(table) == [1, 2, 3, 4, 5]
    assert table.snapshot().version == 2
    assert table.snapshot().transactions[QUERY].version == 7
    assert files(table) == 5, "the files of the repeated batch are deleted"


def test_repeated_commit_deletes_no_committed_file(warehouse: Warehouse, table: Table) -> None:
    writer = stream(warehouse)
    sent = [message(writer, (3, 1))]
    for _ in range(2):
        writer.commit(sent, 0)
    assert ids(table) == [1, 2, 3]
    table.overwrite(pa.table({"id": [9], "month": [1]}, schema=SCHEMA))
    writer.commit(sent, 0)
    assert ids(table) == [9]
    assert sorted(table.snapshot(version=2).to_arrow()["id"].to_pylist()) == [1, 2, 3], (
        "the files of an older version stay"
    )


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("step", ["begin", "commit"])
def test_commit_that_lands_during_its_repetition_keeps_its_files(
    warehouse: Warehouse, table: Table, monkeypatch: pytest.MonkeyPatch, step: str, overwrite: bool
) -> None:
    """The first request was delayed, and arrives after the repetition has looked for it."""
    sent, original = [message(stream(warehouse, overwrite=overwrite), (3, 1))], getattr(WritePlan, step)

    def late(plan: WritePlan, *values: Any, **more: Any) -> Any:
        monkeypatch.setattr(WritePlan, step, original)
        stream(warehouse, overwrite=overwrite).commit(sent, 0)
        return original(plan, *values, **more)

    monkeypatch.setattr(WritePlan, step, late)
    is_seen = step == "begin" and not overwrite  # an overwrite begins on the version that it read
    with nullcontext() if is_seen else pytest.raises(errors.ConcurrentModificationError):
        stream(warehouse, overwrite=overwrite).commit(sent, 0)
    assert ids(table) == ([3] if overwrite else [1, 2, 3])


@pytest.mark.parametrize("query", [QUERY, None])
def test_repeated_overwrite_deletes_no_committed_file(warehouse: Warehouse, table: Table, query: str | None) -> None:
    made = stream(warehouse, overwrite=True) if query else source(warehouse).writer(COLUMNS, True)
    sent = [message(made, (3, 1), query=query)]
    for _ in range(2):
        made.commit(sent, *([0] if query else []))
    assert ids(table) == [3]
    assert table.snapshot().version == 2


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("commits", [0, 1, 2])
def test_recreated_table_gets_no_files_of_the_first_table(
    warehouse: Warehouse, table: Table, overwrite: bool, commits: int
) -> None:
    writer = stream(warehouse, overwrite=overwrite)
    sent = [message(writer, (3, 1))]
    warehouse.owner.drop_table(warehouse.owner.resolve("sink").table_id)
    second = warehouse.create_table("sink", SCHEMA, partition_columns=["month"])
    for number in range(commits):
        second.append(pa.table({"id": [number], "month": [1]}, schema=SCHEMA))
    for committing in (writer, stream(warehouse, overwrite=overwrite)):
        with pytest.raises(errors.MetadataChangedError, match="was dropped and created again"):
            committing.commit(sent, 0)
    assert second.snapshot().version == commits
    assert ids(second) == list(range(commits))


def test_new_writer_commits_the_files_of_another_writers_tasks(warehouse: Warehouse) -> None:
    """As Spark does. Both writers have planned the new column, with different physical names."""
    mapped = warehouse.create_table("mapped", SCHEMA, properties={"delta.columnMapping.mode": "name"})
    given = StructType().add("id", "integer").add("month", "integer").add("more", "integer")
    first, second = (source(warehouse, path="mapped", mergeSchema="true").streamWriter(given, False) for _ in range(2))
    second.commit([message(first, (3, 1, 5), columns=["id", "month", "more"])], 0)
    assert mapped.snapshot().to_arrow().to_pylist() == [{"id": 3, "month": 1, "more": 5}]


def test_batches_of_two_queries_are_both_committed(warehouse: Warehouse, table: Table) -> None:
    for query in ("one", "two"):
        writer = stream(warehouse)
        writer.commit([message(writer, (3, 1), query=query)], 0)
    assert ids(table) == [1, 2, 3, 3]


def test_batch_with_an_unknown_outcome_is_committed_once(
    warehouse: Warehouse, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = Transaction.commit

    def unanswered(transaction: Transaction) -> None:
        commit(transaction)
        raise errors.OutcomeUnknown("no answer")

    writer = stream(warehouse)
    sent = [message(writer, (3, 1))]
    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "commit", unanswered)
        with pytest.raises(errors.OutcomeUnknown):
            writer.commit(sent, 0)
    writer.abort(sent, 0)
    assert ids(table) == [1, 2, 3], "an abort after the commit has begun deletes nothing"
    writer = stream(warehouse)
    writer.commit([message(writer, (3, 1))], 0)
    assert ids(table) == [1, 2, 3]


def test_a_table_that_cannot_be_written_is_rejected_before_the_tasks(warehouse: Warehouse, tmp_path: Path) -> None:
    create_filesystem_table(tmp_path / "t", warehouse.environment, SCHEMA)
    protocol = '{"protocol":{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["icebergCompatV2"]}}'
    (tmp_path / "t" / "_delta_log" / log_path.commit(1)).write_text(protocol, encoding="utf-8")
    target = source(warehouse, path=str(tmp_path / "t"))
    for begin in (target.writer, target.streamWriter):
        with pytest.raises(errors.UnsupportedFeatureError, match="icebergCompatV2"):
            begin(COLUMNS, False)


@pytest.mark.parametrize("failed", [True, False])
def test_abort_deletes_nothing(warehouse: Warehouse, table: Table, failed: bool) -> None:
    """delayed-commit-protocol, "Aborting Job": VACUUM deletes the files that no version names."""
    before = files(table)
    writer = stream(warehouse)
    sent = [message(writer, (3, 1))]
    writer.abort([None, *sent] if failed else sent, 0)
    assert (ids(table), files(table)) == ([1, 2], before + 1)
    assert table.table_id is not None
    warehouse.owner.set_policy(table.table_id, MaintenancePolicy(allowed=frozenset({Maintenance.VACUUM})))
    assert len(vacuum(table, older_than=-60_000, dry_run=False, force=True).files) == 1
    assert files(table) == before


def test_a_batch_is_aborted_without_the_owner(
    warehouse: Warehouse, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise Spark hides the error of the commit behind the one of the abort."""
    sent = message(stream(warehouse), (3, 1))

    def unreachable(_: Connection) -> Warehouse:
        raise errors.OwnerUnavailableError("the server is down")

    monkeypatch.setattr(Connection, "warehouse", unreachable)
    data_source._tables.cache_clear()
    writer = stream(warehouse)
    writer.abort([sent, None], 0)
    for use in (lambda: again(writer), lambda: writer.commit([sent], 0)):
        with pytest.raises(errors.OwnerUnavailableError, match="the server is down"):
            use()


@pytest.mark.parametrize("queries", [(None,), (QUERY, None), (QUERY, "another")])
def test_without_one_query_id_nothing_is_committed(
    warehouse: Warehouse, table: Table, queries: tuple[str | None, ...]
) -> None:
    writer = stream(warehouse)
    sent = [message(writer, (3, 1), split=split, query=query) for split, query in enumerate(queries)]
    with pytest.raises(errors.CorruptionError, match="query ids"):
        writer.commit(sent, 0)
    assert table.snapshot().version == 1


def test_a_batch_without_rows_makes_no_version(warehouse: Warehouse, table: Table) -> None:
    writer = stream(warehouse)
    writer.commit([message(writer)], 0)
    assert table.snapshot().version == 1


def test_complete_mode_replaces_the_rows_also_in_a_dynamic_session(warehouse: Warehouse, table: Table) -> None:
    for number, rows in enumerate([[(9, 9)], []]):
        writer = stream(warehouse, overwrite=True, **DYNAMIC)
        writer.commit([message(writer, *rows)], number)
    assert ids(table) == []
    assert table.snapshot().version == 3


def test_an_append_is_rebased_and_an_overwrite_is_not(warehouse: Warehouse, table: Table) -> None:
    append, overwrite = stream(warehouse), stream(warehouse, overwrite=True)
    sent = [message(append, (3, 1))], [message(overwrite, (4, 1))]
    table.append(pa.table({"id": [8], "month": [1]}, schema=SCHEMA))
    append.commit(sent[0], 0)
    before = files(table)
    with pytest.raises(errors.ConcurrentAppendError):
        overwrite.commit(sent[1], 1)
    assert ids(table) == [1, 2, 3, 8]
    assert files(table) == before - 1, "the files of the conflicting batch are deleted"


def test_a_schema_change_since_the_plan_is_a_conflict(warehouse: Warehouse, table: Table) -> None:
    writer = stream(warehouse)
    sent = [message(writer, (3, 1))]
    transaction = table.transaction()
    transaction.set_properties({"delta.appendOnly": "true"})
    transaction.commit()
    with pytest.raises(errors.MetadataChangedError):
        writer.commit(sent, 0)


def test_copies_of_a_connection_contain_no_token(tmp_path: Path) -> None:
    with refimpl.open("http://127.0.0.1:1", token="secret-token") as remote:
        connection = Connection.of(remote)
    assert b"secret-token" not in pickle.dumps(connection)
    assert connection.token_file is not None
    assert Path(connection.token_file).stat().st_mode & 0o077 == 0
    reopened = again(connection).warehouse()
    assert reopened.owner.address.token == "secret-token"


def batch(
    warehouse: Warehouse, *rows: tuple[int, ...], overwrite: bool = False, columns: Any = None, **options: str
) -> None:
    """Run a whole batch write."""
    names = columns or ["ID", "month"]
    given = StructType()
    for name in names:
        given = given.add(name, "integer")
    writer = again(source(warehouse, **options).writer(given, overwrite))
    writer.commit([message(writer, *rows, query=None, columns=names)])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [3]),
        ({"replaceWhere": "month = 1"}, [2, 3]),
        ({"partitionOverwriteMode": "dynamic"}, [2, 3]),
        ({"overwriteSchema": "true"}, [3]),
        ({"overwriteSchema": "true", "partitionBy": "ID"}, [3]),
        (DYNAMIC, [2, 3]),
        (DYNAMIC | {"partitionOverwriteMode": "static"}, [3]),
        (DYNAMIC | {"replaceWhere": "month < 3"}, [3]),
        (DYNAMIC | {"overwriteSchema": "true"}, [3]),
    ],
)
def test_overwrite_replaces_the_selected_rows(
    warehouse: Warehouse, table: Table, options: dict[str, str], expected: list[int]
) -> None:
    """In a dynamic session, too: as in Delta, other options come first."""
    batch(warehouse, (3, 1), overwrite=True, **options)
    name = "ID" if "overwriteSchema" in options else "id"
    assert sorted(table.snapshot().to_arrow()[name].to_pylist()) == expected
    assert table.snapshot().partition_columns == (("ID",) if "partitionBy" in options else ("month",))


def test_a_dynamic_overwrite_conflicts_with_rows_in_its_partitions_only(warehouse: Warehouse, table: Table) -> None:
    for month, lands in ((2, True), (1, False)):
        writer = source(warehouse, partitionOverwriteMode="dynamic").writer(COLUMNS, True)
        sent = [message(writer, (3, 1), query=None)]
        table.append(pa.table({"id": [8], "month": [month]}, schema=SCHEMA))
        if lands:
            writer.commit(sent)
        else:
            with pytest.raises(errors.ConcurrentAppendError):
                writer.commit(sent)
    assert ids(table) == [2, 3, 8, 8]


def test_new_columns_need_merge_schema(warehouse: Warehouse, table: Table) -> None:
    columns = ["id", "month", "more"]
    with pytest.raises(errors.InvalidRequestError, match="no column 'more'"):
        batch(warehouse, (3, 1, 5), columns=columns)
    assert table.snapshot().version == 1
    batch(warehouse, (3, 1, 5), columns=columns, mergeSchema="true")
    assert table.snapshot().schema.names == ("id", "month", "more")
    assert table.snapshot().to_arrow(where="id = 3")["more"].to_pylist() == [5]
    assert table.snapshot().to_arrow(where="id = 1")["more"].to_pylist() == [None]


WIDER = StructType().add("id", "long").add("n", "long").add("s", StructType().add("f", "double"))


@pytest.fixture
def narrow(warehouse: Warehouse) -> Table:
    """A table with narrower types than the columns of `WIDER`."""
    schema = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("s", pa.struct([("f", pa.float32())]))])
    table = warehouse.create_table("narrow", schema, properties={"delta.enableTypeWidening": "true"})
    table.append(pa.table({"id": [1], "n": [7], "s": [{"f": 0.5}]}, schema=schema))
    return table


def test_merge_schema_widens_types(warehouse: Warehouse, narrow: Table) -> None:
    with pytest.raises(errors.InvalidRequestError, match="'n' is integer in the table and long in the rows"):
        source(warehouse, path="narrow").writer(WIDER, False)
    rows = pa.RecordBatch.from_pylist([{"id": 2, "n": 2**40, "s": {"f": 0.1}}])
    writer = source(warehouse, path="narrow", mergeSchema="true").writer(WIDER, False)
    writer.commit([again(again(writer.work).run(iter([rows]), split=0, attempt=0))])
    snapshot = narrow.snapshot()
    assert snapshot.to_arrow().sort_by("id").to_pylist() == [{"id": 1, "n": 7, "s": {"f": 0.5}}, *rows.to_pylist()]
    assert snapshot.schema["n"].metadata["delta.typeChanges"] == [{"fromType": "integer", "toType": "long"}]


def test_merge_schema_widens_keys_of_maps(warehouse: Warehouse) -> None:
    narrow, wide = (pa.schema([("m", pa.map_(kind, pa.float32()))]) for kind in (pa.int32(), pa.int64()))
    table = warehouse.create_table("maps", narrow, properties={"delta.enableTypeWidening": "true"})
    table.append(pa.table({"m": [[(7, 0.5)]]}, schema=narrow))
    given = StructType().add("m", MapType(LongType(), FloatType()))
    writer = source(warehouse, path="maps", mergeSchema="true").writer(given, False)
    rows = pa.RecordBatch.from_pylist([{"m": [(2**40, 1.5)]}], wide)
    writer.commit([again(again(writer.work).run(iter([rows]), split=0, attempt=0))])
    snapshot = table.snapshot()
    assert sorted(snapshot.to_arrow()["m"].to_pylist()) == [[(7, 0.5)], [(2**40, 1.5)]]
    change = {"fromType": "integer", "toType": "long", "fieldPath": "key"}
    assert snapshot.schema["m"].metadata["delta.typeChanges"] == [change]


@pytest.mark.parametrize(
    ("kinds", "values", "left"),
    [
        (("date", "timestamp_ntz"), (date(2024, 1, 1), datetime.fromisoformat("2024-01-01T12:00")), [1, 2]),
        (("date", "timestamp_ntz"), (date(2024, 1, 1), datetime.fromisoformat("2024-01-01")), [2]),
        (("decimal(3,1)", "decimal(5,2)"), (Decimal("1.2"), Decimal("1.25")), [1, 2]),
    ],
)  # fmt: skip
def test_dynamic_overwrite_compares_values_of_the_wider_type(
    warehouse: Warehouse, kinds: tuple[str, str], values: tuple[Any, Any], left: list[int]
) -> None:
    """In the narrower type, both rows would be in the same partition."""
    before, after = (StructType().add("id", "long").add("p", kind) for kind in kinds)
    on = {"delta.enableTypeWidening": "true"}
    table = warehouse.create_table("narrow", before.json(), partition_columns=["p"], properties=on)
    table.append(pa.table({"id": [1], "p": [values[0]]}, schema=to_arrow(parse(before.json()))))
    options = {"mergeSchema": "true", "partitionOverwriteMode": "dynamic"}
    writer = source(warehouse, path="narrow", **options).writer(after, True)
    rows = pa.RecordBatch.from_pylist([{"id": 2, "p": values[1]}], to_arrow(parse(after.json())))
    writer.commit([again(again(writer.work).run(iter([rows]), split=0, attempt=0))])
    assert ids(table) == left


@pytest.mark.parametrize(
    ("properties", "kind", "problem"),
    [
        ({"delta.enableTypeWidening": "false"}, "long", "type widening is off"),
        ({}, "double", "does not widen an integer"),
        ({}, "decimal(12,2)", "does not widen an integer"),
        ({"delta.constraints.positive": "n > 0"}, "long", "delta.constraints.positive depends on it"),
    ],
)  # fmt: skip
def test_error_names_the_type_that_merge_schema_does_not_widen(
    warehouse: Warehouse, narrow: Table, properties: dict[str, str], kind: str, problem: str
) -> None:
    if properties:
        narrow.alter(properties=properties)
    with pytest.raises(errors.InvalidRequestError, match=f"'n'.*{problem}"):
        source(warehouse, path="narrow", mergeSchema="true").writer(StructType().add("n", kind), False)


def test_a_batch_of_an_application_is_committed_once(warehouse: Warehouse, table: Table) -> None:
    for number in (1, 1, 2, 1):
        batch(warehouse, (3, 1), txnAppId="nightly", txnVersion=str(number))
    assert ids(table) == [1, 2, 3, 3]


@pytest.mark.parametrize(
    ("options", "overwrite", "message"),
    [
        ({"replaceWhere": "month = 1"}, False, "needs the mode overwrite"),
        ({"replaceWhere": "id = 1"}, True, "other columns than the partition columns"),
        ({"partitionOverwriteMode": "maybe"}, True, "expected static or dynamic"),
        ({"overwriteSchema": "true", "replaceWhere": "month = 1"}, True, "leave out replaceWhere"),
        ({"mergeSchema": "yes"}, False, "expected true or false"),
        ({"txnAppId": "x"}, False, "required together"),
        ({"txnAppId": "x", "txnVersion": "-1"}, False, "expected a number"),
        ({"mergeschemas": "true"}, False, "unknown option 'mergeschemas'"),
        ({"partitionBy": "id"}, False, "is partitioned by month, not by id"),
        ({plan_reads.KEY: "[]", "path": "a/b"}, False, "expected a name or an absolute path"),
        ({"table": "sink"}, False, "mutually exclusive"),
    ],
)
def test_invalid_options(
    warehouse: Warehouse, table: Table, options: dict[str, str], overwrite: bool, message: str
) -> None:
    with pytest.raises(errors.InvalidRequestError, match=message):
        batch(warehouse, (3, 1), overwrite=overwrite, **options)
    assert table.snapshot().version == 1
    assert files(table) == 2


def test_a_missing_table_is_created(warehouse: Warehouse, tmp_path: Path) -> None:
    batch(warehouse, (3, 1), path="new", partitionBy="MONTH")
    assert warehouse.table("new").snapshot().partition_columns == ("month",)
    assert warehouse.table("new").snapshot().to_arrow()["ID"].to_pylist() == [3]
    with pytest.raises(errors.TableNotFoundError, match="a write by path needs an existing table"):
        batch(warehouse, (4, 1), path=f"file:{tmp_path / 'by-path'}")
    assert not (tmp_path / "by-path").exists()


def test_stream_of_a_served_table_has_tasks_without_server_calls(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="the extra `server` is not installed")
    directory = tmp_path / "served"
    refimpl.open(directory, create=True).close()
    with ExitStack() as running:
        url = running.enter_context(served(directory))
        remote = running.enter_context(refimpl.open(url, token=None))
        remote.create_table("sink", SCHEMA)
        kind = type("Source", (DeltaOwnerSource,), {"connection": Connection.of(remote)})
        writer = kind({plan_reads.KEY: "[]", "path": "sink"}).streamWriter(COLUMNS, False)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Connection, "warehouse", lambda _: pytest.fail("a task asks the server"))
            sent = [message(writer, (3, 1))]
        for _ in range(2):
            again(writer).commit(sent, 0)
        reader = kind({plan_reads.KEY: "[]", "path": "sink"}).streamReader(COLUMNS_OF_TABLE)
        start = reader.initialOffset()
        (partition,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
        reading = again(reader)
    assert [row for batch in reading.read(again(partition)) for row in batch.to_pylist()] == [{"id": 3, "month": 1}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"readChangeFeed": "true"}, "exactly one of the options startingVersion and startingTimestamp"),
        ({"readChangeFeed": "true", "startingVersion": "0", "startingTimestamp": "2026-01-01"}, "exactly one of"),
        (
            {"readChangeFeed": "true", "startingVersion": "0", "endingVersion": "1", "endingTimestamp": "2026-01-01"},
            "at most one of the options endingVersion and endingTimestamp",
        ),
        ({"readChangeFeed": "true", "startingVersion": "0", "versionAsOf": "1"}, "mutually exclusive"),
        ({"startingVersion": "0"}, "needs readChangeFeed=true"),
        ({"timestampAsOf": "1712123100000"}, r"the time 2024-04-03 05:45:00.000Z is before the oldest .* at 20"),
        ({"paths": '["sink","other"]'}, "several tables .*; expected one"),
    ],
)
def test_contradictory_options_of_a_read_are_rejected(
    warehouse: Warehouse, table: Table, options: dict[str, str], message: str
) -> None:
    """A number is a time in ms, although the digits could also be a date of the year 1712."""
    made = source(warehouse, **options)
    if "paths" in options:
        del made.options["path"]
    with pytest.raises((errors.InvalidRequestError, errors.NotFoundInHistoryError), match=message):
        made.reader(made.schema())


def test_a_stream_reports_invalid_options_at_its_first_offset(warehouse: Warehouse, table: Table) -> None:
    """PySpark raises UnboundLocalError after an error of `streamReader`."""
    reader = source(warehouse, maxFilesPerTrigger="0").streamReader(COLUMNS_OF_TABLE)
    for call in (reader.initialOffset, reader.prepareForTriggerAvailableNow):
        with pytest.raises(errors.InvalidRequestError, match=r"invalid maxFilesPerTrigger '0'; expected a number >= 1"):
            call()


@pytest.mark.parametrize(
    ("text", "size"),
    [("1048576", 2**20), ("64m", 2**26), ("10 GB", 10 * 2**30), ("7b", 7), ("0", None), ("1.5g", None), ("-1", None)],
)
def test_a_number_of_bytes_may_have_a_unit(warehouse: Warehouse, table: Table, text: str, size: int | None) -> None:
    reader = source(warehouse, maxBytesPerTrigger=text).streamReader(COLUMNS_OF_TABLE)
    if size is None:
        with pytest.raises(errors.InvalidRequestError, match=r"invalid maxBytesPerTrigger .* 1048576 or 64m"):
            reader.initialOffset()
    else:
        assert reader._max_bytes == size


def test_rejected_rows_leave_no_files(warehouse: Warehouse) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("month", pa.int32())])
    strict = warehouse.create_table("strict", schema)
    writer = source(warehouse, path="strict").streamWriter(COLUMNS, False)
    sent = [message(writer, (3, 1)), message(writer, (None, 1), split=1), message(writer, (5, 1), split=2)]  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidRequestError, match="id"):
        writer.commit(sent, 0)
    writer.abort(sent, 0)
    assert strict.snapshot().version == 0
    assert files(strict) == 0


# Tables in an object store


@pytest.fixture
def stored(directory: Path) -> Iterator[Warehouse]:
    with refimpl.open(directory) as opened:
        yield opened


@pytest.fixture
def stored_table(stored: Warehouse) -> Table:
    """A table with the ids 1 and 2 in the months 1 and 2."""
    made = stored.create_table(
        "sink",
        SCHEMA,
        partition_columns=["month"],
        location=stored.directory / "s3.store" / "sink",
        properties={"delta.enableChangeDataFeed": "true"},
    )
    made.append(pa.table({"id": [1, 2], "month": [1, 2]}, schema=SCHEMA))
    return made


def read(made: Any) -> list[dict[str, Any]]:
    """All rows, as tasks read them."""
    reader = made.reader(made.schema())
    partitions = [again(partition) for partition in reader.partitions()]
    return [row for partition in partitions for batch in again(reader).read(partition) for row in batch.to_pylist()]


def test_tasks_write_and_read_objects(stored: Warehouse, stored_table: Table, store: str) -> None:
    writer = source(stored).writer(COLUMNS, False)
    writer.commit([message(writer, (3, 1), (4, 2), query=None)])
    assert ids(stored_table) == [1, 2, 3, 4]
    assert sorted(row["id"] for row in read(source(stored))) == [1, 2, 3, 4]
    feed = read(source(stored, readChangeFeed="true", startingVersion="2"))
    assert sorted((row["id"], row["_change_type"]) for row in feed) == [(3, "insert"), (4, "insert")]
    assert (stored.directory / "s3.store").is_file()
    assert len([name for name in objects(store) if name.endswith(".parquet")]) == 4


def test_objects_of_an_uncommitted_job_are_deleted(stored: Warehouse, stored_table: Table, store: str) -> None:
    before = objects(store)
    writer = source(stored, replaceWhere="month = 1").writer(COLUMNS, True)
    sent = [message(writer, (3, 2), query=None)]
    assert len(objects(store) - before) == 1
    with pytest.raises(errors.InvalidRequestError, match="is not true for 1 of 1 rows"):
        writer.commit(sent)
    assert objects(store) == before
    assert ids(stored_table) == [1, 2]
