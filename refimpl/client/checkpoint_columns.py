"""Statistics and partition values as typed columns of a checkpoint: `stats_parsed` and `partitionValues_parsed`.

Delta's protocol, "Checkpoint Schema"; DELTA.md#typed-statistics. The columns have the physical names of the table's
columns. A bound that its type cannot hold is left out: readers take it as unknown.
"""

import decimal
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from refimpl.log.checkpoint_format import PARSED_PARTITIONS, PARSED_STATISTICS, Form
from refimpl.protocol.errors import CorruptLogError
from refimpl.rows.file_statistics import Leaf, struct_leaves
from refimpl.rows.partition_values import from_text
from refimpl.schema.schema import DataType, Decimal, Primitive, Struct, arrow_type

_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_LONG: Final = Primitive(name="long")
_DECODER: Final = msgspec.json.Decoder(float_hook=decimal.Decimal)


def form_of(
    schema: Struct,
    partition_columns: Sequence[str],
    indexed: Collection[Leaf],
    values: Callable[[], Iterable[Mapping[str, str | None]]],
    *,
    text: bool,
    typed: bool,
    compression: str,
) -> Form:
    """How a table's checkpoint holds its files. `indexed`: the columns with statistics; `values`: the partition values
    of all files. If Python cannot represent one of them, their typed column is left out."""
    if not typed:
        return Form(text=text, compression=compression)
    leaves = [(leaf, kind) for leaf, kind in struct_leaves(schema.without(partition_columns).physical())]
    bounds = [(leaf, kind) for leaf, kind in leaves if leaf in indexed and _has_bounds(kind)]
    nested = {
        "minValues": _nested(bounds),
        "maxValues": _nested(bounds),
        "nullCount": _nested([(leaf, _LONG) for leaf, _ in leaves if leaf in indexed]),
    }
    filled = {name: kind for name, kind in nested.items() if kind.fields}  # Parquet has no structs without members
    statistics = Struct.of_types({"numRecords": _LONG, "tightBounds": Primitive(name="boolean"), **filled})
    partitions = Struct.of_types({schema[name].physical_name: schema[name].type for name in partition_columns})
    typed_values = bool(partition_columns) and _are_valid(partitions, values())
    kinds = {PARSED_STATISTICS: statistics} | ({PARSED_PARTITIONS: partitions} if typed_values else {})

    def parsed(texts: Sequence[str | None], values: Sequence[Mapping[str, str | None]]) -> dict[str, pa.Array]:
        columns = {PARSED_STATISTICS: _column([_decoded(text) for text in texts], statistics)}
        if typed_values:
            spelled = [
                {column.name: from_text(one.get(column.name), column.type) for column in partitions.fields}
                for one in values
            ]
            columns[PARSED_PARTITIONS] = pa.array(spelled, arrow_type(partitions))
        return columns

    members = {name: arrow_type(kind) for name, kind in kinds.items()}
    return Form(text=text, compression=compression, members=members, parsed=parsed)


def _has_bounds(kind: DataType) -> bool:
    return isinstance(kind, Decimal) or (isinstance(kind, Primitive) and kind.name not in ("boolean", "binary", "void"))


def _nested(leaves: Iterable[tuple[Leaf, DataType]]) -> Struct:
    tree: dict[str, Any] = {}
    for leaf, kind in leaves:
        place = tree
        for name in leaf[:-1]:
            place = place.setdefault(name, {})
        place[leaf[-1]] = kind
    return _struct(tree)


def _struct(tree: Mapping[str, Any]) -> Struct:
    return Struct.of_types({name: _struct(kind) if isinstance(kind, dict) else kind for name, kind in tree.items()})


def _are_valid(partitions: Struct, values: Iterable[Mapping[str, str | None]]) -> bool:
    kinds = {column.name: column.type for column in partitions.fields}
    texts = {(name, one.get(name)) for one in values for name in kinds}
    try:
        for name, text in texts:
            pa.scalar(from_text(text, kinds[name]), arrow_type(kinds[name]))
    except (CorruptLogError, pa.ArrowException, OverflowError):
        return False
    return True


def _decoded(text: str | None) -> Any:
    try:
        return None if text is None else _DECODER.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _column(values: list[Any], kind: DataType) -> pa.Array:
    """Values of JSON as an Arrow column; null where they do not fit."""
    if not isinstance(kind, Struct):
        return pa.array([_scalar(value, kind) for value in values], arrow_type(kind))
    objects = [value if isinstance(value, dict) else None for value in values]
    members = [
        _column([None if one is None else one.get(column.name) for one in objects], column.type)
        for column in kind.fields
    ]
    mask = pa.array([one is None for one in objects])
    return pa.StructArray.from_arrays(members, fields=list(arrow_type(kind)), mask=mask)


def _scalar(value: Any, kind: DataType) -> Any:
    match kind, value:
        case (_, None) | (Primitive(name="string"), str()) | (Primitive(name="boolean"), bool()):
            return value
        case _, bool():
            return None
        case Primitive(name="float" | "double"), int() | decimal.Decimal():
            return float(value)
        case Primitive(name=name), int() if name in _BITS:
            return value if -(1 << _BITS[name] - 1) <= value < 1 << _BITS[name] - 1 else None
        case Decimal(precision=precision, scale=scale), int() | decimal.Decimal():
            number = decimal.Decimal(value)
            digits = number.normalize().as_tuple()
            fits = isinstance(digits.exponent, int) and -digits.exponent <= scale
            return number if fits and number.adjusted() < precision - scale else None
        case Primitive(name="date" | "timestamp" | "timestamp_ntz"), str():
            try:
                return from_text(value, kind)
            except CorruptLogError:
                return None
    return None
