"""Values in SQL, computed by Arrow: the right sides of UPDATE and MERGE.

    values = assigned({"price": "price * 2", "day": "DATE '2026-11-22'"}, columns=schema, scope=schema)
    evaluated(rows, values)

Supported: literals, columns, `+`, `-`, `*`, `%` of integers, `||`, COALESCE, UPPER, LOWER, LENGTH, SUBSTRING, ABS,
YEAR, MONTH, DAY, HOUR, CAST of a time to DATE, and CASE WHEN, with the conditions of `refimpl.rows.predicate`. Times
are in UTC. As in Spark's ANSI mode, an overflow is an error; a result of decimals has at most 38 digits, and may be
rounded to fit. Anything else is rejected. CASE and COALESCE compute each value for all rows, so they do not prevent an
error: `CASE WHEN y <> 0 THEN x % y END` fails for rows in which y is 0.
"""

import datetime
import decimal
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from refimpl.protocol.errors import InvalidRequestError, UnsupportedFeatureError
from refimpl.rows import arrow_columns, predicate
from refimpl.rows.arrow_columns import LONGEST_DECIMAL, scalar
from refimpl.rows.condition import Column, is_exact
from refimpl.schema.schema import FLOATS, DataType, Decimal, Field, Primitive, Struct, arrow_type, from_arrow, to_arrow


def evaluated(rows: pa.Table, expressions: Mapping[str, pc.Expression]) -> pa.Table:
    """The expressions' values for each row, in the order of the rows."""
    # `pyarrow.acero` has the same names, but imports `pyarrow.dataset`, which imports pandas
    from pyarrow._acero import Declaration, ProjectNodeOptions, TableSourceNodeOptions

    plan = Declaration.from_sequence(
        [
            Declaration("table_source", TableSourceNodeOptions(rows)),
            Declaration("project", ProjectNodeOptions(list(expressions.values()), list(expressions))),
        ]
    )
    try:
        return plan.to_table(use_threads=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        hint = ""
        if "precision" in str(error):
            hint = (
                f"; a decimal has at most {LONGEST_DECIMAL} digits: leave out the rows with longer results, or use "
                f"another expression"
            )
        raise InvalidRequestError(f"cannot compute {', '.join(map(repr, expressions))}: {error}{hint}") from error


def matching(rows: pa.Table, condition: pc.Expression) -> pa.ChunkedArray:
    """Whether the condition is true for each row: false where it is null."""
    return pc.fill_null(evaluated(rows, {"condition": condition}).column(0), scalar(False, pa.bool_()))


def condition(text: str, schema: Struct) -> pc.Expression:
    """A condition on rows, in SQL: what `refimpl.rows.predicate` supports, and comparisons of values.

    Raises `InvalidRequestError` for SQL that is not supported.
    """
    try:
        return predicate.condition(text, schema).to_arrow()
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
        sides = _operands(node, schema)
    kinds = _types(sides, schema)
    if any(pa.types.is_floating(kind) for kind in kinds):
        predicate.refuse(node, "compares computed floating-point numbers, which is not supported")
    left, right = arrow_columns.comparable(sides, kinds)
    return _checked(node, _COMPARISONS[type(node)](left, right), schema)


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
    if not isinstance(values, Mapping) or not values:
        raise InvalidRequestError(
            f"no column is set by {values!r}; expected at least one, as in {{'price': 'price * 2'}}"
        )
    expressions: dict[str, pc.Expression] = {}
    for given, value in values.items():
        name = arrow_columns.stored_name(columns.names, given)
        column = columns[name or given]
        if column.name in expressions:
            raise InvalidRequestError(f"the column {column.name!r} is set twice", column=column.name)
        target = Column(path=(column.name,), type=column.type)
        expressions[column.name] = (
            _of_sql(value, target, scope) if isinstance(value, str) else _of_python(value, target)
        )
    return expressions


def _of_python(value: Any, column: Column, make: Callable[[Any, pa.DataType], pa.Scalar] = pa.scalar) -> pc.Expression:
    kind = column.type
    problem: object
    try:
        made = make(value, arrow_type(kind))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError) as error:
        problem = "it has too many digits" if isinstance(kind, Decimal) or isinstance(error, OverflowError) else error
    else:
        if not _is_cut(value, made, kind):
            return pc.scalar(made)
        problem = f"it would become {made.as_py()}"
    raise InvalidRequestError(
        f"the column {column.path[-1]!r} is {kind} and cannot be {value!r}: {problem}", column=column.path[-1]
    )


def _is_cut(value: Any, made: pa.Scalar, kind: DataType) -> bool:
    """Whether Arrow's cast dropped a fraction, or the time of day."""
    if isinstance(value, datetime.datetime):
        return kind == Primitive(name="date") and value.time() != datetime.time()
    return isinstance(value, float | decimal.Decimal) and kind not in FLOATS and made.as_py() != value


def _of_sql(text: str, column: Column, scope: Struct) -> pc.Expression:
    kind = column.type
    tree = predicate.bare(predicate.syntax(text))
    predicate.check_deterministic(tree)
    if isinstance(tree.this if isinstance(tree, exp.Cast) else tree, exp.Null):
        return pc.scalar(scalar(None, arrow_type(kind)))
    if isinstance(tree, exp.Literal | exp.Boolean | exp.Neg | exp.Cast | exp.HexString) and not tree.find(exp.Column):
        value = predicate.fitted(predicate.literal_of(tree), column, tree)
        if is_exact(kind) and not isinstance(kind, Decimal):
            if value != int(value):  # Arrow would truncate it
                predicate.refuse(tree, f"does not fit: the column {column.path[-1]!r} is {kind}")
            value = int(value)
        return _of_python(value, column, scalar)
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


def _product(text: str) -> str:
    """The product of two decimals of 38 digits, rounded half away from zero. `text`: both, and the digits to keep."""
    left, right, kept = text.split()
    with decimal.localcontext(prec=2 * LONGEST_DECIMAL, rounding=decimal.ROUND_HALF_UP):
        return f"{(decimal.Decimal(left) * decimal.Decimal(right)).quantize(decimal.Decimal(1).scaleb(-int(kept))):f}"


_PRODUCT: Final = _registered("commit_owner_product", _product)
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


def _number(node: exp.Expression) -> pa.Scalar:
    """A numeric literal, in the type that Spark gives it."""
    number = predicate.literal_of(node)
    assert isinstance(number, decimal.Decimal | float)
    try:
        if isinstance(node, exp.Cast):
            kind = predicate.NUMBERS[node.to.this]
            return scalar(float(number) if kind in FLOATS else int(number), arrow_type(kind))
        if predicate.is_whole(node):
            return scalar(int(number), pa.int32() if -(2**31) <= number < 2**31 else pa.int64())
        return pa.scalar(number)
    except (OverflowError, ValueError):
        predicate.refuse(node, "has too many digits")


def _parts(node: exp.Expression) -> Sequence[exp.Expression]:
    """The operands of one operation."""
    match node:
        case exp.Binary():
            return node.left, node.right
        case exp.Coalesce():
            return node.this, *node.expressions
        case exp.Case():
            return *(branch.args["true"] for branch in node.args["ifs"]), node.args.get("default") or exp.Null()
        case _:
            return (node.this.this if isinstance(node.this, exp.TsOrDsToDate) else node.this,)


def _operands(node: exp.Expression, scope: Struct) -> list[pc.Expression]:
    """The operands of one operation, converted to the types in which Spark computes.

    Integers become the longest of their types, or double if another operand is a float. A whole-number literal becomes
    a decimal of its own length if another operand is a decimal.
    """
    nodes = _parts(node)
    values = [_value(part, scope) for part in nodes]
    kinds = _types(values, scope)
    integers = {kind for kind in kinds if pa.types.is_integer(kind)}
    if integers and any(pa.types.is_floating(kind) for kind in kinds):
        wide, cast = pa.float64(), [pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in kinds]
        return [value.cast(wide, safe=False) if numeric else value for value, numeric in zip(values, cast, strict=True)]
    if any(pa.types.is_decimal(kind) for kind in kinds):
        return [
            pc.scalar(pa.scalar(predicate.literal_of(node))) if predicate.is_whole(node) else value
            for node, value in zip(nodes, values, strict=True)
        ]
    if len(integers) > 1:
        longest = max(integers, key=lambda kind: int(kind.bit_width))
        return [value.cast(longest) if kind in integers else value for value, kind in zip(values, kinds, strict=True)]
    return values


def _computed(node: exp.Binary, scope: Struct) -> pc.Expression:
    """`+`, `-` or `*`. The result of decimals has Spark's type, with at most 38 digits: if the exact type is longer,
    the result is rounded half away from zero, and keeps at least 6 of its digits after the point."""
    operands = _operands(node, scope)
    operation = _OPERATORS[type(node)]
    kinds = _types(operands, scope)
    sizes = [size for size in map(arrow_columns.digits, kinds) if size is not None]
    if len(sizes) < 2 or not any(pa.types.is_decimal(kind) for kind in kinds):
        return operation(*operands)
    (left, left_scale), (right, right_scale) = sizes
    if isinstance(node, exp.Mul):
        scale = left_scale + right_scale
        whole = left + right + 1 - scale
    else:
        scale = max(left_scale, right_scale)
        whole = max(left - left_scale, right - right_scale) + 1
    fits = whole + scale <= LONGEST_DECIMAL
    kept = max(LONGEST_DECIMAL - whole, min(scale, _KEPT_DIGITS))
    if whole + scale > 2 * LONGEST_DECIMAL:  # by one digit, so Arrow has no type for it
        if isinstance(node, exp.Mul):
            texts = (operand.cast(pa.string()) for operand in operands)
            product = _PRODUCT(pc.binary_join_element_wise(*texts, pc.scalar(str(kept)), " "))
            return product.cast(pa.decimal256(2 * LONGEST_DECIMAL, kept)).cast(pa.decimal128(LONGEST_DECIMAL, kept))
        longer = 0 if left_scale < right_scale else 1
        sizes[longer] = (LONGEST_DECIMAL - 1, sizes[longer][1])  # a longer value makes the result too long, too
    kind = pa.decimal128 if fits else pa.decimal256
    exact = operation(*(value.cast(kind(*size)) for value, size in zip(operands, sizes, strict=True)))
    if fits:
        return exact
    rounded = pc.round(exact, kept, "half_towards_infinity") if kept < scale else exact
    return rounded.cast(pa.decimal128(LONGEST_DECIMAL, kept))


_KEPT_DIGITS: Final = 6
"""See Spark's `DecimalType.MINIMUM_ADJUSTED_SCALE`."""


def _remainder(node: exp.Binary, scope: Struct) -> pc.Expression:
    """`%` of integers, with the sign of the left side. -1 is replaced by 1: the quotient of the lowest number and -1
    is an overflow, but the remainder is 0."""
    left, right = operands = _operands(node, scope)
    if not all(pa.types.is_integer(kind) for kind in _types(operands, scope)):
        predicate.refuse(node, "is not supported: % takes integers")
    divisor = pc.if_else(right == -1, pc.negate(right), right)
    return pc.subtract(left, pc.multiply(pc.divide_checked(left, divisor), divisor))


def _types(values: Sequence[pc.Expression], scope: Struct) -> list[pa.DataType]:
    named = {str(position): value for position, value in enumerate(values)}
    return list(evaluated(pa.Table.from_batches([], to_arrow(scope)), named).schema.types)


def _of_one_type(values: list[pc.Expression], scope: Struct) -> list[pc.Expression]:
    """Converts decimals to one type that holds all of them, because `if_else` requires one type."""
    kinds = _types(values, scope)
    decimals = {kind for kind in kinds if pa.types.is_decimal(kind)}
    if len(decimals) < 2:
        return values
    scale = max(kind.scale for kind in decimals)
    wide = pa.decimal128(min(38, scale + max(kind.precision - kind.scale for kind in decimals)), scale)
    return [value.cast(wide) if kind in decimals else value for value, kind in zip(values, kinds, strict=True)]


_TAKES: Final[Mapping[type[exp.Expression], str]] = {
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Abs), "numbers"),
    **dict.fromkeys((exp.DPipe, exp.Upper, exp.Lower, exp.Length, exp.Substring), "strings"),
    **dict.fromkeys((exp.Year, exp.Month, exp.Day, exp.DayOfMonth), "a date or a timestamp"),
    exp.Hour: "a timestamp",
    **dict.fromkeys((exp.Coalesce, exp.Case, *_COMPARISONS), "values of one type"),
}


def _checked(node: exp.Expression, value: pc.Expression, scope: Struct) -> pc.Expression:
    """The value of an operation. Raises `InvalidRequestError` if it does not take operands of these types."""
    try:
        _types([value], scope)
    except InvalidRequestError as error:
        if not isinstance(error.__cause__, pa.ArrowNotImplementedError):
            predicate.refuse(node, f"cannot be computed: {error.__cause__}")
        given = ", ".join(f"{part.sql(dialect='spark')} is {_type_name(part, scope)}" for part in _parts(node))
        predicate.refuse(node, f"does not fit: {given}; expected {_TAKES[type(node)]}")
    return value


def _type_name(node: exp.Expression, scope: Struct) -> str:
    if predicate.is_whole(node):
        return "a number"
    (kind,) = _types([_value(node, scope)], scope)
    try:
        return str(from_arrow(pa.schema([("", kind)])).fields[0].type)
    except UnsupportedFeatureError:  # Delta has no such columns
        return str(kind)


def _value(node: exp.Expression, scope: Struct) -> pc.Expression:
    value = _built(node, scope)
    return _checked(node, value, scope) if type(node) in _TAKES else value


def _built(node: exp.Expression, scope: Struct) -> pc.Expression:  # noqa: RET503 - `refuse` never returns
    match node:
        case exp.Paren():
            return _value(node.this, scope)
        case exp.Column():
            return pc.field(*predicate.column_of(node, scope).path)
        case exp.Null() | exp.Cast(this=exp.Null()):
            return pc.scalar(scalar(None, pa.null()))
        case exp.Literal(is_string=False):
            return pc.scalar(_number(node))
        case exp.Neg() if predicate.is_whole(node):
            return pc.scalar(_number(node))
        case exp.Cast() if node.find(exp.Column):
            return _as_date(node.this, node, scope)
        case exp.TsOrDsToDate():
            return _as_date(node.this, node, scope)
        case exp.Year() | exp.Month() | exp.Day() | exp.DayOfMonth() | exp.Hour():
            (of,) = _parts(node)
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
        case exp.Cast() if node.to.this in predicate.NUMBERS:
            return pc.scalar(_number(node))
        case exp.Literal() | exp.Boolean() | exp.Cast():
            return pc.scalar(pa.scalar(predicate.literal_of(node)))
        case exp.Add() | exp.Sub() | exp.Mul():
            return _computed(node, scope)
        case exp.Mod():
            return _remainder(node, scope)
        case exp.Neg() | exp.Length() | exp.Abs() | exp.Upper() | exp.Lower():
            return _FUNCTIONS[type(node)](_value(node.this, scope))
        case exp.DPipe():
            return pc.binary_join_element_wise(_value(node.left, scope), _value(node.right, scope), "")
        case exp.Coalesce():
            return pc.coalesce(*_operands(node, scope))
        case exp.Case() if node.args.get("this") is None:
            *values, result = _of_one_type(_operands(node, scope), scope)
            for branch, value in zip(reversed(node.args["ifs"]), reversed(values), strict=True):
                condition = predicate.condition_of(branch.this, scope).to_arrow()
                result = pc.if_else(pc.coalesce(condition, False), value, result)
            return result
    known = (
        "literals, columns, +, -, *, % of integers, ||, COALESCE, UPPER, LOWER, LENGTH, SUBSTRING, ABS, YEAR, MONTH, "
    )
    known += "DAY, HOUR, CAST, CASE WHEN"
    predicate.refuse(node, f"is not supported in a value; expected {known}")
