"""Conditions on typed columns, in SQL's three-valued logic, evaluated for files by bounds and for rows by Arrow.

For a file, only bounds of the values are known: the single value of a partition column, the statistics of other
columns, or nothing. So a condition has a set of possible truth values for a file, and every operation below
may make that set too large, but never too small:

    a file may hold a matching row        TRUE is possible
    all rows of a file match              only TRUE is possible

Comparisons work as in Spark: strings by code points, NaN above every other number.

The bounds of a file are in its add action: Delta's protocol, "Per-file Statistics". Statistics come
from other writers and have pitfalls; statistics that cannot be decoded are ignored:

- an upper bound of a string may be a prefix of any length, and its last characters may be a replacement for half of a
character or a tie-breaker that is not above all others: the bound is the next string that does not begin with it;
- bounds of timestamps are truncated to milliseconds: the upper one may be too low by almost one millisecond;
- Delta Spark 3.2 and 3.3 cut the offset of a timestamp to minutes, and files that Spark writes in its legacy mode hold
earlier dates of another calendar: the bounds of old timestamps and dates, and those that have an offset or no zone, are
widened;
- some writers leave NaN out of the bounds: a column of floats may hold NaN in spite of its bounds;
- some writers (delta-rs) count the null elements of arrays instead of the null arrays;
- the text of a float has only the digits that distinguish it from other floats, not from doubles: if a column was
widened from float to double, its bounds may come from either type;
- some writers (delta-rs) compute the bounds of decimals as doubles: the bounds of long decimals may be rounded inwards.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import functools
import math
import operator
import re
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from refimpl.protocol.actions import Add
from refimpl.protocol.errors import CorruptLogError
from refimpl.rows.partition_values import from_text, single
from refimpl.schema.schema import FLOATS, Array, DataType, Decimal, Map, Primitive, arrow_type

if TYPE_CHECKING:
    import pyarrow.compute as pc


Truth = int
"""A set of truth values, as bits. Plain numbers, because this is computed for every file of a table, and operations of
`enum.IntFlag` take many times as long."""
NEVER, TRUE, FALSE, NULL = 0, 1, 2, 4


def negated(truth: Truth) -> Truth:
    return truth & NULL | (truth & TRUE) << 1 | (truth & FALSE) >> 1


class Nulls(Enum):
    """How many of a column's values are null."""

    NONE = "none"
    UNKNOWN = "unknown"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of the table, or a member of a struct. `path`: names as the schema spells them."""

    path: tuple[str, ...]
    type: DataType
    physical: tuple[str, ...] = ()
    """The names in statistics and partition values."""
    was_float: bool = False
    """See `refimpl.schema.schema.Field`."""

    def inner(self) -> Column:
        """The same column without the first name of its path."""
        return dataclasses.replace(self, path=self.path[1:], physical=self.physical[1:])


class Bounds(NamedTuple):
    """The known facts of a column in one file: `lower` <= every value that is neither null nor NaN <= `upper`; both are
    `NAN` if every value is NaN. A tuple, because Python creates it in half the time of a frozen dataclass, and each
    file of a table has several."""

    lower: Any = None
    """None: unknown."""
    upper: Any = None
    nulls: Nulls = Nulls.UNKNOWN
    nan: bool = False
    """Whether some values may be NaN."""


@functools.total_ordering
class _NotANumber:
    """NaN in the order of Spark: equal to itself, and above every number."""

    def __eq__(self, other: object) -> bool:
        return other is self

    def __gt__(self, other: object) -> bool:
        return other is not self

    __hash__ = object.__hash__


NAN: Final = _NotANumber()


Facts = Callable[[Column], Bounds]


def truths(*, can_be_true: bool, can_be_false: bool, nulls: Nulls) -> Truth:
    if nulls is Nulls.ALL:
        return NULL
    possible = NEVER if nulls is Nulls.NONE else NULL
    if can_be_true:
        possible |= TRUE
    if can_be_false:
        possible |= FALSE
    return possible


class Operator(Enum):
    EQUAL = "="
    LESS = "<"
    LESS_OR_EQUAL = "<="

    def apply(self, left: Any, right: Any) -> Any:
        """`left operator right`, of Arrow's expressions too."""
        return {"=": operator.eq, "<": operator.lt, "<=": operator.le}[self.value](left, right)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`column operator value`. The other operators are negations of these."""

    column: Column
    operator: Operator
    value: Any
    """A value of the column's Python type; never null or NaN."""

    def possible(self, facts: Facts) -> Truth:
        known = facts(self.column)
        lower, upper, value = known.lower, known.upper, self.value
        match self.operator:
            case Operator.LESS:
                can_be_true = lower is None or lower < value
                can_be_false = upper is None or upper >= value or known.nan
            case Operator.LESS_OR_EQUAL:
                can_be_true = lower is None or lower <= value
                can_be_false = upper is None or upper > value or known.nan
            case Operator.EQUAL:
                can_be_true = (lower is None or lower <= value) and (upper is None or value <= upper)
                can_be_false = lower is None or upper is None or not lower == upper == value or known.nan
        return truths(can_be_true=can_be_true, can_be_false=can_be_false, nulls=known.nulls)

    def to_arrow(self) -> pc.Expression:
        return self.operator.apply(_field(self.column), _scalar(self.column, self.value))

    def columns(self) -> Iterator[Column]:
        yield self.column


def compared(column: Column, operator: Operator, value: Any) -> Comparison:
    """`column operator value`, with a value that the column can hold.

    A literal may have more digits than a column of integers or decimals, or lie outside its range. Then the
    comparison uses the next lower value, or is never true.
    """
    if not is_exact(column.type):
        return Comparison(column=column, operator=operator, value=value)
    below = next_below(value, column.type)
    if below == value:
        return Comparison(column=column, operator=operator, value=below)
    if below is None or operator is Operator.EQUAL:
        return Comparison(column=column, operator=Operator.LESS, value=_extent(column.type)[0])
    return Comparison(column=column, operator=Operator.LESS_OR_EQUAL, value=below)


def compared_in_double(column: Column, operator: Operator, value: float) -> Condition:
    """`column operator value`, as Spark compares an exact type with a double: by the doubles nearest to its numbers.

    The numbers whose nearest double is `value` lie between two limits, half-way to the doubles beside it.
    """
    with decimal.localcontext(prec=_DIGITS_OF_A_LIMIT):
        beside = (decimal.Decimal(math.nextafter(value, end)) for end in (-math.inf, math.inf))
        low, high = ((decimal.Decimal(value) + other) / 2 for other in beside)
    less = compared(column, Operator.LESS if float(low) == value else Operator.LESS_OR_EQUAL, low)
    at_most = compared(column, Operator.LESS_OR_EQUAL if float(high) == value else Operator.LESS, high)
    match operator:
        case Operator.LESS:
            return less
        case Operator.LESS_OR_EQUAL:
            return at_most
        case Operator.EQUAL:
            return And(operands=(Not(operand=less), at_most))


_DIGITS_OF_A_LIMIT: Final = 1100
"""No double, and no number half-way between two doubles, has more digits."""


def is_exact(kind: DataType) -> bool:
    """Whether a type holds numbers exactly: integers and decimals."""
    return isinstance(kind, Decimal) or (isinstance(kind, Primitive) and kind.name in _BITS)


def next_below(value: decimal.Decimal, kind: DataType) -> int | decimal.Decimal | None:
    """The greatest number of an exact type that is not greater than `value`; None if all are greater."""
    lowest, highest = _extent(kind)
    if value < lowest:
        return None
    if value >= highest:
        return highest
    if isinstance(kind, Decimal):
        return value.quantize(decimal.Decimal(1).scaleb(-kind.scale), decimal.ROUND_FLOOR, _WIDE)
    return math.floor(value)


def _extent(kind: DataType) -> tuple[int, int] | tuple[decimal.Decimal, decimal.Decimal]:
    """The least and the greatest number of an exact type."""
    if isinstance(kind, Decimal):
        highest = decimal.Decimal(10**kind.precision - 1).scaleb(-kind.scale, _WIDE)
        return highest.copy_negate(), highest
    assert isinstance(kind, Primitive)
    half = 2 ** (_BITS[kind.name] - 1)
    return -half, half - 1


_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_WIDE: Final = decimal.Context(prec=76)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnComparison:
    """`left operator right`, two columns of one type, or of numbers."""

    left: Column
    operator: Operator
    right: Column

    def possible(self, facts: Facts) -> Truth:
        left, right = facts(self.left), facts(self.right)
        if Nulls.ALL in (left.nulls, right.nulls):
            return NULL
        nulls = Nulls.NONE if left.nulls is right.nulls is Nulls.NONE else Nulls.UNKNOWN
        if (self.left.type in FLOATS) is not (self.right.type in FLOATS):
            left, right = _in_double(left), _in_double(right)
        if any(side.nan and side.lower is not NAN for side in (left, right)):
            return truths(can_be_true=True, can_be_false=True, nulls=nulls)
        match self.operator:
            case Operator.LESS:
                can_be_true = _ordered(left.lower, right.upper, strictly=True)
                can_be_false = _ordered(right.lower, left.upper)
            case Operator.LESS_OR_EQUAL:
                can_be_true = _ordered(left.lower, right.upper)
                can_be_false = _ordered(right.lower, left.upper, strictly=True)
            case Operator.EQUAL:
                can_be_true = _ordered(left.lower, right.upper) and _ordered(right.lower, left.upper)
                can_be_false = left.lower is None or not left.lower == left.upper == right.lower == right.upper
        return truths(can_be_true=can_be_true, can_be_false=can_be_false, nulls=nulls)

    def to_arrow(self) -> pc.Expression:
        from refimpl.rows.arrow_columns import comparable

        left, right = _field(self.left), _field(self.right)
        left_type, right_type = arrow_type(self.left.type), arrow_type(self.right.type)
        floats = self.left.type in FLOATS or self.right.type in FLOATS
        if floats:  # as in Spark; without the cast, Arrow rejects integers that a double cannot hold
            left, right = (side.cast("float64", safe=False) for side in (left, right))
        elif left_type != right_type:
            left, right = comparable([left, right], [left_type, right_type])
        plain = self.operator.apply(left, right)
        if not floats:
            return plain
        match self.operator:
            case Operator.EQUAL:
                return plain | (left.is_nan() & right.is_nan())
            case Operator.LESS:
                return plain | (~left.is_nan() & right.is_nan())
            case Operator.LESS_OR_EQUAL:
                return plain | (right.is_nan() & left.is_valid())

    def columns(self) -> Iterator[Column]:
        yield self.left
        yield self.right


def _in_double(known: Bounds) -> Bounds:
    """The bounds in double precision, in which rows are compared. Bounds that differ become unknown, because the
    conversion of long decimals may change their order."""
    if known.lower is NAN:
        return known
    value = None if known.lower is None or known.lower != known.upper else float(known.lower)
    return known._replace(lower=value, upper=value)


def _ordered(low: Any, high: Any, *, strictly: bool = False) -> bool:
    """Whether a value of at least `low` may be less than, or equal to, one of at most `high`; None: unknown."""
    return low is None or high is None or low < high or (low == high and not strictly)


@dataclass(frozen=True, slots=True, kw_only=True)
class OneOf:
    """`column IN (values)` for many sorted values; for files only, because rows are joined instead."""

    column: Column
    values: Sequence[Any]

    def possible(self, facts: Facts) -> Truth:
        known = facts(self.column)
        first = 0 if known.lower is None else bisect_left(self.values, known.lower)
        reaches = first < len(self.values) and (known.upper is None or self.values[first] <= known.upper)
        return truths(can_be_true=reaches or known.nan, can_be_false=True, nulls=known.nulls)

    def to_arrow(self) -> pc.Expression:
        return _field(self.column).isin(self.values)

    def columns(self) -> Iterator[Column]:
        yield self.column


@dataclass(frozen=True, slots=True, kw_only=True)
class IsNull:
    """`column IS NULL`: true or false, never null."""

    column: Column

    def possible(self, facts: Facts) -> Truth:
        match facts(self.column).nulls:
            case Nulls.ALL:
                return TRUE
            case Nulls.NONE:
                return FALSE
            case Nulls.UNKNOWN:
                return TRUE | FALSE

    def to_arrow(self) -> pc.Expression:
        return _field(self.column).is_null()

    def columns(self) -> Iterator[Column]:
        yield self.column


@dataclass(frozen=True, slots=True, kw_only=True)
class Like:
    """`column LIKE pattern`, with the text before the first wildcard, and the whole pattern as an expression."""

    column: Column
    prefix: str
    pattern: re.Pattern[str]

    def possible(self, facts: Facts) -> Truth:
        known = facts(self.column)
        lower, upper, size = known.lower, known.upper, len(self.prefix)
        if lower is not None and lower == upper:
            matches = self.pattern.fullmatch(lower) is not None
            return truths(can_be_true=matches, can_be_false=not matches, nulls=known.nulls)
        reaches = (lower is None or lower[:size] <= self.prefix) and (upper is None or upper[:size] >= self.prefix)
        return truths(can_be_true=reaches, can_be_false=True, nulls=known.nulls)

    def to_arrow(self) -> pc.Expression:
        import pyarrow.compute as pc

        return pc.match_substring_regex(_field(self.column), f"^(?s:{self.pattern.pattern})$")

    def columns(self) -> Iterator[Column]:
        yield self.column


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """TRUE, FALSE, or None for NULL."""

    value: bool | None

    def possible(self, facts: Facts) -> Truth:  # noqa: ARG002 - the same for every file
        return {True: TRUE, False: FALSE, None: NULL}[self.value]

    def to_arrow(self) -> pc.Expression:
        import pyarrow.compute as pc

        from refimpl.rows.arrow_columns import scalar

        return pc.scalar(scalar(self.value, arrow_type(Primitive(name="boolean"))))

    def columns(self) -> Iterator[Column]:
        yield from ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Not:
    operand: Condition

    def possible(self, facts: Facts) -> Truth:
        return negated(self.operand.possible(facts))

    def to_arrow(self) -> pc.Expression:
        return ~self.operand.to_arrow()

    def columns(self) -> Iterator[Column]:
        return self.operand.columns()


@dataclass(frozen=True, slots=True, kw_only=True)
class And:
    operands: tuple[Condition, ...]

    def possible(self, facts: Facts) -> Truth:
        in_all, in_any = TRUE, NEVER
        for operand in self.operands:
            truth = operand.possible(facts)
            if truth == FALSE:
                return FALSE
            in_all &= truth
            in_any |= truth
        return in_all | in_any & (FALSE | NULL)  # no operand is always false, so NULL stays possible

    def to_arrow(self) -> pc.Expression:
        pending = deque(operand.to_arrow() for operand in self.operands)
        while len(pending) > 1:  # a balanced tree: Arrow descends into expressions by recursion
            pending.append(pending.popleft() & pending.popleft())
        return pending[0]

    def columns(self) -> Iterator[Column]:
        for operand in self.operands:
            yield from operand.columns()


def either(*operands: Condition) -> Condition:
    """OR, from AND and NOT by De Morgan's law, which holds in three-valued logic too."""
    return Not(operand=And(operands=tuple(Not(operand=operand) for operand in operands)))


Condition = Comparison | ColumnComparison | OneOf | IsNull | Like | Constant | Not | And


def _field(column: Column) -> pc.Expression:
    import pyarrow.compute as pc

    return pc.field(*column.path)


def _scalar(column: Column, value: Any) -> pc.Expression:
    import pyarrow.compute as pc

    from refimpl.rows.arrow_columns import scalar

    # double precision, like the literal: a float column is widened for the comparison
    kind = Primitive(name="double") if column.type in FLOATS else column.type
    return pc.scalar(scalar(value, arrow_type(kind)))


_ABSENT: Final = "\0absent"
"""Placeholder for a partition value that an action lacks; no partition value has this text."""
_DECODER: Final = msgspec.json.Decoder(dict[str, Any], float_hook=decimal.Decimal)
_DIGITS_OF_A_DOUBLE: Final = 15
"""A decimal with at most this many digits is the same after a conversion to a double and back."""
_ERROR_OF_A_DOUBLE: Final = decimal.Decimal(2) ** -46
"""Larger than the relative error of a bound that a writer computed with a few operations on doubles."""
_ALMOST_A_MILLISECOND: Final = datetime.timedelta(microseconds=999)
_MINUTE: Final = datetime.timedelta(minutes=1)
_LONGEST_OFFSET: Final = datetime.timedelta(hours=18)
_EXACT_SINCE: Final = datetime.datetime(1972, 1, 8, tzinfo=datetime.UTC)
"""Since then, the offsets of all time zones are whole minutes."""
_EXACT_DAYS_SINCE: Final = datetime.date(1582, 10, 15)
_CALENDARS: Final = datetime.timedelta(days=12)
"""More than the difference between the Julian and the Gregorian calendar from year 1 to 1582."""
_OLD_TIMES: Final = (
    (datetime.datetime(1582, 10, 15, tzinfo=datetime.UTC), _CALENDARS),
    (datetime.datetime(1900, 1, 1, tzinfo=datetime.UTC), datetime.timedelta(days=1)),
    (_EXACT_SINCE, _MINUTE),
)
"""By how much a time before each limit may differ from its bound. Before 1900, Spark's legacy mode also uses other
offsets of time zones."""
_NOT_AT_THE_END: Final = "?\ufffd\ufffe\uffff\U0010ffff"
"""Characters that a writer may have put at the end of a truncated upper bound."""


class FileTest:
    """A condition that is evaluated for files. Made by `Snapshot.file_test`.

    Remembers the result for each partition, because a table has many more files than partitions.
    """

    __slots__ = ("_deciding", "_truths", "condition", "partition_columns", "partition_only", "text")

    def __init__(self, *, text: str, condition: Condition, partition_columns: tuple[str, ...]) -> None:
        self.text = text
        self.condition = condition
        self.partition_columns = partition_columns
        mentioned = {column.path[0]: column.physical[0] for column in condition.columns()}
        self._deciding = tuple(mentioned[name] for name in partition_columns if name in mentioned)
        self._truths: dict[tuple[str | None, ...], Truth] = {}
        self.partition_only = mentioned.keys() <= set(partition_columns)
        """Whether partition values alone decide the condition."""

    def may_match(self, add: Add) -> bool:
        """Whether the file may hold a row for which the condition is true: by partition values and statistics."""
        by_partition = self.may_match_partition(add)
        if self.partition_only or not by_partition:
            return by_partition
        statistics = Statistics(add.stats)

        def facts(column: Column) -> Bounds:
            if column.path[0] in self.partition_columns:
                return _partition_bounds(add.partition_values, column)
            return statistics.bounds(column)

        return bool(self.condition.possible(facts) & TRUE)

    def may_match_partition(self, add: Add) -> bool:
        """`may_match` by partition values alone: whether a file of this partition could have been read."""
        return bool(self._by_partition(add.partition_values) & TRUE)

    def matches_partition(self, partition_values: Mapping[str, str | None]) -> bool | None:
        """SQL's truth of a condition on partition columns only, for all rows of a partition; None for NULL.

        Raises `CorruptLogError` for missing or invalid partition values that do not decide it.
        """
        truth = self._by_partition(partition_values)
        decided = {TRUE: True, FALSE: False, NULL: None}
        if truth not in decided:
            raise CorruptLogError(
                f"partition values {dict(partition_values)} do not decide {self.text!r}; expected a valid value "
                f"of each of its columns"
            )
        return decided[truth]

    def _by_partition(self, values: Mapping[str, str | None]) -> Truth:
        key = tuple([values.get(name, _ABSENT) for name in self._deciding])
        truth = self._truths.get(key)
        if truth is None:
            truth = self._truths[key] = self.condition.possible(lambda column: _partition_bounds(values, column))
        return truth

    def __repr__(self) -> str:
        return f"FileTest({self.text!r})"


def _partition_bounds(values: Mapping[str, str | None], column: Column) -> Bounds:
    name = column.physical[0]
    unknown = Bounds(nan=column.type in FLOATS)
    if name not in values:
        return unknown
    try:
        value = from_text(values[name], column.type)
    except CorruptLogError:
        return unknown
    if value is None:
        return Bounds(nulls=Nulls.ALL)
    if value != value:
        return Bounds(lower=NAN, upper=NAN, nulls=Nulls.NONE, nan=True)
    return Bounds(lower=value, upper=value, nulls=Nulls.NONE)


class Statistics:
    """The statistics of one file, decoded."""

    __slots__ = ("_lower", "_null_counts", "_records", "_upper")

    def __init__(self, text: str | None) -> None:
        try:
            statistics = _DECODER.decode(text) if text else {}
        except (msgspec.DecodeError, ArithmeticError, RecursionError):
            statistics = {}
        self._records = statistics.get("numRecords")
        self._lower = statistics.get("minValues")
        self._upper = statistics.get("maxValues")
        self._null_counts = statistics.get("nullCount")

    def bounds(self, column: Column) -> Bounds:
        lower = _bound(_member(self._lower, column), column, -1)
        upper = _bound(_member(self._upper, column), column, 1)
        nulls = self._nulls(column)
        if lower is not None or upper is not None:
            if nulls is Nulls.ALL:  # a contradiction proves nothing
                nulls = Nulls.UNKNOWN
            if lower is not None and upper is not None and lower > upper:
                lower = upper = None
        return Bounds(lower=lower, upper=upper, nulls=nulls, nan=column.type in FLOATS)

    def _nulls(self, column: Column) -> Nulls:
        count = _member(self._null_counts, column)
        if type(count) is not int:
            return Nulls.UNKNOWN
        if count == 0:
            return Nulls.NONE
        all_null = count == self._records and type(self._records) is int and not isinstance(column.type, Array | Map)
        return Nulls.ALL if all_null else Nulls.UNKNOWN


def _member(values: Any, column: Column) -> Any:
    for name in column.physical:
        if not isinstance(values, dict):
            return None
        values = values.get(name)
    return values


def _bound(value: Any, column: Column, direction: int) -> Any:
    """A bound as a Python value of the column's type, widened by what its writer may have cut off; None if it is
    invalid or cannot be ordered. `direction`: -1 for a lower bound, 1 for an upper one."""
    if value is None:
        return None
    try:
        bound = _typed(value, column, direction)
    except (ValueError, TypeError, ArithmeticError):
        return None
    return None if bound != bound else bound


def _typed(value: Any, column: Column, direction: int) -> Any:
    kind = column.type
    if isinstance(value, bool | dict | list):
        return None
    if isinstance(kind, Decimal):
        number = decimal.Decimal(_plain(value))
        if not number.is_finite() or kind.precision <= _DIGITS_OF_A_DOUBLE:
            return number if number.is_finite() else None
        return number + direction * abs(number) * _ERROR_OF_A_DOUBLE
    match kind.name if isinstance(kind, Primitive) else None:
        case "long" | "integer" | "short" | "byte" as name:
            half = 1 << (_BITS[name] - 1)
            return value if isinstance(value, int) and -half <= value < half else None
        case "string":
            return _text(value, direction) if isinstance(value, str) else None
        case "double":
            double = float(_plain(value))
            if column.was_float:  # the digits of a float are not those of the double that it becomes
                return max(double, single(double)) if direction > 0 else min(double, single(double))
            return double
        case "float":
            return single(float(_plain(value)))
        case "date":
            day = datetime.date.fromisoformat(value)
            return day if day >= _EXACT_DAYS_SINCE else day + direction * _CALENDARS
        case "timestamp":
            moment = datetime.datetime.fromisoformat(value)
            if moment.tzinfo is None:
                return _widened(moment.replace(tzinfo=datetime.UTC), _LONGEST_OFFSET, direction)
            return _widened(moment.astimezone(datetime.UTC), None if value[-1] == "Z" else _MINUTE, direction)
        case "timestamp_ntz":
            moment = datetime.datetime.fromisoformat(value)
            if moment.utcoffset():  # of the wall clock's time, or to be added to it
                return None
            return _widened(moment.replace(tzinfo=datetime.UTC), None, direction).replace(tzinfo=None)
        case _:
            return None


def _plain(value: Any) -> Any:
    """The value, unless it is a text like `1_000` or has digits of other scripts, which Python takes for a number."""
    return None if isinstance(value, str) and ("_" in value or not value.isascii()) else value


def _text(value: str, direction: int) -> str | None:
    if direction < 0:
        return value.rstrip("\ufffd")
    prefix = value.rstrip(_NOT_AT_THE_END)
    return prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix else None


def _widened(moment: datetime.datetime, slack: datetime.timedelta | None, direction: int) -> datetime.datetime:
    if moment < _EXACT_SINCE:
        least = next(least for limit, least in _OLD_TIMES if moment < limit)
        slack = least if slack is None else max(slack, least)
    if slack is not None:
        moment += direction * slack
    return moment + _ALMOST_A_MILLISECOND if direction > 0 else moment
