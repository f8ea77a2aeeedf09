"""Column mapping: data files, statistics and partition values name a column by a physical name that never changes.

Delta's protocol, "Column Mapping". The mapping of a table is decided only here: `of_table` makes a schema whose
columns have their physical names and ids, `assigned` assigns them to new columns. All other code reads them from the
columns (`refimpl.schema.schema.Field`).
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Final

import msgspec

from refimpl.protocol.actions import Metadata, Protocol
from refimpl.protocol.errors import InvalidRequestError, InvalidTableError, UnsupportedFeatureError
from refimpl.schema.schema import (
    FIELD_ID,
    PHYSICAL_NAME,
    ColumnMapping,
    DataType,
    Field,
    Struct,
    each_field,
    parse,
    parts,
    walk,
    with_parts,
)

COLUMN_MAPPING: Final = "columnMapping"
"""The table feature."""
MODE_PROPERTY: Final = "delta.columnMapping.mode"
HIGHEST_ID_PROPERTY: Final = "delta.columnMapping.maxColumnId"


def of_table(protocol: Protocol, metadata: Metadata) -> Struct:
    """The schema of a table; its columns have their names in data files.

    Raises the errors of `parse`, and `InvalidTableError` for a mapped column without a physical name or an id.
    """
    struct = parse(metadata.schema_string)
    mode = mapping_mode(protocol, metadata)
    if mode is ColumnMapping.NONE:
        return struct
    mapped = each_field(struct, lambda column, where: _mapped(column, where, mode))
    assert isinstance(mapped, Struct)
    return mapped


def mapping_mode(protocol: Protocol, metadata: Metadata) -> ColumnMapping:
    """The column mapping in effect: the property is ignored if the protocol does not have the feature.

    DELTA.md#mapping-of-writers-only. Raises `UnsupportedFeatureError` for an unknown mode.
    """
    orphaned = protocol.min_reader_version > 2 and protocol.writes(COLUMN_MAPPING)
    if protocol.min_reader_version != 2 and not protocol.reads(COLUMN_MAPPING) and not orphaned:
        return ColumnMapping.NONE
    mode = metadata.configuration.get(MODE_PROPERTY, ColumnMapping.NONE.value)
    try:
        return ColumnMapping(mode.lower())
    except ValueError:
        raise UnsupportedFeatureError(
            f"cannot read this table: unknown {MODE_PROPERTY} {mode!r}; expected none, name or id",
            features=(COLUMN_MAPPING,),
        ) from None


def _mapped(column: Field, where: str, mode: ColumnMapping) -> Field:
    name, number = column.metadata.get(PHYSICAL_NAME), column.metadata.get(FIELD_ID)
    if not isinstance(name, str) or not name or type(number) is not int:
        raise InvalidTableError(
            f"the column {where!r} has the physical name {name!r} and the id {number!r}; expected both, because the "
            f"table has {MODE_PROPERTY}={mode.value}",
            column=where,
        )
    return dataclasses.replace(column, mapping=mode)


def maps_columns(metadata: Metadata) -> bool:
    """Whether the metadata enables column mapping; it takes effect only if the protocol has the feature."""
    return metadata.configuration.get(MODE_PROPERTY, "none").lower() != ColumnMapping.NONE.value


def assigned(metadata: Metadata, before: Metadata | None, new_id: Callable[[], str]) -> Metadata:
    """The metadata with a physical name and an id for each column; unchanged if columns are not mapped.

    A column keeps the ones that it has in `metadata` or, under the same name, in `before`. Other columns get a new
    physical name and the next id, which is never used again. If `before` does not map columns, the physical name of
    each of its columns is the column's name, even if the schema has another one: the existing files use the name
    (DELTA.md#mapping-mode).
    """
    if not maps_columns(metadata):
        return metadata
    known = Struct() if before is None else parse(before.schema_string)
    schema = parse(metadata.schema_string)
    upgraded = before is not None and not maps_columns(before)
    if upgraded:
        known, schema = _unmapped(known), _unmapped(schema)
    recorded = int((before or metadata).configuration.get(HIGHEST_ID_PROPERTY, "0"))
    highest = max([recorded, *_ids(known), *_ids(schema)])

    def visit(kind: DataType, old: DataType | None) -> DataType:
        if isinstance(kind, Struct):
            members = {column.name: column for column in old.fields} if isinstance(old, Struct) else {}
            return Struct(fields=tuple(mapped(column, members.get(column.name)) for column in kind.fields))
        known = dict(parts(old)) if old is not None and type(old) is type(kind) else {}
        return with_parts(kind, lambda part, name: visit(part, known.get(name)))

    def mapped(column: Field, old: Field | None) -> Field:
        nonlocal highest
        source = column.metadata if PHYSICAL_NAME in column.metadata else {} if old is None else old.metadata
        own = {key: source[key] for key in (PHYSICAL_NAME, FIELD_ID) if key in source}
        if FIELD_ID not in own:
            highest += 1
            name = column.name if upgraded and old is not None else f"col-{new_id()}"
            own = {FIELD_ID: highest, PHYSICAL_NAME: name, **own}
        return dataclasses.replace(
            column, type=visit(column.type, None if old is None else old.type), metadata={**column.metadata, **own}
        )

    complete = visit(schema, known)
    assert isinstance(complete, Struct)
    _check_distinct(complete, known)
    configuration = {**metadata.configuration, HIGHEST_ID_PROPERTY: str(highest)}
    return msgspec.structs.replace(metadata, schema_string=complete.to_json(), configuration=configuration)


def _unmapped(schema: Struct) -> Struct:
    """The schema without physical names and ids."""
    keys = (PHYSICAL_NAME, FIELD_ID)

    def unmapped(column: Field, _: str) -> Field:
        return dataclasses.replace(column, metadata={k: v for k, v in column.metadata.items() if k not in keys})

    changed = each_field(schema, unmapped)
    assert isinstance(changed, Struct)
    return changed


def _check_distinct(schema: Struct, known: Struct) -> None:
    """Raise `InvalidRequestError` for two columns that would be the same in data files, and for a column that would be
    read from another column's data in older files."""
    names: dict[Any, Any] = {}
    numbers: dict[Any, set[Any]] = {}
    seen: set[Any] = set()

    for column, _ in walk(known):
        name, number = column.metadata.get(PHYSICAL_NAME), column.metadata.get(FIELD_ID)
        names[number] = name
        numbers.setdefault(name, set()).add(number)
    for column, path in walk(schema):
        name, number = column.metadata[PHYSICAL_NAME], column.metadata[FIELD_ID]
        physical_path = path.removesuffix(column.name), name
        others = names.get(number, name) != name or number not in numbers.get(name, {number})
        if number in seen or physical_path in seen or others:
            raise InvalidRequestError(
                f"the column {path!r} has the id {number} and the physical name {name!r}, of which one is another "
                "column's; leave both out of the metadata of a new column",
                column=path,
            )
        seen.update((number, physical_path))


def _ids(schema: Struct) -> list[int]:
    numbers = (column.metadata.get(FIELD_ID) for column, _ in walk(schema))
    return [number for number in numbers if type(number) is int]
