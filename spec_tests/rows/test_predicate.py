"""Conditions in SQL: the accepted syntax, three-valued logic, pruning by partition values and statistics.

Properties compare with DuckDB, which orders values as Spark does: strings by code points, NaN above every number.
"""

import datetime
import decimal
import json
import math
import operator
import re
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.protocol.actions import Add
from refimpl.protocol.errors import CorruptLogError, InvalidRequestError
from refimpl.rows import partition_values
from refimpl.rows.condition import FileTest
from refimpl.rows.expression import condition as condition_on_rows
from refimpl.rows.expression import matching
from refimpl.rows.expression import value as value_of
from refimpl.rows.predicate import Sides, file_test
from refimpl.rows.predicate import condition as condition_of
from refimpl.schema.schema import Primitive, Struct, from_arrow, to_arrow
from refimpl.schema.schema import parse as parse_schema

TYPES = {
    "i": "integer", "l": "long", "s": "string", "d": "date", "t": "timestamp", "n": "timestamp_ntz", "f": "float",
    "g": "double", "b": "boolean", "x": "binary", "m": "decimal(10,2)",
    "p": "string", "q": "integer", "r": "date", "u": "double", "v": "timestamp",
}  # fmt: skip
PARTITION_COLUMNS = ("p", "q", "r", "u", "v")


def field(name: str, kind: object) -> dict[str, object]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


NESTED = {"type": "struct", "fields": [field("Inner", "long")]}
SCHEMA: Struct = parse_schema(
    json.dumps({"type": "struct", "fields": [*(field(n, k) for n, k in TYPES.items()), field("st", NESTED)]})
)


def test_of(text: str) -> FileTest:
    return file_test(text, SCHEMA, PARTITION_COLUMNS)


test_of.__test__ = False  # type: ignore[attr-defined]


def add(*, stats: dict[str, Any] | str | None = None, **partition_values: str | None) -> Add:
    text = stats if isinstance(stats, str) or stats is None else json.dumps(stats)
    return Add(path="f", size=1, modification_time=0, data_change=True, partition_values=partition_values, stats=text)


def stats(column: str, low: Any = None, high: Any = None, *, nulls: int | None = 0, records: int = 10) -> Add:
    fields: dict[str, Any] = {"numRecords": records}
    if low is not None:
        fields["minValues"] = {column: low}
    if high is not None:
        fields["maxValues"] = {column: high}
    if nulls is not None:
        fields["nullCount"] = {column: nulls}
    return add(stats=fields)


def truth(text: str, **values: str | None) -> bool | None:
    return test_of(text).matches_partition(values)


VALUES: list[tuple[str, dict[str, str], bool | None]] = [
    ("p IS NULL", {"p": ""}, True), ("p = ''", {"p": ""}, None),  # DELTA.md#partition-values
    ("u = 1.1F", {"u": "1.1"}, False), ("u = 1.1F", {"u": "1.100000023841858"}, True), ("u = 1.1D", {"u": "1.1"}, True),
    ("q > 9", {"q": "10"}, True), ("r < '2013-10-01'", {"r": "2013-09-30"}, True),
    ("r = DATE '2013-09-30'", {"r": "2013-09-30"}, True), ("u = 1e1", {"u": "10.0"}, True),
    ("v = '2020-01-01T02:00:00+02:00'", {"v": "2020-01-01 00:00:00"}, True),
    ("v < TIMESTAMP '2020-01-01 00:00:01'", {"v": "2020-01-01T00:00:00.500Z"}, True),
    *((text, {"u": "NaN"}, True) for text in ("u > 5", "NOT u < 5", "u <> 5", "u IS NOT NULL", "u > '1e999'")),
    *((f"NOT ({text})", {"u": "NaN"}, False) for text in ("u > 5", "u <> 5", "u IS NOT NULL", "u <> '1e999'")),
    ("u > '1e999'", {"u": "Infinity"}, False), ("Q = 3", {"q": "3"}, True), ("`Q` = 3", {"q": "3"}, True),
]  # fmt: skip


class TestThreeValuedLogicOnPartitionValues:
    @pytest.mark.parametrize(("text", "values", "expected"), VALUES)
    def test_values_are_compared_as_their_types(self, text: str, values: dict[str, str], expected: bool | None) -> None:
        """NaN is above every number."""
        assert truth(text, **values) is expected

    def test_an_invalid_partition_value_may_match(self) -> None:
        test = test_of("q = 3")
        assert test.may_match(add(q="three"))
        assert test.may_match(add())
        assert not test.may_match(add(q="4"))

    def test_invalid_partition_values_may_leave_a_condition_undecided(self) -> None:
        with pytest.raises(CorruptLogError):
            truth("q = 3 AND p = 'a'", q="three", p="a")
        assert truth("q = 3 AND p = 'a'", q="three", p="b") is False


class TestPartitionOnly:
    @pytest.mark.parametrize(
        ("text", "alone"),
        [
            ("q = 3", True), ("Q = 3 AND p LIKE 'a%'", True), ("TRUE", True), ("l = 3", False),
            ("q = 3 AND l = 1", False), ("st.inner = 1", False),
        ],
    )  # fmt: skip
    def test_some_conditions_are_on_partition_columns_alone(self, text: str, alone: bool) -> None:
        assert test_of(text).partition_only is alone

    def test_a_whole_partition_is_tested_by_its_values_alone(self) -> None:
        test = test_of("q = 3 AND l > 100")
        file = add(q="3", stats={"numRecords": 1, "minValues": {"l": 1}, "maxValues": {"l": 2}})
        assert test.may_match_partition(file)
        assert not test.may_match(file)
        assert not test.may_match_partition(add(q="4"))

    def test_a_struct_member_is_not_the_partition_column_of_its_name(self) -> None:
        inner = {"type": "struct", "fields": [field("q", "long")]}
        schema = parse_schema(json.dumps({"type": "struct", "fields": [field("q", "integer"), field("st", inner)]}))
        test = file_test("q = 1 AND st.q = 3", schema, ("q",))
        bounds = {"st": {"q": 3}}, {"st": {"q": 4}}
        files = [add(q=q, stats={"minValues": bound, "maxValues": bound}) for q in "21" for bound in bounds]
        assert [test.may_match(file) for file in files] == [False, False, True, False]
        assert not test.partition_only


TEN_TO_TWENTY = stats("l", 10, 20)
MILLISECOND = stats("t", "2020-01-01T00:00:00.000Z", "2020-01-01T00:00:00.123Z")
LATEST = stats("t", "9999-12-31T23:59:59.000000Z", "9999-12-31T23:59:59.999999Z")
EXACT_DECIMAL = add(stats='{"numRecords":1,"minValues":{"m":0.10},"maxValues":{"m":0.10},"nullCount":{"m":0}}')
BOUNDED: dict[str, tuple[Add, str, str]] = {
    "a range": (
        TEN_TO_TWENTY,
        "l = 10; l = 15; l = 20; l < 11; l <= 10; l > 19; l >= 20; l <> 15; l IN (1, 12); NOT (l < 5 OR l > 50); "
        "l IS NOT NULL; l = 15 OR l = 5",
        "l = 5; l = 21; l < 10; l <= 9; l > 20; l >= 21; l IN (1, 2); l BETWEEN 21 AND 30; NOT l > 5; l IS NULL; "
        "l = 15 AND l = 5; l = NULL",
    ),
    "one value": (stats("l", 5, 5), "l = 5", "l <> 5"),
    "two values": (stats("l", 5, 6), "l <> 5", "l = 7"),
    "a lower bound alone": (stats("l", low=5), "l > 500", "l < 5"),
    "only nulls": (stats("l", nulls=10), "l IS NULL", "l = 5; l <> 5; l IS NOT NULL"),
    "an unknown number of nulls": (stats("l", 1, 2, nulls=None), "l IS NULL; l IS NOT NULL", "l = 3"),
    "a prefix": (
        stats("s", "kiwi", "mango"),
        "s LIKE 'l%'; s LIKE 'kiwi%'; s LIKE 'ki%'; s LIKE 'mangos%'; s LIKE '%z'; s NOT LIKE 'l%'",
        "s LIKE 'mangq_%'; s LIKE 'a%'; s LIKE 'z%'; s LIKE 'a\\\\%%'",
    ),
    "a time that was cut": (MILLISECOND, "t = '2020-01-01 00:00:00.123999'", "t = '2020-01-01 00:00:00.124'"),
    "the last time": (LATEST, "t = '9999-12-31 23:59:59.999999'", "t < '9999-01-01 00:00:00'"),
    "floats, of which some may be NaN": (stats("f", 1.0, 2.0), "f > 5; NOT f <= 5", "f < 1; f = 5"),
    "doubles, of which some may be NaN": (stats("g", 1.0, 2.0), "g > 5; NOT g <= 5", "g < 1; g = 5"),
    "a text in place of a bound": (stats("g", "NaN", "NaN"), "g > 5", "g IS NULL"),
    "a float in its own digits": (stats("f", 0.1, 0.1), "f = 0.10000000149011612", "f = 0.1"),
    "a float beyond its type": (stats("f", 1e39, 1e39), "f > 5", "f < 5"),
    "a decimal": (EXACT_DECIMAL, "m = 0.1", "m <> 0.1; m = 0.1000000000000000055"),
    "a member of a struct": (
        add(stats={"numRecords": 1, "minValues": {"st": {"Inner": 5}}, "maxValues": {"st": {"Inner": 6}}}),
        "st.inner = 5",
        "ST.INNER = 7",
    ),
    "booleans, which have no bounds": (stats("b", "false", "false"), "b", "b IS NULL"),
    "bytes, which have no bounds": (stats("x", "a", "b"), "x = X'FF'; x = X''", "x IS NULL"),
}
"""Files with the conditions that may match a row, and with those that cannot."""


class TestStatistics:
    @pytest.mark.parametrize(("file", "may", "cannot"), BOUNDED.values(), ids=BOUNDED)
    def test_bounds_decide(self, file: Add, may: str, cannot: str) -> None:
        assert [text for text in may.split("; ") if not test_of(text).may_match(file)] == []
        assert [text for text in cannot.split("; ") if test_of(text).may_match(file)] == []

    @pytest.mark.parametrize(
        "text",
        [
            "", "{", "[]", "{}", '{"minValues":3}', '{"minValues":{"l":{}}}', '{"maxValues":{"l":"x"}}',
            '{"numRecords":true,"nullCount":{"l":true}}', '{"minValues":' + "[" * 100_000,
        ],
        ids=lambda text: text[:30],
    )  # fmt: skip
    def test_missing_statistics_may_match(self, text: str) -> None:
        for condition in ("l = 5", "l < 5", "l > 5", "l IS NULL", "l IS NOT NULL"):
            assert test_of(condition).may_match(add(stats=text))

    @pytest.mark.parametrize("end", ["", "?", "\ufffd", "\U0010ffff", "\uffff\ufffd", "?\ufffd"])
    @pytest.mark.parametrize("length", [1, 8, 32])
    def test_the_bounds_of_a_string_may_be_prefixes(self, length: int, end: str) -> None:
        """DELTA.md#truncated-statistics: some writers truncate bounds without rounding up, or in half of a character,
        or round up in the order of UTF-16."""
        prefix = "a" * length
        file = stats("s", f"{prefix}\ufffd", prefix + end)
        assert test_of(f"s = '{prefix}\U0001f600'").may_match(file)
        assert test_of(f"s = '{prefix}b'").may_match(file)
        assert not test_of("s > 'bb'").may_match(file)
        assert not test_of("s = 'B'").may_match(file)
        assert test_of("s > 'bb'").may_match(stats("s", "a", end))

    def test_numbers_beyond_single_precision_are_infinite(self) -> None:
        """As in Java and Spark."""
        assert partition_values.from_text("-1e39", Primitive(name="float")) == -math.inf
        with pytest.raises(InvalidRequestError, match="too large"):
            test_of("f = 1e39F")

    def test_bounds_of_long_decimals_may_be_rounded_doubles(self) -> None:
        """delta-rs 1.6 wrote these bounds for the two values."""
        schema = from_arrow(pa.schema([("w", pa.decimal128(38, 2))]))
        for value, bound in (("12345678901234567.89", "1.2345678901234568e+16"), (f"{'9' * 36}.99", "1e+36")):
            file = add(stats=f'{{"numRecords":1,"minValues":{{"w":{bound}}},"maxValues":{{"w":{bound}}}}}')
            near = [f"w {sign} {value}" for sign in ("=", "<=", ">=")]
            assert all(file_test(text, schema, ()).may_match(file) for text in near)
            assert not file_test("w < 1", schema, ()).may_match(file)
        for wrong in ("Infinity", "-Infinity", "NaN", "sNaN"):
            file = add(stats=f'{{"minValues":{{"w":"{wrong}"}},"maxValues":{{"w":"{wrong}"}}}}')
            assert file_test("w = 1", schema, ()).may_match(file)


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        "text",
        [
            "", "   ", "q =", "q = 3; q = 4", "q = 3; DROP TABLE t", "SELECT 1", "q = p", "q + 1 = 3", "q < rand()",
            "lower(p) = 'a'", "p RLIKE 'a'", "p ILIKE 'a'", "q IN (SELECT 1)", "1 = 1", "p = 'it''s'",
            "u = CAST('NaN' AS DOUBLE)",
            "EXISTS (SELECT 1)", "q IS DISTINCT FROM 3", "CASE WHEN q = 1 THEN TRUE END", "p LIKE q",
            "q BETWEEN SYMMETRIC 3 AND 1", "p LIKE ANY ('a', 'b')", "q = 1.e", "q = 'NaN'", "q < 'Infinity'",
            "q = CAST(1.7 AS INT)", "q = CAST(300 AS TINYINT)", "m = CAST(1.256 AS DECIMAL(3,2))",
            "m = CAST(1.5 AS DECIMAL)", "u < CAST(1e300 AS FLOAT)", "q = CAST('three' AS INT)",
            "q = 'three'", "q >= '1.5'", "q = '1_000'", "u = '1_0'", "q = '\u0663'", "q = CAST('1_0' AS INT)",
            "r = '20200101'", "r = DATE '2020-W01-1'", "v = '2020-01-01x10:00'", "v = TIMESTAMP '20200101'",
            "p = 5", "r = 5", "r = '2020-01-01 10:00:00'", "b = 1", "st = 1", "q LIKE 'a'", "x = 'a'",
            "q = TRUE", "r = DATE 'someday'", "r > TIMESTAMP '2026-01-05 00:00:00+05:00'",
            "n > TIMESTAMP '2026-01-05 00:00:00+05:00'",
        ],
    )  # fmt: skip
    def test_unsupported_syntax_or_a_literal_of_another_type_is_an_error(self, text: str) -> None:
        with pytest.raises(InvalidRequestError):
            test_of(text)

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("1 < rand()", "is not deterministic"),
            ("q = 3 OR uuid() = p", "is not deterministic"),
            ("q = CAST(1.7 AS INT)", "changes the number 1.7"),
            ("q = CAST('three' AS INT)", "is not a number"),
            ("q", "is not a condition: the column is integer"),
            ("p = 1", r"the column p is string, not 1$"),
            ("p || 'a' = 'b'", r"\"p \|\| 'a'\" at position 1 is not supported in a condition; expected comparisons"),
            ("q * 2 > 1", r"'q \* 2' at position 1 is not the name of a column"),
            ("q = = 3", r"is not SQL: an operand is missing \(line 1, column 5\)"),
            ("q = 3 AND p = 'a", r"is not SQL: missing ' \(position 15\)"),
            ("q = 3 /* three", r"is not SQL: it ends too early \(position 14\)"),
            (5, "expected SQL text, such as 'id = 5', not 5"),
            ("nonsuch = 3", r"is not a column; expected i, l, .*, st$"),
        ],
    )
    def test_the_message_says_what_is_wrong(self, text: str, problem: str) -> None:
        with pytest.raises(InvalidRequestError, match=problem):
            test_of(text)

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("s || 1", "s is string, 1 is a number; expected strings"),
            ("i * (m + s)", "m is decimal(10,2), s is string; expected numbers"),
            ("-b", "b is boolean; expected numbers"),
            ("upper(l)", "l is long; expected strings"),
            ("year(s)", "s is string; expected a date or a timestamp"),
            ("hour(d)", "d is date; expected a timestamp"),
            ("coalesce(d, 'someday')", "d is date, 'someday' is string; expected values of one type"),
            ("CASE WHEN b THEN s WHEN i > 1 THEN NULL ELSE f END", "s is string, NULL is null, f is float; expected"),
        ],
    )
    def test_the_error_for_an_operand_names_its_type(self, text: str, problem: str) -> None:
        for bind in (lambda: value_of(text, SCHEMA["s"], SCHEMA), lambda: condition_on_rows(f"{text} = l + 1", SCHEMA)):
            with pytest.raises(InvalidRequestError, match=f"the expression .* does not fit: {re.escape(problem)}"):
                bind()

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("q BETWEEN SYMMETRIC 3 AND 1", "not supported"),
            ("length(s) = 'a'", r"LENGTH\(s\) is integer, 'a' is string; expected values of one"),
            ("g * 2 > 1", "floating-point"), ("1 < g * 2", "floating-point"), ("g + 1 = i + 1", "floating-point"),
        ],
    )  # fmt: skip
    def test_some_conditions_on_rows_are_rejected(self, text: str, problem: str) -> None:
        with pytest.raises(InvalidRequestError, match=problem):
            condition_on_rows(text, SCHEMA)

    @pytest.mark.parametrize("text", ["f % 2", "m % 2", "i % 1.5", "s % 2"])
    def test_a_remainder_takes_integers(self, text: str) -> None:
        with pytest.raises(InvalidRequestError, match=f"'{text}' at position 1 is not supported: % takes integers"):
            value_of(text, SCHEMA["l"], SCHEMA)

    @pytest.mark.longer
    def test_a_condition_of_a_thousand_terms_is_parsed(self) -> None:
        test = test_of(" OR ".join(f"q = {number}" for number in range(1000)))
        assert test.may_match(add(q="999"))
        assert not test.may_match(add(q="1000"))


def test_an_exact_column_name_wins_over_one_in_another_case() -> None:
    twins = parse_schema(json.dumps({"type": "struct", "fields": [field("Q", "long"), field("q", "long")]}))
    (column,) = set(condition_of("q = 1", twins).columns())
    assert column.path == ("q",)
    with pytest.raises(InvalidRequestError):
        condition_of("`qq` = 1", twins)


def test_a_column_of_one_side_of_a_merge_needs_no_alias() -> None:
    target = parse_schema(json.dumps({"type": "struct", "fields": [field("inner", "long")]}))
    sides = Sides.of(target_alias="t", target=target, source_alias="s", source=SCHEMA)
    (column,) = set(condition_of("st.inner = 1", sides).columns())
    assert column.path == ("s", "st", "Inner")


def test_equal_values_of_two_columns_are_not_less() -> None:
    schema = from_arrow(pa.schema([("l", pa.int64()), ("k", pa.int64())]))
    bounds = {"l": 3, "k": 3}
    file = add(stats={"numRecords": 1, "minValues": bounds, "maxValues": bounds, "nullCount": {"l": 0, "k": 0}})
    matches = {text: file_test(text, schema, ()).may_match(file) for text in ("l < k", "l <= k", "NOT l <= k")}
    assert matches == {"l < k": False, "l <= k": True, "NOT l <= k": False}


def test_a_member_that_was_a_float_may_be_above_its_bound() -> None:
    """DELTA.md#type-widening: the float that is written 1.1 is the double 1.10000002384."""
    changes = {"delta.typeChanges": [{"fromType": "float", "toType": "double"}]}
    inner = {"type": "struct", "fields": [{**field("f", "double"), "metadata": changes}]}
    schema = parse_schema(json.dumps({"type": "struct", "fields": [field("st", inner)]}))
    bounds = {"st": {"f": 1.1}}
    file = add(stats={"numRecords": 1, "minValues": bounds, "maxValues": bounds, "nullCount": {"st": {"f": 0}}})
    assert file_test("st.f = 1.100000023841858", schema, ()).may_match(file)


LONGS = st.integers(-3, 3) | st.none()
DOUBLES = st.sampled_from([-1.5, -0.0, 0.0, 2.0, float("nan"), None])


@given(
    st.lists(st.tuples(LONGS, LONGS, DOUBLES, DOUBLES), min_size=1, max_size=4),
    st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"]),
    st.sampled_from([("l", "k"), ("g", "h")]),
)
def test_columns_compare_as_in_spark(rows: list[tuple[Any, ...]], operator: str, columns: tuple[str, str]) -> None:
    """Arrow judges the rows as Spark does: NaN equals itself and is above all numbers, and NULL does not match."""
    schema = pa.schema([("l", pa.int64()), ("k", pa.int64()), ("g", pa.float64()), ("h", pa.float64())])
    table = pa.table([list(column) for column in zip(*rows, strict=True)], schema=schema)
    test = file_test(f"{columns[0]} {operator} {columns[1]}", from_arrow(schema), ())
    matched = matching(table, test.condition.to_arrow()).to_pylist()
    pairs = [tuple(row[schema.get_field_index(name)] for name in columns) for row in rows]
    assert matched == [_compares(operator, *pair) for pair in pairs]


def test_a_decimal_and_a_float_column_are_compared_as_floats() -> None:
    """The double nearest to 0.1 is not the decimal 0.1. A comparison as decimals would skip the file."""
    schema = pa.schema([("amount", pa.decimal128(10, 2)), ("g", pa.float64())])
    test = file_test("amount = g", from_arrow(schema), ("g",))
    bounds = {"numRecords": 1, "nullCount": {"amount": 0}, "minValues": {"amount": 0.1}, "maxValues": {"amount": 0.1}}
    assert test.may_match(add(g="0.1", stats=bounds))


@given(
    kind=st.sampled_from(["long", "integer", "decimal(20,0)", "decimal(38,37)", "decimal(38,19)", "decimal(10,2)"]),
    data=st.data(),
    sign=st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
)
def test_numbers_compare_with_a_double_as_their_doubles(kind: str, data: st.DataObject, sign: str) -> None:
    """In Spark, 2^53 and 2^53 + 1 are equal to the same double: a file with one of them must not be skipped."""
    digits, scale = {"long": (19, 0), "integer": (10, 0)}.get(kind) or decimal_sizes(kind)
    highest = {"long": 2**63 - 1, "integer": 2**31 - 1}.get(kind, 10**digits - 1)
    near = min(2**53, highest)
    whole = data.draw(st.integers(-highest, highest) | st.integers(near - 3, min(near + 3, highest)))
    number = decimal.Decimal(whole).scaleb(-scale, WIDE)
    double = data.draw(st.sampled_from([float(number), math.nextafter(float(number), math.inf), 0.0]))
    literal = data.draw(st.sampled_from([f"CAST('{double!r}' AS DOUBLE)", *([f"'{double!r}'"] if scale else [])]))
    expected = {**COMPARE, "<>": operator.ne, ">": operator.gt, ">=": operator.ge}[sign](float(number), double)
    schema = parse_schema(json.dumps({"type": "struct", "fields": [field("n", kind)]}))
    value = partition_values.from_text(f"{number:f}", schema["n"].type)
    rows = pa.Table.from_pylist([{"n": value}, {"n": None}], schema=to_arrow(schema))
    text = f"n {sign} {literal}"
    assert rows.filter(condition_of(text, schema).to_arrow()).num_rows == expected
    assert file_test(text, schema, ("n",)).matches_partition({"n": f"{number:f}"}) is expected


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_a_long_that_a_float_cannot_hold_is_compared_as_a_double(kind: pa.DataType) -> None:
    rows = pa.table({"l": [2**53 + 1, 2**53 + 1, 3], "g": pa.array([2.0**53, math.nan, 2.5], kind)})
    for text, expected in (("l = g", [True, False, False]), ("l < g", [False, True, False])):
        assert matching(rows, condition_on_rows(text, from_arrow(rows.schema))).to_pylist() == expected


@pytest.mark.parametrize("operator", ["=", "<>", "<", "<=", ">", ">=", "<=>"])
@pytest.mark.parametrize("left", ["g", "l", "m", "u"])
def test_partition_values_decide_a_comparison_of_their_columns(operator: str, left: str) -> None:
    """`replaceWhere` needs the result for each partition. Rows of numbers of other types are compared as doubles."""
    numbers = ["NaN", "Infinity", "-Infinity", "0.1", "-0.0", str(2.0**53), None]
    exact = {"l": ["0", str(2**53 + 1), None], "m": ["0.10", "-1.00", None]}
    test = file_test(f"{left} {operator} u", SCHEMA, (left, "u"))
    for value in exact.get(left, numbers):
        for other in numbers if left != "u" else [value]:
            expected = _compares(operator, *(None if text is None else float(text) for text in (value, other)))
            assert (test.matches_partition({left: value, "u": other}) is True) is expected, (value, other)


def _compares(operator: str, left: Any, right: Any) -> bool:
    if left is None or right is None:
        return operator == "<=>" and left is right
    a, b = ((value != value, 0 if value != value else value) for value in (left, right))
    return bool(
        {"=": a == b, "<=>": a == b, "<>": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[operator]
    )


# Properties: conditions as DuckDB judges them, row by row; and files against their rows


CONNECTION = duckdb.connect()
CONNECTION.execute("PRAGMA disable_optimizer")
"""The optimizer of DuckDB 1.5.5 makes `b = TRUE OR b IS NOT TRUE` false for a null."""

ARROW = pa.schema({"n": pa.int32(), "g": pa.float64(), "s": pa.string(), "d": pa.date32(), "b": pa.bool_()})
MIXED = from_arrow(ARROW)


NUMBERS = st.integers(-2, 2)
FLOATS = st.sampled_from([-1.0, 0.0, -0.0, 0.5, 2.0, math.nan, math.inf])
TEXTS = st.text(alphabet="ab\u00e9\U0001f600", max_size=3)
DATES = st.dates(datetime.date(2020, 1, 1), datetime.date(2020, 1, 4))
ROWS = st.lists(
    st.fixed_dictionaries(
        {"n": st.none() | NUMBERS, "g": st.none() | FLOATS, "s": st.none() | TEXTS, "d": st.none() | DATES,
         "b": st.none() | st.booleans()}
    ),
    max_size=4,
)  # fmt: skip

LITERALS: dict[str, st.SearchStrategy[str]] = {
    "n": NUMBERS.map(str) | st.just("0.5"),
    "g": st.sampled_from(["-1", "0", "0.5", "2", "5"]),
    "s": TEXTS.map(lambda text: f"'{text}'"),
    "d": DATES.map(lambda day: f"DATE '{day}'"),
}
OPERATORS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])


@st.composite
def leaves(draw: st.DrawFn) -> str:
    column = draw(st.sampled_from([*LITERALS]))
    literal = LITERALS[column]
    kind = draw(st.sampled_from(["compare", "between", "in", "null", "like", "boolean", "constant"]))
    match kind:
        case "compare":
            return f"{column} {draw(OPERATORS)} {draw(literal | st.just('NULL'))}"
        case "between":
            return f"{column} BETWEEN {draw(literal)} AND {draw(literal)}"
        case "in":
            values = draw(st.lists(literal | st.just("NULL"), min_size=1, max_size=3))
            return f"{column} {draw(st.sampled_from(['IN', 'NOT IN']))} ({', '.join(values)})"
        case "null":
            return f"{column} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
        case "like":
            pattern = draw(st.text(alphabet="ab%_\u00e9", max_size=3))
            return f"s {draw(st.sampled_from(['', 'NOT ']))}LIKE '{pattern}'"
        case "boolean":
            return draw(st.sampled_from(["b", "NOT b", "b = TRUE", "b IS FALSE", "b IS NOT TRUE"]))
        case _:
            return draw(st.sampled_from(["TRUE", "FALSE", "NULL"]))


CONDITIONS = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        inner.map(lambda condition: f"NOT ({condition})"),
        st.tuples(inner, inner).map(lambda two: f"({two[0]}) AND ({two[1]})"),
        st.tuples(inner, inner).map(lambda two: f"({two[0]}) OR ({two[1]})"),
    ),
    max_leaves=4,
)


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=ARROW)


def chosen_by_duckdb(rows: list[dict[str, Any]], condition: str) -> list[int]:
    numbered = table_of(rows).append_column("number", pa.array(range(len(rows)), pa.int64()))
    CONNECTION.register("numbered", numbered)
    # The rows are copied to a table in DuckDB, so that it does not pass parts of the condition to Arrow.
    CONNECTION.execute("CREATE OR REPLACE TEMP TABLE held AS SELECT * FROM numbered")
    numbers = CONNECTION.execute(f"SELECT number FROM held WHERE {condition} ORDER BY number").fetchall()
    return [number for (number,) in numbers]


@given(ROWS, CONDITIONS)
def test_a_condition_selects_the_same_rows_as_duckdb(rows: list[dict[str, Any]], condition: str) -> None:
    expression = condition_of(condition, MIXED).to_arrow()
    numbered = table_of(rows).append_column("number", pa.array(range(len(rows)), pa.int64()))
    assert numbered.filter(expression)["number"].to_pylist() == chosen_by_duckdb(rows, condition)


PARTITIONED = ("n", "s", "d", "b")


@given(
    st.fixed_dictionaries(
        {"n": st.none() | NUMBERS, "s": st.none() | TEXTS.filter(bool), "d": st.none() | DATES,
         "b": st.none() | st.booleans()}
    ),
    CONDITIONS,
)  # fmt: skip
def test_partition_values_match_as_a_row_with_these_values(row: dict[str, Any], condition: str) -> None:
    test = file_test(condition, MIXED, PARTITIONED)
    if not test.partition_only:
        return
    texts = {
        name: None if value is None else str(value).lower() if name == "b" else str(value)
        for name, value in row.items()
    }
    decided = test.matches_partition(texts)
    rows = [{**row, "g": None}]
    assert (decided is True) == bool(chosen_by_duckdb(rows, condition))
    assert (decided is False) == bool(chosen_by_duckdb(rows, f"NOT ({condition})"))


EXACT = ("byte", "long", "decimal(5,2)", "decimal(38,0)", "decimal(38,38)")
COMPARE = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@st.composite
def exact_comparisons(draw: st.DrawFn) -> tuple[str, str, str, decimal.Decimal]:
    """A type, a number of that type, an operator and any literal."""
    kind = draw(st.sampled_from(EXACT))
    digits, scale = {"byte": (2, 0), "long": (18, 0)}.get(kind) or decimal_sizes(kind)
    whole = draw(st.integers(-(10**digits) + 1, 10**digits - 1))
    near = st.integers(-2, 2).map(lambda step: decimal.Decimal(whole + step).scaleb(-scale, WIDE))
    between = st.integers(-25, 25).map(lambda step: decimal.Decimal(whole * 10 + step).scaleb(-scale - 1, WIDE))
    far = st.sampled_from(
        [decimal.Decimal(text) for text in ("1e400", "-1e400", "9223372036854775808", "0.5", "1e-60")]
    )
    literal = draw(near | between | far)
    return kind, f"{decimal.Decimal(whole).scaleb(-scale, WIDE):f}", draw(st.sampled_from([*COMPARE])), literal


WIDE = decimal.Context(prec=500)


def decimal_sizes(kind: str) -> tuple[int, int]:
    precision, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
    return int(precision), int(scale)


@given(exact_comparisons())
def test_exact_numbers_are_compared_with_all_digits_of_a_literal(case: tuple[str, str, str, decimal.Decimal]) -> None:
    kind, text, sign, literal = case
    schema = parse_schema(json.dumps({"type": "struct", "fields": [field("n", kind)]}))
    expected = COMPARE[sign](decimal.Decimal(text), literal)
    condition = f"n {sign} {literal:f}"
    value = partition_values.from_text(text, schema["n"].type)
    rows = pa.Table.from_pylist([{"n": value}, {"n": None}], schema=to_arrow(schema))
    assert rows.filter(condition_of(condition, schema).to_arrow()).num_rows == expected
    assert file_test(condition, schema, ("n",)).matches_partition({"n": text}) is expected
