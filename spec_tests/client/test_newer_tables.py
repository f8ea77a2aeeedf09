"""Tables as Delta's newer writers leave them: typed statistics in checkpoints, void columns, protected checkpoints,
codecs, expired transactions, unusual column mapping, and features that this client does not implement."""

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refimpl.client.create import create_filesystem_table
from refimpl.client.maintenance import clean_up, write_checkpoint, write_checksum
from refimpl.client.table import Table
from refimpl.log.log_segment import build, complete_checkpoints
from refimpl.protocol import log_path
from refimpl.protocol.actions import Add, Metadata, Protocol, Txn
from refimpl.protocol.errors import InvalidRequestError, UnsupportedFeatureError
from refimpl.schema.features import CHECKPOINT_PROTECTION, PROTECTED_BEFORE
from refimpl.storage.environment import Environment
from spec_tests.support.written_log import WrittenLog, add, classic_content, definition, metadata, remove

DAY = 86_400_000
INSTANT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=datetime.UTC)
ROWS = pa.table(
    {
        "id": [2**63 - 1, -1],
        "day": [datetime.date(2026, 1, 2), None],
        "price": pa.array([decimal.Decimal("0.10"), decimal.Decimal("99999999.99")], pa.decimal128(10, 2)),
        "at": pa.array([INSTANT, INSTANT], pa.timestamp("us", tz="UTC")),
        "inner": [{"name": "ä", "share": 0.1}, {"name": "z" * 40, "share": 0.25}],
        "flag": [True, False],
        "tags": [["a"], None],
        "part": pa.array([datetime.date(2026, 1, 1)] * 2),
    }
)


def table_with(tmp_path: Path, **properties: str) -> Table:
    location = tmp_path / "t"
    options: dict[str, Any] = {"partition_columns": ["part"], "properties": properties}
    return create_filesystem_table(location, Environment(), ROWS.schema, **options)


def files_in_checkpoint(table: Table) -> list[dict[str, Any]]:
    rows = [row for path in table.log.folder.rglob("*.parquet") for row in pq.read_table(path).to_pylist()]
    return [row["add"] for row in rows if row.get("add") is not None]


def statistics(file: Add) -> Any:
    """Times read from a column have six digits and an offset."""
    return None if file.stats is None else json.loads(file.stats.replace("000+00:00", "Z"))


def without_commits(table: Table) -> Table:
    for path in table.log.folder.glob("*.json"):
        path.unlink()
    return Table.by_path(table.location, Environment())


@pytest.mark.parametrize(
    ("policy", "mode", "text", "typed"),
    [
        ("classic", "none", "true", "false"),
        ("classic", "none", "true", "true"),
        ("classic", "name", "false", "true"),
        ("v2", "none", "false", "true"),
        ("v2", "name", "true", "true"),
        ("v2", "name", "false", "false"),
    ],
)
def test_checkpoint_has_statistics_as_the_properties_say(
    tmp_path: Path, policy: str, mode: str, text: str, typed: str
) -> None:
    """Delta's protocol, "Checkpoint Schema". A reader of the checkpoint prunes as before; the next checkpoint copies
    the columns."""
    properties = {
        "delta.checkpointPolicy": policy,
        "delta.columnMapping.mode": mode,
        "delta.checkpoint.writeStatsAsJson": text,
        "delta.checkpoint.writeStatsAsStruct": typed,
    }
    table = table_with(tmp_path, **properties)
    table.append(ROWS)
    (before,) = table.snapshot().files.values()
    names = table.snapshot().schema.places()
    write_checkpoint(table)
    (written,) = files_in_checkpoint(table)
    assert (written["stats"] is not None) is (text == "true")
    assert ("stats_parsed" in written, "partitionValues_parsed" in written) == (typed == "true", typed == "true")
    if typed == "true":
        assert written["partitionValues_parsed"] == {names["part"]: datetime.date(2026, 1, 1)}
        high = written["stats_parsed"]["maxValues"]
        assert high[names["id"]] == 2**63 - 1
        assert high[names["day"]] == datetime.date(2026, 1, 2)
        assert high[names["price"]] == decimal.Decimal("99999999.99")
        assert high[names["at"]] == INSTANT
        assert high[names["inner"]][names["inner.share"]] == 0.25
        assert not {names["flag"], names["tags"], names["part"]} & high.keys()
        counts = written["stats_parsed"]["nullCount"]
        assert (counts[names["day"]], counts[names["tags"]], written["stats_parsed"]["numRecords"]) == (1, 1, 2)
    again = without_commits(table)
    (after,) = again.snapshot().files.values()
    kept = text == "true" or typed == "true"
    assert statistics(after) == (statistics(before) if kept else None)
    assert again.snapshot().to_arrow(where="id = 2").num_rows == 0
    assert again.snapshot().to_arrow().num_rows == 2
    if kept:
        again.append(ROWS)
        write_checkpoint(again)
        assert len({str(add["stats"]) for add in files_in_checkpoint(again)}) <= 2


STATISTICS = [
    ('{"numRecords":1,"maxValues":{"id":"x"}}', None),
    ('{"numRecords":1,"maxValues":{"id":9223372036854775808}}', None),
    ('{"numRecords":1,"maxValues":{"id":1.5}}', None),
    ('{"numRecords":1,"maxValues":{"id":true}}', None),
    ('{"numRecords":1,"maxValues":{"id":7}}', 7),
    ('{"numRecords":1,"maxValues":[1]}', None),
    ('{"numRecords":1}', None),
    ("not JSON", None),
    ("[]", None),
    ("", None),
    (None, None),
]


@pytest.mark.parametrize(("stats", "bound"), STATISTICS)
def test_statistics_that_fit_no_type_are_unknown(tmp_path: Path, stats: str | None, bound: int | None) -> None:
    log = WrittenLog(tmp_path / "t").create(add("a", stats=stats), **{"delta.checkpoint.writeStatsAsStruct": "true"})
    write_checkpoint(log.table())
    (written,) = files_in_checkpoint(log.table())
    parsed = written["stats_parsed"] or {}
    assert ((parsed.get("maxValues") or {}).get("id"), written["stats"]) == (bound, stats)


def test_partition_value_without_a_python_value_is_kept_as_text(tmp_path: Path) -> None:
    schema = ROWS.select(["id", "part"]).schema
    options: dict[str, Any] = {"partition_columns": ["part"]}
    properties = {"delta.checkpoint.writeStatsAsStruct": "true"}
    table = create_filesystem_table(tmp_path / "t", Environment(), schema, properties=properties, **options)
    transaction = table.transaction()
    transaction.add(
        Add(path="a", partition_values={"part": "12026-01-01"}, size=1, modification_time=0, data_change=True)
    )
    transaction.commit()
    write_checkpoint(table)
    (written,) = files_in_checkpoint(table)
    assert "partitionValues_parsed" not in written
    assert dict(written["partitionValues"]) == {"part": "12026-01-01"}


@pytest.mark.parametrize(
    ("codec", "version", "expected"),
    [
        (None, None, ("ZSTD", ".zstd.parquet", 1)),
        ("snappy", "1.0.0", ("SNAPPY", ".snappy.parquet", 1)),
        ("GZIP", "2.12.0", ("GZIP", ".gz.parquet", 2)),
        ("uncompressed", "2.0.0", ("UNCOMPRESSED", ".parquet", 2)),
    ],
)
def test_new_files_have_the_codec_and_the_pages_of_the_table(
    tmp_path: Path, codec: str | None, version: str | None, expected: tuple[str, str, int]
) -> None:
    """DELTA.md#codec: data files and checkpoints; files of another codec stay readable."""
    table = table_with(tmp_path)
    table.append(ROWS)
    given = {"delta.parquet.compression.codec": codec, "delta.parquet.format.version": version}
    set_ = {key: value for key, value in given.items() if value is not None}
    if set_:
        table.alter(properties=set_)
    table.append(ROWS)
    (new,) = [file.path for file in table.snapshot().files.values() if file.path.endswith(expected[1])][-1:]
    column = pq.ParquetFile(table.location / new).metadata.row_group(0).column(0)
    start = column.data_page_offset
    kind = {b"\x15\x00": 1, b"\x15\x06": 2}[(table.location / new).read_bytes()[start : start + 2]]
    assert (column.compression, kind) == (expected[0], expected[2]), "the page's header begins with its kind"
    made = write_checkpoint(table)
    checkpoint = pq.ParquetFile(table.log.folder / made.name).metadata
    assert checkpoint.row_group(0).column(0).compression == expected[0]
    assert table.snapshot().to_arrow().num_rows == 4


# Void columns

VOID = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "nothing", "type": "void", "nullable": True, "metadata": {}},
        {"name": "inner", "nullable": True, "metadata": {}, "type": {"type": "struct", "fields": [
            {"name": "a", "type": "string", "nullable": True, "metadata": {}},
            {"name": "b", "type": "void", "nullable": True, "metadata": {}}]}},
        {"name": "empty", "nullable": True, "metadata": {}, "type": {"type": "struct", "fields": [
            {"name": "c", "type": "void", "nullable": True, "metadata": {}}]}},
    ],
}  # fmt: skip


def void_table(tmp_path: Path, schema: Any = VOID) -> Table:
    log = WrittenLog(tmp_path / "t")
    log.publish(0, Protocol(min_reader_version=1, min_writer_version=2), metadata(json.dumps(schema), partitioned=()))
    return log.table()


def test_void_columns_are_nulls_and_in_no_data_file(tmp_path: Path) -> None:
    table = void_table(tmp_path)
    table.append(pa.table({"id": [1, 2], "inner": [{"a": "x"}, None]}))
    table.append(pa.table({"id": [3], "nothing": pa.nulls(1), "inner": [{"a": "y", "b": None}]}))
    for file in table.snapshot().files.values():
        stored = pq.read_schema(table.location / file.path)
        assert stored.names == ["id", "inner"]
        assert [member.name for member in stored.field("inner").type] == ["a"]
    rows = sorted(table.snapshot().to_arrow().to_pylist(), key=lambda row: row["id"])
    assert [(row["id"], row["nothing"], row["empty"]) for row in rows] == [
        (1, None, None),
        (2, None, None),
        (3, None, None),
    ]
    assert [row["inner"] for row in rows] == [{"a": "x", "b": None}, None, {"a": "y", "b": None}]
    with pytest.raises(InvalidRequestError, match="nothing"):
        table.append(pa.table({"id": [4], "nothing": [7]}))
    table.delete("id = 1")
    write_checkpoint(table)
    assert without_commits(table).snapshot().to_arrow(["id"]).num_rows == 2


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "array", "elementType": "void", "containsNull": True},
        {"type": "map", "keyType": "string", "valueType": "void", "valueContainsNull": True},
        {"type": "array", "containsNull": True, "elementType": {"type": "struct", "fields": [
            {"name": "a", "type": "void", "nullable": True, "metadata": {}}]}},
    ],
)  # fmt: skip
def test_void_inside_an_array_or_a_map_is_rejected(tmp_path: Path, kind: Any) -> None:
    field = {"name": "bad", "type": kind, "nullable": True, "metadata": {}}
    table = void_table(tmp_path, {"type": "struct", "fields": [VOID["fields"][0], field]})  # type: ignore[index]
    with pytest.raises(UnsupportedFeatureError, match=r"'bad'.*void"):
        table.append(pa.table({"id": [1]}))
    assert not [*table.location.glob("*.parquet")]


def test_new_table_has_no_void_column(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"'inner\.b'.*void"):
        create_filesystem_table(tmp_path / "t", Environment(), json.dumps({**VOID, "fields": VOID["fields"][2:]}))
    assert not (tmp_path / "t").exists()


def test_table_of_void_columns_alone_takes_no_rows(tmp_path: Path) -> None:
    table = void_table(tmp_path, {"type": "struct", "fields": [VOID["fields"][1]]})  # type: ignore[index]
    with pytest.raises(InvalidRequestError, match="void"):
        table.append(pa.table({"nothing": pa.nulls(1)}))
    assert table.snapshot().version == 0


# Protected checkpoints


def protected(tmp_path: Path, before: int, **protocol: Any) -> WrittenLog:
    """Version 1 had a feature that version 2 removed, as Delta's DROP FEATURE does."""
    log = WrittenLog(tmp_path / "t")
    fields = {"min_reader_version": 1, "min_writer_version": 7}
    log.publish(0, Protocol(**fields, writer_features=("appendOnly",)), metadata())
    log.publish(1, Protocol(**fields, writer_features=("someFutureFeature",)), add("a"))
    configuration = {PROTECTED_BEFORE: str(before)}
    log.publish(2, Protocol(**fields, writer_features=(CHECKPOINT_PROTECTION,)), metadata(**configuration))
    return log.publish(3, add("b"))


def test_dropped_feature_leaves_a_table_that_is_written_here(tmp_path: Path) -> None:
    table = protected(tmp_path, 2).table()
    transaction = table.transaction()
    transaction.add(add("c"))
    assert transaction.commit().version == 4


def test_protected_versions_get_checkpoints_only_of_supported_protocols(tmp_path: Path) -> None:
    """DELTA.md#checkpoint-protection."""
    table = protected(tmp_path, 2).table()
    with pytest.raises(UnsupportedFeatureError, match="someFutureFeature"):
        write_checkpoint(table, 1)
    for version in (0, 2, 3):
        assert write_checkpoint(table, version).version == version
    assert not log_exists(table, log_path.classic_checkpoint(1))


def log_exists(table: Table, name: str) -> bool:
    return table.log.find(name) is not None


def test_cleanup_of_a_protected_table_creates_and_deletes_no_later_checkpoint(tmp_path: Path) -> None:
    table = protected(tmp_path, 2).table()
    for version in (0, 2, 3):
        write_checkpoint(table, version)
    before = {path.name for path in table.log.listing()}
    done = clean_up(table, older_than=-1000)
    assert done.cut_off == 3
    after = {path.name for path in table.log.listing()}
    assert after <= before
    assert log_path.classic_checkpoint(3) in after
    assert [*table.snapshot().files]


def test_cleanup_needs_a_protocol_that_is_supported(tmp_path: Path) -> None:
    log = protected(tmp_path, 2)
    log.publish(4, Protocol(min_reader_version=1, min_writer_version=7, writer_features=("someFutureFeature",)))
    table = log.table()
    write_checkpoint(table, 3)
    before = {path.name for path in table.log.listing()}
    with pytest.raises(UnsupportedFeatureError, match="someFutureFeature"):
        clean_up(table, older_than=-1000)
    assert {path.name for path in table.log.listing()} == before


# Expired transactions


def test_expired_transactions_are_gone_everywhere(tmp_path: Path) -> None:
    """Replay, checkpoint and checksum agree; one without a time stays, and no older one of the application comes back.
    The checksum from before is no contradiction."""
    now = Environment().now()
    log = WrittenLog(tmp_path / "t").create(**{"delta.setTransactionRetentionDuration": "interval 1 day"})
    log.publish(1, Txn(app_id="old", version=0, last_updated=now))
    log.publish(
        2,
        Txn(app_id="old", version=1, last_updated=now - 2 * DAY),
        Txn(app_id="new", version=2, last_updated=now),
        Txn(app_id="timeless", version=3),
    )
    log.checksum(2, setTransactions=[{"appId": "old", "version": 1}, {"appId": "new", "version": 2},
                                     {"appId": "timeless", "version": 3}])  # fmt: skip
    table, live = log.table(), {"new", "timeless"}
    assert (table.snapshot().transactions.keys(), table.snapshot().warnings) == (live, ())
    assert table.snapshot(version=0).transactions == {}
    log.delete(log_path.checksum(2))
    write_checksum(table)
    stated = json.loads(table.log.read(log_path.checksum(2)))["setTransactions"]
    assert {txn["appId"] for txn in stated} == live
    assert log.table().snapshot().warnings == ()
    made = write_checkpoint(table)
    rows = pq.read_table(table.log.folder / made.name).to_pylist()
    assert {row["txn"]["appId"] for row in rows if row["txn"]} == live
    assert without_commits(table).snapshot().transactions.keys() == live


# Column mapping


def mapped(mode: str) -> str:
    column = {"name": "id", "type": "long", "nullable": True}
    keys = {"delta.columnMapping.physicalName": "col-1", "delta.columnMapping.id": 1}
    return json.dumps({"type": "struct", "fields": [{**column, "metadata": keys}]})


@pytest.mark.parametrize(
    ("mode", "protocol", "stored"),
    [
        ("none", {"reader_features": ("columnMapping",), "writer_features": ("columnMapping",)}, "id"),
        ("name", {"reader_features": ("columnMapping",), "writer_features": ()}, "col-1"),
        ("name", {"reader_features": ("columnMapping",), "writer_features": ("columnMapping",)}, "col-1"),
        ("name", {"reader_features": (), "writer_features": ("columnMapping",)}, "col-1"),
        ("name", {"min_reader_version": 1, "writer_features": ("columnMapping",)}, "id"),
    ],
)
def test_physical_names_count_where_readers_use_them(
    tmp_path: Path, mode: str, protocol: dict[str, Any], stored: str
) -> None:
    """Stale physical names without a mode; a feature that only one of the two lists has."""
    log = WrittenLog(tmp_path / "t")
    definition = metadata(mapped(mode), partitioned=(), **{"delta.columnMapping.mode": mode})
    log.publish(0, Protocol(**{"min_reader_version": 3, "min_writer_version": 7, **protocol}), definition)
    table = log.table()
    table.append(pa.table({"id": [1, 2]}))
    (file,) = table.snapshot().files.values()
    assert pq.read_schema(table.location / file.path).names == [stored]
    assert [*json.loads(file.stats or "")["maxValues"]] == [stored]
    assert table.snapshot().to_arrow().to_pydict() == {"id": [1, 2]}


@pytest.mark.parametrize(
    "protocol",
    [
        {"min_reader_version": 1, "min_writer_version": 5},
        {"min_reader_version": 1, "min_writer_version": 6},
        {"min_reader_version": 2, "min_writer_version": 6},
        {"min_reader_version": 1, "min_writer_version": 7, "writer_features": ("columnMapping",)},
        {"min_reader_version": 3, "min_writer_version": 7, "writer_features": ("columnMapping",)},
    ],
)
def test_readers_know_of_a_mapping_that_is_turned_on(tmp_path: Path, protocol: dict[str, Any]) -> None:
    """Writers knew the feature before, as in tables with identity columns; readers of version 1 did not."""
    log = WrittenLog(tmp_path / "t")
    log.publish(0, Protocol(**protocol), metadata(partitioned=()))
    table = log.table()
    table.append(pa.table({"id": [1], "month": ["01"]}))
    table.alter(properties={"delta.columnMapping.mode": "name"})
    after = table.snapshot()
    assert after.schema.is_mapped
    assert after.protocol.min_reader_version == 2 or after.protocol.reads("columnMapping")
    assert after.to_arrow().to_pydict() == {"id": [1], "month": ["01"]}


# Several checkpoints of one version


def test_each_reader_of_a_listing_chooses_the_same_checkpoint(tmp_path: Path) -> None:
    """Two complete checkpoints of one version have different content: one of them is damaged, or lies."""
    log = WrittenLog(tmp_path / "t").create().publish(1, add("a"))
    names = [log_path.v2_checkpoint(1, f"{digit}" * 8 + "-0000-4000-8000-000000000000") for digit in "19"]
    for name, path in zip(names, ("x", "y"), strict=True):
        log.write(name, classic_content([*definition(), add(path)]))
    log.write(log_path.classic_checkpoint(1), classic_content([*definition(), add("z")]))
    listing = log.table().log.listing()
    chosen = {
        tuple(part.name for part in build(order, None, None).checkpoint) for order in (listing, listing[::-1])
    } | {tuple(part.name for part in complete_checkpoints(order)[-1]) for order in (listing, listing[::-1])}
    assert len(chosen) == 1
    assert {path for path, _ in log.table().snapshot().files} == {"y"}


# What is refused, and how


@pytest.mark.parametrize(
    ("feature", "kind"),
    [("variantType", "variant"), ("collations", "string"), ("someFutureFeature", "long"), (None, "variant")],
)
def test_unsupported_feature_is_named_before_anything_is_written(
    tmp_path: Path, feature: str | None, kind: str
) -> None:
    """Also a variant column that no feature announces. The advice leads to a table that this client writes."""
    extra: dict[str, Any] = {"__COLLATIONS": {"v": "ICU.de"}} if feature == "collations" else {}
    schema = {
        "type": "struct",
        "fields": [VOID["fields"][0], {"name": "v", "type": kind, "nullable": True, "metadata": extra}],
    }  # type: ignore[index]
    features = () if feature is None else (feature,)
    log = WrittenLog(tmp_path / "t")
    protocol = Protocol(min_reader_version=1, min_writer_version=7, writer_features=features)
    log.publish(0, protocol, metadata(json.dumps(schema), partitioned=()))
    before = sorted(log.location.rglob("*"))
    with pytest.raises(UnsupportedFeatureError, match=feature or "variant") as error:
        log.table().append(pa.table({"id": [1]}))
    assert sorted(log.location.rglob("*")) == before
    if feature is not None:
        assert f"DROP FEATURE {feature}" in error.value.message
        assert CHECKPOINT_PROTECTION in error.value.message


def test_removals_stay_readable_beside_typed_statistics(tmp_path: Path) -> None:
    """Removed files have no typed columns, as in Delta's schema of checkpoints."""
    log = WrittenLog(tmp_path / "t").create(add("a"), **{"delta.checkpoint.writeStatsAsStruct": "true"})
    log.publish(1, remove("a", deletion_timestamp=10**15), add("b"))
    made = write_checkpoint(log.table())
    schema = pq.read_schema(log.folder / made.name)
    assert "stats_parsed" in [member.name for member in schema.field("add").type]
    assert "stats_parsed" not in [member.name for member in schema.field("remove").type]
    assert isinstance(log.table().snapshot().metadata, Metadata)
    assert len(without_commits(log.table()).snapshot().tombstones) == 1
