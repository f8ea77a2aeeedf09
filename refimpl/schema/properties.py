"""Table properties: which ones users may set, which ones the client manages, and how durations are parsed.

Properties that name the owner are written by creation, take-over and hand-back alone, those of in-commit
timestamps also by `Transaction.enable_in_commit_timestamps`. If an edit removed or changed them, the owner would have
to reject the table, or commits would have unknown times (DELTA.md#ict-replace).
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from refimpl.protocol import table_feature
from refimpl.protocol.actions import Metadata, Protocol
from refimpl.protocol.errors import InvalidRequestError, InvalidTableError
from refimpl.schema.column_mapping import HIGHEST_ID_PROPERTY, MODE_PROPERTY
from refimpl.schema.features import (
    CONSTRAINT_PREFIX,
    ENABLE_TYPE_WIDENING,
    HIGH_WATER_MARK,
    IDENTITY_PREFIX,
    isolation_level,
)
from refimpl.schema.schema import ColumnMapping, Field, Struct, each_field, parse, walk

DELETED_FILES: Final = "delta.deletedFileRetentionDuration"
LOG: Final = "delta.logRetentionDuration"
CHECKPOINT_INTERVAL: Final = "delta.checkpointInterval"
CHECKPOINT_POLICY: Final = "delta.checkpointPolicy"
STATISTICS_AS_TEXT: Final = "delta.checkpoint.writeStatsAsJson"
STATISTICS_AS_COLUMNS: Final = "delta.checkpoint.writeStatsAsStruct"
TRANSACTIONS: Final = "delta.setTransactionRetentionDuration"
CODEC: Final = "delta.parquet.compression.codec"
FORMAT_VERSION: Final = "delta.parquet.format.version"
_CODECS: Final = {
    "none": "none", "uncompressed": "none", "snappy": "snappy", "gzip": "gzip", "brotli": "brotli", "zstd": "zstd",
    "lz4": "lz4", "lz4_raw": "lz4",
}  # fmt: skip
"""Delta's names of codecs, and Arrow's. Arrow writes `lz4` as LZ4_RAW."""
DEFAULT_CODEC: Final = "zstd"
_MILLISECONDS: Final = {
    "week": 604_800_000,
    "day": 86_400_000,
    "hour": 3_600_000,
    "minute": 60_000,
    "second": 1_000,
    "millisecond": 1,
}
"""Months and years have no fixed length; Delta rejects them too."""
_DEFAULTS: Final = {DELETED_FILES: 7 * _MILLISECONDS["day"], LOG: 30 * _MILLISECONDS["day"]}
_PART: Final = re.compile(r"\s*(\d+)\s+(week|day|hour|minute|second|millisecond)s?(?=\s|$)", re.IGNORECASE | re.ASCII)


def retention(metadata: Metadata, property_name: str) -> int:
    """The duration in ms; Delta's default if the property is not set. Raises `InvalidTableError`."""
    text = metadata.configuration.get(property_name)
    return _DEFAULTS[property_name] if text is None else duration(property_name, text)


def oldest_transaction(metadata: Metadata, now: int) -> int | None:
    """The `txn` of an application that was last updated at or before this time has expired, in ms since the epoch; None
    if none expires. DELTA.md#expired-transactions. `now`: ms since the epoch."""
    text = metadata.configuration.get(TRANSACTIONS)
    return None if text is None else now - duration(TRANSACTIONS, text)


def is_on(metadata: Metadata, property_name: str, default: str) -> bool:
    return metadata.configuration.get(property_name, default).lower() == "true"


def codec(configuration: Mapping[str, str]) -> str:
    """Arrow's name of the codec of new files. DELTA.md#codec: the default also for a codec that Arrow does not have."""
    return _CODECS.get(configuration.get(CODEC, DEFAULT_CODEC).lower(), DEFAULT_CODEC)


def page_version(configuration: Mapping[str, str]) -> str:
    """The version of the pages of new data files: 1.0, or 2.0 if the table asks for a Parquet version 2."""
    return "2.0" if configuration.get(FORMAT_VERSION, "").startswith("2.") else "1.0"


def duration(property_name: str, text: str) -> int:
    """An interval such as `interval 2 days 12 hours` in ms. Raises `InvalidTableError` for any other text."""
    rest = re.sub(r"^\s*interval\b", "", text, flags=re.IGNORECASE)
    total, position = 0, 0
    for part in _PART.finditer(rest):
        if part.start() != position:
            break
        total += int(part[1]) * _MILLISECONDS[part[2].lower()]
        position = part.end()
    if position == 0 or rest[position:].strip():
        raise InvalidTableError(
            f"invalid {property_name} {text!r}; expected a duration such as 'interval 7 days'", property=property_name
        )
    return total


def checkpoint_interval(metadata: Metadata) -> int:
    """The number of commits between two checkpoints. Raises `InvalidRequestError` for an invalid number."""
    text = metadata.configuration.get(CHECKPOINT_INTERVAL, "10")
    _POSITIVE(CHECKPOINT_INTERVAL, text)
    return int(text)


ROW_ID_COLUMN: Final = "delta.rowTracking.materializedRowIdColumnName"
ROW_VERSION_COLUMN: Final = "delta.rowTracking.materializedRowCommitVersionColumnName"
"""Properties that name the hidden columns of data files with the ids and commit versions of copied rows."""

KEPT_FEATURE: Final = "commitOwner.keptFeature"
"""Names a feature that a take-over needs and that the table had before, so that a hand-back keeps it. The log from
before the take-over may be cleaned up by then."""

OWNER_PROPERTIES: Final = {KEPT_FEATURE} | frozenset(
    name
    for feature in table_feature.TABLE_FEATURES.values()
    for name in (
        feature.owner_property,
        feature.owner_conf_property,
        feature.table_conf_property,
        feature.table_id_property,
    )
    if name is not None
)
PROTECTED: Final = OWNER_PROPERTIES | {
    HIGHEST_ID_PROPERTY,
    table_feature.IN_COMMIT_TIMESTAMP_PROPERTY,
    table_feature.ENABLEMENT_VERSION,
    table_feature.ENABLEMENT_TIMESTAMP,
    ROW_ID_COLUMN,
    ROW_VERSION_COLUMN,
}
"""Properties that users cannot edit; an edit of other properties keeps them."""


def _spelled(pattern: str, expected: str) -> Callable[[str, str], None]:
    def check(key: str, value: str) -> None:
        if re.fullmatch(pattern, value, re.IGNORECASE | re.ASCII) is None:
            raise InvalidRequestError(f"invalid {key} {value!r}; expected {expected}", property=key)

    return check


_POSITIVE: Final = _spelled("[1-9][0-9]{0,8}", "a number from 1 to 999999999")
_ON_OR_OFF: Final = _spelled("true|false", "true or false")
KNOWN: Final[Mapping[str, Callable[[str, str], object]]] = {
    "delta.appendOnly": _ON_OR_OFF,
    CHECKPOINT_INTERVAL: _POSITIVE,
    CHECKPOINT_POLICY: _spelled("classic|v2", "classic or v2"),
    "delta.dataSkippingNumIndexedCols": _spelled("-1|[0-9]{1,9}", "-1 (all columns) or a number from 0 to 999999999"),
    "delta.dataSkippingStatsColumns": _spelled(".+", "names of columns, joined by commas"),
    MODE_PROPERTY: _spelled("none|name|id", "none, name or id"),
    DELETED_FILES: duration,
    "delta.enableChangeDataFeed": _ON_OR_OFF,
    "delta.enableRowTracking": _ON_OR_OFF,
    ENABLE_TYPE_WIDENING: _ON_OR_OFF,
    "delta.isolationLevel": lambda _, value: isolation_level(value),
    LOG: duration,
    STATISTICS_AS_TEXT: _ON_OR_OFF,
    STATISTICS_AS_COLUMNS: _ON_OR_OFF,
    TRANSACTIONS: duration,
    CODEC: _spelled("|".join(_CODECS), f"one of {', '.join(_CODECS)}"),
    FORMAT_VERSION: _spelled(r"1\.0\.0|2\.[0-9]+\.[0-9]+", "1.0.0 or a version 2, such as 2.12.0"),
}
"""All of Delta's own properties that may be set here, with the checks of their values. Other properties enable
features that this client does not write."""

_RESERVED_PREFIX: Final = "delta."


def checked_for_users(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties themselves; `InvalidRequestError` for a property or a value that users may not set."""
    for key, value in properties.items():
        if not isinstance(key, str) or not key or not isinstance(value, str):
            raise InvalidRequestError(f"invalid table property {key!r}: {value!r}; expected two strings")
        _check_key(key)
        try:
            if key in KNOWN:
                KNOWN[key](key, value)
        except InvalidTableError as error:  # from `duration`; here the caller's value is wrong, and no table is read
            raise InvalidRequestError(error.message, property=key) from None
    return dict(properties)


def without_enablement(changes: Mapping[str, str]) -> tuple[dict[str, str], bool]:
    """The other properties, and whether in-commit timestamps are to be enabled."""
    name = table_feature.IN_COMMIT_TIMESTAMP_PROPERTY
    value = changes.get(name)
    if value is not None and value.lower() != "true":
        raise InvalidRequestError(f"invalid {name} {value!r}; expected true: it cannot be disabled", property=name)
    return {key: other for key, other in changes.items() if key != name}, value is not None


def _check_key(key: str) -> None:
    folded = key.lower()
    if folded in {name.lower() for name in PROTECTED}:
        raise InvalidRequestError(
            f"the property {key} cannot be set or removed: creation, take-over and hand-back do so", property=key
        )
    if folded.startswith(_RESERVED_PREFIX) and key not in KNOWN and not _is_constraint(key):
        raise InvalidRequestError(
            f"the property {key} cannot be set here; the properties of Delta that can: {', '.join(sorted(KNOWN))}, "
            f"{CONSTRAINT_PREFIX}NAME",
            property=key,
        )


def _is_constraint(key: str) -> bool:
    """Whether the property is a CHECK constraint; its SQL is checked when it is used."""
    return key.startswith(CONSTRAINT_PREFIX) and key != CONSTRAINT_PREFIX


def edited(metadata: Metadata, changes: Mapping[str, str], removals: Iterable[str] = ()) -> Metadata:
    """The metadata with some of the users' properties set and others removed. As in Delta's UNSET TBLPROPERTIES, it is
    an error if one to remove is missing."""
    configuration = {**metadata.configuration, **checked_for_users(changes)}
    _check_mode(metadata, configuration.get(MODE_PROPERTY))
    for key in removals:
        _check_key(key)
        if key == MODE_PROPERTY:
            _check_mode(metadata, None)
        if configuration.pop(key, None) is None:
            known = ", ".join(sorted(metadata.configuration.keys() - PROTECTED)) or "none"
            raise InvalidRequestError(
                f"the table has no property {key!r} to remove; its properties that can be removed: {known}",
                property=key,
            )
    return msgspec.structs.replace(metadata, configuration=configuration)


def _check_mode(metadata: Metadata, wanted: str | None) -> None:
    """DELTA.md#mapping-mode: the new mode must read the existing files as the old mode did."""
    mode = metadata.configuration.get(MODE_PROPERTY, "none").lower()
    new = (wanted or "none").lower()
    if new == mode or (mode, new) == (ColumnMapping.NONE.value, ColumnMapping.NAME.value):
        return
    reasons = {
        ColumnMapping.NONE.value: "its files may have other column names",
        ColumnMapping.NAME.value: "its files are read by field ids, and may have other column names",
        ColumnMapping.ID.value: "its files may have no field ids",
    }
    raise InvalidRequestError(
        f"the property {MODE_PROPERTY} cannot change from {mode} to {new}: {reasons.get(new, 'unknown mode')}; only "
        "none can become name; create a new table",
        property=MODE_PROPERTY,
    )


def with_table_id(metadata: Metadata, feature: table_feature.TableFeature | None, table_id: str | None) -> Metadata:
    """The metadata with the owner's id of the table, for engines that read it from there.

    If another client took the table over, the id is missing until the first change of the metadata.
    """
    key = None if feature is None else feature.table_id_property
    if key is None or table_id is None or metadata.configuration.get(key) == table_id:
        return metadata
    return msgspec.structs.replace(metadata, configuration={**metadata.configuration, key: table_id})


def with_kept_feature(metadata: Metadata, protocol: Protocol, feature: table_feature.TableFeature) -> Metadata:
    """The metadata for a take-over: with `KEPT_FEATURE`, if the table's protocol has the feature already."""
    configuration = {key: value for key, value in metadata.configuration.items() if key != KEPT_FEATURE}
    if feature.vacuum_protocol_check and protocol.writes(table_feature.VACUUM_PROTOCOL_CHECK):
        configuration[KEPT_FEATURE] = table_feature.VACUUM_PROTOCOL_CHECK
    return msgspec.structs.replace(metadata, configuration=configuration)


def carried_over(before: Metadata, after: Metadata) -> Metadata:
    """`after`, a replacement of `before` by a caller that ignores the protected properties.

    A protected property that `after` lacks is kept; one that it changes is an `InvalidRequestError`.
    """
    kept = {key: value for key, value in before.configuration.items() if key in PROTECTED}
    mode = after.configuration.get(MODE_PROPERTY, before.configuration.get(MODE_PROPERTY))
    _check_mode(before, mode)
    if mode is not None:
        kept[MODE_PROPERTY] = mode
    for key, value in after.configuration.items():
        if before.configuration.get(key) != value:
            checked_for_users({key: value})
    schema = _with_high_water_marks(before.schema_string, after.schema_string)
    return msgspec.structs.replace(after, schema_string=schema, configuration={**after.configuration, **kept})


def _with_high_water_marks(before: str, after: str) -> str:
    """The new schema with the high water marks of identity columns from the old one. Without them, values would be
    assigned twice."""
    known = {path: column for column, path in walk(parse(before))}

    def with_mark(column: Field, path: str) -> Field:
        old, own = known.get(path), dict(column.metadata)
        if old is None or str(old.type) != str(column.type):
            return column
        mark, step = old.metadata.get(HIGH_WATER_MARK), own.get(f"{IDENTITY_PREFIX}step")
        if type(mark) is int and type(step) is int:
            given = own.get(HIGH_WATER_MARK, mark)
            own[HIGH_WATER_MARK] = max(mark, given) if step > 0 else min(mark, given)
        return column if own == column.metadata else dataclasses.replace(column, metadata=own)

    new = parse(after)
    kept = each_field(new, with_mark)
    assert isinstance(kept, Struct)
    return after if kept == new else kept.to_json()
