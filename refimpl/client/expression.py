"""Values in SQL, computed by Arrow: the right sides of UPDATE and MERGE.

    values = assigned({"price": "price * 2", "day": "DATE '2026-11-22'"}, columns=schema, scope=schema)
    evaluated(rows, values)

Supported: literals, columns, `+`, `-`, `*`, `||`, COALESCE, UPPER, LOWER, LENGTH, SUBSTRING, ABS, YEAR, MONTH, DAY,
HOUR, CAST of a time to DATE, and CASE WHEN, with the conditions of `refimpl.client.predicate`. Times are in UTC. As in
Spark's ANSI mode, an overflow is an error. Anything else is rejected.
"""

from __future__ import annotations

import datetime
import decimal
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc
from sqlglot import exp

from refimpl.client import arrow_columns, predicate
from refimpl.client.condition import FLOATS, Column, is_exact
from refimpl.client.schema import DataType, Decimal, Field, Primitive, Struct, arrow_type, to_arrow
from refimpl.errors import InvalidRequestError


def evaluated(rows: pa.Table, expressions: Mapping[str, pc.Expression]) -> pa.Table:
    """The expressions' values for each row, in the order of the rows."""
    plan = acero.Declaration.from_sequence(
        [
            acero.Declaration("table_source", acero.TableSourceNodeOptions(rows)),
            acero.Declaration("project", acero.ProjectNodeOptions(list(expressions.values()), list(expressions))),
        ]
    )
    try:
        return plan.to_table(use_threads=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidRequestError(f"cannot compute {', '.join(expressions)}: {error}") from error


def matching(rows: pa.Table, condition: pc.Expression) -> pa.ChunkedArray:
    """Whether the condition is true for each row: false where it is null."""
    return pc.fill_null(evaluated(rows, {"condition": condition}).column(0), False)


def condition(text: str, schema: Struct) -> pc.Expression:
    """A condition on rows, in SQL: what `refimpl.client.predicate` supports, and comparisons of values.

    Raises `InvalidRequestError` for SQL that is not supported.
    """
    try:
        return predicate.parse(text).condition(schema).to_arrow()
    except InvalidRequestError:  # not supported for files; perhaps it is for rows
        tree = predicate.syntax(text)
    predicate.check_deterministic(tree)
    return _truth(tree, schema)


def _truth(node: exp.Expression, schema: Struct) -> pc.Expression:
    match node:
        case exp.Paren():
            return _truth(node.this, schema)
        case exp.Not():
            return ~_truth(node.this, schema)
        case exp.And():
            return _truth(node.left, schema) & _truth(node.right, schema)
        case exp.Or():
            return _truth(node.left, schema) | _truth(node.right, schema)
        case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            return _compared(node, schema)
        case _:
            return predicate.condition_of(node, schema).to_arrow()


def _compared(node: exp.Binary, schema: Struct) -> pc.Expression:
    try:
        return predicate.condition_of(node, schema).to_arrow()
    except InvalidRequestError:
        sides = {"left": _value(node.left, schema), "right": _value(node.right, schema)}
    kinds = evaluated(to_arrow(schema).empty_table(), sides).schema.types
    if any(pa.types.is_floating(kind) for kind in kinds):
        predicate.refuse(node, "compares computed floating-point numbers, which is not supported")
    comparison: pc.Expression = _COMPARISONS[type(node)](sides["left"], sides["right"])
    return comparison


_COMPARISONS: Final[dict[type[exp.Expression], Any]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
}


def value(text: str, column: Field, schema: Struct) -> pc.Expression:
    """An SQL expression on the columns of `schema`, as a value of `column`."""
    return _of_sql(text, Column(path=(column.name,), type=column.type), schema)


def assigned(values: Mapping[str, Any], *, columns: Struct, scope: Struct) -> dict[str, pc.Expression]:
    """`values` by names of `columns`: text is SQL on the columns of `scope`, anything else a literal of Python.

    Raises `InvalidRequestError` for an unknown column, and for SQL that is not supported.
    """
    if not values:
        raise InvalidRequestError("no column is set; expected at least one, as in {'price': 'price * 2'}")
    found: dict[str, pc.Expression] = {}
    for given, value in values.items():
        name = arrow_columns.stored_name(columns.names, given)
        column = columns[name or given]
        if column.name in found:
            raise InvalidRequestError(f"the column {column.name!r} is set twice", column=column.name)
        target = Column(path=(column.name,), type=column.type)
        found[column.name] = _of_sql(value, target, scope) if isinstance(value, str) else _of_python(value, target)
    return found


def _of_python(value: Any, column: Column) -> pc.Expression:
    kind = column.type
    problem: object
    try:
        scalar = pa.scalar(value, arrow_type(kind))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError) as error:
        problem = error
    else:
        if not _is_cut(value, scalar, kind):
            return pc.scalar(scalar)
        problem = f"it would become {scalar.as_py()}"
    raise InvalidRequestError(
        f"the column {column.path[-1]!r} is {kind} and cannot be {value!r}: {problem}", column=column.path[-1]
    )


def _is_cut(value: Any, scalar: pa.Scalar, kind: DataType) -> bool:
    """Whether Arrow's cast dropped a fraction, or the time of day."""
    if isinstance(value, datetime.datetime):
        return kind == Primitive(name="date") and value.time() != datetime.time()
    return isinstance(value, float | decimal.Decimal) and kind not in FLOATS and scalar.as_py() != value


def _of_sql(text: str, column: Column, scope: Struct) -> pc.Expression:
    kind = column.type
    tree = predicate.bare(predicate.syntax(text))
    predicate.check_deterministic(tree)
    if isinstance(tree, exp.Null):
        return pc.scalar(pa.scalar(None, arrow_type(kind)))
    if isinstance(tree, exp.Literal | exp.Boolean | exp.Neg | exp.Cast | exp.HexString) and not tree.find(exp.Column):
        value = predicate.fitted(predicate.literal_of(tree), column, tree)
        if is_exact(kind) and not isinstance(kind, Decimal):
            if value != int(value):  # Arrow would truncate it
                predicate.refuse(tree, f"does not fit: the column {column.path[-1]!r} is {kind}")
            value = int(value)
        return _of_python(value, column)
    return _value(tree, scope)


def _registered(name: str, convert: Callable[[str], str]) -> Callable[[pc.Expression], pc.Expression]:
    """Registers a function that converts strings as Spark does. Arrow's own replaces one character by one, and so does
    not turn `ß` into `SS`."""

    def function(_: pc.UdfContext, text: pa.Array | pa.Scalar) -> pa.Array | pa.Scalar:
        if isinstance(text, pa.Scalar):
            return pa.scalar(None if text.as_py() is None else convert(text.as_py()), pa.string())
        return pa.array([None if value is None else convert(value) for value in text.to_pylist()], pa.string())

    pc.register_scalar_function(function, name, {"summary": name, "description": name}, {"": pa.string()}, pa.string())
    return lambda operand: pc.Expression._call(name, [operand])


_OPERATORS: Final = {exp.Add: pc.add_checked, exp.Sub: pc.subtract_checked, exp.Mul: pc.multiply_checked}
_FUNCTIONS: Final[dict[type[exp.Expression], Callable[[pc.Expression], pc.Expression]]] = {
    exp.Upper: _registered("commit_owner_upper", str.upper),
    exp.Lower: _registered("commit_owner_lower", str.lower),
    exp.Neg: pc.negate_checked,
    exp.Length: pc.utf8_length,
    exp.Abs: pc.abs_checked,
}
_PARTS_OF_TIMES: Final = {
    exp.Year: pc.year,
    exp.Month: pc.month,
    exp.Day: pc.day,
    exp.DayOfMonth: pc.day,
    exp.Hour: pc.hour,
}


def _as_date(of: exp.Expression, node: exp.Expression, scope: Struct) -> pc.Expression:
    """CAST(column AS DATE) of a date or a time."""
    if isinstance(node, exp.Cast) and node.to.this != exp.DataType.Type.DATE:
        predicate.refuse(node, "is not supported: of columns, CAST takes times to DATE")
    column = predicate.column_of(of, scope)
    if str(column.type) not in ("date", "timestamp", "timestamp_ntz"):
        predicate.refuse(node, f"is not supported: {column.path[-1]} is {column.type}, not a time")
    return pc.field(*column.path).cast(pa.date32(), safe=False)


def _is_whole(node: exp.Expression) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit()


def _operands(nodes: Sequence[exp.Expression], scope: Struct) -> list[pc.Expression]:
    """The operands of one operation. Beside a decimal, a whole literal becomes a decimal of its length, as in Spark;
    Arrow would give it 19 digits, and then reject the wide result."""
    values = [_value(node, scope) for node in nodes]
    whole = [_is_whole(predicate.bare(node.this if isinstance(node, exp.Neg) else node)) for node in nodes]
    if not any(whole) or not any(pa.types.is_decimal(kind) for kind in _types(values, scope)):
        return values
    return [
        pc.scalar(pa.scalar(predicate.literal_of(node))) if literal else value
        for node, value, literal in zip(nodes, values, whole, strict=True)
    ]


def _types(values: Sequence[pc.Expression], scope: Struct) -> list[pa.DataType]:
    named = {str(position): value for position, value in enumerate(values)}
    return list(evaluated(to_arrow(scope).empty_table(), named).schema.types)


def _of_one_type(values: list[pc.Expression], scope: Struct) -> list[pc.Expression]:
    """Converts decimals to one type that holds all of them, because `if_else` requires one type."""
    kinds = _types(values, scope)
    decimals = {kind for kind in kinds if pa.types.is_decimal(kind)}
    if len(decimals) < 2:
        return values
    scale = max(kind.scale for kind in decimals)
    wide = pa.decimal128(min(38, scale + max(kind.precision - kind.scale for kind in decimals)), scale)
    return [value.cast(wide) if kind in decimals else value for value, kind in zip(values, kinds, strict=True)]


def _value(node: exp.Expression, scope: Struct) -> pc.Expression:  # noqa: RET503 - `refuse` never returns
    match node:
        case exp.Paren():
            return _value(node.this, scope)
        case exp.Column():
            return pc.field(*predicate.column_of(node, scope).path)
        case exp.Null():
            return pc.scalar(pa.scalar(None))
        case exp.Literal(is_string=False):
            number = predicate.literal_of(node)
            try:
                return pc.scalar(pa.scalar(int(node.this), pa.int64()) if _is_whole(node) else pa.scalar(number))
            except (OverflowError, ValueError):
                predicate.refuse(node, "has too many digits")
        case exp.Cast() if node.find(exp.Column):
            return _as_date(node.this, node, scope)
        case exp.TsOrDsToDate():
            return _as_date(node.this, node, scope)
        case exp.Year() | exp.Month() | exp.Day() | exp.DayOfMonth() | exp.Hour():
            of = node.this.this if isinstance(node.this, exp.TsOrDsToDate) else node.this
            return _PARTS_OF_TIMES[type(node)](_value(of, scope))
        case exp.Substring() if node.args.get("length"):
            start, length = (predicate.literal_of(node.args[part]) for part in ("start", "length"))
            if (
                not isinstance(start, decimal.Decimal)
                or not isinstance(length, decimal.Decimal)
                or start < 1
                or length < 0
            ):
                predicate.refuse(node, "is not supported: SUBSTRING takes a position from 1 on and a length")
            return pc.utf8_slice_codeunits(_value(node.this, scope), int(start) - 1, int(start) - 1 + int(length))
        case exp.Literal() | exp.Boolean() | exp.Cast():
            return pc.scalar(pa.scalar(predicate.literal_of(node)))
        case exp.Add() | exp.Sub() | exp.Mul():
            return _OPERATORS[type(node)](*_operands((node.left, node.right), scope))
        case exp.Upper() | exp.Lower():
            text = _value(node.this, scope)
            if _types([text], scope) == [pa.string()]:  # the rows may have another type of text, such as large_string
                text = text.cast(pa.string())
            return _FUNCTIONS[type(node)](text)
        case exp.Neg() | exp.Length() | exp.Abs():
            return _FUNCTIONS[type(node)](_value(node.this, scope))
        case exp.DPipe():
            return pc.binary_join_element_wise(_value(node.left, scope), _value(node.right, scope), "")
        case exp.Coalesce():
            return pc.coalesce(*_operands((node.this, *node.expressions), scope))
        case exp.Case() if node.args.get("this") is None:
            branches, default = node.args["ifs"], node.args.get("default") or exp.Null()
            operands = _operands((*(branch.args["true"] for branch in branches), default), scope)
            *values, result = _of_one_type(operands, scope)
            for branch, value in zip(reversed(branches), reversed(values), strict=True):
                condition = predicate.condition_of(branch.this, scope).to_arrow()
                result = pc.if_else(pc.coalesce(condition, False), value, result)
            return result
    known = (
        "literals, columns, +, -, *, ||, COALESCE, UPPER, LOWER, LENGTH, SUBSTRING, ABS, YEAR, MONTH, DAY, HOUR, CAST, "
    )
    known += "CASE WHEN"
    predicate.refuse(node, f"is not supported in a value; expected {known}")
