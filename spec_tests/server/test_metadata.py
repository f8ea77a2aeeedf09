"""A table's metadata over HTTP. The log decides: a request can only repeat it, or add what the log does not have."""

from typing import Any
from unittest.mock import Mock

import pytest
from starlette.testclient import TestClient

import refimpl
from refimpl.owner.policy import MAX_CATALOG_PROPERTIES_BYTES
from refimpl.protocol.actions import Protocol
from refimpl.server import answers
from spec_tests.server.wire import BAD, PROTOCOL, REQUIREMENT, WIRE_COLUMNS, WireTable, refusal

ENABLED = {"delta.enableInCommitTimestamps": "true"}


def properties(table: WireTable) -> dict[str, str]:
    loaded: dict[str, str] = table.load()["metadata"]["properties"]
    return loaded


def test_metadata_and_etag_change_with_the_commit_that_changes_them(table: WireTable) -> None:
    etag = table.state()[2]
    staged = table.write_staged(1, {"metaData": table.metadata({**ENABLED, "team": "a"})})
    update = {"action": "set-properties", "updates": {"team": "a"}}
    assert table.propose(staged, update, etag=etag).status_code == 200
    assert properties(table)["team"] == "a"
    assert table.state()[2] != etag
    assert refusal(table.propose(table.write_staged(2), update, etag=etag)) == REQUIREMENT


def test_other_updates_of_a_request_must_agree_with_its_commit(table: WireTable) -> None:
    etag = table.state()[2]
    staged = table.write_staged(1, {"metaData": table.metadata({**ENABLED, "team": "a"})})
    for update in (
        {"action": "set-properties", "updates": {"team": "b"}},
        {"action": "remove-properties", "removals": ["team"]},
        {"action": "set-columns", "columns": {"type": "struct", "fields": WIRE_COLUMNS[:1]}},
        {"action": "set-partition-columns", "partition-columns": ["id"]},
        {"action": "set-table-comment", "comment": "something"},
        {"action": "set-protocol", "protocol": {"min-reader-version": 1, "min-writer-version": 2}},
        {"action": "set-protocol", "protocol": {**PROTOCOL, "writer-features": PROTOCOL["reader-features"]}},
        {"action": "set-properties", "updates": {"io.unitycatalog.tableId": "another"}},
    ):
        assert refusal(table.propose(staged, update)) == BAD, update
    assert table.state() == (0, [], etag)
    same = {"action": "set-columns", "columns": {"type": "struct", "fields": WIRE_COLUMNS}}
    assert table.propose(staged, same, {"action": "set-table-comment"}).status_code == 200


def domain(name: str, configuration: str, *, removed: bool = False) -> dict[str, Any]:
    return {"domainMetadata": {"domain": name, "configuration": configuration, "removed": removed}}


def test_domain_metadata_of_a_request_must_be_in_its_commit(table: WireTable) -> None:
    staged = table.write_staged(1, domain("d", '{"mark": 7, "domainName": "d"}'), domain("gone", "{}", removed=True))
    for update in (
        {"action": "set-domain-metadata", "updates": {"d": {"mark": 8}}},
        {"action": "set-domain-metadata", "updates": {"d": {"mark": 7, "more": None}}},
        {"action": "set-domain-metadata", "updates": {"d": {"mark": 7}, "other": {}}},
        {"action": "set-domain-metadata", "updates": {"gone": {}}},
        {"action": "remove-domain-metadata", "domains": ["d"]},
        {"action": "remove-domain-metadata", "domains": ["gone", "other"]},
        {"action": "set-properties", "updates": {"delta.feature.rowTracking": "supported"}},
    ):
        assert refusal(table.propose(staged, update)) == BAD, update
        assert refusal(table.propose(table.write_staged(1), update)) == BAD, update
        assert refusal(table.update(update)) == BAD, update
    assert table.state()[0] == 0
    same = {"action": "set-domain-metadata", "updates": {"d": {"mark": 7}}}
    removed = {"action": "remove-domain-metadata", "domains": ["gone"]}
    feature = {"action": "set-properties", "updates": {"delta.feature.catalogManaged": "supported"}}
    assert table.propose(staged, same, removed, feature).status_code == 200


def test_catalog_properties_change_the_etag(table: WireTable, warehouse: refimpl.Warehouse) -> None:
    etag = table.state()[2]
    assert table.update({"action": "set-properties", "updates": {"steward": "x"}}, etag=etag).status_code == 200
    assert properties(table)["steward"] == "x"
    after = table.state()
    assert after[0] == 0
    assert after[2] != etag
    assert "steward" not in warehouse.table("orders").snapshot().metadata.configuration
    assert refusal(table.update({"action": "remove-properties", "removals": ["steward"]}, etag=etag)) == REQUIREMENT
    assert table.update({"action": "remove-properties", "removals": ["steward"]}).status_code == 200
    assert table.state()[2] == etag


def test_property_of_a_commit_replaces_the_catalogs_property(table: WireTable) -> None:
    assert table.update({"action": "set-properties", "updates": {"team": "a"}}).status_code == 200
    staged = table.write_staged(1, {"metaData": table.metadata({**ENABLED, "team": "b"})})
    assert table.propose(staged).status_code == 200
    assert properties(table)["team"] == "b"
    without = table.write_staged(2, {"metaData": table.metadata(ENABLED)})
    assert table.propose(without).status_code == 200
    assert "team" not in properties(table)


def test_properties_in_the_log_change_only_by_commits(table: WireTable) -> None:
    key = "delta.enableInCommitTimestamps"
    assert refusal(table.update({"action": "set-properties", "updates": {key: "false"}})) == BAD
    assert refusal(table.update({"action": "remove-properties", "removals": [key]})) == BAD
    assert table.update({"action": "set-properties", "updates": {key: "true"}}).status_code == 200


def test_derived_properties_may_be_sent_back(table: WireTable) -> None:
    """Clients send back all properties that they loaded."""
    before = table.state()
    sent = {**properties(table), "delta.lastUpdateVersion": "77"}
    assert table.update({"action": "set-properties", "updates": sent}).status_code == 200
    assert table.state() == before
    assert properties(table)["delta.lastUpdateVersion"] == "0"


@pytest.mark.parametrize("key", ["fs.s3a.secret.key", "AWS_SESSION_TOKEN", "password"])
def test_secret_property_is_rejected(table: WireTable, key: str) -> None:
    answer = table.update({"action": "set-properties", "updates": {key: "hunter2"}})
    assert refusal(answer) == BAD
    assert "hunter2" not in answer.text
    assert key not in properties(table)


def test_limit_of_the_catalogs_properties_counts_all_requests(table: WireTable) -> None:
    """The owner reads the properties at every commit, and every answer contains them."""
    part = MAX_CATALOG_PROPERTIES_BYTES // 4
    for number in range(3):
        updates = {f"k{number}": "x" * part}
        assert table.update({"action": "set-properties", "updates": updates}).status_code == 200
    before = table.state()
    more = {"action": "set-properties", "updates": {"k3": "x" * part}}
    assert refusal(table.update(more)) == BAD
    staged = table.write_staged(1)
    assert refusal(table.propose(staged, more)) == BAD
    assert table.state() == before
    assert table.update({"action": "remove-properties", "removals": ["k0"]}).status_code == 200
    assert table.propose(staged, more).status_code == 200


def test_a_creation_has_the_same_limit(http: TestClient) -> None:
    created = WireTable(http).prepared()
    large = {**ENABLED, "k": "x" * MAX_CATALOG_PROPERTIES_BYTES}
    assert refusal(created.register(properties=large)) == BAD
    assert created.register(properties={**ENABLED, "k": "x"}).status_code == 200


def test_server_and_log_have_the_same_metadata(table: WireTable, warehouse: refimpl.Warehouse) -> None:
    staged = table.write_staged(1, {"metaData": table.metadata({**ENABLED, "team": "a"})})
    assert table.propose(staged).status_code == 200
    snapshot = warehouse.table("orders").snapshot()
    served = properties(table)
    assert {key: served[key] for key in snapshot.metadata.configuration} == snapshot.metadata.configuration
    assert served["delta.minWriterVersion"] == str(snapshot.protocol.min_writer_version)


def test_a_property_of_the_log_hides_that_of_the_catalog() -> None:
    described = Mock(catalog_properties={"a": "catalog", "b": "catalog"}, metadata=Mock(configuration={"a": "log"}))
    described.protocol = Protocol(min_reader_version=1, min_writer_version=2)
    described.table.policy.allowed = frozenset()
    shown = answers.properties(described)
    assert (shown["a"], shown["b"]) == ("log", "catalog")
