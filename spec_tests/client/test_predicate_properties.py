"""Conditions against DuckDB's, row by row; and files against the rows that they hold.

DuckDB orders as Spark does: strings by code points, NaN above every number, three-valued logic.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
import operator
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.actions import Add
from refimpl.client import partition_values
from refimpl.client import schema as delta_schema
from refimpl.client.predicate import parse

CONNECTION = duckdb.connect()
CONNECTION.execute("PRAGMA disable_optimizer")
"""Optimised, DuckDB 1.5.5 finds `b = TRUE OR b IS NOT TRUE` false of a null."""
steady = settings(deadline=None, derandomize=True)

SCHEMA = delta_schema.from_arrow(
    pa.schema(
        [
            pa.field("n", pa.int32()),
            pa.field("g", pa.float64()),
            pa.field("s", pa.string()),
            pa.field("d", pa.date32()),
            pa.field("b", pa.bool_()),
        ]
    )
)
ARROW = delta_schema.to_arrow(SCHEMA)

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
        inner.map(lambda one: f"NOT ({one})"),
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
    # A table of its own: DuckDB must not hand parts of the condition to Arrow.
    CONNECTION.execute("CREATE OR REPLACE TEMP TABLE held AS SELECT * FROM numbered")
    numbers = CONNECTION.execute(f"SELECT number FROM held WHERE {condition} ORDER BY number").fetchall()
    return [number for (number,) in numbers]


@steady
@given(ROWS, CONDITIONS)
def test_the_same_rows_are_chosen_as_by_a_database(rows: list[dict[str, Any]], condition: str) -> None:
    expression = parse(condition).condition(SCHEMA).to_arrow()
    numbered = table_of(rows).append_column("number", pa.array(range(len(rows)), pa.int64()))
    assert numbered.filter(expression)["number"].to_pylist() == chosen_by_duckdb(rows, condition)


def statistics(rows: list[dict[str, Any]], *, with_nan: bool) -> str:
    """Honest statistics, as writers that leave NaN out or put it on top would make them."""
    lower: dict[str, Any] = {}
    upper: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in SCHEMA.names:
        values = [row[name] for row in rows if row[name] is not None]
        nulls[name] = len(rows) - len(values)
        numbers = [value for value in values if value == value]
        if numbers and name != "b":
            lower[name], upper[name] = spelled(min(numbers)), spelled(max(numbers))
        if with_nan and len(numbers) < len(values):
            upper[name] = "NaN"
    return json.dumps({"numRecords": len(rows), "minValues": lower, "maxValues": upper, "nullCount": nulls})


def spelled(value: Any) -> Any:
    if isinstance(value, float) and math.isinf(value):
        return "Infinity"
    return value.isoformat() if isinstance(value, datetime.date) else value


@steady
@given(ROWS, CONDITIONS, st.booleans())
def test_a_file_that_holds_a_matching_row_is_never_pruned(
    rows: list[dict[str, Any]], condition: str, with_nan: bool
) -> None:
    test = parse(condition).test(SCHEMA, ())
    stats = statistics(rows, with_nan=with_nan)
    file = Add(path="f", size=1, modification_time=0, data_change=True, partition_values={}, stats=stats)
    if chosen_by_duckdb(rows, condition):
        assert test.may_match(file)


PARTITIONED = ("n", "s", "d", "b")


@steady
@given(
    st.fixed_dictionaries(
        {"n": st.none() | NUMBERS, "s": st.none() | TEXTS.filter(bool), "d": st.none() | DATES,
         "b": st.none() | st.booleans()}
    ),
    CONDITIONS,
)  # fmt: skip
def test_partition_values_decide_as_for_a_row(row: dict[str, Any], condition: str) -> None:
    test = parse(condition).test(SCHEMA, PARTITIONED)
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
    """A type, a number that it holds, an operator, and any literal."""
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


@steady
@given(exact_comparisons())
def test_exact_numbers_are_compared_with_all_digits_of_any_literal(case: tuple[str, str, str, decimal.Decimal]) -> None:
    kind, text, sign, literal = case
    schema = delta_schema.parse(
        json.dumps({"type": "struct", "fields": [{"name": "n", "type": kind, "nullable": True, "metadata": {}}]})
    )
    expected = COMPARE[sign](decimal.Decimal(text), literal)
    predicate = parse(f"n {sign} {literal}")
    value = partition_values.from_text(text, schema["n"].type)
    rows = pa.Table.from_pylist([{"n": value}, {"n": None}], schema=delta_schema.to_arrow(schema))
    assert rows.filter(predicate.condition(schema).to_arrow()).num_rows == expected
    assert predicate.test(schema, ("n",)).matches_partition({"n": text}) is expected
