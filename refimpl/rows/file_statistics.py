"""Column statistics of one data file, from its Parquet footer, as an add action's `stats`.

Delta's protocol, "Per-file Statistics". Reading a footer is cheap, for files of any writer, but footers
have pitfalls. In these cases there are no bounds, so that no bound is wrong:

- Arrow leaves a NaN out of the bounds, and Spark, which orders NaN above every number, then skips rows: our files
  have no bounds of floating-point columns in the footer. The writer computes them; columns with NaN get none;
- columns under an array or a map have no value per row: no bounds, no counts;
- values of more than 4096 bytes, and Spark's INT96 timestamps, have no bounds.

Bounds of strings are truncated to a prefix, and bounds of timestamps are widened to whole milliseconds, because
readers expect that.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from refimpl.protocol.errors import CorruptLogError, InvalidTableError
from refimpl.schema.schema import FLOATS, Array, DataType, Map, Primitive, Struct, parts

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from refimpl.protocol.actions import Add

Leaf = tuple[str, ...]
"""The names from a top-level column down to a primitive."""

INDEXED_COLUMNS: Final = 32
"""Default number of columns with statistics; members of structs count separately."""
INDEXED_NUMBER_PROPERTY: Final = "delta.dataSkippingNumIndexedCols"
INDEXED_NAMES_PROPERTY: Final = "delta.dataSkippingStatsColumns"
PREFIX_CHARACTERS: Final = 32
"""Maximum number of characters of a string bound."""
_LAST_CHARACTER: Final = "\U0010ffff"
_NO_BOUNDS: Final = (Primitive(name="boolean"), Primitive(name="binary"))
_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")


def struct_leaves(kind: DataType, path: Leaf = ()) -> Iterator[tuple[Leaf, DataType]]:
    """The members of structs, at any depth, that are not structs themselves: primitives, arrays and maps."""
    if not isinstance(kind, Struct):
        yield path, kind
        return
    for item in kind.fields:
        yield from struct_leaves(item.type, (*path, item.name))


def leaves(schema: Struct) -> list[tuple[Leaf, DataType] | None]:
    """Every leaf of a file with this schema, in the order of its footer; None for those in arrays and maps."""
    result: list[tuple[Leaf, DataType] | None] = []
    for path, kind in struct_leaves(schema):
        result += [None] * _width(kind) if isinstance(kind, Array | Map) else [(path, kind)]
    return result


def _width(kind: DataType) -> int:
    """The number of Parquet columns of a type."""
    return sum(_width(part) for _, part in parts(kind)) if isinstance(kind, Struct | Array | Map) else 1


def indexed(schema: Struct, properties: Mapping[str, str] | None = None) -> frozenset[Leaf]:
    """The columns that get statistics in a table with these properties, by their physical names; `schema` without
    partition columns.

    `delta.dataSkippingStatsColumns` names them (a struct means its members); else
    `delta.dataSkippingNumIndexedCols` counts them from the left, -1 for all; else they are the first 32.
    Raises `InvalidTableError` for a count that is not a number.
    """
    known = [leaf for leaf, _ in struct_leaves(schema.physical())]
    properties = properties or {}
    names = properties.get(INDEXED_NAMES_PROPERTY)
    if names is not None:
        paths = [tuple(part.strip("` ") for part in name.split(".")) for name in names.split(",")]
        spelled = zip(known, struct_leaves(schema), strict=True)
        return frozenset(leaf for leaf, (names, _) in spelled if any(names[: len(path)] == path for path in paths))
    number = properties.get(INDEXED_NUMBER_PROPERTY, str(INDEXED_COLUMNS))
    try:
        count = int(number)
    except ValueError:
        raise InvalidTableError(f"the property {INDEXED_NUMBER_PROPERTY} is {number!r}, not a number") from None
    return frozenset(known if count < 0 else known[:count])


def clustering_columns(configuration: str) -> frozenset[Leaf]:
    """The columns in the domain `delta.clustering`: as names (the protocol's example), or as lists of name parts (Delta
    Spark). Raises `CorruptLogError`."""
    try:
        return frozenset(
            (name,) if isinstance(name, str) else tuple(name) for name in _CLUSTERING.decode(configuration).columns
        )
    except msgspec.DecodeError as error:
        raise CorruptLogError(f"the metadata domain delta.clustering is {configuration!r}: {error}") from error


class _Clustering(msgspec.Struct):
    columns: list[str | list[str]] = msgspec.field(name="clusteringColumns")


_CLUSTERING: Final = msgspec.json.Decoder(_Clustering)


def record_count(add: Add) -> int | None:
    """The number of rows of a file in its statistics, deleted rows included; None if they do not have it."""
    try:
        count = msgspec.json.decode(add.stats or "{}").get("numRecords")
    except (msgspec.DecodeError, AttributeError, RecursionError):
        return None
    return count if type(count) is int else None


def row_count(add: Add) -> int | None:
    """`record_count` without deleted rows."""
    count = record_count(add)
    return None if count is None else count - (0 if add.deletion_vector is None else add.deletion_vector.cardinality)


@dataclass(slots=True)
class LeafStatistics:
    """The merged statistics of one leaf, from the row groups so far."""

    nulls: int | None = 0
    bounded: bool = True
    low: Any = None
    high: Any = None

    def add(self, values: Any) -> None:
        """The statistics of these values of floats, of an array or of a map, which the footer lacks."""
        import pyarrow as pa
        import pyarrow.compute as pc

        assert self.nulls is not None
        self.nulls += values.null_count
        self.bounded = self.bounded and pa.types.is_floating(values.type) and not pc.any(pc.is_nan(values)).as_py()
        if self.bounded and values.null_count < len(values):
            bounds = pc.min_max(values)  # some readers order -0.0 below 0.0: the bounds hold both
            self._widen(bounds["min"].as_py() or -0.0, bounds["max"].as_py() or 0.0)

    def merge(self, chunk: Any) -> None:
        """The statistics of a column of a row group."""
        statistics = chunk.statistics
        if statistics is None:
            self.nulls, self.bounded = None, False
            return
        if self.nulls is not None:
            self.nulls = self.nulls + statistics.null_count if statistics.has_null_count else None
        if not statistics.has_min_max:
            all_null = statistics.has_null_count and statistics.null_count == chunk.num_values
            self.bounded = self.bounded and all_null
            return
        try:
            low, high = statistics.min, statistics.max
        except (ValueError, OverflowError, UnicodeDecodeError):  # Python has no such date, or the text is not UTF-8
            self.bounded = False
            return
        self._widen(low, high)

    def _widen(self, low: Any, high: Any) -> None:
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)


def footer_columns(schema: Struct) -> list[str] | Literal[True]:
    """The Parquet columns that get statistics in the footer of a file with this schema; True: all."""
    known = leaves(schema)
    if not any(leaf is not None and leaf[1] in FLOATS for leaf in known):
        return True
    return [".".join(leaf[0]) for leaf in known if leaf is not None and leaf[1] not in FLOATS]


def from_footer(
    footer: pq.FileMetaData,
    schema: Struct,
    columns: Collection[Leaf],
    computed: Mapping[Leaf, LeafStatistics] | None = None,
) -> str:
    """The `stats` JSON of a file that was written with `schema` (without partition columns), for `columns`.

    `computed`: the columns that the footer lacks (floats, arrays and maps).
    """
    known = leaves(schema)
    if footer.num_columns != len(known):
        raise ValueError(f"the file has {footer.num_columns} leaf columns, its schema {len(known)}")
    wanted = [(position, *leaf) for position, leaf in enumerate(known) if leaf is not None and leaf[0] in columns]
    computed = computed or {}
    seen = {leaf: LeafStatistics() for _, leaf, _ in wanted}
    for group in range(footer.num_row_groups):
        row_group = footer.row_group(group)
        for position, leaf, _ in wanted:
            seen[leaf].merge(row_group.column(position))
    seen |= computed
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for _, leaf, kind in wanted:
        column = seen[leaf]
        if column.nulls is not None:
            _put(nulls, leaf, column.nulls)
        if column.bounded and column.low is not None and kind not in _NO_BOUNDS:
            low, high = lower_bound(column.low), upper_bound(column.high)
            if low is not None and high is not None:
                _put(lows, leaf, low)
                _put(highs, leaf, high)
    for leaf, column in computed.items():
        if leaf in columns:
            _put(nulls, leaf, column.nulls)
    document = {"numRecords": footer.num_rows, "minValues": lows, "maxValues": highs, "nullCount": nulls}
    return _ENCODER.encode(document).decode()


def _put(tree: dict[str, Any], leaf: Leaf, value: Any) -> None:
    for name in leaf[:-1]:
        tree = tree.setdefault(name, {})
    tree[leaf[-1]] = value


def lower_bound(value: Any) -> Any:
    """A value for `minValues`: never greater than the value; None if JSON cannot express it."""
    match value:
        case str():
            return value[:PREFIX_CHARACTERS]
        case datetime.datetime():
            return _milliseconds(value.replace(microsecond=value.microsecond // 1000 * 1000))
        case _:
            return _scalar(value)


def upper_bound(value: Any) -> Any:
    """A value for `maxValues`: never less than the value; None if JSON cannot express it."""
    match value:
        case str():
            return _upper_prefix(value)
        case datetime.datetime():
            excess = -value.microsecond % 1000
            try:
                return _milliseconds(value + datetime.timedelta(microseconds=excess))
            except OverflowError:
                return None
        case _:
            return _scalar(value)


def _upper_prefix(text: str) -> str:
    length = PREFIX_CHARACTERS
    while text[length : length + 1] == _LAST_CHARACTER:  # no greater character can be appended
        length += 1
    return text if len(text) <= length else text[:length] + _LAST_CHARACTER


def _milliseconds(moment: datetime.datetime) -> str:
    text = moment.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return f"{text}Z" if moment.tzinfo else text


def _scalar(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case datetime.date():
            return value.isoformat()
        case int() | decimal.Decimal():
            return value
        case _:
            return None
