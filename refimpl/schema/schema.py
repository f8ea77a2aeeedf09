"""The schema of a table in three forms (Delta's JSON, small typed values, Arrow), and the permitted schema changes.

Delta's protocol, "Schema Serialization Format" and "Primitive Types". Spark writes the same JSON, so `parse` and
`Struct.to_json` work for Spark too. Errors name the column that Delta does not support.

A column's name in data files, statistics and partition values is a property of the column (`Field.physical_name`,
`Field.field_id`, `Struct.physical`). `refimpl.schema.column_mapping` sets it when it makes a table's schema.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from refimpl.protocol.errors import InvalidRequestError, InvalidTableError, UnsupportedFeatureError

if TYPE_CHECKING:
    import pyarrow as pa


PRIMITIVES: Final = frozenset(
    {
        "string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary", "date",
        "timestamp", "timestamp_ntz", "void",
    }
)  # fmt: skip
"""Delta's names of primitive types; decimals have their own class. `void`: a column of nulls, which no data file has.
"""

TIMESTAMP_NTZ_FEATURE: Final = "timestampNtz"
FORBIDDEN_IN_NAMES: Final = " ,;{}()\n\t="
"""Characters that a column's name may contain only with column mapping."""

CHANGE_COLUMN: Final = "__is_cdc"
"""A virtual partition column during a write: `true` marks rows of the change data feed."""

CHANGE_TYPE: Final = "_change_type"
COMMIT_VERSION: Final = "_commit_version"
COMMIT_TIMESTAMP: Final = "_commit_timestamp"
FEED_COLUMNS: Final = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)
"""Columns of the change data feed in addition to the table's columns."""

PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"
FIELD_ID: Final = "delta.columnMapping.id"
"""Keys in a column's metadata."""
TYPE_CHANGES: Final = "delta.typeChanges"
"""Key in a column's metadata: its former types. Older files still hold values of these types."""

PARQUET_FIELD_ID: Final = b"PARQUET:field_id"
"""Key in an Arrow field's metadata: the id of its Parquet column."""

_WIDER: Final = {
    "byte": ("short", "integer", "long", "double"),
    "short": ("integer", "long", "double"),
    "integer": ("long", "double"),
    "float": ("double",),
    "date": ("timestamp_ntz",),
}
_DIGITS: Final = {"byte": 10, "short": 10, "integer": 10, "long": 20}
"""Minimum digits before the point of a decimal to which the type may be widened."""
_DIGITS_OF_VALUES: Final = {"byte": 3, "short": 5, "integer": 10, "long": 19}
"""Minimum digits before the point of a decimal that can hold every value of the type."""

_OF_FILES: Final = ("delta.columnMapping.", TYPE_CHANGES)
_METADATA_KEY: Final = b"delta.metadata"
"""Key in an Arrow field's metadata: the Delta field's metadata, as JSON."""
_NAME: Final = "element"


@dataclass(frozen=True, slots=True, kw_only=True)
class Primitive:
    name: str

    def __str__(self) -> str:
        return self.name


FLOATS: Final = (Primitive(name="float"), Primitive(name="double"))
VOID: Final = Primitive(name="void")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decimal:
    """`precision` digits in all (1 to 38), `scale` of them after the point."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Array:
    element: DataType
    contains_null: bool = True

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    key: DataType
    value: DataType
    value_contains_null: bool = True

    def __str__(self) -> str:
        return f"map<{self.key},{self.value}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeChange:
    """A change of the type of a column, or of the part of it at `path` (`element`, `key`, `value`, joined by dots)."""

    before: DataType
    after: DataType
    path: str = ""

    def to_json(self) -> dict[str, str]:
        return {"fromType": str(self.before), "toType": str(self.after)} | (
            {"fieldPath": self.path} if self.path else {}
        )


class ColumnMapping(Enum):
    """How a column is found in data files. The values are those of the table's property."""

    NONE = "none"
    """By its name."""
    NAME = "name"
    """By its physical name, which stays when the column is renamed."""
    ID = "id"
    """By the field id in the file's Parquet schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One column, or one member of a struct."""

    name: str
    type: DataType
    nullable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict)
    mapping: ColumnMapping = ColumnMapping.NONE
    """Set by `refimpl.schema.column_mapping.of_table`; not in the JSON."""

    @property
    def physical_name(self) -> str:
        """Its name in data files, statistics and partition values."""
        return self.name if self.mapping is ColumnMapping.NONE else str(self.metadata[PHYSICAL_NAME])

    @property
    def type_changes(self) -> tuple[TypeChange, ...]:
        """Its former types, the oldest first. Raises `InvalidTableError` for an invalid history."""
        changes = self.metadata.get(TYPE_CHANGES) or []
        try:
            return tuple(
                TypeChange(
                    before=_primitive(change["fromType"], self.name),
                    after=_primitive(change["toType"], self.name),
                    path=str(change.get("fieldPath", "")),
                )
                for change in changes
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidTableError(
                f"the column {self.name!r} has the {TYPE_CHANGES} {changes!r}; expected a list of fromType, toType "
                "and, below arrays and maps, fieldPath",
                column=self.name,
            ) from error

    @property
    def was_float(self) -> bool:
        """Whether the column is double now, and older files hold single-precision values."""
        return any(change.before == Primitive(name="float") and not change.path for change in self.type_changes)

    @property
    def field_id(self) -> int | None:
        """Its id in the Parquet schema of data files; None without column mapping."""
        return None if self.mapping is ColumnMapping.NONE else int(self.metadata[FIELD_ID])


@dataclass(frozen=True, slots=True, kw_only=True)
class Struct:
    """Columns in order. A table's schema is a struct."""

    fields: tuple[Field, ...] = ()

    @classmethod
    def of_types(cls, kinds: Mapping[str, DataType]) -> Struct:
        """Columns of these types."""
        return cls(fields=tuple(Field(name=name, type=kind) for name, kind in kinds.items()))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.fields)

    def stored(self) -> Struct:
        """The columns in data files: without `void` ones, and without structs that have no other members."""
        columns = [
            dataclasses.replace(column, type=column.type.stored()) if isinstance(column.type, Struct) else column
            for column in self.fields
            if column.type != VOID
        ]
        return Struct(fields=tuple(column for column in columns if column.type != Struct()))

    def __getitem__(self, name: str) -> Field:
        """The column of exactly this name; `InvalidRequestError` lists the known ones."""
        for column in self.fields:
            if column.name == name:
                return column
        raise InvalidRequestError(f"unknown column {name!r}; the columns are {', '.join(self.names)}", column=name)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def spelled(self, names: Sequence[str]) -> tuple[str, ...]:
        """These columns as the schema spells them: names ignore case. Unknown names stay. Raises `InvalidRequestError`
        for a text instead of a list."""
        if isinstance(names, str):
            raise InvalidRequestError(f"invalid columns {names!r}; expected a list: [{names!r}]")
        own = {column.name.lower(): column.name for column in self.fields}
        return tuple(own.get(name.lower(), name) for name in names)

    def without(self, names: Sequence[str]) -> Struct:
        """The other columns: those in data files, if `names` are the partition columns."""
        return Struct(fields=tuple(column for column in self.fields if column.name not in names))

    def physical_names(self, names: Sequence[str]) -> tuple[str, ...]:
        """The names of these columns in data files, statistics and partition values."""
        return tuple(self[name].physical_name for name in names)

    @property
    def is_mapped(self) -> bool:
        """Whether the names in data files may differ from the columns' names."""
        return any(column.mapping is not ColumnMapping.NONE for column in self.fields)

    def physical(self) -> Struct:
        """The columns in data files: with physical names at any depth, and field ids."""
        physical = each_field(self, lambda column, _: dataclasses.replace(column, name=column.physical_name))
        assert isinstance(physical, Struct)
        return physical

    def places(self) -> dict[str, str]:
        """The physical name of every column and member, by its path."""
        return {path: column.physical_name for column, path in walk(self)}

    def to_json(self) -> str:
        """The `schemaString` of a metaData action."""
        return json.dumps(_type_to_json(self), separators=(",", ":"), ensure_ascii=False)

    def __str__(self) -> str:
        return f"struct<{','.join(f'{column.name}:{column.type}' for column in self.fields)}>"


DataType = Primitive | Decimal | Array | Map | Struct


def parse(schema_string: str) -> Struct:
    """The schema in a metaData action, or in the JSON of a Spark schema.

    Raises `InvalidTableError` for an invalid schema, `UnsupportedFeatureError` with the column for an unknown type.
    """
    try:
        document = json.loads(schema_string)
        parsed = _type_from_json(document, "schema")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidTableError(f"the schema is not Delta's JSON of a struct: {schema_string[:200]!r}") from error
    if not isinstance(parsed, Struct):
        raise InvalidTableError(f"the schema is a {parsed}, not a struct")
    if '"void"' in schema_string:
        _refuse_inner_void(parsed, "")
    return parsed


def _refuse_inner_void(kind: DataType, where: str) -> None:
    """DELTA.md#void: arrays and maps of nothing have no form in Parquet."""
    for name, part in parts(kind):
        if isinstance(kind, Array | Map) and VOID in _types(part):
            raise _unknown(f"{kind}", where.removesuffix("."))
        _refuse_inner_void(part, f"{where}{name}.")


def refuse_void(schema: Struct) -> None:
    """Raise `UnsupportedFeatureError` for a `void` column in a caller's schema: most often it is a mistake."""
    for column, path in walk(schema):
        if column.type == VOID:
            raise _unknown("void", path)


def walk(kind: DataType, where: str = "") -> Iterator[tuple[Field, str]]:
    """Every field, at any depth, with its path."""
    for column in kind.fields if isinstance(kind, Struct) else ():
        yield column, where + column.name
    for name, part in parts(kind):
        yield from walk(part, f"{where}{name}.")


def each_field(kind: DataType, change: Callable[[Field, str], Field], where: str = "") -> DataType:
    """The type with every field, at any depth, replaced by `change(field, path)`."""
    if isinstance(kind, Struct):
        kind = Struct(fields=tuple(change(column, where + column.name) for column in kind.fields))
    return with_parts(kind, lambda part, name: each_field(part, change, f"{where}{name}."))


def parts(kind: DataType) -> list[tuple[str, DataType]]:
    """The types directly inside a type, with their names in paths; none in a primitive type."""
    match kind:
        case Struct(fields=fields):
            return [(column.name, column.type) for column in fields]
        case Array(element=element):
            return [("element", element)]
        case Map(key=key, value=value):
            return [("key", key), ("value", value)]
    return []


def with_parts(kind: DataType, change: Callable[[DataType, str], DataType]) -> DataType:
    """The type with each of its `parts` replaced by `change(part, name)`."""
    changed = [change(part, name) for name, part in parts(kind)]
    match kind:
        case Struct(fields=fields):
            return Struct(
                fields=tuple(dataclasses.replace(c, type=part) for c, part in zip(fields, changed, strict=True))
            )
        case Array():
            return dataclasses.replace(kind, element=changed[0])
        case Map():
            return dataclasses.replace(kind, key=changed[0], value=changed[1])
    return kind


def _type_from_json(document: Any, where: str) -> DataType:
    if isinstance(document, str):
        return _primitive(document, where)
    match document["type"]:
        case "struct":
            return Struct(fields=tuple(_field_from_json(item, where) for item in document["fields"]))
        case "array":
            return Array(
                element=_type_from_json(document["elementType"], where), contains_null=bool(document["containsNull"])
            )
        case "map":
            return Map(
                key=_type_from_json(document["keyType"], where),
                value=_type_from_json(document["valueType"], where),
                value_contains_null=bool(document["valueContainsNull"]),
            )
        case other:
            raise _unknown(str(other), where)


def _field_from_json(item: Any, where: str) -> Field:
    name = item["name"]
    if not isinstance(name, str):
        raise TypeError(name)
    path = name if where == "schema" else f"{where}.{name}"
    return Field(
        name=name,
        type=_type_from_json(item["type"], path),
        nullable=bool(item["nullable"]),
        metadata=dict(item.get("metadata") or {}),
    )


def _primitive(name: str, where: str) -> DataType:
    if name in PRIMITIVES:
        return Primitive(name=name)
    if name == "decimal":
        return Decimal(precision=10, scale=0)
    if name.startswith("decimal(") and name.endswith(")"):
        precision, scale = (int(part) for part in name[8:-1].split(","))
        if 1 <= precision <= 38 and 0 <= scale <= precision:
            return Decimal(precision=precision, scale=scale)
    raise _unknown(name, where)


def _unknown(name: str, where: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"column {where!r} has the type {name}, which is not written or read here; cast it or leave it out",
        column=where,
        type=name,
    )


def _type_to_json(kind: DataType) -> Any:
    match kind:
        case Struct(fields=fields):
            return {"type": "struct", "fields": [_field_to_json(column) for column in fields]}
        case Array(element=element, contains_null=contains_null):
            return {"type": "array", "elementType": _type_to_json(element), "containsNull": contains_null}
        case Map(key=key, value=value, value_contains_null=value_contains_null):
            return {
                "type": "map",
                "keyType": _type_to_json(key),
                "valueType": _type_to_json(value),
                "valueContainsNull": value_contains_null,
            }
        case _:
            return str(kind)


def _field_to_json(column: Field) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": _type_to_json(column.type),
        "nullable": column.nullable,
        "metadata": dict(column.metadata),
    }


def check_columns(schema: Struct, partition_columns: Sequence[str] = (), *, mapped: bool = False) -> None:
    """Raise `InvalidRequestError`, with the column and the reason, for a schema that Delta forbids, and
    `UnsupportedFeatureError` for a struct without members, which Parquet cannot store.

    Names must be free of `FORBIDDEN_IN_NAMES`, unless the table maps columns, and differ in more than case; partition
    columns must exist, be primitive and not binary, and leave at least one column for the data files.
    """
    if not schema.fields:
        raise InvalidRequestError("a table needs at least one column")
    _check_members(schema, "", "" if mapped else FORBIDDEN_IN_NAMES)
    if CHANGE_COLUMN in schema:
        raise InvalidRequestError(f"the column name {CHANGE_COLUMN!r} is reserved for change data; rename it")
    for name in partition_columns:
        kind = schema[name].type
        if not isinstance(kind, Primitive | Decimal) or kind in (Primitive(name="binary"), VOID):
            raise InvalidRequestError(f"the table cannot be partitioned by {name!r}: it is a {kind}", column=name)
    if len(set(partition_columns)) != len(partition_columns):
        raise InvalidRequestError(f"a partition column is listed twice: {', '.join(partition_columns)}")
    if len(partition_columns) == len(schema.fields):
        raise InvalidRequestError("every column is a partition column; the data files need at least one of their own")


def _check_members(kind: DataType, where: str, forbidden: str) -> None:
    if kind == Struct():
        raise _unknown("struct<>", where[:-1])
    names = kind.names if isinstance(kind, Struct) else ()
    seen: dict[str, str] = {}
    for name in names:
        bad = sorted(set(name) & set(forbidden))
        if not name or bad:
            problem = f"holds {''.join(bad)!r}" if bad else "is empty"
            way_out = ", or create the table with delta.columnMapping.mode=name" if bad else ""
            raise InvalidRequestError(f"the column name {where + name!r} {problem}; rename it{way_out}")
        twin = seen.setdefault(name.lower(), name)
        if twin != name:
            raise InvalidRequestError(
                f"the column names {where + twin!r} and {where + name!r} differ only in case; rename one of them"
            )
        if names.count(name) > 1:
            raise InvalidRequestError(f"the column name {where + name!r} occurs twice; rename one of them")
    for name, part in parts(kind):
        _check_members(part, f"{where}{name}.", forbidden)


def required_features(schema: Struct) -> frozenset[str]:
    """Table features that the protocol must list, for readers and writers, because of column types."""
    ntz = any(kind == Primitive(name="timestamp_ntz") for kind in _types(schema))
    return frozenset({TIMESTAMP_NTZ_FEATURE}) if ntz else frozenset()


def _types(kind: DataType) -> Iterator[DataType]:
    yield kind
    for _, part in parts(kind):
        yield from _types(part)


def widens(before: DataType, after: DataType) -> bool:
    """Whether a column may change to the type `after` and keep its files: DELTA.md#type-widening. Values stay exact."""
    match before, after:
        case Primitive(name=old), Primitive(name=new):
            return new in _WIDER.get(old, ())
        case Primitive(name=old), Decimal(precision=precision, scale=scale):
            return old in _DIGITS and precision - scale >= _DIGITS[old]
        case Decimal(precision=old_precision, scale=old_scale), Decimal(precision=precision, scale=scale):
            more = precision - scale >= old_precision - old_scale and scale >= old_scale
            return more and before != after
    return False


def holds(before: DataType, after: DataType) -> bool:
    """Whether every value of `before` is one of `after`: DELTA.md#type-widening."""
    match before, after:
        case Primitive(name=old), Decimal(precision=precision, scale=scale) if old in _DIGITS_OF_VALUES:
            return precision - scale >= _DIGITS_OF_VALUES[old]
    return widens(before, after)


def type_named(name: str) -> DataType:
    """The primitive type of this name in Delta, such as `long` or `decimal(10,2)`; `InvalidRequestError`."""
    try:
        return _primitive(name.strip(), name)
    except (ValueError, UnsupportedFeatureError):
        raise InvalidRequestError(
            f"invalid type {name!r}; expected a primitive type of Delta, such as long or decimal(10,2)", type=name
        ) from None


def as_struct(schema: Struct | str | pa.Schema | Mapping[str, str | pa.DataType]) -> Struct:
    """A schema in any of these forms: `Struct`, Delta's JSON, Arrow's, or types by column (Delta's names, or Arrow's
    types). Raises `InvalidRequestError` for others."""
    import pyarrow as pa

    match schema:
        case Struct():
            return schema
        case str() if schema.lstrip().startswith("{"):
            return parse(schema)
        case pa.Schema():
            return from_arrow(schema)
        case Mapping() if all(isinstance(n, str) and isinstance(k, str | pa.DataType) for n, k in schema.items()):
            types = {
                name: arrow_type(type_named(kind)) if isinstance(kind, str) else kind for name, kind in schema.items()
            }
            return from_arrow(pa.schema(types))
    raise InvalidRequestError(
        f"invalid schema {schema!r}; expected a pyarrow.Schema, or types by column: {{'id': 'long', 'day': 'date'}}"
    )


def to_arrow(schema: Struct) -> pa.Schema:
    """The Arrow schema of a snapshot's rows. Timestamps are in microseconds; with a zone, UTC."""
    import pyarrow as pa

    return pa.schema([_arrow_field(column) for column in schema.fields])


def _arrow_field(column: Field) -> pa.Field:
    import pyarrow as pa

    metadata = portable(column.metadata)
    carried = {_METADATA_KEY: json.dumps(metadata).encode()} if metadata else {}
    if column.field_id is not None:
        carried[PARQUET_FIELD_ID] = str(column.field_id).encode()
    return pa.field(column.name, arrow_type(column.type), nullable=column.nullable, metadata=carried or None)


def portable(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """A column's metadata without the parts for one table's data files: its rows may be written to another table."""
    return {key: value for key, value in metadata.items() if not key.startswith(_OF_FILES)}


def arrow_type(kind: DataType) -> pa.DataType:
    """The Arrow type of a Delta type."""
    import pyarrow as pa

    match kind:
        case Primitive(name=name):
            return _arrow_primitives()[name]
        case Decimal(precision=precision, scale=scale):
            return pa.decimal128(precision, scale)
        case Array(element=element, contains_null=contains_null):
            return pa.list_(pa.field(_NAME, arrow_type(element), nullable=contains_null))
        case Map(key=key, value=value, value_contains_null=value_contains_null):
            return pa.map_(arrow_type(key), pa.field("value", arrow_type(value), nullable=value_contains_null))
        case Struct(fields=fields):
            return pa.struct([_arrow_field(column) for column in fields])


@functools.cache
def _arrow_primitives() -> dict[str, pa.DataType]:
    import pyarrow as pa

    return {
        "string": pa.string(),
        "long": pa.int64(),
        "integer": pa.int32(),
        "short": pa.int16(),
        "byte": pa.int8(),
        "float": pa.float32(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
        "void": pa.null(),
    }


def from_arrow(schema: pa.Schema) -> Struct:
    """The Delta schema that holds every value of an Arrow schema exactly.

    Views, large and dictionary-encoded types become their plain form; timestamps of any unit become
    microseconds (a write rejects a value that would lose digits). Types without a Delta counterpart
    raise `UnsupportedFeatureError` with the column's name.
    """
    return Struct(fields=tuple(_field_from_arrow(item, "") for item in schema))


def _field_from_arrow(item: pa.Field, where: str) -> Field:
    metadata: dict[str, Any] = {}
    for key, value in (item.metadata or {}).items():
        if key == _METADATA_KEY:
            metadata |= json.loads(value)
        elif not key.startswith((b"PARQUET:", b"ARROW:")):
            metadata[key.decode(errors="replace")] = value.decode(errors="replace")
    path = where + item.name
    return Field(name=item.name, type=_type_from_arrow(item.type, path), nullable=item.nullable, metadata=metadata)


def _type_from_arrow(kind: pa.DataType, where: str) -> DataType:
    import pyarrow as pa

    is_ = pa.types
    if is_.is_dictionary(kind):
        return _type_from_arrow(kind.value_type, where)
    if is_.is_string(kind) or is_.is_large_string(kind) or is_.is_string_view(kind):
        return Primitive(name="string")
    if is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_binary_view(kind) or is_.is_fixed_size_binary(kind):
        return Primitive(name="binary")
    if is_.is_timestamp(kind):
        return Primitive(name="timestamp" if kind.tz else "timestamp_ntz")
    if is_.is_date(kind):
        return Primitive(name="date")
    if is_.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return Decimal(precision=kind.precision, scale=kind.scale)
    if is_.is_struct(kind):
        return Struct(fields=tuple(_field_from_arrow(kind.field(i), f"{where}.") for i in range(kind.num_fields)))
    if is_.is_map(kind):
        return Map(
            key=_type_from_arrow(kind.key_type, f"{where}.key"),
            value=_type_from_arrow(kind.item_type, f"{where}.value"),
            value_contains_null=kind.item_field.nullable,
        )
    if is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind):
        return Array(
            element=_type_from_arrow(kind.value_type, f"{where}.{_NAME}"), contains_null=kind.value_field.nullable
        )
    for name, arrow in _arrow_primitives().items():
        if kind == arrow and not is_.is_null(kind):
            return Primitive(name=name)
    raise _unknown(str(kind), where)


def misfit(before: Struct, after: Struct, *, strictly: bool = False) -> str | None:
    """Why files that were written with the schema `before` do not fit `after`, as a phrase; None if they do.

    A data file is read with the newest schema: columns that it lacks are null, and columns are found by their
    physical names. So a table may gain columns, and with column mapping rename and drop them, unless `strictly`; any
    other change requires new files. Without column mapping, a column that is dropped and created again would show its
    old values. A type may become wider if the column's history records that: DELTA.md#type-widening.
    """
    return None if before == after else _misfit_of_members(before, after, "", strictly)


def _misfit(before: DataType, after: DataType, where: str, strictly: bool, of: Field, path: str = "") -> str | None:
    """`of`: the nearest enclosing column or member, after the change; `path`: from it to the types."""
    match before, after:
        case Struct(), Struct():
            return _misfit_of_members(before, after, where, strictly)
        case Array(), Array():
            inner = joined(path, _NAME)
            problem = _misfit(before.element, after.element, f"{where}.element", strictly, of, inner)
            return problem or _required(before.contains_null, after.contains_null, f"{where}.element")
        case Map(), Map():
            problem = _misfit(before.key, after.key, f"{where}.key", strictly, of, joined(path, "key"))
            problem = problem or _misfit(
                before.value, after.value, f"{where}.value", strictly, of, joined(path, "value")
            )
            return problem or _required(before.value_contains_null, after.value_contains_null, f"{where}.value")
    if before in (after, VOID):
        return None
    if widens(before, after) and any(change.before == before and change.path == path for change in of.type_changes):
        return None
    return f"the column {where!r} would become {after} from {before}"


def joined(path: str, name: str) -> str:
    """A path of `delta.typeChanges`, one level deeper."""
    return f"{path}.{name}" if path else name


def _misfit_of_members(before: Struct, after: Struct, where: str, strictly: bool) -> str | None:
    prefix = f"{where}." if where else ""
    columns_after = {column.physical_name: column for column in after.fields}
    for column in before.fields:
        now = columns_after.pop(column.physical_name, None)
        if now is None:
            if strictly or column.mapping is ColumnMapping.NONE:
                return f"the column {prefix + column.name!r} would be dropped"
            continue
        if strictly and now.name != column.name:
            return f"the column {prefix + column.name!r} would be renamed to {now.name!r}"
        problem = _misfit(column.type, now.type, prefix + column.name, strictly, now)
        problem = problem or _required(column.nullable, now.nullable, prefix + column.name)
        if problem is not None:
            return problem
    added = (column for column in columns_after.values() if not column.nullable)
    return next((f"the new column {prefix + column.name!r} would be required" for column in added), None)


def _required(before: bool, after: bool, where: str) -> str | None:
    """`before` and `after`: whether nulls are allowed."""
    return f"the column {where!r} would be required" if before and not after else None
