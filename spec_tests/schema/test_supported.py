"""The closed list of tables that are read and written. The error for any other table names the unsupported feature."""

import json

import pytest

from refimpl.protocol.actions import Metadata, Protocol
from refimpl.protocol.errors import InvalidRequestError, InvalidTableError, UnsupportedFeatureError
from refimpl.protocol.table_feature import TABLE_FEATURES, TableFeature
from refimpl.rows.row_rules import RowRules
from refimpl.schema import features
from refimpl.schema.features import check_readable, check_removable, check_writable
from spec_tests.support.written_log import definition


def metadata(column: dict[str, object] | None = None, **configuration: str) -> Metadata:
    field = {"name": "id", "type": "long", "nullable": True, "metadata": column or {}}
    schema = json.dumps({"type": "struct", "fields": [field]})
    return Metadata(id="t", schema_string=schema, configuration=configuration)


def listing(*features: str, readers: bool = True) -> Protocol:
    return Protocol(
        min_reader_version=3 if readers else 1,
        min_writer_version=7,
        reader_features=features if readers else None,
        writer_features=features,
    )


PLAIN = metadata()


def test_listed_features_and_known_versions_are_supported() -> None:
    for feature in features.READ:
        check_readable(listing(feature), PLAIN)
    for feature in features.WRITTEN - TABLE_FEATURES.keys():
        check_writable(listing(feature, readers=False), PLAIN)
    for owned in TABLE_FEATURES.values():
        check_writable(*definition(owned))
    for reader, writer in ((1, 7), (2, 7), (3, 7), *((1, writer) for writer in range(1, 8))):
        check_writable(Protocol(min_reader_version=reader, min_writer_version=writer), PLAIN)


@pytest.mark.parametrize("feature", TABLE_FEATURES.values(), ids=list(TABLE_FEATURES))
def test_a_table_with_contradicting_metadata_is_not_written(feature: TableFeature) -> None:
    """managed-commits, "Managed Commit Enablement": the feature without its properties, or the reverse, is invalid."""
    protocol, properties = definition(feature)
    check_readable(protocol, PLAIN)
    with pytest.raises(InvalidTableError):
        check_writable(protocol, PLAIN)
    if feature.owner_property is not None:
        with pytest.raises(InvalidTableError):
            check_writable(Protocol(min_reader_version=1, min_writer_version=2), properties)


@pytest.mark.parametrize("feature", ["variantType", "variantShredding-preview", "fromTheFuture", "reader version 4"])
def test_an_unknown_reader_feature_is_refused_by_name(feature: str) -> None:
    newer = Protocol(min_reader_version=4, min_writer_version=7)
    for check in (check_readable, check_writable):
        with pytest.raises(UnsupportedFeatureError) as caught:
            check(newer if feature.startswith("reader") else listing(feature, "timestampNtz"), PLAIN)
        assert caught.value.features == (feature,)


@pytest.mark.parametrize("feature", ["icebergCompatV1", "icebergCompatV2", "fromTheFuture"])
def test_an_unknown_writer_feature_prevents_only_writing(feature: str) -> None:
    protocol = listing(feature, "appendOnly", readers=False)
    check_readable(protocol, PLAIN)
    with pytest.raises(UnsupportedFeatureError) as caught:
        check_writable(protocol, PLAIN)
    assert caught.value.features == (feature,)


def test_a_newer_writer_version_is_refused_for_writing_only() -> None:
    protocol = Protocol(min_reader_version=1, min_writer_version=8)
    check_readable(protocol, PLAIN)
    with pytest.raises(UnsupportedFeatureError):
        check_writable(protocol, PLAIN)


def test_a_rule_without_its_feature_is_ignored() -> None:
    using = metadata({"delta.identity.start": 1}, **{"delta.constraints.x": "id RLIKE 'a'"})
    rules = RowRules.of(Protocol(min_reader_version=1, min_writer_version=2), using, now=0)
    assert (rules.checks, rules.filled) == ((), frozenset())


@pytest.mark.parametrize("protocol", [listing("columnMapping"), Protocol(min_reader_version=2, min_writer_version=5)])
def test_an_unknown_column_mapping_mode_is_refused(protocol: Protocol) -> None:
    for mode in ("none", "name", "ID"):
        check_readable(protocol, metadata(**{"delta.columnMapping.mode": mode}))
    with pytest.raises(UnsupportedFeatureError, match="expected none, name or id") as caught:
        check_readable(protocol, metadata(**{"delta.columnMapping.mode": "magic"}))
    assert caught.value.features == ("columnMapping",)
    check_readable(
        Protocol(min_reader_version=1, min_writer_version=2), metadata(**{"delta.columnMapping.mode": "magic"})
    )


def test_append_only_needs_the_property_and_the_feature() -> None:
    on = metadata(**{"delta.appendOnly": "true"})
    for protocol in (Protocol(min_reader_version=1, min_writer_version=2), listing("appendOnly", readers=False)):
        check_removable(protocol, PLAIN, "t")
        with pytest.raises(InvalidRequestError):
            check_removable(protocol, on, "t")
    for protocol in (Protocol(min_reader_version=1, min_writer_version=1), listing("timestampNtz")):
        check_removable(protocol, on, "t")


def test_a_reserved_name_is_found_in_the_last_column() -> None:
    names = ("id", "_Change_Type")
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in names]
    columns = Metadata(id="t", schema_string=json.dumps({"type": "struct", "fields": fields}))
    with pytest.raises(InvalidRequestError, match="'_Change_Type' is reserved"):
        features.check_no_change_columns(columns)


def test_the_preview_of_type_widening_needs_no_second_feature() -> None:
    preview = listing("typeWidening-preview")
    assert features.supporting(preview, ["typeWidening"]) == preview
    assert features.supporting(listing("typeWidening"), ["typeWidening-preview"]) != listing("typeWidening")


def test_a_rule_counts_if_the_table_has_its_own_feature() -> None:
    rules = metadata({"delta.invariants": "x"}, **{"delta.constraints.low": "id > 0"})
    invariant, constraint = ("delta.invariants", "x"), ("delta.constraints.low", "id > 0")
    assert features.rules_of_rows(listing("invariants", readers=False), rules) == {invariant}
    assert features.rules_of_rows(listing("checkConstraints", readers=False), rules) == {constraint}
