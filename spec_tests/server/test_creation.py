"""Tables over HTTP: creation, names, lists, and drop."""

import itertools
import uuid
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

import refimpl
from refimpl.owner.local import LocalOwner
from refimpl.protocol.errors import CorruptionError, OwnerUnavailableError
from refimpl.served.catalog_requests import MAX_CATALOG_PROPERTIES_BYTES, CatalogRequests
from refimpl.server import delta_api
from spec_tests.server.wire import (
    BAD,
    CATALOG,
    NO_TABLE,
    PROTOCOL,
    START,
    UNAVAILABLE,
    UNKNOWN,
    WIRE_COLUMNS,
    WireTable,
    refusal,
)

# Creation


def test_load_shows_what_the_log_says(table: WireTable) -> None:
    loaded = table.load()
    metadata = loaded["metadata"]
    assert metadata["columns"]["fields"] == WIRE_COLUMNS
    assert metadata["table-type"] == "MANAGED"
    assert metadata["table-uuid"] == table.table_id
    assert metadata["last-commit-timestamp-ms"] == START
    expected = {
        "delta.minReaderVersion": "3",
        "delta.minWriterVersion": "7",
        "delta.feature.catalogManaged": "supported",
        "delta.feature.inCommitTimestamp": "supported",
        "delta.enableInCommitTimestamps": "true",
        "io.unitycatalog.tableId": table.table_id,
    }
    assert {key: metadata["properties"].get(key) for key in expected} == expected
    assert (loaded["commits"], loaded["latest-table-version"]) == ([], 0)


def nested(depth: int) -> Any:
    kind: Any = "long"
    for _ in range(depth):
        kind = {"type": "array", "element-type": kind}
    return kind


def fields(*columns: Any) -> dict[str, Any]:
    return {"columns": {"type": "struct", "fields": list(columns)}}


CHANGES: list[dict[str, Any]] = [
    {"name": "other"},
    {"table-type": "EXTERNAL"},
    fields(),
    fields(WIRE_COLUMNS[0]),
    fields({**WIRE_COLUMNS[0], "type": "string"}, WIRE_COLUMNS[1]),
    fields(WIRE_COLUMNS[0], {**WIRE_COLUMNS[1], "type": "string"}),
    *(fields(*({"name": name, "type": nested(depth)} for name in ("id", "tags"))) for depth in (10, 300, 600, 900)),
    {"partition-columns": ["id"]},
    {"properties": {"io.unitycatalog.tableId": "c5b6a3f0-1d2e-4f5a-8b9c-0d1e2f3a4b5c"}},
    {"properties": {"delta.enableInCommitTimestamps": "false"}},
    {"properties": {"delta.appendOnly": "true"}},
    {"properties": {"fs.s3a.secret.key": "x"}},
    {"properties": {"delta.feature.rowTracking": "supported"}},
    {"properties": {"k": "x" * MAX_CATALOG_PROPERTIES_BYTES}},
    {"protocol": {"min-reader-version": 1, "min-writer-version": 2}},
    {"protocol": {**PROTOCOL, "writer-features": PROTOCOL["reader-features"]}},
    {"protocol": {**PROTOCOL, "reader-features": ["catalogManaged"]}},
    {"comment": "something"},
    {"domain-metadata": {"delta.clustering": {"clusteringColumns": []}}},
    {"last-commit-timestamp-ms": START + 1},
]
LOCATIONS = [
    "file://[", "file://[::1", "file://elsewhere{0}", "file://user@localhost{0}", "http://localhost{0}", "file://{0}?x",
    "file://{0}#x", "file://{0}%00", "file://{0}/../{0.name}", "file://{0}/%2e%2e/{0.name}", "file://{0}/%252e%252e",
    "file://{0.parent}", "file:///", "/" + "x/" * 1900, "{0.name}", "", "s3://bucket/orders",
    "file://{0.parent}/elsewhere", "file://{0.parent}/link", "file://{0.parent}/invoices",
]  # fmt: skip
"""Locations that were not staged for the table; `{0}`: its own one."""


@pytest.mark.parametrize(
    "change", [*CHANGES, *({"location": text} for text in LOCATIONS)], ids=lambda change: str(change)[:60]
)
def test_creation_must_agree_with_version_0(http: TestClient, change: dict[str, Any]) -> None:
    table, other = WireTable(http).prepared(), WireTable(http, "invoices")
    other.stage()
    parent = table.location.parent
    (parent / "link").symlink_to(parent.parent)
    (parent / "elsewhere").mkdir()
    if "location" in change:
        location = change["location"].format(table.location)
        change = {"location": other.location.as_uri() if location.endswith("/invoices") else location}
    assert refusal(table.register(**change)) in (BAD, NO_TABLE)
    assert refusal(http.get(table.url)) == NO_TABLE, "the creation failed before the table had the name"
    assert table.register().status_code == 200


@pytest.mark.parametrize("problem", ["no version 0", "another table's id", "a link to another log", "a busy owner"])
def test_creation_is_repeated_when_version_0_is_there(http: TestClient, tmp_path: Path, problem: str) -> None:
    """A copy of another table has its id, which clients that commit through the catalog read from the log."""
    table = WireTable(http).prepared(**({"io.unitycatalog.tableId": str(uuid.uuid4())} if "id" in problem else {}))
    log = table.location / "_delta_log"
    if problem == "no version 0":
        (log / f"{0:020d}.json").unlink()
    elif "link" in problem:
        log.symlink_to(log.rename(tmp_path / "log"))
    busy = patch.object(LocalOwner, "resolve", side_effect=OwnerUnavailableError("busy"))
    with busy if "busy" in problem else nullcontext():
        assert refusal(table.register()) == (UNAVAILABLE if "busy" in problem else BAD)
    assert refusal(http.get(table.url)) == NO_TABLE
    if "link" in problem:
        log.unlink()
    table.write_first_version()
    assert table.register().status_code == 200


def test_a_version_0_that_is_too_large_is_not_read(http: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    table = WireTable(http).prepared()
    size = (table.location / "_delta_log" / f"{0:020d}.json").stat().st_size
    monkeypatch.setattr(delta_api, "MAX_COMMIT_BYTES", size - 1)
    assert refusal(table.register()) == BAD
    monkeypatch.setattr(delta_api, "MAX_COMMIT_BYTES", size)
    assert table.register().status_code == 200


# Names


def test_schemas_are_the_prefixes_of_the_owners_names(http: TestClient, warehouse: refimpl.Warehouse) -> None:
    columns = pa.schema([("id", pa.int64())])
    for name in ("plain", "sales.orders", "default.hidden", "a.b.c"):
        warehouse.create_table(name, columns)
    listed = http.get(f"{CATALOG}/schemas", params={"catalog_name": "unity"}).json()["schemas"]
    assert [schema["name"] for schema in listed] == ["default", "sales"]
    for schema, names in {"default": ["plain"], "sales": ["orders"]}.items():
        answer = http.get(f"{CATALOG}/tables", params={"catalog_name": "unity", "schema_name": schema})
        assert [table["name"] for table in answer.json()["tables"]] == names
    assert WireTable(http, "orders", schema="sales").load()["latest-table-version"] == 0
    assert http.get(f"{CATALOG}/tables/unity.sales.orders").json()["schema_name"] == "sales"


@pytest.mark.parametrize("name", ["", "a b", "a.b", "../x", "1st", "x" * 256, "tische-für-gäste", "a\n"])
def test_invalid_name_is_rejected_before_anything_is_made(http: TestClient, name: str, directory: Path) -> None:
    before = sorted(path.name for path in directory.iterdir())
    assert refusal(http.post(f"{WireTable(http).base}/staging-tables", json={"name": name})) == BAD
    assert sorted(path.name for path in directory.iterdir()) == before


def test_tables_are_listed_page_by_page(http: TestClient, warehouse: refimpl.Warehouse) -> None:
    for name in ("a", "b", "c"):
        warehouse.create_table(name, pa.schema([("id", pa.int64())]))
    query = {"catalog_name": "unity", "schema_name": "default", "max_results": "2"}
    first = http.get(f"{CATALOG}/tables", params=query).json()
    second = http.get(f"{CATALOG}/tables", params={**query, "page_token": first["next_page_token"]}).json()
    assert [[t["name"] for t in page["tables"]] for page in (first, second)] == [["a", "b"], ["c"]]
    assert second["next_page_token"] is None
    everything = http.get(f"{CATALOG}/tables", params={**query, "max_results": "0"}).json()
    assert len(everything["tables"]) == 3
    assert refusal(http.get(f"{CATALOG}/tables", params={**query, "max_results": "-1"})) == BAD
    assert refusal(http.get(f"{CATALOG}/tables", params={"catalog_name": "unity"})) == BAD


def test_list_is_an_error_if_the_owner_cannot_describe_a_table(table: WireTable, http: TestClient) -> None:
    with patch.object(CatalogRequests, "describe", side_effect=OwnerUnavailableError("busy")):
        answer = http.get(f"{CATALOG}/tables", params={"catalog_name": "unity", "schema_name": "default"})
    assert refusal(answer) == UNAVAILABLE
    WireTable(http, "the_one_after").create()
    real, seen = CatalogRequests.describe, itertools.count()

    def first_is_damaged(*words: Any) -> Any:
        if next(seen) == 0:
            raise CorruptionError("damaged")
        return real(*words)

    with patch.object(CatalogRequests, "describe", first_is_damaged):
        answer = http.get(f"{CATALOG}/tables", params={"catalog_name": "unity", "schema_name": "default"})
    assert [each["name"] for each in answer.json()["tables"]] == ["the_one_after"]


def test_request_without_pages_gets_all_tables_and_schemas(
    http: TestClient, warehouse: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB 1.5.5 reads only the first page, so it would miss all tables on other pages. The answer has parts, and
    tables that are dropped meanwhile leave gaps in it."""
    for name, size in {"DEFAULT_PAGE": 2, "LARGEST_PAGE": 2, "PART": 1}.items():
        monkeypatch.setattr(f"refimpl.server.catalog_api.{name}", size)
    for name in ("a", "b", "c", "s.x", "t.x", "u.x"):
        warehouse.create_table(name, pa.schema([("id", pa.int64())]))
    query = {"catalog_name": "unity", "schema_name": "default"}

    def tables(**more: str) -> tuple[list[str], str | None]:
        listed = http.get(f"{CATALOG}/tables", params={**query, **more}).json()
        return [table["name"] for table in listed["tables"]], listed["next_page_token"]

    assert tables() == (["a", "b", "c"], None)
    assert tables(page_token="c") == ([], None)
    assert tables(max_results="0") == (["a", "b"], "b")
    listed = http.get(f"{CATALOG}/schemas", params=query).json()
    assert ([schema["name"] for schema in listed["schemas"]], listed["next_page_token"]) == (
        ["default", "s", "t", "u"],
        None,
    )
    real = CatalogRequests.describe
    for damaged in ({"a"}, {"b"}, {"a", "b"}, {"c"}, {"a", "b", "c"}):

        def described(self: Any, name: str, damaged: set[str] = damaged) -> Any:
            if name in damaged:
                raise CorruptionError("damaged")
            return real(self, name)

        with patch.object(CatalogRequests, "describe", described):
            assert tables() == (sorted({"a", "b", "c"} - damaged), None)


def test_error_after_the_first_part_of_a_list_ends_it_unfinished(
    table: WireTable, http: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("refimpl.server.catalog_api.PART", 1)
    WireTable(http, "the_one_after").create()
    real, seen = CatalogRequests.describe, itertools.count()

    def second_fails(*words: Any) -> Any:
        if next(seen) == 1:
            raise OwnerUnavailableError("busy")
        return real(*words)

    with patch.object(CatalogRequests, "describe", second_fails), pytest.raises(OwnerUnavailableError):
        http.get(f"{CATALOG}/tables", params={"catalog_name": "unity", "schema_name": "default"})


def test_columns_have_their_sql_types(http: TestClient, warehouse: refimpl.Warehouse) -> None:
    kinds = {
        "n": pa.int32(), "d": pa.decimal128(10, 2), "l": pa.list_(pa.string()),
        "s": pa.struct([("x", pa.float64())]), "m": pa.map_(pa.string(), pa.int64()),
    }  # fmt: skip
    warehouse.create_table("wide", pa.schema(list(kinds.items())), partition_columns=["n"])
    columns = http.get(f"{CATALOG}/tables/unity.default.wide").json()["columns"]
    assert [(c["name"], c["type_name"], c["type_text"], c["partition_index"]) for c in columns] == [
        ("n", "INT", "int", 0),
        ("d", "DECIMAL", "decimal(10,2)", None),
        ("l", "ARRAY", "array<string>", None),
        ("s", "STRUCT", "struct<x:double>", None),
        ("m", "MAP", "map<string,bigint>", None),
    ]
    assert (columns[1]["type_precision"], columns[1]["type_scale"]) == (10, 2)


# The rest of a table's life


def renamed(table: WireTable, name: Any, new_name: Any) -> Any:
    return table.http.request("POST", f"{table.base}/tables/{name}/rename", json={"new-name": new_name})


def test_a_renamed_table_changes_in_its_name_alone(table: WireTable, http: TestClient, directory: Path) -> None:
    table.land(1)
    before = table.load()
    for _ in range(2):  # the second time, the table has the name already
        assert renamed(table, table.name, "sales").status_code == 204
        table.name, table.url = "sales", f"{table.base}/tables/sales"
    assert refusal(renamed(table, "orders", "sales")) == NO_TABLE
    assert refusal(http.get(f"{table.base}/tables/orders")) == NO_TABLE
    assert table.load() == before
    with refimpl.open(directory) as another_process:
        assert another_process.tables() == ["sales"]
    table.land(2)
    WireTable(http, "orders").create()


def test_repeated_creation_of_a_renamed_table_is_not_denied(table: WireTable) -> None:
    assert renamed(table, "orders", "sales").status_code == 204
    assert refusal(table.register()) == UNKNOWN
    assert renamed(table, "sales", "orders").status_code == 204
    assert table.register().status_code == 200


@pytest.mark.parametrize("then", ["live", "renamed", "dropped"])
def test_location_of_another_table_is_rejected(table: WireTable, http: TestClient, then: str) -> None:
    """It is certain that the creation did not happen."""
    if then == "renamed":
        renamed(table, "orders", "sales")
    elif then == "dropped":
        http.delete(table.url)
    other = WireTable(http, "invoices").prepared()
    answer = other.register(location=table.location.as_uri())
    assert refusal(answer) == BAD
    assert f"is that of the table {table.table_id}" in answer.json()["error"]["message"]
    assert other.register().status_code == 200


def test_repeated_creation_of_a_dropped_table_is_not_denied(table: WireTable, warehouse: refimpl.Warehouse) -> None:
    """Its creator would delete version 0, and the table could not be undropped."""
    warehouse.owner.drop_table(table.table_id)
    assert refusal(table.register()) == UNKNOWN
    warehouse.undrop_table(table.table_id)
    assert table.register().status_code == 200


@pytest.mark.parametrize("by_full_name", [False, True])
def test_a_dropped_table_is_gone_and_its_files_stay(table: WireTable, http: TestClient, by_full_name: bool) -> None:
    staged = table.land(1)
    for other in ("", str(uuid.uuid4())):
        assert refusal(http.delete(table.url, params={"table-id": other})) == NO_TABLE
    answer = http.delete(f"{CATALOG}/tables/unity.default.orders") if by_full_name else http.delete(table.url)
    assert answer.status_code == (200 if by_full_name else 204)
    assert refusal(http.get(table.url)) == NO_TABLE
    assert refusal(table.propose(table.write_staged(2))) == NO_TABLE
    assert refusal(table.propose(staged)) == UNKNOWN, "it landed"
    assert refusal(http.delete(table.url)) == NO_TABLE
    assert staged.path.exists()
    assert (table.location / "_delta_log" / f"{1:020d}.json").exists(), "the drop publishes the last commit"
    WireTable(http).create()


def test_existence_metrics_and_credentials(table: WireTable, http: TestClient) -> None:
    assert http.head(table.url).status_code == 204
    assert http.head(table.url + "x").status_code == 404
    bins = {"sorted-bin-boundaries": [0, 9], "file-counts": [1, 0], "total-bytes": [5, 0]}
    for histogram, status in ((None, 204), (bins, 204), ({**bins, "file-counts": [1]}, 400), ({}, 400)):
        report = {"commit-report": {"num-files-added": 1, "file-size-histogram": histogram}}
        answer = http.post(f"{table.url}/metrics", json={"table-id": table.table_id, "report": report})
        assert answer.status_code == status, histogram
    assert http.post(f"{table.url}/metrics", json={"table-id": table.table_id, "report": {}}).status_code == 204
    assert refusal(http.post(f"{table.url}/metrics", json={"table-id": "another"})) == BAD
    granted = http.get(f"{table.url}/credentials", params={"operation": "READ"}).json()
    (credential,) = granted["storage-credentials"]
    assert credential.pop("expiration-time-ms") > 2**42
    assert credential == {"prefix": table.location.as_uri(), "operation": "READ", "config": {}}
    for wrong in ({"operation": "OWN"}, {}):
        assert refusal(http.get(f"{table.url}/credentials", params=wrong)) == BAD
    staging = "/api/2.1/unity-catalog/delta/v1/staging-tables"
    assert http.get(f"{staging}/{table.table_id}/credentials").status_code == 200
    assert refusal(http.get(f"{staging}/{uuid.uuid4()}/credentials")) == (404, "NoSuchTableException")


def test_answers_have_the_fields_that_other_engines_need(table: WireTable, http: TestClient) -> None:
    """polars 2.1 rejects catalogs and schemas without `created_at`; daft 0.7 and delta-rs 1.6 request credentials."""
    for kind in ("catalogs", "schemas"):
        (entity,) = http.get(f"{CATALOG}/{kind}", params={"catalog_name": "unity"}).json()[kind]
        assert {"created_at", "created_by", "updated_at", "updated_by", "owner"} <= set(entity)
    path = f"{CATALOG}/temporary-table-credentials"
    for operation in ("READ", "READ_WRITE"):
        answer = http.post(path, json={"table_id": table.table_id, "operation": operation})
        assert (answer.status_code, answer.json()) == (200, {})
    assert refusal(http.post(path, json={"table_id": table.table_id, "operation": "OWN"})) == BAD
    for unknown in (str(uuid.uuid4()), "orders", ""):
        assert refusal(http.post(path, json={"table_id": unknown, "operation": "READ"})) == NO_TABLE
