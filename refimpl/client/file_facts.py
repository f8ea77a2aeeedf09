"""What an add action tells of its file's columns, and a condition asked of it.

Delta's protocol, "Per-file Statistics". Statistics are hints of other writers, so each is read with
its traps in mind; one that cannot be understood says nothing:

- an upper bound of a string may be a prefix: one of the usual prefix length or more is no bound;
- bounds of timestamps are cut to milliseconds: the upper one may be short by almost one;
- some writers leave NaN out of the bounds: a column of floats may hold NaN whatever its bounds;
- floats are spelled in as few digits as tell them apart from other floats, not from doubles.
"""

from __future__ import annotations

import datetime
import decimal
import struct
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from refimpl.actions import Add
from refimpl.client.condition import FLOATS, Bounds, Column, Condition, Nulls, Truth
from refimpl.client.file_statistics import PREFIX_CHARACTERS
from refimpl.client.partition_values import from_text
from refimpl.client.schema import DataType, Decimal, Primitive
from refimpl.errors import CorruptLogError

_UNKNOWN: Final = Bounds()
_ABSENT: Final = "\0absent"
"""Stands for a partition value that an action lacks: no value is spelled so."""
_DECODER: Final = msgspec.json.Decoder(dict[str, Any], float_hook=decimal.Decimal)
_ALMOST_A_MILLISECOND: Final = datetime.timedelta(microseconds=999)


class FileTest:
    """A condition that can be asked of files. Made by `Snapshot.file_test`.

    It remembers what it found for each partition, because a table has many more files than partitions.
    """

    __slots__ = ("_deciding", "_found", "condition", "partition_columns", "partition_only", "text")

    def __init__(self, *, text: str, condition: Condition, partition_columns: tuple[str, ...]) -> None:
        self.text = text
        self.condition = condition
        self.partition_columns = partition_columns
        mentioned = {column.path[0] for column in condition.columns()}
        self._deciding = tuple(name for name in partition_columns if name in mentioned)
        self._found: dict[tuple[str | None, ...], Truth] = {}
        self.partition_only = mentioned <= set(partition_columns)
        """Whether partition values alone decide the condition."""

    def may_match(self, add: Add) -> bool:
        """Whether the file may hold a row for which the condition is true: by partition values and statistics."""
        by_partition = self.may_match_partition(add)
        if self.partition_only or not by_partition:
            return by_partition
        statistics = _Statistics(add.stats)

        def facts(column: Column) -> Bounds:
            if column.path[0] in self.partition_columns:
                return _partition_bounds(add.partition_values, column)
            return statistics.bounds(column)

        return bool(self.condition.possible(facts) & Truth.TRUE)

    def may_match_partition(self, add: Add) -> bool:
        """The same by partition values alone: whether a file of this partition could have been read."""
        return bool(self._by_partition(add.partition_values) & Truth.TRUE)

    def matches_partition(self, partition_values: Mapping[str, str | None]) -> bool | None:
        """SQL's truth of the condition for all rows of a partition; None for NULL.

        Raises `ValueError` where partition values do not decide it.
        """
        truth = self._by_partition(partition_values)
        decided = {Truth.TRUE: True, Truth.FALSE: False, Truth.NULL: None}
        if truth not in decided:
            raise ValueError(f"partition values {dict(partition_values)} do not decide {self.text!r}")
        return decided[truth]

    def _by_partition(self, values: Mapping[str, str | None]) -> Truth:
        key = tuple(values.get(name, _ABSENT) for name in self._deciding)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self.condition.possible(
                lambda column: (
                    _partition_bounds(values, column) if column.path[0] in self.partition_columns else _UNKNOWN
                )
            )
        return found

    def __repr__(self) -> str:
        return f"FileTest({self.text!r})"


def _partition_bounds(values: Mapping[str, str | None], column: Column) -> Bounds:
    name = column.path[0]
    if name not in values:
        return _UNKNOWN
    try:
        value = from_text(values[name], column.type)
        if value is not None and column.type == Primitive(name="float"):
            value = single(value)
    except (CorruptLogError, OverflowError):
        return _UNKNOWN
    if value is None:
        return Bounds(nulls=Nulls.ALL)
    if value != value:
        return Bounds(nulls=Nulls.NONE, nan=True)
    return Bounds(lower=value, upper=value, nulls=Nulls.NONE)


class _Statistics:
    """The statistics of one file, decoded."""

    __slots__ = ("_lower", "_null_counts", "_records", "_upper")

    def __init__(self, text: str | None) -> None:
        try:
            found = _DECODER.decode(text) if text else {}
        except (msgspec.DecodeError, ArithmeticError, RecursionError):
            found = {}
        self._records = found.get("numRecords")
        self._lower = found.get("minValues")
        self._upper = found.get("maxValues")
        self._null_counts = found.get("nullCount")

    def bounds(self, column: Column) -> Bounds:
        return Bounds(
            lower=_lower(_member(self._lower, column), column.type),
            upper=_upper(_member(self._upper, column), column.type),
            nulls=self._nulls(_member(self._null_counts, column)),
            nan=column.type in FLOATS,
        )

    def _nulls(self, count: Any) -> Nulls:
        if type(count) is not int:
            return Nulls.UNKNOWN
        if count == 0:
            return Nulls.NONE
        return Nulls.ALL if count == self._records else Nulls.UNKNOWN


def _member(values: Any, column: Column) -> Any:
    for name in column.path:
        if not isinstance(values, dict):
            return None
        values = values.get(name)
    return values


def _lower(value: Any, kind: DataType) -> Any:
    return _understood(value, kind)


def _upper(value: Any, kind: DataType) -> Any:
    bound = _understood(value, kind)
    if isinstance(bound, str) and len(bound) >= PREFIX_CHARACTERS:
        return None
    if isinstance(bound, datetime.datetime):
        try:
            return bound + _ALMOST_A_MILLISECOND
        except OverflowError:  # nothing later can be said
            return None
    return bound


def _understood(value: Any, kind: DataType) -> Any:
    """The bound as a Python value of the column's type; None if it is not one, or cannot be ordered."""
    try:
        bound = _typed(value, kind)
    except (ValueError, TypeError, ArithmeticError):
        return None
    return None if bound != bound else bound


def _typed(value: Any, kind: DataType) -> Any:
    if value is None or isinstance(value, bool | dict | list):
        return None
    match kind:
        case Primitive(name="string"):
            return value if isinstance(value, str) else None
        case Primitive(name="long" | "integer" | "short" | "byte"):
            return value if isinstance(value, int) else None
        case Primitive(name="double"):
            return float(value)
        case Primitive(name="float"):
            return single(float(value))
        case Decimal():
            return decimal.Decimal(value)
        case Primitive(name="date"):
            return datetime.date.fromisoformat(value)
        case Primitive(name="timestamp"):
            moment = datetime.datetime.fromisoformat(value)
            return moment.astimezone(datetime.UTC) if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
        case Primitive(name="timestamp_ntz"):
            return datetime.datetime.fromisoformat(value).replace(tzinfo=None)
        case _:
            return None


def single(value: float) -> float:
    """The value that a column of single precision holds for this spelling."""
    single: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return single
