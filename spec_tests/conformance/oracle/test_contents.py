"""What a resolution may tell of a table's protocol and metadata, and how a list names staged files."""

import json
from typing import Any

from conformance.interface import messages as m
from conformance.oracle.contents import listed, resolution

SCHEMA = '{"type": "struct", "fields": []}'
METADATA: dict[str, Any] = {"id": "t", "schemaString": SCHEMA, "configuration": {"kit.a": "1"}}
PROTOCOL: dict[str, Any] = {"minReaderVersion": 3, "readerFeatures": ["x"], "writerFeatures": ["x", "y"]}


def accepts(kind: str, body: dict[str, Any], expected: dict[str, Any]) -> bool:
    return resolution(kind, json.dumps({kind: body}), expected, 3) is None


def test_a_resolution_may_omit_fields_but_not_all() -> None:
    assert accepts("protocol", {"minReaderVersion": 3, "writerFeatures": ["x", "y"]}, PROTOCOL)
    assert accepts("metaData", {"configuration": {"kit.a": "1"}}, METADATA)
    assert not accepts("metaData", {}, METADATA)
    assert not accepts("metaData", {"name": "orders"}, METADATA)


def test_a_resolution_may_add_to_what_it_tells() -> None:
    assert accepts("protocol", {**PROTOCOL, "writerFeatures": ["x", "y", "owners"]}, PROTOCOL)
    assert accepts("metaData", {**METADATA, "configuration": {"kit.a": "1", "owner": "2"}}, METADATA)
    assert not accepts("metaData", {**METADATA, "configuration": {"kit.a": "1", "kit.b": "2"}}, METADATA)


def test_what_a_resolution_tells_is_current() -> None:
    assert not accepts("protocol", {"writerFeatures": ["x"]}, PROTOCOL)
    assert not accepts("metaData", {**METADATA, "configuration": {"kit.a": "0"}}, METADATA)
    assert not accepts("metaData", {**METADATA, "id": "another"}, METADATA)


def test_a_schema_is_compared_as_json() -> None:
    assert accepts("metaData", {"schemaString": '{"fields":[],"type":"struct"}'}, METADATA)
    assert not accepts("metaData", {"schemaString": '{"fields":[],"type":"map"}'}, METADATA)


def test_a_staged_file_is_named_by_a_uuid() -> None:
    uuid = "587b31b2-1c51-1d22-a530-959d5bc44288"
    names = {None: True, f"7.{uuid}.json": True, f"{7:020}.json": True, f"{7:020}.587b31b2.json": False, uuid: False}
    for name, right in names.items():
        wrong = listed(m.CommitEntry(version=7, file_name=name and f"_commits/{name}"))
        assert (wrong is None) is right, name
    assert wrong is not None
    assert wrong.requirements == ("MC-FILES-02", "CM-FILES-02")
